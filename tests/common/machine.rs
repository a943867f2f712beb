//! A machine with one device or several: the driver's stand-in (tests/cuda/libcuda*.cpp), one test at a time.

use std::ffi::CString;
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::stand_in;

/// The driver's stand-in.
pub static DRIVER: LazyLock<libloading::os::unix::Library> = LazyLock::new(|| {
    // Kernels for single sizes have tests of their own (special.rs).
    // SAFETY: the first thing that any test here does, one at a time.
    unsafe { std::env::set_var("CUDAGAUSSBLUR_NVRTC", "/nowhere") };
    let library = stand_in::build("libcuda");
    let opened = stand_in::open(&library);
    std::fs::remove_file(&library).unwrap();
    opened
});

/// A machine with one device. The driver is one for the whole process, so one test has it at a time.
pub struct Machine {
    before: Counts,
    _alone: MutexGuard<'static, ()>,
}

/// What the driver has given out since the test began: of the first four, what is still there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    pub device_blocks: i32,
    pub pinned_blocks: i32,
    pub streams: i32,
    pub events: i32,
    pub contexts: i32,
    pub modules: i32,
    pub allocations: i32,
    /// Contexts that are current on this thread.
    pub current: i32,
}

impl Machine {
    pub fn new() -> Self {
        static ONE: Mutex<()> = Mutex::new(());
        let alone = ONE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut machine = Self { before: Counts::default(), _alone: alone };
        machine.mend();
        machine.before = machine.counts();
        machine
    }

    /// Nothing fails any more.
    pub fn mend(&self) {
        // SAFETY: as declared in the stand-in, here and below.
        unsafe { DRIVER.get::<unsafe extern "C" fn()>(b"fake_reset").unwrap()() };
    }

    /// Calls of this function fail, from the one after the next `after` on.
    pub fn fail(&self, function: &str, after: i32, status: i32) {
        self.fail_times(function, after, i32::MAX, status);
    }

    /// So many of them.
    pub fn fail_times(&self, function: &str, after: i32, times: i32, status: i32) {
        type Fail = unsafe extern "C" fn(*const std::ffi::c_char, i32, i32, i32);
        let function = CString::new(function).unwrap();
        // SAFETY: see above.
        unsafe { DRIVER.get::<Fail>(b"fake_fail").unwrap()(function.as_ptr(), after, times, status) };
    }

    /// The time between any two events is so many milliseconds.
    pub fn elapsed(&self, milliseconds: f32) {
        // SAFETY: see above.
        unsafe { DRIVER.get::<unsafe extern "C" fn(f32)>(b"fake_elapsed").unwrap()(milliseconds) };
    }

    pub fn set(&self, devices: i32, capability: (i32, i32), cuda: (i32, i32)) {
        type Set = unsafe extern "C" fn(i32, i32, i32, i32);
        let version = cuda.0 * 1000 + cuda.1 * 10;
        // SAFETY: see above.
        unsafe { DRIVER.get::<Set>(b"fake_machine").unwrap()(devices, capability.0, capability.1, version) };
    }

    pub fn counts(&self) -> Counts {
        let mut c = [0; 8];
        // SAFETY: see above.
        unsafe { DRIVER.get::<unsafe extern "C" fn(*mut i32)>(b"fake_counts").unwrap()(c.as_mut_ptr()) };
        let [device_blocks, pinned_blocks, streams, events, contexts, modules, allocations, current] = c;
        let Self { before, .. } = self;
        Counts {
            device_blocks: device_blocks - before.device_blocks,
            pinned_blocks: pinned_blocks - before.pinned_blocks,
            streams: streams - before.streams,
            events: events - before.events,
            contexts: contexts - before.contexts,
            modules: modules - before.modules,
            allocations,
            current,
        }
    }
}
