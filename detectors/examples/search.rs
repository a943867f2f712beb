// SPDX-License-Identifier: MPL-2.0
//! search MODEL THREADS [INSTRUCTIONS]: prints the least and the median time of 40 runs of a model, in ms. The picture has the
//! size that the file states; for centerface.onnx, which states none, it is 640x384. INSTRUCTIONS is avx512, avx2, sse2 or neon.
//! The default is the fastest set of this processor.

use std::time::Instant;

use gstdetectors::{kernels::Instructions, network::Network, onnx, run::Runner, tflite};

fn main() {
    let arguments: Vec<_> = std::env::args().skip(1).collect();
    let [model, threads, instructions @ ..] = &arguments[..] else { panic!("search MODEL THREADS [INSTRUCTIONS]") };
    let model = std::fs::read(model).unwrap();
    let graph = tflite::graph(&model).or_else(|| onnx::graph(&model)).unwrap();
    let network = Network::new(&graph, &graph.outputs[..graph.outputs.len().min(3)]).unwrap();
    let [width, height] = network.size.unwrap_or([640, 384]);
    let named = |set: &Instructions| instructions.first().is_none_or(|name| name == set.name());
    let set = Instructions::all().into_iter().rfind(named).expect("this processor has no such instructions");
    let mut runner = Runner::new(network, set, threads.parse().unwrap()).unwrap();
    let mut times = [(); 40].map(|()| {
        let started = Instant::now();
        runner.run(width, height, |y, row| {
            row.iter_mut().enumerate().for_each(|(x, value)| *value = ((x * 7 + y * 13) % 256) as f32);
        });
        started.elapsed().as_secs_f64() * 1e3
    });
    times.sort_by(f64::total_cmp);
    println!("{}, threads {threads}: {:.2} {:.2}", set.name(), times[0], times[20]);
}
