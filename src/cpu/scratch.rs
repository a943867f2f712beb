// SPDX-License-Identifier: MPL-2.0
//! Working memory of one thread, grown with an error instead of an abort.

use super::OutOfMemory;

/// A cache line of words, so that vectors of 64 bytes do not straddle two.
#[derive(Clone, Copy)]
#[repr(C, align(64))]
struct Line([u32; Line::WORDS]);

impl Line {
    const WORDS: usize = 16;
}

/// Words of working memory that start on a cache line.
#[derive(Default)]
pub struct Scratch {
    lines: Vec<Line>,
}

impl Scratch {
    /// Makes room for `words`; keeps what is there if it is enough.
    pub fn reserve(&mut self, words: usize) -> Result<(), OutOfMemory> {
        let lines = words.div_ceil(Line::WORDS);
        let refused = OutOfMemory { bytes: lines * size_of::<Line>() };
        #[cfg(test)]
        if faults::refuses(refused.bytes) {
            return Err(refused);
        }
        if lines > self.lines.len() {
            self.lines.try_reserve_exact(lines - self.lines.len()).map_err(|_| refused)?;
            self.lines.resize(lines, Line([0; Line::WORDS]));
        }
        Ok(())
    }

    /// The memory. Holds at least the words of the largest [`Scratch::reserve`].
    pub fn words(&mut self) -> *mut u32 {
        self.lines.as_mut_ptr().cast()
    }
}

/// Lets a test of this crate play an allocator that has run dry, for the thread it runs on.
#[cfg(test)]
pub mod faults {
    use std::cell::Cell;

    thread_local!(static CEILING: Cell<usize> = const { Cell::new(usize::MAX) });

    /// Every reservation above `bytes` on this thread fails from now on.
    pub fn set_ceiling(bytes: usize) {
        CEILING.set(bytes);
    }

    pub(super) fn refuses(bytes: usize) -> bool {
        bytes > CEILING.get()
    }
}
