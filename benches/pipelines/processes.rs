//! Pipelines in processes of their own, each of which is this program started again.

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, Command, Stdio};

use crate::common::Outcome;
use crate::line::{Memory, SINK};
use crate::{SIGMA, SIZE, many, ours, warm_up};

/// The argument that makes this program a child; after it comes how many frames are in flight.
pub const CHILD: &str = "--child";

/// Frames a second of each of so many processes at once.
pub fn rates(count: usize, flight: u32) -> Outcome<Vec<f64>> {
    let mut children = (0..count).map(|_| start(flight)).collect::<Outcome<Vec<_>>>()?;
    let rates = told(&mut children);
    for child in &mut children {
        // Those that were not told to begin end with their input.
        drop(child.stdin.take());
        child.wait()?;
    }
    rates
}

fn start(flight: u32) -> Outcome<Child> {
    // In a pack a program is started by its runtime.
    let mut command = match (std::env::var_os("CUDAGAUSSBLUR_TEST_RUNNER"), std::env::args_os().next()) {
        (Some(runner), Some(program)) => {
            let mut command = Command::new(runner);
            command.arg(program);
            command
        }
        _ => Command::new(std::env::current_exe()?),
    };
    command.args([CHILD, &flight.to_string()]);
    Ok(command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn()?)
}

/// Has all begin when the last is ready.
fn told(children: &mut [Child]) -> Outcome<Vec<f64>> {
    let mut outputs: Vec<_> = children.iter_mut().filter_map(|child| child.stdout.take().map(BufReader::new)).collect();
    for output in &mut outputs {
        let mut line = String::new();
        output.read_line(&mut line)?;
        if line.trim() != "ready" {
            return Err(format!("a child process says {:?}", line.trim()).into());
        }
    }
    for child in children {
        child.stdin.as_mut().expect("piped").write_all(b"begin\n")?;
    }
    let rate = |output: &mut BufReader<_>| {
        let mut line = String::new();
        output.read_line(&mut line)?;
        Ok(line.trim().parse::<f64>().map_err(|_| format!("a child process says {:?}", line.trim()))?)
    };
    outputs.iter_mut().map(rate).collect()
}

/// In such a process: says that it is ready, waits for its turn, and says how many frames a second went through.
pub fn child(flight: u32) -> Outcome<()> {
    warm_up(&many::frame(), SIGMA, SIZE)?;
    println!("ready");
    let mut line = String::new();
    if std::io::stdin().read_line(&mut line)? == 0 {
        return Ok(());
    }
    let element = ours(flight);
    println!("{}", many::rates(&format!("{element} ! {SINK}"), Memory::Offered, 1)?[0]);
    Ok(())
}
