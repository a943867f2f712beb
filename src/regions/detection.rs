// SPDX-License-Identifier: MPL-2.0
//! Detections, which describe the objects of a frame, and the labels that select detections.

use crate::filter::regions::Area;
use crate::filter::weights::Mask;

/// One object that a detector found in a frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Detection {
    /// The kind of the object, for example `face`.
    pub label: Option<String>,
    /// How certain the detector is, 0 to 1; `None` if it does not say.
    pub confidence: Option<f32>,
    /// The area in which the object may be, in luma samples of the frame. This area is covered.
    pub area: Area,
    /// The area that certainly belongs to the object; only this area may be shown. `None` if the detector does not
    /// state it exactly.
    pub certain: Option<Area>,
    /// The number that a tracker gave the object, the same in every frame.
    pub tracking_id: Option<u64>,
    /// The masks of the object within its box.
    pub mask: Option<Mask>,
    /// Whether the mask belongs to an earlier frame, so that the object may have left it.
    pub has_old_mask: bool,
}

impl Detection {
    /// A detection with only a label and a box. It is covered, but never shown.
    pub fn new(label: Option<String>, area: Area) -> Self {
        Self { label, confidence: None, area, certain: None, tracking_id: None, mask: None, has_old_mask: false }
    }

    /// Adapts the detection to the picture: to its `size` (width, height), and to whether it is one field. For a field,
    /// the detector may count in rows of the field or in rows of the frame.
    pub fn place_in(&mut self, size: (u32, u32), is_field: bool) {
        let read = |area: Area| if is_field { area.in_field() } else { area };
        let is_plausible = |area: &Area| read(*area).is_plausible(size);
        self.certain = self.certain.filter(is_plausible).map(|area| area.intersection(read(area)));
        self.area = self.area.union(read(self.area));
        // It is unknown in which rows the detector counts.
        self.mask = self.mask.take().filter(|_| !is_field);
    }
}

/// Whether a detector has searched a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Looked {
    /// No source of detections is selected.
    NotAsked,
    /// The frame has no meta of the selected sources.
    No,
    /// The frame has a meta, with or without detections.
    Yes,
    /// The frame has metas, and some of them cannot be read.
    Unreadable,
}

/// The detections of a frame.
#[derive(Debug, Clone, PartialEq)]
pub struct Found {
    /// Whether a detector has searched the frame.
    pub looked: Looked,
    /// All detections of any label and confidence, or the detections that `Rules::bound` has left.
    pub detections: Vec<Detection>,
    /// The number of detections that count but are not followed one by one, because there are too many
    /// (`Rules::bound`).
    pub beyond: usize,
}

/// A confidence as a detector reports it. `None` for anything but a number from 0 to 1. Some detectors report -1 or a
/// value that is not a number if they do not know the confidence. An unknown confidence counts as certain.
pub fn confidence(reported: f64) -> Option<f32> {
    (0.0..=1.0).contains(&reported).then_some(reported as f32)
}

/// The value of `labels`: the labels whose detections count.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Labels {
    text: String,
    /// Without differences between cases.
    names: Vec<String>,
}

impl Labels {
    /// Reads a list separated by commas. Blanks around a label and empty labels are ignored.
    pub fn parse(text: &str) -> Self {
        let names = text.split(',').map(str::trim).filter(|name| !name.is_empty());
        Self { text: text.to_owned(), names: names.map(folded).collect() }
    }

    /// The list as it was given to [`Labels::parse`].
    pub fn text(&self) -> &str {
        &self.text
    }

    /// Whether the list has no label.
    pub fn is_empty(&self) -> bool {
        self.names.is_empty()
    }

    /// Whether the list has a number, as the label of a class without a name.
    pub fn has_number(&self) -> bool {
        self.names.iter().any(|name| name.parse::<u16>().is_ok())
    }

    /// Whether detections with this label count. All count if the list is empty. A detection without a label always
    /// counts, because missing information must not uncover an object. For the same reason the case of letters is
    /// ignored.
    pub fn select(&self, label: Option<&str>) -> bool {
        let Some(label) = label else { return true };
        self.names.is_empty() || self.names.contains(&folded(label))
    }
}

/// A label without differences between cases. Some change in one direction only, hence both; but the dotless ı is no i.
fn folded(label: &str) -> String {
    label.replace('ı', "\0").to_lowercase().to_uppercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_select_by_name() {
        for (text, label, selected) in [
            ("", Some("cat"), true),
            (" , ", Some("cat"), true),
            ("face", Some("face"), true),
            ("face", Some("cat"), false),
            ("face", Some("faces"), false),
            ("face", Some(""), false),
            ("face", None, true),
            ("person, licence plate ,FACE", Some("licence plate"), true),
            ("person, licence plate ,FACE", Some("face"), true),
            ("person, licence plate ,FACE", Some("licence"), false),
            ("TÊTE", Some("tête"), true),
            ("tête", Some("TÊTE"), true),
            ("straße", Some("STRASSE"), true),
            ("лицо", Some("Лицо"), true),
            ("лицо", Some("лица"), false),
        ] {
            let labels = Labels::parse(text);
            assert_eq!(labels.select(label), selected, "{text:?} {label:?}");
            assert_eq!(labels.text(), text);
        }
    }

    #[test]
    fn only_what_is_certain_of_a_box_is_shown() {
        let placed = |rows: [f64; 2], certain: bool, is_field| {
            let area = Area { left: 10.0, right: 20.0, top: rows[0], bottom: rows[1] };
            let mut detection = Detection { certain: certain.then_some(area), ..Detection::new(None, area) };
            detection.place_in((100, 50), is_field);
            let rows = |area: Area| [area.top, area.bottom];
            (rows(detection.area), detection.certain.map(rows))
        };
        assert_eq!(placed([4.0, 20.0], true, false), ([4.0, 20.0], Some([4.0, 20.0])));
        assert_eq!(placed([4.0, 20.0], false, false), ([4.0, 20.0], None));
        assert_eq!(placed([4.0, 20.0], true, true), ([2.0, 20.0], Some([4.0, 10.0])));
        assert_eq!(placed([-50.0, 51.0], true, false), ([-50.0, 51.0], None), "more than two pictures");
        assert_eq!(placed([0.0, 200.0], true, true), ([0.0, 200.0], Some([0.0, 100.0])));
        assert_eq!(placed([0.0, 201.0], true, true), ([0.0, 201.0], None));
    }

    #[test]
    fn confidence_outside_of_0_to_1_is_unknown() {
        assert_eq!([0.0, 0.5, 1.0].map(confidence), [Some(0.0), Some(0.5), Some(1.0)]);
        for unknown in [f64::NAN, -1.0, 1.01, 97.0, f64::INFINITY] {
            assert_eq!(confidence(unknown), None, "{unknown}");
        }
    }
}
