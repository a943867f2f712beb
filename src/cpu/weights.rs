// SPDX-License-Identifier: MPL-2.0
//! Taps in the order in which the vector loops read them: two signed 16-bit taps in each 32-bit word, one for each of
//! the two samples that a lane holds.

use crate::filter::Taps;
use crate::filter::frame::{PlaneLayout, SampleLayout};
use crate::filter::plan::PlaneTaps;

/// Output rows that the columns pass computes together, so that each row pair it loads contributes to four sums.
pub const BLOCK_ROWS: usize = 4;

/// The taps of every sample of a plane.
pub struct PlaneWeights {
    /// Taps of all samples; of packed 4:2:2, those of luma.
    pub all: Weights,
    /// Taps of the chroma of packed 4:2:2; `None` for other layouts.
    pub chroma: Option<Weights>,
}

impl PlaneWeights {
    /// Packs the taps of a plane with this layout.
    pub fn new(layout: &PlaneLayout, taps: &PlaneTaps) -> Self {
        let chroma = matches!(layout.sample_layout, SampleLayout::Yuv422 { .. });
        Self {
            all: Weights::new(&taps.rows, &taps.columns),
            chroma: chroma.then(|| Weights::new(&taps.chroma_rows, &taps.columns)),
        }
    }
}

/// Packed taps along rows and along columns.
pub struct Weights {
    /// Row taps: word `m` holds the taps of the samples at distance `2m - radius` (low half) and `2m + 1 - radius`
    /// (high half).
    pub rows: Vec<u32>,
    /// Column taps: word `j * BLOCK_ROWS + n` holds the two taps by which row pair `j` of a block contributes to output
    /// row `n` of that block; 0 for rows beyond the radius.
    pub columns: Vec<u32>,
    /// Radius along rows and along columns, in pixels.
    pub radius: [usize; 2],
    /// Whether the centre tap of rows and of columns is above 32767. As a signed 16-bit number it is then 65536 too
    /// small, so the passes that multiply 16-bit pairs add 65536 times the centre sample.
    pub centre_wraps: [bool; 2],
    /// The row taps for dot products of bytes; `None` if they cannot be represented, see [`ByteTaps::new`].
    #[cfg(target_arch = "x86_64")]
    pub row_byte_taps: Option<ByteTaps>,
}

/// Row taps split into 256 × high + low, both signed bytes, four taps to a word: word `m` holds the taps of the samples
/// at distance `4m - radius` to `4m + 3 - radius`.
#[cfg(target_arch = "x86_64")]
pub struct ByteTaps {
    /// The low bytes of all taps.
    pub low: Vec<u32>,
    /// The high bytes, without the words at both ends that are 0: tail taps below 128 have no high byte.
    pub high: Vec<u32>,
    /// Index of the word of `low` whose taps have the first word of `high` as their high bytes.
    pub high_start: usize,
}

#[cfg(target_arch = "x86_64")]
impl ByteTaps {
    /// Splits the taps; `None` if one exceeds 127 × 256 + 127, the largest value of two signed bytes. A single tap is
    /// 65536 and so always does.
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

impl Weights {
    /// Packs the taps of rows and columns.
    pub fn new(rows: &Taps, columns: &Taps) -> Self {
        let pair = |taps: &Taps, first: isize| {
            let tap = |i: isize| taps.at(i.unsigned_abs()) & 0xffff;
            tap(first) | tap(first + 1) << 16
        };
        let radius = [rows.radius(), columns.radius()];
        let [across, down] = radius.map(|radius| radius as isize);
        let pairs = radius[1] + BLOCK_ROWS / 2;
        Self {
            rows: (0..=across).map(|m| pair(rows, 2 * m - across)).collect(),
            columns: (0..(pairs * BLOCK_ROWS) as isize)
                .map(|word| (word / BLOCK_ROWS as isize, word % BLOCK_ROWS as isize))
                .map(|(j, n)| pair(columns, 2 * j - n - down))
                .collect(),
            radius,
            centre_wraps: [rows, columns].map(|taps| taps.at(0) > i16::MAX as u32),
            #[cfg(target_arch = "x86_64")]
            row_byte_taps: ByteTaps::new(rows),
        }
    }

    /// Row pairs that one block of output rows reads.
    pub fn block_pairs(&self) -> usize {
        self.radius[1] + BLOCK_ROWS / 2
    }
}
