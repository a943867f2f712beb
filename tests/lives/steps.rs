//! The steps of a life as plain data, and a life made from a seed.

use std::sync::LazyLock;

use gst_video::{VideoFormat, VideoFormatInfo};

use crate::common::Noise;
use crate::common::video;
use crate::settings::{Value, Zone};

/// One thing that an application or a neighbour does with the element.
#[derive(Debug, Clone, PartialEq)]
pub enum Step {
    Set(&'static str, Value),
    /// A controlled property: its values from 0 and from a stream time (in ns) on.
    Control(&'static str, f64, u64, f64),
    Downstream(Downstream),
    /// Downstream takes frames in CUDA memory alone, or in host memory alone, from the next frame on; or either.
    Memory(Option<bool>),
    Start,
    Stop(gst::State),
    Pause,
    Caps(Caps),
    Segment(Segment),
    Frame(Frame),
    Flush,
    StreamStart,
    Eos,
    Gap,
    /// A serialized event of any other kind, with a number.
    Event(u64),
    Reconfigure,
    /// Frames are late by so many ns.
    Qos(i64),
    /// The pipeline's clock jumps by so many ns.
    Clock(u64),
    Seek,
    Query(Query),
    /// The next calls but `after` of a driver function fail, once or for good.
    Fault {
        function: &'static str,
        after: i32,
        once: bool,
        status: i32,
    },
}

/// How downstream answers allocation queries: whether it reads GstVideoMeta, and by how many samples its pool pads each side.
#[derive(Debug, Clone, PartialEq)]
pub struct Downstream {
    pub takes_video_meta: bool,
    pub pool_padding: Option<u32>,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Caps {
    pub format: String,
    pub size: [u32; 2],
    pub is_in_cuda: bool,
    pub interlace_mode: &'static str,
    pub rate: (i32, i32),
    pub max_rate: Option<(i32, i32)>,
}

/// A segment; all but the rates in ns.
#[derive(Debug, Clone, PartialEq)]
pub struct Segment {
    pub in_bytes: bool,
    pub rate: f64,
    pub applied_rate: f64,
    pub start: u64,
    pub stop: Option<u64>,
    pub time: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub struct Frame {
    pub noise: u64,
    pub layout: Layout,
    /// Into how many memories the bytes are divided.
    pub memories: usize,
    pub owner: Owner,
    pub flags: gst::BufferFlags,
    /// What interlace-mode=mixed looks at.
    pub is_interlaced: bool,
    pub pts: Option<u64>,
    pub duration: Option<u64>,
    pub boxes: Vec<RoiBox>,
    /// The upper 8 bits of the alpha channel, if the format has one; without it they are noise too.
    pub alpha: Option<Samples>,
}

/// Where the planes are in the buffer.
#[derive(Debug, Clone, PartialEq)]
pub enum Layout {
    /// Where the caps say.
    Caps,
    /// Longer by so many bytes.
    Long(usize),
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
#[derive(Debug, Clone, PartialEq)]
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

    /// Whether it is as docs/HIDING.md says, so that it can be read.
    pub fn is_readable(&self) -> bool {
        let has_size = self.size.iter().all(|side| (1..=4096).contains(side));
        let has_rows = self.stride() >= self.size[0].cast_signed() && self.missing == 0;
        self.format == Some("GRAY8") && has_size && has_rows && !(self.is_of_other_size && self.padding.is_some())
    }

    /// Whether any of it is the object.
    pub fn has_object(&self) -> bool {
        let [columns, rows] = self.size;
        (0..rows).any(|y| (0..columns).any(|x| self.sample(x, y) >= 128))
    }
}

#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Query {
    Latency,
    Position,
    Allocation,
    Caps,
    Drain,
}

/// What a life runs on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Machine {
    Cpu,
    /// The fake driver, whose functions can fail.
    FakeCuda,
    Gpu,
}

/// Driver functions that a frame or a start calls, with a status that they return.
const FAULTS: [(&str, i32); 9] = [
    ("cuMemAlloc_v2", 2),
    ("cuMemHostAlloc", 2),
    ("cuMemsetD8Async", 700),
    ("cuCtxPushCurrent_v2", 700),
    ("cuMemcpy2DAsync_v2", 700),
    ("cuMemcpyHtoDAsync_v2", 700),
    ("cuLaunchKernel", 700),
    ("cuEventRecord", 700),
    ("cuEventQuery", 700),
];

static FORMATS: LazyLock<Vec<String>> =
    LazyLock::new(|| video::formats().iter().map(|format| format.to_str().to_string()).collect());

static CUDA_FORMATS: LazyLock<Vec<String>> = LazyLock::new(|| {
    // In GStreamer 1.24 their last plane begins half a row late with every even height.
    let is_wrong =
        |format: &str| gst::version() >= (1, 24, 0, 0) && gst::version() < (1, 26, 0, 0) && is_planar_420(format);
    let formats = video::cuda_formats();
    let formats = formats.iter().map(|format| format.to_str().to_string());
    formats.filter(|format| !is_wrong(format)).collect()
});

fn is_planar_420(format: &str) -> bool {
    format.starts_with("I420") || format == "YV12"
}

static ALPHA_FORMATS: LazyLock<Vec<String>> = LazyLock::new(|| {
    let formats = video::formats().into_iter();
    formats.filter(|format| has_alpha(*format)).map(|format| format.to_str().to_string()).collect()
});

/// Whether a format has an alpha channel.
pub fn has_alpha(format: VideoFormat) -> bool {
    // GStreamer's flag is missing at AV12, Y410 and others.
    VideoFormatInfo::from_format(format).n_components() == 4
}

const FRAME_NS: u64 = 40_000_000;

/// Lives of a hundred in which region-sources names alpha.
const ALPHA_LIVES: u64 = 7;

impl Caps {
    /// Whether GStreamer has such frames in CUDA memory, and transfers all of their rows.
    pub fn may_be_in_cuda(&self) -> bool {
        // With an odd height, in GStreamer 1.22 the last of three planes begins half a row late, and is not transferred; in 1.26 the
        // memory of NV21 ends half a row too early.
        let is_wrong = is_planar_420(&self.format) || self.format == "NV21";
        let has_rows = !is_wrong || self.size[1].is_multiple_of(2);
        CUDA_FORMATS.contains(&self.format) && has_rows && matches!(self.interlace_mode, "progressive" | "mixed")
    }
}

/// Random choices.
struct Dice {
    noise: Noise,
    /// Of the frame before.
    boxes: Vec<RoiBox>,
    /// Of a life in which region-sources names alpha: the choices about that, so that it is otherwise the life of its seed.
    alpha: Option<Noise>,
}

fn samples(noise: &mut Noise) -> Samples {
    let mut below = |end: u64| noise.next() % end;
    match below(8) {
        0 => Samples::All([0, 127][below(2) as usize]),
        1 => Samples::All([128, 255][below(2) as usize]),
        2 => Samples::Noise(noise.next() >> 32),
        3 => Samples::Edge(noise.next() >> 32),
        _ => Samples::Disc,
    }
}

impl Dice {
    /// True in so many of a hundred cases of a life in which region-sources names alpha.
    fn alpha_percent(&mut self, percent: u64) -> bool {
        self.alpha.as_mut().is_some_and(|noise| noise.next() % 100 < percent)
    }

    fn pick_for_alpha<T: Clone>(&mut self, of: &[T]) -> T {
        let noise = self.alpha.as_mut().expect("a life with alpha");
        of[(noise.next() % of.len() as u64) as usize].clone()
    }

    fn below(&mut self, end: u64) -> u64 {
        self.noise.next() % end
    }

    /// True in so many of a hundred cases.
    fn percent(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u64) as usize].clone()
    }

    fn value(&mut self, property: &str, absurd: bool) -> Value {
        let nan = f64::NAN;
        let double = |valid: &[f64], invalid: &[f64], dice: &mut Self| {
            Value::Double(dice.pick(if absurd { invalid } else { valid }))
        };
        let uint = |valid: &[u32], invalid: &[u32], dice: &mut Self| {
            Value::Uint(dice.pick(if absurd { invalid } else { valid }))
        };
        let infinity = f64::INFINITY;
        match property {
            "sigma" => {
                let valid = [0.0, 0.1, 0.3, 0.8, 1.5, 1.5, 2.0, 3.4, 3.5, 5.0, 12.0, 40.0, 1024.0];
                double(&valid, &[nan, -1.0, infinity, 1024.5, 1e300], self)
            }
            "kernel-size" => uint(&[0, 0, 0, 1, 3, 7, 41, 801], &[2, 800, 803, u32::MAX], self),
            "min-confidence" => double(&[0.0, 0.0, 0.5, 0.9, 1.0], &[nan, -0.1, 1.5, -infinity], self),
            "expand" => double(&[0.0, 0.0, 0.2, 0.37, 1.0, 4.0], &[nan, -0.1, 4.5, infinity], self),
            "strength" => double(&[0.0, 0.1, 0.25, 0.25, 0.5, 2.0], &[nan, -0.1, 2.5, infinity], self),
            "cells" => uint(&[1, 2, 6, 6, 17, 64], &[0, 65, u32::MAX], self),
            "shape" => Value::Text(self.pick(&["box", "box", "ellipse", "mask", "mask"])),
            "feather" => uint(&[0, 0, 0, 1, 2, 5, 16, 256], &[257, u32::MAX], self),
            "grow" if absurd => Value::Int(self.pick(&[-65, 257, i32::MIN, i32::MAX])),
            "grow" => Value::Int(self.pick(&[0, 0, 0, 1, 4, 30, 256, -1, -3, -20, -64])),
            "look-ahead" => uint(&[0, 0, 0, 0, 1, 1, 2, 5, 120], &[121, u32::MAX], self),
            "max-in-flight" => uint(&[1, 1, 2, 3, 4], &[0, 17, u32::MAX], self),
            "cuda-device-id" => Value::Int(self.pick(if absurd { &[-2, i32::MIN] } else { &[-1, 0] })),
            "fill-color" => Value::Uint(self.pick(&[0xff00_0000, 0, 0xffff_ffff, 0x80c0_4020, 0xff00_ff00])),
            "hold-time" => Value::Uint64(self.pick(&[0, 0, 1, FRAME_NS, 500_000_000, u64::MAX])),
            "post-messages" => Value::Bool(self.percent(90)),
            "labels" => Value::Text(self.pick(&["", "", "face", "FACE , plate", " , ", "gesicht,ÉTÉ", "cat"])),
            "region-mode" => Value::Text(self.pick(&["inside", "inside", "inside", "outside", "outside", "frame"])),
            "region-sources" => {
                let value = self.pick(&["zones+roi+analytics", "zones+roi", "roi", "zones"]);
                let with_alpha = ["alpha", "alpha", "zones+alpha", "roi+alpha", "zones+roi+alpha"];
                Value::Text(if self.alpha_percent(80) { self.pick_for_alpha(&with_alpha) } else { value })
            }
            "cover" => Value::Text(self.pick(&["blur", "mosaic", "fill"])),
            "on-lost" => Value::Text(self.pick(&["release", "release", "cover"])),
            "on-missing" => Value::Text(self.pick(&["auto", "auto", "auto", "pass", "pass", "cover", "drop", "error"])),
            "planes" => {
                let all = "luma+chroma+alpha";
                Value::Text(self.pick(&[all, all, all, "luma", "chroma", "alpha", "luma+chroma", "chroma+alpha"]))
            }
            "alpha" => Value::Text(self.pick(&["straight", "premultiply"])),
            "backend" => Value::Text("cpu"),
            "zones" => {
                let count = self.below(4);
                let mut zones: Vec<Zone> = (0..count).map(|_| self.zone()).collect();
                if absurd {
                    zones.push(Zone { width: self.pick(&[0.0, nan, -0.5, 1.5, infinity]), ..self.zone() });
                }
                Value::Zones(zones)
            }
            other => unreachable!("{other}"),
        }
    }

    fn zone(&mut self) -> Zone {
        let mut part = || self.below(1001) as f64 / 1000.0;
        let (x, y) = (part(), part());
        let (width, height) = (part().max(0.001), part().max(0.001));
        let start = self.percent(25).then(|| self.below(12) * FRAME_NS / 2);
        let end = self.percent(25).then(|| start.unwrap_or(0) + (1 + self.below(12)) * FRAME_NS / 2);
        Zone { x, y, width, height, start, end }
    }

    fn caps(&mut self, machine: Machine) -> Caps {
        let mut caps = self.any_caps(machine);
        if self.alpha_percent(85) {
            (caps.format, caps.is_in_cuda) = (self.pick_for_alpha(&ALPHA_FORMATS), false);
        }
        caps
    }

    fn any_caps(&mut self, machine: Machine) -> Caps {
        let size = match self.below(24) {
            0..3 => [1, 1],
            3..6 => [1 + self.below(5) as u32, 1 + self.below(5) as u32],
            // Weights are on a grid of two or four samples.
            6 => [513 + self.below(700) as u32, 1 + self.below(7) as u32],
            7 => [1 + self.below(7) as u32, 513 + self.below(700) as u32],
            _ => [1 + self.below(100) as u32, 1 + self.below(70) as u32],
        };
        let interlace_mode = match self.below(12) {
            0 => "interleaved",
            1 => "mixed",
            2 | 3 => "alternate",
            4 if self.percent(20) => "fields",
            _ => "progressive",
        };
        let (rate, max_rate) = match self.below(10) {
            0 => ((0, 1), None),
            1 => ((0, 1), Some((60, 1))),
            2 => ((30000, 1001), None),
            _ => ((25, 1), None),
        };
        let is_in_cuda = machine != Machine::Cpu && self.percent(35) && !CUDA_FORMATS.is_empty();
        if is_in_cuda {
            let interlace_mode = if interlace_mode == "mixed" { "mixed" } else { "progressive" };
            let format = self.pick(&CUDA_FORMATS);
            let mut caps = Caps { format, size, is_in_cuda, interlace_mode, rate, max_rate };
            if !caps.may_be_in_cuda() {
                caps.size[1] += 1;
            }
            return caps;
        }
        Caps { format: self.pick(&FORMATS), size, is_in_cuda, interlace_mode, rate, max_rate }
    }

    fn segment(&mut self) -> Segment {
        let start = self.pick(&[0, 0, 3 * FRAME_NS]);
        let rate = self.pick(&[1.0, 1.0, 2.0, -1.0]);
        let with_stop = rate < 0.0 || self.percent(30);
        Segment {
            in_bytes: self.percent(8),
            rate,
            applied_rate: self.pick(&[1.0, 1.0, 1.0, 2.0, 0.5, -1.0, -2.0]),
            start,
            stop: with_stop.then(|| start + self.pick(&[4, 8, 100]) * FRAME_NS),
            time: self.pick(&[0, 0, 5 * FRAME_NS]),
        }
    }

    fn roi_box(&mut self, size: [u32; 2]) -> RoiBox {
        let [width, height] = size.map(u64::from);
        let rect = match self.below(10) {
            0 => {
                let absurd = [0, 1, 5, 1 << 31, u32::MAX - 3, u32::MAX];
                [0; 4].map(|_| self.pick(&absurd))
            }
            1 => [u32::MAX - 4, u32::MAX - 2, 9, 7],
            2 => [self.below(2 * width), self.below(2 * height), 3 * width, self.below(3 * height)].map(|n| n as u32),
            _ => {
                let [x, y] = [self.below(width), self.below(height)];
                [x, y, 1 + self.below(width), 1 + self.below(height)].map(|n| n as u32)
            }
        };
        RoiBox {
            rect,
            label: self.pick(&[Some("face"), Some("face"), Some("Plate"), Some("été"), Some("cat"), Some(""), None]),
            confidence: self.pick(&[None, Some(0.2), Some(0.5), Some(0.95), Some(f64::NAN), Some(-1.0), Some(7.0)]),
            id: self.pick(&[None, None, Some(1), Some(2), Some(-1)]),
            mask: self.percent(60).then(|| self.mask()),
        }
    }

    fn mask(&mut self) -> MaskParam {
        let mut side = || match self.below(16) {
            0 => 0,
            1 => 1,
            2 => 300,
            _ => 1 + self.below(24) as u32,
        };
        let mut size = [side(), side()];
        if self.percent(2) {
            size = self.pick(&[[4096, 3], [2, 4096], [4097, 2], [1, 4097], [32767, 1]]);
        }
        let mut mask = MaskParam {
            format: Some("GRAY8"),
            size,
            padding: self.percent(40).then(|| self.pick(&[0, 0, 1, 5, 64])),
            is_of_other_size: false,
            missing: 0,
            samples: samples(&mut self.noise),
        };
        match self.below(24) {
            0 => mask.format = self.pick(&[None, Some("GRAY16_LE"), Some("RGBA"), Some("I420")]),
            1 => mask.missing = 1 + self.below(40) as usize,
            2 => mask.padding = Some(self.pick(&[-1, -4, -8, -400])),
            3 => (mask.is_of_other_size, mask.padding) = (true, Some(0)),
            _ => (),
        }
        mask
    }

    /// The boxes of the next frame: others, or those of the frame before with the same masks, other ones, or none.
    fn boxes(&mut self, size: [u32; 2]) -> Vec<RoiBox> {
        if self.percent(70) {
            self.boxes = (0..self.pick(&[0, 0, 1, 1, 2, 4])).map(|_| self.roi_box(size)).collect();
        } else {
            let mut boxes = std::mem::take(&mut self.boxes);
            for roi in &mut boxes {
                match self.below(4) {
                    0 => roi.mask = None,
                    1 => roi.mask = Some(self.mask()),
                    _ => (),
                }
            }
            self.boxes = boxes;
        }
        self.boxes.clone()
    }

    fn frame(&mut self, size: [u32; 2], clock: &mut u64) -> Frame {
        let layout = match self.below(40) {
            0 => Layout::Short(1 + self.below(200) as usize),
            1 => Layout::ShortMeta(1 + self.below(200) as usize),
            2 => Layout::NegativeStride,
            3 => Layout::Overlapping,
            4..=7 => Layout::Long(self.below(200) as usize),
            8..=20 => Layout::Padded(self.below(40) as i32, self.below(40) as usize),
            _ => Layout::Caps,
        };
        let mut flags = gst::BufferFlags::empty();
        for flag in [gst::BufferFlags::DISCONT, gst::BufferFlags::GAP, gst::BufferFlags::CORRUPTED] {
            flags.set(flag, self.percent(6));
        }
        let pts = match self.below(16) {
            0 => None,
            1 => Some(clock.saturating_sub(self.below(20) * FRAME_NS)),
            2 => Some(clock.saturating_sub(FRAME_NS)),
            3 => Some(*clock + self.below(20) * FRAME_NS),
            _ => Some(*clock),
        };
        *clock += FRAME_NS;
        Frame {
            noise: self.noise.next() >> 32,
            layout,
            memories: if self.percent(15) { 2 + self.below(3) as usize } else { 1 },
            owner: self.pick(&[
                Owner::Nobody,
                Owner::Nobody,
                Owner::Nobody,
                Owner::Nobody,
                Owner::OfBuffer,
                Owner::OfMemory,
                Owner::ReadOnly,
            ]),
            flags,
            is_interlaced: self.percent(50),
            pts,
            duration: self.percent(80).then(|| self.pick(&[FRAME_NS, FRAME_NS, FRAME_NS, 0, 5 * FRAME_NS])),
            boxes: self.boxes(size),
            alpha: if self.alpha_percent(85) { self.alpha.as_mut().map(samples) } else { None },
        }
    }
}

/// The properties that may change at any time.
const LIVE: [&str; 21] = [
    "sigma",
    "kernel-size",
    "planes",
    "alpha",
    "region-mode",
    "region-sources",
    "zones",
    "labels",
    "min-confidence",
    "expand",
    "shape",
    "feather",
    "grow",
    "cover",
    "strength",
    "cells",
    "fill-color",
    "hold-time",
    "on-lost",
    "on-missing",
    "post-messages",
];

/// The life of this seed.
pub fn life(seed: u64, machine: Machine) -> Vec<Step> {
    let mut alpha = Noise(!seed ^ ((machine as u64) << 40));
    let alpha = (alpha.next() % 100 < ALPHA_LIVES).then_some(alpha);
    let mut dice = Dice { noise: Noise(seed ^ ((machine as u64) << 40)), boxes: Vec::new(), alpha };
    let mut steps = Vec::new();
    let set = |dice: &mut Dice, property, absurd| Step::Set(property, dice.value(property, absurd));
    if machine != Machine::Cpu && dice.percent(33) {
        steps.push(Step::Set("backend", Value::Text("cuda")));
    }
    for property in ["region-mode", "post-messages", "cover", "shape", "max-in-flight", "look-ahead"] {
        steps.push(set(&mut dice, property, false));
    }
    if dice.alpha.is_some() {
        steps.push(set(&mut dice, "region-sources", false));
    }
    for _ in 0..dice.below(8) {
        let property = dice.pick(&LIVE);
        let absurd = dice.percent(3);
        steps.push(set(&mut dice, property, absurd));
    }
    if dice.percent(5) {
        let property = dice.pick(&["cuda-device-id", "max-in-flight", "look-ahead"]);
        let absurd = dice.percent(50);
        steps.push(set(&mut dice, property, absurd));
    }
    let control = |dice: &mut Dice| {
        let property = dice.pick(&["sigma", "strength", "expand", "feather", "grow"]);
        let values = [0; 2].map(|_| match property {
            // Whole numbers of their types.
            "feather" => dice.pick(&[0.0, 1.0, 8.0, 300.0]),
            "grow" => dice.pick(&[0.0, 2.0, 8.0, -2.0, -300.0]),
            _ => dice.pick(&[0.0, 0.2, 0.5, 1.5, 1.5, 3.0, -1.0]),
        });
        Step::Control(property, values[0], dice.below(10) * FRAME_NS, values[1])
    };
    if dice.percent(15) {
        steps.push(control(&mut dice));
    }
    steps.push(Step::Start);
    let mut caps = dice.caps(machine);
    let mut clock = 0;
    steps.push(Step::Caps(caps.clone()));
    for _ in 0..5 + dice.below(25) {
        let step = match dice.below(100) {
            0..60 => Step::Frame(dice.frame(caps.size, &mut clock)),
            60..74 => {
                let property = dice.pick(&LIVE);
                let absurd = dice.percent(15);
                set(&mut dice, property, absurd)
            }
            74 => {
                let property = dice.pick(&["backend", "max-in-flight", "look-ahead", "cuda-device-id"]);
                set(&mut dice, property, false)
            }
            75 => control(&mut dice),
            76 | 79 | 80 => {
                caps = dice.caps(machine);
                Step::Caps(caps.clone())
            }
            77 | 78 => Step::Event(dice.below(1000)),
            81..=84 => Step::Segment(dice.segment()),
            85 | 86 => Step::Flush,
            87 => Step::Gap,
            88 => Step::Reconfigure,
            89 => Step::Qos(dice.pick(&[-1, 1, 3]) * FRAME_NS as i64),
            90 => Step::Seek,
            91 | 92 => {
                let queries = [Query::Latency, Query::Position, Query::Allocation, Query::Caps, Query::Drain];
                Step::Query(dice.pick(&queries))
            }
            93 | 94 => Step::Downstream(Downstream {
                takes_video_meta: dice.percent(60),
                pool_padding: dice.percent(40).then(|| 4 * dice.below(6) as u32),
            }),
            95 => Step::Pause,
            96 => Step::StreamStart,
            97 if machine == Machine::FakeCuda => fault(&mut dice),
            97 => Step::Eos,
            _ => {
                steps.push(Step::Stop(dice.pick(&[gst::State::Null, gst::State::Ready])));
                if dice.percent(30) {
                    let property = dice.pick(&LIVE);
                    let absurd = dice.percent(50);
                    steps.push(set(&mut dice, property, absurd));
                }
                steps.push(Step::Start);
                caps = dice.caps(machine);
                Step::Caps(caps.clone())
            }
        };
        steps.push(step);
    }
    if machine == Machine::FakeCuda && dice.percent(40) {
        let place = dice.below(steps.len() as u64) as usize;
        let fault = fault(&mut dice);
        steps.insert(place, fault);
    }
    if machine != Machine::Cpu {
        // Choices of their own, so that the lives are otherwise those of their seeds.
        let mut noise = Noise(!seed.rotate_left(17));
        for _ in 0..(noise.next() % 6).saturating_sub(2) {
            let memory = [None, Some(true), Some(true), Some(false)][(noise.next() % 4) as usize];
            steps.insert((noise.next() % steps.len() as u64) as usize, Step::Memory(memory));
        }
    }
    let mut noise = Noise(seed.rotate_left(29));
    for _ in 0..(noise.next() % 8).saturating_sub(4) {
        let jump = [FRAME_NS, 10 * FRAME_NS, 3_600_000_000_000][(noise.next() % 3) as usize];
        steps.insert((noise.next() % steps.len() as u64) as usize, Step::Clock(jump));
    }
    let place = dice.below(6) as usize;
    let takes_video_meta = dice.percent(60);
    let pool_padding = dice.percent(30).then(|| 4 * dice.below(6) as u32);
    steps.insert(place, Step::Downstream(Downstream { takes_video_meta, pool_padding }));
    if dice.percent(50) {
        steps.push(Step::Eos);
    }
    steps
}

fn fault(dice: &mut Dice) -> Step {
    let (function, status) = dice.pick(&FAULTS);
    Step::Fault { function, after: dice.below(6) as i32, once: dice.percent(50), status }
}
