//! Measures the distance of the blur from the true Gaussian (infinite, float64, unrounded) by depth, content and σ, and
//! checks it against the promise. `cargo test --test exactness -- --nocapture` prints the README's tables.

mod common;

use common::cases::half;
use common::oracle::Image;
use common::{Noise, PROMISE, promised};
use gstcudagaussblur::filter::BlurParams;
use rayon::prelude::*;

/// The kinds of content. "Rims" are bright borders and corners of small frames, and their inverses.
const KINDS: [&str; 6] = ["noise", "binary noise", "ramps", "hard edges", "rims", "photograph"];

/// Width and height of most pictures, and of a strip that is wider than the widest kernel.
const SQUARE: [usize; 2] = [96, 96];
const STRIP: [usize; 2] = [901, 3];

/// The rows of the table by σ. Each row shows the largest distance over all measured σ above the previous row's.
const ROWS: [f64; 9] = [0.5, 1.0, 1.5, 3.5, 5.0, 10.0, 20.0, 40.0, 100.0];
/// Measured in addition: some σ between the rows, and for each of these radii the largest σ that has it, just below
/// (radius + 0.5) / 4. There the radius int(4σ + 0.5) truncates the most of the Gaussian.
const BETWEEN: [f64; 8] = [0.25, 0.3, 0.75, 2.0, 3.0, 7.0, 14.0, 30.0];
const RADII: [u32; 26] =
    [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 14, 16, 18, 20, 25, 33, 40, 46, 63, 79, 125, 152, 250, 383];

/// A 16-bit picture of one channel.
fn picture([width, height]: [usize; 2], mut sample: impl FnMut(usize, usize) -> u16) -> Image {
    let samples = (0..width * height).map(|i| sample(i % width, i / width)).collect();
    Image { width, height, channels: 1, depth: 16, samples }
}

/// A 16-bit picture of only the lowest and the highest value.
fn binary(size: [usize; 2], mut is_high: impl FnMut(usize, usize) -> bool) -> Image {
    picture(size, |x, y| if is_high(x, y) { u16::MAX } else { 0 })
}

fn inverse(image: &Image) -> Image {
    Image { samples: image.samples.iter().map(|sample| !sample).collect(), ..*image }
}

fn quantised(image: &Image, depth: u32) -> Image {
    Image { depth, samples: image.samples.iter().map(|sample| sample >> (16 - depth)).collect(), ..*image }
}

/// An 8-bit photograph, with noise in the lower 8 of 16 bits.
fn photograph() -> Image {
    let file: &[u8] = include_bytes!("data/photograph.pgm");
    let samples = file.strip_prefix(b"P5\n160 160\n255\n").unwrap();
    let mut noise = Noise(1);
    picture([160, 160], |x, y| u16::from(samples[160 * y + x]) << 8 | noise.next() as u16 & 255)
}

/// A ramp from corner to corner.
fn ramp(size: [usize; 2]) -> Image {
    let [width, height] = size;
    picture(size, |x, y| ((x + 2 * y) * 65535 / (width - 1 + 2 * (height - 1))) as u16)
}

/// A picture whose border is bright and whose inside is dark.
fn frame(size: [usize; 2]) -> Image {
    let on_the_border = |i: usize, count: usize| i == 0 || i == count - 1;
    binary(size, |x, y| on_the_border(x, size[0]) || on_the_border(y, size[1]))
}

/// The error of each tap relative to the taps' sum, from the centre to where the Gaussian is negligible.
fn errors(taps: &[u32], sigma: f64) -> Vec<f64> {
    let reach = (6.0 * sigma) as usize + 2;
    let impulse = binary([2 * reach + 1, 1], |x, _| x == reach).gaussian(sigma);
    let tap = |i: usize| f64::from(taps.get(i).copied().unwrap_or(0)) / 65536.0;
    (0..=reach).map(|i| tap(i) - impulse[reach + i] / 65535.0).collect()
}

/// Half the width of the dark square on a bright ground whose centre pixel has the largest error: the one for which the
/// sum of the errors of the taps inside is largest.
fn worst_square(errors: &[f64]) -> usize {
    let inside = errors.iter().scan(-errors[0], |sum, error| {
        *sum += 2.0 * error;
        Some(sum.abs())
    });
    inside.enumerate().max_by(|a, b| a.1.total_cmp(&b.1)).unwrap().0
}

/// An upper bound in LSB on the distance for any picture. The tap errors of an axis sum to 0, so the error of one axis
/// is at most the sum of the positive tap errors times the range of the samples (the highest value under those taps,
/// the lowest under all others). The error of both axes is at most twice that, and each of the two roundings adds a
/// half.
fn bound(errors: &[f64], depth: u32) -> f64 {
    let above = errors[0].max(0.0) + 2.0 * errors[1..].iter().map(|error| error.max(0.0)).sum::<f64>();
    2.0 * above * f64::from((1 << depth) - 1) + 0.5 + 0.5 / f64::from(1 << (16 - depth))
}

/// The pictures of every kind. `radius` is the kernel's; `square` is half the width of the worst dark square.
fn contents(radius: usize, square: usize) -> [Vec<Image>; KINDS.len()] {
    let mut noise = Noise(1);
    let mut next = move || noise.next();
    let noises = [SQUARE, STRIP].map(|size| picture(size, |_, _| next() as u16)).to_vec();
    let binaries = [SQUARE, STRIP].map(|size| binary(size, |_, _| next() % 2 == 0)).to_vec();
    let ramps = [SQUARE, STRIP].map(ramp).to_vec();
    let edges = vec![
        binary(SQUARE, |x, y| x + y / 3 < 60),
        binary(SQUARE, |x, y| (x / 37 + y / 29) % 2 == 0),
        // Single bright samples on the left, bright lines on the right.
        binary(SQUARE, |x, y| if x < 48 { x % 19 == 9 && y % 17 == 8 } else { x % 21 == 10 || y % 23 == 11 }),
        binary(SQUARE, |x, y| x.abs_diff(48).max(y.abs_diff(48)) > square),
        binary(STRIP, |x, _| x < 450),
    ];
    // For the centre of the first picture all taps lie inside the bright border, which is just outside the kernel.
    let [around, worst] = [radius + 1, square + 1].map(|reach| 2 * reach + 1);
    let small = around.min(SQUARE[0]);
    let mut rims = vec![
        frame([small; 2]),
        binary([small; 2], |x, y| [x, y].iter().all(|i| [0, small - 1].contains(i))),
        frame([7, 5]),
        frame([around, 1]),
        frame([1, around]),
        binary([around, 2], |x, _| x == 0),
    ];
    let inverses: Vec<Image> = rims.iter().map(inverse).collect();
    rims.extend(inverses);
    rims.push(frame([worst; 2]));
    [noises, binaries, ramps, edges, rims, vec![photograph()]]
}

/// The largest distance in LSB, and the number of samples equal to the rounded Gaussian.
fn distance(image: &Image, taps: &[u32], sigma: f64) -> (f64, usize) {
    let blurred = image.blurred(taps, taps);
    let pairs: Vec<(f64, f64)> = blurred.samples.iter().copied().map(f64::from).zip(image.gaussian(sigma)).collect();
    let largest = largest(pairs.iter().map(|(got, want)| (got - want).abs()));
    (largest, pairs.iter().filter(|(got, want)| *got == want.round()).count())
}

/// The measurements at one σ, by depth and kind of content.
struct Measured {
    sigma: f64,
    /// The largest distance measured, in LSB.
    largest: [[f64; KINDS.len()]; PROMISE.len()],
    /// The upper bound for any picture, in LSB.
    bound: [f64; PROMISE.len()],
    /// The fraction of samples equal to the rounded Gaussian, at 8 bits.
    equal: [f64; KINDS.len()],
}

impl Measured {
    /// The mean fraction for noise, binary noise and ramps, which depends on the errors of single taps.
    fn textures(&self) -> f64 {
        self.equal[..3].iter().sum::<f64>() / 3.0
    }

    /// The fraction for hard edges, which depends on the errors of sums of taps and on the tail beyond 4σ, which the
    /// filter truncates by definition: the same truncated Gaussian in float64 equals the infinite one, rounded, in only
    /// 99.25 % of the samples (one edge, σ = 40).
    fn edges(&self) -> f64 {
        self.equal[3]
    }
}

fn measure(sigma: f64) -> Measured {
    let taps = half(&BlurParams::new(sigma, 0).unwrap().taps(1.0));
    let errors = errors(&taps, sigma);
    let contents = contents((4.0 * sigma + 0.5) as usize, worst_square(&errors));
    let distances = PROMISE.map(|(depth, ..)| {
        contents.each_ref().map(|pictures| {
            let of_each = pictures.par_iter().map(|image| distance(&quantised(image, depth), &taps, sigma));
            of_each.reduce(|| (0.0, 0), |a, b| (a.0.max(b.0), a.1 + b.1))
        })
    });
    let samples = contents.map(|pictures| pictures.iter().map(|image| image.samples.len()).sum::<usize>() as f64);
    Measured {
        sigma,
        largest: distances.map(|kinds| kinds.map(|(largest, _)| largest)),
        bound: PROMISE.map(|(depth, ..)| bound(&errors, depth)),
        equal: std::array::from_fn(|kind| distances[0][kind].1 as f64 / samples[kind]),
    }
}

fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

/// A row of a Markdown table.
fn print_row(cells: impl IntoIterator<Item = String>) {
    println!("| {} |", cells.into_iter().collect::<Vec<_>>().join(" | "));
}

fn by_content(all: &[Measured]) {
    let header = ["depth"].into_iter().chain(KINDS).chain(["no picture beyond"]);
    print_row(header.clone().map(str::to_owned));
    print_row(header.map(|_| "---".to_owned()));
    for (i, (depth, ..)) in PROMISE.into_iter().enumerate() {
        let kinds = (0..KINDS.len()).map(|kind| largest(all.iter().map(|measured| measured.largest[i][kind])));
        let distances = kinds.chain([largest(all.iter().map(|measured| measured.bound[i]))]);
        print_row([format!("{depth} bits")].into_iter().chain(distances.map(|distance| format!("{distance:.3}"))));
    }
}

fn by_sigma(all: &[Measured]) {
    let depths = PROMISE.map(|(depth, ..)| format!("{depth} bits"));
    let shares = ["equal to the rounded Gaussian, 8 bits: textures", "hard edges"].map(str::to_owned);
    print_row(["σ up to".to_owned()].into_iter().chain(depths).chain(shares));
    print_row(vec!["---".to_owned(); 1 + PROMISE.len() + 2]);
    let mut above = 0.0;
    for row in ROWS {
        let group: Vec<&Measured> = all.iter().filter(|m| m.sigma > above && m.sigma <= row).collect();
        let distance = |depth: usize| largest(group.iter().flat_map(|m| m.largest[depth]));
        let distances = (0..PROMISE.len()).map(|depth| format!("{:.3}", distance(depth)));
        let least = |share: fn(&Measured) -> f64| group.iter().map(|m| share(m)).fold(1.0, f64::min);
        let shares = [least(Measured::textures), least(Measured::edges)].map(|share| format!("{:.2} %", 100.0 * share));
        print_row([row.to_string()].into_iter().chain(distances).chain(shares));
        above = row;
    }
}

#[test]
fn distance_from_the_gaussian_is_within_the_promise() {
    let cut = RADII.map(|radius| (f64::from(radius) + 0.5) / 4.0 - 1e-9);
    let sigmas: Vec<f64> = ROWS.into_iter().chain(BETWEEN).chain(cut).collect();
    let all: Vec<Measured> = sigmas.into_par_iter().map(measure).collect();
    by_content(&all);
    println!();
    by_sigma(&all);
    for measured in &all {
        let sigma = measured.sigma;
        for (i, (depth, ..)) in PROMISE.into_iter().enumerate() {
            let most = promised(depth, sigma).min(measured.bound[i]);
            for (kind, distance) in KINDS.iter().zip(measured.largest[i]) {
                assert!(distance <= most, "{kind}, {depth} bits, sigma={sigma}: {distance} LSB, more than {most}");
            }
        }
        let (textures, edges) = (measured.textures(), measured.edges());
        let least = if sigma <= 20.0 { 0.995 } else { 0.99 };
        assert!(textures > least, "sigma={sigma}: a fraction of only {textures} of the textures' samples is equal");
        assert!(edges > 0.985, "sigma={sigma}: a fraction of only {edges} of the edges' samples is equal");
    }
}
