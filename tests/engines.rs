//! Every engine, every variant of it, on the one case table.

mod common;

use common::cases::{self, half};
use common::oracle::Image;
use gstcudagaussblur::cpu::{CpuEngine, InstructionSet};
use gstcudagaussblur::engine::{Backend, Engine};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::frame::{Plane, PlaneLayout};

#[test]
fn every_instruction_set_gives_the_oracles_bytes() {
    let cases = cases::all();
    for set in InstructionSet::available() {
        let cpu = CpuEngine::new().unwrap().with_instruction_set(set).unwrap();
        let mut engine = Engine::on_cpu(cpu);
        let bytes: usize = cases.iter().map(|case| case.check_engine(&mut engine)).sum();
        println!("cpu {:<12} {} cases, {bytes} bytes, 0 differ", set.name(), cases.len());
    }
}

/// A 4:2:0 picture: each plane with its own size and its own sigma, in one call.
#[test]
fn planes_are_blurred_each_with_its_own_sigma() {
    let params = BlurParams::new(4.0, 0).unwrap();
    let plane = |width, height, channels, scale| PlaneLayout { width, height, channels, depth: 8, sigma_scale: scale };
    let layouts = [plane(75, 51, 1, [1.0, 1.0]), plane(38, 26, 2, [0.5, 0.5]), plane(38, 51, 1, [0.5, 1.0])];
    let images: Vec<Image> = layouts
        .iter()
        .enumerate()
        .map(|(seed, layout)| Image {
            width: layout.width as usize,
            height: layout.height as usize,
            channels: usize::from(layout.channels),
            depth: 8,
            samples: {
                let count = layout.row_samples() * layout.height as usize;
                common::Noise(seed as u64).bytes(count).into_iter().map(u16::from).collect()
            },
        })
        .collect();
    let sources: Vec<Vec<u8>> = images.iter().map(|image| image.samples.iter().map(|s| *s as u8).collect()).collect();
    let mut outputs: Vec<Vec<u8>> = sources.iter().map(|source| vec![0; source.len()]).collect();

    let (mut engine, _) = Engine::open(Backend::Cpu, None).unwrap();
    let planes = layouts.iter().zip(&sources);
    let src =
        planes.map(|(layout, data)| Plane { layout: *layout, pitch: layout.row_bytes(), data: &data[..] }).collect();
    let planes = layouts.iter().zip(&mut outputs);
    let mut dst = planes
        .map(|(layout, data)| Plane { layout: *layout, pitch: layout.row_bytes(), data: &mut data[..] })
        .collect();
    engine.blur(params, &src, &mut dst).unwrap();

    for ((layout, image), output) in layouts.iter().zip(&images).zip(&outputs) {
        let [rows, columns] = layout.sigma_scale.map(|scale| half(&params.taps(scale)));
        let expected: Vec<u8> = image.blurred(&rows, &columns).samples.iter().map(|s| *s as u8).collect();
        assert!(*output == expected, "{layout:?}");
    }
    assert_eq!(engine.stats().frames_cpu, 1);
}
