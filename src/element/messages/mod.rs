// SPDX-License-Identifier: MPL-2.0
//! The element's output to users: messages on the bus with their texts, the log, and `stats`.

pub mod errors;
pub mod log;
pub mod orientation;
pub mod posting;
pub mod qos;
pub mod region_message;
pub mod stats;
#[cfg(test)]
mod tests;
pub mod warnings;
