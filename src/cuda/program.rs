// SPDX-License-Identifier: MPL-2.0
//! Programs: jobs as copies and launches with the addresses of a frame, each launch with its function, specialised or prebuilt.

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

/// What is enqueued for a frame.
pub struct Program {
    /// Each is enqueued on one stream: every band of a frame; of a cover what only reads the frame, and then what writes it.
    sections: Vec<Vec<Step<Function>>>,
    /// The kernels of NVRTC that would be the fastest.
    pub keys: Vec<Compilation>,
    /// Whether all blurs that gain from kernels of NVRTC have them, and there are any; `None` if nothing is blurred.
    pub specialised: Option<bool>,
    /// Device memory that it needs as workspace, in bytes: its temporaries, then what is between the launches of one batch.
    pub workspace_bytes: usize,
    is_cover: bool,
    can_overlap: bool,
}

/// What a program is made for. Besides this and the specialised kernels that are ready, it depends only on what an engine never
/// changes: the device, the prebuilt kernels, and how it chooses among them.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// What is done.
    pub job: &'a Arc<Job>,
    /// How much of a cover shows. The values of the weights do not count.
    pub soft: Option<&'a Softness>,
    /// What each band computes; of a cover all at once.
    pub parts: &'a [Parts],
    /// The planes of the frames.
    pub planes: &'a DevicePlanes,
}

impl Program {
    /// Makes a program with the workspace at this address. Loads the prebuilt kernels that are not loaded yet: all before the first
    /// launch, because loading between launches would keep the device waiting.
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
        // Boxes that move have new programs in every frame.
        if !is_cover {
            process::log(Level::Debug, || program.describe(&special.ready));
        }
        Ok(program)
    }

    /// The bytes of workspace to allocate for it and those to come: half as much again for a cover, because regions that grow from
    /// frame to frame then cause few allocations.
    pub fn workspace_capacity(&self) -> usize {
        self.workspace_bytes + if self.is_cover { self.workspace_bytes / 2 } else { 0 }
    }

    /// The number of its steps, of 4 KB each.
    pub fn step_count(&self) -> usize {
        self.sections.iter().map(Vec::len).sum()
    }

    /// Whether a section has no steps.
    pub fn is_empty(&self, section: usize) -> bool {
        self.sections[section].is_empty()
    }

    /// Its size and its kernels, for the log.
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

    /// Enqueues a section.
    ///
    /// # Safety
    /// The device's context is current. The planes and the workspace that the program was made for live and are accessed by
    /// nobody else until the stream has done the work.
    pub unsafe fn enqueue(&self, stream: &Stream, section: usize) -> Result<(), CudaError> {
        for step in &self.sections[section] {
            // SAFETY: every address is one in the caller's planes and workspace; each function is that of its launch.
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
