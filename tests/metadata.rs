//! What describes the plugin to others: its entry in GStreamer's registry, and the files that repeat Cargo.toml.

use gst::prelude::*;

const REPOSITORY: &str = env!("CARGO_PKG_REPOSITORY");
const VERSION: &str = env!("CARGO_PKG_VERSION");

#[test]
fn registry_entry() {
    gst::init().unwrap();
    gstcudagaussblur::register_static().unwrap();
    let factory = gst::ElementFactory::find("cudagaussblur").unwrap();
    let plugin = factory.plugin().unwrap();
    assert_eq!(plugin.origin(), REPOSITORY);
    assert!(plugin.version().starts_with(VERSION), "{}", plugin.version());
    assert_eq!(factory.metadata("author"), Some("The cudagaussblur authors"));
    let name = factory.metadata("long-name").unwrap();
    assert!(name.contains("CUDA") && name.contains("CPU"), "{name}");
}

#[test]
fn files_agree_with_cargo_toml() {
    assert_eq!(env!("CARGO_PKG_HOMEPAGE"), REPOSITORY);
    for (file, text) in [
        ("CHANGELOG.md", format!("\n## {VERSION}")),
        ("Cargo.toml", format!("\ndocumentation = \"{REPOSITORY}/")),
        ("SECURITY.md", format!("({REPOSITORY}/security/advisories/new)")),
        ("meson.build", format!("\n  version: '{VERSION}',")),
        ("meson.build", format!("\n  url: '{REPOSITORY}',")),
        ("debian/changelog", format!("gst-plugin-cudagaussblur ({VERSION}) ")),
        ("debian/control", format!("\nHomepage: {REPOSITORY}\n")),
    ] {
        let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join(file);
        let content = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{file}: {error}"));
        assert!(content.contains(&text), "{file} lacks {text:?}");
    }
}
