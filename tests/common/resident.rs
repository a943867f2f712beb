//! Scenarios of frames in CUDA memory between GStreamer's own elements, on a GPU (tests/gpu_memory.rs) and on the fake driver
//! (tests/cuda_memory.rs). Only sizes and counts are the machine's.

use gst::prelude::*;
use libtest_mimic::Trial;

use super::checks::{Row, trial};
use super::pipes::{self, CUDA, no_errors, pictures, pipeline, run_to_end, stat};
use Memory::{Cuda, Host};

/// Where the frames of a stream come from and go to.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Memory {
    Cuda,
    Host,
}

/// Elements in front of the blur, with frames in CUDA memory and with the same ones in host memory.
pub struct Input {
    pub resident: String,
    pub host: String,
}

impl Input {
    /// A test picture that moves.
    pub fn test(frames: u64, caps: &str) -> Self {
        let host = format!("videotestsrc num-buffers={frames} ! {caps}");
        Self { resident: format!("{host} ! cudaupload ! {CUDA}"), host }
    }
}

/// The video files that `CUDAGAUSSBLUR_VIDEO` names.
pub fn videos() -> Vec<String> {
    let files = std::env::var("CUDAGAUSSBLUR_VIDEO").unwrap_or_default();
    files.split(':').filter(|file| !file.is_empty()).map(str::to_owned).collect()
}

/// The memory of the frames that come, the blurs, the elements behind them, the memory of the frames that the first blur
/// outputs, and what it counts: `name=number` for every frame, `name:number` in all.
pub type Chain<'a> = (Memory, &'a str, &'static str, Memory, &'static str);

/// Downstream accepts CUDA memory only, host memory only, or any.
const DOWN: &str = "video/x-raw(memory:CUDAMemory) ! cudadownload ! video/x-raw !";
const RAW: &str = "video/x-raw !";
const ANY: &str = "cudadownload !";

const BLUR: &str = "cudagaussblur sigma=3";
const UNSEEN: &str = "cudagaussblur sigma=0";
const ZONE: &str =
    "cudagaussblur region-mode=inside sigma=3 look-ahead=2 zones=<[zone,x=0.2,y=0.2,width=0.5,height=0.5]>";

/// They overlap, have odd edges and reach beyond the picture. In frames of 1/30 s: the first zone in all but the fourth, another in
/// the third, another in the last two.
const ZONES: &str = "zones=<[zone,x=0.05,y=0.11,width=0.23,height=0.31,end=0.09],\
                     [zone,x=0.05,y=0.11,width=0.23,height=0.31,start=0.134],\
                     [zone,x=0.2,y=0.2,width=0.33,height=0.41,start=0.06,end=0.09],\
                     [zone,x=0.7,y=0.6,width=0.9,height=0.9,start=0.134]>";

/// In CUDA memory, without a copy to the host.
pub const ON_DEVICE: Chain<'static> = (Cuda, BLUR, DOWN, Cuda, "frames-on-device=1 frames-cuda=1 bytes-copied=0");
/// Frames that wait.
pub const WAITING: [Chain<'static>; 2] =
    [(Cuda, ZONE, DOWN, Cuda, "frames-on-device=1"), (Host, ZONE, RAW, Host, "frames-on-device=0")];

/// The first ones are for every format.
const CHAINS: [Chain<'static>; 16] = [
    ON_DEVICE,
    (Cuda, BLUR, RAW, Host, "frames-cuda=1 frames-on-device=0 frames-pinned-in=0 frames-pinned-out=1 bytes-copied=0"),
    (Host, BLUR, DOWN, Cuda, "frames-cuda=1 frames-on-device=0 frames-pinned-in=1 frames-pinned-out=0 bytes-copied=0"),
    (Host, "cudagaussblur sigma=3 max-in-flight=3", DOWN, Cuda, "frames-cuda=1"),
    // If no neighbour requires a memory, the output is in the input's.
    (Cuda, BLUR, ANY, Cuda, "frames-on-device=1"),
    (Cuda, BLUR, "", Cuda, "frames-on-device=1"),
    (Host, BLUR, ANY, Host, "frames-cuda=1"),
    (Host, "cudagaussblur sigma=3 ! cudagaussblur", ANY, Host, "frames-cuda=1"),
    (
        Cuda,
        "cudagaussblur sigma=2 ! cudagaussblur sigma=1 ! cudagaussblur sigma=3 ! cudagaussblur sigma=2 ! \
         cudagaussblur sigma=1 ! cudagaussblur sigma=6 ! cudagaussblur sigma=2 ! cudagaussblur sigma=1 ! \
         cudagaussblur sigma=3 ! cudagaussblur sigma=2",
        DOWN,
        Cuda,
        "frames-on-device=1",
    ),
    // Frames that are not blurred pass through, or are copied to the other memory.
    (Cuda, UNSEEN, DOWN, Cuda, "frames-passthrough=1"),
    (Cuda, UNSEEN, RAW, Host, "frames-passthrough=0"),
    (Host, UNSEEN, DOWN, Cuda, "frames-passthrough=0"),
    WAITING[0],
    WAITING[1],
    (Cuda, ZONE, RAW, Host, ""),
    (Host, ZONE, DOWN, Cuda, ""),
];

/// Compares what a chain makes of a stream, picture by picture, with what the CPU makes of it. Returns the number of frames.
pub fn check(&(from, blurs, after, to, counts): &Chain, input: &Input) -> u64 {
    let source = if from == Cuda { &input.resident } else { &input.host };
    let sink = "appsink name=sink sync=false max-buffers=4";
    let line = format!("{source} ! {} ! {after} {sink}", blurs.replacen("cudagaussblur", "cudagaussblur name=blur", 1));
    let _row = Row(line.clone());
    let with_cpu = format!("{} ! {} ! {sink}", input.host, blurs.replace("cudagaussblur", "cudagaussblur backend=cpu"));
    let [with_cuda, with_cpu] = [line, with_cpu].map(|line| pipeline(&line));
    let (got, mut expected) = (pictures(&with_cuda), pictures(&with_cpu));
    let mut frames = 0;
    for picture in got {
        assert!(Some(picture) == expected.next(), "frame {frames} differs");
        frames += 1;
    }
    assert!(expected.next().is_none() && frames > 0, "{frames} frames");
    no_errors(&with_cuda);
    no_errors(&with_cpu);
    for count in counts.split_whitespace() {
        let (name, number) = count.split_once(['=', ':']).unwrap();
        let times = if count.contains('=') { frames } else { 1 };
        assert_eq!(stat(&with_cuda, name), number.parse::<u64>().unwrap() * times, "{name}");
    }
    let caps = with_cuda.by_name("blur").unwrap().static_pad("src").unwrap().current_caps().unwrap();
    assert_eq!(caps.features(0).unwrap().contains("memory:CUDAMemory"), to == Cuda, "{caps}");
    for pipeline in [with_cuda, with_cpu] {
        pipeline.set_state(gst::State::Null).unwrap();
    }
    frames
}

/// What differs between the machines.
pub struct Machine {
    /// Frames of NV12.
    pub frames: u64,
    pub size: [u32; 2],
    /// Widths of frames in every format, of which the first one counts that GStreamer's own elements preserve: `cudaupload` does
    /// not copy the pixel beyond the edge in the last pair of packed 4:2:2, and version 1.24.2 copies the third plane of I420 to a
    /// wrong offset at most widths.
    pub widths: [u32; 3],
    pub height: u32,
    /// How many formats the element has in CUDA memory at least, and how many are compared at least.
    pub formats: [usize; 2],
    /// Formats, sizes and properties of covers of regions.
    pub regions: &'static [(&'static str, [u32; 2], &'static [&'static str])],
    /// What of the device is in use, by how much less it may be after a round than in the end, and the number of that round.
    pub in_use: fn() -> Vec<i64>,
    pub slack: i64,
    pub settled: usize,
}

impl Machine {
    fn nv12(&self) -> String {
        let [width, height] = self.size;
        format!("video/x-raw,format=NV12,width={width},height={height}")
    }

    pub fn trials(&'static self, has_elements: bool) -> Vec<Trial> {
        vec![
            trial("frames_in_every_memory_match_the_cpu", has_elements, || self.every_chain()),
            trial("every_format_and_memory_combination_matches_the_cpu", has_elements, || self.every_format()),
            trial("regions_match_the_cpu_in_every_memory", has_elements, || self.every_region()),
            trial("a_hundred_restarts_leak_nothing", has_elements, || self.restarts()),
        ]
    }

    fn every_chain(&self) {
        for chain in &CHAINS {
            assert_eq!(check(chain, &Input::test(self.frames, &self.nv12())), self.frames);
        }
    }

    /// Every format that both the blur and `cudaupload` support.
    fn every_format(&self) {
        let [ours, theirs] = ["cudagaussblur", "cudaupload"].map(formats_of);
        assert!(ours.len() >= self.formats[0], "{ours:?}");
        let mut compared = 0;
        for format in ours.iter().filter(|format| theirs.contains(format)) {
            let input = |width: u32| {
                let caps = format!("video/x-raw,format={format},width={width},height={}", self.height);
                Input::test(self.frames, &caps)
            };
            let is_preserved = |width: &u32| {
                let Input { host, resident } = input(*width);
                pipes::play(&format!("{resident} ! cudadownload")).0 == pipes::play(&host).0
            };
            let Some(width) = self.widths.into_iter().find(is_preserved) else {
                println!("{format} is not tested: cudaupload ! cudadownload changes its bytes");
                continue;
            };
            compared += 1;
            CHAINS[..4].iter().for_each(|chain| assert_eq!(check(chain, &input(width)), self.frames));
        }
        println!("{compared} formats under {}", gst::version_string());
        assert!(compared >= self.formats[1], "only {compared} formats were compared");
    }

    /// Covered regions, also of frames that a `tee` hands to somebody else, so that they are covered in a copy.
    fn every_region(&self) {
        let mut compared = 0;
        for (format, [width, height], covers) in self.regions {
            let caps = format!("video/x-raw,format={format},width={width},height={height}");
            let alone = Input::test(6, &caps);
            let tee = "tee name=t t. ! queue ! fakesink async=false sync=false t. ! queue";
            let shared = Input { resident: format!("{} ! {tee}", alone.resident), host: alone.host.clone() };
            for (cover, mode) in covers.iter().flat_map(|cover| ["inside", "outside"].map(|mode| (cover, mode))) {
                let blur = format!("cudagaussblur region-mode={mode} {cover} {ZONES}");
                let in_place = if mode == "inside" { "frames-untouched:1 frames-in-place:5" } else { "" };
                for (input, from, after, to, counts) in [
                    (&alone, Host, RAW, Host, in_place),
                    (&alone, Cuda, DOWN, Cuda, in_place),
                    (&alone, Cuda, RAW, Host, ""),
                    (&alone, Host, DOWN, Cuda, ""),
                    (&shared, Cuda, DOWN, Cuda, ""),
                ] {
                    compared += check(&(from, &blur, after, to, counts), input);
                }
            }
        }
        println!("{compared} frames under {}: 0 bytes differ", gst::version_string());
    }

    fn restarts(&self) {
        let resident = "cudagaussblur sigma=2 ! cudagaussblur sigma=9";
        let Input { host, .. } = Input::test(3, &self.nv12());
        for line in [
            format!("{host} ! cudaupload ! {CUDA} ! {resident} ! {DOWN} fakesink"),
            format!("{host} ! cudagaussblur max-in-flight=3 ! {CUDA} ! cudagaussblur ! video/x-raw ! fakesink"),
        ] {
            let pipeline = pipeline(&line);
            let round = |_| {
                run_to_end(&pipeline);
                pipeline.set_state(gst::State::Null).unwrap();
                (self.in_use)()
            };
            let in_use: Vec<_> = (0..50).map(round).collect();
            println!("in use after every round: {in_use:?}");
            let grows = |(early, late): (&i64, &i64)| *late > early + self.slack;
            assert!(!in_use[self.settled].iter().zip(&in_use[49]).any(grows), "{line}: {in_use:?}");
        }
    }
}

/// The formats in the source caps of an element for CUDA memory.
fn formats_of(element: &str) -> Vec<String> {
    let pads = gst::ElementFactory::find(element).unwrap().static_pad_templates();
    let caps = pads.iter().find(|pad| pad.direction() == gst::PadDirection::Src).unwrap().caps();
    let on_device = caps.iter_with_features().find(|(_, features)| features.contains("memory:CUDAMemory"));
    let formats = on_device.unwrap().0.get::<gst::List>("format").unwrap();
    formats.iter().map(|format| format.get().unwrap()).collect()
}
