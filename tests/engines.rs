//! Every CPU instruction set on the one case table, and what the table has to contain.

mod common;

use common::cases::{self, Case};
use common::frames;
use gstcudagaussblur::cpu::{CpuEngine, InstructionSet};
use gstcudagaussblur::engine::Engine;
use gstcudagaussblur::filter::frame::{PlaneLayout, Role, SampleLayout};
use gstcudagaussblur::filter::plan::AlphaMode;

#[test]
fn every_instruction_set_matches_the_oracle() {
    let cases: Vec<Case> = cases::all().into_iter().step_by(cases::one_in().unwrap_or(1)).collect();
    let sets = InstructionSet::available();
    let engine = |set: &InstructionSet| Engine::with_cpu(CpuEngine::new().with_instruction_set(*set).unwrap());
    let mut engines: Vec<Engine> = sets.iter().map(engine).collect();
    let bytes: usize = cases.iter().map(|case| case.check_engines(&mut engines)).sum();
    for set in sets {
        println!("cpu {:<12} {} cases, {bytes} bytes, 0 differ", set.name(), cases.len());
    }
}

/// A component of a case, as the oracle blurs it.
struct Blurred<'a> {
    case: &'a Case,
    layout: &'a PlaneLayout,
    role: Role,
    width: usize,
    /// The number of levels along rows and along columns.
    levels: [usize; 2],
}

impl<'a> Blurred<'a> {
    fn of(case: &'a Case) -> Vec<Self> {
        let of_plane = |layout: &'a PlaneLayout| {
            frames::components(layout).into_iter().map(move |component| {
                let levels = component.scale.map(|scale| case.options.params.axis(scale).levels().len());
                Blurred { case, layout, role: component.role, width: component.width, levels }
            })
        };
        case.planes.iter().flat_map(of_plane).collect()
    }

    fn is_packed(&self) -> bool {
        self.layout.is_packed_422()
    }

    fn is_wide(&self) -> bool {
        self.levels != [0, 0]
    }

    fn is_premultiplied(&self) -> bool {
        let has_alpha = self.case.planes.iter().any(|layout| layout.roles().contains(&Role::Alpha));
        self.case.options.alpha == AlphaMode::Premultiply && has_alpha
    }

    fn is_odd(&self) -> bool {
        self.layout.width % 2 == 1 && self.layout.width > 100
    }
}

#[test]
fn the_table_has_every_kind_of_the_wide_form() {
    let cases = cases::all();
    let all: Vec<Blurred> = cases.iter().flat_map(Blurred::of).collect();
    let mut missing = Vec::new();
    let mut has = |what: &str, is_one: &dyn Fn(&Blurred) -> bool| {
        if !all.iter().any(is_one) {
            missing.push(what.to_owned());
        }
    };
    for count in 0..=4 {
        has(&format!("{count} levels on both axes"), &|one| one.levels == [count, count] && one.width > 100);
    }
    has("levels along rows alone", &|one| one.levels[0] > 0 && one.levels[1] == 0);
    has("levels along columns alone", &|one| one.levels[0] == 0 && one.levels[1] > 0);
    has("more levels along rows", &|one| one.levels[0] > one.levels[1] && one.levels[1] > 0);
    has("more levels along columns", &|one| one.levels[1] > one.levels[0] && one.levels[0] > 0);
    let unequal = |one: &Blurred| one.levels[0] != one.levels[1];
    has("unequal axes of fields", &|one| one.layout.split.alternates() && !one.is_packed() && unequal(one));
    has("unequal axes of packed 4:2:2", &|one| one.is_packed() && !one.layout.split.alternates() && unequal(one));
    has("unequal axes of interlaced packed 4:2:2", &|one| {
        one.is_packed() && one.layout.split.alternates() && unequal(one)
    });
    let is_subsampled = |one: &Blurred| one.layout.sigma_scale[0] != one.layout.sigma_scale[1];
    has("unequal axes of a subsampled plane", &|one| {
        is_subsampled(one) && !one.layout.split.alternates() && unequal(one)
    });

    let chroma = |one: &Blurred, levels| one.role == Role::Chroma && one.is_packed() && one.levels[0] == levels;
    has("packed 4:2:2 with direct rows of chroma and wide rows of luma", &|one| chroma(one, 0) && one.levels[1] > 0);
    has("packed 4:2:2 with direct chroma and wide luma", &|one| {
        let luma = Blurred::of(one.case).into_iter().any(|other| other.role == Role::Primary && other.is_wide());
        one.is_packed() && one.role == Role::Chroma && !one.is_wide() && luma
    });
    has("packed 4:2:2 with wide rows of chroma", &|one| chroma(one, 1));
    let layouts = [
        SampleLayout::LsbAligned,
        SampleLayout::MsbAligned,
        SampleLayout::Packed1010102,
        SampleLayout::Yuv422 { luma: 0 },
        SampleLayout::Yuv422 { luma: 1 },
    ];
    for layout in layouts {
        let is_it = |one: &Blurred| one.layout.sample_layout == layout && one.levels[0] > 0 && one.levels[1] > 0;
        has(&format!("an odd width of {layout:?}"), &|one| is_it(one) && one.is_odd());
        has(&format!("two levels of {layout:?}"), &|one| is_it(one) && one.levels[0] > 1);
    }
    for depth in [8, 9, 10, 12, 16] {
        has(&format!("{depth} bits"), &|one| one.levels[0] > 1 && one.layout.depth == depth);
    }
    for channels in 1..=4 {
        has(&format!("{channels} channels"), &|one| {
            one.is_wide() && one.layout.channels == channels && one.width > 100 && !one.is_packed()
        });
    }
    has("premultiplied colour beside its alpha", &|one| {
        one.is_wide() && one.is_premultiplied() && one.layout.channels == 4 && one.role == Role::Primary
    });
    has("premultiplied subsampled colour", &|one| one.is_wide() && one.is_premultiplied() && one.role == Role::Chroma);
    has("premultiplied fields", &|one| one.is_wide() && one.is_premultiplied() && one.layout.split.alternates());
    has("a channel that is not selected", &|one| {
        one.is_wide() && one.role == Role::Alpha && one.layout.channels == 4 && !one.case.options.planes.alpha
    });
    has("1x1 with four levels", &|one| one.levels == [4, 4] && (one.layout.width, one.layout.height) == (1, 1));
    assert!(missing.is_empty(), "no case has {}", missing.join(", "));
}
