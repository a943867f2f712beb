// SPDX-License-Identifier: MPL-2.0
//! The specialised kernels of a device, compiled in the background while generic kernels serve.
//!
//! An engine asks for a kernel at every frame and gets an answer at once. A background thread makes the requested kernels, one
//! after the other, and ends when none is left. A kernel that could not be made is not tried again.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::disk_cache::{self, Key};
use super::error::JitError;
use super::nvrtc::LazyNvrtc;
use super::specialisation::SpecialisationKey;
use crate::cuda::driver::device::Device;
use crate::cuda::driver::{Function, Module};
use crate::cuda::error::CudaError;
use crate::cuda::kernels::images::Kernel;
use crate::process::{Level, log};

const SOURCE: &str = include_str!("../../../kernels/blur.cu");
macro_rules! headers {
    ($($name:literal),*) => { [$(($name, include_str!(concat!("../../../kernels/", $name)))),*] };
}
const HEADERS: [(&str, &str); 6] = headers!["abi.h", "axis.cuh", "compat.cuh", "launch.cuh", "pixels.cuh", "warp.cuh"];

/// Pairs of kernels of one device.
const MAX_KERNELS: usize = 256;

/// Where a specialised kernel came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum KernelOrigin {
    /// NVRTC compiled it in this process.
    Nvrtc,
    /// The disk cache, where an earlier process wrote it.
    Disk,
}

impl KernelOrigin {
    /// The value of `compile-last-from` in the element's stats.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nvrtc => "nvrtc",
            Self::Disk => "disk",
        }
    }
}

/// A specialised kernel that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct JitResult {
    /// Time from taking it from the queue to having it loaded.
    pub took: Duration,
    /// Its origin.
    pub from: KernelOrigin,
}

/// What the background thread is doing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct JitStatus {
    /// It is making a kernel.
    pub compiling: bool,
    /// The last kernel made.
    pub last: Option<JitResult>,
}

/// The kernels that are compiled for the radii of one batch.
#[derive(Debug, Clone, Copy)]
pub struct SpecialisedKernels {
    rows: Function,
    columns: Function,
}

impl SpecialisedKernels {
    /// What takes the place of a prebuilt kernel, if one of them does.
    pub fn get(&self, kernel: Kernel) -> Option<Function> {
        match kernel {
            Kernel::ROWS => Some(self.rows),
            Kernel::COLUMNS => Some(self.columns),
            _ => None,
        }
    }
}

#[derive(Debug, Clone, Copy)]
enum Entry {
    /// In the queue, requested by this many engines.
    Queued(usize),
    Compiling,
    Ready(SpecialisedKernels),
    Failed,
}

#[derive(Default)]
struct State {
    entries: HashMap<SpecialisationKey, Entry>,
    queue: VecDeque<SpecialisationKey>,
    /// Whether the background thread is running.
    is_running: bool,
    last: Option<JitResult>,
    /// Keeps the ready functions loaded.
    modules: Vec<Module>,
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

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernels, if they are ready. Never waits for a compilation.
    pub fn get(&self, key: &SpecialisationKey) -> Option<SpecialisedKernels> {
        match self.lock().entries.get(key) {
            Some(Entry::Ready(kernels)) => Some(*kernels),
            _ => None,
        }
    }

    /// A number that changes with every kernel that gets ready: while it stays the same, [`JitCache::get`] returns the same.
    pub fn generation(&self) -> u64 {
        self.generation.load(Ordering::Acquire)
    }

    /// What the background thread is doing.
    pub fn status(&self) -> JitStatus {
        let state = self.lock();
        JitStatus { compiling: state.is_running, last: state.last }
    }

    /// Requests a kernel for an engine. Returns whether the engine has to cancel the request when it no longer needs the
    /// kernel.
    pub fn request(self: &Arc<Self>, key: SpecialisationKey) -> bool {
        let mut state = self.lock();
        let has_capacity = state.entries.len() < MAX_KERNELS;
        match state.entries.get_mut(&key) {
            Some(Entry::Queued(engines)) => *engines += 1,
            Some(_) => return false,
            None if !has_capacity => return false,
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
                    state.entries.remove(&key);
                    state.queue.retain(|queued| *queued != key);
                    drop(state);
                    let line = format!("no kernel for {key:?}: the compiling thread could not be started ({error})");
                    log(Level::Warning, &line);
                    return false;
                }
            }
        }
        true
    }

    /// Cancels a request. The kernel is not made if no other engine requests it and it has not been started.
    pub fn cancel(&self, key: &SpecialisationKey) {
        let mut state = self.lock();
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
                let mut state = self.lock();
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
            let mut state = self.lock();
            match made {
                Ok((kernels, module, from)) => {
                    let took = started.elapsed();
                    state.last = Some(JitResult { took, from });
                    state.modules.push(module);
                    state.entries.insert(key, Entry::Ready(kernels));
                    self.generation.fetch_add(1, Ordering::Release);
                    log(Level::Info, &format!("a kernel for {key:?} is ready after {took:.1?}, from {from:?}"));
                }
                Err(error) => {
                    if !matches!(error, JitError::Unavailable) {
                        let line = format!("no kernel for {key:?}, using the generic one: {error}");
                        log(Level::Warning, &line);
                    }
                    state.entries.insert(key, Entry::Failed);
                }
            }
        }
    }

    /// Reads a kernel from the disk cache or compiles it, and loads it.
    fn make(&self, key: &SpecialisationKey) -> Result<(SpecialisedKernels, Module, KernelOrigin), JitError> {
        let nvrtc = self.compiler.get().ok_or(JitError::Unavailable)?;
        let target = nvrtc.target(self.device.capability(), self.device.driver())?;
        let options = key.options(target);
        let (major, minor) = nvrtc.version();
        let version = format!("{major}.{minor}");
        let sources = HEADERS.iter().map(|(_, text)| *text).chain([SOURCE, version.as_str()]);
        let file_key = Key::of(sources.chain(options.iter().map(String::as_str)));
        let folder = disk_cache::folder();

        if let Some(image) = folder.as_ref().and_then(|folder| disk_cache::read(folder, &file_key)) {
            match self.load(image) {
                Ok((kernels, module)) => return Ok((kernels, module, KernelOrigin::Disk)),
                Err(error) => {
                    let line = format!("a kernel from the disk cache cannot be loaded ({error}); compiling it again");
                    log(Level::Info, &line);
                }
            }
        }
        log(Level::Debug, &format!("NVRTC {version}: {}", options.join(" ")));
        let (image, output) = nvrtc.compile(SOURCE, &HEADERS, &options, target)?;
        if !output.is_empty() {
            log(Level::Debug, &format!("NVRTC {version} reports: {output}"));
        }
        let (kernels, module) = self.load(image.clone())?;
        if let Some(folder) = folder {
            disk_cache::write(&folder, &file_key, &image);
        }
        Ok((kernels, module, KernelOrigin::Nvrtc))
    }

    fn load(&self, image: Vec<u8>) -> Result<(SpecialisedKernels, Module), CudaError> {
        // SAFETY: the image is the compiler's output, or a file whose digest matches.
        let module = unsafe { Module::load(image, &self.device) }?;
        let function = |kernel: Kernel| module.function(kernel.entry_point());
        Ok((SpecialisedKernels { rows: function(Kernel::ROWS)?, columns: function(Kernel::COLUMNS)? }, module))
    }
}
