// SPDX-License-Identifier: MPL-2.0
//! The blurred regions of a frame as the pipeline takes them: what each Gaussian covers, and what its plan computes for that.

use std::sync::Arc;

use crate::filter::cover::Hide;
use crate::filter::frame::PlaneLayout;
use crate::filter::parts::{Needs, Tiles};
use crate::filter::picture::{FieldRect, PictureGeometry};
use crate::filter::plan::{Options, Plan};

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
    /// Of frames of these planes, with weaker blurs first: where they overlap, the last one counts. `plan` returns the plan of a
    /// whole frame.
    pub fn new(hide: &Hide, layouts: &[PlaneLayout], tiles: Tiles, mut plan: impl FnMut(Options) -> Arc<Plan>) -> Self {
        let blur = |(options, covered)| RegionBlur::new(plan(options), covered, tiles);
        let blurs = hide.gaussians(&PictureGeometry::new(layouts)).into_iter().map(blur).collect();
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
