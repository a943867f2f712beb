// SPDX-License-Identifier: MPL-2.0
//! What the device does for the regions of a frame, which stays the same while nothing moves.

use crate::filter::frame::PlaneLayout;
use crate::filter::tiles::BlurCover;

/// What was computed for the regions of the last frame, which is right for the next one too if nothing moves.
pub struct TileCache<T> {
    made_for: Option<(BlurCover, Vec<PlaneLayout>)>,
    tiles: T,
}

impl<T: Default> Default for TileCache<T> {
    fn default() -> Self {
        Self { made_for: None, tiles: T::default() }
    }
}

impl<T> TileCache<T> {
    /// What `make` returns for a cover of frames of these planes.
    pub fn get(
        &mut self,
        cover: &BlurCover,
        layouts: &[PlaneLayout],
        make: impl FnOnce(&BlurCover, &[PlaneLayout]) -> T,
    ) -> &T {
        let is_same =
            self.made_for.as_ref().is_some_and(|(own_cover, own_layouts)| own_cover == cover && own_layouts == layouts);
        if !is_same {
            self.tiles = make(cover, layouts);
            self.made_for = Some((cover.clone(), layouts.to_vec()));
        }
        &self.tiles
    }
}
