//! The judgement of a frame's bytes: where it is covered those of the cover, elsewhere those of the source. What the element
//! says that it covered is compared with the rule, and the bytes with what it says.

use std::collections::BTreeMap;

use gst_video::{VideoInfo, VideoMeta};
use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::engine::Hide;
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::{PlaneLayout, Role, SampleLayout};
use gstcudagaussblur::filter::mosaic::MosaicRegion;
use gstcudagaussblur::filter::plan::{AlphaMode, Options, Selection};
use gstcudagaussblur::filter::regions::{Area, Rect, outside, strength_sigma};
use gstcudagaussblur::filter::weights::Edge;

use crate::common::pictures::{PADDING, Picture, pitch, strongest};
use crate::common::soft_oracle::{Form, Item, Nodes, byte_of, filled, store, values};
use crate::rule::{Alpha, Must};
use crate::settings::Settings;
use crate::steps::{Caps, Frame, Layout, MaskParam, Samples};

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
#[derive(Debug, Clone)]
pub struct Said {
    pub timestamp: u64,
    pub covered: String,
    area: f64,
    cover: String,
    regions: Vec<Rect>,
    /// Of each region.
    origins: Vec<String>,
    shapes: Vec<String>,
    has_track: Vec<bool>,
    is_missing: bool,
    is_lost: bool,
}

impl Said {
    pub fn read(structure: &gst::StructureRef) -> Self {
        let rect = |region: &gst::glib::SendValue| {
            let region = region.get::<gst::Structure>().unwrap();
            let [x, y, width, height] = ["x", "y", "width", "height"].map(|side| region.get::<u32>(side).unwrap());
            Rect::new(x, y, width, height).expect("a region is not empty")
        };
        let regions = structure.get::<gst::Array>("regions").unwrap();
        let texts = |field: &str| {
            let text = |region: &gst::glib::SendValue| {
                let region = region.get::<gst::Structure>().unwrap();
                for optional in ["label", "name"] {
                    region.get_optional::<String>(optional).expect("a text");
                }
                region.get(field).unwrap()
            };
            regions.as_slice().iter().map(text).collect()
        };
        let has_track = |region: &gst::glib::SendValue| {
            let track = region.get::<gst::Structure>().unwrap().get_optional::<u32>("track").expect("a number");
            track.inspect(|track| assert!(*track > 0, "tracks are numbered from 1")).is_some()
        };
        for time in ["stream-time", "running-time", "duration"] {
            structure.get::<u64>(time).unwrap();
        }
        structure.get::<String>("unchanged").unwrap();
        Self {
            timestamp: structure.get("timestamp").unwrap(),
            is_missing: structure.get("missing").unwrap(),
            is_lost: structure.get("lost").unwrap(),
            cover: structure.get("cover").unwrap(),
            origins: texts("origin"),
            shapes: texts("shape"),
            has_track: regions.as_slice().iter().map(has_track).collect(),
            covered: structure.get("covered").unwrap(),
            area: structure.get("covered-area").unwrap(),
            regions: regions.as_slice().iter().map(rect).collect(),
        }
    }
}

impl Said {
    /// Whether the whole frame is covered for a reason that lies in other frames.
    pub fn is_whole(&self, settings: &Settings, must: &Must) -> bool {
        must.may_be_whole && (self.is_lost || self.is_missing && settings.text("on-missing") == "auto")
    }
}

/// What becomes of a frame.
pub enum Fate {
    /// The whole frame is blurred.
    Blur,
    Cover(Must),
    Drop,
    Error,
    /// An error, unless the whole frame is covered.
    NoAlpha(Must),
}

/// A frame on its way through the element.
pub struct Pending {
    pub number: u64,
    pub caps: Caps,
    pub info: VideoInfo,
    pub settings: Settings,
    pub frame: Frame,
    pub picture: Picture,
    pub fate: Fate,
    pub said: Option<Said>,
    pub is_readable: bool,
    /// A second reference to the buffer or its memory.
    pub shared: Option<gst::Buffer>,
}

/// The areas whose size a cover may follow, of all frames so far, and whether `expand` grows them.
#[derive(Default)]
pub struct Judge {
    engine: Option<Engine>,
    areas: Vec<(Area, bool)>,
    fills: BTreeMap<String, Vec<u8>>,
}

/// The bytes of the planes in a buffer, with the pitches of a [`Picture`]; `None` if the buffer is too short for them.
pub fn read(info: &VideoInfo, layouts: &[PlaneLayout], buffer: &gst::BufferRef) -> Option<Picture> {
    let map = buffer.map_readable().ok()?;
    let meta = buffer.meta::<VideoMeta>();
    let (offsets, strides) = match &meta {
        Some(meta) => (meta.offset(), meta.stride()),
        None => (info.offset(), info.stride()),
    };
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

/// The bytes of samples: the plane, and the place in it.
fn bytes_of(picture: &Picture) -> impl Iterator<Item = (usize, usize)> + '_ {
    picture.planes.iter().enumerate().flat_map(|(plane, layout)| {
        let rows = 0..layout.height as usize;
        rows.flat_map(move |y| (0..layout.row_bytes()).map(move |x| (plane, y * pitch(layout) + x)))
    })
}

/// The alpha channel of a picture, if it has one.
pub fn alpha_of(picture: &Picture) -> Option<Alpha> {
    let (plane, layout, channel) = alpha_channel(&picture.planes)?;
    let values = values(layout, &picture.bytes[plane]);
    let upper_bits = |value: u16| match layout.sample_layout {
        // Two bits, of which the upper one is that of 128 and more.
        SampleLayout::Packed1010102 => value as u8 * 85,
        _ => (value >> (layout.depth - 8)) as u8,
    };
    let values = values.into_iter().skip(channel).step_by(layout.channels.into());
    Some(Alpha { size: [layout.width, layout.height], samples: values.map(upper_bits).collect() })
}

/// Writes the upper bits of the alpha channel, if there is one.
pub fn set_alpha(picture: &mut Picture, samples: Samples) {
    let Some((plane, layout, channel)) = alpha_channel(&picture.planes) else { return };
    let (layout, before) = (*layout, values(layout, &picture.bytes[plane]));
    for (i, before) in before.iter().enumerate().skip(channel).step_by(layout.channels.into()) {
        let pixel = (i / usize::from(layout.channels)) as u32;
        let upper: u16 = samples.at([layout.width, layout.height], pixel % layout.width, pixel / layout.width).into();
        let value = match layout.sample_layout {
            SampleLayout::Packed1010102 => upper >> 6,
            _ => upper << (layout.depth - 8) | before & ((1 << (layout.depth - 8)) - 1),
        };
        store(&layout, &mut picture.bytes[plane], i, value);
    }
}

/// The plane with the alpha channel, and its place in a pixel.
fn alpha_channel(layouts: &[PlaneLayout]) -> Option<(usize, &PlaneLayout, usize)> {
    let channel = |layout: &PlaneLayout| layout.roles().iter().position(|role| *role == Role::Alpha);
    layouts.iter().enumerate().find_map(|(plane, layout)| Some((plane, layout, channel(layout)?)))
}

/// Of a colour in a plane. Without a colorimetry in the caps GStreamer takes that of high definition for tall pictures.
fn fill_key(pending: &Pending, plane: usize) -> String {
    let Caps { format, size, .. } = &pending.caps;
    format!("{format} {plane} {} {:?}", size[1] > 576, pending.settings.get("fill-color"))
}

fn options(settings: &Settings, params: BlurParams, alpha: AlphaMode) -> Options {
    let [primary, chroma, with_alpha] = ["luma", "chroma", "alpha"].map(|flag| settings.has("planes", flag));
    Options { params, planes: Selection { primary, chroma, alpha: with_alpha }, alpha }
}

/// The boxes of a frame, in rows of the frame and in those of the buffer, which may be a field.
fn areas_of<'a>(caps: &'a Caps, frame: &'a Frame) -> impl Iterator<Item = [Area; 2]> + 'a {
    frame.boxes.iter().map(|roi| {
        let [x, y] = [roi.rect[0], roi.rect[1]].map(|corner| f64::from(corner.cast_signed()));
        let area = Area::from_corner(x, y, roi.rect[2].into(), roi.rect[3].into());
        let is_field = caps.interlace_mode == "alternate";
        [area, if is_field { Area { top: area.top / 2.0, bottom: area.bottom / 2.0, ..area } } else { area }]
    })
}

impl Pending {
    fn is_field(&self) -> bool {
        self.caps.interlace_mode == "alternate"
    }

    /// Width and height of the picture.
    fn size(&self) -> (u32, u32) {
        (self.picture.planes[0].width, self.picture.planes[0].height)
    }

    /// Where the message may say that the alpha channel is: the box around what of it is not 0.
    fn alpha_rect(&self) -> Option<Rect> {
        let Alpha { size: [width, _], samples } = alpha_of(&self.picture)?;
        let places = samples.iter().enumerate().filter(|(_, sample)| **sample > 0).map(|(i, _)| i as u32);
        let ends = |values: &mut dyn Iterator<Item = u32>| {
            values.fold(None, |ends, at| {
                let (low, high) = ends.unwrap_or((at, at));
                Some((at.min(low), at.max(high)))
            })
        };
        let (left, right) = ends(&mut places.clone().map(|i| i % width))?;
        let (top, bottom) = ends(&mut places.map(|i| i / width))?;
        let [x, y, w, h] = [left, top, right + 1 - left, bottom + 1 - top].map(f64::from);
        self.rect(Area::from_corner(x, y, w, h))
    }

    /// Where the message says that an area is: with `grow`, unless nothing would be left.
    fn rect(&self, area: Area) -> Option<Rect> {
        let grown = Rect::covering(area.wider(self.settings.grow().into()), self.size());
        grown.or_else(|| Rect::covering(area, self.size()))
    }

    fn edge(&self) -> Edge {
        // The property is the width.
        Edge { grow: self.settings.grow(), feather: self.settings.uint("feather").div_ceil(2) }
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

    /// What hides a picture: the blur of `source`, which may lack objects.
    fn cover_blur(&mut self, settings: &Settings, params: BlurParams, picture: &Picture, source: &Picture) -> Picture {
        let options = options(settings, params, AlphaMode::Straight);
        // What no blur can change keeps its padding bits and the luma beyond an odd width too.
        if options.changed(&picture.planes) == Selection::NONE {
            picture.clone()
        } else {
            self.blurred(options, source)
        }
    }

    /// Notes the areas of a frame, whether they count or not.
    pub fn note(&mut self, settings: &Settings, caps: &Caps, frame: &Frame, size: [u32; 2]) {
        let size = size.map(f64::from);
        self.areas.push((Area::from_corner(0.0, 0.0, size[0], size[1]), false));
        for zone in settings.zones() {
            let [x, y] = [zone.x * size[0], zone.y * size[1]];
            self.areas.push((Area::from_corner(x, y, zone.width * size[0], zone.height * size[1]), false));
        }
        for [area, field] in areas_of(caps, frame) {
            self.areas.extend([(area, true), (field, true), (area.union(field), true)]);
        }
        self.areas.sort_by(|one, other| {
            let key = |(area, _): &(Area, bool)| [area.left, area.top, area.right, area.bottom];
            key(one).partial_cmp(&key(other)).unwrap()
        });
        self.areas.dedup();
    }

    /// Whether what the message says of each region fits the settings.
    fn check_message(&self, pending: &Pending, must: &Must, said: &Said) -> Result<(), Failure> {
        let settings = &pending.settings;
        let (mode, shape) = (settings.text("region-mode"), settings.text("shape"));
        let is_right = (0..said.regions.len()).all(|i| {
            let (is_zone, is_alpha) = (said.origins[i] == "zone", said.origins[i] == "alpha");
            let is_shaped = match said.shapes[i].as_str() {
                // What has no mask, and what is not found in this frame.
                "box" if is_alpha => false,
                "box" => shape != "ellipse" || said.origins[i] != "found" && !is_zone || pending.is_field(),
                "mask" => shape == "mask" && said.origins[i] == "found" || is_alpha,
                other => other == shape && !is_alpha,
            };
            let is_origin = ["zone", "alpha", "found", "predicted", "bridged", "anticipated"];
            let is_origin = is_origin.contains(&&*said.origins[i]);
            let is_shown = mode != "outside" || is_zone || is_alpha || said.origins[i] == "found";
            let has_track = !is_zone && !is_alpha && mode == "inside";
            is_shaped && is_origin && is_shown && said.has_track[i] == has_track
        });
        let alphas = said.origins.iter().zip(&said.regions).filter(|(origin, _)| *origin == "alpha");
        let alphas: Vec<Rect> = alphas.map(|(_, rect)| *rect).collect();
        let rect = pending.alpha_rect().filter(|_| must.has_alpha && !said.is_whole(settings, must));
        let is_right = is_right
            && match alphas[..] {
                // What shrinking leaves nothing of is not shown.
                [] => rect.is_none() || mode == "outside" && settings.grow() < 0,
                [one] => Some(one) == rect,
                _ => false,
            };
        match is_right && said.cover == settings.text("cover") {
            true => Ok(()),
            false => fail("the message about a frame", format!("shape={shape} region-mode={mode} {said:?}")),
        }
    }

    /// Judges a frame that was pushed. Returns what was covered, for the totals.
    pub fn check(&mut self, pending: &Pending, got: &Picture) -> Result<String, Failure> {
        let Pending { settings, picture, .. } = pending;
        let mode = settings.text("region-mode");
        let Fate::Cover(must) = &pending.fate else {
            let params = BlurParams::new(settings.double("sigma"), settings.uint("kernel-size")).unwrap();
            let alpha =
                if settings.text("alpha") == "premultiply" { AlphaMode::Premultiply } else { AlphaMode::Straight };
            let options = options(settings, params, alpha);
            let expected = self.blurred(options, picture);
            self.compare(pending, "frame", got, &|plane, i| got.bytes[plane][i] == expected.bytes[plane][i])?;
            let is_untouched = options.is_passthrough(&picture.planes);
            return Ok(if is_untouched { "passed" } else { "frame" }.to_owned());
        };
        self.check_blindly(pending, must, got)?;
        let Some(said) = &pending.said else { return Ok("unsaid".to_owned()) };
        let [width, height] = [picture.planes[0].width, picture.planes[0].height];
        let whole = Rect::new(0, 0, width, height).unwrap();
        let rects = match said.covered.as_str() {
            "nothing" => Vec::new(),
            "outside" => outside(&said.regions, width, height),
            // In some of the channels.
            "partly" if mode == "outside" => outside(&said.regions, width, height),
            "regions" => said.regions.clone(),
            "partly" if !said.regions.is_empty() => said.regions.clone(),
            "frame" | "partly" => vec![whole],
            other => return fail("a frame was pushed of which the message says otherwise", other),
        };
        if must.is_identity && said.covered != "nothing" {
            return fail("a blur that changes nothing is reported as a cover", format!("{said:?}"));
        }
        self.check_message(pending, must, said)?;
        let has_alpha = said.origins.iter().any(|origin| origin == "alpha");
        let is_soft = (settings.is_soft() || has_alpha) && !said.regions.is_empty() && said.covered != "nothing";
        // More than this is covered.
        let is_open = is_soft && mode == "outside";
        let is_in =
            |x, y| is_open || rects.iter().any(|r| (r.x()..r.right()).contains(&x) && (r.y()..r.bottom()).contains(&y));
        let mut covered = 0;
        for (i, must) in must.mask.iter().enumerate() {
            let (x, y) = (i as u32 % width, i as u32 / width);
            covered += u32::from(is_in(x, y));
            if *must && !is_in(x, y) {
                return fail(
                    format!("uncovered by region-mode={mode}"),
                    format!("frame {}: luma sample ({x}, {y}) must be covered, {said:?}", pending.number),
                );
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
        if !is_soft {
            self.check_cover(pending, said, &rects, got)?;
            return Ok(said.covered.clone());
        }
        let is_exact = self.check_soft(pending, must, said, got)?;
        let exactly = if is_exact { " exactly" } else { "" };
        let shape = if has_alpha { "alpha".to_owned() } else { format!("shape={}", settings.text("shape")) };
        Ok(format!("{shape} {}{exactly}", said.covered))
    }

    /// Compares all bytes; `is_right` is asked for a plane and the place in it.
    fn compare(
        &self,
        pending: &Pending,
        cover: &str,
        got: &Picture,
        is_right: &dyn Fn(usize, usize) -> bool,
    ) -> Result<(), Failure> {
        let Some((plane, i)) = bytes_of(got).find(|(plane, i)| !is_right(*plane, *i)) else { return Ok(()) };
        let (x, y) = (i % pitch(&got.planes[plane]), i / pitch(&got.planes[plane]));
        let source = pending.picture.bytes[plane][i];
        fail(
            format!("wrong bytes of cover={cover}"),
            format!(
                "frame {}: plane {plane} row {y} byte {x} is {}, in the source {source}; {:?}",
                pending.number, got.bytes[plane][i], pending.said
            ),
        )
    }

    /// The objects of the regions of a soft cover, as far as the message and the metas tell.
    fn items(&self, pending: &Pending, said: &Said) -> Vec<Option<Item>> {
        let (settings, (width, height)) = (&pending.settings, pending.size());
        let (grow, is_outside) = (settings.grow(), settings.text("region-mode") == "outside");
        let zones = settings.zones().iter().map(|zone| {
            let (x, y) = (zone.x * f64::from(width), zone.y * f64::from(height));
            Area::from_corner(x, y, zone.width * f64::from(width), zone.height * f64::from(height))
        });
        let zones: Vec<Area> = zones.collect();
        let rois =
            pending.frame.boxes.iter().zip(areas_of(&pending.caps, &pending.frame)).filter(|_| !pending.is_field());
        let rois: Vec<_> = rois.map(|(roi, [area, _])| (roi, area)).collect();
        let item = |i: usize| {
            let rect = said.regions[i];
            let is_there = |area: &Area| pending.rect(*area) == Some(rect);
            let form = if said.shapes[i] == "ellipse" { Form::Ellipse } else { Form::Box };
            let only = |areas: Vec<Area>| match &areas[..] {
                [one, others @ ..] if others.iter().all(|other| other == one) => Some(*one),
                _ => None,
            };
            match (said.origins[i].as_str(), said.shapes[i].as_str()) {
                ("zone", _) => {
                    let area = only(zones.iter().copied().filter(is_there).collect())?;
                    Some(Item { area, form })
                }
                ("alpha", _) => {
                    let Alpha { size: [columns, rows], samples } = alpha_of(&pending.picture)?;
                    let area = Area::from_corner(0.0, 0.0, width.into(), height.into());
                    Some(Item { area, form: Form::Mask { columns, rows, samples } })
                }
                (_, "mask") => {
                    let is_readable = |mask: &&MaskParam| mask.is_readable() && mask.has_object();
                    let masks = rois.iter().filter(|(_, area)| is_there(area));
                    let masks = masks.filter_map(|(roi, area)| Some((*area, roi.mask.as_ref().filter(is_readable)?)));
                    let masks: Vec<(Area, &MaskParam)> = masks.collect();
                    let [(area, mask), others @ ..] = &masks[..] else { return None };
                    let [columns, rows] = mask.size;
                    let samples = (0..rows).flat_map(|y| (0..columns).map(move |x| mask.sample(x, y)));
                    let form = Form::Mask { columns, rows, samples: samples.collect() };
                    others.iter().all(|other| *other == masks[0]).then_some(Item { area: *area, form })
                }
                _ if is_outside => {
                    let expand = settings.double("expand");
                    let areas = rois.iter().map(|(_, area)| area.grown(*area, expand));
                    Some(Item { area: only(areas.filter(is_there).collect())?, form })
                }
                // Of what is covered only whole samples count. Where it is cut off it is not known.
                _ => {
                    let is_cut = rect.x() == 0 || rect.y() == 0 || rect.right() == width || rect.bottom() == height;
                    let [x, y, w, h] = [rect.x(), rect.y(), rect.width(), rect.height()].map(f64::from);
                    let area = Area::from_corner(x, y, w, h).wider((-grow).into());
                    let is_plain = grow == 0 && said.shapes[i] == "box";
                    (is_plain || grow >= 0 && !is_cut && !area.is_empty()).then_some(Item { area, form })
                }
            }
        };
        // The oracle takes long with wide windows.
        let is_wide = grow.unsigned_abs().max(pending.edge().feather) > 8;
        (0..said.regions.len()).map(|i| if is_wide { None } else { item(i) }).collect()
    }

    /// The smallest and the largest weight of each luma sample; whether they are the same because all is known.
    fn bounds(pending: &Pending, must: &Must, said: &Said, items: &[Option<Item>]) -> (Nodes, Nodes, bool) {
        let (size, edge) = (pending.size(), pending.edge());
        let is_outside = pending.settings.text("region-mode") == "outside";
        let known: Vec<Item> = items.iter().flatten().cloned().collect();
        let is_exact = known.len() == items.len();
        // What is not there has no edge, which would take long.
        let known_edge = if known.is_empty() { Edge::default() } else { edge };
        let of_known = if is_outside {
            Nodes::outside(size, &known, known_edge)
        } else {
            // One of which shrinking would leave nothing is not shrunk.
            let is_left = |item: &Item| edge.grow >= 0 || Self::is_left(size, item, edge);
            let (shrunk, whole): (Vec<Item>, Vec<Item>) = known.into_iter().partition(is_left);
            let whole = Nodes::inside(size, &whole, Edge { grow: 0, ..known_edge });
            Nodes::inside(size, &shrunk, known_edge).united(whole)
        };
        let weight = |x, y| of_known.at(x, y) as u8;
        let cells = |samples: u32| samples.next_multiple_of(of_known.cell());
        // One that is not shrunk reaches further than its region, and what is beside it does not shrink on that side.
        let shrunk = edge.grow.min(0).unsigned_abs();
        let reach = i64::from(2 * shrunk + cells(4 * of_known.cell()) + 2 * cells(edge.feather));
        let unknown: Vec<Rect> =
            said.regions.iter().zip(items).filter(|(_, item)| item.is_none()).map(|(r, _)| *r).collect();
        let is_unknown = |x: u32, y: u32, reach: i64| {
            let is_near = |low: u32, high: u32, at: u32| {
                i64::from(low) - reach <= i64::from(at) && i64::from(at) < i64::from(high) + reach
            };
            unknown.iter().any(|rect| is_near(rect.x(), rect.right(), x) && is_near(rect.y(), rect.bottom(), y))
        };
        let has_mask = said.shapes.iter().zip(items).any(|(shape, item)| shape == "mask" && item.is_none());
        let is_must = |x: u32, y: u32| must.mask[(y * size.0 + x) as usize];
        let lowest =
            Nodes::of_samples_of_luma(size, |x, y| match is_exact || !is_outside || !is_unknown(x, y, reach) {
                _ if !is_exact && is_must(x, y) => 255,
                true => weight(x, y),
                false => 0,
            });
        let highest = Nodes::of_samples_of_luma(size, |x, y| {
            let is_more = !is_outside && (is_unknown(x, y, reach) || has_mask);
            if !is_exact && (is_more || is_must(x, y)) { 255 } else { weight(x, y) }
        });
        (lowest, highest, is_exact)
    }

    /// Whether shrinking leaves anything of an object that is covered.
    fn is_left(size: (u32, u32), item: &Item, edge: Edge) -> bool {
        let cell = Nodes::inside(size, &[], edge).cell() as i32;
        let shrunk = Nodes::inside(size, std::slice::from_ref(item), Edge { grow: edge.grow - cell, feather: 0 });
        !item.area.wider(edge.grow.into()).is_empty() && shrunk.nodes().2.contains(&255)
    }

    /// Compares every sample of a soft cover with the mix of the source and the cover, as far as the weights are known. Returns
    /// whether they all were.
    fn check_soft(&mut self, pending: &Pending, must: &Must, said: &Said, got: &Picture) -> Result<bool, Failure> {
        let Pending { settings, picture, .. } = pending;
        let items = self.items(pending, said);
        let (lowest, highest, is_exact) = Self::bounds(pending, must, said, &items);
        let width = pending.size().0;
        let is_open = |(i, must): (usize, &bool)| *must && lowest.at(i as u32 % width, i as u32 / width) < 255;
        if let Some(i) = must.mask.iter().enumerate().position(is_open) {
            let mode = settings.text("region-mode");
            let (x, y) = (i as u32 % width, i as u32 / width);
            return fail(
                format!("weakened by region-mode={mode}"),
                format!("frame {}: luma sample ({x}, {y}) must be covered wholly, {said:?}", pending.number),
            );
        }
        let layouts = &picture.planes;
        let weights =
            |nodes: &Nodes| (0..layouts.len()).map(|plane| nodes.of_samples(layouts, plane)).collect::<Vec<_>>();
        let bounds = [weights(&lowest), weights(&highest)];
        let covers = self.soft_covers(pending, said, &items, &bounds[0], got);
        let params = BlurParams::new(settings.double("sigma"), settings.uint("kernel-size")).unwrap();
        let selected = match settings.text("cover") {
            "blur" => options(settings, params, AlphaMode::Straight).planes,
            _ => Selection::ALL,
        };
        for (plane, layout) in layouts.iter().enumerate() {
            let [source, got_values] = [&picture.bytes[plane], &got.bytes[plane]].map(|bytes| values(layout, bytes));
            let covers: Option<Vec<_>> =
                covers.as_ref().map(|all| all.iter().map(|one| values(layout, &one.bytes[plane])).collect());
            for (i, (source, got_value)) in source.into_iter().zip(got_values).enumerate() {
                let [low, high] = [0, 1].map(|bound| bounds[bound][plane][i]);
                let is_selected = selected.contains(layout.roles[i % usize::from(layout.channels)]);
                // What is beyond the depth is no value.
                let depth = if layout.sample_layout == SampleLayout::LsbAligned { layout.depth } else { 16 };
                let value = source & ((1_u32 << depth) - 1) as u16;
                let mix =
                    |w: u64, cover: u16| ((w * u64::from(cover) + (255 - w) * u64::from(value) + 127) / 255) as u16;
                let is_between = |cover: &Vec<u16>| {
                    let [one, other] = [low, high].map(|w| mix(w, cover[i]));
                    (one.min(other)..=one.max(other)).contains(&got_value)
                };
                let is_right = if high == 0 || !is_selected {
                    let bytes = byte_of(layout, i)..byte_of(layout, i) + layout.sample_bytes();
                    // Another channel of a packed word may change.
                    got_value == source
                        && (layout.sample_layout == SampleLayout::Packed1010102
                            || got.bytes[plane][bytes.clone()] == picture.bytes[plane][bytes])
                } else {
                    low == 0 && got_value == source
                        || covers.as_ref().is_none_or(|covers| covers.iter().any(is_between))
                };
                if !is_right {
                    let pixels = layout.row_samples();
                    let candidates: Vec<u16> = covers.iter().flatten().map(|cover| cover[i]).collect();
                    return fail(
                        format!("wrong samples of a soft cover={}", settings.text("cover")),
                        format!(
                            "frame {}: plane {plane} row {} sample {} is {got_value}, in the source {source}, in the cover                              {candidates:?} with weights {low} to {high}; {said:?}",
                            pending.number,
                            i / pixels,
                            i % pixels
                        ),
                    );
                }
            }
        }
        Ok(is_exact && covers.is_some())
    }

    /// What may hide the samples of a soft cover, before it is mixed; `None` if it is not known.
    fn soft_covers(
        &mut self,
        pending: &Pending,
        said: &Said,
        items: &[Option<Item>],
        lowest: &[Vec<u64>],
        got: &Picture,
    ) -> Option<Vec<Picture>> {
        let Pending { settings, picture, .. } = pending;
        let (is_outside, (width, height)) = (settings.text("region-mode") == "outside", pending.size());
        let (whole, area) = (Rect::new(0, 0, width, height)?, Area::from_corner(0.0, 0.0, width.into(), height.into()));
        let objects = self.objects(pending, said, &said.regions);
        match settings.text("cover") {
            "fill" => {
                // The colour is that of any sample that is covered wholly.
                let mut out = picture.clone();
                for (plane, layout) in picture.planes.iter().enumerate() {
                    let key = fill_key(pending, plane);
                    let unit = layout.pixel_bytes();
                    let row_samples = layout.row_samples();
                    let of_pixel = row_samples / layout.row_pixels();
                    let first = lowest[plane].chunks(of_pixel).position(|pixel| pixel.iter().all(|w| *w == 255));
                    let of_first = first.map(|pixel| {
                        let start = byte_of(layout, pixel * of_pixel);
                        got.bytes[plane][start..start + unit].to_vec()
                    });
                    let colour = match of_first {
                        Some(colour) => self.fills.entry(key).or_insert(colour).clone(),
                        None => self.fills.get(&key)?.clone(),
                    };
                    for row in out.bytes[plane].chunks_mut(pitch(layout)) {
                        row[..layout.row_bytes()]
                            .chunks_mut(unit)
                            .for_each(|pixel| pixel.copy_from_slice(&colour[..pixel.len()]));
                    }
                }
                Some(vec![out])
            }
            "mosaic" => {
                let of = |area: &Area| {
                    let mut out = picture.clone();
                    let region = MosaicRegion::new(whole, *area, settings.uint("cells"));
                    out.hide(Hide::Mosaic(vec![region])).unwrap();
                    out
                };
                if is_outside { Some(vec![of(&area)]) } else { Some(objects?.iter().map(of).collect()) }
            }
            _ => {
                let (sigma, size) = (settings.double("sigma"), settings.uint("kernel-size"));
                let plain = BlurParams::new(sigma, size).unwrap();
                let strength = if is_outside { 0.0 } else { settings.double("strength") };
                let params: Vec<BlurParams> = match (strength > 0.0, objects) {
                    (false, _) => vec![plain],
                    (true, Some(objects)) => {
                        let of = |area: &Area| strength_sigma(sigma, strength, area.short_side());
                        let mut sigmas: Vec<f64> = objects.iter().map(of).collect();
                        sigmas.sort_by(f64::total_cmp);
                        sigmas.dedup();
                        sigmas.into_iter().map(|sigma| BlurParams::new(sigma, 0).unwrap()).collect()
                    }
                    (true, None) => return None,
                };
                let leaves_out = is_outside && said.shapes.iter().any(|shape| shape != "box");
                let source = match leaves_out {
                    // Its samples may be beyond their depth.
                    true if pending.frame.layout == Layout::Overlapping => return None,
                    true => {
                        let items: Vec<Item> = items.iter().cloned().collect::<Option<_>>()?;
                        filled(picture, &Nodes::excluded((width, height), &items, sigma))
                    }
                    false => picture.clone(),
                };
                Some(params.into_iter().map(|params| self.cover_blur(settings, params, picture, &source)).collect())
            }
        }
    }

    /// Compares the covered bytes with the cover, and all others with the source.
    fn check_cover(&mut self, pending: &Pending, said: &Said, rects: &[Rect], got: &Picture) -> Result<(), Failure> {
        let Pending { settings, picture, .. } = pending;
        let marked: Vec<(Rect, f64)> = rects.iter().map(|rect| (*rect, 1.0)).collect();
        let planes = picture.planes.len();
        let is_covered: Vec<Vec<f64>> = (0..planes).map(|plane| strongest(&picture.planes, plane, &marked)).collect();
        let is_source = |plane: usize, i: usize| got.bytes[plane][i] == picture.bytes[plane][i];
        let cover = settings.text("cover");
        match cover {
            "fill" => {
                for (plane, layout) in picture.planes.iter().enumerate() {
                    let key = fill_key(pending, plane);
                    let unit = layout.pixel_bytes();
                    let first = is_covered[plane].iter().position(|covered| *covered > 0.0);
                    let Some(first) =
                        first.map(|i| i / pitch(layout) * pitch(layout) + i % pitch(layout) / unit * unit)
                    else {
                        continue;
                    };
                    if let SampleLayout::Yuv422 { .. } = layout.sample_layout {
                        // A pair may be covered in part.
                        continue;
                    }
                    let pixel = got.bytes[plane][first..first + unit].to_vec();
                    let colour = self.fills.entry(key).or_insert(pixel).clone();
                    let is_colour = |of: usize, i: usize| {
                        let x = i % pitch(layout);
                        of != plane || is_covered[plane][i] == 0.0 || got.bytes[plane][i] == colour[x % unit]
                    };
                    self.compare(pending, cover, got, &is_colour)?;
                }
                self.compare(pending, "outside of a fill", got, &|plane, i| {
                    is_covered[plane][i] > 0.0 || is_source(plane, i)
                })
            }
            "mosaic" => {
                let expected = self.objects(pending, said, rects).map(|objects| {
                    let mut out = picture.clone();
                    let region = |(rect, area): (&Rect, &Area)| MosaicRegion::new(*rect, *area, settings.uint("cells"));
                    let regions: Vec<MosaicRegion> = rects.iter().zip(&objects).map(region).collect();
                    out.hide(Hide::Mosaic(regions)).unwrap();
                    out
                });
                self.compare(pending, cover, got, &|plane, i| match &expected {
                    Some(expected) if is_covered[plane][i] > 0.0 => got.bytes[plane][i] == expected.bytes[plane][i],
                    _ => is_covered[plane][i] > 0.0 || is_source(plane, i),
                })
            }
            _ => {
                let objects = self.objects(pending, said, rects);
                let strength = settings.double("strength");
                let (sigma, size) = (settings.double("sigma"), settings.uint("kernel-size"));
                let of = |area: &Area| strength_sigma(sigma, strength, area.short_side());
                let plain = BlurParams::new(sigma, size).unwrap();
                let mut blurs: Vec<(f64, Picture)> = Vec::new();
                let mut add = |params: BlurParams, judge: &mut Self| {
                    blurs.push((params.sigma(), judge.cover_blur(settings, params, picture, picture)));
                };
                let background = strength == 0.0 || settings.text("region-mode") == "outside";
                if background {
                    add(plain, self);
                }
                let mut sigmas: Vec<f64> = match &objects {
                    _ if strength == 0.0 || said.covered == "outside" => Vec::new(),
                    Some(objects) => objects.iter().map(of).collect(),
                    None => self.areas.iter().map(|(area, _)| of(area)).collect(),
                };
                sigmas.sort_by(f64::total_cmp);
                sigmas.dedup();
                sigmas.into_iter().for_each(|sigma| add(BlurParams::new(sigma, 0).unwrap(), self));
                // The strongest of those that overlap, if it is known. A σ of 0 covers too.
                let strengths = objects.filter(|_| !background).map(|objects| {
                    let regions: Vec<(Rect, f64)> =
                        rects.iter().zip(&objects).map(|(rect, area)| (*rect, 1.0 + of(area))).collect();
                    (0..planes).map(|plane| strongest(&picture.planes, plane, &regions)).collect::<Vec<_>>()
                });
                self.compare(pending, cover, got, &|plane, i| {
                    let is_strongest =
                        |sigma: f64| strengths.as_ref().is_none_or(|strengths| strengths[plane][i] == 1.0 + sigma);
                    match is_covered[plane][i] > 0.0 {
                        true => blurs
                            .iter()
                            .any(|(sigma, blur)| is_strongest(*sigma) && blur.bytes[plane][i] == got.bytes[plane][i]),
                        false => is_source(plane, i),
                    }
                })
            }
        }
    }

    /// The object of each rectangle, if it is known.
    fn objects(&self, pending: &Pending, said: &Said, rects: &[Rect]) -> Option<Vec<Area>> {
        let luma = &pending.picture.planes[0];
        let (width, height) = (luma.width, luma.height);
        let picture = Area::from_corner(0.0, 0.0, width.into(), height.into());
        let object = |(place, rect): (usize, &Rect)| {
            let is_background = said.regions.is_empty() || pending.settings.text("region-mode") == "outside";
            // Strength and cells of the alpha channel follow the picture.
            if is_background || said.origins[place] == "alpha" {
                return Some(picture);
            }
            // Masks do not expand.
            let expand = if said.shapes[place] == "mask" { 0.0 } else { pending.settings.double("expand") };
            let is_in = |part: Rect| {
                rect.x() <= part.x()
                    && rect.y() <= part.y()
                    && part.right() <= rect.right()
                    && part.bottom() <= rect.bottom()
            };
            // A region of an object is larger than its detection.
            let areas: Vec<Area> = match said.origins[place].as_str() {
                "zone" => {
                    let zones = self.areas.iter().filter(|(_, grows)| !grows).map(|(area, _)| *area);
                    zones.filter(|area| pending.rect(*area).as_ref() == Some(rect)).collect()
                }
                "found" => {
                    let areas = areas_of(&pending.caps, &pending.frame).map(|[area, field]| area.union(field));
                    areas.filter(|area| pending.rect(area.grown(*area, expand)).is_none_or(is_in)).collect()
                }
                _ => Vec::new(),
            };
            if let [one] = areas[..] { Some(one) } else { None }
        };
        rects.iter().enumerate().map(object).collect()
    }

    /// Without what the element says: the pixels of the first plane that must be covered are not those of the source, beyond
    /// chance.
    fn check_blindly(&self, pending: &Pending, must: &Must, got: &Picture) -> Result<(), Failure> {
        let (settings, layout) = (&pending.settings, &got.planes[0]);
        let unit = layout.pixel_bytes();
        let params = BlurParams::new(settings.double("sigma"), settings.uint("kernel-size")).unwrap();
        let selection = options(settings, params, AlphaMode::Straight).planes;
        let is_blur = settings.text("cover") == "blur";
        // In a field σ is halved, and a picture of one column has no neighbours along rows.
        let is_weak = is_blur && (params.sigma() < 1.0 || params.kernel_size() > 0);
        let is_selected = !is_blur || layout.roles().iter().all(|role| selection.contains(*role));
        // Alpha that overlaps this plane makes it flat, and flat areas stay as they are.
        let is_flat = pending.frame.layout == Layout::Overlapping && pending.frame.alpha.is_some();
        if must.is_identity || is_weak || is_flat || !is_selected || layout.row_pixels() != layout.width as usize {
            return Ok(());
        }
        let width = layout.width as usize;
        let pixels = must.mask.iter().enumerate().filter(|(_, must)| **must);
        let pixels: Vec<usize> = pixels.map(|(i, _)| i / width * pitch(layout) + i % width * unit).collect();
        let same = pixels.iter().filter(|at| {
            let at = **at..**at + unit;
            got.bytes[0][at.clone()] == pending.picture.bytes[0][at]
        });
        let (same, all) = (same.count(), pixels.len());
        if all >= 24 && same > all / 3 {
            let kind = format!("shown by region-mode={}", settings.text("region-mode"));
            return fail(kind, format!("frame {}: {same} of {all} pixels are the source's", pending.number));
        }
        Ok(())
    }
}
