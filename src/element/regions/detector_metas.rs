// SPDX-License-Identifier: MPL-2.0
//! What detectors attached to a buffer: the detections of GstVideoRegionOfInterestMeta and GstAnalyticsRelationMeta.
//! Metas are read, never removed.

use super::analytics::{self, Analytics};
use super::detection::{Detection, confidence};
use super::settings::RegionSources;
use crate::filter::regions::Area;

/// Whether a detector has looked at a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looked {
    /// No source of detections is selected.
    NotAsked,
    /// The frame has no meta of the selected sources.
    No,
    /// The frame has a meta, with or without detections.
    Yes,
    /// The frame has metas, and some of them cannot be read.
    Unreadable,
}

/// The detections of a frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Whether a detector has looked at it.
    pub looked: Looked,
    /// All detections, whatever their label and confidence.
    pub detections: Vec<Detection>,
}

/// Reads the metas of the selected sources.
pub fn read(buffer: &gst::BufferRef, sources: RegionSources) -> Found {
    let mut found = Found { looked: Looked::NotAsked, detections: Vec::new() };
    if sources.intersects(RegionSources::ROI | RegionSources::ANALYTICS) {
        found.looked = Looked::No;
    }
    if sources.contains(RegionSources::ROI) {
        found.detections.extend(buffer.iter_meta().map(|meta| roi_detection(&meta)));
        if !found.detections.is_empty() {
            found.looked = Looked::Yes;
        }
    }
    if sources.contains(RegionSources::ANALYTICS) {
        match analytics::read(buffer) {
            Analytics::Absent => (),
            Analytics::Unreadable => found.looked = Looked::Unreadable,
            Analytics::Present(detections) => {
                found.looked = Looked::Yes;
                found.detections.extend(detections);
            }
        }
    }
    found
}

/// The detection of a region of interest. Its params have the confidence, and the number of a tracker in `object_id`,
/// where DL Streamer puts it.
fn roi_detection(meta: &gst::MetaRef<gst_video::VideoRegionOfInterestMeta>) -> Detection {
    let (x, y, width, height) = meta.rect();
    // SAFETY: the pointer is to the live meta that `meta` borrows.
    let label = unsafe { (*meta.as_ptr()).roi_type };
    let tracking_id = meta.param("object_id").and_then(|param| param.get::<i32>("id").ok());
    // The meta has no signed corner: producers wrap the one of an object that is partly left of or above the frame.
    let area = Area::from_corner(x.cast_signed().into(), y.cast_signed().into(), width.into(), height.into());
    Detection {
        // Not the meta's own method, which has no answer for the quark 0.
        label: analytics::label_text(label),
        confidence: roi_confidence(meta),
        area,
        certain: Some(area),
        tracking_id: tracking_id.and_then(|id| u64::try_from(id).ok()),
        mask: None,
    }
}

/// The confidence in the structure `detection`; without one, the highest of all structures, because classifiers add
/// their own and the object must not count for less than any of them says.
fn roi_confidence(meta: &gst_video::VideoRegionOfInterestMeta) -> Option<f32> {
    let of = |param: &gst::StructureRef| {
        let double = param.get::<f64>("confidence").ok();
        double.or_else(|| param.get::<f32>("confidence").ok().map(f64::from)).and_then(confidence)
    };
    match meta.param("detection") {
        Some(detection) => of(detection),
        None => meta.params().filter_map(of).max_by(f32::total_cmp),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn buffer_with(label: &str, rect: (u32, u32, u32, u32), params: &[gst::Structure]) -> gst::Buffer {
        gst::init().unwrap();
        let mut buffer = gst::Buffer::new();
        let mut meta = gst_video::VideoRegionOfInterestMeta::add(buffer.get_mut().unwrap(), label, rect);
        params.iter().for_each(|param| meta.add_param(param.clone()));
        buffer
    }

    #[test]
    fn regions_of_interest_are_detections() {
        let buffer = buffer_with("face", (1, 2, 30, u32::MAX), &[]);
        let found = read(&buffer, RegionSources::ROI | RegionSources::ANALYTICS);
        let area = Area { left: 1.0, top: 2.0, right: 31.0, bottom: 2.0 + f64::from(u32::MAX) };
        let label = Some("face".to_owned());
        let detection = Detection { label, confidence: None, area, certain: Some(area), tracking_id: None, mask: None };
        assert_eq!(found, Found { looked: Looked::Yes, detections: vec![detection] });

        let not_asked = Found { looked: Looked::NotAsked, detections: vec![] };
        assert_eq!(read(&buffer, RegionSources::ZONES), not_asked);
        let none = Found { looked: Looked::No, detections: vec![] };
        assert_eq!(read(&buffer, RegionSources::ANALYTICS | RegionSources::ZONES), none);
        assert_eq!(read(&gst::Buffer::new(), RegionSources::all()), none);
    }

    #[test]
    fn label_of_quark_0_is_unknown() {
        let mut buffer = buffer_with("face", (0, 0, 8, 8), &[]);
        for meta in buffer.get_mut().unwrap().iter_meta_mut::<gst_video::VideoRegionOfInterestMeta>() {
            let mut meta = meta;
            // SAFETY: the pointer is to the live meta that `meta` borrows mutably.
            unsafe { (*meta.as_mut_ptr()).roi_type = 0 };
        }
        assert_eq!(read(&buffer, RegionSources::ROI).detections[0].label, None);
    }

    #[test]
    fn params_hold_confidence_and_tracking_id() {
        gst::init().unwrap();
        let confidence = |name: &str, value: f64| gst::Structure::builder(name).field("confidence", value).build();
        let float = gst::Structure::builder("mine").field("confidence", 0.25_f32).build();
        let text = gst::Structure::builder("detection").field("confidence", "high").build();
        let other = gst::Structure::builder("roi/x264enc").field("delta-qp", -0.5).build();
        for (params, expected) in [
            (vec![], None),
            (vec![other.clone()], None),
            (vec![confidence("detection", 0.75)], Some(0.75)),
            (vec![confidence("detection", 0.75), confidence("age", 0.9)], Some(0.75)),
            (vec![other, float.clone()], Some(0.25)),
            (vec![confidence("age", 0.125), float, confidence("gender", 0.5)], Some(0.5)),
            (vec![confidence("detection", f64::NAN)], None),
            (vec![confidence("detection", -1.0)], None),
            (vec![text], None),
        ] {
            let buffer = buffer_with("person", (0, 0, 8, 8), &params);
            assert_eq!(read(&buffer, RegionSources::ROI).detections[0].confidence, expected, "{params:?}");
        }
        for (id, expected) in [(17, Some(17)), (-1, None)] {
            let param = gst::Structure::builder("object_id").field("id", id).build();
            let buffer = buffer_with("person", (0, 0, 8, 8), &[param]);
            assert_eq!(read(&buffer, RegionSources::ROI).detections[0].tracking_id, expected);
        }
    }
}
