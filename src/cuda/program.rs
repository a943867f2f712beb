// SPDX-License-Identifier: MPL-2.0
//! Programs. A program has the copies and launches of a job, with the addresses of a frame. Each launch has its function, from a
//! specialised or a prebuilt kernel.

use std::sync::Arc;

use super::driver::{Function, Stream};
use super::error::CudaError;
use super::jit::Compilation;
use super::kernels::abi::KernelSet;
use super::kernels::entry::Entry;
use super::kernels::lower::{DevicePlanes, Lowering, PlaneCopy, Step};
use super::kernels::tensor_direct::DirectKernel;
use super::selector::{KernelSelector, Specialised};
use crate::filter::cover::Softness;
use crate::filter::parts::{Job, Parts};
use crate::process::{self, Level};

/// The copies and launches that are enqueued for a frame.
pub struct Program {
    /// The sections, each of which is enqueued on one stream. A blurred frame has one for each band. A cover has two: the first
    /// only reads the frame, and the second writes it.
    sections: Vec<Vec<Step<Function>>>,
    /// The kernels that would be the fastest if they were compiled, by NVRTC or by the driver.
    pub keys: Vec<Compilation>,
    /// Whether there are blurs for which a compiled kernel is faster, and all these have it. `None` if nothing is blurred.
    pub specialised: Option<bool>,
    /// The size of the workspace in bytes. It has the temporaries, and then the memory between the launches of a batch.
    pub workspace_bytes: usize,
    is_cover: bool,
    can_overlap: bool,
}

/// Everything that a program is made for. Besides this, a program depends on the specialised kernels that are ready, and on
/// properties that an engine never changes: the device, the prebuilt kernels, and the rules by which it chooses among them.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// The job.
    pub job: &'a Arc<Job>,
    /// The weights of a soft cover. The program does not depend on their values.
    pub soft: Option<&'a Softness>,
    /// The rectangles that each band computes; a single element for a cover.
    pub parts: &'a [Parts],
    /// The planes of the frames.
    pub planes: &'a DevicePlanes,
}

impl Program {
    /// Makes a program with the workspace at this address. Loads all prebuilt kernels that it needs before the first launch is
    /// enqueued. Loading a kernel between launches would keep the device waiting.
    pub fn new(selector: &KernelSelector, target: Target, workspace: u64) -> Result<Self, CudaError> {
        let Target { job, soft, parts, planes } = target;
        let (limits, is_cover) = (selector.device().limits(), job.accesses.is_some());
        let mut special = Specialised::default();
        let mut lowering = Lowering::new(job, soft, selector.kernel_set);
        if selector.compiles_parts() {
            let choose = &mut DirectKernel::prebuilt;
            let lowered = parts.iter().map(|parts| lowering.lower(parts, planes, workspace, limits, choose));
            special.keys = selector.missing_parts(lowered.flat_map(|lowered| lowered.kernels().collect::<Vec<_>>()));
            if !special.keys.is_empty() {
                lowering = Lowering::new(job, soft, KernelSet::CudaCores);
            }
        }
        let mut choose = |batch: &[Entry]| selector.choose(batch, &mut special);
        let lowered: Vec<_> =
            parts.iter().map(|parts| lowering.lower(parts, planes, workspace, limits, &mut choose)).collect();
        let between = lowered.iter().map(|lowered| lowered.intermediate_bytes).max().unwrap_or(0);
        let mut sections = Vec::new();
        for lowered in lowered {
            for steps in [Some(lowered.reads), is_cover.then_some(lowered.writes)].into_iter().flatten() {
                let with_function = |step| match step {
                    Step::Copy(copy) => Ok(Step::Copy(copy)),
                    Step::Launch(kernel, launch) => {
                        Ok(Step::Launch(selector.function(&launch, kernel, &special)?, launch))
                    }
                };
                sections.push(steps.into_iter().map(with_function).collect::<Result<_, CudaError>>()?);
            }
        }
        let is_specialised = !special.keys.is_empty() && special.ready.len() == special.keys.len();
        let program = Self {
            sections,
            specialised: job.plan.blurs().then_some(is_specialised),
            workspace_bytes: lowering.bytes() + between,
            is_cover,
            can_overlap: selector.prebuilt.images.can_overlap(),
            keys: special.keys,
        };
        // Covers are not logged: moving boxes need new programs for each frame.
        if !is_cover {
            process::log(Level::Debug, || program.describe(&special.ready));
        }
        Ok(program)
    }

    /// The number of bytes to allocate as workspace, for this program and for later ones. For a cover it is half as much again,
    /// so that regions that grow from frame to frame need few allocations.
    pub fn workspace_capacity(&self) -> usize {
        self.workspace_bytes + if self.is_cover { self.workspace_bytes / 2 } else { 0 }
    }

    /// The number of steps. Each has 4 KB.
    pub fn step_count(&self) -> usize {
        self.sections.iter().map(Vec::len).sum()
    }

    /// Whether a section has no steps.
    pub fn is_empty(&self, section: usize) -> bool {
        self.sections[section].is_empty()
    }

    /// Describes the size and the kernels of the program, for the log.
    fn describe(&self, ready: &[(DirectKernel, impl Sized)]) -> String {
        let kernels = self.sections.iter().flatten().filter_map(|step| match step {
            Step::Copy(_) => None,
            Step::Launch(_, launch) => Some(launch.kernel),
        });
        let kernels: Vec<_> = kernels.collect();
        let (sections, bytes) = (self.sections.len(), self.workspace_bytes);
        let mut line = format!("new program: sections {sections}, bytes of workspace {bytes}, kernels {kernels:?}");
        for (kernel, _) in ready {
            line += &format!(", compiled for {}", Compilation::Direct(*kernel));
        }
        line
    }

    /// Enqueues one section.
    ///
    /// # Safety
    /// The device's context is current. The planes and the workspace that the program was made for live until the stream has done
    /// the work, and nobody else accesses them before.
    pub unsafe fn enqueue(&self, stream: &Stream, section: usize) -> Result<(), CudaError> {
        for step in &self.sections[section] {
            // SAFETY: all addresses are in the planes and the workspace, whose lifetime and exclusive use the caller promises.
            // `Program::new` has looked up the function for the kernel of each launch.
            unsafe {
                match step {
                    Step::Copy(PlaneCopy { source, destination, row_bytes, rows }) => {
                        stream.copy(source, destination, *row_bytes, *rows)?;
                    }
                    Step::Launch(function, launch) => launch.enqueue(*function, stream, self.can_overlap)?,
                }
            }
        }
        Ok(())
    }
}
