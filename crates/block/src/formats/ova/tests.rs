//! Archives that programs make, and those that somebody made to do harm.

use super::envelope::Envelope;
use super::{Ova, manifest};
use crate::formats::block_map::tests::samples::vmdk_image::{Kind, VmdkImage, descriptor};
use crate::{BlockMapDisk, Disk, DiskReader, FileOptions, OpenedFile};
use bolero::TypeGenerator;
use std::fs;
use std::num::NonZeroU32;
use std::path::Path;

/// A member: what it is, its name, how long it is said to be, and its bytes.
struct Entry {
    kind: u8,
    name: String,
    length: Option<u64>,
    bytes: Vec<u8>,
}

impl Entry {
    fn file(name: &str, bytes: impl Into<Vec<u8>>) -> Self {
        Self { kind: b'0', name: name.to_owned(), length: None, bytes: bytes.into() }
    }
}

fn tar(entries: &[Entry]) -> Vec<u8> {
    let mut archive = Vec::new();
    for Entry { kind, name, length, bytes } in entries {
        let mut header = [0; 512];
        let name = &name.as_bytes()[..name.len().min(100)];
        header[..name.len()].copy_from_slice(name);
        let length = length.unwrap_or(bytes.len() as u64);
        if length >> 33 == 0 {
            header[124..135].copy_from_slice(format!("{length:011o}").as_bytes());
        } else {
            header[124] = 0x80;
            header[128..136].copy_from_slice(&length.to_be_bytes());
        }
        header[148..156].fill(b' ');
        header[156] = *kind;
        header[257..263].copy_from_slice(b"ustar\0");
        let sum: u32 = header.iter().map(|&byte| u32::from(byte)).sum();
        header[148..155].copy_from_slice(format!("{sum:06o}\0").as_bytes());
        archive.extend(header);
        archive.extend(bytes);
        archive.resize(archive.len().next_multiple_of(512), 0);
    }
    archive.resize(archive.len() + 1024, 0);
    archive
}

const URI: &str = "http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized";

fn envelope(references: &str, disks: &str) -> String {
    format!(
        "<?xml version=\"1.0\"?>\n<!-- made -->\n<ovf:Envelope xmlns:ovf=\"x\"><ovf:References>{references}</ovf:References>\
         <DiskSection><Info>The disks</Info>{disks}</DiskSection><VirtualSystem ovf:id=\"vm\"/></ovf:Envelope>"
    )
}

fn one_disk() -> String {
    envelope(
        "<ovf:File ovf:id=\"file1\" ovf:href=\"disk.vmdk\" ovf:size=\"1\"/>",
        &format!(
            "<Disk ovf:diskId=\"d1\" ovf:fileRef=\"file1\" ovf:capacity=\"64\" \
             ovf:capacityAllocationUnits=\"byte * 2^10\" ovf:format=\"{URI}\"/>"
        ),
    )
}

fn contents() -> Vec<u8> {
    (0..64 << 10).map(|at| (at / 512) as u8 + 1).collect()
}

fn open(path: &Path, archive: &[u8]) -> Result<Ova, String> {
    fs::write(path, archive).unwrap();
    Ova::open(&OpenedFile::open(path, true).unwrap()).map_err(|error| crate::explain(&error))
}

fn open_disk(path: &Path, archive: &[u8]) -> Result<BlockMapDisk, String> {
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    open(path, archive)?.open_disk(None, &options).map_err(|error| crate::explain(&error))
}

#[test]
fn disks_are_read_where_they_lie_in_any_order() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vm.ova");
    for kind in [Kind::Stream, Kind::Hosted, Kind::Cowd, Kind::SeSparse] {
        let image = VmdkImage::of(kind, &contents()).bytes();
        let long = format!("{}/disk.vmdk", "d".repeat(120));
        let record = format!("path={long}\n");
        let record = format!("{} {record}", record.len() + 4);
        for entries in [
            vec![Entry::file("vm.ovf", one_disk()), Entry::file("disk.vmdk", image.clone())],
            vec![Entry::file("disk.vmdk", image.clone()), Entry::file("vm.ovf", one_disk())],
            vec![
                Entry { kind: b'2', ..Entry::file("disk.vmdk", "") },
                Entry { kind: b'5', ..Entry::file("d", "") },
                Entry { kind: b'g', ..Entry::file("pax", "21 comment=of nobody\n") },
                Entry { kind: b'L', ..Entry::file("././@LongLink", "disk.vmdk\0") },
                Entry::file("what does not fit", image.clone()),
                Entry { kind: b'x', ..Entry::file("pax", record) },
                Entry::file("another", "x"),
                Entry::file("./vm.OVF", one_disk()),
            ],
        ] {
            let disk = open_disk(&path, &tar(&entries)).unwrap();
            let mut bytes = vec![0; 64 << 10];
            DiskReader::new(&disk).unwrap().read(0, &mut bytes).unwrap();
            assert!(bytes == contents());
            assert_eq!(disk.check(&mut |line| panic!("{line}")).unwrap().corruptions, 0);
            assert_eq!(disk.files().collect::<Vec<_>>().len(), 1);
        }
    }
}

/// What refers to a member is a URI.
#[test]
fn references_are_decoded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vm.ova");
    let image = VmdkImage::of(Kind::Stream, &contents()).bytes();
    for (reference, names, wanted) in [
        ("a%20b%c3%A4.vmdk", &["a b\u{e4}.vmdk"][..], Ok("a b\u{e4}.vmdk")),
        ("a%20b.vmdk", &["a%20b.vmdk"], Ok("a%20b.vmdk")),
        ("100%.vmdk", &["100%.vmdk"], Ok("100%.vmdk")),
        ("%2e%2fa.vmdk", &["./a.vmdk"], Err("is no member of the archive")),
        ("a%2520b.vmdk", &["a b.vmdk"], Err("is no member of the archive")),
        ("a%+1.vmdk", &["a\u{1}.vmdk"], Err("is no member of the archive")),
        ("a%ff.vmdk", &["a\u{ff}.vmdk"], Err("is no member of the archive")),
        ("a%20b.vmdk", &["a b.vmdk", "a%20b.vmdk"], Err("has two members that \"a%20b.vmdk\" can mean")),
        ("a%20b.vmdk", &["a b.vmdk", "a b.vmdk"], Err("has two members whose names are \"a b.vmdk\"")),
    ] {
        let mut entries = vec![Entry::file("vm.ovf", one_disk().replace("disk.vmdk", reference))];
        entries.extend(names.iter().map(|name| Entry::file(name, image.clone())));
        match (open_disk(&path, &tar(&entries)), wanted) {
            (Ok(_), Ok(name)) => {
                let archive = Ova::open(&OpenedFile::open(&path, true).unwrap()).unwrap();
                assert_eq!(archive.names().last(), Some(name));
            }
            (Err(said), Err(wanted)) => assert!(said.contains(wanted), "{reference}: {said}"),
            (found, wanted) => panic!("{reference}: {found:?}, not {wanted:?}"),
        }
    }
}

#[test]
fn what_cannot_be_is_said_in_a_sentence() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("vm.ova");
    let image = VmdkImage::of(Kind::Stream, &contents()).bytes();
    let (ovf, disk) = (|text: String| Entry::file("vm.ovf", text), || Entry::file("disk.vmdk", image.clone()));
    let of = |from: &str, to: &str| {
        let text = one_disk();
        assert!(text.contains(from), "{from}");
        tar(&[ovf(text.replace(from, to)), disk()])
    };
    let mut cut_off = tar(&[ovf(one_disk()), disk()]);
    cut_off.truncate(cut_off.len() - 2048);
    let mut spoiled = tar(&[ovf(one_disk()), disk()]);
    spoiled[3] ^= 1;
    let with_files =
        VmdkImage { descriptor: descriptor(1, Some((1, "/etc/passwd")), ""), ..VmdkImage::new(Kind::Hosted, 4096) };
    for (archive, wanted) in [
        (tar(&[disk()]), "is no OVA: it has no description (.ovf)"),
        (tar(&[]), "is no OVA: it has no description"),
        (tar(&[ovf(one_disk()), ovf(one_disk())]), "has two members whose names end with .ovf"),
        (tar(&[ovf(one_disk()), disk(), disk()]), "has two members whose names are \"disk.vmdk\""),
        (tar(&[ovf(one_disk())]), "which is no member of the archive"),
        (cut_off, "is cut off: its member at"),
        (spoiled, "the checksum of a header is wrong, at 0"),
        (tar(&[Entry { length: Some(u64::MAX >> 1), ..ovf(one_disk()) }]), "is cut off: its member at 0"),
        (tar(&[Entry { length: Some(1 << 62), ..ovf(one_disk()) }]), "is cut off: its member at 0"),
        (tar(&[Entry { kind: b'x', ..Entry::file("pax", vec![b'1'; 70_000]) }]), "which is too long"),
        (tar(&[Entry { kind: b'x', ..Entry::file("pax", "9 size=x\n") }]), "a record in front of a member"),
        (tar(&[Entry { kind: b'x', ..Entry::file("pax", "9999 size=1\n") }]), "a record in front of a member"),
        (tar(&[ovf(" ".repeat(3 << 20))]), "has a member \"vm.ovf\" of 3145728 bytes"),
        (tar(&[Entry::file("vm.ovf", vec![0xff; 9])]), "that is no text in UTF-8"),
        (of("<ovf:References>", "<ovf:References"), "cannot be understood"),
        (of("</ovf:Envelope>", ""), "it is cut off"),
        (of("<!-- made -->", "<!DOCTYPE x [<!ENTITY a \"b\">]>"), "it has a DOCTYPE"),
        (of("ovf:size=\"1\"", "ovf:compression=\"&lol;\""), "lol"),
        (of("ovf:fileRef=\"file1\" ", ""), "has no file: it is a new, empty one"),
        (of("ovf:fileRef=\"file1\"", "ovf:fileRef=\"file2\""), "there is no file \"file2\""),
        (of("ovf:size=\"1\"", "ovf:compression=\"gzip\""), "is compressed (gzip): unpack the archive first"),
        (of("ovf:size=\"1\"", "ovf:chunkSize=\"1\""), "is in several pieces: unpack the archive first"),
        (of("\"disk.vmdk\"", "\"/etc/passwd\""), "is to be in \"/etc/passwd\", which is no member"),
        (of("\"disk.vmdk\"", "\"../disk.vmdk\""), "is to be in \"../disk.vmdk\", which is no member"),
        (of(URI, "http://example.com/qcow"), "only VMDK is supported"),
        (of("<Disk ", "<Disk ovf:parentRef=\"x\" "), "is a difference from another"),
        (tar(&[ovf(envelope("", ""))]), "has no disk 1, but 0"),
        (
            tar(&[ovf(one_disk()), Entry::file("disk.vmdk", descriptor(1, None, "RW 8 FLAT \"/etc/passwd\" 0"))]),
            "refers to other files",
        ),
        (tar(&[ovf(one_disk()), Entry::file("disk.vmdk", with_files.bytes())]), "refers to other files"),
        (
            tar(&[ovf(one_disk()), Entry::file("disk.vmdk", &image[..image.len() - 512])]),
            "is cut off: there is no footer",
        ),
    ] {
        let said = open_disk(&path, &archive).unwrap_err();
        assert!(said.contains(wanted) && said.starts_with(path.to_str().unwrap()) && !said.contains('\n'), "{said}");
    }
    let two = one_disk().replace("<Disk ", "<Disk ovf:diskId=\"d0\"/><Disk ");
    let archive = open(&path, &tar(&[ovf(two), disk()])).unwrap();
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    let said = archive.open_disk(None, &options).unwrap_err().to_string();
    assert!(said.contains("has 2 disks: add ,disk=1 to ,disk=2"), "{said}");
    let disk = archive.open_disk(NonZeroU32::new(2), &options).unwrap();
    assert_eq!(disk.geometry().capacity_bytes, 64 << 10);
    assert!(archive.open_disk(NonZeroU32::new(3), &options).is_err());
    assert!(archive.open_disk(NonZeroU32::new(u32::MAX), &options).is_err());
    let said = archive.open_disk(NonZeroU32::new(2), &FileOptions::default()).unwrap_err().to_string();
    assert!(said.contains("is an OVA, which is only read"), "{said}");
    let disks = archive.disks();
    assert_eq!((disks[1].capacity_bytes, disks[1].name.as_deref()), (Some(64 << 10), Some("disk.vmdk")));
}

#[test]
fn a_description_costs_what_its_length_allows() {
    let attributes: String = (0..100_000).map(|n| format!(" a{n}=\"1\"")).collect();
    let text = envelope("", &format!("<Disk{attributes}/>"));
    assert_eq!(Envelope::parse(&text).unwrap().disks().unwrap().len(), 1);
    assert!(Envelope::parse(&"<a>".repeat(600_000)).unwrap_err().contains("deep"));
    assert!(Envelope::parse(&envelope("", &"<Disk/>".repeat(257))).unwrap_err().contains("more than 256 disks"));
    let files: String = (0..4097).map(|n| format!("<File id=\"{n}\" href=\"x\"/>")).collect();
    assert!(Envelope::parse(&envelope(&files, "")).unwrap_err().contains("more than 4096 files"));
    assert!(Envelope::parse(&envelope(&files[..60], "").replace("\"1\"", "\"0\"")).is_err());
}

#[test]
fn manifests_are_lines_of_digests() {
    let sha1 = "SHA1(a (1) = b.ovf)= da39a3ee5e6b4b0d3255bfef95601890afd80709\r\n\n";
    let digests = manifest::parse(sha1).unwrap();
    assert_eq!((digests.len(), digests[0].name()), (1, "a (1) = b.ovf"));
    for line in [
        "SHA1(a)= da39",
        "MD5(a)= d41d8cd98f00b204e9800998ecf8427e",
        "SHA256(a)= da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "SHA1(a= da39a3ee5e6b4b0d3255bfef95601890afd80709",
        "SHA1(a)= +a39a3ee5e6b4b0d3255bfef95601890afd80709",
        "nonsense",
    ] {
        assert!(manifest::parse(line).unwrap_err().contains("a line that cannot be understood"), "{line}");
    }
    assert!(manifest::parse(&sha1.repeat(4097)).unwrap_err().contains("more than 4096 lines"));
    assert!(manifest::parse(&sha1.repeat(2)).unwrap_err().contains("two digests of"));
}

/// What is worth putting into an archive.
#[derive(Clone, Debug, TypeGenerator)]
enum Item {
    Member { kind: u8, name: u8, bytes: u8, length: Option<u64> },
    Description(Vec<u8>),
    Noise(Vec<u8>),
}

/// Words of a description.
const WORDS: [&str; 20] = [
    "<References>",
    "</References>",
    "<DiskSection>",
    "</DiskSection>",
    "<Envelope>",
    "</Envelope>",
    "<Disk ",
    "<File ",
    "/>",
    ">",
    "id=\"a\" ",
    "href=\"disk.vmdk\" ",
    "fileRef=\"a\" ",
    "format=\"vmdk\" ",
    "capacity=\"18446744073709551615\" ",
    "capacityAllocationUnits=\"byte * 2^63\" ",
    "&amp;",
    "&#x0;",
    "<!-- -->",
    "<![CDATA[",
];

#[test]
fn fuzz_any_archive_is_disks_or_a_sentence() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = directory.path().join("vm.ova");
    let image = VmdkImage::of(Kind::Stream, &contents()[..8192]).bytes();
    blockyard_fuzz::check!(1000).with_type::<(bool, Vec<Item>)>().for_each(|(has_one, items)| {
        let mut entries = Vec::new();
        for item in items {
            entries.push(match item {
                Item::Member { kind, name, bytes, length } => {
                    let kind = b"001257xgLKS\0"[usize::from(*kind) % 12];
                    let name = ["vm.ovf", "disk.vmdk", "vm.mf", "../disk.vmdk", "", "\u{1}\n"][usize::from(*name) % 6];
                    let bytes = match bytes % 5 {
                        0 => image.clone(),
                        1 => one_disk().into_bytes(),
                        2 => b"17 path=vm.mf\n16 size=8192\n".to_vec(),
                        3 => b"SHA1(disk.vmdk)= da39a3ee5e6b4b0d3255bfef95601890afd80709\n".to_vec(),
                        _ => Vec::new(),
                    };
                    Entry { kind, name: name.to_owned(), length: length.map(|length| length >> (length % 64)), bytes }
                }
                Item::Description(words) => {
                    let text: String = words.iter().map(|word| WORDS[usize::from(*word) % WORDS.len()]).collect();
                    Entry::file("vm.ovf", text)
                }
                Item::Noise(noise) => Entry::file("disk.vmdk", noise.clone()),
            });
        }
        if *has_one {
            entries.push(Entry::file("disk.vmdk", image.clone()));
            entries.push(Entry::file("vm.ovf", one_disk()));
        }
        let is_sentence = |said: &str| assert!(!said.is_empty() && !said.contains('\n') && said.len() < 8000, "{said}");
        let archive = match open(&path, &tar(&entries)) {
            Ok(archive) => archive,
            Err(said) => return is_sentence(&said),
        };
        let options = FileOptions { read_only: true, engine: crate::Engine::Sync, ..FileOptions::default() };
        for number in 1..=archive.disks().len().min(4) as u32 {
            match archive.open_disk(NonZeroU32::new(number), &options) {
                Ok(disk) => {
                    let mut bytes = vec![0; 512];
                    let _ = DiskReader::new(&disk).unwrap().read(0, &mut bytes);
                }
                Err(error) => is_sentence(&crate::explain(&error)),
            }
        }
        match archive.digests() {
            Ok(digests) => {
                for digest in digests.unwrap_or_default() {
                    let _ = archive.compare(&digest).map(|problem| problem.iter().for_each(|said| is_sentence(said)));
                }
            }
            Err(error) => is_sentence(&crate::explain(&error)),
        }
    });
}
