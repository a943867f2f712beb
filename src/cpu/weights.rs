// SPDX-License-Identifier: MPL-2.0
//! Taps laid out for the vector loops: two signed 16-bit taps to a word, beside the two samples they weigh.

use crate::filter::Taps;
use crate::frame::{Pixels, PlaneLayout};
use crate::plan::PlaneTaps;

/// Output rows that the columns pass makes at a time. Each loaded pair of rows then serves four sums.
pub const BLOCK_ROWS: usize = 4;

/// The taps of a plane.
pub struct PlaneWeights {
    /// Of all samples; of packed 4:2:2 those of luma.
    pub all: Weights,
    /// Of the chroma of packed 4:2:2.
    pub chroma: Option<Weights>,
}

impl PlaneWeights {
    /// Lays out the taps of a plane.
    pub fn new(layout: &PlaneLayout, taps: &PlaneTaps) -> Self {
        let chroma = matches!(layout.pixels, Pixels::Yuv422 { .. });
        Self {
            all: Weights::new(&taps.rows, &taps.columns),
            chroma: chroma.then(|| Weights::new(&taps.chroma_rows, &taps.columns)),
        }
    }
}

/// Taps along rows and down columns.
pub struct Weights {
    /// Along a row: word `m` weighs the samples at distance `2m - radius` and `2m + 1 - radius`.
    pub rows: Vec<u32>,
    /// Down a column: word `j * BLOCK_ROWS + n` is what row pair `j` of a block weighs in its output row `n`.
    pub columns: Vec<u32>,
    /// Radius along rows and down columns.
    pub radius: [usize; 2],
    /// Whether the centre tap of rows and of columns is above 32767 and so stands as itself minus 65536; the passes
    /// then add 65536 times the centre sample.
    pub centre_wraps: [bool; 2],
    /// The row taps for dot products of bytes, unless one of them is too large.
    #[cfg(target_arch = "x86_64")]
    pub row_bytes: Option<ByteTaps>,
}

/// Taps of a row as 256 × high + low, both signed bytes, four taps to a word: word `m` weighs the samples at distance
/// `4m - radius` to `4m + 3 - radius`.
#[cfg(target_arch = "x86_64")]
pub struct ByteTaps {
    /// The low bytes of all taps.
    pub low: Vec<u32>,
    /// The high bytes, without the words at both ends where they are all 0.
    pub high: Vec<u32>,
    /// The word of `low` that the first one of `high` goes with.
    pub high_from: usize,
}

#[cfg(target_arch = "x86_64")]
impl ByteTaps {
    /// `None` where a tap is above 127 × 256 + 127, or where there is but one.
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
        let high_from = high.iter().position(|word| *word != 0)?;
        let high_to = high.iter().rposition(|word| *word != 0)? + 1;
        Some(Self { low: words(&|tap| tap as u8), high: high[high_from..high_to].to_vec(), high_from })
    }
}

impl Weights {
    /// Lays out the taps of a plane's rows and columns.
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
            row_bytes: ByteTaps::new(rows),
        }
    }

    /// Row pairs that one block of output rows reaches.
    pub fn block_pairs(&self) -> usize {
        self.radius[1] + BLOCK_ROWS / 2
    }
}
