// SPDX-License-Identifier: MPL-2.0
//! The rules that decide which regions a frame has: which detections count, and which part of an object is covered.

use std::collections::BTreeMap;
use std::f64::consts::SQRT_2;

use super::detection::{Detection, Found, Labels};
use super::on_missing::FrameAction;
use super::tracks::{Holding, numbers};
use super::zone::Zone;
use crate::filter::weights::{Edge, Shape};

/// The largest number of detections of a frame that are followed one by one. Each detection is compared with each
/// object of earlier frames, can have two regions, and may need its own Gaussian. With this bound, a 1080p frame with
/// 5,000 detections takes less than 30 ms of processor time (`cargo bench --bench cpu -- crowds`).
pub const MAX_DETECTIONS: usize = 256;
/// Columns, and rows, of the parts of the picture. The detections beyond [`MAX_DETECTIONS`] are joined in each part.
const PARTS: f64 = 8.0;

/// The rules that the properties set.
#[derive(Debug, Clone)]
pub struct Rules<'a> {
    /// Whether regions are shown and everything else is covered.
    pub shows_regions: bool,
    /// The zones that count.
    pub zones: &'a [Zone],
    /// Which detections count.
    pub labels: &'a Labels,
    /// Detections with a confidence below it do not count.
    pub min_confidence: f64,
    /// How much detections grow on each side, as a share of this side's length.
    pub expand: f64,
    /// The shape of the object within its box; `None` for the mask of a detection.
    pub shape: Option<Shape>,
    /// The soft edge and the growth of objects. `feather` is the width of the soft edge, not its radius.
    pub edge: Edge,
    /// How long lost objects are covered, and the action after that.
    pub holding: Holding,
    /// The action for frames that no detector has searched; `None` for `auto`.
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

    /// Whether a detection is shown with region-mode=outside. There the rule is reversed: a detection with an unknown
    /// label or confidence is not shown, nor is a doubtful box.
    pub fn shows(&self, detection: &Detection) -> bool {
        let is_known = detection.label.is_some() || self.labels.is_empty();
        detection.certain.is_some() && is_known && self.selects(detection) && self.is_certain(detection, 0.0)
    }

    /// Whether a detection counts in `region-mode`.
    pub fn counts(&self, detection: &Detection) -> bool {
        if self.shows_regions { self.shows(detection) } else { self.covers(detection) }
    }

    /// Bounds the number of detections of a frame of `size` (width, height) that have a selected label: the most
    /// certain [`MAX_DETECTIONS`] are left. The others become one detection in each part of the picture, around all
    /// detections that would be covered and whose centres are in this part. This detection is covered with every shape
    /// and `grow`, and never shown. Weak detections among the others would only continue tracks, so they are left out.
    pub fn bound(&self, found: &mut Found, size: (u32, u32)) {
        let all = &mut found.detections;
        if all.len() <= MAX_DETECTIONS {
            return;
        }
        let is_selected = |(_, detection): &(usize, &Detection)| !detection.area.is_empty() && self.selects(detection);
        let rank = |(index, detection): (usize, &Detection)| {
            (self.counts(detection), detection.confidence.unwrap_or(1.0), index)
        };
        let mut ranked: Vec<_> = all.iter().enumerate().filter(is_selected).map(rank).collect();
        if ranked.len() <= MAX_DETECTIONS {
            return;
        }
        ranked.sort_by(|one, other| other.0.cmp(&one.0).then(other.1.total_cmp(&one.1)));
        let mut is_beyond = vec![false; all.len()];
        for (counts, _, index) in &ranked[MAX_DETECTIONS..] {
            is_beyond[*index] = true;
            found.beyond += usize::from(*counts);
        }
        let mut is_beyond = is_beyond.into_iter();
        let mut hulls: BTreeMap<[u32; 2], Detection> = BTreeMap::new();
        for detection in all.extract_if(.., |_| is_beyond.next() == Some(true)).filter(|one| self.covers(one)) {
            let area = numbers(detection.area, size);
            let centres = [(area.left + area.right, size.0), (area.top + area.bottom, size.1)];
            let part =
                centres.map(|(twice, side)| (twice / 2.0 * PARTS / f64::from(side)).clamp(0.0, PARTS - 1.0) as u32);
            let join = |hull: &mut Detection| {
                hull.area = hull.area.union(area);
                // So that another object of the label can replace it if it is lost.
                hull.label = hull.label.take().filter(|label| Some(label) == detection.label.as_ref());
            };
            hulls.entry(part).and_modify(join).or_insert_with(|| Detection::new(detection.label.clone(), area));
        }
        // An ellipse around a box is larger by the square root of 2.
        let around = if self.shape == Some(Shape::Ellipse) { (SQRT_2 - 1.0) / 2.0 } else { 0.0 };
        let shrunk = f64::from(self.edge.grow.min(0));
        all.extend(hulls.into_values().map(|hull| {
            let area = hull.area.wider(-shrunk);
            Detection { area: area.grown(area, around), ..hull }
        }));
    }

    fn is_certain(&self, detection: &Detection, unknown: f32) -> bool {
        // Compared in the precision of a confidence, so that 0.9 is not below 0.9.
        detection.confidence.unwrap_or(unknown) >= self.min_confidence as f32
    }
}

#[cfg(test)]
pub(super) mod tests {
    use std::sync::LazyLock;

    use super::*;
    use crate::filter::regions::Area;

    /// The rules of the properties' defaults, with region-mode=inside.
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
