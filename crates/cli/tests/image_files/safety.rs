//! `info --safety`: what a stranger's image could do to whoever opens it, and what oslo.utils says of the same file.

use super::*;

/// How a file comes about.
#[derive(Clone, Copy)]
enum Recipe {
    /// `qemu-img` makes it, by its arguments in front of the name.
    Made(&'static str),
    /// Another one with other bytes in some places.
    Changed(&'static str, &'static [(u64, &'static [u8])]),
    /// Another one, in which one text becomes another of the same length.
    Replaced(&'static str, &'static str, &'static str),
    /// Bytes in a file of this length.
    Bytes(u64, &'static [(u64, &'static [u8])]),
}

use Recipe::{Bytes, Changed, Made, Replaced};

const BOOT: (u64, &[u8]) = (510, b"\x55\xaa");
/// A protective partition from the second sector on.
const PROTECTIVE: (u64, &[u8]) = (446, b"\0\0\x02\0\xee\xff\xff\xff\x01\0\0\0\xff\x4f\0\0");
const LINUX: &[u8] = b"\0\0\x21\0\x83\xff\xff\xff\0\x08\0\0\0\x08\0\0";
/// Two entries of an L1 table for one L2 table.
const TWO_ENTRIES: (u64, &[u8]) = (36, &[0, 0, 0, 2]);
const TWO_TABLES: [u8; 16] = [0, 0, 0, 0, 0, 4, 0, 0, 0, 0, 0, 0, 0, 4, 0, 0];
const EMPTY_TABLE: (u64, &[u8]) = (0x4_0000, &[0]);
const ISO: (u64, &[u8]) = (0x8000, b"\x01CD001\x01");

/// Names, recipes, whether `format_inspector` of oslo.utils 10.2.0 calls them unsafe (its `InspectWrapper` on the whole
/// file, then `safety_check`; run by hand), and what we say of them.
const SHAPES: [(&str, Recipe, bool, &[&str]); 53] = [
    ("plain.qcow2", Made("create -f qcow2"), false, &[]),
    ("v2.qcow2", Made("create -f qcow2 -o compat=0.10"), false, &[]),
    ("base.img", Made("create -f raw"), false, &[]),
    ("plain.vdi", Made("create -f vdi"), false, &[]),
    ("plain.vhdx", Made("create -f vhdx"), false, &[]),
    ("plain.hdd", Made("create -f parallels"), false, &[]),
    ("plain.vhd", Made("create -f vpc -o force_size"), false, &[]),
    ("fixed.vhd", Made("create -f vpc -o subformat=fixed,force_size"), false, &[]),
    ("sparse.vmdk", Made("create -f vmdk"), false, &[]),
    ("stream.vmdk", Made("convert -f raw -O vmdk -o subformat=streamOptimized base.img"), false, &[]),
    ("mbr.img", Bytes(MIB, &[(446, LINUX), BOOT]), false, &[]),
    ("gpt.img", Bytes(MIB, &[PROTECTIVE, BOOT]), false, &["unknown"]),
    ("fat.img", Bytes(MIB, &[(0x10, &[2]), (0x15, &[0xf8]), BOOT]), false, &[]),
    ("iso.iso", Bytes(MIB, &[ISO]), false, &[]),
    ("text.img", Bytes(512, &[(0, b"plain text")]), false, &[]),
    // Stricter than oslo.utils.
    ("huge.qcow2", Made("create -f qcow2 -o cluster_size=2M,size=1P"), false, &["size"]),
    ("luks.img", Bytes(MIB, &[(0, b"LUKS\xba\xbe\0\x01")]), false, &["encrypted"]),
    ("packed.img.gz", Bytes(MIB, &[(0, b"\x1f\x8b\x08\0")]), false, &["unusable"]),
    ("corrupt.qcow2", Changed("plain.qcow2", &[(79, &[2])]), false, &["corrupt"]),
    // Its table of refcounts lies behind the end.
    ("cut.qcow2", Changed("plain.qcow2", &[(50, &[1])]), false, &["corrupt"]),
    // The first two parts of its disk have one table, without entries.
    ("shared.qcow2", Changed("plain.qcow2", &[TWO_ENTRIES, (0x3_0000, &TWO_TABLES), EMPTY_TABLE]), false, &["corrupt"]),
    ("misnamed.img", Changed("plain.qcow2", &[]), false, &["unusable"]),
    ("misnamed.qcow2", Changed("base.img", &[]), false, &["name", "unusable"]),
    ("misnamed.vmdk", Changed("plain.qcow2", &[]), false, &["name", "unusable"]),
    ("version.img", Bytes(MIB, &[(0, b"version=1\nRW 2 FLAT \"/etc/passwd\" 0\n")]), false, &["unusable"]),
    ("comment.img", Bytes(MIB, &[(0, b"\n   \r\n#x\nversion=3\r\nRW 2 FLAT \"f\" 0\n")]), false, &["unusable"]),
    ("bochs.img", Bytes(MIB, &[(0, b"Bochs Virtual HD Image\0")]), false, &["unusable"]),
    ("cloop.img", Bytes(MIB, &[(0, b"#!/bin/sh\n#V2.0 Format\n")]), false, &["unusable"]),
    (
        "version.vmdk",
        Bytes(512, &[(0, b"version=1\nRW 2 FLAT \"f\" 0\n")]),
        false,
        &["data-file", "subformat", "unknown"],
    ),
    ("zeros.vmdk", Bytes(512, &[(0, b"# Disk DescriptorFile\nRW 2 ZERO\n")]), false, &["subformat"]),
    ("difference.vmdk", Made("create -f vmdk -b sparse.vmdk -F vmdk"), false, &["backing-file", "unknown"]),
    ("difference.vdi", Changed("plain.vdi", &[(76, &[4])]), false, &["unusable"]),
    // As strict.
    ("parts.qcow2", Made("create -f qcow2 -o extended_l2=on"), true, &["features"]),
    ("feature4.qcow2", Changed("plain.qcow2", &[(79, &[1 << 4])]), true, &["features"]),
    ("backing.qcow2", Made("create -f qcow2 -b base.img -F raw"), true, &["backing-file", "unknown"]),
    ("data.qcow2", Made("create -f qcow2 -o data_file=data.raw"), true, &["data-file", "unknown"]),
    ("feature5.qcow2", Changed("plain.qcow2", &[(79, &[1 << 5])]), true, &["unusable"]),
    ("feature40.qcow2", Changed("plain.qcow2", &[(74, &[1])]), true, &["unusable"]),
    ("v9.qcow2", Changed("plain.qcow2", &[(7, &[9])]), true, &["unusable"]),
    ("boots.qcow2", Changed("plain.qcow2", &[BOOT]), true, &["formats", "boot-sector"]),
    ("disc.qcow2", Changed("plain.qcow2", &[ISO, (0x3ffff, &[0])]), true, &["formats"]),
    ("both.vdi", Changed("plain.vdi", &[(0, b"QFI\xfb\0\0\0\x03")]), true, &["formats", "unusable"]),
    ("plain.qed", Made("create -f qed"), true, &["subformat"]),
    ("flat.vmdk", Made("create -f vmdk -o subformat=monolithicFlat"), true, &["data-file", "subformat", "unknown"]),
    ("slash.vmdk", Replaced("sparse.vmdk", "\"sparse.vmdk\"", "\"/etc/passwd\""), true, &["descriptor"]),
    ("line.vmdk", Replaced("sparse.vmdk", "# The Disk Data Base", "include other things"), true, &["descriptor"]),
    ("type.vmdk", Replaced("sparse.vmdk", "\"monolithicSparse\"", "\"monolithicFlat\"  "), true, &["subformat"]),
    ("flag.img", Bytes(MIB, &[(446, LINUX), (446, &[0x41]), BOOT]), true, &["boot-sector"]),
    ("extra.img", Bytes(MIB, &[PROTECTIVE, (462, LINUX), BOOT]), true, &["boot-sector", "unknown"]),
    ("start.img", Bytes(MIB, &[PROTECTIVE, (454, &[7]), BOOT]), true, &["boot-sector", "unknown"]),
    ("second.img", Bytes(MIB, &[(462, PROTECTIVE.1), BOOT]), true, &["boot-sector", "unknown"]),
    ("nothing.img", Bytes(MIB, &[BOOT]), true, &["boot-sector"]),
    ("disc-that-boots.iso", Bytes(MIB, &[ISO, BOOT]), true, &["formats", "boot-sector"]),
];

fn make(yard: &Yard, name: &str, recipe: Recipe) {
    let path = yard.path(name);
    let write = |bytes: &[(u64, &[u8])]| {
        let file = File::options().write(true).open(&path).unwrap();
        bytes.iter().for_each(|(at, bytes)| file.write_all_at(bytes, *at).unwrap());
    };
    match recipe {
        Made(arguments) if arguments.starts_with("create") && !arguments.contains("size=1P") => {
            qemu_img(yard, &format!("{arguments} {name} 10M"));
        }
        Made(arguments) => {
            qemu_img(yard, &format!("{arguments} {name}"));
        }
        Changed(of, bytes) => {
            fs::copy(yard.path(of), &path).unwrap();
            write(bytes);
        }
        Replaced(of, from, to) => {
            let mut bytes = fs::read(yard.path(of)).unwrap();
            let at = bytes.windows(from.len()).position(|window| window == from.as_bytes()).unwrap();
            bytes[at..at + to.len()].copy_from_slice(to.as_bytes());
            fs::write(&path, bytes).unwrap();
        }
        Bytes(length, bytes) => {
            File::create(&path).unwrap().set_len(length).unwrap();
            write(bytes);
        }
    }
}

/// `BLOCKYARD_TEST_SHAPES=DIR` keeps the files, for who wants to ask others of them.
#[test]
fn strangers_images_are_judged_at_least_as_strictly_as_elsewhere() {
    let yard = Yard::new();
    for (name, recipe, is_unsafe_elsewhere, wanted) in SHAPES {
        make(&yard, name, recipe);
        let outcome = image(&yard, ["info", "--safety", "--json", name]);
        assert_eq!(outcome.code, Some(i32::from(!wanted.is_empty())), "{name}: {outcome:?}");
        let report: serde_json::Value = serde_json::from_str(&outcome.stdout).unwrap();
        let dangers = report["safety"]["dangers"].as_array().unwrap();
        let kinds: Vec<_> = dangers.iter().map(|danger| danger["kind"].as_str().unwrap()).collect();
        assert_eq!(kinds, wanted, "{name}: {report}");
        assert_eq!(report["safety"]["safe"], wanted.is_empty(), "{name}");
        assert!(!is_unsafe_elsewhere || !wanted.is_empty(), "{name}");
        let text = image(&yard, ["info", "--safety", name]).stdout;
        assert!(text.contains(if wanted.is_empty() { "\nsafe: yes\n" } else { "\nsafe: no\n    it " }), "{text}");
        if let Some(directory) = std::env::var_os("BLOCKYARD_TEST_SHAPES") {
            fs::copy(yard.path(name), Path::new(&directory).join(name)).unwrap();
        }
    }
    // Who believes the contents does not hear what is said of them here.
    let said = image(&yard, ["info", "--safety", "-f", "raw", "backing.qcow2"]);
    assert_eq!(said.code, Some(1), "{said:?}");
    assert!(said.stdout.contains("it is said to be raw, and is qcow2 by its contents"), "{said:?}");
    image(&yard, ["info", "--safety", "-f", "qcow2", "plain.qcow2"]).succeeded();
    image(&yard, ["info", "--safety", "null:1M"]).failed(2, &["null:1M"]);
    // Without being asked, it says nothing of that.
    let text = image(&yard, ["info", "backing.qcow2"]).succeeded().stdout;
    assert!(!text.contains("safe"), "{text}");
}
