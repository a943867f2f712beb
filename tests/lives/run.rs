//! Executes the steps of a life on a fresh element in a harness, and judges what comes out of it.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, Once};
use std::thread::{self, ThreadId};
use std::time::{Duration, Instant};

use gst::prelude::*;
use gst_controller::prelude::*;
use gst_video::{VideoInfo, VideoInterlaceMode, VideoRegionOfInterestMeta, prelude::*};
use gstcudagaussblur::element::format::formats;

use crate::buffers;
use crate::common::fake_driver::{Counts, FakeDriver, ILLEGAL_ADDRESS, OUT_OF_MEMORY};
use crate::common::floats;
use crate::common::pictures::Picture;
use crate::common::video;
use crate::cuda_frames::Context;
use crate::judge::{Failure, Judge, Pending, Said, alpha_of, fail, read};
use crate::rule::{Demand, Moment};
use crate::settings::{self, Settings};
use crate::steps::{CUDA_MEMORY, Caps, Downstream, Frame, Layout, Owner, Step, has_alpha};

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
    driver.inspect(|driver| driver.clear_faults());
    LAST_PANIC.take();
    IS_LIVING.set(true);
    let counts = driver.map(FakeDriver::counts);
    let memories = Arc::new(());
    let outcome = catch_unwind(AssertUnwindSafe(|| {
        let mut life = Life::new(steps, surroundings, Arc::clone(&memories));
        let start = life.set("backend", surroundings.backend);
        let result =
            start.and_then(|()| steps.iter().try_for_each(|step| life.execute(step))).and_then(|()| life.end());
        let abandoned = life.abandoned;
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
        life.posted.lock().unwrap().clear();
        drop((life.harness, life.inside, life.out, life.element));
        // A thread that was asked to push the frames that are due has a reference until it has run.
        let end = Instant::now() + Duration::from_secs(60);
        while weak.upgrade().is_some() && Instant::now() < end {
            thread::sleep(Duration::from_millis(1));
        }
        result.and_then(|()| match weak.upgrade() {
            Some(_) => fail("the element is leaked", ""),
            None => Ok(abandoned),
        })
    }));
    driver.inspect(|driver| driver.clear_faults());
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
    let now = driver.map(FakeDriver::counts);
    let blocks = |counts: &Option<Counts>| counts.map(|counts| [counts.device_blocks, counts.pinned_blocks]);
    if blocks(&now) != blocks(&counts) && !steps.iter().any(|step| matches!(step, Step::Fault(..))) {
        return fail("device memory is leaked", format!("{counts:?}, then {now:?}"));
    }
    Ok(())
}

/// The messages that the element has posted where this thread has called it, without those of its timer about a frame that leaves
/// meanwhile.
#[derive(Default)]
struct Messages {
    errors: Vec<String>,
    errors_of_timer: Vec<String>,
    warnings: Vec<String>,
}

/// What leaves the element.
enum Out {
    Buffer(gst::Buffer),
    Event(gst::Event),
}

/// What has entered and has not left.
enum Inside {
    Frame(Box<Pending>),
    Event(gst::Event),
}

struct Life<'a> {
    surroundings: &'a Surroundings<'a>,
    element: gst::Element,
    harness: gst_check::Harness,
    bus: gst::Bus,
    /// What the element has posted since the messages were read, and in which thread.
    posted: Arc<Mutex<Vec<(ThreadId, gst::Message)>>>,
    out: Arc<Mutex<Vec<Out>>>,
    downstream: Arc<Mutex<Downstream>>,
    /// The caps that [`Step::Memory`] asks for, and those that downstream takes.
    memory: [&'static str; 2],
    /// Of a life with frames in CUDA memory.
    context: Option<Context>,
    settings: Settings,
    controls: BTreeMap<&'static str, ([&'static str; 2], u64)>,
    is_started: bool,
    /// A flush has dropped the frames before a STREAM_START event.
    is_restarted: bool,
    /// After an error or the end, until the element is stopped: frames are not pushed any more.
    is_over: bool,
    has_failed: bool,
    /// Error messages since the start, without those of refused caps.
    errors: usize,
    has_fault: bool,
    caps: Option<(Caps, VideoInfo)>,
    segment: Option<gst::Segment>,
    out_caps: Option<gst::Caps>,
    has_detector: bool,
    inside: VecDeque<Inside>,
    /// The element's messages about frames that are not judged yet.
    said: VecDeque<Said>,
    /// The timestamps of frames that were dropped because they are late.
    late: VecDeque<Option<gst::ClockTime>>,
    frames: u64,
    /// Frames whose memory the element says that it has leaked. It counts them anew from each start on.
    abandoned: u64,
    judge: Judge,
    memories: Arc<()>,
    totals: Totals,
}

impl<'a> Life<'a> {
    fn new(steps: &[Step], surroundings: &'a Surroundings<'a>, memories: Arc<()>) -> Self {
        let is_cuda =
            |step: &Step| matches!(step, Step::Caps(Caps { is_in_cuda: true, .. }) | Step::Memory(CUDA_MEMORY));
        let context = surroundings.context.as_ref().filter(|_| steps.iter().any(is_cuda)).cloned();
        let element = video::element("");
        context.iter().for_each(|context| element.set_context(&context.shared()));
        let bus = video::bus_of(&element);
        let posted: Arc<Mutex<Vec<_>>> = Arc::default();
        let posted_to_bus = Arc::clone(&posted);
        bus.set_sync_handler(move |_, message| {
            posted_to_bus.lock().unwrap().push((thread::current().id(), message.clone()));
            gst::BusSyncReply::Drop
        });
        let mut harness = gst_check::Harness::with_element(&element, Some("sink"), Some("src"));
        harness.set_drop_buffers(true);
        // The harness has started it.
        element.set_state(gst::State::Null).unwrap();
        let (out, downstream) = (Arc::default(), Arc::default());
        watch(&element, &out, &downstream);
        Self {
            element,
            harness,
            bus,
            posted,
            out,
            downstream,
            memory: ["ANY"; 2],
            surroundings,
            context,
            settings: Settings::default(),
            controls: BTreeMap::new(),
            is_started: false,
            is_restarted: false,
            is_over: false,
            has_failed: false,
            errors: 0,
            has_fault: false,
            caps: None,
            segment: None,
            out_caps: None,
            has_detector: false,
            inside: VecDeque::new(),
            said: VecDeque::new(),
            late: VecDeque::new(),
            frames: 0,
            abandoned: 0,
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

    /// Pushes an event that has to leave in its order.
    fn send(&mut self, event: gst::Event) {
        self.inside.push_back(Inside::Event(event.clone()));
        self.push_event(event);
    }

    fn backend(&self) -> String {
        video::nick(&self.element, "active-backend")
    }

    fn execute(&mut self, step: &Step) -> Result<(), Failure> {
        match step {
            Step::Set(property, value) => return self.set(property, value),
            Step::Control(property, values, from) => self.control(property, *values, *from),
            Step::Downstream(downstream) => {
                *self.downstream.lock().unwrap() = downstream.clone();
                self.harness.push_upstream_event(gst::event::Reconfigure::new());
            }
            Step::Memory(memory) => {
                self.memory[0] = memory;
                let caps = self.caps.as_ref().map(|(caps, _)| caps.clone());
                self.ask_memory(caps.as_ref());
            }
            Step::Fault(function, after, times) => {
                if let Some(driver) = self.surroundings.driver {
                    let status = if function.contains("Alloc") { OUT_OF_MEMORY } else { ILLEGAL_ADDRESS };
                    driver.fail_times(function, *after, *times, status);
                    self.has_fault = true;
                }
            }
            Step::Start if !self.is_started => return self.start(),
            _ if !self.is_started => (),
            Step::Start => (),
            Step::Stop(state) => return self.stop(*state),
            Step::Pause => [gst::State::Paused, gst::State::Playing].into_iter().for_each(|state| {
                self.call(|_, element| element.set_state(state)).ok();
            }),
            Step::Upstream(event) => _ = self.harness.push_upstream_event(event.clone()),
            Step::Clock(jump) => {
                let clock = self.harness.testclock().unwrap();
                clock.set_time(clock.time() + gst::ClockTime::from_nseconds(*jump));
                // The element's timer, which releases frames of a live stream.
                while clock.peek_id_count() > 0 && clock.next_entry_time() <= Some(clock.time()) {
                    clock.process_next_clock_id();
                    self.count("clock times that come");
                }
            }
            Step::Query(query) => return self.query(query),
            Step::Flush => return self.flush(),
            _ if self.has_failed => (),
            Step::Segment(segment) => return self.event(&gst::event::Segment::new(segment)),
            Step::Event(event) => return self.event(event),
            Step::Caps(caps) => return self.caps(caps),
            Step::Frame(frame) => return self.frame(frame),
        }
        self.collect()
    }

    /// Lets downstream take frames of these caps in the memory that was asked for, if the element can give them.
    fn ask_memory(&mut self, caps: Option<&Caps>) {
        let has_cuda = self.context.is_some() && self.backend() == "cuda";
        let is_possible = has_cuda && caps.is_some_and(Caps::may_be_in_cuda);
        let memory = if is_possible { self.memory[0] } else { "ANY" };
        if memory != self.memory[1] {
            self.memory[1] = memory;
            self.harness.set_sink_caps(memory.parse().unwrap());
            self.count("changes of memory downstream");
        }
    }

    /// What the element has posted since the last call.
    fn messages(&mut self) -> Messages {
        let mut messages = Messages::default();
        let posted = std::mem::take(&mut *self.posted.lock().unwrap());
        for (thread, message) in posted {
            let is_own = thread == thread::current().id();
            match message.view() {
                gst::MessageView::Error(error) if is_own => messages.errors.push(error.error().to_string()),
                gst::MessageView::Error(error) => messages.errors_of_timer.push(error.error().to_string()),
                gst::MessageView::Warning(warning) if is_own => messages.warnings.push(warning.error().to_string()),
                gst::MessageView::Qos(qos) => self.late.push_back(qos.get().3),
                gst::MessageView::Element(element) => self.said.push_back(Said::read(element.structure().unwrap())),
                _ => (),
            }
        }
        self.errors += messages.errors.len() + messages.errors_of_timer.len();
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

    fn set(&mut self, property: &'static str, value: &str) -> Result<(), Failure> {
        self.messages();
        let given = settings::value(&self.element, property, value);
        self.call(|_, element| element.set_property_from_value(property, &given));
        let is_fixed = Settings::is_fixed(property) && self.settings.text(property) != value;
        let is_refused = self.is_started && (is_fixed || !Settings::is_usable(property, value));
        if !is_refused {
            self.settings.insert(property, value);
        }
        let warnings = self.messages().warnings;
        if warnings.len() != usize::from(is_refused) {
            return fail("warnings of a property", format!("{property} {value}: {warnings:?}"));
        }
        if !settings::reads_back(&self.element, property, self.settings.text(property)) {
            return fail("a property reads back another value", format!("{property} {value}"));
        }
        self.count(if is_refused { "refused values" } else { "accepted values" });
        Ok(())
    }

    fn control(&mut self, property: &'static str, values: [&'static str; 2], from: u64) {
        let source = gst_controller::InterpolationControlSource::new();
        source.set_mode(gst_controller::InterpolationMode::None);
        for (time, value) in [0, from].into_iter().zip(values) {
            source.set(gst::ClockTime::from_nseconds(time), value.parse().unwrap());
        }
        let binding = gst_controller::DirectControlBinding::new_absolute(&self.element, property, &source);
        self.element.add_control_binding(&binding).unwrap();
        self.controls.insert(property, (values, from));
    }

    /// Reads the controlled properties after a frame: each keeps its value or has that of the frame's stream time.
    fn read_controls(&mut self, stream_time: Option<gst::ClockTime>) -> Result<(), Failure> {
        for (&property, (values, from)) in &self.controls {
            let wanted = stream_time.map(|time| values[usize::from(time.nseconds() >= *from)]);
            let is_now = |value: &str| settings::reads_back(&self.element, property, value);
            match wanted.filter(|wanted| Settings::is_usable(property, wanted) && is_now(wanted)) {
                Some(wanted) => self.settings.insert(property, wanted),
                None if is_now(self.settings.text(property)) => (),
                None => return fail("a controlled property has another value", format!("{property}, not {wanted:?}")),
            }
        }
        Ok(())
    }

    fn start(&mut self) -> Result<(), Failure> {
        self.messages();
        let unusable = self.settings.unusable();
        let mut result = self.call(|_, element| element.set_state(gst::State::Playing));
        if !unusable.is_empty() || result.is_err() {
            let errors = self.messages().errors;
            let is_expected = !unusable.is_empty() || self.settings.text("backend") == "cuda" && self.has_fault;
            if result.is_ok() || !is_expected || errors.len() != 1 {
                return fail("start", format!("{result:?} with unusable {unusable:?}: {errors:?}"));
            }
            self.count("refused starts");
            self.element.set_state(gst::State::Null).ok();
            self.surroundings.driver.inspect(|driver| driver.clear_faults());
            for property in unusable {
                self.set(property, settings::values(property, true)[0])?;
            }
            result = self.element.set_state(gst::State::Playing);
        }
        if result.is_err() {
            return fail("start", format!("{:?}", self.messages().errors));
        }
        self.harness.play();
        (self.is_started, self.is_over, self.has_failed, self.errors) = (true, false, false, 0);
        (self.caps, self.segment, self.out_caps, self.has_detector) = (None, None, None, false);
        self.is_restarted = false;
        self.send(gst::event::StreamStart::new("life"));
        self.count("starts");
        self.collect()
    }

    fn stop(&mut self, state: gst::State) -> Result<(), Failure> {
        if self.call(|_, element| element.set_state(state)).is_err() {
            return fail("the element does not stop", "");
        }
        self.abandoned += self.element.property::<gst::Structure>("stats").get::<u64>("frames-abandoned").unwrap();
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
        let is_start =
            |one: &Inside| matches!(one, Inside::Event(event) if event.type_() == gst::EventType::StreamStart);
        self.is_restarted |= self.inside.iter().any(is_start);
        self.forget();
        // The timer may have posted an error of what is forgotten.
        (self.is_over, self.segment, self.errors) = (self.has_failed, None, 0);
        self.count("flushes");
        Ok(())
    }

    /// Sends an event, if a stream can have it here.
    fn event(&mut self, event: &gst::Event) -> Result<(), Failure> {
        let is_possible = match event.view() {
            gst::EventView::StreamStart(_) => true,
            gst::EventView::Segment(_) => self.caps.is_some() && !self.is_over,
            _ => self.segment.is_some() && !self.is_over,
        };
        if is_possible {
            if let gst::EventView::Segment(segment) = event.view() {
                self.segment = Some(segment.segment().clone());
            }
            // It replaces one that was not pushed yet.
            self.is_restarted &= event.type_() != gst::EventType::StreamStart;
            self.send(event.clone());
            if event.type_() == gst::EventType::Eos {
                self.is_over = true;
                self.count("eos");
                return self.all_are_out();
            }
        }
        self.collect()
    }

    fn caps(&mut self, step: &Caps) -> Result<(), Failure> {
        let is_possible = !step.is_in_cuda || self.context.is_some();
        if self.is_over || !is_possible {
            self.caps = self.caps.take().filter(|_| is_possible);
            return Ok(());
        }
        self.messages();
        self.ask_memory(Some(step));
        let is_on_cpu = self.backend() == "cpu";
        let (caps, pad) = (step.caps(), self.element.static_pad("sink").unwrap());
        // Upstream sends refused caps again before anything else.
        let are_current = (0..2).any(|_| {
            self.push_event(gst::event::Caps::new(&caps));
            pad.current_caps().as_ref() == Some(&caps)
        });
        // Frames wait through the same caps.
        let errors = if self.caps.as_ref().is_some_and(|(before, _)| before == step) {
            let errors = self.messages().errors;
            self.collect()?;
            errors
        } else {
            self.settle()?
        };
        let must_refuse = step.interlace_mode == "fields" || step.is_in_cuda && is_on_cpu;
        // The CPU may have taken over meanwhile. If no pool of CUDA memory can be configured, the base class refuses the caps, which
        // upstream reports when it pushes a frame.
        let may_refuse = must_refuse || self.has_fault && self.context.is_some();
        let is_refused = !are_current || !errors.is_empty();
        if is_refused && !may_refuse || must_refuse && errors.is_empty() || errors.len() > 1 {
            return fail("caps", format!("{caps}: {errors:?}"));
        }
        if is_refused {
            self.errors -= errors.len();
            self.caps = None;
            self.count("refused caps");
            return Ok(());
        }
        self.caps = Some((step.clone(), VideoInfo::from_caps(&caps).unwrap()));
        self.count(format!("interlace-mode={}", step.interlace_mode));
        if self.segment.is_some() {
            return self.collect();
        }
        self.event(&gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()))
    }

    fn query(&mut self, query: &str) -> Result<(), Failure> {
        self.messages();
        let [source, sink] = [self.harness.srcpad().unwrap(), self.harness.sinkpad().unwrap()];
        match query {
            "latency" => _ = sink.peer_query(&mut gst::query::Latency::new()),
            "position" => _ = sink.peer_query(&mut gst::query::Position::new(gst::Format::Time)),
            "caps" => drop(source.peer_query_caps(None)),
            "allocation" => {
                let caps = self.caps.as_ref().map(|(_, info)| info.to_caps().unwrap());
                source.peer_query(&mut gst::query::Allocation::new(caps.as_ref(), true));
            }
            _ => {
                source.peer_query(&mut gst::query::Drain::new());
                return self.all_are_out();
            }
        }
        self.collect()
    }

    fn frame(&mut self, frame: &Frame) -> Result<(), Failure> {
        let (Some((caps, info)), Some(segment)) = (self.caps.clone(), self.segment.clone()) else { return Ok(()) };
        if self.is_over {
            return Ok(());
        }
        self.messages();
        let is_interlaced = match info.interlace_mode() {
            VideoInterlaceMode::Interleaved => true,
            VideoInterlaceMode::Mixed => frame.is_interlaced,
            _ => false,
        };
        let layouts = formats::planes(&info, is_interlaced).unwrap();
        let mut drawn = Picture::new(&layouts, frame.noise);
        frame.alpha.inspect(|samples| drawn.set_alpha(|x, y| samples.at([layouts[0].width, layouts[0].height], x, y)));
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
        let is_on_cpu = self.backend() == "cpu";
        let flow = self.call(|harness, _| harness.push(made));
        self.frames += 1;
        let in_time = segment.downcast_ref::<gst::ClockTime>();
        self.read_controls(in_time.and_then(|segment| segment.to_stream_time(frame.pts)))?;
        let moment = Moment {
            settings: self.settings.clone(),
            is_in_cuda: caps.is_in_cuda,
            size: [layouts[0].width, layouts[0].height],
            has_detector: self.has_detector,
            frame: frame.clone(),
            info,
            segment,
            alpha,
        };
        let demand = moment.demand(is_on_cpu);
        let is_frame = matches!(demand, Demand::Blur);
        let has_boxes = !is_frame && moment.has_boxes();
        let pending = Pending { number: self.frames, moment, demand, picture, said: None, is_readable, shared };
        self.judge.note(&pending);
        let (rate, is_field) = (pending.info.fps(), pending.is_field());
        let segment_rate = pending.segment.rate().abs();
        let Messages { mut errors, errors_of_timer, .. } = self.messages();
        errors.extend(errors_of_timer);
        self.inside.push_back(Inside::Frame(Box::new(pending)));
        if flow.is_err() {
            return self.failed(&flow, &errors);
        }
        self.has_detector |= has_boxes;
        self.collect()?;
        // A frame may fail that the timer releases meanwhile.
        if self.has_failed || errors.len() == 1 && self.next_may_fail() && self.fails_inside() {
            return Ok(());
        }
        if !errors.is_empty() {
            return fail("an error message, but no error", format!("{errors:?}"));
        }
        let look_ahead = if is_frame { 0 } else { self.settings.number::<u64>("look-ahead") };
        let may_wait = self.settings.number::<usize>("max-in-flight") - 1 + look_ahead as usize;
        self.skip_dropped(may_wait)?;
        let frames = self.frames_in().count();
        if frames > may_wait {
            return fail("a frame is held back", format!("{frames} instead of {may_wait}"));
        }
        if frames > 0 && !is_frame {
            self.count("frames that wait");
        }
        if self.backend() != "cuda" && rate.numer() > 0 {
            // Longer where frames come more slowly than the caps say, or later than upstream does.
            let buffers = f64::from(rate.numer()) * if is_field { 2.0 } else { 1.0 };
            let least = (look_ahead * 1_000_000_000) as f64 * f64::from(rate.denom()) / buffers / segment_rate;
            let reported = self.harness.query_latency().unwrap_or_default().nseconds() as f64;
            // The time of a frame is rounded.
            if reported < least - look_ahead as f64 || look_ahead == 0 && reported > 0.0 {
                return fail("latency", format!("{reported:?} instead of {least}"));
            }
        }
        Ok(())
    }

    /// Forgets what has entered: it is dropped.
    fn forget(&mut self) {
        self.inside.clear();
        self.said.clear();
        self.late.clear();
    }

    /// Streaming has ended with an error of this kind.
    fn give_up(&mut self, kind: &str) {
        self.count(kind);
        if let Some(Inside::Frame(pending)) = self.inside.front()
            && matches!(pending.demand, Demand::NoAlpha(_))
        {
            let is_in_cuda = pending.is_in_cuda;
            self.count(if is_in_cuda { "alpha channels in CUDA memory" } else { "no alpha channel" });
        }
        self.forget();
        (self.is_over, self.has_failed) = (true, true);
    }

    /// Checks that streaming ended with one error, for a reason.
    fn failed(&mut self, flow: &Result<gst::FlowSuccess, gst::FlowError>, errors: &[String]) -> Result<(), Failure> {
        self.collect()?;
        if self.has_failed {
            return Ok(());
        }
        let is_device = self.may_fail();
        // An event or a query before the frame may have found the failure.
        let is_earlier = errors.is_empty() && self.errors > 0;
        // If no pool of CUDA memory can be configured, the base class refuses the caps, which upstream reports.
        let is_refused = is_device && self.context.is_some() && *flow == Err(gst::FlowError::NotNegotiated);
        let is_posted = *flow == Err(gst::FlowError::Error) && (errors.len() == 1 || is_earlier);
        if !is_device && !self.next_may_fail() || !is_posted && !is_refused {
            return fail("an error for no reason", format!("{flow:?}: {errors:?}"));
        }
        let is_inside = matches!(self.inside.back(), Some(Inside::Frame(last)) if last.number == self.frames);
        if is_refused && self.errors == 0 && is_inside {
            // It has not entered. Those before it have, and leave; upstream pushes no more.
            self.inside.pop_back();
            self.is_over = true;
            self.count("refused frames");
            return Ok(());
        }
        self.give_up(if is_device { "device errors" } else { "frame errors" });
        Ok(())
    }

    /// Whether an error message says that a frame inside has failed: streaming has ended then.
    fn fails_inside(&mut self) -> bool {
        let fails = self.errors > 0 && (self.may_fail() || self.next_may_fail());
        if fails {
            self.give_up("errors of a drain");
        }
        fails
    }

    /// Whether the next frame to leave, or one that was to be blurred at once, may fail by itself.
    fn next_may_fail(&self) -> bool {
        let may_fail = |pending: &Pending| {
            use Layout::{NegativeStride, Overlapping, Short, ShortMeta};
            let is_bad = matches!(pending.frame.layout, Short(_) | ShortMeta(_) | NegativeStride | Overlapping);
            is_bad || matches!(pending.demand, Demand::Error | Demand::NoAlpha(_))
        };
        let first = self.frames_in().find(|pending| !matches!(pending.demand, Demand::Drop));
        let last = self.frames_in().last().filter(|last| matches!(last.demand, Demand::Blur));
        first.is_some_and(may_fail) || last.is_some_and(may_fail)
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
        let had_errors = self.errors > 0;
        let Messages { mut errors, errors_of_timer, .. } = self.messages();
        errors.extend(errors_of_timer);
        let had_failed = self.has_failed;
        self.collect()?;
        self.skip_dropped(0)?;
        // The timer may have failed before, and nothing but an error ends with frames inside.
        if !self.inside.is_empty() {
            self.fails_inside();
        }
        // That of the frame is the first, unless the timer has posted it before.
        if self.has_failed && !had_failed && !had_errors && !errors.is_empty() {
            errors.remove(0);
        }
        match self.inside.front() {
            Some(Inside::Frame(pending)) => fail("a frame is lost", format!("frame {}", pending.number)),
            Some(Inside::Event(event)) => fail("an event is lost", format!("{event:?}")),
            None => Ok(errors),
        }
    }

    fn frames_in(&self) -> impl Iterator<Item = &Pending> {
        self.inside.iter().filter_map(|one| if let Inside::Frame(frame) = one { Some(&**frame) } else { None })
    }

    /// Removes the next frame if a message says that it was late.
    fn skip_late(&mut self) -> bool {
        let is_late =
            matches!(self.inside.front(), Some(Inside::Frame(next)) if self.late.front() == Some(&next.frame.pts));
        if is_late {
            self.late.pop_front();
            self.inside.pop_front();
            self.count("late frames");
        }
        is_late
    }

    /// Removes the next frames as long as they were late, or are to be dropped and more than so many are inside.
    fn skip_dropped(&mut self, may_wait: usize) -> Result<(), Failure> {
        loop {
            if self.skip_late() {
                continue;
            }
            let Some(Inside::Frame(pending)) = self.inside.front() else { break };
            if !matches!(pending.demand, Demand::Drop) || self.frames_in().count() <= may_wait {
                break;
            }
            if pending.settings.posts_messages() {
                let said = self.said.pop_front();
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
        out.into_iter().try_for_each(|out| match out {
            Out::Event(event) => self.event_leaves(&event),
            Out::Buffer(output) => self.frame_leaves(&output),
        })?;
        while self.skip_late() {}
        Ok(())
    }

    fn event_leaves(&mut self, event: &gst::Event) -> Result<(), Failure> {
        if let gst::EventView::Caps(caps) = event.view() {
            self.out_caps = Some(caps.caps_owned());
            return Ok(());
        }
        let is_start = event.type_() == gst::EventType::StreamStart;
        // After an error those that waited are pushed.
        if self.has_failed || is_start && std::mem::take(&mut self.is_restarted) {
            return Ok(());
        }
        self.skip_dropped(0)?;
        let next = self.inside.front();
        if matches!(next, Some(Inside::Event(expected)) if expected.seqnum() == event.seqnum()) {
            self.inside.pop_front();
            self.count("events");
            return Ok(());
        }
        // It follows a frame that failed when frames were drained.
        if matches!(next, Some(Inside::Frame(_))) && self.fails_inside() {
            return Ok(());
        }
        fail("an event at another place", format!("{event:?}"))
    }

    fn frame_leaves(&mut self, output: &gst::Buffer) -> Result<(), Failure> {
        if self.has_failed {
            return fail("a frame is pushed after an error", "");
        }
        while matches!(self.inside.front(), Some(Inside::Frame(next)) if next.number != output.offset()) {
            // One at a time: a late frame of the next segment may have the timestamp of this one.
            if self.skip_late() {
                continue;
            }
            let before = self.inside.len();
            self.skip_dropped(0)?;
            if self.inside.len() == before {
                break;
            }
        }
        let mut pending = match self.inside.pop_front() {
            Some(Inside::Frame(pending)) => pending,
            Some(Inside::Event(event)) => return fail("a frame before an event", format!("{output:?} {event:?}")),
            None => return fail("a frame too many", format!("{output:?}")),
        };
        let number = format!("frame {}", pending.number);
        if let Demand::NoAlpha(_) = pending.demand {
            // The CPU may have taken over meanwhile.
            pending.demand = pending.moment.demand(self.backend() == "cpu");
        }
        if let Demand::Cover(_) | Demand::NoAlpha(_) = pending.demand
            && pending.settings.posts_messages()
        {
            pending.said = self.said.pop_front();
            let timestamp = pending.frame.pts.map_or(u64::MAX, gst::ClockTime::nseconds);
            if pending.said.as_ref().map(|said| said.timestamp) != Some(timestamp) {
                return fail("messages of a frame", format!("{:?}", pending.said));
            }
        }
        pending.demand = match std::mem::replace(&mut pending.demand, Demand::Blur) {
            Demand::Error => return fail("on-missing=error passed a frame", number),
            Demand::NoAlpha(must) => {
                let is_whole = |said: &Said| said.is_whole(&pending.settings, &must);
                if !must.may_be_whole || !pending.said.as_ref().is_none_or(is_whole) {
                    return fail("a frame without an alpha channel is pushed", number);
                }
                Demand::Cover(must)
            }
            demand => demand,
        };
        if output.offset() != pending.number {
            return fail("another frame", format!("{} instead of {number}", output.offset()));
        }
        let is_of_caps = self.out_caps.as_ref().and_then(|caps| VideoInfo::from_caps(caps).ok());
        if is_of_caps.as_ref() != Some(&pending.info) {
            return fail("a frame with other caps", format!("{:?}", self.out_caps));
        }
        check_metadata(&pending.frame, output)?;
        if !pending.is_readable {
            let is_partial = pending.settings.text("planes") != "luma+chroma+alpha";
            let may_pass = match &pending.demand {
                Demand::Cover(must) => must.is_identity || !must.mask.contains(&true),
                _ => pending.settings.text("sigma") == "0" || is_partial,
            };
            return if may_pass { Ok(()) } else { fail("a frame that cannot be read is pushed", number) };
        }
        let layouts = &pending.picture.planes;
        if let Some(shared) = &pending.shared
            && self.exempt(|| read(&pending.info, layouts, shared)).is_none_or(|now| now.bytes != pending.picture.bytes)
        {
            return fail("memory of somebody else is written", number);
        }
        let Some(got) = self.exempt(|| read(&pending.info, layouts, output)) else {
            return fail("unreadable output", number);
        };
        let covered = self.judge.check(&pending, &got)?;
        self.count_covered(&pending, &covered);
        Ok(())
    }

    /// Counts what a frame shows.
    fn count_covered(&mut self, pending: &Pending, covered: &str) {
        let (mode, cover) = (pending.settings.text("region-mode"), pending.settings.text("cover"));
        self.count(format!("frames on {}", self.backend()));
        if covered.starts_with("alpha") && pending.is_field() {
            self.count("alpha channels of a field");
        }
        if covered.starts_with("alpha") && pending.picture.planes[0].depth > 8 {
            self.count("alpha channels of deep formats");
        }
        if self.memory[1] != "ANY" && (self.memory[1] == CUDA_MEMORY) != pending.is_in_cuda {
            self.count(format!("frames of region-mode={mode} to other memory"));
        }
        if pending.is_in_cuda {
            let is_soft = covered.starts_with("shape=");
            self.count(if is_soft { "soft covers in CUDA memory" } else { "frames in CUDA memory" });
        }
        let cover = if mode == "frame" { String::new() } else { format!("cover={cover} ") };
        self.count(format!("region-mode={mode} {cover}{covered}"));
    }

    fn end(&mut self) -> Result<(), Failure> {
        if self.is_started {
            if !self.has_failed {
                self.event(&gst::event::Eos::new())?;
            }
            self.stop(gst::State::Null)?;
        }
        *self.totals.entry("frames".to_owned()).or_default() += self.frames;
        self.count("lives");
        Ok(())
    }
}

/// Frames keep their timestamps, flags and metas.
fn check_metadata(frame: &Frame, output: &gst::BufferRef) -> Result<(), Failure> {
    if (output.pts(), output.duration()) != (frame.pts, frame.duration) {
        return fail("other timestamps", format!("{output:?}"));
    }
    let interlaced = output.video_flags().contains(gst_video::VideoBufferFlags::INTERLACED);
    if !output.flags().contains(frame.flags) || interlaced != frame.is_interlaced {
        return fail("other flags", format!("{output:?}, but {:?}", frame.flags));
    }
    let rects = output.iter_meta::<VideoRegionOfInterestMeta>().map(|meta| meta.rect());
    if !rects.eq(frame.boxes.iter().map(|roi| roi.rect.into())) {
        return fail("other metas", format!("{output:?}"));
    }
    Ok(())
}

/// Records what the element pushes, and answers its allocation queries.
fn watch(element: &gst::Element, out: &Arc<Mutex<Vec<Out>>>, downstream: &Arc<Mutex<Downstream>>) {
    let pad = element.static_pad("src").unwrap();
    let out = Arc::clone(out);
    pad.add_probe(gst::PadProbeType::BUFFER | gst::PadProbeType::EVENT_DOWNSTREAM, move |_, probe| {
        let left = match &probe.data {
            Some(gst::PadProbeData::Buffer(buffer)) => Some(Out::Buffer(buffer.clone())),
            Some(gst::PadProbeData::Event(event)) => Some(Out::Event(event.clone())),
            _ => None,
        };
        out.lock().unwrap().extend(left);
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
