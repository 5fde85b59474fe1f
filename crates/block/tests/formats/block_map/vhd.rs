//! VHD.

use super::vhd_image::{ALL, Block, Sectors, VhdImage, set_checksum, utf16};
use super::{Contents, MIB, compare_with_qemu, convert, directory, holds, lies_where_qemu_says, open, raw, try_open};
use crate::rig::{Rig, pattern, qemu_img, read_only, text};
use blockyard_block::{
    AllowedDirectories, BlockMapDisk, BlockMapFormat, BlockMapInfo, Disk, OpenedFile, Operation, Qcow2MappingKind,
    RequestError,
};
use std::fs;
use std::path::Path;
use std::sync::Arc;

const VHD: BlockMapFormat = BlockMapFormat::Vhd;

#[test]
fn dynamic_images_hold_what_they_were_made_of() {
    compare_with_qemu(VHD, "vpc", "force_size=on", true);
}

#[test]
fn fixed_images_hold_what_they_were_made_of() {
    compare_with_qemu(VHD, "vpc", "subformat=fixed,force_size=on", true);
}

#[test]
fn disks_of_virtual_pcs_sizes_hold_what_they_were_made_of() {
    compare_with_qemu(VHD, "vpc", "", true);
    compare_with_qemu(VHD, "vpc", "subformat=fixed", true);
}

/// The size by creator, as QEMU 10 has it: all but two go by the size that is said.
#[test]
fn the_size_is_the_geometrys_for_those_who_go_by_that() {
    let (_directory, path) = directory();
    let file = path.join("image");
    let largest = (65535, 16, 255);
    for (creator, geometry, wanted) in [
        (b"vpc ", (10, 4, 17), 10 * 4 * 17 * 512),
        (b"qemu", (10, 4, 17), 10 * 4 * 17 * 512),
        (b"qemu", largest, MIB),
        (b"qem2", (10, 4, 17), MIB),
        (b"win ", (10, 4, 17), MIB),
        (b"d2v ", (10, 4, 17), MIB),
        (b"tap\0", (10, 4, 17), MIB),
        (b"CTXS", (10, 4, 17), MIB),
        (b"vbox", (10, 4, 17), MIB),
        (b"wa\0\0", (10, 4, 17), MIB),
    ] {
        let image = VhdImage { creator: *creator, geometry, ..VhdImage::new(3, MIB, 65536) };
        fs::write(&file, image.bytes()).unwrap();
        assert_eq!(open(&file, VHD).geometry().capacity_bytes, wanted, "{creator:?}");
    }
}

#[test]
fn what_is_made_here_is_what_qemu_reads() {
    let (_directory, path) = directory();
    let file = path.join("image");
    let data = |seed| pattern(65536, seed);
    let blocks: Vec<Block> = vec![(3, ALL, data(1)), (0, ALL, data(2)), (15, ALL, data(3))];
    for kind in [2, 3] {
        let image = VhdImage { blocks: blocks.clone(), ..VhdImage::new(kind, MIB, 65536) };
        fs::write(&file, image.bytes()).unwrap();
        qemu_img(&["convert", "-f", "vpc", "-O", "raw", text(&file), text(&path.join("raw"))]);
        let disk = open(&file, VHD);
        lies_where_qemu_says(&file, "vpc", &disk);
        holds(disk, &fs::read(path.join("raw")).unwrap());
    }
}

/// A base, and a difference from it: of the first block all sectors, of the second some, of the third none.
fn pair(path: &Path, locators: Vec<([u8; 4], Vec<u8>)>, parent_name: &str) -> (VhdImage, Vec<u8>) {
    const BLOCK: usize = 65536;
    let base = pattern(4 * BLOCK - 1024, 1);
    let all = [&base[..], &[0; 1024]].concat();
    let blocks = (0..4).map(|n| (n, ALL, all[n * BLOCK..][..BLOCK].to_vec())).collect();
    let size_bytes = base.len() as u64;
    fs::write(
        path.join("base.vhd"),
        VhdImage { blocks, id: [7; 16], ..VhdImage::new(3, size_bytes, BLOCK as u32) }.bytes(),
    )
    .unwrap();
    let (full, part) = (pattern(BLOCK, 2), pattern(BLOCK, 3));
    let is_there: Sectors = |sector| sector % 5 == 0 || (40..100).contains(&sector);
    let mut wanted = base;
    wanted[..BLOCK].copy_from_slice(&full);
    for sector in (0..BLOCK / 512).filter(|&sector| is_there(sector)) {
        wanted[BLOCK + sector * 512..][..512].copy_from_slice(&part[sector * 512..][..512]);
    }
    let blocks = vec![(0, ALL, full), (1, is_there, part)];
    let image = VhdImage {
        parent_id: [7; 16],
        locators,
        parent_name: parent_name.to_owned(),
        blocks,
        ..VhdImage::new(4, size_bytes, BLOCK as u32)
    };
    fs::write(path.join("image"), image.bytes()).unwrap();
    (image, wanted)
}

#[test]
fn a_difference_shows_its_parent_where_it_has_nothing() {
    let (_directory, path) = directory();
    let file = path.join("image");
    let relative = (*b"W2ru", utf16(r".\base.vhd"));
    let absolute = (*b"W2ku", utf16(r"C:\machines\base.vhd"));
    for (locators, name) in [
        (vec![relative.clone()], ""),
        (vec![absolute.clone()], ""),
        (vec![(*b"Wi2r", b".\\base.vhd".to_vec())], ""),
        (vec![(*b"W2ku", utf16(r"\\server\share\base.vhd")), (*b"W2ru", utf16(r"..\none\base.vhd"))], ""),
        (vec![], "base.vhd"),
    ] {
        let (_, wanted) = pair(&path, locators, name);
        let disk = open(&file, VHD);
        assert_eq!(disk.files().collect::<Vec<_>>().len(), 2);
        let (mapping, _) = disk.map(65536 + 512..disk.geometry().capacity_bytes).unwrap();
        assert_eq!((mapping.depth, mapping.length_bytes), (1, 4 * 512));
        assert!(matches!(mapping.kind, Qcow2MappingKind::Data { .. }));
        holds(disk, &wanted);
    }
    let info = BlockMapInfo::of(&OpenedFile::open(&file, true).unwrap(), VHD).unwrap();
    assert_eq!((info.subformat, info.parent.as_deref()), ("differencing", Some("base.vhd")));
}

#[test]
fn a_difference_of_a_difference_of_a_fixed_disk_is_read() {
    let (_directory, path) = directory();
    let base = pattern(3 * 4096, 1);
    let mut wanted = base.clone();
    let blocks = vec![(0, ALL, base)];
    let fixed = VhdImage { blocks, id: [1; 16], ..VhdImage::new(2, 3 * 4096, 4096) };
    fs::write(path.join("0.vhd"), fixed.bytes()).unwrap();
    for n in 1..=8_u8 {
        let data = pattern(4096, n.into());
        // The chain's disks get longer.
        let size_bytes = (3 + u64::from(n)) * 4096;
        let is_there: Sectors = |sector| sector < 4;
        let image = VhdImage {
            id: [n + 1; 16],
            parent_id: [n; 16],
            locators: vec![(*b"W2ru", utf16(&format!("{}.vhd", n - 1)))],
            blocks: vec![(usize::from(n % 3), is_there, data.clone())],
            ..VhdImage::new(4, size_bytes, 4096)
        };
        fs::write(path.join(format!("{n}.vhd")), image.bytes()).unwrap();
        wanted.resize(size_bytes as usize, 0);
        wanted[usize::from(n % 3) * 4096..][..2048].copy_from_slice(&data[..2048]);
    }
    holds(open(&path.join("8.vhd"), VHD), &wanted);
}

#[test]
fn a_parent_that_is_another_or_not_there_or_not_allowed_is_refused() {
    let (_directory, path) = directory();
    let file = path.join("image");
    let (image, _) = pair(&path, vec![(*b"W2ru", utf16(r".\base.vhd"))], "");
    let none = BlockMapDisk::open(&file, VHD, &read_only(), &AllowedDirectories::none()).unwrap_err().to_string();
    let wanted = format!("{} refers to {}, which lies in no", file.display(), path.join("base.vhd").display());
    assert!(none.starts_with(&wanted), "{none}");
    let refusal = |image: &VhdImage| {
        fs::write(&file, image.bytes()).unwrap();
        try_open(&file, VHD, &read_only()).unwrap_err()
    };
    let said = refusal(&VhdImage { parent_id: [8; 16], ..image.clone() });
    assert!(said.contains("is a difference from another image than") && said.contains("its id differs"), "{said}");
    let said = refusal(&VhdImage { locators: vec![(*b"W2ru", utf16(r"..\..\none.vhd"))], ..image.clone() });
    assert!(said.contains(r#"was called "..\\..\\none.vhd": put it beside this one"#), "{said}");
    let said = refusal(&VhdImage { locators: vec![], ..image.clone() });
    assert!(said.contains(r#"was called "nothing""#), "{said}");
    for name in [r"..\..\..\..\..\..\..\etc\passwd", "/etc/passwd", r"C:\etc\passwd", "nbd:x", "json:{}"] {
        let said = refusal(&VhdImage { locators: vec![(*b"W2ru", utf16(name))], ..image.clone() });
        assert!(said.contains("refers to") || said.contains("not here"), "{said}");
    }
    // It is its own parent, or that of its parent.
    let own = VhdImage { id: [7; 16], locators: vec![(*b"W2ru", utf16("image"))], ..image.clone() };
    assert!(refusal(&own).contains("depends on itself"));
    for (name, other, id, parent) in [("image", "other.vhd", 7, 9), ("other.vhd", "image", 9, 7)] {
        let locators = vec![(*b"W2ru", utf16(other))];
        let image = VhdImage { id: [id; 16], parent_id: [parent; 16], locators, ..image.clone() };
        fs::write(path.join(name), image.bytes()).unwrap();
    }
    assert!(try_open(&file, VHD, &read_only()).unwrap_err().contains("depends on itself"));
    for n in 0..40_u8 {
        let locators = vec![(*b"W2ru", utf16(&format!("{}.vhd", n + 1)))];
        let image = VhdImage { id: [n; 16], parent_id: [n + 1; 16], locators, ..image.clone() };
        fs::write(path.join(format!("{n}.vhd")), image.bytes()).unwrap();
    }
    let allowed = AllowedDirectories::new(&[&path]).unwrap();
    let said = BlockMapDisk::open(&path.join("0.vhd"), VHD, &read_only(), &allowed).unwrap_err().to_string();
    assert!(said.contains("more than 32 files"), "{said}");
}

#[test]
fn the_footer_at_the_end_counts_before_its_copy() {
    let (_directory, path) = directory();
    let file = path.join("image");
    // A guest that writes a header of its own to its fixed disk has a fixed disk.
    let fake = VhdImage::new(4, 64 * MIB, 65536).bytes();
    let mut disk = vec![0; MIB as usize];
    disk[..fake.len().min(4096)].copy_from_slice(&fake[..4096.min(fake.len())]);
    let blocks = vec![(0, ALL, disk.clone())];
    fs::write(&file, VhdImage { blocks, ..VhdImage::new(2, MIB, 65536) }.bytes()).unwrap();
    holds(open(&file, VHD), &disk);
    // Without the one, the other does.
    let blocks = vec![(1, ALL, pattern(65536, 1))];
    let good = VhdImage { blocks, ..VhdImage::new(3, MIB, 65536) }.bytes();
    let wanted = [vec![0; 65536], pattern(65536, 1), vec![0; MIB as usize - 2 * 65536]].concat();
    let mut bad = good.clone();
    let end = bad.len() - 512;
    bad[end + 100] ^= 1;
    for bytes in [&bad[..], &bad[..end]] {
        fs::write(&file, bytes).unwrap();
        holds(open(&file, VHD), &wanted);
    }
    bad[100] ^= 1;
    fs::write(&file, &bad).unwrap();
    assert!(try_open(&file, VHD, &read_only()).unwrap_err().contains("the checksum of its footer is wrong"));
    bad[..8].fill(0);
    fs::write(&file, &bad[..end]).unwrap();
    assert!(try_open(&file, VHD, &read_only()).unwrap_err().contains("is no VHD image"));
    let fixed = VhdImage::new(2, MIB, 65536).bytes();
    for length in [0, 511, 512, fixed.len() - 1] {
        fs::write(&file, &fixed[..length]).unwrap();
        try_open(&file, VHD, &read_only()).unwrap_err();
    }
    fs::write(&file, [&fixed[512..]].concat()).unwrap();
    assert!(try_open(&file, VHD, &read_only()).unwrap_err().contains("is not all in the file"));
}

#[test]
fn headers_that_cannot_be_are_refused() {
    let (_directory, path) = directory();
    let file = path.join("image");
    let good = VhdImage::new(3, MIB, 65536).bytes();
    let end = good.len() - 512;
    // In the footers, or in the header at 512.
    for (at, value, wanted) in [
        (end + 12, 0x2_0000_u32, "is a VHD of version 2"),
        (end + 16, u32::MAX, "there is no header where its footer says"),
        (end + 20, 0, "there is no header where its footer says"),
        (end + 48, u32::MAX, "more than a VHD can"),
        (end + 48, 1, "has more blocks than its table"),
        (end + 60, 0, "the type 0"),
        (end + 60, 5, "the type 5"),
        (end + 60, 4, "is a difference from an image that is not here"),
        (512, 0, "there is no header where its footer says"),
        (512 + 16, 1, "its table does not lie within the file"),
        (512 + 20, u32::MAX, "its table does not lie within the file"),
        (512 + 24, 0, "a header of version 0"),
        (512 + 28, 15, "has more blocks than its table"),
        (512 + 28, 0, "has more blocks than its table"),
        (512 + 32, 0, "has blocks of 0 bytes"),
        (512 + 32, 256, "has blocks of 256 bytes"),
        (512 + 32, u32::MAX, "has blocks of 4294967295 bytes"),
        (512 + 32, 512, "has more blocks than its table"),
    ] {
        let mut bad = good.clone();
        bad[at..at + 4].copy_from_slice(&value.to_be_bytes());
        set_checksum(&mut bad[end..], 64);
        set_checksum(&mut bad[512..1536], 36);
        fs::write(&file, bad).unwrap();
        let said = try_open(&file, VHD, &read_only()).unwrap_err();
        assert!(said.contains(wanted), "{value} at {at}: {said}");
    }
}

#[test]
fn an_entry_that_leads_astray_is_an_error_where_it_is_asked_for() {
    let (_directory, path) = directory();
    let file = path.join("image");
    let blocks = vec![(1, ALL, pattern(65536, 1))];
    for kind in [3, 4] {
        let locators = if kind == 4 { vec![(*b"W2ru", utf16("base.vhd"))] } else { vec![] };
        fs::write(path.join("base.vhd"), VhdImage::new(3, MIB, 65536).bytes()).unwrap();
        let image = VhdImage {
            blocks: blocks.clone(),
            parent_id: [1; 16],
            id: [2; 16],
            locators,
            ..VhdImage::new(kind, MIB, 65536)
        };
        let good = image.bytes();
        for (entry, wanted) in [
            (0_u32, "it lies over the image's header or table"),
            (1, "it lies over the image's header or table"),
            (image.table_offset() as u32 / 512, "it lies over the image's header or table"),
            (good.len() as u32 / 512, "it reaches behind the end of the file"),
            (u32::MAX - 1, "it reaches behind the end of the file"),
        ] {
            let mut bad = good.clone();
            bad[image.table_offset() + 4..][..4].copy_from_slice(&entry.to_be_bytes());
            fs::write(&file, &bad).unwrap();
            let disk = open(&file, VHD);
            let said = disk.extents(65536..MIB).unwrap_err().to_string();
            assert!(said.contains(wanted), "{entry}: {said}");
            assert_eq!(disk.check(&mut |_| ()).unwrap().corruptions, 1);
            let mut rig = Rig::new(disk);
            assert_eq!(rig.perform(Operation::Read, 65536, &Rig::segments(4096)), Err(RequestError::Os(5)));
            assert_eq!(rig.read(0, 4096), [0; 4096]);
        }
    }
}

/// A caller that only polls the queue's event and reaps, of a disk of whose table nothing is in memory.
#[test]
fn requests_complete_by_event_alone() {
    let (_directory, path) = directory();
    let file = path.join("image");
    // Eight slices.
    let blocks = (0..1024).map(|block| (block * 4, ALL, vec![block as u8; 512])).collect();
    fs::write(&file, VhdImage { blocks, ..VhdImage::new(3, 4096 * 512, 512) }.bytes()).unwrap();
    for _ in 0..20 {
        let mut rig = crate::shared::Rig::by_event(Arc::new(open(&file, VHD)), 32);
        let segments: Vec<_> = (0..32).map(|n| rig.segments(n * 65536, 65536)).collect();
        for (n, segments) in (0..).zip(&segments) {
            rig.push(Operation::Read, n * 65536, segments, n);
        }
        let completions = rig.drain();
        assert!(completions.len() == 32 && completions.iter().all(|completion| completion.result.is_ok()));
        let read = rig.peek(0, 4096 * 512);
        for (block, bytes) in read.chunks(512).enumerate() {
            let value = if block % 4 == 0 { (block / 4) as u8 } else { 0 };
            assert!(bytes.iter().all(|&byte| byte == value), "{block}");
        }
    }
}

#[test]
fn a_dynamic_image_of_qemus_own_is_checked() {
    let (_directory, path) = directory();
    let image = convert(&path, &raw(9 * MIB, Contents::Data, 3), "vpc", "");
    let report = open(&image, VHD).check(&mut |line| panic!("{line}")).unwrap();
    assert_eq!((report.allocated_clusters, report.corruptions), (5, 0));
}
