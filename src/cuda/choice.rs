// SPDX-License-Identifier: MPL-2.0
//! Which kernels serve a frame: special ones where they are there, else the prebuilt ones; and their launches on a stream.

use std::sync::Arc;

use super::device::Device;
use super::driver::{Function, Stream};
use super::error::CudaError;
use super::kernels::{Image, Kernels};
use super::launch::{Group, Launch, Passes};
use super::special::Shape;
use super::work::Work;

/// What an engine may choose from.
#[derive(Clone)]
pub struct Choice {
    pub device: Arc<Device>,
    pub image: Image,
    /// In how many launches, where the prebuilt kernels serve.
    pub passes: Passes,
    /// Whether kernels may be made for single sizes.
    pub specialises: bool,
}

impl Choice {
    /// The prebuilt kernels.
    pub fn kernels(&self) -> Result<&Kernels, CudaError> {
        self.device.kernels(self.image)
    }

    /// What a special kernel for these planes is made for, if there is to be one.
    pub fn shape(&self, group: &Group) -> Option<Shape> {
        let may = self.specialises && group.fits_fused(self.device.limits());
        Shape::of(group).filter(|_| may)
    }

    /// How planes are blurred now, with the special kernel if there is one.
    fn way(&self, group: &Group) -> (Passes, Option<Function>) {
        let special = self.shape(group).and_then(|shape| self.device.specials().get(&shape));
        (if special.is_some() { Passes::Special } else { self.passes }, special)
    }

    /// Device memory that the jobs need beside the planes, in bytes. It does not grow when special kernels come.
    pub fn extra_bytes(&self, work: &Work) -> usize {
        let scratch = |group: &Group| group.scratch_bytes(self.way(group).0, self.device.limits());
        work.product_bytes + work.groups.iter().map(scratch).max().unwrap_or(0)
    }

    /// Queues work on planes that are in the device's memory; says whether special kernels do all of the blur.
    ///
    /// # Safety
    /// The device's context is current. The planes lie where the work says, its products from `extra` on, which starts on
    /// 256 bytes; all of them and the [`Choice::extra_bytes`] live and are this stream's alone until it has done the work.
    pub unsafe fn queue(&self, stream: &Stream, work: &Work, extra: u64) -> Result<bool, CudaError> {
        let scratch = extra + work.product_bytes as u64;
        let mut all_special = !work.groups.is_empty();
        // SAFETY: products and scratch are behind each other in what there is beside the planes; the groups take turns in
        // the scratch.
        unsafe {
            for copy in &work.copies {
                stream.copy_rows(copy)?;
            }
            self.launch_all(stream, &work.before, None)?;
            for group in &work.groups {
                let (passes, special) = self.way(group);
                all_special &= special.is_some();
                self.launch_all(stream, &group.launches(scratch, passes, self.device.limits()), special)?;
            }
            self.launch_all(stream, &work.after, None)?;
        }
        Ok(all_special)
    }

    /// Queues launches; a special kernel, if there is one, is what all of them are for.
    ///
    /// # Safety
    /// As [`Choice::queue`].
    unsafe fn launch_all(
        &self,
        stream: &Stream,
        launches: &[Launch],
        special: Option<Function>,
    ) -> Result<(), CudaError> {
        let kernels = self.kernels()?;
        for launch in launches {
            let (needed, limit) = (launch.shared_bytes, self.device.limits().shared_bytes);
            if needed > limit {
                return Err(CudaError::SharedMemory { needed, limit, id: self.device.id() });
            }
            let function = special.unwrap_or_else(|| kernels.function(launch.kernel));
            // SAFETY: passed on; the function is the one the launch is for.
            unsafe { stream.launch(function, launch) }?;
        }
        Ok(())
    }
}
