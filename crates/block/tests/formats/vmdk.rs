//! VMDKs that QEMU made, and descriptors of raw disks.

use crate::rig::{Rig, WRITE, pattern, qemu_img, read_only, text};
use blockyard_block::{
    AllowedDirectories, BlockMapDisk, BlockMapFormat, Disk, ExtentKind, FileOptions, OpenedFile, Operation,
    RequestError, VmdkInfo,
};
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn directory() -> (TempDir, PathBuf) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().canonicalize().unwrap();
    (directory, path)
}

fn open(path: &Path, options: &FileOptions) -> Result<BlockMapDisk, String> {
    let allowed = AllowedDirectories::new(&[path.parent().unwrap()]).unwrap();
    BlockMapDisk::open(path, BlockMapFormat::Vmdk, options, &allowed).map_err(|error| blockyard_block::explain(&error))
}

#[test]
fn qemu_flat_images_open_are_written_and_compare_equal() {
    let (_directory, path) = directory();
    for (subformat, size, at) in [("monolithicFlat", "16M", 3 << 20), ("twoGbMaxExtentFlat", "5G", (2 << 30) - 8192)] {
        let image = path.join(format!("{subformat}.vmdk"));
        qemu_img(&["create", "-q", "-f", "vmdk", "-o", &format!("subformat={subformat}"), text(&image), size]);
        let cid = || VmdkInfo::of(&OpenedFile::open(&image, true).unwrap()).unwrap().cid;
        let before = cid();
        let mut rig = Rig::new(open(&image, &FileOptions::default()).unwrap());
        rig.read(at, 512);
        rig.perform(Operation::Flush, 0, &[]).unwrap();
        assert_eq!(cid(), before, "nothing was changed");
        let bytes = pattern(65_536, 1);
        rig.write(at, &bytes);
        let after = cid();
        assert_ne!(after, before, "what is a difference from it must notice");
        let capacity = rig.disk.geometry().capacity_bytes;
        rig.write(capacity - 512, &pattern(512, 2));
        rig.perform(Operation::WriteZeroes { length_bytes: 8192, may_unmap: true }, at + 4096, &[]).unwrap();
        rig.perform(Operation::Flush, 0, &[]).unwrap();
        let mut wanted = bytes.clone();
        wanted[4096..12288].fill(0);
        assert!(rig.read(at, 65_536) == wanted);
        drop(rig);
        assert_eq!(cid(), after);
        // Past the page cache, which is not in the way either.
        let mut rig = Rig::new(open(&image, &FileOptions { direct: true, ..FileOptions::default() }).unwrap());
        rig.write(at + 65_536, &pattern(12_288, 3));
        rig.perform(Operation::WriteZeroes { length_bytes: 4096, may_unmap: false }, at + 65_536, &[]).unwrap();
        assert_eq!(rig.read(at + 65_536, 12_288), [&[0; 4096], &pattern(12_288, 3)[4096..]].concat());
        drop(rig);
        assert_ne!(cid(), after);
        let raw = path.join("raw");
        qemu_img(&["convert", "-f", "vmdk", "-O", "raw", text(&image), text(&raw)]);
        let mut qemu = Rig::new(blockyard_block::FileDisk::open(&raw, &read_only()).unwrap());
        assert_eq!(qemu.disk.geometry().capacity_bytes, capacity);
        assert!(qemu.read(at, 65_536) == wanted);
        assert!(qemu.read(capacity - 512, 512) == pattern(512, 2));
        fs::remove_file(raw).unwrap();
    }
}

#[test]
fn extents_of_a_large_disk_are_walked_without_reading_it() {
    let (_directory, path) = directory();
    let image = path.join("image.vmdk");
    qemu_img(&["create", "-q", "-f", "vmdk", "-o", "subformat=twoGbMaxExtentFlat", text(&image), "5G"]);
    let disk = open(&image, &read_only()).unwrap();
    let (mut at, mut extents) = (0, Vec::new());
    while at < 5 << 30 {
        let extent = disk.extents(at..5 << 30).unwrap();
        extents.push((extent.length_bytes, extent.kind));
        at += extent.length_bytes;
    }
    let holes: u64 = extents.iter().filter(|(_, kind)| *kind == ExtentKind::Hole).map(|(length, _)| length).sum();
    // QEMU writes a sector or so of each file.
    assert!(holes > (5 << 30) - (1 << 20) && extents.len() < 10, "{extents:?}");
}

/// A disk of raw parts as `VBoxManage createrawvmdk` describes one: a table of its own, a partition, and what is not
/// granted.
fn raw_disk(path: &Path) -> PathBuf {
    fs::write(path.join("table"), pattern(8 * 512, 1)).unwrap();
    fs::write(path.join("device"), pattern(64 * 512, 2)).unwrap();
    let image = path.join("raw.vmdk");
    let text = "# Disk DescriptorFile\nversion=1\nCID=12345678\nparentCID=ffffffff\ncreateType=\"partitionedDevice\"\n\n\
                # Extent description\nRW 8 FLAT \"table\" 0\nRW 16 FLAT \"device\" 8 \"Partition1\"\n\
                RDONLY 8 FLAT \"device\" 24\nRW 10 ZERO\nNOACCESS 4 FLAT \"device\" 60\n\n\
                # The Disk Data Base\n#DDB\n\nddb.virtualHWVersion = \"4\"\n";
    fs::write(&image, text).unwrap();
    image
}

#[test]
fn a_partitioned_raw_disk_is_put_together_and_guarded() {
    let (_directory, path) = directory();
    let mut rig = Rig::new(open(&raw_disk(&path), &FileOptions::default()).unwrap());
    assert_eq!(rig.disk.geometry().capacity_bytes, 46 * 512);
    let device = pattern(64 * 512, 2);
    let mut wanted = [&pattern(8 * 512, 1)[..], &device[8 * 512..32 * 512], &[0; 10 * 512]].concat();
    assert!(rig.read(0, 42 * 512) == wanted);
    // Across the first border.
    let bytes = pattern(1024, 3);
    rig.write(7 * 512, &bytes);
    wanted[7 * 512..9 * 512].copy_from_slice(&bytes);
    assert!(rig.read(0, 42 * 512) == wanted);
    assert_eq!(rig.write_as(WRITE, 24 * 512, &[1; 512]), Err(RequestError::ReadOnly));
    assert_eq!(rig.write_as(WRITE, 33 * 512, &[1; 512]), Err(RequestError::ReadOnly));
    assert_eq!(rig.perform(Operation::Read, 41 * 512, &Rig::segments(1024)), Err(RequestError::Os(13)));
    let zeroes = Operation::WriteZeroes { length_bytes: 1024, may_unmap: false };
    assert_eq!(rig.perform(zeroes, 33 * 512, &[]), Ok(()));
    assert_eq!(rig.perform(zeroes, 24 * 512, &[]), Err(RequestError::ReadOnly));
    assert!(rig.read(0, 42 * 512) == wanted);
    assert_eq!(fs::read(path.join("device")).unwrap()[8 * 512..9 * 512], bytes[512..]);
}

#[test]
fn what_a_descriptor_refers_to_must_be_allowed() {
    let (_directory, path) = directory();
    let image = raw_disk(&path);
    let error = BlockMapDisk::open(&image, BlockMapFormat::Vmdk, &read_only(), &AllowedDirectories::none())
        .unwrap_err()
        .to_string();
    let wanted = format!(
        "{} refers to {}, which lies in no directory that was allowed; if you trust the image, allow {}",
        image.display(),
        path.join("table").display(),
        path.display()
    );
    assert_eq!(error, wanted);
}

#[test]
fn what_is_no_flat_disk_is_refused_with_a_reason() {
    let (_directory, path) = directory();
    let image = path.join("image.vmdk");
    fs::write(path.join("short"), [0; 512]).unwrap();
    let head = "# Disk DescriptorFile\n";
    for (text, wanted) in [
        ("", "is no VMDK descriptor"),
        ("KDMV....", "is cut off in its header"),
        ("hello\n", "is no VMDK descriptor"),
        ("# Disk DescriptorFile\nversion=1\n", "is a VMDK without any extent"),
        ("RW 1 SPARSE \"a\"", "does not say its CID once"),
        (
            "RW 1 VMFSRDM \"a\"",
            "the kind `VMFSRDM`: only FLAT, VMFS, ZERO, SPARSE, VMFSSPARSE and SESPARSE are supported",
        ),
        ("RW x ZERO", "an extent that cannot be understood: `RW x ZERO`"),
        ("RW 0 ZERO", "cannot be understood"),
        ("RW", "cannot be understood"),
        ("RW 1 FLAT short", "cannot be understood"),
        ("RW 1 FLAT \"\" 0", "cannot be understood"),
        ("RW 1 FLAT \"short\" -1", "cannot be understood"),
        ("RW 99999999999999999999 ZERO", "cannot be understood"),
        ("RW 9007199254740991 ZERO\nRW 9007199254740991 ZERO", "an absurd size"),
        ("RW 2 FLAT \"short\" 0", "wants 1024 bytes at 0 of"),
        ("RW 1 FLAT \"short\" 1", "wants 512 bytes at 512 of"),
        ("RW 1 FLAT \"none\" 0", "No such file"),
        ("RW 1 FLAT \".\" 0", "directory"),
        ("RW 1 FLAT \"nbd:x\" 0", "has a protocol"),
        ("RW 1 ZERO\nparentCID=00000001", "depends on a parent, and does not say which"),
        ("RW 1 ZERO\nparentCID=1\nparentFileNameHint=\"a\"", "is a difference from an image that is not here"),
        ("RW 1 ZERO\nparentCID=x", "a parentCID that is no number: `x`"),
        ("RW 1 ZERO\nnonsense", "a line that cannot be understood: `nonsense`"),
        ("RW 1 ZERO\nversion=9", "version 9"),
    ] {
        let text = if text.starts_with("RW") { format!("{head}{text}\n") } else { text.to_owned() };
        fs::write(&image, &text).unwrap();
        let error = open(&image, &FileOptions::default()).unwrap_err();
        assert!(error.contains(wanted), "{text:?}: {error}");
    }
    fs::write(&image, format!("{head}{}", "RW 1 ZERO\n".repeat(1025))).unwrap();
    assert!(open(&image, &read_only()).unwrap_err().contains("more than 1024 extents"));
    fs::write(&image, format!("{head}{}", "#".repeat(300_000))).unwrap();
    assert!(open(&image, &read_only()).unwrap_err().contains("at most 262144 bytes"));
    fs::write(&image, format!("{head}RW 3 ZERO\n")).unwrap();
    let options = FileOptions { logical_block_bytes: 4096, ..read_only() };
    assert_eq!(open(&image, &options).unwrap().geometry().capacity_bytes, 4096);
}

#[test]
fn padded_text_and_windows_line_ends_are_taken() {
    let (_directory, path) = directory();
    let image = path.join("image.vmdk");
    fs::write(&image, "# Disk DescriptorFile\r\nRW 2 ZERO\r\n\0\0\0\0").unwrap();
    let disk = open(&image, &FileOptions::default()).unwrap();
    assert!(disk.geometry().read_only, "there is nothing to write to");
    assert_eq!(Rig::new(disk).read(0, 1024), [0; 1024]);
}

#[test]
fn two_parts_of_a_disk_in_the_same_bytes_are_only_read() {
    let (_directory, path) = directory();
    let image = path.join("image.vmdk");
    fs::write(path.join("one"), pattern(8 * 512, 1)).unwrap();
    fs::write(path.join("two"), pattern(8 * 512, 2)).unwrap();
    for (parts, are_apart) in [
        (&["RW 4 FLAT \"one\" 0", "RW 4 FLAT \"one\" 0"][..], false),
        (&["RW 4 FLAT \"one\" 0", "RW 4 FLAT \"./one\" 3"], false),
        (&["RW 4 FLAT \"one\" 3", "RW 2 ZERO", "RW 4 FLAT \"one\" 0"], false),
        (&["RW 8 FLAT \"one\" 0", "RW 1 FLAT \"one\" 5"], false),
        (&["RW 4 FLAT \"one\" 0", "RDONLY 4 FLAT \"one\" 1"], false),
        (&["RW 4 FLAT \"one\" 4", "RW 4 FLAT \"one\" 0"], true),
        (&["RW 4 FLAT \"one\" 0", "RW 4 FLAT \"two\" 0"], true),
        (&["RDONLY 4 FLAT \"one\" 0", "RDONLY 4 FLAT \"one\" 0"], true),
    ] {
        fs::write(&image, format!("# Disk DescriptorFile\nCID=00000001\n{}\n", parts.join("\n"))).unwrap();
        open(&image, &read_only()).unwrap();
        match open(&image, &FileOptions::default()) {
            Ok(_) => assert!(are_apart, "{parts:?}"),
            Err(said) => assert!(!are_apart && said.contains("two parts of its disk in the same bytes"), "{said}"),
        }
    }
}
