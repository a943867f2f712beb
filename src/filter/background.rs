// SPDX-License-Identifier: MPL-2.0
//! The blur of a background in which objects count next to nothing, so that they do not glow beside themselves: the blur of a frame
//! of other planes, whose samples are 16 bits. The samples of the picture are weighted, their weights are planes too, and after the
//! blur each sample is divided by its weight. docs/ARITHMETIC.md has the formulas.

use super::frame::{PlaneLayout, Role, SampleLayout};
use super::operation::Channels;
use super::picture::PictureGeometry;

/// The weight of the object itself, of 65535: it shows where no background is within reach. More would glow beside the object, less
/// would leave fewer bits to the quotient.
const FLOOR: u16 = 256;

/// Samples of a plane that are weighted and blurred together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct WeightedPlane {
    /// The plane of the picture.
    pub plane: usize,
    /// Which of its samples. Those of packed 4:2:2 are two planes.
    pub channels: Channels,
    /// log2 of the luma samples that a sample stands for, along x and y.
    pub shift: [u32; 2],
    /// The plane of the background's frame that has its weights.
    pub weights: usize,
}

/// The planes of a background: first the weighted samples, then the weights.
#[derive(Debug, Clone, PartialEq)]
pub struct Background {
    /// The weighted samples, in the order of the layouts.
    pub planes: Vec<WeightedPlane>,
    /// Of the planes with the weights, in the order of the layouts: log2 of the luma samples that a weight stands for.
    pub weight_shifts: Vec<[u32; 2]>,
    /// All layouts, of 16 bits.
    pub layouts: Vec<PlaneLayout>,
}

impl Background {
    /// Of pictures of these planes.
    pub fn new(picture: &PictureGeometry) -> Self {
        let mut planes = Vec::new();
        let mut layouts: Vec<PlaneLayout> = Vec::new();
        for (plane, layout) in picture.layouts().iter().enumerate() {
            let is_packed = matches!(layout.sample_layout, SampleLayout::Yuv422 { .. });
            let parts = if is_packed { &[Channels::Luma, Channels::Chroma][..] } else { &[Channels::All] };
            for channels in parts {
                let [mut across, down] = picture.shift(plane);
                let [mut along_x, along_y] = layout.sigma_scale;
                let (mut width, count) = match channels {
                    Channels::All => (layout.width, layout.channels),
                    // The luma beyond an odd width is a sample of its own.
                    Channels::Luma => (layout.width.next_multiple_of(2), 1),
                    Channels::Chroma => (layout.width.div_ceil(2), 2),
                };
                if *channels == Channels::Chroma {
                    (across, along_x) = (across + 1, along_x / 2.0);
                }
                width = width.max(1);
                planes.push(WeightedPlane { plane, channels: *channels, shift: [across, down], weights: 0 });
                layouts.push(PlaneLayout {
                    width,
                    channels: count,
                    depth: 16,
                    sample_layout: SampleLayout::LsbAligned,
                    roles: [Role::Primary; 4],
                    sigma_scale: [along_x, along_y],
                    ..*layout
                });
            }
        }
        let mut weight_shifts = Vec::new();
        let first = layouts.len();
        for (index, plane) in planes.iter_mut().enumerate() {
            let layout = PlaneLayout { channels: 1, ..layouts[index] };
            let same = layouts[first..].iter().zip(&weight_shifts);
            let known = same.into_iter().position(|(other, shift)| *other == layout && *shift == plane.shift);
            plane.weights = first
                + known.unwrap_or_else(|| {
                    weight_shifts.push(plane.shift);
                    layouts.push(layout);
                    weight_shifts.len() - 1
                });
        }
        Self { planes, weight_shifts, layouts }
    }
}

/// The weight of a sample that is left out this much, 0 to 255.
#[inline(always)]
pub fn weight(excluded: u8) -> u16 {
    (u16::from(255 - excluded) * 257).max(FLOOR)
}

/// A sample, in the most significant of 16 bits, times its weight.
#[inline(always)]
pub fn weighted(sample: u16, weight: u16) -> u16 {
    ((u32::from(sample) * u32::from(weight) + (1 << 15)) >> 16) as u16
}

/// A blurred sample by its blurred weight, of so many bits, 12 at most.
#[inline(always)]
pub fn divided(sample: u16, weight: u16, depth: u32) -> u16 {
    // What nobody wants may have any weight.
    let (weight, largest) = (i32::from(weight.max(1)), (1 << depth) - 1);
    let numerator = (i32::from(sample) << depth) + weight / 2;
    // The quotient is below 2^17, so that this is off by 1 at most.
    let quotient = (numerator as f32 / weight as f32) as i32;
    let rest = numerator - quotient * weight;
    (quotient + i32::from(rest >= weight) - i32::from(rest < 0)).min(largest) as u16
}

/// The same where the weight is the largest, 65535.
#[inline(always)]
pub fn divided_by_all(sample: u16, depth: u32) -> u16 {
    let numerator = (u32::from(sample) << depth) + 32767;
    // The quotient of any number below 2^32 - 2^16.
    let quotient = (numerator + 1 + (numerator >> 16)) >> 16;
    quotient.min((1 << depth) - 1) as u16
}

/// The same for any depth and weight.
#[inline(always)]
pub fn divided_exactly(sample: u16, weight: u16, depth: u32) -> u16 {
    let (weight, largest) = (u64::from(weight.max(1)), (1 << depth) - 1);
    ((((u64::from(sample) << depth) + weight / 2) / weight).min(largest)) as u16
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quotients_are_exact() {
        let mut state = 1_u64;
        for _ in 0..2_000_000 {
            state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
            let (sample, weight) = ((state >> 32) as u16, ((state >> 48) as u16).max(FLOOR));
            for depth in [8, 10, 12] {
                assert_eq!(
                    divided(sample, weight, depth),
                    divided_exactly(sample, weight, depth),
                    "{sample}/{weight} {depth}"
                );
            }
        }
        for sample in 0..=u16::MAX {
            for depth in [8, 10, 12] {
                assert_eq!(divided_by_all(sample, depth), divided_exactly(sample, u16::MAX, depth), "{sample} {depth}");
            }
            for weight in [FLOOR, 257, 32768, 65534, 65535] {
                assert_eq!(divided(sample, weight, 8), divided_exactly(sample, weight, 8), "{sample}/{weight}");
            }
        }
    }
}
