// SPDX-License-Identifier: MPL-2.0
//! How the kernels divide planes into tiles, and what a rectangle of an operation's output costs.

use super::abi::TENSOR_DIRECT_ACROSS_1;
use crate::filter::operation::{Buffer, Operation, TEMPORARY_ROWS};
use crate::filter::parts::Tiles;
use crate::filter::regions::Rect;
use crate::filter::wide::Factor;

/// The tiles and costs. They are the same for CUDA cores and for tensor cores.
pub const TILES: Tiles = Tiles { round, cost };

/// The width of a tile of the small planes, in columns.
const COLUMNS: u32 = 16;
/// The number of columns of a warp of the direct form on tensor cores, for the smallest pixels.
const DIRECT_COLUMNS: u32 = 16 * TENSOR_DIRECT_ACROSS_1;

fn round(operation: &Operation, rect: Rect) -> Rect {
    let output = operation.output();
    let is_packed = output.field.layout.is_packed_422();
    let is_temporary = matches!(output.buffer, Buffer::Temporary(_));
    let across = match operation {
        // Luma and chroma are written together, so both have the tiles of the largest factor.
        Operation::Interpolate(_) if is_packed => 8 * Factor::Four.get(),
        // A tile has 8 columns of the small plane.
        Operation::Interpolate(resampling) if resampling.factors[0] != Factor::One => 8 * resampling.factors[0].get(),
        // This includes blurs whose output is a plane of a cover, which is a temporary.
        Operation::Blur { .. } => DIRECT_COLUMNS,
        _ => COLUMNS,
    };
    let across = across * output.field.layout.unit_pixels();
    let down = if is_temporary { TEMPORARY_ROWS } else { 1 };
    let x = [rect.x() / across * across, rect.right().next_multiple_of(across).min(output.field.layout.width)];
    let y = [rect.y() / down * down, rect.bottom().next_multiple_of(down).min(output.field.layout.height)];
    Rect::between(x, y).expect("a larger rectangle has samples")
}

/// The cost of a rectangle, in bytes that are computed. The constant term stands for the fixed time of a rectangle: 4K RGBA takes
/// 0.9 µs for each megabyte (H200). Rectangles of one or two channels share launches; each other rectangle takes a launch of 2 to
/// 3 µs.
fn cost(operation: &Operation, rect: Rect) -> u64 {
    const OWN: [u64; 2] = [64 << 10, 2400 << 10];
    let layout = operation.output().field.layout;
    let bytes = u64::from(layout.channels) * layout.sample_bytes() as u64;
    rect.area() * bytes + OWN[usize::from(layout.channels > 2)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::transfer::bands;
    use crate::filter::BlurParams;
    use crate::filter::frame::{PlaneLayout, Role, SampleLayout, Split};
    use crate::filter::operation::{Channels, Resampling, View};
    use crate::filter::picture::FieldRect;
    use crate::filter::plan::Plan;

    /// On tensor cores the chroma of packed 4:2:2 is written before the luma, and writes 0 in place of it. So chroma must never
    /// be written where luma is not written after it.
    #[test]
    fn luma_is_written_wherever_chroma_is() {
        let of_destination = |operation: &Operation| match operation {
            Operation::Interpolate(Resampling {
                destination: View { buffer: Buffer::Destination(_), field },
                channels,
                ..
            }) => Some((field.first_row, *channels)),
            _ => None,
        };
        let mut pairs = 0;
        for split in [Split::Whole, Split::Fields] {
            let layout = PlaneLayout {
                sample_layout: SampleLayout::Yuv422 { luma: 0 },
                roles: [Role::Primary, Role::Primary, Role::Chroma, Role::Chroma],
                split,
                ..PlaneLayout::new(1283, 720, 4, 8)
            };
            for sigma in [3.6, 5.0, 7.5, 9.0, 20.0, 40.0, 60.0, 130.0, 700.0] {
                let plan = Plan::new(BlurParams::new(sigma, 0).unwrap().into(), &[layout]);
                let mut all = vec![plan.whole()];
                all.extend(bands::bands(&plan, Some(5)).iter().map(|band| plan.rows(&band.process)));
                for i in 0..40 {
                    let field = plan.operations().last().unwrap().output().field;
                    let rect =
                        |i: u32| Rect::new(i * 331 % 1100, i * 97 % 300, 1 + i * 53 % 180, 1 + i * 29 % 50).unwrap();
                    let wanted = [i, i + 7, i + 19].map(|i| (0, FieldRect { field, rect: rect(i) }));
                    all.push(plan.needs(&wanted, TILES).parts);
                }
                for parts in all {
                    let written = plan
                        .operations()
                        .iter()
                        .zip(parts)
                        .filter_map(|(operation, rects)| Some((of_destination(operation)?, rects)));
                    let written: Vec<((usize, Channels), Vec<Rect>)> = written.collect();
                    for (i, ((field, channels), chroma)) in written.iter().enumerate() {
                        if *channels == Channels::Chroma {
                            let luma = written[i..]
                                .iter()
                                .find(|((of, channels), _)| of == field && *channels == Channels::Luma);
                            assert_eq!(luma.map(|(_, rects)| rects), Some(chroma), "sigma {sigma}, {split:?}");
                            pairs += 1;
                        }
                    }
                }
            }
        }
        assert!(pairs > 500, "{pairs}");
    }
}
