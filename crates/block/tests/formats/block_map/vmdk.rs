//! VMDK.

use super::vmdk_image::{Grain, Kind, VmdkImage, descriptor, zlib};
use super::{Contents, MIB, compare_with_qemu, convert, directory, holds, open, raw, try_open};
use crate::rig::{Rig, pattern, qemu_img, qemu_io, read_only, text};
use blockyard_block::{
    AllowedDirectories, BlockMapDisk, BlockMapFormat, Disk, Extent, ExtentKind, FileOptions, OpenedFile, Operation,
    Qcow2MappingKind, RequestError, VmdkInfo, walk_extents,
};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;

const VMDK: BlockMapFormat = BlockMapFormat::Vmdk;

#[test]
fn sparse_images_hold_what_they_were_made_of() {
    compare_with_qemu(VMDK, "vmdk", "subformat=monolithicSparse", true);
    compare_with_qemu(VMDK, "vmdk", "subformat=twoGbMaxExtentSparse", true);
}

#[test]
fn compressed_images_hold_what_they_were_made_of() {
    compare_with_qemu(VMDK, "vmdk", "subformat=streamOptimized", true);
}

#[test]
fn flat_images_hold_what_they_were_made_of() {
    compare_with_qemu(VMDK, "vmdk", "subformat=monolithicFlat", false);
    compare_with_qemu(VMDK, "vmdk", "subformat=twoGbMaxExtentFlat", false);
}

/// Why an image is not opened, which may be another file's fault.
fn refused(image: &Path) -> String {
    let allowed = AllowedDirectories::new(&[image.parent().unwrap()]).unwrap();
    let error = BlockMapDisk::open(image, VMDK, &read_only(), &allowed).unwrap_err();
    let error = blockyard_block::explain(&error);
    assert!(!error.contains('\n'), "{error}");
    error
}

fn raw_of(path: &Path, image: &Path) -> Vec<u8> {
    let raw = path.join("as qemu has it");
    qemu_img(&["convert", "-f", "vmdk", "-O", "raw", text(image), text(&raw)]);
    fs::read(raw).unwrap()
}

/// Over the borders of files of 2 GiB.
#[test]
fn a_disk_in_several_files_is_one() {
    let (_directory, path) = directory();
    let image = path.join("image.vmdk");
    qemu_img(&["create", "-q", "-f", "vmdk", "-o", "subformat=twoGbMaxExtentSparse", text(&image), "5G"]);
    qemu_io(text(&image), "vmdk", &["write -P 1 2047M 2M", "write -P 2 4095M 1M", "write -P 3 4G 64k"]);
    let disk = open(&image, VMDK);
    assert_eq!(disk.geometry().capacity_bytes, 5 << 30);
    assert_eq!(disk.files().count(), 3);
    let (mapping, file) = disk.map(2 << 30..5 << 30).unwrap();
    assert!(matches!(mapping.kind, Qcow2MappingKind::Data { .. }) && mapping.length_bytes == MIB, "{mapping:?}");
    assert!(disk.files().nth(file.unwrap()).unwrap().ends_with("image-s002.vmdk"));
    let mut rig = Rig::new(disk);
    assert!(rig.read(2047 * MIB - 4096, 8192)[4096..].iter().all(|&byte| byte == 1));
    assert!(rig.read(2048 * MIB - 4096, 8192).iter().all(|&byte| byte == 1));
    let read = rig.read(4096 * MIB - 4096, 8192);
    assert!(read[..4096].iter().all(|&byte| byte == 2) && read[4096..].iter().all(|&byte| byte == 3));
    let mut extents = walk_extents(&*rig.disk, 4097 * MIB..5 << 30).map(Result::unwrap);
    assert!(extents.all(|extent| extent.kind == ExtentKind::Hole));
}

/// A descriptor that QEMU did not write: files of all sorts, with a parent behind those that have grains.
#[test]
fn files_of_all_sorts_make_a_disk() {
    let (_directory, path) = directory();
    let disk = pattern(8 * MIB as usize, 1);
    let part = |number: usize| &disk[number * MIB as usize..][..MIB as usize];
    let write = |name: &str, bytes: &[u8]| fs::write(path.join(name), bytes).unwrap();
    write("hosted", &VmdkImage::of(Kind::Hosted, part(0)).bytes());
    write("stream", &VmdkImage::of(Kind::Stream, part(1)).bytes());
    write("cowd", &VmdkImage::of(Kind::Cowd, part(2)).bytes());
    write("se", &VmdkImage::of(Kind::SeSparse, part(3)).bytes());
    write("flat", &disk);
    // The half of a file, and an extent that has nothing of its own.
    write("half", &VmdkImage::of(Kind::SeSparse, &[&part(6)[..MIB as usize / 2], &vec![0; 1 << 19]].concat()).bytes());
    write("none", &VmdkImage::new(Kind::Hosted, MIB).bytes());
    let extents = "RW 2048 SPARSE \"hosted\"\nRW 2048 SPARSE \"stream\"\nRW 2048 VMFSSPARSE \"cowd\"\n\
                   RW 2048 SESPARSE \"se\"\nRW 2048 FLAT \"flat\" 8192\nRW 2048 ZERO\nRW 2048 SESPARSE \"half\"\n\
                   RW 2048 SPARSE \"none\"";
    write("base.vmdk", descriptor(7, None, "RW 16384 FLAT \"flat\" 0").as_bytes());
    write("alone.vmdk", descriptor(8, None, extents).as_bytes());
    write("top.vmdk", descriptor(8, Some((7, "base.vmdk")), extents).as_bytes());
    let mut alone = disk.clone();
    alone[5 * MIB as usize..6 * MIB as usize].fill(0);
    let with_parent = alone.clone();
    alone[13 << 19..].fill(0);
    // QEMU looks for the footer of such a file in that of the descriptor, and passes over zeros.
    write("as hosted", &VmdkImage::of(Kind::Hosted, part(1)).bytes());
    write("zeros", &vec![0; MIB as usize]);
    let for_qemu = extents.replace("\"stream\"", "\"as hosted\"").replace("ZERO", "FLAT \"zeros\" 0");
    for (name, parent, wanted) in [("alone.vmdk", None, alone), ("top.vmdk", Some((7, "base.vmdk")), with_parent)] {
        let image = path.join(name);
        write("for qemu.vmdk", descriptor(8, parent, &for_qemu).as_bytes());
        assert!(raw_of(&path, &path.join("for qemu.vmdk")) == wanted, "{name} by qemu");
        let disk = open(&image, VMDK);
        assert_eq!(disk.check(&mut |line| panic!("{line}")).unwrap().corruptions, 0);
        holds(disk, &wanted);
    }
    // What nobody may see is an error, and need not be there.
    write("guarded.vmdk", descriptor(8, None, "RW 2048 SPARSE \"hosted\"\nNOACCESS 8 FLAT \"gone\" 0").as_bytes());
    let disk = open(&path.join("guarded.vmdk"), VMDK);
    assert!(disk.map(MIB..MIB + 512).is_err());
    assert_eq!(disk.extents(MIB..MIB + 4096).unwrap().kind, ExtentKind::Data);
    let mut rig = Rig::new(disk);
    assert_eq!(rig.perform(Operation::Read, MIB - 512, &Rig::segments(1024)), Err(RequestError::Os(13)));
    assert!(rig.read(MIB - 512, 512) == part(0)[MIB as usize - 512..]);
}

#[test]
fn all_kinds_of_grains_are_as_qemu_has_them() {
    let (_directory, path) = directory();
    for (kind, line) in
        [(Kind::Hosted, "SPARSE"), (Kind::Stream, "SPARSE"), (Kind::Cowd, "VMFSSPARSE"), (Kind::SeSparse, "SESPARSE")]
    {
        // Several tables, whatever the kind's are.
        let size_bytes = if kind == Kind::SeSparse { 34 * MIB + 4096 } else { 9 * MIB + 4096 };
        let wanted = raw(size_bytes, Contents::Pieces, 3);
        let mut image = VmdkImage::of(kind, &wanted);
        let free = (0..).find(|number| image.grains.iter().all(|(taken, _)| taken != number)).unwrap();
        if matches!(kind, Kind::Hosted | Kind::SeSparse) {
            image.grains.push((free, Grain::Zeros));
        }
        fs::write(path.join("extent"), image.bytes()).unwrap();
        fs::write(path.join("image.vmdk"), descriptor(1, None, &format!("RW {} {line} \"extent\"", size_bytes / 512)))
            .unwrap();
        let for_qemu = path.join(if kind == Kind::Stream { "extent" } else { "image.vmdk" });
        let by_qemu = raw_of(&path, &for_qemu);
        assert_eq!(by_qemu.len(), wanted.len(), "{line}");
        assert_eq!(by_qemu.iter().zip(&wanted).position(|(one, other)| one != other), None, "{line}");
        for name in ["extent", "image.vmdk"] {
            let disk = open(&path.join(name), VMDK);
            assert_eq!(disk.check(&mut |line| panic!("{line}")).unwrap().corruptions, 0);
            holds(disk, &wanted);
        }
        let options = FileOptions { logical_block_bytes: 4096, ..read_only() };
        holds(try_open(&path.join("image.vmdk"), VMDK, &options).unwrap(), &wanted);
    }
}

#[test]
fn differences_show_their_parents() {
    let (_directory, path) = directory();
    let (base, middle, top) = (path.join("base.vmdk"), path.join("middle.vmdk"), path.join("top.vmdk"));
    qemu_img(&["create", "-q", "-f", "vmdk", text(&base), "10M"]);
    qemu_io(text(&base), "vmdk", &["write -P 1 0 6M"]);
    qemu_img(&["create", "-q", "-f", "vmdk", "-b", text(&base), "-F", "vmdk", text(&middle)]);
    qemu_io(text(&middle), "vmdk", &["write -P 2 1M 3M"]);
    let options = "subformat=twoGbMaxExtentSparse,zeroed_grain=on";
    qemu_img(&["create", "-q", "-f", "vmdk", "-o", options, "-b", "middle.vmdk", "-F", "vmdk", text(&top)]);
    qemu_io(text(&top), "vmdk", &["write -P 3 2M 128k", "write -z 3M 1M", "write -z 8M 64k"]);
    holds(open(&top, VMDK), &raw_of(&path, &top));
    let disk = open(&top, VMDK);
    let files: Vec<_> = disk.files().map(|path| path.file_name().unwrap().to_owned()).collect();
    assert_eq!(files, ["top-s001.vmdk", "middle.vmdk", "base.vmdk"]);
    let depth = |at: u64| disk.map(at..at + 512).unwrap().0.depth;
    assert_eq!([2 * MIB, 3 * MIB, MIB, 5 * MIB].map(depth), [0, 0, 1, 2]);
    drop(disk);
    // As qemu-img has it, whichever way the parent is named.
    let info = VmdkInfo::of(&OpenedFile::open(&top, true).unwrap()).unwrap();
    assert_eq!(info.parent.as_deref(), Some("middle.vmdk"));
    // What it refers to must be allowed.
    let error = BlockMapDisk::open(&middle, VMDK, &read_only(), &AllowedDirectories::none()).unwrap_err().to_string();
    assert!(error.contains("base.vmdk, which lies in no directory that was allowed"), "{error}");
    // A parent that has been written to since.
    qemu_io(text(&base), "vmdk", &["write -P 4 0 64k"]);
    let error = refused(&top);
    assert!(error.contains("middle.vmdk is a difference from another image than"), "{error}");
    fs::remove_file(&base).unwrap();
    let error = try_open(&middle, VMDK, &read_only()).unwrap_err();
    assert!(error.contains("is a difference from an image that is not here"), "{error}");
}

/// Windows' paths, and disks that are their own parents.
#[test]
fn parents_are_looked_for_where_they_may_be() {
    let (_directory, path) = directory();
    let write = |name: &str, text: String| fs::write(path.join(name), text).unwrap();
    fs::write(path.join("data"), [5; 4096]).unwrap();
    write("base.vmdk", descriptor(7, None, "RW 8 FLAT \"data\" 0"));
    let image = VmdkImage::new(Kind::Hosted, 4096);
    for name in ["base.vmdk", "./base.vmdk", r"C:\vm\disks\base.vmdk", r"..\disks\base.vmdk", "/vm/disks/base.vmdk"] {
        let bytes = VmdkImage { descriptor: descriptor(1, Some((7, name)), ""), ..image.clone() }.bytes();
        fs::write(path.join("top.vmdk"), bytes).unwrap();
        holds(open(&path.join("top.vmdk"), VMDK), &[5; 4096]);
    }
    write("loop.vmdk", descriptor(7, Some((7, "loop.vmdk")), "RW 8 ZERO"));
    assert!(try_open(&path.join("loop.vmdk"), VMDK, &read_only()).unwrap_err().contains("depends on itself"));
    fs::write(path.join("grains"), image.bytes()).unwrap();
    write("twice.vmdk", descriptor(7, None, &"RW 8 SPARSE \"grains\"\n".repeat(2)));
    let error = refused(&path.join("twice.vmdk"));
    assert!(error.contains("grains depends on itself"), "{error}");
    // A chain of 33.
    for number in 0..33 {
        let parent = format!("{}.vmdk", number + 1);
        write(&format!("{number}.vmdk"), descriptor(7, Some((7, &parent)), "RW 8 ZERO"));
    }
    assert!(refused(&path.join("0.vmdk")).contains("one of more than 32 files"));
}

#[test]
fn what_extents_cannot_be_is_refused() {
    let (_directory, path) = directory();
    fs::write(path.join("grains"), VmdkImage::new(Kind::Hosted, MIB).bytes()).unwrap();
    fs::write(path.join("text"), descriptor(1, None, "RW 8 ZERO")).unwrap();
    fs::write(path.join("short"), [0; 512]).unwrap();
    let image = path.join("image.vmdk");
    for (extents, wanted) in [
        ("RW 8 SPARSE \"grains\"", "has 4096 bytes in"),
        ("RW 8 SPARSE \"text\"", "is a descriptor, and not the file of grains"),
        ("RW 8 SPARSE \"short\"", "is no VMDK descriptor"),
        ("RW 8 SPARSE \"gone\"", "No such file"),
        ("RW 8 SPARSE gone", "an extent that cannot be understood"),
        ("RW 8 SPARSE \"/etc/passwd\"", "lies in no directory that was allowed"),
        ("RW 8 SPARSE \"../x\"", "No such file"),
        ("RW 8 SPARSE \"nbd:x\"", "has a protocol"),
        ("RW 8 SPARSE \"image.vmdk\"", "depends on itself"),
        ("RW 2048 SPARSE \"grains\"\nRW 2 FLAT \"short\" 0", "wants 1024 bytes at 0 of"),
    ] {
        fs::write(&image, descriptor(1, None, extents)).unwrap();
        let error = refused(&image);
        assert!(error.contains(wanted), "{extents}: {error}");
    }
    // A descriptor within a file of no grains, which has the extents.
    let mut bytes =
        VmdkImage { descriptor: descriptor(1, None, "RW 8 ZERO\n"), ..VmdkImage::new(Kind::Hosted, MIB) }.bytes();
    bytes[12..20].fill(0);
    fs::write(&image, &bytes).unwrap();
    holds(open(&image, VMDK), &[0; 4096]);
    // Nothing of it can be written to.
    assert!(try_open(&image, VMDK, &FileOptions::default()).unwrap().geometry().read_only);
}

/// Numbers of all headers, each as it cannot be.
#[test]
fn headers_that_cannot_be_are_refused() {
    let (_directory, path) = directory();
    let file = path.join("image");
    let disk = raw(4 * MIB, Contents::Data, 1);
    let (hosted, stream) = (VmdkImage::of(Kind::Hosted, &disk).bytes(), VmdkImage::of(Kind::Stream, &disk).bytes());
    let (cowd, se) = (VmdkImage::of(Kind::Cowd, &disk).bytes(), VmdkImage::of(Kind::SeSparse, &disk).bytes());
    let footer = stream.len() - 1024;
    for (good, at, value, wanted) in [
        (&hosted, 4, 0, "is a VMDK of version 0"),
        (&hosted, 4, 4, "is a VMDK of version 4"),
        (&hosted, 12, 0, "without any extent"),
        (&hosted, 12, u64::MAX, "more bytes than a disk can have"),
        (&hosted, 12, 1 << 40, "its grain directory does not lie within the file"),
        (&hosted, 20, 0, "has grains of 0 sectors"),
        (&hosted, 20, 0x20_0001, "has grains of 2097153 sectors"),
        (&hosted, 28, u64::MAX, "its descriptor does not lie within the file"),
        (&hosted, 44, 0, "grain tables of 0 entries"),
        (&hosted, 44, 513, "grain tables of 513 entries"),
        (&hosted, 73, u64::from_le_bytes(*b"\n \n\n\0\0\0\0"), "transferred as if it were text"),
        (&hosted, 77, 2, "compressed by method 2"),
        (&stream, 20, 4097, "has compressed grains of 2097664 bytes"),
        (&stream, footer - 504, 1, "is cut off: there is no footer"),
        (&stream, footer + 520, 1, "is cut off: there is no footer"),
        (&stream, footer, 0, "is cut off: there is no footer"),
        (&stream, footer + 12, 1, "its footer is another disk's"),
        (&stream, footer + 56, u64::MAX, "its footer does not say"),
        (&stream, footer + 56, 1 << 40, "its grain directory does not lie within the file"),
        (&stream, footer + 56, 0, "its grain directory does not lie within the file"),
        (&cowd, 4, 2, "ESX's version 2"),
        (&cowd, 12, 0, "of no bytes"),
        (&cowd, 12, u64::from(u32::MAX), "has grains of 0 sectors"),
        (&cowd, 12, u64::from(u32::MAX) | 1 << 32, "has more tables than its directory"),
        (&cowd, 20, 2 << 32, "its grain directory does not lie within the file"),
        (&cowd, 20, u64::from(u32::MAX) | 2 << 32, "its grain directory does not lie within the file"),
        (&se, 8, 0x2_0000_0002, "of version 2.2"),
        (&se, 16, 0, "of no bytes"),
        (&se, 16, u64::MAX, "more bytes than a disk can have"),
        (&se, 16, 1 << 40, "has more tables than its directory"),
        (&se, 24, 16, "has grains of 16 sectors and tables of 64"),
        (&se, 32, 0, "has grains of 8 sectors and tables of 0"),
        (&se, 40, 1, "needs features that are not known here"),
        (&se, 80, 0, "its second header does not lie within the file"),
        (&se, 80, 2, "there is no second header"),
        (&se, 128, 1 << 54, "its grain directory does not lie within the file"),
        (&se, 128, 0, "its grain directory does not lie within the file"),
        (&se, 144, 1, "lie over each other"),
        (&se, 152, u64::MAX, "where a file cannot have them"),
        (&se, 192, u64::MAX, "where a file cannot have them"),
        (&se, 192, 4, "lie over each other"),
        (&se, 512 + 24, 1, "what is in its journal is not read"),
    ] {
        let mut bad = good.clone();
        bad[at..at + 8].copy_from_slice(&value.to_le_bytes());
        // What follows a number of fewer bytes stays as it is.
        let width = match () {
            () if at == 73 => 4,
            () if at == 77 => 2,
            () if [4, 44].contains(&at) && good[0] != 0xbe => 4,
            () => 8,
        };
        bad[at + width..at + 8].copy_from_slice(&good[at + width..at + 8]);
        fs::write(&file, bad).unwrap();
        let said = try_open(&file, VMDK, &read_only()).unwrap_err();
        assert!(said.contains(wanted), "{value:#x} at {at}: {said}");
    }
    for good in [&hosted, &stream, &cowd, &se] {
        for length in [4, 27, 511] {
            fs::write(&file, &good[..length]).unwrap();
            assert!(try_open(&file, VMDK, &read_only()).is_err());
        }
    }
}

#[test]
fn an_entry_that_leads_astray_is_an_error_where_it_is_asked_for() {
    let (_directory, path) = directory();
    let file = path.join("image");
    let disk = pattern(64 << 10, 1);
    for kind in [Kind::Hosted, Kind::Stream, Kind::Cowd] {
        let image = VmdkImage::of(kind, &disk);
        let good = image.bytes();
        let directory = match kind {
            Kind::Stream => VmdkImage::directory_offset(&good[good.len() - 1024..]),
            Kind::Cowd => 2048,
            _ => VmdkImage::directory_offset(&good),
        };
        let number = |at: usize| u32::from_le_bytes(good[at..at + 4].try_into().unwrap());
        let table = number(directory) as usize * 512;
        // Both of a grain's entries are bent, where there are two.
        let copy = if kind == Kind::Hosted { number(number(48) as usize * 512) as usize * 512 } else { table };
        for (entry, wanted) in [
            (u32::MAX, "it reaches behind the end of the file"),
            (u32::MAX - 1, "it reaches behind the end of the file"),
            (directory as u32 / 512, "it lies over the image's header or tables"),
        ] {
            let mut bad = good.clone();
            bad[table + 4..table + 8].copy_from_slice(&entry.to_le_bytes());
            bad[copy + 4..copy + 8].copy_from_slice(&entry.to_le_bytes());
            fs::write(&file, bad).unwrap();
            let image = open(&file, VMDK);
            let at = if kind == Kind::Cowd { 512 } else { 4096 };
            let said = image.extents(at..at + 512).unwrap_err().to_string();
            assert!(said.contains(&format!("of the block at {at} of its disk, {wanted}")), "{said}");
            let report = image.check(&mut |line| assert!(line.starts_with("ERROR block 1: "), "{line}"));
            assert_eq!(report.unwrap().corruptions, 1);
            let mut rig = Rig::new(image);
            assert_eq!(rig.perform(Operation::Read, at, &Rig::segments(512)), Err(RequestError::Os(5)));
            assert!(rig.read(0, 512) == disk[..512]);
        }
        // Of tables, the redundant ones count where there are some.
        for entry in [u32::MAX, directory as u32 / 512] {
            let mut bad = good.clone();
            bad[directory..directory + 4].copy_from_slice(&entry.to_le_bytes());
            fs::write(&file, bad).unwrap();
            let image = open(&file, VMDK);
            match image.extents(0..512) {
                Ok(_) => assert!(kind == Kind::Hosted),
                Err(error) => {
                    assert!(kind != Kind::Hosted && error.to_string().contains("a grain table cannot lie at"))
                }
            }
        }
        // Two entries for one grain.
        let mut bad = good.clone();
        bad.copy_within(table..table + 4, table + 4);
        bad.copy_within(copy..copy + 4, copy + 4);
        fs::write(&file, bad).unwrap();
        let mut lines = 0;
        let report = open(&file, VMDK).check(&mut |line| {
            assert!(line.starts_with("ERROR two blocks lie at"), "{line}");
            lines += 1;
        });
        assert_eq!((report.unwrap().corruptions, lines), (1, 1));
    }
    let mut bad = VmdkImage::of(Kind::Hosted, &disk).bytes();
    bad[56..64].copy_from_slice(&(1_u64 << 40).to_le_bytes());
    fs::write(&file, bad).unwrap();
    holds(open(&file, VMDK), &disk);
}

#[test]
fn compressed_grains_that_are_not_whole_are_errors() {
    let (_directory, path) = directory();
    let file = path.join("image");
    let disk = vec![7; 64 << 10];
    let good = VmdkImage::of(Kind::Stream, &disk).bytes();
    let first = 5 * 512;
    let packed = |bytes: &[u8]| {
        let packed = zlib(bytes);
        let mut marked = (packed.len() as u32).to_le_bytes().to_vec();
        marked.extend(packed);
        assert!(marked.len() < 500);
        marked
    };
    let mut spoiled = packed(&[7; 4096]);
    let last = spoiled.len() - 1;
    spoiled[last] ^= 1;
    for (what, bytes) in [
        ("too little", packed(&[7; 4095])),
        ("too much", packed(&[7; 4097])),
        ("much too much", packed(&[7; 40_000])),
        ("another checksum", spoiled),
        ("nothing", packed(&[])),
        ("no length", vec![0; 4]),
        ("a length that it cannot have", 8193_u32.to_le_bytes().to_vec()),
        ("all the bytes there are", vec![0xff; 4]),
        ("cut off", 10_u32.to_le_bytes().to_vec()),
        ("no zlib", [&4_u32.to_le_bytes()[..], b"abcd"].concat()),
    ] {
        let mut bad = good.clone();
        bad[first + 8..first + 8 + bytes.len()].copy_from_slice(&bytes);
        fs::write(&file, bad).unwrap();
        let disk = open(&file, VMDK);
        assert_eq!(disk.map(0..4096).unwrap().0.kind, Qcow2MappingKind::Compressed);
        let mut rig = Rig::new(disk);
        assert_eq!(rig.perform(Operation::Read, 0, &Rig::segments(4096)), Err(RequestError::Os(5)), "{what}");
        assert!(rig.read(4096, 4096).iter().all(|&byte| byte == 7));
    }
    // The last grain may be as short as the disk.
    let mut short = VmdkImage::of(Kind::Stream, &disk[..8192 - 512]);
    short.grains[1].1 = Grain::Data(vec![7; 3584]);
    fs::write(&file, short.bytes()).unwrap();
    holds(open(&file, VMDK), &disk[..8192 - 512]);
}

#[test]
fn parts_of_compressed_grains_are_read_at_random() {
    let (_directory, path) = directory();
    let wanted = raw(17 * MIB, Contents::Data, 5);
    let image = convert(&path, &wanted, "vmdk", "subformat=streamOptimized");
    let mut rig = Rig::new(open(&image, VMDK));
    let mut random = crate::rig::Random::new(4);
    for _ in 0..500 {
        let length = (1 + random.below(300)) * 512;
        let offset = random.below((17 * MIB - length) / 512) * 512;
        assert!(rig.read(offset, length as usize) == wanted[offset as usize..][..length as usize]);
    }
}

/// Tables are read when they are needed.
#[test]
fn a_vast_disk_costs_nothing_to_open() {
    let (_directory, path) = directory();
    let file = path.join("image");
    // 2^53 bytes, whose directory alone has 1 GiB, in a file that is mostly a hole.
    let size_bytes = 1_u64 << 53;
    let mut header = VmdkImage::new(Kind::Hosted, MIB).bytes();
    header[12..20].copy_from_slice(&(size_bytes / 512).to_le_bytes());
    header[20..28].copy_from_slice(&128_u64.to_le_bytes());
    header[48..56].copy_from_slice(&16_u64.to_le_bytes());
    header[56..64].copy_from_slice(&16_u64.to_le_bytes());
    fs::write(&file, &header[..2560]).unwrap();
    let handle = fs::OpenOptions::new().write(true).open(&file).unwrap();
    handle.set_len(2 << 30).unwrap();
    let disk = open(&file, VMDK);
    assert_eq!(disk.geometry().capacity_bytes, size_bytes);
    let mut rig = Rig::new(disk);
    for offset in [0, size_bytes / 2, size_bytes - 4096] {
        assert!(rig.read(offset, 4096).iter().all(|&byte| byte == 0));
    }
    // The last table, and the last grain.
    let (table, grain) = ((1 << 30) + (1 << 20), (1 << 30) + (2 << 20));
    handle.write_all_at(&((table / 512) as u32).to_le_bytes(), 8192 + (1 << 30) - 4).unwrap();
    handle.write_all_at(&((grain / 512) as u32).to_le_bytes(), table + 511 * 4).unwrap();
    handle.write_all_at(&[9; 65_536], grain).unwrap();
    let mut rig = Rig::new(open(&file, VMDK));
    assert!(rig.read(size_bytes - 65_536, 65_536).iter().all(|&byte| byte == 9));
    let Extent { kind, .. } = rig.disk.extents(size_bytes - 65_536..size_bytes).unwrap();
    assert_eq!(kind, ExtentKind::Data);
}

#[test]
fn it_says_what_it_is() {
    let (_directory, path) = directory();
    let image = convert(&path, &raw(MIB, Contents::Data, 1), "vmdk", "subformat=streamOptimized");
    let info = VmdkInfo::of(&OpenedFile::open(&image, true).unwrap()).unwrap();
    assert_eq!((info.size_bytes(), info.create_type.as_str(), info.is_dirty), (MIB, "streamOptimized", false));
    assert_eq!((info.extents.len(), info.extents[0].grains, info.extents[0].kind), (1, Some((65_536, true)), "SPARSE"));
    let mut bytes = VmdkImage::new(Kind::Hosted, MIB).bytes();
    bytes[72] = 1;
    fs::write(&image, &bytes).unwrap();
    assert!(VmdkInfo::of(&OpenedFile::open(&image, true).unwrap()).unwrap().is_dirty);
    open(&image, VMDK);
}
