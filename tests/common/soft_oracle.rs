//! The oracle of soft covers: which samples an object has, the weights at the nodes and at the samples, the mix, and the background
//! without the object, one operation a line, simple enough to check by reading.

use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::{PlaneLayout, SampleLayout};
use gstcudagaussblur::filter::picture::PictureGeometry;
use gstcudagaussblur::filter::plan::{AlphaMode, Options, Selection};
use gstcudagaussblur::filter::regions::Area;
use gstcudagaussblur::filter::weights::{Edge, Mask, Object, Shape};

use super::frames::{Component, components, frame};
use super::oracle::pixels;
use super::pictures::{Picture, pitch};

/// What an object is within its area.
#[derive(Debug, Clone)]
pub enum Form {
    Box,
    Ellipse,
    Mask { columns: u32, rows: u32, samples: Vec<u8> },
}

/// Tolerance for the rounding of floating-point numbers, in samples.
pub const EPSILON: f64 = 1e-5;

/// An object, in luma samples.
#[derive(Debug, Clone)]
pub struct Item {
    pub area: Area,
    pub form: Form,
}

impl Item {
    /// As the program has it.
    pub fn object(&self) -> Object {
        let shape = match &self.form {
            Form::Box => Shape::Box,
            Form::Ellipse => Shape::Ellipse,
            Form::Mask { columns, rows, samples } => {
                Shape::Mask(Mask::new(*columns, *rows, samples.clone(), self.area).expect("the mask has its samples"))
            }
        };
        // The area of a mask is its own.
        let area = match self.form {
            Form::Mask { .. } => Area::from_corner(-7.0, 3.0, 1.0, 1.0),
            _ => self.area,
        };
        Object { area, shape }
    }

    /// Whether a part of a luma sample is in the box, more than a tolerance, or (with a negative one) almost.
    fn is_in_box(&self, sample: [i64; 2], tolerance: f64) -> bool {
        let Area { left, top, right, bottom } = self.area;
        [(left, right), (top, bottom)]
            .into_iter()
            .zip(sample)
            .all(|((low, high), at)| low < at as f64 + 1.0 - tolerance && high > at as f64 + tolerance && high > low)
    }

    /// The distance of a point from the centre, where the ellipse in the box is 1 away.
    fn distance(&self, point: [f64; 2]) -> f64 {
        let Area { left, top, right, bottom } = self.area;
        let of_axis = |at: f64, low: f64, high: f64| (2.0 * at - low - high) / (high - low);
        of_axis(point[0], left, right).hypot(of_axis(point[1], top, bottom))
    }

    /// Whether all, or any, of the samples of a mask that a luma sample meets are inside. With `covers` these are the samples that it
    /// has any part of, else the one at its centre and all whose centres it has.
    fn is_inside_mask(&self, sample: [i64; 2], covers: bool) -> bool {
        let (Form::Mask { columns, rows, samples }, Some((begin, length))) = (&self.form, self.whole(covers)) else {
            return false;
        };
        let [across, down] = [(0, columns), (1, rows)].map(|(axis, count)| {
            let (at, length, count) = (sample[axis] - begin[axis], length[axis], i64::from(*count));
            if !(0..length).contains(&at) {
                return 0..0;
            }
            let own = (2 * at + 1) * count / (2 * length);
            // The first sample whose centre is not before a luma sample.
            let first = |at: i64| -(length - 2 * count * at).div_euclid(2 * length);
            match covers {
                true => at * count / length..up((at + 1) * count, length),
                false => own.min(first(at))..(own + 1).max(first(at + 1)),
            }
        });
        let mut met = down.flat_map(|row| across.clone().map(move |column| row * i64::from(*columns) + column));
        let is_inside = |i: i64| samples[i as usize] >= 128;
        if covers { met.any(is_inside) } else { !across.is_empty() && met.all(is_inside) }
    }

    /// Whether any part of a luma sample is the object's, so that it is covered.
    pub fn touches(&self, x: i64, y: i64) -> bool {
        let Area { left, top, right, bottom } = self.area;
        self.is_in_box([x, y], EPSILON)
            && match self.form {
                Form::Box => true,
                Form::Ellipse => {
                    let nearest = [(left, right, x), (top, bottom, y)]
                        .map(|(low, high, at)| f64::midpoint(low, high).clamp(at as f64, at as f64 + 1.0));
                    self.distance(nearest) < 1.0 - EPSILON
                }
                Form::Mask { .. } => self.is_inside_mask([x, y], true),
            }
    }

    /// Whether a luma sample may be shown as the object's where all but objects are covered.
    pub fn may_show(&self, x: i64, y: i64) -> bool {
        self.is_in_box([x, y], -EPSILON)
            && match self.form {
                Form::Box => true,
                Form::Ellipse => self.distance([x as f64 + 0.5, y as f64 + 0.5]) <= 1.0 + EPSILON,
                Form::Mask { .. } => self.is_inside_mask([x, y], false),
            }
    }

    /// The box in whole samples: x, y, width and height. Rounded outwards where it `covers`, else inwards.
    fn whole(&self, covers: bool) -> Option<([i64; 2], [i64; 2])> {
        let Area { left, top, right, bottom } = self.area;
        if left >= right || top >= bottom {
            return None;
        }
        let low = |edge: f64| if covers { edge.floor() as i64 } else { edge.ceil() as i64 };
        let high = |edge: f64| if covers { edge.ceil() as i64 } else { edge.floor() as i64 };
        let (begin, end) = ([low(left), low(top)], [high(right), high(bottom)]);
        (begin[0] < end[0] && begin[1] < end[1]).then_some((begin, [end[0] - begin[0], end[1] - begin[1]]))
    }

    /// The object at the nodes: 255 is the object, 128 and more is inside.
    fn at_nodes(&self, nodes: Nodes, covers: bool) -> Nodes {
        let Some((begin, length)) = self.whole(covers) else { return nodes };
        let (columns, rows, samples) = match &self.form {
            Form::Ellipse => return nodes.ellipse(begin, length, covers),
            Form::Box => (&1, &1, &vec![255]),
            Form::Mask { columns, rows, samples } => (columns, rows, samples),
        };
        let values = samples.iter().map(|sample| i64::from(*sample)).collect();
        let mask = Grid { columns: *columns as usize, rows: *rows as usize, values };
        nodes.stretched(&mask, begin, length, !matches!(self.form, Form::Box), covers)
    }

    /// Luma samples around the object that the background leaves out too.
    fn guard(&self, sigma: f64) -> i64 {
        let (Form::Mask { columns, rows, .. }, Some((_, [width, height]))) = (&self.form, self.whole(true)) else {
            return 0;
        };
        let cell = up(width, i64::from(*columns)).max(up(height, i64::from(*rows)));
        cell.min(sigma as i64)
    }
}

/// The quotient rounded up.
fn up(value: i64, by: i64) -> i64 {
    -(-value).div_euclid(by)
}

/// Values in rows.
#[derive(Debug, Clone)]
struct Grid {
    columns: usize,
    rows: usize,
    values: Vec<i64>,
}

impl Grid {
    /// A value for each column and row.
    fn made(columns: usize, rows: usize, value: impl Fn(usize, usize) -> i64) -> Self {
        Self { columns, rows, values: pixels(columns, rows, 1).map(|(y, x, _)| value(x, y)).collect() }
    }

    fn at(&self, x: usize, y: usize) -> i64 {
        self.values[y * self.columns + x]
    }

    fn map(&self, value: impl Fn(i64) -> i64) -> Self {
        Self { values: self.values.iter().copied().map(value).collect(), ..*self }
    }

    /// At 1/across and 1/down of the size, the largest or smallest value of each block.
    fn pooled(&self, across: usize, down: usize, largest: bool) -> Self {
        Self::made(self.columns.div_ceil(across), self.rows.div_ceil(down), |x, y| {
            let rows = y * down..((y + 1) * down).min(self.rows);
            let block = rows.flat_map(|y| (x * across..((x + 1) * across).min(self.columns)).map(move |x| (x, y)));
            let values = block.map(|(x, y)| self.at(x, y));
            if largest { values.max() } else { values.min() }.expect("a block has values")
        })
    }

    /// What `join` makes of the values at most so many columns away in a row, then of those at most so many rows away in a column,
    /// and `finish` of each. Beyond the grid the edge repeats.
    fn windows(&self, [across, down]: [i64; 2], join: impl Fn(i64, i64) -> i64, finish: impl Fn(i64) -> i64) -> Self {
        let near = |i: usize, radius: i64, count: usize| {
            (i as i64 - radius..=i as i64 + radius).map(move |k| k.clamp(0, count as i64 - 1) as usize)
        };
        let joined =
            |values: &mut dyn Iterator<Item = i64>| finish(values.reduce(&join).expect("a value is near itself"));
        let rows = Self::made(self.columns, self.rows, |x, y| {
            joined(&mut near(x, across, self.columns).map(|x| self.at(x, y)))
        });
        Self::made(self.columns, self.rows, |x, y| joined(&mut near(y, down, self.rows).map(|y| rows.at(x, y))))
    }

    fn widest(&self, radius: i64, largest: bool) -> Self {
        self.windows([radius; 2], if largest { i64::max } else { i64::min }, |v| v)
    }

    /// Means, halves up.
    fn mean(&self, radius: i64) -> Self {
        self.windows([radius; 2], |sum, v| sum + v, |sum| (sum + radius) / (2 * radius + 1))
    }

    fn grown(&self, grow: i64, g: i64, covers: bool) -> Self {
        match (grow >= 0, covers) {
            (true, true) => self.widest(up(grow, g), true),
            (false, true) => self.widest(-grow / g, false),
            (true, false) => self.widest(grow / g, true),
            (false, false) => self.widest(up(-grow, g), false),
        }
    }
}

/// Weights at the nodes of a grid of cells of `g` luma samples.
#[derive(Debug, Clone)]
pub struct Nodes {
    /// Of the picture.
    size: (u32, u32),
    g: i64,
    /// Nodes beyond the picture on each side.
    margin: i64,
    grid: Grid,
}

impl Nodes {
    /// The nodes of a picture, all 0.
    fn new((width, height): (u32, u32)) -> Self {
        let mut g = 1;
        while i64::from(width.max(height)) > 512 * g {
            g *= 2;
        }
        let count = |length: u32| up(i64::from(length) - 1, g) as usize + 1;
        Self { size: (width, height), g, margin: 0, grid: Grid::made(count(width), count(height), |_, _| 0) }
    }

    /// With so many nodes more on each side, for luma samples before the picture and behind it.
    fn with_margin(self, margin: i64) -> Self {
        let [columns, rows] = [self.grid.columns, self.grid.rows].map(|count| count + 2 * margin as usize);
        Self { margin, grid: Grid::made(columns, rows, |_, _| 0), ..self }
    }

    /// Without them.
    fn cropped(self) -> Self {
        let margin = self.margin as usize;
        let [columns, rows] = [self.grid.columns, self.grid.rows].map(|count| count - 2 * margin);
        let grid = Grid::made(columns, rows, |x, y| self.grid.at(x + margin, y + margin));
        Self { margin: 0, grid, ..self }
    }

    /// A mask over a box. If it `goes_on` where its area ends at the edge of the picture, its samples there repeat beyond that.
    fn stretched(self, mask: &Grid, begin: [i64; 2], length: [i64; 2], goes_on: bool, covers: bool) -> Self {
        let g = self.g;
        let samples = [mask.columns, mask.rows];
        let finer = |axis: usize| (g * samples[axis] as i64 / length[axis]).max(1);
        let pooled = mask.pooled(finer(0) as usize, finer(1) as usize, covers);
        // One sample of it may lie between two nodes.
        let narrow = |axis: usize| i64::from(g * samples[axis] as i64 > length[axis] * finer(axis));
        let mask =
            if covers { pooled.widest(1, true) } else { pooled.windows([narrow(0), narrow(1)], i64::min, |v| v) };
        let around = if covers { g - 1 } else { 0 };
        let end = |axis: usize| i64::from([self.size.0, self.size.1][axis]);
        let luma = |axis: usize, node: usize| {
            let (at, last) = (g * (node as i64 - self.margin), end(axis) - 1);
            // The picture's last node stands for the last sample, because nothing is shown beyond it.
            if !covers && at >= last && at < last + g { last } else { at }
        };
        let is_near = |axis: usize, node: usize| {
            let luma = luma(axis, node);
            let is_behind_begin = luma >= begin[axis] - around || goes_on && begin[axis] == 0;
            let is_before_end =
                luma < begin[axis] + length[axis] + around || goes_on && begin[axis] + length[axis] == end(axis);
            is_behind_begin && is_before_end
        };
        // In 1/256 of a sample of the pooled mask.
        let position = |axis: usize, node: usize, pooled: usize| {
            let twice = 2 * (luma(axis, node) - begin[axis]) + 1;
            let p = (twice * samples[axis] as i64 * 256).div_euclid(2 * length[axis] * finer(axis)) - 128;
            p.clamp(0, (pooled as i64 - 1) * 256)
        };
        let value = |x: usize, y: usize| {
            let place = [position(0, x, mask.columns), position(1, y, mask.rows)];
            let [nearest_x, nearest_y] = place.map(|p| (p + 128) as usize / 256);
            // A node whose nearest sample is not the object is not shown, though the three around it may be.
            let is_hidden = !covers && mask.at(nearest_x, nearest_y) < 128;
            if is_hidden || !is_near(0, x) || !is_near(1, y) { 0 } else { mask.between(place, 256) }
        };
        let grid = Grid::made(self.grid.columns, self.grid.rows, value);
        // Nothing is shown between a node that is the object and one that is not.
        Self { grid: if covers || g == 1 { grid } else { grid.widest(1, false) }, ..self }
    }

    /// The nodes whose square of one cell on each side meets the ellipse in a box, or lies within it.
    fn ellipse(self, begin: [i64; 2], length: [i64; 2], covers: bool) -> Self {
        let g = self.g;
        let distance = |axis: usize, node: usize| {
            let twice = (2 * g * (node as i64 - self.margin) - 2 * begin[axis] - length[axis] + 1).abs();
            let twice = if covers { (twice - 2 * g).max(0) } else { twice + 2 * g };
            twice as f64 / length[axis] as f64
        };
        let value = |x: usize, y: usize| {
            let [dx, dy] = [distance(0, x), distance(1, y)];
            if dx * dx + dy * dy <= 1.0 { 255 } else { 0 }
        };
        Self { grid: Grid::made(self.grid.columns, self.grid.rows, value), ..self }
    }

    /// The largest of each node.
    fn largest(none: Self, grids: impl Iterator<Item = Grid>) -> Self {
        let larger =
            |one: Grid, other: Grid| Grid::made(one.columns, one.rows, |x, y| one.at(x, y).max(other.at(x, y)));
        Self { grid: grids.fold(none.grid, larger), ..none }
    }

    /// The larger weight of each node: where both covers hide.
    pub fn united(self, other: Self) -> Self {
        Self::largest(self, std::iter::once(other.grid))
    }

    /// Weights of a cover over the objects.
    pub fn inside(size: (u32, u32), items: &[Item], edge: Edge) -> Self {
        let none = Self::new(size);
        let (g, f) = (none.g, up(i64::from(edge.feather), none.g));
        // Objects grow into the picture from beyond it, and do not shrink at its edges.
        let none = none.with_margin(up(i64::from(edge.grow.max(0)), g));
        let v = Self::largest(none.clone(), items.iter().map(|item| item.at_nodes(none.clone(), true).grid));
        let w = v.grid.map(|v| (2 * v).min(255)).widest(1, true).grown(edge.grow.into(), g, true);
        let w = Self { grid: w, ..none }.cropped();
        Self { grid: w.grid.widest(f, true).mean(f), ..w }
    }

    /// Weights of a cover over all but the objects.
    pub fn outside(size: (u32, u32), items: &[Item], edge: Edge) -> Self {
        let none = Self::new(size);
        let (g, f) = (none.g, up(i64::from(edge.feather), none.g));
        // Objects shrink from where they end beyond the picture. What grows into it from there is not shown.
        let none = none.with_margin(up(i64::from(edge.grow.min(0)).abs(), g));
        let v = Self::largest(none.clone(), items.iter().map(|item| item.at_nodes(none.clone(), false).grid));
        let s = v.grid.map(|v| (2 * v - 255).max(0)).grown(edge.grow.into(), g, false);
        let s = Self { grid: s, ..none }.cropped();
        Self { grid: s.grid.widest(f, false).mean(f).map(|s| 255 - s), ..s }
    }

    /// How little of the background there is.
    pub fn excluded(size: (u32, u32), items: &[Item], sigma: f64) -> Self {
        let none = Self::new(size);
        let g = none.g;
        let guarded = |item: &Item| {
            let v = item.at_nodes(none.clone(), true).grid;
            v.map(|v| (2 * v).min(255)).widest(up(item.guard(sigma), g), true)
        };
        Self::largest(none.clone(), items.iter().map(guarded))
    }

    /// Nodes at every luma sample, whatever the size: row by row.
    pub fn of_samples_of_luma(size: (u32, u32), weight: impl Fn(u32, u32) -> u8) -> Self {
        let (columns, rows) = (size.0 as usize, size.1 as usize);
        let grid = Grid::made(columns, rows, |x, y| weight(x as u32, y as u32).into());
        Self { size, g: 1, margin: 0, grid }
    }

    pub fn cell(&self) -> u32 {
        self.g as u32
    }

    /// Columns, rows, and the weights.
    pub fn nodes(&self) -> (u32, u32, Vec<u8>) {
        let values = self.grid.values.iter().map(|value| u8::try_from(*value).expect("weights have 8 bits"));
        (self.grid.columns as u32, self.grid.rows as u32, values.collect())
    }

    /// The weight of a luma sample.
    pub fn at(&self, x: u32, y: u32) -> u64 {
        self.grid.between([x.into(), y.into()], self.g) as u64
    }

    /// The weights of the samples of a plane in memory order.
    pub fn of_samples(&self, planes: &[PlaneLayout], plane: usize) -> Vec<u64> {
        largest_of_luma(planes, plane, |x, y| self.at(x, y))
    }
}

/// For the samples of a plane in memory order, the luma beyond an odd width of packed 4:2:2 included, the largest value of the luma
/// samples that each stands for.
pub fn largest_of_luma<T: Copy + Default + PartialOrd>(
    planes: &[PlaneLayout],
    plane: usize,
    value: impl Fn(u32, u32) -> T,
) -> Vec<T> {
    let (layout, [width, height]) = (&planes[plane], PictureGeometry::new(planes).size());
    let fields = 1 + usize::from(layout.split.alternates());
    let mut largest = vec![T::default(); layout.row_samples() * layout.height as usize];
    for sample in samples(planes, plane).iter().flatten() {
        let ([x, y], [across, down]) = (sample.luma.map(|at| at as u32), sample.step.map(|step| step as u32));
        // The luma beyond an odd width belongs to the last pixel.
        let columns = if sample.is_surplus { width - 1..width } else { x..(x + across).min(width) };
        // Rows are those of the field. The last one stands for what is left of the field, and an only row for both fields.
        let is_last = sample.index / layout.row_samples() + fields >= layout.height as usize;
        let rows = match layout.height {
            1 => (0..height).step_by(1),
            _ => (y..if is_last { height } else { (y + down).min(height) }).step_by(fields),
        };
        let values = rows.flat_map(|y| columns.clone().map(move |x| (x, y))).map(|(x, y)| value(x, y));
        let larger = |one: T, other: T| if other > one { other } else { one };
        largest[sample.index] = values.reduce(larger).expect("a sample stands for luma samples");
    }
    largest
}

/// Where sample `i` of a plane is, in memory order: its first byte.
pub fn byte_of(layout: &PlaneLayout, i: usize) -> usize {
    let (y, i) = (i / layout.row_samples(), i % layout.row_samples());
    let byte = if layout.sample_layout == SampleLayout::Packed1010102 { i / 4 * 4 } else { i * layout.sample_bytes() };
    y * pitch(layout) + byte
}

fn load(layout: &PlaneLayout, bytes: &[u8], i: usize) -> u16 {
    let at = &bytes[byte_of(layout, i)..];
    match layout.sample_layout {
        SampleLayout::Packed1010102 => {
            let word = u32::from_ne_bytes([at[0], at[1], at[2], at[3]]);
            (word >> (10 * (i % 4)) & 1023) as u16
        }
        _ if layout.depth == 8 => at[0].into(),
        _ => u16::from_ne_bytes([at[0], at[1]]) >> layout.shift() & ((1_u32 << layout.depth) - 1) as u16,
    }
}

/// Writes a sample; its padding bits become 0.
pub fn store(layout: &PlaneLayout, bytes: &mut [u8], i: usize, value: u16) {
    let at = &mut bytes[byte_of(layout, i)..];
    match layout.sample_layout {
        SampleLayout::Packed1010102 => {
            let (shift, depth) = (10 * (i % 4), if i % 4 == 3 { 2 } else { 10 });
            let keep = !(((1_u32 << depth) - 1) << shift);
            let word = u32::from_ne_bytes([at[0], at[1], at[2], at[3]]) & keep | u32::from(value) << shift;
            at[..4].copy_from_slice(&word.to_ne_bytes());
        }
        _ if layout.depth == 8 => at[0] = value as u8,
        _ => at[..2].copy_from_slice(&(value << layout.shift()).to_ne_bytes()),
    }
}

/// The samples of a plane, in memory order.
pub fn values(layout: &PlaneLayout, bytes: &[u8]) -> Vec<u16> {
    (0..layout.row_samples() * layout.height as usize).map(|i| load(layout, bytes, i)).collect()
}

/// The mix of a picture and its cover, of the samples of these channels whose bytes the cover writes.
pub fn mixed(
    source: &Picture,
    cover: &Picture,
    weights: &Nodes,
    channels: Selection,
    is_written: impl Fn(usize, usize) -> bool,
) -> Picture {
    let mut out = source.clone();
    for (plane, layout) in source.planes.iter().enumerate() {
        for (i, w) in weights.of_samples(&source.planes, plane).into_iter().enumerate() {
            let is_selected = channels.contains(layout.roles[i % usize::from(layout.channels)]);
            if w == 0 || !is_selected || !is_written(plane, byte_of(layout, i)) {
                continue;
            }
            let [source, cover] = [source, cover].map(|one| u64::from(load(layout, &one.bytes[plane], i)));
            let mix = (w * cover + (255 - w) * source + 127) / 255;
            store(layout, &mut out.bytes[plane], i, mix as u16);
        }
    }
    out
}

/// One sample of a plane.
#[derive(Debug)]
pub struct Sample {
    /// In memory order.
    pub index: usize,
    pub channel: usize,
    /// The field or view that it is in.
    pub field: usize,
    /// The first luma sample that it stands for, across and down, and luma samples from it to the next one.
    pub luma: [i64; 2],
    step: [i64; 2],
    /// Whether it is the luma beyond an odd width of packed 4:2:2.
    pub is_surplus: bool,
}

/// The samples of a plane, of each channel of each field row by row.
pub fn samples(planes: &[PlaneLayout], plane: usize) -> Vec<Vec<Sample>> {
    let layout = &planes[plane];
    let of = |component: &Component| {
        let [(across, left), (down, top)] = [0, 1].map(|axis| {
            let finest = planes.iter().map(|layout| layout.sigma_scale[axis]).fold(0.0, f64::max);
            let (luma, before) = (|scale: f64| (finest / scale).round() as i64, component.before[axis] as i64);
            // A field has every second row.
            match (axis, layout.split.alternates()) {
                (1, true) => (2 * luma(layout.sigma_scale[1]), before),
                _ => (luma(component.scale[axis]), before * luma(layout.sigma_scale[axis])),
            }
        });
        let width = component.width + usize::from(component.has_surplus());
        let sample = |(y, x, _)| Sample {
            index: component.index(x, y),
            channel: component.index(0, 0) % usize::from(layout.channels),
            field: component.field,
            luma: [across * x as i64 + left, down * y as i64 + top],
            step: [across, down],
            is_surplus: x >= component.width,
        };
        pixels(width, component.height, 1).map(sample).collect()
    };
    components(layout).iter().map(of).collect()
}

impl Grid {
    /// Bilinear, halves up, where values are `step` apart and the place is so far from the first. Beyond the grid the edge repeats.
    fn between(&self, place: [i64; 2], step: i64) -> i64 {
        let near = |at: i64, count: usize| {
            let at = at.clamp(0, (count as i64 - 1) * step);
            let before = (at / step) as usize;
            (before, (before + 1).min(count - 1), at % step)
        };
        let ((x0, x1, fx), (y0, y1, fy)) = (near(place[0], self.columns), near(place[1], self.rows));
        let top = self.at(x0, y0) * (step - fx) + self.at(x1, y0) * fx;
        let bottom = self.at(x0, y1) * (step - fx) + self.at(x1, y1) * fx;
        (top * (step - fy) + bottom * fy + step * step / 2) / (step * step)
    }

    /// Which of the columns and rows are halves of one at half the size.
    fn halves(&self, x: usize, y: usize) -> Vec<(usize, usize)> {
        let columns = 2 * x..(2 * x + 2).min(self.columns);
        let rows = 2 * y..(2 * y + 2).min(self.rows);
        rows.flat_map(|y| columns.clone().map(move |x| (x, y))).collect()
    }
}

/// A mean, halves up; 0 of nothing.
fn weighted_mean(sum: i64, weight: i64) -> i64 {
    if weight == 0 { 0 } else { (2 * sum + weight) / (2 * weight) }
}

/// Colours of cells of which so much, 0 to 255, is background, and whose background has this mean: for the rest, that of larger
/// cells around.
fn spread(amount: &Grid, mean: &Grid) -> Grid {
    if (amount.columns, amount.rows) == (1, 1) {
        return mean.clone();
    }
    let [columns, rows] = [amount.columns.div_ceil(2), amount.rows.div_ceil(2)];
    // Of the halves of a larger cell: their amounts, and those times their means.
    let sums = |x: usize, y: usize| {
        let halves = amount.halves(x, y).into_iter().map(|(x, y)| (amount.at(x, y), mean.at(x, y)));
        halves.fold((0, 0), |(amounts, sum), (amount, mean)| (amounts + amount, sum + amount * mean))
    };
    // A quarter of a cell is enough to know its colour.
    let larger_amount = Grid::made(columns, rows, |x, y| sums(x, y).0.min(255));
    let larger_mean = Grid::made(columns, rows, |x, y| weighted_mean(sums(x, y).1, sums(x, y).0));
    let larger = spread(&larger_amount, &larger_mean);
    Grid::made(amount.columns, amount.rows, |x, y| {
        // In quarters of a larger cell.
        let around = larger.between([2 * x as i64 - 1, 2 * y as i64 - 1], 4);
        let a = amount.at(x, y);
        (a * mean.at(x, y) + (255 - a) * around + 127) / 255
    })
}

/// The picture in which an estimate of the background takes the place of samples, as far as they are excluded.
pub fn filled(picture: &Picture, excluded: &Nodes) -> Picture {
    let side = 4 * excluded.g;
    let [columns, rows] = [excluded.size.0, excluded.size.1].map(|length| up(length.into(), side) as usize);
    let mut out = picture.clone();
    for (plane, layout) in picture.planes.iter().enumerate() {
        let values: Vec<i64> = values(layout, &picture.bytes[plane]).into_iter().map(i64::from).collect();
        let weights: Vec<i64> =
            excluded.of_samples(&picture.planes, plane).into_iter().map(|weight| weight as i64).collect();
        for channel in samples(&picture.planes, plane) {
            // Of each cell: its samples, how much of them is background, and that times their values.
            let mut cells = vec![[0; 3]; columns * rows];
            for sample in channel.iter().filter(|sample| !sample.is_surplus) {
                let ([x, y], e) = (sample.luma.map(|at| (at / side) as usize), 255 - weights[sample.index]);
                let [count, background, sum] = &mut cells[y * columns + x];
                *count += 1;
                *background += e;
                *sum += e * values[sample.index];
            }
            let grid =
                |value: &dyn Fn(&[i64; 3]) -> i64| Grid { columns, rows, values: cells.iter().map(value).collect() };
            let amount = grid(&|[count, background, _]| match count {
                0 => 0,
                count => up(4 * background, *count).min(255),
            });
            let colours = spread(&amount, &grid(&|[_, background, sum]| weighted_mean(*sum, *background)));
            // Nothing says what the background is: its colour is that of the first sample in the first cell.
            let is_known = cells.iter().any(|[_, background, _]| *background > 0);
            let first = || if cells[0][0] > 0 { values[channel[0].index] } else { 0 };
            for sample in channel.iter().filter(|sample| weights[sample.index] > 0) {
                // Half luma samples from the centre of the first cell to that of the sample.
                let past = [0, 1].map(|axis| 2 * sample.luma[axis] + sample.step[axis] - side);
                let (w, estimate) =
                    (weights[sample.index], if is_known { colours.between(past, 2 * side) } else { first() });
                let value = (w * estimate + (255 - w) * values[sample.index] + 127) / 255;
                store(layout, &mut out.bytes[plane], sample.index, value as u16);
            }
        }
    }
    out
}

/// The blur of a picture without what is excluded. Planes and channels that are not selected keep their values.
pub fn background(picture: &Picture, params: &BlurParams, selection: Selection, excluded: &Nodes) -> Picture {
    let filled = filled(picture, excluded);
    let planes = || picture.planes.iter().enumerate();
    let samples: Vec<Vec<u16>> = planes().map(|(plane, layout)| values(layout, &filled.bytes[plane])).collect();
    let components: Vec<Vec<Component>> = picture.planes.iter().map(components).collect();
    let options = Options { planes: selection, alpha: AlphaMode::Straight, ..Options::from(*params) };
    let blurred = frame(&options, &components, &samples);
    let mut out = picture.clone();
    for (plane, layout) in planes() {
        for (i, value) in blurred[plane].iter().enumerate() {
            if selection.contains(layout.roles[i % usize::from(layout.channels)]) {
                store(layout, &mut out.bytes[plane], i, *value);
            }
        }
    }
    out
}
