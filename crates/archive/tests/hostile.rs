//! Archives that nobody vouches for.

use blockyard_archive::{UnpackOptions, unpack};
use bolero::TypeGenerator;
use std::ffi::OsString;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use tar::{Builder, EntryType, Header};

/// An entry of an archive. Names are made of parts that lead somewhere.
#[derive(Clone, Debug, TypeGenerator)]
struct Item {
    kind: u8,
    name: Vec<u8>,
    target: Vec<u8>,
    mode: u16,
    length: u16,
    /// Bytes of the header that are not what they should be: place, and what is there.
    spoiled: Option<(u16, u8)>,
}

const PARTS: [&[u8]; 16] = [
    b"tree",
    b"a",
    b"b",
    b"..",
    b".",
    b"/",
    b"away",
    b"victim",
    b"outer",
    b"\xff\xfe",
    b"",
    b"link",
    b"a/../..",
    b"\x1b[2J",
    b"~",
    b"sub",
];

fn name(parts: &[u8]) -> Vec<u8> {
    let parts: Vec<_> = parts.iter().take(12).map(|part| PARTS[usize::from(part % 16)]).collect();
    parts.join(&b'/')
}

const KINDS: [EntryType; 12] = [
    EntryType::Regular,
    EntryType::Directory,
    EntryType::Symlink,
    EntryType::Link,
    EntryType::Char,
    EntryType::Block,
    EntryType::Fifo,
    EntryType::Continuous,
    EntryType::GNUSparse,
    EntryType::XHeader,
    EntryType::GNULongName,
    EntryType::GNULongLink,
];

fn archive(items: &[Item]) -> Vec<u8> {
    let mut builder = Builder::new(Vec::new());
    for item in items {
        let mut header = Header::new_gnu();
        header.set_entry_type(KINDS[usize::from(item.kind % 12)]);
        // Most of them where they may be.
        let mut own = if item.kind < 200 { b"tree/".to_vec() } else { Vec::new() };
        own.extend(name(&item.name));
        let target = name(&item.target);
        let old = header.as_old_mut();
        old.name[..own.len().min(100)].copy_from_slice(&own[..own.len().min(100)]);
        old.linkname[..target.len().min(100)].copy_from_slice(&target[..target.len().min(100)]);
        let content = match header.entry_type() {
            EntryType::GNULongName => [own, vec![0]].concat(),
            EntryType::GNULongLink => [target, vec![0]].concat(),
            EntryType::XHeader => {
                let record = format!(" path={}\n", String::from_utf8_lossy(&own));
                format!("{}{record}", record.len() + if record.len() > 97 { 3 } else { 2 }).into_bytes()
            }
            EntryType::Regular | EntryType::Continuous => vec![7; usize::from(item.length) % 3000],
            _ => Vec::new(),
        };
        header.set_size(content.len() as u64);
        header.set_mode(item.mode.into());
        header.set_mtime(1_000_000);
        if let Some((at, value)) = item.spoiled {
            header.as_mut_bytes()[usize::from(at) % 512] = value;
        }
        if item.mode % 8 != 0 {
            header.set_cksum();
        }
        builder.append(&header, &content[..]).unwrap();
    }
    builder.into_inner().unwrap()
}

/// Everything below a directory: paths, and what a file is and holds.
fn look(directory: &Path) -> Vec<(PathBuf, u32, Vec<u8>)> {
    let mut found = Vec::new();
    let mut pending = vec![directory.to_owned()];
    while let Some(directory) = pending.pop() {
        for entry in fs::read_dir(directory).unwrap() {
            let path = entry.unwrap().path();
            let metadata = fs::symlink_metadata(&path).unwrap();
            let content = if metadata.is_file() { fs::read(&path).unwrap() } else { Vec::new() };
            if metadata.is_dir() {
                pending.push(path.clone());
            }
            found.push((path, metadata.mode(), content));
        }
    }
    found.sort();
    found
}

#[test]
fn fuzz_no_archive_makes_anything_but_plain_files_where_it_is_unpacked() {
    let outer = blockyard_fuzz::memory_directory().unwrap();
    let (outside, place) = (outer.path().join("outer"), outer.path().join("outer/place"));
    blockyard_fuzz::check!(400).with_type::<(Vec<Item>, u8)>().for_each(|(items, cut)| {
        fs::create_dir_all(&place).unwrap();
        fs::write(outside.join("victim"), "mine").unwrap();
        fs::create_dir(outside.join("away")).unwrap();
        // Links that an archive of before has left.
        symlink("..", place.join("out")).unwrap();
        fs::create_dir(place.join("tree")).unwrap();
        symlink("../../away", place.join("tree/away")).unwrap();
        let mut bytes = archive(items);
        bytes.truncate(bytes.len() * usize::from(*cut) / 128);
        let options =
            UnpackOptions { root: (OsString::from("tree"), "tree".into()), bytes_max: 10_000, entries_max: 40 };
        let destination = File::open(&place).unwrap();
        // Whatever becomes of it.
        let unpacked = unpack(&bytes[..], destination.as_fd(), &options, &mut |_, _, _| {});
        assert!(unpacked.is_err() || unpacked.unwrap() <= 10_000);
        for (path, mode, content) in look(&outside) {
            let below = path.strip_prefix(&place).unwrap_or(Path::new(""));
            let is_there =
                [place.clone(), outside.join("victim"), outside.join("away"), place.join("out"), place.join("tree")];
            assert!(below.starts_with("tree") || is_there.contains(&path), "{path:?}");
            assert!(path != outside.join("victim") || (content == b"mine" && mode & 0o7777 != 0o777), "{mode:o}");
            assert!(mode & 0o7000 == 0 && matches!(mode >> 12, 0o10 | 0o4 | 0o12), "{path:?}: {mode:o}");
            assert!(!path.file_name().unwrap().to_string_lossy().starts_with(".blockyard"), "{path:?}");
        }
        // What it made may forbid to be removed, but for root.
        fs::remove_dir_all(&outside).unwrap();
    });
}
