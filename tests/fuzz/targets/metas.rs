// SPDX-License-Identifier: MPL-2.0
//! Any regions of interest on the frames of a stream, through the element: every sample of a region that counts is covered, with
//! region-mode=outside nothing but such regions is shown, and what is shown is the source's.
#![no_main]

use arbitrary::Arbitrary;
use cudagaussblur_fuzz::{Blur, Number, gray};
use gst::prelude::*;
use gst_video::{VideoFormat, VideoInfo, VideoRegionOfInterestMeta};

const SIZE: [u32; 2] = [37, 21];
const SOURCE: u8 = 200;

#[derive(Arbitrary, Debug)]
enum Value {
    Double(f64),
    Float(f32),
    Percent(u8),
    Int(i32),
    Long(i64),
    Text(Option<bool>),
    /// Width, height and bytes of a mask.
    Mask(i8, i8, Vec<u8>),
}

impl Value {
    fn send_value(&self) -> gst::glib::SendValue {
        match self {
            Self::Double(number) => number.to_send_value(),
            Self::Float(number) => number.to_send_value(),
            Self::Percent(number) => (f64::from(*number) / 100.0).to_send_value(),
            Self::Int(number) => number.to_send_value(),
            Self::Long(number) => number.to_send_value(),
            Self::Text(text) => text.map(|long| if long { "0.5" } else { "" }).to_send_value(),
            Self::Mask(width, height, bytes) => {
                let caps = gst::Caps::builder("video/x-raw").field("format", "GRAY8");
                let caps = caps.field("width", i32::from(*width)).field("height", i32::from(*height)).build();
                let buffer = gst::Buffer::from_mut_slice(bytes.clone().into_boxed_slice());
                gst::Sample::builder().buffer(&buffer).caps(&caps).build().to_send_value()
            }
        }
    }
}

#[derive(Arbitrary, Debug)]
struct Roi {
    /// Left and top may be before the picture.
    sides: [Number; 4],
    label: u8,
    /// Name of the structure and of its field.
    params: Vec<(u8, u8, Value)>,
}

#[derive(Arbitrary, Debug)]
struct Input {
    is_outside: bool,
    shape: u8,
    labels: bool,
    min_confidence: Option<u8>,
    covers_lost: bool,
    frames: Vec<(u16, Vec<Roi>)>,
}

const LABELS: [&str; 5] = ["face", "FACE", "plate", "", "faces"];
const STRUCTURES: [&str; 4] = ["detection", "object_id", "mask", "other"];
const FIELDS: [&str; 4] = ["confidence", "id", "sample", "other"];

impl Roi {
    /// The last value of a field in the first structure of this name.
    fn value(&self, structure: u8, field: u8) -> Option<&Value> {
        let (_, own, value) = self.params.iter().find(|(of, ..)| of % 4 == structure)?;
        (own % 4 == field).then_some(value)
    }

    /// What it says of the confidence, if it says so where the element looks first.
    fn confidence(&self) -> Option<f64> {
        let confidence = match self.value(0, 0)? {
            Value::Double(number) => *number,
            Value::Float(number) => f64::from(*number),
            Value::Percent(number) => f64::from(*number) / 100.0,
            _ => return None,
        };
        (0.0..=1.0).contains(&confidence).then_some(f64::from(confidence as f32))
    }

    /// Whether it certainly counts, or may count.
    fn counts(&self, input: &Input) -> [bool; 2] {
        let is_selected = !input.labels || LABELS[usize::from(self.label % 5)].eq_ignore_ascii_case("face");
        let least = f64::from(input.min_confidence.unwrap_or(0) % 101) / 100.0;
        let has_detection = self.params.iter().any(|(of, ..)| of % 4 == 0);
        let is_certain = match self.confidence() {
            Some(confidence) => [confidence >= least; 2],
            // Classifiers may say something.
            None if !has_detection && !self.params.is_empty() => [least == 0.0, true],
            None if input.is_outside => [least == 0.0; 2],
            None => [true; 2],
        };
        is_certain.map(|is_certain| is_selected && is_certain)
    }

    fn rect(&self) -> [u32; 4] {
        [0, 1, 2, 3].map(|side| self.sides[side].get(0) as u32)
    }

    fn covers(&self, x: u32, y: u32) -> bool {
        let [left, top, width, height] = self.rect();
        let meets = |sample: u32, start: u32, length: u32| {
            let start = i64::from(start.cast_signed());
            (start..start + i64::from(length)).contains(&i64::from(sample))
        };
        meets(x, left, width) && meets(y, top, height)
    }

    /// Whether the mask that it has can be one.
    fn may_have_mask(&self) -> bool {
        let is_mask = |(_, _, value): &(u8, u8, Value)| match value {
            Value::Mask(width, height, bytes) => {
                let [columns, rows] = [*width, *height].map(|side| usize::try_from(side).unwrap_or(0));
                let stride = columns.next_multiple_of(4);
                let has_rows = columns * rows > 0 && stride * (rows - 1) + columns <= bytes.len();
                has_rows && bytes.iter().any(|sample| *sample >= 128)
            }
            _ => false,
        };
        self.params.iter().any(is_mask)
    }

    fn add(&self, buffer: &mut gst::Buffer) {
        let [x, y, width, height] = self.rect();
        let label = LABELS[usize::from(self.label % 5)];
        let mut meta = VideoRegionOfInterestMeta::add(buffer.make_mut(), label, (x, y, width, height));
        for (name, field, value) in &self.params {
            let mut param = gst::Structure::new_empty(STRUCTURES[usize::from(name % 4)]);
            param.set_value(FIELDS[usize::from(field % 4)], value.send_value());
            meta.add_param(param);
        }
    }
}

fn check(input: &Input, rois: &[Roi], has_looked: bool, output: &[u8]) {
    let masked = input.shape % 3 == 2;
    for (i, sample) in (0..).zip(output) {
        let [x, y] = [i % SIZE[0], i / SIZE[0]];
        let on = |of: usize| rois.iter().filter(move |roi| roi.counts(input)[of] && roi.covers(x, y));
        let is_covered = *sample != SOURCE;
        let must_cover = match (input.is_outside, rois.is_empty()) {
            (true, _) => on(1).next().is_none(),
            // No detector has looked.
            (false, true) => has_looked,
            // An ellipse is in its box, and a mask that cannot be read is its box.
            (false, false) => {
                let is_whole = input.shape % 3 == 0 || masked && !rois.iter().any(Roi::may_have_mask);
                is_whole && on(0).next().is_some()
            }
        };
        assert!(is_covered || !must_cover, "{x} {y} is not covered: {rois:?}");
        let is_whole = |roi: &Roi| !masked && input.shape % 3 != 1 && roi.covers(x, y);
        let must_show = input.is_outside && on(0).any(|roi| is_whole(roi) && roi.is_plausible());
        assert!(!is_covered || !must_show, "{x} {y} is not shown: {rois:?}");
        assert!(!is_covered || *sample == 16 || *sample == 0, "{x} {y} has {sample}");
    }
}

impl Roi {
    /// Whether an object can have this box: what is larger is not shown.
    fn is_plausible(&self) -> bool {
        (0..2).all(|axis| self.rect()[2 + axis] <= 2 * SIZE[axis])
    }
}

libfuzzer_sys::fuzz_target!(|input: Input| {
    cudagaussblur_fuzz::init();
    let info = VideoInfo::builder(VideoFormat::Gray8, SIZE[0], SIZE[1]).fps((25, 1)).build().expect("GRAY8 exists");
    let mode = if input.is_outside { "outside" } else { "inside" };
    let shape = ["box", "ellipse", "mask"][usize::from(input.shape % 3)];
    let labels = if input.labels { "labels=face" } else { "" };
    let least = f64::from(input.min_confidence.unwrap_or(0) % 101) / 100.0;
    let on_lost = if input.covers_lost { "cover" } else { "release" };
    let mut blur = Blur::new(
        &format!(
            "region-mode={mode} cover=fill expand=0 shape={shape} {labels} min-confidence={least} on-lost={on_lost}"
        ),
        &info,
    );
    let (mut time, mut has_looked) = (gst::ClockTime::ZERO, false);
    for (step, rois) in input.frames.iter().take(20) {
        let mut frame = gst::Buffer::from_mut_slice(vec![SOURCE; info.size()]);
        frame.make_mut().set_pts(time);
        time += gst::ClockTime::from_mseconds((*step).into());
        rois.iter().for_each(|roi| roi.add(&mut frame));
        has_looked |= !rois.is_empty();
        let output = gray(&blur.push(frame).expect("a frame leaves"), &info);
        check(&input, rois, has_looked, &output);
    }
});
