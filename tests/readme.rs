//! Runs every gst-launch line of the README, so that the README stays correct. Only what a test machine lacks is
//! substituted: the camera, which also gets an end of stream, and the display. Lines with facedetect, which has a package
//! of its own, need it.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use gst::prelude::*;

/// Elements of the README and their substitutes.
const SUBSTITUTES: [(&str, &str); 2] =
    [("v4l2src", "videotestsrc num-buffers=30 pattern=smpte"), ("autovideosink", "fakesink")];

/// A temporary folder with the plugin and a short clip.
struct Workspace(PathBuf);

impl Workspace {
    fn new() -> Self {
        let folder = std::env::temp_dir().join(format!("cudagaussblur-readme-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("plugins")).unwrap();
        let plugin = std::env::current_exe().unwrap().with_file_name("libgstcudagaussblur.so");
        std::os::unix::fs::symlink(plugin, folder.join("plugins/libgstcudagaussblur.so")).unwrap();
        let this = Self(folder);
        let clip = "gst-launch-1.0 -q videotestsrc num-buffers=30 pattern=ball ! video/x-raw,width=320,height=240 ! \
                    x264enc ! mp4mux ! filesink location=input.mp4";
        assert_ok(clip, &this.run(clip));
        this
    }

    /// Runs a shell command in the folder, with GStreamer's leaks tracer on.
    fn run(&self, line: &str) -> Output {
        Command::new("sh")
            .args(["-c", line])
            .current_dir(&self.0)
            .env("GST_PLUGIN_PATH", self.0.join("plugins"))
            .env("GST_REGISTRY", self.0.join("registry.bin"))
            .env("GST_TRACERS", "leaks(filters=\"GstCudaGaussBlur,GstBuffer,GstBufferPool\")")
            .env("GST_DEBUG", "GST_TRACER:7,cudagaussblur:4")
            .env("GST_DEBUG_NO_COLOR", "1")
            // facedetect opens cascades that distributions do not have, and OpenCV prints errors about them.
            .env("OPENCV_LOG_LEVEL", "FATAL")
            .output()
            .unwrap()
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn assert_ok(line: &str, output: &Output) {
    let text = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
    assert!(output.status.success() && !text.contains("ERROR:"), "{line}\n{text}");
    assert!(!text.contains("object-alive, type-name=(string)Gst"), "{line}\nleaks: {text}");
}

/// The lines of the README's shell blocks that contain `command`, with continued lines joined.
fn lines(command: &str) -> Vec<String> {
    let readme = include_str!("../README.md").replace("\\\n", " ");
    let shell = readme.split("```").skip(1).step_by(2).filter(|block| block.starts_with("sh\n"));
    shell.flat_map(str::lines).filter(|line| line.contains(command)).map(str::to_owned).collect()
}

/// The number of frames in a video file.
fn frames(file: &Path) -> u64 {
    common::video::init();
    let line = format!("filesrc location={} ! decodebin ! fakesink name=sink sync=false", file.display());
    let pipeline = gst::parse::launch(&line).unwrap().downcast::<gst::Bin>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
    let end = pipeline.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(60), &kinds).unwrap();
    assert_eq!(end.type_(), gst::MessageType::Eos, "{end:?}");
    let stats = pipeline.by_name("sink").unwrap().property::<gst::Structure>("stats");
    pipeline.set_state(gst::State::Null).unwrap();
    stats.get::<u64>("rendered").unwrap()
}

#[test]
fn readme_pipelines_run_without_leaks() {
    let workspace = Workspace::new();
    let mut lines = lines("gst-launch-1.0");
    assert!(lines.len() >= 6, "{lines:?}");
    if !workspace.run("gst-inspect-1.0 --exists facedetect").status.success() {
        lines.retain(|line| !line.contains("facedetect"));
    }
    for line in &lines {
        let runnable =
            SUBSTITUTES.iter().fold(line.clone(), |line, (element, substitute)| line.replace(element, substitute));
        let output = workspace.run(&runnable);
        assert_ok(&runnable, &output);
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(log.contains("blurring on"), "{runnable}\nthe blur did not start: {log}");
        if let Some((_, file)) = line.split_once("filesink location=") {
            assert_eq!(frames(&workspace.0.join(file.trim())), 30, "{runnable}");
        }
    }
}

#[test]
fn readme_lists_every_property() {
    let element = common::video::element("");
    let readme = include_str!("../README.md");
    let own = element.list_properties().into_iter().filter(|pspec| pspec.owner_type() == element.type_());
    let names: Vec<String> = own.map(|pspec| pspec.name().to_owned()).collect();
    assert_eq!(names.len(), 22, "{names:?}");
    for name in &names {
        // Every property can be read, and a writable one accepts the value it reads as.
        let value = element.property_value(name);
        if element.find_property(name).unwrap().flags().contains(gst::glib::ParamFlags::WRITABLE) {
            element.set_property_from_value(name, &value);
        }
    }
    for name in names {
        assert!(readme.contains(&format!("| `{name}` |")), "the README has no row for {name}");
    }
}
