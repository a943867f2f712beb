//! Every CPU instruction set on the one case table.

mod common;

use common::cases;
use gstcudagaussblur::cpu::{CpuEngine, InstructionSet};
use gstcudagaussblur::engine::Engine;

#[test]
fn every_instruction_set_matches_the_oracle() {
    let cases = cases::all();
    for set in InstructionSet::available() {
        let cpu = CpuEngine::new().with_instruction_set(set).unwrap();
        let mut engine = Engine::with_cpu(cpu);
        let bytes: usize = cases.iter().map(|case| case.check_engine(&mut engine)).sum();
        println!("cpu {:<12} {} cases, {bytes} bytes, 0 differ", set.name(), cases.len());
    }
}
