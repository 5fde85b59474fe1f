//! VMDKs that are written to.

use super::vmdk_image::{Grain, Kind, VmdkImage, descriptor};
use super::{MIB, directory, holds, open, try_open};
use crate::model::{DISK_BYTES, do_what_a_vector_does};
use crate::rig::{Rig, WRITE, pattern, qemu_img, qemu_io, read_only, text};
use blockyard_block::{
    BlockMapCreateOptions, BlockMapDisk, BlockMapFormat, BlockMapWriter, Disk, ExtentKind, FileOptions, OpenedFile,
    Operation, VmdkInfo,
};
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

const VMDK: BlockMapFormat = BlockMapFormat::Vmdk;

/// Where the header says that the file was not closed.
const UNCLEAN_AT: u64 = 72;

fn writable(path: &Path) -> BlockMapDisk {
    try_open(path, VMDK, &FileOptions::default()).unwrap()
}

fn refused(path: &Path) -> String {
    try_open(path, VMDK, &FileOptions::default()).unwrap_err()
}

/// Both programs find nothing wrong.
fn check(image: &Path) {
    let printed = qemu_img(&["check", "-f", "vmdk", text(image)]);
    assert!(printed.contains("No errors were found"), "{printed}");
    let report = open(image, VMDK).check(&mut |line| panic!("{line}")).unwrap();
    assert_eq!(report.corruptions, 0);
    let info = VmdkInfo::of(&OpenedFile::open(image, true).unwrap()).unwrap();
    assert!(!info.is_dirty);
}

fn create(path: &Path, name: &str, options: &str, parent: Option<&str>) -> PathBuf {
    let image = path.join(name);
    let size = DISK_BYTES.to_string();
    let mut arguments = vec!["create", "-q", "-f", "vmdk", "-o", options];
    let parent = parent.map(|parent| path.join(parent));
    if let Some(parent) = &parent {
        arguments.extend(["-F", "vmdk", "-b", text(parent)]);
    }
    arguments.push(text(&image));
    if parent.is_none() {
        arguments.push(&size);
    }
    qemu_img(&arguments);
    image
}

fn is_what_a_vector_is(image: &Path, mut contents: Vec<u8>) {
    let open = || Arc::new(writable(image)) as Arc<dyn Disk>;
    do_what_a_vector_does(open, &mut contents, || check(image));
    let raw = image.with_extension("raw");
    fs::write(&raw, contents).unwrap();
    qemu_img(&["compare", "-f", "raw", "-F", "vmdk", text(&raw), text(image)]);
}

#[test]
fn a_written_disk_holds_what_a_vector_does() {
    let (_directory, path) = directory();
    for (name, options) in [
        ("sparse.vmdk", "subformat=monolithicSparse"),
        ("zeroed.vmdk", "subformat=monolithicSparse,zeroed_grain=on"),
        ("several.vmdk", "subformat=twoGbMaxExtentSparse"),
        ("flat.vmdk", "subformat=monolithicFlat"),
    ] {
        is_what_a_vector_is(&create(&path, name, options, None), vec![0; DISK_BYTES]);
    }
}

#[test]
fn what_is_made_here_is_written_to() {
    let (_directory, path) = directory();
    let image = path.join("own.vmdk");
    let file = fs::File::create_new(&image).unwrap();
    let options = BlockMapCreateOptions::new(VMDK, DISK_BYTES as u64);
    BlockMapWriter::new(file, &image, &options).unwrap().finish().unwrap();
    is_what_a_vector_is(&image, vec![0; DISK_BYTES]);
}

#[test]
fn a_difference_shows_its_parent_around_what_is_written() {
    let (_directory, path) = directory();
    for (number, options) in
        ["subformat=monolithicSparse", "subformat=monolithicSparse,zeroed_grain=on"].into_iter().enumerate()
    {
        let names = [format!("base{number}.vmdk"), format!("middle{number}.vmdk"), format!("top{number}.vmdk")];
        let [base, middle, top] = &names;
        let base_path = create(&path, base, options, None);
        let mut contents = pattern(DISK_BYTES, 5);
        contents[MIB as usize..2 * MIB as usize].fill(0);
        let mut rig = Rig::new(writable(&base_path));
        rig.write(0, &contents[..MIB as usize]);
        rig.write(2 * MIB, &contents[2 * MIB as usize..]);
        drop(rig);
        let middle_path = create(&path, middle, options, Some(base));
        let mut rig = Rig::new(writable(&middle_path));
        rig.write(3 * MIB - 512, &[7; 1024]);
        contents[3 * MIB as usize - 512..][..1024].fill(7);
        drop(rig);
        let before = fs::read(&middle_path).unwrap();
        is_what_a_vector_is(&create(&path, top, options, Some(middle)), contents);
        assert!(fs::read(&middle_path).unwrap() == before, "a parent was changed");
    }
}

#[test]
fn who_is_a_difference_from_what_was_written_to_is_told() {
    let (_directory, path) = directory();
    for options in ["subformat=monolithicSparse", "subformat=twoGbMaxExtentSparse"] {
        let base = create(&path, "base.vmdk", options, None);
        let top = create(&path, "top.vmdk", "subformat=monolithicSparse", Some("base.vmdk"));
        // Who opens it and changes nothing changes nothing.
        let before = fs::read(&base).unwrap();
        Rig::new(writable(&base)).read(0, 512);
        assert!(fs::read(&base).unwrap() == before);
        assert!(try_open(&top, VMDK, &read_only()).is_ok());
        Rig::new(writable(&base)).write(0, &[1; 512]);
        let error = try_open(&top, VMDK, &read_only()).unwrap_err();
        assert!(error.contains("its id differs"), "{error}");
        let id = |image: &Path| VmdkInfo::of(&OpenedFile::open(image, true).unwrap()).unwrap().cid;
        let once = id(&base);
        Rig::new(writable(&base)).write(0, &[1; 512]);
        assert_ne!(once, id(&base));
        fs::remove_file(&top).unwrap();
        fs::remove_file(&base).unwrap();
    }
}

#[test]
fn what_was_discarded_takes_no_storage_and_no_place_is_used_twice() {
    let (_directory, path) = directory();
    let image = create(&path, "image.vmdk", "subformat=monolithicSparse", None);
    let mut rig = Rig::new(writable(&image));
    rig.write(0, &pattern(MIB as usize, 1));
    let length = || fs::metadata(&image).unwrap().len();
    rig.perform(Operation::Discard { length_bytes: MIB }, 0, &[]).unwrap();
    assert_eq!(rig.disk.extents(0..MIB).unwrap().kind, ExtentKind::Hole);
    drop(rig);
    let once = length();
    let mut rig = Rig::new(writable(&image));
    rig.write(0, &pattern(MIB as usize, 2));
    rig.write(2 * MIB, &[3; 512]);
    drop(rig);
    // What was reserved is given back.
    assert_eq!(length(), once + 65536);
    check(&image);
}

#[test]
fn tables_that_are_missing_are_made() {
    let (_directory, path) = directory();
    let image = create(&path, "image.vmdk", "subformat=monolithicSparse", None);
    let bytes = fs::read(&image).unwrap();
    let sector = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap()) * 512;
    let (redundant, directory) = (sector(48), sector(56));
    // Neither, the first, and the redundant one.
    for missing in [&[redundant, directory][..], &[directory], &[redundant]] {
        fs::write(&image, &bytes).unwrap();
        let file = fs::File::options().write(true).open(&image).unwrap();
        missing.iter().for_each(|&at| file.write_all_at(&[0; 4], at).unwrap());
        drop(file);
        is_what_a_vector_is(&image, vec![0; DISK_BYTES]);
        // Both directories have the same grains.
        let written = fs::read(&image).unwrap();
        let entry = |at: u64| u32::from_le_bytes(written[at as usize..][..4].try_into().unwrap()) as usize * 512;
        let (one, other) = (entry(redundant), entry(directory));
        assert!(one > 0 && other > 0 && written[one..one + 256] == written[other..other + 256]);
    }
}

#[test]
fn redundant_tables_that_are_out_of_date_are_mended() {
    let (_directory, path) = directory();
    let image = create(&path, "image.vmdk", "subformat=monolithicSparse", None);
    qemu_io(text(&image), "vmdk", &["write -P 1 0 1M"]);
    let bytes = fs::read(&image).unwrap();
    let redundant = u64::from_le_bytes(bytes[48..56].try_into().unwrap()) * 512;
    let table = u32::from_le_bytes(bytes[redundant as usize..][..4].try_into().unwrap()) as u64 * 512;
    let file = fs::File::options().write(true).open(&image).unwrap();
    file.write_all_at(&[0; 8], table).unwrap();
    file.write_all_at(&[1], UNCLEAN_AT).unwrap();
    drop(file);
    let mut said = Vec::new();
    let report = open(&image, VMDK).check(&mut |line| said.push(line.to_owned())).unwrap();
    assert_eq!(report.corruptions, 0);
    assert!(said.len() == 1 && said[0].starts_with("NOTE 1 redundant grain tables are behind"), "{said:?}");
    Rig::new(writable(&image)).write(MIB, &[2; 512]);
    let mended = fs::read(&image).unwrap();
    assert_eq!(mended[table as usize..][..8], bytes[table as usize..][..8]);
    check(&image);
}

/// Where the two sets differ as no power cut leaves them, either may be the one that has the data.
#[test]
fn tables_that_differ_are_refused_and_nothing_is_written() {
    let (_directory, path) = directory();
    let (image, bytes) = image_with_grains(&path);
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize;
    let (directory, redundant) = (number(56) * 512, number(48) * 512);
    let (table, copy) = (number(directory) * 512, number(redundant) * 512);
    let entry = number(copy) as u32;
    for (problem, at, with, unclean) in [
        ("the first table is lost", table, vec![0; 2048], 0),
        ("the first table is lost", table, vec![0; 2048], 1),
        ("the first directory is lost", directory, vec![0; 4], 0),
        ("the first directory is lost", directory, vec![0; 4], 1),
        ("the redundant table is lost", copy, vec![0; 2048], 0),
        ("the redundant directory is lost", redundant, vec![0; 4], 0),
        ("an entry is another one", copy, (entry + 128).to_le_bytes().to_vec(), 1),
        ("entries were exchanged", copy, [&bytes[copy + 4..copy + 8], &bytes[copy..copy + 4]].concat(), 1),
    ] {
        let mut bent = bytes.clone();
        bent[at..at + with.len()].copy_from_slice(&with);
        bent[UNCLEAN_AT as usize] = unclean;
        fs::write(&image, &bent).unwrap();
        let error = refused(&image);
        assert!(
            error.contains("its redundant grain table 0 is not what the first one is: add ,ro"),
            "{problem}: {error}"
        );
        let mut said = Vec::new();
        let report = open(&image, VMDK).check(&mut |line| said.push(line.to_owned())).unwrap();
        assert_eq!(report.corruptions, 1, "{problem}");
        assert_eq!(said, ["ERROR the redundant grain table 0 is not what the first one is"], "{problem}");
        assert!(fs::read(&image).unwrap() == bent, "{problem}");
    }
}

#[test]
fn what_changes_nothing_leaves_the_file_and_its_id() {
    let (_directory, path) = directory();
    for options in ["subformat=monolithicSparse", "subformat=monolithicSparse,zeroed_grain=on"] {
        let base = create(&path, "base.vmdk", options, None);
        let mut rig = Rig::new(writable(&base));
        rig.write(MIB, &[1; 65536]);
        rig.perform(Operation::Discard { length_bytes: 65536 }, MIB, &[]).unwrap();
        drop(rig);
        let top = create(&path, "top.vmdk", options, Some("base.vmdk"));
        for image in [&top, &base] {
            let before = fs::read(image).unwrap();
            let mut rig = Rig::new(writable(image));
            for offset in [0, MIB, 2 * MIB] {
                rig.perform(Operation::Discard { length_bytes: MIB }, offset, &[]).unwrap();
                rig.perform(Operation::WriteZeroes { length_bytes: MIB, may_unmap: true }, offset, &[]).unwrap();
                rig.perform(Operation::WriteZeroes { length_bytes: MIB, may_unmap: false }, offset, &[]).unwrap();
            }
            rig.perform(Operation::Flush, 0, &[]).unwrap();
            drop(rig);
            assert!(fs::read(image).unwrap() == before, "{options}");
        }
        fs::remove_file(&top).unwrap();
        fs::remove_file(&base).unwrap();
    }
}

/// Zeros are written where the parent has data, and nowhere else.
#[test]
fn zeros_over_a_parent_take_room_only_where_it_has_data() {
    let (_directory, path) = directory();
    let base = create(&path, "base.vmdk", "subformat=monolithicSparse", None);
    Rig::new(writable(&base)).write(MIB + 512, &[1; 512]);
    let top = create(&path, "top.vmdk", "subformat=monolithicSparse", Some("base.vmdk"));
    let length = || fs::metadata(&top).unwrap().len();
    let empty = length();
    let mut rig = Rig::new(writable(&top));
    rig.perform(Operation::WriteZeroes { length_bytes: 3 * MIB, may_unmap: false }, 0, &[]).unwrap();
    assert!(rig.read(0, 3 * MIB as usize).iter().all(|&byte| byte == 0));
    drop(rig);
    assert_eq!(length().next_multiple_of(65536), empty.next_multiple_of(65536) + 65536);
    check(&top);
}

/// What a killed process had reserved, and what it wrote where nothing leads, is used by the next one.
#[test]
fn crashes_leave_no_room_that_nobody_uses() {
    const STEP: u64 = MIB / 2;
    let (_directory, path) = directory();
    let image = create(&path, "image.vmdk", "subformat=monolithicSparse", None);
    let empty = fs::metadata(&image).unwrap().len();
    let crash = path.join("crash.vmdk");
    let mut contents = vec![0; DISK_BYTES];
    for crashes in 1..=5 {
        let mut rig = Rig::new(writable(&image));
        let bytes = pattern(65536, crashes);
        rig.write(crashes * STEP, &bytes);
        contents[(crashes * STEP) as usize..][..65536].copy_from_slice(&bytes);
        // The file as it is while it is open, with a grain that no entry leads to.
        fs::copy(&image, &crash).unwrap();
        drop(rig);
        let file = fs::File::options().write(true).open(&crash).unwrap();
        file.write_all_at(&[9; 65536], (empty + (crashes + 1) * 65536).next_multiple_of(65536)).unwrap();
        fs::rename(&crash, &image).unwrap();
        assert!(fs::metadata(&image).unwrap().len() > empty + 16 * STEP);
    }
    let mut rig = Rig::new(writable(&image));
    rig.write(6 * STEP, &[6; 512]);
    contents[6 * STEP as usize..][..512].fill(6);
    assert!(rig.read_all() == contents);
    drop(rig);
    check(&image);
    assert!(fs::metadata(&image).unwrap().len() <= empty + 7 * 65536);
    holds(open(&image, VMDK), &contents);
}

/// An image of grains whose tables can be bent.
fn image_with_grains(path: &Path) -> (PathBuf, Vec<u8>) {
    let image = create(path, "image.vmdk", "subformat=monolithicSparse", None);
    qemu_io(text(&image), "vmdk", &["write -P 1 0 1M"]);
    let bytes = fs::read(&image).unwrap();
    (image, bytes)
}

#[test]
fn an_entry_that_leads_where_something_lies_is_refused_and_nothing_is_written() {
    let (_directory, path) = directory();
    let (image, bytes) = image_with_grains(&path);
    let number = |at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap());
    let directory = number(56) as usize * 512;
    let redundant = number(48);
    let table = number(directory);
    let first = number(table as usize * 512);
    let entry = table as usize * 512 + 4;
    // Of a grain, both tables say the same.
    let copied = number(redundant as usize * 512) as usize * 512 + 4;
    for (at, value, wanted) in [
        // A grain: over the header, the descriptor, both directories, both tables, another grain, half of one.
        (entry, 1, "over its header or tables"),
        (entry, 2, "over its header or tables"),
        (entry, directory as u32 / 512, "over its header or tables"),
        (entry, redundant, "over its header or tables"),
        (entry, table, "over its header or tables"),
        (entry, table.saturating_sub(100).max(3), "over its header or tables"),
        (entry, first, "where another one lies"),
        (entry, first + 1, "not a whole number of grains"),
        (entry, u32::MAX, "behind its end"),
        (entry, u32::MAX - 1, "behind its end"),
        (entry, bytes.len() as u32 / 512, "behind its end"),
        // A table: over the header, itself in another place, a grain, behind the end.
        (directory, 1, "a grain table cannot lie at"),
        (directory, first, "is damaged"),
        (directory, u32::MAX, "a grain table cannot lie at"),
        (directory, number(redundant as usize * 512), "two grain tables lie at"),
    ] {
        let mut bent = bytes.clone();
        bent[at..at + 4].copy_from_slice(&value.to_le_bytes());
        if at == entry {
            bent[copied..copied + 4].copy_from_slice(&value.to_le_bytes());
        }
        fs::write(&image, &bent).unwrap();
        let error = refused(&image);
        assert!(error.contains(wanted), "{value} at {at}: {error}");
        assert!(fs::read(&image).unwrap() == bent);
    }
}

/// Every field of the header and the first entries at 0, 1, the largest and the one below: what opens is written to,
/// and either fails or holds what was written; nothing else of the disk changes.
#[test]
fn absurd_numbers_destroy_nothing() {
    let (_directory, path) = directory();
    let (image, bytes) = image_with_grains(&path);
    let directory = u64::from_le_bytes(bytes[56..64].try_into().unwrap()) as usize * 512;
    let table = u32::from_le_bytes(bytes[directory..directory + 4].try_into().unwrap()) as usize * 512;
    let redundant = u64::from_le_bytes(bytes[48..56].try_into().unwrap()) as usize * 512;
    let copy = u32::from_le_bytes(bytes[redundant..redundant + 4].try_into().unwrap()) as usize * 512;
    let fields = [
        (4, 4),
        (8, 4),
        (12, 8),
        (20, 8),
        (28, 8),
        (36, 8),
        (44, 4),
        (48, 8),
        (56, 8),
        (64, 8),
        (72, 1),
        (73, 4),
        (77, 2),
        (directory, 4),
        (table, 4),
        (table + 4, 4),
        (table + 400, 4),
    ];
    let mut opened = 0;
    for (at, width) in fields {
        for value in [0, 1, 2, u64::MAX, u64::MAX - 1] {
            let mut bent = bytes.clone();
            bent[at..at + width].copy_from_slice(&value.to_le_bytes()[..width]);
            if at >= table {
                // Of a grain, both tables say the same.
                let copied = copy + (at - table);
                bent[copied..copied + width].copy_from_slice(&value.to_le_bytes()[..width]);
            }
            fs::write(&image, &bent).unwrap();
            let Ok(disk) = try_open(&image, VMDK, &FileOptions::default()) else {
                assert!(fs::read(&image).unwrap() == bent, "{value} at {at}");
                continue;
            };
            opened += 1;
            let mut rig = Rig::new(disk);
            let capacity = rig.disk.geometry().capacity_bytes;
            for offset in [0, 65536, MIB, 3 * MIB] {
                if offset + 1024 > capacity {
                    continue;
                }
                let before = (offset > 0).then(|| rig.read(offset - 512, 512));
                let bytes = pattern(1024, offset);
                if rig.write_as(WRITE, offset, &bytes).is_ok() {
                    assert!(rig.read(offset, 1024) == bytes, "{value} at {at}");
                }
                assert!(before.is_none_or(|before| rig.read(offset - 512, 512) == before), "{value} at {at}");
            }
            drop(rig);
            let report = open(&image, VMDK).check(&mut |line| panic!("{value} at {at}: {line}")).unwrap();
            assert_eq!(report.corruptions, 0);
        }
    }
    assert!(opened > 20, "{opened}");
}

#[test]
fn what_is_only_read_says_why() {
    let (_directory, path) = directory();
    let image = create(&path, "stream.vmdk", "subformat=streamOptimized", None);
    assert!(refused(&image).contains("has compressed grains, and such a VMDK is only read: add ,ro, or make a qcow2"));
    let several = create(&path, "several.vmdk", "subformat=twoGbMaxExtentSparse", None);
    let extent = path.join("several-s001.vmdk");
    assert!(refused(&extent).contains("does not say its CID once, as a number"), "{}", refused(&extent));
    drop(several);
    let disk = pattern(MIB as usize, 1);
    for (kind, line, wanted) in [
        (Kind::Cowd, "VMFSSPARSE", "is an ESX server's, and such a VMDK is only read"),
        (Kind::SeSparse, "SESPARSE", "is in a format that is only read"),
    ] {
        fs::write(path.join("extent"), VmdkImage::of(kind, &disk).bytes()).unwrap();
        let image = path.join("image.vmdk");
        fs::write(&image, descriptor(1, None, &format!("RW 2048 {line} \"extent\""))).unwrap();
        let allowed = blockyard_block::AllowedDirectories::new(&[&path]).unwrap();
        let error = BlockMapDisk::open(&image, VMDK, &FileOptions::default(), &allowed).unwrap_err();
        let error = blockyard_block::explain(&error);
        assert!(error.contains(wanted), "{error}");
        // What nobody writes to is as good as any.
        fs::write(&image, descriptor(1, None, &format!("RDONLY 2048 {line} \"extent\""))).unwrap();
        let mut rig = Rig::new(writable(&image));
        assert!(rig.write_as(WRITE, 0, &[1; 512]).is_err());
        drop(rig);
        holds(open(&image, VMDK), &disk);
    }
}

#[test]
fn parts_of_a_disk_that_nobody_may_write_to_stay() {
    let (_directory, path) = directory();
    let disk = pattern(4 * MIB as usize, 1);
    fs::write(path.join("flat"), &disk).unwrap();
    fs::write(path.join("fixed"), &disk).unwrap();
    let mut grains = VmdkImage::of(Kind::Hosted, &disk[..MIB as usize]);
    grains.grains.retain(|(number, _)| *number != 3);
    grains.grains.push((3, Grain::Zeros));
    fs::write(path.join("grains"), grains.bytes()).unwrap();
    let image = path.join("image.vmdk");
    let extents = "RW 2048 SPARSE \"grains\"\nRDONLY 2048 FLAT \"fixed\" 0\nRW 2048 FLAT \"flat\" 2048\nRW 2048 ZERO";
    fs::write(&image, descriptor(1, None, extents)).unwrap();
    let mut rig = Rig::new(writable(&image));
    let mut contents = rig.read_all();
    for (offset, is_possible) in [(0, true), (MIB, false), (2 * MIB, true), (3 * MIB, false)] {
        let bytes = pattern(65536 * 5, offset);
        assert_eq!(rig.write_as(WRITE, offset, &bytes).is_ok(), is_possible, "{offset}");
        let zeroed = rig.perform(Operation::WriteZeroes { length_bytes: 4096, may_unmap: true }, offset + 4096, &[]);
        assert_eq!(zeroed.is_ok(), is_possible || offset == 3 * MIB, "{offset}");
        if is_possible {
            contents[offset as usize..][..bytes.len()].copy_from_slice(&bytes);
            contents[offset as usize + 4096..][..4096].fill(0);
        }
    }
    rig.perform(Operation::Flush, 0, &[]).unwrap();
    assert!(rig.read_all() == contents);
    drop(rig);
    holds(open(&image, VMDK), &contents);
}

#[test]
fn a_writer_is_alone() {
    let (_directory, path) = directory();
    let image = create(&path, "image.vmdk", "subformat=monolithicSparse", None);
    let disk = writable(&image);
    assert!(refused(&image).contains("is in use"), "{}", refused(&image));
    assert!(try_open(&image, VMDK, &read_only()).is_err());
    drop(disk);
    let readers = [open(&image, VMDK), open(&image, VMDK)];
    assert!(refused(&image).contains("is in use"));
    drop(readers);
    // A parent is read while its difference is written to.
    let top = create(&path, "top.vmdk", "subformat=monolithicSparse", Some("image.vmdk"));
    let disk = writable(&top);
    assert!(refused(&image).contains("is in use"));
    drop((open(&image, VMDK), disk));
    fs::set_permissions(&image, fs::Permissions::from_mode(0o400)).unwrap();
    drop(writable(&top));
}

#[test]
fn a_file_that_is_cut_off_is_not_written_to() {
    let (_directory, path) = directory();
    let (image, bytes) = image_with_grains(&path);
    for length in [512, 1024, 11264, 30000, 65536, bytes.len() - 65536, bytes.len() - 512] {
        fs::write(&image, &bytes[..length]).unwrap();
        let error = refused(&image);
        assert!(["damaged", "cut off", "CID", "lost its"].iter().any(|word| error.contains(word)), "{length}: {error}");
        assert!(fs::read(&image).unwrap() == bytes[..length]);
    }
}
