// SPDX-License-Identifier: MPL-2.0
//! What has to be done to blur regions of a frame: crops around them are blurred as frames of their own, and what the regions
//! cover is copied from the blurred crops. [`super::crop`] says why the bytes are those of the full-frame blur. This only
//! computes; whoever has the pixels executes it.

use super::BlurParams;
use super::byte_rect::{ByteRect, PACKED_GROUP, StagingLayout};
use super::crop::{CropGeometry, FieldRect, PictureGeometry, PlaneCrop};
use super::frame::PlaneLayout;
use super::plan::{Options, Selection};
use super::regions::{self, Rect};
use super::samples::covered_fields;

/// Rows of blurred crops start on this many bytes.
const PITCH_ALIGNMENT: usize = 64;
const _: () = assert!(PITCH_ALIGNMENT.is_multiple_of(PACKED_GROUP));

/// A rectangle that is blurred.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlurRegion {
    /// In luma samples of the frame. What is beyond the frame is ignored.
    pub rect: Rect,
    /// The Gaussian. Where regions overlap, the one with the larger σ counts.
    pub params: BlurParams,
}

/// The regions of a frame that are blurred, each channel by itself: a cover whose colour were weighted by alpha would leave the
/// colour where alpha is 0. The order of the regions does not matter.
#[derive(Debug, Clone, PartialEq)]
pub struct BlurCover {
    /// Which channels are blurred; the others keep their values.
    pub planes: Selection,
    /// What is blurred.
    pub regions: Vec<BlurRegion>,
}

impl BlurCover {
    /// Whether no region is blurred.
    pub fn is_empty(&self) -> bool {
        self.regions.iter().all(|region| region.params.is_passthrough())
    }

    /// The blurs of a frame of these planes, weaker ones first: where they overlap, the last one counts.
    pub fn blurs(&self, layouts: &[PlaneLayout]) -> Vec<RegionBlur> {
        let picture = PictureGeometry::new(layouts);
        let blur = |(options, rects): (Options, Vec<Rect>)| {
            let is_blurred = |(plane, _): &(usize, FieldRect)| !options.is_passthrough(&layouts[*plane..=*plane]);
            let rects = regions::disjoint(&picture.clip_all(&rects));
            let covered = rects.iter().flat_map(|rect| covered_fields(&picture, *rect)).filter(is_blurred).collect();
            RegionBlur { options, covered }
        };
        self.by_strength().into_iter().map(blur).filter(|blur| !blur.covered.is_empty()).collect()
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
            let options = Options { planes: self.planes, ..(*params).into() };
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

/// The blur of regions by one Gaussian.
#[derive(Debug, Clone)]
pub struct RegionBlur {
    /// The blur of the whole frame.
    pub options: Options,
    /// What is written, by plane.
    pub covered: Vec<(usize, FieldRect)>,
}

fn contains(outer: Rect, inner: Rect) -> bool {
    outer.x() <= inner.x()
        && outer.y() <= inner.y()
        && outer.right() >= inner.right()
        && outer.bottom() >= inner.bottom()
}

/// What crops cost where they are blurred.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CropCost {
    /// Crops start at multiples of so many pixels, a power of two, if they can.
    pub column_step: u32,
    /// Bytes whose blur takes as long as everything that an operation on a crop takes beside them, for planes of one or two
    /// channels and for planes of more.
    pub operation_bytes: [usize; 2],
}

impl CropCost {
    /// The cost of crops, in bytes.
    fn of(self, geometry: &CropGeometry, crops: &[PlaneCrop]) -> usize {
        let cost = |crop: &PlaneCrop| {
            let layout = &crop.layout;
            let own = self.operation_bytes[usize::from(layout.channels > 2)] * geometry.operations(crop.plane);
            layout.row_bytes() * layout.height as usize + own
        };
        crops.iter().map(cost).sum()
    }
}

/// Rectangles that are blurred with one crop.
struct Tile {
    rects: Vec<Rect>,
    bounds: Rect,
    crops: Vec<PlaneCrop>,
    /// The cost of the crops.
    cost: usize,
}

impl Tile {
    fn new(geometry: &CropGeometry, cost: CropCost, rects: Vec<Rect>, bounds: Rect) -> Self {
        let crops = geometry.crops(bounds);
        Self { cost: cost.of(geometry, &crops), rects, bounds, crops }
    }
}

/// Divides rectangles into tiles. The crops of rectangles near each other overlap so much that one crop around them costs
/// less.
fn tiles(geometry: &CropGeometry, cost: CropCost, rects: &[Rect]) -> Vec<Tile> {
    let mut apart: Vec<Tile> =
        regions::disjoint(rects).into_iter().map(|rect| Tile::new(geometry, cost, vec![rect], rect)).collect();
    // First, because joining two at a time takes time where there are many.
    if let Some(whole) = whole(geometry, cost, &mut apart) {
        return vec![whole];
    }
    let joined = |one: &Tile, other: &Tile| {
        let joined = Tile::new(geometry, cost, Vec::new(), one.bounds.hull(other.bounds));
        (joined.cost <= one.cost + other.cost).then_some(joined)
    };
    let mut tiles: Vec<Tile> = Vec::new();
    for mut tile in apart {
        while let Some((index, around)) =
            tiles.iter().enumerate().find_map(|(index, other)| Some((index, joined(other, &tile)?)))
        {
            let other = tiles.swap_remove(index);
            tile = Tile { rects: [tile.rects, other.rects].concat(), ..around };
        }
        tiles.push(tile);
    }
    // Joining two at a time may end with more than the whole picture.
    match whole(geometry, cost, &mut tiles) {
        Some(whole) => vec![whole],
        None => tiles,
    }
}

/// One tile around all, if that costs less. Its rectangles are taken from the others.
fn whole(geometry: &CropGeometry, cost: CropCost, tiles: &mut Vec<Tile>) -> Option<Tile> {
    let around = tiles.iter().map(|tile| tile.bounds).reduce(Rect::hull)?;
    let whole = Tile::new(geometry, cost, Vec::new(), around);
    let apart: usize = tiles.iter().map(|tile| tile.cost).sum();
    (tiles.len() > 1 && whole.cost <= apart)
        .then(|| Tile { rects: tiles.drain(..).flat_map(|tile| tile.rects).collect(), ..whole })
}

/// A crop of a plane, and where its blurred samples are in the tile memory.
#[derive(Debug, Clone, Copy)]
pub struct BlurredCrop {
    /// The crop.
    pub crop: PlaneCrop,
    /// The first byte of its first row in the tile memory.
    pub offset: usize,
    /// Bytes from one of its rows to the next.
    pub pitch: usize,
}

impl BlurredCrop {
    /// Bytes of the tile memory.
    pub fn bytes(&self) -> usize {
        self.pitch * self.crop.layout.height as usize
    }
}

/// Crops that are blurred as the planes of one frame.
#[derive(Debug, Clone)]
pub struct BlurJob {
    /// The blur.
    pub options: Options,
    /// At least one. In the tile memory they follow each other.
    pub crops: Vec<BlurredCrop>,
}

/// Bytes that are copied from the tile memory into the frame.
#[derive(Debug, Clone, Copy)]
pub struct Patch {
    /// The bytes of the frame.
    pub to: ByteRect,
    /// The first byte in the tile memory.
    pub offset: usize,
    /// Bytes of the tile memory from one row to the next.
    pub pitch: usize,
    /// Counts the Gaussians, weaker ones first. Where patches of several overlap, the last one counts; those of one have the
    /// same bytes there.
    pub strength: usize,
}

/// What has to be blurred for the regions of a frame, and what has to be written after that.
#[derive(Debug, Default)]
pub struct BlurTiles {
    /// The blurs, one for each Gaussian. They read the frame only, and do not depend on each other.
    pub jobs: Vec<BlurJob>,
    /// In the order of writing.
    pub patches: Vec<Patch>,
    /// Bytes of the tile memory.
    pub bytes: usize,
}

impl BlurTiles {
    /// For a frame of these planes.
    pub fn new(cover: &BlurCover, layouts: &[PlaneLayout], cost: CropCost) -> Self {
        let mut all = Self::default();
        for (strength, (options, rects)) in cover.by_strength().into_iter().enumerate() {
            let geometry = CropGeometry::new(options, layouts).with_column_step(cost.column_step);
            let rects = geometry.picture().clip_all(&rects);
            // All crops in one frame are blurred with fewer launches, and on all threads at once.
            let mut blurred = Vec::new();
            for tile in tiles(&geometry, cost, &rects) {
                let crops: Vec<BlurredCrop> = tile.crops.iter().map(|crop| all.place(*crop)).collect();
                for from in &crops {
                    for rect in &tile.rects {
                        all.add_patches(&geometry, from, *rect, strength);
                    }
                }
                blurred.extend(crops);
            }
            if !blurred.is_empty() {
                all.jobs.push(BlurJob { options, crops: blurred });
            }
        }
        all
    }

    /// Places a crop behind the others.
    fn place(&mut self, crop: PlaneCrop) -> BlurredCrop {
        let pitch = crop.layout.row_bytes().next_multiple_of(PITCH_ALIGNMENT);
        let blurred = BlurredCrop { crop, offset: self.bytes, pitch };
        self.bytes += blurred.bytes();
        blurred
    }

    fn add_patches(&mut self, geometry: &CropGeometry, from: &BlurredCrop, rect: Rect, strength: usize) {
        let BlurredCrop { crop, offset, pitch, .. } = *from;
        let layout = &geometry.picture().layouts()[crop.plane];
        let covered = geometry.picture().covered(crop.plane, rect);
        let rects = covered.flat_map(|covered| ByteRect::covered(crop.plane, layout, covered));
        self.patches.extend(rects.map(|to| Patch {
            to,
            offset: offset + (to.row - crop.y as usize) * pitch + to.byte - crop.row_offset(),
            pitch: pitch * to.row_step,
            strength,
        }));
    }
}

/// What the device does for the regions of a frame in host memory.
#[derive(Debug, Default)]
pub struct TransferTiles {
    layouts: Vec<PlaneLayout>,
    blurs: BlurTiles,
    uploads: StagingLayout,
    downloads: StagingLayout,
    patches_overlap: bool,
}

impl TransferTiles {
    /// For a frame of these planes. `cost` is the cost of blurs on the device, `upload_cost` that of what is uploaded for one.
    pub fn new(cover: &BlurCover, layouts: &[PlaneLayout], cost: CropCost, upload_cost: CropCost) -> Self {
        let blurs = BlurTiles::new(cover, layouts, cost);
        let mut rects = Vec::new();
        for (options, regions) in cover.by_strength() {
            let geometry = CropGeometry::new(options, layouts).with_column_step(upload_cost.column_step);
            let regions: Vec<Rect> = geometry.picture().clip_all(&regions);
            let tiles = tiles(&geometry, upload_cost, &regions);
            rects.extend(tiles.iter().flat_map(|tile| &tile.crops).map(ByteRect::of_crop));
        }
        for (plane, layout) in layouts.iter().enumerate() {
            let whole = ByteRect::whole(plane, layout);
            let bytes: usize = rects.iter().filter(|rect| rect.plane == plane).map(ByteRect::size).sum();
            if bytes > whole.size() {
                rects.retain(|rect| rect.plane != plane);
                rects.push(whole);
            }
        }
        let patches = &blurs.patches;
        let overlaps = |end: usize| patches[..end].iter().any(|patch| patch.to.overlaps(&patches[end].to));
        Self {
            layouts: layouts.to_vec(),
            uploads: StagingLayout::new(rects.into_iter().map(|rect| (rect, 0))),
            // Each is aligned as in the tile memory, so that whole groups are written.
            downloads: StagingLayout::new(patches.iter().map(|patch| (patch.to, patch.offset % PACKED_GROUP))),
            patches_overlap: (1..patches.len()).any(overlaps),
            blurs,
        }
    }

    /// The planes of the frames that they are for.
    pub fn layouts(&self) -> &[PlaneLayout] {
        &self.layouts
    }

    /// The blurs, of a picture on the device that has what is uploaded. Beyond that its samples may have any value.
    pub fn blurs(&self) -> &BlurTiles {
        &self.blurs
    }

    /// The bytes of the frame that what the regions cover depends on. They may overlap.
    pub fn uploads(&self) -> &StagingLayout {
        &self.uploads
    }

    /// The bytes of the frame that are written, one rectangle for each of [`BlurTiles::patches`].
    pub fn downloads(&self) -> &StagingLayout {
        &self.downloads
    }

    /// Whether a byte of the frame is in two patches.
    pub fn patches_overlap(&self) -> bool {
        self.patches_overlap
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const COST: CropCost = CropCost { column_step: 16, operation_bytes: [1; 2] };

    fn tiles(regions: &[([u32; 4], f64)]) -> TransferTiles {
        let region = |([x, y, width, height], sigma): &([u32; 4], f64)| BlurRegion {
            rect: Rect::new(*x, *y, *width, *height).unwrap(),
            params: BlurParams::new(*sigma, 0).unwrap(),
        };
        let regions = regions.iter().map(region).collect();
        let cover = BlurCover { planes: Selection::ALL, regions };
        TransferTiles::new(&cover, &[PlaneLayout::new(400, 300, 3, 8)], COST, COST)
    }

    /// Threads write patches that do not overlap in any order.
    #[test]
    fn patches_that_overlap_are_known() {
        let first = [50, 50, 40, 40];
        assert!(tiles(&[(first, 1.0), ([80, 80, 40, 40], 2.0)]).patches_overlap());
        assert!(!tiles(&[(first, 1.0), ([90, 50, 40, 40], 2.0)]).patches_overlap());
        // Rectangles of one strength are made disjoint.
        assert!(!tiles(&[(first, 1.0), ([80, 80, 40, 40], 1.0)]).patches_overlap());
    }

    #[test]
    fn a_plane_is_uploaded_once_at_most() {
        let apart = tiles(&[([50, 50, 40, 40], 1.0), ([300, 200, 9, 9], 2.0)]);
        assert_eq!(apart.uploads().rects.len(), 2);
        assert!(apart.uploads().bytes() < 400 * 300 * 3 / 10);
        let sigmas = [1.0, 2.0, 3.0, 3.4];
        let large = sigmas.map(|sigma| ([50, 50, 300 - sigma as u32, 200], sigma));
        let whole = tiles(&large);
        assert_eq!(whole.uploads().bytes(), 400 * 300 * 3);
        assert_eq!(whole.uploads().rects.len(), 1);
    }
}
