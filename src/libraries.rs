// SPDX-License-Identifier: MPL-2.0
//! The libraries that are opened at run time: their file names on each system, and their functions.

/// The names on one system.
pub struct System {
    /// NVIDIA's driver, for messages: cudarc opens it, and tries more names.
    pub driver: &'static str,
    /// NVRTC, the one to prefer first. NVIDIA names it after the first version with the same interface.
    pub nvrtc: &'static [&'static str],
    /// What is before and behind the name of a library of GStreamer. The same in all versions; for Windows as Visual C++ builds it.
    gstreamer: [&'static str; 2],
}

impl System {
    /// Also Jetson, and any other Unix.
    const LINUX: Self = Self {
        driver: "libcuda.so.1",
        nvrtc: &["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"],
        gstreamer: ["libgst", "-1.0.so.0"],
    };
    /// NVIDIA has no current NVRTC there.
    const MAC_OS: Self = Self { driver: "libcuda.dylib", nvrtc: &[], gstreamer: ["libgst", "-1.0.0.dylib"] };
    const WINDOWS: Self = Self {
        driver: "nvcuda.dll",
        nvrtc: &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"],
        gstreamer: ["gst", "-1.0-0.dll"],
    };

    /// The one that this is compiled for.
    pub const CURRENT: Self = if cfg!(windows) {
        Self::WINDOWS
    } else if cfg!(target_os = "macos") {
        Self::MAC_OS
    } else {
        Self::LINUX
    };

    /// A library of GStreamer, such as `cuda`.
    fn gstreamer(&self, library: &str) -> String {
        let [before, behind] = self.gstreamer;
        format!("{before}{library}{behind}")
    }
}

/// The file name of a library of the GStreamer in this process, such as `cuda`. A GStreamer for Windows that MinGW has built
/// begins its names with `lib`, whichever compiler built the plugin.
pub fn gstreamer_file(library: &str) -> String {
    let name = System::CURRENT.gstreamer(library);
    #[cfg(windows)]
    if libloading::os::windows::Library::open_already_loaded("libgstreamer-1.0-0.dll").is_ok() {
        return format!("lib{name}");
    }
    name
}

/// Opens a library of GStreamer, such as `cuda`; `None` if it cannot be opened. It is never closed, because GObject types that
/// it registers point into it.
pub fn open_gstreamer(library: &str) -> Option<&'static libloading::Library> {
    // SAFETY: the initialisers of GStreamer's libraries and of the libraries that they link only register data of their own.
    let library = unsafe { libloading::Library::new(gstreamer_file(library)) }.ok()?;
    Some(Box::leak(Box::new(library)))
}

/// Declares a struct of functions of a library, which `load` finds by their symbols, with a method for each.
///
/// The parameters and results are the types of the library's headers, or types with the same representation. A function is
/// declared under `safe` if it accepts every value of its parameters' types, and under `unsafe` if its caller has to guarantee
/// more. `load` fails with the symbol of the first of them that is missing. A function under `optional` is a safe one that may
/// be missing; its method then returns `None`.
macro_rules! functions {
    (
        $(#[$doc:meta])*
        struct $name:ident {
            safe [$($(#[$safe_doc:meta])* $safe:ident$(<$safe_life:lifetime>)?
                ($($safe_arg:ident: $safe_type:ty),*) $(-> $safe_result:ty)? = $safe_symbol:literal;)*]
            $(unsafe [$($(#[$unsafe_doc:meta])* $unsafe:ident$(<$unsafe_life:lifetime>)?
                ($($unsafe_arg:ident: $unsafe_type:ty),*) $(-> $unsafe_result:ty)? = $unsafe_symbol:literal;)*])?
            $(optional [$($(#[$optional_doc:meta])* $optional:ident
                ($($optional_arg:ident: $optional_type:ty),*) -> $optional_result:ty = $optional_symbol:literal;)*])?
        }
    ) => {
        $(#[$doc])*
        struct $name {
            $($safe: $(for<$safe_life>)? extern "C" fn($($safe_type),*) $(-> $safe_result)?,)*
            $($($unsafe: $(for<$unsafe_life>)? unsafe extern "C" fn($($unsafe_type),*) $(-> $unsafe_result)?,)*)?
            $($($optional: Option<extern "C" fn($($optional_type),*) -> $optional_result>,)*)?
        }

        impl $name {
            /// Finds the functions in the library.
            fn load(library: &'static libloading::Library) -> Result<Self, &'static str> {
                macro_rules! symbol {
                    ($symbol:literal) => {
                        // SAFETY: the field that this is assigned to has the type of the function of this name in the
                        // library's headers, with parameters for which it is safe if the type is. The library is never
                        // closed, so the address stays valid.
                        unsafe { library.get($symbol) }.map(|symbol| *symbol).or(Err($symbol))
                    };
                }
                Ok(Self {
                    $($safe: symbol!($safe_symbol)?,)*
                    $($($unsafe: symbol!($unsafe_symbol)?,)*)?
                    $($($optional: symbol!($optional_symbol).ok(),)*)?
                })
            }
            $(
                $(#[$safe_doc])*
                fn $safe$(<$safe_life>)?(&self $(, $safe_arg: $safe_type)*) $(-> $safe_result)? {
                    (self.$safe)($($safe_arg),*)
                }
            )*
            $($(
                $(#[$unsafe_doc])*
                unsafe fn $unsafe$(<$unsafe_life>)?(&self $(, $unsafe_arg: $unsafe_type)*) $(-> $unsafe_result)? {
                    // SAFETY: the caller guarantees what the method's documentation asks for.
                    unsafe { (self.$unsafe)($($unsafe_arg),*) }
                }
            )*)?
            $($(
                $(#[$optional_doc])*
                fn $optional(&self $(, $optional_arg: $optional_type)*) -> Option<$optional_result> {
                    self.$optional.map(|function| function($($optional_arg),*))
                }
            )*)?
        }
    };
}
pub(crate) use functions;

#[cfg(test)]
mod tests {
    use super::System;

    #[test]
    fn names_are_those_of_the_system() {
        let gstreamer = System::CURRENT.gstreamer("analytics");
        for name in [System::CURRENT.driver, &gstreamer].iter().chain(System::CURRENT.nvrtc) {
            assert!(name.contains(std::env::consts::DLL_EXTENSION), "{name}");
        }
        assert_eq!(System::LINUX.gstreamer("cuda"), "libgstcuda-1.0.so.0");
    }
}
