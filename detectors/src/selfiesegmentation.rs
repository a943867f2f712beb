// SPDX-License-Identifier: MPL-2.0
//! The element `selfiesegmentation`, which runs MediaPipe's two models of that name.
//!
//! Alone, it finds one person who fills the picture, by the landscape model. Behind a detector of faces, it looks for a person
//! around each face (a GstVideoRegionOfInterestMeta with the label `face`). It searches with the square model, in a box whose
//! size is a multiple of the face's size. If the face is large, or if there is no face, the landscape model searches the whole
//! picture. While a face is not found, its box follows the mask. One region `person` holds the masks of all people.

use std::{
    sync::{LazyLock, Mutex},
    time::Instant,
};

use gst::{glib, glib::translate::IntoGlib, prelude::*, subclass::prelude::*};
use gst_base::subclass::{
    base_transform::{InputBuffer, PrepareOutputBufferSuccess},
    prelude::*,
};
use gst_video::{VideoInfo, VideoRegionOfInterestMeta};

use crate::{
    image::Image,
    model,
    people::{self, Mask, Person, Sides},
    run::Runner,
    search::{self, Schedule, Searches},
};

static CAT: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    gst::DebugCategory::new("selfiesegmentation", gst::DebugColorFlags::empty(), Some("Finds people"))
});

#[derive(Clone)]
struct Settings {
    every: u32,
    threshold: f64,
    smooth: f64,
    threads: u32,
    model: Option<String>,
}

impl Default for Settings {
    fn default() -> Self {
        Self { every: 1, threshold: 0.25, smooth: 0.75, threads: 0, model: None }
    }
}

/// The state of the streaming thread, from `start` to `stop`.
#[derive(Default)]
struct State {
    /// The networks for the whole picture and for the box of a person.
    networks: Option<[Runner; 2]>,
    stream: Option<Stream>,
    schedule: Schedule,
}

/// The state that belongs to the current caps.
struct Stream {
    info: VideoInfo,
    mask: Mask,
    people: Vec<Person>,
    /// Whether the last search found a person.
    has_person: bool,
    /// Whether, in the last frame that a model searched, a detector of faces had found no face for a long time.
    is_faceless: bool,
}

/// The values that other threads read.
#[derive(Default)]
struct Published {
    searches: Searches,
    faceless: u64,
    instructions: &'static str,
}

#[derive(Default)]
pub struct Element {
    settings: Mutex<Settings>,
    state: Mutex<State>,
    published: Mutex<Published>,
}

glib::wrapper! {
    /// The element `selfiesegmentation`, which attaches the mask of people as a region of interest.
    pub struct SelfieSegmentation(ObjectSubclass<Element>) @extends gst_base::BaseTransform, gst::Element, gst::Object;
}

#[glib::object_subclass]
impl ObjectSubclass for Element {
    const NAME: &'static str = "GstSelfieSegmentation";
    type Type = SelfieSegmentation;
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
                        "Search every N-th frame, and also the frame after a person appears. At low frame rates, search more often, so that \
                         at most 250 ms lie between two searches. Other frames get no mask, because it would be old: cudagaussblur \
                         covers the box where it expects the person, or the whole frame with region-mode=outside",
                    )
                    .minimum(1)
                    .maximum(1000)
                    .default_value(default.every)
                    .mutable_playing()
                    .build(),
                glib::ParamSpecDouble::builder("threshold")
                    .nick("Threshold")
                    .blurb("Lowest confidence of a person's samples; a lower threshold shows more of the hair and of the background")
                    .minimum(0.)
                    .maximum(1.)
                    .default_value(default.threshold)
                    .mutable_playing()
                    .build(),
                glib::ParamSpecDouble::builder("smooth")
                    .nick("Smooth")
                    .blurb("Share of the last mask in the next one where the picture does not change")
                    .minimum(0.)
                    .maximum(1.)
                    .default_value(default.smooth)
                    .mutable_playing()
                    .build(),
                glib::ParamSpecString::builder("model")
                    .nick("Model")
                    .blurb(
                        "File of the model for the whole picture. If unset, selfie_segmentation_landscape.tflite in the folders in which \
                         centerface looks for its model. The model for boxes, selfie_segmentation.tflite, is always searched in these folders",
                    )
                    .mutable_ready()
                    .build(),
                glib::ParamSpecUInt::builder("threads")
                    .nick("Threads")
                    .blurb("Number of threads of the models; 0: one thread, because more threads gain little")
                    .maximum(64)
                    .default_value(default.threads)
                    .mutable_ready()
                    .build(),
                glib::ParamSpecBoxed::builder::<gst::Structure>("stats")
                    .nick("Stats")
                    .blurb(
                        "frames: frames that passed; searched: frames that a model has searched; faceless: frames behind a detector of faces \
                         that has found none for a second; mean-ns: mean time of the last 16 searches, with their masks; instructions: the \
                         processor's vector instructions in use (avx512, avx2, sse2, neon, portable)",
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
            "smooth" => settings.smooth = value.get().expect(checked),
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
            "smooth" => settings.smooth.to_value(),
            "threads" => settings.threads.to_value(),
            "model" => settings.model.to_value(),
            "stats" => {
                let published = self.published.lock().unwrap();
                gst::Structure::builder("application/x-selfiesegmentation-stats")
                    .field("frames", published.searches.frames)
                    .field("searched", published.searches.searched)
                    .field("faceless", published.faceless)
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
                "Selfie segmentation",
                "Analyzer/Video",
                "Finds people and attaches their mask as a region of interest",
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
        let instructions = search::instructions();
        let open = |property, name| {
            let path = model::find(property, name, "scripts/models people")
                .map_err(|reason| gst::error_msg!(gst::ResourceError::NotFound, ("{reason}")))?;
            model::segmentation(&path, instructions, settings.threads.max(1) as usize).map_err(|reason| {
                gst::error_msg!(
                    gst::ResourceError::OpenRead,
                    ("{} cannot be used as the model: {reason}", path.display())
                )
            })
        };
        let whole = open(settings.model, "selfie_segmentation_landscape.tflite")?;
        let networks = [whole, open(None, "selfie_segmentation.tflite")?];
        *self.state.lock().unwrap() = State { networks: Some(networks), ..State::default() };
        *self.published.lock().unwrap() = Published { instructions: instructions.name(), ..Published::default() };
        Ok(())
    }

    fn stop(&self) -> Result<(), gst::ErrorMessage> {
        *self.state.lock().unwrap() = State::default();
        Ok(())
    }

    fn set_caps(&self, incaps: &gst::Caps, _outcaps: &gst::Caps) -> Result<(), gst::LoggableError> {
        let info = VideoInfo::from_caps(incaps)?;
        self.state.lock().unwrap().restart(info);
        Ok(())
    }

    fn sink_event(&self, event: gst::Event) -> bool {
        if event.type_() == gst::EventType::FlushStop {
            let mut state = self.state.lock().unwrap();
            if let Some(Stream { info, .. }) = state.stream.take() {
                state.restart(info);
            }
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
        let settings = self.settings.lock().unwrap().clone();
        let mut state = self.state.lock().unwrap();
        let started = Instant::now();
        // A face may be that of a new person, whom no other search finds if centerface searches other frames than this element.
        let is_due =
            state.schedule.is_due(search::time(self.obj().upcast_ref(), buffer), settings.every) || has_face(buffer);
        let interval = state.schedule.interval;
        let marked = if is_due {
            state.mark(buffer, &settings)
        } else {
            search::attach(buffer, "nothing", [0; 4]);
            Ok(())
        };
        let is_faceless = state.stream.as_ref().is_some_and(|stream| stream.is_faceless);
        drop(state);
        let now = Instant::now();
        if let Err(reason) = marked {
            gst::element_imp_error!(self, gst::StreamError::Failed, ("{reason}"));
            return Err(gst::FlowError::Error);
        }
        gst::log!(CAT, imp = self, "{:?} in {:?}", buffer.pts(), now - started);
        let mut published = self.published.lock().unwrap();
        published.searches.frames += 1;
        published.faceless += u64::from(is_faceless);
        let reports = is_due.then(|| published.searches.note(now - started, interval, now));
        drop(published);
        if let Some(reports) = reports {
            reports.post(
                self.obj().upcast_ref(),
                "let centerface in front of it find fewer faces, or insert queue leaky=downstream max-size-buffers=2 before it",
            );
        }
        Ok(gst::FlowSuccess::Ok)
    }
}

impl State {
    /// Prepares for a frame that does not continue the earlier ones.
    fn restart(&mut self, info: VideoInfo) {
        let mask = Mask::new([info.width() as usize, info.height() as usize]);
        self.stream = Some(Stream { info, mask, people: Vec::new(), has_person: false, is_faceless: false });
        self.schedule.restart();
    }

    /// Searches a frame, and attaches the mask of the people in it. Makes the next frame an additional search if nobody was found
    /// before: cudagaussblur predicts the place of a person by two detections.
    fn mark(&mut self, buffer: &mut gst::BufferRef, settings: &Settings) -> Result<(), String> {
        let (Some(networks), Some(stream)) = (&mut self.networks, &mut self.stream) else {
            return Err("a frame arrived before its caps".into());
        };
        let full = [stream.info.width(), stream.info.height()];
        let size = stream.mask.size;
        let mut guide = [(); 3].map(|()| Image::new(size, 0.));
        search::with_picture(buffer, &stream.info, [0, 0, full[0], full[1]], size, |rows| {
            let mut row = vec![0.; 3 * size[0]];
            for y in 0..size[1] {
                rows(y, &mut row);
                let [red, green, blue] = guide.each_mut().map(|plane| plane.row_mut(y));
                for (((rgb, red), green), blue) in row.as_chunks::<3>().0.iter().zip(red).zip(green).zip(blue) {
                    [*red, *green, *blue] = rgb.map(|value| value * (1. / 255.));
                }
            }
        })?;
        let found = stream.search(buffer, networks, &guide)?;
        let (smooth, threshold) = (settings.smooth as f32, settings.threshold as f32);
        let mask = stream.mask.next(&guide, &found, smooth);
        let samples = people::samples(mask, threshold);
        let had_person = std::mem::replace(&mut stream.has_person, samples.is_some());
        if stream.has_person && !had_person {
            self.schedule.restart();
        }
        let Some((sides, samples)) = samples else {
            search::attach(buffer, "nothing", [0; 4]);
            return Ok(());
        };
        let [left, top, right, bottom] = pixels(sides, size, full);
        let (width, height) = (sides[2] - sides[0], sides[3] - sides[1]);
        let caps = gst::Caps::builder("video/x-raw")
            .field("format", "GRAY8")
            .field("width", width as i32)
            .field("height", height as i32)
            .field("framerate", gst::Fraction::new(0, 1))
            .build();
        // Rows of GRAY8 begin at multiples of four bytes.
        let stride = width.next_multiple_of(4);
        let mut padded = vec![0; stride * height];
        padded
            .chunks_exact_mut(stride)
            .zip(samples.chunks_exact(width))
            .for_each(|(to, row)| to[..width].copy_from_slice(row));
        let sample = gst::Sample::builder().buffer(&gst::Buffer::from_mut_slice(padded)).caps(&caps).build();
        let confidence = stream.mask.confidence.values.iter().copied().fold(0., f32::max);
        let mut region = search::attach(buffer, "person", [left, top, right - left, bottom - top]);
        region.add_param(search::detection(confidence));
        region.add_param(gst::Structure::builder("mask").field("sample", sample).build());
        Ok(())
    }
}

impl Stream {
    /// The combined output of the models for a frame, on the coarse grid.
    fn search(
        &mut self,
        buffer: &gst::BufferRef,
        [whole, square]: &mut [Runner; 2],
        guide: &[Image; 3],
    ) -> Result<Image, String> {
        let coarse = self.mask.coarse;
        let all = [0, 0, coarse[0], coarse[1]];
        let now = buffer.pts();
        let (faces, has_finder) = self.faces(buffer);
        let is_seen = |people: &[Person]| people.iter().any(|person| person.is_seen(now));
        self.is_faceless = has_finder && !is_seen(&faces) && !is_seen(&self.people);
        let boxes = people::boxes(faces, &self.people, coarse, now);
        let mut found = Image::new(coarse, 0.);
        self.people.clear();
        for (sides, people) in boxes {
            let confidence = if sides == all {
                let [width, height] = whole.size();
                let planes = guide.each_ref().map(|plane| plane.scaled([width, height]));
                whole.run(width, height, |y, row| {
                    for (x, rgb) in row.as_chunks_mut::<3>().0.iter_mut().enumerate() {
                        *rgb = planes.each_ref().map(|plane| plane.row(y)[x]);
                    }
                });
                confidence(whole)?
            } else {
                let [width, height] = square.size();
                let [left, top, right, bottom] = pixels(sides, coarse, [self.info.width(), self.info.height()]);
                let part = [left, top, (right - left).max(1), (bottom - top).max(1)];
                search::with_picture(buffer, &self.info, part, [width, height], |rows| {
                    square.run(width, height, |y, row| {
                        rows(y, row);
                        row.iter_mut().for_each(|value| *value *= 1. / 255.);
                    });
                })?;
                confidence(square)?
            };
            let [left, top, right, bottom] = sides;
            let confidence = confidence.scaled([right - left, bottom - top]);
            for (y, row) in confidence.values.chunks_exact(confidence.width).enumerate() {
                let to = &mut found.row_mut(top + y)[left..right];
                to.iter_mut().zip(row).for_each(|(to, value)| *to = to.max(*value));
            }
            self.people.extend(people.into_iter().filter_map(|person| person.follow(&confidence, sides, now)));
        }
        Ok(found)
    }

    /// The people whose faces a detector before this element has found in this frame, and whether there is such a detector.
    fn faces(&self, buffer: &gst::BufferRef) -> (Vec<Person>, bool) {
        let (full, scale) =
            ([self.info.width(), self.info.height()], self.mask.coarse[1] as f64 / f64::from(self.info.height()));
        let labels = ["face", "nothing"].map(quark);
        let mut people = Vec::new();
        let mut has_finder = false;
        for (label, [x, y, width, height]) in regions(buffer) {
            has_finder |= labels.contains(&label);
            if label == labels[0] && height > 0 && x < full[0] && y < full[1] {
                let centre =
                    [(x, width), (y, height)].map(|(start, side)| (f64::from(start) + f64::from(side) / 2.) * scale);
                people.push(Person::new(centre, f64::from(height) * scale, buffer.pts()));
            }
        }
        (people, has_finder)
    }
}

fn quark(label: &str) -> glib::ffi::GQuark {
    glib::Quark::from_str(label).into_glib()
}

/// The labels and boxes of the regions of interest of a frame: left, top, width and height.
fn regions(buffer: &gst::BufferRef) -> impl Iterator<Item = (glib::ffi::GQuark, [u32; 4])> {
    buffer.iter_meta::<VideoRegionOfInterestMeta>().map(|meta| {
        let (x, y, width, height) = meta.rect();
        // The field is read directly, because the meta's method cannot return the quark 0.
        // SAFETY: the pointer is that of the live meta that `meta` borrows.
        (unsafe { (*meta.as_ptr()).roi_type }, [x, y, width, height])
    })
}

/// Whether a detector before this element has found a face in the frame.
fn has_face(buffer: &gst::BufferRef) -> bool {
    let face = quark("face");
    regions(buffer).any(|(label, [.., height])| label == face && height > 0)
}

/// The confidence that a sample belongs to a person, from 0 to 1.
fn confidence(network: &Runner) -> Result<Image, String> {
    let plane = network.output(0);
    let values = (0..plane.height).flat_map(|y| plane.row(y)).map(|value| 1. / (1. + (-value).exp())).collect();
    let image = Image { width: plane.width, height: plane.height, values };
    // Comparisons with values that are not finite would be false, as if nobody were in the picture.
    if image.values.iter().all(|value| value.is_finite()) {
        Ok(image)
    } else {
        Err("the model failed: its answer has values that are no numbers".into())
    }
}

/// The sides of a box on a grid of this size, in pixels of the frame.
fn pixels([left, top, right, bottom]: Sides, size: [usize; 2], full: [u32; 2]) -> [u32; 4] {
    let pixel = |place: usize, axis: usize| (place as f64 * f64::from(full[axis]) / size[axis] as f64).round() as u32;
    [pixel(left, 0), pixel(top, 1), pixel(right, 0), pixel(bottom, 1)]
}

pub fn register(plugin: &gst::Plugin) -> Result<(), glib::BoolError> {
    gst::Element::register(Some(plugin), "selfiesegmentation", gst::Rank::NONE, SelfieSegmentation::static_type())
}
