// SPDX-License-Identifier: MPL-2.0
//! A convolutional network as a list of layers. They are made from the nodes of an ONNX graph, which are checked.

use std::collections::HashMap;

use crate::{
    kernels::{Dense, Depthwise, Operation},
    onnx::{Graph, Node, Tensor},
};

/// How often a picture may be halved.
const MOST_HALVED: u32 = 6;
/// The largest number of channels of a plane, and of layers.
const MOST_CHANNELS: usize = 1024;
const MOST_LAYERS: usize = 256;

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

/// The size of a plane: its channels, and how often both sides of the picture were halved.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    pub channels: usize,
    pub halved: u32,
}

pub struct Network {
    /// Each one reads planes that earlier ones have written. Every plane but plane 0, the picture, is written by one layer.
    pub layers: Vec<Layer>,
    pub planes: Vec<Shape>,
    /// The planes that were asked for.
    pub outputs: Vec<usize>,
}

impl Network {
    /// Makes the layers that compute the tensors of these names. A sigmoid of an output is left out. `Err` names the node that is not
    /// supported, and the reason.
    pub fn new<'a>(graph: &'a Graph<'a>, outputs: &[&'a str]) -> Result<Self, String> {
        let picture = Shape { channels: 3, halved: 0 };
        let network = Self { layers: Vec::new(), planes: vec![picture], outputs: Vec::new() };
        let mut builder = Builder { graph, readers: HashMap::new(), names: HashMap::new(), network };
        let inputs = || graph.nodes.iter().flat_map(|node| &node.inputs);
        inputs().chain(outputs).for_each(|name| *builder.readers.entry(name).or_insert(0) += 1);
        builder.names.extend(inputs().next().map(|picture| (*picture, 0)));
        for node in &graph.nodes {
            let Some(output) = node.outputs.first() else { return Err(format!("a {} has no output", node.operator)) };
            let plane = builder.node(node).map_err(|reason| format!("{} {output}: {reason}", node.operator))?;
            builder.names.insert(output, plane);
        }
        let Builder { names, mut network, .. } = builder;
        for name in outputs {
            network.outputs.push(*names.get(name).ok_or_else(|| format!("it has no output {name}"))?);
        }
        // Without the layers that no output needs.
        let mut is_needed = vec![false; network.planes.len()];
        network.outputs.iter().for_each(|output| is_needed[*output] = true);
        for layer in network.layers.iter().rev() {
            if is_needed[layer.output] {
                std::iter::once(layer.input).chain(layer.add).for_each(|plane| is_needed[plane] = true);
            }
        }
        network.layers.retain(|layer| is_needed[layer.output]);
        Ok(network)
    }

    /// The sides of a picture must be multiples of it.
    pub fn multiple(&self) -> usize {
        1 << self.planes.iter().map(|plane| plane.halved).max().unwrap_or(0)
    }
}

struct Builder<'a> {
    graph: &'a Graph<'a>,
    /// How many inputs of nodes, and outputs that were asked for, refer to a name.
    readers: HashMap<&'a str, usize>,
    /// The plane that holds the values of a name.
    names: HashMap<&'a str, usize>,
    network: Network,
}

impl<'a> Builder<'a> {
    /// Adds a node's layer, or its work to the layer before it. Returns the plane that holds the node's output.
    fn node(&mut self, node: &'a Node<'a>) -> Result<usize, String> {
        match node.operator {
            "Conv" | "ConvTranspose" => self.convolution(node),
            "Relu" => self.replace(node, 0, |layer| {
                layer.relu = true;
                Ok(())
            }),
            "Add" => {
                let planes = [self.plane(node, 0)?, self.plane(node, 1)?];
                let later = usize::from(planes[1] > planes[0]);
                let add = planes[1 - later];
                if planes[0] == planes[1] || self.network.planes[add] != self.network.planes[planes[later]] {
                    return Err("its inputs are not two planes of the same size".into());
                }
                self.replace(node, later, |layer| {
                    layer.add = Some(add);
                    Ok(())
                })
            }
            "BatchNormalization" => {
                let [scale, bias, mean, variance] = [1, 2, 3, 4].map(|input| self.constant(node, input));
                let (scale, bias, mean, variance) = (&scale?.values, &bias?.values, &mean?.values, &variance?.values);
                let channels = self.network.planes[self.plane(node, 0)?].channels;
                if [scale, bias, mean, variance].iter().any(|values| values.len() != channels) {
                    return Err(format!("its constants do not have {channels} values each"));
                }
                let epsilon = node.floats.get("epsilon").copied().unwrap_or(1e-5);
                let factors: Vec<_> = (0..channels).map(|c| scale[c] / (variance[c] + epsilon).sqrt()).collect();
                let offsets: Vec<_> = (0..channels).map(|c| bias[c] - mean[c] * factors[c]).collect();
                self.replace(node, 0, |layer| {
                    match &mut layer.operation {
                        Operation::Dense { weights, .. } if !layer.relu => weights.scale(&factors, &offsets),
                        Operation::Double(rows) if !layer.relu => {
                            rows.iter_mut().for_each(|weights| weights.scale(&factors, &offsets));
                        }
                        _ => return Err("it follows no dense convolution".into()),
                    }
                    Ok(())
                })
            }
            "Sigmoid" if node.outputs.iter().all(|output| !self.is_read(output)) => self.plane(node, 0),
            "Sigmoid" => Err("other nodes read it".into()),
            _ => Err("this operator is not supported".into()),
        }
    }

    fn convolution(&mut self, node: &'a Node<'a>) -> Result<usize, String> {
        let input = self.plane(node, 0)?;
        let Shape { channels, halved } = self.network.planes[input];
        let Tensor { dims, values } = self.constant(node, 1)?;
        // Reads an attribute that must have one value in all dimensions.
        let integer = |name, default| {
            let all = node.integers.get(name).map_or(&[][..], Vec::as_slice);
            let value = *all.first().unwrap_or(&default);
            all.iter().all(|other| *other == value).then_some(value).ok_or_else(|| format!("its {name} are {all:?}"))
        };
        let [stride, pad, group] = [integer("strides", 1)?, integer("pads", 0)?, integer("group", 1)?];
        let is_transposed = node.operator == "ConvTranspose";
        let (&[first, second, side, width], 1) = (&dims[..], integer("dilations", 1)?) else {
            return Err(format!("its weights have the dimensions {dims:?}, or it is dilated"));
        };
        let outputs = if is_transposed { second } else { first };
        let bias = if node.inputs.len() > 2 { self.constant(node, 2)?.values.clone() } else { vec![0.; outputs] };
        let unsupported = || {
            format!(
                "{channels} channels to {outputs} by weights {dims:?}, stride {stride}, pads {pad}, groups {group} are not supported"
            )
        };
        if bias.len() != outputs || side != width || outputs > MOST_CHANNELS {
            return Err(unsupported());
        }
        let area = side * side;
        let (operation, halved) = match (is_transposed, side, stride, pad) {
            (true, 2, 2, 0) if group == 1 && first == channels && halved > 0 => {
                let rows = [0, 1].map(|y| {
                    Dense::new(channels, &bias.repeat(2), |output, input| {
                        values[(input * outputs + output % outputs) * area + 2 * y + output / outputs]
                    })
                });
                (Operation::Double(rows), halved - 1)
            }
            (false, 1, 1, 0) | (false, 3, 1 | 2, 1) => {
                let (stride, halved) = (stride as usize, halved + u32::from(stride == 2));
                let operation = if group == 1 && second == channels {
                    let weights = Dense::new(channels * area, &bias, |output, input| {
                        values[(output * channels + input % channels) * area + input / channels]
                    });
                    Some(Operation::Dense { weights, side, stride })
                } else if side == 3 && [first, group as usize, second] == [channels, channels, 1] {
                    Depthwise::new(&bias, values).map(|weights| Operation::Depthwise { weights, stride })
                } else {
                    None
                };
                (operation.filter(|_| halved <= MOST_HALVED).ok_or_else(unsupported)?, halved)
            }
            _ => return Err(unsupported()),
        };
        if self.network.layers.len() == MOST_LAYERS {
            return Err(format!("it has more than {MOST_LAYERS} layers"));
        }
        let output = self.network.planes.len();
        self.network.planes.push(Shape { channels: outputs, halved });
        self.network.layers.push(Layer { operation, input, output, relu: false, add: None });
        Ok(output)
    }

    /// Changes the layer whose output is an input of the node, so that it computes the node's output instead.
    fn replace(
        &mut self,
        node: &Node<'a>,
        input: usize,
        change: impl FnOnce(&mut Layer) -> Result<(), String>,
    ) -> Result<usize, String> {
        let plane = self.plane(node, input)?;
        if self.readers[node.inputs[input]] > 1 {
            return Err(format!("others read {}, too", node.inputs[input]));
        }
        let layer = self.network.layers.iter_mut().find(|layer| layer.output == plane && layer.add.is_none());
        change(layer.ok_or("it follows no convolution")?)?;
        Ok(plane)
    }

    fn is_read(&self, name: &str) -> bool {
        self.graph.nodes.iter().any(|node| node.inputs.contains(&name))
    }

    fn plane(&self, node: &Node<'a>, input: usize) -> Result<usize, String> {
        let name = node.inputs.get(input).ok_or("an input is missing")?;
        self.names.get(name).copied().ok_or_else(|| format!("nothing before it computes {name}"))
    }

    fn constant(&self, node: &Node<'a>, input: usize) -> Result<&'a Tensor, String> {
        let name = node.inputs.get(input).ok_or("an input is missing")?;
        self.graph.constants.get(name).ok_or_else(|| format!("{name} is no constant of floats"))
    }
}
