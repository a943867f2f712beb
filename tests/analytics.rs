//! Detections in GstAnalyticsRelationMeta, attached by libgstanalytics itself. Tests are ignored if the library is not
//! installed (it exists since GStreamer 1.24) or lacks what they need.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use gst::glib;
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
    id: c_uint,
    meta: *mut c_void,
}

const NO_MTD: Mtd = Mtd { id: 0, meta: ptr::null_mut() };
const IS_PART_OF: c_uint = 1 << 1;
const CONTAIN: c_uint = 1 << 2;
const RELATE_TO: c_uint = 1 << 3;
const N_TO_N: c_uint = 1 << 4;
const RELATIONS: [c_uint; 4] = [IS_PART_OF, CONTAIN, RELATE_TO, N_TO_N];

/// `gst_analytics_relation_meta_add_segmentation_mtd`, since GStreamer 1.26.
type AddSegmentation = unsafe extern "C" fn(
    *mut c_void,
    *mut gst::ffi::GstBuffer,
    c_int,
    usize,
    *const c_uint,
    c_int,
    c_int,
    c_uint,
    c_uint,
    *mut Mtd,
) -> c_int;

/// The functions that attach metas, as the library's headers declare them.
#[derive(Clone, Copy)]
struct Library {
    meta_info: unsafe extern "C" fn() -> *const gst::ffi::GstMetaInfo,
    add_detection:
        unsafe extern "C" fn(*mut c_void, glib::ffi::GQuark, c_int, c_int, c_int, c_int, f32, *mut Mtd) -> c_int,
    /// Since GStreamer 1.26.
    add_oriented: Option<
        unsafe extern "C" fn(*mut c_void, glib::ffi::GQuark, c_int, c_int, c_int, c_int, f32, f32, *mut Mtd) -> c_int,
    >,
    add_tracking: unsafe extern "C" fn(*mut c_void, u64, gst::ffi::GstClockTime, *mut Mtd) -> c_int,
    add_classes: unsafe extern "C" fn(*mut c_void, usize, *const f32, *const glib::ffi::GQuark, *mut Mtd) -> c_int,
    add_segmentation: Option<AddSegmentation>,
    set_relation: unsafe extern "C" fn(*mut c_void, c_uint, c_uint, c_uint) -> c_int,
}

impl Library {
    fn open() -> Option<Self> {
        let name = if cfg!(windows) { "gstanalytics-1.0-0.dll" } else { "libgstanalytics-1.0.so.0" };
        // SAFETY: the library's initialisers only register data of its own.
        let library = unsafe { libloading::Library::new(name) }.ok()?;
        let library: &libloading::Library = Box::leak(Box::new(library));
        macro_rules! symbol {
            ($name:literal) => {
                // SAFETY: the field has the type of the function of this name, and the library is never unloaded.
                unsafe { library.get($name) }.ok().map(|symbol| *symbol)
            };
        }
        Some(Self {
            meta_info: symbol!(b"gst_analytics_relation_meta_get_info\0")?,
            add_detection: symbol!(b"gst_analytics_relation_meta_add_od_mtd\0")?,
            add_oriented: symbol!(b"gst_analytics_relation_meta_add_oriented_od_mtd\0"),
            add_tracking: symbol!(b"gst_analytics_relation_meta_add_tracking_mtd\0")?,
            add_classes: symbol!(b"gst_analytics_relation_meta_add_cls_mtd\0")?,
            add_segmentation: symbol!(b"gst_analytics_relation_meta_add_segmentation_mtd\0"),
            set_relation: symbol!(b"gst_analytics_relation_meta_set_relation\0")?,
        })
    }
}

/// A relation meta of a buffer that the test owns.
#[derive(Clone, Copy)]
struct Meta {
    library: Library,
    raw: *mut c_void,
}

impl Meta {
    /// Adds a meta to those that the buffer has. The library's own function returns an existing one instead.
    fn add(library: Library, buffer: &mut gst::Buffer) -> Self {
        // `GstAnalyticsRelationMetaInitParams`: the relations and the bytes that the meta has room for at first.
        let mut room = [5_usize, 20];
        let buffer = buffer.get_mut().unwrap().as_mut_ptr();
        // SAFETY: the buffer is live and writable, and the parameters are those of this meta. The buffer outlives the
        // meta, because the tests drop it last.
        let meta = unsafe { gst::ffi::gst_buffer_add_meta(buffer, (library.meta_info)(), (&raw mut room).cast()) };
        assert!(!meta.is_null());
        Self { library, raw: meta.cast() }
    }

    fn label(label: Option<&str>) -> glib::ffi::GQuark {
        label.map_or(0, |label| glib::Quark::from_str(label).into_glib())
    }

    fn detection(self, label: Option<&str>, [x, y, width, height]: [c_int; 4], confidence: f32) -> Mtd {
        let mut mtd = NO_MTD;
        let label = Self::label(label);
        // SAFETY: `raw` is a live relation meta.
        let added =
            unsafe { (self.library.add_detection)(self.raw, label, x, y, width, height, confidence, &raw mut mtd) };
        assert_ne!(added, 0);
        mtd
    }

    fn oriented(self, [x, y, width, height]: [c_int; 4], angle: f32) -> Mtd {
        let mut mtd = NO_MTD;
        let add = self.library.add_oriented.unwrap();
        // SAFETY: `raw` is a live relation meta.
        let added = unsafe { add(self.raw, Self::label(Some("ship")), x, y, width, height, angle, 0.5, &raw mut mtd) };
        assert_ne!(added, 0);
        mtd
    }

    fn track(self, id: u64) -> Mtd {
        let mut mtd = NO_MTD;
        // SAFETY: `raw` is a live relation meta.
        assert_ne!(unsafe { (self.library.add_tracking)(self.raw, id, 0, &raw mut mtd) }, 0);
        mtd
    }

    /// A segmentation with a mask over a rectangle: where, then width and height.
    fn segmentation(self, mask: gst::Buffer, ids: &[c_uint], rect: (c_int, c_int, c_uint, c_uint)) -> Mtd {
        let mut mtd = NO_MTD;
        let add = self.library.add_segmentation.unwrap();
        let (x, y, width, height) = rect;
        // SAFETY: `raw` is a live relation meta, which takes ownership of the buffer, and `ids` has the number of ids. The type
        // cannot be read back.
        let added = unsafe {
            let mask = mask.into_glib_ptr();
            add(self.raw, mask, 1, ids.len(), ids.as_ptr(), x, y, width, height, &raw mut mtd)
        };
        assert_ne!(added, 0);
        mtd
    }

    fn classes(self, names: &[Option<&str>]) -> Mtd {
        let mut mtd = NO_MTD;
        let names: Vec<_> = names.iter().map(|name| Self::label(*name)).collect();
        let levels = vec![-1.0; names.len()];
        // SAFETY: `raw` is a live relation meta, and both lists have the number of classes.
        let added =
            unsafe { (self.library.add_classes)(self.raw, names.len(), levels.as_ptr(), names.as_ptr(), &raw mut mtd) };
        assert_ne!(added, 0);
        mtd
    }

    fn relate(self, relation: c_uint, from: Mtd, to: Mtd) {
        // SAFETY: `raw` is a live relation meta, and both are its entries.
        assert_ne!(unsafe { (self.library.set_relation)(self.raw, relation, from.id, to.id) }, 0);
    }
}

fn main() {
    gst::init().unwrap();
    // A critical message says that a test called the library wrongly.
    glib::log_set_always_fatal(glib::LogLevels::LEVEL_CRITICAL | glib::LogLevels::LEVEL_ERROR);
    assert_eq!(analytics::read(&gst::Buffer::new(), None), Analytics::Absent);
    let was_registered = glib::Type::from_name("GstAnalyticsRelationMetaAPI").is_some();
    let library = Library::open();
    let test = |name: &str, runs: bool, test: fn(Library)| {
        let library = library.filter(|_| runs);
        let run = move || library.map(test).ok_or(Failed::from("libgstanalytics lacks what the test needs"));
        Trial::test(name, run).with_ignored_flag(library.is_none())
    };
    let has_segmentation = library.is_some_and(|library| library.add_segmentation.is_some());
    let has_oriented = library.is_some_and(|library| library.add_oriented.is_some());
    let trials = vec![
        Trial::test("buffers_without_metas_do_not_open_the_library", move || {
            let registered = was_registered.then_some("reading a buffer without metas has registered the type");
            registered.map_or(Ok(()), |failed| Err(failed.into()))
        }),
        test("empty_meta_says_that_a_detector_looked", true, empty),
        test("detections_are_read_with_label_confidence_and_box", true, detections),
        test("tracking_ids_are_found_in_either_direction", true, tracking),
        test("all_metas_of_a_buffer_are_read", true, several),
        test("oriented_boxes_become_the_box_around_them", has_oriented, oriented),
        test("detections_have_the_masks_that_they_are_related_to", has_segmentation, related_masks),
        test("masks_of_earlier_frames_are_old", has_segmentation, old_masks),
        test("masks_have_ids_of_8_and_16_bits_and_padding", has_segmentation, mask_formats),
        test("classes_of_a_segmentation_that_stands_alone_are_objects", has_segmentation, classes),
        test("background_is_an_object_only_where_it_is_named", has_segmentation, background),
        test("masks_that_cannot_be_read_leave_the_box_or_the_frame", has_segmentation, unreadable_masks),
        test("detections_that_share_a_segmentation_have_their_regions", has_segmentation, shared_masks),
        test("several_masks_of_a_detection_are_united", has_segmentation, united_masks),
        test("masks_without_an_object_in_the_box_leave_the_box", has_segmentation, masks_elsewhere),
        test("random_metas_are_read_or_refused", has_segmentation, random_metas),
        test("frames_are_covered_by_masks_of_detections", has_segmentation, covered_by_masks),
        test("frames_are_covered_by_classes_of_a_segmentation", has_segmentation, covered_by_classes),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit_if_failed();
    // From here on there is a type of this name.
    let decoder = |library| {
        assert!(glib::Type::from_name("GstYoloSegTensorDecoder").is_none());
        Decoder::static_type();
        masks_of_the_yolo_decoder(library);
    };
    let trials = vec![test("masks_that_the_yolo_decoder_writes_wrong_leave_the_box", has_segmentation, decoder)];
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

fn read(buffer: &gst::Buffer) -> Vec<Detection> {
    match analytics::read(buffer, None) {
        Analytics::Present(detections) => detections,
        other => panic!("{other:?}"),
    }
}

fn empty(library: Library) {
    let mut buffer = gst::Buffer::new();
    assert_eq!(analytics::read(&buffer, None), Analytics::Absent);
    Meta::add(library, &mut buffer);
    assert_eq!(read(&buffer), []);
    // A track alone says nothing about what is in the frame, so that on-missing decides.
    let mut buffer = gst::Buffer::new();
    Meta::add(library, &mut buffer).track(1);
    assert_eq!(analytics::read(&buffer, None), Analytics::Absent);
    assert_eq!(read_masks(&buffer, ""), Analytics::Absent);
}

fn detections(library: Library) {
    let mut buffer = gst::Buffer::new();
    let meta = Meta::add(library, &mut buffer);
    meta.detection(Some("person"), [10, 20, 30, 40], 0.75);
    meta.detection(None, [-5, -6, 7, 8], f32::NAN);
    meta.detection(Some("person"), [i32::MAX, i32::MIN, i32::MAX, i32::MAX], -1.0);
    // The corners may be swapped, or the box may be none.
    meta.detection(None, [10, 10, -5, 5], 1.0);
    let person = Some("person".to_owned());
    let large = f64::from(i32::MAX);
    assert_eq!(
        read(&buffer),
        [
            Detection {
                label: person.clone(),
                confidence: Some(0.75),
                area: Area { left: 10.0, top: 20.0, right: 40.0, bottom: 60.0 },
                certain: Some(Area { left: 10.0, top: 20.0, right: 40.0, bottom: 60.0 }),
                tracking_id: None,
                mask: None,
                has_old_mask: false,
            },
            Detection {
                label: None,
                confidence: None,
                area: Area { left: -5.0, top: -6.0, right: 2.0, bottom: 2.0 },
                certain: Some(Area { left: -5.0, top: -6.0, right: 2.0, bottom: 2.0 }),
                tracking_id: None,
                mask: None,
                has_old_mask: false,
            },
            Detection {
                label: person,
                confidence: None,
                area: Area { left: large, top: -large - 1.0, right: large * 2.0, bottom: -1.0 },
                certain: Some(Area { left: large, top: -large - 1.0, right: large * 2.0, bottom: -1.0 }),
                tracking_id: None,
                mask: None,
                has_old_mask: false,
            },
            Detection {
                label: None,
                confidence: Some(1.0),
                area: Area { left: 5.0, top: 10.0, right: 10.0, bottom: 15.0 },
                certain: None,
                tracking_id: None,
                mask: None,
                has_old_mask: false,
            },
        ]
    );
}

fn tracking(library: Library) {
    // GStreamer 1.24 has neither segmentations nor the last relation.
    let known = if library.add_segmentation.is_some() { &RELATIONS[..] } else { &RELATIONS[..3] };
    for &relation in known {
        let mut buffer = gst::Buffer::new();
        let meta = Meta::add(library, &mut buffer);
        let one = meta.detection(Some("a"), [0, 0, 9, 9], 1.0);
        let lost = meta.track(5);
        let other = meta.detection(Some("b"), [0, 0, 9, 9], 1.0);
        let _alone = meta.detection(Some("c"), [0, 0, 9, 9], 1.0);
        let [first, second] = [meta.track(u64::MAX), meta.track(7)];
        meta.relate(relation, one, first);
        meta.relate(relation, second, other);
        let ids = |buffer| read(buffer).iter().map(|detection| detection.tracking_id).collect::<Vec<_>>();
        assert_eq!(ids(&buffer), [Some(u64::MAX), Some(7), None], "{relation} {}", lost.id);
    }
    // More entries than a new meta has room for.
    let mut buffer = gst::Buffer::new();
    let meta = Meta::add(library, &mut buffer);
    for id in 0..100 {
        let detection = meta.detection(None, [id, 0, 9, 9], 1.0);
        let track = meta.track(id.unsigned_abs().into());
        meta.relate(RELATE_TO, detection, track);
    }
    let detections = read(&buffer);
    assert_eq!(detections.len(), 100);
    assert!((0..).zip(&detections).all(|(id, detection)| detection.tracking_id == Some(id)));
    assert!(detections.iter().all(|detection| detection.tracking_id == Some(detection.area.left as u64)));
}

fn several(library: Library) {
    let mut buffer = gst::Buffer::new();
    let metas = [Meta::add(library, &mut buffer), Meta::add(library, &mut buffer)];
    metas[1].detection(Some("face"), [0, 0, 9, 9], 1.0);
    assert_eq!(read(&buffer).len(), 1);
    metas[0].detection(Some("face"), [9, 0, 9, 9], 1.0);
    assert_eq!(read(&buffer).len(), 2);
}

fn oriented(library: Library) {
    let mut buffer = gst::Buffer::new();
    let meta = Meta::add(library, &mut buffer);
    meta.oriented([100, 100, 80, 20], 0.0);
    meta.oriented([100, 100, 80, 20], std::f32::consts::FRAC_PI_2);
    meta.oriented([100, 100, 80, 20], std::f32::consts::FRAC_PI_4);
    meta.oriented([100, 100, 30, 40], f32::NAN);
    let half = 100.0 / 2.0_f64.sqrt() / 2.0;
    let expected = [
        [100.0, 100.0, 180.0, 120.0],
        [130.0, 70.0, 150.0, 150.0],
        [140.0 - half, 110.0 - half, 140.0 + half, 110.0 + half],
        [90.0, 95.0, 140.0, 145.0],
    ];
    let detections = read(&buffer);
    assert_eq!(detections.len(), expected.len());
    for (Detection { area, .. }, expected) in detections.iter().zip(expected) {
        let edges = [area.left, area.top, area.right, area.bottom];
        let distance = edges.iter().zip(expected).map(|(edge, expected)| (edge - expected).abs()).fold(0.0, f64::max);
        assert!(distance < 1e-4, "{edges:?} {expected:?}");
    }
    assert_eq!(detections[0].area, Area { left: 100.0, top: 100.0, right: 180.0, bottom: 120.0 }, "exactly");
}

/// What is read with masks, for objects that these labels select.
fn read_masks(buffer: &gst::Buffer, labels: &str) -> Analytics {
    let labels = Labels::parse(labels);
    analytics::read(buffer, Some(&mut MaskReader::new(&labels)))
}

fn present(buffer: &gst::Buffer, labels: &str) -> Vec<Detection> {
    match read_masks(buffer, labels) {
        Analytics::Present(detections) => detections,
        other => panic!("{other:?}"),
    }
}

/// The masks of the detections.
fn masks(buffer: &gst::Buffer) -> Vec<Option<Mask>> {
    present(buffer, "").into_iter().map(|detection| detection.mask).collect()
}

/// An image of region ids, with a GstVideoMeta.
struct Image {
    format: VideoFormat,
    size: [u32; 2],
    offset: usize,
    stride: c_int,
    bytes: Vec<u8>,
}

impl Image {
    fn gray8(columns: u32, ids: &[u8]) -> Self {
        let size = [columns, ids.len() as u32 / columns];
        Self { format: VideoFormat::Gray8, size, offset: 0, stride: columns as c_int, bytes: ids.to_vec() }
    }

    fn buffer(self) -> gst::Buffer {
        let mut buffer = gst::Buffer::from_mut_slice(self.bytes);
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

fn gray8(columns: u32, ids: &[u8]) -> gst::Buffer {
    Image::gray8(columns, ids).buffer()
}

/// The object of these ids in the mask that `gray8` makes of them, without its empty margins if it is not larger than 4.
fn mask(columns: u32, ids: &[u8], is_object: impl Fn(u8) -> bool, area: Area) -> Mask {
    let samples = ids.iter().map(|id| if is_object(*id) { 255 } else { 0 }).collect();
    Mask::new(columns, ids.len() as u32 / columns, samples, area).unwrap()
}

const BOX: [c_int; 4] = [10, 20, 8, 4];
const RECT: (c_int, c_int, c_uint, c_uint) = (10, 20, 8, 4);
const AREA: Area = Area { left: 10.0, top: 20.0, right: 18.0, bottom: 24.0 };
const IDS: [u8; 8] = [0, 3, 3, 0, 0, 0, 200, 0];

fn related_masks(library: Library) {
    for relation in RELATIONS {
        for is_reversed in [false, true] {
            let mut buffer = gst::Buffer::new();
            let meta = Meta::add(library, &mut buffer);
            let other = meta.detection(Some("person"), BOX, 1.0);
            let person = meta.detection(Some("person"), BOX, 0.5);
            // Ids that no sample has, as upstream's decoder declares.
            let segmentation = meta.segmentation(gray8(4, &IDS), &[0], RECT);
            let (from, to) = if is_reversed { (segmentation, person) } else { (person, segmentation) };
            meta.relate(relation, from, to);
            let expected = mask(4, &IDS, |id| id > 0, AREA);
            assert_eq!(masks(&buffer), [None, Some(expected.clone())], "{relation} {is_reversed} {}", other.id);
            let detection = &present(&buffer, "Person")[1];
            assert_eq!((detection.area, detection.certain, detection.confidence), (AREA, Some(AREA), Some(0.5)));
            assert_eq!(detection.mask, Some(expected));
            assert!(present(&buffer, "face").iter().all(|detection| detection.mask.is_none()), "not selected");
            assert!(read(&buffer).iter().all(|detection| detection.mask.is_none()), "not asked");
        }
    }
}

/// Of a detection, of one with several, and of a segmentation that stands alone.
fn old_masks(library: Library) {
    let have_old = |times: &[Option<u64>], is_alone: bool| -> Vec<bool> {
        let mut buffer = gst::Buffer::new();
        let meta = Meta::add(library, &mut buffer);
        let person = (!is_alone).then(|| meta.detection(Some("person"), BOX, 1.0));
        for time in times {
            let mut mask = gray8(4, &IDS);
            mask.get_mut().unwrap().set_pts(time.map(gst::ClockTime::from_mseconds));
            let segmentation = meta.segmentation(mask, &[0], RECT);
            person.iter().for_each(|person| meta.relate(CONTAIN, *person, segmentation));
        }
        let labels = Labels::default();
        let mut masks = MaskReader::new(&labels).of_frame(Some(200_000_000), 40_000_000);
        let Analytics::Present(found) = analytics::read(&buffer, Some(&mut masks)) else { panic!("{times:?}") };
        found.iter().map(|detection| detection.has_old_mask && detection.mask.is_some()).collect()
    };
    for (times, is_old) in [
        (&[None][..], false),
        (&[Some(160)], false),
        (&[Some(300)], false),
        (&[Some(120)], true),
        (&[Some(200), Some(120)], true),
        (&[Some(120), Some(200)], true),
        (&[Some(200), None], false),
    ] {
        assert_eq!(have_old(times, false), [is_old], "{times:?}");
    }
    assert!(have_old(&[Some(120)], true).into_iter().all(|is_old| is_old));
    assert!(!have_old(&[Some(200)], true).into_iter().any(|is_old| is_old));
}

fn mask_formats(library: Library) {
    let of = |image: Image| {
        let mut buffer = gst::Buffer::new();
        let meta = Meta::add(library, &mut buffer);
        let detection = meta.detection(None, BOX, 1.0);
        let segmentation = meta.segmentation(image.buffer(), &[], RECT);
        meta.relate(CONTAIN, detection, segmentation);
        masks(&buffer).remove(0)
    };
    let image =
        |format, stride, offset, bytes: &[u8]| Image { format, size: [2, 2], offset, stride, bytes: bytes.to_vec() };
    let expected = Some(mask(2, &[1, 0, 0, 1], |id| id > 0, AREA));
    // What is in the padding is no object, and no high byte is overlooked.
    assert_eq!(of(image(VideoFormat::Gray8, 3, 1, &[9, 7, 0, 9, 0, 255])), expected);
    assert_eq!(of(image(VideoFormat::Gray16Le, 6, 0, &[0, 1, 0, 0, 9, 9, 0, 0, 1, 0])), expected);
    assert_eq!(of(image(VideoFormat::Gray16Be, 4, 0, &[1, 0, 0, 0, 0, 0, 0, 1])), expected);
}

/// Label, area, and whether there is a mask.
fn summaries(detections: &[Detection]) -> Vec<(&str, [f64; 4], bool)> {
    let summary = |detection: &Detection| {
        assert_eq!((detection.confidence, detection.tracking_id), (None, None));
        let Area { left, top, right, bottom } = detection.area;
        assert_eq!(detection.certain.is_some(), detection.mask.is_some());
        assert!(detection.mask.as_ref().is_none_or(|mask| mask.object() == Some(detection.area)));
        assert!(detection.certain.is_none_or(|certain| certain == detection.area));
        (left, top, right, bottom, detection.mask.is_some())
    };
    let of = |detection| {
        let (left, top, right, bottom, has_mask) = summary(detection);
        (detection.label.as_deref().unwrap(), [left, top, right, bottom], has_mask)
    };
    detections.iter().map(of).collect()
}

fn classes(library: Library) {
    // Three classes over 16×8 from (100,50) on, of which the meta names two.
    const CLASSES: [u8; 8] = [0, 12, 12, 31, 0, 12, 0, 15];
    let rect = (100, 50, 16, 8);
    for relation in RELATIONS {
        for is_reversed in [false, true] {
            let mut buffer = gst::Buffer::new();
            let meta = Meta::add(library, &mut buffer);
            // Neither a list of another length nor the order of ids decides.
            let other = meta.classes(&[Some("outdoor")]);
            let classes = meta.classes(&[Some("background"), Some("leaf"), Some(" Strawberry ")]);
            let segmentation = meta.segmentation(gray8(4, &CLASSES), &[0, 31, 12], rect);
            for classes in [other, classes] {
                let (from, to) = if is_reversed { (classes, segmentation) } else { (segmentation, classes) };
                meta.relate(relation, from, to);
            }
            let strawberry = |has_mask| ("Strawberry", [104.0, 50.0, 112.0, 58.0], has_mask);
            let unnamed = |has_mask| ("15", [112.0, 54.0, 116.0, 58.0], has_mask);
            let leaf = |has_mask| ("leaf", [112.0, 50.0, 116.0, 54.0], has_mask);
            let all = present(&buffer, "");
            assert_eq!(summaries(&all), [strawberry(true), unnamed(true), leaf(true)], "{relation} {is_reversed}");
            let area = Area { left: 100.0, top: 50.0, right: 116.0, bottom: 58.0 };
            assert_eq!(all[0].mask, Some(mask(4, &CLASSES, |id| id == 12, area)));
            let chosen = present(&buffer, "strawberry, 15");
            assert_eq!(summaries(&chosen), [strawberry(true), unnamed(true), leaf(false)]);
            assert_eq!(analytics::read(&buffer, None), Analytics::Unreadable, "without masks");
        }
    }
    // A detector of objects beside it does not hide it.
    let mut buffer = gst::Buffer::new();
    let meta = Meta::add(library, &mut buffer);
    meta.segmentation(gray8(4, &CLASSES), &[], rect);
    meta.detection(Some("face"), BOX, 1.0);
    let labels: Vec<_> = present(&buffer, "").into_iter().map(|detection| detection.label.unwrap()).collect();
    assert_eq!(labels, ["face", "12", "15", "31"]);
    // It has looked, and found nothing.
    let mut buffer = gst::Buffer::new();
    Meta::add(library, &mut buffer).segmentation(gray8(4, &[0; 8]), &[0, 1], rect);
    assert_eq!(present(&buffer, ""), []);
}

fn background(library: Library) {
    let labels = |names: Option<&[Option<&str>]>, labels: &str| {
        let mut buffer = gst::Buffer::new();
        let meta = Meta::add(library, &mut buffer);
        let segmentation = meta.segmentation(gray8(4, &[0, 1, 1, 2]), &[0, 1, 2], RECT);
        if let Some(names) = names {
            let classes = meta.classes(names);
            meta.relate(N_TO_N, segmentation, classes);
        }
        let found = present(&buffer, labels);
        let masked = found.iter().filter(|detection| detection.mask.is_some());
        masked.map(|detection| detection.label.clone().unwrap()).collect::<Vec<_>>()
    };
    assert_eq!(labels(None, ""), ["1", "2"]);
    assert_eq!(labels(None, "0"), ["0"]);
    let named = [Some("background"), Some("cat"), Some("dog")];
    assert_eq!(labels(Some(&named), ""), ["cat", "dog"]);
    assert_eq!(labels(Some(&named), "Background"), ["background"]);
    assert_eq!(labels(Some(&[Some("road"), Some("cat"), None]), ""), ["road", "cat", "2"]);
    assert_eq!(labels(Some(&[Some("road"), Some("__background__"), Some("dog")]), ""), ["road", "dog"]);
    assert_eq!(labels(Some(&[None]), ""), ["1", "2"]);
    // As many objects as are read, and one more.
    let objects = |count: u16| {
        let bytes = (1..=count).flat_map(u16::to_le_bytes).collect();
        let size = [u32::from(count), 1];
        let image = Image { format: VideoFormat::Gray16Le, size, offset: 0, stride: c_int::from(count) * 2, bytes };
        let mut buffer = gst::Buffer::new();
        Meta::add(library, &mut buffer).segmentation(image.buffer(), &[], (0, 0, 2048, 4));
        read_masks(&buffer, "1")
    };
    assert!(matches!(objects(1024), Analytics::Present(found) if found.len() == 1024));
    assert_eq!(objects(1025), Analytics::Unreadable);
}

/// What is read of a segmentation that stands alone, and of one that is related to a detection.
fn alone_and_related(
    library: Library,
    image: &dyn Fn() -> gst::Buffer,
    rect: (c_int, c_int, c_uint, c_uint),
) -> [Analytics; 2] {
    [false, true].map(|is_related| {
        let mut buffer = gst::Buffer::new();
        let meta = Meta::add(library, &mut buffer);
        let segmentation = meta.segmentation(image(), &[0, 1], rect);
        if is_related {
            meta.relate(RELATE_TO, meta.detection(Some("face"), BOX, 1.0), segmentation);
        }
        read_masks(&buffer, "")
    })
}

fn unreadable_masks(library: Library) {
    let check = |image: &dyn Fn() -> gst::Buffer, rect, why: &str| {
        let [alone, related] = alone_and_related(library, image, rect);
        assert_eq!(alone, Analytics::Unreadable, "{why}");
        let Analytics::Present(found) = related else { panic!("{why}: {related:?}") };
        assert_eq!((found.len(), found[0].area, &found[0].mask), (1, AREA, &None), "{why}");
    };
    let image = || Image::gray8(4, &[1; 8]);
    for (why, image) in [
        ("a mask larger than its buffer", (|| Image { size: [4, 3], ..Image::gray8(4, &[1; 8]) }) as fn() -> Image),
        ("wider rows than bytes between them", || Image { stride: 3, ..Image::gray8(4, &[1; 8]) }),
        ("rows beyond the buffer", || Image { stride: 5, ..Image::gray8(4, &[1; 8]) }),
        ("rows backwards", || Image { stride: -4, ..Image::gray8(4, &[1; 8]) }),
        ("no stride", || Image { stride: 0, ..Image::gray8(4, &[1; 8]) }),
        ("an offset", || Image { offset: 1, ..Image::gray8(4, &[1; 8]) }),
        ("an offset beyond the buffer", || Image { offset: usize::MAX, ..Image::gray8(4, &[1; 8]) }),
        ("no columns", || Image { size: [0, 2], ..Image::gray8(4, &[1; 8]) }),
        ("no rows", || Image { size: [4, 0], ..Image::gray8(4, &[1; 8]) }),
        ("too many rows", || Image { size: [4, 4097], ..Image::gray8(4, &[1; 4 * 4097]) }),
        ("too large", || Image { size: [u32::MAX; 2], ..Image::gray8(4, &[1; 8]) }),
        ("16 bits in half the bytes", || Image { format: VideoFormat::Gray16Le, ..Image::gray8(4, &[1; 8]) }),
        ("an empty buffer", || Image { bytes: vec![], ..Image::gray8(4, &[1; 8]) }),
    ] {
        check(&|| image().buffer(), RECT, why);
    }
    for rect in [(10, 20, 0, 0), (10, 20, 8, 0), (10, 20, 0, 4)] {
        check(&|| image().buffer(), rect, "no place");
    }
    // The library refuses other formats, which a producer may still write later.
    let mut buffer = gst::Buffer::new();
    let meta = Meta::add(library, &mut buffer);
    let image = image().buffer();
    let of_image = image.meta::<gst_video::VideoMeta>().unwrap().as_ptr().cast_mut();
    meta.segmentation(image.clone(), &[], RECT);
    // SAFETY: the meta is live as long as `image`, and nothing else uses it now.
    unsafe { (*of_image).format = VideoFormat::Rgba.into_glib() };
    assert_eq!(read_masks(&buffer, ""), Analytics::Unreadable);
}

fn shared_masks(library: Library) {
    // Objects of 2×2 samples, each 4×4 luma samples: 5 on the left, 7 in the middle, 9 on the right.
    #[rustfmt::skip]
    const SHARED: [u8; 16] = [
        5, 5, 0, 7, 7, 0, 9, 9,
        5, 5, 0, 7, 7, 0, 9, 9,
    ];
    let boxes = [[0, 0, 8, 8], [12, 0, 8, 8], [24, 0, 8, 8]];
    let areas = boxes.map(|[x, y, width, height]| Area::from_corner(x.into(), y.into(), width.into(), height.into()));
    let read = |order: &[usize], ids: &[c_uint], relation: c_uint| {
        let mut buffer = gst::Buffer::new();
        let meta = Meta::add(library, &mut buffer);
        let detections: Vec<_> = order.iter().map(|index| meta.detection(None, boxes[*index], 1.0)).collect();
        let segmentation = meta.segmentation(gray8(8, &SHARED), ids, (0, 0, 32, 8));
        detections.into_iter().for_each(|detection| meta.relate(relation, segmentation, detection));
        let objects = masks(&buffer).into_iter().map(|mask| mask.and_then(|mask| mask.object()));
        objects.collect::<Vec<_>>()
    };
    let expected = |order: &[usize]| order.iter().map(|index| Some(areas[*index])).collect::<Vec<_>>();
    for (order, ids, relation) in [
        ([0, 1, 2], &[5, 7, 9][..], N_TO_N),
        ([0, 1, 2], &[0, 5, 7, 9], N_TO_N),
        ([2, 0, 1], &[0, 9, 5, 7], N_TO_N),
        // Another order, wrong ids, or another relation: what is in each box.
        ([0, 1, 2], &[9, 7, 5], N_TO_N),
        ([0, 1, 2], &[0, 1, 2], N_TO_N),
        ([0, 1, 2], &[65541, 7, 9], N_TO_N),
        ([0, 1, 2], &[], N_TO_N),
        ([1, 0, 2], &[5, 7, 9], RELATE_TO),
    ] {
        assert_eq!(read(&order, ids, relation), expected(&order), "{order:?} {ids:?} {relation}");
    }
    // One box alone is not told that the other objects are not its own, but they are not in it.
    assert_eq!(read(&[1], &[5, 7, 9], N_TO_N), expected(&[1]));

    // What a segmentation has for one detection alone is its object, also beyond its box, if it is one object.
    let of_boxes = |boxes: &[[c_int; 4]], ids: [u8; 4], regions: &[c_uint]| {
        let mut buffer = gst::Buffer::new();
        let meta = Meta::add(library, &mut buffer);
        let detections: Vec<_> = boxes.iter().map(|place| meta.detection(None, *place, 1.0)).collect();
        let segmentation = meta.segmentation(gray8(4, &ids), regions, (0, 0, 16, 4));
        detections.into_iter().for_each(|detection| meta.relate(N_TO_N, segmentation, detection));
        let object = |mask: Option<Mask>| mask.unwrap().object().map(|area| [area.left, area.right]).unwrap();
        masks(&buffer).into_iter().map(object).collect::<Vec<_>>()
    };
    assert_eq!(of_boxes(&[[0, 0, 8, 4]], [0, 5, 5, 5], &[]), [[4.0, 16.0]]);
    assert_eq!(of_boxes(&[[0, 0, 8, 4]], [0, 5, 5, 7], &[]), [[4.0, 8.0]], "of several objects, what is in the box");
    assert_eq!(of_boxes(&[[0, 0, 8, 4], [8, 0, 8, 4]], [0, 5, 5, 5], &[]), [[4.0, 8.0], [8.0, 16.0]], "shared");
    // The ids of a segmentation that is not shared do not say which is the detection's.
    assert_eq!(of_boxes(&[[0, 0, 12, 4]], [5, 5, 7, 0], &[5]), [[0.0, 12.0]]);

    // Boxes that overlap: with ids each has its own object, and without them both have all that is in their box.
    let objects = |ids: &[c_uint], relation| {
        let mut buffer = gst::Buffer::new();
        let meta = Meta::add(library, &mut buffer);
        let detections = [[0, 0, 14, 8], [8, 0, 16, 8]].map(|place| meta.detection(None, place, 1.0));
        #[rustfmt::skip]
        let segmentation = meta.segmentation(gray8(8, &[
            5, 5, 5, 7, 7, 7, 0, 0,
            5, 5, 5, 7, 7, 7, 0, 0,
        ]), ids, (0, 0, 32, 8));
        detections.into_iter().for_each(|detection| meta.relate(relation, segmentation, detection));
        let object = |mask: Option<Mask>| mask.unwrap().object().map(|area| [area.left, area.right]).unwrap();
        masks(&buffer).into_iter().map(object).collect::<Vec<_>>()
    };
    assert_eq!(objects(&[5, 7], N_TO_N), [[0.0, 12.0], [12.0, 24.0]]);
    assert_eq!(objects(&[7, 5], N_TO_N), [[0.0, 16.0], [8.0, 24.0]]);
    assert_eq!(
        objects(&[5, 7], RELATE_TO),
        [[0.0, 16.0], [8.0, 24.0]],
        "a relation that does not say that they correspond"
    );
}

fn united_masks(library: Library) {
    let read = |images: [gst::Buffer; 2], rects: [(c_int, c_int, c_uint, c_uint); 2]| {
        let mut buffer = gst::Buffer::new();
        let meta = Meta::add(library, &mut buffer);
        let detection = meta.detection(None, BOX, 1.0);
        for (image, rect) in images.into_iter().zip(rects) {
            meta.relate(CONTAIN, detection, meta.segmentation(image, &[], rect));
        }
        masks(&buffer).remove(0)
    };
    assert_eq!(
        read([gray8(4, &[1, 0, 0, 0, 0, 0, 0, 0]), gray8(4, &[0, 0, 0, 0, 0, 0, 0, 9])], [RECT; 2]),
        Some(mask(4, &[1, 0, 0, 0, 0, 0, 0, 1], |id| id > 0, AREA))
    );
    let rects = [(10, 20, 4, 4), (14, 20, 4, 4)];
    assert_eq!(
        read([gray8(1, &[1]), gray8(2, &[1, 0, 0, 1])], rects),
        Some(mask(4, &[1, 1, 1, 0, 1, 1, 0, 1], |id| id > 0, AREA))
    );
    let broken = || Image { stride: 0, ..Image::gray8(2, &[1; 4]) }.buffer();
    assert_eq!(read([gray8(1, &[1]), broken()], rects), None, "a part that cannot be read");
    assert_eq!(read([gray8(1, &[0]), gray8(2, &[0; 4])], rects), None, "no part has a sample");
}

fn masks_elsewhere(library: Library) {
    let read = |detection: &dyn Fn(Meta) -> Mtd, rect, ids: &[u8]| {
        let mut buffer = gst::Buffer::new();
        let meta = Meta::add(library, &mut buffer);
        meta.relate(RELATE_TO, detection(meta), meta.segmentation(gray8(4, ids), &[0], rect));
        masks(&buffer).remove(0)
    };
    let ordinary = |meta: Meta| meta.detection(None, BOX, 1.0);
    assert!(read(&ordinary, RECT, &IDS).is_some());
    assert!(read(&ordinary, (-4, -6, 80, 80), &[1; 8]).is_some(), "a mask that is larger than its box");
    assert_eq!(read(&ordinary, RECT, &[0; 8]), None, "an empty mask");
    assert_eq!(read(&ordinary, (18, 20, 8, 4), &[1; 8]), None, "a mask beside the box");
    assert_eq!(read(&ordinary, (14, 20, 8, 4), &[0, 0, 1, 1]), None, "an object beside the box");
    assert_eq!(read(&|meta| meta.detection(None, [10, 20, 0, 0], 1.0), RECT, &[1; 8]), None, "no box");
    if library.add_oriented.is_some() {
        assert!(read(&|meta| meta.oriented(BOX, f32::NAN), RECT, &IDS).is_some(), "a box of unknown rotation");
    }
    let far = [i32::MAX, i32::MIN, i32::MAX, i32::MAX];
    let far_mask = read(&|meta| meta.detection(None, far, 1.0), (i32::MAX, i32::MIN, u32::MAX, u32::MAX), &[1; 8]);
    assert!(far_mask.is_some());
}

fn masks_of_the_yolo_decoder(library: Library) {
    let read_ids = |image: Image, ids: &[c_uint], rect: (c_int, c_int, c_uint, c_uint)| {
        let mut buffer = gst::Buffer::new();
        let meta = Meta::add(library, &mut buffer);
        let detection = meta.detection(None, [rect.0, rect.1, 8, 4], 1.0);
        let segmentation = meta.segmentation(image.buffer(), ids, rect);
        meta.relate(RELATE_TO, detection, segmentation);
        meta.relate(RELATE_TO, segmentation, detection);
        masks(&buffer).remove(0).is_some()
    };
    let read = |image, rect| read_ids(image, &[0], rect);
    // Its pool has buffers for the whole of the network's masks.
    let of_pool = |stride| Image { size: [4, 2], stride, ..Image::gray8(16, &[2; 256]) };
    assert!(read(of_pool(4), RECT));
    assert!(!read(of_pool(16), RECT), "rows that follow one another, whatever the meta says");
    assert!(!read(of_pool(4), (-1, 0, 8, 4)), "a mask that it does not write");
    assert!(!read(of_pool(4), (0, -1, 8, 4)), "a mask that it does not write");
    // What others attach beside it is not its.
    for ids in [&[][..], &[2], &[0, 2]] {
        assert!(read_ids(of_pool(16), ids, RECT), "padded rows of another producer, which declares {ids:?}");
        assert!(read_ids(of_pool(4), ids, (-1, 0, 9, 4)), "a box that begins outside, of another producer: {ids:?}");
    }
}

/// Whatever a producer writes: no panic, and nothing that the element cannot use.
fn random_metas(library: Library) {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut random = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state.wrapping_mul(0x2545_f491_4f6c_dd1d) >> 33) as usize % below
    };
    let (mut unreadable, mut masks) = (0, 0);
    for _ in 0..3000 {
        let mut buffer = gst::Buffer::new();
        let meta = Meta::add(library, &mut buffer);
        let mut entries = Vec::new();
        for _ in 0..random(6) {
            let mut number = || [0, 1, 7, 40, -9, i32::MAX, i32::MIN][random(7)];
            let place = [number(), number(), number(), number()];
            let place = if random(2) == 0 { [0, 0, 40, 40] } else { place };
            entries.push(match random(8) {
                0 if library.add_oriented.is_some() => meta.oriented(place, [0.5, f32::NAN, f32::INFINITY][random(3)]),
                0 => meta.track(1),
                1..4 => meta.detection([None, Some("a"), Some("b")][random(3)], place, 0.5),
                4 => meta.classes(&[Some("a"), None, Some("b"), Some("background")][..random(5)]),
                _ => {
                    let size = [random(9) as u32, random(9) as u32];
                    let is_wide = random(2) == 0;
                    let format = [VideoFormat::Gray8, VideoFormat::Gray16Le, VideoFormat::Gray16Be]
                        [if is_wide { random(3) } else { 0 }];
                    let stride = [size[0] as c_int * 2, size[0] as c_int, -1, random(30) as c_int][random(4)];
                    let offset = [0, 0, random(40), usize::MAX][random(4)];
                    let bytes = (0..random(200)).map(|_| random(5) as u8).collect();
                    let size = if random(9) == 0 { [u32::MAX, 5000] } else { size };
                    let ids: Vec<_> = (0..random(4)).map(|_| [0, 1, 2, 3, u32::MAX][random(5)]).collect();
                    let rect = if random(3) == 0 { (place[0], place[1], u32::MAX, 9) } else { (0, 0, 40, 40) };
                    meta.segmentation(Image { format, size, offset, stride, bytes }.buffer(), &ids, rect)
                }
            });
        }
        for _ in 0..random(8) * entries.len().min(1) {
            let (from, to) = (entries[random(entries.len())], entries[random(entries.len())]);
            meta.relate(RELATIONS[random(4)], from, to);
        }
        match read_masks(&buffer, ["", "a", "b,1", "background"][random(4)]) {
            Analytics::Unreadable => unreadable += 1,
            Analytics::Absent => (),
            Analytics::Present(found) => {
                for detection in &found {
                    let Some(mask) = &detection.mask else { continue };
                    let object = mask.object().unwrap();
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
/// What the frames have that the element gets; covered samples are 0.
const SOURCE: u8 = 200;
/// What is so far from an object, in luma samples, is surely covered or shown: two samples of the masks, and rounding.
const NEAR: usize = 2 * 8 + 2;

/// The samples of a GRAY8 frame, to which `attach` adds metas, after the element.
fn output(library: Library, properties: &str, attach: &dyn Fn(Meta)) -> Vec<u8> {
    gstcudagaussblur::plugin_register_static().unwrap();
    let line = format!(
        "appsrc name=source format=time caps=video/x-raw,format=GRAY8,width={WIDTH},height={HEIGHT},framerate=25/1 ! \
         cudagaussblur backend=cpu cover=fill expand=0 shape=mask {properties} ! appsink name=sink sync=false"
    );
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Pipeline>().unwrap();
    let by_name = |name| pipeline.by_name(name).unwrap();
    let source = by_name("source").downcast::<gst_app::AppSrc>().unwrap();
    let sink = by_name("sink").downcast::<gst_app::AppSink>().unwrap();
    let mut buffer = gst::Buffer::from_mut_slice(vec![SOURCE; WIDTH * HEIGHT]);
    attach(Meta::add(library, &mut buffer));
    let writable = buffer.get_mut().unwrap();
    writable.set_pts(gst::ClockTime::ZERO);
    writable.set_duration(gst::ClockTime::from_mseconds(40));
    pipeline.set_state(gst::State::Playing).unwrap();
    source.push_buffer(buffer).unwrap();
    source.end_of_stream().unwrap();
    let sample = sink.pull_sample().unwrap();
    pipeline.set_state(gst::State::Null).unwrap();
    let map = sample.buffer().unwrap().map_readable().unwrap();
    map.to_vec()
}

/// Checks that the object is covered and what is not near it is not, with region-mode=inside; with outside, that what is well
/// inside of the object is shown and what is not the object is not.
#[track_caller]
fn check_output(output: &[u8], mode: &str, is_object: &dyn Fn(usize, usize) -> bool) {
    let near = |x: usize, y: usize| {
        let of_columns = x.saturating_sub(NEAR)..(x + NEAR + 1).min(WIDTH);
        (y.saturating_sub(NEAR)..(y + NEAR + 1).min(HEIGHT)).flat_map(move |y| of_columns.clone().map(move |x| (x, y)))
    };
    let (mut covered, mut shown) = (0, 0);
    for y in 0..HEIGHT {
        for x in 0..WIDTH {
            let sample = output[y * WIDTH + x];
            let expected = match (mode, is_object(x, y)) {
                ("inside", true) | ("outside", false) => Some(0),
                ("inside", false) if !near(x, y).any(|(x, y)| is_object(x, y)) => Some(SOURCE),
                ("outside", true) if near(x, y).all(|(x, y)| is_object(x, y)) => Some(SOURCE),
                _ => None,
            };
            covered += u32::from(expected == Some(0));
            shown += u32::from(expected == Some(SOURCE));
            assert!(expected.is_none_or(|expected| expected == sample), "{mode} ({x},{y}): {sample} for {expected:?}");
        }
    }
    assert!(covered > 0 && shown > 0, "{mode}: {covered} {shown}");
}

/// 16×12 samples of 8×8 luma samples: the left third is 1, the right third is 2.
fn thirds(format: VideoFormat) -> gst::Buffer {
    let ids = (0..16 * 12).map(|i| [1_u8, 0, 2][(i % 16) / 6]);
    let bytes: Vec<u8> =
        if format == VideoFormat::Gray8 { ids.collect() } else { ids.flat_map(|id| [0, id]).collect() };
    let stride = (bytes.len() / 12) as c_int;
    Image { format, size: [16, 12], offset: 0, stride, bytes }.buffer()
}

const FRAME: (c_int, c_int, c_uint, c_uint) = (0, 0, WIDTH as c_uint, HEIGHT as c_uint);

fn covered_by_masks(library: Library) {
    let place = [0, 0, WIDTH as c_int, HEIGHT as c_int];
    for mode in ["inside", "outside"] {
        let attach = |meta: Meta| {
            let detection = meta.detection(Some("person"), [0, 0, 48, HEIGHT as c_int], 1.0);
            meta.relate(RELATE_TO, detection, meta.segmentation(thirds(VideoFormat::Gray16Be), &[0], FRAME));
        };
        check_output(&output(library, &format!("region-mode={mode}"), &attach), mode, &|x, _| x < 48);
        // A mask that cannot be read.
        let attach = |meta: Meta| {
            let broken = Image { stride: 0, ..Image::gray8(2, &[1; 4]) }.buffer();
            meta.relate(RELATE_TO, meta.detection(Some("person"), place, 1.0), meta.segmentation(broken, &[], FRAME));
        };
        let output = output(library, &format!("region-mode={mode}"), &attach);
        assert!(output.iter().all(|sample| *sample == 0), "the box is covered, and is not shown");
    }
}

fn covered_by_classes(library: Library) {
    let of_classes = |meta: Meta| {
        let segmentation = meta.segmentation(thirds(VideoFormat::Gray8), &[0, 1, 2], FRAME);
        let classes = meta.classes(&[Some("background"), Some("cat"), Some("person")]);
        meta.relate(N_TO_N, segmentation, classes);
    };
    for (labels, is_object) in [
        ("person", (|x, _| x >= 96) as fn(usize, usize) -> bool),
        ("cat", |x, _| x < 48),
        ("background", |x, _| (48..96).contains(&x)),
    ] {
        for mode in ["inside", "outside"] {
            let properties = format!("region-mode={mode} labels={labels}");
            check_output(&output(library, &properties, &of_classes), mode, &is_object);
        }
    }
    let all = output(library, "region-mode=inside", &of_classes);
    check_output(&all, "inside", &|x, _| !(48..96).contains(&x));
    // Two objects with the same box, each in two of its corners.
    let corners = |meta: Meta| {
        let id = |i: usize| match (i % 16, i / 16) {
            (8..10, 0..2) | (14.., 10..) => 1,
            (14.., 0..2) | (8..10, 10..) => 2,
            _ => 0,
        };
        let ids: Vec<u8> = (0..16 * 12).map(id).collect();
        meta.segmentation(gray8(16, &ids), &[0, 1, 2], FRAME);
    };
    let is_corner = |x: usize, y: usize| matches!((x / 8, y / 8), (8..10 | 14.., 0..2 | 10..));
    check_output(&output(library, "region-mode=inside", &corners), "inside", &is_corner);
    // An unreadable one is a detector that did not look.
    let broken = |meta: Meta| {
        meta.segmentation(Image { stride: 0, ..Image::gray8(2, &[1; 4]) }.buffer(), &[], FRAME);
    };
    for mode in ["inside", "outside"] {
        let output = output(library, &format!("region-mode={mode}"), &broken);
        assert!(output.iter().all(|sample| *sample == 0));
    }
    // Nothing was found.
    let empty = |meta: Meta| {
        meta.segmentation(gray8(2, &[0; 4]), &[0, 1], FRAME);
    };
    assert!(output(library, "region-mode=inside", &empty).iter().all(|sample| *sample == SOURCE));
    assert!(output(library, "region-mode=outside", &empty).iter().all(|sample| *sample == 0));
}
