// SPDX-License-Identifier: MPL-2.0
//! Scratch memory of one worker thread. A failed allocation is an error instead of an abort.

use super::CpuError;

/// 64 bytes, aligned to a cache line, so that an aligned 64-byte vector never spans two lines.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct CacheLine([u32; Scratch::ALIGNMENT_WORDS]);

/// Growable scratch memory of 32-bit words that starts on a cache line.
#[derive(Default)]
pub struct Scratch {
    lines: Vec<CacheLine>,
}

impl Scratch {
    /// The words in a cache line. Every multiple of this offset is again the start of a cache line.
    pub const ALIGNMENT_WORDS: usize = 16;

    /// Grows the memory to at least `words` words. Does nothing if it is already that large.
    pub fn reserve(&mut self, words: usize) -> Result<(), CpuError> {
        let lines = words.div_ceil(Self::ALIGNMENT_WORDS);
        let bytes = lines * size_of::<CacheLine>();
        let out_of_memory = CpuError::OutOfMemory { bytes };
        #[cfg(test)]
        if faults::exceeds_ceiling(bytes) {
            return Err(out_of_memory);
        }
        if lines > self.lines.len() {
            self.lines.try_reserve_exact(lines - self.lines.len()).map_err(|_| out_of_memory)?;
            self.lines.resize(lines, CacheLine([0; Self::ALIGNMENT_WORDS]));
        }
        Ok(())
    }

    /// The address of the first word. The memory holds as many words as the largest successful call of [`Scratch::reserve`]
    /// requested. The next call may move it.
    pub fn words(&mut self) -> *mut u32 {
        self.lines.as_mut_ptr().cast()
    }
}

/// Simulates allocation failures on the current thread, for this crate's tests.
#[cfg(test)]
pub mod faults {
    use std::cell::Cell;

    thread_local!(static CEILING: Cell<usize> = const { Cell::new(usize::MAX) });

    /// From now on, every call of `reserve` for more than `bytes` bytes fails on this thread.
    pub fn set_ceiling(bytes: usize) {
        CEILING.set(bytes);
    }

    pub(super) fn exceeds_ceiling(bytes: usize) -> bool {
        bytes > CEILING.get()
    }
}
