//! Parallels.

use super::{Contents, MIB, compare_with_qemu, convert, directory, holds, open, raw, try_open};
use crate::rig::{Rig, qemu_img, read_only, text};
use blockyard_block::{BlockMapFormat, BlockMapInfo, Disk, OpenedFile, Operation, RequestError};
use std::fs;
use std::path::Path;

const PARALLELS: BlockMapFormat = BlockMapFormat::Parallels;

#[test]
fn images_hold_what_they_were_made_of() {
    for options in ["", "cluster_size=64k", "cluster_size=4096"] {
        compare_with_qemu(PARALLELS, "parallels", options, true);
    }
}

/// An image of 1 MiB in clusters of 64 KiB, the second half of which is nowhere.
fn small(path: &Path) -> (Vec<u8>, Vec<u8>) {
    let mut disk = raw(MIB, Contents::Data, 3);
    disk[512 << 10..].fill(0);
    let image = convert(path, &disk, "parallels", "cluster_size=64k");
    (fs::read(image).unwrap(), disk)
}

fn put(bytes: &mut [u8], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_le_bytes());
}

/// The older form counts sectors, and has clusters that are no power of two.
#[test]
fn the_older_form_is_read() {
    let (_directory, path) = directory();
    let file = path.join("image");
    let disk = raw(63 * 512 * 5 - 1024, Contents::Data, 4);
    let mut bytes = vec![0; 1024];
    bytes[..16].copy_from_slice(b"WithoutFreeSpace");
    for (at, value) in [(16, 2), (28, 63), (32, 5), (36, disk.len() as u32 / 512), (40, 0), (44, 0x312e_3276)] {
        put(&mut bytes, at, value);
    }
    let mut wanted = vec![0; disk.len()];
    for cluster in [3, 0, 4] {
        let range = cluster * 63 * 512..((cluster + 1) * 63 * 512).min(disk.len());
        let sector = bytes.len() as u32 / 512;
        put(&mut bytes, 64 + cluster * 4, sector);
        bytes.extend(&disk[range.clone()]);
        wanted[range.clone()].copy_from_slice(&disk[range]);
    }
    bytes.resize(bytes.len() + 1024, 0);
    fs::write(&file, &bytes).unwrap();
    holds(open(&file, PARALLELS), &wanted);
    qemu_img(&["convert", "-f", "parallels", "-O", "raw", text(&file), text(&path.join("raw"))]);
    assert!(fs::read(path.join("raw")).unwrap() == wanted);
}

#[test]
fn an_image_that_was_not_closed_is_read_as_it_is() {
    let (_directory, path) = directory();
    let (mut bytes, disk) = small(&path);
    let file = path.join("image");
    put(&mut bytes, 44, 0x746f_6e59);
    fs::write(&file, &bytes).unwrap();
    assert!(BlockMapInfo::of(&OpenedFile::open(&file, true).unwrap(), PARALLELS).unwrap().is_dirty);
    holds(open(&file, PARALLELS), &disk);
}

#[test]
fn headers_that_cannot_be_are_refused() {
    let (_directory, path) = directory();
    let (good, _) = small(&path);
    let file = path.join("image");
    for (at, value, wanted) in [
        (0, 0_u32, "is no Parallels image"),
        (16, 1, "of version 1"),
        (28, 0, "has clusters of 0 sectors"),
        (28, u32::MAX, "has clusters of 4294967295 sectors"),
        (32, u32::MAX, "its table does not lie within the file"),
        (32, 4, "has more clusters than its table"),
        (36, u32::MAX, "has more clusters than its table"),
        (40, u32::MAX, "more bytes than a disk can have"),
        (48, 0, "its data do not begin behind its table"),
    ] {
        let mut bad = good.clone();
        if at == 48 {
            put(&mut bad, 32, 1000);
            put(&mut bad, 48, 1);
        } else {
            put(&mut bad, at, value);
        }
        fs::write(&file, bad).unwrap();
        let said = try_open(&file, PARALLELS, &read_only()).unwrap_err();
        assert!(said.contains(wanted), "{value} at {at}: {said}");
    }
    fs::write(&file, &good[..40]).unwrap();
    assert!(try_open(&file, PARALLELS, &read_only()).unwrap_err().contains("cut off in its header"));
}

#[test]
fn an_entry_that_leads_astray_is_an_error_where_it_is_asked_for() {
    let (_directory, path) = directory();
    let (good, disk) = small(&path);
    let file = path.join("image");
    for (entry, wanted) in [
        (u32::MAX, "it reaches behind the end of the file"),
        (good.len() as u32 / 65536 + 1, "it reaches behind the end of the file"),
    ] {
        let mut bad = good.clone();
        put(&mut bad, 64 + 4, entry);
        fs::write(&file, &bad).unwrap();
        let image = open(&file, PARALLELS);
        let said = image.extents(65536..MIB).unwrap_err().to_string();
        assert!(said.contains(wanted), "{entry}: {said}");
        let mut rig = Rig::new(image);
        assert_eq!(rig.perform(Operation::Read, 65536, &Rig::segments(4096)), Err(RequestError::Os(5)));
        assert!(rig.read(0, 4096) == disk[..4096]);
    }
    // In front of where data begin.
    let mut bad = good.clone();
    put(&mut bad, 48, 4096);
    fs::write(&file, &bad).unwrap();
    assert!(open(&file, PARALLELS).extents(0..512).unwrap_err().to_string().contains("in front of the image's data"));
}
