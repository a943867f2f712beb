// SPDX-License-Identifier: MPL-2.0
//! Decimation and interpolation for the levels of the wide form.
//!
//! Samples are biased as in `tile_blur.rs`: a 16-bit sample s is represented as s - 32768, and all sums wrap modulo 2³².

pub mod columns_up;
pub mod decimate;
pub mod interpolate;
pub mod row_format;
pub mod rows_down;
#[cfg(target_arch = "x86_64")]
pub mod rows_down_vnni;
pub mod rows_up;

use super::simd::{BIAS, PAIR_BIAS};

/// The number of elements that a vector loop may read or write after the last element of a row in scratch memory: a block of
/// vectors, and the elements that [`super::simd::Simd::gather_pairs`] reads beyond it.
const SLACK: usize = 128;

/// Fewer multiplications than this are not worth another thread, even if it is already awake.
const BLOCK_WORK: usize = 1 << 17;

/// The number of rows in a block if `rows` rows are cut into at most `count` blocks. It is a multiple of `step`, and at least
/// `shortest`. `work` is the number of multiplications for all rows.
fn block_rows(rows: usize, step: usize, shortest: usize, work: usize, count: usize) -> usize {
    let count = count.min(work / BLOCK_WORK).max(1);
    rows.div_ceil(count).max(shortest).next_multiple_of(step)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_are_whole_steps_and_not_too_small() {
        for (rows, step, shortest) in [(1, 2, 12), (11, 4, 4), (277, 2, 12), (1080, 4, 4), (1081, 2, 2)] {
            for count in 1..17 {
                let length = block_rows(rows, step, shortest, usize::MAX, count);
                assert!(length.is_multiple_of(step) && length >= shortest && rows.div_ceil(length) <= count);
                assert!(block_rows(rows, step, shortest, 2 * BLOCK_WORK - 1, count) >= rows);
            }
        }
    }
}
