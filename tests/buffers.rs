//! Buffers as other elements allocate them: downstream pools with alignment and odd strides, video metas with custom
//! map functions, and buffers that are smaller than their layout. The map functions are also tested under valgrind.

mod common;

use std::ops::Range;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicUsize, Ordering};

use common::Noise;
use common::checks::{count_allocation_queries, trial, under_valgrind};
use common::fake_driver::{FakeDriver, LAUNCH_FAILED};
use common::formats;
use common::video::{self, Blur, with_meta};
use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_video::{VideoCropMeta, VideoFormat, VideoInfo, VideoInterlaceMode, VideoMeta};
use libtest_mimic::Arguments;

/// What the pool fills its buffers with.
const UNTOUCHED: u8 = 0xa5;
const FORMATS: [VideoFormat; 7] = [
    VideoFormat::Rgba,
    VideoFormat::Rgb,
    VideoFormat::Nv12,
    VideoFormat::I420,
    VideoFormat::Yuy2,
    VideoFormat::P01010le,
    VideoFormat::Gray8,
];
/// Environment variable that is set in a process that runs under valgrind.
const UNDER_VALGRIND: &str = "CUDAGAUSSBLUR_TEST_VALGRIND";
/// Planes that custom map functions have unmapped.
static UNMAPPED: AtomicUsize = AtomicUsize::new(0);

type Allocate = Box<dyn Fn() -> gst::Buffer + Send + Sync>;

mod imp {
    use super::*;

    #[derive(Default)]
    pub struct Pool {
        pub allocate: OnceLock<Allocate>,
    }

    #[glib::object_subclass]
    impl ObjectSubclass for Pool {
        const NAME: &'static str = "TestPool";
        type Type = super::Pool;
        type ParentType = gst::BufferPool;
    }

    impl ObjectImpl for Pool {}
    impl GstObjectImpl for Pool {}

    impl BufferPoolImpl for Pool {
        fn alloc_buffer(&self, _: Option<&gst::BufferPoolAcquireParams>) -> Result<gst::Buffer, gst::FlowError> {
            Ok(self.allocate.get().expect("offer_pool sets the function")())
        }
    }
}

glib::wrapper! {
    /// A downstream pool whose buffers are allocated by a function of the test.
    pub struct Pool(ObjectSubclass<imp::Pool>) @extends gst::BufferPool, gst::Object;
}

/// Makes downstream offer a pool whose buffers `allocate` returns.
fn offer_pool(blur: &Blur, size: usize, allocate: impl Fn() -> gst::Buffer + Send + Sync + 'static) {
    let pool: Pool = glib::Object::new();
    assert!(pool.imp().allocate.set(Box::new(allocate)).is_ok());
    let pad = blur.element.static_pad("src").unwrap();
    pad.add_probe(gst::PadProbeType::QUERY_DOWNSTREAM | gst::PadProbeType::PUSH, move |_, probe| {
        if let Some(gst::QueryViewMut::Allocation(query)) = probe.query_mut().map(gst::QueryRef::view_mut) {
            query.add_allocation_pool(Some(&pool), size as u32, 0, 0);
            query.add_allocation_meta::<VideoMeta>(None);
        }
        gst::PadProbeReturn::Ok
    });
}

/// Lines in a buffer: half of the frame's in alternate mode.
fn lines(info: &VideoInfo) -> usize {
    let alternate = info.interlace_mode() == VideoInterlaceMode::Alternate;
    info.height().div_ceil(1 + u32::from(alternate)) as usize
}

/// Offsets, strides and size of the planes of a buffer.
type Planes = (Vec<usize>, Vec<i32>, usize);

fn default_layout(info: &VideoInfo) -> Planes {
    (info.offset().to_vec(), info.stride().to_vec(), info.size())
}

/// Planes that begin at odd offsets and have odd row padding.
fn odd_layout(info: &VideoInfo) -> Planes {
    let strides: Vec<i32> = info.stride().iter().map(|stride| stride + 13).collect();
    let mut size = 7;
    let offsets = strides.iter().map(|stride| (size, size += *stride as usize * lines(info) + 5).0).collect();
    (offsets, strides, size)
}

/// Extra rows and columns around the picture, as decoders and encoders request them by a VideoAlignment.
fn aligned_layout(info: &VideoInfo) -> Planes {
    let mut aligned = info.clone();
    aligned.align(&mut gst_video::VideoAlignment::new(6, 10, 16, 2, &[63, 63, 63, 63])).unwrap();
    default_layout(&aligned)
}

/// Where the rows of a picture are whose planes have these offsets and strides, if it begins at a pixel of them.
fn rows(info: &VideoInfo, offsets: &[usize], strides: &[i32], at: (u32, u32)) -> Vec<Range<usize>> {
    let format = info.format_info();
    // A pair of packed 4:2:2 is not divided.
    let pair = if info.format() == VideoFormat::Yuy2 { 2 } else { 1 };
    let plane = |plane: usize| {
        let components = (0..format.n_components() as usize).filter(|c| format.plane()[*c] as usize == plane);
        let c = components.min_by_key(|c| format.w_sub()[*c]).unwrap();
        let (across, down, pixel) = (format.w_sub()[c], format.h_sub()[c], format.pixel_stride()[c] as usize);
        let row_bytes = (info.width().next_multiple_of(pair) as usize).div_ceil(1 << across) * pixel;
        let first = offsets[plane] + ((at.0 / pair * pair) as usize >> across) * pixel;
        let stride = strides[plane] as usize;
        let rows =
            (0..lines(info).div_ceil(1 << down)).map(move |row| first + (row + (at.1 as usize >> down)) * stride);
        rows.map(move |start| start..start + row_bytes)
    };
    (0..info.n_planes() as usize).flat_map(plane).collect()
}

/// Blurs a frame of noise into a buffer from downstream's pool, and compares it with the oracle. Nothing outside the picture may be
/// written. With a byte, both buffers have custom map functions, which are called on a stack that is filled with it.
fn check_pool(info: &VideoInfo, backend: &str, (offsets, strides, size): Planes, custom_map: Option<u8>) {
    let what = format!("{} {backend} {:?} {strides:?} {custom_map:?}", info.format(), info.interlace_mode());
    let setting = formats::settings()[0];
    let mut blur = Blur::new(&format!("backend={backend} {}", setting.properties()));
    assert_eq!(blur.backend(), backend);
    let (own, size) = (info.clone(), size + 64);
    offer_pool(&blur, size, move || {
        let buffer = with_meta(&own, vec![UNTOUCHED; size], &offsets, &strides);
        if custom_map.is_some() { with_custom_map(buffer) } else { buffer }
    });
    blur.caps(info);
    let mut noise = Noise(3);
    let input = formats::buffer(info, 20, &mut || noise.next() as u8);
    let output = match custom_map {
        Some(byte) => {
            let mapped = with_custom_map(input.copy_deep().unwrap());
            fill_stack(byte);
            blur.push(mapped)
        }
        None => blur.push(input.clone()),
    };
    assert_eq!(output.size(), size, "{what}: the output is not from the downstream pool");
    // The comparison reads the output through a meta with GStreamer's default map.
    let meta = output.meta::<VideoMeta>().unwrap();
    let mut bytes = output.map_readable().unwrap().to_vec();
    formats::compare(info, &setting, 1, &input, &with_meta(info, bytes.clone(), meta.offset(), meta.stride()));
    rows(info, meta.offset(), meta.stride(), (0, 0)).into_iter().for_each(|row| bytes[row].fill(UNTOUCHED));
    assert!(bytes.iter().all(|byte| *byte == UNTOUCHED), "{what}: bytes outside the picture were written");
}

fn downstream_pools_with_alignment_and_odd_strides() {
    video::init();
    let _driver = FakeDriver::new();
    for mode in [VideoInterlaceMode::Progressive, VideoInterlaceMode::Alternate] {
        for format in FORMATS {
            let info = VideoInfo::builder(format, 37, 46).interlace_mode(mode).fps((25, 1)).build().unwrap();
            for backend in ["cpu", "cuda"] {
                check_pool(&info, backend, odd_layout(&info), None);
                check_pool(&info, backend, aligned_layout(&info), None);
            }
        }
    }
}

/// Each invalid buffer is an error that names input or output, the byte counts, and what to do.
fn invalid_layouts_are_errors() {
    type Allocate = fn(&VideoInfo) -> gst::Buffer;
    let small: Allocate = |_| gst::Buffer::from_mut_slice(vec![0; 8191]);
    let beyond: Allocate = |info| {
        let mut buffer = with_meta(info, vec![0; 512 * 32], &[0], &[512]);
        buffer.get_mut().unwrap().set_size(512 * 31);
        buffer
    };
    let narrow: Allocate = |info| with_meta(info, vec![0; 8192], &[0], &[255]);
    let upwards: Allocate = |info| with_meta(info, vec![0; 8192], &[0], &[-256]);
    let overlapping: Allocate = |info| with_meta(info, vec![0; 8192], &[0, 0, 3000], &[64, 32, 32]);
    let sides = [("output", "identity drop-allocation=true"), ("input", "the element before cudagaussblur")];
    for (what, allocate, format, sides, words) in [
        ("too small", small, VideoFormat::Rgba, &sides[..], &["truncated", "holds 8191 bytes", "takes 8192"][..]),
        ("rows beyond the end", beyond, VideoFormat::Rgba, &sides, &["truncated", "row pitch of 512 bytes take 16128"]),
        ("rows that overlap", narrow, VideoFormat::Rgba, &sides, &["pitch of 255 bytes", "row of 64 pixels takes 256"]),
        ("negative stride", upwards, VideoFormat::Rgba, &sides, &["row stride of -256 bytes"]),
        // They may be read.
        ("planes that overlap", overlapping, VideoFormat::I420, &sides[..1], &["planes of the output buffer overlap"]),
    ] {
        let info = &video::info(format, 64, 32);
        for (side, remedy) in sides {
            let mut blur = Blur::new("backend=cpu");
            if *side == "output" {
                let own = info.clone();
                offer_pool(&blur, allocate(info).size(), move || allocate(&own));
            }
            blur.caps(info);
            let good = gst::Buffer::from_mut_slice(vec![0; info.size()]);
            println!("{side}, {what}");
            blur.refuses(if *side == "input" { allocate(info) } else { good }, &[words, &[remedy, side]].concat());
        }
    }
}

/// A frame of 336x256 of this format, of which a GstVideoCropMeta shows 320x240 from this place on, and the same picture in a buffer of
/// its own.
fn cropped(format: VideoFormat, at: (u32, u32)) -> (VideoInfo, gst::Buffer, gst::Buffer) {
    let [whole, info] = [(336, 256), (320, 240)].map(|(width, height)| video::info(format, width, height));
    let (bytes, mut picture) = (Noise(7).bytes(whole.size()), vec![0; info.size()]);
    let (offsets, strides, _) = default_layout(&whole);
    for (from, to) in
        rows(&info, &offsets, &strides, at).into_iter().zip(rows(&info, info.offset(), info.stride(), (0, 0)))
    {
        picture[to].copy_from_slice(&bytes[from]);
    }
    let mut frame = with_meta(&whole, bytes, &offsets, &strides);
    VideoCropMeta::add(frame.get_mut().unwrap(), (at.0, at.1, 320, 240));
    (info, frame, gst::Buffer::from_mut_slice(picture))
}

/// The bytes of the picture that is shown: of the crop, if the buffer has one.
fn shown(info: &VideoInfo, buffer: &gst::Buffer) -> Vec<u8> {
    let at = buffer.meta::<VideoCropMeta>().map_or((0, 0), |crop| (crop.rect().0, crop.rect().1));
    let (offsets, strides) = video::offsets_and_strides(info, buffer);
    let map = buffer.map_readable().unwrap();
    rows(info, &offsets, &strides, at).into_iter().flat_map(|row| map[row].to_vec()).collect()
}

/// What a GstVideoCropMeta shows is blurred and covered like a picture of its own. The meta stays on the buffer that it came with and
/// leaves new ones.
fn crops_are_the_picture() {
    video::init();
    let _driver = FakeDriver::new();
    let zone = "region-mode=inside zones=<[zone,x=0.0,y=0.0,width=0.3,height=0.4]>";
    // One place is the last corner, the other one is between samples of chroma. There a cover in place would leave the half sample at
    // its other end.
    for (format, at) in FORMATS.into_iter().flat_map(|format| [(format, (16, 16)), (format, (9, 5))]) {
        let is_whole =
            at == (16, 16) || video::info(format, 2, 2).format_info().w_sub().iter().all(|shift| *shift == 0);
        for (regions, properties, takes_metas) in [
            ("", "sigma=2", false),
            (zone, "cover=fill", false),
            (zone, "cover=fill", true),
            (zone, "cover=mosaic look-ahead=1", true),
            (zone, "sigma=4", true),
        ] {
            for backend in ["cpu", "cuda"] {
                let what = format!("{format} {at:?} {backend} {regions} {properties} {takes_metas}");
                let (info, frame, picture) = cropped(format, at);
                let of_input = |input: gst::Buffer| {
                    let mut blur = Blur::new(&format!("backend={backend} {regions} {properties}"));
                    if takes_metas {
                        for api in [VideoMeta::meta_api(), VideoCropMeta::meta_api()] {
                            blur.harness.add_propose_allocation_meta(api, None);
                        }
                    }
                    blur.caps(&info);
                    let pushed = blur.try_push(input);
                    assert!(pushed.is_ok(), "{what}: {:?}", blur.messages(gst::MessageType::Error));
                    blur.harness.push_event(gst::event::Eos::new());
                    blur.harness.pull().unwrap()
                };
                let (got, want) = (of_input(frame), of_input(picture));
                assert!(shown(&info, &got) == shown(&info, &want), "{what}");
                let has_meta = got.meta::<VideoCropMeta>().is_some();
                assert_eq!(has_meta, takes_metas && !regions.is_empty() && is_whole, "{what}");
            }
        }
    }
    // Not in the frame, or between the rows of two fields; a part of the picture that is not in it.
    for (rect, is_interlaced, words) in [
        ((18, 4, 320, 240), false, "shows 320x240 from 18x4 on in a frame of 336x256"),
        ((u32::MAX, 4, 320, 240), false, "in a frame of 336x256"),
        ((8, 6, 320, 240), true, "begin at a multiple of 4 rows"),
        ((20, 20, 310, 240), false, "in a frame of 320x240"),
    ] {
        let (info, mut frame, _) = cropped(VideoFormat::I420, (8, 4));
        let meta = frame.get_mut().unwrap();
        meta.meta_mut::<VideoCropMeta>().unwrap().set_rect(rect);
        let mut blur = Blur::new("backend=cpu");
        let mode = if is_interlaced { VideoInterlaceMode::Interleaved } else { VideoInterlaceMode::Progressive };
        blur.caps(&VideoInfo::builder(info.format(), 320, 240).interlace_mode(mode).fps((25, 1)).build().unwrap());
        blur.refuses(frame, &[words]);
    }
    // A crop of another size is for whom shows the picture: all of it is blurred, and the meta stays true.
    let (_, mut frame, _) = cropped(VideoFormat::Gray8, (8, 4));
    let whole = video::info(VideoFormat::Gray8, 336, 256);
    let mut blur = Blur::with("backend=cpu sigma=2", &whole);
    frame.get_mut().unwrap().meta_mut::<VideoCropMeta>().unwrap().set_rect((8, 4, 100, 100));
    let out = blur.push(frame.clone());
    assert_eq!(out.meta::<VideoCropMeta>().map(|crop| crop.rect()), Some((8, 4, 100, 100)));
    assert!(video::read(&whole, &out) == video::blurred(&video::read(&whole, &frame), 2.0, 0));
    // A field of an odd number of rows.
    frame.get_mut().unwrap().meta_mut::<VideoCropMeta>().unwrap().set_rect((8, 4, 320, 51));
    let field = VideoInfo::builder(VideoFormat::Gray8, 320, 101).interlace_mode(VideoInterlaceMode::Alternate);
    let mut blur = Blur::with("backend=cpu sigma=2", &field.fps((25, 1)).build().unwrap());
    assert!(blur.push(frame).meta::<VideoCropMeta>().is_none());
}

/// In passthrough upstream learns what downstream welcomes. It is asked again when the element begins to blur, and downstream is asked
/// for a pool, because GstBaseTransform makes no allocation query in passthrough mode.
fn upstream_is_asked_again_after_passthrough() {
    for (takes_crop, property, value, begins) in [
        (true, "sigma", "2", true),
        (true, "region-mode", "outside", true),
        (false, "sigma", "2", true),
        (true, "sigma", "0", false),
    ] {
        let what = format!("{takes_crop} {property}={value}");
        let mut blur = Blur::new("backend=cpu sigma=0");
        let queries = count_allocation_queries(&blur.element);
        if takes_crop {
            blur.harness.add_propose_allocation_meta(VideoCropMeta::meta_api(), None);
        }
        let (info, frame, _) = cropped(VideoFormat::Gray8, (8, 4));
        blur.caps(&info);
        // Crops, and strides that are not those of the caps.
        let welcomed = |blur: &Blur| {
            let mut query = gst::query::Allocation::new(Some(&info.to_caps().unwrap()), true);
            assert!(blur.harness.srcpad().unwrap().peer_query(&mut query));
            let crops = query.find_allocation_meta::<VideoCropMeta>().is_some();
            [crops, query.find_allocation_meta::<VideoMeta>().is_some()]
        };
        blur.push(frame.clone());
        assert_eq!(welcomed(&blur)[0], takes_crop, "{what}");
        let reconfigures = |blur: &mut Blur| {
            let events = std::iter::from_fn(|| blur.harness.try_pull_upstream_event());
            events.filter(|event| event.type_() == gst::EventType::Reconfigure).count()
        };
        reconfigures(&mut blur);
        blur.element.set_property_from_str(property, value);
        let before = queries.load(Ordering::Relaxed);
        let out = blur.push(frame.clone());
        assert_eq!(queries.load(Ordering::Relaxed) > before, begins, "{what}");
        assert_eq!(reconfigures(&mut blur), usize::from(takes_crop && begins), "{what}");
        let [crops, strides] = welcomed(&blur);
        assert_eq!([out.meta::<VideoCropMeta>().is_some(), crops], [!begins; 2], "{what}");
        assert!(strides || !begins, "{what}");
    }
}

/// Maps a plane as gstreamer-vaapi and MSDK do: sets address and stride and leaves GstMapInfo uninitialised.
unsafe extern "C" fn map(
    meta: *mut gst_video::ffi::GstVideoMeta,
    plane: u32,
    _info: *mut gst::ffi::GstMapInfo,
    data: *mut glib::ffi::gpointer,
    stride: *mut i32,
    _flags: gst::ffi::GstMapFlags,
) -> glib::ffi::gboolean {
    // SAFETY: GStreamer calls it with a live meta of a buffer with one memory in system memory, whose address does not
    // change when it is unmapped.
    unsafe {
        let memory = gst::ffi::gst_buffer_peek_memory((*meta).buffer, 0);
        let mut own = std::mem::zeroed();
        gst::ffi::gst_memory_map(memory, &mut own, gst::ffi::GST_MAP_READ);
        *data = own.data.add((*meta).offset[plane as usize]).cast();
        gst::ffi::gst_memory_unmap(memory, &mut own);
        *stride = (*meta).stride[plane as usize];
    }
    glib::ffi::GTRUE
}

unsafe extern "C" fn unmap(
    _meta: *mut gst_video::ffi::GstVideoMeta,
    _plane: u32,
    _info: *mut gst::ffi::GstMapInfo,
) -> glib::ffi::gboolean {
    UNMAPPED.fetch_add(1, Ordering::Relaxed);
    glib::ffi::GTRUE
}

/// Sets these functions on the buffer's video meta.
fn with_custom_map(mut buffer: gst::Buffer) -> gst::Buffer {
    let meta = buffer.get_mut().unwrap().meta_mut::<VideoMeta>().unwrap();
    // SAFETY: `meta` is the exclusive reference to a live meta.
    unsafe {
        let raw = meta.as_ptr().cast_mut();
        (*raw).map = Some(map);
        (*raw).unmap = Some(unmap);
    }
    buffer
}

/// Fills the stack below the caller with these bytes, which uninitialised variables of the next calls then contain.
#[inline(never)]
fn fill_stack(byte: u8) {
    let mut bytes = [0_u8; 256 << 10];
    bytes.fill(byte);
    std::hint::black_box(&bytes);
}

fn video_metas_with_custom_map_functions() {
    video::init();
    // The fake CUDA driver does not run under valgrind, where only the CPU backend is tested.
    let driver = std::env::var_os(UNDER_VALGRIND).is_none().then(FakeDriver::new);
    let backends = if driver.is_some() { &["cpu", "cuda"][..] } else { &["cpu"] };
    for (format, backend) in FORMATS.into_iter().flat_map(|format| backends.iter().map(move |one| (format, *one))) {
        let info = video::info(format, 37, 23);
        for byte in [0x00, 0xff, 0x5a, 0x7f, 0x01] {
            check_pool(&info, backend, odd_layout(&info), Some(byte));
        }
    }
    // What they have mapped stays mapped where the device may still use the frame. The CPU maps it once more.
    if let Some(driver) = driver {
        let info = video::info(VideoFormat::Rgba, 40, 12);
        let (offsets, strides, size) = default_layout(&info);
        let mut blur = Blur::with("backend=auto sigma=2", &info);
        for function in ["cuEventQuery", "cuEventSynchronize"] {
            driver.fail(function, 0, LAUNCH_FAILED);
        }
        let before = UNMAPPED.load(Ordering::Relaxed);
        blur.push(with_custom_map(with_meta(&info, vec![0; size], &offsets, &strides)));
        driver.clear_faults();
        assert_eq!(blur.stats(["frames-abandoned", "frames-cpu"]), [1, 1]);
        assert_eq!(UNMAPPED.load(Ordering::Relaxed) - before, 1);
    }
}

fn main() {
    if std::env::var_os(UNDER_VALGRIND).is_none() {
        // Opening the driver sets an environment variable, which is sound only before the test threads start.
        std::sync::LazyLock::force(&common::fake_driver::DRIVER);
    }
    let trials = vec![
        trial("crops_are_the_picture", true, crops_are_the_picture),
        trial("upstream_is_asked_again_after_passthrough", true, upstream_is_asked_again_after_passthrough),
        trial("downstream_pools_with_alignment_and_odd_strides", true, downstream_pools_with_alignment_and_odd_strides),
        trial("invalid_layouts_are_errors_that_name_input_or_output", true, invalid_layouts_are_errors),
        trial("video_metas_with_custom_map_functions", true, video_metas_with_custom_map_functions),
        under_valgrind("video_metas_with_custom_map_functions", "--track-origins=yes", (UNDER_VALGRIND, "1")),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
