//! Buffers as other elements make them: downstream's pools with alignment and odd paddings, video metas with a map function of
//! their own, and buffers that do not hold what they say. The maps are also tested under valgrind.

mod common;

use std::process::Command;
use std::sync::Mutex;

use common::formats::{self, Setting};
use common::video::{self, Blur};
use common::{Noise, machine::Machine};
use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_video::{VideoFormat, VideoFrameFlags, VideoInfo, VideoInterlaceMode, VideoMeta};
use libtest_mimic::{Arguments, Failed, Trial};

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
/// Names the maps' test where valgrind runs it.
const UNDER_VALGRIND: &str = "CUDAGAUSSBLUR_TEST_VALGRIND";

type Make = Box<dyn Fn() -> gst::Buffer + Send>;

mod imp {
    use super::*;

    #[derive(Default)]
    pub struct Pool {
        pub make: Mutex<Option<Make>>,
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
            Ok(self.make.lock().unwrap().as_ref().expect("set when it was made")())
        }
    }
}

glib::wrapper! {
    /// A pool of downstream's, whose buffers are made by a function.
    pub struct Pool(ObjectSubclass<imp::Pool>) @extends gst::BufferPool, gst::Object;
}

/// Has downstream offer a pool of such buffers.
fn offer_pool(blur: &Blur, size: usize, make: impl Fn() -> gst::Buffer + Send + 'static) {
    let pool: Pool = glib::Object::new();
    *pool.imp().make.lock().unwrap() = Some(Box::new(make));
    let pad = blur.element.static_pad("src").unwrap();
    pad.add_probe(gst::PadProbeType::QUERY_DOWNSTREAM | gst::PadProbeType::PUSH, move |_, probe| {
        if let Some(gst::QueryViewMut::Allocation(query)) = probe.query_mut().map(gst::QueryRef::view_mut) {
            query.add_allocation_pool(Some(&pool), size as u32, 0, 0);
            query.add_allocation_meta::<VideoMeta>(None);
        }
        gst::PadProbeReturn::Ok
    });
}

/// A buffer for frames whose planes lie so.
fn with_meta(info: &VideoInfo, bytes: Vec<u8>, offsets: &[usize], strides: &[i32]) -> gst::Buffer {
    let mut buffer = gst::Buffer::from_mut_slice(bytes);
    let (width, height) = (info.width(), info.height());
    let meta = buffer.get_mut().unwrap();
    VideoMeta::add_full(meta, VideoFrameFlags::empty(), info.format(), width, height, offsets, strides).unwrap();
    buffer
}

fn lines(info: &VideoInfo) -> usize {
    let alternate = info.interlace_mode() == VideoInterlaceMode::Alternate;
    info.height().div_ceil(1 + u32::from(alternate)) as usize
}

/// Offsets, strides and size of planes that begin at an odd address, in rows with an odd padding.
fn odd_places(info: &VideoInfo) -> (Vec<usize>, Vec<i32>, usize) {
    let planes = info.n_planes() as usize;
    let strides: Vec<i32> = info.stride()[..planes].iter().map(|stride| stride + 13).collect();
    let mut size = 7;
    let offsets = strides.iter().map(|stride| (size, size += *stride as usize * lines(info) + 5).0).collect();
    (offsets, strides, size)
}

/// Those of a pool with VideoAlignment, as decoders and encoders ask for: rows and columns round the picture.
fn aligned_places(info: &VideoInfo) -> (Vec<usize>, Vec<i32>, usize) {
    let mut aligned = info.clone();
    aligned.align(&mut gst_video::VideoAlignment::new(6, 10, 16, 2, &[63, 63, 63, 63])).unwrap();
    let planes = info.n_planes() as usize;
    (aligned.offset()[..planes].to_vec(), aligned.stride()[..planes].to_vec(), aligned.size())
}

/// Whether all bytes but the picture's are as the pool made them.
fn surroundings_are_untouched(info: &VideoInfo, output: &gst::Buffer) -> bool {
    let mut bytes = output.map_readable().unwrap().to_vec();
    let meta = output.meta::<VideoMeta>().unwrap();
    let format = info.format_info();
    for c in 0..format.n_components() {
        let plane = format.plane()[c as usize] as usize;
        let rows = lines(info).div_ceil(1 << format.h_sub()[c as usize]);
        let pixels = if info.format() == VideoFormat::Yuy2 {
            info.width().next_multiple_of(2)
        } else {
            info.comp_width(c as u8)
        };
        let pixel_stride = if info.format() == VideoFormat::Yuy2 { 2 } else { info.comp_pstride(c as u8) };
        for row in 0..rows {
            let first = meta.offset()[plane] + row * meta.stride()[plane] as usize;
            bytes[first..first + (pixels as usize * pixel_stride as usize)].fill(UNTOUCHED);
        }
    }
    bytes.iter().all(|byte| *byte == UNTOUCHED)
}

fn start(backend: &str, setting: &Setting) -> Blur {
    let blur = Blur::new(&format!("backend={backend} {}", setting.properties()));
    assert_eq!(video::nick(&blur.element, "active-backend"), backend);
    blur
}

fn downstream_pools_with_alignment_and_odd_paddings() {
    video::init();
    let _machine = Machine::new();
    let setting = formats::settings()[0];
    for (format, mode) in FORMATS
        .into_iter()
        .flat_map(|format| [VideoInterlaceMode::Progressive, VideoInterlaceMode::Alternate].map(|mode| (format, mode)))
    {
        for (backend, places) in
            ["cpu", "cuda"].into_iter().flat_map(|backend| [odd_places, aligned_places].map(|p| (backend, p)))
        {
            let info = VideoInfo::builder(format, 37, 46).interlace_mode(mode).fps((25, 1)).build().unwrap();
            let mut blur = start(backend, &setting);
            let (offsets, strides, size) = places(&info);
            let (own, from_pool) = (info.clone(), size + 64);
            offer_pool(&blur, from_pool, move || with_meta(&own, vec![UNTOUCHED; from_pool], &offsets, &strides));
            blur.caps(&info);
            let mut noise = Noise(3);
            let input = formats::buffer(&info, 20, &mut || noise.next() as u8);
            let output = blur.push(input.clone());
            let what = format!("{format} {mode:?} {backend} {size}");
            assert_eq!(output.size(), from_pool, "{what}: not of downstream's pool");
            formats::compare(&info, &setting, 1, &input, &output);
            assert!(surroundings_are_untouched(&info, &output), "{what}: bytes beside the picture were written");
        }
    }
}

/// Each is an error that names the side and the bytes, and what to do.
fn buffers_that_do_not_hold_their_frame_are_errors_that_name_the_side() {
    video::init();
    let info = video::info(VideoFormat::Rgba, 64, 32);
    let planar = video::info(VideoFormat::I420, 64, 32);
    type Make = fn(&VideoInfo) -> gst::Buffer;
    let short: Make = |_| gst::Buffer::from_mut_slice(vec![0; 8191]);
    let beyond: Make = |info| {
        let mut buffer = with_meta(info, vec![0; 512 * 32], &[0], &[512]);
        buffer.get_mut().unwrap().set_size(512 * 31);
        buffer
    };
    let narrow: Make = |info| with_meta(info, vec![0; 8192], &[0], &[255]);
    let upwards: Make = |info| with_meta(info, vec![0; 8192], &[0], &[-256]);
    let overlapping: Make = |info| with_meta(info, vec![0; 8192], &[0, 0, 3000], &[64, 32, 32]);
    let cases: [(&str, Make, &VideoInfo, &[&str]); 5] = [
        ("too small", short, &info, &["buffer is truncated", "holds 8191 bytes", "takes 8192"]),
        ("rows beyond the end", beyond, &info, &["buffer is truncated", "at a row pitch of 512 bytes take 16128"]),
        ("rows that overlap", narrow, &info, &["row pitch of 255 bytes", "a row of 64 pixels takes 256"]),
        ("rows upwards", upwards, &info, &["row stride of -256 bytes"]),
        ("planes that overlap", overlapping, &planar, &["planes of the output buffer overlap"]),
    ];
    for (what, make, info, words) in cases {
        for side in ["input", "output"] {
            if side == "input" && what == "planes that overlap" {
                // Which is only read.
                continue;
            }
            let mut blur = Blur::new("backend=cpu");
            if side == "output" {
                let own = info.clone();
                offer_pool(&blur, make(info).size(), move || make(&own));
            }
            blur.caps(info);
            let good = gst::Buffer::from_mut_slice(vec![0; info.size()]);
            let input = if side == "input" { make(info) } else { good };
            assert_eq!(blur.try_push(input), Err(gst::FlowError::Error), "{side}: {what}");
            let errors = blur.messages(gst::MessageType::Error);
            println!("{side}, {what}: {errors:?}");
            assert_eq!(errors.len(), 1, "{errors:?}");
            let cure =
                if side == "input" { "the element before cudagaussblur" } else { "identity drop-allocation=true" };
            let all = words.iter().chain([&cure, &side]);
            assert!(all.into_iter().all(|word| errors[0].contains(word)), "{side}: {what}: {errors:?}");
        }
    }
}

/// Maps a plane as gstreamer-vaapi and MSDK do: address and stride, and nothing of GstMapInfo.
unsafe extern "C" fn map(
    meta: *mut gst_video::ffi::GstVideoMeta,
    plane: u32,
    _info: *mut gst::ffi::GstMapInfo,
    data: *mut glib::ffi::gpointer,
    stride: *mut i32,
    _flags: gst::ffi::GstMapFlags,
) -> glib::ffi::gboolean {
    // SAFETY: called by GStreamer, with a meta in a buffer of one memory, which stays where it is.
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

/// Gives the buffer's meta these functions.
fn mapped_otherwise(mut buffer: gst::Buffer) -> gst::Buffer {
    let meta = buffer.get_mut().unwrap().meta_mut::<VideoMeta>().unwrap();
    // SAFETY: a live meta, the only reference to it.
    unsafe {
        let raw = meta.as_ptr().cast_mut();
        (*raw).map = Some(map);
        (*raw).unmap = Some(unmap);
    }
    buffer
}

/// Leaves these bytes where the next calls have their variables.
#[inline(never)]
fn fill_stack(byte: u8) {
    let mut bytes = [0_u8; 256 << 10];
    bytes.fill(byte);
    std::hint::black_box(&bytes);
}

fn metas_with_maps_of_their_own() {
    video::init();
    // Valgrind stands no stand-in for a driver; there the CPU is enough.
    let machine = std::env::var_os(UNDER_VALGRIND).is_none().then(Machine::new);
    let setting = formats::settings()[0];
    let backends: &[&str] = if machine.is_some() { &["cpu", "cuda"] } else { &["cpu"] };
    for (format, backend) in
        FORMATS.into_iter().flat_map(|format| backends.iter().map(move |backend| (format, *backend)))
    {
        for fill in [0x00, 0xff, 0x5a, 0x7f, 0x01] {
            let info = video::info(format, 37, 23);
            let mut blur = start(backend, &setting);
            let (offsets, strides, size) = odd_places(&info);
            let own = info.clone();
            offer_pool(&blur, size, move || {
                mapped_otherwise(with_meta(&own, vec![UNTOUCHED; size], &offsets, &strides))
            });
            blur.caps(&info);
            let mut noise = Noise(u64::from(fill));
            let input = formats::buffer(&info, 20, &mut || noise.next() as u8);
            let mapped = mapped_otherwise(input.copy_deep().unwrap());
            fill_stack(fill);
            let output = blur.push(mapped);
            // To read it, GStreamer's own map again.
            let (offsets, strides, _) = odd_places(&info);
            let output = with_meta(&info, output.map_readable().unwrap().to_vec(), &offsets, &strides);
            formats::compare(&info, &setting, 1, &input, &output);
            assert!(surroundings_are_untouched(&info, &output), "{format} {backend} fill {fill}");
        }
    }
}

/// The maps' test in a process of its own, every use of a value that nobody has set being an error.
fn metas_with_maps_of_their_own_under_valgrind() -> Result<(), Failed> {
    let output = Command::new("valgrind")
        .args(["--error-exitcode=9", "--track-origins=yes", "--num-callers=30", "--quiet"])
        .arg(std::env::current_exe().unwrap())
        .args(["--exact", "metas_with_maps_of_their_own", "--test-threads=1"])
        .env(UNDER_VALGRIND, "1")
        .env("G_SLICE", "always-malloc")
        .output()
        .unwrap();
    let said = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
    if output.status.success() && said.contains("1 passed") { Ok(()) } else { Err(said.into()) }
}

fn main() {
    if std::env::var_os(UNDER_VALGRIND).is_none() {
        // It sets a variable of the environment, which no other thread may read then.
        std::sync::LazyLock::force(&common::machine::DRIVER);
    }
    let has_valgrind = Command::new("valgrind").arg("--version").output().is_ok_and(|output| output.status.success());
    let plain: [(&str, fn()); 3] = [
        ("downstream_pools_with_alignment_and_odd_paddings", downstream_pools_with_alignment_and_odd_paddings),
        (
            "buffers_that_do_not_hold_their_frame_are_errors_that_name_the_side",
            buffers_that_do_not_hold_their_frame_are_errors_that_name_the_side,
        ),
        ("metas_with_maps_of_their_own", metas_with_maps_of_their_own),
    ];
    let mut trials: Vec<Trial> =
        plain.into_iter().map(|(name, test)| Trial::test(name, move || (test(), Ok(())).1)).collect();
    let under_valgrind = metas_with_maps_of_their_own_under_valgrind;
    trials.push(
        Trial::test("metas_with_maps_of_their_own_under_valgrind", under_valgrind).with_ignored_flag(!has_valgrind),
    );
    libtest_mimic::run(&Arguments::from_args(), trials).exit();
}
