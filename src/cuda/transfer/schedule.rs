// SPDX-License-Identifier: MPL-2.0
//! The schedule of a frame: what crosses the bus, and when. A frame that is blurred as a whole is divided into bands. For a
//! cover, the schedule has the bytes that the cover reads and those that it writes.

use std::ops::Range;

use super::bands::{self, Band};
use crate::cuda::kernels::abi::COVER_GROUP;
use crate::filter::byte_rect::{self, ByteRect};
use crate::filter::frame::PlaneLayout;
use crate::filter::parts::{Accesses, Job, Parts, joined};
use crate::filter::picture::FieldRect;
use crate::filter::regions::Rect;

/// How a frame is divided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Division {
    /// The frame stays on the device and is not divided.
    Resident,
    /// This many bands. A cover is one piece, unless it is scattered ([`Schedule::is_scattered`]).
    Into(usize),
    /// The number of bands that was measured as fastest. A cover is divided into uploads of [`UPLOAD_BYTES`].
    Fastest,
}

/// A piece of a frame: a band, or one upload of a cover.
#[derive(Debug, PartialEq, Eq)]
pub struct Piece {
    /// The rectangles to upload.
    pub upload: Vec<ByteRect>,
    /// The sections of the program to enqueue after the upload.
    pub sections: Range<usize>,
    /// The rectangles to download after these sections.
    pub download: Vec<ByteRect>,
}

/// What crosses the bus for a frame, and what is computed in between.
#[derive(Debug)]
pub struct Schedule {
    /// The pieces in order, at least one.
    pub pieces: Vec<Piece>,
    /// The rectangles that are computed for each band; empty if all are computed at once.
    pub bands: Vec<Parts>,
    /// The bytes of the frame that a cover writes. They are downloaded into a staging buffer, and copied into the frame when
    /// everything has succeeded.
    pub writes: Vec<ByteRect>,
    /// Whether a cover uploads so many rectangles that even pinned memory is staged.
    pub is_scattered: bool,
}

/// The size of a cover's upload from a staging buffer, in bytes. The next bytes are staged while it runs.
const UPLOAD_BYTES: usize = 512 << 10;
/// The largest number of rectangles that are uploaded directly from pinned memory. More are staged, because enqueuing a copy
/// takes 2.3 to 4 µs.
const MAX_DIRECT_UPLOADS: usize = 32;

impl Schedule {
    /// Makes the schedule of a job.
    pub fn new(job: &Job, division: Division) -> Self {
        match &job.accesses {
            _ if division == Division::Resident => {
                let sections = 0..1 + usize::from(job.accesses.is_some());
                let piece = Piece { upload: Vec::new(), sections, download: Vec::new() };
                Self { pieces: vec![piece], bands: Vec::new(), writes: Vec::new(), is_scattered: false }
            }
            None => Self::frame(job, if let Division::Into(count) = division { Some(count) } else { None }),
            Some(accesses) => Self::cover(job, accesses, division),
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
        let piece = |(index, Band { upload, download, .. }): (usize, &Band)| Piece {
            upload: rects(upload),
            sections: index..index + 1,
            download: rects(download),
        };
        let pieces = bands.iter().enumerate().map(piece).collect();
        let bands = bands.iter().map(|band| plan.rows(&band.process)).collect();
        Self { pieces, bands, writes: Vec::new(), is_scattered: false }
    }

    fn cover(job: &Job, Accesses { reads, writes }: &Accesses, division: Division) -> Self {
        let layouts = job.plan.layouts();
        let written = writes.iter().flat_map(|(plane, covered)| ByteRect::covered(*plane, *covered));
        let writes = byte_rect::disjoint(written);
        // The device must write whole groups of bytes across the bus.
        let download =
            writes.iter().map(|rect| rect.aligned(COVER_GROUP as usize, layouts[rect.plane].row_bytes())).collect();
        let uploads: Vec<ByteRect> =
            (0..layouts.len()).flat_map(|plane| uploads(reads, plane, &layouts[plane])).collect();
        let is_scattered = uploads.len() > MAX_DIRECT_UPLOADS;
        let is_staged = is_scattered || division == Division::Fastest;
        let mut uploads = in_pieces(uploads.into_iter(), if is_staged { UPLOAD_BYTES } else { usize::MAX });
        let last = uploads.pop().unwrap_or_default();
        let before = uploads.into_iter().map(|upload| Piece { upload, sections: 0..0, download: Vec::new() });
        let pieces = before.chain([Piece { upload: last, sections: 0..2, download }]).collect();
        Self { pieces, bands: Vec::new(), writes, is_scattered }
    }

    /// The rectangles of all uploads.
    pub fn uploads(&self) -> impl Iterator<Item = &ByteRect> {
        self.pieces.iter().flat_map(|piece| &piece.upload)
    }
}

/// The bytes of a plane that a cover reads, or the whole plane if that has no more bytes.
fn uploads(reads: &[(usize, FieldRect)], plane: usize, layout: &PlaneLayout) -> Vec<ByteRect> {
    /// The number of bytes that take as long to stage and to upload as an additional rectangle.
    const RECT_BYTES: u64 = 8 << 10;
    /// Rectangles begin and end at multiples of this many columns. In all formats their rows are then aligned to 16 bytes if the
    /// frame is, and the kernels load such rows fastest. Packed 4:2:2 needs 32 columns for this.
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

/// Divides rectangles into pieces of about `most` bytes.
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
    use std::sync::Arc;

    use super::*;
    use crate::cuda::kernels::tiles::TILES;
    use crate::filter::BlurParams;
    use crate::filter::cover::{BlurRegion, Cover, Hide};
    use crate::filter::plan::{Plan, Selection};

    fn schedule(regions: &[([u32; 4], f64)], division: Division) -> Schedule {
        let region = |([x, y, width, height], sigma): &([u32; 4], f64)| BlurRegion {
            rect: Rect::new(*x, *y, *width, *height).unwrap(),
            params: BlurParams::new(*sigma, 0).unwrap(),
        };
        let hide = Hide::Blur { planes: Selection::ALL, regions: regions.iter().map(region).collect() };
        let layouts = [PlaneLayout::new(400, 2000, 3, 8)];
        let plan = Plan::cover(&Cover::from(hide), &layouts, |options| Arc::new(Plan::new(options, &layouts)));
        Schedule::new(&Job::cover(plan, TILES), division)
    }

    #[test]
    fn a_plane_is_uploaded_once_at_most() {
        let apart = schedule(&[([50, 50, 40, 40], 1.0), ([300, 200, 9, 9], 2.0)], Division::Into(1));
        assert_eq!(apart.uploads().count(), 2);
        let bytes = |schedule: &Schedule| schedule.uploads().map(ByteRect::size).sum::<usize>();
        assert!(bytes(&apart) < 400 * 2000 * 3 / 10);
        let sigmas = [1.0, 2.0, 3.0, 3.4];
        let whole = sigmas.map(|sigma| ([50, 50, 300 - sigma as u32, 1900], sigma));
        let [one, pieces] = [Division::Into(1), Division::Fastest].map(|division| schedule(&whole, division));
        assert_eq!((one.uploads().count(), one.pieces.len()), (1, 1));
        assert!(bytes(&one) <= 400 * 2000 * 3);
        assert_eq!(bytes(&pieces), bytes(&one), "the pieces are the whole");
        assert!(pieces.pieces.len() > 2 && pieces.pieces.iter().all(|piece| piece.upload.len() == 1));
        // Only the last piece has sections and a download.
        let (last, before) = pieces.pieces.split_last().unwrap();
        assert!(!last.sections.is_empty() && !last.download.is_empty());
        assert!(before.iter().all(|piece| piece.sections.is_empty() && piece.download.is_empty()));
    }

    /// The rectangles must not overlap, because threads write them in any order.
    #[test]
    fn what_is_written_does_not_overlap() {
        let writes = schedule(&[([50, 50, 40, 40], 1.0), ([80, 80, 40, 40], 2.0)], Division::Fastest).writes;
        assert_eq!(writes.iter().map(ByteRect::size).sum::<usize>(), 3 * (2 * 40 * 40 - 10 * 10));
        for (index, rect) in writes.iter().enumerate() {
            assert!(!writes[..index].iter().any(|other| other.overlaps(rect)), "{writes:?}");
        }
    }
}
