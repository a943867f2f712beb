// SPDX-License-Identifier: MPL-2.0
//! Copies between pageable and pinned memory on many threads, in the order in which the bands are needed.

use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use crate::threads::Threads;

/// Bytes that a thread copies at a time. With 128 KB a 1080p RGBA frame in ordinary memory takes 1.3 times as long (H200 host):
/// the calling thread, which enqueues the bands, is in a chunk too often when one is complete.
const CHUNK_BYTES: usize = 32 << 10;
/// Waking threads takes longer than copying a smaller frame.
const SINGLE_THREAD_BYTES: usize = 128 << 10;
/// More threads are limited by memory bandwidth.
const MAX_HELPERS: usize = 7;

/// Rows of a plane, and the band that they belong to.
struct Chunk {
    band: usize,
    plane: usize,
    rows: Range<u32>,
}

/// The copies of a frame, in chunks, band by band.
pub struct ThreadedCopy {
    chunks: Vec<Chunk>,
    /// Number of chunks in each band.
    counts: Vec<usize>,
    helpers: usize,
}

impl ThreadedCopy {
    /// `bands` has the rows of each plane for every band, `row_bytes` the bytes in a row of each plane.
    pub fn new<'a>(bands: impl Iterator<Item = &'a [Range<u32>]>, row_bytes: &[usize]) -> Self {
        let (mut chunks, mut counts, mut bytes) = (Vec::new(), Vec::new(), 0);
        for (band, planes) in bands.enumerate() {
            let before = chunks.len();
            for (plane, rows) in planes.iter().enumerate() {
                let step = (CHUNK_BYTES / row_bytes[plane].max(1)).max(1) as u32;
                bytes += row_bytes[plane] * rows.len();
                let starts = rows.clone().step_by(step as usize);
                chunks.extend(starts.map(|row| Chunk { band, plane, rows: row..rows.end.min(row + step) }));
            }
            counts.push(chunks.len() - before);
        }
        Self { chunks, counts, helpers: if bytes < SINGLE_THREAD_BYTES { 0 } else { MAX_HELPERS } }
    }

    /// Calls `copy` for all rows, and `ready` on the calling thread for every band in order as soon as its rows are copied.
    pub fn copy_in<E>(
        &self,
        threads: &Threads,
        copy: impl Fn(usize, Range<u32>) + Sync,
        mut ready: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<(), E> {
        let next = AtomicUsize::new(0);
        let done: Vec<AtomicUsize> = self.counts.iter().map(|_| AtomicUsize::new(0)).collect();
        let step = || {
            let Some(chunk) = self.chunks.get(next.fetch_add(1, Ordering::Relaxed)) else { return false };
            copy(chunk.plane, chunk.rows.clone());
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

    /// Calls `wait` on the calling thread for every band in order, and `copy` for the rows of bands whose wait has returned.
    pub fn copy_out<E>(
        &self,
        threads: &Threads,
        copy: impl Fn(usize, Range<u32>) + Sync,
        mut wait: impl FnMut(usize) -> Result<(), E>,
    ) -> Result<(), E> {
        // No helper spins before there is something to copy.
        wait(0)?;
        let (next, ready, failed) = (AtomicUsize::new(0), AtomicUsize::new(1), AtomicBool::new(false));
        let step = || {
            let Some(chunk) = self.chunks.get(next.fetch_add(1, Ordering::Relaxed)) else { return false };
            while ready.load(Ordering::Acquire) <= chunk.band {
                if failed.load(Ordering::Relaxed) {
                    return false;
                }
                std::hint::spin_loop();
            }
            copy(chunk.plane, chunk.rows.clone());
            true
        };
        threads.run_with_helpers(
            self.helpers,
            || while step() {},
            || {
                for band in 1..self.counts.len() {
                    if let Err(error) = wait(band) {
                        failed.store(true, Ordering::Relaxed);
                        return Err(error);
                    }
                    ready.store(band + 1, Ordering::Release);
                }
                while step() {}
                Ok(())
            },
        )
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use super::*;

    fn bands() -> Vec<Vec<Range<u32>>> {
        vec![vec![0..300, 0..150], vec![300..300, 150..151], vec![300..1000, 151..500]]
    }

    fn chunks() -> ThreadedCopy {
        let chunks =
            ThreadedCopy::new(bands().iter().map(Vec::as_slice).collect::<Vec<_>>().into_iter(), &[4000, 1000]);
        assert!(chunks.helpers > 0);
        chunks
    }

    #[test]
    fn bands_are_ready_in_order_and_complete() {
        let threads = Threads::start().0;
        let copied = Mutex::new([0, 0]);
        let mut seen = Vec::new();
        let copy = |plane: usize, rows: Range<u32>| copied.lock().unwrap()[plane] += rows.len();
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
        let copy = |plane: usize, rows: Range<u32>| {
            let bands = bands();
            let band = bands.iter().position(|band| band[plane].contains(&rows.start)).unwrap();
            assert!(band < arrived.load(Ordering::SeqCst), "rows {rows:?} of band {band}");
            copied.lock().unwrap()[plane] += rows.len();
        };
        let wait = |band: usize| {
            std::thread::sleep(std::time::Duration::from_millis(2));
            arrived.store(band + 1, Ordering::SeqCst);
            Ok::<(), ()>(())
        };
        chunks().copy_out(&threads, copy, wait).unwrap();
        assert_eq!(*copied.lock().unwrap(), [1000, 500]);
    }

    #[test]
    fn a_failure_ends_the_copy() {
        let threads = Threads::start().0;
        let fails = |failing: usize| move |band: usize| if band == failing { Err(band) } else { Ok(()) };
        for failing in 0..3 {
            assert_eq!(chunks().copy_in(&threads, |_, _| (), fails(failing)), Err(failing));
            assert_eq!(chunks().copy_out(&threads, |_, _| (), fails(failing)), Err(failing));
        }
    }
}
