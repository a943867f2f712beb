// SPDX-License-Identifier: MPL-2.0
//! Translates the regions and the settings of a frame to the engine's cover: rectangles with a blur, cells or a colour.

use super::format::fill_color;
use super::format::stream_format::StreamFormat;
use super::regions::settings::{CoverKind, RegionSettings};
use crate::engine::{self, BlurRegion, Cover, Hide, Softness};
use crate::filter::BlurParams;
use crate::filter::frame::{PlaneLayout, Split};
use crate::filter::mosaic::{self, MosaicRegion};
use crate::filter::plan::{Options, Selection};
use crate::filter::regions::{Area, Rect, Region, disjoint};
use crate::filter::weights::{Shape, Weights};
use crate::regions::frame_regions::{FrameRegion, FrameRegions, Origin};
use crate::regions::hidden::{self, CoveredPart, Hidden};
use crate::regions::strength;
use crate::regions::tracks::Evidence;

/// The cover of a frame, for the engine, for the statistics and for the message about the frame.
#[derive(Debug, Clone)]
pub struct FrameCover {
    /// The operations of the engine.
    pub cover: Cover,
    /// The part of the frame that they cover.
    pub part: CoveredPart,
    /// The regions; none if the whole frame is covered.
    pub regions: Vec<FrameRegion>,
    /// The share of the picture that is covered completely, 0 to 1.
    pub covered_area: f64,
    /// Channels that the blur should cover but does not change in some region. Alpha is not reported.
    pub unchanged: Selection,
    /// Whether one mosaic covers all regions, see [`mosaic::bounded`].
    pub is_joined: bool,
    /// Whether a detector should have searched the frame, and did not.
    pub is_missing: bool,
    /// Whether the whole frame is covered because an object is lost.
    pub is_lost: bool,
}

impl FrameCover {
    /// The cover for this decision about a frame, in this format. `options` is the blur of region-mode=frame.
    ///
    /// If the whole frame or the background is covered, the size of a cell is a fraction of the picture's shorter side.
    /// σ is a fraction of this side only if the whole frame is covered in place of an object that was not found; a
    /// background has `sigma`.
    pub fn new(settings: &RegionSettings, options: Options, found: FrameRegions, format: &StreamFormat) -> Self {
        let FrameRegions { action, regions, is_missing, is_lost, .. } = found;
        let (rules, size) = (settings.rules(), format.picture_size);
        let has_shape = regions.iter().any(|region| region.outline.shape != Shape::Box);
        let covered = || Hidden::new(&rules, action, &regions, size);
        let leaves_out = has_shape && rules.shows_regions && settings.cover == CoverKind::Blur;
        let (covered, excluded) = if leaves_out {
            let excluded = || Some(Weights::excluded(size, &hidden::outlines(&regions), options.params.sigma()));
            engine::join(covered, excluded)
        } else {
            (covered(), None)
        };
        let Hidden { part, regions: covered, weights } = covered;
        let mut hidden: Vec<Rect> = covered.iter().map(|region| region.rect).collect();
        let (mut unchanged, mut is_joined) = (Selection::NONE, false);
        let hide = match settings.cover {
            CoverKind::Blur => {
                let layouts = format.progressive_layouts();
                let picture = Selection { alpha: false, ..Selection::of(layouts) };
                let strength = if part == CoveredPart::Outside { 0.0 } else { settings.strength };
                hidden.clear();
                let mut blurred = Vec::new();
                for Region { rect, object } in covered {
                    let params = region_params(options.params, strength, layouts, object);
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
                Hide::Blur { planes: options.planes, regions: blurred }
            }
            CoverKind::Mosaic => {
                let region = |region: &Region| MosaicRegion::new(region.rect, region.object, settings.cells);
                let mosaics = mosaic::bounded(covered.iter().map(region).collect(), size);
                is_joined = mosaics.len() < covered.len();
                hidden = mosaics.iter().map(MosaicRegion::rect).collect();
                Hide::Mosaic(mosaics)
            }
            CoverKind::Fill => Hide::Fill {
                rects: hidden.clone(),
                values: fill_color::plane_values(settings.fill_color, &format.info, format.progressive_layouts()),
            },
        };
        let hidden: u64 = disjoint(&hidden).into_iter().map(Rect::area).sum();
        let mut covered_area = hidden as f64 / (u64::from(size.0) * u64::from(size.1)) as f64;
        let soft = weights.map(|weights| Softness { weights, excluded });
        if let Some(soft) = &soft {
            covered_area = covered_area.min(soft.weights.hidden_share());
        }
        let cover = Cover { hide, soft };
        Self { cover, part, regions, covered_area, unchanged, is_joined, is_missing, is_lost }
    }

    /// The covered part of the frame, as a word for messages.
    pub fn covered(&self) -> &'static str {
        match self.part {
            _ if self.cover.is_empty() => "nothing",
            _ if self.unchanged != Selection::NONE => "partly",
            CoveredPart::Regions => "regions",
            CoveredPart::Outside => "outside",
            CoveredPart::Frame => "frame",
        }
    }

    /// Whether the frame has a region of an object with this evidence.
    pub fn has(&self, evidence: Evidence) -> bool {
        self.regions.iter().any(|region| region.origin == Origin::Detection(evidence))
    }
}

/// The Gaussian that covers an object. `kernel-size` limits it only if every region has the same Gaussian. A small
/// object must not stay visible because its σ is `sigma`, while larger objects are blurred by a σ for which
/// `kernel-size` is too small. σ is in pixels as they are shown. A view of half the width or height has half as many of
/// these pixels.
fn region_params(params: BlurParams, strength: f64, layouts: &[PlaneLayout], object: Area) -> BlurParams {
    if strength == 0.0 {
        return params;
    }
    let PlaneLayout { split, sigma_scale: [across, down], .. } = layouts[0];
    let Area { left, top, right, bottom } = object;
    let shown = Area { right: left + (right - left) / across, bottom: top + (bottom - top) / down, ..object };
    let object = if split == Split::Whole { object } else { shown };
    let sigma = strength::sigma(params.sigma(), strength, object.short_side());
    BlurParams::new(sigma, 0).unwrap_or(params)
}
