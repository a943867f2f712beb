// SPDX-License-Identifier: MPL-2.0
//! The properties: names, ranges, defaults and validation. Those of regions are in `regions/settings`.

use std::sync::Arc;

use gst::glib;
use gst::prelude::*;

use super::regions::settings::{self as region_settings, RegionError, RegionSettings};
use super::unchecked_param_spec;
use crate::engine;
use crate::filter::plan::{self, Options, Selection};
use crate::filter::{BlurParams, KERNEL_SIZE_MAX, ParamError, SIGMA_MAX};

const DEFAULT_SIGMA: f64 = 1.5;
/// Upper limit of `max-in-flight`. 3 frames saturate the bus; more add latency and memory only.
const MAX_IN_FLIGHT: u32 = 16;

/// The type of `backend` and `active-backend`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstCudaGaussBlurBackend")]
pub enum Backend {
    #[default]
    #[enum_value(name = "CUDA if available, else the CPU", nick = "auto")]
    Auto,
    #[enum_value(name = "CUDA; an error if it is not available", nick = "cuda")]
    Cuda,
    #[enum_value(name = "The CPU", nick = "cpu")]
    Cpu,
}

impl From<Backend> for engine::Backend {
    fn from(backend: Backend) -> Self {
        match backend {
            Backend::Auto => Self::Auto,
            Backend::Cuda => Self::Cuda,
            Backend::Cpu => Self::Cpu,
        }
    }
}

impl From<engine::Backend> for Backend {
    fn from(backend: engine::Backend) -> Self {
        match backend {
            engine::Backend::Auto => Self::Auto,
            engine::Backend::Cuda => Self::Cuda,
            engine::Backend::Cpu => Self::Cpu,
        }
    }
}

/// The type of `planes`.
#[glib::flags(name = "GstCudaGaussBlurPlanes")]
pub enum ChannelFlags {
    #[flags_value(name = "Luma, grey, red, green and blue", nick = "luma")]
    LUMA = 1,
    #[flags_value(name = "Colour difference (U and V)", nick = "chroma")]
    CHROMA = 2,
    #[flags_value(name = "Alpha", nick = "alpha")]
    ALPHA = 4,
    #[flags_value(name = "All channels", nick = "all")]
    ALL = 7,
}

/// The type of `alpha`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstCudaGaussBlurAlpha")]
pub enum Alpha {
    #[default]
    #[enum_value(name = "Each channel is blurred independently", nick = "straight")]
    Straight,
    #[enum_value(
        name = "Colour is weighted by alpha, so that transparent pixels do not bleed into opaque ones",
        nick = "premultiply"
    )]
    Premultiply,
}

impl From<Alpha> for plan::AlphaMode {
    fn from(alpha: Alpha) -> Self {
        match alpha {
            Alpha::Straight => Self::Straight,
            Alpha::Premultiply => Self::Premultiply,
        }
    }
}

/// The values of the writable properties. Before start, they may be invalid; start then fails.
#[derive(Debug, Clone)]
pub struct Settings {
    pub sigma: f64,
    pub kernel_size: u32,
    pub planes: ChannelFlags,
    pub alpha: Alpha,
    pub backend: Backend,
    pub cuda_device_id: i32,
    pub max_in_flight: u32,
    /// Shared, because the settings are copied for every frame and these have lists.
    pub regions: Arc<RegionSettings>,
    /// Set between start and stop, when invalid values and changes of what start uses are refused.
    pub started: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            sigma: DEFAULT_SIGMA,
            kernel_size: 0,
            planes: ChannelFlags::ALL,
            alpha: Alpha::Straight,
            backend: Backend::Auto,
            cuda_device_id: -1,
            max_in_flight: 1,
            regions: Arc::default(),
            started: false,
        }
    }
}

/// Values of properties that cannot be used.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum SettingsError {
    #[error(transparent)]
    Param(#[from] ParamError),
    #[error(transparent)]
    Region(#[from] RegionError),
    #[error(
        "cuda-device-id={0} cannot be used: it must be the number of a device, or -1 for the context of the pipeline, else \
         device 0"
    )]
    Device(i32),
    #[error("max-in-flight={0} cannot be used: it must be a number from 1 to {MAX_IN_FLIGHT}")]
    MaxInFlight(u32),
}

/// Why a property keeps its value.
#[derive(Debug, thiserror::Error)]
pub enum PropertyError {
    #[error("{error}; {property} stays {current}")]
    Value { error: SettingsError, property: &'static str, current: String },
    #[error("{property} can be changed only while the element is stopped (NULL or READY); it stays {current}")]
    Started { property: &'static str, current: String },
}

impl PropertyError {
    /// The name of the property.
    pub fn property(&self) -> &'static str {
        match self {
            Self::Value { property, .. } | Self::Started { property, .. } => property,
        }
    }
}

impl Settings {
    /// How frames are blurred.
    pub fn options(&self) -> Result<Options, ParamError> {
        let [primary, chroma, alpha] =
            [ChannelFlags::LUMA, ChannelFlags::CHROMA, ChannelFlags::ALPHA].map(|one| self.planes.contains(one));
        let params = BlurParams::new(self.sigma, self.kernel_size)?;
        Ok(Options { params, planes: Selection { primary, chroma, alpha }, alpha: self.alpha.into() })
    }

    /// The device that `cuda-device-id` selects; `None` for -1.
    pub fn cuda_device(&self) -> Option<u32> {
        u32::try_from(self.cuda_device_id).ok()
    }

    /// How frames are blurred, if all settings are valid. GObject does not check ranges, see `unchecked_param_spec`.
    fn check(&self) -> Result<Options, SettingsError> {
        if self.cuda_device_id < -1 {
            return Err(SettingsError::Device(self.cuda_device_id));
        }
        if !(1..=MAX_IN_FLIGHT).contains(&self.max_in_flight) {
            return Err(SettingsError::MaxInFlight(self.max_in_flight));
        }
        self.regions.check()?;
        Ok(self.options()?)
    }

    /// Validates the settings and marks them as started.
    pub fn start(&mut self) -> Result<Options, SettingsError> {
        let options = self.check()?;
        self.started = true;
        Ok(options)
    }

    /// The value of a writable property.
    pub fn get(&self, property: &str) -> glib::Value {
        match property {
            "sigma" => self.sigma.to_value(),
            "kernel-size" => self.kernel_size.to_value(),
            "planes" => self.planes.to_value(),
            "alpha" => self.alpha.to_value(),
            "backend" => self.backend.to_value(),
            "cuda-device-id" => self.cuda_device_id.to_value(),
            "max-in-flight" => self.max_in_flight.to_value(),
            other => self.regions.get(other).unwrap_or_else(|| unreachable!("no property {other}")),
        }
    }

    /// Sets a property. On an error it keeps its value.
    pub fn set(&mut self, property: &str, value: &glib::Value) -> Result<(), PropertyError> {
        let mut changed = self.clone();
        // GObject checks name and type before it calls set_property.
        let (property, current) = match property {
            "sigma" => {
                changed.sigma = value.get().expect("a double");
                ("sigma", self.sigma.to_string())
            }
            "kernel-size" => {
                changed.kernel_size = value.get().expect("a uint");
                ("kernel-size", self.kernel_size.to_string())
            }
            "planes" => {
                changed.planes = value.get().expect("planes");
                ("planes", format!("{:?}", self.planes).to_lowercase())
            }
            "alpha" => {
                changed.alpha = value.get().expect("an alpha");
                ("alpha", format!("{:?}", self.alpha).to_lowercase())
            }
            "backend" => {
                changed.backend = value.get().expect("a backend");
                ("backend", format!("{:?}", self.backend).to_lowercase())
            }
            "cuda-device-id" => {
                changed.cuda_device_id = value.get().expect("an int");
                ("cuda-device-id", self.cuda_device_id.to_string())
            }
            "max-in-flight" => {
                changed.max_in_flight = value.get().expect("a uint");
                ("max-in-flight", self.max_in_flight.to_string())
            }
            other => {
                let set = Arc::make_mut(&mut changed.regions).set(other, value);
                let property = set.unwrap_or_else(|| unreachable!("no writable property {other}"));
                (property, self.regions.describe(property))
            }
        };
        if self.started {
            let fixed = |settings: &Self| {
                (settings.backend, settings.cuda_device_id, settings.max_in_flight, settings.regions.look_ahead)
            };
            if fixed(&changed) != fixed(self) {
                return Err(PropertyError::Started { property, current });
            }
            if let Err(error) = changed.check() {
                return Err(PropertyError::Value { error, property, current });
            }
        }
        *self = changed;
        Ok(())
    }
}

/// All properties of the element.
pub fn param_specs() -> Vec<glib::ParamSpec> {
    let mut properties = vec![
        glib::ParamSpecDouble::builder("sigma")
            .nick("Sigma")
            .blurb("Standard deviation of the Gaussian in pixels; 0 passes frames through unchanged")
            .maximum(SIGMA_MAX)
            .minimum(0.0)
            .default_value(DEFAULT_SIGMA)
            .controllable()
            .mutable_playing()
            .build(),
        glib::ParamSpecUInt::builder("kernel-size")
            .nick("Kernel size")
            .blurb(
                "Taps per axis, an odd number; 0 follows sigma: a radius of 4 sigma below 3.5, decimation and \
                    interpolation from 3.5 on",
            )
            .maximum(KERNEL_SIZE_MAX)
            .default_value(0)
            .mutable_playing()
            .build(),
        glib::ParamSpecFlags::builder::<ChannelFlags>("planes")
            .nick("Planes")
            .blurb("Channels to blur; the others keep their values. Without any, frames pass through unchanged")
            .default_value(ChannelFlags::ALL)
            .mutable_playing()
            .build(),
        glib::ParamSpecEnum::builder::<Alpha>("alpha")
            .nick("Alpha")
            .blurb("How alpha affects colour, in formats with alpha; straight with a region-mode other than frame")
            .mutable_playing()
            .build(),
        glib::ParamSpecEnum::builder::<Backend>("backend")
            .nick("Backend")
            .blurb("Backend; auto uses CUDA if available, else the CPU. The output is the same")
            .mutable_ready()
            .build(),
        glib::ParamSpecInt::builder("cuda-device-id")
            .nick("CUDA device ID")
            .blurb("CUDA device; -1 uses the CUDA context of the pipeline if it has one, else device 0")
            .minimum(-1)
            .default_value(-1)
            .mutable_ready()
            .build(),
        glib::ParamSpecUInt::builder("max-in-flight")
            .nick("Max in flight")
            .blurb(
                "Frames in host memory that may be in flight on the device at once; each beyond 1 adds a frame of \
                    latency, and 3 saturate the bus",
            )
            .minimum(1)
            .maximum(MAX_IN_FLIGHT)
            .default_value(1)
            .mutable_ready()
            .build(),
        glib::ParamSpecEnum::builder::<Backend>("active-backend")
            .nick("Active backend")
            .blurb("Backend in use: cuda or cpu; auto while the element is stopped")
            .read_only()
            .build(),
        glib::ParamSpecBoxed::builder::<gst::Structure>("stats")
            .nick("Statistics")
            .blurb(
                "Counters of frames and bytes, and times of upload, kernel and download, since start. docs/PERFORMANCE.md \
                    lists the fields",
            )
            .read_only()
            .build(),
    ];
    properties.append(&mut region_settings::param_specs());
    properties.into_iter().map(unchecked_param_spec::checked_by_element).collect()
}
