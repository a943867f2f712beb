// SPDX-License-Identifier: MPL-2.0
//! The launches for the levels of the wide form on CUDA cores: decimation and interpolation, a pass along rows and one down
//! columns.

use std::ops::Range;
use std::sync::LazyLock;

use super::abi::*;
use crate::cuda::driver::LaunchConfig;
use crate::filter::frame::{PlaneLayout, SampleLayout};
use crate::filter::operation::{Channels, Resampling};
use crate::filter::plane::DevicePlane;
use crate::filter::regions::Rect;
use crate::filter::wide::Factor;

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
            let key = |plane: &PlaneLevel| (plane.direction, plane.resampling.level);
            key(first) == key(&plane) && batch.planes.len() < PLANES as usize
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

    /// Whether rows are resampled, or stored in another way than those of the small plane.
    fn has_rows(&self) -> bool {
        self.resampling.factors[0] != Factor::One || self.resampling.level == 0
    }

    fn has_columns(&self) -> bool {
        self.resampling.factors[1] != Factor::One
    }

    /// The rectangle between the passes along rows and down columns, of 16-bit samples as wide as the small plane and as high as
    /// the larger one: its pixels and rows.
    fn between(&self) -> (Range<u32>, Range<u32>) {
        let [x, y] = self.resampling.factors;
        match self.direction {
            Direction::Decimate => {
                let rows = match y {
                    Factor::One => self.rect.y()..self.rect.bottom(),
                    _ => {
                        let s = y.get();
                        let first = (self.rect.y() * s).saturating_sub(2 * LEVEL_RADIUS * s);
                        let end = ((self.rect.bottom() - 1) * s + 1).min(self.larger().height);
                        first.min(self.larger().height - 1)..end
                    }
                };
                // The columns pass reads four samples at a time.
                let right = self.rect.right();
                (self.rect.x()..if self.has_columns() { right.next_multiple_of(4) } else { right }, rows)
            }
            Direction::Interpolate => {
                let columns = self.columns();
                let reach = if x == Factor::One { 1 } else { PHASE_TAPS };
                let end = ((columns.end - 1) / x.get() + reach).min(self.small().width);
                (columns.start / x.get()..end, self.rect.y()..self.rect.bottom())
            }
        }
    }

    /// The samples of a channel of the larger plane that an interpolation writes. The last pair of an odd row of packed 4:2:2 is
    /// written as a whole.
    fn columns(&self) -> Range<u32> {
        let end = if self.rect.right() == self.larger().width { self.row_end() } else { self.rect.right() };
        match self.resampling.channels {
            Channels::Chroma => self.rect.x() / 2..end / 2,
            _ => self.rect.x()..end,
        }
    }

    /// Pixels of a row of the larger plane, with both of the last pair of packed 4:2:2.
    fn row_end(&self) -> u32 {
        match self.larger().sample_layout {
            SampleLayout::Yuv422 { .. } => self.larger().width.next_multiple_of(2),
            _ => self.larger().width,
        }
    }

    fn intermediate_pitch(&self) -> usize {
        let pixels = self.between().0.len();
        (pixels * usize::from(self.small().channels) * 2).next_multiple_of(WORKSPACE_ALIGNMENT)
    }

    /// Device memory for the rectangle between the passes, in bytes.
    fn intermediate_bytes(&self) -> usize {
        let has_both = self.has_rows() && self.has_columns();
        if has_both { self.intermediate_pitch() * self.between().1.len() } else { 0 }
    }

    /// The plane between the passes, of which the rectangle is at this address.
    fn intermediate(&self, address: u64) -> DevicePlane {
        let (columns, rows) = self.between();
        let (pitch, pixel) = (self.intermediate_pitch(), 2 * usize::from(self.small().channels));
        let before = rows.start as usize * pitch + columns.start as usize * pixel;
        DevicePlane { address: address.wrapping_sub(before as u64), pitch, len: before + self.intermediate_bytes() }
    }

    /// The 16-bit plane at the other end of the rows pass, and the larger plane.
    fn rows_planes(&self, intermediate: u64) -> [DevicePlane; 2] {
        let [larger, small] = match self.direction {
            Direction::Decimate => [self.source, self.destination],
            Direction::Interpolate => [self.destination, self.source],
        };
        [if self.has_columns() { self.intermediate(intermediate) } else { small }, larger]
    }

    /// The part of a [`LevelRowsPlane`] that its samples are.
    fn part(&self) -> usize {
        usize::from(self.resampling.channels == Channels::Chroma)
    }

    /// Whether one entry of a launch processes the rows of both: the luma and the chroma of packed 4:2:2.
    fn shares_rows_with(&self, other: &Self) -> bool {
        let rows = |plane: &Self| plane.between().1;
        let [own, others] = [self, other].map(|plane| plane.rows_planes(0)[1].address);
        let same_pixels = self.direction == Direction::Decimate || self.rect == other.rect;
        self.part() != other.part() && own == others && rows(self) == rows(other) && same_pixels
    }

    /// The entry of a launch for the rows, with its blocks from `first_block` on, and the number of these.
    fn rows_entry(planes: &[(&Self, u64)], first_block: u32) -> (LevelRowsPlane, u32) {
        let (first, intermediate) = planes[0];
        let (layout, [_, larger]) = (first.larger(), first.rows_planes(intermediate));
        let is_packed = matches!(layout.sample_layout, SampleLayout::Yuv422 { .. });
        let strip = if is_packed { LEVEL_WINDOW - 64 } else { LEVEL_WINDOW - 32 };
        let mut parts = [LevelPart::default(); 2];
        let mut strips: Option<Range<u32>> = None;
        for (plane, intermediate) in planes {
            let (columns, _) = plane.between();
            let ([small, _], factor_log2) =
                (plane.rows_planes(*intermediate), plane.resampling.factors[0].get().ilog2());
            let (small, pitch, Range { start: begin, end }) = (small.address, small.pitch as u64, columns.clone());
            parts[plane.part()] = LevelPart { small, pitch, factor_log2, begin, end, reserved: 0 };
            let of_part = strip >> plane.part();
            let own = (columns.start << factor_log2) / of_part..(columns.end << factor_log2).div_ceil(of_part);
            strips = strips.map(|all| all.start.min(own.start)..all.end.max(own.end)).or(Some(own));
        }
        let mut strips = strips.unwrap_or_default();
        let mut columns = 0..0;
        if first.direction == Direction::Interpolate {
            columns =
                first.rect.x()..if first.rect.right() == layout.width { first.row_end() } else { first.rect.right() };
            strips = 0..(columns.len() as u32).div_ceil(strip);
        }
        let rows = first.between().1;
        let entry = LevelRowsPlane {
            larger: larger.address,
            pitch: larger.pitch as u64,
            parts,
            width: layout.width,
            pixel_bytes: (layout.pixel_bytes() / if is_packed { 2 } else { 1 }) as u32,
            word_bytes: match layout.sample_layout {
                SampleLayout::Packed1010102 => 4,
                _ => layout.sample_bytes() as u32,
            },
            pairs: is_packed.into(),
            channels: channels(layout),
            layout: std::array::from_fn(|c| channel(layout, c as u32)),
            column_begin: columns.start,
            column_end: columns.end,
            row_begin: rows.start,
            row_end: rows.end,
            first_strip: strips.start,
            strips: strips.len() as u32,
            first_block,
        };
        (entry, entry.strips * (rows.len() as u32).div_ceil(LEVEL_WARPS * LEVEL_WARP_ROWS))
    }

    /// The same for the columns.
    fn columns_entry(&self, intermediate: u64, first_block: u32) -> (LevelColumnsPlane, u32) {
        let channels = u32::from(self.small().channels);
        let columns = match self.direction {
            Direction::Decimate => self.rect.x()..self.rect.right(),
            Direction::Interpolate => self.between().0,
        };
        let between = |plane: DevicePlane| if self.has_rows() { self.intermediate(intermediate) } else { plane };
        let (rows, per_thread) = (
            self.rect.y()..self.rect.bottom(),
            match self.direction {
                Direction::Decimate => LEVEL_DECIMATE_ROWS,
                Direction::Interpolate => 4,
            },
        );
        let (src, dst, src_rows, first_row) = match self.direction {
            Direction::Decimate => (between(self.source), self.destination, self.larger().height, rows.start),
            Direction::Interpolate => (self.source, between(self.destination), self.small().height, rows.start / 4 * 4),
        };
        // If the rows are only stored, their samples are those of the larger plane already.
        let is_final = self.direction == Direction::Interpolate && self.resampling.factors[0] == Factor::One;
        let samples = columns.start * channels..columns.end * channels;
        let strips = (samples.len() as u32).div_ceil(LEVEL_COLUMNS_SAMPLES);
        let entry = LevelColumnsPlane {
            src: src.address,
            dst: dst.address,
            src_pitch: src.pitch as u64,
            dst_pitch: dst.pitch as u64,
            src_rows,
            sample_begin: samples.start,
            sample_end: samples.end,
            row_begin: rows.start,
            row_end: rows.end,
            factor_log2: self.resampling.factors[1].get().ilog2(),
            depth: if is_final { self.larger().depth.into() } else { 16 },
            strips,
            first_block,
            reserved: [0; 3],
        };
        (entry, strips * (rows.end - first_row).div_ceil(LEVEL_WARPS * per_thread))
    }
}

/// The channels that a level has of a plane: packed 4:2:2 has one of luma.
fn channels(layout: &PlaneLayout) -> u32 {
    match layout.sample_layout {
        SampleLayout::Yuv422 { .. } => 3,
        _ => layout.channels.into(),
    }
}

/// How one of them is stored.
fn channel(layout: &PlaneLayout, c: u32) -> LevelChannel {
    let (depth, pixel_bytes) = (u32::from(layout.depth), layout.pixel_bytes() as u32);
    match layout.sample_layout {
        SampleLayout::Yuv422 { luma } if c == 0 => LevelChannel { offset: luma.into(), step: 2, shift: 0, bits: depth },
        SampleLayout::Yuv422 { luma } => {
            LevelChannel { offset: 1 - u32::from(luma) + 2 * (c - 1), step: pixel_bytes, shift: 0, bits: depth }
        }
        SampleLayout::Packed1010102 => {
            LevelChannel { offset: 0, step: pixel_bytes, shift: 10 * c, bits: if c == 3 { 2 } else { depth } }
        }
        SampleLayout::LsbAligned | SampleLayout::MsbAligned => LevelChannel {
            offset: c * layout.sample_bytes() as u32,
            step: pixel_bytes,
            shift: layout.shift().into(),
            bits: depth,
        },
    }
}

/// The taps of both directions. They depend on the factors alone.
static DECIMATION: LazyLock<LevelTaps> = LazyLock::new(|| taps(Direction::Decimate));
static INTERPOLATION: LazyLock<LevelTaps> = LazyLock::new(|| taps(Direction::Interpolate));

/// By two and by four.
type LevelTaps = [[u32; LEVEL_TAPS as usize]; 2];

fn taps(direction: Direction) -> LevelTaps {
    [Factor::Two, Factor::Four].map(|factor| {
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
    })
}

/// The bytes of the decimation's taps, see [`LevelRowsArgs::tap_bytes`].
fn tap_bytes() -> [[u32; LEVEL_TAP_WORDS as usize]; 2] {
    DECIMATION.map(|taps| {
        std::array::from_fn(|i| {
            let [first, second] = [taps[2 * i], taps[2 * i + 1]];
            first & 0xff | (second & 0xff) << 8 | (first >> 8) << 16 | (second >> 8) << 24
        })
    })
}

impl LevelBatch {
    /// Its planes.
    pub fn planes(&self) -> &[PlaneLevel] {
        &self.planes
    }

    /// Device memory between the launches, in bytes.
    pub fn intermediate_bytes(&self) -> usize {
        self.planes.iter().map(PlaneLevel::intermediate_bytes).sum()
    }

    /// The kernels of its launches.
    pub fn kernels(&self) -> Vec<Kernel> {
        self.launches(0).iter().map(|launch| launch.kernel).collect()
    }

    /// The launches, in order. `intermediate` is the address of [`LevelBatch::intermediate_bytes`] of device memory, aligned to
    /// 16 bytes.
    pub fn launches(&self, intermediate: u64) -> Vec<Launch> {
        let mut end = intermediate;
        let mut address = |plane: &PlaneLevel| {
            let address = end;
            end += plane.intermediate_bytes() as u64;
            address
        };
        let planes: Vec<(&PlaneLevel, u64)> = self.planes.iter().map(|plane| (plane, address(plane))).collect();
        let (rows, columns) = (self.rows_launch(&planes), self.columns_launch(&planes));
        match self.planes[0].direction {
            Direction::Decimate => rows.into_iter().chain(columns).collect(),
            Direction::Interpolate => columns.into_iter().chain(rows).collect(),
        }
    }

    fn rows_launch(&self, planes: &[(&PlaneLevel, u64)]) -> Option<Launch> {
        let direction = self.planes[0].direction;
        let unused = LevelRowsPlane { first_block: u32::MAX, ..LevelRowsPlane::default() };
        let mut args =
            LevelRowsArgs { planes: [unused; PLANES as usize], taps: *INTERPOLATION, tap_bytes: tap_bytes() };
        let mut entries: Vec<Vec<(&PlaneLevel, u64)>> = Vec::new();
        for (plane, address) in planes.iter().filter(|(plane, _)| plane.has_rows()) {
            let shared = entries.iter_mut().find(|of| of.len() == 1 && of[0].0.shares_rows_with(plane));
            match shared {
                Some(of) => of.push((plane, *address)),
                None => entries.push(vec![(plane, *address)]),
            }
        }
        let mut end_block = 0;
        for (to, of) in args.planes.iter_mut().zip(&entries) {
            let (entry, blocks) = PlaneLevel::rows_entry(of, end_block);
            *to = entry;
            end_block += blocks;
        }
        let channels = self.planes.iter().map(|plane| channels(plane.larger())).max()?;
        let kernel = match direction {
            Direction::Decimate => Kernel::DecimateRows,
            Direction::Interpolate => Kernel::InterpolateRows,
        };
        let shared_bytes = LEVEL_WARPS * LEVEL_WARP_ROWS * LEVEL_CHANNEL_BYTES * channels;
        let grid = LaunchConfig { blocks: end_block, threads: kernel.threads(), shared_bytes };
        (!entries.is_empty()).then_some(Launch { kernel, grid, args: Args::LevelRows(args) })
    }

    fn columns_launch(&self, planes: &[(&PlaneLevel, u64)]) -> Option<Launch> {
        let direction = self.planes[0].direction;
        let unused = LevelColumnsPlane { first_block: u32::MAX, ..LevelColumnsPlane::default() };
        let taps = match direction {
            Direction::Decimate => *DECIMATION,
            Direction::Interpolate => *INTERPOLATION,
        };
        let mut args = LevelColumnsArgs { planes: [unused; PLANES as usize], taps };
        let with_columns = planes.iter().filter(|(plane, _)| plane.has_columns());
        let mut end_block = 0;
        for (to, (plane, address)) in args.planes.iter_mut().zip(with_columns) {
            let (entry, blocks) = plane.columns_entry(*address, end_block);
            *to = entry;
            end_block += blocks;
        }
        let kernel = match direction {
            Direction::Decimate => Kernel::DecimateColumns,
            Direction::Interpolate => Kernel::InterpolateColumns,
        };
        let grid = LaunchConfig { blocks: end_block, threads: kernel.threads(), shared_bytes: 0 };
        (end_block > 0).then_some(Launch { kernel, grid, args: Args::LevelColumns(args) })
    }
}
