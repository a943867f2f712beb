// SPDX-License-Identifier: MPL-2.0
//! The blurred regions of a frame: which rectangles each Gaussian covers, and what its plan computes for them. Regions are
//! blurred by the plans of whole frames, so they have the bytes of the full-frame blur.

use std::sync::Arc;

use super::BlurParams;
use super::frame::PlaneLayout;
use super::parts::{Needs, Tiles};
use super::picture::{FieldRect, PictureGeometry};
use super::plan::{Options, Plan, Selection};
use super::regions::{self, Rect};
use super::samples::covered_fields;

/// A rectangle that is blurred.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct BlurRegion {
    /// In luma samples of the frame. What is beyond the frame is ignored.
    pub rect: Rect,
    /// The Gaussian. Where regions overlap, the one with the larger σ counts.
    pub params: BlurParams,
}

/// The regions of a frame that are blurred, each channel by itself: weighted by alpha, the colour would stay where alpha
/// is 0. The order of the regions does not matter.
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

fn contains(outer: Rect, inner: Rect) -> bool {
    outer.x() <= inner.x()
        && outer.y() <= inner.y()
        && outer.right() >= inner.right()
        && outer.bottom() >= inner.bottom()
}

/// The blur of regions by one Gaussian.
#[derive(Debug)]
pub struct RegionBlur {
    /// Of whole frames.
    pub plan: Arc<Plan>,
    /// What is written, by plane.
    pub covered: Vec<(usize, FieldRect)>,
    /// What the plan computes and reads for that.
    pub needs: Needs,
}

impl RegionBlur {
    /// Of what is covered, by plane.
    pub fn new(plan: Arc<Plan>, covered: Vec<(usize, FieldRect)>, tiles: Tiles) -> Self {
        Self { needs: plan.needs(&covered, tiles), plan, covered }
    }
}

/// The blurs of the regions of a frame. They read the frame before anything is written, and do not depend on each other.
#[derive(Debug)]
pub struct RegionBlurPlan {
    layouts: Vec<PlaneLayout>,
    blurs: Vec<RegionBlur>,
}

impl RegionBlurPlan {
    /// For frames of these planes, with weaker blurs first: where they overlap, the last one counts. `plan` returns the plan of a
    /// whole frame.
    pub fn new(
        cover: &BlurCover,
        layouts: &[PlaneLayout],
        tiles: Tiles,
        mut plan: impl FnMut(Options) -> Arc<Plan>,
    ) -> Self {
        let picture = PictureGeometry::new(layouts);
        let mut blur = |(options, rects): (Options, Vec<Rect>)| {
            let is_blurred = |(plane, _): &(usize, FieldRect)| !options.is_passthrough(&layouts[*plane..=*plane]);
            let rects = regions::disjoint(&picture.clip_all(&rects));
            let covered: Vec<_> =
                rects.iter().flat_map(|rect| covered_fields(&picture, *rect)).filter(is_blurred).collect();
            (!covered.is_empty()).then(|| RegionBlur::new(plan(options), covered, tiles))
        };
        let blurs = cover.by_strength().into_iter().filter_map(&mut blur).collect();
        Self { layouts: layouts.to_vec(), blurs }
    }

    /// Of these blurs, for frames of these planes.
    ///
    /// # Panics
    /// If a plan is for other frames.
    pub fn of(blurs: Vec<RegionBlur>, layouts: &[PlaneLayout]) -> Self {
        assert!(blurs.iter().all(|blur| blur.plan.layouts() == layouts), "a plan is for other frames");
        Self { layouts: layouts.to_vec(), blurs }
    }

    /// The planes of the frames that it is for.
    pub fn layouts(&self) -> &[PlaneLayout] {
        &self.layouts
    }

    /// What is written, by plane; may overlap.
    pub fn covered(&self) -> Vec<(usize, FieldRect)> {
        self.blurs.iter().flat_map(|blur| blur.covered.iter().copied()).collect()
    }

    /// What is read, by plane: one rectangle for each field that has all.
    pub fn reads(&self) -> Vec<(usize, FieldRect)> {
        let mut all: Vec<(usize, FieldRect)> = Vec::new();
        for (plane, read) in self.blurs.iter().flat_map(|blur| &blur.needs.reads) {
            match all.iter_mut().find(|(of, FieldRect { field, .. })| of == plane && *field == read.field) {
                Some((_, hull)) => hull.rect = hull.rect.hull(read.rect),
                None => all.push((*plane, *read)),
            }
        }
        all
    }

    /// The blurs, weaker ones first.
    pub fn blurs(&self) -> &[RegionBlur] {
        &self.blurs
    }
}
