// SPDX-License-Identifier: MPL-2.0
//! What the host and the kernels agree on. The build script generates the constants, the argument structs and the list of
//! pixel families from kernels/abi.h, so neither is written twice.

use crate::cuda::driver::{Function, Grid, Stream};
use crate::cuda::error::CudaError;
use crate::filter::KERNEL_SIZE_MAX;
use crate::filter::frame::{PlaneLayout, SampleLayout};

include!(concat!(env!("OUT_DIR"), "/kernel_abi.rs"));

const _: () = assert!(2 * RADIUS_MAX + 1 == KERNEL_SIZE_MAX, "the kernels take every radius of the filter");

impl PixelFamily {
    /// The family of a plane.
    pub fn of(layout: &PlaneLayout) -> Self {
        match (layout.sample_layout, layout.sample_bytes(), layout.channels) {
            (SampleLayout::Yuv422 { .. }, ..) => Self::Yuv422,
            (SampleLayout::Packed1010102, ..) => Self::Packed1010102,
            (_, 1, 1 | 2) => Self::U8C12,
            (_, 1, 3) => Self::U8C3,
            (_, 1, _) => Self::U8C4,
            (_, _, 1 | 2) => Self::U16C12,
            (_, _, 3) => Self::U16C3,
            _ => Self::U16C4,
        }
    }

    /// The most planes that its kernels take in a launch. Only planes of one and two channels come several to a frame; the
    /// other kernels are faster for having one.
    pub fn most_planes(self) -> usize {
        if matches!(self, Self::U8C12 | Self::U16C12) { PLANES as usize } else { 1 }
    }

    /// The type that kernels/pixels.cuh has for pixels of this family with so many channels.
    pub fn cuda_type(self, channels: u8) -> String {
        match self {
            Self::Yuv422 => "Yuv422".to_owned(),
            Self::Packed1010102 => "Packed1010102".to_owned(),
            Self::U8C12 | Self::U8C3 | Self::U8C4 => format!("Interleaved<u8,{channels}>"),
            Self::U16C12 | Self::U16C3 | Self::U16C4 => format!("Interleaved<u16,{channels}>"),
        }
    }
}

/// A kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// Rows and columns in one launch.
    Fused(PixelFamily),
    /// Rows, into the workspace.
    Rows(PixelFamily),
    /// Columns, from the workspace.
    Columns,
    /// [`Kernel::Fused`], compiled for the radii of one batch.
    Specialised,
    /// Colour times alpha, before the blur.
    Premultiply,
    /// Blurred colour divided by blurred alpha, and channels that keep the source's value, after the blur.
    Unpremultiply,
}

impl Kernel {
    /// The kernels of a prebuilt image, each at its [`Kernel::index`].
    pub fn prebuilt() -> impl Iterator<Item = Self> {
        let families = PixelFamily::ALL.map(Self::Fused).into_iter().chain(PixelFamily::ALL.map(Self::Rows));
        families.chain([Self::Columns, Self::Premultiply, Self::Unpremultiply])
    }

    /// The position of a prebuilt kernel among all.
    pub fn index(self) -> usize {
        let families = PixelFamily::ALL.len();
        match self {
            Self::Fused(family) => family as usize,
            Self::Rows(family) => families + family as usize,
            Self::Columns => 2 * families,
            Self::Premultiply => 2 * families + 1,
            Self::Unpremultiply => 2 * families + 2,
            Self::Specialised => unreachable!("a specialised kernel has an image of its own"),
        }
    }

    /// The name of the kernel in its image.
    pub fn entry_point(self) -> String {
        match self {
            Self::Fused(family) => format!("blur_fused_{}", family.name()),
            Self::Rows(family) => format!("blur_rows_{}", family.name()),
            Self::Columns => "blur_columns".to_owned(),
            Self::Specialised => "blur_specialised".to_owned(),
            Self::Premultiply => "blur_premultiply".to_owned(),
            Self::Unpremultiply => "blur_unpremultiply".to_owned(),
        }
    }

    /// Threads of a block.
    pub(super) fn threads(self) -> u32 {
        match self {
            Self::Fused(_) | Self::Specialised => FUSED_THREADS,
            Self::Rows(_) => ROWS_THREADS,
            Self::Columns => COLUMNS_THREADS,
            Self::Premultiply | Self::Unpremultiply => ALPHA_THREADS,
        }
    }
}

/// The parameter of a kernel.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the types are documented")]
#[expect(clippy::large_enum_variant, reason = "nearly all are the large one, and few exist at a time")]
pub enum Args {
    Blur(BlurArgs),
    Alpha(AlphaArgs),
}

/// A launch: the kernel, its grid and its parameter.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the line above names them")]
pub struct Launch {
    pub kernel: Kernel,
    pub grid: Grid,
    pub args: Args,
}

impl Launch {
    /// Enqueues it with the function that was loaded for its kernel.
    ///
    /// # Safety
    /// `function` is the launch's kernel and stays loaded, and the memory that the parameter refers to lives, until the launch
    /// has finished.
    pub unsafe fn enqueue(&self, function: Function, stream: &Stream) -> Result<(), CudaError> {
        // SAFETY: parameter and grid were made for this kernel; the rest is the caller's promise.
        unsafe {
            match &self.args {
                Args::Blur(args) => stream.launch(function, self.grid, args),
                Args::Alpha(args) => stream.launch(function, self.grid, args),
            }
        }
    }
}
