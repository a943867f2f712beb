// SPDX-License-Identifier: MPL-2.0
//! Boxes of faces from outputs of a network.

use std::collections::HashMap;

use gstdetectors::faces::{Face, NoNumber, faces, join};
use gstdetectors::graph::{Graph, Node, Tensor};
use gstdetectors::kernels::Instructions;
use gstdetectors::network::Network;
use gstdetectors::run::Runner;

fn face(sides: [f64; 4], confidence: f32) -> Face {
    Face { sides, confidence }
}

#[test]
fn boxes_of_one_face_are_one() {
    let first = face([0., 0., 10., 10.], 0.5);
    for (sides, is_new) in [
        ([2., 0., 12., 10.], false),
        ([4., 4., 6., 6.], false),
        // A smaller face in front of a larger one: 70 percent of it are behind the larger one's box.
        ([7., 7., 11., 10.5], true),
        // A face around a part of it that was found as a face.
        ([0., 0., 20., 20.], true),
        ([9., 9., 19., 19.], true),
        // No area.
        ([50., 50., 50., 60.], false),
    ] {
        let mut faces = vec![first];
        let more = face(sides, 0.4);
        join(&mut faces, &[more]);
        assert_eq!(faces, [first, more][..1 + usize::from(is_new)], "{sides:?}");
    }
    // A finer search may be more certain.
    let mut faces = vec![first];
    join(&mut faces, &[face([2., 0., 12., 10.], 0.9)]);
    assert_eq!(faces, [face(first.sides, 0.9)]);
}

/// The faces in a frame of 200x120 of which 128x64 pixels are searched. The outputs have a value for each of 4x4 pixels: the confidence
/// is that of the picture, these sizes and offsets are everywhere.
fn found(
    confidences: &[((usize, usize), f32)],
    size: [f32; 2],
    offset: [f32; 2],
    threshold: f32,
) -> Result<Vec<Face>, NoNumber> {
    found_with(0., confidences, size, offset, threshold)
}

/// The same, with `heat` added to the confidences alone.
fn found_with(
    heat: f32,
    confidences: &[((usize, usize), f32)],
    size: [f32; 2],
    offset: [f32; 2],
    threshold: f32,
) -> Result<Vec<Face>, NoNumber> {
    let mut graph = Graph::default();
    // The middle of a window of 3x3, twice, for the first channel.
    let middle = |outputs: usize, inputs: usize| {
        let values = (0..outputs * inputs * 9).map(|i| f32::from(i as u8 % 9 == 4 && i / 9 % inputs == i / 9 / inputs));
        Tensor { dims: vec![outputs, inputs, 3, 3], values: values.collect() }
    };
    let pair = |values: [f32; 2]| Tensor { dims: vec![2], values: values.to_vec() };
    graph.constants = HashMap::from([
        ("first", middle(1, 3)),
        ("second", middle(1, 1)),
        ("one", Tensor { dims: vec![1; 4], values: vec![1.] }),
        ("heat bias", Tensor { dims: vec![1], values: vec![heat] }),
        ("zeros", Tensor { dims: vec![2, 1, 1, 1], values: vec![0.; 2] }),
        ("size", pair(size)),
        ("offset", pair(offset)),
    ]);
    for (inputs, output, stride, pad) in [
        (vec!["picture", "first"], "half", 2, 1),
        (vec!["half", "second"], "quarter", 2, 1),
        (vec!["quarter", "one", "heat bias"], "heat", 1, 0),
        (vec!["quarter", "zeros", "size"], "sizes", 1, 0),
        (vec!["quarter", "zeros", "offset"], "offsets", 1, 0),
    ] {
        let integers = HashMap::from([("strides", vec![stride; 2]), ("pads", vec![pad; 4])]);
        graph.nodes.push(Node { operator: "Conv", inputs, outputs: vec![output], integers, ..Node::default() });
    }
    let found = Instructions::all().into_iter().map(|instructions| {
        let network = Network::new(&graph, &["heat", "sizes", "offsets"]).unwrap();
        let mut runner = Runner::new(network, instructions, 1).unwrap();
        runner.run(128, 64, |y, row| {
            for (x, pixel) in row.as_chunks_mut::<3>().0.iter_mut().enumerate() {
                let confidence = confidences.iter().find(|((column, row), _)| (column * 4, row * 4) == (x, y));
                *pixel = [confidence.map_or(-100., |(_, value)| *value), 0., 0.];
            }
        });
        faces(runner.output(0), runner.output(1), runner.output(2), [200, 120], threshold)
    });
    found.reduce(|a, b| if a == b { a } else { panic!("{a:?} and {b:?} with other instructions") }).unwrap()
}

#[test]
fn a_box_lies_around_the_middle_of_its_cell() {
    // The cell of column 5 and row 6 begins at 20, 24. Its box is 8 pixels high, 16 wide, and 1 and 2 pixels further.
    let size = [2f32.ln(), 4f32.ln()];
    let confidence = |value: f32| 1. / (1. + (-value).exp());
    let [first] = found(&[((5, 6), 1.)], size, [0.25, 0.5], 0.2).unwrap()[..] else { panic!("one face") };
    let expected = [16. * 200. / 128., 23. * 120. / 64., 32. * 200. / 128., 31. * 120. / 64.];
    for (side, expected) in first.sides.iter().zip(expected) {
        assert!((side - expected).abs() < 1e-4, "{first:?}");
    }
    assert_eq!(first.confidence, confidence(1.));
    // Boxes end with the frame, the most certain ones come first, and others than those that exceed the threshold are none.
    let many = [((31, 15), 0.5), ((5, 6), 1.), ((20, 3), -1.), ((0, 0), 0.25)];
    let found = |threshold| found(&many, size, [0.; 2], threshold).unwrap();
    assert_eq!(found(0.3).iter().map(|face| face.confidence).collect::<Vec<_>>(), [1., 0.5, 0.25].map(confidence));
    assert_eq!(found(confidence(0.5)).len(), 1);
    assert_eq!(found(0.3)[1].sides[2..], [200., 120.]);
    assert_eq!(found(0.3)[2].sides[..2], [0., 0.]);
}

#[test]
fn values_that_are_no_numbers_are_no_faces() {
    assert_eq!(found(&[((5, 6), 1.)], [f32::NAN, 0.], [0.; 2], 0.2), Err(NoNumber));
    assert_eq!(found(&[((5, 6), 1.)], [0.; 2], [f32::INFINITY, 0.], 0.2), Err(NoNumber));
    for heat in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
        assert_eq!(found_with(heat, &[], [0.; 2], [0.; 2], 0.2), Err(NoNumber), "{heat}");
    }
    // Where nothing is found, sizes say nothing.
    assert_eq!(found(&[], [0.; 2], [0.; 2], 0.2), Ok(Vec::new()));
}
