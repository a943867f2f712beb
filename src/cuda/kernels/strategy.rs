// SPDX-License-Identifier: MPL-2.0
//! The choice of kernels for a batch, as a table.

use super::abi::{Kernel, Launch};
use super::batch::BlurBatch;
use super::tensor_direct;
use crate::cuda::driver::device::DeviceLimits;

/// The passes in which a batch is blurred.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PassStrategy {
    /// The first suitable row of the table.
    #[default]
    Best,
    /// Rows and columns in one launch, with the intermediate in shared memory, wherever that is large enough and there is such
    /// a kernel.
    Fused,
    /// Rows, then columns, with the intermediate in the workspace.
    Split,
    /// [`PassStrategy::Fused`], by a kernel that is compiled for the radii of the batch.
    Specialised,
    /// Rows and columns in one launch, on tensor cores.
    TensorCores,
}

impl PassStrategy {
    /// Whether there are kernels for a batch, and the device has the shared memory that they need. Devices with tensor cores
    /// have what the kernels for these need, at most 66 KiB.
    fn is_possible(self, batch: &BlurBatch, limits: DeviceLimits) -> bool {
        match self {
            Self::TensorCores => tensor_direct::kernel(batch).is_some(),
            Self::Specialised | Self::Fused => batch.has_fused(limits),
            Self::Split | Self::Best => true,
        }
    }
}

/// When a strategy is the fastest.
struct Rule {
    strategy: PassStrategy,
    /// Largest radius along rows.
    row_radius: u32,
    /// Largest radius along columns, for samples of one byte and of two.
    column_radius: [u32; 2],
}

/// Fastest first. The radii were measured on an H200 (kernels/README.md).
static RULES: [Rule; 4] = [
    // At all radii that there are kernels for.
    Rule { strategy: PassStrategy::TensorCores, row_radius: u32::MAX, column_radius: [u32::MAX; 2] },
    // At least 5 % faster than the generic kernels; beyond it, two generic passes are. Rows are unrolled up to this radius.
    Rule { strategy: PassStrategy::Specialised, row_radius: 32, column_radius: [24, 15] },
    // The ring buffer grows with the radius along columns, and with it the shared memory, until too few blocks run at once.
    // The two strategies cross between 15 and 24, depending on format and frame size.
    Rule { strategy: PassStrategy::Fused, row_radius: u32::MAX, column_radius: [15, 15] },
    Rule { strategy: PassStrategy::Split, row_radius: u32::MAX, column_radius: [u32::MAX, u32::MAX] },
];

impl Rule {
    fn suits(&self, batch: &BlurBatch, limits: DeviceLimits) -> bool {
        let column_radius = self.column_radius[batch.sample_bytes() - 1];
        let in_range = |[rows, columns, _]: [u32; 3]| rows <= self.row_radius && columns <= column_radius;
        batch.radii().all(in_range) && self.strategy.is_possible(batch, limits)
    }
}

/// Whether a specialised kernel is the fastest for a batch.
pub fn gains_from_specialisation(batch: &BlurBatch, limits: DeviceLimits) -> bool {
    let fastest = RULES.iter().find(|rule| rule.suits(batch, limits));
    fastest.is_some_and(|rule| rule.strategy == PassStrategy::Specialised)
}

/// Device memory for the intermediate of a batch, in bytes; 0 if its kernels need none.
pub fn intermediate_bytes(batch: &BlurBatch, requested: PassStrategy, limits: DeviceLimits) -> usize {
    if kernels(batch, requested, limits).contains(&Kernel::Columns) { batch.intermediate_bytes() } else { 0 }
}

/// The launches, in order, that write the rows of a batch. `intermediate` is the address of [`intermediate_bytes`] of device
/// memory, aligned to 16 bytes; unused where that is 0.
pub fn launches(batch: &BlurBatch, intermediate: u64, requested: PassStrategy, limits: DeviceLimits) -> Vec<Launch> {
    let launch = |kernel| match kernel {
        Kernel::TensorDirect(..) => tensor_direct::launch(batch, limits),
        kernel => batch.launch(kernel, intermediate, limits),
    };
    kernels(batch, requested, limits).into_iter().map(launch).collect()
}

/// The kernels for a batch, in the order of their launches: the fastest of the generic ones, or those of the strategy that is
/// requested, if the device has the shared memory.
pub fn kernels(batch: &BlurBatch, requested: PassStrategy, limits: DeviceLimits) -> Vec<Kernel> {
    let mut generic = RULES.iter().filter(|rule| rule.strategy != PassStrategy::Specialised);
    let strategy = match requested {
        PassStrategy::Best => generic.find(|rule| rule.suits(batch, limits)).map_or(requested, |rule| rule.strategy),
        _ if batch.premultiplies() => PassStrategy::TensorCores,
        requested if requested.is_possible(batch, limits) => requested,
        _ => PassStrategy::Split,
    };
    match strategy {
        PassStrategy::Specialised => vec![Kernel::Specialised],
        PassStrategy::Fused => vec![Kernel::Fused(batch.family())],
        PassStrategy::TensorCores => tensor_direct::kernel(batch).into_iter().collect(),
        PassStrategy::Split | PassStrategy::Best => vec![Kernel::Rows(batch.family()), Kernel::Columns],
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::kernels::abi::*;
    use crate::cuda::kernels::batch::{PlaneBlur, batches};
    use crate::filter::BlurParams;
    use crate::filter::frame::{PlaneLayout, SampleLayout};
    use crate::filter::operation::Operation;
    use crate::filter::operation::PlaneTaps;
    use crate::filter::plan::Plan;
    use crate::filter::plane::DevicePlane;
    use crate::filter::regions::Rect;

    const H200: DeviceLimits = DeviceLimits { multiprocessors: 132, shared_bytes: 227 << 10 };
    const TURING: DeviceLimits = DeviceLimits { multiprocessors: 30, shared_bytes: 64 << 10 };

    fn layout(channels: u8, depth: u8) -> PlaneLayout {
        PlaneLayout::new(1920, 1080, channels, depth)
    }

    fn taps(size: u32, layout: PlaneLayout) -> PlaneTaps {
        let params = BlurParams::new((f64::from(size) / 6.0).min(100.0), size).unwrap();
        match &Plan::new(params.into(), &[layout]).operations()[0] {
            Operation::Blur { taps, .. } => taps.clone(),
            other => panic!("{other:?}"),
        }
    }

    fn blur(layout: PlaneLayout, taps: &PlaneTaps) -> PlaneBlur<'_> {
        let memory = DevicePlane { address: 0, pitch: 1 << 20, len: usize::MAX };
        let (rect, kernel_set) = (Rect::new(0, 0, layout.width, layout.height).unwrap(), KernelSet::CudaCores);
        PlaneBlur { layout, source: memory, destination: memory, taps, rect, kernel_set, alpha: None }
    }

    fn batch(plane: PlaneBlur<'_>) -> BlurBatch<'_> {
        batches([plane]).remove(0)
    }

    fn plane(launch: &Launch) -> BlurPlane {
        match launch.args {
            Args::Blur(args) => args.planes[0],
            _ => unreachable!("a blur"),
        }
    }

    /// Every pixel family.
    fn layouts() -> Vec<PlaneLayout> {
        let mut layouts: Vec<_> = (1..=4).flat_map(|channels| [layout(channels, 8), layout(channels, 16)]).collect();
        layouts.push(PlaneLayout { sample_layout: SampleLayout::Packed1010102, ..layout(4, 10) });
        layouts.push(PlaneLayout { sample_layout: SampleLayout::Yuv422 { luma: 0 }, ..layout(4, 8) });
        layouts
    }

    /// From Turing on a block may have 64 KiB of shared memory; no radius may need more.
    #[test]
    fn every_radius_fits_into_the_shared_memory_of_turing() {
        for size in (1..=801).step_by(8) {
            for layout in layouts() {
                let taps = taps(size, layout);
                for passes in [PassStrategy::Best, PassStrategy::Fused, PassStrategy::Split] {
                    for launch in launches(&batch(blur(layout, &taps)), 0, passes, TURING) {
                        let bytes = launch.grid.shared_bytes;
                        assert!(bytes <= TURING.shared_bytes, "{layout:?} {size}: {:?} {bytes}", launch.kernel);
                    }
                }
            }
        }
    }

    #[test]
    fn small_radii_take_one_launch_and_no_workspace() {
        for (size, count) in [(1, 1), (7, 1), (31, 1), (33, 2), (801, 2)] {
            let taps = taps(size, layout(4, 8));
            let batch = batch(blur(layout(4, 8), &taps));
            assert_eq!(launches(&batch, 0, PassStrategy::Best, H200).len(), count, "kernel-size={size}");
            assert_eq!(intermediate_bytes(&batch, PassStrategy::Best, H200) > 0, count == 2, "kernel-size={size}");
        }
    }

    #[test]
    fn tensor_cores_blur_up_to_their_largest_radius() {
        let kernels = |layout: PlaneLayout, size: u32| {
            let taps = taps(size, layout);
            let plane = PlaneBlur { kernel_set: KernelSet::TensorCores, ..blur(layout, &taps) };
            let batch = batch(plane);
            (kernels(&batch, PassStrategy::Best, H200), gains_from_specialisation(&batch, H200))
        };
        let direct = |family, radius| (vec![Kernel::TensorDirect(family, radius)], false);
        let yuv422 = PlaneLayout { sample_layout: SampleLayout::Yuv422 { luma: 0 }, ..layout(4, 8) };
        let packed1010102 = PlaneLayout { sample_layout: SampleLayout::Packed1010102, ..layout(4, 10) };
        for (layout, family) in [
            (layout(1, 8), PixelFamily::U8C12),
            (layout(2, 8), PixelFamily::U8C12),
            (layout(3, 8), PixelFamily::U8C3),
            (layout(4, 8), PixelFamily::U8C4),
            (layout(1, 10), PixelFamily::U16C12),
            (layout(2, 16), PixelFamily::U16C12),
            (layout(4, 16), PixelFamily::U16C4),
            (yuv422, PixelFamily::Yuv422),
            (packed1010102, PixelFamily::Packed1010102),
        ] {
            for (size, radius) in [
                (3, DirectRadius::Short),
                (17, DirectRadius::Short),
                (19, DirectRadius::Medium),
                (33, DirectRadius::Medium),
                (35, DirectRadius::Long),
                (63, DirectRadius::Long),
            ] {
                assert_eq!(kernels(layout, size), direct(family, radius), "{layout:?}, {size} taps");
            }
            // A single tap has more than two bytes. There are no fused kernels beside those for tensor cores.
            for size in [1, 65] {
                assert_eq!(kernels(layout, size), (vec![Kernel::Rows(family), Kernel::Columns], false));
            }
        }
        // A plane that leaves most of a device idle has the shortest segments.
        let small = PlaneLayout::new(160, 90, 4, 8);
        let taps_of_small = taps(7, small);
        let plane = PlaneBlur { kernel_set: KernelSet::TensorCores, ..blur(small, &taps_of_small) };
        let Args::Tensor(args) = launches(&batch(plane), 0, PassStrategy::Best, H200)[0].args else { unreachable!() };
        assert_eq!(args.planes[0].segment_rows, 16);
        // A plane without such a kernel does not take others off the tensor cores.
        let (some, none) = (taps(7, layout(1, 8)), taps(1, layout(1, 8)));
        let planes = [&some, &none, &some]
            .map(|taps| PlaneBlur { kernel_set: KernelSet::TensorCores, ..blur(layout(1, 8), taps) });
        assert_eq!(batches(planes).iter().map(|batch| batch.planes().len()).collect::<Vec<_>>(), [1, 1, 1]);
        // The small planes of RGB, and nothing else, have no such kernel.
        let (others, gains) = kernels(layout(3, 16), 15);
        assert_eq!((others, gains), (vec![Kernel::Rows(PixelFamily::U16C3), Kernel::Columns], false));
    }

    #[test]
    fn the_rows_pass_of_a_band_writes_its_halo_too() {
        let taps = taps(101, layout(1, 8));
        let rect = Rect::new(0, 500, 1920, 100).unwrap();
        let band = PlaneBlur { rect, ..blur(layout(1, 8), &taps) };
        let [rows, columns] = launches(&batch(band), 0, PassStrategy::Split, H200)[..] else { panic!("two launches") };
        let [rows, columns] = [plane(&rows), plane(&columns)];
        let radius = taps.columns.radius() as u32;
        assert_eq!([rows.row_begin, rows.row_end], [500 - radius, 600 + radius]);
        assert_eq!([columns.row_begin, columns.row_end], [500, 600]);
    }

    #[test]
    fn planes_of_a_family_share_a_launch() {
        let (luma, chroma) = (layout(1, 8), PlaneLayout { sigma_scale: [0.5; 2], ..layout(2, 8) });
        let [wide, narrow, none] = [taps(31, luma), taps(31, chroma), PlaneTaps { ..taps(1, luma) }];
        let of = |planes: &[(PlaneLayout, &PlaneTaps)]| -> Vec<usize> {
            let planes: Vec<_> = planes.iter().map(|(layout, taps)| blur(*layout, taps)).collect();
            batches(planes).iter().map(|batch| batch.planes().len()).collect()
        };
        assert_eq!(of(&[(luma, &wide), (chroma, &narrow)]), [2]);
        let planar = PlaneLayout { channels: 1, ..chroma };
        assert_eq!(of(&[(luma, &wide), (planar, &narrow), (planar, &narrow), (luma, &wide)]), [4]);
        // A third pair of radii, other samples, a ninth plane.
        assert_eq!(of(&[(luma, &wide), (planar, &narrow), (luma, &none)]), [2, 1]);
        assert_eq!(of(&[(luma, &wide), (layout(1, 16), &wide)]), [1, 1]);
        assert_eq!(of(&[(luma, &wide); 9]), [8, 1]);
        // The same radii with other numbers of channels take two slots.
        let both = batches([blur(luma, &wide), blur(layout(2, 8), &wide)]);
        assert_eq!((both.len(), both[0].slots().len()), (1, 2));
    }

    #[test]
    fn blocks_of_planes_follow_each_other() {
        let (luma, chroma) = (layout(1, 8), PlaneLayout { width: 960, height: 540, ..layout(2, 8) });
        let taps = taps(7, luma);
        let all = batches([blur(luma, &taps), blur(chroma, &taps)]).remove(0);
        for passes in [PassStrategy::Fused, PassStrategy::Split] {
            for launch in launches(&all, 0, passes, H200) {
                let Args::Blur(args) = launch.args else { unreachable!("a blur") };
                let firsts = args.planes.map(|plane| plane.first_block);
                assert!(firsts[0] == 0 && firsts[1] > 0 && firsts[1] < launch.grid.blocks, "{firsts:?}");
                assert_eq!(firsts[2..], [u32::MAX; PLANES as usize - 2]);
            }
        }
    }
}
