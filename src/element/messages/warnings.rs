// SPDX-License-Identifier: MPL-2.0
//! Warnings that the bus or the log gets once from start to stop: which warnings are due, and their texts.

use std::collections::BTreeSet;

use super::orientation;
use crate::element::cover::FrameCover;
use crate::element::properties::settings::Settings;
use crate::element::regions::settings::{
    CoverKind, ObjectShape, OnMissing, RegionMode, RegionSettings, RegionSources, names,
};
use crate::filter::BlurParams;
use crate::filter::mosaic;
use crate::filter::plan::Selection;
use crate::filter::regions::Region;
use crate::regions::clock::FrameTimes;
use crate::regions::detection::{Detection, Found};
use crate::regions::frame_regions::{EnteredFrame, FrameRegion, Origin};
use crate::regions::hidden::CoveredPart;
use crate::regions::rules::MAX_DETECTIONS;
use crate::regions::strength;

/// The kinds of warnings. Each is given once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Warning {
    /// The kernel is too small for sigma. Only the log says so.
    KernelSize,
    /// A frame without readable detector metas is covered or dropped.
    Missing,
    /// Settings of regions are set, but region-mode=frame ignores them.
    WholeFrames,
    /// There are neither zones nor detections.
    NoRegions,
    /// No detection counts.
    NoneCounts,
    /// `zones` is set, but region-sources leaves zones out.
    ZonesLeftOut,
    /// The shown regions fill the picture, or the alpha channel has no object.
    HidesNothing,
    /// A zone covers less than its fields suggest.
    Zone,
    /// No frame was within the time of any zone.
    IdleZones,
    /// `planes` leaves channels out of a blur that covers.
    PlanesLeftOut,
    /// A blur is too small to change the samples that it covers.
    BlurTooSmall,
    /// The blur of a background or of an object, or its mosaic, is weak for its size.
    WeakCover,
    /// The mosaics of a frame were joined to one.
    Mosaics,
    /// A frame has more detections than are followed one by one.
    Detections,
    /// A detection has no mask, but shape=mask is set.
    NoMask,
    /// The mask of a detection belongs to an earlier frame.
    OldMask,
    /// `hold-time` is shorter than a frame.
    ShortHold,
    /// Players turn the stream.
    Turned,
    /// Frames are held back for an unknown time.
    Latency,
    /// Upstream is later than the latency that it reports.
    LateUpstream,
    /// The application does not ask for the latency again.
    IgnoredLatency,
    /// There is no pool for output in CUDA memory.
    OutputPool,
    /// A control binding gives this property a value that cannot be used.
    ControlledValue(&'static str),
}

/// The warnings that were given, and the facts about the frames that decide about further warnings.
#[derive(Debug, Default)]
pub struct Warnings {
    given: BTreeSet<Warning>,
    /// Whether region-mode was other than frame.
    has_had_regions: bool,
    /// Frames that need a detector, since the last one that needs none.
    without_regions: Wait,
    /// Frames with an alpha channel or `region-mode=outside`, since the last frame that other settings covered. Not used once part
    /// of a frame was covered.
    without_cover: Wait,
    has_hidden: bool,
    /// Whether there was a meta of a detector, with any region-mode.
    has_detector: bool,
    /// Whether a frame was covered; whether a zone was active in one, or one was covered as a whole.
    has_covered: bool,
    has_active_zone: bool,
    tally: DetectionTally,
}

/// Consecutive frames that one warning describes, and how long they have been shown.
#[derive(Debug, Default)]
struct Wait {
    frames: u64,
    /// The time from the first frame to the latest one, in nanoseconds, and how long that one is shown.
    passed: u64,
    shown_for: u64,
    /// The time of the latest frame.
    now: u64,
    /// The settings that the warning depends on: `region-mode`, `on-missing`, and whether there may be regions without
    /// a detector.
    settings: (RegionMode, OnMissing, bool),
    /// Whether the stream had earlier frames that the warning does not describe.
    is_late: bool,
}

impl Wait {
    /// Adds a frame.
    fn add(&mut self, settings: &RegionSettings, times: &FrameTimes) {
        let settings = (settings.mode, settings.on_missing, settings.has_fixed_regions());
        if self.frames > 0 && self.settings != settings {
            self.restart();
        }
        self.settings = settings;
        if self.frames > 0 {
            let passed = times.now.saturating_sub(self.now);
            self.passed = self.passed.saturating_add(if passed > 0 { passed } else { ASSUMED_FRAME });
        }
        self.frames += 1;
        (self.now, self.shown_for) = (times.now, times.shown_for.unwrap_or(ASSUMED_FRAME));
    }

    /// Starts again, because the warning does not describe the latest frame.
    fn restart(&mut self) {
        *self = Self { is_late: true, ..Self::default() };
    }

    /// Whether it has lasted for the whole stream.
    fn is_all(&self) -> bool {
        self.frames > 0 && !self.is_late
    }

    /// Whether it is time for a warning.
    fn is_over(&self) -> bool {
        self.passed.saturating_add(self.shown_for) >= WARN_AFTER && self.frames >= WARN_AFTER_FRAMES
    }
}

/// The detections so far, unless one of them counted. Boxes of no size are not detections: they say that a detector
/// found nothing.
#[derive(Debug, Default)]
struct DetectionTally {
    /// The settings by which they were counted. With other settings the count begins anew.
    by: (RegionMode, String, f64),
    detections: u32,
    /// The detections that would count if they lay at least partly in the picture.
    beyond: u32,
    has_counted: bool,
    labels: BTreeSet<String>,
    most_certain: Option<f32>,
}

/// There is a warning after this time without zones and detections, in nanoseconds, and this number of frames.
const WARN_AFTER: u64 = 2_000_000_000;
const WARN_AFTER_FRAMES: u64 = 10;
/// The blur of a background is weak if its standard deviation is below the picture's shorter side, divided by this.
const WEAK_BACKGROUND: f64 = 100.0;
/// The same for an object and its shorter side. Its mosaic is weak if its cells are smaller than that.
const WEAK_OBJECT: f64 = 20.0;
/// The picture's shorter side, divided by this, is the sigma that the warning about a background recommends.
const BACKGROUND: u32 = 24;
const TO_THE_END: &str = "up to the end of the stream";
/// The assumed duration of a frame whose duration is unknown, in nanoseconds.
const ASSUMED_FRAME: u64 = WARN_AFTER / 60;
/// There is a warning after this number of detections, if none of them counts.
const ENOUGH_DETECTIONS: u32 = 60;
/// The largest number of labels that a warning names.
const MOST_LABELS: usize = 8;

impl Warnings {
    /// Whether this warning is given for the first time.
    pub fn is_first(&mut self, warning: Warning) -> bool {
        self.given.insert(warning)
    }

    fn once(&mut self, warning: Warning, text: impl FnOnce() -> Option<String>) -> Option<String> {
        let text = if self.given.contains(&warning) { None } else { text() };
        text.inspect(|_| _ = self.given.insert(warning))
    }

    /// The warning that is due before a frame is blurred as a whole.
    pub fn of_whole_frame(&mut self, settings: &RegionSettings) -> Option<String> {
        self.without_regions.restart();
        self.without_cover.restart();
        // After region-mode was inside or outside, settings of regions are kept for later and need no warning.
        if self.has_had_regions { None } else { self.once(Warning::WholeFrames, || ignored_by_frame(settings)) }
    }

    /// The warning that frames are held back for an unknown time.
    pub fn of_unknown_latency(&mut self, settings: &RegionSettings) -> Option<String> {
        let property = if settings.mode == RegionMode::Frame { "max-in-flight" } else { "look-ahead" };
        self.once(Warning::Latency, || {
            Some(format!(
                "the latency that {property} adds is not known, because the caps have no frame rate and frames have neither \
                 timestamps nor durations: a live pipeline drops frames as too late; set a frame rate in the caps, or \
                 timestamps, before cudagaussblur, or {property} to its default"
            ))
        })
    }

    /// The warning that frames come later than upstream's latency says, by the time `late`.
    pub fn of_late_upstream(&mut self, late: gst::ClockTime, upstream: gst::ClockTime) -> Option<String> {
        let [late, upstream] = [late, upstream].map(gst::ClockTime::mseconds);
        self.once(Warning::LateUpstream, || {
            Some(format!(
                "frames come up to {late} ms later than the latency of {upstream} ms that upstream reports: look-ahead adds as much \
                 to its own latency; let the element that takes this time, such as a detector, answer the LATENCY query, and set \
                 max-size-bytes=0 for queues behind a tee, which let frames wait when they are full"
            ))
        })
    }

    /// The warning that a frame leaves early because the application counts on less than the present latency.
    pub fn of_ignored_latency(&mut self, promised: gst::ClockTime, latency: gst::ClockTime) -> Option<String> {
        let [short, long] = [promised, latency].map(gst::ClockTime::mseconds);
        self.once(Warning::IgnoredLatency, || {
            (promised < latency).then(|| {
                format!(
                    "the latency is {long} ms, but the application has not asked for it since it was {short} ms: frames leave after \
                     {short} ms, and look-ahead is shorter; call gst_bin_recalculate_latency() when a LATENCY message comes"
                )
            })
        })
    }

    /// The warning that regions are covered in a stream that players turn and that no element has turned. The tag at
    /// this pad says whether players turn it.
    pub fn of_orientation(&mut self, pad: &gst::Pad) -> Option<String> {
        let orientation = self.once(Warning::Turned, || orientation::of_stream(pad))?;
        (!orientation::is_turned_upstream(pad)).then(|| {
            format!(
                "players turn this stream (tag image-orientation={orientation}), but zones and detections count in the picture \
                 as it is stored, and detectors find little in it; put videoflip video-direction=auto before the detector and \
                 cudagaussblur"
            )
        })
    }

    /// The warning at the first frame without readable metas of a detector. Without a `cover` the frame is dropped.
    pub fn of_missing(
        &mut self,
        settings: &RegionSettings,
        is_unreadable: bool,
        cover: Option<&FrameCover>,
        times: &FrameTimes,
    ) -> Option<String> {
        let is_acted_on = cover.is_none_or(|cover| cover.is_missing && cover.part == CoveredPart::Frame);
        // Values other than auto apply to every frame whose metas can be read.
        let is_unasked = is_unreadable || settings.on_missing == OnMissing::Auto;
        self.once(Warning::Missing, || (is_acted_on && is_unasked).then(|| missing(is_unreadable, cover, times)))
    }

    /// The warnings that are due before a frame is covered. `has_detector` says whether the stream has had metas of a
    /// detector.
    pub fn of_regions(
        &mut self,
        settings: &RegionSettings,
        EnteredFrame { found, size, times, .. }: &EnteredFrame,
        has_detector: bool,
    ) -> Vec<String> {
        let size = *size;
        self.has_had_regions = true;
        if settings.needs_no_detector() {
            self.without_regions.restart();
        } else {
            self.without_regions.add(settings, times);
        }
        self.has_detector = has_detector;
        self.tally.add(settings, found, size);
        let texts = [
            self.once(Warning::Zone, || settings.zones.suspicious()),
            self.once(Warning::ZonesLeftOut, || zones_left_out(settings)),
            self.no_regions(settings, self.without_regions.is_over(), "for 2 s"),
            self.none_counts(settings, self.tally.detections >= ENOUGH_DETECTIONS, size),
            self.once(Warning::Detections, || many_detections(settings, found)),
            self.once(Warning::NoMask, || no_mask(settings, found)),
            self.once(Warning::OldMask, || old_mask(settings, found)),
            self.once(Warning::ShortHold, || short_hold(settings, found, times)),
        ];
        texts.into_iter().flatten().collect()
    }

    /// The warnings that are due at the end of a stream of pictures of `size`.
    pub fn at_end(&mut self, settings: &RegionSettings, size: (u32, u32)) -> Vec<String> {
        let [without_regions, without_cover] =
            [&mut self.without_regions, &mut self.without_cover].map(|wait| std::mem::take(wait).is_all());
        if settings.mode == RegionMode::Frame || !self.has_had_regions {
            return Vec::new();
        }
        let is_idle = settings.has_zones() && self.has_covered && !self.has_active_zone;
        let idle = "no zone was active in any frame: start and end are stream times in seconds; compare them with the times of \
                    the stream";
        let texts = [
            self.no_regions(settings, without_regions, TO_THE_END),
            self.none_counts(settings, self.tally.detections > 0, size),
            self.hides_nothing(settings, without_cover, TO_THE_END),
            self.once(Warning::IdleZones, || is_idle.then(|| idle.to_owned())),
        ];
        texts.into_iter().flatten().collect()
    }

    fn no_regions(&mut self, settings: &RegionSettings, is_due: bool, since: &str) -> Option<String> {
        let is_said = self.given.contains(&Warning::NoRegions) || self.given.contains(&Warning::ZonesLeftOut);
        if is_said || settings.needs_no_detector() {
            return None;
        }
        let is_outside = settings.mode == RegionMode::Outside;
        let (mode, covered) = if is_outside { ("outside", "shown") } else { ("inside", "covered") };
        if !settings.has_detections() {
            // There is nothing to wait for.
            return self.once(Warning::NoRegions, || no_source(settings, mode, covered));
        }
        if self.has_detector || !is_due {
            return None;
        }
        let is_alone = !settings.has_fixed_regions();
        let outcome = match settings.on_missing {
            // The warning about the first frame, or the error, says it already.
            OnMissing::Auto if is_outside => return None,
            OnMissing::Error => return None,
            // Another warning says whether the blur changes these frames.
            OnMissing::Cover => format!("on-missing=cover applied to every frame {since}"),
            OnMissing::Drop => format!("on-missing=drop has dropped every frame {since}"),
            _ if is_alone => format!("region-mode={mode} has {covered} nothing {since}"),
            _ => format!("region-mode={mode} has {covered} no detection {since}"),
        };
        let names = settings.for_detections();
        let verb = if names.len() == 1 { "asks" } else { "ask" };
        let (cause, cure, otherwise) = match is_alone {
            true => ("there are no zones, and".to_owned(), "set zones, or ", ""),
            false => (
                format!("{} {verb} for detections, but", names.join(", ")),
                "",
                "; if there is no detector, leave roi and analytics out of region-sources",
            ),
        };
        self.once(Warning::NoRegions, || {
            Some(format!(
                "{outcome}: {cause} no frame had a detector's meta of the kinds that region-sources names; {cure}put \
                 cudagaussblur right after a detector, and check that the detector has its model (a detector that attaches \
                 nothing when it finds nothing gives this warning too){otherwise}"
            ))
        })
    }

    fn none_counts(&mut self, settings: &RegionSettings, is_due: bool, (width, height): (u32, u32)) -> Option<String> {
        if self.tally.has_counted || !is_due || !self.is_first(Warning::NoneCounts) {
            return None;
        }
        let DetectionTally { detections, beyond, labels, most_certain, .. } = &self.tally;
        if beyond == detections {
            return Some(format!(
                "all {detections} detections so far lie outside of the picture of {width}x{height}; check the size of the \
                 pictures that the detector works on"
            ));
        }
        let list = labels.iter().map(String::as_str).collect::<Vec<_>>().join(", ");
        let had = if labels.is_empty() { "had no label".to_owned() } else { format!("were labelled {list}") };
        let confidence =
            most_certain.map_or("no confidence".to_owned(), |most| format!("a confidence of up to {most}"));
        let doubt = match settings.mode {
            RegionMode::Outside => {
                "; with region-mode=outside an unknown label or confidence that is asked for, and a box of more than twice the \
                 picture's size, do not count"
            }
            _ => "",
        };
        let (names, least) = (settings.labels.text(), settings.min_confidence);
        Some(format!(
            "none of the {detections} detections so far counts with labels={names} and min-confidence={least}: they {had}, with \
             {confidence}{doubt}; change labels or min-confidence"
        ))
    }

    fn hides_nothing(&mut self, settings: &RegionSettings, is_due: bool, since: &str) -> Option<String> {
        if self.has_hidden || !is_due || !settings.may_hide_nothing() {
            return None;
        }
        let of_alpha = "put cudagaussblur right after the element that makes the alpha channel, and check the alpha that it makes \
                        (alpha that a converter adds is opaque)";
        let of_shown = "make zones smaller, reduce expand and grow, and check the boxes that the detector attaches; to cover \
                         zones and detections, set region-mode=inside";
        let is_alpha = settings.sources.contains(RegionSources::ALPHA) && !settings.has_zones() && !self.has_detector;
        let (mode, cause, cure) = match settings.mode {
            RegionMode::Outside if is_alpha => {
                ("outside", "the alpha channel left nothing to cover (it was 128 and more everywhere)", of_alpha)
            }
            RegionMode::Outside => {
                ("outside", "the shown area (zones, detections, the alpha channel) fills the picture", of_shown)
            }
            _ => ("inside", "the alpha channel had no object (it was below 128 everywhere)", of_alpha),
        };
        let text = || format!("region-mode={mode} has covered nothing {since}: {cause}; {cure}");
        self.once(Warning::HidesNothing, || Some(text()))
    }

    /// The warnings that a cover hides nothing, or that a blur does not change the samples that it covers.
    /// `size` is that of the picture.
    pub fn of_cover(
        &mut self,
        settings: &Settings,
        cover: &FrameCover,
        times: &FrameTimes,
        size: (u32, u32),
    ) -> Vec<String> {
        let is_zone = |region: &FrameRegion| region.origin == Origin::Zone;
        self.has_covered = true;
        self.has_active_zone |= cover.part == CoveredPart::Frame || cover.regions.iter().any(is_zone);
        let selected = settings.options().map_or(Selection::ALL, |options| options.planes);
        let left_out = cover.unchanged.without(selected);
        let too_small = cover.unchanged.without(left_out);
        let may_hide_nothing = settings.regions.may_hide_nothing() && cover.part != CoveredPart::Frame;
        if may_hide_nothing {
            // Another warning reports a blur that changes nothing.
            self.has_hidden |= cover.covered_area > 0.0 || cover.unchanged != Selection::NONE;
            self.without_cover.add(&settings.regions, times);
        } else if !cover.cover.is_empty() {
            self.without_cover.restart();
        }
        let texts = [
            self.hides_nothing(&settings.regions, self.without_cover.is_over(), "for 2 s"),
            self.once(Warning::Mosaics, || cover.is_joined.then(|| JOINED_MOSAICS.to_owned())),
            self.once(Warning::PlanesLeftOut, || planes_left_out(left_out)),
            self.once(Warning::BlurTooSmall, || blur_too_small(settings, too_small)),
            self.once(Warning::WeakCover, || weak_cover(settings, cover, size)),
        ];
        texts.into_iter().flatten().collect()
    }
}

impl DetectionTally {
    fn add(&mut self, settings: &RegionSettings, found: &Found, size: (u32, u32)) {
        let (mode, labels, least) = &self.by;
        if (*mode, labels.as_str(), *least) != (settings.mode, settings.labels.text(), settings.min_confidence) {
            let by = (settings.mode, settings.labels.text().to_owned(), settings.min_confidence);
            *self = Self { by, ..Self::default() };
        }
        if self.has_counted {
            return;
        }
        for detection in found.detections.iter().filter(|detection| !detection.area.is_empty()) {
            self.detections += 1;
            if settings.rules().counts(detection) {
                let is_visible = Region::new(detection.area, settings.expand, size).is_some();
                self.has_counted |= is_visible;
                self.beyond += u32::from(!is_visible);
            }
            if self.labels.len() < MOST_LABELS {
                self.labels.extend(detection.label.clone());
            }
            self.most_certain = self.most_certain.into_iter().chain(detection.confidence).reduce(f32::max);
        }
    }
}

/// The warning that region-mode=frame ignores settings.
fn ignored_by_frame(settings: &RegionSettings) -> Option<String> {
    let set = names([
        ("zones", !settings.zones.as_slice().is_empty()),
        ("region-sources=alpha", settings.sources.contains(RegionSources::ALPHA)),
        ("labels", !settings.labels.is_empty()),
        ("cover", settings.cover != CoverKind::Blur),
        ("shape", settings.shape != ObjectShape::Box),
        ("feather", settings.edge.feather > 0),
        ("grow", settings.edge.grow != 0),
    ]);
    let (list, verb) = (set.join(", "), if set.len() == 1 { "is" } else { "are" });
    let text = "set, but region-mode=frame ignores that and blurs the whole picture by sigma; set region-mode to inside or \
                outside";
    (!set.is_empty()).then(|| format!("{list} {verb} {text}"))
}

/// The warning that zones do not count.
fn zones_left_out(settings: &RegionSettings) -> Option<String> {
    let text = "zones is set, but region-sources does not name zones, so that none counts; add zones to it";
    (!settings.zones.as_slice().is_empty() && !settings.has_zones()).then(|| text.to_owned())
}

/// The warning that there is no source of regions. `covered` is the word for what `mode` does with regions: covered or
/// shown.
fn no_source(settings: &RegionSettings, mode: &str, covered: &str) -> Option<String> {
    let text = "zones is empty, and region-sources names no detections; set zones, or add roi or analytics to \
                region-sources";
    let has_source = settings.has_fixed_regions() || settings.has_detections();
    (!has_source).then(|| format!("region-mode={mode} has nothing that can be {covered}: {text}"))
}

fn missing(is_unreadable: bool, cover: Option<&FrameCover>, times: &FrameTimes) -> String {
    let time = times.timestamp.map(gst::ClockTime::from_nseconds);
    let time = time.map_or("without a timestamp".to_owned(), |time| format!("at {time}"));
    let consequence = match cover.map(FrameCover::covered) {
        None => "it is dropped",
        Some("nothing") => "it is not covered",
        Some("partly") => "it is covered in part",
        Some(_) => "it is covered as a whole",
    };
    let (cause, cure) = if is_unreadable {
        (
            "has detector metas that cannot be read (a segmentation without a detection, which needs shape=mask and a mask \
             whose size and strides are true, or libgstanalytics-1.0.so.0 is missing)",
            "use a detector that attaches object detections",
        )
    } else {
        (
            "has no detector metas",
            "put cudagaussblur right after the detector, set on-missing=pass if the detector attaches nothing when it finds \
             nothing, or region-sources=zones if there is no detector",
        )
    };
    format!("the frame {time} {cause}: {consequence}; {cure}; further frames are counted in stats (frames-missing)")
}

const JOINED_MOSAICS: &str = "the regions of a frame overlap so often that a mosaic of each would take too long: one mosaic around \
                              them all, with the cells of the largest object, covers them; reduce the number of detections, \
                              hold-time or expand";

fn many_detections(settings: &RegionSettings, found: &Found) -> Option<String> {
    let outcome = match settings.mode {
        RegionMode::Outside => "are not shown",
        _ => {
            "are covered together, by boxes around all whose centres are in the same part of the picture, of 8x8 parts"
        }
    };
    (found.beyond > 0).then(|| {
        format!(
            "a frame has {} detections that count, but only the {MAX_DETECTIONS} most certain ones are told apart: the others {outcome}; \
             let the detector merge detections of the same object (non-maximum suppression), or increase its threshold or \
             min-confidence",
            MAX_DETECTIONS + found.beyond
        )
    })
}

fn no_mask(settings: &RegionSettings, found: &Found) -> Option<String> {
    let rules = settings.rules();
    let lacks = |found: &&Detection| !found.area.is_empty() && rules.counts(found) && found.mask.is_none();
    // A detection that stands for several has no mask.
    let detection =
        found.detections.iter().find(lacks).filter(|_| settings.shape == ObjectShape::Mask && found.beyond == 0)?;
    let label = detection.label.as_deref().map_or(String::new(), |label| format!(" labelled {label}"));
    let outcome = if rules.shows_regions { "is not shown" } else { "is covered by its box" };
    Some(format!(
        "shape=mask, but a detection{label} has no mask, or none that can be read and has an object in it, and {outcome}; put \
         cudagaussblur right after a detector that attaches masks, or set shape to box or ellipse"
    ))
}

fn old_mask(settings: &RegionSettings, found: &Found) -> Option<String> {
    let is_old = |detection: &&Detection| detection.has_old_mask && settings.rules().counts(detection);
    let detection = found.detections.iter().find(is_old).filter(|_| settings.shape == ObjectShape::Mask)?;
    let name =
        detection.label.as_deref().map_or("a detection".to_owned(), |label| format!("a detection labelled {label}"));
    let outcome = if settings.mode == RegionMode::Outside { "is not shown" } else { "is covered by its box too" };
    Some(format!(
        "shape=mask, but the mask of {name} is more than one frame older than the frame that carries it, by the timestamps of \
         both, and {outcome}; make the mask of the frame that carries it, or give its buffer no timestamp if it is"
    ))
}

/// The warning that objects are not held, probably because the unit of `hold-time` was mistaken. 0 is no mistake.
fn short_hold(settings: &RegionSettings, found: &Found, times: &FrameTimes) -> Option<String> {
    let frame = times.shown_for.unwrap_or(ASSUMED_FRAME);
    let has_objects = found.detections.iter().any(|detection| !detection.area.is_empty());
    let hold = settings.hold_time;
    (settings.mode == RegionMode::Inside && has_objects && (1..frame).contains(&hold)).then(|| {
        format!(
            "hold-time={hold} is in nanoseconds and shorter than a frame, which lasts {frame}: an object is shown in every frame in which \
             it is not detected, also between the searches of a detector; for 3 seconds set hold-time=3000000000, the default"
        )
    })
}

fn planes_left_out(channels: Selection) -> Option<String> {
    let names = channels.names();
    (!names.is_empty()).then(|| {
        format!(
            "the blur does not change {names} in the covered parts, because planes leaves out {names}; set planes=all"
        )
    })
}

fn blur_too_small(settings: &Settings, channels: Selection) -> Option<String> {
    let (names, Settings { sigma, kernel_size, regions, .. }) = (channels.names(), settings);
    if names.is_empty() {
        return None;
    }
    let (strength, or_strength) = match regions.mode {
        RegionMode::Outside => (String::new(), ""),
        _ => (format!(", strength={}", regions.strength), " or strength"),
    };
    let cure = if *kernel_size == 0 { "increase sigma" } else { "set kernel-size=0, or increase sigma" };
    Some(format!(
        "the blur does not change {names} in the covered parts: sigma={sigma}, kernel-size={kernel_size}{strength} are too small; \
         {cure}{or_strength}"
    ))
}

fn weak_cover(settings: &Settings, cover: &FrameCover, (width, height): (u32, u32)) -> Option<String> {
    let Settings { sigma, kernel_size, regions, .. } = settings;
    let objects = cover.regions.iter().map(|region| region.region.object.short_side());
    let (side, weak, strength) = match cover.covered() {
        "outside" => (f64::from(width.min(height)), WEAK_BACKGROUND, 0.0),
        // With any strength, the blur of the largest object is the weakest for its size.
        "regions" => (objects.fold(0.0, f64::max), WEAK_OBJECT, regions.strength),
        _ => return None,
    };
    let used = match (regions.cover, strength == 0.0, *kernel_size) {
        (CoverKind::Fill, ..) => return None,
        (CoverKind::Mosaic, ..) => mosaic::cell_side(side, regions.cells),
        (CoverKind::Blur, true, 0) => *sigma,
        // A mean of as many samples, which a Gaussian that is cut off cannot exceed, has this standard deviation.
        (CoverKind::Blur, true, taps) => sigma.min(((f64::from(taps).powi(2) - 1.0) / 12.0).sqrt()),
        (CoverKind::Blur, false, _) => strength::sigma(*sigma, strength, side),
    };
    if used * weak >= side {
        return None;
    }
    if regions.cover == CoverKind::Mosaic {
        return Some(format!(
            "an object may stay recognisable: the cells of its mosaic have {used}x{used} pixels (cells={}), and its shorter side has \
             {side:.0} pixels; set cells to 6, the default, or cover=fill",
            regions.cells
        ));
    }
    let cut = if strength == 0.0 && *kernel_size > 0 { format!(", kernel-size={kernel_size}") } else { String::new() };
    let cure = if cut.is_empty() { "" } else { "kernel-size=0 and " };
    Some(if cover.part == CoveredPart::Outside {
        format!(
            "the background may stay recognisable: a standard deviation of {used:.1} (sigma={sigma}{cut}) is small for a picture of \
             {width}x{height}, and strength does not apply to backgrounds; set {cure}sigma to {} or more",
            width.min(height).div_ceil(BACKGROUND)
        )
    } else {
        format!(
            "an object may stay recognisable: the standard deviation of its blur is {used:.1} (sigma={sigma}{cut}, \
             strength={strength}), and its shorter side has {side:.0} pixels; set strength to 0.25, the default, or use another cover"
        )
    })
}

/// The line of the log about a kernel that is too small.
pub fn cut_off(params: &BlurParams) -> String {
    let (size, sigma) = (params.kernel_size(), params.sigma());
    format!(
        "kernel-size={size} cuts the Gaussian of sigma={sigma} off, which blurs less and has edges; kernel-size=0 follows sigma"
    )
}
