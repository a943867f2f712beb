// SPDX-License-Identifier: MPL-2.0
//! Blurs regions of a frame in host memory on the CPU: executes [`BlurTiles`] there.

use super::error::EngineError;
use super::plan_cache::PlanCache;
use crate::cpu::CpuEngine;
use crate::filter::frame::{Destination, Frame, FrameMut, Plane, PlaneLayout, Source, ValidFrames};
use crate::filter::regions::Rect;
use crate::filter::tiles::{BlurCover, BlurTiles, BlurredCrop, CropCost, Patch};

/// 10 KB are blurred in the time that an operation on one more plane takes (two cores, AVX-512).
const CPU_COST: CropCost = CropCost { column_step: 1, operation_bytes: [10 << 10; 2] };

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

/// The blurred crops of a frame, until what the regions cover is written. The memory is used again for the next frame.
#[derive(Default)]
pub struct BlurredTiles {
    memory: Vec<u8>,
    cache: TileCache<BlurTiles>,
}

impl BlurredTiles {
    /// Blurs what `cover` needs of a frame that holds its rows. Nothing is written to `source`, and [`BlurredTiles::write`] may
    /// write to the same memory. Returns whether anything was blurred.
    pub fn blur(
        &mut self,
        cover: &BlurCover,
        source: &Frame,
        cpu: &mut CpuEngine,
        plans: &mut PlanCache,
    ) -> Result<bool, EngineError> {
        let layouts: Vec<PlaneLayout> = source.iter().map(|plane| plane.layout).collect();
        let Self { memory, cache } = self;
        let tiles = cache.get(cover, &layouts, |cover, layouts| BlurTiles::new(cover, layouts, CPU_COST));
        reserve(memory, tiles.bytes)?;
        for job in &tiles.jobs {
            let windows: Vec<Rect> = job.crops.iter().map(|blurred| blurred.window).collect();
            let (frame, out) = (sub_frame(source, &job.crops), output(memory, &job.crops));
            let mut frames = ValidFrames::new(Source::Host(frame), Destination::Host(out))?;
            let plan = plans.get(job.options, frames.layouts());
            cpu.blur_windows(&mut frames, &plan, &windows)?;
        }
        Ok(!tiles.jobs.is_empty())
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
