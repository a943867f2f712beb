// SPDX-License-Identifier: MPL-2.0
//! The GObject and its virtual methods. They delegate: start and stop to `lifecycle`, caps to `format`, frames and
//! events to `entering` and `leaving`, allocation queries and CUDA contexts to `memory`. Methods that compute set the
//! default floating-point environment, because the caller's thread may have another one.

/**
 * SECTION:element-cudagaussblur
 * @see_also: cudaupload, cudadownload, facedetect, videoconvert
 *
 * Blurs live video with a Gaussian, on an NVIDIA GPU or on the CPU, or covers parts of the picture by a blur,
 * a mosaic or a fill. The element is designed to compute the same bytes on every GPU and processor. They have been compared
 * on x86-64 processors and on NVIDIA's H100 and H200.
 *
 * #GstCudaGaussBlur:sigma is the standard deviation in pixels. It can change with every frame, also through a control
 * binding. Frames are blurred in their own format and keep their timestamps, flags and metas.
 *
 * With #GstCudaGaussBlur:backend=auto the element uses CUDA if the driver works, else the CPU, and falls back to the CPU
 * if CUDA fails during playback. No CUDA toolkit is needed. Frames in `memory:CUDAMemory` (GStreamer 1.22) stay on the
 * GPU; where a neighbour handles only host memory, the element uploads or downloads.
 *
 * #GstCudaGaussBlur:region-mode covers parts of the picture, or everything but them: fixed #GstCudaGaussBlur:zones, and the
 * detections that an element before this one attached as GstVideoRegionOfInterestMeta or GstAnalyticsRelationMeta.
 * Put the element right after the detector, because elements between them lose or misplace detections. A Gaussian blur
 * is a visual effect, not anonymity: to hide something, use #GstCudaGaussBlur:cover with mosaic or fill.
 *
 * ## Example launch lines
 *
 * Blur a file:
 *
 * ```sh
 * gst-launch-1.0 filesrc location=input.mp4 ! decodebin ! videoconvert ! videoflip video-direction=auto ! \
 *     video/x-raw,format=I420 ! cudagaussblur sigma=5 ! x264enc pass=quant ! mp4mux ! filesink location=blurred.mp4
 * ```
 *
 * Blur the webcam on the CPU:
 *
 * ```sh
 * gst-launch-1.0 v4l2src ! cudagaussblur backend=cpu sigma=8 ! videoconvert ! autovideosink
 * ```
 *
 * Cover a fixed zone, in fractions of the picture:
 *
 * ```sh
 * gst-launch-1.0 filesrc location=input.mp4 ! decodebin ! videoconvert ! videoflip video-direction=auto ! \
 *     video/x-raw,format=I420 ! cudagaussblur region-mode=inside cover=fill \
 *     zones="<[zone,x=0.6,y=0.1,width=0.3,height=0.2]>" ! x264enc pass=quant ! mp4mux ! filesink location=covered.mp4
 * ```
 *
 * Cover faces, also while `facedetect` loses them; for a file, #GstCudaGaussBlur:look-ahead=15 leaves less open:
 *
 * ```sh
 * gst-launch-1.0 v4l2src ! videoconvert ! facedetect display=false ! \
 *     cudagaussblur region-mode=inside cover=mosaic on-missing=pass ! videoconvert ! autovideosink
 * ```
 *
 * Blur on the GPU without a copy to the host:
 *
 * ```text
 * gst-launch-1.0 filesrc location=input.mp4 ! parsebin ! nvh264dec ! cudagaussblur sigma=5 ! cudadownload ! \
 *     x264enc pass=quant ! mp4mux ! filesink location=blurred.mp4
 * ```
 *
 * Since: 0.1.0
 */
use std::sync::LazyLock;

use gst::glib;
use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::prelude::*;
use gst_base::subclass::base_transform::GenerateOutputSuccess;
use gst_base::subclass::prelude::*;

use super::CudaGaussBlur;
use super::entering;
use super::format::caps;
use super::format::negotiation;
use super::leaving::{self, Due};
use super::lifecycle;
use super::memory::allocation;
use super::memory::cuda_context;
use super::memory::gstcuda;
use super::messages::log;
use super::messages::posting;
use super::messages::qos::Qos;
use super::properties::param_specs;
use super::properties::settings::Backend;
use super::regions::settings::RegionMode;
use super::state::SharedState;
use super::timer::RunningClock;
use crate::floats::DefaultFloats;

#[glib::object_subclass]
impl ObjectSubclass for SharedState {
    const NAME: &'static str = "GstCudaGaussBlur";
    type Type = CudaGaussBlur;
    type ParentType = gst_base::BaseTransform;

    fn class_init(_: &mut Self::Class) {
        log::forward_engine_log();
    }
}

impl ObjectImpl for SharedState {
    fn constructed(&self) {
        self.parent_constructed();
        gstcuda::warn_if_unusable();
        let element = self.obj();
        element.set_property("qos", true);
        // A gap buffer is blurred like any other and keeps its flag.
        element.set_gap_aware(true);
        self.timer.on_due(&element, |element| {
            let _floats = DefaultFloats::set();
            let state = element.imp();
            state.catch_panic(|| state.timer.set_due(None), leaving::push_due);
        });
    }

    fn properties() -> &'static [glib::ParamSpec] {
        static PROPERTIES: LazyLock<Vec<glib::ParamSpec>> = LazyLock::new(param_specs);
        &PROPERTIES
    }

    fn set_property(&self, _id: usize, value: &glib::Value, pspec: &glib::ParamSpec) {
        let _floats = DefaultFloats::set();
        if let Err(error) = self.with_settings(|settings| settings.set(pspec.name(), value)) {
            posting::report_refused_value(self, &error);
        }
    }

    fn property(&self, _id: usize, pspec: &glib::ParamSpec) -> glib::Value {
        match pspec.name() {
            "active-backend" => self.published().active.to_value(),
            "stats" => self.published().to_structure().to_value(),
            writable => self.settings().get(writable),
        }
    }
}

impl GstObjectImpl for SharedState {}

impl ElementImpl for SharedState {
    fn metadata() -> Option<&'static gst::subclass::ElementMetadata> {
        static METADATA: LazyLock<gst::subclass::ElementMetadata> = LazyLock::new(|| {
            gst::subclass::ElementMetadata::new(
                "Gaussian blur (CUDA or CPU)",
                "Filter/Effect/Video",
                "Blurs video with a Gaussian, or covers parts of it by blur, mosaic or fill; designed to give the same bytes on GPU and CPU",
                env!("CARGO_PKG_AUTHORS"),
            )
        });
        Some(&METADATA)
    }

    fn pad_templates() -> &'static [gst::PadTemplate] {
        static TEMPLATES: LazyLock<Vec<gst::PadTemplate>> = LazyLock::new(|| {
            let documentation = caps::documentation();
            let template = |(name, direction)| {
                gst::PadTemplate::builder(name, direction, gst::PadPresence::Always, caps::template())
                    .documentation_caps(&documentation)
                    .build()
                    .expect("name, direction and caps are valid")
            };
            [("sink", gst::PadDirection::Sink), ("src", gst::PadDirection::Src)].map(template).into()
        });
        &TEMPLATES
    }

    fn change_state(&self, transition: gst::StateChange) -> Result<gst::StateChangeSuccess, gst::StateChangeError> {
        if transition == gst::StateChange::PlayingToPaused {
            self.timer.set_clock(None);
        }
        let changed = self.parent_change_state(transition)?;
        // Also from PLAYING to PLAYING, after a seek.
        if transition.next() == gst::State::Playing {
            let element = self.obj();
            let clock = element.clock().zip(element.base_time());
            self.timer.set_clock(clock.map(|(clock, base_time)| RunningClock { clock, base_time }));
        }
        Ok(changed)
    }

    fn set_context(&self, context: &gst::Context) {
        cuda_context::handle_set_context(self, context);
        self.parent_set_context(context);
    }
}

impl BaseTransformImpl for SharedState {
    const MODE: gst_base::subclass::BaseTransformMode = gst_base::subclass::BaseTransformMode::NeverInPlace;
    const PASSTHROUGH_ON_SAME_CAPS: bool = false;
    const TRANSFORM_IP_ON_PASSTHROUGH: bool = false;

    fn start(&self) -> Result<(), gst::ErrorMessage> {
        let _floats = DefaultFloats::set();
        lifecycle::start(self)
    }

    fn stop(&self) -> Result<(), gst::ErrorMessage> {
        let _floats = DefaultFloats::set();
        lifecycle::stop(self);
        Ok(())
    }

    fn transform_caps(
        &self,
        _direction: gst::PadDirection,
        caps: &gst::Caps,
        filter: Option<&gst::Caps>,
    ) -> Option<gst::Caps> {
        // Before start the backend is not known, and CUDA memory is possible.
        let on_cpu = self.published().active == Backend::Cpu;
        let transformed = caps::transform(caps, filter, on_cpu);
        Some(match filter {
            Some(filter) => filter.intersect_with_mode(&transformed, gst::CapsIntersectMode::First),
            None => transformed,
        })
    }

    fn query(&self, direction: gst::PadDirection, query: &mut gst::QueryRef) -> bool {
        if direction == gst::PadDirection::Sink && query.is_serialized() {
            let _floats = DefaultFloats::set();
            match query.view() {
                gst::QueryView::Allocation(query) => leaving::return_buffers(self, query.need_pool()),
                // It can be a request of upstream to have its buffers back.
                _ => leaving::drain(self),
            }
        }
        if let gst::QueryViewMut::Context(query) = query.view_mut()
            && cuda_context::handle_context_query(self, query)
        {
            return true;
        }
        let answered = BaseTransformImplExt::parent_query(self, direction, query);
        if answered
            && direction == gst::PadDirection::Src
            && let gst::QueryViewMut::Latency(query) = query.view_mut()
        {
            self.publish(|published| published.latency.answer(query));
        }
        answered
    }

    fn src_event(&self, event: gst::Event) -> bool {
        // Not to the base class, which would drop frames as they enter.
        if let gst::EventView::Qos(qos) = event.view() {
            let qos = Qos::new(qos);
            self.publish(|published| published.qos = qos);
            return self.obj().sink_pad().push_event(event);
        }
        self.parent_src_event(event)
    }

    fn sink_event(&self, event: gst::Event) -> bool {
        use gst::EventType::{Caps, Eos, FlushStop, SegmentDone};
        let _floats = DefaultFloats::set();
        match event.type_() {
            FlushStop => lifecycle::flush(self),
            Eos => {
                leaving::drain(self);
                lifecycle::end_stream(self);
            }
            SegmentDone => leaving::drain(self),
            // Frames wait through caps that do not change. Else they leave before the base class asks what caps there can be, because
            // CUDA may fail with them.
            Caps => {
                if let gst::EventView::Caps(caps) = event.view()
                    && self.obj().sink_pad().current_caps().is_none_or(|current| *current != *caps.caps())
                {
                    leaving::drain(self);
                }
            }
            _ if event.is_serialized() => {
                if let gst::EventView::Segment(segment) = event.view() {
                    entering::set_segment(self, segment.segment().clone());
                }
                let hides = self.settings().regions.mode != RegionMode::Frame;
                let event = if hides { entering::without_pictures(event) } else { event };
                let Some(event) = entering::add_event(self, event) else { return true };
                return self.parent_sink_event(event);
            }
            _ => (),
        }
        self.parent_sink_event(event)
    }

    fn submit_input_buffer(&self, is_discont: bool, inbuf: gst::Buffer) -> Result<gst::FlowSuccess, gst::FlowError> {
        let _floats = DefaultFloats::set();
        let submitted = self.parent_submit_input_buffer(is_discont, inbuf)?;
        match self.take_queued_buffer() {
            Some(buffer) => entering::enter(self, buffer).map(|()| submitted),
            None => Ok(submitted),
        }
    }

    fn set_caps(&self, incaps: &gst::Caps, outcaps: &gst::Caps) -> Result<(), gst::LoggableError> {
        let _floats = DefaultFloats::set();
        negotiation::set_caps(self, incaps, outcaps)
    }

    fn unit_size(&self, caps: &gst::Caps) -> Option<usize> {
        gst_video::VideoInfo::from_caps(caps).ok().map(|info| info.size())
    }

    /// The size of an output buffer follows from its caps alone: input buffers may be padded or truncated.
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
        match decide_query {
            Some(decide_query) => allocation::propose_pool(self, decide_query, query),
            // The element is in passthrough, and downstream has answered the query.
            None => {
                let may_crop = query.find_allocation_meta::<gst_video::VideoCropMeta>().is_some();
                self.with_session(|session| session.upstream_may_crop = may_crop);
            }
        }
        Ok(())
    }

    fn decide_allocation(&self, query: &mut gst::query::Allocation) -> Result<(), gst::LoggableError> {
        // Frames in flight suit the previous downstream pool alone.
        leaving::push_if(self, Due::Submitted);
        allocation::decide_pool(self, query).inspect_err(|_| posting::warn_of_output_pool(self))?;
        // The base class configures the query's pool, and enables the metas that downstream supports.
        self.parent_decide_allocation(query)?;
        allocation::limit_in_flight(self, query);
        allocation::prepare_copies(self);
        Ok(())
    }

    fn before_transform(&self, buffer: &gst::BufferRef) {
        let _floats = DefaultFloats::set();
        entering::prepare(self, buffer);
    }

    fn generate_output(&self) -> Result<GenerateOutputSuccess, gst::FlowError> {
        let _floats = DefaultFloats::set();
        let output = leaving::next_frame(self)?;
        Ok(output.map_or(GenerateOutputSuccess::NoOutput, GenerateOutputSuccess::Buffer))
    }
}
