// SPDX-License-Identifier: MPL-2.0
//! Frames as the backends see them: planes and their memory, and the validation that every access relies on.

use std::marker::PhantomData;

pub use super::layout::{Field, MAX_DIMENSION, PlaneLayout, Role, SampleLayout, Split, StoredSample};
use super::plane::{DevicePlane, HostPlane, HostPlaneMut, PlaneMemory, copy_rows};
use crate::threads::Threads;

/// Which of the two frames of a blur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The one that is read.
    Input,
    /// The one that is written.
    Output,
}

impl std::fmt::Display for Side {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Input => "input",
            Self::Output => "output",
        })
    }
}

/// Why a frame is invalid. Sizes are in pixels, lengths and pitches in bytes.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the message of each variant names its fields")]
pub enum FrameError {
    #[error("a plane of {width}x{height} pixels cannot be blurred: each side must be 1 to {MAX_DIMENSION}")]
    Size { width: u32, height: u32 },
    #[error(
        "a plane of {channels} channels of {depth} bits ({sample_layout:?}) at scale {sigma_scale:?} cannot be blurred: it takes \
         1 to 4 channels, 8 to 16 bits and scales above 0 up to 1"
    )]
    Samples { channels: u8, depth: u8, sample_layout: SampleLayout, sigma_scale: [f64; 2] },
    #[error(
        "a plane of {width}x{height} pixels cannot be divided into two views ({split:?}), which would meet within a sample"
    )]
    Views { width: u32, height: u32, split: Split },
    #[error(
        "plane {plane} of the {side} buffer has a row pitch of {pitch} bytes, but a row of {width} pixels takes {row_bytes}"
    )]
    Pitch { side: Side, plane: usize, pitch: usize, width: u32, row_bytes: usize },
    #[error(
        "the {side} buffer is truncated: its plane {plane} holds {len} bytes, but {width}x{height} pixels at a row pitch of \
         {pitch} bytes take {need}"
    )]
    Truncated { side: Side, plane: usize, len: usize, width: u32, height: u32, pitch: usize, need: usize },
    #[error("the input frame and the output frame have different layouts")]
    Mismatch,
    #[error("a frame needs at least one plane")]
    Empty,
    #[error("the input frame and the output frame are the same memory, where a blur would read what it has written")]
    SharedMemory,
}

impl FrameError {
    /// The frame that is at fault, where it is one of the two.
    pub fn side(&self) -> Option<Side> {
        match self {
            Self::Pitch { side, .. } | Self::Truncated { side, .. } => Some(*side),
            _ => None,
        }
    }
}

/// One plane and its memory: `layout.height` rows, `pitch` bytes apart. `D` is `&[u8]`, `&mut [u8]` or [`DeviceBytes`].
#[derive(Debug)]
pub struct Plane<D> {
    /// The plane's layout.
    pub layout: PlaneLayout,
    /// Bytes from one row to the next, at least [`PlaneLayout::row_bytes`].
    pub pitch: usize,
    /// The rows; the last one may end with its last sample. Bytes between rows are never written.
    pub data: D,
}

/// A frame in host memory to read, plane by plane.
pub type Frame<'a> = Vec<Plane<&'a [u8]>>;
/// A frame in host memory to write, plane by plane.
pub type FrameMut<'a> = Vec<Plane<&'a mut [u8]>>;

/// A range of device memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceBytes {
    /// Address of the first byte, the driver's `CUdeviceptr`.
    pub address: u64,
    /// Length in bytes.
    pub len: usize,
}

/// A frame in device memory.
#[derive(Debug)]
pub struct DeviceFrame {
    /// Its planes.
    pub planes: Vec<Plane<DeviceBytes>>,
    /// The stream (the driver's `CUstream`) that orders accesses to it. Without one, all work on it is complete when the frame
    /// is handed over.
    pub stream: Option<usize>,
}

/// A frame, of which host memory is borrowed as `D`.
#[derive(Debug)]
pub enum AnyFrame<D> {
    /// In host memory.
    Host(Vec<Plane<D>>),
    /// In the memory of the device that blurs it.
    Device(DeviceFrame),
}

/// A frame to read.
pub type Source<'a> = AnyFrame<&'a [u8]>;
/// A frame to write.
pub type Destination<'a> = AnyFrame<&'a mut [u8]>;

/// A frame to write, to be read as long as this borrows it.
pub fn as_source<'a>(frame: &'a FrameMut) -> Frame<'a> {
    let plane = |plane: &'a Plane<&mut [u8]>| Plane { layout: plane.layout, pitch: plane.pitch, data: &*plane.data };
    frame.iter().map(plane).collect()
}

/// Checks that layouts are in range and that the memory holds every row, as [`ValidFrames::new`] does for two frames.
pub fn check_host<D: AsRef<[u8]>>(frame: &[Plane<D>], side: Side) -> Result<(), FrameError> {
    let planes = lengths(frame, |data| data.as_ref().len());
    check_layouts(&planes)?;
    planes.iter().enumerate().try_for_each(|(index, plane)| holds_rows(side, index, plane))
}

/// Checks that a layout is in range.
fn check_layout(layout: &PlaneLayout) -> Result<(), FrameError> {
    let PlaneLayout { width, height, channels, depth, sample_layout, sigma_scale, .. } = *layout;
    let sides = 1..=MAX_DIMENSION;
    if !sides.contains(&width) || !sides.contains(&height) {
        return Err(FrameError::Size { width, height });
    }
    let scales = sigma_scale.iter().all(|scale| *scale > 0.0 && *scale <= 1.0);
    let fit = match sample_layout {
        SampleLayout::LsbAligned => (1..=4).contains(&channels) && (8..=16).contains(&depth),
        SampleLayout::MsbAligned => (1..=4).contains(&channels) && (9..=16).contains(&depth),
        SampleLayout::Packed1010102 => channels == 4 && depth == 10,
        SampleLayout::Yuv422 { luma } => channels == 4 && (8..=16).contains(&depth) && luma <= 1,
    };
    if !fit || !scales {
        return Err(FrameError::Samples { channels, depth, sample_layout, sigma_scale });
    }
    let [across, down] = layout.split.views();
    let unit = if across > 1 { layout.unit_pixels() } else { 1 };
    if !width.is_multiple_of(across * unit) || !height.is_multiple_of(down) {
        return Err(FrameError::Views { width, height, split: layout.split });
    }
    Ok(())
}

fn check_layouts(planes: &[Plane<usize>]) -> Result<(), FrameError> {
    if planes.is_empty() {
        return Err(FrameError::Empty);
    }
    planes.iter().try_for_each(|plane| check_layout(&plane.layout))
}

/// Planes with the lengths of their memory.
fn lengths<D>(planes: &[Plane<D>], len: impl Fn(&D) -> usize) -> Vec<Plane<usize>> {
    planes.iter().map(|plane| Plane { layout: plane.layout, pitch: plane.pitch, data: len(&plane.data) }).collect()
}

impl<D: AsRef<[u8]>> AnyFrame<D> {
    fn lengths(&self) -> Vec<Plane<usize>> {
        match self {
            Self::Host(planes) => lengths(planes, |data| data.as_ref().len()),
            Self::Device(frame) => lengths(&frame.planes, |data| data.len),
        }
    }

    /// Where it is; `address` returns that of bytes in host memory.
    fn memory<A>(self, address: impl Fn(&mut D) -> A) -> FrameMemory<A> {
        let on_device = |Plane { pitch, data: DeviceBytes { address, len }, .. }| DevicePlane { address, pitch, len };
        match self {
            Self::Host(planes) => FrameMemory::Host(host_planes(planes, address)),
            Self::Device(DeviceFrame { planes, stream }) => {
                FrameMemory::Device { planes: planes.into_iter().map(on_device).collect(), stream }
            }
        }
    }
}

fn host_planes<D: AsRef<[u8]>, A>(planes: Vec<Plane<D>>, address: impl Fn(&mut D) -> A) -> Vec<PlaneMemory<A>> {
    let in_memory = |Plane { pitch, mut data, .. }: Plane<D>| {
        let len = data.as_ref().len();
        PlaneMemory { address: address(&mut data), pitch, len }
    };
    planes.into_iter().map(in_memory).collect()
}

/// Where the planes of a frame are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameMemory<A> {
    /// In host memory.
    Host(Vec<PlaneMemory<A>>),
    /// In the memory of the device that blurs it.
    Device {
        /// The planes.
        planes: Vec<DevicePlane>,
        /// See [`DeviceFrame::stream`].
        stream: Option<usize>,
    },
}

impl<A> FrameMemory<A> {
    /// Whether it is in device memory.
    pub fn is_device(&self) -> bool {
        matches!(self, Self::Device { .. })
    }

    /// Its planes, if it is in device memory.
    pub fn device_planes(&self) -> Option<&[DevicePlane]> {
        match self {
            Self::Device { planes, .. } => Some(planes),
            Self::Host(_) => None,
        }
    }
}

/// A source and a destination of the same layouts whose memory holds every row: proof that [`ValidFrames::new`] checked them.
#[derive(Debug)]
pub struct ValidFrames<'a> {
    layouts: Vec<PlaneLayout>,
    source: FrameMemory<*const u8>,
    destination: FrameMemory<*mut u8>,
    /// The frames are borrowed as long as this lives.
    _borrow: PhantomData<(&'a [u8], &'a mut [u8])>,
}

impl<'a> ValidFrames<'a> {
    /// Checks everything that the backends rely on: layouts in range and equal, pitches and lengths that hold every row.
    pub fn new(source: Source<'a>, destination: Destination<'a>) -> Result<Self, FrameError> {
        let (from, to) = (source.lengths(), destination.lengths());
        check_layouts(&from)?;
        let layouts: Vec<PlaneLayout> = from.iter().map(|plane| plane.layout).collect();
        if !layouts.iter().eq(to.iter().map(|plane| &plane.layout)) {
            return Err(FrameError::Mismatch);
        }
        for (index, (from, to)) in from.iter().zip(&to).enumerate() {
            holds_rows(Side::Input, index, from)?;
            holds_rows(Side::Output, index, to)?;
        }
        let source = source.memory(|bytes| bytes.as_ptr());
        let destination = destination.memory(|bytes| bytes.as_mut_ptr());
        Ok(Self { layouts, source, destination, _borrow: PhantomData })
    }

    /// Checks the frames of a cover as [`ValidFrames::new`] does. A source in host memory without planes stands for the
    /// destination, which is covered in place.
    pub fn of_cover(source: Source<'a>, destination: Destination<'a>) -> Result<Self, FrameError> {
        let frame = match (source, destination) {
            (Source::Host(source), Destination::Host(frame)) if source.is_empty() => frame,
            (source, destination) => return Self::new(source, destination),
        };
        check_host(&frame, Side::Input)?;
        let layouts = frame.iter().map(|plane| plane.layout).collect();
        let destination = host_planes(frame, |bytes| bytes.as_mut_ptr());
        let source = FrameMemory::Host(destination.iter().map(HostPlaneMut::as_const).collect());
        Ok(Self { layouts, source, destination: FrameMemory::Host(destination), _borrow: PhantomData })
    }

    /// Copies planes of the source into the destination on worker threads, if these are not the same memory, and both in host
    /// memory.
    pub fn copy_planes(&self, planes: &[usize], threads: &Threads) {
        let (FrameMemory::Host(source), FrameMemory::Host(destination)) = (&self.source, &self.destination) else {
            return;
        };
        for plane in planes.iter().copied() {
            let (from, to) = (&source[plane], &destination[plane]);
            if from.address != to.address.cast_const() {
                PlaneCopy { layout: &self.layouts[plane], from, to }.share(threads);
            }
        }
    }

    /// The layouts of the planes, of both frames.
    pub fn layouts(&self) -> &[PlaneLayout] {
        &self.layouts
    }

    /// Where the frame to read is.
    pub fn source(&self) -> &FrameMemory<*const u8> {
        &self.source
    }

    /// Where the frame to write is.
    pub fn destination(&self) -> &FrameMemory<*mut u8> {
        &self.destination
    }

    /// Whether a plane of the source is a plane of the destination, in device memory.
    pub fn share_device_memory(&self) -> bool {
        let (FrameMemory::Device { planes: from, .. }, FrameMemory::Device { planes: to, .. }) =
            (&self.source, &self.destination)
        else {
            return false;
        };
        from.iter().any(|from| to.iter().any(|to| from.address == to.address))
    }

    /// Whether both frames are in device memory.
    pub fn are_on_device(&self) -> bool {
        self.source.is_device() && self.destination.is_device()
    }
}

/// A copy of a plane of valid frames, whose destination nobody else accesses.
struct PlaneCopy<'a> {
    layout: &'a PlaneLayout,
    from: &'a HostPlane,
    to: &'a HostPlaneMut,
}

// SAFETY: the addresses belong to no thread, and each thread accesses other rows.
unsafe impl Sync for PlaneCopy<'_> {}

impl PlaneCopy<'_> {
    /// Copies all rows on the calling thread and on workers.
    fn share(&self, threads: &Threads) {
        /// Bytes that a thread copies at a time.
        const CHUNK_BYTES: usize = 64 << 10;
        let (rows, bytes) = (self.layout.height as usize, self.layout.row_bytes());
        let step = (CHUNK_BYTES / bytes).max(1);
        threads.share(rows.div_ceil(step), |chunk| {
            let Self { from, to, .. } = *self;
            let first = chunk * step;
            // SAFETY: the planes are valid and do not overlap; no other thread accesses these rows.
            unsafe { copy_rows(&from.from_row(first), &to.from_row(first), bytes, step.min(rows - first)) };
        });
    }
}

fn holds_rows(side: Side, plane: usize, of: &Plane<usize>) -> Result<(), FrameError> {
    let Plane { layout, pitch, data: len } = *of;
    let PlaneLayout { width, height, .. } = layout;
    let row_bytes = layout.row_bytes();
    if pitch < row_bytes {
        return Err(FrameError::Pitch { side, plane, pitch, width, row_bytes });
    }
    let need = (height as usize - 1).saturating_mul(pitch).saturating_add(row_bytes);
    if len < need {
        return Err(FrameError::Truncated { side, plane, len, width, height, pitch, need });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: PlaneLayout = PlaneLayout::new(10, 4, 3, 8);

    fn validate(source: Source, destination: Destination) -> Result<(), FrameError> {
        ValidFrames::new(source, destination).map(drop)
    }

    fn check(layout: PlaneLayout, pitch: usize, len: usize) -> Result<(), FrameError> {
        let (src, mut dst) = (vec![0; len], vec![0; len]);
        let src = vec![Plane { layout, pitch, data: &src[..] }];
        let dst = vec![Plane { layout, pitch, data: &mut dst[..] }];
        validate(Source::Host(src), Destination::Host(dst))
    }

    #[test]
    fn the_last_row_needs_no_padding() {
        assert_eq!(check(LAYOUT, 30, 120), Ok(()));
        assert_eq!(check(LAYOUT, 64, 3 * 64 + 30), Ok(()));
        let short = check(LAYOUT, 64, 3 * 64 + 29).unwrap_err();
        assert!(
            matches!(short, FrameError::Truncated { side: Side::Input, plane: 0, len: 221, need: 222, .. }),
            "{short}"
        );
        assert!(short.to_string().contains("221 bytes") && short.to_string().contains("222"), "{short}");
    }

    #[test]
    fn invalid_layouts_are_rejected() {
        assert!(matches!(check(LAYOUT, 29, 1000), Err(FrameError::Pitch { pitch: 29, row_bytes: 30, .. })));
        assert!(matches!(check(LAYOUT, usize::MAX, 1000), Err(FrameError::Truncated { .. })));
        for (width, height) in [(0, 4), (4, 0), (MAX_DIMENSION + 1, 4), (4, MAX_DIMENSION + 1)] {
            let layout = PlaneLayout { width, height, ..LAYOUT };
            assert_eq!(check(layout, 1 << 20, 1 << 10), Err(FrameError::Size { width, height }));
        }
        for layout in [
            PlaneLayout { channels: 0, ..LAYOUT },
            PlaneLayout { channels: 5, ..LAYOUT },
            PlaneLayout { depth: 7, ..LAYOUT },
            PlaneLayout { depth: 17, ..LAYOUT },
            PlaneLayout { sample_layout: SampleLayout::MsbAligned, ..LAYOUT },
            PlaneLayout { channels: 4, sample_layout: SampleLayout::Packed1010102, ..LAYOUT },
            PlaneLayout { sample_layout: SampleLayout::Yuv422 { luma: 0 }, ..LAYOUT },
            PlaneLayout { sigma_scale: [0.0, 1.0], ..LAYOUT },
            PlaneLayout { sigma_scale: [1.0, 2.0], ..LAYOUT },
            PlaneLayout { sigma_scale: [f64::NAN, 1.0], ..LAYOUT },
        ] {
            assert!(matches!(check(layout, 1 << 10, 1 << 12), Err(FrameError::Samples { .. })), "{layout:?}");
        }
        let (packed, whole) = (SampleLayout::Yuv422 { luma: 0 }, SampleLayout::LsbAligned);
        for (width, height, split, sample_layout) in
            [(1, 4, Split::SideBySide, whole), (10, 3, Split::TopBottom, whole), (10, 4, Split::SideBySide, packed)]
        {
            let layout = PlaneLayout { split, sample_layout, ..PlaneLayout::new(width, height, 4, 8) };
            assert_eq!(check(layout, 1 << 10, 1 << 12), Err(FrameError::Views { width, height, split }));
        }
    }

    #[test]
    fn input_and_output_have_the_same_layouts() {
        let (src, mut dst) = (vec![0; 120], vec![0; 120]);
        let wider = PlaneLayout { width: 9, ..LAYOUT };
        let src = vec![Plane { layout: LAYOUT, pitch: 30, data: &src[..] }];
        let dst = vec![Plane { layout: wider, pitch: 30, data: &mut dst[..] }];
        assert_eq!(validate(Source::Host(src), Destination::Host(dst)), Err(FrameError::Mismatch));
        let src = vec![Plane { layout: LAYOUT, pitch: 30, data: &[0; 120][..] }];
        assert_eq!(validate(Source::Host(src), Destination::Host(Vec::new())), Err(FrameError::Mismatch));
        assert_eq!(validate(Source::Host(Vec::new()), Destination::Host(Vec::new())), Err(FrameError::Empty));
    }
}
