//! Frames in device memory and in host memory, with chosen pitches and alignment, and what an engine makes of them, against the
//! CPU engine.

use super::borrowed::{Borrowing, FrameMut, pair};
use gstcudagaussblur::cpu::CpuEngine;
use gstcudagaussblur::cuda::driver::{DeviceMemory, PinnedMemory, Stream};
use gstcudagaussblur::cuda::{PinnedBytes, PinnedSource, process};
use gstcudagaussblur::engine::{BlurRegion, Cover, Engine, FrameAccess, Hide, Softness, Work};
use gstcudagaussblur::filter::BlurParams;
use gstcudagaussblur::filter::frame::{Frame, FrameMemory, FramePair, Plane, PlaneLayout, SampleLayout};
use gstcudagaussblur::filter::mosaic::MosaicRegion;
use gstcudagaussblur::filter::picture::PictureGeometry;
use gstcudagaussblur::filter::plan::{Options, Selection};
use gstcudagaussblur::filter::plane::DevicePlane;
use gstcudagaussblur::filter::regions::{Area, Rect};
use gstcudagaussblur::filter::weights::{Edge, Mask, Object, Shape, Weights};

use super::Noise;
use super::pictures::{PADDING, rect, resized};

/// A plane of a block: its layout, the index of its first byte, and bytes from one row to the next.
type Placed = (PlaneLayout, usize, usize);

/// The planes in the bytes of a block.
fn views<'a>(planes: &[Placed], bytes: &'a mut [u8]) -> FrameMut<'a> {
    let (mut rest, mut begin) = (bytes, 0);
    let plane = |(layout, start, pitch): &Placed| {
        let len = pitch * (layout.height as usize - 1) + layout.row_bytes();
        let (data, others) = std::mem::take(&mut rest)[start - begin..].split_at_mut(len);
        (rest, begin) = (others, start + len);
        Plane { layout: *layout, pitch: *pitch, data }
    };
    planes.iter().map(plane).collect()
}

/// A frame to write, to be read as long as this borrows it.
fn as_source<'a>(frame: &'a FrameMut) -> Frame<'a> {
    let plane = |plane: &'a Plane<&mut [u8]>| Plane { layout: plane.layout, pitch: plane.pitch, data: &*plane.data };
    frame.iter().map(plane).collect()
}

/// A frame in a block of bytes: planes behind each other, with noise around them and between their rows.
#[derive(Clone)]
pub struct Block {
    planes: Vec<Placed>,
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
        Self { planes, bytes: Noise(seed).bytes(end + 64) }
    }

    /// A picture without bytes between its rows.
    pub fn dense(layouts: &[PlaneLayout], seed: u64) -> Self {
        Self::new(layouts, 0, PlaneLayout::row_bytes, seed)
    }

    fn layouts(&self) -> Vec<PlaneLayout> {
        self.planes.iter().map(|(layout, ..)| *layout).collect()
    }

    pub fn frame_mut(&mut self) -> FrameMut<'_> {
        views(&self.planes, &mut self.bytes)
    }

    /// Copies rows, and nothing that is between them.
    fn copy_from(&mut self, other: &Self) {
        for ((layout, start, own), (_, from, pitch)) in self.planes.iter().zip(&other.planes) {
            for y in 0..layout.height as usize {
                let bytes = layout.row_bytes();
                self.bytes[start + y * own..][..bytes].copy_from_slice(&other.bytes[from + y * pitch..][..bytes]);
            }
        }
    }

    fn device_frame<A>(&self, memory: &DeviceMemory, stream: Option<&Stream>) -> FrameMemory<A> {
        let plane = |(layout, start, pitch): &Placed| {
            let len = pitch * (layout.height as usize - 1) + layout.row_bytes();
            DevicePlane { address: memory.address() + *start as u64, pitch: *pitch, len }
        };
        let stream = stream.map(|stream| stream.raw() as usize);
        FrameMemory::Device { planes: self.planes.iter().map(plane).collect(), stream }
    }

    /// The blur of this picture by the CPU engine, in another one.
    pub fn blurred_into(&self, options: Options, destination: &Self) -> Self {
        let (mut from, mut into) = (self.clone(), destination.clone());
        let mut cpu = Engine::with_cpu(CpuEngine::new());
        cpu.blur(options, &as_source(&from.frame_mut()), &mut into.frame_mut()).unwrap();
        into
    }
}

/// Bytes on the device.
pub struct OnDevice {
    memory: DeviceMemory,
    pinned: PinnedMemory,
    len: usize,
}

impl OnDevice {
    /// Enqueues the upload. The context is current.
    pub fn new(bytes: &[u8], stream: &Stream) -> Self {
        let memory = DeviceMemory::new(bytes.len(), stream).unwrap();
        let pinned = PinnedMemory::new(bytes.len(), stream.device()).unwrap();
        let new = Self { memory, pinned, len: bytes.len() };
        new.write(bytes, stream);
        new
    }

    /// Enqueues the upload of other bytes, before which the last upload has ended.
    pub fn write(&self, bytes: &[u8], stream: &Stream) {
        // SAFETY: both allocations have the bytes, and live until the stream is synchronised.
        unsafe {
            self.pinned.address().copy_from_nonoverlapping(bytes.as_ptr(), self.len);
            stream.copy(&self.pinned.row(self.len), &self.memory.row(self.len), self.len, 1).unwrap();
        }
    }

    /// Enqueues the upload of these bytes to another place.
    pub fn copy_to(&self, other: &Self, stream: &Stream) {
        // SAFETY: both allocations have the bytes, and live until the stream is synchronised.
        unsafe { stream.copy(&self.pinned.row(self.len), &other.memory.row(self.len), self.len, 1).unwrap() };
    }

    pub fn read(&self, stream: &Stream) -> Vec<u8> {
        // SAFETY: both allocations have the bytes; they are read after the download.
        unsafe {
            stream.copy(&self.memory.row(self.len), &self.pinned.row(self.len), self.len, 1).unwrap();
            stream.synchronize().unwrap();
            std::slice::from_raw_parts(self.pinned.address(), self.len).to_vec()
        }
    }
}

/// Where a frame is.
pub enum Place<'a> {
    /// In host memory: that of the block, or pinned memory.
    Host(Block, Option<PinnedBytes>),
    /// On the device, in the order of a stream if it has one.
    Device(&'a Block, &'a OnDevice, Option<&'a Stream>),
}

impl Place<'_> {
    /// The host memory of a copy of a block, which is pinned if there is something to allocate it.
    pub fn host(block: &Block, pinned: Option<&PinnedSource>) -> Self {
        let allocate = |source: &PinnedSource| {
            let mut pinned = source.allocate(block.bytes.len()).unwrap();
            pinned.as_mut().copy_from_slice(&block.bytes);
            pinned
        };
        Self::Host(block.clone(), pinned.map(allocate))
    }

    /// The bytes in host memory.
    pub fn bytes(&mut self) -> Vec<u8> {
        match self {
            Self::Host(_, Some(pinned)) => pinned.as_mut().to_vec(),
            Self::Host(block, None) => block.bytes.clone(),
            Self::Device(..) => unreachable!("on the device"),
        }
    }

    /// Its layouts, and where it is.
    fn memory(&mut self) -> (Vec<PlaneLayout>, FrameMemory<*mut u8>) {
        match self {
            Self::Host(Block { planes, bytes }, pinned) => {
                let mut views = views(planes, pinned.as_mut().map_or(&mut bytes[..], PinnedBytes::as_mut));
                let pair = pair(&[], &mut views);
                (pair.layouts, pair.destination)
            }
            Self::Device(block, memory, stream) => (block.layouts(), block.device_frame(&memory.memory, *stream)),
        }
    }
}

/// A source, unless a frame in host memory is covered in place, and a destination.
pub struct Frames<'a> {
    pub source: Option<Place<'a>>,
    pub destination: Place<'a>,
}

// SAFETY: host memory is the frames' own, on the heap or pinned. The caller keeps memory and streams of the device until the
// streams are synchronised, and accesses nothing before.
unsafe impl FrameAccess for Frames<'_> {
    fn frames(&mut self) -> FramePair {
        let source = self.source.as_mut().map(|source| source.memory().1.as_const());
        let (layouts, destination) = self.destination.memory();
        FramePair { layouts, source, destination }
    }
}

/// Which streams the frames have, or which of them are in host memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Streams {
    One,
    Two,
    /// None for the source.
    None,
    /// The destination is in host memory.
    ToHost,
    Host,
}

impl Streams {
    /// The streams of the source and of the destination.
    fn of_frames(self, own: &[Stream; 2]) -> [Option<&Stream>; 2] {
        match self {
            Self::One => [Some(&own[0]), Some(&own[0])],
            Self::Two => [Some(&own[0]), Some(&own[1])],
            Self::None => [None, Some(&own[1])],
            Self::ToHost => [Some(&own[0]), None],
            Self::Host => [None, None],
        }
    }
}

/// Runs `work` with two streams of the device, whose context is current.
pub fn with_streams<T>(work: impl FnOnce(&[Stream; 2]) -> T) -> T {
    let device = process::open(0).unwrap().device().clone();
    let _current = device.enter().unwrap();
    let streams = [(); 2].map(|()| Stream::new(&device).unwrap());
    work(&streams)
}

/// Waits for both streams, before memory that they use is freed.
pub fn wait(streams: &[Stream; 2]) {
    streams.iter().for_each(|stream| stream.synchronize().unwrap());
}

/// Processes every source on the device, in place or into a frame of its own like `destination`, all of them in flight at once.
/// Without work they are copied. Returns the bytes of the outputs.
fn outputs(
    engine: &mut Engine,
    work: Option<Work>,
    sources: &[Block],
    destination: Option<&Block>,
    streams: Streams,
) -> Vec<Vec<u8>> {
    with_streams(|own| {
        let of = streams.of_frames(own);
        let upload = |block: &Block, stream| OnDevice::new(&block.bytes, stream);
        let memory = |source| (upload(source, &own[0]), destination.map(|block| upload(block, &own[1])));
        let memories: Vec<_> = sources.iter().map(memory).collect();
        // The sources are not written yet when the work is enqueued, unless nothing orders the two.
        own[1].synchronize().unwrap();
        if of[0].is_none() {
            own[0].synchronize().unwrap();
        }
        let mut frames = Vec::new();
        for (source, (from, to)) in sources.iter().zip(&memories) {
            let is_host = streams == Streams::Host;
            let source_place = || if is_host { Place::host(source, None) } else { Place::Device(source, from, of[0]) };
            let destination = match destination.zip(to.as_ref()) {
                None => source_place(),
                Some((block, _)) if is_host || streams == Streams::ToHost => Place::host(block, None),
                Some((block, to)) => Place::Device(block, to, of[1]),
            };
            frames.push(Frames { source: Some(source_place()), destination });
        }
        let completed: Vec<_> = match work {
            None => frames.into_iter().map(|frames| engine.run(Work::Transfer, frames).unwrap()).collect(),
            Some(work) => {
                let submit = |frames| engine.submit(work, frames).unwrap();
                let in_flight: Vec<_> = frames.into_iter().map(submit).collect();
                in_flight.into_iter().map(|frame| engine.complete(frame).unwrap()).collect()
            }
        };
        let mut outputs = Vec::new();
        for ((source, (from, _)), mut completed) in sources.iter().zip(&memories).zip(completed) {
            // Streams order the frames, so that nobody waits.
            let is_queued = [Streams::One, Streams::Two].contains(&streams);
            assert_eq!((completed.queued, completed.failure), (is_queued, None));
            outputs.push(match &mut completed.frame.destination {
                Place::Device(_, memory, stream) => memory.read(stream.unwrap_or(&own[0])),
                in_host_memory => in_host_memory.bytes(),
            });
            assert!(destination.is_none() || from.read(&own[0]) == source.bytes, "the source was written");
        }
        wait(own);
        outputs
    })
}

/// What the CPU engine makes of a cover of `source`, in place or in `destination`.
fn covered(cover: &Cover, source: &Block, destination: Option<&Block>) -> Block {
    let mut expected = destination.unwrap_or(source).clone();
    if destination.is_some() {
        expected.copy_from(source);
    }
    Engine::with_cpu(CpuEngine::new()).cover(cover, &mut expected.frame_mut()).unwrap();
    expected
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
    let expected = covered(cover, source, destination);
    let got = outputs(engine, Some(cover.into()), std::slice::from_ref(source), destination, streams).remove(0);
    if let Some(i) = (0..got.len()).find(|i| got[*i] != expected.bytes[*i]) {
        let plane = expected.planes.iter().rposition(|(_, start, _)| *start <= i).unwrap_or(0);
        let (_, start, pitch) = expected.planes[plane];
        let place = (plane, (i - start) % pitch, (i - start) / pitch);
        let (planes, is_in_place) = (source.layouts(), destination.is_none());
        let cover: String = format!("{cover:?}").chars().take(500).collect();
        panic!("(plane, byte, row) {place:?} differs: {cover} of {planes:?}, {streams:?}, in place: {is_in_place}");
    }
    got.len()
}

/// Blurs every source into a frame of its own like `destination`, all of them in flight at once, and compares every byte with the
/// CPU engine.
pub fn check_blurs(engine: &mut Engine, options: Options, sources: &[Block], destination: &Block, streams: Streams) {
    let outputs = outputs(engine, Some(options.into()), sources, Some(destination), streams);
    for (source, got) in sources.iter().zip(outputs) {
        let expected = source.blurred_into(options, destination).bytes;
        assert!(got == expected, "{options:?} of {:?}, {streams:?}", source.layouts());
    }
}

/// Blurs a frame of noise in host memory, with `padding` bytes between rows, into one like it, and compares every byte with the CPU
/// engine. Returns the number of bytes compared.
pub fn check_host_blur(
    engine: &mut Engine,
    options: impl Into<Options>,
    layouts: &[PlaneLayout],
    padding: usize,
) -> usize {
    let (options, mut source) = (options.into(), Block::new(layouts, 0, |layout| layout.row_bytes() + padding, 7));
    let expected = source.blurred_into(options, &source);
    let mut got = source.clone();
    let failure = engine.blur(options, &as_source(&source.frame_mut()), &mut got.frame_mut()).unwrap();
    assert!(failure.is_none() && got.bytes == expected.bytes, "{options:?} of {layouts:?}");
    got.bytes.len()
}

/// Copies `source` into `destination` on the device, and compares every byte. Nothing is counted.
pub fn check_transfer(engine: &mut Engine, source: &Block, destination: &Block) {
    let stats = engine.stats();
    let got = outputs(engine, None, std::slice::from_ref(source), Some(destination), Streams::One).remove(0);
    assert!(got == source.blurred_into(BlurParams::PASSTHROUGH.into(), destination).bytes, "{:?}", source.layouts());
    assert_eq!(engine.stats(), stats, "a copy is counted");
}

/// A blur of these regions.
pub fn blur(regions: impl IntoIterator<Item = (Rect, BlurParams)>) -> Cover {
    let regions = regions.into_iter().map(|(rect, params)| BlurRegion { rect, params }).collect();
    Cover::from(Hide::Blur { planes: Selection::ALL, regions })
}

/// Covers of all kinds, with hard edges and with soft ones.
pub fn all_covers(planes: &[PlaneLayout], sigmas: &[f64], noise: &mut Noise) -> Vec<Cover> {
    let [width, height] = PictureGeometry::new(planes).size();
    let [x, y] = [width / 2 - 1, height / 3];
    let rects = [
        rect(x | 1, y, (width / 4) | 1, 7.min(height - y)),
        rect(x + 2, y + 1, width / 3, 9),
        rect(0, height - 1, 2, 1),
        rect(1, 0, 3, 3),
    ];
    let mut all = covers(planes, &rects, sigmas, noise);
    all.extend(soft_covers(planes, sigmas, noise));
    all
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

/// Makes the covers of a picture with these planes, whose blurs have these sigmas.
pub type Covers = fn(&[PlaneLayout], &[f64], &mut Noise) -> Vec<Cover>;

/// Covers every kind of frame on the device, in place and not, with aligned rows and with odd ones. Returns the number of bytes
/// compared.
pub fn check_kinds(
    engine: &mut Engine,
    kinds: &[Vec<PlaneLayout>],
    sizes: &[[u32; 2]],
    sigmas: &[f64],
    covers: Covers,
) -> usize {
    let mut noise = Noise(23);
    let mut bytes = 0;
    for (turn, planes) in kinds.iter().enumerate() {
        let planes = resized(planes, sizes[turn % sizes.len()]);
        let pitch = |is_aligned: bool, padding: usize| {
            move |layout: &PlaneLayout| match is_aligned {
                true => layout.row_bytes().next_multiple_of(64),
                false => layout.row_bytes() + padding,
            }
        };
        let (seed, [is_even, is_third]) = (noise.next(), [2, 3].map(|of| turn % of == 0));
        let source = Block::new(&planes, if is_even { 16 } else { 2 * (turn % 7) }, pitch(is_even, 13), seed);
        let destination = Block::new(&planes, if is_third { 32 } else { 6 }, pitch(is_third, 22), seed + 1);
        for (i, cover) in covers(&planes, sigmas, &mut noise).iter().enumerate() {
            let streams = [Streams::One, Streams::Two, Streams::None][(turn + i) % 3];
            bytes += check(engine, cover, &source, None, streams);
            bytes += check(engine, cover, &source, Some(&destination), streams);
        }
    }
    bytes
}

/// Covers pictures in host memory through the device, and compares every byte with the CPU engine: in place, also with two in
/// flight, and in a copy, in pageable memory and in pinned memory. Returns the number of bytes compared.
pub fn check_host_kinds(engine: &mut Engine, kinds: &[Vec<PlaneLayout>], size: [u32; 2], sigmas: &[f64]) -> usize {
    let mut noise = Noise(29);
    let mut bytes = 0;
    let pinned = engine.pinned().unwrap();
    for (turn, planes) in kinds.iter().enumerate() {
        let planes = resized(planes, size);
        let padded = |padding: usize| move |layout: &PlaneLayout| layout.row_bytes() + padding;
        let source = Block::new(&planes, 0, padded(PADDING), noise.next());
        let destination = Block::new(&planes, 0, padded([3, PADDING, 21][turn % 3]), noise.next());
        let memory = (turn % 2 == 0).then_some(&pinned);
        for cover in all_covers(&planes, sigmas, &mut noise) {
            let [in_place, in_copy] = [None, Some(&destination)].map(|place| covered(&cover, &source, place));
            let mut check = |got: &[u8], want: &Block, what: &str| {
                assert!(got == want.bytes, "{what}: {cover:?} of {planes:?}");
                bytes += got.len();
            };
            let mut borrowed = source.clone();
            assert!(engine.cover(&cover, &mut borrowed.frame_mut()).unwrap().is_none());
            check(&borrowed.bytes, &in_place, "borrowed");

            let before = engine.stats();
            let frame = || Frames { source: None, destination: Place::host(&source, memory) };
            let in_flight = [(); 2].map(|()| engine.submit(&cover, frame()).unwrap());
            for frame in in_flight {
                check(&engine.complete(frame).unwrap().frame.destination.bytes(), &in_place, "in place");
            }
            let copy =
                Frames { source: Some(Place::host(&source, memory)), destination: Place::host(&destination, None) };
            let mut covered = engine.run(&cover, copy).unwrap().frame;
            check(&covered.destination.bytes(), &in_copy, "in a copy");
            check(&covered.source.as_mut().unwrap().bytes(), &source, "the source");
            let stats = engine.stats();
            assert_eq!(stats.frames_pinned[0] - before.frames_pinned[0], if memory.is_some() { 3 } else { 0 });
            assert_eq!([stats.frames_cuda - before.frames_cuda, stats.frames_cpu], [3, 0]);
        }
    }
    bytes
}
