// SPDX-License-Identifier: MPL-2.0
//! The jobs of the last frames. Moving regions alternate between few strengths, and each strength has its plan.

use std::sync::Arc;

use crate::filter::cover::{Cover, Hide};
use crate::filter::frame::PlaneLayout;
use crate::filter::operation::Operation;
use crate::filter::parts::{Job, Tiles};
use crate::filter::plan::{Options, Plan};
use crate::process::{self, Level};
use crate::recent::Recent;
use crate::{cpu, cuda};

/// The number of jobs that are kept of each kind. More would only keep strengths or regions that do not come back.
const CAPACITY: usize = 16;

/// The backend for whose tiles a job is made.
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

/// The properties of a cover that its job depends on. Of the weights, these are the size, and whether there are excluded samples;
/// their values are not part of a job.
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
    /// Returns the job that blurs frames of these layouts.
    pub fn blur(&mut self, options: Options, layouts: &[PlaneLayout]) -> Arc<Job> {
        blur(&mut self.blurs, options, layouts)
    }

    /// Returns the job that covers frames of these layouts.
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

/// Returns the job that blurs frames of these layouts.
fn blur(jobs: &mut Recent<Options, Arc<Job>>, options: Options, layouts: &[PlaneLayout]) -> Arc<Job> {
    let make = || {
        let plan = Plan::new(options, layouts);
        process::log(Level::Debug, || format!("new plan for {:?}: {}", options.params, describe(&plan)));
        (options, Arc::new(Job::frame(Arc::new(plan))))
    };
    jobs.get_or_make(|key, job| *key == options && job.plan.layouts() == layouts, make, CAPACITY).clone()
}

/// Describes the form of a plan, the number of its operations and the sizes of its taps, for the log.
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
