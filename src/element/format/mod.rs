// SPDX-License-Identifier: MPL-2.0
//! The formats of frames: caps, the planes of each format, and the negotiation of caps.

pub mod caps;
pub mod fill_color;
pub mod formats;
pub mod negotiation;
pub mod stream_format;
