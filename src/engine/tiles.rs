// SPDX-License-Identifier: MPL-2.0
//! Blurs regions of a frame in host memory: executes [`BlurTiles`] there.

use super::error::EngineError;
use crate::filter::frame::{Frame, FrameMut, Plane, PlaneLayout};
use crate::filter::plan::Options;
use crate::filter::regions::Rect;
use crate::filter::tiles::{BlurCover, BlurTiles, BlurredCrop, CropCost, Patch};

/// The tiles of the last frame, which are those of the next one too if nothing moves.
#[derive(Default)]
pub struct TileCache {
    made_for: Option<(BlurCover, Vec<PlaneLayout>, CropCost)>,
    tiles: BlurTiles,
}

impl TileCache {
    /// The tiles of a cover for frames of these planes.
    pub fn get(&mut self, cover: &BlurCover, layouts: &[PlaneLayout], cost: CropCost) -> &BlurTiles {
        let is_same = self.made_for.as_ref().is_some_and(|(own_cover, own_layouts, own_cost)| {
            own_cover == cover && own_layouts == layouts && *own_cost == cost
        });
        if !is_same {
            self.tiles = BlurTiles::new(cover, layouts, cost);
            self.made_for = Some((cover.clone(), layouts.to_vec(), cost));
        }
        &self.tiles
    }
}

/// The blurred crops of a frame, until what the regions cover is written. The memory is used again for the next frame.
#[derive(Default)]
pub struct BlurredTiles {
    memory: Vec<u8>,
    cache: TileCache,
}

impl BlurredTiles {
    /// Blurs what `cover` needs of a frame that holds its rows. `blur` blurs a frame in host memory, in a window for each of
    /// its planes at least; it is called once for each job. Nothing is written to `source`, and [`BlurredTiles::write`] may
    /// write to the same memory.
    pub fn blur<E: From<EngineError>>(
        &mut self,
        cover: &BlurCover,
        source: &Frame,
        cost: CropCost,
        mut blur: impl FnMut(Options, &Frame, &mut FrameMut, &[Rect]) -> Result<(), E>,
    ) -> Result<(), E> {
        let layouts: Vec<PlaneLayout> = source.iter().map(|plane| plane.layout).collect();
        let Self { memory, cache } = self;
        let tiles = cache.get(cover, &layouts, cost);
        reserve(memory, tiles.bytes)?;
        for job in &tiles.jobs {
            let windows: Vec<Rect> = job.crops.iter().map(|blurred| blurred.window).collect();
            let (frame, mut out) = (sub_frame(source, &job.crops), output(memory, &job.crops));
            blur(job.options, &frame, &mut out, &windows)?;
        }
        Ok(())
    }

    /// Writes what the regions cover into the frame that was blurred, or into one of the same layouts that holds its rows.
    /// All other bytes stay unchanged.
    pub fn write(&self, frame: &mut FrameMut) {
        for Patch { to, offset, pitch, .. } in &self.cache.tiles.patches {
            let plane = &mut frame[to.plane];
            for (i, row) in to.plane_rows().enumerate() {
                let blurred = &self.memory[offset + i * pitch..][..to.bytes];
                plane.data[row * plane.pitch + to.byte..][..to.bytes].copy_from_slice(blurred);
            }
        }
    }
}

fn reserve(memory: &mut Vec<u8>, bytes: usize) -> Result<(), EngineError> {
    if bytes > memory.len() {
        let out_of_memory = |_| EngineError::OutOfMemory { bytes };
        memory.try_reserve_exact(bytes - memory.len()).map_err(out_of_memory)?;
        memory.resize(bytes, 0);
    }
    Ok(())
}

/// The memory of crops that follow each other, as a frame.
fn output<'a>(memory: &'a mut [u8], crops: &[BlurredCrop]) -> FrameMut<'a> {
    let mut rest = &mut memory[crops[0].offset..];
    let plane = |blurred: &BlurredCrop| {
        let (data, others) = std::mem::take(&mut rest).split_at_mut(blurred.bytes());
        rest = others;
        Plane { layout: blurred.crop.layout, pitch: blurred.pitch, data }
    };
    crops.iter().map(plane).collect()
}

/// The crops of a frame, as a frame.
fn sub_frame<'a>(source: &Frame<'a>, crops: &[BlurredCrop]) -> Frame<'a> {
    let plane = |BlurredCrop { crop, .. }: &BlurredCrop| {
        let Plane { pitch, data, .. } = source[crop.plane];
        let (start, len) = crop.bytes_in(pitch);
        Plane { layout: crop.layout, pitch, data: &data[start..start + len] }
    };
    crops.iter().map(plane).collect()
}
