// SPDX-License-Identifier: MPL-2.0
//! Compiled kernels on disk, so that the next process need not compile them again.
//!
//! A file is named by the digest of all that its image was made from, and holds that digest, the digest of the image, and
//! the image. What does not fit together is as good as absent. Files appear whole, by a rename, so that two processes may
//! write at once. Nothing here is an error for the caller: without the folder everything is compiled.
//!
//! A kernel runs with the rights of the process that loads it, and its digests prove that it is whole, not who wrote it. So
//! the folder and its files have to be the user's own, and nobody else may write there.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::sync::Once;
use std::time::{Duration, SystemTime};

use crate::log::{Level, log};
use etcetera::BaseStrategy;
use sha2::{Digest, Sha256};

/// Names the folder, in place of the usual one; `off` or nothing for none.
pub const FOLDER_VARIABLE: &str = "CUDAGAUSSBLUR_CACHE";
const MAGIC: &[u8] = b"cudagaussblur kernel 1\n";
const EXTENSION: &str = "kernel";
const UNFINISHED: &str = "unfinished";
const DIGEST: usize = 32;
/// A kernel takes about 40 kB. Those unused for longest go when there are more, or more bytes.
const MOST_FILES: usize = 256;
const MOST_BYTES: u64 = 32 << 20;
/// A larger file is not one of these kernels.
const MOST_IMAGE_BYTES: usize = 4 << 20;
/// An unfinished file that is older was left by a process that was killed.
const ABANDONED_AFTER: Duration = Duration::from_secs(3600);

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

/// The image made from `key`, if it is there and whole.
pub fn read(folder: &Path, key: &Key) -> Option<Vec<u8>> {
    let path = key.file(folder);
    match read_file(folder, &path) {
        Ok(bytes) => {
            let image = whole(&bytes, key);
            if image.is_none() {
                let line = format!("{} is damaged or not of this plugin; it is made again", path.display());
                log(Level::Info, &line);
            }
            image.map(<[u8]>::to_vec)
        }
        Err(error) => {
            if error.kind() != std::io::ErrorKind::NotFound {
                log(Level::Info, &format!("{} is not read: {error}", path.display()));
            }
            None
        }
    }
}

/// Reads a file of the folder, and sets its modification time to now: eviction goes by that.
fn read_file(folder: &Path, path: &Path) -> std::io::Result<Vec<u8>> {
    check_folder(folder)?;
    let file = open(path)?;
    let metadata = file.metadata()?;
    check_owner(path, &metadata)?;
    if !metadata.is_file() || metadata.len() > (MAGIC.len() + 2 * DIGEST + MOST_IMAGE_BYTES) as u64 {
        return Err(std::io::Error::other("not a regular file of a kernel's size"));
    }
    let mut bytes = Vec::new();
    (&file).take(metadata.len()).read_to_end(&mut bytes)?;
    // On failure the file is only evicted earlier.
    let _ = file.set_modified(SystemTime::now());
    Ok(bytes)
}

/// Opens a file for reading; does not follow a link, nor wait for the writer of a pipe.
fn open(path: &Path) -> std::io::Result<File> {
    let mut options = File::options();
    options.read(true);
    #[cfg(unix)]
    {
        use std::os::unix::fs::OpenOptionsExt;
        let flags = rustix::fs::OFlags::NOFOLLOW | rustix::fs::OFlags::NONBLOCK;
        options.custom_flags(flags.bits().cast_signed());
    }
    options.open(path)
}

/// Fails unless this is a directory, not a link to one, that only the user can write. Warns once a process, because every
/// kernel is then compiled anew.
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

/// Fails if the file belongs to another user, or other users may write it.
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

/// Other systems protect the user's folders by access control lists.
#[cfg(not(unix))]
fn check_owner(_: &Path, _: &fs::Metadata) -> std::io::Result<()> {
    Ok(())
}

fn whole<'a>(bytes: &'a [u8], key: &Key) -> Option<&'a [u8]> {
    let (theirs, rest) = bytes.strip_prefix(MAGIC)?.split_at_checked(DIGEST)?;
    let (digest, image) = rest.split_at_checked(DIGEST)?;
    (theirs == key.0 && digest == Sha256::digest(image).as_slice()).then_some(image)
}

/// Keeps an image, and drops those unused for longest where there are too many.
pub fn write(folder: &Path, key: &Key, image: &[u8]) {
    if let Err(error) = write_file(folder, key, image).and_then(|()| trim(folder)) {
        log(Level::Info, &format!("compiled kernels are not kept in {}: {error}", folder.display()));
    }
}

fn write_file(folder: &Path, key: &Key, image: &[u8]) -> std::io::Result<()> {
    if image.len() > MOST_IMAGE_BYTES {
        return Err(std::io::Error::other(format!("{} bytes are more than a kernel takes", image.len())));
    }
    make_folder(folder)?;
    check_folder(folder)?;
    // O_EXCL, a random name, mode 600; removed on drop unless persisted.
    let mut file = tempfile::Builder::new().suffix(&format!(".{UNFINISHED}")).tempfile_in(folder)?;
    for part in [MAGIC, &key.0, Sha256::digest(image).as_slice(), image] {
        file.write_all(part)?;
    }
    file.persist(key.file(folder))?;
    Ok(())
}

/// Makes the folder, and those it is in, for the user alone.
fn make_folder(folder: &Path) -> std::io::Result<()> {
    let mut builder = fs::DirBuilder::new();
    #[cfg(unix)]
    std::os::unix::fs::DirBuilderExt::mode(&mut builder, 0o700);
    builder.recursive(true).create(folder)
}

/// Drops the kernels unused for longest where there are too many, and what killed processes left.
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
            // Another process may have been faster, here and below.
            let _ = fs::remove_file(path);
        }
    }
    // Newest first.
    kernels.sort_by(|a, b| b.cmp(a));
    let mut bytes = 0;
    for (i, (_, len, path)) in kernels.iter().enumerate() {
        bytes += len;
        if i >= MOST_FILES || bytes > MOST_BYTES {
            let _ = fs::remove_file(path);
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A folder that is removed at the end, and not there before the first file.
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
    fn what_is_written_is_read_by_its_key_alone() {
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
    fn a_file_that_is_damaged_or_of_another_is_not_read() {
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
    fn it_does_not_grow_for_ever() {
        let folder = Folder::new();
        for i in 0..MOST_FILES + 20 {
            write(&folder.0, &Key::of([i.to_string().as_str()]), &[0; 100]);
        }
        assert_eq!(folder.files().len(), MOST_FILES);
        for i in 0..10 {
            write(&folder.0, &Key::of([format!("large {i}").as_str()]), &vec![0; MOST_IMAGE_BYTES]);
        }
        let bytes: u64 = folder.files().iter().map(|file| file.metadata().unwrap().len()).sum();
        assert!(bytes <= MOST_BYTES, "{bytes} bytes");
    }

    #[test]
    fn what_was_used_last_stays() {
        let folder = Folder::new();
        let keys: Vec<Key> = (0..MOST_FILES).map(|i| Key::of([i.to_string().as_str()])).collect();
        let long_ago = SystemTime::now() - Duration::from_secs(1 << 20);
        for (age, key) in keys.iter().enumerate() {
            write(&folder.0, key, b"an image");
            let file = File::open(key.file(&folder.0)).unwrap();
            file.set_modified(long_ago + Duration::from_secs(age as u64)).unwrap();
        }
        assert!(read(&folder.0, &keys[0]).is_some());
        write(&folder.0, &Key::of(["one more"]), b"an image");
        assert!(read(&folder.0, &keys[0]).is_some(), "the one used last has gone");
        assert!(read(&folder.0, &keys[1]).is_none(), "the one unused for longest is there");
    }

    #[test]
    fn what_is_too_large_is_neither_read_nor_written() {
        let (folder, key) = (Folder::new(), Key::of(["1"]));
        write(&folder.0, &key, &vec![0; MOST_IMAGE_BYTES + 1]);
        assert_eq!(folder.files().len(), 0);
        write(&folder.0, &key, b"an image");
        // More than any memory holds.
        File::options().write(true).open(key.file(&folder.0)).unwrap().set_len(1 << 42).unwrap();
        assert_eq!(read(&folder.0, &key), None);
    }

    #[test]
    fn what_killed_processes_left_is_removed_after_an_hour() {
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
    fn neither_links_nor_pipes_are_followed() {
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

        // A name that could be guessed, were it made of the key and the process.
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
        assert_eq!(answer, Ok(None), "it waits for somebody to write into a pipe");
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
        // Root alone can give things away, and not to a user that its namespace lacks.
        if chown(key.file(&folder.0), Some(12345), None).is_err() {
            return;
        }
        assert_eq!(read(&folder.0, &key), None, "somebody else's file");
        chown(key.file(&folder.0), Some(0), None).unwrap();
        chown(&folder.0, Some(12345), None).unwrap();
        unused("somebody else's folder");
    }

    /// Set where this program has started itself to print its folder.
    const CHILD: &str = "CUDAGAUSSBLUR_TEST_CHILD";

    /// Variables and their values; `None` for those that are not set.
    type Environment<'a> = &'a [(&'a str, Option<&'a str>)];

    /// What a process with this environment takes for its folder.
    fn folder_with(environment: Environment) -> String {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "cuda::disk::tests::the_folder_is_absolute_or_none", "--nocapture"]).env(CHILD, "1");
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
        const HOME: &str = "HOME";
        const XDG: &str = "XDG_CACHE_HOME";
        const OWN: &str = FOLDER_VARIABLE;
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
        for (environment, expected) in table {
            assert_eq!(folder_with(environment), expected, "{environment:?}");
        }
        // An empty HOME may stand for the user's entry in the system's list.
        let empty = folder_with(&[(OWN, None), (XDG, None), (HOME, Some(""))]);
        assert!(empty == "None" || empty.starts_with("Some(\"/"), "{empty}");
    }

    #[test]
    fn many_writers_at_once_leave_whole_files() {
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
