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
