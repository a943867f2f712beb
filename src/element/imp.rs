// SPDX-License-Identifier: MPL-2.0
//! The GObject: what GstBaseTransform asks of the element, answered with engine calls.
//!
//! Settings are copied and the lock dropped before any work. The stream's state is taken out of its mutex while a frame
//! is blurred and put back after, so that no lock is held while GStreamer is called.

use std::sync::{LazyLock, Mutex, MutexGuard, PoisonError};

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::prelude::*;
use gst_base::subclass::base_transform::{InputBuffer, PrepareOutputBufferSuccess};
use gst_base::subclass::prelude::*;
use gst_video::VideoInterlaceMode;
use gst_video::prelude::*;

use super::map::{MapError, Mapped};
use super::pinned::PinnedAllocator;
use super::settings::{Backend, Settings, param_specs};
use super::{CudaGaussBlur as Element, formats};
use crate::engine::{self, CudaError, Engine, EngineError, ErrorKind, Level, Stats};
use crate::frame::{MAX_DIMENSION, PlaneLayout};
use crate::plan::Options;

static CAT: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    gst::DebugCategory::new("cudagaussblur", gst::DebugColorFlags::empty(), Some("Gaussian blur on the GPU or CPU"))
});

/// What lives from start to stop.
pub(super) struct Stream {
    pub(super) engine: Engine,
    /// What the caps say; none before the first.
    format: Option<Format>,
    /// What the frame at hand is blurred with.
    options: Options,
}

/// What the caps say of frames.
struct Format {
    info: gst_video::VideoInfo,
    /// The planes of a frame, and of one whose two fields are interleaved.
    layouts: [Vec<PlaneLayout>; 2],
}

impl Format {
    /// The planes of this buffer: in streams of mixed frames each says for itself what it is.
    fn layouts(&self, buffer: &gst::BufferRef) -> &[PlaneLayout] {
        let interlaced = match self.info.interlace_mode() {
            VideoInterlaceMode::Interleaved => true,
            VideoInterlaceMode::Mixed => buffer.video_flags().contains(gst_video::VideoBufferFlags::INTERLACED),
            _ => false,
        };
        &self.layouts[usize::from(interlaced)]
    }
}

/// What people can read at any time.
#[derive(Default)]
struct Readable {
    active: Backend,
    stats: Stats,
    frames_passthrough: u64,
}

/// Why a frame came to nothing.
#[derive(Debug, thiserror::Error)]
enum FrameFailure {
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(transparent)]
    Engine(#[from] EngineError),
}

/// The element's private part.
#[derive(Default)]
pub struct CudaGaussBlur {
    settings: Mutex<Settings>,
    pub(super) stream: Mutex<Option<Stream>>,
    readable: Mutex<Readable>,
}

/// An engine's error as GStreamer's.
fn error_message(error: &EngineError) -> gst::ErrorMessage {
    match error.kind() {
        ErrorKind::Frame => gst::error_msg!(gst::StreamError::Format, ("{error}")),
        ErrorKind::Setting => gst::error_msg!(gst::ResourceError::Settings, ("{error}")),
        ErrorKind::Missing => gst::error_msg!(gst::ResourceError::NotFound, ("{error}")),
        ErrorKind::Memory => gst::error_msg!(gst::ResourceError::NoSpaceLeft, ("{error}")),
        ErrorKind::Failed => gst::error_msg!(gst::ResourceError::Failed, ("{error}")),
    }
}

/// A pool of video frames from this allocator.
fn video_pool(caps: Option<&gst::Caps>, size: u32, min: u32, max: u32, allocator: &PinnedAllocator) -> gst::BufferPool {
    let pool = gst_video::VideoBufferPool::new().upcast::<gst::BufferPool>();
    let mut config = pool.config();
    config.set_params(caps, size, min, max);
    config.set_allocator(Some(allocator), None);
    config.add_option(gst_video::BUFFER_POOL_OPTION_VIDEO_META);
    // Whoever takes the pool configures it again, and is told then.
    let _ = pool.set_config(config);
    pool
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CudaGaussBlur {
    /// Lets controlled properties follow the stream, then fixes the frame's blur and whether it is one.
    fn settle(&self, buffer: &gst::BufferRef) {
        let element = self.obj();
        let segment = element.segment();
        let time = segment.downcast_ref::<gst::ClockTime>().and_then(|segment| segment.to_stream_time(buffer.pts()));
        if let Some(time) = time
            && let Err(error) = element.sync_values(time)
        {
            gst::debug!(CAT, imp = self, "controlled properties keep their values: {error}");
        }
        // Between start and stop the settings hold only what can be used.
        let Ok(options) = lock(&self.settings).options() else { return };
        if let Some(stream) = &mut *lock(&self.stream) {
            stream.options = options;
        }
        let passthrough = options.is_passthrough();
        if element.is_passthrough() != passthrough {
            gst::debug!(CAT, imp = self, "{} passthrough", if passthrough { "entering" } else { "leaving" });
            element.set_passthrough(passthrough);
            // With the passthrough goes or comes the need for a pool of our own.
            element.reconfigure_src();
        }
    }

    fn blur(
        &self,
        stream: &mut Stream,
        input: &gst::BufferRef,
        output: &mut gst::BufferRef,
    ) -> Result<Option<CudaError>, FrameFailure> {
        let Some(format) = &stream.format else { return Err(MapError::Refused.into()) };
        let layouts = format.layouts(input);
        let input = Mapped::read(input, &format.info)?;
        let mut output = Mapped::write(output, &format.info)?;
        Ok(stream.engine.blur(stream.options, &input.planes(layouts)?, &mut output.planes(layouts)?)?)
    }

    /// Pinned memory, where CUDA blurs.
    fn allocator(&self) -> Option<PinnedAllocator> {
        lock(&self.stream).as_ref().and_then(|stream| stream.engine.pinned()).map(PinnedAllocator::new)
    }

    fn stats(&self) -> gst::Structure {
        let Readable { stats, frames_passthrough, .. } = *lock(&self.readable);
        let nanoseconds = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut structure = gst::Structure::builder("application/x-cudagaussblur-stats")
            .field("frames", stats.frames_cuda + stats.frames_cpu + frames_passthrough)
            .field("frames-cuda", stats.frames_cuda)
            .field("frames-cpu", stats.frames_cpu)
            .field("frames-passthrough", frames_passthrough)
            .field("bytes-copied", stats.bytes_copied)
            .field("compiling", stats.progress.at_work)
            .field("compile-last-ns", stats.progress.last.map_or(0, |made| nanoseconds(made.took)))
            .field("compile-last-from", stats.progress.last.map_or("none", |made| made.from.name()))
            .field("kernel", if stats.kernel_name.is_empty() { "none" } else { stats.kernel_name });
        for (stage, time) in [("upload", stats.upload), ("kernel", stats.kernel), ("download", stats.download)] {
            structure = structure
                .field(format!("{stage}-last-ns"), nanoseconds(time.last))
                .field(format!("{stage}-mean-ns"), nanoseconds(time.mean()));
        }
        structure.build()
    }
}

#[glib::object_subclass]
impl ObjectSubclass for CudaGaussBlur {
    const NAME: &'static str = "GstCudaGaussBlur";
    type Type = Element;
    type ParentType = gst_base::BaseTransform;

    fn class_init(_: &mut Self::Class) {
        engine::log_to(|level, line| match level {
            Level::Warning => gst::warning!(CAT, "{line}"),
            Level::Info => gst::info!(CAT, "{line}"),
            Level::Debug => gst::debug!(CAT, "{line}"),
        });
    }
}

impl ObjectImpl for CudaGaussBlur {
    fn constructed(&self) {
        self.parent_constructed();
        let element = self.obj();
        element.set_property("qos", true);
        // A gap frame is blurred like any other and stays one.
        element.set_gap_aware(true);
    }

    fn properties() -> &'static [glib::ParamSpec] {
        static PROPERTIES: LazyLock<Vec<glib::ParamSpec>> = LazyLock::new(param_specs);
        &PROPERTIES
    }

    fn set_property(&self, _id: usize, value: &glib::Value, pspec: &glib::ParamSpec) {
        let taken = lock(&self.settings).set(pspec.name(), value);
        if let Err(refused) = taken {
            gst::element_imp_warning!(self, gst::ResourceError::Settings, ("{refused}"));
        }
    }

    fn property(&self, _id: usize, pspec: &glib::ParamSpec) -> glib::Value {
        let settings = *lock(&self.settings);
        match pspec.name() {
            "sigma" => settings.sigma.to_value(),
            "kernel-size" => settings.kernel_size.to_value(),
            "planes" => settings.planes.to_value(),
            "alpha" => settings.alpha.to_value(),
            "backend" => settings.backend.to_value(),
            "cuda-device-id" => settings.cuda_device_id.to_value(),
            "active-backend" => lock(&self.readable).active.to_value(),
            "stats" => self.stats().to_value(),
            other => unreachable!("no property {other}"),
        }
    }
}

impl GstObjectImpl for CudaGaussBlur {}

impl ElementImpl for CudaGaussBlur {
    fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
        static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
            gst::subclass::ElementMetadata::new(
                "CUDA Gaussian blur",
                "Filter/Effect/Video",
                "Blurs video with an exact Gaussian; the same bytes on every backend",
                "The cudagaussblur authors",
            )
        });
        Some(&METADATA)
    }

    fn pad_templates() -> &'static [gst::PadTemplate] {
        static TEMPLATES: LazyLock<Vec<gst::PadTemplate>> = LazyLock::new(|| {
            let frames = || {
                gst_video::VideoCapsBuilder::new()
                    .format_list(formats::all())
                    .width_range(1..=MAX_DIMENSION as i32)
                    .height_range(1..=MAX_DIMENSION as i32)
            };
            // Fields in buffers of their own have a caps feature.
            let fields =
                frames().features([gst_video::CAPS_FEATURE_FORMAT_INTERLACED]).field("interlace-mode", "alternate");
            let mut caps = frames().build();
            caps.make_mut().append(fields.build());
            [("sink", gst::PadDirection::Sink), ("src", gst::PadDirection::Src)]
                .map(|(name, direction)| gst::PadTemplate::new(name, direction, gst::PadPresence::Always, &caps))
                .into_iter()
                .collect::<Result<_, _>>()
                .expect("the caps are fixed at build time")
        });
        &TEMPLATES
    }
}

impl BaseTransformImpl for CudaGaussBlur {
    const MODE: gst_base::subclass::BaseTransformMode = gst_base::subclass::BaseTransformMode::NeverInPlace;
    const PASSTHROUGH_ON_SAME_CAPS: bool = false;
    const TRANSFORM_IP_ON_PASSTHROUGH: bool = false;

    fn start(&self) -> Result<(), gst::ErrorMessage> {
        // From here on only what can be used is taken, so that what is read now is what reads back while playing.
        let (settings, options) = {
            let mut settings = lock(&self.settings);
            let options =
                settings.options().map_err(|error| gst::error_msg!(gst::ResourceError::Settings, ("{error}")))?;
            settings.started = true;
            (*settings, options)
        };
        let opened = Engine::open(settings.backend.into(), settings.cuda_device());
        let (engine, no_cuda) = opened.map_err(|error| {
            lock(&self.settings).started = false;
            error_message(&error)
        })?;
        if let Some(no_cuda) = no_cuda {
            gst::warning!(CAT, imp = self, "the CPU does the work, because {no_cuda}");
        }
        gst::info!(CAT, imp = self, "blurring on {}", engine.description());
        *lock(&self.readable) =
            Readable { active: engine.active().into(), stats: engine.stats(), frames_passthrough: 0 };
        *lock(&self.stream) = Some(Stream { engine, format: None, options });
        self.obj().set_passthrough(options.is_passthrough());
        self.obj().notify("active-backend");
        Ok(())
    }

    fn stop(&self) -> Result<(), gst::ErrorMessage> {
        lock(&self.settings).started = false;
        let stream = lock(&self.stream).take();
        drop(stream);
        lock(&self.readable).active = Backend::Auto;
        self.obj().notify("active-backend");
        Ok(())
    }

    fn set_caps(&self, incaps: &gst::Caps, _outcaps: &gst::Caps) -> Result<(), gst::LoggableError> {
        let info = gst_video::VideoInfo::from_caps(incaps)
            .map_err(|_| gst::loggable_error!(CAT, "these caps describe no video frame: {incaps}"))?;
        if info.interlace_mode() == VideoInterlaceMode::Fields {
            return Err(gst::loggable_error!(CAT, "interlace-mode=fields cannot be blurred, all others can: {incaps}"));
        }
        let (Some(whole), Some(fields)) = (formats::planes(&info, false), formats::planes(&info, true)) else {
            return Err(gst::loggable_error!(CAT, "{} video cannot be blurred: {incaps}", info.format()));
        };
        if let Some(stream) = &mut *lock(&self.stream) {
            stream.format = Some(Format { info, layouts: [whole, fields] });
        }
        Ok(())
    }

    fn unit_size(&self, caps: &gst::Caps) -> Option<usize> {
        gst_video::VideoInfo::from_caps(caps).ok().map(|info| info.size())
    }

    /// An output frame has the size its caps ask for, whatever padding or truncation the input came with.
    fn transform_size(
        &self,
        _direction: gst::PadDirection,
        _caps: &gst::Caps,
        _size: usize,
        othercaps: &gst::Caps,
    ) -> Option<usize> {
        self.unit_size(othercaps)
    }

    fn propose_allocation(
        &self,
        decide_query: Option<&gst::query::Allocation>,
        query: &mut gst::query::Allocation,
    ) -> Result<(), gst::LoggableError> {
        self.parent_propose_allocation(decide_query, query)?;
        // In passthrough, where there is no decide_query, downstream has answered for itself.
        if decide_query.is_none() {
            return Ok(());
        }
        query.add_allocation_meta::<gst_video::VideoMeta>(None);
        // What upstream writes into such memory goes to the device without a copy by the CPU.
        let caps = query.get_owned().0;
        let info = caps.as_ref().and_then(|caps| gst_video::VideoInfo::from_caps(caps).ok());
        if let (Some(allocator), Some(info)) = (self.allocator(), info) {
            let size = u32::try_from(info.size()).unwrap_or(u32::MAX);
            let pool = video_pool(caps.as_ref(), size, 0, 0, &allocator);
            query.add_allocation_param(Some(&allocator), gst::AllocationParams::default());
            query.add_allocation_pool(Some(&pool), size, 0, 0);
        }
        Ok(())
    }

    fn decide_allocation(&self, query: &mut gst::query::Allocation) -> Result<(), gst::LoggableError> {
        let caps = query.get_owned().0;
        let Some(info) = caps.as_ref().and_then(|caps| gst_video::VideoInfo::from_caps(caps).ok()) else {
            return Err(gst::loggable_error!(CAT, "the allocation query has no video caps"));
        };
        let offered = query.allocation_pools().next();
        let (pool, size, min, max) = offered.clone().unwrap_or((None, 0, 0, 0));
        let size = size.max(u32::try_from(info.size()).unwrap_or(u32::MAX));
        // Frames of our own come from a video pool, which aligns and recycles them, in memory that the device writes by
        // itself where there is a device.
        let pool = match (pool, self.allocator()) {
            (Some(pool), _) => {
                let mut config = pool.config();
                if pool.has_option(gst_video::BUFFER_POOL_OPTION_VIDEO_META) {
                    config.add_option(gst_video::BUFFER_POOL_OPTION_VIDEO_META);
                }
                config.set_params(caps.as_ref(), size, min, max);
                // A pool that answers with a change of its own is asked again by the parent.
                if let Err(error) = pool.set_config(config) {
                    gst::debug!(CAT, imp = self, "the pool changed its configuration: {error}");
                }
                pool
            }
            (None, Some(allocator)) => {
                let params = gst::AllocationParams::default();
                match query.allocation_params().next() {
                    Some(_) => query.set_nth_allocation_param(0, Some(&allocator), params),
                    None => query.add_allocation_param(Some(&allocator), params),
                }
                video_pool(caps.as_ref(), size, min, max, &allocator)
            }
            (None, None) => gst_video::VideoBufferPool::new().upcast(),
        };
        match offered {
            Some(_) => query.set_nth_allocation_pool(0, Some(&pool), size, min, max),
            None => query.add_allocation_pool(Some(&pool), size, min, max),
        }
        // The parent configures the pool it finds here, with the metas that downstream takes.
        self.parent_decide_allocation(query)
    }

    fn prepare_output_buffer(&self, input: InputBuffer) -> Result<PrepareOutputBufferSuccess, gst::FlowError> {
        let prepared = self.parent_prepare_output_buffer(input);
        match &prepared {
            Ok(PrepareOutputBufferSuccess::InputBuffer) => lock(&self.readable).frames_passthrough += 1,
            Err(gst::FlowError::Error) => {
                gst::element_imp_error!(
                    self,
                    gst::ResourceError::NoSpaceLeft,
                    ("an output frame could not be allocated: its buffer pool is out of memory or failed")
                );
            }
            _ => (),
        }
        prepared
    }

    fn before_transform(&self, buffer: &gst::BufferRef) {
        self.settle(buffer);
    }

    fn transform(&self, input: &gst::Buffer, output: &mut gst::BufferRef) -> Result<gst::FlowSuccess, gst::FlowError> {
        let Some(mut stream) = lock(&self.stream).take() else {
            return Err(gst::FlowError::Flushing);
        };
        let blurred = self.blur(&mut stream, input, output);
        let active = stream.engine.active().into();
        let before = {
            let mut readable = lock(&self.readable);
            readable.stats = stream.engine.stats();
            std::mem::replace(&mut readable.active, active)
        };
        *lock(&self.stream) = Some(stream);
        if active != before {
            self.obj().notify("active-backend");
        }
        match blurred {
            Ok(None) => Ok(gst::FlowSuccess::Ok),
            Ok(Some(failure)) => {
                gst::element_imp_warning!(
                    self,
                    gst::ResourceError::Failed,
                    ("{failure}; the CPU does the work from this frame on")
                );
                Ok(gst::FlowSuccess::Ok)
            }
            Err(failure) => {
                self.post_error_message(match failure {
                    FrameFailure::Map(error) => gst::error_msg!(gst::StreamError::Format, ("{error}")),
                    FrameFailure::Engine(error) => error_message(&error),
                });
                Err(gst::FlowError::Error)
            }
        }
    }

    /// The picture keeps its size, its place and its colours, so whatever describes it stays true. GstBaseTransform
    /// itself leaves out what describes the memory.
    fn transform_meta<'a>(
        &self,
        _output: &mut gst::BufferRef,
        _meta: gst::MetaRef<'a, gst::Meta>,
        _input: &'a gst::BufferRef,
    ) -> bool {
        true
    }
}
