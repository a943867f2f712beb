//! What must be covered in a frame, by the documentation alone: from properties, metas and times, for each luma sample. It uses no
//! code of the element. More may be covered, for example what is held; nothing that is demanded here may be missing.

use crate::settings::{Settings, Zone};
use crate::steps::{Caps, Frame, MaskParam, RoiBox};

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
    pub alpha: Option<&'a Alpha>,
}

/// The alpha channel of a frame.
pub struct Alpha {
    pub size: [u32; 2],
    /// The upper 8 bits, row by row.
    pub samples: Vec<u8>,
}

impl Alpha {
    fn is_object(&self, x: i64, y: i64) -> bool {
        let [width, height] = self.size.map(i64::from);
        (0..width).contains(&x) && (0..height).contains(&y) && self.samples[(y * width + x) as usize] >= 128
    }
}

/// What becomes of a frame.
pub enum Demand {
    /// The whole frame is blurred by sigma (region-mode=frame).
    Blur,
    Drop,
    Error,
    Cover(Must),
    /// The alpha channel cannot be read, which is an error unless the whole frame is covered.
    NoAlpha(Must),
}

/// Samples that must be covered.
pub struct Must {
    /// One for each luma sample, row by row.
    pub mask: Vec<bool>,
    /// The blur changes nothing, so that nothing is covered whatever the regions.
    pub is_identity: bool,
    /// The alpha channel is a region, unless the whole frame is covered.
    pub has_alpha: bool,
    /// An object may be lost, or a later frame may have the first detector metas.
    pub may_be_whole: bool,
}

/// A box in luma samples, before rounding.
#[derive(Debug, Clone, Copy)]
struct Place {
    left: f64,
    top: f64,
    right: f64,
    bottom: f64,
}

/// What of a place is an object.
#[derive(Clone, Copy)]
enum Form<'a> {
    Box,
    Ellipse,
    Mask(&'a MaskParam),
    /// It has a sample for each of the picture.
    Alpha(&'a Alpha),
}

#[derive(Clone, Copy)]
struct Object<'a> {
    place: Place,
    form: Form<'a>,
    /// The box around every place where it may be, which `grow` shrinks.
    all: Place,
}

/// Which samples are an object's, `margin` of them beyond each edge of the picture included.
struct Samples {
    size: [i64; 2],
    margin: i64,
    /// Of the samples above and on the left of each, those that are.
    sums: Vec<u32>,
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

    fn wider(self, samples: i32) -> Self {
        let by = f64::from(samples);
        Self { left: self.left - by, top: self.top - by, right: self.right + by, bottom: self.bottom + by }
    }

    fn is_empty(self) -> bool {
        self.size().iter().any(|side| *side <= 0.0)
    }

    /// The same rows, counted in one field.
    fn in_field(self) -> Self {
        Self { top: self.top / 2.0, bottom: self.bottom / 2.0, ..self }
    }

    /// Whether it has a part of this sample, more than a tolerance, or (with a negative one) almost.
    fn touches(self, x: i64, y: i64, tolerance: f64) -> bool {
        let touches = |low: f64, high: f64, at: i64| {
            low < at as f64 + 1.0 - tolerance && high > at as f64 + tolerance && high > low
        };
        touches(self.left, self.right, x) && touches(self.top, self.bottom, y)
    }

    /// The distance of a point from the centre, where the ellipse in the place is 1 away.
    fn distance(self, x: f64, y: f64) -> f64 {
        let axis = |low: f64, high: f64, at: f64| (2.0 * at - low - high) / (high - low);
        axis(self.left, self.right, x).hypot(axis(self.top, self.bottom, y))
    }

    /// In samples of a mask over the place: a point of the picture.
    fn in_mask(self, mask: &MaskParam, x: f64, y: f64) -> [f64; 2] {
        let [width, height] = self.size();
        [(x - self.left) / width * f64::from(mask.size[0]), (y - self.top) / height * f64::from(mask.size[1])]
    }
}

impl Object<'_> {
    /// Whether any part of a sample is the object's.
    fn touches(&self, x: i64, y: i64) -> bool {
        let place = self.place;
        let (left, top) = (x as f64, y as f64);
        place.touches(x, y, EPSILON)
            && match self.form {
                Form::Box => true,
                Form::Ellipse => {
                    let nearest = |low: f64, high: f64, at: f64| f64::midpoint(low, high).clamp(at, at + 1.0);
                    let [x, y] = [nearest(place.left, place.right, left), nearest(place.top, place.bottom, top)];
                    place.distance(x, y) < 1.0 - EPSILON
                }
                Form::Mask(mask) => {
                    let first = place.in_mask(mask, left, top).map(|at| (at + EPSILON).floor().max(0.0) as u32);
                    let end = place.in_mask(mask, left + 1.0, top + 1.0).map(|at| (at - EPSILON).ceil() as u32);
                    let [columns, rows] = [0, 1].map(|axis| first[axis]..end[axis].min(mask.size[axis]));
                    rows.into_iter().any(|y| columns.clone().any(|x| mask.sample(x, y) >= 128))
                }
                Form::Alpha(alpha) => alpha.is_object(x, y),
            }
    }

    /// Whether a sample may count as the object's where all but objects are covered.
    fn may_show(&self, x: i64, y: i64) -> bool {
        let middle = [x as f64 + 0.5, y as f64 + 0.5];
        self.place.touches(x, y, -EPSILON)
            && match self.form {
                Form::Box => true,
                Form::Ellipse => self.place.distance(middle[0], middle[1]) <= 1.0 + EPSILON,
                // It is stretched over the place rounded inwards.
                Form::Mask(_) => (-1..=1).any(|dy| (-1..=1).any(|dx| self.touches(x + dx, y + dy))),
                Form::Alpha(alpha) => alpha.is_object(x, y),
            }
    }
}

impl Samples {
    fn new([width, height]: [u32; 2], margin: u32, is_object: impl Fn(i64, i64) -> bool) -> Self {
        let margin = i64::from(margin);
        let size = [width, height].map(|side| i64::from(side) + 2 * margin);
        let mut sums = vec![0_u32; ((size[0] + 1) * (size[1] + 1)) as usize];
        let row = (size[0] + 1) as usize;
        for y in 0..size[1] {
            let mut of_row = 0;
            for x in 0..size[0] {
                of_row += u32::from(is_object(x - margin, y - margin));
                let at = (y + 1) as usize * row + x as usize + 1;
                sums[at] = sums[at - row] + of_row;
            }
        }
        Self { size, margin, sums }
    }

    /// Of the samples at most so far away along either axis, how many are the object's, and how many of them there are.
    fn near(&self, x: u32, y: u32, radius: u32) -> [u32; 2] {
        let axis = |at: u32, side: i64| {
            let at = i64::from(at) + self.margin;
            let radius = i64::from(radius);
            [(at - radius).max(0), (at + radius + 1).min(side)].map(|at| at as usize)
        };
        let ([left, right], [top, bottom]) = (axis(x, self.size[0]), axis(y, self.size[1]));
        let sum = |x: usize, y: usize| self.sums[y * (self.size[0] as usize + 1) + x];
        let count = sum(right, bottom) + sum(left, top) - sum(left, bottom) - sum(right, top);
        [count, ((right - left) * (bottom - top)) as u32]
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
        let has_alpha = !is_whole && settings.has("region-sources", "alpha");
        let is_unreadable = has_alpha && (self.caps.is_in_cuda || self.format().n_components() < 4);
        let mask: Vec<bool> = if is_whole || is_unreadable {
            let is_visible = self.hides(f64::from(width.min(height)));
            samples.map(|_| is_visible).collect()
        } else if is_outside {
            let is_visible = self.hides(0.0);
            self.may_show().into_iter().map(|is_shown| is_visible && !is_shown).collect()
        } else {
            let mut mask = vec![false; samples.count()];
            for object in self.covered() {
                mask.iter_mut().zip(self.must_cover(&object)).for_each(|(must, covered)| *must |= covered);
            }
            mask
        };
        // Also objects of sources that are not selected any more.
        let may_be_lost = settings.text("on-lost") == "cover" && !is_outside;
        let may_be_whole = may_be_lost || is_missing && settings.text("on-missing") == "auto";
        let is_identity = self.is_identity(!is_outside || is_whole);
        let must = Must { mask, is_identity, has_alpha, may_be_whole };
        if is_unreadable { Demand::NoAlpha(must) } else { Demand::Cover(must) }
    }

    /// Whether the frame has detections of the selected sources.
    pub fn has_boxes(&self) -> bool {
        self.settings.has("region-sources", "roi") && !self.frame.boxes.is_empty()
    }

    fn format(&self) -> gst_video::VideoFormatInfo {
        gst_video::VideoFormatInfo::from_format(gst_video::VideoFormat::from_string(&self.caps.format))
    }

    /// The channels that the format has and `planes` selects.
    fn selects_channels(&self) -> bool {
        let info = self.format();
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

    /// The samples of an object that is covered, with `grow`.
    fn must_cover(&self, object: &Object) -> Vec<bool> {
        let (grow, [width, height]) = (self.settings.grow(), self.size);
        let samples = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        let by = grow.unsigned_abs();
        // One of which shrinking would leave nothing is covered whole.
        let is_left = !object.all.wider(grow).is_empty();
        if let Form::Box = object.form {
            let object = Object { place: if is_left { object.place.wider(grow) } else { object.place }, ..*object };
            return samples.map(|(x, y)| object.touches(x.into(), y.into())).collect();
        }
        let all = Samples::new(self.size, by, |x, y| object.touches(x, y));
        let is_covered = |(x, y)| {
            let [count, of] = all.near(x, y, if is_left { by } else { 0 });
            if grow < 0 && is_left { count == of } else { count > 0 }
        };
        samples.map(is_covered).collect()
    }

    /// The samples that may be shown with region-mode=outside, with `grow`.
    fn may_show(&self) -> Vec<bool> {
        let shown = self.shown();
        let (grow, [width, height]) = (self.settings.grow(), self.size);
        let samples = (0..height).flat_map(|y| (0..width).map(move |x| (x, y)));
        let by = grow.unsigned_abs();
        // A mask that ends at an edge of the picture does not shrink there.
        let margin = if grow > 0 { by } else { 0 };
        let all = Samples::new(self.size, margin, |x, y| {
            shown.iter().any(|objects| objects.iter().all(|object| object.may_show(x, y)))
        });
        let is_shown = |(x, y)| {
            let [count, of] = all.near(x, y, by);
            if grow < 0 { count == of } else { count > 0 }
        };
        samples.map(is_shown).collect()
    }

    /// Which part of the place of a detection is the object; `None` if `shape` wants a mask that it has not.
    fn form<'a>(&self, roi: &'a RoiBox) -> Option<Form<'a>> {
        let is_field = self.caps.interlace_mode == "alternate";
        match self.settings.text("shape") {
            "ellipse" => Some(Form::Ellipse),
            "mask" => {
                let mask = roi.mask.as_ref().filter(|mask| !is_field && mask.is_readable() && mask.has_object());
                mask.map(Form::Mask)
            }
            _ => Some(Form::Box),
        }
    }

    fn of_zone(&self, zone: &Zone) -> Object<'_> {
        let form = if self.settings.text("shape") == "ellipse" { Form::Ellipse } else { Form::Box };
        let place = Place::of_zone(zone, self.size);
        Object { place, form, all: place }
    }

    /// The alpha channel, if it is a region: a mask of everything in the picture.
    fn of_alpha(&self) -> Option<Object<'_>> {
        let alpha = self.alpha.filter(|_| self.settings.has("region-sources", "alpha"))?;
        let [right, bottom] = self.size.map(f64::from);
        let place = Place { left: 0.0, top: 0.0, right, bottom };
        Some(Object { place, form: Form::Alpha(alpha), all: place })
    }

    /// What must be covered with region-mode=inside.
    fn covered(&self) -> Vec<Object<'_>> {
        let [width, height] = self.size.map(f64::from);
        // Strength follows the picture.
        let mut objects: Vec<Object> = self.of_alpha().filter(|_| self.hides(width.min(height))).into_iter().collect();
        if self.settings.has("region-sources", "roi") {
            for roi in self.frame.boxes.iter().filter(|roi| self.counts(roi, true)) {
                let place = Place::of(roi);
                let side = |[width, height]: [f64; 2]| width.min(height);
                let mut short_side = side(place.size());
                if self.settings.text("on-lost") == "cover" {
                    // The whole frame may be covered for another one, with the strength of the picture.
                    short_side = short_side.min(side([width, height]));
                }
                if self.hides(short_side) && !place.is_empty() {
                    // Masks do not expand.
                    let form = self.form(roi).unwrap_or(Form::Box);
                    let is_mask = matches!(form, Form::Mask(_));
                    let expand = if is_mask { 0.0 } else { self.settings.double("expand") };
                    let field = if self.caps.interlace_mode == "alternate" { place.in_field() } else { place };
                    let all = Place { top: place.top.min(field.top), bottom: place.bottom.max(field.bottom), ..place };
                    let all = all.grown(expand);
                    objects.extend([place, field].map(|place| Object { place: place.grown(expand), form, all }));
                }
            }
        }
        if self.settings.has("region-sources", "zones") {
            for zone in self.settings.zones().iter().filter(|zone| self.may_be_active(zone)) {
                let object = self.of_zone(zone);
                let [width, height] = object.place.size();
                if self.hides(width.min(height)) {
                    objects.push(object);
                }
            }
        }
        objects
    }

    /// What may be shown with region-mode=outside: of each list only what all its objects have.
    fn shown(&self) -> Vec<Vec<Object<'_>>> {
        let mut shown: Vec<Vec<Object>> = self.of_alpha().map(|alpha| vec![alpha]).into_iter().collect();
        let is_alternate = self.caps.interlace_mode == "alternate";
        if self.settings.has("region-sources", "roi") {
            for roi in self.frame.boxes.iter().filter(|roi| self.counts(roi, false)) {
                let place = Place::of(roi);
                let frame = [self.size[0], self.size[1] * (1 + u32::from(is_alternate))].map(f64::from);
                if (0..2).any(|axis| place.size()[axis] > 2.0 * frame[axis]) {
                    continue;
                }
                let Some(form) = self.form(roi) else { continue };
                let is_mask = matches!(form, Form::Mask(_));
                let place = if is_mask { place } else { place.grown(self.settings.double("expand")) };
                let object = Object { place, form, all: place };
                let in_field = Object { place: place.in_field(), ..object };
                shown.push(if is_alternate { vec![object, in_field] } else { vec![object] });
            }
        }
        if self.settings.has("region-sources", "zones") {
            let zones = self.settings.zones().iter().filter(|zone| self.is_surely_active(zone));
            shown.extend(zones.map(|zone| vec![self.of_zone(zone)]));
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
