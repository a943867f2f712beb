// SPDX-License-Identifier: MPL-2.0
//! What crosses the bus for a frame, and when: the bands of a frame that is blurred as a whole; of a cover what it depends on,
//! and what it covers.

use std::ops::Range;
use std::sync::Arc;

use super::bands::{self, Band};
use crate::cuda::kernels::abi::COVER_GROUP;
use crate::filter::byte_rect::{self, ByteRect};
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
    pub fn new(job: &Job, requested: Option<usize>) -> Self {
        match &job.accesses {
            None => Self::frame(job, requested),
            Some(accesses) => Self::cover(job, accesses, if requested == Some(1) { usize::MAX } else { UPLOAD_BYTES }),
        }
    }

    fn frame(job: &Job, requested: Option<usize>) -> Self {
        let (plan, layouts) = (&job.plan, job.plan.layouts());
        let bands = bands::bands(plan, requested);
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
        let download =
            writes.iter().map(|rect| rect.aligned(COVER_GROUP as usize, layouts[rect.plane].row_bytes())).collect();
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
    pub fn get(&mut self, job: &Arc<Job>, requested: Option<usize>) -> Arc<Schedule> {
        let serves = |(of, bands, _): &(Arc<Job>, Option<usize>, _)| Arc::ptr_eq(of, job) && *bands == requested;
        let cached = match self.0.iter().rposition(serves) {
            Some(index) => self.0.remove(index),
            None => {
                self.0.drain(..(self.0.len() + 1).saturating_sub(Self::CAPACITY));
                (Arc::clone(job), requested, Arc::new(Schedule::new(job, requested)))
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::kernels::tiles::TILES;
    use crate::filter::BlurParams;
    use crate::filter::cover::{BlurRegion, Cover, Hide};
    use crate::filter::plan::{Plan, Selection};

    fn schedule(regions: &[([u32; 4], f64)], requested: Option<usize>) -> Schedule {
        let region = |([x, y, width, height], sigma): &([u32; 4], f64)| BlurRegion {
            rect: Rect::new(*x, *y, *width, *height).unwrap(),
            params: BlurParams::new(*sigma, 0).unwrap(),
        };
        let hide = Hide::Blur { planes: Selection::ALL, regions: regions.iter().map(region).collect() };
        let layouts = [PlaneLayout::new(400, 2000, 3, 8)];
        let plan = Plan::cover(&Cover::from(hide), &layouts, |options| Arc::new(Plan::new(options, &layouts)));
        Schedule::new(&Job::cover(plan, TILES), requested)
    }

    #[test]
    fn a_plane_is_uploaded_once_at_most() {
        let apart = schedule(&[([50, 50, 40, 40], 1.0), ([300, 200, 9, 9], 2.0)], Some(1));
        assert_eq!(apart.uploads().count(), 2);
        let bytes = |schedule: &Schedule| schedule.uploads().map(ByteRect::size).sum::<usize>();
        assert!(bytes(&apart) < 400 * 2000 * 3 / 10);
        let sigmas = [1.0, 2.0, 3.0, 3.4];
        let whole = sigmas.map(|sigma| ([50, 50, 300 - sigma as u32, 1900], sigma));
        let [one, pieces] = [Some(1), None].map(|requested| schedule(&whole, requested));
        assert_eq!((one.uploads().count(), one.steps.len()), (1, 1));
        assert!(bytes(&one) <= 400 * 2000 * 3);
        assert_eq!(bytes(&pieces), bytes(&one), "the pieces are the whole");
        assert!(pieces.steps.len() > 2 && pieces.steps.iter().all(|step| step.upload.len() == 1));
        // Only the last step computes and downloads.
        let (last, before) = pieces.steps.split_last().unwrap();
        assert!(!last.groups.is_empty() && !last.download.is_empty());
        assert!(before.iter().all(|step| step.groups.is_empty() && step.download.is_empty()));
    }

    /// Threads write rectangles of a frame in any order.
    #[test]
    fn what_is_written_does_not_overlap() {
        let writes = schedule(&[([50, 50, 40, 40], 1.0), ([80, 80, 40, 40], 2.0)], None).writes;
        assert_eq!(writes.iter().map(ByteRect::size).sum::<usize>(), 3 * (2 * 40 * 40 - 10 * 10));
        for (index, rect) in writes.iter().enumerate() {
            assert!(!writes[..index].iter().any(|other| other.overlaps(rect)), "{writes:?}");
        }
    }
}
