// SPDX-License-Identifier: MPL-2.0
//! The kernels that are compiled in the background for the device of a context, by NVRTC or by the driver from PTX. Until then,
//! frames use other kernels.
//!
//! An engine looks for a kernel at each frame, and gets an answer at once. A background thread compiles the requested kernels one
//! after the other, and ends when the queue is empty. If a kernel could not be compiled, it is not tried again, unless the cause
//! was that no thread could be started or that memory was short.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use super::error::{JitError, NvrtcError};
use super::nvrtc::LazyNvrtc;
use crate::cuda::driver::Module;
use crate::cuda::driver::device::Device;
use crate::cuda::kernels::images::{Part, waits_for_previous};
use crate::cuda::kernels::prebuilt::{Image, LoadedKernels, PrebuiltKernels};
use crate::cuda::kernels::tensor_direct::DirectKernel;
use crate::process::{Level, lock, log};

const SOURCE: &str = include_str!("../../../kernels/blur.cu");
macro_rules! headers {
    ($($name:literal),*) => { [$(($name, include_str!(concat!("../../../kernels/", $name)))),*] };
}
const HEADERS: [(&str, &str); 10] = headers![
    "abi.h",
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

/// The largest number of kernels and parts in a cache.
const MAX_SPECIALISATIONS: usize = 256;

/// The time after which a kernel may be requested again if no thread could be started for it, or if the device had no memory for
/// it. Memory is often short only while a pipeline starts. While it stays short, each kernel of a program is compiled every 10 s,
/// which takes about a second.
const RETRY: Duration = Duration::from_secs(10);

/// The state of the background thread.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JitStatus {
    /// Whether the thread is compiling kernels.
    pub compiling: bool,
    /// The time of the last kernel, from taking its request from the queue to loading it.
    pub last: Option<Duration>,
}

/// A unit that is compiled in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compilation {
    /// A part of the prebuilt kernels, which the driver compiles from PTX.
    Part(Image, Part),
    /// A kernel that NVRTC compiles.
    Direct(DirectKernel),
}

/// Displays the part or the macros, for the log.
impl std::fmt::Display for Compilation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Part(_, part) => f.write_str(part.name()),
            Self::Direct(kernel) => f.write_str(&kernel.definitions().join(" ")),
        }
    }
}

enum Entry {
    /// In the queue, with the number of its requests.
    Queued(usize),
    Compiling,
    /// Compiled and loaded. The entry is never removed, so that the kernels stay loaded. It is `None` for a part, whose kernels
    /// are in [`PrebuiltKernels`].
    Ready(Option<Arc<LoadedKernels>>),
    Failed,
}

#[derive(Default)]
struct State {
    entries: HashMap<Compilation, Entry>,
    queue: VecDeque<(Compilation, Arc<PrebuiltKernels>)>,
    /// Whether the background thread is running.
    is_running: bool,
    last: Option<Duration>,
    /// The last time at which no thread could be started for a kernel, or memory was short.
    postponed: HashMap<Compilation, Instant>,
}

impl State {
    /// Removes the entry, so that the kernel can be requested again after [`RETRY`]. Returns the level at which the reason is
    /// logged.
    fn postpone(&mut self, key: Compilation) -> Level {
        self.entries.remove(&key);
        let is_first = self.postponed.insert(key, Instant::now()).is_none();
        if is_first { Level::Warning } else { Level::Debug }
    }
}

/// The kernels that are compiled in the background for a device.
pub struct JitCache {
    device: Arc<Device>,
    compiler: &'static LazyNvrtc,
    state: Mutex<State>,
    generation: AtomicU64,
}

impl JitCache {
    /// A cache without kernels.
    pub fn new(device: Arc<Device>, compiler: &'static LazyNvrtc) -> Self {
        Self { device, compiler, state: Mutex::default(), generation: AtomicU64::new(0) }
    }

    /// Returns a kernel of NVRTC if it is ready. Never waits for a compilation.
    pub fn get(&self, kernel: DirectKernel) -> Option<Arc<LoadedKernels>> {
        match lock(&self.state).entries.get(&Compilation::Direct(kernel)) {
            Some(Entry::Ready(kernels)) => kernels.clone(),
            _ => None,
        }
    }

    /// A number that changes whenever a kernel gets ready. While it stays the same, [`JitCache::get`] returns the same results.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// The state of the background thread.
    pub fn status(&self) -> JitStatus {
        let state = lock(&self.state);
        JitStatus { compiling: state.is_running, last: state.last }
    }

    /// Requests a kernel for an engine with these prebuilt kernels. A request can be repeated, because a kernel for which memory
    /// was short may be possible later. Returns whether the engine has to cancel the request when it no longer needs the kernel.
    pub fn request(self: &Arc<Self>, key: Compilation, prebuilt: &Arc<PrebuiltKernels>) -> bool {
        let mut state = lock(&self.state);
        let has_capacity = state.entries.len() < MAX_SPECIALISATIONS;
        let is_postponed = state.postponed.get(&key).is_some_and(|since| since.elapsed() < RETRY);
        match state.entries.get_mut(&key) {
            Some(Entry::Queued(engines)) => *engines += 1,
            Some(_) => return false,
            None if !has_capacity || is_postponed => return false,
            None => {
                state.entries.insert(key, Entry::Queued(1));
                state.queue.push_back((key, Arc::clone(prebuilt)));
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
                    state.queue.retain(|(queued, _)| *queued != key);
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

    /// Cancels a request. The kernel is not compiled if this was its only request and its compilation has not started. After a
    /// kernel was postponed, an engine may cancel the request of another engine by this. The other engine then requests it again.
    pub fn cancel(&self, key: &Compilation) {
        let mut state = lock(&self.state);
        match state.entries.get_mut(key) {
            Some(Entry::Queued(1)) => {
                state.entries.remove(key);
                state.queue.retain(|(queued, _)| queued != key);
            }
            Some(Entry::Queued(engines)) => *engines -= 1,
            _ => (),
        }
    }

    /// The background thread: compiles the queued kernels, one after the other.
    fn make_queued(&self) {
        loop {
            let (key, prebuilt) = {
                let mut state = lock(&self.state);
                let Some(next) = state.queue.pop_front() else {
                    state.is_running = false;
                    return;
                };
                state.entries.insert(next.0, Entry::Compiling);
                next
            };
            let started = Instant::now();
            // Without this, a panic would leave the entry in the state `Compiling` for ever.
            let attempt = std::panic::AssertUnwindSafe(|| match key {
                Compilation::Part(_, part) => Ok(prebuilt.part(part).map(|_| None)?),
                Compilation::Direct(kernel) => self.compile(&kernel).map(|kernels| Some(Arc::new(kernels))),
            });
            let made = std::panic::catch_unwind(attempt).unwrap_or(Err(JitError::Panicked));
            match made {
                Ok(kernels) => {
                    let took = started.elapsed();
                    let mut state = lock(&self.state);
                    state.last = Some(took);
                    state.entries.insert(key, Entry::Ready(kernels));
                    self.generation.fetch_add(1, Ordering::Release);
                    drop(state);
                    let compiler = if matches!(key, Compilation::Part(..)) { "the driver" } else { "NVRTC" };
                    log(Level::Info, || format!("{compiler} has compiled kernels for {key} in {took:.1?}"));
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
                            let others = if matches!(key, Compilation::Part(..)) { "CUDA-core" } else { "prebuilt" };
                            format!("using the {others} kernels, because none are compiled for {key}: {error}")
                        });
                    }
                }
            }
        }
    }

    /// Compiles a kernel and loads it.
    fn compile(&self, kernel: &DirectKernel) -> Result<LoadedKernels, JitError> {
        let nvrtc = self.compiler.get().ok_or(JitError::Unavailable)?;
        let target = nvrtc.target(self.device.capability(), self.device.driver())?;
        // Launches overlap on this device, so each kernel has to wait for the previous one.
        if waits_for_previous(self.device.capability()) && !waits_for_previous(target.capability()) {
            return Err(NvrtcError::UnsupportedDevice(nvrtc.version()).into());
        }
        let mut options = vec![format!("--gpu-architecture={target}"), "--std=c++17".to_owned()];
        options.extend(kernel.definitions().iter().map(|definition| format!("-D{definition}")));
        let (major, minor) = nvrtc.version();
        log(Level::Debug, || format!("NVRTC {major}.{minor}: {}", options.join(" ")));
        let (image, output) = nvrtc.compile(SOURCE, &HEADERS, &options, target)?;
        if !output.is_empty() {
            log(Level::Debug, || format!("NVRTC {major}.{minor} reports: {output}"));
        }
        // SAFETY: NVRTC returns a complete CUBIN, or PTX whose only NUL is at its end.
        let module = unsafe { Module::load(image, &self.device) }?;
        Ok(LoadedKernels::new(module, [kernel.kernel()])?)
    }
}
