// SPDX-License-Identifier: MPL-2.0
//! A convolutional network as a list of layers, which are made from the checked nodes of a model's graph.

use std::collections::HashMap;

use crate::{
    graph::{Graph, Node, Tensor},
    kernels::{Dense, Depthwise, Operation, Window},
};

/// The largest number of times that the sides of a picture may be halved.
const MOST_HALVED: u32 = 6;
/// The largest number of channels of a plane, and the largest number of layers.
const MOST_CHANNELS: usize = 1024;
const MOST_LAYERS: usize = 256;

/// A layer reads a plane and writes another one: first the operation, then the activation, then the addition of a third plane.
pub struct Layer {
    pub operation: Operation,
    pub input: usize,
    pub output: usize,
    pub activation: Activation,
    pub add: Option<usize>,
    /// For `Operation::Multiply`: the plane whose values multiply the channels. It has one pixel.
    pub factors: Option<usize>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Activation {
    None,
    Relu,
    /// No addition follows `HardSwish` or `Sigmoid`.
    HardSwish,
    Sigmoid,
}

impl Layer {
    /// The number of input rows from which a row of the output is computed.
    pub fn side(&self) -> usize {
        match self.operation {
            Operation::Dense { window, .. } | Operation::Depthwise { window, .. } => window.side,
            Operation::Enlarge => 3,
            Operation::Double(_) | Operation::Multiply | Operation::Mean => 1,
        }
    }

    /// The row of the input at the centre of the rows from which a row of the output is computed.
    pub fn centre(&self, row: usize) -> usize {
        match self.operation {
            Operation::Dense { window, .. } | Operation::Depthwise { window, .. } => row * window.stride + window.shift,
            Operation::Double(_) | Operation::Enlarge => row / 2,
            Operation::Multiply | Operation::Mean => row,
        }
    }

    /// Whether the input must be stored as a whole plane. This holds if the layer needs all rows before its first one, rows
    /// beyond the edge that are not zeros, or more than three rows.
    pub fn needs_plane(&self) -> bool {
        matches!(self.operation, Operation::Mean | Operation::Enlarge) || self.side() > 3
    }

    /// Makes a layer without an output, which is set when the layer is added to a network.
    fn new(operation: Operation, input: usize) -> Self {
        Self { operation, input, output: 0, activation: Activation::None, add: None, factors: None }
    }

    /// Whether the layer can also apply an activation.
    fn is_convolution(&self) -> bool {
        matches!(self.operation, Operation::Dense { .. } | Operation::Depthwise { .. } | Operation::Double(_))
    }

    /// Whether the layer can also add another plane.
    fn takes_addition(&self) -> bool {
        let is_simple = matches!(self.activation, Activation::None | Activation::Relu);
        is_simple && (self.is_convolution() || matches!(self.operation, Operation::Multiply))
    }

    /// The planes that the layer reads.
    pub fn reads(&self) -> impl Iterator<Item = usize> {
        std::iter::once(self.input).chain(self.add).chain(self.factors)
    }
}

/// The shape of a plane: its number of channels, and how often both sides of the picture were halved. If `halved` is `None`, the
/// plane has one pixel.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    pub channels: usize,
    pub halved: Option<u32>,
}

pub struct Network {
    /// The layers. Each one reads planes that earlier layers have written. Every plane except plane 0, the picture, is written by
    /// one layer.
    pub layers: Vec<Layer>,
    pub planes: Vec<Shape>,
    /// The planes that were requested.
    pub outputs: Vec<usize>,
    /// Width and height of the picture that the network was made for, if the file states them.
    pub size: Option<[usize; 2]>,
}

impl Network {
    /// Makes the layers that compute the tensors with these names. A sigmoid at the end is left out. `Err` names the node that is
    /// not supported, and the reason.
    pub fn new<'a>(graph: &'a Graph<'a>, outputs: &[&'a str]) -> Result<Self, String> {
        let picture = Shape { channels: 3, halved: Some(0) };
        let network = Self { layers: Vec::new(), planes: vec![picture], outputs: Vec::new(), size: graph.size };
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
        // Layers that no output needs are left out.
        let mut is_needed = vec![false; network.planes.len()];
        network.outputs.iter().for_each(|output| is_needed[*output] = true);
        for layer in network.layers.iter().rev() {
            if is_needed[layer.output] {
                layer.reads().for_each(|plane| is_needed[plane] = true);
            }
        }
        network.layers.retain(|layer| is_needed[layer.output]);
        Ok(network)
    }

    /// The number of which the sides of a picture must be multiples.
    pub fn multiple(&self) -> usize {
        1 << self.planes.iter().filter_map(|plane| plane.halved).max().unwrap_or(0)
    }
}

struct Builder<'a> {
    graph: &'a Graph<'a>,
    /// How often a name is read: by inputs of nodes, and as a requested output.
    readers: HashMap<&'a str, usize>,
    /// The plane that holds the values of a name.
    names: HashMap<&'a str, usize>,
    network: Network,
}

impl<'a> Builder<'a> {
    /// Adds the layer of a node, or adds the node's work to the layer before it. Returns the plane that holds the node's output.
    fn node(&mut self, node: &'a Node<'a>) -> Result<usize, String> {
        match node.operator {
            "Conv" | "ConvTranspose" => self.convolution(node),
            "Relu" => self.activate(node, Activation::Relu),
            "HardSwish" => self.activate(node, Activation::HardSwish),
            // The user of the output applies this sigmoid.
            "Sigmoid" if node.outputs.iter().all(|output| !self.is_read(output)) => self.plane(node, 0),
            "Sigmoid" => self.activate(node, Activation::Sigmoid),
            "Add" => {
                let planes = [self.plane(node, 0)?, self.plane(node, 1)?];
                let later = usize::from(planes[1] > planes[0]);
                let (input, add) = (planes[later], planes[1 - later]);
                let shape = self.network.planes[input];
                if input == add || self.network.planes[add] != shape {
                    return Err("its inputs are not two planes of the same size".into());
                }
                let is_alone = self.readers[node.inputs[later]] == 1;
                let before = self.network.layers.iter_mut().find(|layer| layer.output == input && layer.add.is_none());
                match before {
                    Some(layer) if is_alone && layer.takes_addition() => {
                        layer.add = Some(add);
                        Ok(input)
                    }
                    _ => self.layer(Layer { add: Some(add), ..Layer::new(Operation::Multiply, input) }, shape),
                }
            }
            "Mul" => {
                let planes = [self.plane(node, 0)?, self.plane(node, 1)?];
                let shapes = planes.map(|plane| self.network.planes[plane]);
                let factors = usize::from(shapes[1].halved.is_none());
                if shapes[factors].halved.is_some() || shapes[0].channels != shapes[1].channels {
                    return Err("its inputs are not a plane, and a plane of one pixel with as many channels".into());
                }
                let layer =
                    Layer { factors: Some(planes[factors]), ..Layer::new(Operation::Multiply, planes[1 - factors]) };
                self.layer(layer, shapes[1 - factors])
            }
            "GlobalAveragePool" => {
                let input = self.plane(node, 0)?;
                let channels = self.network.planes[input].channels;
                self.layer(Layer::new(Operation::Mean, input), Shape { channels, halved: None })
            }
            "Resize" => {
                let input = self.plane(node, 0)?;
                let Shape { channels, halved } = self.network.planes[input];
                let halved =
                    halved.filter(|halved| *halved > 0).ok_or("its result would be larger than the picture")?;
                self.layer(Layer::new(Operation::Enlarge, input), Shape { channels, halved: Some(halved - 1) })
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
                        Operation::Dense { weights, .. } if layer.activation == Activation::None => {
                            weights.scale(&factors, &offsets);
                        }
                        Operation::Double(rows) if layer.activation == Activation::None => {
                            rows.iter_mut().for_each(|weights| weights.scale(&factors, &offsets));
                        }
                        _ => return Err("it follows no dense convolution".into()),
                    }
                    Ok(())
                })
            }
            _ => Err("this operator is not supported".into()),
        }
    }

    fn convolution(&mut self, node: &'a Node<'a>) -> Result<usize, String> {
        let input = self.plane(node, 0)?;
        let Shape { channels, halved } = self.network.planes[input];
        let Tensor { dims, values } = self.constant(node, 1)?;
        // Reads an attribute that must have the same value in all dimensions.
        let integer = |name, default| {
            let all = node.integers.get(name).map_or(&[][..], Vec::as_slice);
            let value = *all.first().unwrap_or(&default);
            all.iter().all(|other| *other == value).then_some(value).ok_or_else(|| format!("its {name} are {all:?}"))
        };
        let [stride, group] = [integer("strides", 1)?, integer("group", 1)?];
        let is_transposed = node.operator == "ConvTranspose";
        let (&[first, second, side, width], 1) = (&dims[..], integer("dilations", 1)?) else {
            return Err(format!("its weights have the dimensions {dims:?}, or it is dilated"));
        };
        let outputs = if is_transposed { second } else { first };
        let bias = if node.inputs.len() > 2 { self.constant(node, 2)?.values.clone() } else { vec![0.; outputs] };
        let pads = node.integers.get("pads").map_or(&[0; 4][..], Vec::as_slice);
        let unsupported = || {
            format!(
                "{channels} channels to {outputs} by weights {dims:?}, stride {stride}, pads {pads:?}, groups {group} are not supported"
            )
        };
        // `pads` has the rows above the picture, the columns to its left, the rows below it, and the columns to its right.
        let &[pad, left, below, right] = pads else { return Err(unsupported()) };
        if bias.len() != outputs || side != width || outputs > MOST_CHANNELS || [pad, below] != [left, right] {
            return Err(unsupported());
        }
        let area = side * side;
        let (operation, halved) = match (is_transposed, side, stride) {
            (true, 2, 2) if group == 1 && first == channels && halved > Some(0) && [pad, below] == [0, 0] => {
                let rows = [0, 1].map(|y| {
                    Dense::new(channels, &bias.repeat(2), |output, input| {
                        values[(input * outputs + output % outputs) * area + 2 * y + output / outputs]
                    })
                });
                (Operation::Double(rows), halved.map(|halved| halved - 1))
            }
            // These conditions suffice because the picture's sides are multiples of the stride.
            (false, 1, 1) | (false, 3 | 5, 1 | 2)
                if pad <= side as u64 / 2
                    && below <= side as u64
                    && (pad + below + stride == side as u64 || [pad, below] == [side as u64 / 2; 2]) =>
            {
                let window = Window { side, stride: stride as usize, shift: side / 2 - pad as usize };
                let halved = halved.map(|halved| halved + u32::from(stride == 2));
                let is_depthwise = [first, group as usize, second] == [channels, channels, 1];
                let operation = if group == 1 && second == channels && side <= 3 {
                    let weights = Dense::new(channels * area, &bias, |output, input| {
                        values[(output * channels + input % channels) * area + input / channels]
                    });
                    Some(Operation::Dense { weights, window })
                } else if side >= 3 && is_depthwise {
                    Depthwise::new(side, &bias, values).map(|weights| Operation::Depthwise { weights, window })
                } else {
                    None
                };
                // All centres must lie in the plane, so that the windows end within the zeros around the plane.
                let is_inside = window.shift < window.stride;
                let fits = halved.map_or(side == 1, |halved| halved <= MOST_HALVED) && is_inside;
                (operation.filter(|_| fits).ok_or_else(unsupported)?, halved)
            }
            _ => return Err(unsupported()),
        };
        self.layer(Layer::new(operation, input), Shape { channels: outputs, halved })
    }

    /// Adds a layer, and the plane of this shape that it writes.
    fn layer(&mut self, layer: Layer, shape: Shape) -> Result<usize, String> {
        if self.network.layers.len() == MOST_LAYERS {
            return Err(format!("it has more than {MOST_LAYERS} layers"));
        }
        let output = self.network.planes.len();
        self.network.planes.push(shape);
        self.network.layers.push(Layer { output, ..layer });
        Ok(output)
    }

    fn activate(&mut self, node: &Node<'a>, activation: Activation) -> Result<usize, String> {
        self.replace(node, 0, |layer| {
            if layer.activation != Activation::None || !layer.is_convolution() {
                return Err("it follows no convolution".into());
            }
            layer.activation = activation;
            Ok(())
        })
    }

    /// Changes the layer whose output is this input of the node, so that it computes the node's output instead.
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
