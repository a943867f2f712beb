// SPDX-License-Identifier: MPL-2.0
//! Any plan: what a rectangle is computed from is inside of what is read, a part of it is computed from a part of that and the parts
//! together from all of it, and what parts of a frame need is computed in order, once, from planes that hold it.
#![no_main]

use arbitrary::Arbitrary;
use gstcudagaussblur::cpu::TILES;
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::{PlaneLayout, Role, SampleLayout, Split};
use gstcudagaussblur::filter::operation::{Buffer, Operation, View};
use gstcudagaussblur::filter::picture::FieldRect;
use gstcudagaussblur::filter::plan::{AlphaMode, Options, Plan, Selection};
use gstcudagaussblur::filter::regions::Rect;

#[derive(Arbitrary, Debug)]
struct Input {
    size: [u16; 2],
    kind: u8,
    split: u8,
    /// In hundredths, if it is not any number.
    sigma: Result<u16, f64>,
    kernel_size: Option<u16>,
    premultiplies: bool,
    selected: [bool; 3],
    rects: Vec<[u16; 4]>,
    cut: u16,
}

/// The planes of a kind of frame.
fn planes(kind: u8, [width, height]: [u32; 2], split: Split) -> Vec<PlaneLayout> {
    let plane =
        |width, height, channels, depth| PlaneLayout { split, ..PlaneLayout::new(width, height, channels, depth) };
    let with = |role, layout: PlaneLayout| PlaneLayout { roles: [role; 4], ..layout };
    let small = PlaneLayout { sigma_scale: [0.5; 2], ..plane(width.div_ceil(2), height.div_ceil(2), 2, 8) };
    let packed =
        |channels, depth, sample_layout| PlaneLayout { sample_layout, ..plane(width, height, channels, depth) };
    let rgba = [Role::Primary, Role::Primary, Role::Primary, Role::Alpha];
    match kind % 7 {
        0 => vec![plane(width, height, 1, 8)],
        1 => vec![PlaneLayout { roles: rgba, ..plane(width, height, 4, 8) }],
        2 => vec![plane(width, height, 1, 8), with(Role::Chroma, small)],
        3 => vec![plane(width, height, 1, 8), with(Role::Chroma, small), with(Role::Alpha, plane(width, height, 1, 8))],
        4 => vec![packed(2, 10, SampleLayout::MsbAligned)],
        5 => vec![packed(4, 10, SampleLayout::Packed1010102)],
        _ => {
            let roles = [Role::Primary, Role::Chroma, Role::Primary, Role::Chroma];
            vec![PlaneLayout { roles, ..packed(4, [8, 12][usize::from(kind / 7 % 2)], SampleLayout::Yuv422 { luma: 0 }) }]
        }
    }
}

fn whole(view: &View) -> Rect {
    Rect::new(0, 0, view.field.layout.width, view.field.layout.height).expect("a plane has samples")
}

fn is_within(inner: Rect, outer: Rect) -> bool {
    inner.hull(outer) == outer
}

/// A part of a rectangle; `None` if nothing is left.
fn part(of: Rect, [x, right, y, bottom]: [u16; 4]) -> Option<Rect> {
    let axis = |start: u32, length: u32, ends: [u16; 2]| {
        let [one, other] = ends.map(|end| start + u32::from(end) % (length + 1));
        [one.min(other), one.max(other)]
    };
    Rect::between(axis(of.x(), of.width(), [x, right]), axis(of.y(), of.height(), [y, bottom]))
}

fn check(operation: &Operation, rect: Rect, cut: u16) {
    let all = operation.reads(rect);
    assert!(all.iter().all(|(view, read)| is_within(*read, whole(view))), "{all:?} for {rect:?} of {operation:?}");
    let of_row = u32::from(cut) % rect.height();
    let of_column = u32::from(cut) % rect.width();
    for [x, y] in [[of_column, rect.height()], [rect.width(), of_row]] {
        let [right, bottom] = [rect.x() + x, rect.y() + y];
        let upper = Rect::between([rect.x(), right], [rect.y(), bottom]);
        let lower = if x < rect.width() {
            Rect::between([right, rect.right()], [rect.y(), rect.bottom()])
        } else {
            Rect::between([rect.x(), rect.right()], [bottom, rect.bottom()])
        };
        let parts: Vec<_> = [upper, lower].into_iter().flatten().map(|part| operation.reads(part)).collect();
        for (i, (view, read)) in all.iter().enumerate() {
            assert!(parts.iter().all(|part| part[i].0 == *view && is_within(part[i].1, *read)), "{operation:?}");
            let hull = parts.iter().map(|part| part[i].1).reduce(Rect::hull);
            assert_eq!(hull, Some(*read), "cut at {x} {y} of {rect:?}: {operation:?}");
        }
    }
}

libfuzzer_sys::fuzz_target!(|input: Input| {
    let sigma = input.sigma.map_or_else(|any| any, |hundredths| f64::from(hundredths) / 100.0);
    let kernel_size = input.kernel_size.map_or(0, u32::from);
    let params = BlurParams::new(sigma, kernel_size);
    let is_valid = (0.0..=1024.0).contains(&sigma) && kernel_size <= 801 && (kernel_size == 0 || kernel_size % 2 == 1);
    assert_eq!(params.is_ok(), is_valid, "sigma={sigma} kernel-size={kernel_size}");
    let Ok(params) = params else { return };
    let split = [Split::Whole, Split::Fields, Split::Rows, Split::SideBySide, Split::TopBottom][usize::from(input.split % 5)];
    // Views must not meet within a sample.
    let unit = split.views().map(|views| if views > 1 { 8 } else { 1 });
    let size = [0, 1].map(|axis| (1 + u32::from(input.size[axis]) % 700).next_multiple_of(unit[axis]));
    let planes = planes(input.kind, size, split);
    let alpha = if input.premultiplies { AlphaMode::Premultiply } else { AlphaMode::Straight };
    let [primary, chroma, of_alpha] = input.selected;
    let options = Options { params, planes: Selection { primary, chroma, alpha: of_alpha }, alpha };
    let plan = Plan::new(options, &planes);
    let rects = input.rects.iter().take(8);
    let mut wanted = Vec::new();
    for operation in plan.operations() {
        let output = operation.output();
        for rect in rects.clone().filter_map(|ends| part(whole(&output), *ends)) {
            check(operation, rect, input.cut);
            if let Buffer::Destination(plane) = output.buffer {
                wanted.push((plane, FieldRect { field: output.field, rect }));
            }
        }
        if plan.can_be_banded() {
            let [few, more] = [input.cut, input.cut.saturating_add(1)].map(|rows| operation.ready_rows(rows.into()));
            assert!(few <= more && more <= output.field.layout.height, "{few} {more} rows of {operation:?}");
        }
    }
    let needs = plan.needs(&wanted, TILES);
    assert_eq!(needs.parts.len(), plan.operations().len());
    let computes = |parts: &[Rect], rect: Rect| -> u64 {
        let meet = |part: &Rect| {
            let x = [part.x().max(rect.x()), part.right().min(rect.right())];
            Rect::between(x, [part.y().max(rect.y()), part.bottom().min(rect.bottom())]).map_or(0, Rect::area)
        };
        parts.iter().map(meet).sum()
    };
    for (operation, parts) in plan.operations().iter().zip(&needs.parts) {
        let all = whole(&operation.output());
        assert!(parts.iter().all(|part| is_within(*part, all) && computes(parts, *part) == part.area()), "{parts:?}");
        for (plane, FieldRect { field, rect }) in &wanted {
            let is_output = operation.output() == View { buffer: Buffer::Destination(*plane), field: *field };
            assert!(!is_output || computes(parts, *rect) == rect.area(), "{rect:?} is not in {parts:?}");
        }
    }
    for (plane, FieldRect { field, rect }) in &needs.reads {
        assert!(planes[*plane].fields().any(|of| of == *field));
        assert!(is_within(*rect, whole(&View { buffer: Buffer::Source(*plane), field: *field })), "{rect:?}");
    }
});
