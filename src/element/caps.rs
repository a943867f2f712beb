// SPDX-License-Identifier: MPL-2.0
//! Caps: what the pads take, and which memory goes with which.

use std::sync::LazyLock;

use super::{formats, gstcuda};
use crate::frame::MAX_DIMENSION;

fn frames(
    formats: impl IntoIterator<Item = gst_video::VideoFormat>,
) -> gst_video::VideoCapsBuilder<gst::caps::NoFeature> {
    gst_video::VideoCapsBuilder::new()
        .format_list(formats)
        .width_range(1..=MAX_DIMENSION as i32)
        .height_range(1..=MAX_DIMENSION as i32)
}

/// Frames in CUDA memory; none where GStreamer's library for it, or the driver, is missing.
fn on_device() -> gst::Caps {
    if !gstcuda::is_here() {
        return gst::Caps::new_empty();
    }
    frames(formats::all().filter(|format| gstcuda::takes(*format))).features([gstcuda::CAPS_FEATURE]).build()
}

/// What both pads take.
pub fn template() -> &'static gst::Caps {
    static TEMPLATE: LazyLock<gst::Caps> = LazyLock::new(|| {
        // Fields in buffers of their own have a caps feature.
        let fields = frames(formats::all())
            .features([gst_video::CAPS_FEATURE_FORMAT_INTERLACED])
            .field("interlace-mode", "alternate");
        let mut caps = on_device();
        let all = caps.make_mut();
        all.append(frames(formats::all()).build());
        all.append(fields.build());
        caps
    });
    &TEMPLATE
}

/// Whether frames of these caps are in CUDA memory.
pub fn are_on_device(caps: &gst::CapsRef) -> bool {
    caps.features(0).is_some_and(|features| features.contains(gstcuda::CAPS_FEATURE))
}

/// Whether nothing but CUDA memory will do.
fn are_only_on_device(caps: &gst::CapsRef) -> bool {
    !caps.is_any()
        && !caps.is_empty()
        && caps.iter_with_features().all(|(_, features)| features.contains(gstcuda::CAPS_FEATURE))
}

/// Without what is in CUDA memory.
fn on_host(caps: &gst::CapsRef) -> gst::Caps {
    let host = caps.iter_with_features().filter(|(_, features)| !features.contains(gstcuda::CAPS_FEATURE));
    host.map(|(structure, features)| (structure.to_owned(), features.to_owned())).collect()
}

/// What can be on the other pad: the same in the same memory, or else in the other one. The CPU takes no CUDA memory; where
/// there is nothing else it is let through all the same, to be refused with a reason.
pub fn across(caps: &gst::Caps, filter: Option<&gst::Caps>, on_cpu: bool) -> gst::Caps {
    let settled = caps.is_fixed() && are_only_on_device(caps);
    if on_cpu && !caps.is_any() && !settled && !are_only_on_device(filter.unwrap_or(caps)) {
        return on_host(caps);
    }
    let mut all = caps.clone();
    let host = gst::CapsFeatures::new_empty();
    let device = gst::CapsFeatures::new([gstcuda::CAPS_FEATURE]);
    let mut others = gst::Caps::new_empty();
    for (structure, features) in caps.iter_with_features() {
        let other = if features.is_equal(&device) {
            &host
        } else if features.is_any() || !features.is_equal(gst::CAPS_FEATURES_MEMORY_SYSTEM_MEMORY.as_ref()) {
            continue;
        } else {
            &device
        };
        others.make_mut().append_structure_full(structure.to_owned(), Some(other.clone()));
    }
    all.make_mut().append(others.intersect(template()));
    all
}
