//! Runs every gst-launch line of the README and of the element's documentation, so that both stay correct. Only what a
//! test machine lacks is substituted: the camera, which also gets an end of stream, the display and the loudspeaker. Lines
//! with facedetect, which has a package of its own, need it. Also runs the README's C code in a small program.

mod common;

use std::path::PathBuf;
use std::process::{Command, Output};

use common::media;
use gst::prelude::*;

/// Elements of the README and their substitutes.
const SUBSTITUTES: [(&str, &str); 3] = [
    ("v4l2src", "videotestsrc num-buffers=30 pattern=smpte"),
    ("video-sink=autovideosink", "video-sink=fakesink audio-sink=fakesink"),
    ("autovideosink", "fakesink"),
];

/// A temporary folder with the plugin.
struct Workspace(PathBuf);

impl Workspace {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("cudagaussblur-{name}-{}", std::process::id()));
        std::fs::create_dir_all(folder.join("plugins")).unwrap();
        let plugin = std::env::current_exe().unwrap().with_file_name("libgstcudagaussblur.so");
        std::os::unix::fs::symlink(plugin, folder.join("plugins/libgstcudagaussblur.so")).unwrap();
        Self(folder)
    }

    /// Writes input.mp4, a clip of one second with sound.
    fn write_clip(&self) {
        let clip = "gst-launch-1.0 -q videotestsrc num-buffers=30 pattern=ball ! video/x-raw,width=320,height=240 ! \
                    x264enc ! mp4mux name=mux ! filesink location=input.mp4 audiotestsrc num-buffers=30 \
                    samplesperbuffer=1600 ! audio/x-raw,rate=48000 ! audioconvert ! avenc_aac ! mux.";
        assert_ok(clip, &self.run(clip));
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

/// The lines of a text's shell blocks that contain `command`, with continued lines joined.
fn lines(text: &str, command: &str) -> Vec<String> {
    let text = text.replace("\\\n", " ");
    let shell = text.split("```").skip(1).step_by(2).filter(|block| block.starts_with("sh\n"));
    shell.flat_map(str::lines).filter(|line| line.contains(command)).map(str::to_owned).collect()
}

/// The element's documentation, a comment in the form that GStreamer's documentation tools read.
fn section() -> String {
    let source = include_str!("../src/element/imp.rs");
    let (_, section) = source.split_once("/**\n * SECTION:element-cudagaussblur\n").unwrap();
    let (section, _) = section.split_once("\n */\n").unwrap();
    section.lines().map(|line| line.strip_prefix(" *").unwrap().trim_start().to_owned() + "\n").collect()
}

#[test]
fn documented_pipelines_run_without_leaks() {
    let workspace = Workspace::new("readme");
    workspace.write_clip();
    let [readme, section] = [include_str!("../README.md"), &section()].map(|text| lines(text, "gst-launch-1.0"));
    assert!(readme.len() >= 6 && section.len() >= 4, "{readme:?} {section:?}");
    let mut lines = readme;
    lines.extend(section);
    if !workspace.run("gst-inspect-1.0 --exists facedetect").status.success() {
        lines.retain(|line| !line.contains("facedetect"));
    }
    let mut with_sound = 0;
    for line in &lines {
        let runnable =
            SUBSTITUTES.iter().fold(line.clone(), |line, (element, substitute)| line.replace(element, substitute));
        let output = workspace.run(&runnable);
        assert_ok(&runnable, &output);
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(log.contains("blurring on"), "{runnable}\nthe blur did not start: {log}");
        if let Some((_, rest)) = line.split_once("filesink location=") {
            let file = workspace.0.join(rest.split_whitespace().next().unwrap());
            assert_eq!(media::frames(&file, "").len(), 30, "{runnable}");
            let (seconds, amplitude) = media::sound(&file);
            if line.contains("avenc_aac") {
                with_sound += 1;
                // A sine of amplitude 0.8: its mean is 0.8 times 2/pi.
                assert!((seconds - 1.0).abs() < 0.1 && (amplitude - 0.51).abs() < 0.1, "{runnable}: {seconds} s");
            } else {
                assert_eq!(seconds, 0.0, "{runnable}");
            }
        }
    }
    assert_eq!(with_sound, 1, "{lines:?}");
}

/// A program of which the README shows a part, `blur` being the element. It prints the numbers of the first zone.
const C_PROGRAM: &str = "\
#include <gst/gst.h>
int main (void) {
    gst_init (NULL, NULL);
    GstElement *blur = gst_element_factory_make (\"cudagaussblur\", NULL);
    g_assert_nonnull (blur);
    {
README
    }
    GValue value = G_VALUE_INIT;
    g_object_get_property (G_OBJECT (blur), \"zones\", &value);
    g_assert_cmpuint (gst_value_array_get_size (&value), ==, 1);
    const GstStructure *zone = gst_value_get_structure (gst_value_array_get_value (&value, 0));
    const char *const names[] = {\"x\", \"y\", \"width\", \"height\"};
    for (int i = 0; i < 4; i++) {
        double number = 0;
        g_assert_true (gst_structure_get_double (zone, names[i], &number));
        g_print (\"%s=%.1f \", names[i], number);
    }
    g_value_unset (&value);
    gst_object_unref (blur);
}
";

#[test]
fn c_code_of_the_readme_sets_zones() {
    let readme = include_str!("../README.md");
    let blocks: Vec<&str> =
        readme.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("c\n")).collect();
    assert_eq!(blocks.len(), 1, "{blocks:?}");
    let workspace = Workspace::new("readme-c");
    std::fs::write(workspace.0.join("zones.c"), C_PROGRAM.replace("README", blocks[0])).unwrap();
    let output =
        workspace.run("cc -Wall -Werror -o zones zones.c $(pkg-config --cflags --libs gstreamer-1.0) && ./zones");
    assert_ok(blocks[0], &output);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "x=0.1 y=0.1 width=0.3 height=0.4 ");
}

#[test]
fn readme_lists_every_property() {
    let element = common::video::element("");
    let readme = include_str!("../README.md");
    let own = element.list_properties().into_iter().filter(|pspec| pspec.owner_type() == element.type_());
    let names: Vec<String> = own.map(|pspec| pspec.name().to_owned()).collect();
    assert_eq!(names.len(), 27, "{names:?}");
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
