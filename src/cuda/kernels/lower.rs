// SPDX-License-Identifier: MPL-2.0
//! Lowers a plan for planes in device memory: the operations of each stage become launches. Blurs, decimations and interpolations
//! become entries first, because entries share launches.

use super::abi::{KernelSet, PixelFamily, TENSOR_RADIUS_MAX};
use super::alpha;
use super::axis;
use super::bytes::{self, ByteWrite};
use super::entry::{self, Entry, EntryKernels, EntryPlane};
use super::images::Kernel;
use super::launch::Launch;
use super::mosaic::{self, MosaicCells};
use super::soft::{self, MixPlanes, Nodes, SoftStep};
use super::temporaries::{TemporaryMemory, is_composed, plane_of, plane_uses};
use super::tensor_direct::DirectKernel;
use super::tensor_wide;
use crate::cuda::driver::device::DeviceLimits;
use crate::filter::byte_rect::ByteRect;
use crate::filter::cover::Softness;
use crate::filter::inpainting::{CellPyramid, NODES};
use crate::filter::mosaic::CellGrid;
use crate::filter::operation::{
    AlphaSource, Buffer, Cells, CoverSamples, Layer, Mix, Operation, Resampling, View, WeightsOf,
};
use crate::filter::parts::{Job, Parts};
use crate::filter::picture::FieldRect;
use crate::filter::plan::Plan;
use crate::filter::plane::DevicePlane;
use crate::filter::regions::Rect;

/// The planes of a frame in device memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DevicePlanes {
    /// The planes that are read.
    pub sources: Vec<DevicePlane>,
    /// The planes that are written.
    pub destinations: Vec<DevicePlane>,
}

impl DevicePlanes {
    /// This many planes without memory, for results that do not depend on addresses.
    pub fn nowhere(count: usize) -> Self {
        let planes = vec![DevicePlane::default(); count];
        Self { sources: planes.clone(), destinations: planes }
    }
}

/// A copy of rows from one plane to another.
#[derive(Debug, Clone, Copy)]
pub struct PlaneCopy {
    /// The source, from the first row that is read.
    pub source: DevicePlane,
    /// The destination, from the first row that is written.
    pub destination: DevicePlane,
    /// The number of bytes in a row.
    pub row_bytes: usize,
    /// The number of rows.
    pub rows: usize,
}

/// A copy by the driver, or a launch with its function. `F` is at first the choice of the function, and later the function
/// itself. Launches are boxed, because each has several kilobytes.
#[derive(Debug)]
#[expect(missing_docs, reason = "the lines above name them")]
pub enum Step<F> {
    Copy(PlaneCopy),
    Launch(F, Box<Launch>),
}

/// The launches of a plan for a frame, for a band of it or for a cover. They are executed in order on one stream. Each has the
/// kernel that NVRTC compiles for it, or `None` for the prebuilt one.
#[derive(Debug, Default)]
pub struct Lowered {
    /// All steps except those that write the frame of a cover.
    pub reads: Vec<Step<Option<DirectKernel>>>,
    /// The steps that write the frame of a cover.
    pub writes: Vec<Step<Option<DirectKernel>>>,
    /// The device memory that is needed between launches, in bytes. It follows the temporaries.
    pub intermediate_bytes: usize,
}

impl Lowered {
    /// The kernels of all launches. A kernel can occur several times.
    pub fn kernels(&self) -> impl Iterator<Item = Kernel> {
        self.reads.iter().chain(&self.writes).filter_map(|step| match step {
            Step::Launch(_, launch) => Some(launch.kernel),
            Step::Copy(_) => None,
        })
    }
}

/// Lowers a plan for planes at given addresses.
pub struct Lowering<'a> {
    plan: &'a Plan,
    soft: Option<&'a Softness>,
    kernel_set: KernelSet,
    memory: TemporaryMemory,
    /// For each temporary, the view of the frame that is used in its place, if there is one.
    in_frame: Vec<Option<InFrame>>,
    /// For each temporary, whether the tensor-core kernels of the wide form process it.
    tensor: Vec<bool>,
    /// For soft covers, the grids of the fields that are mixed.
    grids: Vec<CellGrid>,
}

impl<'a> Lowering<'a> {
    /// Prepares the lowering of a job. `soft` has the weights of a soft cover; the result does not depend on their values.
    pub fn new(job: &'a Job, soft: Option<&'a Softness>, kernel_set: KernelSet) -> Self {
        let plan = &*job.plan;
        let count = plan.temporaries().len();
        let (in_frame, tensor) = match kernel_set {
            KernelSet::CudaCores => (vec![None; count], vec![false; count]),
            KernelSet::TensorCores => on_tensor_cores(plan),
        };
        let memory = {
            let in_frame: Vec<bool> = in_frame.iter().map(Option::is_some).collect();
            TemporaryMemory::new(job, soft, &in_frame)
        };
        let grids = soft.map_or_else(Vec::new, |soft| CellGrid::whole(plan.layouts(), NODES * soft.weights.cell()));
        Self { plan, soft, kernel_set, memory, in_frame, tensor, grids }
    }

    /// The device memory for the temporaries, in bytes.
    pub fn bytes(&self) -> usize {
        self.memory.bytes
    }

    /// Lowers these parts of the job, which can be all of it or some rows, for these planes. The temporaries are at address
    /// `workspace`, which is aligned to [`WORKSPACE_ALIGNMENT`](super::abi::WORKSPACE_ALIGNMENT). The workspace begins with the
    /// nodes of the weights; those of the cover come first. All rectangles consist of whole [tiles](super::tiles::TILES).
    /// `choose` returns the tensor-core kernel that blurs a batch in the direct form, or `None` if CUDA cores blur its rows and
    /// then its columns.
    pub fn lower(
        &self,
        parts: &Parts,
        planes: &DevicePlanes,
        workspace: u64,
        limits: DeviceLimits,
        choose: &mut dyn FnMut(&[Entry<'a>]) -> Option<DirectKernel>,
    ) -> Lowered {
        let buffers = Buffers { lowering: self, planes, workspace };
        let operations = self.plan.operations().iter().zip(parts).filter(|(_, rects)| !rects.is_empty());
        let (writes, mut others): (Vec<PartOf>, Vec<PartOf>) =
            operations.map(|(operation, rects)| (operation, &rects[..])).partition(|part| writes_frame(part.0));
        others.sort_by_key(|(operation, _)| self.turn(operation));
        let mut lowered = Lowered::default();
        let is_one_stage =
            |one: &PartOf, other: &PartOf| one.0.is_independent_of(other.0) && self.turn(one.0) == self.turn(other.0);
        for stage in others.chunk_by(is_one_stage) {
            buffers.copies(stage, &mut lowered.reads);
            let (launches, bytes) = buffers.pixels(stage, limits, choose);
            lowered.reads.extend(launches);
            lowered.reads.extend(buffers.covers(stage));
            lowered.intermediate_bytes = lowered.intermediate_bytes.max(bytes);
        }
        lowered.reads.extend(buffers.composed(&writes));
        lowered.writes.extend(buffers.covers(&writes));
        lowered
    }

    /// The number of the Gaussian of a cover that an operation belongs to, from 1 on. 0 if it belongs to none or to several.
    fn turn(&self, operation: &Operation) -> usize {
        let is_of = |view: View| match view.buffer {
            Buffer::Temporary(index) => self.plan.turns().iter().position(|turn| turn.contains(&index)),
            _ => None,
        };
        is_of(operation.output()).map_or(0, |turn| turn + 1)
    }
}

/// An operation, and the rectangles of its output that are computed.
type PartOf<'a, 'p> = (&'a Operation, &'p [Rect]);

/// Whether an operation writes a cover to the frame.
fn writes_frame(operation: &Operation) -> bool {
    let View { buffer, .. } = operation.output();
    matches!((operation, buffer), (Operation::Write { .. }, Buffer::Destination(_)))
}

/// A view of the frame that is used in place of a temporary with premultiplied colour. Tensor-core kernels for pixels of four
/// bytes premultiply when they load pixels, and unpremultiply when they store them.
#[derive(Debug, Clone, Copy)]
struct InFrame {
    view: View,
    /// The channel that is alpha.
    alpha: u8,
}

/// Returns the views of the frame that are used in place of temporaries, and the temporaries that the tensor-core kernels of the
/// wide form process. These kernels process all operations on such a temporary, and all other temporaries of these operations.
fn on_tensor_cores(plan: &Plan) -> (Vec<Option<InFrame>>, Vec<bool>) {
    let mut in_frame = temporaries_in_frame(plan);
    // The planes of a cover are stored like planes of a frame.
    let is_plane: Vec<bool> = plane_uses(plan).iter().map(Option::is_some).collect();
    let mut tensor: Vec<bool> =
        in_frame.iter().zip(&is_plane).map(|(of, is_plane)| of.is_none() && !is_plane).collect();
    loop {
        let before = tensor.clone();
        for operation in plan.operations() {
            let views = [operation.source(), operation.output()];
            let indices = views.iter().filter_map(|view| match view.buffer {
                Buffer::Temporary(index) => Some(index),
                _ => None,
            });
            let own = indices.filter(|index| in_frame[*index].is_none() && !is_plane[*index]);
            if !tensor_wide::supports(operation) || own.clone().any(|index| !tensor[index]) {
                own.for_each(|index| tensor[index] = false);
            }
        }
        if tensor == before {
            break;
        }
    }
    // If other kernels process an operation, they need the premultiplied colour in a temporary.
    for operation in plan.operations() {
        let is_possible = |small: &View| matches!(small.buffer, Buffer::Temporary(index) if tensor[index]);
        let (views, is_possible) = match operation {
            Operation::Blur { source, destination, taps } => {
                let radius = PixelFamily::Packed1010102.largest_radius(taps);
                ([source, destination], radius.is_some_and(|radius| radius <= TENSOR_RADIUS_MAX))
            }
            Operation::Decimate(Resampling { source, destination, .. }) => ([source; 2], is_possible(destination)),
            Operation::Interpolate(Resampling { source, destination, .. }) => ([destination; 2], is_possible(source)),
            _ => continue,
        };
        for view in views.into_iter().filter(|_| !is_possible) {
            if let Buffer::Temporary(index) = view.buffer {
                in_frame[index] = None;
            }
        }
    }
    (in_frame, tensor)
}

/// The views of the frame that can be used in place of temporaries: pixels of four bytes with alpha. There are none if a channel
/// keeps its value.
fn temporaries_in_frame(plan: &Plan) -> Vec<Option<InFrame>> {
    let mut in_frame = vec![None; plan.temporaries().len()];
    for operation in plan.operations() {
        let (of_frame, alpha, premultiplied) = match operation {
            Operation::Premultiply { source, alpha: AlphaSource::Channel(alpha), premultiplied } => {
                (source, alpha, premultiplied)
            }
            Operation::Unpremultiply { premultiplied, alpha: AlphaSource::Channel(alpha), destination, .. } => {
                (destination, alpha, premultiplied)
            }
            _ => continue,
        };
        if let (Some(PixelFamily::U8C4), Buffer::Temporary(index)) =
            (PixelFamily::of(&of_frame.field.layout), premultiplied.buffer)
        {
            in_frame[index] = Some(InFrame { view: *of_frame, alpha: *alpha });
        }
    }
    let keeps = |operation: &Operation| matches!(operation, Operation::Unpremultiply { passthrough_mask: 1.., .. });
    if plan.operations().iter().any(keeps) { vec![None; in_frame.len()] } else { in_frame }
}

struct Buffers<'a, 'p> {
    lowering: &'p Lowering<'a>,
    planes: &'p DevicePlanes,
    /// The address of the workspace.
    workspace: u64,
}

/// A launch of a prebuilt kernel.
fn prebuilt(launch: Launch) -> Step<Option<DirectKernel>> {
    Step::Launch(None, Box::new(launch))
}

impl<'a> Buffers<'a, '_> {
    /// The view that is read or written in place of `view`, and the channel that its colour is multiplied by.
    fn stored(&self, view: &View) -> (View, Option<u8>) {
        match view.buffer {
            Buffer::Temporary(index) => {
                self.lowering.in_frame[index].map_or((*view, None), |of| (of.view, Some(of.alpha)))
            }
            _ => (*view, None),
        }
    }

    /// The plane at an offset in the workspace.
    fn within(&self, plane: &DevicePlane) -> DevicePlane {
        DevicePlane { address: self.workspace.wrapping_add(plane.address), ..*plane }
    }

    /// The rows of a view, as a plane.
    fn plane(&self, view: &View) -> DevicePlane {
        let plane = match view.buffer {
            Buffer::Source(index) => self.planes.sources[index],
            Buffer::Destination(index) => self.planes.destinations[index],
            Buffer::Temporary(index) => self.within(&self.lowering.memory.planes[index]),
        };
        view.field.rows_of(&plane)
    }

    /// The nodes of these weights, in the workspace.
    fn nodes(&self, of: WeightsOf) -> Nodes {
        let soft = self.lowering.soft.expect("a plan with weights is lowered with them");
        match of {
            WeightsOf::Cover => Nodes::new(&soft.weights, self.workspace),
            WeightsOf::Excluded => {
                let excluded = soft.excluded.as_ref().expect("a plan that leaves out samples has weights of them");
                Nodes::new(excluded, self.workspace + soft.weights.nodes().2.len() as u64)
            }
        }
    }

    /// Adds the copies of a stage to `steps`.
    fn copies(&self, stage: &[PartOf], steps: &mut Vec<Step<Option<DirectKernel>>>) {
        for (operation, rects) in stage {
            let Operation::Copy { source, destination } = operation else { continue };
            let layout = &source.field.layout;
            steps.extend(rects.iter().map(|rect| {
                let within = |view: &View| view.field.layout.within(&self.plane(view), *rect);
                Step::Copy(PlaneCopy {
                    source: within(source),
                    destination: within(destination),
                    row_bytes: layout.columns(*rect).len() * layout.pixel_bytes(),
                    rows: rect.height() as usize,
                })
            }));
        }
    }

    /// The launches for the blurs, decimations, interpolations and operations on alpha of a stage, and the device memory between
    /// them in bytes.
    fn pixels(
        &self,
        stage: &[PartOf<'a, '_>],
        limits: DeviceLimits,
        choose: &mut dyn FnMut(&[Entry<'a>]) -> Option<DirectKernel>,
    ) -> (Vec<Step<Option<DirectKernel>>>, usize) {
        let mut steps = Vec::new();
        let (mut wide, mut levels, mut blurs) = (Vec::new(), Vec::new(), Vec::new());
        for (operation, rect) in
            stage.iter().flat_map(|(operation, rects)| rects.iter().map(|rect| (*operation, *rect)))
        {
            match operation {
                Operation::Blur { .. } | Operation::Decimate(_) | Operation::Interpolate(_) => {
                    let entry = self.entry(operation, rect);
                    match (operation, entry.kernels) {
                        (_, EntryKernels::WideOnTensorCores) => wide.push(entry),
                        (Operation::Blur { .. }, _) => blurs.push(entry),
                        _ => levels.push(entry),
                    }
                }
                // The kernels that read or write the frame do this themselves.
                Operation::Premultiply { premultiplied, .. } | Operation::Unpremultiply { premultiplied, .. }
                    if self.stored(premultiplied).1.is_some() => {}
                Operation::Premultiply { .. } | Operation::Unpremultiply { .. } | Operation::RestoreChannels { .. } => {
                    steps.push(prebuilt(alpha::launch(operation, rect, |view| self.plane(view))));
                }
                Operation::Copy { .. }
                | Operation::CellMeans { .. }
                | Operation::Spread(_)
                | Operation::Write { .. } => {}
            }
        }
        // These launches come before those of the levels: they write 0 into the luma of packed 4:2:2 together with the chroma,
        // and in fields the luma may be written by levels on CUDA cores.
        steps.extend(tensor_wide::batches(wide).iter().map(|batch| prebuilt(tensor_wide::launch(batch, limits))));
        // Batches use the memory between launches one after the other, so the largest size counts.
        let (mut bytes, intermediate) = (0, self.workspace + self.lowering.bytes() as u64);
        for batch in axis::level_batches(levels) {
            bytes = bytes.max(axis::level_bytes(&batch));
            steps.extend(axis::level_launches(&batch, intermediate).into_iter().map(prebuilt));
        }
        for batch in entry::blur_batches(blurs) {
            if let Some(kernel) = choose(&batch) {
                let compiled = Some(kernel).filter(DirectKernel::is_compiled);
                steps.push(Step::Launch(compiled, Box::new(kernel.launch(&batch, limits))));
            } else {
                bytes = bytes.max(axis::direct_bytes(&batch));
                steps.extend(axis::direct_launches(&batch, intermediate).map(prebuilt));
            }
        }
        (steps, bytes)
    }

    /// The entry of a blur, a decimation or an interpolation.
    fn entry(&self, operation: &'a Operation, rect: Rect) -> Entry<'a> {
        let [(source, of_source), (output, of_output)] =
            [operation.source(), operation.output()].map(|view| self.stored(&view));
        let is_wide = [source, output].iter().any(|view| match view.buffer {
            Buffer::Temporary(index) => self.lowering.tensor[index],
            _ => false,
        });
        let kernels = match self.lowering.kernel_set {
            _ if is_wide => EntryKernels::WideOnTensorCores,
            KernelSet::TensorCores => EntryKernels::Any,
            KernelSet::CudaCores => EntryKernels::CudaCores,
        };
        let transparent = match output.buffer {
            Buffer::Destination(index) if of_output.is_some() => output.field.rows_of(&self.planes.sources[index]),
            _ => DevicePlane::default(),
        };
        let plane = |view: &View| EntryPlane { layout: view.field.layout, memory: self.plane(view) };
        let (source, destination) = (plane(&source), plane(&output));
        Entry { operation, rect, source, destination, kernels, alpha: of_source.or(of_output), transparent }
    }

    /// The launches of a stage for cells, estimates and writes of a cover.
    fn covers(&self, stage: &[PartOf<'a, '_>]) -> Vec<Step<Option<DirectKernel>>> {
        let (mut sums, mut writes, mut soft) = (Vec::new(), Writes::default(), Vec::new());
        for (operation, rects) in stage {
            match operation {
                Operation::CellMeans { source, cells, excluded: None } => {
                    sums.extend(mosaic::cells(&cells.grids, self.plane(&cells.view).address, &self.plane(source)));
                }
                Operation::CellMeans { source, cells, excluded: Some(_) } => {
                    let (nodes, memory) = (self.nodes(WeightsOf::Excluded), self.plane(&cells.view).address);
                    let source = self.plane(source);
                    soft.extend(cells.grids.iter().map(|grid| soft::cells(grid, nodes, source, memory)));
                }
                Operation::Spread(cells) => {
                    let (nodes, memory) = (self.nodes(WeightsOf::Excluded), self.plane(&cells.view).address);
                    soft.extend(cells.grids.iter().map(|grid| soft::spread(grid, nodes, memory)));
                }
                Operation::Write { layers, cells, destination, mix: None } => {
                    self.write(layers, cells.as_ref(), destination, &self.plane(destination), &mut writes);
                }
                Operation::Write { layers, cells, destination, mix: Some(mix) } => {
                    soft.extend(self.mix(layers, cells.as_ref(), destination, mix, rects));
                }
                _ => {}
            }
        }
        let sums = mosaic::launches(Kernel::MOSAIC_SUMS, &sums);
        sums.into_iter().chain(writes.launches()).chain(soft::launches(&soft)).map(prebuilt).collect()
    }

    /// The mixes of a cover with rectangles of a view.
    fn mix(
        &self,
        layers: &[Layer],
        cells: Option<&Cells>,
        destination: &View,
        mix: &Mix,
        rects: &[Rect],
    ) -> Vec<SoftStep> {
        let planes = MixPlanes {
            beside: self.plane(&mix.beside),
            destination: self.plane(destination),
            cover: self.mixed_in(destination, layers),
        };
        let nodes = self.nodes(mix.weights);
        if let ([Layer { samples: CoverSamples::Estimates, .. }], Some(cells)) = (layers, cells) {
            let memory = self.plane(&cells.view).address;
            let of = |pyramid: &CellPyramid| {
                soft::mix(&pyramid.grid, nodes, &planes, soft::cells_of(pyramid, memory), rects, 0)
            };
            return cells.grids.iter().flat_map(of).collect();
        }
        let (plane, mask) = (plane_of(destination), mix.passthrough_mask);
        let is_of_field = |grid: &&CellGrid| grid.plane == plane && grid.field.place() == destination.field.place();
        let grids = self.lowering.grids.iter().filter(is_of_field);
        grids.flat_map(|grid| soft::mix(grid, nodes, &planes, 0, rects, mask)).collect()
    }

    /// The plane that is mixed into a view. It has no memory if estimates are mixed in.
    fn mixed_in(&self, destination: &View, layers: &[Layer]) -> DevicePlane {
        match layers {
            [Layer { samples: CoverSamples::Plane(view), .. }] => self.plane(view),
            [Layer { samples: CoverSamples::Estimates, .. }] => DevicePlane::default(),
            _ => {
                let plane = self.lowering.memory.composed[plane_of(destination)];
                destination.field.rows_of(&self.within(&plane.expect("layers are put together first")))
            }
        }
    }

    /// The launches that compose the layers of soft covers in one plane. A cover that is a single plane needs none.
    fn composed(&self, stage: &[PartOf<'a, '_>]) -> Vec<Step<Option<DirectKernel>>> {
        let mut writes = Writes::default();
        for (operation, _) in stage.iter().filter(|(operation, _)| is_composed(operation)) {
            if let Operation::Write { layers, cells, destination, .. } = operation {
                let to = self.mixed_in(destination, layers);
                self.write(layers, cells.as_ref(), destination, &to, &mut writes);
            }
        }
        writes.launches().map(prebuilt).collect()
    }

    /// Adds the writes of all layers. `rows` is the memory that is written; its rows correspond to the rows of `view`.
    fn write(
        &self,
        layers: &[Layer],
        cells: Option<&'a Cells>,
        view: &View,
        rows: &DevicePlane,
        writes: &mut Writes<'a>,
    ) {
        // Overlaps are found by the bytes of rectangles in the whole plane. The rows of a view are every `step`th row of the
        // plane, from the view's first row on.
        let (plane, field) = (plane_of(view), view.field);
        let whole = |rows: &DevicePlane| DevicePlane {
            address: rows.address.wrapping_sub((rows.pitch / field.step * field.first_row + field.first_byte()) as u64),
            pitch: rows.pitch / field.step,
            ..*rows
        };
        let to = whole(rows);
        let cells = cells.map(|cells| mosaic::cells(&cells.grids, self.plane(&cells.view).address, rows));
        for (rank, Layer { samples, rects }) in layers.iter().enumerate() {
            let bytes = rects.iter().flat_map(|rect| ByteRect::covered(plane, FieldRect { field, rect: *rect }));
            match samples {
                CoverSamples::Plane(view) => {
                    let from = whole(&self.plane(view));
                    writes.bytes.extend(bytes.map(|rect| ByteWrite::copy(rect, rank, &from, &to)));
                }
                CoverSamples::Pattern(pattern) => {
                    writes.bytes.extend(bytes.map(|rect| ByteWrite::fill(rect, rank, *pattern, &to)));
                }
                CoverSamples::Mosaic(of) => {
                    let grids = &cells.as_ref().expect("layers of cells come with them")[of.clone()];
                    writes.colours.extend(grids.iter().map(|cells| (rank, *cells)));
                }
                CoverSamples::Estimates => unreachable!("estimates are mixed"),
            }
        }
    }
}

/// Writes of layers. Where layers overlap, the one with the largest rank is visible.
#[derive(Default)]
struct Writes<'a> {
    colours: Vec<(usize, MosaicCells<'a>)>,
    bytes: Vec<ByteWrite>,
}

impl Writes<'_> {
    fn launches(mut self) -> impl Iterator<Item = Launch> {
        self.colours.sort_by_key(|(rank, _)| *rank);
        let colours: Vec<MosaicCells> = self.colours.into_iter().map(|(_, cells)| cells).collect();
        mosaic::launches(Kernel::MOSAIC_WRITE, &colours).into_iter().chain(bytes::launches(self.bytes))
    }
}
