//! Pictures of noise in every kind of frame, and what rectangles cover in them.

use std::collections::BTreeMap;

use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::engine::{Engine, EngineError, Hide};
use gstcudagaussblur::filter::frame::{Frame, FrameMut, Plane, PlaneLayout, SampleLayout};
use gstcudagaussblur::filter::picture::PictureGeometry;
use gstcudagaussblur::filter::regions::Rect;

pub use super::cases::resized;
use super::{Noise, cases};

/// Bytes between the rows of every plane.
pub const PADDING: usize = 13;

pub fn rect(x: u32, y: u32, width: u32, height: u32) -> Rect {
    Rect::new(x, y, width, height).unwrap()
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

    /// Covers the picture on the CPU.
    pub fn hide(&mut self, hide: Hide) -> Result<(), EngineError> {
        Engine::with_cpu(CpuEngine::new()).cover(&hide.into(), &mut self.frame_mut()).map(drop)
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
    let (luma, layout) = (&planes[0], &planes[plane]);
    let times = [0, 1].map(|axis| (luma.sigma_scale[axis] / layout.sigma_scale[axis]).round() as u32);
    let (fields, size) = (1 + u32::from(luma.split.alternates()), [luma.width, luma.height]);
    // The luma rows of a row, and the luma columns of a column of samples that stand for `each` of them.
    let rows = |y: u32| -> Vec<u32> {
        if layout.height == 1 {
            return (0..size[1]).collect();
        }
        let (parity, row) = (y % fields, y / fields);
        let is_last = y + fields >= layout.height;
        let of_field = (0..size[1]).filter(|y| y % fields == parity);
        of_field.filter(|y| y / fields / times[1] == row || is_last && y / fields / times[1] > row).collect()
    };
    let columns = |x: u32, each: u32| -> Vec<u32> { (x * each..((x + 1) * each).min(size[0])).collect() };
    let covers = |rows: &[u32], columns: &[u32]| {
        let hits = |(rect, _): &&(Rect, f64)| {
            rows.iter().any(|y| (rect.y()..rect.bottom()).contains(y))
                && columns.iter().any(|x| (rect.x()..rect.right()).contains(x))
        };
        regions.iter().filter(hits).map(|(_, strength)| *strength).fold(0.0, f64::max)
    };
    let mut bytes = Vec::new();
    for y in 0..layout.height {
        let rows = rows(y);
        for unit in 0..layout.row_pixels() as u32 {
            match layout.sample_layout {
                SampleLayout::Yuv422 { luma } => {
                    for sample in 0..4 {
                        let pixel = 2 * unit + sample / 2;
                        // The luma beyond an odd width belongs to the last pixel.
                        let columns = match sample % 2 == u32::from(luma) {
                            true => vec![pixel.min(size[0] - 1)],
                            false => columns(unit, 2),
                        };
                        bytes.extend(std::iter::repeat_n(covers(&rows, &columns), layout.sample_bytes()));
                    }
                }
                _ => {
                    let strongest = covers(&rows, &columns(unit, times[0]));
                    bytes.extend(std::iter::repeat_n(strongest, layout.pixel_bytes()));
                }
            }
        }
        bytes.extend([0.0; PADDING]);
    }
    assert!(!layout.is_packed_422() || times == [1, 1]);
    bytes.truncate(bytes.len() - PADDING);
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
