// SPDX-License-Identifier: MPL-2.0
//! The element `centerface`.

use std::{
    sync::{LazyLock, Mutex},
    time::Instant,
};

use gst::{glib, prelude::*, subclass::prelude::*};
use gst_base::subclass::{
    base_transform::{InputBuffer, PrepareOutputBufferSuccess},
    prelude::*,
};
use gst_video::VideoInfo;

use crate::{
    faces::{Face, faces, join},
    model,
    run::Runner,
    search::{self, Schedule, Searches},
};

static CAT: LazyLock<gst::DebugCategory> =
    LazyLock::new(|| gst::DebugCategory::new("centerface", gst::DebugColorFlags::empty(), Some("Finds faces")));

/// A face is small if its longer side is shorter than this, in pixels of the picture of `size`: the search at this size may lose it.
const SMALL: f64 = 24.;
/// The smallest side of the part of a frame in which a small face is searched again, in pixels of the searched picture.
const NEAR: f64 = 64.;
/// The longest time between two fine searches, whatever `fine-every`: in slow videos a few searches are a long time.
const FINE: gst::ClockTime = gst::ClockTime::from_mseconds(700);
/// A face that is higher than the picture is found in a smaller picture only. So each search also searches a picture of this share of
/// the size, for faces whose height is at least this share of the frame's shorter side.
const COARSE: f64 = 0.3;
const CLOSE: f64 = 0.5;
/// The largest number of threads by default. The decoder, the blur and the encoder run at the same time as a search.
const MOST_THREADS: usize = 4;

#[derive(Clone)]
struct Settings {
    every: u32,
    threshold: f64,
    size: u32,
    fine_every: u32,
    threads: u32,
    model: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { every: 5, threshold: 0.2, size: 640, fine_every: 0, threads: 0, model: None }
    }
}

/// The state of the streaming thread, from `start` to `stop`.
#[derive(Default)]
struct State {
    runner: Option<Runner>,
    info: Option<VideoInfo>,
    schedule: Schedule,
    /// The faces of the last search, and whether that search was an additional one.
    faces: Vec<Face>,
    is_additional: bool,
    /// The number of searches until the next one at twice the size, and the time of the last one; and the small faces of the last
    /// search.
    to_fine: u32,
    fine_at: Option<gst::ClockTime>,
    small: Vec<Face>,
}

/// The values that other threads read.
#[derive(Default)]
struct Published {
    searches: Searches,
    faces: u64,
    instructions: &'static str,
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
                        "Search every N-th frame, and also the frame after a new face. At low frame rates, search more often, so that at most \
                         250 ms lie between two searches",
                    )
                    .minimum(1)
                    .maximum(1000)
                    .default_value(default.every)
                    .mutable_playing()
                    .build(),
                glib::ParamSpecDouble::builder("threshold")
                    .nick("Threshold")
                    .blurb("Lowest confidence of a face; a lower threshold finds more faces, and more things that are no faces")
                    .minimum(0.)
                    .maximum(1.)
                    .default_value(default.threshold)
                    .mutable_playing()
                    .build(),
                glib::ParamSpecUInt::builder("size")
                    .nick("Size")
                    .blurb(
                        "Longer side of the picture that is searched, in pixels. Twice the size finds faces of half the size and takes four \
                         times as long",
                    )
                    .minimum(64)
                    .maximum(4096)
                    .default_value(default.size)
                    .mutable_playing()
                    .build(),
                glib::ParamSpecUInt::builder("fine-every")
                    .nick("Fine every")
                    .blurb(
                        "Search the whole picture also at twice the size in every N-th search, which takes four times as long. The other searches \
                         do so only around the small faces found before, or in the whole picture if one is not found again; 0: never",
                    )
                    .maximum(1000)
                    .default_value(default.fine_every)
                    .mutable_playing()
                    .build(),
                glib::ParamSpecString::builder("model")
                    .nick("Model")
                    .blurb(
                        "File of the model. If unset, centerface.onnx in the folder that CUDAGAUSSBLUR_MODELS names, else in ../models \
                         relative to the plugin's folder, else in cudagaussblur/models of the user's and the system's data folders",
                    )
                    .mutable_ready()
                    .build(),
                glib::ParamSpecUInt::builder("threads")
                    .nick("Threads")
                    .blurb("Number of threads of the model; 0: one for each processor that the process may use, four at most")
                    .maximum(64)
                    .default_value(default.threads)
                    .mutable_ready()
                    .build(),
                glib::ParamSpecBoxed::builder::<gst::Structure>("stats")
                    .nick("Stats")
                    .blurb(
                        "frames: frames that passed; searched: frames that were searched; faces: faces found in them; mean-ns: mean time of \
                         the last 16 searches; instructions: the processor's vector instructions in use (avx512, avx2, sse2, neon, portable)",
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
            "fine-every" => settings.fine_every = value.get().expect(checked),
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
            "fine-every" => settings.fine_every.to_value(),
            "threads" => settings.threads.to_value(),
            "model" => settings.model.to_value(),
            "stats" => {
                let published = self.published.lock().unwrap();
                gst::Structure::builder("application/x-centerface-stats")
                    .field("frames", published.searches.frames)
                    .field("searched", published.searches.searched)
                    .field("faces", published.faces)
                    .field("mean-ns", published.searches.mean())
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
        static TEMPLATES: LazyLock<Vec<gst::PadTemplate>> = LazyLock::new(search::pad_templates);
        &TEMPLATES
    }
}

impl BaseTransformImpl for Element {
    const MODE: gst_base::subclass::BaseTransformMode = gst_base::subclass::BaseTransformMode::AlwaysInPlace;
    const PASSTHROUGH_ON_SAME_CAPS: bool = false;
    const TRANSFORM_IP_ON_PASSTHROUGH: bool = false;

    fn start(&self) -> Result<(), gst::ErrorMessage> {
        let settings = self.settings.lock().unwrap().clone();
        let path = model::find(settings.model, "centerface.onnx", "scripts/models")
            .map_err(|reason| gst::error_msg!(gst::ResourceError::NotFound, ("{reason}")))?;
        let instructions = search::instructions();
        let threads = match settings.threads {
            // The number of processors that the process may use, according to its affinity and the quota of its control group.
            0 => std::thread::available_parallelism().map_or(1, usize::from).min(MOST_THREADS),
            threads => threads as usize,
        };
        let runner = model::centerface(&path, instructions, threads).map_err(|reason| {
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
        state.restart();
        Ok(())
    }

    fn sink_event(&self, event: gst::Event) -> bool {
        if event.type_() == gst::EventType::FlushStop {
            // After a flush, cudagaussblur has forgotten its tracks, so the next frame has to be searched.
            self.state.lock().unwrap().restart();
        }
        self.parent_sink_event(search::without_pictures(event))
    }

    fn query(&self, direction: gst::PadDirection, query: &mut gst::QueryRef) -> bool {
        let is_answered = BaseTransformImplExt::parent_query(self, direction, query);
        if is_answered {
            self.published.lock().unwrap().searches.add_latency(direction, query);
        }
        is_answered
    }

    /// Passes the buffer on. If others hold it, a copy of the buffer gets the metas. The copy shares the memory, which is only
    /// read.
    fn prepare_output_buffer(&self, inbuf: InputBuffer) -> Result<PrepareOutputBufferSuccess, gst::FlowError> {
        Ok(match inbuf {
            InputBuffer::Writable(_) => PrepareOutputBufferSuccess::InputBuffer,
            InputBuffer::Readable(buffer) => PrepareOutputBufferSuccess::Buffer(buffer.to_owned()),
        })
    }

    fn transform_ip(&self, buffer: &mut gst::BufferRef) -> Result<gst::FlowSuccess, gst::FlowError> {
        self.published.lock().unwrap().searches.frames += 1;
        let settings = self.settings.lock().unwrap().clone();
        let mut state = self.state.lock().unwrap();
        let time = search::time(self.obj().upcast_ref(), buffer);
        if !state.schedule.is_due(time, settings.every) {
            search::attach(buffer, "nothing", [0; 4]);
            return Ok(gst::FlowSuccess::Ok);
        }
        let started = Instant::now();
        let interval = state.schedule.interval;
        let found = state.search(buffer, time, &settings);
        found.iter().for_each(|faces| state.follow(faces));
        drop(state);
        let now = Instant::now();
        let duration = now - started;
        let found = found.map_err(|reason| {
            gst::element_imp_error!(self, gst::StreamError::Failed, ("{reason}"));
            gst::FlowError::Error
        })?;
        gst::log!(CAT, imp = self, "{:?} {found:?} in {duration:?}", buffer.pts());
        for face in &found {
            let [left, top] = [face.sides[0], face.sides[1]].map(|side| side.floor() as u32);
            let [right, bottom] = [face.sides[2], face.sides[3]].map(|side| side.ceil() as u32);
            search::attach(buffer, "face", [left, top, right - left, bottom - top])
                .add_param(search::detection(face.confidence));
        }
        if found.is_empty() {
            search::attach(buffer, "nothing", [0; 4]);
        }
        let mut published = self.published.lock().unwrap();
        published.faces += found.len() as u64;
        let reports = published.searches.note(duration, interval, now);
        drop(published);
        reports.post(self.obj().upcast_ref(), "set a smaller size, a larger every or more threads");
        Ok(gst::FlowSuccess::Ok)
    }
}

impl State {
    /// Makes the next frame an additional search if a face overlaps no face of the last search. Otherwise a face that moves by
    /// more than its width between two searches would be a new object in each of them.
    fn follow(&mut self, found: &[Face]) {
        let is_new = |face: &Face| self.faces.iter().all(|before| before.common(face) == 0.);
        self.is_additional = !self.is_additional && found.iter().any(is_new);
        if self.is_additional {
            self.schedule.restart();
        }
        self.faces = found.to_vec();
    }

    /// Prepares for a frame that does not continue the earlier ones: it is searched, also at twice the size if `fine-every` is
    /// set.
    fn restart(&mut self) {
        self.schedule.restart();
        (self.to_fine, self.is_additional) = (0, false);
        self.small.clear();
        self.faces.clear();
    }

    /// The faces of a frame. A search at twice the size finds smaller faces and loses some of the others, so the faces of all
    /// sizes are joined.
    fn search(
        &mut self,
        buffer: &gst::BufferRef,
        time: Option<gst::ClockTime>,
        settings: &Settings,
    ) -> Result<Vec<Face>, String> {
        let Some(info) = self.info.clone() else { return Err("a frame arrived before its caps".into()) };
        let full = [info.width(), info.height()];
        let whole = [0, 0, full[0], full[1]];
        let scale = (f64::from(settings.size) / f64::from(full[0].max(full[1]))).min(1.);
        let mut found = self.search_part(buffer, &info, whole, scale, settings.threshold)?;
        let mut close = self.search_part(buffer, &info, whole, scale * COARSE, settings.threshold)?;
        close.retain(|face| face.sides[3] - face.sides[1] >= CLOSE * f64::from(full[0].min(full[1])));
        join(&mut found, &close);
        let before = std::mem::take(&mut self.small);
        if settings.fine_every == 0 || scale == 1. {
            return Ok(found);
        }
        let fine = (2. * scale).min(1.);
        let plain = found.len();
        let since = time.zip(self.fine_at).and_then(|(now, then)| now.checked_sub(then));
        let left = self.to_fine.min(settings.fine_every - 1);
        let parts: Vec<_> = before.iter().map(|face| around(face, full, fine)).collect();
        let area = |[_, _, width, height]: [u32; 4]| u64::from(width) * u64::from(height);
        // In a crowd the parts together are no smaller than the frame.
        let mut is_fine = left == 0
            || since.is_none_or(|since| since + self.schedule.interval.unwrap_or_default() > FINE)
            || parts.iter().copied().map(area).sum::<u64>() >= area(whole);
        if !is_fine {
            for part in parts {
                join(&mut found, &self.search_part(buffer, &info, part, fine, settings.threshold)?);
            }
        }
        // A small face that is not found again may have moved out of its part.
        let is_found = |before: &Face| found.iter().any(|face| face.common(before) > 0.);
        is_fine |= !before.iter().all(is_found);
        if is_fine {
            join(&mut found, &self.search_part(buffer, &info, whole, fine, settings.threshold)?);
        }
        if is_fine {
            self.fine_at = time;
        }
        self.to_fine = if is_fine { settings.fine_every } else { left } - 1;
        let side = |[left, top, right, bottom]: [f64; 4]| (right - left).max(bottom - top) * scale;
        let is_small = |&(i, face): &(usize, &Face)| i >= plain || side(face.sides) < SMALL;
        self.small = found.iter().enumerate().filter(is_small).map(|(_, face)| *face).collect();
        Ok(found)
    }

    /// The faces in a part of a frame. `part` is column, row, width and height. `scale` is the number of searched pixels for each
    /// pixel of the frame.
    fn search_part(
        &mut self,
        buffer: &gst::BufferRef,
        info: &VideoInfo,
        part: [u32; 4],
        scale: f64,
        threshold: f64,
    ) -> Result<Vec<Face>, String> {
        let runner = self.runner.as_mut().ok_or("the element is not started")?;
        let [x, y, width, height] = part;
        let multiple = runner.network().multiple();
        let searched =
            [width, height].map(|side| (f64::from(side) * scale / multiple as f64).ceil() as usize * multiple);
        search::with_picture(buffer, info, part, searched, |rows| runner.run(searched[0], searched[1], rows))?;
        let [heat, sizes, offsets] = [0, 1, 2].map(|number| runner.output(number));
        let mut found = faces(heat, sizes, offsets, [width, height], threshold as f32)
            .map_err(|_| "the model failed: its answer has values that are no numbers")?;
        for face in &mut found {
            let corner = [x, y, x, y].map(f64::from);
            face.sides = std::array::from_fn(|side| face.sides[side] + corner[side]);
        }
        Ok(found)
    }
}

/// The part of a frame in which a small face of the last search is searched again.
fn around(face: &Face, full: [u32; 2], scale: f64) -> [u32; 4] {
    let [left, top, right, bottom] = face.sides;
    let side = (NEAR / scale).max(3. * (right - left).max(bottom - top)).ceil() as u32;
    let part = |begin: f64, end: f64, full: u32| {
        let length = side.min(full);
        let first = f64::midpoint(begin, end) - f64::from(length) / 2.;
        (first.clamp(0., f64::from(full - length)) as u32, length)
    };
    let ((x, width), (y, height)) = (part(left, right, full[0]), part(top, bottom, full[1]));
    [x, y, width, height]
}

pub fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "centerface", gst::Rank::NONE, CenterFace::static_type())
}
