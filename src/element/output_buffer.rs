// SPDX-License-Identifier: MPL-2.0
//! The output buffers of frames that the engine has completed.

use super::reporting::{post_failure, warn_of_fallback};
use super::state::SharedState;
use super::video_frame::OutputFrame;
use crate::engine::{CompletedFrame, Engine, EngineError};

/// The output buffer of a frame. Posts the error if it failed, and a warning if CUDA failed and the CPU took its place.
pub fn of_completed<F: OutputFrame>(
    element: &gst_base::BaseTransform,
    state: &SharedState,
    engine: &Engine,
    completed: Result<CompletedFrame<F>, EngineError>,
) -> Result<gst::Buffer, gst::FlowError> {
    let completed = completed.map_err(|error| post_failure(element, &error.into()))?;
    if let Some(failure) = completed.failure {
        warn_of_fallback(element, state, engine, &failure);
    }
    Ok(completed.frame.into_output(completed.queued))
}
