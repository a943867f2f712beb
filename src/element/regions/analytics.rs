// SPDX-License-Identifier: MPL-2.0
//! libgstanalytics, which holds the detections of GStreamer's own inference elements: reads the detections of a buffer.
//!
//! The library exists since GStreamer 1.24 and is opened at run time, so that the plugin also loads without it. It is
//! opened only when a buffer can hold its metas at all: whoever attached one has registered their type.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::marker::PhantomData;
use std::ptr;
use std::sync::{LazyLock, OnceLock};

use gst::glib;

use super::detection::{Detection, confidence};
use crate::filter::regions::Area;
use crate::libraries::{functions, open_gstreamer};

/// What the analytics metas of a buffer say.
#[derive(Debug, Clone, PartialEq)]
pub enum Analytics {
    /// The buffer has none.
    Absent,
    /// The buffer has some, and not all of them can be read: the library cannot be opened, or an entry is broken.
    Unreadable,
    /// All detections. An empty list says that a detector looked and found nothing.
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
        ]
        unsafe [
            /// # Safety
            /// `state` is null, or what the function stored there for the same meta and type.
            iterate<'a>(meta: RelationMeta<'a>, state: &mut *mut c_void, of: MtdType, entry: &mut Entry<'a>)
                -> glib::ffi::gboolean = "gst_analytics_relation_meta_iterate";
            /// # Safety
            /// Both numbers are those of entries of the meta.
            get_relation(meta: RelationMeta<'_>, first: c_uint, second: c_uint) -> c_uint
                = "gst_analytics_relation_meta_get_relation";
        ]
        optional [
            /// `None` before GStreamer 1.26, where there are no segmentations.
            segmentation_type() -> MtdType = "gst_analytics_segmentation_mtd_get_mtd_type";
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
            LazyLock::new(|| open_gstreamer("analytics").and_then(Library::load));
        LIBRARY.as_ref()
    }

    /// The entries of this type in a relation meta.
    fn entries<'a>(&self, meta: RelationMeta<'a>, of: MtdType) -> Vec<Entry<'a>> {
        let mut entries = Vec::new();
        let (mut state, mut entry) = (ptr::null_mut(), Entry { id: 0, meta });
        // SAFETY: `state` is null at first, and then what the function stored in it for this meta and type.
        while unsafe { self.iterate(meta, &mut state, of, &mut entry) } != glib::ffi::GFALSE {
            entries.push(entry);
        }
        entries
    }

    /// All detections of a relation meta. A meta without any entry says that a detector found nothing. One that has other
    /// entries only, such as a class of the whole frame, says nothing about objects; but a segmentation without a detection
    /// is an object that cannot be read.
    fn detections(&self, meta: RelationMeta<'_>) -> Analytics {
        let detections = self.entries(meta, self.detection_type());
        let tracks: Vec<_> = self.entries(meta, self.tracking_type()).into_iter().map(TrackEntry).collect();
        if detections.is_empty() {
            let has = |of: MtdType| !self.entries(meta, of).is_empty();
            return match self.segmentation_type() {
                Some(segmentation_type) if has(segmentation_type) => Analytics::Unreadable,
                _ if has(ANY_TYPE) => Analytics::Absent,
                _ => Analytics::Present(Vec::new()),
            };
        }
        let detections = detections.into_iter().map(DetectionEntry);
        let found: Option<_> = detections.map(|entry| self.detection(&entry, &tracks)).collect();
        found.map_or(Analytics::Unreadable, Analytics::Present)
    }

    /// A detection, with the number of the first track of the same meta that it is related to.
    fn detection(&self, entry: &DetectionEntry<'_>, tracks: &[TrackEntry<'_>]) -> Option<Detection> {
        let [mut x, mut y, mut width, mut height] = [0; 4];
        let (mut angle, mut certainty) = (0.0, f32::NAN);
        let oriented = self.detection_oriented_location(
            entry,
            &mut x,
            &mut y,
            &mut width,
            &mut height,
            &mut angle,
            &mut certainty,
        );
        let is_read = oriented
            .unwrap_or_else(|| self.detection_location(entry, &mut x, &mut y, &mut width, &mut height, &mut certainty));
        if is_read == glib::ffi::GFALSE {
            return None;
        }
        let area = Area::from_corner(x.into(), y.into(), width.into(), height.into());
        // Where the box is not rotated it has whole numbers, which a rotation by 0 would keep as well.
        let area = if angle == 0.0 { area } else { area.around_rotated(angle.into()) };
        let is_related = |track: &&TrackEntry| {
            let (meta, first, second) = (entry.0.meta, entry.0.id, track.0.id);
            // SAFETY: this is called only if both are numbers of entries of `meta`.
            let relation = |from, to| unsafe { self.get_relation(meta, from, to) };
            // Producers disagree on the direction.
            track.0.meta == meta && (relation(first, second) != 0 || relation(second, first) != 0)
        };
        Some(Detection {
            certain: (width >= 0 && height >= 0 && angle.is_finite()).then_some(area),
            label: label_text(self.detection_label(entry)),
            confidence: confidence(certainty.into()),
            area,
            tracking_id: tracks.iter().find(is_related).and_then(|track| self.tracking_id(track)),
            mask: None,
        })
    }

    /// The number of a track.
    fn tracking_id(&self, track: &TrackEntry<'_>) -> Option<u64> {
        let (mut id, mut first_seen, mut last_seen, mut is_lost) = (0, 0, 0, 0);
        let is_read = self.tracking_info(track, &mut id, &mut first_seen, &mut last_seen, &mut is_lost);
        (is_read != glib::ffi::GFALSE).then_some(id)
    }
}

/// The text of a label without blanks around it; `None` for the quark 0, which stands for no label, and for an empty text,
/// which is what detectors write that have no names for their classes.
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
    API.get().copied().or_else(|| {
        let api = glib::Type::from_name("GstAnalyticsRelationMetaAPI")?;
        Some(*API.get_or_init(|| api))
    })
}

/// Reads all detections of a buffer.
pub fn read(buffer: &gst::BufferRef) -> Analytics {
    let Some(api) = relation_meta_api() else { return Analytics::Absent };
    let mut detections = None;
    for meta in buffer.iter_meta::<gst::Meta>().filter(|meta| meta.api() == api) {
        // The only implementation of this API is GstAnalyticsRelationMeta. The borrow of the buffer keeps it unchanged.
        let meta = RelationMeta(meta.as_ptr().cast_mut(), PhantomData);
        match Library::get().map(|library| library.detections(meta)) {
            None | Some(Analytics::Unreadable) => return Analytics::Unreadable,
            Some(Analytics::Absent) => (),
            Some(Analytics::Present(found)) => detections.get_or_insert_with(Vec::new).extend(found),
        }
    }
    detections.map_or(Analytics::Absent, Analytics::Present)
}
