// SPDX-License-Identifier: MPL-2.0
//! Compiled kernels on disk, so that the next process need not compile them again.
//!
//! A file is named by the digest of all that its image was made from, and holds that digest, the digest of the image, and
//! the image. What does not fit together is as good as absent. Files appear whole, by a rename, so that two processes may
//! write at once. Nothing here is an error for the caller: without the folder everything is compiled.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use sha2::{Digest, Sha256};

use super::log::{Level, log};

/// Names the folder, in place of the usual one; `off` or nothing for none.
pub const FOLDER_VARIABLE: &str = "CUDAGAUSSBLUR_CACHE";
const MAGIC: &[u8] = b"cudagaussblur kernel 1\n";
const EXTENSION: &str = "kernel";
const DIGEST: usize = 32;
/// A kernel takes about 40 kB. The oldest files go when there are more, or more bytes.
const MOST_FILES: usize = 256;
const MOST_BYTES: u64 = 32 << 20;

/// What an image is made from, as a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key([u8; DIGEST]);

impl Key {
    /// Of all these parts, in order.
    pub fn of<'a>(parts: impl IntoIterator<Item = &'a str>) -> Self {
        let mut digest = Sha256::new();
        for part in parts {
            digest.update((part.len() as u64).to_le_bytes());
            digest.update(part);
        }
        Self(digest.finalize().into())
    }

    fn file(&self, folder: &Path) -> PathBuf {
        let name: String = self.0[..16].iter().map(|byte| format!("{byte:02x}")).collect();
        folder.join(name).with_extension(EXTENSION)
    }
}

/// The folder, if there is to be one: the variable's, else `cudagaussblur` among the user's cached files.
pub fn folder() -> Option<PathBuf> {
    match std::env::var_os(FOLDER_VARIABLE) {
        Some(folder) if folder.is_empty() || folder == "off" => None,
        Some(folder) => Some(folder.into()),
        None => {
            let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
            let home = || std::env::var_os("HOME").map(|home| Path::new(&home).join(".cache"));
            Some(cache.or_else(home)?.join("cudagaussblur"))
        }
    }
}

/// The image made from `key`, if it is there and whole.
pub fn read(folder: &Path, key: &Key) -> Option<Vec<u8>> {
    let file = key.file(folder);
    let bytes = fs::read(&file).ok()?;
    let image = whole(&bytes, key);
    if image.is_none() {
        log(Level::Info, &format!("{} is damaged or not of this plugin; it is made again", file.display()));
    }
    image.map(<[u8]>::to_vec)
}

fn whole<'a>(bytes: &'a [u8], key: &Key) -> Option<&'a [u8]> {
    let (theirs, rest) = bytes.strip_prefix(MAGIC)?.split_at_checked(DIGEST)?;
    let (digest, image) = rest.split_at_checked(DIGEST)?;
    (theirs == key.0 && digest == Sha256::digest(image).as_slice()).then_some(image)
}

/// Keeps an image, and drops the oldest where there are too many.
pub fn write(folder: &Path, key: &Key, image: &[u8]) {
    let file = key.file(folder);
    // One name a process and image: two threads never write the same one.
    let unfinished = file.with_extension(format!("{}.unfinished", std::process::id()));
    let bytes = [MAGIC, &key.0, Sha256::digest(image).as_slice(), image].concat();
    let written = fs::create_dir_all(folder)
        .and_then(|()| fs::write(&unfinished, bytes))
        .and_then(|()| fs::rename(&unfinished, &file))
        .and_then(|()| trim(folder));
    if let Err(error) = written {
        let _ = fs::remove_file(&unfinished);
        log(Level::Info, &format!("compiled kernels are not kept in {}: {error}", folder.display()));
    }
}

fn trim(folder: &Path) -> std::io::Result<()> {
    let mut files: Vec<(SystemTime, u64, PathBuf)> = fs::read_dir(folder)?
        .filter_map(Result::ok)
        .filter(|entry| entry.path().extension().is_some_and(|extension| extension == EXTENSION))
        .filter_map(|entry| {
            let metadata = entry.metadata().ok()?;
            Some((metadata.modified().ok()?, metadata.len(), entry.path()))
        })
        .collect();
    // Newest first.
    files.sort_by(|a, b| b.cmp(a));
    let mut bytes = 0;
    for (i, (_, len, path)) in files.iter().enumerate() {
        bytes += len;
        if i >= MOST_FILES || bytes > MOST_BYTES {
            // Another process may have been faster.
            let _ = fs::remove_file(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder of its own, removed at the end.
    struct Folder(PathBuf);

    impl Folder {
        fn new(name: &str) -> Self {
            let folder = std::env::temp_dir().join(format!("cudagaussblur-{name}-{}", std::process::id()));
            let _ = fs::remove_dir_all(&folder);
            Self(folder)
        }

        fn files(&self) -> Vec<PathBuf> {
            fs::read_dir(&self.0).map_or(Vec::new(), |files| files.map(|file| file.unwrap().path()).collect())
        }
    }

    impl Drop for Folder {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn what_is_written_is_read_by_its_key_alone() {
        let folder = Folder::new("disk");
        let (key, other) = (Key::of(["source", "sm_90"]), Key::of(["source", "sm_80"]));
        assert_eq!(read(&folder.0, &key), None);
        write(&folder.0, &key, b"an image");
        assert_eq!(read(&folder.0, &key).as_deref(), Some(&b"an image"[..]));
        assert_eq!(read(&folder.0, &other), None);
        assert_eq!(folder.files().len(), 1, "an unfinished file is left");
        assert_ne!(Key::of(["ab", "c"]), Key::of(["a", "bc"]));
    }

    #[test]
    fn a_file_that_is_damaged_or_of_another_is_not_read() {
        let folder = Folder::new("damage");
        let (key, other) = (Key::of(["1"]), Key::of(["2"]));
        write(&folder.0, &key, b"an image");
        let good = fs::read(key.file(&folder.0)).unwrap();
        for length in 0..good.len() {
            fs::write(key.file(&folder.0), &good[..length]).unwrap();
            assert_eq!(read(&folder.0, &key), None, "cut to {length}");
        }
        for i in 0..good.len() {
            let mut altered = good.clone();
            altered[i] ^= 1;
            fs::write(key.file(&folder.0), &altered).unwrap();
            assert_eq!(read(&folder.0, &key), None, "byte {i} altered");
        }
        fs::write(other.file(&folder.0), &good).unwrap();
        assert_eq!(read(&folder.0, &other), None, "a file under another's name");
    }

    #[test]
    fn a_folder_that_cannot_be_written_is_no_error() {
        let folder = Folder::new("blocked");
        // A file where the folder should be: also for root.
        fs::write(&folder.0, b"").unwrap();
        let key = Key::of(["1"]);
        write(&folder.0, &key, b"an image");
        assert_eq!(read(&folder.0, &key), None);
        fs::remove_file(&folder.0).unwrap();
    }

    #[test]
    fn it_does_not_grow_for_ever() {
        let folder = Folder::new("bounded");
        for i in 0..MOST_FILES + 20 {
            write(&folder.0, &Key::of([i.to_string().as_str()]), &[0; 100]);
        }
        assert_eq!(folder.files().len(), MOST_FILES);
        write(&folder.0, &Key::of(["large"]), &vec![0; MOST_BYTES as usize]);
        assert!(folder.files().len() <= 1, "more than the most bytes");
    }

    #[test]
    fn many_writers_at_once_leave_whole_files() {
        let folder = Folder::new("at-once");
        let key = Key::of(["same"]);
        let image = vec![7; 100_000];
        write(&folder.0, &key, &image);
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..50 {
                        assert!(read(&folder.0, &key).is_some_and(|read| read == image));
                    }
                });
            }
            scope.spawn(|| (0..50).for_each(|_| write(&folder.0, &key, &image)));
        });
    }
}
