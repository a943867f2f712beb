//! What must be covered in a frame, by the documentation alone: from properties, metas and times, for each luma sample. It uses no
//! code of the element. More may be covered, for example what is held; nothing that is demanded here may be missing.

use crate::settings::{Settings, Zone};
use crate::steps::{Caps, Frame, RoiBox};

/// What decides about a frame.
pub struct Moment<'a> {
    pub settings: &'a Settings,
    pub caps: &'a Caps,
    /// Luma samples in a buffer: of one field with interlace-mode=alternate.
    pub size: [u32; 2],
    pub segment: &'a gst::Segment,
    pub frame: &'a Frame,
    /// Whether an earlier frame since the start had detector metas that were read.
    pub has_detector: bool,
}

/// What becomes of a frame.
pub enum Demand {
    /// The whole frame is blurred by sigma (region-mode=frame).
    Blur,
    Drop,
    Error,
    Cover(Must),
}

/// Samples that must be covered.
pub struct Must {
    /// One for each luma sample, row by row.
    pub mask: Vec<bool>,
    /// The blur changes nothing, so that nothing is covered whatever the regions.
    pub is_identity: bool,
}

/// A box in luma samples, before rounding.
#[derive(Debug, Clone, Copy)]
struct Place {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

/// Tolerance for the rounding of floating-point numbers, in samples.
const EPSILON: f64 = 1e-5;
/// From this σ on a blur changes noise, and up to the other it changes nothing; between them either is allowed.
const VISIBLE_SIGMA: f64 = 0.3;
const INVISIBLE_SIGMA: f64 = 0.15;

impl Place {
    fn of(roi: &RoiBox) -> Self {
        let [x, y] = [roi.rect[0], roi.rect[1]].map(|corner| f64::from(corner.cast_signed()));
        Self { left: x, top: y, right: x + f64::from(roi.rect[2]), bottom: y + f64::from(roi.rect[3]) }
    }

    fn of_zone(zone: &Zone, [width, height]: [u32; 2]) -> Self {
        let (width, height) = (f64::from(width), f64::from(height));
        let (left, top) = (zone.x * width, zone.y * height);
        Self { left, top, right: left + zone.width * width, bottom: top + zone.height * height }
    }

    fn size(self) -> [f64; 2] {
        [self.right - self.left, self.bottom - self.top]
    }

    fn grown(self, share: f64) -> Self {
        let [width, height] = self.size();
        let (x, y) = (share * width, share * height);
        Self { left: self.left - x, top: self.top - y, right: self.right + x, bottom: self.bottom + y }
    }

    /// The same rows, counted in one field.
    fn in_field(self) -> Self {
        Self { top: self.top / 2.0, bottom: self.bottom / 2.0, ..self }
    }

    /// Whether it has a part of this sample, more than a tolerance, or (with a negative one) almost.
    fn touches(self, x: u32, y: u32, tolerance: f64) -> bool {
        let touches = |low: f64, high: f64, at: u32| {
            low < f64::from(at) + 1.0 - tolerance && high > f64::from(at) + tolerance && high > low
        };
        touches(self.left, self.right, x) && touches(self.top, self.bottom, y)
    }
}

impl Moment<'_> {
    pub fn demand(&self) -> Demand {
        let settings = self.settings;
        let is_outside = settings.text("region-mode") == "outside";
        if settings.text("region-mode") == "frame" {
            return Demand::Blur;
        }
        let asks = settings.has("region-sources", "roi") || settings.has("region-sources", "analytics");
        let is_missing = asks && !self.has_boxes();
        let is_whole = match settings.text("on-missing") {
            _ if !is_missing => false,
            "drop" => return Demand::Drop,
            "error" => return Demand::Error,
            "cover" => true,
            "auto" => self.has_detector || is_outside,
            _ => false,
        };
        let [width, height] = self.size;
        let samples = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        let mask = if is_whole {
            let is_visible = self.hides(f64::from(width.min(height)));
            samples.map(|_| is_visible).collect()
        } else if is_outside {
            let shown = self.shown();
            let is_visible = self.hides(0.0);
            samples.map(|(x, y)| is_visible && !shown.iter().any(|places| is_shown(places, x, y))).collect()
        } else {
            let covered = self.covered();
            samples.map(|(x, y)| covered.iter().any(|place| place.touches(x, y, EPSILON))).collect()
        };
        Demand::Cover(Must { mask, is_identity: self.is_identity(!is_outside || is_whole) })
    }

    /// Whether the frame has detections of the selected sources.
    pub fn has_boxes(&self) -> bool {
        self.settings.has("region-sources", "roi") && !self.frame.boxes.is_empty()
    }

    /// The channels that the format has and `planes` selects.
    fn selects_channels(&self) -> bool {
        let info = gst_video::VideoFormatInfo::from_format(gst_video::VideoFormat::from_string(&self.caps.format));
        self.settings.has("planes", "luma")
            || self.settings.has("planes", "chroma") && info.is_yuv()
            || self.settings.has("planes", "alpha") && info.n_components() == 4
    }

    /// Whether the cover of an object with this shorter side certainly changes a sample of noise.
    fn hides(&self, short_side: f64) -> bool {
        let settings = self.settings;
        let strength = settings.double("strength") * short_side;
        // σ and radius of chroma are a quarter with YUV9.
        let times = if settings.has("planes", "luma") { 1.0 } else { 0.25 };
        let size = settings.uint("kernel-size");
        let is_limited = size > 0 && times * f64::from(size - 1) / 2.0 < 0.5 && strength == 0.0;
        let sigma = times * settings.double("sigma").max(strength);
        settings.text("cover") != "blur" || self.selects_channels() && sigma >= VISIBLE_SIGMA && !is_limited
    }

    /// Whether the cover changes no sample, whatever it covers; `has_objects`: σ follows their size.
    fn is_identity(&self, has_objects: bool) -> bool {
        let settings = self.settings;
        let follows = settings.double("strength") > 0.0 && has_objects;
        let is_narrow = settings.double("sigma") <= INVISIBLE_SIGMA || settings.uint("kernel-size") == 1;
        settings.text("cover") == "blur" && (!self.selects_channels() || is_narrow && !follows)
    }

    /// What must be covered with region-mode=inside.
    fn covered(&self) -> Vec<Place> {
        let mut places = Vec::new();
        if self.settings.has("region-sources", "roi") {
            for roi in self.frame.boxes.iter().filter(|roi| self.counts(roi, true)) {
                let place = Place::of(roi);
                let [width, height] = place.size();
                if self.hides(width.min(height)) {
                    let place = place.grown(self.settings.double("expand"));
                    places.push(place);
                    if self.caps.interlace_mode == "alternate" {
                        places.push(place.in_field());
                    }
                }
            }
        }
        if self.settings.has("region-sources", "zones") {
            for zone in self.settings.zones().iter().filter(|zone| self.may_be_active(zone)) {
                let place = Place::of_zone(zone, self.size);
                let [width, height] = place.size();
                if self.hides(width.min(height)) {
                    places.push(place);
                }
            }
        }
        places
    }

    /// What may be shown with region-mode=outside: of each list only what all its places have.
    fn shown(&self) -> Vec<Vec<Place>> {
        let mut shown = Vec::new();
        let is_alternate = self.caps.interlace_mode == "alternate";
        if self.settings.has("region-sources", "roi") {
            for roi in self.frame.boxes.iter().filter(|roi| self.counts(roi, false)) {
                let place = Place::of(roi);
                let frame = [self.size[0], self.size[1] * (1 + u32::from(is_alternate))].map(f64::from);
                if (0..2).any(|axis| place.size()[axis] > 2.0 * frame[axis]) {
                    continue;
                }
                let place = place.grown(self.settings.double("expand"));
                shown.push(if is_alternate { vec![place, place.in_field()] } else { vec![place] });
            }
        }
        if self.settings.has("region-sources", "zones") {
            let zones = self.settings.zones().iter().filter(|zone| self.is_surely_active(zone));
            shown.extend(zones.map(|zone| vec![Place::of_zone(zone, self.size)]));
        }
        shown
    }

    /// Whether a detection counts; `unknown` is the answer where label or confidence are not known.
    fn counts(&self, roi: &RoiBox, unknown: bool) -> bool {
        let labels = self.settings.text("labels").split(',').map(str::trim).filter(|label| !label.is_empty());
        let labels: Vec<String> = labels.map(str::to_lowercase).collect();
        let is_selected = match roi.label.filter(|label| !label.is_empty()) {
            _ if labels.is_empty() => true,
            None => unknown,
            Some(label) => labels.contains(&label.to_lowercase()),
        };
        let least = self.settings.double("min-confidence");
        let is_certain = match roi.confidence.filter(|confidence| (0.0..=1.0).contains(confidence)) {
            _ if least == 0.0 => true,
            None => unknown,
            Some(confidence) => confidence as f32 >= least as f32,
        };
        is_selected && is_certain
    }

    /// The frame's stream time from and to, in ns; `None` if it is not known.
    fn interval(&self) -> Option<[f64; 2]> {
        let segment = self.segment.downcast_ref::<gst::ClockTime>()?;
        let (pts, start) = (self.frame.pts? as f64, segment.start()?.nseconds() as f64);
        let (numerator, denominator) = self.caps.rate;
        let of_rate = (numerator > 0).then(|| 1e9 * f64::from(denominator) / f64::from(numerator));
        let duration = self.frame.duration.map(|duration| duration as f64).or(of_rate).unwrap_or(0.0);
        let time = segment.time()?.nseconds() as f64;
        let stop = segment.stop().map(|stop| stop.nseconds() as f64);
        // An end beyond the segment is not shown.
        let end = (pts + duration).min(stop.filter(|stop| *stop > pts).unwrap_or(f64::INFINITY));
        // With a negative rate time goes back from the segment's end.
        let rate = segment.applied_rate();
        let origin = if rate < 0.0 { stop? } else { start };
        let stream = |position: f64| time + (position - origin) * rate;
        let [one, other] = [stream(pts), stream(end)];
        Some([one.min(other), one.max(other)])
    }

    /// Whether a frame certainly shares time with a zone, or its time is not known.
    fn may_be_active(&self, zone: &Zone) -> bool {
        let [start, end] = [zone.start.map_or(f64::NEG_INFINITY, |start| start as f64), zone_end(zone)];
        self.interval().is_none_or(|[from, to]| {
            let is_inside = from == to && start <= from && from < end;
            is_inside || to.min(end) - from.max(start) > 2.0
        })
    }

    /// Whether all of a frame's time may be in a zone's.
    fn is_surely_active(&self, zone: &Zone) -> bool {
        let [start, end] = [zone.start.map_or(f64::NEG_INFINITY, |start| start as f64), zone_end(zone)];
        zone.start.is_none() && zone.end.is_none()
            || self.interval().is_some_and(|[from, to]| from >= start - 2.0 && to <= end + 2.0)
    }
}

fn zone_end(zone: &Zone) -> f64 {
    zone.end.map_or(f64::INFINITY, |end| end as f64)
}

fn is_shown(places: &[Place], x: u32, y: u32) -> bool {
    places.iter().all(|place| place.touches(x, y, -EPSILON))
}
