//! Images in other hypervisors' formats that QEMU made, compared with the raw disk that they were made of.

mod new;
mod parallels;
mod qed;
mod vdi;
mod vhd;
mod vhd_image;
mod vhdx;
mod vhdx_image;
mod vmdk;
mod vmdk_image;
mod vmdk_written;

use crate::rig::{Random, Rig, pattern, qemu_img, qemu_io, read_only, text};
use blockyard_block::{
    AllowedDirectories, BlockMapDisk, BlockMapFormat, Disk, Extent, ExtentKind, FileOptions, Qcow2MappingKind,
    walk_extents,
};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

pub(crate) const MIB: u64 = 1 << 20;

fn directory() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    (directory, path)
}

fn try_open(path: &Path, format: BlockMapFormat, options: &FileOptions) -> Result<BlockMapDisk, String> {
    let allowed = AllowedDirectories::new(&[path.parent().unwrap()]).unwrap();
    BlockMapDisk::open(path, format, options, &allowed).map_err(|error| {
        let said = blockyard_block::explain(&error);
        assert!(!said.contains('\n') && said.contains(text(path)), "{said}");
        said
    })
}

fn open(path: &Path, format: BlockMapFormat) -> BlockMapDisk {
    try_open(path, format, &read_only()).unwrap()
}

/// What the disks hold that images are made of.
#[derive(Clone, Copy, Debug)]
enum Contents {
    Zeros,
    Data,
    /// Some pieces of 4 KiB to 3 MiB, with nothing between.
    Pieces,
}

fn raw(size_bytes: u64, contents: Contents, seed: u64) -> Vec<u8> {
    let mut disk = vec![0; size_bytes as usize];
    match contents {
        Contents::Zeros => {}
        Contents::Data => disk = pattern(size_bytes as usize, seed),
        Contents::Pieces => {
            let mut random = Random::new(seed);
            for n in 0..6 {
                let length = (4096 << random.below(11)).min(size_bytes);
                let start = random.below(size_bytes - length + 1) / 512 * 512;
                let range = start as usize..(start + length).min(size_bytes) as usize;
                let bytes = pattern(range.len(), seed + n);
                disk[range].copy_from_slice(&bytes);
            }
        }
    }
    disk
}

/// An image that `qemu-img` made of a raw disk.
fn convert(path: &Path, disk: &[u8], word: &str, options: &str) -> PathBuf {
    let (raw, image) = (path.join("raw"), path.join("image"));
    fs::write(&raw, disk).unwrap();
    let mut arguments = vec!["convert", "-q", "-f", "raw", "-O", word];
    if !options.is_empty() {
        arguments.extend(["-o", options]);
    }
    arguments.extend([text(&raw), text(&image)]);
    qemu_img(&arguments);
    image
}

/// The disk holds these bytes, and zeros behind them; what it says of holes is true.
#[track_caller]
fn holds(disk: BlockMapDisk, wanted: &[u8]) {
    let capacity_bytes = disk.geometry().capacity_bytes;
    let extents: Vec<_> = walk_extents(&disk, 0..capacity_bytes).map(Result::unwrap).collect();
    let mut at = 0;
    for Extent { offset_bytes, length_bytes, kind } in extents {
        assert_eq!(offset_bytes, at);
        at += length_bytes;
        let end = (at as usize).min(wanted.len());
        let is_zeros = || wanted[(offset_bytes as usize).min(end)..end].iter().all(|&byte| byte == 0);
        assert!(kind == ExtentKind::Data || is_zeros(), "no hole at {offset_bytes}");
    }
    assert_eq!(at, capacity_bytes);
    let read = Rig::new(disk).read_all();
    let (own, rest) = read.split_at(wanted.len().min(read.len()));
    assert!(own.len() == wanted.len(), "{} bytes", own.len());
    let differs = own.iter().zip(wanted).position(|(one, other)| one != other);
    assert_eq!(differs, None, "other bytes");
    assert!(rest.iter().all(|&byte| byte == 0), "something behind the end");
}

/// Where a byte of the disk lies in the image's file: as `qemu-img map` has it, and as we do.
#[track_caller]
fn lies_where_qemu_says(image: &Path, word: &str, disk: &BlockMapDisk) {
    let printed = qemu_img(&["map", "--output=json", "-f", word, text(image)]);
    let entries: Vec<serde_json::Value> = serde_json::from_str(&printed).unwrap();
    let number = |entry: &serde_json::Value, key: &str| entry[key].as_u64();
    let capacity_bytes = disk.geometry().capacity_bytes;
    let places = |at: u64| {
        let entry = entries.iter().rev().find(|entry| number(entry, "start").unwrap() <= at).unwrap();
        number(entry, "offset").map(|offset| offset + at - number(entry, "start").unwrap())
    };
    let mut at = 0;
    while at < capacity_bytes {
        let (mapping, _) = disk.map(at..capacity_bytes).unwrap();
        let place = match mapping.kind {
            Qcow2MappingKind::Data { offset_bytes } | Qcow2MappingKind::Reserved { offset_bytes } => Some(offset_bytes),
            _ => None,
        };
        for within in [0, mapping.length_bytes / 2 / 512 * 512, mapping.length_bytes - 512] {
            assert_eq!(place.map(|place| place + within), places(at + within), "at {}", at + within);
        }
        at += mapping.length_bytes;
    }
}

/// Sizes that end within a block, within a table's sector, and at a block.
const SIZES: [u64; 5] = [512, 65_536 + 512, 5 * MIB, 17 * MIB + 1536, 40 * MIB];

/// Of all contents and sizes, in an image that `qemu-img` makes with these options.
fn compare_with_qemu(format: BlockMapFormat, word: &str, options: &str, maps: bool) {
    let (_directory, path) = directory();
    for (seed, size_bytes) in SIZES.into_iter().enumerate() {
        for contents in [Contents::Zeros, Contents::Data, Contents::Pieces] {
            let wanted = raw(size_bytes, contents, seed as u64 * 10);
            let image = convert(&path, &wanted, word, options);
            let disk = open(&image, format);
            if maps {
                lies_where_qemu_says(&image, word, &disk);
            }
            let checked = disk.check(&mut |line| panic!("{line}")).unwrap();
            assert_eq!(checked.corruptions, 0);
            holds(disk, &wanted);
        }
    }
}

/// Whoever makes such an image makes its blocks whole. What is missing is not zeros.
#[test]
fn a_block_that_the_end_of_the_file_cuts_off_is_damage() {
    let (_directory, path) = directory();
    let mut disk = raw(3 * MIB, Contents::Data, 9);
    disk[2 << 20..].fill(0);
    for (format, word, options) in [
        (BlockMapFormat::Qed, "qed", ""),
        (BlockMapFormat::Parallels, "parallels", ""),
        (BlockMapFormat::Vdi, "vdi", ""),
        (BlockMapFormat::Vhdx, "vhdx", "block_size=1M"),
        (BlockMapFormat::Vmdk, "vmdk", ""),
    ] {
        let image = convert(&path, &disk, word, options);
        // No table lies behind these.
        qemu_io(text(&image), word, &["write -P 7 2M 1M"]);
        let length = image.metadata().unwrap().len();
        for cut_bytes in [1, 511, 512, 60_000] {
            fs::File::options().write(true).open(&image).unwrap().set_len(length - cut_bytes).unwrap();
            let disk = open(&image, format);
            let mut said = Vec::new();
            assert_eq!(disk.check(&mut |line| said.push(line.to_owned())).unwrap().corruptions, 1, "{word}");
            assert!(said[0].contains("it reaches behind the end of the file"), "{word}: {said:?}");
            assert!(walk_extents(&disk, 0..3 * MIB).any(|extent| extent.is_err()), "{word}: {cut_bytes} bytes less");
            drop(disk);
            if format == BlockMapFormat::Vmdk {
                let said = try_open(&image, format, &FileOptions::default()).unwrap_err();
                assert!(said.contains("which is behind its end"), "{said}");
            }
        }
    }
}
