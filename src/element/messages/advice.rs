// SPDX-License-Identifier: MPL-2.0
//! What the settings of regions say by themselves: what they ask for, and warnings of those that cover nothing, or less than
//! they suggest, whatever the frames have.

use crate::element::regions::settings::{
    CoverKind, ObjectShape, OnLost, OnMissing, RegionMode, RegionSettings, RegionSources,
};

/// The names of settings that are set.
fn names<const N: usize>(settings: [(&'static str, bool); N]) -> Vec<&'static str> {
    settings.into_iter().filter_map(|(name, is_set)| is_set.then_some(name)).collect()
}

impl RegionSettings {
    /// Whether a zone counts.
    pub fn has_zones(&self) -> bool {
        !self.rules().zones.is_empty()
    }

    /// Whether detections can count.
    pub fn has_detections(&self) -> bool {
        self.sources.intersects(RegionSources::ROI | RegionSources::ANALYTICS)
    }

    /// Whether there may be regions without a detector.
    pub fn has_fixed_regions(&self) -> bool {
        self.has_zones() || self.sources.contains(RegionSources::ALPHA)
    }

    /// Whether it is no fault that no detector attaches anything: there may be other regions, and no setting asks for
    /// detections.
    pub fn needs_no_detector(&self) -> bool {
        self.has_fixed_regions() && self.for_detections().is_empty()
    }

    /// The settings that ask for detections to cover. The default of `region-sources` asks for none: who sets zones alone
    /// leaves it. Where detections are shown, a lack of them hides more.
    pub fn for_detections(&self) -> Vec<&'static str> {
        if self.mode == RegionMode::Outside || !self.has_detections() {
            return Vec::new();
        }
        names([
            ("region-sources", self.sources != RegionSources::ALL),
            ("labels", !self.labels.is_empty()),
            ("min-confidence", self.min_confidence > 0.0),
            ("shape", self.shape == ObjectShape::Mask),
            ("look-ahead", self.look_ahead > 0),
            ("on-lost", self.on_lost == OnLost::Cover),
            ("on-missing", self.on_missing != OnMissing::Auto),
        ])
    }

    /// Whether nothing may be covered although there are regions: what is shown is the whole picture, or an alpha channel has
    /// no object.
    pub fn may_hide_nothing(&self) -> bool {
        self.mode == RegionMode::Outside || self.sources.contains(RegionSources::ALPHA)
    }

    /// A warning of settings that region-mode=frame ignores.
    pub fn ignored_by_frame(&self) -> Option<String> {
        let set = names([
            ("zones", !self.zones.as_slice().is_empty()),
            ("region-sources=alpha", self.sources.contains(RegionSources::ALPHA)),
            ("labels", !self.labels.is_empty()),
            ("cover", self.cover != CoverKind::Blur),
            ("shape", self.shape != ObjectShape::Box),
            ("feather", self.edge.feather > 0),
            ("grow", self.edge.grow != 0),
        ]);
        let (list, verb) = (set.join(", "), if set.len() == 1 { "is" } else { "are" });
        let text = "set, but region-mode=frame ignores that and blurs the whole picture by sigma; set region-mode to inside or \
                    outside";
        (!set.is_empty()).then(|| format!("{list} {verb} {text}"))
    }

    /// A warning of zones that do not count.
    pub fn zones_left_out(&self) -> Option<String> {
        let text = "zones is set, but region-sources does not name zones, so that none counts; add zones to it";
        (!self.zones.as_slice().is_empty() && !self.has_zones()).then(|| text.to_owned())
    }

    /// A warning where nothing can have regions. In it, as in others, regions are `covered`, or shown, by `mode`.
    pub fn no_source(&self, mode: &str, covered: &str) -> Option<String> {
        let text = "zones is empty, and region-sources names no detections; set zones, or add roi or analytics to \
                    region-sources";
        let has_source = self.has_fixed_regions() || self.has_detections();
        (!has_source).then(|| format!("region-mode={mode} has nothing that can be {covered}: {text}"))
    }
}
