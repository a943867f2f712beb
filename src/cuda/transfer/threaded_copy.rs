// SPDX-License-Identifier: MPL-2.0
//! Copies between pageable and pinned memory on several threads, in the order of the bands. A band is a piece of a schedule here.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Condvar, Mutex};
use std::time::{Duration, Instant};

use crate::filter::byte_rect::ByteRect;
use crate::process::lock;
use crate::threads::Threads;

/// The number of bytes that a thread copies at a time. With 128 KB, a 1080p RGBA frame in ordinary memory takes 1.3 times as long
/// (H200 host): when a band is complete, the calling thread, which has to enqueue it, is too often still copying a chunk.
const CHUNK_BYTES: usize = 32 << 10;
/// Frames with fewer bytes are copied by the calling thread alone, because waking threads takes longer than the copy.
const SINGLE_THREAD_BYTES: usize = 128 << 10;
/// The largest number of helpers. More threads are limited by memory bandwidth.
const MAX_HELPERS: usize = 7;
/// A helper polls for a band for this long, which is about the time that waking up takes. Then it sleeps.
const MAX_POLL: Duration = Duration::from_micros(50);
/// The value of [`ReadyBands::count`] after a failure.
const FAILED: usize = usize::MAX;

/// Some rows of a rectangle, and the band that the rectangle belongs to.
struct Chunk {
    band: usize,
    rect: ByteRect,
}

/// The copies of a frame, divided into chunks and ordered by band.
pub struct ThreadedCopy {
    chunks: Vec<Chunk>,
    /// The number of chunks in each band.
    counts: Vec<usize>,
    helpers: usize,
}

impl ThreadedCopy {
    /// The copies of the rectangles of all bands.
    pub fn new<'a>(bands: impl Iterator<Item = &'a [ByteRect]>) -> Self {
        let (mut chunks, mut counts, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (band, rects) in bands.enumerate() {
            let before = chunks.len();
            for rect in rects {
                let step = (CHUNK_BYTES / rect.bytes).max(1);
                bytes += rect.size();
                let starts = (0..rect.rows).step_by(step);
                chunks.extend(starts.map(|row| Chunk { band, rect: rect.part(row..rect.rows.min(row + step)) }));
            }
            counts.push(chunks.len() - before);
        }
        Self { chunks, counts, helpers: if bytes < SINGLE_THREAD_BYTES { 0 } else { MAX_HELPERS } }
    }

    /// Calls `copy` for the rows of all rectangles, on the calling thread and on helpers. Calls `ready` on the calling thread for
    /// each band, in order, as soon as the rows of the band have been copied.
    pub fn copy_in<E>(
        &self,
        threads: &Threads,
        copy: impl Fn(&ByteRect) + Sync,
        mut ready: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let next = AtomicUsize::new(0);
        let done: Vec<AtomicUsize> = self.counts.iter().map(|_| AtomicUsize::new(0)).collect();
        let step = || {
            let Some(chunk) = self.chunks.get(next.fetch_add(1, Ordering::Relaxed)) else { return false };
            copy(&chunk.rect);
            done[chunk.band].fetch_add(1, Ordering::Release);
            true
        };
        threads.run_with_helpers(
            self.helpers,
            || while step() {},
            || {
                for (band, count) in self.counts.iter().enumerate() {
                    while done[band].load(Ordering::Acquire) < *count {
                        if !step() {
                            std::hint::spin_loop();
                        }
                    }
                    ready(band)?;
                }
                Ok(())
            },
        )
    }

    /// Calls `wait` on the calling thread for each band, in order. Calls `copy` for the rows of a band when its `wait` has
    /// returned, on the calling thread and on helpers.
    pub fn copy_out<E>(
        &self,
        threads: &Threads,
        copy: impl Fn(&ByteRect) + Sync,
        mut wait: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<(), E> {
        // Helpers start after this wait, so that they do not poll before there is a band to copy.
        wait(0)?;
        let (next, ready) = (AtomicUsize::new(0), ReadyBands::default());
        let step = || {
            let Some(chunk) = self.chunks.get(next.fetch_add(1, Ordering::Relaxed)) else { return false };
            let is_ready = ready.wait_for(chunk.band);
            if is_ready {
                copy(&chunk.rect);
            }
            is_ready
        };
        ready.set(1);
        threads.run_with_helpers(
            self.helpers,
            || while step() {},
            || {
                let failing = FailOnDrop(&ready);
                for band in 1..self.counts.len() {
                    wait(band)?;
                    ready.set(band + 1);
                }
                std::mem::forget(failing);
                while step() {}
                Ok(())
            },
        )
    }
}

/// The number of bands that can be copied, or [`FAILED`].
#[derive(Default)]
struct ReadyBands {
    count: AtomicUsize,
    /// Held while the count changes, so that no sleeping helper misses the change.
    changing: Mutex<()>,
    changed: Condvar,
}

impl ReadyBands {
    fn set(&self, count: usize) {
        let changing = lock(&self.changing);
        self.count.store(count, Ordering::Release);
        drop(changing);
        self.changed.notify_all();
    }

    /// Waits until a band can be copied. Returns false after a failure.
    fn wait_for(&self, band: usize) -> bool {
        let count = || self.count.load(Ordering::Acquire);
        if count() <= band {
            let started = Instant::now();
            while count() <= band && started.elapsed() < MAX_POLL {
                std::hint::spin_loop();
            }
            drop(self.changed.wait_while(lock(&self.changing), |()| count() <= band));
        }
        count() != FAILED
    }
}

/// Sets the count to [`FAILED`] after an error or a panic, which wakes the helpers that wait for a band.
struct FailOnDrop<'a>(&'a ReadyBands);

impl Drop for FailOnDrop<'_> {
    fn drop(&mut self) {
        self.0.set(FAILED);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bands() -> Vec<Vec<ByteRect>> {
        let of = |plane: usize, rows: std::ops::Range<usize>| ByteRect {
            plane,
            row: rows.start,
            row_step: 1,
            rows: rows.len(),
            byte: 0,
            bytes: [4000, 1000][plane],
        };
        vec![vec![of(0, 0..300), of(1, 0..150)], vec![of(1, 150..151)], vec![of(0, 300..1000), of(1, 151..500)]]
    }

    fn chunks() -> ThreadedCopy {
        let chunks = ThreadedCopy::new(bands().iter().map(Vec::as_slice));
        assert!(chunks.helpers > 0);
        chunks
    }

    #[test]
    fn bands_are_ready_in_order_and_complete() {
        let threads = Threads::start().0;
        let copied = Mutex::new([0, 0]);
        let mut seen = Vec::new();
        let copy = |rect: &ByteRect| copied.lock().unwrap()[rect.plane] += rect.rows;
        let ready = |band: usize| {
            let least = [[300, 150], [300, 151], [1000, 500]][band];
            let now = *copied.lock().unwrap();
            assert!(now[0] >= least[0] && now[1] >= least[1], "band {band}: {now:?}");
            seen.push(band);
            Ok::<(), ()>(())
        };
        chunks().copy_in(&threads, copy, ready).unwrap();
        assert_eq!((seen, *copied.lock().unwrap()), (vec![0, 1, 2], [1000, 500]));
    }

    #[test]
    fn rows_are_copied_after_the_wait_for_their_band() {
        let threads = Threads::start().0;
        let (arrived, copied) = (AtomicUsize::new(0), Mutex::new([0, 0]));
        let copy = |rect: &ByteRect| {
            let band = bands().iter().position(|band| band.iter().any(|of| of.overlaps(rect))).unwrap();
            assert!(band < arrived.load(Ordering::SeqCst), "{rect:?} of band {band}");
            copied.lock().unwrap()[rect.plane] += rect.rows;
        };
        let wait = |band: usize| {
            std::thread::sleep(std::time::Duration::from_millis(2));
            arrived.store(band + 1, Ordering::SeqCst);
            Ok::<(), ()>(())
        };
        chunks().copy_out(&threads, copy, wait).unwrap();
        assert_eq!(*copied.lock().unwrap(), [1000, 500]);
    }

    #[cfg(target_os = "linux")]
    #[test]
    fn helpers_sleep_while_a_band_is_late() {
        let threads = Threads::start().0;
        if threads.count() == 1 {
            return;
        }
        let chunks = chunks();
        let (copied, helpers) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
        let copy = |_: &ByteRect| {
            helpers.lock().unwrap().push(std::fs::read_link("/proc/thread-self").unwrap());
            copied.fetch_add(1, Ordering::SeqCst);
        };
        let sleeps = |thread: &std::path::PathBuf| {
            let stat = std::path::Path::new("/proc").join(thread).join("stat");
            std::fs::read_to_string(stat).unwrap().contains(") S ")
        };
        // The last band arrives when the helpers have copied all other bands, and were asleep at five checks in a row.
        let wait = |band: usize| {
            let (limit, mut asleep) = (Instant::now() + Duration::from_secs(10), 0);
            while band == 2 && asleep < 5 {
                if Instant::now() > limit {
                    return Err("a helper polls for a band that is late");
                }
                std::thread::sleep(Duration::from_millis(5));
                let is_idle = copied.load(Ordering::SeqCst) == chunks.counts[..2].iter().sum::<usize>();
                asleep = if is_idle && helpers.lock().unwrap().iter().all(sleeps) { asleep + 1 } else { 0 };
            }
            Ok(())
        };
        assert_eq!(chunks.copy_out(&threads, copy, wait), Ok(()));
    }

    #[test]
    fn a_failure_ends_the_copy() {
        let threads = Threads::start().0;
        let fails = |failing: usize| move |band: usize| if band == failing { Err(band) } else { Ok(()) };
        for failing in 0..3 {
            assert_eq!(chunks().copy_in(&threads, |_| (), fails(failing)), Err(failing));
            assert_eq!(chunks().copy_out(&threads, |_| (), fails(failing)), Err(failing));
        }
    }

    #[test]
    fn a_panic_ends_the_copy() {
        let (done, is_done) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let threads = Threads::start().0;
            let panics = |band: usize| {
                // By then the helpers have copied all ready bands, and wait.
                std::thread::sleep(Duration::from_millis(20));
                if band == 2 { panic!("a band that does not arrive") } else { Ok::<(), ()>(()) }
            };
            let copy = std::panic::AssertUnwindSafe(|| chunks().copy_out(&threads, |_| (), panics));
            done.send(std::panic::catch_unwind(copy).is_err())
        });
        assert_eq!(is_done.recv_timeout(Duration::from_secs(10)), Ok(true), "the copy waits for its helpers");
    }
}
