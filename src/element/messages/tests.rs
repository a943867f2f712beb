// SPDX-License-Identifier: MPL-2.0
//! Tests of the element that need access to the inside of the crate.

use gst::prelude::*;
use gst::subclass::prelude::ObjectSubclassIsExt;

use crate::cpu::faults;
use crate::element::CudaGaussBlur;

/// A playing element, its bus and a harness, with caps of 64x64.
fn start(properties: &[(&str, &str)]) -> (CudaGaussBlur, gst::Bus, gst_check::Harness) {
    gst::init().unwrap();
    let element: CudaGaussBlur = gst::glib::Object::new();
    properties.iter().for_each(|(name, value)| element.set_property_from_str(name, value));
    let bus = gst::Bus::new();
    element.set_bus(Some(&bus));
    let mut harness = gst_check::Harness::with_element(&element, Some("sink"), Some("src"));
    harness.use_testclock();
    harness.play();
    harness.set_src_caps_str("video/x-raw,format=GRAY8,width=64,height=64,framerate=25/1");
    (element, bus, harness)
}

fn frame() -> gst::Buffer {
    gst::Buffer::from_mut_slice(vec![0; 64 * 64])
}

#[test]
fn memory_that_runs_out_is_an_element_error() {
    let (_element, bus, mut harness) = start(&[("backend", "cpu")]);
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

#[test]
fn a_panic_in_the_thread_of_the_timer_is_one_element_error() {
    let (element, bus, mut harness) = start(&[("backend", "cpu"), ("region-mode", "inside"), ("look-ahead", "3")]);
    harness.set_upstream_latency(gst::ClockTime::ZERO);
    harness.query_latency();
    let mut frame = frame();
    frame.make_mut().set_pts(gst::ClockTime::ZERO);
    harness.push(frame).unwrap();
    // The sum of frames overflows.
    element.imp().with_session(|session| session.queue.waiting[0].gap = usize::MAX).unwrap();
    let clock = harness.testclock().unwrap();
    clock.set_time(clock.wait_for_next_pending_id().time());
    clock.process_next_clock_id();
    let message = bus.timed_pop_filtered(gst::ClockTime::from_seconds(60), &[gst::MessageType::Error]);
    let gst::MessageView::Error(error) = message.as_ref().expect("an error on the bus").view() else { unreachable!() };
    assert!(error.error().message().contains("overflow"), "{error:?}");
    for _ in 0..20 {
        clock.process_next_clock_id();
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    assert!(bus.pop_filtered(&[gst::MessageType::Error]).is_none(), "a second error");
    // After a panic the element does not stop, and the harness would end the process.
    std::mem::forget(harness);
}
