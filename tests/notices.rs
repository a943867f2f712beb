//! A configuration that covers nothing, or less than its words say, says so once on the bus, with cause and cure.

mod common;

use common::covered::{buffer, info, noise, with_roi};
use common::video::{Blur, FRAME};
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

#[test]
fn settings_of_regions_without_regions() {
    for (properties, names) in [
        (ZONES.to_owned(), "zones is set"),
        ("labels=face".to_owned(), "labels is set"),
        ("cover=fill".to_owned(), "cover is set"),
        (format!("cover=mosaic labels=face {ZONES}"), "zones and labels and cover are set"),
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
    // The warning about the first frame says it already.
    for on_missing in ["cover", "drop"] {
        let warning = the_warning(&format!("region-mode=inside on-missing={on_missing}"), frames, None);
        assert!(warning.contains("has no detector metas"), "{warning}");
    }
    // Without another source there is nothing to wait for.
    let warning = the_warning("region-mode=inside region-sources=zones", 1, None);
    assert!(warning.contains("zones is empty, and region-sources names no detections"), "{warning}");
    let warning = the_warning(&format!("region-mode=inside region-sources=roi {ZONES}"), 1, Some("face"));
    assert!(warning.contains("zones is set, but region-sources does not name zones"), "{warning}");
}

/// A clip that ends before the two seconds are over.
#[test]
fn a_short_clip_says_it_at_its_end() {
    for (label, zones, expected) in [(None, "", 1), (Some("face"), "", 0), (None, ZONES, 0)] {
        let mut blur = started(&format!("region-mode=inside on-missing=pass {zones}"));
        assert_eq!(warnings(&mut blur, 5, label), [""; 0]);
        blur.harness.push_event(gst::event::Eos::new());
        let found = blur.messages(gst::MessageType::Warning);
        assert_eq!(found.len(), expected, "{found:?}");
        assert!(found.iter().all(|warning| warning.contains("has covered nothing up to the end of the stream")));
    }
}

#[test]
fn detections_of_which_none_counts() {
    let warning = the_warning("region-mode=inside labels=faces", 60, Some("face"));
    assert!(warning.contains("none of the first 60 detections counts: labels=faces"), "{warning}");
    assert!(warning.contains("they were face;"), "{warning}");
    no_warning("region-mode=inside labels=faces", 59, Some("face"));
    no_warning("region-mode=inside labels=Face", 200, Some("face"));
    // Other labels are given the same time.
    let mut blur = started("region-mode=inside labels=faces");
    assert_eq!(warnings(&mut blur, 59, Some("face")), [""; 0]);
    blur.element.set_property("labels", "plate");
    assert_eq!(warnings(&mut blur, 59, Some("face")), [""; 0]);
    assert_eq!(warnings(&mut blur, 1, Some("face")).len(), 1);

    let mut blur = started("region-mode=inside min-confidence=0.9 labels=face");
    let picture = noise(&caps(), 1);
    for frame in 0..60 {
        let mut input = buffer(&caps(), &picture);
        for (label, confidence) in [("face", 0.25 + f64::from(frame) / 200.0), ("cat", 1.0)] {
            let mut meta = VideoRegionOfInterestMeta::add(input.make_mut(), label, (8, 8, 9, 9));
            meta.add_param(gst::Structure::builder("detection").field("confidence", confidence).build());
        }
        blur.push(input);
    }
    let found = blur.messages(gst::MessageType::Warning);
    assert!(
        matches!(&found[..], [one] if one.contains("min-confidence=0.9, but the highest confidence was 0.39")),
        "{found:?}"
    );
}

#[test]
fn zones_whose_times_are_seconds() {
    for (field, is_doubtful) in [("start=5", true), ("end=90", true), ("end=1000000", false), ("start=0", false)] {
        let zones = format!("region-mode=inside zones=<[zone,x=0.1,y=0.1,width=0.3,height=0.4,{field}]>");
        if is_doubtful {
            let warning = the_warning(&zones, 1, None);
            assert!(warning.contains(&format!("zone 1 has {field}")) && warning.contains("nanoseconds"), "{warning}");
            assert!(warning.ends_with(&format!("{field}000000000")), "{warning}");
        } else {
            no_warning(&zones, 200, None);
        }
    }
    let warning = the_warning("region-mode=inside zones=<[zone,x=1.0,y=0.0,width=0.5,height=0.5]>", 1, None);
    assert!(warning.contains("zone 1 has x=1, where the picture ends"), "{warning}");
}

#[test]
fn blurs_that_leave_a_region_as_it_is() {
    let warning = the_warning("region-mode=inside planes=luma", 1, Some("face"));
    assert!(warning.contains("leaves chroma of what it covers as it is, because planes selects luma"), "{warning}");
    let warning = the_warning("region-mode=inside strength=0 sigma=0.1", 1, Some("face"));
    assert!(warning.contains("sigma=0.1, kernel-size=0 and strength=0"), "{warning}");
    no_warning("region-mode=inside", 200, Some("face"));
}
