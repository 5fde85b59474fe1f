//! VDI.

use super::{Contents, MIB, compare_with_qemu, convert, directory, holds, open, raw, try_open};
use crate::rig::{Rig, read_only};
use blockyard_block::{BlockMapFormat, BlockMapInfo, Disk, FileOptions, OpenedFile, Operation, RequestError};
use std::fs;
use std::path::Path;

const VDI: BlockMapFormat = BlockMapFormat::Vdi;

#[test]
fn dynamic_images_hold_what_they_were_made_of() {
    compare_with_qemu(VDI, "vdi", "", true);
}

#[test]
fn static_images_hold_what_they_were_made_of() {
    compare_with_qemu(VDI, "vdi", "static=on", true);
}

/// A small image, to be spoiled: of three blocks, the second has data.
fn image(path: &Path) -> (Vec<u8>, Vec<u8>) {
    let mut disk = raw(3 * MIB - 512, Contents::Zeros, 0);
    disk[MIB as usize..2 * MIB as usize].fill(7);
    let image = convert(path, &disk, "vdi", "");
    (fs::read(image).unwrap(), disk)
}

#[test]
fn it_says_what_it_is() {
    let (_directory, path) = directory();
    image(&path);
    let info = |path: &Path| BlockMapInfo::of(&OpenedFile::open(path, true).unwrap(), VDI).unwrap();
    let wanted = BlockMapInfo {
        size_bytes: 3 * MIB - 512,
        block_bytes: Some(MIB),
        sector_bytes: None,
        subformat: "dynamic",
        parent: None,
        is_dirty: false,
    };
    assert_eq!(info(&path.join("image")), wanted);
}

#[test]
fn what_virtualbox_writes_and_qemu_does_not_is_read() {
    let (_directory, path) = directory();
    let (mut bytes, disk) = image(&path);
    let file = path.join("image");
    // A block that was discarded, and blocks of 512 KiB.
    bytes[512..516].copy_from_slice(&(u32::MAX - 1).to_le_bytes());
    fs::write(&file, &bytes).unwrap();
    holds(open(&file, VDI), &disk);
    let block = 512_u32 << 10;
    bytes[376..380].copy_from_slice(&block.to_le_bytes());
    bytes[384..388].copy_from_slice(&6_u32.to_le_bytes());
    for (index, entry) in [u32::MAX, u32::MAX - 1, 1, 0, u32::MAX, u32::MAX].into_iter().enumerate() {
        bytes[512 + index * 4..][..4].copy_from_slice(&entry.to_le_bytes());
    }
    fs::write(&file, &bytes).unwrap();
    holds(open(&file, VDI), &disk);
    // A disk of no whole sectors counts up.
    bytes[368..376].copy_from_slice(&(3 * MIB - 1000).to_le_bytes());
    fs::write(&file, &bytes).unwrap();
    holds(open(&file, VDI), &disk);
    let options = FileOptions { logical_block_bytes: 4096, ..read_only() };
    assert_eq!(try_open(&file, VDI, &options).unwrap().geometry().capacity_bytes, 3 * MIB);
}

#[test]
fn headers_that_cannot_be_are_refused() {
    let (_directory, path) = directory();
    let (good, _) = image(&path);
    let file = path.join("image");
    for (at, value, wanted) in [
        (64, 0, "is no VDI image"),
        (68, 1, "is a VDI of version 0.1, and only 1.1 is supported"),
        (76, 0, "the type 0"),
        (76, 3, "depends on another image"),
        (76, 4, "depends on another image"),
        (76, u32::MAX, "the type 4294967295"),
        (340, 0, "its map does not begin with a sector"),
        (340, 1, "its map does not begin with a sector"),
        (340, u32::MAX - 511, "its map does not lie within the file"),
        (344, 0, "its data do not begin with a sector behind its map"),
        (344, 512, "its data do not begin with a sector behind its map"),
        (344, 1025, "its data do not begin with a sector behind its map"),
        (360, 4096, "sectors of 4096 bytes"),
        (372, u32::MAX, "more bytes than a disk can have"),
        (372, 1, "has more blocks than its map"),
        (376, 0, "has blocks of 0 bytes"),
        (376, 1, "has blocks of 1 bytes"),
        (376, 3 << 20, "has blocks of 3145728 bytes"),
        (376, u32::MAX, "has blocks of 4294967295 bytes"),
        (376, 4096, "has more blocks than its map"),
        (380, 512, "in front of each of its blocks"),
        (384, 2, "has more blocks than its map"),
        (424, 1, "depends on another image"),
        (440, 1, "depends on another image"),
    ] {
        let mut bad = good.clone();
        bad[at..at + 4].copy_from_slice(&value.to_le_bytes());
        fs::write(&file, bad).unwrap();
        let said = try_open(&file, VDI, &read_only()).unwrap_err();
        assert!(said.contains(wanted), "{value} at {at}: {said}");
    }
    for length in [0, 64, 455] {
        fs::write(&file, &good[..length]).unwrap();
        assert!(try_open(&file, VDI, &read_only()).unwrap_err().contains("cut off in its header"));
    }
    fs::write(&file, &good).unwrap();
    let said = try_open(&file, VDI, &FileOptions::default()).unwrap_err();
    assert!(said.ends_with("add ,ro, or make a qcow2 of it with `blockyard image convert`"), "{said}");
}

#[test]
fn an_entry_that_leads_astray_is_an_error_where_it_is_asked_for() {
    let (_directory, path) = directory();
    let (good, disk) = image(&path);
    let file = path.join("image");
    for (entry, last_block) in [(1, false), (4095, false), (u32::MAX - 2, false), (1, true)] {
        let mut bad = good.clone();
        let at = if last_block { 520 } else { 516 };
        bad[at..at + 4].copy_from_slice(&entry.to_le_bytes());
        fs::write(&file, bad).unwrap();
        let image = open(&file, VDI);
        let offset = if last_block { 2 * MIB } else { MIB };
        let said = image.extents(offset..offset + 512).unwrap_err().to_string();
        let wanted = format!("{} is damaged: of the block at {offset} of its disk, it reaches", file.display());
        assert!(said.starts_with(&wanted), "{said}");
        assert_eq!(image.check(&mut |line| assert!(line.starts_with("ERROR block"))).unwrap().corruptions, 1);
        let mut rig = Rig::new(image);
        let read = rig.perform(Operation::Read, offset - 4096, &Rig::segments(8192));
        assert_eq!(read, Err(RequestError::Os(5)));
        assert!(rig.read(offset - 4096, 4096) == disk[offset as usize - 4096..][..4096]);
    }
    // Two entries for one block.
    let mut bad = good.clone();
    bad[512..516].copy_from_slice(&0_u32.to_le_bytes());
    fs::write(&file, bad).unwrap();
    let report = open(&file, VDI).check(&mut |line| assert_eq!(line, "ERROR two blocks lie at 1024 of the file"));
    assert_eq!(report.unwrap().corruptions, 1);
    // A block that the file's end cuts off.
    fs::write(&file, &good[..good.len() - 512]).unwrap();
    assert!(open(&file, VDI).extents(MIB..2 * MIB).is_err());
}
