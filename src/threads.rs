// SPDX-License-Identifier: MPL-2.0
//! The worker threads: one set for all elements of the process, joined when the last of them stops.

use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};

/// More threads than this only wait for memory.
const MAX_THREADS: usize = 32;

static SHARED: Mutex<Weak<Threads>> = Mutex::new(Weak::new());

/// Worker threads. Dropping the last handle ends and joins them. By default there are none, and whoever calls does all.
#[derive(Default)]
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
        let processors = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        let threads = Arc::new(Self::start(processors - 1)?);
        *shared = Arc::downgrade(&threads);
        Ok(threads)
    }

    /// `count` threads that help the one that calls [`Threads::run`].
    fn start(count: usize) -> Result<Self, std::io::Error> {
        let mut handles = Vec::new();
        if count == 0 {
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

    /// How many calls of [`Threads::run`]'s closure can go on at once, the caller's among them.
    pub fn count(&self) -> usize {
        self.handles.len() + 1
    }

    /// Calls `work` once for each of `states`, at the same time where there are threads, and returns when all are done.
    /// The first is the caller's own: it starts at once, while the threads wake up.
    pub fn run<State: Send>(&self, states: &mut [State], work: impl Fn(&mut State) + Sync) {
        match (&self.pool, states) {
            (Some(pool), [own, others @ ..]) if !others.is_empty() => pool.in_place_scope(|scope| {
                for state in others {
                    scope.spawn(|_| work(state));
                }
                work(own);
            }),
            (_, states) => states.iter_mut().for_each(work),
        }
    }

    /// Calls `help` on up to `helpers` threads while `own` runs here; returns when all are done.
    pub fn alongside<R>(&self, helpers: usize, help: impl Fn() + Sync, own: impl FnOnce() -> R) -> R {
        match &self.pool {
            Some(pool) if helpers > 0 => pool.in_place_scope(|scope| {
                for _ in 0..helpers.min(self.handles.len()) {
                    scope.spawn(|_| help());
                }
                own()
            }),
            _ => own(),
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
