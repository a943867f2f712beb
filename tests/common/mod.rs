//! What the tests share: the oracle, the case table, test content.
#![expect(dead_code, reason = "every test program uses a part of it")]

pub mod cases;
pub mod formats;
pub mod frames;
pub mod machine;
pub mod oracle;
pub mod pipes;
pub mod python;
pub mod stand_in;
pub mod video;

/// The largest distance from the Gaussian (infinite, float64, unrounded) that is promised, in LSB of a depth: the depth, for
/// σ up to 3.5, and for any σ.
pub const PROMISE: [(u32, f64, f64); 4] = [(8, 0.55, 0.75), (10, 0.7, 1.4), (12, 1.2, 4.0), (16, 11.0, 55.0)];

/// What is promised for one depth and σ.
pub fn promised(depth: u32, sigma: f64) -> f64 {
    let (_, narrow, any) = *PROMISE.iter().find(|(of, ..)| *of == depth).expect("a depth with a promise");
    if sigma <= 3.5 { narrow } else { any }
}

/// Repeatable noise: splitmix64.
pub struct Noise(pub u64);

impl Noise {
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ z >> 31
    }

    pub fn bytes(&mut self, len: usize) -> Vec<u8> {
        (0..len).map(|_| self.next() as u8).collect()
    }
}
