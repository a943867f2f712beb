//! Measures the distance of the blur from the true Gaussian (infinite, float64, unrounded) by depth, content and σ, and
//! checks it against the promise. `cargo test --test suite exactness -- --nocapture` prints the tables of docs/ARITHMETIC.md.

use std::ops::Range;

use crate::common::cases::axis;
use crate::common::oracle::{Axis, Image, gaussian_weights};
use crate::common::{Noise, PROMISE, PROMISE_KERNEL_SIZE, promised};
use gstcudagaussblur::filter::{BlurParams, WIDE_SIGMA};
use rayon::prelude::*;

/// The kinds of content. "Rims" are bright borders and corners of small frames, and their inverses.
const KINDS: [&str; 6] = ["noise", "binary noise", "ramps", "hard edges", "rims", "photograph"];

/// Width and height of most pictures.
const SQUARE: [usize; 2] = [96, 96];
/// Pictures smaller than any kernel.
const TINY: [[usize; 2]; 6] = [[1, 1], [1, 7], [3, 2], [5, 5], [300, 2], [2, 300]];
/// Longest line of which every sample is measured. Of longer ones about [`MEASURED`] are, an odd number apart, so that all
/// phases of the interpolation are among them.
const WHOLE: usize = 1000;
const MEASURED: usize = 300;
/// Longest side of a picture of the worst rectangle; beyond, the picture is one row.
const LONGEST: usize = 1100;

/// The rows of the table by σ. Each row shows the largest distance over all measured σ above the previous row's.
const ROWS: [(&str, f64); 12] = [
    ("up to 0.5", 0.5),
    ("up to 1", 1.0),
    ("up to 1.5", 1.5),
    ("below 3.5", WIDE_SIGMA.next_down()),
    ("3.5 to 5", 5.0),
    ("up to 10", 10.0),
    ("up to 20", 20.0),
    ("up to 40", 40.0),
    ("up to 100", 100.0),
    ("up to 200", 200.0),
    ("up to 500", 500.0),
    ("up to 1024", 1024.0),
];
/// Measured in addition: some σ between the rows, among them both sides of the thresholds of the wide form, and those with
/// the largest errors of a rectangle ([`Interval::error`]) among several thousand σ. And for each of these radii σ just below
/// (radius + 0.5) / 4. There, in the direct form, the radius int(4σ + 0.5) truncates the most of the Gaussian.
const BETWEEN: [f64; 43] = [
    0.25, 0.3, 0.75, 2.0, 2.3717, 2.61, 2.8477, 3.0, 3.358, 3.49, 3.5, 4.0, 4.6, 6.99, 7.0, 7.165, 7.5, 9.41513, 12.0,
    13.88686, 14.0, 14.11355, 14.7, 28.0, 28.4, 30.0, 33.0, 37.96597, 45.49075, 56.504, 63.0, 113.0, 138.42537,
    179.10014, 222.87638, 453.0, 19.49554, 22.8448, 22.89611, 26.35658, 91.68267, 103.08916, 366.75522,
];
const RADII: [u32; 18] = [1, 2, 3, 4, 5, 6, 7, 8, 10, 11, 12, 13, 16, 25, 46, 79, 152, 383];

/// A 16-bit picture of one channel.
fn picture([width, height]: [usize; 2], mut sample: impl FnMut(usize, usize) -> u16) -> Image {
    let samples = (0..width * height).map(|i| sample(i % width, i / width)).collect();
    Image { width, height, channels: 1, depth: 16, samples }
}

/// A 16-bit picture of only the lowest and the highest value.
fn binary(size: [usize; 2], mut is_high: impl FnMut(usize, usize) -> bool) -> Image {
    picture(size, |x, y| if is_high(x, y) { u16::MAX } else { 0 })
}

fn quantised(image: &Image, depth: u32) -> Image {
    Image { depth, samples: image.samples.iter().map(|sample| sample >> (16 - depth)).collect(), ..*image }
}

/// An 8-bit photograph, with noise in the lower 8 of 16 bits.
fn photograph() -> Image {
    let file: &[u8] = include_bytes!("../data/photograph.pgm");
    let samples = file.strip_prefix(b"P5\n160 160\n255\n").unwrap();
    let mut noise = Noise(1);
    picture([160, 160], |x, y| u16::from(samples[160 * y + x]) << 8 | noise.next() as u16 & 255)
}

/// A picture whose border is bright and whose inside is dark.
fn frame(size: [usize; 2]) -> Image {
    let on_the_border = |i: usize, count: usize| i == 0 || i == count - 1;
    binary(size, |x, y| on_the_border(x, size[0]) || on_the_border(y, size[1]))
}

/// The samples of an axis that are blurred to one sample, relative to it, over which the errors of the weights sum up to
/// the largest value that two axes can reach.
struct Interval {
    /// The sample's position modulo the product of the factors of the levels.
    phase: usize,
    factors: usize,
    /// From the first sample of the interval to the first one behind it.
    samples: Range<isize>,
    /// Whether the larger part of the Gaussian is inside. The error of the product of two axes is the largest if the
    /// heavier part of each is dark.
    is_inside_heavier: bool,
    /// That error, as a fraction of the highest value.
    error: f64,
}

/// How far the weights of an axis are from the Gaussian's.
struct WeightErrors {
    /// The sum of the positive errors, in the phase where it is largest.
    above: f64,
    worst: Interval,
    /// The roundings of both axes but the last one.
    roundings: usize,
}

impl WeightErrors {
    fn new(axis: &Axis, sigma: f64) -> Self {
        // The wide form reaches 9σ at most.
        let reach = (10.0 * sigma) as usize + 2;
        let mut gaussian = vec![0.0; 2 * reach + 1];
        gaussian_weights(sigma, 2 * reach + 1, &[reach])[0].iter().for_each(|(i, weight)| gaussian[*i] = *weight);
        let factors = axis.levels.iter().product();
        let of_phase = |phase: usize| {
            let (first, weights) = axis.weights(phase);
            let mut errors: Vec<f64> = gaussian.iter().map(|weight| -weight).collect();
            let start = (first - phase as isize + reach as isize) as usize;
            errors[start..start + weights.len()].iter_mut().zip(weights).for_each(|(error, weight)| *error += weight);
            let above = errors.iter().map(|error| error.max(0.0)).sum::<f64>();
            // Of the intervals between changes of the error's sign, the one with the largest error.
            let [sums, masses] = [&errors, &gaussian].map(|values| running_sums(values));
            let ends: Vec<usize> = (1..errors.len()).filter(|i| (errors[i - 1] > 0.0) != (errors[*i] > 0.0)).collect();
            let mut worst = Interval { phase, factors, samples: 0..1, is_inside_heavier: true, error: 0.0 };
            for (i, start) in ends.iter().enumerate() {
                for end in &ends[i + 1..] {
                    let inside = masses[*end] - masses[*start];
                    let error = 2.0 * inside.max(1.0 - inside) * (sums[*end] - sums[*start]).abs();
                    if error > worst.error {
                        let [start, end] = [start, end].map(|i| *i as isize - reach as isize);
                        worst = Interval { samples: start..end, is_inside_heavier: inside >= 0.5, error, ..worst };
                    }
                }
            }
            (above, worst)
        };
        let phases: Vec<(f64, Interval)> = (0..factors).into_par_iter().map(of_phase).collect();
        Self {
            above: largest(phases.iter().map(|(above, _)| *above)),
            worst: phases.into_iter().map(|(_, worst)| worst).max_by(|a, b| a.error.total_cmp(&b.error)).unwrap(),
            roundings: 2 * (1 + 2 * axis.levels.len()) - 1,
        }
    }

    /// An upper bound in LSB on the distance for any picture. The errors of an axis' weights sum to 0, so the error of one
    /// axis is at most the sum of the positive errors times the range of the samples (the highest value under those
    /// weights, the lowest under all others). The other axis takes a mean of it, so the error of both axes is at most twice
    /// that. Each rounding to 16 bits, and the last one to the depth, adds a half at most, because what follows takes means.
    fn bound(&self, depth: u32) -> f64 {
        let roundings = 0.5 * self.roundings as f64 / f64::from(1 << (16 - depth)) + 0.5;
        2.0 * self.above * f64::from((1 << depth) - 1) + roundings
    }
}

/// The sum of the values before each one, and of all.
fn running_sums(values: &[f64]) -> Vec<f64> {
    let mut sum = 0.0;
    let sums = values.iter().map(|value| {
        sum += value;
        sum
    });
    [0.0].into_iter().chain(sums).collect()
}

/// A picture, and the columns and rows that are measured.
struct Picture {
    image: Image,
    measured: [Vec<usize>; 2],
}

impl From<Image> for Picture {
    fn from(image: Image) -> Self {
        let measured = [image.width, image.height].map(|count| {
            let step = if count <= WHOLE { 1 } else { (count / MEASURED) | 1 };
            (0..count).step_by(step).collect()
        });
        Self { image, measured }
    }
}

impl Picture {
    /// A dark rectangle on a bright ground, or the reverse, around the sample with the largest error.
    fn worst(interval: &Interval) -> Self {
        let Interval { phase, factors, samples, is_inside_heavier, .. } = interval;
        // There is a sample before the interval, which the edge repeats, and one behind it.
        let before = (1 - samples.start).max(0) as usize;
        let centre = before.saturating_sub(*phase).next_multiple_of(*factors) + phase;
        let side = (centre as isize + samples.end).max(centre as isize) as usize + 1;
        let is_dark = |i: usize| samples.contains(&(i as isize - centre as isize)) == *is_inside_heavier;
        let around = |count: usize| (0..count).filter(|i| i.abs_diff(centre) <= 3).collect();
        if side <= LONGEST {
            let image = binary([side; 2], |x, y| !(is_dark(x) && is_dark(y)));
            Self { image, measured: [around(side), around(side)] }
        } else {
            Self { image: binary([side, 1], |x, _| !is_dark(x)), measured: [around(side), vec![0]] }
        }
    }

    /// For each depth the largest distance in LSB, the number of samples equal to the rounded Gaussian, and the number of
    /// samples.
    fn distances(&self, axis: &Axis, sigma: f64) -> [(f64, usize, usize); PROMISE.len()] {
        let Self { image, measured: [columns, rows] } = self;
        // The Gaussian of a picture of two values is the same at every depth, but for its scale. Else each depth is a channel.
        let is_binary = image.samples.iter().all(|sample| [0, u16::MAX].contains(sample));
        let channels = if is_binary { 1 } else { PROMISE.len() };
        let shifts = PROMISE.map(|(depth, ..)| if is_binary { 0 } else { 16 - depth });
        let samples = image.samples.iter().flat_map(|sample| shifts[..channels].iter().map(move |by| sample >> by));
        let gaussian = Image { channels, samples: samples.collect(), ..*image }.gaussian_at(sigma, &self.measured);
        std::array::from_fn(|i| {
            let depth = PROMISE[i].0;
            let scale = if is_binary { f64::from((1 << depth) - 1) / 65535.0 } else { 1.0 };
            let want = gaussian.iter().skip(i % channels).step_by(channels).map(|sample| sample * scale);
            let blurred = quantised(image, depth).blurred(axis, axis);
            let got = rows.iter().flat_map(|y| columns.iter().map(move |x| y * image.width + x));
            let got = got.map(|i| f64::from(blurred.samples[i]));
            let pairs: Vec<(f64, f64)> = got.zip(want).collect();
            let largest = largest(pairs.iter().map(|(got, want)| (got - want).abs()));
            (largest, pairs.iter().filter(|(got, want)| *got == want.round()).count(), pairs.len())
        })
    }
}

/// The pictures of every kind for a σ. `radius` is 4σ.
fn contents(sigma: f64, radius: usize, worst: &Interval) -> [Vec<Picture>; KINDS.len()] {
    let mut noise = Noise(1);
    let mut next = move || noise.next();
    // Wider than the widest kernel, which reaches about 8σ.
    let strip = [901.max((18.0 * sigma) as usize | 1), 3];
    let sizes = || [SQUARE, strip].into_iter().chain(TINY);
    let noises: Vec<Image> = sizes().map(|size| picture(size, |_, _| next() as u16)).collect();
    let binaries: Vec<Image> = sizes().map(|size| binary(size, |_, _| next() % 2 == 0)).collect();
    // From corner to corner.
    let ramp = |x: usize, y: usize, [width, height]: [usize; 2]| (x + 2 * y) * 65535 / (width - 1 + 2 * (height - 1));
    let ramps = [SQUARE, strip].map(|size| picture(size, |x, y| ramp(x, y, size) as u16)).to_vec();
    let square = worst.samples.len() / 2;
    let edges = vec![
        binary(SQUARE, |x, y| x + y / 3 < 60),
        binary(SQUARE, |x, y| (x / 37 + y / 29) % 2 == 0),
        // Single bright samples on the left, bright lines on the right.
        binary(SQUARE, |x, y| if x < 48 { x % 19 == 9 && y % 17 == 8 } else { x % 21 == 10 || y % 23 == 11 }),
        binary(SQUARE, |x, y| x.abs_diff(48).max(y.abs_diff(48)) > square),
        binary(strip, |x, _| x < strip[0] / 2),
    ];
    // For the centre of the first picture all taps of the direct form lie inside the bright border.
    let around = 2 * (radius + 1) + 1;
    let small = around.min(SQUARE[0]);
    let mut rims = vec![
        frame([small; 2]),
        binary([small; 2], |x, y| [x, y].iter().all(|i| [0, small - 1].contains(i))),
        frame([7, 5]),
        frame([around, 1]),
        frame([1, around]),
        binary([around, 2], |x, _| x == 0),
    ];
    let inverse = |image: &Image| Image { samples: image.samples.iter().map(|sample| !sample).collect(), ..*image };
    rims.extend(rims.iter().map(inverse).collect::<Vec<_>>());
    let mut contents = [noises, binaries, ramps, edges, rims, vec![photograph()]]
        .map(|images| images.into_iter().map(Picture::from).collect::<Vec<_>>());
    contents[4].push(Picture::worst(worst));
    contents
}

/// The measurements at one σ, by depth and kind of content.
struct Measured {
    sigma: f64,
    /// The largest distance measured, in LSB.
    largest: [[f64; KINDS.len()]; PROMISE.len()],
    /// The upper bound for any picture, in LSB.
    bound: [f64; PROMISE.len()],
    /// Of the samples at 8 bits, the fraction equal to the rounded Gaussian: for noise, binary noise and ramps, which depends on the
    /// errors of single weights.
    textures: f64,
    /// For hard edges, which depends on the errors of sums of weights and on the tail beyond 4σ, which the filter truncates by
    /// definition.
    edges: f64,
}

fn measure(sigma: f64, kernel_size: u32) -> Measured {
    let axis = axis(&BlurParams::new(sigma, kernel_size).unwrap(), 1.0);
    let errors = WeightErrors::new(&axis, sigma);
    let contents = contents(sigma, (4.0 * sigma + 0.5) as usize, &errors.worst);
    let of_kind = |pictures: &Vec<Picture>| {
        let of_each = pictures.par_iter().map(|picture| picture.distances(&axis, sigma));
        let both = |a: (f64, usize, usize), b: (f64, usize, usize)| (a.0.max(b.0), a.1 + b.1, a.2 + b.2);
        of_each.reduce(|| [(0.0, 0, 0); PROMISE.len()], |a, b| std::array::from_fn(|i| both(a[i], b[i])))
    };
    let kinds = contents.each_ref().map(of_kind);
    let equal = kinds.map(|kind| kind[0].1 as f64 / kind[0].2 as f64);
    Measured {
        sigma,
        largest: std::array::from_fn(|depth| kinds.map(|kind| kind[depth].0)),
        bound: PROMISE.map(|(depth, ..)| errors.bound(depth)),
        textures: equal[..3].iter().sum::<f64>() / 3.0,
        edges: equal[3],
    }
}

fn largest(values: impl Iterator<Item = f64>) -> f64 {
    values.fold(0.0, f64::max)
}

/// A row of a Markdown table.
fn print_row(cells: impl IntoIterator<Item = String>) {
    println!("| {} |", cells.into_iter().collect::<Vec<_>>().join(" | "));
}

/// One row for each depth.
fn by_content(all: &[&Measured]) {
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
    let shares = ["equal at 8 bits: textures", "equal at 8 bits: hard edges"].map(str::to_owned);
    print_row(["σ".to_owned()].into_iter().chain(depths).chain(shares));
    print_row(vec!["---".to_owned(); 1 + PROMISE.len() + 2]);
    let mut above = 0.0;
    for (name, row) in ROWS {
        let group: Vec<&Measured> = all.iter().filter(|m| m.sigma > above && m.sigma <= row).collect();
        let distance = |depth: usize| largest(group.iter().flat_map(|m| m.largest[depth]));
        let distances = (0..PROMISE.len()).map(|depth| format!("{:.3}", distance(depth)));
        let least = |share: fn(&Measured) -> f64| group.iter().map(|m| share(m)).fold(1.0, f64::min);
        let shares = [least(|m| m.textures), least(|m| m.edges)].map(|share| format!("{:.2} %", 100.0 * share));
        print_row([name.to_owned()].into_iter().chain(distances).chain(shares));
        above = row;
    }
}

/// Checks the distances against the promise, in the order of [`PROMISE`], and the bound for any picture.
fn check(measured: &Measured, promise: [f64; PROMISE.len()]) {
    let sigma = measured.sigma;
    for (i, (depth, ..)) in PROMISE.into_iter().enumerate() {
        let most = promise[i].min(measured.bound[i]);
        for (kind, distance) in KINDS.iter().zip(measured.largest[i]) {
            assert!(distance <= most, "{kind}, {depth} bits, sigma={sigma}: {distance} LSB, more than {most}");
        }
    }
}

#[test]
fn distance_from_the_gaussian_is_within_the_promise() {
    let cut = RADII.map(|radius| (f64::from(radius) + 0.5) / 4.0 - 1e-9);
    let mut sigmas: Vec<f64> = ROWS.map(|(_, sigma)| sigma).into_iter().chain(BETWEEN).chain(cut).collect();
    sigmas.sort_by(f64::total_cmp);
    sigmas.dedup();
    let all: Vec<Measured> = sigmas.into_par_iter().map(|sigma| measure(sigma, 0)).collect();
    let (direct, wide): (Vec<&Measured>, Vec<&Measured>) = all.iter().partition(|m| m.sigma < WIDE_SIGMA);
    for (form, group) in [("direct", direct), ("wide", wide)] {
        println!("{form} form, {} sigmas", group.len());
        by_content(&group);
    }
    by_sigma(&all);
    for measured in &all {
        let sigma = measured.sigma;
        check(measured, PROMISE.map(|(depth, ..)| promised(depth, sigma)));
        let Measured { textures, edges, .. } = *measured;
        assert!(textures > 0.99, "sigma={sigma}: a fraction of only {textures} of the textures' samples is equal");
        // A picture that is much smaller than the kernel becomes nearly flat, and areas of it lie next to a half.
        let least = if sigma <= 500.0 { 0.985 } else { 0.96 };
        assert!(edges > least, "sigma={sigma}: a fraction of only {edges} of the edges' samples is equal");
    }
    // Both sides of where the form or the number of levels changes: a video of slowly changing sigma has no step there beyond that of
    // the Gaussian, because both frames are near it.
    let thresholds = [3.5, 7.0, 28.32, 113.36, 453.45].into_par_iter();
    thresholds.flat_map_iter(|sigma| [sigma - 0.01, sigma + 0.01]).for_each(|sigma| {
        check(&measure(sigma, 0), PROMISE.map(|(depth, ..)| promised(depth, sigma)));
    });
}

/// What distances are measured from: an implementation that shares no code with this crate has the same values.
#[test]
fn the_gaussian_is_that_of_scipy() {
    let sample = |x: usize, y: usize| ((7919 * x * x + 104_729 * y + 31 * x * y) % 65536) as u16;
    let (image, places) = (picture([131, 77], sample), [vec![0, 1, 2, 30, 65, 130], vec![0, 1, 38, 76]]);
    let lines = include_str!("../data/gaussian.txt").lines().filter(|line| !line.starts_with('#'));
    let lines: Vec<Vec<f64>> =
        lines.map(|line| line.split(' ').map(|number| number.parse().unwrap()).collect()).collect();
    assert_eq!(lines.len(), 7);
    for line in lines {
        let gaussian = image.gaussian_at(line[0], &places);
        assert_eq!(gaussian.len(), line.len() - 1);
        let distance = largest(gaussian.iter().zip(&line[1..]).map(|(one, other)| (one - other).abs()));
        assert!(distance < 1e-5, "sigma={}: {distance}", line[0]);
    }
}

/// A set kernel-size selects the direct form for any σ. Measured with the radius that follows from a small σ,
/// int(4σ + 0.5), among them two σ for which it truncates the most.
#[test]
fn distance_with_a_kernel_size_is_within_its_promise() {
    let sigmas = [5.0, 20.0, 38.124_999, 95.874_999, 100.0];
    let of = |sigma: f64| measure(sigma, 2 * (4.0 * sigma + 0.5) as u32 + 1);
    let all: Vec<Measured> = sigmas.into_par_iter().map(of).collect();
    println!("kernel-size=8*sigma+1, {} sigmas", all.len());
    by_content(&all.iter().collect::<Vec<_>>());
    all.iter().for_each(|measured| check(measured, PROMISE_KERNEL_SIZE));
}
