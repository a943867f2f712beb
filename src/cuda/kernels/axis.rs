// SPDX-License-Identifier: MPL-2.0
//! The launches of the kernels on CUDA cores, which filter one axis at a time: the direct form, and the levels of the wide form.

use std::ops::Range;
use std::sync::LazyLock;

use super::abi::*;
use super::batch::{self, PlaneBlur, divided};
use super::images::Kernel;
use super::launch::{Args, Launch};
use crate::filter::Taps;
use crate::filter::frame::PlaneLayout;
use crate::filter::operation::{Channels, Resampling};
use crate::filter::plane::DevicePlane;
use crate::filter::regions::Rect;
use crate::filter::samples::{self, Channel};
use crate::filter::wide::Factor;

/// A rectangle of 16-bit samples between two launches: those of a [`RowsPart`].
#[derive(Debug, Clone)]
struct Intermediate {
    columns: Range<u32>,
    rows: Range<u32>,
    channels: u32,
}

impl Intermediate {
    fn pitch(&self) -> usize {
        (self.columns.len() * self.channels as usize * 2).next_multiple_of(WORKSPACE_ALIGNMENT)
    }

    /// Its size in device memory.
    fn bytes(&self) -> usize {
        self.pitch() * self.rows.len()
    }

    /// The plane of which it is at this address.
    fn plane(&self, address: u64) -> DevicePlane {
        let pitch = self.pitch();
        let before = self.rows.start as usize * pitch + (self.columns.start * self.channels) as usize * 2;
        DevicePlane { address: address.wrapping_sub(before as u64), pitch, len: before + self.bytes() }
    }
}

/// How the rows of a plane are stored; the rest of the entry is for the caller.
fn stored_rows(layout: &PlaneLayout, larger: DevicePlane) -> RowsPlane {
    RowsPlane {
        larger: larger.address,
        pitch: larger.pitch as u64,
        width: layout.width,
        pixel_bytes: layout.pixel_bytes() as u32 / layout.unit_pixels(),
        word_bytes: layout.stored(0).word_bytes as u32,
        pairs: layout.is_packed_422().into(),
        channels: in_order(layout).count() as u32,
        layout: stored_channels(layout, in_order(layout)),
        ..RowsPlane::default()
    }
}

/// An entry of no block.
const UNUSED: u32 = u32::MAX;

fn unused_rows_args() -> RowsArgs {
    RowsArgs {
        planes: [RowsPlane { first_block: UNUSED, ..RowsPlane::default() }; PLANES as usize],
        level_taps: *INTERPOLATION,
        tap_bytes: tap_bytes(),
        radius: [0; FILTER_SLOTS as usize],
        taps: [[0; TAPS as usize]; FILTER_SLOTS as usize],
    }
}

fn unused_columns_args(level_taps: LevelTaps) -> ColumnsArgs {
    ColumnsArgs {
        planes: [ColumnsPlane { first_block: UNUSED, ..ColumnsPlane::default() }; PLANES as usize],
        level_taps,
        radius: [0; FILTER_SLOTS as usize],
        taps: [[0; TAPS as usize]; FILTER_SLOTS as usize],
    }
}

/// Taps as the kernels take them, modulo 65536. A single tap of 65536 becomes 0; the kernels know it by its radius.
fn packed(taps: &Taps) -> [u16; TAPS as usize] {
    let mut packed = [0; TAPS as usize];
    packed.iter_mut().zip(0..=taps.radius()).for_each(|(to, i)| *to = taps.at(i) as u16);
    packed
}

/// The samples of a plane that an entry of the columns kernel writes: those of all channels, or of the luma or the chroma of packed
/// 4:2:2.
struct DirectPart {
    /// What the rows kernel writes.
    intermediate: Intermediate,
    /// The end of the columns that are written, in pixels of the part.
    end: u32,
    /// The filter slot of the rows.
    slot: u32,
    taps: Taps,
}

impl PlaneBlur<'_> {
    /// What the two launches of the direct form process. `slot` is the filter slot of the plane.
    fn parts(&self, slot: u32) -> Vec<DirectPart> {
        let (layout, taps, pixels) = (&self.layout, self.taps, self.layout.columns(self.rect));
        let halo = taps.columns.radius() as u32;
        let rows = self.rect.y().saturating_sub(halo)..layout.height.min(self.rect.bottom() + halo);
        let part = |columns: Range<u32>, channels: u32, slot, taps: &Taps| DirectPart {
            end: columns.end,
            // The columns kernel reads four samples at a time.
            intermediate: Intermediate {
                columns: columns.start..columns.end.next_multiple_of(4),
                rows: rows.clone(),
                channels,
            },
            slot,
            taps: taps.clone(),
        };
        if layout.is_packed_422() {
            vec![part(2 * pixels.start..2 * pixels.end, 1, 0, &taps.rows), part(pixels, 2, 1, &taps.chroma_rows)]
        } else {
            vec![part(pixels, layout.channels.into(), slot, &taps.rows)]
        }
    }

    /// See [`RowsPlane::lead`].
    fn lead(&self) -> u32 {
        let chroma = if self.layout.is_packed_422() { self.taps.chroma_rows.radius() } else { 0 };
        // The kernel reads eight samples at a time.
        let [rows, chroma] = [self.taps.rows.radius(), chroma].map(|radius| (radius as u32).next_multiple_of(8));
        rows.max(2 * chroma).next_multiple_of(16)
    }

    /// Shared memory of the rows kernel, in bytes: the taps of each part, and two arrays of 16-bit samples for each warp and
    /// channel.
    fn rows_shared_bytes(&self) -> u32 {
        let taps = |part: &DirectPart| 4 * (2 * (part.taps.radius() as u32).next_multiple_of(8) + 16);
        let arrays = ROWS_WARPS * in_order(&self.layout).count() as u32 * 2 * 2 * (ROWS_STRIP + 2 * self.lead());
        self.parts(0).iter().map(taps).sum::<u32>() + arrays
    }

    /// Shared memory of the columns kernel, in bytes: the taps.
    fn columns_shared_bytes(&self) -> u32 {
        let radius = self.taps.columns.radius() as u32;
        4 * (COLUMNS_ROWS + (2 * radius + COLUMNS_ROWS).next_multiple_of(4))
    }
}

/// What each plane of a batch is computed in, with its filter slot.
fn direct_parts<'p, 'a>(
    planes: &'p [PlaneBlur<'a>],
) -> impl Iterator<Item = (&'p PlaneBlur<'a>, u32, Vec<DirectPart>)> {
    planes.iter().map(|plane| {
        let slot = batch::slot_of(planes, plane);
        (plane, slot, plane.parts(slot))
    })
}

/// Device memory between the launches of the direct form, in bytes.
pub(super) fn direct_bytes(planes: &[PlaneBlur]) -> usize {
    direct_parts(planes).flat_map(|(.., parts)| parts).map(|part| part.intermediate.bytes()).sum()
}

/// The launches of the direct form on CUDA cores: rows, then columns. `intermediate` is the address of [`direct_bytes`] of device
/// memory, aligned to 16 bytes.
pub(super) fn direct_launches(planes: &[PlaneBlur], intermediate: u64) -> [Launch; 2] {
    let (mut rows, mut columns) = (unused_rows_args(), unused_columns_args([[0; LEVEL_TAPS as usize]; 2]));
    for (slot, [along_rows, down_columns]) in batch::slot_taps(planes).into_iter().enumerate() {
        (rows.radius[slot], rows.taps[slot]) = (along_rows.radius() as u32, packed(along_rows));
        (columns.radius[slot], columns.taps[slot]) = (down_columns.radius() as u32, packed(down_columns));
    }
    let (mut address, mut rows_blocks, mut columns_blocks, mut columns_entries) = (intermediate, 0, 0, 0);
    for (to, (plane, slot, parts)) in rows.planes.iter_mut().zip(direct_parts(planes)) {
        let layout = &plane.layout;
        let mut entry = RowsPlane {
            lead: plane.lead(),
            row_begin: parts[0].intermediate.rows.start,
            row_end: parts[0].intermediate.rows.end,
            // The samples of packed 4:2:2 that belong together are in the same strips.
            first_strip: parts[0].intermediate.columns.start / ROWS_STRIP,
            first_block: rows_blocks,
            ..stored_rows(layout, plane.source)
        };
        entry.strips = parts[0].intermediate.columns.end.div_ceil(ROWS_STRIP) - entry.first_strip;
        rows_blocks += entry.strips * parts[0].intermediate.rows.len().div_ceil(ROWS_WARPS as usize) as u32;
        for (index, part) in parts.iter().enumerate() {
            let samples = part.intermediate.plane(address);
            address += part.intermediate.bytes() as u64;
            let Range { start: begin, end } = part.intermediate.columns;
            entry.parts[index] = RowsPart {
                samples: samples.address,
                pitch: samples.pitch as u64,
                factor_log2: 0,
                begin,
                end,
                slot: part.slot,
            };
            let (stored, channels) = (stored_channels(layout, in_order(layout))[index], part.intermediate.channels);
            let is_packed_word = layout.is_packed_word();
            let strips = ((part.end - begin) * channels).div_ceil(COLUMNS_SAMPLES);
            columns.planes[columns_entries] = ColumnsPlane {
                src: samples.address,
                dst: plane.destination.address + u64::from(stored.offset),
                src_pitch: samples.pitch as u64,
                dst_pitch: plane.destination.pitch as u64,
                src_rows: layout.height,
                sample_begin: begin * channels,
                sample_end: part.end * channels,
                row_begin: plane.rect.y(),
                row_end: plane.rect.bottom(),
                depth: layout.depth.into(),
                slot,
                word_bytes: layout.stored(0).word_bytes as u32,
                step: if is_packed_word { 1 } else { u32::from(stored.step) / channels },
                shift: if is_packed_word { 0 } else { stored.shift.into() },
                strips,
                first_block: columns_blocks,
                ..ColumnsPlane::default()
            };
            columns_entries += 1;
            columns_blocks += strips * plane.rect.height().div_ceil(COLUMNS_WARPS * COLUMNS_ROWS);
        }
        *to = entry;
    }
    let rows_bytes = planes.iter().map(PlaneBlur::rows_shared_bytes).max().unwrap_or(0);
    let columns_bytes = planes.iter().map(PlaneBlur::columns_shared_bytes).max().unwrap_or(0);
    [
        Launch::new(Kernel::ROWS, rows_blocks, rows_bytes, Args::Rows(rows)),
        Launch::new(Kernel::COLUMNS, columns_blocks, columns_bytes, Args::Columns(columns)),
    ]
}

/// Which way between the planes of a level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// From the larger plane to the small one.
    Decimate,
    /// From the small plane to the larger one.
    Interpolate,
}

/// A plane of a level in device memory.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the names say it")]
pub struct LevelPlane {
    pub layout: PlaneLayout,
    pub memory: DevicePlane,
}

/// The decimation or the interpolation of a rectangle of a plane in device memory.
#[derive(Debug, Clone)]
pub struct PlaneLevel {
    /// Which way.
    pub direction: Direction,
    /// The factors, and which samples of the larger plane are processed.
    pub resampling: Resampling,
    /// The plane that is decimated, or interpolated to.
    pub larger: LevelPlane,
    /// The other one. Must not overlap the larger one.
    pub small: LevelPlane,
    /// What is written, in pixels of the output.
    pub rect: Rect,
}

/// Divides planes into batches, in order: those that the same launches decimate or interpolate.
pub fn batches(planes: impl IntoIterator<Item = PlaneLevel>) -> Vec<Vec<PlaneLevel>> {
    let key = |plane: &PlaneLevel| (plane.direction, plane.resampling.level);
    let joins =
        |batch: &[PlaneLevel], plane: &PlaneLevel| key(&batch[0]) == key(plane) && batch.len() < PLANES as usize;
    divided(planes, joins)
}

impl PlaneLevel {
    /// Whether rows are resampled, or stored in another way than those of the small plane.
    fn has_rows(&self) -> bool {
        self.resampling.factors[0] != Factor::One || self.resampling.level == 0
    }

    fn has_columns(&self) -> bool {
        self.resampling.factors[1] != Factor::One
    }

    /// The rectangle between the passes along rows and down columns, of samples as wide as the small plane and as high as the
    /// larger one.
    fn intermediate(&self) -> Intermediate {
        let [x, y] = self.resampling.factors;
        let channels = self.small.layout.channels.into();
        match self.direction {
            Direction::Decimate => {
                let rows = match y {
                    Factor::One => self.rect.y()..self.rect.bottom(),
                    _ => {
                        let s = y.get();
                        let first = (self.rect.y() * s).saturating_sub(2 * LEVEL_RADIUS * s);
                        let end = ((self.rect.bottom() - 1) * s + 1).min(self.larger.layout.height);
                        first.min(self.larger.layout.height - 1)..end
                    }
                };
                // The columns pass reads four samples at a time.
                let right = self.rect.right();
                let columns = self.rect.x()..if self.has_columns() { right.next_multiple_of(4) } else { right };
                Intermediate { columns, rows, channels }
            }
            Direction::Interpolate => {
                let columns = self.columns();
                let reach = if x == Factor::One { 1 } else { PHASE_TAPS };
                let end = ((columns.end - 1) / x.get() + reach).min(self.small.layout.width);
                Intermediate {
                    columns: columns.start / x.get()..end,
                    rows: self.rect.y()..self.rect.bottom(),
                    channels,
                }
            }
        }
    }

    /// The samples of a channel of the larger plane that an interpolation writes.
    fn columns(&self) -> Range<u32> {
        let pixels = self.pixels();
        match self.resampling.channels {
            Channels::Chroma => pixels.start / 2..pixels.end / 2,
            _ => pixels,
        }
    }

    /// The pixels of the larger plane that an interpolation writes. The last pair of an odd row of packed 4:2:2 is written as a
    /// whole.
    fn pixels(&self) -> Range<u32> {
        let (layout, right) = (&self.larger.layout, self.rect.right());
        self.rect.x()..if right == layout.width { right.next_multiple_of(layout.unit_pixels()) } else { right }
    }

    /// Device memory for the rectangle between the passes, in bytes.
    fn intermediate_bytes(&self) -> usize {
        if self.has_rows() && self.has_columns() { self.intermediate().bytes() } else { 0 }
    }

    /// The 16-bit plane that the rows pass has beside the larger plane.
    fn samples(&self, intermediate: u64) -> DevicePlane {
        if self.has_columns() { self.intermediate().plane(intermediate) } else { self.small.memory }
    }

    /// The part of a [`RowsPlane`] that its samples are.
    fn part(&self) -> usize {
        usize::from(self.resampling.channels == Channels::Chroma)
    }

    /// Whether one entry of a launch processes the rows of both: the luma and the chroma of packed 4:2:2.
    fn shares_rows_with(&self, other: &Self) -> bool {
        let rows = |plane: &Self| (plane.larger.memory.address, plane.intermediate().rows);
        let same_pixels = self.direction == Direction::Decimate || self.rect == other.rect;
        self.part() != other.part() && rows(self) == rows(other) && same_pixels
    }

    /// The entry of a launch for the rows, with its blocks from `first_block` on, and the number of these.
    fn rows_entry(planes: &[(&Self, u64)], first_block: u32) -> (RowsPlane, u32) {
        let (first, _) = planes[0];
        let LevelPlane { layout, memory } = &first.larger;
        let strip = LEVEL_WINDOW - 32 * layout.unit_pixels();
        let mut parts = [RowsPart::default(); 2];
        let (mut first_strip, mut end_strip) = (u32::MAX, 0);
        for (plane, intermediate) in planes {
            let (Range { start: begin, end }, samples) = (plane.intermediate().columns, plane.samples(*intermediate));
            let factor_log2 = plane.resampling.factors[0].get().ilog2();
            let (samples, pitch) = (samples.address, samples.pitch as u64);
            parts[plane.part()] = RowsPart { samples, pitch, factor_log2, begin, end, slot: 0 };
            let of_part = strip >> plane.part();
            first_strip = first_strip.min((begin << factor_log2) / of_part);
            end_strip = end_strip.max((end << factor_log2).div_ceil(of_part));
        }
        let mut columns = 0..0;
        if first.direction == Direction::Interpolate {
            columns = first.pixels();
            (first_strip, end_strip) = (0, (columns.len() as u32).div_ceil(strip));
        }
        let rows = first.intermediate().rows;
        let entry = RowsPlane {
            parts,
            column_begin: columns.start,
            column_end: columns.end,
            row_begin: rows.start,
            row_end: rows.end,
            first_strip,
            strips: end_strip - first_strip,
            first_block,
            ..stored_rows(layout, *memory)
        };
        (entry, entry.strips * (rows.len() as u32).div_ceil(LEVEL_WARPS * LEVEL_WARP_ROWS))
    }

    /// The same for the columns.
    fn columns_entry(&self, intermediate: u64, first_block: u32) -> (ColumnsPlane, u32) {
        let (larger, small, rows) = (&self.larger, &self.small, self.rect.y()..self.rect.bottom());
        let channels = u32::from(small.layout.channels);
        let inner = if self.has_rows() { self.intermediate().plane(intermediate) } else { larger.memory };
        let (src, dst, src_rows, columns) = match self.direction {
            Direction::Decimate => (inner, small.memory, larger.layout.height, self.rect.x()..self.rect.right()),
            Direction::Interpolate => (small.memory, inner, small.layout.height, self.intermediate().columns),
        };
        let (first_row, per_thread) = match self.direction {
            Direction::Decimate => (rows.start, LEVEL_DECIMATE_ROWS),
            Direction::Interpolate => (rows.start / 4 * 4, 4),
        };
        // If the rows are only stored, their samples are those of the larger plane already.
        let is_final = self.direction == Direction::Interpolate && self.resampling.factors[0] == Factor::One;
        let samples = columns.start * channels..columns.end * channels;
        let strips = (samples.len() as u32).div_ceil(COLUMNS_SAMPLES);
        let entry = ColumnsPlane {
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
            depth: if is_final { larger.layout.depth.into() } else { 16 },
            strips,
            first_block,
            ..ColumnsPlane::default()
        };
        (entry, strips * (rows.end - first_row).div_ceil(LEVEL_WARPS * per_thread))
    }
}

/// The channels of a plane, the luma of packed 4:2:2 first.
fn in_order(layout: &PlaneLayout) -> impl Iterator<Item = Channel> {
    let is_luma = |channel: &Channel| channel.shift == 0;
    samples::channels(layout).filter(is_luma).chain(samples::channels(layout).filter(move |channel| !is_luma(channel)))
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

/// The bytes of the decimation's taps, see [`RowsArgs::tap_bytes`].
fn tap_bytes() -> [[u32; LEVEL_TAP_WORDS as usize]; 2] {
    DECIMATION.map(|taps| {
        std::array::from_fn(|i| {
            let [first, second] = [taps[2 * i], taps[2 * i + 1]];
            first & 0xff | (second & 0xff) << 8 | (first >> 8) << 16 | (second >> 8) << 24
        })
    })
}

/// Device memory between the launches of a batch of levels, in bytes.
pub fn level_bytes(planes: &[PlaneLevel]) -> usize {
    planes.iter().map(PlaneLevel::intermediate_bytes).sum()
}

/// The launches of a batch of levels, in order. `intermediate` is the address of [`level_bytes`] of device memory, aligned to 16 bytes.
pub fn level_launches(planes: &[PlaneLevel], intermediate: u64) -> Vec<Launch> {
    let mut end = intermediate;
    let mut address = |plane: &PlaneLevel| {
        let address = end;
        end += plane.intermediate_bytes() as u64;
        address
    };
    let direction = planes[0].direction;
    let planes: Vec<(&PlaneLevel, u64)> = planes.iter().map(|plane| (plane, address(plane))).collect();
    let launches = match direction {
        Direction::Decimate => [
            rows_launch(Kernel::DECIMATE_ROWS, &planes),
            columns_launch(Kernel::DECIMATE_COLUMNS, *DECIMATION, &planes),
        ],
        Direction::Interpolate => [
            columns_launch(Kernel::INTERPOLATE_COLUMNS, *INTERPOLATION, &planes),
            rows_launch(Kernel::INTERPOLATE_ROWS, &planes),
        ],
    };
    launches.into_iter().flatten().collect()
}

/// The launch of a kernel for the rows of planes with intermediates at these addresses, if any are resampled or stored in another
/// way.
fn rows_launch(kernel: Kernel, planes: &[(&PlaneLevel, u64)]) -> Option<Launch> {
    let mut args = unused_rows_args();
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
    let channels = planes.iter().map(|(plane, _)| in_order(&plane.larger.layout).count() as u32).max()?;
    // Two arrays of 16-bit samples for each channel of a row.
    let shared_bytes = LEVEL_WARPS * LEVEL_WARP_ROWS * channels * 2 * 2 * LEVEL_WINDOW;
    (!entries.is_empty()).then(|| Launch::new(kernel, end_block, shared_bytes, Args::Rows(args)))
}

/// The same for the columns.
fn columns_launch(kernel: Kernel, taps: LevelTaps, planes: &[(&PlaneLevel, u64)]) -> Option<Launch> {
    let mut args = unused_columns_args(taps);
    let mut end_block = 0;
    for (to, (plane, address)) in args.planes.iter_mut().zip(planes.iter().filter(|(plane, _)| plane.has_columns())) {
        let (entry, blocks) = plane.columns_entry(*address, end_block);
        *to = entry;
        end_block += blocks;
    }
    (end_block > 0).then(|| Launch::new(kernel, end_block, 0, Args::Columns(args)))
}
