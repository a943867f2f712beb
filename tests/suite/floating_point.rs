//! The floating-point environment of the threads that call the element: another rounding mode, or denormals that count as 0,
//! change no byte, and it is theirs again when a call returns.

use gst::prelude::*;
use gst_video::prelude::*;
use gst_video::{VideoFormat, VideoRegionOfInterestMeta};

use crate::common::Noise;
use crate::common::cases;
use crate::common::covered::{buffer, info, noise};
use crate::common::floats::{self, Environment};
use crate::common::video::{FRAME, element};
use gstcudagaussblur::element::formats as layouts;
use gstcudagaussblur::filter::frame::PlaneLayout;
use gstcudagaussblur::filter::regions::Area;
use gstcudagaussblur::filter::weights::{Edge, Mask, Object, Shape, Weights};

/// What `work` returns with each environment, on a thread of its own; the default comes first.
fn with_each<T: Send>(work: impl Fn(Environment) -> T + Sync) -> Vec<(Environment, T)> {
    let on_thread = |environment: Environment| {
        let run = || environment.run(|| work(environment));
        std::thread::scope(|scope| scope.spawn(run).join().unwrap())
    };
    Environment::all().into_iter().map(|environment| (environment, on_thread(environment))).collect()
}

/// A started element with properties that were set without an environment: GStreamer reads numbers from texts as it says.
fn harness(element: &gst::Element, info: &gst_video::VideoInfo) -> gst_check::Harness {
    let mut harness = gst_check::Harness::with_element(element, Some("sink"), Some("src"));
    harness.play();
    harness.set_src_caps(info.to_caps().unwrap());
    harness
}

/// The bytes of a frame without those between its rows.
fn bytes(info: &gst_video::VideoInfo, frame: &gst::BufferRef) -> Vec<u8> {
    let frame = gst_video::VideoFrameRef::from_buffer_ref_readable(frame, info).unwrap();
    let plane = |(index, layout): (usize, &PlaneLayout)| {
        let rows = frame.plane_data(index as u32).unwrap().chunks(frame.plane_stride()[index] as usize);
        rows.take(layout.height as usize).flat_map(|row| row[..layout.row_bytes()].to_vec()).collect::<Vec<u8>>()
    };
    layouts::planes(info, false).unwrap().iter().enumerate().flat_map(plane).collect()
}

/// Compares the frames of each environment with those of the default, of which `sources` are covered.
#[track_caller]
fn check(what: &str, all: &[(Environment, Vec<Vec<u8>>)], sources: &[Vec<u8>]) {
    let (_, expected) = &all[0];
    assert!(expected.iter().zip(sources).any(|(frame, source)| frame != source), "{what}: nothing is covered");
    let mut wrong = Vec::new();
    for (environment, frames) in &all[1..] {
        for (number, (got, want)) in frames.iter().zip(expected).enumerate().filter(|(_, (got, want))| got != want) {
            let differing = got.iter().zip(want).filter(|(got, want)| got != want).count();
            let covered = want.iter().zip(&sources[number]).filter(|(want, source)| want != source).count();
            let open = want.iter().zip(got).zip(&sources[number]);
            let open = open.filter(|((want, got), source)| want != source && got == source).count();
            wrong.push(format!(
                "{environment:?}: frame {number}: {differing} bytes differ, {open} of {covered} are open"
            ));
        }
    }
    assert!(wrong.is_empty(), "{what}:\n{}", wrong.join("\n"));
}

/// Of boxes, ellipses and masks, with zones at fractions of the picture and objects that are followed, predicted and held.
#[test]
fn covers_are_the_same() {
    const FRAMES: usize = 9;
    let info = info(VideoFormat::I42010le, [161, 108]);
    let pictures: Vec<_> = (0..FRAMES as u64).map(|seed| buffer(&info, &noise(&info, seed))).collect();
    let sources: Vec<Vec<u8>> = pictures.iter().map(|picture| bytes(&info, picture)).collect();
    let zone = |x: f64| {
        let zone = gst::Structure::builder("zone").field("x", x).field("y", 0.1).field("width", 0.3);
        zone.field("height", 0.7).build().to_send_value()
    };
    let samples: Vec<u8> = Noise(4).bytes(40 * 30).iter().map(|sample| if *sample > 60 { 255 } else { 0 }).collect();
    let caps =
        gst::Caps::builder("video/x-raw").field("format", "GRAY8").field("width", 40).field("height", 30).build();
    let mask = gst::Sample::builder().caps(&caps).buffer(&gst::Buffer::from_slice(samples)).build();
    let mask = gst::Structure::builder("mask").field("sample", mask).build();
    for properties in [
        "cover=fill feather=12",
        "cover=fill feather=12 shape=ellipse",
        "cover=fill feather=6 shape=mask fill-color=0xff40a060",
        "cover=blur feather=8 strength=0.3 sigma=3",
        "cover=blur shape=ellipse strength=0.17 sigma=1.1",
        "cover=mosaic cells=5 shape=ellipse grow=-3",
        "cover=mosaic cells=7 expand=0.13",
        "cover=blur strength=0.21 expand=0.07 look-ahead=3",
        "cover=blur region-mode=outside shape=mask sigma=9 feather=5",
        "cover=fill region-mode=outside shape=ellipse grow=4 feather=7",
    ] {
        let all = with_each(|environment| {
            // Read from text without the environment, as by a program that sets it later.
            let element = Environment::DEFAULT
                .run(|| element(&format!("backend=cpu region-mode=inside on-missing=pass {properties}")));
            element.set_property("zones", gst::Array::new([zone(0.1), zone(0.7)]));
            element.set_property("min-confidence", 0.3);
            let mut harness = harness(&element, &info);
            let mut output = Vec::new();
            for (number, picture) in pictures.iter().enumerate() {
                let mut frame = picture.copy_deep().unwrap();
                let frame_mut = frame.get_mut().unwrap();
                frame_mut.set_pts(FRAME * number as u64);
                frame_mut.set_duration(FRAME);
                // Found in four frames, then held.
                if number < 5 && number != 3 {
                    let at = 20 + 7 * number as u32;
                    let mut meta = VideoRegionOfInterestMeta::add(frame_mut, "face", (at, 23, 41 + number as u32, 37));
                    meta.add_param(mask.clone());
                }
                harness.push(frame).unwrap();
                assert_eq!(floats::current(), environment, "after a frame");
                output.extend(harness.try_pull());
            }
            harness.push_event(gst::event::Eos::new());
            assert_eq!(floats::current(), environment, "after the end");
            output.extend(std::iter::from_fn(|| harness.try_pull()));
            assert_eq!(output.len(), FRAMES);
            output.iter().map(|frame| bytes(&info, frame)).collect()
        });
        check(properties, &all, &sources);
    }
}

/// Of every σ and kernel size of the case table, at 16 bits, which show each unit of a tap, and in chroma at half of it.
#[test]
fn blurs_are_the_same() {
    let mut blurs: Vec<(f64, u32)> = Vec::new();
    for case in cases::all() {
        let params = case.options.params;
        blurs.extend(Some((params.sigma(), params.kernel_size())).filter(|blur| !blurs.contains(blur)));
    }
    // Denormal, and a sum of squares that is.
    blurs.extend([(1e-310, 0), (1e-310, 7), (1e-160, 3)]);
    for format in [VideoFormat::Gray16Le, VideoFormat::Yuy2] {
        let info = info(format, [97, 31]);
        let picture = buffer(&info, &noise(&info, 1));
        let all = with_each(|environment| {
            let element = element("");
            element.set_property_from_str("backend", "cpu");
            let mut harness = harness(&element, &info);
            let blurred = |(sigma, kernel_size): &(f64, u32)| {
                element.set_property("kernel-size", kernel_size);
                element.set_property("sigma", sigma);
                harness.push(picture.copy_deep().unwrap()).unwrap();
                assert_eq!(floats::current(), environment, "after a frame");
                bytes(&info, &harness.pull().unwrap())
            };
            blurs.iter().map(blurred).collect()
        });
        let sources = vec![bytes(&info, &picture); blurs.len()];
        check(&format!("{format:?} {blurs:?}"), &all, &sources);
    }
}

/// Without the element, too: weights of boxes and masks are whole numbers.
#[test]
fn weights_are_the_same() {
    let area = Area::from_corner(31.0, 17.0, 70.0, 50.0);
    let samples = Noise(5).bytes(50 * 40).into_iter().map(|sample| if sample > 60 { 255 } else { 90 }).collect();
    let mask = Mask::new(50, 40, samples, Area::from_corner(60.0, 40.0, 80.0, 60.0)).unwrap();
    let objects = [Object { area, shape: Shape::Box }, Object { area, shape: Shape::Mask(mask) }];
    for size in [(161, 108), (1920, 1080)] {
        for feather in [1, 5, 16, 40, 128] {
            let edge = Edge { grow: 2, feather };
            let all = with_each(|_| {
                let weights = [Weights::inside(size, &objects, edge), Weights::outside(size, &objects, edge)];
                weights.map(|weights| weights.nodes().2.to_vec()).to_vec()
            });
            let nothing: Vec<Vec<u8>> = all[0].1.iter().map(|weights| vec![0; weights.len()]).collect();
            check(&format!("{size:?} feather {feather}"), &all, &nothing);
        }
    }
}
