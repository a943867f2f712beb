// SPDX-License-Identifier: MPL-2.0
//! Addresses relative to the planes of a frame and to its workspace. What is recorded with them serves every frame whose
//! planes have the same pitches.
//!
//! The upper 16 bits of a relative address number the memory that it is in, from 1 on, and the others are the offset, which
//! counts from the middle of their range, because a plane may begin in front of the memory that it has. Number 0 is no memory,
//! so that an address of 0 stays 0.

use super::record::DevicePlanes;
use crate::filter::plane::DevicePlane;

const OFFSET_BITS: u32 = 48;

/// The offset of a memory's first byte.
const ORIGIN: u64 = 1 << (OFFSET_BITS - 1);

/// The first byte of the workspace.
pub const WORKSPACE: u64 = (1 << OFFSET_BITS) + ORIGIN;

/// Numbers of memories that are not planes.
const OTHERS: usize = 2;

/// The planes of the source and of the destination of a frame.
pub type FramePlanes<'a> = [&'a [DevicePlane]; 2];

/// The same planes at relative addresses.
pub fn planes([sources, destinations]: FramePlanes) -> DevicePlanes {
    let relative = |planes: &[DevicePlane], first: usize| {
        let address = |index: usize| (((first + index) as u64) << OFFSET_BITS) + ORIGIN;
        planes.iter().enumerate().map(|(index, plane)| DevicePlane { address: address(index), ..*plane }).collect()
    };
    DevicePlanes { sources: relative(sources, OTHERS), destinations: relative(destinations, OTHERS + sources.len()) }
}

/// The addresses of a frame's planes and of its workspace, by their numbers.
#[derive(Debug, Default)]
pub struct BaseAddresses(Vec<u64>);

impl BaseAddresses {
    /// Replaces the origins by those of a frame with as many planes as the relative addresses were made for. Returns whether any
    /// changed.
    pub fn set(&mut self, planes: FramePlanes, workspace: u64) -> bool {
        let addresses = planes.into_iter().flatten().map(|plane| plane.address);
        let origins = [0, workspace].into_iter().chain(addresses);
        if origins.clone().eq(self.0.iter().copied()) {
            return false;
        }
        self.0.clear();
        self.0.extend(origins);
        true
    }

    /// The absolute address of a relative one.
    pub fn absolute(&self, relative: u64) -> u64 {
        match (relative >> OFFSET_BITS) as usize {
            0 => 0,
            // Less than the origin for a plane that begins in front of its memory.
            memory => (self.0[memory] + (relative & ((1 << OFFSET_BITS) - 1))).wrapping_sub(ORIGIN),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_moves_with_its_plane() {
        let plane = |address| DevicePlane { address, pitch: 64, len: 640 };
        // The second plane of each frame lies between the rows of the first.
        let [from, to] = [[0x7000, 0x7020], [0x9000, 0x9020]].map(|addresses| addresses.map(plane));
        let DevicePlanes { sources, destinations } = planes([&from, &to]);
        assert!(sources.iter().chain(&destinations).all(|plane| (plane.pitch, plane.len) == (64, 640)));
        let mut origins = BaseAddresses::default();
        for (to, workspace) in [([0x9000, 0x8000, 0x1000, 0x5000], 0x4000), ([0x100, 0x200, 0x300, 0x400], 0)] {
            let moved = to.map(plane);
            let moved = [&moved[..2], &moved[2..]];
            assert_eq!([0; 2].map(|_| origins.set(moved, workspace)), [true, false]);
            let rows = [sources[0].row(3), sources[1].row(9), destinations[0].row(1), destinations[1].address - 256];
            let expected = [to[0] + 192, to[1] + 576, to[2] + 64, to[3] - 256];
            assert_eq!(rows.map(|row| origins.absolute(row)), expected);
            assert_eq!([WORKSPACE + 256, 0].map(|address| origins.absolute(address)), [workspace + 256, 0]);
        }
    }
}
