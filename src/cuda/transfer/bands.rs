// SPDX-License-Identifier: MPL-2.0
//! Bands of rows: one band of a frame is uploaded while another is blurred and a third is downloaded.

use std::ops::Range;

use crate::filter::frame::PlaneLayout;
use crate::filter::plan::{Buffer, Operation, Plan, View};

/// A band of a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Band {
    /// Rows of every plane to upload.
    pub upload: Vec<Range<u32>>,
    /// Rows of every operation's views to process after that. Their halo is uploaded with this band or an earlier one.
    pub process: Vec<Range<u32>>,
    /// Rows of every plane to download after that. This band or an earlier one has processed them.
    pub download: Vec<Range<u32>>,
}

/// The number of bands is the square root of the bytes of an average plane over this: 6 for 1080p RGBA, 12 for 4K. Enqueuing a
/// band takes 10 µs, and 3 more for every further plane.
const BYTES_PER_SQUARED_BAND: usize = 200 << 10;
const MAX_BANDS: usize = 12;
/// A band has at least so many rows, and so many times the radius along columns: blurs in two passes compute the intermediate
/// of the halo again for every band, and each band has launches of its own.
const MIN_ROWS: u32 = 64;
const MIN_RADII: u32 = 4;

/// The bands for frames of a plan, at least one: `requested` of them, or as many as measured fastest. A plan that cannot be
/// banded has one.
pub fn bands(plan: &Plan, requested: Option<usize>) -> Vec<Band> {
    if !plan.can_be_banded() {
        return cut(plan, 1);
    }
    let planes = plan.layouts();
    let bytes: usize = planes.iter().map(|plane| plane.row_bytes() * plane.height as usize).sum();
    let most = |operation: &Operation| {
        let rows = MIN_ROWS.max(MIN_RADII * operation.row_halo() as u32);
        (operation.output().field.layout.height / rows).max(1) as usize
    };
    let most = plan.operations().iter().map(most).min().unwrap_or(1).min(MAX_BANDS);
    let fastest = (bytes / planes.len() / BYTES_PER_SQUARED_BAND).isqrt().clamp(1, most);
    cut(plan, requested.unwrap_or(fastest).max(1))
}

/// Cuts frames into so many bands.
fn cut(plan: &Plan, count: usize) -> Vec<Band> {
    let planes = plan.layouts();
    // Rows of a plane that are uploaded before band `band`.
    let uploaded = |plane: &PlaneLayout, band: usize| (u64::from(plane.height) * band as u64 / count as u64) as u32;
    // Rows of an operation that are processed before band `band`: those whose halo is uploaded.
    let processed = |operation: &Operation, band: usize| {
        let View { buffer, field } = operation.output();
        if band == 0 || band == count {
            return if band == 0 { 0 } else { field.layout.height };
        }
        let Buffer::Destination(plane) = buffer else { unreachable!("banded plans write the destination alone") };
        let rows = uploaded(&planes[plane], band).saturating_sub(field.first_row as u32).div_ceil(field.step as u32);
        rows.saturating_sub(operation.row_halo() as u32)
    };
    // Rows of a plane that all its fields have been processed above, before band `band`.
    let completed = |plane: usize, band: usize| {
        let rows = |operation: &Operation| {
            let View { buffer, field } = operation.output();
            let is_own = buffer == Buffer::Destination(plane);
            is_own.then(|| field.first_row as u32 + processed(operation, band) * field.step as u32)
        };
        plan.operations().iter().filter_map(rows).min().unwrap_or(0).min(planes[plane].height)
    };
    let band = |band: usize| Band {
        upload: planes.iter().map(|plane| uploaded(plane, band)..uploaded(plane, band + 1)).collect(),
        process: plan
            .operations()
            .iter()
            .map(|operation| processed(operation, band)..processed(operation, band + 1))
            .collect(),
        download: (0..planes.len()).map(|plane| completed(plane, band)..completed(plane, band + 1)).collect(),
    };
    (0..count).map(band).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::BlurParams;
    use crate::filter::plan::{AlphaMode, Options};

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

    /// For every number of bands: each row is uploaded and downloaded once, processed after its halo is uploaded, and downloaded
    /// after it is processed.
    #[test]
    fn every_row_is_transferred_once_and_in_order() {
        for (planes, sigma) in
            frames().into_iter().flat_map(|planes| [0.3, 2.0, 9.0].map(|sigma| (planes.clone(), sigma)))
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
                    let View { buffer: Buffer::Destination(plane), field } = operation.output() else { panic!() };
                    ends(&|band| band.process[index].clone(), field.layout.height);
                    let radius = operation.row_halo() as u32;
                    let row = |row: u32| field.first_row as u32 + row * field.step as u32;
                    for band in &bands {
                        let reach = (band.process[index].end + radius).min(field.layout.height);
                        assert!(band.process[index].is_empty() || row(reach - 1) < band.upload[plane].end);
                        let next = row(band.process[index].end);
                        assert!(next >= band.download[plane].end, "row {next} is downloaded before it is processed");
                    }
                }
            }
        }
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
        rgba.roles[3] = crate::filter::frame::Role::Alpha;
        assert_eq!(count(&[rgba], Options { alpha: AlphaMode::Premultiply, ..options(2.5) }), 1);
    }
}
