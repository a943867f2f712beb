//! What packages rely on: the static library in a C program.

use std::path::Path;
use std::process::{Command, Output};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");

/// Runs a command, which must succeed.
fn run(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    assert!(status.success(), "{command:?}: {status}\n{}", String::from_utf8_lossy(&stderr));
    String::from_utf8(stdout).unwrap()
}

#[test]
fn a_c_program_links_the_plugin_statically() {
    let tests = std::env::current_exe().unwrap();
    let folder = tests.ancestors().nth(2).unwrap();
    let profile = folder.file_name().unwrap().to_str().unwrap().replace("debug", "dev");
    let mut cargo = Command::new(env!("CARGO"));
    cargo.args(["rustc", "--locked", "--quiet", "--lib", "--crate-type", "staticlib", "--profile", &profile]);
    run(cargo.arg("--target-dir").arg(folder.parent().unwrap()).current_dir(ROOT));

    let flags = ["--cflags", "--libs", "gstreamer-app-1.0", "gstreamer-video-1.0", "gio-2.0"];
    let flags = run(Command::new("pkg-config").args(flags));
    let program = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("static_c-{}", std::process::id()));
    let mut compiler = Command::new("cc");
    compiler.args(["-Wall", "-Werror", "-o"]).arg(&program).arg(Path::new(ROOT).join("tests/static_c/main.c"));
    compiler.arg(folder.join("libgstcudagaussblur.a")).args(flags.split_whitespace());
    run(compiler.args(["-lm", "-ldl", "-pthread"]));
    let registry = program.with_extension("registry");
    let printed = run(Command::new(&program).env("GST_REGISTRY", &registry));
    assert_eq!(printed, "the static plugin blurred a frame\n");
    for file in [program, registry] {
        std::fs::remove_file(file).unwrap();
    }
}
