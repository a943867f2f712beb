// SPDX-License-Identifier: MPL-2.0
//! Views of slices of numbers as numbers of another size, and numbers and vectors at any address in them.

/// Types without padding of which every bit pattern is a value.
///
/// # Safety
/// The type is as described.
pub unsafe trait Plain: Copy {}

macro_rules! plain {
    ($($type:ty),*) => {
        $(
            // SAFETY: a number, or a vector of numbers.
            unsafe impl Plain for $type {}
        )*
    };
}
plain!(u8, u16, u32, u64);
#[cfg(target_arch = "x86_64")]
plain!(std::arch::x86_64::__m128i, std::arch::x86_64::__m256i, std::arch::x86_64::__m512i);
#[cfg(target_arch = "aarch64")]
plain!(std::arch::aarch64::uint32x4_t, std::arch::aarch64::uint16x4_t);
// SAFETY: arrays have no padding between elements.
unsafe impl<T: Plain, const N: usize> Plain for [T; N] {}

/// A 16-bit number at any address.
#[derive(Clone, Copy, Default)]
#[repr(C, packed)]
pub struct Unaligned16(pub u16);

// SAFETY: a number, packed.
unsafe impl Plain for Unaligned16 {}

/// The value in the first bytes of a slice.
///
/// # Panics
/// If the slice is shorter.
#[inline(always)]
pub fn read<T: Plain, V: Plain>(from: &[T]) -> V {
    assert!(size_of_val(from) >= size_of::<V>());
    // SAFETY: the slice has the bytes of a `V`, for which every bit pattern is valid.
    unsafe { from.as_ptr().cast::<V>().read_unaligned() }
}

/// Writes a value to the first bytes of a slice.
///
/// # Panics
/// If the slice is shorter.
#[inline(always)]
pub fn write<T: Plain, V: Plain>(to: &mut [T], value: V) {
    assert!(size_of_val(to) >= size_of::<V>());
    // SAFETY: the slice has as many bytes as a `V`, which leave it with values of `T`, for which every bit pattern is valid.
    unsafe { to.as_mut_ptr().cast::<V>().write_unaligned(value) }
}

/// The elements of a slice as smaller ones; bytes that do not fill one are left out.
#[inline(always)]
pub fn view<A: Plain, B: Plain>(from: &[A]) -> &[B] {
    const { assert!(align_of::<A>() >= align_of::<B>()) };
    // SAFETY: these elements are in the slice and aligned, and every bit pattern is valid for them.
    unsafe { std::slice::from_raw_parts(from.as_ptr().cast(), size_of_val(from) / size_of::<B>()) }
}

/// As [`view`], to be written.
#[inline(always)]
pub fn view_mut<A: Plain, B: Plain>(from: &mut [A]) -> &mut [B] {
    const { assert!(align_of::<A>() >= align_of::<B>()) };
    // SAFETY: these elements are in the slice, which is borrowed mutably, and aligned, and every bit pattern is valid for both
    // types.
    unsafe { std::slice::from_raw_parts_mut(from.as_mut_ptr().cast(), size_of_val(from) / size_of::<B>()) }
}
