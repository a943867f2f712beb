//! An independent reference: frames of ten formats against SciPy's Gaussian in float64 (scipy_reference.py), which uses
//! neither this crate nor GStreamer.

use std::fmt::Write;

use crate::common::{Noise, formats, promised, python, video};
use gst_video::VideoFormat;

/// Formats and their depths.
const FORMATS: [(&str, u32); 10] = [
    ("GRAY8", 8),
    ("RGB", 8),
    ("NV12", 8),
    ("I420", 8),
    ("YUY2", 8),
    ("P010_10LE", 10),
    ("I422_10LE", 10),
    ("RGB10A2_LE", 10),
    ("GRAY16_LE", 16),
    ("RGBA64_LE", 16),
];

/// The bytes of a frame: noise, or samples of only the lowest and the highest value. (In 10-10-10-2 words the boundaries of
/// samples are not those of bytes, so other values occur too.)
fn bytes(is_binary: bool, depth: u32) -> impl Iterator<Item = u8> {
    let mut noise = Noise(u64::from(depth));
    let sample = move |_| match noise.next() as u8 {
        bit if is_binary => std::iter::repeat_n(bit % 2 * 255, depth.div_ceil(8) as usize),
        byte => std::iter::repeat_n(byte, 1),
    };
    (0..).flat_map(sample)
}

#[test]
fn distance_from_scipys_gaussian_is_within_the_promise() {
    video::init();
    let folder = std::env::temp_dir().join(format!("cudagaussblur-scipy-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut requests = String::new();
    let mut frames = Vec::new();
    for (name, depth) in FORMATS {
        let sigmas = [0.8, 1.5, 3.0, 5.0, 20.0, 100.0].into_iter();
        for (sigma, is_binary) in sigmas.flat_map(|sigma| [(sigma, false), (sigma, true)]) {
            let info = video::info(VideoFormat::from_string(name), 131, 77);
            let mut blur = video::Blur::new(&format!("sigma={sigma}"));
            blur.caps(&info);
            let mut bytes = bytes(is_binary, depth);
            let before = formats::buffer(&info, 0, &mut || bytes.next().unwrap());
            let after = blur.push(before.copy_deep().unwrap());
            let [before, after] = [("before", &before), ("after", &after)].map(|(when, buffer)| {
                let file = folder.join(format!("{name}-{sigma}-{is_binary}-{when}"));
                std::fs::write(&file, buffer.map_readable().unwrap().as_slice()).unwrap();
                file.display().to_string()
            });
            let planes = info.stride().iter().zip(info.offset()).take(info.n_planes() as usize);
            let planes: Vec<String> = planes.map(|(stride, offset)| format!("{stride}:{offset}")).collect();
            writeln!(requests, "{name} 131 77 {sigma} {} {before} {after}", planes.join(",")).unwrap();
            let name = format!("{name} {}noise", if is_binary { "binary " } else { "" });
            frames.push((name, sigma, promised(depth, sigma)));
        }
    }
    let requests_file = folder.join("requests");
    std::fs::write(&requests_file, requests).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/scipy_reference.py");
    let text = python::output(python::with("numpy,scipy").arg(script).arg(&requests_file));
    std::fs::remove_dir_all(&folder).unwrap();
    let distances: Vec<f64> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(distances.len(), frames.len());
    for ((name, sigma, most), distance) in frames.into_iter().zip(distances) {
        println!("{name:<23} sigma {sigma:<4} {distance:.4} LSB");
        assert!(distance <= most, "{name} sigma={sigma}: {distance} LSB, more than {most}");
    }
}
