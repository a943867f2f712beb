// SPDX-License-Identifier: MPL-2.0
//! The latency that the element reports, and the latency that downstream counts on.

/// The time in which an application answers a LATENCY message by a query.
const ANSWER_TIME: gst::ClockTime = gst::ClockTime::SECOND;

/// The latency as the element reported it, and as the latest queries found it.
#[derive(Debug, Clone, Copy, Default)]
pub struct Latency {
    /// The longest time that the element holds a frame back.
    pub own: gst::ClockTime,
    /// The running time at which it became this long.
    since: Option<gst::ClockTime>,
    /// Upstream's answer to the last query, which downstream or the element itself has made: its minimum latency, or `None` if the
    /// stream is not live. `None` outside if there was no answer.
    upstream: Option<Option<gst::ClockTime>>,
    /// The element's own latency at the last query of downstream, if the stream is live.
    asked: Option<gst::ClockTime>,
}

impl Latency {
    /// Sets the element's own latency, from this running time on. Returns whether it has changed.
    pub fn set(&mut self, own: gst::ClockTime, now: Option<gst::ClockTime>) -> bool {
        let is_new = own != self.own;
        if is_new {
            (self.own, self.since) = (own, now);
        }
        is_new
    }

    /// Whether upstream has not answered a query yet.
    pub fn is_upstream_unknown(&self) -> bool {
        self.upstream.is_none()
    }

    /// Notes what upstream has answered to a query.
    pub fn learn(&mut self, query: &gst::query::Latency) {
        let (live, min, _) = query.result();
        self.upstream = Some(live.then_some(min));
    }

    /// Adds the element's own latency to a query of downstream that upstream has answered.
    pub fn answer(&mut self, query: &mut gst::query::Latency) {
        self.learn(query);
        let (live, min, max) = query.result();
        self.asked = live.then_some(self.own);
        query.set(live, min.saturating_add(self.own), max.map(|max| max.saturating_add(self.own)));
    }

    /// The minimum latency of upstream by the last query; `None` unless the stream is live.
    pub fn upstream(&self) -> Option<gst::ClockTime> {
        self.upstream.flatten()
    }

    /// The latency that downstream counts on: the present latency, or the latency of the last query if the application
    /// does not query again. A query from before the latency was known does not count, because frames would then be
    /// covered without `look-ahead`.
    pub fn promised(&self, now: Option<gst::ClockTime>) -> gst::ClockTime {
        let since = self.since.zip(now);
        let is_ignored = since.is_some_and(|(since, now)| now >= since.saturating_add(ANSWER_TIME));
        match self.asked {
            Some(own) if is_ignored && !own.is_zero() => own.min(self.own),
            _ => self.own,
        }
    }
}
