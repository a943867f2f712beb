// SPDX-License-Identifier: MPL-2.0
//! The queue of frames and events in the element, in the order in which they leave: first the decided frames, then the
//! frames that wait for later ones (`look-ahead`).

use std::collections::VecDeque;
use std::sync::Arc;

use super::format::stream_format::StreamFormat;
use super::memory::mapping::MappedFrame;
use super::messages::errors::FrameFailure;
use super::properties::settings::Settings;
use crate::engine::InFlightFrame;
use crate::filter::plan::Options;
use crate::regions::frame_regions::EnteredFrame;

/// The frames and events in the element.
#[derive(Default)]
pub struct Queue {
    /// The oldest first.
    pub leaving: VecDeque<Leaving>,
    /// The frames and events that entered later, the oldest first.
    pub waiting: VecDeque<WaitingFrame>,
}

/// The next frame or event that leaves.
pub enum Leaving {
    Frame(DecidedFrame),
    Event(gst::Event),
}

/// A frame after the decision about it.
pub struct DecidedFrame {
    pub outcome: Outcome,
    /// The message that is posted when the frame leaves.
    pub message: Option<gst::Structure>,
    /// See [`WaitingFrame::since`].
    pub since: Option<gst::ClockTime>,
}

/// The decision about a frame.
pub enum Outcome {
    /// It is submitted to the engine.
    InFlight(Box<InFlightFrame<MappedFrame>>),
    /// No part of the frame is covered.
    Untouched(gst::Buffer),
    Dropped,
    /// The frame ends streaming with an error, after the frames before it have left.
    Failed(FrameFailure),
}

impl From<InFlightFrame<MappedFrame>> for Outcome {
    fn from(frame: InFlightFrame<MappedFrame>) -> Self {
        Self::InFlight(Box::new(frame))
    }
}

/// A frame between entering and the decision about it.
pub struct WaitingFrame {
    /// Its buffer, or why there is none.
    pub input: Result<gst::Buffer, FrameFailure>,
    /// The events that follow it.
    pub events: Vec<gst::Event>,
    /// How many frames are missing in the gap after it, as far as GAP events say so.
    pub gap: usize,
    /// The values of the properties when it entered.
    pub settings: Settings,
    pub options: Options,
    pub format: Arc<StreamFormat>,
    pub entered: EnteredFrame,
    /// The running time from which its latency counts, in a live stream.
    pub since: Option<gst::ClockTime>,
}

/// The largest number of events after a frame while no frame enters. Each further event counts as a frame, so that the
/// number of events is bounded.
const MOST_EVENTS: usize = 1024;

impl Queue {
    /// Number of decided frames. They are in flight, or behind a frame that is.
    pub fn decided_frames(&self) -> usize {
        self.leaving.iter().filter(|leaving| matches!(leaving, Leaving::Frame(_))).count()
    }

    /// Number of frames that wait, including the frames that are missing in gaps.
    pub fn waiting_frames(&self) -> usize {
        self.waiting.iter().map(|frame| 1 + frame.gap).sum()
    }

    /// The running time from which the latency of its first frame counts.
    pub fn since(&self) -> Option<gst::ClockTime> {
        let mut leaving = self.leaving.iter().map(|leaving| match leaving {
            Leaving::Frame(frame) => frame.since,
            Leaving::Event(_) => None,
        });
        leaving.find_map(|since| since).or_else(|| self.waiting_since())
    }

    /// The same for the first frame that waits.
    pub fn waiting_since(&self) -> Option<gst::ClockTime> {
        self.waiting.iter().find_map(|frame| frame.since)
    }
}

impl WaitingFrame {
    /// Adds an event that follows the frame. A GAP event says that no frame comes for some time. In a live stream, the frames that
    /// are missing in the gap count as later frames, because frames may not wait longer than the latency that the element
    /// reports. They are counted from this frame on, since several gaps may lie within the time of one frame. A gap of
    /// unknown time counts as one frame. In a file, frames wait through a gap: a demuxer sends it ahead of the frames that the
    /// decoder holds.
    pub fn add_event(&mut self, event: gst::Event, is_reverse: bool, is_live: bool) {
        if let gst::EventView::Gap(gap) = event.view()
            && is_live
        {
            // The times of the event are in another segment then.
            let is_comparable = !self.events.iter().any(|event| event.type_() == gst::EventType::Segment);
            let (start, duration) = gap.get();
            let end = start.saturating_add(duration.unwrap_or_default());
            let times = &self.entered.times;
            let lacking = match times.timestamp.zip(times.interval) {
                Some((time, interval)) if is_comparable => {
                    let from = if is_reverse { start.nseconds() } else { time.saturating_add(interval) };
                    let to = if is_reverse { time } else { end.nseconds() };
                    // With an eighth of a frame of tolerance, because times are rounded.
                    to.saturating_sub(from).saturating_add(interval / 8) / interval
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
