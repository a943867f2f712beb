// SPDX-License-Identifier: MPL-2.0
//! How a frame is cut into bands of rows, so that one is uploaded while another is blurred and a third one downloaded. Pure.

use std::ops::Range;

use crate::frame::PlaneLayout;
use crate::plan::Job;

/// One step of a frame through the device.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Band {
    /// Rows of every plane that are uploaded.
    pub upload: Vec<Range<u32>>,
    /// Rows of every job that are blurred then; what they reach has been uploaded.
    pub blur: Vec<Range<u32>>,
    /// Rows of every plane that are downloaded then; all of them have been blurred.
    pub download: Vec<Range<u32>>,
}

/// Bytes of a plane on average by the square of the number of bands: 6 for 1080p RGBA, 12 for 4K. A band takes 10 µs to queue,
/// and 3 more for every further plane.
const BYTES: usize = 200 << 10;
const MOST: usize = 12;
/// Rows of a band at least, and as many times the radius down the columns: every band makes the rows above and below its
/// own again where a blur takes two passes, and launches have their price.
const LEAST_ROWS: u32 = 64;
const RADII: u32 = 4;

/// The bands of a frame of these planes, at least one, and `wanted` of them if that is said. Where alpha weighs colour, or
/// something is put back after the blur, the frame goes in one.
pub fn bands(planes: &[PlaneLayout], jobs: &[Job], wanted: Option<usize>) -> Vec<Band> {
    if jobs.iter().any(|job| job.alpha.is_some() || job.keep != 0) {
        return cut(planes, jobs, 1);
    }
    let bytes: usize = planes.iter().map(|plane| plane.row_bytes() * plane.height as usize).sum();
    let fit = |job: &Job| {
        let rows = LEAST_ROWS.max(RADII * job.row_halo() as u32);
        (job.field.layout.height / rows).max(1) as usize
    };
    let most = jobs.iter().map(fit).min().unwrap_or(1).min(MOST);
    let measured = (bytes / planes.len() / BYTES).isqrt().clamp(1, most);
    cut(planes, jobs, wanted.unwrap_or(measured).max(1))
}

/// Cuts a frame into so many bands.
fn cut(planes: &[PlaneLayout], jobs: &[Job], count: usize) -> Vec<Band> {
    let edge = |plane: &PlaneLayout, band: usize| (u64::from(plane.height) * band as u64 / count as u64) as u32;
    // Rows of a job that can be blurred when the plane's rows up to the band's end are there.
    let blurred = |job: &Job, band: usize| {
        let field = &job.field;
        if band == 0 || band == count {
            return if band == 0 { 0 } else { field.layout.height };
        }
        let there = edge(&planes[job.plane], band).saturating_sub(field.first_row as u32).div_ceil(field.step as u32);
        there.saturating_sub(job.row_halo() as u32)
    };
    // Rows of a plane above which all jobs have blurred theirs.
    let done = |plane: usize, band: usize| {
        let jobs = jobs.iter().filter(|job| job.plane == plane);
        let rows = jobs.map(|job| job.field.first_row as u32 + blurred(job, band) * job.field.step as u32).min();
        rows.unwrap_or(0).min(planes[plane].height)
    };
    let band = |band: usize| Band {
        upload: planes.iter().map(|plane| edge(plane, band)..edge(plane, band + 1)).collect(),
        blur: jobs.iter().map(|job| blurred(job, band)..blurred(job, band + 1)).collect(),
        download: (0..planes.len()).map(|plane| done(plane, band)..done(plane, band + 1)).collect(),
    };
    (0..count).map(band).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::BlurParams;
    use crate::plan::{self, Alpha, Options};

    fn frames() -> Vec<Vec<PlaneLayout>> {
        let half = |width, height| PlaneLayout { sigma_scale: [0.5; 2], ..PlaneLayout::new(width, height, 2, 8) };
        let fields = |plane| PlaneLayout { interlaced: true, ..plane };
        vec![
            vec![PlaneLayout::new(1920, 1080, 4, 8)],
            vec![PlaneLayout::new(33, 21, 1, 16)],
            vec![PlaneLayout::new(641, 359, 1, 8), half(321, 180)],
            vec![fields(PlaneLayout::new(640, 359, 1, 8)), fields(half(320, 180))],
        ]
    }

    /// Whatever the number of bands: every row once each way, nothing blurred before what it reaches is there, nothing
    /// downloaded before it is blurred.
    #[test]
    fn every_row_goes_through_once_and_in_order() {
        for (planes, sigma) in
            frames().into_iter().flat_map(|planes| [0.3, 2.0, 9.0].map(|sigma| (planes.clone(), sigma)))
        {
            let jobs = plan::jobs(BlurParams::new(sigma, 0).unwrap().into(), &planes);
            for count in 1..=13 {
                let bands = cut(&planes, &jobs, count);
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
                for (index, job) in jobs.iter().enumerate() {
                    ends(&|band| band.blur[index].clone(), job.field.layout.height);
                    let radius = job.row_halo() as u32;
                    let row = |row: u32| job.field.first_row as u32 + row * job.field.step as u32;
                    for band in &bands {
                        let reach = (band.blur[index].end + radius).min(job.field.layout.height);
                        assert!(band.blur[index].is_empty() || row(reach - 1) < band.upload[job.plane].end);
                        let next = row(band.blur[index].end);
                        assert!(next >= band.download[job.plane].end, "row {next} is downloaded and not blurred");
                    }
                }
            }
        }
    }

    #[test]
    fn small_frames_wide_blurs_and_weighed_colour_go_in_few_bands() {
        let count = |planes: &[PlaneLayout], options: Options| bands(planes, &plan::jobs(options, planes), None).len();
        let options = |sigma| Options::from(BlurParams::new(sigma, 0).unwrap());
        let mut rgba = PlaneLayout::new(1920, 1080, 4, 8);
        assert_eq!(count(&[rgba], options(2.5)), 6);
        assert_eq!(count(&[PlaneLayout::new(3840, 2160, 4, 8)], options(2.5)), 12);
        assert_eq!(count(&[PlaneLayout::new(320, 240, 4, 8)], options(2.5)), 1);
        assert_eq!(count(&[rgba], options(20.0)), 3);
        rgba.roles[3] = crate::frame::Role::Alpha;
        assert_eq!(count(&[rgba], Options { alpha: Alpha::Premultiply, ..options(2.5) }), 1);
    }
}
