//! The element with region-mode: what it covers in the frames of a stream, which buffers it hands on, and that no frame
//! leaves uncovered where something went wrong.

use std::sync::atomic::Ordering;

use gst_video::{VideoFormat, VideoInfo, VideoMeta};

use crate::common::checks::count_allocation_queries;
use crate::common::covered::{info, with_roi};
use crate::common::stream::{SIZE, Stream};
use crate::common::video::with_meta;

const NV12: VideoFormat = VideoFormat::Nv12;

/// A discontinuity that jumps back by more than `hold-time` (3 s) forgets all objects. A jump back without DISCONT, or by less, does
/// not.
#[test]
fn a_jump_back_forgets_objects() {
    for (next, leaves) in [("discont@25", "25!:open"), ("frame@25", "25:13x9+11+7"), ("discont@500", "500!:13x9+11+7")]
    {
        Stream::gray("cover=fill expand=0 on-missing=pass")
            .plays(&[("face@500:13x9+11+7 face:13x9+11+7*29", "500-529"), (next, leaves)]);
    }
}

/// What is not covered is the same buffer, and what is covered is the same memory, unless another buffer has it too.
#[test]
fn frames_are_covered_in_place_if_nobody_else_has_them() {
    let memory = |buffer: &gst::Buffer| buffer.peek_memory(0).as_ptr();
    let mut stream = Stream::new(VideoFormat::I420, "sigma=4 expand=0 hold-time=0 on-missing=pass");
    for (is_shared, has_face) in [(false, true), (false, false), (true, true), (true, false)] {
        let input = if has_face { with_roi(stream.frame(), "face", (5, 5, 31, 17)) } else { stream.frame() };
        let (before, shared) = ((input.as_ptr(), memory(&input)), is_shared.then(|| input.copy()));
        let output = stream.output(input);
        stream.must_pad = !has_face || !is_shared;
        stream.check(&output, if has_face { "31x17+5+5" } else { "open" });
        assert_eq!(memory(&output) == before.1, stream.must_pad);
        assert!(has_face || output.as_ptr() == before.0);
        shared.inspect(|shared| stream.check(shared, "open"));
    }
    stream.counts("frames=4 frames-untouched=2 frames-cpu=2 frames-in-place=1");
}

#[test]
fn frames_without_regions_are_copied_for_a_downstream_that_reads_no_strides() {
    for properties in ["", "cover=fill"] {
        let mut stream = Stream::downstream(false, &info(NV12, SIZE), properties);
        let output = stream.output(stream.frame());
        stream.check(&output, "open");
        assert!(output.meta::<VideoMeta>().is_none_or(|meta| meta.stride() == stream.info.stride()));
        stream.counts("frames=1 frames-untouched=0 frames-cpu=0").fails("");
        let plain = gst::Buffer::from_mut_slice(vec![7; stream.info.size()]);
        let address = plain.as_ptr();
        assert_eq!(stream.output(plain).as_ptr(), address, "the strides of the caps");
        for shift in [0, 64] {
            let offsets: Vec<usize> = stream.info.offset().iter().map(|offset| offset + shift).collect();
            let bytes = vec![7; stream.info.size() + shift];
            let frame = with_meta(&stream.info, bytes, &offsets, stream.info.stride());
            let address = frame.as_ptr();
            assert_eq!(stream.output(frame).as_ptr() == address, shift == 0, "offsets of the caps, and others");
        }
    }
}

/// A detector that flickers and finds much or little changes neither caps nor pools.
#[test]
fn flicker_does_not_renegotiate() {
    for takes_video_meta in [false, true] {
        let info = info(VideoFormat::Rgba, SIZE);
        let mut stream = Stream::downstream(takes_video_meta, &info, "hold-time=0 on-missing=pass");
        stream.must_pad = false;
        let queries = count_allocation_queries(&stream.element);
        let mut asked = 0;
        for frame in 0..30 {
            let is_found = frame % 3 == 1;
            let input = if is_found { with_roi(stream.frame(), "face", (9, 9, 20, 20)) } else { stream.frame() };
            // No event leaves with it.
            let output = stream.output(if frame % 5 == 2 { input.copy() } else { input });
            stream.check(&output, if is_found { "28x28+5+5" } else { "open" });
            let queries = queries.load(Ordering::Relaxed);
            assert!(frame == 0 || queries == asked, "takes_video_meta={takes_video_meta}");
            asked = queries;
        }
    }
}

/// The σ of a frame that is covered as a whole: 0.25 of the shorter side, rounded up to the next 2^(i/4).
const WHOLE_SIGMA: f64 = 16.0;

#[test]
fn frame_that_no_detector_looked_at_follows_on_missing() {
    let started = |properties| Stream::new(NV12, &format!("strength=0.25 {properties}")).hidden_by(WHOLE_SIGMA);
    // auto passes frames before the first meta, and covers those without one after it, also after a flush and new caps.
    let mut stream = started("hold-time=0");
    stream.plays(&[("frame", "0:open"), ("face", "1")]).warns("");
    stream.plays(&[("frame", "2:whole")]).warns("the frame at 0:00:00.08…it is covered as a whole…");
    // One warning.
    stream.plays(&[("frame", "3:whole")]).warns("").counts("frames-missing=2");
    stream.plays(&[("flush segment", "flush-start flush-stop segment"), ("frame", "4:whole")]);

    started("on-missing=cover").plays(&[("frame face", "0:whole 1")]).counts("frames-missing=1");
    // It is wanted so, and counted all the same.
    let mut stream = started("on-missing=pass hold-time=0");
    stream.plays(&[("face frame", "0 1:open")]).warns("").counts("frames-missing=1");
    started("on-missing=drop").plays(&[("frame", ""), ("face", "1!")]).counts("frames-missing=1 frames-dropped=1");
    started("on-missing=error").plays(&[("face frame", "0 error")]).fails("…on-missing=error…");
}

/// What covers a frame as a whole leaves nothing of it at its edges either.
#[test]
fn whole_frames_are_filled_with_the_colour() {
    let info = info(VideoFormat::Y444, SIZE);
    let mut stream = Stream::downstream(false, &info, "on-missing=cover cover=fill fill-color=0xffff0000");
    stream.hidden.bytes.iter_mut().zip([81, 90, 240]).for_each(|(plane, value)| plane.fill(value));
    stream.plays(&[("frame", "0:whole")]);
}

#[test]
fn detections_stay_covered_for_the_hold_time() {
    let mut stream = Stream::gray("sigma=3 expand=0 on-missing=pass hold-time=100000000");
    // Grown by 0.4 and 0.7 samples, and rounded outwards.
    stream.plays(&[("face frame*2", "0:8x8+20+20 1-2:10x10+19+19")]).counts("frames-predicted=2");
    stream.plays(&[
        ("frame", "3:open"),
        ("face flush segment frame", "4:8x8+20+20 flush-start flush-stop segment 5:open"),
        ("face eos stream-start segment frame", "6:8x8+20+20 eos stream-start segment 7:open"),
        ("face", "8:8x8+20+20"),
    ]);
    // Another frame rate ends nothing, another size does.
    let [same, taller] = [0, 1]
        .map(|more| VideoInfo::builder(VideoFormat::Gray8, SIZE[0], SIZE[1] + more).fps((30, 1)).build().unwrap());
    stream.change_caps(&same);
    stream.plays(&[("frame face", "caps segment 9:10x10+19+19 10:8x8+20+20")]);
    stream.change_caps(&taller);
    stream.change_caps(&same);
    stream.plays(&[("frame", "caps segment caps segment 11:open")]);
    // What was found twice is lost then.
    for (on_lost, looks) in [("release", "4:open"), ("cover", "4:whole")] {
        Stream::gray(&format!("cover=fill expand=0 on-missing=pass hold-time=100000000 on-lost={on_lost}"))
            .plays(&[("face*2 frame*2", "0-1:8x8+20+20 2-3:10x10+19+19"), ("frame", looks)]);
    }
}

/// Also of a picture that is wider than a mask in a meta may be, and of a field. Shapes and parts of them are in the lives.
#[test]
fn alpha_is_covered_or_shown() {
    for (mode, [none, all]) in [("inside", ["0:open", "1:whole"]), ("outside", ["0:whole", "1:open"])] {
        let properties = format!("region-mode={mode} region-sources=alpha cover=fill");
        let sized = |size| Stream::of(&info(VideoFormat::Rgba, size), &properties);
        let field = Stream::of_field(VideoFormat::Rgba, &properties);
        for mut stream in [[1, 1], [3, 2], SIZE, [5001, 180]].map(sized).into_iter().chain([field]) {
            stream.plays(&[("alpha:0 frame", none), ("alpha:255 frame", all)]);
        }
    }
}

/// Planes that overlap cannot be covered in place, and a format without an alpha channel not by it.
#[test]
fn frames_that_cannot_be_covered_are_not_pushed() {
    for format in [NV12, VideoFormat::Rgbx, VideoFormat::Gray16Le] {
        for properties in
            ["region-sources=alpha", "region-mode=outside region-sources=zones+roi+analytics+alpha on-missing=pass"]
        {
            let error =
                format!("…region-sources=alpha, but {format} has no alpha channel; put cudagaussblur right after…");
            Stream::new(format, properties).plays(&[("face", "error")]).fails(&error);
        }
    }
    let mut stream = Stream::new(NV12, "");
    let overlapping = with_meta(&stream.info, vec![0; 2 * stream.info.size()], &[0, 100], stream.info.stride());
    stream.push(with_roi(overlapping, "face", (1, 1, 9, 9)));
    stream.leaves("error").fails("…the planes of the input buffer overlap…");
}
