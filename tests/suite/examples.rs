//! Runs the demo and the examples, so that they stay correct, and checks what they write, show and send, and what they
//! say when something is missing. Those that cover parts of the picture check their own output.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use crate::common::{media, python};

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

    /// Writes input.mp4: `count` frames of 640x360, 30 a second, and a tone of the same length.
    fn write_clip(&self, pattern: &str, count: u32) {
        // 30 buffers of sound a second.
        let line = format!(
            "gst-launch-1.0 -q videotestsrc num-buffers={count} pattern={pattern} ! video/x-raw,width=640,height=360 ! \
             x264enc ! mp4mux name=mux ! filesink location=input.mp4 \
             audiotestsrc num-buffers={count} samplesperbuffer=1600 ! audio/x-raw,rate=48000 ! audioconvert ! \
             avenc_aac ! mux."
        );
        self.stdout(Command::new("sh").args(["-c", &line]));
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
    command.args(arguments).env("OPENCV_LOG_LEVEL", "FATAL");
    command
}

/// The C example, built in the workspace by the line in its header, with warnings denied.
fn c_example(workspace: &Workspace) -> Command {
    let source = include_str!("../../examples/blur.c");
    let line = source.lines().find_map(|line| line.strip_prefix("//     cc ")).expect("the header has the build line");
    let example = concat!(env!("CARGO_MANIFEST_DIR"), "/examples/blur.c");
    let line = format!("cc -Werror {}", line.replace("examples/blur.c", &format!("'{example}'")));
    workspace.stdout(Command::new("sh").args(["-c", &line]));
    Command::new(workspace.0.join("blur"))
}

/// A Python example.
fn python_example(name: &str) -> Command {
    let mut command = python::with("gi");
    command.arg(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples").join(name));
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

/// Whether GStreamer's facedetect or its cascades are not installed. The demo then says so.
fn lacks_facedetect(workspace: &Workspace) -> bool {
    let inspect = workspace.run(Command::new("gst-inspect-1.0").args(["--exists", "facedetect"]));
    if inspect.status.success() && Path::new("/usr/share/opencv4/haarcascades").exists() {
        return false;
    }
    let stderr = workspace.stderr(&mut demo(&["--faces", "--detector=facedetect"]));
    assert!(stderr.contains("gstreamer1.0-opencv") && !workspace.has("demo-out"), "{stderr}");
    true
}

#[test]
fn demo_covers_faces_or_says_what_is_missing() {
    let workspace = Workspace::new("faces");
    if lacks_facedetect(&workspace) {
        return;
    }
    let stdout = workspace.stdout(&mut demo(&["--faces", "--detector=facedetect", "--cover=fill", "--backend=cpu"]));
    let expected = "\
180 detections in 180 frames; each was covered in its frame
no face that was found vanished, was lost for a while or appeared in the middle of the picture
a lost face was covered where it may be, for at most 3 s; one that was never detected is visible
look at the clip before you publish it
";
    assert!(stdout.starts_with(expected), "{stdout}");
    assert!(stdout.ends_with("faces.png: the frame at 3.0 s, with the most detections\n"), "{stdout}");
    assert!(workspace.has("demo-out/faces.mp4") && workspace.has("demo-out/faces.png"), "{stdout}");
    assert!(stdout.contains("\nthe covers changed 2"), "{stdout}");
    assert_eq!(table(&workspace, ""), [&TABLE_NAMES]);
}

const TABLE_NAMES: [&str; 9] = ["from", "to", "what", "track", "label", "x", "y", "width", "height"];

/// The values in the lines of faces.csv, whose name may begin with that of the input.
fn table(workspace: &Workspace, input: &str) -> Vec<Vec<String>> {
    let text = fs::read_to_string(workspace.0.join(format!("demo-out/{input}faces.csv"))).unwrap();
    text.lines().map(|line| line.split(',').map(String::from).collect()).collect()
}

/// Writes input.mp4, 10 frames a second: so many frames with the demo's portrait on the left, cut off at the left edge, on
/// the right, on both sides or on neither.
fn write_faces(workspace: &Workspace, scenes: &[(&str, usize)]) {
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
    workspace.stdout(Command::new("sh").args(["-ec", &lines.join("\n")]));
}

#[test]
fn demo_lists_when_faces_may_show() {
    let workspace = Workspace::new("doubts");
    if lacks_facedetect(&workspace) {
        return;
    }
    write_faces(&workspace, &[("left", 30), ("neither", 15), ("both", 15), ("left", 10), ("neither", 25)]);
    let stdout = workspace.stdout(&mut demo(&[
        "--faces",
        "--detector=facedetect",
        "--cover=fill",
        "--backend=cpu",
        "input.mp4",
    ]));
    // The detections of the look-ahead are proof enough to cover the second face 1.3 s before the first of them. It is held
    // for 3 s after the last one.
    let expected = "\
70 detections in 95 frames, of which 40 have none; each was covered in its frame
at these times a face may show (a track is one face, as the detector found it):
  2.2 s to 3.2 s: track 2 begins inside the picture
  3.0 s to 4.5 s: track 1 has a gap between detections
  6.0 s to 8.9 s: track 2 was lost inside the picture
  7.0 s to the end: track 1 was lost inside the picture
a lost face was covered where it may be, for at most 3 s; one that was never detected is visible
look at the clip before you publish it, first at these times
";
    assert!(stdout.starts_with(expected), "{stdout}");
    assert!(
        stdout.ends_with("faces.png: the frame at 8.9 s, because track 2 was lost inside the picture\n"),
        "{stdout}"
    );
    let table = table(&workspace, "input-");
    assert_eq!(table[0], TABLE_NAMES);
    let rows: Vec<_> = table[1..].iter().map(|row| row[..5].join(",")).collect();
    let expected = [
        "2.200,3.200,first-seen,2,face",
        "3.000,4.500,gap,1,face",
        "6.000,8.900,lost,2,face",
        "7.000,9.500,lost,1,face",
    ];
    assert_eq!(rows, expected);
    // The portrait is 480 pixels wide, and about a quarter of it is the face. A cover without a detection has grown.
    for row in &table[1..] {
        let [x, y, width, height] = [5, 6, 7, 8].map(|column| row[column].parse::<u32>().unwrap());
        let is_left = row[3] == "1";
        assert_eq!(x + width / 2 < 480, is_left, "{row:?}");
        assert!(y + height <= 400 && (90..400).contains(&width) && (90..=400).contains(&height), "{row:?}");
    }
    // White, with the first face's last place, which is still filled.
    let picture = media::frames(&workspace.0.join("demo-out/input-faces.png"), "").concat();
    let [white, black] = [225..=255_u8, 0..=31].map(|greys| {
        let count = picture.iter().filter(|grey| greys.contains(*grey)).count();
        count as f64 / picture.len() as f64
    });
    assert!((0.1..0.3).contains(&black) && white + black > 0.99, "{white} of the picture is white, {black} black");
}

#[test]
fn demo_lists_the_worst_times_and_counts_the_rest() {
    let workspace = Workspace::new("more-doubts");
    if lacks_facedetect(&workspace) {
        return;
    }
    let mut scenes = [("left", 1), ("neither", 5)].repeat(12);
    scenes.extend([("left", 12), ("neither", 10), ("left", 1)]);
    write_faces(&workspace, &scenes);
    let stdout = workspace.stdout(&mut demo(&["--faces", "--detector=facedetect", "--backend=cpu", "input.mp4"]));
    // A track of a second, the last one, is listed though others come first. A shorter one has one line, from a second
    // before its cover begins.
    let listed: Vec<_> = stdout.lines().filter(|line| line.starts_with("  ")).collect();
    let expected = [
        "  2.9 s to 4.5 s: track 8 was lost inside the picture",
        "  4.9 s to 5.9 s: track 13 begins inside the picture",
        "  8.4 s to 9.4 s: track 13 has a gap between detections",
        "  and 4 more",
    ];
    assert_eq!(listed[7..], expected, "{stdout}");
    assert!(
        stdout.ends_with("faces.png: the frame at 8.9 s, because track 13 has a gap between detections\n"),
        "{stdout}"
    );
    assert_eq!(table(&workspace, "input-").len(), 1 + 14, "{:?}", table(&workspace, "input-"));
}

#[test]
fn demo_lists_no_face_that_leaves_the_picture() {
    let workspace = Workspace::new("no-doubts");
    if lacks_facedetect(&workspace) {
        return;
    }
    // A gap of a second. A face that comes and goes at the edge.
    write_faces(&workspace, &[("left", 10), ("neither", 9), ("left", 10)]);
    let stdout = workspace.stdout(&mut demo(&["--faces", "--detector=facedetect", "--backend=cpu", "input.mp4"]));
    assert!(stdout.contains("\nno face that was found vanished, "), "{stdout}");
    write_faces(&workspace, &[("neither", 8), ("edge", 10), ("neither", 40)]);
    let stdout = workspace.stdout(&mut demo(&["--faces", "--detector=facedetect", "--backend=cpu", "input.mp4"]));
    assert!(stdout.contains("\nno face that was found vanished, "), "{stdout}");
    assert!(stdout.contains("the frame at 1.7 s, with the most detections\n"), "{stdout}");
    assert_eq!(table(&workspace, "input-"), [&TABLE_NAMES]);
}

/// The files of a folder.
fn files(folder: &Path) -> Vec<String> {
    let files = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap());
    let mut files: Vec<_> = files.collect();
    files.sort();
    files
}

/// Each input has results of its own, a run that fails leaves those of the run before, and a clip without a face is copied.
#[test]
fn demo_names_results_after_the_input_and_keeps_those_of_other_runs() {
    let workspace = Workspace::new("results");
    if lacks_facedetect(&workspace) {
        return;
    }
    let faces =
        |arguments: &[&str]| demo(&[&["--faces", "--detector=facedetect", "--backend=cpu"][..], arguments].concat());
    write_faces(&workspace, &[("left", 4)]);
    workspace.stdout(&mut faces(&["input.mp4"]));
    let results = ["input-faces.csv", "input-faces.mp4", "input-faces.png"];
    let out = workspace.0.join("demo-out");
    assert_eq!(files(&out), results);
    let before = results.map(|file| fs::read(out.join(file)).unwrap());

    // An end without a video, one without the detector, one that cannot be decoded, and a camera that is not there.
    let no_camera = !Path::new("/dev/video0").exists();
    fs::create_dir(workspace.0.join("text")).unwrap();
    workspace.write("text/input.mp4", "no video");
    let jpeg = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/regions.jpg");
    fs::copy(jpeg, workspace.0.join("text/input.jpg")).unwrap();
    let mut failing = vec![&["text/input.mp4"][..], &["text/input.jpg"], &["text"]];
    failing.extend(no_camera.then_some(&["--camera"][..]));
    for arguments in failing {
        let stderr = workspace.stderr(&mut faces(arguments));
        assert!(stderr.starts_with("demo: ") && !stderr.contains("no face"), "{arguments:?}: {stderr}");
        assert_eq!(files(&out), results, "{arguments:?}");
    }
    // A folder has the name of one result: none is written.
    let moved = out.join("input-faces.csv");
    fs::rename(&moved, workspace.0.join("moved.csv")).unwrap();
    fs::create_dir(&moved).unwrap();
    let stderr = workspace.stderr(&mut faces(&["input.mp4", "--cover=fill"]));
    assert!(stderr.starts_with("demo: demo-out/input-faces.csv is a folder"), "{stderr}");
    assert_eq!(files(&out), results);
    fs::remove_dir(&moved).unwrap();
    fs::rename(workspace.0.join("moved.csv"), &moved).unwrap();
    assert_eq!(results.map(|file| fs::read(out.join(file)).unwrap()), before);

    write_faces(&workspace, &[("neither", 5)]);
    let stdout = workspace.stdout(&mut faces(&["input.mp4"]));
    let expected = "\
no face was found in 5 frames, so nothing was covered: look at the clip before you publish it
wrote demo-out/input-no-face-found.mp4, the clip as it was
";
    assert_eq!(stdout, expected);
    assert_eq!(
        fs::read(out.join("input-no-face-found.mp4")).unwrap(),
        fs::read(workspace.0.join("input.mp4")).unwrap()
    );
    assert_eq!(files(&out)[..3], results);
    assert_eq!(files(&out).len(), 4, "{:?}", files(&out));
}

/// Writes input.mp4: ten frames of this size, with the demo's portrait as a viewer sees it in the middle, if the file says
/// nothing else about the picture's place.
fn write_portrait(workspace: &Workspace, [width, height]: [i32; 2], flip: &str) {
    // So large that its face is found in a smaller result, too.
    let scale = if width.min(height) > 800 { 2 } else { 1 };
    let [across, down] = [480, 400].map(|side| scale * side);
    let [x, y] = [(width - across) / 2, (height - down) / 2];
    let line = format!(
        "gst-launch-1.0 -q multifilesrc num-buffers=10 location='{}/examples/demo/face.jpg' caps=image/jpeg,framerate=10/1 ! \
         jpegdec ! videoscale ! video/x-raw,width={across},height={down} ! videobox left=-{x} right=-{x} top=-{y} bottom=-{y} fill=white ! videoconvert ! video/x-raw,format=I420 ! \
         videoflip video-direction={flip} ! x264enc pass=quant quantizer=10 ! mp4mux ! filesink location=input.mp4",
        env!("CARGO_MANIFEST_DIR")
    );
    workspace.stdout(Command::new("sh").args(["-c", &line]));
}

/// Faces are found in pictures of any shape, and in those that a player turns, and the result has the picture's shape.
#[test]
fn demo_works_on_the_picture_that_a_viewer_sees() {
    let workspace = Workspace::new("shapes");
    if lacks_facedetect(&workspace) {
        return;
    }
    for (size, turned, arguments, expected) in [
        ([1080, 1920], false, &[][..], "1080x1920 1/1 high"),
        ([1080, 1920], false, &["--size=1280x720"], "404x720 1/1 high"),
        ([1920, 816], false, &[], "1920x816 1/1 high"),
        ([1920, 816], false, &["--size", "1280x720"], "1280x544 1/1 high"),
        ([720, 1280], true, &[], "720x1280 1/1 high"),
        ([721, 483], false, &[], "720x482 1/1 high"),
    ] {
        write_portrait(&workspace, size, if turned { "90l" } else { "identity" });
        if turned {
            media::turn(&workspace.0.join("input.mp4"));
        }
        let faces = ["--faces", "--detector=facedetect", "--backend=cpu", "--cover=fill", "input.mp4"];
        let stdout = workspace.stdout(&mut demo(&[&faces[..], arguments].concat()));
        let case = format!("{size:?}, turned: {turned}, {arguments:?}");
        assert!(stdout.starts_with("10 detections in 10 frames; "), "{case}: {stdout}");
        assert_eq!(media::h264(&workspace.0.join("demo-out/input-faces.mp4")), expected, "{case}");
        let stdout = workspace.stdout(&mut demo(&[&["--backend=cpu", "input.mp4"], arguments].concat()));
        assert_eq!(media::h264(&workspace.0.join("demo-out/input-blurred.mp4")), expected, "{case}: {stdout}");
    }
}

/// Whether what scripts/models downloads is not there. The demo then says so.
fn lacks_models(workspace: &Workspace) -> bool {
    for (model, arguments) in [("person", &["--background"][..]), ("faces", &["--faces", "--detector=blazeface"])] {
        let mut command = python::with("numpy,gi");
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/models.py")).arg(model).stdin(Stdio::null());
        if workspace.run(&mut command).status.success() {
            continue;
        }
        let stderr = workspace.stderr(&mut demo(arguments));
        assert!(stderr.ends_with("run scripts/models\n") && !workspace.has("demo-out"), "{stderr}");
        return true;
    }
    false
}

#[test]
fn demo_blurs_the_background_or_says_what_is_missing() {
    let workspace = Workspace::new("background");
    let stderr = workspace.stderr(demo(&["--background"]).env("CUDAGAUSSBLUR_MODELS", &workspace.0));
    assert!(stderr.starts_with("demo: --background needs a model of people: "), "{stderr}");
    assert!(stderr.ends_with("run scripts/models\n"), "{stderr}");
    if lacks_models(&workspace) {
        return;
    }
    let stdout = workspace.stdout(&mut demo(&["--background", "--backend=cpu"]));
    let expected = "180 frames; in each the person's pixels are as before and the background is blurred\n";
    assert!(stdout.starts_with(expected) && stdout.contains(" frames a second, mask included\n"), "{stdout}");
    assert!(stdout.contains("\nthe person's glow beside them, of 255 brightness steps: "), "{stdout}");
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
fn demo_covers_faces_that_blazeface_finds() {
    let workspace = Workspace::new("blazeface");
    if lacks_models(&workspace) {
        return;
    }
    let stdout = workspace.stdout(&mut demo(&["--faces", "--detector=blazeface", "--cover=fill", "--backend=cpu"]));
    assert!(stdout.starts_with("180 detections in 180 frames; each was covered in its frame\n"), "{stdout}");
    assert_eq!(table(&workspace, ""), [&TABLE_NAMES]);
}

/// Of boxes that overlap one is left, between them; what is doubtful and overlaps none is another.
#[test]
fn boxes_of_one_face_are_merged() {
    let script = "\
import sys
sys.path.insert(0, sys.argv[1])
import numpy, models
boxes = numpy.array([(0, 0, 10, 10), (2, 0, 12, 10), (1, 1, 11, 11), (50, 50, 60, 60), (80, 80, 90, 90), (0, 50, 9, 59)], float)
scores = numpy.array([0.9, 0.6, 0.3, 0.4, 0.5, 0.1])
for box, score in models.Faces.__new__(models.Faces).suppress(boxes, scores):
    print(*box.round(1), score)
print(*(round(models.iou(boxes[0], box), 3) for box in boxes[:4]))
";
    let mut command = python::with("numpy");
    command.args(["-c", script, concat!(env!("CARGO_MANIFEST_DIR"), "/examples")]);
    let expected = "\
0.8 0.0 10.8 10.0 0.9
80.0 80.0 90.0 90.0 0.5
50.0 50.0 60.0 60.0 0.4
1.0 0.667 0.681 0.0
";
    assert_eq!(python::output(&mut command), expected);
}

#[test]
fn virtual_camera_names_what_is_missing() {
    let workspace = Workspace::new("virtual-camera");
    let camera = |arguments: &[&str]| {
        let mut command = python::with("numpy,gi");
        command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/examples/virtual_camera.py")).args(arguments);
        command
    };
    let without_models =
        workspace.stderr(camera(&["--test", "--output=none"]).env("CUDAGAUSSBLUR_MODELS", &workspace.0));
    assert!(without_models.ends_with("run scripts/models\n"), "{without_models}");
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

/// Writes `result`: input.mp4 with sound, a second of silence and then two of a tone, in this format.
fn add_sound(workspace: &Workspace, format: &str, encoder_and_muxer: &str, result: &str) {
    let sound = |wave: &str, count: u32| {
        let settings = format!("wave={wave} num-buffers={count} samplesperbuffer=1600");
        format!("audiotestsrc {settings} ! audio/x-raw,rate=48000,{format} ! sound.")
    };
    let line = format!(
        "gst-launch-1.0 -q filesrc location=input.mp4 ! qtdemux ! h264parse ! mux. {} {} \
         concat name=sound ! {encoder_and_muxer} name=mux ! filesink location={result}",
        sound("silence", 30),
        sound("sine", 60)
    );
    workspace.stdout(Command::new("sh").args(["-c", &line.replace('(', "\\(").replace(')', "\\)")]));
}

#[test]
fn demo_keeps_the_sound_of_a_file() {
    let workspace = Workspace::new("sound");
    write_faces(&workspace, &[("neither", 10), ("left", 20)]);
    add_sound(&workspace, "channels=2", "audioconvert ! avenc_aac ! mp4mux", "sound.mp4");
    let [loud, shown] = media::starts(&workspace.0.join("sound.mp4")).map(Option::unwrap);
    assert!((loud - 1.0).abs() < 0.05 && shown == 1.0, "the tone starts at {loud} s, the portrait at {shown} s");
    let mut jobs = vec![(&["sound.mp4"][..], "blurred")];
    if !lacks_facedetect(&workspace) {
        jobs.push((&["--faces", "--detector=facedetect", "sound.mp4"], "faces"));
    }
    for (arguments, stem) in jobs {
        let stdout = workspace.stdout(&mut demo(arguments));
        assert!(stdout.contains(&format!("sound-{stem}.mp4, with the sound of the file\n")), "{stdout}");
        let result = workspace.0.join(format!("demo-out/sound-{stem}.mp4"));
        assert_eq!(media::streams(&result), [1, 1], "{stem}");
        // Sound may shift by a block of its encoder, which is 1024 samples.
        let starts = media::starts(&result).map(Option::unwrap);
        assert!((starts[0] - loud).abs() < 0.03 && (starts[1] - shown).abs() < 0.01, "{stem}: {starts:?}");
        let (seconds, frames) = (media::sound(&result).0, media::frames(&result, "").len());
        assert!(frames == 30 && (seconds - 3.0).abs() < 0.1, "{stem}: {frames} frames, {seconds} s of sound");
    }
}

#[test]
fn demo_writes_files_whose_sound_cannot_be_encoded() {
    let workspace = Workspace::new("no-sound");
    write_faces(&workspace, &[("left", 10)]);
    add_sound(&workspace, "channels=2", "audioconvert ! avenc_aac ! mp4mux", "aac.mp4");
    // Channels without places, which nothing can mix down.
    add_sound(
        &workspace,
        "format=S16LE,channels=16,channel-mask=(bitmask)0",
        "audio/x-raw ! matroskamux",
        "channels.mkv",
    );
    let no_decoder = "avdec_aac:NONE,avdec_aac_fixed:NONE,faad:NONE,fdkaacdec:NONE";
    for (file, ranks, reason) in [
        ("input.mp4", "", None),
        ("aac.mp4", no_decoder, Some("no decoder for audio/mpeg is installed")),
        ("channels.mkv", "", Some("with it, the result could not be written (Internal data stream error")),
    ] {
        let stdout = workspace.stdout(demo(&[file]).env("GST_PLUGIN_FEATURE_RANK", ranks));
        let sentence = stdout.lines().find(|line| line.contains("sound"));
        let expected = reason.map(|reason| format!("sound is left out: {reason}"));
        let is_as_expected = sentence.is_some() == expected.is_some();
        assert!(
            is_as_expected && sentence.unwrap_or("").starts_with(&expected.unwrap_or_default()),
            "{file}: {stdout}"
        );
        let result = workspace.0.join("demo-out").join(file.split_once('.').unwrap().0.to_owned() + "-blurred.mp4");
        assert_eq!(media::streams(&result), [1, 0], "{file}");
        assert_eq!(media::frames(&result, "").len(), 10, "{file}");
    }
    workspace.stdout(
        Command::new("sh")
            .args(["-c", "gst-launch-1.0 -q audiotestsrc num-buffers=9 ! wavenc ! filesink location=sound.wav"]),
    );
    let stderr = workspace.stderr(&mut demo(&["--out=none", "sound.wav"]));
    assert_eq!(stderr, "demo: the input has no video, or no decoder for it is installed\n");
    assert_eq!(files(&workspace.0.join("none")), [""; 0]);
}

#[test]
fn demo_writes_no_clip_without_a_detector() {
    let workspace = Workspace::new("no-detector");
    let stderr =
        workspace.stderr(demo(&["--faces", "--detector=facedetect"]).env("GST_PLUGIN_SYSTEM_PATH_1_0", &workspace.0));
    assert_eq!(
        stderr,
        "demo: --faces needs GStreamer's element facedetect: on Debian and Ubuntu install gstreamer1.0-opencv and opencv-data\n"
    );
    assert!(!workspace.has("demo-out"));
    for arguments in [
        &["--regions", "file.mp4"][..],
        &["--regions", "--faces"],
        &["--cover", "fill"],
        &["--cover=x"],
        &["--detector=facedetect"],
        &["--faces", "--detector=x"],
        &["--size=640x480"],
        &["--size=0x480", "file.mp4"],
        &["--size=640", "file.mp4"],
        &["--background", "--faces"],
        &["--background", "--kernel-size=3"],
    ] {
        let stderr = workspace.stderr(&mut demo(arguments));
        assert!(stderr.starts_with("demo: ") && stderr.ends_with("(--help shows the usage)\n"), "{stderr}");
    }
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

/// The vendors' own bindings are not installed; these objects have the same attributes.
#[test]
fn boxes_and_masks_of_vendors_are_pixels_and_samples() {
    let script = "\
import sys
from types import SimpleNamespace as Object
sys.path.insert(0, sys.argv[1])
import vendor_metas as vendor
rect = Object(left=1.5, top=2.0, width=10.0, height=20.25)
def nvidia_mask(columns, rows, values, size=None, threshold=0.25):
    size = 4 * len(values) if size is None else size
    return Object(width=columns, height=rows, size=size, threshold=threshold, get_mask_array=lambda: values)
none = nvidia_mask(0, 0, [])
def nvidia(confidence, mask):
    return vendor.deepstream_box(Object(rect_params=rect, obj_label='face', confidence=confidence, mask_params=mask))
print(nvidia(0.5, none))
print(nvidia(-0.1, none).confidence)
nan = float('nan')
mask = nvidia(0.5, nvidia_mask(3, 2, [0, 0.2, 0.25, 0.5, -7, nan])).mask
print(mask.columns, mask.rows, list(mask.samples))
print(list(nvidia(0.5, nvidia_mask(2, 1, [0.0, 0.1], threshold=0)).mask.samples))
# Key points: three numbers each, and the size of the network's picture.
print(nvidia(0.5, nvidia_mask(640, 640, [0.5] * 15)).mask, nvidia(0.5, nvidia_mask(2, 1, [1, 1], size=4)).mask)
box = Object(xmin=lambda: 0.25, ymin=lambda: 0.5, width=lambda: 0.125, height=lambda: 0.25)
masks = [Object(get_width=lambda: 2, get_height=lambda: 1, get_data=lambda: [0.25, 1.0])]
hailo = Object(get_bbox=lambda: box, get_label=lambda: 'car', get_confidence=lambda: 0.75)
hailo.get_objects_typed = lambda type: masks if type == 8 else []
print(vendor.hailo_box(hailo, 640, 480, 8))
print(vendor.hailo_box(hailo, 640, 480, 9).mask)
tensor = Object(format=lambda: 'segmentation_mask', dims=lambda: [1, 2], data=lambda: [0.0, 0.5])
other = Object(format=lambda: None)
print(vendor.dlstreamer_mask(Object(tensors=lambda: [other, tensor])), vendor.dlstreamer_mask(Object(tensors=list)))
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
face = Object(rect_params=rect, obj_label='face', confidence=0.5, mask_params=none)
for objects, done in (Entry(face, face), False), (None, True), (None, False):
    batch = Object(frame_meta_list=Entry(Object(obj_meta_list=objects, bInferDone=done)))
    boxes = vendor.deepstream_boxes(None, 640, 480)
    print(boxes if boxes is None else len(boxes))
batch = None
print(vendor.deepstream_boxes(None, 640, 480))
for place in (1.5, 2, 10, 20.25), (-5, -5, 8, 8), (630, 470, 99, 99), (30, 30, -10, -10), (nan, 0, 1, 1), (700, 0, 5, 5):
    print(*vendor.rounded(vendor.Box('a', None, *place), 640, 480)[2:6])
# A mask of 4 by 2 over a box, of which the picture has a part, or which is rounded outwards.
mask = vendor.Mask(4, 2, bytes(range(1, 9)))
for place in (-4, 0, 8, 2), (0.5, 0, 4, 2), (638, 479, 4, 2), (8, 2, -8, -2), (0, 0, 0, 5), (nan, 0, 1, 1), (700, 0, 5, 5):
    mask_there = vendor.rounded(vendor.Box('a', None, *place, mask), 640, 480).mask
    print(mask_there and (mask_there.columns, mask_there.rows, list(mask_there.samples)))
";
    let mut command = python::with("gi");
    command.args(["-c", script, concat!(env!("CARGO_MANIFEST_DIR"), "/examples")]);
    let stdout = python::output(&mut command);
    let expected = "\
Box(label='face', confidence=0.5, x=1.5, y=2.0, width=10.0, height=20.25, mask=None)
None
3 2 [0, 102, 128, 255, 0, 255]
[0, 255]
None None
Box(label='car', confidence=0.75, x=160.0, y=240.0, width=80.0, height=120.0, \
mask=Mask(columns=2, rows=1, samples=b'@\\xff'))
None
Mask(columns=1, rows=2, samples=b'\\x00\\x80') None
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
(2, 2, [3, 4, 7, 8])
(5, 2, [1, 2, 3, 4, 4, 5, 6, 7, 8, 8])
(2, 1, [1, 2])
(4, 2, [1, 2, 3, 4, 5, 6, 7, 8])
None
None
None
";
    assert_eq!(stdout, expected);
}

/// A clip of 20 white frames.
const CLIP: &str = "gst-launch-1.0 -q videotestsrc num-buffers=20 pattern=white ! video/x-raw,width=64,height=48 ! \
                    x264enc ! mp4mux ! filesink location=input.mp4";

/// The brightness of the middle of the box (16,16,16,16) in each frame.
fn box_brightness(workspace: &Workspace, file: &str) -> Vec<u8> {
    let frames = media::frames(&workspace.0.join(file), "videocrop left=20 top=20 right=36 bottom=20 !");
    // Frames of 8×8.
    frames.iter().map(|frame| frame[27]).collect()
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
        let stdout = workspace.stdout(python_example("boxes_from_file.py").args([
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

/// Lines of one object are keyframes, whichever comes first in the file. Other lines are boxes of one frame.
#[test]
fn python_covers_boxes_between_keyframes() {
    let workspace = Workspace::new("keyframes");
    workspace.stdout(Command::new("sh").args(["-c", CLIP]));
    // From frame 5 to frame 15 the box moves by 3 pixels a frame and gets smaller.
    let left = |frame: usize| 3 * (frame - 5);
    let right = |frame: usize| 15 + 2 * (frame - 5);
    for (column, position) in [
        ("frame", &(|frame: u32| frame.to_string()) as &dyn Fn(u32) -> String),
        ("time", &|frame: u32| format!("{:.4}", (f64::from(frame) + 0.1) / 30.0)),
    ] {
        let [single, first, last, other] = [2, 5, 15, 18].map(position);
        let rows = format!(
            "{other},0,8,15,32,plate,b\n{last},30,8,5,32,plate,a\n{first},0,8,15,32,plate,a\n{single},0,8,15,32,plate,\n"
        );
        workspace.write("boxes.csv", &format!("{column},x,y,width,height,label,id\n{rows}"));
        let mut command = python_example("boxes_from_file.py");
        let stdout = workspace.stdout(command.args(["input.mp4", "boxes.csv", "covered.mp4", "--hold=0"]));
        assert!(stdout.starts_with("20 frames, 13 boxes attached"), "{column}: {stdout}");
        let frames = media::frames(&workspace.0.join("covered.mp4"), "");
        assert_eq!(frames.len(), 20, "{column}");
        for (frame, pixels) in frames.iter().enumerate() {
            let row = &pixels[24 * 64..][..64];
            let covered = match frame {
                2 | 18 => 0..15,
                5..=15 => left(frame)..right(frame),
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
        workspace.stdout(Command::new("sh").args(["-c", &line]));
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
        let stdout = workspace.stdout(python_example("boxes_from_file.py").args([
            video,
            "boxes.csv",
            "covered.mp4",
            "--hold=0",
            "--cover=fill",
        ]));
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
    ] {
        workspace.write("boxes.csv", boxes);
        let stderr =
            workspace.stderr(python_example("boxes_from_file.py").args(["input.mp4", "boxes.csv", "covered.mp4"]));
        assert!(stderr.contains(reason) && !stderr.contains("Traceback"), "{boxes}: {stderr}");
        assert!(!workspace.has("covered.mp4") && !workspace.has("covered.mp4.part"), "{boxes}");
    }
    workspace.write("boxes.csv", "frame,x,y,width,height\n");
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

#[test]
fn c_program_changes_sigma() {
    let workspace = Workspace::new("c");
    workspace.write_clip("bar", 150);
    let stdout = workspace.stdout(c_example(&workspace).args(["input.mp4", "blurred.mp4"]));
    let expected: String =
        (0..5).zip([0, 2, 4, 8, 16]).map(|(i, sigma)| format!("frame {}: sigma {sigma}\n", 30 * i)).collect();
    assert!(stdout.starts_with(&expected) && stdout.contains("-stats, frames=(guint64)150"), "{stdout}");
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
    let sigmas = ["0.0", "4.0", "8.0", "12.0", "16.0", "20.0", "16.0", "12.0", "8.0", "4.0"];
    let expected: String =
        sigmas.iter().enumerate().map(|(i, sigma)| format!("frame {}: sigma {sigma}\n", 30 * i)).collect();
    assert!(stdout.starts_with(&expected) && stdout.contains("-stats, frames=(guint64)300"), "{stdout}");
}

/// Uses the window of examples/blur.py as a person does, and waits until the picture in it follows.
const USE_WINDOW: &str = "\
import os
import sys
import time
import traceback
sys.path.insert(0, sys.argv.pop(1))
import blur
blur.gi.require_version('GstVideo', '1.0')
from gi.repository import GLib, GstVideo
# Without it the main loop goes on after an exception.
sys.excepthook = lambda *error: (traceback.print_exception(*error), os._exit(1))
pipelines = []
build = blur.build
blur.build = lambda *arguments: pipelines.append(build(*arguments)) or pipelines[-1]
def find(widget, kind):
    if type(widget).__name__ == kind:
        return widget
    children = widget.get_children() if hasattr(widget, 'get_children') else []
    return next(filter(None, (find(child, kind) for child in children)), None)
def contrast():
    sample = pipelines[0].get_by_name('sink').get_property('last-sample')
    if sample is None:
        return -1
    video = GstVideo.VideoInfo.new_from_caps(sample.get_caps())
    greens = sample.get_buffer().extract_dup(4 * video.width * (video.height // 2), 4 * video.width)[1::4]
    return max(abs(a - b) for a, b in zip(greens, greens[1:]))
def steps():
    from gi.repository import Gtk
    window = Gtk.Window.list_toplevels()[0]
    slider, sweep = find(window, 'Scale'), find(window, 'CheckButton')
    slider.set_value(0)
    while contrast() < 100:
        yield
    print('sharp')
    slider.set_value(20)
    while not 0 <= contrast() < 15:
        yield
    print('blurred')
    # The sweep starts and ends with a sigma of 0.
    sweep.set_active(True)
    while contrast() < 100:
        yield
    print('sharp, the slider is sensitive:', slider.get_sensitive())
    sweep.set_active(False)
    while not 0 <= contrast() < 15:
        yield
    print('blurred, the slider is sensitive:', slider.get_sensitive())
    window.destroy()
def next_step(remaining=steps(), end=time.monotonic() + 120):
    assert time.monotonic() < end, f'waited 120 s for the picture, which has contrast {contrast()}'
    next(remaining, None)
    return True
GLib.timeout_add(20, next_step)
sys.exit(blur.main())
";

#[test]
fn slider_in_a_window_moves_sigma() {
    let workspace = Workspace::new("window");
    let mut command = Command::new("xvfb-run");
    command.args(["-a", concat!(env!("CARGO_MANIFEST_DIR"), "/scripts/python"), "gi", "--", "-c", USE_WINDOW]);
    let stdout = workspace.stdout(command.arg(concat!(env!("CARGO_MANIFEST_DIR"), "/examples")));
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
    let numbers = stdout.lines().filter(|line| line.starts_with("frame "));
    let numbers =
        numbers.map(|line| line.split_whitespace().filter_map(|word| word.parse().ok()).collect::<Vec<f64>>());
    let numbers: Vec<_> = numbers.collect();
    assert_eq!(numbers.len(), 3, "{stdout}");
    for contrast in numbers {
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
    let mut timeline = python_example("timeline.py");
    timeline.args(["missing.mp4", "result.mp4"]);
    let mut python = python_example("blur.py");
    python.args(["--headless", "missing.mp4"]);
    for mut command in [rust_example("blur"), c_example(&workspace)] {
        let stderr = workspace.stderr(command.arg("missing.mp4"));
        assert!(stderr.starts_with("missing.mp4: Resource not found."), "{command:?}: {stderr}");
    }
    for mut command in [timeline, python] {
        let stderr = workspace.stderr(&mut command);
        assert!(stderr.starts_with("missing.mp4: Resource not found."), "{command:?}: {stderr}");
    }
}

#[test]
fn examples_name_the_package_of_a_missing_element() {
    let workspace = Workspace::new("missing-element");
    let mut python = python_example("blur.py");
    python.arg("--headless");
    let mut timeline = python_example("timeline.py");
    timeline.arg("result.mp4");
    for (mut command, reason) in [
        (c_example(&workspace), "GStreamer does not find videoconvert: install gstreamer1.0-plugins-base\n"),
        (python, "GStreamer does not find videoconvert: install gstreamer1.0-plugins-base\n"),
        (python_example("blur.py"), "GStreamer does not find videoconvert: install gstreamer1.0-plugins-base\n"),
        (python_example("rtp.py"), "GStreamer does not find videoconvert: install gstreamer1.0-plugins-base\n"),
        (timeline, "GStreamer does not find mp4mux: install gstreamer1.0-plugins-good\n"),
    ] {
        let stderr = workspace.stderr(command.env("GST_PLUGIN_SYSTEM_PATH_1_0", &workspace.0));
        assert!(stderr.ends_with(reason), "{command:?}: {stderr}");
    }
    let stderr = workspace.stderr(&mut python_example("blur.py"));
    assert_eq!(stderr, "there is no display: use --headless\n");
}
