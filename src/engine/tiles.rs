// SPDX-License-Identifier: MPL-2.0
//! Blurs regions of a frame: crops around them are blurred as frames of their own, and what the regions cover is copied
//! from the blurred crops. [`crate::filter::crop`] says why the bytes are those of the full-frame blur.

use super::error::EngineError;
use crate::filter::BlurParams;
use crate::filter::crop::{Covered, CropGeometry, PlaneCrop};
use crate::filter::frame::{Frame, FrameMut, Plane, PlaneLayout, SampleLayout};
use crate::filter::plan::{AlphaMode, Options, Selection};
use crate::filter::regions::{self, Rect};

/// Rows of blurred crops start on this many bytes.
const PITCH_ALIGNMENT: usize = 64;

/// A rectangle that is blurred.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlurRegion {
    /// In luma samples of the frame. What is beyond the frame is ignored.
    pub rect: Rect,
    /// The Gaussian. Where regions overlap, the one with the larger σ counts.
    pub params: BlurParams,
}

/// The regions of a frame that are blurred. The order of the regions does not matter.
#[derive(Debug, Clone, PartialEq)]
pub struct BlurCover {
    /// Which channels are blurred; the others keep their values.
    pub planes: Selection,
    /// How alpha affects colour, in frames that have alpha.
    pub alpha: AlphaMode,
    /// What is blurred.
    pub regions: Vec<BlurRegion>,
}

impl BlurCover {
    /// Whether no region is blurred.
    pub fn is_empty(&self) -> bool {
        self.regions.iter().all(|region| region.params.is_passthrough())
    }

    /// The rectangles of each Gaussian, weaker ones first, so that what is written later counts.
    fn by_strength(&self) -> Vec<(Options, Vec<Rect>)> {
        let key = |region: &BlurRegion| (region.params.sigma(), region.params.kernel_size());
        let mut regions: Vec<BlurRegion> =
            self.regions.iter().filter(|region| !region.params.is_passthrough()).copied().collect();
        // σ is a finite number.
        regions.sort_by(|a, b| key(a).0.total_cmp(&key(b).0).then(key(a).1.cmp(&key(b).1)));
        let is_hidden = |rect: Rect, stronger: &[BlurRegion]| stronger.iter().any(|other| contains(other.rect, rect));
        let mut groups: Vec<(Options, Vec<Rect>)> = Vec::new();
        for (index, BlurRegion { rect, params }) in regions.iter().enumerate() {
            let options = Options { params: *params, planes: self.planes, alpha: self.alpha };
            match groups.last_mut() {
                Some((last, rects)) if *last == options => rects.push(*rect),
                _ => groups.push((options, vec![*rect])),
            }
            if is_hidden(*rect, &regions[index + 1..])
                && let Some((_, rects)) = groups.last_mut()
            {
                rects.pop();
            }
        }
        groups.retain(|(_, rects)| !rects.is_empty());
        groups
    }
}

fn contains(outer: Rect, inner: Rect) -> bool {
    outer.x() <= inner.x()
        && outer.y() <= inner.y()
        && outer.right() >= inner.right()
        && outer.bottom() >= inner.bottom()
}

/// The smallest rectangle around both.
fn bounds(a: Rect, b: Rect) -> Rect {
    let (x, y) = (a.x().min(b.x()), a.y().min(b.y()));
    let (right, bottom) = (a.right().max(b.right()), a.bottom().max(b.bottom()));
    Rect::new(x, y, right - x, bottom - y).unwrap_or(a)
}

/// Rectangles that are blurred with one crop.
struct Tile {
    rects: Vec<Rect>,
    bounds: Rect,
    crops: Vec<PlaneCrop>,
    /// Bytes of the crops, to which the time of their blur is about proportional.
    cost: usize,
}

impl Tile {
    fn new(geometry: &CropGeometry, rects: Vec<Rect>, bounds: Rect) -> Self {
        let crops = geometry.crops(bounds);
        let cost = crops.iter().map(|crop| crop.layout.row_bytes() * crop.layout.height as usize).sum();
        Self { rects, bounds, crops, cost }
    }
}

/// Divides rectangles into tiles. The crops of rectangles near each other overlap so much that one crop around them costs
/// less.
fn tiles(geometry: &CropGeometry, rects: &[Rect]) -> Vec<Tile> {
    let join = |a: &mut Tile, b: &mut Tile| {
        let rects = [std::mem::take(&mut a.rects), std::mem::take(&mut b.rects)].concat();
        Tile::new(geometry, rects, bounds(a.bounds, b.bounds))
    };
    let is_worth_it =
        |a: &Tile, b: &Tile| Tile::new(geometry, Vec::new(), bounds(a.bounds, b.bounds)).cost <= a.cost + b.cost;
    let mut tiles: Vec<Tile> = Vec::new();
    for rect in regions::disjoint(rects) {
        let mut tile = Tile::new(geometry, vec![rect], rect);
        while let Some(index) = tiles.iter().position(|other| is_worth_it(&tile, other)) {
            tile = join(&mut tile, &mut tiles.swap_remove(index));
        }
        tiles.push(tile);
    }
    // Joining two at a time may end with more than the whole picture.
    if let Some(around) = tiles.iter().map(|tile| tile.bounds).reduce(bounds) {
        let whole = Tile::new(geometry, Vec::new(), around);
        let apart: usize = tiles.iter().map(|tile| tile.cost).sum();
        if tiles.len() > 1 && whole.cost <= apart {
            let rects = tiles.into_iter().flat_map(|tile| tile.rects).collect();
            return vec![Tile { rects, ..whole }];
        }
    }
    tiles
}

/// A crop of a plane, and where its blurred samples are in the memory of [`BlurredTiles`].
#[derive(Debug, Clone, Copy)]
struct BlurredCrop {
    crop: PlaneCrop,
    offset: usize,
    pitch: usize,
    /// The part that is used, in pixels and rows of the crop.
    window: Rect,
}

/// Samples to copy from a blurred crop.
struct Patch {
    from: BlurredCrop,
    covered: Covered,
}

/// The blurred crops of a frame, until what the regions cover is written. The memory is used again for the next frame.
#[derive(Default)]
pub struct BlurredTiles {
    memory: Vec<u8>,
    /// In the order of writing: where two overlap, the later one counts.
    patches: Vec<Patch>,
}

impl BlurredTiles {
    /// Blurs what `cover` needs of a frame that holds its rows. `blur` blurs a frame in host memory, in a window for each of
    /// its planes at least; it is called once for each σ, and once for each crop where colour is weighted by the alpha of
    /// another plane. Nothing is written to
    /// `source`, and [`BlurredTiles::write`] may write to the same memory.
    pub fn blur<E: From<EngineError>>(
        &mut self,
        cover: &BlurCover,
        source: &Frame,
        mut blur: impl FnMut(Options, &Frame, &mut FrameMut, &[Rect]) -> Result<(), E>,
    ) -> Result<(), E> {
        self.patches.clear();
        let layouts: Vec<PlaneLayout> = source.iter().map(|plane| plane.layout).collect();
        let mut frames: Vec<(Options, Vec<BlurredCrop>)> = Vec::new();
        let mut bytes = 0;
        for (options, rects) in cover.by_strength() {
            let geometry = CropGeometry::new(options, &layouts);
            let rects: Vec<Rect> = rects.into_iter().filter_map(|rect| geometry.picture().clipped(rect)).collect();
            let mut own_frames = Vec::new();
            for tile in tiles(&geometry, &rects) {
                let blurred = |crop: PlaneCrop| {
                    let pitch = crop.layout.row_bytes().next_multiple_of(PITCH_ALIGNMENT);
                    let offset = bytes;
                    bytes += pitch * crop.layout.height as usize;
                    let covered = geometry.picture().covered(crop.plane, tile.bounds);
                    BlurredCrop { crop, offset, pitch, window: window(&crop, covered) }
                };
                let crops: Vec<BlurredCrop> = tile.crops.iter().copied().map(blurred).collect();
                for from in crops.iter().filter(|from| geometry.is_written(from.crop.plane)) {
                    let covered = tile.rects.iter().flat_map(|rect| geometry.picture().covered(from.crop.plane, *rect));
                    self.patches.extend(covered.map(|covered| Patch { from: *from, covered }));
                }
                own_frames.push(crops);
            }
            // All crops in one frame are blurred with fewer launches, and on all threads at once.
            if !geometry.is_aligned() {
                own_frames = vec![own_frames.concat()];
            }
            frames.extend(own_frames.into_iter().filter(|crops| !crops.is_empty()).map(|crops| (options, crops)));
        }
        self.reserve(bytes)?;
        for (options, crops) in &frames {
            let windows: Vec<Rect> = crops.iter().map(|blurred| blurred.window).collect();
            let (frame, mut out) = (sub_frame(source, crops), self.output(crops));
            blur(*options, &frame, &mut out, &windows)?;
        }
        Ok(())
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), EngineError> {
        if bytes > self.memory.len() {
            let out_of_memory = |_| EngineError::OutOfMemory { bytes };
            self.memory.try_reserve_exact(bytes - self.memory.len()).map_err(out_of_memory)?;
            self.memory.resize(bytes, 0);
        }
        Ok(())
    }

    /// The memory of crops that follow each other, as a frame.
    fn output(&mut self, crops: &[BlurredCrop]) -> FrameMut<'_> {
        let mut rest = &mut self.memory[crops[0].offset..];
        let plane = |blurred: &BlurredCrop| {
            let layout = blurred.crop.layout;
            let (data, others) = std::mem::take(&mut rest).split_at_mut(blurred.pitch * layout.height as usize);
            rest = others;
            Plane { layout, pitch: blurred.pitch, data }
        };
        crops.iter().map(plane).collect()
    }

    /// Writes what the regions cover into the frame that was blurred, or into one of the same layouts that holds its rows.
    /// All other bytes stay unchanged.
    pub fn write(&self, frame: &mut FrameMut) {
        for Patch { from, covered: Covered { field, rect } } in &self.patches {
            let plane = &mut frame[from.crop.plane];
            for y in rect.y()..rect.bottom() {
                let row = field.first_row + y as usize * field.step;
                let blurred = &self.memory[from.offset + (row - from.crop.y as usize) * from.pitch..];
                let to = &mut plane.data[row * plane.pitch..];
                copy_pixels(&plane.layout, [rect.x(), rect.right()], blurred, from.crop.row_offset(), to);
            }
        }
    }
}

/// Copies the pixels between two columns of a row from a row that begins `skipped` bytes later. Of a pair of pixels of
/// packed 4:2:2, the luma of a pixel that is not between the columns stays unchanged.
fn copy_pixels(layout: &PlaneLayout, [x, right]: [u32; 2], from: &[u8], skipped: usize, to: &mut [u8]) {
    let copy = |to: &mut [u8], [x, right]: [u32; 2]| {
        let [start, end] = [x, right].map(|x| x as usize * layout.pixel_bytes());
        to[start..end].copy_from_slice(&from[start - skipped..end - skipped]);
    };
    let SampleLayout::Yuv422 { luma } = layout.sample_layout else { return copy(to, [x, right]) };
    let luma_byte = |x: u32| 2 * x as usize + usize::from(luma);
    let before = (x % 2 == 1).then(|| luma_byte(x - 1));
    // The luma beyond an odd width belongs to the last pixel.
    let behind = (right % 2 == 1 && right < layout.width).then(|| luma_byte(right));
    let unchanged = [before, behind].map(|byte| byte.map(|byte| (byte, to[byte])));
    copy(to, [x / 2, right.div_ceil(2)]);
    unchanged.into_iter().flatten().for_each(|(byte, value)| to[byte] = value);
}

/// The smallest window of a crop that has what is covered, in pixels and rows of the crop.
fn window(crop: &PlaneCrop, covered: impl Iterator<Item = Covered>) -> Rect {
    let of_field = |Covered { field, rect }: Covered| {
        let row = |y: u32| field.first_row as u32 + y * field.step as u32 - crop.y;
        let (y, bottom) = (row(rect.y()), row(rect.bottom() - 1) + 1);
        Rect::new(rect.x() - crop.x, y, rect.width(), bottom - y)
    };
    let whole = Rect::new(0, 0, crop.layout.width, crop.layout.height);
    covered.filter_map(of_field).reduce(bounds).or(whole).expect("a crop has samples")
}

/// The crops of a frame, as a frame.
fn sub_frame<'a>(source: &Frame<'a>, crops: &[BlurredCrop]) -> Frame<'a> {
    let plane = |BlurredCrop { crop, .. }: &BlurredCrop| {
        let Plane { pitch, data, .. } = source[crop.plane];
        let start = crop.y as usize * pitch + crop.row_offset();
        let len = (crop.layout.height as usize - 1) * pitch + crop.layout.row_bytes();
        Plane { layout: crop.layout, pitch, data: &data[start..start + len] }
    };
    crops.iter().map(plane).collect()
}
