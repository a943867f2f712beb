// SPDX-License-Identifier: MPL-2.0
//! Covers regions of a frame: in host memory in place, in device memory in place or in a copy.

use super::error::EngineError;
use super::in_flight::{CompletedFrame, FrameAccess};
use super::plan_cache::form;
use super::{ActiveBackend, Engine};
use crate::cuda::{CudaError, DeviceCover, SubmitError};
use crate::filter::fill::{PlaneValues, fill, fills};
use crate::filter::frame::{FrameMut, PlaneLayout, Side, ValidFrames, as_source, check_host};
use crate::filter::mosaic::{CellGrid, MosaicRegion, mosaic};
use crate::filter::regions::Rect;
use crate::filter::tiles::{BlurCover, BlurJob, CropCost};

/// On the CPU 10 KB are blurred in the time that an operation on one more plane takes (two cores, AVX-512).
const CPU_COST: CropCost = CropCost { column_step: 1, operation_bytes: [10 << 10; 2] };

/// Through the device, host memory crosses the bus twice, which takes longer than the launches for one more crop.
const TRANSFER_COST: CropCost = CropCost { column_step: 1, operation_bytes: [100 << 10; 2] };

/// On the device a launch takes as long as the blur of megabytes: 3 µs, and 4K RGBA takes 0.9 µs a megabyte (H200). Four
/// planes of one or two channels share a launch.
///
/// Every format has rows that are aligned to 16 bytes at multiples of 16 columns, if the frame is, which the kernels load
/// fastest.
const DEVICE_COST: CropCost = CropCost { column_step: 16, operation_bytes: [800 << 10, 2400 << 10] };

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
    /// Covers regions of a frame in host memory, in place. All other bytes stay unchanged, and on an error all bytes.
    ///
    /// Returns why the engine fell back to the CPU, if it did with this frame.
    pub fn cover(&mut self, cover: &Cover, frame: &mut FrameMut) -> Result<Option<CudaError>, EngineError> {
        match cover {
            Cover::Blur(cover) => return self.blur_regions(cover, frame),
            Cover::Mosaic(regions) => mosaic(frame, regions)?,
            Cover::Fill { rects, values } => fill(frame, rects, values)?,
        }
        // What is nothing but memory accesses is not worth a way to the device and back.
        self.stats.frames_cpu += u64::from(!cover.is_empty());
        Ok(None)
    }

    /// Covers regions of a frame in device memory, on its stream, with the same bytes as [`Engine::cover`]. The source and the
    /// destination of `access` are the same memory; or they do not overlap, and the source is copied first, with the bytes
    /// between its rows.
    ///
    /// # Errors
    /// On an error the destination is undefined and must not be shown. There is no fallback: the CPU cannot access the frame.
    pub fn cover_on_device<F: FrameAccess>(
        &mut self,
        cover: &Cover,
        mut access: F,
    ) -> Result<CompletedFrame<F>, EngineError> {
        let (source, destination) = access.frames();
        let frames = ValidFrames::new(source, destination)?;
        if !frames.are_on_device() {
            return Err(EngineError::NotOnDevice);
        }
        let ActiveBackend::Cuda(cuda) = &mut self.backend else { return Err(EngineError::NeedsCuda) };
        let layouts = frames.layouts();
        let (tiles, plans, grids, rects);
        let cover = match cover {
            Cover::Blur(cover) => {
                tiles = self.device_tiles.get(cover, layouts, DEVICE_COST);
                let plan = |job: &BlurJob| {
                    let layouts: Vec<PlaneLayout> = job.crops.iter().map(|blurred| blurred.crop.layout).collect();
                    self.plans.get(job.options, &layouts)
                };
                plans = tiles.jobs.iter().map(plan).collect::<Vec<_>>();
                self.stats.form = plans.last().map_or(self.stats.form, |plan| form(plan));
                DeviceCover::Blur(tiles, &plans)
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
        // SAFETY: `FrameAccess` promises it for the memory and the streams of the frames, which `access` keeps alive, for good
        // if it is leaked. The cover was made for the layouts of the frames.
        match unsafe { cuda.cover(&frames, &cover) } {
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

    fn blur_regions(&mut self, cover: &BlurCover, frame: &mut FrameMut) -> Result<Option<CudaError>, EngineError> {
        check_host(frame, Side::Input)?;
        let [cpu, cuda] = [self.stats.frames_cpu, self.stats.frames_cuda];
        let mut tiles = std::mem::take(&mut self.tiles);
        let mut failure = None;
        let cost = if let ActiveBackend::Cpu(_) = self.backend { CPU_COST } else { TRANSFER_COST };
        let result = tiles.blur(cover, &as_source(frame), cost, |options, source, destination, windows| {
            let fell_back = self.blur_windows(options, source, destination, windows)?;
            failure = failure.take().or(fell_back);
            Ok::<(), EngineError>(())
        });
        if result.is_ok() {
            tiles.write(frame);
        }
        self.tiles = tiles;
        // However many crops it takes, this is one frame.
        let is_new = |now: u64, before: u64| before + u64::from(now > before);
        self.stats.frames_cpu = is_new(self.stats.frames_cpu, cpu);
        self.stats.frames_cuda = is_new(self.stats.frames_cuda, cuda);
        result.map(|()| failure)
    }
}
