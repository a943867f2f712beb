//! The fake CUDA driver (tests/fake_cuda/README.md), for one test at a time.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::fake_library;

/// The fake driver's library. Opening it also disables NVRTC for the process: kernels compiled at run time are tested
/// in jit.rs.
pub static DRIVER: LazyLock<libloading::Library> = LazyLock::new(|| {
    // SAFETY: this runs in `main` or in `FakeDriver::new` of the first test, which holds the lock that the other tests
    // wait for: no other thread reads the environment now.
    unsafe { std::env::set_var("CUDAGAUSSBLUR_NVRTC", "/nowhere") };
    fake_library::open(&fake_library::build("libcuda"))
});

/// Exclusive use of the fake driver, whose state is the process's, with no faults and one device.
pub struct FakeDriver {
    before: Counts,
    _exclusive: MutexGuard<'static, ()>,
}

/// The calls of a driver function.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Calls {
    pub all: i32,
    /// Those that returned an injected fault.
    pub failed: i32,
}

/// What the driver has handed out since the [`FakeDriver`] was made.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Live objects.
    pub device_blocks: i32,
    pub pinned_blocks: i32,
    pub streams: i32,
    pub events: i32,
    /// Primary contexts retained and modules loaded.
    pub contexts: i32,
    pub modules: i32,
    /// Blocks allocated by the process so far.
    pub allocations: i32,
    /// Depth of this thread's context stack.
    pub current: i32,
}

impl FakeDriver {
    pub fn new() -> Self {
        static EXCLUSIVE: Mutex<()> = Mutex::new(());
        let exclusive = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
        let mut driver = Self { before: Counts::default(), _exclusive: exclusive };
        driver.clear_faults();
        driver.before = driver.counts();
        driver
    }

    /// Clears all faults and restores the default device and the measured event times.
    pub fn clear_faults(&self) {
        // SAFETY: `void fake_reset()` in tests/fake_cuda/libcuda.cpp.
        unsafe { DRIVER.get::<unsafe extern "C" fn()>(b"fake_reset").unwrap()() };
    }

    /// After `after` more calls, every call of this function returns `status`.
    pub fn fail(&self, function: &str, after: i32, status: i32) {
        self.fail_times(function, after, i32::MAX, status);
    }

    /// After `after` more calls, the next `times` calls of this function return `status`.
    pub fn fail_times(&self, function: &str, after: i32, times: i32, status: i32) {
        type Fail = unsafe extern "C" fn(*const c_char, i32, i32, i32);
        let function = CString::new(function).unwrap();
        // SAFETY: `Fail` is the type of `fake_fail` in tests/fake_cuda/libcuda.cpp; the name lives until it returns.
        unsafe { DRIVER.get::<Fail>(b"fake_fail").unwrap()(function.as_ptr(), after, times, status) };
    }

    /// After `after` more calls of this function, it and every later call of a function that needs a context return `status`.
    pub fn lose(&self, function: &str, after: i32, status: i32) {
        type Lose = unsafe extern "C" fn(*const c_char, i32, i32);
        let function = CString::new(function).unwrap();
        // SAFETY: `Lose` is the type of `fake_lose` in tests/fake_cuda/libcuda.cpp; the name lives until it returns.
        unsafe { DRIVER.get::<Lose>(b"fake_lose").unwrap()(function.as_ptr(), after, status) };
    }

    /// The functions that were called since the faults were cleared, by name.
    pub fn calls(&self) -> BTreeMap<String, Calls> {
        unsafe extern "C" fn report(calls: *mut c_void, function: *const c_char, all: i32, failed: i32) {
            // SAFETY: `calls` is the map below, which only this call uses; the name ends with a NUL.
            let (calls, function) = unsafe { (&mut *calls.cast::<BTreeMap<_, _>>(), CStr::from_ptr(function)) };
            calls.insert(function.to_str().unwrap().to_owned(), Calls { all, failed });
        }
        type Report = unsafe extern "C" fn(*mut c_void, *const c_char, i32, i32);
        let mut calls: BTreeMap<String, Calls> = BTreeMap::new();
        // SAFETY: the type is that of `fake_calls` in tests/fake_cuda/libcuda.cpp, which calls `report` before it returns.
        unsafe {
            DRIVER.get::<unsafe extern "C" fn(Report, *mut c_void)>(b"fake_calls").unwrap()(
                report,
                (&raw mut calls).cast(),
            );
        }
        calls
    }

    /// Runs `work`, whose driver calls on this thread are neither counted nor fail.
    pub fn exempt<T>(&self, work: impl FnOnce() -> T) -> T {
        let exempt = |is_exempt: i32| {
            // SAFETY: `void fake_exempt(int)` in tests/fake_cuda/libcuda.cpp.
            unsafe { DRIVER.get::<unsafe extern "C" fn(i32)>(b"fake_exempt").unwrap()(is_exempt) };
        };
        exempt(1);
        let result = work();
        exempt(0);
        result
    }

    /// Sets the time that is reported between any two events, in milliseconds.
    pub fn elapsed(&self, milliseconds: f32) {
        // SAFETY: `void fake_set_elapsed(float)` in tests/fake_cuda/libcuda.cpp.
        unsafe { DRIVER.get::<unsafe extern "C" fn(f32)>(b"fake_set_elapsed").unwrap()(milliseconds) };
    }

    /// Sets the number of devices, their compute capability, and the CUDA version of the driver.
    pub fn set_devices(&self, devices: i32, capability: (i32, i32), cuda: (i32, i32)) {
        type SetDevices = unsafe extern "C" fn(i32, i32, i32, i32);
        let version = cuda.0 * 1000 + cuda.1 * 10;
        // SAFETY: `SetDevices` is the type of `fake_set_devices` in tests/fake_cuda/libcuda.cpp.
        unsafe {
            DRIVER.get::<SetDevices>(b"fake_set_devices").unwrap()(devices, capability.0, capability.1, version);
        }
    }

    /// Live contexts that are not primary.
    pub fn live_contexts(&self) -> i32 {
        // SAFETY: `int fake_context_count()` in tests/fake_cuda/libcuda.cpp.
        unsafe { DRIVER.get::<unsafe extern "C" fn() -> i32>(b"fake_context_count").unwrap()() }
    }

    pub fn counts(&self) -> Counts {
        let mut c = [0; 8];
        // SAFETY: `void fake_counts(int*)` in tests/fake_cuda/libcuda.cpp writes eight numbers.
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
