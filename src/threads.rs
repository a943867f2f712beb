// SPDX-License-Identifier: MPL-2.0
//! The worker threads: one set for all elements of the process, joined when the last of them stops.

use std::io;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::{self, JoinHandle};

use crate::log::{Level, log};

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
    pub fn shared() -> Arc<Self> {
        let mut shared = SHARED.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(threads) = shared.upgrade() {
            return threads;
        }
        let wanted = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS) - 1;
        let (threads, refused) = Self::start(wanted, spawn);
        let threads = Arc::new(threads);
        *shared = Arc::downgrade(&threads);
        // Whoever hears of it may start an element.
        drop(shared);
        if let Some(error) = refused {
            let line = format!(
                "only {} of {wanted} worker threads could be started ({error}): frames take longer; allow more processes \
                 (ulimit -u, or the pids limit of a container)",
                threads.count() - 1
            );
            log(Level::Warning, &line);
        }
        threads
    }

    /// `count` threads that help the one that calls [`Threads::run`]; fewer, or none, and the reason, where the system refuses
    /// that many.
    fn start(
        mut count: usize,
        spawn: impl Fn(rayon::ThreadBuilder) -> io::Result<JoinHandle<()>>,
    ) -> (Self, Option<io::Error>) {
        let mut refused = None;
        while count > 0 {
            match Self::try_start(count, &spawn) {
                Ok(threads) => return (threads, refused),
                Err(error) => refused = Some(error),
            }
            count /= 2;
        }
        (Self::default(), refused)
    }

    fn try_start(count: usize, spawn: impl Fn(rayon::ThreadBuilder) -> io::Result<JoinHandle<()>>) -> io::Result<Self> {
        let mut handles = Vec::new();
        let pool = rayon::ThreadPoolBuilder::new().num_threads(count).spawn_handler(|worker| {
            handles.push(spawn(worker)?);
            Ok(())
        });
        match pool.build() {
            Ok(pool) => Ok(Self { pool: Some(pool), handles }),
            Err(error) => {
                // Those that were started end now.
                handles.into_iter().for_each(|handle| drop(handle.join()));
                Err(io::Error::other(error))
            }
        }
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

    /// Calls `help` on up to `helpers` threads while `own` runs here; returns when `own` is done and nobody is in `help` any
    /// more. Threads that wake up too late for that do not come in: in a virtual machine that can be half a millisecond.
    pub fn alongside<R>(&self, helpers: usize, help: impl Fn() + Sync, own: impl FnOnce() -> R) -> R {
        let Some(pool) = &self.pool else { return own() };
        let gate = Arc::new(Gate::default());
        let help: *const (dyn Fn() + Sync) = &help;
        // SAFETY: only the lifetime changes; whoever calls it is inside the gate, which is closed and empty before `help`
        // goes.
        let help = Help(unsafe { std::mem::transmute::<*const (dyn Fn() + Sync), *const (dyn Fn() + Sync)>(help) });
        for _ in 0..helpers.min(self.handles.len()) {
            let gate = Arc::clone(&gate);
            pool.spawn(move || {
                if gate.enter() {
                    let _inside = Inside(&gate);
                    // SAFETY: as above.
                    unsafe { help.call() };
                }
            });
        }
        // Also if `own` panics.
        let _closing = Closing(&gate);
        own()
    }
}

fn spawn(worker: rayon::ThreadBuilder) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(format!("gaussblur-{}", worker.index())).spawn(|| worker.run())
}

/// What helpers call.
#[derive(Clone, Copy)]
struct Help(*const (dyn Fn() + Sync));

// SAFETY: what it points to may be called from any thread.
unsafe impl Send for Help {}

impl Help {
    /// # Safety
    /// What it points to is there.
    unsafe fn call(self) {
        // SAFETY: as above.
        unsafe { (*self.0)() }
    }
}

/// Counts who is inside, and lets nobody in once it is closed.
#[derive(Default)]
struct Gate(AtomicUsize);

const CLOSED: usize = 1 << (usize::BITS - 1);

impl Gate {
    fn enter(&self) -> bool {
        let open = self.0.fetch_add(1, Ordering::Acquire) & CLOSED == 0;
        if !open {
            self.0.fetch_sub(1, Ordering::Release);
        }
        open
    }
}

struct Inside<'a>(&'a Gate);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

/// Closes the gate and waits until nobody is inside.
struct Closing<'a>(&'a Gate);

impl Drop for Closing<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_or(CLOSED, Ordering::AcqRel);
        while self.0.0.load(Ordering::Acquire) != CLOSED {
            std::hint::spin_loop();
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The caller does what refused threads do not.
    #[test]
    fn as_many_threads_start_as_the_system_allows() {
        for (allowed, started) in [(0, 0), (1, 1), (2, 1), (3, 3), (6, 3), (7, 7)] {
            let (threads, refused) = Threads::start(7, |worker| match worker.index() {
                index if index < allowed => spawn(worker),
                _ => Err(io::ErrorKind::WouldBlock.into()),
            });
            assert_eq!((threads.count(), refused.is_some()), (started + 1, allowed < 7), "{allowed} allowed");
            let mut states = vec![0; 9];
            threads.run(&mut states, |state| *state += 1);
            assert_eq!(states, [1; 9], "{allowed} allowed");
        }
    }

    /// However late a helper is, it is in there only while there is something to be in.
    #[test]
    fn nobody_helps_after_the_end() {
        let threads = Threads::shared();
        for turn in 0..2000 {
            let (inside, alive) = (AtomicUsize::new(0), AtomicUsize::new(1));
            let help = || {
                inside.fetch_add(1, Ordering::SeqCst);
                assert_eq!(alive.load(Ordering::SeqCst), 1);
                inside.fetch_sub(1, Ordering::SeqCst);
            };
            threads.alongside(3, help, || {
                if turn % 10 == 0 {
                    thread::sleep(std::time::Duration::from_micros(200));
                }
            });
            alive.store(0, Ordering::SeqCst);
            assert_eq!(inside.load(Ordering::SeqCst), 0);
        }
    }
}
