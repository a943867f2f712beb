//! Every video format in the element's caps, against an oracle that reads frames by GStreamer's own format
//! descriptions.

use crate::common::formats;
use gst::prelude::*;

#[test]
fn every_format_in_the_caps_matches_the_oracle() {
    println!("{} formats", formats::check_all("backend=cpu"));
}

#[test]
fn interlaced_fields_are_blurred_separately() {
    formats::check_interlaced("backend=cpu");
}

/// The formats that decoders output and encoders accept pass without conversion.
#[test]
fn common_codec_formats_need_no_conversion() {
    crate::common::video::init();
    for format in ["I420", "Y42B", "NV12", "Y444", "I420_10LE", "I422_10LE"] {
        let line = format!(
            "videotestsrc num-buffers=2 ! video/x-raw,format={format},width=64,height=48 ! cudagaussblur name=blur ! \
             x264enc ! fakesink"
        );
        let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Bin>().unwrap();
        pipeline.set_state(gst::State::Playing).unwrap();
        let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
        let end = pipeline.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(60), &kinds).unwrap();
        assert_eq!(end.type_(), gst::MessageType::Eos, "{format}: {end:?}");
        let blur = pipeline.by_name("blur").unwrap();
        for pad in ["sink", "src"] {
            let caps = blur.static_pad(pad).unwrap().current_caps().unwrap();
            assert_eq!(caps.structure(0).unwrap().get::<&str>("format"), Ok(format), "{pad}");
        }
        pipeline.set_state(gst::State::Null).unwrap();
    }
}
