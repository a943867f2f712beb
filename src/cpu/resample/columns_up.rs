// SPDX-License-Identifier: MPL-2.0
//! The columns step of an interpolation: a row for each phase, from seven of the small plane.

use super::PAIR_BIAS;
use super::rows_up::{self, PAIRS};
use crate::cpu::packed_taps::PhaseTaps;
use crate::cpu::simd::Simd;
use crate::filter::wide::PHASE_TAPS;

/// Computes the `samples` columns of a row for each of the phases, two or four: biased 16-bit elements, the row of phase p at
/// `out + p * pitch`.
///
/// # Safety
/// Each row is valid for reading `readable` elements, `samples` at least, and each
/// row of `out`, `pitch` elements long, for writing two vectors more than `samples`.
#[inline(always)]
pub unsafe fn columns_up<S: Simd>(
    s: S,
    phases: &[PhaseTaps],
    rows: [*const u16; PHASE_TAPS],
    [samples, readable]: [usize; 2],
    out: *mut u16,
    pitch: usize,
) {
    // SAFETY: the caller guarantees the rows and the output.
    unsafe {
        match phases.len() {
            2 => phases_up::<S, 2>(s, phases, rows, [samples, readable], out, pitch),
            _ => phases_up::<S, 4>(s, phases, rows, [samples, readable], out, pitch),
        }
    }
}

/// [`columns_up`] for a number of phases.
///
/// # Safety
/// See [`columns_up`]; there are FACTOR phases.
#[inline(always)]
unsafe fn phases_up<S: Simd, const FACTOR: usize>(
    s: S,
    phases: &[PhaseTaps],
    rows: [*const u16; PHASE_TAPS],
    [samples, readable]: [usize; 2],
    out: *mut u16,
    pitch: usize,
) {
    // SAFETY: the caller guarantees the rows and the output. Whole vectors of the rows are read; the
    // last, partial one is read from `partial`.
    unsafe {
        let taps = rows_up::splat_taps::<S, FACTOR>(s, phases);
        let count = 2 * S::LANES;
        let vectors = samples.next_multiple_of(count);
        let whole = if vectors <= readable { vectors } else { samples / count * count };
        for x in (0..whole).step_by(count) {
            let mut here = rows;
            for row in &mut here {
                *row = row.add(x);
            }
            phases_of_columns(s, &taps, here, out.add(x), pitch);
        }
        if whole < samples {
            let mut partial = [[0_u16; 32]; PHASE_TAPS];
            let mut here = rows;
            for (row, partial) in here.iter_mut().zip(&mut partial) {
                partial.as_mut_ptr().cast::<u8>().copy_from(row.add(whole).cast(), 2 * (samples - whole));
                *row = partial.as_ptr();
            }
            phases_of_columns(s, &taps, here, out.add(whole), pitch);
        }
    }
}

/// The elements of each phase for the `2 * LANES` columns at these addresses.
///
/// # Safety
/// Each row is valid for reading these columns, and `out` for writing them in rows
/// `pitch` elements apart.
#[inline(always)]
unsafe fn phases_of_columns<S: Simd, const FACTOR: usize>(
    s: S,
    taps: &[[S::Vector; 4]; FACTOR],
    rows: [*const u16; PHASE_TAPS],
    out: *mut u16,
    pitch: usize,
) {
    // SAFETY: the caller guarantees the rows and the output.
    unsafe {
        let (bias, rounding) = (s.splat(PAIR_BIAS), s.splat(1 << 15));
        let mut words = [bias; PHASE_TAPS];
        for (word, row) in words.iter_mut().zip(rows) {
            *word = s.xor(s.load(row.cast()), bias);
        }
        let mut pairs = [[bias; 5]; 2];
        for (i, k) in PAIRS.into_iter().enumerate() {
            let halves = s.pair_halves(words[k], words[k + 1]);
            pairs[0][i] = halves[0];
            pairs[1][i] = halves[1];
        }
        let low = rows_up::dots(s, taps, rounding, pairs[0]);
        let high = rows_up::dots(s, taps, rounding, pairs[1]);
        for p in 0..FACTOR {
            s.store(out.add(p * pitch).cast(), s.join_high_halves([low[p], high[p]]));
        }
    }
}

/// Computes the `samples` columns as [`columns_up`], but passes on the sums: of a phase, for the columns from an index on, of
/// which the last vector may go beyond `samples`. They start with `initial` for the columns from an index on.
///
/// # Safety
/// Each row is valid for reading `samples` elements.
#[inline(always)]
pub unsafe fn sum_columns<S: Simd>(
    s: S,
    phases: &[PhaseTaps],
    rows: [*const u16; PHASE_TAPS],
    samples: usize,
    initial: impl Fn(usize) -> S::Vector,
    write: impl Fn(usize, usize, S::Vector),
) {
    // SAFETY: the caller guarantees the rows, of which whole vectors are read; the last, partial one
    // is read from `partial`.
    unsafe {
        let mut partial = [[0_u16; 16]; PHASE_TAPS];
        for x in (0..samples).step_by(S::LANES) {
            let mut here = rows;
            for (row, partial) in here.iter_mut().zip(&mut partial) {
                *row = row.add(x);
                if samples - x < S::LANES {
                    partial.as_mut_ptr().cast::<u8>().copy_from(row.cast(), 2 * (samples - x));
                    *row = partial.as_ptr();
                }
            }
            if phases.len() == 2 {
                let taps = rows_up::splat_taps::<S, 2>(s, phases);
                let sums = column_sums(s, &taps, here, initial(x));
                sums.into_iter().enumerate().for_each(|(p, sum)| write(p, x, sum));
            } else {
                let taps = rows_up::splat_taps::<S, 4>(s, phases);
                let sums = column_sums(s, &taps, here, initial(x));
                sums.into_iter().enumerate().for_each(|(p, sum)| write(p, x, sum));
            }
        }
    }
}

/// The sums of each phase for the columns at these addresses.
///
/// # Safety
/// Each row is valid for reading a vector of elements.
#[inline(always)]
unsafe fn column_sums<S: Simd, const FACTOR: usize>(
    s: S,
    taps: &[[S::Vector; 4]; FACTOR],
    rows: [*const u16; PHASE_TAPS],
    initial: S::Vector,
) -> [S::Vector; FACTOR] {
    // SAFETY: the caller guarantees the rows.
    unsafe {
        let bias = s.splat(PAIR_BIAS);
        let mut words = [bias; PHASE_TAPS];
        for (word, row) in words.iter_mut().zip(rows) {
            *word = s.load16(row);
        }
        let mut pairs = [bias; 5];
        for (pair, k) in pairs.iter_mut().zip(PAIRS) {
            *pair = s.xor(s.pack_low_halves(words[k], words[k + 1]), bias);
        }
        rows_up::dots(s, taps, initial, pairs)
    }
}
