// SPDX-License-Identifier: MPL-2.0
//! The covered part of a frame: rectangles, and the weights of a cover with a soft edge, an ellipse or a mask.

use super::frame_regions::FrameRegion;
use super::on_missing::FrameAction;
use super::rules::Rules;
use crate::filter::regions::{Area, Rect, Region, outside};
use crate::filter::weights::{Edge, Object, Shape, Weights, cell};

/// Which part of a frame is covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoveredPart {
    /// The regions.
    Regions,
    /// Everything but the regions.
    Outside,
    /// The whole frame, because no detector has searched it or because an object is lost.
    Frame,
}

/// The covered part of a frame.
#[derive(Debug, Clone)]
pub struct Hidden {
    /// The kind of part.
    pub part: CoveredPart,
    /// The rectangles of a cover, each with the object that it hides. For the whole frame and the background this is
    /// the picture.
    pub regions: Vec<Region>,
    /// The weights of the cover; `None` if it has its full weight everywhere.
    pub weights: Option<Weights>,
}

impl Hidden {
    /// The part of a frame of `size` (width, height) that is covered by these rules, for this action and these regions.
    pub fn new(rules: &Rules, action: FrameAction, regions: &[FrameRegion], size: (u32, u32)) -> Self {
        let part = match action {
            FrameAction::Regions if rules.shows_regions => CoveredPart::Outside,
            FrameAction::Regions => CoveredPart::Regions,
            FrameAction::Whole | FrameAction::Drop | FrameAction::Error => CoveredPart::Frame,
        };
        let has_shape = |region: &FrameRegion| region.outline.shape != Shape::Box;
        let is_soft = rules.shape != Some(Shape::Box) || rules.edge.feather > 0 || regions.iter().any(has_shape);
        let is_soft = is_soft && !regions.is_empty();
        let edge = Edge { feather: rules.edge.feather.div_ceil(2), ..rules.edge };
        let picture = Area::from_corner(0.0, 0.0, size.0.into(), size.1.into());
        let background = |rects: Vec<Rect>| rects.into_iter().map(|rect| Region { rect, object: picture }).collect();
        let (regions, weights) = match part {
            CoveredPart::Regions if is_soft => {
                let reach = |FrameRegion { region, outline, .. }: &FrameRegion| {
                    Some(Region { rect: outline.reach(edge, size)?, object: region.object })
                };
                (regions.iter().filter_map(reach).collect(), Some(weights_over(outlines(regions), edge, size)))
            }
            CoveredPart::Regions => (regions.iter().map(|region| region.region).collect(), None),
            CoveredPart::Outside if is_soft => {
                let weights = Weights::outside(size, &outlines(regions), edge);
                (background(weights.rects()), Some(weights))
            }
            CoveredPart::Outside => {
                let shown: Vec<Rect> = regions.iter().map(|region| region.region.rect).collect();
                (background(outside(&shown, size.0, size.1)), None)
            }
            CoveredPart::Frame => (Region::new(picture, 0.0, size).into_iter().collect(), None),
        };
        Self { part, regions, weights }
    }
}

/// The outlines that the weights follow.
pub fn outlines(regions: &[FrameRegion]) -> Vec<Object> {
    regions.iter().map(|region| region.outline.clone()).collect()
}

/// The weights of a cover over objects. An object of which shrinking would leave nothing is not shrunk.
fn weights_over(outlines: Vec<Object>, edge: Edge, size: (u32, u32)) -> Weights {
    let is_shrunk = |outline: &Object| edge.grow >= 0 || is_left(outline, edge, size);
    let (shrunk, whole): (Vec<Object>, Vec<Object>) = outlines.into_iter().partition(is_shrunk);
    let mut weights = Weights::inside(size, &shrunk, edge);
    if !whole.is_empty() {
        weights.unite(&Weights::inside(size, &whole, Edge { grow: 0, ..edge }));
    }
    weights
}

/// Whether shrinking leaves any part of a covered object.
fn is_left(outline: &Object, edge: Edge, size: (u32, u32)) -> bool {
    let area = if let Shape::Mask(mask) = &outline.shape { mask.area() } else { outline.area };
    let is_boxed = !area.wider(edge.grow.into()).is_empty();
    // A cover is one node larger than its object, so a cover may be left although nothing of the object is.
    let edge = Edge { grow: edge.grow - cell(size).cast_signed(), feather: 0 };
    is_boxed && Weights::leaves_any(size, outline, edge)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::weights::Mask;

    /// Masks of 1 to 8 columns. A cover is two nodes larger on each side than its object, so shrinking by 3 may leave
    /// something of the cover of a mask of fewer than 5 columns.
    #[test]
    fn what_shrinking_leaves_nothing_of_is_covered_whole() {
        for width in 1..9 {
            let samples = (0..1600).map(|i| if (20..20 + width).contains(&(i % 40)) { 255 } else { 0 }).collect();
            let mask = Mask::new(40, 40, samples, Area::from_corner(0.0, 0.0, 40.0, 40.0)).unwrap();
            let object = Object { area: mask.area(), shape: Shape::Mask(mask) };
            let weights = weights_over(vec![object], Edge { grow: -3, feather: 0 }, (40, 40));
            let mut row = [0; 40];
            weights.row_from(0, 9, &mut Vec::new(), &mut row);
            assert_eq!(row[20] == 255, width < 5, "{width}: {row:?}");
        }
    }
}
