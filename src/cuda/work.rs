// SPDX-License-Identifier: MPL-2.0
//! A frame's jobs in device memory: what is launched before, for and after the blur. Pure.

use std::ops::Range;

use super::alpha::{self, Place};
use super::launch::{self, Group, Kernel, Launch, PlaneBlur};
use crate::plan::{AlphaPlace, Job};

/// Rows that are copied from one plane to another.
#[derive(Debug, Clone, Copy)]
pub struct PlaneCopy {
    /// Address and pitch of the source.
    pub src: Place,
    /// Address and pitch of the destination.
    pub dst: Place,
    /// Bytes in a row.
    pub row_bytes: usize,
    /// Number of rows.
    pub rows: usize,
}

/// What the device does with a frame.
pub struct Work<'a> {
    /// Planes of which nothing is blurred.
    pub copies: Vec<PlaneCopy>,
    /// Before the blur.
    pub before: Vec<Launch>,
    /// The blur.
    pub groups: Vec<Group<'a>>,
    /// After it.
    pub after: Vec<Launch>,
    /// Device memory for products, from the address given to [`Work::new`] on.
    pub product_bytes: usize,
}

const ALIGNMENT: usize = 256;

impl<'a> Work<'a> {
    /// For planes whose sources and destinations are there, with products from `products` on, which starts on 256 bytes; of
    /// every job all rows, or those in `band`.
    pub fn new(jobs: &'a [Job], planes: &[(Place, Place)], products: u64, band: Option<&[Range<u32>]>) -> Self {
        let mut work =
            Self { copies: Vec::new(), before: Vec::new(), groups: Vec::new(), after: Vec::new(), product_bytes: 0 };
        let rows =
            |(address, pitch): Place, first: usize, step: usize| (address + (first * pitch) as u64, pitch * step);
        let blurs: Vec<PlaneBlur> = jobs
            .iter()
            .enumerate()
            .filter_map(|(index, job)| {
                let field = &job.field;
                let (src, dst) = planes[job.plane];
                let [src, dst] = [src, dst].map(|place| rows(place, field.first_row, field.step));
                let all = band.map_or(0..field.layout.height, |band| band[index].clone());
                let Some(taps) = &job.taps else {
                    let [src, dst] = [src, dst].map(|place| rows(place, all.start as usize, 1));
                    work.copies.push(PlaneCopy { src, dst, row_bytes: field.layout.row_bytes(), rows: all.len() });
                    return None;
                };
                let Some(layout) = job.product() else {
                    if job.keep != 0 {
                        work.after.push(alpha::launch(Kernel::Finish, job, src, dst, None, None));
                    }
                    return Some(PlaneBlur { layout: field.layout, src, dst, taps, rows: all });
                };
                let alpha = match job.alpha {
                    Some(AlphaPlace::Plane { plane, field, .. }) => {
                        Some(rows(planes[plane].0, field.first_row, field.step))
                    }
                    _ => None,
                };
                let pitch = layout.row_bytes().next_multiple_of(ALIGNMENT);
                let mut product = || {
                    let place = (products + work.product_bytes as u64, pitch);
                    work.product_bytes += pitch * layout.height as usize;
                    place
                };
                let [product, blurred] = [product(), product()];
                work.before.push(alpha::launch(Kernel::Multiply, job, src, dst, Some(product), alpha));
                work.after.push(alpha::launch(Kernel::Finish, job, src, dst, Some(blurred), alpha));
                Some(PlaneBlur { layout, src: product, dst: blurred, taps, rows: all })
            })
            .filter(|blur| !blur.rows.is_empty())
            .collect();
        work.groups = launch::groups(blurs);
        work
    }
}
