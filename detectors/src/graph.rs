// SPDX-License-Identifier: MPL-2.0
//! The graph of a model, independent of the file's format: constants, and nodes with the operators of ONNX.

use std::collections::HashMap;

/// A constant, with its values in the order of the dimensions.
pub struct Tensor {
    pub dims: Vec<usize>,
    pub values: Vec<f32>,
}

impl Tensor {
    /// The same constant with its axes in this order. `None` if it does not have four axes.
    pub fn transposed(&self, order: [usize; 4]) -> Option<Self> {
        let dims: [usize; 4] = self.dims[..].try_into().ok()?;
        let steps = [dims[1] * dims[2] * dims[3], dims[2] * dims[3], dims[3], 1];
        let ([a, b, c, d], [sa, sb, sc, sd]) = (order.map(|axis| dims[axis]), order.map(|axis| steps[axis]));
        let mut values = Vec::with_capacity(self.values.len());
        for (i, j, k) in (0..a).flat_map(|i| (0..b).flat_map(move |j| (0..c).map(move |k| (i, j, k)))) {
            values.extend((0..d).map(|l| self.values[i * sa + j * sb + k * sc + l * sd]));
        }
        Some(Self { dims: vec![a, b, c, d], values })
    }
}

#[derive(Default)]
pub struct Node<'a> {
    pub operator: &'a str,
    pub inputs: Vec<&'a str>,
    pub outputs: Vec<&'a str>,
    /// Attributes with one integer or a list of integers.
    pub integers: HashMap<&'a str, Vec<u64>>,
    /// Attributes with one float.
    pub floats: HashMap<&'a str, f32>,
}

#[derive(Default)]
pub struct Graph<'a> {
    /// The nodes in the file's order. A node comes after the nodes whose outputs it reads.
    pub nodes: Vec<Node<'a>>,
    pub constants: HashMap<&'a str, Tensor>,
    pub outputs: Vec<&'a str>,
    /// Width and height of the picture, if the file states them.
    pub size: Option<[usize; 2]>,
}
