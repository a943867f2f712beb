// SPDX-License-Identifier: MPL-2.0
//! The faces that CenterFace's outputs describe.

use crate::run::Plane;

/// A face: its box in pixels of the frame, and the network's confidence, 0 to 1.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Face {
    /// Left, top, right, bottom.
    pub sides: [f64; 4],
    pub confidence: f32,
}

/// The largest number of cells that are examined, the most certain ones. Each face has a few cells.
const MOST: usize = 2000;
/// Pixels of the searched picture in a row or column of a cell.
const CELL: f64 = 4.;
/// Boxes that share more than this part of the smaller one's area are boxes of one face.
const SHARED: f64 = 0.3;

/// An output of the network is infinite or no number.
#[derive(Debug, PartialEq)]
pub struct NoNumber;

/// The faces whose confidence exceeds `threshold`, in a frame of the size `full`. `heat` has each cell's confidence before the
/// sigmoid; `sizes` the logarithms of its box's height and width in cells; `offsets` how far down and to the right of the cell's
/// middle the box's centre lies.
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
                // The network's values are those of y, then of x.
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

/// The faces, the most certain ones first. Faces that share much of their area with a more certain one, or that have no
/// area, are left out.
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

/// The intersection of two boxes as a share of the smaller one.
pub fn overlap(a: &[f64; 4], b: &[f64; 4]) -> f64 {
    let common = |low: usize| (a[low + 2].min(b[low + 2]) - a[low].max(b[low])).max(0.);
    let area = |sides: &[f64; 4]| (sides[2] - sides[0]) * (sides[3] - sides[1]);
    common(0) * common(1) / area(a).min(area(b))
}
