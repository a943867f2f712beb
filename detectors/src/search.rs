// SPDX-License-Identifier: MPL-2.0
//! The code that both elements share: it decides which frames are searched, reads a frame, and reports the times of searches.

use std::{
    collections::VecDeque,
    time::{Duration, Instant},
};

use gst::prelude::*;
use gst_base::prelude::*;
use gst_video::{VideoCropMeta, VideoInfo, VideoMeta, VideoRegionOfInterestMeta};

use crate::{kernels::Instructions, sampler::sampler};

/// Formats with 8 or 10 bits a channel. Frames are not converted: only the samples that the small picture needs are read.
const CAPS: &str = ", format=(string){ I420, YV12, NV12, NV21, Y42B, Y444, YUY2, UYVY, RGB, BGR, RGBx, BGRx, xRGB, xBGR, RGBA, BGRA, \
                    ARGB, ABGR, GRAY8, I420_10LE, P010_10LE, I422_10LE, Y444_10LE }, width=(int)[ 16, 32767 ], \
                    height=(int)[ 16, 32767 ]";
/// CUDA memory is read like any other memory. GStreamer downloads a frame when it is mapped, so frames that are not searched stay
/// on the device.
const MEMORIES: [&str; 2] = ["video/x-raw(memory:CUDAMemory)", "video/x-raw"];
/// The number of recent searches from which the latency and the mean time are computed.
const RECENT: usize = 16;
/// The longest time between two frames that are searched. At a low frame rate, `every` alone would exceed it, and `cudagaussblur`
/// covers an object that was found once only for 0.3 seconds.
const LONGEST: gst::ClockTime = gst::ClockTime::from_mseconds(250);
/// In a live stream, a warning is posted after this number of consecutive searches that took longer than the time
/// between them.
const MOST_SLOW: u32 = 8;

pub fn pad_templates() -> Vec<gst::PadTemplate> {
    let caps =
        MEMORIES.map(|memory| format!("{memory}{CAPS}")).join(";").parse::<gst::Caps>().expect("the caps are valid");
    let template = |name, direction| {
        gst::PadTemplate::new(name, direction, gst::PadPresence::Always, &caps).expect("the template is valid")
    };
    vec![template("sink", gst::PadDirection::Sink), template("src", gst::PadDirection::Src)]
}

/// The fastest instructions that this processor has.
pub fn instructions() -> Instructions {
    Instructions::all().pop().expect("every processor has the baseline")
}

/// The running time of a frame, because objects are held in running time: in slow motion, frames are further apart than their
/// timestamps. A frame outside of the segment has its timestamp.
pub fn time(element: &gst_base::BaseTransform, buffer: &gst::BufferRef) -> Option<gst::ClockTime> {
    let (pts, segment) = (buffer.pts()?, element.segment());
    segment.downcast_ref::<gst::ClockTime>().and_then(|segment| segment.to_running_time(pts)).or(Some(pts))
}

/// Decides which frames are searched.
#[derive(Default)]
pub struct Schedule {
    /// The number of frames that are skipped before the next search.
    to_skip: u32,
    /// The times of the last frame that was searched, and of the latest frame.
    searched_at: Option<gst::ClockTime>,
    previous: Option<gst::ClockTime>,
    /// The time between the last two frames that were searched.
    pub interval: Option<gst::ClockTime>,
}

impl Schedule {
    /// Makes the next frame one that is searched.
    pub fn restart(&mut self) {
        self.to_skip = 0;
    }

    /// Whether the frame of this time has to be searched. One frame in `every` is searched, and more if searches would otherwise be
    /// more than `LONGEST` apart.
    pub fn is_due(&mut self, now: Option<gst::ClockTime>, every: u32) -> bool {
        let since = |earlier: Option<gst::ClockTime>| now?.checked_sub(earlier?);
        // The views of a stereo picture are frames of one time, and searched together.
        if now.is_some() && now == self.previous {
            return now == self.searched_at;
        }
        // Whether the next frame would exceed the longest time, if frames keep their interval.
        let is_late = match (since(self.previous), since(self.searched_at)) {
            (Some(interval), Some(since)) => since + interval > LONGEST,
            _ => true,
        };
        self.previous = now;
        if self.to_skip > 0 && !is_late {
            self.to_skip -= 1;
            return false;
        }
        self.interval = since(self.searched_at);
        (self.to_skip, self.searched_at) = (every - 1, now);
        true
    }
}

/// The counters and measurements that other threads read.
#[derive(Default)]
pub struct Searches {
    pub frames: u64,
    pub searched: u64,
    /// The number of consecutive searches that took longer than the time between them.
    slow: u32,
    /// The durations of the last searches, the reported latency, and the time when it changed.
    durations: VecDeque<Duration>,
    latency: Duration,
    changed_at: Option<Instant>,
    is_live: bool,
}

impl Searches {
    /// The mean time of the last searches, in nanoseconds.
    pub fn mean(&self) -> u64 {
        (self.durations.iter().sum::<Duration>() / self.durations.len().max(1) as u32).as_nanos() as u64
    }

    /// Adds the time of a search to the minimum of a latency query that upstream has answered, because a search delays its frame
    /// and the frames that arrive meanwhile. The maximum stays that of upstream, because the element buffers nothing.
    pub fn add_latency(&mut self, direction: gst::PadDirection, query: &mut gst::QueryRef) {
        if let (gst::PadDirection::Src, gst::QueryViewMut::Latency(latency)) = (direction, query.view_mut()) {
            let (live, min, max) = latency.result();
            self.is_live = live;
            latency.set(live, min + gst::ClockTime::from_nseconds(self.latency.as_nanos() as u64), max);
        }
    }

    /// Records a search and the time since the previous one.
    pub fn note(&mut self, duration: Duration, interval: Option<gst::ClockTime>, now: Instant) -> Reports {
        self.searched += 1;
        let is_slow = interval.is_some_and(|interval| duration.as_nanos() > u128::from(interval.nseconds()));
        self.slow = if is_slow { self.slow + 1 } else { 0 };
        Reports {
            is_longer: self.is_longer(duration, now),
            is_slow: self.slow == MOST_SLOW && self.is_live,
            duration,
            interval,
        }
    }

    /// Whether a longer latency has to be reported. This happens at most once a second, and a shorter latency is never reported,
    /// because playback falters whenever a pipeline changes its latency.
    fn is_longer(&mut self, duration: Duration, now: Instant) -> bool {
        self.durations.truncate(RECENT - 1);
        self.durations.push_front(duration);
        let mut sorted: Vec<_> = self.durations.iter().copied().collect();
        sorted.sort_unstable();
        // Uses the second longest search, because a single search may have been interrupted, and the first one also allocates.
        let Some(long) = sorted.len().checked_sub(2).map(|place| sorted[place]) else { return false };
        let is_due = self.changed_at.is_none_or(|changed| now.duration_since(changed) >= Duration::from_secs(1));
        if long <= self.latency || !is_due {
            return false;
        }
        // Adds an eighth, so that small variations of the durations do not change the latency again and again.
        self.latency = long * 9 / 8;
        self.changed_at = Some(now);
        true
    }
}

/// The messages that have to be posted after a search.
pub struct Reports {
    is_longer: bool,
    is_slow: bool,
    duration: Duration,
    interval: Option<gst::ClockTime>,
}

impl Reports {
    /// Posts the messages; the caller must hold no lock. `cure` says which properties make searches faster.
    pub fn post(self, element: &gst::Element, cure: &str) {
        if self.is_longer {
            let _ = element.post_message(gst::message::Latency::builder().src(element).build());
        }
        if self.is_slow {
            gst::element_warning!(
                element,
                gst::ResourceError::Busy,
                (
                    "a search takes {} ms, but one is due every {} ms, so that frames fall behind: {cure}",
                    self.duration.as_millis(),
                    self.interval.map_or(0, gst::ClockTime::mseconds)
                )
            );
        }
    }
}

/// Removes pictures and other samples from the tags of an event, such as the cover picture of a file, also in a tag that a demuxer
/// does not know and passes on as it is in the file. A muxer would copy these uncovered pictures.
pub fn without_pictures(event: gst::Event) -> gst::Event {
    let gst::EventView::Tag(tag) = event.view() else { return event };
    let is_sample = |(_, value): &(_, gst::glib::SendValue)| value.is::<gst::Sample>();
    let samples: Vec<_> = tag.tag().iter().filter(is_sample).map(|(name, _)| name.to_owned()).collect();
    if samples.is_empty() {
        return event;
    }
    let mut tags = tag.tag_owned();
    samples.into_iter().for_each(|name| tags.make_mut().remove_generic(name));
    gst::event::Tag::builder(tags).seqnum(event.seqnum()).build()
}

/// Attaches a box. A box of size 0 says that the detector has handled the frame. So with on-missing=auto, cudagaussblur covers
/// only frames that have lost their metas.
pub fn attach<'a>(
    buffer: &'a mut gst::BufferRef,
    label: &str,
    [x, y, width, height]: [u32; 4],
) -> gst::MetaRefMut<'a, VideoRegionOfInterestMeta, gst::meta::Standalone> {
    VideoRegionOfInterestMeta::add(buffer, label, (x, y, width, height))
}

/// A param for a region, with the confidence of the detector from 0 to 1.
pub fn detection(confidence: f32) -> gst::Structure {
    gst::Structure::builder("detection").field("confidence", f64::from(confidence)).build()
}

/// Calls `read` with a function that writes rows of a small picture of this size. The picture shows a part of the frame: column,
/// row, width and height. `Err` says why the frame cannot be read.
pub fn with_picture<T>(
    buffer: &gst::BufferRef,
    info: &VideoInfo,
    part: [u32; 4],
    size: [usize; 2],
    read: impl FnOnce(&(dyn Fn(usize, &mut [f32]) + Sync)) -> T,
) -> Result<T, String> {
    let full = [info.width(), info.height()];
    // If the size of a GstVideoCropMeta is that of the caps, it says where the picture of the caps lies in a larger frame. A crop
    // of another size shows a part of that picture; then the whole picture is searched. cudagaussblur counts the positions of
    // detections from the same corner.
    let corner = match buffer.meta::<VideoCropMeta>().map(|crop| crop.rect()) {
        Some((x, y, width, height)) if [width, height] == full => [x, y],
        _ => [0, 0],
    };
    let meta = buffer.meta::<VideoMeta>();
    let (offsets, strides) =
        meta.as_ref().map_or((info.offset(), info.stride()), |meta| (meta.offset(), meta.stride()));
    let planes: Vec<_> = offsets.iter().copied().zip(strides.iter().copied()).collect();
    let data = buffer.map_readable().map_err(|_| "a frame cannot be read")?;
    let rows = sampler(info, &data, &planes, corner, part, size).ok_or_else(|| {
        let ([width, height], [x, y]) = (full, corner);
        format!("a frame of {} bytes does not hold {width}x{height} pixels from {x}, {y} on", data.len())
    })?;
    Ok(read(&rows))
}
