// SPDX-License-Identifier: MPL-2.0
//! Blurs regions of a frame in host memory: executes [`BlurTiles`] there.

use super::error::EngineError;
use crate::filter::frame::{Frame, FrameMut, Plane, PlaneLayout};
use crate::filter::plan::Options;
use crate::filter::regions::Rect;
use crate::filter::tiles::{BlurCover, BlurTiles, BlurredCrop, Patch};

/// The blurred crops of a frame, until what the regions cover is written. The memory is used again for the next frame.
#[derive(Default)]
pub struct BlurredTiles {
    memory: Vec<u8>,
    tiles: BlurTiles,
}

impl BlurredTiles {
    /// Blurs what `cover` needs of a frame that holds its rows. `blur` blurs a frame in host memory, in a window for each of
    /// its planes at least; it is called once for each job. Nothing is written to `source`, and [`BlurredTiles::write`] may
    /// write to the same memory.
    pub fn blur<E: From<EngineError>>(
        &mut self,
        cover: &BlurCover,
        source: &Frame,
        mut blur: impl FnMut(Options, &Frame, &mut FrameMut, &[Rect]) -> Result<(), E>,
    ) -> Result<(), E> {
        let layouts: Vec<PlaneLayout> = source.iter().map(|plane| plane.layout).collect();
        self.tiles = BlurTiles::new(cover, &layouts, 1);
        self.reserve(self.tiles.bytes)?;
        for job in &self.tiles.jobs {
            let windows: Vec<Rect> = job.crops.iter().map(|blurred| blurred.window).collect();
            let (frame, mut out) = (sub_frame(source, &job.crops), output(&mut self.memory, &job.crops));
            blur(job.options, &frame, &mut out, &windows)?;
        }
        Ok(())
    }

    fn reserve(&mut self, bytes: usize) -> Result<(), EngineError> {
        if bytes > self.memory.len() {
            let out_of_memory = |_| EngineError::OutOfMemory { bytes };
            self.memory.try_reserve_exact(bytes - self.memory.len()).map_err(out_of_memory)?;
            self.memory.resize(bytes, 0);
        }
        Ok(())
    }

    /// Writes what the regions cover into the frame that was blurred, or into one of the same layouts that holds its rows.
    /// All other bytes stay unchanged.
    pub fn write(&self, frame: &mut FrameMut) {
        for Patch { to, offset, pitch, .. } in &self.tiles.patches {
            let plane = &mut frame[to.plane];
            for (i, row) in to.plane_rows().enumerate() {
                let blurred = &self.memory[offset + i * pitch..][..to.bytes];
                plane.data[row * plane.pitch + to.byte..][..to.bytes].copy_from_slice(blurred);
            }
        }
    }
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
