// SPDX-License-Identifier: MPL-2.0
//! The plans of the last frames. Regions of moving objects take turns with few strengths, each of which has its plan.

use std::sync::Arc;

use crate::filter::frame::PlaneLayout;
use crate::filter::operation::Operation;
use crate::filter::plan::{Options, Plan};
use crate::log::Level;
use crate::process;

/// More plans than this are for strengths that do not come back.
const CAPACITY: usize = 16;

/// Plans and the options they were made with, the most recently used last.
#[derive(Default)]
pub struct PlanCache(Vec<(Options, Arc<Plan>)>);

impl PlanCache {
    /// The plan for frames of these layouts.
    pub fn get(&mut self, options: Options, layouts: &[PlaneLayout]) -> Arc<Plan> {
        let fits = |(made_with, plan): &(Options, Arc<Plan>)| *made_with == options && plan.layouts() == layouts;
        let entry = match self.0.iter().rposition(fits) {
            Some(index) => self.0.remove(index),
            None => {
                let plan = Plan::new(options, layouts);
                process::log(Level::Debug, &format!("new plan for {:?}: {}", options.params, describe(&plan)));
                self.0.drain(..(self.0.len() + 1).saturating_sub(CAPACITY));
                (options, Arc::new(plan))
            }
        };
        let plan = Arc::clone(&entry.1);
        self.0.push(entry);
        plan
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
        let mut cache = PlanCache::default();
        let options = |sigma: f64| Options::from(BlurParams::new(sigma, 0).unwrap());
        let layout = |width: u32| [PlaneLayout::new(width, 9, 1, 8)];
        for width in 1..=CAPACITY as u32 + 4 {
            assert_eq!(cache.get(options(2.0), &layout(width)).layouts(), layout(width));
            assert!(!cache.get(options(2.0), &layout(1)).is_wide());
        }
        let widths: Vec<u32> = cache.0.iter().map(|(_, plan)| plan.layouts()[0].width).collect();
        assert_eq!((widths.len(), widths[0], widths[CAPACITY - 1]), (CAPACITY, 6, 1));
        assert!(cache.get(options(20.0), &layout(1)).is_wide(), "other options have another plan");
    }
}
