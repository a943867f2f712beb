//! How far the blur is from the Gaussian itself: infinite, float64, unrounded. Prints the README's table:
//! `cargo test --release --test exactness -- --nocapture`

mod common;

use common::Noise;
use common::cases::half;
use common::oracle::Image;
use gstcudagaussblur::filter::BlurParams;

const SIDE: usize = 256;

fn picture(mut sample: impl FnMut(usize, usize) -> u16) -> Image {
    let samples = (0..SIDE * SIDE).map(|i| sample(i % SIDE, i / SIDE)).collect();
    Image { width: SIDE, height: SIDE, channels: 1, depth: 8, samples }
}

/// Noise, hard noise and a ramp: what errors of single taps do.
fn textures() -> Vec<Image> {
    let mut noise = Noise(1);
    let mut next = move || noise.next();
    vec![
        picture(|_, _| (next() & 255) as u16),
        picture(|_, _| (next() % 2 * 255) as u16),
        picture(|x, y| ((x + 2 * y) / 3) as u16),
    ]
}

/// One edge across the picture, and a grid of edges: what errors of sums of taps do. Here the tail beyond 4σ, which the
/// filter leaves out by definition, shows: the same truncated Gaussian in float64 equals the infinite one, rounded, in
/// only 99.25 % of the samples (one edge, σ = 40).
fn edges() -> Vec<Image> {
    vec![
        picture(|x, y| if x + y / 3 < 160 { 3 } else { 252 }),
        picture(|x, y| if (x / 37 + y / 29) % 2 == 0 { 0 } else { 255 }),
    ]
}

/// Largest distance in LSB, and the share of samples equal to the rounded Gaussian.
fn distance(image: &Image, sigma: f64) -> (f64, f64) {
    let taps = half(&BlurParams::new(sigma, 0).unwrap().taps(1.0));
    let blurred = image.blurred(&taps, &taps);
    let pairs = || blurred.samples.iter().map(|got| f64::from(*got)).zip(image.gaussian(sigma));
    let largest = pairs().map(|(got, want)| (got - want).abs()).fold(0.0, f64::max);
    let equal = pairs().filter(|(got, want)| *got == want.round()).count();
    (largest, equal as f64 / blurred.samples.len() as f64)
}

/// The worst distance and the mean share over some pictures.
fn over(pictures: &[Image], sigma: f64) -> (f64, f64) {
    let distances: Vec<(f64, f64)> = std::thread::scope(|scope| {
        let threads: Vec<_> = pictures.iter().map(|image| scope.spawn(move || distance(image, sigma))).collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).collect()
    });
    let largest = distances.iter().map(|(largest, _)| *largest).fold(0.0, f64::max);
    (largest, distances.iter().map(|(_, equal)| equal).sum::<f64>() / distances.len() as f64)
}

#[test]
fn the_blur_is_within_0_6_lsb_of_the_gaussian() {
    let (textures, edges) = (textures(), edges());
    println!("| σ | largest distance, 8-bit LSB | equal to the rounded Gaussian: textures | hard edges |");
    println!("| --- | --- | --- | --- |");
    for sigma in [0.5, 1.0, 1.5, 3.0, 5.0, 10.0, 20.0, 40.0, 100.0] {
        let [(textures, most), (edges, some)] = [&textures, &edges].map(|pictures| over(pictures, sigma));
        let largest = textures.max(edges);
        println!("| {sigma} | {largest:.3} | {:.2} % | {:.2} % |", 100.0 * most, 100.0 * some);
        assert!(largest <= 0.6, "sigma={sigma}: {largest} LSB");
        assert!(most > 0.995 || sigma > 40.0, "sigma={sigma}: only {most} of the textures' samples are equal");
        assert!(some > 0.985, "sigma={sigma}: only {some} of the edges' samples are equal");
    }
}
