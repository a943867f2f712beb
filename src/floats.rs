// SPDX-License-Identifier: MPL-2.0
//! The floating-point environment of a thread: the rounding mode, whether denormals count as 0, and which exceptions trap.
//!
//! Rust and libm assume the default environment. A program may have set another one, for example for interval arithmetic or
//! audio. A thread inherits the environment of the thread that starts it, so a streaming thread may have any environment.

#[cfg(all(any(target_feature = "sse", target_arch = "aarch64"), not(miri)))]
use std::arch::asm;
use std::cell::Cell;
use std::marker::PhantomData;

/// The default value of the register, MXCSR or FPCR: rounding to nearest, denormals enabled, no traps.
const DEFAULT: usize = if cfg!(target_arch = "aarch64") { 0 } else { 0x1f80 };

/// Sets the default environment for the calling thread. Dropping this guard restores the previous environment.
#[must_use]
pub struct DefaultFloats {
    previous: usize,
    /// Makes the guard `!Send`: it must be dropped on the thread whose environment it restores.
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

// Not inlined, so that the compiler does not move floating-point operations across the calls of `read` and `write`.
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
    // `value` is unused on processors whose register is not written.
    let _ = value;
    // SAFETY: `value` is the default or an earlier value of the register, so it sets no reserved bit, which would fault.
    #[cfg(all(target_feature = "sse", not(miri)))]
    unsafe {
        asm!("ldmxcsr [{}]", in(reg) &raw const value, options(nostack));
    }
    // SAFETY: `value` is the default or an earlier value of the register.
    #[cfg(all(target_arch = "aarch64", not(miri)))]
    unsafe {
        asm!("msr fpcr, {}", in(reg) value, options(nostack));
    }
}
