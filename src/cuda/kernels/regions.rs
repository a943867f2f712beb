// SPDX-License-Identifier: MPL-2.0
//! The blurred regions of a frame in device memory: where their plans write and what is copied over the frame. Of a frame in
//! host memory also what is uploaded for them, and what is downloaded.

use super::abi::WORKSPACE_ALIGNMENT;
use super::byte_rect::{ByteRect, PACKED_GROUP, StagingLayout};
use super::cover::BlurredRect;
use super::region_blur::{RegionBlur, RegionBlurPlan};
use crate::filter::frame::PlaneLayout;
use crate::filter::operation::{Buffer, Operation};
use crate::filter::parts::joined;
use crate::filter::picture::FieldRect;
use crate::filter::plane::DevicePlane;
use crate::filter::regions::Rect;

/// Where the blurs of regions write. Each has planes of the frame's size, of which only what it computes has memory: an address
/// may be in front of the block.
pub struct RegionOutputs {
    /// Of every blur.
    pub planes: Vec<Vec<DevicePlane>>,
    /// Bytes of the block.
    pub bytes: usize,
}

impl RegionOutputs {
    /// In a block at this address, which is aligned to [`WORKSPACE_ALIGNMENT`].
    pub fn new(regions: &RegionBlurPlan, block: u64) -> Self {
        let mut bytes = 0;
        let mut of_blur = |blur: &RegionBlur| {
            let plane = |(index, layout): (usize, &PlaneLayout)| {
                let Some(extent) = extent(blur, index, layout) else { return DevicePlane::default() };
                let pitch = extent.bytes.next_multiple_of(WORKSPACE_ALIGNMENT);
                let before = extent.row * pitch + extent.byte;
                let address = (block + bytes as u64).wrapping_sub(before as u64);
                bytes += pitch * extent.rows;
                DevicePlane { address, pitch, len: before + pitch * extent.rows }
            };
            regions.layouts().iter().enumerate().map(plane).collect()
        };
        let planes = regions.blurs().iter().map(&mut of_blur).collect();
        Self { planes, bytes }
    }

    /// What is copied over the frame.
    pub fn blurred_rects(&self, regions: &RegionBlurPlan) -> Vec<BlurredRect> {
        let of_blur = |(strength, (blur, planes)): (usize, (&RegionBlur, &Vec<DevicePlane>))| -> Vec<BlurredRect> {
            let rects = covered_bytes(blur);
            rects.map(|rect| BlurredRect { rect, blurred: planes[rect.plane], strength }).collect()
        };
        regions.blurs().iter().zip(&self.planes).enumerate().flat_map(of_blur).collect()
    }
}

/// The bytes of a frame that a blur covers.
fn covered_bytes(blur: &RegionBlur) -> impl Iterator<Item = ByteRect> {
    blur.covered.iter().flat_map(|(plane, covered)| ByteRect::covered(*plane, *covered))
}

/// All that a blur writes of a plane of its destination.
fn extent(blur: &RegionBlur, plane: usize, layout: &PlaneLayout) -> Option<ByteRect> {
    let outputs = blur.plan.operations().iter().map(Operation::output).zip(&blur.needs.parts);
    let written = outputs.filter(|(output, _)| output.buffer == Buffer::Destination(plane));
    let rects = written.flat_map(|(output, rects)| {
        rects.iter().map(move |rect| field_bytes(plane, FieldRect { field: output.field, rect: *rect }))
    });
    let hull = |a: ByteRect, b: ByteRect| {
        let last = |rect: &ByteRect| rect.row + (rect.rows - 1) * rect.row_step;
        let (row, byte) = (a.row.min(b.row), a.byte.min(b.byte));
        let (rows, bytes) = (last(&a).max(last(&b)) + 1 - row, (a.byte + a.bytes).max(b.byte + b.bytes) - byte);
        ByteRect { plane, row, row_step: 1, rows, byte, bytes }
    };
    let extent = rects.map(|rect| hull(rect, rect)).reduce(hull)?;
    debug_assert!(extent.byte + extent.bytes <= layout.row_bytes());
    // The device copies whole groups from there. A view may begin within one.
    let skew = extent.byte % PACKED_GROUP;
    Some(ByteRect { byte: extent.byte - skew, bytes: extent.bytes + skew, ..extent })
}

/// The bytes of all pixels of a rectangle, whole pairs of packed 4:2:2 among them.
fn field_bytes(plane: usize, FieldRect { field, rect }: FieldRect) -> ByteRect {
    let (columns, pixel) = (field.layout.columns(rect), field.layout.pixel_bytes());
    ByteRect {
        plane,
        row: field.plane_row(rect.y()),
        row_step: field.step,
        rows: rect.height() as usize,
        byte: field.first_byte() + columns.start as usize * pixel,
        bytes: columns.len() * pixel,
    }
}

/// What crosses the bus for the regions of a frame in host memory.
pub struct RegionTransfers {
    /// The bytes of the frame that the blurs depend on. They may overlap.
    pub uploads: StagingLayout,
    /// The bytes of the frame that are written, one rectangle for each of [`RegionOutputs::blurred_rects`].
    pub downloads: StagingLayout,
    /// Whether a byte of the frame is in two of these.
    pub overlap: bool,
}

impl RegionTransfers {
    /// For regions of frames in host memory.
    pub fn new(regions: &RegionBlurPlan) -> Self {
        let layouts = regions.layouts();
        let uploads = (0..layouts.len()).flat_map(|plane| uploads(regions, plane, &layouts[plane]));
        let written: Vec<ByteRect> = regions.blurs().iter().flat_map(covered_bytes).collect();
        let overlaps = |end: usize| written[..end].iter().any(|rect| rect.overlaps(&written[end]));
        Self {
            uploads: StagingLayout::new(uploads.map(|rect| (rect, 0))),
            overlap: (1..written.len()).any(overlaps),
            // Each is aligned as in the blurred plane, so that whole groups are written.
            downloads: StagingLayout::new(written.into_iter().map(|rect| (rect, rect.byte % PACKED_GROUP))),
        }
    }
}

/// The bytes of a plane that the blurs depend on, or all bytes if these are fewer.
fn uploads(regions: &RegionBlurPlan, plane: usize, layout: &PlaneLayout) -> Vec<ByteRect> {
    /// Bytes that take as long to pack and to upload as one more rectangle.
    const RECT_BYTES: u64 = 8 << 10;
    /// Every format has rows that are aligned to 16 bytes at multiples of 16 columns, if the frame is, which the kernels load
    /// fastest; of packed 4:2:2 that is 32 columns.
    const COLUMNS: u32 = 32;
    let pixel = layout.row_bytes() as u64;
    let mut rects = Vec::new();
    for field in layout.fields() {
        let reads = regions.blurs().iter().flat_map(|blur| &blur.needs.reads);
        let of_field = reads.filter(|(of, read)| *of == plane && read.field.place() == field.place());
        let rounded = of_field.map(|(_, FieldRect { rect, .. })| {
            let right = rect.right().next_multiple_of(COLUMNS).min(field.layout.width);
            Rect::between([rect.x() / COLUMNS * COLUMNS, right], [rect.y(), rect.bottom()]).expect("a larger rectangle")
        });
        let bytes = |rect: Rect| rect.area() * pixel / u64::from(layout.width) + RECT_BYTES;
        let parts = joined(rounded, bytes);
        rects.extend(parts.into_iter().map(|rect| field_bytes(plane, FieldRect { field, rect })));
    }
    let whole = ByteRect::whole(plane, layout);
    if rects.iter().map(ByteRect::size).sum::<usize>() >= whole.size() { vec![whole] } else { rects }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::kernels::tiles::TILES;
    use crate::filter::BlurParams;
    use crate::filter::cover::{BlurRegion, Hide};
    use crate::filter::plan::{Plan, Selection};
    use std::sync::Arc;

    fn regions(regions: &[([u32; 4], f64)]) -> RegionBlurPlan {
        let region = |([x, y, width, height], sigma): &([u32; 4], f64)| BlurRegion {
            rect: Rect::new(*x, *y, *width, *height).unwrap(),
            params: BlurParams::new(*sigma, 0).unwrap(),
        };
        let cover = Hide::Blur { planes: Selection::ALL, regions: regions.iter().map(region).collect() };
        let layouts = [PlaneLayout::new(400, 300, 3, 8)];
        RegionBlurPlan::new(&cover, &layouts, TILES, |options| Arc::new(Plan::new(options, &layouts)))
    }

    /// Threads write rectangles that do not overlap in any order.
    #[test]
    fn patches_that_overlap_are_known() {
        let overlap = |of: &[([u32; 4], f64)]| RegionTransfers::new(&regions(of)).overlap;
        let first = [50, 50, 40, 40];
        assert!(overlap(&[(first, 1.0), ([80, 80, 40, 40], 2.0)]));
        assert!(!overlap(&[(first, 1.0), ([90, 50, 40, 40], 2.0)]));
        // Rectangles of one strength are made disjoint.
        assert!(!overlap(&[(first, 1.0), ([80, 80, 40, 40], 1.0)]));
    }

    #[test]
    fn a_plane_is_uploaded_once_at_most() {
        let apart = RegionTransfers::new(&regions(&[([50, 50, 40, 40], 1.0), ([300, 200, 9, 9], 2.0)])).uploads;
        assert_eq!(apart.rects.len(), 2);
        assert!(apart.bytes() < 400 * 300 * 3 / 10);
        let sigmas = [1.0, 2.0, 3.0, 3.4];
        let whole = RegionTransfers::new(&regions(&sigmas.map(|sigma| ([50, 50, 300 - sigma as u32, 200], sigma))));
        assert!(whole.uploads.bytes() <= 400 * 300 * 3);
        assert_eq!(whole.uploads.rects.len(), 1);
    }

    /// What several blurs write does not overlap, and all of it is in the block.
    #[test]
    fn outputs_have_memory_of_their_own() {
        let regions = regions(&[([50, 50, 40, 40], 1.0), ([300, 200, 9, 90], 2.0), ([0, 0, 9, 9], 40.0)]);
        let block = 1 << 20;
        let outputs = RegionOutputs::new(&regions, block);
        let mut memory: Vec<[u64; 2]> = regions
            .blurs()
            .iter()
            .zip(&outputs.planes)
            .map(|(blur, planes)| {
                let extent = extent(blur, 0, &regions.layouts()[0]).unwrap();
                let rows = extent.within(&planes[0]);
                assert_eq!(rows.address % WORKSPACE_ALIGNMENT as u64, 0);
                [rows.address, rows.row(extent.rows - 1) + extent.bytes as u64]
            })
            .collect();
        memory.sort_unstable();
        assert!(memory[0][0] == block && memory[2][1] <= block + outputs.bytes as u64);
        assert!(memory.windows(2).all(|pair| pair[0][1] <= pair[1][0]), "{memory:?}");
    }
}
