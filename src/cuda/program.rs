// SPDX-License-Identifier: MPL-2.0
//! Programs: jobs as copies and launches with the addresses of a frame, each launch with its function, specialised or prebuilt.

use std::sync::Arc;

use super::driver::device::Device;
use super::driver::{Function, Stream};
use super::error::CudaError;
use super::jit::{Compilation, JitRequest};
use super::kernels::abi::KernelSet;
use super::kernels::entry::Entry;
use super::kernels::images::{Kernel, Part};
use super::kernels::launch::Launch;
use super::kernels::lower::{DevicePlanes, Lowering, PlaneCopy, Step};
use super::kernels::possible;
use super::kernels::prebuilt::{Image, LoadedKernels, PrebuiltKernels};
use super::kernels::tensor_direct::DirectKernel;
use super::shared_device::SharedDevice;
use crate::filter::cover::Softness;
use crate::filter::frame::PlaneLayout;
use crate::filter::parts::{Job, Parts};
use crate::process::{self, Level};

/// Programs that are kept: pools of nine and of seven buffers make as many pairs of a source and a destination.
const CAPACITY: usize = 64;
/// Steps of all programs that are kept, of 4 KB each.
const MOST_STEPS: usize = 2048;

/// What is enqueued for a frame: groups of steps, each of which is enqueued on one stream.
#[derive(Default)]
pub struct Program {
    /// Of every band of a frame; of a cover what only reads the frame, and then what writes it.
    groups: Vec<Vec<Step<Function>>>,
    blurs: bool,
    /// The kernels that would be the fastest if they were compiled, and those of them that are ready.
    keys: Vec<Compilation>,
    compiled: Vec<Compilation>,
    /// Device memory that it needs as workspace, in bytes: its temporaries, then the intermediate of one batch.
    pub workspace_bytes: usize,
    is_cover: bool,
}

impl Program {
    /// Whether all blurs that gain from kernels of NVRTC have them, and there are any; `None` if nothing is blurred.
    pub fn specialised(&self) -> Option<bool> {
        self.blurs.then_some(!self.keys.is_empty() && self.compiled.len() == self.keys.len())
    }

    /// The bytes of workspace to allocate for it and those to come: half as much again for a cover, because regions that grow from
    /// frame to frame then cause few allocations.
    pub fn workspace_capacity(&self) -> usize {
        self.workspace_bytes + if self.is_cover { self.workspace_bytes / 2 } else { 0 }
    }

    /// Whether a group has no steps.
    pub fn is_empty(&self, group: usize) -> bool {
        self.groups[group].is_empty()
    }
}

/// What a program is made for. Besides this and the specialised kernels that are ready, it depends only on what an engine never
/// changes: the device, the prebuilt kernels, and how it chooses among them.
#[derive(Clone, Copy)]
pub struct Target<'a> {
    /// What is done.
    pub job: &'a Arc<Job>,
    /// How much of a cover shows. The values of the weights do not count.
    pub soft: Option<&'a Softness>,
    /// The parts that each group computes. For one job their number identifies them. A cover has one entry, made into two
    /// groups: what reads, then what writes.
    pub parts: &'a [Parts],
    /// The planes of the frames.
    pub planes: &'a DevicePlanes,
    /// The address of the workspace.
    pub workspace: u64,
}

/// The programs of the last frames, the most recently used last.
#[derive(Default)]
pub struct ProgramCache(Vec<CachedProgram>);

struct CachedProgram {
    job: Arc<Job>,
    groups: usize,
    planes: DevicePlanes,
    workspace: u64,
    /// Which specialised kernels were ready, see [`JitCache::generation`](super::jit::JitCache::generation).
    jit_generation: u64,
    program: Arc<Program>,
}

impl ProgramCache {
    /// The program for a target. Requests specialised kernels for frames that keep needing them.
    pub fn get(&mut self, selector: &mut KernelSelector, target: Target) -> Result<Arc<Program>, CudaError> {
        // Read before kernels are selected: one that gets ready meanwhile is selected for the next frame.
        let jit_generation = selector.shared.jit.generation();
        let Target { job, parts, planes, workspace, .. } = target;
        let serves = |of: &CachedProgram| {
            Arc::ptr_eq(&of.job, job)
                && of.groups == parts.len()
                && of.workspace == workspace
                && of.jit_generation == jit_generation
                && of.planes == *planes
        };
        let cached = match self.0.iter().rposition(serves) {
            Some(index) => self.0.remove(index),
            None => {
                let program = Arc::new(selector.program(target)?);
                let (job, planes, groups) = (Arc::clone(job), planes.clone(), parts.len());
                let count = |program: &Program| program.groups.iter().map(Vec::len).sum::<usize>();
                let mut steps = count(&program);
                let is_kept = |cached: &&CachedProgram| {
                    steps += count(&cached.program);
                    steps <= MOST_STEPS
                };
                let kept = self.0.iter().rev().take_while(is_kept).count().min(CAPACITY - 1);
                self.0.drain(..self.0.len() - kept);
                CachedProgram { job, groups, planes, workspace, jit_generation, program }
            }
        };
        let program = Arc::clone(&cached.program);
        self.0.push(cached);
        // A frame that is only copied says nothing about the kernels of the others, with which it may take turns.
        if program.blurs
            && let Some(request) = &mut selector.request
        {
            request.update(program.keys.iter().copied());
        }
        Ok(program)
    }
}

/// The size of a program and its kernels, for the log.
fn describe(program: &Program) -> String {
    let kernels = program.groups.iter().flatten().filter_map(|step| match step {
        Step::Copy(_) => None,
        Step::Launch(_, launch) => Some(launch.kernel),
    });
    let kernels: Vec<_> = kernels.collect();
    let (groups, bytes) = (program.groups.len(), program.workspace_bytes);
    let mut line = format!("new program: groups {groups}, bytes of workspace {bytes}, kernels {kernels:?}");
    for key in &program.compiled {
        line += &format!(", compiled for {key}");
    }
    line
}

/// The kernels that an engine may use.
pub struct KernelSelector {
    /// What the engines on the device share.
    pub shared: Arc<SharedDevice>,
    image: Image,
    /// The prebuilt kernels.
    pub prebuilt: Arc<PrebuiltKernels>,
    /// Which of them plans are lowered for.
    pub kernel_set: KernelSet,
    /// The specialised kernels that the engine waits for; `None` if it uses the prebuilt kernels only.
    pub request: Option<JitRequest>,
}

impl KernelSelector {
    /// The prebuilt kernels of an image, and specialised ones.
    pub fn new(shared: Arc<SharedDevice>, image: Image) -> Result<Self, CudaError> {
        let prebuilt = Arc::clone(shared.prebuilt(image)?);
        let request = Some(JitRequest::new(Arc::clone(&shared.jit), Arc::clone(&prebuilt)));
        let kernel_set = prebuilt.images.kernel_set();
        Ok(Self { shared, image, prebuilt, kernel_set, request })
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        self.shared.device()
    }

    /// Whether kernels for tensor cores are compiled in the background, while those for CUDA cores serve.
    fn compiles_parts(&self) -> bool {
        self.prebuilt.images.is_portable() && self.kernel_set == KernelSet::TensorCores && self.request.is_some()
    }

    /// The parts of these kernels that are compiled in the background and not ready, each once.
    fn missing_parts(&self, kernels: impl IntoIterator<Item = Kernel>) -> Vec<Compilation> {
        let mut missing = Vec::new();
        for kernel in kernels.into_iter().filter(|kernel| kernel.needs_tensor_cores()) {
            let key = Compilation::Part(self.image, kernel.part());
            if !self.prebuilt.has(kernel.part()) && !missing.contains(&key) {
                missing.push(key);
            }
        }
        missing
    }

    /// Loads the prebuilt kernels that frames of these planes can need, whatever the settings become, so that no frame waits for
    /// a load, and requests those that are compiled in the background. Returns the parts that could not be loaded, which are tried
    /// again when a frame needs them, and why.
    pub fn prepare(&mut self, layouts: &[PlaneLayout]) -> Vec<(Part, CudaError)> {
        if !self.compiles_parts() {
            return self.prebuilt.load(&possible::kernels(layouts, self.kernel_set));
        }
        let failed = self.prebuilt.load(&possible::kernels(layouts, KernelSet::CudaCores));
        let missing = self.missing_parts(possible::kernels(layouts, self.kernel_set));
        if let Some(request) = &mut self.request {
            request.prepare(missing.into_iter());
        }
        failed
    }

    /// Makes a program. Loads the prebuilt kernels that are not loaded yet: all before the first launch, because loading between
    /// launches would keep the device waiting.
    pub fn program(&self, target: Target) -> Result<Program, CudaError> {
        let Target { job, soft, parts, planes, workspace } = target;
        let (limits, is_cover) = (self.device().limits(), job.accesses.is_some());
        let mut program = Program { is_cover, blurs: job.plan.blurs(), ..Program::default() };
        let mut lowering = Lowering::new(job, soft, self.kernel_set);
        if self.compiles_parts() {
            let choose = &mut DirectKernel::prebuilt;
            let lowered = parts.iter().map(|parts| lowering.lower(parts, planes, workspace, limits, choose));
            program.keys = self.missing_parts(lowered.flat_map(|lowered| lowered.kernels().collect::<Vec<_>>()));
            if !program.keys.is_empty() {
                lowering = Lowering::new(job, soft, KernelSet::CudaCores);
            }
        }
        let mut ready = Vec::new();
        let mut choose = |batch: &[Entry]| {
            let special = self.request.as_ref().and_then(|_| DirectKernel::compiled(batch, limits));
            let new_key = special.map(Compilation::Direct).filter(|key| !program.keys.contains(key));
            program.keys.extend(new_key);
            let Some((kernel, compiled)) = special.and_then(|kernel| Some((kernel, self.shared.jit.get(kernel)?)))
            else {
                return DirectKernel::prebuilt(batch);
            };
            program.compiled.extend(new_key);
            ready.push((kernel, compiled));
            Some(kernel)
        };
        let lowered: Vec<_> =
            parts.iter().map(|parts| lowering.lower(parts, planes, workspace, limits, &mut choose)).collect();
        let intermediate_bytes = lowered.iter().map(|lowered| lowered.intermediate_bytes).max();
        program.workspace_bytes = lowering.bytes() + intermediate_bytes.unwrap_or(0);
        for lowered in lowered {
            let halves = [Some(lowered.reads), is_cover.then_some(lowered.writes)];
            for steps in halves.into_iter().flatten() {
                program
                    .groups
                    .push(steps.into_iter().map(|step| self.with_function(step, &ready)).collect::<Result<_, _>>()?);
            }
        }
        // Boxes that move have new programs in every frame.
        if !is_cover {
            process::log(Level::Debug, || describe(&program));
        }
        Ok(program)
    }

    /// A step with the function of its launch: one of the compiled kernels that are ready, or the prebuilt one.
    fn with_function(
        &self,
        step: Step<Option<DirectKernel>>,
        ready: &[(DirectKernel, Arc<LoadedKernels>)],
    ) -> Result<Step<Function>, CudaError> {
        let (special, launch) = match step {
            Step::Copy(copy) => return Ok(Step::Copy(copy)),
            Step::Launch(special, launch) => (special, launch),
        };
        let (needed, limit) = (launch.grid.shared_bytes, self.device().limits().shared_bytes);
        if needed > limit {
            return Err(CudaError::SharedMemory { needed, limit, id: self.device().id() });
        }
        let compiled = ready.iter().find(|(kernel, _)| Some(*kernel) == special);
        let function = match compiled.and_then(|(_, compiled)| compiled.get(launch.kernel)) {
            Some(function) => function,
            None => self.prebuilt.function(launch.kernel)?,
        };
        Ok(Step::Launch(function, launch))
    }

    /// Enqueues a group of a program.
    ///
    /// # Safety
    /// The device's context is current. The planes and the workspace that the program was made for live and are accessed by
    /// nobody else until the stream has done the work.
    pub unsafe fn enqueue(&self, stream: &Stream, program: &Program, group: usize) -> Result<(), CudaError> {
        let overlap = self.prebuilt.images.can_overlap();
        for step in &program.groups[group] {
            // SAFETY: every address is one in the caller's planes and workspace; each function is that of its launch.
            unsafe {
                match step {
                    Step::Copy(PlaneCopy { source, destination, row_bytes, rows }) => {
                        stream.copy(source, destination, *row_bytes, *rows)?;
                    }
                    Step::Launch(function, launch) => launch.enqueue(*function, stream, overlap)?,
                }
            }
        }
        Ok(())
    }

    /// Enqueues launches of prebuilt kernels.
    ///
    /// # Safety
    /// The device's context is current. The memory that they access lives and is accessed by nobody else until the stream has
    /// done the work.
    pub unsafe fn enqueue_launches(&self, stream: &Stream, launches: &[Launch]) -> Result<(), CudaError> {
        let overlap = self.prebuilt.images.can_overlap();
        for launch in launches {
            // SAFETY: the function is that of the launch, whose memory is the caller's.
            unsafe { launch.enqueue(self.prebuilt.function(launch.kernel)?, stream, overlap) }?;
        }
        Ok(())
    }
}
