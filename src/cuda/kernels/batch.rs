// SPDX-License-Identifier: MPL-2.0
//! The planes that one launch blurs, and the launches for them.
//!
//! Planes of a frame that suit each other share a launch, because a small plane leaves most of a device idle.

use super::abi::*;
use super::geometry::{self, radii};
use crate::cuda::driver::LaunchConfig;
use crate::cuda::driver::device::DeviceLimits;
use crate::filter::Taps;
use crate::filter::frame::{PlaneLayout, SampleLayout};
use crate::filter::operation::PlaneTaps;
use crate::filter::plane::DevicePlane;
use crate::filter::regions::Rect;

/// The blur of a rectangle of a plane in device memory.
#[derive(Debug, Clone)]
pub struct PlaneBlur<'a> {
    /// The plane's layout; not interlaced.
    pub layout: PlaneLayout,
    /// Where the rows that are read are.
    pub source: DevicePlane,
    /// Where the rows that are written are. Must not overlap the source.
    pub destination: DevicePlane,
    /// Its taps.
    pub taps: &'a PlaneTaps,
    /// What is written, in pixels of the plane.
    pub rect: Rect,
    /// Which kernels the device's images have.
    pub kernel_set: KernelSet,
    /// The channel that colour is multiplied by before the blur, and divided by after it. Only of blurs that suit tensor cores.
    pub alpha: Option<u8>,
}

impl PlaneBlur<'_> {
    /// The family of its pixels.
    pub fn family(&self) -> PixelFamily {
        PixelFamily::for_tensor_cores(&self.layout, self.alpha)
    }

    /// Whether there is a tensor-core kernel for it: the images have them for its family, and the radii are from 1 to
    /// [`TENSOR_RADIUS_MAX`]. A single tap of 65536, of radius 0, has more than two bytes.
    pub fn suits_tensor_cores(&self) -> bool {
        let family = self.family();
        self.kernel_set == KernelSet::TensorCores
            && PixelFamily::DIRECT.contains(&family)
            && geometry::largest_radius(family, self.taps).is_some_and(|radius| radius <= TENSOR_RADIUS_MAX)
    }
}

/// What the kernels keep once for several planes of a launch: the number of channels and the taps.
pub type FilterSlot<'a> = (u8, &'a PlaneTaps);

/// Planes that the same launches blur.
#[derive(Debug, Clone)]
pub struct BlurBatch<'a> {
    family: PixelFamily,
    planes: Vec<PlaneBlur<'a>>,
    slots: Vec<FilterSlot<'a>>,
}

/// Divides planes into batches, in order.
pub fn batches<'a>(planes: impl IntoIterator<Item = PlaneBlur<'a>>) -> Vec<BlurBatch<'a>> {
    let mut batches: Vec<BlurBatch> = Vec::new();
    for plane in planes {
        let (family, slot) = (plane.family(), (plane.layout.channels, plane.taps));
        let joins = |batch: &&mut BlurBatch| {
            batch.family == family
                && batch.kernel_set() == plane.kernel_set
                // A plane without a tensor-core kernel would take its batch off the tensor cores.
                && batch.planes[0].suits_tensor_cores() == plane.suits_tensor_cores()
                && batch.planes.len() < family.most_planes()
                && (batch.slots.contains(&slot) || batch.slots.len() < FILTER_SLOTS as usize)
        };
        match batches.last_mut().filter(joins) {
            Some(batch) => {
                if !batch.slots.contains(&slot) {
                    batch.slots.push(slot);
                }
                batch.planes.push(plane);
            }
            None => batches.push(BlurBatch { family, planes: vec![plane], slots: vec![slot] }),
        }
    }
    batches
}

/// Taps as the kernels take them, modulo 65536. A single tap of 65536 becomes 0; the kernels know it by its radius.
fn packed(taps: &Taps) -> [u16; TAPS as usize] {
    let mut packed = [0; TAPS as usize];
    packed.iter_mut().zip(0..=taps.radius()).for_each(|(to, i)| *to = taps.at(i) as u16);
    packed
}

impl<'a> BlurBatch<'a> {
    /// The family of its pixels.
    pub fn family(&self) -> PixelFamily {
        self.family
    }

    /// Its filter slots, one or two.
    pub fn slots(&self) -> &[FilterSlot<'a>] {
        &self.slots
    }

    /// Its planes.
    pub fn planes(&self) -> &[PlaneBlur<'a>] {
        &self.planes
    }

    /// Which kernels the device's images have.
    pub fn kernel_set(&self) -> KernelSet {
        self.planes[0].kernel_set
    }

    /// Whether its kernels premultiply and unpremultiply, which only those for tensor cores do.
    pub fn premultiplies(&self) -> bool {
        self.planes[0].alpha.is_some()
    }

    /// Bytes per sample.
    pub fn sample_bytes(&self) -> usize {
        self.planes[0].layout.sample_bytes()
    }

    /// The radii of its filter slots, see [`radii`].
    pub fn radii(&self) -> impl Iterator<Item = [u32; 3]> {
        self.slots.iter().map(|(_, taps)| radii(taps))
    }

    /// The largest shared memory of a block that any of its planes needs, in bytes.
    fn shared_bytes(&self, kernel: Kernel) -> u32 {
        let of_plane = |plane: &PlaneBlur| geometry::shared_bytes(kernel, &plane.layout, plane.taps);
        self.planes.iter().map(of_plane).max().unwrap_or(0)
    }

    /// Whether there can be a fused kernel, prebuilt or specialised, and the device has enough shared memory for it.
    pub fn has_fused(&self, limits: DeviceLimits) -> bool {
        self.kernel_set() == KernelSet::CudaCores
            && self.shared_bytes(Kernel::Fused(self.family)) <= limits.shared_bytes
    }

    /// Device memory for the intermediate of its planes between the rows and the columns kernel, in bytes.
    pub(super) fn intermediate_bytes(&self) -> usize {
        self.planes.iter().map(|plane| geometry::intermediate_bytes(&plane.layout, plane.rect)).sum()
    }

    /// The launch of one of its kernels. `intermediate` is the address of [`BlurBatch::intermediate_bytes`] of device memory,
    /// aligned to 16 bytes, for the kernels that use it.
    pub(super) fn launch(&self, kernel: Kernel, intermediate: u64, limits: DeviceLimits) -> Launch {
        let shared_bytes = self.shared_bytes(kernel);
        let rows_and_strips = |plane: &PlaneBlur| (plane.rect.height(), geometry::strips(&plane.layout, plane.rect));
        let segment_rows = match kernel {
            Kernel::Rows(_) | Kernel::Columns => 0,
            _ => geometry::segment_rows(self.planes.iter().map(rows_and_strips), limits),
        };
        let (args, blocks) = self.args(kernel, segment_rows, intermediate);
        Launch {
            kernel,
            grid: LaunchConfig { blocks, threads: kernel.threads(), shared_bytes },
            args: Args::Blur(args),
        }
    }

    /// The parameter of a launch, and its number of blocks.
    fn args(&self, kernel: Kernel, segment_rows: u32, mut workspace: u64) -> (BlurArgs, u32) {
        let unused = BlurPlane { first_block: u32::MAX, ..BlurPlane::default() };
        let mut args = BlurArgs {
            planes: [unused; PLANES as usize],
            segment_rows,
            reserved: [0; 3],
            radius: [[0; 2]; FILTER_SLOTS as usize],
            taps: [[[0; TAPS as usize]; 2]; FILTER_SLOTS as usize],
        };
        let slots = self.slots.iter().map(|(_, taps)| [&taps.rows, &taps.columns]);
        // Packed 4:2:2 has one plane, and the second slot for its chroma.
        let is_yuv422 = self.family == PixelFamily::Yuv422;
        let chroma = self.slots.iter().filter(|_| is_yuv422).map(|(_, taps)| [&taps.chroma_rows, &taps.columns]);
        for ((radius, packed_taps), taps) in args.radius.iter_mut().zip(&mut args.taps).zip(slots.chain(chroma)) {
            *radius = taps.map(|taps| taps.radius() as u32);
            *packed_taps = taps.map(packed);
        }

        let mut blocks = 0;
        for (to, plane) in args.planes.iter_mut().zip(&self.planes) {
            let PlaneBlur { layout, source, destination, taps, rect, .. } = plane;
            let slot = self.slots.iter().position(|slot| *slot == (layout.channels, *taps));
            let (columns, mut strips) = (layout.columns(*rect), geometry::strips(layout, *rect));
            let (mut begin, mut end) = (rect.y(), rect.bottom());
            let step = match kernel {
                Kernel::Rows(_) => {
                    // The halo that the columns of these rows read.
                    let [_, halo, _] = radii(taps);
                    (begin, end) = (begin.saturating_sub(halo), layout.height.min(end + halo));
                    ROWS_STEP
                }
                Kernel::Columns => {
                    strips = geometry::column_strips(layout, *rect);
                    COLUMNS_STEP
                }
                _ => segment_rows,
            };
            *to = BlurPlane {
                src: source.address,
                dst: destination.address,
                workspace,
                src_pitch: source.pitch as u64,
                dst_pitch: destination.pitch as u64,
                workspace_pitch: geometry::intermediate_pitch(layout, *rect),
                width: layout.row_pixels() as u32,
                height: layout.height,
                channels: layout.channels.into(),
                depth: layout.depth.into(),
                shift: layout.shift().into(),
                yuv422: geometry::yuv422_bits(layout),
                slot: slot.expect("every plane has a filter slot of its batch") as u32,
                row_begin: begin,
                row_end: end,
                column_begin: columns.start,
                column_end: columns.end,
                first_block: blocks,
                strips,
                packed1010102: u32::from(layout.sample_layout == SampleLayout::Packed1010102),
            };
            blocks += strips * (end - begin).div_ceil(step);
            workspace += geometry::intermediate_bytes(layout, *rect) as u64;
        }
        (args, blocks)
    }
}
