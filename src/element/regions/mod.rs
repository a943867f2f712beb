// SPDX-License-Identifier: MPL-2.0
//! Which parts of a picture are covered. `detector_metas` (with `analytics` and `masks`) reads what detectors attached, `tracks`
//! follows the objects through time, and `frame_regions` turns that and the settings into the regions of a frame. The alpha channel of
//! a frame is a mask without a detection.

pub mod analytics;
pub(in crate::element) mod clock;
pub mod detection;
pub(in crate::element) mod detector_metas;
pub(in crate::element) mod frame_regions;
pub mod masks;
pub(in crate::element) mod on_missing;
pub(in crate::element) mod settings;
pub mod tracks;
pub(in crate::element) mod zones;
