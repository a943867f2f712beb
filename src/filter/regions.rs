// SPDX-License-Identifier: MPL-2.0
//! The geometry of regions: which samples of a frame, of a plane and of a field lie in them. This file accesses no pixels.
//!
//! All rectangles are rounded outwards: a sample of which a region covers any part is in the region. An empty box gives no
//! rectangle.

/// A box in luma samples of a frame, before rounding. It may lie outside of the frame.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Area {
    /// Left edge.
    pub left: f64,
    /// Upper edge.
    pub top: f64,
    /// Right edge. The box is empty if it is not right of `left`.
    pub right: f64,
    /// Lower edge. The box is empty if it is not below `top`.
    pub bottom: f64,
}

impl Area {
    /// The box between a corner and the opposite corner, which is `width` and `height` away. Either may be negative, because some
    /// detectors swap corners. Such a box must be covered like any other.
    pub fn from_corner(x: f64, y: f64, width: f64, height: f64) -> Self {
        Self { left: x.min(x + width), top: y.min(y + height), right: x.max(x + width), bottom: y.max(y + height) }
    }

    /// The upright box around this box after it is rotated about its centre by `angle`, in radians. If `angle` is not finite, the
    /// box contains every rotation.
    pub fn around_rotated(self, angle: f64) -> Self {
        let (width, height) = (self.right - self.left, self.bottom - self.top);
        let [half_width, half_height] = if angle.is_finite() {
            let (sin, cos) = (angle.sin().abs(), angle.cos().abs());
            [(width * cos + height * sin) / 2.0, (width * sin + height * cos) / 2.0]
        } else {
            [width.hypot(height) / 2.0; 2]
        };
        let (x, y) = (f64::midpoint(self.left, self.right), f64::midpoint(self.top, self.bottom));
        Self { left: x - half_width, top: y - half_height, right: x + half_width, bottom: y + half_height }
    }

    /// This box, extended on the left and on the right by `share` of the width of `object`, and above and below by `share` of its
    /// height.
    pub fn grown(self, object: Self, share: f64) -> Self {
        let (across, down) = (share * (object.right - object.left), share * (object.bottom - object.top));
        Self { left: self.left - across, top: self.top - down, right: self.right + across, bottom: self.bottom + down }
    }

    /// This box, extended by `samples` on each side. A negative number makes it smaller.
    pub fn wider(self, samples: f64) -> Self {
        let [left, top, right, bottom] = self.edges();
        Self::from_edges([left - samples, top - samples, right + samples, bottom + samples])
    }

    /// Converts a box in rows of a frame to rows of a field.
    pub fn in_field(self) -> Self {
        Self { top: self.top / 2.0, bottom: self.bottom / 2.0, ..self }
    }

    /// The intersection of both boxes. It may be empty.
    pub fn intersection(self, other: Self) -> Self {
        Self {
            left: self.left.max(other.left),
            top: self.top.max(other.top),
            right: self.right.min(other.right),
            bottom: self.bottom.min(other.bottom),
        }
    }

    /// Whether the box contains no sample. An edge that is not a number does not make the box empty.
    pub fn is_empty(self) -> bool {
        self.right <= self.left || self.bottom <= self.top
    }

    /// Whether an object in a picture of `size` (width, height) can have this box: its sides are numbers, and at most twice as
    /// long as those of the picture.
    pub fn is_plausible(self, size: (u32, u32)) -> bool {
        let is_short = |low: f64, high: f64, side: u32| (high - low) <= 2.0 * f64::from(side);
        is_short(self.left, self.right, size.0) && is_short(self.top, self.bottom, size.1)
    }

    /// The smallest box around both boxes.
    pub fn union(self, other: Self) -> Self {
        Self {
            left: self.left.min(other.left),
            top: self.top.min(other.top),
            right: self.right.max(other.right),
            bottom: self.bottom.max(other.bottom),
        }
    }

    /// The area in samples, including fractions of samples; 0 if the box is empty.
    pub fn size(self) -> f64 {
        (self.right - self.left).max(0.0) * (self.bottom - self.top).max(0.0)
    }

    /// The left, upper, right and lower edge.
    pub fn edges(self) -> [f64; 4] {
        [self.left, self.top, self.right, self.bottom]
    }

    /// The box with this left, upper, right and lower edge.
    pub fn from_edges([left, top, right, bottom]: [f64; 4]) -> Self {
        Self { left, top, right, bottom }
    }

    /// The length of the shorter side. It is not a number if either side is not a number.
    pub fn short_side(self) -> f64 {
        let [width, height] = [self.right - self.left, self.bottom - self.top];
        if width < height { width } else { height + 0.0 * width }
    }
}

/// A rectangle of whole samples. It is not empty, and its right and lower edges are at most `u32::MAX`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Rect {
    // This order of the fields sorts rectangles by row, then by column.
    y: u32,
    x: u32,
    width: u32,
    height: u32,
}

impl Rect {
    /// The rectangle with these sides; `None` if it is empty or if an edge is beyond `u32::MAX`.
    pub fn new(x: u32, y: u32, width: u32, height: u32) -> Option<Self> {
        let fits = x.checked_add(width).is_some() && y.checked_add(height).is_some();
        (width > 0 && height > 0 && fits).then_some(Self { y, x, width, height })
    }

    /// The rectangle between these edges; `None` if it is empty.
    pub fn between(x: [u32; 2], y: [u32; 2]) -> Option<Self> {
        Self::new(x[0], y[0], x[1].checked_sub(x[0])?, y[1].checked_sub(y[0])?)
    }

    /// The samples of a frame of `size` (width, height) of which `area` covers any part; `None` if there are none. An edge that
    /// is not a number counts as the edge of the frame.
    pub fn covering(area: Area, size: (u32, u32)) -> Option<Self> {
        if area.is_empty() {
            return None;
        }
        // If an operand is NaN, `max` and `min` return the other one. All results are within the frame, so the conversions are
        // exact.
        let edges = |low: f64, high: f64, end: u32| {
            let end = f64::from(end);
            [low.floor().max(0.0).min(end) as u32, high.ceil().min(end).max(0.0) as u32]
        };
        Self::between(edges(area.left, area.right, size.0), edges(area.top, area.bottom, size.1))
    }

    /// The column of the left edge.
    pub fn x(self) -> u32 {
        self.x
    }

    /// The row of the upper edge.
    pub fn y(self) -> u32 {
        self.y
    }

    /// The number of columns, at least 1.
    pub fn width(self) -> u32 {
        self.width
    }

    /// The number of rows, at least 1.
    pub fn height(self) -> u32 {
        self.height
    }

    /// The column after the last one.
    pub fn right(self) -> u32 {
        self.x + self.width
    }

    /// The row after the last one.
    pub fn bottom(self) -> u32 {
        self.y + self.height
    }

    /// The smallest rectangle around both rectangles.
    pub fn hull(self, other: Self) -> Self {
        let (x, y) = (self.x.min(other.x), self.y.min(other.y));
        let (right, bottom) = (self.right().max(other.right()), self.bottom().max(other.bottom()));
        Self { x, y, width: right - x, height: bottom - y }
    }

    /// The intersection of both rectangles; `None` if it is empty.
    pub fn intersection(self, other: Self) -> Option<Self> {
        let [x, y] = [self.x.max(other.x), self.y.max(other.y)];
        let [right, bottom] = [self.right().min(other.right()), self.bottom().min(other.bottom())];
        Self::between([x, right], [y, bottom])
    }

    /// Whether this rectangle contains all of `other`.
    pub fn contains(self, other: Self) -> bool {
        self.intersection(other) == Some(other)
    }

    /// The number of samples.
    pub fn area(self) -> u64 {
        u64::from(self.width) * u64::from(self.height)
    }

    /// The samples of a plane of `size` (width, height) that stand for any of these luma samples. A sample of the plane stands
    /// for 2^`shift` luma samples along x and y. `None` if the plane has no such sample.
    pub fn in_plane(self, shift: (u32, u32), size: (u32, u32)) -> Option<Self> {
        let edges = |start: u32, end: u32, shift: u32, length: u32| {
            [start >> shift, u64::from(end).div_ceil(1 << shift) as u32].map(|edge| edge.min(length))
        };
        Self::between(edges(self.x, self.right(), shift.0, size.0), edges(self.y, self.bottom(), shift.1, size.1))
    }

    /// The rows of one field, numbered within the field: the rows y of the frame with y mod 2 = `parity`. `None` if there are
    /// none. Each subsampled plane of an interlaced frame has its own fields, so call this before [`Rect::in_plane`].
    pub fn in_field(self, parity: u32) -> Option<Self> {
        debug_assert!(parity < 2, "parity {parity}");
        let row = |y: u32| ((u64::from(y) + 1 - u64::from(parity)) / 2) as u32;
        Self::between([self.x, self.right()], [row(self.y), row(self.bottom())])
    }
}

/// A part of the picture that a cover hides, and its object.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Region {
    /// The covered rectangle, in luma samples of the frame.
    pub rect: Rect,
    /// The object: a zone, or the full box of a detected object. It is neither expanded nor clipped. The strength of the cover and the
    /// cells of a mosaic depend on it, so they do not change while the object leaves the frame.
    pub object: Area,
}

impl Region {
    /// The region that covers `object`, expanded by `expand` of its sides, in a frame of `size` (width, height). `None` if no
    /// part of it is in the frame.
    pub fn new(object: Area, expand: f64, size: (u32, u32)) -> Option<Self> {
        Self::around(object, object, expand, size)
    }

    /// The region that covers `area`, where `object` may be, expanded by `expand` of the object's sides.
    pub fn around(object: Area, area: Area, expand: f64, size: (u32, u32)) -> Option<Self> {
        Some(Self { rect: Rect::covering(area.grown(object, expand), size)?, object })
    }
}

/// The union of the rectangles, as rectangles that do not overlap, sorted by row and column. The result depends only on the
/// covered samples. The order, duplicates and the division of the covered samples do not affect it.
pub fn disjoint(rects: &[Rect]) -> Vec<Rect> {
    let edges = rects.iter().flat_map(|rect| [rect.y, rect.bottom()]).collect();
    sweep(edges, |row| covered(rects, row))
}

/// The part of a frame of this width and height outside of the rectangles, as rectangles that do not overlap, sorted by row and
/// column. Like the result of [`disjoint`], it depends only on the covered samples.
pub fn outside(rects: &[Rect], width: u32, height: u32) -> Vec<Rect> {
    let rows = rects.iter().flat_map(|rect| [rect.y, rect.bottom()]).filter(|row| *row < height);
    let edges = rows.chain([0, height]).collect();
    sweep(edges, |row| {
        let mut left = 0;
        let mut gaps = Vec::new();
        for [start, end] in covered(rects, row).into_iter().chain([[width, width]]) {
            if left < start.min(width) {
                gaps.push([left, start.min(width)]);
            }
            left = end;
        }
        gaps
    })
}

/// The columns of one row that the rectangles cover, as intervals with gaps between them, from left to right.
fn covered(rects: &[Rect], row: u32) -> Vec<[u32; 2]> {
    let mut intervals: Vec<[u32; 2]> =
        rects.iter().filter(|rect| (rect.y..rect.bottom()).contains(&row)).map(|rect| [rect.x, rect.right()]).collect();
    intervals.sort_unstable();
    intervals.dedup_by(|next, last| {
        let touches = next[0] <= last[1];
        if touches {
            last[1] = last[1].max(next[1]);
        }
        touches
    });
    intervals
}

/// Turns the intervals of rows into rectangles. `edges` has the rows where the intervals may change, in any order. `intervals`
/// returns the intervals of a row, from left to right with gaps between them. An interval that stays the same from one row to the
/// next becomes part of one rectangle.
fn sweep(mut edges: Vec<u32>, intervals: impl Fn(u32) -> Vec<[u32; 2]>) -> Vec<Rect> {
    edges.sort_unstable();
    edges.dedup();
    let mut rects = Vec::new();
    // The rectangles that end at the upper edge of the current band of rows, from left to right.
    let mut open: Vec<Rect> = Vec::new();
    for band in edges.windows(2) {
        let [top, bottom] = [band[0], band[1]];
        let mut next = Vec::new();
        for [left, right] in intervals(top) {
            let above = open.binary_search_by_key(&left, |rect| rect.x).ok().filter(|i| open[*i].right() == right);
            let y = above.map_or(top, |i| open.remove(i).y);
            next.push(Rect { y, x: left, width: right - left, height: bottom - y });
        }
        rects.append(&mut open);
        open = next;
    }
    rects.append(&mut open);
    rects.sort_unstable();
    rects
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A repeatable pseudo-random sequence (splitmix64). The field is the seed.
    struct Noise(u64);

    impl Noise {
        fn below(&mut self, end: u32) -> u32 {
            self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let z = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            let z = (z ^ z >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
            ((z ^ z >> 31) % u64::from(end)) as u32
        }

        /// Up to `most` rectangles in a frame of this size, most of them small.
        fn rects(&mut self, most: u32, (width, height): (u32, u32)) -> Vec<Rect> {
            (0..self.below(most + 1))
                .map(|_| {
                    let [x, y] = [self.below(width), self.below(height)];
                    let [w, h] = [(width - x).div_ceil(1 + self.below(6)), (height - y).div_ceil(1 + self.below(6))];
                    Rect::new(x, y, 1 + self.below(w), 1 + self.below(h)).unwrap()
                })
                .collect()
        }

        fn shuffle(&mut self, rects: &mut [Rect]) {
            for i in (1..rects.len()).rev() {
                rects.swap(i, self.below(i as u32 + 1) as usize);
            }
        }
    }

    /// The number of rectangles that cover each sample.
    fn bitmap(rects: &[Rect], (width, height): (u32, u32)) -> Vec<u32> {
        let mut counts = vec![0; (width * height) as usize];
        for rect in rects {
            for (y, x) in (rect.y()..rect.bottom()).flat_map(|y| (rect.x()..rect.right()).map(move |x| (y, x))) {
                counts[(y * width + x) as usize] += 1;
            }
        }
        counts
    }

    const SIZES: [(u32, u32); 5] = [(1, 1), (7, 5), (24, 17), (61, 2), (40, 40)];

    #[test]
    fn disjoint_and_outside_cover_each_sample_once() {
        let mut noise = Noise(1);
        for round in 0..600 {
            let size = SIZES[round % SIZES.len()];
            let rects = noise.rects(90, size);
            let (inside, rest) = (disjoint(&rects), outside(&rects, size.0, size.1));
            let once = |covers: bool| bitmap(&rects, size).iter().map(|n| u32::from((*n > 0) == covers)).collect();
            let expected: [Vec<u32>; 2] = [once(true), once(false)];
            assert_eq!(bitmap(&inside, size), expected[0], "inside {rects:?}");
            assert_eq!(bitmap(&rest, size), expected[1], "outside {rects:?}");
        }
    }

    #[test]
    fn disjoint_depends_only_on_the_covered_samples() {
        let mut noise = Noise(2);
        for round in 0..300 {
            let size = SIZES[round % SIZES.len()];
            let rects = noise.rects(70, size);
            let expected = [disjoint(&rects), outside(&rects, size.0, size.1)];
            let mut other = rects.clone();
            other.extend(rects.iter().take(9));
            // The same samples once more, as rectangles of one row.
            let row = |rect: &Rect, y| Rect::new(rect.x(), y, rect.width(), 1).unwrap();
            other.extend(rects.iter().take(5).flat_map(|rect| (rect.y()..rect.bottom()).map(|y| row(rect, y))));
            other.extend(&expected[0]);
            noise.shuffle(&mut other);
            assert_eq!([disjoint(&other), outside(&other, size.0, size.1)], expected, "{rects:?}");
            assert_eq!(disjoint(&expected[0]), expected[0], "a second time");
        }
    }

    #[test]
    fn disjoint_keeps_simple_input_in_few_rectangles() {
        let rect = |x, y, width, height| Rect::new(x, y, width, height).unwrap();
        let apart = [rect(50, 5, 10, 10), rect(10, 0, 20, 40)];
        assert_eq!(disjoint(&apart), [apart[1], apart[0]]);
        assert_eq!(disjoint(&[rect(0, 0, 20, 20), rect(5, 5, 5, 5)]), [rect(0, 0, 20, 20)]);
        assert_eq!(disjoint(&[rect(0, 0, 8, 4), rect(0, 4, 8, 4)]), [rect(0, 0, 8, 8)]);
        let corner = [rect(0, 0, 10, 10), rect(5, 5, 10, 10)];
        assert_eq!(disjoint(&corner), [rect(0, 0, 10, 5), rect(0, 5, 15, 5), rect(5, 10, 10, 5)]);
        assert_eq!(
            outside(&[rect(2, 2, 3, 3)], 8, 8),
            [rect(0, 0, 8, 2), rect(0, 2, 2, 3), rect(5, 2, 3, 3), rect(0, 5, 8, 3),]
        );
        assert_eq!(outside(&[], 8, 8), [rect(0, 0, 8, 8)]);
        assert_eq!(outside(&[rect(0, 0, 8, 8)], 8, 8), []);
        assert_eq!(outside(&[rect(4, 4, 20, 20)], 8, 8), [rect(0, 0, 8, 4), rect(0, 4, 4, 4)], "beyond the frame");
    }

    #[test]
    fn planes_and_fields_take_every_sample_that_is_covered() {
        let mut noise = Noise(3);
        for round in 0..400 {
            let size = SIZES[round % SIZES.len()];
            let rect = *noise.rects(1, size).first().unwrap_or(&Rect::new(0, 0, size.0, size.1).unwrap());
            let shift = (noise.below(3), noise.below(3));
            let plane = (size.0.div_ceil(1 << shift.0), size.1.div_ceil(1 << shift.1));
            let mut expected = vec![0; (plane.0 * plane.1) as usize];
            for (y, x) in (rect.y()..rect.bottom()).flat_map(|y| (rect.x()..rect.right()).map(move |x| (y, x))) {
                expected[((y >> shift.1) * plane.0 + (x >> shift.0)) as usize] = 1;
            }
            let found = rect.in_plane(shift, plane).expect("the rectangle is in the frame");
            assert_eq!(bitmap(&[found], plane), expected, "{rect:?} {shift:?}");

            for parity in 0..2 {
                let rows: Vec<u32> = (rect.y()..rect.bottom()).filter(|y| y % 2 == parity).map(|y| y / 2).collect();
                let field = rect.in_field(parity);
                assert_eq!(field.map_or(vec![], |field| (field.y()..field.bottom()).collect()), rows, "{rect:?}");
                assert!(field.is_none_or(|field| (field.x(), field.width()) == (rect.x(), rect.width())));
            }
        }
        let rect = Rect::new(6, 6, 2, 2).unwrap();
        assert_eq!(rect.in_plane((1, 1), (3, 3)), None, "the plane ends before the rectangle");
        assert_eq!(Rect::new(0, 0, u32::MAX, u32::MAX).unwrap().in_plane((1, 1), (9, 9)), Rect::new(0, 0, 9, 9));
        assert_eq!(
            Rect::new(0, 0, 1, u32::MAX).unwrap().in_field(0),
            Rect::new(0, 0, 1, 1 << 31),
            "the last row has an even number"
        );
    }

    /// Compares with a search of all samples for those that the box touches.
    #[test]
    fn covering_rounds_outwards_and_clips() {
        let mut noise = Noise(4);
        for _ in 0..4000 {
            let size = (1 + noise.below(12), 1 + noise.below(12));
            // Edges are multiples of a quarter, so that many lie on whole samples.
            let mut edge = || f64::from(noise.below(80)) / 4.0 - 4.0;
            let area = Area { left: edge(), top: edge(), right: edge(), bottom: edge() };
            let touches = |low: f64, high: f64, i: u32| low < f64::from(i + 1) && high > f64::from(i) && low < high;
            let expected: Vec<u32> = (0..size.0 * size.1)
                .map(|i| (i % size.0, i / size.0))
                .map(|(x, y)| touches(area.left, area.right, x) && touches(area.top, area.bottom, y))
                .map(u32::from)
                .collect();
            let found: Vec<Rect> = Rect::covering(area, size).into_iter().collect();
            assert_eq!(bitmap(&found, size), expected, "{area:?} in {size:?}");
        }
    }

    #[test]
    fn extreme_boxes_are_safe() {
        let size = (1920, 1080);
        let whole = Rect::new(0, 0, 1920, 1080);
        let covering = |left, top, right, bottom| Rect::covering(Area { left, top, right, bottom }, size);
        assert_eq!(covering(f64::NEG_INFINITY, -1e300, f64::INFINITY, 1e300), whole);
        assert_eq!(covering(f64::NAN, f64::NAN, f64::NAN, f64::NAN), whole, "what cannot be read covers all");
        assert_eq!(covering(5.0, 5.0, 5.0, 9.0), None, "no width");
        assert_eq!(covering(5.5, 5.5, 5.5, 9.0), None, "no width within a sample");
        assert_eq!(covering(-9.0, 0.0, 0.0, 9.0), None, "left of the frame");
        assert_eq!(covering(0.0, 1080.0, 9.0, 1e9), None, "below the frame");
        assert_eq!(covering(1919.9, 1079.9, 1e9, 1e9), Rect::new(1919, 1079, 1, 1));

        assert_eq!(Rect::new(0, 0, 0, 1), None);
        assert_eq!(Rect::new(2, 0, u32::MAX - 1, 1), None);
        assert_eq!(Region::new(Area::from_corner(10.0, 10.0, 0.0, 8.0), 4.0, size), None, "nothing grows to nothing");
    }

    #[test]
    fn areas_grow_and_rotate() {
        let area = Area::from_corner(10.0, 20.0, 40.0, 10.0);
        assert_eq!(area, Area::from_corner(50.0, 30.0, -40.0, -10.0), "swapped corners");
        assert_eq!(area.grown(area, 0.5), Area { left: -10.0, top: 15.0, right: 70.0, bottom: 35.0 });
        assert_eq!(area.short_side(), 10.0);
        assert_eq!(area.around_rotated(0.0), area);
        let close = |a: Area, b: Area| {
            [a.left - b.left, a.top - b.top, a.right - b.right, a.bottom - b.bottom].iter().all(|d| d.abs() < 1e-9)
        };
        let quarter = area.around_rotated(std::f64::consts::FRAC_PI_2);
        assert!(close(quarter, Area { left: 25.0, top: 5.0, right: 35.0, bottom: 45.0 }), "{quarter:?}");
        let every = area.around_rotated(f64::NAN);
        for step in 0..64 {
            let angle = f64::from(step) / 10.0;
            let one = area.around_rotated(angle);
            assert!(close(one.union(every), every), "{angle} {one:?} {every:?}");
            // The box contains every corner after its rotation.
            for (x, y) in [(-20.0, -5.0), (20.0, -5.0), (20.0, 5.0), (-20.0, 5.0)] {
                let corner = (
                    30.0 + x * f64::cos(angle) - y * f64::sin(angle),
                    25.0 + x * f64::sin(angle) + y * f64::cos(angle),
                );
                let inside = (one.left - 1e-9..=one.right + 1e-9).contains(&corner.0)
                    && (one.top - 1e-9..=one.bottom + 1e-9).contains(&corner.1);
                assert!(inside, "{angle} {corner:?} {one:?}");
            }
        }
    }

    #[test]
    fn region_keeps_the_object_that_is_partly_outside() {
        let region = Region::new(Area::from_corner(-50.0, 10.0, 60.0, 80.0), 0.1, (640, 480)).unwrap();
        assert_eq!(region.rect, Rect::new(0, 2, 16, 96).unwrap());
        assert_eq!(region.object.short_side(), 60.0);
        assert_eq!(Region::new(Area::from_corner(-50.0, 10.0, 40.0, 80.0), 0.2, (640, 480)), None);
    }
}
