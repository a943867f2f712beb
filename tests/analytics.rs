//! Detections in GstAnalyticsRelationMeta, attached by libgstanalytics itself. Tests are ignored if the library is not
//! installed (it exists since GStreamer 1.24) or lacks what they need.

mod common;
#[path = "analytics/inference.rs"]
mod inference;

use std::ffi::c_void;
use std::ptr;
use std::sync::LazyLock;

use common::Noise;
use common::checks::trial;
use common::stream::{self, mask_param, with_param};
use common::video::{Blur, info};
use gst::ffi::GstBuffer;
use gst::glib;
use gst::glib::ffi::GQuark;
use gst::glib::gobject_ffi::{G_TYPE_OBJECT, GObject, GObjectClass, g_type_register_static_simple};
use gst::glib::translate::{IntoGlib, IntoGlibPtr};
use gst_video::VideoFormat;
use gstcudagaussblur::element::regions::analytics::{self, Analytics};
use gstcudagaussblur::filter::regions::Area;
use gstcudagaussblur::filter::weights::Mask;
use gstcudagaussblur::regions::detection::{Detection, Labels};
use gstcudagaussblur::regions::masks::MaskReader;
use gstcudagaussblur::regions::rules::MAX_DETECTIONS;
use libtest_mimic::Arguments;

/// `GstAnalyticsMtd`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Mtd {
    id: u32,
    meta: *mut c_void,
}

const IS_PART_OF: u32 = 1 << 1;
const CONTAIN: u32 = 1 << 2;
const RELATE_TO: u32 = 1 << 3;
const N_TO_N: u32 = 1 << 4;
const RELATIONS: [u32; 4] = [IS_PART_OF, CONTAIN, RELATE_TO, N_TO_N];

/// Every relation, in either direction.
fn relations() -> impl Iterator<Item = (u32, bool)> {
    RELATIONS.into_iter().flat_map(|relation| [(relation, false), (relation, true)])
}

/// A `GstAnalyticsRelationMeta`.
type Raw = *mut c_void;

static LIBRARY: LazyLock<Option<libloading::Library>> = LazyLock::new(|| {
    let name = if cfg!(windows) { "gstanalytics-1.0-0.dll" } else { "libgstanalytics-1.0.so.0" };
    // SAFETY: the library's initialisers only register data of its own.
    unsafe { libloading::Library::new(name) }.ok()
});

fn is_1_26() -> bool {
    gst::version() >= (1, 26, 0, 0)
}

/// A function of relation metas.
///
/// # Safety
/// `T` is its type in the library's headers.
unsafe fn function<T: Copy>(name: &str) -> T {
    // SAFETY: the caller knows the type.
    unsafe { symbol(&format!("gst_analytics_relation_meta_{name}")) }
}

/// A function of the library.
///
/// # Safety
/// `T` is its type in the library's headers.
unsafe fn symbol<T: Copy>(name: &str) -> T {
    let library = LIBRARY.as_ref().expect("tests without the library are ignored");
    // SAFETY: the caller knows the type, and the library is never unloaded.
    *unsafe { library.get::<T>(name.as_bytes()) }.expect(name)
}

/// Adds the meta of a model's tensors, without any, to those that the buffer has.
fn add_tensors(buffer: &mut gst::Buffer) {
    type Add = unsafe extern "C" fn(*mut GstBuffer) -> *mut c_void;
    let buffer = buffer.get_mut().unwrap().as_mut_ptr();
    // SAFETY: the buffer is live and writable.
    assert!(!unsafe { symbol::<Add>("gst_buffer_add_tensor_meta")(buffer) }.is_null());
}

/// Where something is: x, y, width and height.
type Place = [i64; 4];

/// A relation meta of a buffer that the test owns.
#[derive(Clone, Copy)]
struct Meta(Raw);

impl Meta {
    /// Adds a meta to those that the buffer has. The library's own function returns an existing one instead.
    fn add(buffer: &mut gst::Buffer) -> Self {
        // `GstAnalyticsRelationMetaInitParams`: the relations and the bytes that the meta has room for at first.
        let mut room = [5_usize, 20];
        let buffer = buffer.get_mut().unwrap().as_mut_ptr();
        type Info = unsafe extern "C" fn() -> *const gst::ffi::GstMetaInfo;
        // SAFETY: the buffer is live and writable, and the parameters are those of this meta. The buffer outlives the
        // meta, because the tests drop it last.
        let meta = unsafe {
            let info = function::<Info>("get_info")();
            gst::ffi::gst_buffer_add_meta(buffer, info, (&raw mut room).cast())
        };
        assert!(!meta.is_null());
        Self(meta.cast())
    }

    /// The entry that a function adds to the live relation meta that it is given.
    fn entry(self, add: impl FnOnce(Raw, *mut Mtd) -> i32) -> Mtd {
        let mut mtd = Mtd { id: 0, meta: ptr::null_mut() };
        assert_ne!(add(self.0, &raw mut mtd), 0);
        mtd
    }

    fn detection(self, label: Option<&str>, place: Place, confidence: f32) -> Mtd {
        type Add = unsafe extern "C" fn(Raw, GQuark, i32, i32, i32, i32, f32, *mut Mtd) -> i32;
        let (label, [x, y, width, height]) = (quark(label), place.map(|side| side as i32));
        // SAFETY: `raw` is a live relation meta.
        self.entry(|raw, mtd| unsafe {
            function::<Add>("add_od_mtd")(raw, label, x, y, width, height, confidence, mtd)
        })
    }

    fn oriented(self, place: Place, angle: f32) -> Mtd {
        type Add = unsafe extern "C" fn(Raw, GQuark, i32, i32, i32, i32, f32, f32, *mut Mtd) -> i32;
        let (label, [x, y, width, height]) = (quark(Some("ship")), place.map(|side| side as i32));
        // SAFETY: `raw` is a live relation meta.
        self.entry(|raw, mtd| unsafe {
            function::<Add>("add_oriented_od_mtd")(raw, label, x, y, width, height, angle, 0.5, mtd)
        })
    }

    fn track(self, id: u64) -> Mtd {
        type Add = unsafe extern "C" fn(Raw, u64, gst::ffi::GstClockTime, *mut Mtd) -> i32;
        // SAFETY: `raw` is a live relation meta.
        self.entry(|raw, mtd| unsafe { function::<Add>("add_tracking_mtd")(raw, id, 0, mtd) })
    }

    fn segmentation(self, image: Image) -> Mtd {
        let (ids, place) = (image.ids.clone(), image.place);
        self.segmentation_of(image.buffer(), &ids, place)
    }

    fn segmentation_of(self, mask: gst::Buffer, ids: &[u32], [x, y, width, height]: Place) -> Mtd {
        type Add =
            unsafe extern "C" fn(Raw, *mut GstBuffer, i32, usize, *const u32, i32, i32, u32, u32, *mut Mtd) -> i32;
        let (x, y, width, height) = (x as i32, y as i32, width as u32, height as u32);
        let (mask, count, ids) = (mask.into_glib_ptr(), ids.len(), ids.as_ptr());
        // SAFETY: `raw` is a live relation meta, which takes ownership of the buffer, and `ids` has the number of ids. The type
        // cannot be read back.
        self.entry(|raw, mtd| unsafe {
            function::<Add>("add_segmentation_mtd")(raw, mask, 1, count, ids, x, y, width, height, mtd)
        })
    }

    fn classes(self, names: &[Option<&str>]) -> Mtd {
        type Add = unsafe extern "C" fn(Raw, usize, *const f32, *const GQuark, *mut Mtd) -> i32;
        let names: Vec<_> = names.iter().map(|name| quark(*name)).collect();
        let levels = vec![-1.0; names.len()];
        // SAFETY: `raw` is a live relation meta, and both lists have the number of classes.
        self.entry(|raw, mtd| unsafe {
            function::<Add>("add_cls_mtd")(raw, names.len(), levels.as_ptr(), names.as_ptr(), mtd)
        })
    }

    fn relate_reversed(self, (relation, is_reversed): (u32, bool), one: Mtd, other: Mtd) {
        let (from, to) = if is_reversed { (other, one) } else { (one, other) };
        self.relate(relation, from, to);
    }

    fn relate(self, relation: u32, from: Mtd, to: Mtd) {
        type Set = unsafe extern "C" fn(Raw, u32, u32, u32) -> i32;
        // SAFETY: the meta is live, and both are its entries.
        assert_ne!(unsafe { function::<Set>("set_relation")(self.0, relation, from.id, to.id) }, 0);
    }
}

fn quark(label: Option<&str>) -> GQuark {
    label.map_or(0, |label| glib::Quark::from_str(label).into_glib())
}

/// A segmentation: an image of region ids, with a GstVideoMeta, over a place.
#[derive(Clone)]
struct Image {
    format: VideoFormat,
    size: [u32; 2],
    offset: usize,
    stride: i32,
    bytes: Vec<u8>,
    time: Option<gst::ClockTime>,
    /// The ids that are declared.
    ids: Vec<u32>,
    place: Place,
}

impl Image {
    /// An image of 8 bits, which declares no ids, over [`BOX`].
    fn gray8(columns: u32, ids: &[u8]) -> Self {
        let size = [columns, ids.len() as u32 / columns];
        let stride = columns as i32;
        let (format, bytes) = (VideoFormat::Gray8, ids.to_vec());
        Self { format, size, offset: 0, stride, bytes, time: None, ids: Vec::new(), place: BOX }
    }

    fn unreadable() -> Self {
        Self { stride: 0, ..Self::gray8(2, &[1; 4]) }
    }

    fn declaring(self, ids: &[u32]) -> Self {
        Self { ids: ids.to_vec(), ..self }
    }

    fn over(self, place: Place) -> Self {
        Self { place, ..self }
    }

    fn buffer(self) -> gst::Buffer {
        let mut buffer = gst::Buffer::from_mut_slice(self.bytes);
        buffer.get_mut().unwrap().set_pts(self.time);
        // SAFETY: the buffer is live and writable, so that the function returns a live meta of it.
        unsafe {
            let (buffer, format) = (buffer.get_mut().unwrap().as_mut_ptr(), self.format.into_glib());
            let meta = &mut *gst_video::ffi::gst_buffer_add_video_meta(buffer, 0, format, 1, 1);
            [meta.width, meta.height] = self.size;
            (meta.offset[0], meta.stride[0]) = (self.offset, self.stride);
        }
        buffer
    }
}

/// The object of these ids in the mask that is read of an image of 8 bits.
fn mask(columns: u32, ids: &[u8], is_object: impl Fn(u8) -> bool, area: Area) -> Mask {
    let samples = ids.iter().map(|id| if is_object(*id) { 255 } else { 0 }).collect();
    Mask::new(columns, ids.len() as u32 / columns, samples, area).unwrap()
}

/// A buffer with a relation meta, to which `attach` adds entries.
fn frame(attach: impl FnOnce(Meta)) -> gst::Buffer {
    let mut buffer = gst::Buffer::new();
    attach(Meta::add(&mut buffer));
    buffer
}

/// A frame to which inference has attached tensors, and a decoder a relation meta.
fn decoded(mut buffer: gst::Buffer, attach: impl FnOnce(Meta)) -> gst::Buffer {
    add_tensors(&mut buffer);
    attach(Meta::add(&mut buffer));
    buffer
}

/// What is read of a frame: with the masks of objects that these labels select, or without masks.
fn read(labels: Option<&str>, frame: &gst::Buffer) -> Analytics {
    let labels = labels.map(Labels::parse);
    analytics::read(frame, labels.as_ref().map(MaskReader::new).as_mut())
}

#[track_caller]
fn present(what: Analytics) -> Vec<Detection> {
    match what {
        Analytics::Present(detections) => detections,
        other => panic!("{other:?}"),
    }
}

fn found(labels: Option<&str>, attach: impl FnOnce(Meta)) -> Vec<Detection> {
    present(read(labels, &frame(attach)))
}

/// The masks of the detections.
fn masks(attach: impl FnOnce(Meta)) -> Vec<Option<Mask>> {
    found(Some(""), attach).into_iter().map(|detection| detection.mask).collect()
}

/// What is read of a box whose edges are certain, without a mask.
fn boxed(label: Option<&str>, confidence: Option<f32>, edges: [f64; 4]) -> Detection {
    let area = Area::from_edges(edges);
    Detection { confidence, certain: Some(area), ..Detection::new(label.map(ToOwned::to_owned), area) }
}

fn main() {
    gst::init().unwrap();
    // A critical message says that a test called the library wrongly.
    glib::log_set_always_fatal(glib::LogLevels::LEVEL_CRITICAL | glib::LogLevels::LEVEL_ERROR);
    assert_eq!(analytics::read(&gst::Buffer::new(), None), Analytics::Absent);
    let was_registered = glib::Type::from_name("GstAnalyticsRelationMetaAPI").is_some();
    let opens_nothing = move || assert!(!was_registered, "reading a buffer without metas has registered the type");
    let has_library = LIBRARY.is_some();
    let is_new = has_library && is_1_26();
    // Part of GStreamer 1.28.
    let has_tracker = is_new && gst::ElementFactory::find("ioutracker").is_some();
    let has_inference = is_new && inference::ELEMENTS.iter().all(|name| gst::ElementFactory::find(name).is_some());
    let trials = vec![
        trial("buffers_without_metas_do_not_open_the_library", true, opens_nothing),
        trial("every_meta_of_a_buffer_is_read_and_an_empty_one_says_that_a_detector_looked", has_library, metas),
        trial("detections_are_read_with_label_confidence_and_box", has_library, detections),
        trial("tracking_ids_are_found_in_either_direction", has_library, tracking),
        trial("tracks_alone_say_that_a_detector_looked_if_a_model_did_before", is_new, tracks_alone),
        trial("a_tracker_after_the_detector_changes_nothing", has_tracker, real_tracker),
        trial("what_a_model_in_gstreamers_own_inference_finds_is_covered", has_inference, inference::covered),
        trial("oriented_boxes_become_the_box_around_them", is_new, oriented),
        trial("detections_have_the_masks_that_they_are_related_to", is_new, related_masks),
        trial("masks_of_earlier_frames_are_old", is_new, old_masks),
        trial("classes_of_a_segmentation_that_stands_alone_are_objects", is_new, classes),
        trial("background_is_an_object_only_where_it_is_named", is_new, background),
        trial("masks_that_cannot_be_read_leave_the_box_or_the_frame", is_new, unreadable_masks),
        trial("detections_that_share_a_segmentation_have_their_regions", is_new, shared_masks),
        trial("masks_are_united_and_without_an_object_in_the_box_leave_the_box", is_new, masks_in_the_box),
        trial("random_metas_are_read_or_refused", is_new, random_metas),
        trial("segmentations_cover_and_show_as_masks_of_regions_of_interest_do", is_new, covered_by_segmentations),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_if_failed();
    // From here on there is a type with the name of GStreamer's element yolosegv8tensordec, which is part of 1.28: that element's
    // own, if its plugin is loaded, which also has the tracker.
    let decoder = || {
        let name = c"GstYoloSegTensorDecoder";
        if glib::Type::from_name(name.to_str().unwrap()).is_none() {
            let [class, instance] = [size_of::<GObjectClass>(), size_of::<GObject>()].map(|size| size as u32);
            // SAFETY: the type is GObject but for its name, and has its sizes.
            unsafe { g_type_register_static_simple(G_TYPE_OBJECT, name.as_ptr(), class, None, instance, None, 0) };
        }
        masks_of_the_yolo_decoder();
    };
    let trials = vec![trial("masks_that_the_yolo_decoder_writes_wrong_leave_the_box", is_new, decoder)];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

fn metas() {
    assert_eq!(read(None, &gst::Buffer::new()), Analytics::Absent);
    assert_eq!(found(None, |_| ()), []);
    for labels in [None, Some("")] {
        let of_classes = frame(|meta| _ = meta.classes(&[Some("indoors")]));
        assert_eq!(read(labels, &of_classes), Analytics::Absent, "{labels:?}");
    }
    let mut buffer = gst::Buffer::new();
    let metas = [Meta::add(&mut buffer), Meta::add(&mut buffer)];
    for (meta, count) in [(metas[1], 1), (metas[0], 2)] {
        meta.detection(Some("face"), [0, 0, 9, 9], 1.0);
        assert_eq!(present(read(None, &buffer)).len(), count);
    }
}

fn detections() {
    let far = f64::from(i32::MAX);
    let found = found(None, |meta| {
        meta.detection(Some("person"), [10, 20, 30, 40], 0.75);
        meta.detection(None, [-5, -6, 7, 8], f32::NAN);
        meta.detection(Some("person"), [i32::MAX, i32::MIN, i32::MAX, i32::MAX].map(i64::from), -1.0);
        meta.detection(None, [10, 10, -5, 5], 1.0);
    });
    let expected = [
        boxed(Some("person"), Some(0.75), [10.0, 20.0, 40.0, 60.0]),
        boxed(None, None, [-5.0, -6.0, 2.0, 2.0]),
        boxed(Some("person"), None, [far, -far - 1.0, far * 2.0, -1.0]),
        // The corners may be swapped, or the box may be none.
        Detection { certain: None, ..boxed(None, Some(1.0), [5.0, 10.0, 10.0, 15.0]) },
    ];
    assert_eq!(found, expected);
}

fn tracking() {
    // GStreamer 1.24 has neither segmentations nor the last relation.
    for &relation in if is_1_26() { &RELATIONS[..] } else { &RELATIONS[..3] } {
        let found = found(None, |meta| {
            let detection = |label| meta.detection(Some(label), [0, 0, 9, 9], 1.0);
            let (one, _lost, other, _alone) = (detection("a"), meta.track(5), detection("b"), detection("c"));
            let [first, second] = [u64::MAX, 7].map(|id| meta.track(id));
            meta.relate(relation, one, first);
            meta.relate(relation, second, other);
        });
        let ids: Vec<_> = found.iter().map(|detection| detection.tracking_id).collect();
        assert_eq!(ids, [Some(u64::MAX), Some(7), None], "{relation}");
    }
    // More entries than a new meta has room for.
    let found = found(None, |meta| {
        for id in 0..100 {
            meta.relate(RELATE_TO, meta.detection(None, [id, 0, 9, 9], 1.0), meta.track(id.unsigned_abs()));
        }
    });
    let read: Vec<_> = found.iter().map(|detection| (detection.area.left as u64, detection.tracking_id)).collect();
    assert_eq!(read, (0..100).map(|id| (id, Some(id))).collect::<Vec<_>>());
}

/// Tracks without a detection are those of a detector that found nothing, or those of a tracker where no detector looked.
fn tracks_alone() {
    let nothing = Analytics::Present(Vec::new());
    let track = |meta: Meta| _ = meta.track(1);
    let many = |meta: Meta| (0..MAX_DETECTIONS as u64 + 1).for_each(|id| _ = meta.track(id));
    let with_classes = |meta: Meta| _ = (meta.track(1), meta.classes(&[Some("indoors")]));
    let mut before = frame(track);
    add_tensors(&mut before);
    let mut tensors_alone = gst::Buffer::new();
    add_tensors(&mut tensors_alone);
    for (why, frame, expected) in [
        ("a tracker's meta", frame(track), &Analytics::Absent),
        ("a decoder's empty meta", decoded(gst::Buffer::new(), track), &nothing),
        ("more tracks than are compared with detections", decoded(gst::Buffer::new(), many), &nothing),
        ("a tracker's meta, before another model", before, &Analytics::Absent),
        ("a class of the frame", decoded(gst::Buffer::new(), with_classes), &Analytics::Absent),
        ("a model without a decoder", tensors_alone, &Analytics::Absent),
    ] {
        for labels in [None, Some("")] {
            assert_eq!(&read(labels, &frame), expected, "{why}");
            // Before GStreamer 1.28 copies lose the tensors.
            if gst::version() >= (1, 28, 0, 0) {
                assert_eq!(&read(labels, &frame.copy_deep().unwrap()), expected, "copied: {why}");
            }
        }
    }
}

/// What `ioutracker` makes of frames that a decoder searched, and of frames without metas: the element outputs the same with it and
/// without it.
fn real_tracker() {
    type Attach = fn(gst::Buffer, &dyn Fn(Meta)) -> gst::Buffer;
    let mut tracker = gst_check::Harness::new("ioutracker");
    let info = info(VideoFormat::Gray8, 128, 96);
    tracker.play();
    tracker.set_src_caps(info.to_caps().unwrap());
    let blur = || Blur::with("backend=cpu cover=fill region-mode=inside hold-time=0", &info);
    let (mut with, mut without) = (blur(), blur());
    let face = |meta: Meta| _ = meta.detection(Some("face"), [16, 16, 32, 32], 1.0);
    let found: Attach = |frame, face| decoded(frame, face);
    let nothing: Attach = |frame, _| decoded(frame, |_| ());
    let lost: Attach = |frame, _| frame;
    let mut written = Vec::new();
    // By default a track ends with the fifth frame without its object.
    let frames = [&[lost, nothing, found, found][..], &[nothing; 6], &[lost, found], &[lost; 6], &[nothing]].concat();
    for (number, attach) in frames.into_iter().enumerate() {
        let frame = || attach(gst::Buffer::from_mut_slice(vec![200; 128 * 96]), &face);
        let mut tracked = frame();
        tracked.get_mut().unwrap().set_pts(number as u64 * 40 * gst::ClockTime::MSECOND);
        tracker.push(tracked).unwrap();
        let tracked = tracker.pull().unwrap();
        written.push(entries(&tracked));
        assert_eq!(kind(&read(None, &tracked)), kind(&read(None, &frame())), "frame {number}");
        let outputs = [with.push(tracked), without.push(frame())].map(|output| output.map_readable().unwrap().to_vec());
        assert!(outputs[0] == outputs[1], "frame {number}");
    }
    // The tracker's own metas, without which this says nothing.
    let tracks = |count: usize| Some([0, count]);
    let expected = [
        &[None, tracks(0), Some([1, 1]), Some([1, 1])][..],
        &[tracks(1); 5],
        &[tracks(0), None, Some([1, 1])],
        &[tracks(1); 5],
        &[None, tracks(0)],
    ];
    assert_eq!(written, expected.concat());
}

/// What is read, without details.
fn kind(read: &Analytics) -> Option<usize> {
    match read {
        Analytics::Absent => None,
        Analytics::Present(found) => Some(found.len()),
        Analytics::Unreadable => panic!("unreadable"),
    }
}

/// The number of detections and of tracks in the relation meta of a buffer, if it has one.
fn entries(buffer: &gst::Buffer) -> Option<[usize; 2]> {
    type Get = unsafe extern "C" fn(*mut GstBuffer) -> Raw;
    type Iterate = unsafe extern "C" fn(Raw, *mut *mut c_void, usize, *mut Mtd) -> i32;
    type MtdType = unsafe extern "C" fn() -> usize;
    // SAFETY: the function only reads the buffer, which is live.
    let meta = unsafe { symbol::<Get>("gst_buffer_get_analytics_relation_meta")(buffer.as_ptr().cast_mut()) };
    (!meta.is_null()).then(|| {
        ["gst_analytics_od_mtd_get_mtd_type", "gst_analytics_tracking_mtd_get_mtd_type"].map(|of| {
            let (mut state, mut mtd) = (ptr::null_mut(), Mtd { id: 0, meta: ptr::null_mut() });
            // SAFETY: the meta is live, and `state` is null at first, and then what the function stored in it.
            let next = || unsafe {
                function::<Iterate>("iterate")(meta, &raw mut state, symbol::<MtdType>(of)(), &raw mut mtd)
            };
            std::iter::repeat_with(next).take_while(|is_entry| *is_entry != 0).count()
        })
    })
}

fn oriented() {
    use std::f32::consts::{FRAC_PI_2, FRAC_PI_4};
    let half = 100.0 / 2.0_f64.sqrt() / 2.0;
    for (place, angle, tolerance, expected) in [
        ([100, 100, 80, 20], 0.0, 0.0, [100.0, 100.0, 180.0, 120.0]),
        ([100, 100, 80, 20], FRAC_PI_2, 1e-4, [130.0, 70.0, 150.0, 150.0]),
        ([100, 100, 80, 20], FRAC_PI_4, 1e-4, [140.0 - half, 110.0 - half, 140.0 + half, 110.0 + half]),
        ([100, 100, 30, 40], f32::NAN, 1e-4, [90.0, 95.0, 140.0, 145.0]),
    ] {
        let found = found(None, |meta| _ = meta.oriented(place, angle));
        let [Detection { area, .. }] = found[..] else { panic!("{found:?}") };
        let edges = area.edges();
        let is_near = edges.iter().zip(expected).all(|(edge, expected)| (edge - expected).abs() <= tolerance);
        assert!(is_near, "{place:?} by {angle}: {edges:?} {expected:?}");
    }
}

const BOX: Place = [10, 20, 8, 4];
const EDGES: [f64; 4] = [10.0, 20.0, 18.0, 24.0];
const IDS: [u8; 8] = [0, 3, 3, 0, 0, 0, 200, 0];

fn related_masks() {
    for relation in relations() {
        let frame = frame(|meta| {
            let [_other, person] = [1.0, 0.5].map(|confidence| meta.detection(Some("person"), BOX, confidence));
            // Ids that no sample has, as upstream's decoder declares.
            let segmentation = meta.segmentation(Image::gray8(4, &IDS).declaring(&[0]));
            meta.relate_reversed(relation, person, segmentation);
        });
        let mask = Some(mask(4, &IDS, |id| id > 0, Area::from_edges(EDGES)));
        for (labels, mask) in [(Some(""), mask.clone()), (Some("Person"), mask), (Some("face"), None), (None, None)] {
            let [other, person] = [1.0, 0.5].map(|confidence| boxed(Some("person"), Some(confidence), EDGES));
            let expected = [other, Detection { mask, ..person }];
            assert_eq!(present(read(labels, &frame)), expected, "{relation:?} {labels:?}");
        }
    }
}

/// Of a detection, of one with several, and of a segmentation that stands alone, in a frame at 200 ms that lasts for 40 ms.
fn old_masks() {
    for (times, is_alone, is_old) in [
        (&[Some(120)][..], false, true),
        (&[Some(200), Some(120)], false, true),
        (&[Some(120), Some(200)], false, true),
        (&[Some(200), None], false, false),
        (&[Some(120)], true, true),
        (&[Some(200)], true, false),
    ] {
        let frame = frame(|meta| {
            let person = (!is_alone).then(|| meta.detection(Some("person"), BOX, 1.0));
            for time in times.iter().map(|time| time.map(gst::ClockTime::from_mseconds)) {
                let segmentation = meta.segmentation(Image { time, ..Image::gray8(4, &IDS) }.declaring(&[0]));
                person.iter().for_each(|person| meta.relate(CONTAIN, *person, segmentation));
            }
        });
        let labels = Labels::default();
        let mut masks = MaskReader::new(&labels).of_frame(Some(200_000_000), 40_000_000);
        let found = present(analytics::read(&frame, Some(&mut masks)));
        assert_eq!(found.len(), if is_alone { 2 } else { 1 }, "{times:?}");
        let is_expected = |one: &Detection| one.mask.is_some() && one.has_old_mask == is_old;
        assert!(found.iter().all(is_expected), "{times:?} {is_alone}: {found:?}");
    }
}

fn classes() {
    // Three classes over 16×8 from (100,50) on, of which the meta names two.
    const CLASSES: [u8; 8] = [0, 12, 12, 31, 0, 12, 0, 15];
    let image = || Image::gray8(4, &CLASSES).over([100, 50, 16, 8]);
    let class = |label, id, edges, is_selected| {
        // Up to two samples around the object.
        let first = if id == 12 { 0 } else { 1 };
        let ids: Vec<u8> = CLASSES.chunks(4).flat_map(|row| row[first..].to_vec()).collect();
        let of_mask = Area::from_edges([100.0 + 4.0 * first as f64, 50.0, 116.0, 58.0]);
        let mask = mask(4 - first as u32, &ids, |other| other == id, of_mask);
        let (mask, certain) = if is_selected { (Some(mask), Some(Area::from_edges(edges))) } else { (None, None) };
        Detection { mask, certain, ..boxed(Some(label), None, edges) }
    };
    for relation in relations() {
        let frame = frame(|meta| {
            // Neither a list of another length nor the order of ids decides.
            let other = meta.classes(&[Some("outdoor")]);
            let classes = meta.classes(&[Some("background"), Some("leaf"), Some(" Strawberry ")]);
            let segmentation = meta.segmentation(image().declaring(&[0, 31, 12]));
            [other, classes].into_iter().for_each(|one| meta.relate_reversed(relation, segmentation, one));
        });
        for (labels, has_leaf) in [("", true), ("strawberry, 15", false)] {
            let expected = [
                class("Strawberry", 12, [104.0, 50.0, 112.0, 58.0], true),
                class("15", 15, [112.0, 54.0, 116.0, 58.0], true),
                class("leaf", 31, [112.0, 50.0, 116.0, 54.0], has_leaf),
            ];
            assert_eq!(present(read(Some(labels), &frame)), expected, "{relation:?} {labels}");
        }
        assert_eq!(read(None, &frame), Analytics::Unreadable, "without masks");
    }
    let beside = found(Some(""), |meta| {
        meta.segmentation(image());
        meta.detection(Some("face"), BOX, 1.0);
    });
    let labels: Vec<_> = beside.into_iter().map(|detection| detection.label.unwrap()).collect();
    assert_eq!(labels, ["face", "12", "15", "31"], "a detector of objects beside it does not hide it");
    let nothing = |meta: Meta| _ = meta.segmentation(Image::gray8(4, &[0; 8]).declaring(&[0, 1]));
    assert_eq!(found(Some(""), nothing), [], "it has looked, and found nothing");
}

fn background() {
    for (names, labels, expected) in [
        (&[][..], "", &["1", "2"][..]),
        (&[], "0", &["0"]),
        (&[Some("background"), Some("cat"), Some("dog")], "", &["cat", "dog"]),
        (&[Some("background"), Some("cat"), Some("dog")], "Background", &["background"]),
        (&[Some("road"), Some("cat"), None], "", &["road", "cat", "2"]),
        (&[Some("road"), Some("__background__"), Some("dog")], "", &["road", "dog"]),
        (&[None], "", &["1", "2"]),
    ] {
        let found = found(Some(labels), |meta| {
            let segmentation = meta.segmentation(Image::gray8(4, &[0, 1, 1, 2]).declaring(&[0, 1, 2]));
            if !names.is_empty() {
                meta.relate(N_TO_N, segmentation, meta.classes(names));
            }
        });
        let masked = found.iter().filter(|detection| detection.mask.is_some());
        let found: Vec<_> = masked.map(|detection| detection.label.as_deref().unwrap()).collect();
        assert_eq!(found, expected, "{names:?} {labels}");
    }
    // As many objects as are read, and one more.
    for (count, is_read) in [(1024, true), (1025, false)] {
        let bytes = (1..=count).flat_map(u16::to_le_bytes).collect();
        let (format, size, stride) = (VideoFormat::Gray16Le, [u32::from(count), 1], i32::from(count) * 2);
        let image = Image { format, size, stride, bytes, ..Image::gray8(1, &[]) }.over([0, 0, 2048, 4]);
        match read(Some("1"), &frame(|meta| _ = meta.segmentation(image))) {
            Analytics::Present(found) if is_read => assert_eq!(found.len(), 1024),
            other => assert_eq!((other, is_read), (Analytics::Unreadable, false), "{count} objects"),
        }
    }
}

/// A segmentation that stands alone makes the frame unreadable, one that is related to a detection leaves its box.
fn unreadable_masks() {
    let image = || Image::gray8(4, &[1; 8]);
    for (why, image) in [
        ("no stride", Image { stride: 0, ..image() }),
        ("16 bits in half the bytes", Image { format: VideoFormat::Gray16Le, ..image() }),
        ("no place", image().over([10, 20, 0, 0])),
    ] {
        let image = image.declaring(&[0, 1]);
        let alone = frame(|meta| _ = meta.segmentation(image.clone()));
        assert_eq!(read(Some(""), &alone), Analytics::Unreadable, "{why}");
        let related = frame(|meta| {
            let segmentation = meta.segmentation(image);
            meta.relate(RELATE_TO, meta.detection(Some("face"), BOX, 1.0), segmentation);
        });
        let face = boxed(Some("face"), Some(1.0), EDGES);
        assert_eq!(read(Some(""), &related), Analytics::Present(vec![face]), "{why}");
    }
    // The library refuses other formats, which a producer may still write later.
    let image = image().buffer();
    let frame = frame(|meta| _ = meta.segmentation_of(image.clone(), &[], BOX));
    let of_image = image.meta::<gst_video::VideoMeta>().unwrap().as_ptr().cast_mut();
    // SAFETY: the meta is live as long as `image`, and nothing else uses it now.
    unsafe { (*of_image).format = VideoFormat::Rgba.into_glib() };
    assert_eq!(read(Some(""), &frame), Analytics::Unreadable);
}

/// Detections with boxes of these columns share two equal rows of samples of 4×4 luma samples.
fn shared_masks() {
    const LEFT: [i64; 2] = [0, 8];
    const MIDDLE: [i64; 2] = [12, 20];
    const RIGHT: [i64; 2] = [24, 32];
    const ALL: &[[i64; 2]] = &[LEFT, MIDDLE, RIGHT];
    const OVERLAPPING: &[[i64; 2]] = &[[0, 14], [8, 24]];
    const MIXED: u32 = 0;
    for (why, boxes, samples, ids, relation, objects) in [
        ("ids in the order of the boxes", ALL, "55077099", &[5, 7, 9][..], N_TO_N, ALL),
        ("the background's id before them", ALL, "55077099", &[0, 5, 7, 9], N_TO_N, ALL),
        ("another order", &[RIGHT, LEFT, MIDDLE], "55077099", &[0, 9, 5, 7], N_TO_N, &[RIGHT, LEFT, MIDDLE]),
        ("ids of other boxes: what is in each", ALL, "55077099", &[9, 7, 5], N_TO_N, ALL),
        ("ids of nothing: what is in each", ALL, "55077099", &[1, 2, 3], N_TO_N, ALL),
        ("too large an id: what is in each", ALL, "55077099", &[65541, 7, 9], N_TO_N, ALL),
        ("no ids: what is in each", ALL, "55077099", &[], N_TO_N, ALL),
        ("another relation", &[MIDDLE, LEFT, RIGHT], "55077099", &[5, 7, 9], RELATE_TO, &[MIDDLE, LEFT, RIGHT]),
        ("one box alone: other objects are not in it", &[MIDDLE], "55077099", &[5, 7, 9], N_TO_N, &[MIDDLE]),
        ("for one alone its one object, also beyond its box", &[[0, 8]], "0555", &[], N_TO_N, &[[4, 16]]),
        ("of several objects what is in the box", &[[0, 8]], "0557", &[], N_TO_N, &[[4, 8]]),
        ("shared", &[[0, 8], [8, 16]], "0555", &[], N_TO_N, &[[4, 8], [8, 16]]),
        ("not shared: ids do not say which is its own", &[[0, 12]], "5570", &[5], N_TO_N, &[[0, 12]]),
        ("boxes that overlap: by ids its own object", OVERLAPPING, "55577700", &[5, 7], N_TO_N, &[[0, 12], [12, 24]]),
        ("by wrong ids all in the box", OVERLAPPING, "55577700", &[7, 5], N_TO_N, &[[0, 16], [8, 24]]),
        ("by a relation that does not say which", OVERLAPPING, "55577700", &[5, 7], RELATE_TO, &[[0, 16], [8, 24]]),
        ("by two of which one does not", OVERLAPPING, "55577700", &[5, 7], MIXED, &[[0, 16], [8, 24]]),
    ] {
        let masks = masks(|meta| {
            let of = |[left, right]: &[i64; 2]| meta.detection(None, [*left, 0, right - left, 8], 1.0);
            let detections: Vec<_> = boxes.iter().map(of).collect();
            let (columns, rows) = (samples.len() as u32, samples.repeat(2));
            let samples: Vec<u8> = rows.bytes().map(|id| id - b'0').collect();
            let image = Image::gray8(columns, &samples).declaring(ids).over([0, 0, 4 * i64::from(columns), 8]);
            let segmentation = meta.segmentation(image);
            let relations = if relation == MIXED { [N_TO_N, RELATE_TO] } else { [relation; 2] };
            let detections = detections.into_iter().zip(relations.into_iter().cycle());
            detections.for_each(|(one, of)| meta.relate(of, segmentation, one));
        });
        let found: Vec<_> = masks.into_iter().map(|mask| mask.and_then(|mask| mask.object())).collect();
        let expected = |[left, right]: &[i64; 2]| Some(Area::from_edges([*left as f64, 0.0, *right as f64, 8.0]));
        assert_eq!(found, objects.iter().map(expected).collect::<Vec<_>>(), "{why}");
    }
}

fn masks_in_the_box() {
    let (far, low, high) = (i64::from(i32::MAX), i64::from(i32::MIN), i64::from(u32::MAX));
    let ones = || Image::gray8(4, &[1; 8]);
    let part = |columns, ids: &[u8], x| Image::gray8(columns, ids).over([x, 20, 4, 4]);
    let united = [1, 1, 1, 0, 1, 1, 0, 1];
    for (why, place, images, ids) in [
        ("a mask of the box", BOX, vec![Image::gray8(4, &IDS)], Some(&IDS)),
        ("a mask that is larger than its box", BOX, vec![ones().over([-4, -6, 80, 80])], Some(&[1; 8])),
        ("an empty mask", BOX, vec![Image::gray8(4, &[0; 8])], None),
        ("a mask beside the box", BOX, vec![ones().over([18, 20, 8, 4])], None),
        ("an object beside the box", BOX, vec![Image::gray8(4, &[0, 0, 1, 1]).over([14, 20, 8, 4])], None),
        ("no box", [10, 20, 0, 0], vec![ones()], None),
        ("far away", [far, low, far, far], vec![ones().over([far, low, high, high])], Some(&[1; 8])),
        ("two beside each other", BOX, vec![part(1, &[1], 10), part(2, &[1, 0, 0, 1], 14)], Some(&united)),
        ("a part that cannot be read", BOX, vec![part(1, &[1], 10), Image::unreadable().over([14, 20, 4, 4])], None),
        ("no part has a sample", BOX, vec![part(1, &[0], 10), part(2, &[0; 4], 14)], None),
    ] {
        let area = |[x, y, width, height]: Place| Area::from_corner(x as f64, y as f64, width as f64, height as f64);
        let area = if images.len() > 1 { Area::from_edges(EDGES) } else { area(images[0].place) };
        let found = masks(|meta| {
            let detection = meta.detection(None, place, 1.0);
            let images = images.into_iter().map(|image| image.declaring(&[1]));
            images.for_each(|image| meta.relate(CONTAIN, detection, meta.segmentation(image)));
        });
        assert_eq!(found, [ids.map(|ids| mask(4, ids, |id| id > 0, area))], "{why}");
    }
    let masks = masks(|meta| {
        meta.relate(RELATE_TO, meta.oriented(BOX, f32::NAN), meta.segmentation(Image::gray8(4, &IDS)));
    });
    assert!(masks[0].is_some(), "a box of unknown rotation");
}

/// Its pool has buffers for the whole of the network's masks, and it relates both to each other.
fn masks_of_the_yolo_decoder() {
    let of_pool = |stride| Image { size: [4, 2], stride, ..Image::gray8(16, &[2; 256]) };
    let is_read = |image: Image| {
        let masks = masks(|meta| {
            let detection = meta.detection(None, [image.place[0], image.place[1], 8, 4], 1.0);
            let segmentation = meta.segmentation(image);
            meta.relate(RELATE_TO, detection, segmentation);
            meta.relate(RELATE_TO, segmentation, detection);
        });
        masks[0].is_some()
    };
    let its = |image: Image| is_read(image.declaring(&[0]));
    assert!(its(of_pool(4)));
    assert!(!its(of_pool(16)), "rows that follow one another, whatever the meta says");
    assert!(!its(of_pool(4).over([-1, 0, 8, 4])), "a mask that it does not write");
    assert!(!its(of_pool(4).over([0, -1, 8, 4])), "a mask that it does not write");
    // What others attach beside it is not its.
    for ids in [&[][..], &[2], &[0, 2]] {
        assert!(is_read(of_pool(16).declaring(ids)), "padded rows of another producer, which declares {ids:?}");
        let outside = of_pool(4).over([-1, 0, 9, 4]);
        assert!(is_read(outside.declaring(ids)), "a box that begins outside, of another producer: {ids:?}");
    }
}

/// Whatever a producer writes: no panic, and nothing that the element cannot use.
fn random_metas() {
    let mut noise = Noise(1);
    let mut random = move |below: usize| noise.next() as usize % below;
    let (mut unreadable, mut masks) = (0, 0);
    for _ in 0..3000 {
        let mut buffer = gst::Buffer::new();
        let meta = Meta::add(&mut buffer);
        let mut entries = Vec::new();
        for _ in 0..random(6) {
            let random_place = [(); 4].map(|()| [0, 1, 7, 40, -9, i32::MAX, i32::MIN][random(7)].into());
            let place = if random(2) == 0 { [0, 0, 40, 40] } else { random_place };
            entries.push(match random(8) {
                0 => meta.oriented(place, [0.5, f32::NAN, f32::INFINITY][random(3)]),
                1..4 => meta.detection([None, Some("a"), Some("b")][random(3)], place, 0.5),
                4 => meta.classes(&[Some("a"), None, Some("b"), Some("background")][..random(5)]),
                _ => {
                    let size = [random(9) as u32, random(9) as u32];
                    let wide = [VideoFormat::Gray8, VideoFormat::Gray16Le, VideoFormat::Gray16Be][random(3)];
                    let place = if random(3) == 0 { [place[0], place[1], u32::MAX.into(), 9] } else { [0, 0, 40, 40] };
                    meta.segmentation(Image {
                        format: if random(2) == 0 { wide } else { VideoFormat::Gray8 },
                        stride: [size[0] as i32 * 2, size[0] as i32, -1, random(30) as i32][random(4)],
                        offset: [0, 0, random(40), usize::MAX][random(4)],
                        bytes: (0..random(200)).map(|_| random(5) as u8).collect(),
                        size: if random(9) == 0 { [u32::MAX, 5000] } else { size },
                        time: None,
                        ids: (0..random(4)).map(|_| [0, 1, 2, 3, u32::MAX][random(5)]).collect(),
                        place,
                    })
                }
            });
        }
        for _ in 0..random(8) * entries.len().min(1) {
            let (from, to) = (entries[random(entries.len())], entries[random(entries.len())]);
            meta.relate(RELATIONS[random(4)], from, to);
        }
        match read(Some(["", "a", "b,1", "background"][random(4)]), &buffer) {
            Analytics::Unreadable => unreadable += 1,
            Analytics::Absent => (),
            Analytics::Present(found) => {
                for detection in found.iter().filter(|detection| detection.mask.is_some()) {
                    let object = detection.mask.as_ref().and_then(Mask::object).unwrap();
                    assert!(!object.intersection(detection.area).is_empty(), "{detection:?}");
                    masks += 1;
                }
            }
        }
    }
    assert!(unreadable > 100 && masks > 100, "{unreadable} unreadable, {masks} masks");
}

const FRAME: Place = [0, 0, 128, 96];

/// What the element makes of a grey GRAY8 frame of 128x96.
fn output(mode: &str, labels: &str, attach: &dyn Fn(gst::Buffer) -> gst::Buffer) -> Vec<u8> {
    let properties = format!("backend=cpu cover=fill shape=mask region-mode={mode} labels={labels}");
    let frame = attach(gst::Buffer::from_mut_slice(vec![200; 128 * 96]));
    Blur::with(&properties, &info(VideoFormat::Gray8, 128, 96)).push(frame).map_readable().unwrap().to_vec()
}

/// A segmentation covers and shows as masks of regions of interest do. Its left third is of the id 1, the right third of 2.
fn covered_by_segmentations() {
    let thirds = |format| {
        let ids: Vec<u8> = (0..16 * 12).map(|i| [1, 0, 2][(i % 16) / 6]).collect();
        let bytes = ids.iter().flat_map(|id| [0, *id]).collect();
        let image = Image::gray8(16, &ids).over(FRAME);
        if format == VideoFormat::Gray8 { image } else { Image { format, stride: 32, bytes, ..image } }
    };
    let person = |meta: Meta, width, image: Image| {
        let detection = meta.detection(Some("person"), [0, 0, width, 96], 1.0);
        meta.relate(RELATE_TO, detection, meta.segmentation(image.declaring(&[0])));
    };
    let mask = |meta: Meta| person(meta, 48, thirds(VideoFormat::Gray16Be));
    let classes = |meta: Meta| {
        let segmentation = meta.segmentation(thirds(VideoFormat::Gray8).declaring(&[0, 1, 2]));
        meta.relate(N_TO_N, segmentation, meta.classes(&[Some("background"), Some("cat"), Some("person")]));
    };
    // Of the last region only the number is known.
    let nameless = |meta: Meta| {
        let segmentation = meta.segmentation(thirds(VideoFormat::Gray8).declaring(&[0, 1, 2]));
        meta.relate(N_TO_N, segmentation, meta.classes(&[Some("background"), Some("cat")]));
    };
    let attached = |attach: &dyn Fn(Meta), mut frame: gst::Buffer| {
        attach(Meta::add(&mut frame));
        frame
    };
    for (labels, attach, columns) in [
        ("", &mask as &dyn Fn(Meta), &[[0, 6]][..]),
        ("person", &classes, &[[12, 16]]),
        ("background", &classes, &[[6, 12]]),
        ("", &classes, &[[0, 6], [12, 16]]),
        ("2", &nameless, &[[12, 16]]),
    ] {
        let with_masks = |frame: gst::Buffer| {
            columns.iter().fold(frame, |frame, [first, end]| {
                let mask = stream::mask([16, 12], |x, _| if (*first..*end).contains(&x) { 255 } else { 0 });
                with_param(frame, labels, (0, 0, 128, 96), Some(mask_param(mask)))
            })
        };
        for mode in ["inside", "outside"] {
            let got = output(mode, labels, &|frame| attached(attach, frame));
            assert!(got == output(mode, labels, &with_masks), "{mode} {labels} {columns:?}");
            assert!(got.contains(&0) && got.contains(&200), "{mode} {labels} {columns:?}");
        }
    }
    // A region without a label is covered, and is not shown.
    for (mode, left, right) in [("inside", 0, 0), ("outside", 200, 0)] {
        let got = output(mode, "cat", &|frame| attached(&nameless, frame));
        assert_eq!([got[0], got[127]], [left, right], "{mode}");
    }
    let unreadable_mask = |meta: Meta| person(meta, 128, Image::unreadable().over(FRAME));
    let unreadable = |meta: Meta| _ = meta.segmentation(Image::unreadable().over(FRAME));
    let empty = |meta: Meta| _ = meta.segmentation(Image::gray8(2, &[0; 4]).declaring(&[0, 1]).over(FRAME));
    for (attach, inside) in [
        // The box of a mask that cannot be read is covered, and is not shown.
        (&unreadable_mask as &dyn Fn(Meta), 0),
        // An unreadable one is a detector that did not look.
        (&unreadable, 0),
        (&empty, 200),
    ] {
        for (mode, expected) in [("inside", inside), ("outside", 0)] {
            let got = output(mode, "", &|frame| attached(attach, frame));
            assert!(got.iter().all(|sample| *sample == expected), "{mode} {expected}");
        }
    }
}
