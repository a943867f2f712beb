// SPDX-License-Identifier: MPL-2.0
//! Reads the detections that GStreamer's own inference elements attach to a buffer, through libgstanalytics.
//!
//! The library exists since GStreamer 1.24 and is opened at run time, so that the plugin also loads without it. It is
//! opened only when a buffer can hold its metas at all: whoever attached one has registered their type.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::{LazyLock, OnceLock};

use gst::glib;
use gst::glib::translate::from_glib_full;

use super::mask_buffers::time_of;
use crate::filter::regions::Area;
use crate::libraries::{functions, open_gstreamer};
use crate::regions::detection::{Detection, confidence};
use crate::regions::masks::{IdImage, MaskPart, MaskReader};
use crate::regions::rules::MAX_DETECTIONS;

/// The detections in the analytics metas of a buffer.
#[derive(Debug, Clone, PartialEq)]
pub enum Analytics {
    /// The buffer has none.
    Absent,
    /// The buffer has analytics metas that cannot all be read: the library cannot be opened, or an entry is broken.
    Unreadable,
    /// All detections. An empty list means that a detector searched the frame and found nothing.
    Present(Vec<Detection>),
}

/// A `GstAnalyticsRelationMeta *` that is live and unchanged for `'a`. Only the library looks into it.
#[derive(Clone, Copy, PartialEq, Eq)]
#[repr(transparent)]
struct RelationMeta<'a>(*mut gst::ffi::GstMeta, PhantomData<&'a gst::BufferRef>);

/// `GstAnalyticsMtdType`.
type MtdType = usize;
/// `GST_ANALYTICS_MTD_TYPE_ANY`.
const ANY_TYPE: MtdType = 0;
/// `GST_ANALYTICS_REL_TYPE_N_TO_N`.
const N_TO_N: c_uint = 1 << 4;
/// The largest number of region ids that are read, and of regions that are objects. More of them are noise.
const REGIONS_MAX: usize = 1 << 16;
const OBJECTS_MAX: usize = 1024;

/// `GstAnalyticsMtd`, and all the types that it stands for: an entry of a relation meta. The same in all versions.
#[repr(C)]
#[derive(Clone, Copy)]
struct Entry<'a> {
    id: c_uint,
    meta: RelationMeta<'a>,
}

/// `GstAnalyticsODMtd`: an entry that is an object detection.
#[repr(transparent)]
struct DetectionEntry<'a>(Entry<'a>);

/// `GstAnalyticsTrackingMtd`: an entry that is a track.
#[repr(transparent)]
struct TrackEntry<'a>(Entry<'a>);

/// `GstAnalyticsSegmentationMtd`: an entry that is a segmentation.
#[repr(transparent)]
struct SegmentationEntry<'a>(Entry<'a>);

/// `GstAnalyticsClsMtd`: an entry that is a classification, a list of classes.
#[repr(transparent)]
struct ClassesEntry<'a>(Entry<'a>);

functions! {
    /// The library's functions, as its headers declare them in 1.24 to 1.28.
    struct Library {
        safe [
            detection_type() -> MtdType = "gst_analytics_od_mtd_get_mtd_type";
            detection_label(entry: &DetectionEntry<'_>) -> glib::ffi::GQuark = "gst_analytics_od_mtd_get_obj_type";
            detection_location(
                entry: &DetectionEntry<'_>, x: &mut c_int, y: &mut c_int, width: &mut c_int, height: &mut c_int,
                certainty: &mut f32
            ) -> glib::ffi::gboolean = "gst_analytics_od_mtd_get_location";
            tracking_type() -> MtdType = "gst_analytics_tracking_mtd_get_mtd_type";
            tracking_info(
                entry: &TrackEntry<'_>, id: &mut u64, first_seen: &mut gst::ffi::GstClockTime,
                last_seen: &mut gst::ffi::GstClockTime, is_lost: &mut glib::ffi::gboolean
            ) -> glib::ffi::gboolean = "gst_analytics_tracking_mtd_get_info";
            classes_type() -> MtdType = "gst_analytics_cls_mtd_get_mtd_type";
            class_count(entry: &ClassesEntry<'_>) -> usize = "gst_analytics_cls_mtd_get_length";
            /// 0, and a message in the log, for an index that is not below the count.
            class_name(entry: &ClassesEntry<'_>, index: usize) -> glib::ffi::GQuark = "gst_analytics_cls_mtd_get_quark";
        ]
        unsafe [
            /// # Safety `state` is null, or the value that the function stored there for the same meta and type.
            iterate<'a>(meta: RelationMeta<'a>, state: &mut *mut c_void, of: MtdType, entry: &mut Entry<'a>)
                -> glib::ffi::gboolean = "gst_analytics_relation_meta_iterate";
            /// # Safety Both numbers are numbers of entries of the meta.
            get_relation(meta: RelationMeta<'_>, first: c_uint, second: c_uint) -> c_uint
                = "gst_analytics_relation_meta_get_relation";
        ]
        optional [
            /// `None` before GStreamer 1.26, where there are no segmentations.
            segmentation_type() -> MtdType = "gst_analytics_segmentation_mtd_get_mtd_type";
            /// The caller owns the buffer, which may be null.
            segmentation_mask(
                entry: &SegmentationEntry<'_>, x: &mut c_int, y: &mut c_int, width: &mut c_uint, height: &mut c_uint
            ) -> *mut gst::ffi::GstBuffer = "gst_analytics_segmentation_mtd_get_mask";
            region_count(entry: &SegmentationEntry<'_>) -> usize = "gst_analytics_segmentation_mtd_get_region_count";
            /// 0, and a message in the log, for an index that is not below the count.
            region_id(entry: &SegmentationEntry<'_>, index: usize) -> c_uint
                = "gst_analytics_segmentation_mtd_get_region_id";
            /// `None` before GStreamer 1.26, where no box is rotated.
            #[expect(clippy::too_many_arguments, reason = "the C function has as many")]
            detection_oriented_location(
                entry: &DetectionEntry<'_>, x: &mut c_int, y: &mut c_int, width: &mut c_int, height: &mut c_int,
                angle: &mut f32, certainty: &mut f32
            ) -> glib::ffi::gboolean = "gst_analytics_od_mtd_get_oriented_location";
        ]
    }
}

impl Library {
    /// The library, opened by the first call; `None` if it cannot be opened.
    fn get() -> Option<&'static Self> {
        static LIBRARY: LazyLock<Option<Library>> =
            LazyLock::new(|| open_gstreamer("analytics").and_then(|library| Library::load(library).ok()));
        LIBRARY.as_ref()
    }

    /// The entries of this type in a relation meta.
    fn entries<'a>(&self, meta: RelationMeta<'a>, of: MtdType) -> Vec<Entry<'a>> {
        let mut entries = Vec::new();
        let (mut state, mut entry) = (ptr::null_mut(), Entry { id: 0, meta });
        // SAFETY: `state` is null at first, and then the value that the function stored in it for this meta and type.
        while unsafe { self.iterate(meta, &mut state, of, &mut entry) } != glib::ffi::GFALSE {
            entries.push(entry);
        }
        entries
    }

    /// All detections of a relation meta. A meta without any entry means that a detector found nothing. A meta that has
    /// only other entries, such as a class of the whole frame, says nothing about objects. But a segmentation without a
    /// detection is an object, which cannot be read if masks are not read.
    ///
    /// A meta that has only tracks may be a detector's empty meta, to which a tracker has added the tracks. Or it may
    /// be the tracker's own meta: GStreamer's `ioutracker` creates one for each frame that has none, as long as it has
    /// a track. `is_after_tensors` tells the two apart: a tensor decoder adds its meta to a frame that already has the
    /// tensors of the model, and no decoder removes the tensors.
    fn detections(
        &self,
        meta: RelationMeta<'_>,
        is_after_tensors: bool,
        masks: Option<&mut MaskReader<'_>>,
    ) -> Analytics {
        let entries = self.entries(meta, self.detection_type());
        let tracks: Vec<_> = self.entries(meta, self.tracking_type()).into_iter().map(TrackEntry).collect();
        let track_count = tracks.len();
        // Each detection is compared with each tracker, so the number of both is bounded. An object without a tracking
        // ID is followed by its place.
        let tracks = &tracks[..tracks.len().min(MAX_DETECTIONS)];
        let tracks_of = |index: usize| if index < MAX_DETECTIONS { tracks } else { &[] };
        let detection = |(index, entry): (usize, &Entry<'_>)| self.detection(&DetectionEntry(*entry), tracks_of(index));
        let found: Option<Vec<_>> = entries.iter().enumerate().map(detection).collect();
        let Some(found) = found else { return Analytics::Unreadable };
        let segmentations = self.segmentation_type().map_or_else(Vec::new, |of| self.entries(meta, of));
        match masks {
            Some(masks) if !segmentations.is_empty() => {
                let segmentations: Vec<_> = segmentations.into_iter().map(SegmentationEntry).collect();
                let found = self.with_masks(&entries, found, &segmentations, masks);
                found.map_or(Analytics::Unreadable, Analytics::Present)
            }
            _ if !found.is_empty() => Analytics::Present(found),
            _ if !segmentations.is_empty() => Analytics::Unreadable,
            _ => match self.entries(meta, ANY_TYPE).len() {
                0 => Analytics::Present(Vec::new()),
                count if count == track_count && is_after_tensors => Analytics::Present(Vec::new()),
                _ => Analytics::Absent,
            },
        }
    }

    /// A detection, with the number of the first track of the same meta that it is related to.
    fn detection(&self, entry: &DetectionEntry<'_>, tracks: &[TrackEntry<'_>]) -> Option<Detection> {
        let (mut place, mut angle, mut certainty) = ([0; 4], 0.0, f32::NAN);
        let [x, y, width, height] = &mut place;
        let oriented = self.detection_oriented_location(entry, x, y, width, height, &mut angle, &mut certainty);
        let is_read = oriented.unwrap_or_else(|| self.detection_location(entry, x, y, width, height, &mut certainty));
        if is_read == glib::ffi::GFALSE {
            return None;
        }
        let [x, y, width, height] = place;
        let area = Area::from_corner(x.into(), y.into(), width.into(), height.into());
        // A box that is not rotated has whole numbers. A rotation by 0 would give the same numbers.
        let area = if angle == 0.0 { area } else { area.around_rotated(angle.into()) };
        let is_related = |track: &&TrackEntry| self.relation(entry.0, track.0) != 0;
        Some(Detection {
            certain: (width >= 0 && height >= 0 && angle.is_finite()).then_some(area),
            label: label_text(self.detection_label(entry)),
            confidence: confidence(certainty.into()),
            area,
            tracking_id: tracks.iter().find(is_related).and_then(|track| self.tracking_id(track)),
            mask: None,
            has_old_mask: false,
        })
    }

    /// How two entries are related, in both directions, because producers disagree on it.
    fn relation(&self, one: Entry<'_>, other: Entry<'_>) -> c_uint {
        // SAFETY: this is called only if both are numbers of entries of the meta.
        let relation = |from: Entry, to: Entry| unsafe { self.get_relation(one.meta, from.id, to.id) };
        if one.meta == other.meta { relation(one, other) | relation(other, one) } else { 0 }
    }

    /// The number of a track.
    fn tracking_id(&self, track: &TrackEntry<'_>) -> Option<u64> {
        let (mut id, mut first_seen, mut last_seen, mut is_lost) = (0, 0, 0, 0);
        let is_read = self.tracking_info(track, &mut id, &mut first_seen, &mut last_seen, &mut is_lost);
        (is_read != glib::ffi::GFALSE).then_some(id)
    }

    /// The detections of a meta, `found`, with the masks of the segmentations that they are related to, and the objects
    /// of the segmentations that are related to no detection. If a mask of a detection cannot be read, the detection
    /// has no mask. `None` if a segmentation without a detection cannot be read.
    fn with_masks(
        &self,
        entries: &[Entry<'_>],
        mut found: Vec<Detection>,
        segmentations: &[SegmentationEntry<'_>],
        masks: &mut MaskReader<'_>,
    ) -> Option<Vec<Detection>> {
        let labels = masks.labels;
        let mut alone = Vec::new();
        // The masks of each detection; `None` if one of them cannot be read.
        let mut parts: Vec<Option<Vec<MaskPart>>> = vec![Some(Vec::new()); found.len()];
        let (mut have_old, mut are_in_place) = (vec![false; found.len()], vec![false; found.len()]);
        for segmentation in segmentations {
            let relations = entries.iter().map(|entry| self.relation(*entry, segmentation.0));
            let related: Vec<(usize, c_uint)> = relations.enumerate().filter(|(_, relation)| *relation != 0).collect();
            if related.is_empty() {
                alone.extend(self.classes(segmentation, masks)?);
                continue;
            }
            let is_selected = |(index, _): &(usize, c_uint)| labels.select(found[*index].label.as_deref());
            if !related.iter().any(is_selected) {
                continue;
            }
            let (image, is_old) = self.id_image(segmentation, masks).unzip();
            let regions = image.as_ref().and_then(|image| self.regions(segmentation, image, &related, &found));
            let objects = image.as_ref().map_or(0, |image| image.present().filter(|id| *id != 0).count());
            // A box shared with other objects only bounds where this object may be.
            let is_shared = related.len() > 1 || objects > 1;
            for (nth, (index, _)) in related.iter().enumerate().filter(|(_, related)| is_selected(related)) {
                let region = regions.as_ref().map(|regions| regions[nth]);
                let within = (is_shared && region.is_none()).then_some(found[*index].area);
                let is_object = |id: u16| region.map_or(id != 0, |region| id == region);
                have_old[*index] |= is_old == Some(true);
                // If no sample of a mask is in its box, an element on the way has moved one of them.
                let has_samples = |image: &IdImage| image.has(is_object, found[*index].area);
                are_in_place[*index] |= image.as_ref().is_some_and(has_samples);
                let part = image.as_ref().and_then(|image| masks.part(image, is_object, within).ok());
                match (part, &mut parts[*index]) {
                    (Some(part), Some(parts)) => parts.extend(part),
                    (_, parts) => *parts = None,
                }
            }
        }
        for (((detection, parts), has_old), is_in_place) in found.iter_mut().zip(parts).zip(have_old).zip(are_in_place)
        {
            detection.mask = parts.and_then(|parts| masks.unite(parts)).filter(|_| is_in_place);
            detection.has_old_mask = has_old && detection.mask.is_some();
        }
        found.extend(alone);
        Some(found)
    }

    /// The mask of a segmentation, and whether it is old.
    fn id_image(&self, segmentation: &SegmentationEntry<'_>, masks: &MaskReader<'_>) -> Option<(IdImage, bool)> {
        let ([mut x, mut y], [mut width, mut height]) = ([0; 2], [0; 2]);
        let buffer = self.segmentation_mask(segmentation, &mut x, &mut y, &mut width, &mut height)?;
        // SAFETY: the function returns null or a buffer that the caller owns.
        let buffer: Option<gst::Buffer> = unsafe { from_glib_full(buffer) };
        let area = Area::from_corner(x.into(), y.into(), width.into(), height.into());
        // This decoder declares one region, 0, for each mask. If a box begins outside of the picture, the decoder
        // writes nothing into its mask. Up to 1.28.1 or later it writes rows without the padding that it declares.
        let may_be_decoders = glib::Type::from_name("GstYoloSegTensorDecoder").is_some();
        let is_decoders = may_be_decoders && self.region_ids(segmentation) == [0];
        let is_written = !is_decoders || x >= 0 && y >= 0;
        let buffer = buffer.filter(|_| is_written)?;
        Some((IdImage::of_buffer(&buffer, area, is_decoders)?, masks.is_old(time_of(&buffer))))
    }

    /// The ids that a segmentation declares, by index.
    fn region_ids(&self, segmentation: &SegmentationEntry<'_>) -> Vec<c_uint> {
        let count = self.region_count(segmentation).unwrap_or(0).min(REGIONS_MAX);
        (0..count).map_while(|index| self.region_id(segmentation, index)).collect()
    }

    /// The regions of the detections that share a segmentation. An N_TO_N relation says that regions and detections
    /// correspond in order. The relation has no numbers, so a region must also lie about where its detection is.
    fn regions(
        &self,
        segmentation: &SegmentationEntry<'_>,
        image: &IdImage,
        related: &[(usize, c_uint)],
        found: &[Detection],
    ) -> Option<Vec<u16>> {
        let is_ordered = related.len() > 1 && related.iter().all(|(_, relation)| relation & N_TO_N != 0);
        let ids = is_ordered.then(|| self.region_ids(segmentation))?;
        let ids = ids.into_iter().filter(|id| *id != 0).map(u16::try_from).collect::<Result<Vec<_>, _>>().ok()?;
        let is_there = |(id, (index, _)): (&u16, &(usize, c_uint))| {
            image.area_of(*id).is_some_and(|area| overlap(area, found[*index].area) >= 0.5)
        };
        (ids.len() == related.len() && ids.iter().zip(related).all(is_there)).then_some(ids)
    }

    /// The objects of a segmentation that is related to no detection: all its regions, or the regions that the labels
    /// select. `None` if it cannot be read.
    fn classes(&self, segmentation: &SegmentationEntry<'_>, masks: &mut MaskReader<'_>) -> Option<Vec<Detection>> {
        let (image, has_old_mask) = self.id_image(segmentation, masks)?;
        let labels = masks.labels;
        let names = self.region_names(segmentation);
        let mut objects = Vec::new();
        for id in image.present() {
            let name = names.iter().find(|(region, _)| *region == c_uint::from(id)).and_then(|(_, name)| name.clone());
            let is_background = name.as_deref().map_or(id == 0, is_background);
            // A list of names alone cannot mean to leave out a region that has no name.
            let has_number = labels.is_empty() || labels.has_number();
            let label = name.or_else(|| has_number.then(|| id.to_string()));
            let leaves_background = labels.is_empty() || label.is_none();
            let is_selected = labels.select(label.as_deref()) && !(is_background && leaves_background);
            if is_background && !is_selected {
                continue;
            }
            let detection = Detection::new(label, image.area_of(id)?);
            objects.push(if is_selected {
                let parts = masks.part(&image, |other| other == id, None).ok()?;
                let mask = masks.unite(parts.into_iter().collect())?;
                Detection { certain: mask.object(), mask: Some(mask), has_old_mask, ..detection }
            } else {
                detection
            });
            if objects.len() > OBJECTS_MAX {
                return None;
            }
        }
        Some(objects)
    }

    /// The ids that a segmentation declares, with the names of their classes. The n-th class of the related
    /// classification is the class of the n-th region.
    fn region_names(&self, segmentation: &SegmentationEntry<'_>) -> Vec<(c_uint, Option<String>)> {
        let ids = self.region_ids(segmentation);
        let entries = self.entries(segmentation.0.meta, self.classes_type()).into_iter();
        let related: Vec<_> =
            entries.filter(|entry| self.relation(*entry, segmentation.0) != 0).map(ClassesEntry).collect();
        let of_regions = related.iter().find(|classes| self.class_count(classes) == ids.len());
        let classes = of_regions.or(related.first());
        let name = |index: usize| {
            let classes = classes.filter(|classes| index < self.class_count(classes))?;
            label_text(self.class_name(classes, index))
        };
        ids.into_iter().enumerate().map(|(index, id)| (id, name(index))).collect()
    }
}

/// Whether a class is the background, by its name. Some models write this name between underscores.
fn is_background(name: &str) -> bool {
    name.trim_matches('_').eq_ignore_ascii_case("background")
}

/// The intersection of two areas divided by their union.
fn overlap(one: Area, other: Area) -> f64 {
    let common = one.intersection(other).size();
    common / (one.size() + other.size() - common)
}

/// The text of a label without blanks around it. `None` for the quark 0, which stands for no label, and for an empty
/// text, which detectors write that have no names for their classes.
pub fn label_text(label: glib::ffi::GQuark) -> Option<String> {
    // SAFETY: the function accepts every number. It returns null, or a string that is never freed.
    let text = unsafe {
        let text = glib::ffi::g_quark_to_string(label);
        (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy())
    }?;
    Some(text.trim().to_owned()).filter(|text| !text.is_empty())
}

/// The API type of relation metas, if anything in this process has registered it.
fn relation_meta_api() -> Option<glib::Type> {
    static API: OnceLock<glib::Type> = OnceLock::new();
    registered(&API, "GstAnalyticsRelationMetaAPI")
}

/// The API type of GstTensorMeta, which holds the output of a model for a frame, if anything in this process has
/// registered it.
fn tensor_meta_api() -> Option<glib::Type> {
    static API: OnceLock<glib::Type> = OnceLock::new();
    registered(&API, "GstTensorMetaAPI")
}

/// The type of this name, which is looked up until it is registered.
fn registered(found: &OnceLock<glib::Type>, name: &str) -> Option<glib::Type> {
    found.get().copied().or_else(|| glib::Type::from_name(name).map(|api| *found.get_or_init(|| api)))
}

/// Reads all detections of a buffer, with their masks if `masks` is given.
pub fn read(buffer: &gst::BufferRef, mut masks: Option<&mut MaskReader<'_>>) -> Analytics {
    let Some(relations) = relation_meta_api() else { return Analytics::Absent };
    let tensors = tensor_meta_api();
    let (mut detections, mut is_after_tensors) = (None, false);
    // The metas of a buffer are in the order in which they were added. A copy of the buffer has the same order.
    for meta in buffer.iter_meta::<gst::Meta>() {
        is_after_tensors |= tensors == Some(meta.api());
        if meta.api() != relations {
            continue;
        }
        // The only implementation of this API is GstAnalyticsRelationMeta. The borrow of the buffer keeps it unchanged.
        let meta = RelationMeta(meta.as_ptr().cast_mut(), PhantomData);
        match Library::get().map(|library| library.detections(meta, is_after_tensors, masks.as_deref_mut())) {
            None | Some(Analytics::Unreadable) => return Analytics::Unreadable,
            Some(Analytics::Absent) => (),
            Some(Analytics::Present(found)) => detections.get_or_insert_with(Vec::new).extend(found),
        }
    }
    detections.map_or(Analytics::Absent, Analytics::Present)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn overlap_is_the_share_of_what_both_have() {
        let area = |left, top, right, bottom| Area { left, top, right, bottom };
        let one = area(10.0, 20.0, 14.0, 23.0);
        for (other, expected) in [
            (one, 1.0),
            (area(11.0, 21.0, 15.0, 24.0), 6.0 / 18.0),
            (area(10.0, 20.0, 12.0, 23.0), 0.5),
            (area(9.0, 19.0, 15.0, 24.0), 12.0 / 30.0),
            (area(14.0, 20.0, 18.0, 23.0), 0.0),
            (area(10.0, 30.0, 14.0, 33.0), 0.0),
        ] {
            assert_eq!((overlap(one, other), overlap(other, one)), (expected, expected), "{other:?}");
        }
    }
}
