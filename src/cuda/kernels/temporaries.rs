// SPDX-License-Identifier: MPL-2.0
//! The memory of a plan's temporaries on the device: first the nodes of weights, then cells, planes of covers and other
//! temporaries. The Gaussians of a cover are computed one after the other, so their intermediate temporaries share the same
//! memory.

use super::abi::{COVER_GROUP, WORKSPACE_ALIGNMENT};
use super::{mosaic, soft, tensor_wide};
use crate::filter::byte_rect::ByteRect;
use crate::filter::cover::Softness;
use crate::filter::frame::PlaneLayout;
use crate::filter::operation::{Buffer, CoverSamples, Layer, Operation, View};
use crate::filter::parts::Job;
use crate::filter::plan::Plan;
use crate::filter::plane::DevicePlane;

/// Where the temporaries of a plan are. All addresses are offsets in the workspace.
#[derive(Debug)]
pub struct TemporaryMemory {
    /// The memory of each temporary. The planes of a cover have memory only for the rows and columns that are computed, so their
    /// address, that of row 0, may lie before their memory.
    pub planes: Vec<DevicePlane>,
    /// For each plane of the frame, the plane in which the layers of a soft cover are composed; `None` if no layers are composed.
    pub composed: Vec<Option<DevicePlane>>,
    /// The number of bytes of all temporaries.
    pub bytes: usize,
}

impl TemporaryMemory {
    /// Places the temporaries of a job. Temporaries with `in_frame` get no memory, because a view of the frame is used in their
    /// place.
    pub fn new(job: &Job, soft: Option<&Softness>, in_frame: &[bool]) -> Self {
        let plan = &job.plan;
        let nodes: usize = soft.into_iter().flat_map(Softness::all).map(|weights| weights.nodes().2.len()).sum();
        let mut end = nodes.next_multiple_of(WORKSPACE_ALIGNMENT);
        let room = |bytes: usize, end: &mut usize| {
            let address = *end as u64;
            *end += bytes.next_multiple_of(WORKSPACE_ALIGNMENT);
            address
        };
        let (uses, cells) = (plane_uses(plan), cell_bytes(plan));
        let mut planes = vec![DevicePlane::default(); plan.temporaries().len()];
        let mut place = |index: usize, end: &mut usize| {
            let layout = &plan.temporaries()[index];
            planes[index] = match (cells[index], uses[index], job.extents[index]) {
                _ if in_frame[index] => return,
                (Some(bytes), ..) => DevicePlane { address: room(bytes, end), ..DevicePlane::default() },
                (_, Some(PlaneUse::Covers), Some(extent)) => within(&extent, layout, |bytes| room(bytes, end)),
                // Kernels also read samples around the rectangle that is computed.
                (_, Some(PlaneUse::Blurred), _) => {
                    let whole = ByteRect::of_rows(index, layout, 0..layout.height as usize);
                    within(&whole, layout, |bytes| room(bytes, end))
                }
                (_, None, Some(_)) => {
                    let pitch = layout.row_bytes().next_multiple_of(WORKSPACE_ALIGNMENT);
                    // The memory is large enough for the layout of the kernels for CUDA cores and for that of the tensor-core
                    // kernels.
                    let small = if plan.is_wide() { tensor_wide::small_plane_bytes(layout) } else { 0 };
                    let len = small.max(pitch * layout.height as usize).next_multiple_of(WORKSPACE_ALIGNMENT);
                    DevicePlane { address: room(len, end), pitch, len }
                }
                // Temporaries that no operation uses get no memory.
                (.., None) => return,
            };
        };
        // The intermediate temporaries of all Gaussians share the same memory.
        let is_in_turn = |index: &usize| {
            let is_shared = cells[*index].is_none() && uses[*index].is_none();
            is_shared && plan.turns().iter().any(|turn| turn.contains(index))
        };
        (0..in_frame.len()).filter(|index| !is_in_turn(index)).for_each(|index| place(index, &mut end));
        let composed = (0..plan.layouts().len()).map(|plane| {
            let is_composed = |operation: &Operation| {
                is_composed(operation) && operation.output().buffer == Buffer::Destination(plane)
            };
            plan.operations().iter().find(|operation| is_composed(operation))?;
            let writes = job.accesses.iter().flat_map(|accesses| &accesses.writes).filter(|(of, _)| *of == plane);
            let rects = writes.map(|(_, rect)| ByteRect::of_pixels(plane, *rect));
            let extent = rects.map(|rect| rect.hull(&rect)).reduce(|one, other| one.hull(&other))?;
            Some(within(&extent, &plan.layouts()[plane], |bytes| room(bytes, &mut end)))
        });
        let composed = composed.collect();
        let mut bytes = end;
        for turn in plan.turns() {
            let mut end_of_turn = end;
            turn.clone().filter(is_in_turn).for_each(|index| place(index, &mut end_of_turn));
            bytes = bytes.max(end_of_turn);
        }
        Self { planes, composed, bytes }
    }
}

/// The index of the frame's plane or of the temporary that a view belongs to.
pub fn plane_of(view: &View) -> usize {
    match view.buffer {
        Buffer::Source(plane) | Buffer::Destination(plane) => plane,
        Buffer::Temporary(index) => index,
    }
}

/// Whether an operation mixes layers into the frame that have to be composed first.
pub fn is_composed(operation: &Operation) -> bool {
    let Operation::Write { layers, destination, mix: Some(_), .. } = operation else { return false };
    let is_one = matches!(&layers[..], [Layer { samples: CoverSamples::Plane(_) | CoverSamples::Estimates, .. }]);
    matches!(destination.buffer, Buffer::Destination(_)) && !is_one
}

/// A plane with memory for these bytes only. `place` returns the address of the memory.
fn within(extent: &ByteRect, layout: &PlaneLayout, place: impl FnOnce(usize) -> u64) -> DevicePlane {
    debug_assert!(extent.byte + extent.bytes <= layout.row_bytes());
    // The memory is aligned like the frame, and a view may begin at any byte of its row.
    let ByteRect { row, rows, byte, bytes, .. } = extent.aligned(COVER_GROUP as usize, usize::MAX / 2);
    let pitch = bytes.next_multiple_of(WORKSPACE_ALIGNMENT);
    let before = row * pitch + byte;
    DevicePlane { address: place(pitch * rows).wrapping_sub(before as u64), pitch, len: before + pitch * rows }
}

/// The use of a temporary that is stored like a plane of the frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PlaneUse {
    /// The temporary is written to the frame as a cover.
    Covers,
    /// The temporary is a copy of the source, and is blurred in its place.
    Blurred,
}

/// The uses of all temporaries; `None` for temporaries that are stored in another way.
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

/// The sizes of the temporaries with cells, in bytes; `None` for other temporaries.
fn cell_bytes(plan: &Plan) -> Vec<Option<usize>> {
    let mut bytes = vec![None; plan.temporaries().len()];
    for operation in plan.operations() {
        if let Operation::CellMeans { cells, excluded, .. } = operation
            && let Buffer::Temporary(index) = cells.view.buffer
        {
            let of_cells = if excluded.is_some() { soft::cell_bytes } else { mosaic::bytes };
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
    use crate::filter::plan::Selection;
    use crate::filter::regions::Rect;

    /// The memory of a cover by Gaussians, and the plan of the cover.
    fn memory(regions: &[([u32; 4], f64)]) -> (TemporaryMemory, Arc<Plan>) {
        let region = |([x, y, width, height], sigma): &([u32; 4], f64)| BlurRegion {
            rect: Rect::new(*x, *y, *width, *height).unwrap(),
            params: BlurParams::new(*sigma, 0).unwrap(),
        };
        let hide = Hide::Blur { planes: Selection::ALL, regions: regions.iter().map(region).collect() };
        let layouts = [PlaneLayout::new(400, 300, 3, 8)];
        let plan = Plan::cover(&Cover::from(hide), &layouts, |options| Arc::new(Plan::new(options, &layouts)));
        let job = Job::cover(plan, TILES);
        (TemporaryMemory::new(&job, None, &vec![false; job.extents.len()]), job.plan)
    }

    /// The outputs of several Gaussians do not overlap, and all of them lie inside the block.
    #[test]
    fn what_covers_a_frame_has_memory_of_its_own() {
        let (memory, plan) = memory(&[([50, 50, 40, 40], 1.0), ([300, 200, 9, 90], 2.0), ([0, 0, 9, 9], 40.0)]);
        let covers = plane_uses(&plan).into_iter().enumerate().filter(|(_, of)| *of == Some(PlaneUse::Covers));
        // At least these rectangles have memory.
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

    /// An additional Gaussian needs memory for its output, but not for its intermediate temporaries.
    #[test]
    fn gaussians_share_memory() {
        let one = memory(&[([50, 50, 40, 40], 40.0)]).0.bytes;
        let two = memory(&[([50, 50, 40, 40], 40.0), ([300, 200, 9, 9], 41.0)]).0.bytes;
        let small = memory(&[([300, 200, 9, 9], 1.0)]).0.bytes;
        assert!(two > one && two - one <= 4 * small, "{one}, {two}, {small}");
    }
}
