// SPDX-License-Identifier: MPL-2.0
//! Which parts of a picture are covered. `detector_metas` (with `analytics`) reads what detectors attached, `tracks` follows
//! the objects through time, and `frame_regions` turns that and the settings into the regions of a frame.

pub mod analytics;
pub mod clock;
pub mod detection;
pub mod detector_metas;
pub mod frame_regions;
pub mod on_missing;
pub mod settings;
pub mod tracks;
pub mod zones;
