// SPDX-License-Identifier: MPL-2.0
//! Programs: jobs as copies and launches with the addresses of a frame, each launch with its function, specialised or prebuilt.

use std::sync::Arc;

use super::driver::device::Device;
use super::driver::{Function, Stream};
use super::error::CudaError;
use super::jit::{Compilation, JitRequest};
use super::kernels::abi::KernelSet;
use super::kernels::images::{Kernel, Part};
use super::kernels::launch::Launch;
use super::kernels::possible;
use super::kernels::prebuilt::{Image, PrebuiltKernels};
use super::kernels::record::{Command, DevicePlanes, PlaneCopy, Recorder};
use super::kernels::strategy::{BlurKernels, PassStrategy};
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
    groups: Vec<Vec<Step>>,
    blurs: bool,
    /// The kernels that would be the fastest if they were compiled, and those of them that are ready.
    keys: Vec<Compilation>,
    compiled: Vec<Compilation>,
    /// Device memory that it needs as workspace, in bytes: its temporaries, then the intermediate of one batch.
    pub workspace_bytes: usize,
    intermediate_bytes: usize,
    is_cover: bool,
}

enum Step {
    Copy(PlaneCopy),
    Launch(Function, Box<Launch>),
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
    /// Which passes the prebuilt kernels are chosen by.
    pub strategy: PassStrategy,
    /// The specialised kernels that the engine waits for; `None` if it uses the prebuilt kernels only.
    pub request: Option<JitRequest>,
}

impl KernelSelector {
    /// Prebuilt kernels of an image, and specialised ones if the strategy is not chosen by hand.
    pub fn new(shared: Arc<SharedDevice>, image: Image, strategy: PassStrategy) -> Result<Self, CudaError> {
        let prebuilt = Arc::clone(shared.prebuilt(image)?);
        let new = || JitRequest::new(Arc::clone(&shared.jit), Arc::clone(&prebuilt));
        let request = (strategy == PassStrategy::Best).then(new);
        Ok(Self { shared, image, prebuilt, strategy, request })
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        self.shared.device()
    }

    /// Whether kernels for tensor cores are compiled in the background, while those for CUDA cores serve.
    fn compiles_parts(&self) -> bool {
        let images = &self.prebuilt.images;
        images.is_portable() && images.kernel_set() == KernelSet::TensorCores && self.request.is_some()
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
        let (strategy, kernel_set) = (self.strategy, self.prebuilt.images.kernel_set());
        if !self.compiles_parts() {
            return self.prebuilt.load(&possible::kernels(layouts, kernel_set, strategy));
        }
        let failed = self.prebuilt.load(&possible::kernels(layouts, KernelSet::CudaCores, strategy));
        let missing = self.missing_parts(possible::kernels(layouts, kernel_set, strategy));
        if let Some(request) = &mut self.request {
            request.prepare(missing.into_iter());
        }
        failed
    }

    /// Makes a program. Loads the prebuilt kernels that are not loaded yet: all before the first launch, because loading between
    /// launches would keep the device waiting.
    pub fn program(&self, target: Target) -> Result<Program, CudaError> {
        let Target { job, soft, parts, planes, workspace } = target;
        let mut program = Program { is_cover: job.accesses.is_some(), ..Program::default() };
        let mut recorder = Recorder::new(&job.plan, &job.parts, soft, self.prebuilt.images.kernel_set());
        if self.compiles_parts() {
            let kernels = |parts| recorder.record(parts, planes, workspace).kernels(self.strategy);
            program.keys = self.missing_parts(parts.iter().flat_map(kernels));
            if !program.keys.is_empty() {
                recorder = Recorder::new(&job.plan, &job.parts, soft, KernelSet::CudaCores);
            }
        }
        for parts in parts {
            let recording = recorder.record(parts, planes, workspace);
            // Batches use it in turn, behind the temporaries.
            let intermediate = workspace + recording.temporary_bytes as u64;
            let (reads, writes) = recording.commands.split_at(recording.first_write);
            let groups = if program.is_cover { &[reads, writes][..] } else { &[reads] };
            for commands in groups {
                let mut steps = Vec::new();
                for command in *commands {
                    self.resolve(command, intermediate, &mut steps, &mut program)?;
                }
                program.groups.push(steps);
            }
            program.workspace_bytes = recording.temporary_bytes;
        }
        program.workspace_bytes += program.intermediate_bytes;
        // Boxes that move have new programs in every frame.
        if !program.is_cover {
            process::log(Level::Debug, || describe(&program));
        }
        Ok(program)
    }

    /// Adds the steps of a command, whose intermediate memory is at this address.
    fn resolve(
        &self,
        command: &Command,
        intermediate: u64,
        steps: &mut Vec<Step>,
        program: &mut Program,
    ) -> Result<(), CudaError> {
        let limits = self.device().limits();
        let (launches, bytes, compiled) = match command {
            Command::Copy(copy) => {
                steps.push(Step::Copy(*copy));
                return Ok(());
            }
            Command::Launch(launch) => (vec![*launch], 0, None),
            Command::Tensor(batch) => {
                program.blurs = true;
                (vec![batch.launch(limits)], 0, None)
            }
            Command::Level(batch) => (batch.launches(intermediate), batch.intermediate_bytes(), None),
            Command::Blur(batch) => {
                let special = self.request.as_ref().and_then(|_| batch.specialisation(limits));
                let new_key = special.map(Compilation::Direct).filter(|key| !program.keys.contains(key));
                program.keys.extend(new_key);
                let ready = special.and_then(|kernel| Some((kernel, self.shared.jit.get(kernel)?)));
                let of_special = |(kernel, _): &(_, _)| BlurKernels::Direct(*kernel);
                let kernels = ready.as_ref().map_or(batch.prebuilt(self.strategy), of_special);
                program.blurs = true;
                program.compiled.extend(new_key.filter(|_| ready.is_some()));
                let bytes = batch.intermediate_bytes(kernels);
                (batch.launches(intermediate, kernels, limits), bytes, ready.map(|(_, compiled)| compiled))
            }
        };
        for launch in launches {
            let function = match compiled.as_ref().and_then(|compiled| compiled.get(launch.kernel)) {
                Some(function) => function,
                None => self.prebuilt.function(launch.kernel)?,
            };
            let (needed, limit) = (launch.grid.shared_bytes, limits.shared_bytes);
            if needed > limit {
                return Err(CudaError::SharedMemory { needed, limit, id: self.device().id() });
            }
            steps.push(Step::Launch(function, Box::new(launch)));
        }
        // Batches use it in turn, so the largest counts.
        program.intermediate_bytes = program.intermediate_bytes.max(bytes);
        Ok(())
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
