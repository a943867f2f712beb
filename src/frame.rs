// SPDX-License-Identifier: MPL-2.0
//! Frames as the engines see them: planes of interleaved samples. Pure; knows no σ and no video format.

/// Largest width and height of a plane, in pixels.
pub const MAX_DIMENSION: u32 = 16384;

/// How the samples of a pixel lie in memory.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Pixels {
    /// Interleaved samples of one byte, or of two bytes in native order with the value in the low bits.
    #[default]
    Low,
    /// Interleaved samples of two bytes in native order with the value in the high bits. The bits below are written as 0.
    High,
    /// Words of 32 bits in native order: three samples of 10 bits and one of 2, from the lowest bit up.
    Ten,
    /// Packed 4:2:2: four bytes for two pixels, luma and chroma in turn. The second luma byte of a last pair that has but
    /// one pixel is written with what the blur gives beyond the edge, unless luma is not blurred.
    Yuv422 {
        /// Where the first luma byte is, 0 or 1.
        luma: u8,
    },
}

/// What a sample stands for.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Role {
    /// Luma, grey, red, green or blue, or nothing.
    #[default]
    Luma,
    /// Colour difference.
    Chroma,
    /// Opacity.
    Alpha,
}

/// The shape of one plane, without its memory.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct PlaneLayout {
    /// Pixels per row, 1 to [`MAX_DIMENSION`].
    pub width: u32,
    /// Rows, 1 to [`MAX_DIMENSION`].
    pub height: u32,
    /// Samples per pixel, interleaved, 1 to 4. Each is blurred for itself. 4 for [`Pixels::Ten`], and for
    /// [`Pixels::Yuv422`], which has four samples in a pair of pixels.
    pub channels: u8,
    /// Bits per sample, 8 to 16: one byte for 8, else two. 10 for [`Pixels::Ten`], whose last sample has 2.
    pub depth: u8,
    /// How they lie in memory.
    pub pixels: Pixels,
    /// What they stand for; as many as there are channels.
    pub roles: [Role; 4],
    /// Plane pixels per picture pixel along x and y, in (0, 1]: 0.5 on an axis subsampled by two. Of packed 4:2:2 that of
    /// luma.
    pub sigma_scale: [f64; 2],
    /// Whether the rows are those of two fields in turn, which are blurred apart.
    pub interlaced: bool,
}

/// Rows of a plane that are blurred together: all of it, or one field.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Field {
    /// The shape of these rows by themselves.
    pub layout: PlaneLayout,
    /// The first of them.
    pub first_row: usize,
    /// From one to the next.
    pub step: usize,
}

impl PlaneLayout {
    /// Interleaved luma samples of one for every pixel of the picture, in the low bits.
    pub const fn new(width: u32, height: u32, channels: u8, depth: u8) -> Self {
        let (pixels, roles) = (Pixels::Low, [Role::Luma; 4]);
        Self { width, height, channels, depth, pixels, roles, sigma_scale: [1.0; 2], interlaced: false }
    }

    /// Bytes per sample, 1 or 2; those of [`Pixels::Ten`] take 2 while they are worked on.
    pub fn sample_bytes(&self) -> usize {
        if self.depth == 8 { 1 } else { 2 }
    }

    /// What repeats along a row: pixels, or pairs of pixels of packed 4:2:2.
    pub fn row_pixels(&self) -> usize {
        match self.pixels {
            Pixels::Yuv422 { .. } => self.width.div_ceil(2) as usize,
            _ => self.width as usize,
        }
    }

    /// Samples per row.
    pub fn row_samples(&self) -> usize {
        self.row_pixels() * usize::from(self.channels)
    }

    /// Bytes per pixel, or per pair of pixels of packed 4:2:2.
    pub fn pixel_bytes(&self) -> usize {
        match self.pixels {
            Pixels::Ten => 4,
            _ => usize::from(self.channels) * self.sample_bytes(),
        }
    }

    /// Bytes per row that hold samples; the pitch may be larger.
    pub fn row_bytes(&self) -> usize {
        self.row_pixels() * self.pixel_bytes()
    }

    /// The bit of a sample's 16 where its lowest is.
    pub fn low_bit(&self) -> u8 {
        if self.pixels == Pixels::High { 16 - self.depth } else { 0 }
    }

    /// The roles of its samples.
    pub fn roles(&self) -> &[Role] {
        &self.roles[..usize::from(self.channels)]
    }

    /// The rows that are blurred together. The lines of a field are two lines of the picture apart.
    pub fn fields(&self) -> impl Iterator<Item = Field> {
        let (fields, [across, down]) = (1 + u32::from(self.interlaced), self.sigma_scale);
        let field = move |first: u32| Field {
            layout: Self {
                height: (self.height - first).div_ceil(fields),
                sigma_scale: [across, down / f64::from(fields)],
                interlaced: false,
                ..*self
            },
            first_row: first as usize,
            step: fields as usize,
        };
        (0..fields.min(self.height)).map(field)
    }

    fn check(&self) -> Result<(), FrameError> {
        let Self { width, height, channels, depth, pixels, sigma_scale, .. } = *self;
        let sides = 1..=MAX_DIMENSION;
        if !sides.contains(&width) || !sides.contains(&height) {
            return Err(FrameError::Size { width, height });
        }
        let scales = sigma_scale.iter().all(|scale| *scale > 0.0 && *scale <= 1.0);
        let fit = match pixels {
            Pixels::Low => (1..=4).contains(&channels) && (8..=16).contains(&depth),
            Pixels::High => (1..=4).contains(&channels) && (9..=16).contains(&depth),
            Pixels::Ten => channels == 4 && depth == 10,
            Pixels::Yuv422 { luma } => channels == 4 && depth == 8 && luma <= 1,
        };
        if !fit || !scales {
            return Err(FrameError::Samples { channels, depth, pixels, sigma_scale });
        }
        Ok(())
    }
}

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

/// Why a frame cannot be blurred. Sizes in pixels, lengths and pitches in bytes.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[expect(missing_docs, reason = "the sentence of each variant names its fields")]
pub enum FrameError {
    #[error("a plane of {width}x{height} pixels cannot be blurred: each side must be 1 to {MAX_DIMENSION}")]
    Size { width: u32, height: u32 },
    #[error(
        "a plane of {channels} channels of {depth} bits ({pixels:?}) at scale {sigma_scale:?} cannot be blurred: it takes \
         1 to 4 channels, 8 to 16 bits and scales above 0 up to 1"
    )]
    Samples { channels: u8, depth: u8, pixels: Pixels, sigma_scale: [f64; 2] },
    #[error(
        "plane {plane} of the {side} buffer has a row pitch of {pitch} bytes, but a row of {width} pixels takes {row_bytes}"
    )]
    Pitch { side: Side, plane: usize, pitch: usize, width: u32, row_bytes: usize },
    #[error(
        "the {side} buffer is truncated: its plane {plane} holds {len} bytes, but {width}x{height} pixels at a row pitch of \
         {pitch} bytes take {need}"
    )]
    Truncated { side: Side, plane: usize, len: usize, width: u32, height: u32, pitch: usize, need: usize },
    #[error("the input frame and the output frame differ in shape")]
    Mismatch,
    #[error("a frame needs at least one plane")]
    Empty,
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
    /// The plane's shape.
    pub layout: PlaneLayout,
    /// Bytes from one row to the next, at least [`PlaneLayout::row_bytes`].
    pub pitch: usize,
    /// The rows; the last one may end with its last sample. Bytes between rows are never written.
    pub data: D,
}

/// A frame to read from, plane by plane.
pub type Frame<'a> = Vec<Plane<&'a [u8]>>;
/// A frame to write to, plane by plane.
pub type FrameMut<'a> = Vec<Plane<&'a mut [u8]>>;

/// Bytes in the memory of a device.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DeviceBytes {
    /// The first one's address.
    pub address: u64,
    /// How many there are.
    pub len: usize,
}

/// A frame in the memory of a device.
#[derive(Debug)]
pub struct DeviceFrame {
    /// Its planes.
    pub planes: Vec<Plane<DeviceBytes>>,
    /// The stream (the driver's handle) that orders what is done with it; without one it is done when it is handed on.
    pub stream: Option<usize>,
}

/// A frame to read from, wherever it is.
#[derive(Debug)]
pub enum Source<'a> {
    /// In host memory.
    Host(Frame<'a>),
    /// In the memory of the device that is to blur it.
    Device(DeviceFrame),
}

/// A frame to write to, wherever it is.
#[derive(Debug)]
pub enum Target<'a> {
    /// In host memory.
    Host(FrameMut<'a>),
    /// In the memory of the device that is to blur it.
    Device(DeviceFrame),
}

/// What there is of a plane: its shape, pitch and bytes.
type Extent = (PlaneLayout, usize, usize);

impl DeviceFrame {
    fn extents(&self) -> Vec<Extent> {
        self.planes.iter().map(|plane| (plane.layout, plane.pitch, plane.data.len)).collect()
    }

    /// Address and pitch of every plane.
    pub fn places(&self) -> Vec<(u64, usize)> {
        self.planes.iter().map(|plane| (plane.data.address, plane.pitch)).collect()
    }
}

impl Source<'_> {
    fn extents(&self) -> Vec<Extent> {
        match self {
            Self::Host(frame) => frame.iter().map(|plane| (plane.layout, plane.pitch, plane.data.len())).collect(),
            Self::Device(frame) => frame.extents(),
        }
    }

    /// The planes' shapes.
    pub fn layouts(&self) -> Vec<PlaneLayout> {
        self.extents().into_iter().map(|(layout, ..)| layout).collect()
    }

    /// The frame, if it is on the device.
    pub fn on_device(&self) -> Option<&DeviceFrame> {
        if let Self::Device(frame) = self { Some(frame) } else { None }
    }
}

impl Target<'_> {
    fn extents(&self) -> Vec<Extent> {
        match self {
            Self::Host(frame) => frame.iter().map(|plane| (plane.layout, plane.pitch, plane.data.len())).collect(),
            Self::Device(frame) => frame.extents(),
        }
    }

    /// The frame, if it is on the device.
    pub fn on_device(&self) -> Option<&DeviceFrame> {
        if let Self::Device(frame) = self { Some(frame) } else { None }
    }
}

/// Checks all that an engine relies on: shapes in range and alike, pitches and lengths that hold every row.
pub fn validate(src: &Source, dst: &Target) -> Result<(), FrameError> {
    let (src, dst) = (src.extents(), dst.extents());
    if src.is_empty() {
        return Err(FrameError::Empty);
    }
    for (layout, ..) in &src {
        layout.check()?;
    }
    if src.len() != dst.len() || src.iter().zip(&dst).any(|((src, ..), (dst, ..))| src != dst) {
        return Err(FrameError::Mismatch);
    }
    for (index, (src, dst)) in src.iter().zip(&dst).enumerate() {
        for (side, (layout, pitch, len)) in [(Side::Input, src), (Side::Output, dst)] {
            holds_rows(side, index, layout, *pitch, *len)?;
        }
    }
    Ok(())
}

fn holds_rows(side: Side, plane: usize, layout: &PlaneLayout, pitch: usize, len: usize) -> Result<(), FrameError> {
    let PlaneLayout { width, height, .. } = *layout;
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

/// A rectangle of a plane: `x` and `width` in samples, `y` and `height` in rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "the line above says what the four are")]
pub struct Region {
    pub x: usize,
    pub y: usize,
    pub width: usize,
    pub height: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    const LAYOUT: PlaneLayout = PlaneLayout::new(10, 4, 3, 8);

    fn check(layout: PlaneLayout, pitch: usize, len: usize) -> Result<(), FrameError> {
        let (src, mut dst) = (vec![0; len], vec![0; len]);
        let src = vec![Plane { layout, pitch, data: &src[..] }];
        let dst = vec![Plane { layout, pitch, data: &mut dst[..] }];
        validate(&Source::Host(src), &Target::Host(dst))
    }

    #[test]
    fn the_last_row_may_end_with_its_last_sample() {
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
    fn shapes_out_of_range_are_refused() {
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
            PlaneLayout { pixels: Pixels::High, ..LAYOUT },
            PlaneLayout { pixels: Pixels::Ten, ..LAYOUT },
            PlaneLayout { pixels: Pixels::Yuv422 { luma: 0 }, ..LAYOUT },
            PlaneLayout { sigma_scale: [0.0, 1.0], ..LAYOUT },
            PlaneLayout { sigma_scale: [1.0, 2.0], ..LAYOUT },
            PlaneLayout { sigma_scale: [f64::NAN, 1.0], ..LAYOUT },
        ] {
            assert!(matches!(check(layout, 1 << 10, 1 << 12), Err(FrameError::Samples { .. })), "{layout:?}");
        }
    }

    #[test]
    fn fields_take_the_rows_in_turn() {
        let fields: Vec<_> = PlaneLayout { interlaced: true, height: 5, ..LAYOUT }.fields().collect();
        assert_eq!(
            fields.iter().map(|field| (field.first_row, field.layout.height)).collect::<Vec<_>>(),
            [(0, 3), (1, 2)]
        );
        assert!(fields.iter().all(|field| field.step == 2 && field.layout.sigma_scale == [1.0, 0.5]));
        assert_eq!(PlaneLayout { interlaced: true, height: 1, ..LAYOUT }.fields().count(), 1);
        assert_eq!(LAYOUT.fields().collect::<Vec<_>>(), [Field { layout: LAYOUT, first_row: 0, step: 1 }]);
    }

    #[test]
    fn packed_pixels_take_their_bytes() {
        let pairs = PlaneLayout { pixels: Pixels::Yuv422 { luma: 0 }, ..PlaneLayout::new(7, 2, 4, 8) };
        assert_eq!((pairs.row_samples(), pairs.row_bytes()), (16, 16));
        let words = PlaneLayout { pixels: Pixels::Ten, ..PlaneLayout::new(7, 2, 4, 10) };
        assert_eq!((words.row_samples(), words.row_bytes()), (28, 28));
    }

    #[test]
    fn input_and_output_have_one_shape() {
        let (src, mut dst) = (vec![0; 120], vec![0; 120]);
        let wider = PlaneLayout { width: 9, ..LAYOUT };
        let src = vec![Plane { layout: LAYOUT, pitch: 30, data: &src[..] }];
        let dst = vec![Plane { layout: wider, pitch: 30, data: &mut dst[..] }];
        let (src, dst) = (Source::Host(src), Target::Host(dst));
        assert_eq!(validate(&src, &dst), Err(FrameError::Mismatch));
        assert_eq!(validate(&src, &Target::Host(Vec::new())), Err(FrameError::Mismatch));
        assert_eq!(validate(&Source::Host(Vec::new()), &Target::Host(Vec::new())), Err(FrameError::Empty));
    }
}
