//! Two views in a picture: each is processed as a stream of its own would be.

use gst_video::{VideoFormat, VideoInfo, VideoMultiviewFlags, VideoMultiviewMode, VideoRegionOfInterestMeta};

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
fn infos(format: VideoFormat, mode: VideoMultiviewMode) -> [VideoInfo; 2] {
    video::init();
    let (width, height) = if mode == VideoMultiviewMode::SideBySide { (192, 64) } else { (96, 128) };
    let both = VideoInfo::builder(format, width, height).fps((25, 1)).multiview_mode(mode);
    [both.build().unwrap(), video::info(format, 96, 64)]
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

type Roi = (u32, u32, u32, u32);

/// What a stream makes of a frame with a region of interest, if it has one.
fn output_of(caps: gst::Caps, properties: &str, bytes: &[u8], roi: Option<Roi>) -> Vec<u8> {
    let mut blur = Blur::new(&format!("backend=cpu {properties}"));
    blur.harness.set_src_caps(caps);
    let mut input = gst::Buffer::from_mut_slice(bytes.to_vec());
    roi.map(|roi| VideoRegionOfInterestMeta::add(input.get_mut().unwrap(), "face", roi));
    let output = blur.push(input);
    assert_eq!(blur.messages(gst::MessageType::Warning), [""; 0], "{properties}");
    output.map_readable().unwrap().to_vec()
}

fn output(info: &VideoInfo, properties: &str, bytes: &[u8]) -> Vec<u8> {
    output_of(info.to_caps().unwrap(), properties, bytes, None)
}

/// Checks that each view becomes what a stream of its own becomes.
fn check(format: VideoFormat, mode: VideoMultiviewMode, properties: &str) {
    let [both, one] = infos(format, mode);
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
    // Soft edges reach across the seam.
    let apart = "zones=<[zone,x=0.3,y=0.3,width=0.4,height=0.3]> shape=ellipse feather=6";
    for format in FORMATS {
        for mode in [VideoMultiviewMode::SideBySide, VideoMultiviewMode::TopBottom] {
            for cover in ["cover=blur sigma=6", "cover=mosaic", "cover=fill fill-color=0x30ff8020"] {
                for region_mode in ["inside", "outside"] {
                    // The cells of a background lie about the middle of the picture.
                    if (region_mode, cover) != ("outside", "cover=mosaic") {
                        for zones in [ZONES, apart] {
                            let regions = format!("region-mode={region_mode} region-sources=zones");
                            check(format, mode, &format!("{regions} {cover} {zones}"));
                        }
                    }
                }
            }
        }
    }
}

/// What is covered of an object at the seam is covered in both views, each from its own samples.
#[test]
fn detections_are_cut_where_views_meet() {
    let [both, one] = infos(VideoFormat::Gray8, VideoMultiviewMode::SideBySide);
    let bytes = Noise(3).bytes(both.size());
    for cover in ["blur", "mosaic", "fill"] {
        let covered = |bytes: &[u8]| {
            let properties = format!("region-mode=inside expand=0 hold-time=0 sigma=9 strength=0 cover={cover}");
            output_of(both.to_caps().unwrap(), &properties, bytes, Some((80, 10, 40, 30)))
        };
        let output = covered(&bytes);
        for (index, columns) in [(0, 80..96), (1, 0..24)] {
            let [before, after] = [&bytes, &output].map(|bytes| view(&both, &one, bytes, index));
            let blurred = self::output(&one, "sigma=9", &before);
            for (i, after) in after.iter().enumerate() {
                let is_covered = columns.contains(&(i % 96)) && (10..40).contains(&(i / 96));
                let expected = if is_covered { blurred[i] } else { before[i] };
                assert!(
                    *after == expected || is_covered && cover != "blur",
                    "{cover}, view {index}, sample {i}: {after} for {expected}"
                );
            }
            // None of what is in the other view shows.
            let is_own = |i: usize| (i % 192 >= 96) == (index == 1);
            let other: Vec<u8> =
                bytes.iter().enumerate().map(|(i, byte)| if is_own(i) { *byte } else { !*byte }).collect();
            let again = view(&both, &one, &covered(&other), index);
            assert!(again == after, "{cover}, view {index} depends on the other one");
        }
    }
}

/// Views of half the width or height are shown twice as large.
#[test]
fn half_views_have_half_the_sigma() {
    video::init();
    for (mode, scale) in MODES.into_iter().zip([[0.5, 1.0], [1.0, 0.5], [1.0, 0.5]]) {
        let half = VideoInfo::builder(VideoFormat::Gray8, 192, 128).multiview_mode(mode);
        let half = half.multiview_flags(VideoMultiviewFlags::HALF_ASPECT).build().unwrap();
        assert_eq!(layouts::planes(&half, false).unwrap()[0].sigma_scale, scale, "{mode:?}");
    }
}

/// What is shown of a zone at the seam shows nothing of the view beside, however it grows.
#[test]
fn zones_that_are_shown_end_at_the_seam() {
    for mode in [VideoMultiviewMode::SideBySide, VideoMultiviewMode::TopBottom] {
        let [both, one] = infos(VideoFormat::Gray8, mode);
        for shape in ["box feather=4", "ellipse"] {
            let properties = format!(
                "region-mode=outside region-sources=zones cover=fill fill-color=0xff000000 grow=9 shape={shape} \
                 zones=<[zone,x=0.6,y=0.6,width=0.9,height=0.9]>"
            );
            let packed = output(&both, &properties, &vec![255; both.size()]);
            for index in [0, 1] {
                let view = view(&both, &one, &packed, index);
                assert!(view.contains(&255), "{mode:?} {shape}: nothing is shown");
                let along = |i: usize| if mode == VideoMultiviewMode::SideBySide { i % 96 } else { i / 96 };
                let shown = (0..view.len()).filter(|i| along(*i) < 20 && view[*i] != view[0]).count();
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
        let [both, _] = infos(VideoFormat::Gray8, mode);
        // GStreamer's own function makes a pixel-aspect-ratio of the flag.
        let [flags, half] = [0, VideoMultiviewFlags::HALF_ASPECT.bits()].map(|bits| format!("FlagsSet){bits:x}:"));
        let caps = both.to_caps().unwrap().to_string();
        assert!(caps.contains(&flags), "{caps}");
        let caps = if is_half { caps.replace(&flags, &half) } else { caps };
        let bytes = Noise(5).bytes(both.size());
        let of = |sigma: &str| {
            let properties = format!("region-mode=inside expand=0 hold-time=0 {sigma}");
            output_of(caps.parse().unwrap(), &properties, &bytes, Some(roi))
        };
        let of_object = of("sigma=1 strength=0.25");
        assert!(of_object != bytes && of_object == of(&format!("sigma={sigma} strength=0")), "{mode:?} {is_half}");
    }
}
