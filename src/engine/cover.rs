// SPDX-License-Identifier: MPL-2.0
//! Covers regions of a frame, in place or in a copy: on the CPU, on the device, or through it.

use std::sync::Arc;
use std::time::Instant;

use super::error::EngineError;
use super::in_flight::{BorrowedInPlace, CompletedFrame, FrameAccess};
use super::plan_cache::form;
use super::{ActiveBackend, Engine};
use crate::cuda::{CudaError, DeviceCover, PromisedFrames, SubmitError};
use crate::filter::fill::{PlaneValues, fill, fills};
use crate::filter::frame::{Destination, FrameMut, PlaneLayout, Source, ValidFrames};
use crate::filter::mosaic::{CellGrid, MosaicRegion, mosaic};
use crate::filter::region_blur::{BlurCover, RegionBlurPlan};
use crate::filter::regions::Rect;
use crate::{cpu, cuda};

/// What hides which parts of a frame. Rectangles are in luma samples and rounded outwards in subsampled planes; what is
/// beyond the frame is ignored. Neither the order of regions nor duplicates matter.
#[derive(Debug, Clone, PartialEq)]
pub enum Cover {
    /// The bytes of the full-frame blur.
    Blur(BlurCover),
    /// Cells of one colour. Where regions overlap, the larger cells count.
    Mosaic(Vec<MosaicRegion>),
    /// One colour.
    Fill {
        /// What is covered.
        rects: Vec<Rect>,
        /// The colour, one element for each plane.
        values: Vec<PlaneValues>,
    },
}

impl Cover {
    /// Covers nothing.
    pub const NOTHING: Self = Self::Mosaic(Vec::new());

    /// Whether no sample is covered, whatever the frame.
    pub fn is_empty(&self) -> bool {
        match self {
            Self::Blur(cover) => cover.is_empty(),
            Self::Mosaic(regions) => regions.is_empty(),
            Self::Fill { rects, .. } => rects.is_empty(),
        }
    }
}

impl Engine {
    /// Covers regions of a frame in host memory, in place. All other bytes stay unchanged, and on an error all bytes. Pinned
    /// memory is not accessed by the device here, because borrowed memory cannot be leaked: use [`Engine::cover_frame`] for that.
    ///
    /// Returns why the engine fell back to the CPU, if it did with this frame.
    pub fn cover(&mut self, cover: &Cover, frame: &mut FrameMut) -> Result<Option<CudaError>, EngineError> {
        Ok(self.cover_frame(cover, BorrowedInPlace(frame))?.failure)
    }

    /// Covers regions of a frame: one in host memory before this returns, one in device memory on its stream. The bytes are the
    /// same. The source and the destination of `access` are the same memory (in host memory, the source has no planes then); or
    /// they do not overlap, and the source is copied too, with the bytes between its rows.
    ///
    /// # Errors
    /// A frame in host memory that is covered in place stays unchanged; any other destination is undefined, and must not be shown.
    /// The CPU takes the place of CUDA only for frames in host memory.
    pub fn cover_frame<F: FrameAccess>(
        &mut self,
        cover: &Cover,
        mut access: F,
    ) -> Result<CompletedFrame<F>, EngineError> {
        match access.frames() {
            (Source::Host(_), Destination::Host(_)) => self.cover_on_host(cover, access),
            (Source::Device(_), Destination::Device(_)) => self.cover_on_device(cover, access),
            _ => Err(EngineError::MixedMemory),
        }
    }

    fn cover_on_device<F: FrameAccess>(
        &mut self,
        cover: &Cover,
        mut access: F,
    ) -> Result<CompletedFrame<F>, EngineError> {
        let (source, destination) = access.frames();
        let frames = ValidFrames::of_cover(source, destination)?;
        let layouts = frames.layouts();
        let (regions, grids, rects);
        let cover = match cover {
            Cover::Blur(cover) => {
                regions = self.region_blurs(cover, layouts);
                DeviceCover::Blur(&regions)
            }
            Cover::Mosaic(regions) => {
                grids = CellGrid::all(layouts, regions);
                DeviceCover::Mosaic(&grids)
            }
            Cover::Fill { rects: covered, values } => {
                rects = fills(layouts, covered, values);
                DeviceCover::Fill(&rects)
            }
        };
        let ActiveBackend::Cuda(cuda) = &mut self.backend else { return Err(EngineError::NeedsCuda) };
        // SAFETY: `FrameAccess` promises it for the memory and the streams of the frames, which `access` keeps alive, for good
        // if it is leaked.
        let frames = unsafe { PromisedFrames::new(frames) };
        match cuda.cover(&frames, &cover) {
            Ok(enqueued) => {
                self.stats.add_resident_frame(cuda, &enqueued);
                Ok(CompletedFrame { frame: access, failure: None, queued: !enqueued.synchronized })
            }
            Err(SubmitError { error, settled }) => {
                if !settled {
                    self.abandoned.count(&error);
                    access.leak();
                }
                Err(EngineError::OnDevice(error))
            }
        }
    }

    fn cover_on_host<F: FrameAccess>(
        &mut self,
        cover: &Cover,
        mut access: F,
    ) -> Result<CompletedFrame<F>, EngineError> {
        let (source, destination) = access.frames();
        ValidFrames::of_cover(source, destination)?;
        let mut failure = None;
        if let Cover::Blur(blur) = cover
            && let ActiveBackend::Cuda(_) = self.backend
        {
            match self.blur_through_device(blur, &mut access) {
                Ok(()) => return Ok(CompletedFrame { frame: access, failure: None, queued: false }),
                Err(SubmitError { error, settled }) => {
                    let settled = if settled { Ok(()) } else { Err(error.clone()) };
                    (access, failure) = self.fall_back(access, Some(error), settled)?;
                }
            }
        }
        self.cover_on_cpu(cover, &mut access)?;
        Ok(CompletedFrame { frame: access, failure, queued: false })
    }

    fn cover_on_cpu<F: FrameAccess>(&mut self, cover: &Cover, access: &mut F) -> Result<(), EngineError> {
        let (source, destination) = access.frames();
        let mut frames = ValidFrames::of_cover(source, destination)?;
        frames.copy_source();
        let started = Instant::now();
        let is_covered = match cover {
            Cover::Blur(cover) => {
                let regions = self.region_blurs(cover, frames.layouts());
                let ActiveBackend::Cpu(cpu) = &mut self.backend else { return Err(EngineError::NeedsCuda) };
                cpu.cover(&mut frames, &regions)?;
                !regions.blurs().is_empty()
            }
            // These are memory accesses: sending them through the device would take longer.
            Cover::Mosaic(regions) => {
                mosaic(&mut host_destination(access)?, regions)?;
                !regions.is_empty()
            }
            Cover::Fill { rects, values } => {
                fill(&mut host_destination(access)?, rects, values)?;
                !rects.is_empty()
            }
        };
        if is_covered {
            self.stats.frames_cpu += 1;
            // With CUDA, kernel times are the device's.
            if let ActiveBackend::Cpu(_) = self.backend {
                self.stats.kernel.add(started.elapsed());
            }
        }
        Ok(())
    }

    /// The blurs of a cover in the tiles of the backend.
    fn region_blurs(&mut self, cover: &BlurCover, layouts: &[PlaneLayout]) -> Arc<RegionBlurPlan> {
        let tiles = match self.backend {
            ActiveBackend::Cuda(_) => cuda::TILES,
            ActiveBackend::Cpu(_) => cpu::TILES,
        };
        let regions = self.regions.get(cover, layouts, tiles, &mut self.plans);
        self.stats.form = regions.blurs().last().map_or(self.stats.form, |blur| form(&blur.plan));
        regions
    }

    /// Blurs regions of a frame in host memory on the device, and waits.
    fn blur_through_device<F: FrameAccess>(&mut self, cover: &BlurCover, access: &mut F) -> Result<(), SubmitError> {
        let direct = access.can_leak();
        let (source, destination) = access.frames();
        let Ok(mut frames) = ValidFrames::of_cover(source, destination) else {
            unreachable!("the caller has checked it")
        };
        let regions = self.region_blurs(cover, frames.layouts());
        if regions.blurs().is_empty() {
            frames.copy_source();
            return Ok(());
        }
        let ActiveBackend::Cuda(cuda) = &mut self.backend else { unreachable!("the caller has checked it") };
        // SAFETY: `FrameAccess` promises it for the memory of the frames: `access` is leaked if the device may still read it.
        let mut frames = unsafe { PromisedFrames::new(frames) };
        let times = cuda.cover_host(&mut frames, &regions, direct)?;
        self.stats.add_cuda_frame(cuda, &times);
        Ok(())
    }
}

fn host_destination<F: FrameAccess>(access: &mut F) -> Result<FrameMut<'_>, EngineError> {
    match access.frames() {
        (_, Destination::Host(frame)) => Ok(frame),
        _ => Err(EngineError::MixedMemory),
    }
}
