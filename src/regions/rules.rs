// SPDX-License-Identifier: MPL-2.0
//! What decides which regions a frame has: which detections count, and what is covered of an object.

use super::detection::{Detection, Labels};
use super::on_missing::FrameAction;
use super::tracks::Holding;
use super::zone::Zone;
use crate::filter::weights::{Edge, Shape};

/// The rules that the properties set.
#[derive(Debug, Clone)]
pub struct Rules<'a> {
    /// Whether regions are shown, and all else is covered.
    pub shows_regions: bool,
    /// The zones that count.
    pub zones: &'a [Zone],
    /// Which detections count.
    pub labels: &'a Labels,
    /// Detections with a confidence below it do not count.
    pub min_confidence: f64,
    /// By how much detections grow on each side, as a share of their side.
    pub expand: f64,
    /// What of a box is the object; `None` for the mask of a detection.
    pub shape: Option<Shape>,
    /// Where the object's edge is; `feather` is the width of the soft edge, not its radius.
    pub edge: Edge,
    /// How long lost objects are covered, and what then.
    pub holding: Holding,
    /// What is done with frames that no detector has looked at; `None` for `auto`.
    pub on_missing: Option<FrameAction>,
}

impl Rules<'_> {
    /// Whether a detection has a selected label; an unknown one counts as selected.
    pub fn selects(&self, detection: &Detection) -> bool {
        self.labels.select(detection.label.as_deref())
    }

    /// Whether a detection is covered with region-mode=inside: it is selected, and its confidence is not below
    /// `min-confidence`. An unknown confidence counts as certain.
    pub fn covers(&self, detection: &Detection) -> bool {
        self.is_certain(detection, 1.0) && self.selects(detection)
    }

    /// Whether a detection is shown with region-mode=outside. There it is the other way round: what is unknown is not shown, nor
    /// is a doubtful box.
    pub fn shows(&self, detection: &Detection) -> bool {
        let is_known = detection.label.is_some() || self.labels.is_empty();
        detection.certain.is_some() && is_known && self.selects(detection) && self.is_certain(detection, 0.0)
    }

    /// Whether a detection counts in `region-mode`.
    pub fn counts(&self, detection: &Detection) -> bool {
        if self.shows_regions { self.shows(detection) } else { self.covers(detection) }
    }

    fn is_certain(&self, detection: &Detection, unknown: f32) -> bool {
        // In the precision of a confidence, so that 0.9 is not below 0.9.
        detection.confidence.unwrap_or(unknown) >= self.min_confidence as f32
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::filter::regions::Area;

    /// Those of the properties' defaults, with region-mode=inside.
    pub fn default_rules() -> Rules<'static> {
        static ALL: LazyLock<Labels> = LazyLock::new(Labels::default);
        Rules {
            shows_regions: false,
            zones: &[],
            labels: &ALL,
            min_confidence: 0.0,
            expand: 0.2,
            shape: Some(Shape::Box),
            edge: Edge::default(),
            holding: Holding { time: 3_000_000_000, covers_lost: false },
            on_missing: None,
        }
    }

    #[test]
    fn label_and_confidence_decide_what_counts() {
        let area = Area::from_corner(0.0, 0.0, 1.0, 1.0);
        let detection = |label: Option<&str>, confidence| Detection {
            confidence,
            certain: Some(area),
            ..Detection::new(label.map(str::to_owned), area)
        };
        let rules = Rules { labels: &Labels::parse("face"), min_confidence: 0.9, ..default_rules() };
        for (label, confidence, counts) in [
            (Some("face"), Some(0.9_f32), true),
            (Some("face"), Some(0.89), false),
            (Some("face"), None, true),
            (Some("cat"), Some(1.0), false),
            (Some("cat"), None, false),
            (None, Some(0.95), true),
            (None, Some(0.5), false),
            (None, None, true),
        ] {
            assert_eq!(rules.covers(&detection(label, confidence)), counts, "{label:?} {confidence:?}");
        }
        assert!(!rules.shows(&detection(Some("face"), None)));
        assert!(rules.shows(&detection(Some("face"), Some(0.95))));
        assert!(!rules.shows(&detection(None, Some(0.95))));
        assert!(default_rules().shows(&detection(None, None)));
        assert!(default_rules().covers(&detection(Some("cat"), Some(0.0))));
    }
}
