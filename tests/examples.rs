//! Runs the demo and the Python examples that cover parts of the picture, so that they stay correct. They check their own
//! output; these tests check that they do, and what they say when something is missing.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use common::python;

/// A temporary folder with the plugin.
struct Workspace(PathBuf);

impl Workspace {
    fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("cudagaussblur-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("plugins")).unwrap();
        let plugin = std::env::current_exe().unwrap().with_file_name("libgstcudagaussblur.so");
        std::os::unix::fs::symlink(plugin, folder.join("plugins/libgstcudagaussblur.so")).unwrap();
        Self(folder)
    }

    /// The command, in this folder and with the plugin.
    fn run(&self, command: &mut Command) -> Output {
        command
            .current_dir(&self.0)
            .env("GST_PLUGIN_PATH", self.0.join("plugins"))
            .env("GST_REGISTRY", self.0.join("registry.bin"))
            .env_remove("DISPLAY")
            .env_remove("WAYLAND_DISPLAY");
        command.output().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"))
    }

    /// Standard output of a command that succeeds.
    fn stdout(&self, command: &mut Command) -> String {
        let output = self.run(command);
        let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(output.status.success(), "{command:?} ended with {}: {stdout}{stderr}", output.status);
        stdout
    }

    /// Standard error of a command that fails.
    fn stderr(&self, command: &mut Command) -> String {
        let output = self.run(command);
        let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(!output.status.success(), "{command:?} succeeded: {stdout}{stderr}");
        stderr
    }

    fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }

    fn has(&self, name: &str) -> bool {
        self.0.join(name).exists()
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// The demo. `cargo test --test examples` does not build it, so this does, in the profile of the tests.
fn demo(arguments: &[&str]) -> Command {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let demo = BUILT.get_or_init(|| {
        let tests = std::env::current_exe().unwrap();
        let folder = tests.ancestors().nth(2).unwrap();
        let profile = folder.file_name().unwrap().to_str().unwrap().replace("debug", "dev");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--locked", "--quiet", "--example", "demo", "--profile", &profile, "--target-dir"]);
        cargo.arg(folder.parent().unwrap()).current_dir(env!("CARGO_MANIFEST_DIR"));
        assert!(cargo.status().unwrap().success(), "{cargo:?} failed");
        folder.join("examples/demo")
    });
    let mut command = Command::new(demo);
    command.args(arguments).env("OPENCV_LOG_LEVEL", "FATAL");
    command
}

/// A Python example.
fn example(name: &str) -> Command {
    let mut command = python::with("gi");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name));
    command
}

#[test]
fn demo_covers_marked_places() {
    let workspace = Workspace::new("regions");
    let stdout = workspace.stdout(&mut demo(&["--regions", "--backend", "cpu"]));
    assert!(stdout.contains("180 frames, 522 marked places, all covered"), "{stdout}");
    assert!(stdout.contains("18 times the boat had no detection"), "{stdout}");
    assert!(workspace.has("demo-out/regions.mp4") && workspace.has("demo-out/regions.png"), "{stdout}");
}

#[test]
fn demo_covers_faces_or_says_what_is_missing() {
    let workspace = Workspace::new("faces");
    let found = |name: &str| {
        let inspect = workspace.run(Command::new("gst-inspect-1.0").args(["--exists", name]));
        inspect.status.success()
    };
    if found("facedetect") && Path::new("/usr/share/opencv4/haarcascades").exists() {
        let stdout = workspace.stdout(&mut demo(&["--faces", "--cover=fill", "--backend=cpu"]));
        assert!(stdout.contains("180 frames, ") && stdout.contains(" faces found, all covered"), "{stdout}");
        assert!(workspace.has("demo-out/faces.mp4") && workspace.has("demo-out/faces.png"), "{stdout}");
    } else {
        let stderr = workspace.stderr(&mut demo(&["--faces"]));
        assert!(stderr.contains("gstreamer1.0-opencv") && !workspace.has("demo-out"), "{stderr}");
    }
}

#[test]
fn demo_writes_no_clip_without_a_detector() {
    let workspace = Workspace::new("no-detector");
    let stderr = workspace.stderr(demo(&["--faces"]).env("GST_PLUGIN_SYSTEM_PATH_1_0", &workspace.0));
    assert_eq!(
        stderr,
        "demo: --faces needs GStreamer's element facedetect: on Debian and Ubuntu install gstreamer1.0-opencv and opencv-data\n"
    );
    assert!(!workspace.has("demo-out"));
    for arguments in [&["--regions", "file.mp4"][..], &["--regions", "--faces"], &["--cover", "fill"], &["--cover=x"]] {
        let stderr = workspace.stderr(&mut demo(arguments));
        assert!(stderr.starts_with("demo: ") && stderr.ends_with("(--help shows the usage)\n"), "{stderr}");
    }
}

#[test]
fn python_attaches_boxes_of_its_own() {
    let stdout = Workspace::new("own-boxes").stdout(&mut example("own_boxes.py"));
    assert!(stdout.starts_with("90 frames, 90 boxes attached"), "{stdout}");
}

#[test]
fn python_translates_metas_of_a_vendor() {
    let workspace = Workspace::new("vendor-metas");
    let stdout = workspace.stdout(&mut example("vendor_metas.py"));
    assert_eq!(stdout, "10 frames, 5 boxes translated, all covered\n");
}

/// The vendors' own bindings are not installed; these objects have the same attributes.
#[test]
fn boxes_of_deepstream_and_hailo_are_pixels() {
    let script = "\
import sys
from types import SimpleNamespace as Object
sys.path.insert(0, sys.argv[1])
import vendor_metas as vendor
rect = Object(left=1.5, top=2.0, width=10.0, height=20.25)
print(vendor.deepstream_box(Object(rect_params=rect, obj_label='face', confidence=0.5)))
print(vendor.deepstream_box(Object(rect_params=rect, obj_label='face', confidence=-0.1)).confidence)
box = Object(xmin=lambda: 0.25, ymin=lambda: 0.5, width=lambda: 0.125, height=lambda: 0.25)
hailo = Object(get_bbox=lambda: box, get_label=lambda: 'car', get_confidence=lambda: 0.75)
print(vendor.hailo_box(hailo, 640, 480))
class Entry:
    # The end of a list raises StopIteration, as in pyds.
    def __init__(self, *data):
        self.data, self.rest = data[0], data[1:]
    @property
    def next(self):
        if not self.rest:
            raise StopIteration
        return Entry(*self.rest)
cast = Object(cast=lambda data: data)
pyds = Object(NvDsFrameMeta=cast, NvDsObjectMeta=cast, gst_buffer_get_nvds_batch_meta=lambda address: batch)
sys.modules['pyds'] = pyds
face = Object(rect_params=rect, obj_label='face', confidence=0.5)
for objects, done in (Entry(face, face), False), (None, True), (None, False):
    batch = Object(frame_meta_list=Entry(Object(obj_meta_list=objects, bInferDone=done)))
    boxes = vendor.deepstream_boxes(None, 640, 480)
    print(boxes if boxes is None else len(boxes))
batch = None
print(vendor.deepstream_boxes(None, 640, 480))
nan = float('nan')
for place in (1.5, 2, 10, 20.25), (-5, -5, 8, 8), (630, 470, 99, 99), (30, 30, -10, -10), (nan, 0, 1, 1), (700, 0, 5, 5):
    print(*vendor.rounded(vendor.Box('a', None, *place), 640, 480)[2:])
";
    let mut command = python::with("gi");
    command.args(["-c", script, concat!(env!("CARGO_MANIFEST_DIR"), "/examples")]);
    let stdout = python::output(&mut command);
    let expected = "\
Box(label='face', confidence=0.5, x=1.5, y=2.0, width=10.0, height=20.25)
None
Box(label='car', confidence=0.75, x=160.0, y=240.0, width=80.0, height=120.0)
2
0
None
None
1 2 11 21
0 0 3 3
630 470 10 10
20 20 10 10
0 0 640 1
640 0 0 5
";
    assert_eq!(stdout, expected);
}

/// A clip of 20 white frames, and the mean brightness of each frame of another clip in the box that the tests cover.
const CLIP: &str = "gst-launch-1.0 -q videotestsrc num-buffers=20 pattern=white ! video/x-raw,width=64,height=48 ! \
                    x264enc ! mp4mux ! filesink location=input.mp4";

/// The brightness of the middle of the box (16,16,16,16) in each frame.
fn box_brightness(workspace: &Workspace, file: &str) -> Vec<u8> {
    let line = format!(
        "gst-launch-1.0 -q filesrc location={file} ! decodebin ! videoconvert ! videocrop left=20 top=20 right=36 \
         bottom=20 ! video/x-raw,format=GRAY8 ! filesink location=box.gray"
    );
    workspace.stdout(Command::new("sh").args(["-c", &line]));
    let bytes = fs::read(workspace.0.join("box.gray")).unwrap();
    // Frames of 8×8.
    bytes.chunks(64).map(|frame| frame[27]).collect()
}

#[test]
fn python_covers_boxes_of_a_file() {
    let workspace = Workspace::new("boxes-file");
    workspace.stdout(Command::new("sh").args(["-c", CLIP]));
    // Frames 5 to 9, by number and by time: videotestsrc makes 30 frames a second.
    let rows = |position: &dyn Fn(u32) -> String| -> String {
        (5..10).map(|frame| format!("{},16,16,16,16,plate\n", position(frame))).collect()
    };
    for (name, column, position) in [
        ("frame", "frame", &(|frame: u32| frame.to_string()) as &dyn Fn(u32) -> String),
        ("time", "time", &|frame: u32| format!("{:.3}", (f64::from(frame) + 0.5) / 30.0)),
    ] {
        workspace.write("boxes.csv", &format!("{column}, x,y,width,height,label\n{}", rows(position)));
        let stdout = workspace.stdout(example("boxes_from_file.py").args([
            "input.mp4",
            "boxes.csv",
            "covered.mp4",
            "--hold=0",
            "--labels=plate",
        ]));
        assert!(stdout.starts_with("20 frames, 5 boxes attached"), "{name}: {stdout}");
        let brightness = box_brightness(&workspace, "covered.mp4");
        assert_eq!(brightness.len(), 20, "{name}");
        for (frame, value) in brightness.into_iter().enumerate() {
            assert_eq!(value < 128, (5..10).contains(&frame), "{name}: frame {frame} has brightness {value}");
        }
    }
}

#[test]
fn files_of_boxes_that_do_not_fit_are_refused() {
    let workspace = Workspace::new("bad-boxes");
    workspace.stdout(Command::new("sh").args(["-c", CLIP]));
    for (boxes, reason) in [
        ("frame,x,y,width,height\n20,0,0,8,8\n", "1 boxes of boxes.csv are beyond the end of input.mp4"),
        ("x,y,width,height\n0,0,8,8\n", "one column frame or one column time"),
        ("frame,x,y,width\n0,0,0,8\n", "has no column height"),
        ("frame,x,y,width,height,size\n0,0,0,8,8,1\n", "has a column size, which is not used"),
        ("frame,x,y,width,height\n0,0,0,8\n", "line 2: it has more or fewer values"),
        ("frame,x,y,width,height\n0,0,0,8,8\n1,0,0,0,8\n", "line 3: the box is empty"),
        ("frame,x,y,width,height\n0,left,0,8,8\n", "line 2: could not convert string to float"),
        ("frame,x,y,width,height\n0,nan,0,8,8\n", "line 2: a number is negative or not finite"),
        ("", "has no column x"),
    ] {
        workspace.write("boxes.csv", boxes);
        let stderr = workspace.stderr(example("boxes_from_file.py").args(["input.mp4", "boxes.csv", "covered.mp4"]));
        assert!(stderr.contains(reason) && !stderr.contains("Traceback"), "{boxes}: {stderr}");
        assert!(!workspace.has("covered.mp4") && !workspace.has("covered.mp4.part"), "{boxes}");
    }
    workspace.write("boxes.csv", "frame,x,y,width,height\n");
    workspace.write("text.mp4", "no video");
    let stderr = workspace.stderr(example("boxes_from_file.py").args(["text.mp4", "boxes.csv", "covered.mp4"]));
    assert!(!stderr.contains("Traceback") && !stderr.is_empty(), "{stderr}");
}
