// SPDX-License-Identifier: MPL-2.0
//! Errors as GStreamer messages: which domain and code each has, and what the user can do.

use crate::element::memory::mapping::MapError;
use crate::engine::{EngineError, ErrorKind};
use crate::filter::frame::Side;

/// Why a frame could not be blurred.
#[derive(Debug, thiserror::Error)]
pub enum FrameFailure {
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("received a buffer before caps")]
    NoCaps,
    #[error(
        "no detector has looked at a frame: it carries no detector metas, and on-missing=error; put cudagaussblur right \
         after the detector, or choose another on-missing"
    )]
    NoDetection,
    #[error(
        "region-sources=alpha, but {format} has no alpha channel; put cudagaussblur right after the element that makes it (alpha, \
         alphacombine, segmentation), without a converter to another format between them"
    )]
    NoAlpha { format: &'static str },
    #[error(
        "region-sources=alpha, but the frames are in CUDA memory, where the element does not read the alpha channel; insert \
         cudadownload before cudagaussblur"
    )]
    AlphaOnDevice,
    #[error(
        "a frame is in the memory of CUDA device {have}, but cuda-device-id={wanted}; set cuda-device-id to {have} or \
         -1, or insert cudadownload before cudagaussblur"
    )]
    WrongDevice { have: u32, wanted: u32 },
    #[error("an output buffer could not be allocated: its buffer pool is out of memory or failed")]
    NoOutput,
    /// Streaming ends without a message, for example in a flush.
    #[error("streaming ends: {0}")]
    Flow(gst::FlowError),
}

impl From<gst::FlowError> for FrameFailure {
    /// For the flow error of a buffer pool.
    fn from(flow: gst::FlowError) -> Self {
        if flow == gst::FlowError::Error { Self::NoOutput } else { Self::Flow(flow) }
    }
}

impl FrameFailure {
    /// The error message to post.
    pub fn to_message(&self) -> gst::ErrorMessage {
        match self {
            Self::Map(error @ MapError::Refused(_)) => gst::error_msg!(gst::StreamError::Format, ("{error}")),
            Self::Map(error) => gst::error_msg!(gst::StreamError::Format, ("{error}; {}", advice(error.side()))),
            Self::NoCaps => gst::error_msg!(gst::StreamError::Format, ("{self}")),
            Self::NoDetection => gst::error_msg!(gst::StreamError::Failed, ("{self}")),
            Self::Engine(EngineError::Frame(error)) => {
                let advice = error.side().map(|side| format!("; {}", advice(side))).unwrap_or_default();
                gst::error_msg!(gst::StreamError::Format, ("{error}{advice}"))
            }
            Self::Engine(error) => engine_message(error),
            Self::NoOutput => gst::error_msg!(gst::ResourceError::NoSpaceLeft, ("{self}")),
            Self::Flow(_) | Self::NoAlpha { .. } => gst::error_msg!(gst::StreamError::Format, ("{self}")),
            Self::AlphaOnDevice | Self::WrongDevice { .. } => gst::error_msg!(gst::ResourceError::Settings, ("{self}")),
        }
    }
}

/// The error message for an error of the engine.
pub fn engine_message(error: &EngineError) -> gst::ErrorMessage {
    match error.kind() {
        ErrorKind::Frame => gst::error_msg!(gst::StreamError::Format, ("{error}")),
        ErrorKind::Setting => gst::error_msg!(gst::ResourceError::Settings, ("{error}")),
        ErrorKind::Missing => gst::error_msg!(gst::ResourceError::NotFound, ("{error}")),
        ErrorKind::Memory => gst::error_msg!(gst::ResourceError::NoSpaceLeft, ("{error}")),
        ErrorKind::Failed => gst::error_msg!(gst::ResourceError::Failed, ("{error}")),
    }
}

/// Advice to the user about a buffer that does not match its caps.
fn advice(side: Side) -> &'static str {
    match side {
        Side::Input => {
            "fix the element before cudagaussblur: its buffers must hold what their caps and GstVideoMeta describe"
        }
        Side::Output => {
            "the buffer comes from the downstream element's pool: insert identity drop-allocation=true after \
             cudagaussblur to use another pool"
        }
    }
}
