// SPDX-License-Identifier: MPL-2.0
//! Buffer pools: what upstream is offered, and what frames of our own come from.
//!
//! In host memory they are pinned where CUDA blurs, so that the device reads and writes frames where they are. In CUDA memory
//! they are GStreamer's own, in the context that the pipeline shares.

use gst::prelude::*;
use gst::subclass::prelude::*;

use super::caps::are_on_device;
use super::gstcuda;
use super::imp::{CAT, CudaGaussBlur, lock};
use super::pinned::PinnedAllocator;

const VIDEO_META: &str = gst_video::BUFFER_POOL_OPTION_VIDEO_META.as_str();

/// A pool of video frames from this allocator.
fn video_pool(caps: Option<&gst::Caps>, size: u32, min: u32, max: u32, allocator: &PinnedAllocator) -> gst::BufferPool {
    let pool = gst_video::VideoBufferPool::new().upcast::<gst::BufferPool>();
    let mut config = pool.config();
    config.set_params(caps, size, min, max);
    config.set_allocator(Some(allocator), None);
    config.add_option(VIDEO_META);
    // Whoever takes the pool configures it again, and is told then.
    let _ = pool.set_config(config);
    pool
}

fn info_of(caps: Option<&gst::Caps>) -> Option<gst_video::VideoInfo> {
    caps.and_then(|caps| gst_video::VideoInfo::from_caps(caps).ok())
}

fn size_of(info: &gst_video::VideoInfo) -> u32 {
    u32::try_from(info.size()).unwrap_or(u32::MAX)
}

impl CudaGaussBlur {
    /// Pinned memory, where CUDA blurs.
    fn allocator(&self) -> Option<PinnedAllocator> {
        lock(&self.stream).as_ref().and_then(|stream| stream.engine.pinned()).map(PinnedAllocator::new)
    }

    /// Configures a pool of CUDA memory, with the stream that orders our work unless it has one; says how large its frames are.
    fn configure(&self, pool: &gst::BufferPool, caps: &gst::Caps, size: u32, min: u32, max: u32) -> Option<u32> {
        let mut config = pool.config();
        config.set_params(Some(caps), size, min, max);
        config.add_option(VIDEO_META);
        if let Some(stream) = &mut *lock(&self.stream) {
            match gstcuda::Stream::of(&config) {
                Some(theirs) => stream.cuda_stream = Some(theirs),
                None => {
                    if let Some(ours) = &stream.cuda_stream {
                        ours.put(&mut config);
                    }
                }
            }
        }
        pool.set_config(config).ok()?;
        // It knows its pitches only now.
        pool.config().params().map(|(_, size, ..)| size)
    }

    /// Frames that are kept on their way while others come: their buffers have to be there besides.
    fn kept(&self) -> u32 {
        lock(&self.settings).max_in_flight - 1
    }

    pub(super) fn offer_pool(&self, query: &mut gst::query::Allocation) {
        query.add_allocation_meta::<gst_video::VideoMeta>(None);
        let caps = query.get_owned().0;
        let (Some(caps), Some(info)) = (&caps, info_of(caps.as_ref())) else { return };
        let kept = self.kept();
        if are_on_device(caps) {
            let context = lock(&self.context).clone();
            if let Some(pool) = context.and_then(|context| context.pool())
                && let Some(size) = self.configure(&pool, caps, size_of(&info), kept, 0)
            {
                query.add_allocation_pool(Some(&pool), size, kept, 0);
            }
        } else if let Some(allocator) = self.allocator() {
            // What upstream writes into such memory goes to the device without a copy by the CPU.
            let pool = video_pool(Some(caps), size_of(&info), kept, 0, &allocator);
            query.add_allocation_param(Some(&allocator), gst::AllocationParams::default());
            query.add_allocation_pool(Some(&pool), size_of(&info), kept, 0);
        }
    }

    pub(super) fn choose_pool(&self, query: &mut gst::query::Allocation) -> Result<(), gst::LoggableError> {
        let caps = query.get_owned().0;
        let (Some(caps), Some(info)) = (&caps, info_of(caps.as_ref())) else {
            return Err(gst::loggable_error!(CAT, "the allocation query has no video caps"));
        };
        let offered = query.allocation_pools().next();
        let had_one = offered.is_some();
        let (pool, size, min, max) = offered.unwrap_or((None, 0, 0, 0));
        let size = size.max(size_of(&info));
        let kept = self.kept();
        let (min, max) = (min + kept, if max == 0 { 0 } else { max + kept });
        let (pool, size) = if are_on_device(caps) {
            self.pool_on_device(pool, caps, size, min, max)?
        } else {
            (self.pool_on_host(pool, query, caps, size, min, max), size)
        };
        if had_one {
            query.set_nth_allocation_pool(0, Some(&pool), size, min, max);
        } else {
            query.add_allocation_pool(Some(&pool), size, min, max);
        }
        Ok(())
    }

    /// No more frames may be kept on their way than the pool has buffers for, or the next one would wait for them in vain.
    pub(super) fn respect_pool(&self, query: &gst::query::Allocation) {
        let wanted = lock(&self.settings).max_in_flight as usize;
        let most = query.allocation_pools().next().and_then(|(pool, ..)| pool?.config().params().map(|(.., max)| max));
        let most = most.filter(|most| *most > 0).map_or(usize::MAX, |most| most as usize);
        if let Some(stream) = &mut *lock(&self.stream) {
            stream.max_in_flight = wanted.min(most.saturating_sub(1).max(1));
        }
    }

    /// Downstream's pool if it is of our context, else one of our own.
    fn pool_on_device(
        &self,
        offered: Option<gst::BufferPool>,
        caps: &gst::Caps,
        size: u32,
        min: u32,
        max: u32,
    ) -> Result<(gst::BufferPool, u32), gst::LoggableError> {
        let context = lock(&self.context).clone();
        let Some(context) = context else {
            return Err(gst::loggable_error!(CAT, "there is no CUDA context for frames in CUDA memory"));
        };
        let configured = |pool: gst::BufferPool| self.configure(&pool, caps, size, min, max).map(|size| (pool, size));
        // One that is in use already may refuse.
        let theirs = offered.filter(|pool| context.owns(pool)).and_then(configured);
        theirs
            .or_else(|| context.pool().and_then(configured))
            .ok_or_else(|| gst::loggable_error!(CAT, "no pool of CUDA memory could be made for {caps}"))
    }

    /// Downstream's pool, or one of video frames, which aligns and recycles them, in memory that the device writes by itself
    /// where there is a device.
    fn pool_on_host(
        &self,
        offered: Option<gst::BufferPool>,
        query: &mut gst::query::Allocation,
        caps: &gst::Caps,
        size: u32,
        min: u32,
        max: u32,
    ) -> gst::BufferPool {
        match (offered, self.allocator()) {
            (Some(pool), _) => {
                let mut config = pool.config();
                if pool.has_option(VIDEO_META) {
                    config.add_option(VIDEO_META);
                }
                config.set_params(Some(caps), size, min, max);
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
                video_pool(Some(caps), size, min, max, &allocator)
            }
            (None, None) => gst_video::VideoBufferPool::new().upcast(),
        }
    }
}
