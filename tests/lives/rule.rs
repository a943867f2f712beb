//! What must be covered in a frame, by the documentation alone: from properties, metas and times, for each luma sample. It uses no
//! code of the element. More may be covered, for example what is held; nothing that is demanded here may be missing.

use gst_video::{VideoInfo, VideoInterlaceMode};

use gstcudagaussblur::filter::regions::Area;

use crate::common::soft_oracle::{Form, Item};
use crate::settings::{Settings, Zone};
use crate::steps::{Frame, RoiBox, has_alpha};

/// What decides about a frame.
pub struct Moment {
    pub settings: Settings,
    pub info: VideoInfo,
    pub is_in_cuda: bool,
    /// Luma samples in a buffer: of one field with interlace-mode=alternate.
    pub size: [u32; 2],
    pub segment: gst::Segment,
    pub frame: Frame,
    /// Whether an earlier frame since the start had detector metas that were read.
    pub has_detector: bool,
    pub alpha: Option<Alpha>,
}

/// The alpha channel of a frame.
#[derive(Clone)]
pub struct Alpha {
    pub size: [u32; 2],
    /// The upper 8 bits, row by row.
    pub samples: Vec<u8>,
}

impl Alpha {
    /// A mask of everything in the picture.
    pub fn form(self) -> Form {
        let Self { size: [columns, rows], samples } = self;
        Form::Mask { columns, rows, samples }
    }
}

/// What becomes of a frame.
pub enum Demand {
    /// The whole frame is blurred by sigma (region-mode=frame).
    Blur,
    Cover(Must),
    Drop,
    Error,
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

/// A box in luma samples, before rounding: left and right, top and bottom.
#[derive(Debug, Clone, Copy)]
struct Place([[f64; 2]; 2]);

struct Object {
    item: Item,
    /// The box around every place where it may be, which `grow` shrinks.
    all: Place,
}

/// From this σ on a blur changes noise, and up to the other it changes nothing; between them either is allowed.
const VISIBLE_SIGMA: f64 = 0.3;
const INVISIBLE_SIGMA: f64 = 0.15;

impl Place {
    fn of(roi: &RoiBox) -> Self {
        let [x, y, width, height] = roi.rect;
        let axis =
            |start: u32, length: u32| [start.cast_signed().into(), f64::from(start.cast_signed()) + f64::from(length)];
        Self([axis(x, width), axis(y, height)])
    }

    fn of_zone(zone: &Zone, size: [u32; 2]) -> Self {
        let axis = |start: f64, length: f64, side: u32| {
            let side = f64::from(side);
            [start * side, start * side + length * side]
        };
        Self([axis(zone.x, zone.width, size[0]), axis(zone.y, zone.height, size[1])])
    }

    fn size(self) -> [f64; 2] {
        self.0.map(|[low, high]| high - low)
    }

    fn short_side(self) -> f64 {
        self.size()[0].min(self.size()[1])
    }

    fn grown(self, share: f64) -> Self {
        Self(self.0.map(|[low, high]| [low - share * (high - low), high + share * (high - low)]))
    }

    fn wider(self, samples: i32) -> Self {
        Self(self.0.map(|[low, high]| [low - f64::from(samples), high + f64::from(samples)]))
    }

    fn is_empty(self) -> bool {
        self.short_side() <= 0.0
    }

    /// The same rows, counted in one field.
    fn in_field(self) -> Self {
        Self([self.0[0], self.0[1].map(|y| y / 2.0)])
    }

    fn area(self) -> Area {
        let [[left, right], [top, bottom]] = self.0;
        Area { left, top, right, bottom }
    }
}

impl Object {
    fn new(place: Place, form: Form) -> Self {
        Self { item: Item { area: place.area(), form }, all: place }
    }
}

impl Moment {
    /// What becomes of the frame, with the CPU as the backend or with CUDA.
    pub fn demand(&self, is_on_cpu: bool) -> Demand {
        let settings = &self.settings;
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
        let count = (width * height) as usize;
        let has_alpha = !is_whole && settings.has("region-sources", "alpha");
        // The CPU reads frames in CUDA memory on the host.
        let is_unreadable = has_alpha && (self.is_in_cuda && !is_on_cpu || !self.has_alpha());
        let mask: Vec<bool> = if is_whole || is_unreadable {
            vec![self.hides(f64::from(width.min(height))); count]
        } else if is_outside {
            let is_visible = self.hides(0.0);
            self.may_show().into_iter().map(|is_shown| is_visible && !is_shown).collect()
        } else {
            let mut mask = vec![false; count];
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

    pub fn is_field(&self) -> bool {
        self.info.interlace_mode() == VideoInterlaceMode::Alternate
    }

    fn has_alpha(&self) -> bool {
        has_alpha(self.info.format())
    }

    /// The channels that the format has and `planes` selects.
    fn selects_channels(&self) -> bool {
        self.settings.has("planes", "luma")
            || self.settings.has("planes", "chroma") && self.info.is_yuv()
            || self.settings.has("planes", "alpha") && self.has_alpha()
    }

    /// Whether the cover of an object with this shorter side certainly changes a sample of noise.
    fn hides(&self, short_side: f64) -> bool {
        let settings = &self.settings;
        let strength = settings.number::<f64>("strength") * short_side;
        // σ and radius of chroma are a quarter with YUV9.
        let times = if settings.has("planes", "luma") { 1.0 } else { 0.25 };
        let size: f64 = settings.number("kernel-size");
        let is_limited = size > 0.0 && times * (size - 1.0) / 2.0 < 0.5 && strength == 0.0;
        let sigma = times * settings.number::<f64>("sigma").max(strength);
        settings.text("cover") != "blur" || self.selects_channels() && sigma >= VISIBLE_SIGMA && !is_limited
    }

    /// Whether the cover changes no sample, whatever it covers; `has_objects`: σ follows their size.
    fn is_identity(&self, has_objects: bool) -> bool {
        let settings = &self.settings;
        let follows = settings.number::<f64>("strength") > 0.0 && has_objects;
        let is_narrow = settings.number::<f64>("sigma") <= INVISIBLE_SIGMA || settings.text("kernel-size") == "1";
        settings.text("cover") == "blur" && (!self.selects_channels() || is_narrow && !follows)
    }

    /// The samples of an object that is covered, with `grow`.
    fn must_cover(&self, object: &Object) -> Vec<bool> {
        // One of which shrinking would leave nothing is covered whole.
        let grow = Some(self.settings.number("grow")).filter(|grow| !object.all.wider(*grow).is_empty()).unwrap_or(0);
        let Item { area: Area { left, top, right, bottom }, form } = object.item.clone();
        if let Form::Box = form {
            let area = Place([[left, right], [top, bottom]]).wider(grow).area();
            let grown = Item { area, form };
            return self.grown(0, 0, |x, y| grown.touches(x, y));
        }
        self.grown(grow, grow.unsigned_abs().into(), |x, y| object.item.touches(x, y))
    }

    /// The samples that may be shown with region-mode=outside, with `grow`.
    fn may_show(&self) -> Vec<bool> {
        let (shown, grow) = (self.shown(), self.settings.number::<i32>("grow"));
        // A mask that ends at an edge of the picture does not shrink there.
        self.grown(grow, grow.max(0).into(), |x, y| {
            shown.iter().any(|items| items.iter().all(|item| item.may_show(x, y)))
        })
    }

    /// The samples that an object has after it grows or shrinks by so many samples. Of those beyond each edge of the picture so many
    /// count.
    fn grown(&self, grow: i32, margin: i64, is_object: impl Fn(i64, i64) -> bool) -> Vec<bool> {
        let [width, height] = self.size.map(|side| i64::from(side) + 2 * margin);
        let row = (width + 1) as usize;
        // Of the samples above and on the left of each, those that are the object's.
        let mut sums = vec![0_i64; row * (height + 1) as usize];
        for y in 0..height {
            let mut of_row = 0;
            for x in 0..width {
                of_row += i64::from(is_object(x - margin, y - margin));
                let at = (y + 1) as usize * row + x as usize + 1;
                sums[at] = sums[at - row] + of_row;
            }
        }
        let sum = |x: i64, y: i64| sums[y as usize * row + x as usize];
        let radius = i64::from(grow.unsigned_abs());
        let near = |at: i64, side: i64| [(at - radius).max(0), (at + radius + 1).min(side)];
        let is_left = |(x, y)| {
            let ([left, right], [top, bottom]) = (near(x, width), near(y, height));
            let count = sum(right, bottom) + sum(left, top) - sum(left, bottom) - sum(right, top);
            if grow < 0 { count == (right - left) * (bottom - top) } else { count > 0 }
        };
        let places = (margin..height - margin).flat_map(|y| (margin..width - margin).map(move |x| (x, y)));
        places.map(is_left).collect()
    }

    /// Which part of the place of a detection is the object; `None` if `shape` wants a mask that it has not.
    fn form(&self, roi: &RoiBox) -> Option<Form> {
        match self.settings.text("shape") {
            "ellipse" => Some(Form::Ellipse),
            "mask" => roi.mask.as_ref().filter(|_| !self.is_field())?.form(),
            _ => Some(Form::Box),
        }
    }

    fn of_zone(&self, place: Place) -> Object {
        let form = if self.settings.text("shape") == "ellipse" { Form::Ellipse } else { Form::Box };
        Object::new(place, form)
    }

    /// The alpha channel, if it is a region: a mask of everything in the picture.
    fn of_alpha(&self) -> Option<Object> {
        let alpha = self.alpha.clone().filter(|_| self.settings.has("region-sources", "alpha"))?;
        Some(Object::new(Place(self.size.map(|side| [0.0, side.into()])), alpha.form()))
    }

    /// What must be covered with region-mode=inside.
    fn covered(&self) -> Vec<Object> {
        let picture = f64::from(self.size[0].min(self.size[1]));
        // Strength follows the picture.
        let mut objects: Vec<Object> = self.of_alpha().filter(|_| self.hides(picture)).into_iter().collect();
        if self.settings.has("region-sources", "roi") {
            for roi in self.frame.boxes.iter().filter(|roi| self.counts(roi, true)) {
                let place = Place::of(roi);
                let mut short_side = place.short_side();
                if self.settings.text("on-lost") == "cover" {
                    // The whole frame may be covered for another one, with the strength of the picture.
                    short_side = short_side.min(picture);
                }
                if self.hides(short_side) && !place.is_empty() {
                    // Masks do not expand.
                    let form = self.form(roi).unwrap_or(Form::Box);
                    let is_mask = matches!(form, Form::Mask { .. });
                    let expand = if is_mask { 0.0 } else { self.settings.number("expand") };
                    let field = if self.is_field() { place.in_field() } else { place };
                    let ([columns, [top, bottom]], [_, of_field]) = (place.0, field.0);
                    let all = Place([columns, [top.min(of_field[0]), bottom.max(of_field[1])]]).grown(expand);
                    let item = |place: Place| Item { area: place.grown(expand).area(), form: form.clone() };
                    objects.extend([place, field].map(|place| Object { item: item(place), all }));
                }
            }
        }
        if self.settings.has("region-sources", "zones") {
            let zones = self.settings.zones().into_iter().filter(|zone| self.may_be_active(zone));
            let places = zones.map(|zone| Place::of_zone(&zone, self.size));
            objects.extend(places.filter(|place| self.hides(place.short_side())).map(|place| self.of_zone(place)));
        }
        objects
    }

    /// What may be shown with region-mode=outside: of each list only what all its objects have.
    fn shown(&self) -> Vec<Vec<Item>> {
        let mut shown: Vec<Vec<Item>> = self.of_alpha().map(|alpha| vec![alpha.item]).into_iter().collect();
        if self.settings.has("region-sources", "roi") {
            for roi in self.frame.boxes.iter().filter(|roi| self.counts(roi, false)) {
                let place = Place::of(roi);
                let frame = [self.size[0], self.size[1] * (1 + u32::from(self.is_field()))].map(f64::from);
                if (0..2).any(|axis| place.size()[axis] > 2.0 * frame[axis]) {
                    continue;
                }
                let Some(form) = self.form(roi) else { continue };
                let is_mask = matches!(form, Form::Mask { .. });
                let place = if is_mask { place } else { place.grown(self.settings.number("expand")) };
                let places = [place, place.in_field()].into_iter().take(1 + usize::from(self.is_field()));
                shown.push(places.map(|place| Item { area: place.area(), form: form.clone() }).collect());
            }
        }
        if self.settings.has("region-sources", "zones") {
            let zones = self.settings.zones().into_iter().filter(|zone| self.is_surely_active(zone));
            shown.extend(zones.map(|zone| vec![self.of_zone(Place::of_zone(&zone, self.size)).item]));
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
        let least: f64 = self.settings.number("min-confidence");
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
        let ns = |time: gst::ClockTime| time.nseconds() as f64;
        let [pts, start, time] = [self.frame.pts?, segment.start()?, segment.time()?].map(ns);
        let (rate, stop) = (self.info.fps(), segment.stop().map(ns));
        let buffers = if self.is_field() { 2.0 } else { 1.0 };
        let of_rate = (rate.numer() > 0).then(|| 1e9 * f64::from(rate.denom()) / f64::from(rate.numer()) / buffers);
        let duration = self.frame.duration.map(ns).or(of_rate).unwrap_or(0.0);
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
        let [start, end] = times(zone);
        self.interval().is_none_or(|[from, to]| {
            let is_inside = from == to && start <= from && from < end;
            is_inside || to.min(end) - from.max(start) > 2.0
        })
    }

    /// Whether all of a frame's time may be in a zone's.
    fn is_surely_active(&self, zone: &Zone) -> bool {
        let [start, end] = times(zone);
        zone.start.is_none() && zone.end.is_none()
            || self.interval().is_some_and(|[from, to]| from >= start - 2.0 && to <= end + 2.0)
    }
}

/// From when to when a zone is active, in ns.
fn times(zone: &Zone) -> [f64; 2] {
    [zone.start.map_or(f64::NEG_INFINITY, |start| start * 1e9), zone.end.map_or(f64::INFINITY, |end| end * 1e9)]
}
