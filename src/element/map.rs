// SPDX-License-Identifier: MPL-2.0
//! Buffers mapped as frames of planes, wherever their memory and their GstVideoMeta put the rows.

use std::mem::MaybeUninit;
use std::slice;

use gst::glib::translate::ToGlibPtr;
use gst_video::ffi;

use super::gstcuda;
use crate::engine::Hold;
use crate::frame::{DeviceBytes, DeviceFrame, Plane, PlaneLayout, Source, Target};

/// Why a buffer is no frame.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    #[error(
        "the buffer holds {have} bytes, but a {width}x{height} {format} frame takes {need}: it is truncated or does not \
         belong to the caps"
    )]
    Truncated { have: usize, need: usize, width: u32, height: u32, format: &'static str },
    #[error("plane {plane} of the buffer has a row stride of {stride} bytes: rows must follow each other downwards")]
    Stride { plane: usize, stride: i32 },
    #[error("the planes of the buffer overlap in memory, so they cannot be written one by one")]
    Overlap,
    #[error("the buffer could not be mapped: its memory or its video meta does not fit the caps")]
    Refused,
}

/// A buffer and where its frame is.
struct Mapped {
    frame: ffi::GstVideoFrame,
    buffer: gst::Buffer,
    /// Address and size.
    planes: Vec<Plane<(usize, usize)>>,
    /// It is in the memory of a device, with the work on it ordered by this stream if there is one.
    device: Option<Option<usize>>,
}

// SAFETY: a mapping may be used and ended on any thread.
unsafe impl Send for Mapped {}

impl Mapped {
    fn new(
        buffer: gst::Buffer,
        info: &gst_video::VideoInfo,
        layouts: &[PlaneLayout],
        flags: gst::ffi::GstMapFlags,
        on_device: bool,
    ) -> Result<Self, MapError> {
        let cuda = if on_device { gstcuda::Memory::of(&buffer) } else { None };
        let device = cuda.as_ref().map(gstcuda::Memory::stream);
        let flags = flags | if cuda.is_some() { gstcuda::MAP_CUDA } else { 0 };
        let mut frame = MaybeUninit::uninit();
        // SAFETY: valid pointers; on success the frame is initialised. NO_REF: the buffer is kept beside the frame.
        let frame = unsafe {
            let (raw, size) = (buffer.as_mut_ptr(), buffer.size());
            // Asked here because GStreamer answers only with a line in its log.
            if gst::ffi::gst_buffer_get_meta(raw, ffi::gst_video_meta_api_get_type()).is_null() && size < info.size() {
                let (width, height, format) = (info.width(), info.height(), info.format().to_str().as_str());
                return Err(MapError::Truncated { have: size, need: info.size(), width, height, format });
            }
            let flags = flags | ffi::GST_VIDEO_FRAME_MAP_FLAG_NO_REF;
            let mapped = ffi::gst_video_frame_map(frame.as_mut_ptr(), info.to_glib_none().0.cast_mut(), raw, flags);
            if mapped == gst::glib::ffi::GFALSE {
                return Err(MapError::Refused);
            }
            frame.assume_init()
        };
        let mut mapped = Self { frame, buffer, planes: Vec::new(), device };
        mapped.planes = mapped.find_planes(layouts)?;
        Ok(mapped)
    }

    fn find_planes(&self, layouts: &[PlaneLayout]) -> Result<Vec<Plane<(usize, usize)>>, MapError> {
        let plane = |(index, layout): (usize, &PlaneLayout)| {
            let stride = self.frame.info.stride[index];
            let pitch = usize::try_from(stride).map_err(|_| MapError::Stride { plane: index, stride })?;
            // With a GstVideoMeta every plane has a mapping of its own, else one holds them all.
            let mapping = &self.frame.map[if self.frame.meta.is_null() { 0 } else { index }];
            let data = self.frame.data[index] as usize;
            let left = (mapping.data as usize + mapping.size).saturating_sub(data);
            // No further than the plane's last sample: behind it another plane may begin.
            let len = left.min((layout.height as usize - 1) * pitch + layout.row_bytes());
            Ok(Plane { layout: *layout, pitch, data: (data, len) })
        };
        layouts.iter().enumerate().map(plane).collect()
    }

    fn overlaps(&self) -> bool {
        let mut spans: Vec<_> = self.planes.iter().map(|plane| plane.data).collect();
        spans.sort_unstable();
        spans.windows(2).any(|pair| pair[0].0 + pair[0].1 > pair[1].0)
    }

    fn each<D>(&self, bytes: impl Fn(usize, usize) -> D) -> Vec<Plane<D>> {
        let plane =
            |&Plane { layout, pitch, data: (address, len) }: &_| Plane { layout, pitch, data: bytes(address, len) };
        self.planes.iter().map(plane).collect()
    }

    fn on_device(&self) -> Option<DeviceFrame> {
        let stream = self.device?;
        Some(DeviceFrame { planes: self.each(|address, len| DeviceBytes { address: address as u64, len }), stream })
    }
}

impl Drop for Mapped {
    fn drop(&mut self) {
        // SAFETY: mapped in `new`, unmapped once.
        unsafe { ffi::gst_video_frame_unmap(&mut self.frame) }
    }
}

/// The two buffers of a frame that is being blurred.
pub struct Buffers {
    input: Mapped,
    output: Mapped,
}

impl Buffers {
    /// Of frames with the planes that `layouts` shape. Nobody else has the output. `on_device`: what is in CUDA memory is taken
    /// there, whatever the caps say, else it comes to the host.
    pub fn new(
        input: gst::Buffer,
        output: gst::Buffer,
        info: &gst_video::VideoInfo,
        layouts: &[PlaneLayout],
        on_device: bool,
    ) -> Result<Self, MapError> {
        let input = Mapped::new(input, info, layouts, gst::ffi::GST_MAP_READ, on_device)?;
        let output = Mapped::new(output, info, layouts, gst::ffi::GST_MAP_WRITE, on_device)?;
        if output.overlaps() {
            return Err(MapError::Overlap);
        }
        Ok(Self { input, output })
    }

    /// Ends the mappings. `queued`: the output will be done when its stream has come so far.
    pub fn into_output(self, queued: bool) -> gst::Buffer {
        let output = self.output.buffer.clone();
        drop(self);
        if let Some(memory) = gstcuda::Memory::of(&output) {
            memory.set_under_way(queued);
        }
        output
    }
}

// SAFETY: mapped until this is dropped, the output for writing and alone; no two of its planes share a byte. Memory of a
// device is freed by its pool's context, which waits for what is queued.
unsafe impl Hold for Buffers {
    fn frames(&mut self) -> (Source<'_>, Target<'_>) {
        let source = match self.input.on_device() {
            Some(frame) => Source::Device(frame),
            // SAFETY: mapped for reading.
            None => Source::Host(self.input.each(|at, len| unsafe { slice::from_raw_parts(at as *const u8, len) })),
        };
        let target = match self.output.on_device() {
            Some(frame) => Target::Device(frame),
            // SAFETY: mapped for writing; the mutable borrow is passed on.
            None => Target::Host(self.output.each(|at, len| unsafe { slice::from_raw_parts_mut(at as *mut u8, len) })),
        };
        (source, target)
    }
}
