//! What the faults are injected into: a short stream of frames in one kind of memory, with one kind of work, and the bytes
//! that the CPU engine makes of it.

use std::fmt;

use gst_video::{VideoFormat, VideoFrame, VideoFrameExt, VideoInfo};
use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::element::formats;
use gstcudagaussblur::engine::{BlurRegion, Cover, Engine, Hide, Softness};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::{FrameMut, Plane, as_source};
use gstcudagaussblur::filter::mosaic::MosaicRegion;
use gstcudagaussblur::filter::plan::Selection;
use gstcudagaussblur::filter::regions::{Area, Rect};
use gstcudagaussblur::filter::weights::{Edge, Object, Shape, Weights};

use crate::common::Noise;
use crate::common::gst_cuda::Context;

/// The frames of a stream: enough for staging buffers, a pool's buffers and a registration after the first ones.
pub const FRAMES: usize = 5;

/// Where the frames are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Memory {
    Ordinary,
    Pinned,
    /// Ordinary memory that arrives again and again, so that the element registers it.
    Registered,
    Cuda,
}

/// What is done with the frames.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Work {
    /// The whole frame is blurred, with so many frames in flight.
    Frame {
        sigma: f64,
        in_flight: u32,
    },
    /// One zone is covered.
    Blur,
    Mosaic,
    Fill,
    /// The ellipse in the zone is covered, with a soft edge.
    SoftBlur,
    SoftMosaic,
    SoftFill,
    /// All but the ellipse is blurred, without what is in it.
    Background,
}

impl Work {
    const SOFT: [Self; 4] = [Self::SoftBlur, Self::SoftMosaic, Self::SoftFill, Self::Background];

    fn is_soft(self) -> bool {
        Self::SOFT.contains(&self)
    }
}

/// A stream that can fail.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scenario {
    pub backend: &'static str,
    /// Of the input and of the output.
    pub memory: [Memory; 2],
    pub work: Work,
    /// Whether somebody else holds the input too, so that regions are covered in a copy.
    pub is_shared: bool,
    /// Whether no engine has used the context before, so that everything is loaded.
    pub is_cold: bool,
}

impl fmt::Display for Scenario {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let Self { backend, memory: [input, output], work, .. } = self;
        let place = if self.is_shared { ", in a copy" } else { "" };
        let context = if self.is_cold { ", new context" } else { "" };
        write!(f, "backend={backend}, {input:?} to {output:?}, {work:?}{place}{context}")
    }
}

const SHORT: Work = Work::Frame { sigma: 1.5, in_flight: 1 };

impl Scenario {
    /// All of them.
    pub fn all() -> Vec<Self> {
        use Memory::{Cuda, Ordinary, Pinned, Registered};
        let frames =
            [(1.5, 1), (9.0, 1), (1.5, 3), (9.0, 3)].map(|(sigma, in_flight)| Work::Frame { sigma, in_flight });
        let mut all = Vec::new();
        for backend in ["auto", "cuda"] {
            let mut add = |memory: [Memory; 2], work: Work, is_shared: bool, is_cold: bool| {
                // Where the CPU cannot take over, the backends differ little.
                if backend == "auto" || !memory.contains(&Cuda) || [SHORT, Work::Blur].contains(&work) {
                    all.push(Self { backend, memory, work, is_shared, is_cold });
                }
            };
            // The CPU does these in host memory.
            for work in Work::SOFT {
                add([Cuda; 2], work, false, false);
                add([Cuda; 2], work, true, false);
            }
            for memory in [[Ordinary; 2], [Ordinary, Cuda], [Cuda, Ordinary]] {
                add(memory, Work::Background, false, false);
            }
            add([Cuda; 2], Work::Background, false, true);
            for memory in
                [[Ordinary; 2], [Pinned, Ordinary], [Cuda, Cuda], [Ordinary, Cuda], [Cuda, Ordinary], [Pinned, Cuda]]
            {
                frames.into_iter().for_each(|work| add(memory, work, false, false));
                let changes_memory = memory.contains(&Cuda) && memory != [Cuda; 2];
                for work in [Work::Blur, Work::Mosaic, Work::Fill] {
                    add(memory, work, false, false);
                    if !changes_memory {
                        add(memory, work, true, false);
                    }
                }
            }
            add([Registered, Ordinary], Work::Blur, true, false);
            for (memory, work) in
                [Ordinary, Cuda].into_iter().flat_map(|memory| [(memory, SHORT), (memory, Work::Blur)])
            {
                add([memory; 2], work, false, true);
            }
        }
        all
    }

    /// Whether a frame is in CUDA memory, where the CPU cannot take over.
    pub fn uses_cuda_memory(&self) -> bool {
        self.memory.contains(&Memory::Cuda)
    }

    /// Whether no fault may cost a frame.
    pub fn falls_back(&self) -> bool {
        self.backend == "auto" && !self.uses_cuda_memory()
    }

    /// The element's properties, as in a gst-launch line.
    pub fn properties(&self) -> String {
        let Self { backend, work, .. } = self;
        let cover = match work {
            Work::Frame { sigma, in_flight } => {
                return format!("backend={backend} sigma={sigma} max-in-flight={in_flight}");
            }
            Work::Blur | Work::SoftBlur => "sigma=2 strength=0",
            Work::Mosaic | Work::SoftMosaic => "cover=mosaic cells=3",
            Work::Fill | Work::SoftFill => "cover=fill fill-color=0xff000000",
            Work::Background => "region-mode=outside region-sources=zones sigma=2",
        };
        let shape = if work.is_soft() { "shape=ellipse feather=4" } else { "" };
        let [x, y, width, height] = self.zone();
        let zone = format!("zones=<[zone,x={x},y={y},width={width},height={height}]>");
        // Later properties override the mode.
        format!("backend={backend} region-mode=inside expand=0 {zone} {cover} {shape}")
    }

    /// The zone as parts of the picture. All of its edges are edges of samples.
    fn zone(&self) -> [f64; 4] {
        let side = if self.memory[0] == Memory::Registered { 0.03125 } else { 0.5 };
        [0.25, 0.25, side, side]
    }

    /// The format of the frames. Memory is registered only from 256 KB on.
    pub fn info(&self) -> VideoInfo {
        let (width, height) = if self.memory[0] == Memory::Registered { (768, 384) } else { (48, 24) };
        VideoInfo::builder(VideoFormat::Nv12, width, height).fps((25, 1)).build().unwrap()
    }

    /// The caps of the input and of the output.
    pub fn caps(&self) -> [gst::Caps; 2] {
        self.memory.map(|memory| {
            let mut caps = self.info().to_caps().unwrap();
            if memory == Memory::Cuda {
                caps.make_mut().set_features(0, Some(gst::CapsFeatures::new(["memory:CUDAMemory"])));
            }
            caps
        })
    }

    /// The bytes of the input frames. Registered memory is one memory, so that all frames are the same.
    pub fn sources(&self) -> Vec<Vec<u8>> {
        let is_same = self.memory[0] == Memory::Registered;
        (0..FRAMES as u64).map(|frame| Noise(if is_same { 0 } else { frame }).bytes(self.info().size())).collect()
    }

    /// What the CPU engine makes of a frame.
    pub fn expected(&self, source: &[u8]) -> Vec<u8> {
        let (mut source, mut out) = (source.to_vec(), source.to_vec());
        let mut engine = Engine::with_cpu(CpuEngine::new());
        let info = self.info();
        let [x, y, width, height] = self.zone();
        let [x, width] = [x, width].map(|part| (part * f64::from(info.width())) as u32);
        let [y, height] = [y, height].map(|part| (part * f64::from(info.height())) as u32);
        let rect = Rect::new(x, y, width, height).unwrap();
        let object = Area::from_corner(x.into(), y.into(), width.into(), height.into());
        let size = (info.width(), info.height());
        // A soft cover is cut off by its weights.
        let rect = if self.work.is_soft() { Rect::new(0, 0, size.0, size.1).unwrap() } else { rect };
        let hide = match self.work {
            Work::Frame { sigma, .. } => {
                let params = BlurParams::new(sigma, 0).unwrap();
                let source = planes(&info, &mut source);
                engine.blur(params, &as_source(&source), &mut planes(&info, &mut out)).unwrap();
                return out;
            }
            Work::Blur | Work::SoftBlur | Work::Background => {
                let regions = vec![BlurRegion { rect, params: BlurParams::new(2.0, 0).unwrap() }];
                Hide::Blur { planes: Selection::ALL, regions }
            }
            Work::Mosaic | Work::SoftMosaic => Hide::Mosaic(vec![MosaicRegion::new(rect, object, 3)]),
            // Black in limited range.
            Work::Fill | Work::SoftFill => {
                Hide::Fill { rects: vec![rect], values: vec![[16, 0, 0, 0], [128, 128, 0, 0]] }
            }
        };
        let objects = [Object { area: object, shape: Shape::Ellipse }];
        let edge = Edge { grow: 0, feather: 2 };
        let softness = |weights, excluded| Softness { weights, excluded };
        let soft = match self.work {
            Work::Background => {
                let excluded = Weights::excluded(size, &objects, 2.0);
                Some(softness(Weights::outside(size, &objects, edge), Some(excluded)))
            }
            work => work.is_soft().then(|| softness(Weights::inside(size, &objects, edge), None)),
        };
        let cover = Cover { soft, ..Cover::from(hide) };
        engine.cover(&cover, &mut planes(&info, &mut out)).unwrap();
        out
    }

    /// A buffer with these bytes in the memory of the input.
    pub fn buffer(&self, bytes: &[u8], make: &Allocators) -> gst::Buffer {
        match self.memory[0] {
            Memory::Ordinary => gst::Buffer::from_mut_slice(bytes.to_vec()),
            Memory::Pinned => {
                let mut memory = make.pinned.allocate(bytes.len()).unwrap();
                memory.as_mut().copy_from_slice(bytes);
                gst::Buffer::from_mut_slice(memory)
            }
            Memory::Registered => {
                // Of GStreamer's own type, which is the only one that is registered.
                let mut buffer = gst::Buffer::with_size(bytes.len()).unwrap();
                buffer.make_mut().copy_from_slice(0, bytes).unwrap();
                buffer
            }
            Memory::Cuda => {
                let (info, width) = (self.info(), self.info().width() as usize);
                let (luma, chroma) = bytes.split_at(info.offset()[1]);
                make.context.as_ref().unwrap().frame(&info, &[luma, chroma].map(|plane| (plane, width, width)))
            }
        }
    }
}

/// What allocates input frames.
pub struct Allocators {
    pub pinned: gstcudagaussblur::cuda::PinnedSource,
    /// `None` without libgstcuda.
    pub context: Option<Context>,
}

/// The two planes of an NV12 frame, without bytes between rows.
fn planes<'a>(info: &VideoInfo, bytes: &'a mut [u8]) -> FrameMut<'a> {
    let layouts = formats::planes(info, false).unwrap();
    let (luma, chroma) = bytes.split_at_mut(info.offset()[1]);
    let plane = |(layout, data)| Plane { layout, pitch: info.width() as usize, data };
    layouts.into_iter().zip([luma, chroma]).map(plane).collect()
}

/// The bytes of a frame in any memory, without those between its rows.
pub fn read(info: &VideoInfo, buffer: gst::Buffer) -> Vec<u8> {
    let frame = VideoFrame::from_buffer_readable(buffer, info).unwrap();
    let plane = |plane: u32| {
        let rows = frame.plane_data(plane).unwrap().chunks(frame.plane_stride()[plane as usize] as usize);
        let height = info.height() >> plane;
        rows.take(height as usize).flat_map(|row| row[..info.width() as usize].to_vec()).collect::<Vec<u8>>()
    };
    [plane(0), plane(1)].concat()
}
