// SPDX-License-Identifier: MPL-2.0
//! The commands for frames that stay on the device, recorded once for all that need the same.

use std::sync::Arc;

use crate::cuda::driver::Stream;
use crate::cuda::error::CudaError;
use crate::cuda::jit::SpecialisationKey;
use crate::cuda::kernels::record::Recording;
use crate::cuda::kernels::relative::{self, FramePlanes, Origins};
use crate::cuda::select::{KernelSelector, SelectedCommands};
use crate::filter::plan::Plan;

/// What the commands depend on, but for addresses, which are set for every frame. Everything else that they depend on is an
/// engine's for good: the device, the prebuilt kernels, and how it chooses among them.
struct Basis {
    /// The operations with their layouts and taps.
    plan: Arc<Plan>,
    /// Of the source's planes, then of the destination's.
    pitches: Vec<usize>,
    /// Which specialised kernels were ready, see [`KernelSelector::jit_generation`].
    jit_generation: u64,
}

/// The commands for a frame.
pub struct RecordedFrame {
    basis: Basis,
    /// The specialised kernels that would be the fastest.
    keys: Vec<SpecialisationKey>,
    workspace_bytes: usize,
    commands: SelectedCommands,
    /// The relative addresses that the commands were recorded with, in the order of the commands.
    relative: Vec<u64>,
    origins: Origins,
}

fn pitches(planes: FramePlanes) -> impl Iterator<Item = usize> {
    planes.into_iter().flatten().map(|plane| plane.pitch)
}

impl RecordedFrame {
    /// The commands in `slot` if they are for frames with this plan and these pitches, else new ones. Requests specialised
    /// kernels for frames that keep needing them.
    pub fn get<'a>(
        slot: &'a mut Option<Self>,
        selector: &mut KernelSelector,
        plan: &Arc<Plan>,
        planes: FramePlanes,
    ) -> Result<&'a mut Self, CudaError> {
        // Read before kernels are selected: one that gets ready meanwhile is selected for the next frame.
        let jit_generation = selector.jit_generation();
        let serves = |Basis { plan: made_for, pitches: of, jit_generation: made_at }: &Basis| {
            Arc::ptr_eq(made_for, plan) && pitches(planes).eq(of.iter().copied()) && *made_at == jit_generation
        };
        let recorded = match slot.take() {
            Some(recorded) if serves(&recorded.basis) => recorded,
            _ => {
                let basis = Basis { plan: Arc::clone(plan), pitches: pitches(planes).collect(), jit_generation };
                Self::new(basis, selector, planes)?
            }
        };
        selector.request(&recorded.keys);
        Ok(slot.insert(recorded))
    }

    fn new(basis: Basis, selector: &KernelSelector, planes: FramePlanes) -> Result<Self, CudaError> {
        let (planes, workspace) = (relative::planes(planes), relative::WORKSPACE);
        let recording = [Recording::new(&basis.plan, &planes, workspace, selector.kernel_set(), None)];
        selector.load_for(&recording)?;
        let keys = selector.keys(&recording);
        let [recording] = recording;
        let workspace_bytes = selector.workspace_bytes(&recording);
        let mut commands = selector.select_commands(&recording, workspace)?;
        let mut relative = Vec::new();
        commands.for_each_address(&mut |address| relative.push(*address));
        Ok(Self { keys, workspace_bytes, commands, relative, origins: Origins::default(), basis })
    }

    /// Device memory that a frame needs as workspace, in bytes.
    pub fn workspace_bytes(&self) -> usize {
        self.workspace_bytes
    }

    /// Enqueues the commands for a frame. Returns whether specialised kernels do all of its blurs.
    ///
    /// # Safety
    /// The device's context is current. The planes are valid for the plan and have the pitches that [`RecordedFrame::get`] got.
    /// They, and [`RecordedFrame::workspace_bytes`] from the workspace address on, live and are accessed by nobody else until
    /// the stream has done the work.
    pub unsafe fn enqueue(
        &mut self,
        selector: &KernelSelector,
        stream: &Stream,
        planes: FramePlanes,
        workspace: u64,
    ) -> Result<bool, CudaError> {
        let Self { commands, relative, origins, .. } = self;
        origins.set(planes, workspace);
        let mut relative = relative.iter();
        commands.for_each_address(&mut |address| {
            if let Some(relative) = relative.next() {
                *address = origins.absolute(*relative);
            }
        });
        // SAFETY: every address in the commands is now one in these planes and this workspace, for which they were recorded.
        unsafe { selector.enqueue_commands(stream, commands) }
    }
}
