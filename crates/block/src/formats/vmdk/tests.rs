use super::descriptor::{Descriptor, EXTENTS_MAX, ExtentAccess, ExtentLine, Storage};
use crate::{AllowedDirectories, BlockMapDisk, BlockMapFormat, Disk, FileOptions};
use bolero::TypeGenerator;
use std::fs;

#[test]
fn what_vmware_and_virtualbox_write_is_understood() {
    let text = "# Disk DescriptorFile\nversion=1\nencoding=\"windows-1252\"\nCID=3a2b\nparentCID=ffffffff\n\
                createType=\"fullDevice\"\nRW 63 FLAT \"a b.vmdk\" 0\nRW 20 FLAT \"/dev/sda\" 63\n\
                RDONLY 5 VMFS \"x-flat.vmdk\"\nNOACCESS 7 ZERO\nddb.adapterType = \"ide\"\n";
    let flat = |name: &str, offset_bytes| Storage::Flat { name: name.into(), offset_bytes };
    let extent =
        |access, sectors: u64, kind, storage| ExtentLine { access, length_bytes: sectors * 512, kind, storage };
    let wanted = vec![
        extent(ExtentAccess::ReadWrite, 63, "FLAT", flat("a b.vmdk", 0)),
        extent(ExtentAccess::ReadWrite, 20, "FLAT", flat("/dev/sda", 63 * 512)),
        extent(ExtentAccess::ReadOnly, 5, "VMFS", flat("x-flat.vmdk", 0)),
        extent(ExtentAccess::None, 7, "ZERO", Storage::Zero),
    ];
    assert_eq!(
        Descriptor::parse(text.as_bytes()),
        Ok(Descriptor {
            cid: 0x3a2b,
            cid_at: Some((60, 4)),
            parent_cid: u32::MAX,
            parent_cid_at: Some((75, 8)),
            create_type: "fullDevice".into(),
            parent: None,
            extents: wanted,
            oddity: None,
        })
    );
}

/// A line, or something like one.
#[derive(Clone, Debug, TypeGenerator)]
enum Line {
    Extent { access: u8, sectors: u64, kind: u8, name: u8, offset: u64 },
    Setting { key: u8, value: u8 },
    Noise(Vec<u8>),
}

impl Line {
    fn text(&self) -> Vec<u8> {
        let pick = |of: &[&str], index: u8| of[usize::from(index) % of.len()].to_owned();
        let text = match self {
            Self::Extent { access, sectors, kind, name, offset } => {
                let access = pick(&["RW", "RDONLY", "NOACCESS", "rw"], *access);
                let kind = pick(&["FLAT", "VMFS", "ZERO", "SPARSE"], *kind);
                let name = pick(&["\"a\"", "\"\"", "\"../b", "c\"", "\"d e\"", "\"nbd:f\""], *name);
                format!("{access} {} {kind} {name} {offset}", sectors >> (offset % 64))
            }
            Self::Setting { key, value } => {
                let key = pick(&["version", "parentCID", "encoding", "CID", "#", ""], *key);
                format!("{key}={}", pick(&["1", "\"ffffffff\"", "UTF-8", "9", ""], *value))
            }
            Self::Noise(noise) => return noise.clone(),
        };
        text.into_bytes()
    }
}

#[test]
fn the_number_of_the_contents_is_found_where_it_is_said_once() {
    let text = |lines: &str| format!("# Disk DescriptorFile\nversion=1\n{lines}parentCID=ffffffff\nRW 8 ZERO\n");
    let at = |lines: &str| Descriptor::parse(text(lines).as_bytes()).unwrap().cid_at;
    assert_eq!(at("CID=12345678\n"), Some((36, 8)));
    assert_eq!(at("cid =ab\r\n"), Some((37, 2)));
    for lines in ["", "CID=\n", "CID=123456789\n", "CID=x\n", "CID=1\nCID=1\n", "CID=\"1\"\n", "#CID=1\n"] {
        assert_eq!(at(lines), None, "{lines:?}");
    }
}

#[test]
fn what_is_left_behind_the_end_of_a_text_is_no_line() {
    let text = b"# Disk DescriptorFile\nRW 8 ZERO\n";
    for (rest, is_end) in [
        (&b"\0\n\0\0"[..], true),
        (b"\x00147\"\n", true),
        (b"\0RW 8 FLAT \"a\"", false),
        (b"\0\n\n\n\n\n\n\n\nx", false),
    ] {
        assert_eq!(Descriptor::parse(&[text, rest].concat()).is_ok(), is_end, "{rest:?}");
    }
}

#[test]
fn fuzz_a_descriptor_is_understood_or_refused_but_never_half() {
    blockyard_fuzz::check!(20_000).with_type::<(bool, Vec<Line>)>().for_each(|(begins_well, lines)| {
        let mut bytes = if *begins_well { b"# Disk DescriptorFile\n".to_vec() } else { Vec::new() };
        for line in lines {
            bytes.extend(line.text());
            bytes.push(b'\n');
        }
        match Descriptor::parse(&bytes) {
            Ok(Descriptor { extents, .. }) => {
                assert!(!extents.is_empty() && extents.len() <= EXTENTS_MAX);
                let total = extents.iter().try_fold(0_u64, |sum, extent| sum.checked_add(extent.length_bytes));
                assert!(total.is_some_and(|total| i64::try_from(total).is_ok()));
                assert!(extents.iter().all(|extent| extent.length_bytes > 0 && extent.length_bytes % 512 == 0));
            }
            Err(problem) => assert!(!problem.is_empty() && !problem.contains('\n') && problem.len() < 300),
        }
    });
}

/// Bytes that are read, and extents that are looked at, follow from the length of the descriptor, wherever its extents
/// lie.
#[test]
fn extents_that_are_all_one_range_of_one_file_cost_no_more_than_their_lines() {
    let directory = tempfile::tempdir().unwrap();
    let (path, data) = (directory.path().join("disk.vmdk"), directory.path().join("data"));
    fs::write(&data, vec![1; 4096]).unwrap();
    let text = |lines: usize| {
        let extents = "RW 8 FLAT \"data\" 0\nRW 4503599627370 ZERO\n".repeat(lines / 2);
        format!("# Disk DescriptorFile\nversion=1\nCID=1\nparentCID=ffffffff\n{extents}")
    };
    let open = |lines: usize| {
        fs::write(&path, text(lines)).unwrap();
        let allowed = AllowedDirectories::new(&[directory.path()]).unwrap();
        BlockMapDisk::open(
            &path,
            BlockMapFormat::Vmdk,
            &FileOptions { read_only: true, ..FileOptions::default() },
            &allowed,
        )
    };
    let disk = open(EXTENTS_MAX).unwrap();
    assert_eq!(disk.files().count(), 1);
    let capacity_bytes = disk.geometry().capacity_bytes;
    assert!(capacity_bytes > 1 << 60);
    let (mut at, mut extents) = (0, 0);
    while at < capacity_bytes {
        at += disk.extents(at..capacity_bytes).unwrap().length_bytes;
        extents += 1;
    }
    assert_eq!(extents, EXTENTS_MAX);
    let said = open(EXTENTS_MAX + 2).unwrap_err().to_string();
    assert!(said.contains("more than 1024 extents"), "{said}");
    // However long the file is, so much of it is read.
    fs::OpenOptions::new().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
    let allowed = AllowedDirectories::new(&[directory.path()]).unwrap();
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    let said = BlockMapDisk::open(&path, BlockMapFormat::Vmdk, &options, &allowed).unwrap_err().to_string();
    assert!(said.contains("at most 262144 bytes"), "{said}");
}
