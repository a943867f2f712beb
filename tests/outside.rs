//! A second oracle, from outside: frames of ten formats against NumPy and SciPy in float64, which know nothing of this
//! project nor of GStreamer.

mod common;

use std::fmt::Write;

use common::{Noise, formats, python, video};
use gst_video::VideoFormat;

/// Formats, and the largest distance to SciPy's Gaussian that is allowed on noise, in LSB of the format's depth. At 16 bits it
/// is the taps that show, which are of 16 bits themselves.
const FORMATS: [(&str, f64); 10] = [
    ("GRAY8", 0.6),
    ("RGB", 0.6),
    ("NV12", 0.6),
    ("I420", 0.6),
    ("YUY2", 0.6),
    ("P010_10LE", 0.6),
    ("I422_10LE", 0.6),
    ("RGB10A2_LE", 0.6),
    ("GRAY16_LE", 2.5),
    ("RGBA64_LE", 2.5),
];

#[test]
fn frames_are_as_near_to_the_gaussian_as_promised() {
    video::init();
    let folder = std::env::temp_dir().join(format!("cudagaussblur-outside-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let mut requests = String::new();
    let mut frames = Vec::new();
    for (name, most) in FORMATS {
        for sigma in [0.8, 1.5, 3.0, 5.0, 20.0] {
            let info = video::info(VideoFormat::from_string(name), 131, 77);
            let mut blur = video::Blur::new(&format!("sigma={sigma}"));
            blur.caps(&info);
            let mut noise = Noise(sigma as u64);
            let before = formats::buffer(&info, 0, &mut || noise.next() as u8);
            let after = blur.push(before.copy_deep().unwrap());
            let meta = after.meta::<gst_video::VideoMeta>();
            assert!(
                meta.is_none_or(|meta| *meta.stride() == info.stride()[..info.n_planes() as usize]),
                "{name}: rows as in the caps"
            );
            let files = [("before", &before), ("after", &after)].map(|(when, buffer)| {
                let file = folder.join(format!("{name}-{sigma}-{when}"));
                std::fs::write(&file, buffer.map_readable().unwrap().as_slice()).unwrap();
                file
            });
            let planes = info.stride().iter().zip(info.offset()).take(info.n_planes() as usize);
            let planes: Vec<String> = planes.map(|(stride, offset)| format!("{stride}:{offset}")).collect();
            let [before, after] = files.each_ref().map(|file| file.display());
            writeln!(requests, "{name} 131 77 {sigma} {} {before} {after}", planes.join(",")).unwrap();
            frames.push((name, sigma, most));
        }
    }
    let requests_file = folder.join("requests");
    std::fs::write(&requests_file, requests).unwrap();
    let script = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/outside.py");
    let text = python::output(python::with("numpy,scipy").arg(script).arg(&requests_file));
    std::fs::remove_dir_all(&folder).unwrap();
    let distances: Vec<f64> = text.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(distances.len(), frames.len());
    for ((name, sigma, most), distance) in frames.into_iter().zip(distances) {
        println!("{name:<11} sigma {sigma:<4} {distance:.4} LSB");
        assert!(distance <= most, "{name} sigma={sigma}: {distance} LSB, more than {most}");
    }
}
