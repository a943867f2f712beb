// SPDX-License-Identifier: MPL-2.0
//! Programs: jobs as copies and launches with the addresses of a frame, each launch with its function, specialised or prebuilt.

use std::sync::Arc;

use super::driver::device::Device;
use super::driver::{Function, Stream};
use super::error::CudaError;
use super::jit::JitRequest;
use super::kernels::abi::KernelSet;
use super::kernels::batch::BlurBatch;
use super::kernels::launch::Launch;
use super::kernels::prebuilt::{Image, PrebuiltKernels};
use super::kernels::record::{Command, DevicePlanes, PlaneCopy, Recorder};
use super::kernels::strategy::{PassStrategy, Specialisation};
use super::shared_device::SharedDevice;
use crate::filter::cover::Softness;
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
    /// The specialised kernels that would be the fastest, and those of them that are ready.
    keys: Vec<Specialisation>,
    compiled: Vec<Specialisation>,
    /// Whether a specialised kernel does not wait for the one ahead of it.
    must_not_overlap: bool,
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
    /// Whether all blurs that gain from specialised kernels have them, and there are any; `None` if nothing is blurred.
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
        let request = (strategy == PassStrategy::Best).then(|| JitRequest::new(Arc::clone(&shared.jit)));
        Ok(Self { shared, prebuilt, strategy, request })
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        self.shared.device()
    }

    /// The kernels that would be faster for a batch than the prebuilt ones.
    fn key(&self, batch: &BlurBatch) -> Option<Specialisation> {
        self.request.as_ref().and_then(|_| batch.specialisation(self.device().limits()))
    }

    /// Whether some of a job gains from kernels for the radii of all its planes, which every band has to have.
    pub fn needs_equal_slots(&self, job: &Job) -> bool {
        let kernel_set = self.prebuilt.images.kernel_set();
        if kernel_set == KernelSet::TensorCores {
            return false;
        }
        let planes = DevicePlanes::nowhere(job.plan.layouts().len());
        let recording = Recorder::new(&job.plan, &job.parts, None, kernel_set).record(&job.parts, &planes, 0);
        recording.batches().any(|batch| self.key(batch).is_some())
    }

    /// Makes a program. Loads the prebuilt kernels that are not loaded yet: all before the first launch, because loading between
    /// launches would keep the device waiting.
    pub fn program(&self, target: Target) -> Result<Program, CudaError> {
        let Target { job, soft, parts, planes, workspace } = target;
        let recorder = Recorder::new(&job.plan, &job.parts, soft, self.prebuilt.images.kernel_set());
        let mut program = Program { is_cover: job.accesses.is_some(), ..Program::default() };
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
                let key = self.key(batch);
                let new_key = key.filter(|key| !program.keys.contains(key));
                program.keys.extend(new_key);
                let ready = key.and_then(|key| Some((key, self.shared.jit.get(&key)?)));
                let kernels = ready.as_ref().map_or(batch.prebuilt(self.strategy), |(key, _)| key.kernels());
                program.blurs = true;
                program.compiled.extend(new_key.filter(|_| ready.is_some()));
                program.must_not_overlap |= ready.as_ref().is_some_and(|(_, compiled)| !compiled.waits);
                let bytes = batch.intermediate_bytes(kernels);
                (batch.launches(intermediate, kernels, limits), bytes, ready.map(|(_, compiled)| compiled))
            }
        };
        for launch in launches {
            let function = match compiled.as_ref().and_then(|compiled| compiled.kernels.get(launch.kernel)) {
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
        let overlap = self.prebuilt.images.can_overlap() && !program.must_not_overlap;
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
