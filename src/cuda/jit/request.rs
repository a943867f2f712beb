// SPDX-License-Identifier: MPL-2.0
//! The kernels that one engine wants compiled in the background.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cache::{Compilation, JitCache};
use crate::cuda::kernels::prebuilt::PrebuiltKernels;

/// Keys that stay the same for this long are requested. A sigma in motion passes through many radii, each for a few frames.
const STEADY: Duration = Duration::from_millis(250);

/// The kernels that would serve the frames at hand, requested once they have been the same for a while. Dropping it cancels
/// the request.
pub struct JitRequest {
    cache: Arc<JitCache>,
    prebuilt: Arc<PrebuiltKernels>,
    keys: Vec<Compilation>,
    /// When the keys changed or were requested last.
    since: Instant,
    /// The keys that were requested and have to be cancelled. `None` before the request.
    requested: Option<Vec<Compilation>>,
    /// Those that were requested before frames needed them and have to be cancelled.
    prepared: Vec<Compilation>,
}

impl JitRequest {
    /// For no kernels.
    pub fn new(cache: Arc<JitCache>, prebuilt: Arc<PrebuiltKernels>) -> Self {
        Self { cache, prebuilt, keys: Vec::new(), since: Instant::now(), requested: None, prepared: Vec::new() }
    }

    /// Requests kernels at once.
    pub fn prepare(&mut self, keys: impl Iterator<Item = Compilation>) {
        self.prepared.extend(keys.filter(|key| self.cache.request(*key, &self.prebuilt)));
    }

    /// Called with the keys of every frame.
    pub fn update(&mut self, keys: impl Iterator<Item = Compilation> + Clone) {
        if !keys.clone().eq(self.keys.iter().copied()) {
            self.cancel();
            (self.keys, self.since) = (keys.collect(), Instant::now());
        } else if self.since.elapsed() >= STEADY && (self.requested.is_none() || !self.cache.status().compiling) {
            // Requested again while nothing is queued, because a kernel for which memory was short can be made later.
            let requested = |key: &Compilation| self.cache.request(*key, &self.prebuilt);
            self.requested = Some(self.keys.iter().copied().filter(requested).collect());
            self.since = Instant::now();
        }
    }

    fn cancel(&mut self) {
        for key in self.requested.take().into_iter().flatten() {
            self.cache.cancel(&key);
        }
    }
}

impl Drop for JitRequest {
    fn drop(&mut self) {
        self.cancel();
        self.prepared.iter().for_each(|key| self.cache.cancel(key));
    }
}
