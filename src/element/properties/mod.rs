// SPDX-License-Identifier: MPL-2.0
//! The table of properties, the only place that names them: what GObject knows of each, and the field that has its value. Also how
//! a value is checked and set.

pub mod settings;
mod unchecked_param_spec;

use std::ops::RangeInclusive;
use std::sync::{Arc, LazyLock};

use gst::ParamSpecArray;
use gst::glib::{self, ParamSpec, ParamSpecBoolean, ParamSpecBoxed, ParamSpecDouble, ParamSpecEnum, ParamSpecFlags};
use gst::glib::{ParamSpecInt, ParamSpecString, ParamSpecUInt, ParamSpecUInt64};
use gst::prelude::*;

use self::settings::{Alpha, Backend, ChannelFlags, Settings};
use crate::element::regions::settings::{CoverKind, ObjectShape, OnLost, OnMissing, RegionMode, RegionSources};
use crate::element::regions::zones::{ZoneError, Zones};
use crate::filter::mosaic::CELLS_MAX;
use crate::filter::plan::Options;
use crate::filter::{KERNEL_SIZE_MAX, ParamError, SIGMA_MAX};
use crate::regions::detection::Labels;

/// A writable property of the element.
pub struct Property {
    /// Its name, range, default, and when it may change. GObject checks the range of this one, see [`param_specs`].
    pub spec: &'static ParamSpec,
    field: Accessor,
}

/// The field that has the value of a property. One accessor serves reading and writing.
type Accessor = fn(&mut Settings) -> &mut dyn Field;

/// A field as the value of its property. Setting it accepts every value of the type; start refuses those that are not valid.
trait Field {
    fn get(&self) -> glib::Value;
    fn set(&mut self, value: &glib::Value);
}

/// GObject checks the type before it calls set_property.
const TYPE_IS_CHECKED: &str = "the type of the property";

impl<T: ToValue + for<'a> glib::value::FromValue<'a>> Field for T {
    fn get(&self) -> glib::Value {
        self.to_value()
    }

    fn set(&mut self, value: &glib::Value) {
        *self = value.get().expect(TYPE_IS_CHECKED);
    }
}

impl Field for Labels {
    fn get(&self) -> glib::Value {
        self.text().to_value()
    }

    fn set(&mut self, value: &glib::Value) {
        *self = Self::parse(value.get::<Option<&str>>().expect(TYPE_IS_CHECKED).unwrap_or_default());
    }
}

impl Field for Zones {
    fn get(&self) -> glib::Value {
        self.as_array().to_value()
    }

    fn set(&mut self, value: &glib::Value) {
        *self = Self::parse(&value.get().expect(TYPE_IS_CHECKED));
    }
}

impl Property {
    /// All writable properties.
    pub fn all() -> impl Iterator<Item = Self> {
        PROPERTIES.iter().filter_map(|(spec, field)| Some(Self { spec, field: (*field)? }))
    }

    /// The writable property of this name.
    pub fn named(name: &str) -> Self {
        Self::all().find(|property| property.spec.name() == name).unwrap_or_else(|| unreachable!("no property {name}"))
    }

    /// Whether it can be changed only while the element is stopped.
    pub fn is_fixed(&self) -> bool {
        self.spec.flags().contains(gst::PARAM_FLAG_MUTABLE_READY)
    }

    /// Its value. The settings stay as they are.
    pub fn get(&self, settings: &mut Settings) -> glib::Value {
        (self.field)(settings).get()
    }

    /// Sets it, to any value of its type.
    pub fn set(&self, settings: &mut Settings, value: &glib::Value) {
        (self.field)(settings).set(value);
    }

    /// Its value as text, for messages.
    pub fn text(&self, settings: &mut Settings) -> String {
        let value = self.get(settings);
        match value.get::<f64>() {
            Ok(number) => number.to_string(),
            Err(_) => value.serialize().map(String::from).unwrap_or_default(),
        }
    }

    /// Its value and its range, if it is a number that has less than the range of its type.
    pub fn number(&self, settings: &mut Settings) -> Option<(f64, RangeInclusive<f64>)> {
        let spec = self.spec;
        let double = spec.downcast_ref().map(|spec: &ParamSpecDouble| spec.minimum()..=spec.maximum());
        let int = || spec.downcast_ref().map(|spec: &ParamSpecInt| spec.minimum().into()..=spec.maximum().into());
        let uint = || spec.downcast_ref().map(|spec: &ParamSpecUInt| spec.minimum().into()..=spec.maximum().into());
        let range = double.or_else(int).or_else(uint)?;
        Some((self.get(settings).transform::<f64>().ok()?.get().ok()?, range))
    }
}

/// All properties, without the range check of GObject, which would clamp or drop a value before the element can refuse it.
pub fn param_specs() -> Vec<ParamSpec> {
    PROPERTIES.iter().map(|(spec, _)| unchecked_param_spec::checked_by_element(spec.clone())).collect()
}

/// Each row is `field => builder, nick, blurb;`. A read-only property has no field: the element knows its value.
macro_rules! properties {
    ($($field:expr => $builder:expr, $nick:literal, $blurb:literal;)+) => {
        vec![$(($builder.nick($nick).blurb($blurb).build(), $field)),+]
    };
}

/// The properties in the order in which GObject lists them.
static PROPERTIES: LazyLock<Vec<(ParamSpec, Option<Accessor>)>> = LazyLock::new(|| {
    properties! {
        Some(|s| &mut s.sigma) => ParamSpecDouble::builder("sigma")
            .minimum(0.0).maximum(SIGMA_MAX).default_value(1.5).controllable().mutable_playing(),
            "Sigma", "Standard deviation of the Gaussian in pixels; 0 passes frames through unchanged if \
            region-mode=frame";
        Some(|s| &mut s.kernel_size) => ParamSpecUInt::builder("kernel-size")
            .maximum(KERNEL_SIZE_MAX).mutable_playing(),
            "Kernel size", "Number of taps per axis: an odd number, or 0. n taps have a radius of (n - 1) / 2 \
            pixels. 0 derives the number from sigma: below 3.5 the radius is 4 sigma, and from 3.5 on the blur works \
            on smaller copies of the picture, which takes less time";
        Some(|s| &mut s.planes) => ParamSpecFlags::builder("planes").default_value(ChannelFlags::ALL).mutable_playing(),
            "Planes", "Channels to blur; the others keep their values. cover=mosaic and cover=fill ignore this \
            property and cover every channel, alpha included";
        Some(|s| &mut s.alpha) => ParamSpecEnum::builder::<Alpha>("alpha").mutable_playing(),
            "Alpha", "How the blur treats colour in formats with alpha. straight: each channel is blurred by itself; \
            premultiply: each colour is weighted by its alpha, and stays as it is where all alpha nearby is 0. Only \
            region-mode=frame uses it: regions are always blurred as with straight";
        Some(|s| &mut s.backend) => ParamSpecEnum::builder::<Backend>("backend").mutable_ready(),
            "Backend", "Backend; auto uses CUDA if available, else the CPU. The output is the same";
        Some(|s| &mut s.cuda_device_id) => ParamSpecInt::builder("cuda-device-id")
            .minimum(-1).default_value(-1).mutable_ready(),
            "CUDA device ID", "CUDA device; -1 uses the CUDA context of the pipeline if it has one, else device 0";
        // 3 frames saturate the bus; more add latency and memory only.
        Some(|s| &mut s.max_in_flight) => ParamSpecUInt::builder("max-in-flight")
            .minimum(1).maximum(16).default_value(1).mutable_ready(),
            "Max in flight", "Number of frames in host memory that the GPU may work on at once (upload, blur and \
            download). Each frame beyond 1 adds a frame of latency. 3 frames are enough to use the full speed of the \
            PCIe bus";
        None => ParamSpecEnum::builder::<Backend>("active-backend").read_only(),
            "Active backend", "Backend in use: cuda or cpu; auto while the element is stopped";
        None => ParamSpecBoxed::builder::<gst::Structure>("stats").read_only(),
            "Statistics", "Counters of frames and bytes, and times of upload, kernel and download, since start. \
            The section 'The stats property' of docs/PROPERTIES.md lists the fields";
        Some(|s| &mut s.regions_mut().mode) => ParamSpecEnum::builder::<RegionMode>("region-mode").mutable_playing(),
            "Region mode", "frame: blur the whole picture, whatever cover is; inside: cover the regions, which are \
            zones and detected objects; outside: cover everything but the regions";
        Some(|s| &mut s.regions_mut().sources) => ParamSpecFlags::builder("region-sources")
            .default_value(RegionSources::default()).mutable_playing(),
            "Region sources", "Where regions come from. zones: the property; roi and analytics: the metas of \
            detectors; alpha: the frame's alpha channel is the mask of a region, and shape does not apply to it";
        // Without the type of its elements: GObject would refuse or drop wrong ones before they can be named in an error.
        Some(|s| &mut s.regions_mut().zones) => ParamSpecArray::builder("zones").mutable_playing(),
            "Zones", "Rectangles at fixed places, which are covered (with region-mode=outside: shown). x, y, width \
            and height are fractions of the picture's width and height: <[zone,x=0.1,y=0.1,width=0.3,height=0.4]>. \
            Optional fields are start and end, which are stream times in seconds, and name, which messages repeat. In \
            files whose frames may be shown for longer than their durations say, set look-ahead=1, so that a frame shown from \
            before start until after it is covered";
        Some(|s| &mut s.regions_mut().labels) => ParamSpecString::builder("labels")
            .default_value(Some("")).mutable_playing(),
            "Labels", "Comma-separated labels of the detections to select; empty selects all. A detection without a \
            label is always selected with region-mode=inside; with region-mode=outside it is selected only if labels is \
            empty";
        Some(|s| &mut s.regions_mut().min_confidence) => ParamSpecDouble::builder("min-confidence")
            .minimum(0.0).maximum(1.0).mutable_playing(),
            "Minimum confidence", "Lowest confidence with which a detection starts a cover. Weaker detections only \
            continue an object that was detected before. A detection that has no confidence starts a cover, too. \
            With region-mode=outside, weaker detections are not shown; if the value is above 0, detections without a \
            confidence are not shown either";
        Some(|s| &mut s.regions_mut().expand) => ParamSpecDouble::builder("expand")
            .minimum(0.0).maximum(4.0).default_value(0.2).controllable().mutable_playing(),
            "Expand", "How much detections grow on each side, as a share of their width and height";
        Some(|s| &mut s.regions_mut().shape) => ParamSpecEnum::builder::<ObjectShape>("shape").mutable_playing(),
            "Shape", "Shape of each region within the box of its detection or zone. box: the whole box; ellipse: the \
            ellipse in it; mask: the mask of the detection (zones are boxes then)";
        Some(|s| &mut s.regions_mut().edge.feather) => ParamSpecUInt::builder("feather")
            .maximum(256).controllable().mutable_playing(),
            "Feather", "Width of the soft edge in pixels. The soft edge lies outside of the covered part, so it changes \
            a strip of the shown part. The width is rounded up to a multiple of 2 if the longer side of the frame has up \
            to 512 pixels, of 4 up to 1024, of 8 up to 2048, and so on";
        Some(|s| &mut s.regions_mut().edge.grow) => ParamSpecInt::builder("grow")
            .minimum(-64).maximum(256).controllable().mutable_playing(),
            "Grow", "Pixels that are added to regions on each side, after expand. A negative value shrinks regions; \
            a covered region of which nothing would be left is not shrunk";
        Some(|s| &mut s.regions_mut().cover) => ParamSpecEnum::builder::<CoverKind>("cover").mutable_playing(),
            "Cover", "How regions are covered. A blur is only a visual effect; to hide something, use fill, or mosaic \
            with few cells";
        Some(|s| &mut s.regions_mut().strength) => ParamSpecDouble::builder("strength")
            .minimum(0.0).maximum(2.0).default_value(0.25).controllable().mutable_playing(),
            "Strength", "Share of the shorter side of the object or zone (before expand) that sigma has at least. If this \
            product is above sigma, it is rounded up to the next 2^(k/4) with a whole k and used in place of sigma. \
            kernel-size is ignored. If strength is 0, or for the background with region-mode=outside, sigma and \
            kernel-size alone determine the blur";
        Some(|s| &mut s.regions_mut().cells) => ParamSpecUInt::builder("cells")
            .minimum(1).maximum(CELLS_MAX).default_value(6).mutable_playing(),
            "Cells", "Number of mosaic cells along the shorter side of the object or zone (before expand), or of the \
            picture with region-mode=outside. Cells are squares of at least 8x8 pixels; fewer cells hide more";
        Some(|s| &mut s.regions_mut().fill_color) => ParamSpecUInt::builder("fill-color")
            .default_value(0xff00_0000).mutable_playing(),
            "Fill colour", "Colour of the fill as ARGB, 0xAARRGGBB; the default is opaque black";
        Some(|s| &mut s.regions_mut().hold_time) => ParamSpecUInt64::builder("hold-time")
            .default_value(3_000_000_000).mutable_playing(),
            "Hold time", "Longest time, in nanoseconds, for which an object that is no longer detected stays covered \
            at its predicted place. It stays covered for eight times the time from its first to its last detection, for \
            at least 0.3 s, but never for longer than hold-time, which has to be longer than the time between two searches of \
            the detector. Unused with region-mode=outside";
        Some(|s| &mut s.regions_mut().look_ahead) => ParamSpecUInt::builder("look-ahead").maximum(120).mutable_ready(),
            "Look-ahead", "Number of frames by which the video is delayed, so that an object is also covered in the \
            frames before its first detection, and in frames between two detections. There is no delay if \
            region-mode=frame";
        Some(|s| &mut s.regions_mut().on_lost) => ParamSpecEnum::builder::<OnLost>("on-lost").mutable_playing(),
            "On lost", "What happens when an object was not detected again before the end of its hold (hold-time). release: \
            its place is shown; cover: the whole frame is covered until the object is detected again or another object \
            with its label replaces it. For an object detected in one frame only, this ends hold-time after that frame";
        Some(|s| &mut s.regions_mut().on_missing) => ParamSpecEnum::builder::<OnMissing>("on-missing")
            .mutable_playing(),
            "On missing", "What happens to a frame without metas of a detector. Detectors should attach one to every frame, \
            a box of no size if they find nothing; set pass for those that do not (facedetect)";
        Some(|s| &mut s.regions_mut().post_messages) => ParamSpecBoolean::builder("post-messages").mutable_playing(),
            "Post messages", "Post an element message for each frame, which says what was covered. None is posted if \
            region-mode is frame";
    }
});

impl Default for Settings {
    fn default() -> Self {
        let mut settings = Self {
            sigma: 0.0,
            kernel_size: 0,
            planes: ChannelFlags::empty(),
            alpha: Alpha::default(),
            backend: Backend::default(),
            cuda_device_id: 0,
            max_in_flight: 0,
            regions: Arc::default(),
            started: false,
        };
        Property::all().for_each(|property| property.set(&mut settings, property.spec.default_value()));
        settings
    }
}

/// Values of properties that cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SettingsError {
    #[error(transparent)]
    Param(#[from] ParamError),
    #[error(transparent)]
    Zone(#[from] ZoneError),
    #[error(
        "cuda-device-id={0} cannot be used: it must be the number of a device, or -1 for the context of the pipeline, else \
         device 0"
    )]
    Device(i32),
    #[error("{property}={value} cannot be used: it must be a number from {min} to {max}")]
    Number { property: &'static str, value: f64, min: f64, max: f64 },
    #[error("{0} can be changed only while the element is stopped (NULL or READY)")]
    Started(&'static str),
}

/// Why a property keeps its value.
#[derive(Debug, thiserror::Error)]
#[error("{error}; {} stays {current}", if matches!(error, SettingsError::Started(_)) { "it" } else { property })]
pub struct PropertyError {
    pub property: &'static str,
    error: SettingsError,
    current: String,
}

impl Settings {
    /// How frames are blurred, if all settings are valid. GObject does not check ranges, see `unchecked_param_spec`.
    fn check(&self) -> Result<Options, SettingsError> {
        if self.cuda_device_id < -1 {
            return Err(SettingsError::Device(self.cuda_device_id));
        }
        let options = self.options()?;
        let mut copy = self.clone();
        for property in Property::all() {
            if let Some((value, range)) = property.number(&mut copy)
                && !range.contains(&value)
            {
                let (min, max) = range.into_inner();
                return Err(SettingsError::Number { property: property.spec.name(), value, min, max });
            }
        }
        self.regions.zones.check()?;
        Ok(options)
    }

    /// Validates the settings and marks them as started.
    pub fn start(&mut self) -> Result<Options, SettingsError> {
        let options = self.check()?;
        self.started = true;
        Ok(options)
    }

    /// The value of a writable property.
    pub fn get(mut self, property: &str) -> glib::Value {
        Property::named(property).get(&mut self)
    }

    /// Sets a property. On an error it keeps its value.
    pub fn set(&mut self, property: &str, value: &glib::Value) -> Result<(), PropertyError> {
        let row = Property::named(property);
        let mut changed = self.clone();
        row.set(&mut changed, value);
        if self.started {
            let (property, current) = (row.spec.name(), row.text(self));
            let is_fixed = row.is_fixed() && row.text(&mut changed) != current;
            let checked = if is_fixed { Err(SettingsError::Started(property)) } else { changed.check().map(drop) };
            checked.map_err(|error| PropertyError { property, error, current })?;
        }
        *self = changed;
        Ok(())
    }
}
