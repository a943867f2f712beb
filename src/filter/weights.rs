// SPDX-License-Identifier: MPL-2.0
//! The weights of a cover at each sample, for soft edges, ellipses and masks: 8-bit values on a grid of nodes. docs/ARITHMETIC.md
//! has the formulas.
//!
//! Nodes are 1 to 32 luma samples apart, so that a frame has at most two grids of 256 KB. Between nodes, weights are bilinear.
//! Covered objects are rounded outwards, and shown objects inwards. Soft edges lie on the side that is shown, so every sample
//! that must be hidden has the full weight. With a lower weight, its value could be computed from the result and the cover.

use std::ops::Range;
use std::sync::Arc;

use super::layout::MAX_DIMENSION;
pub use super::node_grid::cell;
use super::node_grid::{CELLS, NodeGrid};
use super::regions::{Area, Rect};

/// The shape of an object: 8-bit samples, stretched over an area of the picture. A sample of 255 is the object, and samples from
/// 128 on count as inside.
#[derive(Debug, Clone, PartialEq)]
pub struct Mask {
    columns: u32,
    rows: u32,
    samples: Arc<[u8]>,
    area: Area,
}

impl Mask {
    /// A mask with these columns and rows; `samples` has the rows one after the other. `None` if either number is 0 or above
    /// [`MAX_DIMENSION`], or if the number of samples is wrong.
    pub fn new(columns: u32, rows: u32, samples: Vec<u8>, area: Area) -> Option<Self> {
        let is_valid = |side: u32| (1..=MAX_DIMENSION).contains(&side);
        let fits = is_valid(columns) && is_valid(rows) && samples.len() == columns as usize * rows as usize;
        fits.then(|| Self { columns, rows, samples: samples.into(), area })
    }

    /// The area of the mask, in luma samples.
    pub fn area(&self) -> Area {
        self.area
    }

    /// The smallest area around all samples that are not 0; `None` if all are 0.
    pub fn object(&self) -> Option<Area> {
        // The OR of all samples of each column and of each row, in one pass without branches.
        let mut of_columns = vec![0; self.columns as usize];
        let of_row = |row: &[u8]| {
            of_columns.iter_mut().zip(row).fold(0, |all, (column, sample)| {
                *column |= sample;
                all | sample
            })
        };
        let of_rows: Vec<u8> = self.samples.chunks(self.columns as usize).map(of_row).collect();
        let ends = |bits: &[u8]| Some((bits.iter().position(|b| *b > 0)?, bits.iter().rposition(|b| *b > 0)? + 1));
        let ((left, right), (top, bottom)) = (ends(&of_columns)?, ends(&of_rows)?);
        let Area { left: x, top: y, right: end, bottom: foot } = self.area;
        let [across, down] = [(end - x) / f64::from(self.columns), (foot - y) / f64::from(self.rows)];
        let [left, right] = [left, right].map(|column| x + across * column as f64);
        let [top, bottom] = [top, bottom].map(|row| y + down * row as f64);
        Some(Area { left, top, right, bottom })
    }

    /// The longer side of one sample of the mask, in luma samples; `None` if the area is empty.
    fn sample_side(&self) -> Option<u64> {
        let [x, y] = whole(self.area, Treatment::Covered)?;
        let side = |axis: Range<i64>, count: u32| ((axis.end - axis.start) as u64).div_ceil(count.into());
        Some(side(x, self.columns).max(side(y, self.rows)))
    }
}

/// The part of an area that is the object.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// The whole area.
    Box,
    /// The ellipse that fits into the area.
    Ellipse,
    /// The samples of the mask, stretched over the mask's own area.
    Mask(Mask),
}

/// An object that is covered or shown.
#[derive(Debug, Clone, PartialEq)]
pub struct Object {
    /// The area of the object, in luma samples. It is not used if `shape` is a mask.
    pub area: Area,
    /// The part of the area that is the object.
    pub shape: Shape,
}

/// The edge of the objects, in luma samples.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Edge {
    /// The distance by which objects grow. A negative distance shrinks them.
    pub grow: i32,
    /// The radius of the soft edge, which is twice as wide. It is at most 128 cells of the grid, so that sums fit in 16 bits.
    pub feather: u32,
}

impl Edge {
    /// The largest distance, in luma samples, that a cover reaches beyond an object in a picture of this size, including the
    /// rounding to nodes.
    fn reach(self, size: (u32, u32)) -> u32 {
        let cell = cell(size);
        let cells = |samples: u32| samples.div_ceil(cell);
        (4 + cells(self.grow.max(0).unsigned_abs()) + 2 * cells(self.feather)) * cell
    }
}

/// Whether an object is covered or shown. This decides in which direction its edge is rounded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Treatment {
    Covered,
    Shown,
}

/// The weights of a cover: 255 where it hides the picture completely, 0 where the picture stays unchanged.
#[derive(Debug, Clone, PartialEq)]
pub struct Weights {
    grid: NodeGrid,
}

impl Weights {
    /// The weights of a cover over objects. The objects and up to two cells around them are covered completely. The soft edge
    /// lies around that.
    pub fn inside(size: (u32, u32), objects: &[Object], edge: Edge) -> Self {
        // Parts of objects beyond the picture count, because they can grow into it. At the edges of the picture, objects do not
        // shrink, because they may continue beyond.
        Self::covering(NodeGrid::around(size, edge.grow.max(0)), objects, edge)
    }

    /// Whether any node in the picture is covered completely after `object` has shrunk. Here the object also shrinks from where
    /// it ends beyond the picture.
    pub fn leaves_any(size: (u32, u32), object: &Object, edge: Edge) -> bool {
        Self::covering(NodeGrid::around(size, edge.grow), std::slice::from_ref(object), edge).grid.values.contains(&255)
    }

    fn covering(mut grid: NodeGrid, objects: &[Object], edge: Edge) -> Self {
        let spare = &mut Vec::new();
        objects.iter().for_each(|object| grid.add(object, Treatment::Covered, spare));
        grid.map(|v| v.saturating_mul(2));
        grid.widen(1, u8::max, spare);
        grid.grow(edge.grow, Treatment::Covered, spare);
        grid.feather(edge.feather, u8::max, spare);
        Self { grid }
    }

    /// The weights of a cover over everything except objects. The soft edge lies inside the objects.
    pub fn outside(size: (u32, u32), objects: &[Object], edge: Edge) -> Self {
        // Parts of objects beyond the picture do not grow into it, because they would be shown.
        let (mut grid, spare) = (NodeGrid::around(size, edge.grow.min(0)), &mut Vec::new());
        objects.iter().for_each(|object| grid.add(object, Treatment::Shown, spare));
        grid.map(|v| (2 * u16::from(v)).saturating_sub(255) as u8);
        grid.grow(edge.grow, Treatment::Shown, spare);
        grid.feather(edge.feather, u8::min, spare);
        grid.map(|shown| 255 - shown);
        Self { grid }
    }

    /// The weights by which samples of objects, and samples around them, are left out of the blur of a background. Masks are
    /// often a little too small, so a guard around each mask is left out, too. It is one sample of the mask wide, but at most σ.
    pub fn excluded(size: (u32, u32), objects: &[Object], sigma: f64) -> Self {
        let guard = |object: &Object| object.guard(sigma).div_ceil(cell(size));
        let mut guards: Vec<u32> = objects.iter().map(guard).collect();
        guards.sort_unstable();
        guards.dedup();
        let spare = &mut Vec::new();
        let of_guard = |cells: u32| {
            let mut grid = NodeGrid::new(size);
            let objects = objects.iter().filter(|object| guard(object) == cells);
            objects.for_each(|object| grid.add(object, Treatment::Covered, spare));
            grid.map(|v| v.saturating_mul(2));
            grid.widen(cells, u8::max, spare);
            Self { grid }
        };
        let all = guards.into_iter().map(of_guard).reduce(|mut all, one| {
            all.unite(&one);
            all
        });
        all.unwrap_or_else(|| Self { grid: NodeGrid::new(size) })
    }

    /// The luma samples from one node to the next, a power of two.
    pub fn cell(&self) -> u32 {
        self.grid.cell
    }

    /// The number of columns, the number of rows, and the values of the nodes.
    pub fn nodes(&self) -> (u32, u32, &[u8]) {
        (self.grid.columns as u32, self.grid.rows as u32, &self.grid.values)
    }

    /// Width and height of the picture, in luma samples.
    pub fn size(&self) -> (u32, u32) {
        self.grid.size
    }

    /// Writes the weights of luma samples of row `y` of the picture, from column `x` on, which is a multiple of
    /// [`Weights::cell`]. `between` is memory that calls can reuse.
    ///
    /// # Panics
    /// If the picture does not have the row, or has fewer samples in it.
    #[inline(always)]
    pub fn row_from(&self, x: u32, y: u32, between: &mut Vec<u16>, weights: &mut [u8]) {
        debug_assert!(x.is_multiple_of(self.grid.cell), "column {x} with cells of {}", self.grid.cell);
        self.grid.sample_row((x / self.grid.cell) as usize, y, between, weights);
    }

    /// The OR and the AND of the nodes that affect the luma samples of these rows, for each column of nodes.
    ///
    /// # Panics
    /// If `rows` is empty or exceeds the picture.
    pub fn node_bits(&self, rows: Range<usize>) -> [Vec<u8>; 2] {
        let cell = self.grid.cell as usize;
        let nodes = rows.start / cell..((rows.end - 1) / cell + 2).min(self.grid.rows);
        let mut any = self.grid.row(nodes.start).to_vec();
        let mut all = any.clone();
        for row in nodes.skip(1) {
            for ((any, all), value) in any.iter_mut().zip(&mut all).zip(self.grid.row(row)) {
                *any |= value;
                *all &= value;
            }
        }
        [any, all]
    }

    /// Gives each node the larger weight of both, so that the result hides what either of them hides.
    ///
    /// # Panics
    /// If the weights are for pictures of different sizes.
    pub fn unite(&mut self, other: &Self) {
        assert_eq!(self.size(), other.size(), "weights of other pictures");
        self.grid.values.iter_mut().zip(&other.grid.values).for_each(|(one, other)| *one = (*one).max(*other));
    }

    /// The share of nodes whose weight is 255.
    pub fn hidden_share(&self) -> f64 {
        let hidden = self.grid.values.iter().filter(|value| **value == 255).count();
        hidden as f64 / self.grid.values.len() as f64
    }

    /// Rectangles, in luma samples, that contain all samples of the picture with a weight above 0. Their edges are multiples of a
    /// large step, so that small movements seldom change them.
    pub fn rects(&self) -> Vec<Rect> {
        const BANDS: u32 = 8;
        const STEP: u32 = 64;
        let (width, height) = self.size();
        let band = height.div_ceil(BANDS).next_multiple_of(STEP).min(height);
        let mut rects = Vec::new();
        for top in (0..height).step_by(band as usize) {
            let bottom = (top + band).min(height);
            let rows = (top / self.grid.cell) as usize..(bottom - 1).div_ceil(self.grid.cell) as usize + 1;
            // Whether a node that affects these columns has a weight above 0.
            let is_covered = |[left, right]: [u32; 2]| {
                let columns = (left / self.grid.cell) as usize..(right - 1).div_ceil(self.grid.cell) as usize + 1;
                rows.clone().any(|row| self.grid.row(row)[columns.clone()].iter().any(|value| *value > 0))
            };
            let steps = (0..width).step_by(STEP as usize).map(|left| [left, (left + STEP).min(width)]);
            let covered: Vec<[u32; 2]> = steps.filter(|step| is_covered(*step)).collect();
            let joined = covered.chunk_by(|one, next| one[1] == next[0]);
            rects.extend(joined.filter_map(|run| Rect::between([run[0][0], run[run.len() - 1][1]], [top, bottom])));
        }
        rects
    }
}

impl Object {
    /// A rectangle of the picture outside of which the weights of a cover over the object are 0; `None` if all weights are 0.
    pub fn reach(&self, edge: Edge, size: (u32, u32)) -> Option<Rect> {
        let area = match &self.shape {
            Shape::Box | Shape::Ellipse => self.area,
            Shape::Mask(mask) => {
                // A sample of the mask reaches to its neighbours, which count as object, and these reach to their neighbours.
                let reach = 3.0 * mask.sample_side()?.max(cell(size).into()) as f64;
                mask.object()?.wider(reach)
            }
        };
        Rect::covering(area.wider(edge.reach(size).into()), size)
    }

    /// The width of the guard around a mask, in luma samples: see [`Weights::excluded`].
    fn guard(&self, sigma: f64) -> u32 {
        let Shape::Mask(mask) = &self.shape else { return 0 };
        mask.sample_side().map_or(0, |side| side.min(sigma as u64) as u32)
    }
}

/// The columns and rows of an area in whole samples, rounded outwards if it is covered and inwards if it is shown. `None` if it
/// is empty. If an edge of a covered area is not a number, it lies beyond the picture, as for [`Rect::covering`]; a shown area is
/// then empty.
fn whole(area: Area, treatment: Treatment) -> Option<[Range<i64>; 2]> {
    // A coordinate beyond every picture, but small enough for all products.
    const FAR: f64 = 1e11;
    if area.is_empty() {
        return None;
    }
    let axis = |low: f64, high: f64| {
        let [low, high] = match treatment {
            Treatment::Covered => [low.floor().max(-FAR), high.ceil().min(FAR)],
            Treatment::Shown => [low.ceil(), high.floor()],
        };
        (low < high).then(|| low.clamp(-FAR, FAR) as i64..high.clamp(-FAR, FAR) as i64).filter(|axis| !axis.is_empty())
    };
    Some([axis(area.left, area.right)?, axis(area.top, area.bottom)?])
}

/// Adds a mask to nodes of a row, whose `positions` among the samples are in 1/256. `between` has the samples between two rows of the
/// mask, times 256; `nearest` has the row that is the nearest one.
fn add_samples(to: &mut [u8], positions: &[u32], between: &[u32], nearest: &[u8], treatment: Treatment) {
    let [first, last] = [positions[0], positions[positions.len() - 1]].map(|p| (p >> 8) as usize);
    let range = first..=(last + 1).min(between.len() - 1);
    let (samples, nearest) = (&between[range.clone()], &nearest[range]);
    let is_hidden = |sample: &u8| treatment == Treatment::Shown && *sample < 128;
    let is_same = samples.iter().fold(0, |all, value| all | (value ^ samples[0])) == 0;
    if is_same && !nearest.iter().any(is_hidden) {
        let value = ((samples[0] + 128) >> 8) as u8;
        to.iter_mut().for_each(|to| *to = (*to).max(value));
        return;
    }
    for (to, p) in to.iter_mut().zip(positions) {
        let (left, fraction) = ((p >> 8) as usize - first, p & 255);
        let right = (left + 1).min(samples.len() - 1);
        if is_hidden(&nearest[if fraction < 128 { left } else { right }]) {
            continue;
        }
        let sum = samples[left] * (256 - fraction) + samples[right] * fraction;
        *to = (*to).max(((sum + (1 << 15)) >> 16) as u8);
    }
}

impl NodeGrid {
    /// Adds an object. Each node gets the largest value of all objects.
    fn add(&mut self, object: &Object, treatment: Treatment, spare: &mut Vec<u8>) {
        let area = if let Shape::Mask(mask) = &object.shape { mask.area } else { object.area };
        let of_box = Mask { columns: 1, rows: 1, samples: [255_u8].into(), area };
        if !area.edges().iter().all(|edge| edge.is_finite()) {
            // The area is unknown, so a covered object hides all of it, and a shown object shows nothing.
            if treatment == Treatment::Covered {
                self.add_mask(&of_box, false, treatment, spare);
            }
            return;
        }
        let (mask, goes_on) = match &object.shape {
            Shape::Ellipse => return self.add_ellipse(area, treatment),
            Shape::Box => (&of_box, false),
            Shape::Mask(mask) => (mask, true),
        };
        if treatment == Treatment::Covered || self.cell == 1 {
            return self.add_mask(mask, goes_on, treatment, spare);
        }
        // Between a node that is shown and one that is not, interpolation would show a part beyond the object. So the shown
        // object is narrowed by one node.
        let mut shown = Self::with_margin(self.size, self.margin);
        shown.add_mask(mask, goes_on, treatment, spare);
        shown.widen(1, u8::min, spare);
        self.values.iter_mut().zip(&shown.values).for_each(|(all, value)| *all = (*all).max(*value));
    }

    /// Adds the values of a mask. They are bilinear between its samples, at positions rounded down to 1/256 of a sample. A mask
    /// that is finer than the grid is first pooled by the largest or smallest sample, so that no thin part lies between nodes. In
    /// a covered mask, the neighbours of each sample count as object, too, so that the whole sample does. In a shown mask, a node
    /// gets 0 if its nearest sample is not the object, so that no part of this sample is shown. If the area ends at the edge of
    /// the picture, the source of the mask has cut the object off there. With `goes_on`, the object then continues beyond the
    /// edge with the values at the edge.
    fn add_mask(&mut self, mask: &Mask, goes_on: bool, treatment: Treatment, spare: &mut Vec<u8>) {
        let Some([x, y]) = whole(mask.area, treatment) else { return };
        let (columns, rows) = (mask.columns as usize, mask.rows as usize);
        let (mask, [across, down]) = self.pooled(mask, [&x, &y], treatment, spare);
        let around = if treatment == Treatment::Covered { i64::from(self.cell) - 1 } else { 0 };
        // Returns the first node near the area along an axis, and the positions of this and the following nodes in the pooled
        // mask. Positions are computed from the mask before pooling; `pool` of its samples are one pooled sample.
        let positions = |side_of_picture: u32, axis: &Range<i64>, samples: usize, pool: usize| -> (usize, Vec<u32>) {
            let last = (samples.div_ceil(pool) as i64 - 1) * 256;
            let end = i64::from(side_of_picture);
            let [goes_on_before, goes_on_behind] = [axis.start == 0, axis.end == end].map(|is_cut| goes_on && is_cut);
            let is_near = |(_, luma): &(usize, i64)| {
                (goes_on_before || *luma >= axis.start - around) && (goes_on_behind || *luma < axis.end + around)
            };
            let position = |(_, luma): (usize, i64)| {
                let numerator = (2 * (luma - axis.start) + 1) * samples as i64 * 256;
                let p = numerator.div_euclid(2 * (axis.end - axis.start) * pool as i64) - 128;
                p.clamp(0, last) as u32
            };
            let mut near = self.lumas(side_of_picture, treatment).filter(is_near).peekable();
            let first = near.peek().map_or(0, |(node, _)| *node);
            (first, near.map(position).collect())
        };
        let (first_column, of_columns) = positions(self.size.0, &x, columns, across);
        let (first_row, of_rows) = positions(self.size.1, &y, rows, down);
        for (row, p) in (first_row..).zip(of_rows) {
            let (above, down) = ((p >> 8) as usize, p & 255);
            let below = (above + 1).min(mask.rows - 1);
            let (above, below) = (mask.row(above), mask.row(below));
            let nearest = if down < 128 { above } else { below };
            if above.iter().chain(below).fold(0, |all, value| all | value) == 0 {
                continue;
            }
            // Interpolates between the two rows first. The order does not change the sums.
            let between: Vec<u32> = above
                .iter()
                .zip(below)
                .map(|(above, below)| u32::from(*above) * (256 - down) + u32::from(*below) * down)
                .collect();
            let to = &mut self.values[row * self.columns + first_column..][..of_columns.len()];
            for (to, positions) in to.chunks_mut(CELLS).zip(of_columns.chunks(CELLS)) {
                add_samples(to, positions, &between, nearest, treatment);
            }
        }
    }

    /// A mask for this grid, widened or narrowed as [`Self::add_mask`] says, and how many samples along each axis are pooled in one.
    fn pooled(
        &self,
        mask: &Mask,
        [x, y]: [&Range<i64>; 2],
        treatment: Treatment,
        spare: &mut Vec<u8>,
    ) -> (Self, [usize; 2]) {
        let (columns, rows, samples) = (mask.columns as usize, mask.rows as usize, &mask.samples);
        let pool = |count: usize, axis: &Range<i64>| {
            (i64::from(self.cell) * count as i64 / (axis.end - axis.start)).max(1) as usize
        };
        let [across, down] = [pool(columns, x), pool(rows, y)];
        let mut pooled = Self {
            size: self.size,
            cell: self.cell,
            margin: 0,
            columns: columns.div_ceil(across),
            rows: rows.div_ceil(down),
            values: match treatment {
                _ if across == 1 && down == 1 => samples.to_vec(),
                Treatment::Covered => pooled_samples(samples, columns, [across, down], u8::max),
                Treatment::Shown => pooled_samples(samples, columns, [across, down], u8::min),
            },
        };
        let is_finer = |count: usize, pool: usize, axis: &Range<i64>| {
            i64::from(self.cell) * count as i64 > (axis.end - axis.start) * pool as i64
        };
        if treatment == Treatment::Covered {
            pooled.widen(1, u8::max, spare);
        } else {
            // A sample that is not the object may lie between two nodes.
            if is_finer(columns, across, x) {
                pooled.widen_rows(1, u8::min);
            }
            if is_finer(rows, down, y) {
                pooled.widen_columns(1, u8::min, spare);
            }
        }
        (pooled, [across, down])
    }

    /// The nodes along an axis of the picture, each with its luma sample. Where it is shown, the picture's last one stands for its last
    /// sample, because nothing is shown beyond it.
    fn lumas(&self, side_of_picture: u32, treatment: Treatment) -> impl Iterator<Item = (usize, i64)> {
        let (cell, last) = (i64::from(self.cell), i64::from(side_of_picture) - 1);
        let margin = self.margin as i64;
        let nodes = -margin..=(last + cell - 1) / cell + margin;
        (0..).zip(nodes.map(move |node| match cell * node {
            luma if treatment == Treatment::Shown && (last..last + cell).contains(&luma) => last,
            luma => luma,
        }))
    }

    /// Sets nodes to 255 by a square that reaches one cell to each side of the node. For a covered ellipse, the square has to
    /// meet the ellipse; for a shown one, it has to lie within the ellipse.
    fn add_ellipse(&mut self, area: Area, treatment: Treatment) {
        let Some([x, y]) = whole(area, treatment) else { return };
        let (cell, margin) = (i64::from(self.cell), self.margin as i64);
        let distances = |count: usize, axis: Range<i64>| -> Vec<f64> {
            let length = axis.end - axis.start;
            let distance = |node: i64| {
                let away = (2 * cell * (node - margin) - 2 * axis.start - length + 1).abs();
                let nearest = if treatment == Treatment::Covered { (away - 2 * cell).max(0) } else { away + 2 * cell };
                nearest as f64 / length as f64
            };
            (0..count as i64).map(distance).collect()
        };
        let across = distances(self.columns, x);
        let down = distances(self.rows, y);
        // The distances fall up to the middle and rise after it.
        let middle = across.windows(2).take_while(|pair| pair[1] <= pair[0]).count();
        for (row, dy) in self.values.chunks_mut(self.columns).zip(down) {
            let is_inside = |dx: &f64| dx * dx + dy * dy <= 1.0;
            let first = across[..=middle].partition_point(|dx| !is_inside(dx));
            let end = middle + across[middle..].partition_point(is_inside);
            if first < end {
                row[first..end].fill(255);
            }
        }
    }

    /// Grows objects, or shrinks them if `samples` is negative. Distances are rounded so that a cover is not smaller than
    /// requested. Then removes the margin.
    fn grow(&mut self, samples: i32, treatment: Treatment, spare: &mut Vec<u8>) {
        let count = samples.unsigned_abs();
        let cells = if (samples >= 0) == (treatment == Treatment::Covered) {
            count.div_ceil(self.cell)
        } else {
            count / self.cell
        };
        if samples >= 0 {
            self.widen(cells, u8::max, spare);
        } else {
            self.widen(cells, u8::min, spare);
        }
        self.crop();
    }
}

/// Pools blocks of `across` by `down` samples of a mask by `pick`, which returns the larger or the smaller of two samples. The
/// function is generic, because an indirect call for each sample would be slow.
fn pooled_samples(
    samples: &[u8],
    columns: usize,
    [across, down]: [usize; 2],
    pick: impl Fn(u8, u8) -> u8 + Copy,
) -> Vec<u8> {
    let mut pooled = Vec::new();
    for rows in samples.chunks(columns * down) {
        let (first, others) = rows.split_at(columns);
        let mut row = first.to_vec();
        for samples in others.chunks(columns) {
            row.iter_mut().zip(samples).for_each(|(pooled, sample)| *pooled = pick(*pooled, *sample));
        }
        pooled.extend(row.chunks(across).map(|samples| samples.iter().copied().fold(samples[0], pick)));
    }
    pooled
}
