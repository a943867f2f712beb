//! A person before a camera, as a segmentation network sees them.

use gstcudagaussblur::filter::regions::Area;
use gstcudagaussblur::filter::weights::{Mask, Object, Shape};

/// Samples of the mask along either axis.
pub const SIDE: u32 = 256;

/// A head and shoulders, about a third of the picture.
fn samples() -> Vec<u8> {
    let is_person = |x: f64, y: f64| {
        let head = ((x - 0.5) / 0.13).powi(2) + ((y - 0.32) / 0.19).powi(2);
        let shoulders = ((x - 0.5) / 0.36).powi(2) + ((y - 1.05) / 0.53).powi(2);
        head.min(shoulders)
    };
    let sample = |i: u32| {
        let [x, y] = [i % SIDE, i / SIDE].map(|i| (f64::from(i) + 0.5) / f64::from(SIDE));
        (255.0 * (1.0 - (is_person(x, y) - 1.0) * 8.0)).clamp(0.0, 255.0) as u8
    };
    (0..SIDE * SIDE).map(sample).collect()
}

/// The person in a picture of this size, and the share of the picture.
pub fn person(size: (u32, u32)) -> (Object, f64) {
    let samples = samples();
    let area = Area::from_corner(0.0, 0.0, size.0.into(), size.1.into());
    let share = samples.iter().filter(|sample| **sample >= 128).count() as f64 / f64::from(SIDE * SIDE);
    let mask = Mask::new(SIDE, SIDE, samples, area).expect("a mask");
    (Object { area, shape: Shape::Mask(mask) }, share)
}

/// An ellipse over half the picture.
pub fn ellipse((width, height): (u32, u32)) -> Object {
    let [width, height] = [width, height].map(f64::from);
    Object { area: Area::from_corner(width / 8.0, height / 6.0, width * 0.75, height / 1.5), shape: Shape::Ellipse }
}
