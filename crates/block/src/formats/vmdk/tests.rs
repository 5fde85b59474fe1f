use super::descriptor::{Access, Descriptor, EXTENTS_MAX, ExtentLine, Storage};
use bolero::TypeGenerator;

#[test]
fn what_vmware_and_virtualbox_write_is_understood() {
    let text = "# Disk DescriptorFile\nversion=1\nencoding=\"windows-1252\"\nCID=3a2b\nparentCID=ffffffff\n\
                createType=\"fullDevice\"\nRW 63 FLAT \"a b.vmdk\" 0\nRW 20 FLAT \"/dev/sda\" 63\n\
                RDONLY 5 VMFS \"x-flat.vmdk\"\nNOACCESS 7 ZERO\nddb.adapterType = \"ide\"\n";
    let flat = |name: &str, offset_bytes| Storage::Flat { name: name.into(), offset_bytes };
    let extent = |access, sectors: u64, storage| ExtentLine { access, length_bytes: sectors * 512, storage };
    let wanted = vec![
        extent(Access::ReadWrite, 63, flat("a b.vmdk", 0)),
        extent(Access::ReadWrite, 20, flat("/dev/sda", 63 * 512)),
        extent(Access::ReadOnly, 5, flat("x-flat.vmdk", 0)),
        extent(Access::None, 7, Storage::Zero),
    ];
    assert_eq!(Descriptor::parse(text.as_bytes()), Ok(Descriptor { extents: wanted }));
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
fn fuzz_a_descriptor_is_understood_or_refused_but_never_half() {
    blockyard_fuzz::check!(20_000).with_type::<(bool, Vec<Line>)>().for_each(|(begins_well, lines)| {
        let mut bytes = if *begins_well { b"# Disk DescriptorFile\n".to_vec() } else { Vec::new() };
        for line in lines {
            bytes.extend(line.text());
            bytes.push(b'\n');
        }
        match Descriptor::parse(&bytes) {
            Ok(Descriptor { extents }) => {
                assert!(!extents.is_empty() && extents.len() <= EXTENTS_MAX);
                let total = extents.iter().try_fold(0_u64, |sum, extent| sum.checked_add(extent.length_bytes));
                assert!(total.is_some_and(|total| i64::try_from(total).is_ok()));
                assert!(extents.iter().all(|extent| extent.length_bytes > 0 && extent.length_bytes % 512 == 0));
            }
            Err(problem) => assert!(!problem.is_empty() && !problem.contains('\n') && problem.len() < 300),
        }
    });
}
