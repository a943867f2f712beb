// SPDX-License-Identifier: MPL-2.0
//! Prepared jobs: the jobs of the last frames, each with its schedule and with the programs for the addresses of the last frames.

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

/// The number of prepared jobs, equal to the number of jobs that the engine keeps. Moving regions alternate between few
/// strengths.
const JOBS: usize = 16;
/// The largest number of programs of a job. Pools of nine and of seven buffers make 63 pairs of a source and a destination.
const PROGRAMS: usize = 64;
/// The largest number of steps in all programs of a job. A step has 4 KB. Programs of covers have the most steps, up to 44.
const MOST_STEPS: usize = 2048;

/// The jobs of the last frames, by job and division.
#[derive(Default)]
pub struct PreparedJobs(Recent<(Arc<Job>, Division), PreparedJob>);

impl PreparedJobs {
    /// Returns a prepared job. Prepares it if it is new.
    pub fn get(&mut self, job: &Arc<Job>, division: Division) -> &mut PreparedJob {
        let make = || {
            let schedule = Arc::new(Schedule::new(job, division));
            ((Arc::clone(job), division), PreparedJob { schedule, programs: Recent::default() })
        };
        self.0.get_or_make(|(of, divided), _| Arc::ptr_eq(of, job) && *divided == division, make, JOBS)
    }
}

/// A prepared job.
pub struct PreparedJob {
    /// The schedule of what crosses the bus.
    pub schedule: Arc<Schedule>,
    programs: Recent<Addresses, Arc<Program>>,
}

/// Everything that a program of a job depends on.
struct Addresses {
    planes: DevicePlanes,
    workspace: u64,
    /// The generation of the specialised kernels, see [`JitCache::generation`](crate::cuda::jit::JitCache::generation).
    jit_generation: u64,
}

impl PreparedJob {
    /// Returns the program for these planes. If the workspace is too small, `grow` replaces it by one of the given number of
    /// bytes. `job` is the prepared job. Requests specialised kernels if several frames in a row need the same ones.
    pub fn program(
        &mut self,
        selector: &mut KernelSelector,
        (job, soft): (&Arc<Job>, Option<&Softness>),
        planes: &DevicePlanes,
        workspace: &mut Workspace<DeviceMemory>,
        grow: impl FnOnce(&mut Workspace<DeviceMemory>, usize) -> Result<(), CudaError>,
    ) -> Result<Arc<Program>, CudaError> {
        // Read before kernels are chosen. A kernel that gets ready meanwhile is used from the next frame on.
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
        // A frame that is only copied must not cancel the requests of blurred frames, with which it may alternate.
        if program.specialised.is_some()
            && let Some(request) = &mut selector.request
        {
            request.update(program.keys.iter().copied());
        }
        Ok(program)
    }
}
