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
}

impl Grown {
    fn constant(&mut self, dims: &[usize]) -> &'static str {
        let values = (0..dims.iter().product()).map(|_| self.random.float()).collect();
        let name = name("constant", self.graph.constants.len());
        self.graph.constants.insert(name, Tensor { dims: dims.to_vec(), values });
        name
    }

    fn node(
        &mut self,
        operator: &'static str,
        inputs: Vec<&'static str>,
        integers: &[(&'static str, u64, usize)],
    ) -> &'static str {
        let output = name("tensor", self.graph.nodes.len());
        let integers = integers.iter().map(|(name, value, count)| (*name, vec![*value; *count])).collect();
        self.graph.nodes.push(Node { operator, inputs, outputs: vec![output], integers, floats: HashMap::new() });
        output
    }

    /// A convolution of a tensor, perhaps with what may follow it.
    fn grow(&mut self) {
        let (input, channels, halved) =
            self.tensors[self.tensors.len() - 1 - self.random.below(self.tensors.len().min(3))];
        let (mut outputs, stride) = (1 + self.random.below(40), 1 + self.random.next() % 2);
        let kind = self.random.below(4);
        let (mut output, halved) = match kind {
            0 if halved > 0 => {
                let weights = self.constant(&[channels, outputs, 2, 2]);
                (self.node("ConvTranspose", vec![input, weights], &[("strides", 2, 2)]), halved - 1)
            }
            1 if channels.is_multiple_of(16) => {
                outputs = channels;
                let inputs = vec![input, self.constant(&[channels, 1, 3, 3]), self.constant(&[channels])];
                let integers = [("strides", stride, 2), ("pads", 1, 4), ("group", channels as u64, 1)];
                (self.node("Conv", inputs, &integers), halved + u32::from(stride == 2))
            }
            2 => {
                // Often as many as a depthwise convolution takes.
                outputs = [outputs, 16, 32, 48][self.random.below(4)];
                let inputs = vec![input, self.constant(&[outputs, channels, 1, 1]), self.constant(&[outputs])];
                (self.node("Conv", inputs, &[]), halved)
            }
            _ => {
                let inputs = vec![input, self.constant(&[outputs, channels, 3, 3])];
                (self.node("Conv", inputs, &[("strides", stride, 2), ("pads", 1, 4)]), halved + u32::from(stride == 2))
            }
        };
        if kind != 1 && self.random.below(3) == 0 {
            let [scale, bias, mean] = [(); 3].map(|()| self.constant(&[outputs]));
            let variance = self.constant(&[outputs]);
            self.graph
                .constants
                .get_mut(variance)
                .unwrap()
                .values
                .iter_mut()
                .for_each(|value| *value = value.abs() + 0.1);
            output = self.node("BatchNormalization", vec![output, scale, bias, mean, variance], &[]);
        }
        if self.random.below(2) == 0 {
            output = self.node("Relu", vec![output], &[]);
        }
        let other =
            self.tensors.iter().rev().find(|tensor| (tensor.1, tensor.2) == (outputs, halved)).map(|tensor| tensor.0);
        if let Some(other) = other.filter(|_| self.random.below(2) == 0) {
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
    for seed in 0..networks {
        let mut grown =
            Grown { graph: Graph::default(), random: Random(seed as u64), tensors: vec![("picture", 3, 0)] };
        while grown.tensors.len() < 9 {
            grown.grow();
        }
        let names: Vec<_> = grown.tensors[1..].iter().map(|tensor| tensor.0).collect();
        // Planes that nothing else reads are not stored, so that they run in chains: some are asked for, and some are not.
        let asked: Vec<_> = names.iter().copied().filter(|_| grown.random.below(3) == 0).chain([names[7]]).collect();
        let Ok(network) = Network::new(&grown.graph, &asked) else { panic!("seed {seed}") };
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
            // The second run finds what the first one has left.
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
    }
    let is_all = operators.len() == 5 && operators.values().all(|count| *count >= networks / 3);
    assert!(compared > networks * 10_000 && is_all, "{compared}, {operators:?}");
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
        let mut grown = Grown { graph: Graph::default(), random: Random(1), tensors: Vec::new() };
        let weights = grown.constant(&[16, 3, 3, 3]);
        let output = grown.node("Conv", vec!["picture", weights], &[("pads", 1, 4)]);
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
