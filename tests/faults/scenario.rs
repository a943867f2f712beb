//! What the faults are injected into: a short stream of frames in one kind of memory, with one kind of work, and the bytes
//! that the element makes of it on the CPU.

use std::fmt;

use gst_video::{VideoFormat, VideoInfo};

use crate::common::Noise;
use crate::common::gst_cuda::Context;
use crate::common::video::{self, Blur};

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

/// The whole frame is blurred.
const SHORT: &str = "sigma=1.5";
const FRAME: [&str; 4] = [SHORT, "sigma=9", "sigma=1.5 max-in-flight=3", "sigma=9 max-in-flight=3"];
/// The zone is covered.
const BLUR: &str = "region-mode=inside sigma=2 strength=0";
const HARD: [&str; 3] = [BLUR, "region-mode=inside cover=mosaic cells=3", "region-mode=inside cover=fill"];
/// All but the ellipse in the zone is blurred, without what is in it.
const BACKGROUND: &str = "region-mode=outside region-sources=zones sigma=2 shape=ellipse feather=4";
/// The ellipse is covered, with a soft edge.
const SOFT: [&str; 4] = [
    "region-mode=inside sigma=2 strength=0 shape=ellipse feather=4",
    "region-mode=inside cover=mosaic cells=3 shape=ellipse feather=4",
    "region-mode=inside cover=fill shape=ellipse feather=4",
    BACKGROUND,
];

/// A stream that can fail.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Scenario {
    pub backend: &'static str,
    /// Of the input and of the output.
    pub memory: [Memory; 2],
    /// The properties that say what is done with the frames.
    pub work: &'static str,
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
        write!(f, "backend={backend}, {input:?} to {output:?}, {work}{place}{context}")
    }
}

impl Scenario {
    /// All of them.
    pub fn all() -> Vec<Self> {
        use Memory::{Cuda, Ordinary, Pinned, Registered};
        let mut all = Vec::new();
        for backend in ["auto", "cuda"] {
            let mut add = |memory: [Memory; 2], work: &'static str, is_shared: bool, is_cold: bool| {
                // Where the CPU cannot take over, the backends differ little.
                if backend == "auto" || !memory.contains(&Cuda) || [SHORT, BLUR].contains(&work) {
                    all.push(Self { backend, memory, work, is_shared, is_cold });
                }
            };
            // The CPU does these in host memory.
            for work in SOFT {
                add([Cuda; 2], work, false, false);
                add([Cuda; 2], work, true, false);
            }
            for memory in [[Ordinary; 2], [Ordinary, Cuda], [Cuda, Ordinary]] {
                add(memory, BACKGROUND, false, false);
            }
            add([Cuda; 2], BACKGROUND, false, true);
            for memory in
                [[Ordinary; 2], [Pinned, Ordinary], [Cuda, Cuda], [Ordinary, Cuda], [Cuda, Ordinary], [Pinned, Cuda]]
            {
                FRAME.into_iter().chain(HARD).for_each(|work| add(memory, work, false, false));
                if !memory.contains(&Cuda) || memory == [Cuda; 2] {
                    HARD.into_iter().for_each(|work| add(memory, work, true, false));
                }
            }
            add([Registered, Ordinary], BLUR, true, false);
            for memory in [Ordinary, Cuda] {
                add([memory; 2], SHORT, false, true);
                add([memory; 2], BLUR, false, true);
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

    /// The element's properties, as in a gst-launch line. All edges of the zone are edges of samples.
    pub fn properties(&self) -> String {
        let Self { backend, work, .. } = self;
        let side = if self.memory[0] == Memory::Registered { 0.03125 } else { 0.5 };
        let zone = format!("zones=<[zone,x=0.25,y=0.25,width={side},height={side}]>");
        format!("backend={backend} {work} {}", if work.contains("region-mode") { &zone } else { "" })
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

    /// What the element makes of the frames on the CPU.
    pub fn expected(&self, sources: &[Vec<u8>]) -> Vec<Vec<u8>> {
        let info = self.info();
        let mut blur = Blur::with(&format!("{} backend=cpu max-in-flight=1", self.properties()), &info);
        let output = |source: &Vec<u8>| video::bytes(&info, blur.push(gst::Buffer::from_mut_slice(source.clone())));
        sources.iter().map(output).collect()
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
