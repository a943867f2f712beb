//! Two views in a picture: each is processed as a stream of its own would be.

use gst_video::{VideoFormat, VideoInfo, VideoMultiviewFlags, VideoMultiviewMode};

use crate::common::Noise;
use crate::common::video::{self, Blur};
use gstcudagaussblur::element::formats as layouts;

const FORMATS: [VideoFormat; 8] = [
    VideoFormat::I420,
    VideoFormat::Nv12,
    VideoFormat::Yuy2,
    VideoFormat::Rgba,
    VideoFormat::A420,
    VideoFormat::Gray8,
    VideoFormat::P01010le,
    VideoFormat::Rgb10a2Le,
];
const MODES: [VideoMultiviewMode; 3] =
    [VideoMultiviewMode::SideBySide, VideoMultiviewMode::TopBottom, VideoMultiviewMode::RowInterleaved];
const ZONES: &str = "zones=<[zone,x=0.6,y=0.5,width=0.5,height=0.2],[zone,x=0.0,y=0.2,width=0.3,height=0.5]>";

/// A picture of two views of 96x64 pixels, and one of them.
fn infos(format: VideoFormat, mode: VideoMultiviewMode, flags: VideoMultiviewFlags) -> [VideoInfo; 2] {
    video::init();
    let (width, height) = if mode == VideoMultiviewMode::SideBySide { (192, 64) } else { (96, 128) };
    let both = VideoInfo::builder(format, width, height).fps((25, 1)).multiview_mode(mode).multiview_flags(flags);
    [both.build().unwrap(), VideoInfo::builder(format, 96, 64).fps((25, 1)).build().unwrap()]
}

/// The bytes of a view of a picture, none of whose rows has padding.
fn view(both: &VideoInfo, one: &VideoInfo, bytes: &[u8], index: usize) -> Vec<u8> {
    let mut view = vec![0; one.size()];
    let planes = layouts::planes(one, false).unwrap();
    for (plane, layout) in planes.iter().enumerate() {
        let [stride, of_one] = [both, one].map(|info| info.stride()[plane] as usize);
        assert_eq!(of_one, layout.row_bytes());
        for y in 0..layout.height as usize {
            let (row, byte) = match both.multiview_mode() {
                VideoMultiviewMode::SideBySide => (y, index * of_one),
                VideoMultiviewMode::TopBottom => (y + index * layout.height as usize, 0),
                _ => (2 * y + index, 0),
            };
            let from = both.offset()[plane] + row * stride + byte;
            view[one.offset()[plane] + y * of_one..][..of_one].copy_from_slice(&bytes[from..from + of_one]);
        }
    }
    view
}

/// What a stream makes of a frame.
fn output(info: &VideoInfo, properties: &str, bytes: &[u8]) -> Vec<u8> {
    let mut blur = Blur::new(&format!("backend=cpu {properties}"));
    blur.caps(info);
    let output = blur.push(gst::Buffer::from_mut_slice(bytes.to_vec()));
    assert_eq!(blur.messages(gst::MessageType::Warning), [""; 0], "{properties}");
    output.map_readable().unwrap().to_vec()
}

fn check(format: VideoFormat, mode: VideoMultiviewMode, properties: &str) {
    let [both, one] = infos(format, mode, VideoMultiviewFlags::empty());
    let bytes = Noise(7).bytes(both.size());
    let packed = output(&both, properties, &bytes);
    assert!(packed != bytes, "{format:?} {mode:?} {properties}: nothing is processed");
    for index in [0, 1] {
        let expected = output(&one, properties, &view(&both, &one, &bytes, index));
        assert!(view(&both, &one, &packed, index) == expected, "{format:?} {mode:?} {properties}, view {index}");
    }
}

#[test]
fn views_are_blurred_each_by_itself() {
    for format in FORMATS {
        for mode in MODES {
            for properties in ["sigma=1.5", "sigma=8", "sigma=30", "sigma=3 kernel-size=5"] {
                check(format, mode, properties);
            }
        }
    }
}

/// A row of a row-interleaved picture stands for the same lines in both views, so that zones count in the picture there.
#[test]
fn zones_count_in_each_view() {
    for format in FORMATS {
        for mode in [VideoMultiviewMode::SideBySide, VideoMultiviewMode::TopBottom] {
            for region_mode in ["inside", "outside"] {
                for cover in ["cover=blur sigma=6", "cover=mosaic", "cover=fill fill-color=0x30ff8020"] {
                    let properties = format!("region-mode={region_mode} region-sources=zones {cover} {ZONES}");
                    let is_of_picture = region_mode == "outside" && cover == "cover=mosaic";
                    // The cells of a background lie about the middle of the picture.
                    if !is_of_picture {
                        check(format, mode, &properties);
                    }
                    if !is_of_picture {
                        // Soft edges reach across the seam.
                        let apart = "zones=<[zone,x=0.3,y=0.3,width=0.4,height=0.3]> shape=ellipse feather=6";
                        check(format, mode, &properties.replace(ZONES, apart));
                    }
                }
            }
        }
    }
}

/// What is covered of an object at the seam is covered in both views, each from its own samples.
#[test]
fn detections_are_cut_where_views_meet() {
    let [both, one] = infos(VideoFormat::Gray8, VideoMultiviewMode::SideBySide, VideoMultiviewFlags::empty());
    let bytes = Noise(3).bytes(both.size());
    for cover in ["blur", "mosaic", "fill"] {
        let properties =
            format!("backend=cpu region-mode=inside expand=0 hold-time=0 sigma=9 strength=0 cover={cover}");
        let mut blur = Blur::new(&properties);
        blur.caps(&both);
        let mut input = gst::Buffer::from_mut_slice(bytes.clone());
        gst_video::VideoRegionOfInterestMeta::add(input.get_mut().unwrap(), "face", (80, 10, 40, 30));
        let output = blur.push(input).map_readable().unwrap().to_vec();
        for (index, columns) in [(0, 80..96), (1, 0..24)] {
            let [before, after] = [&bytes, &output].map(|bytes| view(&both, &one, bytes, index));
            let of_whole = (cover == "blur").then(|| self::output(&one, "sigma=9", &before));
            for (i, (before, after)) in before.iter().zip(&after).enumerate() {
                let is_covered = columns.contains(&(i % 96)) && (10..40).contains(&(i / 96));
                if let (true, Some(blurred)) = (is_covered, &of_whole) {
                    assert_eq!(*after, blurred[i], "{cover}, view {index}, sample {i}");
                }
                assert!(is_covered || before == after, "{cover}, view {index}, sample {i}");
            }
            // None of what is in the other view shows.
            let mut other = bytes.clone();
            other
                .iter_mut()
                .enumerate()
                .filter(|(i, _)| (i % 192 >= 96) != (index == 1))
                .for_each(|(_, byte)| *byte = !*byte);
            let mut input = gst::Buffer::from_mut_slice(other);
            gst_video::VideoRegionOfInterestMeta::add(input.get_mut().unwrap(), "face", (80, 10, 40, 30));
            let again = blur.push(input).map_readable().unwrap().to_vec();
            assert!(view(&both, &one, &again, index) == after, "{cover}, view {index} depends on the other one");
        }
    }
}

/// Views of half the width or height are shown twice as large.
#[test]
fn half_views_have_half_the_sigma() {
    for (mode, scale) in MODES.into_iter().zip([[0.5, 1.0], [1.0, 0.5], [1.0, 0.5]]) {
        let [both, _] = infos(VideoFormat::Gray8, mode, VideoMultiviewFlags::HALF_ASPECT);
        assert_eq!(layouts::planes(&both, false).unwrap()[0].sigma_scale, scale, "{mode:?}");
    }
}

/// What is shown of a zone at the seam shows nothing of the view beside, however it grows.
#[test]
fn zones_that_are_shown_end_at_the_seam() {
    for mode in [VideoMultiviewMode::SideBySide, VideoMultiviewMode::TopBottom] {
        let [both, one] = infos(VideoFormat::Gray8, mode, VideoMultiviewFlags::empty());
        // Of the first view the last samples are shown, of the second view nothing is.
        for shape in ["box feather=4", "ellipse"] {
            let properties = format!(
                "region-mode=outside region-sources=zones cover=fill fill-color=0xff000000 grow=9 shape={shape} \
                 zones=<[zone,x=0.6,y=0.6,width=0.9,height=0.9]>"
            );
            let packed = output(&both, &properties, &vec![255; both.size()]);
            for index in [0, 1] {
                let view = view(&both, &one, &packed, index);
                assert!(view.contains(&255), "{mode:?} {shape}: nothing is shown");
                let columns = if mode == VideoMultiviewMode::SideBySide { 96 } else { 0 };
                let near = (0..view.len()).filter(|i| if columns > 0 { i % 96 < 20 } else { i / 96 < 20 });
                let shown = near.filter(|i| view[*i] != view[0]).count();
                assert_eq!(shown, 0, "{mode:?} {shape}: view {index} shows what the zone of the other one grows to");
            }
        }
    }
}

/// σ follows an object as it is shown, in which a sample of a half view counts twice.
#[test]
fn strength_is_that_of_the_object_as_it_is_shown() {
    for (mode, is_half, roi, sigma) in [
        (VideoMultiviewMode::SideBySide, true, (10, 4, 16, 56), 8),
        (VideoMultiviewMode::SideBySide, false, (10, 4, 16, 56), 4),
        (VideoMultiviewMode::TopBottom, true, (10, 4, 60, 16), 8),
    ] {
        let [both, _] = infos(VideoFormat::Gray8, mode, VideoMultiviewFlags::empty());
        let mut caps = both.to_caps().unwrap().to_string();
        if is_half {
            // GStreamer's own function makes a pixel-aspect-ratio of the flag.
            let [flags, half] = [0, VideoMultiviewFlags::HALF_ASPECT.bits()].map(|bits| format!("FlagsSet){bits:x}:"));
            assert!(caps.contains(&flags), "{caps}");
            caps = caps.replace(&flags, &half);
        }
        let bytes = Noise(5).bytes(both.size());
        let [of_object, constant] =
            ["sigma=1 strength=0.25".to_owned(), format!("sigma={sigma} strength=0")].map(|sigma| {
                let mut blur = Blur::new(&format!("backend=cpu region-mode=inside expand=0 hold-time=0 {sigma}"));
                blur.harness.set_src_caps(caps.parse().unwrap());
                let mut input = gst::Buffer::from_mut_slice(bytes.clone());
                gst_video::VideoRegionOfInterestMeta::add(input.get_mut().unwrap(), "face", roi);
                blur.push(input).map_readable().unwrap().to_vec()
            });
        assert!(of_object != bytes && of_object == constant, "{mode:?} {is_half}");
    }
}
