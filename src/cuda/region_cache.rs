// SPDX-License-Identifier: MPL-2.0
//! The blurs of the regions of the last frame, which are right for the next one too if nothing moves.

use std::sync::Arc;

use super::kernels::region_blur::RegionBlurPlan;
use super::kernels::tiles::TILES;
use crate::filter::cover::Hide;
use crate::filter::frame::PlaneLayout;
use crate::filter::plan::{Options, Plan};

/// The regions of the last frame, and what was planned for them.
#[derive(Default)]
pub struct RegionCache(Option<(Hide, Arc<RegionBlurPlan>)>);

impl RegionCache {
    /// The blurs of what is hidden in frames of these planes. `plan` returns the plan of a whole frame.
    pub fn get(
        &mut self,
        hide: &Hide,
        layouts: &[PlaneLayout],
        plan: impl FnMut(Options) -> Arc<Plan>,
    ) -> Arc<RegionBlurPlan> {
        let same = |(of, regions): &(Hide, Arc<RegionBlurPlan>)| of == hide && regions.layouts() == layouts;
        let (_, regions) = match self.0.take().filter(same) {
            Some(last) => self.0.insert(last),
            None => self.0.insert((hide.clone(), Arc::new(RegionBlurPlan::new(hide, layouts, TILES, plan)))),
        };
        Arc::clone(regions)
    }
}
