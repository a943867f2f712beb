//! The buffers of a life: a frame in the memory that its step describes, and the pool that downstream offers.

use std::sync::Arc;

use gst_video::prelude::*;
use gst_video::{VideoBufferPool, VideoFrameFlags, VideoInfo, VideoMeta, VideoRegionOfInterestMeta};

use crate::common::pictures::{Picture, pitch};
use crate::cuda_frames::Context;
use crate::steps::{Downstream, Frame, Layout, MaskParam, Owner, RoiBox};

/// The bytes of an input memory, counted while they live.
struct Bytes(Vec<u8>, #[expect(dead_code, reason = "it counts")] Arc<()>);

impl AsRef<[u8]> for Bytes {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl AsMut<[u8]> for Bytes {
    fn as_mut(&mut self) -> &mut [u8] {
        &mut self.0
    }
}

/// The buffer of a frame. Its memories hold `alive`.
pub fn buffer(frame: &Frame, info: &VideoInfo, picture: &Picture, alive: &Arc<()>) -> gst::Buffer {
    let (offsets, strides, size, is_described) = planes(frame, info, picture);
    let mut bytes = vec![0x5a_u8; size];
    for (plane, layout) in picture.planes.iter().enumerate() {
        for (y, row) in (0..).zip(picture.bytes[plane].chunks(pitch(layout))) {
            let start = offsets[plane] as i64 + y * i64::from(strides[plane]);
            let place = usize::try_from(start).ok().and_then(|start| bytes.get_mut(start..start + layout.row_bytes()));
            place.into_iter().for_each(|place| place.copy_from_slice(&row[..layout.row_bytes()]));
        }
    }
    let mut buffer = gst::Buffer::new();
    let new = buffer.get_mut().unwrap();
    for bytes in bytes.chunks(bytes.len().div_ceil(frame.memories).max(1)) {
        let bytes = Bytes(bytes.to_vec(), Arc::clone(alive));
        new.append_memory(match frame.owner {
            Owner::ReadOnly => gst::Memory::from_slice(bytes),
            _ => gst::Memory::from_mut_slice(bytes),
        });
    }
    if is_described {
        let flags = VideoFrameFlags::empty();
        let (width, height) = (info.width(), info.height());
        VideoMeta::add_full(new, flags, info.format(), width, height, &offsets, &strides).unwrap();
    }
    describe(frame, new, alive);
    buffer
}

/// The same in CUDA memory, which has a layout of its own.
pub fn in_cuda(context: &Context, frame: &Frame, info: &VideoInfo, picture: &Picture, alive: &Arc<()>) -> gst::Buffer {
    let planes = picture.planes.iter().zip(&picture.bytes);
    let planes: Vec<_> = planes.map(|(layout, bytes)| (&bytes[..], pitch(layout), layout.row_bytes())).collect();
    let mut buffer = context.frame(info, &planes);
    describe(frame, buffer.make_mut(), alive);
    buffer
}

/// Adds metas, flags and times.
fn describe(frame: &Frame, new: &mut gst::BufferRef, alive: &Arc<()>) {
    frame.boxes.iter().for_each(|roi| add_meta(new, roi, alive));
    new.set_flags(frame.flags);
    if frame.is_interlaced {
        new.set_video_flags(gst_video::VideoBufferFlags::INTERLACED);
    }
    new.set_pts(frame.pts);
    new.set_duration(frame.duration);
}

/// Offsets and strides of the planes, the bytes of the buffer, and whether a GstVideoMeta describes them.
fn planes(frame: &Frame, info: &VideoInfo, picture: &Picture) -> (Vec<usize>, Vec<i32>, usize, bool) {
    let (mut offsets, mut strides) = (info.offset().to_vec(), info.stride().to_vec());
    match frame.layout {
        Layout::Caps(more) => (offsets, strides, info.size() + more, false),
        Layout::Short(less) => (offsets, strides, info.size().saturating_sub(less).max(1), false),
        Layout::ShortMeta(less) => {
            // The last row has no padding, so that a byte is missing.
            let last = picture.planes.len() - 1;
            let layout = &picture.planes[last];
            let end = offsets[last] + (layout.height as usize - 1) * strides[last] as usize + layout.row_bytes();
            (offsets, strides, end.saturating_sub(less).max(1), true)
        }
        Layout::NegativeStride => {
            strides[0] = -strides[0];
            offsets[0] = info.size() - 1;
            (offsets, strides, info.size(), true)
        }
        Layout::Overlapping => {
            let last = offsets.len() - 1;
            offsets[last] = offsets[last].min(1);
            (offsets, strides, info.size() * 2, true)
        }
        Layout::Padded(row, before) => {
            let mut size = 0;
            for (plane, layout) in picture.planes.iter().enumerate() {
                size += before;
                (offsets[plane], strides[plane]) = (size, strides[plane] + row);
                size += strides[plane] as usize * layout.height as usize;
            }
            (offsets, strides, size, true)
        }
    }
}

fn add_meta(buffer: &mut gst::BufferRef, roi: &RoiBox, alive: &Arc<()>) {
    let mut meta = VideoRegionOfInterestMeta::add(buffer, roi.label.unwrap_or("none"), roi.rect.into());
    if roi.label.is_none() {
        // SAFETY: the pointer is to the live meta that `meta` borrows mutably.
        unsafe { (*meta.as_mut_ptr()).roi_type = 0 };
    }
    if let Some(confidence) = roi.confidence {
        let detection = gst::Structure::builder("detection");
        // Of other types too. What is not from 0 to 1 is no confidence, whatever its type.
        let detection = match confidence {
            0.5 => detection.field("confidence", 0.5_f32),
            7.0 => detection.field("confidence", 7),
            -1.0 => detection.field("confidence", "low"),
            _ => detection.field("confidence", confidence),
        };
        meta.add_param(detection.build());
    }
    if let Some(id) = roi.id {
        let object = gst::Structure::builder("object_id");
        meta.add_param(if id < 0 { object.field("id", "none") } else { object.field("id", id) }.build());
    }
    if let Some(mask) = &roi.mask {
        meta.add_param(gst::Structure::builder("mask").field("sample", mask_sample(mask, alive)).build());
    }
}

fn mask_sample(mask: &MaskParam, alive: &Arc<()>) -> gst::Sample {
    let [columns, rows] = mask.size;
    let stride = mask.stride().unsigned_abs() as usize;
    // The last row has no padding, so that a byte is missing.
    let mut bytes = vec![0; (stride * (rows.max(1) as usize - 1) + columns as usize).saturating_sub(mask.missing)];
    for (y, x) in (0..rows).flat_map(|y| (0..columns).map(move |x| (y, x))) {
        bytes.get_mut(y as usize * stride + x as usize).into_iter().for_each(|byte| *byte = mask.sample(x, y));
    }
    let mut buffer = gst::Buffer::from_mut_slice(Bytes(bytes, Arc::clone(alive)));
    let format = mask.format.map_or(gst_video::VideoFormat::Gray8, gst_video::VideoFormat::from_string);
    if mask.padding.is_some() {
        let other = u32::from(mask.is_of_other_size);
        let (offsets, strides) = ([0; 4], [mask.stride(); 4]);
        let (offsets, strides) = (&raw const offsets, &raw const strides);
        // SAFETY: the buffer is writable and both arrays have four values. The bindings refuse what a producer may write.
        unsafe {
            gst_video::ffi::gst_buffer_add_video_meta_full(
                buffer.get_mut().unwrap().as_mut_ptr(),
                0,
                gst::glib::translate::IntoGlib::into_glib(format),
                columns,
                rows + other,
                gst_video::VideoFormatInfo::from_format(format).n_planes(),
                offsets,
                strides,
            );
        }
    }
    let sample = gst::Sample::builder().buffer(&buffer);
    let Some(format) = mask.format else { return sample.build() };
    let caps = format!("video/x-raw,format={format},width={columns},height={rows}");
    sample.caps(&caps.parse().unwrap()).build()
}

/// Answers an allocation query.
pub fn answer(query: &mut gst::query::Allocation, downstream: &Downstream) {
    if downstream.takes_video_meta {
        query.add_allocation_meta::<VideoMeta>(None);
    }
    let Some((padding, caps)) = downstream.pool_padding.zip(query.get_owned().0) else { return };
    let Ok(info) = VideoInfo::from_caps(&caps) else { return };
    if info.interlace_mode() == gst_video::VideoInterlaceMode::Alternate {
        return;
    }
    let pool = VideoBufferPool::new();
    let mut config = pool.config();
    config.set_params(Some(&caps), info.size() as u32, 0, 0);
    config.add_option(gst_video::BUFFER_POOL_OPTION_VIDEO_META);
    config.add_option(gst_video::BUFFER_POOL_OPTION_VIDEO_ALIGNMENT);
    config.set_video_alignment(&gst_video::VideoAlignment::new(padding, 4, padding, 8, &[31; 4]));
    pool.set_config(config).ok();
    query.add_allocation_pool(Some(&pool), info.size() as u32, 0, 0);
}
