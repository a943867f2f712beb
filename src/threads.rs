// SPDX-License-Identifier: MPL-2.0
//! Worker threads for the CPU backend and for staging copies. `process` owns one set for all elements.

use std::io;
use std::process;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread::{self, JoinHandle};

use crate::floats::DefaultFloats;

/// The largest number of threads, including the calling one. With more threads, memory bandwidth is the limit.
const MAX_THREADS: usize = 32;

/// Worker threads. Dropping this value ends and joins them. The default value has no workers, so the calling thread does all
/// work.
#[derive(Default)]
pub struct Threads {
    /// `None` if there are no workers: on a single processor, for the default value, and while this value is dropped.
    pool: Option<rayon::ThreadPool>,
    handles: Vec<JoinHandle<()>>,
    /// The id of the process that started the threads. A fork of this process has none of them.
    process: u32,
}

impl Threads {
    /// Starts one worker for each processor but one, because the calling thread works, too; `MAX_THREADS` limits both. If the
    /// system refuses that many workers, starts fewer and returns a warning.
    pub fn start() -> (Self, Option<String>) {
        let wanted = thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS) - 1;
        let (threads, refused) = Self::start_up_to(wanted, spawn);
        let warning = refused.map(|error| {
            format!(
                "only {} of {wanted} worker threads could be started ({error}): frames take longer; allow more processes \
                 (ulimit -u, or the pids limit of a container)",
                threads.count() - 1
            )
        });
        (threads, warning)
    }

    /// Starts `count` workers. Each time the system refuses, tries half as many. The error is the last refusal.
    fn start_up_to(
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
            Ok(pool) => Ok(Self { pool: Some(pool), handles, process: process::id() }),
            Err(error) => {
                // The threads that have started are ending, because `build` has dropped the pool.
                handles.into_iter().for_each(|handle| drop(handle.join()));
                Err(io::Error::other(error))
            }
        }
    }

    /// Whether this process has started the workers, or there are none. A fork has none of its parent's threads.
    pub fn are_of_this_process(&self) -> bool {
        self.pool.is_none() || self.process == process::id()
    }

    fn pool(&self) -> Option<&rayon::ThreadPool> {
        self.pool.as_ref().filter(|_| self.are_of_this_process())
    }

    /// The number of threads that [`Threads::run`] uses, the calling one included.
    pub fn count(&self) -> usize {
        self.handles.len() + 1
    }

    /// Calls `work` once for each of `states`, in parallel, and returns when all calls have returned. The calling thread
    /// processes the first state and starts at once, while the workers wake up.
    pub fn run<State: Send>(&self, states: &mut [State], work: impl Fn(&mut State) + Sync) {
        match (self.pool(), states) {
            (Some(pool), [own, others @ ..]) if !others.is_empty() => pool.in_place_scope(|scope| {
                for state in others {
                    scope.spawn(|_| work(state));
                }
                work(own);
            }),
            (_, states) => states.iter_mut().for_each(work),
        }
    }

    /// Calls both functions and returns both results. `other` runs on a worker, if there is one.
    pub fn join<A, B: Send>(&self, own: impl FnOnce() -> A, other: impl FnOnce() -> B + Send) -> (A, B) {
        let Some(pool) = self.pool() else { return (own(), other()) };
        let mut of_other = None;
        let of_own = pool.in_place_scope(|scope| {
            scope.spawn(|_| of_other = Some(other()));
            own()
        });
        (of_own, of_other.expect("a scope ends when all that it spawned has returned"))
    }

    /// Calls `work` once for each number below `count`, on the calling thread and on workers that wake up in time.
    pub fn share(&self, count: usize, work: impl Fn(usize) + Sync) {
        /// The largest number of workers that help. With more threads, memory bandwidth is the limit.
        const MAX_HELPERS: usize = 7;
        let next = AtomicUsize::new(0);
        let take = || {
            while let Some(number) = Some(next.fetch_add(1, Ordering::Relaxed)).filter(|number| *number < count) {
                work(number);
            }
        };
        self.run_with_helpers(count.saturating_sub(1).min(MAX_HELPERS), take, take);
    }

    /// Calls `help` on up to `helpers` workers while `own` runs on the calling thread. Returns when `own` has returned and no
    /// worker is inside `help`. A worker that wakes up later does not call `help`: in a virtual machine, waking up takes up to
    /// half a millisecond.
    pub fn run_with_helpers<R>(&self, helpers: usize, help: impl Fn() + Sync, own: impl FnOnce() -> R) -> R {
        let Some(pool) = self.pool() else { return own() };
        let gate = Arc::new(ScopeGate::default());
        let help: *const (dyn Fn() + Sync) = &help;
        // SAFETY: only the lifetime of the trait object changes. `Help::call` is called only between `ScopeGate::enter` and the
        // drop of its guard. `CloseOnDrop` closes the gate and waits for all guards before `help` is dropped.
        let help = Help(unsafe { std::mem::transmute::<*const (dyn Fn() + Sync), *const (dyn Fn() + Sync)>(help) });
        for _ in 0..helpers.min(self.handles.len()) {
            let gate = Arc::clone(&gate);
            pool.spawn(move || {
                if let Some(_inside) = gate.enter() {
                    // SAFETY: `run_with_helpers` does not return while this worker is inside the gate, so the closure is alive.
                    unsafe { help.call() };
                }
            });
        }
        // The guard closes the gate also if `own` panics.
        let _closing = CloseOnDrop(&gate);
        own()
    }
}

fn spawn(worker: rayon::ThreadBuilder) -> io::Result<JoinHandle<()>> {
    thread::Builder::new().name(format!("gaussblur-{}", worker.index())).spawn(|| {
        let _floats = DefaultFloats::set();
        worker.run();
    })
}

/// The closure that helpers call.
#[derive(Clone, Copy)]
struct Help(*const (dyn Fn() + Sync));

// SAFETY: the closure is `Sync`, so any thread may call it.
unsafe impl Send for Help {}

impl Help {
    /// # Safety
    /// The closure is alive.
    unsafe fn call(self) {
        // SAFETY: the caller promises that the closure is alive, so the pointer is valid.
        unsafe { (*self.0)() }
    }
}

/// Counts the threads inside a scope. A closed gate admits no further thread.
#[derive(Default)]
struct ScopeGate(AtomicUsize);

const CLOSED: usize = 1 << (usize::BITS - 1);

impl ScopeGate {
    /// Enters the scope until the guard is dropped. Returns `None` if the gate is closed.
    fn enter(&self) -> Option<Inside<'_>> {
        let is_open = self.0.fetch_add(1, Ordering::Acquire) & CLOSED == 0;
        let inside = Inside(self);
        is_open.then_some(inside)
    }
}

struct Inside<'a>(&'a ScopeGate);

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Release);
    }
}

/// Closes the gate when it is dropped, and waits until no thread is inside.
struct CloseOnDrop<'a>(&'a ScopeGate);

impl Drop for CloseOnDrop<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_or(CLOSED, Ordering::AcqRel);
        while self.0.0.load(Ordering::Acquire) != CLOSED {
            std::hint::spin_loop();
        }
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        if !self.are_of_this_process() {
            // Joining a thread of another process would never end.
            std::mem::forget((self.pool.take(), std::mem::take(&mut self.handles)));
        }
        drop(self.pool.take());
        for handle in self.handles.drain(..) {
            // The panic of a worker has already been passed on to the caller of `run` or `join`.
            let _ = handle.join();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If the system refuses threads, the calling thread does their work.
    #[test]
    fn as_many_threads_start_as_the_system_allows() {
        for (allowed, started) in [(0, 0), (1, 1), (2, 1), (3, 3), (6, 3), (7, 7)] {
            let (threads, refused) = Threads::start_up_to(7, |worker| match worker.index() {
                index if index < allowed => spawn(worker),
                _ => Err(io::ErrorKind::WouldBlock.into()),
            });
            assert_eq!((threads.count(), refused.is_some()), (started + 1, allowed < 7), "{allowed} allowed");
            let mut states = vec![0; 9];
            threads.run(&mut states, |state| *state += 1);
            assert_eq!(states, [1; 9], "{allowed} allowed");
        }
    }

    #[test]
    fn shared_work_is_done_once() {
        let (threads, _) = Threads::start();
        for count in [0, 1, 2, 1000] {
            let done: Vec<AtomicUsize> = (0..count).map(|_| AtomicUsize::new(0)).collect();
            threads.share(count, |number| _ = done[number].fetch_add(1, Ordering::Relaxed));
            assert!(done.into_iter().all(|done| done.into_inner() == 1), "{count}");
        }
    }

    /// A helper that wakes up late does not call a closure that has been dropped.
    #[test]
    fn helpers_run_only_while_the_scope_is_open() {
        let (threads, _) = Threads::start();
        for turn in 0..2000 {
            let (inside, alive) = (AtomicUsize::new(0), AtomicUsize::new(1));
            let help = || {
                inside.fetch_add(1, Ordering::SeqCst);
                assert_eq!(alive.load(Ordering::SeqCst), 1);
                inside.fetch_sub(1, Ordering::SeqCst);
            };
            threads.run_with_helpers(3, help, || {
                if turn % 10 == 0 {
                    thread::sleep(std::time::Duration::from_micros(200));
                }
            });
            alive.store(0, Ordering::SeqCst);
            assert_eq!(inside.load(Ordering::SeqCst), 0);
        }
    }
}
