// SPDX-License-Identifier: MPL-2.0
//! The fields of the GObject, which the streaming thread and the application's threads share.

use std::sync::{Mutex, MutexGuard, PoisonError};

use super::gstcuda::CudaContext;
use super::settings::Settings;
use super::snapshot::Snapshot;
use super::stream::{Stream, StreamState};

/// The element's state. Each part has its own lock, which a method holds only until it returns: settings are copied,
/// and the stream is taken out, before GStreamer or the device is called. The closures of the `with_` methods run under
/// a lock, so they neither call the element nor any other method of this type.
#[derive(Default)]
pub struct SharedState {
    settings: Mutex<Settings>,
    stream: Mutex<StreamState>,
    snapshot: Mutex<Snapshot>,
    context: Mutex<Option<CudaContext>>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedState {
    /// A copy of the settings.
    pub fn settings(&self) -> Settings {
        lock(&self.settings).clone()
    }

    /// Changes the settings.
    pub fn with_settings<T>(&self, change: impl FnOnce(&mut Settings) -> T) -> T {
        change(&mut lock(&self.settings))
    }

    /// A copy of the values that applications read.
    pub fn snapshot(&self) -> Snapshot {
        *lock(&self.snapshot)
    }

    /// Changes the values that applications read.
    pub fn with_snapshot<T>(&self, change: impl FnOnce(&mut Snapshot) -> T) -> T {
        change(&mut lock(&self.snapshot))
    }

    /// Starts with this stream.
    pub fn start_stream(&self, stream: Stream) {
        *lock(&self.stream) = StreamState::Idle(Box::new(stream));
    }

    /// See [`StreamState::stop`].
    pub fn stop_stream(&self) -> Option<Box<Stream>> {
        lock(&self.stream).stop()
    }

    /// See [`StreamState::take`].
    pub fn take_stream(&self) -> Option<Box<Stream>> {
        lock(&self.stream).take()
    }

    /// See [`StreamState::put_back`].
    pub fn put_back_stream(&self, stream: Box<Stream>) {
        lock(&self.stream).put_back(stream);
    }

    /// Accesses the stream in place. Returns `None`, without calling `access`, while the element is stopped or busy.
    pub fn with_stream<T>(&self, access: impl FnOnce(&mut Stream) -> T) -> Option<T> {
        lock(&self.stream).idle().map(access)
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
