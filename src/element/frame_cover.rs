// SPDX-License-Identifier: MPL-2.0
//! What the engine covers in a frame: the regions, the mode, and what hides them, as rectangles with a blur, cells or a
//! colour.

use super::fill_color;
use super::regions::settings::{self as region_settings, RegionMode, RegionSettings};
use super::stream_format::StreamFormat;
use crate::engine::{self, BlurCover, BlurRegion, Cover, SoftCover};
use crate::filter::BlurParams;
use crate::filter::mosaic::MosaicRegion;
use crate::filter::plan::{Options, Selection};
use crate::filter::regions::{self, Area, Rect, Region, strength_sigma};
use crate::filter::weights::{self, Edge, Object, Shape, Weights};
use crate::regions::frame_regions::{FrameRegion, FrameRegions, Origin};
use crate::regions::on_missing::FrameAction;
use crate::regions::tracks::Evidence;

/// Which part of a frame is covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The regions.
    Regions,
    /// All but the regions.
    Outside,
    /// All, because no detector has looked at the frame, or because an object is lost.
    Frame,
}

impl Extent {
    /// Its name in messages.
    pub fn name(self) -> &'static str {
        match self {
            Self::Regions => "regions",
            Self::Outside => "outside",
            Self::Frame => "frame",
        }
    }
}

/// What is covered in a frame, for the engine, for the statistics and for the message about the frame.
#[derive(Debug, Clone)]
pub struct FrameCover {
    /// What the engine does.
    pub cover: Cover,
    /// Which part of the frame that is.
    pub extent: Extent,
    /// The regions; none if the whole frame is covered.
    pub regions: Vec<FrameRegion>,
    /// The part of the picture of which nothing is left as it is, 0 to 1.
    pub covered_area: f64,
    /// Channels that the blur should cover but does not change in some region. Alpha is not reported.
    pub unchanged: Selection,
    /// Whether a detector should have looked at the frame, and did not.
    pub is_missing: bool,
    /// Whether the whole frame is covered because an object is lost.
    pub is_lost: bool,
}

impl FrameCover {
    /// How what was decided is covered in a frame of this format. `options` is the blur of region-mode=frame.
    ///
    /// What has no object to follow (the whole frame, the background) follows the picture: cells are a part of its shorter
    /// side. σ follows it only where the whole frame stands for an object that was not found; a background has `sigma`.
    pub fn new(settings: &RegionSettings, options: Options, found: FrameRegions, format: &StreamFormat) -> Self {
        let FrameRegions { action, regions, is_missing, is_lost, .. } = found;
        let (width, height) = format.picture_size();
        let picture = Area::from_corner(0.0, 0.0, width.into(), height.into());
        let whole = Region::new(picture, 0.0, (width, height));
        let extent = match action {
            FrameAction::Regions if settings.mode == RegionMode::Outside => Extent::Outside,
            FrameAction::Regions => Extent::Regions,
            FrameAction::Whole | FrameAction::Drop | FrameAction::Error => Extent::Frame,
        };
        let rects = || regions.iter().map(|region| region.region.rect).collect::<Vec<_>>();
        let covered: Vec<Region> = match extent {
            Extent::Regions => regions.iter().map(|region| region.region).collect(),
            Extent::Outside => {
                let background = regions::outside(&rects(), width, height);
                background.into_iter().map(|rect| Region { rect, object: picture }).collect()
            }
            Extent::Frame => whole.into_iter().collect(),
        };
        let has_shape = regions.iter().any(|region| region.object.shape != Shape::Box);
        let is_soft = (settings.is_soft() || has_shape) && extent != Extent::Frame && !regions.is_empty();
        let (covered, soft) = if is_soft {
            let objects: Vec<Object> = regions.iter().map(|region| region.object.clone()).collect();
            let leaves_out =
                extent == Extent::Outside && has_shape && settings.cover == region_settings::CoverKind::Blur;
            let (size, sigma) = ((width, height), options.params.sigma());
            let weights = || soft(&objects, &regions, extent, settings, size);
            let ((covered, weights), excluded) = if leaves_out {
                let excluded = || Some(Weights::excluded(size, &objects, sigma));
                engine::join(weights, excluded)
            } else {
                (weights(), None)
            };
            (covered, Some((weights, excluded)))
        } else {
            (covered, None)
        };
        let mut hidden: Vec<Rect> = covered.iter().map(|region| region.rect).collect();
        let mut unchanged = Selection::NONE;
        let cover = match settings.cover {
            region_settings::CoverKind::Blur => {
                let layouts = format.progressive_layouts();
                let picture = Selection { alpha: false, ..Selection::of(layouts) };
                let strength = if extent == Extent::Outside { 0.0 } else { settings.strength };
                hidden.clear();
                let mut blurred = Vec::new();
                for Region { rect, object } in covered {
                    let params = region_params(options.params, strength, object);
                    let changed = Options { params, ..options }.changed(layouts);
                    let left = picture.without(changed);
                    unchanged = unchanged.union(left);
                    if changed != Selection::NONE {
                        blurred.push(BlurRegion { rect, params });
                    }
                    if left == Selection::NONE {
                        hidden.push(rect);
                    }
                }
                Cover::Blur(BlurCover { planes: options.planes, regions: blurred })
            }
            region_settings::CoverKind::Mosaic => {
                let region = |region: &Region| MosaicRegion::new(region.rect, region.object, settings.cells);
                Cover::Mosaic(covered.iter().map(region).collect())
            }
            region_settings::CoverKind::Fill => Cover::Fill {
                rects: hidden.clone(),
                values: fill_color::plane_values(settings.fill_color, format.info(), format.progressive_layouts()),
            },
        };
        let samples = |rect: &Rect| u64::from(rect.width()) * u64::from(rect.height());
        let hidden: u64 = regions::disjoint(&hidden).iter().map(samples).sum();
        let mut covered_area = hidden as f64 / (u64::from(width) * u64::from(height)) as f64;
        let cover = match soft {
            Some((weights, excluded)) => {
                covered_area = covered_area.min(weights.hidden_share());
                Cover::Soft(SoftCover { cover: Box::new(cover), weights, excluded })
            }
            None => cover,
        };
        Self { cover, extent, regions, covered_area, unchanged, is_missing, is_lost }
    }

    /// What of the frame is covered, as a word for messages.
    pub fn covered(&self) -> &'static str {
        match self.extent {
            _ if self.cover.is_empty() => "nothing",
            _ if self.unchanged != Selection::NONE => "partly",
            extent => extent.name(),
        }
    }

    /// Whether an object is covered for such a reason.
    pub fn has(&self, evidence: Evidence) -> bool {
        self.regions.iter().any(|region| region.origin == Origin::Detection(evidence))
    }
}

/// What a cover with weights writes, and the weights.
fn soft(
    objects: &[Object],
    regions: &[FrameRegion],
    extent: Extent,
    settings: &RegionSettings,
    size: (u32, u32),
) -> (Vec<Region>, Weights) {
    // The property is the width of the edge.
    let edge = Edge { feather: settings.edge.feather.div_ceil(2), ..settings.edge };
    if extent == Extent::Outside {
        let picture = Area::from_corner(0.0, 0.0, size.0.into(), size.1.into());
        let weights = Weights::outside(size, objects, edge);
        let rects = weights.rects().into_iter();
        return (rects.map(|rect| Region { rect, object: picture }).collect(), weights);
    }
    let reach = |region: &FrameRegion| {
        let rect = region.object.reach(edge, size)?;
        Some(Region { rect, object: region.region.object })
    };
    // Those of which shrinking would leave nothing are not shrunk.
    let is_left = |object: &&Object| edge.grow >= 0 || is_left(object, edge, size);
    let (shrunk, whole): (Vec<&Object>, Vec<&Object>) = objects.iter().partition(is_left);
    let weights = |objects: &[&Object], edge| {
        Weights::inside(size, &objects.iter().map(|object| (*object).clone()).collect::<Vec<_>>(), edge)
    };
    let mut all = weights(&shrunk, edge);
    if !whole.is_empty() {
        all.unite(&weights(&whole, Edge { grow: 0, ..edge }));
    }
    (regions.iter().filter_map(reach).collect(), all)
}

/// Whether shrinking leaves anything of an object that is covered.
fn is_left(object: &Object, edge: Edge, size: (u32, u32)) -> bool {
    let area = if let Shape::Mask(mask) = &object.shape { mask.area() } else { object.area };
    let is_boxed = !area.wider(edge.grow.into()).is_empty();
    // A cover is one node larger than its object, of which nothing may be left.
    let edge = Edge { grow: edge.grow - weights::cell(size).cast_signed(), feather: 0 };
    is_boxed && Weights::leaves_any(size, object, edge)
}

/// The Gaussian that covers an object. `kernel-size` limits it only where every region has the same: a small object must
/// not stay visible because its σ is `sigma`, while larger ones are blurred by a σ that `kernel-size` does not fit.
fn region_params(params: BlurParams, strength: f64, object: Area) -> BlurParams {
    if strength == 0.0 {
        return params;
    }
    let sigma = strength_sigma(params.sigma(), strength, object.short_side());
    BlurParams::new(sigma, 0).unwrap_or(params)
}
