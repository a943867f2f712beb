//! Runs the demo and the examples, so that they stay correct, and checks what they write, show and send, and what they
//! say when something is missing. Those that cover parts of the picture check their own output.

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use crate::common::stream::is_like;
use crate::common::{media, python};

const ROOT: &str = env!("CARGO_MANIFEST_DIR");
const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");

/// A temporary folder with the plugins.
pub(super) struct Workspace(pub(super) PathBuf);

/// A folder with the plugins and with GStreamer's registry, which to make takes a second: that of all workspaces.
fn installed() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed");
        // A registry that a killed run has left may lack elements.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(&folder).unwrap();
        link_plugins(&folder);
        let mut inspect = Command::new("gst-inspect-1.0");
        inspect.arg("cudagaussblur").env("GST_PLUGIN_PATH", &folder);
        let output = inspect.env("GST_REGISTRY", folder.join("registry.bin")).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        folder
    })
}

/// The file of a plugin, which cargo has built for the tests.
pub(super) fn plugin(name: &str) -> PathBuf {
    std::env::current_exe().unwrap().with_file_name(format!("libgst{name}.so"))
}

/// Whether the plugin of the detectors was built, which the packaged crate does not have.
pub(super) fn has_detectors() -> bool {
    plugin("detectors").exists()
}

fn link_plugins(folder: &Path) {
    let names = ["cudagaussblur", "detectors"].into_iter().filter(|name| *name == "cudagaussblur" || has_detectors());
    names.for_each(|name| symlink(plugin(name), folder.join(format!("libgst{name}.so"))).unwrap());
}

/// The folder of the models, unless a test says another one.
pub(super) fn models() -> OsString {
    let default = || Path::new(ROOT).join("target/models").into();
    std::env::var_os("CUDAGAUSSBLUR_MODELS").filter(|folder| !folder.is_empty()).unwrap_or_else(default)
}

impl Workspace {
    pub(super) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("cudagaussblur-{name}-{}", std::process::id()));
        // Of a run that was killed, whose number comes again.
        let _ = fs::remove_dir_all(&folder);
        fs::create_dir_all(folder.join("plugins")).unwrap();
        link_plugins(&folder.join("plugins"));
        Self(folder)
    }

    /// The command of a line such as `HOME=$PWD blur.py --headless`, in this folder and with the plugin: an example, a script of scripts/,
    /// or a program on PATH. One that looks for plugins elsewhere gets a registry of its own.
    pub(super) fn command(&self, line: &str) -> Command {
        let folder = self.0.to_str().unwrap();
        let words = line.split_whitespace().map(|word| word.replace("$PWD", folder).replace("$ROOT", ROOT));
        let words: Vec<String> = words.collect();
        let is_variable = |word: &&String| {
            word.split_once('=')
                .is_some_and(|(name, _)| name.chars().all(|c| "_0123456789".contains(c) || c.is_uppercase()))
        };
        let (variables, program) = words.split_at(words.iter().take_while(is_variable).count());
        let mut command = match &*program[0] {
            name @ ("demo" | "blur") => rust_example(name),
            "blur.c" => c_example(self),
            name if name.ends_with(".py") && !name.contains('/') => {
                let mut command = python::with("gi");
                command.arg(Path::new(EXAMPLES).join(name));
                command
            }
            name if name.starts_with("scripts/") => Command::new(Path::new(ROOT).join(name)),
            name => Command::new(name),
        };
        let looks_elsewhere = line.contains("GST_PLUGIN_SYSTEM_PATH_1_0=");
        let (plugins, registry) =
            if looks_elsewhere { (self.0.join("plugins"), &*self.0) } else { (installed().into(), installed()) };
        command.current_dir(&self.0).env("GST_PLUGIN_PATH", plugins);
        command.env("GST_REGISTRY", registry.join("registry.bin")).env_remove("DISPLAY").env_remove("WAYLAND_DISPLAY");
        command.env("CUDAGAUSSBLUR_MODELS", models());
        command.envs(variables.iter().filter_map(|word| word.split_once('='))).args(&program[1..]);
        command
    }

    /// Exit status, standard output and standard error.
    pub(super) fn outcome(&self, mut command: Command) -> (i32, String, String) {
        let Output { status, stdout, stderr } =
            command.output().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"));
        let [stdout, stderr] = [stdout, stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
        (status.code().unwrap_or(-1), stdout, stderr)
    }

    /// Standard output of a line that succeeds.
    pub(super) fn stdout(&self, line: &str) -> String {
        let (status, stdout, stderr) = self.outcome(self.command(line));
        assert_eq!(status, 0, "{line}: {stdout}{stderr}");
        stdout
    }

    /// Standard error of a line that fails, and not by an exception.
    pub(super) fn stderr(&self, line: &str) -> String {
        let (status, stdout, stderr) = self.outcome(self.command(line));
        assert!(status != 0 && !stderr.contains("Traceback"), "{line} ended with {status}: {stdout}{stderr}");
        stderr
    }

    /// Runs the lines of a table, which are `COMMAND => STDOUT` if the command succeeds and `COMMAND =! STDERR` if it fails, and
    /// compares what it prints, in one line. `…` stands for any text.
    pub(super) fn says(&self, table: &str) {
        for row in table.lines().map(str::trim).filter(|row| !row.is_empty()) {
            let (text, pattern) = match (row.split_once(" => "), row.split_once(" =! ")) {
                (Some((line, stdout)), _) => (self.stdout(line), stdout),
                (_, Some((line, stderr))) => (self.stderr(line), stderr),
                _ => panic!("{row} is no row"),
            };
            assert!(is_like(&text.trim_end().replace('\n', " "), pattern), "{row}\nbut {text}");
        }
    }

    /// Runs a shell's lines, which must succeed.
    pub(super) fn shell(&self, lines: &str) {
        let mut command = self.command("sh -ec");
        command.arg(lines);
        let (status, stdout, stderr) = self.outcome(command);
        assert_eq!(status, 0, "{lines}: {stdout}{stderr}");
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.join(name).exists()
    }

    /// The files of a folder.
    fn files(&self, folder: &str) -> Vec<String> {
        let entries = fs::read_dir(self.0.join(folder)).unwrap();
        let mut files: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        files.sort();
        files
    }

    /// Writes input.mp4: `count` frames, 30 a second, and a tone of the same length.
    pub(super) fn write_clip(&self, [width, height]: [u32; 2], pattern: &str, count: u32) {
        // 30 buffers of sound a second.
        self.shell(&format!(
            "gst-launch-1.0 -q videotestsrc num-buffers={count} pattern={pattern} ! \
             video/x-raw,format=I420,width={width},height={height} ! x264enc ! mp4mux name=mux ! filesink location=input.mp4 \
             audiotestsrc num-buffers={count} samplesperbuffer=1600 ! audio/x-raw,rate=48000 ! audioconvert ! \
             avenc_aac ! mux."
        ));
    }

    /// Writes input.mp4, 10 frames a second: so many frames with the demo's portrait on the left, on the right or on neither side.
    pub(super) fn write_faces(&self, scenes: &[(&str, usize)]) {
        let face = format!("filesrc location='{EXAMPLES}/demo/face.jpg' ! jpegdec");
        let mut lines = "rm -f *.jpg\n".to_owned();
        for (name, elements) in [
            ("left", "FACE ! videobox right=-480 ! ENCODER"),
            ("right", "FACE ! videobox left=-480 ! ENCODER"),
            ("neither", "videotestsrc num-buffers=1 pattern=white ! video/x-raw,width=960,height=400 ! ENCODER"),
        ] {
            let encoder = format!("videoconvert ! video/x-raw,format=I420 ! jpegenc ! filesink location={name}.jpg");
            let elements = elements.replace("FACE", &face).replace("ENCODER", &encoder);
            lines += &format!("gst-launch-1.0 -q {elements}\n");
        }
        let pictures = scenes.iter().flat_map(|(picture, count)| std::iter::repeat_n(picture, *count));
        pictures.enumerate().for_each(|(frame, picture)| lines += &format!("cp {picture}.jpg {frame:03}.jpg\n"));
        lines += "gst-launch-1.0 -q multifilesrc location=%03d.jpg caps=image/jpeg,framerate=10/1 ! jpegdec ! \
                  x264enc quantizer=10 pass=qual ! mp4mux ! filesink location=input.mp4";
        self.shell(&lines);
    }

    /// Whether what a detector needs of scripts/models is not there, as the detector then says.
    pub(super) fn lacks_model(&self, element: &str) -> bool {
        let line = format!("gst-launch-1.0 -q videotestsrc num-buffers=1 ! {element} ! fakesink");
        let (status, _, stderr) = self.outcome(self.command(&line));
        assert!(status == 0 || stderr.contains("run scripts/models"), "{stderr}");
        status != 0
    }
}

impl Drop for Workspace {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// An example in Rust. `cargo test --test suite` does not build them, so this does, in the profile of the tests.
fn rust_example(name: &str) -> Command {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let examples = BUILT.get_or_init(|| {
        let tests = std::env::current_exe().unwrap();
        let folder = tests.ancestors().nth(2).unwrap();
        let profile = folder.file_name().unwrap().to_str().unwrap().replace("debug", "dev");
        let mut cargo = Command::new(env!("CARGO"));
        cargo.args(["build", "--locked", "--quiet", "--example", "demo", "--example", "blur"]);
        cargo.args(["--profile", &profile, "--target-dir"]).arg(folder.parent().unwrap());
        assert!(cargo.current_dir(ROOT).status().unwrap().success(), "{cargo:?} failed");
        folder.join("examples")
    });
    Command::new(examples.join(name))
}

/// The C example, built in the workspace by the line in its header, with warnings denied.
fn c_example(workspace: &Workspace) -> Command {
    let source = include_str!("../../examples/blur.c");
    let line = source.lines().find_map(|line| line.strip_prefix("//     cc ")).expect("the header has the build line");
    workspace.shell(&format!("cc -Werror {}", line.replace("examples/blur.c", &format!("'{EXAMPLES}/blur.c'"))));
    Command::new(workspace.0.join("blur"))
}

/// It checks its own frames. A run that fails, here at its end because a folder has the name of one result, writes none.
#[test]
fn demo_covers_marked_places() {
    let workspace = Workspace::new("regions");
    workspace.says(
        "demo --sigma=3 --backend=cpu => checked 180 frames with 180 marked places; no edge is sharper than the Gaussian can leave it…\
         before-after.png: the frame at 3.0 s, in the middle of the clip
         demo --regions --backend=cpu => checked 180 frames with 540 marked places; each was covered in its frame…\
         in 18 frames the boat had no box, and was covered where it was predicted…",
    );
    let names = ["before-after.png", "blurred.mp4", "regions.mp4", "regions.png"];
    assert_eq!(workspace.files("demo-out"), names);
    let video = || fs::read(workspace.0.join("demo-out/regions.mp4")).unwrap();
    let before = video();
    workspace.shell("rm demo-out/regions.png; mkdir demo-out/regions.png");
    workspace.says("demo --regions --sigma=9 --backend=cpu =! demo: demo-out/regions.png is a folder…");
    assert!(video() == before && workspace.files("demo-out") == names);
}

#[test]
fn demo_covers_faces_in_every_frame_though_the_detector_looks_at_few() {
    let workspace = Workspace::new("faces");
    if !has_detectors() {
        return;
    }
    workspace.says("CUDAGAUSSBLUR_MODELS=$PWD demo --faces =! demo: …run scripts/models (detector)");
    assert_eq!(workspace.files("demo-out"), [""; 0]);
    if workspace.lacks_model("centerface") {
        return;
    }
    workspace.says(
        "demo --faces --cover=fill --backend=cpu => checked 180 frames with 180 marked places; the face was covered in each the \
         detector looked at 37 frames…faces.png: the frame at 3.0 s…",
    );
    assert_eq!(workspace.files("demo-out"), ["faces.mp4", "faces.png"]);
}

/// Pushes frames of the portrait with black borders and a GstVideoCropMeta that shows the portrait.
const CROPPED: &str = "\
import sys
import gi
gi.require_version('Gst', '1.0')
gi.require_version('GstApp', '1.0')
gi.require_version('GstVideo', '1.0')
from gi.repository import Gst, GstApp, GstVideo
Gst.init(None)
caps = f'video/x-raw,format={sys.argv[1]},width=480,height=400,framerate=10/1'
border = Gst.parse_launch(
    f'FACE ! videoconvert ! videoscale ! {caps} ! videobox left=-336 top=-241 right=-16 bottom=-15 ! appsink name=sink')
border.set_state(Gst.State.PLAYING)
sample = border.get_by_name('sink').pull_sample()
border.set_state(Gst.State.NULL)
info = GstVideo.VideoInfo.new_from_caps(sample.get_caps())
pipeline = Gst.parse_launch(f'appsrc name=source format=time caps={caps} ! COVERS')
pipeline.set_state(Gst.State.PLAYING)
source = pipeline.get_by_name('source')
for frame in range(6):
    buffer = Gst.Buffer.new_wrapped(sample.get_buffer().extract_dup(0, info.size))
    buffer.pts = frame * Gst.SECOND // 10
    GstVideo.buffer_add_video_meta_full(
        buffer, 0, info.finfo.format, info.width, info.height, info.finfo.n_planes, info.offset, info.stride)
    crop = buffer.add_meta(GstVideo.VideoCropMeta.get_info(), None)
    crop.__class__ = GstVideo.VideoCropMeta
    crop.x, crop.y, crop.width, crop.height = 336, 241, 480, 400
    source.push_buffer(buffer)
source.end_of_stream()
end = pipeline.get_bus().timed_pop_filtered(Gst.CLOCK_TIME_NONE, Gst.MessageType.ERROR | Gst.MessageType.EOS)
pipeline.set_state(Gst.State.NULL)
sys.exit(end.type != Gst.MessageType.EOS)
";

/// What selfiesegmentation says and does, in a pipeline as a user writes it.
#[test]
fn selfiesegmentation_finds_a_person_and_vouches_for_frames_without() {
    let workspace = Workspace::new("elements");
    if !has_detectors() {
        return;
    }
    for (model, reason) in [
        ("none", "none does not exist: check the property model"),
        ("$ROOT/Cargo.toml", "cannot be used as the model: it is no TensorFlow Lite file, or a damaged one"),
    ] {
        let stderr = workspace.stderr(&format!(
            "gst-launch-1.0 -q videotestsrc num-buffers=1 ! selfiesegmentation model={model} ! fakesink"
        ));
        assert!(stderr.contains(reason), "{stderr}");
    }
    if workspace.lacks_model("selfiesegmentation") {
        return;
    }
    // Every kind of format, and sizes that are no multiples: the person of the portrait is covered, whose face is not black; a picture
    // of one colour is not covered, though no frame of it has a person. on-missing=cover covers frames that nobody vouches for.
    let face =
        "multifilesrc location=$ROOT/examples/demo/face.jpg num-buffers=6 caps=image/jpeg,framerate=10/1 ! jpegdec";
    let blank = "videotestsrc pattern=white num-buffers=6";
    let covers = "selfiesegmentation every=4 ! cudagaussblur region-mode=inside shape=mask cover=fill on-missing=cover backend=cpu ! videoconvert ! \
                  video/x-raw,format=GRAY8 ! videoscale ! video/x-raw,width=48,height=40 ! filesink location=grey";
    let check = |what: &str, is_covered: bool| {
        let frames = fs::read(workspace.0.join("grey")).unwrap();
        assert_eq!(frames.len(), 6 * 48 * 40, "{what}");
        for (number, frame) in frames.chunks(48 * 40).enumerate() {
            // The nose of the portrait, and a corner.
            let [nose, corner] = [12 * 48 + 22, 2 * 48 + 45].map(|place| frame[place]);
            assert_eq!(nose < 30, is_covered, "{what}: {nose}");
            // It has 160 in the portrait. Between searches, a box is covered in place of the mask; the first two frames are searched.
            assert!(corner > 150 || is_covered && number > 1, "{what}: {corner}");
        }
    };
    for (source, format, is_covered) in [
        (face, "I420,width=479,height=399", true),
        (face, "YUY2,width=961,height=403", true),
        (face, "BGRx,width=480,height=400", true),
        (face, "GRAY8,width=330,height=400", true),
        (blank, "NV12,width=320,height=240", false),
    ] {
        workspace.stdout(&format!(
            "gst-launch-1.0 -q {source} ! videoconvert ! videoscale ! video/x-raw,format={format} ! {covers}"
        ));
        check(format, is_covered);
    }
    // A GstVideoCropMeta says where the portrait is in larger frames, whose upper left corner is black.
    workspace.write("cropped.py", &CROPPED.replace("FACE", &face.replace("$ROOT", ROOT)).replace("COVERS", covers));
    for format in ["I420", "YUY2", "RGB"] {
        workspace.stdout(&format!("scripts/python gi -- cropped.py {format}"));
        check(format, true);
    }
    // After a person has left the left half, it stays covered for a while, and the right one is never covered.
    let encode = "videoconvert ! video/x-raw,format=I420 ! all.";
    workspace.stdout(&format!(
        "gst-launch-1.0 -q concat name=all ! {covers} {} ! videobox right=-480 fill=white ! {encode} {blank} ! \
         video/x-raw,width=960,height=400,framerate=10/1 ! {encode}",
        face.replace("num-buffers=6", "num-buffers=4")
    ));
    let frames = fs::read(workspace.0.join("grey")).unwrap();
    let shares = frames.chunks(48 * 40).map(|frame| {
        [0..24, 24..48].map(|columns| {
            let dark = frame.chunks(48).flat_map(|row| &row[columns.clone()]).filter(|grey| **grey < 30).count();
            dark as f64 / (24. * 40.)
        })
    });
    let shares: Vec<_> = shares.collect();
    assert!(shares.len() == 10 && shares[3][0] > 0.3 && shares[4][0] > 0.3, "{shares:?}");
    assert!(shares.iter().all(|[_, right]| *right < 0.3), "{shares:?}");
    if workspace.lacks_model("centerface") {
        return;
    }
    // Two persons who are small in a wide white picture: the model of whole pictures finds neither, and faces lead to both.
    for (finder, is_covered) in [("centerface every=4 !", true), ("", false)] {
        workspace.stdout(&format!(
            "gst-launch-1.0 -q compositor name=both background=white sink_0::xpos=120 sink_0::ypos=200 sink_1::xpos=600 \
             sink_1::ypos=200 ! videoconvert ! video/x-raw,format=I420,width=960,height=400 ! {finder} selfiesegmentation ! \
             cudagaussblur region-mode=inside labels=person shape=mask cover=fill on-missing=cover backend=cpu ! \
             videoconvert ! video/x-raw,format=GRAY8 ! videoscale ! video/x-raw,width=48,height=20 ! filesink location=grey \
             {face} ! videoconvert ! videoscale ! video/x-raw,width=240,height=200 ! tee name=person \
             person. ! queue ! both.sink_0 person. ! queue ! both.sink_1"
        ));
        let frames = fs::read(workspace.0.join("grey")).unwrap();
        assert_eq!(frames.len(), 6 * 48 * 20, "{finder}");
        for frame in frames.chunks(48 * 20) {
            // The noses, and what is between them.
            let [left, between, right] = [11, 24, 35].map(|column| frame[13 * 48 + column]);
            assert!([left, right].iter().all(|nose| (*nose < 30) == is_covered), "{finder}: {left} {right}");
            assert!(between > 250, "{finder}: {between}");
        }
    }
}

/// The words of a text's first line that are numbers.
fn numbers(text: &str) -> Vec<f64> {
    text.lines().next().unwrap().split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn demo_blurs_the_background_or_says_what_is_missing() {
    let workspace = Workspace::new("background");
    workspace.says("CUDAGAUSSBLUR_MODELS=$PWD demo --background =! demo: …run scripts/models people (detector)");
    if workspace.lacks_model("selfiesegmentation") {
        return;
    }
    workspace.says(
        "demo --background --backend=cpu => checked 180 frames with 386 marked places; the face was shown, and what is behind the \
         person was blurred…background.png: the frame at 3.0 s…",
    );
    assert_eq!(media::frames(&workspace.0.join("demo-out/background.mp4"), "").len(), 180);
    assert_eq!(media::frames(&workspace.0.join("demo-out/background.png"), "").concat().len(), 2 * 640 * 480);
}

#[test]
fn demo_refuses_what_it_cannot_do() {
    let workspace = Workspace::new("refused");
    for arguments in [
        "file.mp4",
        "--regions --camera",
        "--regions --faces",
        "--cover fill",
        "--cover=x",
        "--background --faces",
        "--background --kernel-size=3",
        "--backend=none",
    ] {
        workspace.says(&format!("demo {arguments} =! demo: …(--help shows the usage)"));
    }
    let stderr = workspace.stderr("GST_PLUGIN_SYSTEM_PATH_1_0=$PWD/plugins demo --faces");
    assert!(stderr.starts_with("demo: ") && stderr.lines().count() == 1, "{stderr}");
    if !Path::new("/dev/video0").exists() {
        workspace.says("demo --camera =! demo: there is no camera at /dev/video0: connect one, or leave out --camera…");
    }
    assert!(!workspace.has("demo-out/faces.mp4") && !workspace.has("demo-out/camera-blurred.mp4"));
}

#[test]
fn virtual_camera_names_what_is_missing() {
    let workspace = Workspace::new("virtual-camera");
    if !has_detectors() {
        workspace.says("virtual_camera.py --test --output=none =! GStreamer does not find centerface…");
        return;
    }
    workspace.says("CUDAGAUSSBLUR_MODELS=$PWD virtual_camera.py --test --output=none =! …run scripts/models people");
    if workspace.lacks_model("selfiesegmentation") || workspace.lacks_model("centerface") {
        return;
    }
    workspace.says(
        "virtual_camera.py --camera=/dev/none             =! /dev/none does not exist: connect a camera…
         virtual_camera.py --test --output=/dev/none      =! /dev/none does not exist: install v4l2loopback-dkms…
         virtual_camera.py --test=none.mp4 --output=none  =! none.mp4 does not exist…
         virtual_camera.py --test --output=none --frames=15 => 15 frames, … a second, mask included (…",
    );
    // The error that pipewiresink posts when its reader leaves, another one of its errors, and one of another element.
    workspace.write("errors.py", ERRORS);
    workspace.says("scripts/python gi -- errors.py $ROOT/examples => True False False");
    let tools = "for tool in pipewire wireplumber pw-dump dbus-run-session; do command -v $tool >/dev/null; done; \
                 gst-inspect-1.0 --exists pipewiresink";
    if Command::new("sh").args(["-ec", tools]).status().unwrap().success() {
        workspace.write("readers.sh", READERS);
        workspace
            .says("XDG_RUNTIME_DIR=$PWD dbus-run-session -- bash -eu readers.sh $ROOT => 5 5 5 …frames, … a second…");
    }
    if Command::new("gst-inspect-1.0").args(["--exists", "pipewiresink"]).status().unwrap().success() {
        workspace.says("XDG_RUNTIME_DIR=$PWD/none virtual_camera.py --test --output=pipewire =! pipewire: …");
    }
}

const ERRORS: &str = "\
import sys
sys.path.insert(0, sys.argv[1])
import virtual_camera
from gi.repository import GLib, Gst
Gst.init(None)
for name, code in (
    ('pipewire', Gst.ResourceError.NOT_FOUND), ('pipewire', Gst.ResourceError.FAILED), ('blur', Gst.ResourceError.NOT_FOUND)):
    error = GLib.Error.new_literal(Gst.resource_error_quark(), 'all buffers have been removed', int(code))
    message = Gst.Message.new_error(Gst.ElementFactory.make('identity', name), error, '')
    print(virtual_camera.has_lost_reader(message))
";

/// Reads from the virtual camera three times, and then ends it as Ctrl-C does. Prints how many frames each reader got.
const READERS: &str = "\
export XDG_CONFIG_HOME=$XDG_RUNTIME_DIR XDG_STATE_HOME=$XDG_RUNTIME_DIR
pipewire >pipewire.log 2>&1 &
trap 'kill $(jobs -p) 2>/dev/null || true' EXIT
until pw-dump >/dev/null 2>&1; do sleep 0.1; done
wireplumber >wireplumber.log 2>&1 &
\"$1/scripts/python\" gi -- \"$1/examples/virtual_camera.py\" --test --output=pipewire --headless >camera.log &
camera=$!
until pw-dump | grep -q 'Blurred camera'; do kill -0 $camera; sleep 0.1; done
sleep 1
for reader in 1 2 3; do
    timeout 60 gst-launch-1.0 pipewiresrc num-buffers=5 ! video/x-raw ! fakesink silent=false -v | grep -c 'chain '
    sleep 1
    kill -0 $camera
done
kill -INT $camera
wait $camera
cat camera.log
";

/// scripts/demo on a PATH without cargo and apt-get.
#[test]
fn demo_script_prints_help_and_refuses_unknown_options_before_it_installs() {
    let workspace = Workspace::new("help");
    workspace.shell("mkdir tools; for tool in bash cat dirname sed; do ln -s \"$(command -v $tool)\" tools; done");
    let help = workspace.stdout("demo --help");
    assert!(help.contains("usage: scripts/demo [OPTIONS]"), "{help}");
    for arguments in ["--help", "-h", "--faces --help", "--sigma 3 --out=x file.mp4 -h"] {
        assert_eq!(workspace.stdout(&format!("PATH=$PWD/tools scripts/demo {arguments}")), help, "{arguments}");
    }
    for (arguments, reason) in [
        ("--sigmas 3", "unknown option --sigmas"),
        ("--faces --colour=red", "unknown option --colour"),
        ("-x", "unknown option -x"),
        ("--backend=cpu --sigma", "--sigma needs a value"),
    ] {
        for program in ["PATH=$PWD/tools scripts/demo", "demo"] {
            workspace.says(&format!("{program} {arguments} =! demo: {reason} (--help shows the usage)"));
        }
    }
    // Values are the demo's to check.
    for arguments in ["--sigma --help", "--out -x", "--faces", "file.mp4"] {
        workspace.says(&format!("PATH=$PWD/tools scripts/demo {arguments} =! …scripts/setup: …"));
    }
}

#[test]
fn python_attaches_boxes_of_its_own_and_translates_metas_of_a_vendor() {
    Workspace::new("own-boxes").says(
        "own_boxes.py => 90 frames, 90 boxes attached…
         vendor_metas.py => 10 frames, 5 masks translated, all covered",
    );
    // The vendors' own bindings are not installed; objects with the same attributes stand in for theirs.
    python::output(python::with("gi").args([&format!("{ROOT}/tests/suite/vendor_boxes.py"), EXAMPLES]));
}

/// A clip of 20 white frames.
const CLIP: &str = "gst-launch-1.0 -q videotestsrc num-buffers=20 pattern=white ! video/x-raw,format=I420,width=64,height=48 ! \
                    x264enc ! mp4mux ! filesink location=input.mp4";

/// Lines of one object are keyframes, whichever comes first in the file. Other lines are boxes of one frame.
#[test]
fn python_covers_boxes_of_a_file_and_between_keyframes() {
    let workspace = Workspace::new("keyframes");
    workspace.shell(CLIP);
    for column in ["frame", "time"] {
        // videotestsrc makes 30 frames a second.
        let [single, first, last, other] = [2, 5, 15, 18].map(|frame| match column {
            "frame" => frame.to_string(),
            _ => format!("{:.4}", (f64::from(frame) + 0.1) / 30.0),
        });
        let rows = format!(
            "{other},0,8,15,32,plate,b\n{last},30,8,5,32,plate,a\n{first},0,8,15,32,plate,a\n{single},0,8,15,32,plate,\n"
        );
        workspace.write("boxes.csv", &format!("{column}, x,y,width,height,label,id\n{rows}"));
        workspace.says(
            "boxes_from_file.py input.mp4 boxes.csv covered.mp4 --hold=0 --labels=plate => 20 frames, 13 boxes attached…",
        );
        let frames = media::frames(&workspace.0.join("covered.mp4"), "");
        assert_eq!(frames.len(), 20, "{column}");
        for (frame, pixels) in frames.iter().enumerate() {
            let row = &pixels[24 * 64..][..64];
            // From frame 5 to frame 15 the box moves by 3 pixels a frame and gets smaller.
            let covered = match frame {
                2 | 18 => 0..15,
                5..=15 => 3 * (frame - 5)..15 + 2 * (frame - 5),
                _ => 0..0,
            };
            // Ahead of the object nothing is covered but by `expand`. The codec softens edges.
            let bounds = [covered.start + 1..covered.end.saturating_sub(1), covered.end + 8..64];
            let [inside, ahead] = bounds.map(|columns| row.get(columns).unwrap_or_default());
            assert!(inside.iter().all(|grey| *grey < 96), "{column}: the object shows in frame {frame}: {row:?}");
            let shows = if covered.is_empty() { row } else { ahead };
            assert!(shows.iter().all(|grey| *grey > 160), "{column}: too much is covered in frame {frame}: {row:?}");
        }
    }
}

/// The places are those of the picture that players show. x264enc takes no odd sides, and the program does not wait for ever for it.
#[test]
fn python_covers_boxes_of_turned_and_odd_videos() {
    let workspace = Workspace::new("turned-boxes");
    for (name, width, height) in [("turned.mp4", 96, 64), ("odd.mp4", 65, 49)] {
        workspace.stdout(&format!(
            "gst-launch-1.0 -q videotestsrc num-buffers=3 pattern=white ! video/x-raw,width={width},height={height} ! \
             jpegenc ! qtmux ! filesink location={name}"
        ));
    }
    media::turn(&workspace.0.join("turned.mp4"));
    let covered = workspace.0.join("covered.mp4");
    for (video, [x, y], size) in [("turned.mp4", [16, 72], "64x96 1/1 high"), ("odd.mp4", [40, 24], "64x48 1/1 high")] {
        workspace.write("boxes.csv", &format!("frame,x,y,width,height\n1,{x},{y},16,16\n1,990,9,9,9\n"));
        let line = format!("boxes_from_file.py {video} boxes.csv covered.mp4 --hold=0");
        workspace.says(&format!("{line} => …1 of 2 boxes lie beyond the picture…3 frames, 2 boxes attached…"));
        assert_eq!(media::h264(&covered), size, "{video}");
        let frames = media::frames(&covered, "videoscale ! capsfilter caps=video/x-raw,width=64,height=96 !");
        // The sides that were odd are one less.
        let rows = if video == "odd.mp4" { 48 } else { 96 };
        let at = (y + 8) * 96 / rows * 64 + (x + 8).min(60);
        let dark: Vec<_> = frames.iter().map(|frame| frame[at] < 64).collect();
        assert_eq!(dark, [false, true, false], "{video}");
    }
}

#[test]
fn files_of_boxes_that_do_not_fit_are_refused() {
    let workspace = Workspace::new("bad-boxes");
    workspace.shell(CLIP);
    workspace.write("text.mp4", "no video");
    for (video, boxes, reason) in [
        ("input", "frame,x,y,width,height\n20,0,0,8,8\n", "input.mp4: 1 line of boxes.csv beyond the end of the video"),
        ("input", "x,y,width,height\n0,0,8,8\n", "one column frame or one column time"),
        ("input", "frame,x,y,width\n0,0,0,8\n", "has no column height"),
        ("input", "frame,x,y,width,height,size\n0,0,0,8,8,1\n", "has a column size, which is not used"),
        ("input", "frame,x,y,width,height\n0,0,0,8\n", "line 2: it has more or fewer values"),
        ("input", "frame,x,y,width,height\n0,0,0,8,8\n1,0,0,0,8\n", "line 3: the box is empty"),
        ("input", "frame,x,y,width,height\n0,left,0,8,8\n", "line 2: could not convert string to float"),
        ("input", "frame,x,y,width,height\n0,nan,0,8,8\n", "line 2: a number is negative or not finite"),
        (
            "input",
            "frame,x,y,width,height,id\n1,0,0,8,8,a\n1,0,0,8,8,\n1,0,0,8,8,a\n",
            "line 4: id a is also in line 2, with the same frame",
        ),
        (
            "input",
            "time,x,y,width,height,id,label\n0.1,0,0,8,8,a,face\n0.2,0,0,8,8,a,plate\n",
            "line 3: id a is also in line 2, with another label",
        ),
        (
            "input",
            "frame,x,y,width,height,id\n1,0,0,8,8,a\n40,0,0,8,8,a\n",
            "1 line of boxes.csv beyond the end of the video",
        ),
        ("input", "", "has no column x"),
        ("input", "frame,x,y,width,height\n", "has no boxes, so that nothing would be covered"),
        ("input", "frame,x,y,width,height\n0,900,0,8,8\n", "input.mp4: no box of boxes.csv covers anything: compare"),
        ("input", "frame,x,y,width,height,label\n0,0,0,8,8,plate\n", "no box of boxes.csv covers anything"),
        ("text", "frame,x,y,width,height\n0,0,0,8,8\n", "text.mp4: it is not a video"),
    ] {
        workspace.write("boxes.csv", boxes);
        let stderr = workspace.stderr(&format!("boxes_from_file.py {video}.mp4 boxes.csv covered.mp4 --labels=face"));
        assert!(stderr.contains(reason), "{boxes}: {stderr}");
        let left = workspace.files("");
        assert!(!left.iter().any(|name| name == "covered.mp4" || name.ends_with(".part")), "{boxes}: {left:?}");
    }
}

/// Asserts that the edge of videotestsrc's bar is as steep as a Gaussian makes it: a step of height h has slope
/// h / (sqrt(2 pi) sigma).
fn assert_edge(frame: usize, contrast: u8, sigma: f64) {
    const STEP: f64 = 219.0;
    let slope = (STEP / (std::f64::consts::TAU.sqrt() * sigma)).min(STEP);
    // The codec adds noise, and scales are rounded.
    let bounds = 0.75 * slope - 2.0..1.25 * slope + 2.0;
    assert!(bounds.contains(&f64::from(contrast)), "frame {frame}: contrast {contrast} with sigma {sigma}");
}

/// Asserts that an example prints these values of sigma, one every 30 frames, and the number of frames.
fn assert_sweep(workspace: &Workspace, line: &str, sigmas: &str) {
    let stdout = workspace.stdout(line);
    let printed = sigmas.split(' ').enumerate().map(|(i, sigma)| format!("frame {}: sigma {sigma}\n", 30 * i));
    assert!(stdout.starts_with(&printed.collect::<String>()), "{stdout}");
    let frames = 30 * sigmas.split(' ').count();
    assert!(stdout.contains(&format!("-stats, frames=(guint64){frames}")), "{stdout}");
}

#[test]
fn programs_change_sigma() {
    let workspace = Workspace::new("sigma");
    assert_sweep(&workspace, "blur.py --headless", "0.0 4.0 8.0 12.0 16.0 20.0 16.0 12.0 8.0 4.0");
    workspace.write_clip([640, 96], "bar", 150);
    assert_sweep(&workspace, "blur.c input.mp4 blurred.mp4", "0 2 4 8 16");
    let contrasts = media::contrasts(&workspace.0.join("blurred.mp4"), 640);
    assert_eq!(contrasts.len(), 150);
    for (frame, contrast) in contrasts.into_iter().enumerate() {
        assert_edge(frame, contrast, [0.0, 2.0, 4.0, 8.0, 16.0][frame / 30]);
    }
}

#[test]
fn slider_in_a_window_moves_sigma() {
    // Some versions of xvfb-run join standard error, on which the graphics drivers say what they lack.
    Workspace::new("window").says(
        "xvfb-run -a $ROOT/scripts/python gi -- $ROOT/tests/suite/use_window.py $ROOT/examples => \
         …sharp…blurred…sharp, the slider is sensitive: False…blurred, the slider is sensitive: True…active-backend…",
    );
}

#[test]
fn timeline_blurs_by_keyframes_and_keeps_the_sound() {
    let workspace = Workspace::new("timeline");
    workspace.write_clip([640, 96], "bar", 120);
    // The first three seconds of a clip of four, and of a test pattern.
    for (arguments, is_clip) in [("input.mp4 clip.mp4", true), ("pattern.mp4", false)] {
        let name = arguments.split(' ').next_back().unwrap();
        workspace.says(&format!("timeline.py {arguments} => wrote 3.0 s to {name}"));
        let contrasts = media::contrasts(&workspace.0.join(name), 640);
        assert_eq!(contrasts.len(), 90, "{name}");
        assert!(contrasts[89] < contrasts[29] / 4, "{name}: {contrasts:?}");
        let (seconds, amplitude) = media::sound(&workspace.0.join(name));
        assert!((seconds - 3.0).abs() < 0.1, "{name}: {seconds} s of sound");
        if is_clip {
            for (frame, contrast) in contrasts.into_iter().enumerate() {
                assert_edge(frame, contrast, (frame as f64 - 30.0).max(0.0) / 3.0);
            }
            // A sine of amplitude 0.8: its mean is 0.8 times 2/pi.
            assert!((amplitude - 0.51).abs() < 0.1, "{amplitude}");
        }
    }
}

#[test]
fn frames_received_by_rtp_are_blurred() {
    let stdout = Workspace::new("rtp").stdout("rtp.py");
    let contrasts: Vec<_> = stdout.lines().filter(|line| line.starts_with("frame ")).map(numbers).collect();
    assert_eq!(contrasts.len(), 3, "{stdout}");
    for contrast in contrasts {
        // The checkers in the left half are grey, with what is left of their edges.
        assert!((0.3..2.0).contains(&contrast[0]) && contrast[1] > 5.0, "{stdout}");
    }
    assert!(stdout.contains("30 frames received"), "{stdout}");
}

/// All with arguments. None needs what it is made for to say how it is called.
#[test]
fn python_examples_print_their_usage() {
    let workspace = Workspace::new("usage");
    for name in ["blur.py", "boxes_from_file.py", "rtp.py", "timeline.py", "virtual_camera.py"] {
        workspace.says(&format!("{name} --help => usage: {name} [-h]…"));
        workspace.says(&format!("{name} --no-such-option =! usage: {name} [-h]…"));
    }
}

#[test]
fn examples_name_what_is_missing() {
    let workspace = Workspace::new("missing");
    workspace.says(
        "timeline.py missing.mp4 result.mp4 =! missing.mp4: Resource not found.…
         blur.py --headless missing.mp4     =! missing.mp4: Resource not found.…
         blur missing.mp4                   =! missing.mp4: Resource not found.…
         blur.c missing.mp4                 =! missing.mp4: Resource not found.…
         blur.py                            =! there is no display: use --headless",
    );
    for (line, element, package) in [
        ("blur.c", "videoconvert", "base"),
        ("blur.py --headless", "videoconvert", "base"),
        ("blur.py", "videoconvert", "base"),
        ("rtp.py", "videoconvert", "base"),
        ("timeline.py result.mp4", "mp4mux", "good"),
    ] {
        workspace.says(&format!(
            "GST_PLUGIN_SYSTEM_PATH_1_0=$PWD {line} =! …GStreamer does not find {element}: install gstreamer1.0-plugins-{package}"
        ));
    }
}
