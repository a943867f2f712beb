// SPDX-License-Identifier: MPL-2.0
//! A plan recorded for planes in device memory: copies, launches and batches of blurs, in order.

use super::abi::{Kernel, KernelSet, Launch, PixelFamily, TENSOR_RADIUS_MAX, WORKSPACE_ALIGNMENT};
use super::alpha::{self, AlphaPlanes};
use super::axis::{self, Direction, LevelBatch, PlaneLevel};
use super::batch::{self, BlurBatch, PlaneBlur};
use super::strategy::PassStrategy;
use super::tensor_wide::{self, PlaneStep, Step, TensorAddresses, TensorBatch};
use crate::filter::frame::PlaneLayout;
use crate::filter::operation::{AlphaSource, Buffer, Operation, Resampling, View};
use crate::filter::parts::Parts;
use crate::filter::plan::Plan;
use crate::filter::plane::DevicePlane;
use crate::filter::regions::Rect;

/// The planes of a frame in device memory.
#[derive(Debug, Clone, Default)]
pub struct DevicePlanes {
    /// Read.
    pub sources: Vec<DevicePlane>,
    /// Written.
    pub destinations: Vec<DevicePlane>,
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
    /// Blurs of planes that share launches. Which kernels they use is decided when they are enqueued.
    Blur(BlurBatch<'a>),
    /// Decimations or interpolations of planes that share launches.
    Level(LevelBatch),
    /// Steps of the wide form on tensor cores, of planes that share a launch.
    Tensor(TensorBatch<'a>),
}

/// The commands for a frame, for a band of it or for regions, to execute in order on one stream.
#[derive(Debug)]
pub struct Recording<'a> {
    commands: Vec<Command<'a>>,
    temporary_bytes: usize,
}

impl<'a> Recording<'a> {
    /// Records what of a plan is computed in these planes, with the temporaries from address `workspace` on, which is aligned to
    /// [`WORKSPACE_ALIGNMENT`]. Rectangles consist of whole [tiles](super::tiles::TILES).
    pub fn new(plan: &'a Plan, planes: &DevicePlanes, workspace: u64, kernel_set: KernelSet, parts: &Parts) -> Self {
        let count = plan.temporaries().len();
        let (in_frame, tensor) = match kernel_set {
            KernelSet::CudaCores => (vec![None; count], vec![false; count]),
            KernelSet::TensorCores => on_tensor_cores(plan),
        };
        let (temporaries, temporary_bytes) = temporaries(plan, workspace, &in_frame);
        let buffers = Buffers { plan, planes, temporaries, in_frame, tensor };
        let mut pending = Pending::default();
        let mut commands = Vec::new();
        for (index, (operation, rects)) in plan.operations().iter().zip(parts).enumerate() {
            // Operations of a kind that follow each other are batched.
            if index > 0 && !operation.is_independent_of(&plan.operations()[index - 1]) {
                pending.flush(&mut commands);
            }
            for rect in rects.iter().copied() {
                match operation {
                    _ if buffers.uses_tensor(operation) => pending.tensor.push(buffers.tensor_step(operation, rect)),
                    Operation::Blur { source, destination, taps } => {
                        let ((source, alpha), (destination, _)) = (buffers.stored(source), buffers.stored(destination));
                        let (layout, source) = (source.field.layout, buffers.plane(&source));
                        let destination = buffers.plane(&destination);
                        pending.blurs.push(PlaneBlur { layout, source, destination, taps, rect, kernel_set, alpha });
                    }
                    // Done by the kernels that read the one, and that write the other.
                    Operation::Premultiply { premultiplied, .. } | Operation::Unpremultiply { premultiplied, .. }
                        if buffers.stored(premultiplied).1.is_some() => {}
                    Operation::Decimate(resampling) => {
                        pending.levels.push(buffers.level(Direction::Decimate, *resampling, rect));
                    }
                    Operation::Interpolate(resampling) => {
                        pending.levels.push(buffers.level(Direction::Interpolate, *resampling, rect));
                    }
                    _ => commands.push(buffers.command(operation, rect)),
                }
            }
        }
        pending.flush(&mut commands);
        Self { commands, temporary_bytes }
    }

    /// The commands, in order.
    pub fn commands(&self) -> &[Command<'a>] {
        &self.commands
    }

    /// The batches among the commands.
    pub fn batches(&self) -> impl Iterator<Item = &BlurBatch<'a>> + Clone {
        self.commands.iter().filter_map(|command| match command {
            Command::Blur(batch) => Some(batch),
            _ => None,
        })
    }

    /// The batches of decimations and interpolations among the commands.
    pub fn levels(&self) -> impl Iterator<Item = &LevelBatch> + Clone {
        self.commands.iter().filter_map(|command| match command {
            Command::Level(batch) => Some(batch),
            _ => None,
        })
    }

    /// The kernels of the launches, with these passes for each batch of blurs. One may come several times.
    pub fn kernels(&self, passes: PassStrategy) -> Vec<Kernel> {
        let kernels = |command: &Command| match command {
            Command::Copy(_) => Vec::new(),
            Command::Launch(launch) => vec![launch.kernel],
            Command::Blur(batch) => batch.kernels(passes),
            Command::Level(batch) => batch.kernels(),
            Command::Tensor(batch) => vec![batch.kernel()],
        };
        self.commands.iter().flat_map(kernels).collect()
    }

    /// Device memory for the temporaries, in bytes.
    pub fn temporary_bytes(&self) -> usize {
        self.temporary_bytes
    }
}

/// Operations of one kind that have not been divided into batches yet.
#[derive(Default)]
struct Pending<'a> {
    blurs: Vec<PlaneBlur<'a>>,
    levels: Vec<PlaneLevel>,
    tensor: Vec<PlaneStep<'a>>,
}

impl<'a> Pending<'a> {
    fn flush(&mut self, commands: &mut Vec<Command<'a>>) {
        let Self { blurs, levels, tensor } = std::mem::take(self);
        // Before the levels: chroma of packed 4:2:2 overwrites luma here, which may have its levels on CUDA cores in fields.
        commands.extend(tensor_wide::batches(tensor).into_iter().map(Command::Tensor));
        commands.extend(axis::batches(levels).into_iter().map(Command::Level));
        commands.extend(batch::batches(blurs).into_iter().map(Command::Blur));
    }
}

/// Planes for the temporaries of a plan from an address on, and their size in bytes. Each has room for the layout of either
/// kind of kernels; those that a plane of the frame stands for have none.
fn temporaries(plan: &Plan, address: u64, in_frame: &[Option<InFrame>]) -> (Vec<DevicePlane>, usize) {
    let mut bytes = 0;
    let temporary = |(layout, in_frame): (&PlaneLayout, &Option<InFrame>)| {
        if in_frame.is_some() {
            return DevicePlane::default();
        }
        let pitch = layout.row_bytes().next_multiple_of(WORKSPACE_ALIGNMENT);
        let small = if plan.is_wide() { tensor_wide::small_plane_bytes(layout) } else { 0 };
        let len = small.max(pitch * layout.height as usize).next_multiple_of(WORKSPACE_ALIGNMENT);
        let plane = DevicePlane { address: address + bytes as u64, pitch, len };
        bytes += len;
        plane
    };
    (plan.temporaries().iter().zip(in_frame).map(temporary).collect(), bytes)
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
    let mut tensor: Vec<bool> = in_frame.iter().map(Option::is_none).collect();
    loop {
        let before = tensor.clone();
        for operation in plan.operations() {
            let views = [operation.source(), operation.output()];
            let indices = views.iter().filter_map(|view| match view.buffer {
                Buffer::Temporary(index) => Some(index),
                _ => None,
            });
            let own = indices.filter(|index| in_frame[*index].is_none());
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
    plan: &'a Plan,
    planes: &'p DevicePlanes,
    temporaries: Vec<DevicePlane>,
    /// What stands for a temporary.
    in_frame: Vec<Option<InFrame>>,
    /// Which temporaries the tensor-core kernels process.
    tensor: Vec<bool>,
}

impl<'a> Buffers<'a, '_> {
    /// What is read or written of a view, and the channel that its colour is multiplied by.
    fn stored(&self, view: &View) -> (View, Option<u8>) {
        match view.buffer {
            Buffer::Temporary(index) => self.in_frame[index].map_or((*view, None), |of| (of.view, Some(of.alpha))),
            _ => (*view, None),
        }
    }

    /// The rows of a view as a plane.
    fn plane(&self, view: &View) -> DevicePlane {
        let plane = match view.buffer {
            Buffer::Source(index) => &self.planes.sources[index],
            Buffer::Destination(index) => &self.planes.destinations[index],
            Buffer::Temporary(index) => &self.temporaries[index],
        };
        view.field.rows_of(plane)
    }

    /// The alpha of a rectangle of colour.
    fn alpha_plane(&self, alpha: &AlphaSource, rect: Rect) -> DevicePlane {
        match alpha.reads(rect) {
            Some((view, rect)) => view.field.layout.within(&self.plane(&view), rect),
            None => DevicePlane::default(),
        }
    }

    /// Whether an operation is one for the tensor-core kernels.
    fn uses_tensor(&self, operation: &Operation) -> bool {
        let views = [operation.source(), operation.output()];
        views.iter().any(|view| matches!(view.buffer, Buffer::Temporary(index) if self.tensor[index]))
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
        let planes = match step {
            Step::Decimate => TensorAddresses {
                src: from.address,
                src_pitch: from.pitch as u64,
                decimated: to.address,
                ..TensorAddresses::default()
            },
            Step::Blur => {
                TensorAddresses { decimated: from.address, blurred: to.address, ..TensorAddresses::default() }
            }
            Step::Interpolate => TensorAddresses {
                src: source_of_colour.address,
                src_pitch: source_of_colour.pitch as u64,
                blurred: from.address,
                dst: to.address,
                dst_pitch: to.pitch as u64,
                ..TensorAddresses::default()
            },
        };
        let larger = match step {
            Step::Interpolate => &resampling.destination,
            _ => &resampling.source,
        };
        let (Resampling { factors, level, .. }, larger) = (*resampling, self.stored(larger).0.field.layout);
        let rect = if step == Step::Interpolate { resampling.in_samples(rect) } else { rect };
        let (yuv422, larger) = (tensor_wide::yuv422_bits(&larger), resampling.channels.part_of(&larger));
        PlaneStep { step, level, larger, yuv422, alpha: of_source.or(of_output), factors, planes, taps, rect }
    }

    /// The decimation that writes a temporary.
    fn decimation_to(&self, temporary: Buffer) -> &'a Resampling {
        let writes = |operation: &'a Operation| match operation {
            Operation::Decimate(resampling) if resampling.destination.buffer == temporary => Some(resampling),
            _ => None,
        };
        self.plan.operations().iter().find_map(writes).expect("a small plane is decimated before its blur")
    }

    fn level(&self, direction: Direction, resampling: Resampling, rect: Rect) -> PlaneLevel {
        let [source, destination] = [&resampling.source, &resampling.destination].map(|view| self.plane(view));
        PlaneLevel { direction, resampling, source, destination, rect }
    }

    /// The command of an operation that is not batched.
    fn command(&self, operation: &Operation, rect: Rect) -> Command<'static> {
        let within = |view: &View| view.field.layout.within(&self.plane(view), rect);
        let launch = |kernel, view: &View, alpha: Option<&AlphaSource>, mask, planes| {
            Command::Launch(alpha::launch(kernel, &view.field.layout, rect, alpha, mask, &planes))
        };
        match operation {
            Operation::Copy { source, destination } => {
                let layout = &source.field.layout;
                Command::Copy(PlaneCopy {
                    source: within(source),
                    destination: within(destination),
                    row_bytes: layout.columns(rect).len() * layout.pixel_bytes(),
                    rows: rect.height() as usize,
                })
            }
            Operation::Premultiply { source, alpha, premultiplied } => {
                let planes = AlphaPlanes {
                    source: within(source),
                    premultiplied: within(premultiplied),
                    alpha: self.alpha_plane(alpha, rect),
                    ..AlphaPlanes::default()
                };
                launch(Kernel::Premultiply, source, Some(alpha), 0, planes)
            }
            Operation::Unpremultiply { premultiplied, alpha, source, destination, passthrough_mask } => {
                let planes = AlphaPlanes {
                    source: within(source),
                    destination: within(destination),
                    premultiplied: within(premultiplied),
                    alpha: self.alpha_plane(alpha, rect),
                };
                launch(Kernel::Unpremultiply, source, Some(alpha), *passthrough_mask, planes)
            }
            Operation::RestoreChannels { source, destination, passthrough_mask } => {
                let planes =
                    AlphaPlanes { source: within(source), destination: within(destination), ..AlphaPlanes::default() };
                launch(Kernel::Unpremultiply, source, None, *passthrough_mask, planes)
            }
            Operation::Blur { .. } | Operation::Decimate(_) | Operation::Interpolate(_) => unreachable!("batched"),
            Operation::CellMeans { .. } | Operation::Spread(_) | Operation::Write { .. } => {
                unreachable!("covers are launched by `pipeline`")
            }
        }
    }
}
