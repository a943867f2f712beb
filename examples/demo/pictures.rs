// SPDX-License-Identifier: MPL-2.0
//! Pictures of a frame before and after the covers.

use std::error::Error;

use super::clip::Frame;

fn png(frame: Frame) -> Result<Vec<u8>, Box<dyn Error>> {
    let (caps, png) = (frame.info().to_caps()?, gst::Caps::builder("image/png").build());
    let picture = gst::Sample::builder().buffer(&gst::Buffer::from_mut_slice(frame.pixels)).caps(&caps).build();
    let picture = gst_video::convert_sample(&picture, &png, Some(10 * gst::ClockTime::SECOND))?;
    Ok(picture.buffer().ok_or("a picture without bytes")?.map_readable()?.to_vec())
}

/// A PNG with the left half of the first frame and the right half of the other one, and a white line between them.
pub fn halves([mut picture, right]: [Frame; 2]) -> Result<Vec<u8>, Box<dyn Error>> {
    let half = picture.width / 2 * 3;
    let rows = picture.pixels.chunks_mut(picture.width * 3).zip(right.pixels.chunks(right.width * 3));
    for (row, right) in rows {
        row[half..].copy_from_slice(&right[half..]);
        row[half - 3..half + 3].fill(255);
    }
    png(picture)
}

/// A PNG with frames of one size, from left to right. Covered places would be on one side only of halves.
pub fn in_a_row(frames: &[Frame]) -> Result<Vec<u8>, Box<dyn Error>> {
    let Frame { width, height, .. } = frames[0];
    let rows =
        (0..height).flat_map(|y| frames.iter().flat_map(move |frame| &frame.pixels[3 * width * y..][..3 * width]));
    png(Frame { pixels: rows.copied().collect(), width: frames.len() * width, height })
}
