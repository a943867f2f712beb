// SPDX-License-Identifier: MPL-2.0
//! The memory of a plan's temporaries on the device: the nodes of weights, what covers a frame, and what the Gaussians compute it
//! from, one behind the other in the same memory.

use super::abi::{COVER_GROUP, WORKSPACE_ALIGNMENT};
use super::{mosaic, soft, tensor_wide};
use crate::filter::byte_rect::ByteRect;
use crate::filter::cover::Softness;
use crate::filter::frame::PlaneLayout;
use crate::filter::operation::{Buffer, CoverSamples, Layer, Operation, View};
use crate::filter::parts::Job;
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
    /// For a job. `in_frame` says for which temporaries a plane of the frame stands: they have none.
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
                // Kernels read around what they need.
                (_, Some(PlaneUse::Blurred), _) => {
                    let whole = ByteRect::of_rows(index, layout, 0..layout.height as usize);
                    within(&whole, layout, |bytes| room(bytes, end))
                }
                (_, None, Some(_)) => {
                    let pitch = layout.row_bytes().next_multiple_of(WORKSPACE_ALIGNMENT);
                    // Room for the layout of either kind of kernels.
                    let small = if plan.is_wide() { tensor_wide::small_plane_bytes(layout) } else { 0 };
                    let len = small.max(pitch * layout.height as usize).next_multiple_of(WORKSPACE_ALIGNMENT);
                    DevicePlane { address: room(len, end), pitch, len }
                }
                // Planes of which nothing is covered are not computed either.
                (.., None) => return,
            };
        };
        // What Gaussians compute on the way is in the same memory for each of them.
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

/// A plane with memory for these bytes of it, which `place` finds.
fn within(extent: &ByteRect, layout: &PlaneLayout, place: impl FnOnce(usize) -> u64) -> DevicePlane {
    debug_assert!(extent.byte + extent.bytes <= layout.row_bytes());
    // Aligned as in the frame. A view may begin at any byte.
    let ByteRect { row, rows, byte, bytes, .. } = extent.aligned(COVER_GROUP as usize, usize::MAX / 2);
    let pitch = bytes.next_multiple_of(WORKSPACE_ALIGNMENT);
    let before = row * pitch + byte;
    DevicePlane { address: place(pitch * rows).wrapping_sub(before as u64), pitch, len: before + pitch * rows }
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

    /// The memory of a cover by Gaussians, and its plan.
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
