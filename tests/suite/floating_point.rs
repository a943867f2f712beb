//! The floating-point environment of the threads that call the element: another rounding mode, or denormals that count as 0,
//! change no byte, and it is theirs again when a call returns.

use gst::prelude::*;
use gst_video::VideoFormat;
use gst_video::prelude::*;

use crate::common::Noise;
use crate::common::cases;
use crate::common::floats::{self, Environment};
use crate::common::stream::{Stream, mask, mask_param, with_param};

/// The bytes of a frame without those between its rows.
fn bytes(stream: &Stream, frame: &gst::Buffer) -> Vec<u8> {
    let frame = gst_video::VideoFrameRef::from_buffer_ref_readable(frame, &stream.info).unwrap();
    let planes = stream.picture.planes.iter().zip(frame.plane_stride()).enumerate();
    let rows = planes.flat_map(|(plane, (layout, stride))| {
        let rows = frame.plane_data(plane as u32).unwrap().chunks(*stride as usize).take(layout.height as usize);
        rows.map(|row| &row[..layout.row_bytes()])
    });
    rows.collect::<Vec<_>>().concat()
}

/// Plays a stream with each environment, on a thread of its own, and compares the bytes of its frames with those of the default. The
/// properties are set before, because GStreamer reads numbers from texts as the environment says.
#[track_caller]
fn check(format: VideoFormat, properties: &str, play: impl Fn(&mut Stream) + Sync) {
    let run = |environment: Environment| {
        let mut stream = Stream::new(format, properties);
        environment.run(|| {
            stream.element.set_state(gst::State::Ready).unwrap();
            stream.harness.play();
            stream.enter("stream-start caps segment");
            play(&mut stream);
        });
        let frames: Vec<Vec<u8>> = stream.outputs().iter().map(|frame| bytes(&stream, frame)).collect();
        (bytes(&stream, &stream.frame()), frames)
    };
    let on_thread = |environment| std::thread::scope(|scope| scope.spawn(|| run(environment)).join().unwrap());
    let (source, expected) = on_thread(Environment::DEFAULT);
    assert!(expected.iter().any(|frame| *frame != source), "{properties}: nothing is covered");
    for environment in &Environment::all()[1..] {
        let (_, frames) = on_thread(*environment);
        assert_eq!(frames.len(), expected.len(), "{environment:?}: {properties}");
        for (number, (got, want)) in frames.iter().zip(&expected).enumerate() {
            let differing = got.iter().zip(want).filter(|(got, want)| got != want).count();
            assert_eq!(differing, 0, "{environment:?}: bytes of frame {number} of {format:?}, {properties}");
        }
    }
}

/// Calls the element, after which the environment of the thread is still that of before.
fn keeps_environment(call: impl FnOnce()) {
    let before = floats::current();
    call();
    assert_eq!(floats::current(), before);
}

/// Of boxes, ellipses and masks, with zones at fractions of the picture and objects that are followed, predicted and held.
#[test]
fn covers_are_the_same() {
    let zones = "zones=<[zone,x=0.1,y=0.1,width=0.3,height=0.7],[zone,x=0.7,y=0.1,width=0.3,height=0.7]>";
    let samples = Noise(4).bytes(40 * 30);
    let mask = mask([40, 30], |x, y| if samples[(y * 40 + x) as usize] > 60 { 255 } else { 0 });
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
        let properties = format!("on-missing=pass min-confidence=0.3 {zones} {properties}");
        check(VideoFormat::I42010le, &properties, |stream| {
            for number in 0..9 {
                let mut frame = stream.frame();
                // Found in four frames, then held.
                if number < 5 && number != 3 {
                    let place = (2 + 7 * number, 13, 41 + number, 37);
                    frame = with_param(frame, "face", place, Some(mask_param(mask.clone())));
                }
                keeps_environment(|| stream.push(frame));
            }
            keeps_environment(|| _ = stream.enter("eos"));
        });
    }
}

/// Of every σ and kernel size of the case table, at 16 bits, which show each unit of a tap, and in chroma at half of it.
#[test]
fn blurs_are_the_same() {
    // Denormal, and a sum of squares that is.
    let mut blurs: Vec<(f64, u32)> = vec![(1e-310, 0), (1e-310, 7), (1e-160, 3)];
    for params in cases::all().into_iter().map(|case| case.options.params) {
        blurs.extend(Some((params.sigma(), params.kernel_size())).filter(|blur| !blurs.contains(blur)));
    }
    for format in [VideoFormat::Gray16Le, VideoFormat::Yuy2] {
        check(format, "region-mode=frame", |stream| {
            for (sigma, kernel_size) in &blurs {
                stream.element.set_property("kernel-size", kernel_size);
                stream.element.set_property("sigma", sigma);
                let frame = stream.frame();
                keeps_environment(|| stream.push(frame));
            }
        });
    }
}
