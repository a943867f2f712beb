// SPDX-License-Identifier: MPL-2.0
//! Vectors of sixteen floats, in the registers of each instruction set.

/// The number of values in a vector.
pub const LANES: usize = 16;

/// # Safety
/// Every function requires that the processor has the instructions of the type. The functions are inlined into functions that
/// enable these instructions.
pub trait Vector: Copy {
    unsafe fn splat(value: f32) -> Self;
    unsafe fn load(from: &[f32; LANES]) -> Self;
    unsafe fn store(self, to: &mut [f32; LANES]);
    /// self + a · b
    unsafe fn plus_product(self, a: Self, b: Self) -> Self;
    unsafe fn plus(self, other: Self) -> Self;
    /// The greater of both values. It is not a number if `self` is not a number.
    unsafe fn at_least(self, floor: Self) -> Self;
}

/// Declares a vector of $count registers with $width values each, from functions for one register. If the second argument of
/// `$max` is not a number, `$max` returns it.
macro_rules! vector {
    ($name:ident: [$register:ty; $count:literal] of $width:literal, $load:expr, $store:expr, $splat:expr, $add:expr, $max:expr, $product:expr) => {
        #[derive(Clone, Copy)]
        pub struct $name([$register; $count]);

        // SAFETY (all functions): they are inlined into functions that enable the instructions, and each register lies within the
        // LANES values.
        #[expect(clippy::undocumented_unsafe_blocks, reason = "one comment for all")]
        #[cfg_attr(
            not(any(target_arch = "x86_64", target_arch = "aarch64")),
            expect(unused_unsafe, reason = "a register is a float")
        )]
        impl Vector for $name {
            #[inline(always)]
            unsafe fn splat(value: f32) -> Self {
                Self([unsafe { $splat(value) }; $count])
            }

            #[inline(always)]
            unsafe fn load(from: &[f32; LANES]) -> Self {
                Self(std::array::from_fn(|i| unsafe { $load(from.as_ptr().add(i * $width)) }))
            }

            #[inline(always)]
            unsafe fn store(self, to: &mut [f32; LANES]) {
                self.0
                    .into_iter()
                    .enumerate()
                    .for_each(|(i, register)| unsafe { $store(to.as_mut_ptr().add(i * $width), register) });
            }

            #[inline(always)]
            unsafe fn plus_product(self, a: Self, b: Self) -> Self {
                Self(std::array::from_fn(|i| unsafe { $product(self.0[i], a.0[i], b.0[i]) }))
            }

            #[inline(always)]
            unsafe fn plus(self, other: Self) -> Self {
                Self(std::array::from_fn(|i| unsafe { $add(self.0[i], other.0[i]) }))
            }

            #[inline(always)]
            unsafe fn at_least(self, floor: Self) -> Self {
                Self(std::array::from_fn(|i| unsafe { $max(floor.0[i], self.0[i]) }))
            }
        }
    };
}

#[cfg(target_arch = "x86_64")]
mod registers {
    use super::*;
    use std::arch::x86_64::*;

    vector! {
        Baseline: [__m128; 4] of 4, _mm_loadu_ps, _mm_storeu_ps, _mm_set1_ps, _mm_add_ps, _mm_max_ps,
        |sum, a, b| _mm_add_ps(sum, _mm_mul_ps(a, b))
    }
    vector! {
        Avx2: [__m256; 2] of 8, _mm256_loadu_ps, _mm256_storeu_ps, _mm256_set1_ps, _mm256_add_ps, _mm256_max_ps,
        |sum, a, b| _mm256_fmadd_ps(a, b, sum)
    }
    vector! {
        Avx512: [__m512; 1] of 16, _mm512_loadu_ps, _mm512_storeu_ps, _mm512_set1_ps, _mm512_add_ps, _mm512_max_ps,
        |sum, a, b| _mm512_fmadd_ps(a, b, sum)
    }
}

#[cfg(target_arch = "aarch64")]
mod registers {
    use super::*;
    use std::arch::aarch64::*;

    vector!(Baseline: [float32x4_t; 4] of 4, vld1q_f32, vst1q_f32, vdupq_n_f32, vaddq_f32, vmaxq_f32, vfmaq_f32);
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
mod registers {
    use super::*;
    use std::{convert::identity, ops::Add, ptr};

    vector!(Baseline: [f32; 16] of 1, ptr::read, ptr::write, identity, f32::add, |floor, value| if value < floor { floor } else { value },
            |sum: f32, a, b| sum + a * b);
}

pub use registers::*;

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares each function, with the processor's basic instructions, on values that differ. One value is not a number.
    #[test]
    fn functions_are_those_of_floats() {
        let mut values: [[f32; LANES]; 3] =
            std::array::from_fn(|k| std::array::from_fn(|i| (i * (k + 3) % 11) as f32 - 4.));
        values[0][5] = f32::NAN;
        let [a, b, c] = values;
        // SAFETY: every processor of the architecture has the basic instructions.
        let results = unsafe {
            let [a, b, c] = values.each_ref().map(|values| Baseline::load(values));
            let results = [a.plus_product(b, c), a.plus(b), a.at_least(b), b.at_least(Baseline::splat(0.))];
            results.map(|result| {
                let mut values = [0.; LANES];
                result.store(&mut values);
                values
            })
        };
        let greater = |value: f32, floor: f32| if value < floor { floor } else { value };
        for i in 0..LANES {
            let expected = [a[i] + b[i] * c[i], a[i] + b[i], greater(a[i], b[i]), greater(b[i], 0.)];
            assert_eq!(results.map(|result| result[i].to_bits()), expected.map(f32::to_bits), "lane {i}");
        }
    }
}
