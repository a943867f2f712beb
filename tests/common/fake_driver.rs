//! The fake CUDA driver (tests/fake_cuda/README.md), for one test at a time.

use std::collections::BTreeMap;
use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use super::fake_library::{self, call};

/// Statuses of the driver.
pub const OUT_OF_MEMORY: i32 = 2;
pub const NO_DEVICE: i32 = 100;
pub const NO_BINARY_FOR_GPU: i32 = 209;
pub const NOT_READY: i32 = 600;
pub const ILLEGAL_ADDRESS: i32 = 700;
pub const LAUNCH_FAILED: i32 = 719;

/// The fake driver's library. Opening it also disables NVRTC for the process, unless the test names one.
pub static DRIVER: LazyLock<libloading::Library> = LazyLock::new(|| {
    if std::env::var_os("CUDAGAUSSBLUR_NVRTC").is_none() {
        // SAFETY: this runs in `main` or in `FakeDriver::new` of the first test, which holds the lock that the other tests
        // wait for: no other thread reads the environment now.
        unsafe { std::env::set_var("CUDAGAUSSBLUR_NVRTC", "/nowhere") };
    }
    fake_library::open(&fake_library::build("libcuda"))
});

/// Exclusive use of the fake driver, whose state is the process's, with no faults and one device.
pub struct FakeDriver {
    /// [`fake_counts`] when it was made.
    before: [i32; 9],
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
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Counts {
    /// Live objects.
    pub device_blocks: i32,
    pub pinned_blocks: i32,
    pub streams: i32,
    pub events: i32,
    /// Primary contexts retained and modules loaded.
    pub contexts: i32,
    pub modules: i32,
    pub allocations: i32,
    /// Depth of this thread's context stack.
    pub current: i32,
    /// Live events that have a time.
    pub timed_events: i32,
}

impl Counts {
    /// Live device blocks, pinned blocks, streams and events.
    pub fn live(&self) -> [i32; 4] {
        [self.device_blocks, self.pinned_blocks, self.streams, self.events]
    }
}

fn fake_counts() -> [i32; 9] {
    let mut counts = [0; 9];
    call!(DRIVER, fake_counts(counts.as_mut_ptr() => *mut i32) -> ());
    counts
}

impl FakeDriver {
    pub fn new() -> Self {
        static EXCLUSIVE: Mutex<()> = Mutex::new(());
        let _exclusive = EXCLUSIVE.lock().unwrap_or_else(PoisonError::into_inner);
        let driver = Self { before: fake_counts(), _exclusive };
        driver.clear_faults();
        driver
    }

    /// The same with so many devices, all like the default one.
    pub fn with_devices(count: i32) -> Self {
        let driver = Self::new();
        driver.set_devices(count, (9, 0), (13, 0));
        driver
    }

    /// Clears all faults and restores the default device and the measured event times.
    pub fn clear_faults(&self) {
        call!(DRIVER, fake_reset() -> ());
    }

    /// After `after` more calls, every call of this function returns `status`.
    pub fn fail(&self, function: &str, after: i32, status: i32) {
        self.fail_times(function, after, i32::MAX, status);
    }

    /// After `after` more calls, the next `times` calls of this function return `status`.
    pub fn fail_times(&self, function: &str, after: i32, times: i32, status: i32) {
        let name = CString::new(function).unwrap();
        call!(DRIVER, fake_fail(name.as_ptr() => *const c_char, after => i32, times => i32, status => i32) -> ());
    }

    /// The next so many queries find that the device has not finished, so that frames stay in flight.
    pub fn is_busy(&self, queries: i32) {
        self.fail_times("cuEventQuery", 0, queries, NOT_READY);
    }

    /// After `after` more calls of this function, it and every later call of a function that needs a context return `status`.
    pub fn lose(&self, function: &str, after: i32, status: i32) {
        let name = CString::new(function).unwrap();
        call!(DRIVER, fake_lose(name.as_ptr() => *const c_char, after => i32, status => i32) -> ());
    }

    /// The functions that were called since the faults were cleared, by name.
    pub fn calls(&self) -> BTreeMap<String, Calls> {
        type Report = unsafe extern "C" fn(*mut c_void, *const c_char, i32, i32);
        unsafe extern "C" fn report(calls: *mut c_void, function: *const c_char, all: i32, failed: i32) {
            // SAFETY: `calls` is the map below, which only this call uses; the name ends with a NUL.
            let (calls, function) = unsafe { (&mut *calls.cast::<BTreeMap<_, _>>(), CStr::from_ptr(function)) };
            calls.insert(function.to_str().unwrap().to_owned(), Calls { all, failed });
        }
        let mut calls: BTreeMap<String, Calls> = BTreeMap::new();
        call!(DRIVER, fake_calls(report => Report, (&raw mut calls).cast() => *mut c_void) -> ());
        calls
    }

    /// Runs `work`, whose driver calls on this thread are neither counted nor fail.
    pub fn exempt<T>(&self, work: impl FnOnce() -> T) -> T {
        call!(DRIVER, fake_exempt(1 => i32) -> ());
        let result = work();
        call!(DRIVER, fake_exempt(0 => i32) -> ());
        result
    }

    /// Sets the time that is reported between any two events, in milliseconds.
    pub fn elapsed(&self, milliseconds: f32) {
        call!(DRIVER, fake_set_elapsed(milliseconds => f32) -> ());
    }

    /// Sets the number of devices, their compute capability, and the CUDA version of the driver.
    pub fn set_devices(&self, devices: i32, (major, minor): (i32, i32), cuda: (i32, i32)) {
        let version = cuda.0 * 1000 + cuda.1 * 10;
        call!(DRIVER, fake_set_devices(devices => i32, major => i32, minor => i32, version => i32) -> ());
    }

    /// Live contexts that are not primary.
    pub fn live_contexts(&self) -> i32 {
        call!(DRIVER, fake_context_count() -> i32)
    }

    /// Bytes copied by the process to the device and to the host so far.
    pub fn copied(&self) -> [usize; 2] {
        let (mut up, mut down) = (0, 0);
        call!(DRIVER, fake_copied_bytes(&mut up => &mut usize, &mut down => &mut usize) -> ());
        [up, down]
    }

    /// Live device blocks, pinned blocks, streams, events and contexts that are not primary, of the whole process.
    pub fn in_use() -> Vec<i64> {
        let driver = Self::new();
        driver.before[..4].iter().chain([&driver.live_contexts()]).map(|count| i64::from(*count)).collect()
    }

    pub fn counts(&self) -> Counts {
        let now = fake_counts();
        let [device_blocks, pinned_blocks, streams, events, contexts, modules, allocations] =
            std::array::from_fn(|i| now[i] - self.before[i]);
        let (current, timed_events) = (now[7], now[8] - self.before[8]);
        Counts { device_blocks, pinned_blocks, streams, events, contexts, modules, allocations, current, timed_events }
    }
}
