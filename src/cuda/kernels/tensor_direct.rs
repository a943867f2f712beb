// SPDX-License-Identifier: MPL-2.0
//! The launches of the tensor-core kernels for the direct form. One launch blurs rows and columns, and keeps the intermediate in
//! registers.

use super::abi::*;
use super::entry::{self, Entry, EntryKernels};
use super::images::Kernel;
use super::launch::{Args, Launch};
use super::tensor_wide::{alpha_bits, packed_taps, pixels, unused_args};
use crate::cuda::driver::device::DeviceLimits;
use crate::filter::frame::PlaneLayout;

/// The number of output rows that a warp processes at a time.
const UNIT: u32 = 16;

/// The prebuilt kernels of a family: their largest radius (see [`PixelFamily::largest_radius`]), their name, and for each family
/// the number of blocks that a multiprocessor holds at a time. This number follows from the registers of the kernels for sm_90.
const PREBUILT: [(u32, &str, [u32; PixelFamily::ALL.len()]); 3] = [
    (TENSOR_DIRECT_RADIUS_SHORT, "short", [3, 3, 3, 4, 3, 3, 3]),
    (TENSOR_DIRECT_RADIUS_MEDIUM, "medium", [2, 4, 4, 4, 2, 2, 2]),
    (TENSOR_RADIUS_MAX, "long", [2, 3, 2, 3, 2, 2, 2]),
];

/// For each family, and for windows of up to five, seven and nine tiles: the number of blocks of a compiled kernel that a
/// multiprocessor holds at a time. It limits the registers of the kernel. It is the largest number with which the kernel does not
/// spill registers so often that it becomes slower on an H200.
const COMPILED_BLOCKS: [[u32; 3]; PixelFamily::ALL.len()] =
    [[2, 2, 2], [3, 3, 2], [3, 2, 2], [3, 3, 2], [2, 2, 2], [2, 2, 2], [3, 2, 2]];

/// A tensor-core kernel of the direct form.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct DirectKernel {
    family: PixelFamily,
    /// The size of the window, in tiles of 16 rows; see [`window_tiles`].
    tiles: u32,
    /// The number of blocks that a multiprocessor holds at a time, if their shared memory fits.
    blocks_per_multiprocessor: u32,
    origin: Origin,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Origin {
    /// A prebuilt kernel, and the name of its radius.
    Prebuilt(&'static str),
    /// A kernel that NVRTC compiles for one kind of the family's planes.
    Compiled {
        /// The number of channels, for a family of one and two channels.
        channels: Option<u8>,
        /// [`TensorPlane::alpha`] of the plane, for pixels of four bytes with alpha and for those with 10, 10, 10 and 2 bits.
        alpha: Option<u32>,
    },
}

/// The largest number of rows that a warp computes, as a multiple of [`UNIT`].
const MOST_UNITS: u32 = 17;
/// The cost of starting a warp, in rows.
const START_ROWS: u32 = 80;

/// The number of tiles of 16 values in a window: 16 outputs need 16 values, and `radius` more on each side.
fn window_tiles(radius: u32) -> u32 {
    radius.div_ceil(8) + 1
}

/// The largest radius of all planes of a batch. `None` if the batch has no family, or if a radius is 0: the single tap of 65536
/// does not fit into the 16 bits of the kernels.
fn largest_radius(planes: &[Entry]) -> Option<u32> {
    let family = planes.first()?.family()?;
    entry::slots(planes)
        .iter()
        .map(|taps| family.largest_radius(taps))
        .try_fold(0, |most, radius| Some(most.max(radius?)))
}

impl DirectKernel {
    /// The prebuilt kernel for a batch, if one kernel can blur all its planes.
    pub fn prebuilt(planes: &[Entry]) -> Option<Self> {
        if !planes.iter().all(Entry::suits_tensor_cores) {
            return None;
        }
        let (family, largest) = (planes.first()?.family()?, largest_radius(planes)?);
        let (radius, name, blocks) = PREBUILT.iter().find(|(radius, ..)| largest <= *radius)?;
        Some(Self {
            family,
            tiles: window_tiles(*radius),
            blocks_per_multiprocessor: blocks[family as usize],
            origin: Origin::Prebuilt(name),
        })
    }

    /// The kernel to compile for a batch, if it needs at most 95 % of the time of the prebuilt kernels on an H200
    /// (docs/PERFORMANCE.md), and its shared memory fits.
    pub fn compiled(planes: &[Entry], limits: DeviceLimits) -> Option<Self> {
        let (family, largest) = (planes.first()?.family()?, largest_radius(planes)?);
        let tiles = window_tiles(largest);
        let has_alpha_or_tens = family == PixelFamily::Packed1010102;
        let gains = match tiles {
            // The prebuilt kernel finds out for each plane whether pixels have alpha, which costs registers and instructions.
            ..4 => has_alpha_or_tens,
            // The prebuilt kernel has five tiles. For packed 4:2:2, both kernels have three tiles along rows.
            4 => family != PixelFamily::Yuv422,
            5 => has_alpha_or_tens || largest > TENSOR_RADIUS_MAX,
            // With larger radii, the prebuilt kernels would need two passes on CUDA cores.
            _ => largest < 2 * TENSOR_TAPS,
        };
        let plane = &planes[0];
        let is_alike = |other: &Entry| other.source.layout.channels == plane.source.layout.channels;
        if plane.kernels != EntryKernels::Any || !gains || !planes.iter().all(is_alike) {
            return None;
        }
        let kernel = Self {
            family,
            tiles,
            blocks_per_multiprocessor: COMPILED_BLOCKS[family as usize][tiles.saturating_sub(4) as usize / 2],
            origin: Origin::Compiled {
                channels: (family.most_planes() > 1).then_some(plane.source.layout.channels),
                alpha: has_alpha_or_tens.then(|| alpha_bits(plane.alpha)),
            },
        };
        (kernel.block_bytes(planes) <= limits.shared_bytes).then_some(kernel)
    }

    /// Whether NVRTC compiles the kernel.
    pub fn is_compiled(&self) -> bool {
        matches!(self.origin, Origin::Compiled { .. })
    }

    /// The kernel's name in its image. A compiled kernel has the name of the prebuilt kernel for long radii.
    pub fn kernel(&self) -> Kernel {
        let name = if let Origin::Prebuilt(name) = self.origin { name } else { "long" };
        Kernel::tensor_direct(self.family, name)
    }

    /// The macros that have to be defined for compilation, as `NAME=VALUE`; see kernels/abi.h.
    pub fn definitions(&self) -> Vec<String> {
        let mut values = vec![("TILES", self.tiles), ("RESIDENT", self.blocks_per_multiprocessor)];
        if let Origin::Compiled { channels, alpha } = self.origin {
            values.extend(channels.map(|channels| ("CHANNELS", channels.into())));
            values.extend(alpha.map(|alpha| ("ALPHA", alpha)));
        }
        let part = ["BLUR_PART=1".to_owned(), format!("BLUR_PART_direct_{}=1", self.family.name())];
        let define = |(name, value)| format!("BLUR_TENSOR_DIRECT_{name}={value}");
        part.into_iter().chain(values.into_iter().map(define)).collect()
    }

    /// The number of rows of a warp for which a batch takes the least time, as a multiple of [`UNIT`].
    ///
    /// A warp also loads the window above its rows. A block that shares its multiprocessor with n other blocks takes 1 + 0.15 n
    /// times as long as alone. Blocks that do not fit wait for a whole wave. Segments at the lower edge are shorter, so one
    /// fiftieth more blocks than the capacity are accepted. On an H200 this choice is within 1.4 % of the fastest number of rows
    /// on average, and within 16 % in all cases, for three radii of ten formats at 4K, 1080p and 720p.
    fn units(&self, planes: &[Entry], limits: DeviceLimits) -> u32 {
        let resident = self.blocks_per_multiprocessor.min(limits.shared_bytes / self.block_bytes(planes)).max(1);
        let cost = |units: &u32| {
            let segment = units * UNIT;
            let rows = |plane: &Entry| strips(plane) * plane.rect.height().max(segment);
            let all_rows: u32 = planes.iter().map(rows).sum();
            let one_each = segment * TENSOR_DIRECT_WARPS * limits.multiprocessors;
            let blocks = all_rows.saturating_sub(one_each / 50).div_ceil(one_each).max(1);
            let turns = u64::from(blocks.div_ceil(resident));
            u64::from((segment + UNIT * (self.tiles - 1) + START_ROWS) * (17 + 3 * blocks.min(resident))) * turns
        };
        (1..=MOST_UNITS).min_by_key(cost).expect("the range is not empty")
    }

    /// The shared memory of a block in bytes, for the plane that needs the most.
    fn block_bytes(&self, planes: &[Entry]) -> u32 {
        let bytes = planes.iter().map(|plane| self.warp_bytes(&plane.source.layout));
        TENSOR_DIRECT_WARPS * bytes.max().expect("a batch has planes")
    }

    /// The shared memory of a warp in bytes, as in DirectTile in kernels/tensor_direct.cuh: the ring buffer of source rows, the
    /// taps, their operands, and rows of results.
    fn warp_bytes(&self, layout: &PlaneLayout) -> u32 {
        let (tiles, across, pixel) = (self.tiles, tiles_across(layout), pixel_bytes(layout));
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
            _ if self.is_compiled() => TENSOR_DIRECT_DEPTH_SHORT,
            8 => TENSOR_DIRECT_DEPTH_SHORT,
            _ if is_yuv422 => TENSOR_DIRECT_DEPTH_YUV422,
            _ => TENSOR_DIRECT_DEPTH,
        };
        let ring = depth * 8 * odd_multiple(row_bytes, row_unit);
        let (taps, luma) = if is_yuv422 { (2 * row_tiles + 1, 4 * row_tiles) } else { (tiles, 0) };
        let operands = 512 * (row_tiles + tiles + luma);
        let results = if pixel % 4 == 0 { 0 } else { 16 * odd_multiple(16 * across * pixel, 16) };
        ring + 2 * 2 * 16 * (taps + 1) + operands + results
    }

    /// The launch for a batch. `self` was chosen for this batch.
    pub fn launch(&self, planes: &[Entry], limits: DeviceLimits) -> Launch {
        let segment = UNIT * self.units(planes, limits);

        let mut args = unused_args();
        for (slot, [rows, columns]) in entry::slot_taps(planes).into_iter().enumerate() {
            args.taps[slot] = packed_taps(rows, columns, 0);
            args.far_taps[slot] = packed_taps(rows, columns, TENSOR_TAPS as usize);
        }
        let mut first_block = 0;
        for ((to, block_end), plane) in args.planes.iter_mut().zip(&mut args.block_end).zip(planes) {
            let (layout, rect) = (&plane.source.layout, plane.rect);
            let columns = layout.columns(rect);
            // Each warp computes `segment` rows.
            let blocks = (strips(plane) * rect.height().div_ceil(segment)).div_ceil(TENSOR_DIRECT_WARPS);
            *to = TensorPlane {
                src: plane.source.memory.address,
                dst: plane.destination.memory.address,
                src_pitch: plane.source.memory.pitch as u64,
                dst_pitch: plane.destination.memory.pitch as u64,
                width: layout.row_pixels() as u32,
                slot: entry::slot_of(planes, plane),
                row_begin: rect.y(),
                row_end: rect.bottom(),
                column_begin: columns.start,
                column_end: columns.end,
                segment_rows: segment,
                first_block,
                blocks,
                ..pixels(layout, layout, plane.alpha)
            };
            first_block += blocks;
            *block_end = first_block;
        }
        Launch::new(self.kernel(), first_block, self.block_bytes(planes), Args::Tensor(args))
    }
}

/// The size of a pixel in bytes; for packed 4:2:2, of a pair of pixels.
fn pixel_bytes(layout: &PlaneLayout) -> u32 {
    layout.pixel_bytes() as u32
}

/// The number of tiles of 16 columns that a warp computes.
fn tiles_across(layout: &PlaneLayout) -> u32 {
    match pixel_bytes(layout) {
        1 => TENSOR_DIRECT_ACROSS_1,
        2 => TENSOR_DIRECT_ACROSS_2,
        _ => 1,
    }
}

/// The number of bytes that a lane copies at a time.
const CHUNK: u32 = 16;

/// The smallest odd multiple of `unit` that is at least `bytes`.
fn odd_multiple(bytes: u32, unit: u32) -> u32 {
    (bytes.div_ceil(unit) / 2 * 2 + 1) * unit
}

/// The number of strips that a rectangle is divided into. A warp computes one strip.
fn strips(plane: &Entry) -> u32 {
    (plane.source.layout.columns(plane.rect).len() as u32).div_ceil(16 * tiles_across(&plane.source.layout))
}
