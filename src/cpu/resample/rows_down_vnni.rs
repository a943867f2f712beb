// SPDX-License-Identifier: MPL-2.0
//! The rows step of a decimation for 8-bit samples on processors with dot products of four bytes (AVX-512 VNNI). `rows_vnni.rs`
//! explains how taps are split into bytes.

use super::rows_down::{DirectBlocks, PairDotRowsDown, RowGeometry, RowPass, RowsDown};
use crate::cpu::simd::Simd;
use crate::cpu::simd::x86::Avx512Vnni;

/// The instruction set with these dot products.
type S = Avx512Vnni;

/// The rows step with dot products of four bytes. Each row is first rearranged to one stream: word (i, c) has four neighbouring
/// samples of channel c from small pixel i on. For 16-bit samples it uses [`PairDotRowsDown`].
pub struct ByteDotRowsDown;

impl RowsDown<S> for ByteDotRowsDown {
    /// The order in which quads are gathered, the blocks that are gathered directly from the source, and the order of
    /// [`PairDotRowsDown`].
    type Order = ([u8; 64], DirectBlocks, <PairDotRowsDown as RowsDown<S>>::Order);

    fn order(pass: &RowPass) -> Self::Order {
        let block = S::LANES / pass.geometry.channels;
        let direct = DirectBlocks::new(&pass.geometry, &pass.format, block, 64, pass.format.is_dense());
        let mut quads = [0; 64];
        let samples = pass.geometry.lane_samples(S::LANES, 4, 0);
        quads.iter_mut().zip(samples).for_each(|(to, sample)| *to = sample as u8);
        (quads, direct, <PairDotRowsDown as RowsDown<S>>::order(pass))
    }

    #[inline(always)]
    unsafe fn decimate<const V: usize>(
        s: S,
        pass: &RowPass,
        (order, direct, pairs): &Self::Order,
        sources: [*const u8; 2],
        next: [*const u8; 2],
        scratch: *mut u32,
        out: *mut u32,
    ) {
        let geometry = &pass.geometry;
        let RowGeometry { factor, channels, .. } = *geometry;
        let Some(taps) = pass.taps.bytes.as_ref().filter(|_| factor > 1 && pass.format.is_bytes()) else {
            // SAFETY: the method of `PairDotRowsDown` has the same conditions, which the caller guarantees for these arguments:
            // readable sources, scratch memory and output.
            return unsafe {
                <PairDotRowsDown as RowsDown<S>>::decimate::<V>(s, pass, pairs, sources, next, scratch, out);
            };
        };
        let (samples, stream_words) = (geometry.samples(), geometry.stream_words());
        let row = scratch.cast::<u8>();
        let row_samples = geometry.source_pixels() * channels;
        let streams = [0, 1].map(|r| scratch.wrapping_add(geometry.source_words() + r * stream_words));
        // SAFETY: the caller guarantees that the sources are readable, and that `scratch` and `out` have the sizes of `geometry`.
        // The row's bytes and the streams are disjoint parts of `scratch`, which are larger than bytes and one stream per row
        // need. A stream has a word for each small pixel of the row and REACH more pixels. Sums read up to REACH pixels further
        // on, and vectors up to SLACK words beyond.
        unsafe {
            let block = S::LANES / channels;
            let is_dense = pass.format.is_dense();
            for (source, stream) in sources.into_iter().zip(streams) {
                let copy = std::slice::from_raw_parts_mut(row, row_samples);
                if is_dense {
                    direct.copy_edges(geometry, copy, |pixel, before, out| {
                        let from = source.add(pixel * channels);
                        pass.format.skip_pixels(pixel).read_bytes(from, before, out);
                    });
                } else {
                    pass.format.read_bytes(source, geometry.before, copy);
                }
                let in_source = source.wrapping_sub(geometry.before * channels);
                for i in (0..geometry.small_pixels + RowGeometry::REACH).step_by(block) {
                    let from = if direct.range.contains(&i) { in_source } else { row.cast_const() };
                    let quads = s.gather_quads(from.wrapping_add(factor * i * channels), order);
                    s.store(stream.add(i * channels), quads);
                }
            }
            // The rounding constant 2¹⁵ plus the bias of the result, 2³¹. Both are shifted right by 8 bits, because the sums are
            // shifted left by 8 bits below.
            let initial = s.splat((1 << 7) + (1 << 23));
            // The distance from a quad of samples to the next one.
            let step = 4 / factor * channels;
            for x in (0..samples).step_by(V * S::LANES) {
                pass.prefetch(s, next, x, V * S::LANES);
                let mut low = [[initial; V]; 2];
                let mut high = [[s.splat(0); V]; 2];
                for (m, &tap) in taps.low.iter().enumerate() {
                    let tap = s.splat(tap);
                    let high_tap = taps.high.get(m.wrapping_sub(taps.high_start)).map(|tap| s.splat(*tap));
                    for (r, stream) in streams.iter().enumerate() {
                        for v in 0..V {
                            let quads = s.load(stream.add(x + m * step + v * S::LANES));
                            low[r][v] = s.dot_bytes(low[r][v], quads, tap);
                            if let Some(tap) = high_tap {
                                high[r][v] = s.dot_bytes(high[r][v], quads, tap);
                            }
                        }
                    }
                }
                for v in 0..V {
                    let first = s.shift_left(s.add(low[0][v], s.shift_left(high[0][v], 8)), 8);
                    let second = s.shift_left(s.add(low[1][v], s.shift_left(high[1][v], 8)), 8);
                    s.store(out.add(x + v * S::LANES), s.pack_high_halves(first, second));
                }
            }
        }
    }
}
