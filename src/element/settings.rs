// SPDX-License-Identifier: MPL-2.0
//! The properties: what they are called, what they take, and what they come to.

use gst::glib;
use gst::prelude::*;

use crate::engine;
use crate::filter::{BlurParams, KERNEL_SIZE_MAX, ParamError, SIGMA_MAX};
use crate::plan::{self, Options, Selection};

const DEFAULT_SIGMA: f64 = 1.5;
/// More frames on their way take memory and time, and nothing gets faster.
const MAX_IN_FLIGHT: u32 = 16;

/// `backend` and `active-backend`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstCudaGaussBlurBackend")]
pub enum Backend {
    #[default]
    #[enum_value(name = "CUDA if it works on this machine, else the CPU", nick = "auto")]
    Auto,
    #[enum_value(name = "CUDA, or an error", nick = "cuda")]
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

/// `planes`.
#[glib::flags(name = "GstCudaGaussBlurPlanes")]
pub enum Planes {
    #[flags_value(name = "Luma, grey, red, green and blue", nick = "luma")]
    LUMA = 1,
    #[flags_value(name = "Colour difference (U and V)", nick = "chroma")]
    CHROMA = 2,
    #[flags_value(name = "Alpha", nick = "alpha")]
    ALPHA = 4,
    #[flags_value(name = "All of them", nick = "all")]
    ALL = 7,
}

/// `alpha`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, glib::Enum)]
#[enum_type(name = "GstCudaGaussBlurAlpha")]
pub enum Alpha {
    #[default]
    #[enum_value(name = "Every channel is blurred for itself", nick = "straight")]
    Straight,
    #[enum_value(name = "Colour is weighed by alpha, so that what is transparent does not bleed", nick = "premultiply")]
    Premultiply,
}

impl From<Alpha> for plan::Alpha {
    fn from(alpha: Alpha) -> Self {
        match alpha {
            Alpha::Straight => Self::Straight,
            Alpha::Premultiply => Self::Premultiply,
        }
    }
}

/// The writable properties as they read back. Before start they may hold values that cannot be used.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub sigma: f64,
    pub kernel_size: u32,
    pub planes: Planes,
    pub alpha: Alpha,
    pub backend: Backend,
    pub cuda_device_id: i32,
    pub max_in_flight: u32,
    /// Between start and stop: only what can be used is taken, and what is chosen at start stays.
    pub started: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            sigma: DEFAULT_SIGMA,
            kernel_size: 0,
            planes: Planes::ALL,
            alpha: Alpha::Straight,
            backend: Backend::Auto,
            cuda_device_id: -1,
            max_in_flight: 1,
            started: false,
        }
    }
}

/// Why a property was not changed.
#[derive(Debug, thiserror::Error)]
pub enum Refused {
    #[error("{error}; {property} stays {kept}")]
    Value { error: ParamError, property: &'static str, kept: String },
    #[error("{property} can be changed only while the element is stopped (NULL or READY); it stays {kept}")]
    Started { property: &'static str, kept: String },
}

impl Settings {
    /// What a frame is blurred with.
    pub fn options(&self) -> Result<Options, ParamError> {
        let [luma, chroma, alpha] = [Planes::LUMA, Planes::CHROMA, Planes::ALPHA].map(|one| self.planes.contains(one));
        let params = BlurParams::new(self.sigma, self.kernel_size)?;
        Ok(Options { params, planes: Selection { luma, chroma, alpha }, alpha: self.alpha.into() })
    }

    /// The device that `cuda-device-id` names, if it names one.
    pub fn cuda_device(&self) -> Option<u32> {
        u32::try_from(self.cuda_device_id).ok()
    }

    /// Takes a property's new value, or keeps the old one and says why.
    pub fn set(&mut self, property: &str, value: &glib::Value) -> Result<(), Refused> {
        let mut changed = *self;
        // GObject has checked the name and the type.
        let (property, kept) = match property {
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
            other => unreachable!("no writable property {other}"),
        };
        if self.started {
            let fixed = |settings: &Self| (settings.backend, settings.cuda_device_id, settings.max_in_flight);
            if fixed(&changed) != fixed(self) {
                return Err(Refused::Started { property, kept });
            }
            if let Err(error) = changed.options() {
                return Err(Refused::Value { error, property, kept });
            }
        }
        *self = changed;
        Ok(())
    }
}

/// The properties as `gst-inspect-1.0` shows them.
pub fn param_specs() -> Vec<glib::ParamSpec> {
    vec![
        glib::ParamSpecDouble::builder("sigma")
            .nick("Sigma")
            .blurb("Standard deviation of the Gaussian in pixels; 0 passes frames through untouched")
            .maximum(SIGMA_MAX)
            .minimum(0.0)
            .default_value(DEFAULT_SIGMA)
            .controllable()
            .mutable_playing()
            .build(),
        glib::ParamSpecUInt::builder("kernel-size")
            .nick("Kernel size")
            .blurb("Taps per axis, an odd number; 0 follows sigma with a radius of 4 sigma")
            .maximum(KERNEL_SIZE_MAX)
            .default_value(0)
            .mutable_playing()
            .build(),
        glib::ParamSpecFlags::builder::<Planes>("planes")
            .nick("Planes")
            .blurb("What is blurred; the rest stays as it is, nothing at all passes frames through untouched")
            .default_value(Planes::ALL)
            .mutable_playing()
            .build(),
        glib::ParamSpecEnum::builder::<Alpha>("alpha")
            .nick("Alpha")
            .blurb("What alpha means for colour, in formats that have it")
            .mutable_playing()
            .build(),
        glib::ParamSpecEnum::builder::<Backend>("backend")
            .nick("Backend")
            .blurb("What blurs; auto takes CUDA if it works on this machine, else the CPU. All give the same bytes")
            .mutable_ready()
            .build(),
        glib::ParamSpecInt::builder("cuda-device-id")
            .nick("Cuda Device ID")
            .blurb("CUDA device to use; -1 takes the pipeline's CUDA context if it has one, else device 0")
            .minimum(-1)
            .default_value(-1)
            .mutable_ready()
            .build(),
        glib::ParamSpecUInt::builder("max-in-flight")
            .nick("Max in flight")
            .blurb(
                "Frames in host memory that may be on their way through the device at once; beyond 1 each adds a frame of \
                    latency, and 3 are enough for the full speed of the bus",
            )
            .minimum(1)
            .maximum(MAX_IN_FLIGHT)
            .default_value(1)
            .mutable_ready()
            .build(),
        glib::ParamSpecEnum::builder::<Backend>("active-backend")
            .nick("Active backend")
            .blurb("What blurs now: cuda or cpu; auto while the element is stopped")
            .read_only()
            .build(),
        glib::ParamSpecBoxed::builder::<gst::Structure>("stats")
            .nick("Statistics")
            .blurb(
                "Frames and times since start: frames, frames-cuda, frames-cpu, frames-passthrough; of those by CUDA \
                    frames-on-device, which stayed there, frames-pinned-in and frames-pinned-out, which came or left in \
                    pinned memory, and bytes-copied by the CPU, 0 for all of these; kernel, what blurs; \
                    compiling, compile-last-ns and compile-last-from, of kernels for single sizes; \
                    upload-, kernel- and download-, each with last-ns and mean-ns, the times per blurred frame in ns",
            )
            .read_only()
            .build(),
    ]
}
