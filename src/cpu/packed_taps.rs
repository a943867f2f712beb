// SPDX-License-Identifier: MPL-2.0
//! Taps in the order in which the vector loops read them: two signed 16-bit taps in each 32-bit word, one for each of
//! the two samples that a lane holds.

use std::sync::LazyLock;

use crate::filter::Taps;
use crate::filter::frame::PlaneLayout;
use crate::filter::operation::PlaneTaps;
use crate::filter::wide::{Factor, PHASE_TAPS};

/// The number of output rows that the columns pass computes together, so that each loaded row pair contributes to four sums.
pub const BLOCK_ROWS: usize = 4;

/// The taps of every sample of a plane.
pub struct PlanePackedTaps {
    /// The taps of all samples, or those of luma for packed 4:2:2.
    pub all: PackedTaps,
    /// The taps of the chroma of packed 4:2:2; `None` for other layouts.
    pub chroma: Option<PackedTaps>,
}

impl PlanePackedTaps {
    /// Packs the taps of a plane with this layout.
    pub fn new(layout: &PlaneLayout, taps: &PlaneTaps) -> Self {
        Self {
            all: PackedTaps::new(&taps.rows, &taps.columns),
            chroma: layout.is_packed_422().then(|| PackedTaps::new(&taps.chroma_rows, &taps.columns)),
        }
    }
}

/// Packed taps along rows and along columns.
pub struct PackedTaps {
    /// Row taps. Word `m` holds the taps of the samples at the distances `2m - radius` (low half) and `2m + 1 - radius` (high
    /// half).
    pub rows: Vec<u32>,
    /// The same taps for a result one sample further on. Word `m` holds those at the distances `2m - 1 - radius` and `2m -
    /// radius`.
    #[cfg(target_arch = "x86_64")]
    pub later_rows: Vec<u32>,
    /// Column taps. Word `j * BLOCK_ROWS + n` holds the two taps by which row pair `j` of a block contributes to output row `n`
    /// of this block. They are 0 for rows beyond the radius.
    pub columns: Vec<u32>,
    /// The radius along rows and along columns, in pixels.
    pub radius: [usize; 2],
    /// Whether the centre taps of rows and of columns are above 32767. Such a tap is 65536 too small as a signed 16-bit number.
    /// So the passes that multiply 16-bit pairs add 65536 times the centre sample.
    pub centre_wraps: [bool; 2],
    /// The row taps for dot products of bytes; `None` if bytes cannot represent them (see [`ByteTaps::new`]).
    #[cfg(target_arch = "x86_64")]
    pub row_byte_taps: Option<ByteTaps>,
}

/// Row taps split into 256 × high + low, both signed bytes, with four taps in a word. Word `m` holds the taps of the samples at
/// the distances `4m - radius` to `4m + 3 - radius`.
#[cfg(target_arch = "x86_64")]
pub struct ByteTaps {
    /// The low bytes of all taps.
    pub low: Vec<u32>,
    /// The high bytes, without the words at both ends that are 0: taps below 128 have no high byte.
    pub high: Vec<u32>,
    /// The index of the word of `low` that belongs to the first word of `high`.
    pub high_start: usize,
}

#[cfg(target_arch = "x86_64")]
impl ByteTaps {
    /// Splits the taps; `None` if a tap exceeds 127 × 256 + 127, the largest value of two signed bytes. The single tap of a
    /// kernel of size 1 is 65536, so it always does.
    fn new(taps: &Taps) -> Option<Self> {
        const LARGEST: u32 = 0x7f7f;
        if taps.at(0) > LARGEST {
            return None;
        }
        let radius = taps.radius() as isize;
        let words = |byte: &dyn Fn(u32) -> u8| -> Vec<u32> {
            let tap = |i: isize| byte(taps.at((i - radius).unsigned_abs()));
            (0..2 * radius + 1).step_by(4).map(|i| u32::from_le_bytes([0, 1, 2, 3].map(|k| tap(i + k)))).collect()
        };
        let high = words(&|tap| ((tap + 0x80) >> 8) as u8);
        let high_start = high.iter().position(|word| *word != 0)?;
        let high_end = high.iter().rposition(|word| *word != 0)? + 1;
        Some(Self { low: words(&|tap| tap as u8), high: high[high_start..high_end].to_vec(), high_start })
    }
}

/// The taps at the distances `first` and `first + 1`.
fn pair(taps: &Taps, first: isize) -> u32 {
    let tap = |i: isize| taps.at(i.unsigned_abs()) & 0xffff;
    tap(first) | tap(first + 1) << 16
}

/// The words of [`PackedTaps::rows`] for a result `later` samples further on.
fn pairs(taps: &Taps, later: isize) -> Vec<u32> {
    let radius = taps.radius() as isize;
    (0..=radius).map(|m| pair(taps, 2 * m - later - radius)).collect()
}

/// The taps of a decimation along one axis.
pub struct LevelTaps {
    /// The taps in pairs, like [`PackedTaps::rows`].
    pub pairs: Vec<u32>,
    /// The taps for dot products of bytes, like [`PackedTaps::row_byte_taps`].
    #[cfg(target_arch = "x86_64")]
    pub bytes: Option<ByteTaps>,
}

impl LevelTaps {
    /// The taps of the decimation by `factor`, which are computed once.
    pub fn of(factor: Factor) -> &'static Self {
        const FACTORS: [Factor; 3] = [Factor::One, Factor::Two, Factor::Four];
        static ALL: LazyLock<[LevelTaps; 3]> =
            LazyLock::new(|| FACTORS.map(|factor| LevelTaps::new(&factor.decimation_taps())));
        &ALL[factor as usize]
    }

    /// Packs the taps. None is above 32767, except the single tap of a factor of one, which is not used.
    fn new(taps: &Taps) -> Self {
        debug_assert!(taps.radius() == 0 || taps.at(0) <= i16::MAX as u32);
        Self {
            pairs: pairs(taps, 0),
            #[cfg(target_arch = "x86_64")]
            bytes: ByteTaps::new(taps),
        }
    }
}

/// The taps of one phase of an interpolation. Taps 3 and 4, those of sample x / s and the one after it, may be above 32767, so
/// they are split into two parts.
pub struct PhaseTaps {
    /// The taps of four pairs of samples of the small plane. Phase 0 has the pairs (0, 1), (2, 3), (3, 4), (5, 6). In all other
    /// phases tap 0 is 0, and the pairs are (1, 2), (3, 4), (3, 4), (5, 6). For the phase halfway between two samples, the third
    /// word is 0.
    pub words: [u32; 4],
}

impl PhaseTaps {
    /// The taps of all phases of `factor`, which are computed once. None for a factor of one.
    pub fn of(factor: Factor) -> &'static [Self] {
        static TWO: LazyLock<Vec<PhaseTaps>> = LazyLock::new(|| PhaseTaps::make(Factor::Two));
        static FOUR: LazyLock<Vec<PhaseTaps>> = LazyLock::new(|| PhaseTaps::make(Factor::Four));
        match factor {
            Factor::One => &[],
            Factor::Two => &TWO,
            Factor::Four => &FOUR,
        }
    }

    fn make(factor: Factor) -> Vec<Self> {
        let weights: Vec<Self> = (0..factor.get()).map(|phase| Self::new(factor.interpolation_taps(phase))).collect();
        debug_assert!(weights[weights.len() / 2].words[2] == 0);
        weights
    }

    fn new(taps: [u32; PHASE_TAPS]) -> Self {
        const LARGEST: u32 = i16::MAX as u32;
        let word = |low: u32, high: u32| low | high << 16;
        let part = |tap: u32| tap.min(LARGEST);
        let rest = |tap: u32| tap - part(tap);
        let [t0, t1, t2, t3, t4, t5, t6] = taps;
        let words = if t0 == 0 {
            [word(t1, t2), word(part(t3), part(t4)), word(rest(t3), rest(t4)), word(t5, t6)]
        } else {
            [word(t0, t1), word(t2, part(t3)), word(rest(t3), t4), word(t5, t6)]
        };
        debug_assert!(words.iter().all(|word| word & 0x8000_8000 == 0), "{taps:?}");
        Self { words }
    }
}

impl PackedTaps {
    /// Packs the taps of rows and columns.
    pub fn new(rows: &Taps, columns: &Taps) -> Self {
        let radius = [rows.radius(), columns.radius()];
        let down = radius[1] as isize;
        let block_pairs = radius[1] + BLOCK_ROWS / 2;
        Self {
            rows: pairs(rows, 0),
            #[cfg(target_arch = "x86_64")]
            later_rows: pairs(rows, 1),
            columns: (0..(block_pairs * BLOCK_ROWS) as isize)
                .map(|word| (word / BLOCK_ROWS as isize, word % BLOCK_ROWS as isize))
                .map(|(j, n)| pair(columns, 2 * j - n - down))
                .collect(),
            radius,
            centre_wraps: [rows, columns].map(|taps| taps.at(0) > i16::MAX as u32),
            #[cfg(target_arch = "x86_64")]
            row_byte_taps: ByteTaps::new(rows),
        }
    }

    /// The number of row pairs that a block of output rows reads.
    pub fn block_pairs(&self) -> usize {
        self.radius[1] + BLOCK_ROWS / 2
    }
}
