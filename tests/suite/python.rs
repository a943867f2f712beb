//! scripts/python and the Python examples find an interpreter with the modules they need, whichever `python3` is first on
//! PATH, and name what is missing if there is none. Python sets properties by the values that docs/PROPERTIES.md shows, and reads
//! messages as docs/MESSAGES.md shows.

use super::examples::Workspace;

/// A workspace with a `python3`, and PATH with this folder first. The shell writes the file, because a file that is open for writing
/// cannot be executed, and child processes of other threads inherit open files of this one.
fn foreign_python(name: &str, script: &str) -> (Workspace, String) {
    let workspace = Workspace::new(name);
    workspace.shell(&format!("printf '#!/bin/sh\\n%s\\n' '{script}' >python3; chmod +x python3"));
    (workspace, format!("PYTHON= PATH=$PWD:{}", std::env::var("PATH").unwrap()))
}

/// Python's -S leaves out the folders of installed packages, which those of pyenv, conda and uv do not have either.
const WITHOUT_PACKAGES: &str = "exec /usr/bin/python3 -S -E \"$@\"";

#[test]
fn python3_without_the_modules_is_skipped_or_what_is_missing_is_named() {
    for script in [WITHOUT_PACKAGES, "exit 127"] {
        let (foreign, path) = foreign_python("foreign-python", script);
        assert_ne!(foreign.outcome(foreign.command("$PWD/python3 -c __import__('gi')")).0, 0, "{script}");
        foreign.says(&format!("{path} scripts/python gi,json -- -c print('found') => found"));
        let output = foreign.outcome(foreign.command(&format!("{path} scripts/python no_such_module,gi -- -c 1")));
        assert_eq!(output.0, 127, "{output:?}");
        for words in ["can import no_such_module and gi", "/python3, ", "/usr/bin/python3", "PYTHON="] {
            assert!(output.2.contains(words), "{output:?}");
        }
    }
}

/// The examples need the distribution's Python, and name it if they are started by another one.
#[test]
fn python_examples_find_or_name_the_interpreter_they_need() {
    let (foreign, path) = foreign_python("examples-python", WITHOUT_PACKAGES);
    let examples = std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/examples")).unwrap();
    let mut examples: Vec<String> = examples.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    examples.retain(|name| name.ends_with(".py"));
    assert_eq!(examples.len(), 8, "{examples:?}");
    for name in examples {
        let stderr = foreign.stderr(&format!("$PWD/python3 $ROOT/examples/{name}"));
        assert!(stderr.contains("has no PyGObject") && stderr.contains("/usr/bin/python3"), "{name}: {stderr}");
        let arguments = match &*name {
            "boxes_from_file.py" => "a.mp4 a.csv b.mp4",
            "virtual_camera.py" => "--test",
            _ => "a.mp4",
        };
        // Started directly it selects the right interpreter, and fails only because no folder has the element.
        foreign.says(&format!(
            "{path} GST_PLUGIN_PATH= GST_PLUGIN_PATH_1_0= GST_PLUGIN_SYSTEM_PATH_1_0=$PWD/none $ROOT/examples/{name} {arguments} =! \
             …GStreamer does not find cudagaussblur…"
        ));
    }
}

#[test]
fn python_sets_flags_and_zones() {
    let workspace = Workspace::new("flags");
    let script = r#"
import gi
gi.require_version("Gst", "1.0")
from gi.repository import Gst
Gst.init(None)
blur = Gst.ElementFactory.make("cudagaussblur")
blur.set_property("planes", "luma")
print(int(blur.get_property("planes")))
Gst.util_set_object_arg(blur, "planes", "luma+chroma")
print(int(blur.get_property("planes")))
Gst.util_set_object_arg(blur, "zones", "<[zone,x=0.6,y=0.1,width=0.3,height=0.2]>")
zone = blur.get_property("zones")[0]
print([zone.get_value(name) for name in ("x", "y", "width", "height")])
SHOWN
print(len(blur.get_property("zones")))
"#;
    workspace.write("flags.py", &script.replace("SHOWN", shown(include_str!("../../docs/PROPERTIES.md"))));
    workspace.says("scripts/python gi -- flags.py => 1 3 [0.6, 0.1, 0.3, 0.2] 0");
}

/// The code in Python that a page shows.
fn shown(page: &str) -> &str {
    let (_, code) = page.split_once("```python\n").expect("code in Python");
    code.split("```").next().unwrap()
}

#[test]
fn documented_python_code_reads_messages() {
    let workspace = Workspace::new("messages");
    let script = r#"
import gi
gi.require_version("Gst", "1.0")
from gi.repository import Gst
Gst.init(None)
pipeline = Gst.parse_launch(
    "videotestsrc num-buffers=1 ! video/x-raw,width=320,height=240 ! cudagaussblur region-mode=inside cover=fill "
    "post-messages=true zones=<[zone,x=0.25,y=0.5,width=0.25,height=0.5]> backend=cpu ! fakesink")
bus = pipeline.get_bus()
pipeline.set_state(Gst.State.PLAYING)
SHOWN
pipeline.set_state(Gst.State.NULL)
"#;
    workspace.write("messages.py", &script.replace("SHOWN", shown(include_str!("../../docs/MESSAGES.md"))));
    workspace.says("scripts/python gi -- messages.py => zone at 80 120");
}
