// SPDX-License-Identifier: MPL-2.0
//! How the kernels divide planes: what rectangles of an operation's output consist of, and what they cost.

use super::abi::{TENSOR_DIRECT_ACROSS_1, TENSOR_ROWS};
use crate::filter::frame::SampleLayout;
use crate::filter::operation::{Buffer, Operation, TEMPORARY_ROWS};
use crate::filter::parts::Tiles;
use crate::filter::regions::Rect;
use crate::filter::wide::Factor;

/// The same for the kernels for tensor cores and for the others.
pub const TILES: Tiles = Tiles { round, cost };

/// Columns of a tile of the small planes.
const COLUMNS: u32 = 16;
/// Columns of a warp of the direct form on tensor cores, of the smallest pixels.
const DIRECT_COLUMNS: u32 = 16 * TENSOR_DIRECT_ACROSS_1;
const _: () = assert!(TEMPORARY_ROWS.is_multiple_of(TENSOR_ROWS));

fn round(operation: &Operation, rect: Rect) -> Rect {
    let output = operation.output();
    let is_packed = matches!(output.field.layout.sample_layout, SampleLayout::Yuv422 { .. });
    let is_temporary = matches!(output.buffer, Buffer::Temporary(_));
    let across = match operation {
        // Luma and chroma are written together.
        Operation::Interpolate(_) if is_packed => 8 * Factor::Four.get(),
        // Of 8 small columns.
        Operation::Interpolate(resampling) if resampling.factors[0] != Factor::One => 8 * resampling.factors[0].get(),
        Operation::Blur { .. } if !is_temporary => DIRECT_COLUMNS,
        _ => COLUMNS,
    };
    // Packed 4:2:2 is in pairs of pixels.
    let across = if is_packed { 2 * across } else { across };
    let down = if is_temporary { TEMPORARY_ROWS } else { 1 };
    let x = [rect.x() / across * across, rect.right().next_multiple_of(across).min(output.field.layout.width)];
    let y = [rect.y() / down * down, rect.bottom().next_multiple_of(down).min(output.field.layout.height)];
    Rect::between(x, y).expect("a larger rectangle has samples")
}

/// Bytes that are computed, and those that take as long as everything else that a rectangle takes: 4K RGBA takes 0.9 µs a
/// megabyte (H200). Rectangles of one or two channels share launches; others have one each, of 2 to 3 µs.
fn cost(operation: &Operation, rect: Rect) -> u64 {
    const OWN: [u64; 2] = [64 << 10, 2400 << 10];
    let layout = operation.output().field.layout;
    let bytes = u64::from(layout.channels) * layout.sample_bytes() as u64;
    rect.area() * bytes + OWN[usize::from(layout.channels > 2)]
}
