// SPDX-License-Identifier: MPL-2.0
//! The columns step of an interpolation: computes a row for each phase from seven rows of the small plane.

use super::PAIR_BIAS;
use super::rows_up::{self, PAIRS};
use crate::cpu::packed_taps::PhaseTaps;
use crate::cpu::simd::Simd;
use crate::filter::wide::PHASE_TAPS;

/// Computes `samples` columns of a row for each phase, of which there are two or four. Writes biased 16-bit elements, the row of
/// phase p at `out + p * pitch`.
///
/// # Safety
/// Each of `rows` is valid for reading `readable` elements, which are at least `samples`. Each row of `out` is `pitch` elements
/// long and valid for writing `samples` elements and two vectors more.
#[inline(always)]
pub unsafe fn columns_up<S: Simd>(
    s: S,
    phases: &[PhaseTaps],
    rows: [*const u16; PHASE_TAPS],
    [samples, readable]: [usize; 2],
    out: *mut u16,
    pitch: usize,
) {
    // SAFETY: the caller guarantees that the rows are readable and the output is writable.
    unsafe {
        match phases.len() {
            2 => phases_up::<S, 2>(s, phases, rows, [samples, readable], out, pitch),
            _ => phases_up::<S, 4>(s, phases, rows, [samples, readable], out, pitch),
        }
    }
}

/// Implements [`columns_up`] for FACTOR phases.
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
    // SAFETY: the caller guarantees that the rows are readable and the output is writable. Only whole vectors of the rows are
    // read; the last, partial one is read from `partial`.
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

/// Computes the elements of each phase for the `2 * LANES` columns at these addresses.
///
/// # Safety
/// Each of `rows` is valid for reading these columns, and `out` for writing them in rows that are `pitch` elements apart.
#[inline(always)]
unsafe fn phases_of_columns<S: Simd, const FACTOR: usize>(
    s: S,
    taps: &[[S::Vector; 4]; FACTOR],
    rows: [*const u16; PHASE_TAPS],
    out: *mut u16,
    pitch: usize,
) {
    // SAFETY: the caller guarantees that the rows are readable and the output is writable.
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

/// Computes the same columns as [`columns_up`], but passes the sums on: calls `write` with a phase, the index of the first
/// column, and a vector of sums. The last vector may reach beyond `samples`. The sums start with `initial` of the index of the
/// first column.
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
    // SAFETY: the caller guarantees that the rows are readable. Only whole vectors of them are read; the last, partial one is
    // read from `partial`.
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
    // SAFETY: the caller guarantees that a vector of each row is readable.
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
