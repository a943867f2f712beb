//! Every video format in the element's caps, against an oracle that reads frames by GStreamer's own format
//! descriptions.

use crate::common::formats;

#[test]
fn every_format_in_the_caps_matches_the_oracle() {
    println!("{} formats", formats::check_all("backend=cpu"));
}

#[test]
fn interlaced_fields_are_blurred_separately() {
    formats::check_interlaced("backend=cpu");
}
