//! What the test programs share: the oracle, the case table, the fake CUDA driver, pipelines and test content.
#![expect(dead_code, reason = "each test program uses only a part of this module")]

pub mod cases;
pub mod fake_driver;
pub mod fake_library;
pub mod formats;
pub mod frames;
pub mod oracle;
pub mod pipes;
pub mod python;
pub mod video;

/// The promised bound on the distance from the true Gaussian (infinite, float64, unrounded), in LSB of the depth:
/// (depth, bound for σ ≤ 3.5, bound for any σ).
pub const PROMISE: [(u32, f64, f64); 4] = [(8, 0.55, 0.75), (10, 0.7, 1.4), (12, 1.2, 4.0), (16, 11.0, 55.0)];

/// The promised bound for one depth and σ, in LSB.
pub fn promised(depth: u32, sigma: f64) -> f64 {
    let (_, narrow, any) = *PROMISE.iter().find(|(of, ..)| *of == depth).expect("the depth is in PROMISE");
    if sigma <= 3.5 { narrow } else { any }
}

/// A repeatable pseudo-random sequence: splitmix64, seeded by its field.
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
