// SPDX-License-Identifier: MPL-2.0
//! A convolutional network as a list of layers, read from an ONNX file and checked.

use std::collections::HashMap;

use crate::{
    kernels::{Dense, Depthwise},
    onnx::{self, Graph, Node, Tensor},
    vector::LANES,
};

/// The sides of pictures are at most so much, and their planes so many times smaller at most.
const MOST_SHIFT: u32 = 6;

/// What a layer computes for each pixel of its output.
pub enum Operation {
    /// From a window of `side`² pixels, which moves by `stride` pixels.
    Dense {
        weights: Dense,
        side: usize,
        stride: usize,
    },
    Depthwise {
        weights: Depthwise,
        stride: usize,
    },
    /// Two pixels side by side from one: for even and for odd rows of the output.
    Double([Dense; 2]),
}

/// Reads a plane and writes another one: the operation, then ReLU, then the addition of a third plane.
pub struct Layer {
    pub operation: Operation,
    pub input: usize,
    pub output: usize,
    pub relu: bool,
    pub add: Option<usize>,
}

impl Layer {
    /// Rows of the input that a row of the output is computed from.
    pub fn side(&self) -> usize {
        match self.operation {
            Operation::Dense { side, .. } => side,
            Operation::Depthwise { .. } => 3,
            Operation::Double(_) => 1,
        }
    }

    /// The row of the input around which a row of the output lies.
    pub fn centre(&self, row: usize) -> usize {
        match self.operation {
            Operation::Dense { stride, .. } | Operation::Depthwise { stride, .. } => row * stride,
            Operation::Double(_) => row / 2,
        }
    }
}

/// The size of a plane: its channels, and how many times the picture was halved.
#[derive(Clone, Copy, PartialEq)]
pub struct Shape {
    pub channels: usize,
    pub shift: u32,
}

pub struct Network {
    /// Each one reads planes that earlier ones have written; every plane but the picture, plane 0, is written by one layer.
    pub layers: Vec<Layer>,
    pub planes: Vec<Shape>,
    /// The planes that were asked for.
    pub outputs: Vec<usize>,
}

impl Network {
    /// Reads the layers that these outputs need. `Err` says why the file cannot be used. `outputs` chooses from the names of the
    /// graph's outputs; a final sigmoid is left out.
    pub fn new<'a>(model: &'a [u8], outputs: impl FnOnce(&Graph<'a>) -> Vec<&'a str>) -> Result<Self, String> {
        let graph = onnx::graph(model).ok_or("it is no ONNX file")?;
        let outputs = outputs(&graph);
        let mut builder = Builder {
            readers: HashMap::new(),
            names: HashMap::new(),
            layers: Vec::new(),
            planes: Vec::new(),
            graph: &graph,
        };
        for name in graph.nodes.iter().flat_map(|node| &node.inputs).chain(&outputs) {
            *builder.readers.entry(name).or_insert(0) += 1;
        }
        for node in &graph.nodes {
            let at = || format!("the node {} {}", node.operator, node.outputs.first().unwrap_or(&""));
            let plane = builder.node(node).map_err(|reason| format!("{}: {reason}", at()))?;
            builder.names.insert(node.outputs.first().ok_or_else(at)?, plane);
        }
        let outputs =
            outputs.iter().map(|name| builder.names.get(name).copied().ok_or(format!("it has no output {name}")));
        let outputs = outputs.collect::<Result<Vec<_>, _>>()?;
        let Builder { layers, planes, .. } = builder;
        if planes.is_empty() {
            return Err("it has no layers".into());
        }
        Ok(Self::needed(layers, planes, outputs))
    }

    /// Without the layers that no output needs.
    fn needed(mut layers: Vec<Layer>, planes: Vec<Shape>, outputs: Vec<usize>) -> Self {
        let mut is_needed = vec![false; planes.len()];
        outputs.iter().for_each(|output| is_needed[*output] = true);
        for layer in layers.iter().rev() {
            if is_needed[layer.output] {
                is_needed[layer.input] = true;
                layer.add.iter().for_each(|add| is_needed[*add] = true);
            }
        }
        layers.retain(|layer| is_needed[layer.output]);
        Self { layers, planes, outputs }
    }

    /// The sides of a picture must be multiples of it.
    pub fn multiple(&self) -> usize {
        1 << self.planes.iter().map(|plane| plane.shift).max().unwrap_or(0)
    }
}

struct Builder<'g, 'a> {
    graph: &'g Graph<'a>,
    /// How many inputs and outputs have a name.
    readers: HashMap<&'a str, usize>,
    /// The plane that holds the values of a name.
    names: HashMap<&'a str, usize>,
    layers: Vec<Layer>,
    planes: Vec<Shape>,
}

/// Folds a factor for each output into weights.
fn scaled(values: &mut [f32], factors: impl Iterator<Item = f32>, chunk: usize) {
    values
        .chunks_mut(chunk)
        .zip(factors)
        .for_each(|(values, factor)| values.iter_mut().for_each(|value| *value *= factor));
}

impl<'a> Builder<'_, 'a> {
    /// Adds a node's layer, or its work to the layer that it continues. Returns the plane that holds the node's output.
    fn node(&mut self, node: &Node<'a>) -> Result<usize, String> {
        let integers = |name, default: u64, count| {
            let values = node.integers.get(name).filter(|values| !values.is_empty()).cloned();
            let values = values.unwrap_or(vec![default; count]);
            values
                .iter()
                .all(|value| *value == values[0])
                .then_some(values[0])
                .ok_or(format!("its {name} are {values:?}"))
        };
        match node.operator {
            "Conv" | "ConvTranspose" => {
                let (input, shape) = self.input(node)?;
                let weights = self.constant(node, 1)?;
                let &[first, second, side, width] = &weights.dims[..] else {
                    return Err("its weights have no four dimensions".into());
                };
                if side != width
                    || first.max(second).max(side) > 1 << 16
                    || first * second * side * side != weights.values.len()
                {
                    return Err(format!(
                        "its weights have the dimensions {:?} and {} values",
                        weights.dims,
                        weights.values.len()
                    ));
                }
                let (stride, pad, group) =
                    (integers("strides", 1, 2)?, integers("pads", 0, 4)?, integers("group", 1, 1)?);
                if integers("dilations", 1, 2)? != 1 {
                    return Err("it is dilated".into());
                }
                let is_transposed = node.operator == "ConvTranspose";
                let outputs = if is_transposed { second } else { first };
                let mut bias = vec![0.; outputs];
                if node.inputs.len() > 2 {
                    bias.clone_from(&self.constant(node, 2)?.values);
                }
                // The batch normalisation that follows, if nothing else reads this node's output.
                let mut values = weights.values.clone();
                if bias.len() != outputs {
                    return Err(format!("its bias has {} values, not {outputs}", bias.len()));
                }
                let window = side * side;
                if is_transposed {
                    if (first, side, stride, pad, group) != (shape.channels, 2, 2, 0, 1) {
                        return Err("only a window of 2x2 that doubles both sides can be transposed".into());
                    }
                    let shift = shape.shift.checked_sub(1).ok_or("it is larger than the picture")?;
                    if let Some((factors, offsets)) = self.normalisation(node, outputs)? {
                        for values in values.chunks_mut(outputs * window) {
                            scaled(values, factors.iter().copied(), window);
                        }
                        bias.iter_mut()
                            .zip(factors)
                            .zip(offsets)
                            .for_each(|((bias, factor), offset)| *bias = *bias * factor + offset);
                    }
                    let bias = bias.repeat(2);
                    let rows = [0, 1].map(|y| {
                        Dense::new(first, &bias, |output, input| {
                            values[((input * outputs + output % outputs) * 2 + y) * 2 + output / outputs]
                        })
                    });
                    return Ok(self.layer(Operation::Double(rows), input, Shape { channels: outputs, shift }));
                }
                if let Some((factors, offsets)) = self.normalisation(node, outputs)? {
                    scaled(&mut values, factors.iter().copied(), second * window);
                    bias.iter_mut()
                        .zip(factors)
                        .zip(offsets)
                        .for_each(|((bias, factor), offset)| *bias = *bias * factor + offset);
                }
                if !(matches!((side, stride, pad), (1, 1, 0) | (3, 1 | 2, 1))) {
                    return Err(format!(
                        "a window of {side}x{side} with stride {stride} and pads of {pad} is not supported"
                    ));
                }
                let shift = shape.shift + u32::from(stride == 2);
                if shift > MOST_SHIFT {
                    return Err("it halves the picture too often".into());
                }
                let stride = stride as usize;
                let operation = if group == 1 && second == shape.channels {
                    let weights = Dense::new(second * window, &bias, |output, input| {
                        values[(output * second + input % second) * window + input / second]
                    });
                    Operation::Dense { weights, side, stride }
                } else if (group as usize, second, side) == (shape.channels, 1, 3)
                    && first == shape.channels
                    && first % LANES == 0
                {
                    Operation::Depthwise {
                        weights: Depthwise::new(&bias, |channel, place| values[channel * 9 + place]),
                        stride,
                    }
                } else {
                    return Err(format!("it makes {outputs} channels of {} in {group} groups", shape.channels));
                };
                Ok(self.layer(operation, input, Shape { channels: outputs, shift }))
            }
            // Done by the convolution before it.
            "BatchNormalization" => self.continued(node, 0),
            "Sigmoid" if node.inputs.iter().all(|name| self.readers[name] == 1) => self.continued(node, 0),
            "Relu" => {
                let plane = self.continued(node, 0)?;
                let layer = self.layers.iter_mut().find(|layer| layer.output == plane && layer.add.is_none());
                layer.ok_or("it follows no convolution")?.relu = true;
                Ok(plane)
            }
            "Add" => {
                let mut planes = [self.plane(node, 0)?, self.plane(node, 1)?];
                planes.sort_unstable();
                let [add, plane] = planes;
                let which = usize::from(self.plane(node, 1)? == plane);
                self.continued(node, which)?;
                if self.planes[add] != self.planes[plane] || add == plane {
                    return Err("it adds planes of different sizes".into());
                }
                let layer = self.layers.iter_mut().find(|layer| layer.output == plane && layer.add.is_none());
                layer.ok_or("it follows no convolution")?.add = Some(add);
                Ok(plane)
            }
            _ => Err("this operator is not supported".into()),
        }
    }

    fn layer(&mut self, operation: Operation, input: usize, shape: Shape) -> usize {
        let output = self.planes.len();
        self.planes.push(shape);
        self.layers.push(Layer { operation, input, output, relu: false, add: None });
        output
    }

    /// The plane that a convolution reads. The first one reads the picture: three channels.
    fn input(&mut self, node: &Node<'a>) -> Result<(usize, Shape), String> {
        if self.planes.is_empty() {
            self.planes.push(Shape { channels: 3, shift: 0 });
            self.names.insert(node.inputs.first().ok_or("it has no input")?, 0);
        }
        let plane = self.plane(node, 0)?;
        Ok((plane, self.planes[plane]))
    }

    fn plane(&self, node: &Node<'a>, input: usize) -> Result<usize, String> {
        let name = node.inputs.get(input).ok_or("an input is missing")?;
        self.names.get(name).copied().ok_or_else(|| format!("nothing before it computes {name}"))
    }

    /// The plane of an input that nothing else reads, so that it can be replaced by the node's output.
    fn continued(&self, node: &Node<'a>, input: usize) -> Result<usize, String> {
        let plane = self.plane(node, input)?;
        if self.readers[node.inputs[input]] > 1 {
            return Err(format!("others read {}, too", node.inputs[input]));
        }
        Ok(plane)
    }

    fn constant(&self, node: &Node<'a>, input: usize) -> Result<&Tensor, String> {
        let name = node.inputs.get(input).ok_or("an input is missing")?;
        self.graph.constants.get(name).ok_or_else(|| format!("{name} is not constant"))
    }

    /// Factors and offsets of the batch normalisation that reads a node's output.
    fn normalisation(&self, node: &Node<'a>, channels: usize) -> Result<Option<(Vec<f32>, Vec<f32>)>, String> {
        let reads = |next: &&Node| next.operator == "BatchNormalization" && next.inputs.first() == node.outputs.first();
        let Some(next) = self.graph.nodes.iter().find(reads) else { return Ok(None) };
        let [scale, bias, mean, variance] = [1, 2, 3, 4].map(|input| self.constant(next, input));
        let (scale, bias, mean, variance) = (&scale?.values, &bias?.values, &mean?.values, &variance?.values);
        if [scale, bias, mean, variance].iter().any(|values| values.len() != channels) {
            return Err(format!("the normalisation after it has not {channels} channels"));
        }
        let epsilon = next.floats.get("epsilon").copied().unwrap_or(1e-5);
        let factors: Vec<f32> =
            scale.iter().zip(variance).map(|(scale, variance)| scale / (variance + epsilon).sqrt()).collect();
        let offsets = (0..channels).map(|c| bias[c] - mean[c] * factors[c]).collect();
        Ok(Some((factors, offsets)))
    }
}
