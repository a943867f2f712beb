// SPDX-License-Identifier: MPL-2.0
//! The regions of each frame: which detections count, which area is covered for objects that are not found in the
//! frame, and which action a frame without detections gets.

use super::clock::{Clock, FrameTimes};
use super::detection::{Detection, Found, Looked};
use super::on_missing::{Detectors, FrameAction};
use super::rules::Rules;
use super::tracks::{Decided, Evidence, TrackedObject, Tracks};
use super::zone::Zone;
use crate::filter::regions::{Area, Rect, Region};
use crate::filter::weights::{Mask, Object, Shape};

/// A region and its origin.
#[derive(Debug, Clone, PartialEq)]
pub struct FrameRegion {
    /// Where it is.
    pub region: Region,
    /// Its origin.
    pub origin: Origin,
    /// The number of the object's track, from 1; `None` for a zone, and where detections are shown.
    pub track: Option<u32>,
    /// The box of a detection of this frame, as the detector gave it.
    pub detected: Option<Area>,
    /// The label of a detection.
    pub label: Option<String>,
    /// The name of a zone.
    pub name: Option<String>,
    /// The outline of the object, for the weights of a cover with a soft edge, an ellipse or a mask.
    pub outline: Object,
}

/// The origin of a region.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// The zones property.
    Zone,
    /// A detection.
    Detection(Evidence),
    /// The alpha channel.
    Alpha,
}

/// The regions of a frame, and the action for it.
#[derive(Debug, Clone, PartialEq)]
pub struct FrameRegions {
    /// The action. An action that covers the whole frame does so with every `region-mode`.
    pub action: FrameAction,
    /// The regions, in no particular order; they may overlap. None if the action does not ask for them.
    pub regions: Vec<FrameRegion>,
    /// Whether a detector should have searched the frame, and did not.
    pub is_missing: bool,
    /// Whether the frame has metas of a detector that cannot be read.
    pub is_unreadable: bool,
    /// Whether the whole frame is covered because an object is lost (`on-lost`).
    pub is_lost: bool,
}

/// The facts about a frame when it enters.
#[derive(Debug, Clone)]
pub struct EnteredFrame {
    /// Width and height of the picture.
    pub size: (u32, u32),
    /// The number of views beside each other and above each other. Zones apply to each view.
    pub views: [u32; 2],
    /// Whether the picture is one field. A detector may then count in rows of the field or in rows of the frame.
    pub is_field: bool,
    /// When it is shown.
    pub times: FrameTimes,
    /// All detections that detectors attached, whether or not they count.
    pub found: Found,
}

/// The state that the regions of a frame need about the frames around it.
#[derive(Debug, Default)]
pub struct RegionTracker {
    clock: Clock,
    tracks: Tracks,
    detectors: Detectors,
}

impl RegionTracker {
    /// Whether the stream has had metas of a detector.
    pub fn has_detector(&self) -> bool {
        self.detectors.seen
    }

    /// Whether a frame does not continue the frames before it. The caller then has to decide about those, and to forget
    /// their objects.
    pub fn is_jump(&self, times: &FrameTimes, rules: &Rules) -> bool {
        self.clock.is_jump(times, rules.holding.time)
    }

    /// Adds the next frame. It is called for every frame, so that objects are also followed through frames that are
    /// dropped or covered as a whole. Sets `now` of the frame's times.
    pub fn observe(&mut self, rules: &Rules, frame: &mut EnteredFrame) {
        let EnteredFrame { size, found, times, .. } = frame;
        self.detectors.note(found.looked);
        times.now = self.clock.advance(times, rules.holding.time);
        let selected = found.detections.iter().filter(|detection| rules.selects(detection));
        let detections = selected.map(|detection| (detection, !rules.covers(detection)));
        self.tracks.observe(times.now, *size, rules.holding, detections);
    }

    /// Decides about the oldest undecided frame, by the rules with which it entered.
    pub fn resolve(&mut self, rules: &Rules, frame: &EnteredFrame) -> FrameRegions {
        let EnteredFrame { size, views, is_field, times, found } = frame;
        let Decided { objects, is_lost } = self.tracks.resolve(*size, rules.holding);
        let action = self.detectors.action(rules.on_missing, rules.shows_regions, found.looked);
        let is_missing = action != FrameAction::Regions || self.detectors.is_silent(found.looked);
        let is_lost = is_lost && !rules.shows_regions;
        let action = if action == FrameAction::Regions && is_lost { FrameAction::Whole } else { action };
        let regions = match action {
            FrameAction::Whole | FrameAction::Drop | FrameAction::Error => Vec::new(),
            // A track says where an object may be. That is not enough to show it.
            FrameAction::Regions => {
                let mut regions: Vec<FrameRegion> = if rules.shows_regions {
                    let shown = found.detections.iter().filter(|detection| rules.shows(detection));
                    shown.filter_map(|detection| shown_region(detection, rules, *size, *is_field)).collect()
                } else {
                    let covered = |object| covered_regions(object, &found.detections, rules, *size, *is_field);
                    objects.into_iter().flat_map(covered).collect()
                };
                let zones = rules.zones.iter().filter(|zone| zone.is_active(times.span, rules.shows_regions));
                regions.extend(zones.flat_map(|zone| zone_regions(zone, rules, *size, *views)));
                regions
            }
        };
        FrameRegions { action, regions, is_missing, is_unreadable: found.looked == Looked::Unreadable, is_lost }
    }

    /// Forgets the objects of the previous frames, their time, and the frames that are not decided.
    pub fn clear(&mut self) {
        self.tracks.clear();
        self.clock = Clock::default();
    }
}

/// The region of a shown detection. A detection is not shown if its mask is missing or belongs to an earlier frame, or
/// if its ellipse is unknown.
fn shown_region(detection: &Detection, rules: &Rules, size: (u32, u32), is_field: bool) -> Option<FrameRegion> {
    // A box of no size says that nothing was found.
    let certain = detection.certain.filter(|certain| !certain.is_empty())?;
    let (area, shape) = match &rules.shape {
        // It is unknown in which rows the ellipse is.
        Some(Shape::Ellipse) if is_field => return None,
        Some(shape) => (certain.grown(certain, rules.expand), shape.clone()),
        None if detection.has_old_mask => return None,
        None => detection.mask.as_ref().map(|mask| (mask.area(), Shape::Mask(mask.clone())))?,
    };
    let region = region_of(area, certain, rules, size)?;
    let origin = Origin::Detection(Evidence::Found);
    let (label, outline) = (detection.label.clone(), Object { area, shape });
    Some(FrameRegion { region, origin, track: None, detected: Some(certain), label, name: None, outline })
}

/// The regions of a covered object. Where it was found, it is covered with its shape, elsewhere by the box in which it
/// may be.
fn covered_regions(
    tracked: TrackedObject,
    detections: &[Detection],
    rules: &Rules,
    size: (u32, u32),
    is_field: bool,
) -> Vec<FrameRegion> {
    let TrackedObject { track, evidence, cover, object, full, label } = tracked;
    let is_found = evidence == Evidence::Found;
    let masks = || masks_of(object, label.as_deref(), detections, rules).filter(|_| is_found);
    // The found area, and the box that shrinks slowly, because a detector may find only a part of an object.
    let areas = [object, cover].map(|area| area.grown(object, rules.expand));
    let both = |shape: Shape| {
        let count = if areas[0] == areas[1] { 1 } else { 2 };
        areas.into_iter().take(count).map(|area| (area, shape.clone())).collect()
    };
    // The box contains the object's own box, unless `grow` would leave nothing of the object's own box in the picture.
    let is_left = Rect::covering(areas[0].wider(rules.edge.grow.into()), size).is_some();
    let boxed = || if is_left { vec![(areas[1], Shape::Box)] } else { both(Shape::Box) };
    let shapes = match rules.shape {
        Some(Shape::Ellipse) if is_found && !is_field => both(Shape::Ellipse),
        Some(_) => boxed(),
        None => match masks() {
            // The object is where it was detected, and may have left the mask.
            Some((masks, true)) => [masks, boxed()].concat(),
            Some((masks, false)) => masks,
            None => boxed(),
        },
    };
    let (origin, detected) = (Origin::Detection(evidence), is_found.then_some(object));
    let region = |(area, shape)| {
        let region = region_of(area, full, rules, size)?;
        let outline = Object { area, shape };
        Some(FrameRegion { region, origin, track: Some(track), detected, label: label.clone(), name: None, outline })
    };
    shapes.into_iter().filter_map(region).collect()
}

/// The masks of the object with this box and label, and whether one of them belongs to an earlier frame. Detections
/// with the same box cannot be told apart if their labels may be the same. So the object has the masks of all these
/// detections, and no mask if one of them has none. A tracker's number can give an object a detection without its
/// label.
fn masks_of(
    object: Area,
    label: Option<&str>,
    detections: &[Detection],
    rules: &Rules,
) -> Option<(Vec<(Area, Shape)>, bool)> {
    let may_be_own = |detection: &&Detection| {
        let of_detection = detection.label.as_deref();
        detection.area == object && (of_detection == label || of_detection.is_none() || label.is_none())
    };
    let own: Vec<_> = detections.iter().filter(may_be_own).filter(|detection| rules.selects(detection)).collect();
    let masks = own.iter().map(|detection| detection.mask.clone().map(|mask| (mask.area(), Shape::Mask(mask))));
    let masks = masks.collect::<Option<Vec<_>>>().filter(|masks| !masks.is_empty())?;
    Some((masks, own.iter().any(|detection| detection.has_old_mask)))
}

/// The regions of a zone, one in each view. A zone has no mask. No part of a shown zone reaches into the view beside
/// it.
fn zone_regions(zone: &Zone, rules: &Rules, size: (u32, u32), views: [u32; 2]) -> Vec<FrameRegion> {
    let (width, height) = (size.0 / views[0], size.1 / views[1]);
    let of_view = |index: u32| {
        let (x, y) = (index % views[0] * width, index / views[0] * height);
        let view = Rect::new(x, y, width, height)?;
        let [x, y, across, down] = [x, y, width, height].map(f64::from);
        let Area { left, top, right, bottom } = zone.area((width, height));
        let area = Area { left: left + x, top: top + y, right: right + x, bottom: bottom + y };
        let region = region_of(area, area, rules, size)?;
        let region = Region { rect: region.rect.intersection(view)?, ..region };
        // A shown zone must not show anything of the view beside it, also where it grows. A covered zone keeps its
        // shape beyond the edge.
        let area = if rules.shows_regions && views != [1, 1] {
            area.intersection(Area::from_corner(x, y, across, down).wider(-f64::from(rules.edge.grow.max(0))))
        } else {
            area
        };
        if area.is_empty() {
            return None;
        }
        let outline = Object { area, shape: rules.shape.clone().unwrap_or(Shape::Box) };
        let (origin, name) = (Origin::Zone, zone.name.clone());
        Some(FrameRegion { region, origin, track: None, detected: None, label: None, name, outline })
    };
    (0..views[0] * views[1]).filter_map(of_view).collect()
}

/// The region of the alpha channel as a mask, with every shape in the rules. Strength and cells follow the picture,
/// because several objects share the channel and their extent would change both from frame to frame. `None` if all
/// samples are 0.
pub fn alpha_region(mask: Mask, rules: &Rules, size: (u32, u32)) -> Option<FrameRegion> {
    let (area, picture) = (mask.object()?, mask.area());
    let region = region_of(area, picture, rules, size)?;
    let outline = Object { area, shape: Shape::Mask(mask) };
    let origin = Origin::Alpha;
    Some(FrameRegion { region, origin, track: None, detected: None, label: None, name: None, outline })
}

/// The region of an area, with `grow`. An object is not shrunk if nothing of it would be left to cover.
fn region_of(area: Area, object: Area, rules: &Rules, size: (u32, u32)) -> Option<Region> {
    let grown = Rect::covering(area.wider(rules.edge.grow.into()), size);
    let whole = || Rect::covering(area, size).filter(|_| !rules.shows_regions);
    Some(Region { rect: grown.or_else(whole)?, object })
}

#[cfg(test)]
mod tests {
    use super::super::detection::Labels;
    use super::super::hidden::Hidden;
    use super::super::rules::MAX_DETECTIONS;
    use super::super::rules::tests::default_rules;
    use super::super::tracks::Holding;
    use super::*;
    use crate::filter::weights::Edge;

    const SIZE: (u32, u32) = (640, 480);
    const FRAME: u64 = 40_000_000;
    const PASS: Option<FrameAction> = Some(FrameAction::Regions);

    fn face(x: f64, confidence: f32) -> Detection {
        let area = Area::from_corner(x, 100.0, 50.0, 100.0);
        let face = Detection::new(Some("face".to_owned()), area);
        Detection { confidence: Some(confidence), certain: Some(area), ..face }
    }

    fn entered(detections: &[Detection]) -> EnteredFrame {
        let looked = if detections.is_empty() { Looked::No } else { Looked::Yes };
        EnteredFrame {
            size: SIZE,
            views: [1, 1],
            is_field: false,
            times: FrameTimes::default(),
            found: Found { looked, detections: detections.to_vec(), beyond: 0 },
        }
    }

    /// Sets the time of a frame.
    fn at(frame: u64, entered: &mut EnteredFrame) -> &mut EnteredFrame {
        entered.times.running = Some(frame * FRAME);
        entered
    }

    /// Enters a frame and decides about it.
    fn resolve(tracker: &mut RegionTracker, rules: &Rules, frame: u64, detections: &[Detection]) -> FrameRegions {
        let mut entered = entered(detections);
        tracker.observe(rules, at(frame, &mut entered));
        tracker.resolve(rules, &entered)
    }

    fn regions(decision: FrameRegions) -> Vec<FrameRegion> {
        assert_eq!(decision.action, FrameAction::Regions);
        decision.regions
    }

    /// Each of more detections than are told apart is covered, in its frame and while it is held.
    #[test]
    fn too_many_detections_are_covered_together() {
        let cell = |i: usize, count: usize| [i % count, i / count].map(|n| n as f64);
        let spread: Vec<Detection> = (0..1000)
            .map(|i| {
                let [x, y] = cell(i, 40);
                let label = ["face", "plate", "cat"][i % 3].to_owned();
                let area = Area::from_corner(16.0 * x - 9.0, 20.0 * y - 9.0, 12.0 + y, 9.0 + x / 2.0);
                let confidence = (i % 7 > 0).then_some(0.5 + (i % 7) as f32 / 16.0);
                Detection { confidence, certain: Some(area), ..Detection::new(Some(label), area) }
            })
            .collect();
        let nested: Vec<Detection> = (0..400).map(|i| face(f64::from(i) / 4.0, 1.0)).collect();
        let edgeless = Detection { area: Area { left: f64::NAN, ..face(100.0, 0.5).area }, ..face(0.0, 0.5) };
        let edgeless = [vec![face(400.0, 0.9); MAX_DETECTIONS], vec![face(90.0, 0.5), edgeless]].concat();
        for (detections, shape, grow) in [&spread, &nested, &edgeless].into_iter().flat_map(|detections| {
            let shapes = [(Some(Shape::Box), 0), (Some(Shape::Box), -3), (Some(Shape::Ellipse), 0), (None, 0)];
            shapes.into_iter().map(move |(shape, grow)| (detections, shape, grow))
        }) {
            let what = format!("{} {shape:?} {grow}", detections.len());
            let edge = Edge { grow, ..Edge::default() };
            let rules = Rules { shape: shape.clone(), edge, expand: 0.0, on_missing: PASS, ..default_rules() };
            let mut tracker = RegionTracker::default();
            // A single detection is held for 0.3 s.
            for frame in 0..8 {
                let mut entered = entered(if frame == 0 { detections } else { &[] });
                rules.bound(&mut entered.found, SIZE);
                assert!(entered.found.detections.len() <= MAX_DETECTIONS + 64, "{what}");
                tracker.observe(&rules, at(frame, &mut entered));
                let found = tracker.resolve(&rules, &entered);
                let covered = Hidden::new(&rules, found.action, &found.regions, SIZE);
                let is_covered = |[x, y]: [f64; 2]| {
                    let [x, y] = [x.clamp(0.0, 639.0) as u32, y.clamp(0.0, 479.0) as u32];
                    let mut row = [255; 640];
                    if let Some(weights) = &covered.weights {
                        weights.row_from(0, y, &mut Vec::new(), &mut row);
                    }
                    let point = Rect::new(x, y, 1, 1).unwrap();
                    row[x as usize] == 255 && covered.regions.iter().any(|region| region.rect.contains(point))
                };
                for Area { left, top, right, bottom } in detections.iter().map(|detection| detection.area) {
                    let left = if left.is_nan() { 0.0 } else { left };
                    let [x, y] = [f64::midpoint(left, right), f64::midpoint(top, bottom)];
                    let inner = 0.5 - f64::from(grow);
                    let [left, top, right, bottom] = [left + inner, top + inner, right - inner, bottom - inner];
                    let mut points = vec![[left, y], [right, y], [x, top], [x, bottom]];
                    if shape != Some(Shape::Ellipse) {
                        points.extend([[left, top], [right, top], [left, bottom], [right, bottom]]);
                    }
                    let is_seen = |[x, y]: &[f64; 2]| *x >= 0.0 && *y >= 0.0 && *x < 640.0 && *y < 480.0;
                    for point in points.into_iter().filter(is_seen) {
                        assert!(is_covered(point), "{what}, frame {frame}: {point:?}");
                    }
                }
            }
        }
        // A box that stands for several detections is not shown.
        let rules = Rules { shows_regions: true, on_missing: PASS, ..default_rules() };
        let (mut tracker, mut entered) = (RegionTracker::default(), entered(&spread));
        rules.bound(&mut entered.found, SIZE);
        assert!(entered.found.detections.len() > MAX_DETECTIONS);
        tracker.observe(&rules, at(0, &mut entered));
        assert_eq!(tracker.resolve(&rules, &entered).regions.len(), MAX_DETECTIONS);
    }

    #[test]
    fn detections_are_filtered_expanded_and_held() {
        let rules = Rules { labels: &Labels::parse("face"), min_confidence: 0.5, on_missing: PASS, ..default_rules() };
        let mut tracker = RegionTracker::default();
        let mut rects = |frame, detections: &[Detection]| {
            let is_found = detections.first().is_some_and(|detection| rules.covers(detection));
            let evidence = if is_found { Evidence::Found } else { Evidence::Predicted };
            let regions = regions(resolve(&mut tracker, &rules, frame, detections));
            let is_expected = |region: &FrameRegion| {
                region.origin == Origin::Detection(evidence) && region.label.as_deref() == Some("face")
            };
            assert!(regions.iter().all(is_expected), "{regions:?}");
            regions.iter().map(|region| region.region.rect).collect::<Vec<_>>()
        };
        let cat = Detection { label: Some("cat".to_owned()), ..face(300.0, 1.0) };
        let expanded = Rect::new(90, 80, 70, 140).unwrap();
        assert_eq!(rects(0, &[face(100.0, 0.9), cat, face(400.0, 0.4)]), [expanded]);
        // A cover without a detection grows by 120 samples a second of 500 ms / (500 ms + time).
        let grown = |x, y, width, height| [Rect::new(x, y, width, height).unwrap()];
        assert_eq!(rects(1, &[face(300.0, 0.4)]), grown(85, 75, 80, 150), "what is not certain starts no track");
        assert_eq!(rects(7, &[]), grown(68, 58, 114, 184));
        assert_eq!(rects(8, &[]), [], "seen once, it is held for 300 ms");
        assert_eq!(rects(9, &[face(-100.0, 0.9)]), [], "outside of the frame");

        let rules = Rules { shows_regions: true, ..rules };
        let mut tracker = RegionTracker::default();
        let mut count =
            |frame, detections: &[Detection]| regions(resolve(&mut tracker, &rules, frame, detections)).len();
        assert_eq!(count(0, &[face(100.0, 0.9)]), 1);
        assert_eq!(count(1, &[]), 0, "what is held would be shown");
        assert_eq!(count(2, &[Detection { certain: None, ..face(0.0, 0.9) }]), 0);
    }

    #[test]
    fn objects_with_the_same_box_have_masks_of_their_own() {
        let rules = Rules { shape: None, labels: &Labels::parse("face,plate"), on_missing: PASS, ..default_rules() };
        let detection = |label: &str, sample: Option<u8>| {
            let face = face(100.0, 1.0);
            let mask = sample.and_then(|sample| Mask::new(1, 1, vec![sample], face.area));
            Detection { label: Some(label.to_owned()), mask, ..face }
        };
        let shapes = |detections: &[Detection]| {
            let mut tracker = RegionTracker::default();
            let regions = regions(resolve(&mut tracker, &rules, 0, detections));
            let shapes = regions.into_iter().map(|region| (region.label.unwrap(), region.outline.shape));
            shapes.collect::<Vec<_>>()
        };
        let expected =
            |label: &str, sample| (label.to_owned(), detection(label, sample).mask.map_or(Shape::Box, Shape::Mask));
        let two = |label, samples: [Option<u8>; 2]| [detection("face", samples[0]), detection(label, samples[1])];
        let [one, other] = [Some(200), Some(201)];
        assert_eq!(shapes(&two("plate", [one, other])), [expected("face", one), expected("plate", other)]);
        assert_eq!(shapes(&two("plate", [None, other])), [expected("face", None), expected("plate", other)]);
        assert_eq!(shapes(&two("car", [one, None])), [expected("face", one)], "not selected");
        let same = shapes(&two("face", [one, other]));
        assert!([one, other].iter().all(|sample| same.contains(&expected("face", *sample))), "{same:?}");
        let same = shapes(&two("face", [one, None]));
        assert!(same.contains(&expected("face", None)), "{same:?}");
    }

    /// The object may have left a mask of an earlier frame.
    #[test]
    fn an_old_mask_is_covered_with_the_box_and_not_shown() {
        let mut rules = Rules { shape: None, on_missing: PASS, ..default_rules() };
        let face = face(100.0, 1.0);
        let mask = Mask::new(1, 1, vec![200], face.area);
        let [fresh, old] =
            [false, true].map(|has_old_mask| Detection { mask: mask.clone(), has_old_mask, ..face.clone() });
        let shapes = |rules: &Rules, detections: &[Detection]| {
            let regions = regions(resolve(&mut RegionTracker::default(), rules, 0, detections));
            regions.into_iter().map(|region| (region.outline.area, region.outline.shape)).collect::<Vec<_>>()
        };
        let masked = (face.area, Shape::Mask(mask.clone().unwrap()));
        let boxed = (face.area.grown(face.area, rules.expand), Shape::Box);
        let one = std::slice::from_ref::<Detection>;
        assert_eq!(shapes(&rules, one(&fresh)), std::slice::from_ref(&masked));
        assert_eq!(shapes(&rules, one(&old)), [masked.clone(), boxed]);
        let both = shapes(&rules, &[fresh.clone(), old.clone()]);
        assert!(both.iter().any(|(_, shape)| *shape == Shape::Box), "either may be the object's: {both:?}");
        rules.shows_regions = true;
        assert_eq!(shapes(&rules, one(&fresh)), [masked]);
        assert_eq!(shapes(&rules, one(&old)), []);
        rules.shape = Some(Shape::Box);
        assert_eq!(shapes(&rules, one(&old)).len(), 1, "the mask is not used");
    }

    /// An object that a tracker numbers may be found without its label, or get one later.
    #[test]
    fn an_object_does_not_have_the_mask_of_another_in_its_box() {
        let rules = Rules { shape: None, on_missing: PASS, ..default_rules() };
        let face = face(100.0, 1.0);
        let [labelled, unlabelled] = [Some("face".to_owned()), None].map(|label| Detection {
            label,
            tracking_id: Some(2),
            mask: None,
            ..face.clone()
        });
        for (first, then) in [(&labelled, &unlabelled), (&unlabelled, &labelled)] {
            let mask = Mask::new(1, 1, vec![200], face.area);
            let other = Detection { label: first.label.clone(), tracking_id: None, mask, ..face.clone() };
            let mut tracker = RegionTracker::default();
            resolve(&mut tracker, &rules, 0, std::slice::from_ref(first));
            let regions = regions(resolve(&mut tracker, &rules, 1, &[then.clone(), other]));
            assert!(
                regions.iter().any(|region| region.outline.shape == Shape::Box),
                "{first:?}, {then:?}: {regions:?}"
            );
        }
    }

    /// Only `expand` follows the detection. Strength and cells follow the full box: what a detection of its jaw hides of a face
    /// would not be enough for the whole face, which is covered.
    #[test]
    fn full_box_grows_by_the_detection_and_is_hidden_as_a_whole() {
        let rules = Rules { on_missing: PASS, ..default_rules() };
        let mut tracker = RegionTracker::default();
        resolve(&mut tracker, &rules, 0, &[face(100.0, 1.0)]);
        let jaw = Detection { area: Area::from_corner(100.0, 180.0, 50.0, 20.0), ..face(0.0, 1.0) };
        let regions = regions(resolve(&mut tracker, &rules, 1, std::slice::from_ref(&jaw)));
        assert_eq!(regions.len(), 1);
        assert_eq!(regions[0].detected, Some(jaw.area));
        let Area { left, top, right, bottom } = regions[0].region.object;
        assert_eq!((left, right, bottom), (100.0, 150.0, 200.0));
        assert!(top < 101.0, "{top}");
        // The upper edge was at 100, and 1/101 of its distance has faded; the lower one grows by 4.
        let rect = regions[0].region.rect;
        assert_eq!((rect.x(), rect.right(), rect.y(), rect.bottom()), (90, 160, 96, 204));
    }

    /// An ellipse is also in the box that shrinks slowly: where only the jaw is found, the eyes stay covered.
    #[test]
    fn ellipses_shrink_slowly() {
        let rules = Rules { shape: Some(Shape::Ellipse), on_missing: PASS, ..default_rules() };
        let mut tracker = RegionTracker::default();
        let first = regions(resolve(&mut tracker, &rules, 0, &[face(100.0, 1.0)]));
        assert_eq!(first.len(), 1, "there is only one box");
        let jaw = Detection { area: Area::from_corner(100.0, 180.0, 50.0, 20.0), ..face(0.0, 1.0) };
        let both = regions(resolve(&mut tracker, &rules, 1, std::slice::from_ref(&jaw)));
        assert_eq!(both.len(), 2);
        assert!(both.iter().all(|region| region.outline.shape == Shape::Ellipse));
        assert!(both[1].outline.area.top < 100.0 && both[1].outline.area.bottom > 200.0, "{both:?}");
        assert_eq!(both[0].outline.area, jaw.area.grown(jaw.area, rules.expand));
    }

    /// The box that shrinks slowly is larger than an object of which shrinking leaves nothing: its own box is covered, too.
    #[test]
    fn negative_grow_does_not_uncover_an_object_that_was_larger() {
        let mut rules = Rules { expand: 0.0, on_missing: PASS, ..default_rules() };
        rules.edge.grow = -15;
        let jaw = Detection { area: Area::from_corner(100.0, 180.0, 50.0, 20.0), ..face(0.0, 1.0) };
        let own = Rect::new(100, 180, 50, 20).unwrap();
        for shape in [Some(Shape::Box), Some(Shape::Ellipse), None] {
            rules.shape = shape.clone();
            let mut tracker = RegionTracker::default();
            resolve(&mut tracker, &rules, 0, &[face(100.0, 1.0)]);
            let regions = regions(resolve(&mut tracker, &rules, 1, std::slice::from_ref(&jaw)));
            assert!(regions.iter().any(|region| region.region.rect == own), "{shape:?}: {regions:?}");
        }
    }

    /// The same where shrinking leaves something of it, but beyond the picture.
    #[test]
    fn negative_grow_does_not_uncover_the_rest_of_an_object_that_leaves() {
        let mut rules = Rules { expand: 0.0, on_missing: PASS, ..default_rules() };
        rules.edge.grow = -15;
        let [first, then] = [[-40.0, 100.0, 100.0, 100.0], [-40.0, 150.0, 50.0, 50.0]]
            .map(|[x, y, width, height]| Area::from_corner(x, y, width, height))
            .map(|area| Detection { area, certain: Some(area), ..face(0.0, 1.0) });
        let mut tracker = RegionTracker::default();
        resolve(&mut tracker, &rules, 0, &[first]);
        let regions = regions(resolve(&mut tracker, &rules, 1, &[then]));
        let own = Rect::new(0, 150, 10, 50).unwrap();
        assert!(regions.iter().any(|region| region.region.rect == own), "{regions:?}");
    }

    /// Which rows of a field a box means is not known, and neither is its ellipse.
    #[test]
    fn ellipses_in_fields_are_boxes_and_not_shown() {
        let mut rules = Rules { shape: Some(Shape::Ellipse), on_missing: PASS, ..default_rules() };
        for (is_field, shape, shown) in [(false, Shape::Ellipse, 1), (true, Shape::Box, 0)] {
            let mut entered = EnteredFrame { is_field, ..entered(&[face(100.0, 1.0)]) };
            rules.shows_regions = false;
            let mut tracker = RegionTracker::default();
            tracker.observe(&rules, at(0, &mut entered));
            let covered = regions(tracker.resolve(&rules, &entered));
            assert!(covered.len() == 1 && covered[0].outline.shape == shape, "{covered:?}");
            rules.shows_regions = true;
            tracker.observe(&rules, at(1, &mut entered));
            assert_eq!(regions(tracker.resolve(&rules, &entered)).len(), shown);
        }
    }

    /// `grow` makes no object of a box of no size, with which some detectors say that they found nothing.
    #[test]
    fn boxes_of_no_size_are_neither_covered_nor_shown() {
        let mut rules = Rules { on_missing: PASS, ..default_rules() };
        rules.edge.grow = 30;
        let area = Area::from_corner(100.0, 100.0, 0.0, 0.0);
        let nothing = Detection { area, certain: Some(area), ..face(0.0, 1.0) };
        for shows_regions in [false, true] {
            for shape in [Some(Shape::Box), Some(Shape::Ellipse), None] {
                let rules = Rules { shows_regions, shape: shape.clone(), ..rules.clone() };
                let mut tracker = RegionTracker::default();
                let regions = regions(resolve(&mut tracker, &rules, 0, std::slice::from_ref(&nothing)));
                assert_eq!(regions, [], "{shows_regions} {shape:?}");
            }
        }
    }

    /// An object of which shrinking would leave nothing is covered as a whole, and not shown.
    #[test]
    fn negative_grow_uncovers_nothing() {
        let mut rules = Rules { on_missing: PASS, ..default_rules() };
        rules.edge.grow = -40;
        let rect = |rules: &Rules| {
            let decision = resolve(&mut RegionTracker::default(), rules, 0, &[face(100.0, 1.0)]);
            regions(decision).first().map(|region| region.region.rect)
        };
        assert_eq!(rect(&rules), Rect::new(90, 80, 70, 140), "70 pixels wide with expand");
        rules.edge.grow = -30;
        assert_eq!(rect(&rules), Rect::new(120, 110, 10, 80));
        let outside = Rules { shows_regions: true, ..rules.clone() };
        assert_eq!(rect(&outside), Rect::new(120, 110, 10, 80));
        let outside = Rules { edge: Edge { grow: -40, ..rules.edge }, ..outside };
        assert_eq!(rect(&outside), None);
    }

    #[test]
    fn a_lost_object_covers_the_frame_with_on_lost_cover() {
        let pass = Rules { on_missing: PASS, ..default_rules() };
        let rules = Rules { holding: Holding { covers_lost: true, ..pass.holding }, ..pass.clone() };
        let mut tracker = RegionTracker::default();
        for frame in 0..20 {
            resolve(&mut tracker, &rules, frame, &[face(100.0, 1.0)]);
        }
        let held = (20..=20 + 73).map(|frame| resolve(&mut tracker, &rules, frame, &[])).last().unwrap();
        assert!(!held.is_lost && regions(held).len() == 1);
        let outside = Rules { shows_regions: true, ..rules.clone() };
        let lost = resolve(&mut tracker, &rules, 20 + 75, &[]);
        assert_eq!((lost.is_lost, lost.is_missing, lost.action), (true, true, FrameAction::Whole));
        let shown = resolve(&mut tracker, &outside, 20 + 76, &[]);
        assert!(!shown.is_lost, "nothing is shown anyway");
        assert_eq!(regions(shown), []);
        let released = resolve(&mut tracker, &pass, 20 + 77, &[]);
        assert!(!released.is_lost);
        assert_eq!(regions(released), []);
    }

    #[test]
    fn a_jump_of_timestamps_does_not_end_a_hold() {
        let rules = Rules { on_missing: PASS, ..default_rules() };
        let mut tracker = RegionTracker::default();
        for frame in 0..20 {
            resolve(&mut tracker, &rules, frame, &[face(100.0, 1.0)]);
        }
        for frame in 20..40 {
            let held = regions(resolve(&mut tracker, &rules, frame + 250, &[]));
            assert_eq!(held.len(), 1, "{frame}");
        }
    }

    #[test]
    fn objects_are_followed_through_frames_that_are_covered_as_a_whole_or_dropped() {
        let rules = Rules { on_missing: PASS, ..default_rules() };
        for other in [
            Rules { shows_regions: false, ..rules.clone() },
            Rules { shows_regions: true, ..rules.clone() },
            Rules { on_missing: Some(FrameAction::Drop), ..rules.clone() },
        ] {
            let mut tracker = RegionTracker::default();
            resolve(&mut tracker, &rules, 0, &[face(100.0, 1.0)]);
            resolve(&mut tracker, &other, 1, &[]);
            assert_eq!(regions(resolve(&mut tracker, &rules, 2, &[])).len(), 1, "{other:?}");
            resolve(&mut tracker, &other, 3, &[face(400.0, 1.0)]);
            assert_eq!(regions(resolve(&mut tracker, &rules, 4, &[])).len(), 2, "{other:?}");
        }
    }

    #[test]
    fn clear_forgets_objects_time_and_frames_that_wait_but_not_that_there_is_a_detector() {
        let mut rules = Rules { on_missing: PASS, ..default_rules() };
        let (mut tracker, mut next) = (RegionTracker::default(), entered(&[face(400.0, 1.0)]));
        resolve(&mut tracker, &rules, 0, &[face(1.0, 1.0)]);
        tracker.observe(&rules, at(1, &mut entered(&[])));
        tracker.clear();
        tracker.observe(&rules, at(2, &mut next));
        assert_eq!(next.times.now, 0);
        let origins = regions(tracker.resolve(&rules, &next)).iter().map(|region| region.origin).collect::<Vec<_>>();
        assert_eq!(origins, [Origin::Detection(Evidence::Found)]);
        rules.on_missing = None;
        assert_eq!(resolve(&mut tracker, &rules, 3, &[]).action, FrameAction::Whole);
    }
}
