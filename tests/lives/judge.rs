//! The judgement of a frame's bytes: where it is covered those of the cover, elsewhere those of the source. What the element
//! says that it covered is compared with the rule, and the bytes with what it says.

use std::collections::BTreeMap;

use gst_video::{VideoInfo, VideoMeta};
use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::{PlaneLayout, SampleLayout};
use gstcudagaussblur::filter::mosaic::{MosaicRegion, mosaic};
use gstcudagaussblur::filter::plan::{AlphaMode, Options, Selection};
use gstcudagaussblur::filter::regions::{Area, Rect, outside, strength_sigma};

use crate::common::pictures::{PADDING, Picture, pitch, strongest};
use crate::rule::Must;
use crate::settings::Settings;
use crate::steps::{Caps, Frame};

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
    regions: Vec<Rect>,
    /// Of each region.
    origins: Vec<String>,
}

impl Said {
    pub fn read(structure: &gst::StructureRef) -> Self {
        let rect = |region: &gst::glib::SendValue| {
            let region = region.get::<gst::Structure>().unwrap();
            let [x, y, width, height] = ["x", "y", "width", "height"].map(|side| region.get::<u32>(side).unwrap());
            Rect::new(x, y, width, height).expect("a region is not empty")
        };
        let regions = structure.get::<gst::Array>("regions").unwrap();
        let origin = |region: &gst::glib::SendValue| region.get::<gst::Structure>().unwrap().get("origin").unwrap();
        Self {
            timestamp: structure.get("timestamp").unwrap(),
            origins: regions.as_slice().iter().map(origin).collect(),
            covered: structure.get("covered").unwrap(),
            area: structure.get("covered-area").unwrap(),
            regions: regions.as_slice().iter().map(rect).collect(),
        }
    }
}

/// What becomes of a frame.
pub enum Fate {
    /// The whole frame is blurred.
    Blur,
    Cover(Must),
    Drop,
    Error,
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

    /// Judges a frame that was pushed. Returns what was covered, for the totals.
    pub fn check(&mut self, pending: &Pending, output: &gst::BufferRef) -> Result<String, Failure> {
        let Pending { settings, picture, info, .. } = pending;
        let mode = settings.text("region-mode");
        let Some(got) = read(info, &picture.planes, output) else {
            return fail("unreadable output", format!("frame {}", pending.number));
        };
        let Fate::Cover(must) = &pending.fate else {
            let params = BlurParams::new(settings.double("sigma"), settings.uint("kernel-size")).unwrap();
            let alpha =
                if settings.text("alpha") == "premultiply" { AlphaMode::Premultiply } else { AlphaMode::Straight };
            let options = options(settings, params, alpha);
            let expected = self.blurred(options, picture);
            self.compare(pending, "frame", &got, &|plane, i| got.bytes[plane][i] == expected.bytes[plane][i])?;
            let is_untouched = options.is_passthrough(&picture.planes);
            return Ok(if is_untouched { "passed" } else { "frame" }.to_owned());
        };
        self.check_blindly(pending, must, &got)?;
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
        let is_in = |x, y| rects.iter().any(|r| (r.x()..r.right()).contains(&x) && (r.y()..r.bottom()).contains(&y));
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
        if (said.area - share).abs() > 1e-9 && said.covered != "partly" {
            return fail("covered-area", format!("{} instead of {share}", said.area));
        }
        self.check_cover(pending, said, &rects, &got)?;
        Ok(said.covered.clone())
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
                    let key = format!("{} {plane} {:?}", pending.caps.format, settings.get("fill-color"));
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
                    mosaic(&mut out.frame_mut(), &regions).unwrap();
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
                    let options = options(settings, params, AlphaMode::Straight);
                    // What no blur can change keeps its padding bits too.
                    let is_unchanged = options.changed(&picture.planes) == Selection::NONE;
                    let blur = if is_unchanged { picture.clone() } else { judge.blurred(options, picture) };
                    blurs.push((params.sigma(), blur));
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
            if said.regions.is_empty() || pending.settings.text("region-mode") == "outside" {
                return Some(picture);
            }
            let expand = pending.settings.double("expand");
            let is_in = |part: Rect| {
                rect.x() <= part.x()
                    && rect.y() <= part.y()
                    && part.right() <= rect.right()
                    && part.bottom() <= rect.bottom()
            };
            // A region of an object is larger than its detection.
            let size = (width, height);
            let areas: Vec<Area> = match said.origins[place].as_str() {
                "zone" => {
                    let zones = self.areas.iter().filter(|(_, grows)| !grows).map(|(area, _)| *area);
                    zones.filter(|area| Rect::covering(*area, size).as_ref() == Some(rect)).collect()
                }
                "found" => {
                    let areas = areas_of(&pending.caps, &pending.frame).map(|[area, field]| area.union(field));
                    areas.filter(|area| Rect::covering(area.grown(*area, expand), size).is_none_or(is_in)).collect()
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
        if must.is_identity || is_weak || !is_selected || layout.row_pixels() != layout.width as usize {
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
