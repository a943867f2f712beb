// SPDX-License-Identifier: MPL-2.0
//! The jobs of the last frames. Regions of moving objects take turns with few strengths, each of which has its plan.

use std::sync::Arc;

use crate::filter::cover::{Cover, Hide};
use crate::filter::frame::PlaneLayout;
use crate::filter::operation::Operation;
use crate::filter::parts::{Job, Tiles};
use crate::filter::plan::{Options, Plan};
use crate::process::{self, Level};
use crate::{cpu, cuda};

/// More than this are for strengths or regions that do not come back.
const CAPACITY: usize = 16;

/// What a job does.
#[derive(Debug, Clone, PartialEq)]
enum Key {
    Blur(Options),
    /// Of weights their size, and whether some are left out: their values are no part of a job.
    Cover(Hide, Option<((u32, u32), bool)>, TilesOf),
}

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

/// Jobs and what they do, the most recently used last.
#[derive(Default)]
pub struct JobCache(Vec<(Key, Arc<Job>)>);

impl JobCache {
    /// Blurs frames of these layouts.
    pub fn blur(&mut self, options: Options, layouts: &[PlaneLayout]) -> Arc<Job> {
        let is_same = |key: &Key| *key == Key::Blur(options);
        self.get(layouts, is_same, |_| {
            let plan = Plan::new(options, layouts);
            process::log(Level::Debug, || format!("new plan for {:?}: {}", options.params, describe(&plan)));
            (Key::Blur(options), Job::frame(Arc::new(plan)))
        })
    }

    /// Covers frames of these layouts.
    pub fn cover(&mut self, cover: &Cover, layouts: &[PlaneLayout], tiles: TilesOf) -> Arc<Job> {
        let weights = cover.soft.as_ref().map(|soft| (soft.weights.size(), soft.excluded.is_some()));
        let is_same = |key: &Key| matches!(key, Key::Cover(hide, of, by) if *hide == cover.hide && *of == weights && *by == tiles);
        self.get(layouts, is_same, |jobs| {
            let plan = Plan::cover(cover, layouts, |options| Arc::clone(&jobs.blur(options, layouts).plan));
            (Key::Cover(cover.hide.clone(), weights, tiles), Job::cover(plan, tiles.tiles()))
        })
    }

    fn get(
        &mut self,
        layouts: &[PlaneLayout],
        is_same: impl Fn(&Key) -> bool,
        make: impl FnOnce(&mut Self) -> (Key, Job),
    ) -> Arc<Job> {
        let fits = |(key, job): &(Key, Arc<Job>)| is_same(key) && job.plan.layouts() == layouts;
        let entry = match self.0.iter().rposition(fits) {
            Some(index) => self.0.remove(index),
            None => {
                let (key, job) = make(self);
                self.0.drain(..(self.0.len() + 1).saturating_sub(CAPACITY));
                (key, Arc::new(job))
            }
        };
        let job = Arc::clone(&entry.1);
        self.0.push(entry);
        job
    }
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
    fn the_least_recently_used_plan_is_dropped() {
        let mut cache = JobCache::default();
        let options = |sigma: f64| Options::from(BlurParams::new(sigma, 0).unwrap());
        let layout = |width: u32| [PlaneLayout::new(width, 9, 1, 8)];
        for width in 1..=CAPACITY as u32 + 4 {
            assert_eq!(cache.blur(options(2.0), &layout(width)).plan.layouts(), layout(width));
            assert!(!cache.blur(options(2.0), &layout(1)).plan.is_wide());
        }
        let widths: Vec<u32> = cache.0.iter().map(|(_, job)| job.plan.layouts()[0].width).collect();
        assert_eq!((widths.len(), widths[0], widths[CAPACITY - 1]), (CAPACITY, 6, 1));
        assert!(cache.blur(options(20.0), &layout(1)).plan.is_wide(), "other options have another plan");
    }
}
