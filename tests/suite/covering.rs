//! The element with region-mode: what it covers in the frames of a stream, which buffers it hands on, and that no frame
//! leaves uncovered where something went wrong.

use crate::common::covered::{alternate, blurred, buffer, check, check_whole, covering, info, noise, planes, with_roi};
use crate::common::pictures::{Picture, pitch, rect};
use crate::common::video::{Blur, FRAME, formats, stat};
use gst::prelude::*;
use gst_video::prelude::*;
use gst_video::{VideoFormat, VideoInfo, VideoInterlaceMode, VideoMeta, VideoRegionOfInterestMeta};
use gstcudagaussblur::element::formats as layouts;
use gstcudagaussblur::filter::frame::{PlaneLayout, Role, SampleLayout};
use gstcudagaussblur::filter::regions::Rect;
use gstcudagaussblur::filter::samples;

const SIZE: [u32; 2] = [97, 61];

#[test]
fn zones_and_detections_are_covered_in_every_format() {
    for (seed, format) in formats().into_iter().enumerate() {
        let info = info(format, SIZE);
        let picture = noise(&info, seed as u64);
        let sigma = [2.0, 9.0][seed % 2];
        let rects = [rect(11, 7, 13, 9), rect(60, 30, 37, 31)];
        for takes_video_meta in [false, true] {
            // The zone is the second rectangle: from 60/97 and 30/61 to beyond the corner, rounded outwards.
            let properties = format!("sigma={sigma} expand=0 zones=<[zone,x=0.6187,y=0.4919,width=1.0,height=1.0]>");
            let mut blur = covering(&properties, takes_video_meta, &info);
            let out = blur.push(with_roi(buffer(&info, &picture), "face", (11, 7, 13, 9)));
            check(&info, &out, &picture, &blurred(&picture, sigma), &rects, takes_video_meta);
            assert_eq!(stat(&blur, "frames-in-place"), u64::from(takes_video_meta), "{format:?}");
            assert_eq!([stat(&blur, "frames"), stat(&blur, "frames-cpu")], [1, 1]);
            assert_eq!(out.iter_meta::<VideoRegionOfInterestMeta>().count(), 1, "metas stay");
        }
    }
}

/// A discontinuity that jumps back by more than `hold-time` (3 s) forgets all objects. A jump back without DISCONT, or by less, does
/// not.
#[test]
fn a_jump_back_forgets_objects() {
    let info = info(VideoFormat::Gray8, SIZE);
    let picture = noise(&info, 3);
    let frame = |pts: gst::ClockTime, is_discont: bool| {
        let mut frame = buffer(&info, &picture);
        frame.make_mut().set_pts(pts);
        if is_discont {
            frame.make_mut().set_flags(gst::BufferFlags::DISCONT);
        }
        frame
    };
    let bytes = |buffer: &gst::Buffer| buffer.map_readable().unwrap().to_vec();
    for (seconds, is_discont, is_forgotten) in [(1, true, true), (1, false, false), (20, true, false)] {
        let mut blur = covering("cover=fill expand=0 on-missing=pass", true, &info);
        for i in 0..30 {
            let input = with_roi(frame(gst::ClockTime::from_seconds(20) + FRAME * i, false), "face", (11, 7, 13, 9));
            blur.harness.push_and_pull(input).unwrap();
        }
        let input = frame(gst::ClockTime::from_seconds(seconds), is_discont);
        let output = blur.harness.push_and_pull(input.copy()).unwrap();
        assert_eq!(bytes(&output) == bytes(&input), is_forgotten, "to {seconds} s, {is_discont}");
    }
}

#[test]
fn frames_without_regions_are_the_same_buffer() {
    let info = info(VideoFormat::Nv12, SIZE);
    let mut blur = covering("", true, &info);
    for frame in 0..5 {
        let input = buffer(&info, &noise(&info, frame));
        let address = input.as_ptr();
        // Somebody else has the buffer too: nothing needs to be written.
        let other = input.copy();
        let out = blur.push(input);
        assert_eq!(out.as_ptr(), address);
        assert_eq!(out.peek_memory(0).as_ptr(), other.peek_memory(0).as_ptr());
    }
    assert_eq!(
        ["frames", "frames-untouched", "frames-cpu", "frames-in-place"].map(|name| stat(&blur, name)),
        [5, 5, 0, 0]
    );
    // Downstream does not read other strides than those of the caps.
    let mut blur = covering("", false, &info);
    let picture = noise(&info, 9);
    let out = blur.push(buffer(&info, &picture));
    check(&info, &out, &picture, &picture, &[], false);
    assert!(out.meta::<VideoMeta>().is_none_or(|meta| meta.stride() == info.stride()));
    assert_eq!(["frames", "frames-untouched", "frames-cpu"].map(|name| stat(&blur, name)), [1, 0, 0], "copied");
    let plain = gst::Buffer::from_mut_slice(vec![7; info.size()]);
    let address = plain.as_ptr();
    assert_eq!(blur.push(plain).as_ptr(), address, "the strides of the caps");
}

#[test]
fn writable_memory_is_covered_in_place_and_shared_memory_in_a_copy() {
    let info = info(VideoFormat::I420, SIZE);
    let picture = noise(&info, 3);
    let expected = blurred(&picture, 4.0);
    let mut blur = covering("sigma=4 expand=0", true, &info);
    let input = with_roi(buffer(&info, &picture), "face", (5, 5, 31, 17));
    let memory = input.peek_memory(0).as_ptr();
    let out = blur.push(input);
    assert_eq!(out.peek_memory(0).as_ptr(), memory);
    check(&info, &out, &picture, &expected, &[rect(5, 5, 31, 17)], true);

    let input = with_roi(buffer(&info, &picture), "face", (5, 5, 31, 17));
    let shared = input.clone();
    let out = blur.push(input);
    assert_ne!(out.peek_memory(0).as_ptr(), shared.peek_memory(0).as_ptr());
    check(&info, &out, &picture, &expected, &[rect(5, 5, 31, 17)], false);
    check(&info, &shared, &picture, &picture, &[], true);

    // Two buffers with the same memory.
    let input = with_roi(buffer(&info, &picture), "face", (5, 5, 31, 17));
    let sharing = input.copy();
    let out = blur.push(input);
    check(&info, &out, &picture, &expected, &[rect(5, 5, 31, 17)], false);
    check(&info, &sharing, &picture, &picture, &[], true);
    assert_eq!(stat(&blur, "frames-in-place"), 1);
}

/// A detector that flickers and finds much or little changes neither caps nor pools.
#[test]
fn flicker_does_not_renegotiate() {
    let info = info(VideoFormat::Rgba, SIZE);
    for takes_video_meta in [false, true] {
        let mut blur = covering("hold-time=0 on-missing=pass", takes_video_meta, &info);
        let queries = std::sync::Arc::new(std::sync::atomic::AtomicU32::new(0));
        let counter = queries.clone();
        let pad = blur.element.static_pad("src").unwrap();
        pad.add_probe(gst::PadProbeType::QUERY_DOWNSTREAM | gst::PadProbeType::PUSH, move |_, probe| {
            if let Some(gst::PadProbeData::Query(query)) = &probe.data
                && query.type_() == gst::QueryType::Allocation
            {
                counter.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
            }
            gst::PadProbeReturn::Ok
        });
        let events = |blur: &mut Blur| std::iter::from_fn(|| blur.harness.try_pull_event()).count();
        let push = |blur: &mut Blur, frame: u64| {
            let picture = noise(&info, frame);
            let input = buffer(&info, &picture);
            let input = if frame % 3 == 1 { with_roi(input, "face", (9, 9, 20, 20)) } else { input };
            let out = blur.push(if frame % 5 == 2 { input.copy() } else { input });
            let rects: &[Rect] = if frame % 3 == 1 { &[rect(5, 5, 28, 28)] } else { &[] };
            check(&info, &out, &picture, &blurred(&picture, 1.5), rects, false);
        };
        push(&mut blur, 0);
        events(&mut blur);
        let before = queries.load(std::sync::atomic::Ordering::Relaxed);
        (1..30).for_each(|frame| push(&mut blur, frame));
        assert_eq!(events(&mut blur), 0, "takes_video_meta={takes_video_meta}");
        assert_eq!(queries.load(std::sync::atomic::Ordering::Relaxed), before, "takes_video_meta={takes_video_meta}");
    }
}

/// The σ of a frame that is covered as a whole: 0.25 of the shorter side, rounded up to the next 2^(i/4).
const WHOLE_SIGMA: f64 = 16.0;

#[test]
fn frame_that_no_detector_looked_at_follows_on_missing() {
    let info = info(VideoFormat::Nv12, SIZE);
    let picture = noise(&info, 4);
    let whole = blurred(&picture, WHOLE_SIGMA);
    let plain = || buffer(&info, &picture);
    let found = || with_roi(plain(), "face", (20, 20, 8, 8));
    let missing = |blur: &Blur| stat(blur, "frames-missing");

    // auto passes frames before the first meta, and covers those without one after it, also after a flush and new caps.
    let mut blur = covering("strength=0.25 hold-time=0", true, &info);
    check(&info, &blur.push(plain()), &picture, &picture, &[], true);
    assert!(blur.messages(gst::MessageType::Warning).is_empty());
    blur.push(found());
    check_whole(&info, &blur.push(plain()), &picture, &whole);
    let warnings = blur.messages(gst::MessageType::Warning);
    assert!(matches!(&warnings[..], [one] if one.contains("it is covered as a whole") && one.contains("0:00:00.08")));
    check_whole(&info, &blur.push(plain()), &picture, &whole);
    assert!(blur.messages(gst::MessageType::Warning).is_empty(), "one warning");
    assert_eq!(missing(&blur), 2);
    blur.harness.push_event(gst::event::FlushStart::new());
    blur.harness.push_event(gst::event::FlushStop::new(true));
    let segment = gst::FormattedSegment::<gst::ClockTime>::new();
    blur.harness.push_event(gst::event::Segment::new(&segment));
    check_whole(&info, &blur.push(plain()), &picture, &whole);

    let mut blur = covering("strength=0.25 on-missing=cover", true, &info);
    check_whole(&info, &blur.push(plain()), &picture, &whole);
    blur.push(found());
    assert_eq!(missing(&blur), 1);

    let mut blur = covering("on-missing=pass hold-time=0", true, &info);
    blur.push(found());
    check(&info, &blur.push(plain()), &picture, &picture, &[], true);
    assert_eq!(missing(&blur), 1, "counted all the same");
    assert!(blur.messages(gst::MessageType::Warning).is_empty(), "it is wanted so");

    let mut blur = covering("on-missing=drop", true, &info);
    assert_eq!(blur.try_push(plain()), Ok(gst::FlowSuccess::Ok));
    assert!(blur.harness.try_pull().is_none());
    let out = blur.push(found());
    assert!(out.flags().contains(gst::BufferFlags::DISCONT), "a frame is missing before it");
    assert_eq!([missing(&blur), stat(&blur, "frames-dropped")], [1, 1]);

    let mut blur = covering("on-missing=error", true, &info);
    blur.push(found());
    assert_eq!(blur.try_push(plain()), Err(gst::FlowError::Error));
    let errors = blur.messages(gst::MessageType::Error);
    assert!(matches!(&errors[..], [one] if one.contains("on-missing=error")), "{errors:?}");
    assert!(blur.harness.try_pull().is_none());
}

/// What covers a frame as a whole leaves nothing of it at its edges either.
#[test]
fn whole_frames_are_covered_by_mosaic_and_fill_too() {
    let info = info(VideoFormat::Y444, SIZE);
    let picture = noise(&info, 4);
    let mut blur = covering("on-missing=cover cover=fill fill-color=0xffff0000", false, &info);
    let (_, planes_of) = planes(&info, &picture.planes, &blur.push(buffer(&info, &picture)));
    for (plane, value) in planes_of.iter().zip([81, 90, 240]) {
        let stride = info.stride()[0] as usize;
        assert!(plane.chunks(stride).all(|row| row[..97].iter().all(|byte| *byte == value)));
    }
    let mut blur = covering("on-missing=cover cover=mosaic cells=4", false, &info);
    let (_, mosaic) = planes(&info, &picture.planes, &blur.push(buffer(&info, &picture)));
    assert_eq!([stat(&blur, "frames"), stat(&blur, "frames-cpu")], [1, 1]);
    let values: std::collections::BTreeSet<u8> = mosaic[0].chunks(100).flat_map(|row| row[..97].to_vec()).collect();
    // Cells of 16 samples: 7 across, 4 down.
    assert!(values.len() <= 28, "{}", values.len());
}

#[test]
fn detections_stay_covered_for_the_hold_time() {
    let info = info(VideoFormat::Gray8, SIZE);
    let picture = noise(&info, 5);
    let expected = blurred(&picture, 3.0);
    let place = [rect(20, 20, 8, 8)];
    let mut blur = covering("sigma=3 expand=0 on-missing=pass hold-time=100000000", true, &info);
    let push = |blur: &mut Blur, rects: &[Rect], roi: bool| {
        let input = buffer(&info, &picture);
        let input = if roi { with_roi(input, "face", (20, 20, 8, 8)) } else { input };
        let out = blur.push(input);
        check(&info, &out, &picture, &expected, rects, true);
    };
    push(&mut blur, &place, true);
    // Grown by 0.4 and 0.7 samples, and rounded outwards.
    push(&mut blur, &[rect(19, 19, 10, 10)], false);
    push(&mut blur, &[rect(19, 19, 10, 10)], false);
    assert_eq!(stat(&blur, "frames-predicted"), 2);
    push(&mut blur, &[], false);
    push(&mut blur, &place, true);
    blur.harness.push_event(gst::event::FlushStart::new());
    blur.harness.push_event(gst::event::FlushStop::new(true));
    blur.harness.push_event(gst::event::Segment::new(&gst::FormattedSegment::<gst::ClockTime>::new()));
    push(&mut blur, &[], false);
    push(&mut blur, &place, true);
    // Another frame rate ends nothing, another size does.
    blur.caps(&VideoInfo::builder(VideoFormat::Gray8, SIZE[0], SIZE[1]).fps((30, 1)).build().unwrap());
    push(&mut blur, &[rect(19, 19, 10, 10)], false);
    push(&mut blur, &place, true);
    blur.caps(&VideoInfo::builder(VideoFormat::Gray8, SIZE[0], SIZE[1] + 1).fps((30, 1)).build().unwrap());
    blur.caps(&info);
    push(&mut blur, &[], false);
}

#[test]
fn labels_and_confidence_select_detections() {
    let info = info(VideoFormat::Rgb, SIZE);
    let picture = noise(&info, 5);
    let expected = blurred(&picture, 1.5);
    let mut blur = covering("expand=0 labels=face,plate min-confidence=0.5 hold-time=0", true, &info);
    let mut input = buffer(&info, &picture);
    let confidence = |value: f64| gst::Structure::builder("detection").field("confidence", value).build();
    let add = |input: &mut gst::Buffer, label: &str, rect, value: Option<f64>| {
        let mut meta = VideoRegionOfInterestMeta::add(input.make_mut(), label, rect);
        value.into_iter().for_each(|value| meta.add_param(confidence(value)));
    };
    add(&mut input, "face", (1, 2, 5, 5), Some(0.5));
    add(&mut input, "face", (21, 2, 5, 5), Some(0.49));
    // An unknown confidence is none that is too low.
    add(&mut input, "plate", (41, 2, 5, 5), None);
    add(&mut input, "plate", (41, 22, 5, 5), Some(f64::NAN));
    add(&mut input, "cat", (61, 2, 5, 5), Some(1.0));
    // Detectors without names for their classes write an empty one.
    add(&mut input, "", (61, 22, 5, 5), Some(1.0));
    add(&mut input, " face\r", (1, 42, 5, 5), Some(1.0));
    let out = blur.push(input);
    check(
        &info,
        &out,
        &picture,
        &expected,
        &[rect(1, 2, 5, 5), rect(41, 2, 5, 5), rect(41, 22, 5, 5), rect(61, 22, 5, 5), rect(1, 42, 5, 5)],
        true,
    );
}

/// Boxes that are empty, outside of the picture or as large as numbers get.
#[test]
fn strange_boxes_cover_what_they_have_of_the_picture() {
    let info = info(VideoFormat::Nv12, SIZE);
    let picture = noise(&info, 6);
    let expected = blurred(&picture, 1.5);
    for (roi, covered) in [
        ((5, 5, 0, 9), None),
        ((97, 0, 5, 5), None),
        ((0, 61, 5, 5), None),
        ((2_000_000_000, 5, 9, 9), None),
        // Producers with signed boxes wrap the corner of an object that is partly left of and above the frame.
        ((u32::MAX - 5, u32::MAX - 3, 10, 12), Some(rect(0, 0, 4, 8))),
        ((u32::MAX, u32::MAX, u32::MAX, u32::MAX), Some(rect(0, 0, 97, 61))),
        ((96, 60, 1, 1), Some(rect(96, 60, 1, 1))),
        ((90, 50, u32::MAX, u32::MAX), Some(rect(90, 50, 7, 11))),
        ((0, 0, u32::MAX, 1), Some(rect(0, 0, 97, 1))),
    ] {
        let mut blur = covering("expand=0", true, &info);
        let out = blur.push(with_roi(buffer(&info, &picture), "face", roi));
        let covered: Vec<Rect> = covered.into_iter().collect();
        check(&info, &out, &picture, &expected, &covered, true);
    }
}

#[test]
fn outside_covers_all_but_the_regions() {
    let info = info(VideoFormat::I420, [98, 62]);
    let picture = noise(&info, 7);
    let mut blur = covering("region-mode=outside sigma=5 strength=2 expand=0", true, &info);
    let inside = (20, 10, 30, 20);
    let around = [rect(0, 0, 98, 10), rect(0, 10, 20, 20), rect(50, 10, 48, 20), rect(0, 30, 98, 32)];
    let out = blur.push(with_roi(buffer(&info, &picture), "person", inside));
    check(&info, &out, &picture, &blurred(&picture, 5.0), &around, true);
    assert!(
        (blur.element.property::<gst::Structure>("stats").get::<f64>("covered-area").unwrap()
            - (1.0 - 600.0 / (98.0 * 62.0)))
            .abs()
            < 1e-9
    );
    // Without anything to keep, all is covered.
    let mut blur = covering("region-mode=outside sigma=5 expand=0", true, &info);
    check_whole(&info, &blur.push(buffer(&info, &picture)), &picture, &blurred(&picture, 5.0));
}

#[test]
fn sigma_follows_the_size_of_the_object() {
    let info = info(VideoFormat::Gray8, [300, 200]);
    let picture = noise(&info, 8);
    let mut blur = covering("sigma=2 expand=0 hold-time=0", true, &info);
    // Half of 8 is on the grid; 0.5·41 is rounded up to 16·√2; 0.5·3 is less than sigma.
    for (roi, sigma) in
        [((50, 60, 100, 8), 4.0), ((50, 60, 41, 90), 16.0 * std::f64::consts::SQRT_2), ((50, 60, 3, 90), 2.0)]
    {
        blur.element.set_property("strength", 0.5);
        // Another object each time, by its label.
        let out = blur.push(with_roi(buffer(&info, &picture), &format!("{roi:?}"), roi));
        let covered = rect(roi.0, roi.1, roi.2, roi.3);
        check(&info, &out, &picture, &blurred(&picture, sigma), &[covered], true);
    }
}

#[test]
fn interlaced_frames_are_covered_field_by_field() {
    crate::common::video::init();
    let info = VideoInfo::builder(VideoFormat::I420, 96, 64)
        .fps((25, 1))
        .interlace_mode(gst_video::VideoInterlaceMode::Interleaved)
        .build()
        .unwrap();
    let picture = Picture::new(&layouts::planes(&info, true).unwrap(), 3);
    let mut blur = covering("sigma=3 expand=0", true, &info);
    let out = blur.push(with_roi(buffer(&info, &picture), "face", (11, 13, 21, 9)));
    check(&info, &out, &picture, &blurred(&picture, 3.0), &[rect(11, 13, 21, 9)], true);
}

/// A buffer of interlace-mode=alternate has one field. A box in rows of the frame and one in rows of the field are covered.
#[test]
fn alternate_fields_are_covered_in_either_numbering_of_rows() {
    let (caps, info) = alternate();
    let picture = Picture::new(&layouts::planes(&info, false).unwrap(), 3);
    assert_eq!(picture.planes[0].height, 60);
    let mut blur = Blur::new("backend=cpu region-mode=inside strength=0 sigma=3 expand=0");
    blur.harness.add_propose_allocation_meta(VideoMeta::meta_api(), None);
    blur.harness.set_src_caps(caps);
    let bytes: Vec<u8> =
        picture.bytes[0].chunks(pitch(&picture.planes[0])).flat_map(|row| row[..64].to_vec()).collect();
    let input = with_roi(gst::Buffer::from_mut_slice(bytes), "face", (10, 40, 20, 16));
    let out = blur.push(input);
    let expected = blurred(&picture, 3.0);
    let map = out.map_readable().unwrap();
    for (y, row) in map.chunks(64).enumerate() {
        for (x, byte) in row.iter().enumerate() {
            // Rows 20 to 28 of the field if it counts rows of the frame, 40 to 56 if of the field.
            let covered = (10..30).contains(&x) && (20..56).contains(&y);
            let from = if covered { &expected } else { &picture };
            assert_eq!(*byte, from.bytes[0][y * pitch(&picture.planes[0]) + x], "{x} {y}");
        }
    }
}

#[test]
fn properties_change_while_playing() {
    let info = info(VideoFormat::Nv12, SIZE);
    let picture = noise(&info, 9);
    let zone = "<[zone,x=0.0,y=0.0,width=0.5,height=0.5]>";
    let quarter = [rect(0, 0, 49, 31)];
    let mut blur = covering("sigma=6", true, &info);
    let set = |blur: &Blur, name: &str, value: &str| blur.element.set_property_from_str(name, value);
    check(&info, &blur.push(buffer(&info, &picture)), &picture, &picture, &[], true);
    set(&blur, "zones", zone);
    check(&info, &blur.push(buffer(&info, &picture)), &picture, &blurred(&picture, 6.0), &quarter, true);
    set(&blur, "region-mode", "frame");
    check_whole(&info, &blur.push(buffer(&info, &picture)), &picture, &blurred(&picture, 6.0));
    set(&blur, "sigma", "0");
    check(&info, &blur.push(buffer(&info, &picture)), &picture, &picture, &[], true);
    set(&blur, "region-mode", "inside");
    set(&blur, "cover", "fill");
    let (_, got) = planes(&info, &picture.planes, &blur.push(buffer(&info, &picture)));
    assert_eq!(got[0][0], 16, "a sigma of 0 is no reason to pass what is filled");
    set(&blur, "cover", "blur");
    set(&blur, "strength", "0.25");
    let out = blur.push(buffer(&info, &picture));
    // 0.25·30.5 is rounded up to 8.
    check(&info, &out, &picture, &blurred(&picture, 8.0), &quarter, true);
    set(&blur, "region-sources", "roi");
    check(&info, &blur.push(buffer(&info, &picture)), &picture, &picture, &[], true);
    assert!(blur.messages(gst::MessageType::Error).is_empty());
}

#[test]
fn a_message_says_what_was_covered() {
    let info = info(VideoFormat::Nv12, [100, 80]);
    let mut blur = covering(
        "post-messages=true expand=0.5 cover=mosaic \
         zones=<[zone,name=door,x=0.0,y=0.0,width=0.1,height=0.5],[zone,x=0.0,y=0.0,width=0.1,height=0.1]>",
        true,
        &info,
    );
    let message = |blur: &Blur| -> gst::Structure {
        let message = blur.bus.pop_filtered(&[gst::MessageType::Element]).expect("a message");
        assert!(message.src() == Some(blur.element.upcast_ref()));
        message.structure().unwrap().to_owned()
    };
    let regions = |message: &gst::Structure| -> Vec<String> {
        let regions = message.get::<gst::Array>("regions").unwrap();
        regions.as_slice().iter().map(|one| one.get::<gst::Structure>().unwrap().to_string()).collect()
    };
    blur.push(with_roi(buffer(&info, &noise(&info, 1)), "face", (50, 20, 10, 20)));
    let first = message(&blur);
    assert_eq!(first.name(), "cudagaussblur");
    assert_eq!(first.get::<&str>("covered"), Ok("regions"));
    assert_eq!(first.get::<&str>("cover"), Ok("mosaic"));
    assert_eq!((first.get::<bool>("missing"), first.get::<bool>("lost")), (Ok(false), Ok(false)));
    assert_eq!(
        [first.get::<u64>("timestamp"), first.get("stream-time"), first.get("running-time")],
        [Ok(0), Ok(0), Ok(0)]
    );
    assert_eq!(first.get::<u64>("duration"), Ok(FRAME.nseconds()));
    assert_eq!(first.get::<f64>("covered-area"), Ok((20.0 * 40.0 + 10.0 * 40.0) / 8000.0));
    let found = regions(&first);
    assert!(
        found[0]
            .contains("x=(uint)45, y=(uint)10, width=(uint)20, height=(uint)40, origin=(string)found, track=(uint)1")
    );
    assert!(found[0].contains("label=(string)face") && found.len() == 3);
    assert!(found[1].contains("origin=(string)zone, name=(string)door"), "{found:?}");
    assert!(found[2].contains("origin=(string)zone") && !found[2].contains("name"), "{found:?}");

    blur.push(buffer(&info, &noise(&info, 2)));
    let second = message(&blur);
    assert_eq!(second.get::<&str>("covered"), Ok("frame"));
    assert_eq!((second.get::<bool>("missing"), second.get::<f64>("covered-area")), (Ok(true), Ok(1.0)));
    assert_eq!(second.get::<u64>("timestamp"), Ok(FRAME.nseconds()));
    assert!(regions(&second).is_empty());

    blur.element.set_property_from_str("on-missing", "pass");
    blur.push(buffer(&info, &noise(&info, 3)));
    assert!(regions(&message(&blur))[0].contains("origin=(string)predicted, track=(uint)1"));
    blur.element.set_property_from_str("on-missing", "drop");
    blur.try_push(buffer(&info, &noise(&info, 4))).unwrap();
    assert_eq!(message(&blur).get::<&str>("covered"), Ok("dropped"));
    blur.element.set_property_from_str("region-sources", "roi");
    blur.element.set_property_from_str("on-missing", "pass");
    blur.element.set_property("hold-time", 0_u64);
    blur.push(buffer(&info, &noise(&info, 4)));
    assert_eq!(message(&blur).get::<&str>("covered"), Ok("nothing"));
    assert!(blur.bus.pop_filtered(&[gst::MessageType::Element]).is_none(), "one message a frame");
}

/// A picture of noise whose alpha channel has these values of 8 bits, rounded down to its depth. The bits below them are noise.
fn with_alpha(planes: &[PlaneLayout], seed: u64, value: impl Fn(u32, u32) -> u8) -> Picture {
    let mut picture = Picture::new(planes, seed);
    let with_alpha = picture.planes.iter().zip(&mut picture.bytes);
    let (layout, bytes) = with_alpha.filter(|(layout, _)| layout.roles().contains(&Role::Alpha)).last().unwrap();
    let channel = samples::channels(layout).find(|channel| layout.roles[channel.first] == Role::Alpha).unwrap();
    for (y, row) in (0..layout.height).zip(bytes.chunks_mut(pitch(layout))) {
        for x in 0..layout.width {
            let value = u16::from(value(x, y));
            let value = match layout.depth {
                _ if layout.sample_layout == SampleLayout::Packed1010102 => value >> 6,
                depth => value << (depth - 8) | channel.load(layout, row, x) & ((1 << (depth - 8)) - 1),
            };
            channel.store(layout, row, x, value);
        }
    }
    picture
}

/// A disc with a soft edge, and the last sample of the picture.
fn disc([width, height]: [u32; 2]) -> impl Fn(u32, u32) -> u8 {
    move |x, y| {
        let distance = (f64::from(x) - 0.4 * f64::from(width)).hypot(f64::from(y) - 0.45 * f64::from(height));
        let is_last = (x, y) == (width - 1, height - 1);
        if is_last { 255 } else { (128.0 + 20.0 * (22.0 - distance)).clamp(0.0, 255.0) as u8 }
    }
}

/// The alpha channel of a buffer, as GStreamer unpacks it: a GRAY8 picture in a sample.
fn alpha_of(info: &VideoInfo, buffer: &gst::Buffer) -> gst::Sample {
    let gray = self::info(VideoFormat::Gray8, [info.width(), info.height()]);
    let frame = gst_video::VideoFrame::from_buffer_readable(buffer.clone(), info).unwrap();
    let (format, width) = (info.format_info(), info.width() as usize);
    let strides = &frame.plane_stride()[..info.n_planes() as usize];
    // The bindings expect as many rows of every plane.
    let planes = (0..info.n_planes()).zip(strides).map(|(plane, stride)| {
        let mut bytes = frame.plane_data(plane).unwrap().to_vec();
        bytes.resize(bytes.len().max(*stride as usize * info.height() as usize), 0);
        bytes
    });
    let planes: Vec<Vec<u8>> = planes.collect();
    let planes: Vec<&[u8]> = planes.iter().map(Vec::as_slice).collect();
    let pixel_bytes = gst_video::VideoFormatInfo::from_format(format.unpack_format()).pixel_stride()[0] as usize;
    let mut mask = vec![0; gray.size()];
    for (y, mask) in (0..info.height() as i32).zip(mask.chunks_mut(gray.stride()[0] as usize)) {
        let mut row = vec![0; pixel_bytes * width];
        format.unpack(gst_video::VideoPackFlags::empty(), &mut row, &planes, strides, 0, y, width as i32);
        // Alpha comes first, in the byte order of the machine.
        let alpha = row.chunks(pixel_bytes).map(|pixel| match pixel_bytes {
            4 => pixel[0],
            _ => (u16::from_ne_bytes([pixel[0], pixel[1]]) >> 8) as u8,
        });
        // The largest value of 2 bits is 255, too; GStreamer makes 192 of it.
        let alpha = alpha.map(|alpha| if info.comp_depth(3) == 2 { alpha / 64 * 85 } else { alpha });
        mask.iter_mut().zip(alpha).for_each(|(to, alpha)| *to = alpha);
    }
    gst::Sample::builder().caps(&gray.to_caps().unwrap()).buffer(&gst::Buffer::from_mut_slice(mask)).build()
}

/// The alpha channel covers and shows as the same mask of a region of interest does that has all of the picture: every byte of
/// every format with alpha, also of interlaced frames.
#[test]
fn alpha_is_the_mask_of_an_object_in_all_of_the_picture() {
    let components = |format: &VideoFormat| gst_video::VideoFormatInfo::from_format(*format).n_components();
    let formats: Vec<VideoFormat> = formats().into_iter().filter(|format| components(format) == 4).collect();
    assert!(formats.len() > 20, "{formats:?}");
    let zone = "zones=<[zone,x=0.75,y=0.0,width=0.2,height=0.3]>";
    for (seed, format) in formats.into_iter().enumerate() {
        for (case, properties) in [
            "region-mode=inside cover=fill",
            "region-mode=outside cover=fill feather=9",
            "region-mode=inside sigma=3 feather=6 planes=luma+chroma",
            "region-mode=outside sigma=5 grow=-2",
            &format!("region-mode=inside cover=mosaic grow=3 {zone}"),
            &format!("region-mode=outside cover=mosaic {zone}"),
        ]
        .into_iter()
        .enumerate()
        {
            let is_interlaced = (seed + case) % 3 == 0;
            let mode = if is_interlaced { VideoInterlaceMode::Interleaved } else { VideoInterlaceMode::Progressive };
            let info = VideoInfo::builder(format, SIZE[0], SIZE[1]).fps((25, 1)).interlace_mode(mode).build().unwrap();
            let planes = layouts::planes(&info, is_interlaced).unwrap();
            let picture = with_alpha(&planes, seed as u64, disc(SIZE));
            let input = buffer(&info, &picture);
            let mask = gst::Structure::builder("mask").field("sample", alpha_of(&info, &input)).build();
            let mut blur = covering(&format!("region-sources=zones+alpha {properties}"), true, &info);
            let mut by_roi = covering(&format!("region-sources=zones+roi shape=mask {properties}"), true, &info);
            let mut with_roi = input.copy_deep().unwrap();
            VideoRegionOfInterestMeta::add(with_roi.make_mut(), "person", (0, 0, SIZE[0], SIZE[1])).add_param(mask);
            let [got, expected] = [blur.push(input.copy_deep().unwrap()), by_roi.push(with_roi)];
            let what = format!("{format:?} {properties} {mode:?}");
            let bytes = |buffer: &gst::Buffer| buffer.map_readable().unwrap().to_vec();
            assert!(bytes(&got) == bytes(&expected), "{what}");
            assert!(bytes(&got) != bytes(&input), "{what}: nothing is covered");
            for kind in [gst::MessageType::Warning, gst::MessageType::Error] {
                assert_eq!(blur.messages(kind), [""; 0], "{what}");
            }
        }
    }
}

/// Checks a frame of RGBA of which the alpha channel has these values: what it shows as an object is black, and what is not near
/// it as it was; or the other way round. Returns the number of pixels that are surely covered, and that of those surely shown.
#[track_caller]
fn check_alpha(mode: &str, info: &VideoInfo, caps: &gst::Caps, value: &dyn Fn(u32, u32) -> u8) -> [usize; 2] {
    let picture = with_alpha(&layouts::planes(info, false).unwrap(), 5, value);
    let (width, height) = (picture.planes[0].width, picture.planes[0].height);
    let mut blur = Blur::new(&format!("backend=cpu region-mode={mode} region-sources=alpha cover=fill"));
    blur.harness.add_propose_allocation_meta(VideoMeta::meta_api(), None);
    blur.harness.set_src_caps(caps.clone());
    let (_, got) = planes(info, &picture.planes, &blur.push(buffer(info, &picture)));
    let near = 4 * width.max(height).div_ceil(512).next_power_of_two();
    let mut counts = [0, 0];
    for (x, y) in (0..height).flat_map(|y| (0..width).map(move |x| (x, y))) {
        let mut around = (y.saturating_sub(near)..(y + near + 1).min(height)).flat_map(|y| {
            let columns = x.saturating_sub(near)..(x + near + 1).min(width);
            columns.step_by(near as usize / 4).map(move |x| value(x, y))
        });
        let (is_covered, is_shown) = match mode {
            "inside" => (value(x, y) >= 128, around.all(|value| value == 0)),
            _ => (value(x, y) < 128, around.all(|value| value == 255)),
        };
        let at = y as usize * pitch(&picture.planes[0]) + 4 * x as usize;
        let (pixel, before) = (&got[0][at..][..4], &picture.bytes[0][at..][..4]);
        assert!(!is_covered || pixel == [0, 0, 0, 255], "{mode} ({x},{y}) shows {pixel:?}");
        assert!(!is_shown || pixel == before, "{mode} ({x},{y}) is covered");
        counts = [counts[0] + usize::from(is_covered), counts[1] + usize::from(is_shown)];
    }
    counts
}

#[test]
fn alpha_is_covered_or_shown() {
    for mode in ["inside", "outside"] {
        let check = |size: [u32; 2], value: &dyn Fn(u32, u32) -> u8| {
            let info = info(VideoFormat::Rgba, size);
            check_alpha(mode, &info, &info.to_caps().unwrap(), value)
        };
        assert!(check(SIZE, &disc(SIZE)).iter().all(|count| *count > 200));
        // Wider than a mask in a meta may be.
        assert!(check([5001, 180], &|x, _| if x < 2000 { 255 } else { 0 }).iter().all(|count| *count > 100_000));
        for size in [[1, 1], [3, 2], SIZE] {
            let all = (size[0] * size[1]) as usize;
            let [without, whole] = if mode == "inside" { [[0, all], [all, 0]] } else { [[all, 0], [0, all]] };
            assert_eq!(check(size, &|_, _| 0), without, "no object");
            assert_eq!(check(size, &|_, _| 255), whole);
        }
        // Of interlace-mode=alternate: a buffer has one field, and the alpha channel of it.
        let (caps, _) = alternate();
        let mut caps = caps.copy();
        caps.make_mut().set("format", "RGBA");
        let info = VideoInfo::from_caps(&caps).unwrap();
        assert!(check_alpha(mode, &info, &caps, &disc([64, 60])).iter().all(|count| *count > 200));
    }
}

/// Each frame has its own alpha channel: nothing of it is held, whatever waits.
#[test]
fn alpha_counts_in_its_own_frame() {
    let info = info(VideoFormat::A420, SIZE);
    let planes = layouts::planes(&info, false).unwrap();
    let left = |x: u32, _: u32| if x < 40 { 255 } else { 0 };
    let inputs = [with_alpha(&planes, 1, left), with_alpha(&planes, 2, |_, _| 0), with_alpha(&planes, 3, disc(SIZE))];
    let outputs = |properties: &str| -> Vec<Vec<u8>> {
        let mut blur = covering(&format!("region-sources=alpha cover=mosaic {properties}"), true, &info);
        inputs.iter().for_each(|input| {
            blur.try_push(buffer(&info, input)).unwrap();
        });
        blur.harness.push_event(gst::event::Eos::new());
        let outputs = std::iter::from_fn(|| blur.harness.try_pull());
        outputs.map(|output| output.map_readable().unwrap().to_vec()).collect()
    };
    let [now, later] = [outputs(""), outputs("look-ahead=2")];
    assert!(now == later && now.len() == 3);
    assert!(now[1] == buffer(&info, &inputs[1]).map_readable().unwrap()[..], "it has no object");
    assert!(now[0] != now[1] && now[2] != buffer(&info, &inputs[2]).map_readable().unwrap()[..]);
}

#[test]
fn a_message_says_what_alpha_covers() {
    let info = info(VideoFormat::Ayuv, [100, 80]);
    let planes = layouts::planes(&info, false).unwrap();
    let mut blur = covering("region-sources=alpha cover=fill post-messages=true", true, &info);
    let square = |x: u32, y: u32| if (20..50).contains(&x) && (30..40).contains(&y) { 255 } else { 0 };
    blur.push(buffer(&info, &with_alpha(&planes, 1, square)));
    let message =
        |blur: &Blur| blur.bus.pop_filtered(&[gst::MessageType::Element]).unwrap().structure().unwrap().to_owned();
    let first = message(&blur);
    let regions = first.get::<gst::Array>("regions").unwrap();
    let [region] = regions.as_slice() else { panic!("{regions:?}") };
    let region = region.get::<gst::Structure>().unwrap().to_string();
    let expected = "x=(uint)20, y=(uint)30, width=(uint)30, height=(uint)10, origin=(string)alpha, shape=(string)mask;";
    assert_eq!(region, format!("region, {expected}"));
    assert_eq!(first.get::<&str>("covered"), Ok("regions"));
    let input = buffer(&info, &with_alpha(&planes, 1, |_, _| 0));
    let address = input.as_ptr();
    assert_eq!(blur.push(input).as_ptr(), address, "without an object it is the same buffer");
    assert_eq!(message(&blur).get::<&str>("covered"), Ok("nothing"));
}

#[test]
fn frames_without_an_alpha_channel_are_an_error() {
    for format in [VideoFormat::Nv12, VideoFormat::Rgbx, VideoFormat::Gray16Le] {
        for properties in ["region-sources=alpha", "region-mode=outside region-sources=all+alpha on-missing=pass"] {
            let info = info(format, SIZE);
            let mut blur = covering(properties, true, &info);
            assert_eq!(blur.try_push(buffer(&info, &noise(&info, 1))), Err(gst::FlowError::Error));
            assert!(blur.harness.try_pull().is_none());
            let errors = blur.messages(gst::MessageType::Error);
            let expected =
                format!("region-sources=alpha, but {format} has no alpha channel; put cudagaussblur right after");
            assert!(matches!(&errors[..], [one] if one.contains(&expected)), "{errors:?}");
        }
    }
}

/// A buffer that cannot be mapped or is too short is an error, never a frame that is pushed as it came.
#[test]
fn frames_that_cannot_be_covered_are_not_pushed() {
    let info = info(VideoFormat::Nv12, SIZE);
    let short = || with_roi(gst::Buffer::from_mut_slice(vec![0; info.size() - 1]), "face", (1, 1, 9, 9));
    let mut blur = covering("", true, &info);
    assert_eq!(blur.try_push(short()), Err(gst::FlowError::Error));
    assert!(blur.harness.try_pull().is_none());
    let errors = blur.messages(gst::MessageType::Error);
    assert!(matches!(&errors[..], [one] if one.contains("the input buffer is truncated")), "{errors:?}");

    let with_alpha = self::info(VideoFormat::Rgba, SIZE);
    let mut blur = covering("region-sources=alpha", true, &with_alpha);
    let short = gst::Buffer::from_mut_slice(vec![0; with_alpha.size() - 1]);
    assert_eq!(blur.try_push(short), Err(gst::FlowError::Error));
    let errors = blur.messages(gst::MessageType::Error);
    assert!(matches!(&errors[..], [one] if one.contains("the input buffer is truncated")), "{errors:?}");

    let mut overlapping = gst::Buffer::from_mut_slice(vec![0; 2 * info.size()]);
    let flags = gst_video::VideoFrameFlags::empty();
    let strides = info.stride().to_vec();
    VideoMeta::add_full(overlapping.get_mut().unwrap(), flags, VideoFormat::Nv12, 97, 61, &[0, 100], &strides).unwrap();
    let mut blur = covering("", true, &info);
    assert_eq!(blur.try_push(with_roi(overlapping, "face", (1, 1, 9, 9))), Err(gst::FlowError::Error));
    let errors = blur.messages(gst::MessageType::Error);
    assert!(matches!(&errors[..], [one] if one.contains("the planes of the input buffer overlap")), "{errors:?}");
}

/// With `kernel-size`, a small object is blurred no less than a large one; and what covers nothing says so.
#[test]
fn strength_is_not_limited_by_kernel_size_and_nothing_is_called_covered_that_is_not() {
    let info = info(VideoFormat::Gray8, [200, 120]);
    let picture = noise(&info, 8);
    let mut blur = covering("sigma=20 kernel-size=3 expand=0 hold-time=0", true, &info);
    blur.element.set_property("strength", 0.25);
    let out = blur.push(with_roi(buffer(&info, &picture), "face", (50, 60, 40, 40)));
    check(&info, &out, &picture, &blurred(&picture, 20.0), &[rect(50, 60, 40, 40)], true);

    for properties in ["sigma=0", "planes=chroma"] {
        let mut blur = covering(&format!("on-missing=cover post-messages=true {properties}"), true, &info);
        check(&info, &blur.push(buffer(&info, &picture)), &picture, &picture, &[], true);
        let next = || blur.bus.pop_filtered(&[gst::MessageType::Warning, gst::MessageType::Element]).unwrap();
        let (warning, message) = (next(), next());
        let gst::MessageView::Warning(warning) = warning.view() else { panic!("{warning:?}") };
        assert!(warning.error().to_string().contains("the blur does not change luma"), "{warning:?}");
        let structure = message.structure().unwrap();
        assert_eq!((structure.get::<&str>("covered"), structure.get::<f64>("covered-area")), (Ok("nothing"), Ok(0.0)));
        assert_eq!([stat(&blur, "frames"), stat(&blur, "frames-untouched")], [1, 1]);
    }
}
