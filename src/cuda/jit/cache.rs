// SPDX-License-Identifier: MPL-2.0
//! The specialised kernels of a device, compiled in the background while prebuilt kernels serve.
//!
//! An engine asks for a kernel at every frame and gets an answer at once. A background thread makes the requested kernels, one
//! after the other, and ends when none is left. A kernel that could not be made is not tried again, unless a thread or memory was
//! short.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::error::JitError;
use super::nvrtc::LazyNvrtc;
use crate::cuda::driver::Module;
use crate::cuda::driver::device::Device;
use crate::cuda::kernels::images::waits_for_previous;
use crate::cuda::kernels::prebuilt::LoadedKernels;
use crate::cuda::kernels::strategy::Specialisation;
use crate::process::{Level, lock, log};

const SOURCE: &str = include_str!("../../../kernels/blur.cu");
macro_rules! headers {
    ($($name:literal),*) => { [$(($name, include_str!(concat!("../../../kernels/", $name)))),*] };
}
const HEADERS: [(&str, &str); 11] = headers![
    "abi.h",
    "axis.cuh",
    "compat.cuh",
    "launch.cuh",
    "pixels.cuh",
    "tensor.cuh",
    "tensor_direct.cuh",
    "tensor_loader.cuh",
    "tensor_taps.cuh",
    "tensor_window.cuh",
    "warp.cuh"
];

/// Of one device.
const MAX_SPECIALISATIONS: usize = 256;

/// A kernel for which no thread started, or for which the device had no memory, may be requested again after this time. Memory is
/// often short only while a pipeline starts. While it stays short, each kernel of a program is compiled, for about a second, every
/// 10 s.
const RETRY: Duration = Duration::from_secs(10);

/// What the background thread is doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JitStatus {
    /// It is making a kernel.
    pub compiling: bool,
    /// How long the last one took, from taking it from the queue to having it loaded.
    pub last: Option<Duration>,
}

/// The kernels of a specialisation.
pub struct SpecialisedKernels {
    /// They take the place of prebuilt ones.
    pub kernels: LoadedKernels,
    /// Whether they wait for the kernel ahead of them where launches overlap.
    pub waits: bool,
}

enum Entry {
    /// In the queue, requested by this many engines.
    Queued(usize),
    Compiling,
    /// Never removed, so that the kernels stay loaded.
    Ready(Arc<SpecialisedKernels>),
    Failed,
}

#[derive(Default)]
struct State {
    entries: HashMap<Specialisation, Entry>,
    queue: VecDeque<Specialisation>,
    /// Whether the background thread is running.
    is_running: bool,
    last: Option<Duration>,
    /// When a thread or memory was short for a kernel, the last time.
    postponed: HashMap<Specialisation, Instant>,
}

impl State {
    /// Lets a kernel be requested again after [`RETRY`]. Returns the level at which the reason is logged.
    fn postpone(&mut self, key: Specialisation) -> Level {
        self.entries.remove(&key);
        let is_first = self.postponed.insert(key, Instant::now()).is_none();
        if is_first { Level::Warning } else { Level::Debug }
    }
}

/// The specialised kernels of a device.
pub struct JitCache {
    device: Arc<Device>,
    compiler: &'static LazyNvrtc,
    state: Mutex<State>,
    generation: AtomicU64,
}

impl JitCache {
    /// Without kernels.
    pub fn new(device: Arc<Device>, compiler: &'static LazyNvrtc) -> Self {
        Self { device, compiler, state: Mutex::default(), generation: AtomicU64::new(0) }
    }

    /// The kernels, if they are ready. Never waits for a compilation.
    pub fn get(&self, key: &Specialisation) -> Option<Arc<SpecialisedKernels>> {
        match lock(&self.state).entries.get(key) {
            Some(Entry::Ready(kernels)) => Some(Arc::clone(kernels)),
            _ => None,
        }
    }

    /// A number that changes with every kernel that gets ready: while it stays the same, [`JitCache::get`] returns the same.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// What the background thread is doing.
    pub fn status(&self) -> JitStatus {
        let state = lock(&self.state);
        JitStatus { compiling: state.is_running, last: state.last }
    }

    /// Requests a kernel for an engine; also again, because one for which memory was short can be made later. Returns whether the
    /// engine has to cancel the request when it no longer needs the kernel.
    pub fn request(self: &Arc<Self>, key: Specialisation) -> bool {
        let mut state = lock(&self.state);
        let has_capacity = state.entries.len() < MAX_SPECIALISATIONS;
        let is_postponed = state.postponed.get(&key).is_some_and(|since| since.elapsed() < RETRY);
        match state.entries.get_mut(&key) {
            Some(Entry::Queued(engines)) => *engines += 1,
            Some(_) => return false,
            None if !has_capacity || is_postponed => return false,
            None => {
                state.entries.insert(key, Entry::Queued(1));
                state.queue.push_back(key);
            }
        }
        if !state.is_running {
            let thread = std::thread::Builder::new().name("gaussblur-nvrtc".to_owned());
            let (cache, user) = (Arc::clone(self), self.compiler.enter());
            let work = move || {
                let _user = user;
                cache.make_queued();
            };
            match thread.spawn(work) {
                Ok(_) => state.is_running = true,
                Err(error) => {
                    state.queue.retain(|queued| *queued != key);
                    let level = state.postpone(key);
                    drop(state);
                    log(level, || {
                        format!(
                            "using the prebuilt kernels, because no thread starts to compile others for {key}: {error}"
                        )
                    });
                    return false;
                }
            }
        }
        true
    }

    /// Cancels a request. The kernel is not made if no other engine requests it and it has not been started. After a kernel was
    /// postponed, an engine may cancel a request that another one has repeated; that one requests again.
    pub fn cancel(&self, key: &Specialisation) {
        let mut state = lock(&self.state);
        match state.entries.get_mut(key) {
            Some(Entry::Queued(1)) => {
                state.entries.remove(key);
                state.queue.retain(|queued| queued != key);
            }
            Some(Entry::Queued(engines)) => *engines -= 1,
            _ => (),
        }
    }

    /// The background thread: makes the queued kernels, one after the other.
    fn make_queued(&self) {
        loop {
            let key = {
                let mut state = lock(&self.state);
                let Some(key) = state.queue.pop_front() else {
                    state.is_running = false;
                    return;
                };
                state.entries.insert(key, Entry::Compiling);
                key
            };
            let started = Instant::now();
            // A panic must not leave the entry compiling for ever.
            let attempt = std::panic::AssertUnwindSafe(|| self.make(&key));
            let made = std::panic::catch_unwind(attempt).unwrap_or(Err(JitError::Panicked));
            match made {
                Ok(kernels) => {
                    let took = started.elapsed();
                    let mut state = lock(&self.state);
                    state.last = Some(took);
                    state.entries.insert(key, Entry::Ready(Arc::new(kernels)));
                    self.generation.fetch_add(1, Ordering::Release);
                    drop(state);
                    log(Level::Info, || format!("NVRTC has compiled kernels for {key} in {took:.1?}"));
                }
                Err(error) => {
                    let mut state = lock(&self.state);
                    let level = if error.is_out_of_memory() {
                        state.postpone(key)
                    } else {
                        state.entries.insert(key, Entry::Failed);
                        Level::Warning
                    };
                    drop(state);
                    if !matches!(error, JitError::Unavailable) {
                        log(level, || {
                            format!("using the prebuilt kernels, because none are compiled for {key}: {error}")
                        });
                    }
                }
            }
        }
    }

    /// Compiles kernels and loads them.
    fn make(&self, key: &Specialisation) -> Result<SpecialisedKernels, JitError> {
        let nvrtc = self.compiler.get().ok_or(JitError::Unavailable)?;
        let target = nvrtc.target(self.device.capability(), self.device.driver())?;
        let mut options = vec![format!("--gpu-architecture={target}"), "--std=c++17".to_owned()];
        options.extend(key.definitions().iter().map(|definition| format!("-D{definition}")));
        let (major, minor) = nvrtc.version();
        log(Level::Debug, || format!("NVRTC {major}.{minor}: {}", options.join(" ")));
        let (image, output) = nvrtc.compile(SOURCE, &HEADERS, &options, target)?;
        if !output.is_empty() {
            log(Level::Debug, || format!("NVRTC {major}.{minor} reports: {output}"));
        }
        // SAFETY: the image is the compiler's output.
        let module = unsafe { Module::load(image, &self.device) }?;
        let kernels = LoadedKernels::new(module, key.kernels().list())?;
        Ok(SpecialisedKernels { kernels, waits: waits_for_previous(target.capability()) })
    }
}
