// SPDX-License-Identifier: MPL-2.0
//! The prebuilt kernels: which image fits a device, unpacked and loaded. `scripts/build-kernels` makes the images.

use super::device::Device;
use super::driver::{Function, Module};
use super::error::CudaError;
use super::launch::Kernel;
use crate::log::{Level, log};

/// The images that a device can take its kernels from. All give the same bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Image {
    /// Machine code for this very architecture where there is one, else the portable PTX.
    #[default]
    Best,
    /// The portable PTX, which the driver compiles when it is loaded.
    Portable,
}

impl Image {
    /// How many there are.
    pub const COUNT: usize = 2;
}

/// Machine code by compute capability, as zstd frames.
macro_rules! cubins {
    ($(($major:literal, $minor:literal, $name:literal)),*) => {
        [$((
            ($major, $minor),
            concat!("general-", $name),
            include_bytes!(concat!("../../kernels/prebuilt/", $name, ".cubin.zst")),
        )),*]
    };
}

/// Compute capability, name, packed image.
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

static PORTABLE: (&str, &[u8]) = ("general-ptx", include_bytes!("../../kernels/prebuilt/sm_60.ptx.zst"));

/// The kernels of one image, loaded into one context.
pub struct Kernels {
    name: &'static str,
    /// By [`Kernel::index`].
    functions: Vec<Function>,
    _module: Module,
}

impl Kernels {
    /// Loads an image into the device's context, which is current.
    pub(super) fn load(image: Image, device: &Device) -> Result<Self, CudaError> {
        let best = best_for(device.capability());
        if image == Image::Portable || best.0 == PORTABLE.0 {
            return Self::load_packed(PORTABLE, device);
        }
        // Machine code of a later toolkit than the driver's is not promised to load; the PTX is.
        Self::load_packed(best, device).or_else(|why| {
            log(Level::Warning, &format!("{} cannot be used ({why}); the portable kernels serve", best.0));
            Self::load_packed(PORTABLE, device)
        })
    }

    fn load_packed((name, packed): (&'static str, &[u8]), device: &Device) -> Result<Self, CudaError> {
        let mut unpacked = unpack(packed);
        // PTX is text, of which the driver finds the end by its NUL. A CUBIN does not mind.
        unpacked.push(0);
        // SAFETY: an image of our own, whole.
        let module = unsafe { Module::load(&unpacked, device.id()) }?;
        let function = |kernel: Kernel| module.function(&kernel.entry_point(), device.limits().shared_bytes);
        let functions = Kernel::prebuilt().map(function).collect::<Result<_, _>>()?;
        Ok(Self { name, functions, _module: module })
    }

    /// What people are told: `general-` and the architecture it was built for, or `ptx`.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// A prebuilt kernel.
    pub fn function(&self, kernel: Kernel) -> Function {
        self.functions[kernel.index()]
    }
}

/// Machine code runs on its own major version at the same or a higher minor one.
fn best_for((major, minor): (i32, i32)) -> (&'static str, &'static [u8]) {
    let fits = |((built, least), ..): &&Cubin| *built == major && *least <= minor;
    CUBINS.iter().rfind(fits).map_or(PORTABLE, |(_, name, packed)| (*name, *packed))
}

fn unpack(packed: &[u8]) -> Vec<u8> {
    let mut unpacked = Vec::new();
    let decoder = ruzstd::decoding::StreamingDecoder::new(packed);
    let read = decoder.map(|mut decoder| std::io::Read::read_to_end(&mut decoder, &mut unpacked));
    assert!(matches!(read, Ok(Ok(_))), "the images are embedded at build time");
    unpacked
}

#[cfg(test)]
mod tests {
    use super::*;

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

    /// What is embedded is what its name says: ELF files for CUDA with all kernels in them, and PTX with all kernels.
    #[test]
    fn every_image_holds_every_kernel() {
        assert!(Kernel::prebuilt().enumerate().all(|(index, kernel)| kernel.index() == index));
        let names: Vec<String> = Kernel::prebuilt().map(Kernel::entry_point).collect();
        let images = CUBINS.iter().map(|(_, name, packed)| (*name, *packed)).chain([PORTABLE]);
        for (image, packed) in images {
            let unpacked = unpack(packed);
            let is_elf = unpacked.starts_with(b"\x7fELF");
            assert_eq!(is_elf, image != PORTABLE.0, "{image}");
            for name in &names {
                let marks = if is_elf { format!(".text.{name}\0") } else { format!(".entry {name}(") };
                assert!(unpacked.windows(marks.len()).any(|bytes| bytes == marks.as_bytes()), "{image} lacks {name}");
            }
        }
    }
}
