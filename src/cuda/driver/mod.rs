// SPDX-License-Identifier: MPL-2.0
//! Owned handles of the CUDA driver API: contexts, streams, events, memory, modules. Most of the backend's unsafe code is here.
//!
//! Built on cudarc's `sys` layer instead of its safe one, which records an event for every use of a buffer, keeps one
//! user's failure in a context for the next user, and leaves its context current on threads that belong to others.
//!
//! Handles own their device, and make its context current when they are made and destroyed. All other calls require that it is
//! current ([`device::Device::enter`]).

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

/// Adds to a status what the driver was doing, and on which device.
trait ResultExt<T> {
    fn when(self, device: u32, doing: &'static str) -> Result<T, CudaError>;
}

impl<T> ResultExt<T> for Result<T, DriverError> {
    fn when(self, device: u32, doing: &'static str) -> Result<T, CudaError> {
        self.map_err(|error| CudaError::Failed { doing, status: error.into(), id: device })
    }
}
