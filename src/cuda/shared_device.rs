// SPDX-License-Identifier: MPL-2.0
//! The state that all engines of a context share: the device, its loaded kernels, and the streams for copies.

use std::sync::{Arc, Mutex, Weak};

use once_cell::sync::OnceCell;

use super::driver::device::Device;
use super::error::CudaError;
use super::jit::JitCache;
use super::jit::nvrtc::LazyNvrtc;
use super::kernels::prebuilt::{Image, PrebuiltKernels};
use super::transfer::CopyStreams;
use crate::process::lock;

/// A device, its kernels and its copy streams.
pub struct SharedDevice {
    device: Arc<Device>,
    prebuilt: [OnceCell<Arc<PrebuiltKernels>>; Image::COUNT],
    /// The kernels that are compiled in the background.
    pub jit: Arc<JitCache>,
    /// `special-` and the device's architecture. Users see it while a specialised kernel is in use.
    pub specialised_name: &'static str,
    copy_streams: Mutex<Weak<CopyStreams>>,
}

impl SharedDevice {
    /// A device without loaded kernels.
    pub(super) fn new(device: Arc<Device>, compiler: &'static LazyNvrtc, specialised_name: &'static str) -> Self {
        let jit = Arc::new(JitCache::new(Arc::clone(&device), compiler));
        Self { device, prebuilt: Default::default(), jit, specialised_name, copy_streams: Mutex::default() }
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Returns the kernels of an image. The first call opens the image. Parts are loaded when they are needed.
    pub fn prebuilt(&self, image: Image) -> Result<&Arc<PrebuiltKernels>, CudaError> {
        let mut is_new = false;
        let kernels = self.prebuilt[image as usize].get_or_try_init(|| {
            is_new = true;
            PrebuiltKernels::open(image, &self.device).map(Arc::new)
        })?;
        if is_new {
            kernels.log_opening();
        }
        Ok(kernels)
    }

    /// Returns the copy streams. Creates them if no engine uses them.
    pub(super) fn copy_streams(&self) -> Result<Arc<CopyStreams>, CudaError> {
        let mut shared = lock(&self.copy_streams);
        if let Some(streams) = shared.upgrade() {
            return Ok(streams);
        }
        let streams = Arc::new(CopyStreams::new(&self.device)?);
        *shared = Arc::downgrade(&streams);
        Ok(streams)
    }
}
