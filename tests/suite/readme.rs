//! Runs every gst-launch line of README.md, of the pages in docs/ that show some to users, and of the element's documentation,
//! so that all stay correct. Only what a test machine lacks is substituted: the camera, which also gets an end of stream, the
//! display and the loudspeaker. Lines with an element of OpenCV, which has a package of its own, need it. Also runs the C code
//! of docs/PROPERTIES.md in a small program, and follows the links of all pages.

use std::path::{Path, PathBuf};

use super::documentation::rows;
use super::examples::Workspace;
use crate::common::{media, video};
use gst::prelude::*;

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const README: &str = include_str!("../../README.md");

/// The other commands of the pages, and what runs them.
const OTHER_COMMANDS: [(&str, &str); 10] = [
    ("scripts/demo", "tests/suite/examples.rs"),
    ("scripts/models", "scripts/demo"),
    ("scripts/setup", "scripts/demo and scripts/test"),
    ("scripts/test", "continuous integration"),
    ("examples/virtual_camera.py", "tests/suite/examples.rs"),
    ("GST_PLUGIN_PATH=$PWD/target/release examples/hide.py", "tests/suite/hide.rs"),
    ("examples/hide.py --corrections", "tests/suite/hide.rs"),
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

/// The pages whose commands are run, and the element's documentation, a comment in the form that GStreamer's documentation tools read.
fn pages() -> Vec<(&'static str, String)> {
    let source = include_str!("../../src/element/imp.rs");
    let (_, section) = source.split_once("/**\n * SECTION:element-cudagaussblur\n").unwrap();
    let (section, _) = section.split_once("\n */\n").unwrap();
    let section = section.lines().map(|line| line.strip_prefix(" *").unwrap().trim_start().to_owned() + "\n").collect();
    vec![
        ("README.md", README.to_owned()),
        ("docs/INSTALL.md", include_str!("../../docs/INSTALL.md").to_owned()),
        ("docs/PROPERTIES.md", include_str!("../../docs/PROPERTIES.md").to_owned()),
        ("docs/FORMATS.md", include_str!("../../docs/FORMATS.md").to_owned()),
        ("docs/HIDING.md", include_str!("../../docs/HIDING.md").to_owned()),
        ("docs/MESSAGES.md", include_str!("../../docs/MESSAGES.md").to_owned()),
        ("imp.rs", section),
    ]
}

/// The blocks of code of a language in a page, and the line before each.
fn blocks<'a>(text: &'a str, language: &str) -> Vec<(&'a str, &'a str)> {
    let parts: Vec<&str> = text.split("```").collect();
    let pairs = parts.as_chunks::<2>().0.iter();
    let block = |[before, block]: &[&'a str; 2]| {
        let code = block.strip_prefix(language)?.strip_prefix('\n')?;
        Some((before.trim_end().lines().last().unwrap_or_default(), code))
    };
    pairs.filter_map(block).collect()
}

/// The commands of a page, with continued lines joined.
fn commands(text: &str) -> Vec<String> {
    let text = text.replace("\\\n", " ");
    let lines = blocks(&text, "sh").into_iter().flat_map(|(_, code)| code.lines());
    lines.filter(|line| !line.is_empty()).map(str::to_owned).collect()
}

fn is_launch(line: &str) -> bool {
    line.contains("gst-launch-1.0")
}

/// Runs a shell command with GStreamer's leaks tracer on. Returns whether it succeeds without errors and leaks, and what it prints.
fn run(workspace: &Workspace, line: &str) -> (bool, String) {
    // facedetect opens cascades that distributions do not have, and OpenCV prints errors about them.
    let mut command = workspace.command(
        "GST_TRACERS=leaks(filters=\"GstCudaGaussBlur,GstBuffer,GstBufferPool\") GST_DEBUG=GST_TRACER:7,cudagaussblur:4 \
         GST_DEBUG_NO_COLOR=1 OPENCV_LOG_LEVEL=FATAL sh -c",
    );
    command.arg(line);
    let (status, stdout, stderr) = workspace.outcome(command);
    let text = stdout + &stderr;
    (status == 0 && !text.contains("ERROR:") && !text.contains("object-alive, type-name=(string)Gst"), text)
}

/// Runs a gst-launch line, whose file gets this size and profile. Returns whether it has sound.
fn check_launch(workspace: &Workspace, page: &str, line: &str, shape: &str) -> bool {
    let line =
        SUBSTITUTES.iter().fold(line.to_owned(), |line, (element, substitute)| line.replace(element, substitute));
    let (is_good, text) = run(workspace, &line);
    assert!(is_good && text.contains("blurring on"), "{page}: {line}\n{text}");
    let Some((_, rest)) = line.split_once("filesink location=") else { return false };
    let file = workspace.0.join(rest.split_whitespace().next().unwrap());
    assert_eq!(media::frames(&file, "").len(), 30, "{line}");
    // Phones and browsers play no High 4:4:4, which x264enc makes of RGB.
    assert_eq!(media::h264(&file), shape, "{line}");
    let (seconds, amplitude) = media::sound(&file);
    let has_sound = line.contains("avenc_aac");
    // A sine of amplitude 0.8: its mean is 0.8 times 2/pi.
    let expected = if has_sound { [1.0, 0.51] } else { [0.0; 2] };
    let is_near = (seconds - expected[0]).abs() < 0.1 && (amplitude - expected[1]).abs() < 0.1;
    assert!(is_near, "{line}: {seconds} s, {amplitude}");
    has_sound
}

#[test]
fn documented_pipelines_run_without_leaks() {
    let workspace = Workspace::new("readme");
    let write_clip = || workspace.write_clip([320, 240], "ball", 30);
    write_clip();
    let lacks = |line: &str| !run(&workspace, line).0;
    let mut lacking = vec!["facedetect", "centerface", "selfiesegmentation"];
    lacking.retain(|element| match *element {
        "facedetect" => lacks(&format!("gst-inspect-1.0 --exists {element}")),
        // Detectors need their models, too.
        _ => lacks(&format!("gst-launch-1.0 -q videotestsrc num-buffers=1 ! videoconvert ! {element} ! fakesink")),
    });
    let (mut launches, mut with_sound) = (0, 0);
    for (page, text) in pages() {
        let mut lines: Vec<String> = commands(&text).into_iter().filter(|line| is_launch(line)).collect();
        launches += lines.len();
        lines.retain(|line| !lacking.iter().any(|element| line.contains(element)));
        for line in &lines {
            with_sound += usize::from(check_launch(&workspace, page, line, "320x240 1/1 high"));
        }
        // A video as phones make it, which a player turns.
        lines.retain(|line| line.contains("filesrc location=input.mp4"));
        if !lines.is_empty() {
            media::turn(&workspace.0.join("input.mp4"));
            lines.iter().for_each(|line| _ = check_launch(&workspace, page, line, "240x320 1/1 high"));
            write_clip();
        }
    }
    assert_eq!([launches, with_sound], [18, 1]);
    let (is_good, text) = run(&workspace, "gst-inspect-1.0 cudagaussblur");
    assert!(is_good, "{text}");
}

#[test]
fn commands_follow_the_rules() {
    let help = Workspace::new("readme-help").stdout("scripts/demo --help");
    let options: Vec<&str> = help.split(|c: char| c.is_whitespace() || ",;|[]()".contains(c)).collect();
    let mut encoders = 0;
    for (page, text) in pages() {
        // The encoder's default is a rate of 2 Mbit/s, which limits also its pass=qual.
        for rest in text.split("x264enc ").skip(1) {
            assert!(rest.starts_with("pass=quant !"), "{page}: x264enc {}", rest.lines().next().unwrap());
            encoders += 1;
        }
        // A detector with a limit leaves open what is smaller: a recipe has none, or the words before it say so.
        for (before, code) in blocks(&text, "sh").into_iter().filter(|(_, code)| code.contains("min-size")) {
            assert!(before.contains("narrower than 80 pixels"), "{page}: {before}\n{code}");
        }
        // A command that no test runs gets wrong without anybody seeing it.
        for line in commands(&text).iter().filter(|line| !is_launch(line)) {
            let is_known = OTHER_COMMANDS
                .iter()
                .any(|(command, _)| line.trim_start().starts_with(command) || line.trim().is_empty());
            assert!(is_known, "{page}: nothing is known to run {line}");
        }
        let demo = text.split("scripts/demo").skip(1).map(|rest| rest.split(['\n', '`', '#']).next().unwrap());
        for option in demo.flat_map(str::split_whitespace).filter(|word| word.starts_with("--")) {
            assert!(options.contains(&option), "{page}: scripts/demo has no {option}\n{help}");
        }
    }
    assert!(encoders >= 9, "{encoders}");
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
    let pages = pages();
    let shown: Vec<&str> = pages.iter().flat_map(|(_, text)| blocks(text, "c")).map(|(_, code)| code).collect();
    assert_eq!(shown.len(), 1, "{shown:?}");
    let workspace = Workspace::new("readme-c");
    workspace.write("zones.c", &C_PROGRAM.replace("SHOWN", shown[0]));
    workspace.shell("cc -Wall -Werror -o zones zones.c $(pkg-config --cflags --libs gstreamer-1.0)");
    let (is_good, text) = run(&workspace, "./zones");
    assert!(is_good && text.contains("x=0.1 y=0.1 width=0.3 height=0.4 "), "{text}");
}

#[test]
fn properties_and_formats_are_those_of_the_element() {
    let element = video::element("");
    let own = element.list_properties().into_iter().filter(|spec| spec.owner_type() == element.type_());
    let names: Vec<String> = own.map(|spec| spec.name().to_owned()).collect();
    assert!(README.contains(&format!("has all {} with their ranges", names.len())), "{names:?}");
    let main: Vec<&str> = rows(README, "\n## Properties\n").into_iter().flat_map(|(names, _)| names).collect();
    assert!(main.len() > 10 && main.iter().all(|name| names.iter().any(|own| own == name)), "{main:?}");

    let (_, table) = include_str!("../../docs/FORMATS.md").split_once("\n## Formats\n").unwrap();
    let rows = table.split("\n## ").next().unwrap().lines().filter(|line| line.starts_with("| ")).skip(2);
    let listed: Vec<&str> = rows.flat_map(|row| row.split('|').skip(2)).flat_map(str::split_whitespace).collect();
    assert!(README.contains(&format!("the {} formats", listed.len())), "README has another number of {listed:?}");
    let offered = video::formats().into_iter().chain(video::cuda_formats());
    let offered: Vec<&str> = offered.map(|format| format.to_str().as_str()).collect();
    assert!(offered.len() >= 60 && offered.iter().all(|format| listed.contains(format)), "{listed:?} for {offered:?}");
}

/// Whoever opens it for the first time gets to a running pipeline in a minute.
#[test]
fn the_readme_is_short_and_begins_with_what_to_do() {
    let words = README.split_whitespace().count();
    assert!(words <= 1900, "README.md has {words} words: move what is new to docs/");
    let headings: Vec<&str> = README.lines().filter_map(|line| line.strip_prefix("## ")).collect();
    assert_eq!(headings[..4], ["Two commands", "Install", "Five recipes", "Properties"]);
}

/// The links of README and docs/, to files of this repository and to headings in them.
#[test]
fn links_have_a_target() {
    let root = Path::new(ROOT);
    let in_folder = |folder: &str| std::fs::read_dir(root.join(folder)).unwrap().map(|entry| entry.unwrap().path());
    let pages: Vec<PathBuf> =
        in_folder("").chain(in_folder("docs")).filter(|path| path.extension().is_some_and(|it| it == "md")).collect();
    assert!(pages.len() >= 10, "{pages:?}");
    // The name that GitHub and GitLab give a heading in a link.
    let anchor = |heading: &str| -> String {
        let name = heading.trim_start_matches('#').trim().to_lowercase().replace(' ', "-");
        name.chars().filter(|c| c.is_alphanumeric() || "-_".contains(*c)).collect()
    };
    // The crate leaves out records, pictures, packaging and detectors.
    let is_crate = !root.join(".gitignore").exists();
    let is_left_out =
        |link: &str| is_crate && ["record/", ".jpg", "packaging/", "detectors/"].iter().any(|part| link.contains(part));
    let mut count = 0;
    for page in &pages {
        let text = std::fs::read_to_string(page).unwrap();
        let links = text.split("](").skip(1).map(|rest| rest.split(')').next().unwrap().replace(['\n', ' '], ""));
        for link in links.filter(|link| !link.contains("://") && !is_left_out(link)) {
            let (file, heading) = link.split_once('#').unwrap_or((&link, ""));
            let target = if file.is_empty() { page.clone() } else { page.parent().unwrap().join(file) };
            assert!(target.exists(), "{}: {link}", page.display());
            if !heading.is_empty() {
                let text = std::fs::read_to_string(&target).unwrap();
                let mut headings = text.lines().filter(|line| line.starts_with('#'));
                assert!(headings.any(|one| anchor(one) == heading), "{}: {link}", page.display());
            }
            count += 1;
        }
    }
    assert!(count > 100, "{count}");
}
