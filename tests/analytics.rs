//! Detections in GstAnalyticsRelationMeta, attached by libgstanalytics itself. Tests are ignored if the library is not
//! installed (it exists since GStreamer 1.24) or lacks what they need.

use std::ffi::{c_int, c_uint, c_void};
use std::ptr;

use gst::glib;
use gstcudagaussblur::element::regions::analytics::{self, Analytics};
use gstcudagaussblur::element::regions::detection::Detection;
use gstcudagaussblur::filter::regions::Area;
use libtest_mimic::{Arguments, Failed, Trial};

/// `GstAnalyticsMtd`.
#[repr(C)]
#[derive(Clone, Copy)]
struct Mtd {
    id: c_uint,
    meta: *mut c_void,
}

const NO_MTD: Mtd = Mtd { id: 0, meta: ptr::null_mut() };
/// `GST_ANALYTICS_REL_TYPE_IS_PART_OF` and `_RELATE_TO`.
const RELATIONS: [c_uint; 2] = [1 << 1, 1 << 3];

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
    set_relation: unsafe extern "C" fn(*mut c_void, c_uint, c_uint, c_uint) -> c_int,
}

impl Library {
    fn open() -> Option<Self> {
        // SAFETY: the library's initialisers only register data of its own.
        let library = unsafe { libloading::Library::new("libgstanalytics-1.0.so.0") }.ok()?;
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
        label.map_or(0, |label| glib::translate::IntoGlib::into_glib(glib::Quark::from_str(label)))
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

    fn oriented(self, [x, y, width, height]: [c_int; 4], angle: f32) {
        let mut mtd = NO_MTD;
        let add = self.library.add_oriented.unwrap();
        // SAFETY: `raw` is a live relation meta.
        let added = unsafe { add(self.raw, Self::label(Some("ship")), x, y, width, height, angle, 0.5, &raw mut mtd) };
        assert_ne!(added, 0);
    }

    fn track(self, id: u64) -> Mtd {
        let mut mtd = NO_MTD;
        // SAFETY: `raw` is a live relation meta.
        assert_ne!(unsafe { (self.library.add_tracking)(self.raw, id, 0, &raw mut mtd) }, 0);
        mtd
    }

    fn relate(self, relation: c_uint, from: Mtd, to: Mtd) {
        // SAFETY: `raw` is a live relation meta, and both are its entries.
        assert_ne!(unsafe { (self.library.set_relation)(self.raw, relation, from.id, to.id) }, 0);
    }
}

fn main() {
    gst::init().unwrap();
    assert_eq!(analytics::read(&gst::Buffer::new(), None), Analytics::Absent);
    let was_registered = glib::Type::from_name("GstAnalyticsRelationMetaAPI").is_some();
    let library = Library::open();
    let test = |name: &str, runs: bool, test: fn(Library)| {
        let library = library.filter(|_| runs);
        let run = move || library.map(test).ok_or(Failed::from("libgstanalytics lacks what the test needs"));
        Trial::test(name, run).with_ignored_flag(library.is_none())
    };
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
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
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
            },
            Detection {
                label: None,
                confidence: None,
                area: Area { left: -5.0, top: -6.0, right: 2.0, bottom: 2.0 },
                certain: Some(Area { left: -5.0, top: -6.0, right: 2.0, bottom: 2.0 }),
                tracking_id: None,
                mask: None,
            },
            Detection {
                label: person,
                confidence: None,
                area: Area { left: large, top: -large - 1.0, right: large * 2.0, bottom: -1.0 },
                certain: Some(Area { left: large, top: -large - 1.0, right: large * 2.0, bottom: -1.0 }),
                tracking_id: None,
                mask: None,
            },
            Detection {
                label: None,
                confidence: Some(1.0),
                area: Area { left: 5.0, top: 10.0, right: 10.0, bottom: 15.0 },
                certain: None,
                tracking_id: None,
                mask: None,
            },
        ]
    );
}

fn tracking(library: Library) {
    for relation in RELATIONS {
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
        meta.relate(RELATIONS[1], detection, track);
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
