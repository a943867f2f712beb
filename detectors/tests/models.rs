// SPDX-License-Identifier: MPL-2.0
//! What the elements say of models that are missing or cannot be used. The usable ones are made by the test.

mod flatbuffer;

use std::path::{Path, PathBuf};

use flatbuffer::{Model, model};
use gst::prelude::*;
use libtest_mimic::{Arguments, Trial};

fn main() {
    let arguments = Arguments::from_args();
    let folder = std::env::temp_dir().join(format!("cudagaussblur-models-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    // SAFETY: the process has one thread.
    unsafe {
        std::env::remove_var("CUDAGAUSSBLUR_MODELS");
        std::env::set_var("XDG_DATA_HOME", folder.join("home"));
        std::env::set_var("XDG_DATA_DIRS", folder.join("system"));
    }
    let given = folder.clone();
    let run = move || {
        missing_and_unusable_models_give_one_clear_sentence(&given);
        Ok(())
    };
    let trial = Trial::test("missing_and_unusable_models_give_one_clear_sentence", run);
    let conclusion = libtest_mimic::run(&arguments, vec![trial]);
    std::fs::remove_dir_all(folder).unwrap();
    conclusion.exit();
}

fn element(name: &str, model: Option<&Path>) -> (gst::Element, gst::Bus) {
    let element = gst::ElementFactory::make(name).build().unwrap();
    element.set_property("model", model.map(|model| model.to_str().unwrap()));
    let bus = gst::Bus::new();
    element.set_bus(Some(&bus));
    (element, bus)
}

/// The errors on a bus.
fn errors(bus: &gst::Bus) -> Vec<gst::glib::Error> {
    let messages = bus.iter_filtered(&[gst::MessageType::Error]);
    let error = |message: gst::Message| match message.view() {
        gst::MessageView::Error(error) => error.error(),
        _ => unreachable!("it is filtered"),
    };
    messages.map(error).collect()
}

/// Asserts that an element does not start, and says so once, in this sentence.
#[track_caller]
fn assert_refused(name: &str, model: Option<&Path>, kind: gst::ResourceError, sentence: &str) {
    let (element, bus) = element(name, model);
    assert!(element.set_state(gst::State::Paused).is_err(), "{sentence}");
    let errors = errors(&bus);
    let texts: Vec<_> = errors.iter().map(gst::glib::Error::message).collect();
    assert_eq!(texts, [sentence]);
    assert!(errors[0].matches(kind), "{:?}", errors[0]);
    element.set_state(gst::State::Null).unwrap();
}

/// The flow of a frame, and the errors.
fn pushed() -> (Result<gst::FlowSuccess, gst::FlowError>, Vec<String>) {
    let (element, bus) = element("selfiesegmentation", None);
    let mut harness = gst_check::Harness::with_element(&element, Some("sink"), Some("src"));
    harness.set_src_caps("video/x-raw,format=GRAY8,width=64,height=48,framerate=30/1".parse().unwrap());
    let flow = harness.push(gst::Buffer::from_slice([7; 64 * 48]));
    (flow, errors(&bus).iter().map(|error| error.message().to_owned()).collect())
}

fn missing_and_unusable_models_give_one_clear_sentence(folder: &Path) {
    use gst::ResourceError::{NotFound, OpenRead};

    gst::init().unwrap();
    gstdetectors::plugin_register_static().unwrap();
    let elements = [
        ("centerface", "centerface.onnx", "scripts/models"),
        ("selfiesegmentation", "selfie_segmentation_landscape.tflite", "scripts/models people"),
    ];
    let [home, system] = ["home", "system"].map(|name| folder.join(name).join("cudagaussblur/models"));
    for (name, file, script) in elements {
        let paths = [home.join(file), system.join(file)].map(|path| path.display().to_string()).join(", ");
        let home = home.display();
        let sentence = format!("none of {paths} exists: CUDAGAUSSBLUR_MODELS={home} {script} downloads it");
        assert_refused(name, None, NotFound, &sentence);
    }
    // SAFETY: this is the only test of the program, and no stream runs, so that no other thread reads the environment.
    unsafe { std::env::set_var("CUDAGAUSSBLUR_MODELS", folder) };
    let [whole, square] =
        ["selfie_segmentation_landscape.tflite", "selfie_segmentation.tflite"].map(|name| folder.join(name));
    let write = |path: &PathBuf, model: &Model| std::fs::write(path, model.file()).unwrap();
    let unusable = |path: &Path, reason: &str| format!("{} cannot be used as the model: {reason}", path.display());
    for (name, file, script) in elements {
        let path = folder.join(file);
        let missing = |path: &Path, cure: &str| format!("{} does not exist: {cure}", path.display());
        assert_refused(name, None, NotFound, &missing(&path, &format!("run {script}")));
        // An empty property is an unset one.
        assert_refused(name, Some(Path::new("")), NotFound, &missing(&path, &format!("run {script}")));
        let other = folder.join("other");
        assert_refused(name, Some(&other), NotFound, &missing(&other, "check the property model"));
        let format = if name == "centerface" { "ONNX" } else { "TensorFlow Lite" };
        let damaged = format!("it is no {format} file, or a damaged one");
        for content in [&b""[..], b"words", &model().file()[..100]] {
            std::fs::write(&path, content).unwrap();
            let (kind, sentence) = match (name, content) {
                // An ONNX file without outputs.
                ("centerface", b"") => (OpenRead, unusable(&path, "it has fewer than three outputs")),
                _ => (OpenRead, unusable(&path, &damaged)),
            };
            assert_refused(name, None, kind, &sentence);
            assert_refused(name, Some(&path), kind, &sentence);
        }
    }
    let refused = |change: fn(&mut Model), reason: &str| {
        let mut model = model();
        change(&mut model);
        write(&whole, &model);
        assert_refused("selfiesegmentation", None, OpenRead, &unusable(&whole, reason));
    };
    refused(|model| model.operation("t9").code = 2, "operator t9: this operator is not supported");
    let no_mask = "its output is not a mask of its picture's size";
    // Of half the size, of sixteen channels, of a batch of two pictures, of a picture that is very large.
    refused(|model| model.operations.truncate(11), no_mask);
    refused(|model| model.operations.truncate(2), no_mask);
    refused(|model| model.tensor("picture").dims[0] = 2, no_mask);
    refused(
        |model| {
            for (name, height) in [("picture", 8192), ("t10", 8192), ("t0", 4096), ("t8", 4096)] {
                model.tensor(name).dims[1] = height;
            }
            ["t1", "t9"].iter().for_each(|name| model.tensor(name).dims[1] = 4096);
            ["t2", "t3", "t7"].iter().for_each(|name| model.tensor(name).dims[1] = 2048);
            model.tensor("mask").dims[1] = 8192;
        },
        no_mask,
    );
    // The model for boxes is looked for in the folder only.
    write(&whole, &model());
    let missing = format!("{} does not exist: run scripts/models people", square.display());
    assert_refused("selfiesegmentation", None, NotFound, &missing);
    assert_refused("selfiesegmentation", Some(&whole), NotFound, &missing);
    std::fs::write(&square, "words").unwrap();
    let damaged = unusable(&square, "it is no TensorFlow Lite file, or a damaged one");
    assert_refused("selfiesegmentation", None, OpenRead, &damaged);
    write(&square, &model());
    assert_eq!(pushed(), (Ok(gst::FlowSuccess::Ok), vec![]));
    // A model whose answer is no number.
    let mut broken = model();
    broken.tensor("e").bytes = f32::NAN.to_le_bytes().to_vec();
    write(&whole, &broken);
    let failed = "the model failed: its answer has values that are no numbers".to_owned();
    assert_eq!(pushed(), (Err(gst::FlowError::Error), vec![failed]));
}
