// SPDX-License-Identifier: MPL-2.0
//! Caps: what the pads accept, and how the caps of one pad follow from those of the other.

use std::sync::LazyLock;

use super::{formats, gstcuda};
use crate::filter::frame::MAX_DIMENSION;

fn raw_video(
    formats: impl IntoIterator<Item = gst_video::VideoFormat>,
) -> gst_video::VideoCapsBuilder<gst::caps::NoFeature> {
    gst_video::VideoCapsBuilder::new()
        .format_list(formats)
        .width_range(1..=MAX_DIMENSION as i32)
        .height_range(1..=MAX_DIMENSION as i32)
}

/// Frames in CUDA memory. Empty if libgstcuda or the NVIDIA driver is not installed.
fn device_template() -> gst::Caps {
    if !gstcuda::is_available() {
        return gst::Caps::new_empty();
    }
    raw_video(formats::all().filter(|format| gstcuda::supports_format(*format)))
        .features([gstcuda::CAPS_FEATURE])
        .build()
}

/// The caps of both pad templates.
pub fn template() -> &'static gst::Caps {
    static TEMPLATE: LazyLock<gst::Caps> = LazyLock::new(|| {
        // GStreamer requires a caps feature for interlace-mode=alternate, where every buffer holds one field.
        let alternate = raw_video(formats::all())
            .features([gst_video::CAPS_FEATURE_FORMAT_INTERLACED])
            .field("interlace-mode", "alternate");
        let mut template = device_template();
        let caps = template.make_mut();
        caps.append(raw_video(formats::all()).build());
        caps.append(alternate.build());
        template
    });
    &TEMPLATE
}

/// Whether frames of these caps are in CUDA memory.
pub fn is_device(caps: &gst::CapsRef) -> bool {
    caps.features(0).is_some_and(|features| features.contains(gstcuda::CAPS_FEATURE))
}

/// Whether these caps allow no other memory than CUDA memory.
fn is_device_only(caps: &gst::CapsRef) -> bool {
    !caps.is_any()
        && !caps.is_empty()
        && caps.iter_with_features().all(|(_, features)| features.contains(gstcuda::CAPS_FEATURE))
}

/// These caps without CUDA memory.
fn without_device(caps: &gst::CapsRef) -> gst::Caps {
    let host = caps.iter_with_features().filter(|(_, features)| !features.contains(gstcuda::CAPS_FEATURE));
    host.map(|(structure, features)| (structure.to_owned(), features.to_owned())).collect()
}

/// The caps that the other pad can have: the same ones first, then the same ones in the other memory, because the
/// element uploads and downloads. With `on_cpu`, CUDA memory is left out; CUDA-only caps are accepted here all the
/// same, so that set_caps can fail with an actionable error.
pub fn transform(caps: &gst::Caps, filter: Option<&gst::Caps>, on_cpu: bool) -> gst::Caps {
    let is_negotiated_device = caps.is_fixed() && is_device_only(caps);
    if on_cpu && !caps.is_any() && !is_negotiated_device && !is_device_only(filter.unwrap_or(caps)) {
        return without_device(caps);
    }
    let host = gst::CapsFeatures::new_empty();
    let device = gst::CapsFeatures::new([gstcuda::CAPS_FEATURE]);
    let mut other_memory = gst::Caps::new_empty();
    for (structure, features) in caps.iter_with_features() {
        let other = if features.is_equal(&device) {
            &host
        } else if features.is_any() || !features.is_equal(gst::CAPS_FEATURES_MEMORY_SYSTEM_MEMORY.as_ref()) {
            continue;
        } else {
            &device
        };
        other_memory.make_mut().append_structure_full(structure.to_owned(), Some(other.clone()));
    }
    let mut transformed = caps.clone();
    transformed.make_mut().append(other_memory.intersect(template()));
    transformed
}
