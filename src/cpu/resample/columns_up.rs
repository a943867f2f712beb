// SPDX-License-Identifier: MPL-2.0
//! The columns step of an interpolation: a row for each phase, from seven of the small plane.

use super::PAIR_BIAS;
use super::row_format::RowFormat;
use super::rows_up::{self, PAIRS};
use crate::cpu::simd::Simd;
use crate::cpu::weights::PhaseWeights;
use crate::filter::wide::PHASE_TAPS;

/// Computes the `samples` columns of a row for each of the phases, two or four: biased 16-bit elements, two in a word, the row of
/// phase p from word `p * pitch` on. Each row of `out` has two vectors more than `samples`.
#[inline(always)]
pub fn columns_up<S: Simd>(
    simd: S,
    phases: &[PhaseWeights],
    rows: [&[u16]; PHASE_TAPS],
    samples: usize,
    out: &mut [u32],
    pitch: usize,
) {
    match phases.len() {
        2 => phases_up::<S, 2>(simd, phases, rows, samples, out, pitch),
        _ => phases_up::<S, 4>(simd, phases, rows, samples, out, pitch),
    }
}

/// [`columns_up`] for FACTOR phases.
#[inline(always)]
fn phases_up<S: Simd, const FACTOR: usize>(
    simd: S,
    phases: &[PhaseWeights],
    rows: [&[u16]; PHASE_TAPS],
    samples: usize,
    out: &mut [u32],
    pitch: usize,
) {
    let weights = rows_up::splat_weights::<S, FACTOR>(simd, phases);
    let count = 2 * S::LANES;
    // Whole vectors of the rows are read; the last, partial one is read from `partial`.
    let vectors = samples.next_multiple_of(count);
    let whole = if vectors <= rows[0].len() { vectors } else { samples / count * count };
    for x in (0..whole).step_by(count) {
        phases_of_columns::<S, FACTOR>(simd, &weights, rows.map(|row| &row[x..]), &mut out[x / 2..], pitch);
    }
    if whole < samples {
        let mut partial = [[0_u16; 32]; PHASE_TAPS];
        for (row, partial) in rows.iter().zip(&mut partial) {
            partial[..samples - whole].copy_from_slice(&row[whole..samples]);
        }
        let rows = partial.each_ref().map(|row| &row[..]);
        phases_of_columns::<S, FACTOR>(simd, &weights, rows, &mut out[whole / 2..], pitch);
    }
}

/// The elements of each phase for the first `2 * LANES` columns, in rows `pitch` words apart.
#[inline(always)]
fn phases_of_columns<S: Simd, const FACTOR: usize>(
    simd: S,
    weights: &[[S::Vector; 4]; FACTOR],
    rows: [&[u16]; PHASE_TAPS],
    out: &mut [u32],
    pitch: usize,
) {
    let (bias, rounding) = (simd.splat(PAIR_BIAS), simd.splat(1 << 15));
    let mut words = [bias; PHASE_TAPS];
    for (word, row) in words.iter_mut().zip(rows) {
        *word = simd.xor(simd.load_halves(row), bias);
    }
    let mut pairs = [[bias; 5]; 2];
    for (i, k) in PAIRS.into_iter().enumerate() {
        let halves = simd.pair_halves(words[k], words[k + 1]);
        pairs[0][i] = halves[0];
        pairs[1][i] = halves[1];
    }
    let low = rows_up::dots::<S, FACTOR>(simd, weights, rounding, pairs[0]);
    let high = rows_up::dots::<S, FACTOR>(simd, weights, rounding, pairs[1]);
    for p in 0..FACTOR {
        simd.store(&mut out[p * pitch..], simd.join_high_halves([low[p], high[p]]));
    }
}

/// Computes the `samples` columns as [`columns_up`], but writes stored samples of this format, the line of phase p from byte `p *
/// pitch` on, with room for a whole vector beyond the last one. Sums start with the words of `initial` from the index of the
/// column modulo 12 on.
#[inline(always)]
pub fn sum_columns<S: Simd>(
    simd: S,
    phases: &[PhaseWeights],
    rows: [&[u16]; PHASE_TAPS],
    samples: usize,
    (format, initial): (&RowFormat, &[u32; 48]),
    lines: &mut [u8],
    pitch: usize,
) {
    let [right, left] = format.shifts();
    let is_bytes = format.is_bytes();
    // Whole vectors of the rows are read; the last, partial one is read from `partial`.
    let mut partial = [[0_u16; 16]; PHASE_TAPS];
    for x in (0..samples).step_by(S::LANES) {
        let mut here = rows.map(|row| &row[x..samples]);
        if samples - x < S::LANES {
            for (row, partial) in here.iter_mut().zip(&mut partial) {
                partial[..row.len()].copy_from_slice(row);
                *row = partial;
            }
        }
        let initial = simd.load(&initial[x % 12..]);
        let mut sums = [initial; 4];
        if phases.len() == 2 {
            let weights = rows_up::splat_weights::<S, 2>(simd, phases);
            [sums[0], sums[1]] = column_sums::<S, 2>(simd, &weights, here, initial);
        } else {
            let weights = rows_up::splat_weights::<S, 4>(simd, phases);
            sums = column_sums::<S, 4>(simd, &weights, here, initial);
        }
        for (p, &sum) in sums.iter().enumerate().take(phases.len()) {
            if is_bytes {
                simd.store_low8(&mut lines[p * pitch + x..], simd.shift_right(sum, 24));
            } else {
                let samples = simd.shift_left(simd.shift_right(sum, right), left);
                simd.store_low16(&mut lines[p * pitch + 2 * x..], samples);
            }
        }
    }
}

/// The sums of each phase for the first vector of columns.
#[inline(always)]
fn column_sums<S: Simd, const FACTOR: usize>(
    simd: S,
    weights: &[[S::Vector; 4]; FACTOR],
    rows: [&[u16]; PHASE_TAPS],
    initial: S::Vector,
) -> [S::Vector; FACTOR] {
    let bias = simd.splat(PAIR_BIAS);
    let mut words = [bias; PHASE_TAPS];
    for (word, row) in words.iter_mut().zip(rows) {
        *word = simd.load16(row);
    }
    let mut pairs = [bias; 5];
    for (pair, k) in pairs.iter_mut().zip(PAIRS) {
        *pair = simd.xor(simd.pack_low_halves(words[k], words[k + 1]), bias);
    }
    rows_up::dots::<S, FACTOR>(simd, weights, initial, pairs)
}
