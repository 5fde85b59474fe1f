//! Images that are made here, as QEMU reads them and as we do.

use super::{Contents, MIB, SIZES, directory, holds, lies_where_qemu_says, open, raw};
use crate::rig::{qemu_img, qemu_io, text};
use blockyard_block::conversion::{Conversion, ConversionOptions};
use blockyard_block::{
    BlockMapCreateOptions, BlockMapFormat, BlockMapInfo, BlockMapWriter, FileDisk, FileOptions, ImageError, OpenedFile,
    Preallocation, VmdkAdapter, VmdkCreateOptions, VmdkInfo, VmdkStreamWriter,
};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

fn create(path: &Path, options: &BlockMapCreateOptions) -> Result<BlockMapWriter, ImageError> {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    BlockMapWriter::new(file, path, options)
}

/// Converted by two threads.
fn convert(directory: &Path, disk: &[u8], options: &BlockMapCreateOptions) -> PathBuf {
    let (source, image) = (directory.join("raw"), directory.join("image"));
    fs::write(&source, disk).unwrap();
    let source = FileDisk::open(&source, &FileOptions { read_only: true, ..FileOptions::default() }).unwrap();
    let writer = create(&image, options).unwrap();
    let how = ConversionOptions { threads: 2, depth: 1, zero_run_bytes: Some(4096) };
    Conversion::to_block_map(&source, &writer, how).run(|_| true).unwrap();
    writer.finish().unwrap();
    image
}

/// Of all contents and sizes: the same to QEMU, which calls the format `word`, and to us.
fn compare(format: BlockMapFormat, word: &str, subformat: &str, change: impl Fn(&mut BlockMapCreateOptions)) {
    for (seed, size_bytes) in SIZES.into_iter().enumerate() {
        for contents in [Contents::Zeros, Contents::Data, Contents::Pieces] {
            let mut options = BlockMapCreateOptions::new(format, size_bytes);
            change(&mut options);
            compare_one(&options, word, subformat, &raw(size_bytes, contents, seed as u64 * 10));
        }
    }
}

fn compare_one(options: &BlockMapCreateOptions, word: &str, subformat: &str, wanted: &[u8]) {
    let (_directory, path) = directory();
    let image = convert(&path, wanted, options);
    qemu_img(&["compare", "-q", "-f", "raw", "-F", word, text(&path.join("raw")), text(&image)]);
    if word != "vpc" {
        qemu_img(&["check", "-q", "-f", word, text(&image)]);
    }
    let info = BlockMapInfo::of(&OpenedFile::open(&image, true).unwrap(), options.format).unwrap();
    assert_eq!((info.size_bytes, info.subformat, info.is_dirty), (wanted.len() as u64, subformat, false));
    let disk = open(&image, options.format);
    let is_sparse = !options.is_fixed && options.preallocation == Preallocation::Off;
    // Of VHDX, QEMU does not say it.
    if is_sparse && word != "vhdx" {
        lies_where_qemu_says(&image, word, &disk);
    }
    let checked = disk.check(&mut |line| panic!("{line}")).unwrap();
    assert_eq!(checked.corruptions, 0);
    holds(disk, wanted);
    let blocks = wanted.chunks(options.block_bytes().unwrap() as usize);
    let blocks = blocks.filter(|block| block.iter().any(|&byte| byte != 0)).count() as u64;
    assert_eq!(image.metadata().unwrap().len(), options.file_bytes(blocks).unwrap());
}

#[test]
fn new_vdis_hold_what_they_were_made_of() {
    compare(BlockMapFormat::Vdi, "vdi", "dynamic", |_| {});
    compare(BlockMapFormat::Vdi, "vdi", "static", |options| options.is_fixed = true);
}

#[test]
fn new_vmdks_hold_what_they_were_made_of() {
    compare(BlockMapFormat::Vmdk, "vmdk", "SPARSE", |_| {});
}

/// The descriptor is QEMU's, but for the number of its contents.
#[test]
fn a_new_vmdk_says_what_qemus_does() {
    let (_directory, path) = directory();
    let text_of = |image: &Path| {
        let bytes = fs::read(image).unwrap();
        let text = String::from_utf8(bytes[512..21 * 512].to_vec()).unwrap();
        let lines = text.trim_end_matches('\0').trim_end().lines().map(str::to_owned);
        let (cids, lines): (Vec<_>, Vec<_>) = lines.partition(|line| line.starts_with("CID="));
        assert_eq!(cids.len(), 1, "{text}");
        (bytes[..512].to_vec(), lines)
    };
    for (adapter, hardware_version, size_bytes) in [
        (VmdkAdapter::Ide, 4, 512),
        (VmdkAdapter::LsiLogic, 13, 33 * MIB + 512),
        (VmdkAdapter::BusLogic, 21, 2047 << 30),
        (VmdkAdapter::LegacyEsx, 4, 5 << 30),
    ] {
        let (ours, theirs) = (path.join("ours").join("größe 1.vmdk"), path.join("größe 1.vmdk"));
        fs::create_dir_all(path.join("ours")).unwrap();
        let options = format!("adapter_type={},hwversion={hardware_version}", adapter.word());
        let size = size_bytes.to_string();
        qemu_img(&["create", "-q", "-f", "vmdk", "-o", &options, text(&theirs), &size]);
        let options = BlockMapCreateOptions {
            vmdk: VmdkCreateOptions { adapter, hardware_version, ..VmdkCreateOptions::default() },
            ..BlockMapCreateOptions::new(BlockMapFormat::Vmdk, size_bytes)
        };
        create(&ours, &options).unwrap().finish().unwrap();
        assert_eq!(text_of(&ours), text_of(&theirs));
        qemu_img(&["check", "-q", "-f", "vmdk", text(&ours)]);
        let info = VmdkInfo::of(&OpenedFile::open(&ours, true).unwrap()).unwrap();
        assert_eq!((info.create_type.as_str(), info.size_bytes()), ("monolithicSparse", size_bytes));
    }
}

/// Grains lie in the order of the disk, whichever thread was ready first, and every reader finds them.
#[test]
fn new_compressed_vmdks_hold_what_they_were_made_of() {
    for (seed, size_bytes) in SIZES.into_iter().chain([100 * MIB]).enumerate() {
        for contents in [Contents::Zeros, Contents::Data, Contents::Pieces] {
            let (_directory, path) = directory();
            let wanted = raw(size_bytes, contents, seed as u64 * 10);
            let (source, image) = (path.join("raw"), path.join("image.vmdk"));
            fs::write(&source, &wanted).unwrap();
            let source_disk =
                FileDisk::open(&source, &FileOptions { read_only: true, ..FileOptions::default() }).unwrap();
            let writer = create_stream(&image, size_bytes).unwrap();
            // Threads that read ahead, and so have pieces that come before others'.
            let how = ConversionOptions { threads: 3, depth: 4, zero_run_bytes: Some(4096) };
            Conversion::to_vmdk_stream(&source_disk, &writer, how).run(|_| true).unwrap();
            writer.finish().unwrap();
            qemu_img(&["compare", "-q", "-f", "raw", "-F", "vmdk", text(&source), text(&image)]);
            qemu_img(&["check", "-q", "-f", "vmdk", text(&image)]);
            let info = VmdkInfo::of(&OpenedFile::open(&image, true).unwrap()).unwrap();
            assert_eq!((info.create_type.as_str(), info.size_bytes()), ("streamOptimized", size_bytes));
            let disk = open(&image, BlockMapFormat::Vmdk);
            lies_where_qemu_says(&image, "vmdk", &disk);
            assert_eq!(disk.check(&mut |line| panic!("{line}")).unwrap().corruptions, 0);
            holds(disk, &wanted);
            assert_eq!(grains_in_one_pass(&fs::read(&image).unwrap()), grains_of(&wanted));
        }
    }
}

fn create_stream(path: &Path, size_bytes: u64) -> Result<VmdkStreamWriter, ImageError> {
    let file = File::options().read(true).write(true).create(true).truncate(true).open(path).unwrap();
    VmdkStreamWriter::new(file, path, size_bytes, VmdkCreateOptions { is_stream: true, ..VmdkCreateOptions::default() })
}

/// Which grains of a disk are not zeros.
fn grains_of(disk: &[u8]) -> Vec<u64> {
    let grains = (0..).zip(disk.chunks(64 << 10));
    grains.filter(|(_, grain)| grain.iter().any(|&byte| byte != 0)).map(|(number, _)| number).collect()
}

/// Which grains are in a compressed VMDK, as somebody finds them who reads it from its first grain to its end marker.
fn grains_in_one_pass(file: &[u8]) -> Vec<u64> {
    let number = |at: usize, bytes: usize| {
        let mut word = [0; 8];
        word[..bytes].copy_from_slice(&file[at..at + bytes]);
        u64::from_le_bytes(word)
    };
    let (mut grains, mut at) = (Vec::new(), 64 << 10);
    loop {
        let (value, size, kind) = (number(at, 8), number(at + 8, 4) as usize, number(at + 12, 4));
        if size > 0 {
            grains.push(value / 128);
            at += (12 + size).next_multiple_of(512);
        } else if (value, kind) == (0, 0) {
            assert_eq!(at + 512, file.len());
            return grains;
        } else {
            at += 512 + value as usize * 512;
        }
    }
}

#[test]
fn what_a_compressed_vmdk_cannot_hold_is_refused() {
    let (_directory, path) = directory();
    for size_bytes in [0, 513, (64 << 40) + 512, u64::MAX - 511] {
        let error = create_stream(&path.join("a.vmdk"), size_bytes).unwrap_err().to_string();
        assert!(error.contains(&format!("a disk of {size_bytes} bytes is not possible")), "{error}");
    }
    assert!(create_stream(&path.join("a\".vmdk"), MIB).is_err());
    create_stream(&path.join("a.vmdk"), 64 << 40).unwrap().finish().unwrap();
    qemu_io(text(&path.join("a.vmdk")), "vmdk", &["read -P 0 63T 1M"]);
    let options = BlockMapCreateOptions::new(BlockMapFormat::Vmdk, MIB);
    let vmdk = VmdkCreateOptions { is_stream: true, ..options.vmdk };
    assert!(BlockMapCreateOptions { vmdk, ..options }.file_bytes(1).is_err());
}

#[test]
fn new_vhds_hold_what_they_were_made_of() {
    compare(BlockMapFormat::Vhd, "vpc", "dynamic", |_| {});
    compare(BlockMapFormat::Vhd, "vpc", "dynamic", |options| options.block_bytes = Some(512 << 10));
    compare(BlockMapFormat::Vhd, "vpc", "fixed", |options| options.is_fixed = true);
}

#[test]
fn new_vhdxs_hold_what_they_were_made_of() {
    compare(BlockMapFormat::Vhdx, "vhdx", "dynamic", |_| {});
    compare(BlockMapFormat::Vhdx, "vhdx", "dynamic", |options| options.block_bytes = Some(1 << 20));
    compare(BlockMapFormat::Vhdx, "vhdx", "fixed", |options| options.is_fixed = true);
}

#[test]
fn all_of_an_image_can_have_its_place_at_once() {
    for (format, word, subformat) in [
        (BlockMapFormat::Vmdk, "vmdk", "SPARSE"),
        (BlockMapFormat::Vdi, "vdi", "dynamic"),
        (BlockMapFormat::Vhd, "vpc", "dynamic"),
        (BlockMapFormat::Vhdx, "vhdx", "dynamic"),
    ] {
        for preallocation in [Preallocation::Metadata, Preallocation::Falloc, Preallocation::Full] {
            let wanted = raw(17 * MIB + 1536, Contents::Pieces, 1);
            let options = BlockMapCreateOptions::new(format, wanted.len() as u64);
            compare_one(&BlockMapCreateOptions { preallocation, ..options }, word, subformat, &wanted);
        }
    }
}

/// More blocks than a chunk, and than a piece of the table that is written at once.
#[test]
fn large_disks_have_large_tables() {
    const TIB: u64 = 1 << 40;
    let (_directory, path) = directory();
    for (format, word, size_bytes, block_bytes) in [
        (BlockMapFormat::Vmdk, "vmdk", 2047 << 30, None),
        (BlockMapFormat::Vdi, "vdi", 8 * TIB, None),
        (BlockMapFormat::Vhd, "vpc", 2040 << 30, None),
        (BlockMapFormat::Vhdx, "vhdx", 64 * TIB, None),
        (BlockMapFormat::Vhdx, "vhdx", TIB, Some(1 << 20)),
    ] {
        let options = BlockMapCreateOptions { block_bytes, ..BlockMapCreateOptions::new(format, size_bytes) };
        let image = path.join("image");
        let writer = create(&image, &options).unwrap();
        let file = File::options().write(true).open(&image).unwrap();
        // From the end on: places are in the order in which they are asked for.
        let offsets = [size_bytes - 512, size_bytes / 2 + 4096, size_bytes / 3 / 512 * 512, 0];
        for (offset, byte) in offsets.into_iter().zip(1..) {
            file.write_all_at(&[byte; 512], writer.place(offset).unwrap()).unwrap();
        }
        writer.finish().unwrap();
        let disk = open(&image, format);
        let mut commands = Vec::new();
        for (offset, byte) in offsets.into_iter().zip(1_u8..) {
            assert_eq!(blockyard_block::read_bytes(&disk, offset..offset + 512).unwrap(), [byte; 512]);
            commands.push(format!("read -P {byte} {offset} 512"));
        }
        drop(disk);
        commands.push(format!("read -P 0 {} 1M", size_bytes / 4));
        qemu_io(text(&image), word, &commands.iter().map(String::as_str).collect::<Vec<_>>());
    }
}

#[test]
fn what_a_format_cannot_hold_is_refused() {
    let (_directory, path) = directory();
    let refused = |format, size_bytes, block_bytes, said: &str| {
        let options = BlockMapCreateOptions { block_bytes, ..BlockMapCreateOptions::new(format, size_bytes) };
        let error = create(&path.join("image"), &options).unwrap_err().to_string();
        assert!(error.contains(said), "{error}");
    };
    for format in [BlockMapFormat::Vmdk, BlockMapFormat::Vdi, BlockMapFormat::Vhd, BlockMapFormat::Vhdx] {
        refused(format, 513, None, "multiple of 512");
        refused(format, u64::MAX - 511, None, "at most");
        for block_bytes in [0, 1, 512, MIB as u32 + 512, 3 << 20, u32::MAX] {
            refused(format, MIB, Some(block_bytes), "blocks");
        }
    }
    refused(BlockMapFormat::Vmdk, (2047 << 30) + 512, None, "2047 GiB at most");
    refused(BlockMapFormat::Vmdk, 0, None, "512 bytes at least");
    refused(BlockMapFormat::Vhdx, 0, None, "512 bytes at least");
    refused(BlockMapFormat::Vhd, (2040 << 30) + 512, None, "2040 GiB at most");
    refused(BlockMapFormat::Vhdx, (64 << 40) + 512, None, "64 TiB at most");
    refused(BlockMapFormat::Vdi, (64 << 40) + 512, None, "64 TiB at most");
    refused(BlockMapFormat::Qed, MIB, None, "read, not made");
}
