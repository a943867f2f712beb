//! Buffers as other elements allocate them: downstream pools with alignment and odd strides, video metas with custom
//! map functions, and buffers that are smaller than their layout. The map functions are also tested under valgrind.

mod common;

use std::ops::Range;
use std::process::Command;
use std::sync::Mutex;

use common::Noise;
use common::fake_driver::FakeDriver;
use common::formats::{self, Setting};
use common::video::{self, Blur};
use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_video::{VideoCropMeta, VideoFormat, VideoFrameFlags, VideoInfo, VideoInterlaceMode, VideoMeta};
use libtest_mimic::{Arguments, Failed, Trial};

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

type Allocate = Box<dyn Fn() -> gst::Buffer + Send>;

mod imp {
    use super::*;

    #[derive(Default)]
    pub struct Pool {
        pub allocate: Mutex<Option<Allocate>>,
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
            Ok(self.allocate.lock().unwrap().as_ref().expect("offer_pool sets the function")())
        }
    }
}

glib::wrapper! {
    /// A downstream pool whose buffers are allocated by a function of the test.
    pub struct Pool(ObjectSubclass<imp::Pool>) @extends gst::BufferPool, gst::Object;
}

/// Makes downstream offer a pool whose buffers `allocate` returns.
fn offer_pool(blur: &Blur, size: usize, allocate: impl Fn() -> gst::Buffer + Send + 'static) {
    let pool: Pool = glib::Object::new();
    *pool.imp().allocate.lock().unwrap() = Some(Box::new(allocate));
    let pad = blur.element.static_pad("src").unwrap();
    pad.add_probe(gst::PadProbeType::QUERY_DOWNSTREAM | gst::PadProbeType::PUSH, move |_, probe| {
        if let Some(gst::QueryViewMut::Allocation(query)) = probe.query_mut().map(gst::QueryRef::view_mut) {
            query.add_allocation_pool(Some(&pool), size as u32, 0, 0);
            query.add_allocation_meta::<VideoMeta>(None);
        }
        gst::PadProbeReturn::Ok
    });
}

/// A buffer with a video meta for planes at these offsets and strides.
fn with_meta(info: &VideoInfo, bytes: Vec<u8>, offsets: &[usize], strides: &[i32]) -> gst::Buffer {
    let mut buffer = gst::Buffer::from_mut_slice(bytes);
    let (width, height) = (info.width(), info.height());
    let meta = buffer.get_mut().unwrap();
    VideoMeta::add_full(meta, VideoFrameFlags::empty(), info.format(), width, height, offsets, strides).unwrap();
    buffer
}

/// Lines in a buffer: half of the frame's in alternate mode.
fn lines(info: &VideoInfo) -> usize {
    let alternate = info.interlace_mode() == VideoInterlaceMode::Alternate;
    info.height().div_ceil(1 + u32::from(alternate)) as usize
}

/// Offsets, strides and size of the planes of a buffer.
type Planes = (Vec<usize>, Vec<i32>, usize);

fn default_layout(info: &VideoInfo) -> Planes {
    let planes = info.n_planes() as usize;
    (info.offset()[..planes].to_vec(), info.stride()[..planes].to_vec(), info.size())
}

/// Planes that begin at odd offsets and have odd row padding.
fn odd_layout(info: &VideoInfo) -> Planes {
    let strides: Vec<i32> = default_layout(info).1.iter().map(|stride| stride + 13).collect();
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

/// Whether all bytes outside the picture still have the pool's fill value.
fn padding_is_untouched(info: &VideoInfo, output: &gst::Buffer) -> bool {
    let mut bytes = output.map_readable().unwrap().to_vec();
    let meta = output.meta::<VideoMeta>().unwrap();
    rows(info, meta.offset(), meta.stride(), (0, 0)).into_iter().for_each(|row| bytes[row].fill(UNTOUCHED));
    bytes.iter().all(|byte| *byte == UNTOUCHED)
}

fn start(backend: &str, setting: &Setting) -> Blur {
    let blur = Blur::new(&format!("backend={backend} {}", setting.properties()));
    assert_eq!(video::nick(&blur.element, "active-backend"), backend);
    blur
}

fn downstream_pools_with_alignment_and_odd_strides() {
    video::init();
    let _driver = FakeDriver::new();
    let setting = formats::settings()[0];
    let modes = [VideoInterlaceMode::Progressive, VideoInterlaceMode::Alternate];
    for (format, mode) in FORMATS.into_iter().flat_map(|format| modes.map(|mode| (format, mode))) {
        for (backend, layout) in
            ["cpu", "cuda"].into_iter().flat_map(|backend| [odd_layout, aligned_layout].map(|layout| (backend, layout)))
        {
            let info = VideoInfo::builder(format, 37, 46).interlace_mode(mode).fps((25, 1)).build().unwrap();
            let mut blur = start(backend, &setting);
            let (offsets, strides, size) = layout(&info);
            let (own, from_pool) = (info.clone(), size + 64);
            offer_pool(&blur, from_pool, move || with_meta(&own, vec![UNTOUCHED; from_pool], &offsets, &strides));
            blur.caps(&info);
            let mut noise = Noise(3);
            let input = formats::buffer(&info, 20, &mut || noise.next() as u8);
            let output = blur.push(input.clone());
            let what = format!("{format} {mode:?} {backend} {size}");
            assert_eq!(output.size(), from_pool, "{what}: the output is not from the downstream pool");
            formats::compare(&info, &setting, 1, &input, &output);
            assert!(padding_is_untouched(&info, &output), "{what}: bytes outside the picture were written");
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
            let input = if *side == "input" { allocate(info) } else { good };
            assert_eq!(blur.try_push(input), Err(gst::FlowError::Error), "{side}: {what}");
            let errors = blur.messages(gst::MessageType::Error);
            println!("{side}, {what}: {errors:?}");
            let has_all = words.iter().chain([remedy, side]).all(|word| errors[0].contains(word));
            assert!(errors.len() == 1 && has_all, "{side}: {what}: {errors:?}");
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
    let rows = match buffer.meta::<VideoMeta>() {
        Some(meta) => rows(info, meta.offset(), meta.stride(), at),
        None => rows(info, info.offset(), info.stride(), at),
    };
    let map = buffer.map_readable().unwrap();
    rows.into_iter().flat_map(|row| map[row].to_vec()).collect()
}

/// What a GstVideoCropMeta shows is blurred and covered like a picture of its own. The meta stays on the buffer that it came with and
/// leaves new ones.
fn crops_are_the_picture() {
    video::init();
    let _driver = FakeDriver::new();
    let zone = "region-mode=inside zones=<[zone,x=0.0,y=0.0,width=0.3,height=0.4]>";
    // The other place is between samples of chroma. There a cover in place would leave the half sample at its other end.
    for (format, at) in FORMATS.into_iter().flat_map(|format| [(format, (8, 4)), (format, (9, 5))]) {
        let is_whole = at == (8, 4) || video::info(format, 2, 2).format_info().w_sub().iter().all(|shift| *shift == 0);
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
        assert_eq!(blur.try_push(frame), Err(gst::FlowError::Error));
        let errors = blur.messages(gst::MessageType::Error);
        assert!(errors.len() == 1 && errors[0].contains(words), "{errors:?}");
    }
    // A crop of another size is for whom shows the picture: all of it is blurred, and the meta stays true.
    let (_, mut frame, _) = cropped(VideoFormat::Gray8, (8, 4));
    let whole = video::info(VideoFormat::Gray8, 336, 256);
    let mut blur = Blur::new("backend=cpu sigma=2");
    blur.caps(&whole);
    frame.get_mut().unwrap().meta_mut::<VideoCropMeta>().unwrap().set_rect((8, 4, 100, 100));
    let out = blur.push(frame.clone());
    assert_eq!(out.meta::<VideoCropMeta>().map(|crop| crop.rect()), Some((8, 4, 100, 100)));
    assert!(video::read(&whole, &out) == video::blurred(&video::read(&whole, &frame), 2.0, 0));
}

/// In passthrough upstream learns what downstream welcomes. It is asked again when the element begins to blur.
fn upstream_is_asked_again_after_passthrough() {
    for (takes_crop, property, value, begins) in [
        (true, "sigma", "2", true),
        (true, "region-mode", "outside", true),
        (false, "sigma", "2", true),
        (true, "sigma", "0", false),
    ] {
        let what = format!("{takes_crop} {property}={value}");
        let mut blur = Blur::new("backend=cpu sigma=0");
        if takes_crop {
            blur.harness.add_propose_allocation_meta(VideoCropMeta::meta_api(), None);
        }
        let (info, frame, _) = cropped(VideoFormat::Gray8, (8, 4));
        blur.caps(&info);
        let welcomes_crops = |blur: &Blur| {
            let mut query = gst::query::Allocation::new(Some(&info.to_caps().unwrap()), true);
            assert!(blur.harness.srcpad().unwrap().peer_query(&mut query));
            query.find_allocation_meta::<VideoCropMeta>().is_some()
        };
        blur.push(frame.clone());
        assert_eq!(welcomes_crops(&blur), takes_crop, "{what}");
        let reconfigures = |blur: &mut Blur| {
            let events = std::iter::from_fn(|| blur.harness.try_pull_upstream_event());
            events.filter(|event| event.type_() == gst::EventType::Reconfigure).count()
        };
        reconfigures(&mut blur);
        blur.element.set_property_from_str(property, value);
        let out = blur.push(frame.clone());
        assert_eq!(reconfigures(&mut blur), usize::from(takes_crop && begins), "{what}");
        assert_eq!([out.meta::<VideoCropMeta>().is_some(), welcomes_crops(&blur)], [!begins; 2], "{what}");
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
    let setting = formats::settings()[0];
    let backends: &[&str] = if driver.is_some() { &["cpu", "cuda"] } else { &["cpu"] };
    for (format, backend) in FORMATS.into_iter().flat_map(|format| backends.iter().map(move |one| (format, *one))) {
        for fill in [0x00, 0xff, 0x5a, 0x7f, 0x01] {
            let info = video::info(format, 37, 23);
            let mut blur = start(backend, &setting);
            let (offsets, strides, size) = odd_layout(&info);
            let own = info.clone();
            offer_pool(&blur, size, move || {
                with_custom_map(with_meta(&own, vec![UNTOUCHED; size], &offsets, &strides))
            });
            blur.caps(&info);
            let mut noise = Noise(u64::from(fill));
            let input = formats::buffer(&info, 20, &mut || noise.next() as u8);
            let mapped = with_custom_map(input.copy_deep().unwrap());
            fill_stack(fill);
            let output = blur.push(mapped);
            // The comparison reads the output through a meta with GStreamer's default map.
            let (offsets, strides, _) = odd_layout(&info);
            let output = with_meta(&info, output.map_readable().unwrap().to_vec(), &offsets, &strides);
            formats::compare(&info, &setting, 1, &input, &output);
            assert!(padding_is_untouched(&info, &output), "{format} {backend} fill {fill}");
        }
    }
}

/// Runs the map test in a child process under valgrind, which fails on any use of an uninitialised value.
fn video_metas_with_custom_map_functions_under_valgrind() -> Result<(), Failed> {
    let output = Command::new("valgrind")
        .args(["--error-exitcode=9", "--track-origins=yes", "--num-callers=30", "--quiet"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "video_metas_with_custom_map_functions", "--test-threads=1"])
        .env(UNDER_VALGRIND, "1")
        .env("G_SLICE", "always-malloc")
        .output()
        .unwrap();
    let text = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
    if output.status.success() && text.contains("1 passed") { Ok(()) } else { Err(text.into()) }
}

fn main() {
    if std::env::var_os(UNDER_VALGRIND).is_none() {
        // Opening the driver sets an environment variable, which is sound only before the test threads start.
        std::sync::LazyLock::force(&common::fake_driver::DRIVER);
    }
    let has_valgrind = Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success());
    let test = |name: &str, test: fn()| Trial::test(name, move || (test(), Ok(())).1);
    let under_valgrind = video_metas_with_custom_map_functions_under_valgrind;
    let trials = vec![
        test("crops_are_the_picture", crops_are_the_picture),
        test("upstream_is_asked_again_after_passthrough", upstream_is_asked_again_after_passthrough),
        test("downstream_pools_with_alignment_and_odd_strides", downstream_pools_with_alignment_and_odd_strides),
        test("invalid_layouts_are_errors_that_name_input_or_output", invalid_layouts_are_errors),
        test("video_metas_with_custom_map_functions", video_metas_with_custom_map_functions),
        Trial::test("video_metas_with_custom_map_functions_under_valgrind", under_valgrind)
            .with_ignored_flag(!has_valgrind),
    ];
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
