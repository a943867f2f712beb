// SPDX-License-Identifier: MPL-2.0
//! Uploads weights from pinned memory, so that the calling thread need not wait.

use std::ptr;

use super::get_or_make;
use crate::cuda::driver::{Event, PinnedMemory, Stream, Workspace};
use crate::cuda::error::CudaError;
use crate::cuda::kernels::bytes::{self, ByteWrite};
use crate::cuda::kernels::prebuilt::PrebuiltKernels;
use crate::filter::byte_rect::ByteRect;
use crate::filter::cover::Softness;
use crate::filter::plane::DevicePlane;

/// The largest number of uploads in flight.
const UPLOADS: usize = 3;

/// Writes the nodes of the weights into pinned memory, and enqueues their upload.
///
/// # Safety
/// The context is current. Nothing uses the pinned memory before the upload is complete. The device has memory for the nodes at
/// address `to`. This memory lives until the upload is complete, and nobody accesses it before.
pub unsafe fn upload(
    memory: &mut Workspace<PinnedMemory>,
    kernels: &PrebuiltKernels,
    soft: &Softness,
    to: u64,
    stream: &Stream,
) -> Result<(), CudaError> {
    let nodes = || soft.all().map(|weights| weights.nodes().2);
    let bytes = nodes().map(<[u8]>::len).sum();
    let begin = memory.reserve(bytes, stream.device())?;
    let mut end = begin;
    for part in nodes() {
        // SAFETY: `reserve` returned memory for the nodes of all weights, and the caller promises that nothing uses it.
        unsafe { ptr::copy_nonoverlapping(part.as_ptr(), end, part.len()) };
        end = end.wrapping_add(part.len());
    }
    // The device accesses pinned memory at the same address as the host (unified addressing). A copy by the driver between two
    // kernels would take the device 8 µs longer (H100).
    let [from, to] = [begin as u64, to].map(|address| DevicePlane { address, pitch: bytes, len: bytes });
    let rect = ByteRect { plane: 0, row: 0, row_step: 1, rows: 1, byte: 0, bytes };
    // SAFETY: the context is current. The pinned memory holds the bytes. The caller promises that the memory at `to` does too,
    // and that nobody else accesses either memory before the upload is complete.
    unsafe { kernels.enqueue(stream, &bytes::launches(vec![ByteWrite::copy(rect, 0, &from, &to)])) }
}

/// Pinned copies of the weights of the last frames.
#[derive(Default)]
pub struct WeightUploads {
    /// The copies, each with the event behind its last upload. They are made for the first weights.
    copies: Option<[(Workspace<PinnedMemory>, Event); UPLOADS]>,
    next: usize,
}

impl WeightUploads {
    /// Enqueues an upload of the nodes of these weights.
    ///
    /// # Safety
    /// The context is current. The device has memory for the nodes at address `to`. This memory lives until the upload is
    /// complete, and nobody accesses it before.
    pub unsafe fn enqueue(
        &mut self,
        kernels: &PrebuiltKernels,
        soft: &Softness,
        to: u64,
        stream: &Stream,
    ) -> Result<(), CudaError> {
        let copies = get_or_make(&mut self.copies, || {
            let copy = || Ok((Workspace::default(), Event::new(stream.device())?));
            Ok([copy()?, copy()?, copy()?])
        })?;
        let (memory, uploaded) = &mut copies[self.next];
        self.next = (self.next + 1) % UPLOADS;
        uploaded.synchronize()?;
        // SAFETY: the caller promises the context and the memory at `to`. The last upload from this pinned memory is complete.
        unsafe { upload(memory, kernels, soft, to, stream) }?;
        stream.record(uploaded)
    }
}

impl Drop for WeightUploads {
    fn drop(&mut self) {
        // The device only reads this memory, and cuMemFreeHost waits for the device.
        self.copies.iter().flatten().for_each(|(_, uploaded)| uploaded.wait_before_drop());
    }
}
