//! Pipelines in several processes. Each child process is this program with the argument `--child`.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use crate::common::Outcome;
use crate::push_pipeline::{Memory, SINK};
use crate::throughput::{self, frame};
use crate::{SIGMA, SIZE, ours, warm_up};

/// The argument that makes this program a child. The next one is the number of frames in flight.
pub const CHILD: &str = "--child";

/// Runs this many processes at once, and returns the frames per second of each.
pub fn rates(count: usize, in_flight: u32) -> Outcome<Vec<f64>> {
    let mut children = (0..count).map(|_| start(in_flight)).collect::<Outcome<Vec<_>>>()?;
    let rates = run(&mut children);
    for child in &mut children {
        // A child that was not told to begin ends at the end of its input.
        drop(child.stdin.take());
        child.wait()?;
    }
    rates
}

fn start(in_flight: u32) -> Outcome<Child> {
    // In a GPU pack (scripts/gpu-pack) programs are started by the packed runtime.
    let mut command = match (std::env::var_os("CUDAGAUSSBLUR_TEST_RUNNER"), std::env::args_os().next()) {
        (Some(runner), Some(program)) => {
            let mut command = Command::new(runner);
            command.arg(program);
            command
        }
        _ => Command::new(std::env::current_exe()?),
    };
    command.args([CHILD, &in_flight.to_string()]);
    Ok(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
}

/// Waits until all children are ready, lets them begin, and reads their results.
fn run(children: &mut [Child]) -> Outcome<Vec<f64>> {
    let mut outputs: Vec<_> = children.iter_mut().filter_map(|child| child.stdout.take().map(BufReader::new)).collect();
    for output in &mut outputs {
        let mut line = String::new();
        output.read_line(&mut line)?;
        if line.trim() != "ready" {
            return Err(format!("a child process printed {:?} instead of \"ready\"", line.trim()).into());
        }
    }
    for child in children {
        child.stdin.as_mut().expect("piped").write_all(b"begin\n")?;
    }
    let rate = |output: &mut BufReader<_>| {
        let mut line = String::new();
        output.read_line(&mut line)?;
        Ok(line
            .trim()
            .parse::<f64>()
            .map_err(|_| format!("a child process printed {:?} instead of its result", line.trim()))?)
    };
    outputs.iter_mut().map(rate).collect()
}

/// The child process: prints "ready", waits for a line of input, and prints its frames per second.
pub fn child(in_flight: u32) -> Outcome<()> {
    warm_up(&frame(), SIGMA, SIZE)?;
    println!("ready");
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line)? == 0 {
        return Ok(());
    }
    println!("{}", throughput::rates(&format!("{} ! {SINK}", ours(in_flight)), Memory::Offered, 1)?[0]);
    Ok(())
}
