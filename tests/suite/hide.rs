//! Runs examples/hide.py on folders of small files, and checks its results, its reports, what it says, and that it never
//! touches an input.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, Instant};

use gst::prelude::*;

use super::examples::{Workspace, has_detectors};
use crate::common::media;
use crate::common::pipes::pipeline;

/// Exit status, standard output and standard error of hide.py.
fn hide(workspace: &Workspace, arguments: &str) -> (i32, String, String) {
    let outcome = workspace.outcome(workspace.command(&format!("hide.py --backend=cpu {arguments}")));
    assert!(!outcome.2.contains("Traceback") && !outcome.2.contains("CRITICAL"), "{}", outcome.2);
    outcome
}

/// Writes a program that runs hide.py, of the folder that is its first argument, after these lines of Python.
fn write_variant(workspace: &Workspace, name: &str, lines: &str) {
    let modules = "import os, runpy, sys, time
sys.path.insert(0, sys.argv[1])
import gi
for name in 'Gst', 'GstBase', 'GstPbutils', 'GstVideo': gi.require_version(name, '1.0')
from gi.repository import GLib, GObject, Gst, GstBase
Gst.init(None)
import hide.batch, hide.jobs
";
    let run = "sys.argv = sys.argv[1:]
sys.argv[0] += '/hide.py'
runpy.run_path(sys.argv[0], run_name='__main__')
";
    workspace.write(name, &[modules, lines, run].concat());
}

/// The files below a folder, by their paths in it, without links.
fn tree(folder: &Path) -> BTreeMap<String, PathBuf> {
    let mut found = BTreeMap::new();
    for entry in fs::read_dir(folder).unwrap().map(Result::unwrap) {
        let name = entry.file_name().into_string().unwrap();
        let kind = entry.file_type().unwrap();
        if kind.is_dir() {
            found.extend(tree(&entry.path()).into_iter().map(|(below, path)| (format!("{name}/{below}"), path)));
        } else if kind.is_file() {
            found.insert(name, entry.path());
        }
    }
    found
}

fn names(folder: &Path) -> Vec<String> {
    tree(folder).into_keys().collect()
}

fn contents(folder: &Path) -> BTreeMap<String, Vec<u8>> {
    tree(folder).into_iter().map(|(name, path)| (name, fs::read(path).unwrap())).collect()
}

/// When each result was made.
fn versions(folder: &Path) -> BTreeMap<String, [i64; 2]> {
    let videos = tree(folder).into_iter().filter(|(name, _)| name.ends_with(".mp4"));
    let changed = |path: &Path| path.metadata().map(|file| [file.ctime(), file.ctime_nsec()]).unwrap();
    videos.map(|(name, path)| (name, changed(&path))).collect()
}

/// Whether the model of faces is not there. The program says so, once and before it writes anything.
fn lacks_model(workspace: &Workspace) -> bool {
    if !has_detectors() {
        return true;
    }
    for (options, said) in [
        ("", "…/centerface.onnx does not exist: run scripts/models"),
        ("--hide=people", "…/selfie_segmentation_landscape.tflite does not exist: run scripts/models people"),
    ] {
        workspace.says(&format!(
            "CUDAGAUSSBLUR_MODELS=$PWD hide.py in --out=none --backend=cpu {options} =! starting {said}"
        ));
    }
    assert!(!workspace.has("none"));
    workspace.lacks_model("centerface")
}

#[test]
fn a_folder_of_all_kinds_of_files_is_covered_and_reported() {
    let workspace = Workspace::new("hide");
    fs::create_dir_all(workspace.0.join("in/sub/.hidden")).unwrap();
    if lacks_model(&workspace) {
        return;
    }
    // A face that is not found for 1.5 s, because every second frame is searched; two streams of sound, of which the second is German, and a title.
    workspace.write_faces(&[("left", 12), ("neither", 14), ("left", 6)]);
    let sound = "audiotestsrc num-buffers=96 samplesperbuffer=1600 ! audio/x-raw,rate=48000 ! audioconvert ! avenc_aac";
    workspace.shell(
        &format!(
            "gst-launch-1.0 -q filesrc location=input.mp4 ! qtdemux ! h264parse ! \
             taginject tags='\"title=(string)\\\"A & B\\\",date=(date)2020-05-06\"' ! \
             mp4mux name=mux ! filesink location=in/gap.mp4 {sound} ! mux. {sound} ! taginject tags='language-code=de' ! mux."
        ),
    );
    workspace.write_faces(&[("right", 8)]);
    workspace.shell("cp input.mp4 in/sub/gap.mp4; cp input.mp4 in/sub/.hidden/no.mp4; ln -s .. in/sub/loop");
    workspace.write_faces(&[("neither", 6)]);
    workspace.shell("mv input.mp4 in/nobody.mp4; echo no video >'in/<b>\n.mp4'");
    // White for 0.6 s, then the portrait with 25 frames a second.
    workspace.shell(
        "gst-launch-1.0 -q concat name=all ! capssetter caps='video/x-raw,framerate=(fraction)0/1' ! \
         x264enc pass=quant quantizer=10 ! matroskamux ! filesink location=in/variable.mkv \
         filesrc location=neither.jpg ! jpegdec ! imagefreeze num-buffers=6 ! video/x-raw,framerate=10/1 ! all. \
         filesrc location=left.jpg ! jpegdec ! imagefreeze num-buffers=10 ! video/x-raw,framerate=25/1 ! all.",
    );
    workspace.shell(
        "gst-launch-1.0 -q multifilesrc location=right.jpg num-buffers=6 caps=image/jpeg,framerate=10/1 ! jpegdec ! \
         videoflip video-direction=90l ! x264enc pass=quant quantizer=10 ! mp4mux ! filesink location=in/turned.mp4",
    );
    media::turn(&workspace.0.join("in/turned.mp4"));
    let inputs = contents(&workspace.0.join("in"));

    let (status, stdout, stderr) = hide(&workspace, "in --out=out --cover=fill");
    assert_eq!(status, 1, "{stdout}{stderr}");
    let expected = "\
in/gap.mp4: 32 frames, 1 object found, 1.5 s to look at; left out: tags (description)
in/nobody.mp4: 6 frames, nothing was found
in/turned.mp4: 6 frames, 1 object found, 0.0 s to look at
in/variable.mkv: 16 frames, 1 object found, 0.0 s to look at
in/sub/gap.mp4: 8 frames, 1 object found, 0.0 s to look at
5 videos in out; look at out/report.html
1.5 s in 1 video may show what should be covered: the report lists them
nothing was found in 1 video, so nothing is covered there: look at out/nobody.mp4
review the results in out-review/index.html, which shows open faces; --delete-review deletes it
";
    assert_eq!(stdout, expected);
    let broken = "in/<b>\\n.mp4: it is not a video, or it is damaged from the first byte on: try to play it\n";
    assert!(stderr.contains(&format!("\n{broken}")), "{stderr}");
    assert!(stderr.ends_with(&format!("1 failure:\n  {broken}")), "{stderr}");
    let out = workspace.0.join("out");
    let mut expected = vec!["hide-index.jsonl".to_owned(), "report.html".into()];
    for stem in ["gap", "nobody", "turned", "variable", "sub/gap"] {
        expected.extend([format!("{stem}.csv"), format!("{stem}.mp4")]);
    }
    expected.sort();
    assert_eq!(names(&out), expected);

    for (input, name, streams, frames, covered) in [
        ("gap.mp4", "gap.mp4", [1, 2], 32, [true, false]),
        ("nobody.mp4", "nobody.mp4", [1, 0], 6, [false, false]),
        ("turned.mp4", "turned.mp4", [1, 0], 6, [false, true]),
        ("variable.mkv", "variable.mp4", [1, 0], 16, [true, false]),
        ("sub/gap.mp4", "sub/gap.mp4", [1, 0], 8, [false, true]),
    ] {
        let file = out.join(name);
        assert_eq!(media::h264(&file), "960x400 1/1 high", "{name}");
        assert_eq!(media::streams(&file), streams, "{name}");
        let before = media::frames(&workspace.0.join("in").join(input), "videoflip video-direction=auto !");
        let after = media::frames(&file, "");
        assert_eq!([before.len(), after.len()], [frames; 2], "{name}");
        // The last frame has the face, if any, in the left or in the right half.
        let mut changed = [0; 2];
        for (place, (old, new)) in before[frames - 1].iter().zip(&after[frames - 1]).enumerate() {
            changed[place % 960 / 480] += usize::from(old.abs_diff(*new) > 40);
        }
        assert_eq!(changed.map(|count| count > 5_000), covered, "{name}: {changed:?}");
        assert!(changed.iter().all(|count| *count < 60_000), "{name}: {changed:?}");
    }
    let times =
        |name: &str| media::timed_frames(&workspace.0.join(name), "").into_iter().map(|(time, _)| time).collect();
    let [before, after]: [Vec<f64>; 2] = ["in/variable.mkv", "out/variable.mp4"].map(times);
    assert!(before[5] - before[4] > 0.09 && before[8] - before[7] < 0.05, "{before:?}");
    assert!(before.iter().zip(&after).all(|(before, after)| (before - after).abs() < 0.002), "{before:?} {after:?}");
    assert!((media::sound(&out.join("gap.mp4")).0 - 3.2).abs() < 0.1);
    let tags = "gst-launch-1.0 -t filesrc location=out/gap.mp4 ! qtdemux name=file \
                file.video_0 ! queue ! fakesink file.audio_1 ! queue ! fakesink";
    let tags = workspace.stdout(tags);
    assert!(["title: A & B", "date: 2020-05-06", "language code: de"].iter().all(|tag| tags.contains(tag)), "{tags}");
    let modified = |path: &str| workspace.0.join(path).metadata().unwrap().mtime();
    assert_eq!(modified("out/gap.mp4"), modified("in/gap.mp4"));

    let page = fs::read_to_string(out.join("report.html")).unwrap();
    for text in [
        "<p>5 videos, 1.5 doubtful seconds, nothing found in 1, 1 failed</p>",
        "&lt;b&gt;\\n.mp4</td><td colspan=\"5\" class=\"look\">failed: it is not a video",
        "<a href=\"nobody.mp4\">nobody.mp4</a></td><td class=\"number\">6</td>",
        "nothing was found: look at it",
        "1.2 s to 2.7 s: face 1 has a gap between detections (<a href=\"gap.mp4#t=1.95\">play</a>)",
    ] {
        assert!(page.contains(text), "{text}: {page}");
    }
    let table = fs::read_to_string(out.join("gap.csv")).unwrap();
    let lines: Vec<_> = table.lines().collect();
    assert_eq!(lines[0], "time,x,y,width,height,label,id,what");
    assert!(lines.len() == 3 && lines[1].starts_with("1.200,") && lines[2].starts_with("2.700,"), "{table}");
    assert!(lines[1..].iter().all(|line| line.ends_with(",face,1#1,gap")), "{table}");
    assert!(!page.contains("data:image"), "a doubtful second may show a face");
    let mut private: Vec<_> = ["gap", "nobody", "turned", "variable", "sub/gap"]
        .into_iter()
        .flat_map(|stem| [format!("{stem}.mp4.detections.csv"), format!("{stem}.mp4.html")])
        .chain(["index.html".into()])
        .collect();
    private.sort();
    assert_eq!(names(&workspace.0.join("out-review")), private);
    let index = fs::read_to_string(workspace.0.join("out-review/index.html")).unwrap();
    assert!(index.contains("<a href=\"sub/gap.mp4.html\">sub/gap.mp4</a></td><td class=\"number\">1</td>"), "{index}");
    // Frames 13 to 28.
    workspace.says("boxes_from_file.py out/gap.mp4 out/gap.csv corrected.mp4 => 32 frames, 16 boxes attached, wrote …");

    let before = versions(&out);
    let (status, stdout, _) = hide(&workspace, "in --out=out --cover=fill");
    assert!(status == 1 && stdout.starts_with("5 files already done\n5 videos in out; "), "{stdout}");
    assert!(stdout.contains("\nnothing was found in 1 video"), "{stdout}");
    assert_eq!((versions(&out), fs::read_to_string(out.join("report.html")).unwrap()), (before, page));
    assert_eq!(contents(&workspace.0.join("in")), inputs);
}

/// A run that is stopped leaves no part of a result, and the next one goes on.
#[test]
fn a_run_that_is_stopped_goes_on_where_it_was() {
    let workspace = Workspace::new("hide-stop");
    fs::create_dir(workspace.0.join("in")).unwrap();
    workspace.write_clip([640, 96], "bar", 10);
    workspace.shell("cp input.mp4 in/a.mp4; mv input.mp4 in/c.mp4");
    workspace.write_clip([640, 96], "bar", 300);
    workspace.shell("mv input.mp4 in/b.mp4");
    let inputs = contents(&workspace.0.join("in"));
    let arguments = "in --out=out --hide=everything";
    let out = workspace.0.join("out");

    let mut command = workspace.command(&format!("hide.py --backend=cpu {arguments}"));
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(600);
    let is_begun =
        |name: &String| name.starts_with(".hide-") && out.join(name).metadata().is_ok_and(|part| part.len() > 0);
    while !out.join("a.mp4").exists() || !tree(&out).keys().any(is_begun) {
        assert!(Instant::now() < end, "the second file is not begun");
        std::thread::sleep(Duration::from_millis(5));
    }
    workspace.shell(&format!("kill -TERM {}", child.id()));
    let output = child.wait_with_output().unwrap();
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(143), "{stderr}");
    let last = "interrupted: finished videos are kept; start the same command again for the others\n";
    assert!(stderr.ends_with(last), "{stderr}");
    assert_eq!(names(&out), ["a.mp4", "hide-index.jsonl", "report.html"]);
    let first = versions(&out)["a.mp4"];

    // As if it had been killed while it wrote.
    workspace.write("out/.hide-x.part", "a part");
    let index = fs::read_to_string(out.join("hide-index.jsonl")).unwrap();
    fs::write(out.join("hide-index.jsonl"), index + "{\"result\": \"b.m").unwrap();
    let (status, stdout, stderr) = hide(&workspace, arguments);
    let expected = "1 file already done\nin/b.mp4: 300 frames; left out: tags (description)\nin/c.mp4: 10 frames; left out: tags (description)\n3 videos in out; look at out/report.html\n";
    assert_eq!((status, &stdout[..]), (0, expected), "{stderr}");
    assert_eq!(names(&out), ["a.mp4", "b.mp4", "c.mp4", "hide-index.jsonl", "report.html"]);
    assert_eq!(versions(&out)["a.mp4"], first);
    assert!(fs::read_to_string(out.join("report.html")).unwrap().contains("<p>3 videos, "));
    assert_eq!(media::streams(&out.join("b.mp4")), [1, 1]);
    let blurred = media::contrasts(&out.join("c.mp4"), 640);
    assert!(blurred.len() == 10 && blurred.iter().all(|contrast| *contrast < 20), "{blurred:?}");

    // Another option makes all again, another file changes one, and --force all.
    let before = versions(&out);
    hide(&workspace, "in/a.mp4 --out=out --hide=everything --sigma=3");
    workspace.shell("touch -d 2020-01-01 in/c.mp4");
    let (_, stdout, _) = hide(&workspace, arguments);
    assert!(stdout.starts_with("1 file already done\nin/a.mp4: it is covered again (sigma was 3.0, is default)\nin/a.mp4: 10 frames; left out: tags (description)\nin/c.mp4: 10 frames; left out: tags (description)\n"), "{stdout}");
    let after = versions(&out);
    let changed = before.iter().filter(|(name, version)| after[*name] != **version);
    assert_eq!(changed.map(|(name, _)| name).collect::<Vec<_>>(), ["a.mp4", "c.mp4"]);
    assert_eq!(contents(&workspace.0.join("in")), inputs);
}

/// Neither an input nor what somebody else wrote is replaced, whatever names it has.
#[test]
fn inputs_and_files_of_others_are_never_replaced() {
    let workspace = Workspace::new("hide-names");
    workspace.write_clip([320, 96], "bar", 3);
    workspace.shell(
        "mkdir in hard soft mine part page; echo mine >page/report.html; mv input.mp4 in/a.mp4; ln in/a.mp4 hard/a.mp4; ln -s ../in/a.mp4 soft/a.mp4; \
         ln -s in link; echo mine >mine/a.mp4; ln -s ../in/a.mp4 part/a.mp4.part; cp in/a.mp4 b.mp4; mkdir other; \
         cp in/a.mp4 other/",
    );
    let inputs = contents(&workspace.0.join("in"));
    let read = |name: &str| fs::read(workspace.0.join(name)).unwrap();
    for (out, force, reason) in [
        ("in", "--force", "its result would replace the input in/a.mp4"),
        ("link", "--force", "its result would replace the input link/a.mp4"),
        ("hard", "--force", "its result would replace the input hard/a.mp4"),
        ("soft", "--force", "its result would replace the input soft/a.mp4"),
        ("mine", "", "mine/a.mp4 was not written by this program, or was changed since"),
        ("page", "--force", "page/report.html is not of this program"),
    ] {
        let (status, stdout, stderr) = hide(&workspace, &format!("in/a.mp4 --out={out} --hide=everything {force}"));
        assert!(status == 1 && stdout.is_empty() && stderr.contains(reason), "{out}: {stdout}{stderr}");
        assert_eq!(read("in/a.mp4"), inputs["a.mp4"], "{out}");
    }
    assert_eq!([read("mine/a.mp4"), read("page/report.html")], [b"mine\n"; 2]);
    assert_eq!(names(&workspace.0.join("page")).len(), 1);
    let (status, _, stderr) = hide(&workspace, "in/a.mp4 other/a.mp4 --out=part --hide=everything --no-sound");
    assert_eq!(status, 0, "{stderr}");
    assert_eq!(names(&workspace.0.join("part")), ["a-2.mp4", "a.mp4", "hide-index.jsonl", "report.html"]);
    assert_eq!(media::streams(&workspace.0.join("part/a.mp4")), [1, 0]);
    assert_eq!(read("in/a.mp4"), inputs["a.mp4"]);
    // A result is no input, also where the results lie beside the inputs.
    let (_, stdout, _) = hide(&workspace, ". --out=part --hide=everything --no-sound");
    assert!(!stdout.contains("part/a"), "{stdout}");
}

#[test]
fn the_help_of_hide_fits_a_terminal() {
    let workspace = Workspace::new("hide-help");
    let help = workspace.stdout("hide.py --help");
    assert!(help.starts_with("usage: hide.py [-h]"), "{help}");
    assert!(help.lines().count() < 24 && help.lines().all(|line| line.len() <= 80), "{help}");
    workspace.says(
        "hide.py --hide=everything --sigma=0 a.mp4       =! …argument --sigma: 0 is not a number from 1 to 1024
         hide.py --hide=plates --every=3 a.mp4           =! …--every does not apply to --hide plates: leave it out
         hide.py --hide=people --every=3 a.mp4           =! …--every does not apply to --hide people: leave it out
         hide.py --hide=background --every=3 a.mp4       =! …--every does not apply to --hide background: leave it out
         hide.py --hid=everything a.mp4                  =! …unrecognized arguments: --hid=everything
         hide.py --hide=everything --cover=fill a.mp4    =! …--cover does not apply to --hide everything: leave it out
         hide.py --size=1280 a.mp4 =! …argument --size: 1280 is not a width and a height from 16 up, such as 1280x720
         hide.py --hide=everything absent.mp4            =! …absent.mp4: there is no such file or folder
         hide.py --hide=everything plugins               =! …plugins: no video is in this folder
         hide.py --hide=everything --out=plugins/libgstcudagaussblur.so a.mp4 =! …name another folder with --out",
    );
}

/// A file's cover picture may show the face that is covered in the video. Its title stays.
#[test]
fn cover_pictures_are_left_out() {
    let workspace = Workspace::new("hide-cover-picture");
    let script = "\
import sys, gi
gi.require_version('Gst', '1.0')
from gi.repository import Gst
Gst.init(None)
pipeline = Gst.parse_launch('videotestsrc num-buffers=3 ! x264enc ! mp4mux name=mux ! filesink location=a.mp4')
mux = pipeline.get_by_name('mux')
picture = Gst.Buffer.new_wrapped(open(sys.argv[1], 'rb').read())
mux.add_tag_value(Gst.TagMergeMode.REPLACE, 'image', Gst.Sample.new(picture, Gst.Caps('image/jpeg'), None, None))
mux.add_tag_value(Gst.TagMergeMode.REPLACE, 'title', 'Blumenfest')
pipeline.set_state(Gst.State.PLAYING)
pipeline.get_bus().timed_pop_filtered(Gst.CLOCK_TIME_NONE, Gst.MessageType.EOS | Gst.MessageType.ERROR)
pipeline.set_state(Gst.State.NULL)
";
    workspace.write("make.py", script);
    workspace.stdout("scripts/python gi -- make.py $ROOT/examples/demo/face.jpg");
    let (status, _, stderr) = hide(&workspace, "a.mp4 --out=out --hide=everything");
    assert_eq!(status, 0, "{stderr}");
    let picture = &include_bytes!("../../examples/demo/face.jpg")[1000..1100];
    for (file, has_picture) in [("a.mp4", true), ("out/a.mp4", false)] {
        let bytes = fs::read(workspace.0.join(file)).unwrap();
        let has = |part: &[u8]| bytes.windows(part.len()).any(|window| window == part);
        assert_eq!((has(picture), has(b"Blumenfest")), (has_picture, true), "{file}");
    }
}

/// Plays to the end.
fn play(pipeline: &gst::Bin) {
    pipeline.set_state(gst::State::Playing).unwrap();
    let kinds = [gst::MessageType::Eos, gst::MessageType::Error];
    let end = pipeline.bus().unwrap().timed_pop_filtered(gst::ClockTime::from_seconds(60), &kinds).unwrap();
    assert_eq!(end.type_(), gst::MessageType::Eos, "{end:?}");
    pipeline.set_state(gst::State::Null).unwrap();
}

/// Writes a file with a chapter named Anna, which `gst-launch-1.0` cannot.
fn write_chapters(file: &Path) {
    let pipeline = pipeline(&format!(
        "videotestsrc num-buffers=5 ! video/x-raw,format=I420 ! x264enc ! matroskamux name=mux ! filesink location={}",
        file.display()
    ));
    let mut entry = gst::TocEntry::new(gst::TocEntryType::Edition, "edition");
    let mut chapter = gst::TocEntry::new(gst::TocEntryType::Chapter, "chapter");
    let mut tags = gst::TagList::new();
    tags.get_mut().unwrap().add::<gst::tags::Title>(&"Anna", gst::TagMergeMode::Replace);
    chapter.get_mut().unwrap().set_tags(tags);
    chapter.get_mut().unwrap().set_start_stop_times(0, 1_000_000_000);
    entry.get_mut().unwrap().append_sub_entry(chapter);
    let mut toc = gst::Toc::new(gst::TocScope::Global);
    toc.get_mut().unwrap().append_entry(entry);
    let mux = pipeline.by_name("mux").unwrap().dynamic_cast::<gst::TocSetter>().unwrap();
    mux.set_toc(Some(&toc));
    play(&pipeline);
}

/// Writes a file of frames, each with a time in milliseconds, from caps and through elements.
fn write_frames(file: &Path, elements: &str, frames: impl Iterator<Item = (u64, Vec<u8>)>) {
    let ends = ["appsrc name=source format=time caps", "matroskamux ! filesink location"];
    let pipeline = pipeline(&format!("{}={elements} ! {}={}", ends[0], ends[1], file.display()));
    let source = pipeline.by_name("source").unwrap().downcast::<gst_app::AppSrc>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    for (milliseconds, bytes) in frames {
        let mut buffer = gst::Buffer::from_mut_slice(bytes);
        buffer.get_mut().unwrap().set_pts(gst::ClockTime::from_mseconds(milliseconds));
        source.push_buffer(buffer).unwrap();
    }
    source.end_of_stream().unwrap();
    play(&pipeline);
}

/// Writes a file of 20 frames of which the fifteenth and three more have times that came before.
fn write_steps(file: &Path) {
    let times = (0..20).map(|frame| 100 * if frame < 14 { frame } else { frame - 4 });
    let frames = times.map(|time| (time, vec![128; 64 * 48 * 3 / 2]));
    write_frames(file, "video/x-raw,format=I420,width=64,height=48,framerate=10/1 ! jpegenc", frames);
}

/// A picture that comes soon after the one before and stays for 2 s is searched, though its detector cannot know how long it stays,
/// also where most pictures stay. And no last frame is lost after it.
#[test]
fn a_picture_that_stays_is_searched() {
    let workspace = Workspace::new("hide-stays");
    workspace.write_faces(&[("neither", 1)]);
    let picture = |name: &str| fs::read(workspace.0.join(name)).unwrap();
    for (name, face, times) in [
        ("stays.mkv", 297, (0..10).map(|frame| 33 * frame).chain([2300, 2333]).collect::<Vec<_>>()),
        ("pages.mkv", 2066, vec![0, 2000, 2066, 4066, 6066]),
    ] {
        let frames =
            times.into_iter().map(|time| (time, picture(if time == face { "left.jpg" } else { "neither.jpg" })));
        let elements = "image/jpeg,width=960,height=400,framerate=30/1 ! jpegdec ! x264enc";
        write_frames(&workspace.0.join(name), elements, frames);
    }
    hide(&workspace, "stays.mkv --hide=everything --out=everything");
    workspace.stdout("hide.py --verify --out=everything");
    if lacks_model(&workspace) {
        return;
    }
    let (_, stdout, _) = hide(&workspace, "stays.mkv pages.mkv --out=out");
    assert!(stdout.contains("stays.mkv: 12 frames, 1 object found"), "{stdout}");
    assert!(stdout.contains("pages.mkv: 5 frames, 1 object found"), "{stdout}");
    let (_, stdout, _) = hide(&workspace, "stays.mkv --every=1 --out=every");
    assert!(stdout.contains("stays.mkv: 12 frames, 1 object found"), "{stdout}");
    workspace.stdout("hide.py --verify --out=out");
}

/// Whatever of an input is not in its result is in the sentence about it.
#[test]
fn what_a_result_lacks_is_said() {
    let workspace = Workspace::new("hide-lacks");
    let encode = "video/x-raw,format=I420,width=64,height=48,framerate=30/1 ! x264enc ! h264parse ! queue";
    let deep = "video/x-raw,format=I420_10LE,width=64,height=48,framerate=10/1,colorimetry=bt2100-pq";
    workspace.write("words.srt", "1\n00:00:00,000 --> 00:00:00,200\nAnna\n");
    // Of colour and transparent; below it white and opaque.
    workspace.shell(&format!(
        "mkdir in
         launch() {{ gst-launch-1.0 -q \"$@\"; }}
         launch videotestsrc num-buffers=5 pattern=solid-color foreground-color=0x000adc0a ! \
             video/x-raw,format=RGBA,width=64,height=48,framerate=10/1 ! videobox bottom=-48 border-alpha=1 fill=white ! \
             pngenc ! qtmux ! filesink location=in/alpha.mov
         launch videotestsrc num-buffers=5 ! {encode} ! matroskamux name=mux ! filesink location=in/words.mkv \
             filesrc location=words.srt ! subparse ! mux.
         launch videotestsrc num-buffers=1 pattern=white ! {encode} ! mux. videotestsrc num-buffers=30 pattern=black ! \
             {encode} ! matroskamux name=mux ! filesink location=in/preview.mkv
         launch videotestsrc num-buffers=120 ! {encode} ! matroskamux ! filesink location=whole.mkv
         head -c $(($(stat -c %s whole.mkv) / 2)) whole.mkv >in/half.mkv
         launch videotestsrc num-buffers=5 ! {encode} ! taginject tags='comment=(string)Anna,language-code=(string)de' ! \
             qtmux ! filesink location=in/comment.mov
         launch videotestsrc num-buffers=5 ! {deep} ! x265enc log-level=none ! h265parse ! mp4mux ! filesink location=in/deep.mp4
         launch videotestsrc num-buffers=90 ! video/x-raw,framerate=30/1 ! jpegenc ! avimux ! filesink location=in/zeros.avi
         dd if=/dev/zero of=in/zeros.avi bs=4096 seek=$(($(stat -c %s in/zeros.avi) / 3 / 4096)) status=none conv=notrunc \
             count=$(($(stat -c %s in/zeros.avi) / 3 / 4096))
         launch videotestsrc num-buffers=2 ! video/x-raw,format=I420,width=20000,height=32 ! jpegenc ! matroskamux ! \
             filesink location=in/wide.mkv
         launch videotestsrc num-buffers=5 ! {encode} ! mp4mux ! filesink location=plain.mp4
         head -c 700 plain.mp4 >in/cut.mp4"
    ));
    write_chapters(&workspace.0.join("in/chapters.mkv"));
    write_steps(&workspace.0.join("in/steps.mkv"));
    // Only players turn these: by ProjectionPoseRoll, in an element that demuxers skip, and by the first number of a track's matrix.
    let [mut rolled, mut mirrored] =
        ["in/steps.mkv", "plain.mp4"].map(|name| fs::read(workspace.0.join(name)).unwrap());
    let place = |bytes: &[u8], id: &[u8]| bytes.windows(4).position(|four| four == id).unwrap();
    let (segment, track) = (place(&rolled, b"\x18\x53\x80\x67"), place(&mirrored, b"tkhd"));
    rolled.splice(segment..segment, *b"\xec\x8a\x76\x70\x87\x76\x75\x84\x42\xb4\0\0");
    mirrored[track + 44..][..2].fill(255);
    fs::write(workspace.0.join("in/turned.mkv"), rolled).unwrap();
    fs::write(workspace.0.join("in/turned.mp4"), mirrored).unwrap();
    let photograph = b"\xff\xd8Exif\0\0MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06";
    fs::write(workspace.0.join("in/turned.mov"), photograph).unwrap();
    let photograph = b"RIFF    WEBPEXIF    II*\0\x08\0\0\0\x01\0\x12\x01\x03\0\x01\0\0\0\x08";
    fs::write(workspace.0.join("in/turned.webm"), photograph).unwrap();

    let (status, stdout, stderr) = hide(&workspace, "in --out=out --hide=everything --sigma=1");
    // Each line also says this of the weak blur, by the picture's size.
    let weaker = "; a sigma of 1 hides less than the default, ";
    let stdout =
        [6, 12, 16, 60].iter().fold(stdout, |stdout, default| stdout.replace(&format!("{weaker}{default}\n"), "\n"));
    let expected = "\
in/alpha.mov: 5 frames; transparent parts are black, as players show them
in/chapters.mkv: 5 frames; left out: chapters
in/comment.mov: 5 frames; left out: tags (comment)
in/deep.mp4: 5 frames; 10 bits are kept, in H.265, which some browsers do not play
in/preview.mkv: 30 frames; left out: another video track, of 1 picture
in/steps.mkv: 20 frames; 4 frames with timestamps that do not increase: players leave them out
in/wide.mkv: 2 frames; its pictures of 20000x32 are scaled to 16384x26
in/words.mkv: 5 frames; left out: subtitles
10 videos in out; look at out/report.html
";
    // How many frames are in half of a file, and how many damage costs, depends on the encoder.
    let (damaged, others): (Vec<_>, Vec<_>) = stdout
        .split_inclusive('\n')
        .partition(|line| ["in/half.mkv: ", "in/zeros.avi: "].iter().any(|name| line.starts_with(name)));
    assert_eq!((status, &others.concat()[..]), (1, expected), "{stderr}");
    let [half, zeros] = damaged[..] else { panic!("{stdout}") };
    assert!(half.ends_with(" s of 4.0 s have pictures: is it complete?\n"), "{half}");
    assert!(zeros.contains("; no new picture from 1.") && zeros.ends_with(" s: is it damaged?\n"), "{zeros}");
    assert!(
        stderr.contains("\nin/cut.mp4: it has no pictures, is cut off")
            || stderr.contains("\nin/cut.mp4: nothing was decoded in 10 s"),
        "{stderr}"
    );
    for name in ["turned.mkv", "turned.mp4", "turned.mov", "turned.webm"] {
        assert!(stderr.contains(&format!("\nin/{name}: players turn or mirror its pictures")), "{stderr}");
    }
    let out = workspace.0.join("out");
    let [alpha, preview] = ["alpha.mp4", "preview.mp4"].map(|name| media::frames(&out.join(name), ""));
    assert!(alpha[4][..64 * 40].iter().all(|grey| *grey < 30), "{:?}", alpha[4]);
    assert!(alpha[4][64 * 56..].iter().all(|grey| *grey > 220), "{:?}", alpha[4]);
    // The film is black, its preview white.
    assert!(preview.len() == 30 && preview.iter().all(|frame| frame.iter().all(|grey| *grey < 40)));
    for (name, anna) in [("comment.mp4", b"Anna"), ("chapters.mp4", b"Anna"), ("words.mp4", b"Anna")] {
        let bytes = fs::read(out.join(name)).unwrap();
        assert!(!bytes.windows(4).any(|window| window == anna), "{name}");
    }
    let caps = workspace.stdout("gst-launch-1.0 -v filesrc location=out/deep.mp4 ! decodebin ! fakesink");
    assert!(caps.contains("format=(string)I420_10LE") && caps.contains("colorimetry=(string)bt2100-pq"), "{caps}");
}

/// Gives the only track of a file from mp4mux an edit list: of each edit the beginning and the length in seconds.
fn write_edits(file: &Path, edits: &[[f64; 2]]) {
    let mut bytes = fs::read(file).unwrap();
    let place = |bytes: &[u8], name: &[u8]| bytes.windows(4).position(|window| window == name).unwrap() - 4;
    let number = |bytes: &[u8], at: usize| u32::from_be_bytes(bytes[at..at + 4].try_into().unwrap());
    // Times of the file, then of the track.
    let scales = [b"mvhd", b"mdhd"].map(|name| f64::from(number(&bytes, place(&bytes, name) + 20)));
    let mut entries = (edits.len() as u32).to_be_bytes().to_vec();
    for [begin, length] in edits {
        for value in [(length * scales[0]) as u32, (begin * scales[1]) as u32, 0x0001_0000] {
            entries.extend(value.to_be_bytes());
        }
    }
    let boxed = |name: &[u8], content: &[u8]| [&(content.len() as u32 + 8).to_be_bytes(), name, content].concat();
    let edts = boxed(b"edts", &boxed(b"elst", &[&[0; 4], &entries[..]].concat()));
    let old = place(&bytes, b"edts");
    let length = number(&bytes, old) as usize;
    for name in [b"moov", b"trak"] {
        let at = place(&bytes, name);
        let size = number(&bytes, at) as usize + edts.len() - length;
        bytes[at..at + 4].copy_from_slice(&(size as u32).to_be_bytes());
    }
    bytes.splice(old..old + length, edts);
    fs::write(file, bytes).unwrap();
}

/// Phones cut a video by an edit list. Frames of two edits have timestamps of the track, and times of the whole.
#[test]
fn edits_of_a_file_stay() {
    let workspace = Workspace::new("hide-edits");
    workspace.shell(
        "gst-launch-1.0 -q videotestsrc num-buffers=90 ! video/x-raw,format=I420,width=64,height=48,framerate=30/1 ! \
         x264enc key-int-max=1 ! mp4mux ! filesink location=a.mp4",
    );
    write_edits(&workspace.0.join("a.mp4"), &[[1.5, 0.7], [0.4, 1.2]]);
    let (status, stdout, stderr) = hide(&workspace, "a.mp4 --out=out --hide=everything");
    assert_eq!(status, 0, "{stdout}{stderr}");
    let times: Vec<f64> =
        media::timed_frames(&workspace.0.join("out/a.mp4"), "").into_iter().map(|(time, _)| time).collect();
    let count = stdout.split(' ').nth(1).unwrap();
    assert!((56..=58).contains(&times.len()) && count == times.len().to_string(), "{stdout}: {times:?}");
    assert!(times.windows(2).all(|pair| (0.03..0.04).contains(&(pair[1] - pair[0]))), "{times:?}");
}

/// Encoders put up to 33 ms before the sound, of which a result has none.
#[test]
fn sound_that_is_encoded_is_not_late() {
    let workspace = Workspace::new("hide-sound");
    // Silence for half a second, then a tone.
    workspace.shell(
        "gst-launch-1.0 -q videotestsrc num-buffers=30 ! video/x-raw,format=I420,framerate=30/1 ! x264enc ! queue ! avimux name=mux ! \
         filesink location=a.avi concat name=all ! queue ! mux. \
         audiotestsrc wave=silence num-buffers=24 samplesperbuffer=1000 ! audio/x-raw,format=S16LE,rate=48000,channels=1 ! all. \
         audiotestsrc freq=3000 num-buffers=24 samplesperbuffer=1000 ! audio/x-raw,format=S16LE,rate=48000,channels=1 ! all.",
    );
    let (status, stdout, stderr) = hide(&workspace, "a.avi --out=out --hide=everything");
    assert_eq!(status, 0, "{stdout}{stderr}");
    for file in ["a.avi", "out/a.mp4"] {
        let begins = media::sound_begins(&workspace.0.join(file)).unwrap();
        assert!((begins - 0.5).abs() < 0.003, "{file}: {begins}");
    }
}

/// Whether a file has these bytes.
fn has_bytes(file: &Path, part: &[u8]) -> bool {
    fs::read(file).unwrap().windows(part.len()).any(|window| window == part)
}

/// The headers of Vorbis contain the tags of the file, whether they are copied or written by its encoder.
#[test]
fn sound_in_webm_brings_no_tags() {
    let workspace = Workspace::new("hide-webm");
    write_variant(
        &workspace,
        "webm.py",
        "webm = hide.jobs.WEBM._replace(encoders={sys.argv.pop(2): 0})
hide.jobs.ENCODERS = [hide.jobs.ENCODERS[-1]._replace(muxer=webm)]
",
    );
    workspace.shell(
        "gst-launch-1.0 -q videotestsrc num-buffers=10 ! video/x-raw,format=I420,width=64,height=48,framerate=10/1 ! vp8enc deadline=1 ! \
         matroskamux name=mux ! filesink location=a.mkv audiotestsrc num-buffers=30 samplesperbuffer=1600 ! \
         audio/x-raw,rate=48000 ! audioconvert ! taginject tags='comment=(string)Anna-Anna,title=(string)Blumenfest' ! vorbisenc ! mux.",
    );
    assert!(has_bytes(&workspace.0.join("a.mkv"), b"Anna-Anna"));
    for encoder in ["opusenc", "vorbisenc"] {
        let said = workspace.stdout(&format!(
            "scripts/python gi -- webm.py $ROOT/examples {encoder} --backend=cpu --hide=everything a.mkv --out={encoder}"
        ));
        assert!(said.starts_with("a.mkv: 10 frames; left out: tags (comment, description)\n"), "{said}");
        let result = workspace.0.join(encoder).join("a.webm");
        assert!(!has_bytes(&result, b"Anna-Anna") && has_bytes(&result, b"Blumenfest"), "{encoder}");
        assert!((media::sound(&result).0 - 1.).abs() < 0.1, "{encoder}");
    }
}

/// Ogg has Opus in a form that MP4 cannot have. It is then encoded again.
#[test]
fn sound_that_cannot_be_copied_is_encoded() {
    let workspace = Workspace::new("hide-opus");
    workspace.shell(
        "gst-launch-1.0 -q videotestsrc num-buffers=10 ! video/x-raw,format=I420,width=64,height=48,framerate=10/1 ! theoraenc ! \
         oggmux name=mux ! filesink location=a.ogv audiotestsrc num-buffers=30 samplesperbuffer=1600 ! \
         audio/x-raw,rate=48000 ! audioconvert ! opusenc ! mux.",
    );
    let (status, stdout, stderr) = hide(&workspace, "a.ogv --out=out --hide=everything");
    assert!(status == 0 && !stdout.contains("sound"), "{stdout}{stderr}");
    assert!((media::sound(&workspace.0.join("out/a.mp4")).0 - 1.).abs() < 0.1);
}

/// Decoders attach closed captions to frames, and encoders write them into their stream.
#[test]
fn closed_captions_are_left_out() {
    let workspace = Workspace::new("hide-captions");
    let file = workspace.0.join("a.mp4");
    let pipeline = pipeline(&format!(
        "appsrc name=source format=time caps=video/x-raw,format=I420,width=64,height=48,framerate=10/1 ! x264enc ! mp4mux ! \
         filesink location={}",
        file.display()
    ));
    let source = pipeline.by_name("source").unwrap().downcast::<gst_app::AppSrc>().unwrap();
    pipeline.set_state(gst::State::Playing).unwrap();
    for frame in 0..5 {
        let mut buffer = gst::Buffer::from_mut_slice(vec![128; 64 * 48 * 3 / 2]);
        let writable = buffer.get_mut().unwrap();
        writable.set_pts(gst::ClockTime::from_mseconds(100 * frame));
        writable.set_duration(gst::ClockTime::from_mseconds(100));
        let caption = [0xfc, b'A', b'n', 0xf9, 0x80, 0x80];
        gst_video::VideoCaptionMeta::add(writable, gst_video::VideoCaptionType::Cea708Raw, &caption);
        source.push_buffer(buffer).unwrap();
    }
    source.end_of_stream().unwrap();
    play(&pipeline);
    let (status, stdout, stderr) = hide(&workspace, "a.mp4 --out=out --hide=everything");
    assert!(status == 0 && stdout.starts_with("a.mp4: 5 frames; left out: closed captions\n"), "{stdout}{stderr}");
    // The identifier of captions in a stream of H.264.
    assert_eq!(["a.mp4", "out/a.mp4"].map(|name| has_bytes(&workspace.0.join(name), b"GA94")), [true, false]);

    // Without the element that removes captions, such a video is refused.
    let lines = "Gst.Registry.get().remove_feature(Gst.Registry.get().lookup_feature('ccextractor'))\n";
    write_variant(&workspace, "lacking.py", lines);
    workspace.says(
        "scripts/python gi -- lacking.py $ROOT/examples a.mp4 --backend=cpu --out=without --hide=everything =! \
         …a.mp4: it has closed captions, and GStreamer no element that removes them: …",
    );
    assert!(!workspace.has("without/a.mp4"));
}

/// What a blur hides in a small picture, it also hides in the same picture of more pixels.
#[test]
fn the_strength_of_a_blur_is_relative_to_the_picture() {
    let workspace = Workspace::new("hide-strength");
    for factor in [3, 9] {
        workspace.shell(&format!(
            "gst-launch-1.0 -q videotestsrc pattern=checkers-8 num-buffers=2 ! video/x-raw,format=I420,width=208,height=156 ! \
             videoscale method=nearest-neighbour ! video/x-raw,width={},height={} ! x264enc speed-preset=ultrafast ! mp4mux ! \
             filesink location={factor}.mp4",
            208 * factor,
            156 * factor
        ));
    }
    let has_models = !lacks_model(&workspace) && !workspace.lacks_model("selfiesegmentation");
    for what in ["everything", "background"].into_iter().take(1 + usize::from(has_models)) {
        let (status, stdout, stderr) = hide(&workspace, &format!("3.mp4 9.mp4 --out={what} --hide={what}"));
        assert_eq!(status, 0, "{stdout}{stderr}");
        for factor in [3, 9] {
            for frame in media::frames(&workspace.0.join(format!("{what}/{factor}.mp4")), "") {
                let row = &frame[78 * factor * 208 * factor..][..208 * factor];
                let range = row.iter().max().unwrap() - row.iter().min().unwrap();
                assert!(range < 20, "{what} {factor}: {range}");
            }
        }
    }
}

/// A detector that fails or never returns is named, and what is done is kept.
#[test]
fn a_detector_that_fails_or_hangs_is_named() {
    let workspace = Workspace::new("hide-hang");
    workspace.write_clip([64, 48], "bar", 20);
    // In place of the job's detector. The first frames are those of hide.py's trial.
    write_variant(
        &workspace,
        "broken.py",
        "class Broken(GstBase.BaseTransform):
    __gstmetadata__ = 'Broken', 'Analyzer', 'Fails', 'tests'
    __gsttemplates__ = tuple(Gst.PadTemplate.new(name, direction, Gst.PadPresence.ALWAYS, Gst.Caps('video/x-raw'))
                             for name, direction in (('sink', Gst.PadDirection.SINK), ('src', Gst.PadDirection.SRC)))
    searches = 0
    def do_transform_ip(self, buffer):
        Broken.searches += 1
        if self.searches > 6:
            open('reached', 'w').close()
            if 'HANGS' in os.environ: time.sleep(10**6)
            error = GLib.Error.new_literal(Gst.stream_error_quark(), 'the model failed', int(Gst.StreamError.FAILED))
            self.post_message(Gst.Message.new_error(self, error, ''))
            return Gst.FlowReturn.ERROR
        return Gst.FlowReturn.OK
GObject.type_register(Broken)
Gst.Element.register(None, 'broken', 0, Broken)
hide.jobs.JOBS['people']['finder'] = 'broken name=detector'
del hide.jobs.JOBS['people']['faceless']
",
    );
    let arguments = "scripts/python gi -- broken.py $ROOT/examples --backend=cpu input.mp4 --out=out --hide=people";
    workspace.says(&format!("{arguments} =! …input.mp4: the detector has failed: the model failed"));
    workspace.shell("rm reached");
    let mut command = workspace.command(&format!("HANGS=1 {arguments}"));
    let child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().unwrap();
    let end = Instant::now() + Duration::from_secs(600);
    while !workspace.has("reached") {
        assert!(Instant::now() < end, "the detector does not hang");
        std::thread::sleep(Duration::from_millis(5));
    }
    workspace.shell(&format!("kill -TERM {}", child.id()));
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(143), "{output:?}");
    assert_eq!(names(&workspace.0.join("out")).iter().filter(|name| name.contains("mp4")).count(), 0);
}

/// With an encoder that reads CUDA memory, frames of NVDEC stay there. Pictures that have to be turned are covered in host memory.
#[test]
fn pictures_that_cannot_stay_on_the_device_are_as_a_viewer_sees_them() {
    let workspace = Workspace::new("hide-device");
    // Decoders of this machine have host memory, in which odd and wide pictures are scaled as ever.
    write_variant(
        &workspace,
        "device.py",
        "hide.jobs.Encoder.reads_cuda_memory = lambda self: True
cover = hide.batch.cover
def told(setup, path, *more):
    work = cover(setup, path, *more)
    print(path.rsplit('/')[-1], work.is_on_device, file=open('told', 'a'))
    return work
hide.batch.cover = told
",
    );
    workspace.shell(
        "mkdir in
         clip() { gst-launch-1.0 -q videotestsrc num-buffers=6 ! video/x-raw,width=$1,height=$2,framerate=30/1,pixel-aspect-ratio=$3,format=$4 ! \
             x264enc speed-preset=ultrafast key-int-max=3 ! h264parse ! mp4mux ! filesink location=in/$5.mp4; }
         clip 128 96 1/1 I420 plain
         clip 128 96 1/1 I420 turned
         clip 129 97 1/1 Y444 odd
         clip 128 96 4/3 I420 wide",
    );
    media::turn(&workspace.0.join("in/turned.mp4"));
    let options = "--backend=cpu --hide=everything in";
    workspace.stdout(&format!("hide.py {options} --out=host"));
    workspace.stdout(&format!("scripts/python gi -- device.py $ROOT/examples {options} --out=device"));
    let told = fs::read_to_string(workspace.0.join("told")).unwrap();
    assert_eq!(told, "odd.mp4 True\nplain.mp4 True\nturned.mp4 False\nwide.mp4 True\n");
    for name in ["plain", "turned", "odd", "wide"] {
        let [host, device] = ["host", "device"].map(|folder| workspace.0.join(folder).join(format!("{name}.mp4")));
        assert_eq!(media::h264(&host), media::h264(&device), "{name}");
        assert!(
            media::frames(&host, "") == media::frames(&device, "") && media::frames(&host, "").len() == 6,
            "{name}"
        );
    }
}

/// Faces lead to small people, so frames without a face are counted.
#[test]
fn frames_in_which_no_face_leads_to_a_person_are_counted() {
    let workspace = Workspace::new("hide-faceless");
    if lacks_model(&workspace) || workspace.lacks_model("selfiesegmentation") {
        return;
    }
    workspace.write_faces(&[("neither", 4)]);
    let (status, stdout, stderr) = hide(&workspace, "input.mp4 --out=out --hide=people");
    let expected = "input.mp4: 4 frames, nothing was found; in 4 frames no face was found: a person there may show\n";
    assert!(status == 0 && stdout.starts_with(expected), "{stdout}{stderr}");
    workspace.write_faces(&[("left", 4)]);
    let (_, stdout, _) = hide(&workspace, "input.mp4 --out=out --hide=people");
    assert!(stdout.starts_with("input.mp4: 4 frames\n"), "{stdout}");
}

/// Runs tests/suite/review_page.py on the page of a result, with a choice for the first object and boxes, and covers the input again
/// by the file that the page saves. Returns what hide.py prints.
fn correct(workspace: &Workspace, stem: &str, choice: &str, boxes: &str) -> String {
    let page = "xvfb-run -a $ROOT/scripts/python gi -- $ROOT/tests/suite/review_page.py";
    let said = workspace.stdout(&format!("{page} out-review/{stem}.mp4.html . {choice} {boxes}"));
    let command = format!("/hide.py' --out '{}' --corrections='{stem}.20", workspace.0.join("out").display());
    assert!(said.contains(&command), "{said}");
    workspace.shell(&format!("mv saved.json {stem}.json"));
    let (status, stdout, stderr) = hide(workspace, &format!("--out=out --corrections {stem}.json"));
    assert_eq!(status, 0, "{stdout}{stderr}");
    stdout
}

/// Of each frame, how many samples of the left and of the right half differ from the input's.
fn changes(workspace: &Workspace, name: &str) -> Vec<[usize; 2]> {
    let frames = |path: &str| media::frames(&workspace.0.join(path).join(name), "");
    let count = |(before, after): (Vec<u8>, Vec<u8>)| {
        let mut changed = [0; 2];
        for (place, (old, new)) in before.iter().zip(&after).enumerate() {
            changed[place % 960 / 480] += usize::from(old.abs_diff(*new) > 40);
        }
        changed
    };
    let (before, after) = (frames("."), frames("out"));
    assert_eq!(before.len(), after.len());
    before.into_iter().zip(after).map(count).collect()
}

fn read_page(workspace: &Workspace, name: &str) -> String {
    fs::read_to_string(workspace.0.join(name)).unwrap()
}

/// Pictures that begin late begin at 0 in a result without sound, and late in one with sound. A player has these times, and the page.
#[test]
fn boxes_are_where_they_were_marked_if_the_pictures_begin_late() {
    let workspace = Workspace::new("hide-late");
    if lacks_model(&workspace) {
        return;
    }
    workspace.write(
        "mark.py",
        "import json, sys
data = json.loads(open('out-review/' + sys.argv[1] + '.html').read().split('application/json\">')[1].split('</script>')[0])
begin = float(sys.argv[2])
print(data['seconds'])
place = dict(x=0, y=0, width=320, height=192)
cover = [{'from': begin, 'to': begin + 0.5, 'boxes': [place | dict(time=begin)]}]
json.dump(dict(result=data['result'], basis=data['basis'], show=[], cover=cover), open('late.json', 'w'))
",
    );
    workspace.shell(
        "gst-launch-1.0 -q videotestsrc num-buffers=60 timestamp-offset=6000000000 ! \
         video/x-raw,format=I420,width=320,height=192,framerate=10/1 ! x264enc quantizer=10 pass=qual ! matroskamux name=mux ! \
         filesink location=loud.mkv audiotestsrc num-buffers=360 samplesperbuffer=1600 ! audio/x-raw,rate=48000 ! audioconvert ! \
         opusenc ! mux.
         cp loud.mkv silent.mkv",
    );
    for (name, option, begin, seconds) in [("silent.mkv", "--no-sound", 5, "6.0\n"), ("loud.mkv", "", 11, "12.0\n")] {
        let (status, stdout, stderr) =
            hide(&workspace, &format!("{name} {option} --out=out --threshold=1 --cover=fill"));
        assert!(status == 0 && stdout.contains("60 frames, nothing was found"), "{stdout}{stderr}");
        let result = name.replace("mkv", "mp4");
        assert_eq!(workspace.stdout(&format!("scripts/python -- mark.py {result} {begin}")), seconds);
        let (status, stdout, stderr) = hide(&workspace, "--out=out --corrections late.json");
        assert!(status == 0 && stdout.contains("1 box added"), "{stdout}{stderr}");
        let frames = media::frames(&workspace.0.join("out").join(&result), "");
        let is_black = |frame: &&Vec<u8>| frame[..320 * 192].iter().all(|sample| *sample < 30);
        assert_eq!(frames[50..55].iter().filter(is_black).count(), 5, "{name}");
        assert_eq!(frames[..20].iter().filter(is_black).count(), 0, "{name}");
    }
    workspace.says("hide.py --verify --out=out => out/loud.mp4: as it was made out/silent.mp4: as it was made");
}

/// Somebody finds a face on the page that the detector has missed, and one that may be shown.
#[test]
fn a_result_is_corrected_on_its_review_page() {
    let workspace = Workspace::new("hide-review");
    if lacks_model(&workspace) {
        return;
    }
    // No face is as certain as that.
    workspace.write_faces(&[("left", 16)]);
    workspace.shell("mv input.mp4 missed.mp4");
    let sound = "audiotestsrc num-buffers=48 samplesperbuffer=1600 ! audio/x-raw,rate=48000 ! audioconvert ! avenc_aac";
    workspace.shell(&format!(
        "gst-launch-1.0 -q filesrc location=missed.mp4 ! qtdemux ! h264parse ! mp4mux name=mux ! filesink location=with-sound.mp4 \
         {sound} ! mux.; mv with-sound.mp4 missed.mp4"
    ));
    let (status, stdout, _) = hide(&workspace, "missed.mp4 --out=out --threshold=1 --cover=fill");
    assert!(status == 0 && stdout.starts_with("missed.mp4: 16 frames, nothing was found; left out"), "{stdout}");
    assert!(changes(&workspace, "missed.mp4").iter().all(|changed| *changed == [0, 0]));
    let mode = |path: &str| workspace.0.join(path).metadata().unwrap().mode() & 0o777;
    assert_eq!(["out-review", "out-review/index.html", "out-review/missed.mp4.html"].map(mode), [0o700, 0o600, 0o600]);
    let stdout = correct(&workspace, "missed", "''", "0,0.1,0.1,0.38,0.8 1.5,0.12,0.1,0.38,0.8 1.5,0.7,0.7,0.1,0.1");
    assert!(
        stdout.starts_with(
            "out/missed.mp4: 16 frames, 2 objects covered, 0.0 s to look at; corrected by hand: 2 boxes added; "
        ),
        "{stdout}"
    );
    let changed = changes(&workspace, "missed.mp4");
    assert!(changed.iter().all(|[left, right]| *left > 50_000 && *right < 20_000), "{changed:?}");
    assert!((media::sound(&workspace.0.join("out/missed.mp4")).0 - 1.6).abs() < 0.1);

    // Of two people the first one may be shown.
    workspace.write_faces(&[("left", 10), ("right", 10)]);
    workspace.shell("mv input.mp4 two.mp4");
    let (_, stdout, _) = hide(&workspace, "two.mp4 --out=out --cover=fill");
    assert!(stdout.starts_with("two.mp4: 20 frames, 2 objects found"), "{stdout}");
    let stdout = correct(&workspace, "two", "shown", "");
    assert!(
        stdout.starts_with(
            "out/two.mp4: 20 frames, 1 object covered, 0.0 s to look at; corrected by hand: 1 object shown\n"
        ),
        "{stdout}"
    );
    let changed = changes(&workspace, "two.mp4");
    assert!(changed.iter().all(|[left, _]| *left == 0), "{changed:?}");
    assert!(changed[10..].iter().all(|[_, right]| *right > 5_000), "{changed:?}");
    // The page shows what was corrected; the same corrections change nothing, and the results stay when hide.py is started again.
    let page = fs::read_to_string(workspace.0.join("out-review/two.mp4.html")).unwrap();
    assert!(page.contains(r#""show": [{"object": 1, "why": "shown"}]"#), "{page}");
    let before = versions(&workspace.0.join("out"));
    workspace.says(
        "hide.py --out=out --corrections two.json => 1 file already done, with these corrections…
         hide.py two.mp4 --out=out --cover=fill => 1 file already done…
         hide.py two.mp4 --out=out --cover=blur =! …two.mp4: its result was corrected by hand, and a new search would lose that: …
         hide.py --verify --out=out => out/missed.mp4: as it was made out/two.mp4: as it was made",
    );
    assert_eq!(versions(&workspace.0.join("out")), before);

    // Another cover needs no search either, and keeps the corrections.
    let (_, stdout, _) = hide(&workspace, "--out=out --corrections two.json --cover=mosaic");
    assert!(
        stdout.starts_with(
            "out/two.mp4: it is covered again (cover was fill, is mosaic)\nout/two.mp4: 20 frames, 1 object covered"
        ),
        "{stdout}"
    );
    let changed = changes(&workspace, "two.mp4");
    assert!(
        changed.iter().all(|[left, _]| *left == 0) && changed[10..].iter().all(|[_, right]| *right > 1_000),
        "{changed:?}"
    );

    // A result whose page is not there, because the program was killed, is made again; one whose input was moved is not.
    workspace.shell("rm out-review/two.mp4.html");
    workspace.says("hide.py two.mp4 --out=out --cover=mosaic =! …two.mp4: its result was corrected by hand…");
    workspace.says("hide.py --out=out --corrections two.json --cover=mosaic => …: 1 object shown…");
    workspace.shell("mkdir moved; mv two.mp4 moved/two.mp4");
    workspace.says("hide.py moved/two.mp4 --out=out --cover=mosaic =! …two.mp4: its result was corrected by hand…");
    // A file of the same size and time and with another name is another one.
    workspace.shell("mv moved/two.mp4 moved/three.mp4");
    assert!(
        workspace
            .stdout("hide.py moved/three.mp4 --out=out --cover=mosaic")
            .contains("three.mp4: 20 frames, 2 objects")
    );
    workspace.shell("cp -p moved/three.mp4 two.mp4");
    workspace.stdout("hide.py two.mp4 --out=out --cover=mosaic --force");
    assert!(workspace.stdout("hide.py two.mp4 --out=out --cover=mosaic").starts_with("1 file already done"));
    assert!(
        read_page(&workspace, "out/report.html").contains("the corrections by hand of its older result are not in it")
    );
    workspace.says("hide.py --out=out --corrections two.json => …: 1 object shown…");
    let before = versions(&workspace.0.join("out"));

    // What is not what was reviewed is refused.
    let edited = |name: &str, command: &str| workspace.shell(&format!("sed '{command}' two.json >{name}.json"));
    let added = |mark: &str| format!("s/\"cover\": \\[\\]/\"cover\": [{mark}]/");
    let place = r#"{"time": 1, "x": 9, "y": 9, "width": 9, "height": 9}"#;
    for (name, command, said) in [
        ("none", "s/two.mp4/none.mp4/".to_owned(), "out has no result none.mp4: name its folder with --out…"),
        ("other", "s/\"basis\": \"./&0/".into(), "it is for another video, or for an older search of this one: …"),
        ("object", "s/\"object\": 1/\"object\": 7/".into(), "it names object 7, which was not found…"),
        ("true", "s/\"object\": 1/\"object\": true/".into(), "…page: True is not the number of an object…"),
        ("float", "s/\"object\": 1/\"object\": 1e999/".into(), "…page: inf is not the number of an object…"),
        ("deep", "s/\"object\": 1/\"object\": [[1]]/".into(), "…page: [[1]] is not the number of an object…"),
        ("cut", "2d".into(), "…page: it has no 'result'…"),
        ("later", "s/\"object\": 1/&, \"until\": 2/".into(), "…page: this version does not know until…"),
        (
            "nan",
            added(&format!(r#"{{"from": 0, "to": NaN, "boxes": [{place}]}}"#)),
            "…page: to of box 1 is not a number from 0 to 100000…",
        ),
        (
            "late",
            added(&format!(r#"{{"from": 8, "to": 9, "boxes": [{}]}}"#, place.replace('1', "8"))),
            "…: box 1 begins after the last frame…",
        ),
        (
            "early",
            added(&format!(r#"{{"from": 2, "to": 3, "boxes": [{place}]}}"#)),
            "…page: box 1 has no place, or one before it begins…",
        ),
        (
            "twice",
            added(&format!(r#"{{"from": 0, "to": 3, "boxes": [{place}, {place}]}}"#)),
            "…page: box 1 has two places at one time…",
        ),
        (
            "text",
            added(&format!(r#"{{"from": 0, "to": 3, "boxes": [{}]}}"#, place.replace('9', "\"9\""))),
            "…page: x of box 1 is not a number…",
        ),
        ("empty", added(r#"{"from": 0, "to": 3, "boxes": []}"#), "…page: box 1 has no place…"),
    ] {
        edited(name, &command);
        workspace.says(&format!("hide.py --out=out --corrections {name}.json =! …{said}"));
    }
    workspace.write("broken.json", "{");
    workspace.shell("head -c 200000 /dev/zero | tr '\\0' '[' >nested.json");
    workspace.says(
        "hide.py --out=out --corrections broken.json =! …broken.json: it is not a file of corrections from a review page: …
         hide.py --out=out --corrections nested.json =! …nested.json: it is not a file of corrections from a review page: …
         hide.py --out=out --corrections absent.json =! …absent.json: No such file or directory…
         hide.py --out=none --verify =! …none is no folder of results: name it with --out
         hide.py --out=out --corrections two.json two.mp4 =! …--corrections takes no videos, and of the options only --out, --cover, --force…
         hide.py --out=out --corrections two.json --corrections other.json =! …other.json is for the same result: give one of them…",
    );
    assert_eq!(versions(&workspace.0.join("out"))["missed.mp4"], before["missed.mp4"]);
    workspace.shell("cp two.mp4 copy.mp4; cp missed.mp4 two.mp4");
    workspace.says("hide.py --out=out --corrections two.json =! …two.json: …two.mp4 is missing or was changed since…");
    workspace.shell("mv copy.mp4 two.mp4");
    // A box that was added before and is not in the file is named; and corrections can be taken back.
    let box_too = added(&format!(r#"{{"from": 0, "to": 1, "boxes": [{place}]}}"#));
    edited("both", &box_too);
    edited("neither", "/\"show\"/,/\\]/c \"show\": [],");
    workspace.says(
        "hide.py --out=out --corrections both.json => …; corrected by hand: 1 object shown, 1 box added …
         hide.py --out=out --corrections two.json => …; corrected by hand: 1 object shown; 1 box of the earlier corrections was changed…
         hide.py --out=out --corrections neither.json => …2 objects found, …; its corrections were taken back…
         hide.py --out=out --corrections neither.json =! …neither.json: it has no corrections…",
    );
    assert!(changes(&workspace, "two.mp4")[..10].iter().all(|[left, _]| *left > 1_000));
    // A run that is killed between the line of the index and the result has corrected nothing, and no page says so.
    write_variant(&workspace, "killed.py", "hide.batch.put = lambda part, path: os._exit(9)\n");
    let killed = "scripts/python gi -- killed.py $ROOT/examples --backend=cpu --out=out --corrections";
    workspace.stderr(&format!("{killed} two.json"));
    workspace.stdout("hide.py missed.mp4 --out=out --threshold=1 --cover=fill");
    let read = |name: &str| fs::read_to_string(workspace.0.join(name)).unwrap();
    assert!(
        read("out/report.html").contains("failed: it was interrupted, and the result in the folder is an older one")
    );
    assert!(
        !read("out-review/index.html").contains("two.mp4")
            && read("out-review/two.mp4.html").contains("\"corrections\": null")
    );
    workspace.says("hide.py --out=out --corrections two.json => …; corrected by hand: 1 object shown…");
    assert!(read("out-review/index.html").contains(">two.mp4</a>"));
    workspace.shell("mv two.json out-review/");

    workspace.says(
        "hide.py --delete-review --out=out => out-review is deleted, except for 1 file that this program has not written: …/out-review/two.json",
    );
    assert_eq!(names(&workspace.0.join("out-review")), ["index.html", "two.json"]);
    workspace.shell("rm out-review/two.json");
    workspace.says(
        "hide.py --delete-review --out=out => out-review is deleted
         hide.py --delete-review --out=out =! …there is no out-review
         hide.py --verify --out=out => out/missed.mp4: its checksums are right; it was not covered again, because the review was deleted…",
    );
    assert!(!workspace.has("out-review"));
}

/// Each change of what a run has left is found, also if the checksum in the index is changed with it.
#[test]
fn changed_results_are_found() {
    let workspace = Workspace::new("hide-verify");
    if lacks_model(&workspace) {
        return;
    }
    workspace.write_faces(&[("left", 12), ("neither", 14), ("left", 6)]);
    let (status, _, stderr) = hide(&workspace, "input.mp4 --out=out --cover=fill");
    assert_eq!(status, 0, "{stderr}");
    workspace.says("hide.py --verify --out=out => out/input.mp4: as it was made");
    let sum = "sum() { sha256sum $1 | cut -c1-64; }; old=$(sum FILE); CHANGE; \
               sed -i \"s/$old/$(sum FILE)/\" out/hide-index.jsonl";
    let with_sum = |file: &str, change: &str| sum.replace("FILE", file).replace("CHANGE", change);
    let table = "sed -i '2s/,face/0,face/' out/input.csv";
    for (change, said) in [
        ("cp input.mp4 out/input.mp4".to_owned(), "out/input.mp4 was changed; the frame at …"),
        (with_sum("out/input.mp4", "cp input.mp4 out/input.mp4"), "the frame at …"),
        (table.to_owned(), "out/input.csv was changed; out/input.csv is not what its input…"),
        (with_sum("out/input.csv", table), "out/input.csv is not what its input and its detections give"),
        (
            "sed -i 's/\"objects\": 1/\"objects\": 2/' out/hide-index.jsonl".into(),
            "the index says objects: 2, covering again gives 1",
        ),
        ("sed -i 's/\"sums\": {[^}]*}/\"sums\": {}/' out/hide-index.jsonl".into(), "the index lacks checksums"),
        ("sed -i 's/\"frames\"/\"images\"/' out/hide-index.jsonl".into(), "the index has no result of this name"),
        (
            "sed -i 's/\"search_size\": 640/\"search_size\": \"640 ! filesink location=evil\"/' out/hide-index.jsonl"
                .into(),
            "it could not be covered again: its options in the index are damaged",
        ),
        ("printf '\\377\\376' >out/input.csv".into(), "its line in the index, or a file of it, is damaged…"),
        ("sed -i 's/\"cover\": \"fill\"/\"cover\": \"blur\"/' out/hide-index.jsonl".into(), "the frame at …"),
        ("echo >>input.mp4".into(), "…input.mp4 was changed"),
        ("rm input.mp4".into(), "…input.mp4 is missing"),
        ("rm out/input.mp4".into(), "out/input.mp4 is missing"),
        ("sed -i 2d out-review/input.mp4.detections.csv".into(), "…input.mp4.detections.csv was changed…"),
        (
            "rm out-review/input.mp4.detections.csv".into(),
            "…input.mp4.detections.csv is missing; it could not be covered again: its detections were deleted…",
        ),
    ] {
        workspace.shell(&format!("cp -a . ../${{PWD##*/}}-kept; {change}"));
        workspace.says(&format!("hide.py --verify --out=out =! …out/input.mp4: {said}"));
        workspace.shell("rm -r out* input.mp4 || true; cp -a ../${PWD##*/}-kept/. .; rm -r ../${PWD##*/}-kept");
    }
    workspace.says("hide.py --verify --out=out => out/input.mp4: as it was made");
    workspace.shell("cp input.mp4 out/more.mp4");
    workspace.says("hide.py --verify --out=out =! …out/more.mp4: the index has no result of this name");
}
