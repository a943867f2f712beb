//! Every video format in the element's caps, against an oracle that takes each apart by GStreamer's own description.

mod common;

use common::formats;

#[test]
fn every_format_in_the_caps_is_blurred_as_the_oracle_does() {
    println!("{} formats", formats::walk("backend=cpu"));
}

#[test]
fn fields_of_interlaced_frames_are_blurred_apart() {
    formats::interlaced("backend=cpu");
}
