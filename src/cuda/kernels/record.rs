// SPDX-License-Identifier: MPL-2.0
//! A plan recorded for planes in device memory: copies, launches and batches of blurs, in order.

use super::abi::{KernelSet, PixelFamily, TENSOR_RADIUS_MAX, TensorPlane};
use super::alpha;
use super::axis::{self, Direction, LevelBatch, LevelPlane, PlaneLevel};
use super::batch::{self, BlurBatch, PlaneBlur};
use super::byte_rect::ByteRect;
use super::cover::{self, ByteWrite, MosaicCells};
use super::images::Kernel;
use super::launch::Launch;
use super::soft::{self, MixPlanes, Nodes, SoftStep};
use super::strategy::PassStrategy;
use super::temporaries::{TemporaryMemory, is_composed, plane_of, plane_uses};
use super::tensor_wide::{self, PlaneStep, Step, TensorBatch};
use crate::filter::cover::Softness;
use crate::filter::inpainting::NODES;
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

/// A step of a recording.
#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a recording has few commands and lives for one call")]
pub enum Command<'a> {
    /// A copy by the driver.
    Copy(PlaneCopy),
    /// A launch of a kernel that every image has.
    Launch(Launch),
    /// Blurs of planes that share launches. Which kernels they use is decided when the program is made.
    Blur(BlurBatch<'a>),
    /// Decimations or interpolations of planes that share launches.
    Level(LevelBatch),
    /// Steps of the wide form on tensor cores, of planes that share a launch.
    Tensor(TensorBatch<'a>),
}

/// The commands for a frame, for a band of it or for a cover, to execute in order on one stream.
#[derive(Debug)]
pub struct Recording<'a> {
    /// In order.
    pub commands: Vec<Command<'a>>,
    /// The commands from this one on write a frame of which parts are covered. The others only read it.
    pub first_write: usize,
    /// Device memory for the temporaries, in bytes.
    pub temporary_bytes: usize,
}

impl<'a> Recording<'a> {
    /// Records what of a plan is computed in these planes, with the temporaries from address `workspace` on, which is aligned to
    /// [`WORKSPACE_ALIGNMENT`](super::abi::WORKSPACE_ALIGNMENT). Rectangles consist of whole [tiles](super::tiles::TILES).
    pub fn new(plan: &'a Plan, planes: &DevicePlanes, workspace: u64, kernel_set: KernelSet, parts: &Parts) -> Self {
        Recorder::new(plan, parts, None, kernel_set).record(parts, planes, workspace)
    }

    /// The batches among the commands.
    pub fn batches(&self) -> impl Iterator<Item = &BlurBatch<'a>> + Clone {
        self.commands.iter().filter_map(|command| match command {
            Command::Blur(batch) => Some(batch),
            _ => None,
        })
    }

    /// The prebuilt kernels of the launches, with these passes for each batch of blurs. One may come several times.
    pub fn kernels(&self, passes: PassStrategy) -> Vec<Kernel> {
        let kernels = |command: &Command| match command {
            Command::Copy(_) => Vec::new(),
            Command::Launch(launch) => vec![launch.kernel],
            Command::Blur(batch) => batch.prebuilt(passes).list(),
            Command::Level(batch) => batch.launches(0).iter().map(|launch| launch.kernel).collect(),
            Command::Tensor(batch) => vec![batch.kernel()],
        };
        self.commands.iter().flat_map(kernels).collect()
    }
}

/// Records the commands of a plan, for planes at any address.
pub struct Recorder<'a> {
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

impl<'a> Recorder<'a> {
    /// Of a plan, of which nothing else is ever recorded than these parts, or some of their rows. `soft` is how much of a cover
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

    /// Records parts in these planes, with the temporaries from address `workspace` on, which is aligned to
    /// [`WORKSPACE_ALIGNMENT`](super::abi::WORKSPACE_ALIGNMENT); the nodes of the weights are at its beginning, those of the
    /// cover first.
    pub fn record(&self, parts: &Parts, planes: &DevicePlanes, workspace: u64) -> Recording<'a> {
        let buffers = Buffers { recorder: self, planes, workspace };
        let mut pending = Pending::default();
        let mut commands = Vec::new();
        let operations: &'a [Operation] = self.plan.operations();
        let is_write = |index: usize| writes_frame(&operations[index]);
        let mut order: Vec<usize> = (0..operations.len()).collect();
        order.sort_by_key(|index| (is_write(*index), self.turn(&operations[*index])));
        let mut first_write = None;
        for (position, index) in order.iter().copied().enumerate() {
            let operation = &operations[index];
            // Operations of a kind that follow each other are batched.
            if position > 0 {
                let last = &operations[order[position - 1]];
                if !operation.is_independent_of(last) || self.turn(operation) != self.turn(last) {
                    pending.flush(&mut commands);
                }
            }
            if is_write(index) && first_write.is_none() {
                // What a soft cover consists of is put together first.
                for write in order[position..].iter().map(|index| &operations[*index]) {
                    buffers.compose(write, &mut pending);
                }
                pending.flush(&mut commands);
                first_write = Some(commands.len());
            }
            buffers.record(operation, &parts[index], &mut pending, &mut commands);
        }
        pending.flush(&mut commands);
        let first_write = first_write.unwrap_or(commands.len());
        Recording { commands, first_write, temporary_bytes: self.memory.bytes }
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

/// Operations of one kind that have not been divided into batches yet.
#[derive(Default)]
struct Pending<'a> {
    blurs: Vec<PlaneBlur<'a>>,
    levels: Vec<PlaneLevel>,
    tensor: Vec<PlaneStep<'a>>,
    sums: Vec<MosaicCells<'a>>,
    colours: Vec<(usize, MosaicCells<'a>)>,
    bytes: Vec<ByteWrite>,
    cells: Vec<SoftStep>,
    estimates: Vec<SoftStep>,
    mixes: Vec<SoftStep>,
}

impl<'a> Pending<'a> {
    fn flush(&mut self, commands: &mut Vec<Command<'a>>) {
        let Self { blurs, levels, tensor, sums, mut colours, bytes, cells, estimates, mixes } = std::mem::take(self);
        // Before the levels: chroma of packed 4:2:2 overwrites luma here, which may have its levels on CUDA cores in fields.
        commands.extend(tensor_wide::batches(tensor).into_iter().map(Command::Tensor));
        commands.extend(axis::batches(levels).into_iter().map(Command::Level));
        commands.extend(batch::batches(blurs).into_iter().map(Command::Blur));
        colours.sort_by_key(|(rank, _)| *rank);
        let colours: Vec<MosaicCells> = colours.into_iter().map(|(_, cells)| cells).collect();
        let launches = [
            cover::mosaic_launches(Kernel::MOSAIC_SUMS, &sums),
            cover::mosaic_launches(Kernel::MOSAIC_WRITE, &colours),
            cover::byte_launches(bytes),
            soft::launches(Kernel::SOFT_CELLS, &cells),
            soft::launches(Kernel::SOFT_SPREAD, &estimates),
            soft::launches(Kernel::SOFT_MIX, &mixes),
        ];
        commands.extend(launches.into_iter().flatten().map(Command::Launch));
    }
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
    recorder: &'p Recorder<'a>,
    planes: &'p DevicePlanes,
    /// The address of the temporaries.
    workspace: u64,
}

impl<'a> Buffers<'a, '_> {
    /// What is read or written of a view, and the channel that its colour is multiplied by.
    fn stored(&self, view: &View) -> (View, Option<u8>) {
        match view.buffer {
            Buffer::Temporary(index) => {
                self.recorder.in_frame[index].map_or((*view, None), |of| (of.view, Some(of.alpha)))
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
            Buffer::Temporary(index) => self.within(&self.recorder.memory.planes[index]),
        };
        view.field.rows_of(&plane)
    }

    /// The nodes of weights.
    fn nodes(&self, of: WeightsOf) -> Nodes {
        let soft = self.recorder.soft.expect("a plan with weights is recorded with them");
        match of {
            WeightsOf::Cover => Nodes::new(&soft.weights, self.workspace),
            WeightsOf::Excluded => {
                let excluded = soft.excluded.as_ref().expect("a plan that leaves out samples has weights of them");
                Nodes::new(excluded, self.workspace + soft.weights.nodes().2.len() as u64)
            }
        }
    }

    /// Records an operation on rectangles of its output.
    fn record(
        &self,
        operation: &'a Operation,
        rects: &[Rect],
        pending: &mut Pending<'a>,
        commands: &mut Vec<Command<'a>>,
    ) {
        match operation {
            _ if rects.is_empty() => (),
            Operation::CellMeans { source, cells, excluded: None } => {
                let sums = self.plane(&cells.view).address;
                pending.sums.extend(cover::mosaic_grids(&cells.grids, sums, &self.plane(source)));
            }
            Operation::CellMeans { source, cells, excluded: Some(_) } => {
                let (nodes, memory) = (self.nodes(WeightsOf::Excluded), self.plane(&cells.view).address);
                let source = self.plane(source);
                pending.cells.extend(cells.grids.iter().map(|grid| soft::cells(grid, nodes, source, memory)));
            }
            Operation::Spread(cells) => {
                let (nodes, memory) = (self.nodes(WeightsOf::Excluded), self.plane(&cells.view).address);
                pending.estimates.extend(cells.grids.iter().map(|grid| soft::spread(grid, nodes, memory)));
            }
            Operation::Write { layers, cells, destination, mix: None } => {
                self.write(layers, cells.as_ref(), destination, &self.plane(destination), pending);
            }
            Operation::Write { layers, cells, destination, mix: Some(mix) } => {
                let planes = MixPlanes {
                    beside: self.plane(&mix.beside),
                    destination: self.plane(destination),
                    cover: self.mixed_in(destination, layers),
                };
                let nodes = self.nodes(mix.weights);
                if let ([Layer { samples: CoverSamples::Estimates, .. }], Some(cells)) = (&layers[..], cells) {
                    let memory = self.plane(&cells.view).address;
                    pending.mixes.extend(cells.grids.iter().flat_map(|pyramid| {
                        soft::mix(&pyramid.grid, nodes, &planes, soft::cells_of(pyramid, memory), rects, 0)
                    }));
                } else {
                    let (plane, mask) = (plane_of(destination), mix.passthrough_mask);
                    let is_of_field =
                        |grid: &&CellGrid| grid.plane == plane && grid.field.place() == destination.field.place();
                    let grids = self.recorder.grids.iter().filter(is_of_field);
                    pending.mixes.extend(grids.flat_map(|grid| soft::mix(grid, nodes, &planes, 0, rects, mask)));
                }
            }
            _ => {
                for rect in rects.iter().copied() {
                    self.record_pixels(operation, rect, pending, commands);
                }
            }
        }
    }

    /// Records an operation that computes pixels of a rectangle.
    fn record_pixels(
        &self,
        operation: &'a Operation,
        rect: Rect,
        pending: &mut Pending<'a>,
        commands: &mut Vec<Command<'a>>,
    ) {
        match operation {
            _ if self.uses_tensor(operation) => pending.tensor.push(self.tensor_step(operation, rect)),
            Operation::Blur { source, destination, taps } => {
                let ((source, alpha), (destination, _)) = (self.stored(source), self.stored(destination));
                let (layout, kernel_set) = (source.field.layout, self.recorder.kernel_set);
                let [source, destination] = [source, destination].map(|view| self.plane(&view));
                pending.blurs.push(PlaneBlur { layout, source, destination, taps, rect, kernel_set, alpha });
            }
            // Done by the kernels that read the one, and that write the other.
            Operation::Premultiply { premultiplied, .. } | Operation::Unpremultiply { premultiplied, .. }
                if self.stored(premultiplied).1.is_some() => {}
            Operation::Decimate(resampling) => {
                pending.levels.push(self.level(Direction::Decimate, *resampling, rect));
            }
            Operation::Interpolate(resampling) => {
                pending.levels.push(self.level(Direction::Interpolate, *resampling, rect));
            }
            _ => commands.push(self.command(operation, rect)),
        }
    }

    /// What is mixed into a view.
    fn mixed_in(&self, destination: &View, layers: &[Layer]) -> DevicePlane {
        match layers {
            [Layer { samples: CoverSamples::Plane(view), .. }] => self.plane(view),
            [Layer { samples: CoverSamples::Estimates, .. }] => DevicePlane::default(),
            _ => {
                let plane = self.recorder.memory.composed[plane_of(destination)];
                destination.field.rows_of(&self.within(&plane.expect("layers are put together first")))
            }
        }
    }

    /// Puts the layers of a soft cover over each other, unless one plane is all there is.
    fn compose(&self, operation: &'a Operation, pending: &mut Pending<'a>) {
        let Operation::Write { layers, cells, destination, mix: Some(_) } = operation else { return };
        if is_composed(operation) {
            let to = self.mixed_in(destination, layers);
            self.write(layers, cells.as_ref(), destination, &to, pending);
        }
    }

    /// Writes layers over each other, into rows like those of a view.
    fn write(
        &self,
        layers: &'a [Layer],
        cells: Option<&'a Cells>,
        view: &View,
        rows: &DevicePlane,
        pending: &mut Pending<'a>,
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
                    pending.bytes.extend(bytes.map(|rect| ByteWrite::copy(rect, rank, &from, &to)));
                }
                CoverSamples::Pattern(pattern) => {
                    pending.bytes.extend(bytes.map(|rect| ByteWrite::fill(rect, rank, *pattern, &to)));
                }
                CoverSamples::Mosaic(of) => {
                    let grids = &cells.as_ref().expect("layers of cells come with them")[of.clone()];
                    pending.colours.extend(grids.iter().map(|cells| (rank, *cells)));
                }
                CoverSamples::Estimates => unreachable!("estimates are mixed"),
            }
        }
    }

    /// Whether an operation is one for the tensor-core kernels.
    fn uses_tensor(&self, operation: &Operation) -> bool {
        let views = [operation.source(), operation.output()];
        views.iter().any(|view| matches!(view.buffer, Buffer::Temporary(index) if self.recorder.tensor[index]))
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
        self.recorder.plan.operations().iter().find_map(writes).expect("a small plane is decimated before its blur")
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

    /// The command of an operation that is not batched.
    fn command(&self, operation: &Operation, rect: Rect) -> Command<'static> {
        match operation {
            Operation::Copy { source, destination } => {
                let layout = &source.field.layout;
                let within = |view: &View| view.field.layout.within(&self.plane(view), rect);
                Command::Copy(PlaneCopy {
                    source: within(source),
                    destination: within(destination),
                    row_bytes: layout.columns(rect).len() * layout.pixel_bytes(),
                    rows: rect.height() as usize,
                })
            }
            Operation::Premultiply { .. } | Operation::Unpremultiply { .. } | Operation::RestoreChannels { .. } => {
                Command::Launch(alpha::launch(operation, rect, |view| self.plane(view)))
            }
            Operation::Blur { .. } | Operation::Decimate(_) | Operation::Interpolate(_) => unreachable!("batched"),
            Operation::CellMeans { .. } | Operation::Spread(_) | Operation::Write { .. } => {
                unreachable!("recorded by `record`")
            }
        }
    }
}
