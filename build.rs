// SPDX-License-Identifier: MPL-2.0
//! Hands the commit and its date to the plugin description, and the numbers of kernels/shared.h to `src/cuda/launch.rs`.

use std::fmt::Write;
use std::path::Path;

fn main() {
    gst_plugin_version_helper::info();

    let header = Path::new("kernels").join("shared.h");
    println!("cargo:rerun-if-changed={}", header.display());
    let text = std::fs::read_to_string(&header).expect("kernels/shared.h is part of the source");
    let mut constants = String::new();
    for line in text.lines().filter_map(|line| line.strip_prefix("#define BLUR_")) {
        if let Some((name, value)) = line.split_once(' ') {
            let value: u32 = value.trim().parse().expect("kernels/shared.h defines plain numbers");
            writeln!(constants, "pub const {name}: u32 = {value};").expect("a string takes everything");
        }
    }
    let out = std::env::var_os("OUT_DIR").expect("cargo sets it");
    std::fs::write(Path::new(&out).join("kernel_geometry.rs"), constants).expect("cargo's folder can be written to");
}
