// SPDX-License-Identifier: MPL-2.0
//! The steps of a frame, band by band: upload, kernels, download. What is resident is neither uploaded nor downloaded.

use super::TransferPath;
use super::frame_slot::{BandEvents, FrameSlot};
use super::promised_frames::PromisedFrames;
use super::recorded_frame::RecordedFrame;
use crate::cuda::driver::Stream;
use crate::cuda::error::CudaError;
use crate::cuda::kernels::record::DevicePlanes;
use crate::cuda::select::KernelSelector;
use crate::cuda::transfer::ThreadedCopy;
use crate::cuda::transfer::bands::Band;
use crate::filter::frame::{FrameMemory, PlaneLayout};
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
    pub layouts: &'a [PlaneLayout],
    pub frames: &'a PromisedFrames<'a>,
    pub paths: [TransferPath; 2],
    pub planes: &'a DevicePlanes,
    /// With this frame's addresses.
    pub recorded: &'a RecordedFrame,
    pub bands: &'a [Band],
    pub slot: &'a FrameSlot,
    pub streams: Streams<'a>,
    /// Whether the steps of a band wait for each other by events, because their streams differ.
    pub by_events: bool,
}

impl Steps<'_> {
    /// Enqueues all steps. Pageable memory is staged meanwhile. The context is current, and nobody else uses the slot until
    /// `streams` have done the work, also if this fails.
    pub fn enqueue(&self, threads: &Threads) -> Result<(), CudaError> {
        let FrameSlot { order, begin, .. } = self.slot;
        for stream in self.frames.streams().all(self.streams.compute.device()) {
            // The source has been written, and the destination read, by what is enqueued there.
            self.streams.compute.wait_for(&stream, order)?;
        }
        if self.slot.is_timed() {
            self.streams.upload.record(begin)?;
        }
        let process_and_download = |band: usize| -> Result<(), CudaError> {
            self.process(band)?;
            self.download(band)
        };
        if let (FrameMemory::Host(from), TransferPath::Staged) = (self.frames.source(), self.paths[0]) {
            let rows = self.bands.iter().map(|band| &band.upload[..]);
            let copy = ThreadedCopy::new(rows, &row_bytes(self.layouts));
            let from = SharedPlanes(from);
            // SAFETY: the frame is valid and has the slot's layouts; each row is staged once, and no earlier frame uses the slot.
            let stage = |plane, rows| unsafe { self.slot.source.stage_rows(from.plane(plane), plane, rows) };
            copy.copy_in(threads, stage, |band| {
                self.upload(band)?;
                process_and_download(band)
            })?;
        } else {
            // Enqueuing a band takes half as long as uploading it: two uploads ahead keep the bus busy, and more would only
            // delay the first download.
            const AHEAD: usize = 2;
            self.upload(0)?;
            for step in 1..self.bands.len() + AHEAD {
                if step < self.bands.len() {
                    self.upload(step)?;
                }
                if step >= AHEAD {
                    process_and_download(step - AHEAD)?;
                }
            }
        }
        Ok(())
    }

    fn events(&self, band: usize) -> &BandEvents {
        self.slot.events(band, self.bands.len())
    }

    /// Enqueues the upload of a band, whose rows are staged on the staged path.
    fn upload(&self, band: usize) -> Result<(), CudaError> {
        let (stream, slot) = (self.streams.upload, &self.slot.source);
        for (plane, rows) in self.bands[band].upload.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            let first = rows.start as usize;
            // SAFETY: the rows are in the source or the staging buffer, and in the slot's device memory, which live until the copy
            // is complete: the frames by their owner's promise, the slot because it is leaked if that is not known.
            unsafe {
                match (self.paths[0], self.frames.source()) {
                    (TransferPath::Direct, FrameMemory::Host(from)) => {
                        let (from, to) = (from[plane].from_row(first), self.planes.sources[plane].from_row(first));
                        stream.upload_rows(&from, &to, self.layouts[plane].row_bytes(), rows.len())?;
                    }
                    (TransferPath::Staged, _) => {
                        slot.staging().upload(slot.device(), slot.row_range(plane, rows), stream)?;
                    }
                    _ => (),
                }
            }
        }
        stream.record(&self.events(band).uploaded)
    }

    /// Enqueues the kernels of a band.
    fn process(&self, band: usize) -> Result<(), CudaError> {
        let (stream, events) = (self.streams.compute, self.events(band));
        if self.by_events {
            stream.wait(&events.uploaded)?;
        }
        // SAFETY: the planes are the frame's or the slot's, and the workspace is large enough for the whole frame; all live until
        // the kernels have ended.
        unsafe { self.recorded.enqueue(self.selector, stream, band) }?;
        stream.record(&events.processed)
    }

    /// Enqueues the download of a band.
    fn download(&self, band: usize) -> Result<(), CudaError> {
        let (stream, slot, events) = (self.streams.download, &self.slot.destination, self.events(band));
        if self.by_events {
            stream.wait(&events.processed)?;
        }
        for (plane, rows) in self.bands[band].download.iter().enumerate().filter(|(_, rows)| !rows.is_empty()) {
            let first = rows.start as usize;
            // SAFETY: the rows are in the slot's device memory, and in the destination or the staging buffer, which live until the
            // copy is complete.
            unsafe {
                match (self.paths[1], self.frames.destination()) {
                    (TransferPath::Direct, FrameMemory::Host(to)) => {
                        let (from, to) = (self.planes.destinations[plane].from_row(first), to[plane].from_row(first));
                        stream.download_rows(&from, &to, self.layouts[plane].row_bytes(), rows.len())?;
                    }
                    (TransferPath::Staged, _) => {
                        slot.device().download(slot.staging(), slot.row_range(plane, rows), stream)?;
                    }
                    _ => (),
                }
            }
        }
        // Bands of a staged frame are waited for one by one, of others only the end is.
        if self.paths[1] == TransferPath::Staged || band + 1 == self.bands.len() {
            stream.record(&events.downloaded)?;
        }
        Ok(())
    }
}

/// Bytes in a row of every plane.
pub fn row_bytes(layouts: &[PlaneLayout]) -> Vec<usize> {
    layouts.iter().map(PlaneLayout::row_bytes).collect()
}

/// Planes of a frame that several threads copy from or to.
pub struct SharedPlanes<'a, P>(pub &'a [P]);

// SAFETY: the threads only compute addresses from the planes; the copies are unsafe calls, whose callers keep rows apart.
unsafe impl<P> Sync for SharedPlanes<'_, P> {}

impl<P> SharedPlanes<'_, P> {
    /// Plane `index`.
    pub fn plane(&self, index: usize) -> &P {
        &self.0[index]
    }
}
