//! scripts/python and the Python examples find an interpreter with the modules they need, whichever `python3` is first on
//! PATH, and name what is missing if there is none. Python sets properties by the values that docs/PROPERTIES.md shows, and reads
//! messages as docs/MESSAGES.md shows. The element of examples/python reports how long it delays a live stream.

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
        assert_ne!(foreign.outcome(foreign.command("$PWD/python3 -c __import__('numpy')")).0, 0, "{script}");
        foreign.says(&format!("{path} scripts/python numpy,scipy -- -c print('found') => found"));
        let output = foreign.outcome(foreign.command(&format!("{path} scripts/python no_such_module,numpy -- -c 1")));
        assert_eq!(output.0, 127, "{output:?}");
        for words in ["can import no_such_module and numpy", "/python3, ", "/usr/bin/python3", "PYTHON="] {
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

/// The element of examples/python, but its searches only take time, by a clock that this script sets.
const SLOW: &str = r#"import sys
sys.path.insert(0, sys.argv[1])
import selfiesegmentation
from selfiesegmentation import GObject, Gst

# For each frame: the seconds since the last one, and the milliseconds that its search takes; None if it is not searched.
RUNS = [(0, 40), (9, 44), (9, 20), (9, 60), (9, 60), (0.5, 90), (0, 90), (9, None), (9, 10)], [(0, 8), (9, 8)]
now = 0
selfiesegmentation.time.monotonic_ns = lambda: now
selfiesegmentation.Network = lambda *_: None
selfiesegmentation.SQUARE_MODEL = selfiesegmentation.pathlib.Path(__file__)


class Slow(selfiesegmentation.SelfieSegmentation):
    __gstmetadata__ = "Slow", "Analyzer/Video", "Searches", "tests"
    __gsttemplates__ = selfiesegmentation.TEMPLATES

    def do_transform_ip(self, buffer):
        global now
        seconds, self.milliseconds = steps.pop(0)
        now += int(seconds * Gst.SECOND)
        self.waiting = self.milliseconds is None
        return selfiesegmentation.SelfieSegmentation.do_transform_ip(self, buffer)

    def analyze(self, buffer):
        global now
        now += self.milliseconds * Gst.MSECOND

    def mark(self, *_):
        pass


GObject.type_register(Slow)
pipeline = Gst.parse_launch(
    "videotestsrc name=source is-live=true ! video/x-raw,framerate=100/1 ! identity name=before ! fakesink name=sink")
before, sink, slow = pipeline.get_by_name("before"), pipeline.get_by_name("sink"), Slow()
slow.model = __file__
pipeline.add(slow)
before.unlink(sink)
before.link(slow)
slow.link(sink)
bus, pad = pipeline.get_bus(), slow.get_static_pad("src")


def latency(pad):
    query = Gst.Query.new_latency()
    assert pad.query(query)
    live, least, most = query.parse_latency()
    assert live and most == Gst.CLOCK_TIME_NONE
    return least


def reported(pad, info):
    added = latency(pad) - latency(slow.get_static_pad("sink").get_peer())
    print(added / Gst.MSECOND, *["posted"] * len(posted))
    posted.clear()
    return Gst.PadProbeReturn.OK


posted = []
bus.enable_sync_message_emission()
bus.connect("sync-message::latency", lambda bus, message: message.src == slow and posted.append(message))
pad.add_probe(Gst.PadProbeType.BUFFER, reported)
for steps in RUNS:
    pipeline.get_by_name("source").set_property("num-buffers", len(steps))
    pipeline.set_state(Gst.State.PLAYING)
    end = bus.timed_pop_filtered(Gst.CLOCK_TIME_NONE, Gst.MessageType.ERROR | Gst.MessageType.EOS)
    pipeline.set_state(Gst.State.NULL)
    assert end.type == Gst.MessageType.EOS, end.parse_error()
"#;

/// Live pipelines learn the latency of the searches from the second one on. A single long search does not count, nor do shorter ones until the next start,
/// and longer ones count once a second.
#[test]
fn the_python_element_reports_the_latency_of_its_searches() {
    let workspace = Workspace::new("latency");
    workspace.write("slow.py", SLOW);
    workspace.says(
        "scripts/python numpy,gi -- slow.py $ROOT/examples/python => \
         0.0 45.0 posted 45.0 45.0 67.5 posted 67.5 67.5 67.5 101.25 posted 0.0 9.0 posted",
    );
}
