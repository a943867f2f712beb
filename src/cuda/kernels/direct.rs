// SPDX-License-Identifier: MPL-2.0
//! The launches of the tensor-core kernels for the direct form: rows and columns in one launch, with the intermediate in
//! registers.

use super::abi::*;
use super::batch::{LaunchBatch, PlaneBlur};
use super::geometry::{radii, yuv422_bits};
use super::tensor::packed_taps;
use crate::cuda::driver::Grid;
use crate::cuda::driver::device::DeviceLimits;
use crate::filter::frame::{PlaneLayout, SampleLayout};
use crate::filter::operation::PlaneTaps;

/// Output rows that a warp processes at a time.
const UNIT: u32 = 16;

/// What depends on the largest radius of a kernel.
struct Geometry {
    radius: DirectRadius,
    /// The largest radius on either axis.
    largest: u32,
    /// By family, in the order of [`PixelFamily::DIRECT`]: blocks that a multiprocessor holds at a time, by the registers of
    /// the kernels for sm_90.
    resident: [u32; 5],
    /// By family, the most rows of a warp, as multiples of [`UNIT`]. Where a frame needs more for all blocks to run at once,
    /// rows that are computed twice cost less than rows that are far from those of the neighbouring warps.
    most_units: [u32; 5],
}

/// By radius. The numbers of rows were measured on an H200.
const GEOMETRIES: [Geometry; 3] = [
    Geometry {
        radius: DirectRadius::Short,
        largest: TENSOR_DIRECT_RADIUS_SHORT,
        resident: [3, 3, 3, 4, 3],
        most_units: [8, 8, 8, 8, 8],
    },
    Geometry {
        radius: DirectRadius::Medium,
        largest: TENSOR_DIRECT_RADIUS_MEDIUM,
        resident: [2, 4, 4, 4, 2],
        most_units: [13, 8, 8, 8, 8],
    },
    Geometry {
        radius: DirectRadius::Long,
        largest: TENSOR_RADIUS_MAX,
        resident: [2, 3, 2, 3, 2],
        most_units: [17, 17, 17, 17, 17],
    },
];

/// The largest radius of a plane in terms of [`Geometry::largest`], which for the chroma of packed 4:2:2 along rows is half
/// as large; `None` if a radius is 0.
pub fn largest_radius(family: PixelFamily, taps: &PlaneTaps) -> Option<u32> {
    let [rows, columns, chroma] = radii(taps);
    let chroma = if family == PixelFamily::Yuv422 { (2 * chroma).saturating_sub(1) } else { chroma };
    let all = [rows, columns, chroma];
    all.into_iter().max().filter(|_| !all.contains(&0))
}

/// The geometry for all planes of a batch, if there are kernels for it.
fn geometry(batch: &LaunchBatch) -> Option<&'static Geometry> {
    if !batch.planes().iter().all(PlaneBlur::suits_tensor_cores) {
        return None;
    }
    let largest = batch.slots().iter().filter_map(|(_, taps)| largest_radius(batch.family(), taps)).max()?;
    GEOMETRIES.iter().find(|geometry| largest <= geometry.largest)
}

/// The kernel for a batch, if there is one for all its planes.
pub fn kernel(batch: &LaunchBatch) -> Option<Kernel> {
    geometry(batch).map(|geometry| Kernel::TensorDirect(batch.family(), geometry.radius))
}

/// Bytes of a pixel, and of a pair of pixels of packed 4:2:2.
fn pixel_bytes(layout: &PlaneLayout) -> u32 {
    u32::from(layout.channels) * layout.sample_bytes() as u32
}

/// Tiles of 16 columns that a warp computes.
fn tiles_across(layout: &PlaneLayout) -> u32 {
    match pixel_bytes(layout) {
        1 => TENSOR_DIRECT_ACROSS_1,
        2 => TENSOR_DIRECT_ACROSS_2,
        _ => 1,
    }
}

impl Geometry {
    /// Tiles of 16 rows that a tile of outputs is computed from.
    fn tiles(&self) -> u32 {
        self.largest.div_ceil(8) + 1
    }

    /// Shared memory of a warp in bytes, as DirectTile in kernels/tensor_direct.cuh has it: the ring buffer of source rows, the
    /// taps, their operands, and rows of results.
    fn warp_bytes(&self, layout: &PlaneLayout) -> u32 {
        let (tiles, across, pixel) = (self.tiles(), tiles_across(layout), pixel_bytes(layout));
        let is_yuv422 = matches!(layout.sample_layout, SampleLayout::Yuv422 { .. });
        let row_tiles = if is_yuv422 { tiles / 2 + 1 } else { tiles };
        let lead = 8 * (row_tiles - 1) * pixel % CHUNK;
        let row_bytes = (lead + 16 * (across + row_tiles - 1) * pixel).next_multiple_of(CHUNK);
        let row_unit = match pixel {
            4 => 64,
            2 => 32,
            _ => 16,
        };
        let ring = TENSOR_DIRECT_DEPTH * 8 * odd_multiple(row_bytes, row_unit);
        let (taps, luma) = if is_yuv422 { (2 * row_tiles + 1, 4 * row_tiles) } else { (tiles, 0) };
        let operands = 512 * (row_tiles + tiles + luma);
        let results = if pixel == 4 { 0 } else { 16 * odd_multiple(16 * across * pixel, 16) };
        ring + 2 * 2 * 16 * (taps + 1) + operands + results
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
    let strips = (layout.row_pixels() as u32).div_ceil(16 * tiles_across(layout));
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
    let family = family.expect("a batch with a kernel is of such a family");
    let (resident, most_units) = (geometry.resident[family] * limits.multiprocessors, geometry.most_units[family]);
    let units = (1..most_units).find(|units| all_blocks(*units) <= resident).unwrap_or(most_units);

    let unused = TensorPlane { first_block: u32::MAX, ..TensorPlane::default() };
    let mut args =
        TensorArgs { planes: [unused; PLANES as usize], taps: [[[0; TENSOR_TAPS as usize]; 2]; FILTER_SLOTS as usize] };
    let slots = batch.slots().iter().map(|(_, taps)| packed_taps(&taps.rows, &taps.columns));
    // Packed 4:2:2 has one plane, and the second slot for its chroma.
    let chroma = batch.slots().iter().filter(|_| batch.family() == PixelFamily::Yuv422);
    let chroma = chroma.map(|(_, taps)| packed_taps(&taps.chroma_rows, &taps.columns));
    for (to, taps) in args.taps.iter_mut().zip(slots.chain(chroma)) {
        *to = taps;
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
            width: plane.layout.row_pixels() as u32,
            height: plane.layout.height,
            channels: plane.layout.channels.into(),
            depth: plane.layout.depth.into(),
            shift: plane.layout.shift().into(),
            yuv422: yuv422_bits(&plane.layout),
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
