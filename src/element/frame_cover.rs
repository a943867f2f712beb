// SPDX-License-Identifier: MPL-2.0
//! What the engine covers in a frame: the regions, the mode, and what hides them, as rectangles with a blur, cells or a
//! colour.

use super::fill_color;
use super::region_settings::{self, RegionMode, RegionSettings};
use super::regions::{FrameRegion, FrameRegions, Origin};
use super::stream_format::StreamFormat;
use crate::engine::{BlurCover, BlurRegion, Cover};
use crate::filter::BlurParams;
use crate::filter::mosaic::MosaicRegion;
use crate::filter::plan::Options;
use crate::filter::regions::{self, Area, Rect, Region, strength_sigma};

/// Which part of a frame is covered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent {
    /// The regions.
    Regions,
    /// All but the regions.
    Outside,
    /// All, because no detector has looked at the frame.
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
    /// The part of the picture that is covered, 0 to 1.
    pub covered_area: f64,
    /// Whether a detector should have looked at the frame, and did not.
    pub is_missing: bool,
}

impl FrameCover {
    /// How `regions` are covered in a frame of this format. `options` is the blur of region-mode=frame.
    ///
    /// What has no object to follow (the whole frame, the background) follows the picture: cells are a part of its shorter
    /// side. σ follows it only where the whole frame stands for an object that was not found; a background has `sigma`.
    pub fn new(
        settings: &RegionSettings,
        options: Options,
        regions: FrameRegions,
        is_missing: bool,
        format: &StreamFormat,
    ) -> Self {
        let (width, height) = format.picture_size();
        let picture = Area::from_corner(0.0, 0.0, width.into(), height.into());
        let whole = Region::new(picture, 0.0, (width, height));
        let (extent, regions) = match regions {
            FrameRegions::Regions(regions) if settings.mode == RegionMode::Outside => (Extent::Outside, regions),
            FrameRegions::Regions(regions) => (Extent::Regions, regions),
            FrameRegions::Whole | FrameRegions::Drop | FrameRegions::Error => (Extent::Frame, Vec::new()),
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
        let cover = match settings.cover {
            // The channels that `planes` selects are none of this format.
            region_settings::Cover::Blur if !format.has_channels(options) => {
                Cover::Blur(BlurCover { planes: options.planes, alpha: options.alpha, regions: Vec::new() })
            }
            region_settings::Cover::Blur => {
                let strength = if extent == Extent::Outside { 0.0 } else { settings.strength };
                let region = |region: &Region| BlurRegion {
                    rect: region.rect,
                    params: region_params(options.params, strength, region.object),
                };
                let regions = covered.iter().map(region).collect();
                Cover::Blur(BlurCover { planes: options.planes, alpha: options.alpha, regions })
            }
            region_settings::Cover::Mosaic => {
                let region = |region: &Region| MosaicRegion::new(region.rect, region.object, settings.cells);
                Cover::Mosaic(covered.iter().map(region).collect())
            }
            region_settings::Cover::Fill if covered.is_empty() => Cover::Fill { rects: Vec::new(), values: Vec::new() },
            region_settings::Cover::Fill => Cover::Fill {
                rects: covered.iter().map(|region| region.rect).collect(),
                values: fill_color::plane_values(settings.fill_color, format.info(), format.progressive_layouts()),
            },
        };
        let covered_area = match extent {
            _ if cover.is_empty() => 0.0,
            Extent::Frame => 1.0,
            Extent::Regions | Extent::Outside => {
                let samples = |rect: &Rect| f64::from(rect.width()) * f64::from(rect.height());
                let inside: f64 = regions::disjoint(&rects()).iter().map(samples).sum();
                let share = inside / (f64::from(width) * f64::from(height));
                if extent == Extent::Outside { 1.0 - share } else { share }
            }
        };
        Self { cover, extent, regions, covered_area, is_missing }
    }

    /// Whether detections of earlier frames are covered.
    pub fn has_held(&self) -> bool {
        self.regions.iter().any(|region| region.origin == Origin::Held)
    }
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
