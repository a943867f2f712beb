//! Executes the steps of a life on a fresh element in a harness, and judges what comes out of it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, Once};

use gst::prelude::*;
use gst_controller::prelude::*;
use gst_video::prelude::*;
use gst_video::{VideoInfo, VideoRegionOfInterestMeta};
use gstcudagaussblur::element::formats;

use crate::buffers;
use crate::common::fake_driver::FakeDriver;
use crate::common::pictures::Picture;
use crate::common::video;
use crate::judge::{Failure, Judge, Pending, Said, fail, read};
use crate::rule::{Demand, Moment};
use crate::settings::{Settings, Value};
use crate::steps::{Caps, Downstream, Frame, Layout, Owner, Query, Segment, Step};

/// How often what occurred.
pub type Totals = BTreeMap<String, u64>;

thread_local! {
    /// The first panic or critical message of this thread in a life.
    static LAST_PANIC: RefCell<Option<Failure>> = const { RefCell::new(None) };
    static IS_LIVING: Cell<bool> = const { Cell::new(false) };
}

/// Notes the panics and critical messages of lives instead of printing them: the element turns panics into errors.
pub fn note_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let print = std::panic::take_hook();
        std::panic::set_hook(Box::new(move |info| {
            let text = info.payload_as_str().unwrap_or("?").lines().next().unwrap_or_default().to_owned();
            let place = info.location().map_or(String::new(), |place| format!("{}:{}", place.file(), place.line()));
            if !IS_LIVING.get() || text.contains("cannot unwind") {
                print(info);
            }
            note(format!("panic at {place}"), text);
        }));
    });
    gst::glib::log_set_default_handler(|domain, level, text| {
        if let gst::glib::LogLevel::Critical | gst::glib::LogLevel::Error = level {
            note(format!("critical message of {}", domain.unwrap_or("?")), text.to_owned());
        }
    });
}

fn note(kind: String, detail: String) {
    LAST_PANIC.with_borrow_mut(|last| _ = last.get_or_insert(Failure { kind, detail }));
}

/// Executes the steps. The element is dropped before this returns.
pub fn run(steps: &[Step], driver: Option<&FakeDriver>, totals: &mut Totals) -> Result<(), Failure> {
    if let Some(driver) = driver {
        driver.clear_faults();
    }
    LAST_PANIC.take();
    IS_LIVING.set(true);
    let counts = driver.map(FakeDriver::counts);
    let has_fault = steps.iter().any(|step| matches!(step, Step::Fault { .. }));
    let memories = Arc::new(());
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut life = Life::new(driver, Arc::clone(&memories));
        // The fake device is for one life at a time.
        let backend = Step::Set("backend", Value::Text(if driver.is_some() { "auto" } else { "cpu" }));
        let all = [&[backend], steps].concat();
        let result = all.iter().try_for_each(|step| life.execute(step)).and_then(|()| life.end());
        let abandoned = life.element.property::<gst::Structure>("stats").get::<u64>("frames-abandoned").unwrap();
        life.totals.into_iter().for_each(|(name, count)| *totals.entry(name).or_default() += count);
        let weak = life.element.downgrade();
        let has_stopped = life.element.set_state(gst::State::Null).is_ok();
        if !has_stopped || LAST_PANIC.with_borrow(Option::is_some) {
            // The harness would end the process.
            std::mem::forget(life.harness);
            return result.and_then(|()| fail("the element does not stop", ""));
        }
        // Its messages refer to the element.
        life.bus.set_flushing(true);
        drop((life.harness, life.pending, life.out));
        drop(life.element);
        result.and_then(|()| match weak.upgrade() {
            Some(_) => fail("the element is leaked", ""),
            None => Ok(abandoned),
        })
    }));
    if let Some(driver) = driver {
        driver.clear_faults();
    }
    let panic = LAST_PANIC.take();
    IS_LIVING.set(false);
    let abandoned = match (outcome, panic) {
        (_, Some(panic)) => return Err(panic),
        (Ok(result), None) => result?,
        (Err(_), None) => return fail("panic", ""),
    };
    let leaked = Arc::strong_count(&memories) - 1;
    if leaked > 0 && abandoned == 0 {
        return fail("input memory is leaked", format!("{leaked} memories"));
    }
    if let (Some(driver), Some(before)) = (driver, counts) {
        let end = driver.counts();
        let live = |counts: crate::common::fake_driver::Counts| [counts.device_blocks, counts.pinned_blocks];
        if live(end) != live(before) && !has_fault {
            return fail("device memory is leaked", format!("{before:?}, then {end:?}"));
        }
    }
    Ok(())
}

/// The messages of the element.
#[derive(Default)]
struct Messages {
    errors: Vec<String>,
    warnings: Vec<String>,
    /// A frame was dropped because it is late.
    is_late: bool,
    said: Vec<Said>,
}

enum Out {
    Buffer(gst::Buffer),
    Caps(gst::Caps),
}

struct Life<'a> {
    element: gst::Element,
    harness: gst_check::Harness,
    bus: gst::Bus,
    out: Arc<Mutex<Vec<Out>>>,
    downstream: Arc<Mutex<Downstream>>,
    driver: Option<&'a FakeDriver>,
    settings: Settings,
    controls: BTreeMap<&'static str, (f64, u64, f64)>,
    is_started: bool,
    /// After an error or the end, until the element is stopped: frames are not pushed any more.
    is_over: bool,
    has_failed: bool,
    /// Error messages since the start.
    errors: Cell<usize>,
    has_fault: bool,
    caps: Option<(Caps, VideoInfo)>,
    segment: Option<gst::Segment>,
    out_caps: Option<gst::Caps>,
    has_detector: bool,
    pending: VecDeque<Pending>,
    frames: u64,
    judge: Judge,
    memories: Arc<()>,
    totals: Totals,
}

impl<'a> Life<'a> {
    fn new(driver: Option<&'a FakeDriver>, memories: Arc<()>) -> Self {
        let element = video::element("");
        let bus = video::bus_of(&element);
        let mut harness = gst_check::Harness::with_element(&element, Some("sink"), Some("src"));
        harness.set_drop_buffers(true);
        // The harness has started it.
        element.set_state(gst::State::Null).unwrap();
        let out = Arc::new(Mutex::new(Vec::new()));
        let downstream = Arc::new(Mutex::new(Downstream { takes_video_meta: false, pool_padding: None }));
        watch(&element, &out, &downstream);
        Self {
            element,
            harness,
            bus,
            out,
            downstream,
            driver,
            settings: Settings::default(),
            controls: BTreeMap::new(),
            is_started: false,
            is_over: false,
            has_failed: false,
            errors: Cell::new(0),
            has_fault: false,
            caps: None,
            segment: None,
            out_caps: None,
            has_detector: false,
            pending: VecDeque::new(),
            frames: 0,
            judge: Judge::default(),
            memories,
            totals: Totals::new(),
        }
    }

    fn count(&mut self, name: impl Into<String>) {
        *self.totals.entry(name.into()).or_default() += 1;
    }

    fn execute(&mut self, step: &Step) -> Result<(), Failure> {
        match step {
            Step::Set(property, value) => return self.set(property, value),
            Step::Control(property, first, from, second) => self.control(property, *first, *from, *second),
            Step::Downstream(downstream) => {
                *self.downstream.lock().unwrap() = downstream.clone();
                self.harness.push_upstream_event(gst::event::Reconfigure::new());
            }
            Step::Fault { function, after, once, status } => {
                if let Some(driver) = self.driver {
                    driver.fail_times(function, *after, if *once { 1 } else { i32::MAX }, *status);
                    self.has_fault = true;
                }
            }
            Step::Start if !self.is_started => return self.start(),
            _ if !self.is_started => (),
            Step::Start => (),
            Step::Stop(state) => return self.stop(*state),
            Step::Pause => {
                self.element.set_state(gst::State::Paused).ok();
                self.element.set_state(gst::State::Playing).ok();
            }
            Step::Reconfigure => _ = self.harness.push_upstream_event(gst::event::Reconfigure::new()),
            Step::Qos(late) => {
                let event = gst::event::Qos::builder(gst::QOSType::Underflow, 1.5, *late);
                self.harness.push_upstream_event(event.timestamp(gst::ClockTime::from_mseconds(80)).build());
            }
            Step::Seek => {
                let seek = gst::event::Seek::new(
                    1.0,
                    gst::SeekFlags::FLUSH,
                    gst::SeekType::Set,
                    gst::ClockTime::SECOND,
                    gst::SeekType::None,
                    gst::ClockTime::NONE,
                );
                self.harness.push_upstream_event(seek);
            }
            Step::Query(query) => self.query(*query),
            Step::Flush => return self.flush(),
            _ if self.has_failed => (),
            Step::StreamStart => {
                self.harness.push_event(gst::event::StreamStart::new("again"));
                return self.all_are_out();
            }
            Step::Gap => {
                self.harness.push_event(gst::event::Gap::builder(gst::ClockTime::ZERO).build());
                return self.all_are_out();
            }
            Step::Eos => {
                if self.segment.is_some() {
                    self.harness.push_event(gst::event::Eos::new());
                    self.is_over = true;
                    self.count("eos");
                    return self.all_are_out();
                }
            }
            Step::Segment(segment) => return self.segment(segment),
            Step::Caps(caps) => return self.caps(caps),
            Step::Frame(frame) => return self.frame(frame),
        }
        self.collect()
    }

    /// What is on the bus.
    fn messages(&self) -> Messages {
        let mut messages = Messages::default();
        while let Some(message) = self.bus.pop() {
            match message.view() {
                gst::MessageView::Error(error) => messages.errors.push(error.error().to_string()),
                gst::MessageView::Warning(warning) => messages.warnings.push(warning.error().to_string()),
                gst::MessageView::Qos(_) => messages.is_late = true,
                gst::MessageView::Element(element) => messages.said.push(Said::read(element.structure().unwrap())),
                _ => (),
            }
        }
        self.errors.set(self.errors.get() + messages.errors.len());
        messages
    }

    /// Whether the device may fail without the CPU taking over.
    fn may_fail(&self) -> bool {
        self.has_fault && self.settings.text("backend") == "cuda"
    }

    fn set(&mut self, property: &'static str, value: &Value) -> Result<(), Failure> {
        self.messages();
        self.element.set_property_from_value(property, &value.to_value(&self.element, property));
        let is_fixed = Settings::is_fixed(property) && self.settings.get(property) != value;
        let is_refused = self.is_started && (is_fixed || !Settings::is_usable(property, value));
        if !is_refused {
            self.settings.insert(property, value.clone());
        }
        let warnings = self.messages().warnings;
        if warnings.len() != usize::from(is_refused) {
            return fail("warnings of a property", format!("{property} {value:?}: {warnings:?}"));
        }
        if !self.settings.get(property).reads_back(&self.element, property) {
            return fail("a property reads back another value", format!("{property} {value:?}"));
        }
        self.count(if is_refused { "refused values" } else { "accepted values" });
        Ok(())
    }

    fn control(&mut self, property: &'static str, first: f64, from: u64, second: f64) {
        let source = gst_controller::InterpolationControlSource::new();
        source.set_mode(gst_controller::InterpolationMode::None);
        source.set(gst::ClockTime::ZERO, first);
        source.set(gst::ClockTime::from_nseconds(from), second);
        let binding = gst_controller::DirectControlBinding::new_absolute(&self.element, property, &source);
        self.element.add_control_binding(&binding).unwrap();
        self.controls.insert(property, (first, from, second));
    }

    /// Reads the controlled properties after a frame: each keeps its value or has that of the frame's stream time.
    fn read_controls(&mut self, stream_time: Option<u64>) -> Result<(), Failure> {
        for (property, (first, from, second)) in &self.controls {
            let now = self.element.property::<f64>(property);
            let wanted = stream_time.map(|time| if time < *from { *first } else { *second });
            let wanted = wanted.filter(|wanted| Settings::is_usable(property, &Value::Double(*wanted)));
            if now != self.settings.double(property) && Some(now) != wanted {
                return fail("a controlled property has another value", format!("{property}={now}, not {wanted:?}"));
            }
            self.settings.insert(property, Value::Double(now));
        }
        Ok(())
    }

    fn start(&mut self) -> Result<(), Failure> {
        self.messages();
        let unusable = self.settings.unusable();
        let mut result = self.element.set_state(gst::State::Playing);
        let needs_cuda = self.settings.text("backend") == "cuda";
        if !unusable.is_empty() || result.is_err() {
            let errors = self.messages().errors;
            let is_expected = !unusable.is_empty() || needs_cuda && self.has_fault;
            if result.is_ok() || !is_expected || errors.len() != 1 {
                return fail("start", format!("{result:?} with unusable {unusable:?}: {errors:?}"));
            }
            self.count("refused starts");
            self.element.set_state(gst::State::Null).ok();
            self.driver.inspect(|driver| driver.clear_faults());
            for property in unusable {
                let usable = Settings::default().get(property).clone();
                self.set(property, &usable)?;
            }
            result = self.element.set_state(gst::State::Playing);
        }
        if result.is_err() {
            return fail("start", format!("{:?}", self.messages().errors));
        }
        self.harness.play();
        (self.is_started, self.is_over, self.has_failed) = (true, false, false);
        self.errors.set(0);
        (self.caps, self.segment, self.out_caps, self.has_detector) = (None, None, None, false);
        self.harness.push_event(gst::event::StreamStart::new("life"));
        self.count("starts");
        self.collect()
    }

    fn stop(&mut self, state: gst::State) -> Result<(), Failure> {
        if self.element.set_state(state).is_err() {
            return fail("the element does not stop", "");
        }
        self.collect()?;
        self.pending.clear();
        self.is_started = false;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.harness.push_event(gst::event::FlushStart::new());
        self.harness.push_event(gst::event::FlushStop::new(true));
        self.collect()?;
        self.pending.clear();
        (self.is_over, self.segment) = (self.has_failed, None);
        self.count("flushes");
        Ok(())
    }

    fn segment(&mut self, step: &Segment) -> Result<(), Failure> {
        let segment: gst::Segment = if step.in_bytes {
            gst::FormattedSegment::<gst::format::Bytes>::new().upcast()
        } else {
            let mut segment = gst::FormattedSegment::<gst::ClockTime>::new();
            segment.set_rate(step.rate);
            segment.set_applied_rate(step.applied_rate);
            let ns = gst::ClockTime::from_nseconds;
            segment.set_start(ns(step.start));
            segment.set_stop(step.stop.map(ns));
            segment.set_time(ns(step.time));
            segment.upcast()
        };
        if self.caps.is_some() && !self.is_over {
            self.harness.push_event(gst::event::Segment::new(&segment));
            self.segment = Some(segment);
        }
        self.all_are_out()
    }

    fn caps(&mut self, step: &Caps) -> Result<(), Failure> {
        let mut caps = gst::Caps::builder("video/x-raw")
            .field("format", &step.format)
            .field("width", step.size[0] as i32)
            .field("height", step.size[1] as i32)
            .field("framerate", gst::Fraction::new(step.rate.0, step.rate.1))
            .field("interlace-mode", step.interlace_mode);
        if let Some((numerator, denominator)) = step.max_rate {
            caps = caps.field("max-framerate", gst::Fraction::new(numerator, denominator));
        }
        let is_alternate = step.interlace_mode == "alternate";
        let caps = if is_alternate { caps.features(["format:Interlaced"]).build() } else { caps.build() };
        if self.is_over {
            return Ok(());
        }
        self.messages();
        self.harness.push_event(gst::event::Caps::new(&caps));
        let errors = self.messages().errors;
        self.all_are_out()?;
        let is_refused = step.interlace_mode == "fields";
        if errors.len() != usize::from(is_refused) {
            return fail("caps", format!("{caps}: {errors:?}"));
        }
        if is_refused {
            self.caps = None;
            self.count("refused caps");
            return Ok(());
        }
        let info = VideoInfo::from_caps(&caps).unwrap();
        self.caps = Some((step.clone(), info));
        if self.segment.is_none() {
            let segment = gst::FormattedSegment::<gst::ClockTime>::new().upcast();
            self.harness.push_event(gst::event::Segment::new(&segment));
            self.segment = Some(segment);
        }
        self.count(format!("interlace-mode={}", step.interlace_mode));
        self.collect()
    }

    fn query(&mut self, query: Query) {
        let downstream = || self.harness.srcpad().unwrap();
        let upstream = || self.harness.sinkpad().unwrap();
        match query {
            Query::Latency => _ = upstream().peer_query(&mut gst::query::Latency::new()),
            Query::Position => _ = upstream().peer_query(&mut gst::query::Position::new(gst::Format::Time)),
            Query::Caps => drop(downstream().peer_query_caps(None)),
            Query::Drain => _ = downstream().peer_query(&mut gst::query::Drain::new()),
            Query::Allocation => {
                let caps = self.caps.as_ref().map(|(_, info)| info.to_caps().unwrap());
                downstream().peer_query(&mut gst::query::Allocation::new(caps.as_ref(), true));
            }
        }
    }

    fn frame(&mut self, frame: &Frame) -> Result<(), Failure> {
        let (Some((caps, info)), Some(segment)) = (self.caps.clone(), self.segment.clone()) else { return Ok(()) };
        if self.is_over {
            return Ok(());
        }
        self.messages();
        let is_interlaced = match caps.interlace_mode {
            "interleaved" => true,
            "mixed" => frame.is_interlaced,
            _ => false,
        };
        let layouts = formats::planes(&info, is_interlaced).unwrap();
        let size = [layouts[0].width, layouts[0].height];
        let mut made = buffers::buffer(frame, &info, &Picture::new(&layouts, frame.noise), &self.memories);
        // By its number it is found again.
        made.get_mut().unwrap().set_offset(self.frames + 1);
        let picture = read(&info, &layouts, &made);
        let is_readable = picture.is_some();
        let picture = picture.unwrap_or_else(|| Picture::new(&layouts, frame.noise));
        let shared = match frame.owner {
            Owner::OfBuffer => Some(made.clone()),
            Owner::OfMemory => Some(made.copy()),
            Owner::Nobody | Owner::ReadOnly => None,
        };
        let flow = self.harness.push(made);
        self.frames += 1;
        let is_time = segment.downcast_ref::<gst::ClockTime>();
        let stream_time =
            is_time.and_then(|segment| segment.to_stream_time(frame.pts.map(gst::ClockTime::from_nseconds)));
        self.read_controls(stream_time.map(gst::ClockTime::nseconds))?;
        let settings = self.settings.clone();
        let has_detector = self.has_detector;
        let moment = Moment { settings: &settings, caps: &caps, size, segment: &segment, frame, has_detector };
        let demand = moment.demand();
        self.has_detector |= !matches!(demand, Demand::Blur) && moment.has_boxes();
        self.judge.note(&settings, &caps, frame, size);
        let Messages { errors, is_late, said, .. } = self.messages();
        if flow.is_err() {
            return self.failed(frame, &flow, &errors, &demand);
        }
        if is_late && self.may_fail() && errors.len() == 1 {
            // The frames before it failed, and the base class dropped this one.
            self.pending.clear();
            (self.is_over, self.has_failed) = (true, true);
            return Ok(());
        }
        if !errors.is_empty() {
            return fail("an error message, but no error", format!("{errors:?}"));
        }
        let must = match demand {
            Demand::Error | Demand::Drop if is_late => None,
            Demand::Error => return fail("on-missing=error passed a frame", format!("{said:?}")),
            Demand::Drop => {
                self.count("on-missing=drop");
                let is_said = said.iter().map(|said| said.covered.as_str()).eq(["dropped"]);
                if settings.posts_messages() != is_said {
                    return fail("messages of a dropped frame", format!("{said:?}"));
                }
                None
            }
            Demand::Blur => None,
            Demand::Cover(must) => Some(must),
        };
        let is_frame = settings.text("region-mode") == "frame";
        if is_late {
            self.count("late frames");
        } else if is_frame || must.is_some() {
            if said.len() != usize::from(settings.posts_messages() && !is_frame) {
                return fail("messages of a frame", format!("{said:?}"));
            }
            let said = said.into_iter().next();
            let (frame, number) = (frame.clone(), self.frames);
            let pending = Pending { number, caps, info, settings, frame, picture, must, said, is_readable, shared };
            self.pending.push_back(pending);
        }
        self.collect()?;
        if !is_frame && !self.pending.is_empty() {
            return fail("a frame with regions is held back", "");
        }
        Ok(())
    }

    /// Checks that streaming ended with one error, for a reason.
    fn failed(
        &mut self,
        frame: &Frame,
        flow: &Result<gst::FlowSuccess, gst::FlowError>,
        errors: &[String],
        demand: &Demand,
    ) -> Result<(), Failure> {
        let is_bad = matches!(
            frame.layout,
            Layout::Short(_) | Layout::ShortMeta(_) | Layout::NegativeStride | Layout::Overlapping
        );
        let is_device = self.may_fail();
        let is_expected = is_bad || is_device || matches!(demand, Demand::Error);
        // An event or a query before the frame may have found the failure.
        let is_earlier = is_device && errors.is_empty() && self.errors.get() > 0;
        if !is_expected || *flow != Err(gst::FlowError::Error) || errors.len() != 1 && !is_earlier {
            return fail("an error for no reason", format!("{flow:?}: {errors:?}"));
        }
        self.count(if is_device { "device errors" } else { "frame errors" });
        self.collect()?;
        self.pending.clear();
        (self.is_over, self.has_failed) = (true, true);
        Ok(())
    }

    /// All frames must have been pushed, because an event followed them; or one error says that a frame failed.
    fn all_are_out(&mut self) -> Result<(), Failure> {
        self.collect()?;
        if self.may_fail() && !self.pending.is_empty() && self.messages().errors.len() == 1 {
            self.pending.clear();
            (self.is_over, self.has_failed) = (true, true);
        }
        match self.pending.front() {
            Some(pending) => fail("a frame is lost", format!("frame {}", pending.number)),
            None => Ok(()),
        }
    }

    /// Judges what came out.
    fn collect(&mut self) -> Result<(), Failure> {
        let out = std::mem::take(&mut *self.out.lock().unwrap());
        for out in out {
            let output = match out {
                Out::Caps(caps) => {
                    self.out_caps = Some(caps);
                    continue;
                }
                Out::Buffer(output) => output,
            };
            if self.has_failed {
                return fail("a frame is pushed after an error", "");
            }
            let Some(pending) = self.pending.pop_front() else {
                return fail("a frame too many", format!("{output:?}"));
            };
            if output.offset() != pending.number {
                return fail("another frame", format!("{} instead of {}", output.offset(), pending.number));
            }
            let is_of_caps = self.out_caps.as_ref().and_then(|caps| VideoInfo::from_caps(caps).ok());
            if is_of_caps.as_ref() != Some(&pending.info) {
                return fail("a frame with other caps", format!("{:?}", self.out_caps));
            }
            check_metadata(&pending.frame, &output)?;
            if !pending.is_readable {
                let may_pass = match &pending.must {
                    Some(must) => must.is_identity || !must.mask.contains(&true),
                    None => {
                        let is_partial = pending.settings.text("planes") != "luma+chroma+alpha";
                        pending.settings.double("sigma") == 0.0 || is_partial
                    }
                };
                if !may_pass {
                    return fail("a frame that cannot be read is pushed", format!("frame {}", pending.number));
                }
                continue;
            }
            let layouts = &pending.picture.planes;
            let is_kept = |shared: &gst::Buffer| {
                read(&pending.info, layouts, shared).is_some_and(|now| now.bytes == pending.picture.bytes)
            };
            if !pending.shared.as_ref().is_none_or(is_kept) {
                return fail("memory of somebody else is written", format!("frame {}", pending.number));
            }
            let covered = self.judge.check(&pending, &output)?;
            let settings = &pending.settings;
            let active = video::nick(&self.element, "active-backend");
            let cover = settings.text("cover");
            let what = format!("region-mode={} cover={cover} {covered}", settings.text("region-mode"));
            self.count(format!("frames on {active}"));
            self.count(if pending.must.is_some() { what } else { format!("region-mode=frame {covered}") });
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Failure> {
        if self.is_started {
            if !self.has_failed && self.segment.is_some() && !self.is_over {
                self.harness.push_event(gst::event::Eos::new());
                self.all_are_out()?;
            }
            self.stop(gst::State::Null)?;
        }
        let frames = self.frames;
        *self.totals.entry("frames".to_owned()).or_default() += frames;
        self.count("lives");
        Ok(())
    }
}

/// Frames keep their timestamps, flags and metas.
fn check_metadata(frame: &Frame, output: &gst::BufferRef) -> Result<(), Failure> {
    let ns = |time: Option<gst::ClockTime>| time.map(gst::ClockTime::nseconds);
    if (ns(output.pts()), ns(output.duration())) != (frame.pts, frame.duration) {
        return fail("other timestamps", format!("{output:?}"));
    }
    let interlaced = output.video_flags().contains(gst_video::VideoBufferFlags::INTERLACED);
    if !output.flags().contains(frame.flags) || interlaced != frame.is_interlaced {
        return fail("other flags", format!("{output:?}, but {:?}", frame.flags));
    }
    let rects = output.iter_meta::<VideoRegionOfInterestMeta>().map(|meta| meta.rect());
    if !rects.eq(frame.boxes.iter().map(|roi| (roi.rect[0], roi.rect[1], roi.rect[2], roi.rect[3]))) {
        return fail("other metas", format!("{output:?}"));
    }
    Ok(())
}

/// Records what the element pushes, and answers its allocation queries.
fn watch(element: &gst::Element, out: &Arc<Mutex<Vec<Out>>>, downstream: &Arc<Mutex<Downstream>>) {
    let pad = element.static_pad("src").unwrap();
    let out = Arc::clone(out);
    pad.add_probe(gst::PadProbeType::BUFFER | gst::PadProbeType::EVENT_DOWNSTREAM, move |_, probe| {
        match &probe.data {
            Some(gst::PadProbeData::Buffer(buffer)) => out.lock().unwrap().push(Out::Buffer(buffer.clone())),
            Some(gst::PadProbeData::Event(event)) => {
                if let gst::EventView::Caps(caps) = event.view() {
                    out.lock().unwrap().push(Out::Caps(caps.caps_owned()));
                }
            }
            _ => (),
        }
        gst::PadProbeReturn::Ok
    });
    let downstream = Arc::clone(downstream);
    pad.add_probe(gst::PadProbeType::QUERY_DOWNSTREAM | gst::PadProbeType::PUSH, move |_, probe| {
        if let Some(gst::QueryViewMut::Allocation(query)) = probe.query_mut().map(gst::QueryRef::view_mut) {
            buffers::answer(query, &downstream.lock().unwrap());
        }
        gst::PadProbeReturn::Ok
    });
}
