//! Every CPU instruction set on the one case table, and what the table has to contain.

mod common;

use std::collections::{BTreeMap, BTreeSet};

use common::cases::{self, Case};
use common::frames;
use gstcudagaussblur::cpu::{CpuEngine, InstructionSet};
use gstcudagaussblur::engine::Engine;

#[test]
fn every_instruction_set_matches_the_oracle() {
    let cases: Vec<Case> = cases::all().into_iter().step_by(cases::one_in().unwrap_or(1)).collect();
    let sets = InstructionSet::available();
    let engine = |set: &InstructionSet| Engine::with_cpu(CpuEngine::new().with_instruction_set(*set));
    let mut engines: Vec<Engine> = sets.iter().map(engine).collect();
    let bytes: usize = cases.iter().map(|case| case.check_engines(&mut engines)).sum();
    for set in sets {
        println!("cpu {:<12} {} cases, {bytes} bytes, 0 differ", set.name(), cases.len());
    }
}

/// Each sample layout, depth, number of channels and so on meets the direct form and every number of levels on both axes; those
/// whose axes may have different numbers of levels also meet that.
#[test]
fn the_table_has_every_kind_of_the_wide_form() {
    let mut levels: BTreeMap<String, BTreeSet<[usize; 2]>> = BTreeMap::new();
    for (case, layout) in cases::all().iter().flat_map(|case| case.planes.iter().map(move |layout| (case, layout))) {
        for component in frames::components(layout) {
            let of = component.scale.map(|scale| case.options.params.axis(scale).levels().len());
            let (is_odd, role) = (layout.width % 2 == 1, component.role);
            for kind in [
                format!("{:?}, an odd width: {is_odd}", layout.sample_layout),
                format!("{:?}, {role:?}", layout.sample_layout),
                format!("{} bits", layout.depth),
                format!("{} channels", layout.channels),
                format!("{:?}, packed: {}", layout.split, layout.is_packed_422()),
                format!("{role:?}, {:?}, selected: {}", case.options.alpha, case.options.planes.contains(role)),
                format!("subsampled: {}", layout.sigma_scale[0] != layout.sigma_scale[1]),
                format!("one sample: {}", (layout.width, layout.height) == (1, 1)),
            ] {
                levels.entry(kind).or_default().insert(of);
            }
        }
    }
    assert!(levels.len() > 50, "{levels:?}");
    for (kind, levels) in &levels {
        let is_any = |ends: &[&str]| ends.iter().any(|end| kind.starts_with(end) || kind.ends_with(end));
        let most = if is_any(&["channels", "bits", "odd width: true", "one sample: true"]) { 4 } else { 1 };
        let has_unequal = levels.iter().any(|[across, down]| across != down);
        let is_enough = has_unequal || !is_any(&["Fields", "Yuv422", "subsampled: true"]);
        assert!(is_enough && (0..=most).all(|count| levels.contains(&[count; 2])), "{kind}: {levels:?}");
    }
}
