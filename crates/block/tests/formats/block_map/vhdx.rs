//! VHDX.

use super::vhdx_image::{
    ALL, Change, HEADER_OFFSETS, LOG_BYTES, LOG_OFFSET, LogEntry, METADATA_OFFSET, REGION_TABLE_OFFSETS, Sectors,
    TABLE_OFFSET, VhdxImage, put, set_checksum,
};
use super::{Contents, MIB, compare_with_qemu, convert, directory, holds, open, raw, try_open};
use crate::rig::{Rig, pattern, qemu_img, read_only, run_accepting, text};
use blockyard_block::{
    BlockMapDisk, BlockMapFormat, BlockMapInfo, Disk, OpenedFile, Operation, Qcow2MappingKind, RequestError,
};
use std::fs;
use std::path::Path;
use std::process::Command;

const VHDX: BlockMapFormat = BlockMapFormat::Vhdx;
const BLOCK: usize = 1 << 20;

#[test]
fn dynamic_images_hold_what_they_were_made_of() {
    for options in ["", "block_size=1M", "block_size=2M,log_size=2M,block_state_zero=off", "block_size=32M"] {
        compare_with_qemu(VHDX, "vhdx", options, false);
    }
}

#[test]
fn fixed_images_hold_what_they_were_made_of() {
    compare_with_qemu(VHDX, "vhdx", "subformat=fixed", false);
    compare_with_qemu(VHDX, "vhdx", "subformat=fixed,block_size=1M", false);
}

/// Behind a chunk of 4096 blocks there is an entry for a bitmap.
#[test]
fn blocks_behind_the_first_chunk_are_found() {
    let (_directory, path) = directory();
    let image = path.join("image");
    qemu_img(&["create", "-q", "-f", "vhdx", "-o", "block_size=1M", text(&image), "9G"]);
    let places = [0, 4095 * MIB, 4096 * MIB, 4097 * MIB + 4096, 8191 * MIB, 8192 * MIB, 9215 * MIB];
    let commands: Vec<_> = (1..).zip(places).map(|(n, at)| format!("write -P {n} {at} 64k")).collect();
    let commands: Vec<_> = commands.iter().map(String::as_str).collect();
    crate::rig::qemu_io(text(&image), "vhdx", &commands);
    let disk = open(&image, VHDX);
    assert_eq!(disk.check(&mut |line| panic!("{line}")).unwrap().allocated_clusters, 7);
    let mut rig = Rig::new(disk);
    for (n, at) in (1..).zip(places) {
        assert!(rig.read(at, 65536) == vec![n; 65536], "{at}");
        if !places.contains(&(at + MIB)) {
            assert!(rig.read(at / MIB * MIB + MIB - 4096, 4096) == vec![0; 4096]);
        }
    }
}

#[test]
fn what_is_made_here_is_what_qemu_reads() {
    let (_directory, path) = directory();
    let (file, raw) = (path.join("image"), path.join("raw"));
    for sector_bytes in [512, 4096] {
        let data = |seed| pattern(BLOCK, seed);
        let blocks = vec![(3, 6, ALL, data(1)), (0, 6, ALL, data(2)), (1, 2, ALL, vec![]), (2, 3, ALL, vec![])];
        let image = VhdxImage { blocks, sector_bytes, ..VhdxImage::new(5 * MIB - 4096, BLOCK) };
        fs::write(&file, image.bytes()).unwrap();
        let disk = open(&file, VHDX);
        let (mapping, _) = disk.map(3 * MIB..4 * MIB).unwrap();
        assert_eq!(mapping.kind, Qcow2MappingKind::Data { offset_bytes: 4 * MIB });
        let wanted = [data(2), vec![0; 2 * BLOCK], data(1), vec![0; BLOCK - 4096]].concat();
        holds(disk, &wanted);
        // QEMU reads no others.
        if sector_bytes == 512 {
            qemu_img(&["convert", "-f", "vhdx", "-O", "raw", text(&file), text(&raw)]);
            assert!(fs::read(&raw).unwrap() == wanted);
        }
    }
    let info = BlockMapInfo::of(&OpenedFile::open(&file, true).unwrap(), VHDX).unwrap();
    assert_eq!((info.subformat, info.block_bytes, info.size_bytes), ("dynamic", Some(MIB), 5 * MIB - 4096));
}

const PARENT_ID: &str = "{83ed0ec3-24c8-49a6-a959-5e4bf1288bfb}";

fn locator(entries: &[(&str, &str)]) -> Vec<(String, String)> {
    entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
}

/// A base, and a difference from it: of the first block all sectors, of the second some, of the third none, the fourth
/// zeros.
fn pair(path: &Path, sector_bytes: usize, entries: &[(&str, &str)]) -> (VhdxImage, Vec<u8>) {
    let base = pattern(5 * BLOCK, 1);
    let blocks = (0..5).map(|n| (n, 6, ALL, base[n * BLOCK..][..BLOCK].to_vec())).collect();
    let data_write_id = super::vhdx_image::guid(PARENT_ID);
    let image = VhdxImage { blocks, data_write_id, sector_bytes, ..VhdxImage::new(5 * MIB, BLOCK) };
    fs::write(path.join("base.vhdx"), image.bytes()).unwrap();
    let (full, part) = (pattern(BLOCK, 2), pattern(BLOCK, 3));
    let is_there: Sectors = |sector| sector % 5 == 0 || (40..100).contains(&sector);
    let mut wanted = base;
    wanted[..BLOCK].copy_from_slice(&full);
    for at in (0..BLOCK).step_by(sector_bytes).filter(|at| is_there(at / sector_bytes)) {
        wanted[BLOCK + at..][..sector_bytes].copy_from_slice(&part[at..][..sector_bytes]);
    }
    wanted[3 * BLOCK..4 * BLOCK].fill(0);
    let blocks = vec![(0, 6, ALL, full), (1, 7, is_there, part), (3, 2, ALL, vec![])];
    let locator = locator(entries);
    let image = VhdxImage { blocks, flags: 2, locator, sector_bytes, ..VhdxImage::new(5 * MIB, BLOCK) };
    fs::write(path.join("image"), image.bytes()).unwrap();
    (image, wanted)
}

#[test]
fn a_difference_shows_its_parent_where_it_has_nothing() {
    let (_directory, path) = directory();
    let file = path.join("image");
    for (sector_bytes, entries) in [
        (512, &[("parent_linkage", PARENT_ID), ("relative_path", r".\base.vhdx")][..]),
        (4096, &[("parent_linkage", PARENT_ID), ("absolute_win32_path", r"\\?\d:\path2\sub3\base.vhdx")]),
        (
            512,
            &[
                ("parent_linkage", "{00000000-0000-0000-0000-000000000000}"),
                ("parent_linkage2", PARENT_ID),
                ("relative_path", r"..\none.vhdx"),
                ("volume_path", r"\\?\Volume{26A21BDA-A627-11D7-9931-806E6F6E6963}\path2\base.vhdx"),
                ("something", "else"),
            ],
        ),
    ] {
        let (_, wanted) = pair(&path, sector_bytes, entries);
        let disk = open(&file, VHDX);
        assert_eq!(disk.files().count(), 2);
        let (mapping, _) = disk.map(MIB + 1024 * 4..disk.geometry().capacity_bytes).unwrap();
        assert_eq!(mapping.depth, 1);
        holds(disk, &wanted);
    }
    let info = BlockMapInfo::of(&OpenedFile::open(&file, true).unwrap(), VHDX).unwrap();
    assert_eq!(info.subformat, "differencing");
    assert!(info.parent.unwrap().ends_with(r"\path2\base.vhdx"));
}

/// A bitmap is looked at in slices of 32768 sectors, and there is one for each 4 GiB.
#[test]
fn sectors_of_large_blocks_and_of_later_chunks_are_found() {
    let (_directory, path) = directory();
    let file = path.join("image");
    let locator = locator(&[("parent_linkage", PARENT_ID), ("relative_path", "base.vhdx")]);
    let data_write_id = super::vhdx_image::guid(PARENT_ID);
    let base = VhdxImage { data_write_id, ..VhdxImage::new(4100 * MIB, BLOCK) };
    fs::write(path.join("base.vhdx"), base.bytes()).unwrap();
    let is_there: Sectors = |sector| sector % 32768 == 0 || (32766..32770).contains(&sector) || sector % 7 == 3;
    for (size_bytes, block_bytes, block) in [(64 * MIB, 32 << 20, 1), (4100 * MIB, BLOCK, 4098)] {
        let data = pattern(block_bytes, 5);
        let blocks = vec![(block, 7, is_there, data.clone())];
        let image = VhdxImage { blocks, flags: 2, locator: locator.clone(), ..VhdxImage::new(size_bytes, block_bytes) };
        fs::write(&file, image.bytes()).unwrap();
        let mut wanted = vec![0; block_bytes];
        for sector in (0..block_bytes / 512).filter(|&sector| is_there(sector)) {
            wanted[sector * 512..][..512].copy_from_slice(&data[sector * 512..][..512]);
        }
        let mut rig = Rig::new(open(&file, VHDX));
        let start = block as u64 * block_bytes as u64;
        for at in (0..block_bytes).step_by(BLOCK) {
            assert!(rig.read(start + at as u64, BLOCK) == wanted[at..][..BLOCK], "{at} of {block_bytes}");
        }
        assert!(rig.read(start - MIB, BLOCK) == vec![0; BLOCK]);
    }
}

#[test]
fn a_parent_that_is_another_or_not_said_is_refused() {
    let (_directory, path) = directory();
    let file = path.join("image");
    let (image, _) = pair(&path, 512, &[]);
    for (entries, wanted) in [
        (&[][..], "does not say which image it is a difference from"),
        (&[("parent_linkage", "nonsense"), ("relative_path", "base.vhdx")], "does not say which image"),
        (&[("parent_linkage", PARENT_ID)], "put it beside this one"),
        (&[("parent_linkage", PARENT_ID), ("relative_path", r"..\..\etc\passwd")], "refers to"),
        (
            &[("parent_linkage", "{83ed0ec3-24c8-49a6-a959-5e4bf1288bf0}"), ("relative_path", "base.vhdx")],
            "is a difference from another image than",
        ),
    ] {
        fs::write(&file, VhdxImage { locator: locator(entries), ..image.clone() }.bytes()).unwrap();
        let said = try_open(&file, VHDX, &read_only()).unwrap_err();
        assert!(said.contains(wanted), "{entries:?}: {said}");
    }
    // The parent was written to since.
    let good = [("parent_linkage", PARENT_ID), ("relative_path", "base.vhdx")];
    pair(&path, 512, &good);
    let mut base = fs::read(path.join("base.vhdx")).unwrap();
    base[HEADER_OFFSETS[1] + 32] ^= 1;
    set_checksum(&mut base[HEADER_OFFSETS[1]..][..4096]);
    fs::write(path.join("base.vhdx"), base).unwrap();
    assert!(try_open(&file, VHDX, &read_only()).unwrap_err().contains("its id differs"));
    // A bitmap that is not there.
    let (image, wanted) = pair(&path, 512, &good);
    let mut bytes = image.bytes();
    put(&mut bytes, image.bitmap_entry_offset(1), &[0; 8]);
    fs::write(&file, bytes).unwrap();
    let disk = open(&file, VHDX);
    let said = disk.extents(MIB..2 * MIB).unwrap_err().to_string();
    assert!(said.contains("of the bitmap of a block, it is not there"), "{said}");
    let mut rig = Rig::new(disk);
    assert_eq!(rig.perform(Operation::Read, MIB, &Rig::segments(4096)), Err(RequestError::Os(5)));
    assert!(rig.read(0, 4096) == wanted[..4096]);
}

#[test]
fn the_later_header_that_is_whole_counts() {
    let (_directory, path) = directory();
    let file = path.join("image");
    let blocks = vec![(0, 6, ALL, pattern(BLOCK, 1))];
    let good = VhdxImage { blocks, ..VhdxImage::new(MIB, BLOCK) }.bytes();
    let refusal = |bytes: &[u8]| {
        fs::write(&file, bytes).unwrap();
        try_open(&file, VHDX, &read_only()).unwrap_err()
    };
    for offset in HEADER_OFFSETS.into_iter().chain(REGION_TABLE_OFFSETS) {
        let mut bad = good.clone();
        bad[offset + 100] ^= 1;
        fs::write(&file, &bad).unwrap();
        holds(open(&file, VHDX), &pattern(BLOCK, 1));
    }
    for (offsets, wanted) in [
        (HEADER_OFFSETS, "neither of its headers is whole"),
        (REGION_TABLE_OFFSETS, "neither of its region tables is whole"),
    ] {
        let mut bad = good.clone();
        offsets.into_iter().for_each(|offset| bad[offset + 100] ^= 1);
        assert!(refusal(&bad).contains(wanted));
    }
    // The later one says that there is a log behind the end of the file.
    let mut bad = good.clone();
    put(&mut bad, HEADER_OFFSETS[0] + 72, &(1_u64 << 40).to_le_bytes());
    set_checksum(&mut bad[HEADER_OFFSETS[0]..][..4096]);
    fs::write(&file, &bad).unwrap();
    open(&file, VHDX);
    put(&mut bad, HEADER_OFFSETS[0] + 8, &9_u64.to_le_bytes());
    set_checksum(&mut bad[HEADER_OFFSETS[0]..][..4096]);
    assert!(refusal(&bad).contains("its log does not lie within the file"));
    put(&mut bad, HEADER_OFFSETS[0] + 8, &5_u64.to_le_bytes());
    set_checksum(&mut bad[HEADER_OFFSETS[0]..][..4096]);
    assert!(refusal(&bad).contains("neither of its headers is the later one"));
    for length in [0, 7, 8, 65536, MIB as usize, 3 * MIB as usize - 1] {
        refusal(&good[..length]);
    }
}

#[test]
fn headers_and_metadata_that_cannot_be_are_refused() {
    let (_directory, path) = directory();
    let file = path.join("image");
    let good = VhdxImage::new(4 * MIB, BLOCK).bytes();
    let item = |n: usize| METADATA_OFFSET + 32 + n * 32;
    let value = |n: usize| METADATA_OFFSET + (64 << 10) + n * 4096;
    for (at, number, wanted) in [
        (0, 0_u32, "is no VHDX image"),
        (HEADER_OFFSETS[1] + 66, 2, "is a VHDX of version 2"),
        (HEADER_OFFSETS[1] + 68, 4096, "its log does not lie within the file"),
        (HEADER_OFFSETS[1] + 72, 0, "its log does not lie within the file"),
        (REGION_TABLE_OFFSETS[0] + 8, 2048, "it has 2048 regions"),
        (REGION_TABLE_OFFSETS[0] + 8, u32::MAX, "it has 4294967295 regions"),
        (REGION_TABLE_OFFSETS[0] + 8, 1, "it has no table or no metadata"),
        (REGION_TABLE_OFFSETS[0] + 8, 0, "it has no table or no metadata"),
        (REGION_TABLE_OFFSETS[0] + 16, 0, "needs a region that is not known"),
        (REGION_TABLE_OFFSETS[0] + 32, 1, "a region does not lie within the file"),
        (REGION_TABLE_OFFSETS[0] + 32, 0, "its regions overlap"),
        (REGION_TABLE_OFFSETS[0] + 32, METADATA_OFFSET as u32, "its regions overlap"),
        (REGION_TABLE_OFFSETS[0] + 32, LOG_OFFSET as u32, "its regions overlap"),
        (REGION_TABLE_OFFSETS[0] + 36, u32::MAX, "a region does not lie within the file"),
        (REGION_TABLE_OFFSETS[0] + 40, u32::MAX, "a region does not lie within the file"),
        (REGION_TABLE_OFFSETS[0] + 40, 0, "more blocks than its table"),
        (METADATA_OFFSET, 0, "it has no table of metadata"),
        (METADATA_OFFSET + 8, 0xffff_0000, "it has 65535 metadata"),
        (METADATA_OFFSET + 8, 0, "it does not say its block size"),
        (item(1) + 16, 0, "metadata do not lie within their region"),
        (item(1) + 16, u32::MAX, "metadata do not lie within their region"),
        (item(1) + 20, u32::MAX, "metadata do not lie within their region"),
        (item(1), 0, "needs metadata that are not known"),
        (item(0) + 20, 3, "is cut off in its header"),
        (value(0), 0, "has blocks of 0 bytes"),
        (value(0), 1 << 19, "has blocks of 524288 bytes"),
        (value(0), 3 << 20, "has blocks of 3145728 bytes"),
        (value(0), 1 << 29, "has blocks of 536870912 bytes"),
        (value(0), u32::MAX, "has blocks of 4294967295 bytes"),
        (value(0) + 4, 2, "it does not say its parent"),
        (value(1), 1, "does not end with a sector"),
        (value(1) + 4, u32::MAX, "more than a VHDX can"),
        (value(1) + 4, 16384, "more than a VHDX can"),
        (value(1) + 4, 1024, "more blocks than its table"),
        (value(3), 0, "has sectors of 0 bytes"),
        (value(3), 1024, "has sectors of 1024 bytes"),
        (value(3), u32::MAX, "has sectors of 4294967295 bytes"),
    ] {
        let mut bad = good.clone();
        put(&mut bad, at, &number.to_le_bytes());
        set_checksum(&mut bad[HEADER_OFFSETS[1]..][..4096]);
        set_checksum(&mut bad[REGION_TABLE_OFFSETS[0]..][..64 << 10]);
        fs::write(&file, bad).unwrap();
        let said = try_open(&file, VHDX, &read_only()).unwrap_err();
        assert!(said.contains(wanted), "{number} at {at}: {said}");
    }
}

#[test]
fn an_entry_that_leads_astray_is_an_error_where_it_is_asked_for() {
    let (_directory, path) = directory();
    let file = path.join("image");
    let blocks = vec![(1, 6, ALL, pattern(BLOCK, 1))];
    let image = VhdxImage { blocks, ..VhdxImage::new(4 * MIB, BLOCK) };
    let good = image.bytes();
    for (entry, wanted) in [
        (6, "it lies over the image's headers or tables"),
        (LOG_OFFSET as u64 | 6, "it lies over the image's headers or tables"),
        (METADATA_OFFSET as u64 | 6, "it lies over the image's headers or tables"),
        (TABLE_OFFSET as u64 | 6, "it lies over the image's headers or tables"),
        (good.len() as u64 | 6, "it reaches behind the end of the file"),
        (u64::MAX << 20 | 6, "it reaches behind the end of the file"),
        (4, "its entry means nothing"),
        ((4 * MIB) | 7, "its entry means nothing"),
    ] {
        let mut bad = good.clone();
        put(&mut bad, image.entry_offset(1), &entry.to_le_bytes());
        fs::write(&file, &bad).unwrap();
        let disk = open(&file, VHDX);
        let said = disk.extents(MIB..4 * MIB).unwrap_err().to_string();
        assert!(said.contains(wanted), "{entry:#x}: {said}");
        assert_eq!(disk.check(&mut |_| ()).unwrap().corruptions, 1);
        let mut rig = Rig::new(disk);
        assert_eq!(rig.perform(Operation::Read, MIB, &Rig::segments(4096)), Err(RequestError::Os(5)));
        assert_eq!(rig.read(0, 4096), [0; 4096]);
    }
}

const LOG_ID: [u8; 16] = [3; 16];

fn to_change(path: &Path) -> OpenedFile {
    OpenedFile::open(path, false).unwrap()
}

/// An image whose second block is in the log only: its entry, and what the table's page has besides.
fn unclosed() -> (VhdxImage, Vec<u8>, LogEntry) {
    let (one, two) = (pattern(BLOCK, 1), pattern(BLOCK, 2));
    let wanted = [&one[..], &two, &[0; BLOCK], &[0; BLOCK]].concat();
    let closed = VhdxImage {
        blocks: vec![(0, 6, ALL, one.clone()), (1, 6, ALL, two.clone())],
        ..VhdxImage::new(4 * MIB, BLOCK)
    };
    let bytes = closed.bytes();
    let entry = LogEntry {
        sequence: 5,
        tail: 0,
        log_id: LOG_ID,
        flushed_bytes: bytes.len() as u64,
        last_bytes: bytes.len() as u64,
        changes: vec![Change::Page { offset: TABLE_OFFSET as u64, bytes: bytes[TABLE_OFFSET..][..4096].to_vec() }],
    };
    let image = VhdxImage { log_id: LOG_ID, log: entry.bytes(), ..closed };
    (image, wanted, entry)
}

/// The image's bytes, with a table that knows nothing.
fn without_table(image: &VhdxImage) -> Vec<u8> {
    let mut bytes = image.bytes();
    bytes[TABLE_OFFSET..][..4096].fill(0);
    bytes
}

/// What QEMU makes of it when it puts the log into the file.
fn replayed_by_qemu(path: &Path, bytes: &[u8]) -> Vec<u8> {
    let (copy, raw) = (path.join("copy"), path.join("raw"));
    fs::write(&copy, bytes).unwrap();
    run_accepting("qemu-img", &["check", "-q", "-r", "all", "-f", "vhdx", text(&copy)], &[0, 3]);
    qemu_img(&["convert", "-f", "vhdx", "-O", "raw", text(&copy), text(&raw)]);
    fs::read(raw).unwrap()
}

#[test]
fn what_is_in_the_log_counts() {
    let (_directory, path) = directory();
    let file = path.join("image");
    let (image, wanted, entry) = unclosed();
    let zeros = Change::Zeros { offset: TABLE_OFFSET as u64, length: 4096 };
    let page = |offset: u64, value: u8| Change::Page { offset, bytes: vec![value; 4096] };
    let first = entry.bytes().len() as u32;
    let next = |sequence, tail, changes| LogEntry { sequence, tail, changes, ..entry.clone() }.bytes();
    let mut wrapped = vec![0; LOG_BYTES];
    let tail_at_the_end = LogEntry { tail: LOG_BYTES as u32 - 4096, ..entry.clone() }.bytes();
    put(&mut wrapped, LOG_BYTES - 4096, &tail_at_the_end[..4096]);
    put(&mut wrapped, 0, &tail_at_the_end[4096..]);
    let mut torn = next(6, 0, vec![zeros.clone()]);
    torn[100] ^= 1;
    let mut block_data = wanted.clone();
    block_data[4096..8192].fill(9);
    block_data[8192..3 * 4096].fill(0);
    for (what, log, wanted) in [
        ("one entry", entry.bytes(), wanted.clone()),
        (
            "another one that takes it back",
            [entry.bytes(), next(6, 0, vec![zeros.clone()])].concat(),
            vec![0; 4 * BLOCK],
        ),
        (
            "one that takes it back and gives it again",
            [next(5, 0, vec![zeros.clone()]), next(6, 0, entry.changes.clone())].concat(),
            wanted.clone(),
        ),
        // The last entry does not want the first.
        (
            "one that is done with",
            [entry.bytes(), next(6, first, vec![page(METADATA_OFFSET as u64 + (900 << 10), 1)])].concat(),
            vec![0; 4 * BLOCK],
        ),
        ("an older one behind it", [entry.bytes(), next(4, first, vec![zeros.clone()])].concat(), wanted.clone()),
        ("one that is not its next", [entry.bytes(), next(7, 0, vec![zeros.clone()])].concat(), wanted.clone()),
        ("a torn one behind it", [entry.bytes(), torn].concat(), wanted.clone()),
        ("one round the end", wrapped, wanted.clone()),
        (
            "data of a block",
            [
                entry.bytes(),
                next(6, 0, vec![page(4 * MIB + 4096, 9), Change::Zeros { offset: 4 * MIB + 8192, length: 4096 }]),
            ]
            .concat(),
            block_data,
        ),
    ] {
        let bytes = without_table(&VhdxImage { log, ..image.clone() });
        fs::write(&file, &bytes).unwrap();
        let disk = open(&file, VHDX);
        holds(disk, &wanted);
        assert!(fs::read(&file).unwrap() == bytes, "{what}: it was written to");
        let info = BlockMapInfo::of(&OpenedFile::open(&file, true).unwrap(), VHDX).unwrap();
        assert!(info.is_dirty);
        // QEMU does again what is done with, which changes nothing of an image that is whole, and takes a sequence of
        // which the beginning is not there. What is here is as the specification has it.
        let odd = ["one that is done with", "an older one behind it", "one that is not its next"];
        let is_qemus_own = odd.contains(&what);
        let theirs = replayed_by_qemu(&path, &bytes);
        assert!(theirs == wanted || is_qemus_own, "{what}: QEMU has it otherwise");
        // In the file, where QEMU finds it too.
        assert!(BlockMapDisk::replay_log(&to_change(&file), VHDX).unwrap(), "{what}");
        assert!(!BlockMapDisk::replay_log(&to_change(&file), VHDX).unwrap(), "{what}");
        holds(open(&file, VHDX), &wanted);
        assert!(!BlockMapInfo::of(&OpenedFile::open(&file, true).unwrap(), VHDX).unwrap().is_dirty, "{what}");
        qemu_img(&["check", "-q", "-f", "vhdx", text(&file)]);
        let raw = path.join("raw");
        qemu_img(&["convert", "-f", "vhdx", "-O", "raw", text(&file), text(&raw)]);
        assert!(fs::read(raw).unwrap() == wanted, "{what}: replayed, QEMU has it otherwise");
    }
    // Entries of another log, and none, as QEMU leaves it that ended before the first: nothing was done.
    let another = LogEntry { log_id: [4; 16], ..entry.clone() }.bytes();
    for log in [another, vec![]] {
        fs::write(&file, without_table(&VhdxImage { log, ..image.clone() })).unwrap();
        let disk = open(&file, VHDX);
        assert!(disk.notes()[0].contains("its log has no entry"), "{:?}", disk.notes());
        holds(disk, &vec![0; 4 * BLOCK]);
        assert!(BlockMapDisk::replay_log(&to_change(&file), VHDX).unwrap());
        assert!(open(&file, VHDX).notes().is_empty());
    }
    // A log that nobody speaks of any more.
    fs::write(&file, without_table(&VhdxImage { log_id: [0; 16], ..image.clone() })).unwrap();
    holds(open(&file, VHDX), &vec![0; 4 * BLOCK]);
}

/// What is behind the damage was written after it, and says that it was done.
#[test]
fn a_log_without_a_whole_sequence_is_refused() {
    let (_directory, path) = directory();
    let file = path.join("image");
    let (image, _, entry) = unclosed();
    let next = |sequence| LogEntry { sequence, ..entry.clone() }.bytes();
    let mut spoiled = entry.bytes();
    spoiled[4096 + 500] ^= 1;
    let another = LogEntry { log_id: [4; 16], ..entry.clone() }.bytes();
    let cut = [&entry.bytes()[..4096], &[0; 4096], &next(6)].concat();
    let elsewhere = LogEntry { tail: 8192, ..entry.clone() }.bytes();
    for (what, log) in [
        ("one that is spoiled", spoiled.clone()),
        ("the first is spoiled", [spoiled, next(6), next(7)].concat()),
        ("the first is another log's", [another, next(6), next(7)].concat()),
        ("the first is cut off", cut),
        ("one whose tail is none", elsewhere),
    ] {
        let bytes = without_table(&VhdxImage { log, ..image.clone() });
        fs::write(&file, &bytes).unwrap();
        let said = try_open(&file, VHDX, &read_only()).unwrap_err();
        assert!(said.contains("its log has entries, and no whole sequence"), "{what}: {said}");
        let said = BlockMapDisk::replay_log(&to_change(&file), VHDX).unwrap_err().to_string();
        assert!(said.contains("its log has entries, and no whole sequence"), "{what}: {said}");
        assert!(fs::read(&file).unwrap() == bytes, "{what}: it was written to");
    }
}

/// Nothing was done of what was not stable.
#[test]
fn a_log_whose_first_entry_was_not_written_to_its_end_is_none() {
    let (_directory, path) = directory();
    let file = path.join("image");
    let (image, wanted, entry) = unclosed();
    let whole = entry.bytes();
    let changes = vec![Change::Page { offset: TABLE_OFFSET as u64, bytes: vec![0; 4096] }];
    let earlier = LogEntry { sequence: 4, log_id: [4; 16], changes, ..entry.clone() }.bytes();
    let replay = || BlockMapDisk::replay_log(&to_change(&file), VHDX).unwrap();
    for before in [vec![0; whole.len()], earlier] {
        for end in [100, 512, 4096, 4104, 5000, whole.len() - 4] {
            // Over another log, only whole sectors are known.
            if before[0] != 0 && end % 4096 != 0 {
                continue;
            }
            let log = [&whole[..end], &before[end..]].concat();
            let bytes = without_table(&VhdxImage { log, ..image.clone() });
            fs::write(&file, &bytes).unwrap();
            let disk = open(&file, VHDX);
            // As its end is zeros but for the number, all of the entry is known.
            let is_known = end > 4104;
            let note = if is_known { "what its log holds is read" } else { "was not written to its end" };
            assert!(disk.notes()[0].contains(note), "{:?}", disk.notes());
            holds(disk, if is_known { &wanted } else { &[0; 4 * BLOCK] });
            assert!(fs::read(&file).unwrap() == bytes, "{end}: it was written to");
            assert!(replay() && !replay(), "{end}");
            let disk = open(&file, VHDX);
            assert!(disk.notes().is_empty(), "{end}");
            holds(disk, if is_known { &wanted } else { &[0; 4 * BLOCK] });
            qemu_img(&["check", "-q", "-f", "vhdx", text(&file)]);
        }
    }
    // What the file was before it, it is not.
    let log = LogEntry { flushed_bytes: u64::MAX, ..entry }.bytes()[..4096].to_vec();
    fs::write(&file, without_table(&VhdxImage { log, ..image })).unwrap();
    let said = try_open(&file, VHDX, &read_only()).unwrap_err();
    assert!(said.contains("is cut short: its log says that it had"), "{said}");
}

/// QEMU meets an error in the middle of an entry: the first one there is, and one over an earlier log.
#[test]
fn an_entry_that_qemu_did_not_write_to_its_end_is_none() {
    let (_directory, path) = directory();
    let (file, rules) = (path.join("image"), path.join("rules"));
    for has_written in [false, true] {
        qemu_img(&["create", "-q", "-f", "vhdx", "-o", "block_size=1M", text(&file), "4M"]);
        let mut wanted = vec![0; 4 * BLOCK];
        if has_written {
            crate::rig::qemu_io(text(&file), "vhdx", &["write -P 1 0 1M", "write -P 2 1M 1M"]);
            wanted[..BLOCK].fill(1);
            wanted[BLOCK..2 * BLOCK].fill(2);
        }
        // The second sector of 4 KiB of the log, which lies at 1 MiB.
        let rule = ["[inject-error]", r#"event = "none""#, r#"iotype = "write""#, r#"sector = "2056""#, ""].join("\n");
        fs::write(&rules, rule).unwrap();
        let file_below = format!(r#"{{"driver":"file","filename":"{}"}}"#, text(&file));
        let name = format!(
            r#"json:{{"driver":"vhdx","file":{{"driver":"blkdebug","config":"{}","image":{file_below}}}}}"#,
            text(&rules)
        );
        run_accepting("qemu-io", &["-c", "write -P 3 2M 64k", &name], &[1]);
        let disk = open(&file, VHDX);
        assert!(disk.notes()[0].contains("was not written to its end"), "{:?}", disk.notes());
        holds(disk, &wanted);
        let raw = path.join("raw");
        qemu_img(&["convert", "-f", "vhdx", "-O", "raw", text(&file), text(&raw)]);
        assert!(fs::read(raw).unwrap() == wanted);
    }
}

/// The file was to be longer, and what is behind its end is zeros.
#[test]
fn a_log_that_makes_the_file_longer_is_read() {
    let (_directory, path) = directory();
    let file = path.join("image");
    let (image, _, entry) = unclosed();
    let end = image.bytes().len() as u64;
    let mut table = vec![0; 4096];
    put(&mut table, 0, &(end | 6).to_le_bytes());
    put(&mut table, 8, &((5 * MIB) | 6).to_le_bytes());
    let changes = vec![
        Change::Page { offset: TABLE_OFFSET as u64, bytes: table },
        Change::Page { offset: end + 4096, bytes: vec![8; 4096] },
    ];
    let entry = LogEntry { changes, last_bytes: end + MIB, ..entry };
    let bytes = without_table(&VhdxImage { log: entry.bytes(), ..image });
    fs::write(&file, &bytes).unwrap();
    let mut wanted = vec![0; 4 * BLOCK];
    wanted[4096..8192].fill(8);
    wanted[BLOCK..2 * BLOCK].copy_from_slice(&pattern(BLOCK, 2));
    holds(open(&file, VHDX), &wanted);
    assert!(BlockMapDisk::replay_log(&to_change(&file), VHDX).unwrap());
    assert_eq!(file.metadata().unwrap().len(), end + MIB);
    holds(open(&file, VHDX), &wanted);
}

#[test]
fn a_log_that_cannot_be_is_refused() {
    let (_directory, path) = directory();
    let file = path.join("image");
    let (image, _, entry) = unclosed();
    let end = entry.flushed_bytes;
    let page = |offset: u64| Change::Page { offset, bytes: vec![1; 4096] };
    let zeros = |offset, length| Change::Zeros { offset, length };
    let with = |changes: Vec<Change>| LogEntry { changes, ..entry.clone() }.bytes();
    for (log, wanted) in [
        (with(vec![page(0)]), "its log changes the headers or itself"),
        (with(vec![page(HEADER_OFFSETS[0] as u64)]), "its log changes the headers or itself"),
        (with(vec![page(HEADER_OFFSETS[1] as u64)]), "its log changes the headers or itself"),
        (with(vec![page(LOG_OFFSET as u64 + 8192)]), "its log changes the headers or itself"),
        (with(vec![zeros(3 * MIB / 4, MIB)]), "its log changes the headers or itself"),
        (with(vec![page(TABLE_OFFSET as u64 + 512)]), "its log changes what is no whole page"),
        (with(vec![zeros(TABLE_OFFSET as u64, 512)]), "its log changes what is no whole page"),
        (with(vec![page(end)]), "its log changes what lies behind the end"),
        (with(vec![page(u64::MAX << 12)]), "its log changes what lies behind the end"),
        (with(vec![zeros(TABLE_OFFSET as u64, u64::MAX << 12)]), "its log changes what lies behind the end"),
        (LogEntry { flushed_bytes: end + 1, ..entry.clone() }.bytes(), "is cut short: its log says that it had"),
        (LogEntry { last_bytes: u64::MAX, ..entry.clone() }.bytes(), "longer than a file can be"),
    ] {
        let bytes = without_table(&VhdxImage { log, ..image.clone() });
        fs::write(&file, &bytes).unwrap();
        let said = try_open(&file, VHDX, &read_only()).unwrap_err();
        assert!(said.contains(wanted), "{said}");
        let said = BlockMapDisk::replay_log(&to_change(&file), VHDX).unwrap_err().to_string();
        assert!(said.contains(wanted), "{said}");
        assert!(fs::read(&file).unwrap() == bytes, "it was written to");
    }
    // A file that nobody has.
    let bytes =
        without_table(&VhdxImage { log: LogEntry { last_bytes: 1 << 62, ..entry.clone() }.bytes(), ..image.clone() });
    fs::write(&file, &bytes).unwrap();
    let said = BlockMapDisk::replay_log(&to_change(&file), VHDX).unwrap_err().to_string();
    assert!(said.contains("for which there is no room") && fs::read(&file).unwrap() == bytes, "{said}");
    // Every sector begins an entry that is as long as the log.
    let mut log = vec![0; LOG_BYTES];
    for at in (0..LOG_BYTES).step_by(4096) {
        put(&mut log, at, b"loge");
        put(&mut log, at + 8, &(LOG_BYTES as u32).to_le_bytes());
        put(&mut log, at + 16, &1_u64.to_le_bytes());
        put(&mut log, at + 32, &LOG_ID);
    }
    fs::write(&file, VhdxImage { log, ..image.clone() }.bytes()).unwrap();
    assert!(try_open(&file, VHDX, &read_only()).unwrap_err().contains("entries of its log overlap"));
    // A log that is too long to be read.
    let mut bytes = image.bytes();
    bytes.resize(32 * MIB as usize, 0);
    put(&mut bytes, HEADER_OFFSETS[1] + 68, &(16_u32 << 20).to_le_bytes());
    put(&mut bytes, HEADER_OFFSETS[1] + 72, &(8 * MIB).to_le_bytes());
    set_checksum(&mut bytes[HEADER_OFFSETS[1]..][..4096]);
    fs::write(&file, bytes).unwrap();
    assert!(try_open(&file, VHDX, &read_only()).unwrap_err().contains("has a log of 16777216 bytes, too many"));
}

/// Blocks that QEMU wrote and never closed: `abort` ends it in the middle.
#[test]
fn an_image_that_qemu_did_not_close_is_read() {
    let (_directory, path) = directory();
    let wanted = raw(9 * MIB, Contents::Pieces, 4);
    let image = convert(&path, &wanted, "vhdx", "block_size=1M");
    let status = Command::new("qemu-io")
        .args(["-f", "vhdx", "-c", "write -P 7 5M 1M", "-c", "write -P 8 8M 512k", "-c", "abort", text(&image)])
        .output()
        .unwrap()
        .status;
    assert!(!status.success());
    let bytes = fs::read(&image).unwrap();
    let theirs = replayed_by_qemu(&path, &bytes);
    assert!(theirs[5 << 20..6 << 20].iter().all(|&byte| byte == 7));
    holds(open(&image, VHDX), &theirs);
    assert!(fs::read(&image).unwrap() == bytes);
}
