// SPDX-License-Identifier: MPL-2.0
//! The part of the driver API that the backend uses. It comes from cudarc, which opens the library at run time, and panics if the
//! library or a function is missing. No other file names cudarc, so only functions that [`load`] has looked up can be called.

use std::error::Error;

pub use cudarc::driver::result::DriverError;
use cudarc::driver::sys;
pub use cudarc::driver::sys::{
    CU_MEMHOSTREGISTER_PORTABLE, CUDA_MEMCPY2D, CUcontext, CUdevice, CUdevice_attribute, CUevent, CUevent_flags,
    CUevent_wait_flags, CUfunction, CUfunction_attribute, CUjitInputType, CUlaunchAttribute, CUlaunchAttributeID,
    CUlaunchAttributeValue, CUlaunchConfig, CUlinkState, CUmemorytype, CUmodule, CUpointer_attribute, CUresult,
    CUstream, CUstream_flags,
};
use once_cell::sync::OnceCell;

use crate::libraries::System;

macro_rules! functions {
    ($($function:ident)*) => {
        pub(in crate::cuda) use cudarc::driver::sys::{$($function),*};
        /// The names of the functions, which are also the symbols of the library.
        pub const FUNCTIONS: &[&str] = &[$(stringify!($function)),*];
    };
}

functions! {
    cuCtxPopCurrent_v2 cuCtxPushCurrent_v2 cuCtxSynchronize cuDeviceGet cuDeviceGetAttribute cuDeviceGetCount
    cuDeviceGetName cuDevicePrimaryCtxRetain cuDriverGetVersion cuEventCreate cuEventDestroy_v2 cuEventElapsedTime
    cuEventQuery cuEventRecord cuEventSynchronize cuFuncSetAttribute cuGetErrorName cuGetErrorString cuInit
    cuLaunchKernelEx cuLinkAddData_v2 cuLinkComplete cuLinkCreate_v2 cuLinkDestroy cuMemAlloc_v2 cuMemFreeHost cuMemFree_v2 cuMemGetInfo_v2 cuMemHostAlloc
    cuMemHostRegister_v2 cuMemHostUnregister cuMemcpy2DAsync_v2 cuMemcpyDtoDAsync_v2 cuMemcpyDtoHAsync_v2
    cuMemcpyHtoDAsync_v2 cuMemsetD8Async cuModuleGetFunction cuModuleLoadData cuModuleUnload cuPointerGetAttributes
    cuStreamCreate cuStreamDestroy_v2 cuStreamSynchronize cuStreamWaitEvent
}

/// Why the driver cannot be used.
pub enum Missing {
    /// The program has no 64-bit pointers, which the arguments of the kernels need.
    Bits,
    /// The library cannot be loaded; the text is the reason.
    Library(String),
    /// The library has no function with this name.
    Function(&'static str),
}

/// Opens the library and looks up all functions, unless an earlier call has done this. Must succeed before any of them is called.
pub fn load() -> Result<(), Missing> {
    static LOADED: OnceCell<()> = OnceCell::new();
    let load = || {
        if cfg!(not(target_pointer_width = "64")) {
            return Err(Missing::Bits);
        }
        // SAFETY: loading libcuda runs its initialisers and nothing else.
        if !unsafe { sys::is_culib_present() } {
            // SAFETY: if the library can be loaded after all, this runs its initialisers and nothing else.
            let again = unsafe { libloading::Library::new(System::CURRENT.driver) };
            let reason = again.err().as_ref().and_then(Error::source).map(ToString::to_string);
            return Err(Missing::Library(reason.unwrap_or_default()));
        }
        // SAFETY: the library is present. The address of the symbol is only tested, never used.
        let is_missing = |name: &&&str| unsafe { sys::culib().get::<*const ()>(name.as_bytes()) }.is_err();
        FUNCTIONS.iter().find(is_missing).map_or(Ok(()), |function| Err(Missing::Function(function)))
    };
    LOADED.get_or_try_init(load).copied()
}

/// Returns the value that a function of the driver writes to its first parameter.
pub fn returned<T: Default>(call: impl FnOnce(*mut T) -> CUresult) -> Result<T, DriverError> {
    let mut value = T::default();
    call(&mut value).result().map(|()| value)
}
