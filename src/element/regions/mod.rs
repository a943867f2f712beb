// SPDX-License-Identifier: MPL-2.0
//! The sources of regions: `detector_metas` (with `analytics` and `mask_buffers`) reads the metas of detectors;
//! `settings` and `zones` are the properties. The alpha channel of a frame is a mask without a detection.

pub mod analytics;
pub(in crate::element) mod detector_metas;
mod mask_buffers;
pub(in crate::element) mod settings;
pub(in crate::element) mod zones;
