//! The one case table: every engine and every variant of it runs all of it.

use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::filter::{BlurParams, Taps};
use gstcudagaussblur::frame::{Frame, FrameMut, Plane, PlaneLayout};

use super::Noise;
use super::oracle::Image;

/// Bytes that no row may touch.
const PADDING: u8 = 0xa5;

/// What fills the frame.
#[derive(Debug, Clone, Copy)]
pub enum Content {
    Noise,
    /// Only the lowest and the highest value: the largest sums and the sharpest edges.
    Extremes,
    /// Every sample the same.
    Flat,
}

/// One frame and one blur.
#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub sigma: f64,
    pub kernel_size: u32,
    pub layout: PlaneLayout,
    /// Bytes beyond a row in the input and the output.
    pub padding: [usize; 2],
    pub content: Content,
}

/// Blurs by radius: sigma and kernel-size, from nothing to the widest, including taps above one half, wide kernels of a
/// narrow Gaussian and narrow kernels of a wide one.
fn blurs() -> Vec<(f64, u32)> {
    let radii = [1, 2, 3, 4, 5, 6, 7, 8, 9, 12, 15, 16, 20, 24, 25, 31, 32, 50, 63, 64, 100, 127, 200, 255, 400];
    let mut blurs: Vec<(f64, u32)> = radii.iter().map(|&r| (f64::from(r) / 4.0, 0)).collect();
    blurs.extend(radii.iter().map(|&r| (f64::from(r) / 2.5, 2 * r + 1)).filter(|(sigma, _)| *sigma <= 100.0));
    blurs.extend([(0.1, 0), (0.2, 3), (0.25, 0), (0.3, 0), (0.5, 0), (0.7, 5), (0.75, 0), (100.0, 3), (100.0, 801)]);
    blurs.extend([(50.0, 1), (0.05, 801), (1.5, 7), (5.0, 801)]);
    blurs
}

const SIZES: [(u32, u32); 16] = [
    (1, 1),
    (2, 1),
    (1, 2),
    (3, 5),
    (1, 67),
    (67, 1),
    (7, 7),
    (17, 9),
    (31, 3),
    (64, 48),
    (65, 33),
    (191, 13),
    (193, 21),
    (257, 10),
    (5, 201),
    (130, 130),
];

/// The table: every blur on every size, with channels, depth, padding and content taking turns so that each blur meets
/// all of them; and σ scaled per axis.
pub fn all() -> Vec<Case> {
    let mut cases = Vec::new();
    let mut noise = Noise(1);
    for (sigma, kernel_size) in blurs() {
        let turn = noise.next() as usize;
        for (i, (width, height)) in SIZES.into_iter().enumerate() {
            let i = i + turn;
            let depth = [8, 8, 16, 8, 10, 12, 8, 16, 9][i % 9];
            cases.push(Case {
                sigma,
                kernel_size,
                layout: PlaneLayout { width, height, channels: (i % 4) as u8 + 1, depth, sigma_scale: [1.0, 1.0] },
                padding: [[0, 0], [1, 64], [13, 7], [256, 3]][i / 4 % 4],
                content: [Content::Noise, Content::Extremes, Content::Noise, Content::Flat][i / 3 % 4],
            });
        }
    }
    // Large enough for several tiles across and down, and for threads.
    for (width, height, channels, depth, sigma) in
        [(1283, 241, 4, 8, 1.5), (1283, 241, 3, 16, 5.0), (3001, 37, 1, 8, 20.0), (701, 503, 2, 10, 0.6)]
    {
        let layout = PlaneLayout { width, height, channels, depth, sigma_scale: [1.0, 1.0] };
        cases.push(Case { sigma, kernel_size: 0, layout, padding: [0, 5], content: Content::Noise });
    }
    for scale in [[0.5, 0.5], [0.5, 1.0], [1.0, 0.25]] {
        for (sigma, kernel_size) in [(0.6, 0), (3.0, 0), (20.0, 0), (2.0, 7), (9.0, 31)] {
            cases.push(Case {
                sigma,
                kernel_size,
                layout: PlaneLayout { width: 97, height: 35, channels: 2, depth: 8, sigma_scale: scale },
                padding: [5, 9],
                content: Content::Noise,
            });
        }
    }
    cases
}

/// All taps of one half, from the centre out.
pub fn half(taps: &Taps) -> Vec<u32> {
    (0..=taps.radius()).map(|i| taps.at(i)).collect()
}

impl Case {
    pub fn params(&self) -> BlurParams {
        BlurParams::new(self.sigma, self.kernel_size).unwrap()
    }

    /// Multiply-and-adds, roughly.
    pub fn work(&self) -> usize {
        let [rows, columns] = self.layout.sigma_scale.map(|scale| self.params().taps(scale).radius());
        self.layout.row_samples() * self.layout.height as usize * (rows + columns + 8)
    }

    pub fn image(&self) -> Image {
        let PlaneLayout { width, height, channels, depth, .. } = self.layout;
        let top = (1_u32 << depth) as u64 - 1;
        let mut noise = Noise(u64::from(width) << 32 | u64::from(height) << 8 | u64::from(depth));
        let count = (width * height) as usize * usize::from(channels);
        let samples = (0..count).map(|_| match self.content {
            Content::Noise => (noise.next() & top) as u16,
            Content::Extremes => (noise.next() % 2 * top) as u16,
            Content::Flat => (top - top / 3) as u16,
        });
        Image {
            width: width as usize,
            height: height as usize,
            channels: usize::from(channels),
            depth: u32::from(depth),
            samples: samples.collect(),
        }
    }

    pub fn expected(&self) -> Image {
        let image = self.image();
        if let Content::Flat = self.content {
            return image;
        }
        let [rows, columns] = self.layout.sigma_scale.map(|scale| half(&self.params().taps(scale)));
        image.blurred(&rows, &columns)
    }

    /// The plane's bytes with `padding` after every row but the last.
    fn bytes(&self, image: &Image, padding: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        for row in image.samples.chunks(self.layout.row_samples()) {
            for sample in row {
                match self.layout.sample_bytes() {
                    1 => bytes.push(*sample as u8),
                    _ => bytes.extend(sample.to_ne_bytes()),
                }
            }
            bytes.extend(std::iter::repeat_n(PADDING, padding));
        }
        bytes.truncate(bytes.len() - padding);
        bytes
    }

    /// Runs an engine on the case as [`Case::check`] does.
    pub fn check_engine(&self, engine: &mut Engine) -> usize {
        self.check(|src, dst| {
            let failure = engine.blur(self.params(), src, dst).unwrap();
            assert!(failure.is_none(), "another engine took over: {failure:?}");
        })
    }

    /// Runs `blur` on the case and compares every byte, padding included, with the oracle. Returns the bytes compared.
    pub fn check(&self, blur: impl FnOnce(&Frame, &mut FrameMut)) -> usize {
        let src = self.bytes(&self.image(), self.padding[0]);
        let expected = self.bytes(&self.expected(), self.padding[1]);
        let mut dst = vec![PADDING; expected.len()];
        let pitch = |padding: usize| self.layout.row_bytes() + padding;
        let plane = Plane { layout: self.layout, pitch: pitch(self.padding[0]), data: &src[..] };
        let out = Plane { layout: self.layout, pitch: pitch(self.padding[1]), data: &mut dst[..] };
        blur(&vec![plane], &mut vec![out]);
        let differing = dst.iter().zip(&expected).filter(|(got, want)| got != want).count();
        assert_eq!(differing, 0, "{differing} of {} bytes differ from the oracle: {self:?}", expected.len());
        expected.len()
    }
}
