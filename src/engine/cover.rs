// SPDX-License-Identifier: MPL-2.0
//! Covers regions of a frame, in place or in a copy: on the CPU, on the device, or through it.

use std::sync::Arc;
use std::time::Instant;

use super::error::EngineError;
use super::in_flight::{BorrowedInPlace, CompletedFrame, FrameAccess};
use super::plan_cache::form;
use super::{ActiveBackend, Engine};
use crate::cpu::{CpuEngine, SoftBlurs};
use crate::cuda::{CudaError, DeviceCover, PromisedFrames, SoftDeviceCover, SubmitError};
use crate::filter::fill::{PlaneValues, fill, fills};
use crate::filter::frame::{Destination, Frame, FrameMut, Plane, PlaneLayout, Source, ValidFrames, as_source};
use crate::filter::mosaic::{CellGrid, Mosaic, MosaicRegion, mosaic};
use crate::filter::picture::{FieldRect, PictureGeometry};
use crate::filter::plan::Selection;
use crate::filter::region_blur::{BlurCover, RegionBlurPlan};
use crate::filter::regions::Rect;
use crate::filter::samples::covered_fields;
use crate::filter::weights::Weights;
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
    /// One of the others, mixed into the picture by weights.
    Soft(SoftCover),
}

/// A cover that shows as much as its weights say: `(weight · cover + (255 - weight) · sample + 127) / 255` for each sample that the
/// cover writes. Of frames in host memory the CPU does all of it.
#[derive(Debug, Clone, PartialEq)]
pub struct SoftCover {
    /// What hides; if it is soft itself, it alone counts.
    pub cover: Box<Cover>,
    /// How much of it shows, for frames of this size.
    pub weights: Weights,
    /// The samples that the blurs do not see, so that objects do not glow beside themselves: they see an estimate from what is
    /// around them.
    pub excluded: Option<Weights>,
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
            Self::Soft(SoftCover { cover, .. }) => cover.is_empty(),
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
        let (regions, grids, rects, soft);
        // Of soft covers, the innermost counts.
        let (mut hard, mut weights) = (cover, None);
        while let Cover::Soft(soft) = hard {
            (hard, weights) = (&*soft.cover, Some(soft));
        }
        let mut cover = match hard {
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
            Cover::Soft(_) => unreachable!("the innermost cover is not soft"),
        };
        if let Some(SoftCover { weights, excluded, .. }) = weights {
            let picture = PictureGeometry::new(layouts);
            let of_rects = |rects: &mut dyn Iterator<Item = Rect>| -> Vec<(usize, FieldRect)> {
                rects.flat_map(|rect| covered_fields(&picture, rect)).collect()
            };
            let (covered, planes) = match (hard, &cover) {
                (Cover::Blur(blur), DeviceCover::Blur(regions)) => (regions.covered(), blur.planes),
                (Cover::Mosaic(regions), _) => (of_rects(&mut regions.iter().map(MosaicRegion::rect)), Selection::ALL),
                (Cover::Fill { rects, .. }, _) => (of_rects(&mut rects.iter().copied()), Selection::ALL),
                _ => unreachable!("the innermost cover is not soft"),
            };
            if !covered.is_empty() {
                soft = SoftDeviceCover { cover, weights, excluded: excluded.as_ref(), covered, planes };
                cover = DeviceCover::Soft(&soft);
            }
        }
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
        let mut failure = None;
        if let Cover::Blur(blur) = cover
            && let ActiveBackend::Cuda(_) = self.backend
        {
            let direct = access.can_leak();
            let (source, destination) = access.frames();
            let frames = ValidFrames::of_cover(source, destination)?;
            match self.blur_through_device(blur, frames, direct) {
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
            Cover::Soft(soft) => {
                self.cover_softly(soft, host_destination(access)?)?;
                !cover.is_empty()
            }
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

    /// Covers a frame in place, on the CPU whatever the backend is.
    fn cover_softly(
        &mut self,
        SoftCover { cover, weights, excluded }: &SoftCover,
        frame: FrameMut,
    ) -> Result<(), EngineError> {
        let layouts: Vec<PlaneLayout> = frame.iter().map(|plane| plane.layout).collect();
        let picture = PictureGeometry::new(&layouts);
        let covered = |rects: &[Rect]| -> Vec<(usize, FieldRect)> {
            rects.iter().flat_map(|rect| covered_fields(&picture, *rect)).collect()
        };
        let cpu = match &mut self.backend {
            ActiveBackend::Cpu(cpu) => cpu,
            ActiveBackend::Cuda(_) => self.cpu.get_or_insert_with(CpuEngine::new),
        };
        match &**cover {
            Cover::Soft(soft) => self.cover_softly(soft, frame),
            Cover::Blur(blur) => {
                let regions = self.soft_regions.get(blur, &layouts, cpu::TILES, &mut self.plans);
                self.stats.form = regions.blurs().last().map_or(self.stats.form, |blur| form(&blur.plan));
                let (regions, excluded) = (&*regions, excluded.as_ref());
                let blurs = SoftBlurs { weights, regions, planes: blur.planes, excluded };
                let mut frames = ValidFrames::of_cover(Source::Host(Vec::new()), Destination::Host(frame))?;
                Ok(cpu.cover_softly(&mut frames, blurs)?)
            }
            Cover::Mosaic(regions) => {
                let rects: Vec<Rect> = regions.iter().map(MosaicRegion::rect).collect();
                let mut covers = CoverPlanes::new(&frame)?;
                Mosaic::new(&as_source(&frame), regions)?.write(&mut covers.frame())?;
                let mut frames = ValidFrames::new(Source::Host(covers.source()), Destination::Host(frame))?;
                Ok(cpu.mix(&mut frames, weights, &covered(&rects))?)
            }
            Cover::Fill { rects, values } => {
                let mut covers = CoverPlanes::new(&frame)?;
                fill(&mut covers.frame(), rects, values)?;
                let mut frames = ValidFrames::new(Source::Host(covers.source()), Destination::Host(frame))?;
                Ok(cpu.mix(&mut frames, weights, &covered(rects))?)
            }
        }
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

    /// Blurs regions of a frame in host memory on the device, and waits. With `direct` the device reads pinned memory, which its
    /// owner leaks if that may go on after a failure.
    fn blur_through_device(
        &mut self,
        cover: &BlurCover,
        mut frames: ValidFrames,
        direct: bool,
    ) -> Result<(), SubmitError> {
        let regions = self.region_blurs(cover, frames.layouts());
        if regions.blurs().is_empty() {
            frames.copy_source();
            return Ok(());
        }
        let ActiveBackend::Cuda(cuda) = &mut self.backend else { unreachable!("the caller has checked it") };
        // SAFETY: `FrameAccess` promises it for the memory of the frames, which the caller leaks if the device may still read it.
        let mut frames = unsafe { PromisedFrames::new(frames) };
        let times = cuda.cover_host(&mut frames, &regions, direct)?;
        self.stats.add_cuda_frame(cuda, &times);
        Ok(())
    }
}

/// Planes for a cover, before it is mixed into a frame.
struct CoverPlanes(Vec<(PlaneLayout, Vec<u8>)>);

impl CoverPlanes {
    /// For frames of the same planes as this one.
    fn new(frame: &FrameMut) -> Result<Self, EngineError> {
        let plane = |plane: &Plane<&mut [u8]>| {
            let bytes = plane.layout.row_bytes() * plane.layout.height as usize;
            let mut data = Vec::new();
            data.try_reserve_exact(bytes).map_err(|_| EngineError::OutOfMemory { bytes })?;
            data.resize(bytes, 0);
            Ok((plane.layout, data))
        };
        Ok(Self(frame.iter().map(plane).collect::<Result<_, EngineError>>()?))
    }

    fn frame(&mut self) -> FrameMut<'_> {
        self.0
            .iter_mut()
            .map(|(layout, data)| Plane { layout: *layout, pitch: layout.row_bytes(), data: &mut data[..] })
            .collect()
    }

    fn source(&self) -> Frame<'_> {
        self.0
            .iter()
            .map(|(layout, data)| Plane { layout: *layout, pitch: layout.row_bytes(), data: &data[..] })
            .collect()
    }
}

fn host_destination<F: FrameAccess>(access: &mut F) -> Result<FrameMut<'_>, EngineError> {
    match access.frames() {
        (_, Destination::Host(frame)) => Ok(frame),
        _ => Err(EngineError::MixedMemory),
    }
}
