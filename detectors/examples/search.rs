// SPDX-License-Identifier: MPL-2.0
//! search MODEL THREADS SET: least and median ms of searches.
use gstdetectors::{kernels::Instructions, network::Network, onnx, run::Runner};
fn main() {
    let a: Vec<_> = std::env::args().skip(1).collect();
    let model = std::fs::read(&a[0]).unwrap();
    let graph = onnx::graph(&model).unwrap();
    let network = Network::new(&graph, &graph.outputs[..3]).unwrap();
    let threads: usize = a[1].parse().unwrap();
    let all = Instructions::all();
    let set = all.iter().copied().find(|s| a.get(2).is_some_and(|n| n == s.name())).unwrap_or(*all.last().unwrap());
    let mut runner = Runner::new(network, set, threads).unwrap();
    let (w, h) = (640, 384);
    let mut times = Vec::new();
    for _ in 0..40 {
        let start = std::time::Instant::now();
        runner.run(w, h, |y, row| row.iter_mut().enumerate().for_each(|(x, v)| *v = ((x * 7 + y * 13) % 256) as f32));
        times.push(start.elapsed().as_secs_f64() * 1e3);
    }
    times.sort_by(f64::total_cmp);
    let sum: f64 = (0..3)
        .map(|o| {
            let p = runner.output(o);
            (0..p.height).map(|y| p.row(y).iter().map(|v| f64::from(*v)).sum::<f64>()).sum::<f64>()
        })
        .sum();
    println!("{} {threads}: {:.2} {:.2} ms; {sum}", set.name(), times[0], times[20]);
}
