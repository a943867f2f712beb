// SPDX-License-Identifier: MPL-2.0
//! Frames as the backends see them: planes and their memory, and the validation that every access relies on.

pub use super::layout::{Field, MAX_DIMENSION, PlaneLayout, Role, SampleLayout, Split, StoredSample};
use super::plane::{DevicePlane, HostPlane, HostPlaneMut, PlaneMemory, copy_rows};
use crate::threads::Threads;

/// The input or the output of a blur.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The frame that is read.
    Input,
    /// The frame that is written.
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
    #[error("the input frame and the output frame have different numbers of planes")]
    Mismatch,
    #[error("a frame needs at least one plane")]
    Empty,
    #[error("the input frame and the output frame are the same memory, where a blur would read what it has written")]
    SharedMemory,
}

impl FrameError {
    /// The frame with the error, if the error concerns only one of the two.
    pub fn side(&self) -> Option<Side> {
        match self {
            Self::Pitch { side, .. } | Self::Truncated { side, .. } => Some(*side),
            _ => None,
        }
    }
}

/// One plane in borrowed memory: `layout.height` rows, `pitch` bytes apart. `D` is `&[u8]` or `&mut [u8]`.
#[derive(Debug)]
pub struct Plane<D> {
    /// The layout of the plane.
    pub layout: PlaneLayout,
    /// Bytes from one row to the next, at least [`PlaneLayout::row_bytes`].
    pub pitch: usize,
    /// The rows. The data may end with the last sample of the last row.
    pub data: D,
}

/// A frame in host memory that is read: its planes.
pub type Frame<'a> = Vec<Plane<&'a [u8]>>;

/// Where the planes of a frame are. Rows are `pitch` bytes apart. The memory may end with the last sample of the last row. Bytes
/// between rows are never written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum FrameMemory<A> {
    /// In host memory.
    Host(Vec<PlaneMemory<A>>),
    /// In the memory of the device that processes the frame.
    Device {
        /// The planes.
        planes: Vec<DevicePlane>,
        /// The stream (the driver's `CUstream`) that orders accesses to the planes. If it is `None`, all earlier work on the
        /// planes is complete when the frame is passed to the engine.
        stream: Option<usize>,
    },
}

impl<A: Copy> FrameMemory<A> {
    /// Whether the frame is in device memory.
    pub fn is_device(&self) -> bool {
        matches!(self, Self::Device { .. })
    }

    /// The planes, if the frame is in device memory.
    pub fn device_planes(&self) -> Option<&[DevicePlane]> {
        match self {
            Self::Device { planes, .. } => Some(planes),
            Self::Host(_) => None,
        }
    }

    /// The pitch and the length of each plane.
    fn sizes(&self) -> Vec<(usize, usize)> {
        match self {
            Self::Host(planes) => planes.iter().map(|plane| (plane.pitch, plane.len)).collect(),
            Self::Device { planes, .. } => planes.iter().map(|plane| (plane.pitch, plane.len)).collect(),
        }
    }
}

impl FrameMemory<*mut u8> {
    /// The same frame with read-only pointers.
    pub fn as_const(&self) -> FrameMemory<*const u8> {
        match self {
            Self::Host(planes) => FrameMemory::Host(planes.iter().map(HostPlaneMut::as_const).collect()),
            Self::Device { planes, stream } => FrameMemory::Device { planes: planes.clone(), stream: *stream },
        }
    }
}

/// A frame to read and a frame to write, before validation.
#[derive(Debug)]
pub struct FramePair {
    /// The layouts of the planes. Both frames have the same layouts.
    pub layouts: Vec<PlaneLayout>,
    /// The frame to read; `None` if `destination` is covered in place.
    pub source: Option<FrameMemory<*const u8>>,
    /// The frame to write.
    pub destination: FrameMemory<*mut u8>,
}

impl FramePair {
    /// Whether both frames are in host memory.
    pub fn is_on_host(&self) -> bool {
        !self.destination.is_device() && self.source.as_ref().is_none_or(|source| !source.is_device())
    }
}

/// Checks that layouts are in range and that the memory of a frame to read holds every row.
pub fn check_host(frame: &Frame) -> Result<(), FrameError> {
    let layouts: Vec<PlaneLayout> = frame.iter().map(|plane| plane.layout).collect();
    let sizes: Vec<(usize, usize)> = frame.iter().map(|plane| (plane.pitch, plane.data.len())).collect();
    check_layouts(&layouts)?;
    hold_rows(Side::Input, &layouts, &sizes)
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

fn check_layouts(layouts: &[PlaneLayout]) -> Result<(), FrameError> {
    if layouts.is_empty() {
        return Err(FrameError::Empty);
    }
    layouts.iter().try_for_each(check_layout)
}

/// A source and a destination with the same layouts, in memory that holds every row. A value of this type proves that
/// [`ValidFrames::new`] has checked them.
#[derive(Debug)]
pub struct ValidFrames {
    layouts: Vec<PlaneLayout>,
    source: FrameMemory<*const u8>,
    destination: FrameMemory<*mut u8>,
}

impl ValidFrames {
    /// Checks all conditions that the backends rely on: layouts are in range, both frames have one plane for each layout, and
    /// pitches and lengths hold every row.
    ///
    /// # Safety
    /// Each plane has `len` bytes of memory from its address on. They stay valid, nobody writes those of the source, and nobody else accesses
    /// those of the destination: as long as the result lives; until its submission to a device is completed or dropped; of frames that
    /// stay on the device, until their streams have done the work; and for good if the engine says that the device may still use
    /// them. Streams live as long, and they and device memory are of the engine's context. Planes of the destination overlap neither each
    /// other nor those of the source, unless both frames are the same, for a cover in place.
    pub unsafe fn new(FramePair { layouts, source, destination }: FramePair) -> Result<Self, FrameError> {
        check_layouts(&layouts)?;
        let sides = [(Side::Input, source.as_ref().map(FrameMemory::sizes)), (Side::Output, Some(destination.sizes()))];
        if sides.iter().any(|(_, sizes)| sizes.as_ref().is_some_and(|sizes| sizes.len() != layouts.len())) {
            return Err(FrameError::Mismatch);
        }
        for (side, sizes) in &sides {
            // For a cover in place, the frame is the buffer from upstream.
            let side = if source.is_none() { Side::Input } else { *side };
            hold_rows(side, &layouts, sizes.as_deref().unwrap_or_default())?;
        }
        Ok(Self { source: source.unwrap_or_else(|| destination.as_const()), layouts, destination })
    }

    /// Copies these planes of the source to the destination on worker threads. Does nothing if the frames are in device memory.
    /// Skips a plane that has the same memory in both frames.
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

    /// The layouts of the planes. Both frames have the same layouts.
    pub fn layouts(&self) -> &[PlaneLayout] {
        &self.layouts
    }

    /// The frame to read.
    pub fn source(&self) -> &FrameMemory<*const u8> {
        &self.source
    }

    /// The frame to write.
    pub fn destination(&self) -> &FrameMemory<*mut u8> {
        &self.destination
    }

    /// Whether both frames are in device memory and a plane of the source is a plane of the destination.
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

/// The copy of a plane of valid frames. Nobody else accesses the destination.
struct PlaneCopy<'a> {
    layout: &'a PlaneLayout,
    from: &'a HostPlane,
    to: &'a HostPlaneMut,
}

// SAFETY: the memory is bound to no thread, and each thread accesses different rows.
unsafe impl Sync for PlaneCopy<'_> {}

impl PlaneCopy<'_> {
    /// Copies all rows on the calling thread and on workers.
    fn share(&self, threads: &Threads) {
        /// The number of bytes that a thread copies at a time.
        const CHUNK_BYTES: usize = 64 << 10;
        let (rows, bytes) = (self.layout.height as usize, self.layout.row_bytes());
        let step = (CHUNK_BYTES / bytes).max(1);
        threads.share(rows.div_ceil(step), |chunk| {
            let Self { from, to, .. } = *self;
            let first = chunk * step;
            // SAFETY: `ValidFrames` proves that both planes hold the rows and do not overlap. No other thread accesses these
            // rows.
            unsafe { copy_rows(&from.from_row(first), &to.from_row(first), bytes, step.min(rows - first)) };
        });
    }
}

/// Checks that planes with these pitches and lengths hold all rows of their layouts.
fn hold_rows(side: Side, layouts: &[PlaneLayout], sizes: &[(usize, usize)]) -> Result<(), FrameError> {
    for (plane, (layout, (pitch, len))) in layouts.iter().zip(sizes.iter().copied()).enumerate() {
        let (PlaneLayout { width, height, .. }, row_bytes) = (*layout, layout.row_bytes());
        if pitch < row_bytes {
            return Err(FrameError::Pitch { side, plane, pitch, width, row_bytes });
        }
        let need = (height as usize - 1).saturating_mul(pitch).saturating_add(row_bytes);
        if len < need {
            return Err(FrameError::Truncated { side, plane, len, width, height, pitch, need });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: PlaneLayout = PlaneLayout::new(10, 4, 3, 8);

    /// Planes with these pitches and lengths. Nothing accesses their memory.
    fn nowhere<A>(address: A, sizes: &[(usize, usize)]) -> FrameMemory<A>
    where
        A: Copy,
    {
        FrameMemory::Host(sizes.iter().map(|(pitch, len)| PlaneMemory { address, pitch: *pitch, len: *len }).collect())
    }

    fn check_pair(layouts: &[PlaneLayout], from: &[(usize, usize)], to: &[(usize, usize)]) -> Result<(), FrameError> {
        let (source, destination) = (Some(nowhere(std::ptr::null(), from)), nowhere(std::ptr::null_mut(), to));
        // SAFETY: nothing accesses the memory, which does not exist.
        unsafe { ValidFrames::new(FramePair { layouts: layouts.to_vec(), source, destination }) }.map(drop)
    }

    fn check(layout: PlaneLayout, pitch: usize, len: usize) -> Result<(), FrameError> {
        check_pair(&[layout], &[(pitch, len)], &[(pitch, len)])
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
    fn input_and_output_have_as_many_planes() {
        assert_eq!(check_pair(&[LAYOUT], &[(30, 120)], &[]), Err(FrameError::Mismatch));
        assert_eq!(check_pair(&[LAYOUT], &[(30, 120); 2], &[(30, 120)]), Err(FrameError::Mismatch));
        assert_eq!(check_pair(&[], &[], &[]), Err(FrameError::Empty));
        let short = check_pair(&[LAYOUT], &[(30, 120)], &[(30, 119)]).unwrap_err();
        assert!(matches!(short, FrameError::Truncated { side: Side::Output, .. }), "{short}");
    }

    #[test]
    fn a_frame_that_is_covered_in_place_comes_from_upstream() {
        let destination = nowhere(std::ptr::null_mut(), &[(30, 119)]);
        // SAFETY: nothing accesses the memory, which does not exist.
        let error = unsafe { ValidFrames::new(FramePair { layouts: vec![LAYOUT], source: None, destination }) };
        assert_eq!(error.unwrap_err().side(), Some(Side::Input));
    }
}
