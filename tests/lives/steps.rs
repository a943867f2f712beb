//! The steps of a life as plain data, and how choices make them: those of a seed, or plainer ones.

use std::sync::LazyLock;

use gst_video::VideoFormat;

use crate::common::Noise;
use crate::common::soft_oracle::Form;
use crate::common::video;
use crate::settings::{LIVE, PROPERTIES, Zone, values};

/// One thing that an application or a neighbour does with the element.
#[derive(Debug)]
pub enum Step {
    Set(&'static str, String),
    /// A controlled property: its values from 0 and from a stream time (in ns) on.
    Control(&'static str, [&'static str; 2], u64),
    Downstream(Downstream),
    /// Downstream takes only frames of these caps from the next frame on.
    Memory(&'static str),
    Start,
    Stop(gst::State),
    Pause,
    Caps(Caps),
    Frame(Frame),
    Flush,
    Segment(gst::Segment),
    /// A serialized event of any other kind.
    Event(gst::Event),
    Upstream(gst::Event),
    /// The pipeline's clock jumps by so many ns.
    Clock(u64),
    Query(&'static str),
    /// After so many more calls, a driver function fails so many times.
    Fault(&'static str, i32, i32),
}

/// How downstream answers allocation queries: whether it reads GstVideoMeta, and by how many samples its pool pads each side.
#[derive(Debug, Clone, Default)]
pub struct Downstream {
    pub takes_video_meta: bool,
    pub pool_padding: Option<u32>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Caps {
    pub format: VideoFormat,
    pub size: [u32; 2],
    pub is_in_cuda: bool,
    pub interlace_mode: &'static str,
    /// The fields of caps that say how many frames there are in a second.
    pub rate: &'static str,
}

#[derive(Debug, Clone)]
pub struct Frame {
    pub noise: u64,
    pub layout: Layout,
    /// Into how many memories the bytes are divided.
    pub memories: usize,
    pub owner: Owner,
    pub flags: gst::BufferFlags,
    /// What interlace-mode=mixed looks at.
    pub is_interlaced: bool,
    pub pts: Option<gst::ClockTime>,
    pub duration: Option<gst::ClockTime>,
    pub boxes: Vec<RoiBox>,
    /// The upper 8 bits of the alpha channel, if the format has one; without it they are noise too.
    pub alpha: Option<Samples>,
}

/// Where the planes are in the buffer.
#[derive(Debug, Clone, PartialEq)]
pub enum Layout {
    /// Where the caps say, and so many more bytes.
    Caps(usize),
    /// By a GstVideoMeta, with so many more bytes in each row and before each plane.
    Padded(i32, usize),
    /// Too short by so many bytes, without and with a GstVideoMeta.
    Short(usize),
    ShortMeta(usize),
    NegativeStride,
    Overlapping,
}

/// Who else has the buffer or its memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Owner {
    Nobody,
    OfBuffer,
    OfMemory,
    ReadOnly,
}

/// A GstVideoRegionOfInterestMeta.
#[derive(Debug, Clone)]
pub struct RoiBox {
    pub rect: [u32; 4],
    pub label: Option<&'static str>,
    pub confidence: Option<f64>,
    pub id: Option<i32>,
    pub mask: Option<MaskParam>,
}

/// The param `mask` of a GstVideoRegionOfInterestMeta.
#[derive(Debug, Clone, PartialEq)]
pub struct MaskParam {
    /// Of the caps; none is without caps.
    pub format: Option<&'static str>,
    pub size: [u32; 2],
    /// By how much rows are longer than GStreamer lays them out, which a GstVideoMeta says; `None` without it.
    pub padding: Option<i32>,
    /// Whether that meta has another size.
    pub is_of_other_size: bool,
    /// Bytes that the buffer lacks at its end.
    pub missing: usize,
    pub samples: Samples,
}

/// The samples of a mask, or of an alpha channel.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Samples {
    All(u8),
    /// Of any value, or just inside and just outside.
    Noise(u64),
    Edge(u64),
    /// A disc on nothing.
    Disc,
}

impl Samples {
    /// The sample of a mask of this size in a column and a row.
    pub fn at(self, size: [u32; 2], x: u32, y: u32) -> u8 {
        let noise = |seed: u64| Noise(seed ^ (u64::from(y) << 32 | u64::from(x))).next();
        match self {
            Self::All(value) => value,
            Self::Noise(seed) => noise(seed) as u8,
            Self::Edge(seed) => 127 + (noise(seed) & 1) as u8,
            Self::Disc => {
                let [dx, dy] =
                    [(x, size[0]), (y, size[1])].map(|(at, side)| (2.0 * f64::from(at) + 1.0) / f64::from(side) - 1.0);
                if dx * dx + dy * dy <= 0.8 { 255 } else { 0 }
            }
        }
    }
}

impl MaskParam {
    /// Bytes from one row to the next.
    pub fn stride(&self) -> i32 {
        (self.size[0].next_multiple_of(4) as i32) + self.padding.unwrap_or(0)
    }

    pub fn sample(&self, x: u32, y: u32) -> u8 {
        self.samples.at(self.size, x, y)
    }

    /// The mask, if it is as docs/HIDING.md says, so that it can be read, and any of it is the object.
    pub fn form(&self) -> Option<Form> {
        let [columns, rows] = self.size;
        let has_size = self.size.iter().all(|side| (1..=4096).contains(side));
        let has_rows = self.stride() >= columns.cast_signed() && self.missing == 0;
        let is_readable = self.format == Some("GRAY8") && has_size && has_rows;
        if !is_readable || self.is_of_other_size && self.padding.is_some() {
            return None;
        }
        let samples: Vec<u8> = (0..rows).flat_map(|y| (0..columns).map(move |x| self.sample(x, y))).collect();
        samples.iter().any(|sample| *sample >= 128).then_some(Form::Mask { columns, rows, samples })
    }
}

/// Frames of any format in CUDA memory.
pub const CUDA_MEMORY: &str = "video/x-raw(memory:CUDAMemory)";

/// What a life runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    Cpu,
    /// The fake driver, whose functions can fail.
    FakeCuda,
    Gpu,
}

/// Driver functions that a frame or a start calls.
const FUNCTIONS: &str = "cuMemAlloc_v2 cuMemHostAlloc cuMemsetD8Async cuCtxPushCurrent_v2 cuMemcpy2DAsync_v2 \
    cuMemcpyHtoDAsync_v2 cuLaunchKernel cuEventRecord cuEventQuery";

/// The plainest first.
fn sorted(mut formats: Vec<VideoFormat>) -> Vec<VideoFormat> {
    formats.sort_by_key(|format| ![VideoFormat::Gray8, VideoFormat::Nv12, VideoFormat::Rgba].contains(format));
    formats
}

static FORMATS: LazyLock<Vec<VideoFormat>> = LazyLock::new(|| sorted(video::formats()));

static CUDA_FORMATS: LazyLock<Vec<VideoFormat>> = LazyLock::new(|| {
    // In GStreamer 1.24.0 to 1.24.3 their last plane begins in the middle of a row with every even height.
    let is_wrong = |format: &VideoFormat| {
        [(1, 24), (1, 25)].contains(&(gst::version().0, gst::version().1)) && is_planar_420(*format)
    };
    sorted(video::cuda_formats()).into_iter().filter(|format| !is_wrong(format)).collect()
});

static ALPHA_FORMATS: LazyLock<Vec<VideoFormat>> =
    LazyLock::new(|| FORMATS.iter().copied().filter(|format| has_alpha(*format)).collect());

fn is_planar_420(format: VideoFormat) -> bool {
    format.to_str().starts_with("I420") || format == VideoFormat::Yv12
}

/// Whether a format has an alpha channel.
pub fn has_alpha(format: VideoFormat) -> bool {
    // GStreamer's flag is missing at AV12, Y410 and others.
    gst_video::VideoFormatInfo::from_format(format).n_components() == 4
}

const FRAME_NS: u64 = video::FRAME.nseconds();

impl Caps {
    /// Whether GStreamer has such frames in CUDA memory, and transfers all of their rows.
    pub fn may_be_in_cuda(&self) -> bool {
        // With an odd height, in GStreamer 1.22 the last of three planes begins half a row late, and is not transferred; in 1.26 the
        // memory of NV21 ends half a row too early.
        let is_wrong = is_planar_420(self.format) || self.format == VideoFormat::Nv21;
        let has_rows = !is_wrong || self.size[1].is_multiple_of(2);
        CUDA_FORMATS.contains(&self.format) && has_rows && ["progressive", "mixed"].contains(&self.interlace_mode)
    }

    pub fn caps(&self) -> gst::Caps {
        let Self { format, size: [width, height], is_in_cuda, interlace_mode, rate } = self;
        let feature = match *interlace_mode {
            _ if *is_in_cuda => "(memory:CUDAMemory)",
            "alternate" => "(format:Interlaced)",
            _ => "",
        };
        let size = format!("width={width},height={height}");
        let caps = format!("video/x-raw{feature},format={format},{size},interlace-mode={interlace_mode},{rate}");
        caps.parse().expect(&caps)
    }
}

/// A life as the choices behind each of its steps. Those that are missing are 0, the plainest.
pub type Life = Vec<Vec<u64>>;

/// What a first choice of this value makes; others are in [`Writer::write`].
const SET: u64 = 58;
const CONTROL: u64 = 72;
const CAPS: u64 = 73;
const DOWNSTREAM: u64 = 90;
const EOS: u64 = 94;

/// The life of this seed.
pub fn life(seed: u64, machine: Machine) -> Life {
    let mut writer = Writer::new(machine, Some(Noise(seed ^ ((machine as u64) << 40))));
    let index = |property: &str| PROPERTIES.iter().position(|(name, ..)| *name == property).unwrap() as u64;
    // The choices of [`Writer::set`]: among all properties this one, and not a value that is unusable.
    let usable = |property: &str| vec![SET, 99, index(property), 0];
    let mut start: Life =
        ["region-mode", "region-sources", "post-messages", "cover", "shape", "max-in-flight", "look-ahead"]
            .map(usable)
            .into();
    start.extend((machine != Machine::Cpu).then(|| usable("backend")));
    start.extend(writer.percent(40).then(|| usable("zones")));
    start.extend((0..writer.below(8)).map(|_| vec![SET]));
    start.extend(writer.percent(15).then(|| vec![CONTROL]));
    start.extend([vec![DOWNSTREAM], vec![CAPS]]);
    start.extend((0..5 + writer.below(25)).map(|_| Vec::new()));
    start.extend(writer.percent(50).then(|| vec![EOS]));
    start.into_iter().map(|choices| writer.write(choices)).collect()
}

/// The steps that choices make.
pub fn steps(life: &[Vec<u64>], machine: Machine) -> Vec<Step> {
    let mut writer = Writer::new(machine, None);
    life.iter().for_each(|choices| _ = writer.write(choices.clone()));
    writer.steps
}

/// Makes steps from choices, and choices from noise.
struct Writer {
    machine: Machine,
    noise: Option<Noise>,
    /// Those of a step, and how many of them are made use of.
    choices: Vec<u64>,
    used: usize,
    steps: Vec<Step>,
    is_started: bool,
    size: [u32; 2],
    /// The time of the next frame.
    clock: u64,
    /// Of the frame before.
    boxes: Vec<RoiBox>,
    /// Whether region-sources names alpha.
    names_alpha: bool,
}

impl Writer {
    fn new(machine: Machine, noise: Option<Noise>) -> Self {
        let (choices, steps, boxes) = (Vec::new(), Vec::new(), Vec::new());
        let (is_started, size, names_alpha) = (false, [1, 1], false);
        Self { machine, noise, choices, used: 0, steps, is_started, size, clock: 0, boxes, names_alpha }
    }

    fn below(&mut self, end: u64) -> u64 {
        if self.used == self.choices.len() {
            self.choices.push(self.noise.as_mut().map_or(0, |noise| (noise.next() >> 16) % end));
        }
        self.used += 1;
        self.choices[self.used - 1] % end
    }

    /// True in so many of a hundred cases.
    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) >= 100 - percent
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }

    /// Writes the step of these choices, or two, and returns all choices behind it.
    fn write(&mut self, choices: Vec<u64>) -> Vec<u64> {
        (self.choices, self.used) = (choices, 0);
        let step = match self.below(112) {
            SET..CONTROL => self.set(8),
            CONTROL => self.control(),
            CAPS..76 => self.caps(),
            76..=82 => self.event(),
            83 | 84 => Step::Flush,
            85 => Step::Upstream(gst::event::Reconfigure::new()),
            86 => {
                let late = self.pick(&[-1, 1, 3]) * FRAME_NS as i64;
                let event = gst::event::Qos::builder(gst::QOSType::Underflow, 1.5, late);
                Step::Upstream(event.timestamp(video::FRAME * 2).build())
            }
            87 => {
                let (start, stop) = (gst::ClockTime::SECOND, gst::ClockTime::NONE);
                let (set, none) = (gst::SeekType::Set, gst::SeekType::None);
                Step::Upstream(gst::event::Seek::new(1.0, gst::SeekFlags::FLUSH, set, start, none, stop))
            }
            88 | 89 => Step::Query(self.pick(&["latency", "position", "allocation", "caps", "drain"])),
            DOWNSTREAM..93 => Step::Downstream(Downstream {
                takes_video_meta: self.percent(60),
                pool_padding: self.percent(35).then(|| 4 * self.below(6) as u32),
            }),
            93 => Step::Pause,
            EOS => Step::Event(gst::event::Eos::new()),
            95..=98 => Step::Clock(self.pick(&[FRAME_NS, 10 * FRAME_NS, 3_600_000_000_000])),
            99 | 100 => {
                let stop = Step::Stop(self.pick(&[gst::State::Null, gst::State::Ready]));
                self.steps.push(stop);
                self.is_started = false;
                if self.percent(30) {
                    let set = self.set(50);
                    self.steps.push(set);
                }
                self.caps()
            }
            101..=105 if self.machine != Machine::Cpu => {
                Step::Memory(self.pick(&["ANY", CUDA_MEMORY, CUDA_MEMORY, "video/x-raw"]))
            }
            106..=108 if self.machine == Machine::FakeCuda => {
                let functions: Vec<&str> = FUNCTIONS.split(' ').collect();
                Step::Fault(self.pick(&functions), self.below(6) as i32, self.pick(&[1, i32::MAX]))
            }
            _ => Step::Frame(self.frame()),
        };
        self.steps.push(step);
        std::mem::take(&mut self.choices)
    }

    /// A property, of so many of a hundred to a value that is not usable.
    fn set(&mut self, unusable: u64) -> Step {
        let count = if self.percent(10) { PROPERTIES.len() } else { LIVE };
        let (property, ..) = PROPERTIES[self.below(count as u64) as usize];
        let is_usable = !self.percent(unusable) || values(property, false).is_empty();
        let value = match property {
            "zones" if is_usable => {
                let zones: Vec<String> = (0..self.below(4)).map(|_| self.zone().text()).collect();
                format!("<{}>", zones.join(","))
            }
            "backend" if self.machine == Machine::Cpu => "cpu".to_owned(),
            "region-sources" => {
                let names_alpha = self.percent(if self.names_alpha { 80 } else { 10 });
                let with_alpha = ["alpha", "alpha", "zones+alpha", "roi+alpha", "zones+roi+alpha"];
                self.names_alpha = names_alpha;
                let without = values(property, true);
                self.pick(if names_alpha { &with_alpha[..] } else { &without }).to_owned()
            }
            _ => self.pick(&values(property, is_usable)).to_owned(),
        };
        Step::Set(property, value)
    }

    fn control(&mut self) -> Step {
        let property = self.pick(&["sigma", "strength", "expand", "feather", "grow"]);
        // Whole numbers of their types.
        let values = match property {
            "feather" => ["0", "1", "8", "257"],
            "grow" => ["0", "2", "-2", "-65"],
            _ => ["0", "0.5", "1.5", "-1"],
        };
        Step::Control(property, [self.pick(&values), self.pick(&values)], self.below(10) * FRAME_NS)
    }

    fn zone(&mut self) -> Zone {
        let mut part = |least: f64| (self.below(1001) as f64 / 1000.0).max(least);
        let [x, y, width, height] = [0.0, 0.0, 0.001, 0.001].map(&mut part);
        let start = self.percent(25).then(|| self.below(12) * FRAME_NS / 2);
        let end = self.percent(25).then(|| start.unwrap_or(0) + (1 + self.below(12)) * FRAME_NS / 2);
        let [start, end] = [start, end].map(|time| time.map(|time| time as f64 / 1e9));
        Zone { x, y, width, height, start, end }
    }

    /// Caps, after a start where it is stopped.
    fn caps(&mut self) -> Step {
        if !std::mem::replace(&mut self.is_started, true) {
            self.steps.push(Step::Start);
        }
        let mut size = match self.below(24) {
            0..17 => [1 + self.below(100), 1 + self.below(70)],
            17..20 => [1, 1],
            20..22 => [1 + self.below(5), 1 + self.below(5)],
            // Weights are on a grid of two or four samples.
            22 => [513 + self.below(700), 1 + self.below(7)],
            _ => [1 + self.below(7), 513 + self.below(700)],
        }
        .map(|side| side as u32);
        let modes = ["progressive", "alternate", "alternate", "interleaved", "mixed"];
        let mut interlace_mode = modes[self.below(12).saturating_sub(7) as usize];
        if self.percent(1) {
            interlace_mode = "fields";
        }
        // The first one is about that of most frames.
        let rates = [
            "framerate=25/1",
            "framerate=30000/1001",
            "framerate=50/1",
            "framerate=90000/1",
            "framerate=1/1",
            "framerate=0/1",
            "framerate=0/1,max-framerate=60/1",
        ];
        let rate = rates[self.below(13).saturating_sub(6) as usize];
        let is_alpha = self.names_alpha && self.percent(85);
        let is_in_cuda = self.machine != Machine::Cpu && self.percent(35) && !CUDA_FORMATS.is_empty() && !is_alpha;
        let format = self.pick(match [is_alpha, is_in_cuda] {
            [true, _] => &ALPHA_FORMATS,
            [_, true] => &CUDA_FORMATS,
            _ => &FORMATS,
        });
        if is_in_cuda && interlace_mode != "mixed" {
            interlace_mode = modes[0];
        }
        let caps = Caps { format, size, is_in_cuda, interlace_mode, rate };
        if is_in_cuda && !caps.may_be_in_cuda() {
            size[1] += 1;
        }
        self.size = size;
        Step::Caps(Caps { size, ..caps })
    }

    fn event(&mut self) -> Step {
        match self.below(9) {
            0..2 => Step::Event(gst::event::CustomDownstream::new(gst::Structure::new_empty("life"))),
            2 => Step::Event(gst::event::Gap::builder(gst::ClockTime::ZERO).build()),
            3 => Step::Event(gst::event::StreamStart::new("again")),
            _ if self.percent(8) => Step::Segment(gst::FormattedSegment::<gst::format::Bytes>::new().upcast()),
            _ => {
                let [first, third] = [gst::ClockTime::ZERO, video::FRAME * 3];
                let start = self.pick(&[first, first, third]);
                let rate = self.pick(&[1.0, 1.0, 2.0, -1.0]);
                let mut segment = gst::FormattedSegment::<gst::ClockTime>::new();
                segment.set_rate(rate);
                segment.set_applied_rate(self.pick(&[1.0, 1.0, 1.0, 2.0, 0.5, -1.0, -2.0]));
                segment.set_start(start);
                if self.percent(30) || rate < 0.0 {
                    segment.set_stop(start + video::FRAME * self.pick(&[4, 8, 100]));
                }
                segment.set_time(self.pick(&[first, first, video::FRAME * 5]));
                Step::Segment(segment.upcast())
            }
        }
    }

    fn frame(&mut self) -> Frame {
        let layout = match self.below(40) {
            0..19 => Layout::Caps(0),
            19..32 => Layout::Padded(self.below(40) as i32, self.below(40) as usize),
            32..36 => Layout::Caps(self.below(200) as usize),
            36 => Layout::Short(1 + self.below(200) as usize),
            37 => Layout::ShortMeta(1 + self.below(200) as usize),
            38 => Layout::NegativeStride,
            _ => Layout::Overlapping,
        };
        let mut flags = gst::BufferFlags::empty();
        for flag in [gst::BufferFlags::DISCONT, gst::BufferFlags::GAP, gst::BufferFlags::CORRUPTED] {
            flags.set(flag, self.percent(6));
        }
        let pts = match self.below(16) {
            0..12 => Some(self.clock),
            12 => Some(self.clock.saturating_sub(FRAME_NS)),
            13 => Some(self.clock.saturating_sub(self.below(20) * FRAME_NS)),
            14 => Some(self.clock + self.below(20) * FRAME_NS),
            _ => None,
        };
        self.clock += FRAME_NS;
        let [frame, none] = [Some(video::FRAME), None];
        let owners = [Owner::Nobody, Owner::OfBuffer, Owner::OfMemory, Owner::ReadOnly];
        Frame {
            layout,
            memories: if self.percent(15) { 2 + self.below(3) as usize } else { 1 },
            owner: owners[self.below(7).saturating_sub(3) as usize],
            flags,
            is_interlaced: self.percent(50),
            pts: pts.map(gst::ClockTime::from_nseconds),
            duration: self.pick(&[frame, frame, frame, none, Some(gst::ClockTime::ZERO), Some(video::FRAME * 5)]),
            boxes: self.boxes(),
            alpha: (self.names_alpha && self.percent(85)).then(|| self.samples()),
            noise: self.below(1 << 32),
        }
    }

    /// The boxes of the next frame: others, or those of the frame before with the same masks, other ones, or none.
    fn boxes(&mut self) -> Vec<RoiBox> {
        if self.percent(30) {
            let mut boxes = std::mem::take(&mut self.boxes);
            for roi in &mut boxes {
                match self.below(4) {
                    0 => roi.mask = None,
                    1 => roi.mask = Some(self.mask()),
                    _ => (),
                }
            }
            self.boxes = boxes;
        } else {
            self.boxes = (0..self.pick(&[0, 0, 1, 1, 2, 4])).map(|_| self.roi_box()).collect();
        }
        self.boxes.clone()
    }

    fn roi_box(&mut self) -> RoiBox {
        let [width, height] = self.size.map(u64::from);
        let rect = match self.below(10) {
            0..7 => [self.below(width), self.below(height), 1 + self.below(width), 1 + self.below(height)],
            7 => [self.below(2 * width), self.below(2 * height), 3 * width, self.below(3 * height)],
            8 => [u32::MAX - 4, u32::MAX - 2, 9, 7].map(u64::from),
            _ => [0; 4].map(|_| u64::from(self.pick(&[0, 1, 5, 1 << 31, u32::MAX - 3, u32::MAX]))),
        };
        RoiBox {
            rect: rect.map(|side| side as u32),
            label: self.pick(&[Some("face"), Some("face"), Some("Plate"), Some("été"), Some("cat"), Some(""), None]),
            confidence: self.pick(&[None, Some(0.2), Some(0.5), Some(0.95), Some(f64::NAN), Some(-1.0), Some(7.0)]),
            id: self.pick(&[None, None, Some(1), Some(2), Some(-1)]),
            mask: self.percent(60).then(|| self.mask()),
        }
    }

    fn mask(&mut self) -> MaskParam {
        let mut size = [0; 2].map(|_| match self.below(16) {
            0..13 => 1 + self.below(24) as u32,
            side => [1, 300, 0][side as usize - 13],
        });
        if self.percent(2) {
            size = self.pick(&[[4096, 3], [2, 4096], [4097, 2], [1, 4097], [32767, 1]]);
        }
        let mut mask = MaskParam {
            format: Some("GRAY8"),
            size,
            padding: self.percent(40).then(|| self.pick(&[0, 0, 1, 5, 64])),
            is_of_other_size: false,
            missing: 0,
            samples: self.samples(),
        };
        match self.below(24) {
            20 => mask.format = self.pick(&[None, Some("GRAY16_LE"), Some("RGBA"), Some("I420")]),
            21 => mask.missing = 1 + self.below(40) as usize,
            22 => mask.padding = Some(self.pick(&[-1, -4, -8, -400])),
            23 => (mask.is_of_other_size, mask.padding) = (true, Some(0)),
            _ => (),
        }
        mask
    }

    fn samples(&mut self) -> Samples {
        match self.below(8) {
            0 => Samples::All(self.pick(&[255, 128])),
            1 => Samples::All(self.pick(&[0, 127])),
            2 => Samples::Noise(self.below(1 << 32)),
            3 => Samples::Edge(self.below(1 << 32)),
            _ => Samples::Disc,
        }
    }
}
