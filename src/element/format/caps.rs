// SPDX-License-Identifier: MPL-2.0
//! Caps: the caps that the pads accept, and how the caps of one pad follow from those of the other.

use std::sync::LazyLock;

use super::formats;
use crate::element::memory::gstcuda;
use crate::filter::frame::MAX_DIMENSION;

fn raw_video<'a>(
    formats: impl IntoIterator<Item = &'a &'static str>,
) -> gst_video::VideoCapsBuilder<gst::caps::NoFeature> {
    gst_video::VideoCapsBuilder::new()
        .field("format", gst::List::new(formats))
        .width_range(1..=MAX_DIMENSION as i32)
        .height_range(1..=MAX_DIMENSION as i32)
}

/// Frames of these formats, in CUDA memory if `has_device_memory` and in host memory.
fn video(formats: &[&'static str], has_device_memory: impl Fn(&str) -> bool) -> gst::Caps {
    let mut video = gst::Caps::new_empty();
    let caps = video.make_mut();
    let device: Vec<_> = formats.iter().filter(|format| has_device_memory(format)).collect();
    if !device.is_empty() {
        caps.append(raw_video(device).features([gstcuda::CAPS_FEATURE]).build());
    }
    caps.append(raw_video(formats).build());
    // GStreamer requires a caps feature for interlace-mode=alternate, where every buffer holds one field.
    let alternate =
        raw_video(formats).features([gst_video::CAPS_FEATURE_FORMAT_INTERLACED]).field("interlace-mode", "alternate");
    caps.append(alternate.build());
    video
}

/// The caps of both pad templates. CUDA memory is among them if libgstcuda and the NVIDIA driver are installed.
pub fn template() -> &'static gst::Caps {
    static TEMPLATE: LazyLock<gst::Caps> = LazyLock::new(|| {
        let known: Vec<_> = formats::all().map(|format| format.to_str().as_str()).collect();
        video(&known, |format| gstcuda::is_available() && gstcuda::supports_format(format))
    });
    &TEMPLATE
}

/// The caps of both pad templates in the documentation: those of a machine with CUDA and the newest GStreamer. They do
/// not depend on the machine on which the element is documented.
pub fn documentation() -> gst::Caps {
    video(&formats::names().collect::<Vec<_>>(), |format| gstcuda::format_since(format).is_some())
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
