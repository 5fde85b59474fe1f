//! QED.

use super::{Contents, MIB, compare_with_qemu, convert, directory, holds, open, raw, try_open};
use crate::rig::{Rig, pattern, qemu_img, qemu_io, read_only, text};
use blockyard_block::{
    AllowedDirectories, BlockMapDisk, BlockMapFormat, BlockMapInfo, Disk, OpenedFile, Operation, Qcow2MappingKind,
    RequestError,
};
use std::fs;
use std::path::Path;

const QED: BlockMapFormat = BlockMapFormat::Qed;

#[test]
fn images_hold_what_they_were_made_of() {
    for options in ["", "cluster_size=4096", "cluster_size=4096,table_size=2", "cluster_size=1M,table_size=16"] {
        compare_with_qemu(QED, "qed", options, true);
    }
}

/// An image over a base, and what its disk holds.
fn overlay(path: &Path, base: &str, format: &str, bytes: &[u8]) -> Vec<u8> {
    let (raw, image) = (path.join("raw"), path.join("image"));
    fs::write(&raw, bytes).unwrap();
    qemu_img(&["convert", "-q", "-f", "raw", "-O", format, text(&raw), text(&path.join(base))]);
    let create = ["create", "-q", "-f", "qed", "-o", "cluster_size=4096", "-b", base, "-F", format, text(&image), "9M"];
    qemu_img(&create);
    qemu_io(text(&image), "qed", &["write -P 1 0 512", "write -P 2 3M 1M", "write -P 3 8M 4k", "write -z 1M 64k"]);
    let mut wanted = bytes.to_vec();
    wanted.resize(9 << 20, 0);
    wanted[..512].fill(1);
    wanted[3 << 20..4 << 20].fill(2);
    wanted[8 << 20..(8 << 20) + 4096].fill(3);
    wanted[1 << 20..(1 << 20) + 65536].fill(0);
    wanted
}

#[test]
fn what_is_behind_an_image_shows() {
    let (_directory, path) = directory();
    let bytes = pattern(7 << 20, 5);
    for (base, format) in [("base.img", "raw"), ("base", "raw"), ("base.qcow2", "qcow2"), ("base.qed", "qed")] {
        let wanted = overlay(&path, base, format, &bytes);
        let disk = open(&path.join("image"), QED);
        let (mapping, _) = disk.map(2 * MIB..9 * MIB).unwrap();
        assert_eq!(mapping.depth, 1, "{base}");
        assert!(matches!(mapping.kind, Qcow2MappingKind::Data { .. }));
        assert_eq!(disk.files().nth(1), Some(&*path.join(base)));
        holds(disk, &wanted);
        let info = BlockMapInfo::of(&OpenedFile::open(&path.join("image"), true).unwrap(), QED).unwrap();
        assert_eq!(info.parent.as_deref(), Some(base));
        let none = BlockMapDisk::open(&path.join("image"), QED, &read_only(), &AllowedDirectories::none());
        assert!(none.unwrap_err().to_string().contains("lies in no directory that was allowed"));
    }
}

/// Whether a base is raw is said; whether it is something else, its name and its contents say together.
#[test]
fn what_a_base_is_is_not_guessed() {
    let (_directory, path) = directory();
    let image = path.join("image");
    overlay(&path, "base.img", "raw", &pattern(1 << 20, 5));
    // It does not say that it is raw any more.
    let mut bytes = fs::read(&image).unwrap();
    bytes[16] &= !4;
    fs::write(&image, &bytes).unwrap();
    let said = try_open(&image, QED, &read_only()).unwrap_err();
    assert!(said.contains(r#"the backing file "base.img", but does not say that it is raw"#), "{said}");
    // What is advised can be pasted, whatever somebody has called it.
    let at = bytes.windows(8).position(|name| name == b"base.img").unwrap();
    bytes[at..at + 8].copy_from_slice(b"$(id)img");
    fs::rename(path.join("base.img"), path.join("$(id)img")).unwrap();
    fs::write(&image, &bytes).unwrap();
    let said = try_open(&image, QED, &read_only()).unwrap_err();
    assert!(said.contains("rebase -u -f qed -b '$(id)img' -F raw"), "{said}");
    bytes[at..at + 8].copy_from_slice(b"base.img");
    fs::write(&image, &bytes).unwrap();
    fs::write(path.join("base.img"), b"QFI\xfb\0\0\0\x03").unwrap();
    try_open(&image, QED, &read_only()).unwrap_err();
    overlay(&path, "base.qed", "qed", &pattern(1 << 20, 5));
    fs::write(path.join("base.qed"), pattern(1 << 20, 5)).unwrap();
    try_open(&image, QED, &read_only()).unwrap_err();
    // It is its own base.
    overlay(&path, "base.qed", "qed", &pattern(1 << 20, 5));
    fs::copy(&image, path.join("base.qed")).unwrap();
    assert!(try_open(&path.join("base.qed"), QED, &read_only()).unwrap_err().contains("depends on itself"));
}

/// An image with some data, and where its L1 and first L2 table lie.
fn small(path: &Path) -> (Vec<u8>, usize, usize) {
    let image = convert(path, &raw(MIB, Contents::Data, 7), "qed", "cluster_size=4096,table_size=2");
    let bytes = fs::read(image).unwrap();
    let number = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
    let l1 = number(40);
    let l2 = number(l1);
    (bytes, l1, l2)
}

/// Without a table there is nothing to look at, however large the disk is.
#[test]
fn a_vast_disk_is_walked_table_by_table() {
    let (_directory, path) = directory();
    let image = path.join("image");
    qemu_img(&["create", "-q", "-f", "qed", "-o", "cluster_size=64k,table_size=16", text(&image), "256T"]);
    let disk = open(&image, QED);
    let extents: Vec<_> = blockyard_block::walk_extents(&disk, 0..256 << 40).map(Result::unwrap).collect();
    // A table of 1 MiB is for 8 GiB.
    assert_eq!(extents.len(), (256 << 40) / (8 << 30));
    assert_eq!(disk.check(&mut |line| panic!("{line}")).unwrap().allocated_clusters, 0);
}

#[test]
fn headers_that_cannot_be_are_refused() {
    let (_directory, path) = directory();
    let (good, ..) = small(&path);
    let file = path.join("image");
    for (at, value, wanted) in [
        (0, 0_u32, "is no QED image"),
        (4, 0, "has clusters of 0 bytes"),
        (4, 2048, "has clusters of 2048 bytes"),
        (4, 5000, "has clusters of 5000 bytes"),
        (4, 1 << 27, "has clusters of 134217728 bytes"),
        (4, u32::MAX, "has clusters of 4294967295 bytes"),
        (8, 0, "has tables of 0 clusters"),
        (8, 3, "has tables of 3 clusters"),
        (8, 32, "has tables of 32 clusters"),
        (12, 0, "its header does not lie within the file"),
        (12, u32::MAX, "its header does not lie within the file"),
        (16, 8, "features that are not known here (bits 0x8)"),
        (16, u32::MAX, "features that are not known here"),
        (16, 1, "its backing file's name has 0 bytes"),
        (40, 0, "its L1 table does not lie within the file"),
        (40, 1, "its L1 table does not lie within the file"),
        (44, u32::MAX, "its L1 table does not lie within the file"),
        (48, 511, "which its tables cannot"),
        (52, 1, "which its tables cannot"),
        (52, u32::MAX, "which its tables cannot"),
    ] {
        let mut bad = good.clone();
        bad[at..at + 4].copy_from_slice(&value.to_le_bytes());
        fs::write(&file, bad).unwrap();
        let said = try_open(&file, QED, &read_only()).unwrap_err();
        assert!(said.contains(wanted), "{value} at {at}: {said}");
    }
    for (offset, length, wanted) in [
        (0_u32, 9_u32, "does not lie within the header"),
        (4090, 9, "does not lie within the header"),
        (u32::MAX, 9, "does not lie within the header"),
        (64, u32::MAX, "its backing file's name has 4294967295 bytes"),
        (64, 9, "its backing file's name is none"),
    ] {
        let mut bad = good.clone();
        bad[16] |= 1;
        bad[56..60].copy_from_slice(&offset.to_le_bytes());
        bad[60..64].copy_from_slice(&length.to_le_bytes());
        fs::write(&file, bad).unwrap();
        let said = try_open(&file, QED, &read_only()).unwrap_err();
        assert!(said.contains(wanted), "{offset} {length}: {said}");
    }
    // Who only reads does not mind that something may be missing.
    let mut dirty = good.clone();
    dirty[16] |= 2;
    fs::write(&file, &dirty).unwrap();
    assert!(BlockMapInfo::of(&OpenedFile::open(&file, true).unwrap(), QED).unwrap().is_dirty);
    holds(open(&file, QED), &raw(MIB, Contents::Data, 7));
}

#[test]
fn entries_that_lead_astray_are_errors_where_they_are_asked_for() {
    let (_directory, path) = directory();
    let (good, l1, l2) = small(&path);
    let file = path.join("image");
    let length = good.len() as u64;
    for (at, value, wanted) in [
        (l1, 1_u64, "an L2 table cannot lie at 1"),
        (l1, 512, "an L2 table cannot lie at 512"),
        (l1, l1 as u64, "an L2 table cannot lie at"),
        (l1, length.next_multiple_of(4096), "an L2 table cannot lie at"),
        (l1, u64::MAX << 12, "an L2 table cannot lie at"),
        (l2, 512, "it lies over the image's header or L1 table"),
        (l2, l1 as u64, "it lies over the image's header or L1 table"),
        (l2, (1 << 20) + 512, "it does not begin where a block can"),
        (l2, length.next_multiple_of(4096), "it reaches behind the end of the file"),
        (l2, u64::MAX << 12, "it reaches behind the end of the file"),
    ] {
        let mut bad = good.clone();
        bad[at..at + 8].copy_from_slice(&value.to_le_bytes());
        fs::write(&file, &bad).unwrap();
        let disk = open(&file, QED);
        let said = disk.extents(0..4096).unwrap_err().to_string();
        assert!(said.contains(wanted) && said.starts_with(text(&file)), "{value} at {at}: {said}");
        let mut rig = Rig::new(disk);
        assert_eq!(rig.perform(Operation::Read, 0, &Rig::segments(4096)), Err(RequestError::Os(5)));
    }
}
