// SPDX-License-Identifier: MPL-2.0
//! The files that the demo writes: written aside, and renamed when all are complete, so that a run that fails leaves those of the
//! run before.

use std::fs;
use std::path::{Path, PathBuf};

use super::options::Options;

/// Dropping it deletes what was not published.
#[derive(Default)]
pub struct Results(Vec<PathBuf>);

impl Results {
    /// Adds a file. Returns its path until it is published.
    pub fn add(&mut self, options: &Options, name: &str, extension: &str) -> PathBuf {
        let prefix = if options.camera { "camera-" } else { "" };
        self.0.push(options.out.join(format!("{prefix}{name}.{extension}.part")));
        self.0[self.0.len() - 1].clone()
    }

    /// Gives the files their names. If a folder has one of them, none is renamed.
    pub fn publish(&mut self) -> Result<(), String> {
        if let Some(folder) = self.0.iter().map(|path| published(path)).find(|path| path.is_dir()) {
            return Err(format!("{} is a folder: rename it, or name another folder with --out", folder.display()));
        }
        while let Some(path) = self.0.last() {
            let name = published(path);
            fs::rename(path, &name).map_err(|error| format!("{} cannot be written: {error}", name.display()))?;
            self.0.pop();
        }
        Ok(())
    }
}

/// The path of a result after it is published.
pub fn published(path: &Path) -> PathBuf {
    path.with_extension("")
}

impl Drop for Results {
    fn drop(&mut self) {
        self.0.drain(..).for_each(|path| drop(fs::remove_file(path)));
    }
}
