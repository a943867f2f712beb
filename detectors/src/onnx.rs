// SPDX-License-Identifier: MPL-2.0
//! Reads the graph of an ONNX file: its nodes, its constants of 32-bit floats and the names of its outputs.

use crate::graph::{Graph, Node, Tensor};

/// A value of a protobuf message: a number, or bytes for all other types.
enum Value<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// The fields of a protobuf message, each with its number. `None` if the message is malformed.
fn fields(mut data: &[u8]) -> Option<Vec<(u64, Value<'_>)>> {
    let mut all = Vec::new();
    while !data.is_empty() {
        let key = varint(&mut data)?;
        let value = match key & 7 {
            0 => Value::Number(varint(&mut data)?),
            1 => Value::Bytes(data.split_off(..8)?),
            2 => {
                let length = varint(&mut data)?.try_into().ok()?;
                Value::Bytes(data.split_off(..length)?)
            }
            5 => Value::Bytes(data.split_off(..4)?),
            _ => return None,
        };
        all.push((key >> 3, value));
    }
    Some(all)
}

fn varint(data: &mut &[u8]) -> Option<u64> {
    let mut number = 0;
    for shift in (0..64).step_by(7) {
        let byte = *data.split_off_first()?;
        number |= u64::from(byte & 127) << shift;
        if byte < 128 {
            return Some(number);
        }
    }
    None
}

/// The numbers of a repeated field: a single number, or several packed ones.
fn numbers(value: &Value) -> Option<Vec<u64>> {
    let mut packed = match value {
        Value::Number(number) => return Some(vec![*number]),
        Value::Bytes(packed) => *packed,
    };
    let mut all = Vec::new();
    while !packed.is_empty() {
        all.push(varint(&mut packed)?);
    }
    Some(all)
}

fn text(bytes: &[u8]) -> Option<&str> {
    std::str::from_utf8(bytes).ok()
}

/// The name of a constant, and the constant itself if its values are floats. `None` if it is malformed, or if its dimensions do
/// not agree with the number of its values.
fn tensor(data: &[u8]) -> Option<(&str, Option<Tensor>)> {
    let (mut name, mut dims, mut values, mut kind) = ("", Vec::new(), Vec::new(), 0);
    for (field, value) in fields(data)? {
        match (field, value) {
            (1, value) => dims.append(&mut numbers(&value)?),
            (2, Value::Number(number)) => kind = number,
            (8, Value::Bytes(bytes)) => name = text(bytes)?,
            // These fields have floats, packed or raw.
            (4 | 9, Value::Bytes(bytes)) => {
                values.extend(bytes.as_chunks().0.iter().map(|bytes| f32::from_le_bytes(*bytes)));
            }
            _ => {}
        }
    }
    if kind != 1 {
        return Some((name, None));
    }
    let dims = dims.into_iter().map(|side| usize::try_from(side).ok()).collect::<Option<Vec<_>>>()?;
    let count = dims.iter().try_fold(1, |count: usize, side| count.checked_mul(*side));
    (count == Some(values.len()) && count != Some(0)).then_some((name, Some(Tensor { dims, values })))
}

fn node(data: &[u8]) -> Option<Node<'_>> {
    let mut node = Node::default();
    for (field, value) in fields(data)? {
        let Value::Bytes(bytes) = value else { continue };
        match field {
            1 => node.inputs.push(text(bytes)?),
            2 => node.outputs.push(text(bytes)?),
            4 => node.operator = text(bytes)?,
            5 => {
                let (mut name, mut integers) = ("", Vec::new());
                for (field, value) in fields(bytes)? {
                    match (field, value) {
                        (1, Value::Bytes(bytes)) => name = text(bytes)?,
                        (2, Value::Bytes(bytes)) => {
                            _ = node.floats.insert(name, f32::from_le_bytes(bytes.try_into().ok()?));
                        }
                        (3 | 8, value) => integers.append(&mut numbers(&value)?),
                        _ => {}
                    }
                }
                node.integers.insert(name, integers);
            }
            _ => {}
        }
    }
    Some(node)
}

/// The graph of a model. `None` if the data is not an ONNX file.
pub fn graph(data: &[u8]) -> Option<Graph<'_>> {
    let mut graph = Graph::default();
    for (field, value) in fields(data)? {
        let (7, Value::Bytes(bytes)) = (field, value) else { continue };
        for (field, value) in fields(bytes)? {
            match (field, value) {
                (1, Value::Bytes(bytes)) => graph.nodes.push(node(bytes)?),
                (5, Value::Bytes(bytes)) => {
                    let (name, tensor) = tensor(bytes)?;
                    graph.constants.extend(tensor.map(|tensor| (name, tensor)));
                }
                (12, Value::Bytes(bytes)) => {
                    let name = fields(bytes)?.into_iter().find_map(|(field, value)| match (field, value) {
                        (1, Value::Bytes(name)) => text(name),
                        _ => None,
                    });
                    graph.outputs.push(name?);
                }
                _ => {}
            }
        }
    }
    Some(graph)
}
