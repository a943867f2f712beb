// SPDX-License-Identifier: MPL-2.0
//! Kernels compiled for one pair of radii, while frames go on with the general ones.
//!
//! A device has one set of them. An engine asks for a kernel at every frame and is answered at once; a shape that stays
//! it wants to have made. A thread takes what is wanted from the disk or has it compiled by NVRTC, and ends when nothing
//! is left to do. What fails once is not tried again.

use std::collections::{HashMap, VecDeque};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, LazyLock, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::device::Device;
use super::disk::{self, Key};
use super::driver::{Function, Module};
use super::error::CudaError;
use super::launch::{Family, Group, Kind};
use super::nvrtc::{Nvrtc, Target};
use crate::log::{Level, log};

const SOURCE: &str = include_str!("../../kernels/blur.cu");
macro_rules! headers {
    ($($name:literal),*) => { [$(($name, include_str!(concat!("../../kernels/", $name)))),*] };
}
const HEADERS: [(&str, &str); 5] = headers!["shared.h", "shim.h", "pixels.h", "stage.h", "alpha.h"];
const ENTRY_POINT: &str = "blur_special";

/// Largest radius down the columns for which a special kernel is at least 5 % faster than the general ones, by bytes per
/// sample. Measured on an H200 (kernels/README.md): beyond it two general passes win.
const MOST_RADIUS: [usize; 2] = [24, 15];
/// Along the rows it unrolls as far as this.
const MOST_ROW_RADIUS: usize = 32;
/// Kernels of one process; a kernel takes about 40 kB on the device.
const MOST_KERNELS: usize = 256;

/// Samples of a pixel, radius along rows, down columns, along rows of the chroma of packed 4:2:2.
type Radii = (u8, usize, usize, usize);

/// What a special kernel is made for: pixels, and the kinds of planes in a launch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Shape {
    family: Family,
    kinds: [Option<Radii>; 2],
    /// One plane, not several.
    alone: bool,
}

impl Shape {
    /// The one for these planes, if a special kernel pays.
    pub fn of(group: &Group) -> Option<Self> {
        let bytes = group.planes()[0].layout.sample_bytes();
        let kind =
            |(channels, taps): &Kind| (*channels, taps.rows.radius(), taps.columns.radius(), taps.chroma_rows.radius());
        let pays = |&(_, rows, columns, _): &Radii| rows <= MOST_ROW_RADIUS && columns <= MOST_RADIUS[bytes - 1];
        let kinds = [0, 1].map(|index| group.kinds().get(index).map(kind));
        kinds.iter().flatten().all(pays).then_some(Self {
            family: group.family(),
            kinds,
            alone: group.planes().len() == 1,
        })
    }

    /// The compiler's options.
    fn options(&self, target: Target) -> Vec<String> {
        let alone = format!("-DBLUR_ALONE={}", self.alone);
        let mut options = vec![format!("--gpu-architecture={target}"), "--std=c++17".to_owned(), alone];
        for (index, kind) in self.kinds.iter().enumerate() {
            let Some((channels, rows, columns, chroma)) = kind else { continue };
            let pixels = match self.family {
                Family::Yuv422 => "Yuv422".to_owned(),
                Family::Ten => "Ten".to_owned(),
                Family::U8C12 | Family::U8C3 | Family::U8C4 => format!("Plain<u8,{channels}>"),
                Family::U16C12 | Family::U16C3 | Family::U16C4 => format!("Plain<u16,{channels}>"),
            };
            options.push(format!("-DBLUR_SPECIAL_{index}={pixels},Fixed<{index},{rows},{columns},{chroma}>"));
        }
        options
    }
}

/// Where a kernel came from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// Compiled in this process.
    Nvrtc,
    /// Compiled before, and found on disk.
    Disk,
}

impl Origin {
    /// In a word.
    pub fn name(self) -> &'static str {
        match self {
            Self::Nvrtc => "nvrtc",
            Self::Disk => "disk",
        }
    }
}

/// What is known of the last kernel that was made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Made {
    /// How long it took, loading included.
    pub took: Duration,
    /// Where it came from.
    pub from: Origin,
}

/// How far making is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Progress {
    /// A kernel is being made.
    pub at_work: bool,
    /// The last one made.
    pub last: Option<Made>,
}

#[derive(Debug, Clone, Copy)]
enum Entry {
    /// Wanted by so many engines, and not begun.
    Wanted(usize),
    AtWork,
    Ready(Function),
    Failed,
}

#[derive(Default)]
struct State {
    entries: HashMap<Shape, Entry>,
    queue: VecDeque<Shape>,
    thread: bool,
    last: Option<Made>,
    /// What the ready ones are in.
    modules: Vec<Module>,
}

/// The special kernels of a device.
#[derive(Default)]
pub struct Specials {
    state: Mutex<State>,
    idle: Condvar,
}

/// Opened when the first kernel is wanted, for all devices; what it says if it cannot be is said once.
static NVRTC: LazyLock<Option<Nvrtc>> = LazyLock::new(|| match Nvrtc::open() {
    Ok(nvrtc) => {
        let (major, minor) = nvrtc.version();
        log(Level::Info, &format!("NVRTC {major}.{minor} compiles kernels for single sizes"));
        Some(nvrtc)
    }
    Err(why) => {
        log(Level::Info, &format!("the general kernels serve all sizes: {why}"));
        None
    }
});

/// Engines of this process.
static ENGINES: AtomicUsize = AtomicUsize::new(0);
/// The last engine to stop waits no longer than this for the compiler.
const LONGEST_STOP: Duration = Duration::from_secs(2);

/// An engine's share in the special kernels of its device.
///
/// NVRTC cannot be interrupted, and crashes if the process ends while it compiles: what it needs is freed before any
/// handler of ours is called. So the last engine of the process, when it stops, waits for a compilation that is going on,
/// which takes up to a second. All others stop at once.
pub struct Share(Arc<Device>);

impl Share {
    /// For an engine on this device.
    pub fn new(device: Arc<Device>) -> Self {
        ENGINES.fetch_add(1, Ordering::AcqRel);
        Self(device)
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        if ENGINES.fetch_sub(1, Ordering::AcqRel) == 1 {
            self.0.specials().finish(LONGEST_STOP);
        }
    }
}

impl Specials {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The kernel, if it is there. Never waits.
    pub fn get(&self, shape: &Shape) -> Option<Function> {
        match self.lock().entries.get(shape) {
            Some(Entry::Ready(function)) => Some(*function),
            _ => None,
        }
    }

    /// How far making is.
    pub fn progress(&self) -> Progress {
        let state = self.lock();
        Progress { at_work: state.thread, last: state.last }
    }

    /// An engine would like to have this kernel. True if it is to be given up again by [`Specials::give_up`].
    pub fn want(&self, device: &Arc<Device>, shape: Shape) -> bool {
        let mut state = self.lock();
        let room = state.entries.len() < MOST_KERNELS;
        match state.entries.get_mut(&shape) {
            Some(Entry::Wanted(engines)) => *engines += 1,
            Some(_) => return false,
            None if !room => return false,
            None => {
                state.entries.insert(shape, Entry::Wanted(1));
                state.queue.push_back(shape);
            }
        }
        if !state.thread {
            let thread = std::thread::Builder::new().name("gaussblur-nvrtc".to_owned());
            let device = Arc::clone(device);
            match thread.spawn(move || device.specials().work(&device)) {
                Ok(_) => state.thread = true,
                Err(error) => {
                    state.entries.remove(&shape);
                    state.queue.retain(|queued| *queued != shape);
                    drop(state);
                    let line = format!("no kernel for {shape:?}: the compiler's thread could not be started ({error})");
                    log(Level::Warning, &line);
                    return false;
                }
            }
        }
        true
    }

    /// An engine no longer wants it. If nobody does and it has not begun, it is not made.
    pub fn give_up(&self, shape: &Shape) {
        let mut state = self.lock();
        match state.entries.get_mut(shape) {
            Some(Entry::Wanted(1)) => {
                state.entries.remove(shape);
                state.queue.retain(|queued| queued != shape);
            }
            Some(Entry::Wanted(engines)) => *engines -= 1,
            _ => (),
        }
    }

    /// The thread: makes what is wanted, one after the other.
    fn work(&self, device: &Device) {
        loop {
            let shape = {
                let mut state = self.lock();
                let Some(shape) = state.queue.pop_front() else {
                    state.thread = false;
                    self.idle.notify_all();
                    return;
                };
                state.entries.insert(shape, Entry::AtWork);
                shape
            };
            let begun = Instant::now();
            // Whatever goes wrong in there, the entry must not stay at work.
            let attempt = std::panic::AssertUnwindSafe(|| make(device, &shape));
            let made = std::panic::catch_unwind(attempt).unwrap_or_else(|_| Err("it panicked".into()));
            let mut state = self.lock();
            match made {
                Ok((function, module, from)) => {
                    let took = begun.elapsed();
                    state.last = Some(Made { took, from });
                    state.modules.push(module);
                    state.entries.insert(shape, Entry::Ready(function));
                    log(Level::Info, &format!("a kernel for {shape:?} is there after {took:.1?}, from {from:?}"));
                }
                Err(why) => {
                    // Without the compiler nothing is said for every size; see NVRTC.
                    if !why.is_empty() {
                        log(Level::Warning, &format!("no kernel for {shape:?}, the general one goes on: {why}"));
                    }
                    state.entries.insert(shape, Entry::Failed);
                }
            }
        }
    }

    /// Waits for what is being compiled; what has not begun is dropped.
    fn finish(&self, longest: Duration) {
        let mut state = self.lock();
        while let Some(shape) = state.queue.pop_front() {
            state.entries.remove(&shape);
        }
        let _ = self.idle.wait_timeout_while(state, longest, |state| state.thread);
    }
}

/// Takes a kernel from the disk or compiles it, and loads it.
fn make(device: &Device, shape: &Shape) -> Result<(Function, Module, Origin), String> {
    let Some(nvrtc) = &*NVRTC else { return Err(String::new()) };
    let target = nvrtc.target(device.capability(), device.driver())?;
    let options = shape.options(target);
    let (major, minor) = nvrtc.version();
    let version = format!("{major}.{minor}");
    let sources = HEADERS.iter().map(|(_, text)| *text).chain([SOURCE, version.as_str()]);
    let key = Key::of(sources.chain(options.iter().map(String::as_str)));
    let folder = disk::folder();

    if let Some(image) = folder.as_ref().and_then(|folder| disk::read(folder, &key)) {
        match load(device, image) {
            Ok((function, module)) => return Ok((function, module, Origin::Disk)),
            Err(why) => log(Level::Info, &format!("a kernel from the disk cannot be loaded ({why}); it is made again")),
        }
    }
    log(Level::Debug, &format!("NVRTC {version}: {}", options.join(" ")));
    let (image, said) = nvrtc.compile(SOURCE, &HEADERS, &options, target)?;
    if !said.is_empty() {
        log(Level::Debug, &format!("NVRTC {version} says: {said}"));
    }
    let (function, module) = load(device, image.clone())?;
    if let Some(folder) = folder {
        disk::write(&folder, &key, &image);
    }
    Ok((function, module, Origin::Nvrtc))
}

fn load(device: &Device, mut image: Vec<u8>) -> Result<(Function, Module), String> {
    // PTX is text, of which the driver finds the end by its NUL. A CUBIN does not mind.
    image.push(0);
    let load = || {
        let _current = device.enter()?;
        // SAFETY: the compiler's own output, or checked by its digest.
        let module = unsafe { Module::load(&image, device.id()) }?;
        Ok((module.function(ENTRY_POINT, device.limits().shared_bytes)?, module))
    };
    load().map_err(|error: CudaError| error.to_string())
}
