// SPDX-License-Identifier: MPL-2.0
//! Any file in the place of a cached kernel: it is read only if its key and its digest match and only the user can write it.
#![no_main]

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;

use arbitrary::Arbitrary;
use gstcudagaussblur::cuda::jit::disk_cache::{Key, read, write};
use sha2::{Digest, Sha256};

#[derive(Arbitrary, Debug)]
struct Input<'a> {
    image: &'a [u8],
    mode: Option<u16>,
    /// Bits of the file that are inverted, at these places.
    altered: Vec<(u16, u8)>,
    cut_to: Option<u16>,
    appended: &'a [u8],
    /// Instead of all this, or after the 23 bytes that every file begins with.
    other: Option<(bool, &'a [u8])>,
    is_other_key: bool,
}

libfuzzer_sys::fuzz_target!(|input: Input| {
    let folder = tempfile::tempdir().expect("a folder for the cache");
    let (key, other) = (Key::of(["source", "sm_90"]), Key::of(["sources", "m_90"]));
    write(folder.path(), if input.is_other_key { &other } else { &key }, input.image);
    let file = fs::read_dir(folder.path()).unwrap().next().expect("it was written").unwrap().path();
    let mut bytes = fs::read(&file).unwrap();
    assert_eq!(bytes.len(), 23 + 32 + 32 + input.image.len());
    // The file of the key, which the other's may be renamed to.
    let header = if input.is_other_key {
        write(folder.path(), &key, b"");
        let entries = fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().path());
        let own = entries.into_iter().find(|path| *path != file).expect("two keys have two files");
        let header = fs::read(&own).unwrap()[..23 + 32].to_vec();
        fs::rename(&file, &own).unwrap();
        header
    } else {
        bytes[..23 + 32].to_vec()
    };
    let file = fs::read_dir(folder.path()).unwrap().next().expect("one is left").unwrap().path();
    for (at, bits) in &input.altered {
        let at = usize::from(*at) % bytes.len();
        bytes[at] ^= bits;
    }
    bytes.truncate(input.cut_to.map_or(usize::MAX, usize::from));
    bytes.extend_from_slice(input.appended);
    if let Some((has_start, other)) = input.other {
        bytes = [if has_start { &header[..23] } else { &[] }, other].concat();
    }
    fs::write(&file, &bytes).unwrap();
    let mode = u32::from(input.mode.unwrap_or(0o600)) & 0o777;
    fs::set_permissions(&file, Permissions::from_mode(mode)).unwrap();
    let image = bytes.get(header.len() + 32..).filter(|image| {
        let is_own = bytes.starts_with(&header);
        is_own && bytes[header.len()..][..32] == *Sha256::digest(image) && mode & 0o022 == 0
    });
    // Root reads any file.
    let is_readable = fs::File::open(&file).is_ok();
    assert_eq!(read(folder.path(), &key).as_deref(), image.filter(|_| is_readable));
    assert_eq!(fs::read(&file).unwrap_or(bytes.clone()), bytes, "reading changes nothing");
});
