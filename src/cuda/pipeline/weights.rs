// SPDX-License-Identifier: MPL-2.0
//! Weights in pinned memory, from which they are uploaded while the host goes on.

use std::ptr;

use super::get_or_make;
use crate::cuda::driver::{Event, PinnedMemory, Stream, Workspace};
use crate::cuda::error::CudaError;
use crate::cuda::kernels::bytes::{self, ByteWrite};
use crate::cuda::kernels::prebuilt::PrebuiltKernels;
use crate::filter::byte_rect::ByteRect;
use crate::filter::cover::Softness;
use crate::filter::plane::DevicePlane;

/// Uploads that may be in flight.
const UPLOADS: usize = 3;

/// Writes the nodes into pinned memory, and enqueues their upload.
///
/// # Safety
/// The context is current. Nothing uses the pinned memory before the upload is complete. The device has memory for the nodes at
/// this address, which lives until then; nobody accesses it before.
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
        // SAFETY: the memory has room for all parts, and nothing uses it.
        unsafe { ptr::copy_nonoverlapping(part.as_ptr(), end, part.len()) };
        end = end.wrapping_add(part.len());
    }
    // The device accesses pinned memory at the address that the host does (unified addressing). A copy by the driver between two
    // kernels took the device 8 µs more (H100).
    let [from, to] = [begin as u64, to].map(|address| DevicePlane { address, pitch: bytes, len: bytes });
    let rect = ByteRect { plane: 0, row: 0, row_step: 1, rows: 1, byte: 0, bytes };
    // SAFETY: both memories hold the bytes, and nobody else accesses them, as the caller promises.
    unsafe { kernels.enqueue(stream, &bytes::launches(vec![ByteWrite::copy(rect, 0, &from, &to)])) }
}

/// Pinned copies of the weights of the last frames.
#[derive(Default)]
pub struct WeightUploads {
    /// Each with the end of its last upload; made for the first weights.
    copies: Option<[(Workspace<PinnedMemory>, Event); UPLOADS]>,
    next: usize,
}

impl WeightUploads {
    /// Enqueues an upload of the nodes.
    ///
    /// # Safety
    /// The context is current. The device has memory for them at this address, which lives until the copy is complete; nobody
    /// accesses it before then.
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
        // SAFETY: the memory on the device is the caller's promise; the last upload from the pinned memory is complete.
        unsafe { upload(memory, kernels, soft, to, stream) }?;
        stream.record(uploaded)
    }
}

impl Drop for WeightUploads {
    fn drop(&mut self) {
        // The device only reads the memory, and cuMemFreeHost waits for it.
        self.copies.iter().flatten().for_each(|(_, uploaded)| uploaded.wait_before_drop());
    }
}
