// SPDX-License-Identifier: MPL-2.0
//! boxes FILE WIDTH HEIGHT [PROPERTIES of centerface]: prints the regions of each I420 frame of a file without headers, one
//! region a line: number of the frame, label, left, top, width, height, confidence.
use gst_video::VideoRegionOfInterestMeta;

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [file, width, height, properties @ ..] = &arguments[..] else { panic!("boxes FILE WIDTH HEIGHT [PROPERTIES]") };
    gst::init().unwrap();
    gstdetectors::plugin_register_static().unwrap();
    let mut harness = gst_check::Harness::new_parse(&format!("centerface every=1 {}", properties.join(" ")));
    let size = [width, height].map(|side| side.parse().unwrap());
    let info = gst_video::VideoInfo::builder(gst_video::VideoFormat::I420, size[0], size[1]).build().unwrap();
    harness.set_src_caps(info.to_caps().unwrap());
    for (number, frame) in std::fs::read(file).unwrap().chunks_exact(info.size()).enumerate() {
        let buffer = harness.push_and_pull(gst::Buffer::from_slice(frame.to_vec())).unwrap();
        for meta in buffer.iter_meta::<VideoRegionOfInterestMeta>() {
            let detection = meta.params().find(|param| param.name() == "detection");
            let confidence = detection.map_or(0., |detection| detection.get::<f64>("confidence").unwrap());
            println!("{number} {} {:?} {confidence:?}", meta.roi_type(), meta.rect());
        }
    }
}
