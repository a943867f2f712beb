//! Two views in a picture: each is processed as a stream of its own would be.

use gst_video::VideoFormat::{self, A420, Gray8, I420, Nv12, P01010le, Rgb10a2Le, Rgba, Yuy2};
use gst_video::VideoMultiviewMode::{self, RowInterleaved, SideBySide, TopBottom};
use gst_video::{VideoInfo, VideoMultiviewFlags};

use crate::common::Noise;
use crate::common::covered::with_roi;
use crate::common::stream::Place;
use crate::common::video::{self, Blur};
use gstcudagaussblur::element::format::formats as layouts;

const FORMATS: [VideoFormat; 8] = [I420, Nv12, Yuy2, Rgba, A420, Gray8, P01010le, Rgb10a2Le];
const MODES: [VideoMultiviewMode; 3] = [SideBySide, TopBottom, RowInterleaved];

/// A picture of two views of 96x64 pixels, and one of them.
fn infos(format: VideoFormat, mode: VideoMultiviewMode) -> [VideoInfo; 2] {
    video::init();
    let (width, height) = if mode == SideBySide { (192, 64) } else { (96, 128) };
    let both = VideoInfo::builder(format, width, height).fps((25, 1)).multiview_mode(mode);
    [both.build().unwrap(), video::info(format, 96, 64)]
}

/// The bytes of a view of a picture, none of whose rows has padding.
fn view([both, one]: &[VideoInfo; 2], bytes: &[u8], index: usize) -> Vec<u8> {
    let mut view = vec![0; one.size()];
    for (plane, layout) in layouts::planes(one, false).unwrap().iter().enumerate() {
        let [stride, of_one] = [both, one].map(|info| info.stride()[plane] as usize);
        assert_eq!(of_one, layout.row_bytes());
        for y in 0..layout.height as usize {
            let (row, byte) = match both.multiview_mode() {
                SideBySide => (y, index * of_one),
                TopBottom => (y + index * layout.height as usize, 0),
                _ => (2 * y + index, 0),
            };
            let from = both.offset()[plane] + row * stride + byte;
            view[one.offset()[plane] + y * of_one..][..of_one].copy_from_slice(&bytes[from..from + of_one]);
        }
    }
    view
}

/// What a stream makes of a frame with a detection, if it has one.
fn output(caps: gst::Caps, properties: &str, bytes: &[u8], detection: Option<Place>) -> Vec<u8> {
    let mut blur = Blur::new(&format!("backend=cpu {properties}"));
    blur.harness.set_src_caps(caps);
    let frame = gst::Buffer::from_mut_slice(bytes.to_vec());
    let output = blur.push(detection.into_iter().fold(frame, |frame, place| with_roi(frame, "face", place)));
    blur.said(0, 0);
    output.map_readable().unwrap().to_vec()
}

/// Checks that each view becomes what a stream of its own becomes.
fn check(format: VideoFormat, mode: VideoMultiviewMode, properties: &str) {
    let infos = infos(format, mode);
    let bytes = Noise(7).bytes(infos[0].size());
    let packed = output(infos[0].to_caps().unwrap(), properties, &bytes, None);
    assert!(packed != bytes, "{format:?} {mode:?} {properties}: nothing is processed");
    for index in [0, 1] {
        let expected = output(infos[1].to_caps().unwrap(), properties, &view(&infos, &bytes, index), None);
        assert!(view(&infos, &packed, index) == expected, "{format:?} {mode:?} {properties}, view {index}");
    }
}

/// A row of a row-interleaved picture stands for the same lines in both views, so that zones count in the picture there.
#[test]
fn views_are_processed_each_by_itself() {
    // Across the seam, where the view beside has no zone.
    let zones = "zones=<[zone,x=0.6,y=0.7,width=0.5,height=0.4],[zone,x=0.0,y=0.2,width=0.3,height=0.3]>";
    // Soft edges reach across the seam.
    let apart = "zones=<[zone,x=0.3,y=0.3,width=0.4,height=0.3]> shape=ellipse feather=6";
    for (format, mode) in FORMATS.into_iter().flat_map(|format| MODES.map(|mode| (format, mode))) {
        for properties in ["sigma=1.5", "sigma=30", "sigma=3 kernel-size=5"] {
            check(format, mode, properties);
        }
        for (region_mode, cover) in [
            ("inside", "blur sigma=6"),
            ("inside", "mosaic"),
            ("inside", "fill fill-color=0x30ff8020"),
            // The cells of a background lie about the middle of the picture.
            ("outside", "blur sigma=6"),
            ("outside", "fill fill-color=0x30ff8020"),
        ] {
            for zones in [zones, apart].into_iter().filter(|_| mode != RowInterleaved) {
                let regions = format!("region-mode={region_mode} region-sources=zones {zones}");
                check(format, mode, &format!("{regions} cover={cover}"));
            }
        }
    }
}

/// What is covered of an object at the seam is covered in both views, each from its own samples.
#[test]
fn detections_are_cut_where_views_meet() {
    let infos = infos(Gray8, SideBySide);
    let [both, one] = infos.each_ref().map(|info| info.to_caps().unwrap());
    let bytes = Noise(3).bytes(infos[0].size());
    for cover in ["blur", "mosaic", "fill"] {
        let properties = format!("region-mode=inside expand=0 sigma=9 strength=0 cover={cover}");
        let covered = |bytes: &[u8]| output(both.clone(), &properties, bytes, Some((80, 10, 40, 30)));
        for (index, columns) in [(0, 80..96), (1, 0..24)] {
            let [before, after] = [bytes.clone(), covered(&bytes)].map(|bytes| view(&infos, &bytes, index));
            let blurred = output(one.clone(), "sigma=9", &before, None);
            for (i, after) in after.iter().enumerate() {
                let is_covered = columns.contains(&(i % 96)) && (10..40).contains(&(i / 96));
                let expected = if is_covered { blurred[i] } else { before[i] };
                let is_right = *after == expected || is_covered && cover != "blur";
                assert!(is_right, "{cover}, view {index}, sample {i}: {after} for {expected}");
            }
            // None of what is in the other view shows.
            let is_own = |i: usize| (i % 192 >= 96) == (index == 1);
            let other = bytes.iter().enumerate().map(|(i, byte)| if is_own(i) { *byte } else { !*byte });
            let again = view(&infos, &covered(&other.collect::<Vec<u8>>()), index);
            assert!(again == after, "{cover}, view {index} depends on the other one");
        }
    }
}

/// Views of half the width or height are shown twice as large.
#[test]
fn half_views_have_half_the_sigma() {
    video::init();
    for (mode, scale) in MODES.into_iter().zip([[0.5, 1.0], [1.0, 0.5], [1.0, 0.5]]) {
        let half = VideoInfo::builder(Gray8, 192, 128).multiview_mode(mode);
        let half = half.multiview_flags(VideoMultiviewFlags::HALF_ASPECT).build().unwrap();
        assert_eq!(layouts::planes(&half, false).unwrap()[0].sigma_scale, scale, "{mode:?}");
    }
}

/// What is shown of a zone beyond the seam shows nothing of the view beside, however it grows. What is covered of it is as much in each
/// view as in a stream of its own, also of an ellipse around a place beyond the view.
#[test]
fn zones_end_at_the_seam_and_keep_their_shape() {
    for mode in [SideBySide, TopBottom] {
        let infos = infos(Gray8, mode);
        let of = |info: &VideoInfo, properties: &str| {
            let zone = "region-sources=zones cover=fill zones=<[zone,x=0.6,y=0.6,width=0.9,height=0.9]>";
            output(info.to_caps().unwrap(), &format!("{zone} {properties}"), &vec![255; info.size()], None)
        };
        for shape in ["box feather=4", "ellipse"] {
            let packed = of(&infos[0], &format!("region-mode=outside grow=9 shape={shape}"));
            for view in [0, 1].map(|index| view(&infos, &packed, index)) {
                assert!(view.contains(&255), "{mode:?} {shape}: nothing is shown");
                let along = |i: usize| if mode == SideBySide { i % 96 } else { i / 96 };
                let shown = (0..view.len()).filter(|i| along(*i) < 20 && view[*i] != view[0]).count();
                assert_eq!(shown, 0, "{mode:?} {shape}: a view shows what the zone of the other one grows to");
            }
        }
        let [packed, alone] = infos.each_ref().map(|info| of(info, "region-mode=inside shape=ellipse"));
        for index in [0, 1] {
            let is_covered = view(&infos, &packed, index).iter().zip(&alone).all(|(here, alone)| here <= alone);
            assert!(is_covered, "{mode:?}: view {index}");
        }
    }
}

/// σ follows an object as it is shown, in which a sample of a half view counts twice.
#[test]
fn strength_is_that_of_the_object_as_it_is_shown() {
    for (mode, is_half, place, sigma) in [
        (SideBySide, true, (10, 4, 16, 56), 8),
        (SideBySide, false, (10, 4, 16, 56), 4),
        (TopBottom, true, (10, 4, 60, 16), 8),
    ] {
        let [both, _] = infos(Gray8, mode);
        // GStreamer's own function makes a pixel-aspect-ratio of the flag.
        let [flags, half] = [0, VideoMultiviewFlags::HALF_ASPECT.bits()].map(|bits| format!("FlagsSet){bits:x}:"));
        let caps = both.to_caps().unwrap().to_string();
        assert!(caps.contains(&flags), "{caps}");
        let caps: gst::Caps = if is_half { caps.replace(&flags, &half) } else { caps }.parse().unwrap();
        let bytes = Noise(5).bytes(both.size());
        let [of_object, expected] = ["sigma=1 strength=0.25", &format!("sigma={sigma} strength=0")]
            .map(|blur| output(caps.clone(), &format!("region-mode=inside expand=0 {blur}"), &bytes, Some(place)));
        assert!(of_object != bytes && of_object == expected, "{mode:?} {is_half}");
    }
}
