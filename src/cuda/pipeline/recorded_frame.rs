// SPDX-License-Identifier: MPL-2.0
//! The commands for frames, recorded once for all that need the same.

use std::sync::Arc;

use crate::cuda::driver::Stream;
use crate::cuda::error::CudaError;
use crate::cuda::jit::SpecialisationKey;
use crate::cuda::kernels::abi::WORKSPACE_ALIGNMENT;
use crate::cuda::kernels::cover;
use crate::cuda::kernels::record::{DevicePlanes, Recording};
use crate::cuda::kernels::region_blur::{RegionBlur, RegionBlurPlan};
use crate::cuda::kernels::regions::{RegionOutputs, RegionTransfers};
use crate::cuda::kernels::relative::{self, BaseAddresses, FramePlanes, WORKSPACE};
use crate::cuda::select::{KernelSelector, ResolvedCommands, Selected};
use crate::cuda::transfer::bands::{self, Band, Order};
use crate::filter::parts::Parts;
use crate::filter::plan::Plan;
use crate::filter::plane::DevicePlane;
use crate::process::{self, Level};

/// What is done with frames.
#[derive(Clone)]
enum Work {
    /// The plan of a whole frame.
    Plan(Arc<Plan>),
    /// Blurs of regions.
    Regions(Arc<RegionBlurPlan>),
}

impl Work {
    fn is(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Plan(one), Self::Plan(other)) => Arc::ptr_eq(one, other),
            (Self::Regions(one), Self::Regions(other)) => Arc::ptr_eq(one, other),
            _ => false,
        }
    }
}

/// What the commands depend on, but for addresses, which are set for every frame. Everything else that they depend on is an
/// engine's for good: the device, the prebuilt kernels, and how it chooses among them.
struct RecordingKey {
    /// The operations with their layouts and taps, and the rectangles.
    work: Work,
    /// Of the source's planes, then of the destination's.
    pitches: Vec<usize>,
    /// Which specialised kernels were ready, see [`KernelSelector::jit_generation`].
    jit_generation: u64,
}

/// Commands with relative addresses, and what they need.
#[derive(Default)]
struct Recorded {
    /// The specialised kernels that would be the fastest.
    keys: Vec<SpecialisationKey>,
    /// Whether specialised kernels do all blurs; `None` if there are none.
    specialised: Option<bool>,
    workspace_bytes: usize,
    bands: Arc<[Band]>,
    /// Of every band; or of every step of a cover.
    commands: Vec<ResolvedCommands>,
}

/// The commands for a frame.
pub struct RecordedFrame {
    key: RecordingKey,
    recorded: Recorded,
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
    pub fn of_plan<'a>(
        slot: &'a mut Option<Self>,
        selector: &mut KernelSelector,
        plan: &Arc<Plan>,
        planes: FramePlanes,
        bands: Option<usize>,
    ) -> Result<&'a mut Self, CudaError> {
        Self::get(slot, selector, Work::Plan(Arc::clone(plan)), planes, |selector, planes| {
            record_plan(selector, plan, planes, bands)
        })
    }

    /// The same for blurred regions: commands 0 are the blurs, commands 1 copy what is covered into the planes of the destination.
    pub fn of_regions<'a>(
        slot: &'a mut Option<Self>,
        selector: &mut KernelSelector,
        regions: &Arc<RegionBlurPlan>,
        planes: FramePlanes,
    ) -> Result<&'a mut Self, CudaError> {
        Self::get(slot, selector, Work::Regions(Arc::clone(regions)), planes, |selector, planes| {
            let (mut recorded, outputs) = record_regions(selector, regions, &planes.sources, 0)?;
            let writes = cover::copies(&outputs.blurred_rects(regions), &planes.destinations);
            recorded.commands.push(selector.select_launches(writes)?);
            Ok(recorded)
        })
    }

    /// The same for frames in host memory. The source's planes are a picture in device memory; the destination's plane is a block
    /// of memory that the device writes. Commands 0 copy what was uploaded, packed, from the beginning of the workspace into the
    /// picture, commands 1 are the blurs, and commands 2 write what is covered, packed.
    pub fn of_host_regions<'a>(
        slot: &'a mut Option<Self>,
        selector: &mut KernelSelector,
        regions: &Arc<RegionBlurPlan>,
        planes: FramePlanes,
        transfers: &RegionTransfers,
    ) -> Result<&'a mut Self, CudaError> {
        Self::get(slot, selector, Work::Regions(Arc::clone(regions)), planes, |selector, planes| {
            let packed = transfers.uploads.block_bytes.next_multiple_of(WORKSPACE_ALIGNMENT);
            let (mut recorded, outputs) = record_regions(selector, regions, &planes.sources, packed)?;
            let unpack = cover::unpack(&transfers.uploads, WORKSPACE, &planes.sources);
            recorded.commands.insert(0, selector.select_launches(unpack)?);
            let block = planes.destinations[0].address;
            let pack = cover::pack(&outputs.blurred_rects(regions), &transfers.downloads, block);
            recorded.commands.push(selector.select_launches(pack)?);
            Ok(recorded)
        })
    }

    fn get<'a>(
        slot: &'a mut Option<Self>,
        selector: &mut KernelSelector,
        work: Work,
        planes: FramePlanes,
        record: impl FnOnce(&KernelSelector, &DevicePlanes) -> Result<Recorded, CudaError>,
    ) -> Result<&'a mut Self, CudaError> {
        // Read before kernels are selected: one that gets ready meanwhile is selected for the next frame.
        let jit_generation = selector.jit_generation();
        let serves = |key: &RecordingKey| {
            key.work.is(&work)
                && pitches(planes).eq(key.pitches.iter().copied())
                && key.jit_generation == jit_generation
        };
        let frame = match slot.take() {
            Some(frame) if serves(&frame.key) => frame,
            _ => {
                let mut recorded = record(selector, &relative::planes(planes))?;
                let mut relative = Vec::new();
                for commands in &mut recorded.commands {
                    commands.for_each_address(&mut |address| relative.push(*address));
                }
                let key = RecordingKey { work, pitches: pitches(planes).collect(), jit_generation };
                Self { key, recorded, relative, origins: BaseAddresses::default() }
            }
        };
        // A frame that is only copied says nothing about the kernels of the others, with which it may take turns.
        if frame.recorded.specialised.is_some() {
            selector.request(&frame.recorded.keys);
        }
        Ok(slot.insert(frame))
    }

    /// Device memory that a frame needs as workspace, in bytes.
    pub fn workspace_bytes(&self) -> usize {
        self.recorded.workspace_bytes
    }

    /// Whether specialised kernels do all blurs; `None` if there are none.
    pub fn specialised(&self) -> Option<bool> {
        self.recorded.specialised
    }

    /// The bands of a frame.
    pub fn bands(&self) -> &Arc<[Band]> {
        &self.recorded.bands
    }

    /// Sets the addresses of a frame. Its planes have the pitches of those that the commands were asked for with.
    pub fn set_addresses(&mut self, planes: FramePlanes, workspace: u64) {
        let Self { recorded, relative, origins, .. } = self;
        if !origins.set(planes, workspace) {
            return;
        }
        let mut relative = relative.iter();
        for commands in &mut recorded.commands {
            commands.for_each_address(&mut |address| {
                if let Some(relative) = relative.next() {
                    *address = origins.absolute(*relative);
                }
            });
        }
    }

    /// Enqueues the commands for a band, or for a step of a cover.
    ///
    /// # Safety
    /// The device's context is current. The planes that [`RecordedFrame::set_addresses`] got are valid for the plan. They, and
    /// [`RecordedFrame::workspace_bytes`] from the workspace address on, live and are accessed by nobody else until the stream
    /// has done the work.
    pub unsafe fn enqueue(&self, selector: &KernelSelector, stream: &Stream, index: usize) -> Result<(), CudaError> {
        // SAFETY: every address in the commands is one in these planes and this workspace, for which they were recorded.
        unsafe { selector.enqueue_commands(stream, &self.recorded.commands[index]) }
    }
}

fn record_plan(
    selector: &KernelSelector,
    plan: &Plan,
    planes: &DevicePlanes,
    requested_bands: Option<usize>,
) -> Result<Recorded, CudaError> {
    let select = |parts: &Parts| {
        selector.select(&Recording::new(plan, planes, WORKSPACE, selector.kernel_set(), parts), WORKSPACE)
    };
    let Selected { commands, keys, specialised, workspace_bytes } = select(&plan.whole())?;
    let order = if keys.is_empty() { Order::Sequential } else { Order::Interleaved };
    let bands = bands::bands(plan, requested_bands, order);
    let commands = match &bands[..] {
        [_] => vec![commands],
        bands => {
            let of_band = |band: &Band| Ok(select(&plan.rows(&band.process))?.commands);
            bands.iter().map(of_band).collect::<Result<_, CudaError>>()?
        }
    };
    let recorded = Recorded { keys, specialised, workspace_bytes, bands: bands.into(), commands };
    log(&recorded, &recorded.commands[0], "a band");
    Ok(recorded)
}

/// The blurs of regions of planes at these addresses, as one command list, and where they write. The workspace begins with so many
/// bytes of the caller's; behind them is what the blurs write, then their temporaries, which they use in turn.
fn record_regions(
    selector: &KernelSelector,
    regions: &RegionBlurPlan,
    sources: &[DevicePlane],
    reserved: usize,
) -> Result<(Recorded, RegionOutputs), CudaError> {
    let outputs = RegionOutputs::new(regions, WORKSPACE + reserved as u64);
    let before = reserved + outputs.bytes;
    let temporaries = WORKSPACE + before as u64;
    let mut blurs = ResolvedCommands::default();
    let mut recorded = Recorded { workspace_bytes: before, ..Recorded::default() };
    for (RegionBlur { plan, needs, .. }, destinations) in regions.blurs().iter().zip(&outputs.planes) {
        let planes = DevicePlanes { sources: sources.to_vec(), destinations: destinations.clone() };
        let recording = Recording::new(plan, &planes, temporaries, selector.kernel_set(), &needs.parts);
        let selected = selector.select(&recording, temporaries)?;
        blurs.append(selected.commands);
        recorded.keys.extend(selected.keys);
        let of_all = [recorded.specialised, selected.specialised].into_iter().flatten();
        recorded.specialised = of_all.reduce(|one, other| one && other);
        recorded.workspace_bytes = recorded.workspace_bytes.max(before + selected.workspace_bytes);
    }
    log(&recorded, &blurs, "regions");
    recorded.commands.push(blurs);
    Ok((recorded, outputs))
}

fn log(recorded: &Recorded, commands: &ResolvedCommands, what: &str) {
    let (bands, bytes) = (recorded.bands.len(), recorded.workspace_bytes);
    let kernels: Vec<_> = commands.kernels().collect();
    process::log(Level::Debug, &format!("bands: {bands}, bytes of workspace: {bytes}, kernels of {what}: {kernels:?}"));
}
