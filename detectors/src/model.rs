// SPDX-License-Identifier: MPL-2.0
//! Finds the model of CenterFace, and opens it.

use std::path::{Path, PathBuf};

use gst::glib;

use crate::{
    kernels::Instructions,
    network::{Network, Shape},
    onnx,
    run::Runner,
};

/// The file name of the model.
const MODEL: &str = "centerface.onnx";

/// The model's file: that of the property, else the first one in the folders. `Err` names them if there is none.
pub fn find(property: Option<String>) -> Result<PathBuf, String> {
    if let Some(path) = property.filter(|path| !path.is_empty()).map(PathBuf::from) {
        return if path.exists() {
            Ok(path)
        } else {
            Err(format!("{} does not exist: check the property model", path.display()))
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
    let paths: Vec<_> = folders.into_iter().map(|folder| folder.join(MODEL)).collect();
    if let Some(found) = paths.iter().find(|path| path.exists()) {
        return Ok(found.clone());
    }
    Err(match &paths[..] {
        [path] => format!("{} does not exist: run scripts/models", path.display()),
        _ => {
            let paths: Vec<_> = paths.iter().map(|path| path.display().to_string()).collect();
            let folder = glib::user_data_dir().join("cudagaussblur/models");
            let paths = paths.join(", ");
            format!("none of {paths} exists: CUDAGAUSSBLUR_MODELS={} scripts/models downloads it", folder.display())
        }
    })
}

/// Reads the network of a file. `Err` says why it is not CenterFace.
pub fn open(path: &Path, instructions: Instructions, threads: usize) -> Result<Runner, String> {
    let bytes = std::fs::read(path).map_err(|error| error.to_string())?;
    let graph = onnx::graph(&bytes).ok_or("it is no ONNX file, or a damaged one")?;
    let network = Network::new(&graph, graph.outputs.get(..3).ok_or("it has fewer than three outputs")?)?;
    // Confidence, size and offset for each of 4x4 pixels.
    let expected = [1, 2, 2].map(|channels| Shape { channels, halved: 2 });
    if network.outputs.iter().map(|plane| network.planes[*plane]).ne(expected) {
        return Err("its outputs are not those of CenterFace".into());
    }
    Runner::new(network, instructions, threads)
}
