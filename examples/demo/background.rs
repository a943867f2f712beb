// SPDX-License-Identifier: MPL-2.0
//! `--background`: blurs what is behind a person, whom a model finds. The person's own pixels do not count in the blur, so that
//! nothing of them glows beside them.

use std::borrow::Cow;
use std::error::Error;

use gst::prelude::*;
use gst_video::prelude::*;
use gst_video::{VideoFormat, VideoInfo, VideoRegionOfInterestMeta};

use super::models::Model;
use super::options::{Input, Options};
use super::pictures::{self, Pair};
use super::pipeline::{Chain, Feed, Prepare};
use super::playback::{FPS, FRAMES, feed};
use super::portrait;
use super::scene::{HEIGHT, Scene, WIDTH, blend};

/// The side of the model's picture and of its mask, whatever the frame's aspect ratio is.
const SIDE: usize = 256;
const LABEL: &str = "person";
/// Width of the soft edge in pixels. Less shows the steps of the mask, more leaves too little of hair and collars.
const FEATHER: usize = 8;

/// The model, and the element that blurs all but the person.
///
/// # Errors
/// If the model or what runs it is missing.
pub fn chain(options: &Options) -> Result<Chain, Box<dyn Error>> {
    let model =
        Model::start("person").map_err(|sentence| format!("--background needs a model of people: {sentence}"))?;
    // The model, the blur and the check have a thread each.
    let elements = format!(
        "videoconvert ! video/x-raw,format=I420 ! identity name=model ! queue max-size-buffers=3 ! \
         cudagaussblur name=cover region-mode=outside region-sources=roi labels={LABEL} shape=mask feather={FEATHER} \
         cover=blur expand=0 ! queue max-size-buffers=3 ! identity name=checked"
    );
    let behind = (options.input == Input::Generated).then(landscape);
    let blurred_behind = behind.as_ref().map(|pixels| blurred_landscape(pixels, options)).transpose()?;
    Ok(Chain {
        first: "cover",
        last: "checked",
        reported: None,
        source: behind.is_some().then(|| "appsrc name=source".into()),
        elements,
        feed: behind.map(moving_person).transpose()?,
        blurred_behind,
        prepare: Some(prepare(model)),
        marked: Box::new(|_| Vec::new()),
    })
}

/// Attaches the mask of each frame: a region of interest as large as the frame, with the mask as a parameter.
fn prepare(model: Model) -> Prepare {
    Box::new(|pipeline| {
        let info = VideoInfo::builder(VideoFormat::Gray8, SIDE as u32, SIDE as u32).build();
        let caps = info.and_then(|info| info.to_caps()).expect("the caps are fixed at build time");
        let attach = move |frame: &mut gst::BufferRef, [width, height]: [u32; 2], mask: &[u8]| {
            let mask = gst::Buffer::from_slice(mask.to_vec());
            let sample = gst::Sample::builder().buffer(&mask).caps(&caps).build();
            let mut person = VideoRegionOfInterestMeta::add(frame, LABEL, (0, 0, width, height));
            person.add_param(gst::Structure::builder("mask").field("sample", sample).build());
        };
        model.watch(pipeline, "model", SIDE as u32, false, attach);
    })
}

/// What is behind the person in the generated clip: a frame of the other clips, in RGBx.
fn landscape() -> Vec<u8> {
    let mut pixels = vec![0; WIDTH * HEIGHT * 4];
    Scene::new().draw(FRAMES / 2, &mut pixels, |_| ());
    pixels
}

/// The blur of the landscape without a person.
fn blurred_landscape(pixels: &[u8], options: &Options) -> Result<gst::Sample, Box<dyn Error>> {
    let caps = VideoInfo::builder(VideoFormat::Rgbx, WIDTH as u32, HEIGHT as u32).fps(FPS as i32).build()?.to_caps()?;
    let frame = gst::Sample::builder().buffer(&gst::Buffer::from_slice(pixels.to_vec())).caps(&caps).build();
    let caps = gst::Caps::builder("video/x-raw").field("format", "I420").build();
    blurred_whole(&gst_video::convert_sample(&frame, &caps, Some(30 * gst::ClockTime::SECOND))?, options)
}

/// The generated clip: the portrait before the landscape, moving to and fro.
fn moving_person(behind: Vec<u8>) -> Result<Feed, Box<dyn Error>> {
    // The frame's height.
    let (width, height) = (HEIGHT * portrait::SIZE.0 / portrait::SIZE.1, HEIGHT);
    let scale = HEIGHT as f32 / portrait::SIZE.1 as f32;
    let size = format!("video/x-raw,format=RGB,width={width},height={height}");
    let (person, _) = portrait::decode(&format!("videoconvert ! videoscale method=lanczos ! {size}"))?;
    let alpha = portrait::alpha(scale, (width, height));
    Ok(Box::new(move |source| {
        feed(source, VideoFormat::Rgbx, (WIDTH, HEIGHT), move |frame| {
            let mut pixels = behind.clone();
            let turn = frame as f32 / FRAMES as f32 * std::f32::consts::TAU;
            // Down and never up, so that the portrait's lower edge stays out of the picture.
            let left = (220.0 + 150.0 * (2.0 * turn).sin()) as usize;
            let top = (20.0 - 20.0 * (5.0 * turn).cos()) as usize;
            for (y, row) in pixels.chunks_exact_mut(WIDTH * 4).enumerate().skip(top) {
                let from = (y - top) * width..(y - top + 1) * width;
                let drawn = person[3 * from.start..3 * from.end].chunks_exact(3).zip(&alpha[from]);
                for (pixel, (colour, alpha)) in row[left * 4..].chunks_exact_mut(4).zip(drawn) {
                    if *alpha == 1.0 {
                        pixel[..3].copy_from_slice(colour);
                    } else {
                        blend(
                            &mut pixel[..3],
                            [colour[0], colour[1], colour[2]].map(|byte| f32::from(byte) / 255.0),
                            *alpha,
                        );
                    }
                }
            }
            gst::Buffer::from_mut_slice(pixels)
        });
    }))
}

/// The mask that the model attached to the frame.
fn mask_of(frame: &gst::Sample) -> Option<Vec<u8>> {
    let person = frame.buffer()?.iter_meta::<VideoRegionOfInterestMeta>().find(|meta| meta.roi_type() == LABEL)?;
    let sample = person.param("mask")?.get::<gst::Sample>("sample").ok()?;
    let mask = sample.buffer()?.map_readable().ok()?.to_vec();
    (mask.len() == SIDE * SIDE).then_some(mask)
}

/// How far a sample of the mask reaches in the element's weights, along an axis of the frame, in samples: to the next one but one,
/// over a cell of the weights' grid, and over the edge, in whole cells.
fn reach(width: usize, height: usize) -> [usize; 2] {
    let cell = width.max(height).div_ceil(512).next_power_of_two();
    let pixels = cell + 2 * (FEATHER / 2).next_multiple_of(cell);
    [width, height].map(|length| 2 + (pixels * SIDE).div_ceil(length))
}

/// A Gaussian changes by less than this share of 255 over its sigma from one pixel to the next.
const STEEPEST: f64 = 0.4;
/// The share of steps in the background that may be steeper. Beside the person the blur's weights change.
const STEEP_SHARE: f64 = 0.02;
/// The share of a plain blur's glow that may be left beside the person, over the whole clip: a plain blur leaves 1, the element 0.27 of it
/// in the generated clip with a sigma of 20, and from 0.33 to 0.46 where the background is not known, with sigmas from 5 to 100.
const GLOW_SHARE: f64 = 0.65;
/// A plain blur whose mean glow is less, in steps of 8 bits, is not compared with: with a sigma of up to 12 it does not reach beyond what
/// the mask has too much.
const GLOW: f64 = 3.0;

/// What the check has seen so far.
#[derive(Default)]
pub struct Checked {
    /// The blurred background without a person, at the size of the mask, if it is known.
    truth: Option<Vec<Vec<f32>>>,
    pub frames: u64,
    /// Those without a person.
    empty_frames: u64,
    glow: Glow,
    plain_glow: Glow,
    /// What is left of the plain blur's glow, and all of it: sums of products.
    left: [f64; 2],
}

/// The mean glow of frames that have a background beside a person.
#[derive(Default)]
struct Glow {
    frames: u32,
    sum: f64,
    largest: f64,
}

impl Glow {
    fn add(&mut self, glow: f64) {
        self.frames += 1;
        self.sum += glow;
        self.largest = self.largest.max(glow);
    }

    fn mean(&self) -> f64 {
        self.sum / f64::from(self.frames.max(1))
    }
}

impl Checked {
    /// Nothing yet, of a clip whose background looks like this where it is blurred and nobody is before it, if that is known.
    pub fn new(blurred_behind: Option<&gst::Sample>) -> Self {
        let truth = blurred_behind.and_then(Planes::new);
        let truth = truth.map(|planes| planes.0.iter().map(Plane::cells).collect());
        Self { truth, ..Self::default() }
    }

    /// Checks one frame: the person's bytes are as before, and the background has no detail. The error says what is wrong.
    pub fn check(&mut self, pair: &Pair, sigma: f64) -> Result<(), String> {
        self.frames += 1;
        let mask = mask_of(&pair.raw).ok_or("a frame has no mask")?;
        let (Some(raw), Some(covered)) = (Planes::new(&pair.raw), Planes::new(&pair.covered)) else {
            return Err("a frame cannot be read".into());
        };
        let reach = reach(raw.0[0].width, raw.0[0].height);
        let [most, least] = [true, false].map(|largest| around(&mask, reach, largest));
        let is_person = |cell: usize| least[cell] == 255;
        self.empty_frames += u64::from(mask.iter().all(|value| *value < 128));
        for (before, after) in raw.0.iter().zip(&covered.0) {
            if !before.is_equal(after, is_person) {
                return Err("the person is changed".into());
            }
        }
        let steep = covered.0[0].steep_share(255.0 * STEEPEST / sigma + 1.0, |cell| most[cell] == 0);
        if steep > STEEP_SHARE {
            return Err(format!("{:.1} % of the steps in the background are too sharp", steep * 100.0));
        }
        let Some(beside) = Beside::new(&mask, &raw, sigma, self.truth.as_deref()) else { return Ok(()) };
        let covered: Vec<_> = covered.0.iter().map(Plane::cells).collect();
        let plain: Vec<_> = beside.cells.iter().map(|cells| blurred(cells, beside.sigmas)).collect();
        self.glow.add(beside.glow(&covered));
        self.plain_glow.add(beside.glow(&plain));
        self.left.iter_mut().zip(beside.glow_left(&covered, &plain)).for_each(|(sum, left)| *sum += left);
        Ok(())
    }

    /// The report, after all frames passed.
    ///
    /// # Errors
    /// If the person glows beside themselves.
    pub fn report(&self) -> Result<String, String> {
        let (glow, worst, plain) = (self.glow.mean(), self.glow.largest, self.plain_glow.mean());
        let share = self.left[0] / self.left[1].max(f64::MIN_POSITIVE);
        if plain > GLOW && share > GLOW_SHARE {
            return Err(format!("{:.0} % of the glow of a plain blur is left beside the person", 100.0 * share));
        }
        let empty =
            if self.empty_frames > 0 { format!(", of which {} have nobody", self.empty_frames) } else { String::new() };
        let alone = if self.truth.is_some() { "the blur of what is behind them" } else { "a blur without them" };
        Ok(format!(
            "{} frames{empty}; in each the person's pixels are as before and the background is blurred\n\
             the person's glow beside them, of 255 brightness steps: {glow:.1} on average, {worst:.1} in the worst frame; a plain \
             blur leaves {plain:.1} (compared with {alone})",
            self.frames
        ))
    }
}

/// What is beside the person in a frame, at the size of the mask.
struct Beside<'a> {
    /// The frame's planes.
    cells: Vec<Vec<f32>>,
    /// Their blurs without the person: the true ones, or those of what is around the person.
    alone: Cow<'a, [Vec<f32>]>,
    /// The cells beside the person.
    ring: Vec<usize>,
    sigmas: [f64; 2],
}

impl<'a> Beside<'a> {
    /// `None` if nothing is beside a person.
    fn new(mask: &[u8], raw: &Planes, sigma: f64, truth: Option<&'a [Vec<f32>]>) -> Option<Self> {
        let sigmas = [raw.0[0].width, raw.0[0].height].map(|length| (sigma * SIDE as f64 / length as f64).max(0.1));
        let [hole, far] =
            [[1; 2], sigmas.map(|sigma| 2 + sigma.ceil() as usize)].map(|reach| around(mask, reach, true));
        let mut ring: Vec<_> = (0..SIDE * SIDE).filter(|cell| hole[*cell] == 0 && far[*cell] > 127).collect();
        let cells: Vec<_> = raw.0.iter().map(Plane::cells).collect();
        let alone = truth.map_or_else(
            || {
                // The model's masks are a little too small: what is near the person is left out, too.
                let near = around(mask, [2; 2], true);
                let weights: Vec<f32> = near.iter().map(|value| if *value == 0 { 1.0 } else { 0.0 }).collect();
                let weight = blurred(&weights, sigmas);
                ring.retain(|cell| weight[*cell] > 0.05);
                let alone = cells.iter().map(|cells| {
                    let weighted: Vec<_> = cells.iter().zip(&weights).map(|(value, weight)| value * weight).collect();
                    blurred(&weighted, sigmas).iter().zip(&weight).map(|(value, weight)| value / weight).collect()
                });
                Cow::Owned(alone.collect())
            },
            Cow::Borrowed,
        );
        (!ring.is_empty()).then_some(Self { cells, alone, ring, sigmas })
    }

    /// The mean difference between a blurred background and the blur without the person, in steps of 8 bits, of the plane in
    /// which it is largest.
    fn glow(&self, blurred: &[Vec<f32>]) -> f64 {
        let of_plane = |(blurred, alone): (&Vec<f32>, &Vec<f32>)| {
            let sum: f64 = self.ring.iter().map(|cell| f64::from((blurred[*cell] - alone[*cell]).abs())).sum();
            sum / self.ring.len() as f64
        };
        blurred.iter().zip(self.alone.iter()).map(of_plane).fold(0.0, f64::max)
    }

    /// How much of what the person adds to a plain blur is in a blurred background, and all that they add: the sums of its products with
    /// both. Their ratio is 1 in a plain blur, and 0 where a background differs from the blur without the person only as another guess
    /// of what is behind them does.
    fn glow_left(&self, covered: &[Vec<f32>], plain: &[Vec<f32>]) -> [f64; 2] {
        let mut sums = [0.0; 2];
        for (alone, (covered, plain)) in self.alone.iter().zip(covered.iter().zip(plain)) {
            for cell in &self.ring {
                let [added, glow] = [covered, plain].map(|one| f64::from(one[*cell] - alone[*cell]));
                sums[0] += added * glow;
                sums[1] += glow * glow;
            }
        }
        sums
    }
}

/// A Gaussian of samples of SIDE by SIDE, with repeated edges.
fn blurred(samples: &[f32], [across, down]: [f64; 2]) -> Vec<f32> {
    let rows = transposed(&blurred_rows(samples, across));
    transposed(&blurred_rows(&rows, down))
}

fn blurred_rows(samples: &[f32], sigma: f64) -> Vec<f32> {
    let radius = (3.0 * sigma).ceil() as usize;
    let taps: Vec<f64> =
        (0..=2 * radius).map(|i| (-0.5 * ((i as f64 - radius as f64) / sigma).powi(2)).exp()).collect();
    let sum: f64 = taps.iter().sum();
    let mut padded = vec![0.0; SIDE + 2 * radius];
    let mut out = vec![0.0; SIDE * SIDE];
    for (row, out) in samples.chunks_exact(SIDE).zip(out.chunks_exact_mut(SIDE)) {
        padded[..radius].fill(row[0]);
        padded[radius..radius + SIDE].copy_from_slice(row);
        padded[radius + SIDE..].fill(row[SIDE - 1]);
        for (offset, tap) in taps.iter().enumerate() {
            let tap = (tap / sum) as f32;
            out.iter_mut().zip(&padded[offset..]).for_each(|(out, sample)| *out += tap * sample);
        }
    }
    out
}

fn transposed<T: Copy>(samples: &[T]) -> Vec<T> {
    (0..SIDE).flat_map(|x| (0..SIDE).map(move |y| samples[y * SIDE + x])).collect()
}

/// The largest or smallest of the mask's samples that are at most so far away across and down.
fn around(mask: &[u8], [across, down]: [usize; 2], largest: bool) -> Vec<u8> {
    let pick = if largest { u8::max } else { u8::min };
    let rows = |mask: &[u8], radius: usize| -> Vec<u8> {
        let mut out = mask.to_vec();
        for (row, out) in mask.chunks_exact(SIDE).zip(out.chunks_exact_mut(SIDE)) {
            for distance in 1..=radius.min(SIDE - 1) {
                out.iter_mut().zip(&row[distance..]).for_each(|(out, other)| *out = pick(*out, *other));
                out[distance..].iter_mut().zip(row).for_each(|(out, other)| *out = pick(*out, *other));
            }
        }
        out
    };
    transposed(&rows(&transposed(&rows(mask, across)), down))
}

/// The planes of a frame of 8 bits.
struct Planes(Vec<Plane>);

struct Plane {
    bytes: Vec<u8>,
    width: usize,
    height: usize,
    /// Where the columns of the mask's cells begin, and the last one ends.
    edges: Vec<usize>,
}

impl Planes {
    fn new(sample: &gst::Sample) -> Option<Self> {
        let info = VideoInfo::from_caps(sample.caps()?).ok()?;
        let frame = gst_video::VideoFrameRef::from_buffer_ref_readable(sample.buffer()?, &info).ok()?;
        let plane = |index: u32| {
            let (width, height) = (frame.comp_width(index) as usize, frame.comp_height(index) as usize);
            let rows = frame.plane_data(index).ok()?.chunks(frame.plane_stride()[index as usize] as usize).take(height);
            let edges = (0..=SIDE).map(|x| (x * width).div_ceil(SIDE)).collect();
            Some(Plane { bytes: rows.flat_map(|row| &row[..width]).copied().collect(), width, height, edges })
        };
        (0..frame.n_planes()).map(plane).collect::<Option<_>>().map(Self)
    }
}

impl Plane {
    /// For each row, and for the samples in it that are in each cell of the mask: the cell and the samples.
    fn rows(&self) -> impl Iterator<Item = impl Iterator<Item = (usize, std::ops::Range<usize>)>> {
        (0..self.height).map(move |y| {
            let row = y * SIDE / self.height * SIDE;
            (0..SIDE).map(move |x| (row + x, y * self.width + self.edges[x]..y * self.width + self.edges[x + 1]))
        })
    }

    fn is_equal(&self, other: &Self, in_cell: impl Fn(usize) -> bool) -> bool {
        self.rows().flatten().all(|(cell, at)| !in_cell(cell) || self.bytes[at.clone()] == other.bytes[at])
    }

    /// The share of samples in these cells that differ from the next one in their row by more than `step`.
    fn steep_share(&self, step: f64, in_cell: impl Fn(usize) -> bool) -> f64 {
        let (mut count, mut steep) = (0_u32, 0_u32);
        let step = step as u8;
        for (_, at) in self.rows().flatten().filter(|(cell, _)| in_cell(*cell)) {
            for pair in self.bytes[at].windows(2) {
                count += 1;
                steep += u32::from(pair[0].abs_diff(pair[1]) > step);
            }
        }
        f64::from(steep) / f64::from(count.max(1))
    }

    /// The mean of each cell of the mask. A cell without a sample has that of the one before.
    fn cells(&self) -> Vec<f32> {
        let (mut sums, mut counts) = (vec![0_u32; SIDE * SIDE], vec![0_u32; SIDE * SIDE]);
        for (cell, at) in self.rows().flatten() {
            counts[cell] += at.len() as u32;
            sums[cell] += self.bytes[at].iter().copied().map(u32::from).sum::<u32>();
        }
        let mut means = vec![0.0; SIDE * SIDE];
        for cell in 0..SIDE * SIDE {
            means[cell] = match (counts[cell], cell) {
                (1.., _) => sums[cell] as f32 / counts[cell] as f32,
                (0, SIDE..) if cell % SIDE == 0 || counts[cell - 1] == 0 => means[cell - SIDE],
                _ => means[cell.saturating_sub(1)],
            };
        }
        means
    }
}

/// A PNG with the frame before, with a plain blur behind the person, and as this element blurs it.
pub fn comparison(pair: &Pair, options: &Options) -> Result<Vec<u8>, Box<dyn Error>> {
    let mask = mask_of(&pair.raw).ok_or("a frame has no mask")?;
    let plain = blurred_whole(&pair.raw, options)?;
    // Where the mask shows the person, as the element has it without its grid.
    let weight = |x: f64, y: f64| {
        let [x, y] = [x, y].map(|share| (share * SIDE as f64 - 0.5).clamp(0.0, SIDE as f64 - 1.0));
        let [left, top] = [x, y].map(|position| (position as usize).min(SIDE - 2));
        let row = |y: usize| {
            let [one, other] = [0, 1].map(|next| f64::from(mask[y * SIDE + left + next]));
            one + (other - one) * (x - left as f64)
        };
        let value = row(top) + (row(top + 1) - row(top)) * (y - top as f64);
        (2.0 * value / 255.0 - 1.0).max(0.0)
    };
    let pasted = pictures::mixed(&plain, &pair.raw, weight)?;
    pictures::in_a_row(&[&pair.raw, &pasted, &pair.covered])
}

/// The frame, blurred as a whole.
fn blurred_whole(frame: &gst::Sample, options: &Options) -> Result<gst::Sample, Box<dyn Error>> {
    let line = format!(
        "appsrc name=frame format=time ! cudagaussblur sigma={} kernel-size={} backend={} ! appsink name=blurred sync=false",
        options.sigma, options.kernel_size, options.backend
    );
    let pipeline = gst::parse::launch(&line)?.downcast::<gst::Pipeline>().expect("elements in a row make a pipeline");
    let element = |name| pipeline.by_name(name).expect("the description names it");
    let source: gst_app::AppSrc = element("frame").downcast().expect("an appsrc");
    let sink: gst_app::AppSink = element("blurred").downcast().expect("an appsink");
    pipeline.set_state(gst::State::Playing)?;
    source.push_sample(frame)?;
    source.end_of_stream()?;
    let sample = sink.try_pull_sample(30 * gst::ClockTime::SECOND);
    pipeline.set_state(gst::State::Null)?;
    sample.ok_or_else(|| "the frame cannot be blurred as a whole".into())
}
