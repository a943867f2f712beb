// SPDX-License-Identifier: MPL-2.0
//! The values of the properties and their validation. Those of regions are in `regions/settings`; `properties` has their
//! names, ranges and defaults.

use std::sync::Arc;

use gst::glib;

use super::properties::Property;
use super::regions::settings::RegionSettings;
use super::regions::zones::ZoneError;
use crate::engine;
use crate::filter::plan::{AlphaMode, Options, Selection};
use crate::filter::{BlurParams, ParamError};

/// The type of `backend` and `active-backend`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstCudaGaussBlurBackend")]
pub enum Backend {
    #[default]
    #[enum_value(name = "CUDA if available, else the CPU")]
    Auto,
    #[enum_value(name = "CUDA; an error if it is not available")]
    Cuda,
    #[enum_value(name = "The CPU")]
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
    #[flags_value(name = "Luma, grey, red, green and blue")]
    LUMA = 1,
    #[flags_value(name = "Colour difference (U and V)")]
    CHROMA = 2,
    #[flags_value(name = "Alpha")]
    ALPHA = 4,
    #[flags_value(name = "All channels")]
    ALL = 7,
}

/// The type of `alpha`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstCudaGaussBlurAlpha")]
pub enum Alpha {
    #[default]
    #[enum_value(name = "Each channel is blurred independently")]
    Straight,
    #[enum_value(name = "Colour is weighted by alpha, so that transparent pixels do not bleed into opaque ones")]
    Premultiply,
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
    /// The settings of regions, to change them.
    pub fn regions_mut(&mut self) -> &mut RegionSettings {
        Arc::make_mut(&mut self.regions)
    }

    /// How frames are blurred.
    pub fn options(&self) -> Result<Options, ParamError> {
        let [primary, chroma, alpha] =
            [ChannelFlags::LUMA, ChannelFlags::CHROMA, ChannelFlags::ALPHA].map(|one| self.planes.contains(one));
        let params = BlurParams::new(self.sigma, self.kernel_size)?;
        let mode = if self.alpha == Alpha::Premultiply { AlphaMode::Premultiply } else { AlphaMode::Straight };
        Ok(Options { params, planes: Selection { primary, chroma, alpha }, alpha: mode })
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
