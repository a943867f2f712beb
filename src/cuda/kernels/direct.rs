// SPDX-License-Identifier: MPL-2.0
//! The launches of the tensor-core kernels for the direct form: rows and columns of planes of bytes in one launch, with the
//! intermediate in registers.

use super::abi::*;
use super::batch::{LaunchBatch, PlaneBlur};
use super::geometry::radii;
use super::tensor::packed_taps;
use crate::cuda::driver::Grid;
use crate::cuda::driver::device::DeviceLimits;
use crate::filter::frame::PlaneLayout;

/// Output rows that a warp processes at a time.
const UNIT: u32 = 16;

/// What depends on the largest radius of a kernel.
struct Geometry {
    radius: DirectRadius,
    /// The largest radius on either axis.
    largest: u32,
    /// Blocks that a multiprocessor holds at a time, by the registers of the kernels for sm_90: of one and two channels, of
    /// three, and of four.
    resident: [u32; 3],
    /// The most rows of a warp, as multiples of [`UNIT`]. Where a frame needs more for all blocks to run at once, rows that
    /// are computed twice cost less than rows that are far from those of the neighbouring warps.
    most_units: u32,
}

/// By radius. The numbers of rows were measured on an H200.
const GEOMETRIES: [Geometry; 3] = [
    Geometry { radius: DirectRadius::Short, largest: TENSOR_DIRECT_RADIUS_SHORT, resident: [3, 3, 3], most_units: 8 },
    Geometry { radius: DirectRadius::Medium, largest: TENSOR_DIRECT_RADIUS_MEDIUM, resident: [2, 4, 4], most_units: 8 },
    Geometry { radius: DirectRadius::Long, largest: TENSOR_RADIUS_MAX, resident: [2, 3, 2], most_units: 17 },
];

/// The geometry for all planes of a batch, if there are kernels for it.
fn geometry(batch: &LaunchBatch) -> Option<&'static Geometry> {
    if !batch.planes().iter().all(PlaneBlur::suits_tensor_cores) {
        return None;
    }
    let largest =
        batch.slots().iter().map(|(_, taps)| radii(taps)).map(|[rows, columns, _]| rows.max(columns)).max()?;
    GEOMETRIES.iter().find(|geometry| largest <= geometry.largest)
}

/// The kernel for a batch, if there is one for all its planes.
pub fn kernel(batch: &LaunchBatch) -> Option<Kernel> {
    geometry(batch).map(|geometry| Kernel::TensorDirect(batch.family(), geometry.radius))
}

/// Tiles of 16 columns that a warp computes.
fn tiles_across(layout: &PlaneLayout) -> u32 {
    match layout.channels {
        1 => TENSOR_DIRECT_ACROSS_C1,
        2 => TENSOR_DIRECT_ACROSS_C2,
        _ => 1,
    }
}

impl Geometry {
    /// Tiles of 16 samples that a tile of outputs is computed from.
    fn tiles(&self) -> u32 {
        self.largest.div_ceil(8) + 1
    }

    /// Shared memory of a warp in bytes, as DirectTile in kernels/tensor_direct.cuh has it: the ring buffer of source rows, the
    /// taps, their operands, and rows of results.
    fn warp_bytes(&self, layout: &PlaneLayout) -> u32 {
        let (tiles, across, channels) = (self.tiles(), tiles_across(layout), u32::from(layout.channels));
        let lead = 8 * (tiles - 1) * channels % CHUNK;
        let row_bytes = (lead + 16 * (across + tiles - 1) * channels).next_multiple_of(CHUNK);
        let row_unit = match channels {
            4 => 64,
            2 => 32,
            _ => 16,
        };
        let ring = TENSOR_DIRECT_DEPTH * 8 * odd_multiple(row_bytes, row_unit);
        let results = if channels == 4 { 0 } else { 16 * odd_multiple(16 * across * channels, 16) };
        ring + 2 * 2 * 16 * (tiles + 1) + 2 * tiles * 512 + results
    }
}

/// Bytes of a copy of a lane.
const CHUNK: u32 = 16;

/// The least odd multiple of `unit` from `bytes` on.
fn odd_multiple(bytes: u32, unit: u32) -> u32 {
    (bytes.div_ceil(unit) / 2 * 2 + 1) * unit
}

/// Blocks whose warps compute `segment` rows of a plane each.
fn blocks(layout: &PlaneLayout, rows: u32, segment: u32) -> u32 {
    let strips = layout.width.div_ceil(16 * tiles_across(layout));
    (strips * rows.div_ceil(segment)).div_ceil(TENSOR_DIRECT_WARPS)
}

/// The launch for a batch that has a [`kernel`].
pub fn launch(batch: &LaunchBatch, limits: DeviceLimits) -> Launch {
    let geometry = geometry(batch).expect("the caller launches only kernels that the batch has");
    let kernel = Kernel::TensorDirect(batch.family(), geometry.radius);
    let all_blocks = |units: u32| {
        let blocks = batch.planes().iter().map(|plane| blocks(&plane.layout, plane.rows.len() as u32, units * UNIT));
        blocks.sum::<u32>()
    };
    let family = PixelFamily::DIRECT.iter().position(|family| *family == batch.family());
    let resident = family.map_or(0, |family| geometry.resident[family]) * limits.multiprocessors;
    let units = (1..geometry.most_units).find(|units| all_blocks(*units) <= resident).unwrap_or(geometry.most_units);

    let unused = TensorPlane { first_block: u32::MAX, ..TensorPlane::default() };
    let mut args =
        TensorArgs { planes: [unused; PLANES as usize], taps: [[[0; TENSOR_TAPS as usize]; 2]; FILTER_SLOTS as usize] };
    for (to, (_, taps)) in args.taps.iter_mut().zip(batch.slots()) {
        *to = packed_taps(taps);
    }
    let mut first_block = 0;
    for (to, plane) in args.planes.iter_mut().zip(batch.planes()) {
        let slot = batch.slots().iter().position(|slot| *slot == (plane.layout.channels, plane.taps));
        let blocks = blocks(&plane.layout, plane.rows.len() as u32, units * UNIT);
        *to = TensorPlane {
            src: plane.source.address,
            dst: plane.destination.address,
            src_pitch: plane.source.pitch as u64,
            dst_pitch: plane.destination.pitch as u64,
            width: plane.layout.width,
            height: plane.layout.height,
            channels: plane.layout.channels.into(),
            slot: slot.expect("every plane has a filter slot of its batch") as u32,
            row_begin: plane.rows.start,
            row_end: plane.rows.end,
            segment_rows: units * UNIT,
            first_block,
            blocks,
            ..TensorPlane::default()
        };
        first_block += blocks;
    }
    let warp_bytes = batch.planes().iter().map(|plane| geometry.warp_bytes(&plane.layout)).max().unwrap_or(0);
    let grid = Grid { blocks: first_block, threads: kernel.threads(), shared_bytes: TENSOR_DIRECT_WARPS * warp_bytes };
    Launch { kernel, grid, args: Args::Tensor(args) }
}
