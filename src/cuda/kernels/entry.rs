// SPDX-License-Identifier: MPL-2.0
//! Entries: rectangles of operations on pixels, with the addresses of their planes. This file also decides which entries share a
//! launch. Planes of a frame share launches where one kernel can process them, because a small plane leaves most of a device
//! idle.

use super::abi::*;
use crate::filter::Taps;
use crate::filter::frame::PlaneLayout;
use crate::filter::operation::{Operation, PlaneTaps, Resampling};
use crate::filter::plane::DevicePlane;
use crate::filter::regions::Rect;
use crate::filter::wide::Factor;

/// A rectangle of the output of a blur, a decimation or an interpolation, with the addresses of the planes.
#[derive(Debug, Clone, Copy)]
pub struct Entry<'a> {
    /// The operation.
    pub operation: &'a Operation,
    /// The rectangle that is written, in pixels of the output.
    pub rect: Rect,
    /// The plane that is read.
    pub source: EntryPlane,
    /// The plane that is written. It must not overlap the source.
    pub destination: EntryPlane,
    /// The kernels that may process the entry.
    pub kernels: EntryKernels,
    /// The alpha channel of a plane of the frame, if colour is multiplied by it on loading and divided by it on storing. Only
    /// tensor-core kernels process such entries.
    pub alpha: Option<u8>,
    /// The colour that an interpolation writes where the blurred alpha is 0. Used only with `alpha`.
    pub transparent: DevicePlane,
}

/// The layout and the memory of a plane of an entry.
#[derive(Debug, Clone, Copy)]
#[expect(missing_docs, reason = "the names say it")]
pub struct EntryPlane {
    pub layout: PlaneLayout,
    pub memory: DevicePlane,
}

/// The kernels that may process an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum EntryKernels {
    /// The kernels for CUDA cores.
    CudaCores,
    /// The kernels for CUDA cores or for tensor cores, whichever are faster.
    Any,
    /// The tensor-core kernels of the wide form. Only these know how their small planes are stored.
    WideOnTensorCores,
}

impl<'a> Entry<'a> {
    /// The taps, if the operation is a blur.
    pub fn taps(&self) -> Option<&'a PlaneTaps> {
        if let Operation::Blur { taps, .. } = self.operation { Some(taps) } else { None }
    }

    /// The planes and factors, if the operation is a decimation or an interpolation.
    pub fn resampling(&self) -> Option<&'a Resampling> {
        match self.operation {
            Operation::Decimate(resampling) | Operation::Interpolate(resampling) => Some(resampling),
            _ => None,
        }
    }

    /// The factors along x and y. For a blur both are one.
    pub fn factors(&self) -> [Factor; 2] {
        self.resampling().map_or([Factor::One; 2], |resampling| resampling.factors)
    }

    /// The larger plane of a decimation or an interpolation; the source of a blur.
    pub fn larger(&self) -> &EntryPlane {
        if let Operation::Interpolate(_) = self.operation { &self.destination } else { &self.source }
    }

    /// The smaller plane of a decimation or an interpolation; the destination of a blur.
    pub fn smaller(&self) -> &EntryPlane {
        if let Operation::Interpolate(_) = self.operation { &self.source } else { &self.destination }
    }

    /// The family of the larger plane's pixels, if there are tensor-core kernels for it.
    pub fn family(&self) -> Option<PixelFamily> {
        PixelFamily::for_tensor_cores(&self.larger().layout, self.alpha)
    }

    fn direct_kernel(&self) -> DirectKernelOf {
        let largest = self.family().zip(self.taps()).and_then(|(family, taps)| family.largest_radius(taps));
        match largest.filter(|_| self.kernels == EntryKernels::Any) {
            Some(..=TENSOR_RADIUS_MAX) => DirectKernelOf::Prebuilt,
            Some(radius) if radius < 2 * TENSOR_TAPS => DirectKernelOf::Compiled(self.source.layout.channels),
            _ => DirectKernelOf::None,
        }
    }

    /// Whether a prebuilt tensor-core kernel of the direct form can blur the entry: the family has such kernels, and all radii
    /// are from 1 to [`TENSOR_RADIUS_MAX`]. With radius 0 the single tap is 65536, which does not fit into two bytes.
    pub fn suits_tensor_cores(&self) -> bool {
        self.direct_kernel() == DirectKernelOf::Prebuilt
    }
}

/// The tensor-core kernel of the direct form for a plane. Planes with different values are in different batches, because a batch
/// is blurred on tensor cores only if all its planes can be.
#[derive(PartialEq, Eq)]
enum DirectKernelOf {
    Prebuilt,
    /// A kernel that can be compiled for planes with this number of channels.
    Compiled(u8),
    None,
}

/// Divides entries into batches that each share a launch, and keeps their order. `joins` says whether an entry can join a batch.
pub(super) fn divided<'a>(
    entries: impl IntoIterator<Item = Entry<'a>>,
    joins: impl Fn(&[Entry<'a>], &Entry<'a>) -> bool,
) -> Vec<Vec<Entry<'a>>> {
    let mut batches: Vec<Vec<Entry>> = Vec::new();
    for entry in entries {
        match batches.last_mut().filter(|batch| joins(batch, &entry)) {
            Some(batch) => batch.push(entry),
            None => batches.push(vec![entry]),
        }
    }
    batches
}

/// Divides blurs of the direct form into batches.
pub fn blur_batches<'a>(entries: impl IntoIterator<Item = Entry<'a>>) -> Vec<Vec<Entry<'a>>> {
    divided(entries, |batch, entry| {
        let (first, family) = (&batch[0], entry.family());
        first.family() == family
            && first.kernels == entry.kernels
            && first.direct_kernel() == entry.direct_kernel()
            && batch.len() < family.map_or(1, PixelFamily::most_planes)
            && slots(batch.iter().chain([entry])).len() <= FILTER_SLOTS as usize
    })
}

/// The different taps of these blurs. A launch has one filter slot for each of them.
pub fn slots<'e, 'a: 'e>(entries: impl IntoIterator<Item = &'e Entry<'a>>) -> Vec<&'a PlaneTaps> {
    let mut slots = Vec::new();
    for taps in entries.into_iter().filter_map(Entry::taps) {
        if !slots.contains(&taps) {
            slots.push(taps);
        }
    }
    slots
}

/// The taps of each filter slot, along rows and down columns. For packed 4:2:2, which has a single plane, the second slot has the
/// taps of the chroma.
pub(super) fn slot_taps<'a>(batch: &[Entry<'a>]) -> Vec<[&'a Taps; 2]> {
    let slots = slots(batch);
    let luma = slots.iter().map(|taps| [&taps.rows, &taps.columns]);
    let chroma = slots.iter().filter(|_| batch[0].source.layout.is_packed_422());
    luma.chain(chroma.map(|taps| [&taps.chroma_rows, &taps.columns])).collect()
}

/// The index of the filter slot of an entry in its batch; 0 if the entry has no taps.
pub(super) fn slot_of(batch: &[Entry], entry: &Entry) -> u32 {
    slots(batch).iter().position(|taps| Some(*taps) == entry.taps()).unwrap_or(0) as u32
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cuda::driver::device::DeviceLimits;
    use crate::cuda::kernels::axis;
    use crate::cuda::kernels::images::Kernel;
    use crate::cuda::kernels::launch::{Args, Launch};
    use crate::cuda::kernels::tensor_direct::DirectKernel;
    use crate::filter::BlurParams;
    use crate::filter::frame::SampleLayout;
    use crate::filter::plan::Plan;

    const H200: DeviceLimits = DeviceLimits { multiprocessors: 132, shared_bytes: 227 << 10 };
    const TURING: DeviceLimits = DeviceLimits { multiprocessors: 30, shared_bytes: 64 << 10 };

    fn layout(channels: u8, depth: u8) -> PlaneLayout {
        PlaneLayout::new(1920, 1080, channels, depth)
    }

    fn blur_of(size: u32, layout: PlaneLayout) -> Operation {
        // With a smaller sigma the outermost taps of the largest sizes would be 0.
        let sigma = if size > 600 { 1024.0 } else { f64::from(size) / 6.0 };
        let params = BlurParams::new(sigma, size).unwrap();
        Plan::new(params.into(), &[layout]).operations()[0].clone()
    }

    fn entry(operation: &Operation, kernels: EntryKernels) -> Entry<'_> {
        let layout = operation.source().field.layout;
        let plane = EntryPlane { layout, memory: DevicePlane { address: 0, pitch: 1 << 20, len: usize::MAX } };
        let rect = Rect::new(0, 0, layout.width, layout.height).unwrap();
        let transparent = DevicePlane::default();
        Entry { operation, rect, source: plane, destination: plane, kernels, alpha: None, transparent }
    }

    /// An entry for CUDA cores.
    fn on_cuda_cores(operation: &Operation) -> Entry<'_> {
        entry(operation, EntryKernels::CudaCores)
    }

    /// An entry for either kind of cores.
    fn on_any(operation: &Operation) -> Entry<'_> {
        entry(operation, EntryKernels::Any)
    }

    /// The launches of the prebuilt kernels for a batch, and the device memory between them in bytes.
    fn prebuilt(batch: &[Entry], limits: DeviceLimits) -> (Vec<Launch>, usize) {
        match DirectKernel::prebuilt(batch) {
            Some(kernel) => (vec![kernel.launch(batch, limits)], 0),
            None => (axis::direct_launches(batch, 0).into(), axis::direct_bytes(batch)),
        }
    }

    /// Planes of all pixel families.
    fn layouts() -> Vec<PlaneLayout> {
        let mut layouts: Vec<_> = (1..=4).flat_map(|channels| [layout(channels, 8), layout(channels, 16)]).collect();
        layouts.push(PlaneLayout { sample_layout: SampleLayout::Packed1010102, ..layout(4, 10) });
        layouts.extend(
            [8, 16].map(|depth| PlaneLayout { sample_layout: SampleLayout::Yuv422 { luma: 0 }, ..layout(4, depth) }),
        );
        layouts
    }

    /// A block may have 64 KiB of shared memory from Turing on, and 48 KiB on older devices. No radius may need more.
    #[test]
    fn every_radius_fits_into_the_shared_memory_of_old_devices() {
        for size in (1..=801).step_by(8) {
            for layout in layouts() {
                let blur = blur_of(size, layout);
                for (kernels, limit) in [(EntryKernels::Any, 64 << 10), (EntryKernels::CudaCores, 48 << 10)] {
                    let batch = [entry(&blur, kernels)];
                    for launch in prebuilt(&batch, TURING).0 {
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
                let blur = blur_of(size, layout);
                let batch = [on_cuda_cores(&blur)];
                assert_eq!(DirectKernel::prebuilt(&batch), None);
                assert_eq!(DirectKernel::compiled(&batch, H200), None, "kernel-size={size}");
                assert!(axis::direct_bytes(&batch) > 0);
            }
        }
    }

    #[test]
    fn tensor_cores_blur_up_to_their_largest_radius() {
        let kernels = |layout: PlaneLayout, size: u32| {
            let blur = blur_of(size, layout);
            let (launches, bytes) = prebuilt(&[on_any(&blur)], H200);
            (launches.iter().map(|launch| launch.kernel).collect::<Vec<_>>(), bytes)
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
            // With one tap, the tap is 65536 and does not fit into two bytes. 65 taps exceed the largest radius.
            for size in [1, 65] {
                let (kernels, between) = kernels(layout, size);
                assert_eq!((kernels, between > 0), (vec![Kernel::ROWS, Kernel::COLUMNS], true));
            }
        }
        // A plane that leaves most of the device idle gets the shortest segments.
        let small = PlaneLayout::new(160, 90, 4, 8);
        let blur_of_small = blur_of(7, small);
        let (launches, _) = prebuilt(&[on_any(&blur_of_small)], H200);
        let Args::Tensor(args) = launches[0].args else { unreachable!() };
        assert_eq!(args.planes[0].segment_rows, 16);
        // A plane without such a kernel does not force other planes off the tensor cores.
        let (some, none) = (blur_of(7, layout(1, 8)), blur_of(1, layout(1, 8)));
        assert_eq!(blur_batches([&some, &none, &some].map(on_any)).iter().map(Vec::len).collect::<Vec<_>>(), [1, 1, 1]);
        // Packed 4:2:2 of more than 8 bits and three channels of 16 bits, as in the small planes of RGB, have no such kernel.
        let deep = PlaneLayout { sample_layout: SampleLayout::Yuv422 { luma: 0 }, ..layout(4, 10) };
        assert_eq!(kernels(deep, 15).0, [Kernel::ROWS, Kernel::COLUMNS]);
        assert_eq!(kernels(layout(3, 16), 15).0, [Kernel::ROWS, Kernel::COLUMNS]);
    }

    /// The radii for which a compiled kernel is faster, and its windows, on devices with 64, 99 and 227 KiB of shared memory.
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
                    let blur = blur_of(2 * radius + 1, layout);
                    let batch = [on_any(&blur)];
                    let gains = ranges.iter().any(|range| range.contains(&radius));
                    let specialisation = DirectKernel::compiled(&batch, limits);
                    assert_eq!(specialisation.is_some(), gains, "{layout:?}, radius {radius}, {kib} KiB");
                    let Some(specialisation) = specialisation else { continue };
                    let definitions = specialisation.definitions();
                    let tiles = definitions.iter().find_map(|it| it.strip_prefix("BLUR_TENSOR_DIRECT_TILES="));
                    assert_eq!(tiles, Some(&*(radius.div_ceil(8) + 1).to_string()));
                    let launch = specialisation.launch(&batch, limits);
                    assert!(launch.grid.shared_bytes <= limits.shared_bytes && launch.grid.blocks > 0);
                    let Args::Tensor(args) = &launch.args else { panic!("for tensor cores") };
                    let at = |i: usize| batch[0].taps().unwrap().rows.at(i) as u16;
                    assert_eq!(args.taps[0][0], std::array::from_fn(at));
                    assert_eq!(args.far_taps[0][0], std::array::from_fn(|i| at(i + TENSOR_TAPS as usize)));
                }
            }
        }
    }

    #[test]
    fn a_compiled_kernel_has_planes_of_one_number_of_channels() {
        let [one, two] = [1, 2].map(|channels| layout(channels, 8));
        let [far, near, farther, farthest] = [127, 49, 253, 301].map(|size| blur_of(size, one));
        let [far_two, near_two, farther_two] = [127, 49, 253].map(|size| blur_of(size, two));
        let counts = |blurs: &[&Operation]| -> Vec<(usize, bool)> {
            let count = |batch: &Vec<Entry>| (batch.len(), DirectKernel::compiled(batch, H200).is_some());
            blur_batches(blurs.iter().map(|blur| on_any(blur))).iter().map(count).collect()
        };
        assert_eq!(counts(&[&far, &far_two]), [(1, true), (1, true)]);
        assert_eq!(counts(&[&far, &far]), [(2, true)]);
        // Kernels that cannot be compiled for both planes, or for any plane, do not keep planes apart.
        assert_eq!(counts(&[&farther, &far, &far]), [(1, false), (2, true)]);
        assert_eq!(counts(&[&farthest, &farther_two]), [(2, false)]);
        // The prebuilt kernel takes both planes in one launch.
        assert_eq!(counts(&[&near, &near_two]), [(2, false)]);
        assert_eq!(counts(&[&near, &near]), [(2, true)]);
    }

    #[test]
    fn the_rows_pass_of_a_band_writes_its_halo_too() {
        let blur = blur_of(101, layout(1, 8));
        let rect = Rect::new(0, 500, 1920, 100).unwrap();
        let band = Entry { rect, ..on_cuda_cores(&blur) };
        let [rows, columns] = axis::direct_launches(&[band], 0);
        let (Args::Rows(rows), Args::Columns(columns)) = (rows.args, columns.args) else { panic!("rows and columns") };
        let (rows, columns) = (rows.planes[0], columns.planes[0]);
        let radius = band.taps().unwrap().columns.radius() as u32;
        assert_eq!([rows.row_begin, rows.row_end], [500 - radius, 600 + radius]);
        assert_eq!([columns.row_begin, columns.row_end], [500, 600]);
    }

    #[test]
    fn planes_of_a_family_share_a_launch() {
        let halved = |layout: PlaneLayout| PlaneLayout { sigma_scale: [0.5; 2], ..layout };
        let [luma, planar] = [layout(1, 8), halved(layout(1, 8))].map(|layout| blur_of(31, layout));
        let [wide_pair, chroma, deep] =
            [layout(2, 8), halved(layout(2, 8)), layout(1, 16)].map(|layout| blur_of(31, layout));
        let none = blur_of(1, layout(1, 8));
        let of = |blurs: &[&Operation]| -> Vec<usize> {
            blur_batches(blurs.iter().map(|blur| on_cuda_cores(blur))).iter().map(Vec::len).collect()
        };
        assert_eq!(of(&[&luma, &chroma]), [2]);
        assert_eq!(of(&[&luma, &planar, &planar, &luma]), [4]);
        // These cannot share a launch: a third pair of taps, another kind of samples, a ninth plane.
        assert_eq!(of(&[&luma, &planar, &none]), [2, 1]);
        assert_eq!(of(&[&luma, &deep]), [1, 1]);
        assert_eq!(of(&[&luma; 9]), [8, 1]);
        // Planes with the same taps share a slot, even with different numbers of channels.
        let both = blur_batches([&luma, &wide_pair, &planar].map(on_cuda_cores));
        assert_eq!((both.len(), slots(&both[0]).len()), (1, 2));
    }

    #[test]
    fn blocks_of_planes_follow_each_other() {
        let (luma, chroma) = (layout(1, 8), PlaneLayout { width: 960, height: 540, ..layout(2, 8) });
        let [luma, chroma] = [luma, chroma].map(|layout| blur_of(7, layout));
        let all = blur_batches([&luma, &chroma].map(on_cuda_cores)).remove(0);
        let [rows, columns] = axis::direct_launches(&all, 0);
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
