// SPDX-License-Identifier: MPL-2.0
//! The steps of a frame: upload, kernels, download. What is resident is neither uploaded nor downloaded.

use super::TransferPath;
use super::frame_slot::{BandEvents, FrameSlot};
use super::promised_frames::PromisedFrames;
use crate::cuda::driver::Stream;
use crate::cuda::error::CudaError;
use crate::cuda::kernels::byte_rect::ByteRect;
use crate::cuda::kernels::cover::{self, ByteWrite};
use crate::cuda::kernels::record::DevicePlanes;
use crate::cuda::program::{KernelSelector, Program};
use crate::cuda::transfer::schedule::Schedule;
use crate::cuda::transfer::{SharedPlanes, ThreadedCopy};
use crate::filter::frame::FrameMemory;
use crate::filter::plane::{DevicePlane, HostPlaneMut};
use crate::threads::Threads;

/// The streams that a frame's steps are enqueued on; they may be the same.
#[derive(Clone, Copy)]
pub struct Streams<'a> {
    pub upload: &'a Stream,
    pub compute: &'a Stream,
    pub download: &'a Stream,
}

impl<'a> Streams<'a> {
    /// One stream for all steps.
    pub fn single(stream: &'a Stream) -> Self {
        Self { upload: stream, compute: stream, download: stream }
    }

    /// Waits for all of them, and returns whether that succeeded: nothing that was enqueued is running any more.
    pub fn synchronize(&self) -> bool {
        [self.upload, self.compute, self.download].map(|stream| stream.synchronize().is_ok()) == [true; 3]
    }
}

/// A frame that is enqueued, and all that its steps use.
pub struct Steps<'a> {
    pub selector: &'a KernelSelector,
    pub frames: &'a PromisedFrames<'a>,
    pub paths: [TransferPath; 2],
    /// Whether parts of the frame are covered.
    pub is_cover: bool,
    pub planes: &'a DevicePlanes,
    /// With this frame's addresses.
    pub program: &'a Program,
    pub schedule: &'a Schedule,
    pub slot: &'a FrameSlot,
    pub streams: Streams<'a>,
    /// Whether the parts of a step wait for each other by events, because their streams differ.
    pub by_events: bool,
}

/// More rectangles in a step of a cover are moved by a kernel, because enqueuing a copy takes 2.3 to 4 µs.
const MAX_COPIES: usize = 4;
/// A download of up to so many bytes is faster by a kernel.
const KERNEL_BYTES: usize = 1 << 20;

impl Steps<'_> {
    /// Enqueues all steps. Pageable memory is staged meanwhile. The context is current, and nobody else uses the slot until
    /// `streams` have done the work, also if this fails.
    pub fn enqueue(&self, threads: &Threads) -> Result<(), CudaError> {
        let FrameSlot { order, begin, .. } = self.slot;
        for stream in self.frames.streams(self.streams.compute.device()).iter().flatten() {
            // The source has been written, and the destination read, by what is enqueued there.
            self.streams.compute.wait_for(stream, order)?;
        }
        if self.slot.is_timed() {
            self.streams.upload.record(begin)?;
        }
        let process_and_download = |step: usize| -> Result<(), CudaError> {
            self.process(step)?;
            self.download(step)
        };
        let steps = &self.schedule.steps;
        if let (FrameMemory::Host(from), TransferPath::Staged) = (self.frames.source(), self.paths[0]) {
            let copy = ThreadedCopy::new(steps.iter().map(|step| &step.upload[..]));
            let planes = SharedPlanes::new(from, &self.slot.source.staging_planes());
            // SAFETY: the frame is valid and has the slot's layouts; each byte is staged once, and no earlier frame uses the slot.
            let stage = |rect: &ByteRect| unsafe { planes.copy(rect) };
            copy.copy_in(threads, stage, |step| {
                self.upload(step)?;
                process_and_download(step)
            })?;
        } else {
            // Enqueuing a step takes half as long as uploading it: two uploads ahead keep the bus busy, and more would only
            // delay the first download.
            const AHEAD: usize = 2;
            self.upload(0)?;
            for step in 1..steps.len() + AHEAD {
                if step < steps.len() {
                    self.upload(step)?;
                }
                if step >= AHEAD {
                    process_and_download(step - AHEAD)?;
                }
            }
        }
        Ok(())
    }

    fn events(&self, step: usize) -> &BandEvents {
        self.slot.events(step, self.schedule.steps.len())
    }

    /// Enqueues the upload of a step, which is in the staging buffer on the staged path.
    fn upload(&self, step: usize) -> Result<(), CudaError> {
        let (stream, rects) = (self.streams.upload, &self.schedule.steps[step].upload[..]);
        // SAFETY: the rectangles are in the source or the staging buffer, and in the slot's device memory, which live until the
        // copy is complete: the frames by their owner's promise, the slot because it is leaked if that is not known.
        unsafe {
            match (self.paths[0], self.frames.source()) {
                (TransferPath::Direct, FrameMemory::Host(from)) => {
                    for rect in rects {
                        let (from, to) = (&from[rect.plane], &self.planes.sources[rect.plane]);
                        stream.copy(&rect.within(from), &rect.within(to), rect.bytes, rect.rows)?;
                    }
                }
                (TransferPath::Staged, _) => {
                    let staging = self.slot.source.staging_planes();
                    if self.is_cover && rects.len() > MAX_COPIES {
                        self.move_by_kernel(stream, rects, &on_device(&staging), &self.planes.sources)?;
                    } else {
                        for rect in rects.iter().map(|rect| self.slot.source.between_blocks(rect)) {
                            let (from, to) = (&staging[rect.plane], &self.planes.sources[rect.plane]);
                            stream.copy(&rect.within(from), &rect.within(to), rect.bytes, rect.rows)?;
                        }
                    }
                }
                _ => (),
            }
        }
        stream.record(&self.events(step).uploaded)
    }

    /// Enqueues the kernels of a step.
    fn process(&self, step: usize) -> Result<(), CudaError> {
        let (stream, events) = (self.streams.compute, self.events(step));
        let groups = self.schedule.steps[step].groups.clone();
        if groups.is_empty() {
            return Ok(());
        }
        if self.by_events {
            stream.wait(&events.uploaded)?;
        }
        for group in groups {
            // SAFETY: the planes are the frame's or the slot's, and the workspace is large enough for the whole frame; all live
            // until the kernels have ended.
            unsafe { self.selector.enqueue(stream, self.program, group) }?;
        }
        stream.record(&events.processed)
    }

    /// Enqueues the download of a step.
    fn download(&self, step: usize) -> Result<(), CudaError> {
        let (stream, rects, events) =
            (self.streams.download, &self.schedule.steps[step].download[..], self.events(step));
        let is_last = step + 1 == self.schedule.steps.len();
        if self.is_cover && !is_last {
            return Ok(());
        }
        if self.by_events {
            stream.wait(&events.processed)?;
        }
        let (slot, destinations) = (self.slot.downloads(self.is_cover), &self.planes.destinations);
        // SAFETY: the rectangles are in the slot's device memory, and in the destination or the staging buffer, which live
        // until the copy is complete.
        unsafe {
            match (self.paths[1], self.frames.destination()) {
                (TransferPath::Direct, FrameMemory::Host(to)) => {
                    for rect in rects {
                        let (from, to) = (&destinations[rect.plane], &to[rect.plane]);
                        stream.copy(&rect.within(from), &rect.within(to), rect.bytes, rect.rows)?;
                    }
                }
                (TransferPath::Staged, _) => {
                    let staging = slot.staging_planes();
                    let is_small =
                        rects.len() > MAX_COPIES || rects.iter().map(ByteRect::size).sum::<usize>() <= KERNEL_BYTES;
                    if self.is_cover && is_small {
                        self.move_by_kernel(stream, rects, destinations, &on_device(&staging))?;
                    } else {
                        for rect in rects.iter().map(|rect| slot.between_blocks(rect)) {
                            let (from, to) = (&destinations[rect.plane], &staging[rect.plane]);
                            stream.copy(&rect.within(from), &rect.within(to), rect.bytes, rect.rows)?;
                        }
                    }
                }
                _ => (),
            }
        }
        // Bands of a staged frame are waited for one by one, of others only the end is.
        if self.paths[1] == TransferPath::Staged || is_last {
            stream.record(&events.downloaded)?;
        }
        Ok(())
    }

    /// Enqueues launches that copy rectangles between planes in device memory and a staging buffer.
    ///
    /// # Safety
    /// As for [`Stream::copy`].
    unsafe fn move_by_kernel(
        &self,
        stream: &Stream,
        rects: &[ByteRect],
        from: &[DevicePlane],
        to: &[DevicePlane],
    ) -> Result<(), CudaError> {
        let copy = |rect: &ByteRect| ByteWrite::copy(*rect, 0, &from[rect.plane], &to[rect.plane]);
        let launches = cover::byte_launches(rects.iter().map(copy).collect());
        // SAFETY: the planes hold the rectangles, as the caller promises.
        unsafe { self.selector.enqueue_launches(stream, &launches) }
    }
}

/// Planes of a staging buffer as the device accesses them: at the address that the host does (unified addressing).
fn on_device(staging: &[HostPlaneMut]) -> Vec<DevicePlane> {
    let plane =
        |plane: &HostPlaneMut| DevicePlane { address: plane.address as u64, pitch: plane.pitch, len: plane.len };
    staging.iter().map(plane).collect()
}
