// SPDX-License-Identifier: MPL-2.0
//! Decides which parts of a picture are covered at which time, without GStreamer. `tracks` follows the detections of
//! objects through time, `frame_regions` turns tracks and zones into the regions of a frame by `rules`, and `hidden`
//! turns the regions into the covered part of the frame. `strength` computes how strongly an object is blurred.

pub mod clock;
pub mod detection;
pub mod frame_regions;
pub mod hidden;
pub mod masks;
pub mod on_missing;
pub mod rules;
pub mod strength;
pub mod tracks;
pub mod zone;
