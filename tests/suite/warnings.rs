//! A configuration that covers nothing, or less than its words say, says so once on the bus, with cause and cure.

use crate::common::covered::info;
use crate::common::pipes;
use crate::common::stream::{Place, Stream, confidence, with_param};
use crate::common::video::{init, texts};
use gst::prelude::*;
use gst_video::VideoFormat;

const ZONE: &str = "zones=<[zone,x=0.1,y=0.1,width=0.3,height=0.4]>";
const WHOLE: &str = "zones=<[zone,x=0.0,y=0.0,width=1.0,height=1.0]>";

/// NV12 frames, or of the format that the properties begin with.
fn started(properties: &str) -> Stream {
    init();
    let (first, others) = properties.split_once(' ').unwrap_or((properties, ""));
    let (format, properties) = if first.contains('=') { ("NV12", properties) } else { (first, others) };
    let info = info(VideoFormat::from_string(format), [64, 48]);
    Stream::downstream(false, &info, &format!("region-mode=frame strength=0.25 {properties}"))
}

/// Plays a table. A row has properties (ZONE is a zone, WHOLE one that fills the picture), what enters, and the warning that its last
/// word brings, but none before; then what enters next and its warning. As many as 200 more frames like the last one bring no other.
#[track_caller]
fn says(table: &str) {
    for row in table.lines().map(str::trim).filter(|row| !row.is_empty() && !row.starts_with("//")) {
        let row = row.replace("ZONE", ZONE).replace("WHOLE", WHOLE);
        let columns: Vec<&str> = row.split('|').map(str::trim).collect();
        let mut stream = started(columns[0]);
        let mut word = "";
        for step in columns[1..].chunks(2) {
            let (before, last) = step[0].rsplit_once(' ').unwrap_or(("", step[0]));
            let (last, times) = last.rsplit_once('*').map_or((last, 1), |(last, times)| (last, times.parse().unwrap()));
            word = last;
            stream.enter(before).enter(&format!("{word}*{}", times - 1)).warns("");
            stream.enter(word).warns(step[1]);
        }
        if word != "eos" {
            stream.enter(&format!("{word}*200")).warns("");
        }
    }
}

/// A stream that players turn, before and after an element has turned it.
#[test]
fn a_turned_stream() {
    says(
        "region-mode=inside ZONE | tag:rotate-90 frame | …tag image-orientation=rotate-90…put videoflip…
         region-mode=inside ZONE | tag:rotate-0 frame*5 |
         sigma=2                 | tag:rotate-90 frame*5 |",
    );
    // While frames wait, and where videoflip has turned the stream.
    for (flip, expected) in [("", 1), ("videoflip video-direction=auto !", 0)] {
        let line = format!(
            "videotestsrc num-buffers=5 ! video/x-raw,width=64,height=48 ! taginject tags=image-orientation=rotate-180 ! {flip} \
             cudagaussblur backend=cpu region-mode=inside look-ahead=2 on-missing=pass {ZONE} ! appsink name=sink sync=false"
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
    let cure = "…set region-mode to inside or outside…";
    for sigma in ["", "sigma=0"] {
        says(&format!(
            "ZONE {sigma}                          | frame | zones is set{cure}
             labels=face {sigma}                   | frame | labels is set{cure}
             cover=fill {sigma}                    | frame | cover is set{cure}
             cover=mosaic labels=face ZONE {sigma} | frame | zones, labels, cover are set{cure}"
        ));
    }
    says(
        "sigma=3 strength=1 expand=1 | face*100 |
         // An application that switches regions off knows what it does.
         region-mode=inside ZONE     | frame*3 region-mode=frame frame*3 |",
    );
}

#[test]
fn no_zones_and_no_detector() {
    let cure = "…set zones, or put cudagaussblur right after a detector…";
    says(&format!(
        "region-mode=inside                      | frame*50 | region-mode=inside has covered nothing for 2 s{cure}
         region-mode=inside on-missing=pass      | frame*50 | region-mode=inside has covered nothing for 2 s{cure}
         region-mode=outside on-missing=pass     | frame*50 | region-mode=outside has shown nothing for 2 s…
         region-mode=inside on-missing=cover     | frame*50 | on-missing=cover applied to every frame for 2 s…
         region-mode=inside on-missing=drop      | frame*50 | on-missing=drop has dropped every frame for 2 s…
         // The warning about the first frame says it already.
         region-mode=outside                     | frame    | …has no detector metas: it is covered as a whole…
         // Without another source there is nothing to wait for.
         region-mode=inside region-sources=zones | frame    | …zones is empty, and region-sources names no detections…
         region-mode=inside region-sources=roi ZONE | face  | …zones is set, but region-sources does not name zones…
         region-mode=inside ZONE                 | frame*200 |
         region-mode=inside on-missing=pass      | face*200 |
         // Seen under region-mode=frame: frames without metas are covered whole.
         sigma=2 | face region-mode=inside frame | …has no detector metas: it is covered as a whole…"
    ));
    // A detector that was there while the whole picture was blurred.
    let mut stream = started("sigma=3");
    stream.enter("face*2").warns("").enter("region-mode=inside frame").warns("…it is covered as a whole…");
}

/// A frame without an object is nothing to warn of; a stream without one is.
#[test]
fn alpha_that_covers_nothing() {
    for (mode, nothing, something, cause) in [
        ("inside", [0, 100], 255, "no object (it was below 128 everywhere)"),
        ("outside", [255, 200], 0, "nothing to cover (it was 128 and more everywhere)"),
    ] {
        let cause = format!("{cause}…right after the element that makes…");
        for alpha in nothing {
            let properties = format!("RGBA region-sources=alpha region-mode={mode} cover=fill");
            says(&format!(
                "{properties} | alpha:{alpha} frame*50 | region-mode={mode} has covered nothing for 2 s…{cause} | eos |
                 {properties} | alpha:{alpha} frame*3 eos | …nothing up to the end of the stream…{cause}
                 {properties} | alpha:{something} frame alpha:{alpha} frame*100 eos |
                 // The blur that changes nothing is the cause.
                 {properties} cover=blur sigma=0 strength=0 | alpha:{something} frame | …the blur does not change luma…"
            ));
        }
    }
    // A zone is covered, or shown.
    says(
        "RGBA region-sources=zones+alpha region-mode=inside cover=fill ZONE  | alpha:0 frame*100 eos |
         RGBA region-sources=zones+alpha region-mode=outside cover=fill ZONE | alpha:255 frame*50 | … | eos |
         RGBA region-sources=alpha                                           | alpha:9 frame | region-sources=alpha is set…",
    );
}

/// Neither a few long frames nor frames that claim to last no time.
#[test]
fn two_seconds_are_ten_frames_and_pass_without_durations() {
    for (duration, expected) in [(gst::ClockTime::from_seconds(10), 10), (gst::ClockTime::ZERO, 50)] {
        let mut stream = started("region-mode=inside");
        let mut pushed = 0;
        while stream.messages(gst::MessageType::Warning).is_empty() {
            let mut frame = stream.frame();
            frame.make_mut().set_duration(duration);
            stream.push_as_is(frame);
            pushed += 1;
        }
        assert_eq!(pushed, expected);
    }
}

#[test]
fn settings_that_change_are_looked_at_again() {
    says(
        "// Labels that no longer match.
         region-mode=inside labels=face  | face*5 labels=fase face*60 | …labels=fase…
         // The cure that a warning named.
         region-mode=outside             | frame | … | region-mode=inside on-missing=pass frame*50 | …has covered nothing…
         // Sources without zones.
         region-mode=inside              | face*2 region-sources=zones face | …zones is empty…
         // Zones that are gone: it was covered until then.
         region-mode=inside ZONE         | frame*100 zones=<> frame*50 | …
         region-mode=inside ZONE labels=face | frame*20 zones=<> frame*50 | …has covered nothing for 2 s…
         region-mode=outside ZONE on-missing=pass | frame*20 zones=<> frame*50 | …has shown nothing for 2 s…
         // Frames that were covered as a whole.
         region-mode=inside on-missing=cover | frame*20 on-missing=pass frame*50 | …has covered nothing for 2 s…
         region-mode=inside on-missing=pass | frame*20 region-mode=frame frame region-mode=inside frame*50 | …nothing for 2 s…
         region-mode=outside expand=4    | face:16x16+8+8*20 frame | … | face:16x16+8+8*50 | …has covered nothing for 2 s…
         // One cause after the other.
         region-mode=inside planes=luma  | face | … | strength=0 kernel-size=1 face | …luma…set kernel-size=0…",
    );
}

/// A clip that ends before the two seconds or the sixty detections are over.
#[test]
fn a_short_clip_says_it_at_its_end() {
    says(
        "region-mode=inside on-missing=pass              | frame*5 eos | …has covered nothing up to the end of the stream…
         region-mode=inside on-missing=pass              | face*5 eos  |
         region-mode=inside ZONE                         | frame*5 eos |
         region-mode=inside labels=faces                 | face*5 eos  | …none of the 5 detections so far counts…
         region-mode=frame region-sources=zones          | frame*5 eos |
         region-mode=outside region-sources=zones WHOLE | frame*5 eos | …nothing up to the end of the stream…
         region-mode=inside labels=face ZONE             | frame*5 eos | …no detection up to the end of the stream…
         // Of a part of the stream that cannot be said.
         region-mode=inside ZONE                         | frame*20 zones=<> frame*30 eos |
         region-mode=inside ZONE labels=face             | frame*20 zones=<> frame*30 eos |
         region-mode=outside ZONE on-missing=pass        | frame*20 zones=<> frame*30 eos |
         region-mode=inside on-missing=cover             | frame*20 on-missing=pass frame*30 eos |
         region-mode=inside on-missing=pass              | frame*5 region-mode=frame frame region-mode=inside frame*5 eos |
         region-mode=inside region-sources=zones ZONE    | frame*20 region-mode=outside WHOLE frame*5 eos |
         // The next stream.
         region-mode=inside ZONE                         | frame*5 eos stream-start segment zones=<> frame*5 eos | …nothing up to the end of the stream…",
    );
    // Nanoseconds instead of seconds.
    let late = ZONE.replace("]>", ",start=5000000000]>");
    says(&format!(
        "region-mode=inside {late} | frame*5 eos | …no zone was active in any frame…stream times in seconds…"
    ));
}

#[test]
fn detections_of_which_none_counts() {
    let none =
        "none of the 60 detections so far counts with labels=faces…they were labelled face, with no confidence;…";
    says(&format!(
        "region-mode=inside labels=faces        | face*60  | {none}
         region-mode=inside labels=Face         | face*200 |
         region-mode=outside min-confidence=0.5 | face*60  | …an unknown label or confidence that is asked for…"
    ));
    let place = (8, 8, 9, 9);
    // A detector that says that it found nothing, by a box of no size.
    let nothing = ("nothing", (0, 0, 0, 0), None);
    let face = ("face", place, Some(0.5));
    let both = [face, ("cat", place, Some(0.75))];
    let expected = "…min-confidence=0.9: they were labelled cat, face, with a confidence of up to 0.75…";
    type Found = (&'static str, Place, Option<f64>);
    for (properties, found, frames, warning) in [
        ("min-confidence=0.9 labels=face", &both[..] as &[Found], 30, expected),
        ("labels=face", &[nothing], 100, ""),
        ("min-confidence=0.9", &[nothing, face], 60, "…"),
        // A detector that works on a larger picture.
        ("", &[("face", (1000, 1000, 50, 50), None)], 60, "…outside of the picture of 64x48…"),
    ] {
        let mut stream = started(&format!("region-mode=inside {properties}"));
        for _ in 0..frames {
            let frame = found.iter().fold(stream.frame(), |frame, (label, place, certainty)| {
                with_param(frame, label, *place, certainty.map(confidence))
            });
            stream.push(frame);
        }
        stream.warns(warning);
    }
}

#[test]
fn a_hold_in_a_wrong_unit() {
    says(
        "region-mode=inside hold-time=3000  | face | hold-time=3000 is in nanoseconds and shorter than a frame…
         region-mode=outside hold-time=3000 | face*5 |
         region-mode=inside hold-time=0     | face*5 |",
    );
}

/// A frame with 257 detections.
#[test]
fn more_detections_than_are_told_apart() {
    for (properties, label, warning) in [
        (
            "region-mode=inside",
            "face",
            "a frame has 257 detections that count, but only the 256…the others are covered together…",
        ),
        (
            "region-mode=outside",
            "face",
            "a frame has 257 detections that count, but only the 256…the others are not shown…",
        ),
        ("region-mode=inside shape=mask", "face", "a frame has 257 detections that count…"),
        ("region-mode=inside labels=face", "cat", ""),
    ] {
        let mut stream = started(properties);
        let frame = |stream: &Stream, count: u32| {
            (0..count).fold(stream.frame(), |frame, i| with_param(frame, label, (i % 50, i / 9, 5, 5), None))
        };
        if !properties.contains("mask") && label == "face" {
            stream.push(frame(&stream, 256));
            stream.warns("");
        }
        stream.push(frame(&stream, 257));
        stream.push(frame(&stream, 400));
        stream.warns(if label == "cat" { "…none of the 257 detections…" } else { warning });
    }
}

#[test]
fn mosaics_that_overlap_too_often_are_one() {
    let mut stream = started("region-mode=inside cover=mosaic post-messages=true");
    for (count, warning) in [(7, ""), (12, "…one mosaic around them all…")] {
        let place = |i: u32| (i % 4, i / 4, 60, 60);
        stream.push((0..count).fold(stream.frame(), |frame, i| with_param(frame, "face", place(i), None)));
        stream.warns(warning);
    }
}

#[test]
fn zones_beyond_the_picture() {
    let beyond = ZONE.replace("x=0.1", "x=1");
    says(&format!("region-mode=inside {beyond} | frame | zones: zone 1 has x=1, where the picture ends…"));
}

#[test]
fn blurs_that_do_not_change_a_region() {
    says(
        "region-mode=inside planes=luma              | face | …in the covered parts, because planes leaves out chroma; set planes=all
         region-mode=inside strength=0 sigma=0.1     | face | …sigma=0.1, kernel-size=0, strength=0…increase sigma or strength
         region-mode=inside strength=0 kernel-size=1 | face | …kernel-size=1…set kernel-size=0, or increase sigma or strength
         region-mode=outside sigma=0.1               | face | …sigma=0.1, kernel-size=0 are…increase sigma
         RGBA region-mode=outside sigma=0.45         | face | …0.5 (sigma=0.45) is small for a picture of 64x48…set sigma to 2 or more
         RGBA region-mode=outside sigma=0.45 cover=mosaic | face*3 |
         RGBA region-mode=outside sigma=0.49         | face*3 |
         RGBA region-mode=inside strength=0 sigma=2.3 WHOLE | face | an object may stay recognisable…shorter side has 48 pixels…
         RGBA region-mode=inside strength=0 sigma=9 kernel-size=7 WHOLE | face | …is 2.0 (sigma=9, kernel-size=7, strength=0)…
         RGBA region-mode=inside strength=0 sigma=2.5 WHOLE | face*3 |
         region-mode=inside                          | face |",
    );
    // A mosaic of 22 cells, and of 20.
    for (height, expected) in [(176, "…have 8x8 pixels (cells=64), and its shorter side has 176…"), (160, "")] {
        let (picture, properties) = (info(VideoFormat::Gray8, [300, height]), "cover=mosaic cells=64");
        let mut stream = Stream::downstream(false, &picture, &format!("region-mode=inside {properties} {WHOLE}"));
        stream.enter("frame*3").warns(expected);
    }
    // Each cause is one warning.
    let mut stream = started("region-mode=inside strength=0 sigma=0 planes=luma");
    stream.enter("face*3").warns("…\n…");
    // A blur that changes nothing covers nothing, whatever `on-missing` asks for.
    for properties in ["planes=alpha", "planes=luma", "strength=0 sigma=0"] {
        let mut stream = started(&format!("region-mode=inside on-missing=cover {properties}"));
        let found = stream.enter("frame*60").messages(gst::MessageType::Warning);
        let has = |part: &str| found.iter().any(|text| text.contains(part));
        assert!(has("the blur does not change") && has("no frame had a detector's meta"), "{properties}: {found:?}");
        assert!(!has("has covered every frame"), "{properties}: {found:?}");
    }
}

/// Nothing is hidden where what is shown is the whole picture.
#[test]
fn outside_that_shows_the_whole_picture() {
    let large = "region-mode=outside has covered nothing for 2 s…fills the picture…reduce expand and grow…";
    says(&format!(
        "region-mode=outside region-sources=zones WHOLE | frame*50 | {large}
         region-mode=outside region-sources=zones WHOLE cover=fill shape=ellipse grow=64 | frame*50 | {large}
         region-mode=outside region-sources=zones WHOLE cover=mosaic feather=4 | frame*50 | {large}
         region-mode=outside region-sources=zones ZONE grow=60 | frame*50 | {large}
         region-mode=outside region-sources=zones ZONE | frame*200 |
         region-mode=outside expand=4 | face:16x16+8+8*50 | {large}
         region-mode=outside expand=2 | face:16x16+8+8*200 |
         // Once it has covered something, an object may fill the picture.
         region-mode=outside | face:16x16+8+8 expand=4 face:16x16+8+8*200 |"
    ));
}

/// A zone does not stand for the detector that other settings ask for.
#[test]
fn zones_without_the_detector_that_is_asked_for() {
    for asked in [
        "labels=face",
        "min-confidence=0.5",
        "shape=mask",
        "look-ahead=2",
        "on-lost=cover",
        "on-missing=pass",
        "region-sources=zones+roi",
    ] {
        let name = asked.split('=').next().unwrap();
        let cure = format!("{name} asks for detections…leave roi and analytics out of region-sources");
        says(&format!(
            "region-mode=inside {asked} ZONE | frame*50 | region-mode=inside has covered no detection for 2 s…{cure}"
        ));
        // A box without a mask is a warning of its own.
        if asked != "shape=mask" {
            says(&format!("region-mode=inside {asked} ZONE | face*200 |"));
        }
    }
    // A zone alone, with the defaults.
    says(
        "region-mode=inside cover=fill ZONE                      | frame*200 |
         region-mode=inside labels=face region-sources=zones ZONE | frame*200 |",
    );
}
