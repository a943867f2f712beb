// SPDX-License-Identifier: MPL-2.0
//! The jobs of the last frames. Regions of moving objects take turns with few strengths, each of which has its plan.

use std::sync::Arc;

use crate::filter::cover::{Cover, Hide};
use crate::filter::frame::PlaneLayout;
use crate::filter::operation::Operation;
use crate::filter::parts::{Job, Tiles};
use crate::filter::plan::{Options, Plan};
use crate::process::{self, Level};
use crate::recent::Recent;
use crate::{cpu, cuda};

/// More than this are for strengths or regions that do not come back.
const CAPACITY: usize = 16;

/// The backend whose tiles a job consists of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TilesOf {
    Cuda,
    Cpu,
}

impl TilesOf {
    fn tiles(self) -> Tiles {
        match self {
            Self::Cuda => cuda::TILES,
            Self::Cpu => cpu::TILES,
        }
    }
}

/// What a job of a cover is made for. Of weights only the size counts, and whether some are left out: their values are no part of a job.
struct CoverKey {
    hide: Hide,
    weights: Option<((u32, u32), bool)>,
    tiles: TilesOf,
}

/// The jobs of the last blurs and covers.
#[derive(Default)]
pub struct JobCache {
    blurs: Recent<Options, Arc<Job>>,
    covers: Recent<CoverKey, Arc<Job>>,
}

impl JobCache {
    /// Blurs frames of these layouts.
    pub fn blur(&mut self, options: Options, layouts: &[PlaneLayout]) -> Arc<Job> {
        blur(&mut self.blurs, options, layouts)
    }

    /// Covers frames of these layouts.
    pub fn cover(&mut self, cover: &Cover, layouts: &[PlaneLayout], tiles: TilesOf) -> Arc<Job> {
        let weights = cover.soft.as_ref().map(|soft| (soft.weights.size(), soft.excluded.is_some()));
        let Self { blurs, covers } = self;
        let is_same = |key: &CoverKey, job: &Arc<Job>| {
            let is_same = key.hide == cover.hide && key.weights == weights && key.tiles == tiles;
            is_same && job.plan.layouts() == layouts
        };
        let make = || {
            let plan = Plan::cover(cover, layouts, |options| Arc::clone(&blur(blurs, options, layouts).plan));
            let key = CoverKey { hide: cover.hide.clone(), weights, tiles };
            (key, Arc::new(Job::cover(plan, tiles.tiles())))
        };
        covers.get_or_make(is_same, make, CAPACITY).clone()
    }
}

/// The job that blurs frames of these layouts.
fn blur(jobs: &mut Recent<Options, Arc<Job>>, options: Options, layouts: &[PlaneLayout]) -> Arc<Job> {
    let make = || {
        let plan = Plan::new(options, layouts);
        process::log(Level::Debug, || format!("new plan for {:?}: {}", options.params, describe(&plan)));
        (options, Arc::new(Job::frame(Arc::new(plan))))
    };
    jobs.get_or_make(|key, job| *key == options && job.plan.layouts() == layouts, make, CAPACITY).clone()
}

/// A plan's form, the sizes of its kernels and its steps, for the log.
fn describe(plan: &Plan) -> String {
    let taps = |operation: &Operation| match operation {
        Operation::Blur { taps, .. } => {
            let [rows, columns] = [&taps.rows, &taps.columns].map(|taps| 2 * taps.radius() + 1);
            Some(format!("{rows}x{columns}"))
        }
        _ => None,
    };
    let taps = plan.operations().iter().filter_map(taps).collect::<Vec<_>>().join(", ");
    format!("the {} form, {} operations, taps {taps}", form(plan), plan.operations().len())
}

/// The name of a plan's form in `stats` and the log.
pub fn form(plan: &Plan) -> &'static str {
    if plan.is_wide() { "wide" } else { "direct" }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::BlurParams;

    #[test]
    fn a_job_is_made_once_for_layouts_and_options() {
        let mut cache = JobCache::default();
        let options = |sigma: f64| Options::from(BlurParams::new(sigma, 0).unwrap());
        let layout = |width: u32| [PlaneLayout::new(width, 9, 1, 8)];
        let first = cache.blur(options(2.0), &layout(1));
        assert_eq!(cache.blur(options(2.0), &layout(2)).plan.layouts(), layout(2));
        assert!(cache.blur(options(20.0), &layout(1)).plan.is_wide(), "other options have another plan");
        assert!(Arc::ptr_eq(&first, &cache.blur(options(2.0), &layout(1))));
    }
}
