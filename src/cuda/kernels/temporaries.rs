// SPDX-License-Identifier: MPL-2.0
//! The memory of a plan's temporaries on the device: the nodes of weights, what covers a frame, and what the Gaussians compute it
//! from, one behind the other in the same memory.

use super::abi::WORKSPACE_ALIGNMENT;
use super::byte_rect::ByteRect;
use super::{cover, soft, tensor_wide};
use crate::filter::cover::Softness;
use crate::filter::frame::PlaneLayout;
use crate::filter::operation::{Buffer, CoverSamples, Layer, Operation, View};
use crate::filter::parts::Parts;
use crate::filter::picture::FieldRect;
use crate::filter::plan::Plan;
use crate::filter::plane::DevicePlane;

/// Where the temporaries of a plan are; addresses are offsets.
#[derive(Debug)]
pub struct TemporaryMemory {
    /// Of every temporary. Those that cover a frame have memory only where they are computed, so an address may be in front of it.
    pub planes: Vec<DevicePlane>,
    /// By plane: what a soft cover consists of, put together; `None` where it is one plane.
    pub composed: Vec<Option<DevicePlane>>,
    /// Bytes of all.
    pub bytes: usize,
}

impl TemporaryMemory {
    /// For these parts of a plan. `in_frame` says for which temporaries a plane of the frame stands: they have none.
    pub fn new(plan: &Plan, parts: &Parts, soft: Option<&Softness>, in_frame: &[bool]) -> Self {
        let nodes: usize = soft.into_iter().flat_map(Softness::all).map(|weights| weights.nodes().2.len()).sum();
        let mut end = nodes.next_multiple_of(WORKSPACE_ALIGNMENT);
        let place = |bytes: usize, from: &mut usize| {
            let address = *from;
            *from += bytes.next_multiple_of(WORKSPACE_ALIGNMENT);
            address
        };
        let (uses, cells) = (plane_uses(plan), cell_bytes(plan));
        let mut planes = vec![DevicePlane::default(); plan.temporaries().len()];
        for (index, layout) in plan.temporaries().iter().enumerate() {
            if let Some(bytes) = cells[index] {
                planes[index].address = place(bytes, &mut end) as u64;
            } else if uses[index] == Some(PlaneUse::Covers) {
                let is_output = |view: &View| view.buffer == Buffer::Temporary(index);
                let rects = computed(plan, parts, is_output).map(|rect| ByteRect::of_pixels(index, rect));
                planes[index] = within(rects, layout, |bytes| place(bytes, &mut end));
            } else if uses[index] == Some(PlaneUse::Blurred) {
                // Kernels read around what they need.
                let whole = ByteRect::of_rows(index, layout, 0..layout.height as usize);
                planes[index] = within(std::iter::once(whole), layout, |bytes| place(bytes, &mut end));
            }
        }
        let composed = (0..plan.layouts().len()).map(|plane| {
            let is_output = |view: &View| view.buffer == Buffer::Destination(plane);
            let is_composed = |operation: &Operation| is_composed(operation) && is_output(&operation.output());
            plan.operations().iter().any(is_composed).then(|| {
                let rects = computed(plan, parts, is_output).map(|rect| ByteRect::of_pixels(plane, rect));
                within(rects, &plan.layouts()[plane], |bytes| place(bytes, &mut end))
            })
        });
        let composed = composed.collect();
        let mut most = end;
        let turns = plan.turns().iter().cloned();
        // Those that are not in turns have memory for themselves, before them.
        let is_in_turn = |index: &usize| plan.turns().iter().any(|turn| turn.contains(index));
        let others = (0..planes.len()).filter(|index| !is_in_turn(index)).collect::<Vec<_>>();
        for (index_of_turn, turn) in std::iter::once(others).chain(turns.map(Iterator::collect)).enumerate() {
            let mut next = end;
            for index in turn {
                // Planes of which nothing is covered are not computed either.
                let is_output = |view: &View| view.buffer == Buffer::Temporary(index);
                let is_unused = computed(plan, parts, is_output).next().is_none();
                if cells[index].is_some() || uses[index].is_some() || in_frame[index] || is_unused {
                    continue;
                }
                let layout = &plan.temporaries()[index];
                let pitch = layout.row_bytes().next_multiple_of(WORKSPACE_ALIGNMENT);
                // Room for the layout of either kind of kernels.
                let small = if plan.is_wide() { tensor_wide::small_plane_bytes(layout) } else { 0 };
                let len = small.max(pitch * layout.height as usize).next_multiple_of(WORKSPACE_ALIGNMENT);
                planes[index] = DevicePlane { address: place(len, &mut next) as u64, pitch, len };
            }
            most = most.max(next);
            if index_of_turn == 0 {
                end = next;
            }
        }
        Self { planes, composed, bytes: most }
    }
}

/// The plane of a frame that a view is of, which a cover is written to.
pub fn plane_of(view: &View) -> usize {
    match view.buffer {
        Buffer::Source(plane) | Buffer::Destination(plane) => plane,
        Buffer::Temporary(index) => index,
    }
}

/// Whether an operation mixes into the frame what has to be put together first.
pub fn is_composed(operation: &Operation) -> bool {
    let Operation::Write { layers, destination, mix: Some(_), .. } = operation else { return false };
    let is_one = matches!(&layers[..], [Layer { samples: CoverSamples::Plane(_) | CoverSamples::Estimates, .. }]);
    matches!(destination.buffer, Buffer::Destination(_)) && !is_one
}

/// What is computed of the views that `is_output` is true for.
fn computed<'a>(
    plan: &'a Plan,
    parts: &'a Parts,
    is_output: impl Fn(&View) -> bool + 'a,
) -> impl Iterator<Item = FieldRect> + 'a {
    let outputs = plan.operations().iter().map(Operation::output).zip(parts);
    let of_output = |(View { field, .. }, rects): (View, &'a Vec<_>)| {
        rects.iter().map(move |rect| FieldRect { field, rect: *rect })
    };
    outputs.filter(move |(view, _)| is_output(view)).flat_map(of_output)
}

/// A plane with memory for these rectangles, which `place` finds.
fn within(
    rects: impl Iterator<Item = ByteRect>,
    layout: &PlaneLayout,
    place: impl FnOnce(usize) -> usize,
) -> DevicePlane {
    let Some(hull) = rects.map(|rect| rect.hull(&rect)).reduce(|one, other| one.hull(&other)) else {
        return DevicePlane::default();
    };
    debug_assert!(hull.byte + hull.bytes <= layout.row_bytes());
    // Groups are aligned as in the frame. A view may begin within one.
    let ByteRect { row, rows, byte, bytes, .. } = hull.in_groups(usize::MAX / 2);
    let pitch = bytes.next_multiple_of(WORKSPACE_ALIGNMENT);
    let before = row * pitch + byte;
    let address = (place(pitch * rows) as u64).wrapping_sub(before as u64);
    DevicePlane { address, pitch, len: before + pitch * rows }
}

/// What a temporary that is stored as a plane of the frame is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaneUse {
    /// It covers the frame.
    Covers,
    /// It is blurred in place of the frame.
    Blurred,
}

/// The uses of all temporaries; `None` for those that are stored in another way.
pub fn plane_uses(plan: &Plan) -> Vec<Option<PlaneUse>> {
    let mut uses = vec![None; plan.temporaries().len()];
    for operation in plan.operations() {
        let Operation::Write { layers, destination, .. } = operation else { continue };
        let covers = layers.iter().filter_map(|layer| match layer.samples {
            CoverSamples::Plane(view) => Some((view.buffer, PlaneUse::Covers)),
            _ => None,
        });
        for (buffer, plane_use) in covers.chain([(destination.buffer, PlaneUse::Blurred)]) {
            if let Buffer::Temporary(index) = buffer {
                uses[index] = Some(plane_use);
            }
        }
    }
    uses
}

/// Bytes of the temporaries that are cells.
fn cell_bytes(plan: &Plan) -> Vec<Option<usize>> {
    let mut bytes = vec![None; plan.temporaries().len()];
    for operation in plan.operations() {
        if let Operation::CellMeans { cells, excluded, .. } = operation
            && let Buffer::Temporary(index) = cells.view.buffer
        {
            let of_cells = if excluded.is_some() { soft::cell_bytes } else { cover::mosaic_bytes };
            bytes[index] = Some(of_cells(&cells.grids));
        }
    }
    bytes
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::cuda::kernels::tiles::TILES;
    use crate::filter::BlurParams;
    use crate::filter::cover::{BlurRegion, Cover, Hide};
    use crate::filter::parts::Job;
    use crate::filter::plan::Selection;
    use crate::filter::regions::Rect;

    /// The memory of a cover by Gaussians, and its plan.
    fn memory(regions: &[([u32; 4], f64)]) -> (TemporaryMemory, Arc<Plan>) {
        let region = |([x, y, width, height], sigma): &([u32; 4], f64)| BlurRegion {
            rect: Rect::new(*x, *y, *width, *height).unwrap(),
            params: BlurParams::new(*sigma, 0).unwrap(),
        };
        let hide = Hide::Blur { planes: Selection::ALL, regions: regions.iter().map(region).collect() };
        let layouts = [PlaneLayout::new(400, 300, 3, 8)];
        let plan = Plan::cover(&Cover::from(hide), &layouts, |options| Arc::new(Plan::new(options, &layouts)));
        let Job { plan, parts, .. } = Job::cover(plan, TILES);
        (TemporaryMemory::new(&plan, &parts, None, &vec![false; plan.temporaries().len()]), plan)
    }

    /// What several Gaussians write does not overlap, and all of it is in the block.
    #[test]
    fn what_covers_a_frame_has_memory_of_its_own() {
        let (memory, plan) = memory(&[([50, 50, 40, 40], 1.0), ([300, 200, 9, 90], 2.0), ([0, 0, 9, 9], 40.0)]);
        let covers = plane_uses(&plan).into_iter().enumerate().filter(|(_, of)| *of == Some(PlaneUse::Covers));
        // The rows of each that were asked for, at least.
        let rects: [[u64; 4]; 3] = [[50, 50, 40, 40], [300, 200, 9, 90], [0, 0, 9, 9]];
        let mut blocks: Vec<[u64; 2]> = covers
            .zip(rects)
            .map(|((index, _), [x, y, width, height])| {
                let plane = &memory.planes[index];
                let at = |x: u64, y: usize| plane.row(y).wrapping_add(3 * x);
                [at(x, y as usize), at(x + width, (y + height - 1) as usize)]
            })
            .collect();
        blocks.sort_unstable();
        assert_eq!(blocks.len(), 3);
        assert!(blocks.windows(2).all(|pair| pair[0][1] <= pair[1][0]), "{blocks:?}");
        assert!(blocks[2][1] <= memory.bytes as u64, "{blocks:?} of {}", memory.bytes);
    }

    /// One Gaussian more needs memory for what it covers, not for what it computes that from.
    #[test]
    fn gaussians_share_memory() {
        let one = memory(&[([50, 50, 40, 40], 40.0)]).0.bytes;
        let two = memory(&[([50, 50, 40, 40], 40.0), ([300, 200, 9, 9], 41.0)]).0.bytes;
        let small = memory(&[([300, 200, 9, 9], 1.0)]).0.bytes;
        assert!(two > one && two - one <= 4 * small, "{one}, {two}, {small}");
    }
}
