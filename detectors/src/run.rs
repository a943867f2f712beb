// SPDX-License-Identifier: MPL-2.0
//! Runs a network on the processor. If only the next layer reads the output of a layer, both layers are computed together, row by
//! row, so that rows with many channels stay in the cache.

use std::{ops::Range, sync::Mutex};

use rayon::{ThreadPool, ThreadPoolBuilder};

use crate::{
    kernels::{BORDER, Instructions, Operation, Row},
    network::{Activation, Layer, Network},
};

/// The largest plane, in bytes, that is stored although only the next layer reads it. Larger planes do not fit into the cache.
const STORED: usize = 1 << 20;
/// The smallest number of rows in a band, for chains of layers with windows. Each band computes the rows around its edges once
/// more.
const LEAST_ROWS: usize = 12;

/// Floats that start at a multiple of 64 bytes, so that no vector crosses a cache line.
#[derive(Default)]
struct Floats {
    data: Vec<f32>,
    start: usize,
}

impl Floats {
    /// Sets the number of values. Memory that is large enough is used again.
    fn resize(&mut self, count: usize) {
        self.data.resize(count + 16, 0.);
        self.start = self.data.as_ptr().align_offset(64).min(16);
    }

    fn get(&self) -> &[f32] {
        &self.data[self.start..]
    }

    fn get_mut(&mut self) -> &mut [f32] {
        &mut self.data[self.start..]
    }
}

/// A plane: rows of pixels, surrounded by a border of zeros.
#[derive(Default)]
pub struct Plane {
    pub width: usize,
    pub height: usize,
    pub channels: usize,
    data: Floats,
}

impl Plane {
    /// Sets width, height and number of channels. The border is zero; the pixels have any value until they are written.
    fn resize(&mut self, [width, height, channels]: [usize; 3]) {
        (self.width, self.height, self.channels) = (width, height, channels);
        let (pitch, border) = (self.pitch(), BORDER * channels);
        self.data.resize(pitch * (height + 2 * BORDER));
        let data = &mut self.data.get_mut()[..pitch * (height + 2 * BORDER)];
        let (above, rest) = data.split_at_mut(BORDER * pitch);
        let (rows, below) = rest.split_at_mut(height * pitch);
        above.fill(0.);
        below.fill(0.);
        for row in rows.chunks_exact_mut(pitch) {
            row[..border].fill(0.);
            row[pitch - border..].fill(0.);
        }
    }

    fn pitch(&self) -> usize {
        (self.width + 2 * BORDER) * self.channels
    }

    /// A row without its border.
    pub fn row(&self, row: usize) -> &[f32] {
        &self.data.get()[(row + BORDER) * self.pitch()..][BORDER * self.channels..][..self.width * self.channels]
    }

    /// Calls `work` for each row, with one of `workers` and the number of the row, on as many threads as there are workers.
    fn fill<W: Send>(&mut self, workers: &mut [W], least: usize, work: impl Fn(&mut W, usize, &mut [f32]) + Sync) {
        let (pitch, border, height, threads) = (self.pitch(), BORDER * self.channels, self.height, workers.len());
        let rest = Mutex::new((0, &mut self.data.get_mut()[BORDER * pitch..][..height * pitch]));
        // The bands become smaller and smaller, so that all threads finish at about the same time.
        let next = || {
            let mut rest = rest.lock().unwrap();
            let (first, left) = (rest.0, height - rest.0);
            let band = if threads == 1 { left } else { left / (2 * threads) };
            let count = band.max(least.min(height.div_ceil(threads))).min(left);
            rest.0 += count;
            rest.1.split_off_mut(..count * pitch).filter(|rows| !rows.is_empty()).map(|rows| (first, rows))
        };
        let fill = |worker: &mut W| {
            while let Some((first, rows)) = next() {
                for (row, data) in (first..).zip(rows.chunks_exact_mut(pitch)) {
                    work(worker, row, &mut data[border..pitch - border]);
                }
            }
        };
        match workers {
            [worker] => fill(worker),
            _ => rayon::scope(|scope| workers.iter_mut().for_each(|worker| scope.spawn(|_| fill(worker)))),
        }
    }
}

/// The height of the plane that stores a ring buffer. With its borders, the plane has four rows.
const RING: usize = 4 - 2 * BORDER;

/// The latest three rows of a plane, as a ring buffer of one thread. A fourth row holds zeros, which stand for rows outside of
/// the plane.
#[derive(Default)]
struct Ring {
    rows: Plane,
    height: usize,
    /// The row after the latest one.
    next: usize,
}

/// The state of a thread: a ring buffer for each plane that is not stored, and the last computed row of the chain's output.
#[derive(Default)]
struct Worker {
    rings: Vec<Ring>,
    latest: Option<usize>,
}

pub struct Runner {
    network: Network,
    instructions: Instructions,
    /// The threads, if there are more than one.
    pool: Option<ThreadPool>,
    planes: Vec<Plane>,
    /// Ranges of layers that are computed together, row by row. Only the output of the last layer of a range is stored.
    chains: Vec<Range<usize>>,
    workers: Vec<Worker>,
    /// Planes of at most this many bytes are stored even if only the next layer reads them. Set this field before the first
    /// picture.
    pub stored: usize,
}

impl Runner {
    /// Makes a runner. `Err` says why its threads cannot be started.
    pub fn new(network: Network, instructions: Instructions, threads: usize) -> Result<Self, String> {
        let threads = threads.max(1);
        let pool = ThreadPoolBuilder::new().num_threads(threads).thread_name(|i| format!("detector-{i}"));
        let pool = (threads > 1).then(|| pool.build()).transpose();
        let pool = pool.map_err(|error| format!("its threads cannot be started: {error}"))?;
        let planes = network.planes.iter().map(|_| Plane::default()).collect();
        let rings = || network.layers.iter().map(|_| Ring::default()).collect();
        let workers = (0..threads).map(|_| Worker { rings: rings(), latest: None }).collect();
        Ok(Self { network, instructions, pool, planes, chains: Vec::new(), workers, stored: STORED })
    }

    pub fn network(&self) -> &Network {
        &self.network
    }

    /// Width and height of the picture that the network was made for.
    ///
    /// # Panics
    /// If the file of the network does not state them.
    pub fn size(&self) -> [usize; 2] {
        self.network.size.expect("the file states the size")
    }

    /// The plane of the network's output with this number.
    pub fn output(&self, number: usize) -> &Plane {
        &self.planes[self.network.outputs[number]]
    }

    /// Computes the outputs for a picture whose sides are multiples of `Network::multiple`. `read` writes a row of the picture:
    /// red, green and blue of each pixel, in the range for which the network was trained.
    pub fn run(&mut self, width: usize, height: usize, read: impl Fn(usize, &mut [f32]) + Sync) {
        if [self.planes[0].width, self.planes[0].height] != [width, height] {
            self.resize(width, height);
        }
        let Self { network, instructions, pool, planes, chains, workers, .. } = self;
        let mut work = || {
            planes[0].fill(workers, LEAST_ROWS, |_, row, output| read(row, output));
            for chain in &*chains {
                let layers = &network.layers[chain.clone()];
                let last = layers[layers.len() - 1].output;
                workers.iter_mut().for_each(|worker| worker.latest = None);
                let mut output = std::mem::take(&mut planes[last]);
                let has_windows = layers[1..].iter().any(|layer| layer.side() > 1);
                output.fill(workers, if has_windows { LEAST_ROWS } else { 1 }, |worker, row, output| {
                    let rings = &mut worker.rings[chain.start..chain.end - 1];
                    // At the start of a band, the ring buffers have no rows of this band.
                    if worker.latest.replace(row).is_none_or(|latest| latest + 1 != row) {
                        let mut first = row;
                        for (ring, reader) in rings.iter_mut().zip(&layers[1..]).rev() {
                            first = reader.centre(first).saturating_sub(reader.side() / 2);
                            ring.next = first;
                        }
                    }
                    compute(layers, rings, planes, *instructions, row, output);
                });
                planes[last] = output;
            }
        };
        match pool {
            Some(pool) => pool.install(work),
            None => work(),
        }
    }

    fn resize(&mut self, width: usize, height: usize) {
        let Network { layers, planes, outputs, .. } = &self.network;
        let size = |plane: usize| {
            let [width, height] = [width, height].map(|side| planes[plane].halved.map_or(1, |halved| side >> halved));
            [width, height, planes[plane].channels]
        };
        let read = || layers.iter().flat_map(Layer::reads);
        let readers = |plane: usize| read().filter(|read| *read == plane).count();
        self.planes[0].resize([width, height, 3]);
        self.chains.clear();
        let mut start = 0;
        for (number, layer) in layers.iter().enumerate() {
            let [width, height, channels] = size(layer.output);
            let is_stored = layers.get(number + 1).is_none_or(|next| next.input != layer.output || next.needs_plane())
                || readers(layer.output) > 1
                || outputs.contains(&layer.output)
                || channels < planes[layer.input].channels
                || width * height * channels * size_of::<f32>() <= self.stored;
            if is_stored {
                self.planes[layer.output].resize([width, height, channels]);
                self.chains.push(start..number + 1);
                start = number + 1;
            }
            for ring in self.workers.iter_mut().map(|worker| &mut worker.rings[number]).filter(|_| !is_stored) {
                ring.rows.resize([width, RING, channels]);
                (ring.height, ring.next) = (height, 0);
            }
        }
    }
}

/// Computes a row of the last layer. First computes the rows of the earlier layers that it needs.
fn compute(layers: &[Layer], rings: &mut [Ring], planes: &[Plane], set: Instructions, row: usize, output: &mut [f32]) {
    let (layer, before) = layers.split_last().expect("a chain has a layer");
    if matches!(layer.operation, Operation::Mean) {
        mean(&planes[layer.input], output);
    } else {
        let (centre, reach) = (layer.centre(row), layer.side() / 2);
        // The numbers of the rows around the centre, in a plane or a ring buffer with borders. Rows outside are zeros.
        let mut numbers = [0, 1, 2, 3, 4].map(|place| centre + place);
        let input = if let Some((ring, rings)) = rings.split_last_mut() {
            while ring.next <= (centre + reach).min(ring.height - 1) {
                let (number, pitch, border) = (ring.next, ring.rows.pitch(), BORDER * ring.rows.channels);
                let data = &mut ring.rows.data.get_mut()[number % 3 * pitch..][border..pitch - border];
                compute(before, rings, planes, set, number, data);
                ring.next += 1;
            }
            let is_inside = |number| (BORDER..BORDER + ring.height).contains(&number);
            numbers = numbers.map(|number| if is_inside(number) { (number - BORDER) % 3 } else { 3 });
            &ring.rows
        } else {
            let input = &planes[layer.input];
            if matches!(layer.operation, Operation::Enlarge) {
                numbers = numbers.map(|number| number.clamp(BORDER, BORDER + input.height - 1));
            }
            input
        };
        let inputs = numbers.map(|number| &input.data.get()[number * input.pitch()..][..input.pitch()]);
        let add = layer.add.map(|add| planes[add].row(row));
        let factors = layer.factors.map(|factors| planes[factors].row(0));
        let (is_odd, relu) = (row % 2 == 1, layer.activation == Activation::Relu);
        let row = Row { operation: &layer.operation, channels: input.channels, inputs, factors, is_odd, relu, add };
        row.compute(set, output);
    }
    match layer.activation {
        Activation::None | Activation::Relu => {}
        Activation::HardSwish => output.iter_mut().for_each(|value| *value *= (*value + 3.).clamp(0., 6.) / 6.),
        Activation::Sigmoid => output.iter_mut().for_each(|value| *value = 1. / (1. + (-*value).exp())),
    }
}

/// The mean of all pixels of a plane.
fn mean(plane: &Plane, output: &mut [f32]) {
    let mut sums = vec![0.; plane.channels];
    output.fill(0.);
    for row in 0..plane.height {
        // The sums of each row are computed separately, so that sums of many values stay accurate.
        sums.fill(0.);
        for pixel in plane.row(row).chunks_exact(plane.channels) {
            sums.iter_mut().zip(pixel).for_each(|(sum, value)| *sum += value);
        }
        output.iter_mut().zip(&sums).for_each(|(output, sum)| *output += sum);
    }
    output.iter_mut().for_each(|value| *value /= (plane.width * plane.height) as f32);
}
