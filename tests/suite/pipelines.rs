//! Pipelines from seeds, beside themselves without the element: playlists whose parts differ, anamorphic, interlaced, turned, by RTP
//! with loss, cut off, with timestamps that are missing, repeated or of no rate. A tee gives both the same buffers.
//! `CUDAGAUSSBLUR_LIVES=SECONDS` runs longer, from `CUDAGAUSSBLUR_SEED=NUMBER` on.

use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use gst::prelude::*;
use gst_video::{VideoFrame, VideoInfo};

use super::tracks::Random;
use crate::common::Noise;
use crate::common::pipes::pipeline;
use crate::common::video;

const PIPELINES: u64 = 60;
/// The only zone: left, top, width and height.
const ZONE: [f64; 4] = [0.25, 0.2, 0.5, 0.55];
/// Samples of chroma, of which one stands for up to 4 x 4 pixels and two fields, and their interpolation reach so many pixels beyond the
/// zone and into it.
const MARGIN: f64 = 12.0;

/// A part of the playlist: the source and how its frames come to the element.
fn part(dice: &mut Random) -> String {
    let formats = video::formats();
    let format = dice.pick(&formats).to_str();
    // GStreamer's own converter reads beyond pictures of fewer rows, and then gives other bytes each time.
    let (width, height) = (dice.pick(&[1, 2, 17, 48, 64, 97, 160]), dice.pick(&[16, 17, 48, 64, 97, 160]));
    let rate = dice.pick(&["25/1", "25/1", "30000/1001", "5/1", "120/1"]);
    let aspect = dice.pick(&["1/1", "1/1", "16/11", "1/2"]);
    let interlace = dice.pick(&["progressive", "progressive", "interleaved", "mixed"]);
    let carrier = match dice.below(8) {
        0 => " ! videoconvert ! jpegenc ! rtpjpegpay mtu=300 ! identity name=loss ! rtpjpegdepay ! jpegdec",
        1 => {
            " ! videoconvert ! vp8enc deadline=1 cpu-used=8 ! rtpvp8pay mtu=200 ! identity name=loss ! rtpvp8depay ! vp8dec"
        }
        2 => " ! videoconvert ! jpegenc ! matroskamux streamable=true ! identity name=cut ! matroskademux ! jpegdec",
        3 => " ! videorate ! video/x-raw,framerate=50/1",
        4 => " ! taginject tags=image-orientation=rotate-90",
        5 => " ! taginject tags=image-orientation=rotate-180 ! videoconvert ! videoflip video-direction=auto",
        _ => "",
    };
    let width = if carrier.contains("enc") { 16.max(width) } else { width };
    let interlace = if carrier.contains("convert") { "progressive" } else { interlace };
    let frames = 1 + dice.below(9);
    format!(
        "videotestsrc pattern=snow num-buffers={frames} ! video/x-raw,format={format},width={width},height={height},\
         framerate={rate},pixel-aspect-ratio={aspect} ! capssetter caps=video/x-raw,interlace-mode={interlace}{carrier} ! playlist. "
    )
}

fn line(dice: &mut Random) -> String {
    let parts: String = (0..1 + dice.below(3)).map(|_| part(dice)).collect();
    // The same name may stand for several elements of a playlist.
    let parts = (0..).zip(parts.split("name=")).fold(String::new(), |line, (number, text)| match number {
        0 => text.to_owned(),
        _ => format!("{line}name=n{number}-{text}"),
    });
    let [x, y, width, height] = ZONE;
    let settings = format!("look-ahead={} max-in-flight={}", dice.pick(&[0, 0, 1, 5, 15]), dice.pick(&[1, 1, 3]));
    let behind = dice.pick(&["", " ! queue", " ! identity drop-allocation=true"]);
    let end = "videoconvert ! video/x-raw,format=RGBA ! appsink sync=false";
    format!(
        "concat name=playlist ! identity name=disturbed ! tee name=both ! queue ! identity name=plain{behind} ! {end} name=plain-sink \
         both. ! queue ! cudagaussblur name=blur region-mode=inside region-sources=zones on-missing=pass cover=fill {settings} \
         zones=<[zone,x={x},y={y},width={width},height={height}]> {behind} ! {end} name=blur-sink {parts}"
    )
}

/// Disturbs the buffers of a pad, always in the same way.
fn disturb(element: &gst::Element, seed: u64) {
    let name = element.name();
    let (kind, dice) = (name.split('-').next_back().unwrap().to_owned(), Mutex::new(Random(Noise(seed))));
    element.static_pad("src").unwrap().add_probe(
        gst::PadProbeType::BUFFER | gst::PadProbeType::BUFFER_LIST,
        move |_, probe| {
            let chance = dice.lock().unwrap().below(100);
            match (&mut probe.data, &kind[..]) {
                (_, "loss") if chance < 8 => return gst::PadProbeReturn::Drop,
                (Some(gst::PadProbeData::Buffer(buffer)), "cut") if chance < 10 => {
                    let half = buffer.size() / 2;
                    buffer.make_mut().set_size(half);
                }
                (Some(gst::PadProbeData::Buffer(buffer)), "disturbed") if seed.is_multiple_of(3) => {
                    let times = buffer.make_mut();
                    match chance {
                        0..10 => return gst::PadProbeReturn::Drop,
                        10..20 => times.set_pts(gst::ClockTime::NONE),
                        20..30 => times.set_pts(times.pts().map(|pts| pts / 2)),
                        30..40 => times.set_duration(gst::ClockTime::NONE),
                        _ => (),
                    }
                }
                _ => (),
            }
            gst::PadProbeReturn::Ok
        },
    );
}

/// What leaves a pad, in order.
fn record(pad: &gst::Pad) -> Arc<Mutex<Vec<String>>> {
    let all = Arc::new(Mutex::new(Vec::new()));
    let record = Arc::clone(&all);
    pad.add_probe(gst::PadProbeType::BUFFER | gst::PadProbeType::EVENT_DOWNSTREAM, move |_, probe| {
        let text = match &probe.data {
            Some(gst::PadProbeData::Buffer(buffer)) => {
                let is_discont = buffer.flags().contains(gst::BufferFlags::DISCONT);
                format!("frame {:?} {:?}, DISCONT {is_discont}", buffer.pts(), buffer.duration())
            }
            Some(gst::PadProbeData::Event(event)) => match event.view() {
                gst::EventView::Caps(caps) => caps.caps().to_string(),
                gst::EventView::Segment(segment) => format!("{:?}", segment.segment()),
                gst::EventView::Tag(tags) => tags.tag().to_string(),
                _ => format!("{:?}", event.type_()),
            },
            _ => return gst::PadProbeReturn::Ok,
        };
        record.lock().unwrap().push(text);
        gst::PadProbeReturn::Ok
    });
    all
}

/// What is wrong with a covered picture of RGBA.
fn compare(number: usize, plain: &gst::Sample, covered: &gst::Sample) -> Result<(), String> {
    let info = VideoInfo::from_caps(plain.caps().unwrap()).unwrap();
    let frame = |sample: &gst::Sample| VideoFrame::from_buffer_readable(sample.buffer_owned().unwrap(), &info).unwrap();
    let (plain, covered) = (frame(plain), frame(covered));
    let (stride, [width, height]) = (info.stride()[0] as usize, [info.width(), info.height()].map(f64::from));
    let [left, top] = [ZONE[0] * width, ZONE[1] * height];
    let [right, bottom] = [left + ZONE[2] * width, top + ZONE[3] * height];
    let mut places = (0..info.height()).flat_map(|y| (0..info.width()).map(move |x| (x, y)));
    let wrong = places.find_map(|(x, y)| {
        let place = y as usize * stride + 4 * x as usize;
        let [plain, covered] = [&plain, &covered].map(|frame| &frame.plane_data(0).unwrap()[place..place + 3]);
        let [from_x, from_y] = [f64::from(x), f64::from(y)];
        let beyond = [left - from_x - 1.0, from_x - right, top - from_y - 1.0, from_y - bottom];
        let beyond = beyond.into_iter().fold(f64::MIN, f64::max);
        let is_wrong =
            beyond >= MARGIN && plain != covered || beyond <= -MARGIN && covered.iter().any(|sample| *sample > 3);
        is_wrong.then(|| format!("frame {number}: {covered:?} in place of {plain:?} at {x}, {y}"))
    });
    wrong.map_or(Ok(()), Err)
}

/// What is wrong with the pipeline of a seed; else how many frames it compared.
fn run(seed: u64) -> Result<usize, String> {
    let line = line(&mut Random(Noise(seed)));
    let pipeline = pipeline(&line);
    for element in pipeline.iterate_elements().into_iter().flatten() {
        if ["loss", "cut", "disturbed"].iter().any(|kind| element.name().ends_with(kind)) {
            disturb(&element, seed);
        }
    }
    let pads = ["plain", "blur"].map(|name| record(&pipeline.by_name(name).unwrap().static_pad("src").unwrap()));
    let bus = pipeline.bus().unwrap();
    // An error of that is on the bus.
    pipeline.set_state(gst::State::Playing).ok();
    let mut samples = ["plain-sink", "blur-sink"].map(|_| Vec::new());
    let end = std::thread::scope(|scope| {
        for (sink, samples) in ["plain-sink", "blur-sink"].into_iter().zip(&mut samples) {
            let sink = pipeline.by_name(sink).unwrap().downcast::<gst_app::AppSink>().unwrap();
            // Until it ends or is stopped.
            scope.spawn(move || *samples = std::iter::from_fn(|| sink.pull_sample().ok()).collect());
        }
        let ends = [gst::MessageType::Error, gst::MessageType::Eos];
        // A pipeline that does not end is stopped when nothing has moved in it for a while.
        let moved = || pads.each_ref().map(|pad| pad.lock().unwrap().len());
        let end = loop {
            let before = moved();
            let end = bus.timed_pop_filtered(gst::ClockTime::from_seconds(10), &ends);
            if end.is_some() || moved() == before {
                break end;
            }
        };
        pipeline.set_state(gst::State::Null).unwrap();
        end
    });
    let [plain, covered] = samples;
    let [plain_out, covered_out] = pads.map(|pad| pad.lock().unwrap().clone());
    let is_of_blur = |error: &gst::Message| error.src().is_some_and(|source| source.name() == "blur");
    let result = match &end {
        Some(end) if end.type_() == gst::MessageType::Eos && plain_out != covered_out => {
            Err(format!("{plain_out:#?}\nbut\n{covered_out:#?}"))
        }
        Some(end) if end.type_() == gst::MessageType::Eos && plain.len() != covered.len() => {
            Err(format!("{} of {} frames", covered.len(), plain.len()))
        }
        Some(error) if is_of_blur(error) => Err(format!("{:?}", error.structure())),
        None if plain_out.last().is_some_and(|last| last == "Eos") => Err("it does not end".to_owned()),
        // Somebody else's error ends both, but not at the same frame, and a decoder that got nothing may end neither.
        _ => (0..)
            .zip(plain.iter().zip(&covered))
            .try_for_each(|(number, (plain, covered))| compare(number, plain, covered)),
    };
    result.map(|()| plain.len()).map_err(|wrong| format!("CUDAGAUSSBLUR_SEED={seed}: {wrong}\n{line}"))
}

#[test]
fn pipelines_are_as_without_the_element_but_for_the_zone() {
    let number = |variable: &str| std::env::var(variable).ok().map(|text| text.parse::<u64>().unwrap());
    let (started, longer) = (Instant::now(), number("CUDAGAUSSBLUR_LIVES").map(Duration::from_secs));
    let first = number("CUDAGAUSSBLUR_SEED").unwrap_or(1);
    let is_over = |seed| longer.map_or(seed - first >= PIPELINES, |longer| started.elapsed() >= longer);
    let (mut failures, mut frames, mut seed) = (Vec::new(), 0, first);
    while !is_over(seed) && failures.len() < 9 {
        match run(seed) {
            Ok(count) => frames += count,
            Err(wrong) => failures.push(wrong),
        }
        seed += 1;
    }
    println!("pipelines {first} to {}: {frames} frames", seed - 1);
    assert!(failures.is_empty(), "{}", failures.join("\n"));
    assert!(frames as u64 > 2 * (seed - first), "only {frames} frames");
}
