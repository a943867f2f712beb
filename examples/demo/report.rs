// SPDX-License-Identifier: MPL-2.0
//! The spans of a clip that a person has to look at again, from the messages in which the element says what it covered. They
//! speak of detections, because nobody counted the objects.

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::fmt;

use gst::ClockTime;

use super::coverage::Rect;

/// Most spans that a text lists.
const MAX_LISTED: usize = 10;
/// An object that is not detected for longer has a gap. One that was detected for less is brief: it often is none, and one
/// span holds its beginning and its end. Before a first detection, this time is in doubt.
const SECOND: ClockTime = ClockTime::SECOND;

/// What is in doubt, the worst first.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The object was not detected any more, and was last detected inside the picture.
    Lost,
    /// It was detected before and after, and covered where it may have been.
    Gap,
    /// It was not detected before, and was first detected inside the picture.
    FirstSeen,
}

/// A span of the clip in which an object may not be covered.
pub struct Doubt {
    kind: Kind,
    track: u32,
    label: String,
    from: ClockTime,
    /// The first frame after the span; `None` if there is none.
    to: Option<ClockTime>,
    /// The frame that shows the most: one without a cover, or in the middle of a gap.
    pub shown: ClockTime,
    /// What is covered in the last frame of the span; of `FirstSeen`, in the first one after it.
    rect: Rect,
    is_brief: bool,
    /// Frames in which the object was detected.
    detections: u64,
}

/// The doubtful spans of a clip, in ascending order.
pub struct Doubts {
    spans: Vec<Doubt>,
    /// Of the clip.
    end: ClockTime,
    /// How often an object was covered in a frame in which it was not detected.
    pub undetected: u64,
}

/// An object that is covered in the latest frame.
struct Track {
    /// Its latest region.
    region: Region,
    /// Whether its latest detection is inside the picture. Its cover grows beyond the edges after that.
    is_inside: bool,
    detections: u64,
    /// When it was first detected, and last.
    detected: Option<[ClockTime; 2]>,
    /// Since when it is not detected any more.
    missing: Option<ClockTime>,
    doubts: Vec<Doubt>,
}

/// What a message says about an object.
#[derive(Clone)]
struct Region {
    track: u32,
    is_detected: bool,
    label: String,
    rect: Rect,
}

/// Follows the objects of a clip.
#[derive(Default)]
pub struct Report {
    tracks: BTreeMap<u32, Track>,
    doubts: Vec<Doubt>,
    /// The latest frame, since the first one, and the end of it.
    latest: Option<ClockTime>,
    end: ClockTime,
    /// Width and height of the picture.
    size: [usize; 2],
    undetected: u64,
}

impl Report {
    /// Adds the message about the next frame. `None` if it has not the documented fields.
    pub fn update(&mut self, message: &gst::StructureRef, time: ClockTime, size: [usize; 2]) -> Option<()> {
        let regions = regions(message)?;
        let duration = Some(message.get("duration").ok()?).filter(|duration| *duration != u64::MAX);
        self.end = time + ClockTime::from_nseconds(duration.unwrap_or(0));
        let previous = self.latest.replace(time);
        self.size = size;
        let is_over = |track: &u32, _: &mut Track| regions.iter().all(|region| region.track != *track);
        let ended: Vec<_> = self.tracks.extract_if(.., is_over).collect();
        ended.into_iter().for_each(|(_, track)| self.close(track, Some(time)));
        for region in regions {
            self.undetected += u64::from(!region.is_detected);
            let mut track = self.tracks.remove(&region.track).unwrap_or_else(|| {
                let from = time.saturating_sub(SECOND);
                let first_seen =
                    previous.map(|previous| Doubt::new(Kind::FirstSeen, &region, from, Some(time), previous));
                let doubts = first_seen.into_iter().collect();
                Track { region: region.clone(), is_inside: false, detections: 0, detected: None, missing: None, doubts }
            });
            if !region.is_detected {
                track.missing = track.missing.or(track.detected.map(|_| time));
            } else {
                track.is_inside = self.is_inside(region.rect);
                if track.detected.is_none() && !track.is_inside {
                    track.doubts.clear();
                }
                let [first, last] = track.detected.unwrap_or([time; 2]);
                if let Some(from) = track.missing.take_if(|_| time - last > SECOND) {
                    track.doubts.push(Doubt::new(Kind::Gap, &track.region, from, Some(time), (from + time) / 2));
                }
                (track.detected, track.missing) = (Some([first, time]), None);
                track.detections += 1;
            }
            self.tracks.insert(region.track, Track { region, ..track });
        }
        Some(())
    }

    /// The spans of the clip.
    pub fn finish(mut self) -> Doubts {
        let tracks = std::mem::take(&mut self.tracks);
        tracks.into_values().for_each(|track| self.close(track, None));
        self.doubts.sort_by_key(Doubt::order);
        Doubts { spans: self.doubts, end: self.end, undetected: self.undetected }
    }

    /// Moves the doubts of a track that is over: in the first frame without it, or with the clip.
    fn close(&mut self, mut track: Track, to: Option<ClockTime>) {
        let is_brief = track.detected.is_none_or(|[first, last]| last - first < SECOND);
        if let Some(from) = track.missing.or(to).filter(|_| track.is_inside) {
            let first_seen = track.doubts.pop_if(|doubt| is_brief && doubt.kind == Kind::FirstSeen);
            let from = first_seen.map_or(from, |doubt| doubt.from);
            let shown = to.or(self.latest).unwrap_or_default();
            track.doubts.push(Doubt::new(Kind::Lost, &track.region, from, to, shown));
        }
        let detections = track.detections;
        self.doubts.extend(track.doubts.into_iter().map(|doubt| Doubt { is_brief, detections, ..doubt }));
    }

    /// Whether the rectangle does not touch an edge of the picture.
    fn is_inside(&self, Rect { x, y, width, height }: Rect) -> bool {
        x > 0 && y > 0 && x + width < self.size[0] && y + height < self.size[1]
    }
}

/// The objects of a message, each once. `None` if it has not the documented fields.
fn regions(message: &gst::StructureRef) -> Option<Vec<Region>> {
    let regions = message.get::<gst::Array>("regions").ok()?;
    let regions = regions.iter().map(|region| {
        let region = region.get::<gst::Structure>().ok()?;
        let [x, y, width, height] =
            ["x", "y", "width", "height"].map(|name| Some(region.get::<u32>(name).ok()? as usize));
        Some(Region {
            // A zone has none.
            track: region.get_optional("track").ok()?.unwrap_or(0),
            is_detected: region.get::<&str>("origin").ok()? == "found",
            label: region.get_optional("label").ok()?.unwrap_or_default(),
            rect: Rect { x: x?, y: y?, width: width?, height: height? },
        })
    });
    let mut regions: Vec<_> = regions.collect::<Option<_>>()?;
    // If it is doubtful whether a detection continues a track, the track is also held without it.
    regions.sort_by_key(|region| (region.track, !region.is_detected));
    regions.dedup_by_key(|region| region.track);
    regions.retain(|region| region.track != 0);
    Some(regions)
}

impl Doubt {
    fn new(kind: Kind, region: &Region, from: ClockTime, to: Option<ClockTime>, shown: ClockTime) -> Self {
        let Region { track, rect, .. } = *region;
        Self { kind, track, label: region.label.clone(), from, to, shown, rect, is_brief: false, detections: 0 }
    }

    /// Ascending in time.
    fn order(&self) -> impl Ord + use<> {
        (self.from, self.to.unwrap_or(ClockTime::MAX), self.track)
    }

    /// Ascending from the worst on: objects that were detected for a second or more, by kind, those without a cover at the
    /// end, and by their detections.
    fn rank(&self) -> impl Ord + use<> {
        (self.is_brief, self.kind, self.to.is_none(), Reverse(self.detections))
    }

    /// What is in doubt.
    pub fn reason(&self) -> String {
        let track = self.track;
        match self.kind {
            Kind::Lost => format!("track {track} was lost inside the picture"),
            Kind::Gap => format!("track {track} has a gap between detections"),
            Kind::FirstSeen => format!("track {track} begins inside the picture"),
        }
    }
}

impl Doubts {
    pub fn is_empty(&self) -> bool {
        self.spans.is_empty()
    }

    pub fn worst(&self) -> Option<&Doubt> {
        self.spans.iter().min_by_key(|doubt| doubt.rank())
    }

    /// A CSV file, in seconds and pixels.
    pub fn table(&self) -> String {
        let mut lines = String::from("from,to,what,track,label,x,y,width,height\n");
        for Doubt { kind, track, label, from, to, rect, .. } in &self.spans {
            let what = match kind {
                Kind::Lost => "lost",
                Kind::Gap => "gap",
                Kind::FirstSeen => "first-seen",
            };
            let [from, to] = [*from, to.unwrap_or(self.end)].map(ClockTime::seconds_f64);
            let Rect { x, y, width, height } = rect;
            lines += &format!("{from:.3},{to:.3},{what},{track},{label},{x},{y},{width},{height}\n");
        }
        lines
    }

    /// A line for each of the worst spans, in ascending order, and how many more there are.
    pub fn summary(&self) -> String {
        let mut listed: Vec<_> = self.spans.iter().collect();
        listed.sort_by_key(|doubt| doubt.rank());
        listed.truncate(MAX_LISTED);
        listed.sort_by_key(|doubt| doubt.order());
        let mut lines: Vec<_> = listed.iter().map(|doubt| format!("  {doubt}")).collect();
        if let more @ 1.. = self.spans.len() - listed.len() {
            lines.push(format!("  and {more} more"));
        }
        lines.join("\n")
    }
}

impl fmt::Display for Doubt {
    /// The span, in tenths of a second and rounded outwards, and what is in doubt.
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        const TENTH: u64 = 100_000_000;
        let seconds = |tenths: u64| format!("{}.{} s", tenths / 10, tenths % 10);
        let from = seconds(self.from.nseconds() / TENTH);
        let to = self.to.map_or("the end".into(), |to| seconds(to.nseconds().div_ceil(TENTH)));
        write!(f, "{from} to {to}: {}", self.reason())
    }
}
