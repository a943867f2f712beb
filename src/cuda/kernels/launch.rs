// SPDX-License-Identifier: MPL-2.0
//! A launch: a kernel, its grid and its parameter.

use super::abi::*;
use super::images::Kernel;
use crate::cuda::driver::{Function, LaunchConfig, Stream};
use crate::cuda::error::CudaError;

/// The largest number of blocks of a launch, which is the driver's limit for a grid.
pub const MAX_BLOCKS: u64 = i32::MAX as u64;

/// The parameter of a kernel.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the types are documented")]
#[expect(clippy::large_enum_variant, reason = "all but one are of several kilobytes")]
pub enum Args {
    Rows(RowsArgs),
    Columns(ColumnsArgs),
    Alpha(AlphaArgs),
    Tensor(TensorArgs),
    Cover(CoverArgs),
    Mosaic(MosaicArgs),
    Soft(SoftArgs),
}

/// A launch: the kernel, its grid and its parameter.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the line above names them")]
pub struct Launch {
    pub kernel: Kernel,
    pub grid: LaunchConfig,
    pub args: Args,
}

impl Launch {
    /// A launch of this many blocks, each with this much shared memory.
    pub(super) fn new(kernel: Kernel, blocks: u32, shared_bytes: u32, args: Args) -> Self {
        Self { kernel, grid: LaunchConfig { blocks, threads: kernel.threads(), shared_bytes }, args }
    }

    /// Enqueues the launch. `function` has been loaded for its kernel.
    ///
    /// With `overlap`, a kernel that supports it may start before the previous kernel on the stream has finished.
    ///
    /// # Safety
    /// `function` is the launch's kernel. Until the launch has finished, it stays loaded, and the memory that the parameter
    /// refers to lives. With `overlap`, `function` was compiled for sm_90 or later.
    pub unsafe fn enqueue(&self, function: Function, stream: &Stream, overlap: bool) -> Result<(), CudaError> {
        // SAFETY: the parameter and the grid were made for this kernel, and the caller promises that `function` is this kernel.
        // The kernels of `Alpha` are launched without overlap; all other kernels wait for the earlier kernels before they access
        // memory. The caller promises the lifetimes of the function and of the memory.
        unsafe {
            match &self.args {
                Args::Alpha(args) => stream.launch(function, self.grid, args, false),
                Args::Mosaic(args) => stream.launch(function, self.grid, args, overlap),
                Args::Rows(args) => stream.launch(function, self.grid, args, overlap),
                Args::Columns(args) => stream.launch(function, self.grid, args, overlap),
                Args::Tensor(args) => stream.launch(function, self.grid, args, overlap),
                Args::Cover(args) => stream.launch(function, self.grid, args, overlap),
                Args::Soft(args) => stream.launch(function, self.grid, args, overlap),
            }
        }
    }
}
