//! Scenarios: words say which frames and events enter the element, and what leaves it.
//!
//! | enters | |
//! | --- | --- |
//! | `frame`, `face`, `face:5x7+9+8` | a frame without detections; with a face of 8x8 samples at (20,20); of 5x7 at (9,8) |
//! | `discont`, `untimed`, `short` | a frame with this flag; one without a time; a buffer of 16 bytes |
//! | `frame@9` | the frame with this number, which is its time; others have the number after that of the frame before |
//! | `gap@9`, `gap@9+2` | no frame comes in the time of frame 9, of two frames from frame 9 on |
//! | `segment`, `segment@9+2` | a segment with a stream time of its own; one from frame 9 on, whose running time is that of frame 2 |
//! | `late@9` | downstream says that frames up to this running time are late |
//! | `eos`, `flush`, `mark-…` and others | events; a mark is an event that only its application knows |
//! | `tag`, `tag:rotate-90` | a title, and this orientation |
//! | `caps`, `64x96` | the same caps again, those of another size |
//! | `allocation`, `all-buffers`, `drain` | queries from upstream: for a pool, for no pool, and to push what waits |
//! | `alpha:255` | from now on all samples of the alpha channel have this value |
//! | `name=value` | sets a property |
//!
//! | leaves | |
//! | --- | --- |
//! | `9`, `9!` | the frame with this number; with the flag DISCONT |
//! | `9:open`, `9:whole`, `9:5x7+9+8,…` | also every byte of it: as it entered; hidden; hidden in these places and nowhere else |
//! | `tag`, `mark-…` and others | events |
//! | `error` | upstream has a flow error |
//!
//! `gap*3` stands for three words, `4-6` for `4 5 6`.

use std::sync::{Arc, Mutex};

use gst::prelude::*;
use gst_video::{VideoFormat, VideoInfo, VideoMeta, VideoRegionOfInterestMeta};
use gstcudagaussblur::element::format::formats as layouts;
use gstcudagaussblur::engine::Hide;
use gstcudagaussblur::filter::frame::Role;
use gstcudagaussblur::filter::regions::Rect;

use super::covered::{self, blurred};
use super::pictures::{Picture, pitch, rect};
use super::video::{self, Blur, FRAME};

/// The size of most pictures: odd, so that halves are rounded.
pub const SIZE: [u32; 2] = [97, 61];

/// Left, top, width and height of a detection.
pub type Place = (u32, u32, u32, u32);

/// An element and the frames of a stream, which all show the same picture.
pub struct Stream {
    pub element: gst::Element,
    pub harness: gst_check::Harness,
    bus: gst::Bus,
    pub info: VideoInfo,
    pub picture: Picture,
    /// The picture wholly covered.
    pub hidden: Picture,
    /// Whether what leaves must have the strides of what entered.
    pub must_pad: bool,
    /// The time of the next frame.
    next: gst::ClockTime,
    left: Arc<Mutex<Vec<String>>>,
    /// Messages that no call has asked for.
    posted: Vec<gst::Message>,
    /// What a failure prints.
    scenario: String,
}

impl Stream {
    /// GRAY8 frames. Downstream reads a GstVideoMeta.
    pub fn gray(properties: &str) -> Self {
        Self::new(VideoFormat::Gray8, properties)
    }

    pub fn new(format: VideoFormat, properties: &str) -> Self {
        Self::of(&covered::info(format, SIZE), properties)
    }

    pub fn of(info: &VideoInfo, properties: &str) -> Self {
        Self::downstream(true, info, properties)
    }

    /// Frames without a frame rate.
    pub fn without_rate(format: VideoFormat, properties: &str) -> Self {
        video::init();
        Self::of(&VideoInfo::builder(format, SIZE[0], SIZE[1]).build().unwrap(), properties)
    }

    /// Frames of 64x120, of which every buffer has one field.
    pub fn of_field(format: VideoFormat, properties: &str) -> Self {
        video::init();
        let mode = gst_video::VideoInterlaceMode::Alternate;
        let info = VideoInfo::builder(format, 64, 120).interlace_mode(mode).fps((25, 1)).build().unwrap();
        Self::of(&info, properties)
    }

    /// Whether downstream reads a GstVideoMeta.
    pub fn downstream(takes_video_meta: bool, info: &VideoInfo, properties: &str) -> Self {
        let mut blur = Blur::new(&format!("backend=cpu region-mode=inside strength=0 {properties}"));
        if takes_video_meta {
            blur.harness.add_propose_allocation_meta(VideoMeta::meta_api(), None);
        }
        blur.caps(info);
        let Blur { element, harness, bus, .. } = blur;
        let is_interlaced = info.interlace_mode() == gst_video::VideoInterlaceMode::Interleaved;
        let picture = Picture::new(&layouts::planes(info, is_interlaced).unwrap(), 3);
        Self {
            hidden: hidden(&element, info, &picture),
            left: record(&element.static_pad("src").unwrap()),
            element,
            harness,
            bus,
            info: info.clone(),
            picture,
            must_pad: takes_video_meta,
            next: gst::ClockTime::ZERO,
            posted: Vec::new(),
            scenario: properties.to_owned(),
        }
    }

    /// Expects another blur than that of `sigma`.
    pub fn hidden_by(mut self, sigma: f64) -> Self {
        self.hidden = blurred(&self.picture, sigma);
        self
    }

    /// The samples of a frame's first plane, of 8 bits.
    pub fn luma(&self, buffer: &gst::Buffer) -> impl Fn(u32, u32) -> u8 + use<> {
        let (is_padded, planes) = covered::planes(&self.info, &self.picture.planes, buffer);
        let stride = if is_padded { pitch(&self.picture.planes[0]) } else { self.info.stride()[0] as usize };
        move |x, y| planes[0][y as usize * stride + x as usize]
    }

    /// A buffer with the picture.
    pub fn frame(&self) -> gst::Buffer {
        covered::buffer(&self.info, &self.picture)
    }

    /// Pushes a frame with the next time.
    pub fn push(&mut self, mut frame: gst::Buffer) {
        let buffer = frame.make_mut();
        buffer.set_pts(self.next);
        buffer.set_duration((self.info.fps().numer() > 0).then_some(FRAME));
        self.next += FRAME;
        self.push_as_is(frame);
    }

    /// Pushes a frame with its own times.
    pub fn push_as_is(&mut self, frame: gst::Buffer) {
        if self.harness.push(frame).is_err() {
            self.left.lock().unwrap().push("error".to_owned());
        }
    }

    pub fn send(&mut self, event: gst::Event) {
        self.harness.push_event(event);
    }

    pub fn enter(&mut self, words: &str) -> &mut Self {
        self.scenario = format!("{}; {words}", self.scenario);
        for word in words.split_whitespace() {
            match word.split_once('=') {
                Some((name, value)) => {
                    self.element.set_property_from_str(name, value);
                    if ["sigma", "cover"].contains(&name) {
                        self.hidden = hidden(&self.element, &self.info, &self.picture);
                    }
                }
                None => written_out(word).iter().for_each(|(word, detail)| self.enter_one(word, *detail)),
            }
        }
        self
    }

    fn enter_one(&mut self, word: &str, detail: Option<&str>) {
        let time = |frames: &str| {
            gst::ClockTime::from_nseconds((frames.parse::<f64>().expect(word) * FRAME.nseconds() as f64) as u64)
        };
        let (name, times) = word.split_once('@').map_or((word, None), |(name, times)| (name, Some(times)));
        let times =
            times.map(|times| times.split_once('+').unwrap_or((times, "1"))).map(|(at, by)| [time(at), time(by)]);
        let late = |[at, _]: [gst::ClockTime; 2]| {
            gst::event::Qos::new(gst::QOSType::Underflow, 1.0, at.nseconds() as i64, gst::ClockTime::ZERO)
        };
        match (name, times) {
            ("untimed", _) => self.push_as_is(self.frame()),
            ("frame" | "face" | "discont" | "short", _) => {
                times.inspect(|[at, _]| self.next = *at);
                let mut frame = if name == "short" { gst::Buffer::with_size(16).unwrap() } else { self.frame() };
                if name == "discont" {
                    frame.make_mut().set_flags(gst::BufferFlags::DISCONT);
                } else if name == "face" {
                    let place = self.places(detail.unwrap_or("8x8+20+20"))[0];
                    let place = (place.x(), place.y(), place.width(), place.height());
                    frame = with_param(frame, "face", place, None);
                }
                self.push(frame);
            }
            ("alpha", _) => {
                let value = detail.expect(word).parse().expect(word);
                self.picture.set_alpha(|_, _| value);
                self.hidden = hidden(&self.element, &self.info, &self.picture);
            }
            ("flush", _) => {
                self.send(gst::event::FlushStart::new());
                self.send(gst::event::FlushStop::new(true));
            }
            ("late", Some(times)) => _ = self.harness.push_upstream_event(late(times)),
            ("reconfigure", _) => _ = self.harness.push_upstream_event(gst::event::Reconfigure::new()),
            ("drain", _) => assert!(self.query(&mut gst::query::Drain::new())),
            ("allocation" | "all-buffers", _) => {
                let caps = self.info.to_caps().unwrap();
                assert!(self.query(&mut gst::query::Allocation::new(Some(&caps), name == "allocation")));
            }
            _ if name.contains('x') => {
                let size: Vec<u32> = name.split('x').map(|side| side.parse().expect(word)).collect();
                self.change_caps(&covered::info(self.info.format(), [size[0], size[1]]));
            }
            _ => self.send(event(name, detail, times, &self.info)),
        }
    }

    /// Sends caps. Frames that enter later have their size.
    pub fn change_caps(&mut self, info: &VideoInfo) {
        self.picture = covered::noise(info, 3);
        self.hidden = hidden(&self.element, info, &self.picture);
        self.info = info.clone();
        self.harness.set_src_caps(info.to_caps().unwrap());
    }

    pub fn query(&self, query: &mut gst::QueryRef) -> bool {
        self.harness.srcpad().unwrap().peer_query(query)
    }

    /// Rectangles from `5x7+9+8,…`.
    fn places(&self, places: &str) -> Vec<Rect> {
        let place = |place: &str| {
            let numbers: Vec<u32> = place.split(['x', '+']).map(|number| number.parse().expect(place)).collect();
            let [width, height, x, y] = numbers[..] else { panic!("{place} is no place") };
            rect(x, y, width, height)
        };
        match places {
            "open" => Vec::new(),
            "whole" => vec![rect(0, 0, self.picture.size()[0], self.picture.size()[1])],
            _ => places.split(',').map(place).collect(),
        }
    }

    /// Compares what has left since the last call.
    #[track_caller]
    pub fn leaves(&mut self, words: &str) -> &mut Self {
        let expected = written_out(words);
        let left = std::mem::take(&mut *self.left.lock().unwrap());
        let is_equal = left.iter().eq(expected.iter().map(|(word, _)| word));
        assert!(is_equal, "{}\nleaves {}\nnot    {words}", self.scenario, left.join(" "));
        for (word, looks) in expected {
            if word.trim_end_matches('!').parse::<u64>().is_ok() {
                let buffer = self.harness.pull().unwrap();
                if let Some(looks) = looks {
                    self.check(&buffer, looks);
                }
            }
        }
        self
    }

    /// The frames that have left since the last call.
    pub fn outputs(&mut self) -> Vec<gst::Buffer> {
        self.left.lock().unwrap().clear();
        std::iter::from_fn(|| self.harness.try_pull()).collect()
    }

    /// Pushes a frame, and pulls the one that leaves. Nothing else may.
    #[track_caller]
    pub fn output(&mut self, frame: gst::Buffer) -> gst::Buffer {
        self.outputs();
        self.push(frame);
        let left = self.left.lock().unwrap().len();
        if let Some(output) = self.outputs().pop().filter(|_| left == 1) {
            return output;
        }
        let errors = self.messages(gst::MessageType::Error);
        panic!("{}: {left} frames and events leave, {errors:?}", self.scenario)
    }

    /// Compares every byte of a frame with what it must look like.
    #[track_caller]
    pub fn check(&self, buffer: &gst::Buffer, looks: &str) {
        let rects = self.places(looks);
        // What covers a whole frame may be a copy of it.
        let must_pad = self.must_pad && looks != "whole";
        if let Some(wrong) = covered::difference(&self.info, buffer, &self.picture, &self.hidden, &rects, must_pad) {
            panic!("{}: frame {:?} is not {looks}: {wrong}", self.scenario, buffer.pts());
        }
    }

    /// Lets frames and events enter, and compares what leaves.
    #[track_caller]
    pub fn plays(&mut self, steps: &[(&str, &str)]) -> &mut Self {
        for (enters, leaves) in steps {
            self.enter(enters).leaves(leaves);
        }
        self
    }

    /// Compares the warnings since the last call with a pattern for each ([`is_like`]), in lines; none for an empty text.
    #[track_caller]
    pub fn warns(&mut self, pattern: &str) -> &mut Self {
        self.posts(gst::MessageType::Warning, pattern)
    }

    #[track_caller]
    pub fn fails(&mut self, pattern: &str) -> &mut Self {
        self.posts(gst::MessageType::Error, pattern)
    }

    #[track_caller]
    fn posts(&mut self, kind: gst::MessageType, pattern: &str) -> &mut Self {
        let texts = self.messages(kind).join("\n");
        assert!(is_like(&texts, pattern), "{}\nposts {texts:?}\nnot   {pattern:?}", self.scenario);
        self
    }

    /// The messages of a kind since the last call. Others stay.
    pub fn posted(&mut self, kind: gst::MessageType) -> Vec<gst::Message> {
        self.posted.extend(self.bus.iter());
        let (of_kind, others) = self.posted.drain(..).partition(|message| message.type_() == kind);
        self.posted = others;
        of_kind
    }

    /// The texts of [`Stream::posted`].
    pub fn messages(&mut self, kind: gst::MessageType) -> Vec<String> {
        self.posted(kind).iter().map(video::text).collect()
    }

    /// The messages about frames since the last call, without quotes and the types of fields.
    pub fn told(&mut self) -> Vec<String> {
        let messages = self.posted(gst::MessageType::Element);
        let text = |message: &gst::Message| {
            assert!(message.src() == Some(self.element.upcast_ref()));
            let text = message.structure().unwrap().to_string().replace(['\\', '"'], "");
            text.split('(').map(|part| part.split_once(')').map_or(part, |(_, value)| value)).collect()
        };
        messages.iter().map(text).collect()
    }

    /// Compares the messages about frames since the last call with a pattern for each.
    #[track_caller]
    pub fn tells<S: AsRef<str> + std::fmt::Debug>(&mut self, patterns: &[S]) -> &mut Self {
        let told = self.told();
        let is_one_like = |(one, pattern): (&String, &S)| is_like(one, pattern.as_ref());
        let is_equal = told.len() == patterns.len() && told.iter().zip(patterns).all(is_one_like);
        assert!(is_equal, "{}\ntells {told:#?}\nnot {patterns:#?}", self.scenario);
        self
    }

    /// Compares counters in `stats`, written as `frames=1 frames-cpu=1`.
    #[track_caller]
    pub fn counts(&mut self, counters: &str) -> &mut Self {
        let stats = self.element.property::<gst::Structure>("stats");
        let names = counters.split(' ').map(|counter| counter.split('=').next().unwrap());
        let counted: Vec<String> = names.map(|name| format!("{name}={}", stats.get::<u64>(name).unwrap())).collect();
        assert_eq!(counted.join(" "), counters, "{}", self.scenario);
        self
    }
}

/// Whether a text is like a pattern, in which `…` stands for any text within a line.
pub fn is_like(text: &str, pattern: &str) -> bool {
    text.lines().count() == pattern.lines().count()
        && text.lines().zip(pattern.lines()).all(|(line, pattern)| is_line_like(line, pattern))
}

fn is_line_like(line: &str, pattern: &str) -> bool {
    let Some((before, after)) = pattern.split_once('…') else { return line == pattern };
    let is_rest_like = |rest: &str| rest.char_indices().any(|(i, _)| is_line_like(&rest[i..], after));
    line.strip_prefix(before).is_some_and(|rest| after.is_empty() || is_rest_like(rest))
}

/// Words, with those that stand for several written out, and what is behind their colons.
fn written_out(words: &str) -> Vec<(String, Option<&str>)> {
    let one = |word| {
        let (word, count) =
            str::rsplit_once(word, '*').map_or((word, 1), |(word, count)| (word, count.parse().unwrap()));
        let (word, detail) = word.split_once(':').map_or((word, None), |(word, detail)| (word, Some(detail)));
        let ends = word.split_once('-').and_then(|(one, other)| Some(one.parse::<u64>().ok()?..=other.parse().ok()?));
        let words = ends.map_or(vec![word.to_owned(); count], |range| range.map(|number| number.to_string()).collect());
        words.into_iter().map(move |word| (word, detail))
    };
    words.split_whitespace().flat_map(one).collect()
}

/// An event from its word, what is behind the colon, and times.
fn event(name: &str, detail: Option<&str>, times: Option<[gst::ClockTime; 2]>, info: &VideoInfo) -> gst::Event {
    match (name, times) {
        ("gap", Some([at, by])) => gst::event::Gap::builder(at).duration(by).build(),
        ("segment", _) => {
            let mut segment = gst::FormattedSegment::<gst::ClockTime>::new();
            let [at, by] = times.unwrap_or_default();
            segment.set_start(at);
            segment.set_base(by);
            segment.set_time(if times.is_some() { at } else { gst::ClockTime::SECOND });
            gst::event::Segment::new(&segment)
        }
        ("caps", _) => gst::event::Caps::new(&info.to_caps().unwrap()),
        ("tag", _) => {
            let mut tags = gst::TagList::new();
            tags.make_mut().add::<gst::tags::Title>(&"a title", gst::TagMergeMode::Append);
            let mut turn =
                |detail| tags.make_mut().add::<gst::tags::ImageOrientation>(&detail, gst::TagMergeMode::Append);
            detail.inspect(|detail| turn(*detail));
            gst::event::Tag::new(tags)
        }
        ("eos", _) => gst::event::Eos::new(),
        ("segment-done", _) => gst::event::SegmentDone::new(gst::ClockTime::ZERO),
        ("stream-start", _) => gst::event::StreamStart::new("again"),
        _ => {
            assert!(name.starts_with("mark-"), "the word {name} is not known");
            gst::event::CustomDownstream::new(gst::Structure::new_empty(name))
        }
    }
}

/// Records what leaves a pad from now on, in words.
fn record(pad: &gst::Pad) -> Arc<Mutex<Vec<String>>> {
    let left: Arc<Mutex<Vec<String>>> = Arc::default();
    let record = Arc::clone(&left);
    let mask = gst::PadProbeType::BUFFER | gst::PadProbeType::EVENT_DOWNSTREAM | gst::PadProbeType::EVENT_FLUSH;
    pad.add_probe(mask, move |_, probe| {
        let word = match &probe.data {
            Some(gst::PadProbeData::Buffer(buffer)) => {
                let number = buffer.pts().map_or(u64::MAX, |pts| pts / FRAME);
                format!("{number}{}", if buffer.flags().contains(gst::BufferFlags::DISCONT) { "!" } else { "" })
            }
            Some(gst::PadProbeData::Event(event)) => {
                let mark = event.structure().filter(|_| event.type_() == gst::EventType::CustomDownstream);
                mark.map_or(event.type_().to_string(), |mark| mark.name().to_string())
            }
            _ => return gst::PadProbeReturn::Ok,
        };
        record.lock().unwrap().push(word);
        gst::PadProbeReturn::Ok
    });
    left
}

/// The picture as it leaves wholly covered.
fn hidden(element: &gst::Element, info: &VideoInfo, picture: &Picture) -> Picture {
    match video::nick(element, "cover").as_str() {
        "fill" => filled(info, picture),
        _ => blurred(picture, element.property("sigma")),
    }
}

/// A picture of 8-bit samples, filled with black.
fn filled(info: &VideoInfo, picture: &Picture) -> Picture {
    let black = |role: Role| match role {
        Role::Primary => u16::from(info.is_yuv()) * 16,
        Role::Chroma => 128,
        Role::Alpha => 255,
    };
    let values = picture.planes.iter().map(|layout| layout.roles.map(black)).collect();
    let [width, height] = picture.size();
    let mut filled = picture.clone();
    filled.hide(Hide::Fill { rects: vec![rect(0, 0, width, height)], values }).unwrap();
    filled
}

/// Attaches a detection to a frame, with this param.
pub fn with_param(mut frame: gst::Buffer, label: &str, place: Place, param: Option<gst::Structure>) -> gst::Buffer {
    let mut meta = VideoRegionOfInterestMeta::add(frame.make_mut(), label, place);
    param.into_iter().for_each(|param| meta.add_param(param));
    frame
}

/// A mask of GRAY8 samples, whose rows begin at multiples of 4 bytes.
pub fn mask([columns, rows]: [u32; 2], value: impl Fn(u32, u32) -> u8) -> gst::Sample {
    let stride = columns.next_multiple_of(4);
    let samples = (0..stride * rows).map(|i| if i % stride < columns { value(i % stride, i / stride) } else { 0 });
    sample("GRAY8", [columns, rows], samples.collect())
}

pub fn sample(format: &str, [columns, rows]: [u32; 2], bytes: Vec<u8>) -> gst::Sample {
    video::init();
    let caps = gst::Caps::builder("video/x-raw").field("format", format);
    let caps = caps.field("width", columns as i32).field("height", rows as i32).build();
    gst::Sample::builder().caps(&caps).buffer(&gst::Buffer::from_mut_slice(bytes)).build()
}

/// The param of a detection with this mask.
pub fn mask_param(mask: gst::Sample) -> gst::Structure {
    gst::Structure::builder("mask").field("sample", mask).build()
}

/// The param of a detection with this confidence.
pub fn confidence(value: f64) -> gst::Structure {
    gst::Structure::builder("detection").field("confidence", value).build()
}

/// A segment with these ends in milliseconds, applied rate, and stream time.
pub fn segment(applied_rate: f64, [start, stop, time]: [u64; 3]) -> gst::Event {
    let mut segment = gst::FormattedSegment::<gst::ClockTime>::new();
    segment.set_applied_rate(applied_rate);
    segment.set_start(ms(start));
    segment.set_stop(ms(stop));
    segment.set_time(ms(time));
    gst::event::Segment::new(&segment)
}

/// A time from the start of the stream on, of as many milliseconds.
pub fn ms(milliseconds: u64) -> gst::ClockTime {
    gst::ClockTime::from_mseconds(milliseconds)
}
