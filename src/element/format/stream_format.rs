// SPDX-License-Identifier: MPL-2.0
//! The format of a stream: what the negotiated caps say about its frames.

use std::sync::Arc;

use gst_video::VideoInterlaceMode;
use gst_video::prelude::*;

use super::formats;
use crate::element::memory::gstcuda::CAPS_FEATURE;
use crate::filter::frame::PlaneLayout;
use crate::filter::picture::PictureGeometry;
use crate::filter::plan::Options;

/// The negotiated format of a stream.
pub struct StreamFormat {
    /// GStreamer's description of the frames.
    pub info: gst_video::VideoInfo,
    /// The planes of a progressive frame, and of a frame whose rows alternate between two fields.
    layouts: [Arc<[PlaneLayout]>; 2],
    /// Width and height of the picture in a buffer, in luma samples: of one field with interlace-mode=alternate.
    pub picture_size: (u32, u32),
    /// Whether input frames and output frames are in CUDA memory.
    on_device: [bool; 2],
}

impl StreamFormat {
    /// The format of frames of these input caps; `on_device` says whether input and output are in CUDA memory. `None`
    /// for a video format that is not supported.
    pub fn new(info: gst_video::VideoInfo, on_device: [bool; 2]) -> Option<Self> {
        let layouts: [Arc<[PlaneLayout]>; 2] =
            [formats::planes(&info, false)?.into(), formats::planes(&info, true)?.into()];
        let [width, height] = PictureGeometry::new(&layouts[0]).size();
        Some(Self { info, layouts, picture_size: (width, height), on_device })
    }

    /// Caps of the input; `None` if GStreamer cannot make them.
    pub fn input_caps(&self) -> Option<gst::Caps> {
        let mut caps = self.info.to_caps().ok()?;
        if self.on_device[0] {
            caps.make_mut().set_features_simple(Some(gst::CapsFeatures::new([CAPS_FEATURE])));
        }
        Some(caps)
    }

    /// The planes that buffers can have.
    pub fn possible_layouts(&self) -> &[Arc<[PlaneLayout]>] {
        match self.info.interlace_mode() {
            VideoInterlaceMode::Interleaved => &self.layouts[1..],
            VideoInterlaceMode::Mixed => &self.layouts,
            _ => &self.layouts[..1],
        }
    }

    /// The planes of this buffer. With interlace-mode=mixed, a flag of each buffer says whether it is interlaced.
    pub fn layouts(&self, buffer: &gst::BufferRef) -> &Arc<[PlaneLayout]> {
        let interlaced = match self.info.interlace_mode() {
            VideoInterlaceMode::Interleaved => true,
            VideoInterlaceMode::Mixed => buffer.video_flags().contains(gst_video::VideoBufferFlags::INTERLACED),
            _ => false,
        };
        &self.layouts[usize::from(interlaced)]
    }

    /// The planes of a progressive frame.
    pub fn progressive_layouts(&self) -> &[PlaneLayout] {
        &self.layouts[0]
    }

    /// Whether a buffer holds one field (interlace-mode=alternate).
    pub fn is_alternate(&self) -> bool {
        self.info.interlace_mode() == VideoInterlaceMode::Alternate
    }

    /// Whether the planes of a buffer are where elements without GstVideoMeta look for them.
    pub fn is_default_layout(&self, buffer: &gst::BufferRef) -> bool {
        let is_default = |meta: &gst_video::VideoMeta| {
            // First, because the bindings panic for more than 4 planes.
            meta.n_planes() == self.info.n_planes()
                && meta.offset() == self.info.offset()
                && meta.stride() == self.info.stride()
        };
        buffer.meta::<gst_video::VideoMeta>().is_none_or(|meta| is_default(&meta))
    }

    /// The planes of a progressive frame, for the log.
    pub fn describe_planes(&self) -> String {
        let describe = |plane: &PlaneLayout| {
            let PlaneLayout { width, height, channels, depth, sample_layout, sigma_scale: [x, y], .. } = plane;
            format!("{width}x{height}, {channels} channels of {depth} bits ({sample_layout:?}), sigma by {x} and {y}")
        };
        self.layouts[0].iter().map(describe).collect::<Vec<_>>().join("; ")
    }

    /// Whether frames are passed on unchanged with these options. Frames that are uploaded or downloaded are never
    /// passed on unchanged.
    pub fn is_passthrough(&self, options: &Options) -> bool {
        self.is_same_memory() && options.is_passthrough(&self.layouts[0])
    }

    /// The time from one buffer to the next by the frame rate, in nanoseconds and rounded up; `None` without a rate. A
    /// field has half the time of a frame.
    pub fn interval(&self) -> Option<u64> {
        let fps = self.info.fps();
        let [numerator, denominator] = [fps.numer(), fps.denom()].map(|part| u64::from(part.unsigned_abs()));
        let frames = numerator * if self.is_alternate() { 2 } else { 1 };
        if frames == 0 { None } else { Some((denominator * gst::ClockTime::SECOND.nseconds()).div_ceil(frames)) }
    }

    /// Whether input and output are both in CUDA memory.
    pub fn is_device_resident(&self) -> bool {
        self.on_device == [true; 2]
    }

    /// Whether input and output are both in host memory or both in CUDA memory.
    pub fn is_same_memory(&self) -> bool {
        self.on_device[0] == self.on_device[1]
    }
}
