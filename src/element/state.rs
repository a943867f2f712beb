// SPDX-License-Identifier: MPL-2.0
//! The private part of the GObject, whose fields the streaming thread and the application's threads share.

use std::sync::Mutex;

use gst::glib::BorrowedObject;
use gst::subclass::prelude::ObjectSubclassExt;

use super::CudaGaussBlur;
use super::memory::gstcuda::CudaContext;
use super::messages::stats::PublishedState;
use super::properties::settings::Settings;
use super::session::Session;
use super::timer::Timer;
use crate::process::lock;

/// The element's state. Each part has its own lock, which a method holds only until it returns: settings are copied,
/// and the session is taken out, before GStreamer or the device is called. The closures of the `with_` methods run under
/// a lock, so they neither call the element nor any other method of this type.
#[derive(Default)]
pub struct SharedState {
    settings: Mutex<Settings>,
    /// `None` while the element is stopped, and while one thread works with the session. That thread took the session
    /// out, because it calls GStreamer, and no lock may be held then. GStreamer's stream lock keeps other threads out
    /// meanwhile. So only a nested call of the same thread, for example from a sync handler of the bus, can find
    /// `None`. Such a call does nothing, and the outer call pushes frames in order.
    session: Mutex<Option<Box<Session>>>,
    published: Mutex<PublishedState>,
    context: Mutex<Option<CudaContext>>,
    /// Pushes the frames of a live stream that are due.
    pub timer: Timer,
}

impl SharedState {
    /// The element whose state this is.
    pub fn element(&self) -> BorrowedObject<'_, CudaGaussBlur> {
        self.obj()
    }

    /// A copy of the settings.
    pub fn settings(&self) -> Settings {
        lock(&self.settings).clone()
    }

    /// Changes the settings.
    pub fn with_settings<T>(&self, change: impl FnOnce(&mut Settings) -> T) -> T {
        change(&mut lock(&self.settings))
    }

    /// A copy of the values that applications read.
    pub fn published(&self) -> PublishedState {
        *lock(&self.published)
    }

    /// Changes the values that applications read.
    pub fn publish<T>(&self, change: impl FnOnce(&mut PublishedState) -> T) -> T {
        change(&mut lock(&self.published))
    }

    /// Starts with this session.
    pub fn start_session(&self, session: Session) {
        *lock(&self.session) = Some(Box::new(session));
    }

    /// Takes the session to work with it; [`SharedState::put_back_session`] ends that. `None` while stopped or busy.
    pub fn take_session(&self) -> Option<Box<Session>> {
        lock(&self.session).take()
    }

    /// Puts back the session that [`SharedState::take_session`] returned.
    pub fn put_back_session(&self, session: Box<Session>) {
        *lock(&self.session) = Some(session);
    }

    /// Accesses the session in place. Returns `None`, without calling `access`, while the element is stopped or busy.
    pub fn with_session<T>(&self, access: impl FnOnce(&mut Session) -> T) -> Option<T> {
        lock(&self.session).as_deref_mut().map(access)
    }

    /// The CUDA context that the element shares with the pipeline.
    pub fn context(&self) -> Option<CudaContext> {
        lock(&self.context).clone()
    }

    /// Sets the CUDA context unless there is one.
    pub fn set_context_if_none(&self, context: CudaContext) {
        lock(&self.context).get_or_insert(context);
    }

    /// Replaces the CUDA context. The previous one is dropped after the lock is released, because that may destroy it.
    pub fn replace_context(&self, context: Option<CudaContext>) {
        let previous = std::mem::replace(&mut *lock(&self.context), context);
        drop(previous);
    }
}
