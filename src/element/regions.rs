// SPDX-License-Identifier: MPL-2.0
//! The regions of each frame: which detections count, what is held, and what becomes of a frame without detections.

use super::detection::Detection;
use super::detector_metas::{Found, Looked};
use super::hold::{FrameTime, Hold};
use super::missing::{Decision, Detectors};
use super::region_settings::{RegionMode, RegionSettings, RegionSources};
use super::zones::StreamSpan;
use crate::filter::regions::Region;

/// A region and what it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct FrameRegion {
    /// Where it is.
    pub region: Region,
    /// What it comes from.
    pub origin: Origin,
    /// The label of a detection.
    pub label: Option<String>,
}

/// What a region comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The zones property.
    Zone,
    /// A detection of this frame.
    Detection,
    /// A detection of an earlier frame.
    Held,
}

/// What is covered in a frame.
#[derive(Debug, Clone, PartialEq)]
pub enum FrameRegions {
    /// These regions, in no particular order; they may overlap.
    Regions(Vec<FrameRegion>),
    /// The whole frame, whatever `region-mode` says.
    Whole,
    /// Nothing; the frame is dropped.
    Drop,
    /// Nothing; streaming ends with an error.
    Error,
}

/// The decision about a frame.
#[derive(Debug, Clone, PartialEq)]
pub struct FrameDecision {
    /// What is covered.
    pub regions: FrameRegions,
    /// Whether a detector should have looked at the frame, and did not.
    pub is_missing: bool,
    /// Whether the frame has metas of a detector that cannot be read.
    pub is_unreadable: bool,
}

/// What the regions of a frame need to know about the previous frames.
#[derive(Debug, Default)]
pub struct RegionTracker {
    hold: Hold,
    detectors: Detectors,
}

impl RegionTracker {
    /// The regions of the next frame, of `size` (width, height). `span` is its time for the zones. Called for every frame,
    /// also for those that are dropped, so that what vanishes in one is held in the next.
    pub fn update(
        &mut self,
        settings: &RegionSettings,
        mut found: Found,
        time: FrameTime,
        span: Option<StreamSpan>,
        size: (u32, u32),
    ) -> FrameDecision {
        let decision = self.detectors.decide(settings.mode, settings.on_missing, found.looked);
        let is_missing = decision != Decision::Regions || self.detectors.is_silent(found.looked);
        let is_unreadable = found.looked == Looked::Unreadable;
        found.detections.retain(|detection| settings.counts(detection));
        let covered = self.hold.update(time, settings.hold_time, found.detections);
        let whole = |regions| FrameDecision { regions, is_missing, is_unreadable };
        match decision {
            Decision::Whole => return whole(FrameRegions::Whole),
            Decision::Drop => return whole(FrameRegions::Drop),
            Decision::Error => return whole(FrameRegions::Error),
            Decision::Regions => (),
        }
        // With region-mode=outside, a place that is held would be shown without what was found there.
        let is_shown = settings.mode == RegionMode::Outside;
        let of_detection = |(detection, is_held): (&Detection, bool)| {
            let area = if is_shown { detection.certain? } else { detection.area };
            Some(FrameRegion {
                region: Region::new(area, settings.expand, size)?,
                origin: if is_held { Origin::Held } else { Origin::Detection },
                label: detection.label.clone(),
            })
        };
        let covered = covered.filter(|(_, is_held)| !is_held || !is_shown);
        let mut regions: Vec<FrameRegion> = covered.filter_map(of_detection).collect();
        if settings.sources.contains(RegionSources::ZONES) {
            let zones = settings.zones.as_slice().iter().filter(|zone| zone.is_active(span, is_shown));
            let of_zone = |region| FrameRegion { region, origin: Origin::Zone, label: None };
            regions.extend(zones.filter_map(|zone| Region::new(zone.area(size), 0.0, size)).map(of_zone));
        }
        whole(FrameRegions::Regions(regions))
    }

    /// Notes whether a detector looked at a frame of which no regions are covered.
    pub fn note(&mut self, looked: Looked) {
        self.detectors.note(looked);
    }

    /// Forgets the objects of the previous frames. For new caps, a flush and a jump in time.
    pub fn clear(&mut self) {
        self.hold.clear();
    }
}

#[cfg(test)]
mod tests {
    use gst::prelude::*;

    use super::super::detection::Labels;
    use super::super::region_settings::OnMissing;
    use super::super::zones::Zones;
    use super::*;
    use crate::filter::regions::{Area, Rect};

    const SIZE: (u32, u32) = (640, 480);

    fn face(x: f64, confidence: f32) -> Detection {
        let area = Area::from_corner(x, 100.0, 50.0, 100.0);
        let label = Some("face".to_owned());
        Detection { label, confidence: Some(confidence), area, certain: Some(area), tracking_id: None }
    }

    fn found(detections: &[Detection]) -> Found {
        let looked = if detections.is_empty() { Looked::No } else { Looked::Yes };
        Found { looked, detections: detections.to_vec() }
    }

    fn at(frame: u64) -> FrameTime {
        FrameTime { timestamp: Some(frame * 40_000_000), ..FrameTime::default() }
    }

    #[test]
    fn detections_are_filtered_expanded_and_held() {
        let settings = RegionSettings {
            labels: Labels::parse("face"),
            min_confidence: 0.5,
            on_missing: OnMissing::Pass,
            ..RegionSettings::default()
        };
        let mut tracker = RegionTracker::default();
        let mut rects = |frame, detections: &[Detection]| {
            let decision = tracker.update(&settings, found(detections), at(frame), None, SIZE);
            let FrameRegions::Regions(regions) = decision.regions else { panic!("{decision:?}") };
            let is_held = detections.first().is_none_or(|detection| !settings.counts(detection));
            let origin = if is_held { Origin::Held } else { Origin::Detection };
            assert!(regions.iter().all(|region| region.origin == origin && region.label.as_deref() == Some("face")));
            regions.iter().map(|region| region.region.rect).collect::<Vec<_>>()
        };
        let cat = Detection { label: Some("cat".to_owned()), ..face(300.0, 1.0) };
        let expanded = Rect::new(90, 80, 70, 140).unwrap();
        assert_eq!(rects(0, &[face(100.0, 0.9), cat, face(400.0, 0.4)]), [expanded]);
        assert_eq!(rects(1, &[face(100.0, 0.4)]), [expanded], "what is no longer certain has vanished");
        assert_eq!(rects(12, &[]), [expanded]);
        assert_eq!(rects(13, &[]), []);
        assert_eq!(rects(14, &[face(-100.0, 0.9)]), [], "outside of the frame");

        let settings = RegionSettings { mode: RegionMode::Outside, ..settings };
        let mut tracker = RegionTracker::default();
        let mut count = |frame, detections: &[Detection]| {
            let decision = tracker.update(&settings, found(detections), at(frame), None, SIZE);
            let FrameRegions::Regions(regions) = decision.regions else { panic!("{decision:?}") };
            regions.len()
        };
        assert_eq!(count(0, &[face(100.0, 0.9)]), 1);
        assert_eq!(count(1, &[]), 0, "what is held would be shown");
        assert_eq!(count(2, &[Detection { certain: None, ..face(0.0, 0.9) }]), 0);
    }

    #[test]
    fn frames_without_detector_metas_follow_on_missing() {
        let mut settings = RegionSettings::default();
        let mut tracker = RegionTracker::default();
        let mut update = |settings: &RegionSettings, frame, detections: &[Detection]| {
            let decision = tracker.update(settings, found(detections), at(frame), None, SIZE);
            assert_eq!(decision.is_missing, frame > 1, "{frame}");
            decision.regions
        };
        assert_eq!(update(&settings, 0, &[]), FrameRegions::Regions(vec![]));
        assert!(
            matches!(update(&settings, 1, &[face(1.0, 1.0)]), FrameRegions::Regions(regions) if regions.len() == 1)
        );
        assert_eq!(update(&settings, 2, &[]), FrameRegions::Whole);
        settings.on_missing = OnMissing::Drop;
        assert_eq!(update(&settings, 3, &[]), FrameRegions::Drop);
        settings.on_missing = OnMissing::Error;
        assert_eq!(update(&settings, 4, &[]), FrameRegions::Error);
        settings.on_missing = OnMissing::Pass;
        let held = update(&settings, 5, &[]);
        assert!(matches!(&held, FrameRegions::Regions(regions) if regions.len() == 1), "{held:?}");
    }

    #[test]
    fn clear_forgets_objects_but_not_that_there_is_a_detector() {
        let mut settings = RegionSettings { on_missing: OnMissing::Pass, ..RegionSettings::default() };
        let mut tracker = RegionTracker::default();
        tracker.update(&settings, found(&[face(1.0, 1.0)]), at(0), None, SIZE);
        tracker.clear();
        assert_eq!(tracker.update(&settings, found(&[]), at(1), None, SIZE).regions, FrameRegions::Regions(vec![]));
        settings.on_missing = OnMissing::Auto;
        assert_eq!(tracker.update(&settings, found(&[]), at(2), None, SIZE).regions, FrameRegions::Whole);
    }

    #[test]
    fn zones_are_covered_in_their_time_if_selected() {
        gst::init().unwrap();
        let zone =
            gst::Structure::builder("zone").field("x", 0.5).field("y", 0).field("width", 0.5).field("height", 0.5);
        let zones = gst::Array::new([zone.field("start", 100_u64).build().to_send_value()]);
        let mut settings = RegionSettings { zones: Zones::parse(zones), ..RegionSettings::default() };
        settings.check().unwrap();
        let mut tracker = RegionTracker::default();
        let mut count = |settings: &RegionSettings, span| {
            let decision = tracker.update(settings, found(&[]), at(0), span, SIZE);
            let FrameRegions::Regions(regions) = decision.regions else { panic!("{decision:?}") };
            let zone = Rect::new(320, 0, 320, 240).unwrap();
            assert!(regions.iter().all(|region| region.region.rect == zone), "not expanded");
            assert!(regions.iter().all(|region| region.origin == Origin::Zone && !decision.is_missing));
            regions.len()
        };
        assert_eq!([None, Some((98, 99)), Some((99, 101))].map(|span| count(&settings, span)), [1, 0, 1]);
        settings.sources = RegionSources::ROI;
        assert_eq!(count(&settings, None), 0);
    }
}
