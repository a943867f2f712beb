//! Runs the demo and the examples, so that they stay correct, and checks what they write, show and send, and what they
//! say when something is missing. Those that cover parts of the picture check their own output.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

use crate::common::{media, python};

const EXAMPLES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/examples");

/// A temporary folder with the plugin.
pub(super) struct Workspace(pub(super) PathBuf);

/// A folder with the plugin and with GStreamer's registry, which to make takes a second: that of all workspaces.
fn installed() -> &'static Path {
    static FOLDER: OnceLock<PathBuf> = OnceLock::new();
    FOLDER.get_or_init(|| {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("installed");
        fs::create_dir_all(&folder).unwrap();
        let _ = fs::remove_file(folder.join("libgstcudagaussblur.so"));
        symlink(plugin(), folder.join("libgstcudagaussblur.so")).unwrap();
        let mut inspect = Command::new("gst-inspect-1.0");
        inspect.arg("cudagaussblur").env("GST_PLUGIN_PATH", format!("{}:{EXAMPLES}", folder.display()));
        let output = inspect.env("GST_REGISTRY", folder.join("registry.bin")).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        folder
    })
}

fn plugin() -> PathBuf {
    std::env::current_exe().unwrap().with_file_name("libgstcudagaussblur.so")
}

impl Workspace {
    pub(super) fn new(name: &str) -> Self {
        let folder = std::env::temp_dir().join(format!("cudagaussblur-{name}-{}", std::process::id()));
        fs::create_dir_all(folder.join("plugins")).unwrap();
        symlink(plugin(), folder.join("plugins/libgstcudagaussblur.so")).unwrap();
        Self(folder)
    }

    /// The command, in this folder and with the plugin. One that looks for plugins elsewhere gets a registry of its own.
    pub(super) fn run(&self, command: &mut Command) -> Output {
        let looks_elsewhere = command.get_envs().any(|(name, _)| name == "GST_PLUGIN_SYSTEM_PATH_1_0");
        let (plugins, registry) =
            if looks_elsewhere { (self.0.join("plugins"), &*self.0) } else { (installed().into(), installed()) };
        command
            .current_dir(&self.0)
            .env("GST_PLUGIN_PATH", format!("{}:{EXAMPLES}", plugins.display()))
            .env("GST_REGISTRY", registry.join("registry.bin"))
            .env_remove("DISPLAY")
            .env_remove("WAYLAND_DISPLAY");
        command.output().unwrap_or_else(|error| panic!("{command:?} does not start: {error}"))
    }

    /// Standard output of a command that succeeds.
    pub(super) fn stdout(&self, command: &mut Command) -> String {
        let output = self.run(command);
        let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(output.status.success(), "{command:?} ended with {}: {stdout}{stderr}", output.status);
        stdout
    }

    /// Standard error of a command that fails.
    pub(super) fn stderr(&self, command: &mut Command) -> String {
        let output = self.run(command);
        let [stdout, stderr] = [output.stdout, output.stderr].map(|text| String::from_utf8(text).unwrap());
        assert!(!output.status.success(), "{command:?} succeeded: {stdout}{stderr}");
        stderr
    }

    /// Runs a shell's lines, which must succeed.
    pub(super) fn shell(&self, lines: &str) {
        self.stdout(Command::new("sh").args(["-ec", lines]));
    }

    pub(super) fn write(&self, name: &str, text: &str) {
        fs::write(self.0.join(name), text).unwrap();
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.join(name).exists()
    }

    /// Writes input.mp4: `count` frames of 640x360, 30 a second, and a tone of the same length.
    pub(super) fn write_clip(&self, pattern: &str, count: u32) {
        self.write_clip_of([640, 360], pattern, count);
    }

    pub(super) fn write_clip_of(&self, [width, height]: [u32; 2], pattern: &str, count: u32) {
        // 30 buffers of sound a second.
        self.shell(&format!(
            "gst-launch-1.0 -q videotestsrc num-buffers={count} pattern={pattern} ! \
             video/x-raw,width={width},height={height} ! x264enc ! mp4mux name=mux ! filesink location=input.mp4 \
             audiotestsrc num-buffers={count} samplesperbuffer=1600 ! audio/x-raw,rate=48000 ! audioconvert ! \
             avenc_aac ! mux."
        ));
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
        assert!(cargo.current_dir(env!("CARGO_MANIFEST_DIR")).status().unwrap().success(), "{cargo:?} failed");
        folder.join("examples")
    });
    Command::new(examples.join(name))
}

fn demo(arguments: &[&str]) -> Command {
    let mut command = rust_example("demo");
    command.args(arguments);
    command
}

/// The C example, built in the workspace by the line in its header, with warnings denied.
fn c_example(workspace: &Workspace) -> Command {
    let source = include_str!("../../examples/blur.c");
    let line = source.lines().find_map(|line| line.strip_prefix("//     cc ")).expect("the header has the build line");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/blur.c");
    let line = format!("cc -Werror {}", line.replace("examples/blur.c", &format!("'{example}'")));
    workspace.shell(&line);
    Command::new(workspace.0.join("blur"))
}

/// A Python example.
pub(super) fn python_example(name: &str) -> Command {
    let mut command = python::with("gi");
    command.arg(Path::new(EXAMPLES).join(name));
    command
}

#[test]
fn demo_covers_marked_places() {
    let workspace = Workspace::new("regions");
    let stdout = workspace.stdout(&mut demo(&["--regions", "--backend", "cpu"]));
    assert!(stdout.starts_with("180 frames with 540 marked places; each was covered in its frame"), "{stdout}");
    assert!(
        stdout.contains("\nin 18 frames the boat had no box, and was covered where it was predicted\n"),
        "{stdout}"
    );
    assert!(stdout.ends_with("regions.png: the frame at 3.0 s, in the middle of the clip\n"), "{stdout}");
    assert!(!stdout.contains("all covered"), "{stdout}");
    assert!(workspace.has("demo-out/regions.mp4") && workspace.has("demo-out/regions.png"), "{stdout}");
}

/// Writes input.mp4, 10 frames a second: so many frames with the demo's portrait on the left, cut off at the left edge, on
/// the right, on both sides or on neither.
pub(super) fn write_faces(workspace: &Workspace, scenes: &[(&str, usize)]) {
    let face = concat!("filesrc location='", env!("CARGO_MANIFEST_DIR"), "/examples/demo/face.jpg' ! jpegdec");
    let picture = |elements: &str, name: &str| {
        let encoder = format!("videoconvert ! video/x-raw,format=I420 ! jpegenc ! filesink location={name}.jpg");
        format!("gst-launch-1.0 -q {}", elements.replace("FACE", face).replace("ENCODER", &encoder))
    };
    let mut lines = vec![
        "rm -f *.jpg".into(),
        picture("FACE ! videobox right=-480 ! ENCODER", "left"),
        picture("FACE ! videobox left=160 right=-640 ! ENCODER", "edge"),
        picture("FACE ! videobox left=-480 ! ENCODER", "right"),
        picture("compositor name=both sink_1::xpos=480 ! ENCODER FACE ! both. FACE ! both.", "both"),
        picture("videotestsrc num-buffers=1 pattern=white ! video/x-raw,width=960,height=400 ! ENCODER", "neither"),
    ];
    let pictures = scenes.iter().flat_map(|(picture, count)| std::iter::repeat_n(picture, *count));
    lines.extend(pictures.enumerate().map(|(frame, picture)| format!("cp {picture}.jpg {frame:03}.jpg")));
    lines.push(
        "gst-launch-1.0 -q multifilesrc location=%03d.jpg caps=image/jpeg,framerate=10/1 ! jpegdec ! x264enc quantizer=10 pass=qual ! \
         mp4mux ! filesink location=input.mp4"
            .into(),
    );
    workspace.shell(&lines.join("\n"));
}

/// The files of a folder.
fn files(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<_> = files.collect();
    files.sort();
    files
}

/// Whether what scripts/models downloads is not there. The demo then says so.
pub fn lacks_models(workspace: &Workspace) -> bool {
    let script = "\
import sys
sys.path.insert(0, sys.argv[1] + '/python')
import centerface, selfiesegmentation
for element in centerface.CenterFace, selfiesegmentation.SelfieSegmentation:
    element().open(element.default_model(), 1)
";
    let mut command = python::with("numpy,gi");
    if workspace.run(command.args(["-c", script, EXAMPLES])).status.success() {
        return false;
    }
    let stderr = workspace.stderr(&mut demo(&["--faces"]));
    assert!(stderr.ends_with("run scripts/models (detector)\n") && !workspace.has("demo-out/faces.mp4"), "{stderr}");
    true
}

#[test]
fn demo_covers_faces_in_every_frame_though_the_detector_looks_at_few() {
    let workspace = Workspace::new("faces");
    let stderr = workspace.stderr(demo(&["--faces"]).env("CUDAGAUSSBLUR_MODELS", &workspace.0));
    assert!(stderr.starts_with("demo: ") && stderr.ends_with("run scripts/models (detector)\n"), "{stderr}");
    assert_eq!(files(&workspace.0.join("demo-out")), [""; 0]);
    if lacks_models(&workspace) {
        return;
    }
    for cover in ["fill", "mosaic"] {
        let cover = format!("--cover={cover}");
        let stdout = workspace.stdout(&mut demo(&["--faces", &cover, "--backend=cpu"]));
        let expected =
            "180 frames with 180 faces; each was covered in its frame, by a detector that looked at 36 frames\n";
        assert!(stdout.starts_with(expected), "{stdout}");
        assert!(stdout.ends_with("faces.png: the frame at 3.0 s, with the most faces\n"), "{stdout}");
    }
    assert_eq!(files(&workspace.0.join("demo-out")), ["faces.mp4", "faces.png"]);
    // A folder has the name of one result: none is written.
    let out = workspace.0.join("demo-out");
    let before = fs::read(out.join("faces.mp4")).unwrap();
    fs::remove_file(out.join("faces.png")).unwrap();
    fs::create_dir(out.join("faces.png")).unwrap();
    let stderr = workspace.stderr(&mut demo(&["--faces", "--cover=blur", "--backend=cpu"]));
    assert!(stderr.starts_with("demo: demo-out/faces.png is a folder"), "{stderr}");
    assert_eq!(fs::read(out.join("faces.mp4")).unwrap(), before);
    assert_eq!(files(&out).len(), 2);
}

/// What the elements of examples/python say and do, in a pipeline as a user writes it.
#[test]
fn python_elements_find_what_is_there_and_vouch_for_frames_without() {
    let workspace = Workspace::new("elements");
    let launch = |line: &str| {
        let mut command = Command::new("gst-launch-1.0");
        command.arg("-q").args(line.split_whitespace()).env("HOME", workspace.0.join("home"));
        workspace.run(&mut command)
    };
    let said = |output: &Output| String::from_utf8_lossy(&output.stderr).into_owned();
    for element in ["centerface", "selfiesegmentation"] {
        let output = launch(&format!("videotestsrc num-buffers=1 ! {element} model=none ! fakesink"));
        let stderr = said(&output);
        assert!(
            !output.status.success() && stderr.contains("none does not exist: check the property model"),
            "{stderr}"
        );
        assert!(!stderr.contains("Traceback") && !stderr.contains("CRITICAL"), "{stderr}");
    }
    if lacks_models(&workspace) {
        return;
    }
    // Every format, and sizes that are no multiples: the portrait's face is covered, whose skin is not black; a picture of one
    // colour is not covered, though no frame of it has a face. on-missing=cover covers frames that nobody vouches for.
    let face = format!(
        "multifilesrc location={EXAMPLES}/demo/face.jpg num-buffers=6 caps=image/jpeg,framerate=10/1 ! jpegdec"
    );
    let blank = "videotestsrc pattern=white num-buffers=6";
    let cover = "cudagaussblur region-mode=inside cover=fill on-missing=cover backend=cpu";
    for (source, format, is_covered) in [
        (&*face, "I420,width=479,height=399", true),
        (&face, "YUY2,width=961,height=403", true),
        (&face, "BGRx,width=480,height=400", true),
        (&face, "GRAY8,width=330,height=400", true),
        (blank, "NV12,width=320,height=240", false),
    ] {
        let caps = format!("video/x-raw,format={format}");
        let output = launch(&format!(
            "{source} ! videoconvert ! videoscale ! {caps} ! centerface every=4 ! {cover} ! videoconvert ! video/x-raw,format=GRAY8 ! \
             videoscale ! video/x-raw,width=48,height=40 ! filesink location=grey"
        ));
        assert!(output.status.success(), "{format}: {}", said(&output));
        let frames = fs::read(workspace.0.join("grey")).unwrap();
        assert_eq!(frames.len(), 6 * 48 * 40, "{format}");
        for frame in frames.chunks(48 * 40) {
            // The nose of the portrait, and a corner.
            let [nose, corner] = [12 * 48 + 22, 2 * 48 + 45].map(|place| frame[place]);
            assert_eq!(nose < 30, is_covered, "{format}: {nose}");
            assert!(corner > 60, "{format}: {corner}");
        }
    }
    // ONNX Runtime would keep an identity of this machine there, and report its use.
    assert!(!workspace.has("home/.cache/Microsoft"), "ONNX Runtime's telemetry is on");
}

/// Of boxes that overlap the strongest is left.
#[test]
fn boxes_of_one_face_are_one() {
    let script = "\
import sys
sys.path.insert(0, sys.argv[1] + '/python')
import centerface, numpy
boxes = numpy.array([(0, 0, 10, 10, 0.9), (2, 0, 12, 10, 0.6), (4, 4, 6, 6, 0.5), (9, 9, 19, 19, 0.4), (50, 50, 50, 60, 0.3)])
print([box[0] for box in centerface.distinct(boxes)], centerface.overlap(boxes[0], boxes[1]), centerface.overlap(boxes[0], boxes[2]))
";
    let mut command = python::with("numpy,gi");
    command.args(["-c", script, EXAMPLES]);
    assert_eq!(python::output(&mut command), "[0.0, 9.0] 0.8 1.0\n");
}

/// The words of the first line that are numbers.
fn numbers(text: &str) -> Vec<f64> {
    text.lines().next().unwrap().split_whitespace().filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn demo_blurs_the_background_or_says_what_is_missing() {
    let workspace = Workspace::new("background");
    let stderr = workspace.stderr(demo(&["--background"]).env("CUDAGAUSSBLUR_MODELS", &workspace.0));
    assert!(stderr.starts_with("demo: ") && stderr.ends_with("run scripts/models (detector)\n"), "{stderr}");
    if lacks_models(&workspace) {
        return;
    }
    let stdout = workspace.stdout(&mut demo(&["--background", "--backend=cpu"]));
    let [frames, shown, open] = numbers(&stdout)[..] else { panic!("{stdout}") };
    assert!(frames == 180.0 && shown >= 99.3 && open <= 2.2, "{stdout}");
    assert!(stdout.ends_with("background.png: the frame at 3.0 s, in the middle of the clip\n"), "{stdout}");
    assert_eq!(media::frames(&workspace.0.join("demo-out/background.mp4"), "").len(), 180);
    // The frame before, with a plain blur, and with this element's.
    let picture = media::frames(&workspace.0.join("demo-out/background.png"), "").concat();
    assert_eq!(picture.len(), 3 * 1280 * 720);
    let steps = |side: usize| {
        let rows = picture.chunks(3 * 1280).map(|row| &row[1280 * side..][..200]);
        rows.map(|row| row.windows(2).map(|pair| u32::from(pair[0].abs_diff(pair[1]))).sum::<u32>()).sum::<u32>()
    };
    assert!([1, 2].iter().all(|side| steps(*side) < steps(0) / 2), "{:?}", [0, 1, 2].map(steps));
}

#[test]
fn demo_refuses_what_it_cannot_do() {
    let workspace = Workspace::new("refused");
    for arguments in [
        &["file.mp4"][..],
        &["--regions", "--camera"],
        &["--regions", "--faces"],
        &["--cover", "fill"],
        &["--cover=x"],
        &["--background", "--faces"],
        &["--background", "--kernel-size=3"],
    ] {
        let stderr = workspace.stderr(&mut demo(arguments));
        assert!(stderr.starts_with("demo: ") && stderr.ends_with("(--help shows the usage)\n"), "{stderr}");
    }
    let stderr = workspace.stderr(demo(&["--faces"]).env("GST_PLUGIN_SYSTEM_PATH_1_0", workspace.0.join("plugins")));
    assert!(stderr.starts_with("demo: ") && stderr.lines().count() == 1, "{stderr}");
    if !Path::new("/dev/video0").exists() {
        let stderr = workspace.stderr(&mut demo(&["--camera"]));
        assert!(stderr.starts_with("demo: ") && stderr.contains("/dev/video0"), "{stderr}");
    }
    assert!(!workspace.has("demo-out/faces.mp4") && !workspace.has("demo-out/camera-blurred.mp4"));
}

#[test]
fn virtual_camera_names_what_is_missing() {
    let workspace = Workspace::new("virtual-camera");
    let camera = |arguments: &[&str]| {
        let mut command = python::with("numpy,gi");
        command.arg(Path::new(EXAMPLES).join("virtual_camera.py")).args(arguments);
        command
    };
    let stderr = workspace.stderr(camera(&["--test", "--output=none"]).env("CUDAGAUSSBLUR_MODELS", &workspace.0));
    assert!(stderr.ends_with("run scripts/models\n"), "{stderr}");
    if lacks_models(&workspace) {
        return;
    }
    for (arguments, reason) in [
        (&["--camera=/dev/none"][..], "/dev/none does not exist: connect a camera"),
        (&["--test", "--output=/dev/none"], "/dev/none does not exist: install v4l2loopback-dkms"),
        (&["--test=none.mp4", "--output=none"], "none.mp4 does not exist"),
    ] {
        let stderr = workspace.stderr(&mut camera(arguments));
        assert!(stderr.starts_with(reason) && stderr.lines().count() == 1, "{stderr}");
    }
    let stdout = workspace.stdout(&mut camera(&["--test", "--output=none", "--frames=15"]));
    assert!(stdout.starts_with("15 frames, ") && stdout.contains(" a second, mask included ("), "{stdout}");
}

/// scripts/demo on a PATH without cargo and apt-get.
fn demo_script(workspace: &Workspace, arguments: &[&str]) -> Command {
    let tools = workspace.0.join("tools");
    let path = std::env::var_os("PATH").unwrap();
    fs::create_dir_all(&tools).unwrap();
    for tool in ["bash", "cat", "dirname", "sed"] {
        let found = std::env::split_paths(&path).map(|folder| folder.join(tool)).find(|path| path.exists());
        let _ = std::os::unix::fs::symlink(found.unwrap(), tools.join(tool));
    }
    let mut command = Command::new(concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/demo"));
    command.args(arguments).env("PATH", tools);
    command
}

#[test]
fn demo_script_prints_help_and_refuses_unknown_options_before_it_installs() {
    let workspace = Workspace::new("help");
    for arguments in [&["--help"][..], &["-h"], &["--faces", "--help"], &["--sigma", "3", "--out=x", "file.mp4", "-h"]]
    {
        let help = workspace.stdout(&mut demo_script(&workspace, arguments));
        assert_eq!(help, workspace.stdout(&mut demo(&["--help"])), "{arguments:?}");
        assert!(help.contains("usage: scripts/demo [OPTIONS]"), "{help}");
    }
    for (arguments, reason) in [
        (&["--sigmas", "3"][..], "unknown option --sigmas"),
        (&["--faces", "--colour=red"], "unknown option --colour"),
        (&["-x"], "unknown option -x"),
        (&["--backend=cpu", "--sigma"], "--sigma needs a value"),
    ] {
        let expected = format!("demo: {reason} (--help shows the usage)\n");
        assert_eq!(workspace.stderr(&mut demo_script(&workspace, arguments)), expected);
        assert_eq!(workspace.stderr(&mut demo(arguments)), expected);
    }
    // Values are the demo's to check.
    for arguments in [&["--sigma", "--help"][..], &["--out", "-x"], &["--faces"], &["file.mp4"]] {
        let stderr = workspace.stderr(&mut demo_script(&workspace, arguments));
        assert!(stderr.contains("scripts/setup: "), "{arguments:?}: {stderr}");
    }
}

#[test]
fn python_attaches_boxes_of_its_own() {
    let stdout = Workspace::new("own-boxes").stdout(&mut python_example("own_boxes.py"));
    assert!(stdout.starts_with("90 frames, 90 boxes attached"), "{stdout}");
}

#[test]
fn python_translates_metas_of_a_vendor() {
    let workspace = Workspace::new("vendor-metas");
    let stdout = workspace.stdout(&mut python_example("vendor_metas.py"));
    assert_eq!(stdout, "10 frames, 5 masks translated, all covered\n");
}

/// The vendors' own bindings are not installed; objects with the same attributes stand in for theirs.
#[test]
fn boxes_and_masks_of_vendors_are_pixels_and_samples() {
    python::output(
        python::with("gi").args([concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/vendor_boxes.py"), EXAMPLES]),
    );
}

/// A clip of 20 white frames.
const CLIP: &str = "gst-launch-1.0 -q videotestsrc num-buffers=20 pattern=white ! video/x-raw,width=64,height=48 ! \
                    x264enc ! mp4mux ! filesink location=input.mp4";

/// Lines of one object are keyframes, whichever comes first in the file. Other lines are boxes of one frame.
#[test]
fn python_covers_boxes_of_a_file_and_between_keyframes() {
    let workspace = Workspace::new("keyframes");
    workspace.shell(CLIP);
    // videotestsrc makes 30 frames a second.
    let number = |frame: u32| frame.to_string();
    let time = |frame: u32| format!("{:.4}", (f64::from(frame) + 0.1) / 30.0);
    for (column, position) in [("frame", &number as &dyn Fn(u32) -> String), ("time", &time)] {
        let [single, first, last, other] = [2, 5, 15, 18].map(position);
        let rows = format!(
            "{other},0,8,15,32,plate,b\n{last},30,8,5,32,plate,a\n{first},0,8,15,32,plate,a\n{single},0,8,15,32,plate,\n"
        );
        workspace.write("boxes.csv", &format!("{column}, x,y,width,height,label,id\n{rows}"));
        let mut command = python_example("boxes_from_file.py");
        command.args(["input.mp4", "boxes.csv", "covered.mp4", "--hold=0", "--labels=plate"]);
        let stdout = workspace.stdout(&mut command);
        assert!(stdout.starts_with("20 frames, 13 boxes attached"), "{column}: {stdout}");
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
    let make = |name: &str, width: u32, height: u32| {
        let line = format!(
            "gst-launch-1.0 -q videotestsrc num-buffers=3 pattern=white ! video/x-raw,width={width},height={height} ! \
             jpegenc ! qtmux ! filesink location={name}"
        );
        workspace.shell(&line);
    };
    make("turned.mp4", 96, 64);
    media::turn(&workspace.0.join("turned.mp4"));
    make("odd.mp4", 65, 49);
    for (video, [x, y], beyond, size) in [
        ("turned.mp4", [16, 72], false, "64x96 1/1 high"),
        ("odd.mp4", [40, 24], false, "64x48 195/196 high"),
        ("odd.mp4", [90, 24], true, "64x48 195/196 high"),
    ] {
        workspace.write("boxes.csv", &format!("frame,x,y,width,height\n1,{x},{y},16,16\n"));
        let mut command = python_example("boxes_from_file.py");
        let stdout = workspace.stdout(command.args([video, "boxes.csv", "covered.mp4", "--hold=0", "--cover=fill"]));
        assert_eq!(stdout.contains("1 of 1 boxes lie beyond the picture"), beyond, "{video}: {stdout}");
        assert!(stdout.contains("3 frames, 1 boxes attached"), "{video}: {stdout}");
        assert_eq!(media::h264(&workspace.0.join("covered.mp4")), size, "{video}");
        let frames = media::frames(
            &workspace.0.join("covered.mp4"),
            "videoscale ! capsfilter caps=video/x-raw,width=64,height=96 !",
        );
        // The sides that were odd are one less.
        let rows = if video == "odd.mp4" { 48 } else { 96 };
        let at = (y + 8) * 96 / rows * 64 + (x + 8).min(60);
        let dark: Vec<_> = frames.iter().map(|frame| frame[at] < 64).collect();
        assert_eq!(dark, [false, !beyond, false], "{video}");
    }
}

#[test]
fn files_of_boxes_that_do_not_fit_are_refused() {
    let workspace = Workspace::new("bad-boxes");
    workspace.shell(CLIP);
    for (boxes, reason) in [
        ("frame,x,y,width,height\n20,0,0,8,8\n", "1 boxes of boxes.csv are beyond the end of input.mp4"),
        ("x,y,width,height\n0,0,8,8\n", "one column frame or one column time"),
        ("frame,x,y,width\n0,0,0,8\n", "has no column height"),
        ("frame,x,y,width,height,size\n0,0,0,8,8,1\n", "has a column size, which is not used"),
        ("frame,x,y,width,height\n0,0,0,8\n", "line 2: it has more or fewer values"),
        ("frame,x,y,width,height\n0,0,0,8,8\n1,0,0,0,8\n", "line 3: the box is empty"),
        ("frame,x,y,width,height\n0,left,0,8,8\n", "line 2: could not convert string to float"),
        ("frame,x,y,width,height\n0,nan,0,8,8\n", "line 2: a number is negative or not finite"),
        (
            "frame,x,y,width,height,id\n1,0,0,8,8,a\n1,0,0,8,8,\n1,0,0,8,8,a\n",
            "line 4: id a is also in line 2, with the same frame",
        ),
        (
            "time,x,y,width,height,id,label\n0.1,0,0,8,8,a,face\n0.2,0,0,8,8,a,plate\n",
            "line 3: id a is also in line 2, with another label",
        ),
        ("frame,x,y,width,height,id\n1,0,0,8,8,a\n40,0,0,8,8,a\n", "1 boxes of boxes.csv are beyond the end"),
        ("", "has no column x"),
        ("frame,x,y,width,height\n", "has no boxes, so that nothing would be covered"),
    ] {
        workspace.write("boxes.csv", boxes);
        let stderr =
            workspace.stderr(python_example("boxes_from_file.py").args(["input.mp4", "boxes.csv", "covered.mp4"]));
        assert!(stderr.contains(reason) && !stderr.contains("Traceback"), "{boxes}: {stderr}");
        let left = files(&workspace.0);
        assert!(!left.iter().any(|name| name == "covered.mp4" || name.ends_with(".part")), "{boxes}: {left:?}");
    }
    workspace.write("boxes.csv", "frame,x,y,width,height\n0,0,0,8,8\n");
    workspace.write("text.mp4", "no video");
    let stderr = workspace.stderr(python_example("boxes_from_file.py").args(["text.mp4", "boxes.csv", "covered.mp4"]));
    assert!(!stderr.contains("Traceback") && !stderr.is_empty(), "{stderr}");
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

/// Asserts that an example printed these values of sigma, one every 30 frames, and the number of frames.
fn assert_sweep(stdout: &str, sigmas: &[&str]) {
    let printed = sigmas.iter().enumerate().map(|(i, sigma)| format!("frame {}: sigma {sigma}\n", 30 * i));
    assert!(stdout.starts_with(&printed.collect::<String>()), "{stdout}");
    assert!(stdout.contains(&format!("-stats, frames=(guint64){}", 30 * sigmas.len())), "{stdout}");
}

#[test]
fn c_program_changes_sigma() {
    let workspace = Workspace::new("c");
    workspace.write_clip("bar", 150);
    let stdout = workspace.stdout(c_example(&workspace).args(["input.mp4", "blurred.mp4"]));
    assert_sweep(&stdout, &["0", "2", "4", "8", "16"]);
    let contrasts = media::contrasts(&workspace.0.join("blurred.mp4"), 640);
    assert_eq!(contrasts.len(), 150);
    for (frame, contrast) in contrasts.into_iter().enumerate() {
        assert_edge(frame, contrast, [0.0, 2.0, 4.0, 8.0, 16.0][frame / 30]);
    }
}

#[test]
fn python_sweeps_sigma() {
    let workspace = Workspace::new("sweep");
    let stdout = workspace.stdout(python_example("blur.py").arg("--headless"));
    assert_sweep(&stdout, &["0.0", "4.0", "8.0", "12.0", "16.0", "20.0", "16.0", "12.0", "8.0", "4.0"]);
}

#[test]
fn slider_in_a_window_moves_sigma() {
    let workspace = Workspace::new("window");
    let mut command = Command::new("xvfb-run");
    command.args(["-a", concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/python"), "gi", "--"]);
    command.args([concat!(env!("CARGO_MANIFEST_DIR"), "/tests/suite/use_window.py"), EXAMPLES]);
    let stdout = workspace.stdout(&mut command);
    let expected = "\
sharp
blurred
sharp, the slider is sensitive: False
blurred, the slider is sensitive: True
active-backend";
    assert!(stdout.starts_with(expected), "{stdout}");
}

#[test]
fn timeline_blurs_by_keyframes_and_keeps_the_sound() {
    let workspace = Workspace::new("timeline");
    workspace.write_clip("bar", 120);
    // The first three seconds of a clip of four, and of a test pattern.
    for (arguments, clip) in [(&["input.mp4", "clip.mp4"][..], true), (&["pattern.mp4"], false)] {
        let file = arguments.last().unwrap();
        let stdout = workspace.stdout(python_example("timeline.py").args(arguments));
        assert_eq!(stdout, format!("wrote 3.0 s to {file}\n"));
        let file = workspace.0.join(file);
        let contrasts = media::contrasts(&file, 640);
        assert_eq!(contrasts.len(), 90, "{arguments:?}");
        assert!(contrasts[89] < contrasts[29] / 4, "{arguments:?}: {contrasts:?}");
        let (seconds, amplitude) = media::sound(&file);
        assert!((seconds - 3.0).abs() < 0.1, "{arguments:?}: {seconds} s of sound");
        if clip {
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
    let stdout = Workspace::new("rtp").stdout(&mut python_example("rtp.py"));
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
        let stdout = workspace.stdout(python_example(name).arg("--help"));
        assert!(stdout.starts_with(&format!("usage: {name} [-h]")), "{name}: {stdout}");
        let stderr = workspace.stderr(python_example(name).arg("--no-such-option"));
        assert!(stderr.starts_with(&format!("usage: {name} [-h]")), "{name}: {stderr}");
    }
}

#[test]
fn examples_name_a_missing_file() {
    let workspace = Workspace::new("missing-file");
    let [mut timeline, mut python] = ["timeline.py", "blur.py"].map(python_example);
    timeline.args(["missing.mp4", "result.mp4"]);
    python.args(["--headless", "missing.mp4"]);
    let [mut rust, mut c] = [rust_example("blur"), c_example(&workspace)];
    for command in [&mut rust, &mut c] {
        command.arg("missing.mp4");
    }
    for mut command in [timeline, python, rust, c] {
        let stderr = workspace.stderr(&mut command);
        assert!(stderr.starts_with("missing.mp4: Resource not found."), "{command:?}: {stderr}");
    }
}

#[test]
fn examples_name_the_package_of_a_missing_element() {
    let workspace = Workspace::new("missing-element");
    for (mut command, argument, element, package) in [
        (c_example(&workspace), None, "videoconvert", "base"),
        (python_example("blur.py"), Some("--headless"), "videoconvert", "base"),
        (python_example("blur.py"), None, "videoconvert", "base"),
        (python_example("rtp.py"), None, "videoconvert", "base"),
        (python_example("timeline.py"), Some("result.mp4"), "mp4mux", "good"),
    ] {
        command.args(argument).env("GST_PLUGIN_SYSTEM_PATH_1_0", &workspace.0);
        let reason = format!("GStreamer does not find {element}: install gstreamer1.0-plugins-{package}\n");
        let stderr = workspace.stderr(&mut command);
        assert!(stderr.ends_with(&reason), "{command:?}: {stderr}");
    }
    let stderr = workspace.stderr(&mut python_example("blur.py"));
    assert_eq!(stderr, "there is no display: use --headless\n");
}
