// SPDX-License-Identifier: MPL-2.0
//! ONNX files: what is read of them, and that no damage to one makes the reader or the network panic.

use gstdetectors::kernels::Instructions;
use gstdetectors::network::Network;
use gstdetectors::onnx::graph;
use gstdetectors::run::Runner;

fn varint(mut value: usize) -> Vec<u8> {
    let mut bytes = Vec::new();
    while value > 127 {
        bytes.push(value as u8 | 128);
        value >>= 7;
    }
    bytes.push(value as u8);
    bytes
}

/// A field of bytes of a protobuf message.
fn field(number: usize, bytes: &[u8]) -> Vec<u8> {
    [varint(number << 3 | 2), varint(bytes.len()), bytes.to_vec()].concat()
}

fn number(number: usize, value: usize) -> Vec<u8> {
    [varint(number << 3), varint(value)].concat()
}

fn node(operator: &str, inputs: &[&str], output: &str, attributes: &[(&str, &[usize])]) -> Vec<u8> {
    let inputs = inputs.iter().flat_map(|input| field(1, input.as_bytes()));
    let attributes = attributes.iter().flat_map(|(name, values)| {
        let values = values.iter().flat_map(|value| number(8, *value));
        field(5, &field(1, name.as_bytes()).into_iter().chain(values).collect::<Vec<_>>())
    });
    let parts = inputs.chain(field(2, output.as_bytes())).chain(field(4, operator.as_bytes())).chain(attributes);
    field(1, &parts.collect::<Vec<_>>())
}

fn tensor(name: &str, dims: &[usize], values: &[f32]) -> Vec<u8> {
    let data: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    let packed: Vec<u8> = dims.iter().flat_map(|side| varint(*side)).collect();
    field(5, &[field(1, &packed), number(2, 1), field(8, name.as_bytes()), field(9, &data)].concat())
}

/// Two convolutions with a ReLU, an addition and a sigmoid.
fn file() -> Vec<u8> {
    let weights: Vec<f32> = (0..432).map(|i| (i % 7) as f32 - 3.).collect();
    let parts = [
        node("Conv", &["picture", "a"], "t0", &[("strides", &[2, 2]), ("pads", &[1; 4])]),
        node("Relu", &["t0"], "t1", &[]),
        node("Conv", &["t1", "b", "c"], "t2", &[("pads", &[1; 4]), ("group", &[16])]),
        node("Add", &["t2", "t1"], "t3", &[]),
        node("Sigmoid", &["t3"], "t4", &[]),
        tensor("a", &[16, 3, 3, 3], &weights),
        tensor("b", &[16, 1, 3, 3], &weights[..144]),
        tensor("c", &[16], &weights[..16]),
        field(12, &field(1, b"t4")),
    ];
    [number(1, 4), field(7, &parts.concat())].concat()
}

/// Reads a file and runs what it describes. `None` if it is refused.
fn run(file: &[u8]) -> Option<f32> {
    let graph = graph(file)?;
    let network = Network::new(&graph, &graph.outputs).ok()?;
    let side = network.multiple();
    let mut runner = Runner::new(network, Instructions::all().pop()?, 1).ok()?;
    runner.run(side, side, |y, row| row.iter_mut().enumerate().for_each(|(x, value)| *value = (x * 5 + y) as f32));
    Some((0..graph.outputs.len()).flat_map(|number| runner.output(number).row(0)).sum())
}

#[test]
fn a_file_is_read() {
    let file = file();
    let graph = graph(&file).unwrap();
    let operators: Vec<_> = graph.nodes.iter().map(|node| node.operator).collect();
    assert_eq!(operators, ["Conv", "Relu", "Conv", "Add", "Sigmoid"]);
    assert_eq!((&graph.nodes[2].inputs[..], &graph.nodes[2].outputs[..]), (&["t1", "b", "c"][..], &["t2"][..]));
    assert_eq!((graph.nodes[0].integers["strides"].as_slice(), &graph.outputs[..]), (&[2, 2][..], &["t4"][..]));
    let constant = &graph.constants["b"];
    assert_eq!((&constant.dims[..], constant.values.len(), constant.values[6]), (&[16, 1, 3, 3][..], 144, 3.));
    assert!(run(&file).is_some_and(f32::is_finite));
}

#[test]
fn a_constant_whose_size_is_not_that_of_its_values_is_refused() {
    for dims in [&[][..], &[2], &[0], &[1 << 32, 1 << 32]] {
        let file = field(7, &tensor("a", dims, &[1., 2., 3.]));
        assert!(graph(&file).is_none(), "{dims:?}");
    }
    assert!(graph(&field(7, &tensor("a", &[3], &[1., 2., 3.]))).is_some());
}

#[test]
fn no_damage_panics() {
    let whole = file();
    (0..whole.len()).for_each(|length| _ = run(&whole[..length]));
    let (mut state, mut accepted) = (1u32, 0);
    let mut below = |limit: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % limit
    };
    // Constants take most of the file: damage also to the part before them.
    let head = whole.windows(3).position(|bytes| bytes == b"a\x4a\xc0").unwrap_or(400);
    for _ in 0..40_000 {
        let mut file = whole.clone();
        for _ in 0..1 + below(3) {
            let limit = if below(2) == 0 { head } else { file.len() };
            let place = below(limit);
            match below(3) {
                0 => file[place] = below(256) as u8,
                1 => file[place] ^= 1 << below(8),
                _ => _ = file.remove(place),
            }
        }
        accepted += usize::from(run(&file).is_some());
    }
    assert!(accepted > 1000, "{accepted}");
}
