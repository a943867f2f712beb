// SPDX-License-Identifier: MPL-2.0
//! The prebuilt images: which part contains a kernel, which images suit a device, and how they are unpacked.
//! `scripts/build-kernels` makes the images from the list `kernels/parts.txt`, which the build script translates.

use std::io::{self, Read};

use super::abi::*;
use super::ptx;
use crate::cuda::error::CAPABILITY_NEEDED;
use crate::filter::wide::Factor;

include!(concat!(env!("OUT_DIR"), "/kernel_parts.rs"));

/// A kernel: its index in the list `kernels/parts.txt`. The build script makes a constant for each kernel, such as `ROWS` for
/// `blur_rows`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Kernel(usize);

impl std::fmt::Debug for Kernel {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.entry_point())
    }
}

impl Kernel {
    /// Returns the kernel whose entry point is the concatenation of these pieces.
    fn named(pieces: [&str; 4]) -> Self {
        let is_named = |(name, ..): &(&str, Part, bool)| {
            pieces.iter().try_fold(*name, |rest, piece| rest.strip_prefix(piece)) == Some("")
        };
        Self(KERNELS.iter().position(is_named).expect("kernels/parts.txt has the kernels of all families"))
    }

    /// The tensor-core kernel of the direct form for a family of pixels, and for radii up to the one that `radius` names.
    pub fn tensor_direct(family: PixelFamily, radius: &str) -> Self {
        Self::named(["blur_tensor_direct_", family.name(), "_", radius])
    }

    /// The tensor-core kernel that decimates pixels of a family or interpolates to them; `step` says which. Planes of one and two
    /// channels share kernels and launches, as do luma and chroma of packed 4:2:2. Other families have a kernel for each factor.
    pub fn tensor_level(step: &str, family: PixelFamily, factor: Factor) -> Self {
        let factor = match (family, factor) {
            (PixelFamily::U8C12 | PixelFamily::U16C12 | PixelFamily::Yuv422, _) => "",
            (_, Factor::Four) => "_s4",
            _ => "_s2",
        };
        Self::named(["blur_", step, family.name(), factor])
    }

    /// All kernels of images with this set.
    pub fn prebuilt(kernel_set: KernelSet) -> impl Iterator<Item = Self> {
        (0..KERNELS.len())
            .map(Self)
            .filter(move |kernel| kernel_set == KernelSet::TensorCores || !kernel.needs_tensor_cores())
    }

    /// Whether only images with tensor-core kernels have this kernel.
    pub fn needs_tensor_cores(self) -> bool {
        KERNELS[self.0].2
    }

    /// The name of the kernel in its image.
    pub fn entry_point(self) -> &'static str {
        KERNELS[self.0].0
    }

    /// The part of the images that contains the kernel.
    pub fn part(self) -> Part {
        KERNELS[self.0].1
    }

    /// The number of threads of a block.
    pub(super) fn threads(self) -> u32 {
        let is_tensor = |step: &str| self.entry_point().starts_with(step);
        match self {
            Self::ROWS => 32 * ROWS_WARPS,
            Self::COLUMNS => 32 * COLUMNS_WARPS,
            Self::PREMULTIPLY | Self::UNPREMULTIPLY => ALPHA_THREADS,
            Self::COVER => COVER_THREADS,
            Self::MOSAIC_SUMS | Self::MOSAIC_WRITE => MOSAIC_THREADS,
            Self::SOFT_SPREAD => SOFT_SPREAD_THREADS,
            Self::SOFT_CELLS | Self::SOFT_MIX => SOFT_THREADS,
            _ if is_tensor("blur_tensor_direct") => 32 * TENSOR_DIRECT_WARPS,
            _ if is_tensor("blur_tensor_decimate") => 32 * TENSOR_DECIMATE_WARPS,
            _ if is_tensor("blur_tensor_blur") => 32 * TENSOR_BLUR_WARPS,
            _ if is_tensor("blur_tensor_interpolate") => 32 * TENSOR_INTERPOLATE_WARPS,
            _ => 32 * LEVEL_WARPS,
        }
    }
}

/// A group of architectures whose images are in the same files.
struct Group {
    /// Whether the images are PTX, which the driver compiles.
    is_portable: bool,
    /// The architectures, in the order of their compute capabilities.
    images: &'static [ImageName],
    /// The file of each part; `None` for a part that no image of the group has.
    files: [Option<&'static [u8]>; Part::ALL.len()],
}

/// An architecture of a group.
struct ImageName {
    /// The compute capability that the image was built for.
    capability: (i32, i32),
    /// `general-` and the architecture, or `general-ptx`.
    name: &'static str,
}

/// The images for one architecture, one for each part.
#[derive(Clone, Copy)]
pub struct ImageSet {
    group: &'static Group,
    image: &'static ImageName,
}

/// Whether kernels that were compiled for this capability support programmatic dependent launch: they may start before the
/// previous kernel has finished, but wait for it before they access memory.
pub fn waits_for_previous(capability: (i32, i32)) -> bool {
    capability >= (9, 0)
}

/// The compute capabilities of NVIDIA's systems on a chip: Xavier, Orin, and Thor by its names in CUDA 12 and 13. These devices
/// load no machine code for other devices, and no other device loads theirs.
const ON_A_CHIP: [(i32, i32); 4] = [(7, 2), (8, 7), (10, 1), (11, 0)];

impl ImageSet {
    /// All sets of images.
    fn all() -> impl Iterator<Item = Self> {
        GROUPS.iter().flat_map(|group| group.images.iter().map(move |image| Self { group, image }))
    }

    /// The PTX for a device: that for the highest capability that does not exceed the device's.
    pub fn portable_for(capability: (i32, i32)) -> Self {
        let is_right = |set: &Self| set.is_portable() && set.image.capability <= capability.max(CAPABILITY_NEEDED);
        let fitting = Self::all().filter(is_right).max_by_key(|set| set.image.capability);
        fitting.expect("there is PTX for the oldest devices")
    }

    /// The fastest images for a device. Machine code runs on devices with the same major compute capability and with the same or
    /// a higher minor one, except on systems on a chip.
    pub fn best_for(capability: (i32, i32)) -> Self {
        let fits = |set: &Self| {
            let built = set.image.capability;
            if ON_A_CHIP.contains(&built) || ON_A_CHIP.contains(&capability) {
                return built == capability;
            }
            built.0 == capability.0 && built.1 <= capability.1
        };
        let cubins = Self::all().filter(|set| !set.is_portable() && fits(set));
        cubins.max_by_key(|set| set.image.capability).unwrap_or_else(|| Self::portable_for(capability))
    }

    /// Whether the images are the portable PTX.
    pub fn is_portable(&self) -> bool {
        self.group.is_portable
    }

    /// `general-` and the architecture that the images were built for, or `general-ptx`.
    pub fn name(&self) -> &'static str {
        self.image.name
    }

    /// The kernels that these images have.
    pub fn kernel_set(&self) -> KernelSet {
        if self.image.capability < TENSOR_CORES { KernelSet::CudaCores } else { KernelSet::TensorCores }
    }

    /// Whether kernels of these images support programmatic dependent launch, because they were compiled for sm_90 or later. For
    /// the portable PTX the target of the PTX counts, not the device.
    pub fn can_overlap(&self) -> bool {
        waits_for_previous(self.image.capability)
    }

    /// The kernels of a part in these images.
    pub fn kernels(&self, part: Part) -> impl Iterator<Item = Kernel> {
        Kernel::prebuilt(self.kernel_set()).filter(move |kernel| kernel.part() == part)
    }

    /// Unpacks the image of a part: a CUBIN, or PTX. Returns `None` if the set has no such part, or its file is damaged.
    pub fn unpack(&self, part: Part) -> Option<Vec<u8>> {
        let image = unpack(self.group.files[part as usize]?, self.image.capability).ok()?;
        if self.is_portable() { ptx::with_names(&image) } else { Some(image) }
    }
}

/// Unpacks the image for a compute capability. The rest of the file is not copied.
///
/// A file begins with an index, which has the compute capability (major * 10 + minor) and the length of each image, as 32-bit
/// little-endian numbers. Two zeros end the index. The images follow.
fn unpack(file: &[u8], (major, minor): (i32, i32)) -> io::Result<Vec<u8>> {
    let mut decoder = ruzstd::decoding::StreamingDecoder::new(file).map_err(io::Error::other)?;
    let wanted = (major * 10 + minor).unsigned_abs();
    let (mut ahead, mut found, mut image) = (0, None, Vec::new());
    loop {
        let mut entry = [0; 8];
        decoder.read_exact(&mut entry)?;
        let [capability, length] = [0, 4].map(|at| std::array::from_fn(|i| entry[at + i])).map(u32::from_le_bytes);
        match (capability, found) {
            (0, _) => break,
            (_, None) if capability == wanted => found = Some(length),
            (_, None) => ahead += u64::from(length),
            _ => (),
        }
    }
    let length = found.ok_or(io::ErrorKind::NotFound)?;
    io::copy(&mut decoder.by_ref().take(ahead), &mut io::sink())?;
    image.resize(length as usize, 0);
    decoder.read_exact(&mut image)?;
    Ok(image)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[cfg(feature = "cubins")]
    #[test]
    fn kernels_overlap_in_images_that_wait() {
        let overlap: Vec<&str> = ImageSet::all().filter(ImageSet::can_overlap).map(|set| set.name()).collect();
        let names = ["general-sm_90", "general-sm_100", "general-sm_110", "general-sm_120", "general-ptx"];
        assert_eq!(overlap, names);
        assert!(!ImageSet::portable_for((8, 9)).can_overlap(), "PTX for 8.0");
    }

    #[cfg(not(feature = "cubins"))]
    #[test]
    fn every_device_gets_the_ptx() {
        assert!(ImageSet::all().all(|set| set.is_portable()));
        for capability in [(6, 0), (7, 5), (8, 7), (9, 0), (12, 0)] {
            assert_eq!(ImageSet::best_for(capability).name(), "general-ptx", "{capability:?}");
        }
    }

    #[cfg(feature = "cubins")]
    #[test]
    fn a_device_gets_the_nearest_image_that_it_loads() {
        for (capability, name) in [
            ((6, 1), "general-ptx"),
            ((6, 2), "general-ptx"),
            ((7, 0), "general-ptx"),
            ((7, 2), "general-ptx"),
            ((7, 5), "general-sm_75"),
            ((8, 0), "general-sm_80"),
            ((8, 6), "general-sm_86"),
            // Only Orin loads Orin's image.
            ((8, 7), "general-sm_87"),
            ((8, 8), "general-sm_86"),
            ((8, 9), "general-sm_89"),
            ((9, 0), "general-sm_90"),
            ((10, 0), "general-sm_100"),
            // Thor, as a driver for CUDA 12 names it.
            ((10, 1), "general-ptx"),
            ((10, 3), "general-sm_100"),
            ((11, 0), "general-sm_110"),
            ((11, 1), "general-ptx"),
            ((12, 0), "general-sm_120"),
            ((12, 1), "general-sm_120"),
            ((13, 0), "general-ptx"),
        ] {
            assert_eq!(ImageSet::best_for(capability).name(), name, "{capability:?}");
        }
    }

    #[test]
    fn images_have_the_parts_of_their_kernels() {
        for set in ImageSet::all() {
            for part in Part::ALL {
                let has_image = set.unpack(part).is_some();
                assert_eq!(set.kernels(part).count() > 0, has_image, "{} of {}", part.name(), set.name());
            }
        }
    }

    #[test]
    fn a_device_gets_the_ptx_for_the_nearest_capability() {
        for (capability, ptx, kernel_set) in [
            ((6, 0), (6, 0), KernelSet::CudaCores),
            ((7, 2), (6, 0), KernelSet::CudaCores),
            ((7, 5), (7, 5), KernelSet::TensorCores),
            ((8, 0), (8, 0), KernelSet::TensorCores),
            ((8, 9), (8, 0), KernelSet::TensorCores),
            ((9, 0), (9, 0), KernelSet::TensorCores),
            ((13, 0), (9, 0), KernelSet::TensorCores),
        ] {
            let set = ImageSet::portable_for(capability);
            assert_eq!((set.image.capability, set.kernel_set()), (ptx, kernel_set), "{capability:?}");
            assert_eq!((set.name(), set.can_overlap()), ("general-ptx", ptx >= (9, 0)));
        }
    }

    /// All families have kernels with the names that the code makes.
    #[test]
    fn kernels_have_names() {
        for family in PixelFamily::ALL {
            for radius in ["short", "medium", "long"] {
                assert!(Kernel::tensor_direct(family, radius).entry_point().ends_with(radius));
            }
            for factor in [Factor::Two, Factor::Four] {
                let of = |step| Kernel::tensor_level(step, family, factor).entry_point();
                assert_ne!(of("tensor_decimate_"), of("tensor_interpolate_"));
            }
        }
        assert_eq!(
            format!("{:?}", Kernel::tensor_level("tensor_decimate_", PixelFamily::U8C4, Factor::Two)),
            "blur_tensor_decimate_u8_c4_s2"
        );
    }

    /// CUBINs are ELF files for the architecture in their name, and the portable images are PTX. Each image contains exactly the
    /// kernels of its part.
    #[test]
    fn every_image_holds_the_kernels_of_its_part() {
        let mut images = 0;
        for set in ImageSet::all() {
            for part in Part::ALL.into_iter().filter(|part| set.kernels(*part).count() > 0) {
                let what = format!("{} of {}", part.name(), set.name());
                let image = set.unpack(part).unwrap_or_else(|| panic!("{what} cannot be unpacked"));
                images += 1;
                let is_elf = image.starts_with(b"\x7fELF");
                assert_eq!(is_elf, !set.is_portable(), "{what}");
                let found = kernels_of(&image, is_elf);
                let mut expected: Vec<&str> = set.kernels(part).map(Kernel::entry_point).collect();
                expected.sort_unstable();
                assert_eq!(found, expected, "{what}");
                if is_elf {
                    let flags = u32::from_le_bytes(std::array::from_fn(|i| image[0x30 + i]));
                    let (major, minor) = set.image.capability;
                    let number = (major * 10 + minor).unsigned_abs();
                    // CUDA 13 has moved the architecture by one byte.
                    assert!([flags & 0xff, flags >> 8 & 0xff].contains(&number), "{what}: {flags:#x}");
                }
            }
        }
        let least = if cfg!(feature = "cubins") { 220 } else { 45 };
        assert!(images >= least, "{images}");
    }

    /// The sorted names of the kernels: from section names in a CUBIN, from entries in PTX.
    fn kernels_of(image: &[u8], is_elf: bool) -> Vec<String> {
        let (mark, end) = if is_elf { (".text.", '\0') } else { (".visible .entry ", '(') };
        let text: String = image.iter().map(|byte| char::from(*byte)).collect();
        let rests = text.split(mark).skip(1).filter_map(|rest| rest.split_once(end));
        let names = rests.map(|(name, _)| name.to_owned());
        let mut names: Vec<String> = names.filter(|name| name.starts_with("blur_")).collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    #[test]
    fn a_damaged_file_has_no_image() {
        let file = GROUPS[0].files[0].expect("the first part is in all groups");
        let capability = GROUPS[0].images[0].capability;
        assert!(unpack(file, capability).is_ok());
        assert!(unpack(file, (1, 2)).is_err(), "no image of the file is for 1.2");
        assert!(unpack(&file[..file.len() / 2], capability).is_err());
        assert!(unpack(b"no zstd", capability).is_err());
    }
}
