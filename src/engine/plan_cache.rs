// SPDX-License-Identifier: MPL-2.0
//! The plans of the last frames. The crops of moving regions take turns with few sizes, and each size has its plan.

use std::sync::Arc;

use crate::filter::frame::PlaneLayout;
use crate::filter::plan::{Options, Plan};
use crate::log::Level;
use crate::process;

/// More plans than this are for sizes that do not come back.
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
                let (form, steps) = (form(&plan), plan.operations().len());
                let message = format!("new plan for {:?}: the {form} form, {steps} operations", options.params);
                process::log(Level::Debug, &message);
                self.0.drain(..(self.0.len() + 1).saturating_sub(CAPACITY));
                (options, Arc::new(plan))
            }
        };
        let plan = Arc::clone(&entry.1);
        self.0.push(entry);
        plan
    }
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
