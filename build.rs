// SPDX-License-Identifier: MPL-2.0
//! Build script: passes the commit, its date and whether the code is optimised to the plugin, and translates
//! `kernels/abi.h` and `kernels/parts.txt` to Rust.
//!
//! `OUT_DIR/kernel_abi.rs` has the header's constants, its structs with the offsets of their fields, and its pixel families as
//! an enum, so that the host and the kernels cannot disagree. The parser knows only the forms that the header announces and
//! rejects every other line; the host has all fields of all kernels, so conditions count for nothing. `OUT_DIR/kernel_parts.rs`
//! has the parts of the prebuilt kernels as an enum, the kernels as a list and as constants, and the groups of architectures with
//! their files: of all groups with the feature `cubins`, else of the PTX alone. The environment variable `CUDAGAUSSBLUR_PTX` names
//! a folder to take the PTX from instead of `kernels/prebuilt/ptx`; `scripts/build-kernels --ptx` fills one.

use std::fmt::Write;
use std::path::Path;
use std::{env, fs};

const HEADER: &str = "kernels/abi.h";
const PARTS: &str = "kernels/parts.txt";
const PTX_FOLDER: &str = "CUDAGAUSSBLUR_PTX";
/// The first architecture with tensor cores that multiply bytes.
const TENSOR_CORES: i32 = 75;

fn main() {
    gst_plugin_version_helper::info();
    // Of the profile that compiles this crate, not of the program that links it.
    println!("cargo:rustc-check-cfg=cfg(unoptimised)");
    if env::var("OPT_LEVEL").is_ok_and(|level| level == "0") {
        println!("cargo:rustc-cfg=unoptimised");
    }
    println!("cargo:rerun-if-env-changed={PTX_FOLDER}");

    let out_dir = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR for build scripts");
    for (source, name, translate) in [
        (HEADER, "kernel_abi.rs", translate as fn(&str) -> Result<String, String>),
        (PARTS, "kernel_parts.rs", translate_parts),
    ] {
        println!("cargo:rerun-if-changed={source}");
        let text = fs::read_to_string(source).unwrap_or_else(|error| panic!("{source}: {error}"));
        let rust = translate(&text).unwrap_or_else(|error| panic!("{error}"));
        let path = Path::new(&out_dir).join(name);
        fs::write(&path, rust).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    }
}

/// A struct whose closing brace has not been read yet.
struct Struct {
    name: String,
    docs: String,
    /// The fields as Rust source, each with its documentation.
    fields: String,
    names: Vec<String>,
    /// Whether the length of an array is a constant, which may be too long for a default value.
    has_long_array: bool,
}

/// Returns the header's declarations as Rust source. An error names the line that cannot be translated.
fn translate(header: &str) -> Result<String, String> {
    let mut rust = format!("// Generated from {HEADER} by build.rs.\n");
    let mut docs = String::new();
    let mut open: Option<Struct> = None;
    for (index, line) in header.lines().enumerate() {
        let line = line.trim();
        if let Some(comment) = line.strip_prefix("//") {
            docs += &format!("///{comment}\n");
            continue;
        }
        let docs = std::mem::take(&mut docs);
        // The host has all fields of all kernels.
        if ["#if", "#endif", "#define BLUR_ABI_H", "#define BLUR_FAR_TAPS"].iter().any(|it| line.starts_with(it)) {
            continue;
        }
        let translated = match &mut open {
            Some(item) if line == "};" => Some(struct_item(item)),
            Some(item) => field(line, &docs, item),
            None => declaration(line, &docs, &mut open),
        };
        rust += &translated.ok_or_else(|| format!("{HEADER}:{}: build.rs cannot translate `{line}`", index + 1))?;
        if line == "};" {
            open = None;
        }
    }
    open.map_or(Ok(rust), |item| Err(format!("{HEADER}: struct {} has no end", item.name)))
}

/// The comment of an item, or a short one for an item without.
fn docs_or(docs: &str, name: &str) -> String {
    if docs.is_empty() { format!("/// `{name}` in `{HEADER}`.\n") } else { docs.to_owned() }
}

/// A line outside structs: a constant, the list of pixel families, the start of a struct, or an assertion about a struct's
/// size.
fn declaration(line: &str, docs: &str, open: &mut Option<Struct>) -> Option<String> {
    if let Some(families) = line.strip_prefix("#define BLUR_FAMILIES(X) ") {
        return pixel_family(families, docs);
    }
    if let Some((name, value)) = line.strip_prefix("#define BLUR_").and_then(|define| define.split_once(' ')) {
        let (docs, value) = (docs_or(docs, &format!("BLUR_{name}")), value.trim().parse::<u32>().ok()?);
        return Some(format!("{docs}pub const {name}: u32 = {value};\n"));
    }
    if let Some(name) = line.strip_prefix("struct ").and_then(|rest| rest.strip_suffix(" {")) {
        *open = Some(Struct {
            name: name.to_owned(),
            docs: docs_or(docs, name),
            fields: String::new(),
            names: Vec::new(),
            has_long_array: false,
        });
        return Some(String::new());
    }
    if let Some(assertion) = line.strip_prefix("static_assert(sizeof(") {
        let (name, size) = assertion.split_once(',')?.0.split_once(") == BLUR_")?;
        // CUDA needs 64 bits; on some systems with less, addresses have another alignment.
        return Some(format!(
            "#[cfg(target_pointer_width = \"64\")]\nconst _: () = assert!(size_of::<{name}>() == {size} as usize);\n"
        ));
    }
    line.is_empty().then(String::new)
}

/// A field, `type name;` or `type name[length]...;`, which is added to the struct. Pointers become addresses.
fn field(line: &str, docs: &str, item: &mut Struct) -> Option<String> {
    let (c_type, declarator) = line.strip_suffix(';')?.rsplit_once(' ')?;
    let mut rust_type = match c_type {
        "unsigned" => "u32",
        "int" => "i32",
        "unsigned short" => "u16",
        "unsigned long long" | "unsigned char*" | "const unsigned char*" => "u64",
        "ColumnsPlane" | "CoverRect" | "MosaicGrid" | "MosaicPlane" | "RowsPart" | "RowsPlane" | "SoftGrid"
        | "StoredChannel" | "TensorPlane" => c_type,
        _ => return None,
    }
    .to_owned();
    let mut parts = declarator.split('[');
    let name = parts.next()?;
    for length in parts.rev() {
        let length = length.strip_suffix(']')?;
        let named = length.strip_prefix("BLUR_").map(|name| format!("{name} as usize"));
        item.has_long_array |= named.is_some();
        rust_type = format!("[{rust_type}; {}]", named.unwrap_or_else(|| length.to_owned()));
    }
    item.fields += &format!("{}pub {name}: {rust_type},\n", docs_or(docs, &format!("{}::{name}", item.name)));
    item.names.push(name.to_owned());
    Some(String::new())
}

/// A struct and the offsets of its fields. A struct whose arrays have a number as their length also has a default value, all
/// zeros.
fn struct_item(item: &Struct) -> String {
    let Struct { name, docs, fields, names, has_long_array } = item;
    let default = if *has_long_array { "" } else { ", Default" };
    let offset = |field| format!("(\"{field}\", core::mem::offset_of!({name}, {field})),\n");
    let offsets: String = names.iter().map(offset).collect();
    format!(
        "{docs}#[repr(C)]\n#[derive(Debug, Clone, Copy, PartialEq, Eq{default})]\npub struct {name} {{\n{fields}}}\n\
         impl {name} {{\n/// The name of each field and its offset in bytes.\n\
         pub const OFFSETS: &'static [(&'static str, usize)] = &[\n{offsets}];\n}}\n"
    )
}

/// The enum of the pixel families: `u8_c12` becomes `U8C12`.
fn pixel_family(families: &str, docs: &str) -> Option<String> {
    let (mut variants, mut all, mut names, mut count) = (String::new(), String::new(), String::new(), 0);
    for family in families.split_whitespace() {
        let family = family.strip_prefix("X(")?.strip_suffix(')')?;
        let variant = variant(family)?;
        writeln!(variants, "/// `{family}`.\n{variant},").ok()?;
        write!(all, "Self::{variant}, ").ok()?;
        writeln!(names, "Self::{variant} => \"{family}\",").ok()?;
        count += 1;
    }
    let docs = docs_or(docs, "BLUR_FAMILIES");
    Some(format!(
        "{docs}#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]\npub enum PixelFamily {{\n{variants}}}\n\
         impl PixelFamily {{\n/// All families.\npub const ALL: [Self; {count}] = [{all}];\n\
         /// The suffix of the family's entry points.\n\
         pub fn name(self) -> &'static str {{\nmatch self {{\n{names}}}\n}}\n}}\n"
    ))
}

/// The name of an enum's variant: `u8_c12` becomes `U8C12`.
fn variant(name: &str) -> Option<String> {
    let capitalise = |word: &str| Some(word.get(..1)?.to_uppercase() + word.get(1..)?);
    name.split('_').map(capitalise).collect()
}

/// A line `group` of the list of parts: its name and its architectures.
type Group<'a> = (&'a str, Vec<i32>);
/// A line `part`: its name, which architectures have it, and its kernels.
type Part<'a> = (&'a str, &'a str, Vec<&'a str>);

/// Returns the parts as an enum and the groups as a table. An error names the line that cannot be translated.
fn translate_parts(list: &str) -> Result<String, String> {
    let (mut groups, mut parts): (Vec<Group>, Vec<Part>) = (Vec::new(), Vec::new());
    for (index, line) in list.lines().enumerate().filter(|(_, line)| !line.is_empty() && !line.starts_with('#')) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let error = || format!("{PARTS}:{}: build.rs cannot translate `{line}`", index + 1);
        match words[..] {
            ["group", name, ref architectures @ ..] if !architectures.is_empty() => {
                let numbers = architectures.iter().map(|architecture| architecture.parse()).collect::<Result<_, _>>();
                groups.push((name, numbers.map_err(|_| error())?));
            }
            ["part", name, needs @ ("all" | "tensor_cores"), ref kernels @ ..] if !kernels.is_empty() => {
                parts.push((name, needs, kernels.to_vec()));
            }
            _ => return Err(error()),
        }
    }
    let error = |_| format!("{PARTS}: the list cannot be written as Rust");
    let mut rust = format!("// Generated from {PARTS} by build.rs.\n");
    part_enum(&parts, &mut rust).map_err(error)?;
    if env::var_os("CARGO_FEATURE_CUBINS").is_none() {
        groups.retain(|(name, ..)| *name == "ptx");
    }
    group_table(&groups, &parts, &mut rust).map_err(error)?;
    Ok(rust)
}

/// The enum of the parts, the list of the kernels, and a constant for each.
fn part_enum(parts: &[Part], rust: &mut String) -> Result<(), std::fmt::Error> {
    let (mut variants, mut all, mut names) = (String::new(), String::new(), String::new());
    let (mut kernels, mut constants, mut kernel_count) = (String::new(), String::new(), 0);
    for (name, needs, entry_points) in parts {
        let variant = variant(name).ok_or(std::fmt::Error)?;
        writeln!(variants, "/// `{name}`.\n{variant},")?;
        write!(all, "Self::{variant}, ")?;
        writeln!(names, "Self::{variant} => \"{name}\",")?;
        for entry_point in entry_points {
            let constant = entry_point.trim_start_matches("blur_").to_uppercase();
            writeln!(constants, "/// `{entry_point}`.\npub const {constant}: Self = Self({kernel_count});")?;
            kernel_count += 1;
            writeln!(kernels, "({entry_point:?}, Part::{variant}, {}),", *needs != "all")?;
        }
    }
    writeln!(
        rust,
        "/// A part of the prebuilt kernels: those that share an image.\n\
         #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]\npub enum Part {{\n{variants}}}\n\
         impl Part {{\n/// All parts.\npub const ALL: [Self; {count}] = [{all}];\n\
         /// Its name in `{PARTS}`.\npub fn name(self) -> &'static str {{\nmatch self {{\n{names}}}\n}}\n}}\n\
         /// The entry point of every kernel, its part, and whether it is for tensor cores.\n\
         const KERNELS: [(&str, Part, bool); {kernel_count}] = [\n{kernels}];\n\
         impl Kernel {{\n{constants}}}",
        count = parts.len(),
    )
}

/// The table of the groups, each with the files that it has, in the order of the parts.
fn group_table(groups: &[Group], parts: &[Part], rust: &mut String) -> Result<(), std::fmt::Error> {
    let prebuilt = env::var("CARGO_MANIFEST_DIR").map_err(|_| std::fmt::Error)? + "/kernels/prebuilt";
    let ptx_folder = env::var(PTX_FOLDER).ok().filter(|folder| !folder.is_empty());
    let mut table = String::new();
    for (group, architectures) in groups {
        let (mut images, mut files) = (String::new(), String::new());
        for number in architectures {
            let name = if *group == "ptx" { "ptx".to_owned() } else { format!("sm_{number}") };
            let (major, minor) = (number / 10, number % 10);
            writeln!(images, "ImageName {{ capability: ({major}, {minor}), name: \"general-{name}\" }},")?;
        }
        for (part, needs, _) in parts {
            let path = match &ptx_folder {
                Some(folder) if *group == "ptx" => format!("{folder}/{part}.zst"),
                _ => format!("{prebuilt}/{group}/{part}.zst"),
            };
            if *needs == "all" || architectures.iter().any(|number| *number >= TENSOR_CORES) {
                writeln!(files, "Some(include_bytes!({path:?})),")?;
            } else {
                writeln!(files, "None,")?;
            }
        }
        let is_portable = *group == "ptx";
        writeln!(table, "Group {{\nis_portable: {is_portable},\nimages: &[\n{images}],\nfiles: [\n{files}],\n}},")?;
    }
    writeln!(
        rust,
        "/// The first capability with tensor cores that multiply bytes.\n\
         const TENSOR_CORES: (i32, i32) = ({}, {});\n\
         /// The groups of architectures.\nstatic GROUPS: [Group; {}] = [\n{table}];",
        TENSOR_CORES / 10,
        TENSOR_CORES % 10,
        groups.len()
    )
}
