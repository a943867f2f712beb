// SPDX-License-Identifier: MPL-2.0
//! Selects the function for each launch of a recording, specialised or prebuilt, and enqueues it.

use std::sync::Arc;

use super::driver::device::Device;
use super::driver::{Function, Stream};
use super::error::CudaError;
use super::jit::{JitRequest, SpecialisationKey, SpecialisedKernels};
use super::kernels::abi::{Kernel, KernelSet, Launch};
use super::kernels::batch::BlurBatch;
use super::kernels::prebuilt::{Image, PrebuiltKernels};
use super::kernels::record::{Command, PlaneCopy, Recording};
use super::kernels::strategy::PassStrategy;
use super::shared_device::SharedDevice;

/// The kernels that an engine may use.
pub struct KernelSelector {
    shared: Arc<SharedDevice>,
    image: Image,
    /// For the prebuilt kernels.
    strategy: PassStrategy,
    /// The specialised kernels that the engine waits for; `None` if it uses the prebuilt kernels only.
    request: Option<JitRequest>,
}

/// Copies and launches, in order, each launch with its function.
#[derive(Default)]
pub struct ResolvedCommands(Vec<SelectedCommand>);

/// What is enqueued for a recording.
pub struct Selected {
    /// With their functions.
    pub commands: ResolvedCommands,
    /// The specialised kernels that would be the fastest.
    pub keys: Vec<SpecialisationKey>,
    /// Whether specialised kernels do all of its blurs; `None` if it has no blur.
    pub specialised: Option<bool>,
    /// Device memory that it needs as workspace, in bytes: its temporaries, then the intermediate of one batch.
    pub workspace_bytes: usize,
}

enum SelectedCommand {
    Copy(PlaneCopy),
    Launch(Function, Box<Launch>),
}

impl ResolvedCommands {
    fn push(&mut self, function: Function, launch: Launch) {
        self.0.push(SelectedCommand::Launch(function, Box::new(launch)));
    }

    /// Adds other commands behind these.
    pub fn append(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// The kernels that are launched, in order.
    pub fn kernels(&self) -> impl Iterator<Item = Kernel> {
        self.0.iter().filter_map(|command| match command {
            SelectedCommand::Copy(_) => None,
            SelectedCommand::Launch(_, launch) => Some(launch.kernel),
        })
    }

    /// Calls `visit` with every address of the commands, in the same order at every call.
    pub fn for_each_address(&mut self, visit: &mut impl FnMut(&mut u64)) {
        for command in &mut self.0 {
            match command {
                SelectedCommand::Copy(copy) => {
                    visit(&mut copy.source.address);
                    visit(&mut copy.destination.address);
                }
                SelectedCommand::Launch(_, launch) => launch.args.for_each_address(visit),
            }
        }
    }
}

impl KernelSelector {
    /// Prebuilt kernels of an image, and specialised ones if the strategy is not chosen by hand.
    pub fn new(shared: Arc<SharedDevice>, image: Image, strategy: PassStrategy) -> Self {
        let request = (strategy == PassStrategy::Best).then(|| JitRequest::new(Arc::clone(shared.jit())));
        Self { shared, image, strategy, request }
    }

    /// Uses the prebuilt kernels only.
    pub fn disable_jit(&mut self) {
        self.request = None;
    }

    /// What the engines on the device share.
    pub fn shared(&self) -> &Arc<SharedDevice> {
        &self.shared
    }

    /// The device.
    pub fn device(&self) -> &Arc<Device> {
        self.shared.device()
    }

    /// The prebuilt kernels.
    pub fn prebuilt(&self) -> Result<&PrebuiltKernels, CudaError> {
        self.shared.prebuilt(self.image)
    }

    /// Which kernels the prebuilt images have.
    pub fn kernel_set(&self) -> KernelSet {
        // Without an image nothing is launched.
        self.prebuilt().map_or(KernelSet::CudaCores, PrebuiltKernels::kernel_set)
    }

    /// The key of the specialised kernel for a batch, if one would be the fastest.
    fn key(&self, batch: &BlurBatch) -> Option<SpecialisationKey> {
        let gains = self.request.is_some() && batch.gains_from_specialisation();
        gains.then(|| SpecialisationKey::of(batch))
    }

    /// Which passes the prebuilt kernels are chosen by.
    pub fn strategy(&self) -> PassStrategy {
        self.strategy
    }

    /// Requests specialised kernels for frames that keep being recorded with these keys. Called for every frame.
    pub fn request(&mut self, keys: &[SpecialisationKey]) {
        if let Some(request) = &mut self.request {
            request.update(keys.iter().copied());
        }
    }

    /// A number that changes when another specialised kernel can be selected.
    pub fn jit_generation(&self) -> u64 {
        self.shared.jit().generation()
    }

    /// The specialised kernels for a batch, if they are ready.
    fn specialised(&self, batch: &BlurBatch) -> Option<SpecialisedKernels> {
        self.key(batch).and_then(|key| self.shared.jit().get(&key))
    }

    /// The commands of a recording that was made with this workspace address, and what they need. Loads the prebuilt kernels that
    /// are not loaded yet: all before the first launch, because loading between launches would keep the device waiting.
    pub fn select(&self, recording: &Recording, workspace: u64) -> Result<Selected, CudaError> {
        let (prebuilt, limits) = (self.prebuilt()?, self.device().limits());
        // Batches use it in turn, behind the temporaries.
        let intermediate = workspace + recording.temporary_bytes() as u64;
        let mut commands = ResolvedCommands::default();
        let (mut keys, mut specialised, mut intermediate_bytes) = (Vec::new(), None, 0);
        for command in recording.commands() {
            match command {
                Command::Copy(copy) => commands.0.push(SelectedCommand::Copy(*copy)),
                Command::Launch(launch) => commands.push(prebuilt.function(launch.kernel)?, *launch),
                Command::Tensor(batch) => {
                    specialised = Some(false);
                    let launch = batch.launch(limits);
                    commands.push(prebuilt.function(launch.kernel)?, launch);
                }
                Command::Level(batch) => {
                    intermediate_bytes = intermediate_bytes.max(batch.intermediate_bytes());
                    for launch in batch.launches(intermediate) {
                        commands.push(prebuilt.function(launch.kernel)?, launch);
                    }
                }
                Command::Blur(batch) => {
                    keys.extend(self.key(batch));
                    let kernels = self.specialised(batch);
                    specialised = Some(specialised != Some(false) && kernels.is_some());
                    intermediate_bytes = intermediate_bytes.max(batch.intermediate_bytes(self.strategy));
                    for launch in batch.launches(intermediate, self.strategy, limits) {
                        let function = match kernels.and_then(|kernels| kernels.get(launch.kernel)) {
                            Some(function) => function,
                            None => prebuilt.function(launch.kernel)?,
                        };
                        commands.push(function, launch);
                    }
                }
            }
        }
        let workspace_bytes = recording.temporary_bytes() + intermediate_bytes;
        Ok(Selected { commands, keys, specialised, workspace_bytes })
    }

    /// Launches of prebuilt kernels.
    pub fn select_launches(&self, launches: Vec<Launch>) -> Result<ResolvedCommands, CudaError> {
        let prebuilt = self.prebuilt()?;
        let mut selected = ResolvedCommands::default();
        for launch in launches {
            selected.push(prebuilt.function(launch.kernel)?, launch);
        }
        Ok(selected)
    }

    /// Enqueues the commands of a recording.
    ///
    /// # Safety
    /// The device's context is current. The planes and the workspace that the addresses of the commands are in live and are
    /// accessed by nobody else until the stream has done the work.
    pub unsafe fn enqueue_commands(&self, stream: &Stream, commands: &ResolvedCommands) -> Result<(), CudaError> {
        for command in &commands.0 {
            // SAFETY: the caller's planes and workspace; each function is that of its launch.
            unsafe {
                match command {
                    SelectedCommand::Copy(copy) => {
                        stream.copy_rows(&copy.source, &copy.destination, copy.row_bytes, copy.rows)?;
                    }
                    SelectedCommand::Launch(function, launch) => self.launch(stream, launch, *function)?,
                }
            }
        }
        Ok(())
    }

    /// # Safety
    /// See [`Launch::enqueue`].
    unsafe fn launch(&self, stream: &Stream, launch: &Launch, function: Function) -> Result<(), CudaError> {
        let (needed, limit) = (launch.grid.shared_bytes, self.device().limits().shared_bytes);
        if needed > limit {
            return Err(CudaError::SharedMemory { needed, limit, id: self.device().id() });
        }
        // SAFETY: `function` was loaded for the kernel of this launch, and its memory lives until it has finished, as the caller
        // promises.
        unsafe { launch.enqueue(function, stream, self.prebuilt()?.can_overlap()) }
    }
}
