// SPDX-License-Identifier: MPL-2.0
//! The launches of the kernels for CUDA cores, which filter one axis at a time: for the direct form, and for the levels of the
//! wide form.

use std::ops::Range;
use std::sync::LazyLock;

use super::abi::*;
use super::entry::{self, Entry, EntryPlane};
use super::images::Kernel;
use super::launch::{Args, Launch};
use crate::filter::Taps;
use crate::filter::frame::PlaneLayout;
use crate::filter::operation::{Channels, Operation, PlaneTaps, Resampling};
use crate::filter::plane::DevicePlane;
use crate::filter::samples::{self, Channel};
use crate::filter::wide::Factor;

/// A rectangle of 16-bit samples between two launches. The rows kernel accesses it as a [`RowsPart`].
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

    /// The size in device memory.
    fn bytes(&self) -> usize {
        self.pitch() * self.rows.len()
    }

    /// The plane that contains the rectangle, if the memory of the rectangle begins at this address.
    fn plane(&self, address: u64) -> DevicePlane {
        let pitch = self.pitch();
        let before = self.rows.start as usize * pitch + (self.columns.start * self.channels) as usize * 2;
        DevicePlane { address: address.wrapping_sub(before as u64), pitch, len: before + self.bytes() }
    }
}

/// Describes how the rows of a plane are stored. The caller sets the other fields of the entry.
fn stored_rows(EntryPlane { layout, memory }: &EntryPlane) -> RowsPlane {
    RowsPlane {
        larger: memory.address,
        pitch: memory.pitch as u64,
        width: layout.width,
        pixel_bytes: layout.pixel_bytes() as u32 / layout.unit_pixels(),
        word_bytes: layout.stored(0).word_bytes as u32,
        pairs: layout.is_packed_422().into(),
        channels: in_order(layout).count() as u32,
        layout: stored_channels(layout, in_order(layout)),
        ..RowsPlane::default()
    }
}

/// The first block of an unused entry.
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

/// Taps in the format of the kernels, modulo 65536. A single tap of 65536 becomes 0; the kernels recognise it by the radius 0.
fn packed(taps: &Taps) -> [u16; TAPS as usize] {
    let mut packed = [0; TAPS as usize];
    packed.iter_mut().zip(0..=taps.radius()).for_each(|(to, i)| *to = taps.at(i) as u16);
    packed
}

/// The samples that an entry of the columns kernel writes for a blur: those of all channels, or those of the luma or the chroma
/// of packed 4:2:2.
struct DirectPart<'a> {
    /// The samples that the rows kernel writes.
    intermediate: Intermediate,
    /// The end of the columns that are written, in pixels of the part.
    end: u32,
    /// The filter slot of the taps along rows.
    slot: u32,
    /// The taps along rows.
    taps: &'a Taps,
}

/// The parts of a blur that the two launches of the direct form process. `slot` is the filter slot of the blur.
fn direct_parts<'a>(blur: &Entry<'a>, slot: u32) -> Vec<DirectPart<'a>> {
    let (layout, taps) = (&blur.source.layout, blur_taps(blur));
    let (pixels, halo) = (layout.columns(blur.rect), taps.columns.radius() as u32);
    let rows = blur.rect.y().saturating_sub(halo)..layout.height.min(blur.rect.bottom() + halo);
    let part = |columns: Range<u32>, channels: u32, slot, taps: &'a Taps| DirectPart {
        end: columns.end,
        // The columns kernel reads four samples at a time.
        intermediate: Intermediate {
            columns: columns.start..columns.end.next_multiple_of(4),
            rows: rows.clone(),
            channels,
        },
        slot,
        taps,
    };
    if layout.is_packed_422() {
        vec![part(2 * pixels.start..2 * pixels.end, 1, 0, &taps.rows), part(pixels, 2, 1, &taps.chroma_rows)]
    } else {
        vec![part(pixels, layout.channels.into(), slot, &taps.rows)]
    }
}

fn blur_taps<'a>(blur: &Entry<'a>) -> &'a PlaneTaps {
    blur.taps().expect("the direct form consists of blurs")
}

/// The value for [`RowsPlane::lead`].
fn lead(blur: &Entry) -> u32 {
    let taps = blur_taps(blur);
    let chroma = if blur.source.layout.is_packed_422() { taps.chroma_rows.radius() } else { 0 };
    // The rows kernel reads eight samples at a time.
    let [rows, chroma] = [taps.rows.radius(), chroma].map(|radius| (radius as u32).next_multiple_of(8));
    rows.max(2 * chroma).next_multiple_of(16)
}

/// The shared memory of the rows kernel for a blur, in bytes. It holds the taps of each part, and two arrays of 16-bit samples
/// for each warp and channel.
fn rows_shared_bytes(blur: &Entry) -> u32 {
    let taps = |part: &DirectPart| 4 * (2 * (part.taps.radius() as u32).next_multiple_of(8) + 16);
    let arrays = ROWS_WARPS * in_order(&blur.source.layout).count() as u32 * 2 * 2 * (ROWS_STRIP + 2 * lead(blur));
    direct_parts(blur, 0).iter().map(taps).sum::<u32>() + arrays
}

/// The shared memory of the columns kernel for a blur, in bytes. It holds the taps.
fn columns_shared_bytes(blur: &Entry) -> u32 {
    let radius = blur_taps(blur).columns.radius() as u32;
    4 * (COLUMNS_ROWS + (2 * radius + COLUMNS_ROWS).next_multiple_of(4))
}

/// The device memory between the launches of the direct form, in bytes.
pub(super) fn direct_bytes(blurs: &[Entry]) -> usize {
    blurs.iter().flat_map(|blur| direct_parts(blur, 0)).map(|part| part.intermediate.bytes()).sum()
}

/// The launches of the direct form on CUDA cores: the rows, then the columns. `intermediate` is the address of [`direct_bytes`]
/// bytes of device memory, and is aligned to 16 bytes.
pub(super) fn direct_launches(blurs: &[Entry], intermediate: u64) -> [Launch; 2] {
    let (mut rows, mut columns) = (unused_rows_args(), unused_columns_args([[0; LEVEL_TAPS as usize]; 2]));
    for (slot, [along_rows, down_columns]) in entry::slot_taps(blurs).into_iter().enumerate() {
        (rows.radius[slot], rows.taps[slot]) = (along_rows.radius() as u32, packed(along_rows));
        (columns.radius[slot], columns.taps[slot]) = (down_columns.radius() as u32, packed(down_columns));
    }
    let (mut address, mut rows_blocks, mut columns_blocks, mut columns_entries) = (intermediate, 0, 0, 0);
    for (to, blur) in rows.planes.iter_mut().zip(blurs) {
        let slot = entry::slot_of(blurs, blur);
        let parts = direct_parts(blur, slot);
        let mut entry = RowsPlane {
            lead: lead(blur),
            row_begin: parts[0].intermediate.rows.start,
            row_end: parts[0].intermediate.rows.end,
            // The luma and the chroma of the same pixels of packed 4:2:2 are in the same strip.
            first_strip: parts[0].intermediate.columns.start / ROWS_STRIP,
            first_block: rows_blocks,
            ..stored_rows(&blur.source)
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
            let plane = columns_plane(blur, part, index, samples);
            columns.planes[columns_entries] = ColumnsPlane { slot, first_block: columns_blocks, ..plane };
            columns_blocks += plane.strips * blur.rect.height().div_ceil(COLUMNS_WARPS * COLUMNS_ROWS);
            columns_entries += 1;
        }
        *to = entry;
    }
    let rows_bytes = blurs.iter().map(rows_shared_bytes).max().unwrap_or(0);
    let columns_bytes = blurs.iter().map(columns_shared_bytes).max().unwrap_or(0);
    [
        Launch::new(Kernel::ROWS, rows_blocks, rows_bytes, Args::Rows(rows)),
        Launch::new(Kernel::COLUMNS, columns_blocks, columns_bytes, Args::Columns(columns)),
    ]
}

/// The entry of the columns kernel for a part. The rows kernel has written the samples of the part.
fn columns_plane(blur: &Entry, part: &DirectPart, index: usize, samples: DevicePlane) -> ColumnsPlane {
    let (layout, to) = (&blur.source.layout, &blur.destination.memory);
    let (stored, channels) = (stored_channels(layout, in_order(layout))[index], part.intermediate.channels);
    let (begin, is_packed_word) = (part.intermediate.columns.start, layout.is_packed_word());
    ColumnsPlane {
        src: samples.address,
        dst: to.address + u64::from(stored.offset),
        src_pitch: samples.pitch as u64,
        dst_pitch: to.pitch as u64,
        src_rows: layout.height,
        sample_begin: begin * channels,
        sample_end: part.end * channels,
        row_begin: blur.rect.y(),
        row_end: blur.rect.bottom(),
        depth: layout.depth.into(),
        word_bytes: layout.stored(0).word_bytes as u32,
        step: if is_packed_word { 1 } else { u32::from(stored.step) / channels },
        shift: if is_packed_word { 0 } else { stored.shift.into() },
        strips: ((part.end - begin) * channels).div_ceil(COLUMNS_SAMPLES),
        ..ColumnsPlane::default()
    }
}

/// Divides decimations and interpolations into batches that share launches, and keeps their order.
pub fn level_batches<'a>(entries: impl IntoIterator<Item = Entry<'a>>) -> Vec<Vec<Entry<'a>>> {
    let key = |entry: &Entry| (is_decimation(entry), resampling(entry).level);
    entry::divided(entries, |batch, entry| key(&batch[0]) == key(entry) && batch.len() < PLANES as usize)
}

fn resampling<'a>(level: &Entry<'a>) -> &'a Resampling {
    level.resampling().expect("levels consist of decimations and interpolations")
}

/// Whether an entry is a decimation, from the larger to the smaller plane. Else it is an interpolation.
fn is_decimation(level: &Entry) -> bool {
    matches!(level.operation, Operation::Decimate(_))
}

/// An entry of a level, and the address of the memory between its two passes.
#[derive(Clone, Copy)]
struct Level<'e> {
    entry: &'e Entry<'e>,
    resampling: &'e Resampling,
    intermediate: u64,
}

impl<'e> Level<'e> {
    fn new(entry: &'e Entry<'e>, intermediate: u64) -> Self {
        Self { entry, resampling: resampling(entry), intermediate }
    }

    /// Whether the level needs a rows pass: its rows are resampled, or the larger plane is stored in another way than the small
    /// one.
    fn has_rows(&self) -> bool {
        self.resampling.factors[0] != Factor::One || self.resampling.level == 0
    }

    fn has_columns(&self) -> bool {
        self.resampling.factors[1] != Factor::One
    }

    /// The rectangle between the rows pass and the columns pass. Its samples have the columns of the small plane and the rows of
    /// the larger one.
    fn between(&self) -> Intermediate {
        let ([x, y], rect) = (self.resampling.factors, self.entry.rect);
        let small = &self.entry.smaller().layout;
        let channels = small.channels.into();
        if !is_decimation(self.entry) {
            let columns = self.columns();
            let reach = if x == Factor::One { 1 } else { PHASE_TAPS };
            let end = ((columns.end - 1) / x.get() + reach).min(small.width);
            return Intermediate { columns: columns.start / x.get()..end, rows: rect.y()..rect.bottom(), channels };
        }
        let rows = match y {
            Factor::One => rect.y()..rect.bottom(),
            _ => {
                let (s, height) = (y.get(), self.entry.larger().layout.height);
                let first = (rect.y() * s).saturating_sub(2 * LEVEL_RADIUS * s);
                first.min(height - 1)..((rect.bottom() - 1) * s + 1).min(height)
            }
        };
        // The columns pass reads four samples at a time.
        let right = if self.has_columns() { rect.right().next_multiple_of(4) } else { rect.right() };
        Intermediate { columns: rect.x()..right, rows, channels }
    }

    /// The samples of a channel of the larger plane that an interpolation writes.
    fn columns(&self) -> Range<u32> {
        let pixels = self.pixels();
        match self.resampling.channels {
            Channels::Chroma => pixels.start / 2..pixels.end / 2,
            _ => pixels,
        }
    }

    /// The pixels of the larger plane that an interpolation writes. In an odd row of packed 4:2:2, the last pair is written as a
    /// whole.
    fn pixels(&self) -> Range<u32> {
        let (layout, rect) = (&self.entry.larger().layout, self.entry.rect);
        let right = rect.right();
        rect.x()..if right == layout.width { right.next_multiple_of(layout.unit_pixels()) } else { right }
    }

    /// The device memory between the two passes, in bytes.
    fn intermediate_bytes(&self) -> usize {
        if self.has_rows() && self.has_columns() { self.between().bytes() } else { 0 }
    }

    /// The 16-bit plane on the other side of the rows pass from the larger plane.
    fn samples(&self) -> DevicePlane {
        if self.has_columns() { self.between().plane(self.intermediate) } else { self.entry.smaller().memory }
    }

    /// The index of the level's samples in [`RowsPlane::parts`].
    fn part(&self) -> usize {
        usize::from(self.resampling.channels == Channels::Chroma)
    }

    /// Whether one entry of a launch can process the rows of both levels: the luma and the chroma of packed 4:2:2.
    fn shares_rows_with(&self, other: &Self) -> bool {
        let rows = |level: &Self| (level.entry.larger().memory.address, level.between().rows);
        let same_pixels = is_decimation(self.entry) || self.entry.rect == other.entry.rect;
        self.part() != other.part() && rows(self) == rows(other) && same_pixels
    }

    /// The entry of a launch for the rows of one or two levels, and its number of blocks. Its blocks begin at `first_block`.
    fn rows_entry(levels: &[Self], first_block: u32) -> (RowsPlane, u32) {
        let first = levels[0];
        let strip = LEVEL_WINDOW - 32 * first.entry.larger().layout.unit_pixels();
        let mut parts = [RowsPart::default(); 2];
        let (mut first_strip, mut end_strip) = (u32::MAX, 0);
        for level in levels {
            let (Range { start: begin, end }, samples) = (level.between().columns, level.samples());
            let factor_log2 = level.resampling.factors[0].get().ilog2();
            let (samples, pitch) = (samples.address, samples.pitch as u64);
            parts[level.part()] = RowsPart { samples, pitch, factor_log2, begin, end, slot: 0 };
            let of_part = strip >> level.part();
            first_strip = first_strip.min((begin << factor_log2) / of_part);
            end_strip = end_strip.max((end << factor_log2).div_ceil(of_part));
        }
        let mut columns = 0..0;
        if !is_decimation(first.entry) {
            columns = first.pixels();
            (first_strip, end_strip) = (0, (columns.len() as u32).div_ceil(strip));
        }
        let rows = first.between().rows;
        let entry = RowsPlane {
            parts,
            column_begin: columns.start,
            column_end: columns.end,
            row_begin: rows.start,
            row_end: rows.end,
            first_strip,
            strips: end_strip - first_strip,
            first_block,
            ..stored_rows(first.entry.larger())
        };
        (entry, entry.strips * (rows.len() as u32).div_ceil(LEVEL_WARPS * LEVEL_WARP_ROWS))
    }

    /// The entry of a launch for the columns of the level, and its number of blocks. Its blocks begin at `first_block`.
    fn columns_entry(&self, first_block: u32) -> (ColumnsPlane, u32) {
        let (larger, small, rect) = (self.entry.larger(), self.entry.smaller(), self.entry.rect);
        let rows = rect.y()..rect.bottom();
        let channels = u32::from(small.layout.channels);
        let inner = if self.has_rows() { self.between().plane(self.intermediate) } else { larger.memory };
        let (src, dst, src_rows, columns, first_row, per_thread) = if is_decimation(self.entry) {
            (inner, small.memory, larger.layout.height, rect.x()..rect.right(), rows.start, LEVEL_DECIMATE_ROWS)
        } else {
            (small.memory, inner, small.layout.height, self.between().columns, rows.start / 4 * 4, 4)
        };
        // Without interpolation along rows, the columns pass computes the final samples, in the depth of the larger plane.
        let is_final = !is_decimation(self.entry) && self.resampling.factors[0] == Factor::One;
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

/// The channels of a plane. The luma of packed 4:2:2 comes first.
fn in_order(layout: &PlaneLayout) -> impl Iterator<Item = Channel> {
    let is_luma = |channel: &Channel| channel.shift == 0;
    samples::channels(layout).filter(is_luma).chain(samples::channels(layout).filter(move |channel| !is_luma(channel)))
}

/// The taps of decimations and interpolations. They depend only on the factors.
static DECIMATION: LazyLock<LevelTaps> = LazyLock::new(|| {
    level_taps(|factor| {
        let half = factor.decimation_taps();
        let radius = half.radius();
        (0..=2 * radius).map(|i| half.at(i.abs_diff(radius))).collect()
    })
});
static INTERPOLATION: LazyLock<LevelTaps> = LazyLock::new(|| {
    level_taps(|factor| (0..factor.get()).flat_map(|phase| factor.interpolation_taps(phase)).collect())
});

/// The taps for the factors two and four.
type LevelTaps = [[u32; LEVEL_TAPS as usize]; 2];

fn level_taps(taps_of: impl Fn(Factor) -> Vec<u32>) -> LevelTaps {
    [Factor::Two, Factor::Four].map(|factor| {
        let mut taps = [0; LEVEL_TAPS as usize];
        taps.iter_mut().zip(taps_of(factor)).for_each(|(to, tap)| *to = tap);
        taps
    })
}

/// The taps of the decimation by bytes, see [`RowsArgs::tap_bytes`].
fn tap_bytes() -> [[u32; LEVEL_TAP_WORDS as usize]; 2] {
    DECIMATION.map(|taps| {
        std::array::from_fn(|i| {
            let [first, second] = [taps[2 * i], taps[2 * i + 1]];
            first & 0xff | (second & 0xff) << 8 | (first >> 8) << 16 | (second >> 8) << 24
        })
    })
}

/// The device memory between the launches of a batch of levels, in bytes.
pub fn level_bytes(batch: &[Entry]) -> usize {
    batch.iter().map(|entry| Level::new(entry, 0).intermediate_bytes()).sum()
}

/// The launches of a batch of levels, in order. `intermediate` is the address of [`level_bytes`] bytes of device memory, and is
/// aligned to 16 bytes.
pub fn level_launches(batch: &[Entry], mut intermediate: u64) -> Vec<Launch> {
    let place = |entry| {
        let level = Level::new(entry, intermediate);
        intermediate += level.intermediate_bytes() as u64;
        level
    };
    let levels: Vec<Level> = batch.iter().map(place).collect();
    let launches = if is_decimation(&batch[0]) {
        [rows_launch(Kernel::DECIMATE_ROWS, &levels), columns_launch(Kernel::DECIMATE_COLUMNS, *DECIMATION, &levels)]
    } else {
        let columns = columns_launch(Kernel::INTERPOLATE_COLUMNS, *INTERPOLATION, &levels);
        [columns, rows_launch(Kernel::INTERPOLATE_ROWS, &levels)]
    };
    launches.into_iter().flatten().collect()
}

/// The launch of a kernel for the rows of levels, if any level needs a rows pass.
fn rows_launch(kernel: Kernel, levels: &[Level]) -> Option<Launch> {
    let mut args = unused_rows_args();
    let mut entries: Vec<Vec<Level>> = Vec::new();
    for level in levels.iter().filter(|level| level.has_rows()) {
        match entries.iter_mut().find(|of| of.len() == 1 && of[0].shares_rows_with(level)) {
            Some(of) => of.push(*level),
            None => entries.push(vec![*level]),
        }
    }
    let mut end_block = 0;
    for (to, of) in args.planes.iter_mut().zip(&entries) {
        let (entry, blocks) = Level::rows_entry(of, end_block);
        *to = entry;
        end_block += blocks;
    }
    let channels = levels.iter().map(|level| in_order(&level.entry.larger().layout).count() as u32).max()?;
    // Each channel of a row has two arrays of 16-bit samples.
    let shared_bytes = LEVEL_WARPS * LEVEL_WARP_ROWS * channels * 2 * 2 * LEVEL_WINDOW;
    (!entries.is_empty()).then(|| Launch::new(kernel, end_block, shared_bytes, Args::Rows(args)))
}

/// The launch of a kernel for the columns of levels, if any level needs a columns pass.
fn columns_launch(kernel: Kernel, taps: LevelTaps, levels: &[Level]) -> Option<Launch> {
    let mut args = unused_columns_args(taps);
    let mut end_block = 0;
    for (to, level) in args.planes.iter_mut().zip(levels.iter().filter(|level| level.has_columns())) {
        let (entry, blocks) = level.columns_entry(end_block);
        *to = entry;
        end_block += blocks;
    }
    (end_block > 0).then(|| Launch::new(kernel, end_block, 0, Args::Columns(args)))
}
