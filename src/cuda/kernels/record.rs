// SPDX-License-Identifier: MPL-2.0
//! A plan recorded for planes in device memory: copies, launches and batches of blurs, in order.

use std::ops::Range;

use super::abi::{Kernel, Launch};
use super::alpha::{self, AlphaPlanes};
use super::batch::{self, LaunchBatch, PlaneBlur};
use crate::filter::frame::PlaneLayout;
use crate::filter::plan::{AlphaSource, Buffer, Operation, Plan, View};
use crate::filter::plane::DevicePlane;

/// Temporaries and their rows start on this many bytes.
pub const WORKSPACE_ALIGNMENT: usize = 256;

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
    Blur(LaunchBatch<'a>),
}

/// The commands for a frame, or for a band of it, to execute in order on one stream.
#[derive(Debug)]
pub struct Recording<'a> {
    commands: Vec<Command<'a>>,
    temporary_bytes: usize,
}

impl<'a> Recording<'a> {
    /// Records a plan for these planes, with the temporaries from address `workspace` on, which is aligned to
    /// [`WORKSPACE_ALIGNMENT`]. `band` has the rows of each operation's view to process, for plans that can be banded; without
    /// it all rows are.
    pub fn new(plan: &'a Plan, planes: &DevicePlanes, workspace: u64, band: Option<&[Range<u32>]>) -> Self {
        debug_assert!(band.is_none() || plan.can_be_banded());
        let (temporaries, temporary_bytes) = temporaries(plan.temporaries(), workspace);
        let buffers = Buffers { planes, temporaries };
        let (mut commands, mut blurs) = (Vec::new(), Vec::new());
        for (index, operation) in plan.operations().iter().enumerate() {
            let rows = band.map_or(0..operation.output().field.layout.height, |band| band[index].clone());
            if let Operation::Blur { source, destination, taps } = operation {
                let (layout, source) = (source.field.layout, buffers.plane(source));
                if !rows.is_empty() {
                    blurs.push(PlaneBlur { layout, source, destination: buffers.plane(destination), taps, rows });
                }
                continue;
            }
            // Blurs that follow each other are batched.
            commands.extend(batch::batches(std::mem::take(&mut blurs)).into_iter().map(Command::Blur));
            commands.push(buffers.command(operation, &rows));
        }
        commands.extend(batch::batches(blurs).into_iter().map(Command::Blur));
        Self { commands, temporary_bytes }
    }

    /// The commands, in order.
    pub fn commands(&self) -> &[Command<'a>] {
        &self.commands
    }

    /// The batches among the commands.
    pub fn batches(&self) -> impl Iterator<Item = &LaunchBatch<'a>> + Clone {
        self.commands.iter().filter_map(|command| match command {
            Command::Blur(batch) => Some(batch),
            _ => None,
        })
    }

    /// Device memory for the temporaries, in bytes.
    pub fn temporary_bytes(&self) -> usize {
        self.temporary_bytes
    }
}

/// Planes for temporaries from an address on, and their size in bytes.
fn temporaries(layouts: &[PlaneLayout], address: u64) -> (Vec<DevicePlane>, usize) {
    let mut bytes = 0;
    let temporary = |layout: &PlaneLayout| {
        let pitch = layout.row_bytes().next_multiple_of(WORKSPACE_ALIGNMENT);
        let plane = DevicePlane { address: address + bytes as u64, pitch, len: pitch * layout.height as usize };
        bytes += plane.len;
        plane
    };
    (layouts.iter().map(temporary).collect(), bytes)
}

struct Buffers<'a> {
    planes: &'a DevicePlanes,
    temporaries: Vec<DevicePlane>,
}

impl Buffers<'_> {
    /// The rows of a view as a plane.
    fn plane(&self, view: &View) -> DevicePlane {
        let plane = match view.buffer {
            Buffer::Source(index) => &self.planes.sources[index],
            Buffer::Destination(index) => &self.planes.destinations[index],
            Buffer::Temporary(index) => &self.temporaries[index],
        };
        view.field.rows_of(plane)
    }

    fn alpha_plane(&self, alpha: &AlphaSource) -> DevicePlane {
        match alpha {
            AlphaSource::Plane { view, .. } => self.plane(view),
            AlphaSource::Channel(_) => DevicePlane::default(),
        }
    }

    /// The command of an operation other than a blur.
    fn command(&self, operation: &Operation, rows: &Range<u32>) -> Command<'static> {
        let launch = |kernel, view: &View, alpha: Option<&AlphaSource>, mask, planes| {
            Command::Launch(alpha::launch(kernel, &view.field.layout, alpha, mask, &planes))
        };
        match operation {
            Operation::Copy { source, destination } => {
                let [source_rows, destination] =
                    [source, destination].map(|view| self.plane(view).from_row(rows.start as usize));
                let row_bytes = source.field.layout.row_bytes();
                Command::Copy(PlaneCopy { source: source_rows, destination, row_bytes, rows: rows.len() })
            }
            Operation::Premultiply { source, alpha, premultiplied } => {
                let planes = AlphaPlanes {
                    source: self.plane(source),
                    premultiplied: self.plane(premultiplied),
                    alpha: self.alpha_plane(alpha),
                    ..AlphaPlanes::default()
                };
                launch(Kernel::Premultiply, source, Some(alpha), 0, planes)
            }
            Operation::Unpremultiply { premultiplied, alpha, source, destination, passthrough_mask } => {
                let planes = AlphaPlanes {
                    source: self.plane(source),
                    destination: self.plane(destination),
                    premultiplied: self.plane(premultiplied),
                    alpha: self.alpha_plane(alpha),
                };
                launch(Kernel::Unpremultiply, source, Some(alpha), *passthrough_mask, planes)
            }
            Operation::RestoreChannels { source, destination, passthrough_mask } => {
                let planes = AlphaPlanes {
                    source: self.plane(source),
                    destination: self.plane(destination),
                    ..AlphaPlanes::default()
                };
                launch(Kernel::Unpremultiply, source, None, *passthrough_mask, planes)
            }
            Operation::Blur { .. } => unreachable!("blurs are batched"),
        }
    }
}
