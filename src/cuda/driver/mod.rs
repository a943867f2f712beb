// SPDX-License-Identifier: MPL-2.0
//! Owned handles of the CUDA driver API: contexts, streams, events, memory, modules. Most of the backend's unsafe code is here.
//!
//! The handles use cudarc's `sys` layer. Its safe layer records an event for every use of a buffer, reports a failure of one user
//! of a context to the next user, and leaves its context current on threads of other owners.
//!
//! A handle owns its device, and makes the device's context current while it is created and destroyed. All other calls require
//! that the context is current ([`device::Device::enter`]), unless their documentation says otherwise.

pub mod api;
pub mod device;
mod event;
mod memory;
mod module;
mod stream;

use api::DriverError;
pub use event::Event;
pub use memory::{DeviceMemory, HostRegistration, PinnedMemory, Workspace, is_pinned};
pub use module::{Function, Module};
pub use stream::{CopyAddress, LaunchConfig, Stream};

use super::error::CudaError;

/// Turns an error of the driver into one that names the device and what the driver was doing.
trait ResultExt<T> {
    fn when(self, device: u32, doing: &'static str) -> Result<T, CudaError>;
}

impl<T> ResultExt<T> for Result<T, DriverError> {
    fn when(self, device: u32, doing: &'static str) -> Result<T, CudaError> {
        self.map_err(|error| CudaError::Failed { doing, status: error.into(), id: device })
    }
}
