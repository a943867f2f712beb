//! The networks, against ONNX Runtime and LiteRT.

use std::path::Path;

use gstdetectors::graph::Graph;
use gstdetectors::kernels::Instructions;
use gstdetectors::network::Network;
use gstdetectors::run::{Plane, Runner};
use gstdetectors::{onnx, tflite};

const LANDSCAPE: &str = "selfie_segmentation_landscape.tflite";
const SQUARE: &str = "selfie_segmentation.tflite";

fn runner(graph: &Graph<'_>, outputs: &[&str], instructions: Instructions, threads: usize) -> Runner {
    Runner::new(Network::new(graph, outputs).unwrap(), instructions, threads).unwrap()
}

/// The picture of benches/hiding/onnx_runtime.py.
fn picture(y: usize, row: &mut [f32]) {
    row.iter_mut().enumerate().for_each(|(i, value)| *value = ((i / 3 * 7 + y * 13 + i % 3 * 31) * 2654 % 256) as f32);
}

/// The picture of benches/hiding/litert.py, with values of 0 to 1.
fn unit_picture(y: usize, row: &mut [f32]) {
    picture(y, row);
    row.iter_mut().for_each(|value| *value /= 255.);
}

/// The names of tensors, and the sum of each channel, in which each pixel has a weight.
fn tensors(mut data: &[u8]) -> Vec<(&str, Vec<f32>)> {
    let mut tensors = Vec::new();
    while let Some(length) = data.split_off_first() {
        let name = std::str::from_utf8(data.split_off(..usize::from(*length)).unwrap()).unwrap();
        let count = u32::from_le_bytes(data.split_off(..4).unwrap().try_into().unwrap()) as usize;
        let sums = data.split_off(..count * 4).unwrap().as_chunks().0.iter().map(|value| f32::from_le_bytes(*value));
        tensors.push((name, sums.collect()));
    }
    tensors
}

/// Runs a network for a picture of this size, and compares the sums with those of another implementation.
fn compare(graph: &Graph<'_>, data: &[u8], [width, height]: [usize; 2], read: fn(usize, &mut [f32]), count: usize) {
    let tensors = tensors(data);
    let names: Vec<_> = tensors.iter().map(|tensor| tensor.0).collect();
    for instructions in Instructions::all() {
        let mut runner = runner(graph, &names, instructions, 2);
        runner.run(width, height, read);
        for (number, (name, expected)) in tensors.iter().enumerate() {
            let plane = runner.output(number);
            let mut sums = vec![0f64; plane.channels];
            for (y, x) in (0..plane.height).flat_map(|y| (0..plane.width).map(move |x| (y, x))) {
                let values = &plane.row(y)[x * plane.channels..][..plane.channels];
                let weight = (1 + (3 * x + 5 * y) % 7) as f64;
                sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += f64::from(*value) * weight);
            }
            assert_eq!(sums.len(), expected.len(), "{name}");
            let largest = expected.iter().fold(0f32, |largest, sum| largest.max(sum.abs()));
            for (channel, (found, expected)) in sums.iter().zip(expected).enumerate() {
                let difference = (found - f64::from(*expected)).abs() / f64::from(largest);
                assert!(difference < 2e-5, "{instructions:?}, {name}, channel {channel}: {found}, not {expected}");
            }
        }
    }
    assert_eq!(tensors.len(), count);
}

pub fn layers_of_centerface_are_as_onnx_runtime_has_them(path: &Path) {
    let model = std::fs::read(path).unwrap();
    compare(&onnx::graph(&model).unwrap(), include_bytes!("../data/centerface.bin"), [96, 64], picture, 63);
}

pub fn layers_of_segmentation_are_as_litert_has_them(folder: &Path) {
    for (name, data) in [
        (LANDSCAPE, &include_bytes!("../data/selfie_segmentation_landscape.bin")[..]),
        (SQUARE, &include_bytes!("../data/selfie_segmentation.bin")[..]),
    ] {
        let model = std::fs::read(folder.join(name)).unwrap();
        let graph = tflite::graph(&model).unwrap();
        compare(&graph, data, graph.size.unwrap(), unit_picture, 81);
    }
}

fn bits(plane: &Plane) -> Vec<u32> {
    (0..plane.height).flat_map(|y| plane.row(y).iter().map(|value| value.to_bits())).collect()
}

/// The bits of these outputs, after a picture of another size, of which no value may stay. `stored` is the runner's, or the default.
fn results(
    graph: &Graph<'_>,
    names: &[&str],
    (instructions, threads, stored): (Instructions, usize, Option<usize>),
    sizes: [[usize; 2]; 2],
) -> Vec<Vec<u32>> {
    let mut runner = runner(graph, names, instructions, threads);
    runner.stored = stored.unwrap_or(runner.stored);
    sizes.into_iter().for_each(|[width, height]| runner.run(width, height, unit_picture));
    (0..names.len()).map(|number| bits(runner.output(number))).collect()
}

/// Chains of layers, threads and what is stored change nothing.
pub fn division_of_the_work_changes_no_bit(path: &Path) {
    let model = std::fs::read(path).unwrap();
    let graph = onnx::graph(&model).unwrap();
    let outputs = &graph.outputs[..3];
    let sizes = [[320, 192], [640, 384]];
    for instructions in Instructions::all() {
        let expected = results(&graph, outputs, (instructions, 1, None), sizes);
        // Tensors that several nodes read can be asked for, which ends a chain after each of them.
        let stored = ["377", "394", "420", "455", "481", "532", "535"];
        let found = results(&graph, &[outputs, &stored].concat(), (instructions, 1, None), sizes);
        assert!(found[..3] == expected, "{instructions:?}, stored planes");
        for threads in [2, 3, 7] {
            let found = results(&graph, outputs, (instructions, threads, None), sizes);
            assert!(found == expected, "{instructions:?}, {threads} threads");
        }
    }
}

pub fn division_of_the_work_changes_no_bit_of_segmentation(folder: &Path) {
    for name in [LANDSCAPE, SQUARE] {
        let model = std::fs::read(folder.join(name)).unwrap();
        let graph = tflite::graph(&model).unwrap();
        let sizes = [[64, 192], graph.size.unwrap()];
        for instructions in Instructions::all() {
            let expected = results(&graph, &graph.outputs, (instructions, 1, None), sizes);
            for (threads, stored) in
                [(1, Some(0)), (1, Some(usize::MAX)), (2, None), (3, Some(0)), (7, Some(usize::MAX))]
            {
                let found = results(&graph, &graph.outputs, (instructions, threads, stored), sizes);
                assert!(found == expected, "{name}, {instructions:?}, {threads} threads, stored {stored:?}");
            }
        }
    }
}
