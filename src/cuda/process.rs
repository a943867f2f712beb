// SPDX-License-Identifier: MPL-2.0
//! The CUDA state that all elements of a process share: devices, external contexts, NVRTC, and the number of engines.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use once_cell::sync::OnceCell;

use super::driver::device::{self, Device, ExternalContext};
use super::error::CudaError;
use super::jit::nvrtc::LazyNvrtc;
use super::shared_device::SharedDevice;
use crate::process::{Level, lock, log};

/// A device with its primary context.
type Primary = OnceCell<Arc<SharedDevice>>;

struct Process {
    /// The devices by number. They are created on first use and live until the process ends, because making a context takes 300
    /// ms.
    primaries: Mutex<Vec<&'static Primary>>,
    /// The devices of external contexts, which live as long as an engine uses them.
    adopted: Mutex<Vec<Weak<SharedDevice>>>,
    nvrtc: LazyNvrtc,
    engines: AtomicUsize,
    /// The names of specialised kernels by compute capability. They are never freed, because stats may outlive their engine.
    specialised_names: Mutex<Vec<((i32, i32), &'static str)>>,
}

static PROCESS: Process = Process {
    primaries: Mutex::new(Vec::new()),
    adopted: Mutex::new(Vec::new()),
    nvrtc: LazyNvrtc::new(),
    engines: AtomicUsize::new(0),
    specialised_names: Mutex::new(Vec::new()),
};

/// Returns the device with this number, with its primary context. The first call creates the context.
pub fn open(id: u32) -> Result<Arc<SharedDevice>, CudaError> {
    let count = device::count()?;
    if id >= count {
        return Err(CudaError::NoSuchDevice { id, count });
    }
    let cell = {
        let mut primaries = lock(&PROCESS.primaries);
        while primaries.len() <= id as usize {
            primaries.push(Box::leak(Box::default()));
        }
        primaries[id as usize]
    };
    // The list is not locked during this call, so that other devices do not wait for this one.
    cell.get_or_try_init(|| Device::primary(id).map(share)).cloned()
}

/// Returns the device of an external context. If that is a primary context that `open` has returned, it is the same device.
pub fn adopt(external: ExternalContext) -> Result<Arc<SharedDevice>, CudaError> {
    let same = |shared: &Arc<SharedDevice>| shared.device().context() == external.handle();
    let primary = lock(&PROCESS.primaries).get(external.device() as usize).and_then(|cell| cell.get()).cloned();
    if let Some(primary) = primary.filter(same) {
        return Ok(primary);
    }
    let mut adopted = lock(&PROCESS.adopted);
    adopted.retain(|shared| shared.strong_count() > 0);
    let known = adopted.iter().filter_map(Weak::upgrade).find(same);
    if let Some(known) = known {
        return Ok(known);
    }
    let shared = Device::adopt(external).map(share)?;
    adopted.push(Arc::downgrade(&shared));
    Ok(shared)
}

fn share(device: Arc<Device>) -> Arc<SharedDevice> {
    let name = specialised_name(device.capability());
    Arc::new(SharedDevice::new(device, &PROCESS.nvrtc, name))
}

fn specialised_name(capability: (i32, i32)) -> &'static str {
    let mut names = lock(&PROCESS.specialised_names);
    if let Some((_, name)) = names.iter().find(|(known, _)| *known == capability) {
        return name;
    }
    let name = format!("special-sm_{}{}", capability.0, capability.1).leak();
    names.push((capability, name));
    name
}

/// The longest time that the last engine waits for compilations when it stops. It is several times as long as the longest
/// compilation on two cores.
const MAX_STOP: Duration = Duration::from_secs(5);

/// Counts an engine of the process.
///
/// Neither NVRTC nor the driver's compiler can be interrupted. NVRTC crashes if the process exits while it compiles, because its
/// memory is freed before any of our exit handlers runs. Therefore the last engine of the process waits when it stops, until the
/// compilations for all devices are complete. This takes up to two seconds, and at most [`MAX_STOP`]. All other engines stop at
/// once.
pub struct EngineGuard(());

impl EngineGuard {
    /// Counts a new engine, until the result is dropped.
    pub fn enter() -> Self {
        PROCESS.engines.fetch_add(1, Ordering::AcqRel);
        Self(())
    }
}

impl Drop for EngineGuard {
    fn drop(&mut self) {
        let is_last = PROCESS.engines.fetch_sub(1, Ordering::AcqRel) == 1;
        if is_last && !PROCESS.nvrtc.wait_until_idle(MAX_STOP) {
            log(Level::Warning, || {
                "a kernel is still being compiled; the process crashes if it ends before that".to_owned()
            });
        }
    }
}
