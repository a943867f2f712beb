//! GStreamer's own inference, part of 1.28: `onnxinference` runs a model, a tensor decoder attaches what it found as detections, the
//! element covers them, and `objectdetectionoverlay` draws them.

use std::fs;
use std::path::PathBuf;

use gst_video::VideoFormat;

use crate::common::video::{info, init};

pub const ELEMENTS: [&str; 3] = ["onnxinference", "yolov8tensordec", "objectdetectionoverlay"];

const WIDTH: usize = 64;
const HEIGHT: usize = 48;
/// The side of the squares in which the model looks for colours.
const CELL: usize = 16;
const COLUMNS: usize = WIDTH / CELL;
const CELLS: usize = COLUMNS * HEIGHT / CELL;

/// A number of a protobuf message, or the length of what follows.
fn varint(value: usize) -> Vec<u8> {
    if value < 128 { vec![value as u8] } else { [vec![value as u8 | 128], varint(value >> 7)].concat() }
}

/// The field of a protobuf message that is a number.
fn number(field: usize, value: usize) -> Vec<u8> {
    [varint(field << 3), varint(value)].concat()
}

/// The field of a protobuf message that is bytes, a text or a message.
fn bytes(field: usize, value: &[u8]) -> Vec<u8> {
    [&varint(field << 3 | 2), &varint(value.len()), value].concat()
}

fn node(operator: &str, inputs: &[&str], output: &str, attributes: &[Vec<u8>]) -> Vec<u8> {
    let inputs: Vec<u8> = inputs.iter().flat_map(|input| bytes(1, input.as_bytes())).collect();
    bytes(1, &[inputs, bytes(2, output.as_bytes()), bytes(4, operator.as_bytes()), attributes.concat()].concat())
}

/// An attribute of a node: a list of two numbers.
fn pair(name: &str, value: usize) -> Vec<u8> {
    bytes(5, &[bytes(1, name.as_bytes()), number(8, value), number(8, value), number(20, 7)].concat())
}

/// A constant, of 32-bit floats (type 1) or 64-bit integers (type 7).
fn constant(name: &str, dims: &[usize], kind: usize, data: &[u8]) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|side| number(1, *side)).collect();
    bytes(5, &[dims, number(2, kind), bytes(8, name.as_bytes()), bytes(9, data)].concat())
}

/// The input (field 11) or the output (field 12), of 32-bit floats.
fn value(field: usize, name: &str, dims: &[usize]) -> Vec<u8> {
    let dims: Vec<u8> = dims.iter().flat_map(|side| bytes(1, &number(1, *side))).collect();
    let kind = bytes(1, &[number(1, 1), bytes(2, &dims)].concat());
    bytes(field, &[bytes(1, name.as_bytes()), bytes(2, &kind)].concat())
}

/// A model in the form of YOLO: for each cell the centre and the size of a box, and its mean red, green and blue as classes.
fn model() -> Vec<u8> {
    let middle = |cell: usize| (cell * CELL + CELL / 2) as f32;
    let x = (0..CELLS).map(|cell| middle(cell % COLUMNS));
    let y = (0..CELLS).map(|cell| middle(cell / COLUMNS));
    let boxes = x.chain(y).chain([CELL as f32; 2 * CELLS]);
    let boxes: Vec<u8> = boxes.flat_map(f32::to_le_bytes).collect();
    let shape: Vec<u8> = [1, 3, CELLS].into_iter().flat_map(|side| (side as u64).to_le_bytes()).collect();
    let axis = bytes(5, &[bytes(1, b"axis"), number(3, 1), number(20, 2)].concat());
    let graph = [
        node("AveragePool", &["image"], "means", &[pair("kernel_shape", CELL), pair("strides", CELL)]),
        node("Reshape", &["means", "shape"], "classes", &[]),
        node("Concat", &["boxes", "classes"], "detections", &[axis]),
        bytes(2, b"cells"),
        constant("shape", &[3], 7, &shape),
        constant("boxes", &[1, 4, CELLS], 1, &boxes),
        value(11, "image", &[1, 3, HEIGHT, WIDTH]),
        value(12, "detections", &[1, 7, CELLS]),
    ];
    let operators = bytes(8, &number(2, 13));
    [number(1, 8), bytes(7, &graph.concat()), operators].concat()
}

/// What GStreamer wants to know about the model, in a file beside it.
const ABOUT: &str = "\
[modelinfo]
version=1.0
group-id=yolo-v8-out

[image]
dir=input
type=float32
dims=1,3,48,64
ranges=0.0,1.0;0.0,1.0;0.0,1.0

[detections]
dir=output
type=float32
dims=1,7,12
id=yolo-v8-out
dims-order=col-major
";

/// The elements that find colours.
fn detector() -> String {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("inference");
    fs::create_dir_all(&folder).unwrap();
    let write = |name: &str, data: &[u8]| fs::write(folder.join(name), data).unwrap();
    write("cells.onnx", &model());
    write("cells.onnx.modelinfo", ABOUT.as_bytes());
    write("labels.txt", b"red\ngreen\nblue\n");
    let folder = folder.display();
    format!("onnxinference model-file={folder}/cells.onnx ! yolov8tensordec label-file={folder}/labels.txt")
}

type Frame = [[u8; 3]];
const GREY: [u8; 3] = [60; 3];
const RED: [u8; 3] = [255, 0, 0];
const GREEN: [u8; 3] = [0, 255, 0];
const FILL: [u8; 3] = [10, 20, 30];

/// A grey frame with cells of colours.
fn frame(cells: &[(usize, [u8; 3])]) -> Vec<[u8; 3]> {
    let mut frame = vec![GREY; WIDTH * HEIGHT];
    for (cell, colour) in cells {
        in_cell(*cell).for_each(|i| frame[i] = *colour);
    }
    frame
}

fn in_cell(cell: usize) -> impl Iterator<Item = usize> {
    let (left, top) = (cell % COLUMNS * CELL, cell / COLUMNS * CELL);
    (top..top + CELL).flat_map(move |y| (left..left + CELL).map(move |x| y * WIDTH + x))
}

/// What these elements make of frames.
fn outputs(elements: &str, frames: &[&Frame]) -> Vec<Vec<[u8; 3]>> {
    let mut harness = gst_check::Harness::new_parse(elements);
    harness.set_src_caps(info(VideoFormat::Rgb, WIDTH as u32, HEIGHT as u32).to_caps().unwrap());
    let output = |(number, frame): (usize, &&Frame)| {
        let mut buffer = gst::Buffer::from_slice(frame.as_flattened().to_vec());
        buffer.get_mut().unwrap().set_pts(number as u64 * 40 * gst::ClockTime::MSECOND);
        harness.push(buffer).unwrap();
        harness.pull().unwrap().map_readable().unwrap().as_chunks().0.to_vec()
    };
    frames.iter().enumerate().map(output).collect()
}

/// The detections of the label are covered in their frames, no other pixel is touched, and a frame in which the model found nothing
/// counts as searched. The detections stay on the frame.
pub fn covered() {
    init();
    let cover =
        "cudagaussblur backend=cpu region-mode=inside cover=fill fill-color=0xff0a141e expand=0 hold-time=0 labels=red";
    let both = frame(&[(6, RED), (0, GREEN)]);
    let [none, last] = [frame(&[]), frame(&[(11, RED)])];
    let frames: [&Frame; 3] = [&both, &none, &last];
    let covered = outputs(&format!("{} ! {cover}", detector()), &frames);
    assert!(covered == [frame(&[(6, FILL), (0, GREEN)]), none.clone(), frame(&[(11, FILL)])]);

    let overlay = "objectdetectionoverlay draw-labels=false expire-overlay=0";
    let drawn = outputs(&format!("{} ! {cover} ! {overlay}", detector()), &frames);
    let changed = |i: usize| drawn[0][i] != covered[0][i];
    let outlines = |cell: usize| in_cell(cell).filter(|i| changed(*i)).count();
    for cell in 0..CELLS {
        let count = outlines(cell);
        let middle = in_cell(cell).nth(CELL * CELL / 2 + CELL / 2).unwrap();
        assert!(!changed(middle), "the middle of cell {cell}");
        // A line around a cell is a pixel wide at least, and one that is drawn beside a cell is in its neighbours.
        assert_eq!([6, 0].contains(&cell), count >= 2 * CELL, "{count} pixels of cell {cell} are drawn");
    }
    assert!(drawn[1] == none);
}
