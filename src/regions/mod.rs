// SPDX-License-Identifier: MPL-2.0
//! Which parts of a picture are covered when, without GStreamer. `tracks` follows the detections of objects through time,
//! `frame_regions` turns tracks and zones into the regions of a frame by `rules`, and `hidden` says what of the frame they cover. `strength` says how strongly an object is blurred.

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
