// SPDX-License-Identifier: MPL-2.0
//! Covers, which hide parts of a frame, and their plans. Regions are blurred by the plans for whole frames, so they have the
//! bytes of the full-frame blur.

use std::sync::Arc;

use super::BlurParams;
use super::fill::{self, PlaneValues};
use super::frame::{Field, PlaneLayout};
use super::inpainting::{CellPyramid, NODES, levels, one_level};
use super::mosaic::{self, CellGrid, MosaicRegion};
use super::operation::{Buffer, Cells, CoverSamples, Layer, Mix, Operation, View, WeightsOf, all_of};
use super::picture::{FieldRect, PictureGeometry, Placement};
use super::plan::{Options, Plan, Selection};
use super::regions::{self, Rect};
use super::samples::covered_fields;
use super::weights::{self, Weights};

/// A cover: what is hidden in a frame, and how. Rectangles are in luma samples and are rounded outwards in subsampled planes. The
/// part of a rectangle beyond the frame is ignored. Neither the order of regions nor duplicates matter.
#[derive(Debug, Clone, PartialEq)]
pub struct Cover {
    /// What hides, and where.
    pub hide: Hide,
    /// The weights of the cover; `None` if it hides completely.
    pub soft: Option<Softness>,
}

/// What hides parts of a frame, and where.
#[derive(Debug, Clone, PartialEq)]
pub enum Hide {
    /// The bytes of the full-frame blur, with each channel blurred independently. A blur weighted by alpha would leave the colour
    /// unchanged where alpha is 0.
    Blur {
        /// Which channels are blurred; the others keep their values.
        planes: Selection,
        /// The rectangles that are blurred.
        regions: Vec<BlurRegion>,
    },
    /// Cells of one colour. Where regions overlap, the larger cells are visible.
    Mosaic(Vec<MosaicRegion>),
    /// One colour.
    Fill {
        /// The rectangles that are filled.
        rects: Vec<Rect>,
        /// The colour, one element for each plane.
        values: Vec<PlaneValues>,
    },
}

/// A rectangle and its blur.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlurRegion {
    /// The rectangle, in luma samples of the frame. The part beyond the frame is ignored.
    pub rect: Rect,
    /// The Gaussian. Where regions overlap, the one with the larger σ is visible.
    pub params: BlurParams,
}

/// Weights of a cover. Each sample that the cover writes becomes `(weight · cover + (255 - weight) · sample + 127) / 255`.
#[derive(Debug, Clone, PartialEq)]
pub struct Softness {
    /// The weights of the cover, for frames of this size.
    pub weights: Weights,
    /// The weights of the samples that are left out of the blurs. The blurs read an estimate from the surroundings instead, so
    /// that the colours of an object do not bleed into the blur around it.
    pub excluded: Option<Weights>,
}

impl Softness {
    /// All weights. Those of the cover are the first.
    pub fn all(&self) -> impl Iterator<Item = &Weights> {
        [Some(&self.weights), self.excluded.as_ref()].into_iter().flatten()
    }
}

impl From<Hide> for Cover {
    fn from(hide: Hide) -> Self {
        Self { hide, soft: None }
    }
}

impl Cover {
    /// A cover that covers nothing.
    pub const NOTHING: Self = Self { hide: Hide::Mosaic(Vec::new()), soft: None };

    /// Whether the cover covers no sample of any frame.
    pub fn is_empty(&self) -> bool {
        match &self.hide {
            Hide::Blur { regions, .. } => regions.iter().all(|region| region.params.is_passthrough()),
            Hide::Mosaic(regions) => regions.is_empty(),
            Hide::Fill { rects, .. } => rects.is_empty(),
        }
    }

    /// The channels that are covered.
    pub fn planes(&self) -> Selection {
        if let Hide::Blur { planes, .. } = self.hide { planes } else { Selection::ALL }
    }
}

impl Hide {
    /// The Gaussians, and the rectangles of each plane that each of them covers. Weaker Gaussians come first, so that stronger
    /// ones are written over them.
    pub fn gaussians(&self, picture: &PictureGeometry) -> Vec<(Options, Vec<(usize, FieldRect)>)> {
        let Self::Blur { planes, regions } = self else { return Vec::new() };
        let key = |region: &BlurRegion| (region.params.sigma(), region.params.kernel_size());
        let mut regions: Vec<BlurRegion> =
            regions.iter().filter(|region| !region.params.is_passthrough()).copied().collect();
        // `total_cmp` suffices, because σ is a finite number.
        regions.sort_by(|a, b| key(a).0.total_cmp(&key(b).0).then(key(a).1.cmp(&key(b).1)));
        let is_hidden = |(index, region): &(usize, &BlurRegion)| {
            regions[index + 1..].iter().any(|stronger| stronger.rect.contains(region.rect))
        };
        let seen: Vec<BlurRegion> =
            regions.iter().enumerate().filter(|region| !is_hidden(region)).map(|(_, region)| *region).collect();
        let gaussian = |regions: &[BlurRegion]| {
            let options = Options { planes: *planes, ..regions[0].params.into() };
            let layouts = picture.layouts();
            let is_blurred = |(plane, _): &(usize, FieldRect)| !options.is_passthrough(&layouts[*plane..=*plane]);
            let rects: Vec<Rect> = regions.iter().filter_map(|region| picture.clipped(region.rect)).collect();
            let rects = regions::disjoint(&rects).into_iter();
            let covered: Vec<_> = rects.flat_map(|rect| covered_fields(picture, rect)).filter(is_blurred).collect();
            (!covered.is_empty()).then_some((options, covered))
        };
        seen.chunk_by(|one, other| one.params == other.params).filter_map(gaussian).collect()
    }
}

/// The cover of one field of a plane.
struct FieldCover {
    plane: usize,
    field: Field,
    layers: Vec<Layer>,
    grids: Vec<CellGrid>,
}

/// The covers of all fields of a frame.
#[derive(Default)]
struct Fields(Vec<FieldCover>);

impl Fields {
    /// Returns the entry of a field of a plane. Adds it if it is missing.
    fn of(&mut self, plane: usize, field: Field) -> &mut FieldCover {
        let index = self.0.iter().position(|covered| covered.plane == plane && covered.field == field);
        let index = index.unwrap_or_else(|| {
            self.0.push(FieldCover { plane, field, layers: Vec::new(), grids: Vec::new() });
            self.0.len() - 1
        });
        &mut self.0[index]
    }
}

impl FieldCover {
    /// Adds a rectangle to the last layer if this has the same samples, else to a new layer.
    fn add(&mut self, samples: CoverSamples, rect: Rect) {
        match self.layers.last_mut() {
            Some(last) if last.samples == samples => last.rects.push(rect),
            _ => self.layers.push(Layer { samples, rects: vec![rect] }),
        }
    }
}

impl Plan {
    /// The plan that covers frames with these layouts, in place or into another buffer (see `Job::copied_planes`). `plan` returns
    /// the plan that blurs a whole frame.
    pub fn cover(cover: &Cover, layouts: &[PlaneLayout], mut plan: impl FnMut(Options) -> Arc<Self>) -> Self {
        let picture = PictureGeometry::new(layouts);
        let mut all = Self::empty(layouts);
        let mut fields = Fields::default();
        match &cover.hide {
            hide @ Hide::Blur { .. } => {
                let gaussians = hide.gaussians(&picture);
                let leaves_out = cover.soft.as_ref().is_some_and(|soft| soft.excluded.is_some());
                let sources = if leaves_out && !gaussians.is_empty() {
                    all.inpaint(&picture)
                } else {
                    (0..layouts.len()).map(Buffer::Source).collect()
                };
                for (options, covered) in gaussians {
                    let blurred = all.blur_into_temporaries(&plan(options), &sources);
                    for (plane, FieldRect { field, rect }) in covered {
                        let view = View { buffer: blurred[plane], field };
                        fields.of(plane, field).add(CoverSamples::Plane(view), rect);
                    }
                }
            }
            Hide::Mosaic(regions) => {
                for region in mosaic::in_order(regions) {
                    for (plane, covered) in covered_fields(&picture, region.rect()) {
                        let of_field = fields.of(plane, covered.field);
                        let first = of_field.grids.len();
                        of_field.grids.extend(CellGrid::of_field(&picture, &region, plane, covered));
                        let grids = first..of_field.grids.len();
                        of_field.add(CoverSamples::Mosaic(grids), covered.rect);
                    }
                }
            }
            Hide::Fill { rects, values } => {
                for (plane, FieldRect { field, rect }) in rects.iter().flat_map(|rect| covered_fields(&picture, *rect))
                {
                    let pattern = fill::pattern(&layouts[plane], &values[plane]);
                    fields.of(plane, field).add(CoverSamples::Pattern(pattern), rect);
                }
            }
        }
        for FieldCover { plane, field, layers, grids } in fields.0 {
            let layout = &layouts[plane];
            let passthrough_mask = cover.planes().passthrough_mask(layout);
            let placement = picture.placement(plane, &field);
            let source = View { buffer: Buffer::Source(plane), field };
            let mix = |_| Mix { weights: WeightsOf::Cover, placement, beside: source, passthrough_mask };
            let cells = (!grids.is_empty()).then(|| all.cells(CellPyramid::all(grids, one_level), source, None));
            let destination = View { buffer: Buffer::Destination(plane), field };
            let mix = cover.soft.as_ref().map(mix);
            all.push(Operation::Write { layers, cells, destination, mix });
        }
        all.sort();
        all
    }

    /// Adds an operation that writes the means of cells to a new temporary.
    fn cells(&mut self, grids: Vec<CellPyramid>, source: View, excluded: Option<Placement>) -> Cells {
        let words: usize = grids.iter().map(CellPyramid::words).sum();
        let view = self.add_temporary(PlaneLayout::new(words as u32, 1, 4, 8));
        let cells = Cells { grids: grids.into(), view };
        self.push(Operation::CellMeans { source, cells: cells.clone(), excluded });
        cells
    }

    /// Adds the operations that write the planes of a frame without its objects: estimates from the surroundings take the
    /// objects' place. Returns the buffers of these planes.
    fn inpaint(&mut self, picture: &PictureGeometry) -> Vec<Buffer> {
        let [width, height] = picture.size();
        let grids = CellGrid::whole(picture.layouts(), NODES * weights::cell((width, height)));
        let plane = |(plane, layout): (usize, &PlaneLayout)| {
            let buffer = self.add_temporary(*layout).buffer;
            for field in layout.fields() {
                let (source, destination) = (View { buffer: Buffer::Source(plane), field }, View { buffer, field });
                let placement = picture.placement(plane, &field);
                let is_of_field = |grid: &&CellGrid| grid.plane == plane && grid.field == field;
                let grids = CellPyramid::all(grids.iter().filter(is_of_field).cloned().collect(), levels);
                let cells = self.cells(grids, source, Some(placement));
                self.push(Operation::Spread(cells.clone()));
                let layers = vec![Layer { samples: CoverSamples::Estimates, rects: vec![all_of(&destination)] }];
                let mix = Mix { weights: WeightsOf::Excluded, placement, beside: source, passthrough_mask: 0 };
                self.push(Operation::Write { layers, cells: Some(cells), destination, mix: Some(mix) });
            }
            buffer
        };
        picture.layouts().iter().enumerate().map(plane).collect()
    }

    /// Adds the operations of `plan`, which blur the planes in `sources`. They write new temporaries instead of the frame.
    /// Returns the temporaries with the blurred planes.
    fn blur_into_temporaries(&mut self, plan: &Self, sources: &[Buffer]) -> Vec<Buffer> {
        let mut add = |layout: &PlaneLayout| self.add_temporary(*layout).buffer;
        let destinations: Vec<Buffer> = plan.layouts().iter().map(&mut add).collect();
        let temporaries: Vec<Buffer> = plan.temporaries().iter().map(add).collect();
        self.close_turn(destinations.len() + temporaries.len());
        let other = |buffer: Buffer| match buffer {
            Buffer::Source(index) => sources[index],
            Buffer::Destination(index) => destinations[index],
            Buffer::Temporary(index) => temporaries[index],
        };
        plan.operations().iter().for_each(|operation| self.push(operation.with_buffers(other)));
        destinations
    }
}
