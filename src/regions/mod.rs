// SPDX-License-Identifier: MPL-2.0
//! Which parts of a picture are covered when, without GStreamer: `tracks` follows the detections of objects through time, and
//! `frame_regions` turns tracks and zones into the regions of a frame, by `rules`, of which
//! `covered` says what is covered.

pub mod clock;
pub mod covered;
pub mod detection;
pub mod frame_regions;
pub mod masks;
pub mod on_missing;
pub mod rules;
pub mod tracks;
pub mod zone;
