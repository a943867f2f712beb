// SPDX-License-Identifier: MPL-2.0
//! What `--regions` covers: a balloon, a boat and the camera's clock, with the place of each.

use super::coverage::Rect;
use super::playback::FPS;
use super::scene::{HEIGHT, WIDTH, blend, mix, smoothstep};

/// An object that moves, with the size of its box in pixels.
pub struct Object {
    pub label: &'static str,
    size: [usize; 2],
    /// The upper left corner of the box in a frame.
    corner: fn(f32) -> [f32; 2],
    /// Colour and coverage of a point of the box.
    shade: fn(f32, f32) -> ([f32; 3], f32),
}

pub const BALLOON: Object = Object {
    label: "balloon",
    size: [124, 176],
    corner: |frame| [170.0 + 2.2 * frame, 96.0 + 26.0 * (frame / 40.0).sin()],
    shade: balloon,
};

pub const BOAT: Object = Object {
    label: "boat",
    size: [196, 210],
    corner: |frame| [950.0 - 2.6 * frame, 372.0 + 3.0 * (frame / 9.0).sin()],
    shade: boat,
};

impl Object {
    /// The box of the object in the frame with index `frame`. It is inside of the picture.
    pub fn rect(&self, frame: usize) -> Rect {
        let [x, y] = (self.corner)(frame as f32).map(|edge| edge as usize);
        Rect { x, y, width: self.size[0], height: self.size[1] }
    }

    pub fn draw(&self, frame: usize, pixels: &mut [u8]) {
        let rect = self.rect(frame);
        for y in 0..rect.height {
            let row = &mut pixels[((rect.y + y) * WIDTH + rect.x) * 4..][..rect.width * 4];
            for (x, pixel) in row.as_chunks_mut::<4>().0.iter_mut().enumerate() {
                let (colour, cover) = (self.shade)(x as f32 + 0.5, y as f32 + 0.5);
                blend(pixel, colour, cover);
            }
        }
    }
}

/// Coverage of a point that is `inside` pixels inside an outline.
fn edge(inside: f32) -> f32 {
    smoothstep(-0.7, 0.7, inside)
}

/// A striped balloon with a basket.
fn balloon(x: f32, y: f32) -> ([f32; 3], f32) {
    let across = (x - 62.0) / 60.0;
    let down = (y - 64.0) / if y < 64.0 { 62.0 } else { 84.0 };
    let round = (1.0 - across.hypot(down)) * 60.0;
    // The stripes run from pole to pole, so they narrow towards the sides.
    let half_width = (1.0 - down * down).max(0.01).sqrt();
    let stripe = ((across / half_width).clamp(-1.0, 1.0).asin() * 12.0 / std::f32::consts::PI + 60.0) as usize;
    let colour = [[0.85, 0.18, 0.12], [0.97, 0.83, 0.35], [0.13, 0.33, 0.60]][stripe % 3];
    let lit = mix(colour, [0.10, 0.05, 0.12], 0.5 * smoothstep(0.3, -1.0, across) + 0.25 * smoothstep(0.0, 1.0, down));
    let is_above = y < 140.0;
    let basket = (12.0 - (x - 62.0).abs()).min(y - 156.0).min(174.0 - y);
    let ropes = ((x - 62.0).abs() - 12.0 - (156.0 - y) * 0.35).abs();
    if is_above && round > -0.7 {
        (lit, edge(round))
    } else if basket > -0.7 {
        let weave = 0.75 + 0.25 * (x * 1.6).sin() * (y * 1.6).sin();
        ([0.42, 0.26, 0.13].map(|channel: f32| channel * weave), edge(basket))
    } else if (138.0..157.0).contains(&y) {
        ([0.16, 0.11, 0.10], edge(0.4 - ropes))
    } else {
        ([0.0; 3], 0.0)
    }
}

/// A sailing boat with the sail's number and two people.
fn boat(x: f32, y: f32) -> ([f32; 3], f32) {
    let sail = (y - 6.0).min(166.0 - y).min((x - 92.0) * 0.9).min(((y - 6.0) * 0.58 - (x - 92.0)) * 0.86);
    let jib = (y - 30.0).min(160.0 - y).min((86.0 - x) * 0.9).min(((y - 30.0) * 0.5 - (86.0 - x)) * 0.88);
    let keel = (y - 176.0) / 30.0;
    let hull = (y - 176.0).min(206.0 - y).min(x - 4.0 - 34.0 * keel * keel).min(192.0 - 16.0 * keel - x);
    let mast = (2.0 - (x - 89.0).abs()).min(y - 2.0).min(178.0 - y);
    let people = [52.0, 128.0].map(|middle| {
        let head = 8.0 - (x - middle).hypot(y - 148.0);
        let body = (10.0 - (x - middle).abs()).min(y - 156.0).min(178.0 - y);
        (head, body)
    });
    for (index, (head, body)) in people.into_iter().enumerate() {
        if head > -0.7 {
            return ([0.80, 0.58, 0.45], edge(head));
        }
        if body > -0.7 {
            return ([[0.75, 0.20, 0.15], [0.15, 0.35, 0.30]][index], edge(body));
        }
    }
    if hull > -0.7 {
        let plank = if keel < 0.2 { [0.93, 0.90, 0.82] } else { [0.36, 0.16, 0.12] };
        let grain = 0.92 + 0.08 * (y * 1.1).sin();
        return (plank.map(|channel: f32| channel * grain), edge(hull));
    }
    if mast > -0.7 {
        return ([0.30, 0.20, 0.14], edge(mast));
    }
    let number = text("407", x - 96.0, y - 108.0, 5.0);
    match () {
        () if sail > -0.7 && number => ([0.10, 0.15, 0.35], edge(sail)),
        () if sail > -0.7 => (mix([0.98, 0.95, 0.88], [0.80, 0.70, 0.66], (x - 92.0) / 92.0), edge(sail)),
        () if jib > -0.7 => ([0.78, 0.24, 0.18], edge(jib)),
        () => ([0.0; 3], 0.0),
    }
}

/// The zone of the clock: x, y, width and height in fractions of the picture.
pub const CLOCK: [f64; 4] = [0.75, 0.04, 0.22, 0.08];

/// The zone of the clock in pixels, without those that it covers only in part.
pub fn clock_rect() -> Rect {
    let [x, y, width, height] = CLOCK;
    let [left, right] = [x, x + width].map(|share| share * WIDTH as f64);
    let [top, bottom] = [y, y + height].map(|share| share * HEIGHT as f64);
    let (x, y) = (left.ceil() as usize, top.ceil() as usize);
    Rect { x, y, width: right as usize - x, height: bottom as usize - y }
}

/// Draws the time of day that a camera writes into its picture.
pub fn draw_clock(frame: usize, pixels: &mut [u8]) {
    let rect = clock_rect();
    let clock = format!("16:42:{:02}.{:02}", 31 + frame / FPS, frame % FPS * 100 / FPS);
    for y in 0..rect.height {
        let row = &mut pixels[((rect.y + y) * WIDTH + rect.x) * 4..][..rect.width * 4];
        for (x, pixel) in row.as_chunks_mut::<4>().0.iter_mut().enumerate() {
            if text(&clock, x as f32 - 8.0, y as f32 - 14.0, 6.0) {
                blend(pixel, [1.0; 3], 1.0);
            }
        }
    }
}

/// Whether a point is in the letters of `text`, each of which is 3 dots wide and 5 dots tall.
fn text(text: &str, x: f32, y: f32, dot: f32) -> bool {
    if x < 0.0 || y < 0.0 {
        return false;
    }
    let (column, row) = ((x / dot) as usize, (y / dot) as usize);
    let letter = text.chars().nth(column / 4);
    if row > 4 || column % 4 == 3 {
        return false;
    }
    // Rows of three bits from the upper left dot on.
    let dots: u16 = match letter {
        Some('0') => 0b111_101_101_101_111,
        Some('1') => 0b010_110_010_010_111,
        Some('2') => 0b111_001_111_100_111,
        Some('3') => 0b111_001_111_001_111,
        Some('4') => 0b101_101_111_001_001,
        Some('5') => 0b111_100_111_001_111,
        Some('6') => 0b111_100_111_101_111,
        Some('7') => 0b111_001_010_010_010,
        Some('8') => 0b111_101_111_101_111,
        Some('9') => 0b111_101_111_001_111,
        Some(':') => 0b000_010_000_010_000,
        Some('.') => 0b000_000_000_000_010,
        _ => 0,
    };
    dots >> (14 - (row * 3 + column % 4)) & 1 == 1
}
