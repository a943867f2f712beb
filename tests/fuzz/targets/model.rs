// SPDX-License-Identifier: MPL-2.0
//! Any file as a detector's model: it is refused, or its network runs.
#![no_main]

use gstdetectors::kernels::Instructions;
use gstdetectors::network::Network;
use gstdetectors::onnx::graph;
use gstdetectors::run::Runner;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|file: &[u8]| {
    let Some(graph) = graph(file) else { return };
    let Ok(network) = Network::new(&graph, &graph.outputs) else { return };
    let side = network.multiple();
    for instructions in Instructions::all() {
        let network = Network::new(&graph, &graph.outputs).expect("it was accepted before");
        let mut runner = Runner::new(network, instructions, 1).expect("a thread can be started");
        runner.stored = 0;
        runner.run(side, 2 * side, |row, values| values.fill(row as f32));
    }
});
