// SPDX-License-Identifier: MPL-2.0
//! The properties that say which parts of the picture are covered, and how.

use gst::glib;
use gst::prelude::*;

use super::zones::{ZoneError, Zones};
use crate::filter::mosaic::CELLS_MAX;
use crate::filter::weights::{Edge, Shape};
use crate::regions::detection::Labels;
use crate::regions::on_missing::FrameAction;
use crate::regions::rules::Rules;
use crate::regions::tracks::Holding;

/// The type of `region-mode`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstCudaGaussBlurRegionMode")]
pub enum RegionMode {
    /// The whole picture.
    #[default]
    #[enum_value(name = "The whole picture", nick = "frame")]
    Frame,
    /// The regions.
    #[enum_value(name = "The regions", nick = "inside")]
    Inside,
    /// All but the regions.
    #[enum_value(name = "All but the regions", nick = "outside")]
    Outside,
}

/// The type of `region-sources`.
#[glib::flags(name = "GstCudaGaussBlurRegionSources")]
pub enum RegionSources {
    /// `zones`.
    #[flags_value(name = "The zones property", nick = "zones")]
    ZONES = 1,
    /// GstVideoRegionOfInterestMeta.
    #[flags_value(name = "GstVideoRegionOfInterestMeta", nick = "roi")]
    ROI = 2,
    /// GstAnalyticsRelationMeta.
    #[flags_value(name = "Object detections of GstAnalyticsRelationMeta (GStreamer 1.24)", nick = "analytics")]
    ANALYTICS = 4,
    /// The three above.
    #[flags_value(name = "zones, roi and analytics", nick = "all")]
    ALL = 7,
    /// The alpha channel.
    #[flags_value(name = "The alpha channel of the frame, which is the mask of an object", nick = "alpha")]
    ALPHA = 8,
}

/// The type of `cover`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstCudaGaussBlurCover")]
pub enum CoverKind {
    /// The Gaussian.
    #[default]
    #[enum_value(name = "The Gaussian blur: a look, not anonymity", nick = "blur")]
    Blur,
    /// Cells of one colour.
    #[enum_value(name = "Cells of one colour, which bound what is left of an object", nick = "mosaic")]
    Mosaic,
    /// One colour.
    #[enum_value(name = "One colour, which leaves nothing of an object", nick = "fill")]
    Fill,
}

/// The type of `shape`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstCudaGaussBlurShape")]
pub enum ObjectShape {
    /// The box.
    #[default]
    #[enum_value(name = "The box", nick = "box")]
    Box,
    /// The ellipse in the box.
    #[enum_value(name = "The ellipse in the box", nick = "ellipse")]
    Ellipse,
    /// The mask that came with a detection.
    #[enum_value(
        name = "The mask of a detection; without one the box, which region-mode=outside does not show",
        nick = "mask"
    )]
    Mask,
}

/// The type of `on-missing`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstCudaGaussBlurOnMissing")]
pub enum OnMissing {
    /// `Cover` once detector metas have been seen, and with `region-mode=outside`, else `Pass`.
    #[default]
    #[enum_value(
        name = "Cover the whole frame once detector metas have been seen (region-mode=outside: always), and pass it on before",
        nick = "auto"
    )]
    Auto,
    /// Only zones and held objects are covered.
    #[enum_value(name = "Pass it on; only zones and held objects are covered", nick = "pass")]
    Pass,
    /// The whole frame is covered.
    #[enum_value(name = "Cover the whole frame", nick = "cover")]
    Cover,
    /// The frame is dropped.
    #[enum_value(name = "Drop it", nick = "drop")]
    Drop,
    /// Streaming ends with an error.
    #[enum_value(name = "End streaming with an error", nick = "error")]
    Error,
}

/// The type of `on-lost`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstCudaGaussBlurOnLost")]
pub enum OnLost {
    /// Nothing is covered.
    #[default]
    #[enum_value(name = "Release it", nick = "release")]
    Release,
    /// The whole frame is covered.
    #[enum_value(
        name = "Cover the whole frame until it is found again, or another track of its label takes its place",
        nick = "cover"
    )]
    Cover,
}

/// Largest `expand`, as a share of a side.
const EXPAND_MAX: f64 = 4.0;
/// Largest `strength`, as a share of the shorter side.
const STRENGTH_MAX: f64 = 2.0;
const DEFAULT_EXPAND: f64 = 0.2;
const DEFAULT_STRENGTH: f64 = 0.25;
const DEFAULT_CELLS: u32 = 6;
const DEFAULT_FILL_COLOR: u32 = 0xff00_0000;
const DEFAULT_HOLD_TIME: u64 = 3_000_000_000;
/// Largest `feather` and `grow`, in pixels.
const EDGE_MAX: u32 = 256;
/// Least `grow`, in pixels.
const GROW_MIN: i32 = -64;
const LOOK_AHEAD_MAX: u32 = 120;
const DEFAULT_SOURCES: RegionSources = RegionSources::ALL;

/// A property that cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum RegionError {
    /// A number that is not in the property's range.
    #[error("{property}={value} cannot be used: it must be a number from {min} to {max}")]
    Number {
        /// The property's name.
        property: &'static str,
        /// Its value.
        value: f64,
        /// The smallest value that it can have.
        min: f64,
        /// The largest value that it can have.
        max: f64,
    },
    /// `zones`.
    #[error(transparent)]
    Zone(#[from] ZoneError),
}

/// The values of the properties. Before start, they may be invalid; start then fails.
#[derive(Debug, Clone)]
pub struct RegionSettings {
    /// What is covered.
    pub mode: RegionMode,
    /// Where regions come from.
    pub sources: RegionSources,
    /// Fixed places.
    pub zones: Zones,
    /// Which detections count.
    pub labels: Labels,
    /// Detections with a confidence below it do not count.
    pub min_confidence: f64,
    /// By how much detections grow on each side, as a share of their side.
    pub expand: f64,
    /// What of a detection or a zone is the object.
    pub shape: ObjectShape,
    /// Where the object's edge is.
    pub edge: Edge,
    /// What hides.
    pub cover: CoverKind,
    /// The standard deviation as a share of a region's shorter side.
    pub strength: f64,
    /// The cells of a mosaic along a region's shorter side.
    pub cells: u32,
    /// The colour of a fill, as ARGB.
    pub fill_color: u32,
    /// How long a lost object stays covered, in nanoseconds.
    pub hold_time: u64,
    /// Frames that wait for later ones.
    pub look_ahead: u32,
    /// What becomes of frames in which an object has been lost for longer than that.
    pub on_lost: OnLost,
    /// What becomes of frames that no detector has looked at.
    pub on_missing: OnMissing,
    /// Whether a message says what was covered in each frame.
    pub post_messages: bool,
}

impl Default for RegionSettings {
    fn default() -> Self {
        Self {
            mode: RegionMode::default(),
            sources: DEFAULT_SOURCES,
            zones: Zones::default(),
            labels: Labels::default(),
            min_confidence: 0.0,
            expand: DEFAULT_EXPAND,
            shape: ObjectShape::default(),
            edge: Edge::default(),
            cover: CoverKind::default(),
            strength: DEFAULT_STRENGTH,
            cells: DEFAULT_CELLS,
            fill_color: DEFAULT_FILL_COLOR,
            hold_time: DEFAULT_HOLD_TIME,
            look_ahead: 0,
            on_lost: OnLost::default(),
            on_missing: OnMissing::default(),
            post_messages: false,
        }
    }
}

impl RegionSettings {
    /// What decides which regions a frame has.
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

    /// Checks what GObject does not: the ranges of numbers, and zones.
    pub fn check(&self) -> Result<(), RegionError> {
        for (property, value, min, max) in [
            ("min-confidence", self.min_confidence, 0.0, 1.0),
            ("expand", self.expand, 0.0, EXPAND_MAX),
            ("feather", f64::from(self.edge.feather), 0.0, f64::from(EDGE_MAX)),
            ("grow", f64::from(self.edge.grow), f64::from(GROW_MIN), f64::from(EDGE_MAX)),
            ("strength", self.strength, 0.0, STRENGTH_MAX),
            ("cells", f64::from(self.cells), 1.0, f64::from(CELLS_MAX)),
            ("look-ahead", f64::from(self.look_ahead), 0.0, f64::from(LOOK_AHEAD_MAX)),
        ] {
            if !(min..=max).contains(&value) {
                return Err(RegionError::Number { property, value, min, max });
            }
        }
        Ok(self.zones.check()?)
    }

    /// The value of a property; `None` if this is no property of regions.
    pub fn get(&self, property: &str) -> Option<glib::Value> {
        Some(match property {
            "region-mode" => self.mode.to_value(),
            "region-sources" => self.sources.to_value(),
            "zones" => self.zones.to_array().to_value(),
            "labels" => self.labels.text().to_value(),
            "min-confidence" => self.min_confidence.to_value(),
            "expand" => self.expand.to_value(),
            "shape" => self.shape.to_value(),
            "feather" => self.edge.feather.to_value(),
            "grow" => self.edge.grow.to_value(),
            "cover" => self.cover.to_value(),
            "strength" => self.strength.to_value(),
            "cells" => self.cells.to_value(),
            "fill-color" => self.fill_color.to_value(),
            "hold-time" => self.hold_time.to_value(),
            "look-ahead" => self.look_ahead.to_value(),
            "on-lost" => self.on_lost.to_value(),
            "on-missing" => self.on_missing.to_value(),
            "post-messages" => self.post_messages.to_value(),
            _ => return None,
        })
    }

    /// The value of a property as text, for errors; empty if this is no property of regions.
    pub fn describe(&self, property: &str) -> String {
        let value = self.get(property);
        let number = value.as_ref().and_then(|value| value.get::<f64>().ok());
        let text = || value.as_ref().and_then(|value| value.serialize().ok()).map(String::from);
        number.map(|number| number.to_string()).or_else(text).unwrap_or_default()
    }

    /// Sets a property, to any value of its type. Returns its name; `None` if this is no property of regions.
    pub fn set(&mut self, property: &str, value: &glib::Value) -> Option<&'static str> {
        Some(match property {
            "region-mode" => put(&mut self.mode, value, "region-mode"),
            "region-sources" => put(&mut self.sources, value, "region-sources"),
            "zones" => {
                self.zones = Zones::parse(value.get().expect("an array"));
                "zones"
            }
            "labels" => {
                let text: Option<&str> = value.get().expect("a string");
                self.labels = Labels::parse(text.unwrap_or_default());
                "labels"
            }
            "min-confidence" => put(&mut self.min_confidence, value, "min-confidence"),
            "expand" => put(&mut self.expand, value, "expand"),
            "shape" => put(&mut self.shape, value, "shape"),
            "feather" => put(&mut self.edge.feather, value, "feather"),
            "grow" => put(&mut self.edge.grow, value, "grow"),
            "cover" => put(&mut self.cover, value, "cover"),
            "strength" => put(&mut self.strength, value, "strength"),
            "cells" => put(&mut self.cells, value, "cells"),
            "fill-color" => put(&mut self.fill_color, value, "fill-color"),
            "hold-time" => put(&mut self.hold_time, value, "hold-time"),
            "look-ahead" => put(&mut self.look_ahead, value, "look-ahead"),
            "on-lost" => put(&mut self.on_lost, value, "on-lost"),
            "on-missing" => put(&mut self.on_missing, value, "on-missing"),
            "post-messages" => put(&mut self.post_messages, value, "post-messages"),
            _ => return None,
        })
    }
}

/// Sets the field of a property. Returns its name.
fn put<T: for<'a> glib::value::FromValue<'a>>(
    field: &mut T,
    value: &glib::Value,
    property: &'static str,
) -> &'static str {
    *field = value.get().expect("GObject checks the type before it calls set_property");
    property
}

/// The properties.
pub fn param_specs() -> Vec<glib::ParamSpec> {
    vec![
        glib::ParamSpecEnum::builder::<RegionMode>("region-mode")
            .nick("Region mode")
            .blurb("What is covered: the whole picture, the regions, or all but the regions")
            .mutable_playing()
            .build(),
        glib::ParamSpecFlags::builder::<RegionSources>("region-sources")
            .nick("Region sources")
            .blurb(
                "Where regions come from; zones alone if no element before this one detects objects. alpha takes the frame's \
                    own alpha channel as a mask, whatever shape is",
            )
            .default_value(DEFAULT_SOURCES)
            .mutable_playing()
            .build(),
        // Without the type of its elements: GObject would refuse or drop wrong ones before they can be named in an error.
        gst::ParamSpecArray::builder("zones")
            .nick("Zones")
            .blurb(
                "Fixed places that are covered (region-mode=outside: shown), in fractions of the picture: <[zone,x=0.1,y=0.1,width=0.3,height=0.4]>; \
                    optional start and end are stream times in nanoseconds, and messages repeat an optional name",
            )
            .mutable_playing()
            .build(),
        glib::ParamSpecString::builder("labels")
            .nick("Labels")
            .blurb(
                "Labels of the detections that count, separated by commas; empty selects every label. A detection \
                    without a label always counts, except with region-mode=outside",
            )
            .default_value(Some(""))
            .mutable_playing()
            .build(),
        glib::ParamSpecDouble::builder("min-confidence")
            .nick("Minimum confidence")
            .blurb(
                "Detections with a confidence below it do not count, but keep an object covered that was found before at their \
                    place; those without a confidence count, except with region-mode=outside",
            )
            .minimum(0.0)
            .maximum(1.0)
            .default_value(0.0)
            .mutable_playing()
            .build(),
        glib::ParamSpecDouble::builder("expand")
            .nick("Expand")
            .blurb("How much detections grow on each side, as a share of their width and height")
            .minimum(0.0)
            .maximum(EXPAND_MAX)
            .default_value(DEFAULT_EXPAND)
            .controllable()
            .mutable_playing()
            .build(),
        glib::ParamSpecEnum::builder::<ObjectShape>("shape")
            .nick("Shape")
            .blurb(
                "Which part of a detection's or zone's rectangle is the object: all of it, the ellipse in it, or the mask that \
                    came with the detection (zones have none and stay boxes)",
            )
            .mutable_playing()
            .build(),
        glib::ParamSpecUInt::builder("feather")
            .nick("Feather")
            .blurb(
                "Width of the soft edge in pixels, on the side that is shown, in steps of the grid of weights (2 pixels up to \
                    512, 8 at 1080p, 16 at 4K)",
            )
            .maximum(EDGE_MAX)
            .default_value(0)
            .controllable()
            .mutable_playing()
            .build(),
        glib::ParamSpecInt::builder("grow")
            .nick("Grow")
            .blurb(
                "Pixels by which objects grow on each side, or shrink if it is negative, in addition to expand; one of which \
                    shrinking would leave nothing is covered whole",
            )
            .minimum(GROW_MIN)
            .maximum(EDGE_MAX as i32)
            .default_value(0)
            .controllable()
            .mutable_playing()
            .build(),
        glib::ParamSpecEnum::builder::<CoverKind>("cover")
            .nick("Cover")
            .blurb("What hides the regions. A blur is a look; to hide something, use mosaic with few cells or fill")
            .mutable_playing()
            .build(),
        glib::ParamSpecDouble::builder("strength")
            .nick("Strength")
            .blurb(
                "Least standard deviation of the blur of a region, as a share of the object's shorter side (before expand); \
                    overrides kernel-size; 0 uses sigma and kernel-size alone, as does region-mode=outside",
            )
            .minimum(0.0)
            .maximum(STRENGTH_MAX)
            .default_value(DEFAULT_STRENGTH)
            .controllable()
            .mutable_playing()
            .build(),
        glib::ParamSpecUInt::builder("cells")
            .nick("Cells")
            .blurb("Cells of the mosaic along the object's shorter side (before expand), of 8x8 pixels at least; fewer hide more")
            .minimum(1)
            .maximum(CELLS_MAX)
            .default_value(DEFAULT_CELLS)
            .mutable_playing()
            .build(),
        glib::ParamSpecUInt::builder("fill-color")
            .nick("Fill colour")
            .blurb("Colour of the fill as ARGB, 0xAARRGGBB; the default is opaque black")
            .default_value(DEFAULT_FILL_COLOR)
            .mutable_playing()
            .build(),
        glib::ParamSpecUInt64::builder("hold-time")
            .nick("Hold time")
            .blurb(
                "How long an object stays covered after its last detection, in nanoseconds, moving on as it moved; less for \
                    one that was seen briefly; nothing is held with region-mode=outside",
            )
            .default_value(DEFAULT_HOLD_TIME)
            .mutable_playing()
            .build(),
        glib::ParamSpecUInt::builder("look-ahead")
            .nick("Look-ahead")
            .blurb(
                "Frames that wait in the element, so that an object is covered before its first detection and between two; \
                    adds as many frames of latency, unless region-mode is frame",
            )
            .maximum(LOOK_AHEAD_MAX)
            .default_value(0)
            .mutable_ready()
            .build(),
        glib::ParamSpecEnum::builder::<OnLost>("on-lost")
            .nick("On lost")
            .blurb("What becomes of frames in which an object has been lost for longer than hold-time")
            .mutable_playing()
            .build(),
        glib::ParamSpecEnum::builder::<OnMissing>("on-missing")
            .nick("On missing")
            .blurb(
                "What becomes of a frame without any detector meta. Detectors that attach nothing when they find nothing \
                    (facedetect) need pass if such frames are to be visible",
            )
            .mutable_playing()
            .build(),
        glib::ParamSpecBoolean::builder("post-messages")
            .nick("Post messages")
            .blurb("Post an element message for each frame that says what was covered, unless region-mode is frame")
            .mutable_playing()
            .build(),
    ]
}
