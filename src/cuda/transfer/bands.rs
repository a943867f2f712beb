// SPDX-License-Identifier: MPL-2.0
//! Divides frames into bands of rows: while one band is uploaded, another is blurred and a third is downloaded.

use std::ops::Range;

use crate::filter::frame::PlaneLayout;
use crate::filter::operation::{Buffer, Operation, View};
use crate::filter::plan::Plan;

/// A band of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Band {
    /// The rows of each plane to upload.
    pub upload: Vec<Range<u32>>,
    /// The rows of each operation's output to process after the upload. This band or an earlier one has uploaded or computed all
    /// rows that they read.
    pub process: Vec<Range<u32>>,
    /// The rows of each plane to download after the processing. This band or an earlier one has processed them.
    pub download: Vec<Range<u32>>,
}

/// The number of bands is the square root of (bytes of a frame / this constant): 6 for 1080p RGBA, 12 for 4K. Enqueuing a band
/// takes 10 µs, and each copy of a band starts 3 µs after the previous one.
const BYTES_PER_SQUARED_BAND: usize = 200 << 10;
const MAX_BANDS: usize = 12;
/// The smallest number of rows of a band, because each band has its own launches; and, as a multiple of the radius along columns,
/// the smallest number of rows of each blur in a band. Blurs in two passes compute the intermediate of the halo again for each
/// band.
const MIN_ROWS: u32 = 64;
const MIN_RADII: u32 = 4;

/// Returns the bands for frames of a plan, at least one: `requested` bands, or the number that was measured as fastest. A plan
/// that cannot be divided into bands has one.
pub fn bands(plan: &Plan, requested: Option<usize>) -> Vec<Band> {
    if !plan.can_be_banded() {
        return cut(plan, 1);
    }
    let planes = plan.layouts();
    let bytes: usize = planes.iter().map(|plane| plane.row_bytes() * plane.height as usize).sum();
    let by_rows = planes.iter().map(|plane| plane.height / MIN_ROWS);
    let by_radius = plan.operations().iter().filter_map(|operation| match operation {
        Operation::Blur { taps, destination, .. } => {
            Some(destination.field.layout.height / (MIN_RADII * taps.columns.radius() as u32).max(1))
        }
        _ => None,
    });
    let most = by_rows.chain(by_radius).min().map_or(1, |most| (most as usize).clamp(1, MAX_BANDS));
    let fastest = (bytes / BYTES_PER_SQUARED_BAND).isqrt().clamp(1, most);
    cut(plan, requested.unwrap_or(fastest).max(1))
}

/// Cuts frames into `count` bands with the same number of bytes, one plane after the other. A band needs one copy in each
/// direction, or more if it contains the end of a plane.
fn cut(plan: &Plan, count: usize) -> Vec<Band> {
    let bytes = |plane: &PlaneLayout| plane.row_bytes() * plane.height as usize;
    let total: usize = plan.layouts().iter().map(bytes).sum();
    // The numbers of rows before band `band`: uploaded rows by plane, processed rows by operation, downloaded rows by plane.
    let before = |band: usize| {
        // The bytes before the band that are in this plane or in later ones.
        let mut left = total * band / count;
        let rows = |plane: &PlaneLayout| {
            if left >= bytes(plane) {
                left -= bytes(plane);
                plane.height
            } else {
                (std::mem::take(&mut left) / plane.row_bytes()) as u32
            }
        };
        let uploaded: Vec<u32> = plan.layouts().iter().map(rows).collect();
        let processed = processed_rows(plan, &uploaded);
        let completed = completed_rows(plan, &processed);
        [uploaded, processed, completed]
    };
    let ranges = |from: &[u32], to: &[u32]| from.iter().zip(to).map(|(from, to)| *from..*to).collect();
    let edges: Vec<[Vec<u32>; 3]> = (0..=count).map(before).collect();
    let band = |edges: &[[Vec<u32>; 3]]| Band {
        upload: ranges(&edges[0][0], &edges[1][0]),
        process: ranges(&edges[0][1], &edges[1][1]),
        download: ranges(&edges[0][2], &edges[1][2]),
    };
    edges.windows(2).map(band).collect()
}

/// The number of rows that each operation can process when the first `uploaded` rows of each plane have been uploaded.
fn processed_rows(plan: &Plan, uploaded: &[u32]) -> Vec<u32> {
    let is_all = |plane: usize| uploaded[plane] == plan.layouts()[plane].height;
    let mut temporaries = vec![0; plan.temporaries().len()];
    let processed = plan.operations().iter().map(|operation| {
        let View { buffer, field } = operation.source();
        let available = match buffer {
            Buffer::Temporary(index) => temporaries[index],
            Buffer::Source(plane) if is_all(plane) => field.layout.height,
            Buffer::Source(plane) => uploaded[plane].saturating_sub(field.first_row as u32).div_ceil(field.step as u32),
            Buffer::Destination(_) => unreachable!("no operation reads the destination"),
        };
        let rows = operation.ready_rows(available);
        if let Buffer::Temporary(index) = operation.output().buffer {
            temporaries[index] = rows;
        }
        rows
    });
    processed.collect()
}

/// The number of rows of each plane that are complete in all fields, when each operation has processed `processed` rows.
fn completed_rows(plan: &Plan, processed: &[u32]) -> Vec<u32> {
    let completed = |(plane, layout): (usize, &PlaneLayout)| {
        let rows = |(operation, rows): (&Operation, &u32)| {
            let View { buffer, field } = operation.output();
            let end = if *rows == field.layout.height { layout.height } else { field.plane_row(*rows) as u32 };
            (buffer == Buffer::Destination(plane)).then_some(end)
        };
        plan.operations().iter().zip(processed).filter_map(rows).min().unwrap_or(0).min(layout.height)
    };
    plan.layouts().iter().enumerate().map(completed).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::BlurParams;
    use crate::filter::frame::{Role, Split};
    use crate::filter::operation::{Resampling, TEMPORARY_ROWS};
    use crate::filter::plan::{AlphaMode, Options};

    fn frames() -> Vec<Vec<PlaneLayout>> {
        let half = |width, height| PlaneLayout { sigma_scale: [0.5; 2], ..PlaneLayout::new(width, height, 2, 8) };
        let fields = |plane| PlaneLayout { split: Split::Fields, ..plane };
        vec![
            vec![PlaneLayout::new(1920, 1080, 4, 8)],
            vec![PlaneLayout::new(33, 21, 1, 16)],
            vec![PlaneLayout::new(641, 359, 1, 8), half(321, 180)],
            vec![fields(PlaneLayout::new(640, 359, 1, 8)), fields(half(320, 180))],
        ]
    }

    /// For each number of bands: each row is uploaded, processed and downloaded once. It is processed after all rows that it
    /// reads, and downloaded after it has been processed.
    #[test]
    fn every_row_is_transferred_once_and_in_order() {
        for (planes, sigma) in
            frames().into_iter().flat_map(|planes| [0.3, 2.0, 3.6, 9.0, 30.0].map(|sigma| (planes.clone(), sigma)))
        {
            let plan = Plan::new(BlurParams::new(sigma, 0).unwrap().into(), &planes);
            for count in 1..=13 {
                let bands = cut(&plan, count);
                let ends = |of: &dyn Fn(&Band) -> Range<u32>, rows: u32| {
                    let mut at = 0;
                    for band in &bands {
                        let range = of(band);
                        assert!(range.start == at && range.end >= at, "{range:?} after {at}");
                        at = range.end;
                    }
                    assert_eq!(at, rows);
                };
                for (plane, layout) in planes.iter().enumerate() {
                    ends(&|band| band.upload[plane].clone(), layout.height);
                    ends(&|band| band.download[plane].clone(), layout.height);
                }
                for (index, operation) in plan.operations().iter().enumerate() {
                    let (source, output) = (operation.source(), operation.output());
                    ends(&|band| band.process[index].clone(), output.field.layout.height);
                    let is_cut_between_blocks = |band: &Band| {
                        let end = band.process[index].end;
                        end == output.field.layout.height || end.is_multiple_of(TEMPORARY_ROWS)
                    };
                    assert!(!matches!(output.buffer, Buffer::Temporary(_)) || bands.iter().all(is_cut_between_blocks));
                    for band in bands.iter().filter(|band| !band.process[index].is_empty()) {
                        // The last row that is read, as a row of the source's view.
                        let last = last_row_read(operation, band.process[index].end - 1);
                        let available = match source.buffer {
                            Buffer::Source(plane) => {
                                assert!((source.field.plane_row(last) as u32) < band.upload[plane].end);
                                continue;
                            }
                            buffer => {
                                plan.operations().iter().position(|other| other.output().buffer == buffer).unwrap()
                            }
                        };
                        assert!(last < band.process[available].end, "{operation:?} reads row {last}");
                    }
                    if let Buffer::Destination(plane) = output.buffer {
                        for band in &bands {
                            let next = output.field.plane_row(band.process[index].end) as u32;
                            let is_done = band.process[index].end == output.field.layout.height;
                            assert!(
                                is_done || next >= band.download[plane].end,
                                "row {next} is downloaded before it is processed"
                            );
                        }
                    }
                }
            }
        }
    }

    /// The rows of the alpha plane differ from those of the chroma plane, for which it is subsampled.
    #[test]
    fn a_plan_that_cannot_be_banded_has_all_rows_in_one_band() {
        let [luma, mut alpha] = [PlaneLayout::new(66, 34, 1, 8); 2];
        let mut chroma = PlaneLayout { sigma_scale: [0.5; 2], ..PlaneLayout::new(33, 17, 2, 8) };
        (chroma.roles, alpha.roles[0]) = ([Role::Chroma; 4], Role::Alpha);
        let planes = [luma, chroma, alpha];
        for sigma in [0.6, 9.0] {
            let options = Options { alpha: AlphaMode::Premultiply, ..BlurParams::new(sigma, 0).unwrap().into() };
            let plan = Plan::new(options, &planes);
            assert!(!plan.can_be_banded());
            let bands = bands(&plan, Some(5));
            let all: Vec<Range<u32>> = planes.iter().map(|plane| 0..plane.height).collect();
            let process: Vec<Range<u32>> =
                plan.operations().iter().map(|operation| 0..operation.output().field.layout.height).collect();
            assert_eq!(bands, [Band { upload: all.clone(), process, download: all }]);
        }
    }

    /// The last source row that an operation reads for row `row` of its output.
    fn last_row_read(operation: &Operation, row: u32) -> u32 {
        let factor = |resampling: &Resampling| resampling.factors[1].get();
        let last = match operation {
            Operation::Blur { taps, .. } => row + taps.columns.radius() as u32,
            Operation::Decimate(resampling) => row * factor(resampling),
            Operation::Interpolate(resampling) if factor(resampling) > 1 => row / factor(resampling) + 6,
            _ => row,
        };
        last.min(operation.source().field.layout.height - 1)
    }

    #[test]
    fn small_frames_wide_blurs_and_premultiplied_colour_have_few_bands() {
        let count = |planes: &[PlaneLayout], options: Options| bands(&Plan::new(options, planes), None).len();
        let options = |sigma| Options::from(BlurParams::new(sigma, 0).unwrap());
        let mut rgba = PlaneLayout::new(1920, 1080, 4, 8);
        assert_eq!(count(&[rgba], options(2.5)), 6);
        assert_eq!(count(&[PlaneLayout::new(3840, 2160, 4, 8)], options(2.5)), 12);
        assert_eq!(count(&[PlaneLayout::new(320, 240, 4, 8)], options(2.5)), 1);
        assert_eq!(count(&[rgba], options(20.0)), 3);
        rgba.roles[3] = Role::Alpha;
        assert_eq!(count(&[rgba], Options { alpha: AlphaMode::Premultiply, ..options(2.5) }), 1);
    }
}
