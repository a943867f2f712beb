// SPDX-License-Identifier: MPL-2.0
//! Lowers a plan for planes in device memory: each operation becomes entries, and entries of a kind become launches.

use super::abi::{KernelSet, PixelFamily, TENSOR_RADIUS_MAX, TensorPlane};
use super::alpha;
use super::axis::{self, Direction, LevelPlane, PlaneLevel};
use super::batch::{self, PlaneBlur};
use super::byte_rect::ByteRect;
use super::cover::{self, ByteWrite, MosaicCells};
use super::images::Kernel;
use super::launch::Launch;
use super::soft::{self, MixPlanes, Nodes, SoftStep};
use super::strategy::{self, BlurKernels, PassStrategy};
use super::temporaries::{TemporaryMemory, is_composed, plane_of, plane_uses};
use super::tensor_direct::DirectKernel;
use super::tensor_wide::{self, PlaneStep, Step};
use crate::cuda::driver::device::DeviceLimits;
use crate::filter::cover::Softness;
use crate::filter::inpainting::{CellPyramid, NODES};
use crate::filter::mosaic::CellGrid;
use crate::filter::operation::{
    AlphaSource, Buffer, Cells, CoverSamples, Layer, Operation, Resampling, View, WeightsOf,
};
use crate::filter::parts::Parts;
use crate::filter::picture::FieldRect;
use crate::filter::plan::Plan;
use crate::filter::plane::DevicePlane;
use crate::filter::regions::Rect;

/// The planes of a frame in device memory.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DevicePlanes {
    /// Read.
    pub sources: Vec<DevicePlane>,
    /// Written.
    pub destinations: Vec<DevicePlane>,
}

impl DevicePlanes {
    /// So many planes without memory, for what does not depend on it.
    pub fn nowhere(count: usize) -> Self {
        let planes = vec![DevicePlane::default(); count];
        Self { sources: planes.clone(), destinations: planes }
    }
}

/// Rows to copy from one plane to another.
#[derive(Debug, Clone, Copy)]
pub struct PlaneCopy {
    /// The first row that is read.
    pub source: DevicePlane,
    /// The first row that is written.
    pub destination: DevicePlane,
    /// Bytes in a row.
    pub row_bytes: usize,
    /// Number of rows.
    pub rows: usize,
}

/// What an operation does with a rectangle of a plane, whose addresses are known.
#[derive(Debug, Clone)]
pub enum Entry<'a> {
    /// A copy by the driver.
    Copy(PlaneCopy),
    /// A launch for this rectangle alone. Boxed, because a launch has kilobytes and covers have many entries.
    Launch(Box<Launch>),
    /// Which kernels blur it is decided when the launches are made.
    Blur(PlaneBlur<'a>),
    /// A level of the wide form on CUDA cores.
    Level(PlaneLevel),
    /// A step of the wide form on tensor cores.
    Tensor(PlaneStep<'a>),
    /// Sums of cells of a mosaic.
    Sums(MosaicCells<'a>),
    /// Their colours, with a rank: where cells of different ranks overlap, the largest one counts.
    Colours((usize, MosaicCells<'a>)),
    /// Bytes that are written.
    Bytes(ByteWrite),
    /// For this kernel of soft covers.
    Soft((Kernel, SoftStep)),
}

/// What is computed of a plan, for a frame, for a band of it or for a cover, to execute in order on one stream.
#[derive(Debug)]
pub struct Lowered<'a> {
    /// The entries of a group are independent of each other, so that those of a kind share launches. Their order counts where they write
    /// the same bytes: chroma of packed 4:2:2 comes before luma, and what covers has ranks.
    pub groups: Vec<Vec<Entry<'a>>>,
    /// The groups from this one on write a frame of which parts are covered. The others only read it.
    pub first_write: usize,
}

impl<'a> Lowered<'a> {
    /// The planes that are blurred by the same launches of the direct form.
    pub fn blurs(&self) -> Vec<Vec<PlaneBlur<'a>>> {
        let of_group = |group: &Vec<Entry<'a>>| {
            batch::batches(group.iter().filter_map(|entry| match entry {
                Entry::Blur(plane) => Some(plane.clone()),
                _ => None,
            }))
        };
        self.groups.iter().flat_map(of_group).collect()
    }

    /// The prebuilt kernels of the launches, with these passes for each batch of blurs. One may come several times.
    pub fn kernels(&self, passes: PassStrategy) -> Vec<Kernel> {
        // The kernels are the same on every device.
        let limits = DeviceLimits { multiprocessors: 1, shared_bytes: 0 };
        let of_group = |group: &Vec<Entry<'a>>| launches(group, 0, limits, |batch| strategy::prebuilt(batch, passes)).0;
        self.groups.iter().flat_map(of_group).map(|(launch, _)| launch.kernel).collect()
    }
}

/// The launches of the entries of a group, each with the kernel that NVRTC compiles for it, if `choose` has chosen one, and the bytes of
/// device memory that they need from address `intermediate` on. `choose` says which kernels blur a batch.
pub fn launches<'a>(
    group: &[Entry<'a>],
    intermediate: u64,
    limits: DeviceLimits,
    mut choose: impl FnMut(&[PlaneBlur<'a>]) -> BlurKernels,
) -> (Vec<(Launch, Option<DirectKernel>)>, usize) {
    macro_rules! entries {
        ($kind:ident) => {
            group.iter().filter_map(|entry| match entry {
                Entry::$kind(of) => Some(of.clone()),
                _ => None,
            })
        };
    }
    let (mut all, mut bytes) = (Vec::new(), 0);
    let mut add = |launches: Vec<Launch>, compiled: Option<DirectKernel>| {
        all.extend(launches.into_iter().map(|launch| (launch, compiled)));
    };
    add(entries!(Launch).map(|launch| *launch).collect(), None);
    // Before the levels: chroma of packed 4:2:2 overwrites luma here, which may have its levels on CUDA cores in fields.
    add(tensor_wide::batches(entries!(Tensor)).iter().map(|batch| tensor_wide::launch(batch, limits)).collect(), None);
    // Batches use the memory in turn, so the largest counts.
    for batch in axis::batches(entries!(Level)) {
        bytes = bytes.max(axis::level_bytes(&batch));
        add(axis::level_launches(&batch, intermediate), None);
    }
    for batch in batch::batches(entries!(Blur)) {
        let kernels = choose(&batch);
        bytes = bytes.max(kernels.bytes(&batch));
        add(kernels.launches(&batch, intermediate, limits), kernels.compiled());
    }
    add(cover::mosaic_launches(Kernel::MOSAIC_SUMS, &entries!(Sums).collect::<Vec<_>>()), None);
    let mut colours: Vec<(usize, MosaicCells)> = entries!(Colours).collect();
    colours.sort_by_key(|(rank, _)| *rank);
    let colours: Vec<MosaicCells> = colours.into_iter().map(|(_, cells)| cells).collect();
    add(cover::mosaic_launches(Kernel::MOSAIC_WRITE, &colours), None);
    add(cover::byte_launches(entries!(Bytes).collect()), None);
    for kernel in [Kernel::SOFT_CELLS, Kernel::SOFT_SPREAD, Kernel::SOFT_MIX] {
        let steps = entries!(Soft).filter(|(of, _)| *of == kernel).map(|(_, step)| step);
        add(soft::launches(kernel, &steps.collect::<Vec<_>>()), None);
    }
    (all, bytes)
}

/// Lowers a plan, for planes at any address.
pub struct Lowering<'a> {
    plan: &'a Plan,
    soft: Option<&'a Softness>,
    kernel_set: KernelSet,
    memory: TemporaryMemory,
    /// What stands for a temporary.
    in_frame: Vec<Option<InFrame>>,
    /// Which temporaries the tensor-core kernels process.
    tensor: Vec<bool>,
    /// The grids of the mixes.
    grids: Vec<CellGrid>,
}

impl<'a> Lowering<'a> {
    /// Of a plan, of which nothing else is ever lowered than these parts, or some of their rows. `soft` is how much of a cover
    /// shows; the values of its weights do not count.
    pub fn new(plan: &'a Plan, parts: &Parts, soft: Option<&'a Softness>, kernel_set: KernelSet) -> Self {
        let count = plan.temporaries().len();
        let (in_frame, tensor) = match kernel_set {
            KernelSet::CudaCores => (vec![None; count], vec![false; count]),
            KernelSet::TensorCores => on_tensor_cores(plan),
        };
        let memory = {
            let in_frame: Vec<bool> = in_frame.iter().map(Option::is_some).collect();
            TemporaryMemory::new(plan, parts, soft, &in_frame)
        };
        let grids = soft.map_or_else(Vec::new, |soft| CellGrid::whole(plan.layouts(), NODES * soft.weights.cell()));
        Self { plan, soft, kernel_set, memory, in_frame, tensor, grids }
    }

    /// Device memory for the temporaries, in bytes.
    pub fn bytes(&self) -> usize {
        self.memory.bytes
    }

    /// Lowers parts for these planes, with the temporaries from address `workspace` on, which is aligned to
    /// [`WORKSPACE_ALIGNMENT`](super::abi::WORKSPACE_ALIGNMENT); the nodes of the weights are at its beginning, those of the
    /// cover first. Rectangles consist of whole [tiles](super::tiles::TILES).
    pub fn lower(&self, parts: &Parts, planes: &DevicePlanes, workspace: u64) -> Lowered<'a> {
        let buffers = Buffers { lowering: self, planes, workspace };
        let operations: &'a [Operation] = self.plan.operations();
        let is_write = |index: usize| writes_frame(&operations[index]);
        let mut order: Vec<usize> = (0..operations.len()).collect();
        order.sort_by_key(|index| (is_write(*index), self.turn(&operations[*index])));
        let (mut groups, mut group, mut first_write) = (Vec::new(), Vec::new(), None);
        for (position, index) in order.iter().copied().enumerate() {
            let operation = &operations[index];
            if position > 0 {
                let last = &operations[order[position - 1]];
                if !operation.is_independent_of(last) || self.turn(operation) != self.turn(last) {
                    groups.push(std::mem::take(&mut group));
                }
            }
            if is_write(index) && first_write.is_none() {
                // What a soft cover consists of is put together first.
                for write in order[position..].iter().map(|index| &operations[*index]) {
                    buffers.compose(write, &mut group);
                }
                groups.push(std::mem::take(&mut group));
                first_write = Some(groups.len());
            }
            buffers.lower(operation, &parts[index], &mut group);
        }
        groups.push(group);
        let first_write = first_write.unwrap_or(groups.len());
        Lowered { groups, first_write }
    }

    /// The Gaussian of a cover that an operation is of, from 1 on; 0 for operations of none or of several.
    fn turn(&self, operation: &Operation) -> usize {
        let is_of = |view: View| match view.buffer {
            Buffer::Temporary(index) => self.plan.turns().iter().position(|turn| turn.contains(&index)),
            _ => None,
        };
        is_of(operation.output()).map_or(0, |turn| turn + 1)
    }
}

/// Whether an operation covers a frame.
fn writes_frame(operation: &Operation) -> bool {
    let View { buffer, .. } = operation.output();
    matches!((operation, buffer), (Operation::Write { .. }, Buffer::Destination(_)))
}

/// A view of the frame that stands for a temporary with premultiplied colour: kernels for tensor cores multiply when they load
/// pixels of bytes, and divide when they store them.
#[derive(Debug, Clone, Copy)]
struct InFrame {
    view: View,
    /// The channel that is alpha.
    alpha: u8,
}

/// The temporaries that views of the frame stand for, and those that the kernels of the wide form process on tensor cores: all
/// operations on them, and on all others that these operations use.
fn on_tensor_cores(plan: &Plan) -> (Vec<Option<InFrame>>, Vec<bool>) {
    let mut in_frame = temporaries_in_frame(plan);
    // The planes of a cover are stored as those of a frame.
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
    // Other kernels need what is premultiplied as a plane.
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

/// The temporaries that views of the frame can stand for: of pixels of four bytes with alpha, all of which are blurred.
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
    /// The address of the temporaries.
    workspace: u64,
}

impl<'a> Buffers<'a, '_> {
    /// What is read or written of a view, and the channel that its colour is multiplied by.
    fn stored(&self, view: &View) -> (View, Option<u8>) {
        match view.buffer {
            Buffer::Temporary(index) => {
                self.lowering.in_frame[index].map_or((*view, None), |of| (of.view, Some(of.alpha)))
            }
            _ => (*view, None),
        }
    }

    /// A plane at an offset in the workspace.
    fn within(&self, plane: &DevicePlane) -> DevicePlane {
        DevicePlane { address: self.workspace.wrapping_add(plane.address), ..*plane }
    }

    /// The rows of a view as a plane.
    fn plane(&self, view: &View) -> DevicePlane {
        let plane = match view.buffer {
            Buffer::Source(index) => self.planes.sources[index],
            Buffer::Destination(index) => self.planes.destinations[index],
            Buffer::Temporary(index) => self.within(&self.lowering.memory.planes[index]),
        };
        view.field.rows_of(&plane)
    }

    /// The nodes of weights.
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

    /// The entries of an operation on rectangles of its output.
    fn lower(&self, operation: &'a Operation, rects: &[Rect], group: &mut Vec<Entry<'a>>) {
        match operation {
            _ if rects.is_empty() => (),
            Operation::CellMeans { source, cells, excluded: None } => {
                let sums = self.plane(&cells.view).address;
                group.extend(cover::mosaic_grids(&cells.grids, sums, &self.plane(source)).into_iter().map(Entry::Sums));
            }
            Operation::CellMeans { source, cells, excluded: Some(_) } => {
                let (nodes, memory) = (self.nodes(WeightsOf::Excluded), self.plane(&cells.view).address);
                let (source, entry) = (self.plane(source), |step| Entry::Soft((Kernel::SOFT_CELLS, step)));
                group.extend(cells.grids.iter().map(|grid| soft::cells(grid, nodes, source, memory)).map(entry));
            }
            Operation::Spread(cells) => {
                let (nodes, memory) = (self.nodes(WeightsOf::Excluded), self.plane(&cells.view).address);
                let entry = |step| Entry::Soft((Kernel::SOFT_SPREAD, step));
                group.extend(cells.grids.iter().map(|grid| soft::spread(grid, nodes, memory)).map(entry));
            }
            Operation::Write { layers, cells, destination, mix: None } => {
                self.write(layers, cells.as_ref(), destination, &self.plane(destination), group);
            }
            Operation::Write { layers, cells, destination, mix: Some(mix) } => {
                let planes = MixPlanes {
                    beside: self.plane(&mix.beside),
                    destination: self.plane(destination),
                    cover: self.mixed_in(destination, layers),
                };
                let (nodes, entry) = (self.nodes(mix.weights), |step| Entry::Soft((Kernel::SOFT_MIX, step)));
                if let ([Layer { samples: CoverSamples::Estimates, .. }], Some(cells)) = (&layers[..], cells) {
                    let memory = self.plane(&cells.view).address;
                    let mix = |pyramid: &CellPyramid| {
                        soft::mix(&pyramid.grid, nodes, &planes, soft::cells_of(pyramid, memory), rects, 0)
                    };
                    group.extend(cells.grids.iter().flat_map(mix).map(entry));
                } else {
                    let (plane, mask) = (plane_of(destination), mix.passthrough_mask);
                    let is_of_field =
                        |grid: &&CellGrid| grid.plane == plane && grid.field.place() == destination.field.place();
                    let mix = |grid: &CellGrid| soft::mix(grid, nodes, &planes, 0, rects, mask);
                    group.extend(self.lowering.grids.iter().filter(is_of_field).flat_map(mix).map(entry));
                }
            }
            _ => group.extend(rects.iter().filter_map(|rect| self.pixels(operation, *rect))),
        }
    }

    /// The entry of an operation that computes pixels of a rectangle; `None` if the kernels of other operations do it.
    fn pixels(&self, operation: &'a Operation, rect: Rect) -> Option<Entry<'a>> {
        Some(match operation {
            _ if self.uses_tensor(operation) => Entry::Tensor(self.tensor_step(operation, rect)),
            Operation::Blur { source, destination, taps } => {
                let ((source, alpha), (destination, _)) = (self.stored(source), self.stored(destination));
                let (layout, kernel_set) = (source.field.layout, self.lowering.kernel_set);
                let [source, destination] = [source, destination].map(|view| self.plane(&view));
                Entry::Blur(PlaneBlur { layout, source, destination, taps, rect, kernel_set, alpha })
            }
            Operation::Decimate(resampling) => Entry::Level(self.level(Direction::Decimate, *resampling, rect)),
            Operation::Interpolate(resampling) => Entry::Level(self.level(Direction::Interpolate, *resampling, rect)),
            // Done by the kernels that read the one, and that write the other.
            Operation::Premultiply { premultiplied, .. } | Operation::Unpremultiply { premultiplied, .. }
                if self.stored(premultiplied).1.is_some() =>
            {
                return None;
            }
            Operation::Premultiply { .. } | Operation::Unpremultiply { .. } | Operation::RestoreChannels { .. } => {
                Entry::Launch(Box::new(alpha::launch(operation, rect, |view| self.plane(view))))
            }
            Operation::Copy { source, destination } => {
                let layout = &source.field.layout;
                let within = |view: &View| view.field.layout.within(&self.plane(view), rect);
                Entry::Copy(PlaneCopy {
                    source: within(source),
                    destination: within(destination),
                    row_bytes: layout.columns(rect).len() * layout.pixel_bytes(),
                    rows: rect.height() as usize,
                })
            }
            Operation::CellMeans { .. } | Operation::Spread(_) | Operation::Write { .. } => {
                unreachable!("`lower` handles the operations of covers itself")
            }
        })
    }

    /// What is mixed into a view.
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

    /// Puts the layers of a soft cover over each other, unless one plane is all there is.
    fn compose(&self, operation: &'a Operation, group: &mut Vec<Entry<'a>>) {
        let Operation::Write { layers, cells, destination, mix: Some(_) } = operation else { return };
        if is_composed(operation) {
            let to = self.mixed_in(destination, layers);
            self.write(layers, cells.as_ref(), destination, &to, group);
        }
    }

    /// Writes layers over each other, into rows like those of a view.
    fn write(
        &self,
        layers: &'a [Layer],
        cells: Option<&'a Cells>,
        view: &View,
        rows: &DevicePlane,
        group: &mut Vec<Entry<'a>>,
    ) {
        // Rectangles are told apart by their bytes in the plane, of which these are every `step`th row from its first one on.
        let (plane, field) = (plane_of(view), view.field);
        let whole = |rows: &DevicePlane| DevicePlane {
            address: rows.address.wrapping_sub((rows.pitch / field.step * field.first_row + field.first_byte()) as u64),
            pitch: rows.pitch / field.step,
            ..*rows
        };
        let to = whole(rows);
        let cells = cells.map(|cells| cover::mosaic_grids(&cells.grids, self.plane(&cells.view).address, rows));
        for (rank, Layer { samples, rects }) in layers.iter().enumerate() {
            let bytes = rects.iter().flat_map(|rect| ByteRect::covered(plane, FieldRect { field, rect: *rect }));
            match samples {
                CoverSamples::Plane(view) => {
                    let from = whole(&self.plane(view));
                    group.extend(bytes.map(|rect| Entry::Bytes(ByteWrite::copy(rect, rank, &from, &to))));
                }
                CoverSamples::Pattern(pattern) => {
                    group.extend(bytes.map(|rect| Entry::Bytes(ByteWrite::fill(rect, rank, *pattern, &to))));
                }
                CoverSamples::Mosaic(of) => {
                    let grids = &cells.as_ref().expect("layers of cells come with them")[of.clone()];
                    group.extend(grids.iter().map(|cells| Entry::Colours((rank, *cells))));
                }
                CoverSamples::Estimates => unreachable!("estimates are mixed"),
            }
        }
    }

    /// Whether an operation is one for the tensor-core kernels.
    fn uses_tensor(&self, operation: &Operation) -> bool {
        let views = [operation.source(), operation.output()];
        views.iter().any(|view| matches!(view.buffer, Buffer::Temporary(index) if self.lowering.tensor[index]))
    }

    /// The step of an operation for which [`Buffers::uses_tensor`] holds.
    fn tensor_step(&self, operation: &'a Operation, rect: Rect) -> PlaneStep<'a> {
        let [(source, of_source), (output, of_output)] =
            [operation.source(), operation.output()].map(|view| self.stored(&view));
        let [from, to] = [&source, &output].map(|view| self.plane(view));
        let (step, resampling, taps) = match operation {
            Operation::Decimate(resampling) => (Step::Decimate, resampling, None),
            Operation::Interpolate(resampling) => (Step::Interpolate, resampling, None),
            Operation::Blur { taps, .. } => (Step::Blur, self.decimation_to(source.buffer), Some(taps)),
            _ => unreachable!("the tensor-core kernels support the steps of the wide form"),
        };
        // Where the blurred alpha is 0, the colour of the source stays.
        let source_of_colour = match output.buffer {
            Buffer::Destination(index) if of_output.is_some() => output.field.rows_of(&self.planes.sources[index]),
            _ => DevicePlane::default(),
        };
        let larger = match step {
            Step::Interpolate => &resampling.destination,
            _ => &resampling.source,
        };
        let (Resampling { factors, level, .. }, larger) = (*resampling, self.stored(larger).0.field.layout);
        let entry = TensorPlane { yuv422: tensor_wide::yuv422_bits(&larger), ..TensorPlane::default() };
        let entry = match step {
            Step::Decimate => {
                TensorPlane { src: from.address, src_pitch: from.pitch as u64, decimated: to.address, ..entry }
            }
            Step::Blur => TensorPlane { decimated: from.address, blurred: to.address, ..entry },
            Step::Interpolate => TensorPlane {
                src: source_of_colour.address,
                src_pitch: source_of_colour.pitch as u64,
                blurred: from.address,
                dst: to.address,
                dst_pitch: to.pitch as u64,
                ..entry
            },
        };
        let rect = if step == Step::Interpolate { resampling.in_samples(rect) } else { rect };
        let larger = resampling.channels.part_of(&larger);
        PlaneStep { step, level, larger, alpha: of_source.or(of_output), factors, entry, taps, rect }
    }

    /// The decimation that writes a temporary.
    fn decimation_to(&self, temporary: Buffer) -> &'a Resampling {
        let writes = |operation: &'a Operation| match operation {
            Operation::Decimate(resampling) if resampling.destination.buffer == temporary => Some(resampling),
            _ => None,
        };
        self.lowering.plan.operations().iter().find_map(writes).expect("a small plane is decimated before its blur")
    }

    fn level(&self, direction: Direction, resampling: Resampling, rect: Rect) -> PlaneLevel {
        let plane = |view: &View| LevelPlane { layout: view.field.layout, memory: self.plane(view) };
        let [source, destination] = [&resampling.source, &resampling.destination].map(plane);
        let (larger, small) = match direction {
            Direction::Decimate => (source, destination),
            Direction::Interpolate => (destination, source),
        };
        PlaneLevel { direction, resampling, larger, small, rect }
    }
}
