// SPDX-License-Identifier: MPL-2.0
//! What the host and the kernels agree on. The build script generates the constants, the argument structs and the list of
//! pixel families from kernels/abi.h, so neither is written twice.

use crate::cuda::driver::{Function, LaunchConfig, Stream};
use crate::cuda::error::CudaError;
use crate::filter::frame::{PlaneLayout, SampleLayout};
use crate::filter::operation::{PlaneTaps, TEMPORARY_ROWS};
use crate::filter::samples::Channel;
use crate::filter::wide::Factor;
use crate::filter::{KERNEL_SIZE_MAX, wide};

include!(concat!(env!("OUT_DIR"), "/kernel_abi.rs"));

const _: () = assert!(2 * RADIUS_MAX + 1 == KERNEL_SIZE_MAX, "the kernels take every radius of the filter");
const _: () = assert!(LEVEL_RADIUS == wide::LEVEL_RADIUS && LEVEL_RADIUS == wide::MARGIN, "the same levels");
const _: () = assert!(TEMPORARY_ROWS.is_multiple_of(TENSOR_ROWS), "bands do not divide the blocks of rows");
const _: () = assert!(PHASE_TAPS as usize == wide::PHASE_TAPS, "the same phases");

/// Temporaries and their rows start on this many bytes.
pub const WORKSPACE_ALIGNMENT: usize = 256;

impl PixelFamily {
    /// The family of a plane. `None` if there are no kernels for tensor cores for it: packed 4:2:2 of more than 8 bits, and the small
    /// planes of RGB.
    pub fn of(layout: &PlaneLayout) -> Option<Self> {
        match (layout.sample_layout, layout.sample_bytes(), layout.channels) {
            (SampleLayout::Yuv422 { .. }, 1, _) => Some(Self::Yuv422),
            (SampleLayout::Packed1010102, ..) => Some(Self::Packed1010102),
            (SampleLayout::Yuv422 { .. }, ..) | (_, 2, 3) => None,
            (_, 1, 1 | 2) => Some(Self::U8C12),
            (_, 1, 3) => Some(Self::U8C3),
            (_, 1, _) => Some(Self::U8C4),
            (_, _, 1 | 2) => Some(Self::U16C12),
            _ => Some(Self::U16C4),
        }
    }

    /// The most planes that its kernels take in a launch. Only planes of one and two channels come several to a frame; the
    /// other kernels are faster for having one.
    pub fn most_planes(self) -> usize {
        if matches!(self, Self::U8C12 | Self::U16C12) { PLANES as usize } else { 1 }
    }

    /// The family whose tensor-core kernels blur a plane. They premultiply with a channel that is alpha.
    pub fn for_tensor_cores(layout: &PlaneLayout, alpha: Option<u8>) -> Option<Self> {
        if alpha.is_some() { Some(Self::Packed1010102) } else { Self::of(layout) }
    }

    /// The largest radius of a plane of this family on either axis, with that of the chroma of packed 4:2:2 along rows counted in
    /// luma samples; `None` if a radius is 0.
    pub fn largest_radius(self, taps: &PlaneTaps) -> Option<u32> {
        let [rows, columns, chroma] = [&taps.rows, &taps.columns, &taps.chroma_rows].map(|taps| taps.radius() as u32);
        let chroma = if self == Self::Yuv422 { (2 * chroma).saturating_sub(1) } else { chroma };
        let all = [rows, columns, chroma];
        all.into_iter().max().filter(|_| !all.contains(&0))
    }
}

/// How channels of a plane, four at most, are stored in its rows.
pub fn stored_channels(layout: &PlaneLayout, channels: impl IntoIterator<Item = Channel>) -> [StoredChannel; 4] {
    let mut stored = [StoredChannel::default(); 4];
    for (to, channel) in stored.iter_mut().zip(channels) {
        let (sample, step) = channel.stored(layout);
        *to = StoredChannel {
            offset: sample.byte as u16,
            step: step as u16,
            shift: sample.shift as u16,
            bits: sample.bits as u16,
        };
    }
    stored
}

/// Which kernels the images of a group have, beside those that all groups have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelSet {
    /// None.
    CudaCores,
    /// Tensor-core kernels of both forms.
    TensorCores,
}

/// A kernel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// The direct form: rows, to 16-bit samples.
    Rows,
    /// The direct form: columns, of 16-bit samples.
    Columns,
    /// On tensor cores: rows and columns in one launch.
    TensorDirect(PixelFamily, DirectRadius),
    /// A level of the wide form: decimation along rows, to 16-bit samples.
    DecimateRows,
    /// A level of the wide form: decimation down columns, of 16-bit samples.
    DecimateColumns,
    /// A level of the wide form: interpolation down columns, of 16-bit samples.
    InterpolateColumns,
    /// A level of the wide form: interpolation along rows, of 16-bit samples.
    InterpolateRows,
    /// On tensor cores: decimation of the frame's planes.
    TensorDecimate(TensorPixels),
    /// On tensor cores: decimation of small planes.
    TensorDecimateSmall,
    /// On tensor cores: the blur of small planes with a radius of up to [`TENSOR_RADIUS_SHORT`].
    TensorBlurShort,
    /// On tensor cores: the blur of small planes with a radius of up to [`TENSOR_RADIUS_MAX`].
    TensorBlurLong,
    /// On tensor cores: interpolation to the frame's planes.
    TensorInterpolate(TensorPixels),
    /// On tensor cores: interpolation to small planes.
    TensorInterpolateSmall,
    /// Colour times alpha, before the blur.
    Premultiply,
    /// Blurred colour divided by blurred alpha, and channels that keep the source's value, after the blur.
    Unpremultiply,
    /// Copies or repeated patterns in rectangles of bytes.
    Cover,
    /// The sums of the cells of a mosaic.
    MosaicSums,
    /// The means of the cells of a mosaic, written into the frame.
    MosaicWrite,
    /// The means of cells, of what weights leave of a picture.
    SoftCells,
    /// Estimates of cells from their means.
    SoftSpread,
    /// Mixes a cover, or estimates, into a picture by weights.
    SoftMix,
}

/// The pixels that a tensor-core kernel of the wide form is compiled for: planes of one and two channels share kernels and
/// launches, as do luma and chroma of packed 4:2:2; the others have a kernel for each factor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "families, and the factor")]
pub enum TensorPixels {
    U8C12,
    U8C3By4,
    U8C3By2,
    U8C4By4,
    U8C4By2,
    U16C12,
    U16C4By4,
    U16C4By2,
    Packed1010102By4,
    Packed1010102By2,
    Yuv422,
}

impl TensorPixels {
    const ALL: [Self; 11] = [
        Self::U8C12,
        Self::U8C3By4,
        Self::U8C3By2,
        Self::U8C4By4,
        Self::U8C4By2,
        Self::U16C12,
        Self::U16C4By4,
        Self::U16C4By2,
        Self::Packed1010102By4,
        Self::Packed1010102By2,
        Self::Yuv422,
    ];

    /// Those of a family. The factor, two or four, counts for families with a kernel for each.
    pub fn of(family: PixelFamily, factor: Factor) -> Self {
        let of = |by_four, by_two| if factor == Factor::Four { by_four } else { by_two };
        match family {
            PixelFamily::U8C12 => Self::U8C12,
            PixelFamily::U8C3 => of(Self::U8C3By4, Self::U8C3By2),
            PixelFamily::U8C4 => of(Self::U8C4By4, Self::U8C4By2),
            PixelFamily::U16C12 => Self::U16C12,
            PixelFamily::Packed1010102 => of(Self::Packed1010102By4, Self::Packed1010102By2),
            PixelFamily::U16C4 => of(Self::U16C4By4, Self::U16C4By2),
            PixelFamily::Yuv422 => Self::Yuv422,
        }
    }

    /// The suffix of the entry points.
    fn name(self) -> &'static str {
        match self {
            Self::U8C12 => "u8_c12",
            Self::U8C3By4 => "u8_c3_s4",
            Self::U8C3By2 => "u8_c3_s2",
            Self::U8C4By4 => "u8_c4_s4",
            Self::U8C4By2 => "u8_c4_s2",
            Self::U16C12 => "u16_c12",
            Self::U16C4By4 => "u16_c4_s4",
            Self::U16C4By2 => "u16_c4_s2",
            Self::Packed1010102By4 => "packed1010102_s4",
            Self::Packed1010102By2 => "packed1010102_s2",
            Self::Yuv422 => "yuv422",
        }
    }
}

/// The radii that a tensor-core kernel of the direct form is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DirectRadius {
    /// Up to [`TENSOR_DIRECT_RADIUS_SHORT`].
    Short,
    /// Up to [`TENSOR_DIRECT_RADIUS_MEDIUM`].
    Medium,
    /// Up to [`TENSOR_RADIUS_MAX`].
    Long,
}

impl DirectRadius {
    const ALL: [Self; 3] = [Self::Short, Self::Medium, Self::Long];

    /// The suffix of the entry points.
    fn name(self) -> &'static str {
        match self {
            Self::Short => "short",
            Self::Medium => "medium",
            Self::Long => "long",
        }
    }
}

impl Kernel {
    /// The kernels of a group's images.
    pub fn prebuilt(kernel_set: KernelSet) -> Vec<Self> {
        let mut kernels = vec![Self::Rows, Self::Columns, Self::Premultiply, Self::Unpremultiply];
        kernels.extend([Self::Cover, Self::MosaicSums, Self::MosaicWrite]);
        kernels.extend([Self::SoftCells, Self::SoftSpread, Self::SoftMix]);
        kernels.extend([Self::DecimateRows, Self::DecimateColumns, Self::InterpolateColumns, Self::InterpolateRows]);
        if kernel_set == KernelSet::TensorCores {
            let pixels = TensorPixels::ALL.iter();
            kernels.extend(pixels.flat_map(|pixels| [Self::TensorDecimate(*pixels), Self::TensorInterpolate(*pixels)]));
            for family in PixelFamily::ALL {
                kernels.extend(DirectRadius::ALL.map(|radius| Self::TensorDirect(family, radius)));
            }
            kernels.extend([
                Self::TensorDecimateSmall,
                Self::TensorBlurShort,
                Self::TensorBlurLong,
                Self::TensorInterpolateSmall,
            ]);
        }
        kernels
    }

    /// The name of the kernel in its image.
    pub fn entry_point(self) -> String {
        match self {
            Self::Rows => "blur_rows".to_owned(),
            Self::Columns => "blur_columns".to_owned(),
            Self::DecimateRows => "blur_decimate_rows".to_owned(),
            Self::DecimateColumns => "blur_decimate_columns".to_owned(),
            Self::InterpolateColumns => "blur_interpolate_columns".to_owned(),
            Self::InterpolateRows => "blur_interpolate_rows".to_owned(),
            Self::TensorDirect(family, radius) => format!("blur_tensor_direct_{}_{}", family.name(), radius.name()),
            Self::TensorDecimate(pixels) => format!("blur_tensor_decimate_{}", pixels.name()),
            Self::TensorInterpolate(pixels) => format!("blur_tensor_interpolate_{}", pixels.name()),
            Self::TensorDecimateSmall => "blur_tensor_decimate_small".to_owned(),
            Self::TensorBlurShort => "blur_tensor_blur_short".to_owned(),
            Self::TensorBlurLong => "blur_tensor_blur_long".to_owned(),
            Self::TensorInterpolateSmall => "blur_tensor_interpolate_small".to_owned(),
            Self::Premultiply => "blur_premultiply".to_owned(),
            Self::Unpremultiply => "blur_unpremultiply".to_owned(),
            Self::Cover => "blur_cover".to_owned(),
            Self::MosaicSums => "blur_mosaic_sums".to_owned(),
            Self::MosaicWrite => "blur_mosaic_write".to_owned(),
            Self::SoftCells => "blur_soft_cells".to_owned(),
            Self::SoftSpread => "blur_soft_spread".to_owned(),
            Self::SoftMix => "blur_soft_mix".to_owned(),
        }
    }

    /// Threads of a block.
    pub(super) fn threads(self) -> u32 {
        match self {
            Self::Rows => 32 * ROWS_WARPS,
            Self::Columns => 32 * COLUMNS_WARPS,
            Self::DecimateRows | Self::DecimateColumns | Self::InterpolateColumns | Self::InterpolateRows => {
                32 * LEVEL_WARPS
            }
            Self::TensorDirect(..) => 32 * TENSOR_DIRECT_WARPS,
            Self::TensorDecimate(_) | Self::TensorDecimateSmall => 32 * TENSOR_DECIMATE_WARPS,
            Self::TensorBlurShort | Self::TensorBlurLong => 32 * TENSOR_BLUR_WARPS,
            Self::TensorInterpolate(_) | Self::TensorInterpolateSmall => 32 * TENSOR_INTERPOLATE_WARPS,
            Self::Premultiply | Self::Unpremultiply => ALPHA_THREADS,
            Self::Cover => COVER_THREADS,
            Self::MosaicSums | Self::MosaicWrite => MOSAIC_THREADS,
            Self::SoftSpread => SOFT_SPREAD_THREADS,
            Self::SoftCells | Self::SoftMix => SOFT_THREADS,
        }
    }
}

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

impl Args {
    /// Calls `visit` with every address, in an order that depends on nothing but the variant.
    pub fn for_each_address(&mut self, visit: &mut impl FnMut(&mut u64)) {
        match self {
            Self::Rows(args) => args.for_each_address(visit),
            Self::Columns(args) => args.for_each_address(visit),
            Self::Alpha(args) => args.for_each_address(visit),
            Self::Tensor(args) => args.for_each_address(visit),
            Self::Cover(args) => args.for_each_address(visit),
            Self::Mosaic(args) => args.for_each_address(visit),
            Self::Soft(args) => args.for_each_address(visit),
        }
    }
}

impl Launch {
    /// Enqueues it with the function that was loaded for its kernel.
    ///
    /// With `overlap`, a prebuilt kernel that supports it starts before the one ahead of it on the stream has finished.
    ///
    /// # Safety
    /// `function` is the launch's kernel and stays loaded, and the memory that the parameter refers to lives, until the launch
    /// has finished. With `overlap`, prebuilt kernels are those of an image that was compiled for sm_90 or later.
    pub unsafe fn enqueue(&self, function: Function, stream: &Stream, overlap: bool) -> Result<(), CudaError> {
        // SAFETY: parameter and grid were made for this kernel; the rest is the caller's promise.
        unsafe {
            match &self.args {
                Args::Alpha(args) => stream.launch(function, self.grid, args),
                // These kernels wait for the kernels ahead of them before they access memory.
                Args::Rows(args) if overlap => stream.launch_overlapped(function, self.grid, args),
                Args::Rows(args) => stream.launch(function, self.grid, args),
                Args::Columns(args) if overlap => stream.launch_overlapped(function, self.grid, args),
                Args::Columns(args) => stream.launch(function, self.grid, args),
                Args::Tensor(args) if overlap => stream.launch_overlapped(function, self.grid, args),
                Args::Tensor(args) => stream.launch(function, self.grid, args),
                Args::Cover(args) if overlap => stream.launch_overlapped(function, self.grid, args),
                Args::Cover(args) => stream.launch(function, self.grid, args),
                Args::Mosaic(args) => stream.launch(function, self.grid, args),
                Args::Soft(args) if overlap => stream.launch_overlapped(function, self.grid, args),
                Args::Soft(args) => stream.launch(function, self.grid, args),
            }
        }
    }
}
