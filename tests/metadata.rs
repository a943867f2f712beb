//! What describes the plugin to others: its entry in GStreamer's registry, the files that repeat Cargo.toml, and the notices of the
//! crates in both plugins.

use std::process::Command;

use gst::prelude::*;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");
const VERSION: &str = env!("CARGO_PKG_VERSION");

#[test]
fn registry_entry() {
    gst::init().unwrap();
    gstcudagaussblur::plugin_register_static().unwrap();
    let factory = gst::ElementFactory::find("cudagaussblur").unwrap();
    let plugin = factory.plugin().unwrap();
    assert_eq!(plugin.origin(), REPOSITORY);
    assert!(plugin.version().starts_with(VERSION), "{}", plugin.version());
    assert_eq!(factory.metadata("author"), Some("The cudagaussblur authors"));
    let name = factory.metadata("long-name").unwrap();
    assert!(name.contains("CUDA") && name.contains("CPU"), "{name}");
}

/// GStreamer makes a new factory for each registration and frees the one before, with the templates that other threads may be reading.
#[test]
fn further_registrations_do_nothing() {
    gst::init().unwrap();
    gstcudagaussblur::plugin_register_static().unwrap();
    std::thread::scope(|scope| {
        let again = || (0..2000).for_each(|_| gstcudagaussblur::plugin_register_static().unwrap());
        let again = [scope.spawn(again), scope.spawn(again)];
        while !again.iter().all(std::thread::ScopedJoinHandle::is_finished) {
            let templates = gst::ElementFactory::find("cudagaussblur").unwrap().static_pad_templates();
            assert!(templates.iter().all(|template| template.caps().size() > 0));
        }
    });
}

/// A plugin that is registered without its file has no date in the registry, so this reads the definition.
#[test]
fn the_definition_has_a_date() {
    unsafe extern "C" {
        fn gst_plugin_cudagaussblur_get_desc() -> *const gst::ffi::GstPluginDesc;
    }
    // SAFETY: gst::plugin_define defines the function, which returns a static with C strings.
    let date = unsafe { std::ffi::CStr::from_ptr((*gst_plugin_cudagaussblur_get_desc()).release_datetime) };
    let date = date.to_str().unwrap();
    assert!(date.starts_with("20") && date.len() == "2026-01-01".len(), "{date}");
}

#[test]
fn files_agree_with_cargo_toml() {
    assert_eq!(env!("CARGO_PKG_HOMEPAGE"), REPOSITORY);
    let cargo_toml = include_str!("../Cargo.toml");
    let date = cargo_toml.split("\nrelease_date = \"").nth(1).and_then(|rest| rest.split('"').next());
    let date = date.expect("Cargo.toml has the date of builds without git");
    for (file, text) in [
        ("CHANGELOG.md", "\n## Unreleased\n".to_owned()),
        ("Cargo.toml", format!("\ndocumentation = \"{REPOSITORY}/")),
        ("SECURITY.md", format!("({REPOSITORY}/security/advisories/new)")),
        ("meson.build", format!("\n  version: '{VERSION}',")),
        ("meson.build", format!("\n    url: '{REPOSITORY}',")),
        ("detectors/Cargo.toml", format!("\nrelease_date = \"{date}\"\n")),
        ("debian/changelog", format!("gst-plugin-cudagaussblur ({VERSION}~git{}) UNRELEASED;", date.replace('-', ""))),
        ("debian/control", format!("\nHomepage: {REPOSITORY}\n")),
    ] {
        let path = std::path::Path::new(ROOT).join(file);
        let content = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(content.contains(&text), "{file} lacks {text:?}");
    }
}

#[test]
fn notices_have_the_licence_of_every_crate_in_the_plugins() {
    let run = |command: &mut Command| {
        let output = command.current_dir(ROOT).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
        assert!(output.status.success(), "{command:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let (file, script) = (concat!(env!("CARGO_TARGET_TMPDIR"), "/THIRD-PARTY"), "scripts/third_party.py");
    let mut python = Command::new("scripts/python");
    python.arg("--").arg(script).args(["--cargo", env!("CARGO"), "--cargo-option=--offline", "--output"]).arg(file);
    run(python.args(["--", "rustc"]));
    let notices = std::fs::read_to_string(file).unwrap();

    // cargo's own list of both plugins, with a `(*)` after a crate that it has printed before and a path after a plugin.
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["tree", "--locked", "--offline", "--prefix=none", "--edges=normal,no-proc-macro", "--format={p}"]);
    let crates = run(&mut cargo);
    let others = crates.lines().filter(|line| !line.contains(ROOT));
    let names: Vec<_> = others.filter_map(|line| line.split_once(" v")).collect();
    assert!(names.len() > 30, "{crates}");
    for (name, version) in names {
        let version = version.split(' ').next().unwrap();
        assert!(notices.contains(&format!("\n{name} {version}: ")), "no notice of {name} {version}");
    }
    for other in ["syn ", "libblur ", "plotters ", "chrono "] {
        assert!(!notices.contains(&format!("\n{other}")), "{other}is in no plugin");
    }
    let paths = [ROOT, env!("CARGO_TARGET_TMPDIR")];
    assert!(!paths.iter().any(|path| notices.contains(path)), "a path of this machine");
}
