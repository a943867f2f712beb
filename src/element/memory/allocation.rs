// SPDX-License-Identifier: MPL-2.0
//! Allocation queries: the buffer pool that is proposed to upstream, and the pool that output buffers come from.
//!
//! In host memory, with CUDA as the backend, both are pools of pinned memory, which the device accesses without a copy
//! by the CPU. In CUDA memory both are pools of libgstcuda, in the context that the pipeline shares.

use gst::prelude::*;

use super::gstcuda::CudaStream;
use super::pinned_allocator::PinnedAllocator;
use crate::element::format::caps;
use crate::element::messages::log::CAT;
use crate::element::regions::settings::RegionMode;
use crate::element::state::SharedState;

const VIDEO_META: &str = gst_video::BUFFER_POOL_OPTION_VIDEO_META.as_str();

/// The configuration of a pool.
struct PoolParams<'a> {
    caps: &'a gst::Caps,
    /// Bytes of a buffer.
    size: u32,
    min_buffers: u32,
    /// 0 for no limit.
    max_buffers: u32,
}

impl PoolParams<'_> {
    /// The configuration of a pool, with these values.
    fn config_of(&self, pool: &gst::BufferPool) -> gst::BufferPoolConfig {
        let mut config = pool.config();
        config.set_params(Some(self.caps), self.size, self.min_buffers, self.max_buffers);
        config
    }
}

/// The query's caps and their frame size in bytes, if they are video caps.
fn video_caps(query: &gst::query::Allocation) -> Option<(gst::Caps, u32)> {
    let caps = query.get_owned().0?;
    let info = gst_video::VideoInfo::from_caps(&caps).ok()?;
    Some((caps, u32::try_from(info.size()).unwrap_or(u32::MAX)))
}

/// The largest number of frames in flight while the next one is processed. A pool needs one more buffer for each of
/// them.
fn frames_in_flight(state: &SharedState) -> u32 {
    state.settings().max_in_flight - 1
}

/// An allocator of pinned memory, if CUDA is the backend.
fn pinned_allocator(state: &SharedState) -> Option<PinnedAllocator> {
    state.with_session(|session| session.engine.pinned()).flatten().map(PinnedAllocator::new)
}

/// Proposes a pool to upstream.
pub fn propose_pool(state: &SharedState, decide_query: &gst::query::Allocation, query: &mut gst::query::Allocation) {
    query.add_allocation_meta::<gst_video::VideoMeta>(None);
    let Some((caps, size)) = video_caps(query) else { return };
    let regions = state.settings().regions;
    let min_buffers = frames_in_flight(state)
        + match regions.mode {
            RegionMode::Frame => 0,
            // Upstream's buffers wait, and are pushed downstream, which may hold some.
            RegionMode::Inside | RegionMode::Outside => {
                regions.look_ahead + decide_query.allocation_pools().next().map_or(0, |(_, _, min, _)| min)
            }
        };
    let params = PoolParams { caps: &caps, size, min_buffers, max_buffers: 0 };
    let pool = own_pool(state, &params);
    if pool.is_none() && min_buffers == 0 {
        return;
    }
    gst::debug!(CAT, "proposed to upstream: buffers of {size} bytes, {min_buffers} or more, for {caps}");
    if let Some(allocator) = pinned_allocator(state).filter(|_| !caps::is_device(&caps)) {
        query.add_allocation_param(Some(&allocator), gst::AllocationParams::default());
    }
    let (pool, size) = pool.map_or((None, size), |(pool, size)| (Some(pool), size));
    query.add_allocation_pool(pool.as_ref(), size, min_buffers, 0);
}

/// A pool of the element's own, in CUDA memory if the caps ask for it, else in pinned memory, and the size of its buffers.
/// `None` if there is neither.
fn own_pool(state: &SharedState, params: &PoolParams) -> Option<(gst::BufferPool, u32)> {
    if caps::is_device(params.caps) {
        let pool = state.context()?.new_pool()?;
        return configure_device_pool(state, &pool, params).map(|size| (pool, size));
    }
    pinned_allocator(state).map(|allocator| (new_pinned_pool(params, &allocator), params.size))
}

/// Prepares the pool of copies of frames that may not wait themselves, in the memory of the input.
pub fn prepare_copies(state: &SharedState) {
    let format = state
        .with_session(|session| session.format.clone().filter(|_| session.settings.regions.look_ahead > 0))
        .flatten();
    let Some((caps, format)) = format.and_then(|format| Some((format.input_caps()?, format))) else { return };
    let size = u32::try_from(format.info.size()).unwrap_or(u32::MAX);
    let params = PoolParams { caps: &caps, size, min_buffers: 0, max_buffers: 0 };
    let pool = own_pool(state, &params).map(|(pool, _)| pool).or_else(|| {
        // Frames in CUDA memory are pushed in CUDA memory.
        let pool = (!caps::is_device(&caps)).then(gst_video::VideoBufferPool::new)?;
        let pool = pool.upcast::<gst::BufferPool>();
        pool.set_config(params.config_of(&pool)).ok().map(|()| pool)
    });
    let previous = state.with_session(|session| std::mem::replace(&mut session.copy_pool, pool));
    // Frees buffers, not under the lock.
    drop(previous);
}

/// Decides which pool output buffers come from: downstream's if it proposed a usable one, else a new one.
pub fn decide_pool(state: &SharedState, query: &mut gst::query::Allocation) -> Result<(), gst::LoggableError> {
    let takes_video_meta = query.find_allocation_meta::<gst_video::VideoMeta>().is_some();
    let takes_crop_meta = query.find_allocation_meta::<gst_video::VideoCropMeta>().is_some();
    state.with_session(|session| {
        session.downstream_takes_video_meta = takes_video_meta;
        session.downstream_takes_crop_meta = takes_crop_meta;
    });
    let Some((caps, frame_size)) = video_caps(query) else {
        return Err(gst::loggable_error!(CAT, "the allocation query has no raw video caps"));
    };
    let proposal = query.allocation_pools().next();
    let has_proposal = proposal.is_some();
    let (proposed, size, min, max) = proposal.unwrap_or((None, 0, 0, 0));
    let in_flight = frames_in_flight(state);
    let params = PoolParams {
        caps: &caps,
        size: size.max(frame_size),
        min_buffers: min + in_flight,
        max_buffers: if max == 0 { 0 } else { max + in_flight },
    };
    let (pool, size) = if caps::is_device(&caps) {
        decide_device_pool(state, proposed, &params)?
    } else {
        (decide_host_pool(state, proposed, query, &params), params.size)
    };
    gst::debug!(
        CAT,
        obj = pool,
        "output buffers of {size} bytes, {} to {} of them (0 is any number), from {}; downstream takes GstVideoMeta: {}",
        params.min_buffers,
        params.max_buffers,
        pool.type_(),
        takes_video_meta
    );
    if has_proposal {
        query.set_nth_allocation_pool(0, Some(&pool), size, params.min_buffers, params.max_buffers);
    } else {
        query.add_allocation_pool(Some(&pool), size, params.min_buffers, params.max_buffers);
    }
    Ok(())
}

/// Limits the frames in flight to one less than the pool's buffers, but at least 1. With more, the frames in flight
/// could hold all buffers, and the element would wait for a buffer that only it can return.
pub fn limit_in_flight(state: &SharedState, query: &gst::query::Allocation) {
    let configured = state.settings().max_in_flight as usize;
    let max_buffers =
        query.allocation_pools().next().and_then(|(pool, ..)| pool?.config().params()).map(|(.., max)| max);
    let limit = match max_buffers {
        None | Some(0) => usize::MAX,
        Some(max_buffers) => (max_buffers as usize - 1).max(1),
    };
    state.with_session(|session| session.max_in_flight = configured.min(limit));
}

/// A pool of video frames in pinned memory.
fn new_pinned_pool(params: &PoolParams, allocator: &PinnedAllocator) -> gst::BufferPool {
    let pool = gst_video::VideoBufferPool::new().upcast::<gst::BufferPool>();
    let mut config = params.config_of(&pool);
    config.set_allocator(Some(allocator), None);
    config.add_option(VIDEO_META);
    // The element that uses the pool configures it again, and sees an error then.
    let _ = pool.set_config(config);
    pool
}

/// Configures a pool of CUDA memory. The pool and the element use one stream: the one that the pool's configuration
/// names, else the element's. Returns the size of the pool's buffers, whose pitches libgstcuda chooses; `None` if the
/// pool refuses the configuration.
fn configure_device_pool(state: &SharedState, pool: &gst::BufferPool, params: &PoolParams) -> Option<u32> {
    let mut config = params.config_of(pool);
    config.add_option(VIDEO_META);
    state.with_session(|session| match CudaStream::from_pool_config(&config) {
        Some(named) => session.cuda_stream = Some(named),
        None => {
            if let Some(own) = &session.cuda_stream {
                own.write_to_pool_config(&mut config);
            }
        }
    });
    pool.set_config(config).ok()?;
    pool.config().params().map(|(_, size, ..)| size)
}

/// Downstream's pool if it is in the element's context and accepts the configuration, else a new one. Returns the size
/// of its buffers too.
fn decide_device_pool(
    state: &SharedState,
    proposed: Option<gst::BufferPool>,
    params: &PoolParams,
) -> Result<(gst::BufferPool, u32), gst::LoggableError> {
    let Some(context) = state.context() else {
        return Err(gst::loggable_error!(CAT, "no CUDA context for output in CUDA memory"));
    };
    let configured = |pool: gst::BufferPool| configure_device_pool(state, &pool, params).map(|size| (pool, size));
    // A pool that is active already may refuse the configuration.
    let usable = proposed.filter(|pool| context.owns_pool(pool)).and_then(configured);
    usable
        .or_else(|| context.new_pool().and_then(configured))
        .ok_or_else(|| gst::loggable_error!(CAT, "could not create a pool of CUDA memory for {}", params.caps))
}

/// Downstream's pool, else one of pinned memory, else one of ordinary memory.
fn decide_host_pool(
    state: &SharedState,
    proposed: Option<gst::BufferPool>,
    query: &mut gst::query::Allocation,
    params: &PoolParams,
) -> gst::BufferPool {
    if let Some(pool) = proposed {
        let mut config = params.config_of(&pool);
        if pool.has_option(VIDEO_META) {
            config.add_option(VIDEO_META);
        }
        // A pool that changed the configuration returns an error here; the base class then asks it for the changed one.
        if let Err(error) = pool.set_config(config) {
            gst::debug!(CAT, obj = pool, "downstream's pool changed its configuration: {error}");
        }
        return pool;
    }
    let Some(allocator) = pinned_allocator(state) else { return gst_video::VideoBufferPool::new().upcast() };
    let allocation_params = gst::AllocationParams::default();
    match query.allocation_params().next() {
        Some(_) => query.set_nth_allocation_param(0, Some(&allocator), allocation_params),
        None => query.add_allocation_param(Some(&allocator), allocation_params),
    }
    new_pinned_pool(params, &allocator)
}
