// SPDX-License-Identifier: MPL-2.0
//! The properties that say which parts of the picture are covered, and how.

use gst::glib;

use super::zones::Zones;
use crate::filter::weights::{Edge, Shape};
use crate::regions::detection::Labels;
use crate::regions::on_missing::FrameAction;
use crate::regions::rules::Rules;
use crate::regions::tracks::Holding;

/// The type of `region-mode`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstCudaGaussBlurRegionMode")]
pub enum RegionMode {
    #[default]
    #[enum_value(name = "Blur the whole picture")]
    Frame,
    #[enum_value(name = "Cover the regions")]
    Inside,
    #[enum_value(name = "Cover everything but the regions")]
    Outside,
}

/// The type of `region-sources`.
#[glib::flags(name = "GstCudaGaussBlurRegionSources")]
pub enum RegionSources {
    #[flags_value(name = "The zones property")]
    ZONES = 1,
    #[flags_value(name = "GstVideoRegionOfInterestMeta")]
    ROI = 2,
    #[flags_value(name = "Object detections of GstAnalyticsRelationMeta (GStreamer 1.24)")]
    ANALYTICS = 4,
    #[flags_value(name = "The alpha channel of the frame, which is the mask of an object")]
    ALPHA = 8,
}

/// All sources but the alpha channel, which most videos use for something else.
impl Default for RegionSources {
    fn default() -> Self {
        Self::ZONES | Self::ROI | Self::ANALYTICS
    }
}

/// The type of `cover`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstCudaGaussBlurCover")]
pub enum CoverKind {
    #[default]
    #[enum_value(name = "The Gaussian blur: a visual effect, not anonymity")]
    Blur,
    #[enum_value(name = "Cells of one colour, which limit how much of an object remains")]
    Mosaic,
    #[enum_value(name = "One colour, which leaves nothing of an object")]
    Fill,
}

/// The type of `shape`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstCudaGaussBlurShape")]
pub enum ObjectShape {
    #[default]
    #[enum_value(name = "The box")]
    Box,
    #[enum_value(name = "The ellipse in the box")]
    Ellipse,
    #[enum_value(name = "The mask of a detection; without one the box, which region-mode=outside does not show")]
    Mask,
}

/// The type of `on-missing`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstCudaGaussBlurOnMissing")]
pub enum OnMissing {
    #[default]
    #[enum_value(
        name = "Pass frames on until the first detector meta, then cover the whole frame (region-mode=outside: always cover)"
    )]
    Auto,
    #[enum_value(name = "Pass it on; only zones and held objects are covered")]
    Pass,
    #[enum_value(name = "Cover the whole frame")]
    Cover,
    #[enum_value(name = "Drop it")]
    Drop,
    #[enum_value(name = "End streaming with an error")]
    Error,
}

/// The type of `on-lost`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstCudaGaussBlurOnLost")]
pub enum OnLost {
    #[default]
    #[enum_value(name = "Show the place of the object again")]
    Release,
    #[enum_value(name = "Cover the whole frame until it is found again, or another track of its label takes its place")]
    Cover,
}

/// The values of the properties of regions. Their defaults are those of `Settings::default()`, not of this type.
#[derive(Debug, Clone, Default)]
pub struct RegionSettings {
    /// Whether regions are covered, or everything but the regions.
    pub mode: RegionMode,
    /// Where regions come from.
    pub sources: RegionSources,
    /// Fixed places.
    pub zones: Zones,
    /// Which detections count.
    pub labels: Labels,
    /// Detections with a confidence below it do not count.
    pub min_confidence: f64,
    /// How much detections grow on each side, as a share of this side's length.
    pub expand: f64,
    /// The shape of the object within the box of its detection or zone.
    pub shape: ObjectShape,
    /// The soft edge and the growth of objects.
    pub edge: Edge,
    /// The kind of cover.
    pub cover: CoverKind,
    /// The standard deviation as a share of a region's shorter side.
    pub strength: f64,
    /// The cells of a mosaic along a region's shorter side.
    pub cells: u32,
    /// The colour of a fill, as ARGB.
    pub fill_color: u32,
    /// How long a lost object stays covered, in nanoseconds.
    pub hold_time: u64,
    /// The number of frames that wait for later ones.
    pub look_ahead: u32,
    /// The action for frames in which an object has been lost for longer than `hold-time`.
    pub on_lost: OnLost,
    /// The action for frames that no detector has searched.
    pub on_missing: OnMissing,
    /// Whether a message says what was covered in each frame.
    pub post_messages: bool,
}

impl RegionSettings {
    /// The rules that decide which regions a frame has.
    pub fn rules(&self) -> Rules<'_> {
        Rules {
            shows_regions: self.mode == RegionMode::Outside,
            zones: if self.sources.contains(RegionSources::ZONES) { self.zones.as_slice() } else { &[] },
            labels: &self.labels,
            min_confidence: self.min_confidence,
            expand: self.expand,
            shape: match self.shape {
                ObjectShape::Box => Some(Shape::Box),
                ObjectShape::Ellipse => Some(Shape::Ellipse),
                ObjectShape::Mask => None,
            },
            edge: self.edge,
            holding: Holding { time: self.hold_time, covers_lost: self.on_lost == OnLost::Cover },
            on_missing: match self.on_missing {
                OnMissing::Auto => None,
                OnMissing::Pass => Some(FrameAction::Regions),
                OnMissing::Cover => Some(FrameAction::Whole),
                OnMissing::Drop => Some(FrameAction::Drop),
                OnMissing::Error => Some(FrameAction::Error),
            },
        }
    }

    /// Whether a zone counts.
    pub fn has_zones(&self) -> bool {
        !self.rules().zones.is_empty()
    }

    /// Whether detections can count.
    pub fn has_detections(&self) -> bool {
        self.sources.intersects(RegionSources::ROI | RegionSources::ANALYTICS)
    }

    /// Whether there may be regions without a detector.
    pub fn has_fixed_regions(&self) -> bool {
        self.has_zones() || self.sources.contains(RegionSources::ALPHA)
    }

    /// Whether the settings work without a detector: there may be other regions, and no setting asks for detections.
    pub fn needs_no_detector(&self) -> bool {
        self.has_fixed_regions() && self.for_detections().is_empty()
    }

    /// The settings that ask for detections to cover. The default of `region-sources` is not among them, because users
    /// who set only zones leave it unchanged. If detections are shown, a lack of them hides more, so none of these
    /// settings counts.
    pub fn for_detections(&self) -> Vec<&'static str> {
        if self.mode == RegionMode::Outside || !self.has_detections() {
            return Vec::new();
        }
        names([
            ("region-sources", self.sources != RegionSources::default()),
            ("labels", !self.labels.is_empty()),
            ("min-confidence", self.min_confidence > 0.0),
            ("shape", self.shape == ObjectShape::Mask),
            ("look-ahead", self.look_ahead > 0),
            ("on-lost", self.on_lost == OnLost::Cover),
            ("on-missing", self.on_missing != OnMissing::Auto),
        ])
    }

    /// Whether nothing may be covered although there are regions: the shown regions may fill the picture, or the alpha
    /// channel may have no object.
    pub fn may_hide_nothing(&self) -> bool {
        self.mode == RegionMode::Outside || self.sources.contains(RegionSources::ALPHA)
    }
}

/// The names of settings that are set.
pub fn names<const N: usize>(settings: [(&'static str, bool); N]) -> Vec<&'static str> {
    settings.into_iter().filter_map(|(name, is_set)| is_set.then_some(name)).collect()
}
