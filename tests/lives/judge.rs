//! The judgement of a frame's bytes: where it is covered those of the cover, elsewhere those of the source. What the element
//! says that it covered is compared with the rule, and the bytes with what it says.

use std::collections::BTreeMap;
use std::ops::Deref;

use crate::common::borrowed::Borrowing;
use gst_video::{VideoInfo, VideoMeta};
use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::engine::{Engine, Hide};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::{PlaneLayout, SampleLayout};
use gstcudagaussblur::filter::mosaic::MosaicRegion;
use gstcudagaussblur::filter::plan::{AlphaMode, Options, Selection};
use gstcudagaussblur::filter::regions::{Area, Rect, outside};
use gstcudagaussblur::filter::weights::Edge;
use gstcudagaussblur::regions::strength;

use crate::common::pictures::{PADDING, Picture, pitch};
use crate::common::soft_oracle::{Form, Item, Nodes, byte_of, filled, values};
use crate::rule::{Alpha, Demand, Moment, Must};
use crate::settings::Settings;
use crate::steps::{Layout, MaskParam};

/// What is wrong: what kind of failure it is, by which shrinking recognises it, and the details.
#[derive(Debug, Clone)]
pub struct Failure {
    pub kind: String,
    pub detail: String,
}

pub fn fail<T>(kind: impl Into<String>, detail: impl Into<String>) -> Result<T, Failure> {
    Err(Failure { kind: kind.into(), detail: detail.into() })
}

/// What the element's message says about a frame.
#[derive(Debug)]
pub struct Said {
    pub timestamp: u64,
    pub covered: String,
    area: f64,
    cover: String,
    regions: Vec<Region>,
    is_missing: bool,
    is_lost: bool,
}

/// What it says about a region.
#[derive(Debug)]
struct Region {
    rect: Rect,
    origin: String,
    shape: String,
    has_track: bool,
    /// The detection in this frame.
    detected: Option<Area>,
    /// What strength and cells follow.
    object: Option<Area>,
}

impl Said {
    pub fn read(structure: &gst::StructureRef) -> Self {
        let region = |region: &gst::glib::SendValue| {
            let region = region.get::<gst::Structure>().unwrap();
            let [x, y, width, height] = ["x", "y", "width", "height"].map(|side| region.get::<u32>(side).unwrap());
            for optional in ["label", "name"] {
                region.get_optional::<String>(optional).expect("a text");
            }
            let track = region.get_optional::<u32>("track").expect("a number");
            assert_ne!(track, Some(0), "tracks are numbered from 1");
            let rect = Rect::new(x, y, width, height).expect("a region is not empty");
            let [origin, shape] = ["origin", "shape"].map(|field| region.get(field).unwrap());
            let [detected, object] = ["detected", "object"].map(|field| {
                let sides = region.get_optional::<gst::Array>(field).expect("an array")?;
                let [x, y, width, height] = [0, 1, 2, 3].map(|i| sides[i].get::<f64>().unwrap());
                Some(Area::from_corner(x, y, width, height))
            });
            Region { rect, origin, shape, has_track: track.is_some(), detected, object }
        };
        for time in ["stream-time", "running-time", "duration"] {
            structure.get::<u64>(time).unwrap();
        }
        structure.get::<String>("unchanged").unwrap();
        Self {
            timestamp: structure.get("timestamp").unwrap(),
            covered: structure.get("covered").unwrap(),
            area: structure.get("covered-area").unwrap(),
            cover: structure.get("cover").unwrap(),
            regions: structure.get::<gst::Array>("regions").unwrap().iter().map(region).collect(),
            is_missing: structure.get("missing").unwrap(),
            is_lost: structure.get("lost").unwrap(),
        }
    }

    /// Whether the whole frame is covered for a reason that lies in other frames.
    pub fn is_whole(&self, settings: &Settings, must: &Must) -> bool {
        must.may_be_whole && (self.is_lost || self.is_missing && settings.text("on-missing") == "auto")
    }
}

/// A frame on its way through the element.
pub struct Pending {
    pub number: u64,
    pub moment: Moment,
    pub demand: Demand,
    pub picture: Picture,
    pub said: Option<Said>,
    pub is_readable: bool,
    /// A second reference to the buffer or its memory.
    pub shared: Option<gst::Buffer>,
}

impl Deref for Pending {
    type Target = Moment;

    fn deref(&self) -> &Moment {
        &self.moment
    }
}

/// What it remembers: the areas of all frames so far, whose size a cover may follow, and the colours of fills.
#[derive(Default)]
pub struct Judge {
    engine: Option<Engine>,
    areas: Vec<Area>,
    fills: BTreeMap<String, Vec<u8>>,
}

/// The bytes of the planes in a buffer, with the pitches of a [`Picture`]; `None` if the buffer is too short for them.
pub fn read(info: &VideoInfo, layouts: &[PlaneLayout], buffer: &gst::BufferRef) -> Option<Picture> {
    let map = buffer.map_readable().ok()?;
    let meta = buffer.meta::<VideoMeta>();
    let (offsets, strides) =
        meta.as_ref().map_or((info.offset(), info.stride()), |meta| (meta.offset(), meta.stride()));
    let mut bytes = Vec::new();
    for (index, layout) in layouts.iter().enumerate() {
        let stride = usize::try_from(strides[index]).ok()?;
        let mut plane = vec![0; pitch(layout) * layout.height as usize - PADDING];
        for (y, row) in plane.chunks_mut(pitch(layout)).enumerate() {
            let source = map.get(offsets[index] + y * stride..)?.get(..layout.row_bytes())?;
            row[..layout.row_bytes()].copy_from_slice(source);
        }
        bytes.push(plane);
    }
    Some(Picture { planes: layouts.to_vec(), bytes })
}

/// The alpha channel of a picture, if it has one.
pub fn alpha_of(picture: &Picture) -> Option<Alpha> {
    let (plane, layout, channel) = picture.alpha_channel()?;
    let values = values(&layout, &picture.bytes[plane]);
    let upper_bits = |value: u16| match layout.sample_layout {
        // Two bits, of which the upper one is that of 128 and more.
        SampleLayout::Packed1010102 => value as u8 * 85,
        _ => (value >> (layout.depth - 8)) as u8,
    };
    let values = values.into_iter().skip(channel).step_by(layout.channels.into());
    Some(Alpha { size: [layout.width, layout.height], samples: values.map(upper_bits).collect() })
}

/// The blur that the properties ask for.
fn options(settings: &Settings) -> Options {
    let [primary, chroma, alpha] = ["luma", "chroma", "alpha"].map(|flag| settings.has("planes", flag));
    let params = BlurParams::new(settings.number("sigma"), settings.number("kernel-size")).unwrap();
    Options { params, planes: Selection { primary, chroma, alpha }, alpha: AlphaMode::Straight }
}

/// The boxes of a frame, in rows of the frame and in those of the buffer, which may be a field.
fn areas_of(moment: &Moment) -> impl Iterator<Item = [Area; 2]> {
    moment.frame.boxes.iter().map(|roi| {
        let [x, y] = [roi.rect[0], roi.rect[1]].map(|corner| f64::from(corner.cast_signed()));
        let area = Area::from_corner(x, y, roi.rect[2].into(), roi.rect[3].into());
        let of_field = Area { top: area.top / 2.0, bottom: area.bottom / 2.0, ..area };
        [area, if moment.is_field() { of_field } else { area }]
    })
}

impl Pending {
    fn whole(&self) -> Rect {
        Rect::new(0, 0, self.size[0], self.size[1]).unwrap()
    }

    fn whole_area(&self) -> Area {
        Area::from_corner(0.0, 0.0, self.size[0].into(), self.size[1].into())
    }

    fn is_outside(&self) -> bool {
        self.settings.text("region-mode") == "outside"
    }

    fn zones(&self) -> Vec<Area> {
        let [width, height] = self.size.map(f64::from);
        let zones = self.settings.zones().into_iter();
        zones.map(|z| Area::from_corner(z.x * width, z.y * height, z.width * width, z.height * height)).collect()
    }

    /// Where the message may say that the alpha channel is: the box around what of it is not 0.
    fn alpha_rect(&self) -> Option<Rect> {
        let Alpha { size: [width, _], samples } = self.alpha.as_ref()?;
        let places = (0..).zip(samples).filter(|(_, sample)| **sample > 0);
        let (columns, rows): (Vec<u32>, Vec<u32>) = places.map(|(i, _): (u32, _)| (i % width, i / width)).unzip();
        let [x, y] = [columns.iter().min()?, rows.iter().min()?];
        let [width, height] = [columns.iter().max()? + 1 - x, rows.iter().max()? + 1 - y];
        let [x, y, width, height] = [*x, *y, width, height].map(f64::from);
        self.rect(Area::from_corner(x, y, width, height))
    }

    /// Where the message says that an area is: with `grow`, unless nothing would be left.
    fn rect(&self, area: Area) -> Option<Rect> {
        let grown = Rect::covering(area.wider(self.edge().grow.into()), self.size.into());
        grown.or_else(|| Rect::covering(area, self.size.into()))
    }

    /// The only area that is at this rectangle.
    fn only(&self, rect: Rect, areas: impl IntoIterator<Item = Area>) -> Option<Area> {
        let mut areas = areas.into_iter().filter(|area| self.rect(*area) == Some(rect));
        let one = areas.next()?;
        areas.all(|other| other == one).then_some(one)
    }

    fn edge(&self) -> Edge {
        // The property is the width.
        Edge { grow: self.settings.number("grow"), feather: self.settings.number::<u32>("feather").div_ceil(2) }
    }
}

impl Judge {
    fn blurred(&mut self, options: Options, picture: &Picture) -> Picture {
        let mut out = picture.clone();
        if !options.is_passthrough(&picture.planes) {
            let engine = self.engine.get_or_insert_with(|| Engine::with_cpu(CpuEngine::new()));
            engine.blur(options, &picture.frame(), &mut out.frame_mut()).unwrap();
        }
        out
    }

    /// Notes the areas of a frame, whether they count or not.
    pub fn note(&mut self, pending: &Pending) {
        let boxes = areas_of(pending).flat_map(|[area, field]| [area, field, area.union(field)]);
        self.areas.extend(boxes.chain(pending.zones()).chain([pending.whole_area()]));
    }

    /// Judges a frame that was pushed. Returns what was covered, for the totals.
    pub fn check(&mut self, pending: &Pending, got: &Picture) -> Result<String, Failure> {
        let (settings, picture, mode) = (&pending.settings, &pending.picture, pending.settings.text("region-mode"));
        let size @ (width, height) = pending.size.into();
        let Demand::Cover(must) = &pending.demand else {
            let is_straight = settings.text("alpha") == "straight";
            let alpha = if is_straight { AlphaMode::Straight } else { AlphaMode::Premultiply };
            let options = Options { alpha, ..options(settings) };
            let (blurred, all) = (self.blurred(options, picture), Nodes::of_samples_of_luma(size, |_, _| 255));
            compare(pending, &[all], Some(&[blurred]), false, got)?;
            return Ok(if options.is_passthrough(&picture.planes) { "passed" } else { "frame" }.to_owned());
        };
        check_blindly(pending, must, got)?;
        let Some(said) = &pending.said else { return Ok("unsaid".to_owned()) };
        let regions: Vec<Rect> = said.regions.iter().map(|region| region.rect).collect();
        let rects = match said.covered.as_str() {
            "nothing" => Vec::new(),
            // In some of the channels.
            "outside" | "partly" if mode == "outside" => outside(&regions, width, height),
            "regions" => regions.clone(),
            "partly" if !regions.is_empty() => regions.clone(),
            "frame" | "partly" => vec![pending.whole()],
            other => return fail("a frame was pushed of which the message says otherwise", other),
        };
        if must.is_identity && said.covered != "nothing" {
            return fail("a blur that changes nothing is reported as a cover", format!("{said:?}"));
        }
        check_message(pending, must, said)?;
        let has_alpha = said.regions.iter().any(|region| region.origin == "alpha");
        let is_soft = (settings.is_soft() || has_alpha) && !regions.is_empty() && said.covered != "nothing";
        let is_in = |x, y| rects.iter().any(|r| (r.x()..r.right()).contains(&x) && (r.y()..r.bottom()).contains(&y));
        let items = if is_soft { items(pending, said) } else { Vec::new() };
        let (weights, is_exact) = match is_soft {
            true => bounds(pending, must, said, &items),
            false => (vec![Nodes::of_samples_of_luma(size, |x, y| if is_in(x, y) { 255 } else { 0 })], true),
        };
        let mut covered = 0;
        for (i, must) in (0..).zip(&must.mask) {
            let (x, y) = (i % width, i / width);
            covered += u32::from(is_in(x, y));
            // More than the regions is covered around soft ones.
            let may_be = is_soft && mode == "outside" || is_in(x, y);
            if *must && (weights[0].at(x, y) < 255 || !may_be) {
                let detail = format!("luma sample ({x}, {y}) must be covered wholly, {said:?}");
                return fail(format!("uncovered by region-mode={mode}"), format!("frame {}: {detail}", pending.number));
            }
        }
        let share = f64::from(covered) / (f64::from(width) * f64::from(height));
        let is_area = match is_soft {
            true => (0.0..=1.0).contains(&said.area),
            false => (said.area - share).abs() <= 1e-9 || said.covered == "partly",
        };
        if !is_area {
            return fail("covered-area", format!("{} instead of {share}", said.area));
        }
        let covers = if is_soft {
            self.covers(pending, said, &regions, Some(&items), &weights[0], got)
        } else {
            self.covers(pending, said, &rects, None, &weights[0], got)
        };
        compare(pending, &weights, covers.as_deref(), is_soft, got)?;
        let shape = if has_alpha { "alpha".to_owned() } else { format!("shape={}", settings.text("shape")) };
        let exactly = if is_exact && covers.is_some() { " exactly" } else { "" };
        Ok(if is_soft { format!("{shape} {}{exactly}", said.covered) } else { said.covered.clone() })
    }

    /// What may hide the samples that are covered, before a soft cover is mixed; `None` if it is not known. Soft covers have `items`.
    fn covers(
        &mut self,
        pending: &Pending,
        said: &Said,
        rects: &[Rect],
        items: Option<&[Option<Item>]>,
        lowest: &Nodes,
        got: &Picture,
    ) -> Option<Vec<Picture>> {
        let (settings, picture, is_outside) = (&pending.settings, &pending.picture, pending.is_outside());
        let objects = objects(pending, said, rects);
        match settings.text("cover") {
            "fill" => {
                // The colour is that of any pixel that is covered wholly.
                let mut out = picture.clone();
                for (plane, layout) in picture.planes.iter().enumerate() {
                    // Without a colorimetry in the caps GStreamer takes that of high definition for tall pictures.
                    let (format, is_tall) = (pending.info.format(), pending.info.height() > 576);
                    let key = format!("{format} {plane} {is_tall} {}", settings.text("fill-color"));
                    let (unit, of_pixel) = (layout.pixel_bytes(), layout.row_samples() / layout.row_pixels());
                    let weights = lowest.of_samples(&picture.planes, plane);
                    let first = weights.chunks(of_pixel).position(|pixel| pixel.iter().all(|weight| *weight == 255));
                    if let Some(pixel) = first {
                        let start = byte_of(layout, pixel * of_pixel);
                        self.fills.entry(key.clone()).or_insert(got.bytes[plane][start..start + unit].to_vec());
                    }
                    let colour = self.fills.get(&key)?;
                    for row in out.bytes[plane].chunks_mut(pitch(layout)) {
                        let pixels = row[..layout.row_bytes()].chunks_mut(unit);
                        pixels.for_each(|pixel| pixel.copy_from_slice(&colour[..pixel.len()]));
                    }
                }
                Some(vec![out])
            }
            "mosaic" => {
                let region = |rect: Rect, area: &Area| MosaicRegion::new(rect, *area, settings.number("cells"));
                let objects = objects?;
                let area: u64 = rects.iter().map(|rect| rect.area()).sum();
                if items.is_none() && area > 8 * pending.whole().area() {
                    // One mosaic covers them all.
                    return None;
                }
                let hidden = |regions: Vec<MosaicRegion>| {
                    let mut out = picture.clone();
                    out.hide(Hide::Mosaic(regions)).unwrap();
                    out
                };
                Some(match items {
                    Some(_) => objects.iter().map(|area| hidden(vec![region(pending.whole(), area)])).collect(),
                    None => vec![hidden(rects.iter().zip(&objects).map(|(rect, area)| region(*rect, area)).collect())],
                })
            }
            _ => {
                let (plain, strength) = (options(settings).params, settings.number("strength"));
                let sigma_of = |area: &Area| strength::sigma(plain.sigma(), strength, area.short_side());
                let mut sigmas: Vec<f64> = match &objects {
                    _ if strength == 0.0 || is_outside && (items.is_some() || said.covered == "outside") => Vec::new(),
                    Some(objects) => objects.iter().map(sigma_of).collect(),
                    None if items.is_some() => return None,
                    None => {
                        let objects = said.regions.iter().filter_map(|region| region.object.as_ref());
                        self.areas.iter().chain(objects).map(sigma_of).collect()
                    }
                };
                sigmas.sort_by(f64::total_cmp);
                sigmas.dedup();
                let source = match items {
                    Some(items) if is_outside && said.regions.iter().any(|region| region.shape != "box") => {
                        // Its samples may be beyond their depth.
                        if pending.frame.layout == Layout::Overlapping {
                            return None;
                        }
                        let items: Vec<Item> = items.iter().cloned().collect::<Option<_>>()?;
                        filled(picture, &Nodes::excluded(pending.size.into(), &items, plain.sigma()))
                    }
                    _ => picture.clone(),
                };
                let has_plain = strength == 0.0 || is_outside;
                let params = sigmas.iter().map(|sigma| BlurParams::new(*sigma, 0).unwrap());
                let params = has_plain.then_some(plain).into_iter().chain(params);
                let blurs: Vec<Picture> = params.map(|params| self.cover_blur(pending, params, &source)).collect();
                match objects.filter(|_| !has_plain && items.is_none()) {
                    Some(objects) => {
                        let regions = rects.iter().zip(&objects).map(|(rect, area)| (*rect, sigma_of(area)));
                        let blur_of = |sigma: f64| sigmas.iter().position(|of| *of == sigma).map(|i| &blurs[i]);
                        Some(vec![picture.blurred_in(&regions.collect::<Vec<_>>(), blur_of)])
                    }
                    None => Some(blurs),
                }
            }
        }
    }

    /// What hides a picture: the blur of `source`, which may lack objects.
    fn cover_blur(&mut self, pending: &Pending, params: BlurParams, source: &Picture) -> Picture {
        let options = Options { params, ..options(&pending.settings) };
        // What no blur can change keeps its padding bits and the luma beyond an odd width too.
        if options.changed(&source.planes) == Selection::NONE {
            pending.picture.clone()
        } else {
            self.blurred(options, source)
        }
    }
}

/// The object of each rectangle, if it is known: strength and cells follow its full box, which depends on other frames.
fn objects(pending: &Pending, said: &Said, rects: &[Rect]) -> Option<Vec<Area>> {
    let object = |(place, rect): (usize, &Rect)| {
        let region = said.regions.get(place).filter(|region| region.origin != "alpha" && !pending.is_outside());
        // Strength and cells of the alpha channel follow the picture.
        let Some(region) = region else { return Some(pending.whole_area()) };
        match region.origin.as_str() {
            "zone" => pending.only(*rect, pending.zones()),
            _ => region.object,
        }
    };
    rects.iter().enumerate().map(object).collect()
}

/// Compares every sample with the mix of the source and a cover, whose weight is between the first bound and the last; where nothing
/// is mixed, its bytes.
fn compare(
    pending: &Pending,
    bounds: &[Nodes],
    covers: Option<&[Picture]>,
    is_soft: bool,
    got: &Picture,
) -> Result<(), Failure> {
    let (settings, source) = (&pending.settings, &pending.picture);
    let is_blur = settings.text("cover") == "blur";
    let selected = if is_blur { options(settings).planes } else { Selection::ALL };
    for (plane, layout) in source.planes.iter().enumerate() {
        let weights: Vec<_> = bounds.iter().map(|nodes| nodes.of_samples(&source.planes, plane)).collect();
        let values_of = |picture: &Picture| values(layout, &picture.bytes[plane]);
        let (before, after) = (values_of(source), values_of(got));
        let covers: Option<Vec<_>> = covers.map(|all| all.iter().map(|cover| (cover, values_of(cover))).collect());
        for (i, value) in after.into_iter().enumerate() {
            let [low, high] = [weights[0][i], weights[weights.len() - 1][i]];
            let bytes = byte_of(layout, i)..byte_of(layout, i) + layout.sample_bytes();
            let is_same = |other: &Picture, of_other: u16| {
                // Other channels of a packed word may have changed.
                let is_packed = layout.sample_layout == SampleLayout::Packed1010102;
                value == of_other && (is_packed || got.bytes[plane][bytes.clone()] == other.bytes[plane][bytes.clone()])
            };
            // What is beyond the depth is no value.
            let depth = if layout.sample_layout == SampleLayout::LsbAligned { layout.depth } else { 16 };
            let mixed_with = u64::from(before[i] & ((1_u32 << depth) - 1) as u16);
            let is_cover = |(cover, of_cover): &(&Picture, Vec<u16>)| match is_soft {
                false => is_same(cover, of_cover[i]),
                true => {
                    let [one, other] =
                        [low, high].map(|w| ((w * u64::from(of_cover[i]) + (255 - w) * mixed_with + 127) / 255) as u16);
                    (one.min(other)..=one.max(other)).contains(&value)
                }
            };
            let is_selected = selected.contains(layout.roles[i % usize::from(layout.channels)]);
            let is_right = match high == 0 || is_soft && !is_selected {
                true => is_same(source, before[i]),
                false => {
                    low == 0 && value == before[i] || covers.as_ref().is_none_or(|covers| covers.iter().any(is_cover))
                }
            };
            if !is_right {
                let candidates: Vec<u16> = covers.iter().flatten().map(|(_, of_cover)| of_cover[i]).collect();
                let kind = match &pending.demand {
                    Demand::Cover(_) if is_soft => format!("wrong samples of a soft cover={}", settings.text("cover")),
                    Demand::Cover(_) => format!("wrong bytes of cover={}", settings.text("cover")),
                    _ => "wrong bytes of a frame".to_owned(),
                };
                let (number, x, y) = (pending.number, i % layout.row_samples(), i / layout.row_samples());
                let detail = format!(
                    "frame {number}: plane {plane} row {y} sample {x} is {value}, in the source {}, in the cover \
                     {candidates:?} with weights {low} to {high}; {:?}",
                    before[i], pending.said
                );
                return fail(kind, detail);
            }
        }
    }
    Ok(())
}

/// Whether what the message says of each region fits the settings.
fn check_message(pending: &Pending, must: &Must, said: &Said) -> Result<(), Failure> {
    let (settings, is_outside) = (&pending.settings, pending.is_outside());
    let shape = settings.text("shape");
    let is_region_right = |region: &Region| {
        let (is_zone, is_alpha, is_found) =
            (region.origin == "zone", region.origin == "alpha", region.origin == "found");
        let is_shaped = match region.shape.as_str() {
            // What has no mask, and what is not found in this frame.
            "box" if is_alpha => false,
            "box" => shape != "ellipse" || !is_found && !is_zone || pending.is_field(),
            "mask" => shape == "mask" && is_found || is_alpha,
            other => other == shape && !is_alpha,
        };
        let is_held = ["predicted", "bridged", "anticipated"].contains(&region.origin.as_str()) && !is_outside;
        let has_track = !is_zone && !is_alpha && !is_outside;
        // A cover is at least as strong as the detection asks for.
        let is_strong = match (region.detected, region.object) {
            (Some(detected), Some(object)) => object.short_side() >= detected.short_side(),
            _ => true,
        };
        let is_detected =
            |detected| areas_of(pending).any(|[area, field]| [area, area.union(field)].contains(&detected));
        is_shaped
            && (is_zone || is_alpha || is_found || is_held)
            && [region.has_track, region.object.is_some()] == [has_track; 2]
            && is_strong
            && region.detected.is_some() == is_found
            && region.detected.is_none_or(|detected| is_outside || is_detected(detected))
    };
    let alphas = said.regions.iter().filter(|region| region.origin == "alpha").map(|region| region.rect);
    let rect = pending.alpha_rect().filter(|_| must.has_alpha && !said.is_whole(settings, must));
    let is_alpha_right = match alphas.collect::<Vec<Rect>>()[..] {
        // What shrinking leaves nothing of is not shown.
        [] => rect.is_none() || is_outside && pending.edge().grow < 0,
        [one] => Some(one) == rect,
        _ => false,
    };
    match said.regions.iter().all(is_region_right) && is_alpha_right && said.cover == settings.text("cover") {
        true => Ok(()),
        false => fail("the message about a frame", format!("shape={shape} outside={is_outside} {said:?}")),
    }
}

/// The objects of the regions of a soft cover, as far as the message and the metas tell.
fn items(pending: &Pending, said: &Said) -> Vec<Option<Item>> {
    let (settings, Edge { grow, feather }) = (&pending.settings, pending.edge());
    let rois = pending.frame.boxes.iter().zip(areas_of(pending)).filter(|_| !pending.is_field());
    let rois: Vec<_> = rois.map(|(roi, [area, _])| (roi, area)).collect();
    let item = |Region { rect, origin, shape, .. }: &Region| {
        let form = if shape == "ellipse" { Form::Ellipse } else { Form::Box };
        match (origin.as_str(), shape.as_str()) {
            ("zone", _) => Some(Item { area: pending.only(*rect, pending.zones())?, form }),
            ("alpha", _) => Some(Item { area: pending.whole_area(), form: pending.alpha.clone()?.form() }),
            (_, "mask") => {
                let masks = rois.iter().filter(|(_, area)| pending.rect(*area) == Some(*rect));
                let masks =
                    masks.filter_map(|(roi, area)| Some((*area, roi.mask.as_ref()?, roi.mask.as_ref()?.form()?)));
                let masks: Vec<(Area, &MaskParam, Form)> = masks.collect();
                let [(area, mask, form), others @ ..] = &masks[..] else { return None };
                let is_same = others.iter().all(|(other, of_other, _)| (other, of_other) == (area, mask));
                is_same.then(|| Item { area: *area, form: form.clone() })
            }
            _ if pending.is_outside() => {
                let areas = rois.iter().map(|(_, area)| area.grown(*area, settings.number("expand")));
                Some(Item { area: pending.only(*rect, areas)?, form })
            }
            // Of what is covered only whole samples count. Where it is cut off it is not known.
            _ => {
                let [width, height] = pending.size;
                let is_cut = rect.x() == 0 || rect.y() == 0 || rect.right() == width || rect.bottom() == height;
                let [x, y, w, h] = [rect.x(), rect.y(), rect.width(), rect.height()].map(f64::from);
                let area = Area::from_corner(x, y, w, h).wider((-grow).into());
                let is_plain = grow == 0 && shape == "box";
                (is_plain || grow >= 0 && !is_cut && !area.is_empty()).then_some(Item { area, form })
            }
        }
    };
    // Whether shrinking leaves anything of a covered object that is cut off by an edge of the picture is not known.
    let is_cut =
        |area: Area| grow < 0 && !pending.is_outside() && area.union(pending.whole_area()) != pending.whole_area();
    // The oracle takes long with wide windows.
    let is_wide = grow.unsigned_abs().max(feather) > 8;
    let known = |region: &Region| item(region).filter(|item| !is_cut(item.area));
    said.regions.iter().map(|region| if is_wide { None } else { known(region) }).collect()
}

/// The smallest and the largest weight of each luma sample; whether they are the same because all is known.
fn bounds(pending: &Pending, must: &Must, said: &Said, items: &[Option<Item>]) -> (Vec<Nodes>, bool) {
    let (size, edge, is_outside) = (pending.size.into(), pending.edge(), pending.is_outside());
    let known: Vec<Item> = items.iter().flatten().cloned().collect();
    let is_exact = known.len() == items.len();
    // What is not there has no edge, which would take long.
    let known_edge = if known.is_empty() { Edge::default() } else { edge };
    let of_known = if is_outside {
        Nodes::outside(size, &known, known_edge)
    } else {
        // One of which shrinking would leave nothing is not shrunk.
        let is_left = |item: &Item| edge.grow >= 0 || is_left(size, item, edge);
        let (shrunk, whole): (Vec<Item>, Vec<Item>) = known.into_iter().partition(is_left);
        let whole = Nodes::inside(size, &whole, Edge { grow: 0, ..known_edge });
        Nodes::inside(size, &shrunk, known_edge).united(whole)
    };
    let weight = |x, y| of_known.at(x, y) as u8;
    let cells = |samples: u32| samples.next_multiple_of(of_known.cell());
    // One that is not shrunk reaches further than its region, and what is beside it does not shrink on that side.
    let shrunk = edge.grow.min(0).unsigned_abs();
    let reach = i64::from(2 * shrunk + cells(4 * of_known.cell()) + 2 * cells(edge.feather));
    let unknown: Vec<&Region> =
        said.regions.iter().zip(items).filter(|(_, item)| item.is_none()).map(|(region, _)| region).collect();
    let is_unknown = |x: u32, y: u32| {
        let is_near =
            |low: u32, high: u32, at: u32| (i64::from(low) - reach..i64::from(high) + reach).contains(&i64::from(at));
        let mut rects = unknown.iter().map(|region| region.rect);
        rects.any(|rect| is_near(rect.x(), rect.right(), x) && is_near(rect.y(), rect.bottom(), y))
    };
    let has_mask = unknown.iter().any(|region| region.shape == "mask");
    let is_must = |x: u32, y: u32| must.mask[(y * pending.size[0] + x) as usize];
    let lowest = Nodes::of_samples_of_luma(size, |x, y| match is_exact || !is_outside || !is_unknown(x, y) {
        _ if !is_exact && is_must(x, y) => 255,
        true => weight(x, y),
        false => 0,
    });
    let highest = Nodes::of_samples_of_luma(size, |x, y| {
        let is_more = !is_outside && (is_unknown(x, y) || has_mask);
        if !is_exact && (is_more || is_must(x, y)) { 255 } else { weight(x, y) }
    });
    (vec![lowest, highest], is_exact)
}

/// Whether shrinking leaves anything of an object that is covered.
fn is_left(size: (u32, u32), item: &Item, edge: Edge) -> bool {
    let cell = Nodes::inside(size, &[], edge).cell() as i32;
    let shrunk = Nodes::inside(size, std::slice::from_ref(item), Edge { grow: edge.grow - cell, feather: 0 });
    !item.area.wider(edge.grow.into()).is_empty() && shrunk.nodes().2.contains(&255)
}

/// Without what the element says: the pixels of the first plane that must be covered are not those of the source, beyond chance.
fn check_blindly(pending: &Pending, must: &Must, got: &Picture) -> Result<(), Failure> {
    let (settings, layout) = (&pending.settings, &got.planes[0]);
    let (unit, width) = (layout.pixel_bytes(), layout.width as usize);
    let Options { params, planes, .. } = options(settings);
    let is_blur = settings.text("cover") == "blur";
    // In a field σ is halved, and a picture of one column has no neighbours along rows.
    let is_weak = is_blur && (params.sigma() < 1.0 || params.kernel_size() > 0);
    let is_selected = !is_blur || layout.roles().iter().all(|role| planes.contains(*role));
    // Alpha that overlaps this plane makes it flat, and flat areas stay as they are.
    let is_flat = pending.frame.layout == Layout::Overlapping && pending.frame.alpha.is_some();
    if must.is_identity || is_weak || is_flat || !is_selected || layout.row_pixels() != width {
        return Ok(());
    }
    let pixels = must.mask.iter().enumerate().filter(|(_, must)| **must);
    let pixels: Vec<usize> = pixels.map(|(i, _)| i / width * pitch(layout) + i % width * unit).collect();
    let is_same = |at: &&usize| got.bytes[0][**at..**at + unit] == pending.picture.bytes[0][**at..**at + unit];
    let (same, all) = (pixels.iter().filter(is_same).count(), pixels.len());
    if all >= 24 && same > all / 3 {
        let kind = format!("shown by region-mode={}", settings.text("region-mode"));
        return fail(kind, format!("frame {}: {same} of {all} pixels are the source's", pending.number));
    }
    Ok(())
}
