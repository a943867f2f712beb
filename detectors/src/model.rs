// SPDX-License-Identifier: MPL-2.0
//! Finds the files of models, and opens them.

use std::path::{Path, PathBuf};

use gst::glib;

use crate::{
    kernels::Instructions,
    network::{Network, Shape},
    onnx,
    run::Runner,
    tflite,
};

/// The longest side of a picture that a file may request, and the largest number of values in all planes.
const MOST_SIDE: usize = 4096;
const MOST_VALUES: usize = 1 << 26;

/// The file of a model: the file that the property names, or else the first file with this name in the search folders. If there
/// is none, `Err` names the folders and the script that downloads the model.
pub fn find(property: Option<String>, name: &str, script: &str) -> Result<PathBuf, String> {
    if let Some(path) = property.filter(|path| !path.is_empty()).map(PathBuf::from) {
        return if path.is_file() {
            Ok(path)
        } else {
            let what = if path.exists() { "is no file" } else { "does not exist" };
            Err(format!("{} {what}: check the property model", path.display()))
        };
    }
    let folders = match std::env::var_os("CUDAGAUSSBLUR_MODELS") {
        Some(folder) if !folder.is_empty() => vec![PathBuf::from(folder)],
        _ => {
            let plugin = gst::Registry::get().find_plugin("detectors").and_then(|plugin| plugin.filename());
            let beside = plugin.and_then(|file| Some(file.parent()?.parent()?.join("models")));
            let data = std::iter::once(glib::user_data_dir()).chain(glib::system_data_dirs());
            beside.into_iter().chain(data.map(|folder| folder.join("cudagaussblur/models"))).collect()
        }
    };
    let paths: Vec<_> = folders.into_iter().map(|folder| folder.join(name)).collect();
    if let Some(found) = paths.iter().find(|path| path.exists()) {
        return Ok(found.clone());
    }
    Err(match &paths[..] {
        [path] => format!("{} does not exist: run {script}", path.display()),
        _ => {
            let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            let folder = glib::user_data_dir().join("cudagaussblur/models");
            let paths = paths.join(", ");
            format!("none of {paths} exists: CUDAGAUSSBLUR_MODELS={} {script} downloads it", folder.display())
        }
    })
}

/// Reads a network from a file. `Err` says why it is not CenterFace.
pub fn centerface(path: &Path, instructions: Instructions, threads: usize) -> Result<Runner, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    let graph = onnx::graph(&bytes).ok_or("it is no ONNX file, or a damaged one")?;
    let network = Network::new(&graph, graph.outputs.get(..3).ok_or("it has fewer than three outputs")?)?;
    // Confidence, size and offset for each cell of 4x4 pixels.
    let expected = [1, 2, 2].map(|channels| Shape { channels, halved: Some(2) });
    if network.outputs.iter().map(|plane| network.planes[*plane]).ne(expected) {
        return Err("its outputs are not those of CenterFace".into());
    }
    Runner::new(network, instructions, threads)
}

/// Reads a network from a file. Its output is the confidence of each pixel before the sigmoid. `Err` says why the network is not
/// a segmentation.
pub fn segmentation(path: &Path, instructions: Instructions, threads: usize) -> Result<Runner, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    let graph = tflite::graph(&bytes).ok_or("it is no TensorFlow Lite file, or a damaged one")?;
    let network = Network::new(&graph, &graph.outputs)?;
    let expected = [Shape { channels: 1, halved: Some(0) }];
    let is_size = |side: usize| side > 0 && side <= MOST_SIDE && side.is_multiple_of(network.multiple());
    if network.outputs.iter().map(|plane| network.planes[*plane]).ne(expected)
        || !network.size.is_some_and(|size| size.into_iter().all(is_size))
    {
        return Err("its output is not a mask of its picture's size".into());
    }
    let [width, height] = network.size.unwrap_or_default();
    let pixels = |halved: Option<u32>| halved.map_or(1, |halved| (width >> halved) * (height >> halved));
    if network.planes.iter().map(|plane| plane.channels * pixels(plane.halved)).sum::<usize>() > MOST_VALUES {
        return Err("its planes are too large".into());
    }
    Runner::new(network, instructions, threads)
}
