// SPDX-License-Identifier: MPL-2.0
//! Buffers as frames: mapping them, and finding their planes by their memory, caps and GstVideoMeta.

use std::sync::{Arc, LazyLock};
use std::{ptr, slice};

use gst::glib::translate::{ToGlibPtr, from_glib_none};
use gst_video::ffi;

use super::gstcuda::{CudaMemory, DeviceMapping, MAP_CUDA};
use crate::element::format::stream_format::StreamFormat;
use crate::engine::FrameAccess;
use crate::filter::frame::{Frame, FrameMemory, FramePair, Plane, PlaneLayout, Side, ValidFrames};
use crate::filter::plane::{DevicePlane, HostPlaneMut, PlaneMemory};
use crate::process;

/// Why a buffer cannot be used as a frame.
#[derive(Debug, thiserror::Error)]
pub enum MapError {
    #[error(
        "the {side} buffer is truncated or does not match its caps: it holds {have} bytes, but a {width}x{height} \
         {format} frame takes {need}"
    )]
    Truncated { side: Side, have: usize, need: usize, width: u32, height: u32, format: &'static str },
    #[error(
        "plane {plane} of the {side} buffer has a row stride of {stride} bytes, but a negative stride is not supported"
    )]
    Stride { side: Side, plane: usize, stride: i32 },
    #[error("the planes of the {0} buffer overlap in memory, so that writing one would overwrite another")]
    Overlap(Side),
    #[error("the GstVideoMeta of the {side} buffer describes {have}, but its caps {want}")]
    Meta { side: Side, have: String, want: String },
    #[error(
        "the GstVideoCropMeta of the {side} buffer shows {}x{} from {}x{} on in a frame of {}x{}, but a crop must lie in the frame \
         and, if that is interlaced, begin at a multiple of {step} rows", rect.2, rect.3, rect.0, rect.1, of.0, of.1
    )]
    Crop { side: Side, rect: (u32, u32, u32, u32), of: (u32, u32), step: u32 },
    #[error(
        "the {0} buffer could not be mapped: its memory or GstVideoMeta does not match its caps, or its device failed"
    )]
    Refused(Side),
}

impl MapError {
    /// Which of the two buffers it is about.
    pub fn side(&self) -> Side {
        match self {
            Self::Truncated { side, .. }
            | Self::Stride { side, .. }
            | Self::Meta { side, .. }
            | Self::Crop { side, .. } => *side,
            Self::Refused(side) | Self::Overlap(side) => *side,
        }
    }
}

/// The address of a GstVideoMeta's map function; 0 if it has none.
fn map_function(meta: &gst_video::VideoMeta) -> usize {
    // SAFETY: `VideoMeta` is a transparent wrapper of GstVideoMeta, and the meta is borrowed.
    unsafe { (*ptr::from_ref(meta).cast::<ffi::GstVideoMeta>()).map }.map_or(0, |map| map as usize)
}

/// The address of the default map function of GstVideoMeta, read from a new meta because GStreamer does not export it.
static DEFAULT_MAP: LazyLock<usize> = LazyLock::new(|| {
    let mut buffer = gst::Buffer::new();
    let buffer = buffer.get_mut().expect("a new buffer has one owner");
    let flags = gst_video::VideoFrameFlags::empty();
    let meta = gst_video::VideoMeta::add_full(buffer, flags, gst_video::VideoFormat::Gray8, 1, 1, &[0], &[4]);
    meta.map_or(0, |meta| map_function(&meta))
});

/// Whether GStreamer itself maps the planes that a GstVideoMeta describes.
fn has_default_map(meta: &gst_video::VideoMeta) -> bool {
    map_function(meta) == *DEFAULT_MAP
}

/// Whether a GstVideoMeta describes frames of this format, or larger frames that contain them.
fn describes(meta: &gst_video::VideoMeta, info: &gst_video::VideoInfo) -> bool {
    let has_format = meta.format() == info.format() && meta.n_planes() == info.n_planes();
    has_format && meta.width() >= info.width() && meta.height() >= info.height()
}

/// Where the picture of the caps begins in the frame that a buffer holds.
#[derive(Clone, Copy)]
struct Crop(u32, u32);

impl Crop {
    /// Whether a buffer's GstVideoCropMeta says where the picture of the caps is. If it does, the crop has the size of
    /// the caps, and the buffer holds a larger frame. A crop of another size shows a part of the caps' picture, and the
    /// meta stays true for a copy of this picture.
    fn is_picture(meta: &gst_video::VideoCropMeta, info: &gst_video::VideoInfo) -> bool {
        let (.., width, height) = meta.rect();
        (width, height) == (info.width(), rows(info, info.height()))
    }

    /// Reads the buffer's GstVideoCropMeta.
    fn of(
        buffer: &gst::BufferRef,
        info: &gst_video::VideoInfo,
        layouts: &[PlaneLayout],
        side: Side,
    ) -> Result<Self, MapError> {
        let Some(crop) = buffer.meta::<gst_video::VideoCropMeta>() else { return Ok(Self(0, 0)) };
        let (rect, is_picture) = (crop.rect(), Self::is_picture(&crop, info));
        let meta = buffer.meta::<gst_video::VideoMeta>().filter(|_| is_picture);
        let (width, height) = meta.map_or((info.width(), info.height()), |meta| (meta.width(), meta.height()));
        let of = (width, rows(info, height));
        let is_interlaced = is_picture && layouts.iter().any(|layout| layout.split.alternates());
        let step = if is_interlaced { 2 << info.format_info().h_sub().iter().max().unwrap_or(&0) } else { 1 };
        let fits = |at: u32, side: u32, of: u32| at.checked_add(side).is_some_and(|end| end <= of);
        match fits(rect.0, rect.2, of.0) && fits(rect.1, rect.3, of.1) && rect.1.is_multiple_of(step) {
            true if is_picture => Ok(Self(rect.0, rect.1)),
            true => Ok(Self(0, 0)),
            false => Err(MapError::Crop { side, rect, of, step }),
        }
    }

    /// Bytes from the first byte of the frame's plane to the first byte of the picture's plane. If the picture begins
    /// within a sample of chroma, its plane begins with this sample.
    fn bytes(self, info: &gst_video::VideoInfo, plane: usize, pitch: usize) -> usize {
        let format = info.format_info();
        let in_plane = (0..format.n_components() as usize).filter(|channel| format.plane()[*channel] as usize == plane);
        let coarsest = in_plane.max_by_key(|channel| format.w_sub()[*channel]).unwrap_or_default();
        let (column, row) = (self.0 >> format.w_sub()[coarsest], self.1 >> format.h_sub()[coarsest]);
        row as usize * pitch + column as usize * format.pixel_stride()[coarsest].unsigned_abs() as usize
    }

    /// Removes a GstVideoCropMeta from a buffer that holds the picture alone.
    fn remove_from(buffer: &mut gst::BufferRef, info: &gst_video::VideoInfo) {
        if let Some(meta) = buffer.meta_mut::<gst_video::VideoCropMeta>()
            && Self::is_picture(&meta, info)
        {
            // This fails only for locked metas. A copy has none.
            let _ = meta.remove();
        }
    }
}

/// Rows of a buffer, for a frame with this number of rows: half of them if each buffer has one field.
fn rows(info: &gst_video::VideoInfo, height: u32) -> u32 {
    let is_field = info.interlace_mode() == gst_video::VideoInterlaceMode::Alternate;
    if is_field { height.div_ceil(2) } else { height }
}

/// Whether downstream finds the picture in the buffer, and each sample that it shows lies wholly in the picture, so
/// that a cover hides it. `takes_crop_meta` says whether downstream reads GstVideoCropMeta.
pub fn is_whole_picture(buffer: &gst::BufferRef, info: &gst_video::VideoInfo, takes_crop_meta: bool) -> bool {
    let format = info.format_info();
    let is_whole = |at: u32, subsampling: &[u32]| subsampling.iter().all(|shift| at.is_multiple_of(1 << shift));
    buffer.meta::<gst_video::VideoCropMeta>().filter(|crop| Crop::is_picture(crop, info)).is_none_or(|crop| {
        takes_crop_meta && is_whole(crop.rect().0, format.w_sub()) && is_whole(crop.rect().1, format.h_sub())
    })
}

/// The pool that handed a buffer out, if one did.
pub fn pool_of(buffer: &gst::BufferRef) -> Option<gst::BufferPool> {
    // SAFETY: the buffer is live. `pool` is set only when a pool hands the buffer out: it is null or that pool, to which the
    // buffer holds a reference.
    unsafe { from_glib_none((*buffer.as_ptr()).pool) }
}

/// A mapped GstVideoFrame. Boxed, because it is large and frames are moved often.
struct VideoFrame(Box<ffi::GstVideoFrame>);

impl Drop for VideoFrame {
    fn drop(&mut self) {
        // SAFETY: `VideoFrame::map` mapped the frame, and only this unmaps it, once.
        unsafe { ffi::gst_video_frame_unmap(&mut *self.0) }
    }
}

impl VideoFrame {
    /// Maps the buffer, to which the frame then holds a reference; `None` if GStreamer refuses to.
    fn map(buffer: &gst::BufferRef, info: &gst_video::VideoInfo, access: gst::ffi::GstMapFlags) -> Option<Self> {
        // Zeroed, because a custom map function may leave GstMapInfo unset. GST_VIDEO_FRAME_MAP_FLAG_NO_REF is not
        // used: it is stored in GstMapInfo, where such a function loses it, and the buffer would be unreferenced twice.
        // SAFETY: the fields of GstVideoFrame are numbers, pointers and C structs of them, for which zero bytes are valid.
        let mut frame = Box::new(unsafe { std::mem::zeroed::<ffi::GstVideoFrame>() });
        let (info, buffer) = (info.to_glib_none().0.cast_mut(), buffer.as_ptr().cast_mut());
        // SAFETY: `frame` is writable, `info` and `buffer` are borrowed. The function does not write to `info`.
        let mapped = unsafe { ffi::gst_video_frame_map(&mut *frame, info, buffer, access) };
        (mapped != gst::glib::ffi::GFALSE).then_some(Self(frame))
    }

    /// Whether GstMapInfo holds the length of the mapped bytes. A custom map function of GstVideoMeta need not set it;
    /// the length of a plane then follows from its stride and height.
    fn has_map_lengths(&self) -> bool {
        // SAFETY: `meta` is null or the GstVideoMeta of the buffer, to which the frame holds a reference.
        unsafe { self.0.meta.cast::<gst_video::VideoMeta>().as_ref() }.is_none_or(has_default_map)
    }

    /// The mapped addresses of the planes, of the host or of the device.
    fn planes(
        &self,
        info: &gst_video::VideoInfo,
        layouts: &[PlaneLayout],
        crop: Crop,
        side: Side,
    ) -> Result<Vec<HostPlaneMut>, MapError> {
        let Self(frame) = self;
        let has_map_lengths = self.has_map_lengths();
        let plane = |(index, layout): (usize, &PlaneLayout)| {
            let stride = frame.info.stride[index];
            let pitch = usize::try_from(stride).map_err(|_| MapError::Stride { side, plane: index, stride })?;
            // With a GstVideoMeta each plane has its own mapping; without, the first mapping holds all planes.
            let mapping = &frame.map[if frame.meta.is_null() { 0 } else { index }];
            let address = frame.data[index].cast::<u8>();
            if address.is_null() {
                return Err(MapError::Refused(side));
            }
            let address = address.wrapping_add(crop.bytes(info, index, pitch));
            let mut len = plane_bytes(layout, pitch);
            if has_map_lengths {
                len = len.min((mapping.data as usize + mapping.size).saturating_sub(address as usize));
            }
            Ok(PlaneMemory { address, pitch, len })
        };
        layouts.iter().enumerate().map(plane).collect()
    }
}

/// Bytes of a plane up to its last sample. Another plane may follow it.
fn plane_bytes(layout: &PlaneLayout, pitch: usize) -> usize {
    (layout.height as usize - 1) * pitch + layout.row_bytes()
}

/// The same plane, with its address as a number.
fn as_device_plane(plane: &HostPlaneMut) -> DevicePlane {
    DevicePlane { address: plane.address as u64, pitch: plane.pitch, len: plane.len }
}

/// The planes of a buffer whose only memory is mapped on the device at these bytes. The caller has checked that its
/// size and its GstVideoMeta fit the caps. `None` if a plane is not in the memory, or if a function of the meta maps
/// it. GStreamer then maps the frame, or refuses to map it.
fn device_planes(
    buffer: &gst::BufferRef,
    info: &gst_video::VideoInfo,
    layouts: &[PlaneLayout],
    crop: Crop,
    bytes: DevicePlane,
) -> Option<Vec<DevicePlane>> {
    let meta = buffer.meta::<gst_video::VideoMeta>();
    let (offsets, strides) = match &meta {
        Some(meta) => has_default_map(meta).then(|| (meta.offset(), meta.stride()))?,
        None => (info.offset(), info.stride()),
    };
    let plane = |(index, layout): (usize, &PlaneLayout)| {
        let pitch = usize::try_from(*strides.get(index)?).ok()?;
        let offset = *offsets.get(index)? + crop.bytes(info, index, pitch);
        let len = plane_bytes(layout, pitch).min(bytes.len.checked_sub(offset)?);
        Some(DevicePlane { address: bytes.address + offset as u64, pitch, len })
    };
    layouts.iter().enumerate().map(plane).collect()
}

/// How a buffer is mapped.
enum Mapping {
    /// Plane by plane.
    Frame(VideoFrame),
    /// CUDA memory as a whole, which takes a third of the time.
    Device { _mapping: DeviceMapping },
}

/// A buffer that is mapped until this is dropped.
struct MappedBuffer {
    mapping: Mapping,
    buffer: gst::Buffer,
    layouts: Arc<[PlaneLayout]>,
    /// Where the planes are, in the order of `layouts`. A buffer that was mapped for reading is never written.
    memory: FrameMemory<*mut u8>,
}

// SAFETY: GStreamer allows a mapping to be used and ended on any thread. The pointers are into the memory of `buffer`,
// to which this holds a reference.
unsafe impl Send for MappedBuffer {}

impl MappedBuffer {
    /// Maps a buffer with these GstMapFlags. With `on_device`, CUDA memory is mapped on the device; without, and for all other
    /// memory, on the host. Errors name `side`.
    fn new(
        buffer: gst::Buffer,
        info: &gst_video::VideoInfo,
        layouts: &Arc<[PlaneLayout]>,
        side: Side,
        access: gst::ffi::GstMapFlags,
        on_device: bool,
    ) -> Result<Self, MapError> {
        // GStreamer fails to map such buffers too, but reports the reason only in its log, and a meta as a GLib CRITICAL.
        let (width, height, format) = (info.width(), info.height(), info.format().to_str().as_str());
        let (size, need) = (buffer.size(), info.size());
        match buffer.meta::<gst_video::VideoMeta>() {
            None if size < need => {
                return Err(MapError::Truncated { side, have: size, need, width, height, format });
            }
            Some(meta) if !describes(&meta, info) => {
                let mut have = format!("{} {}x{}", meta.format(), meta.width(), meta.height());
                let mut want = format!("{format} {width}x{height}");
                if meta.format() == info.format() && meta.n_planes() != info.n_planes() {
                    have.push_str(&format!(" with {} planes", meta.n_planes()));
                    want.push_str(&format!(" with {}", info.n_planes()));
                }
                return Err(MapError::Meta { side, have, want });
            }
            _ => (),
        }
        let crop = Crop::of(&buffer, info, layouts, side)?;
        let cuda_memory = if on_device { CudaMemory::in_buffer(&buffer) } else { None };
        if let Some(memory) = &cuda_memory
            && let Some(mapping) = memory.map(access)
            && let Some(planes) = device_planes(&buffer, info, layouts, crop, mapping.bytes())
        {
            let memory = FrameMemory::Device { planes, stream: memory.stream_handle() };
            let mapping = Mapping::Device { _mapping: mapping };
            return Ok(Self { mapping, buffer, layouts: Arc::clone(layouts), memory });
        }
        let flags = access | if cuda_memory.is_some() { MAP_CUDA } else { 0 };
        let stream = cuda_memory.map(|memory| memory.stream_handle());
        let frame = VideoFrame::map(&buffer, info, flags).ok_or(MapError::Refused(side))?;
        let planes = frame.planes(info, layouts, crop, side)?;
        let memory = match stream {
            None => FrameMemory::Host(planes),
            Some(stream) => FrameMemory::Device { planes: planes.iter().map(as_device_plane).collect(), stream },
        };
        Ok(Self { mapping: Mapping::Frame(frame), buffer, layouts: Arc::clone(layouts), memory })
    }

    fn has_map_lengths(&self) -> bool {
        match &self.mapping {
            Mapping::Frame(frame) => frame.has_map_lengths(),
            Mapping::Device { .. } => true,
        }
    }

    fn is_on_host(&self) -> bool {
        matches!(self.memory, FrameMemory::Host(_))
    }

    fn has_overlapping_planes(&self) -> bool {
        let planes: Vec<DevicePlane> = match &self.memory {
            FrameMemory::Host(planes) => planes.iter().map(as_device_plane).collect(),
            FrameMemory::Device { planes, .. } => planes.clone(),
        };
        let reaches = |from: &DevicePlane, to: &DevicePlane| from.address + from.len as u64 > to.address;
        planes.iter().enumerate().any(|(index, a)| planes[..index].iter().any(|b| reaches(a, b) && reaches(b, a)))
    }

    /// The planes, to be read, if they are in host memory.
    fn host_frame(&self) -> Option<Frame<'_>> {
        let FrameMemory::Host(planes) = &self.memory else { return None };
        let plane = |(layout, plane): (&PlaneLayout, &HostPlaneMut)| Plane {
            layout: *layout,
            pitch: plane.pitch,
            // SAFETY: the mapping holds `len` bytes from `address`: GstMapInfo says so, or the custom map function
            // does, which maps all rows at its stride. The bytes are not written while they are mapped for reading, and
            // the mapping lives as long as this borrow.
            data: unsafe { slice::from_raw_parts(plane.address.cast_const(), plane.len) },
        };
        Some(self.layouts.iter().zip(planes).map(plane).collect())
    }

    /// Unmaps the buffer and returns it. `queued`: work on it may still be queued on its stream. The caller has the only
    /// other reference to it.
    fn into_output(self, queued: bool) -> gst::Buffer {
        let output = self.buffer.clone();
        drop(self);
        if let Some(memory) = CudaMemory::in_buffer(&output) {
            // SAFETY: the element has the only reference to the buffer, which is no longer mapped and has not been pushed,
            // so that no other thread accesses its memory.
            unsafe { memory.set_needs_sync(queued) };
        }
        output
    }

    /// Unmaps the buffer and leaks its memory. The buffer returns to its pool, which discards buffers whose memory is
    /// not writable. A buffer without a pool is leaked too, with all objects that its metas keep alive.
    fn leak(self) {
        if !self.has_map_lengths() {
            // A custom map function may map bytes that are in none of the buffer's memories.
            return std::mem::forget(self);
        }
        let buffer = self.buffer.clone();
        if pool_of(&buffer).is_none() {
            std::mem::forget(buffer.clone());
        }
        // Unmapped first, because GStreamer refuses a second exclusive lock on memory that is mapped for writing.
        drop(self);
        for memory in buffer.iter_memories_owned() {
            let raw = memory.as_mut_ptr().cast();
            std::mem::forget(memory);
            // SAFETY: `raw` is a GstMemory that lives for good, because a reference to it was just leaked.
            let is_locked = unsafe { gst::ffi::gst_mini_object_lock(raw, gst::ffi::GST_LOCK_FLAG_EXCLUSIVE) };
            if is_locked == gst::glib::ffi::GFALSE {
                // Without the lock the memory would stay writable, and the pool would hand it out again.
                std::mem::forget(buffer.clone());
            }
        }
    }
}

/// A frame in mapped buffers: an input and an output, or one buffer that is covered in its own memory.
pub struct MappedFrame {
    /// `None` if the output is covered in its own memory.
    input: Option<MappedBuffer>,
    output: MappedBuffer,
    format: Arc<StreamFormat>,
}

impl MappedFrame {
    /// Maps both buffers, which are frames of this format. The caller has the only reference to the output. With
    /// `on_device`, a buffer in CUDA memory stays on the device, whatever the caps say; without, libgstcuda copies it
    /// to the host.
    pub fn pair(
        input: gst::Buffer,
        mut output: gst::Buffer,
        format: Arc<StreamFormat>,
        on_device: bool,
    ) -> Result<Self, MapError> {
        if output.meta::<gst_video::VideoCropMeta>().is_some() {
            // Copied from the input, but the output holds the picture alone.
            Crop::remove_from(output.make_mut(), &format.info);
        }
        let layouts = format.layouts(&input);
        let map = |buffer, side, access| MappedBuffer::new(buffer, &format.info, layouts, side, access, on_device);
        let input = map(input, Side::Input, gst::ffi::GST_MAP_READ)?;
        let output = map(output, Side::Output, gst::ffi::GST_MAP_WRITE)?;
        Self { input: Some(input), output, format }.without_overlaps(Side::Output)
    }

    /// Maps a buffer of this format for reading and writing; see [`MappedFrame::pair`] for `on_device`. The caller has
    /// the only reference to the buffer, and its memory is writable. Errors name `side`, where the buffer comes from.
    pub fn in_place(
        buffer: gst::Buffer,
        format: Arc<StreamFormat>,
        side: Side,
        on_device: bool,
    ) -> Result<Self, MapError> {
        let access = gst::ffi::GST_MAP_READ | gst::ffi::GST_MAP_WRITE;
        let layouts = format.layouts(&buffer);
        let output = MappedBuffer::new(buffer, &format.info, layouts, side, access, on_device)?;
        Self { input: None, output, format }.without_overlaps(side)
    }

    fn without_overlaps(self, side: Side) -> Result<Self, MapError> {
        if self.output.has_overlapping_planes() { Err(MapError::Overlap(side)) } else { Ok(self) }
    }

    /// Whether all of it is in host memory, or all in device memory.
    pub fn is_same_memory(&self) -> bool {
        self.input.as_ref().is_none_or(|input| input.is_on_host() == self.output.is_on_host())
    }

    /// Whether all of it is in host memory.
    pub fn is_on_host(&self) -> bool {
        self.is_same_memory() && self.output.is_on_host()
    }

    /// Unmaps its buffers and returns the output. `queued`: work on it may still be queued on its stream.
    pub fn into_output(self, queued: bool) -> gst::Buffer {
        self.output.into_output(queued)
    }

    /// The same frame, to be covered in place, in new memory on the host.
    fn copy(&self) -> Option<Self> {
        let copy = copy_without_pixels(&self.output.buffer, &self.format.info)?;
        let mut copy = Self::in_place(copy, Arc::clone(&self.format), Side::Output, false).ok()?;
        let pair = FramePair { source: Some(self.output.memory.as_const()), ..copy.frames() };
        // SAFETY: the mappings hold the bytes and outlive the result; nobody writes the frame, and nobody else has the copy.
        let frames = unsafe { ValidFrames::new(pair) }.ok()?;
        let planes: Vec<usize> = (0..frames.layouts().len()).collect();
        frames.copy_planes(&planes, &process::threads());
        Some(copy)
    }
}

// SAFETY: the buffers stay mapped, at the addresses that `frames` returns, until this is dropped or its memory is
// leaked. The mapping holds the bytes of each plane: GstMapInfo says so, or the custom map function does, which maps all rows at its
// stride. The input is mapped for reading, during which GStreamer grants nobody write access. The caller had the only
// reference to the output, which is not pushed before this is dropped, so that nobody else accesses it, and no two of its
// planes overlap. CUDA memory belongs to a pool or an allocator of libgstcuda, which waits for the memory's
// stream before it frees or reuses the memory. `leak` keeps all memory for good.
unsafe impl FrameAccess for MappedFrame {
    fn frames(&mut self) -> FramePair {
        FramePair {
            layouts: self.output.layouts.to_vec(),
            source: self.input.as_ref().map(|input| input.memory.as_const()),
            destination: self.output.memory.clone(),
        }
    }

    fn leak(self) {
        if let Some(input) = self.input {
            input.leak();
        }
        self.output.leak();
    }

    fn replace_destination(self) -> Option<Self> {
        let Some(input) = &self.input else {
            // In host memory the device reads the frame, but never writes it.
            let copy = if self.output.is_on_host() { self.copy() } else { None };
            self.leak();
            return copy;
        };
        let (input, format) = (input.buffer.clone(), Arc::clone(&self.format));
        let output = copy_without_pixels(&self.output.buffer, &format.info);
        self.leak();
        Self::pair(input, output?, format, false).ok()
    }
}

/// Calls `read` with the planes of a buffer of this format, and returns its result; `None` if the planes stay in CUDA
/// memory. See [`MappedFrame::pair`] for `on_device`.
pub fn read<T>(
    buffer: gst::Buffer,
    format: &StreamFormat,
    on_device: bool,
    read: impl FnOnce(&Frame) -> T,
) -> Result<Option<T>, MapError> {
    let layouts = format.layouts(&buffer);
    let access = gst::ffi::GST_MAP_READ;
    let buffer = MappedBuffer::new(buffer, &format.info, layouts, Side::Input, access, on_device)?;
    Ok(buffer.host_frame().map(|frame| read(&frame)))
}

/// A new buffer in ordinary memory, with the flags, timestamps and metas of `buffer`, but uninitialised pixels. Without pixels
/// GStreamer does not copy GstVideoMeta, so that the offsets and strides are those of the caps.
fn copy_without_pixels(buffer: &gst::BufferRef, info: &gst_video::VideoInfo) -> Option<gst::Buffer> {
    let mut copy = gst::Buffer::with_size(info.size()).ok()?;
    let new = copy.get_mut()?;
    let copied = gst::BufferCopyFlags::FLAGS | gst::BufferCopyFlags::TIMESTAMPS | gst::BufferCopyFlags::META;
    buffer.copy_into(new, copied, ..).ok()?;
    Crop::remove_from(new, info);
    Some(copy)
}
