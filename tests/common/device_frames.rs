//! Frames in device memory with chosen pitches and alignment, and covers of them against the CPU engine's.

use std::mem::ManuallyDrop;

use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::cuda::driver::{DeviceMemory, PinnedMemory, Stream};
use gstcudagaussblur::cuda::{PinnedBytes, PinnedSource, process};
use gstcudagaussblur::engine::{BlurRegion, CompletedFrame, Cover, Engine, EngineError, FrameAccess, Hide, Softness};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::{
    Destination, DeviceBytes, DeviceFrame, FrameMut, Plane, PlaneLayout, SampleLayout, Source, as_source,
};
use gstcudagaussblur::filter::mosaic::MosaicRegion;
use gstcudagaussblur::filter::picture::PictureGeometry;
use gstcudagaussblur::filter::plan::{Options, Selection};
use gstcudagaussblur::filter::regions::{Area, Rect};
use gstcudagaussblur::filter::weights::{Edge, Mask, Object, Shape, Weights};

use super::Noise;
use super::pictures::{PADDING, Picture, pitch, rect, resized};

/// A frame in a block of bytes: planes behind each other, with noise around them and between their rows.
#[derive(Clone)]
pub struct Block {
    planes: Vec<(PlaneLayout, usize, usize)>,
    pub bytes: Vec<u8>,
}

impl Block {
    /// A picture of noise with rows `pitch` apart, the first plane `skew` bytes into the block.
    pub fn new(layouts: &[PlaneLayout], skew: usize, pitch_of: impl Fn(&PlaneLayout) -> usize, seed: u64) -> Self {
        let mut planes = Vec::new();
        let mut end = skew;
        for layout in layouts {
            planes.push((*layout, end, pitch_of(layout)));
            end += pitch_of(layout) * layout.height as usize + 5;
        }
        let mut block = Self { planes, bytes: Noise(seed).bytes(end + 64) };
        let picture = Picture::new(layouts, seed);
        for (plane, (layout, start, own_pitch)) in block.planes.iter().enumerate() {
            for y in 0..layout.height as usize {
                let row = &picture.bytes[plane][y * pitch(layout)..][..layout.row_bytes()];
                block.bytes[start + y * own_pitch..][..row.len()].copy_from_slice(row);
            }
        }
        block
    }

    fn frame_mut(&mut self) -> FrameMut<'_> {
        let (mut rest, mut begin) = (&mut self.bytes[..], 0);
        let plane = |(layout, start, pitch): &(PlaneLayout, usize, usize)| {
            let len = pitch * (layout.height as usize - 1) + layout.row_bytes();
            let (data, others) = std::mem::take(&mut rest)[start - begin..].split_at_mut(len);
            (rest, begin) = (others, start + len);
            Plane { layout: *layout, pitch: *pitch, data }
        };
        self.planes.iter().map(plane).collect()
    }

    /// Copies rows, and what is between them as far as both have it.
    fn copy_from(&mut self, other: &Self) {
        for ((layout, start, own), (_, from, pitch)) in self.planes.iter().zip(&other.planes) {
            for y in 0..layout.height as usize {
                let is_last = y + 1 == layout.height as usize;
                let bytes = if is_last { layout.row_bytes() } else { *own.min(pitch) };
                self.bytes[start + y * own..][..bytes].copy_from_slice(&other.bytes[from + y * pitch..][..bytes]);
            }
        }
    }

    fn device_frame(&self, memory: &DeviceMemory, stream: Option<&Stream>) -> DeviceFrame {
        let plane = |(layout, start, pitch): &(PlaneLayout, usize, usize)| {
            let len = pitch * (layout.height as usize - 1) + layout.row_bytes();
            let data = DeviceBytes { address: memory.address() + *start as u64, len };
            Plane { layout: *layout, pitch: *pitch, data }
        };
        let stream = stream.map(|stream| stream.raw() as usize);
        DeviceFrame { planes: self.planes.iter().map(plane).collect(), stream }
    }
}

/// A block on the device.
struct OnDevice {
    memory: DeviceMemory,
    pinned: PinnedMemory,
    len: usize,
}

impl OnDevice {
    /// Enqueues the upload. The context is current.
    fn new(bytes: &[u8], stream: &Stream) -> Self {
        let memory = DeviceMemory::new(bytes.len(), stream).unwrap();
        let pinned = PinnedMemory::new(bytes.len(), stream.device()).unwrap();
        // SAFETY: both allocations have the bytes, and live until the stream is synchronised.
        unsafe {
            pinned.address().copy_from_nonoverlapping(bytes.as_ptr(), bytes.len());
            stream.copy(&pinned.row(bytes.len()), &memory.row(bytes.len()), bytes.len(), 1).unwrap();
        }
        Self { memory, pinned, len: bytes.len() }
    }

    fn read(&self, stream: &Stream) -> Vec<u8> {
        // SAFETY: both allocations have the bytes; they are read after the download.
        unsafe {
            stream.copy(&self.memory.row(self.len), &self.pinned.row(self.len), self.len, 1).unwrap();
            stream.synchronize().unwrap();
            std::slice::from_raw_parts(self.pinned.address(), self.len).to_vec()
        }
    }
}

/// A source and a destination on the device.
struct Frames<'a> {
    source: (&'a Block, &'a OnDevice, Option<&'a Stream>),
    destination: (&'a Block, &'a OnDevice, Option<&'a Stream>),
}

// SAFETY: the caller keeps memory and streams until the streams are synchronised, and accesses nothing before.
unsafe impl FrameAccess for Frames<'_> {
    fn frames(&mut self) -> (Source<'_>, Destination<'_>) {
        let [source, destination] =
            [self.source, self.destination].map(|(block, memory, stream)| block.device_frame(&memory.memory, stream));
        (Source::Device(source), Destination::Device(destination))
    }
}

/// Which streams the frames have.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Streams {
    One,
    Two,
    None,
}

impl Streams {
    /// The streams of the source and of the destination.
    fn of_frames(self, own: &[Stream; 2]) -> [Option<&Stream>; 2] {
        match self {
            Self::One => [Some(&own[0]), Some(&own[0])],
            Self::Two => [Some(&own[0]), Some(&own[1])],
            Self::None => [None, Some(&own[1])],
        }
    }
}

/// Covers `source` on the device, in place or into `destination`, and compares every byte with the CPU engine. Returns the
/// number of bytes compared.
pub fn check(
    engine: &mut Engine,
    cover: &Cover,
    source: &Block,
    destination: Option<&Block>,
    streams: Streams,
) -> usize {
    let mut cpu = Engine::with_cpu(CpuEngine::new());
    let mut expected = destination.unwrap_or(source).clone();
    if destination.is_some() {
        expected.copy_from(source);
    }
    cpu.cover(cover, &mut expected.frame_mut()).unwrap();
    let device = process::open(0).unwrap().device().clone();
    let _current = device.enter().unwrap();
    let own = [Stream::new(device.id()).unwrap(), Stream::new(device.id()).unwrap()];
    let of = streams.of_frames(&own);
    // The source is not written yet when the cover is enqueued, unless nothing orders the two.
    let from = OnDevice::new(&source.bytes, &own[0]);
    let to = destination.map(|block| OnDevice::new(&block.bytes, &own[1]));
    if streams == Streams::None || destination.is_some() {
        own[1].synchronize().unwrap();
    }
    if streams == Streams::None {
        own[0].synchronize().unwrap();
    }
    let frames = Frames {
        source: (source, &from, of[0]),
        destination: match (destination, &to) {
            (Some(block), Some(to)) => (block, to, of[1]),
            _ => (source, &from, if streams == Streams::None { None } else { of[0] }),
        },
    };
    let completed = engine.run(cover, frames).unwrap();
    assert_eq!(completed.queued, streams != Streams::None);
    assert!(completed.failure.is_none());
    let stream = if destination.is_some() { of[1].unwrap() } else { &own[0] };
    let got = to.as_ref().unwrap_or(&from).read(stream);
    // Between rows of a plane that is covered wholly are the bytes that were there.
    let old = &destination.unwrap_or(source).bytes;
    let is_between = |i: usize| {
        expected.planes.iter().all(|(layout, start, pitch)| {
            let place = i.checked_sub(*start).map(|at| (at / pitch, at % pitch));
            place.is_none_or(|(row, byte)| row >= layout.height as usize || byte >= layout.row_bytes())
        })
    };
    let differs = |i: &usize| got[*i] != expected.bytes[*i] && !(got[*i] == old[*i] && is_between(*i));
    let differing: Vec<usize> = (0..got.len()).filter(differs).collect();
    let place = differing.first().map(|i| {
        let plane = expected.planes.iter().rposition(|(_, start, _)| start <= i).unwrap_or(0);
        let (_, start, pitch) = expected.planes[plane];
        (plane, (i - start) % pitch, (i - start) / pitch)
    });
    let planes: Vec<PlaneLayout> = source.planes.iter().map(|(layout, ..)| *layout).collect();
    let mut cover = format!("{cover:?}");
    cover.truncate(500);
    assert!(
        differing.is_empty(),
        "{} bytes differ, the first in (plane, byte, row) {place:?}: {cover} of {planes:?}, {streams:?}, in place: {}",
        differing.len(),
        destination.is_none()
    );
    if destination.is_some() {
        assert!(from.read(&own[0]) == source.bytes, "the source was written");
    }
    own.iter().for_each(|stream| stream.synchronize().unwrap());
    got.len()
}

/// Blurs `source` into `destination` on the device, and compares every byte with the CPU engine.
pub fn check_blur(engine: &mut Engine, options: Options, source: &Block, destination: &Block, streams: Streams) {
    check_frames(engine, options, source, destination, streams, |engine, frames| {
        engine.submit(options, frames).and_then(|in_flight| engine.complete(in_flight))
    });
}

/// Copies `source` into `destination` on the device, and compares every byte. Nothing is counted.
pub fn check_transfer(engine: &mut Engine, source: &Block, destination: &Block) {
    let stats = engine.stats();
    check_frames(engine, BlurParams::PASSTHROUGH.into(), source, destination, Streams::One, |engine, frames| {
        engine.transfer(frames)
    });
    assert_eq!(engine.stats(), stats, "a copy is counted");
}

fn check_frames(
    engine: &mut Engine,
    options: Options,
    source: &Block,
    destination: &Block,
    streams: Streams,
    run: impl for<'a> FnOnce(&mut Engine, Frames<'a>) -> Result<CompletedFrame<Frames<'a>>, EngineError>,
) {
    let mut expected = destination.clone();
    let mut from = source.clone();
    let mut cpu = Engine::with_cpu(CpuEngine::new());
    cpu.blur(options, &as_source(&from.frame_mut()), &mut expected.frame_mut()).unwrap();
    let device = process::open(0).unwrap().device().clone();
    let _current = device.enter().unwrap();
    let own = [Stream::new(device.id()).unwrap(), Stream::new(device.id()).unwrap()];
    let of = streams.of_frames(&own);
    let [from, to] = [source, destination].map(|block| OnDevice::new(&block.bytes, &own[0]));
    own[0].synchronize().unwrap();
    let frames = Frames { source: (source, &from, of[0]), destination: (destination, &to, of[1]) };
    let completed = run(engine, frames).unwrap();
    assert_eq!((completed.queued, completed.failure), (streams != Streams::None, None));
    let got = to.read(of[1].unwrap_or(&own[0]));
    let planes: Vec<PlaneLayout> = source.planes.iter().map(|(layout, ..)| *layout).collect();
    assert!(got == expected.bytes, "{options:?} of {planes:?}, {streams:?}");
    own.iter().for_each(|stream| stream.synchronize().unwrap());
}

/// Covers `block` on the device, in place or in a copy, whatever becomes of it. The memory is leaked, because the cover may fail
/// so that the device still uses it.
pub fn unordered(engine: &mut Engine, cover: &Cover, block: &Block, is_copy: bool) -> Result<(), EngineError> {
    let device = process::open(0).unwrap().device().clone();
    let _current = device.enter().unwrap();
    let stream = ManuallyDrop::new(Stream::new(device.id()).unwrap());
    let [memory, copy] = [(); 2].map(|()| ManuallyDrop::new(OnDevice::new(&block.bytes, &stream)));
    let source = (block, &*memory, Some(&*stream));
    let destination = (block, if is_copy { &*copy } else { &*memory }, Some(&*stream));
    engine.run(cover, Frames { source, destination }).map(drop)
}

/// The same covers with soft edges around ellipses and a mask, and the blur of a background without them.
pub fn soft_covers(planes: &[PlaneLayout], sigmas: &[f64], noise: &mut Noise) -> Vec<Cover> {
    let picture = PictureGeometry::new(planes).size();
    let size = (picture[0], picture[1]);
    let [width, height] = picture.map(f64::from);
    let mask =
        Mask::new(7, 5, noise.bytes(35), Area::from_corner(width * 0.4, height * 0.3, width / 2.0, height / 2.0));
    let unused = Area::from_corner(0.0, 0.0, 1.0, 1.0);
    let objects = [
        Object { area: Area::from_corner(1.5, 2.0, width / 3.0, height * 0.6), shape: Shape::Ellipse },
        Object { area: unused, shape: Shape::Mask(mask.unwrap()) },
    ];
    let edge = Edge { grow: (noise.next() % 3) as i32 - 1, feather: noise.next() as u32 % 5 };
    let weights = Weights::inside(size, &objects, edge);
    let rects: Vec<Rect> = objects.iter().filter_map(|object| object.reach(edge, size)).collect();
    let soft = |cover| Cover { soft: Some(Softness { weights: weights.clone(), excluded: None }), ..cover };
    let mut soft: Vec<Cover> = covers(planes, &rects, sigmas, noise).into_iter().map(soft).collect();
    let weights = Weights::outside(size, &objects, edge);
    let excluded = Some(Weights::excluded(size, &objects, sigmas[0]));
    let blur = covers(planes, &weights.rects(), sigmas, noise).swap_remove(0);
    soft.push(Cover { soft: Some(Softness { weights, excluded }), ..blur });
    soft
}

/// A blur of several sigmas, a mosaic and a fill of odd rectangles that overlap.
pub fn covers(planes: &[PlaneLayout], rects: &[Rect], sigmas: &[f64], noise: &mut Noise) -> Vec<Cover> {
    let blur = |(i, rect): (usize, &Rect)| BlurRegion {
        rect: *rect,
        params: BlurParams::new(sigmas[i % sigmas.len()], 0).unwrap(),
    };
    let selections = [Selection::ALL, Selection { chroma: false, ..Selection::ALL }];
    let blur = Cover::from(Hide::Blur {
        planes: selections[usize::from(noise.next().is_multiple_of(8))],
        regions: rects.iter().enumerate().map(blur).collect(),
    });
    let cells = |rect: &Rect| {
        let [left, top] = [rect.x(), rect.y()].map(|edge| f64::from(edge) - 2.0 + (noise.next() % 5) as f64);
        let [width, height] = [rect.width(), rect.height()].map(f64::from);
        MosaicRegion::new(*rect, Area::from_corner(left, top, width, height + 3.0), 1 + noise.next() as u32 % 7)
    };
    let mosaic = Cover::from(Hide::Mosaic(rects.iter().map(cells).collect()));
    let value = |layout: &PlaneLayout| {
        let tens = layout.sample_layout == SampleLayout::Packed1010102;
        [0, 1, 2, 3].map(|c| (noise.next() & ((1 << if tens && c == 3 { 2 } else { layout.depth }) - 1)) as u16)
    };
    let fill = Cover::from(Hide::Fill { rects: rects.to_vec(), values: planes.iter().map(value).collect() });
    vec![blur, mosaic, fill]
}

/// Covers every kind of frame on the device, in place and not, with aligned rows and with odd ones. Returns the number of bytes
/// compared.
pub fn check_kinds(engine: &mut Engine, kinds: &[Vec<PlaneLayout>], sizes: &[[u32; 2]], sigmas: &[f64]) -> usize {
    let mut noise = Noise(23);
    let mut bytes = 0;
    for (turn, planes) in kinds.iter().enumerate() {
        let size = sizes[turn % sizes.len()];
        let planes = resized(planes, size);
        let [x, y] = [size[0] / 2 - 1, size[1] / 3];
        let rects = [
            rect(x | 1, y, (size[0] / 4) | 1, 7.min(size[1] - y)),
            rect(x + 2, y + 1, size[0] / 3, 9),
            rect(0, size[1] - 1, 2, 1),
            rect(1, 0, 3, 3),
        ];
        let aligned = |layout: &PlaneLayout| layout.row_bytes().next_multiple_of(64);
        let odd = |layout: &PlaneLayout| layout.row_bytes() + 13;
        let seed = noise.next();
        let source = match turn % 2 {
            0 => Block::new(&planes, 16, aligned, seed),
            _ => Block::new(&planes, 2 * (turn % 7), odd, seed),
        };
        let destination = match turn % 3 {
            0 => Block::new(&planes, 32, aligned, seed + 1),
            _ => Block::new(&planes, 6, |layout| layout.row_bytes() + 22, seed + 1),
        };
        let hard = covers(&planes, &rects, sigmas, &mut noise);
        let all = hard.into_iter().chain(soft_covers(&planes, sigmas, &mut noise));
        for (i, cover) in all.enumerate() {
            let cover = &cover;
            let streams = [Streams::One, Streams::Two, Streams::None][(turn + i) % 3];
            bytes += check(engine, cover, &source, None, streams);
            bytes += check(engine, cover, &source, Some(&destination), streams);
        }
    }
    bytes
}

/// Soft covers of every kind of frame on the device, in place and in a copy. Returns the number of bytes compared.
pub fn check_soft_kinds(engine: &mut Engine, kinds: &[Vec<PlaneLayout>], sizes: &[[u32; 2]], sigmas: &[f64]) -> usize {
    let mut noise = Noise(31);
    let mut bytes = 0;
    for (turn, planes) in kinds.iter().enumerate() {
        let planes = resized(planes, sizes[turn % sizes.len()]);
        let padding = [0, 24, 9][turn % 3];
        let [source, destination] = [3 * (turn % 2), 8]
            .map(|skew| Block::new(&planes, skew, |layout| layout.row_bytes() + padding, noise.next()));
        for cover in soft_covers(&planes, sigmas, &mut noise) {
            bytes += check(engine, &cover, &source, None, Streams::One);
            bytes += check(engine, &cover, &source, Some(&destination), Streams::Two);
        }
    }
    bytes
}

/// Frames in host memory: a destination that is covered in place, or that a source is copied to.
struct HostFrames {
    planes: Vec<PlaneLayout>,
    source: Option<Vec<HostBytes>>,
    destination: Vec<HostBytes>,
    /// Bytes between the rows of the destination.
    padding: usize,
}

enum HostBytes {
    Pageable(Vec<u8>),
    Pinned(PinnedBytes),
}

impl HostBytes {
    fn new(bytes: &[u8], pinned: Option<&PinnedSource>) -> Self {
        let Some(source) = pinned else { return Self::Pageable(bytes.to_vec()) };
        let mut pinned = source.allocate(bytes.len()).unwrap();
        pinned.as_mut().copy_from_slice(bytes);
        Self::Pinned(pinned)
    }

    fn all(bytes: &[Vec<u8>], pinned: Option<&PinnedSource>) -> Vec<Self> {
        bytes.iter().map(|bytes| Self::new(bytes, pinned)).collect()
    }
}

impl AsMut<[u8]> for HostBytes {
    fn as_mut(&mut self) -> &mut [u8] {
        match self {
            Self::Pageable(bytes) => bytes,
            Self::Pinned(bytes) => bytes.as_mut(),
        }
    }
}

// SAFETY: nobody else has the memory.
unsafe impl FrameAccess for HostFrames {
    fn frames(&mut self) -> (Source<'_>, Destination<'_>) {
        let planes = self.planes.iter().zip(self.source.iter_mut().flatten());
        let source =
            planes.map(|(layout, data)| Plane { layout: *layout, pitch: pitch(layout), data: &*data.as_mut() });
        let planes = self.planes.iter().zip(&mut self.destination);
        let destination = planes.map(|(layout, data)| Plane {
            layout: *layout,
            pitch: layout.row_bytes() + self.padding,
            data: data.as_mut(),
        });
        (Source::Host(source.collect()), Destination::Host(destination.collect()))
    }
}

/// Covers pictures in host memory through the device, and compares every byte with the CPU engine: in place and in a copy, in
/// pageable memory and in pinned memory. Returns the number of bytes compared.
pub fn check_host_kinds(engine: &mut Engine, kinds: &[Vec<PlaneLayout>], size: [u32; 2], sigmas: &[f64]) -> usize {
    let mut cpu = Engine::with_cpu(CpuEngine::new());
    let mut noise = Noise(29);
    let mut bytes = 0;
    let pinned = engine.pinned().unwrap();
    for (turn, planes) in kinds.iter().enumerate() {
        let picture = Picture::new(&resized(planes, size), noise.next());
        let side = |axis: usize| size[axis] / 5 + noise.0 as u32 % 3;
        let [x, y] = [size[0] / 3, size[1] / 2];
        let rects = [rect(x, y, side(0), side(1)), rect(x + 2, y - 3, side(0), side(1)), rect(1, 1, 9, 7)];
        let mut all = covers(&picture.planes, &rects, sigmas, &mut noise);
        all.extend(soft_covers(&picture.planes, sigmas, &mut noise));
        for cover in all {
            let [mut got, mut want] = [picture.clone(), picture.clone()];
            assert!(engine.cover(&cover, &mut got.frame_mut()).unwrap().is_none());
            cpu.cover(&cover, &mut want.frame_mut()).unwrap();
            let mut check = |got: &[u8], want: &[u8], what: &str| {
                assert!(got == want, "{what}: {cover:?} of {:?}", picture.planes);
                bytes += got.len();
            };
            got.bytes.iter().zip(&want.bytes).for_each(|(got, want)| check(got, want, "borrowed"));

            let memory = (turn % 2 == 0).then_some(&pinned);
            let planes = picture.planes.clone();
            let before = engine.stats();
            let in_place = |bytes: &[Vec<u8>]| HostFrames {
                planes: planes.clone(),
                source: None,
                destination: HostBytes::all(bytes, memory),
                padding: PADDING,
            };
            // Two in flight.
            let in_flight = [(); 2].map(|()| engine.submit(&cover, in_place(&picture.bytes)).unwrap());
            for frame in in_flight {
                let mut covered = engine.complete(frame).unwrap().frame.destination;
                covered.iter_mut().zip(&want.bytes).for_each(|(got, want)| check(got.as_mut(), want, "in place"));
            }

            let padding = [3, PADDING, 21][turn % 3];
            let shorter = |layout: &PlaneLayout| noise.bytes(layout.height as usize * (layout.row_bytes() + padding));
            let old: Vec<Vec<u8>> = planes.iter().map(shorter).collect();
            let copied: Vec<Vec<u8>> =
                (0..planes.len()).map(|i| copy_rows(&planes[i], &picture.bytes[i], &old[i], padding)).collect();
            let expected = HostFrames { planes, source: None, destination: HostBytes::all(&copied, None), padding };
            let mut expected = cpu.run(&cover, expected).unwrap().frame;
            let source = Some(HostBytes::all(&picture.bytes, memory));
            let copy = HostFrames {
                source,
                destination: HostBytes::all(&old, None),
                planes: expected.planes.clone(),
                padding,
            };
            let mut covered = engine.run(&cover, copy).unwrap().frame;
            for (got, want) in covered.destination.iter_mut().zip(&mut expected.destination) {
                check(got.as_mut(), want.as_mut(), "in a copy");
            }
            for (got, want) in covered.source.iter_mut().flatten().zip(&picture.bytes) {
                check(got.as_mut(), want, "the source");
            }
            let stats = engine.stats();
            assert_eq!(stats.frames_pinned[0] - before.frames_pinned[0], if memory.is_some() { 3 } else { 0 });
            assert_eq!([stats.frames_cuda - before.frames_cuda, stats.frames_cpu], [3, 0]);
        }
    }
    bytes
}

/// The rows of a plane of a picture over those of another plane, with as many of the bytes between them as both have.
fn copy_rows(layout: &PlaneLayout, from: &[u8], to: &[u8], padding: usize) -> Vec<u8> {
    let mut copied = to.to_vec();
    for (from, to) in from.chunks(pitch(layout)).zip(copied.chunks_mut(layout.row_bytes() + padding)) {
        from.iter().zip(to).for_each(|(from, to)| *to = *from);
    }
    copied
}
