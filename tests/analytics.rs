//! Detections in GstAnalyticsRelationMeta, attached by libgstanalytics itself. Tests are ignored if the library is not
//! installed (it exists since GStreamer 1.24) or lacks what they need.

mod common;

use std::ffi::c_void;
use std::ptr;
use std::sync::LazyLock;

use common::Noise;
use common::video::{Blur, info};
use gst::ffi::GstBuffer;
use gst::glib;
use gst::glib::ffi::GQuark;
use gst::glib::translate::{IntoGlib, IntoGlibPtr};
use gst::prelude::*;
use gst_video::VideoFormat;
use gstcudagaussblur::element::regions::analytics::{self, Analytics};
use gstcudagaussblur::filter::regions::Area;
use gstcudagaussblur::filter::weights::Mask;
use gstcudagaussblur::regions::detection::{Detection, Labels};
use gstcudagaussblur::regions::masks::MaskReader;
use libtest_mimic::{Arguments, Failed, Trial};

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

/// A `GstAnalyticsRelationMeta`.
type Raw = *mut c_void;
type AddDetection = unsafe extern "C" fn(Raw, GQuark, i32, i32, i32, i32, f32, *mut Mtd) -> i32;
type AddOriented = unsafe extern "C" fn(Raw, GQuark, i32, i32, i32, i32, f32, f32, *mut Mtd) -> i32;
type AddClasses = unsafe extern "C" fn(Raw, usize, *const f32, *const GQuark, *mut Mtd) -> i32;
type AddSegmentation =
    unsafe extern "C" fn(Raw, *mut GstBuffer, i32, usize, *const u32, i32, i32, u32, u32, *mut Mtd) -> i32;

/// The functions that attach metas, as the library's headers declare them. The optional ones exist since GStreamer 1.26.
struct Library {
    meta_info: unsafe extern "C" fn() -> *const gst::ffi::GstMetaInfo,
    add_detection: AddDetection,
    add_oriented: Option<AddOriented>,
    add_tracking: unsafe extern "C" fn(Raw, u64, gst::ffi::GstClockTime, *mut Mtd) -> i32,
    add_classes: AddClasses,
    add_segmentation: Option<AddSegmentation>,
    set_relation: unsafe extern "C" fn(Raw, u32, u32, u32) -> i32,
}

static LIBRARY: LazyLock<Option<Library>> = LazyLock::new(Library::open);

impl Library {
    fn open() -> Option<Self> {
        let name = if cfg!(windows) { "gstanalytics-1.0-0.dll" } else { "libgstanalytics-1.0.so.0" };
        // SAFETY: the library's initialisers only register data of its own.
        let library = unsafe { libloading::Library::new(name) }.ok()?;
        let library: &libloading::Library = Box::leak(Box::new(library));
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: the field has the type of the function of this name, and the library is never unloaded.
                unsafe { library.get(concat!("gst_analytics_relation_meta_", $name).as_bytes()) }
                    .ok()
                    .map(|symbol| *symbol)
            };
        }
        Some(Self {
            meta_info: symbol!("get_info")?,
            add_detection: symbol!("add_od_mtd")?,
            add_oriented: symbol!("add_oriented_od_mtd"),
            add_tracking: symbol!("add_tracking_mtd")?,
            add_classes: symbol!("add_cls_mtd")?,
            add_segmentation: symbol!("add_segmentation_mtd"),
            set_relation: symbol!("set_relation")?,
        })
    }
}

fn library() -> &'static Library {
    LIBRARY.as_ref().expect("tests without the library are ignored")
}

/// Whether the library has the functions that came with GStreamer 1.26.
fn is_new() -> bool {
    LIBRARY.as_ref().is_some_and(|library| library.add_oriented.is_some() && library.add_segmentation.is_some())
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
        // SAFETY: the buffer is live and writable, and the parameters are those of this meta. The buffer outlives the
        // meta, because the tests drop it last.
        let meta = unsafe { gst::ffi::gst_buffer_add_meta(buffer, (library().meta_info)(), (&raw mut room).cast()) };
        assert!(!meta.is_null());
        Self(meta.cast())
    }

    /// The entry that a function of the library adds to the live relation meta that it is given.
    fn entry(self, add: impl FnOnce(Raw, *mut Mtd) -> i32) -> Mtd {
        let mut mtd = Mtd { id: 0, meta: ptr::null_mut() };
        assert_ne!(add(self.0, &raw mut mtd), 0);
        mtd
    }

    fn detection(self, label: Option<&str>, place: Place, confidence: f32) -> Mtd {
        let (label, [x, y, width, height]) = (quark(label), place.map(|side| side as i32));
        let add = library().add_detection;
        // SAFETY: `raw` is a live relation meta.
        self.entry(|raw, mtd| unsafe { add(raw, label, x, y, width, height, confidence, mtd) })
    }

    fn oriented(self, place: Place, angle: f32) -> Mtd {
        let (label, [x, y, width, height]) = (quark(Some("ship")), place.map(|side| side as i32));
        let add = library().add_oriented.unwrap();
        // SAFETY: `raw` is a live relation meta.
        self.entry(|raw, mtd| unsafe { add(raw, label, x, y, width, height, angle, 0.5, mtd) })
    }

    fn track(self, id: u64) -> Mtd {
        // SAFETY: `raw` is a live relation meta.
        self.entry(|raw, mtd| unsafe { (library().add_tracking)(raw, id, 0, mtd) })
    }

    fn segmentation(self, image: Image) -> Mtd {
        let (ids, place) = (image.ids.clone(), image.place);
        self.segmentation_of(image.buffer(), &ids, place)
    }

    fn segmentation_of(self, mask: gst::Buffer, ids: &[u32], [x, y, width, height]: Place) -> Mtd {
        let add = library().add_segmentation.unwrap();
        let (x, y, width, height) = (x as i32, y as i32, width as u32, height as u32);
        // SAFETY: `raw` is a live relation meta, which takes ownership of the buffer, and `ids` has the number of ids. The type
        // cannot be read back.
        self.entry(|raw, mtd| unsafe {
            add(raw, mask.into_glib_ptr(), 1, ids.len(), ids.as_ptr(), x, y, width, height, mtd)
        })
    }

    fn classes(self, names: &[Option<&str>]) -> Mtd {
        let names: Vec<_> = names.iter().map(|name| quark(*name)).collect();
        let levels = vec![-1.0; names.len()];
        // SAFETY: `raw` is a live relation meta, and both lists have the number of classes.
        self.entry(|raw, mtd| unsafe {
            (library().add_classes)(raw, names.len(), levels.as_ptr(), names.as_ptr(), mtd)
        })
    }

    fn relate(self, relation: u32, from: Mtd, to: Mtd) {
        // SAFETY: the meta is live, and both are its entries.
        assert_ne!(unsafe { (library().set_relation)(self.0, relation, from.id, to.id) }, 0);
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

/// The mask of a detection at a place that contains these segmentations.
fn mask_of<const N: usize>(place: Place, images: [Image; N]) -> Option<Mask> {
    let attach = |meta: Meta| {
        let detection = meta.detection(None, place, 1.0);
        images.into_iter().for_each(|image| meta.relate(CONTAIN, detection, meta.segmentation(image)));
    };
    masks(attach).remove(0)
}

fn area([left, top, right, bottom]: [f64; 4]) -> Area {
    Area { left, top, right, bottom }
}

/// What is read of a box whose edges are certain, without a mask.
fn boxed(label: Option<&str>, confidence: Option<f32>, edges: [f64; 4]) -> Detection {
    Detection {
        label: label.map(ToOwned::to_owned),
        confidence,
        area: area(edges),
        certain: Some(area(edges)),
        tracking_id: None,
        mask: None,
        has_old_mask: false,
    }
}

fn main() {
    gst::init().unwrap();
    // A critical message says that a test called the library wrongly.
    glib::log_set_always_fatal(glib::LogLevels::LEVEL_CRITICAL | glib::LogLevels::LEVEL_ERROR);
    assert_eq!(analytics::read(&gst::Buffer::new(), None), Analytics::Absent);
    let was_registered = glib::Type::from_name("GstAnalyticsRelationMetaAPI").is_some();
    let has_library = LIBRARY.is_some();
    let test = |name: &str, runs: bool, test: fn()| {
        let lacking = || Failed::from("libgstanalytics lacks what the test needs");
        Trial::test(name, move || runs.then(test).ok_or_else(lacking)).with_ignored_flag(!runs)
    };
    let is_new = is_new();
    let trials = vec![
        Trial::test("buffers_without_metas_do_not_open_the_library", move || {
            let registered = was_registered.then_some("reading a buffer without metas has registered the type");
            registered.map_or(Ok(()), |failed| Err(failed.into()))
        }),
        test("every_meta_of_a_buffer_is_read_and_an_empty_one_says_that_a_detector_looked", has_library, metas),
        test("detections_are_read_with_label_confidence_and_box", has_library, detections),
        test("tracking_ids_are_found_in_either_direction", has_library, tracking),
        test("oriented_boxes_become_the_box_around_them", is_new, oriented),
        test("detections_have_the_masks_that_they_are_related_to", is_new, related_masks),
        test("masks_of_earlier_frames_are_old", is_new, old_masks),
        test("classes_of_a_segmentation_that_stands_alone_are_objects", is_new, classes),
        test("background_is_an_object_only_where_it_is_named", is_new, background),
        test("masks_that_cannot_be_read_leave_the_box_or_the_frame", is_new, unreadable_masks),
        test("detections_that_share_a_segmentation_have_their_regions", is_new, shared_masks),
        test("several_masks_of_a_detection_are_united", is_new, united_masks),
        test("masks_without_an_object_in_the_box_leave_the_box", is_new, masks_elsewhere),
        test("random_metas_are_read_or_refused", is_new, random_metas),
        test("frames_are_covered_by_masks_of_detections", is_new, covered_by_masks),
        test("frames_are_covered_by_classes_of_a_segmentation", is_new, covered_by_classes),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_if_failed();
    // From here on there is a type of this name.
    let decoder = || {
        assert!(glib::Type::from_name("GstYoloSegTensorDecoder").is_none());
        Decoder::static_type();
        masks_of_the_yolo_decoder();
    };
    let trials = vec![test("masks_that_the_yolo_decoder_writes_wrong_leave_the_box", is_new, decoder)];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}

glib::wrapper! {
    /// Stands for GStreamer's element `yolosegv8tensordec`, which is part of 1.28.
    pub struct Decoder(ObjectSubclass<decoder::Decoder>);
}

mod decoder {
    use gst::glib;
    use gst::glib::subclass::prelude::*;

    #[derive(Default)]
    pub struct Decoder;

    #[glib::object_subclass]
    impl ObjectSubclass for Decoder {
        const NAME: &'static str = "GstYoloSegTensorDecoder";
        type Type = super::Decoder;
    }

    impl ObjectImpl for Decoder {}
}

fn metas() {
    assert_eq!(read(None, &gst::Buffer::new()), Analytics::Absent);
    assert_eq!(found(None, |_| ()), []);
    // A track alone says nothing about what is in the frame, so that on-missing decides.
    for labels in [None, Some("")] {
        assert_eq!(read(labels, &frame(|meta| _ = meta.track(1))), Analytics::Absent, "{labels:?}");
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
    for &relation in if is_new() { &RELATIONS[..] } else { &RELATIONS[..3] } {
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
        let edges = [area.left, area.top, area.right, area.bottom];
        let is_near = edges.iter().zip(expected).all(|(edge, expected)| (edge - expected).abs() <= tolerance);
        assert!(is_near, "{place:?} by {angle}: {edges:?} {expected:?}");
    }
}

const BOX: Place = [10, 20, 8, 4];
const EDGES: [f64; 4] = [10.0, 20.0, 18.0, 24.0];
const IDS: [u8; 8] = [0, 3, 3, 0, 0, 0, 200, 0];

fn related_masks() {
    for (relation, is_reversed) in RELATIONS.into_iter().flat_map(|relation| [(relation, false), (relation, true)]) {
        let frame = frame(|meta| {
            let [_other, person] = [1.0, 0.5].map(|confidence| meta.detection(Some("person"), BOX, confidence));
            // Ids that no sample has, as upstream's decoder declares.
            let segmentation = meta.segmentation(Image::gray8(4, &IDS).declaring(&[0]));
            let (from, to) = if is_reversed { (segmentation, person) } else { (person, segmentation) };
            meta.relate(relation, from, to);
        });
        let mask = Some(mask(4, &IDS, |id| id > 0, area(EDGES)));
        for (labels, mask) in [(Some(""), mask.clone()), (Some("Person"), mask), (Some("face"), None), (None, None)] {
            let [other, person] = [1.0, 0.5].map(|confidence| boxed(Some("person"), Some(confidence), EDGES));
            let expected = [other, Detection { mask, ..person }];
            assert_eq!(present(read(labels, &frame)), expected, "{relation} {is_reversed} {labels:?}");
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
        let of_mask = area([100.0 + 4.0 * first as f64, 50.0, 116.0, 58.0]);
        let mask = mask(4 - first as u32, &ids, |other| other == id, of_mask);
        let (mask, certain) = if is_selected { (Some(mask), Some(area(edges))) } else { (None, None) };
        Detection { mask, certain, ..boxed(Some(label), None, edges) }
    };
    for (relation, is_reversed) in RELATIONS.into_iter().flat_map(|relation| [(relation, false), (relation, true)]) {
        let frame = frame(|meta| {
            // Neither a list of another length nor the order of ids decides.
            let other = meta.classes(&[Some("outdoor")]);
            let classes = meta.classes(&[Some("background"), Some("leaf"), Some(" Strawberry ")]);
            let segmentation = meta.segmentation(image().declaring(&[0, 31, 12]));
            for classes in [other, classes] {
                let (from, to) = if is_reversed { (classes, segmentation) } else { (segmentation, classes) };
                meta.relate(relation, from, to);
            }
        });
        for (labels, has_leaf) in [("", true), ("strawberry, 15", false)] {
            let expected = [
                class("Strawberry", 12, [104.0, 50.0, 112.0, 58.0], true),
                class("15", 15, [112.0, 54.0, 116.0, 58.0], true),
                class("leaf", 31, [112.0, 50.0, 116.0, 54.0], has_leaf),
            ];
            assert_eq!(present(read(Some(labels), &frame)), expected, "{relation} {is_reversed} {labels}");
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
        ("a place without height", image().over([10, 20, 8, 0])),
        ("a place without width", image().over([10, 20, 0, 4])),
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
    for (why, boxes, samples, ids, relation, objects) in [
        ("ids in the order of the boxes", ALL, "55077099", &[5, 7, 9][..], N_TO_N, ALL),
        ("the background's id before them", ALL, "55077099", &[0, 5, 7, 9], N_TO_N, ALL),
        ("another order", &[RIGHT, LEFT, MIDDLE], "55077099", &[0, 9, 5, 7], N_TO_N, &[RIGHT, LEFT, MIDDLE]),
        ("ids of other boxes: what is in each", ALL, "55077099", &[9, 7, 5], N_TO_N, ALL),
        ("ids of nothing: what is in each", ALL, "55077099", &[0, 1, 2], N_TO_N, ALL),
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
    ] {
        let masks = masks(|meta| {
            let of = |[left, right]: &[i64; 2]| meta.detection(None, [*left, 0, right - left, 8], 1.0);
            let detections: Vec<_> = boxes.iter().map(of).collect();
            let (columns, rows) = (samples.len() as u32, samples.repeat(2));
            let samples: Vec<u8> = rows.bytes().map(|id| id - b'0').collect();
            let image = Image::gray8(columns, &samples).declaring(ids).over([0, 0, 4 * i64::from(columns), 8]);
            let segmentation = meta.segmentation(image);
            detections.into_iter().for_each(|detection| meta.relate(relation, segmentation, detection));
        });
        let found: Vec<_> = masks.into_iter().map(|mask| mask.and_then(|mask| mask.object())).collect();
        let expected = |[left, right]: &[i64; 2]| Some(area([*left as f64, 0.0, *right as f64, 8.0]));
        assert_eq!(found, objects.iter().map(expected).collect::<Vec<_>>(), "{why}");
    }
}

fn united_masks() {
    let image = |columns, ids: &[u8], x| Image::gray8(columns, ids).over([x, 20, 4, 4]);
    let expected = |ids: [u8; 8]| Some(mask(4, &ids, |id| id > 0, area(EDGES)));
    for (why, images, expected) in [
        ("beside each other", [image(1, &[1], 10), image(2, &[1, 0, 0, 1], 14)], expected([1, 1, 1, 0, 1, 1, 0, 1])),
        ("a part that cannot be read", [image(1, &[1], 10), Image::unreadable().over([14, 20, 4, 4])], None),
        ("no part has a sample", [image(1, &[0], 10), image(2, &[0; 4], 14)], None),
    ] {
        assert_eq!(mask_of(BOX, images), expected, "{why}");
    }
}

fn masks_elsewhere() {
    let (far, low, high) = (i64::from(i32::MAX), i64::from(i32::MIN), i64::from(u32::MAX));
    for (why, place, image, has_mask) in [
        ("a mask of the box", BOX, Image::gray8(4, &IDS), true),
        ("a mask that is larger than its box", BOX, Image::gray8(4, &[1; 8]).over([-4, -6, 80, 80]), true),
        ("an empty mask", BOX, Image::gray8(4, &[0; 8]), false),
        ("a mask beside the box", BOX, Image::gray8(4, &[1; 8]).over([18, 20, 8, 4]), false),
        ("an object beside the box", BOX, Image::gray8(4, &[0, 0, 1, 1]).over([14, 20, 8, 4]), false),
        ("no box", [10, 20, 0, 0], Image::gray8(4, &[1; 8]), false),
        ("far away", [far, low, far, far], Image::gray8(4, &[1; 8]).over([far, low, high, high]), true),
    ] {
        assert_eq!(mask_of(place, [image.declaring(&[0])]).is_some(), has_mask, "{why}");
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

const WIDTH: usize = 128;
const HEIGHT: usize = 96;
const FRAME: Place = [0, 0, WIDTH as i64, HEIGHT as i64];
/// What the frames have that the element gets; covered samples are 0.
const SOURCE: u8 = 200;
/// What is so far from an object, in luma samples, is surely covered or shown: two samples of the masks, and rounding.
const NEAR: usize = 2 * 8 + 2;

/// The samples of a GRAY8 frame, to which `attach` adds metas, after the element.
fn output(properties: &str, attach: &dyn Fn(Meta)) -> Vec<u8> {
    let mut blur = Blur::new(&format!("backend=cpu cover=fill expand=0 shape=mask {properties}"));
    blur.caps(&info(VideoFormat::Gray8, WIDTH as u32, HEIGHT as u32));
    let mut buffer = gst::Buffer::from_mut_slice(vec![SOURCE; WIDTH * HEIGHT]);
    attach(Meta::add(&mut buffer));
    blur.push(buffer).map_readable().unwrap().to_vec()
}

/// Checks that the object is covered and what is not near it is not, with region-mode=inside; with outside, that what is well
/// inside of the object is shown and what is not the object is not.
fn check_output(mode: &str, labels: &str, attach: &dyn Fn(Meta), is_object: &dyn Fn(usize, usize) -> bool) {
    let output = output(&format!("region-mode={mode} labels={labels}"), attach);
    let near = |x: usize, y: usize| {
        let of_columns = x.saturating_sub(NEAR)..(x + NEAR + 1).min(WIDTH);
        (y.saturating_sub(NEAR)..(y + NEAR + 1).min(HEIGHT)).flat_map(move |y| of_columns.clone().map(move |x| (x, y)))
    };
    let (mut covered, mut shown) = (0, 0);
    for (i, sample) in output.into_iter().enumerate() {
        let (x, y) = (i % WIDTH, i / WIDTH);
        let expected = match (mode, is_object(x, y)) {
            ("inside", true) | ("outside", false) => Some(0),
            ("inside", false) if !near(x, y).any(|(x, y)| is_object(x, y)) => Some(SOURCE),
            ("outside", true) if near(x, y).all(|(x, y)| is_object(x, y)) => Some(SOURCE),
            _ => None,
        };
        covered += u32::from(expected == Some(0));
        shown += u32::from(expected == Some(SOURCE));
        let is_right = expected.is_none_or(|expected| expected == sample);
        assert!(is_right, "{mode} {labels} ({x},{y}): {sample} for {expected:?}");
    }
    assert!(covered > 0 && shown > 0, "{mode} {labels}: {covered} {shown}");
}

#[track_caller]
fn check_all_are(expected: u8, mode: &str, attach: &dyn Fn(Meta)) {
    let output = output(&format!("region-mode={mode}"), attach);
    assert!(output.iter().all(|sample| *sample == expected), "{mode}");
}

/// 16×12 samples of 8×8 luma samples: the left third is 1, the right third is 2.
fn thirds(format: VideoFormat) -> Image {
    let ids: Vec<u8> = (0..16 * 12).map(|i| [1, 0, 2][(i % 16) / 6]).collect();
    let image = Image::gray8(16, &ids).over(FRAME);
    let wide = || ids.iter().flat_map(|id| [0, *id]).collect();
    if format == VideoFormat::Gray8 { image } else { Image { format, stride: 32, bytes: wide(), ..image } }
}

fn covered_by_masks() {
    let person = |meta: Meta, width, image| {
        let detection = meta.detection(Some("person"), [0, 0, width, HEIGHT as i64], 1.0);
        meta.relate(RELATE_TO, detection, meta.segmentation(image));
    };
    for mode in ["inside", "outside"] {
        let attach = |meta: Meta| person(meta, 48, thirds(VideoFormat::Gray16Be).declaring(&[0]));
        check_output(mode, "", &attach, &|x, _| x < 48);
        // The box of a mask that cannot be read is covered, and is not shown.
        check_all_are(0, mode, &|meta| person(meta, WIDTH as i64, Image::unreadable().over(FRAME)));
    }
}

fn covered_by_classes() {
    let of_classes = |meta: Meta| {
        let segmentation = meta.segmentation(thirds(VideoFormat::Gray8).declaring(&[0, 1, 2]));
        meta.relate(N_TO_N, segmentation, meta.classes(&[Some("background"), Some("cat"), Some("person")]));
    };
    for mode in ["inside", "outside"] {
        check_output(mode, "person", &of_classes, &|x, _| x >= 96);
        check_output(mode, "cat", &of_classes, &|x, _| x < 48);
        check_output(mode, "background", &of_classes, &|x, _| (48..96).contains(&x));
        // An unreadable one is a detector that did not look.
        check_all_are(0, mode, &|meta| _ = meta.segmentation(Image::unreadable().over(FRAME)));
    }
    check_output("inside", "", &of_classes, &|x, _| !(48..96).contains(&x));
    // Two objects with the same box, each in two of its corners.
    let corners = |meta: Meta| {
        let id = |i: usize| match (i % 16, i / 16) {
            (8..10, 0..2) | (14.., 10..) => 1,
            (14.., 0..2) | (8..10, 10..) => 2,
            _ => 0,
        };
        let ids: Vec<u8> = (0..16 * 12).map(id).collect();
        meta.segmentation(Image::gray8(16, &ids).declaring(&[0, 1, 2]).over(FRAME));
    };
    check_output("inside", "", &corners, &|x, y| matches!((x / 8, y / 8), (8..10 | 14.., 0..2 | 10..)));
    // Nothing was found.
    let empty = |meta: Meta| _ = meta.segmentation(Image::gray8(2, &[0; 4]).declaring(&[0, 1]).over(FRAME));
    check_all_are(SOURCE, "inside", &empty);
    check_all_are(0, "outside", &empty);
}
