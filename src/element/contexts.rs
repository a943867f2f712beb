// SPDX-License-Identifier: MPL-2.0
//! CUDA contexts, as GStreamer's elements share them: asked of the neighbours and the application, told to them, and taken
//! over from frames.

use gst::prelude::*;
use gst::subclass::prelude::*;
use gst_base::prelude::*;

use super::gstcuda::{CONTEXT_TYPE, Context, Memory};
use super::imp::{CAT, CudaGaussBlur, FrameFailure, Stream, lock};
use crate::engine::Engine;

impl CudaGaussBlur {
    /// The context that the pipeline has already, if it is on the right device.
    pub(super) fn find_context(&self) -> Option<Context> {
        if !super::gstcuda::is_here() {
            return None;
        }
        let element = self.obj();
        let wanted = lock(&self.settings).cuda_device();
        // It may have come when another device was wanted.
        let of_another = lock(&self.context).take_if(|context| wanted.is_some_and(|id| context.device() != id));
        drop(of_another);
        let found = || lock(&self.context).clone();
        // Whoever has one hands it to `set_context`.
        if let Some(context) = element.context(CONTEXT_TYPE) {
            self.take_context(&context);
        }
        for pad in [element.src_pad(), element.sink_pad()] {
            let mut query = gst::query::Context::new(CONTEXT_TYPE);
            if found().is_none()
                && pad.peer_query(&mut query)
                && let Some(context) = query.context_owned()
            {
                element.set_context(&context);
            }
        }
        if found().is_none() {
            let _ = element.post_message(gst::message::NeedContext::builder(CONTEXT_TYPE).src(&*element).build());
        }
        found()
    }

    /// Takes a context that is shared with us, unless we have one.
    pub(super) fn take_context(&self, context: &gst::Context) {
        let wanted = lock(&self.settings).cuda_device();
        let mut ours = lock(&self.context);
        if ours.is_none() {
            *ours = Context::shared(context).filter(|context| wanted.is_none_or(|id| context.device() == id));
        }
    }

    /// Shares the engine's own context, where nobody has shared one with us.
    pub(super) fn share_context(&self, engine: &Engine) {
        let Some((handle, id)) = engine.context() else { return };
        if !super::gstcuda::is_here() || lock(&self.context).is_some() {
            return;
        }
        let Some(context) = Context::wrap(handle, id) else { return };
        let Some(shared) = context.to_shared() else { return };
        *lock(&self.context) = Some(context);
        let element = self.obj();
        element.set_context(&shared);
        let _ = element.post_message(gst::message::HaveContext::builder(shared).src(&*element).build());
    }

    /// Moves to the context of a frame that is in another one.
    pub(super) fn follow(&self, stream: &mut Stream, buffer: &gst::BufferRef) -> Result<(), FrameFailure> {
        let Some((ours, _)) = stream.engine.context() else { return Ok(()) };
        let Some(context) = Memory::of(buffer).and_then(|memory| memory.context()) else { return Ok(()) };
        if context.handle() == ours {
            return Ok(());
        }
        let have = context.device();
        if let Some(wanted) = lock(&self.settings).cuda_device().filter(|wanted| *wanted != have) {
            return Err(FrameFailure::WrongDevice { have, wanted });
        }
        gst::info!(CAT, imp = self, "the frames' own CUDA context, on device {have}, is used from here on");
        let mut flights = std::mem::take(&mut stream.flights);
        for pending in &mut flights {
            stream.engine.arrive(pending)?;
        }
        stream.flights = flights;
        stream.engine.move_to(context.for_engine())?;
        stream.cuda_stream = context.stream();
        *lock(&self.context) = Some(context);
        // Pools are to be of this context too.
        self.obj().reconfigure_src();
        Ok(())
    }
}
