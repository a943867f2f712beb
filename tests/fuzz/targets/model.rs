// SPDX-License-Identifier: MPL-2.0
//! Any file as a detector's model, an ONNX or a TensorFlow Lite file: it is refused, or its network runs.
#![no_main]

use gstdetectors::kernels::Instructions;
use gstdetectors::network::Network;
use gstdetectors::run::Runner;
use gstdetectors::{onnx, tflite};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let is_tflite = file.get(4..8) == Some(b"TFL3");
    let Some(graph) = (if is_tflite { tflite::graph(file) } else { onnx::graph(file) }) else { return };
    let Ok(network) = Network::new(&graph, &graph.outputs) else { return };
    let side = network.multiple();
    for instructions in Instructions::all() {
        let network = Network::new(&graph, &graph.outputs).expect("it was accepted before");
        let mut runner = Runner::new(network, instructions, 1).expect("a thread can be started");
        runner.stored = 0;
        runner.run(side, 2 * side, |row, values| values.fill(row as f32));
    }
});
