//! A pipeline without a source element: prepared frames are pushed into its first element in turn, so that only the
//! push itself costs time, and are counted at its sinks.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gst::prelude::*;
use gst_video::VideoInfo;
use gstcudagaussblur::cuda::CudaEngine;

use crate::common::{Outcome, median, noise};

/// The number of frames of a measurement, and of those that warm up before it.
pub const FRAMES: usize = 1000;
const WARM_UP: usize = 50;
/// Frames that are used in turn, so that none is still in the CPU's cache when it is used again.
pub const BUFFERS: usize = 6;
/// A sink that drops frames at once.
pub const SINK: &str = "fakesink sync=false async=false enable-last-sample=false";

/// Where the memory of the frames comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// The pool that the first element offers.
    Offered,
    /// Heap blocks allocated by Rust.
    Ordinary,
    /// GStreamer's system memory, used again and again, as from a pool without CUDA support.
    Recycled,
    /// Pinned memory that belongs to no pool.
    Pinned,
}

/// Times of the frames, as the pad probes record them. They stop recording after a limit.
#[derive(Default)]
struct Recorded {
    /// When frames arrived at the sinks, in that order.
    arrived: Vec<Instant>,
    /// When frames entered the first element, by frame number.
    entered: Vec<Instant>,
    /// Times from the first element's sink pad to its source pad.
    within: Vec<Duration>,
}

pub struct PushPipeline {
    pipeline: gst::Pipeline,
    pad: gst::Pad,
    info: VideoInfo,
    caps: gst::Caps,
    recorded: Arc<Mutex<Recorded>>,
    /// The number of frames that have arrived at any sink.
    pub arrived: Arc<AtomicU64>,
    sinks: usize,
}

/// The result of a measurement.
pub struct Times {
    /// The mean time from one frame to the next at the sink.
    pub each: Duration,
    /// The median time in the first element, if it has a source pad.
    pub within: Option<Duration>,
}

pub fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The caps of frames in memory with this feature.
fn caps(info: &VideoInfo, feature: Option<&str>) -> Outcome<gst::Caps> {
    let mut caps = info.to_caps()?;
    if let Some(feature) = feature {
        caps.make_mut().set_features_simple(Some(gst::CapsFeatures::new([feature])));
    }
    Ok(caps)
}

impl PushPipeline {
    /// Starts a pipeline whose first element is called `in`.
    pub fn new(description: &str, info: &VideoInfo) -> Outcome<Self> {
        Self::with_feature(description, info, None)
    }

    /// The same with a caps feature for the memory of the frames.
    pub fn with_feature(description: &str, info: &VideoInfo, feature: Option<&str>) -> Outcome<Self> {
        let pipeline = gst::parse::launch(description)?
            .downcast::<gst::Pipeline>()
            .expect("gst_parse_launch makes a pipeline of several elements");
        let first = pipeline.by_name("in").expect("the description names the first element");
        let (recorded, arrived) = (Arc::new(Mutex::new(Recorded::default())), Arc::new(AtomicU64::new(0)));
        let mut sinks = 0;
        for sink in pipeline.iterate_sinks() {
            add_sink_probe(&sink?, &recorded, &arrived);
            sinks += 1;
        }
        if let Some(src) = first.static_pad("src") {
            add_element_probes(&first.static_pad("sink").expect("an always pad"), &src, &recorded);
        }
        let pad = gst::Pad::builder(gst::PadDirection::Src).name("frames").build();
        pad.link(&first.static_pad("sink").expect("an always pad"))?;
        pad.set_active(true)?;
        let caps = caps(info, feature)?;
        let this = Self { pipeline, pad, info: info.clone(), caps, recorded, arrived, sinks };
        this.pipeline.set_state(gst::State::Playing).map_err(|error| this.posted_error(error))?;
        let caps = &this.caps;
        let segment = gst::FormattedSegment::<gst::ClockTime>::new();
        this.pad.push_event(gst::event::StreamStart::new("frames"));
        if !this.pad.push_event(gst::event::Caps::new(caps)) {
            return Err(this.posted_error(format!("the caps were not accepted: {caps}")));
        }
        this.pad.push_event(gst::event::Segment::new(&segment));
        Ok(this)
    }

    /// Sends new caps, which the frames after them have.
    pub fn set_caps(&mut self, info: &VideoInfo, feature: Option<&str>) -> Outcome<()> {
        (self.info, self.caps) = (info.clone(), caps(info, feature)?);
        match self.pad.push_event(gst::event::Caps::new(&self.caps)) {
            true => Ok(()),
            false => Err(self.posted_error(format!("the caps were not accepted: {}", self.caps))),
        }
    }

    /// Sends an event into the first element.
    pub fn send(&self, event: gst::Event) {
        self.pad.push_event(event);
    }

    /// The pipeline's first element.
    pub fn first_element(&self) -> gst::Element {
        self.pipeline.by_name("in").expect("the description names the first element")
    }

    /// The error that the pipeline has posted, or `error` if it has posted none.
    fn posted_error(&self, error: impl Into<Box<dyn std::error::Error>>) -> Box<dyn std::error::Error> {
        let message = self.pipeline.bus().and_then(|bus| bus.pop_filtered(&[gst::MessageType::Error]));
        match message.as_ref().map(|message| message.view()) {
            Some(gst::MessageView::Error(message)) => message.error().into(),
            _ => error.into(),
        }
    }

    /// The warnings and errors that have been posted.
    pub fn complaints(&self) -> Vec<String> {
        let kinds = [gst::MessageType::Warning, gst::MessageType::Error];
        let bus = self.pipeline.bus().expect("a pipeline's");
        let text = |message: gst::Message| match message.view() {
            gst::MessageView::Warning(warning) => warning.error().to_string(),
            gst::MessageView::Error(error) => error.error().to_string(),
            _ => String::new(),
        };
        std::iter::from_fn(|| bus.pop_filtered(&kinds)).map(text).collect()
    }

    /// Frames of noise in this memory. `None` for [`Memory::Offered`] if the first element offers no pool.
    pub fn frames(&self, memory: Memory) -> Outcome<Option<Vec<gst::Buffer>>> {
        let pool = if memory == Memory::Offered { self.offered_pool()? } else { None };
        let pinned = match memory {
            Memory::Pinned => Some(CudaEngine::new(0)?.pinned()),
            _ => None,
        };
        let noise = noise(self.info.size());
        let frame = |_| -> Outcome<gst::Buffer> {
            let mut buffer = match (&pinned, &pool) {
                (Some(pinned), _) => gst::Buffer::from_mut_slice(pinned.allocate(noise.len())?),
                (_, Some(pool)) => pool.acquire_buffer(None)?,
                _ if memory == Memory::Recycled => gst::Buffer::with_size(noise.len())?,
                _ => gst::Buffer::from_mut_slice(noise.clone()),
            };
            let mut map = buffer.get_mut().expect("the only reference").map_writable()?;
            for (byte, value) in map.iter_mut().zip(noise.iter().cycle()) {
                *byte = *value;
            }
            drop(map);
            Ok(buffer)
        };
        if memory == Memory::Offered && pool.is_none() {
            return Ok(None);
        }
        (0..BUFFERS).map(frame).collect::<Outcome<_>>().map(Some)
    }

    /// The pool that the first element offers, activated.
    fn offered_pool(&self) -> Outcome<Option<gst::BufferPool>> {
        let caps = self.caps.clone();
        let mut query = gst::query::Allocation::new(Some(&caps), true);
        if !self.pad.peer_query(&mut query) {
            return Ok(None);
        }
        let Some((Some(pool), size, min, _)) = query.allocation_pools().next() else { return Ok(None) };
        let mut config = pool.config();
        config.set_params(Some(&caps), size, min.max(BUFFERS as u32), 0);
        config.add_option(gst_video::BUFFER_POOL_OPTION_VIDEO_META);
        pool.set_config(config)?;
        pool.set_active(true)?;
        Ok(Some(pool))
    }

    /// Pushes one frame. Its timestamp in ms is its number, by which the probes identify it.
    pub fn push(&self, frame: &gst::Buffer, number: u64) -> Outcome<()> {
        // A shallow copy: the pixels are shared.
        let mut frame = frame.copy();
        frame.get_mut().expect("the only reference to the copy").set_pts(gst::ClockTime::from_mseconds(number));
        self.pad.push(frame).map_err(|error| self.posted_error(error))?;
        Ok(())
    }

    /// Pushes the frames of a measurement as fast as the pipeline accepts them, then end of stream.
    pub fn measure(&self, frames: &[gst::Buffer]) -> Outcome<Times> {
        for (number, frame) in (0..).zip(frames.iter().cycle().take(WARM_UP + FRAMES)) {
            self.push(frame, number)?;
        }
        self.pad.push_event(gst::event::Eos::new());
        let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
        let end =
            self.pipeline.bus().expect("a pipeline's").timed_pop_filtered(gst::ClockTime::from_seconds(20), &kinds);
        match end.as_ref().map(|message| message.view()) {
            Some(gst::MessageView::Eos(_)) => (),
            Some(gst::MessageView::Error(error)) => return Err(error.error().into()),
            _ => return Err("the pipeline did not end".into()),
        }
        let mut recorded = lock(&self.recorded);
        let (first, last) = (self.sinks * WARM_UP, self.sinks * (WARM_UP + FRAMES));
        if recorded.arrived.len() != last {
            return Err(format!("{} of {last} frames arrived at the sinks", recorded.arrived.len()).into());
        }
        let each = (recorded.arrived[last - 1] - recorded.arrived[first - 1]) / FRAMES as u32;
        let within = (recorded.within.len() > WARM_UP).then(|| median(recorded.within.split_off(WARM_UP)));
        Ok(Times { each, within })
    }

    /// Pushes frames until `stop` is set.
    pub fn push_until(&self, frames: &[gst::Buffer], stop: &AtomicBool) -> Outcome<()> {
        for (number, frame) in (0..).zip(frames.iter().cycle()) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            self.push(frame, number)?;
        }
        Ok(())
    }
}

impl Drop for PushPipeline {
    fn drop(&mut self) {
        let _ = self.pipeline.set_state(gst::State::Null);
        let _ = self.pad.set_active(false);
    }
}

/// Adds a probe that counts the frames that arrive at a sink and records when.
fn add_sink_probe(sink: &gst::Element, recorded: &Arc<Mutex<Recorded>>, arrived: &Arc<AtomicU64>) {
    let (recorded, arrived) = (recorded.clone(), arrived.clone());
    let pad = sink.static_pad("sink").expect("an always pad");
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
        // A limit, so that a long run does not collect times without end.
        if arrived.fetch_add(1, Ordering::Relaxed) < 8 * (WARM_UP + FRAMES) as u64 {
            lock(&recorded).arrived.push(Instant::now());
        }
        gst::PadProbeReturn::Ok
    });
}

/// Adds probes that measure the time of each frame from the sink pad to the source pad.
fn add_element_probes(sink: &gst::Pad, src: &gst::Pad, recorded: &Arc<Mutex<Recorded>>) {
    let of_sink = recorded.clone();
    sink.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
        let mut recorded = lock(&of_sink);
        if recorded.entered.len() < WARM_UP + FRAMES {
            recorded.entered.push(Instant::now());
        }
        gst::PadProbeReturn::Ok
    });
    let of_src = recorded.clone();
    src.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        let left = Instant::now();
        let number = info.buffer().and_then(|buffer| buffer.pts()).map(gst::ClockTime::mseconds);
        let mut recorded = lock(&of_src);
        if let Some(entered) = number.and_then(|number| recorded.entered.get(usize::try_from(number).ok()?).copied()) {
            recorded.within.push(left - entered);
        }
        gst::PadProbeReturn::Ok
    });
}
