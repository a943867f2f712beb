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

/// The largest number of cells that are examined. It bounds the time. The cells with the highest confidence are kept, and each face
/// has a few of them.
const MOST: usize = 8000;
/// The side of a cell, in pixels of the searched picture.
const CELL: f64 = 4.;
/// A box is of the same face as another one if the area of their intersection is at least `SHARED` of the area that they cover together,
/// or at least `INSIDE` of the box.
const SHARED: f64 = 0.4;
const INSIDE: f64 = 0.8;

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
    let mut faces = Vec::new();
    join(&mut faces, &found);
    Ok(faces)
}

/// Adds the faces of a search, those with the highest confidence first, to those of other searches. A face that is there already gets the
/// higher confidence. A face without an area is left out.
pub fn join(faces: &mut Vec<Face>, found: &[Face]) {
    for face in found {
        let [left, top, right, bottom] = face.sides;
        match faces.iter_mut().find(|other| is_same(face, other)) {
            Some(other) => other.confidence = other.confidence.max(face.confidence),
            None if right - left >= 1. && bottom - top >= 1. => faces.push(*face),
            None => (),
        }
    }
}

/// Whether a face is the same as one that is there already.
fn is_same(face: &Face, other: &Face) -> bool {
    let common = face.common(other);
    common >= SHARED * (face.area() + other.area() - common) || common >= INSIDE * face.area()
}

impl Face {
    fn area(&self) -> f64 {
        (self.sides[2] - self.sides[0]) * (self.sides[3] - self.sides[1])
    }

    /// The area of the intersection with another face.
    pub fn common(&self, other: &Self) -> f64 {
        let [a, b] = [self.sides, other.sides];
        let length = |low: usize| (a[low + 2].min(b[low + 2]) - a[low].max(b[low])).max(0.);
        length(0) * length(1)
    }
}
