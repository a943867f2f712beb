// SPDX-License-Identifier: MPL-2.0
//! CenterFace, against ONNX Runtime. Without the model, which scripts/models downloads, the tests are ignored.

mod element;

use std::path::{Path, PathBuf};

use gstdetectors::graph::Graph;
use gstdetectors::kernels::Instructions;
use gstdetectors::network::Network;
use gstdetectors::onnx::graph;
use gstdetectors::run::{Plane, Runner};
use libtest_mimic::{Arguments, Trial};

fn main() {
    let folder = std::env::var("CUDAGAUSSBLUR_MODELS")
        .unwrap_or(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/models").into());
    let path = PathBuf::from(folder).join("centerface.onnx");
    macro_rules! trials {
        ($($test:path),* $(,)?) => {
            vec![$({
                let path = path.clone();
                let name = stringify!($test).rsplit("::").next().unwrap().trim();
                let run = move || {
                    $test(&path);
                    Ok(())
                };
                Trial::test(name, run)
            }),*]
        };
    }
    let trials = trials![
        layers_of_centerface_are_as_onnx_runtime_has_them,
        division_of_the_work_changes_no_bit,
        element::faces_are_found_in_every_format_and_size,
        element::the_picture_is_where_a_crop_meta_says,
        element::one_frame_in_so_many_is_searched_and_four_a_second,
        element::a_frame_after_a_new_face_is_searched,
        element::frames_that_others_hold_are_neither_copied_nor_changed,
        element::the_latency_grows_by_the_time_of_searches_once_a_second_at_most,
        element::pictures_among_the_tags_are_dropped,
        element::properties_have_ranges,
        element::a_frame_that_is_too_short_ends_the_stream_with_an_error,
        element::searches_that_take_too_long_are_warned_of,
    ];
    let trials = trials.into_iter().map(|trial| trial.with_ignored_flag(!path.exists()));
    libtest_mimic::run(&Arguments::from_args(), trials.collect()).exit();
}

fn runner(graph: &Graph<'_>, outputs: &[&str], instructions: Instructions, threads: usize) -> Runner {
    Runner::new(Network::new(graph, outputs).unwrap(), instructions, threads).unwrap()
}

/// The picture of benches/hiding/onnx_runtime.py.
fn picture(y: usize, row: &mut [f32]) {
    row.iter_mut().enumerate().for_each(|(i, value)| *value = ((i / 3 * 7 + y * 13 + i % 3 * 31) * 2654 % 256) as f32);
}

/// Of each tensor of CenterFace, as ONNX Runtime has it: the sum of each channel, in which each pixel has a weight.
fn layers_of_centerface_are_as_onnx_runtime_has_them(path: &Path) {
    let model = std::fs::read(path).unwrap();
    let mut data = &include_bytes!("../data/centerface.bin")[..];
    let mut tensors = Vec::new();
    while let Some(length) = data.split_off_first() {
        let name = std::str::from_utf8(data.split_off(..usize::from(*length)).unwrap()).unwrap();
        let count = u32::from_le_bytes(data.split_off(..4).unwrap().try_into().unwrap()) as usize;
        let sums = data.split_off(..count * 4).unwrap().as_chunks().0.iter().map(|value| f32::from_le_bytes(*value));
        tensors.push((name, sums.collect::<Vec<_>>()));
    }
    let graph = graph(&model).unwrap();
    let names: Vec<_> = tensors.iter().map(|tensor| tensor.0).collect();
    let mut runner = runner(&graph, &names, Instructions::all().pop().unwrap(), 2);
    runner.run(96, 64, picture);
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
            assert!(difference < 2e-5, "{name}, channel {channel}: {found}, not {expected}");
        }
    }
    assert_eq!(tensors.len(), 63);
}

fn bits(plane: &Plane) -> Vec<u32> {
    (0..plane.height).flat_map(|y| plane.row(y).iter().map(|value| value.to_bits())).collect()
}

/// Chains of layers, threads and what is stored change nothing.
fn division_of_the_work_changes_no_bit(path: &Path) {
    let model = std::fs::read(path).unwrap();
    let graph = graph(&model).unwrap();
    let outputs = &graph.outputs[..3];
    for instructions in Instructions::all() {
        let results = |names: &[&str], threads| {
            let mut runner = runner(&graph, names, instructions, threads);
            // Another size in between, of which no value may stay.
            [(320, 192), (640, 384)].into_iter().for_each(|(width, height)| runner.run(width, height, picture));
            [0, 1, 2].map(|number| bits(runner.output(number)))
        };
        let expected = results(outputs, 1);
        // Tensors that several nodes read can be asked for, which ends a chain after each of them.
        let stored = ["377", "394", "420", "455", "481", "532", "535"];
        assert!(results(&[outputs, &stored].concat(), 1) == expected, "{instructions:?}, stored planes");
        for threads in [2, 3, 7] {
            assert!(results(outputs, threads) == expected, "{instructions:?}, {threads} threads");
        }
    }
}
