// SPDX-License-Identifier: MPL-2.0
//! The rows step of a decimation for 8-bit samples on processors with dot products of four bytes (AVX-512 VNNI). See
//! `rows_vnni.rs` for how taps are split into bytes.

use super::rows_down::{DirectBlocks, PairDotRowsDown, RowGeometry, RowPass, RowsDown};
use crate::cpu::plain::{view, view_mut};
use crate::cpu::simd::ByteDots;

/// The rows step with dot products of four bytes. Each row is first rearranged to one stream: word (i, c) has four
/// neighbouring samples of channel c from small pixel i on. Uses [`PairDotRowsDown`] for 16-bit samples.
pub struct ByteDotRowsDown;

impl ByteDotRowsDown {
    /// The samples of each lane among the 64 from pixel i on.
    fn order_of_quads(geometry: &RowGeometry, lanes: usize) -> [u8; 64] {
        let RowGeometry { factor, channels, .. } = *geometry;
        let mut order = [0; 64];
        for lane in 0..lanes / channels * channels {
            let (i, c) = (lane / channels, lane % channels);
            for k in 0..4 {
                order[4 * lane + k] = ((factor * i + k) * channels + c) as u8;
            }
        }
        order
    }
}

impl<S: ByteDots> RowsDown<S> for ByteDotRowsDown {
    /// Of quads, the blocks of small pixels that are gathered from the source itself, and those of [`PairDotRowsDown`].
    type Order = ([u8; 64], DirectBlocks, <PairDotRowsDown as RowsDown<S>>::Order);

    fn order(pass: &RowPass) -> Self::Order {
        let block = S::LANES / pass.geometry.channels;
        let direct = DirectBlocks::new(&pass.geometry, &pass.format, block, 64, pass.format.is_dense());
        let quads = Self::order_of_quads(&pass.geometry, S::LANES);
        (quads, direct, <PairDotRowsDown as RowsDown<S>>::order(pass))
    }

    #[inline(always)]
    fn decimate<const V: usize>(
        simd: S,
        pass: &RowPass,
        (order, direct, pairs): &Self::Order,
        sources: [&[u8]; 2],
        next: [*const u8; 2],
        scratch: &mut [u32],
        out: &mut [u32],
    ) {
        let geometry = &pass.geometry;
        let RowGeometry { factor, channels, .. } = *geometry;
        let Some(taps) = pass.weights.bytes.as_ref().filter(|_| factor > 1 && pass.format.is_bytes()) else {
            return PairDotRowsDown::decimate::<V>(simd, pass, pairs, sources, next, scratch, out);
        };
        let (samples, stream_words) = (geometry.samples(), geometry.stream_words());
        let row_samples = geometry.source_pixels() * channels;
        // Streams have as many words as the row has small pixels and REACH more; sums read up to REACH pixels further on, and
        // vectors up to SLACK words beyond.
        let (row, streams) = scratch.split_at_mut(geometry.source_words());
        let block = S::LANES / channels;
        let is_dense = pass.format.is_dense();
        for (source, stream) in sources.into_iter().zip(streams.chunks_exact_mut(stream_words)) {
            let copy = &mut view_mut::<u32, u8>(row)[..row_samples];
            if is_dense {
                direct.copy_edges(geometry, copy, |pixel, before, out| {
                    pass.format.skip_pixels(pixel).read_bytes(&source[pixel * channels..], before, out);
                });
            } else {
                pass.format.read_bytes(source, geometry.before, copy);
            }
            let copy = view::<u32, u8>(row);
            for i in (0..geometry.small_pixels + RowGeometry::REACH).step_by(block) {
                let from = match direct.range.contains(&i) {
                    true => &source[(factor * i - geometry.before) * channels..],
                    false => &copy[factor * i * channels..],
                };
                simd.store(&mut stream[i * channels..], simd.gather_quads(from, order));
            }
        }
        let streams = [&streams[..stream_words], &streams[stream_words..]];
        // The rounding constant 2¹⁵ and the bias of the result, 2³¹, shifted right by the 8 bits by which the sums
        // are shifted left below.
        let initial = simd.splat((1 << 7) + (1 << 23));
        let block = V * S::LANES;
        for x in (0..samples).step_by(block) {
            pass.prefetch(simd, next, x, block);
            let mut low = [[initial; V]; 2];
            let mut high = [[simd.splat(0); V]; 2];
            for (m, &tap) in taps.low.iter().enumerate() {
                let tap = simd.splat(tap);
                let high_tap = taps.high.get(m.wrapping_sub(taps.high_start)).map(|tap| simd.splat(*tap));
                for (r, stream) in streams.iter().enumerate() {
                    let quads = &stream[x + 4 * m / factor * channels..][..block];
                    for v in 0..V {
                        let quads = simd.load(&quads[v * S::LANES..]);
                        low[r][v] = simd.dot_bytes(low[r][v], quads, tap);
                        if let Some(tap) = high_tap {
                            high[r][v] = simd.dot_bytes(high[r][v], quads, tap);
                        }
                    }
                }
            }
            let out = &mut out[x..][..block];
            for v in 0..V {
                let first = simd.shift_left(simd.add(low[0][v], simd.shift_left(high[0][v], 8)), 8);
                let second = simd.shift_left(simd.add(low[1][v], simd.shift_left(high[1][v], 8)), 8);
                simd.store(&mut out[v * S::LANES..], simd.pack_high_halves(first, second));
            }
        }
    }
}
