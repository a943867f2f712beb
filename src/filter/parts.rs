// SPDX-License-Identifier: MPL-2.0
//! The rectangles that each operation of a plan has to compute for parts of a frame. They are found from the last operation
//! backwards: each operation computes the wanted part of its output, and everything that later operations read of it
//! ([`Operation::reads`]). Operations and planes are those of the whole frame, so every wanted sample has the value that it has
//! there.

use std::ops::Range;
use std::sync::Arc;

use super::byte_rect::ByteRect;
use super::frame::PlaneLayout;
use super::operation::{Buffer, Operation, View, all_of};
use super::picture::FieldRect;
use super::plan::Plan;
use super::regions::{Rect, disjoint};

/// For each operation of a plan, the rectangles of its output that it computes, in pixels and rows of the output's view. The
/// rectangles of one operation do not overlap.
pub type Parts = Vec<Vec<Rect>>;

/// How a backend divides operations into tiles.
#[derive(Clone, Copy)]
pub struct Tiles {
    /// Extends a rectangle of an operation's output to whole tiles of the backend. Tiles start at the same multiples as in the
    /// whole plane, and end with the plane at the latest.
    pub round: fn(&Operation, Rect) -> Rect,
    /// The cost of a rectangle of an operation's output. It is at least the area of the rectangle.
    pub cost: fn(&Operation, Rect) -> u64,
}

impl Plan {
    /// The whole output of each operation: a whole frame.
    pub fn whole(&self) -> Parts {
        self.operations().iter().map(|operation| vec![all_of(&operation.output())]).collect()
    }

    /// These rows of the output of each operation: a band.
    pub fn rows(&self, rows: &[Range<u32>]) -> Parts {
        let band = |(operation, rows): (&Operation, &Range<u32>)| {
            Rect::between([0, operation.output().field.layout.width], [rows.start, rows.end]).into_iter().collect()
        };
        self.operations().iter().zip(rows).map(band).collect()
    }

    /// The rectangles that are computed and read for these parts of the destination's planes.
    pub fn needs(&self, wanted: &[(usize, FieldRect)], tiles: Tiles) -> Needs {
        let mut demands = Demands::default();
        for (plane, FieldRect { field, rect }) in wanted {
            demands.of(View { buffer: Buffer::Destination(*plane), field: *field }).push(*rect);
        }
        let mut parts: Parts = Vec::new();
        for operation in self.operations().iter().rev() {
            let covered = operation.covered();
            let wanted = covered.clone().unwrap_or_else(|| demands.of(operation.output()).clone());
            // Rounding and joining add samples that nobody reads, so earlier operations do not compute the inputs of these
            // samples.
            for (view, rect) in wanted.iter().flat_map(|rect| operation.reads(*rect)) {
                let demand = demands.of(view);
                // Each rectangle of a mosaic reads all cells, so the same rectangle would be added many times.
                if demand.last() != Some(&rect) {
                    demand.push(rect);
                }
            }
            let rects = wanted.iter().map(|rect| (tiles.round)(operation, *rect));
            parts.push(covered.unwrap_or_else(|| joined(rects, |rect| (tiles.cost)(operation, rect))));
        }
        parts.reverse();
        let mut reads = Vec::new();
        for (View { buffer, field }, rects) in demands.0 {
            if let Buffer::Source(plane) = buffer {
                reads.extend(rects.into_iter().map(|rect| (plane, FieldRect { field, rect })));
            }
        }
        Needs { parts, reads }
    }
}

/// A plan, and the rectangles that each of its operations computes: everything that a backend needs for a frame except its
/// addresses.
#[derive(Debug)]
pub struct Job {
    /// The plan.
    pub plan: Arc<Plan>,
    /// The rectangles that its operations compute.
    pub parts: Parts,
    /// The part of each temporary that operations write or read. Only this part needs memory. `None` for a temporary that is not
    /// used.
    pub extents: Vec<Option<ByteRect>>,
    /// The parts of the frame that a cover accesses; `None` if the whole frame is blurred.
    pub accesses: Option<Accesses>,
}

/// The parts of a frame's planes that a cover accesses.
#[derive(Debug, Default)]
pub struct Accesses {
    /// The rectangles that are read; they may overlap. Operations may also read other samples, whose values do not affect the
    /// result.
    pub reads: Vec<(usize, FieldRect)>,
    /// The rectangles that are written. Rectangles of one field do not overlap, but may share pairs of pixels of packed 4:2:2.
    pub writes: Vec<(usize, FieldRect)>,
}

impl Job {
    /// A job that computes these parts of a plan.
    pub fn new(plan: Arc<Plan>, parts: Parts, accesses: Option<Accesses>) -> Self {
        let mut extents: Vec<Option<ByteRect>> = vec![None; plan.temporaries().len()];
        for (operation, rects) in plan.operations().iter().zip(&parts) {
            // The operation that writes the frame is neither rounded nor joined, so it reads only samples that earlier operations
            // have computed.
            if matches!((operation, operation.output().buffer), (Operation::Write { .. }, Buffer::Destination(_))) {
                continue;
            }
            // Rectangles that were rounded or joined read more than the samples that were computed for them.
            let accesses = |rect: &Rect| operation.reads(*rect).into_iter().chain([(operation.output(), *rect)]);
            for (View { buffer, field }, rect) in rects.iter().flat_map(accesses) {
                if let Buffer::Temporary(index) = buffer {
                    let bytes = ByteRect::of_pixels(index, FieldRect { field, rect });
                    extents[index] = Some(bytes.hull(&extents[index].unwrap_or(bytes)));
                }
            }
        }
        Self { plan, parts, extents, accesses }
    }

    /// A job that blurs a whole frame.
    pub fn frame(plan: Arc<Plan>) -> Self {
        let parts = plan.whole();
        Self::new(plan, parts, None)
    }

    /// A job that computes everything that a plan covers.
    pub fn cover(plan: Plan, tiles: Tiles) -> Self {
        let Needs { parts, reads } = plan.needs(&[], tiles);
        let written = |operation: &Operation| {
            let (rects, View { buffer, field }) = (operation.covered()?, operation.output());
            let Buffer::Destination(plane) = buffer else { return None };
            Some(rects.into_iter().map(move |rect| (plane, FieldRect { field, rect })))
        };
        let writes = plan.operations().iter().filter_map(written).flatten().collect();
        Self::new(Arc::new(plan), parts, Some(Accesses { reads, writes }))
    }

    /// The planes of which a cover writes only a part. A cover into another buffer copies these planes first.
    pub fn copied_planes(&self) -> Vec<usize> {
        let Some(Accesses { writes, .. }) = &self.accesses else { return Vec::new() };
        let passes_channels = |plane: usize| {
            let passes = |operation: &Operation| {
                operation.output().buffer == Buffer::Destination(plane)
                    && matches!(operation, Operation::Write { mix: Some(mix), .. } if mix.passthrough_mask != 0)
            };
            self.plan.operations().iter().any(passes)
        };
        let is_copied = |(plane, layout): &(usize, &PlaneLayout)| {
            let written = writes.iter().filter(|(of, _)| of == plane);
            let written: u64 = written.map(|(_, written)| written.rect.area()).sum();
            written < u64::from(layout.width) * u64::from(layout.height) || passes_channels(*plane)
        };
        self.plan.layouts().iter().enumerate().filter(is_copied).map(|(plane, _)| plane).collect()
    }

    /// Whether the job has no operations.
    pub fn is_empty(&self) -> bool {
        self.plan.operations().is_empty()
    }
}

/// The parts of a plan that are needed for parts of a frame.
#[derive(Debug)]
pub struct Needs {
    /// The rectangles that each operation computes.
    pub parts: Parts,
    /// The rectangles of the source's planes that are read; they may overlap. Operations may also read other samples of the
    /// source, whose values do not affect the result.
    pub reads: Vec<(usize, FieldRect)>,
}

/// The wanted rectangles of each view.
#[derive(Default)]
struct Demands(Vec<(View, Vec<Rect>)>);

impl Demands {
    /// The wanted rectangles of the field of this view.
    fn of(&mut self, view: View) -> &mut Vec<Rect> {
        let key = |view: &View| (view.buffer, view.field.place());
        let index = self.0.iter().position(|(of, _)| key(of) == key(&view));
        let index = index.unwrap_or_else(|| {
            self.0.push((view, Vec::new()));
            self.0.len() - 1
        });
        &mut self.0[index].1
    }
}

/// Joins rectangles where one rectangle around them costs no more, and makes the remaining ones disjoint.
pub fn joined(rects: impl Iterator<Item = Rect>, cost: impl Fn(Rect) -> u64) -> Vec<Rect> {
    let apart: Vec<(Rect, u64)> = rects.map(|rect| (rect, cost(rect))).collect();
    // The rectangle around all is tried first, because joining many rectangles in pairs takes long.
    let hull = apart.iter().map(|(rect, _)| *rect).reduce(Rect::hull);
    let sum: u64 = apart.iter().map(|(_, cost)| cost).sum();
    if let Some(hull) = hull.filter(|hull| cost(*hull) <= sum) {
        return vec![hull];
    }
    let mut joined: Vec<(Rect, u64)> = Vec::new();
    for mut next in apart {
        // A rectangle that has grown may now be close to another one.
        while let Some((index, hull)) = joined.iter().enumerate().find_map(|(index, (rect, apart))| {
            let (hull, apart) = (rect.hull(next.0), apart + next.1);
            let together = if hull.area() > apart { u64::MAX } else { cost(hull) };
            (together <= apart).then_some((index, (hull, together)))
        }) {
            joined.swap_remove(index);
            next = hull;
        }
        joined.push(next);
    }
    disjoint(&joined.into_iter().map(|(rect, _)| rect).collect::<Vec<_>>())
}
