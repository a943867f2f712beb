// SPDX-License-Identifier: MPL-2.0
//! The launches of the tensor-core kernels for the wide form: decimation, the blur of the small plane, and interpolation. The
//! kernels store small planes in the layout of kernels/tensor.cuh. So these kernels process all levels of a plane, or none.

use super::abi::*;
use super::entry::{self, Entry};
use super::images::Kernel;
use super::launch::{Args, Launch};
use crate::cuda::driver::device::DeviceLimits;
use crate::filter::Taps;
use crate::filter::frame::{PlaneLayout, SampleLayout};
use crate::filter::operation::{Buffer, Channels, Operation};
use crate::filter::regions::Rect;
use crate::filter::wide::Factor;

/// Whether the tensor-core kernels can execute an operation as a step of the wide form.
pub fn supports(operation: &Operation) -> bool {
    let (resampling, larger) = match operation {
        Operation::Decimate(resampling) => (resampling, &resampling.source),
        Operation::Interpolate(resampling) => (resampling, &resampling.destination),
        Operation::Blur { source, destination, taps } => {
            let is_small = |buffer| matches!(buffer, Buffer::Temporary(_));
            return is_small(source.buffer)
                && is_small(destination.buffer)
                && [&taps.rows, &taps.columns].iter().all(|taps| taps.radius() <= TENSOR_RADIUS_MAX as usize);
        }
        _ => return false,
    };
    use Factor::{Four, One, Two};
    let (factors, family) = (resampling.factors, PixelFamily::of(&larger.field.layout));
    // Chroma that is subsampled along rows only has half of σ there, and so smaller factors.
    let has_chroma_factors = matches!(factors, [One, Two] | [Two, Four]) && resampling.level == 0
        || factors == [One, Four] && resampling.level > 0;
    match (resampling.channels, family) {
        _ if resampling.level > 0 => factors == [Four; 2] || has_chroma_factors,
        (_, None) => false,
        (Channels::Chroma, _) => factors == [Four; 2] || has_chroma_factors,
        (Channels::All, Some(PixelFamily::U8C12 | PixelFamily::U16C12)) => {
            factors[0] == factors[1] || has_chroma_factors
        }
        _ => factors[0] == factors[1],
    }
}

/// Taps in the format of the kernels for both axes, from distance `first` on. All taps fit into 16 bits, because each axis has
/// several.
pub(super) fn packed_taps(rows: &Taps, columns: &Taps, first: usize) -> [[u16; TENSOR_TAPS as usize]; 2] {
    [rows, columns].map(|taps| std::array::from_fn(|i| taps.at(first + i) as u16))
}

/// The value of [`TensorPlane::alpha`] for a plane.
pub(super) fn alpha_bits(alpha: Option<u8>) -> u32 {
    alpha.map_or(0, |channel| u32::from(channel) + 1)
}

/// Describes how pixels of the larger plane are stored, and the size of the processed part of it. The caller sets the other
/// fields.
pub(super) fn pixels(larger: &PlaneLayout, part: &PlaneLayout, alpha: Option<u8>) -> TensorPlane {
    TensorPlane {
        width: part.width,
        height: part.height,
        channels: part.channels.into(),
        depth: if alpha.is_some() { 16 } else { larger.depth.into() },
        shift: larger.shift().into(),
        yuv422: match larger.sample_layout {
            SampleLayout::Yuv422 { luma } => u32::from(luma) | (larger.width % 2) << 1,
            _ => 0,
        },
        alpha: alpha_bits(alpha),
        ..TensorPlane::default()
    }
}

/// A parameter without planes.
pub(super) fn unused_args() -> TensorArgs {
    TensorArgs {
        block_end: [u32::MAX; PLANES as usize],
        planes: [TensorPlane::default(); PLANES as usize],
        taps: [[[0; TENSOR_TAPS as usize]; 2]; FILTER_SLOTS as usize],
        far_taps: [[[0; TENSOR_TAPS as usize]; 2]; FILTER_SLOTS as usize],
    }
}

/// The number of bytes that the kernels need for the small plane of a level, before or after its blur.
pub fn small_plane_bytes(small: &PlaneLayout) -> usize {
    let (width, height, channels) = (small.width as usize, small.height as usize, usize::from(small.channels));
    let decimated = 32 * channels * width.div_ceil(16) * height;
    // The interpolation reads up to 9 columns beyond the plane.
    let blurred = 8 * channels * (width + 9).next_multiple_of(16) * height.div_ceil(TENSOR_ROWS as usize);
    decimated.max(blurred)
}

/// Divides entries of the wide form into batches that each share a launch, and keeps their order.
pub fn batches<'a>(entries: impl IntoIterator<Item = Entry<'a>>) -> Vec<Vec<Entry<'a>>> {
    entry::divided(entries, |batch, entry| {
        let first = &batch[0];
        let is_same = match entry.operation {
            Operation::Blur { .. } => matches!(first.operation, Operation::Blur { .. }),
            _ => kernel_of(first) == kernel_of(entry) && level(first) == level(entry),
        };
        is_same
            && batch.len() < PLANES as usize
            && shares_launches(entry)
            && entry::slots(batch.iter().chain([entry])).len() <= FILTER_SLOTS as usize
    })
}

/// From this many samples on, the decimation of a plane is limited by memory bandwidth. Then reading fewer rows twice matters
/// more than a single wave of blocks. Measured on an H200.
const LARGE: u32 = 24_000_000;
/// The largest number of output rows of a warp, as a multiple of [`row_unit`].
const SEGMENT_UNITS: u32 = 16;

/// The level of a decimation or an interpolation.
fn level(entry: &Entry) -> Option<u8> {
    entry.resampling().map(|resampling| resampling.level)
}

/// The processed samples of the larger plane. The luma of packed 4:2:2 is a plane of one channel, and the chroma one of two.
fn part(entry: &Entry) -> PlaneLayout {
    let layout = &entry.larger().layout;
    entry.resampling().map_or(*layout, |resampling| resampling.channels.part_of(layout))
}

/// The rectangle that is written, in samples of the part of the larger plane or of the small plane.
fn samples(entry: &Entry) -> Rect {
    match entry.operation {
        Operation::Interpolate(resampling) => resampling.in_samples(entry.rect),
        _ => entry.rect,
    }
}

/// The number of channels that the small planes store together.
fn group(part: &PlaneLayout) -> u32 {
    if part.channels.is_multiple_of(2) { 2 } else { 1 }
}

/// The family of the larger plane, which is a plane of the frame.
fn family(entry: &Entry) -> PixelFamily {
    entry.family().expect("`supports` was asked for the operation")
}

fn kernel_of(entry: &Entry) -> Kernel {
    match (entry.operation, level(entry)) {
        (Operation::Decimate(_), Some(1..)) => Kernel::TENSOR_DECIMATE_SMALL,
        (Operation::Interpolate(_), Some(1..)) => Kernel::TENSOR_INTERPOLATE_SMALL,
        (Operation::Decimate(_), _) => Kernel::tensor_level("tensor_decimate_", family(entry), entry.factors()[0]),
        (Operation::Interpolate(_), _) => {
            Kernel::tensor_level("tensor_interpolate_", family(entry), entry.factors()[0])
        }
        _ if radius(entry) > TENSOR_RADIUS_SHORT as usize => Kernel::TENSOR_BLUR_LONG,
        _ => Kernel::TENSOR_BLUR_SHORT,
    }
}

/// The larger one of a blur's radii along rows and down columns.
fn radius(entry: &Entry) -> usize {
    entry.taps().map_or(0, |taps| taps.rows.radius().max(taps.columns.radius()))
}

/// Whether the entry can share a launch. Planes of the frame with three or four channels have kernels for a single plane. The
/// luma of packed 4:2:2 is written into pixels that already have chroma, in a later launch.
fn shares_launches(entry: &Entry) -> bool {
    let is_packed = entry.larger().layout.is_packed_422() && matches!(entry.operation, Operation::Interpolate(_));
    level(entry) != Some(0) || part(entry).channels < 3 && !is_packed
}

/// The size of a pixel of the frame's plane, in bytes.
fn pixel_bytes(entry: &Entry) -> u32 {
    let part = part(entry);
    if part.is_packed_422() { 2 * u32::from(part.channels) } else { part.pixel_bytes() as u32 }
}

/// The shared memory of a block, in bytes.
fn shared_bytes(entry: &Entry) -> u32 {
    let ([across, down], part) = (entry.factors().map(Factor::get), part(entry));
    let decimate = |step_bytes: u32, channels: u32| {
        let window = if across == 1 { columns(entry) } else { across * (columns(entry) + 1) };
        TENSOR_DECIMATE_WARPS * (TENSOR_DECIMATE_DEPTH * step_bytes * window * channels + down / 2 * 512)
    };
    let interpolate = |channels: u32| {
        let columns = if across == 1 { 16 } else { 8 };
        TENSOR_INTERPOLATE_WARPS * TENSOR_INTERPOLATE_DEPTH * 32 * columns * channels
    };
    match (entry.operation, level(entry)) {
        (Operation::Decimate(_), Some(0)) => decimate(64, pixel_bytes(entry)),
        (Operation::Decimate(_), _) => decimate(128, group(&part)),
        (Operation::Interpolate(_), Some(0)) => interpolate(part.channels.into()),
        (Operation::Interpolate(_), _) => interpolate(group(&part)),
        _ => {
            let tiles = 2 * (radius(entry) as u32).div_ceil(16).max(1) + 1;
            TENSOR_BLUR_WARPS * (2 * 2 * 16 * (tiles + 1) + tiles * 512)
        }
    }
}

/// The width of a decimating warp, in blocks of 8 columns of the small plane.
fn columns(entry: &Entry) -> u32 {
    match pixel_bytes(entry) {
        _ if level(entry) != Some(0) => TENSOR_COLUMNS_SMALL,
        1 => TENSOR_COLUMNS_C1,
        2 => TENSOR_COLUMNS_C2,
        3 => TENSOR_COLUMNS_C3,
        _ => TENSOR_COLUMNS_C4,
    }
}

/// The smallest number of output rows of a warp, in the decimation and the blur. Decimations by both factors read the same number
/// of source rows.
fn row_unit(entry: &Entry) -> u32 {
    match entry.operation {
        Operation::Decimate(_) => 32 / entry.factors()[1].get(),
        Operation::Interpolate(_) => 0,
        _ => 16,
    }
}

/// The number of blocks that a multiprocessor holds at a time, by the registers of the kernels for compute capability 8.0 to 9.0.
fn resident_blocks(entry: &Entry) -> u32 {
    match (entry.operation, kernel_of(entry)) {
        (_, Kernel::TENSOR_BLUR_SHORT) => 3,
        (_, Kernel::TENSOR_BLUR_LONG) => 2,
        (Operation::Decimate(_), kernel) if kernel != Kernel::TENSOR_DECIMATE_SMALL => match family(entry) {
            PixelFamily::U8C12 => 8,
            PixelFamily::U16C4 | PixelFamily::Packed1010102 => 4,
            _ => 6,
        },
        _ => 6,
    }
}

/// The number of blocks, if each warp computes `segment` rows. For an interpolation, the largest useful number of blocks.
fn blocks(entry: &Entry, segment: u32) -> u32 {
    let (part, rect) = (part(entry), samples(entry));
    let groups = u32::from(part.channels) / group(&part);
    // In planes of the frame, all channels are one group.
    let of_level = if level(entry) == Some(0) { 1 } else { groups };
    // The number of tiles of 16 columns of the small plane.
    let tiles = rect.right().div_ceil(16) - rect.x() / 16;
    match entry.operation {
        Operation::Decimate(_) => {
            let across = (tiles * 2).div_ceil(columns(entry)) * of_level;
            (across * rect.height().div_ceil(segment)).div_ceil(TENSOR_DECIMATE_WARPS)
        }
        Operation::Interpolate(_) => {
            let strips = rect.bottom().div_ceil(16) - rect.y() / 16;
            let stacks = strips.div_ceil(TENSOR_INTERPOLATE_WARPS) * of_level;
            rect.width().div_ceil((8 * entry.factors()[0].get()).max(16)) * stacks
        }
        _ => (tiles * groups * rect.height().div_ceil(segment)).div_ceil(TENSOR_BLUR_WARPS),
    }
}

fn is_large(entry: &Entry) -> bool {
    let PlaneLayout { width, height, channels, .. } = part(entry);
    matches!(entry.operation, Operation::Decimate(_)) && width * height * u32::from(channels) > LARGE
}

/// A measure of the work of an interpolation.
fn work(entry: &Entry) -> u64 {
    samples(entry).area() * u64::from(part(entry).channels) + 1
}

/// The number of blocks of an interpolation for each multiprocessor, among which the work is divided evenly. It is the number of
/// blocks that run at the same time. For three channels it is higher, because their units of work differ more in time.
const INTERPOLATE_BLOCKS: u64 = 4;
const INTERPOLATE_BLOCKS_C3: u64 = 8;

/// The number of rows of a warp, as a multiple of [`row_unit`] of its plane. A warp also computes the rows around its own rows
/// that the filter reads, so more rows need less work in total. But the kernels are limited by latency, and a second wave of
/// blocks doubles the time. So this is the smallest number of rows with which all blocks run at the same time.
fn segment_units(batch: &[Entry], limits: DeviceLimits) -> u32 {
    let least = if batch.iter().any(is_large) { 4 } else { 1 };
    let all = |units: u32| batch.iter().map(|entry| blocks(entry, units * row_unit(entry))).sum::<u32>();
    let resident = batch.iter().map(resident_blocks).min().unwrap_or(1);
    (least..SEGMENT_UNITS).find(|units| all(*units) <= resident * limits.multiprocessors).unwrap_or(SEGMENT_UNITS)
}

/// The entry of a launch for a plane, with its pixels and addresses.
fn addressed(entry: &Entry, part: &PlaneLayout) -> TensorPlane {
    let (source, destination) = (&entry.source.memory, &entry.destination.memory);
    let of_frame = pixels(&entry.larger().layout, part, entry.alpha);
    match entry.operation {
        Operation::Decimate(_) => TensorPlane {
            src: source.address,
            src_pitch: source.pitch as u64,
            decimated: destination.address,
            ..of_frame
        },
        Operation::Interpolate(_) => TensorPlane {
            src: entry.transparent.address,
            src_pitch: entry.transparent.pitch as u64,
            blurred: source.address,
            dst: destination.address,
            dst_pitch: destination.pitch as u64,
            ..of_frame
        },
        _ => TensorPlane { decimated: source.address, blurred: destination.address, ..of_frame },
    }
}

/// The launch of a batch.
pub fn launch(batch: &[Entry], limits: DeviceLimits) -> Launch {
    // If the batch contains a long blur, the whole batch needs the kernel for long blurs.
    let is_long = |entry: &&Entry| kernel_of(entry) == Kernel::TENSOR_BLUR_LONG;
    let kernel = kernel_of(batch.iter().find(is_long).unwrap_or(&batch[0]));
    let mut args = unused_args();
    for (to, taps) in args.taps.iter_mut().zip(entry::slots(batch)) {
        *to = packed_taps(&taps.rows, &taps.columns, 0);
    }
    let units = segment_units(batch, limits);
    let all_work: u64 = batch.iter().map(work).sum();
    let mut first_block = 0;
    for ((to, block_end), entry) in args.planes.iter_mut().zip(&mut args.block_end).zip(batch) {
        let (part, rect, segment_rows) = (part(entry), samples(entry), units * row_unit(entry));
        let blocks = match entry.operation {
            Operation::Interpolate(_) => {
                let resident = if part.channels == 3 { INTERPOLATE_BLOCKS_C3 } else { INTERPOLATE_BLOCKS };
                let wanted = resident * u64::from(limits.multiprocessors) * work(entry) / all_work;
                blocks(entry, 0).min((wanted as u32).max(1))
            }
            _ => blocks(entry, segment_rows),
        };
        let [factor_across, factor_down] = entry.factors().map(Factor::get);
        *to = TensorPlane {
            factor_across,
            factor_down,
            slot: entry::slot_of(batch, entry),
            row_begin: rect.y(),
            row_end: rect.bottom(),
            column_begin: rect.x(),
            column_end: rect.right(),
            segment_rows,
            first_block,
            blocks,
            ..addressed(entry, &part)
        };
        first_block += blocks;
        *block_end = first_block;
    }
    let shared_bytes = batch.iter().map(shared_bytes).max().unwrap_or(0);
    Launch::new(kernel, first_block, shared_bytes, Args::Tensor(args))
}
