// SPDX-License-Identifier: MPL-2.0
//! The launches for the levels of the wide form: decimation and interpolation.

use std::ops::Range;

use super::abi::*;
use crate::cuda::driver::LaunchConfig;
use crate::cuda::driver::device::DeviceLimits;
use crate::filter::frame::{PlaneLayout, SampleLayout};
use crate::filter::operation::{Channels, Resampling};
use crate::filter::plane::DevicePlane;
use crate::filter::regions::Rect;
use crate::filter::wide::Factor;

/// Rows of the intermediate start on this many bytes.
const INTERMEDIATE_ALIGNMENT: usize = 256;

/// Which way between the planes of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the larger plane to the small one.
    Decimate,
    /// From the small plane to the larger one.
    Interpolate,
}

/// The decimation or the interpolation of a rectangle of a plane in device memory.
#[derive(Debug, Clone)]
pub struct PlaneLevel {
    /// Which way.
    pub direction: Direction,
    /// The planes and the factors.
    pub resampling: Resampling,
    /// Where the rows that are read are.
    pub source: DevicePlane,
    /// Where the rows that are written are. Must not overlap the source.
    pub destination: DevicePlane,
    /// What is written, in pixels of the output.
    pub rect: Rect,
    /// The kernels that there are.
    pub kernel_set: KernelSet,
}

/// Planes that the same launches decimate or interpolate.
#[derive(Debug, Clone)]
pub struct LevelBatch {
    planes: Vec<PlaneLevel>,
}

/// Divides planes into batches, in order.
pub fn batches(planes: impl IntoIterator<Item = PlaneLevel>) -> Vec<LevelBatch> {
    let mut batches: Vec<LevelBatch> = Vec::new();
    for plane in planes {
        let joins = |batch: &&mut LevelBatch| {
            let first = &batch.planes[0];
            let kernel = plane.kernel();
            kernel.is_some()
                && first.kernel() == kernel
                && first.resampling.level == plane.resampling.level
                && batch.planes.len() < PixelFamily::of(plane.larger()).most_planes()
        };
        match batches.last_mut().filter(joins) {
            Some(batch) => batch.planes.push(plane),
            None => batches.push(LevelBatch { planes: vec![plane] }),
        }
    }
    batches
}

impl PlaneLevel {
    /// The layout of the plane that is decimated, or interpolated to.
    fn larger(&self) -> &PlaneLayout {
        match self.direction {
            Direction::Decimate => &self.resampling.source.field.layout,
            Direction::Interpolate => &self.resampling.destination.field.layout,
        }
    }

    fn small(&self) -> &PlaneLayout {
        match self.direction {
            Direction::Decimate => &self.resampling.destination.field.layout,
            Direction::Interpolate => &self.resampling.source.field.layout,
        }
    }

    /// The kernel that does both axes in one launch, if there is one.
    fn kernel(&self) -> Option<Kernel> {
        let [x, y] = self.resampling.factors;
        let family = PixelFamily::of(self.larger());
        (x == y && self.kernel_set.level_families().contains(&family)).then_some(match self.direction {
            Direction::Decimate => Kernel::Decimate(family),
            Direction::Interpolate => Kernel::Interpolate(family),
        })
    }

    /// How the larger plane is stored, the offset of its first sample, and its samples of a channel per row that are read or
    /// written.
    fn storage(&self) -> (SampleStorage, u64, u32) {
        let layout = self.larger();
        let [depth, shift] = [u32::from(layout.depth), u32::from(layout.shift())];
        let (sample, pixel) = (layout.sample_bytes() as u32, layout.pixel_bytes() as u32);
        let storage = SampleStorage { depth, shift, pixel_bytes: pixel, channel_bytes: sample };
        let (pairs, luma) = match layout.sample_layout {
            SampleLayout::Yuv422 { luma } => (layout.row_pixels() as u32, u64::from(luma)),
            SampleLayout::Packed1010102 => return (SampleStorage { channel_bytes: 0, ..storage }, 0, layout.width),
            SampleLayout::LsbAligned | SampleLayout::MsbAligned => return (storage, 0, layout.width),
        };
        match self.resampling.channels {
            // The last pair of an odd row is read up to the picture's edge and written as a whole.
            Channels::Luma if self.direction == Direction::Interpolate => {
                (SampleStorage { pixel_bytes: 2, ..storage }, luma, 2 * pairs)
            }
            Channels::Luma => (SampleStorage { pixel_bytes: 2, ..storage }, luma, layout.width),
            _ => (SampleStorage { channel_bytes: 2, ..storage }, 1 - luma, pairs),
        }
    }

    /// Whether the axes take a launch each, with an intermediate between them.
    fn has_intermediate(&self) -> bool {
        self.kernel().is_none() && self.resampling.factors.iter().all(|factor| *factor != Factor::One)
    }

    fn intermediate_pitch(&self) -> usize {
        (self.small().row_samples() * 2).next_multiple_of(INTERMEDIATE_ALIGNMENT)
    }

    /// Device memory for the intermediate, in bytes: 16-bit samples, as wide as the small plane and as high as the larger one.
    fn intermediate_bytes(&self) -> usize {
        if self.has_intermediate() { self.intermediate_pitch() * self.larger().height as usize } else { 0 }
    }

    /// The launches of the kernel for one axis: one, or two with an intermediate.
    fn axis_launches(&self, intermediate: u64) -> Vec<Launch> {
        let (small, larger) = (self.small(), self.larger());
        let channels = u32::from(small.channels);
        let dense = SampleStorage { depth: 16, shift: 0, pixel_bytes: 2 * channels, channel_bytes: 2 };
        let (stored, offset, samples) = self.storage();
        let intermediate =
            DevicePlane { address: intermediate, pitch: self.intermediate_pitch(), len: self.intermediate_bytes() };
        let at_offset = |plane: DevicePlane| DevicePlane { address: plane.address + offset, ..plane };
        let (large, small_plane) = match self.direction {
            Direction::Decimate => (at_offset(self.source), self.destination),
            Direction::Interpolate => (at_offset(self.destination), self.source),
        };
        let (large, middle, small_end) = ((large, stored), (intermediate, dense), (small_plane, dense));
        let launch =
            |axis: usize, [from, to]: [(DevicePlane, SampleStorage); 2], columns: Range<u32>, rows: Range<u32>| {
                let mut taps = [0; LEVEL_TAPS as usize];
                taps[..].copy_from_slice(&level_taps(self.resampling.factors[axis], self.direction));
                let args = AxisArgs {
                    src: from.0.address,
                    dst: to.0.address,
                    src_pitch: from.0.pitch as u64,
                    dst_pitch: to.0.pitch as u64,
                    src_storage: from.1,
                    dst_storage: to.1,
                    column_begin: columns.start,
                    column_end: columns.end,
                    channels,
                    src_count: match self.direction {
                        Direction::Decimate => [samples, larger.height][axis],
                        Direction::Interpolate => [small.width, small.height][axis],
                    },
                    axis: axis as u32,
                    factor: self.resampling.factors[axis].get(),
                    interpolate: u32::from(self.direction == Direction::Interpolate),
                    row_begin: rows.start,
                    row_end: rows.end,
                    reserved: 0,
                    taps,
                };
                // A thread has four pixels along rows, or four samples of columns.
                let per_row = columns.len() as u32 * if axis == 0 { 1 } else { channels };
                let blocks = per_row.div_ceil(4 * AXIS_THREADS) * rows.len() as u32;
                Launch {
                    kernel: Kernel::Axis,
                    grid: LaunchConfig { blocks, threads: AXIS_THREADS, shared_bytes: 0 },
                    args: Args::Axis(args),
                }
            };
        let [x, y] = self.resampling.factors;
        let (rect, rows) = (self.rect, self.rect.y()..self.rect.bottom());
        let columns = match (self.direction, self.resampling.channels) {
            (Direction::Interpolate, Channels::Chroma) => rect.x() / 2..rect.right().div_ceil(2),
            // The last pair of an odd row is written as a whole.
            (Direction::Interpolate, _) if rect.right() == larger.width => rect.x()..samples,
            _ => rect.x()..rect.right(),
        };
        match (self.direction, x, y) {
            (Direction::Decimate, _, Factor::One) => vec![launch(0, [large, small_end], columns, rows)],
            (Direction::Decimate, Factor::One, _) => vec![launch(1, [large, small_end], columns, rows)],
            (Direction::Decimate, ..) => {
                // The rows that the columns read.
                let s = y.get();
                let first = (rows.start * s).saturating_sub(2 * LEVEL_RADIUS * s);
                let end = ((rows.end - 1) * s + 1).min(larger.height);
                let read = first.min(larger.height - 1)..end;
                vec![launch(0, [large, middle], columns.clone(), read), launch(1, [middle, small_end], columns, rows)]
            }
            (Direction::Interpolate, _, Factor::One) => vec![launch(0, [small_end, large], columns, rows)],
            (Direction::Interpolate, Factor::One, _) => vec![launch(1, [small_end, large], columns, rows)],
            (Direction::Interpolate, ..) => {
                // The small columns that the rows read, from a multiple of four on.
                let s = x.get();
                let end = ((columns.end - 1) / s + PHASE_TAPS).min(small.width);
                let read = columns.start / s / 4 * 4..end;
                vec![launch(1, [small_end, middle], read, rows.clone()), launch(0, [middle, large], columns, rows)]
            }
        }
    }
}

/// The taps of a factor as the kernels take them.
fn level_taps(factor: Factor, direction: Direction) -> [u32; LEVEL_TAPS as usize] {
    let mut taps = [0; LEVEL_TAPS as usize];
    match direction {
        Direction::Decimate => {
            let half = factor.decimation_taps();
            let radius = half.radius();
            (0..=2 * radius).for_each(|i| taps[i] = half.at(i.abs_diff(radius)));
        }
        Direction::Interpolate => {
            let phases = (0..factor.get()).flat_map(|phase| factor.interpolation_taps(phase));
            taps.iter_mut().zip(phases).for_each(|(to, tap)| *to = tap);
        }
    }
    taps
}

/// The low and the high bytes of the decimation's taps, see `LevelArgs::byte_taps`.
fn byte_taps(factor: Factor) -> [[u32; LEVEL_TAP_WORDS as usize]; 2] {
    let taps = level_taps(factor, Direction::Decimate);
    // The windows of a factor of two start at a group, and two pixels behind one.
    let windows: &[usize] = if factor == Factor::Four { &[0] } else { &[0, 2] };
    let mut words = [[0; LEVEL_TAP_WORDS as usize]; 2];
    for (window, start) in windows.iter().enumerate() {
        for (i, tap) in taps.iter().enumerate().filter(|(_, tap)| **tap != 0) {
            let (word, shift) = (4 * window + (start + i) / 4, (start + i) % 4 * 8);
            words[0][word] |= (tap & 0xff) << shift;
            words[1][word] |= (tap >> 8) << shift;
        }
    }
    words
}

/// Pixels of the small plane that a block's strip has, see `STRIP_THREADS` in kernels/level.cuh.
fn strip_pixels(direction: Direction, factor: Factor, channels: u8) -> u32 {
    let groups = match (direction, factor, channels) {
        (Direction::Interpolate, _, 1) | (Direction::Decimate, Factor::Four, 1) => 4,
        (Direction::Interpolate, _, 2) | (Direction::Decimate, Factor::Four, 2) => 2,
        (Direction::Decimate, Factor::Two, 1) => 2,
        _ => 1_u32,
    };
    match direction {
        Direction::Interpolate => (LEVEL_THREADS - (PHASE_TAPS - 1).div_ceil(groups)) * groups,
        Direction::Decimate => {
            let [left, right] = if factor == Factor::Four { [2_u32, 4] } else { [1, 2] };
            let threads = LEVEL_THREADS - left.div_ceil(groups) - right.div_ceil(groups);
            threads * groups * (4 / factor.get())
        }
    }
}

/// Shared memory of a block: two steps of as many rows as the factor, and the words of every thread in a row.
fn shared_bytes(direction: Direction, factor: Factor, layout: &PlaneLayout) -> u32 {
    let words = match direction {
        Direction::Interpolate => 2,
        Direction::Decimate => {
            let groups = match (factor, layout.channels) {
                (Factor::Four, 1) => 4,
                (Factor::Four, 2) | (Factor::Two, 1) => 2,
                _ => 1,
            };
            groups * u32::from(layout.channels) * layout.sample_bytes() as u32
        }
    };
    2 * factor.get() * LEVEL_THREADS * words * 4
}

impl LevelBatch {
    /// Its planes.
    pub fn planes(&self) -> &[PlaneLevel] {
        &self.planes
    }

    /// The kernel of its launches.
    pub fn kernel(&self) -> Kernel {
        self.planes[0].kernel().unwrap_or(Kernel::Axis)
    }

    /// Device memory for the intermediate between launches, in bytes.
    pub fn intermediate_bytes(&self) -> usize {
        self.planes.iter().map(PlaneLevel::intermediate_bytes).max().unwrap_or(0)
    }

    /// The launches, in order. `intermediate` is the address of [`LevelBatch::intermediate_bytes`] of device memory, aligned to
    /// 16 bytes.
    pub fn launches(&self, intermediate: u64, limits: DeviceLimits) -> Vec<Launch> {
        match self.planes[0].kernel() {
            Some(kernel) => vec![self.launch(kernel, limits)],
            None => self.planes[0].axis_launches(intermediate),
        }
    }

    fn launch(&self, kernel: Kernel, limits: DeviceLimits) -> Launch {
        let unused = LevelPlane { first_block: u32::MAX, ..LevelPlane::default() };
        let direction = self.planes[0].direction;
        let factors = [Factor::Two, Factor::Four];
        let strips = |plane: &PlaneLevel| {
            let [factor, _] = plane.resampling.factors;
            // An interpolation begins at a small column.
            let columns = match direction {
                Direction::Decimate => plane.rect.width(),
                Direction::Interpolate => plane.rect.width().div_ceil(factor.get()),
            };
            columns.div_ceil(strip_pixels(direction, factor, plane.small().channels))
        };
        // Rows of the small plane.
        let small_rows = |plane: &PlaneLevel| match direction {
            Direction::Decimate => plane.rect.height(),
            Direction::Interpolate => {
                let s = plane.resampling.factors[1].get();
                plane.rect.bottom().div_ceil(s) - plane.rect.y() / s
            }
        };
        let sizes: Vec<[u32; 2]> = self.planes.iter().map(|plane| [small_rows(plane), strips(plane)]).collect();
        let segment_rows = segment_rows(direction, &sizes, limits);
        let mut args = LevelArgs {
            planes: [unused; PLANES as usize],
            segment_rows,
            reserved: [0; 3],
            taps: factors.map(|factor| level_taps(factor, direction)),
            byte_taps: factors.map(byte_taps),
        };
        let (mut blocks, mut shared) = (0, 0);
        for (to, plane) in args.planes.iter_mut().zip(&self.planes) {
            let ([factor, _], larger, small) = (plane.resampling.factors, plane.larger(), plane.small());
            *to = LevelPlane {
                src: plane.source.address,
                dst: plane.destination.address,
                src_pitch: plane.source.pitch as u64,
                dst_pitch: plane.destination.pitch as u64,
                width: larger.width,
                height: larger.height,
                small_width: small.width,
                small_height: small.height,
                channels: larger.channels.into(),
                depth: larger.depth.into(),
                shift: larger.shift().into(),
                factor: factor.get(),
                row_begin: plane.rect.y(),
                row_end: plane.rect.bottom(),
                column_begin: plane.rect.x(),
                column_end: plane.rect.right(),
                first_block: blocks,
                strips: strips(plane),
            };
            blocks += strips(plane) * small_rows(plane).div_ceil(segment_rows);
            shared = shared.max(shared_bytes(direction, factor, larger));
        }
        Launch {
            kernel,
            grid: LaunchConfig { blocks, threads: LEVEL_THREADS, shared_bytes: shared },
            args: Args::Level(args),
        }
    }
}

/// Rows of the small plane of a block, for planes of these (rows, strips) of the small plane. A block also takes `lead` steps
/// for the rows that its neighbour above computes too. On an H200 a step takes about as long as one more block on the
/// multiprocessor adds to it, so the time is proportional to the product below.
fn segment_rows(direction: Direction, planes: &[[u32; 2]], limits: DeviceLimits) -> u32 {
    let lead = match direction {
        Direction::Decimate => 2 * LEVEL_RADIUS,
        Direction::Interpolate => 1,
    };
    let time = |segment: &u32| {
        let blocks: u32 = planes.iter().map(|[rows, strips]| strips * rows.div_ceil(*segment)).sum();
        (segment + lead) * (1 + blocks.div_ceil(limits.multiprocessors.max(1)))
    };
    (2..=32).min_by_key(time).expect("the range is not empty")
}
