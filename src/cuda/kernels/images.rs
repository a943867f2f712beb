// SPDX-License-Identifier: MPL-2.0
//! The prebuilt images: which one suits a device, decompressing and loading it. `scripts/build-kernels` makes them.

use std::sync::Arc;

use super::abi::{Kernel, WideKernels};
use crate::cuda::driver::device::Device;
use crate::cuda::driver::{Function, Module};
use crate::cuda::error::CudaError;
use crate::log::Level;
use crate::process::log;

/// The images that a device can load its kernels from. All give the same bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Image {
    /// Machine code for the device's architecture if there is any, else the portable PTX.
    #[default]
    Best,
    /// The portable PTX, which the driver compiles when it is loaded.
    Portable,
}

impl Image {
    /// The number of variants.
    pub const COUNT: usize = 2;
}

/// Machine code by compute capability, compressed with zstd.
macro_rules! cubins {
    ($(($major:literal, $minor:literal, $name:literal)),*) => {
        [$((
            ($major, $minor),
            concat!("general-", $name),
            include_bytes!(concat!("../../../kernels/prebuilt/", $name, ".cubin.zst")),
        )),*]
    };
}

/// Compute capability from which kernels can wait for the one ahead of them.
const OVERLAP_CAPABILITY: (i32, i32) = (9, 0);

/// Compute capability, name, compressed image.
type Cubin = ((i32, i32), &'static str, &'static [u8]);

static CUBINS: [Cubin; 8] = cubins![
    (7, 5, "sm_75"),
    (8, 0, "sm_80"),
    (8, 6, "sm_86"),
    (8, 9, "sm_89"),
    (9, 0, "sm_90"),
    (10, 0, "sm_100"),
    (10, 3, "sm_103"),
    (12, 0, "sm_120")
];

static PORTABLE: (&str, &[u8]) = ("general-ptx", include_bytes!("../../../kernels/prebuilt/sm_60.ptx.zst"));

/// The kernels of one image, loaded into one context.
pub struct PrebuiltKernels {
    name: &'static str,
    /// By [`Kernel::index`].
    functions: [Option<Function>; Kernel::INDICES],
    /// Keeps the functions loaded.
    _module: Module,
}

impl PrebuiltKernels {
    /// Loads an image into the device's context.
    pub fn load(image: Image, device: &Arc<Device>) -> Result<Self, CudaError> {
        let best = best_for(device.capability());
        if image == Image::Portable || best.0 == PORTABLE.0 {
            return Self::load_compressed(PORTABLE, device);
        }
        // A driver need not load machine code of a later toolkit; it does load the PTX.
        Self::load_compressed(best, device).or_else(|error| {
            log(Level::Warning, &format!("{} cannot be used ({error}); using the portable kernels", best.0));
            Self::load_compressed(PORTABLE, device)
        })
    }

    fn load_compressed((name, compressed): (&'static str, &[u8]), device: &Arc<Device>) -> Result<Self, CudaError> {
        // SAFETY: the embedded images are complete.
        let module = unsafe { Module::load(decompress(compressed), device) }?;
        let mut functions = [None; Kernel::INDICES];
        for kernel in Kernel::prebuilt(wide_kernels(name)) {
            functions[kernel.index()] = Some(module.function(&kernel.entry_point())?);
        }
        Ok(Self { name, functions, _module: module })
    }

    /// `general-` and the architecture that the image was built for, or `ptx`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// The image's kernels for the wide form.
    pub fn wide_kernels(&self) -> WideKernels {
        wide_kernels(self.name)
    }

    /// Whether launches may overlap, see [`can_overlap`].
    pub fn can_overlap(&self) -> bool {
        can_overlap(self.name)
    }

    /// A kernel of the image.
    pub fn function(&self, kernel: Kernel) -> Function {
        self.functions[kernel.index()].expect("a recording has the kernels of the image that it is for")
    }
}

/// int8 tensor cores with the shape that the kernels use, and asynchronous copies, come with sm_80.
fn wide_kernels(image: &str) -> WideKernels {
    let is_older = image == PORTABLE.0 || image == CUBINS[0].1;
    if is_older { WideKernels::CudaCores } else { WideKernels::TensorCores }
}

/// Whether kernels of the image wait for the one ahead of them where they may start before it has finished: if they were compiled
/// for sm_90 or later. The portable PTX does not, whatever device it runs on.
fn can_overlap(image: &str) -> bool {
    CUBINS.iter().any(|(capability, name, _)| *name == image && *capability >= OVERLAP_CAPABILITY)
}

/// Machine code runs on devices of its own major compute capability with the same or a higher minor one.
fn best_for((major, minor): (i32, i32)) -> (&'static str, &'static [u8]) {
    let fits = |((built, least), ..): &&Cubin| *built == major && *least <= minor;
    CUBINS.iter().rfind(fits).map_or(PORTABLE, |(_, name, compressed)| (*name, *compressed))
}

fn decompress(compressed: &[u8]) -> Vec<u8> {
    let mut image = Vec::new();
    let decoder = ruzstd::decoding::StreamingDecoder::new(compressed);
    let read = decoder.map(|mut decoder| std::io::Read::read_to_end(&mut decoder, &mut image));
    assert!(matches!(read, Ok(Ok(_))), "the images are embedded at build time");
    image
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_overlap_in_images_that_wait() {
        let images = CUBINS.map(|(_, name, _)| name).into_iter().chain([PORTABLE.0]);
        let overlap: Vec<&str> = images.filter(|name| can_overlap(name)).collect();
        assert_eq!(overlap, ["general-sm_90", "general-sm_100", "general-sm_103", "general-sm_120"]);
        assert!(!can_overlap(best_for((11, 0)).0), "a device of 9.0 or later whose kernels are the portable ones");
    }

    #[test]
    fn a_device_gets_the_nearest_image_of_its_major_version() {
        for (capability, name) in [
            ((6, 1), "general-ptx"),
            ((7, 0), "general-ptx"),
            ((7, 5), "general-sm_75"),
            ((8, 0), "general-sm_80"),
            ((8, 7), "general-sm_86"),
            ((8, 9), "general-sm_89"),
            ((9, 0), "general-sm_90"),
            ((10, 1), "general-sm_100"),
            ((10, 3), "general-sm_103"),
            ((11, 0), "general-ptx"),
            ((12, 1), "general-sm_120"),
            ((13, 0), "general-ptx"),
        ] {
            assert_eq!(best_for(capability).0, name, "{capability:?}");
        }
    }

    /// CUBINs are ELF files, the portable image is PTX, and each contains the kernels that it should.
    #[test]
    fn every_image_holds_every_kernel() {
        for kernels in [WideKernels::CudaCores, WideKernels::TensorCores].map(Kernel::prebuilt) {
            let mut indices: Vec<usize> = kernels.iter().map(|kernel| kernel.index()).collect();
            indices.sort_unstable();
            assert!(indices.is_sorted_by(|a, b| a < b) && indices.last() < Some(&Kernel::INDICES));
        }
        assert!(CUBINS[0].0 < (8, 0) && CUBINS[1..].iter().all(|(capability, ..)| *capability >= (8, 0)));
        let images = CUBINS.iter().map(|(_, name, compressed)| (*name, *compressed)).chain([PORTABLE]);
        for (image, compressed) in images {
            let unpacked = decompress(compressed);
            let is_elf = unpacked.starts_with(b"\x7fELF");
            assert_eq!(is_elf, image != PORTABLE.0, "{image}");
            for name in Kernel::prebuilt(wide_kernels(image)).into_iter().map(Kernel::entry_point) {
                let marks = if is_elf { format!(".text.{name}\0") } else { format!(".entry {name}(") };
                assert!(unpacked.windows(marks.len()).any(|bytes| bytes == marks.as_bytes()), "{image} lacks {name}");
            }
        }
    }
}
