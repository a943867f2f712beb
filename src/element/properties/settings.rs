// SPDX-License-Identifier: MPL-2.0
//! The values of the properties. Those of regions are in `regions/settings`; `properties` has their names, ranges and defaults.

use std::sync::Arc;

use gst::glib;

use crate::element::regions::settings::RegionSettings;
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
}
