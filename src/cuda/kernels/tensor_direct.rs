// SPDX-License-Identifier: MPL-2.0
//! The launches of the tensor-core kernels for the direct form: rows and columns in one launch, with the intermediate in
//! registers.

use super::abi::*;
use super::batch::{BlurBatch, PlaneBlur};
use super::images::Kernel;
use super::launch::{Args, Launch};
use super::tensor_wide::{alpha_bits, packed_taps, unused_args, yuv422_bits};
use crate::cuda::driver::LaunchConfig;
use crate::cuda::driver::device::DeviceLimits;
use crate::filter::frame::PlaneLayout;

/// Output rows that a warp processes at a time.
const UNIT: u32 = 16;

/// What depends on the largest radius of a kernel.
struct Geometry {
    /// In the names of its kernels.
    name: &'static str,
    /// The largest radius that it has kernels for: see [`PixelFamily::largest_radius`].
    largest: u32,
    /// By family, in the order of [`PixelFamily::ALL`]: blocks that a multiprocessor holds at a time, by the registers of
    /// the kernels for sm_90.
    resident: [u32; 7],
}

/// One for each largest radius.
const GEOMETRIES: [Geometry; 3] = [
    Geometry { name: "short", largest: TENSOR_DIRECT_RADIUS_SHORT, resident: [3, 3, 3, 4, 3, 3, 3] },
    Geometry { name: "medium", largest: TENSOR_DIRECT_RADIUS_MEDIUM, resident: [2, 4, 4, 4, 2, 2, 2] },
    Geometry { name: "long", largest: TENSOR_RADIUS_MAX, resident: [2, 3, 2, 3, 2, 2, 2] },
];

/// The most rows that a warp computes, as a multiple of [`UNIT`].
const MOST_UNITS: u32 = 17;
/// What a warp's start costs, in rows.
const START_ROWS: u32 = 80;

/// The geometry for all planes of a batch, if there are kernels for it.
fn geometry(batch: &BlurBatch) -> Option<&'static Geometry> {
    if !batch.planes().iter().all(PlaneBlur::suits_tensor_cores) {
        return None;
    }
    let family = batch.family()?;
    let largest = batch.slots().iter().filter_map(|taps| family.largest_radius(taps)).max()?;
    GEOMETRIES.iter().find(|geometry| largest <= geometry.largest)
}

/// The kernel for a batch, if there is one for all its planes.
pub fn kernel(batch: &BlurBatch) -> Option<Kernel> {
    geometry(batch).zip(batch.family()).map(|(geometry, family)| Kernel::tensor_direct(family, geometry.name))
}

/// Bytes of a pixel, and of a pair of pixels of packed 4:2:2.
fn pixel_bytes(layout: &PlaneLayout) -> u32 {
    layout.pixel_bytes() as u32
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

    /// The rows of a warp for which a batch takes the least time, as a multiple of [`UNIT`].
    ///
    /// A warp also loads the window above its rows. A block that shares its multiprocessor with n others takes 1 + 0.15 n times
    /// as long as alone, and blocks that do not fit wait for a whole turn. Segments at the lower edge are shorter, so one
    /// fiftieth more blocks than fit do. On an H200 this is within 1.4 % of the fastest number of rows on average, and within
    /// 16 %, for three radii of ten formats at 4K, 1080p and 720p.
    fn units(&self, batch: &BlurBatch, limits: DeviceLimits) -> u32 {
        let family = PixelFamily::ALL.iter().position(|family| Some(*family) == batch.family());
        let resident = self.resident[family.expect("a batch with a kernel is of such a family")];
        let cost = |units: &u32| {
            let segment = units * UNIT;
            let rows = |plane: &PlaneBlur| strips(plane) * plane.rect.height().max(segment);
            let all_rows: u32 = batch.planes().iter().map(rows).sum();
            let one_each = segment * TENSOR_DIRECT_WARPS * limits.multiprocessors;
            let blocks = all_rows.saturating_sub(one_each / 50).div_ceil(one_each).max(1);
            let turns = u64::from(blocks.div_ceil(resident));
            u64::from((segment + UNIT * (self.tiles() - 1) + START_ROWS) * (17 + 3 * blocks.min(resident))) * turns
        };
        (1..=MOST_UNITS).min_by_key(cost).expect("the range is not empty")
    }

    /// Shared memory of a warp in bytes, as DirectTile in kernels/tensor_direct.cuh has it: the ring buffer of source rows, the
    /// taps, their operands, and rows of results.
    fn warp_bytes(&self, layout: &PlaneLayout) -> u32 {
        let (tiles, across, pixel) = (self.tiles(), tiles_across(layout), pixel_bytes(layout));
        let is_yuv422 = layout.is_packed_422();
        let row_tiles = if is_yuv422 { tiles / 2 + 1 } else { tiles };
        let lead = 8 * (row_tiles - 1) * pixel % CHUNK;
        let row_bytes = (lead + 16 * (across + row_tiles - 1) * pixel).next_multiple_of(CHUNK);
        let row_unit = match pixel {
            4 => 64,
            2 => 32,
            _ => 16,
        };
        let depth = match pixel {
            8 => TENSOR_DIRECT_DEPTH_8,
            _ if is_yuv422 => TENSOR_DIRECT_DEPTH_YUV422,
            _ => TENSOR_DIRECT_DEPTH,
        };
        let ring = depth * 8 * odd_multiple(row_bytes, row_unit);
        let (taps, luma) = if is_yuv422 { (2 * row_tiles + 1, 4 * row_tiles) } else { (tiles, 0) };
        let operands = 512 * (row_tiles + tiles + luma);
        let results = if pixel % 4 == 0 { 0 } else { 16 * odd_multiple(16 * across * pixel, 16) };
        ring + 2 * 2 * 16 * (taps + 1) + operands + results
    }
}

/// Bytes of a copy of a lane.
const CHUNK: u32 = 16;

/// The least odd multiple of `unit` from `bytes` on.
fn odd_multiple(bytes: u32, unit: u32) -> u32 {
    (bytes.div_ceil(unit) / 2 * 2 + 1) * unit
}

/// Tiles side by side that a rectangle is divided into, each of which is a warp's.
fn strips(plane: &PlaneBlur) -> u32 {
    (plane.layout.columns(plane.rect).len() as u32).div_ceil(16 * tiles_across(&plane.layout))
}

/// The launch for a batch that has a [`kernel`].
pub fn launch(batch: &BlurBatch, limits: DeviceLimits) -> Launch {
    let (geometry, kernel) =
        geometry(batch).zip(kernel(batch)).expect("the caller launches only kernels that the batch has");
    let segment = UNIT * geometry.units(batch, limits);

    let mut args = unused_args();
    for (to, [rows, columns]) in args.taps.iter_mut().zip(batch.slot_taps()) {
        *to = packed_taps(rows, columns);
    }
    let mut first_block = 0;
    for ((to, block_end), plane) in args.planes.iter_mut().zip(&mut args.block_end).zip(batch.planes()) {
        let columns = plane.layout.columns(plane.rect);
        // Each warp computes `segment` rows.
        let blocks = (strips(plane) * plane.rect.height().div_ceil(segment)).div_ceil(TENSOR_DIRECT_WARPS);
        *to = TensorPlane {
            src: plane.source.address,
            dst: plane.destination.address,
            src_pitch: plane.source.pitch as u64,
            dst_pitch: plane.destination.pitch as u64,
            width: plane.layout.row_pixels() as u32,
            height: plane.layout.height,
            channels: plane.layout.channels.into(),
            depth: if plane.alpha.is_some() { 16 } else { plane.layout.depth.into() },
            shift: plane.layout.shift().into(),
            yuv422: yuv422_bits(&plane.layout),
            alpha: alpha_bits(plane.alpha),
            slot: batch.slot_of(plane),
            row_begin: plane.rect.y(),
            row_end: plane.rect.bottom(),
            column_begin: columns.start,
            column_end: columns.end,
            segment_rows: segment,
            first_block,
            blocks,
            ..TensorPlane::default()
        };
        first_block += blocks;
        *block_end = first_block;
    }
    let warp_bytes = batch.planes().iter().map(|plane| geometry.warp_bytes(&plane.layout)).max().unwrap_or(0);
    let grid =
        LaunchConfig { blocks: first_block, threads: kernel.threads(), shared_bytes: TENSOR_DIRECT_WARPS * warp_bytes };
    Launch { kernel, grid, args: Args::Tensor(args) }
}
