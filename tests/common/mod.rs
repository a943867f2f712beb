//! What the test programs share: the oracle, the case table, the fake CUDA driver, pipelines, media files and test content.
#![expect(dead_code, reason = "each test program uses only a part of this module")]

pub mod borrowed;
pub mod cases;
pub mod checks;
pub mod covered;
pub mod device_frames;
pub mod fake_driver;
pub mod fake_library;
pub mod floats;
pub mod formats;
pub mod frames;
pub mod gst_cuda;
pub mod media;
pub mod oracle;
pub mod pictures;
pub mod pipes;
pub mod python;
pub mod resident;
pub mod soft_oracle;
pub mod stream;
pub mod video;

use gstcudagaussblur::filter::WIDE_SIGMA;

/// The promised bound on the distance from the true Gaussian (infinite, float64, unrounded), in LSB of the depth, where
/// the radius follows σ: (depth, bound of the direct form, bound of the wide form).
pub const PROMISE: [(u32, f64, f64); 4] = [(8, 0.55, 0.55), (10, 0.7, 0.72), (12, 1.3, 1.4), (16, 14.0, 14.0)];

/// The bounds for the depths of [`PROMISE`] if `kernel-size` is set, to at least 2·int(4σ + 0.5) + 1, up to σ = 100.
pub const PROMISE_KERNEL_SIZE: [f64; PROMISE.len()] = [0.75, 1.4, 4.0, 55.0];

/// The promised bound for one depth and σ, in LSB.
pub fn promised(depth: u32, sigma: f64) -> f64 {
    let (_, direct, wide) = *PROMISE.iter().find(|(of, ..)| *of == depth).expect("the depth is in PROMISE");
    if sigma < WIDE_SIGMA { direct } else { wide }
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

    pub fn below(&mut self, end: u32) -> u32 {
        (self.next() % u64::from(end)) as u32
    }

    pub fn pick<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.below(of.len() as u32) as usize]
    }
}
