// SPDX-License-Identifier: MPL-2.0
//! Tests of the element that need access to the inside of the crate.

use gst::prelude::*;

use crate::cpu::faults;

#[test]
fn memory_that_runs_out_is_an_element_error() {
    gst::init().unwrap();
    crate::plugin_register_static().unwrap();
    let element = gst::ElementFactory::make("cudagaussblur").property_from_str("backend", "cpu").build().unwrap();
    let bus = gst::Bus::new();
    element.set_bus(Some(&bus));
    let mut harness = gst_check::Harness::with_element(&element, Some("sink"), Some("src"));
    harness.play();
    harness.set_src_caps_str("video/x-raw,format=GRAY8,width=64,height=64,framerate=25/1");
    let frame = || gst::Buffer::from_mut_slice(vec![0; 64 * 64]);

    faults::set_ceiling(0);
    assert_eq!(harness.push(frame()), Err(gst::FlowError::Error));
    let message = bus.pop_filtered(&[gst::MessageType::Error]).expect("an error on the bus");
    let gst::MessageView::Error(error) = message.view() else { unreachable!() };
    assert!(error.error().matches(gst::ResourceError::NoSpaceLeft), "{error:?}");
    assert!(error.error().message().starts_with("out of memory: "), "{error:?}");
    assert!(bus.pop_filtered(&[gst::MessageType::Error]).is_none(), "a second error");

    faults::set_ceiling(usize::MAX);
    assert!(harness.push(frame()).is_ok(), "the next frame goes on");
    assert!(harness.try_pull().is_some());
}
