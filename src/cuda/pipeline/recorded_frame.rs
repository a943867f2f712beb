// SPDX-License-Identifier: MPL-2.0
//! The commands for frames, band by band, recorded once for all that need the same.

use std::sync::Arc;

use crate::cuda::driver::Stream;
use crate::cuda::error::CudaError;
use crate::cuda::jit::SpecialisationKey;
use crate::cuda::kernels::record::Recording;
use crate::cuda::kernels::relative::{self, BaseAddresses, FramePlanes};
use crate::cuda::select::{KernelSelector, ResolvedCommands};
use crate::cuda::transfer::bands::{self, Band, Order};
use crate::filter::plan::Plan;
use crate::log::Level;
use crate::process;

/// What the commands depend on, but for addresses, which are set for every frame. Everything else that they depend on is an
/// engine's for good: the device, the prebuilt kernels, and how it chooses among them.
struct RecordingKey {
    /// The operations with their layouts and taps.
    plan: Arc<Plan>,
    /// Of the source's planes, then of the destination's.
    pitches: Vec<usize>,
    /// Which specialised kernels were ready, see [`KernelSelector::jit_generation`].
    jit_generation: u64,
}

/// The commands for a frame.
pub struct RecordedFrame {
    key: RecordingKey,
    /// The specialised kernels that would be the fastest.
    keys: Vec<SpecialisationKey>,
    workspace_bytes: usize,
    bands: Arc<[Band]>,
    /// The commands of every band.
    commands: Vec<ResolvedCommands>,
    /// The relative addresses that the commands were recorded with, in the order of the commands.
    relative: Vec<u64>,
    origins: BaseAddresses,
}

fn pitches(planes: FramePlanes) -> impl Iterator<Item = usize> {
    planes.into_iter().flatten().map(|plane| plane.pitch)
}

impl RecordedFrame {
    /// The commands in `slot` if they are for frames with this plan and these pitches, else new ones in so many bands, `None` for
    /// as many as measured fastest; the number is the same at every call with this slot. Requests specialised kernels for frames
    /// that keep needing them.
    pub fn get<'a>(
        slot: &'a mut Option<Self>,
        selector: &mut KernelSelector,
        plan: &Arc<Plan>,
        planes: FramePlanes,
        bands: Option<usize>,
    ) -> Result<&'a mut Self, CudaError> {
        // Read before kernels are selected: one that gets ready meanwhile is selected for the next frame.
        let jit_generation = selector.jit_generation();
        let serves = |key: &RecordingKey| {
            Arc::ptr_eq(&key.plan, plan)
                && pitches(planes).eq(key.pitches.iter().copied())
                && key.jit_generation == jit_generation
        };
        let recorded = match slot.take() {
            Some(recorded) if serves(&recorded.key) => recorded,
            _ => {
                let (plan, pitches) = (Arc::clone(plan), pitches(planes).collect());
                Self::new(RecordingKey { plan, pitches, jit_generation }, selector, planes, bands)?
            }
        };
        selector.request(&recorded.keys);
        Ok(slot.insert(recorded))
    }

    fn new(
        key: RecordingKey,
        selector: &KernelSelector,
        planes: FramePlanes,
        requested_bands: Option<usize>,
    ) -> Result<Self, CudaError> {
        let (planes, workspace) = (relative::planes(planes), relative::WORKSPACE);
        let recording = [Recording::new(&key.plan, &planes, workspace, selector.kernel_set(), None)];
        selector.load_for(&recording)?;
        let keys = selector.keys(&recording);
        let [recording] = recording;
        let workspace_bytes = selector.workspace_bytes(&recording);
        let order = if keys.is_empty() { Order::Sequential } else { Order::Interleaved };
        let bands = bands::bands(&key.plan, requested_bands, order);
        let mut commands = match &bands[..] {
            [_] => vec![selector.select_commands(&recording, workspace)?],
            bands => {
                let select = |band: &Band| {
                    let rows = Some(&band.process[..]);
                    let recording = Recording::new(&key.plan, &planes, workspace, selector.kernel_set(), rows);
                    selector.select_commands(&recording, workspace)
                };
                bands.iter().map(select).collect::<Result<_, _>>()?
            }
        };
        let kernels: Vec<_> = commands.first().into_iter().flat_map(ResolvedCommands::kernels).collect();
        process::log(
            Level::Debug,
            &format!("bands: {}, bytes of workspace: {workspace_bytes}, kernels of a band: {kernels:?}", bands.len()),
        );
        let mut relative = Vec::new();
        for commands in &mut commands {
            commands.for_each_address(&mut |address| relative.push(*address));
        }
        let (bands, origins) = (bands.into(), BaseAddresses::default());
        Ok(Self { keys, workspace_bytes, bands, commands, relative, origins, key })
    }

    /// Device memory that a frame needs as workspace, in bytes.
    pub fn workspace_bytes(&self) -> usize {
        self.workspace_bytes
    }

    /// The bands of a frame.
    pub fn bands(&self) -> &Arc<[Band]> {
        &self.bands
    }

    /// Sets the addresses of a frame. Its planes have the pitches that [`RecordedFrame::get`] got.
    pub fn set_addresses(&mut self, planes: FramePlanes, workspace: u64) {
        let Self { commands, relative, origins, .. } = self;
        if !origins.set(planes, workspace) {
            return;
        }
        let mut relative = relative.iter();
        for commands in commands {
            commands.for_each_address(&mut |address| {
                if let Some(relative) = relative.next() {
                    *address = origins.absolute(*relative);
                }
            });
        }
    }

    /// Enqueues the commands for a band. Returns whether specialised kernels do all of its blurs.
    ///
    /// # Safety
    /// The device's context is current. The planes that [`RecordedFrame::set_addresses`] got are valid for the plan. They, and
    /// [`RecordedFrame::workspace_bytes`] from the workspace address on, live and are accessed by nobody else until the stream
    /// has done the work.
    pub unsafe fn enqueue(&self, selector: &KernelSelector, stream: &Stream, band: usize) -> Result<bool, CudaError> {
        // SAFETY: every address in the commands is one in these planes and this workspace, for which they were recorded.
        unsafe { selector.enqueue_commands(stream, &self.commands[band]) }
    }
}
