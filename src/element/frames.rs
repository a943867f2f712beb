// SPDX-License-Identifier: MPL-2.0
//! Frames: what each is blurred with, how it begins and how it is finished, and those on their way between the two.
//!
//! The stream's state is taken out of its mutex while it is worked with and put back after, so that no lock is held while
//! GStreamer is called.

use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::prelude::*;
use gst_base::subclass::base_transform::{GenerateOutputSuccess, InputBuffer, PrepareOutputBufferSuccess};
use gst_base::subclass::prelude::*;

use super::imp::{CAT, CudaGaussBlur, FrameFailure, Stream, error_message, lock};
use super::map::{Buffers, MapError};
use super::recurring;
use crate::engine::{Backend, Engine, EngineError};
use crate::frame::Side;

/// How to get rid of a buffer that does not fit its caps.
fn advice(side: Side) -> &'static str {
    match side {
        Side::Input => {
            "correct the element before cudagaussblur, whose buffers have to hold what their caps and GstVideoMeta say"
        }
        Side::Output => {
            "it comes from downstream's buffer pool: put identity drop-allocation=true behind cudagaussblur to use another one"
        }
    }
}

impl CudaGaussBlur {
    /// Lets controlled properties follow the stream, then fixes the frame's blur and whether it is one.
    pub(super) fn settle(&self, buffer: &gst::BufferRef) {
        let element = self.obj();
        let segment = element.segment();
        let time = segment.downcast_ref::<gst::ClockTime>().and_then(|segment| segment.to_stream_time(buffer.pts()));
        if let Some(time) = time
            && let Err(error) = element.sync_values(time)
        {
            gst::debug!(CAT, imp = self, "controlled properties keep their values: {error}");
        }
        // Between start and stop the settings hold only what can be used.
        let Ok(options) = lock(&self.settings).options() else { return };
        let Some(mut stream) = lock(&self.stream).take() else { return };
        stream.options = options;
        stream.trouble = self.follow(&mut stream, buffer).err();
        let passthrough = stream.passes_through();
        *lock(&self.stream) = Some(stream);
        if element.is_passthrough() != passthrough {
            gst::debug!(CAT, imp = self, "{} passthrough", if passthrough { "entering" } else { "leaving" });
            element.set_passthrough(passthrough);
            // With the passthrough goes or comes the need for a pool of our own.
            element.reconfigure_src();
        }
    }

    /// Begins the frame that has come, if one has, and gives the oldest that is due or done.
    pub(super) fn next_output(&self) -> Result<GenerateOutputSuccess, gst::FlowError> {
        let Some(mut stream) = lock(&self.stream).take() else {
            return Err(gst::FlowError::Flushing);
        };
        let passthrough = self.obj().is_passthrough();
        let output = self.step(&mut stream, passthrough);
        if output.is_err() {
            // One failure is told once, and nothing comes after it.
            stream.flights.clear();
        }
        self.put_back(stream);
        match output {
            // Nothing is on its way any more.
            Ok(GenerateOutputSuccess::NoOutput) if passthrough => self.parent_generate_output(),
            output => output,
        }
    }

    fn step(&self, stream: &mut Stream, passthrough: bool) -> Result<GenerateOutputSuccess, gst::FlowError> {
        if !passthrough && let Some(input) = self.take_queued_buffer() {
            if let Some(trouble) = stream.trouble.take() {
                return Err(self.fail(trouble));
            }
            let prepared = self.prepare_output_buffer(InputBuffer::Readable(&input))?;
            let PrepareOutputBufferSuccess::Buffer(output) = prepared else { return Err(gst::FlowError::Error) };
            self.begin(stream, input, output).map_err(|failure| self.fail(failure))?;
        }
        let waits = if passthrough { 0 } else { stream.max_in_flight - 1 };
        let due = stream.flights.len() > waits;
        match stream.flights.front() {
            Some(oldest) if due || oldest.is_done() => {
                let oldest = stream.flights.pop_front().expect("it is there");
                self.finish(stream, oldest).map(GenerateOutputSuccess::Buffer)
            }
            _ => Ok(GenerateOutputSuccess::NoOutput),
        }
    }

    fn begin(&self, stream: &mut Stream, input: gst::Buffer, output: gst::Buffer) -> Result<(), FrameFailure> {
        let Some(format) = stream.format.clone() else { return Err(FrameFailure::NoCaps) };
        if let Some(source) = stream.engine.pinned() {
            recurring::see(&input, &source, std::ptr::from_ref(self) as usize);
        }
        let buffers = Buffers::new(input, output, format, stream.engine.active() == Backend::Cuda)?;
        stream.flights.push_back(stream.engine.begin(stream.options, buffers)?);
        Ok(())
    }

    fn finish(&self, stream: &mut Stream, oldest: super::imp::Flight) -> Result<gst::Buffer, gst::FlowError> {
        let finished = stream.engine.finish(oldest).map_err(|error| self.fail(error.into()))?;
        if let Some(failure) = finished.failure {
            let leaked = self.publish_stats(&stream.engine).map(|leaked| format!("; {leaked}")).unwrap_or_default();
            gst::element_imp_warning!(
                self,
                gst::ResourceError::Failed,
                ("{failure}; the CPU does the work from this frame on{leaked}")
            );
        }
        Ok(finished.held.into_output(finished.queued))
    }

    /// Tells people why a frame came to nothing.
    fn fail(&self, failure: FrameFailure) -> gst::FlowError {
        self.post_error_message(match failure {
            FrameFailure::Map(error @ MapError::Refused(_)) => gst::error_msg!(gst::StreamError::Format, ("{error}")),
            FrameFailure::Map(error) => {
                gst::error_msg!(gst::StreamError::Format, ("{error}; {}", advice(error.side())))
            }
            no_caps @ FrameFailure::NoCaps => gst::error_msg!(gst::StreamError::Format, ("{no_caps}")),
            FrameFailure::Engine(EngineError::Frame(error)) => {
                let advice = error.side().map(|side| format!("; {}", advice(side))).unwrap_or_default();
                gst::error_msg!(gst::StreamError::Format, ("{error}{advice}"))
            }
            FrameFailure::Engine(error) => error_message(&error),
            wrong @ FrameFailure::WrongDevice { .. } => gst::error_msg!(gst::ResourceError::Settings, ("{wrong}")),
        });
        gst::FlowError::Error
    }

    fn put_back(&self, stream: Stream) {
        let (active, latency) = (stream.engine.active().into(), stream.latency());
        self.report_stats(&stream.engine);
        let before = std::mem::replace(&mut lock(&self.readable).active, active);
        *lock(&self.stream) = Some(stream);
        if active != before {
            self.obj().notify("active-backend");
            self.tell_latency(latency);
        }
    }

    /// Publishes the engine's stats. Returns the text for a warning the first time that frames were abandoned.
    fn publish_stats(&self, engine: &Engine) -> Option<String> {
        let stats = engine.stats();
        let before = std::mem::replace(&mut lock(&self.readable).stats, stats);
        (before.frames_abandoned == 0 && stats.frames_abandoned > 0).then(|| {
            let frames =
                if stats.frames_abandoned == 1 { "1 frame" } else { &*format!("{} frames", stats.frames_abandoned) };
            format!("the device may still be using the memory of {frames}, which is leaked until the process ends")
        })
    }

    /// Publishes the engine's stats, and posts that warning if there is one.
    pub(super) fn report_stats(&self, engine: &Engine) {
        if let Some(leaked) = self.publish_stats(engine)
            && let Some(cause) = engine.abandon_cause()
        {
            gst::element_imp_warning!(self, gst::ResourceError::Failed, ("{cause}; {leaked}"));
        }
    }

    /// Finishes and pushes all frames on their way, before anything that comes after them.
    pub(super) fn drain(&self) {
        loop {
            let Some(mut stream) = lock(&self.stream).take() else { return };
            let oldest = stream.flights.pop_front();
            let output = oldest.map(|oldest| self.finish(&mut stream, oldest));
            if let Some(Err(_)) = output {
                stream.flights.clear();
            }
            self.put_back(stream);
            match output {
                None | Some(Err(_)) => return,
                // Upstream is told by its next frame.
                Some(Ok(output)) => drop(self.obj().src_pad().push(output)),
            }
        }
    }

    /// Drops all frames in flight.
    pub(super) fn discard(&self) {
        let Some(mut stream) = lock(&self.stream).take() else { return };
        stream.flights.clear();
        self.put_back(stream);
    }
}
