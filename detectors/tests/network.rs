// SPDX-License-Identifier: MPL-2.0
//! Networks made by chance, of all operations and sizes, against a naive implementation on 64-bit floats.

use std::collections::HashMap;

use gstdetectors::graph::{Graph, Node, Tensor};
use gstdetectors::kernels::Instructions;
use gstdetectors::network::Network;
use gstdetectors::run::Runner;

/// Numbers that look random (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ self.0 >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb) >> 32
    }

    fn below(&mut self, limit: usize) -> usize {
        self.next() as usize % limit
    }

    /// From -1 to 1.
    fn float(&mut self) -> f32 {
        self.below(2001) as f32 / 1000. - 1.
    }
}

fn name(kind: &str, number: usize) -> &'static str {
    Box::leak(format!("{kind}{number}").into_boxed_str())
}

/// A graph that grows by one tensor after another.
struct Grown {
    graph: Graph<'static>,
    random: Random,
    /// Name, channels and how often halved, of each tensor that others may read.
    tensors: Vec<(&'static str, usize, u32)>,
    /// How often what is special has occurred.
    features: HashMap<&'static str, usize>,
}

impl Grown {
    fn new(seed: u64) -> Self {
        let tensors = vec![("picture", 3, 0)];
        Self { graph: Graph::default(), random: Random(seed), tensors, features: HashMap::new() }
    }

    fn count(&mut self, feature: &'static str, is_here: bool) {
        *self.features.entry(feature).or_insert(0) += usize::from(is_here);
    }

    fn constant(&mut self, dims: &[usize]) -> &'static str {
        let values = (0..dims.iter().product()).map(|_| self.random.float()).collect();
        let name = name("constant", self.graph.constants.len());
        self.graph.constants.insert(name, Tensor { dims: dims.to_vec(), values });
        name
    }

    /// Weights of sums of so many values. They are so small that values stay near 1, where a sigmoid has its slope.
    fn weights(&mut self, dims: &[usize], inputs: usize) -> &'static str {
        let name = self.constant(dims);
        let scale = 1.5 / (inputs as f32).sqrt();
        self.graph.constants.get_mut(name).unwrap().values.iter_mut().for_each(|value| *value *= scale);
        name
    }

    fn node(
        &mut self,
        operator: &'static str,
        inputs: Vec<&'static str>,
        integers: &[(&'static str, &[u64])],
    ) -> &'static str {
        let output = name("tensor", self.graph.nodes.len());
        let integers = integers.iter().map(|(name, values)| (*name, values.to_vec())).collect();
        self.graph.nodes.push(Node { operator, inputs, outputs: vec![output], integers, floats: HashMap::new() });
        output
    }

    /// A convolution of a tensor, or another operation, perhaps with what may follow it.
    fn grow(&mut self) {
        let (input, channels, halved) =
            self.tensors[self.tensors.len() - 1 - self.random.below(self.tensors.len().min(3))];
        let mut outputs = 1 + self.random.below(40);
        let stride = if halved == 5 { 1 } else { 1 + self.random.next() % 2 };
        let halved_by_stride = halved + u32::from(stride == 2);
        let kind = self.random.below(8);
        let side = if (kind == 1 || kind == 2) && channels >= 16 { [3, 5][self.random.below(2)] } else { 3 };
        // As in ONNX, or as TensorFlow does it, with more zeros below and on the right.
        let half = side as u64 / 2;
        let pads = if stride == 2 && self.random.below(3) > 0 { [half - 1, half - 1, half, half] } else { [half; 4] };
        let integers: [(_, &[u64]); 2] = [("strides", &[stride; 2]), ("pads", &pads)];
        let (mut output, halved) = match kind {
            0 | 7 if halved > 0 => {
                let weights = self.weights(&[channels, outputs, 2, 2], channels);
                (self.node("ConvTranspose", vec![input, weights], &[("strides", &[2, 2])]), halved - 1)
            }
            1 | 2 if channels >= 16 => {
                outputs = channels;
                let weights = self.weights(&[channels, 1, side, side], side * side);
                let inputs = vec![input, weights, self.constant(&[channels])];
                self.count("windows of 5x5", side == 5);
                self.count("depthwise, no multiple of 16 channels", !channels.is_multiple_of(16));
                self.count("more zeros below", pads[0] != pads[2]);
                let integers = [integers[0], integers[1], ("group", &[channels as u64])];
                (self.node("Conv", inputs, &integers), halved_by_stride)
            }
            3 | 5 if halved > 0 => {
                outputs = channels;
                (self.node("Resize", vec![input], &[]), halved - 1)
            }
            4 => {
                outputs = channels;
                let middle = 1 + self.random.below(20);
                let mean = self.node("GlobalAveragePool", vec![input], &[]);
                let inputs = vec![mean, self.weights(&[middle, channels, 1, 1], channels), self.constant(&[middle])];
                let mut factors = self.node("Conv", inputs, &[]);
                factors = self.node("Relu", vec![factors], &[]);
                let inputs = vec![factors, self.weights(&[channels, middle, 1, 1], middle)];
                factors = self.node("Conv", inputs, &[]);
                factors = self.node("Sigmoid", vec![factors], &[]);
                let inputs = if self.random.below(2) == 0 { vec![input, factors] } else { vec![factors, input] };
                (self.node("Mul", inputs, &[]), halved)
            }
            6 => {
                // Often as many as a depthwise convolution takes.
                outputs = [outputs, 16, 24, 40][self.random.below(4)];
                let weights = self.weights(&[outputs, channels, 1, 1], channels);
                let inputs = vec![input, weights, self.constant(&[outputs])];
                (self.node("Conv", inputs, &[]), halved)
            }
            _ => {
                let inputs = vec![input, self.weights(&[outputs, channels, 3, 3], 9 * channels)];
                (self.node("Conv", inputs, &integers), halved_by_stride)
            }
        };
        let node = self.graph.nodes.last().unwrap();
        let is_dense = node.operator.starts_with("Conv") && !node.integers.contains_key("group");
        let is_convolution = node.operator.starts_with("Conv");
        if is_dense && self.random.below(3) == 0 {
            let [scale, bias, mean] = [(); 3].map(|()| self.constant(&[outputs]));
            let variance = self.constant(&[outputs]);
            let variances = &mut self.graph.constants.get_mut(variance).unwrap().values;
            variances.iter_mut().for_each(|value| *value = value.abs() + 0.1);
            output = self.node("BatchNormalization", vec![output, scale, bias, mean, variance], &[]);
        }
        let activation = ["", "Relu", "Relu", "HardSwish", "HardSwish", "Sigmoid"][self.random.below(6)];
        if is_convolution && !activation.is_empty() {
            output = self.node(activation, vec![output], &[]);
        }
        let other =
            self.tensors.iter().rev().find(|tensor| (tensor.1, tensor.2) == (outputs, halved)).map(|tensor| tensor.0);
        if let Some(other) = other.filter(|_| self.random.below(2) == 0) {
            // Others read it, too.
            if self.random.below(3) == 0 {
                self.tensors.push((output, outputs, halved));
                self.count("several readers", true);
            }
            self.count("HardSwish before Add", is_convolution && activation == "HardSwish");
            self.count("Mul before Add", self.graph.nodes.last().unwrap().operator == "Mul");
            let inputs = if self.random.below(2) == 0 { vec![other, output] } else { vec![output, other] };
            output = self.node("Add", inputs, &[]);
        }
        self.tensors.push((output, outputs, halved));
    }
}

/// Channels, height, width, and the values in this order.
type Values = ([usize; 3], Vec<f64>);

/// The values of all tensors, node by node.
fn naive(graph: &Graph<'static>, picture: Values) -> HashMap<&'static str, Values> {
    let mut all = HashMap::from([("picture", picture)]);
    for node in &graph.nodes {
        let ([channels, height, width], input) = &all[node.inputs[0]];
        let is_read = graph.nodes.iter().any(|other| other.inputs.contains(&node.outputs[0]));
        let constant = |input: usize| node.inputs.get(input).map(|name| &graph.constants[name]);
        let integer = |name: &str, default| node.integers.get(name).map_or(default, |values| values[0] as usize);
        let output: Values = match node.operator {
            "Conv" => {
                let (weights, bias) = (constant(1).unwrap(), constant(2));
                let [outputs, share, side, _] = weights.dims[..] else { unreachable!() };
                let (stride, pad, groups) = (integer("strides", 1), integer("pads", 0), integer("group", 1));
                let (high, wide) = (height / stride, width / stride);
                let mut values = Vec::new();
                for (o, y, x) in (0..outputs).flat_map(|o| (0..high * wide).map(move |i| (o, i / wide, i % wide))) {
                    let mut sum = bias.map_or(0., |bias| f64::from(bias.values[o]));
                    for (c, i, j) in (0..share).flat_map(|c| (0..side * side).map(move |i| (c, i / side, i % side))) {
                        let (row, column) = ((y * stride + i).wrapping_sub(pad), (x * stride + j).wrapping_sub(pad));
                        if row < *height && column < *width {
                            let weight = weights.values[((o * share + c) * side + i) * side + j];
                            let channel = o / (outputs / groups) * share + c;
                            sum += f64::from(weight) * input[(channel * height + row) * width + column];
                        }
                    }
                    values.push(sum);
                }
                ([outputs, high, wide], values)
            }
            "ConvTranspose" => {
                let weights = constant(1).unwrap();
                let (outputs, high, wide) = (weights.dims[1], height * 2, width * 2);
                let value = |o: usize, y: usize, x: usize| {
                    let weight = |c| f64::from(weights.values[((c * outputs + o) * 2 + y % 2) * 2 + x % 2]);
                    (0..*channels).map(|c| weight(c) * input[(c * height + y / 2) * width + x / 2]).sum()
                };
                let places = (0..outputs * high * wide).map(|i| value(i / (high * wide), i / wide % high, i % wide));
                ([outputs, high, wide], places.collect())
            }
            "BatchNormalization" => {
                let [scale, bias, mean, variance] = [1, 2, 3, 4].map(|input| constant(input).unwrap());
                let value = |(i, value): (usize, &f64)| {
                    let [scale, bias, mean, variance] =
                        [scale, bias, mean, variance].map(|tensor| f64::from(tensor.values[i / (height * width)]));
                    (value - mean) / (variance + 1e-5).sqrt() * scale + bias
                };
                ([*channels, *height, *width], input.iter().enumerate().map(value).collect())
            }
            "Relu" => ([*channels, *height, *width], input.iter().map(|value| value.max(0.)).collect()),
            "HardSwish" => {
                let value = |value: &f64| value * (value + 3.).clamp(0., 6.) / 6.;
                ([*channels, *height, *width], input.iter().map(value).collect())
            }
            // The consumer of an output applies its sigmoid.
            "Sigmoid" => {
                let value = |value: &f64| if is_read { 1. / (1. + (-value).exp()) } else { *value };
                ([*channels, *height, *width], input.iter().map(value).collect())
            }
            "GlobalAveragePool" => {
                let means = input.chunks_exact(height * width).map(|values| values.iter().sum::<f64>());
                ([*channels, 1, 1], means.map(|sum| sum / (height * width) as f64).collect())
            }
            "Mul" => {
                let other = &all[node.inputs[1]];
                let ((_, factors), (size, values)) = if height * width == 1 {
                    ((channels, input), other)
                } else {
                    ((&other.0[0], &other.1), &all[node.inputs[0]])
                };
                let area = size[1] * size[2];
                (*size, values.iter().enumerate().map(|(i, value)| value * factors[i / area]).collect())
            }
            // From centre to centre.
            "Resize" => {
                let places = |side: usize| {
                    (0..2 * side).map(move |i| {
                        let place = ((i as f64 + 0.5) / 2. - 0.5).clamp(0., side as f64 - 1.);
                        (place as usize, (place as usize + 1).min(side - 1), place.fract())
                    })
                };
                let mut values = Vec::new();
                for plane in input.chunks_exact(height * width) {
                    for (above, below, down) in places(*height) {
                        values.extend(places(*width).map(|(left, right, along)| {
                            let row =
                                |y: usize| plane[y * width + left] * (1. - along) + plane[y * width + right] * along;
                            row(above) * (1. - down) + row(below) * down
                        }));
                    }
                }
                ([*channels, 2 * height, 2 * width], values)
            }
            "Add" => {
                ([*channels, *height, *width], input.iter().zip(&all[node.inputs[1]].1).map(|(a, b)| a + b).collect())
            }
            _ => unreachable!(),
        };
        all.insert(node.outputs[0], output);
    }
    all
}

/// CUDAGAUSSBLUR_NETWORKS says how many, where the processor is emulated.
#[test]
fn networks_made_by_chance_are_as_a_naive_implementation_has_them() {
    let networks = std::env::var("CUDAGAUSSBLUR_NETWORKS").map_or(120, |count| count.parse().unwrap());
    let (mut compared, mut operators) = (0, HashMap::new());
    let mut features = HashMap::new();
    for seed in 0..networks {
        let mut grown = Grown::new(seed as u64);
        while grown.tensors.len() < 9 {
            grown.grow();
        }
        let names: Vec<_> = grown.tensors[1..].iter().map(|tensor| tensor.0).collect();
        // Planes that nothing else reads are not stored, so that they run in chains: some are asked for, and some are not.
        let asked: Vec<_> =
            names.iter().copied().filter(|_| grown.random.below(3) == 0).chain(names.last().copied()).collect();
        let network = Network::new(&grown.graph, &asked).unwrap_or_else(|reason| panic!("seed {seed}: {reason}"));
        let multiple = network.multiple();
        let [width, height] = [(); 2].map(|()| multiple * (1 + grown.random.below(40 / multiple + 1)));
        let picture: Vec<_> = (0..3 * width * height).map(|_| f64::from(grown.random.float())).collect();
        let expected = naive(&grown.graph, ([3, height, width], picture.clone()));
        let read = |y: usize, row: &mut [f32]| {
            row.iter_mut()
                .enumerate()
                .for_each(|(i, value)| *value = picture[(i % 3 * height + y) * width + i / 3] as f32);
        };
        for instructions in Instructions::all() {
            let network = Network::new(&grown.graph, &asked).unwrap();
            let mut runner = Runner::new(network, instructions, 1 + seed % 3).unwrap();
            // All in chains where that is possible, or none.
            runner.stored = [0, usize::MAX][seed / 3 % 2];
            // The runs find what a larger picture, of which no value may stay, and the first one have left.
            runner.run(width + multiple, height + multiple, |_, row| row.fill(f32::NAN));
            (0..2).for_each(|_| runner.run(width, height, read));
            for (number, name) in asked.iter().enumerate() {
                let (plane, ([channels, height, width], values)) = (runner.output(number), &expected[name]);
                assert_eq!(
                    [plane.channels, plane.height, plane.width],
                    [*channels, *height, *width],
                    "seed {seed}, {name}"
                );
                let largest = values.iter().fold(1e-3, |largest: f64, value| largest.max(value.abs()));
                for (place, value) in values.iter().enumerate() {
                    let (channel, y, x) = (place / (height * width), place / width % height, place % width);
                    let found = f64::from(plane.row(y)[x * channels + channel]);
                    assert!(
                        (found - value).abs() <= 1e-5 * largest,
                        "seed {seed}, {instructions:?}, {name}, channel {channel}, row {y}, column {x}: {found}, not {value}"
                    );
                    compared += 1;
                }
            }
        }
        grown.graph.nodes.iter().for_each(|node| *operators.entry(node.operator).or_insert(0) += 1);
        grown.features.iter().for_each(|(feature, count)| *features.entry(*feature).or_insert(0) += count);
    }
    let is_all = operators.len() == 10 && operators.values().all(|count| *count >= networks / 3);
    assert!(compared > networks * 10_000 && is_all, "{compared}, {operators:?}");
    assert!(features.len() == 6 && features.values().all(|count| *count >= networks / 12), "{features:?}");
}

#[test]
fn graphs_that_are_not_supported_are_refused_with_a_reason() {
    type Change = fn(&mut Graph<'static>);
    let changes: [(Change, &str); 14] = [
        (|graph| graph.nodes[0].operator = "Clip", "Clip tensor0: this operator is not supported"),
        (|graph| _ = graph.constants.remove("constant0"), "Conv tensor0: constant0 is no constant of floats"),
        (
            |graph| graph.constants.get_mut("constant0").unwrap().dims = vec![16, 27],
            "its weights have the dimensions [16, 27]",
        ),
        (|graph| graph.constants.get_mut("constant0").unwrap().dims = vec![16, 3, 1, 9], "by weights [16, 3, 1, 9]"),
        (|graph| _ = graph.nodes[0].integers.insert("strides", vec![1, 2]), "its strides are [1, 2]"),
        (
            |graph| _ = graph.nodes[0].integers.insert("strides", vec![3, 3]),
            "stride 3, pads [1, 1, 1, 1], groups 1 are not supported",
        ),
        (|graph| _ = graph.nodes[0].integers.insert("pads", vec![0; 4]), "pads [0, 0, 0, 0]"),
        (|graph| _ = graph.nodes[0].integers.insert("dilations", vec![2; 2]), "it is dilated"),
        (|graph| _ = graph.nodes[0].integers.insert("group", vec![3]), "groups 3"),
        (|graph| graph.nodes[0].inputs.push("constant0"), "3 channels to 16"),
        (|graph| graph.nodes[1].inputs[0] = "absent", "Relu tensor1: nothing before it computes absent"),
        (|graph| graph.nodes[1].inputs[0] = "picture", "Relu tensor1: others read picture, too"),
        (|graph| graph.nodes[1].outputs.clear(), "a Relu has no output"),
        (
            |graph| {
                let inputs = vec!["tensor0", "tensor1"];
                graph.nodes.push(Node { operator: "Add", inputs, outputs: vec!["sum"], ..Node::default() });
            },
            "Relu tensor1: others read tensor0, too",
        ),
    ];
    let made = || {
        let mut grown = Grown::new(1);
        let weights = grown.constant(&[16, 3, 3, 3]);
        let output = grown.node("Conv", vec!["picture", weights], &[("pads", &[1; 4])]);
        grown.node("Relu", vec![output], &[]);
        grown.graph
    };
    assert!(Network::new(&made(), &["tensor1"]).is_ok());
    assert_eq!(Network::new(&made(), &["absent"]).err().as_deref(), Some("it has no output absent"));
    for (change, reason) in changes {
        let mut graph = made();
        change(&mut graph);
        let error = Network::new(&graph, &["tensor1"]).err().expect(reason);
        assert!(error.contains(reason), "{error:?} has no {reason:?}");
    }
}

#[test]
fn graphs_of_segmentation_that_are_not_supported_are_refused_with_a_reason() {
    type Change = fn(&mut Graph<'static>);
    fn push(
        graph: &mut Graph<'static>,
        operator: &'static str,
        inputs: &[&'static str],
        integers: &[(&'static str, &[u64])],
    ) {
        let integers = integers.iter().map(|(name, values)| (*name, values.to_vec())).collect();
        let outputs = vec![name("more", graph.nodes.len())];
        graph.nodes.push(Node { operator, inputs: inputs.to_vec(), outputs, integers, ..Node::default() });
    }
    fn constant(graph: &mut Graph<'static>, name: &'static str, dims: &[usize]) {
        let values = vec![1.; dims.iter().product()];
        graph.constants.insert(name, Tensor { dims: dims.to_vec(), values });
    }
    /// A convolution of a tensor of 16 channels.
    fn convolution(
        graph: &mut Graph<'static>,
        input: &'static str,
        dims: &[usize],
        integers: &[(&'static str, &[u64])],
    ) {
        constant(graph, "w", dims);
        push(graph, "Conv", &[input, "w"], integers);
    }
    let pixel = "its inputs are not a plane, and a plane of one pixel with as many channels";
    let changes: [(Change, &str); 30] = [
        (|graph| graph.nodes[5].inputs = vec!["tensor1", "tensor1"], pixel),
        (|graph| graph.nodes[5].inputs = vec!["picture", "tensor4"], pixel),
        (
            |graph| {
                constant(graph, "constant1", &[17, 16, 1, 1]);
            },
            pixel,
        ),
        (|graph| _ = graph.nodes[5].inputs.pop(), "Mul tensor5: an input is missing"),
        (|graph| graph.nodes[6].inputs[0] = "picture", "Resize tensor6: its result would be larger than the picture"),
        (|graph| graph.nodes[6].inputs[0] = "tensor2", "Resize tensor6: its result would be larger than the picture"),
        (|graph| graph.nodes[2].inputs.clear(), "GlobalAveragePool tensor2: an input is missing"),
        // Activations.
        (|graph| push(graph, "HardSwish", &["tensor5"], &[]), "HardSwish more7: others read tensor5, too"),
        (|graph| graph.nodes[6].operator = "HardSwish", "HardSwish tensor6: it follows no convolution"),
        (
            |graph| {
                push(graph, "GlobalAveragePool", &["tensor6"], &[]);
                push(graph, "Relu", &["more7"], &[]);
            },
            "Relu more8: it follows no convolution",
        ),
        (
            |graph| {
                push(graph, "GlobalAveragePool", &["tensor6"], &[]);
                push(graph, "Sigmoid", &["more7"], &[]);
                push(graph, "GlobalAveragePool", &["more8"], &[]);
            },
            "Sigmoid more8: it follows no convolution",
        ),
        (|graph| push(graph, "GlobalAveragePool", &["tensor0"], &[]), "HardSwish tensor1: others read tensor0, too"),
        (|graph| push(graph, "GlobalAveragePool", &["tensor3"], &[]), "Sigmoid tensor4: others read tensor3, too"),
        (
            |graph| {
                convolution(graph, "tensor1", &[16, 16, 1, 1], &[]);
                push(graph, "Add", &["more7", "tensor1"], &[]);
                push(graph, "HardSwish", &["more8"], &[]);
            },
            "HardSwish more9: it follows no convolution",
        ),
        (
            |graph| {
                convolution(graph, "tensor1", &[16, 16, 1, 1], &[]);
                push(graph, "HardSwish", &["more7"], &[]);
                push(graph, "Relu", &["more8"], &[]);
            },
            "Relu more9: it follows no convolution",
        ),
        (
            |graph| {
                constant(graph, "n", &[16]);
                push(graph, "GlobalAveragePool", &["tensor6"], &[]);
                push(graph, "BatchNormalization", &["more7", "n", "n", "n", "n"], &[]);
            },
            "BatchNormalization more8: it follows no dense convolution",
        ),
        // Additions.
        (|graph| push(graph, "Add", &["tensor1", "tensor1"], &[]), "its inputs are not two planes of the same size"),
        (|graph| push(graph, "Add", &["tensor1", "tensor4"], &[]), "its inputs are not two planes of the same size"),
        (|graph| push(graph, "Add", &["tensor1", "tensor6"], &[]), "its inputs are not two planes of the same size"),
        // The plane before an activation cannot be read, too.
        (|graph| push(graph, "Add", &["tensor0", "tensor1"], &[]), "HardSwish tensor1: others read tensor0, too"),
        // Windows.
        (|graph| convolution(graph, "tensor4", &[16, 16, 3, 3], &[("pads", &[1; 4])]), "pads [1, 1, 1, 1]"),
        (|graph| convolution(graph, "tensor1", &[16, 16, 5, 5], &[("pads", &[2; 4])]), "groups 1 are not supported"),
        (
            |graph| convolution(graph, "picture", &[3, 1, 3, 3], &[("pads", &[1; 4]), ("group", &[3])]),
            "3 channels to 3",
        ),
        (|graph| convolution(graph, "tensor1", &[16, 16, 3, 3], &[("pads", &[0, 1, 1, 0])]), "pads [0, 1, 1, 0]"),
        (|graph| convolution(graph, "tensor1", &[16, 16, 3, 3], &[("pads", &[2, 2, 0, 0])]), "pads [2, 2, 0, 0]"),
        (|graph| convolution(graph, "tensor1", &[16, 16, 3, 3], &[("pads", &[0, 0, 2, 2])]), "pads [0, 0, 2, 2]"),
        (|graph| convolution(graph, "tensor1", &[16, 16, 3, 3], &[("pads", &[u64::MAX; 4])]), "stride 1, pads [184467"),
        (
            |graph| convolution(graph, "tensor1", &[16, 1, 5, 5], &[("pads", &[1, 1, 3, 3]), ("group", &[16])]),
            "pads [1, 1, 3, 3]",
        ),
        (
            |graph| {
                let integers: [(_, &[u64]); 3] = [("pads", &[0, 0, 3, 3]), ("strides", &[2, 2]), ("group", &[16])];
                convolution(graph, "tensor1", &[16, 1, 5, 5], &integers);
            },
            "pads [0, 0, 3, 3]",
        ),
        (
            |graph| {
                (0..300).for_each(|_| push(graph, "GlobalAveragePool", &["tensor1"], &[]));
            },
            "it has more than 256 layers",
        ),
    ];
    // Squeeze and excite, and the original size.
    let made = || {
        let mut grown = Grown::new(1);
        let [weights, more] = [&[16, 3, 3, 3], &[16, 16, 1, 1]].map(|dims| grown.constant(dims));
        grown.node("Conv", vec!["picture", weights], &[("strides", &[2, 2]), ("pads", &[0, 0, 1, 1])]);
        grown.node("HardSwish", vec!["tensor0"], &[]);
        grown.node("GlobalAveragePool", vec!["tensor1"], &[]);
        grown.node("Conv", vec!["tensor2", more], &[]);
        grown.node("Sigmoid", vec!["tensor3"], &[]);
        grown.node("Mul", vec!["tensor1", "tensor4"], &[]);
        grown.node("Resize", vec!["tensor5"], &[]);
        grown.graph
    };
    assert!(Network::new(&made(), &["tensor6"]).is_ok());
    for (change, reason) in changes {
        let mut graph = made();
        change(&mut graph);
        let error = Network::new(&graph, &["tensor6"]).err().expect(reason);
        assert!(error.contains(reason), "{error:?} has no {reason:?}");
    }
}
