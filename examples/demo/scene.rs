// SPDX-License-Identifier: MPL-2.0
//! The generated clip of the demo: a lake at sunset, made of noise. The view pans past layers of sky, hills and pines,
//! which the water mirrors. Needles, ripples and reeds are fine detail, so that a blur is visible.

use std::thread;

use super::playback::{FPS, FRAMES};

/// Size of a frame in pixels. A pixel has four bytes: red, green, blue, unused.
pub const WIDTH: usize = 1280;
pub const HEIGHT: usize = 720;

/// The first row of water.
const SHORE: usize = 468;
const SUN: [f32; 2] = [820.0, 318.0];
const HAZE: [f32; 3] = [0.98, 0.70, 0.47];

pub fn mix<const N: usize>(a: [f32; N], b: [f32; N], t: f32) -> [f32; N] {
    std::array::from_fn(|i| a[i] + (b[i] - a[i]) * t)
}

pub fn smoothstep(from: f32, to: f32, x: f32) -> f32 {
    let t = ((x - from) / (to - from)).clamp(0.0, 1.0);
    t * t * (3.0 - 2.0 * t)
}

/// A pseudo-random number from 0 to 1 for a grid point.
fn hash(x: i32, y: i32) -> f32 {
    let mut h = (x as u32).wrapping_mul(0x9e37_79b1) ^ (y as u32).wrapping_mul(0x85eb_ca77);
    h = (h ^ (h >> 15)).wrapping_mul(0x2c1b_3c6d);
    h = (h ^ (h >> 12)).wrapping_mul(0x297a_2d39);
    (h ^ (h >> 15)) as f32 / u32::MAX as f32
}

/// Smooth noise from 0 to 1 with features of size 1.
fn noise(x: f32, y: f32) -> f32 {
    let [ix, iy] = [x, y].map(|v| v as i32 - i32::from(v < 0.0));
    let [fx, fy] = [x - ix as f32, y - iy as f32].map(|t| t * t * (3.0 - 2.0 * t));
    let row = |y| hash(ix, y) + (hash(ix + 1, y) - hash(ix, y)) * fx;
    row(iy) + (row(iy + 1) - row(iy)) * fy
}

/// Fractal noise from 0 to 1. Each octave has half the size and half the amplitude of the one before, and is rotated so
/// that no grid is visible.
fn fractal(mut x: f32, mut y: f32, octaves: u32) -> f32 {
    let (mut sum, mut weight) = (0.0, 0.5);
    for _ in 0..octaves {
        sum += weight * noise(x, y);
        weight *= 0.5;
        (x, y) = (1.6 * x - 1.2 * y + 17.3, 1.2 * x + 1.6 * y - 5.1);
    }
    sum / (1.0 - 2.0 * weight)
}

/// Calls `draw` with the index and the pixels of every row, on four threads.
fn rows<T: Send>(pixels: &mut [T], width: usize, draw: impl Fn(usize, &mut [T]) + Sync) {
    let band = (pixels.len() / width).div_ceil(4);
    thread::scope(|scope| {
        for (i, rows) in pixels.chunks_mut(band * width).enumerate() {
            let draw = &draw;
            scope.spawn(move || rows.chunks_mut(width).enumerate().for_each(|(y, row)| draw(i * band + y, row)));
        }
    });
}

/// A strip of scenery above the shore: colour and coverage. Painted once and scrolled, so wider than the frame.
struct Layer {
    width: usize,
    /// Scroll speed in pixels per frame.
    speed: f32,
    /// The first row that is not empty.
    top: usize,
    pixels: Vec<[f32; 4]>,
}

impl Layer {
    fn paint(speed: f32, shade: impl Fn(f32, f32) -> [f32; 4] + Sync) -> Self {
        let width = WIDTH + (speed * FRAMES as f32) as usize + 2;
        let mut pixels = vec![[0.0; 4]; width * SHORE];
        rows(&mut pixels, width, |y, row| {
            for (x, pixel) in row.iter_mut().enumerate() {
                let (x, y) = (x as f32, y as f32);
                *pixel = mix(shade(x, y), shade(x + 0.5, y + 0.5), 0.5);
            }
        });
        let top = pixels.iter().position(|pixel| pixel[3] > 0.0).map_or(SHORE, |first| first / width);
        Self { width, speed, top, pixels }
    }
}

fn sky(x: f32, y: f32) -> [f32; 4] {
    let down = y / SHORE as f32;
    let distance = (x - SUN[0]).hypot(y - SUN[1]);
    let glow = 0.75 * (-distance / 60.0).exp() + 0.35 * (-distance / 250.0).exp();
    let air = mix([0.12, 0.21, 0.43], [0.62, 0.43, 0.52], smoothstep(0.0, 0.6, down));
    let air = mix(mix(air, HAZE, smoothstep(0.4, 0.9, down)), [1.0, 0.90, 0.62], glow.min(1.0));
    let air = mix(air, [1.0, 0.98, 0.88], smoothstep(32.0, 29.0, distance));
    // The clouds are on a plane overhead, so they shrink and flatten towards the horizon.
    let depth = 260.0 / (SHORE as f32 + 70.0 - y);
    let (u, v) = (40.0 + (x - 640.0) * 0.00225 * (1.0 + depth), 3.2 * depth);
    let puffs = fractal(u + 0.7 * fractal(u * 2.0, v * 2.0, 3), v, 7);
    let near = (-distance / 330.0).exp();
    let lit = mix([0.93, 0.56, 0.47], [1.0, 0.88, 0.62], near);
    let cloud = mix(lit, mix([0.30, 0.27, 0.42], [0.72, 0.40, 0.34], near), smoothstep(0.52, 0.80, puffs));
    let [r, g, b] = mix(air, cloud, 0.92 * smoothstep(0.47, 0.72, puffs) * smoothstep(0.93, 0.53, down));
    [r, g, b, 1.0]
}

/// Distance of a point from the outline of the nearest pine, in pixels, positive inside. The pines are `spacing` apart
/// on `ground`.
fn pines(x: f32, y: f32, spacing: f32, height: f32, ground: impl Fn(f32) -> f32) -> f32 {
    let tree = |i: i32| {
        let foot = (i as f32 + hash(i, 1)) * spacing;
        let tall = height * (0.4 + 0.6 * hash(i, 2)) * smoothstep(0.22, 0.55, noise(foot / (1.5 * height), height));
        let below = (y - ground(foot) + tall).max(0.0);
        // Boughs form tiers with ragged tips.
        let tier = (below / (0.12 * height) + hash(i, 3)).fract();
        let ragged = 0.5 + 0.7 * noise(x * 0.9, y * 0.7 + 31.0 * hash(i, 4));
        0.27 * below * (0.45 + 0.55 * tier) * ragged - (x - foot).abs() - 0.5
    };
    let cell = (x / spacing) as i32;
    (cell - 3..=cell + 3).map(tree).fold(f32::MIN, f32::max)
}

/// Hills with pines that rise above `base`. `near` is 0 for the most distant and hazy hills, 1 for the nearest.
fn hills(near: f32, base: f32, rise: f32, spacing: f32, pine: f32) -> impl Fn(f32, f32) -> [f32; 4] {
    move |x, y| {
        let ground = |x: f32| base - rise * smoothstep(0.2, 0.8, fractal(x / (3.5 * rise), 9.0 * near, 5));
        if y < base - rise - pine {
            return [0.0; 4];
        }
        let mut inside = y - ground(x);
        if inside < 1.0 {
            inside = inside.max(pines(x, y, spacing, pine, ground));
        }
        let grain = fractal(x / 4.0, y / 5.0, 3) - 0.5 + 0.8 * (fractal(x / 40.0, y / 18.0, 3) - 0.5);
        let sunward = (-(x - SUN[0]).abs() / 400.0).exp();
        let dark = mix([0.50, 0.38, 0.50], [0.045, 0.075, 0.09], near.sqrt());
        let lit: [f32; 3] = std::array::from_fn(|i| dark[i] + grain * (0.08 + 0.16 * near) * [1.0, 0.8, 0.45][i]);
        let low = smoothstep(base - rise, SHORE as f32, y);
        let [r, g, b] = mix(lit, HAZE, (1.0 - near) * (0.12 + 0.3 * sunward + 0.45 * low));
        [r, g, b, smoothstep(-0.5, 0.5, inside)]
    }
}

/// The scenery, painted in advance, from which every frame is drawn.
pub struct Scene {
    /// From the farthest to the nearest.
    layers: [Layer; 5],
}

impl Scene {
    pub fn new() -> Self {
        let sky = Layer::paint(0.0, sky);
        let range = Layer::paint(0.25, hills(0.0, 415.0, 170.0, 5.0, 1.0));
        let hill = Layer::paint(0.5, hills(0.2, 455.0, 105.0, 4.0, 12.0));
        let rise = Layer::paint(1.0, hills(0.5, 472.0, 80.0, 7.0, 34.0));
        let bank = Layer::paint(2.0, hills(1.0, 476.0, 24.0, 20.0, 150.0));
        Self { layers: [sky, range, hill, rise, bank] }
    }

    /// Draws the frame with index `frame` into `pixels`. `objects` draws what is between the scenery and the reeds.
    pub fn draw(&self, frame: usize, pixels: &mut [u8], objects: impl FnOnce(&mut [u8])) {
        let (above, water) = pixels.split_at_mut(SHORE * WIDTH * 4);
        rows(above, WIDTH * 4, |y, row| {
            for layer in self.layers.iter().filter(|layer| layer.top <= y) {
                let offset = layer.speed * frame as f32;
                let strip = &layer.pixels[y * layer.width + offset as usize..];
                for (pixel, pair) in row.as_chunks_mut::<4>().0.iter_mut().zip(strip.windows(2)) {
                    let [r, g, b, cover] = mix(pair[0], pair[1], offset.fract());
                    blend(pixel, [r, g, b], cover);
                }
            }
        });
        rows(water, WIDTH * 4, |y, row| {
            for (x, pixel) in row.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                blend(pixel, ripple(above, frame, x as f32, y as f32), 1.0);
            }
        });
        objects(pixels);
        let water = &mut pixels[SHORE * WIDTH * 4..];
        rows(water, WIDTH * 4, |y, row| reeds(row, frame, SHORE + y));
    }
}

fn load(pixel: &[u8]) -> [f32; 3] {
    std::array::from_fn(|i| f32::from(pixel[i]) / 255.0)
}

pub fn blend(pixel: &mut [u8], colour: [f32; 3], cover: f32) {
    if cover > 0.0 {
        let blended = mix(load(pixel), colour, cover);
        pixel.iter_mut().zip(blended).for_each(|(byte, value)| *byte = (value * 255.0 + 0.5) as u8);
    }
}

/// The colour of the water at column `x`, `y` rows below the shore: the scenery in `above`, mirrored by waves.
fn ripple(above: &[u8], frame: usize, x: f32, y: f32) -> [f32; 3] {
    let t = frame as f32 / FPS as f32;
    // The position on the plane of the water, which is seen at a flat angle.
    let depth = 1.0 / (y + 9.0);
    let (u, v) = ((x - 640.0) * depth * 3.0 + 1.1 * t, 900.0 * depth);
    let waves = [(1.0, -1.3), (2.3, 1.0), (5.0, -2.0), (13.0, 2.5)];
    let [a, b, c, d] = waves.map(|(size, speed)| noise(u * size, v * size + speed * t) - 0.5);
    let slope = a + 0.5 * b + 0.35 * c + 0.2 * d;
    let mirrored = (SHORE as f32 - 2.0 - 1.3 * y + slope * (2.0 + 0.42 * y)).clamp(0.0, SHORE as f32 - 1.0);
    let aside = (x + slope * (1.0 + 0.05 * y)).clamp(0.0, WIDTH as f32 - 1.0);
    let seen = load(&above[(mirrored as usize * WIDTH + aside as usize) * 4..]);
    let colour = mix(seen, [0.09, 0.10, 0.16], 0.25 + 0.3 * smoothstep(0.0, 250.0, y) - 0.2 * slope);
    let path = (-((x - SUN[0]) / (22.0 + 0.4 * y)).powi(2)).exp();
    let glitter = path * smoothstep(0.15, 0.5, 0.5 * b + c + d);
    mix(colour, [1.0, 0.88, 0.60], 0.85 * glitter)
}

/// Draws the part in row `y` of the reeds in the foreground, which grow in clumps and sway in the wind.
fn reeds(row: &mut [u8], frame: usize, y: usize) {
    let t = frame as f32 / FPS as f32;
    let up = (HEIGHT - y) as f32;
    for i in 0..260 {
        let foot = (i as f32 + hash(i, 20)) * 9.5 - 105.0 * t;
        let tall = 230.0 * smoothstep(0.35, 0.75, noise(i as f32 / 21.0, 4.0)) * (0.35 + 0.65 * hash(i, 21));
        if up > tall {
            continue;
        }
        let wind = (1.6 * t + 0.006 * foot).sin() + 0.4 * (4.8 * t + 9.0 * hash(i, 22)).sin();
        let bend = (up / tall).powi(2);
        let middle = foot + bend * tall * (0.3 * (hash(i, 23) - 0.5) + 0.09 * wind);
        let half = 0.4 + 2.0 * (1.0 - bend);
        let colour = mix([0.03, 0.05, 0.05], [0.27, 0.22, 0.10], hash(i, 24));
        let first = (middle - half).clamp(0.0, WIDTH as f32) as usize;
        for (x, pixel) in row.as_chunks_mut::<4>().0.iter_mut().enumerate().skip(first).take(7) {
            blend(pixel, colour, (half + 0.5 - (x as f32 - middle).abs()).clamp(0.0, 1.0));
        }
    }
}
