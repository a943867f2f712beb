//! The time of regions on the CPU, as fractions of the time of the whole frame in the same run.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::borrowed::{Borrowing, FrameMut, pair};
use gst::prelude::*;
use gst_video::{VideoFormat, VideoInfo};
use gstcudagaussblur::cpu::{CpuEngine, TILES};
use gstcudagaussblur::element::format::formats;
use gstcudagaussblur::engine::{BlurRegion, Cover, Engine, FrameAccess, Hide};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::{Frame, FramePair, Plane, PlaneLayout};
use gstcudagaussblur::filter::mosaic::MosaicRegion;
use gstcudagaussblur::filter::parts::Job;
use gstcudagaussblur::filter::plan::{Plan, Selection};
use gstcudagaussblur::filter::regions::{Area, Rect, disjoint, outside};
use gstcudagaussblur::regions::detection::Detection;
use gstcudagaussblur::regions::tracks::{Holding, Tracks};

const SIGMAS: [f64; 4] = [3.0, 5.0, 10.0, 40.0];
const FORMATS: [VideoFormat; 2] = [VideoFormat::Nv12, VideoFormat::Rgba];
/// Width and height of a box.
const BOX: [u32; 2] = [160, 200];
/// The corners of the boxes.
const PLACES: [(&str, &[[u32; 2]]); 3] = [
    ("one, in the middle", &[[880, 440]]),
    ("three, apart", &[[203, 151], [1301, 601], [1557, 97]]),
    ("three, side by side", &[[703, 351], [911, 363], [1103, 347]]),
];
const ROUNDS: usize = 31;

/// The layouts' planes in memory without padding.
pub fn frame<'a>(planes: &[PlaneLayout], memory: &'a mut [Vec<u8>]) -> FrameMut<'a> {
    let plane = |(layout, data): (&PlaneLayout, &'a mut Vec<u8>)| Plane {
        layout: *layout,
        pitch: layout.row_bytes(),
        data: &mut data[..],
    };
    planes.iter().zip(memory).map(plane).collect()
}

/// The milliseconds of a call.
fn time(work: impl FnOnce()) -> f64 {
    let begun = Instant::now();
    work();
    begun.elapsed().as_secs_f64() * 1e3
}

/// Prints the table.
pub fn print(width: u32, height: u32) {
    println!(
        "\nTime in place as a fraction of that of the whole frame (medians of {ROUNDS} rounds), and the share of the"
    );
    println!("samples that are covered and that are read:\n");
    println!("| format | boxes of {}x{} | cover | whole frame, ms | fraction | covered | read |", BOX[0], BOX[1]);
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for format in FORMATS {
        let info = VideoInfo::builder(format, width, height).build().expect("a format of the element");
        let planes = formats::planes(&info, false).expect("a format of the element");
        let samples = |plane: &PlaneLayout| plane.row_samples() * plane.height as usize;
        let all: usize = planes.iter().map(samples).sum();
        let noise = |plane: &PlaneLayout| (0..samples(plane)).map(|i| ((i * 0x9e37) >> 7) as u8).collect();
        let mut memory: Vec<Vec<u8>> = planes.iter().map(noise).collect();
        let mut output = memory.clone();
        for (name, corners) in PLACES {
            let rect = |corner: &[u32; 2]| Rect::new(corner[0], corner[1], BOX[0], BOX[1]).expect("a rectangle");
            let rects: Vec<Rect> = corners.iter().map(rect).collect();
            let covered = (rects.len() as u32 * BOX[0] * BOX[1]) as f64 / f64::from(width * height);
            for sigma in SIGMAS {
                let params = BlurParams::new(sigma, 0).expect("usable");
                let regions = rects.iter().map(|rect| BlurRegion { rect: *rect, params }).collect();
                let cover = Cover::from(Hide::Blur { planes: Selection::ALL, regions });
                let plan = |options| Arc::new(Plan::new(options, &planes));
                let job = Job::cover(Plan::cover(&cover, &planes, plan), TILES);
                let reads = job.accesses.expect("a cover").reads;
                let of_plane = |plane: usize| {
                    let rects: Vec<Rect> =
                        reads.iter().filter(|(of, _)| *of == plane).map(|(_, read)| read.rect).collect();
                    let area: u64 = disjoint(&rects).iter().map(|rect| rect.area()).sum();
                    area * u64::from(planes[plane].channels)
                };
                let read: u64 = (0..planes.len()).map(of_plane).sum();
                let mut engines = [(); 2].map(|()| Engine::with_cpu(CpuEngine::new()));
                let mut times = [Vec::new(), Vec::new()];
                for _ in 0..ROUNDS {
                    times[0].push(time(|| {
                        let whole = source(&planes, &memory);
                        engines[0].blur(params, &whole, &mut frame(&planes, &mut output)).expect("a blur");
                    }));
                    times[1].push(time(|| {
                        engines[1].cover(&cover, &mut frame(&planes, &mut memory)).expect("a cover");
                    }));
                }
                let [whole, regions] = times.map(super::median);
                println!(
                    "| {} | {name} | blur, sigma={sigma} | {whole:.2} | {:.3} | {covered:.3} | {:.3} |",
                    format.to_str(),
                    regions / whole,
                    read as f64 / all as f64
                );
            }
            let objects = |rect: &Rect| {
                let [x, y] = [rect.x(), rect.y()].map(f64::from);
                let object = Area::from_corner(x, y, BOX[0].into(), BOX[1].into());
                MosaicRegion::new(*rect, object, 6)
            };
            let objects: Vec<MosaicRegion> = rects.iter().map(objects).collect();
            let mut engine = Engine::with_cpu(CpuEngine::new());
            let mosaic = Cover::from(Hide::Mosaic(objects));
            let fill = Cover::from(Hide::Fill { rects: rects.clone(), values: vec![[16; 4]; planes.len()] });
            let [mosaics, fills] = [&mosaic, &fill].map(|cover| {
                let mut time =
                    || time(|| drop(engine.cover(cover, &mut frame(&planes, &mut memory)).expect("a cover")));
                super::median((0..ROUNDS).map(|_| time()).collect::<Vec<_>>())
            });
            println!("| {} | {name} | mosaic: {mosaics:.3} ms, fill: {fills:.3} ms | | | | |", format.to_str());
        }
        let shown = Rect::new(width / 3, height / 4, width / 3, height / 2).expect("a rectangle");
        let picture = Area::from_corner(0.0, 0.0, width.into(), height.into());
        let background = outside(&[shown], width, height);
        let cells = background.into_iter().map(|rect| MosaicRegion::new(rect, picture, 6)).collect();
        let (mut engine, cover) = (Engine::with_cpu(CpuEngine::new()), Cover::from(Hide::Mosaic(cells)));
        let mut time = || time(|| drop(engine.cover(&cover, &mut frame(&planes, &mut memory)).expect("a cover")));
        let background = super::median((0..ROUNDS).map(|_| time()).collect::<Vec<_>>());
        println!("| {} | all but a sixth of the picture | mosaic: {background:.3} ms | | | | |", format.to_str());
    }
}

/// A frame that is covered in another buffer.
struct Pair<'a> {
    planes: &'a [PlaneLayout],
    source: &'a [Vec<u8>],
    destination: &'a mut [Vec<u8>],
}

// SAFETY: the memory is borrowed, and the CPU engine is done with it when `submit` returns.
unsafe impl FrameAccess for Pair<'_> {
    fn frames(&mut self) -> FramePair {
        pair(&source(self.planes, self.source), &mut frame(self.planes, self.destination))
    }
}

/// The time of covers into another buffer, which copy the rest of the frame, beside those in place and the engine's copy of a frame
/// by all threads.
pub fn print_copies(width: u32, height: u32) {
    println!("\nThree boxes of {}x{} in {width}x{height}, ms (medians of {ROUNDS} rounds):\n", BOX[0], BOX[1]);
    println!(
        "| format | cover | in place | into another buffer | a copy by one thread | by all | into another / by all |"
    );
    println!("| --- | --- | --- | --- | --- | --- | --- |");
    for format in FORMATS {
        let info = VideoInfo::builder(format, width, height).build().expect("a format of the element");
        let planes = formats::planes(&info, false).expect("a format of the element");
        let noise = |plane: &PlaneLayout| {
            (0..plane.row_bytes() * plane.height as usize).map(|i| ((i * 0x9e37) >> 7) as u8).collect()
        };
        let memory: Vec<Vec<u8>> = planes.iter().map(noise).collect();
        let (mut in_place, mut output) = (memory.clone(), memory.clone());
        let rect = |corner: &[u32; 2]| Rect::new(corner[0], corner[1], BOX[0], BOX[1]).expect("a rectangle");
        let rects: Vec<Rect> = PLACES[1].1.iter().map(rect).collect();
        let mosaic = |rect: &Rect| {
            let area = Area::from_corner(rect.x().into(), rect.y().into(), BOX[0].into(), BOX[1].into());
            MosaicRegion::new(*rect, area, 6)
        };
        let params = BlurParams::new(10.0, 0).expect("usable");
        let regions = rects.iter().map(|rect| BlurRegion { rect: *rect, params }).collect();
        let covers = [
            ("fill", Hide::Fill { rects: rects.clone(), values: vec![[16; 4]; planes.len()] }),
            ("mosaic", Hide::Mosaic(rects.iter().map(mosaic).collect())),
            ("blur, sigma=10", Hide::Blur { planes: Selection::ALL, regions }),
        ];
        for (name, hide) in covers {
            let (mut engine, cover) = (Engine::with_cpu(CpuEngine::new()), Cover::from(hide));
            let mut times = [const { Vec::new() }; 4];
            for _ in 0..ROUNDS {
                times[0]
                    .push(time(|| drop(engine.cover(&cover, &mut frame(&planes, &mut in_place)).expect("a cover"))));
                times[1].push(time(|| {
                    let pair = Pair { planes: &planes, source: &memory, destination: &mut output };
                    drop(engine.run(&cover, pair).expect("a cover"));
                }));
                times[2].push(time(|| {
                    memory.iter().zip(&mut output).for_each(|(from, to)| to.copy_from_slice(from));
                }));
                times[3].push(time(|| {
                    let pair = Pair { planes: &planes, source: &memory, destination: &mut output };
                    drop(engine.run(&Cover::NOTHING, pair).expect("a copy"));
                }));
            }
            let [in_place, copied, one, all] = times.map(super::median);
            println!(
                "| {} | {name} | {in_place:.3} | {copied:.3} | {one:.3} | {all:.3} | {:.2} |",
                format.to_str(),
                copied / all
            );
        }
    }
}

/// The time of 64 boxes in one frame, as a multiple of 64 times the time of one of them.
pub fn print_many(width: u32, height: u32) {
    println!(
        "\n64 boxes of 48x48 in a frame of {width}x{height} NV12, over 64 times one of them (median of {ROUNDS} rounds):\n"
    );
    println!("| cover | one box, ms | 64 boxes, ms | fraction |");
    println!("| --- | --- | --- | --- |");
    let info = VideoInfo::builder(VideoFormat::Nv12, width, height).build().expect("a format of the element");
    let planes = formats::planes(&info, false).expect("a format of the element");
    let noise = |plane: &PlaneLayout| (0..plane.row_bytes() * plane.height as usize).map(|i| (i * 31) as u8).collect();
    let mut memory: Vec<Vec<u8>> = planes.iter().map(noise).collect();
    let place = |i: u32| Rect::new(i % 8 * (width / 8) + 7 * i % 90, i / 8 * (height / 8) + 5 * i % 60, 48, 48);
    let rects: Vec<Rect> = (0..64).map(|i| place(i).expect("a rectangle")).collect();
    let object = |rect: &Rect| Area::from_corner(rect.x().into(), rect.y().into(), 48.0, 48.0);
    let blur = |sigma: f64| {
        let params = BlurParams::new(sigma, 0).expect("usable");
        move |rects: &[Rect]| {
            let regions = rects.iter().map(|rect| BlurRegion { rect: *rect, params }).collect();
            Cover::from(Hide::Blur { planes: Selection::ALL, regions })
        }
    };
    let mosaics = |rects: &[Rect]| {
        Cover::from(Hide::Mosaic(rects.iter().map(|rect| MosaicRegion::new(*rect, object(rect), 6)).collect()))
    };
    let fills = |rects: &[Rect]| Cover::from(Hide::Fill { rects: rects.to_vec(), values: vec![[16; 4]; planes.len()] });
    type MakeCover<'a> = &'a dyn Fn(&[Rect]) -> Cover;
    let covers: [(&str, MakeCover); 4] =
        [("blur, sigma=3", &blur(3.0)), ("blur, sigma=12", &blur(12.0)), ("mosaic", &mosaics), ("fill", &fills)];
    let mut engine = Engine::with_cpu(CpuEngine::new());
    for (name, cover) in covers {
        let [one, all] = [cover(&rects[27..28]), cover(&rects)];
        let mut times = [Vec::new(), Vec::new()];
        for _ in 0..ROUNDS {
            for (cover, times) in [&one, &all].into_iter().zip(&mut times) {
                times.push(time(|| drop(engine.cover(cover, &mut frame(&planes, &mut memory)).expect("a cover"))));
            }
        }
        let [one, all] = times.map(super::median);
        println!("| {name} | {one:.4} | {all:.3} | {:.3} |", all / one / 64.0);
    }
}

/// The time that the element takes for a frame without regions, beside `identity`.
pub fn print_untouched() {
    const FRAMES: usize = 20_000;
    println!("\nA frame without regions (1080p NV12, from push to pull, median of {FRAMES} in turn):\n");
    println!("| element | ns | bytes copied |");
    println!("| --- | --- | --- |");
    let info = VideoInfo::builder(VideoFormat::Nv12, 1920, 1080).fps((30, 1)).build().expect("a format");
    let lines = [
        "identity",
        "cudagaussblur backend=cpu region-mode=inside",
        "cudagaussblur backend=cpu region-mode=inside zones=<[zone,x=0.1,y=0.1,width=0.1,height=0.1,start=3600]>",
    ];
    let mut harnesses = lines.map(|line| {
        let element = gst::parse::launch(line).expect("elements that exist");
        let mut harness = gst_check::Harness::with_element(&element, Some("sink"), Some("src"));
        harness.set_src_caps(info.to_caps().expect("caps"));
        (harness, element)
    });
    let mut frame = Some(gst::Buffer::with_size(info.size()).expect("memory"));
    let mut times = [const { Vec::new() }; 3];
    for i in 0..FRAMES as u64 {
        for ((harness, _), times) in harnesses.iter_mut().zip(&mut times) {
            let mut input = frame.take().expect("the frame of the previous turn");
            input.get_mut().expect("the only reference").set_pts(gst::ClockTime::from_mseconds(33 * i));
            times.push(time(|| frame = Some(harness.push_and_pull(input).expect("a frame"))) * 1e6);
        }
    }
    for ((line, times), (_, element)) in lines.iter().zip(times).zip(&harnesses) {
        let copied = match element.find_property("sigma") {
            Some(_) => element.property::<gst::Structure>("stats").get::<u64>("bytes-copied").expect("a counter"),
            None => 0,
        };
        println!("| `{line}` | {:.0} | {copied} |", super::median(times));
    }
}

/// The same planes, to be read.
fn source<'a>(planes: &[PlaneLayout], memory: &'a [Vec<u8>]) -> Frame<'a> {
    let plane = |(layout, data): (&PlaneLayout, &'a Vec<u8>)| Plane {
        layout: *layout,
        pitch: layout.row_bytes(),
        data: &data[..],
    };
    planes.iter().zip(memory).map(plane).collect()
}

/// Prints the time of a frame in the tracks: 10 objects that move, all of them found, or every third frame.
pub fn print_tracks() {
    println!(
        "\nTime of a frame in the tracks, 10 objects at 30 frames a second, {FRAMES} frames, µs (mean, slowest of {ROUNDS}):\n"
    );
    println!("| look-ahead | found | mean | slowest |");
    println!("| --- | --- | --- | --- |");
    const FRAMES: u64 = 900;
    let holding = Holding { time: 3_000_000_000, covers_lost: false };
    for (look_ahead, every) in [(0, 1), (0, 3), (15, 1), (30, 1), (30, 3), (120, 1)] {
        let place = |object: u64, frame: u64| {
            let [x, y] = [object % 5, object / 5].map(|n| n as f64);
            let [dx, dy] = [f64::sin, f64::cos].map(|of| 60.0 * of(frame as f64 / 20.0 + object as f64));
            Area::from_corner(200.0 + 350.0 * x + dx, 200.0 + 450.0 * y + dy, 120.0, 140.0)
        };
        let frames: Vec<Vec<Detection>> = (0..FRAMES)
            .map(|frame| {
                let found = (0..10).filter(|_| frame % every == 0).map(|object| place(object, frame));
                let face = |area| Detection { certain: Some(area), ..Detection::new(Some("face".to_owned()), area) };
                found.map(face).collect()
            })
            .collect();
        let mut times: Vec<f64> = (0..ROUNDS)
            .map(|_| {
                let mut tracks = Tracks::default();
                let took = time(|| {
                    for (i, found) in (0..).zip(&frames) {
                        tracks.observe(i * 33_333_333, (1920, 1080), holding, found.iter().map(|one| (one, false)));
                        if i >= look_ahead {
                            std::hint::black_box(tracks.resolve((1920, 1080), holding));
                        }
                    }
                });
                took * 1e3 / FRAMES as f64
            })
            .collect();
        times.sort_by(f64::total_cmp);
        let mean = times.iter().sum::<f64>() / times.len() as f64;
        let found = if every == 1 { "in every frame" } else { "in every third frame" };
        println!("| {look_ahead} | {found} | {mean:.1} | {:.1} |", times[times.len() - 1]);
    }
}

/// The processor time of all threads so far, which does not depend on what else the machine does.
fn processor_time() -> Duration {
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `time` is a valid timespec to write to.
    unsafe { libc::clock_gettime(libc::CLOCK_PROCESS_CPUTIME_ID, &mut time) };
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

/// Prints the processor time of a push of a frame with more detections than there are objects: 1080p NV12 frames with regions of
/// interest, arranged in different ways.
pub fn print_crowds() {
    const FRAMES: u32 = 16;
    const PLACES: [&str; 6] = ["one place", "spread", "random", "moving", "nested", "jumping"];
    println!(
        "\nMany detections in a frame (1080p NV12, {FRAMES} frames in turn, or those of 5 s), ms (median, slowest):\n"
    );
    println!("| detections | arrangement | cover | median | slowest |");
    println!("| --- | --- | --- | --- | --- |");
    let info = VideoInfo::builder(VideoFormat::Nv12, 1920, 1080).fps((30, 1)).build().expect("a format");
    let hash = |seed: u32| {
        (seed.wrapping_mul(0x9e37_79b9) ^ seed.wrapping_mul(0x85eb_ca6b) >> 15).wrapping_mul(0xc2b2_ae35) >> 8
    };
    let place = |name: &str, i: u32, frame: u32| match name {
        "one place" => (900 + hash(i + 7 * frame) % 8, 500 + hash(i + 9 * frame) % 8, 100, 120),
        "spread" => (i % 80 * 24, i / 80 % 64 * 16, 20, 14),
        "random" => (hash(i) % 1900, hash(i + 5_000) % 1060, 10 + hash(i + 9_000) % 90, 10 + hash(i + 11_000) % 90),
        "moving" => ((hash(i) + 6 * frame) % 1900, (hash(i + 5_000) + 3 * frame) % 1060, 40, 40),
        "nested" => (950 - (i % 900), 535 - (i % 500), 20 + 2 * (i % 900), 12 + 2 * (i % 500)),
        _ => (hash(i + frame * 77_777) % 1900, hash(i + 5_000 + frame * 77_777) % 1060, 40, 40),
    };
    let settings = [
        "cover=fill",
        "cover=blur",
        "cover=mosaic",
        "cover=fill shape=ellipse",
        "cover=blur shape=ellipse feather=8",
        "cover=fill look-ahead=5 on-lost=cover",
        "cover=blur region-mode=outside",
        "cover=fill region-mode=outside",
        "cover=fill region-mode=outside shape=ellipse",
        "cover=blur region-mode=outside shape=ellipse",
    ];
    let only = std::env::args().find_map(|argument| argument.strip_prefix("only=").map(str::to_owned));
    for count in [256, 1000, 5000] {
        for (arrangement, setting) in PLACES.iter().flat_map(|place| settings.map(|setting| (*place, setting))) {
            for labels in [1, 7] {
                let name = format!("{count} | {arrangement}, {labels} labels | `{setting}`");
                if only.as_ref().is_some_and(|only| !name.contains(only)) {
                    continue;
                }
                let mode = if setting.contains("region-mode") { "" } else { "region-mode=inside" };
                let element =
                    gst::parse::launch(&format!("cudagaussblur backend=cpu {mode} {setting}")).expect("the element");
                let mut harness = gst_check::Harness::with_element(&element, Some("sink"), Some("src"));
                harness.set_src_caps(info.to_caps().expect("caps"));
                let begun = Instant::now();
                let mut times = Vec::new();
                for frame in 0..FRAMES {
                    let mut input = gst::Buffer::from_mut_slice(vec![77; info.size()]);
                    let buffer = input.get_mut().expect("the only reference");
                    buffer.set_pts(gst::ClockTime::from_mseconds(33 * u64::from(frame)));
                    for i in 0..count {
                        let (x, y, width, height) = place(arrangement, i, frame);
                        let label = ["face", "plate", "person", "car", "dog", "cat", "bus"][i as usize % labels];
                        let rect = (x, y, width, height);
                        let mut meta = gst_video::VideoRegionOfInterestMeta::add(buffer, label, rect);
                        if labels > 1 {
                            let id = gst::Structure::builder("object_id").field("id", i as i32);
                            meta.add_param(id.build());
                            let confidence = f64::from(i % 100) / 100.0;
                            meta.add_param(
                                gst::Structure::builder("detection").field("confidence", confidence).build(),
                            );
                        }
                    }
                    let before = processor_time();
                    _ = harness.push(input).expect("a frame");
                    times.push((processor_time() - before).as_secs_f64() * 1e3);
                    while harness.try_pull().is_some() {}
                    if begun.elapsed().as_secs() >= 5 {
                        break;
                    }
                }
                let slowest = times.iter().copied().fold(0.0, f64::max);
                println!("| {name} | {:.1} | {slowest:.1} |", super::median(times));
            }
        }
    }
}
