//! What a user of `centerface` reads, which the plugin file says that cargo has built for the tests; the packaged crate has none.

use std::path::Path;

use super::examples::{Workspace, has_detectors, models};

/// What a user reads who lacks the model, has another file in its place, or has it in a data folder of the system.
#[test]
fn the_model_is_found_or_the_message_says_what_to_do() {
    if !has_detectors() {
        return;
    }
    let workspace = Workspace::new("centerface");
    let launch = "gst-launch-1.0 -q videotestsrc num-buffers=1 ! centerface";
    let says = |line: &str, expected: &str| {
        let stderr = workspace.stderr(line);
        let expected = expected.replace("$PWD", workspace.0.to_str().unwrap());
        assert!(stderr.contains(&expected), "{line}\n{expected}\nbut {stderr}");
    };
    workspace.write("other", "no model");
    says(&format!("{launch} model=none ! fakesink"), "none does not exist: check the property model\n");
    says(&format!("{launch} model=other ! fakesink"), "other cannot be used as the model: ");
    says(
        &format!("CUDAGAUSSBLUR_MODELS=$PWD {launch} ! fakesink"),
        "$PWD/centerface.onnx does not exist: run scripts/models\n",
    );
    // The folder beside the plugin's is that of `installed`, which has no models.
    let data = "CUDAGAUSSBLUR_MODELS= XDG_DATA_HOME=$PWD/home XDG_DATA_DIRS=$PWD/one:$PWD/two";
    says(
        &format!("{data} {launch} ! fakesink"),
        "/models/centerface.onnx, $PWD/home/cudagaussblur/models/centerface.onnx, $PWD/one/cudagaussblur/models/centerface.onnx, \
         $PWD/two/cudagaussblur/models/centerface.onnx exists: CUDAGAUSSBLUR_MODELS=$PWD/home/cudagaussblur/models scripts/models \
         downloads it\n",
    );
    if Path::new(&models()).join("centerface.onnx").exists() {
        workspace.shell("mkdir -p two/cudagaussblur; ln -s \"$CUDAGAUSSBLUR_MODELS\" two/cudagaussblur/models");
        workspace.stdout(&format!("{data} {launch} ! fakesink"));
    }
}
