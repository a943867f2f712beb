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
    /// Most frames that may be in flight before the oldest is waited for.
    pub max_in_flight: usize,
    /// The frames and events in the element.
    pub queue: Queue,
    /// For copies of frames that may not wait themselves. Its number of buffers has no limit.
    pub copy_pool: Option<gst::BufferPool>,
    /// Whether frames were dropped after the last one that has left.
    pub has_gap: bool,
    /// Whether the base class will set the DISCONT flag of the next buffer that it pushes, because a frame with that flag has arrived.
    pub base_has_discont: bool,
    /// `None` before the first caps.
    pub format: Option<Arc<StreamFormat>>,
    /// The caps that were refused last, until others are accepted.
    pub refused_caps: Option<gst::Caps>,
    /// What the bus and the log say once.
    pub warnings: Warnings,
    pub timing: Timing,
    /// The thread in which control bindings set properties now.
    pub controlled_by: Option<ThreadId>,
    /// The values of the properties with which the next frame enters, and how it is blurred as a whole.
    pub settings: Settings,
    pub options: Options,
    /// The times of the next frame.
    pub times: FrameTimes,
    /// Why the next frame cannot be blurred, which is found before the base class negotiates for it.
    pub pending_failure: Option<FrameFailure>,
    /// The objects of the previous frames and of those that wait.
    pub tracker: RegionTracker,
    /// Whether downstream accepts any strides and offsets, so that input buffers can be pushed.
    pub downstream_takes_video_meta: bool,
    /// Whether downstream finds the picture in a larger frame by GstVideoCropMeta.
    pub downstream_takes_crop_meta: bool,
    /// Whether upstream was told so, because the element was in passthrough then.
    pub upstream_may_crop: bool,
    /// Whether a frame failed while frames were drained, where no flow error reaches upstream: every later frame returns it, until a
    /// flush.
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

    /// Whether frames pass through unchanged, and the base class is in passthrough. It never does where regions are covered,
    /// because every change between passthrough and a blur renegotiates, nor where frames are uploaded or downloaded.
    pub fn is_passthrough(&self) -> bool {
        self.settings.regions.mode == RegionMode::Frame
            && match &self.format {
                Some(format) => format.is_passthrough(&self.options),
                None => self.options.params.is_passthrough(),
            }
    }

    /// Whether CUDA is the backend, for which buffers in CUDA memory stay there, whatever the caps say.
    pub fn is_on_cuda(&self) -> bool {
        self.engine.active() == Backend::Cuda
    }

    /// The time that a frame may be held back: for as many frames as may wait for later ones and as may be in flight. The
    /// latter are none on the CPU, which completes a frame when it is submitted, nor of frames that stay on the device, which
    /// are pushed without waiting for the device.
    pub fn latency(&self) -> gst::ClockTime {
        let latency = self.timing.latency(self.most_held(), self.stated_interval());
        latency.unwrap_or_default()
    }

    /// Whether frames are held back for a time that is not known.
    pub fn is_latency_unknown(&self) -> bool {
        let held = self.most_held();
        self.timing.latency(held, self.stated_interval()).is_none() && self.timing.has_seen_more_than(held)
    }

    /// Notes the times of the next frame, which comes at the running time `now` of a pipeline that plays.
    pub fn note_times(&mut self, buffer: &gst::BufferRef, now: Option<gst::ClockTime>) {
        self.times = self.timing.measure(buffer, self.stated_interval(), self.most_held(), now);
    }

    /// The interval of frames by the caps, in nanoseconds.
    fn stated_interval(&self) -> Option<u64> {
        self.format.as_ref().and_then(|format| format.interval())
    }

    /// Most frames that wait for later ones.
    pub fn most_waiting(&self) -> usize {
        match self.settings.regions.mode {
            RegionMode::Frame => 0,
            RegionMode::Inside | RegionMode::Outside => self.settings.regions.look_ahead as usize,
        }
    }

    /// Most frames that may be held back; none before the first caps.
    fn most_held(&self) -> usize {
        let Some(format) = &self.format else { return 0 };
        let is_complete = !self.is_on_cuda() || format.is_device_resident();
        self.most_waiting() + if is_complete { 0 } else { self.max_in_flight - 1 }
    }

    /// Whether a buffer is of the pool of copies.
    pub fn is_copy(&self, buffer: &gst::BufferRef) -> bool {
        self.copy_pool.is_some() && mapping::pool_of(buffer) == self.copy_pool
    }

    /// Waits for the frames in flight, which stay in the queue. One that fails does so where it leaves.
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

    /// Whether a buffer can be pushed as it is: it is in the memory that the output has, and downstream finds its planes.
    pub fn can_hand_on(&self, buffer: &gst::BufferRef) -> bool {
        self.format.as_ref().is_some_and(|format| {
            // Elements with CUDA memory read the pitches from the memory.
            let is_found = self.downstream_takes_video_meta || format.is_device_resident();
            let is_found = is_found || format.is_default_layout(buffer);
            let is_whole = mapping::is_whole_picture(buffer, &format.info, self.downstream_takes_crop_meta);
            format.is_same_memory() && is_found && is_whole
        })
    }

    /// Drops all frames. Their objects stay covered in later frames. The events between them stay.
    pub fn discard_frames(&mut self) {
        self.queue.leaving.retain(|leaving| matches!(leaving, Leaving::Event(_)));
        for frame in self.queue.waiting.drain(..) {
            self.tracker.resolve(&frame.settings.regions.rules(), &frame.entered);
            self.queue.leaving.extend(frame.events.into_iter().map(Leaving::Event));
        }
    }
}
