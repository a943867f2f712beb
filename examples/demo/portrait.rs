// SPDX-License-Identifier: MPL-2.0
//! The demo's portrait. face.txt names its source and licence.

use std::error::Error;

use gst::prelude::*;

use super::coverage::Rect;

const JPEG: &[u8] = include_bytes!("face.jpg");
/// The size of the file, in whose pixels the outline is.
pub const SIZE: (usize, usize) = (480, 400);
/// The face in it, from hairline to chin and from ear to ear, located by hand.
pub const FACE: Rect = Rect { x: 174, y: 62, width: 102, height: 118 };
const OUTLINE: &str = include_str!("face-outline.csv");

/// The decoded portrait, behind these elements, as rows of the format that they end in.
pub fn decode(elements: &str) -> Result<Vec<u8>, Box<dyn Error>> {
    let pipeline = gst::parse::launch(&format!(
        "appsrc name=jpeg caps=image/jpeg ! jpegdec ! {elements} ! appsink name=rgb sync=false"
    ))?;
    let pipeline = pipeline.downcast::<gst::Pipeline>().expect("elements in a row make a pipeline");
    let element = |name| pipeline.by_name(name).expect("the description names it");
    let source: gst_app::AppSrc = element("jpeg").downcast().expect("an appsrc");
    let sink: gst_app::AppSink = element("rgb").downcast().expect("an appsink");
    pipeline.set_state(gst::State::Playing)?;
    source.push_buffer(gst::Buffer::from_slice(JPEG))?;
    source.end_of_stream()?;
    let sample = sink.try_pull_sample(30 * gst::ClockTime::SECOND);
    pipeline.set_state(gst::State::Null)?;
    let buffer =
        sample.as_deref().and_then(gst::SampleRef::buffer_owned).ok_or("the demo's portrait cannot be decoded")?;
    Ok(buffer.map_readable()?.to_vec())
}

/// How much of each pixel of the portrait, enlarged by `scale` to this size, is the person: 0 to 1, with a soft edge inside of
/// the outline, so that nothing of what was behind her shows.
pub fn alpha(scale: f32, (width, height): (usize, usize)) -> Vec<f32> {
    let points = OUTLINE.lines().skip(1).map(|line| {
        let (x, y) = line.split_once(',').expect("two columns");
        [x, y].map(|number| number.parse::<f32>().expect("a number") * scale)
    });
    let points: Vec<_> = points.collect();
    let edges: Vec<_> = points.iter().copied().zip(points.iter().copied().cycle().skip(1)).collect();
    let pixels = (0..height).flat_map(|y| (0..width).map(move |x| [x as f32 + 0.5, y as f32 + 0.5]));
    let inside = |[x, y]: [f32; 2]| {
        let (mut crossings, mut nearest) = (0, f32::MAX);
        for ([ax, ay], [bx, by]) in &edges {
            let (dx, dy) = (bx - ax, by - ay);
            if (*ay <= y) != (*by <= y) && x < ax + (y - ay) / dy * dx {
                crossings += 1;
            }
            // The lower edge of the picture is no outline.
            if *ay < height as f32 - 1.0 || *by < height as f32 - 1.0 {
                let along = (((x - ax) * dx + (y - ay) * dy) / (dx * dx + dy * dy)).clamp(0.0, 1.0);
                nearest = nearest.min((x - ax - along * dx).hypot(y - ay - along * dy));
            }
        }
        if crossings % 2 == 1 { ((nearest - 1.0) / 3.0).clamp(0.0, 1.0) } else { 0.0 }
    };
    pixels.map(inside).collect()
}
