// SPDX-License-Identifier: MPL-2.0
//! The jobs of the last frames as they are executed: what crosses the bus, and the programs for the addresses of the last frames.

use std::slice;
use std::sync::Arc;

use crate::cuda::driver::{DeviceMemory, Workspace};
use crate::cuda::error::CudaError;
use crate::cuda::kernels::lower::DevicePlanes;
use crate::cuda::program::{Program, Target};
use crate::cuda::selector::KernelSelector;
use crate::cuda::transfer::schedule::{Division, Schedule};
use crate::filter::cover::Softness;
use crate::filter::parts::Job;
use crate::recent::Recent;

/// As many as the engine keeps: regions of moving objects take turns with few strengths.
const JOBS: usize = 16;
/// Programs of a job that are kept: pools of nine and of seven buffers make as many pairs of a source and a destination.
const PROGRAMS: usize = 64;
/// Steps of all programs of a job that are kept, of 4 KB each. Covers, which have the most, have up to 44.
const MOST_STEPS: usize = 2048;

/// The jobs of the last frames, and into what each was divided.
#[derive(Default)]
pub struct PreparedJobs(Recent<(Arc<Job>, Division), PreparedJob>);

impl PreparedJobs {
    /// A job, prepared if it is new.
    pub fn get(&mut self, job: &Arc<Job>, division: Division) -> &mut PreparedJob {
        let make = || {
            let schedule = Arc::new(Schedule::new(job, division));
            ((Arc::clone(job), division), PreparedJob { schedule, programs: Recent::default() })
        };
        self.0.get_or_make(|(of, divided), _| Arc::ptr_eq(of, job) && *divided == division, make, JOBS)
    }
}

/// A job that was prepared.
pub struct PreparedJob {
    /// What crosses the bus, and when.
    pub schedule: Arc<Schedule>,
    programs: Recent<Addresses, Arc<Program>>,
}

/// What a program of a job depends on.
struct Addresses {
    planes: DevicePlanes,
    workspace: u64,
    /// Which specialised kernels were ready, see [`JitCache::generation`](crate::cuda::jit::JitCache::generation).
    jit_generation: u64,
}

impl PreparedJob {
    /// The program for these planes, with workspace that is large enough, which `grow` replaces by so many bytes if it is not.
    /// Requests specialised kernels for frames that keep needing them. The job is the one that was prepared.
    pub fn program(
        &mut self,
        selector: &mut KernelSelector,
        (job, soft): (&Arc<Job>, Option<&Softness>),
        planes: &DevicePlanes,
        workspace: &mut Workspace<DeviceMemory>,
        grow: impl FnOnce(&mut Workspace<DeviceMemory>, usize) -> Result<(), CudaError>,
    ) -> Result<Arc<Program>, CudaError> {
        // Read before kernels are chosen: one that gets ready meanwhile is chosen for the next frame.
        let jit_generation = selector.shared.jit.generation();
        let bands = &self.schedule.bands[..];
        let parts = if bands.is_empty() { slice::from_ref(&job.parts) } else { bands };
        let target = Target { job, soft, parts, planes };
        let mut program_at = |workspace: u64| {
            let is_same = |of: &Addresses, _: &Arc<Program>| {
                of.workspace == workspace && of.jit_generation == jit_generation && of.planes == *planes
            };
            let make = || {
                let addresses = Addresses { planes: planes.clone(), workspace, jit_generation };
                Ok::<_, CudaError>((addresses, Arc::new(Program::new(selector, target, workspace)?)))
            };
            let capacity = |program: &Arc<Program>| PROGRAMS.min(MOST_STEPS / program.step_count().max(1));
            self.programs.get_or_try_make(is_same, make, capacity).cloned()
        };
        let mut program = program_at(workspace.address())?;
        if program.workspace_bytes > workspace.bytes() {
            grow(workspace, program.workspace_capacity())?;
            program = program_at(workspace.address())?;
        }
        // A frame that is only copied says nothing about the kernels of the others, with which it may take turns.
        if program.specialised.is_some()
            && let Some(request) = &mut selector.request
        {
            request.update(program.keys.iter().copied());
        }
        Ok(program)
    }
}
