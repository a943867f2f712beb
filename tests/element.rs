//! The element in a harness: pixels, property changes while playing, metadata, events and queries.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::oracle::Image;
use common::video::{self, Blur, FRAME, blurred, buffer, info, padded_buffer, picture, read};
use gst::prelude::*;
use gst_controller::prelude::*;
use gst_video::VideoFormat;

/// The address of a buffer's bytes, by which it is known whether it is the same buffer.
fn address(buffer: &gst::BufferRef) -> usize {
    buffer.map_readable().unwrap().as_ptr() as usize
}

#[test]
fn sigma_0_passes_buffers_through_until_sigma_changes() {
    let info = info(VideoFormat::Rgba, 32, 32);
    let image = picture(&info, 3);
    let mut blur = Blur::new("sigma=0");
    blur.caps(&info);
    for sigma in [0.0, 2.0, 0.0, 0.0, 3.0] {
        blur.element.set_property("sigma", sigma);
        let input = buffer(&info, &image);
        let before = address(&input);
        let output = blur.push(input);
        assert_eq!(address(&output) == before, sigma == 0.0, "sigma={sigma}");
        assert!(read(&info, &output) == blurred_or_not(&image, sigma), "sigma={sigma}");
    }
    let count = |name| video::stat(&blur, name);
    let blurred = count("frames-cuda") + count("frames-cpu");
    assert_eq!([count("frames"), blurred, count("frames-passthrough")], [5, 2, 3]);
    assert!(count("kernel-last-ns") > 0 && count("kernel-mean-ns") > 0);
}

fn blurred_or_not(image: &Image, sigma: f64) -> Image {
    if sigma == 0.0 { image.clone() } else { blurred(image, sigma, 0) }
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
        let mut blur = Blur::new(&format!("sigma=3 planes={planes}"));
        blur.caps(&info);
        let output = blur.push(input);
        let is_same = [address(&output) == before, *output.map_readable().unwrap() == bytes[..]];
        assert_eq!(is_same, [passes; 2], "{format} planes={planes}: the same buffer, the same bytes");
    }
}

/// A controlled sigma follows the stream time, also away from 0, where the element is in passthrough mode.
#[test]
fn controlled_sigma_follows_the_stream_time() {
    let info = info(VideoFormat::Gray8, 40, 30);
    let image = picture(&info, 4);
    let mut blur = Blur::new("sigma=0");
    blur.caps(&info);
    let source = gst_controller::InterpolationControlSource::new();
    source.set_mode(gst_controller::InterpolationMode::Linear);
    for (frame, sigma) in [(0, 0.0), (1, 0.0), (5, 4.0), (6, 0.0)] {
        assert!(source.set(FRAME * frame, sigma));
    }
    let binding = gst_controller::DirectControlBinding::new_absolute(&blur.element, "sigma", &source);
    blur.element.add_control_binding(&binding).unwrap();
    for sigma in [0.0, 0.0, 1.0, 2.0, 3.0, 4.0, 0.0] {
        let output = read(&info, &blur.push(buffer(&info, &image)));
        assert_eq!(blur.element.property::<f64>("sigma"), sigma);
        assert!(output == blurred_or_not(&image, sigma), "sigma={sigma}");
    }
}

#[test]
fn flags_timestamps_and_metas_are_preserved() {
    let info = info(VideoFormat::Bgrx, 48, 20);
    let image = picture(&info, 5);
    let mut blur = Blur::new("sigma=2");
    blur.caps(&info);
    blur.push(buffer(&info, &image));

    let flags = gst::BufferFlags::GAP
        | gst::BufferFlags::DELTA_UNIT
        | gst::BufferFlags::MARKER
        | gst::BufferFlags::DROPPABLE
        | gst::BufferFlags::CORRUPTED;
    let mut input = padded_buffer(&info, &image, 0, 256);
    {
        let input = input.get_mut().unwrap();
        input.set_flags(flags);
        input.set_offset(77);
        input.set_offset_end(78);
        input.set_dts(FRAME * 5);
        gst_video::VideoCropMeta::add(input, (3, 4, 30, 10));
        let mut roi = gst_video::VideoRegionOfInterestMeta::add(input, "face", (1, 2, 3, 4));
        roi.add_param(gst::Structure::builder("detection").field("confidence", 0.9).build());
        gst_video::VideoCaptionMeta::add(input, gst_video::VideoCaptionType::Cea608Raw, &[1, 2]);
        let reference = gst::Caps::new_empty_simple("timestamp/x-ntp");
        gst::ReferenceTimestampMeta::add(input, &reference, FRAME * 9, gst::ClockTime::NONE);
    }
    let output = blur.push(input);
    assert!(output.flags().contains(flags), "{:?}", output.flags());
    assert_eq!((output.pts(), output.dts(), output.duration()), (Some(FRAME), Some(FRAME * 5), Some(FRAME)));
    assert_eq!((output.offset(), output.offset_end()), (77, 78));
    assert_eq!(output.meta::<gst_video::VideoCropMeta>().unwrap().rect(), (3, 4, 30, 10));
    let roi = output.meta::<gst_video::VideoRegionOfInterestMeta>().unwrap();
    assert_eq!((roi.roi_type(), roi.rect()), ("face", (1, 2, 3, 4)));
    assert!(roi.param("detection").is_some());
    assert_eq!(output.meta::<gst_video::VideoCaptionMeta>().unwrap().data(), [1, 2]);
    assert_eq!(output.meta::<gst::ReferenceTimestampMeta>().unwrap().timestamp(), FRAME * 9);
    // The input's video meta describes the input's strides and is not copied.
    assert!(output.meta::<gst_video::VideoMeta>().is_none_or(|meta| meta.stride()[0] != 256));
    assert!(read(&info, &output) == blurred(&image, 2.0, 0));
}

#[test]
fn flush_and_end_of_stream_leave_no_frame_queued() {
    let info = info(VideoFormat::Rgbx, 40, 40);
    let image = picture(&info, 6);
    let mut blur = Blur::new("sigma=1.5");
    blur.caps(&info);
    for _ in 0..3 {
        blur.push(buffer(&info, &image));
    }
    assert!(blur.harness.push_event(gst::event::FlushStart::new()));
    assert_eq!(blur.try_push(buffer(&info, &image)), Err(gst::FlowError::Flushing));
    assert!(blur.harness.push_event(gst::event::FlushStop::new(true)));
    let segment = gst::FormattedSegment::<gst::ClockTime>::new();
    assert!(blur.harness.push_event(gst::event::Segment::new(&segment)));
    assert_eq!(blur.harness.buffers_in_queue(), 0);
    assert!(read(&info, &blur.push(buffer(&info, &image))) == blurred(&image, 1.5, 0));
    assert!(blur.harness.push_event(gst::event::Eos::new()));
    let end = std::iter::from_fn(|| blur.harness.try_pull_event()).last().unwrap();
    assert_eq!(end.type_(), gst::EventType::Eos);
    assert_eq!(blur.harness.buffers_received(), 4);
}

/// A frame that downstream would drop for being late is not blurred.
#[test]
fn late_frames_are_dropped_by_qos() {
    let info = info(VideoFormat::Rgb, 16, 16);
    let image = picture(&info, 7);
    let mut blur = Blur::new("");
    blur.caps(&info);
    blur.push(buffer(&info, &image));
    let late = gst::event::Qos::new(gst::QOSType::Underflow, 2.0, 500_000_000, FRAME);
    assert!(blur.harness.push_upstream_event(late));
    assert_eq!(blur.try_push(buffer(&info, &image)), Ok(gst::FlowSuccess::Ok));
    assert!(blur.harness.try_pull().is_none(), "a late frame was output");
    assert!(blur.bus.pop_filtered(&[gst::MessageType::Qos]).is_some());
    blur.element.set_property("qos", false);
    blur.push(buffer(&info, &image));
}

/// GstBaseTransform makes no allocation query in passthrough mode, so the element makes one when it leaves that mode.
#[test]
fn leaving_passthrough_makes_an_allocation_query() {
    let info = info(VideoFormat::Rgb, 32, 16);
    let image = picture(&info, 8);
    let mut blur = Blur::new("sigma=0");
    let queries = Arc::new(AtomicUsize::new(0));
    let count = queries.clone();
    let pad = blur.element.static_pad("src").unwrap();
    pad.add_probe(gst::PadProbeType::QUERY_DOWNSTREAM | gst::PadProbeType::PUSH, move |_, probe| {
        if probe.query().is_some_and(|query| query.type_() == gst::QueryType::Allocation) {
            count.fetch_add(1, Ordering::Relaxed);
        }
        gst::PadProbeReturn::Ok
    });
    blur.caps(&info);
    blur.push(buffer(&info, &image));
    let before = queries.load(Ordering::Relaxed);
    blur.element.set_property("sigma", 2.0);
    blur.push(buffer(&info, &image));
    assert!(queries.load(Ordering::Relaxed) > before, "no allocation query");
}

#[test]
fn allocation_query_offers_the_video_meta() {
    let info = info(VideoFormat::Rgb, 33, 20);
    let mut blur = Blur::new("");
    blur.caps(&info);
    let mut query = gst::query::Allocation::new(Some(&info.to_caps().unwrap()), true);
    assert!(blur.element.static_pad("sink").unwrap().query(&mut query));
    assert!(query.find_allocation_meta::<gst_video::VideoMeta>().is_some());
}

/// An entry of `stats`.
fn stat_text(blur: &Blur, name: &str) -> String {
    blur.element.property::<gst::Structure>("stats").get(name).unwrap()
}

#[test]
fn backend_and_kernel_in_use_are_reported() {
    let blur = Blur::new("backend=cpu");
    assert_eq!(video::nick(&blur.element, "active-backend"), "cpu");
    assert_ne!(stat_text(&blur, "kernel"), "none");
    assert_eq!(video::nick(&video::element("backend=cpu"), "active-backend"), "auto");
}

#[test]
fn form_in_use_is_reported() {
    let info = info(VideoFormat::Rgb, 33, 20);
    let mut blur = Blur::new("");
    assert_eq!(stat_text(&blur, "form"), "none");
    blur.caps(&info);
    for (sigma, kernel_size, form) in
        [(3.4, 0_u32, "direct"), (3.5, 0, "wide"), (1024.0, 0, "wide"), (20.0, 31, "direct")]
    {
        blur.element.set_property("sigma", sigma);
        blur.element.set_property("kernel-size", kernel_size);
        blur.push(buffer(&info, &picture(&info, 1)));
        assert_eq!(stat_text(&blur, "form"), form, "sigma={sigma} kernel-size={kernel_size}");
    }
}
