// SPDX-License-Identifier: MPL-2.0
//! The floating-point environment of a thread: how results are rounded, whether denormals count as 0, and what traps.
//!
//! Rust and libm assume the default. A program may have set another one (interval arithmetic, audio), which a thread inherits
//! from the one that starts it, so that frames arrive with any.

#[cfg(all(any(target_feature = "sse", target_arch = "aarch64"), not(miri)))]
use std::arch::asm;
use std::cell::Cell;
use std::marker::PhantomData;

/// The register's value for rounding to nearest, with denormals, where nothing traps: of MXCSR, and of FPCR.
const DEFAULT: usize = if cfg!(target_arch = "aarch64") { 0 } else { 0x1f80 };

/// Until this is dropped, the calling thread has the default environment; then that which it had before.
#[must_use]
pub struct DefaultFloats {
    previous: usize,
    /// Stays on the thread of which it is.
    of_thread: PhantomData<*const ()>,
}

impl DefaultFloats {
    /// Sets the default environment. Processors other than x86 and aarch64 keep theirs.
    pub fn set() -> Self {
        let previous = read();
        write(DEFAULT);
        Self { previous, of_thread: PhantomData }
    }
}

impl Drop for DefaultFloats {
    fn drop(&mut self) {
        write(self.previous);
    }
}

// Not inlined, so that nothing is computed on the other side of them.
#[inline(never)]
fn read() -> usize {
    let value = Cell::new(DEFAULT);
    // SAFETY: the instruction stores the register's 32 bits in `value`, whose other bits are 0.
    #[cfg(all(target_feature = "sse", not(miri)))]
    unsafe {
        asm!("stmxcsr [{}]", in(reg) value.as_ptr(), options(nostack, preserves_flags));
    }
    // SAFETY: the instructions read a register that every program may read, and store it in `value`.
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    unsafe {
        asm!("mrs {register}, fpcr", "str {register}, [{to}]", register = out(reg) _, to = in(reg) value.as_ptr(),
            options(nostack, preserves_flags));
    }
    value.get()
}

#[inline(never)]
fn write(value: usize) {
    // Unused on processors whose register is not written.
    let _ = value;
    // SAFETY: the value is the default or what the register had, so that the instruction accepts it.
    #[cfg(all(target_feature = "sse", not(miri)))]
    unsafe {
        asm!("ldmxcsr [{}]", in(reg) &raw const value, options(nostack));
    }
    // SAFETY: the value is the default or what the register had.
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    unsafe {
        asm!("msr fpcr, {}", in(reg) value, options(nostack));
    }
}
