// SPDX-License-Identifier: MPL-2.0
//! The blurs of the regions of the last frame, which are right for the next one too if nothing moves.

use std::sync::Arc;

use super::plan_cache::PlanCache;
use crate::filter::frame::PlaneLayout;
use crate::filter::parts::Tiles;
use crate::filter::region_blur::{BlurCover, RegionBlurPlan};

/// The regions of the last frame, and what was planned for them.
#[derive(Default)]
pub struct RegionCache(Option<(BlurCover, Arc<RegionBlurPlan>)>);

impl RegionCache {
    /// The blurs of a cover of frames of these planes, in the tiles of the backend, for which the cache is made.
    pub fn get(
        &mut self,
        cover: &BlurCover,
        layouts: &[PlaneLayout],
        tiles: Tiles,
        plans: &mut PlanCache,
    ) -> Arc<RegionBlurPlan> {
        let same = |(of, regions): &(BlurCover, Arc<RegionBlurPlan>)| of == cover && regions.layouts() == layouts;
        let (_, regions) = match self.0.take().filter(same) {
            Some(last) => self.0.insert(last),
            None => {
                let regions = RegionBlurPlan::new(cover, layouts, tiles, |options| plans.get(options, layouts));
                self.0.insert((cover.clone(), Arc::new(regions)))
            }
        };
        Arc::clone(regions)
    }
}
