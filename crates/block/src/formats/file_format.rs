//! The formats of files that hold disks: the one table of names and signatures, also of formats that are not read here.
//!
//! What is not in it is a raw disk. So that a container is never taken for one, and written into, the table has what
//! else people keep disks in: the formats of other hypervisors, compressed files and archives.

use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom};
use std::os::unix::fs::{FileExt, FileTypeExt};
use std::path::Path;

/// A format other than raw.
#[derive(Debug, PartialEq, Eq)]
pub struct FileFormat {
    /// Its word: qemu-img's, where it has one.
    pub word: &'static str,
    /// What people call it.
    pub name: &'static str,
    sort: Sort,
    /// Endings of names, without the dot.
    endings: &'static [&'static str],
    signatures: &'static [Signature],
}

/// What a format is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Sort {
    Disk,
    Compressed,
    Archive,
}

/// Bytes that only this format has at that place.
#[derive(Debug, PartialEq, Eq)]
struct Signature {
    from: Origin,
    bytes: &'static [u8],
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// So many bytes from the beginning.
    Start(usize),
    /// So many bytes into the last 512.
    LastSector(usize),
    /// A line, in whatever case, before which there are only blank ones and comments (`#`).
    Line,
}

const SECTOR_BYTES: usize = 512;

const fn at(offset: usize, bytes: &'static [u8]) -> Signature {
    Signature { from: Origin::Start(offset), bytes }
}

const fn in_last_sector(offset: usize, bytes: &'static [u8]) -> Signature {
    Signature { from: Origin::LastSector(offset), bytes }
}

const fn line(bytes: &'static [u8]) -> Signature {
    Signature { from: Origin::Line, bytes }
}

const fn disk(
    word: &'static str,
    name: &'static str,
    endings: &'static [&'static str],
    signatures: &'static [Signature],
) -> FileFormat {
    FileFormat { word, name, sort: Sort::Disk, endings, signatures }
}

const fn compressed(
    word: &'static str,
    name: &'static str,
    endings: &'static [&'static str],
    signatures: &'static [Signature],
) -> FileFormat {
    FileFormat { word, name, sort: Sort::Compressed, endings, signatures }
}

const fn archive(
    word: &'static str,
    name: &'static str,
    endings: &'static [&'static str],
    signatures: &'static [Signature],
) -> FileFormat {
    FileFormat { word, name, sort: Sort::Archive, endings, signatures }
}

/// A frame of Zstandard, or one that is skipped, as pzstd begins.
const ZSTANDARD: &[Signature] = &[
    at(0, b"\x28\xb5\x2f\xfd"),
    at(0, b"\x50\x2a\x4d\x18"),
    at(0, b"\x51\x2a\x4d\x18"),
    at(0, b"\x52\x2a\x4d\x18"),
    at(0, b"\x53\x2a\x4d\x18"),
    at(0, b"\x54\x2a\x4d\x18"),
    at(0, b"\x55\x2a\x4d\x18"),
    at(0, b"\x56\x2a\x4d\x18"),
    at(0, b"\x57\x2a\x4d\x18"),
    at(0, b"\x58\x2a\x4d\x18"),
    at(0, b"\x59\x2a\x4d\x18"),
    at(0, b"\x5a\x2a\x4d\x18"),
    at(0, b"\x5b\x2a\x4d\x18"),
    at(0, b"\x5c\x2a\x4d\x18"),
    at(0, b"\x5d\x2a\x4d\x18"),
    at(0, b"\x5e\x2a\x4d\x18"),
    at(0, b"\x5f\x2a\x4d\x18"),
];

/// What VMDK descriptors begin with; QEMU takes whatever begins with a version for one.
pub(super) const DESCRIPTOR_LINES: [&[u8]; 4] = [b"# Disk DescriptorFile", b"version=1", b"version=2", b"version=3"];

/// The first whose signature is there is what a file is.
///
/// Sources: QEMU's docs/interop (qcow2, qed, parallels, vpc) and the drivers in its block/; VMware's Virtual Disk
/// Format 5.0; Microsoft's Virtual Hard Disk Image Format Specification and [MS-VHDX]; RFC 1952 (gzip) and 8878
/// (Zstandard); the formats' own pages for the rest.
static FORMATS: [FileFormat; 23] = [
    disk("qcow", "qcow (version 1)", &["qcow"], &[at(0, b"QFI\xfb\0\0\0\x01")]),
    disk("qcow2", "qcow2", &["qcow2"], &[at(0, b"QFI\xfb")]),
    disk(
        "vmdk",
        "VMDK",
        &["vmdk"],
        &[
            line(DESCRIPTOR_LINES[0]),
            line(DESCRIPTOR_LINES[1]),
            line(DESCRIPTOR_LINES[2]),
            line(DESCRIPTOR_LINES[3]),
            at(0, b"KDMV"),
            at(0, b"COWD"),
            at(0, b"\xbe\xba\xfe\xca\0\0\0\0"),
        ],
    ),
    disk("vhdx", "VHDX", &["vhdx", "avhdx", "vhds"], &[at(0, b"vhdxfile")]),
    // A dynamic disk begins with a copy of its footer; a fixed one has nothing but the footer, with its version.
    disk(
        "vpc",
        "VHD",
        &["vhd", "avhd", "vpc"],
        &[at(0, b"conectix"), in_last_sector(0, b"conectix\0\0\0\x02\0\x01\0\0")],
    ),
    disk("vdi", "VDI", &["vdi"], &[at(64, b"\x7f\x10\xda\xbe\x01\0\x01\0"), at(64, b"\x7f\x10\xda\xbe\x01\0\0\0")]),
    disk("qed", "QED", &["qed"], &[at(0, b"QED\0")]),
    disk("parallels", "Parallels", &["hdd", "hds"], &[at(0, b"WithoutFreeSpace"), at(0, b"WithouFreSpacExt")]),
    disk("bochs", "Bochs disk image", &["bochs"], &[at(0, b"Bochs Virtual HD Image\0")]),
    disk("cloop", "compressed loop image (cloop)", &["cloop"], &[at(0, b"#!/bin/sh\n#V2.0 Format\n")]),
    disk("dmg", "Apple disk image (dmg)", &["dmg"], &[in_last_sector(0, b"koly\0\0\0\x04\0\0\x02\0")]),
    disk("simg", "Android sparse image", &["simg"], &[at(0, b"\x3a\xff\x26\xed\x01\0\0\0\x1c\0\x0c\0")]),
    archive("vma", "Proxmox backup (VMA)", &["vma"], &[at(0, b"VMA\0\0\0\0\x01")]),
    compressed("gz", "gzip", &["gz", "tgz"], &[at(0, b"\x1f\x8b\x08")]),
    compressed("xz", "xz", &["xz", "txz"], &[at(0, b"\xfd7zXZ\0")]),
    compressed("zst", "Zstandard", &["zst", "zstd", "tzst"], ZSTANDARD),
    // Each block begins with the digits of pi; a file without any with those of its square root.
    compressed("bz2", "bzip2", &["bz2", "tbz2"], &[at(4, b"1AY&SY"), at(4, b"\x17\x72\x45\x38\x50\x90")]),
    compressed("lz4", "LZ4", &["lz4"], &[at(0, b"\x04\x22\x4d\x18")]),
    compressed("lzma", "LZMA", &["lzma"], &[]),
    archive("zip", "ZIP", &["zip"], &[at(0, b"PK\x03\x04"), at(0, b"PK\x05\x06")]),
    archive("7z", "7-Zip", &["7z"], &[at(0, b"7z\xbc\xaf\x27\x1c")]),
    // A tar that is called so.
    disk("ova", "OVA", &["ova"], &[]),
    archive("tar", "tar", &["tar"], &[at(257, b"ustar")]),
];

/// What raw disks begin with: partition tables, file systems and encryption, each with its offset.
static RAW_DISKS: [(u64, &[u8]); 6] = [
    (0, b"XFSB"),
    (0, b"LUKS\xba\xbe"),
    (510, b"\x55\xaa"),
    (512, b"EFI PART"),
    (0x438, b"\x53\xef"),
    (0x1_0040, b"_BHRfS_M"),
];

/// What else files begin with whose contents are not what somebody may take them for.
static STRANGE_BEGINNINGS: [(u64, &[u8], &str); 4] = [
    (0, b"LUKS\xba\xbe", "a LUKS volume"),
    (0x8001, b"CD001", "an ISO 9660 image"),
    (0x8001, b"NSR02", "an ISO 9660 image"),
    (0x8001, b"NSR03", "an ISO 9660 image"),
];

impl FileFormat {
    /// The format that a file of this name is in, going by its ending in whatever case; `None` for raw.
    pub fn of_name(path: &Path) -> Option<&'static Self> {
        let ending = path.extension()?.to_str()?;
        FORMATS.iter().find(|format| format.endings.iter().any(|known| ending.eq_ignore_ascii_case(known)))
    }

    /// The format that somebody calls so, by its word or by an ending, in whatever case.
    pub fn of_word(word: &str) -> Option<&'static Self> {
        let is = |known: &str| word.eq_ignore_ascii_case(known);
        FORMATS.iter().find(|format| is(format.word) || format.endings.iter().any(|known| is(known)))
    }

    /// The format that a file's contents show; `None` for raw. The outer `None`: there is nothing to read, as in a
    /// directory or a FIFO.
    ///
    /// # Errors
    /// When that cannot be read by which it would be known.
    pub fn of_file(file: &File) -> io::Result<Option<Option<&'static Self>>> {
        let kind = file.metadata()?.file_type();
        if !kind.is_file() && !kind.is_block_device() {
            return Ok(None);
        }
        let (ends, has_last) = Ends::read(file)?;
        match ends.format() {
            None => has_last.map(|()| Some(None)),
            found => Ok(Some(found)),
        }
    }

    /// The format of a file that begins and ends so, each at most a sector; `None` for raw. No end: it is not known.
    pub(crate) fn of_ends(first: &[u8], last: &[u8]) -> Option<&'static Self> {
        Ends { first: first.to_vec(), last: last.to_vec() }.format()
    }

    /// Whether a file looks like a disk, raw or not. Only for advice: raw disks hold what they like.
    pub fn is_of_disks(file: &File) -> bool {
        let begins = |(offset, signature): &(u64, &[u8])| {
            let mut bytes = vec![0; signature.len()];
            file.read_exact_at(&mut bytes, *offset).is_ok() && bytes == *signature
        };
        match Self::of_file(file) {
            Ok(Some(Some(format))) => format.sort == Sort::Disk,
            Ok(Some(None)) => RAW_DISKS.iter().any(begins),
            Ok(None) | Err(_) => false,
        }
    }

    /// What people call all that a file is by what it begins and ends with: its formats, and what raw disks begin with.
    ///
    /// # Errors
    /// When it cannot be read.
    pub fn signs_of(file: &File) -> io::Result<Vec<&'static str>> {
        let (ends, has_last) = Ends::read(file)?;
        has_last?;
        let formats = FORMATS.iter().filter(|format| format.signatures.iter().any(|signature| ends.has(signature)));
        let mut signs: Vec<_> = formats.map(|format| format.name).collect();
        // The first version of qcow begins as the second does.
        if signs.starts_with(&["qcow (version 1)", "qcow2"]) {
            signs.remove(1);
        }
        let mut beginning = [0; 6];
        for (offset, bytes, name) in STRANGE_BEGINNINGS {
            let is_there = file.read_exact_at(&mut beginning[..bytes.len()], offset).is_ok();
            if is_there && beginning[..bytes.len()] == *bytes && signs.last() != Some(&name) {
                signs.push(name);
            }
        }
        if ends.is_bootable() && !ends.is_fat() {
            signs.push("a boot sector");
        }
        Ok(signs)
    }

    /// What to do about a file in this format, where it is not supported: an imperative clause.
    pub fn remedy(&self) -> &'static str {
        match self.sort {
            Sort::Disk => "convert it with `qemu-img convert`",
            Sort::Compressed => "decompress it first",
            Sort::Archive => "unpack it first",
        }
    }

    /// Whether the signature is at the file's beginning.
    pub(crate) fn begins_files(&self) -> bool {
        self.signatures.iter().any(|signature| !matches!(signature.from, Origin::LastSector(_)))
    }
}

/// The parts of a file that have signatures.
struct Ends {
    first: Vec<u8>,
    last: Vec<u8>,
}

impl Ends {
    /// Both, and whether there is the last: what a file begins with may say enough.
    fn read(mut file: &File) -> io::Result<(Self, io::Result<()>)> {
        let mut first = Vec::with_capacity(SECTOR_BYTES);
        file.rewind()?;
        file.take(SECTOR_BYTES as u64).read_to_end(&mut first)?;
        let (last, has_last) = match last_sector(file) {
            Ok(last) => (last, Ok(())),
            Err(error) => (Vec::new(), Err(error)),
        };
        Ok((Self { first, last }, has_last))
    }

    fn format(&self) -> Option<&'static FileFormat> {
        FORMATS.iter().find(|format| {
            // A boot sector is code from its first byte on, and no archive has its mark but by chance.
            let is_possible = format.sort == Sort::Disk || !self.is_bootable();
            is_possible && format.signatures.iter().any(|signature| self.has(signature))
        })
    }

    fn is_bootable(&self) -> bool {
        self.first.get(510..) == Some(&[0x55, 0xaa])
    }

    /// A FAT file system's first sector ends like a partition table's: it has two tables, and lies on no floppy disk.
    fn is_fat(&self) -> bool {
        self.first.get(0x10) == Some(&2) && self.first.get(0x15) == Some(&0xf8)
    }

    fn has(&self, signature: &Signature) -> bool {
        let (sector, offset) = match signature.from {
            Origin::Start(offset) => (&self.first, offset),
            Origin::LastSector(offset) => (&self.last, offset),
            Origin::Line => return begins_with_line(&self.first, signature.bytes),
        };
        sector.get(offset..).is_some_and(|bytes| bytes.starts_with(signature.bytes))
    }
}

/// None of a file that is shorter.
fn last_sector(mut file: &File) -> io::Result<Vec<u8>> {
    let length_bytes = file.seek(SeekFrom::End(0))?;
    let Some(start) = length_bytes.checked_sub(SECTOR_BYTES as u64) else { return Ok(Vec::new()) };
    let mut last = vec![0; SECTOR_BYTES];
    file.read_exact_at(&mut last, start)?;
    Ok(last)
}

/// Whether a text has a line, in whatever case, before which there are only blank ones and comments.
pub(super) fn begins_with_line(text: &[u8], wanted: &[u8]) -> bool {
    let lines = text.split(|&byte| byte == b'\n').map(<[u8]>::trim_ascii);
    let mut before = true;
    for line in lines.take_while(|line| std::mem::replace(&mut before, line.is_empty() || line.starts_with(b"#"))) {
        if line.eq_ignore_ascii_case(wanted) {
            return true;
        }
    }
    false
}

#[cfg(test)]
mod tests {
    use super::*;

    fn format_of(first: &[u8], last: &[u8]) -> Option<&'static str> {
        let mut bytes = vec![0; 4096];
        bytes[..first.len()].copy_from_slice(first);
        bytes[4096 - SECTOR_BYTES..][..last.len()].copy_from_slice(last);
        let ends = Ends { first: bytes[..SECTOR_BYTES].to_vec(), last: bytes[4096 - SECTOR_BYTES..].to_vec() };
        ends.format().map(|format| format.word)
    }

    #[test]
    fn every_signature_is_found_where_it_is_and_nowhere_else() {
        for format in &FORMATS {
            for signature in format.signatures {
                let (mut first, mut last, mut elsewhere) = (Vec::new(), Vec::new(), vec![0xaa; 7]);
                let bytes = match signature.from {
                    Origin::Start(offset) => {
                        first.resize(offset, 0);
                        &mut first
                    }
                    Origin::LastSector(_) => &mut last,
                    Origin::Line => &mut first,
                };
                bytes.extend(signature.bytes);
                if signature.from == Origin::Line {
                    bytes.push(b'\n');
                }
                elsewhere.extend(bytes.iter());
                // qcow2's is that of its first version, and more follows.
                assert_eq!(format_of(&first, &last), Some(format.word));
                assert_eq!(format_of(&elsewhere, &[]), None, "{format:?}");
            }
        }
    }

    #[test]
    fn a_text_that_qemu_takes_for_a_vmdk_is_one() {
        for text in [
            "\n \t\r\n# x\n#\nversion=2\r\nRW 2 ZERO\n",
            "#DISK DESCRIPTORFILE\nVERSION=3\n",
            "\n# disk descriptorfile\n",
        ] {
            assert_eq!(format_of(text.as_bytes(), &[]), Some("vmdk"), "{text}");
        }
        for text in ["version=4\n", "version=1.0\n", "x\nversion=1\n", "version = 1\n", "# Disk\nDescriptorFile\n"] {
            assert_eq!(format_of(text.as_bytes(), &[]), None, "{text}");
        }
    }

    #[test]
    fn disks_are_told_from_other_files() {
        let looks_like_one = |bytes: &[u8]| {
            let file = tempfile::tempfile().unwrap();
            file.write_all_at(bytes, 0).unwrap();
            FileFormat::is_of_disks(&file)
        };
        for (offset, signature) in RAW_DISKS {
            assert!(looks_like_one(&[&vec![0; offset as usize], signature].concat()), "{signature:?}");
        }
        assert!(looks_like_one(b"QFI\xfb"));
        for other in [&b""[..], b"text", b"\x1f\x8b\x08", &[0; 4096]] {
            assert!(!looks_like_one(other), "{other:?}");
        }
    }

    #[test]
    fn a_boot_sector_is_no_archive_whatever_its_code_is() {
        for code in [&b"\x1f\x8b\x08"[..], b"PK\x03\x04", b"\x28\xb5\x2f\xfd", b"\x04\x22\x4d\x18"] {
            let mut sector = code.to_vec();
            assert!(format_of(&sector, &[]).is_some());
            sector.resize(510, 0);
            sector.extend([0x55, 0xaa]);
            assert_eq!(format_of(&sector, &[]), None);
        }
    }

    #[test]
    fn a_format_has_more_than_one_word() {
        let name = |word: &str| FileFormat::of_word(word).map(|format| format.name);
        assert_eq!((name("VDI"), name("vhd"), name("vpc")), (Some("VDI"), Some("VHD"), Some("VHD")));
        assert_eq!((name("raw"), name("")), (None, None));
    }

    #[test]
    fn names_say_formats_in_any_case() {
        let word = |name: &str| FileFormat::of_name(Path::new(name)).map(|format| format.word);
        for (name, format) in [
            ("x.VHDX", Some("vhdx")),
            ("a.b/x.vhd", Some("vpc")),
            ("x.img.gz", Some("gz")),
            ("x.Ova", Some("ova")),
            ("x.qcow2", Some("qcow2")),
            ("x.qcow2.img", None),
            ("vdi", None),
            (".vdi", None),
            ("x.iso", None),
            ("x", None),
        ] {
            assert_eq!(word(name), format, "{name}");
        }
    }
}
