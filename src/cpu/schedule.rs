// SPDX-License-Identifier: MPL-2.0
//! Executes groups of tasks, one group after the other, on the worker threads. The threads are woken once for all groups: in a
//! virtual machine, waking takes up to half a millisecond, which is longer than most groups of a wide blur.

use std::sync::atomic::{AtomicUsize, Ordering};

use crate::threads::Threads;

/// The numbers of tasks of a group that have been taken and finished.
#[derive(Default)]
struct Progress {
    taken: AtomicUsize,
    finished: AtomicUsize,
}

/// Counts a task as finished when this guard is dropped, so that no thread waits forever after a panic.
struct FinishGuard<'a>(&'a Progress);

impl Drop for FinishGuard<'_> {
    fn drop(&mut self) {
        self.0.finished.fetch_add(1, Ordering::Release);
    }
}

/// Calls `work` once for each task, on as many threads as there are `states`. No task begins before all tasks of the previous
/// groups have returned.
pub fn run<Task: Sync, State: Send>(
    threads: &Threads,
    states: &mut [State],
    groups: &[Vec<Task>],
    work: impl Fn(&mut State, &Task) + Sync,
) {
    let progress: Vec<Progress> = groups.iter().map(|_| Progress::default()).collect();
    threads.run(states, |state| {
        for (group, progress) in groups.iter().zip(&progress) {
            while let Some(task) = group.get(progress.taken.fetch_add(1, Ordering::Relaxed)) {
                let _guard = FinishGuard(progress);
                work(state, task);
            }
            // The threads with the last tasks need only microseconds, unless the system runs another program instead.
            let mut polls = 0_u32;
            while progress.finished.load(Ordering::Acquire) < group.len() {
                polls += 1;
                if polls.is_multiple_of(128) {
                    std::thread::yield_now();
                } else {
                    std::hint::spin_loop();
                }
            }
        }
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    #[test]
    fn a_group_begins_when_the_one_before_has_finished() {
        let (threads, _) = Threads::start();
        for turn in 0..300 {
            let sizes = [3, 0, 1, 7, 2];
            let groups: Vec<Vec<usize>> = sizes.iter().enumerate().map(|(i, size)| vec![i; *size]).collect();
            let finished: Vec<AtomicUsize> = sizes.iter().map(|_| AtomicUsize::new(0)).collect();
            let mut states = vec![0; 1 + turn % 4];
            run(&threads, &mut states, &groups, |state, group| {
                for (before, size) in finished.iter().zip(&sizes).take(*group) {
                    assert_eq!(before.load(Ordering::SeqCst), *size);
                }
                *state += 1;
                finished[*group].fetch_add(1, Ordering::SeqCst);
            });
            assert_eq!(states.iter().sum::<usize>(), sizes.iter().sum::<usize>());
        }
    }

    #[test]
    fn a_panic_is_passed_on_and_blocks_nobody() {
        let (threads, _) = Threads::start();
        for states in 1..4 {
            let groups = vec![vec![false, true, false], vec![false; 4]];
            let blur = || run(&threads, &mut vec![(); states], &groups, |(), panics| assert!(!panics, "as told"));
            assert!(catch_unwind(AssertUnwindSafe(blur)).is_err());
        }
    }
}
