// SPDX-License-Identifier: MPL-2.0
//! The GObject: what GStreamer asks of the element, and where it is answered: `frames` (the streaming thread), `caps`,
//! `allocation`, `contexts`.
//!
//! Settings are copied and the lock dropped before any work.

use std::collections::VecDeque;
use std::sync::{Arc, LazyLock, Mutex, MutexGuard, PoisonError};

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::prelude::*;
use gst_base::subclass::base_transform::{GenerateOutputSuccess, InputBuffer, PrepareOutputBufferSuccess};
use gst_base::subclass::prelude::*;
use gst_video::VideoInterlaceMode;
use gst_video::prelude::*;

use super::map::{Buffers, MapError};
use super::settings::{Backend, Settings, param_specs};
use super::{CudaGaussBlur as Element, caps, formats, gstcuda};
use crate::engine::{self, Engine, EngineError, ErrorKind, Level, Pending, Stats, Where};
use crate::frame::PlaneLayout;
use crate::plan::Options;

pub(super) static CAT: LazyLock<gst::DebugCategory> = LazyLock::new(|| {
    gst::DebugCategory::new("cudagaussblur", gst::DebugColorFlags::empty(), Some("Gaussian blur on the GPU or CPU"))
});

/// A frame on its way.
pub(super) type Flight = Pending<Buffers>;

/// What lives from start to stop.
pub(super) struct Stream {
    /// The oldest first.
    pub(super) flights: VecDeque<Flight>,
    pub(super) engine: Engine,
    /// How many frames may be on their way when one more is asked for.
    pub(super) max_in_flight: usize,
    /// What the caps say; none before the first.
    pub(super) format: Option<Arc<Format>>,
    /// What the frame at hand is blurred with.
    pub(super) options: Options,
    /// Why the frame at hand cannot be blurred.
    pub(super) trouble: Option<FrameFailure>,
    /// Whether the caps have frames come and go in CUDA memory.
    on_device: bool,
    /// What orders the work on frames in CUDA memory of our own.
    pub(super) cuda_stream: Option<gstcuda::Stream>,
}

impl Stream {
    /// Whether frames are passed on untouched. Where they change memory, they never are.
    pub(super) fn passes_through(&self) -> bool {
        let Some(format) = &self.format else { return self.options.params.is_passthrough() };
        format.stays && self.options.is_passthrough(&format.layouts[0])
    }

    /// Frames that one may have to wait for before it is handed on, in time. On the CPU each is done when it is begun.
    pub(super) fn latency(&self) -> gst::ClockTime {
        let Some(info) = self.format.as_ref().map(|format| &format.info) else { return gst::ClockTime::ZERO };
        if self.engine.active() == engine::Backend::Cpu {
            return gst::ClockTime::ZERO;
        }
        let frames = self.max_in_flight as u64 - 1;
        // What stays on the device waits for nobody.
        if frames == 0 || self.on_device {
            return gst::ClockTime::ZERO;
        }
        let [numerator, denominator] =
            [info.fps().numer(), info.fps().denom()].map(|part| u64::from(part.unsigned_abs()));
        // Without a frame rate nothing true can be said.
        if numerator == 0 {
            return gst::ClockTime::ZERO;
        }
        gst::ClockTime::SECOND.mul_div_ceil(frames * denominator, numerator).unwrap_or(gst::ClockTime::ZERO)
    }
}

/// What the caps say of frames.
pub(super) struct Format {
    pub(super) info: gst_video::VideoInfo,
    /// The planes of a frame, and of one whose two fields are interleaved.
    layouts: [Vec<PlaneLayout>; 2],
    /// They come and go in the same memory.
    stays: bool,
}

impl Format {
    /// The planes of this buffer: in streams of mixed frames each says for itself what it is.
    pub(super) fn layouts(&self, buffer: &gst::BufferRef) -> &[PlaneLayout] {
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
pub(super) struct Readable {
    pub(super) active: Backend,
    pub(super) stats: Stats,
    frames_passthrough: u64,
    /// What frames may have to wait for others.
    latency: gst::ClockTime,
}

/// Why a frame came to nothing.
#[derive(Debug, thiserror::Error)]
pub(super) enum FrameFailure {
    #[error(transparent)]
    Map(#[from] MapError),
    #[error(transparent)]
    Engine(#[from] EngineError),
    #[error("received a buffer before caps")]
    NoCaps,
    #[error(
        "a frame is in the memory of CUDA device {have}, but cuda-device-id={wanted}; set cuda-device-id to {have} or -1, or \
         put cudadownload before the blur"
    )]
    WrongDevice { have: u32, wanted: u32 },
}

/// The element's private part.
#[derive(Default)]
pub struct CudaGaussBlur {
    pub(super) settings: Mutex<Settings>,
    pub(super) stream: Mutex<Option<Stream>>,
    pub(super) readable: Mutex<Readable>,
    /// The CUDA context that is shared with the neighbours.
    pub(super) context: Mutex<Option<gstcuda::Context>>,
}

/// An engine's error as GStreamer's.
pub(super) fn error_message(error: &EngineError) -> gst::ErrorMessage {
    match error.kind() {
        ErrorKind::Frame => gst::error_msg!(gst::StreamError::Format, ("{error}")),
        ErrorKind::Setting => gst::error_msg!(gst::ResourceError::Settings, ("{error}")),
        ErrorKind::Missing => gst::error_msg!(gst::ResourceError::NotFound, ("{error}")),
        ErrorKind::Memory => gst::error_msg!(gst::ResourceError::NoSpaceLeft, ("{error}")),
        ErrorKind::Failed => gst::error_msg!(gst::ResourceError::Failed, ("{error}")),
    }
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl CudaGaussBlur {
    /// Has the pipeline ask for the latency if it is another one than before.
    pub(super) fn tell_latency(&self, latency: gst::ClockTime) {
        let before = std::mem::replace(&mut lock(&self.readable).latency, latency);
        if before != latency {
            let _ = self.obj().post_message(gst::message::Latency::builder().src(&*self.obj()).build());
        }
    }

    fn stats(&self) -> gst::Structure {
        let Readable { stats, frames_passthrough, .. } = *lock(&self.readable);
        let nanoseconds = |time: std::time::Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
        let mut structure = gst::Structure::builder("application/x-cudagaussblur-stats")
            .field("frames", stats.frames_cuda + stats.frames_cpu + frames_passthrough)
            .field("frames-cuda", stats.frames_cuda)
            .field("frames-cpu", stats.frames_cpu)
            .field("frames-passthrough", frames_passthrough)
            .field("frames-on-device", stats.frames_on_device)
            .field("frames-pinned-in", stats.frames_pinned[0])
            .field("frames-pinned-out", stats.frames_pinned[1])
            .field("frames-abandoned", stats.frames_abandoned)
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
            "max-in-flight" => settings.max_in_flight.to_value(),
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
            [("sink", gst::PadDirection::Sink), ("src", gst::PadDirection::Src)]
                .map(|(name, direction)| {
                    gst::PadTemplate::new(name, direction, gst::PadPresence::Always, caps::template())
                })
                .into_iter()
                .collect::<Result<_, _>>()
                .expect("the caps are fixed at build time")
        });
        &TEMPLATES
    }

    fn set_context(&self, context: &gst::Context) {
        self.take_context(context);
        self.parent_set_context(context);
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
        let context = if settings.backend == Backend::Cpu { None } else { self.find_context() };
        let place = context.as_ref().map(|context| Where::Context(context.for_engine()));
        let place = place.unwrap_or(Where::Device(settings.cuda_device().unwrap_or(0)));
        let opened = Engine::open(settings.backend.into(), place);
        let (engine, no_cuda) = opened.map_err(|error| {
            lock(&self.settings).started = false;
            let context = lock(&self.context).take();
            drop(context);
            error_message(&error)
        })?;
        if let Some(no_cuda) = no_cuda {
            gst::warning!(CAT, imp = self, "the CPU does the work, because {no_cuda}");
        }
        gst::info!(CAT, imp = self, "blurring on {}", engine.description());
        *lock(&self.readable) =
            Readable { active: engine.active().into(), stats: engine.stats(), ..Readable::default() };
        self.share_context(&engine);
        let cuda_stream = lock(&self.context).as_ref().and_then(gstcuda::Context::stream);
        *lock(&self.stream) = Some(Stream {
            flights: VecDeque::new(),
            engine,
            max_in_flight: settings.max_in_flight as usize,
            format: None,
            options,
            trouble: None,
            on_device: false,
            cuda_stream,
        });
        self.obj().set_passthrough(options.params.is_passthrough());
        self.obj().notify("active-backend");
        Ok(())
    }

    fn stop(&self) -> Result<(), gst::ErrorMessage> {
        lock(&self.settings).started = false;
        if let Some(mut stream) = lock(&self.stream).take() {
            stream.flights.clear();
            self.report_stats(&stream.engine);
        }
        let context = lock(&self.context).take();
        drop(context);
        lock(&self.readable).active = Backend::Auto;
        self.obj().notify("active-backend");
        Ok(())
    }

    fn transform_caps(
        &self,
        _direction: gst::PadDirection,
        caps: &gst::Caps,
        filter: Option<&gst::Caps>,
    ) -> Option<gst::Caps> {
        // Before start it is not known what blurs.
        let on_cpu = lock(&self.readable).active == Backend::Cpu;
        let across = caps::across(caps, filter, on_cpu);
        Some(filter.map_or_else(
            || across.clone(),
            |filter| filter.intersect_with_mode(&across, gst::CapsIntersectMode::First),
        ))
    }

    fn query(&self, direction: gst::PadDirection, query: &mut gst::QueryRef) -> bool {
        if direction == gst::PadDirection::Sink && query.is_serialized() {
            // Upstream may want its buffers back.
            self.drain();
        }
        match query.view_mut() {
            gst::QueryViewMut::Context(query) if query.context_type() == gstcuda::CONTEXT_TYPE => {
                let context = lock(&self.context).clone();
                if let Some(shared) = context.and_then(|context| context.to_shared()) {
                    query.set_context(&shared);
                    return true;
                }
            }
            gst::QueryViewMut::Latency(query) if direction == gst::PadDirection::Src => {
                let answered = BaseTransformImplExt::parent_query(self, direction, query);
                let (live, least, most) = query.result();
                let ours = lock(&self.readable).latency;
                query.set(live, least + ours, most.map(|most| most + ours));
                return answered;
            }
            _ => (),
        }
        BaseTransformImplExt::parent_query(self, direction, query)
    }

    fn sink_event(&self, event: gst::Event) -> bool {
        match event.type_() {
            gst::EventType::FlushStop => self.discard(),
            _ if event.is_serialized() => self.drain(),
            _ => (),
        }
        self.parent_sink_event(event)
    }

    fn submit_input_buffer(&self, is_discont: bool, inbuf: gst::Buffer) -> Result<gst::FlowSuccess, gst::FlowError> {
        if is_discont {
            // The base class marks the next frame that comes out, which is to be this one.
            self.drain();
        }
        self.parent_submit_input_buffer(is_discont, inbuf)
    }

    fn set_caps(&self, incaps: &gst::Caps, outcaps: &gst::Caps) -> Result<(), gst::LoggableError> {
        // Frames on their way are of the caps before, also where downstream has asked for others.
        self.drain();
        let info = gst_video::VideoInfo::from_caps(incaps)
            .map_err(|_| gst::loggable_error!(CAT, "these caps describe no video frame: {incaps}"))?;
        if info.interlace_mode() == VideoInterlaceMode::Fields {
            return Err(gst::loggable_error!(CAT, "interlace-mode=fields cannot be blurred, all others can: {incaps}"));
        }
        let (Some(whole), Some(fields)) = (formats::planes(&info, false), formats::planes(&info, true)) else {
            return Err(gst::loggable_error!(CAT, "{} video cannot be blurred: {incaps}", info.format()));
        };
        let memories = [incaps, outcaps].map(|caps| caps::are_on_device(caps));
        let stays = memories[0] == memories[1];
        let (passthrough, on_cpu, latency) = {
            let mut stream = lock(&self.stream);
            let Some(stream) = &mut *stream else { return Ok(()) };
            stream.format = Some(Arc::new(Format { info, layouts: [whole, fields], stays }));
            stream.on_device = stays && memories[0];
            (stream.passes_through(), stream.engine.active() == engine::Backend::Cpu, stream.latency())
        };
        if on_cpu && memories.contains(&true) {
            self.post_error_message(error_message(&EngineError::NeedsCuda));
            return Err(gst::loggable_error!(CAT, "{}", EngineError::NeedsCuda));
        }
        self.obj().set_passthrough(passthrough);
        self.tell_latency(latency);
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
        if decide_query.is_some() {
            self.offer_pool(query);
        }
        Ok(())
    }

    fn decide_allocation(&self, query: &mut gst::query::Allocation) -> Result<(), gst::LoggableError> {
        self.choose_pool(query)?;
        // The parent configures the pool it finds here, with the metas that downstream takes.
        self.parent_decide_allocation(query)?;
        self.respect_pool(query);
        Ok(())
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

    fn generate_output(&self) -> Result<GenerateOutputSuccess, gst::FlowError> {
        self.next_output()
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
