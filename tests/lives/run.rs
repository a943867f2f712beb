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
use crate::common::floats;
use crate::common::pictures::Picture;
use crate::common::video;
use crate::cuda_frames::Context;
use crate::judge::{Failure, Fate, Judge, Pending, Said, alpha_of, fail, read, set_alpha};
use crate::rule::{Demand, Moment};
use crate::settings::{Settings, Value};
use crate::steps::{Caps, Downstream, Frame, Layout, Owner, Query, Segment, Step, has_alpha};

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

/// What lives run on and in.
pub struct Surroundings<'a> {
    pub driver: Option<&'a FakeDriver>,
    pub context: Option<Context>,
    /// Of the property `backend`.
    pub backend: &'static str,
    /// Of the thread that calls the element.
    pub floats: floats::Environment,
}

/// Executes the steps. The element is dropped before this returns.
pub fn run(steps: &[Step], surroundings: &Surroundings, totals: &mut Totals) -> Result<(), Failure> {
    let driver = surroundings.driver;
    if let Some(driver) = driver {
        driver.clear_faults();
    }
    LAST_PANIC.take();
    IS_LIVING.set(true);
    let counts = driver.map(FakeDriver::counts);
    let has_fault = steps.iter().any(|step| matches!(step, Step::Fault { .. }));
    let memories = Arc::new(());
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let is_cuda = |step: &Step| match step {
            Step::Caps(caps) => caps.is_in_cuda,
            Step::Memory(memory) => *memory == Some(true),
            _ => false,
        };
        let uses_cuda = steps.iter().any(is_cuda);
        let mut life = Life::new(surroundings, uses_cuda, Arc::clone(&memories));
        let backend = Step::Set("backend", Value::Text(surroundings.backend));
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
        drop((life.harness, life.inside, life.out));
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
}

enum Out {
    Buffer(gst::Buffer),
    Caps(gst::Caps),
    /// The event of [`Step::Event`], or a gap.
    Event(u64),
}

/// What has entered and has not left.
enum Inside {
    Frame(Box<Pending>),
    Event(u64),
}

const GAP: u64 = u64::MAX;
const SEGMENT: u64 = u64::MAX - 1;
const STREAM_START: u64 = u64::MAX - 2;

struct Life<'a> {
    surroundings: &'a Surroundings<'a>,
    element: gst::Element,
    harness: gst_check::Harness,
    bus: gst::Bus,
    out: Arc<Mutex<Vec<Out>>>,
    downstream: Arc<Mutex<Downstream>>,
    /// What [`Step::Memory`] asks for, and what downstream takes of that.
    memory: [Option<bool>; 2],
    /// Of a life with frames in CUDA memory.
    context: Option<Context>,
    settings: Settings,
    controls: BTreeMap<&'static str, (f64, u64, f64)>,
    is_started: bool,
    /// A flush has dropped the frames before a STREAM_START event.
    is_restarted: bool,
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
    inside: VecDeque<Inside>,
    /// The element's messages about frames that are not judged yet.
    said: RefCell<VecDeque<Said>>,
    frames: u64,
    judge: Judge,
    memories: Arc<()>,
    totals: Totals,
}

impl<'a> Life<'a> {
    fn new(surroundings: &'a Surroundings<'a>, uses_cuda: bool, memories: Arc<()>) -> Self {
        let context = surroundings.context.as_ref().filter(|_| uses_cuda).cloned();
        let element = video::element("");
        context.iter().for_each(|context| element.set_context(&context.shared()));
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
            memory: [None; 2],
            surroundings,
            context,
            settings: Settings::default(),
            controls: BTreeMap::new(),
            is_started: false,
            is_restarted: false,
            is_over: false,
            has_failed: false,
            errors: Cell::new(0),
            has_fault: false,
            caps: None,
            segment: None,
            out_caps: None,
            has_detector: false,
            inside: VecDeque::new(),
            said: RefCell::default(),
            frames: 0,
            judge: Judge::default(),
            memories,
            totals: Totals::new(),
        }
    }

    fn count(&mut self, name: impl Into<String>) {
        *self.totals.entry(name.into()).or_default() += 1;
    }

    /// Calls the element as its environment does.
    fn call<T>(&mut self, call: impl FnOnce(&mut gst_check::Harness, &gst::Element) -> T) -> T {
        let floats = self.surroundings.floats;
        floats.run(|| {
            let result = call(&mut self.harness, &self.element);
            assert_eq!(floats::current(), floats, "the element has changed the floating-point environment");
            result
        })
    }

    fn push_event(&mut self, event: gst::Event) {
        self.call(|harness, _| harness.push_event(event));
    }

    fn execute(&mut self, step: &Step) -> Result<(), Failure> {
        match step {
            Step::Set(property, value) => return self.set(property, value),
            Step::Control(property, first, from, second) => self.control(property, *first, *from, *second),
            Step::Downstream(downstream) => {
                *self.downstream.lock().unwrap() = downstream.clone();
                self.harness.push_upstream_event(gst::event::Reconfigure::new());
            }
            Step::Memory(memory) => {
                self.memory[0] = *memory;
                let caps = self.caps.as_ref().map(|(caps, _)| caps.clone());
                self.ask_memory(caps.as_ref());
            }
            Step::Fault { function, after, once, status } => {
                if let Some(driver) = self.surroundings.driver {
                    driver.fail_times(function, *after, if *once { 1 } else { i32::MAX }, *status);
                    self.has_fault = true;
                }
            }
            Step::Start if !self.is_started => return self.start(),
            _ if !self.is_started => (),
            Step::Start => (),
            Step::Stop(state) => return self.stop(*state),
            Step::Pause => {
                self.call(|_, element| element.set_state(gst::State::Paused)).ok();
                self.call(|_, element| element.set_state(gst::State::Playing)).ok();
            }
            Step::Reconfigure => _ = self.harness.push_upstream_event(gst::event::Reconfigure::new()),
            Step::Qos(late) => {
                let event = gst::event::Qos::builder(gst::QOSType::Underflow, 1.5, *late);
                self.harness.push_upstream_event(event.timestamp(gst::ClockTime::from_mseconds(80)).build());
            }
            Step::Clock(jump) => {
                let clock = self.harness.testclock().unwrap();
                clock.set_time(clock.time() + gst::ClockTime::from_nseconds(*jump));
                // The element's timer, which releases frames of a live stream.
                while clock.peek_id_count() > 0 && clock.next_entry_time() <= Some(clock.time()) {
                    clock.process_next_clock_id();
                    self.count("clock times that come");
                }
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
            Step::Query(query) => {
                self.messages();
                self.query(*query);
                if let Query::Drain = query {
                    return self.all_are_out();
                }
            }
            Step::Flush => return self.flush(),
            _ if self.has_failed => (),
            Step::StreamStart => {
                // It replaces one that was not pushed yet.
                self.is_restarted = false;
                self.inside.push_back(Inside::Event(STREAM_START));
                self.push_event(gst::event::StreamStart::new("again"));
            }
            Step::Gap if self.segment.is_some() && !self.is_over => {
                self.inside.push_back(Inside::Event(GAP));
                self.push_event(gst::event::Gap::builder(gst::ClockTime::ZERO).build());
            }
            Step::Event(number) if self.segment.is_some() && !self.is_over => {
                self.inside.push_back(Inside::Event(*number));
                let structure = gst::Structure::builder("life").field("number", number).build();
                self.push_event(gst::event::CustomDownstream::new(structure));
            }
            Step::Gap | Step::Event(_) => (),
            Step::Eos => {
                if self.segment.is_some() {
                    self.push_event(gst::event::Eos::new());
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

    /// Lets downstream take frames of these caps in the memory that was asked for, if the element can give them.
    fn ask_memory(&mut self, caps: Option<&Caps>) {
        let has_cuda = self.context.is_some() && video::nick(&self.element, "active-backend") == "cuda";
        let is_possible = has_cuda && caps.is_some_and(Caps::may_be_in_cuda);
        let memory = self.memory[0].filter(|_| is_possible);
        if memory != self.memory[1] {
            self.memory[1] = memory;
            let caps = match memory {
                Some(true) => "video/x-raw(memory:CUDAMemory)",
                Some(false) => "video/x-raw",
                None => "ANY",
            };
            self.harness.set_sink_caps(caps.parse().unwrap());
            self.count("changes of memory downstream");
        }
    }

    /// What is on the bus.
    fn messages(&self) -> Messages {
        let mut messages = Messages::default();
        while let Some(message) = self.bus.pop() {
            match message.view() {
                gst::MessageView::Error(error) => messages.errors.push(error.error().to_string()),
                gst::MessageView::Warning(warning) => messages.warnings.push(warning.error().to_string()),
                gst::MessageView::Qos(_) => messages.is_late = true,
                gst::MessageView::Element(element) => {
                    self.said.borrow_mut().push_back(Said::read(element.structure().unwrap()));
                }
                _ => (),
            }
        }
        self.errors.set(self.errors.get() + messages.errors.len());
        messages
    }

    /// Whether the device may fail without the CPU taking over.
    fn may_fail(&self) -> bool {
        self.has_fault && (self.settings.text("backend") == "cuda" || self.context.is_some())
    }

    /// Runs work of this program, which the faults of the driver are not for.
    fn exempt<T>(&self, work: impl FnOnce() -> T) -> T {
        match self.surroundings.driver {
            Some(driver) => driver.exempt(work),
            None => work(),
        }
    }

    fn set(&mut self, property: &'static str, value: &Value) -> Result<(), Failure> {
        self.messages();
        let given = value.to_value(&self.element, property);
        self.call(|_, element| element.set_property_from_value(property, &given));
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
            let now = self.element.property_value(property).transform::<f64>().unwrap().get().unwrap();
            let before = self.settings.get(property).clone();
            let wanted = stream_time.map(|time| if time < *from { *first } else { *second });
            let wanted = wanted.filter(|wanted| Settings::is_usable(property, &before.with_number(*wanted)));
            if Some(now) != before.number() && Some(now) != wanted {
                return fail("a controlled property has another value", format!("{property}={now}, not {wanted:?}"));
            }
            self.settings.insert(property, before.with_number(now));
        }
        Ok(())
    }

    fn start(&mut self) -> Result<(), Failure> {
        self.messages();
        let unusable = self.settings.unusable();
        let mut result = self.call(|_, element| element.set_state(gst::State::Playing));
        let needs_cuda = self.settings.text("backend") == "cuda";
        if !unusable.is_empty() || result.is_err() {
            let errors = self.messages().errors;
            let is_expected = !unusable.is_empty() || needs_cuda && self.has_fault;
            if result.is_ok() || !is_expected || errors.len() != 1 {
                return fail("start", format!("{result:?} with unusable {unusable:?}: {errors:?}"));
            }
            self.count("refused starts");
            self.element.set_state(gst::State::Null).ok();
            self.surroundings.driver.inspect(|driver| driver.clear_faults());
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
        self.is_restarted = false;
        self.inside.push_back(Inside::Event(STREAM_START));
        self.push_event(gst::event::StreamStart::new("life"));
        self.count("starts");
        self.collect()
    }

    fn stop(&mut self, state: gst::State) -> Result<(), Failure> {
        if self.call(|_, element| element.set_state(state)).is_err() {
            return fail("the element does not stop", "");
        }
        self.collect()?;
        self.forget();
        self.is_started = false;
        Ok(())
    }

    fn flush(&mut self) -> Result<(), Failure> {
        self.push_event(gst::event::FlushStart::new());
        self.push_event(gst::event::FlushStop::new(true));
        self.collect()?;
        // Of the events that waited, this one is pushed after the flush.
        self.is_restarted |= self.inside.iter().any(|one| matches!(one, Inside::Event(STREAM_START)));
        self.forget();
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
            self.inside.push_back(Inside::Event(SEGMENT));
            self.push_event(gst::event::Segment::new(&segment));
            self.segment = Some(segment);
        }
        self.collect()
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
        let mut caps = caps;
        if step.is_in_cuda {
            caps.make_mut().set_features(0, Some(gst::CapsFeatures::new(["memory:CUDAMemory"])));
        }
        let is_possible = !step.is_in_cuda || self.context.is_some();
        if self.is_over || !is_possible {
            self.caps = self.caps.take().filter(|_| is_possible);
            return Ok(());
        }
        self.messages();
        self.ask_memory(Some(step));
        let is_on_cpu = video::nick(&self.element, "active-backend") == "cpu";
        let is_same = self.caps.as_ref().is_some_and(|(caps, _)| caps == step);
        self.push_event(gst::event::Caps::new(&caps));
        // Frames wait through the same caps.
        let errors = if is_same {
            let errors = self.messages().errors;
            self.collect()?;
            errors
        } else {
            self.settle()?
        };
        let may_refuse = step.is_in_cuda && self.has_fault && errors.len() == 1;
        let is_refused = step.interlace_mode == "fields" || step.is_in_cuda && is_on_cpu || may_refuse;
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
            self.inside.push_back(Inside::Event(SEGMENT));
            self.push_event(gst::event::Segment::new(&segment));
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
        let mut drawn = Picture::new(&layouts, frame.noise);
        frame.alpha.inspect(|samples| set_alpha(&mut drawn, *samples));
        let mut made = match self.context.as_ref().filter(|_| caps.is_in_cuda) {
            Some(context) => self.exempt(|| buffers::in_cuda(context, frame, &info, &drawn, &self.memories)),
            None => buffers::buffer(frame, &info, &drawn, &self.memories),
        };
        // By its number it is found again.
        made.get_mut().unwrap().set_offset(self.frames + 1);
        let picture = self.exempt(|| read(&info, &layouts, &made));
        let is_readable = picture.is_some();
        let picture = picture.unwrap_or(drawn);
        let alpha = alpha_of(&picture);
        if alpha.is_some() != has_alpha(info.format()) {
            return fail("an alpha channel", format!("{:?}", info.format()));
        }
        let shared = match frame.owner {
            Owner::OfBuffer => Some(made.clone()),
            Owner::OfMemory => Some(made.copy()),
            Owner::Nobody | Owner::ReadOnly => None,
        };
        let flow = self.call(|harness, _| harness.push(made));
        self.frames += 1;
        let is_time = segment.downcast_ref::<gst::ClockTime>();
        let stream_time =
            is_time.and_then(|segment| segment.to_stream_time(frame.pts.map(gst::ClockTime::from_nseconds)));
        self.read_controls(stream_time.map(gst::ClockTime::nseconds))?;
        let settings = self.settings.clone();
        let has_detector = self.has_detector;
        let alpha = alpha.as_ref();
        let moment = Moment { settings: &settings, caps: &caps, size, segment: &segment, frame, has_detector, alpha };
        let demand = moment.demand();
        self.has_detector |= !matches!(demand, Demand::Blur) && moment.has_boxes();
        self.judge.note(&settings, &caps, frame, size);
        let Messages { errors, is_late, .. } = self.messages();
        if is_late && errors.len() == 1 {
            self.collect()?;
        }
        if self.has_failed {
            // So an event said that came behind the frame that failed.
            return Ok(());
        }
        if is_late && (self.may_fail() || self.next_may_fail()) && errors.len() == 1 {
            // A frame before it failed in a drain, and the base class dropped this one.
            self.fail_in_drain();
            return Ok(());
        }
        let is_frame = settings.text("region-mode") == "frame";
        if is_late {
            self.count("late frames");
        } else {
            let fate = match demand {
                Demand::Error => Fate::Error,
                Demand::Drop => Fate::Drop,
                Demand::Blur => Fate::Blur,
                Demand::Cover(must) => Fate::Cover(must),
                Demand::NoAlpha(must) => Fate::NoAlpha(must),
            };
            let (frame, number) = (frame.clone(), self.frames);
            let settings = settings.clone();
            let pending = Pending {
                number,
                caps: caps.clone(),
                info,
                settings,
                frame,
                picture,
                fate,
                said: None,
                is_readable,
                shared,
            };
            self.inside.push_back(Inside::Frame(Box::new(pending)));
        }
        if flow.is_err() {
            return self.failed(&flow, &errors);
        }
        self.collect()?;
        if self.has_failed {
            return Ok(());
        }
        if errors.len() == 1 && self.next_may_fail() {
            // A frame that the timer released meanwhile.
            self.fail_in_drain();
            return Ok(());
        }
        if !errors.is_empty() {
            return fail("an error message, but no error", format!("{errors:?}"));
        }
        let look_ahead = self.settings.uint("look-ahead") as usize;
        let in_flight = self.settings.uint("max-in-flight") as usize - 1;
        let may_wait = in_flight + if is_frame { 0 } else { look_ahead };
        self.skip_dropped(may_wait)?;
        let frames = self.frames_inside();
        if frames > may_wait {
            return fail("a frame is held back", format!("{frames} instead of {may_wait}"));
        }
        if frames > 0 && !is_frame {
            self.count("frames that wait");
        }
        let adds_latency = video::nick(&self.element, "active-backend") == "cuda";
        if let (false, (numerator @ 1.., denominator), false) = (adds_latency, caps.rate, is_late) {
            let frames = if is_frame { 0 } else { look_ahead as u64 };
            let latency = (frames * 1_000_000_000 * denominator as u64).div_ceil(numerator as u64);
            let reported = self.harness.query_latency().map(gst::ClockTime::nseconds);
            if reported != Some(latency) {
                return fail("latency", format!("{reported:?} instead of {latency}"));
            }
        }
        Ok(())
    }

    /// Forgets what has entered: it is dropped.
    fn forget(&mut self) {
        self.inside.clear();
        self.said.take();
    }

    /// Checks that streaming ended with one error, for a reason.
    fn failed(&mut self, flow: &Result<gst::FlowSuccess, gst::FlowError>, errors: &[String]) -> Result<(), Failure> {
        self.collect()?;
        if self.has_failed {
            return Ok(());
        }
        let is_device = self.may_fail();
        // An event or a query before the frame may have found the failure.
        let is_earlier = errors.is_empty() && self.errors.get() > 0;
        let is_expected = is_device || self.next_may_fail();
        // If no pool of CUDA memory can be configured, the base class refuses the caps, which upstream reports.
        let is_refused = is_device && self.context.is_some() && *flow == Err(gst::FlowError::NotNegotiated);
        let is_posted = *flow == Err(gst::FlowError::Error) && (errors.len() == 1 || is_earlier);
        if !is_expected || !is_posted && !is_refused {
            return fail("an error for no reason", format!("{flow:?}: {errors:?}"));
        }
        self.count(if is_device { "device errors" } else { "frame errors" });
        self.count_no_alpha();
        self.forget();
        (self.is_over, self.has_failed) = (true, true);
        Ok(())
    }

    /// Whether the next frame to leave, or one that was to be blurred at once, may fail by itself.
    fn next_may_fail(&self) -> bool {
        let mut frames =
            self.inside.iter().filter_map(|one| if let Inside::Frame(frame) = one { Some(frame) } else { None });
        let may_fail = |pending: &Pending| {
            let layout = &pending.frame.layout;
            let is_bad = matches!(
                layout,
                Layout::Short(_) | Layout::ShortMeta(_) | Layout::NegativeStride | Layout::Overlapping
            );
            is_bad || matches!(pending.fate, Fate::Error | Fate::NoAlpha(_))
        };
        let is_dropped = |pending: &Pending| matches!(pending.fate, Fate::Drop);
        frames.clone().find(|pending| !is_dropped(pending)).is_some_and(|first| may_fail(first))
            || frames.next_back().is_some_and(|last| matches!(last.fate, Fate::Blur) && may_fail(last))
    }

    /// All frames must have been pushed, because an event followed them; or one error says that a frame failed.
    fn all_are_out(&mut self) -> Result<(), Failure> {
        match &self.settle()?[..] {
            [] => Ok(()),
            errors => fail("an error of a drain for no reason", format!("{errors:?}")),
        }
    }

    /// As [`Life::all_are_out`]; returns the other errors.
    fn settle(&mut self) -> Result<Vec<String>, Failure> {
        let mut errors = self.messages().errors;
        let had_failed = self.has_failed;
        self.collect()?;
        self.skip_dropped(0)?;
        // The timer may have failed before, and nothing but an error ends with frames inside.
        if !self.inside.is_empty() && (self.may_fail() || self.next_may_fail()) && self.errors.get() > 0 {
            self.fail_in_drain();
        }
        if self.has_failed && !had_failed && !errors.is_empty() {
            errors.remove(0);
        }
        match self.inside.front() {
            Some(Inside::Frame(pending)) => fail("a frame is lost", format!("frame {}", pending.number)),
            Some(Inside::Event(number)) => fail("an event is lost", format!("event {number}")),
            None => Ok(errors),
        }
    }

    fn fail_in_drain(&mut self) {
        self.count("errors of a drain");
        self.count_no_alpha();
        self.forget();
        (self.is_over, self.has_failed) = (true, true);
    }

    /// Counts that the next frame to leave has no alpha channel that can be read.
    fn count_no_alpha(&mut self) {
        if let Some(Inside::Frame(pending)) = self.inside.front()
            && matches!(pending.fate, Fate::NoAlpha(_))
        {
            let memory = if pending.caps.is_in_cuda { "alpha channels in CUDA memory" } else { "no alpha channel" };
            self.count(memory);
        }
    }

    fn frames_inside(&self) -> usize {
        self.inside.iter().filter(|one| matches!(one, Inside::Frame(_))).count()
    }

    /// Removes the next frames as long as they are to be dropped and more than so many are inside.
    fn skip_dropped(&mut self, may_wait: usize) -> Result<(), Failure> {
        while let Some(Inside::Frame(pending)) = self.inside.front()
            && matches!(pending.fate, Fate::Drop)
            && self.frames_inside() > may_wait
        {
            if pending.settings.posts_messages() {
                let said = self.said.borrow_mut().pop_front();
                if said.as_ref().is_none_or(|said| said.covered != "dropped") {
                    return fail("messages of a dropped frame", format!("{said:?}"));
                }
            }
            self.inside.pop_front();
            self.count("on-missing=drop");
        }
        Ok(())
    }

    /// Judges what came out.
    fn collect(&mut self) -> Result<(), Failure> {
        // Before the messages, because the timer may push another frame meanwhile, and a frame's message comes first.
        let out = std::mem::take(&mut *self.out.lock().unwrap());
        self.messages();
        for out in out {
            let output = match out {
                Out::Caps(caps) => {
                    self.out_caps = Some(caps);
                    continue;
                }
                // After an error those that waited are pushed.
                Out::Event(_) if self.has_failed => continue,
                Out::Event(STREAM_START) if std::mem::take(&mut self.is_restarted) => continue,
                Out::Event(number) => {
                    self.skip_dropped(0)?;
                    match self.inside.front() {
                        Some(Inside::Event(expected)) if *expected == number => _ = self.inside.pop_front(),
                        // It follows a frame that failed when frames were drained.
                        Some(Inside::Frame(_))
                            if self.errors.get() > 0 && (self.may_fail() || self.next_may_fail()) =>
                        {
                            self.fail_in_drain();
                            continue;
                        }
                        _ => return fail("an event at another place", format!("{number}")),
                    }
                    self.count("events");
                    continue;
                }
                Out::Buffer(output) => output,
            };
            if self.has_failed {
                return fail("a frame is pushed after an error", "");
            }
            self.skip_dropped(0)?;
            let mut pending = match self.inside.pop_front() {
                Some(Inside::Frame(pending)) => pending,
                Some(Inside::Event(number)) => return fail("a frame before an event", format!("{output:?} {number}")),
                None => return fail("a frame too many", format!("{output:?}")),
            };
            if matches!(pending.fate, Fate::Error) {
                return fail("on-missing=error passed a frame", format!("frame {}", pending.number));
            }
            if let Fate::Cover(_) | Fate::NoAlpha(_) = pending.fate
                && pending.settings.posts_messages()
            {
                let said = self.said.borrow_mut().pop_front();
                if said.as_ref().map(|said| said.timestamp) != Some(pending.frame.pts.unwrap_or(u64::MAX)) {
                    return fail("messages of a frame", format!("{said:?}"));
                }
                pending.said = said;
            }
            if let Fate::NoAlpha(must) = pending.fate {
                let is_whole = |said: &Said| said.is_whole(&pending.settings, &must);
                if !must.may_be_whole || !pending.said.as_ref().is_none_or(is_whole) {
                    return fail("a frame without an alpha channel is pushed", format!("frame {}", pending.number));
                }
                pending.fate = Fate::Cover(must);
            }
            if output.offset() != pending.number {
                return fail("another frame", format!("{} instead of {}", output.offset(), pending.number));
            }
            let is_of_caps = self.out_caps.as_ref().and_then(|caps| VideoInfo::from_caps(caps).ok());
            if is_of_caps.as_ref() != Some(&pending.info) {
                return fail("a frame with other caps", format!("{:?}", self.out_caps));
            }
            check_metadata(&pending.frame, &output)?;
            if !pending.is_readable {
                let may_pass = match &pending.fate {
                    Fate::Cover(must) => must.is_identity || !must.mask.contains(&true),
                    _ => {
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
                let now = self.exempt(|| read(&pending.info, layouts, shared));
                now.is_some_and(|now| now.bytes == pending.picture.bytes)
            };
            if !pending.shared.as_ref().is_none_or(is_kept) {
                return fail("memory of somebody else is written", format!("frame {}", pending.number));
            }
            let Some(got) = self.exempt(|| read(&pending.info, layouts, &output)) else {
                return fail("unreadable output", format!("frame {}", pending.number));
            };
            let covered = self.judge.check(&pending, &got)?;
            let settings = &pending.settings;
            let active = video::nick(&self.element, "active-backend");
            let cover = settings.text("cover");
            let what = format!("region-mode={} cover={cover} {covered}", settings.text("region-mode"));
            self.count(format!("frames on {active}"));
            if covered.starts_with("alpha") {
                if pending.caps.interlace_mode == "alternate" {
                    self.count("alpha channels of a field");
                }
                if pending.picture.planes[0].depth > 8 {
                    self.count("alpha channels of deep formats");
                }
            }
            if self.memory[1] == Some(!pending.caps.is_in_cuda) {
                self.count(format!("frames to other memory, region-mode={}", settings.text("region-mode")));
            }
            if pending.caps.is_in_cuda {
                let is_soft = covered.starts_with("shape=");
                self.count(if is_soft { "soft covers in CUDA memory" } else { "frames in CUDA memory" });
            }
            self.count(if matches!(pending.fate, Fate::Cover(_)) {
                what
            } else {
                format!("region-mode=frame {covered}")
            });
        }
        Ok(())
    }

    fn end(&mut self) -> Result<(), Failure> {
        if self.is_started {
            if !self.has_failed && self.segment.is_some() && !self.is_over {
                self.push_event(gst::event::Eos::new());
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
                let seen = match event.view() {
                    gst::EventView::Caps(caps) => Some(Out::Caps(caps.caps_owned())),
                    gst::EventView::Gap(_) => Some(Out::Event(GAP)),
                    gst::EventView::Segment(_) => Some(Out::Event(SEGMENT)),
                    gst::EventView::StreamStart(_) => Some(Out::Event(STREAM_START)),
                    gst::EventView::CustomDownstream(event) => {
                        event.structure().and_then(|structure| structure.get("number").ok()).map(Out::Event)
                    }
                    _ => None,
                };
                out.lock().unwrap().extend(seen);
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
