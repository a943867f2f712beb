// SPDX-License-Identifier: MPL-2.0
//! What is launched: the kernels' parameters, and which kernels with which grids make some rows of some planes. Pure; calls
//! no driver. The formulas are those of kernels/shared.h.
//!
//! Planes of a frame that suit each other go in one launch, a [`Group`]: small ones would leave most of a device idle. A
//! kernel of another tile shape is a new [`Kernel`], a new arm of [`Group::launches`] and a new entry point; nothing
//! above this room knows what a launch is made of.

use std::ops::Range;

use super::alpha::AlphaArgs;
use crate::filter::{KERNEL_SIZE_MAX, Taps};
use crate::frame::{Pixels, PlaneLayout};
use crate::plan::PlaneTaps;

pub(super) mod geometry {
    include!(concat!(env!("OUT_DIR"), "/kernel_geometry.rs"));
}
use geometry::*;

/// One plane of a launch, as kernels/shared.h has it. Addresses are the device's.
#[repr(C)]
#[derive(Debug, Clone, Copy, Default)]
#[expect(missing_docs, reason = "kernels/shared.h explains them")]
pub struct BlurPlane {
    pub src: u64,
    pub dst: u64,
    pub scratch: u64,
    pub src_pitch: u64,
    pub dst_pitch: u64,
    pub scratch_pitch: u64,
    pub width: u32,
    pub height: u32,
    pub channels: u32,
    pub depth: u32,
    pub low: u32,
    pub luma: u32,
    pub kind: u32,
    pub row_begin: u32,
    pub row_end: u32,
    pub first_block: u32,
    pub strips: u32,
    pub ten: u32,
}

/// The parameter of every kernel that blurs.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "kernels/shared.h explains them")]
pub struct BlurArgs {
    pub planes: [BlurPlane; PLANES as usize],
    pub segment_rows: u32,
    pub reserved: [u32; 3],
    pub radius: [[u32; 2]; KINDS as usize],
    pub taps: [[[u16; TAPS as usize]; 2]; KINDS as usize],
}

const _: () = assert!(size_of::<BlurArgs>() == ARGS_BYTES as usize, "kernels/shared.h has another BlurArgs");
const _: () = assert!(2 * RADIUS_MAX + 1 == KERNEL_SIZE_MAX, "the kernels go as far as the filter");

/// What the kernels are made for: how pixels lie in memory, and how many samples they have.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[expect(missing_docs, reason = "bytes per sample and channels; the rest is in kernels/pixels.h")]
pub enum Family {
    U8C12,
    U8C3,
    U8C4,
    U16C12,
    U16C3,
    U16C4,
    Yuv422,
    Ten,
}

impl Family {
    /// All of them.
    pub const ALL: [Self; 8] =
        [Self::U8C12, Self::U8C3, Self::U8C4, Self::U16C12, Self::U16C3, Self::U16C4, Self::Yuv422, Self::Ten];

    /// Of a plane.
    pub fn of(layout: &PlaneLayout) -> Self {
        match (layout.pixels, layout.sample_bytes(), layout.channels) {
            (Pixels::Yuv422 { .. }, ..) => Self::Yuv422,
            (Pixels::Ten, ..) => Self::Ten,
            (_, 1, 1 | 2) => Self::U8C12,
            (_, 1, 3) => Self::U8C3,
            (_, 1, _) => Self::U8C4,
            (_, _, 1 | 2) => Self::U16C12,
            (_, _, 3) => Self::U16C3,
            _ => Self::U16C4,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::U8C12 => "u8_c12",
            Self::U8C3 => "u8_c3",
            Self::U8C4 => "u8_c4",
            Self::U16C12 => "u16_c12",
            Self::U16C3 => "u16_c3",
            Self::U16C4 => "u16_c4",
            Self::Yuv422 => "yuv422",
            Self::Ten => "ten",
        }
    }
}

/// The kernels.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kernel {
    /// Rows and columns in one launch.
    Fused(Family),
    /// Rows into the scratch.
    Rows(Family),
    /// Columns out of the scratch.
    Columns,
    /// [`Kernel::Fused`], compiled for the radii of the group.
    Special,
    /// Colour times alpha, before the blur.
    Multiply,
    /// Blurred colour by blurred alpha, and what is kept of the source, after it.
    Finish,
}

impl Kernel {
    /// Those that the prebuilt images hold, each at its [`Kernel::index`].
    pub fn prebuilt() -> impl Iterator<Item = Self> {
        let families = Family::ALL.map(Self::Fused).into_iter().chain(Family::ALL.map(Self::Rows));
        families.chain([Self::Columns, Self::Multiply, Self::Finish])
    }

    /// The place of a prebuilt kernel among all.
    pub fn index(self) -> usize {
        let families = Family::ALL.len();
        match self {
            Self::Fused(family) => family as usize,
            Self::Rows(family) => families + family as usize,
            Self::Columns => 2 * families,
            Self::Multiply => 2 * families + 1,
            Self::Finish => 2 * families + 2,
            Self::Special => unreachable!("a special kernel is in an image of its own"),
        }
    }

    /// The name of the kernel in the image.
    pub fn entry_point(self) -> String {
        match self {
            Self::Fused(family) => format!("blur_fused_{}", family.name()),
            Self::Rows(family) => format!("blur_rows_{}", family.name()),
            Self::Columns => "blur_columns".to_owned(),
            Self::Special => "blur_special".to_owned(),
            Self::Multiply => "blur_multiply".to_owned(),
            Self::Finish => "blur_finish".to_owned(),
        }
    }
}

/// In how many launches planes are blurred.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Passes {
    /// Whatever measured fastest.
    #[default]
    Best,
    /// Rows and columns together, the intermediate in shared memory, wherever that is large enough.
    Fused,
    /// Rows, then columns, with a scratch plane between them.
    Split,
    /// As [`Passes::Fused`], by a kernel that is compiled for these radii.
    Special,
}

/// What of a device decides over launches.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Number of multiprocessors.
    pub multiprocessors: u32,
    /// Largest dynamic shared memory of a block, in bytes.
    pub shared_bytes: u32,
}

/// A kernel's parameter.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the names say it")]
#[expect(clippy::large_enum_variant, reason = "nearly all are the large one, and few are alive at a time")]
pub enum Args {
    Blur(BlurArgs),
    Alpha(AlphaArgs),
}

/// One launch: a kernel, its number of blocks, threads per block, dynamic shared memory per block in bytes, and its
/// parameter.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the line above says what they are")]
pub struct Launch {
    pub kernel: Kernel,
    pub blocks: u32,
    pub threads: u32,
    pub shared_bytes: u32,
    pub args: Args,
}

/// The blur of some rows of a plane in device memory.
#[derive(Debug, Clone)]
pub struct PlaneBlur<'a> {
    /// The plane's shape; not interlaced.
    pub layout: PlaneLayout,
    /// Address and row pitch in bytes of the source.
    pub src: (u64, usize),
    /// Address and row pitch in bytes of the destination; it must not overlap the source.
    pub dst: (u64, usize),
    /// Its taps.
    pub taps: &'a PlaneTaps,
    /// The rows to make, at least one.
    pub rows: Range<u32>,
}

/// What planes of a group have in common: the samples of a pixel, and the taps.
pub type Kind<'a> = (u8, &'a PlaneTaps);

/// Planes that are blurred by the same launches.
#[derive(Debug, Clone)]
pub struct Group<'a> {
    family: Family,
    planes: Vec<PlaneBlur<'a>>,
    kinds: Vec<Kind<'a>>,
}

/// Beyond this radius down the columns two launches are faster than one: the ring of the fused kernel takes so much
/// shared memory that too few blocks are at work. On an H200 the two cross between 15 and 24, by format and size.
const FUSED_RADIUS: u32 = 15;

/// Puts planes into groups, in order.
pub fn groups<'a>(planes: impl IntoIterator<Item = PlaneBlur<'a>>) -> Vec<Group<'a>> {
    let mut groups: Vec<Group> = Vec::new();
    for plane in planes {
        debug_assert!(plane.rows.start < plane.rows.end && plane.rows.end <= plane.layout.height);
        let (family, kind) = (Family::of(&plane.layout), (plane.layout.channels, plane.taps));
        // Formats have several planes of these alone; the other kernels are faster for knowing that they have one.
        let most = if matches!(family, Family::U8C12 | Family::U16C12) { PLANES as usize } else { 1 };
        let joins = |group: &&mut Group| {
            group.family == family
                && group.planes.len() < most
                && (group.kinds.contains(&kind) || group.kinds.len() < KINDS as usize)
        };
        match groups.last_mut().filter(joins) {
            Some(group) => {
                if !group.kinds.contains(&kind) {
                    group.kinds.push(kind);
                }
                group.planes.push(plane);
            }
            None => groups.push(Group { family, planes: vec![plane], kinds: vec![kind] }),
        }
    }
    groups
}

fn strip_pixels(channels: u8) -> u32 {
    match channels {
        1 => STRIP_PIXELS_C1,
        2 => STRIP_PIXELS_C2,
        3 => STRIP_PIXELS_C3,
        _ => STRIP_PIXELS_C4,
    }
}

fn strips(layout: &PlaneLayout) -> u32 {
    (layout.row_pixels() as u32).div_ceil(strip_pixels(layout.channels))
}

fn scratch_pitch(layout: &PlaneLayout) -> u64 {
    u64::from(strips(layout) * strip_pixels(layout.channels)) * u64::from(layout.channels) * 2
}

fn plane_scratch_bytes(layout: &PlaneLayout) -> usize {
    scratch_pitch(layout) as usize * layout.height as usize
}

/// Radii along rows, down columns, and along rows of the chroma of packed 4:2:2.
fn radii(taps: &PlaneTaps) -> [u32; 3] {
    [&taps.rows, &taps.columns, &taps.chroma_rows].map(|taps| taps.radius() as u32)
}

/// Shared memory of the expanded row taps, and of one staged row.
fn row_bytes(layout: &PlaneLayout, taps: &PlaneTaps) -> (u32, u32) {
    let [rows, _, chroma] = radii(taps);
    let row_taps = |radius: u32| 16 * (radius.next_multiple_of(4) / 2 + 1);
    let (reach, row_taps) = match layout.pixels {
        Pixels::Yuv422 { .. } => (rows.div_ceil(2).max(chroma), row_taps(rows) + row_taps(chroma)),
        _ => (rows, row_taps(rows)),
    };
    let groups = (strip_pixels(layout.channels) + 2 * reach.next_multiple_of(4)) / 4;
    let words = (u32::from(layout.channels) * groups + 15) / 32 * 32 + 16;
    (row_taps, words * 4 * layout.sample_bytes() as u32)
}

fn fused_shared_bytes(layout: &PlaneLayout, taps: &PlaneTaps) -> u32 {
    let (row_taps, stage) = row_bytes(layout, taps);
    let [_, down, _] = radii(taps);
    let ring_rows = (2 * down).next_multiple_of(FUSED_STEP) + FUSED_STEP;
    let ring = ring_rows * strip_pixels(layout.channels) * u32::from(layout.channels) * 2;
    let column_taps = 4 * (FUSED_THREAD_ROWS + (2 * down + FUSED_THREAD_ROWS).next_multiple_of(4));
    ring + row_taps + column_taps + FUSED_STEP * stage
}

fn columns_shared_bytes(taps: &PlaneTaps) -> u32 {
    let [_, down, _] = radii(taps);
    let chunks = 2 * COLUMNS_CHUNK * COLUMNS_STRIP_SAMPLES * 2;
    chunks + 4 * (COLUMNS_THREAD_ROWS + (2 * down + COLUMNS_THREAD_ROWS).next_multiple_of(COLUMNS_CHUNK))
}

/// Taps as the kernels take them. A lone tap of 65536 becomes 0; the kernels know it by its radius.
fn packed(taps: &Taps) -> [u16; TAPS as usize] {
    std::array::from_fn(|i| taps.at(i) as u16)
}

impl<'a> Group<'a> {
    /// What its pixels are.
    pub fn family(&self) -> Family {
        self.family
    }

    /// The kinds of its planes, of which there are one or two.
    pub fn kinds(&self) -> &[Kind<'a>] {
        &self.kinds
    }

    /// Its planes.
    pub fn planes(&self) -> &[PlaneBlur<'a>] {
        &self.planes
    }

    /// The most shared memory that any of its planes takes.
    fn shared_bytes(&self, of: impl Fn(&PlaneLayout, &PlaneTaps) -> u32) -> u32 {
        self.planes.iter().map(|plane| of(&plane.layout, plane.taps)).max().unwrap_or(0)
    }

    /// Whether the device has the shared memory for a fused kernel.
    pub fn fits_fused(&self, limits: Limits) -> bool {
        self.shared_bytes(fused_shared_bytes) <= limits.shared_bytes
    }

    fn is_fused(&self, passes: Passes, limits: Limits) -> bool {
        let small = || self.kinds.iter().all(|(_, taps)| radii(taps)[1] <= FUSED_RADIUS);
        match passes {
            Passes::Best => small() && self.fits_fused(limits),
            Passes::Fused | Passes::Special => self.fits_fused(limits),
            Passes::Split => false,
        }
    }

    /// Device memory that its blur needs beside the planes, in bytes; 0 if none.
    pub fn scratch_bytes(&self, passes: Passes, limits: Limits) -> usize {
        if self.is_fused(passes, limits) {
            return 0;
        }
        self.planes.iter().map(|plane| plane_scratch_bytes(&plane.layout)).sum()
    }

    /// The launches, in order, that make the rows of its planes. `scratch` is [`Group::scratch_bytes`] of device memory,
    /// starting on 16 bytes; not looked at where that is 0.
    pub fn launches(&self, scratch: u64, passes: Passes, limits: Limits) -> Vec<Launch> {
        let threads = |kernel: Kernel| match kernel {
            Kernel::Rows(_) => ROWS_THREADS,
            Kernel::Columns => COLUMNS_THREADS,
            _ => FUSED_THREADS,
        };
        let launch = |kernel: Kernel, segment_rows: u32, shared_bytes: u32| {
            let (args, blocks) = self.args(kernel, segment_rows, scratch);
            Launch { kernel, blocks, threads: threads(kernel), shared_bytes, args: Args::Blur(args) }
        };
        if self.is_fused(passes, limits) {
            let kernel = if passes == Passes::Special { Kernel::Special } else { Kernel::Fused(self.family) };
            return vec![launch(kernel, self.segment_rows(limits), self.shared_bytes(fused_shared_bytes))];
        }
        let rows_shared = self.shared_bytes(|layout, taps| {
            let (row_taps, stage) = row_bytes(layout, taps);
            row_taps + ROWS_STEP * stage
        });
        let rows = launch(Kernel::Rows(self.family), 0, rows_shared);
        vec![rows, launch(Kernel::Columns, 0, self.shared_bytes(|_, taps| columns_shared_bytes(taps)))]
    }

    /// The parameter of one of its launches, and the number of blocks.
    fn args(&self, kernel: Kernel, segment_rows: u32, mut scratch: u64) -> (BlurArgs, u32) {
        let unused = BlurPlane { first_block: u32::MAX, ..BlurPlane::default() };
        let mut args = BlurArgs {
            planes: [unused; PLANES as usize],
            segment_rows,
            reserved: [0; 3],
            radius: [[0; 2]; KINDS as usize],
            taps: [[[0; TAPS as usize]; 2]; KINDS as usize],
        };
        let chroma = self.family == Family::Yuv422;
        let kinds = self.kinds.iter().map(|(_, taps)| [&taps.rows, &taps.columns]);
        let kinds =
            kinds.chain(self.kinds.iter().filter(|_| chroma).map(|(_, taps)| [&taps.chroma_rows, &taps.columns]));
        for ((radius, packed_taps), taps) in args.radius.iter_mut().zip(&mut args.taps).zip(kinds) {
            *radius = taps.map(|taps| taps.radius() as u32);
            *packed_taps = taps.map(packed);
        }

        let mut blocks = 0;
        for (to, plane) in args.planes.iter_mut().zip(&self.planes) {
            let PlaneBlur { layout, src, dst, taps, rows } = plane;
            let kind = self.kinds.iter().position(|kind| *kind == (layout.channels, *taps));
            let (mut begin, mut end, mut strips) = (rows.start, rows.end, strips(layout));
            let step = match kernel {
                Kernel::Rows(_) => {
                    // What the columns of these rows reach.
                    let [_, down, _] = radii(taps);
                    (begin, end) = (begin.saturating_sub(down), layout.height.min(end + down));
                    ROWS_STEP
                }
                Kernel::Columns => {
                    strips = (layout.row_samples() as u32).div_ceil(COLUMNS_STRIP_SAMPLES);
                    COLUMNS_STEP
                }
                _ => segment_rows,
            };
            let luma = match layout.pixels {
                Pixels::Yuv422 { luma } => u32::from(luma) | (layout.width % 2) << 1,
                _ => 0,
            };
            *to = BlurPlane {
                src: src.0,
                dst: dst.0,
                scratch,
                src_pitch: src.1 as u64,
                dst_pitch: dst.1 as u64,
                scratch_pitch: scratch_pitch(layout),
                width: layout.row_pixels() as u32,
                height: layout.height,
                channels: layout.channels.into(),
                depth: layout.depth.into(),
                low: layout.low_bit().into(),
                luma,
                kind: kind.expect("every plane is of a kind of its group") as u32,
                row_begin: begin,
                row_end: end,
                first_block: blocks,
                strips,
                ten: u32::from(layout.pixels == Pixels::Ten),
            };
            blocks += strips * (end - begin).div_ceil(step);
            scratch += plane_scratch_bytes(layout) as u64;
        }
        (args, blocks)
    }

    /// Output rows of one block of the fused kernel: so many that the device has about four blocks to a multiprocessor.
    /// More rows save work that neighbouring blocks do twice, but leave the last wave of blocks nearly empty.
    fn segment_rows(&self, limits: Limits) -> u32 {
        let rows = self.planes.iter().map(|plane| (plane.rows.end - plane.rows.start) * strips(&plane.layout));
        let even = f64::from(rows.sum::<u32>()) / f64::from(4 * limits.multiprocessors.max(1));
        let steps = (even / f64::from(FUSED_STEP)).round() as u32;
        steps.clamp(1, 6) * FUSED_STEP
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::filter::BlurParams;
    use crate::plan;

    const H200: Limits = Limits { multiprocessors: 132, shared_bytes: 227 << 10 };
    const TURING: Limits = Limits { multiprocessors: 30, shared_bytes: 64 << 10 };

    fn layout(channels: u8, depth: u8) -> PlaneLayout {
        PlaneLayout::new(1920, 1080, channels, depth)
    }

    fn taps(size: u32, layout: PlaneLayout) -> PlaneTaps {
        let params = BlurParams::new((f64::from(size) / 6.0).min(100.0), size).unwrap();
        plan::jobs(params.into(), &[layout]).remove(0).taps.unwrap()
    }

    fn blur(layout: PlaneLayout, taps: &PlaneTaps) -> PlaneBlur<'_> {
        PlaneBlur { layout, src: (0, 1 << 20), dst: (0, 1 << 20), taps, rows: 0..layout.height }
    }

    fn group(plane: PlaneBlur<'_>) -> Group<'_> {
        groups([plane]).remove(0)
    }

    fn plane(launch: &Launch) -> BlurPlane {
        match launch.args {
            Args::Blur(args) => args.planes[0],
            Args::Alpha(_) => unreachable!("a blur"),
        }
    }

    /// Every kind of pixels.
    fn layouts() -> Vec<PlaneLayout> {
        let mut layouts: Vec<_> = (1..=4).flat_map(|channels| [layout(channels, 8), layout(channels, 16)]).collect();
        layouts.push(PlaneLayout { pixels: Pixels::Ten, ..layout(4, 10) });
        layouts.push(PlaneLayout { pixels: Pixels::Yuv422 { luma: 0 }, ..layout(4, 8) });
        layouts
    }

    /// From Turing on a block may have 64 KiB of shared memory; every radius has to do with that.
    #[test]
    fn every_radius_fits_into_the_shared_memory_of_turing() {
        for size in (1..=801).step_by(8) {
            for layout in layouts() {
                let taps = taps(size, layout);
                for passes in [Passes::Best, Passes::Fused, Passes::Split] {
                    for launch in group(blur(layout, &taps)).launches(0, passes, TURING) {
                        let bytes = launch.shared_bytes;
                        assert!(bytes <= TURING.shared_bytes, "{layout:?} {size}: {:?} {bytes}", launch.kernel);
                    }
                }
            }
        }
    }

    #[test]
    fn small_radii_take_one_launch_and_no_scratch() {
        for (size, count) in [(1, 1), (7, 1), (31, 1), (33, 2), (801, 2)] {
            let taps = taps(size, layout(4, 8));
            let group = group(blur(layout(4, 8), &taps));
            assert_eq!(group.launches(0, Passes::Best, H200).len(), count, "kernel-size={size}");
            assert_eq!(group.scratch_bytes(Passes::Best, H200) > 0, count == 2, "kernel-size={size}");
        }
    }

    #[test]
    fn the_rows_pass_makes_what_a_band_reaches() {
        let taps = taps(101, layout(1, 8));
        let band = PlaneBlur { rows: 500..600, ..blur(layout(1, 8), &taps) };
        let [rows, columns] = group(band).launches(0, Passes::Split, H200)[..] else { panic!("two launches") };
        let [rows, columns] = [plane(&rows), plane(&columns)];
        let radius = taps.columns.radius() as u32;
        assert_eq!([rows.row_begin, rows.row_end], [500 - radius, 600 + radius]);
        assert_eq!([columns.row_begin, columns.row_end], [500, 600]);
    }

    #[test]
    fn planes_that_suit_each_other_share_a_launch() {
        let (luma, chroma) = (layout(1, 8), PlaneLayout { sigma_scale: [0.5; 2], ..layout(2, 8) });
        let [wide, narrow, none] = [taps(31, luma), taps(31, chroma), PlaneTaps { ..taps(1, luma) }];
        let of = |planes: &[(PlaneLayout, &PlaneTaps)]| -> Vec<usize> {
            let planes: Vec<_> = planes.iter().map(|(layout, taps)| blur(*layout, taps)).collect();
            groups(planes).iter().map(|group| group.planes.len()).collect()
        };
        assert_eq!(of(&[(luma, &wide), (chroma, &narrow)]), [2]);
        let planar = PlaneLayout { channels: 1, ..chroma };
        assert_eq!(of(&[(luma, &wide), (planar, &narrow), (planar, &narrow), (luma, &wide)]), [4]);
        // A third pair of radii, other samples, a fifth plane.
        assert_eq!(of(&[(luma, &wide), (planar, &narrow), (luma, &none)]), [2, 1]);
        assert_eq!(of(&[(luma, &wide), (layout(1, 16), &wide)]), [1, 1]);
        assert_eq!(of(&[(luma, &wide); 5]), [4, 1]);
        // The same radii with other numbers of channels are of two kinds.
        let both = groups([blur(luma, &wide), blur(layout(2, 8), &wide)]);
        assert_eq!((both.len(), both[0].kinds().len()), (1, 2));
    }

    #[test]
    fn blocks_of_planes_follow_each_other() {
        let (luma, chroma) = (layout(1, 8), PlaneLayout { width: 960, height: 540, ..layout(2, 8) });
        let taps = taps(7, luma);
        let all = groups([blur(luma, &taps), blur(chroma, &taps)]).remove(0);
        for passes in [Passes::Fused, Passes::Split] {
            for launch in all.launches(0, passes, H200) {
                let Args::Blur(args) = launch.args else { unreachable!("a blur") };
                let firsts = args.planes.map(|plane| plane.first_block);
                assert!(firsts[0] == 0 && firsts[1] > 0 && firsts[1] < launch.blocks, "{firsts:?}");
                assert_eq!(firsts[2..], [u32::MAX; 2]);
            }
        }
    }
}
