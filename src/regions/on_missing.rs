// SPDX-License-Identifier: MPL-2.0
//! `on-missing`: the action for a frame without readable detector metas.

use super::detection::Looked;

/// The action for a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FrameAction {
    /// Its regions are covered.
    Regions,
    /// The whole frame is covered.
    Whole,
    /// It is dropped.
    Drop,
    /// Streaming ends with an error.
    Error,
}

/// Whether this stream has had detector metas. It lasts from start to stop: neither caps, nor a flush, nor a new segment
/// makes a detector that fell silent less suspicious.
#[derive(Debug, Default)]
pub struct Detectors {
    pub(super) seen: bool,
}

impl Detectors {
    /// Whether the stream has a detector that has not searched a frame, or whose metas cannot be read.
    pub fn is_silent(&self, looked: Looked) -> bool {
        self.seen && matches!(looked, Looked::No | Looked::Unreadable)
    }

    /// Notes whether a detector has searched a frame that enters.
    pub fn note(&mut self, looked: Looked) {
        self.seen |= matches!(looked, Looked::Yes | Looked::Unreadable);
    }

    /// Decides about a frame that has entered. Frames that have entered after it count, too. If `on_missing` has no
    /// value, it is `auto`.
    ///
    /// `auto` cannot tell a detector that stopped working from one that attaches nothing when it finds nothing. The
    /// metas of libgstanalytics can be empty, and GStreamer's tensor decoders attach an empty meta to say that they
    /// searched the frame. Regions of interest have no such sign. So behind `facedetect`, every frame without a face is
    /// covered as a whole after the first face. That hides too much rather than too little. With such a detector,
    /// `on-missing=pass` shows frames without detections, and `hold-time` covers an object in the frames in which it is
    /// missed.
    ///
    /// For the same reason `auto` covers the frames that a detector skips on purpose if it searches only every n-th
    /// frame, because these frames carry no meta either. For such a detector, too, set `pass` and a `hold-time` above n
    /// frames.
    ///
    /// Before the first meta `auto` passes frames on, because a pipeline that has only zones has no detector. With
    /// region-mode=outside it covers these frames, too, because a frame may then show only detections.
    pub fn action(&self, on_missing: Option<FrameAction>, shows_regions: bool, looked: Looked) -> FrameAction {
        let auto = || if self.seen || shows_regions { FrameAction::Whole } else { FrameAction::Regions };
        match looked {
            Looked::NotAsked | Looked::Yes => FrameAction::Regions,
            // A detector exists, but its result is unknown. That is different from an empty result.
            Looked::Unreadable if on_missing == Some(FrameAction::Regions) => FrameAction::Whole,
            Looked::Unreadable | Looked::No => on_missing.unwrap_or_else(auto),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn auto_covers_once_a_detector_has_been_seen() {
        let mut detectors = Detectors::default();
        for (looked, decision) in [
            (Looked::No, FrameAction::Regions),
            (Looked::NotAsked, FrameAction::Regions),
            (Looked::No, FrameAction::Regions),
            (Looked::Yes, FrameAction::Regions),
            (Looked::No, FrameAction::Whole),
            (Looked::NotAsked, FrameAction::Regions),
            (Looked::Yes, FrameAction::Regions),
            (Looked::No, FrameAction::Whole),
        ] {
            detectors.note(looked);
            assert_eq!(detectors.action(None, false, looked), decision, "{looked:?}");
        }
    }

    #[test]
    fn auto_covers_from_the_first_frame_on_where_detections_are_shown() {
        for (looked, decision) in [
            (Looked::NotAsked, FrameAction::Regions),
            (Looked::No, FrameAction::Whole),
            (Looked::Yes, FrameAction::Regions),
            (Looked::No, FrameAction::Whole),
        ] {
            let mut detectors = Detectors::default();
            detectors.note(looked);
            assert_eq!(detectors.action(None, true, looked), decision, "{looked:?}");
        }
        let pass = Detectors::default().action(Some(FrameAction::Regions), true, Looked::No);
        assert_eq!(pass, FrameAction::Regions, "only zones are shown");
    }

    #[test]
    fn other_values_do_not_depend_on_the_past() {
        for on_missing in [FrameAction::Regions, FrameAction::Whole, FrameAction::Drop, FrameAction::Error] {
            let mut detectors = Detectors::default();
            for looked in [Looked::No, Looked::Yes, Looked::NotAsked, Looked::No, Looked::Unreadable] {
                detectors.note(looked);
                let expected = match looked {
                    Looked::Yes | Looked::NotAsked => FrameAction::Regions,
                    Looked::Unreadable if on_missing == FrameAction::Regions => FrameAction::Whole,
                    Looked::Unreadable | Looked::No => on_missing,
                };
                assert_eq!(detectors.action(Some(on_missing), false, looked), expected, "{on_missing:?} {looked:?}");
            }
        }
    }

    #[test]
    fn unreadable_metas_are_a_detector_that_did_not_look() {
        let mut detectors = Detectors::default();
        let mut decide = |looked| {
            detectors.note(looked);
            detectors.action(None, false, looked)
        };
        assert_eq!(decide(Looked::Unreadable), FrameAction::Whole);
        assert_eq!(decide(Looked::No), FrameAction::Whole, "it has been seen");
    }
}
