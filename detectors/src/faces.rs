// SPDX-License-Identifier: MPL-2.0
//! Decodes the faces from the outputs of CenterFace.

use crate::run::Plane;

/// A face: its box in pixels of the frame, and the confidence of the network, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Face {
    /// Left, top, right, bottom.
    pub sides: [f64; 4],
    pub confidence: f32,
}

/// The largest number of cells that are examined, those with the highest confidence. Each face has a few cells.
const MOST: usize = 2000;
/// The side of a cell, in pixels of the searched picture.
const CELL: f64 = 4.;
/// Two boxes are of the same face if their intersection is at least this share of the smaller box.
const SHARED: f64 = 0.3;

/// The error that an output of the network is infinite or not a number.
#[derive(Debug, PartialEq)]
pub struct NoNumber;

/// The faces whose confidence exceeds `threshold`, in a frame of the size `full`. For each cell, `heat` has the confidence before
/// the sigmoid, and `sizes` has the logarithms of the box's height and width in cells. `offsets` has the distances from the
/// middle of the cell down and right to the centre of the box, in cells.
pub fn faces(
    heat: &Plane,
    sizes: &Plane,
    offsets: &Plane,
    full: [u32; 2],
    threshold: f32,
) -> Result<Vec<Face>, NoNumber> {
    let limits = [heat.width, heat.height].map(|side| side as f64 * CELL);
    let scales = [f64::from(full[0]) / limits[0], f64::from(full[1]) / limits[1]];
    let mut found = Vec::new();
    for y in 0..heat.height {
        let values = heat.row(y).iter().zip(sizes.row(y).as_chunks::<2>().0).zip(offsets.row(y).as_chunks::<2>().0);
        for (x, ((heat, size), offset)) in values.enumerate() {
            if !heat.is_finite() {
                return Err(NoNumber);
            }
            let confidence = 1. / (1. + (-heat).exp());
            if confidence <= threshold {
                continue;
            }
            if !size.iter().chain(offset).all(|value| value.is_finite()) {
                return Err(NoNumber);
            }
            let mut sides = [0.; 4];
            for (axis, cell) in [x, y].into_iter().enumerate() {
                // The network's values are for y, then for x.
                let half = f64::from(size[1 - axis].exp()) * CELL / 2.;
                let centre = (cell as f64 + f64::from(offset[1 - axis]) + 0.5) * CELL;
                sides[axis] = (centre - half).clamp(0., limits[axis]) * scales[axis];
                sides[axis + 2] = (centre + half).clamp(0., limits[axis]) * scales[axis];
            }
            found.push(Face { sides, confidence });
        }
    }
    found.sort_by(|a, b| b.confidence.total_cmp(&a.confidence));
    found.truncate(MOST);
    Ok(distinct(&found))
}

/// The faces without duplicates, in the order of `found`, which begins with the highest confidence. A face is left out if it has
/// no area, or shares much of its area with an earlier one.
pub fn distinct(found: &[Face]) -> Vec<Face> {
    let mut faces: Vec<Face> = Vec::new();
    for face in found {
        let [left, top, right, bottom] = face.sides;
        let is_new = faces.iter().all(|other| overlap(&face.sides, &other.sides) < SHARED);
        if right - left >= 1. && bottom - top >= 1. && is_new {
            faces.push(*face);
        }
    }
    faces
}

/// The area of the intersection of two boxes, divided by the area of the smaller box.
pub fn overlap(a: &[f64; 4], b: &[f64; 4]) -> f64 {
    let common = |low: usize| (a[low + 2].min(b[low + 2]) - a[low].max(b[low])).max(0.);
    let area = |sides: &[f64; 4]| (sides[2] - sides[0]) * (sides[3] - sides[1]);
    common(0) * common(1) / area(a).min(area(b))
}
