// SPDX-License-Identifier: MPL-2.0
//! The file names, on each system, of the libraries that are opened at run time.

/// A system, as far as these names differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum System {
    /// Also Jetson, and any other Unix.
    Linux,
    MacOs,
    /// GStreamer built with Visual C++.
    Windows,
    /// GStreamer built with MinGW.
    MinGw,
}

impl System {
    /// The one that this is compiled for.
    pub const CURRENT: Self = if cfg!(all(windows, target_env = "gnu")) {
        Self::MinGw
    } else if cfg!(windows) {
        Self::Windows
    } else if cfg!(target_os = "macos") {
        Self::MacOs
    } else {
        Self::Linux
    };

    /// NVIDIA's driver, for messages: cudarc opens it, and tries more names.
    pub const fn driver(self) -> &'static str {
        match self {
            Self::Linux => "libcuda.so.1",
            Self::MacOs => "libcuda.dylib",
            Self::Windows | Self::MinGw => "nvcuda.dll",
        }
    }

    /// NVRTC, the one to prefer first. NVIDIA names it after the first version with the same interface.
    pub const fn nvrtc(self) -> &'static [&'static str] {
        match self {
            Self::Linux => &["libnvrtc.so", "libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so.11.2"],
            // NVIDIA has no current one there.
            Self::MacOs => &[],
            Self::Windows | Self::MinGw => &["nvrtc64_130_0.dll", "nvrtc64_120_0.dll", "nvrtc64_112_0.dll"],
        }
    }

    /// A library of GStreamer, such as `cuda`. The same in all versions.
    pub fn gstreamer(self, library: &str) -> String {
        match self {
            Self::Linux => format!("libgst{library}-1.0.so.0"),
            Self::MacOs => format!("libgst{library}-1.0.0.dylib"),
            Self::Windows => format!("gst{library}-1.0-0.dll"),
            Self::MinGw => format!("libgst{library}-1.0-0.dll"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::System;

    #[test]
    fn names_are_those_of_the_system() {
        let names = |system: System| {
            let mut names = vec![system.driver().to_owned(), system.gstreamer("cuda"), system.gstreamer("analytics")];
            names.extend(system.nvrtc().iter().map(|name| (*name).to_owned()));
            names
        };
        assert_eq!(
            names(System::Linux),
            [
                "libcuda.so.1",
                "libgstcuda-1.0.so.0",
                "libgstanalytics-1.0.so.0",
                "libnvrtc.so",
                "libnvrtc.so.13",
                "libnvrtc.so.12",
                "libnvrtc.so.11.2",
            ]
        );
        assert_eq!(
            names(System::Windows),
            [
                "nvcuda.dll",
                "gstcuda-1.0-0.dll",
                "gstanalytics-1.0-0.dll",
                "nvrtc64_130_0.dll",
                "nvrtc64_120_0.dll",
                "nvrtc64_112_0.dll",
            ]
        );
        assert_eq!(System::MinGw.gstreamer("cuda"), "libgstcuda-1.0-0.dll");
        assert_eq!(System::MacOs.gstreamer("analytics"), "libgstanalytics-1.0.0.dylib");
        for name in names(System::CURRENT) {
            assert!(name.contains(std::env::consts::DLL_EXTENSION), "{name}");
        }
    }
}
