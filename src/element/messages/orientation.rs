// SPDX-License-Identifier: MPL-2.0
//! Whether players turn a stream, and whether an element has turned it already.

use std::ops::ControlFlow;

use gst::prelude::*;

/// The tag `image-orientation` of the stream of a pad, if players turn it.
pub fn of_stream(pad: &gst::Pad) -> Option<String> {
    let mut orientation = None;
    pad.sticky_events_foreach(|event| {
        if let gst::EventView::Tag(tag) = event.view()
            && let Some(value) = tag.tag().get::<gst::tags::ImageOrientation>()
        {
            orientation = Some(value.get().to_owned());
        }
        ControlFlow::Continue(gst::EventForeachAction::Keep)
    });
    orientation.filter(|orientation| orientation != "rotate-0")
}

/// Whether an element before this pad turns pictures. Up to GStreamer 1.22 at least, `videoflip` does not change the
/// tag.
pub fn is_turned_upstream(pad: &gst::Pad) -> bool {
    let mut next = pad.peer();
    while let Some(pad) = next {
        if let Some(ghost) = pad.parent().and_downcast::<gst::GhostPad>() {
            // Out of a bin.
            next = ghost.peer();
            continue;
        }
        let Some(owner) = pad.parent_element() else { return false };
        let direction = owner.find_property("video-direction").map(|_| owner.property_value("video-direction"));
        let direction = direction.and_then(|value| value.transform::<i32>().ok()?.get::<i32>().ok());
        if direction.is_some_and(|direction| direction != gst_video::ffi::GST_VIDEO_ORIENTATION_IDENTITY) {
            return true;
        }
        next = match pad.downcast_ref::<gst::GhostPad>() {
            Some(ghost) => ghost.target(),
            None => owner.sink_pads().first().and_then(PadExt::peer),
        };
    }
    false
}
