// SPDX-License-Identifier: MPL-2.0
//! TensorFlow Lite files: what is read of them, and that no damage to one makes the reader or the network panic or allocate much.

mod flatbuffer;

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use flatbuffer::Field::{Absent, Byte, Bytes, Number, Numbers, Shared, Tables};
use flatbuffer::{Model, Tensor, model, text, value};
use gstdetectors::kernels::Instructions;
use gstdetectors::network::Network;
use gstdetectors::run::Runner;
use gstdetectors::tflite::graph;

thread_local! {
    /// The bytes that the thread has allocated, and the most since it was reset.
    static ALLOCATED: Cell<[usize; 2]> = const { Cell::new([0; 2]) };
}

struct Counting;

// SAFETY: each function calls that of `System`, which is a correct allocator. The counter is a `Cell` without a destructor, of which
// access allocates nothing.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let [now, most] = ALLOCATED.get();
        let now = now.wrapping_add(layout.size());
        // Memory that another thread has allocated may be freed here, below zero.
        ALLOCATED.set([now, if (now as isize) > most as isize { now } else { most }]);
        // SAFETY: the caller fulfils what `System` requires of a layout.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        let [now, most] = ALLOCATED.get();
        ALLOCATED.set([now.wrapping_sub(layout.size()), most]);
        // SAFETY: `System` has allocated the pointer with this layout in `alloc`.
        unsafe { System.dealloc(pointer, layout) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The result, and how many bytes were allocated at once for it.
fn counted<T>(work: impl FnOnce() -> T) -> (T, usize) {
    let [before, _] = ALLOCATED.get();
    ALLOCATED.set([before; 2]);
    let result = work();
    (result, ALLOCATED.get()[1].wrapping_sub(before))
}

/// Reads a file and runs what it describes. `None` if it is refused.
fn run(file: &[u8]) -> Option<f32> {
    let graph = graph(file)?;
    let network = Network::new(&graph, &graph.outputs).ok()?;
    let side = network.multiple();
    let mut runner = Runner::new(network, Instructions::all().pop()?, 1).ok()?;
    runner.run(2 * side, side, |y, row| row.iter_mut().enumerate().for_each(|(x, value)| *value = (x * 5 + y) as f32));
    Some((0..graph.outputs.len()).flat_map(|number| runner.output(number).row(0)).sum())
}

#[test]
fn a_file_is_read() {
    let file = model().file();
    let graph = graph(&file).unwrap();
    let operators: Vec<_> = graph.nodes.iter().map(|node| (node.operator, &node.inputs[..])).collect();
    let expected: [(&str, &[&str]); 12] = [
        ("Conv", &["picture", "a", "bias"]),
        ("HardSwish", &["t0"]),
        ("Conv", &["t1", "b", "bias"]),
        ("Relu", &["t2"]),
        ("GlobalAveragePool", &["t3"]),
        ("Conv", &["t4", "c", "bias"]),
        ("Sigmoid", &["t5"]),
        ("Mul", &["t3", "t6"]),
        ("Resize", &["t7"]),
        ("Add", &["t8", "t1"]),
        ("ConvTranspose", &["t9", "d", "e"]),
        ("Sigmoid", &["t10"]),
    ];
    assert_eq!(operators, expected);
    assert_eq!(
        (graph.size, &graph.outputs[..], &graph.nodes[11].outputs[..]),
        (Some([16, 8]), &["mask"][..], &["mask"][..])
    );
    let integers = |node: usize, name: &str| graph.nodes[node].integers[name].clone();
    // Where both sides are multiples of the stride, there is less padding above and on the left.
    for (node, stride, pads, group) in [(0, 2, [0, 0, 1, 1], 1), (2, 2, [1, 1, 2, 2], 16), (5, 1, [0; 4], 1)] {
        assert_eq!(integers(node, "strides"), [stride; 2]);
        assert_eq!(integers(node, "pads"), pads);
        assert_eq!(integers(node, "group"), [group]);
    }
    // Weights: [output, row, column, input], depthwise [1, row, column, channel]. In ONNX the window's rows and columns are last.
    let weights = |name: &str, dims: [usize; 4], index: &dyn Fn([usize; 4]) -> usize, scale: f32| {
        let constant = &graph.constants[name];
        assert_eq!(constant.dims, dims, "{name}");
        for (place, found) in constant.values.iter().enumerate() {
            let [_, b, c, d] = dims;
            let index = index([place / (b * c * d), place / (c * d) % b, place / d % c, place % d]);
            assert_eq!(*found, value(index) * scale, "{name}, {place}");
        }
        assert_eq!(constant.values.len(), dims.iter().product::<usize>());
    };
    weights("a", [16, 3, 3, 3], &|[o, i, y, x]| ((o * 3 + y) * 3 + x) * 3 + i, 1.);
    weights("b", [16, 1, 5, 5], &|[c, _, y, x]| (y * 5 + x) * 16 + c, 1. / 64.);
    weights("c", [16, 16, 1, 1], &|[o, i, _, _]| o * 16 + i, 1. / 64.);
    weights("d", [16, 1, 2, 2], &|[i, _, y, x]| (y * 2 + x) * 16 + i, 1. / 64.);
    assert_eq!(graph.constants["bias"].values, (0..16).map(|i| value(i) / 64.).collect::<Vec<_>>());
    // The 16-bit constants are the 32-bit ones of DEQUANTIZE, and whole numbers are no floats.
    assert!(["a16", "axes", "size"].iter().all(|name| !graph.constants.contains_key(name)));
    assert!(run(&file).is_some_and(|sum| sum.is_finite() && sum != 0.));
    // Average pooling of the whole picture is its mean.
    let mut model = model();
    let pool = model.operation("t4");
    (pool.code, pool.inputs) = (1, vec!["t3"]);
    pool.options = vec![Byte(1), Number(1), Number(1), Number(4), Number(2), Byte(0)];
    assert_eq!(run(&model.file()), run(&file));
}

#[test]
fn what_is_not_supported_is_refused_with_a_reason() {
    type Change = fn(&mut Model);
    fn pool(model: &mut Model, options: [u32; 4]) {
        let [width, height, padding, activation] = options;
        let pool = model.operation("t4");
        (pool.code, pool.inputs) = (1, vec!["t3"]);
        let filter = [Number(width), Number(height)];
        pool.options = [&[Byte(padding as u8), Number(1), Number(1)][..], &filter, &[Byte(activation as u8)]].concat();
    }
    let unknown = "this operator is not supported";
    let changes: [(Change, String); 22] = [
        // Activations and dilations.
        (|model| model.operation("t0").options.push(Byte(1)), format!("operator t0: {unknown}")),
        (|model| model.operation("t2").options[4] = Byte(1), format!("operator t2: {unknown}")),
        (|model| model.operation("t7").options[0] = Byte(1), format!("operator t7: {unknown}")),
        (|model| model.operation("t9").options[0] = Byte(3), format!("operator t9: {unknown}")),
        (|model| model.operation("t0").options.extend([Byte(0), Number(2)]), format!("operator t0: {unknown}")),
        (|model| model.operation("t0").options.extend([Byte(0), Absent, Number(2)]), format!("operator t0: {unknown}")),
        (|model| model.operation("t2").options.extend([Number(2)]), format!("operator t2: {unknown}")),
        (|model| pool(model, [4, 2, 1, 1]), format!("operator t4: {unknown}")),
        // Pooling of a part, or of a window around each place, and means along other axes.
        (|model| pool(model, [2, 2, 1, 0]), format!("operator t4: {unknown}")),
        (|model| pool(model, [4, 1, 1, 0]), format!("operator t4: {unknown}")),
        (
            |model| {
                pool(model, [4, 2, 0, 0]);
                model.tensor("t4").dims = vec![1, 2, 4, 16];
            },
            format!("operator t4: {unknown}"),
        ),
        (|model| model.tensor("t4").dims = vec![1, 1, 1, 1], format!("operator t4: {unknown}")),
        (|model| model.tensor("t4").dims = vec![1, 2, 1, 16], format!("operator t4: {unknown}")),
        // Resizing by other factors, or from other centres.
        (|model| model.tensor("t8").dims = vec![1, 6, 8, 16], format!("operator t8: {unknown}")),
        (|model| model.operation("t8").options[3] = Byte(0), format!("operator t8: {unknown}")),
        (|model| model.operation("t8").options[2] = Byte(1), format!("operator t8: {unknown}")),
        // Operators.
        (|model| model.operation("t1").code = 21, format!("operator t1: {unknown}")),
        (|model| model.operation("t10").custom = "Other", format!("operator t10: {unknown}")),
        // "Valid" padding, sides that are no multiple of the stride, and strides that differ.
        (
            |model| model.operation("t0").options[0] = Byte(1),
            "Conv t0: 3 channels to 16 by weights [16, 3, 3, 3], stride 2, pads [0, 0, 0, 0]".into(),
        ),
        (|model| model.tensor("picture").dims = vec![1, 8, 15, 3], format!("operator t0: {unknown}")),
        (|model| model.operation("t0").options[1] = Number(1), "Conv t0: its strides are [1, 2]".into()),
        // Constants of whole numbers.
        (|model| model.tensor("c").kind = 2, "Conv t5: c is no constant of floats".into()),
    ];
    for (number, (change, reason)) in changes.into_iter().enumerate() {
        let mut model = model();
        change(&mut model);
        let file = model.file();
        let graph = graph(&file).unwrap_or_else(|| panic!("change {number}: it is not read"));
        let error = Network::new(&graph, &graph.outputs).err().unwrap_or_else(|| panic!("change {number}: {reason}"));
        assert!(error.contains(&reason), "change {number}: {error:?} has no {reason:?}");
    }
    // Two pools that are accepted: of the whole picture, with and without padding.
    for padding in [0, 1] {
        let mut model = model();
        pool(&mut model, [4, 2, padding, 0]);
        assert!(run(&model.file()).is_some(), "{padding}");
    }
}

/// Of the format's definition: a sign, five bits of exponent, ten bits of fraction.
#[test]
fn all_16_bit_floats_are_exact() {
    let bytes: Vec<_> = (0..=u16::MAX).flat_map(u16::to_le_bytes).collect();
    let mut model = model();
    model.tensors.push(Tensor { name: "all", dims: vec![1 << 16], kind: 1, bytes });
    let file = model.file();
    let graph = graph(&file).unwrap();
    let values = &graph.constants["all"].values;
    for (bits, found) in (0..=u16::MAX).zip(values) {
        let sign = if bits & 0x8000 == 0 { 1. } else { -1. };
        let (exponent, fraction) = (i32::from(bits >> 10 & 31), f64::from(bits & 1023));
        let expected = match exponent {
            0 => sign * fraction * 2f64.powi(-24),
            31 if fraction > 0. => f64::NAN,
            31 => sign * f64::INFINITY,
            _ => sign * (1024. + fraction) * 2f64.powi(exponent - 25),
        };
        let is_same = f64::from(*found) == expected && found.is_sign_negative() == (sign < 0.);
        assert!(is_same || found.is_nan() && expected.is_nan(), "{bits:#x}: {found}, not {expected}");
    }
    assert_eq!(values.len(), 1 << 16);
}

/// Runs a damaged file. Whether it is accepted. It may take as much memory as 16 files, and for its planes and the threads' rings.
fn is_accepted(file: &[u8], planes: usize) -> bool {
    let (result, allocated) = counted(|| run(file));
    assert!(allocated < 16 * file.len() + planes, "{allocated} bytes for a file of {}", file.len());
    result.is_some()
}

#[test]
fn no_damage_panics_or_allocates_much() {
    let whole = model().file();
    let accepted = |file: &[u8]| usize::from(is_accepted(file, 1 << 22));
    for length in 0..whole.len() {
        accepted(&whole[..length]);
    }
    let mut count = 0;
    for place in 0..whole.len() {
        for change in
            [|byte: u8| byte ^ 1, |byte| byte ^ 0x80, |byte: u8| byte.wrapping_add(4), |byte: u8| !byte, |_| 0, |_| 255]
        {
            let mut file = whole.clone();
            file[place] = change(file[place]);
            count += accepted(&file);
        }
    }
    assert!(count > whole.len(), "{count}");
    // Numbers of four and of two bytes: counts, offsets, sides, and places in the tables.
    let length = whole.len() as u32;
    for place in (0..whole.len() - 4).step_by(2) {
        for number in
            [0, 1, 2, length / 4, length - place as u32, 1 << 16, 0x7fff_ffff, 0x8000_0000, u32::MAX - 3, u32::MAX]
        {
            let mut file = whole.clone();
            file[place..place + 4].copy_from_slice(&number.to_le_bytes());
            accepted(&file);
            let mut file = whole.clone();
            file[place..place + 2].copy_from_slice(&(number as u16).to_le_bytes());
            accepted(&file);
        }
    }
}

/// Tables of a FlatBuffer can share what they point to, so that a small file describes a large graph.
#[test]
fn what_is_shared_takes_no_memory_again_and_again() {
    let count = 20_000;
    let many = || Numbers(vec![1; count]);
    let tensor = || vec![Numbers(vec![1, 8, 8, 3]), Byte(0), Number(0), text("t")];
    let root = |tensors, operations| {
        let graph = vec![tensors, Numbers(vec![0]), Numbers(vec![0]), operations];
        let codes = Tables(vec![vec![Byte(19), Absent, Number(1), Number(19)]]);
        flatbuffer::file(&[
            Number(3),
            codes,
            Tables(vec![graph]),
            Absent,
            Tables(vec![vec![Bytes(vec![0; 4 * count])]]),
        ])
    };
    let operation = |inputs| vec![Number(0), inputs, Numbers(vec![0])];
    let names: Vec<&'static str> = (0..3000).map(|i| &*Box::leak(format!("{i}").into_boxed_str())).collect();
    let constant = |name: &&str| vec![Numbers(vec![count as u32]), Byte(0), Number(0), text(name)];
    let files = [
        ("dimensions", root(Shared(count, vec![many(), Byte(0), Number(0), text("t")]), Tables(vec![]))),
        ("inputs", root(Tables(vec![tensor(), tensor()]), Shared(count, operation(many())))),
        ("constants", root(Tables(names.iter().map(constant).collect()), Tables(vec![]))),
    ];
    for (what, file) in files {
        let (_, allocated) = counted(|| graph(&file).is_some());
        assert!(allocated < 32 * file.len(), "{what}: {allocated} bytes for a file of {}", file.len());
    }
    // Operations may share inputs.
    let file = root(Tables(vec![tensor(), tensor()]), Shared(100, operation(Numbers(vec![0]))));
    assert_eq!(graph(&file).map(|graph| graph.nodes.len()), Some(100));
}

/// The real models, if they are there, damaged in some places.
#[test]
fn damage_to_the_real_models_neither_panics_nor_allocates_much() {
    let folder = std::env::var("CUDAGAUSSBLUR_MODELS")
        .unwrap_or(concat!(env!("CARGO_MANIFEST_DIR"), "/../target/models").into());
    let mut state = 1u32;
    let mut below = |limit: usize| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as usize % limit
    };
    for name in ["selfie_segmentation_landscape.tflite", "selfie_segmentation.tflite"] {
        let Ok(whole) = std::fs::read(format!("{folder}/{name}")) else { continue };
        let mut accepted = 0;
        // Tables take the end of the file, and constants its start, or the other way round.
        let tables: Vec<_> = (0..whole.len()).step_by(997).collect();
        for number in 0..600 {
            let mut file = whole.clone();
            for _ in 0..1 + below(3) {
                let place = match below(3) {
                    0 => below(file.len() - 4),
                    1 => file.len() - 4 - below(60_000),
                    _ => tables[below(tables.len() - 1)],
                };
                match below(4) {
                    0 => file[place] = below(256) as u8,
                    1 => file[place] ^= 1 << below(8),
                    2 => file[place..place + 4].fill(255),
                    _ => file[place..place + 4].copy_from_slice(&(below(1 << 20) as u32).to_le_bytes()),
                }
            }
            if number % 10 == 0 {
                file.truncate(below(whole.len()));
            }
            accepted += usize::from(is_accepted(&file, 1 << 24));
        }
        assert!(accepted > 50, "{name}: {accepted}");
    }
}
