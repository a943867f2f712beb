// SPDX-License-Identifier: MPL-2.0
//! The worker threads: one set for all elements of the process, joined when the last of them stops.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};

/// More threads than this only wait for memory.
const MAX_THREADS: usize = 32;

static SHARED: Mutex<Weak<Threads>> = Mutex::new(Weak::new());

/// Worker threads. Dropping the last handle ends and joins them.
pub struct Threads {
    /// `None` on a single processor, and while dropping.
    pool: Option<rayon::ThreadPool>,
    handles: Vec<JoinHandle<()>>,
}

impl Threads {
    /// The process's set, started if nobody holds it.
    pub fn shared() -> Result<Arc<Self>, std::io::Error> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(threads) = shared.upgrade() {
            return Ok(threads);
        }
        let threads = Arc::new(Self::start(thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS))?);
        *shared = Arc::downgrade(&threads);
        Ok(threads)
    }

    fn start(count: usize) -> Result<Self, std::io::Error> {
        let mut handles = Vec::new();
        if count == 1 {
            return Ok(Self { pool: None, handles });
        }
        let pool = rayon::ThreadPoolBuilder::new().num_threads(count).spawn_handler(|worker| {
            let name = format!("gaussblur-{}", worker.index());
            handles.push(thread::Builder::new().name(name).spawn(|| worker.run())?);
            Ok(())
        });
        let pool = Some(pool.build().map_err(std::io::Error::other)?);
        Ok(Self { pool, handles })
    }

    /// How many calls of [`Threads::run`]'s closure can go on at once.
    pub fn count(&self) -> usize {
        self.handles.len().max(1)
    }

    /// Calls `work` once for each of `states`, at the same time where there are threads, and returns when all are done.
    pub fn run<State: Send>(&self, states: &mut [State], work: impl Fn(&mut State) + Sync) {
        match &self.pool {
            Some(pool) if states.len() > 1 => pool.scope(|scope| {
                for state in states {
                    scope.spawn(|_| work(state));
                }
            }),
            _ => states.iter_mut().for_each(work),
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        drop(self.pool.take());
        for handle in self.handles.drain(..) {
            // A worker that panicked has told its frame already.
            let _ = handle.join();
        }
    }
}
