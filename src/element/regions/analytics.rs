// SPDX-License-Identifier: MPL-2.0
//! libgstanalytics, which holds the detections of GStreamer's own inference elements: reads the detections of a buffer.
//!
//! The library exists since GStreamer 1.24 and is opened at run time, so that the plugin also loads without it. It is
//! opened only when a buffer can hold its metas at all: whoever attached one has registered their type.

use std::ffi::{CStr, c_int, c_uint, c_void};
use std::ptr;
use std::sync::{LazyLock, OnceLock};

use gst::glib;
use gst::glib::translate::IntoGlib;

use super::detection::{Detection, confidence};
use crate::filter::regions::Area;
use crate::libraries::System;

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

/// `GstAnalyticsRelationMeta`, which only the library looks into.
type RawRelationMeta = gst::ffi::GstMeta;
/// `GstAnalyticsMtdType`.
type MtdType = usize;
/// `GST_ANALYTICS_MTD_TYPE_ANY`.
const ANY_TYPE: MtdType = 0;

/// `GstAnalyticsMtd`, and all the types that it stands for: an entry of a relation meta. The same in all versions.
#[repr(C)]
#[derive(Clone, Copy)]
struct RawMtd {
    id: c_uint,
    meta: *mut RawRelationMeta,
}

type GetLocation = unsafe extern "C" fn(
    *const RawMtd,
    *mut c_int,
    *mut c_int,
    *mut c_int,
    *mut c_int,
    *mut f32,
) -> glib::ffi::gboolean;
type GetOrientedLocation = unsafe extern "C" fn(
    *const RawMtd,
    *mut c_int,
    *mut c_int,
    *mut c_int,
    *mut c_int,
    *mut f32,
    *mut f32,
) -> glib::ffi::gboolean;

/// The library's functions, as its headers declare them in 1.24 to 1.28. Those without parameters are safe to call; the
/// others need valid pointers of the C types.
struct Library {
    iterate: unsafe extern "C" fn(*mut RawRelationMeta, *mut *mut c_void, MtdType, *mut RawMtd) -> glib::ffi::gboolean,
    get_relation: unsafe extern "C" fn(*const RawRelationMeta, c_uint, c_uint) -> c_uint,
    /// `None` before GStreamer 1.26, where there are no segmentations.
    segmentation_type: Option<extern "C" fn() -> MtdType>,
    detection_type: extern "C" fn() -> MtdType,
    detection_label: unsafe extern "C" fn(*const RawMtd) -> glib::ffi::GQuark,
    detection_location: GetLocation,
    /// `None` before GStreamer 1.26, where no box is rotated.
    detection_oriented_location: Option<GetOrientedLocation>,
    tracking_type: extern "C" fn() -> MtdType,
    tracking_info: unsafe extern "C" fn(
        *const RawMtd,
        *mut u64,
        *mut gst::ffi::GstClockTime,
        *mut gst::ffi::GstClockTime,
        *mut glib::ffi::gboolean,
    ) -> glib::ffi::gboolean,
}

impl Library {
    fn open() -> Option<Self> {
        // SAFETY: the initialisers of libgstanalytics and of the libraries that it links only register data of their
        // own.
        let library = unsafe { libloading::Library::new(System::CURRENT.gstreamer("analytics")) }.ok()?;
        // Leaked, because GObject types that the library registers point into it.
        let library: &libloading::Library = Box::leak(Box::new(library));
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: the variable that this is assigned to has the type of the function of this name in the
                // library's headers, in all versions that have it. The library is never unloaded, so the address stays
                // valid.
                unsafe { library.get($name) }.ok().map(|symbol| *symbol)
            };
        }
        Some(Self {
            iterate: symbol!(b"gst_analytics_relation_meta_iterate\0")?,
            get_relation: symbol!(b"gst_analytics_relation_meta_get_relation\0")?,
            segmentation_type: symbol!(b"gst_analytics_segmentation_mtd_get_mtd_type\0"),
            detection_type: symbol!(b"gst_analytics_od_mtd_get_mtd_type\0")?,
            detection_label: symbol!(b"gst_analytics_od_mtd_get_obj_type\0")?,
            detection_location: symbol!(b"gst_analytics_od_mtd_get_location\0")?,
            detection_oriented_location: symbol!(b"gst_analytics_od_mtd_get_oriented_location\0"),
            tracking_type: symbol!(b"gst_analytics_tracking_mtd_get_mtd_type\0")?,
            tracking_info: symbol!(b"gst_analytics_tracking_mtd_get_info\0")?,
        })
    }

    /// The library, opened by the first call; `None` if it cannot be opened.
    fn get() -> Option<&'static Self> {
        static LIBRARY: LazyLock<Option<Library>> = LazyLock::new(Library::open);
        LIBRARY.as_ref()
    }

    /// The entries of this type in a relation meta.
    ///
    /// # Safety
    /// `meta` is a GstAnalyticsRelationMeta. It stays alive, and no entry is added to it, while the entries are used.
    unsafe fn entries(&self, meta: *mut RawRelationMeta, of: MtdType) -> Vec<RawMtd> {
        let mut entries = Vec::new();
        let (mut state, mut entry) = (ptr::null_mut(), RawMtd { id: 0, meta });
        // SAFETY: `meta` is a live relation meta. `state` is null at first and then what the function stored in it. The
        // function writes only `state` and `entry`.
        while unsafe { (self.iterate)(meta, &raw mut state, of, &raw mut entry) } != glib::ffi::GFALSE {
            entries.push(entry);
        }
        entries
    }

    /// All detections of a relation meta. A meta without any entry says that a detector found nothing. One that has other
    /// entries only, such as a class of the whole frame, says nothing about objects; but a segmentation without a detection
    /// is an object that cannot be read.
    ///
    /// # Safety
    /// `meta` is a GstAnalyticsRelationMeta, which stays alive and unchanged during the call.
    unsafe fn detections(&self, meta: *mut RawRelationMeta) -> Analytics {
        // SAFETY: `meta` is a live relation meta that does not change before the entries are dropped, at the end of
        // this function.
        let [detections, tracks] =
            unsafe { [self.entries(meta, (self.detection_type)()), self.entries(meta, (self.tracking_type)())] };
        if detections.is_empty() {
            // SAFETY: as for the entries above.
            let has = |of: MtdType| unsafe { !self.entries(meta, of).is_empty() };
            return match self.segmentation_type {
                Some(segmentation_type) if has(segmentation_type()) => Analytics::Unreadable,
                _ if has(ANY_TYPE) => Analytics::Absent,
                _ => Analytics::Present(Vec::new()),
            };
        }
        // SAFETY: `detection` is an entry of that type in a live relation meta, and so is every track.
        let found: Option<_> =
            detections.iter().map(|detection| unsafe { self.detection(detection, &tracks) }).collect();
        found.map_or(Analytics::Unreadable, Analytics::Present)
    }

    /// A detection, with the number of the first track that it is related to.
    ///
    /// # Safety
    /// `detection` is an object detection of a live relation meta, and `tracks` are tracking entries of the same meta.
    unsafe fn detection(&self, detection: &RawMtd, tracks: &[RawMtd]) -> Option<Detection> {
        let [mut x, mut y, mut width, mut height] = [0; 4];
        let (mut angle, mut certainty) = (0.0, f32::NAN);
        let entry = ptr::from_ref(detection);
        let is_read = match self.detection_oriented_location {
            // SAFETY: `entry` is an object detection of a live meta, and the function writes only the six numbers.
            Some(get) => unsafe {
                get(entry, &raw mut x, &raw mut y, &raw mut width, &raw mut height, &raw mut angle, &raw mut certainty)
            },
            // SAFETY: `entry` is an object detection of a live meta, and the function writes only the five numbers.
            None => unsafe {
                (self.detection_location)(
                    entry,
                    &raw mut x,
                    &raw mut y,
                    &raw mut width,
                    &raw mut height,
                    &raw mut certainty,
                )
            },
        };
        if is_read == glib::ffi::GFALSE {
            return None;
        }
        let area = Area::from_corner(x.into(), y.into(), width.into(), height.into());
        // Where the box is not rotated it has whole numbers, which a rotation by 0 would keep as well.
        let area = if angle == 0.0 { area } else { area.around_rotated(angle.into()) };
        let is_related = |track: &&RawMtd| {
            let (first, second) = (detection.id, track.id);
            // Producers disagree on the direction.
            [(first, second), (second, first)]
                .iter()
                // SAFETY: both are numbers of entries of this live relation meta.
                .any(|(from, to)| unsafe { (self.get_relation)(detection.meta, *from, *to) } != 0)
        };
        Some(Detection {
            certain: (width >= 0 && height >= 0 && angle.is_finite()).then_some(area),
            // SAFETY: `entry` is an object detection of a live meta.
            label: label_text(unsafe { (self.detection_label)(entry) }),
            confidence: confidence(certainty.into()),
            area,
            // SAFETY: the track is a tracking entry of a live meta.
            tracking_id: tracks.iter().find(is_related).and_then(|track| unsafe { self.tracking_id(track) }),
        })
    }

    /// The number of a track.
    ///
    /// # Safety
    /// `track` is a tracking entry of a live relation meta.
    unsafe fn tracking_id(&self, track: &RawMtd) -> Option<u64> {
        let (mut id, mut first_seen, mut last_seen, mut is_lost) = (0, 0, 0, 0);
        // SAFETY: `track` is a tracking entry of a live meta, and the function writes only the four variables.
        let is_read = unsafe {
            (self.tracking_info)(track, &raw mut id, &raw mut first_seen, &raw mut last_seen, &raw mut is_lost)
        };
        (is_read != glib::ffi::GFALSE).then_some(id)
    }
}

/// The text of a label without blanks around it; `None` for the quark 0, which stands for no label, and for an empty text,
/// which is what detectors write that have no names for their classes.
pub fn label_text(label: glib::ffi::GQuark) -> Option<String> {
    // SAFETY: the function accepts every number. It returns null, or a string that is never freed.
    let text = unsafe { glib::ffi::g_quark_to_string(label) };
    // SAFETY: `text` is not null, and a string of GLib that is never freed.
    let text = (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_string_lossy())?;
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
    let mut state = ptr::null_mut();
    loop {
        // SAFETY: the buffer is live, and is only read. `state` is null at first and then what the function stored in
        // it; the borrow of the buffer keeps its metas unchanged meanwhile.
        let meta = unsafe {
            gst::ffi::gst_buffer_iterate_meta_filtered(buffer.as_ptr().cast_mut(), &raw mut state, api.into_glib())
        };
        if meta.is_null() {
            return detections.map_or(Analytics::Absent, Analytics::Present);
        }
        // SAFETY: `meta` is a meta of the API GstAnalyticsRelationMetaAPI, whose only implementation is
        // GstAnalyticsRelationMeta. The borrow of the buffer keeps it alive and unchanged.
        match Library::get().map(|library| unsafe { library.detections(meta) }) {
            None | Some(Analytics::Unreadable) => return Analytics::Unreadable,
            Some(Analytics::Absent) => (),
            Some(Analytics::Present(found)) => detections.get_or_insert_with(Vec::new).extend(found),
        }
    }
}
