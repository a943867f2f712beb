// SPDX-License-Identifier: MPL-2.0
//! `--background`: blurs what is behind a person, whom the element selfiesegmentation finds. The person's own pixels do not
//! count in the blur, so that nothing of them glows beside them.

use std::error::Error;
use std::sync::{Arc, Mutex};

use gst::prelude::*;
use gst_video::prelude::*;
use gst_video::{VideoFormat, VideoInfo};

use super::options::Options;
use super::pictures::{self, Pair, lock};
use super::pipeline::{Chain, Feed};
use super::playback::{FPS, FRAMES, feed};
use super::portrait;
use super::scene::{HEIGHT, Scene, WIDTH, blend};

/// How far the mask is enlarged, in pixels: it makes up for the grid of weights. examples/virtual_camera.py has the same.
const GROW: u32 = 4;

/// The segmentation, and the element that blurs all but the person. The check knows where the person of the generated clip is; a
/// camera's frames are not checked.
pub fn chain(options: &Options, checked: &Arc<Mutex<Checked>>) -> Result<Chain, Box<dyn Error>> {
    // The segmentation, the blur and the check have a thread each.
    let elements = format!(
        "video/x-raw,format=I420 ! selfiesegmentation name=detector ! queue max-size-buffers=3 ! \
         cudagaussblur name=cover region-mode=outside region-sources=roi shape=mask grow={GROW} expand=0 ! \
         queue max-size-buffers=3 ! identity name=checked"
    );
    let person = (!options.camera).then(Person::new).transpose()?.map(Arc::new);
    let behind = person.as_ref().map(|person| blurred(&person.landscape()?, options)).transpose()?;
    let behind = behind.as_ref().and_then(luma);
    let (drawn, known, checked) = (person.clone(), person, checked.clone());
    Ok(Chain {
        first: "cover",
        last: "checked",
        elements,
        feed: drawn.map(|person| -> Feed {
            Box::new(move |source| feed(source, VideoFormat::Rgbx, (WIDTH, HEIGHT), move |frame| person.draw(frame)))
        }),
        check: Box::new(move |pair, coverage| {
            if let (Some(person), Some(behind)) = (&known, &behind)
                && let Err(reason) = lock(&checked).check(pair, &person.alpha(pair.frame()), behind)
            {
                coverage.fail(format!("at {:.2} s {reason}", pair.time.seconds_f64()));
            }
            0
        }),
    })
}

/// The portrait before the landscape, moving to and fro.
pub struct Person {
    behind: Vec<u8>,
    colours: Vec<u8>,
    /// How much of each pixel of the portrait is the person.
    alpha: Vec<f32>,
}

/// The width of the portrait when it is as high as the frame.
const ACROSS: usize = HEIGHT * portrait::SIZE.0 / portrait::SIZE.1;

impl Person {
    fn new() -> Result<Self, Box<dyn Error>> {
        let mut behind = vec![0; WIDTH * HEIGHT * 4];
        Scene::new().draw(FRAMES / 2, &mut behind, |_| ());
        let size = format!("video/x-raw,format=RGB,width={ACROSS},height={HEIGHT}");
        let colours = portrait::decode(&format!("videoconvert ! videoscale method=lanczos ! {size}"))?;
        let alpha = portrait::alpha(HEIGHT as f32 / portrait::SIZE.1 as f32, (ACROSS, HEIGHT));
        Ok(Self { behind, colours, alpha })
    }

    /// Column and row of the portrait's corner in a frame: down and never up, so that its lower edge stays out of the picture.
    fn corner(frame: usize) -> [usize; 2] {
        let turn = frame as f32 / FRAMES as f32 * std::f32::consts::TAU;
        [(220.0 + 150.0 * (2.0 * turn).sin()) as usize, (20.0 - 20.0 * (5.0 * turn).cos()) as usize]
    }

    fn draw(&self, frame: usize) -> gst::Buffer {
        let mut pixels = self.behind.clone();
        let [left, top] = Self::corner(frame);
        for (y, row) in pixels.as_chunks_mut::<{ WIDTH * 4 }>().0.iter_mut().enumerate().skip(top) {
            let from = (y - top) * ACROSS..(y - top + 1) * ACROSS;
            let drawn = self.colours[3 * from.start..3 * from.end].as_chunks().0.iter().zip(&self.alpha[from]);
            for (pixel, (colour, alpha)) in row[left * 4..].as_chunks_mut::<4>().0.iter_mut().zip(drawn) {
                match *alpha {
                    1.0 => pixel[..3].copy_from_slice(colour),
                    alpha => blend(&mut pixel[..3], colour.map(|byte: u8| f32::from(byte) / 255.0), alpha),
                }
            }
        }
        gst::Buffer::from_mut_slice(pixels)
    }

    /// How much of each pixel of a frame is the person.
    pub fn alpha(&self, frame: usize) -> Vec<f32> {
        let [left, top] = Self::corner(frame);
        let mut alpha = vec![0.0; WIDTH * HEIGHT];
        for (row, person) in
            alpha.as_chunks_mut::<WIDTH>().0.iter_mut().skip(top).zip(self.alpha.as_chunks::<ACROSS>().0)
        {
            let width = ACROSS.min(WIDTH - left);
            row[left..left + width].copy_from_slice(&person[..width]);
        }
        alpha
    }

    fn landscape(&self) -> Result<gst::Sample, Box<dyn Error>> {
        let info = VideoInfo::builder(VideoFormat::Rgbx, WIDTH as u32, HEIGHT as u32).fps(FPS as i32).build()?;
        let buffer = gst::Buffer::from_slice(self.behind.clone());
        let frame = gst::Sample::builder().buffer(&buffer).caps(&info.to_caps()?).build();
        let caps = gst::Caps::builder("video/x-raw").field("format", "I420").build();
        Ok(gst_video::convert_sample(&frame, &caps, Some(30 * gst::ClockTime::SECOND))?)
    }
}

/// The luma of a frame, row by row.
fn luma(sample: &gst::Sample) -> Option<Vec<u8>> {
    let info = VideoInfo::from_caps(sample.caps()?).ok()?;
    let frame = gst_video::VideoFrameRef::from_buffer_ref_readable(sample.buffer()?, &info).ok()?;
    let rows = frame.plane_data(0).ok()?.chunks(frame.plane_stride()[0] as usize).take(frame.height() as usize);
    Some(rows.flat_map(|row| &row[..frame.width() as usize]).copied().collect())
}

/// The least share of the person that must be shown in a frame, and in the mean of all.
const LEAST_SHOWN: [f64; 2] = [0.97, 0.99];
/// The most of the background that may be shown, as a share of the person's area, in a frame and in the mean.
const MOST_OPEN: [f64; 2] = [0.06, 0.03];
/// A sample is shown if it is this much nearer to the frame than to the blurred background, of which it must differ by as much.
const DISTANCE: f32 = 4.0;

/// What the check has seen so far: sums of samples.
#[derive(Default)]
pub struct Checked {
    frames: u64,
    person: f64,
    shown: f64,
    open: f64,
}

impl Checked {
    /// Checks the luma of one frame, where `alpha` says what is the person. The error says what is wrong.
    fn check(&mut self, pair: &Pair, alpha: &[f32], behind: &[u8]) -> Result<(), String> {
        let (raw, covered) = luma(&pair.raw).zip(luma(&pair.covered)).ok_or("a frame cannot be read")?;
        let (mut person, mut shown, mut open) = (0.0, 0.0, 0.0);
        for (alpha, ((raw, covered), behind)) in alpha.iter().zip(raw.iter().zip(&covered).zip(behind)) {
            let [raw, covered, behind] = [*raw, *covered, *behind].map(f32::from);
            let is_shown = (raw - covered).abs() + DISTANCE <= (behind - covered).abs();
            if *alpha == 1.0 {
                // Where both are alike, nobody sees a difference.
                person += 1.0;
                shown += f64::from(u8::from(is_shown || (raw - covered).abs() < DISTANCE));
            } else if *alpha == 0.0 {
                open += f64::from(u8::from(is_shown));
            }
        }
        self.frames += 1;
        self.person += person;
        self.shown += shown;
        self.open += open;
        judge(shown / person, open / person, LEAST_SHOWN[0], MOST_OPEN[0])
    }

    /// The report, after all frames passed.
    ///
    /// # Errors
    /// If too little of the person or too much of the background shows.
    pub fn report(&self, frames: u64) -> Result<String, String> {
        if self.frames == 0 {
            return Ok(format!("{frames} frames, not checked"));
        }
        let (shown, open) = (self.shown / self.person, self.open / self.person);
        judge(shown, open, LEAST_SHOWN[1], MOST_OPEN[1])?;
        Ok(format!(
            "checked {} frames; {:.1} % of the person is shown, and beside them background of {:.1} % of their area",
            self.frames,
            100.0 * shown,
            100.0 * open
        ))
    }
}

fn judge(shown: f64, open: f64, least_shown: f64, most_open: f64) -> Result<(), String> {
    if shown < least_shown || open > most_open {
        let (shown, open) = (100.0 * shown, 100.0 * open);
        return Err(format!("{shown:.1} % of the person is shown, and background of {open:.1} % of their area"));
    }
    Ok(())
}

/// A PNG with the frame before, with a plain blur behind the person, and as this element blurs it.
pub fn comparison(pair: &Pair, options: &Options) -> Result<Vec<u8>, Box<dyn Error>> {
    if options.camera {
        return pictures::side_by_side(pair);
    }
    let alpha = Person::new()?.alpha(pair.frame());
    let pasted = pictures::mixed(&blurred(&pair.raw, options)?, &pair.raw, |x, y| f64::from(alpha[y * WIDTH + x]))?;
    pictures::in_a_row(&[&pair.raw, &pasted, &pair.covered])
}

/// The frame, blurred as a whole.
fn blurred(frame: &gst::Sample, options: &Options) -> Result<gst::Sample, Box<dyn Error>> {
    let line = format!(
        "appsrc name=frame format=time ! cudagaussblur sigma={} backend={} ! appsink name=blurred sync=false",
        options.sigma, options.backend
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
