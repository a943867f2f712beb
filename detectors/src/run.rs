// SPDX-License-Identifier: MPL-2.0
//! Runs a network on the processor. Layers whose output only the next one reads run row by row together, so that rows of many
//! channels stay in the cache.

use std::{ops::Range, sync::Mutex};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::{
    kernels::{self, Instructions, Rows, Then},
    network::{Layer, Network, Operation},
};

/// Planes of more bytes than this are not stored, where that can be avoided.
const STORED: usize = 1 << 20;

/// Floats from an address on that is a multiple of 64, so that no vector lies in two lines of the cache.
#[derive(Default)]
struct Floats {
    data: Vec<f32>,
    start: usize,
}

impl Floats {
    fn zeros(count: usize) -> Self {
        let data = vec![0.; count + 16];
        let start = data.as_ptr().align_offset(64).min(16);
        Self { data, start }
    }

    fn get(&self) -> &[f32] {
        &self.data[self.start..]
    }

    fn get_mut(&mut self) -> &mut [f32] {
        &mut self.data[self.start..]
    }
}

/// Rows of pixels in a border of one pixel of zeros.
#[derive(Default)]
pub struct Plane {
    pub width: usize,
    pub height: usize,
    pub channels: usize,
    data: Floats,
}

impl Plane {
    /// What is inside the border stays if the size stays.
    fn resize(&mut self, width: usize, height: usize, channels: usize) {
        if (self.width, self.height, self.channels) != (width, height, channels) {
            self.data = Floats::zeros((width + 2) * (height + 2) * channels);
            (self.width, self.height, self.channels) = (width, height, channels);
        }
    }

    fn pitch(&self) -> usize {
        (self.width + 2) * self.channels
    }

    /// A row with its border, counted from -1.
    fn bordered(&self, row: isize) -> &[f32] {
        &self.data.get()[(row + 1) as usize * self.pitch()..][..self.pitch()]
    }

    /// A row without its border.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.bordered(row as isize)[self.channels..][..self.width * self.channels]
    }

    /// Calls `work` with rows of this plane, their number and one of `workers`, on the workers' threads.
    fn fill<W: Send>(&mut self, workers: &mut [W], least: usize, work: impl Fn(&mut W, usize, &mut [f32]) + Sync) {
        let (pitch, channels, threads) = (self.pitch(), self.channels, workers.len());
        let height = self.height;
        let rest = Mutex::new((0, &mut self.data.get_mut()[pitch..][..height * pitch]));
        // Bands that get smaller, so that all threads end at about the same time.
        let next = || {
            let mut rest = rest.lock().unwrap();
            let (first, left) = (rest.0, height - rest.0);
            let count = if threads == 1 {
                left
            } else {
                (left / (2 * threads)).max(least.min(height.div_ceil(threads))).min(left)
            };
            rest.0 += count;
            rest.1.split_off_mut(..count * pitch).filter(|rows| !rows.is_empty()).map(|rows| (first, rows))
        };
        rayon::scope(|scope| {
            for worker in workers {
                scope.spawn(|_| {
                    while let Some((first, rows)) = next() {
                        for (row, data) in (first..).zip(rows.chunks_exact_mut(pitch)) {
                            work(worker, row, &mut data[channels..pitch - channels]);
                        }
                    }
                });
            }
        });
    }
}

/// The latest three rows of a plane that is not stored, with their borders, and a row of zeros.
#[derive(Default)]
struct Ring {
    width: usize,
    height: usize,
    channels: usize,
    /// The row after the last one.
    next: usize,
    data: Floats,
}

impl Ring {
    fn pitch(&self) -> usize {
        (self.width + 2) * self.channels
    }

    /// A row with its border, counted from -1.
    fn bordered(&self, row: isize) -> &[f32] {
        let slot = if (0..self.height as isize).contains(&row) { row as usize % 3 } else { 3 };
        &self.data.get()[slot * self.pitch()..][..self.pitch()]
    }
}

/// What a thread keeps: a ring for each layer but the last one of a chain, and the row that it has computed last.
#[derive(Default)]
struct Worker {
    rings: Vec<Ring>,
    latest: Option<usize>,
}

pub struct Runner {
    pub network: Network,
    instructions: Instructions,
    pool: ThreadPool,
    planes: Vec<Plane>,
    chains: Vec<Range<usize>>,
    workers: Vec<Worker>,
}

impl Runner {
    pub fn new(network: Network, instructions: Instructions, threads: usize) -> Result<Self, String> {
        let pool = ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("detector-{i}")).build();
        let pool = pool.map_err(|error| format!("its threads cannot be started: {error}"))?;
        let planes = network.planes.iter().map(|_| Plane::default()).collect();
        let workers = (0..threads).map(|_| Worker::default()).collect();
        Ok(Self { network, instructions, pool, planes, chains: Vec::new(), workers })
    }

    /// The plane of the network's output of this number.
    pub fn output(&self, number: usize) -> &Plane {
        &self.planes[self.network.outputs[number]]
    }

    /// Computes the outputs for a picture whose sides are multiples of `Network::multiple`. `read` writes a row of it: red, green
    /// and blue, 0 to 255, of each pixel.
    pub fn run(&mut self, width: usize, height: usize, read: impl Fn(usize, &mut [f32]) + Sync) {
        if (self.planes[0].width, self.planes[0].height) != (width, height) {
            self.resize(width, height);
        }
        let Self { network, instructions, pool, planes, chains, workers } = self;
        pool.install(|| {
            planes[0].fill(workers, 16, |_, row, output| read(row, output));
            for chain in &*chains {
                let layers = &network.layers[chain.clone()];
                let last = &layers[layers.len() - 1];
                let mut output = std::mem::take(&mut planes[last.output]);
                let is_windowed = layers[1..].iter().any(|layer| layer.side() > 1);
                for worker in &mut *workers {
                    worker.rings.resize_with(layers.len() - 1, Ring::default);
                    for (layer, ring) in layers.iter().zip(&mut worker.rings) {
                        let shape = network.planes[layer.output];
                        (ring.width, ring.height, ring.channels) =
                            (width >> shape.shift, height >> shape.shift, shape.channels);
                        let pitch = ring.pitch();
                        if ring.data.get().len() < pitch * 4 {
                            ring.data = Floats::zeros(pitch * 4);
                        }
                        for slot in ring.data.get_mut()[..pitch * 4].chunks_exact_mut(pitch) {
                            slot[..shape.channels].fill(0.);
                            slot[pitch - shape.channels..].fill(0.);
                        }
                        ring.data.get_mut()[pitch * 3..].fill(0.);
                    }
                    worker.latest = None;
                }
                output.fill(
                    workers,
                    if is_windowed { std::env::var("LE").map_or(12, |v| v.parse().unwrap()) } else { 1 },
                    |worker, row, output| {
                        let Worker { rings, latest } = worker;
                        // Another band begins: its rows are computed anew.
                        if latest.replace(row).is_none_or(|latest| latest + 1 != row) {
                            let mut first = row;
                            for (ring, reader) in rings.iter_mut().zip(&layers[1..]).rev() {
                                first = reader.centre(first).saturating_sub(reader.side() / 2);
                                ring.next = first;
                            }
                        }
                        compute(layers, rings, planes, *instructions, row, output);
                    },
                );
                planes[last.output] = output;
            }
        });
    }

    fn resize(&mut self, width: usize, height: usize) {
        let network = &self.network;
        let readers =
            |plane| network.layers.iter().filter(|layer| layer.input == plane || layer.add == Some(plane)).count();
        let size =
            |plane: usize| (width * height * 4 * network.planes[plane].channels) >> (2 * network.planes[plane].shift);
        self.chains.clear();
        let mut start = 0;
        for (number, layer) in network.layers.iter().enumerate() {
            let channels = |plane: usize| network.planes[plane].channels;
            let is_stored = network.layers.get(number + 1).is_none_or(|next| next.input != layer.output)
                || readers(layer.output) > 1
                || network.outputs.contains(&layer.output)
                || channels(layer.output) < channels(layer.input)
                || size(layer.output) <= std::env::var("ST").map_or(STORED, |v| v.parse().unwrap());
            if is_stored {
                let shape = network.planes[layer.output];
                self.planes[layer.output].resize(width >> shape.shift, height >> shape.shift, shape.channels);
                self.chains.push(start..number + 1);
                start = number + 1;
            }
        }
        self.planes[0].resize(width, height, 3);
    }
}

/// Computes a row of the last layer, after the rows of the layers before it that it needs.
fn compute(layers: &[Layer], rings: &mut [Ring], planes: &[Plane], set: Instructions, row: usize, output: &mut [f32]) {
    let (layer, before) = layers.split_last().unwrap();
    let (centre, side) = (layer.centre(row), layer.side());
    if let Some((ring, rings)) = rings.split_last_mut() {
        while ring.next <= (centre + side / 2).min(ring.height - 1) {
            let (next, pitch, channels) = (ring.next, ring.pitch(), ring.channels);
            compute(
                before,
                rings,
                planes,
                set,
                next,
                &mut ring.data.get_mut()[next % 3 * pitch..][channels..pitch - channels],
            );
            ring.next += 1;
        }
        let channels = ring.channels;
        let ring = &*ring;
        kernel(layer, |row| ring.bordered(row), channels, planes, set, row, output);
    } else {
        let input = &planes[layer.input];
        kernel(layer, |row| input.bordered(row), input.channels, planes, set, row, output);
    }
}

/// Computes a row of a layer from rows of its input with their borders.
fn kernel<'a>(
    layer: &Layer,
    input: impl Fn(isize) -> &'a [f32],
    channels: usize,
    planes: &[Plane],
    set: Instructions,
    row: usize,
    output: &mut [f32],
) {
    let centre = layer.centre(row) as isize;
    let then = Then { relu: layer.relu, add: layer.add.map(|add| planes[add].row(row)) };
    let window = |stride| Rows { rows: [centre - 1, centre, centre + 1].map(&input), step: stride * channels };
    let pixel = || Rows { rows: [&input(centre)[channels..]], step: channels };
    match &layer.operation {
        Operation::Dense { weights, side: 1, .. } => {
            kernels::dense(set, weights, pixel(), output.len() / weights.outputs, output, then);
        }
        Operation::Dense { weights, stride, .. } => {
            kernels::dense(set, weights, window(*stride), output.len() / weights.outputs, output, then);
        }
        Operation::Depthwise { weights, stride } => {
            kernels::depthwise(set, weights, window(*stride), output.len() / weights.channels(), output, then);
        }
        Operation::Double(weights) => {
            let weights = &weights[row % 2];
            kernels::dense(set, weights, pixel(), output.len() / weights.outputs, output, then);
        }
    }
}
