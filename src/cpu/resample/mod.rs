// SPDX-License-Identifier: MPL-2.0
//! Decimation and interpolation: the levels of the wide form.
//!
//! Samples are biased as in the tile blur (see `tile_blur.rs`): a 16-bit sample s is represented as s - 32768, and all
//! sums wrap modulo 2³².

pub mod columns_up;
pub mod decimate;
pub mod interpolate;
pub mod row_format;
pub mod rows_down;
#[cfg(target_arch = "x86_64")]
pub mod rows_down_vnni;
pub mod rows_up;

use std::ops::Range;

use super::simd::{BIAS, PAIR_BIAS};

/// Elements that a vector loop may read or write beyond the last one of a row in scratch memory: a block of vectors,
/// and what [`super::simd::Simd::gather_pairs`] reads beyond.
const SLACK: usize = 128;

/// Less multiplications than this are not worth another thread, although it is awake already.
const BLOCK_WORK: usize = 1 << 17;

/// Cuts `rows` rows into this many blocks at most, each a multiple of `step` rows and at least `shortest` long.
/// `work` is the number of multiplications of all rows.
fn blocks(rows: usize, step: usize, shortest: usize, work: usize, count: usize) -> impl Iterator<Item = Range<usize>> {
    let count = count.min(work / BLOCK_WORK).max(1);
    let length = rows.div_ceil(count).max(shortest).next_multiple_of(step);
    (0..rows).step_by(length).map(move |first| first..(first + length).min(rows))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_cover_every_row_once() {
        for (rows, step, shortest) in [(1, 2, 12), (11, 4, 4), (277, 2, 12), (1080, 4, 4), (1081, 2, 2)] {
            for count in 1..17 {
                let blocks: Vec<_> = super::blocks(rows, step, shortest, usize::MAX, count).collect();
                assert!(blocks.iter().all(|block| block.start.is_multiple_of(step) && !block.is_empty()), "{blocks:?}");
                assert_eq!(blocks.iter().cloned().flatten().collect::<Vec<_>>(), (0..rows).collect::<Vec<_>>());
                assert_eq!(super::blocks(rows, step, shortest, 2 * BLOCK_WORK - 1, count).count(), 1);
            }
        }
    }
}
