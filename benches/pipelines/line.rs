//! A pipeline without a source: prepared frames are pushed into its first element round and round, which costs nothing
//! but the push, and counted where they arrive.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use gst::prelude::*;
use gst_video::VideoInfo;
use gstcudagaussblur::cuda::CudaEngine;

use crate::common::{Outcome, median, noise};

/// Frames of a measurement, and those before it.
pub const FRAMES: usize = 1000;
const WARM_UP: usize = 50;
/// Frames in turn, so that none is still in the CPU's cache when it comes again.
pub const BUFFERS: usize = 6;
/// Where frames end, at once.
pub const SINK: &str = "fakesink sync=false async=false enable-last-sample=false";

/// Where frames come from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    /// The pool that the first element offers.
    Offered,
    Ordinary,
    /// The system's memory, the same again and again, as from a pool that knows nothing of CUDA.
    Foreign,
    /// Pinned, and from nobody's pool.
    Pinned,
}

/// What the pads saw of the first so many frames, by their number.
#[derive(Default)]
struct Seen {
    /// At the sinks, as they came.
    arrived: Vec<Instant>,
    entered: Vec<Instant>,
    /// From the first element's sink pad to its source pad.
    within: Vec<Duration>,
}

pub struct Line {
    pub pipeline: gst::Pipeline,
    pad: gst::Pad,
    info: VideoInfo,
    caps: gst::Caps,
    seen: Arc<Mutex<Seen>>,
    /// Frames that have come to any sink.
    pub arrived: Arc<AtomicU64>,
    sinks: usize,
}

/// Times of a frame.
pub struct Times {
    /// From frame to frame at the sink.
    pub each: Duration,
    /// In the first element, the median; if it has a source pad.
    pub within: Option<Duration>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Line {
    /// Starts a pipeline whose first element is called `in`.
    pub fn new(description: &str, info: &VideoInfo) -> Outcome<Self> {
        Self::with(description, info, None)
    }

    /// The same with frames in a memory that caps name.
    pub fn with(description: &str, info: &VideoInfo, feature: Option<&str>) -> Outcome<Self> {
        let pipeline = gst::parse::launch(description)?.downcast::<gst::Pipeline>().expect("several elements");
        let first = pipeline.by_name("in").expect("it is in the line");
        let (seen, arrived) = (Arc::new(Mutex::new(Seen::default())), Arc::new(AtomicU64::new(0)));
        let mut sinks = 0;
        for sink in pipeline.iterate_sinks() {
            count(&sink?, &seen, &arrived);
            sinks += 1;
        }
        if let Some(src) = first.static_pad("src") {
            watch(&first.static_pad("sink").expect("an always pad"), &src, &seen);
        }
        let pad = gst::Pad::builder(gst::PadDirection::Src).name("frames").build();
        pad.link(&first.static_pad("sink").expect("an always pad"))?;
        pad.set_active(true)?;
        let mut caps = info.to_caps()?;
        if let Some(feature) = feature {
            caps.make_mut().set_features_simple(Some(gst::CapsFeatures::new([feature])));
        }
        let line = Self { pipeline, pad, info: info.clone(), caps, seen, arrived, sinks };
        line.pipeline.set_state(gst::State::Playing).map_err(|error| line.why(error))?;
        let caps = &line.caps;
        let segment = gst::FormattedSegment::<gst::ClockTime>::new();
        line.pad.push_event(gst::event::StreamStart::new("frames"));
        if !line.pad.push_event(gst::event::Caps::new(caps)) {
            return Err(line.why(format!("not taken: {caps}")));
        }
        line.pad.push_event(gst::event::Segment::new(&segment));
        Ok(line)
    }

    /// What the pipeline says of an error, or the error itself.
    fn why(&self, error: impl Into<Box<dyn std::error::Error>>) -> Box<dyn std::error::Error> {
        let message = self.pipeline.bus().and_then(|bus| bus.pop_filtered(&[gst::MessageType::Error]));
        match message.as_ref().map(|message| message.view()) {
            Some(gst::MessageView::Error(message)) => message.error().into(),
            _ => error.into(),
        }
    }

    /// Frames of noise. None if the element offers no pool, and is to.
    pub fn frames(&self, memory: Memory) -> Outcome<Option<Vec<gst::Buffer>>> {
        let pool = if memory == Memory::Offered { self.offered()? } else { None };
        let pinned = CudaEngine::new(0)?.pinned();
        let noise = noise(self.info.size());
        let frame = |_| -> Outcome<gst::Buffer> {
            let mut buffer = match (memory, &pool) {
                (Memory::Pinned, _) => gst::Buffer::from_mut_slice(pinned.allocate(noise.len())?),
                (Memory::Foreign, _) => gst::Buffer::with_size(noise.len())?,
                (_, Some(pool)) => pool.acquire_buffer(None)?,
                (_, None) => gst::Buffer::from_mut_slice(noise.clone()),
            };
            let mut map = buffer.get_mut().expect("ours alone").map_writable()?;
            for (place, value) in map.iter_mut().zip(noise.iter().cycle()) {
                *place = *value;
            }
            drop(map);
            Ok(buffer)
        };
        if memory == Memory::Offered && pool.is_none() {
            return Ok(None);
        }
        (0..BUFFERS).map(frame).collect::<Outcome<_>>().map(Some)
    }

    /// The pool that is offered, started.
    fn offered(&self) -> Outcome<Option<gst::BufferPool>> {
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

    /// Pushes one frame; its number is its time stamp's ms.
    pub fn push(&self, frame: &gst::Buffer, number: u64) -> Outcome<()> {
        // The pixels are shared.
        let mut frame = frame.copy();
        frame.get_mut().expect("a new one").set_pts(gst::ClockTime::from_mseconds(number));
        self.pad.push(frame).map_err(|error| self.why(error))?;
        Ok(())
    }

    /// Pushes a measurement's frames as fast as they are taken.
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
        let mut seen = lock(&self.seen);
        let (first, last) = (self.sinks * WARM_UP, self.sinks * (WARM_UP + FRAMES));
        if seen.arrived.len() != last {
            return Err(format!("{} frames of {last} came to the sink", seen.arrived.len()).into());
        }
        let each = (seen.arrived[last - 1] - seen.arrived[first - 1]) / FRAMES as u32;
        let within = (seen.within.len() > WARM_UP).then(|| median(seen.within.split_off(WARM_UP)));
        Ok(Times { each, within })
    }

    /// Pushes frames until told to stop.
    pub fn until(&self, frames: &[gst::Buffer], stop: &AtomicBool) -> Outcome<()> {
        for (number, frame) in (0..).zip(frames.iter().cycle()) {
            if stop.load(Ordering::Relaxed) {
                break;
            }
            self.push(frame, number)?;
        }
        Ok(())
    }
}

impl Drop for Line {
    fn drop(&mut self) {
        let _ = self.pipeline.set_state(gst::State::Null);
        let _ = self.pad.set_active(false);
    }
}

/// Counts what comes to a sink.
fn count(sink: &gst::Element, seen: &Arc<Mutex<Seen>>, arrived: &Arc<AtomicU64>) {
    let (seen, arrived) = (seen.clone(), arrived.clone());
    let pad = sink.static_pad("sink").expect("an always pad");
    pad.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
        // What runs long keeps no more.
        if arrived.fetch_add(1, Ordering::Relaxed) < 8 * (WARM_UP + FRAMES) as u64 {
            lock(&seen).arrived.push(Instant::now());
        }
        gst::PadProbeReturn::Ok
    });
}

/// Takes the time from pad to pad.
fn watch(sink: &gst::Pad, src: &gst::Pad, seen: &Arc<Mutex<Seen>>) {
    let of_sink = seen.clone();
    sink.add_probe(gst::PadProbeType::BUFFER, move |_, _| {
        let mut seen = lock(&of_sink);
        if seen.entered.len() < WARM_UP + FRAMES {
            seen.entered.push(Instant::now());
        }
        gst::PadProbeReturn::Ok
    });
    let of_src = seen.clone();
    src.add_probe(gst::PadProbeType::BUFFER, move |_, info| {
        let left = Instant::now();
        let number = info.buffer().and_then(|buffer| buffer.pts()).map(gst::ClockTime::mseconds);
        let mut seen = lock(&of_src);
        if let Some(entered) = number.and_then(|number| seen.entered.get(usize::try_from(number).ok()?).copied()) {
            seen.within.push(left - entered);
        }
        gst::PadProbeReturn::Ok
    });
}
