// SPDX-License-Identifier: MPL-2.0
//! Loads the prebuilt kernels that an engine may need later, in the background, after its first frame. So a
//! change of settings in mid-stream waits for no load.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use super::kernels::images::Image;
use super::kernels::possible;
use super::kernels::strategy::PassStrategy;
use super::select::KernelSelector;
use super::shared_device::SharedDevice;
use crate::filter::frame::PlaneLayout;
use crate::log::Level;
use crate::process::log;

/// The background thread of an engine. It ends with what it has to load. Dropping this stops the thread after the part that it
/// is loading: the process must not end while a thread is in the driver.
#[derive(Default)]
pub struct Preload {
    /// The planes of the frames that it has loaded for.
    layouts: Vec<PlaneLayout>,
    thread: Option<(JoinHandle<()>, Arc<AtomicBool>)>,
}

impl Preload {
    /// Starts to load all kernels for frames of these planes, unless it has been called for the same planes.
    pub fn start(&mut self, selector: &KernelSelector, layouts: &[PlaneLayout]) {
        if self.layouts == layouts {
            return;
        }
        self.stop();
        self.layouts = layouts.to_vec();
        let (shared, layouts) = (Arc::clone(selector.shared()), layouts.to_vec());
        let (image, passes) = selector.prebuilt_choice();
        let stopped = Arc::new(AtomicBool::new(false));
        let is_stopped = Arc::clone(&stopped);
        let thread = Builder::new().name("gaussblur-load".to_owned());
        match thread.spawn(move || load(&shared, image, passes, &layouts, &is_stopped)) {
            Ok(thread) => self.thread = Some((thread, stopped)),
            Err(error) => {
                let line = format!("kernels are loaded when they are needed: no thread could be started ({error})");
                log(Level::Warning, &line);
            }
        }
    }

    /// Stops the thread and waits for it.
    fn stop(&mut self) {
        if let Some((thread, stopped)) = self.thread.take() {
            stopped.store(true, Ordering::Relaxed);
            // A panic was reported by the thread, and what it did not load is loaded when it is needed.
            let _ = thread.join();
        }
    }
}

impl Drop for Preload {
    fn drop(&mut self) {
        self.stop();
    }
}

/// The background thread. A part that cannot be loaded is tried again when a frame needs it.
fn load(shared: &SharedDevice, image: Image, passes: PassStrategy, layouts: &[PlaneLayout], stopped: &AtomicBool) {
    let Ok(prebuilt) = shared.prebuilt(image) else { return };
    let mut tried = Vec::new();
    for kernel in possible::kernels(layouts, prebuilt.kernel_set(), passes, shared.device().limits()) {
        if stopped.load(Ordering::Relaxed) {
            return;
        }
        let Some(part) = kernel.part().filter(|part| !tried.contains(part)) else { continue };
        tried.push(part);
        if let Err(error) = prebuilt.load(kernel) {
            log(Level::Warning, &format!("kernels {} are not loaded before they are needed: {error}", part.name()));
        }
    }
}
