//! The floating-point environment of a thread: rounding mode, and whether denormals count as 0.

use std::arch::asm;
use std::fmt;

/// The control bits of the register that holds it.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Environment(u64);

#[cfg(target_arch = "x86_64")]
mod register {
    pub const DEFAULT: u64 = 0x1f80;
    /// To nearest, down, up and towards 0.
    pub const ROUNDING: [u64; 4] = [0, 1 << 13, 2 << 13, 3 << 13];
    /// Results and operands.
    pub const FLUSH: u64 = 1 << 15 | 1 << 6;
    /// All but the flags of what has happened.
    pub const CONTROL: u64 = 0xffc0;
}

#[cfg(target_arch = "aarch64")]
mod register {
    pub const DEFAULT: u64 = 0;
    pub const ROUNDING: [u64; 4] = [0, 2 << 22, 1 << 22, 3 << 22];
    pub const FLUSH: u64 = 1 << 24;
    pub const CONTROL: u64 = !0;
}

/// That of the calling thread.
#[inline(never)]
pub fn current() -> Environment {
    let mut value = 0_u64;
    // SAFETY: the instruction reads a register, on x86_64 into the four bytes that it is given.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        asm!("stmxcsr [{}]", in(reg) &raw mut value);
        #[cfg(target_arch = "aarch64")]
        asm!("mrs {}, fpcr", out(reg) value);
    }
    Environment(value & register::CONTROL)
}

impl Environment {
    /// What Rust expects.
    pub const DEFAULT: Self = Self(register::DEFAULT);

    /// Every rounding mode, with and without denormals; the default first.
    pub fn all() -> Vec<Self> {
        let all =
            [0, register::FLUSH].into_iter().flat_map(|flush| register::ROUNDING.map(|rounding| rounding | flush));
        all.map(|bits| Self(register::DEFAULT | bits)).collect()
    }

    /// Calls `work` with this environment.
    pub fn run<T>(self, work: impl FnOnce() -> T) -> T {
        let before = current();
        self.set();
        let result = work();
        before.set();
        result
    }

    #[inline(never)]
    fn set(self) {
        // SAFETY: the value is a valid one of the register. What runs with it computes with other rounding, which is what is tested.
        unsafe {
            #[cfg(target_arch = "x86_64")]
            asm!("ldmxcsr [{}]", in(reg) &raw const self.0);
            #[cfg(target_arch = "aarch64")]
            asm!("msr fpcr, {}", in(reg) self.0);
        }
    }
}

impl fmt::Debug for Environment {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        let number = Self::all().iter().position(|one| one == self).expect("one of all");
        let mode = ["nearest", "down", "up", "towards 0"][number % 4];
        write!(f, "{mode}{}", if number < 4 { "" } else { ", no denormals" })
    }
}
