//! The element with region-mode: what it covers in the frames of a stream, which buffers it hands on, and that no frame
//! leaves uncovered where something went wrong.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use gst::prelude::*;
use gst_video::{VideoFormat, VideoInfo, VideoInterlaceMode, VideoMeta, VideoRegionOfInterestMeta};

use crate::common::covered::{info, planes, with_roi};
use crate::common::pictures::pitch;
use crate::common::stream::{Place, SIZE, Stream, confidence, mask, mask_param, with_param};
use crate::common::video::{formats, init};

const NV12: VideoFormat = VideoFormat::Nv12;
const QUARTER: &str = "zones=<[zone,x=0.0,y=0.0,width=0.5,height=0.5]>";

#[test]
fn zones_and_detections_are_covered_in_every_format() {
    for (i, format) in formats().into_iter().enumerate() {
        let sigma = [2.0, 9.0][i % 2];
        // From 60/97 and 30/61 to beyond the corner, rounded outwards.
        let properties = format!("sigma={sigma} expand=0 zones=<[zone,x=0.6187,y=0.4919,width=1.0,height=1.0]>");
        for takes_video_meta in [false, true] {
            let mut stream = Stream::downstream(takes_video_meta, &info(format, SIZE), &properties);
            let output = stream.output(with_roi(stream.frame(), "face", (11, 7, 13, 9)));
            stream.check(&output, "13x9+11+7,37x31+60+30");
            stream.counts(&format!("frames=1 frames-cpu=1 frames-in-place={}", u64::from(takes_video_meta)));
            assert_eq!(output.iter_meta::<VideoRegionOfInterestMeta>().count(), 1, "metas stay");
        }
    }
}

/// A discontinuity that jumps back by more than `hold-time` (3 s) forgets all objects. A jump back without DISCONT, or by less, does
/// not.
#[test]
fn a_jump_back_forgets_objects() {
    for (next, leaves) in [("discont@25", "25!:open"), ("frame@25", "25:13x9+11+7"), ("discont@500", "500!:13x9+11+7")]
    {
        Stream::gray("cover=fill expand=0 on-missing=pass")
            .plays(&[("face@500:13x9+11+7 face:13x9+11+7*29", "500-529"), (next, leaves)]);
    }
}

#[test]
fn frames_without_regions_are_the_same_buffer() {
    let mut stream = Stream::new(NV12, "");
    let memory = |buffer: &gst::Buffer| buffer.peek_memory(0).as_ptr();
    for _ in 0..5 {
        let input = stream.frame();
        // Somebody else has the buffer too: nothing needs to be written.
        let (address, other) = (input.as_ptr(), input.copy());
        let output = stream.output(input);
        assert_eq!((output.as_ptr(), memory(&output)), (address, memory(&other)));
    }
    stream.counts("frames=5 frames-untouched=5 frames-cpu=0 frames-in-place=0");
    // Downstream does not read other strides than those of the caps.
    for properties in ["", "cover=fill"] {
        let mut stream = Stream::downstream(false, &info(NV12, SIZE), properties);
        let output = stream.output(stream.frame());
        stream.check(&output, "open");
        assert!(output.meta::<VideoMeta>().is_none_or(|meta| meta.stride() == stream.info.stride()));
        // Copied.
        stream.counts("frames=1 frames-untouched=0 frames-cpu=0").fails("");
        let plain = gst::Buffer::from_mut_slice(vec![7; stream.info.size()]);
        let address = plain.as_ptr();
        assert_eq!(stream.output(plain).as_ptr(), address, "the strides of the caps");
    }
}

#[test]
fn writable_memory_is_covered_in_place_and_shared_memory_in_a_copy() {
    let mut stream = Stream::new(VideoFormat::I420, "sigma=4 expand=0");
    let memory = |buffer: &gst::Buffer| buffer.peek_memory(0).as_ptr();
    // Nobody, somebody who has the buffer, and another buffer with the same memory.
    let sharing: [fn(&gst::Buffer) -> Option<gst::Buffer>; 3] =
        [|_| None, |buffer| Some(buffer.clone()), |buffer| Some(buffer.copy())];
    for share in sharing {
        let input = with_roi(stream.frame(), "face", (5, 5, 31, 17));
        let (before, shared) = (memory(&input), share(&input));
        let output = stream.output(input);
        stream.must_pad = shared.is_none();
        stream.check(&output, "31x17+5+5");
        assert_eq!(memory(&output) == before, shared.is_none());
        shared.inspect(|shared| stream.check(shared, "open"));
    }
    stream.counts("frames-in-place=1");
}

/// A detector that flickers and finds much or little changes neither caps nor pools.
#[test]
fn flicker_does_not_renegotiate() {
    for takes_video_meta in [false, true] {
        let info = info(VideoFormat::Rgba, SIZE);
        let mut stream = Stream::downstream(takes_video_meta, &info, "hold-time=0 on-missing=pass");
        stream.must_pad = false;
        let queries = Arc::new(AtomicU32::new(0));
        let counter = Arc::clone(&queries);
        let pad = stream.element.static_pad("src").unwrap();
        pad.add_probe(gst::PadProbeType::QUERY_DOWNSTREAM | gst::PadProbeType::PUSH, move |_, probe| {
            if let Some(gst::PadProbeData::Query(query)) = &probe.data
                && query.type_() == gst::QueryType::Allocation
            {
                counter.fetch_add(1, Ordering::Relaxed);
            }
            gst::PadProbeReturn::Ok
        });
        let mut asked = 0;
        for frame in 0..30 {
            let is_found = frame % 3 == 1;
            let input = if is_found { with_roi(stream.frame(), "face", (9, 9, 20, 20)) } else { stream.frame() };
            // No event leaves with it.
            let output = stream.output(if frame % 5 == 2 { input.copy() } else { input });
            stream.check(&output, if is_found { "28x28+5+5" } else { "open" });
            let queries = queries.load(Ordering::Relaxed);
            assert!(frame == 0 || queries == asked, "takes_video_meta={takes_video_meta}");
            asked = queries;
        }
    }
}

/// The σ of a frame that is covered as a whole: 0.25 of the shorter side, rounded up to the next 2^(i/4).
const WHOLE_SIGMA: f64 = 16.0;

#[test]
fn frame_that_no_detector_looked_at_follows_on_missing() {
    let started = |properties| Stream::new(NV12, &format!("strength=0.25 {properties}")).hidden_by(WHOLE_SIGMA);
    // auto passes frames before the first meta, and covers those without one after it, also after a flush and new caps.
    let mut stream = started("hold-time=0");
    stream.plays(&[("frame", "0:open"), ("face", "1")]).warns("");
    stream.plays(&[("frame", "2:whole")]).warns("the frame at 0:00:00.08…it is covered as a whole…");
    // One warning.
    stream.plays(&[("frame", "3:whole")]).warns("").counts("frames-missing=2");
    stream.plays(&[("flush segment", "flush-start flush-stop segment"), ("frame", "4:whole")]);

    started("on-missing=cover").plays(&[("frame face", "0:whole 1")]).counts("frames-missing=1");
    // It is wanted so, and counted all the same.
    let mut stream = started("on-missing=pass hold-time=0");
    stream.plays(&[("face frame", "0 1:open")]).warns("").counts("frames-missing=1");
    started("on-missing=drop").plays(&[("frame", ""), ("face", "1!")]).counts("frames-missing=1 frames-dropped=1");
    started("on-missing=error").plays(&[("face frame", "0 error")]).fails("…on-missing=error…");
}

/// What covers a frame as a whole leaves nothing of it at its edges either.
#[test]
fn whole_frames_are_covered_by_mosaic_and_fill_too() {
    let info = info(VideoFormat::Y444, SIZE);
    let mut stream = Stream::downstream(false, &info, "on-missing=cover cover=fill fill-color=0xffff0000");
    stream.hidden.bytes.iter_mut().zip([81, 90, 240]).for_each(|(plane, value)| plane.fill(value));
    stream.plays(&[("frame", "0:whole")]);
    let mut stream = Stream::downstream(false, &info, "on-missing=cover cover=mosaic cells=4");
    let output = stream.output(stream.frame());
    let luma = stream.luma(&output);
    let samples = (0..SIZE[1]).flat_map(|y| (0..SIZE[0]).map(move |x| (x, y)));
    let values: std::collections::BTreeSet<u8> = samples.map(|(x, y)| luma(x, y)).collect();
    // Cells of 16 samples: 7 across, 4 down.
    assert!(values.len() <= 28, "{}", values.len());
    stream.counts("frames=1 frames-cpu=1");
}

#[test]
fn detections_stay_covered_for_the_hold_time() {
    let mut stream = Stream::gray("sigma=3 expand=0 on-missing=pass hold-time=100000000");
    // Grown by 0.4 and 0.7 samples, and rounded outwards.
    stream.plays(&[("face frame*2", "0:8x8+20+20 1-2:10x10+19+19")]).counts("frames-predicted=2");
    stream.plays(&[
        ("frame", "3:open"),
        ("face flush segment frame", "4:8x8+20+20 flush-start flush-stop segment 5:open"),
        ("face", "6:8x8+20+20"),
    ]);
    // Another frame rate ends nothing, another size does.
    let [same, taller] = [0, 1]
        .map(|more| VideoInfo::builder(VideoFormat::Gray8, SIZE[0], SIZE[1] + more).fps((30, 1)).build().unwrap());
    stream.change_caps(&same);
    stream.plays(&[("frame face", "caps segment 7:10x10+19+19 8:8x8+20+20")]);
    stream.change_caps(&taller);
    stream.change_caps(&same);
    stream.plays(&[("frame", "caps segment caps segment 9:open")]);
}

#[test]
fn labels_and_confidence_select_detections() {
    let mut stream = Stream::new(VideoFormat::Rgb, "expand=0 labels=face,plate min-confidence=0.5 hold-time=0");
    let found: [(&str, Place, Option<f64>); 7] = [
        ("face", (1, 2, 5, 5), Some(0.5)),
        ("face", (21, 2, 5, 5), Some(0.49)),
        // An unknown confidence is none that is too low.
        ("plate", (41, 2, 5, 5), None),
        ("plate", (41, 22, 5, 5), Some(f64::NAN)),
        ("cat", (61, 2, 5, 5), Some(1.0)),
        // Detectors without names for their classes write an empty one.
        ("", (61, 22, 5, 5), Some(1.0)),
        (" face\r", (1, 42, 5, 5), Some(1.0)),
    ];
    let frame = found.iter().fold(stream.frame(), |frame, (label, place, certainty)| {
        with_param(frame, label, *place, certainty.map(confidence))
    });
    let output = stream.output(frame);
    stream.check(&output, "5x5+1+2,5x5+41+2,5x5+41+22,5x5+61+22,5x5+1+42");
}

/// Boxes that are empty, outside of the picture or as large as numbers get. A side of more than twice the picture's is no object's:
/// it is covered, and never shown.
#[test]
fn strange_boxes_cover_what_they_have_of_the_picture() {
    const MAX: u32 = u32::MAX;
    for (place, covered, shown) in [
        ((5, 5, 0, 9), "open", "whole"),
        ((97, 0, 5, 5), "open", "whole"),
        ((0, 61, 5, 5), "open", "whole"),
        ((2_000_000_000, 5, 9, 9), "open", "whole"),
        // Producers with signed boxes wrap the corner of an object that is partly left of and above the frame.
        ((MAX - 5, MAX - 3, 10, 12), "4x8+0+0", "93x8+4+0,97x53+0+8"),
        ((MAX, MAX, MAX, MAX), "whole", "whole"),
        ((96, 60, 1, 1), "1x1+96+60", "97x60+0+0,96x1+0+60"),
        ((90, 50, MAX, MAX), "7x11+90+50", "whole"),
        ((0, 0, MAX, 1), "97x1+0+0", "whole"),
        ((0, 0, 194, 122), "whole", "open"),
        ((0, 0, 195, 61), "whole", "whole"),
        ((0, 0, 97, 123), "whole", "whole"),
        ((0, 0, MAX, MAX), "whole", "whole"),
    ] {
        for (mode, looks) in [("inside", covered), ("outside", shown)] {
            let mut stream = Stream::new(NV12, &format!("region-mode={mode} sigma=3 expand=0"));
            let output = stream.output(with_roi(stream.frame(), "face", place));
            stream.check(&output, looks);
        }
    }
}

#[test]
fn outside_covers_all_but_the_regions() {
    let info = info(VideoFormat::I420, [98, 62]);
    let mut stream = Stream::of(&info, "region-mode=outside sigma=5 strength=2 expand=0");
    stream.plays(&[("face:30x20+20+10", "0:98x10+0+0,20x20+0+10,48x20+50+10,98x32+0+30")]);
    let area = stream.element.property::<gst::Structure>("stats").get::<f64>("covered-area").unwrap();
    assert!((area - (1.0 - 600.0 / (98.0 * 62.0))).abs() < 1e-9, "{area}");
    // Without anything to keep, all is covered.
    Stream::of(&info, "region-mode=outside sigma=5 expand=0").plays(&[("frame", "0:whole")]);
}

#[test]
fn sigma_follows_the_size_of_the_object() {
    let info = info(VideoFormat::Gray8, [300, 200]);
    let covered = |properties: &str, face: &str, sigma: f64| {
        let stream = Stream::of(&info, &format!("expand=0 {properties}"));
        stream.hidden_by(sigma).plays(&[(&format!("face:{face}"), &format!("0:{face}"))]);
    };
    // Half of 8 is on the grid; 0.5·41 is rounded up to 16·√2; 0.5·3 is less than sigma.
    covered("sigma=2 strength=0.5", "100x8+50+60", 4.0);
    covered("sigma=2 strength=0.5", "41x90+50+60", 16.0 * std::f64::consts::SQRT_2);
    covered("sigma=2 strength=0.5", "3x90+50+60", 2.0);
    // With `kernel-size`, a small object is blurred no less than a large one.
    covered("sigma=20 kernel-size=3 strength=0.25", "40x40+50+60", 20.0);
}

/// What covers nothing says so.
#[test]
fn nothing_is_called_covered_that_is_not() {
    for properties in ["sigma=0", "planes=chroma"] {
        let mut stream = Stream::gray(&format!("on-missing=cover post-messages=true {properties}"));
        stream.plays(&[("frame", "0:open")]).warns("…the blur does not change luma…");
        stream.tells(&["…covered=nothing, covered-area=0,…"]).counts("frames=1 frames-untouched=1");
    }
}

#[test]
fn interlaced_frames_are_covered_field_by_field() {
    init();
    let builder = VideoInfo::builder(VideoFormat::I420, 96, 64).fps((25, 1));
    let info = builder.interlace_mode(VideoInterlaceMode::Interleaved).build().unwrap();
    Stream::of(&info, "sigma=3 expand=0").plays(&[("face:21x9+11+13", "0:21x9+11+13")]);
}

/// A buffer of interlace-mode=alternate has one field. A box in rows of the frame and one in rows of the field are covered, and only
/// what both have is shown.
#[test]
fn a_box_in_a_field_counts_in_either_numbering_of_rows() {
    for (properties, enters, leaves) in [
        // Rows 20 to 28 of the field if it counts rows of the frame, 40 to 56 if of the field.
        ("sigma=3", "face:20x16+10+40", "0:20x36+10+20"),
        ("region-mode=outside cover=fill", "face:20x16+10+40", "0:whole"),
        // Rows 10 to 30, or 20 to 60.
        ("region-mode=outside cover=fill", "face:20x40+10+20", "0:64x20+0+0,10x10+0+20,34x10+30+20,64x30+0+30"),
        // What vanished is covered wherever it may have been, also if it was found while only what is certain of it was shown: rows
        // 10 to 60, grown by 2.2 samples in 40 ms.
        ("region-mode=outside sigma=3 on-missing=pass", "face:20x40+10+20 region-mode=inside frame", "0 1:26x53+7+7"),
    ] {
        let mut stream = Stream::of_field(VideoFormat::Gray8, &format!("expand=0 {properties}"));
        assert_eq!(stream.picture.planes[0].height, 60);
        stream.plays(&[(enters, leaves)]);
    }
}

#[test]
fn properties_change_while_playing() {
    let mut stream = Stream::new(NV12, "sigma=6");
    stream.plays(&[
        ("frame", "0:open"),
        (&format!("{QUARTER} frame"), "1:49x31+0+0"),
        ("region-mode=frame frame", "2:whole"),
        ("sigma=0 frame", "3:open"),
        // A sigma of 0 is no reason to pass what is filled.
        ("region-mode=inside cover=fill frame", "4:49x31+0+0"),
        ("cover=blur strength=0.25", ""),
    ]);
    // 0.25·30.5 is rounded up to 8.
    let mut stream = stream.hidden_by(8.0);
    stream.plays(&[("frame", "5:49x31+0+0"), ("region-sources=roi frame", "6:open")]).fails("");
}

#[test]
fn a_message_says_what_was_covered() {
    let zones = "zones=<[zone,name=door,x=0.0,y=0.0,width=0.1,height=0.5],[zone,x=0.0,y=0.0,width=0.1,height=0.1]>";
    let properties = format!("post-messages=true expand=0.5 cover=mosaic {zones}");
    let mut stream = Stream::of(&info(NV12, [100, 80]), &properties);
    // One message a frame. The area is (20·40 + 10·40) / (100·80).
    stream.enter("face:10x20+50+20").tells(&[
        "cudagaussblur, timestamp=0, stream-time=0, running-time=0, duration=40000000, covered=regions, \
         covered-area=0.14999999999999999, unchanged=, cover=mosaic, missing=false, lost=false, regions=< \
         region, x=45, y=10, width=20, height=40, origin=found, track=1, label=face, shape=box;, \
         region, x=0, y=0, width=10, height=40, origin=zone, name=door, shape=box;, \
         region, x=0, y=0, width=10, height=8, origin=zone, shape=box; >;",
    ]);
    let whole = "…timestamp=40000000, …covered=frame, covered-area=1, …missing=true, …regions=<  >;";
    stream.enter("frame").tells(&[whole]);
    stream.enter("on-missing=pass frame").tells(&["…regions=< region, …origin=predicted, track=1,…"]);
    stream.enter("on-missing=drop frame").tells(&["…covered=dropped,…"]);
    stream.enter("region-sources=roi on-missing=pass hold-time=0 frame").tells(&["…covered=nothing,…"]);
}

/// A disc with a soft edge, and the last sample of the picture.
fn disc([width, height]: [u32; 2]) -> impl Fn(u32, u32) -> u8 {
    move |x, y| {
        let distance = (f64::from(x) - 0.4 * f64::from(width)).hypot(f64::from(y) - 0.45 * f64::from(height));
        let is_last = (x, y) == (width - 1, height - 1);
        if is_last { 255 } else { (128.0 + 20.0 * (22.0 - distance)).clamp(0.0, 255.0) as u8 }
    }
}

/// The alpha channel covers and shows as the same mask of a region of interest does that has all of the picture: every byte of
/// every format with alpha, also of interlaced frames.
#[test]
fn alpha_is_the_mask_of_an_object_in_all_of_the_picture() {
    let components = |format: &VideoFormat| gst_video::VideoFormatInfo::from_format(*format).n_components();
    let formats: Vec<VideoFormat> = formats().into_iter().filter(|format| components(format) == 4).collect();
    assert!(formats.len() > 20, "{formats:?}");
    let zone = "zones=<[zone,x=0.75,y=0.0,width=0.2,height=0.3]>";
    let covers = [
        "region-mode=inside cover=fill",
        "region-mode=outside cover=fill feather=9",
        "region-mode=inside sigma=3 feather=6 planes=luma+chroma",
        "region-mode=outside sigma=5 grow=-2",
        &format!("region-mode=inside cover=mosaic grow=3 {zone}"),
        &format!("region-mode=outside cover=mosaic {zone}"),
    ];
    let bytes = |buffer: &gst::Buffer| buffer.map_readable().unwrap().to_vec();
    for (i, format) in formats.into_iter().enumerate() {
        for (j, cover) in covers.into_iter().enumerate() {
            let is_interlaced = (i + j) % 3 == 0;
            let mode = if is_interlaced { VideoInterlaceMode::Interleaved } else { VideoInterlaceMode::Progressive };
            let info = VideoInfo::builder(format, SIZE[0], SIZE[1]).fps((25, 1)).interlace_mode(mode).build().unwrap();
            let mut by_alpha = Stream::of(&info, &format!("region-sources=zones+alpha {cover}"));
            let value = disc(SIZE);
            by_alpha.set_alpha(&value);
            // The largest value of 2 bits is 255, too.
            let mask = mask(SIZE, |x, y| if info.comp_depth(3) == 2 { value(x, y) / 64 * 85 } else { value(x, y) });
            let mut by_roi = Stream::of(&info, &format!("region-sources=zones+roi shape=mask {cover}"));
            let with_roi = with_param(by_alpha.frame(), "person", (0, 0, SIZE[0], SIZE[1]), Some(mask_param(mask)));
            let expected = bytes(&by_roi.output(with_roi));
            let got = bytes(&by_alpha.output(by_alpha.frame()));
            assert!(got == expected, "{format:?} {cover} {mode:?}");
            assert!(got != bytes(&by_alpha.frame()), "{format:?} {cover} {mode:?}: nothing is covered");
            by_alpha.warns("").fails("");
        }
    }
}

#[test]
fn alpha_is_covered_or_shown() {
    for mode in ["inside", "outside"] {
        let properties = format!("region-mode={mode} region-sources=alpha cover=fill");
        // A picture that is wider than a mask in a meta may be, and a field: what has alpha is black, and what is not near it is as it
        // was; or the other way round.
        let wide = Stream::of(&info(VideoFormat::Rgba, [5001, 180]), &properties);
        for (mut stream, columns, near) in [(wide, 2000, 64), (Stream::of_field(VideoFormat::Rgba, &properties), 30, 4)]
        {
            stream.set_alpha(|x, _| if x < columns { 255 } else { 0 });
            let output = stream.output(stream.frame());
            let (_, got) = planes(&stream.info, &stream.picture.planes, &output);
            let pitch = pitch(&stream.picture.planes[0]);
            for (row, before) in got[0].chunks(pitch).zip(stream.picture.bytes[0].chunks(pitch)) {
                for (x, (pixel, before)) in (0..stream.info.width()).zip(row.chunks(4).zip(before.chunks(4))) {
                    let is_covered = (x < columns) == (mode == "inside");
                    assert!(!is_covered || pixel == [0, 0, 0, 255], "{mode} column {x} shows {pixel:?}");
                    let is_shown = !is_covered && x.abs_diff(columns) > near;
                    assert!(!is_shown || pixel == before, "{mode} column {x} is covered");
                }
            }
        }
        for size in [[1, 1], [3, 2], SIZE] {
            let [none, all] = if mode == "inside" { ["open", "whole"] } else { ["whole", "open"] };
            Stream::of(&info(VideoFormat::Rgba, size), &properties)
                .plays(&[("alpha:0 frame", &format!("0:{none}")), ("alpha:255 frame", &format!("1:{all}"))]);
        }
    }
}

/// Each frame has its own alpha channel: nothing of it is held, whatever waits.
#[test]
fn alpha_counts_in_its_own_frame() {
    let bytes = |buffer: &gst::Buffer| buffer.map_readable().unwrap().to_vec();
    // What leaves, and whether it is what entered.
    let outputs = |properties: &str| -> Vec<(Vec<u8>, bool)> {
        let mut stream = Stream::new(VideoFormat::A420, &format!("region-sources=alpha cover=mosaic {properties}"));
        let values: [&dyn Fn(u32, u32) -> u8; 3] = [&|x, _| if x < 40 { 255 } else { 0 }, &|_, _| 0, &disc(SIZE)];
        let inputs = values.map(|value| {
            stream.set_alpha(value);
            stream.enter("frame");
            bytes(&stream.frame())
        });
        let outputs = stream.enter("eos").outputs();
        outputs.iter().map(bytes).zip(inputs).map(|(output, input)| (output.clone(), output == input)).collect()
    };
    let [now, later] = [outputs(""), outputs("look-ahead=2")];
    assert!(now == later);
    // The second one has no object.
    assert_eq!(now.iter().map(|(_, is_same)| *is_same).collect::<Vec<_>>(), [false, true, false]);
}

#[test]
fn a_message_says_what_alpha_covers() {
    let info = info(VideoFormat::Ayuv, [100, 80]);
    let mut stream = Stream::of(&info, "region-sources=alpha cover=fill post-messages=true");
    stream.set_alpha(|x, y| if (20..50).contains(&x) && (30..40).contains(&y) { 255 } else { 0 });
    let region = "region, x=20, y=30, width=30, height=10, origin=alpha, shape=mask;";
    stream.enter("frame").tells(&[&format!("…covered=regions,…regions=< {region} >;")]);
    stream.outputs();
    stream.set_alpha(|_, _| 0);
    let input = stream.frame();
    let address = input.as_ptr();
    assert_eq!(stream.output(input).as_ptr(), address, "without an object it is the same buffer");
    stream.tells(&["…covered=nothing,…"]);
}

/// A buffer that cannot be mapped, is too short or has no alpha channel is an error, never a frame that is pushed as it came.
#[test]
fn frames_that_cannot_be_covered_are_not_pushed() {
    let fails = |format, properties, frame: fn(&Stream) -> gst::Buffer, error: &str| {
        let mut stream = Stream::new(format, properties);
        let frame = with_roi(frame(&stream), "face", (1, 1, 9, 9));
        stream.push(frame);
        stream.leaves("error").fails(error);
    };
    for format in [NV12, VideoFormat::Rgbx, VideoFormat::Gray16Le] {
        for properties in ["region-sources=alpha", "region-mode=outside region-sources=all+alpha on-missing=pass"] {
            let error =
                format!("…region-sources=alpha, but {format} has no alpha channel; put cudagaussblur right after…");
            fails(format, properties, Stream::frame, &error);
        }
    }
    let short = |stream: &Stream| gst::Buffer::from_mut_slice(vec![0; stream.info.size() - 1]);
    fails(NV12, "", short, "…the input buffer is truncated…");
    fails(VideoFormat::Rgba, "region-sources=alpha", short, "…the input buffer is truncated…");
    let overlapping = |stream: &Stream| {
        let (flags, strides) = (gst_video::VideoFrameFlags::empty(), stream.info.stride().to_vec());
        let mut buffer = gst::Buffer::from_mut_slice(vec![0; 2 * stream.info.size()]);
        VideoMeta::add_full(buffer.get_mut().unwrap(), flags, NV12, SIZE[0], SIZE[1], &[0, 100], &strides).unwrap();
        buffer
    };
    fails(NV12, "", overlapping, "…the planes of the input buffer overlap…");
}
