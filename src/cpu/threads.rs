// SPDX-License-Identifier: MPL-2.0
//! The worker threads: one set for all elements of the process, joined when the last of them stops.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};

use super::alpha::Weighing;

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

    /// Calls `work` once for every row of every item, many at a time on as many threads as there are `states`.
    pub fn run_rows<'a, State: Send>(
        &self,
        states: &mut [State],
        items: impl Iterator<Item = &'a Weighing<'a>>,
        work: impl Fn(&Weighing, usize) + Sync,
    ) {
        const ROWS: usize = 16;
        let parts: Vec<(&Weighing, usize)> = items
            .flat_map(|item| (0..item.job.field.layout.height as usize).step_by(ROWS).map(move |y| (item, y)))
            .collect();
        if parts.is_empty() {
            return;
        }
        let next = AtomicUsize::new(0);
        self.run(states, |_| {
            while let Some((item, first)) = parts.get(next.fetch_add(1, Ordering::Relaxed)) {
                let end = (first + ROWS).min(item.job.field.layout.height as usize);
                (*first..end).for_each(|y| work(item, y));
            }
        });
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
