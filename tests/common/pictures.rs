//! Pictures of noise in every kind of frame, and what rectangles cover in them.

use std::collections::BTreeMap;

use super::borrowed::{Borrowing, FrameMut};
use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::engine::{Engine, EngineError, Hide};
use gstcudagaussblur::filter::frame::{Frame, Plane, PlaneLayout, Role, SampleLayout};
use gstcudagaussblur::filter::picture::PictureGeometry;
use gstcudagaussblur::filter::regions::Rect;

pub use super::cases::resized;
use super::soft_oracle::{byte_of, largest_of_luma, store, values};
use super::{Noise, cases};

/// Bytes between the rows of every plane.
pub const PADDING: usize = 13;

pub fn rect(x: u32, y: u32, width: u32, height: u32) -> Rect {
    Rect::new(x, y, width, height).unwrap()
}

/// A rectangle in a picture of this size.
pub fn random_rect(noise: &mut Noise, [width, height]: [u32; 2]) -> Rect {
    let [x, y] = [noise.below(width), noise.below(height)];
    rect(x, y, 1 + noise.below(width - x), 1 + noise.below(height - y))
}

pub fn pitch(layout: &PlaneLayout) -> usize {
    layout.row_bytes() + PADDING
}

/// The planes of a picture, with noise in all bytes, padding bits and padding between rows included.
#[derive(Clone)]
pub struct Picture {
    pub planes: Vec<PlaneLayout>,
    pub bytes: Vec<Vec<u8>>,
}

impl Picture {
    pub fn new(planes: &[PlaneLayout], seed: u64) -> Self {
        let mut noise = Noise(seed);
        // With bits that are no sample's, above and below their values.
        let plane = |layout: &PlaneLayout| noise.bytes(pitch(layout) * layout.height as usize - PADDING);
        Self { planes: planes.to_vec(), bytes: planes.iter().map(plane).collect() }
    }

    /// The rows of this picture between the other bytes of another one.
    pub fn within(&self, other: &Self) -> Self {
        let mut out = other.clone();
        for ((layout, from), to) in self.planes.iter().zip(&self.bytes).zip(&mut out.bytes) {
            for (from, to) in from.chunks(pitch(layout)).zip(to.chunks_mut(pitch(layout))) {
                to[..layout.row_bytes()].copy_from_slice(&from[..layout.row_bytes()]);
            }
        }
        out
    }

    /// Compares every byte.
    #[track_caller]
    pub fn assert_is(&self, expected: &Self, what: impl FnOnce() -> String) {
        for (plane, (got, want)) in self.bytes.iter().zip(&expected.bytes).enumerate() {
            let differing: Vec<usize> = (0..want.len()).filter(|i| got[*i] != want[*i]).collect();
            if let Some(i) = differing.first() {
                let (count, pitch, planes) = (differing.len(), pitch(&self.planes[plane]), &self.planes);
                let place = (i % pitch, i / pitch);
                panic!("{count} bytes of plane {plane} differ, first (byte, row) {place:?}: {} of {planes:?}", what());
            }
        }
    }

    /// Covers the picture on the CPU.
    pub fn hide(&mut self, hide: Hide) -> Result<(), EngineError> {
        Engine::with_cpu(CpuEngine::new()).cover(&hide.into(), &mut self.frame_mut()).map(drop)
    }

    /// This picture with the blur of each region's σ in that region; where regions overlap, with that of the largest σ.
    pub fn blurred_in<'a>(&self, regions: &[(Rect, f64)], blur_of: impl Fn(f64) -> Option<&'a Self>) -> Self {
        let mut out = self.clone();
        for (plane, bytes) in out.bytes.iter_mut().enumerate() {
            for (i, sigma) in strongest(&self.planes, plane, regions).into_iter().enumerate() {
                if let Some(blur) = blur_of(sigma) {
                    bytes[i] = blur.bytes[plane][i];
                }
            }
        }
        out
    }

    /// The plane with the alpha channel, its layout, and the place of the channel in a pixel.
    pub fn alpha_channel(&self) -> Option<(usize, PlaneLayout, usize)> {
        let channel = |layout: &PlaneLayout| layout.roles().iter().position(|role| *role == Role::Alpha);
        self.planes.iter().enumerate().find_map(|(plane, layout)| Some((plane, *layout, channel(layout)?)))
    }

    /// Gives the alpha channel, if there is one, these values of 8 bits, rounded down to its depth. The bits below them stay.
    pub fn set_alpha(&mut self, value: impl Fn(u32, u32) -> u8) {
        let Some((plane, layout, channel)) = self.alpha_channel() else { return };
        let before = values(&layout, &self.bytes[plane]);
        for (pixel, i) in (0..).zip((channel..before.len()).step_by(layout.channels.into())) {
            let upper = u16::from(value(pixel % layout.width, pixel / layout.width));
            let value = match layout.sample_layout {
                SampleLayout::Packed1010102 => upper >> 6,
                _ => upper << (layout.depth - 8) | before[i] & ((1 << (layout.depth - 8)) - 1),
            };
            store(&layout, &mut self.bytes[plane], i, value);
        }
    }

    pub fn frame(&self) -> Frame<'_> {
        let planes = self.planes.iter().zip(&self.bytes);
        planes.map(|(layout, data)| Plane { layout: *layout, pitch: pitch(layout), data: &data[..] }).collect()
    }

    /// Width and height in luma samples.
    pub fn size(&self) -> [u32; 2] {
        PictureGeometry::new(&self.planes).size()
    }

    pub fn frame_mut(&mut self) -> FrameMut<'_> {
        let planes = self.planes.iter().zip(&mut self.bytes);
        planes.map(|(layout, data)| Plane { layout: *layout, pitch: pitch(layout), data: &mut data[..] }).collect()
    }
}

/// For every byte of a plane the largest strength that covers it, 0 for none: sample by sample, from the luma samples that each
/// stands for.
pub fn strongest(planes: &[PlaneLayout], plane: usize, regions: &[(Rect, f64)]) -> Vec<f64> {
    let layout = &planes[plane];
    let strength = |x: u32, y: u32| {
        let hits =
            |(rect, _): &&(Rect, f64)| (rect.x()..rect.right()).contains(&x) && (rect.y()..rect.bottom()).contains(&y);
        regions.iter().filter(hits).map(|(_, strength)| *strength).fold(0.0, f64::max)
    };
    let mut bytes = vec![0.0; pitch(layout) * layout.height as usize - PADDING];
    let unit = if layout.sample_layout == SampleLayout::Packed1010102 { 4 } else { layout.sample_bytes() };
    for (i, strength) in largest_of_luma(planes, plane, strength).into_iter().enumerate() {
        bytes[byte_of(layout, i)..][..unit].fill(strength);
    }
    bytes
}

/// Every kind of frame in the case table, by what rectangles depend on.
pub fn kinds() -> Vec<Vec<PlaneLayout>> {
    let mut kinds: BTreeMap<String, Vec<PlaneLayout>> = BTreeMap::new();
    for case in cases::table() {
        if case.planes[0].sigma_scale == [1.0; 2] {
            let anywhere = case.planes.iter().map(|layout| PlaneLayout { width: 0, height: 0, ..*layout });
            kinds.entry(format!("{:?}", anywhere.collect::<Vec<_>>())).or_insert(case.planes);
        }
    }
    kinds.into_values().collect()
}
