// SPDX-License-Identifier: MPL-2.0
//! The kernels that blur a batch: on tensor cores where there is such a kernel, else one axis at a time; and those that NVRTC
//! compiles because they are faster.

use super::abi::*;
use super::axis;
use super::batch::PlaneBlur;
use super::launch::Launch;
use super::tensor_direct::DirectKernel;
use crate::cuda::driver::device::DeviceLimits;

/// How the prebuilt kernels for a batch are chosen.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum PassStrategy {
    /// The fastest: on tensor cores, rows and columns in one launch, wherever there is such a kernel. An engine with this strategy
    /// also has kernels compiled.
    #[default]
    Best,
    /// Rows, then columns, on CUDA cores. Premultiplied colour has no such kernels.
    Split,
}

/// The kernels that blur a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BlurKernels {
    /// Rows, then columns, on CUDA cores.
    Axis,
    /// Both in one launch, on tensor cores.
    Direct(DirectKernel),
}

/// The prebuilt kernels for a batch.
pub fn prebuilt(planes: &[PlaneBlur], passes: PassStrategy) -> BlurKernels {
    // Only kernels for tensor cores premultiply and unpremultiply.
    let has_no_other = planes[0].alpha.is_some();
    match DirectKernel::prebuilt(planes) {
        Some(kernel) if passes == PassStrategy::Best || has_no_other => BlurKernels::Direct(kernel),
        _ => BlurKernels::Axis,
    }
}

/// The kernel for tensor cores that NVRTC compiles for a batch, if that is faster than the prebuilt ones on a device. It has the
/// name of a prebuilt one.
pub fn specialisation(planes: &[PlaneBlur], limits: DeviceLimits) -> Option<DirectKernel> {
    DirectKernel::compiled(planes, limits).filter(|_| planes[0].kernel_set == KernelSet::TensorCores)
}

impl BlurKernels {
    /// The kernel that NVRTC compiles, if it is one.
    pub fn compiled(self) -> Option<DirectKernel> {
        match self {
            Self::Direct(kernel) if kernel.is_compiled() => Some(kernel),
            _ => None,
        }
    }

    /// Device memory between the launches for a batch, in bytes; 0 if there is one launch.
    pub fn bytes(self, planes: &[PlaneBlur]) -> usize {
        match self {
            Self::Axis => axis::direct_bytes(planes),
            Self::Direct(_) => 0,
        }
    }

    /// The launches for a batch, in order. `intermediate` is the address of [`BlurKernels::bytes`] of device memory, aligned to 16
    /// bytes; unused where that is 0.
    pub fn launches(self, planes: &[PlaneBlur], intermediate: u64, limits: DeviceLimits) -> Vec<Launch> {
        match self {
            Self::Axis => axis::direct_launches(planes, intermediate).into(),
            Self::Direct(kernel) => vec![kernel.launch(planes, limits)],
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::kernels::batch::{PlaneBlur, batches, slots};
    use crate::cuda::kernels::images::Kernel;
    use crate::cuda::kernels::launch::Args;
    use crate::filter::BlurParams;
    use crate::filter::frame::PlaneLayout;
    use crate::filter::frame::SampleLayout;
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
        // With a smaller sigma the farthest taps of the largest sizes are 0.
        let sigma = if size > 600 { 1024.0 } else { f64::from(size) / 6.0 };
        let params = BlurParams::new(sigma, size).unwrap();
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

    /// Every pixel family.
    fn layouts() -> Vec<PlaneLayout> {
        let mut layouts: Vec<_> = (1..=4).flat_map(|channels| [layout(channels, 8), layout(channels, 16)]).collect();
        layouts.push(PlaneLayout { sample_layout: SampleLayout::Packed1010102, ..layout(4, 10) });
        layouts.extend(
            [8, 16].map(|depth| PlaneLayout { sample_layout: SampleLayout::Yuv422 { luma: 0 }, ..layout(4, depth) }),
        );
        layouts
    }

    /// From Turing on a block may have 64 KiB of shared memory, before it 48 KiB; no radius may need more.
    #[test]
    fn every_radius_fits_into_the_shared_memory_of_old_devices() {
        for size in (1..=801).step_by(8) {
            for layout in layouts() {
                let taps = taps(size, layout);
                for (kernel_set, limit) in [(KernelSet::TensorCores, 64 << 10), (KernelSet::CudaCores, 48 << 10)] {
                    let batch = [PlaneBlur { kernel_set, ..blur(layout, &taps) }];
                    for launch in prebuilt(&batch, PassStrategy::Best).launches(&batch, 0, TURING) {
                        let bytes = launch.grid.shared_bytes;
                        assert!(bytes <= limit, "{layout:?} {size}: {:?} {bytes}", launch.kernel);
                    }
                }
            }
        }
    }

    #[test]
    fn cuda_cores_have_two_passes_and_no_compiled_kernels() {
        for size in [1, 7, 49, 51, 127, 801] {
            for layout in layouts() {
                let taps = taps(size, layout);
                let batch = [blur(layout, &taps)];
                assert_eq!(prebuilt(&batch, PassStrategy::Best), BlurKernels::Axis);
                assert_eq!(specialisation(&batch, H200), None, "kernel-size={size}");
                assert!(BlurKernels::Axis.bytes(&batch) > 0);
            }
        }
    }

    #[test]
    fn tensor_cores_blur_up_to_their_largest_radius() {
        let kernels = |layout: PlaneLayout, size: u32| {
            let taps = taps(size, layout);
            let batch = [PlaneBlur { kernel_set: KernelSet::TensorCores, ..blur(layout, &taps) }];
            let chosen = prebuilt(&batch, PassStrategy::Best);
            let kernels = chosen.launches(&batch, 0, H200).iter().map(|launch| launch.kernel).collect::<Vec<_>>();
            (kernels, chosen.bytes(&batch))
        };
        let direct = |family, radius| (vec![Kernel::tensor_direct(family, radius)], 0);
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
            for (size, radius) in
                [(3, "short"), (17, "short"), (19, "medium"), (33, "medium"), (35, "long"), (63, "long")]
            {
                assert_eq!(kernels(layout, size), direct(family, radius), "{layout:?}, {size} taps");
            }
            // A single tap has more than two bytes.
            for size in [1, 65] {
                let (kernels, between) = kernels(layout, size);
                assert_eq!((kernels, between > 0), (vec![Kernel::ROWS, Kernel::COLUMNS], true));
            }
        }
        // A plane that leaves most of a device idle has the shortest segments.
        let small = PlaneLayout::new(160, 90, 4, 8);
        let taps_of_small = taps(7, small);
        let batch = [PlaneBlur { kernel_set: KernelSet::TensorCores, ..blur(small, &taps_of_small) }];
        let launches = prebuilt(&batch, PassStrategy::Best).launches(&batch, 0, H200);
        let Args::Tensor(args) = launches[0].args else { unreachable!() };
        assert_eq!(args.planes[0].segment_rows, 16);
        // A plane without such a kernel does not take others off the tensor cores.
        let (some, none) = (taps(7, layout(1, 8)), taps(1, layout(1, 8)));
        let planes = [&some, &none, &some]
            .map(|taps| PlaneBlur { kernel_set: KernelSet::TensorCores, ..blur(layout(1, 8), taps) });
        assert_eq!(batches(planes).iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1]);
        // The small planes of RGB and packed 4:2:2 of more than 8 bits have no such kernel.
        let deep = PlaneLayout { sample_layout: SampleLayout::Yuv422 { luma: 0 }, ..layout(4, 10) };
        assert_eq!(kernels(deep, 15).0, [Kernel::ROWS, Kernel::COLUMNS]);
        assert_eq!(kernels(layout(3, 16), 15).0, [Kernel::ROWS, Kernel::COLUMNS]);
    }

    /// The radii that gain from a compiled kernel, on devices of 64, 99 and 227 KiB of shared memory, and their windows.
    #[test]
    fn tensor_core_kernels_are_compiled_where_they_gain() {
        let yuv422 = PlaneLayout { sample_layout: SampleLayout::Yuv422 { luma: 0 }, ..layout(4, 8) };
        let packed1010102 = PlaneLayout { sample_layout: SampleLayout::Packed1010102, ..layout(4, 10) };
        let few = |last| [17..=24, 32..=last];
        let from = |first, last| [first..=last, first..=last];
        for (layout, ranges) in [
            (layout(1, 8), [few(63), few(63), few(63)]),
            (layout(2, 8), [few(56), few(63), few(63)]),
            (layout(3, 8), [few(56), few(63), few(63)]),
            (layout(4, 8), [few(48), few(63), few(63)]),
            (layout(1, 16), [few(56), few(63), few(63)]),
            (layout(2, 10), [few(48), few(63), few(63)]),
            (layout(4, 16), [few(32), few(48), few(63)]),
            (yuv422, [from(32, 32), from(32, 63), from(32, 63)]),
            (packed1010102, [from(1, 48), from(1, 63), from(1, 63)]),
        ] {
            for (kib, ranges) in [64, 99, 227].into_iter().zip(ranges) {
                let limits = DeviceLimits { multiprocessors: 132, shared_bytes: kib << 10 };
                for radius in 0..=400 {
                    let taps = taps(2 * radius + 1, layout);
                    let batch = [PlaneBlur { kernel_set: KernelSet::TensorCores, ..blur(layout, &taps) }];
                    let gains = ranges.iter().any(|range| range.contains(&radius));
                    let specialisation = specialisation(&batch, limits);
                    assert_eq!(specialisation.is_some(), gains, "{layout:?}, radius {radius}, {kib} KiB");
                    let Some(specialisation) = specialisation else { continue };
                    let definitions = specialisation.definitions();
                    let tiles = definitions.iter().find_map(|it| it.strip_prefix("BLUR_TENSOR_DIRECT_TILES="));
                    assert_eq!(tiles, Some(&*(radius.div_ceil(8) + 1).to_string()));
                    let kernels = BlurKernels::Direct(specialisation);
                    let launches = kernels.launches(&batch, 0, limits);
                    let [launch] = &launches[..] else { panic!("one launch") };
                    assert!(launch.grid.shared_bytes <= limits.shared_bytes && launch.grid.blocks > 0);
                    assert_eq!(kernels.bytes(&batch), 0);
                    let Args::Tensor(args) = &launch.args else { panic!("for tensor cores") };
                    let at = |i: usize| taps.rows.at(i) as u16;
                    assert_eq!(args.taps[0][0], std::array::from_fn(at));
                    assert_eq!(args.far_taps[0][0], std::array::from_fn(|i| at(i + TENSOR_TAPS as usize)));
                }
            }
        }
    }

    #[test]
    fn a_compiled_kernel_has_planes_of_one_number_of_channels() {
        let [one, two] = [1, 2].map(|channels| layout(channels, 8));
        let [far, near] = [taps(127, one), taps(49, one)];
        let plane = |layout, taps| PlaneBlur { kernel_set: KernelSet::TensorCores, ..blur(layout, taps) };
        let counts = |planes: Vec<PlaneBlur>| -> Vec<(usize, bool)> {
            let count = |batch: &Vec<PlaneBlur>| (batch.len(), specialisation(batch, H200).is_some());
            batches(planes).iter().map(count).collect()
        };
        assert_eq!(counts(vec![plane(one, &far), plane(two, &far)]), [(1, true), (1, true)]);
        assert_eq!(counts(vec![plane(one, &far), plane(one, &far)]), [(2, true)]);
        // Kernels that cannot be compiled for both, or for any, do not keep planes apart.
        let [farther, farthest] = [taps(253, one), taps(301, one)];
        assert_eq!(counts(vec![plane(one, &farther), plane(one, &far), plane(one, &far)]), [(1, false), (2, true)]);
        assert_eq!(counts(vec![plane(one, &farthest), plane(two, &farther)]), [(2, false)]);
        // The prebuilt kernel takes both in one launch.
        assert_eq!(counts(vec![plane(one, &near), plane(two, &near)]), [(2, false)]);
        assert_eq!(counts(vec![plane(one, &near), plane(one, &near)]), [(2, true)]);
    }

    #[test]
    fn the_rows_pass_of_a_band_writes_its_halo_too() {
        let taps = taps(101, layout(1, 8));
        let rect = Rect::new(0, 500, 1920, 100).unwrap();
        let band = PlaneBlur { rect, ..blur(layout(1, 8), &taps) };
        let [rows, columns] = BlurKernels::Axis.launches(&[band], 0, H200)[..] else { panic!("two launches") };
        let (Args::Rows(rows), Args::Columns(columns)) = (rows.args, columns.args) else { panic!("rows and columns") };
        let (rows, columns) = (rows.planes[0], columns.planes[0]);
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
            batches(planes).iter().map(Vec::len).collect()
        };
        assert_eq!(of(&[(luma, &wide), (chroma, &narrow)]), [2]);
        let planar = PlaneLayout { channels: 1, ..chroma };
        assert_eq!(of(&[(luma, &wide), (planar, &narrow), (planar, &narrow), (luma, &wide)]), [4]);
        // A third pair of radii, other samples, a ninth plane.
        assert_eq!(of(&[(luma, &wide), (planar, &narrow), (luma, &none)]), [2, 1]);
        assert_eq!(of(&[(luma, &wide), (layout(1, 16), &wide)]), [1, 1]);
        assert_eq!(of(&[(luma, &wide); 9]), [8, 1]);
        // Planes with the same taps share a slot, whatever their channels.
        let both = batches([blur(luma, &wide), blur(layout(2, 8), &wide), blur(luma, &narrow)]);
        assert_eq!((both.len(), slots(&both[0]).len()), (1, 2));
    }

    #[test]
    fn blocks_of_planes_follow_each_other() {
        let (luma, chroma) = (layout(1, 8), PlaneLayout { width: 960, height: 540, ..layout(2, 8) });
        let taps = taps(7, luma);
        let all = batches([blur(luma, &taps), blur(chroma, &taps)]).remove(0);
        let [rows, columns] = BlurKernels::Axis.launches(&all, 0, H200)[..] else { panic!("two launches") };
        let (Args::Rows(of_rows), Args::Columns(of_columns)) = (rows.args, columns.args) else {
            panic!("rows and columns")
        };
        for (firsts, blocks) in [
            (of_rows.planes.map(|plane| plane.first_block), rows.grid.blocks),
            (of_columns.planes.map(|plane| plane.first_block), columns.grid.blocks),
        ] {
            assert!(firsts[0] == 0 && firsts[1] > 0 && firsts[1] < blocks, "{firsts:?}");
            assert_eq!(firsts[2..], [u32::MAX; PLANES as usize - 2]);
        }
    }
}
