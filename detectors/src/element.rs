// SPDX-License-Identifier: MPL-2.0
//! The element `centerface`.

use std::{
    collections::VecDeque,
    sync::{LazyLock, Mutex},
    time::{Duration, Instant},
};

use gst::{glib, prelude::*, subclass::prelude::*};
use gst_base::subclass::{
    base_transform::{InputBuffer, PrepareOutputBufferSuccess},
    prelude::*,
};
use gst_video::{VideoCropMeta, VideoInfo, VideoMeta, VideoRegionOfInterestMeta};

use crate::{
    faces::{Face, faces, overlap},
    kernels::Instructions,
    model,
    run::Runner,
    sampler::sampler,
};

static CAT: LazyLock<gst::DebugCategory> =
    LazyLock::new(|| gst::DebugCategory::new("centerface", gst::DebugColorFlags::empty(), Some("Finds faces")));

/// 8 or 10 bits a channel. Frames are not converted: only the samples that the small picture needs are read.
const CAPS: &str = "video/x-raw, format=(string){ I420, YV12, NV12, NV21, Y42B, Y444, YUY2, UYVY, RGB, BGR, RGBx, BGRx, xRGB, xBGR, \
                    RGBA, BGRA, ARGB, ABGR, GRAY8, I420_10LE, P010_10LE, I422_10LE, Y444_10LE }, width=(int)[ 16, 32767 ], height=(int)[ 16, 32767 ]";
/// Longest time between two frames that are searched. At a low rate `every` alone would exceed it, and `cudagaussblur` covers what it
/// has seen once for 0.3 seconds.
const LONGEST: gst::ClockTime = gst::ClockTime::from_mseconds(250);
/// Number of recent searches from which the latency and the mean time are computed.
const RECENT: usize = 16;
/// A warning is posted after so many searches in a row that took longer than the time between them, in a live stream.
const MOST_SLOW: u32 = 8;
/// The largest number of threads by default, because decoder, blur and encoder run beside a search.
const MOST_THREADS: usize = 4;

#[derive(Clone)]
struct Settings {
    every: u32,
    threshold: f64,
    size: u32,
    threads: u32,
    model: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { every: 5, threshold: 0.2, size: 640, threads: 0, model: None }
    }
}

/// What the streaming thread uses, from `start` to `stop`.
#[derive(Default)]
struct State {
    runner: Option<Runner>,
    info: Option<VideoInfo>,
    /// Frames to pass before the next search.
    to_skip: u32,
    /// What the last search has found, and whether it was an additional one.
    faces: Vec<Face>,
    is_additional: bool,
    /// Searches in a row that took longer than the time between them.
    slow: u32,
    /// Timestamps of the frame that was searched last, and of the latest frame.
    searched_at: Option<gst::ClockTime>,
    previous: Option<gst::ClockTime>,
    /// The time between the last two frames that were searched.
    interval: Option<gst::ClockTime>,
}

/// What other threads read.
#[derive(Default)]
struct Published {
    frames: u64,
    analyzed: u64,
    faces: u64,
    instructions: &'static str,
    /// The durations of the last searches, the latency that is reported, and when it changed.
    durations: VecDeque<Duration>,
    latency: Duration,
    changed_at: Option<Instant>,
    is_live: bool,
}

impl Published {
    fn mean(&self) -> Duration {
        self.durations.iter().sum::<Duration>() / self.durations.len().max(1) as u32
    }

    /// Notes a search. True if a longer latency is to be reported: once a second at most, and never a shorter one, because playback
    /// falters whenever a pipeline sets its latency anew.
    fn note(&mut self, faces: usize, duration: Duration, now: Instant) -> bool {
        self.analyzed += 1;
        self.faces += faces as u64;
        self.durations.truncate(RECENT - 1);
        self.durations.push_front(duration);
        let mut sorted: Vec<_> = self.durations.iter().copied().collect();
        sorted.sort_unstable();
        // The second longest: a single search may have been interrupted, and the first one also allocates.
        let Some(long) = sorted.len().checked_sub(2).map(|place| sorted[place]) else { return false };
        let is_due = self.changed_at.is_none_or(|changed| now.duration_since(changed) >= Duration::from_secs(1));
        if long <= self.latency || !is_due {
            return false;
        }
        // An eighth more, so that searches whose durations vary a little do not change the latency again and again.
        self.latency = long * 9 / 8;
        self.changed_at = Some(now);
        true
    }
}

#[derive(Default)]
pub struct Element {
    settings: Mutex<Settings>,
    state: Mutex<State>,
    published: Mutex<Published>,
}

glib::wrapper! {
    /// The element `centerface`, which attaches the faces that it finds as regions of interest.
    pub struct CenterFace(ObjectSubclass<Element>) @extends gst_base::BaseTransform, gst::Element, gst::Object;
}

#[glib::object_subclass]
impl ObjectSubclass for Element {
    const NAME: &'static str = "GstCenterFace";
    type Type = CenterFace;
    type ParentType = gst_base::BaseTransform;
}

impl ObjectImpl for Element {
    fn properties() -> &'static [glib::ParamSpec] {
        static PROPERTIES: LazyLock<Vec<glib::ParamSpec>> = LazyLock::new(|| {
            let default = Settings::default();
            vec![
                glib::ParamSpecUInt::builder("every")
                    .nick("Every")
                    .blurb(
                        "Search every N-th frame, and the next one after a new face; at low rates more often, so that at most 250 ms lie \
                         between two searches",
                    )
                    .minimum(1)
                    .maximum(1000)
                    .default_value(default.every)
                    .mutable_playing()
                    .build(),
                glib::ParamSpecDouble::builder("threshold")
                    .nick("Threshold")
                    .blurb("Least confidence of a face: a lower one finds more faces, and more that are none")
                    .minimum(0.)
                    .maximum(1.)
                    .default_value(default.threshold)
                    .mutable_playing()
                    .build(),
                glib::ParamSpecUInt::builder("size")
                    .nick("Size")
                    .blurb(
                        "Longer side of the picture that is searched, in pixels: twice finds faces of half the size and takes four \
                         times as long",
                    )
                    .minimum(64)
                    .maximum(4096)
                    .default_value(default.size)
                    .mutable_playing()
                    .build(),
                glib::ParamSpecString::builder("model")
                    .nick("Model")
                    .blurb(
                        "File of the model. Unset: centerface.onnx in the folder that CUDAGAUSSBLUR_MODELS names, else in ../models \
                         relative to the plugin's folder, else in cudagaussblur/models of the user's and the system's data folders",
                    )
                    .mutable_ready()
                    .build(),
                glib::ParamSpecUInt::builder("threads")
                    .nick("Threads")
                    .blurb("Threads of the model; 0: one for each processor that the process may use, four at most")
                    .maximum(64)
                    .default_value(default.threads)
                    .mutable_ready()
                    .build(),
                glib::ParamSpecBoxed::builder::<gst::Structure>("stats")
                    .nick("Stats")
                    .blurb(
                        "frames; analyzed: frames that were searched; faces: found in them; mean-ns: mean time of the last 16 searches; \
                         instructions: the processor's vector instructions in use (avx512, avx2, sse2, neon, none)",
                    )
                    .read_only()
                    .build(),
            ]
        });
        &PROPERTIES
    }

    fn set_property(&self, _id: usize, value: &glib::Value, pspec: &glib::ParamSpec) {
        let mut settings = self.settings.lock().unwrap();
        let checked = "GObject checks the type";
        match pspec.name() {
            "every" => settings.every = value.get().expect(checked),
            "threshold" => settings.threshold = value.get().expect(checked),
            "size" => settings.size = value.get().expect(checked),
            "threads" => settings.threads = value.get().expect(checked),
            "model" => settings.model = value.get().expect(checked),
            _ => unreachable!("GObject checks the name"),
        }
    }

    fn property(&self, _id: usize, pspec: &glib::ParamSpec) -> glib::Value {
        let settings = self.settings.lock().unwrap();
        match pspec.name() {
            "every" => settings.every.to_value(),
            "threshold" => settings.threshold.to_value(),
            "size" => settings.size.to_value(),
            "threads" => settings.threads.to_value(),
            "model" => settings.model.to_value(),
            "stats" => {
                let published = self.published.lock().unwrap();
                gst::Structure::builder("stats")
                    .field("frames", published.frames)
                    .field("analyzed", published.analyzed)
                    .field("faces", published.faces)
                    .field("mean-ns", published.mean().as_nanos() as u64)
                    .field("instructions", published.instructions)
                    .build()
                    .to_value()
            }
            _ => unreachable!("GObject checks the name"),
        }
    }
}

impl GstObjectImpl for Element {}

impl ElementImpl for Element {
    fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
        static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
            gst::subclass::ElementMetadata::new(
                "CenterFace",
                "Analyzer/Video",
                "Finds faces and attaches them as regions of interest",
                env!("CARGO_PKG_AUTHORS"),
            )
        });
        Some(&METADATA)
    }

    fn pad_templates() -> &'static [gst::PadTemplate] {
        static TEMPLATES: LazyLock<Vec<gst::PadTemplate>> = LazyLock::new(|| {
            let caps = CAPS.parse::<gst::Caps>().expect("the caps are valid");
            let template = |name, direction| {
                gst::PadTemplate::new(name, direction, gst::PadPresence::Always, &caps).expect("the template is valid")
            };
            vec![template("sink", gst::PadDirection::Sink), template("src", gst::PadDirection::Src)]
        });
        &TEMPLATES
    }
}

impl BaseTransformImpl for Element {
    const MODE: gst_base::subclass::BaseTransformMode = gst_base::subclass::BaseTransformMode::AlwaysInPlace;
    const PASSTHROUGH_ON_SAME_CAPS: bool = false;
    const TRANSFORM_IP_ON_PASSTHROUGH: bool = false;

    fn start(&self) -> Result<(), gst::ErrorMessage> {
        let settings = self.settings.lock().unwrap().clone();
        let path = model::find(settings.model)
            .map_err(|reason| gst::error_msg!(gst::ResourceError::NotFound, ("{reason}")))?;
        let instructions = Instructions::all().pop().expect("every processor has the baseline");
        let threads = match settings.threads {
            // What the process may use: its affinity and its control group's quota.
            0 => std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS),
            threads => threads as usize,
        };
        let runner = model::open(&path, instructions, threads).map_err(|reason| {
            gst::error_msg!(gst::ResourceError::OpenRead, ("{} cannot be used as the model: {reason}", path.display()))
        })?;
        gst::info!(CAT, imp = self, "{} on {threads} threads with {}", path.display(), instructions.name());
        *self.state.lock().unwrap() = State { runner: Some(runner), ..State::default() };
        *self.published.lock().unwrap() = Published { instructions: instructions.name(), ..Published::default() };
        Ok(())
    }

    fn stop(&self) -> Result<(), gst::ErrorMessage> {
        *self.state.lock().unwrap() = State::default();
        Ok(())
    }

    fn set_caps(&self, incaps: &gst::Caps, _outcaps: &gst::Caps) -> Result<(), gst::LoggableError> {
        let mut state = self.state.lock().unwrap();
        state.info = Some(VideoInfo::from_caps(incaps)?);
        state.to_skip = 0;
        Ok(())
    }

    fn sink_event(&self, event: gst::Event) -> bool {
        if event.type_() == gst::EventType::FlushStop {
            // cudagaussblur forgets its tracks.
            self.state.lock().unwrap().to_skip = 0;
        }
        let gst::EventView::Tag(tag) = event.view() else { return self.parent_sink_event(event) };
        // Pictures among the tags, such as a cover picture of the file, would be copied by a muxer as they are.
        let mut tags = tag.tag_owned();
        let list = tags.make_mut();
        list.remove::<gst::tags::Image>();
        list.remove::<gst::tags::PreviewImage>();
        list.remove::<gst::tags::Attachment>();
        self.parent_sink_event(gst::event::Tag::builder(tags).seqnum(event.seqnum()).build())
    }

    /// Adds the time of a search to the minimum latency: it delays the searched frame and those that arrive meanwhile. The maximum
    /// latency is upstream's, because this element buffers nothing.
    fn query(&self, direction: gst::PadDirection, query: &mut gst::QueryRef) -> bool {
        if !BaseTransformImplExt::parent_query(self, direction, query) {
            return false;
        }
        if let (gst::PadDirection::Src, gst::QueryViewMut::Latency(latency)) = (direction, query.view_mut()) {
            let (live, min, max) = latency.result();
            let mut published = self.published.lock().unwrap();
            published.is_live = live;
            let search = published.latency;
            latency.set(live, min + gst::ClockTime::from_nseconds(search.as_nanos() as u64), max);
        }
        true
    }

    /// Passes the buffer on. If others hold it, they keep theirs, and a copy gets the metas; it shares the memory, which is only read.
    fn prepare_output_buffer(&self, inbuf: InputBuffer) -> Result<PrepareOutputBufferSuccess, gst::FlowError> {
        Ok(match inbuf {
            InputBuffer::Writable(_) => PrepareOutputBufferSuccess::InputBuffer,
            InputBuffer::Readable(buffer) => PrepareOutputBufferSuccess::Buffer(buffer.to_owned()),
        })
    }

    fn transform_ip(&self, buffer: &mut gst::BufferRef) -> Result<gst::FlowSuccess, gst::FlowError> {
        self.published.lock().unwrap().frames += 1;
        let settings = self.settings.lock().unwrap().clone();
        let mut state = self.state.lock().unwrap();
        if !state.is_searched(buffer, settings.every) {
            attach(buffer, "nothing", [0; 4]);
            return Ok(gst::FlowSuccess::Ok);
        }
        let started = Instant::now();
        let interval = state.interval;
        let found = state.search(buffer, &settings);
        found.iter().for_each(|faces| state.follow(faces));
        let now = Instant::now();
        let duration = now - started;
        state.slow = if interval.is_some_and(|interval| duration.as_nanos() > u128::from(interval.nseconds())) {
            state.slow + 1
        } else {
            0
        };
        let is_slow = state.slow == MOST_SLOW;
        drop(state);
        let found = found.map_err(|reason| {
            gst::element_imp_error!(self, gst::StreamError::Failed, ("{reason}"));
            gst::FlowError::Error
        })?;
        gst::log!(CAT, imp = self, "{:?} {found:?} in {duration:?}", buffer.pts());
        for face in &found {
            let [left, top] = [face.sides[0], face.sides[1]].map(|side| side.floor() as u32);
            let [right, bottom] = [face.sides[2], face.sides[3]].map(|side| side.ceil() as u32);
            attach(buffer, "face", [left, top, right - left, bottom - top]).add_param(
                gst::Structure::builder("detection").field("confidence", f64::from(face.confidence)).build(),
            );
        }
        if found.is_empty() {
            attach(buffer, "nothing", [0; 4]);
        }
        let (is_longer, is_live) = {
            let mut published = self.published.lock().unwrap();
            (published.note(found.len(), duration, now), published.is_live)
        };
        if is_longer {
            let _ = self.obj().post_message(gst::message::Latency::builder().src(&*self.obj()).build());
        }
        if is_slow && is_live {
            gst::element_imp_warning!(
                self,
                gst::ResourceError::Busy,
                (
                    "a search takes {} ms, but one is due every {} ms, so that frames fall behind: set a smaller size, a larger \
                     every or more threads",
                    duration.as_millis(),
                    interval.map_or(0, gst::ClockTime::mseconds)
                )
            );
        }
        Ok(gst::FlowSuccess::Ok)
    }
}

/// Attaches a box. One of no size says that a detector vouches for the frame, so that cudagaussblur's on-missing=auto covers frames
/// that have lost their metas, and no others.
fn attach<'a>(
    buffer: &'a mut gst::BufferRef,
    label: &str,
    [x, y, width, height]: [u32; 4],
) -> gst::MetaRefMut<'a, VideoRegionOfInterestMeta, gst::meta::Standalone> {
    VideoRegionOfInterestMeta::add(buffer, label, (x, y, width, height))
}

impl State {
    /// Whether this frame is to be searched.
    fn is_searched(&mut self, buffer: &gst::BufferRef, every: u32) -> bool {
        if buffer.flags().contains(gst::BufferFlags::DISCONT) {
            self.to_skip = 0;
        }
        let now = buffer.pts();
        let since = |earlier: Option<gst::ClockTime>| now?.checked_sub(earlier?);
        // Whether the next frame would exceed LONGEST, if frames keep their interval.
        let is_late = match (since(self.previous), since(self.searched_at)) {
            (Some(interval), Some(since)) => interval.is_zero() || since + interval > LONGEST,
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

    /// Searches the next frame, too, after a face that is near no face of the last search: a face that moves by more than its width
    /// between two searches would be a new object in each.
    fn follow(&mut self, found: &[Face]) {
        let is_new = |face: &Face| self.faces.iter().all(|before| overlap(&before.sides, &face.sides) == 0.);
        self.is_additional = !self.is_additional && found.iter().any(is_new);
        if self.is_additional {
            self.to_skip = 0;
        }
        self.faces = found.to_vec();
    }

    fn search(&mut self, buffer: &gst::BufferRef, settings: &Settings) -> Result<Vec<Face>, String> {
        let (Some(runner), Some(info)) = (&mut self.runner, &self.info) else {
            return Err("a frame arrived before its caps".into());
        };
        let full = [info.width(), info.height()];
        let multiple = runner.network().multiple();
        let scale = (f64::from(settings.size) / f64::from(full[0].max(full[1]))).min(1.);
        let searched = full.map(|side| (f64::from(side) * scale / multiple as f64).ceil() as usize * multiple);
        // A GstVideoCropMeta of the size of the caps says where the caps' picture is in a larger frame; one of another size shows a
        // part of that picture, all of which is searched. cudagaussblur counts detections from this corner.
        let corner = match buffer.meta::<VideoCropMeta>().map(|crop| crop.rect()) {
            Some((x, y, width, height)) if [width, height] == full => [x, y],
            _ => [0, 0],
        };
        let meta = buffer.meta::<VideoMeta>();
        let (offsets, strides) =
            meta.as_ref().map_or((info.offset(), info.stride()), |meta| (meta.offset(), meta.stride()));
        let planes: Vec<_> = offsets.iter().copied().zip(strides.iter().copied()).collect();
        let data = buffer.map_readable().map_err(|_| "a frame cannot be read")?;
        let rows = sampler(info, &data, &planes, corner, searched).ok_or_else(|| {
            let ([width, height], [x, y]) = (full, corner);
            format!("a frame of {} bytes does not hold {width}x{height} pixels from {x}, {y} on", data.len())
        })?;
        runner.run(searched[0], searched[1], rows);
        let [heat, sizes, offsets] = [0, 1, 2].map(|number| runner.output(number));
        faces(heat, sizes, offsets, full, settings.threshold as f32)
            .map_err(|_| "the model failed: its answer has values that are no numbers".into())
    }
}

pub fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "centerface", gst::Rank::NONE, CenterFace::static_type())
}
