// SPDX-License-Identifier: MPL-2.0
//! The kernels that an engine requests from the background compilation.

use std::sync::Arc;
use std::time::{Duration, Instant};

use super::cache::{Compilation, JitCache};
use crate::cuda::kernels::prebuilt::PrebuiltKernels;

/// Keys are requested when they have stayed the same for this long. A changing sigma passes through many radii, each for a few
/// frames.
const STEADY: Duration = Duration::from_millis(250);

/// The kernels that would be the fastest for the current frames. They are requested when they have stayed the same for a while.
/// Dropping the value cancels the requests.
pub struct JitRequest {
    cache: Arc<JitCache>,
    prebuilt: Arc<PrebuiltKernels>,
    keys: Vec<Compilation>,
    /// The time when the keys last changed or were last requested.
    since: Instant,
    /// The keys that were requested and have to be cancelled. `None` before they are requested.
    requested: Option<Vec<Compilation>>,
    /// The keys that [`JitRequest::prepare`] requested and that have to be cancelled.
    prepared: Vec<Compilation>,
}

impl JitRequest {
    /// A request without kernels.
    pub fn new(cache: Arc<JitCache>, prebuilt: Arc<PrebuiltKernels>) -> Self {
        Self { cache, prebuilt, keys: Vec::new(), since: Instant::now(), requested: None, prepared: Vec::new() }
    }

    /// Requests kernels at once, before frames need them.
    pub fn prepare(&mut self, keys: impl Iterator<Item = Compilation>) {
        self.prepared.extend(keys.filter(|key| self.cache.request(*key, &self.prebuilt)));
    }

    /// Updates the keys. Called for each frame.
    pub fn update(&mut self, keys: impl Iterator<Item = Compilation> + Clone) {
        if !keys.clone().eq(self.keys.iter().copied()) {
            self.cancel();
            (self.keys, self.since) = (keys.collect(), Instant::now());
        } else if self.since.elapsed() >= STEADY && (self.requested.is_none() || !self.cache.status().compiling) {
            // The keys are requested again while nothing is queued, because a kernel for which memory was short may be possible
            // later.
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
