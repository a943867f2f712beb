// SPDX-License-Identifier: MPL-2.0
//! Reads the graph of a TensorFlow Lite file, which is a FlatBuffer, with the operators and layouts of ONNX. Constants are 32-bit
//! or 16-bit floats. The numbers of fields, operators and types are those of TensorFlow Lite's schema.fbs.

use std::collections::HashMap;

use crate::graph::{Graph, Node, Tensor};

/// The length of the longest vector of numbers that is read. Such vectors are the dimensions of a tensor, and the inputs and
/// outputs of an operation or of the graph.
const MOST_NUMBERS: usize = 16;

/// A table of a FlatBuffer, at a position in the file. Each function returns `None` if it would read outside of the file.
#[derive(Clone, Copy)]
struct Table<'a> {
    file: &'a [u8],
    at: usize,
}

/// A vector of tables or of numbers.
struct Vector<'a> {
    file: &'a [u8],
    start: usize,
    count: usize,
}

fn bytes<const N: usize>(file: &[u8], at: usize) -> Option<[u8; N]> {
    file.get(at..)?.first_chunk().copied()
}

fn number(file: &[u8], at: usize) -> Option<usize> {
    usize::try_from(u32::from_le_bytes(bytes(file, at)?)).ok()
}

/// The position to which the offset at position `at` points.
fn follow(file: &[u8], at: usize) -> Option<usize> {
    at.checked_add(number(file, at)?)
}

impl<'a> Table<'a> {
    /// The position of a field. `Some(None)` if the table omits the field because it has its default value.
    fn field(self, number: usize) -> Option<Option<usize>> {
        let back = i64::from(i32::from_le_bytes(bytes(self.file, self.at)?));
        let fields = usize::try_from(i64::try_from(self.at).ok()?.checked_sub(back)?).ok()?;
        let size = usize::from(u16::from_le_bytes(bytes(self.file, fields)?));
        let place = 4 + 2 * number;
        if place + 2 > size {
            return Some(None);
        }
        let offset = u16::from_le_bytes(bytes(self.file, fields.checked_add(place)?)?);
        Some((offset > 0).then(|| self.at + usize::from(offset)))
    }

    /// Reads a field of one byte, whose default is 0.
    fn byte(self, field: usize) -> Option<u8> {
        self.field(field)?.map_or(Some(0), |at| self.file.get(at).copied())
    }

    /// Reads a field of four bytes.
    fn integer(self, field: usize, default: usize) -> Option<usize> {
        self.field(field)?.map_or(Some(default), |at| number(self.file, at))
    }

    fn table(self, field: usize) -> Option<Self> {
        Some(Self { file: self.file, at: follow(self.file, self.field(field)??)? })
    }

    /// Reads a vector. If the table omits it, the result is empty.
    fn vector(self, field: usize) -> Option<Vector<'a>> {
        let file = self.file;
        let Some(at) = self.field(field)? else { return Some(Vector { file, start: 0, count: 0 }) };
        let start = follow(file, at)?;
        Some(Vector { file, start: start.checked_add(4)?, count: number(file, start)? })
    }

    fn text(self, field: usize) -> Option<&'a str> {
        std::str::from_utf8(self.vector(field)?.bytes()?).ok()
    }
}

impl<'a> Vector<'a> {
    fn bytes(&self) -> Option<&'a [u8]> {
        self.file.get(self.start..)?.get(..self.count)
    }

    fn place(&self, index: usize) -> Option<usize> {
        (index < self.count).then_some(self.start.checked_add(index.checked_mul(4)?)?)
    }

    fn table(&self, index: usize) -> Option<Table<'a>> {
        Some(Table { file: self.file, at: follow(self.file, self.place(index)?)? })
    }

    fn tables(&self) -> Option<Vec<Table<'a>>> {
        // Refuses a count that the file cannot hold before memory is allocated for it.
        (self.count <= self.file.len() / 4).then_some(())?;
        (0..self.count).map(|index| self.table(index)).collect()
    }

    /// `None` if there are more than `MOST_NUMBERS` numbers: vectors may overlap, so a small file could describe many long ones.
    fn numbers(&self) -> Option<Vec<usize>> {
        (self.count <= MOST_NUMBERS).then_some(())?;
        (0..self.count).map(|index| number(self.file, self.place(index)?)).collect()
    }
}

/// Converts a 16-bit float.
fn half(bits: u16) -> f32 {
    let (exponent, fraction) = (u32::from(bits >> 10 & 31), u32::from(bits & 1023));
    let value = match exponent {
        // Subnormal numbers are multiples of 2^-24.
        0 => fraction as f32 / 16_777_216.,
        31 => f32::from_bits(0x7f80_0000 | fraction << 13),
        _ => f32::from_bits((exponent + 112) << 23 | fraction << 13),
    };
    if bits >> 15 == 1 { -value } else { value }
}

/// A tensor of the file. If it has constant values, they are still bytes.
struct Entry<'a> {
    name: &'a str,
    dims: Vec<usize>,
    kind: u8,
    bytes: &'a [u8],
}

impl Entry<'_> {
    /// The constant values as floats. `None` if they are not floats, or if their number does not agree with the dimensions.
    fn floats(&self) -> Option<Vec<f32>> {
        let values: Vec<_> = match self.kind {
            0 => self.bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)).collect(),
            1 => self.bytes.as_chunks().0.iter().map(|bytes| half(u16::from_le_bytes(*bytes))).collect(),
            _ => return None,
        };
        let count = self.dims.iter().try_fold(1, |count: usize, side| count.checked_mul(*side));
        (count == Some(values.len()) && !values.is_empty()).then_some(values)
    }
}

/// The node of an operation, and the order of the axes of its weights in ONNX. An unknown operator, or an unknown use of an
/// operator, gets the name "operator", which `Network` refuses.
fn node<'a>(
    code: Option<usize>,
    options: Option<Table<'a>>,
    inputs: &[&Entry<'a>],
    outputs: &[&Entry<'a>],
) -> Option<(Node<'a>, Option<[usize; 4]>)> {
    let dims = |entries: &[&Entry<'_>]| entries.first().and_then(|entry| <[usize; 4]>::try_from(&entry.dims[..]).ok());
    let names = |entries: &[&Entry<'a>]| entries.iter().map(|entry| entry.name).collect();
    let mut node = Node { operator: "operator", inputs: names(inputs), outputs: names(outputs), ..Node::default() };
    let (Some([_, height, width, channels]), Some([_, out_height, out_width, out_channels])) =
        (dims(inputs), dims(outputs))
    else {
        return Some((node, None));
    };
    let option = |field, default| options.map_or(Some(default), |options| options.integer(field, default));
    let flag = |field| options.map_or(Some(0), |options| options.byte(field));
    // `activation` and `dilations` are the numbers of the fields.
    let is_plain = |activation, dilations: [usize; 2]| {
        let is_dilated = dilations.into_iter().any(|field| option(field, 1) != Some(1));
        flag(activation) == Some(0) && !is_dilated
    };
    let is_pixel = [out_height, out_width, out_channels] == [1, 1, channels];
    let (operator, order) = match code {
        Some(0) if is_plain(0, [9; 2]) => ("Add", None),
        Some(1) if is_plain(5, [9; 2]) && is_pixel && [option(4, 0)?, option(3, 0)?] == [height, width] => {
            ("GlobalAveragePool", None)
        }
        Some(3) if is_plain(3, [4, 5]) => ("Conv", Some([0, 3, 1, 2])),
        Some(4) if is_plain(4, [5, 6]) => ("Conv", Some([3, 0, 1, 2])),
        Some(14) => ("Sigmoid", None),
        Some(18) if is_plain(0, [9; 2]) => ("Mul", None),
        Some(19) => ("Relu", None),
        Some(23) if flag(2)? == 0 && flag(3)? == 1 && [out_height, out_width] == [2 * height, 2 * width] => {
            ("Resize", None)
        }
        Some(40) if is_pixel => ("GlobalAveragePool", None),
        Some(117) => ("HardSwish", None),
        // MediaPipe's transposed convolution with a bias.
        None if [out_height, out_width] == [2 * height, 2 * width] => ("ConvTranspose", Some([3, 0, 1, 2])),
        _ => ("operator", None),
    };
    node.operator = operator;
    match operator {
        "Conv" => {
            let (strides, [_, side, _, _]) = ([option(1, 1)?, option(2, 1)?], dims(&inputs[1..])?);
            // If both sides of a picture are multiples of the stride, "same" padding adds this number of samples to both sides
            // together.
            let pads = if flag(0)? == 0 { side.saturating_sub(strides[0]) } else { 0 } as u64;
            let is_divided = strides[0] > 0 && height.is_multiple_of(strides[0]) && width.is_multiple_of(strides[0]);
            node.operator = if is_divided { operator } else { "operator" };
            node.integers.insert("strides", strides.map(|stride| stride as u64).to_vec());
            node.integers.insert("pads", vec![pads / 2, pads / 2, pads.div_ceil(2), pads.div_ceil(2)]);
            node.integers.insert("group", vec![if code == Some(4) { channels as u64 } else { 1 }]);
        }
        "ConvTranspose" => _ = node.integers.insert("strides", vec![2; 2]),
        // The other inputs, which are the axes and the size, are left out.
        "GlobalAveragePool" | "Resize" => node.inputs.truncate(1),
        _ => {}
    }
    Some((node, order))
}

/// The graph of a model. `None` if the data is not a TensorFlow Lite file, or if the file is damaged.
pub fn graph<'a>(file: &'a [u8]) -> Option<Graph<'a>> {
    (file.get(4..8)? == b"TFL3").then_some(())?;
    let model = Table { file, at: number(file, 0)? };
    let (codes, buffers) = (model.vector(1)?.tables()?, model.vector(4)?.tables()?);
    let main = model.vector(2)?.table(0)?;
    let entry = |tensor: Table<'a>| {
        let bytes = buffers.get(tensor.integer(2, 0)?)?.vector(0)?.bytes()?;
        Some(Entry { name: tensor.text(3)?, dims: tensor.vector(0)?.numbers()?, kind: tensor.byte(1)?, bytes })
    };
    let entries = main.vector(0)?.tables()?.into_iter().map(entry).collect::<Option<Vec<_>>>()?;
    let named = |table: Table<'a>, field| {
        table.vector(field)?.numbers()?.into_iter().map(|index| entries.get(index)).collect::<Option<Vec<_>>>()
    };
    let mut graph = Graph::default();
    if let [1, height, width, 3] = named(main, 1)?.first()?.dims[..] {
        graph.size = Some([width, height]);
    }
    graph.outputs = named(main, 2)?.iter().map(|output| output.name).collect();
    let mut count = 0;
    for entry in &entries {
        if let Some(values) = entry.floats() {
            // Tensors may share their bytes, so a small file could describe many large tensors.
            count += values.len();
            (count <= file.len()).then_some(())?;
            graph.constants.insert(entry.name, Tensor { dims: entry.dims.clone(), values });
        }
    }
    let mut orders = HashMap::new();
    for operation in main.vector(3)?.tables()? {
        let code = codes.get(operation.integer(0, 0)?)?;
        let builtin = code.integer(3, 0)?.max(code.byte(0)?.into());
        let (inputs, outputs) = (named(operation, 1)?, named(operation, 2)?);
        if builtin == 6 {
            // This operator converts 16-bit constants to 32-bit floats. The constant has already been read as 32-bit floats.
            let constant = graph.constants.remove(inputs.first()?.name)?;
            graph.constants.insert(outputs.first()?.name, constant);
            continue;
        }
        let is_transposed = builtin == 32 && code.text(1)? == "Convolution2DTransposeBias";
        let options = operation.field(4)?.map_or(Some(None), |_| operation.table(4).map(Some))?;
        let (node, order) = node((!is_transposed).then_some(builtin), options, &inputs, &outputs)?;
        if let Some(order) = order {
            // Refuses weights that two nodes read in different orders, which do not occur.
            let before = orders.insert(*node.inputs.get(1)?, order);
            before.is_none_or(|before| before == order).then_some(())?;
        }
        graph.nodes.push(node);
    }
    for (name, order) in orders {
        if let Some(weights) = graph.constants.get_mut(name) {
            *weights = weights.transposed(order)?;
        }
    }
    Some(graph)
}
