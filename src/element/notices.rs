// SPDX-License-Identifier: MPL-2.0
//! Warnings about settings that cover nothing, or less than their words say. Each is given once from start to stop.
//! Whatever is seen of a stream is a detection: what no detector found, nobody has counted.

use std::collections::BTreeSet;

use super::detector_metas::{Found, Looked};
use super::frame_cover::FrameCover;
use super::region_settings::{Cover, RegionMode, RegionSettings, RegionSources};
use super::settings::Settings;
use crate::filter::BlurParams;
use crate::filter::plan::Selection;

/// What is said once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Notice {
    /// The kernel is too small for sigma, which only the log says.
    KernelSize,
    /// A frame that no detector has looked at is covered or dropped.
    Missing,
    /// Settings of regions, with region-mode=frame.
    WholeFrames,
    /// Neither zones nor detections.
    NoRegions,
    /// No detection counts.
    NoneCounts,
    /// `zones`, which region-sources leaves out.
    ZonesLeftOut,
    /// A zone that covers less than its words say.
    Zone,
    /// A blur that leaves what it covers as it is.
    Unchanged,
    /// No pool for output in CUDA memory.
    OutputPool,
}

/// What has been said, and what is known of the frames for it.
#[derive(Debug, Default)]
pub struct Notices {
    given: BTreeSet<Notice>,
    /// Whether region-mode was other than frame: then settings of regions are for later.
    has_had_regions: bool,
    /// Nanoseconds of the frames so far with a region-mode other than frame.
    waited: u64,
    /// Whether a detector has looked at a frame.
    has_detector: bool,
    selected: Selected,
}

/// Which of the detections counted.
#[derive(Debug, Default)]
struct Selected {
    /// The settings that chose them; others begin anew.
    by: (String, f64),
    detections: u32,
    has_any: bool,
    labels: BTreeSet<String>,
    /// Of the detections whose label is selected.
    most_certain: Option<f32>,
}

/// After this time without zones and detections, in nanoseconds, there is a warning.
const PATIENCE: u64 = 2_000_000_000;
/// The duration of a frame of which it is not known.
const FRAME: u64 = PATIENCE / 60;
/// After so many detections of which none counts, there is a warning.
const ENOUGH_DETECTIONS: u32 = 60;
/// Most labels that are named.
const MOST_LABELS: usize = 8;

impl Notices {
    /// Whether this is the first time that this is said.
    pub fn is_first(&mut self, notice: Notice) -> bool {
        self.given.insert(notice)
    }

    fn once(&mut self, notice: Notice, text: impl FnOnce() -> Option<String>) -> Option<String> {
        if self.given.contains(&notice) {
            return None;
        }
        let text = text()?;
        self.given.insert(notice);
        Some(text)
    }

    /// What to warn of before a frame is blurred as a whole.
    pub fn of_whole_frame(&mut self, settings: &RegionSettings) -> Option<String> {
        if self.has_had_regions {
            return None;
        }
        self.once(Notice::WholeFrames, || {
            let set = [
                ("zones", !settings.zones.as_slice().is_empty()),
                ("labels", !settings.labels.is_empty()),
                ("cover", settings.cover != Cover::Blur),
            ];
            let set: Vec<&str> = set.into_iter().filter(|(_, is_set)| *is_set).map(|(name, _)| name).collect();
            let (names, verb) = (set.join(" and "), if set.len() == 1 { "is" } else { "are" });
            (!set.is_empty()).then(|| {
                format!(
                    "{names} {verb} set, but region-mode=frame ignores that and blurs the whole picture by sigma; set \
                     region-mode to inside or outside"
                )
            })
        })
    }

    /// What to warn of before a frame that lasts for `duration` nanoseconds is covered: `found` is what detectors attached,
    /// whatever counts of it, and `size` the picture's.
    pub fn of_regions(
        &mut self,
        settings: &RegionSettings,
        found: &Found,
        duration: Option<u64>,
        size: (u32, u32),
    ) -> Vec<String> {
        self.has_had_regions = true;
        self.waited = self.waited.saturating_add(duration.unwrap_or(FRAME));
        self.has_detector |= matches!(found.looked, Looked::Yes | Looked::Unreadable);
        self.selected.add(settings, found, size);
        let has_waited = self.waited >= PATIENCE;
        let texts = [
            self.once(Notice::Zone, || settings.zones.doubt()),
            self.once(Notice::ZonesLeftOut, || zones_left_out(settings)),
            self.no_regions(settings, has_waited, "for 2 s"),
            self.none_counts(settings),
        ];
        texts.into_iter().flatten().collect()
    }

    /// What to warn of at the end of a stream.
    pub fn at_end(&mut self, settings: &RegionSettings) -> Option<String> {
        let is_short = self.waited > 0 && settings.mode != RegionMode::Frame;
        self.no_regions(settings, is_short, "up to the end of the stream")
    }

    fn no_regions(&mut self, settings: &RegionSettings, is_due: bool, since: &str) -> Option<String> {
        let has_zones = settings.sources.contains(RegionSources::ZONES) && !settings.zones.as_slice().is_empty();
        let has_sources = settings.sources.intersects(RegionSources::ROI | RegionSources::ANALYTICS);
        // Without another source there is nothing to wait for. That frames lack detections may have been said already.
        let is_known = has_sources && self.given.contains(&Notice::Missing);
        if has_zones || self.has_detector || is_known || has_sources && !is_due {
            return None;
        }
        self.once(Notice::NoRegions, || {
            let mode = settings.mode;
            let outcome = if mode == RegionMode::Outside { "shown" } else { "covered" };
            let name = if mode == RegionMode::Outside { "outside" } else { "inside" };
            Some(if has_sources {
                format!(
                    "region-mode={name} has {outcome} nothing {since}: there are no zones, and no frame had a meta of a \
                     detector; set zones, or put cudagaussblur right after a detector, and check that the detector has its \
                     model"
                )
            } else {
                format!(
                    "region-mode={name} has nothing that can be {outcome}: zones is empty, and region-sources names no \
                     detections; set zones, or add roi or analytics to region-sources"
                )
            })
        })
    }

    fn none_counts(&mut self, settings: &RegionSettings) -> Option<String> {
        let Selected { detections, has_any, labels, most_certain, .. } = &self.selected;
        if *has_any || *detections < ENOUGH_DETECTIONS || self.given.contains(&Notice::NoneCounts) {
            return None;
        }
        let seen = match labels.len() {
            0 => "they had no labels".to_owned(),
            _ => format!("they were {}", labels.iter().map(String::as_str).collect::<Vec<_>>().join(", ")),
        };
        let text = match most_certain {
            Some(certainty) => format!(
                "none of the first {ENOUGH_DETECTIONS} detections counts: min-confidence={}, but the highest confidence \
                 was {certainty}; lower min-confidence",
                settings.min_confidence
            ),
            None => format!(
                "none of the first {ENOUGH_DETECTIONS} detections counts: labels={}, min-confidence={}, but {seen}; set \
                 labels to what shall count",
                settings.labels.text(),
                settings.min_confidence
            ),
        };
        self.once(Notice::NoneCounts, || Some(text))
    }

    /// What to warn of where a blur leaves what it covers as it is.
    pub fn of_cover(&mut self, settings: &Settings, cover: &FrameCover) -> Option<String> {
        if cover.unchanged == Selection::NONE {
            return None;
        }
        self.once(Notice::Unchanged, || Some(unchanged(settings, cover.unchanged)))
    }
}

impl Selected {
    fn add(&mut self, settings: &RegionSettings, found: &Found, size: (u32, u32)) {
        if self.has_any || found.detections.is_empty() {
            return;
        }
        if (self.by.0.as_str(), self.by.1) != (settings.labels.text(), settings.min_confidence) {
            *self = Self { by: (settings.labels.text().to_owned(), settings.min_confidence), ..Self::default() };
        }
        for detection in &found.detections {
            self.detections += 1;
            self.has_any |= settings.counts(detection, size);
            if self.labels.len() < MOST_LABELS {
                self.labels.extend(detection.label.clone());
            }
            if settings.labels.select(detection.label.as_deref()) {
                self.most_certain = self.most_certain.into_iter().chain(detection.confidence).reduce(f32::max);
            }
        }
    }
}

fn zones_left_out(settings: &RegionSettings) -> Option<String> {
    let is_left_out = !settings.sources.contains(RegionSources::ZONES) && !settings.zones.as_slice().is_empty();
    is_left_out.then(|| {
        "zones is set, but region-sources does not name zones, so that none counts; add zones to it".to_owned()
    })
}

/// Why a blur leaves these channels as they are.
pub fn unchanged(settings: &Settings, channels: Selection) -> String {
    let names = channels.names();
    let selected = settings.options().map_or(Selection::ALL, |options| options.planes);
    let Settings { sigma, kernel_size, regions, .. } = settings;
    if channels.without(selected) == Selection::NONE {
        format!(
            "the blur leaves {names} of what it covers as it is: sigma={sigma}, kernel-size={kernel_size} and strength={} \
             spread no sample onto its neighbours; set strength above 0, a larger sigma, or cover=fill",
            regions.strength
        )
    } else {
        let planes = selected.names();
        format!(
            "the blur leaves {names} of what it covers as it is, because planes selects {}; set planes=all",
            if planes.is_empty() { "nothing" } else { &planes }
        )
    }
}

/// What the log says about a kernel that is too small.
pub fn cut_off(params: &BlurParams) -> String {
    let (size, sigma) = (params.kernel_size(), params.sigma());
    format!(
        "kernel-size={size} cuts the Gaussian of sigma={sigma} off, which blurs less and has edges; \
         kernel-size=0 follows sigma"
    )
}
