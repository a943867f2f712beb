// SPDX-License-Identifier: MPL-2.0
//! Which frames are timed. Events with times cost the device up to 10 µs a frame, and their calls cost the calling thread half
//! as much as everything else that is enqueued for a frame on the device.

/// So many frames are timed at first: until the expected time of a frame is known.
const FIRST: u32 = 16;
/// After them, one frame of so many.
const PERIOD: u32 = 8;

/// Counts frames, and decides which are timed.
#[derive(Debug, Default)]
pub struct TimingSampler {
    frames: u32,
}

impl TimingSampler {
    /// Whether the next frame is timed.
    pub fn next_frame(&mut self) -> bool {
        let is_timed = self.frames < FIRST || self.frames.is_multiple_of(PERIOD);
        self.frames = self.frames.wrapping_add(1);
        is_timed
    }
}
