// SPDX-License-Identifier: MPL-2.0
//! The latency that the element reports, and the one that downstream counts on.

/// The time in which an application answers a LATENCY message by a query.
const ANSWER_TIME: gst::ClockTime = gst::ClockTime::SECOND;

/// What was said of latency, by the element and to it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Latency {
    /// The time that a frame may be held back.
    pub own: gst::ClockTime,
    /// The running time since which it is so long.
    since: Option<gst::ClockTime>,
    /// The least latency of upstream and the element's own, if the stream is live, by the last query.
    asked: Option<[gst::ClockTime; 2]>,
}

impl Latency {
    /// Sets the element's own latency, which changes at this running time. Returns whether it is another one.
    pub fn set(&mut self, own: gst::ClockTime, now: Option<gst::ClockTime>) -> bool {
        let is_new = own != self.own;
        if is_new {
            (self.own, self.since) = (own, now);
        }
        is_new
    }

    /// Adds the element's own latency to a query that upstream has answered.
    pub fn answer(&mut self, query: &mut gst::query::Latency) {
        let (live, min, max) = query.result();
        self.asked = live.then_some([min, self.own]);
        query.set(live, min.saturating_add(self.own), max.map(|max| max.saturating_add(self.own)));
    }

    /// The least latency of upstream by the last query; `None` unless the stream is live.
    pub fn upstream(&self) -> Option<gst::ClockTime> {
        self.asked.map(|[upstream, _]| upstream)
    }

    /// The latency that downstream counts on: the present one, or the one of the last query if the application does not ask again. A
    /// query before the latency was known does not count, because nobody wants frames that are covered without `look-ahead` then.
    pub fn promised(&self, now: Option<gst::ClockTime>) -> gst::ClockTime {
        let since = self.since.zip(now);
        let is_ignored = since.is_some_and(|(since, now)| now >= since.saturating_add(ANSWER_TIME));
        match self.asked {
            Some([_, own]) if is_ignored && !own.is_zero() => own.min(self.own),
            _ => self.own,
        }
    }
}
