// SPDX-License-Identifier: MPL-2.0
//! The element message that says what was covered in a frame, for a log of redaction. docs/MESSAGES.md lists its
//! fields.

use gst::prelude::*;

use crate::element::cover::FrameCover;
use crate::element::regions::settings::{CoverKind, RegionSettings};
use crate::filter::regions::Area;
use crate::filter::weights::Shape;
use crate::regions::clock::FrameTimes;
use crate::regions::frame_regions::{FrameRegion, Origin};
use crate::regions::hidden::CoveredPart;
use crate::regions::tracks::Evidence;

/// The message for a frame, for a frame that was dropped without a `cover`.
pub fn structure(times: &FrameTimes, settings: &RegionSettings, cover: Option<&FrameCover>) -> gst::Structure {
    let mut structure = gst::Structure::new_empty("cudagaussblur");
    for (name, time) in [
        ("timestamp", times.timestamp),
        ("stream-time", times.stream),
        ("running-time", times.running),
        ("duration", times.duration),
    ] {
        structure.set(name, time.unwrap_or(u64::MAX));
    }
    structure.set("covered", cover.map_or("dropped", FrameCover::covered));
    structure.set("covered-area", cover.map_or(0.0, |cover| cover.covered_area));
    structure.set("unchanged", cover.map_or_else(String::new, |cover| cover.unchanged.names()));
    let name = match settings.cover {
        CoverKind::Blur => "blur",
        CoverKind::Mosaic => "mosaic",
        CoverKind::Fill => "fill",
    };
    structure.set("cover", name);
    structure.set("missing", cover.is_none_or(|cover| cover.is_missing));
    structure.set("lost", cover.is_some_and(|cover| cover.is_lost));
    let regions = cover.filter(|cover| cover.part != CoveredPart::Frame).map(|cover| &cover.regions[..]);
    let regions = regions.unwrap_or_default().iter().map(|region| region_structure(region).to_send_value());
    structure.set("regions", gst::Array::new(regions));
    structure
}

/// A region: its place in luma samples of the frame, and its origin.
fn region_structure(one: &FrameRegion) -> gst::Structure {
    let FrameRegion { region, origin, track, detected, label, name, outline } = one;
    let origin = match origin {
        Origin::Zone => "zone",
        Origin::Alpha => "alpha",
        Origin::Detection(Evidence::Found) => "found",
        Origin::Detection(Evidence::Predicted) => "predicted",
        Origin::Detection(Evidence::Bridged) => "bridged",
        Origin::Detection(Evidence::Anticipated) => "anticipated",
    };
    let shape = match outline.shape {
        Shape::Box => "box",
        Shape::Ellipse => "ellipse",
        Shape::Mask(_) => "mask",
    };
    let array = |Area { left, top, right, bottom }: Area| {
        gst::Array::new([left, top, right - left, bottom - top].map(|length| length.to_send_value()))
    };
    gst::Structure::builder("region")
        .field("x", region.rect.x())
        .field("y", region.rect.y())
        .field("width", region.rect.width())
        .field("height", region.rect.height())
        .field("origin", origin)
        .field_if_some("track", *track)
        .field_if_some("label", label.as_ref())
        .field_if_some("detected", detected.map(array))
        .field_if_some("object", track.map(|_| array(region.object)))
        .field_if_some("name", name.as_ref())
        .field("shape", shape)
        .build()
}
