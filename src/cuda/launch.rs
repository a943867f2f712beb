// SPDX-License-Identifier: MPL-2.0
//! What is launched: the kernels' parameter, and which kernels with which grid make some rows of a plane. Pure; calls
//! no driver. The formulas are those of kernels/shared.h.
//!
//! A kernel of another tile shape is a new [`Kernel`], a new arm of [`launches`] and a new entry point; nothing above
//! this room knows what a launch is made of.

use std::ops::Range;

use crate::filter::{KERNEL_SIZE_MAX, Taps};
use crate::frame::PlaneLayout;

mod geometry {
    include!(concat!(env!("OUT_DIR"), "/kernel_geometry.rs"));
}
use geometry::*;

/// The one parameter of every kernel, as kernels/shared.h has it. Addresses are the device's.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "kernels/shared.h explains them")]
pub struct BlurArgs {
    pub src: u64,
    pub dst: u64,
    pub scratch: u64,
    pub src_pitch: u64,
    pub dst_pitch: u64,
    pub scratch_pitch: u64,
    pub width: u32,
    pub height: u32,
    pub depth: u32,
    pub channels: u32,
    pub row_begin: u32,
    pub row_end: u32,
    pub segment_rows: u32,
    pub radius: [u32; 2],
    pub reserved: [u32; 3],
    pub taps: [[u16; TAPS as usize]; 2],
}

const _: () = assert!(size_of::<BlurArgs>() == ARGS_BYTES as usize, "kernels/shared.h has another BlurArgs");
const _: () = assert!(2 * RADIUS_MAX + 1 == KERNEL_SIZE_MAX, "the kernels go as far as the filter");

/// The kinds of kernels. Each exists for every sample size and, but for the columns, for every number of channels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// Rows and columns in one launch.
    Fused,
    /// Rows into the scratch.
    Rows,
    /// Columns out of the scratch.
    Columns,
    /// [`Kernel::Fused`], compiled for the plane's radii.
    Special,
}

impl Kernel {
    /// The kinds that the prebuilt images hold.
    pub const PREBUILT: [Self; 3] = [Self::Fused, Self::Rows, Self::Columns];

    /// The name of the kernel in the image.
    pub fn entry_point(self, sample_bytes: usize, channels: u8) -> String {
        let sample = if sample_bytes == 1 { "u8" } else { "u16" };
        match self {
            Self::Fused => format!("blur_fused_{sample}_c{channels}"),
            Self::Rows => format!("blur_rows_{sample}_c{channels}"),
            Self::Columns => format!("blur_columns_{sample}"),
            Self::Special => "blur_special".to_owned(),
        }
    }
}

/// In how many launches a plane is blurred.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Passes {
    /// Whatever measured fastest.
    #[default]
    Best,
    /// Rows and columns together, the intermediate in shared memory, wherever that is large enough.
    Fused,
    /// Rows, then columns, with a scratch plane between them.
    Split,
    /// As [`Passes::Fused`], by a kernel that is compiled for these radii.
    Special,
}

/// What of a device decides over launches.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Largest dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

/// One launch: a kernel, its grid (blocks across and down), threads per block, dynamic shared memory per block in bytes,
/// and its parameter.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the line above says what they are")]
pub struct Launch {
    pub kernel: Kernel,
    pub grid: [u32; 2],
    pub threads: u32,
    pub shared_bytes: u32,
    pub args: BlurArgs,
}

/// The blur of one plane in device memory.
#[derive(Debug, Clone, Copy)]
pub struct PlaneBlur<'a> {
    /// The plane's shape.
    pub layout: PlaneLayout,
    /// Address and row pitch in bytes of the source.
    pub src: (u64, usize),
    /// Address and row pitch in bytes of the destination; it must not overlap the source.
    pub dst: (u64, usize),
    /// [`scratch_bytes`] of device memory, starting on 16 bytes; not looked at where that is 0.
    pub scratch: u64,
    /// Taps along rows and down columns.
    pub taps: &'a [Taps; 2],
    /// In how many launches.
    pub passes: Passes,
}

/// Beyond this radius down the columns two launches are faster than one: the ring of the fused kernel takes so much
/// shared memory that too few blocks are at work. On an H200 the two cross between 15 and 24, by format and size.
const FUSED_RADIUS: u32 = 15;

fn strip_pixels(channels: u8) -> u32 {
    match channels {
        1 => STRIP_PIXELS_C1,
        2 => STRIP_PIXELS_C2,
        3 => STRIP_PIXELS_C3,
        _ => STRIP_PIXELS_C4,
    }
}

fn scratch_pitch(layout: &PlaneLayout) -> u64 {
    u64::from(layout.width.next_multiple_of(strip_pixels(layout.channels))) * u64::from(layout.channels) * 2
}

/// Shared memory of the expanded row taps, and of one staged row.
fn row_bytes(layout: &PlaneLayout, radius: u32) -> (u32, u32) {
    let reach = radius.next_multiple_of(4);
    let groups = (strip_pixels(layout.channels) + 2 * reach) / 4;
    let words = (u32::from(layout.channels) * groups + 15) / 32 * 32 + 16;
    (16 * (reach / 2 + 1), words * 4 * layout.sample_bytes() as u32)
}

fn fused_shared_bytes(layout: &PlaneLayout, [across, down]: [u32; 2]) -> u32 {
    let (row_taps, stage) = row_bytes(layout, across);
    let ring_rows = (2 * down).next_multiple_of(FUSED_STEP) + FUSED_STEP;
    let ring = ring_rows * strip_pixels(layout.channels) * u32::from(layout.channels) * 2;
    let column_taps = 4 * (FUSED_THREAD_ROWS + (2 * down + FUSED_THREAD_ROWS).next_multiple_of(4));
    ring + row_taps + column_taps + FUSED_STEP * stage
}

fn radii(taps: &[Taps; 2]) -> [u32; 2] {
    [&taps[0], &taps[1]].map(|taps| taps.radius() as u32)
}

/// Whether the device has the shared memory for a fused kernel of these radii.
pub fn fits_fused(layout: &PlaneLayout, taps: &[Taps; 2], limits: Limits) -> bool {
    fused_shared_bytes(layout, radii(taps)) <= limits.shared_bytes
}

fn is_fused(layout: &PlaneLayout, taps: &[Taps; 2], passes: Passes, limits: Limits) -> bool {
    let fits = fits_fused(layout, taps, limits);
    match passes {
        Passes::Best => fits && radii(taps)[1] <= FUSED_RADIUS,
        Passes::Fused | Passes::Special => fits,
        Passes::Split => false,
    }
}

/// Device memory that the blur of such a plane needs beside the plane, in bytes; 0 if none.
pub fn scratch_bytes(layout: &PlaneLayout, taps: &[Taps; 2], passes: Passes, limits: Limits) -> usize {
    if is_fused(layout, taps, passes, limits) { 0 } else { scratch_pitch(layout) as usize * layout.height as usize }
}

/// The launches, in order, that make `rows` of the destination.
pub fn launches(blur: &PlaneBlur, rows: Range<u32>, limits: Limits) -> Vec<Launch> {
    let PlaneBlur { layout, src, dst, scratch, taps, passes } = *blur;
    debug_assert!(rows.start < rows.end && rows.end <= layout.height);
    let mut args = BlurArgs {
        src: src.0,
        dst: dst.0,
        scratch,
        src_pitch: src.1 as u64,
        dst_pitch: dst.1 as u64,
        scratch_pitch: scratch_pitch(&layout),
        width: layout.width,
        height: layout.height,
        depth: layout.depth.into(),
        channels: layout.channels.into(),
        row_begin: rows.start,
        row_end: rows.end,
        segment_rows: 0,
        radius: radii(taps),
        reserved: [0; 3],
        taps: [[0; TAPS as usize]; 2],
    };
    for (to, taps) in args.taps.iter_mut().zip(taps) {
        for (i, to) in to.iter_mut().enumerate().take(taps.radius() + 1) {
            // A lone tap of 65536 becomes 0; the kernels know it by its radius.
            *to = taps.at(i) as u16;
        }
    }
    let count = rows.end - rows.start;
    let strips = layout.width.div_ceil(strip_pixels(layout.channels));
    let [across, down] = args.radius;
    let (row_taps, stage) = row_bytes(&layout, across);

    if is_fused(&layout, taps, passes, limits) {
        args.segment_rows = segment_rows(count, strips, limits);
        return vec![Launch {
            kernel: if passes == Passes::Special { Kernel::Special } else { Kernel::Fused },
            grid: [strips, count.div_ceil(args.segment_rows)],
            threads: FUSED_THREADS,
            shared_bytes: fused_shared_bytes(&layout, args.radius),
            args,
        }];
    }
    let (begin, end) = (rows.start.saturating_sub(down), layout.height.min(rows.end + down));
    let rows = Launch {
        kernel: Kernel::Rows,
        grid: [strips, (end - begin).div_ceil(ROWS_STEP)],
        threads: ROWS_THREADS,
        shared_bytes: row_taps + ROWS_STEP * stage,
        args: BlurArgs { row_begin: begin, row_end: end, ..args },
    };
    let samples = layout.row_samples() as u32;
    let chunks = 2 * COLUMNS_CHUNK * COLUMNS_STRIP_SAMPLES * 2;
    let column_taps = 4 * (COLUMNS_THREAD_ROWS + (2 * down + COLUMNS_THREAD_ROWS).next_multiple_of(COLUMNS_CHUNK));
    let columns = Launch {
        kernel: Kernel::Columns,
        grid: [samples.div_ceil(COLUMNS_STRIP_SAMPLES), count.div_ceil(COLUMNS_STEP)],
        threads: COLUMNS_THREADS,
        shared_bytes: chunks + column_taps,
        args,
    };
    vec![rows, columns]
}

/// Output rows of one block of the fused kernel: so many that the device has about four blocks to a multiprocessor. More
/// rows save work that neighbouring blocks do twice, but leave the last wave of blocks nearly empty.
fn segment_rows(rows: u32, strips: u32, limits: Limits) -> u32 {
    let even = f64::from(rows * strips) / f64::from(4 * limits.multiprocessors.max(1));
    let steps = (even / f64::from(FUSED_STEP)).round() as u32;
    steps.clamp(1, 6) * FUSED_STEP
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::BlurParams;

    const H200: Limits = Limits { multiprocessors: 132, shared_bytes: 227 << 10 };
    const TURING: Limits = Limits { multiprocessors: 30, shared_bytes: 64 << 10 };

    fn layout(channels: u8, depth: u8) -> PlaneLayout {
        PlaneLayout { width: 1920, height: 1080, channels, depth, sigma_scale: [1.0, 1.0] }
    }

    fn taps(size: u32) -> [Taps; 2] {
        let taps = BlurParams::new((f64::from(size) / 6.0).min(100.0), size).unwrap().taps(1.0);
        [taps.clone(), taps]
    }

    fn blur<'a>(layout: PlaneLayout, taps: &'a [Taps; 2], passes: Passes) -> PlaneBlur<'a> {
        PlaneBlur { layout, src: (0, 1 << 20), dst: (0, 1 << 20), scratch: 0, taps, passes }
    }

    /// From Turing on a block may have 64 KiB of shared memory; every radius has to do with that.
    #[test]
    fn every_radius_fits_into_the_shared_memory_of_turing() {
        for size in (1..=801).step_by(8) {
            let taps = taps(size);
            for (channels, depth) in (1..=4).flat_map(|channels| [(channels, 8), (channels, 16)]) {
                for passes in [Passes::Best, Passes::Fused, Passes::Split] {
                    for launch in launches(&blur(layout(channels, depth), &taps, passes), 0..1080, TURING) {
                        let bytes = launch.shared_bytes;
                        assert!(bytes <= TURING.shared_bytes, "{channels}x{depth} {size}: {launch:?} {bytes}");
                    }
                }
            }
        }
    }

    #[test]
    fn small_radii_take_one_launch_and_no_scratch() {
        for (size, count) in [(1, 1), (7, 1), (31, 1), (33, 2), (801, 2)] {
            let taps = taps(size);
            let kernels = launches(&blur(layout(4, 8), &taps, Passes::Best), 0..1080, H200);
            assert_eq!(kernels.len(), count, "kernel-size={size}");
            let scratch = scratch_bytes(&layout(4, 8), &taps, Passes::Best, H200);
            assert_eq!(scratch > 0, count == 2, "kernel-size={size}");
        }
    }

    #[test]
    fn the_rows_pass_makes_what_a_band_reaches() {
        let taps = taps(101);
        let kernels = launches(&blur(layout(1, 8), &taps, Passes::Split), 500..600, H200);
        let reached = [kernels[0].args.row_begin, kernels[0].args.row_end];
        let radius = taps[1].radius() as u32;
        assert_eq!(reached, [500 - radius, 600 + radius]);
        assert_eq!([kernels[1].args.row_begin, kernels[1].args.row_end], [500, 600]);
    }
}
