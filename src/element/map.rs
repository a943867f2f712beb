// SPDX-License-Identifier: MPL-2.0
//! Buffers mapped as frames of planes, wherever their memory and their GstVideoMeta put the rows.

use std::mem::MaybeUninit;
use std::slice;
use std::sync::{Arc, LazyLock};

use gst::glib::translate::ToGlibPtr;
use gst_video::ffi;

use super::gstcuda;
use super::imp::Format;
use crate::engine::Hold;
use crate::frame::{DeviceBytes, DeviceFrame, Plane, PlaneLayout, Side, Source, Target};

/// Why a buffer is no frame.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    #[error(
        "the {side} buffer is truncated or does not belong to the caps: it holds {have} bytes, but a {width}x{height} \
         {format} frame takes {need}"
    )]
    Truncated { side: Side, have: usize, need: usize, width: u32, height: u32, format: &'static str },
    #[error(
        "plane {plane} of the {side} buffer has a row stride of {stride} bytes, but rows must follow each other downwards"
    )]
    Stride { side: Side, plane: usize, stride: i32 },
    #[error("the planes of the {} buffer overlap in memory, so they cannot be written one by one", Side::Output)]
    Overlap,
    #[error(
        "the {0} buffer could not be mapped: its memory or GstVideoMeta does not fit the caps, or its device failed"
    )]
    Refused(Side),
}

impl MapError {
    /// Whose buffer it is.
    pub fn side(&self) -> Side {
        match self {
            Self::Truncated { side, .. } | Self::Stride { side, .. } | Self::Refused(side) => *side,
            Self::Overlap => Side::Output,
        }
    }
}

/// The address of GstVideoMeta's default map function, which GStreamer does not export.
static DEFAULT_MAP: LazyLock<usize> = LazyLock::new(|| {
    let mut buffer = gst::Buffer::new();
    let buffer = buffer.get_mut().expect("a new buffer has one owner");
    let flags = gst_video::VideoFrameFlags::empty();
    let meta = gst_video::VideoMeta::add_full(buffer, flags, gst_video::VideoFormat::Gray8, 1, 1, &[0], &[4]);
    // SAFETY: the meta is in the buffer.
    meta.map_or(0, |meta| unsafe { (*meta.as_ptr()).map }.map_or(0, |map| map as usize))
});

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
        side: Side,
        on_device: bool,
    ) -> Result<Self, MapError> {
        let flags = match side {
            Side::Input => gst::ffi::GST_MAP_READ,
            Side::Output => gst::ffi::GST_MAP_WRITE,
        };
        let cuda = if on_device { gstcuda::Memory::of(&buffer) } else { None };
        let device = cuda.as_ref().map(gstcuda::Memory::stream);
        let flags = flags | if cuda.is_some() { gstcuda::MAP_CUDA } else { 0 };
        // Zeroed, because a custom map function may leave GstMapInfo untouched. GST_VIDEO_FRAME_MAP_FLAG_NO_REF is stored in
        // GstMapInfo too, so it would be lost there and the buffer unreferenced twice: it is not used.
        let mut frame = MaybeUninit::<ffi::GstVideoFrame>::zeroed();
        // SAFETY: valid pointers; all 0 is a valid frame.
        let frame = unsafe {
            let (raw, size) = (buffer.as_mut_ptr(), buffer.size());
            // Asked here because GStreamer answers only with a line in its log.
            if gst::ffi::gst_buffer_get_meta(raw, ffi::gst_video_meta_api_get_type()).is_null() && size < info.size() {
                let (width, height, format) = (info.width(), info.height(), info.format().to_str().as_str());
                return Err(MapError::Truncated { side, have: size, need: info.size(), width, height, format });
            }
            let mapped = ffi::gst_video_frame_map(frame.as_mut_ptr(), info.to_glib_none().0.cast_mut(), raw, flags);
            if mapped == gst::glib::ffi::GFALSE {
                return Err(MapError::Refused(side));
            }
            frame.assume_init()
        };
        let mut mapped = Self { frame, buffer, planes: Vec::new(), device };
        mapped.planes = mapped.find_planes(layouts, side)?;
        Ok(mapped)
    }

    /// Whether GstMapInfo holds the length of the mapped bytes. A map function other than the default one need not fill it in;
    /// then the length follows from stride and height.
    fn knows_lengths(&self) -> bool {
        // SAFETY: null or a GstVideoMeta, of the buffer that is mapped.
        let meta = unsafe { self.frame.meta.cast::<ffi::GstVideoMeta>().as_ref() };
        let map = meta.map(|meta| meta.map.map_or(0, |map| map as usize));
        map.is_none_or(|map| map == *DEFAULT_MAP)
    }

    fn find_planes(&self, layouts: &[PlaneLayout], side: Side) -> Result<Vec<Plane<(usize, usize)>>, MapError> {
        let knows_lengths = self.knows_lengths();
        let plane = |(index, layout): (usize, &PlaneLayout)| {
            let stride = self.frame.info.stride[index];
            let pitch = usize::try_from(stride).map_err(|_| MapError::Stride { side, plane: index, stride })?;
            // With a GstVideoMeta every plane has a mapping of its own, else one holds them all.
            let mapping = &self.frame.map[if self.frame.meta.is_null() { 0 } else { index }];
            let data = self.frame.data[index] as usize;
            if data == 0 {
                return Err(MapError::Refused(side));
            }
            // No further than the plane's last sample: behind it another plane may begin.
            let mut len = (layout.height as usize - 1) * pitch + layout.row_bytes();
            if knows_lengths {
                len = len.min((mapping.data as usize + mapping.size).saturating_sub(data));
            }
            Ok(Plane { layout: *layout, pitch, data: (data, len) })
        };
        layouts.iter().enumerate().map(plane).collect()
    }

    /// Leaks the memory. The buffer returns to its pool, which sees that its memory is still referenced and replaces it. A
    /// buffer without a pool is leaked too, with everything that its metas keep alive.
    fn leak(self) {
        if !self.knows_lengths() {
            // The bytes that such a meta maps need not be in the buffer's memories.
            return std::mem::forget(self);
        }
        let buffer = self.buffer.clone();
        // SAFETY: a live buffer.
        if unsafe { (*buffer.as_ptr()).pool.is_null() } {
            std::mem::forget(buffer.clone());
        }
        // GStreamer refuses a second exclusive lock on memory that is mapped for writing.
        drop(self);
        for memory in buffer.iter_memories_owned() {
            let raw = memory.as_mut_ptr().cast();
            std::mem::forget(memory);
            // SAFETY: a live memory, of which a reference has just been leaked.
            let held = unsafe { gst::ffi::gst_mini_object_lock(raw, gst::ffi::GST_LOCK_FLAG_EXCLUSIVE) };
            if held == gst::glib::ffi::GFALSE {
                std::mem::forget(buffer.clone());
            }
        }
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
    format: Arc<Format>,
}

impl Buffers {
    /// Of frames of this format. Nobody else has the output. `on_device`: what is in CUDA memory is taken there, whatever the
    /// caps say, else it comes to the host.
    pub fn new(
        input: gst::Buffer,
        output: gst::Buffer,
        format: Arc<Format>,
        on_device: bool,
    ) -> Result<Self, MapError> {
        let layouts = format.layouts(&input);
        let input = Mapped::new(input, &format.info, layouts, Side::Input, on_device)?;
        let output = Mapped::new(output, &format.info, layouts, Side::Output, on_device)?;
        if output.overlaps() {
            return Err(MapError::Overlap);
        }
        Ok(Self { input, output, format })
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

    fn leak(self) {
        self.input.leak();
        self.output.leak();
    }

    fn replace_destination(self) -> Option<Self> {
        let (input, format) = (self.input.buffer.clone(), Arc::clone(&self.format));
        let output = ordinary_copy(&self.output.buffer, &format.info);
        self.leak();
        Self::new(input, output?, format, false).ok()
    }
}

/// A buffer with everything but the pixels of `buffer`, in ordinary memory with rows as the caps have them.
fn ordinary_copy(buffer: &gst::BufferRef, info: &gst_video::VideoInfo) -> Option<gst::Buffer> {
    let mut copy = gst::Buffer::with_size(info.size()).ok()?;
    let new = copy.get_mut()?;
    let what = gst::BufferCopyFlags::FLAGS | gst::BufferCopyFlags::TIMESTAMPS | gst::BufferCopyFlags::META;
    buffer.copy_into(new, what, ..).ok()?;
    // Were it copied too, it would describe the rows of the other memory.
    if let Some(meta) = new.meta_mut::<gst_video::VideoMeta>() {
        meta.remove().ok()?;
    }
    Some(copy)
}
