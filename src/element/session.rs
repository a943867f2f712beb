// SPDX-License-Identifier: MPL-2.0
//! The session of a started element: its engine, the negotiated format and the frames in flight.

use std::sync::Arc;
use std::thread::ThreadId;

use gst::prelude::*;

use super::format::stream_format::StreamFormat;
use super::frame_times::Timing;
use super::memory::gstcuda::CudaStream;
use super::memory::mapping;
use super::memory::registration;
use super::messages::errors::FrameFailure;
use super::messages::warnings::Warnings;
use super::properties::settings::Settings;
use super::queue::{Leaving, Outcome, Queue};
use super::regions::settings::RegionMode;
use crate::engine::{Backend, Engine};
use crate::filter::plan::Options;
use crate::regions::clock::FrameTimes;
use crate::regions::frame_regions::RegionTracker;

/// The state that exists from start to stop. Only the thread that took it from the shared state works with it.
pub struct Session {
    pub engine: Engine,
    /// The largest number of frames in flight. With more, the element waits for the oldest frame.
    pub max_in_flight: usize,
    /// The frames and events that have entered the element and not left it.
    pub queue: Queue,
    /// Pool for copies of frames whose own buffers may not wait in the element. Its number of buffers has no limit.
    pub copy_pool: Option<gst::BufferPool>,
    /// Whether frames were dropped since the last frame left.
    pub has_gap: bool,
    /// Whether the base class will set the DISCONT flag of the next buffer that it pushes, because a frame with that flag has arrived.
    pub base_has_discont: bool,
    /// `None` before the first caps.
    pub format: Option<Arc<StreamFormat>>,
    /// The caps that were refused last, until others are accepted.
    pub refused_caps: Option<gst::Caps>,
    /// The warnings that the bus and the log get once.
    pub warnings: Warnings,
    pub timing: Timing,
    /// The thread in which control bindings set properties now.
    pub controlled_by: Option<ThreadId>,
    /// The values of the properties with which the next frame enters, and the blur of a whole frame that follows from
    /// them.
    pub settings: Settings,
    pub options: Options,
    /// The times of the next frame.
    pub times: FrameTimes,
    /// The reason why the next frame cannot be blurred. It is found before the base class negotiates for that frame.
    pub pending_failure: Option<FrameFailure>,
    /// The objects of the previous frames and of the frames that wait.
    pub tracker: RegionTracker,
    /// Whether downstream accepts any strides and offsets, so that input buffers can be pushed.
    pub downstream_takes_video_meta: bool,
    /// Whether downstream finds the picture in a larger frame by GstVideoCropMeta.
    pub downstream_takes_crop_meta: bool,
    /// Whether upstream was told so in the answer to an allocation query, because the element was in passthrough then.
    pub upstream_may_crop: bool,
    /// Whether a frame failed while frames were drained. There no flow error reaches upstream, so every later frame
    /// returns the error, until a flush.
    pub has_failed: bool,
    /// The stream for pools of CUDA memory whose configuration names none.
    pub cuda_stream: Option<CudaStream>,
}

impl Session {
    /// A session without caps or frames.
    pub fn new(engine: Engine, settings: Settings, options: Options, cuda_stream: Option<CudaStream>) -> Self {
        Self {
            engine,
            max_in_flight: settings.max_in_flight as usize,
            queue: Queue::default(),
            copy_pool: None,
            has_gap: false,
            base_has_discont: false,
            format: None,
            refused_caps: None,
            warnings: Warnings::default(),
            timing: Timing::default(),
            controlled_by: None,
            settings,
            options,
            times: FrameTimes::default(),
            pending_failure: None,
            tracker: RegionTracker::default(),
            downstream_takes_video_meta: false,
            downstream_takes_crop_meta: false,
            upstream_may_crop: false,
            has_failed: false,
            cuda_stream,
        }
    }

    /// Whether frames pass through unchanged, so that the base class is in passthrough. This is never so if regions are
    /// covered, because every change between passthrough and a blur renegotiates, nor if frames are uploaded or
    /// downloaded.
    pub fn is_passthrough(&self) -> bool {
        self.settings.regions.mode == RegionMode::Frame
            && match &self.format {
                Some(format) => format.is_passthrough(&self.options),
                None => self.options.params.is_passthrough(),
            }
    }

    /// Whether CUDA is the backend. Buffers in CUDA memory then stay there, whatever the caps say.
    pub fn is_on_cuda(&self) -> bool {
        self.engine.active() == Backend::Cuda
    }

    /// The longest time that the element holds a frame back: the time of the frames that may wait for later ones and of
    /// the frames that may be in flight. No frames are in flight on the CPU, which completes a frame when it is
    /// submitted. Frames that stay on the device do not count as in flight, because they are pushed without waiting for
    /// the device.
    pub fn latency(&self) -> gst::ClockTime {
        let latency = self.timing.latency(self.most_held(), self.stated_interval());
        latency.unwrap_or_default()
    }

    /// Whether frames are held back for an unknown time.
    pub fn is_latency_unknown(&self) -> bool {
        let held = self.most_held();
        self.timing.latency(held, self.stated_interval()).is_none() && self.timing.has_seen_more_than(held)
    }

    /// Notes the times of the next frame. `now` is the running time at which it comes, if the pipeline plays.
    pub fn note_times(&mut self, buffer: &gst::BufferRef, now: Option<gst::ClockTime>) {
        self.times = self.timing.measure(buffer, self.stated_interval(), self.most_held(), now);
    }

    /// The interval between frames that the caps state, in nanoseconds.
    fn stated_interval(&self) -> Option<u64> {
        self.format.as_ref().and_then(|format| format.interval())
    }

    /// The largest number of frames that wait for later ones.
    pub fn most_waiting(&self) -> usize {
        match self.settings.regions.mode {
            RegionMode::Frame => 0,
            RegionMode::Inside | RegionMode::Outside => self.settings.regions.look_ahead as usize,
        }
    }

    /// The largest number of frames that may be held back; 0 before the first caps.
    fn most_held(&self) -> usize {
        let Some(format) = &self.format else { return 0 };
        let is_complete = !self.is_on_cuda() || format.is_device_resident();
        self.most_waiting() + if is_complete { 0 } else { self.max_in_flight - 1 }
    }

    /// Whether the buffer came from the pool of copies.
    pub fn is_copy(&self, buffer: &gst::BufferRef) -> bool {
        self.copy_pool.is_some() && mapping::pool_of(buffer) == self.copy_pool
    }

    /// Waits for the frames in flight, which stay in the queue. If one has failed, its error is reported when it
    /// leaves.
    pub fn wait_for_device(&mut self) {
        for leaving in &mut self.queue.leaving {
            if let Leaving::Frame(frame) = leaving
                && let Outcome::InFlight(in_flight) = &mut frame.outcome
                && let Err(error) = self.engine.wait(in_flight)
            {
                frame.outcome = Outcome::Failed(error.into());
            }
        }
    }

    /// Notes memory that the device may read, see [`registration`].
    pub fn note_sighting(&self, input: &gst::BufferRef, element: &gst_base::BaseTransform) {
        if let Some(source) = self.engine.pinned() {
            registration::note_sighting(input, &source, element.as_ptr() as usize);
        }
    }

    /// Whether a buffer can be pushed unchanged: it is in the kind of memory that the output has, and downstream can
    /// find its planes.
    pub fn can_hand_on(&self, buffer: &gst::BufferRef) -> bool {
        self.format.as_ref().is_some_and(|format| {
            // Elements with CUDA memory read the pitches from the memory.
            let is_found = self.downstream_takes_video_meta || format.is_device_resident();
            let is_found = is_found || format.is_default_layout(buffer);
            let is_whole = mapping::is_whole_picture(buffer, &format.info, self.downstream_takes_crop_meta);
            format.is_same_memory() && is_found && is_whole
        })
    }

    /// Drops all frames. Their objects stay covered in later frames. The events between the frames stay in the queue.
    pub fn discard_frames(&mut self) {
        self.queue.leaving.retain(|leaving| matches!(leaving, Leaving::Event(_)));
        for frame in self.queue.waiting.drain(..) {
            self.tracker.resolve(&frame.settings.regions.rules(), &frame.entered);
            self.queue.leaving.extend(frame.events.into_iter().map(Leaving::Event));
        }
    }
}
