//! Writes TensorFlow Lite files: a FlatBuffer, and the small model of these tests. Numbers of fields, operators and types are those of
//! TensorFlow Lite's schema.fbs.
#![allow(dead_code, reason = "each test program uses a part")]

/// A field of a table. Every field takes four bytes.
#[derive(Clone)]
pub enum Field {
    Absent,
    Byte(u8),
    Number(u32),
    Bytes(Vec<u8>),
    Numbers(Vec<u32>),
    Table(Vec<Field>),
    Tables(Vec<Vec<Field>>),
    /// A vector of so many offsets to one table.
    Shared(usize, Vec<Field>),
}
use Field::{Absent, Byte, Bytes, Number, Numbers, Shared, Table, Tables};

fn put(file: &mut [u8], place: usize, number: usize) {
    file[place..place + 4].copy_from_slice(&u32::try_from(number).unwrap().to_le_bytes());
}

/// Begins a vector, and points a field to it.
fn vector(file: &mut Vec<u8>, field: usize, count: usize) {
    file.resize(file.len().next_multiple_of(4), 0);
    let start = file.len();
    put(file, field, start - field);
    file.extend((count as u32).to_le_bytes());
}

/// Appends a table, before what its fields point to. Returns its position.
fn table(file: &mut Vec<u8>, fields: &[Field]) -> usize {
    file.resize(file.len().next_multiple_of(4), 0);
    let (start, size) = (file.len(), 4 + 2 * fields.len());
    let mut end = 4;
    let mut place = |field: &Field| {
        let place = if matches!(field, Absent) { 0 } else { end };
        end += if matches!(field, Absent) { 0 } else { 4 };
        place
    };
    let places: Vec<usize> = fields.iter().map(&mut place).collect();
    for number in [size, end].iter().chain(&places) {
        file.extend((*number as u16).to_le_bytes());
    }
    let table = file.len().next_multiple_of(4);
    file.resize(table + end, 0);
    put(file, table, table - start);
    for (field, place) in fields.iter().zip(places) {
        let field_place = table + place;
        match field {
            Absent => {}
            Byte(byte) => file[field_place] = *byte,
            Number(number) => put(file, field_place, *number as usize),
            Bytes(bytes) => {
                vector(file, field_place, bytes.len());
                file.extend(bytes);
            }
            Numbers(numbers) => {
                vector(file, field_place, numbers.len());
                numbers.iter().for_each(|number| file.extend(number.to_le_bytes()));
            }
            Table(fields) => {
                let child = self::table(file, fields);
                put(file, field_place, child - field_place);
            }
            Tables(tables) => {
                vector(file, field_place, tables.len());
                let first = file.len();
                file.resize(first + 4 * tables.len(), 0);
                for (entry, fields) in (first..).step_by(4).zip(tables) {
                    let child = self::table(file, fields);
                    put(file, entry, child - entry);
                }
            }
            Shared(count, fields) => {
                vector(file, field_place, *count);
                let first = file.len();
                file.resize(first + 4 * count, 0);
                let child = self::table(file, fields);
                (first..).step_by(4).take(*count).for_each(|entry| put(file, entry, child - entry));
            }
        }
    }
    table
}

/// A file whose root has these fields.
pub fn file(root: &[Field]) -> Vec<u8> {
    let mut file = b"\0\0\0\0TFL3".to_vec();
    let root = table(&mut file, root);
    put(&mut file, 0, root);
    file
}

pub fn text(text: &str) -> Field {
    Bytes(text.as_bytes().to_vec())
}

#[derive(Clone)]
pub struct Tensor {
    pub name: &'static str,
    pub dims: Vec<u32>,
    /// 0: 32-bit floats, 1: 16-bit floats.
    pub kind: u8,
    pub bytes: Vec<u8>,
}

#[derive(Clone)]
pub struct Operation {
    pub code: u32,
    /// The name of an operator that TensorFlow Lite does not have itself.
    pub custom: &'static str,
    pub inputs: Vec<&'static str>,
    pub output: &'static str,
    pub options: Vec<Field>,
}

/// The first tensor is the picture, the output of the last operation is the model's.
#[derive(Clone)]
pub struct Model {
    pub tensors: Vec<Tensor>,
    pub operations: Vec<Operation>,
}

impl Model {
    pub fn tensor(&mut self, name: &str) -> &mut Tensor {
        self.tensors.iter_mut().find(|tensor| tensor.name == name).unwrap()
    }

    pub fn operation(&mut self, output: &str) -> &mut Operation {
        self.operations.iter_mut().find(|operation| operation.output == output).unwrap()
    }

    pub fn root(&self) -> Vec<Field> {
        let index = |name: &&str| self.tensors.iter().position(|tensor| tensor.name == *name).unwrap() as u32;
        // The first code field has one byte, of which the second one takes the place from operator 127 on.
        let codes = self.operations.iter().map(|operation| {
            let custom = if operation.custom.is_empty() { Absent } else { text(operation.custom) };
            vec![Byte(operation.code.min(127) as u8), custom, Number(1), Number(operation.code)]
        });
        let buffers = self.tensors.iter().map(|tensor| vec![Bytes(tensor.bytes.clone())]);
        let tensors = self.tensors.iter().enumerate().map(|(number, tensor)| {
            vec![Numbers(tensor.dims.clone()), Byte(tensor.kind), Number(number as u32), text(tensor.name)]
        });
        let operations = self.operations.iter().enumerate().map(|(number, operation)| {
            let inputs = operation.inputs.iter().map(index).collect();
            let options = if operation.options.is_empty() { Absent } else { Table(operation.options.clone()) };
            vec![Number(number as u32), Numbers(inputs), Numbers(vec![index(&operation.output)]), Byte(1), options]
        });
        let graph = vec![
            Tables(tensors.collect()),
            Numbers(vec![0]),
            Numbers(vec![index(&self.operations.last().unwrap().output)]),
            Tables(operations.collect()),
        ];
        let codes = Tables(codes.collect());
        vec![Number(3), codes, Tables(vec![graph]), Absent, Tables(buffers.collect())]
    }

    pub fn file(&self) -> Vec<u8> {
        file(&self.root())
    }
}

/// 16-bit floats of these values, which are whole numbers from -2047 to 2047.
fn halves(values: impl Iterator<Item = i32>) -> Vec<u8> {
    let half = |value: i32| {
        let magnitude = value.unsigned_abs();
        let Some(exponent) = magnitude.checked_ilog2() else { return 0 };
        let fraction = (magnitude << (10 - exponent)) & 1023;
        (u32::from(value < 0) << 15 | (exponent + 15) << 10 | fraction) as u16
    };
    values.flat_map(|value| half(value).to_le_bytes()).collect()
}

/// The constants are whole numbers from -3 to 3.
pub fn value(index: usize) -> f32 {
    (index % 7) as f32 - 3.
}

/// A model of every kind of operation, for a picture of 16x8 pixels. Its output is a mask of the picture's size.
pub fn model() -> Model {
    let tensor = |name, dims: &[u32], kind, bytes| Tensor { name, dims: dims.to_vec(), kind, bytes };
    let floats = |name, dims: &[u32]| {
        let count = dims.iter().product::<u32>() as usize;
        tensor(name, dims, 0, (0..count).flat_map(|i| (value(i) / 64.).to_le_bytes()).collect())
    };
    let computed = |name, dims: &[u32]| tensor(name, dims, 0, Vec::new());
    let operation = |code, inputs: &[&'static str], output, options| Operation {
        code,
        custom: "",
        inputs: inputs.to_vec(),
        output,
        options,
    };
    // "Same" padding, the strides, and for one of them no activation, as its own field.
    let same = |stride: u32| vec![Byte(0), Number(stride), Number(stride)];
    Model {
        tensors: vec![
            computed("picture", &[1, 8, 16, 3]),
            tensor("a16", &[16, 3, 3, 3], 1, halves((0..432).map(|i| value(i) as i32))),
            computed("a", &[16, 3, 3, 3]),
            floats("bias", &[16]),
            computed("t0", &[1, 4, 8, 16]),
            computed("t1", &[1, 4, 8, 16]),
            floats("b", &[1, 5, 5, 16]),
            computed("t2", &[1, 2, 4, 16]),
            computed("t3", &[1, 2, 4, 16]),
            tensor("axes", &[2], 2, [1, 0, 0, 0, 2, 0, 0, 0].to_vec()),
            computed("t4", &[1, 1, 1, 16]),
            floats("c", &[16, 1, 1, 16]),
            computed("t5", &[1, 1, 1, 16]),
            computed("t6", &[1, 1, 1, 16]),
            computed("t7", &[1, 2, 4, 16]),
            tensor("size", &[2], 2, [4, 0, 0, 0, 8, 0, 0, 0].to_vec()),
            computed("t8", &[1, 4, 8, 16]),
            computed("t9", &[1, 4, 8, 16]),
            floats("d", &[1, 2, 2, 16]),
            floats("e", &[1]),
            computed("t10", &[1, 8, 16, 1]),
            computed("mask", &[1, 8, 16, 1]),
        ],
        operations: vec![
            operation(6, &["a16"], "a", vec![]),
            operation(3, &["picture", "a", "bias"], "t0", same(2)),
            operation(117, &["t0"], "t1", vec![]),
            operation(4, &["t1", "b", "bias"], "t2", [same(2), vec![Number(1), Byte(0)]].concat()),
            operation(19, &["t2"], "t3", vec![]),
            operation(40, &["t3", "axes"], "t4", vec![Byte(1)]),
            operation(3, &["t4", "c", "bias"], "t5", same(1)),
            operation(14, &["t5"], "t6", vec![]),
            operation(18, &["t3", "t6"], "t7", vec![Byte(0)]),
            operation(23, &["t7", "size"], "t8", vec![Absent, Absent, Absent, Byte(1)]),
            operation(0, &["t8", "t1"], "t9", vec![Byte(0)]),
            Operation { custom: "Convolution2DTransposeBias", ..operation(32, &["t9", "d", "e"], "t10", vec![]) },
            operation(14, &["t10"], "mask", vec![]),
        ],
    }
}
