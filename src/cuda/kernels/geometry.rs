// SPDX-License-Identifier: MPL-2.0
//! The formulas behind a launch: strips and tiles of a plane, the shared memory of a block, and the size of the intermediate.
//! They follow from how the kernels divide their work; kernels/README.md explains it.
//!
//! `up(x, m)` in comments is x rounded up to a multiple of m.

use super::abi::*;
use crate::cuda::driver::device::DeviceLimits;
use crate::filter::frame::{PlaneLayout, SampleLayout};
use crate::filter::operation::PlaneTaps;
use crate::filter::regions::Rect;

/// Radii of a plane's taps: along rows, along columns, and along rows of the chroma of packed 4:2:2.
pub fn radii(taps: &PlaneTaps) -> [u32; 3] {
    [&taps.rows, &taps.columns, &taps.chroma_rows].map(|taps| taps.radius() as u32)
}

/// The largest radius of a plane on either axis, with that of the chroma of packed 4:2:2 along rows counted in luma samples; `None`
/// if a radius is 0.
pub fn largest_radius(family: PixelFamily, taps: &PlaneTaps) -> Option<u32> {
    let [rows, columns, chroma] = radii(taps);
    let chroma = if family == PixelFamily::Yuv422 { (2 * chroma).saturating_sub(1) } else { chroma };
    let all = [rows, columns, chroma];
    all.into_iter().max().filter(|_| !all.contains(&0))
}

/// BlurPlane::yuv422 of a plane.
pub fn yuv422_bits(layout: &PlaneLayout) -> u32 {
    match layout.sample_layout {
        SampleLayout::Yuv422 { luma } => u32::from(luma) | (layout.width % 2) << 1,
        _ => 0,
    }
}

/// Width in pixels of the strip of a plane that a block processes.
fn strip_pixels(channels: u8) -> u32 {
    match channels {
        1 => STRIP_PIXELS_C1,
        2 => STRIP_PIXELS_C2,
        3 => STRIP_PIXELS_C3,
        _ => STRIP_PIXELS_C4,
    }
}

/// Strips side by side for the fused kernels and the rows kernels.
pub fn strips(layout: &PlaneLayout, rect: Rect) -> u32 {
    (layout.columns(rect).len() as u32).div_ceil(strip_pixels(layout.channels))
}

/// Strips side by side for the columns kernel, which knows samples and not pixels.
pub fn column_strips(layout: &PlaneLayout, rect: Rect) -> u32 {
    (layout.columns(rect).len() as u32 * u32::from(layout.channels)).div_ceil(COLUMNS_STRIP_SAMPLES)
}

/// Row pitch in bytes of the 16-bit intermediate of a rectangle: whole strips.
pub fn intermediate_pitch(layout: &PlaneLayout, rect: Rect) -> u64 {
    u64::from(strips(layout, rect) * strip_pixels(layout.channels)) * u64::from(layout.channels) * 2
}

/// Bytes of the 16-bit intermediate of a rectangle, which has all rows of its plane.
pub fn intermediate_bytes(layout: &PlaneLayout, rect: Rect) -> usize {
    intermediate_pitch(layout, rect) as usize * layout.height as usize
}

/// Bytes of the expanded row taps: one group of four words for every four samples of the window, which is
/// up(radius, 4) / 2 + 1 groups long. Packed 4:2:2 has a table for luma and one for chroma.
fn row_taps_bytes(layout: &PlaneLayout, taps: &PlaneTaps) -> u32 {
    let [rows, _, chroma] = radii(taps);
    let table = |radius: u32| 16 * (radius.next_multiple_of(4) / 2 + 1);
    match layout.sample_layout {
        SampleLayout::Yuv422 { .. } => table(rows) + table(chroma),
        _ => table(rows),
    }
}

/// Bytes of a staged source row: a strip and its halo, channels apart, in groups of four pixels. The length is half a warp more
/// than whole warps, so that half warps on neighbouring rows use different banks.
fn staged_row_bytes(layout: &PlaneLayout, taps: &PlaneTaps) -> u32 {
    let [rows, _, chroma] = radii(taps);
    // In pairs of pixels for packed 4:2:2.
    let halo = match layout.sample_layout {
        SampleLayout::Yuv422 { .. } => rows.div_ceil(2).max(chroma),
        _ => rows,
    };
    let groups = (strip_pixels(layout.channels) + 2 * halo.next_multiple_of(4)) / 4;
    let words = (u32::from(layout.channels) * groups + 15) / 32 * 32 + 16;
    words * 4 * layout.sample_bytes() as u32
}

/// Shared memory of a block of a kernel that blurs, in bytes.
pub fn shared_bytes(kernel: Kernel, layout: &PlaneLayout, taps: &PlaneTaps) -> u32 {
    match kernel {
        Kernel::Fused(_) | Kernel::Specialised => fused_shared_bytes(layout, taps),
        Kernel::Rows(_) => rows_shared_bytes(layout, taps),
        Kernel::Columns => columns_shared_bytes(taps),
        _ => unreachable!("not a kernel that blurs"),
    }
}

/// Shared memory of the fused kernel: the ring buffer of the intermediate, the taps, and the staged rows of one step.
fn fused_shared_bytes(layout: &PlaneLayout, taps: &PlaneTaps) -> u32 {
    let [_, columns, _] = radii(taps);
    let ring_rows = (2 * columns).next_multiple_of(FUSED_STEP) + FUSED_STEP;
    let ring = ring_rows * strip_pixels(layout.channels) * u32::from(layout.channels) * 2;
    let column_taps = 4 * (FUSED_THREAD_ROWS + (2 * columns + FUSED_THREAD_ROWS).next_multiple_of(4));
    ring + row_taps_bytes(layout, taps) + column_taps + FUSED_STEP * staged_row_bytes(layout, taps)
}

/// Shared memory of the rows kernel: the taps and the staged rows of a block.
fn rows_shared_bytes(layout: &PlaneLayout, taps: &PlaneTaps) -> u32 {
    row_taps_bytes(layout, taps) + ROWS_STEP * staged_row_bytes(layout, taps)
}

/// Shared memory of the columns kernel: two chunks of rows, and the taps.
fn columns_shared_bytes(taps: &PlaneTaps) -> u32 {
    let [_, columns, _] = radii(taps);
    let chunks = 2 * COLUMNS_CHUNK * COLUMNS_STRIP_SAMPLES * 2;
    chunks + 4 * (COLUMNS_THREAD_ROWS + (2 * columns + COLUMNS_THREAD_ROWS).next_multiple_of(COLUMNS_CHUNK))
}

/// Output rows of a block of the fused kernel, for planes of these (rows, strips): as many as give the device about four blocks
/// a multiprocessor. More rows save work that neighbouring blocks do twice, but leave the last wave of blocks nearly empty.
pub fn segment_rows(planes: impl Iterator<Item = (u32, u32)>, limits: DeviceLimits) -> u32 {
    let rows: u32 = planes.map(|(rows, strips)| rows * strips).sum();
    let even = f64::from(rows) / f64::from(4 * limits.multiprocessors.max(1));
    let steps = (even / f64::from(FUSED_STEP)).round() as u32;
    steps.clamp(1, 6) * FUSED_STEP
}
