// SPDX-License-Identifier: MPL-2.0
//! The launches of the tensor-core kernels, which do all steps of the wide form: decimation, the small plane's blur and
//! interpolation. They store small planes in the layout of kernels/tensor.cuh, so a plane is blurred by these kernels from
//! its first level to its last, or not at all.

use super::abi::*;
use super::batch::{divided, filter_slots};
use super::images::Kernel;
use super::launch::{Args, Launch};
use crate::cuda::driver::device::DeviceLimits;
use crate::filter::Taps;
use crate::filter::frame::{PlaneLayout, SampleLayout};
use crate::filter::operation::{Buffer, Channels, Operation, PlaneTaps};
use crate::filter::regions::Rect;
use crate::filter::wide::Factor;

/// A step of the wide form.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// From the larger plane of a level to the small one.
    Decimate,
    /// The direct form, on the smallest plane.
    Blur,
    /// From the small plane of a level to the larger one.
    Interpolate,
}

/// A step for a rectangle of a plane in device memory.
#[derive(Debug, Clone)]
pub struct PlaneStep<'a> {
    /// The step.
    pub step: Step,
    /// The level of the decimation or interpolation, or the last one of a blur.
    pub level: u8,
    /// The larger plane of the level: of packed 4:2:2 its luma as a plane of one channel, or its chroma as one of two.
    pub larger: PlaneLayout,
    /// The channel that the colour of the frame's plane is multiplied by before the blur, and divided by after it.
    pub alpha: Option<u8>,
    /// The level's factors along x and y.
    pub factors: [Factor; 2],
    /// Its entry of the parameter, with the addresses and pitches that the step uses, and `yuv422`.
    pub entry: TensorPlane,
    /// The taps of a blur.
    pub taps: Option<&'a PlaneTaps>,
    /// What of the output is written, in samples of the larger plane or of the small one.
    pub rect: Rect,
}

/// Whether the tensor-core kernels execute an operation, as a step of the wide form.
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
    // Chroma can have half of σ along rows.
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

/// Taps as the kernels take them, by axis, from a distance on. All are below 65536, since there are several to an axis.
pub(super) fn packed_taps(rows: &Taps, columns: &Taps, first: usize) -> [[u16; TENSOR_TAPS as usize]; 2] {
    [rows, columns].map(|taps| std::array::from_fn(|i| taps.at(first + i) as u16))
}

/// [`TensorPlane::yuv422`] of a plane.
pub fn yuv422_bits(layout: &PlaneLayout) -> u32 {
    match layout.sample_layout {
        SampleLayout::Yuv422 { luma } => u32::from(luma) | (layout.width % 2) << 1,
        _ => 0,
    }
}

/// [`TensorPlane::alpha`] of a plane.
pub(super) fn alpha_bits(alpha: Option<u8>) -> u32 {
    alpha.map_or(0, |channel| u32::from(channel) + 1)
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

/// Bytes that the kernels need for the small plane of a level, at either of its two stages.
pub fn small_plane_bytes(small: &PlaneLayout) -> usize {
    let (width, height, channels) = (small.width as usize, small.height as usize, usize::from(small.channels));
    let decimated = 32 * channels * width.div_ceil(16) * height;
    // The interpolation reads up to 9 columns behind the plane.
    let blurred = 8 * channels * (width + 9).next_multiple_of(16) * height.div_ceil(TENSOR_ROWS as usize);
    decimated.max(blurred)
}

/// Divides steps into batches, in order: those that one launch processes.
pub fn batches<'a>(planes: impl IntoIterator<Item = PlaneStep<'a>>) -> Vec<Vec<PlaneStep<'a>>> {
    let joins = |batch: &[PlaneStep<'a>], plane: &PlaneStep<'a>| {
        let first = &batch[0];
        let is_same = match plane.step {
            Step::Blur => first.step == Step::Blur,
            _ => first.kernel() == plane.kernel() && first.level == plane.level,
        };
        is_same
            && batch.len() < PLANES as usize
            && plane.shares_launches()
            && filter_slots(batch.iter().chain([plane]).map(|plane| plane.taps)).len() <= FILTER_SLOTS as usize
    };
    divided(planes, joins)
}

/// From this many samples on, a plane's decimation is bound by memory, and fewer rows read twice matter more than one wave of
/// blocks. Measured on an H200.
const LARGE: u32 = 24_000_000;
/// The most rows of the output that a warp computes, as multiples of [`PlaneStep::row_unit`].
const SEGMENT_UNITS: u32 = 16;

impl PlaneStep<'_> {
    /// The samples of a group of channels that the small planes store together.
    fn group(&self) -> u32 {
        if self.larger.channels.is_multiple_of(2) { 2 } else { 1 }
    }

    /// The pixels of the larger plane, which is that of a frame.
    fn family(&self) -> PixelFamily {
        let family = PixelFamily::for_tensor_cores(&self.larger, self.alpha);
        family.expect("the caller asked whether the step is supported")
    }

    fn kernel(&self) -> Kernel {
        match self.step {
            Step::Blur if self.radius() > TENSOR_RADIUS_SHORT as usize => Kernel::TENSOR_BLUR_LONG,
            Step::Blur => Kernel::TENSOR_BLUR_SHORT,
            Step::Decimate if self.level > 0 => Kernel::TENSOR_DECIMATE_SMALL,
            Step::Interpolate if self.level > 0 => Kernel::TENSOR_INTERPOLATE_SMALL,
            Step::Decimate => Kernel::tensor_level("tensor_decimate_", self.family(), self.factors[0]),
            Step::Interpolate => Kernel::tensor_level("tensor_interpolate_", self.family(), self.factors[0]),
        }
    }

    /// The larger radius of a blur's axes.
    fn radius(&self) -> usize {
        self.taps.map_or(0, |taps| taps.rows.radius().max(taps.columns.radius()))
    }

    /// Planes of three and four channels have kernels for a single plane, and luma is interpolated into pixels that have chroma.
    fn shares_launches(&self) -> bool {
        let is_packed = self.larger.is_packed_422() && self.step == Step::Interpolate;
        self.step == Step::Blur || self.level > 0 || self.larger.channels < 3 && !is_packed
    }

    /// Bytes of a pixel of the frame's plane.
    fn pixel_bytes(&self) -> u32 {
        if self.larger.is_packed_422() { 2 * u32::from(self.larger.channels) } else { self.larger.pixel_bytes() as u32 }
    }

    /// Shared memory of a block, in bytes.
    fn shared_bytes(&self) -> u32 {
        let ([across, down], channels) = (self.factors.map(Factor::get), u32::from(self.larger.channels));
        let decimate = |step_bytes: u32, columns: u32, channels: u32| {
            let window = if across == 1 { columns } else { across * (columns + 1) };
            TENSOR_DECIMATE_WARPS * (TENSOR_DECIMATE_DEPTH * step_bytes * window * channels + down / 2 * 512)
        };
        let interpolate = |channels: u32| {
            let columns = if across == 1 { 16 } else { 8 };
            TENSOR_INTERPOLATE_WARPS * TENSOR_INTERPOLATE_DEPTH * 32 * columns * channels
        };
        match (self.step, self.level) {
            (Step::Decimate, 0) => decimate(64, self.columns(), self.pixel_bytes()),
            (Step::Decimate, _) => decimate(128, TENSOR_COLUMNS_SMALL, self.group()),
            (Step::Blur, _) => {
                let tiles = 2 * (self.radius() as u32).div_ceil(16).max(1) + 1;
                TENSOR_BLUR_WARPS * (2 * 2 * 16 * (tiles + 1) + tiles * 512)
            }
            (Step::Interpolate, 0) => interpolate(channels),
            (Step::Interpolate, _) => interpolate(self.group()),
        }
    }

    /// Blocks of 8 small columns of a decimating warp.
    fn columns(&self) -> u32 {
        match self.pixel_bytes() {
            _ if self.level > 0 => TENSOR_COLUMNS_SMALL,
            1 => TENSOR_COLUMNS_C1,
            2 => TENSOR_COLUMNS_C2,
            3 => TENSOR_COLUMNS_C3,
            _ => TENSOR_COLUMNS_C4,
        }
    }

    /// The rows of the output that a warp computes at least, in the decimation and the blur: the same number of source rows
    /// for both factors of a decimation.
    fn row_unit(&self) -> u32 {
        match self.step {
            Step::Decimate => 32 / self.factors[1].get(),
            Step::Blur => 16,
            Step::Interpolate => 0,
        }
    }

    /// Blocks that a multiprocessor holds at a time, by the registers of the kernels for compute capability 8.0 to 9.0.
    fn resident_blocks(&self) -> u32 {
        match self.kernel() {
            Kernel::TENSOR_BLUR_SHORT => 3,
            Kernel::TENSOR_BLUR_LONG => 2,
            _ if self.step != Step::Decimate || self.level > 0 => 6,
            _ => match self.family() {
                PixelFamily::U8C12 => 8,
                PixelFamily::U16C4 | PixelFamily::Packed1010102 => 4,
                _ => 6,
            },
        }
    }

    /// The number of blocks whose warps compute `segment` rows each; of an interpolation the largest useful one.
    fn blocks(&self, segment: u32) -> u32 {
        let (channels, group, rows) = (u32::from(self.larger.channels), self.group(), self.rect.height());
        // Of 16 small columns, all of whole tiles.
        let tiles = self.rect.right().div_ceil(16) - self.rect.x() / 16;
        let groups = if self.step == Step::Decimate && self.level == 0 { 1 } else { channels / group };
        match self.step {
            Step::Decimate => {
                let across = (tiles * 2).div_ceil(self.columns()) * groups;
                (across * rows.div_ceil(segment)).div_ceil(TENSOR_DECIMATE_WARPS)
            }
            Step::Blur => (tiles * groups * rows.div_ceil(segment)).div_ceil(TENSOR_BLUR_WARPS),
            Step::Interpolate => {
                let groups = if self.level == 0 { 1 } else { groups };
                let strips = self.rect.bottom().div_ceil(16) - self.rect.y() / 16;
                let stacks = strips.div_ceil(TENSOR_INTERPOLATE_WARPS) * groups;
                self.rect.width().div_ceil((8 * self.factors[0].get()).max(16)) * stacks
            }
        }
    }

    fn is_large(&self) -> bool {
        self.step == Step::Decimate && self.larger.width * self.larger.height * u32::from(self.larger.channels) > LARGE
    }

    /// A measure of the work of an interpolation.
    fn work(&self) -> u64 {
        self.rect.area() * u64::from(self.larger.channels) + 1
    }
}

/// Blocks of an interpolation per multiprocessor, which divide the work evenly: as many as run at the same time, but for
/// three channels, whose units of work differ more in time.
const INTERPOLATE_BLOCKS: u64 = 4;
const INTERPOLATE_BLOCKS_C3: u64 = 8;

/// Rows of a warp, as multiples of its plane's [`PlaneStep::row_unit`]. A warp also computes the rows around its own that
/// the filter reads, so more rows are less work; but the kernels are bound by latency, and a second wave of blocks doubles
/// the time. So it is the fewest rows whose blocks all run at the same time.
fn segment_units(planes: &[PlaneStep], limits: DeviceLimits) -> u32 {
    let least = if planes.iter().any(PlaneStep::is_large) { 4 } else { 1 };
    let blocks = |units: u32| planes.iter().map(|plane| plane.blocks(units * plane.row_unit())).sum::<u32>();
    let resident = planes.iter().map(PlaneStep::resident_blocks).min().unwrap_or(1);
    (least..SEGMENT_UNITS).find(|units| blocks(*units) <= resident * limits.multiprocessors).unwrap_or(SEGMENT_UNITS)
}

/// The kernel of the launch of a batch.
fn kernel(planes: &[PlaneStep]) -> Kernel {
    // A long blur in the batch needs the kernel for long ones.
    let long = planes.iter().find(|plane| plane.kernel() == Kernel::TENSOR_BLUR_LONG);
    long.unwrap_or(&planes[0]).kernel()
}

/// The launch of a batch.
pub fn launch(planes: &[PlaneStep], limits: DeviceLimits) -> Launch {
    let kernel = kernel(planes);
    let slots = filter_slots(planes.iter().map(|plane| plane.taps));
    let mut args = unused_args();
    for (to, taps) in args.taps.iter_mut().zip(&slots) {
        if let Some(taps) = taps {
            *to = packed_taps(&taps.rows, &taps.columns, 0);
        }
    }
    let units = segment_units(planes, limits);
    let all_work: u64 = planes.iter().map(PlaneStep::work).sum();
    let (mut blocks, mut shared_bytes) = (0, 0);
    for ((to, block_end), plane) in args.planes.iter_mut().zip(&mut args.block_end).zip(planes) {
        let segment = units * plane.row_unit();
        let own = match plane.step {
            Step::Interpolate => {
                let resident = if plane.larger.channels == 3 { INTERPOLATE_BLOCKS_C3 } else { INTERPOLATE_BLOCKS };
                let wanted = resident * u64::from(limits.multiprocessors) * plane.work() / all_work;
                plane.blocks(0).min((wanted as u32).max(1))
            }
            _ => plane.blocks(segment),
        };
        *to = TensorPlane {
            width: plane.larger.width,
            height: plane.larger.height,
            channels: plane.larger.channels.into(),
            depth: if plane.alpha.is_some() { 16 } else { plane.larger.depth.into() },
            shift: plane.larger.shift().into(),
            alpha: alpha_bits(plane.alpha),
            factor_across: plane.factors[0].get(),
            factor_down: plane.factors[1].get(),
            slot: slots.iter().position(|taps| *taps == plane.taps).unwrap_or(0) as u32,
            row_begin: plane.rect.y(),
            row_end: plane.rect.bottom(),
            column_begin: plane.rect.x(),
            column_end: plane.rect.right(),
            segment_rows: segment,
            first_block: blocks,
            blocks: own,
            ..plane.entry
        };
        blocks += own;
        *block_end = blocks;
        shared_bytes = shared_bytes.max(plane.shared_bytes());
    }
    Launch::new(kernel, blocks, shared_bytes, Args::Tensor(args))
}
