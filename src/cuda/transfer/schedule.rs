// SPDX-License-Identifier: MPL-2.0
//! What crosses the bus for a frame, and when: the bands of a frame that is blurred as a whole; of a cover what it depends on,
//! and what it covers.

use std::ops::Range;
use std::sync::Arc;

use super::bands::{self, Band, Order};
use crate::cuda::kernels::byte_rect::{self, ByteRect};
use crate::filter::frame::PlaneLayout;
use crate::filter::parts::{Accesses, Job, Parts, joined};
use crate::filter::picture::FieldRect;
use crate::filter::regions::Rect;

/// A step of a schedule.
#[derive(Debug, PartialEq, Eq)]
pub struct Step {
    /// Uploaded.
    pub upload: Vec<ByteRect>,
    /// The groups of the program that are enqueued after that.
    pub groups: Range<usize>,
    /// Downloaded after that.
    pub download: Vec<ByteRect>,
}

/// The steps of a frame, at least one, and what its program consists of.
#[derive(Debug)]
pub struct Schedule {
    /// In order.
    pub steps: Vec<Step>,
    /// What each group of the program computes; of a cover all in one.
    pub parts: Vec<Parts>,
    /// The bytes of a frame that a cover writes. They come back through a staging buffer, and into the frame when all has
    /// succeeded.
    pub writes: Vec<ByteRect>,
}

/// Bytes of an upload of a cover from a staging buffer. The next ones are staged while it runs.
const UPLOAD_BYTES: usize = 512 << 10;

impl Schedule {
    /// For a job. A whole frame is divided into `requested` bands, or into as many as measured fastest; what a cover uploads
    /// into one piece if one is requested, else into pieces of [`UPLOAD_BYTES`].
    pub fn new(job: &Job, requested: Option<usize>, order: Order) -> Self {
        match &job.accesses {
            None => Self::frame(job, requested, order),
            Some(accesses) => Self::cover(job, accesses, if requested == Some(1) { usize::MAX } else { UPLOAD_BYTES }),
        }
    }

    fn frame(job: &Job, requested: Option<usize>, order: Order) -> Self {
        let (plan, layouts) = (&job.plan, job.plan.layouts());
        let bands = bands::bands(plan, requested, order);
        let rects = |rows: &[Range<u32>]| {
            let rows = rows.iter().enumerate().filter(|(_, rows)| !rows.is_empty());
            let rect = |(plane, Range { start, end }): (usize, &Range<u32>)| {
                ByteRect::of_rows(plane, &layouts[plane], *start as usize..*end as usize)
            };
            rows.map(rect).collect()
        };
        let step = |(index, Band { upload, download, .. }): (usize, &Band)| Step {
            upload: rects(upload),
            groups: index..index + 1,
            download: rects(download),
        };
        let steps = bands.iter().enumerate().map(step).collect();
        Self { steps, parts: bands.iter().map(|band| plan.rows(&band.process)).collect(), writes: Vec::new() }
    }

    fn cover(job: &Job, Accesses { reads, writes }: &Accesses, piece_bytes: usize) -> Self {
        let layouts = job.plan.layouts();
        let written = writes.iter().flat_map(|(plane, covered)| ByteRect::covered(*plane, *covered));
        let writes = byte_rect::disjoint(written);
        let download = writes.iter().map(|rect| rect.in_groups(layouts[rect.plane].row_bytes())).collect();
        let uploads = (0..layouts.len()).flat_map(|plane| uploads(reads, plane, &layouts[plane]));
        let mut uploads = in_pieces(uploads, piece_bytes);
        let last = uploads.pop().unwrap_or_default();
        let before = uploads.into_iter().map(|upload| Step { upload, groups: 0..0, download: Vec::new() });
        let steps = before.chain([Step { upload: last, groups: 0..2, download }]).collect();
        Self { steps, parts: vec![job.parts.clone()], writes }
    }

    /// The rectangles that are uploaded.
    pub fn uploads(&self) -> impl Iterator<Item = &ByteRect> {
        self.steps.iter().flat_map(|step| &step.upload)
    }
}

/// The schedules of the last jobs, the most recently used last.
#[derive(Default)]
pub struct ScheduleCache(Vec<(Arc<Job>, Option<usize>, Arc<Schedule>)>);

impl ScheduleCache {
    /// Frames of a stream take turns with few jobs.
    const CAPACITY: usize = 4;

    /// The schedule of a job; see [`Schedule::new`].
    pub fn get(&mut self, job: &Arc<Job>, requested: Option<usize>, order: impl FnOnce() -> Order) -> Arc<Schedule> {
        let serves = |(of, bands, _): &(Arc<Job>, Option<usize>, _)| Arc::ptr_eq(of, job) && *bands == requested;
        let cached = match self.0.iter().rposition(serves) {
            Some(index) => self.0.remove(index),
            None => {
                self.0.drain(..(self.0.len() + 1).saturating_sub(Self::CAPACITY));
                (Arc::clone(job), requested, Arc::new(Schedule::new(job, requested, order())))
            }
        };
        let schedule = Arc::clone(&cached.2);
        self.0.push(cached);
        schedule
    }
}

/// The bytes of a plane that a cover reads, or all bytes if these are fewer.
fn uploads(reads: &[(usize, FieldRect)], plane: usize, layout: &PlaneLayout) -> Vec<ByteRect> {
    /// Bytes that take as long to stage and to upload as one more rectangle.
    const RECT_BYTES: u64 = 8 << 10;
    /// Every format has rows that are aligned to 16 bytes at multiples of 16 columns, if the frame is, which the kernels load
    /// fastest; of packed 4:2:2 that is 32 columns.
    const COLUMNS: u32 = 32;
    let pixel = layout.row_bytes() as u64;
    let mut rects = Vec::new();
    for field in layout.fields() {
        let of_field = reads.iter().filter(|(of, read)| *of == plane && read.field.place() == field.place());
        let rounded = of_field.map(|(_, FieldRect { rect, .. })| {
            let right = rect.right().next_multiple_of(COLUMNS).min(field.layout.width);
            Rect::between([rect.x() / COLUMNS * COLUMNS, right], [rect.y(), rect.bottom()]).expect("a larger rectangle")
        });
        let bytes = |rect: Rect| rect.area() * pixel / u64::from(layout.width) + RECT_BYTES;
        let parts = joined(rounded, bytes);
        rects.extend(parts.into_iter().map(|rect| ByteRect::of_pixels(plane, FieldRect { field, rect })));
    }
    let whole = ByteRect::of_rows(plane, layout, 0..layout.height as usize);
    if rects.iter().map(ByteRect::size).sum::<usize>() >= whole.size() { vec![whole] } else { rects }
}

/// Divides rectangles into pieces of about so many bytes.
fn in_pieces(rects: impl Iterator<Item = ByteRect>, most: usize) -> Vec<Vec<ByteRect>> {
    let (mut pieces, mut piece, mut bytes) = (Vec::new(), Vec::new(), 0);
    for rect in rects {
        let mut first = 0;
        while first < rect.rows {
            let rows = (most.saturating_sub(bytes) / rect.bytes).clamp(1, rect.rows - first);
            piece.push(rect.part(first..first + rows));
            (first, bytes) = (first + rows, bytes + rows * rect.bytes);
            if bytes + rect.bytes > most {
                pieces.push(std::mem::take(&mut piece));
                bytes = 0;
            }
        }
    }
    if !piece.is_empty() {
        pieces.push(piece);
    }
    pieces
}
