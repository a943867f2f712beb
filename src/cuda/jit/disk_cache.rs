// SPDX-License-Identifier: MPL-2.0
//! The disk cache: compiled kernels in files, so that the next process need not compile them again.
//!
//! A file is named after the digest of everything that its image was compiled from. It contains that digest, the digest of the
//! image, and the image; a file that does not match is ignored. Files are renamed into place when they are complete, so several
//! processes can write at once. No failure here is an error for the caller: a kernel that is not cached is compiled.
//!
//! A kernel runs with the rights of the process that loads it, and a digest proves that a file is complete, not who wrote it.
//! Therefore the folder and its files must belong to the user, and nobody else may have write permission.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, SystemTime};

use crate::process::{Level, log};
use etcetera::BaseStrategy;
use sha2::{Digest, Sha256};

/// The environment variable with the folder, instead of the usual one; `off` or an empty value disables the cache.
pub const FOLDER_VARIABLE: &str = "CUDAGAUSSBLUR_CACHE";
const MAGIC: &[u8] = b"cudagaussblur kernel 1\n";
const EXTENSION: &str = "kernel";
const UNFINISHED: &str = "unfinished";
const DIGEST_BYTES: usize = 32;
/// A kernel takes about 40 kB. Beyond either limit the least recently used kernels are removed.
const MAX_FILES: usize = 256;
const MAX_BYTES: u64 = 32 << 20;
/// A larger file is not a kernel.
const MAX_IMAGE_BYTES: usize = 4 << 20;
/// An unfinished file that is older was left behind by a process that was killed.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);

/// The digest of everything that an image is compiled from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Key([u8; DIGEST_BYTES]);

impl Key {
    /// The digest of these parts, in order.
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

/// The folder: the variable's value, else `cudagaussblur` in the user's cache directory (`$XDG_CACHE_HOME` or `~/.cache`; on
/// Windows `%LOCALAPPDATA%`). `None` if the cache is disabled.
pub fn folder() -> Option<PathBuf> {
    let folder = match std::env::var_os(FOLDER_VARIABLE) {
        Some(folder) if folder.is_empty() || folder == "off" => return None,
        Some(folder) => folder.into(),
        None => etcetera::choose_base_strategy().ok()?.cache_dir().join("cudagaussblur"),
    };
    if folder.is_relative() {
        let name = folder.display();
        let line =
            format!("compiled kernels are not cached: {name} is not an absolute path; set {FOLDER_VARIABLE} to one");
        log(Level::Info, &line);
        return None;
    }
    Some(folder)
}

/// The image for `key`, if its file exists and is intact.
pub fn read(folder: &Path, key: &Key) -> Option<Vec<u8>> {
    let path = key.file(folder);
    match read_file(folder, &path) {
        Ok(bytes) => {
            let image = intact(&bytes, key);
            if image.is_none() {
                let line = format!("{} is damaged or not from this plugin; compiling the kernel again", path.display());
                log(Level::Info, &line);
            }
            image.map(<[u8]>::to_vec)
        }
        Err(error) => {
            if error.kind() != std::io::ErrorKind::NotFound {
                log(Level::Info, &format!("{} cannot be read: {error}", path.display()));
            }
            None
        }
    }
}

/// Reads a file of the folder and sets its modification time to now, by which the least recently used file is found.
fn read_file(folder: &Path, path: &Path) -> std::io::Result<Vec<u8>> {
    check_folder(folder)?;
    let file = open(path)?;
    let metadata = file.metadata()?;
    check_owner(path, &metadata)?;
    if !metadata.is_file() || metadata.len() > (MAGIC.len() + 2 * DIGEST_BYTES + MAX_IMAGE_BYTES) as u64 {
        return Err(std::io::Error::other("not a regular file of the size of a kernel"));
    }
    let mut bytes = Vec::new();
    (&file).take(metadata.len()).read_to_end(&mut bytes)?;
    // If this fails, the file is only evicted earlier.
    let _ = file.set_modified(SystemTime::now());
    Ok(bytes)
}

/// Opens a file for reading and for setting its times, without following a symbolic link or waiting for the writer of a pipe.
/// On Windows nobody else can create either in the user's folder.
fn open(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        options.custom_flags(flags.bits().cast_signed());
    }
    #[cfg(windows)]
    {
        const GENERIC_READ: u32 = 1 << 31;
        const FILE_WRITE_ATTRIBUTES: u32 = 1 << 8;
        std::os::windows::fs::OpenOptionsExt::access_mode(&mut options, GENERIC_READ | FILE_WRITE_ATTRIBUTES);
    }
    options.open(path)
}

/// Fails unless this is a directory, not a symbolic link to one, that only the user can write. Warns once in a process,
/// because every kernel is then compiled again.
fn check_folder(folder: &Path) -> std::io::Result<()> {
    static WARNED: Once = Once::new();
    let metadata = fs::symlink_metadata(folder)?;
    let checked = if metadata.is_dir() {
        check_owner(folder, &metadata)
    } else {
        Err(std::io::Error::other(format!("{} is not a directory; set {FOLDER_VARIABLE} to one", folder.display())))
    };
    checked.inspect_err(|error| {
        WARNED.call_once(|| log(Level::Warning, &format!("compiled kernels are not cached: {error}")));
    })
}

/// Fails if the file belongs to another user, or other users have write permission.
#[cfg(unix)]
fn check_owner(path: &Path, metadata: &fs::Metadata) -> std::io::Result<()> {
    use std::os::unix::fs::MetadataExt;
    let (owner, user, mode) = (metadata.uid(), rustix::process::geteuid().as_raw(), metadata.mode() & 0o7777);
    let path = path.display();
    if owner != user {
        let why = format!(
            "{path} belongs to user {owner}, but this process runs as user {user}; set {FOLDER_VARIABLE} to another folder"
        );
        return Err(std::io::Error::other(why));
    }
    if mode & 0o022 != 0 {
        return Err(std::io::Error::other(format!("others may write {path} (mode {mode:o}); run chmod go-w {path}")));
    }
    Ok(())
}

/// Other systems protect the user's folders with access control lists.
#[cfg(not(unix))]
fn check_owner(_: &Path, _: &fs::Metadata) -> std::io::Result<()> {
    Ok(())
}

fn intact<'a>(bytes: &'a [u8], key: &Key) -> Option<&'a [u8]> {
    let (theirs, rest) = bytes.strip_prefix(MAGIC)?.split_at_checked(DIGEST_BYTES)?;
    let (digest, image) = rest.split_at_checked(DIGEST_BYTES)?;
    (theirs == key.0 && digest == Sha256::digest(image).as_slice()).then_some(image)
}

/// Writes an image, and removes the least recently used ones beyond the limits.
pub fn write(folder: &Path, key: &Key, image: &[u8]) {
    if let Err(error) = write_file(folder, key, image).and_then(|()| trim(folder)) {
        log(Level::Info, &format!("compiled kernels are not kept in {}: {error}", folder.display()));
    }
}

fn write_file(folder: &Path, key: &Key, image: &[u8]) -> std::io::Result<()> {
    if image.len() > MAX_IMAGE_BYTES {
        return Err(std::io::Error::other(format!("{} bytes are more than the largest kernel", image.len())));
    }
    make_folder(folder)?;
    check_folder(folder)?;
    // Created with O_EXCL, a random name and mode 600; removed on drop unless persisted.
    let mut file = tempfile::Builder::new().suffix(&format!(".{UNFINISHED}")).tempfile_in(folder)?;
    for part in [MAGIC, &key.0, Sha256::digest(image).as_slice(), image] {
        file.write_all(part)?;
    }
    file.persist(key.file(folder))?;
    Ok(())
}

/// Creates the folder and its parents, with mode 700.
fn make_folder(folder: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

/// Removes the least recently used kernels beyond the limits, and unfinished files of killed processes.
fn trim(folder: &Path) -> std::io::Result<()> {
    let mut kernels: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
    for entry in fs::read_dir(folder)?.filter_map(Result::ok) {
        let path = entry.path();
        let Ok(metadata) = entry.metadata() else { continue };
        let Ok(modified) = metadata.modified() else { continue };
        let extension = path.extension().and_then(std::ffi::OsStr::to_str);
        if extension == Some(EXTENSION) {
            kernels.push((modified, metadata.len(), path));
        } else if extension == Some(UNFINISHED) && modified.elapsed().is_ok_and(|age| age > ABANDONED_AFTER) {
            // Another process may have removed it already, here and below.
            let _ = fs::remove_file(path);
        }
    }
    // Newest first.
    kernels.sort_by(|a, b| b.cmp(a));
    let mut bytes = 0;
    for (i, (_, len, path)) in kernels.iter().enumerate() {
        bytes += len;
        if i >= MAX_FILES || bytes > MAX_BYTES {
            let _ = fs::remove_file(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that the first write creates and that is removed on drop.
    struct Folder(PathBuf, #[expect(dead_code, reason = "removes it")] tempfile::TempDir);

    impl Folder {
        fn new() -> Self {
            let around = tempfile::tempdir().unwrap();
            Self(around.path().join("kernels"), around)
        }

        fn files(&self) -> Vec<PathBuf> {
            fs::read_dir(&self.0).map_or(Vec::new(), |files| files.map(|file| file.unwrap().path()).collect())
        }
    }

    #[test]
    fn an_image_is_read_by_its_own_key_only() {
        let folder = Folder::new();
        let (key, other) = (Key::of(["source", "sm_90"]), Key::of(["source", "sm_80"]));
        assert_eq!(read(&folder.0, &key), None);
        write(&folder.0, &key, b"an image");
        assert_eq!(read(&folder.0, &key).as_deref(), Some(&b"an image"[..]));
        assert_eq!(read(&folder.0, &other), None);
        assert_eq!(folder.files().len(), 1, "an unfinished file is left");
        assert_ne!(Key::of(["ab", "c"]), Key::of(["a", "bc"]));
    }

    #[test]
    fn a_damaged_file_is_not_read() {
        let folder = Folder::new();
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
        let folder = Folder::new();
        // A file where the folder should be: also for root.
        fs::write(&folder.0, b"").unwrap();
        let key = Key::of(["1"]);
        write(&folder.0, &key, b"an image");
        assert_eq!(read(&folder.0, &key), None);
    }

    #[test]
    fn the_cache_has_limits() {
        let folder = Folder::new();
        for i in 0..MAX_FILES + 20 {
            write(&folder.0, &Key::of([i.to_string().as_str()]), &[0; 100]);
        }
        assert_eq!(folder.files().len(), MAX_FILES);
        for i in 0..10 {
            write(&folder.0, &Key::of([format!("large {i}").as_str()]), &vec![0; MAX_IMAGE_BYTES]);
        }
        let bytes: u64 = folder.files().iter().map(|file| file.metadata().unwrap().len()).sum();
        assert!(bytes <= MAX_BYTES, "{bytes} bytes");
    }

    #[test]
    fn the_least_recently_used_kernel_is_evicted() {
        let folder = Folder::new();
        let keys: Vec<Key> = (0..MAX_FILES).map(|i| Key::of([i.to_string().as_str()])).collect();
        let long_ago = SystemTime::now() - Duration::from_secs(1 << 20);
        for (age, key) in keys.iter().enumerate() {
            write(&folder.0, key, b"an image");
            let file = open(&key.file(&folder.0)).unwrap();
            file.set_modified(long_ago + Duration::from_secs(age as u64)).unwrap();
        }
        assert!(read(&folder.0, &keys[0]).is_some());
        write(&folder.0, &Key::of(["one more"]), b"an image");
        assert!(read(&folder.0, &keys[0]).is_some(), "the most recently used kernel was evicted");
        assert!(read(&folder.0, &keys[1]).is_none(), "the least recently used kernel is still there");
    }

    #[test]
    fn oversized_images_are_neither_read_nor_written() {
        let (folder, key) = (Folder::new(), Key::of(["1"]));
        write(&folder.0, &key, &vec![0; MAX_IMAGE_BYTES + 1]);
        assert_eq!(folder.files().len(), 0);
        write(&folder.0, &key, b"an image");
        // Larger than any memory.
        File::options().write(true).open(key.file(&folder.0)).unwrap().set_len(1 << 42).unwrap();
        assert_eq!(read(&folder.0, &key), None);
    }

    #[test]
    fn unfinished_files_are_removed_after_an_hour() {
        let (folder, key) = (Folder::new(), Key::of(["1"]));
        write(&folder.0, &key, b"an image");
        let [old, new] = ["old", "new"].map(|name| {
            let path = folder.0.join(name).with_extension(UNFINISHED);
            (File::create(&path).unwrap(), path)
        });
        old.0.set_modified(SystemTime::now() - ABANDONED_AFTER - Duration::from_secs(60)).unwrap();
        write(&folder.0, &key, b"an image");
        assert!(!old.1.exists() && new.1.exists(), "{:?}", folder.files());
    }

    #[cfg(unix)]
    #[test]
    fn symbolic_links_and_pipes_are_not_followed() {
        use std::os::unix::fs::symlink;
        let (folder, key) = (Folder::new(), Key::of(["1"]));
        write(&folder.0, &key, b"an image");
        let file = key.file(&folder.0);
        let elsewhere = folder.0.join("elsewhere");
        fs::rename(&file, &elsewhere).unwrap();
        symlink(&elsewhere, &file).unwrap();
        assert_eq!(read(&folder.0, &key), None, "read through a link");
        let link = folder.0.with_file_name("link");
        symlink(&folder.0, &link).unwrap();
        write(&link, &Key::of(["2"]), b"an image");
        assert_eq!(folder.files().len(), 2, "written into the folder behind a link");

        // A temporary name that an attacker could guess, if it consisted of the key and the process ID.
        let guessed = file.with_extension(format!("{}.{UNFINISHED}", std::process::id()));
        symlink(&elsewhere, &guessed).unwrap();
        let before = fs::read(&elsewhere).unwrap();
        write(&folder.0, &key, b"another image");
        assert!(fs::read(&elsewhere).unwrap() == before, "written through a link");
        assert_eq!(read(&folder.0, &key).as_deref(), Some(&b"another image"[..]));

        fs::remove_file(&file).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, &file, rustix::fs::FileType::Fifo, rustix::fs::Mode::RWXU, 0).unwrap();
        let (sender, receiver) = std::sync::mpsc::channel();
        let path = folder.0.clone();
        std::thread::spawn(move || sender.send(read(&path, &key)));
        let answer = receiver.recv_timeout(Duration::from_secs(20));
        assert_eq!(answer, Ok(None), "it waits for the writer of a pipe");
    }

    #[cfg(unix)]
    #[test]
    fn only_the_users_own_folder_is_used() {
        use std::os::unix::fs::{MetadataExt, PermissionsExt, chown};
        let (folder, key) = (Folder::new(), Key::of(["1"]));
        write(&folder.0, &key, b"an image");
        let mode = |path: &Path| fs::metadata(path).unwrap().mode() & 0o777;
        assert_eq!((mode(&folder.0), mode(&key.file(&folder.0))), (0o700, 0o600));
        let unused = |why: &str| {
            assert_eq!(read(&folder.0, &key), None, "read: {why}");
            write(&folder.0, &Key::of(["2"]), b"an image");
            assert_eq!(folder.files().len(), 1, "written: {why}");
        };
        for mode in [0o770, 0o707, 0o1777] {
            fs::set_permissions(&folder.0, PermissionsExt::from_mode(mode)).unwrap();
            unused(&format!("mode {mode:o}"));
        }
        fs::set_permissions(&folder.0, PermissionsExt::from_mode(0o755)).unwrap();
        assert!(read(&folder.0, &key).is_some());
        fs::set_permissions(key.file(&folder.0), PermissionsExt::from_mode(0o666)).unwrap();
        assert_eq!(read(&folder.0, &key), None, "a file that others may write");
        fs::set_permissions(key.file(&folder.0), PermissionsExt::from_mode(0o600)).unwrap();
        if !rustix::process::geteuid().is_root() {
            return;
        }
        // Only root can change the owner, and only to a user of its namespace.
        if chown(key.file(&folder.0), Some(12345), None).is_err() {
            return;
        }
        assert_eq!(read(&folder.0, &key), None, "a file of another user");
        chown(key.file(&folder.0), Some(0), None).unwrap();
        chown(&folder.0, Some(12345), None).unwrap();
        unused("a folder of another user");
    }

    /// Set in a child process of this test, which prints its folder.
    const CHILD: &str = "CUDAGAUSSBLUR_TEST_CHILD";

    /// Environment variables and their values; `None` for a variable that is not set.
    type Environment<'a> = &'a [(&'a str, Option<&'a str>)];

    /// The folder in a process with this environment.
    fn folder_with(environment: Environment) -> String {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "cuda::jit::disk_cache::tests::the_folder_is_absolute_or_none", "--nocapture"])
            .env(CHILD, "1");
        for (name, value) in environment {
            match value {
                Some(value) => command.env(name, value),
                None => command.env_remove(name),
            };
        }
        let printed = String::from_utf8(command.output().unwrap().stdout).unwrap();
        let line = printed.lines().find_map(|line| line.split_once("folder: "));
        line.unwrap_or_else(|| panic!("{printed}")).1.to_owned()
    }

    #[test]
    fn the_folder_is_absolute_or_none() {
        if std::env::var_os(CHILD).is_some() {
            println!("folder: {:?}", folder());
            return;
        }
        const OWN: &str = FOLDER_VARIABLE;
        const HOME: &str = "HOME";
        const XDG: &str = "XDG_CACHE_HOME";
        #[cfg(not(windows))]
        let table: [(Environment, &str); 8] = [
            (&[(OWN, None), (XDG, None), (HOME, Some("/home/u"))], "Some(\"/home/u/.cache/cudagaussblur\")"),
            (&[(OWN, None), (XDG, Some("/x")), (HOME, Some("/home/u"))], "Some(\"/x/cudagaussblur\")"),
            (&[(OWN, None), (XDG, Some("x")), (HOME, Some("/home/u"))], "Some(\"/home/u/.cache/cudagaussblur\")"),
            (&[(OWN, None), (XDG, None), (HOME, Some("u"))], "None"),
            (&[(OWN, None), (XDG, Some("")), (HOME, Some("."))], "None"),
            (&[(OWN, Some("kernels")), (HOME, Some("/home/u"))], "None"),
            (&[(OWN, Some("off")), (HOME, Some("/home/u"))], "None"),
            (&[(OWN, Some("/k")), (HOME, Some("u"))], "Some(\"/k\")"),
        ];
        #[cfg(windows)]
        let table: [(Environment, &str); 5] = [
            (&[(OWN, None), ("LOCALAPPDATA", Some(r"D:\l"))], r#"Some("D:\\l\\cudagaussblur")"#),
            (&[(OWN, None), ("LOCALAPPDATA", Some("l"))], "None"),
            // Of the current drive.
            (&[(OWN, Some(r"\k"))], "None"),
            (&[(OWN, Some("off"))], "None"),
            (&[(OWN, Some(r"D:\k"))], r#"Some("D:\\k")"#),
        ];
        for (environment, expected) in table {
            assert_eq!(folder_with(environment), expected, "{environment:?}");
        }
        // With an empty HOME the home directory may come from the user database, as that of Windows does.
        let empty = folder_with(&[(OWN, None), (XDG, None), (HOME, Some(""))]);
        assert!(empty == "None" || empty.starts_with("Some(\"/") || cfg!(windows), "{empty}");
    }

    #[test]
    fn concurrent_writers_leave_intact_files() {
        let folder = Folder::new();
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
