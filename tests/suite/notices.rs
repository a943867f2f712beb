//! A configuration that covers nothing, or less than its words say, says so once on the bus, with cause and cure.

use crate::common::covered::{buffer, info, noise, with_roi};
use crate::common::pipes;
use crate::common::video::{Blur, FRAME, texts};
use gst::prelude::*;
use gst_video::{VideoFormat, VideoInfo, VideoRegionOfInterestMeta};

const ZONES: &str = "zones=<[zone,x=0.1,y=0.1,width=0.3,height=0.4]>";

fn caps() -> VideoInfo {
    info(VideoFormat::Nv12, [64, 48])
}

/// The warnings of so many frames, each with the region of interest of `label`, if there is one.
fn warnings(blur: &mut Blur, frames: u64, label: Option<&str>) -> Vec<String> {
    let picture = noise(&caps(), 1);
    for _ in 0..frames {
        let input = buffer(&caps(), &picture);
        let input = if let Some(label) = label { with_roi(input, label, (8, 8, 16, 16)) } else { input };
        blur.try_push(input).unwrap();
        blur.harness.try_pull();
    }
    blur.messages(gst::MessageType::Warning)
}

fn started(properties: &str) -> Blur {
    let mut blur = Blur::new(&format!("backend=cpu {properties}"));
    blur.caps(&caps());
    blur
}

/// The one warning of so many frames, and that there is no second one.
#[track_caller]
fn the_warning(properties: &str, frames: u64, label: Option<&str>) -> String {
    let mut blur = started(properties);
    let found = warnings(&mut blur, frames, label);
    let [one] = &found[..] else { panic!("{properties}: {found:?}") };
    assert_eq!(warnings(&mut blur, 200, label), [""; 0], "{properties}: once");
    one.clone()
}

#[track_caller]
fn no_warning(properties: &str, frames: u64, label: Option<&str>) {
    assert_eq!(warnings(&mut started(properties), frames, label), [""; 0], "{properties}");
}

/// The warnings of five frames of these caps, which are those of [`caps`] but for a field, after these events.
fn warnings_of(properties: &str, field: Option<(&str, &str)>, events: Vec<gst::Event>) -> Vec<String> {
    let mut blur = Blur::new(&format!("backend=cpu {properties}"));
    let mut caps = caps().to_caps().unwrap();
    field.into_iter().for_each(|(name, value)| caps.make_mut().set(name, value));
    blur.harness.set_src_caps(caps);
    events.into_iter().for_each(|event| assert!(blur.harness.push_event(event)));
    warnings(&mut blur, 5, None)
}

/// A stream that players turn, before and after an element has turned it.
#[test]
fn a_turned_stream() {
    let tag = |orientation: &str| {
        let mut tags = gst::TagList::new();
        tags.make_mut().add::<gst::tags::ImageOrientation>(&orientation, gst::TagMergeMode::Replace);
        tags.make_mut().add::<gst::tags::Title>(&"a title", gst::TagMergeMode::Replace);
        gst::event::Tag::new(tags)
    };
    let zones = format!("region-mode=inside {ZONES}");
    let found = warnings_of(&zones, None, vec![tag("rotate-90")]);
    let [one] = &found[..] else { panic!("{found:?}") };
    assert!(one.contains("tag image-orientation=rotate-90") && one.contains("put videoflip"), "{one}");
    for (properties, tags) in
        [("sigma=2", vec![tag("rotate-90")]), (&*zones, vec![tag("rotate-0")]), (&*zones, Vec::new())]
    {
        assert_eq!(warnings_of(properties, None, tags), [""; 0], "{properties}");
    }
    // While frames wait, and where videoflip has turned the stream.
    for (flip, expected) in [("", 1), ("videoflip video-direction=auto !", 0)] {
        let line = format!(
            "videotestsrc num-buffers=5 ! video/x-raw,width=64,height=48 ! taginject tags=image-orientation=rotate-180 ! {flip} \
             cudagaussblur backend=cpu region-mode=inside look-ahead=2 on-missing=pass {ZONES} ! appsink name=sink sync=false"
        );
        let pipeline = pipes::pipeline(&line);
        assert_eq!(pipes::pictures(&pipeline).count(), 5, "{line}");
        let warnings = texts(&pipeline.bus().unwrap(), gst::MessageType::Warning);
        let turned = warnings.iter().filter(|warning| warning.contains("image-orientation")).count();
        assert_eq!(turned, expected, "{line}: {warnings:?}");
        pipeline.set_state(gst::State::Null).unwrap();
    }
}

#[test]
fn settings_of_regions_without_regions() {
    for (properties, names) in [
        (ZONES.to_owned(), "zones is set"),
        ("labels=face".to_owned(), "labels is set"),
        ("cover=fill".to_owned(), "cover is set"),
        (format!("cover=mosaic labels=face {ZONES}"), "zones, labels, cover are set"),
    ] {
        for sigma in ["", " sigma=0"] {
            let warning = the_warning(&format!("{properties}{sigma}"), 1, None);
            assert!(
                warning.starts_with(names) && warning.contains("set region-mode to inside or outside"),
                "{warning}"
            );
        }
    }
    no_warning("sigma=3 strength=1 expand=1", 100, Some("face"));
    // An application that switches regions off knows what it does.
    let mut blur = started(&format!("region-mode=inside {ZONES}"));
    assert_eq!(warnings(&mut blur, 3, None), [""; 0]);
    blur.element.set_property_from_str("region-mode", "frame");
    assert_eq!(warnings(&mut blur, 3, None), [""; 0]);
}

#[test]
fn no_zones_and_no_detector() {
    let frames = 2 * gst::ClockTime::SECOND.nseconds() / FRAME.nseconds();
    for on_missing in ["auto", "pass"] {
        let properties = format!("region-mode=inside on-missing={on_missing}");
        no_warning(&properties, frames - 1, None);
        let warning = the_warning(&properties, frames, None);
        assert!(warning.contains("region-mode=inside has covered nothing for 2 s"), "{warning}");
        assert!(warning.contains("set zones, or put cudagaussblur right after a detector"), "{warning}");
    }
    let warning = the_warning("region-mode=outside on-missing=pass", frames, None);
    assert!(warning.contains("region-mode=outside has shown nothing for 2 s"), "{warning}");
    no_warning(&format!("region-mode=inside {ZONES}"), 200, None);
    no_warning("region-mode=inside on-missing=pass", 200, Some("face"));
    for (on_missing, done) in [("cover", "applied to"), ("drop", "has dropped")] {
        let warning = the_warning(&format!("region-mode=inside on-missing={on_missing}"), frames, None);
        assert!(warning.contains(&format!("on-missing={on_missing} {done} every frame for 2 s")), "{warning}");
    }
    // The warning about the first frame says it already.
    let warning = the_warning("region-mode=outside", frames, None);
    assert!(warning.contains("has no detector metas: it is covered as a whole"), "{warning}");
    // Without another source there is nothing to wait for.
    let warning = the_warning("region-mode=inside region-sources=zones", 1, None);
    assert!(warning.contains("zones is empty, and region-sources names no detections"), "{warning}");
    let warning = the_warning(&format!("region-mode=inside region-sources=roi {ZONES}"), 1, Some("face"));
    assert!(warning.contains("zones is set, but region-sources does not name zones"), "{warning}");
}

/// A frame without an object is nothing to warn of; a stream without one is.
#[test]
fn alpha_that_covers_nothing() {
    let info = info(VideoFormat::Rgba, [64, 48]);
    let warnings = |properties: &str, alphas: &[(u64, u8)], ends: bool| {
        let mut blur = Blur::new(&format!("backend=cpu region-sources=alpha {properties}"));
        blur.caps(&info);
        for (count, alpha) in alphas {
            for _ in 0..*count {
                let bytes = (0..info.size()).map(|i| if i % 4 == 3 { *alpha } else { i as u8 }).collect::<Vec<u8>>();
                blur.push(gst::Buffer::from_mut_slice(bytes));
            }
        }
        if ends {
            blur.harness.push_event(gst::event::Eos::new());
        }
        blur.messages(gst::MessageType::Warning)
    };
    let frames = 2 * gst::ClockTime::SECOND.nseconds() / FRAME.nseconds();
    for (mode, nothing, something, cause) in [
        ("inside", [0, 100], 255, "no object (it was below 128 everywhere)"),
        ("outside", [255, 200], 0, "nothing to cover (it was 128 and more everywhere)"),
    ] {
        let properties = format!("region-mode={mode} cover=fill");
        for alpha in nothing {
            assert_eq!(warnings(&properties, &[(frames - 1, alpha)], false), [""; 0]);
            for (count, ends, since) in [(2 * frames, true, "for 2 s"), (3, true, "up to the end of the stream")] {
                let found = warnings(&properties, &[(count, alpha)], ends);
                let [one] = &found[..] else { panic!("{properties} {alpha}: {found:?}") };
                assert!(one.contains(&format!("region-mode={mode} has covered nothing {since}")), "{one}");
                assert!(one.contains(cause) && one.contains("right after the element that makes"), "{one}");
            }
        }
        assert_eq!(warnings(&properties, &[(1, something), (2 * frames, nothing[0])], true), [""; 0]);
        let with_zone = format!("region-mode={mode} cover=fill region-sources=zones+alpha {ZONES}");
        let expected = usize::from(mode == "outside");
        assert_eq!(
            warnings(&with_zone, &[(2 * frames, nothing[0])], true).len(),
            expected,
            "a zone is covered, or shown"
        );
        // The blur that changes nothing is the cause.
        let found = warnings(&format!("region-mode={mode} sigma=0 strength=0"), &[(2 * frames, something)], true);
        assert!(matches!(&found[..], [one] if one.contains("the blur does not change luma")), "{found:?}");
    }
    let found = warnings("region-mode=frame", &[(1, 9)], true);
    assert!(matches!(&found[..], [one] if one.starts_with("region-sources=alpha is set")), "{found:?}");
}

/// Neither a few long frames nor frames that claim to last no time.
#[test]
fn two_seconds_are_ten_frames_and_pass_without_durations() {
    let picture = noise(&caps(), 1);
    for (duration, expected) in [(gst::ClockTime::from_seconds(10), 10), (gst::ClockTime::ZERO, 50)] {
        let mut blur = started("region-mode=inside");
        let mut pushed = 0;
        while blur.bus.pop_filtered(&[gst::MessageType::Warning]).is_none() {
            let mut input = buffer(&caps(), &picture);
            input.make_mut().set_duration(duration);
            blur.harness.push_and_pull(input).unwrap();
            pushed += 1;
        }
        assert_eq!(pushed, expected);
    }
}

#[test]
fn settings_that_change_are_looked_at_again() {
    let set = |blur: &Blur, name: &str, value: &str| blur.element.set_property_from_str(name, value);
    // Labels that no longer match.
    let mut blur = started("region-mode=inside labels=face");
    assert_eq!(warnings(&mut blur, 5, Some("face")), [""; 0]);
    set(&blur, "labels", "fase");
    let found = warnings(&mut blur, 60, Some("face"));
    assert!(matches!(&found[..], [one] if one.contains("labels=fase")), "{found:?}");
    // The cure that a warning named.
    let mut blur = started("region-mode=outside");
    assert_eq!(warnings(&mut blur, 2, None).len(), 1);
    set(&blur, "region-mode", "inside");
    set(&blur, "on-missing", "pass");
    let found = warnings(&mut blur, 60, None);
    assert!(matches!(&found[..], [one] if one.contains("region-mode=inside has covered nothing")), "{found:?}");
    // Sources without zones.
    let mut blur = started("region-mode=inside");
    assert_eq!(warnings(&mut blur, 2, Some("face")), [""; 0]);
    set(&blur, "region-sources", "zones");
    let found = warnings(&mut blur, 2, Some("face"));
    assert!(matches!(&found[..], [one] if one.contains("zones is empty")), "{found:?}");
    // Zones that are gone: it was covered until then.
    let mut blur = started(&format!("region-mode=inside {ZONES}"));
    assert_eq!(warnings(&mut blur, 100, None), [""; 0]);
    set(&blur, "zones", "<>");
    assert_eq!(warnings(&mut blur, 49, None), [""; 0]);
    assert_eq!(warnings(&mut blur, 1, None).len(), 1);
    // One cause after the other.
    let mut blur = started("region-mode=inside planes=luma");
    assert_eq!(warnings(&mut blur, 2, Some("face")).len(), 1);
    set(&blur, "strength", "0");
    set(&blur, "kernel-size", "1");
    let found = warnings(&mut blur, 2, Some("face"));
    assert!(matches!(&found[..], [one] if one.contains("luma") && one.contains("set kernel-size=0")), "{found:?}");
}

/// A detector that was there while the whole picture was blurred.
#[test]
fn detectors_are_remembered_from_whole_frames() {
    let mut blur = started("sigma=3");
    assert_eq!(warnings(&mut blur, 2, Some("face")), [""; 0]);
    blur.element.set_property_from_str("region-mode", "inside");
    let found = warnings(&mut blur, 1, None);
    assert!(matches!(&found[..], [one] if one.contains("it is covered as a whole")), "{found:?}");
}

/// A clip that ends before the two seconds or the sixty detections are over.
#[test]
fn a_short_clip_says_it_at_its_end() {
    let late = "zones=<[zone,x=0.1,y=0.1,width=0.3,height=0.4,start=3600000000000]>";
    for (label, properties, expected) in [
        (None, "on-missing=pass", "has covered nothing up to the end of the stream"),
        (Some("face"), "on-missing=pass", ""),
        (None, ZONES, ""),
        (Some("face"), "labels=faces", "none of the 5 detections so far counts"),
        (None, late, "no zone was active in any frame"),
        (None, "region-mode=frame region-sources=zones", ""),
    ] {
        let mut blur = started(&format!("region-mode=inside {properties}"));
        assert_eq!(warnings(&mut blur, 5, label), [""; 0]);
        blur.harness.push_event(gst::event::Eos::new());
        let found = blur.messages(gst::MessageType::Warning);
        match &found[..] {
            [] => assert!(expected.is_empty(), "{properties}"),
            [one] => assert!(!expected.is_empty() && one.contains(expected), "{properties}: {one}"),
            more => panic!("{more:?}"),
        }
    }
}

#[test]
fn detections_of_which_none_counts() {
    let warning = the_warning("region-mode=inside labels=faces", 60, Some("face"));
    assert!(warning.contains("none of the 60 detections so far counts with labels=faces"), "{warning}");
    assert!(warning.contains("they were labelled face, with no confidence;"), "{warning}");
    no_warning("region-mode=inside labels=faces", 59, Some("face"));
    no_warning("region-mode=inside labels=Face", 200, Some("face"));
    let warning = the_warning("region-mode=outside min-confidence=0.5", 60, Some("face"));
    assert!(warning.contains("an unknown label or confidence that is asked for"), "{warning}");

    let picture = noise(&caps(), 1);
    /// Label, place and confidence.
    type Found = (&'static str, (u32, u32, u32, u32), Option<f64>);
    let of_boxes = |properties: &str, boxes: &[Found], frames: u64| {
        let mut blur = started(properties);
        for _ in 0..frames {
            let mut input = buffer(&caps(), &picture);
            for (label, place, confidence) in boxes {
                let mut meta = VideoRegionOfInterestMeta::add(input.make_mut(), label, *place);
                let param = |value: f64| gst::Structure::builder("detection").field("confidence", value).build();
                confidence.iter().for_each(|value| meta.add_param(param(*value)));
            }
            blur.push(input);
        }
        blur.messages(gst::MessageType::Warning)
    };
    let place = (8, 8, 9, 9);
    let found = of_boxes(
        "region-mode=inside min-confidence=0.9 labels=face",
        &[("face", place, Some(0.5)), ("cat", place, Some(0.75))],
        30,
    );
    let expected = "min-confidence=0.9: they were labelled cat, face, with a confidence of up to 0.75";
    assert!(matches!(&found[..], [one] if one.contains(expected)), "{found:?}");
    // A detector that says that it found nothing, by a box of no size.
    let nothing = ("nothing", (0, 0, 0, 0), None);
    assert_eq!(of_boxes("region-mode=inside labels=face", &[nothing], 100), [""; 0]);
    let found = of_boxes("region-mode=inside min-confidence=0.9", &[nothing, ("face", place, Some(0.5))], 60);
    assert_eq!(found.len(), 1, "{found:?}");
    // A detector that works on a larger picture.
    let found = of_boxes("region-mode=inside", &[("face", (1000, 1000, 50, 50), None)], 60);
    assert!(matches!(&found[..], [one] if one.contains("outside of the picture of 64x48")), "{found:?}");
}

#[test]
fn zones_whose_times_are_seconds() {
    for (field, is_doubtful) in [("start=5", true), ("end=90", true), ("end=1000000", false), ("start=0", false)] {
        let zones = format!("region-mode=inside zones=<[zone,x=0.1,y=0.1,width=0.3,height=0.4,{field}]>");
        if is_doubtful {
            let warning = the_warning(&zones, 1, None);
            assert!(warning.contains(&format!("zone 1 has {field}")) && warning.contains("nanoseconds"), "{warning}");
            assert!(warning.ends_with("1 s is 1000000000"), "{warning}");
        } else {
            no_warning(&zones, 200, None);
        }
    }
    let warning = the_warning("region-mode=inside zones=<[zone,x=1.0,y=0.0,width=0.5,height=0.5]>", 1, None);
    assert!(warning.contains("zone 1 has x=1, where the picture ends"), "{warning}");
}

#[test]
fn blurs_that_do_not_change_a_region() {
    let warning = the_warning("region-mode=inside planes=luma", 1, Some("face"));
    assert!(warning.ends_with("in what it covers, because planes leaves out chroma; set planes=all"), "{warning}");
    for (properties, cause, cure) in [
        (
            "region-mode=inside strength=0 sigma=0.1",
            "sigma=0.1, kernel-size=0, strength=0",
            "increase sigma or strength",
        ),
        (
            "region-mode=inside strength=0 kernel-size=1",
            "kernel-size=1",
            "set kernel-size=0, or increase sigma or strength",
        ),
        ("region-mode=outside sigma=0.1", "sigma=0.1, kernel-size=0 are", "increase sigma"),
    ] {
        let warning = the_warning(properties, 1, Some("face"));
        assert!(warning.contains(cause) && warning.ends_with(cure), "{warning}");
    }
    no_warning("region-mode=inside", 200, Some("face"));
    // Each cause is one warning.
    let mut blur = started("region-mode=inside strength=0 sigma=0 planes=luma");
    let found = warnings(&mut blur, 3, Some("face"));
    assert_eq!(found.len(), 2, "{found:?}");
}

/// Nothing is hidden where what is shown is the whole picture.
#[test]
fn outside_that_shows_the_whole_picture() {
    let frames = 2 * gst::ClockTime::SECOND.nseconds() / FRAME.nseconds();
    let whole = "region-mode=outside region-sources=zones zones=<[zone,x=0.0,y=0.0,width=1.0,height=1.0]>";
    let grown = format!("region-mode=outside region-sources=zones grow=60 {ZONES}");
    for (properties, label) in [
        (whole, None),
        (&format!("{whole} cover=fill shape=ellipse grow=64"), None),
        (&format!("{whole} cover=mosaic feather=4"), None),
        (&grown, None),
        ("region-mode=outside expand=4", Some("face")),
    ] {
        no_warning(properties, frames - 1, label);
        let warning = the_warning(properties, frames, label);
        assert!(warning.contains("region-mode=outside has covered nothing for 2 s"), "{properties}: {warning}");
        assert!(warning.contains("fills the picture") && warning.contains("reduce expand and grow"), "{warning}");
    }
    no_warning("region-mode=outside expand=2", 200, Some("face"));
    no_warning(&format!("region-mode=outside region-sources=zones {ZONES}"), 200, None);
    // Once it has covered something, an object may fill the picture.
    let mut blur = started("region-mode=outside");
    assert_eq!(warnings(&mut blur, 1, Some("face")), [""; 0]);
    blur.element.set_property("expand", 4.0);
    assert_eq!(warnings(&mut blur, 200, Some("face")), [""; 0]);
    let mut blur = started(whole);
    assert_eq!(warnings(&mut blur, 5, None), [""; 0]);
    blur.harness.push_event(gst::event::Eos::new());
    let found = blur.messages(gst::MessageType::Warning);
    assert!(matches!(&found[..], [one] if one.contains("nothing up to the end of the stream")), "{found:?}");
}

/// A zone does not stand for the detector that other settings ask for.
#[test]
fn zones_without_the_detector_that_is_asked_for() {
    let frames = 2 * gst::ClockTime::SECOND.nseconds() / FRAME.nseconds();
    for asked in [
        "labels=face",
        "min-confidence=0.5",
        "shape=mask",
        "look-ahead=2",
        "on-lost=cover",
        "on-missing=pass",
        "region-sources=zones+roi",
    ] {
        let properties = format!("region-mode=inside {asked} {ZONES}");
        no_warning(&properties, frames - 1, None);
        // A box without a mask is a warning of its own.
        if asked != "shape=mask" {
            no_warning(&properties, 200, Some("face"));
        }
        let warning = the_warning(&properties, frames, None);
        assert!(warning.contains("region-mode=inside has covered no detection for 2 s"), "{warning}");
        assert!(warning.contains(&format!("{} asks for detections", asked.split('=').next().unwrap())), "{warning}");
        assert!(warning.ends_with("leave roi and analytics out of region-sources"), "{warning}");
    }
    // A zone alone, with the defaults.
    no_warning(&format!("region-mode=inside cover=fill {ZONES}"), 200, None);
    no_warning(&format!("region-mode=inside labels=face region-sources=zones {ZONES}"), 200, None);
    let mut blur = started(&format!("region-mode=inside labels=face {ZONES}"));
    assert_eq!(warnings(&mut blur, 5, None), [""; 0]);
    blur.harness.push_event(gst::event::Eos::new());
    let found = blur.messages(gst::MessageType::Warning);
    assert!(matches!(&found[..], [one] if one.contains("no detection up to the end of the stream")), "{found:?}");
}

/// A blur that changes nothing covers nothing, whatever `on-missing` asks for.
#[test]
fn no_frame_is_called_covered_that_the_blur_does_not_change() {
    for properties in ["planes=alpha", "planes=luma", "strength=0 sigma=0"] {
        let mut blur = started(&format!("region-mode=inside on-missing=cover {properties}"));
        let found = warnings(&mut blur, 60, None);
        assert!(found.iter().any(|text| text.contains("the blur does not change")), "{properties}: {found:?}");
        assert!(found.iter().any(|text| text.contains("no frame had a detector's meta")), "{properties}: {found:?}");
        assert!(!found.iter().any(|text| text.contains("has covered every frame")), "{properties}: {found:?}");
    }
}
