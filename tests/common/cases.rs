//! The one case table, which every engine and every variant of an engine runs. `CUDAGAUSSBLUR_CASE` is a part of the text
//! with which a case is reported; only the cases that have it are run.

use super::borrowed::{Borrowing, FrameMut};
use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::filter::frame::{Frame, Plane, PlaneLayout, Role, SampleLayout, Split};
use gstcudagaussblur::filter::plan::{AlphaMode, Options, Selection};
use gstcudagaussblur::filter::{AxisBlur, BlurParams};

use super::Noise;
use super::frames::{self, Component};
use super::oracle::Axis;
use super::soft_oracle::store;

/// Fills the bytes between rows, which no engine may write.
const PADDING: u8 = 0xa5;

/// What the frame's samples are.
#[derive(Debug, Clone, Copy)]
pub enum Content {
    Noise,
    /// Random choice of the lowest and the highest value: the largest sums and the sharpest edges.
    Extremes,
    /// One value everywhere.
    Flat,
    /// Noise, with alpha 0 in wide stripes.
    Holes,
}

/// One frame and one blur.
#[derive(Debug, Clone)]
pub struct Case {
    pub options: Options,
    pub planes: Vec<PlaneLayout>,
    /// Bytes between the rows of the input, and of the output.
    pub padding: [usize; 2],
    pub content: Content,
}

/// Pairs of sigma and kernel-size from the identity to the widest kernel, including centre taps above one half, wide
/// kernels of a narrow Gaussian and narrow kernels of a wide one.
fn blurs() -> Vec<(f64, u32)> {
    let radii = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 20, 24, 25, 31, 32, 50, 63, 64, 100, 127, 200, 255, 400];
    let mut blurs: Vec<(f64, u32)> = radii.iter().map(|&r| (f64::from(r) / 4.0, 2 * r + 1)).collect();
    blurs.extend(radii.iter().map(|&r| (f64::from(r) / 4.0, 0)));
    blurs.extend(radii.iter().map(|&r| (f64::from(r) / 2.5, 2 * r + 1)).filter(|(sigma, _)| *sigma <= 100.0));
    blurs.extend([(0.1, 0), (0.2, 3), (0.25, 0), (0.3, 0), (0.5, 0), (0.7, 5), (0.75, 0), (100.0, 3), (100.0, 801)]);
    blurs.extend([(50.0, 1), (0.05, 801), (1.5, 7), (5.0, 801)]);
    // Thresholds of the wide form, and every number of levels.
    blurs.extend([3.49, 3.5, 4.6, 6.99, 7.0, 7.01, 14.2, 28.0, 200.0, 300.0, 1024.0].map(|sigma| (sigma, 0)));
    blurs
}

const WIDTHS: [u32; 16] = [1, 2, 1, 3, 1, 67, 7, 17, 31, 64, 65, 191, 193, 257, 5, 130];
const HEIGHTS: [u32; 16] = [1, 1, 2, 5, 67, 1, 7, 9, 3, 48, 33, 13, 21, 10, 201, 130];

fn options(sigma: f64, kernel_size: u32) -> Options {
    BlurParams::new(sigma, kernel_size).unwrap().into()
}

impl Case {
    /// A frame of one plane.
    pub fn of(sigma: f64, kernel_size: u32, layout: PlaneLayout, padding: [usize; 2], content: Content) -> Self {
        Self { options: options(sigma, kernel_size), planes: vec![layout], padding, content }
    }
}

/// A plane whose samples are not simply interleaved and LSB-aligned, or that is interlaced; `turn` picks the kind.
fn packed(turn: usize, width: u32, height: u32) -> PlaneLayout {
    let new = |channels, depth, sample_layout| PlaneLayout {
        sample_layout,
        ..PlaneLayout::new(width, height, channels, depth)
    };
    match turn % 8 {
        0 => new(4, 8, SampleLayout::Yuv422 { luma: 0 }),
        1 => new(4, 10, SampleLayout::Packed1010102),
        2 => new(1, 10, SampleLayout::MsbAligned),
        3 => new(4, 8, SampleLayout::Yuv422 { luma: 1 }),
        4 => new(2, 12, SampleLayout::MsbAligned),
        5 => new(4, 10, SampleLayout::Yuv422 { luma: 0 }),
        6 => new(4, 16, SampleLayout::Yuv422 { luma: 1 }),
        _ => PlaneLayout { split: Split::Fields, ..PlaneLayout::new(width, height, 3, 8) },
    }
}

/// The same planes of a picture of this size, or a little larger, so that views do not meet within a sample.
pub fn resized(planes: &[PlaneLayout], size: [u32; 2]) -> Vec<PlaneLayout> {
    let views = planes[0].split.views();
    let [width, height] = [0, 1].map(|axis| {
        let finest = planes.iter().map(|layout| layout.sigma_scale[axis]).fold(0.0, f64::max);
        let unit = |layout: &PlaneLayout| {
            let pair = if axis == 0 { layout.unit_pixels() } else { 1 };
            pair * (finest / layout.sigma_scale[axis]).round() as u32
        };
        let unit = planes.iter().map(unit).max().unwrap_or(1);
        if views[axis] > 1 { size[axis].next_multiple_of(views[axis] * unit) } else { size[axis] }
    });
    let side = |pixels: u32, scale: f64| (f64::from(pixels) * scale).ceil() as u32;
    let plane = |layout: &PlaneLayout| PlaneLayout {
        width: side(width, layout.sigma_scale[0]),
        height: side(height, layout.sigma_scale[1]),
        ..*layout
    };
    planes.iter().map(plane).collect()
}

/// The text that selects cases; `None` to run the whole table.
pub fn selection() -> Option<String> {
    std::env::var("CUDAGAUSSBLUR_CASE").ok().filter(|text| !text.is_empty())
}

/// The n of `CUDAGAUSSBLUR_CASES`, for slow machines: every nth case is run. `None` to run all.
pub fn one_in() -> Option<usize> {
    std::env::var("CUDAGAUSSBLUR_CASES").ok().map(|number| number.parse().expect("CUDAGAUSSBLUR_CASES is a number"))
}

/// The cases of the table that are run.
pub fn all() -> Vec<Case> {
    let Some(text) = selection() else { return table() };
    let cases: Vec<Case> = table().into_iter().filter(|case| format!("{case:?}").contains(&text)).collect();
    assert!(!cases.is_empty(), "no case has the text CUDAGAUSSBLUR_CASE={text}");
    cases
}

/// Checks that the whole table has at least so many cases of a kind.
pub fn assert_enough(cases: usize, least: usize) {
    assert!(cases >= least || selection().is_some(), "{cases} cases");
}

/// The table: every blur on every size, with channels, depth, padding and content taking turns so that each blur meets
/// all of them; σ scaled per axis; every sample layout; frames of several planes.
pub fn table() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut noise = Noise(1);
    for (sigma, kernel_size) in blurs() {
        let turn = noise.next() as usize;
        for (i, (width, height)) in WIDTHS.into_iter().zip(HEIGHTS).enumerate() {
            let i = i + turn;
            let depth = [8, 8, 16, 8, 10, 12, 8, 16, 9][i % 9];
            let layout = PlaneLayout::new(width, height, (i % 4) as u8 + 1, depth);
            let padding = [[0, 0], [1, 64], [13, 7], [256, 3]][i / 4 % 4];
            let content = [Content::Noise, Content::Extremes, Content::Noise, Content::Flat][i / 3 % 4];
            cases.push(Case::of(sigma, kernel_size, layout, padding, content));
            if i.is_multiple_of(3) {
                cases.push(Case::of(sigma, kernel_size, packed(i / 3, width, height), padding, content));
            }
        }
    }
    // Large enough for several tiles in both directions and for several threads.
    for (width, height, channels, depth, sigma) in [
        (1283, 241, 4, 8, 1.5),
        (1283, 241, 3, 16, 5.0),
        (3001, 37, 1, 8, 20.0),
        (701, 503, 2, 10, 0.6),
        (1283, 241, 4, 8, 8.0),
        (701, 503, 3, 8, 5.0),
        (903, 301, 4, 16, 12.0),
    ] {
        let layout = PlaneLayout::new(width, height, channels, depth);
        cases.push(Case::of(sigma, 0, layout, [0, 5], Content::Noise));
    }
    let turns = [0, 1, 2, 3, 7, 0, 3, 1, 7, 5, 6];
    for (turn, sigma) in turns.into_iter().zip([1.5, 5.0, 3.0, 20.0, 2.0, 8.0, 4.0, 60.0, 9.0, 2.0, 9.0]) {
        cases.push(Case::of(sigma, 0, packed(turn, 1283, 121), [0, 5], Content::Noise));
    }
    for scale in [[0.5, 0.5], [0.5, 1.0], [1.0, 0.25]] {
        for (sigma, kernel_size) in [(0.6, 0), (3.0, 0), (12.0, 0), (40.0, 0), (2.0, 7), (9.0, 31)] {
            let layout = PlaneLayout { sigma_scale: scale, ..PlaneLayout::new(97, 35, 2, 8) };
            cases.push(Case::of(sigma, kernel_size, layout, [5, 9], Content::Noise));
        }
    }
    // Levels along one axis alone, of packed 4:2:2.
    for (turn, (width, scale)) in
        [0, 5, 6].into_iter().flat_map(|turn| [(turn, (38, [0.5, 1.0])), (turn, (37, [1.0, 0.5]))])
    {
        let layout = PlaneLayout { sigma_scale: scale, ..packed(turn, width, 21) };
        cases.push(Case::of(5.0, 0, layout, [5, 9], Content::Noise));
    }
    // Both axes of one sample, four levels deep, in every layout.
    for turn in 0..8 {
        cases.push(Case::of(1024.0, 0, packed(turn, 1, 1), [0, 5], Content::Noise));
    }
    cases.extend(frames());
    cases.extend(many_planes());
    cases
}

/// Frames of more planes than a format has, as many as one launch computes.
fn many_planes() -> Vec<Case> {
    let picture = |width, height| {
        let luma = PlaneLayout::new(width, height, 1, 8);
        let chroma = PlaneLayout::new(width.div_ceil(2), height.div_ceil(2), 2, 8);
        [luma, PlaneLayout { sigma_scale: [0.5; 2], roles: [Role::Chroma; 4], ..chroma }]
    };
    let planes = [picture(67, 40), picture(129, 33), picture(64, 48), picture(16, 91)].concat();
    let of =
        |sigma| Case { options: options(sigma, 0), planes: planes.clone(), padding: [9, 64], content: Content::Noise };
    [1.5, 5.0, 9.0, 40.0].map(of).to_vec()
}

/// A plane of a picture of this size, with one channel per role; `sub` is the picture's pixels per sample, across and
/// down.
fn plane(
    (width, height): (u32, u32),
    sub: [u32; 2],
    roles: &[Role],
    depth: u8,
    sample_layout: SampleLayout,
) -> PlaneLayout {
    let (width, height) = (width.div_ceil(sub[0]), height.div_ceil(sub[1]));
    let mut layout = PlaneLayout { sample_layout, ..PlaneLayout::new(width, height, roles.len() as u8, depth) };
    layout.sigma_scale = sub.map(|pixels| 1.0 / f64::from(pixels));
    layout.roles[..roles.len()].copy_from_slice(roles);
    layout
}

/// Frames of several planes: premultiplied blurs, and channels that are not selected and keep their values.
fn frames() -> Vec<Case> {
    use Role::{Alpha as A, Chroma as C, Primary as L};
    use SampleLayout::{LsbAligned, MsbAligned, Packed1010102, Yuv422};
    const FULL: [u32; 2] = [1; 2];
    const HALF: [u32; 2] = [2; 2];
    // The depth, the layout, and the planes by the picture's pixels per sample and the roles of channels.
    type Kind = (u8, SampleLayout, &'static [([u32; 2], &'static [Role])]);
    // NV12, I420, A420, P010, YUY2, NV24, GBRA, ARGB64, RGBA, ARGB, Y212, RGB10A2.
    const KINDS: [Kind; 12] = [
        (8, LsbAligned, &[(FULL, &[L]), (HALF, &[C, C])]),
        (8, LsbAligned, &[(FULL, &[L]), (HALF, &[C]), (HALF, &[C])]),
        (8, LsbAligned, &[(FULL, &[L]), (HALF, &[C]), (HALF, &[C]), (FULL, &[A])]),
        (10, MsbAligned, &[(FULL, &[L]), (HALF, &[C, C])]),
        (8, Yuv422 { luma: 0 }, &[(FULL, &[L, C, L, C])]),
        (8, LsbAligned, &[(FULL, &[L]), (FULL, &[C, C])]),
        (8, LsbAligned, &[(FULL, &[L]), (FULL, &[L]), (FULL, &[L]), (FULL, &[A])]),
        (16, LsbAligned, &[(FULL, &[A, L, L, L])]),
        (8, LsbAligned, &[(FULL, &[L, L, L, A])]),
        (8, LsbAligned, &[(FULL, &[A, L, L, L])]),
        (12, Yuv422 { luma: 0 }, &[(FULL, &[L, C, L, C])]),
        (10, Packed1010102, &[(FULL, &[L, L, L, A])]),
    ];
    const SIZES: [(u32, u32); 5] = [(1, 1), (3, 2), (66, 34), (129, 47), (257, 19)];
    let blurs = [(0.6, 0), (1.5, 0), (3.0, 0), (4.0, 0), (8.0, 0), (20.0, 0), (2.0, 7), (9.0, 31), (40.0, 401)];
    let splits = [Split::Whole, Split::Fields, Split::SideBySide, Split::TopBottom, Split::Rows];
    let contents = [Content::Noise, Content::Holes, Content::Extremes, Content::Flat, Content::Holes];
    let mut noise = Noise(2);
    let mut cases = Vec::new();
    for ((sigma, kernel_size), size) in blurs.into_iter().flat_map(|blur| SIZES.map(|size| (blur, size))) {
        for (depth, layout, planes) in KINDS {
            // Half of them whole.
            let split = splits[(noise.below(8) as usize).saturating_sub(3)];
            let of =
                |(sub, roles): &([u32; 2], &[Role])| PlaneLayout { split, ..plane(size, *sub, roles, depth, layout) };
            let planes: Vec<PlaneLayout> = planes.iter().map(of).collect();
            let [primary, chroma, alpha] = [(); 3].map(|()| noise.below(4) > 0);
            let options = Options {
                planes: Selection { primary, chroma, alpha },
                alpha: noise.pick(&[AlphaMode::Premultiply, AlphaMode::Straight]),
                ..options(sigma, kernel_size)
            };
            let (padding, content) = (noise.pick(&[[0, 0], [4, 12], [13, 7]]), noise.pick(&contents));
            cases.push(Case { options, planes: resized(&planes, size.into()), padding, content });
        }
    }
    cases
}

/// The blur of an axis at this scale, as the oracle wants it.
pub fn axis(params: &BlurParams, scale: f64) -> Axis {
    let AxisBlur { taps, .. } = &params.axis(scale);
    let levels = params.axis(scale).levels().iter().map(|factor| factor.get() as usize).collect();
    Axis { levels, taps: (0..=taps.radius()).map(|i| taps.at(i)).collect() }
}

impl Case {
    /// The approximate number of multiply-adds.
    pub fn work(&self) -> usize {
        let plane = |layout: &PlaneLayout| {
            let [rows, columns] = layout.sigma_scale.map(|scale| match self.options.params.axis(scale) {
                axis if axis.levels().is_empty() => axis.taps.radius(),
                _ => 30,
            });
            layout.row_samples() * layout.height as usize * (rows + columns + 8)
        };
        self.planes.iter().map(plane).sum()
    }

    /// The input samples of every plane, row by row in memory order.
    pub fn samples(&self) -> Vec<Vec<u16>> {
        let plane = |(index, layout): (usize, &PlaneLayout)| {
            let PlaneLayout { width, height, depth, .. } = *layout;
            let mut noise =
                Noise(u64::from(width) << 32 | u64::from(height) << 8 | u64::from(depth) | (index as u64) << 60);
            let tens = layout.sample_layout == SampleLayout::Packed1010102;
            let count = layout.row_samples() * height as usize;
            let samples = (0..count).map(|i| {
                let top = (1_u64 << if tens && i % 4 == 3 { 2 } else { depth }) - 1;
                match self.content {
                    Content::Noise => (noise.next() & top) as u16,
                    Content::Extremes => (noise.next() % 2 * top) as u16,
                    Content::Flat => (top - top / 3) as u16,
                    Content::Holes => {
                        let (x, channels) = (i % layout.row_samples(), usize::from(layout.channels));
                        let hole = layout.roles[x % channels] == Role::Alpha && x / channels % 64 < 40;
                        if hole { 0 } else { (noise.next() & top) as u16 }
                    }
                }
            });
            samples.collect()
        };
        self.planes.iter().enumerate().map(plane).collect()
    }

    /// The oracle's output samples of every plane.
    pub fn expected(&self) -> Vec<Vec<u16>> {
        let components: Vec<Vec<Component>> = self.planes.iter().map(frames::components).collect();
        frames::frame(&self.options, &components, &self.samples())
    }

    /// A plane's bytes, with `padding` bytes after every row but the last. `unused` fills the bits of a sample that
    /// hold no value.
    fn bytes(&self, layout: &PlaneLayout, samples: &[u16], padding: usize, unused: u16) -> Vec<u8> {
        let pitch = layout.row_bytes() + padding;
        let mut bytes = vec![PADDING; pitch * layout.height as usize - padding];
        for (row, samples) in bytes.chunks_mut(pitch).zip(samples.chunks(layout.row_samples())) {
            samples.iter().enumerate().for_each(|(i, sample)| store(layout, row, i, *sample));
            if layout.sample_layout == SampleLayout::MsbAligned {
                let words = row[..layout.row_bytes()].as_chunks_mut::<2>().0.iter_mut();
                let low = unused & ((1 << layout.shift()) - 1);
                words.for_each(|word| *word = (u16::from_ne_bytes(*word) | low).to_ne_bytes());
            }
        }
        bytes
    }

    /// Runs [`Case::check`] with an engine, which must not fall back to another backend.
    pub fn check_engine(&self, engine: &mut Engine) -> usize {
        self.check_engines(std::slice::from_mut(engine))
    }

    /// The same with several engines, for which the oracle computes once.
    pub fn check_engines(&self, engines: &mut [Engine]) -> usize {
        let by = |engine: &mut Engine, src: &Frame, dst: &mut FrameMut| {
            let failure = engine.blur(self.options, src, dst).unwrap();
            assert!(failure.is_none(), "fell back to another backend: {failure:?}");
        };
        self.check_each(engines.iter_mut().map(|engine| move |src: &Frame, dst: &mut FrameMut| by(engine, src, dst)))
    }

    /// Runs `blur` on the case and compares every byte, padding included, with the oracle. Returns the number of bytes
    /// compared.
    pub fn check(&self, blur: impl FnOnce(&Frame, &mut FrameMut)) -> usize {
        self.check_each([blur])
    }

    /// The planes with these bytes of the input or the output.
    fn frame_of<D>(&self, side: usize, data: impl Iterator<Item = D>) -> Vec<Plane<D>> {
        let pitch = |layout: &PlaneLayout| layout.row_bytes() + self.padding[side];
        let planes = self.planes.iter().zip(data);
        planes.map(|(layout, data)| Plane { layout: *layout, pitch: pitch(layout), data }).collect()
    }

    fn check_each(&self, blurs: impl IntoIterator<Item = impl FnOnce(&Frame, &mut FrameMut)>) -> usize {
        const UNUSED: u16 = 0x5a5a;
        let of = |samples: &[Vec<u16>], padding: usize, unused: &dyn Fn(&PlaneLayout) -> u16| -> Vec<Vec<u8>> {
            let planes = self.planes.iter().zip(samples);
            planes.map(|(layout, samples)| self.bytes(layout, samples, padding, unused(layout))).collect()
        };
        let src = of(&self.samples(), self.padding[0], &|_| UNUSED);
        // A plane that is passed through keeps the bits without a value too; all others have them cleared.
        let unused = |layout: &PlaneLayout| if self.options.is_passthrough(&[*layout]) { UNUSED } else { 0 };
        let expected = of(&self.expected(), self.padding[1], &unused);
        let frame: Frame = self.frame_of(0, src.iter().map(Vec::as_slice));
        for (engine, blur) in blurs.into_iter().enumerate() {
            let mut dst: Vec<Vec<u8>> = expected.iter().map(|plane| vec![PADDING; plane.len()]).collect();
            let mut out: FrameMut = self.frame_of(1, dst.iter_mut().map(Vec::as_mut_slice));
            blur(&frame, &mut out);
            for (plane, (got, want)) in dst.iter().zip(&expected).enumerate() {
                let differing: Vec<usize> = (0..want.len()).filter(|i| got[*i] != want[*i]).collect();
                let (count, all) = (differing.len(), want.len());
                if let Some(first) = differing.first() {
                    panic!("engine {engine}: {count} of {all} bytes of plane {plane} differ, first {first}: {self:?}");
                }
            }
        }
        expected.iter().map(Vec::len).sum()
    }
}
