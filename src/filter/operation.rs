// SPDX-License-Identifier: MPL-2.0
//! The operations that plans consist of, and what they read and write.

use crate::filter::Taps;
use crate::filter::frame::{Field, PlaneLayout};
use crate::filter::wide::{Factor, PHASE_TAPS};

/// The taps for one plane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlaneTaps {
    /// Along rows.
    pub rows: Taps,
    /// Along columns.
    pub columns: Taps,
    /// Along rows for the chroma of packed 4:2:2, in pairs of pixels; equal to `rows` for all other layouts.
    pub chroma_rows: Taps,
}

/// A plane that an operation accesses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Buffer {
    /// This plane of the frame that is read.
    Source(usize),
    /// This plane of the frame that is written.
    Destination(usize),
    /// This one of the temporaries of the plan.
    Temporary(usize),
}

/// Temporaries are processed in multiples of this many rows, apart from their last rows, so that backends may store blocks of
/// rows.
pub const TEMPORARY_ROWS: u32 = 4;

/// The rows of a plane that an operation accesses.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct View {
    /// The plane.
    pub buffer: Buffer,
    /// Its rows.
    pub field: Field,
}

/// Where the alpha of a plane's pixels is stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum AlphaSource {
    /// In this channel of the plane itself.
    Channel(u8),
    /// In a plane of its own.
    Plane {
        /// The rows that belong to the colour plane's.
        view: View,
        /// log2 of the colour plane's subsampling relative to the alpha plane, along x and y.
        subsampling: [u32; 2],
    },
}

/// Which samples of a pixel an operation processes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Channels {
    /// All.
    All,
    /// The luma of packed 4:2:2, as one channel.
    Luma,
    /// The chroma of packed 4:2:2, as two channels.
    Chroma,
}

impl Channels {
    /// The dimensions and the number of channels of the processed samples as a plane of their own.
    pub(super) fn part_of(self, layout: &PlaneLayout) -> (u32, u8) {
        match self {
            Self::All => (layout.width, layout.channels),
            Self::Luma => (layout.width, 1),
            Self::Chroma => (layout.width.div_ceil(2), 2),
        }
    }
}

/// The two planes of a decimation or an interpolation, and the factors between them.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Resampling {
    /// Read.
    pub source: View,
    /// Written.
    pub destination: View,
    /// Along x and y. At least one is not [`Factor::One`].
    pub factors: [Factor; 2],
    /// The samples of the larger plane that are processed.
    pub channels: Channels,
    /// 0 if the larger plane is one of the frame, or premultiplied; one more for each decimation before it.
    pub level: u8,
}

/// One step of a plan. All views of an operation have the same number of rows, apart from the alpha plane's and those of
/// decimations and interpolations.
#[derive(Debug, Clone, PartialEq)]
pub enum Operation {
    /// Copies rows, padding bits included.
    Copy {
        /// Read.
        source: View,
        /// Written.
        destination: View,
    },
    /// Writes colour times alpha, 16 bits a sample, and alpha unchanged. If alpha is in a plane of its own, it becomes the
    /// last channel.
    Premultiply {
        /// Read.
        source: View,
        /// The alpha.
        alpha: AlphaSource,
        /// Written, a temporary.
        premultiplied: View,
    },
    /// Blurs rows, then columns.
    Blur {
        /// Read.
        source: View,
        /// Written.
        destination: View,
        /// The taps of both passes.
        taps: PlaneTaps,
    },
    /// Writes the small plane of a level of the wide form, 16 bits a sample.
    Decimate(Resampling),
    /// Enlarges the blurred small plane of a level of the wide form.
    Interpolate(Resampling),
    /// Divides blurred colour by blurred alpha and writes it at the destination's depth. Where the blurred alpha is 0, the
    /// source's colour is kept.
    Unpremultiply {
        /// Read, a temporary.
        premultiplied: View,
        /// The alpha of the source.
        alpha: AlphaSource,
        /// Read.
        source: View,
        /// Written.
        destination: View,
        /// Bit c: channel c keeps the source's value.
        passthrough_mask: u32,
    },
    /// Copies single channels back from the source, after all channels were blurred.
    RestoreChannels {
        /// Read.
        source: View,
        /// Written.
        destination: View,
        /// Bit c: channel c keeps the source's value.
        passthrough_mask: u32,
    },
}

impl Operation {
    /// How many of the first rows of its output can be computed from the first `available` rows of its source. For
    /// operations of plans that can be banded.
    pub fn ready_rows(&self, available: u32) -> u32 {
        let (source, output) = (self.source().field.layout.height, self.output().field.layout.height);
        if available >= source {
            return output;
        }
        let rows = match self {
            Self::Blur { taps, .. } => available.saturating_sub(taps.columns.radius() as u32),
            // Row j reads up to row (j - MARGIN)·s + LEVEL_RADIUS·s, which is j·s.
            Self::Decimate(Resampling { factors: [_, factor], .. }) => match factor {
                Factor::One => available,
                _ => available.div_ceil(factor.get()),
            },
            // Row y reads up to row y / s + PHASE_TAPS - 1.
            Self::Interpolate(Resampling { factors: [_, factor], .. }) => match factor {
                Factor::One => available,
                _ => (available.saturating_sub(PHASE_TAPS as u32 - 1) * factor.get()).min(output),
            },
            _ => available,
        };
        match self.output().buffer {
            Buffer::Temporary(_) if rows < output => rows / TEMPORARY_ROWS * TEMPORARY_ROWS,
            _ => rows,
        }
    }

    /// The view of a frame's plane or of a temporary that it reads, beside its alpha.
    pub fn source(&self) -> View {
        match self {
            Self::Unpremultiply { premultiplied, .. } => *premultiplied,
            Self::Decimate(resampling) | Self::Interpolate(resampling) => resampling.source,
            Self::Copy { source, .. }
            | Self::Blur { source, .. }
            | Self::Premultiply { source, .. }
            | Self::RestoreChannels { source, .. } => *source,
        }
    }

    /// What it writes.
    pub fn output(&self) -> View {
        match self {
            Self::Premultiply { premultiplied, .. } => *premultiplied,
            Self::Decimate(resampling) | Self::Interpolate(resampling) => resampling.destination,
            Self::Copy { destination, .. }
            | Self::Blur { destination, .. }
            | Self::Unpremultiply { destination, .. }
            | Self::RestoreChannels { destination, .. } => *destination,
        }
    }

    /// The position of its kind in a plan: down the levels to the blurs of the smallest planes, and up again.
    pub(super) fn stage(&self) -> u8 {
        const BLUR: u8 = 128;
        match self {
            Self::Copy { .. } => 0,
            Self::Premultiply { .. } => 1,
            Self::Decimate(Resampling { level, .. }) => 2 + level,
            Self::Blur { .. } => BLUR,
            Self::Interpolate(Resampling { level, .. }) => u8::MAX - 1 - level,
            Self::Unpremultiply { .. } | Self::RestoreChannels { .. } => u8::MAX,
        }
    }

    /// Whether `self` and `other` are of the same stage of a plan, so that neither reads what the other writes.
    pub fn is_independent_of(&self, other: &Self) -> bool {
        self.stage() == other.stage()
    }
}
