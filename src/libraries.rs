// SPDX-License-Identifier: MPL-2.0
//! The libraries that are opened at run time: their file names on each system, and their functions.

/// The file names on one system.
pub struct System {
    /// NVIDIA's driver. This name is only for messages: cudarc opens the driver and tries more names.
    pub driver: &'static str,
    /// The names of NVRTC in the order of preference. NVIDIA names the library after the first version with the same interface.
    pub nvrtc: &'static [&'static str],
    /// The parts of a GStreamer library's file name before and after the name of the library. They are the same in all versions.
    /// On Windows they are those of a Visual C++ build.
    gstreamer: [&'static str; 2],
}

impl System {
    /// Linux, Jetson and any other Unix.
    const LINUX: Self = Self {
        driver: "libcuda.so.1",
        nvrtc: &["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12"],
        gstreamer: ["libgst", "-1.0.so.0"],
    };
    /// NVIDIA has no current NVRTC for macOS.
    const MAC_OS: Self = Self { driver: "libcuda.dylib", nvrtc: &[], gstreamer: ["libgst", "-1.0.0.dylib"] };
    const WINDOWS: Self = Self {
        driver: "nvcuda.dll",
        nvrtc: &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll"],
        gstreamer: ["gst", "-1.0-0.dll"],
    };

    /// The system that this crate is compiled for.
    pub const CURRENT: Self = if cfg!(windows) {
        Self::WINDOWS
    } else if cfg!(target_os = "macos") {
        Self::MAC_OS
    } else {
        Self::LINUX
    };

    /// The file name of a GStreamer library, such as `cuda`.
    fn gstreamer(&self, library: &str) -> String {
        let [before, behind] = self.gstreamer;
        format!("{before}{library}{behind}")
    }
}

/// The file name of a library, such as `cuda`, of the GStreamer in this process. A GStreamer for Windows that was built with
/// MinGW has names that begin with `lib`, whichever compiler built the plugin.
pub fn gstreamer_file(library: &str) -> String {
    let name = System::CURRENT.gstreamer(library);
    #[cfg(windows)]
    if libloading::os::windows::Library::open_already_loaded("libgstreamer-1.0-0.dll").is_ok() {
        return format!("lib{name}");
    }
    name
}

/// Opens a GStreamer library, such as `cuda`. Returns `None` if it cannot be opened. The library is never closed, because GObject
/// types that it registers point into it.
pub fn open_gstreamer(library: &str) -> Option<&'static libloading::Library> {
    // SAFETY: the initialisers of GStreamer's libraries, and of the libraries that these link, only register their own data.
    let library = unsafe { libloading::Library::new(gstreamer_file(library)) }.ok()?;
    Some(Box::leak(Box::new(library)))
}

/// Declares a struct of functions of a library, with a method for each function. `load` finds the functions by their symbols.
///
/// The parameters and results have the types of the library's headers, or types with the same representation. A function is
/// declared under `safe` if it accepts every value of its parameters' types, and under `unsafe` if its caller has to guarantee
/// more. `load` fails with the first symbol that is missing. A function under `optional` is safe and may be missing; its method
/// then returns `None`.
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
            /// Finds the functions in the library. `Err` has the first symbol that is missing.
            fn load(library: &'static libloading::Library) -> Result<Self, &'static str> {
                macro_rules! symbol {
                    ($symbol:literal) => {
                        // SAFETY: the field that gets the address has the type of the function of this name in the library's
                        // headers. If this type is a safe function, the function accepts every value of its parameters. The
                        // library is never closed, so the address stays valid.
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
                    // SAFETY: the caller guarantees the conditions in the documentation of the method, which are those of the
                    // function.
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
