// SPDX-License-Identifier: MPL-2.0
//! `look-ahead`: the frames that wait in the element, and the events between them.

use std::sync::Arc;

use gst::prelude::*;

use super::region_message::MessageTimes;
use super::regions::detector_metas;
use super::regions::settings::ObjectShape;
use super::settings::Settings;
use super::stream_format::StreamFormat;
use super::video_frame::pool_of;
use crate::filter::plan::Options;
use crate::regions::clock::FrameTime;
use crate::regions::detection::Found;
use crate::regions::frame_regions::EnteredFrame;

/// What is known of a frame when it arrives, before the base class renegotiates for it or drops it.
pub struct ArrivedFrame {
    pub settings: Settings,
    pub options: Options,
    pub found: Found,
    pub times: MessageTimes,
    is_discont: bool,
}

impl ArrivedFrame {
    /// Reads the metas of a frame that is covered, or blurred, by these settings.
    pub fn read(
        element: &gst_base::BaseTransform,
        settings: Settings,
        options: Options,
        buffer: &gst::BufferRef,
    ) -> Self {
        let regions = &*settings.regions;
        let masked = (regions.shape == ObjectShape::Mask).then_some(&regions.labels);
        let found = detector_metas::read(buffer, regions.sources, masked);
        let is_discont = buffer.flags().contains(gst::BufferFlags::DISCONT);
        Self { times: MessageTimes::new(element, buffer), found, is_discont, settings, options }
    }

    /// Its time. In running time, which goes on through segments, and at the rate at which frames are shown.
    pub fn time(&self, format: &StreamFormat) -> FrameTime {
        FrameTime {
            timestamp: self.times.running_time.map(gst::ClockTime::nseconds),
            duration: format.frame_duration(self.times.duration).map(gst::ClockTime::nseconds),
            is_discont: self.is_discont,
        }
    }
}

/// A frame of which regions are covered, from when it enters until it leaves.
pub struct WaitingFrame {
    /// `None` if the base class dropped it after it had entered, because it is late.
    pub buffer: Option<gst::Buffer>,
    /// The events that follow it.
    pub events: Vec<gst::Event>,
    /// How many frames the gap after it lacks, as far as GAP events say so.
    pub gap: usize,
    /// The values of the properties when it entered.
    pub settings: Settings,
    pub options: Options,
    pub format: Arc<StreamFormat>,
    pub times: MessageTimes,
    pub entered: EnteredFrame,
}

/// Most events after a frame while none enters. Each further one counts as a frame, so that their number is bounded.
const MOST_EVENTS: usize = 1024;

impl WaitingFrame {
    /// Whether the frame does not continue the one before it, or is dropped, so that the one after it does not.
    pub fn is_discont(&self) -> bool {
        self.buffer.as_ref().is_none_or(|buffer| buffer.flags().contains(gst::BufferFlags::DISCONT))
    }

    /// Adds an event that follows it. A GAP event says that no frame comes for some time: those that the gap lacks count as later
    /// frames, because frames may not wait longer than the latency that the element reports. They are counted from this frame on,
    /// since several gaps may lie within the time of one frame. Of unknown time, each gap counts as a frame.
    pub fn add_event(&mut self, event: gst::Event, is_reverse: bool) {
        if let gst::EventView::Gap(gap) = event.view() {
            let (start, duration) = gap.get();
            let end = start.saturating_add(duration.unwrap_or_default());
            let duration = self.format.frame_duration(self.times.duration);
            let lacking = match (self.times.timestamp, duration, self.format.duration(1).or(duration)) {
                (Some(time), Some(duration), Some(frame)) => {
                    let from = time.saturating_add(duration);
                    let passed = if is_reverse { time.checked_sub(start) } else { end.checked_sub(from) };
                    let passed = passed.unwrap_or_default().nseconds();
                    // With an eighth of a frame of tolerance, because times are rounded.
                    passed.saturating_add(frame.nseconds() / 8) / frame.nseconds()
                }
                _ => self.gap as u64 + 1,
            };
            self.gap = self.gap.max(lacking.min(u64::from(u16::MAX)) as usize);
        }
        if self.events.len() >= MOST_EVENTS {
            self.gap += 1;
        }
        self.events.push(event);
    }
}

/// The pool of the copies of frames that may not wait themselves. Its number of buffers has no limit.
pub struct CopyPool(gst::BufferPool);

impl CopyPool {
    /// A pool that is configured, but not active.
    pub fn new(pool: gst::BufferPool) -> Self {
        Self(pool)
    }

    /// A buffer without metadata; `None` if there is no memory for it.
    pub fn acquire(&self) -> Option<gst::Buffer> {
        self.0.set_active(true).ok()?;
        self.0.acquire_buffer(None).ok()
    }
}

impl Drop for CopyPool {
    fn drop(&mut self) {
        // It frees its buffers; those that are elsewhere are freed when they come back.
        let _ = self.0.set_active(false);
    }
}

/// The types of memory of which there is any amount: GStreamer's own, and that of its Rust bindings.
const ORDINARY: [&str; 2] = ["SystemMemory", "RustGlobalAllocatorMemory"];

/// Whether upstream may have no other buffer while this one waits, so that it would stall without a word: the buffer is from a
/// pool with a maximum, or its memory is of an allocator that may have no more of it, such as a decoder's surfaces.
pub fn is_scarce(buffer: &gst::BufferRef) -> bool {
    if let Some(parent) = buffer.meta::<gst::ParentBufferMeta>() {
        return is_scarce(parent.parent());
    }
    match pool_of(buffer) {
        Some(pool) => pool.config().params().is_none_or(|(.., max_buffers)| max_buffers > 0),
        None => buffer.iter_memories().any(|memory| !ORDINARY.iter().any(|ordinary| memory.is_type(*ordinary))),
    }
}
