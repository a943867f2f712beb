//! The element in a harness: pixels, property changes while playing, metadata, events and queries.

mod common;

use common::video::{self, Blur, FRAME, blurred, buffer, info, picture, read};
use gst::prelude::*;
use gst_controller::prelude::*;
use gst_video::{VideoFormat, VideoInfo};

/// The address of a buffer's bytes, by which it is known whether it is the same buffer.
fn address(buffer: &gst::BufferRef) -> usize {
    buffer.map_readable().unwrap().as_ptr() as usize
}

/// Pushes a picture, and checks that it is blurred, or the same buffer if sigma is 0.
#[track_caller]
fn check(blur: &mut Blur, info: &VideoInfo, sigma: f64) {
    let (image, is_blurred) = (picture(info, 3), sigma > 0.0);
    let input = buffer(info, &image);
    let before = address(&input);
    let output = blur.push(input);
    assert_eq!(address(&output) != before, is_blurred, "sigma={sigma}");
    assert!(read(info, &output) == if is_blurred { blurred(&image, sigma, 0) } else { image }, "sigma={sigma}");
}

/// The application changes it, and then a control binding, which follows the stream time in passthrough mode too.
#[test]
fn sigma_0_passes_buffers_through_until_sigma_changes() {
    let info = info(VideoFormat::Rgba, 40, 30);
    let mut blur = Blur::with("sigma=0", &info);
    for sigma in [0.0, 2.0, 0.0, 3.0, 0.0] {
        blur.element.set_property("sigma", sigma);
        check(&mut blur, &info, sigma);
    }
    let source = gst_controller::InterpolationControlSource::new();
    source.set_mode(gst_controller::InterpolationMode::Linear);
    for (frame, sigma) in [(5, 0.0), (6, 0.0), (10, 4.0), (11, 0.0)] {
        assert!(source.set(FRAME * frame, sigma));
    }
    let binding = gst_controller::DirectControlBinding::new_absolute(&blur.element, "sigma", &source);
    blur.element.add_control_binding(&binding).unwrap();
    for sigma in [0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 0.0] {
        check(&mut blur, &info, sigma);
        assert_eq!(blur.element.property::<f64>("sigma"), sigma);
    }
    let [frames, cuda, cpu, passed] = blur.stats(["frames", "frames-cuda", "frames-cpu", "frames-passthrough"]);
    assert_eq!([frames, cuda + cpu, passed], [12, 6, 6]);
    assert!(blur.stats(["kernel-last-ns", "kernel-mean-ns"]).iter().all(|ns| *ns > 0));
}

/// A frame with no selected channel is passed through with every byte, including the luma sample beyond the edge in an
/// odd row of packed 4:2:2.
#[test]
fn frames_without_selected_channels_pass_through() {
    for (format, planes, passes) in [
        (VideoFormat::Yuy2, "alpha", true),
        (VideoFormat::Uyvy, "alpha", true),
        (VideoFormat::I420, "alpha", true),
        (VideoFormat::Rgbx, "chroma+alpha", true),
        (VideoFormat::Gray8, "chroma", true),
        (VideoFormat::Yuy2, "chroma", false),
        (VideoFormat::Rgba, "alpha", false),
    ] {
        let info = info(format, 37, 23);
        let mut noise = common::Noise(1);
        let input = common::formats::buffer(&info, 0, &mut || noise.next() as u8);
        let (before, bytes) = (address(&input), input.map_readable().unwrap().to_vec());
        let output = Blur::with(&format!("sigma=3 planes={planes}"), &info).push(input);
        let is_same = [address(&output) == before, *output.map_readable().unwrap() == bytes[..]];
        assert_eq!(is_same, [passes; 2], "{format} planes={planes}: the same buffer, the same bytes");
    }
}

/// What the lives do not check.
#[test]
fn times_offsets_and_metas_are_preserved() {
    let info = info(VideoFormat::Bgrx, 48, 20);
    let mut input = common::formats::buffer(&info, 64, &mut || 7);
    {
        let input = input.get_mut().unwrap();
        input.set_offset_end(78);
        input.set_dts(FRAME * 5);
        gst_video::VideoCaptionMeta::add(input, gst_video::VideoCaptionType::Cea608Raw, &[1, 2]);
        let reference = gst::Caps::new_empty_simple("timestamp/x-ntp");
        gst::ReferenceTimestampMeta::add(input, &reference, FRAME * 9, gst::ClockTime::NONE);
        let mut roi = gst_video::VideoRegionOfInterestMeta::add(input, "face", (1, 2, 3, 4));
        roi.add_param(gst::Structure::new_empty("detection"));
    }
    let output = Blur::with("sigma=2", &info).push(input);
    assert_eq!((output.dts(), output.offset_end()), (Some(FRAME * 5), 78));
    assert_eq!(output.meta::<gst_video::VideoCaptionMeta>().unwrap().data(), [1, 2]);
    assert_eq!(output.meta::<gst::ReferenceTimestampMeta>().unwrap().timestamp(), FRAME * 9);
    assert!(output.meta::<gst_video::VideoRegionOfInterestMeta>().unwrap().param("detection").is_some());
    // The input's video meta describes the input's strides and is not copied.
    assert!(output.meta::<gst_video::VideoMeta>().is_none_or(|meta| meta.stride() == info.stride()));
}

#[test]
fn backend_kernel_and_form_in_use_are_reported() {
    assert_eq!(video::nick(&video::element("backend=cpu"), "active-backend"), "auto");
    let entry = |blur: &Blur, name| blur.element.property::<gst::Structure>("stats").get::<String>(name).unwrap();
    let info = info(VideoFormat::Rgb, 33, 20);
    let mut blur = Blur::new("backend=cpu");
    assert_eq!((blur.backend().as_str(), entry(&blur, "form").as_str()), ("cpu", "none"));
    assert_ne!(entry(&blur, "kernel"), "none");
    blur.caps(&info);
    for (sigma, kernel_size, form) in [(3.4, 0, "direct"), (3.5, 0, "wide"), (1024.0, 0, "wide"), (20.0, 31, "direct")]
    {
        video::set(&blur.element, &format!("sigma={sigma} kernel-size={kernel_size}"));
        blur.push(buffer(&info, &picture(&info, 1)));
        assert_eq!(entry(&blur, "form"), form, "sigma={sigma} kernel-size={kernel_size}");
    }
}
