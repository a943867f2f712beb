//! Runs every gst-launch line of README.md, of the pages in docs/ that show some to users, and of the element's documentation,
//! so that all stay correct. Only what a test machine lacks is substituted: the camera, which also gets an end of stream, the
//! display and the loudspeaker. Lines with an element of OpenCV, which has a package of its own, need it. Also runs the C code
//! of docs/PROPERTIES.md in a small program, and follows the links of all pages.

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use super::examples::Workspace;
use crate::common::media;
use gst::prelude::*;

const README: &str = include_str!("../../README.md");
const PROPERTIES: &str = include_str!("../../docs/PROPERTIES.md");

/// The pages whose commands are run: the number of their gst-launch lines, and of those with sound.
const PAGES: [(&str, &str, usize, usize); 6] = [
    ("README.md", README, 6, 1),
    ("docs/INSTALL.md", include_str!("../../docs/INSTALL.md"), 2, 0),
    ("docs/PROPERTIES.md", PROPERTIES, 1, 0),
    ("docs/FORMATS.md", include_str!("../../docs/FORMATS.md"), 0, 0),
    ("docs/HIDING.md", include_str!("../../docs/HIDING.md"), 5, 0),
    ("docs/MESSAGES.md", include_str!("../../docs/MESSAGES.md"), 1, 0),
];

/// The other commands of these pages, and what runs them.
const OTHER_COMMANDS: [(&str, &str); 10] = [
    ("scripts/demo", "tests/suite/examples.rs"),
    ("scripts/models", "scripts/demo"),
    ("scripts/setup", "scripts/demo and scripts/test"),
    ("scripts/test", "continuous integration"),
    ("examples/virtual_camera.py", "tests/suite/examples.rs"),
    ("GST_PLUGIN_PATH=$PWD/target/release examples/hide.py", "tests/suite/hide.rs"),
    ("examples/boxes_from_file.py", "tests/suite/hide.rs"),
    ("meson setup", ".ci/run"),
    ("meson compile", ".ci/run"),
    ("gst-inspect-1.0 cudagaussblur", "this file"),
];

/// Elements of the commands and their substitutes.
const SUBSTITUTES: [(&str, &str); 3] = [
    ("v4l2src", "videotestsrc num-buffers=30 pattern=smpte"),
    ("video-sink=autovideosink", "video-sink=fakesink audio-sink=fakesink"),
    ("autovideosink", "fakesink"),
];

/// Runs a shell command with GStreamer's leaks tracer on.
fn run(workspace: &Workspace, line: &str) -> Output {
    let mut command = Command::new("sh");
    command
        .args(["-c", line])
        .env("GST_TRACERS", "leaks(filters=\"GstCudaGaussBlur,GstBuffer,GstBufferPool\")")
        .env("GST_DEBUG", "GST_TRACER:7,cudagaussblur:4")
        .env("GST_DEBUG_NO_COLOR", "1")
        // facedetect opens cascades that distributions do not have, and OpenCV prints errors about them.
        .env("OPENCV_LOG_LEVEL", "FATAL");
    workspace.run(&mut command)
}

fn assert_ok(line: &str, output: &Output) {
    let text = [&output.stdout[..], &output.stderr[..]].map(String::from_utf8_lossy).concat();
    assert!(output.status.success() && !text.contains("ERROR:"), "{line}\n{text}");
    assert!(!text.contains("object-alive, type-name=(string)Gst"), "{line}\nleaks: {text}");
}

/// The lines of a text's shell blocks, with continued lines joined.
fn lines(text: &str) -> Vec<String> {
    let text = text.replace("\\\n", " ");
    let shell = text.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("sh\n"));
    shell.flat_map(str::lines).filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn is_launch(line: &str) -> bool {
    line.contains("gst-launch-1.0")
}

/// The pages, and the element's documentation, a comment in the form that GStreamer's documentation tools read: the number of
/// their gst-launch lines, and of those with sound.
fn pages_and_section() -> Vec<(&'static str, String, usize, usize)> {
    let source = include_str!("../../src/element/imp.rs");
    let (_, section) = source.split_once("/**\n * SECTION:element-cudagaussblur\n").unwrap();
    let (section, _) = section.split_once("\n */\n").unwrap();
    let section = section.lines().map(|line| line.strip_prefix(" *").unwrap().trim_start().to_owned() + "\n").collect();
    let pages = PAGES.into_iter().map(|(page, text, count, with_sound)| (page, text.to_owned(), count, with_sound));
    pages.chain([("imp.rs", section, 4, 0)]).collect()
}

/// Runs the gst-launch lines of a page, whose files get this size and profile. Returns the number of lines that have sound.
fn run_all(workspace: &Workspace, page: &str, lines: &[String], shape: &str) -> usize {
    let mut with_sound = 0;
    for line in lines {
        let runnable =
            SUBSTITUTES.iter().fold(line.clone(), |line, (element, substitute)| line.replace(element, substitute));
        let output = run(workspace, &runnable);
        assert_ok(&format!("{page}: {runnable}"), &output);
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(log.contains("blurring on"), "{runnable}\nthe blur did not start: {log}");
        if let Some((_, rest)) = line.split_once("filesink location=") {
            let file = workspace.0.join(rest.split_whitespace().next().unwrap());
            assert_eq!(media::frames(&file, "").len(), 30, "{runnable}");
            // Phones and browsers play no High 4:4:4, which x264enc makes of RGB.
            assert_eq!(media::h264(&file), shape, "{runnable}");
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
    with_sound
}

#[test]
fn documented_pipelines_run_without_leaks() {
    let workspace = Workspace::new("readme");
    let write_clip = || workspace.write_clip_of([320, 240], "ball", 30);
    write_clip();
    let lacks = |element: &&str| !run(&workspace, &format!("gst-inspect-1.0 --exists {element}")).status.success();
    let mut lacking: Vec<&str> = ["facedetect", "cvtracker"].into_iter().filter(lacks).collect();
    // Elements in Python need their models, too.
    lacking.extend(["centerface", "selfiesegmentation"].into_iter().filter(|element| {
        let line = format!("gst-launch-1.0 -q videotestsrc num-buffers=1 ! videoconvert ! {element} ! fakesink");
        !run(&workspace, &line).status.success()
    }));
    for (page, text, count, with_sound) in pages_and_section() {
        let mut lines = lines(&text);
        lines.retain(|line| is_launch(line));
        assert_eq!(lines.len(), count, "{page}: {lines:?}");
        lines.retain(|line| !lacking.iter().any(|element| line.contains(element)));
        assert_eq!(run_all(&workspace, page, &lines, "320x240 1/1 high"), with_sound, "{page}");
        // A video as phones make it, which a player turns.
        lines.retain(|line| line.contains("filesrc location=input.mp4"));
        if !lines.is_empty() {
            media::turn(&workspace.0.join("input.mp4"));
            run_all(&workspace, page, &lines, "240x320 1/1 high");
            write_clip();
        }
    }
    assert_ok("gst-inspect-1.0", &run(&workspace, "gst-inspect-1.0 cudagaussblur"));
}

/// The encoder's default is a rate of 2 Mbit/s, which limits also its pass=qual.
#[test]
fn documented_pipelines_encode_by_quality() {
    let mut count = 0;
    for (page, text, ..) in pages_and_section() {
        for rest in text.split("x264enc ").skip(1) {
            assert!(rest.starts_with("pass=quant !"), "{page}: x264enc {}", rest.lines().next().unwrap());
            count += 1;
        }
    }
    assert!(count >= 10, "{count}");
}

/// A detector with a limit leaves open what is smaller: a recipe has none, or the words before it say so.
#[test]
fn documented_pipelines_find_small_faces() {
    for (page, text, ..) in pages_and_section() {
        let blocks: Vec<&str> = text.split("```").collect();
        for pair in blocks.as_chunks::<2>().0.iter().filter(|pair| pair[1].contains("min-size")) {
            let words = pair[0].trim_end().lines().last().unwrap();
            assert!(words.contains("narrower than 80 pixels"), "{page}: {words}\n{}", pair[1]);
        }
    }
}

/// A command that no test runs gets wrong without anybody seeing it.
#[test]
fn every_command_is_run_somewhere() {
    for (page, text, ..) in PAGES {
        for line in lines(text).iter().filter(|line| !is_launch(line)) {
            let is_known = OTHER_COMMANDS.iter().any(|(command, _)| line.starts_with(command));
            assert!(is_known, "{page}: nothing is known to run {line}");
        }
    }
    let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/demo");
    let help = String::from_utf8(Command::new(demo).arg("--help").output().unwrap().stdout).unwrap();
    let options: Vec<&str> = help.split(|c: char| c.is_whitespace() || ",;|[]()".contains(c)).collect();
    for (page, text, ..) in PAGES {
        let commands = text.split("scripts/demo").skip(1).map(|rest| rest.lines().next().unwrap());
        let commands = commands.map(|rest| rest.split(['`', '#']).next().unwrap());
        for option in commands.flat_map(str::split_whitespace).filter(|word| word.starts_with("--")) {
            assert!(options.contains(&option), "{page}: scripts/demo has no {option}\n{help}");
        }
    }
}

/// A program of which docs/PROPERTIES.md shows a part, `blur` being the element. It prints the numbers of the first zone.
const C_PROGRAM: &str = "\
#include <gst/gst.h>
int main (void) {
    gst_init (NULL, NULL);
    GstElement *blur = gst_element_factory_make (\"cudagaussblur\", NULL);
    g_assert_nonnull (blur);
    {
SHOWN
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
fn documented_c_code_sets_zones() {
    let of_page =
        |text: &'static str| text.split("```").skip(1).step_by(2).filter_map(|block| block.strip_prefix("c\n"));
    let blocks: Vec<&str> = PAGES.into_iter().flat_map(|(_, text, ..)| of_page(text)).collect();
    assert_eq!(blocks.len(), 1, "{blocks:?}");
    let workspace = Workspace::new("readme-c");
    std::fs::write(workspace.0.join("zones.c"), C_PROGRAM.replace("SHOWN", blocks[0])).unwrap();
    let line = "cc -Wall -Werror -o zones zones.c $(pkg-config --cflags --libs gstreamer-1.0) && ./zones";
    let output = run(&workspace, line);
    assert_ok(blocks[0], &output);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "x=0.1 y=0.1 width=0.3 height=0.4 ");
}

/// The names in the first cells of README's table of properties.
fn main_properties() -> Vec<&'static str> {
    let (_, table) = README.split_once("\n## Properties\n").unwrap();
    let rows = table.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| `"));
    rows.flat_map(|row| row.split(" | ").next().unwrap().split('`').skip(1).step_by(2)).collect()
}

#[test]
fn the_properties_are_listed() {
    let element = crate::common::video::element("");
    let own = element.list_properties().into_iter().filter(|pspec| pspec.owner_type() == element.type_());
    let names: Vec<String> = own.map(|pspec| pspec.name().to_owned()).collect();
    assert_eq!(names.len(), 27, "{names:?}");
    assert!(README.contains("has all 27 with their ranges"), "README counts another number of properties");
    for name in &names {
        // Every property can be read, and a writable one accepts the value it reads as.
        let value = element.property_value(name);
        if element.find_property(name).unwrap().flags().contains(gst::glib::ParamFlags::WRITABLE) {
            element.set_property_from_value(name, &value);
        }
    }
    let main = main_properties();
    assert!(main.len() > 10 && main.iter().all(|name| names.iter().any(|own| own == name)), "{main:?}");
    for name in names {
        assert!(PROPERTIES.contains(&format!("| `{name}` |")), "docs/PROPERTIES.md has no row for {name}");
    }
}

/// Every format that the element offers is in the table, and the table has as many as README says.
#[test]
fn the_formats_are_listed() {
    let (_, table) = include_str!("../../docs/FORMATS.md").split_once("\n## Formats\n").unwrap();
    let rows = table.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| ")).skip(2);
    let cells = rows.flat_map(|row| row.split('|').skip(2)).flat_map(str::split_whitespace);
    let listed: Vec<&str> = cells.collect();
    assert!(
        README.contains(&format!("the {} formats", listed.len())),
        "README has another number than {}",
        listed.len()
    );
    let element = crate::common::video::element("");
    let caps = element.pad_template("sink").unwrap().caps().to_owned();
    let mut offered = 0;
    for structure in caps.iter() {
        for format in structure.get::<gst::List>("format").unwrap().iter() {
            let format = format.get::<String>().unwrap();
            assert!(listed.contains(&&format[..]), "docs/FORMATS.md has no {format}");
            offered += 1;
        }
    }
    assert!(offered >= 60, "{offered}");
}

/// Whoever opens it for the first time gets to a running pipeline in a minute.
#[test]
fn the_readme_is_short_and_begins_with_what_to_do() {
    let words = README.split_whitespace().count();
    assert!(words <= 1900, "README.md has {words} words: move what is new to docs/");
    let headings: Vec<&str> = README.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(headings[..4], ["Two commands", "Install", "Five recipes", "Properties"]);
}

/// The name that GitHub and GitLab give a heading in a link.
fn anchor(heading: &str) -> String {
    let kept = heading.trim().to_lowercase().replace(' ', "-");
    kept.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
}

/// The links of README and docs/, to files of this repository and to headings in them.
#[test]
fn links_have_a_target() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let in_folder = |folder: &str| std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let pages: Vec<PathBuf> =
        in_folder("").chain(in_folder("docs")).filter(|path| path.extension().is_some_and(|it| it == "md")).collect();
    assert!(pages.len() >= 10, "{pages:?}");
    // The crate leaves out records, pictures and packaging.
    let is_crate = !root.join(".gitignore").exists();
    let is_left_out = |link: &str| is_crate && ["record/", ".jpg", "packaging/"].iter().any(|part| link.contains(part));
    let mut count = 0;
    for page in &pages {
        let text = std::fs::read_to_string(page).unwrap().replace("\n", " ");
        for link in text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap()) {
            let link = link.replace(' ', "");
            if link.contains("://") || is_left_out(&link) {
                continue;
            }
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(target.exists(), "{}: {link}", page.display());
            if !heading.is_empty() {
                let text = std::fs::read_to_string(&target).unwrap();
                let mut headings =
                    text.lines().filter(|line| line.starts_with('#')).map(|line| line.trim_start_matches('#'));
                assert!(headings.any(|one| anchor(one) == heading), "{}: {link}", page.display());
            }
            count += 1;
        }
    }
    assert!(count > 100, "{count}");
}
