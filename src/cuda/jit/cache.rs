// SPDX-License-Identifier: MPL-2.0
//! The kernels of a device that are compiled in the background while others serve: by NVRTC, or by the driver from PTX.
//!
//! An engine asks for a kernel at every frame and gets an answer at once. A background thread makes the requested kernels, one
//! after the other, and ends when none is left. A kernel that could not be made is not tried again, unless a thread or memory was
//! short.

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

/// What is compiled in the background.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Compilation {
    /// A part of the prebuilt kernels, from PTX.
    Part(Image, Part),
    /// A kernel that NVRTC compiles.
    Direct(DirectKernel),
}

/// For the log.
impl std::fmt::Display for Compilation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Part(_, part) => f.write_str(part.name()),
            Self::Direct(kernel) => f.write_str(&kernel.definitions().join(" ")),
        }
    }
}

enum Entry {
    /// In the queue, requested by this many engines.
    Queued(usize),
    Compiling,
    /// Never removed, so that the kernels stay loaded. Those of a part are with the others that are prebuilt.
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
    /// When a thread or memory was short for a kernel, the last time.
    postponed: HashMap<Compilation, Instant>,
}

impl State {
    /// Lets a kernel be requested again after [`RETRY`]. Returns the level at which the reason is logged.
    fn postpone(&mut self, key: Compilation) -> Level {
        self.entries.remove(&key);
        let is_first = self.postponed.insert(key, Instant::now()).is_none();
        if is_first { Level::Warning } else { Level::Debug }
    }
}

/// The kernels of a device that are compiled in the background.
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

    /// A kernel that NVRTC has compiled, if it is ready. Never waits for a compilation.
    pub fn get(&self, kernel: DirectKernel) -> Option<Arc<LoadedKernels>> {
        match lock(&self.state).entries.get(&Compilation::Direct(kernel)) {
            Some(Entry::Ready(kernels)) => kernels.clone(),
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

    /// Requests kernels for an engine with these prebuilt ones; also again, because those for which memory was short can be made
    /// later. Returns whether the engine has to cancel the request when it no longer needs them.
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

    /// Cancels a request. The kernel is not made if no other engine requests it and it has not been started. After a kernel was
    /// postponed, an engine may cancel a request that another one has repeated; that one requests again.
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

    /// The background thread: makes the queued kernels, one after the other.
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
            // A panic must not leave the entry compiling for ever.
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
        // Launches on the device overlap, so every kernel has to wait for the one ahead of it.
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
        // SAFETY: the image is the compiler's output.
        let module = unsafe { Module::load(image, &self.device) }?;
        Ok(LoadedKernels::new(module, [kernel.kernel()])?)
    }
}
