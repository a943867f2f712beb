// SPDX-License-Identifier: MPL-2.0
//! Buffers mapped as frames of planes, wherever their memory and their GstVideoMeta put the rows.

use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::slice;

use gst::glib::translate::ToGlibPtr;
use gst_video::ffi;

use crate::frame::{Frame, FrameMut, Plane, PlaneLayout};

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

/// A mapped buffer. `B` is the borrowed `&gst::BufferRef` or `&mut gst::BufferRef`.
pub struct Mapped<B> {
    frame: ffi::GstVideoFrame,
    buffer: PhantomData<B>,
}

impl<'a> Mapped<&'a gst::BufferRef> {
    /// Maps for reading.
    pub fn read(buffer: &'a gst::BufferRef, info: &gst_video::VideoInfo) -> Result<Self, MapError> {
        // SAFETY: the buffer is borrowed for as long as it is mapped.
        unsafe { map(buffer.as_ptr().cast_mut(), buffer.size(), info, gst::ffi::GST_MAP_READ) }
    }

    /// The planes of the frame, shaped as `layouts` says.
    pub fn planes(&self, layouts: &[PlaneLayout]) -> Result<Frame<'_>, MapError> {
        // SAFETY: mapped for reading, for the lifetime of `self`.
        self.each_plane(layouts, |data, len| unsafe { slice::from_raw_parts(data, len) })
    }
}

impl<'a> Mapped<&'a mut gst::BufferRef> {
    /// Maps for writing.
    pub fn write(buffer: &'a mut gst::BufferRef, info: &gst_video::VideoInfo) -> Result<Self, MapError> {
        let size = buffer.size();
        // SAFETY: the buffer is borrowed, alone, for as long as it is mapped.
        unsafe { map(buffer.as_mut_ptr(), size, info, gst::ffi::GST_MAP_WRITE) }
    }

    /// The planes of the frame, shaped as `layouts` says.
    pub fn planes(&mut self, layouts: &[PlaneLayout]) -> Result<FrameMut<'_>, MapError> {
        let planes = self.each_plane(layouts, |data, len| (data, len))?;
        let mut spans: Vec<_> = planes.iter().map(|plane| (plane.data.0 as usize, plane.data.1)).collect();
        spans.sort_unstable();
        if spans.windows(2).any(|pair| pair[0].0 + pair[0].1 > pair[1].0) {
            return Err(MapError::Overlap);
        }
        let writable = |Plane { layout, pitch, data: (data, len) }| {
            // SAFETY: mapped for writing, for the lifetime of `self`; no two planes share a byte.
            Plane { layout, pitch, data: unsafe { slice::from_raw_parts_mut(data, len) } }
        };
        Ok(planes.into_iter().map(writable).collect())
    }
}

/// # Safety
/// `buffer` outlives the result and is not used in a way that `flags` forbids.
unsafe fn map<B>(
    buffer: *mut gst::ffi::GstBuffer,
    size: usize,
    info: &gst_video::VideoInfo,
    flags: gst::ffi::GstMapFlags,
) -> Result<Mapped<B>, MapError> {
    let mut frame = MaybeUninit::uninit();
    // SAFETY: valid pointers; on success the frame is initialised. NO_REF: the borrow keeps the buffer.
    unsafe {
        // Asked here because GStreamer answers only with a line in its log.
        if gst::ffi::gst_buffer_get_meta(buffer, ffi::gst_video_meta_api_get_type()).is_null() && size < info.size() {
            let (width, height, format) = (info.width(), info.height(), info.format().to_str().as_str());
            return Err(MapError::Truncated { have: size, need: info.size(), width, height, format });
        }
        let flags = flags | ffi::GST_VIDEO_FRAME_MAP_FLAG_NO_REF;
        let mapped = ffi::gst_video_frame_map(frame.as_mut_ptr(), info.to_glib_none().0.cast_mut(), buffer, flags);
        if mapped == gst::glib::ffi::GFALSE {
            return Err(MapError::Refused);
        }
        Ok(Mapped { frame: frame.assume_init(), buffer: PhantomData })
    }
}

impl<B> Mapped<B> {
    fn each_plane<D>(
        &self,
        layouts: &[PlaneLayout],
        bytes: impl Fn(*mut u8, usize) -> D,
    ) -> Result<Vec<Plane<D>>, MapError> {
        let plane = |(index, layout): (usize, &PlaneLayout)| {
            let stride = self.frame.info.stride[index];
            let pitch = usize::try_from(stride).map_err(|_| MapError::Stride { plane: index, stride })?;
            // With a GstVideoMeta every plane has a mapping of its own, else one holds them all.
            let mapping = &self.frame.map[if self.frame.meta.is_null() { 0 } else { index }];
            let data = self.frame.data[index].cast::<u8>();
            let left = (mapping.data as usize + mapping.size).saturating_sub(data as usize);
            // No further than the plane's last sample: behind it another plane may begin.
            let len = left.min((layout.height as usize - 1) * pitch + layout.row_bytes());
            Ok(Plane { layout: *layout, pitch, data: bytes(data, len) })
        };
        layouts.iter().enumerate().map(plane).collect()
    }
}

impl<B> Drop for Mapped<B> {
    fn drop(&mut self) {
        // SAFETY: mapped in `map`, unmapped once.
        unsafe { ffi::gst_video_frame_unmap(&mut self.frame) }
    }
}
