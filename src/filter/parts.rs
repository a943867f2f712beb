// SPDX-License-Identifier: MPL-2.0
//! What the operations of a plan compute for parts of a frame. From the last operation backwards, each computes what is wanted
//! of its output and what later operations read of it ([`Operation::reads`]). So every sample that is wanted has the value that
//! it has in the whole frame, because operations and planes are the same.

use std::ops::Range;
use std::sync::Arc;

use super::byte_rect::ByteRect;
use super::frame::PlaneLayout;
use super::operation::{Buffer, Operation, View, all_of};
use super::picture::FieldRect;
use super::plan::Plan;
use super::regions::{Rect, disjoint};

/// The rectangles of its output that each operation of a plan computes, in pixels and rows of the output's view. Those of one
/// operation do not overlap.
pub type Parts = Vec<Vec<Rect>>;

/// How a backend divides operations.
#[derive(Clone, Copy)]
pub struct Tiles {
    /// Extends a rectangle of an operation's output to whole tiles of the backend, which begin where those of the whole plane
    /// do, or end with it.
    pub round: fn(&Operation, Rect) -> Rect,
    /// What a rectangle of its output costs: at least the number of its samples.
    pub cost: fn(&Operation, Rect) -> u64,
}

impl Plan {
    /// All of every output: a whole frame.
    pub fn whole(&self) -> Parts {
        self.operations().iter().map(|operation| vec![all_of(&operation.output())]).collect()
    }

    /// So many rows of every output: a band.
    pub fn rows(&self, rows: &[Range<u32>]) -> Parts {
        let band = |(operation, rows): (&Operation, &Range<u32>)| {
            Rect::between([0, operation.output().field.layout.width], [rows.start, rows.end]).into_iter().collect()
        };
        self.operations().iter().zip(rows).map(band).collect()
    }

    /// What has to be computed and read for these parts of the destination's planes.
    pub fn needs(&self, wanted: &[(usize, FieldRect)], tiles: Tiles) -> Needs {
        let mut demands = Demands::default();
        for (plane, FieldRect { field, rect }) in wanted {
            demands.of(View { buffer: Buffer::Destination(*plane), field: *field }).push(*rect);
        }
        let mut parts: Parts = Vec::new();
        for operation in self.operations().iter().rev() {
            let covered = operation.covered();
            let wanted = covered.clone().unwrap_or_else(|| demands.of(operation.output()).clone());
            // Rounding and joining add samples that nobody reads, so earlier operations do not compute their inputs.
            for (view, rect) in wanted.iter().flat_map(|rect| operation.reads(*rect)) {
                let demand = demands.of(view);
                // Each rectangle of a mosaic reads all cells.
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

/// A plan, and what each of its operations computes: all that a backend needs to know of a frame but where it is.
#[derive(Debug)]
pub struct Job {
    /// The operations.
    pub plan: Arc<Plan>,
    /// What they compute.
    pub parts: Parts,
    /// What they compute and read of each temporary, which alone needs memory; `None` for a temporary that is not used.
    pub extents: Vec<Option<ByteRect>>,
    /// What it accesses of a frame of which it covers parts; `None` if all of it is blurred.
    pub accesses: Option<Accesses>,
}

/// What a cover accesses of the planes of a frame.
#[derive(Debug, Default)]
pub struct Accesses {
    /// Read; rectangles may overlap. What else the operations read is not used.
    pub reads: Vec<(usize, FieldRect)>,
    /// Written; those of one field do not overlap, but share pairs of pixels of packed 4:2:2.
    pub writes: Vec<(usize, FieldRect)>,
}

impl Job {
    /// These parts of a plan.
    pub fn new(plan: Arc<Plan>, parts: Parts, accesses: Option<Accesses>) -> Self {
        let mut extents: Vec<Option<ByteRect>> = vec![None; plan.temporaries().len()];
        for (operation, rects) in plan.operations().iter().zip(&parts) {
            // What covers a frame is neither rounded nor joined, so it reads what other operations have computed.
            if matches!((operation, operation.output().buffer), (Operation::Write { .. }, Buffer::Destination(_))) {
                continue;
            }
            // Rectangles that were rounded or joined read more than what was computed for them.
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

    /// A whole frame.
    pub fn frame(plan: Arc<Plan>) -> Self {
        let parts = plan.whole();
        Self::new(plan, parts, None)
    }

    /// What a plan covers of a frame.
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

    /// The planes that a cover writes only in part. A cover into another buffer first copies them.
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

    /// Whether it does nothing.
    pub fn is_empty(&self) -> bool {
        self.plan.operations().is_empty()
    }
}

/// What of a plan is computed for parts of a frame.
#[derive(Debug)]
pub struct Needs {
    /// What each operation computes.
    pub parts: Parts,
    /// What is read of the source's planes; rectangles may overlap. What else the parts read of it is not used.
    pub reads: Vec<(usize, FieldRect)>,
}

/// What is wanted of each field of a plane.
#[derive(Default)]
struct Demands(Vec<(View, Vec<Rect>)>);

impl Demands {
    /// Of the field that this view has.
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

/// Joins rectangles where that costs no more than all of them, and makes the others disjoint.
pub fn joined(rects: impl Iterator<Item = Rect>, cost: impl Fn(Rect) -> u64) -> Vec<Rect> {
    let apart: Vec<(Rect, u64)> = rects.map(|rect| (rect, cost(rect))).collect();
    // First, because joining two at a time takes time where there are many.
    let hull = apart.iter().map(|(rect, _)| *rect).reduce(Rect::hull);
    let sum: u64 = apart.iter().map(|(_, cost)| cost).sum();
    if let Some(hull) = hull.filter(|hull| cost(*hull) <= sum) {
        return vec![hull];
    }
    let mut joined: Vec<(Rect, u64)> = Vec::new();
    for mut next in apart {
        // A rectangle that grew may now be near another one.
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
