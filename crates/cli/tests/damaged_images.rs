//! Images that are damaged, absurd or malicious, made here from good ones: each command ends soon, in little memory,
//! with one sentence.

mod support;

use std::fs;
use std::process::{Command, Stdio};
use support::{Outcome, Yard, random_bytes};

const MIB: usize = 1 << 20;

/// What no command may need, in KiB: address space, so that nothing can be hidden.
const ADDRESS_SPACE_KIB: &str = "2000000";

/// `blockyard image`, in so much address space.
fn image(yard: &Yard, arguments: &[&str]) -> Outcome {
    let mut command = Command::new("sh");
    command.args(["-c", &format!("ulimit -v {ADDRESS_SPACE_KIB} && exec \"$@\""), "sh"]);
    command.arg(env!("CARGO_BIN_EXE_blockyard")).arg("image").args(arguments).current_dir(yard.path(""));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    // A map may be longer than a pipe takes.
    let output = command.output().unwrap();
    output.into()
}

/// Which exit status a command must have; `Any` of 0 and 1 where it depends on what is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Ends {
    Well,
    Badly,
    Any,
}
use Ends::{Any, Badly, Well};

/// It ends as it should, and if badly with one sentence.
#[track_caller]
fn ends(outcome: &Outcome, how: Ends, what: &str) {
    let code = outcome.code.unwrap_or_else(|| panic!("{what}: a signal: {outcome:?}"));
    match how {
        Well => assert_eq!(code, 0, "{what}: {outcome:?}"),
        Badly => assert_eq!(code, 1, "{what}: {outcome:?}"),
        Any => assert!(code <= 1, "{what}: {outcome:?}"),
    }
    if code == 1 {
        // What is worth knowing besides comes before.
        let notes = outcome.stderr.lines().take_while(|line| line.starts_with("blockyard: note: "));
        let said: Vec<_> = outcome.stderr.lines().skip(notes.count()).collect();
        let said = said.join("\n");
        assert!(said.starts_with("blockyard: ") && said.lines().count() == 1, "{what}: {said}");
        // A guest names each partition that it has looked at.
        assert!(said.len() < if what.starts_with("ls in the guest") { 20_000 } else { 1000 }, "{what}: {said}");
    }
}

/// Runs the commands on one image, which is looked at whatever is wrong with it. `check`: its exit status.
#[track_caller]
fn commands(yard: &Yard, name: &str, opens: Ends, check: &[i32]) {
    ends(&image(yard, &["info", name]), Well, &format!("info {name}"));
    ends(&image(yard, &["map", "--json", "--allow-dir", ".", name]), opens, &format!("map {name}"));
    ends(&image(yard, &["convert", "--allow-dir", ".", name, "out.img"]), opens, &format!("convert {name}"));
    let checked = image(yard, &["check", "--allow-dir", ".", name]);
    assert!(check.contains(&checked.code.unwrap()), "check {name}: {checked:?}");
    if opens == Badly {
        // Nothing is booted for it.
        ends(&image(yard, &["ls", "--allow-dir", ".", name]), Badly, &format!("ls {name}"));
    }
    let _ = fs::remove_file(yard.path("out.img"));
}

/// A good qcow2 image of 4 MiB, as bytes.
fn good(yard: &Yard) -> Vec<u8> {
    let mut disk = random_bytes(4 * MIB, 5);
    disk[MIB..2 * MIB].fill(0);
    fs::write(yard.path("disk.img"), disk).unwrap();
    image(yard, &["convert", "disk.img", "good.qcow2"]).succeeded();
    fs::read(yard.path("good.qcow2")).unwrap()
}

fn be64(bytes: &[u8], at: usize) -> u64 {
    u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap())
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

#[test]
fn headers_of_qcow2_that_cannot_be() {
    let yard = Yard::new();
    let good = good(&yard);
    for length in [0, 3, 4, 71, 103, 111] {
        fs::write(yard.path("bad.qcow2"), &good[..length]).unwrap();
        commands(&yard, "bad.qcow2", Badly, &[1]);
    }
    let cases: [(&str, usize, &[u8]); 19] = [
        ("no qcow2", 0, b"QFI\0"),
        ("version 0", 4, &[0; 4]),
        ("a version to come", 4, &[0, 0, 0, 9]),
        ("a name far away", 8, &[0, 0, 0, 0, 0xff, 0, 0, 0, 0, 0, 0, 9]),
        ("a long name", 8, &[0, 0, 0, 0, 0, 0, 2, 0, 0xff, 0, 0, 0]),
        ("clusters of 256", 20, &[0, 0, 0, 8]),
        ("clusters of 4 MiB", 20, &[0, 0, 0, 22]),
        ("clusters of 2^63", 20, &[0, 0, 0, 63]),
        ("all the bytes there are", 24, &[0xff; 8]),
        ("2^57 bytes", 24, &[2, 0, 0, 0, 0, 0, 0, 0]),
        ("a vast L1 table", 36, &[0xff; 4]),
        ("no L1 table", 36, &[0; 4]),
        ("an L1 table behind the end", 40, &[0, 0, 1, 0, 0, 0, 0, 0]),
        ("an L1 table nowhere", 40, &[0; 8]),
        ("an L1 table within a cluster", 40, &[0, 0, 0, 0, 0, 1, 2, 0]),
        ("a refcount table within a cluster", 48, &[0, 0, 0, 0, 0, 1, 2, 0]),
        ("features to come", 72, &[0x80, 0, 0, 0, 0, 0, 0, 0]),
        ("refcounts of 128 bits", 96, &[0, 0, 0, 7]),
        ("a vast header", 100, &[0xff; 4]),
    ];
    for (what, at, value) in cases {
        let mut bytes = good.clone();
        put(&mut bytes, at, value);
        fs::write(yard.path("bad.qcow2"), bytes).unwrap();
        println!("{what}");
        commands(&yard, "bad.qcow2", Badly, &[1]);
    }
    // Which only a writer needs.
    let tables: [(usize, &[u8]); 5] = [
        (48, &[0, 0, 1, 0, 0, 0, 0, 0]),
        (48, &[0xff, 0, 0, 0, 0, 0, 0, 0]),
        (48, &[0; 8]),
        (56, &[0xff; 4]),
        (56, &[0; 4]),
    ];
    for (at, value) in tables {
        let mut bytes = good.clone();
        put(&mut bytes, at, value);
        fs::write(yard.path("bad.qcow2"), bytes).unwrap();
        commands(&yard, "bad.qcow2", Well, &[2]);
    }
}

#[test]
fn tables_of_qcow2_that_lead_astray() {
    let yard = Yard::new();
    let good = good(&yard);
    let (l1, table) = (be64(&good, 40) as usize, be64(&good, 48) as usize);
    let l2 = (be64(&good, l1) & !(1 << 63)) as usize;
    let copied = 1_u64 << 63;
    for (what, at, value) in [
        ("an L2 table far away", l1, copied | 1 << 50),
        ("an L2 table within a cluster", l1, copied | (l2 as u64 + 512)),
        ("an L1 table that is its own L2 table", l1, copied | l1 as u64),
        ("a header that is an L2 table", l1, copied | 1),
        ("a cluster far away", l2, copied | 1 << 50),
        ("a cluster within a cluster", l2, copied | (l2 as u64 + 512)),
        ("a cluster that is the table", l2, copied | l2 as u64),
        ("two entries for a cluster", l2, be64(&good, l2 + 8)),
        ("packed data far away", l2, 1 << 62 | 1 << 50),
        ("more packed data than a cluster has", l2, 1 << 62 | ((1 << 54) - 1) << 8 & ((1 << 62) - 1) | l2 as u64),
        ("bits to come", l2, be64(&good, l2) | 1 << 57),
        ("a block of refcounts far away", table, 1 << 50),
        ("a block of refcounts within a cluster", table, table as u64 + 512),
        ("a refcount table that is its own block", table, table as u64),
        ("no refcounts", table, 0),
        ("more snapshots than there can be", 60, u64::MAX),
        ("snapshots far away", 60, 1 << 32),
    ] {
        let mut bytes = good.clone();
        put(&mut bytes, at, &value.to_be_bytes());
        fs::write(yard.path("bad.qcow2"), bytes).unwrap();
        println!("{what}");
        commands(&yard, "bad.qcow2", Any, &[2]);
    }
    let mut vast = good.clone();
    put(&mut vast, 24, &(1_u64 << 56).to_be_bytes());
    fs::write(yard.path("bad.qcow2"), vast).unwrap();
    // Its L1 table does not reach so far.
    commands(&yard, "bad.qcow2", Badly, &[1]);
    for length in [good.len() / 4, good.len() / 2, good.len() - 65536] {
        fs::write(yard.path("bad.qcow2"), &good[..length]).unwrap();
        commands(&yard, "bad.qcow2", Any, &[1, 2]);
    }
    // What is dirty or corrupt can be read, and be checked, which is what helps.
    for mark in [1, 2] {
        let mut bytes = good.clone();
        bytes[79] |= mark;
        fs::write(yard.path("bad.qcow2"), bytes).unwrap();
        commands(&yard, "bad.qcow2", Well, &[0]);
        image(&yard, &["check", "-r", "all", "bad.qcow2"]).succeeded();
        commands(&yard, "bad.qcow2", Well, &[0]);
    }
}

#[test]
fn images_that_refer_to_what_they_must_not() {
    let yard = Yard::new();
    fs::create_dir(yard.path("elsewhere")).unwrap();
    fs::write(yard.path("elsewhere/secret"), random_bytes(MIB, 1)).unwrap();
    let outside = yard.path("elsewhere/secret");
    for name in
        ["/etc/passwd", "../../../../etc/passwd", outside.to_str().unwrap(), "nbd://host/x", "json:{}", "/dev/zero"]
    {
        image(&yard, &["create", "-q", "-u", "-b", name, "-F", "raw", "bad.qcow2", "1M"]).succeeded();
        let arguments = ["convert", "--allow-dir", "images", "bad.qcow2", "out.img"];
        fs::create_dir_all(yard.path("images")).unwrap();
        ends(&image(&yard, &arguments), Badly, name);
        ends(&image(&yard, &["info", "bad.qcow2"]), Well, name);
        ends(&image(&yard, &["map", "bad.qcow2"]), Badly, name);
        ends(&image(&yard, &["ls", "bad.qcow2"]), Badly, name);
        assert_eq!(image(&yard, &["check", "bad.qcow2"]).code, Some(0), "it looks at nothing but the image");
        ends(&image(&yard, &["commit", "bad.qcow2"]), Badly, name);
        ends(&image(&yard, &["rebase", "-b", "", "bad.qcow2"]), Badly, name);
        assert!(!yard.path("out.img").exists());
    }
    // Chains without an end.
    for (image_name, backing) in [("a.qcow2", "b.qcow2"), ("b.qcow2", "a.qcow2"), ("self.qcow2", "else.qcow2")] {
        image(&yard, &["create", "-q", "-u", "-b", backing, "-F", "qcow2", image_name, "1M"]).succeeded();
    }
    // Nobody makes this one.
    let mut bytes = fs::read(yard.path("self.qcow2")).unwrap();
    let at = bytes.windows(4).position(|window| window == b"else").unwrap();
    bytes[at..at + 4].copy_from_slice(b"self");
    fs::write(yard.path("self.qcow2"), bytes).unwrap();
    for name in ["a.qcow2", "self.qcow2"] {
        commands(&yard, name, Badly, &[0]);
        for command in
            [&["commit", "--allow-dir", ".", name][..], &["info", "--backing-chain", "--allow-dir", ".", name]]
        {
            ends(&image(&yard, command), Badly, name);
        }
    }
    image(&yard, &["rebase", "-q", "-u", "-b", "", "self.qcow2"]).succeeded();
    commands(&yard, "self.qcow2", Well, &[0]);
}

#[test]
fn vmdk_descriptors_that_lie() {
    let yard = Yard::new();
    fs::write(yard.path("flat"), random_bytes(MIB, 1)).unwrap();
    let descriptor =
        |extents: &str| format!("# Disk DescriptorFile\nversion=1\nparentCID=ffffffff\n{extents}\n").into_bytes();
    fs::write(yard.path("good.vmdk"), descriptor("RW 2048 FLAT \"flat\" 0")).unwrap();
    image(&yard, &["check", "--allow-dir", ".", "good.vmdk"]).succeeded();
    let many = "RW 1 ZERO\n".repeat(5000);
    for (what, bytes) in [
        ("nothing", Vec::new()),
        ("noise", random_bytes(5000, 7)),
        ("a sparse one", [b"KDMV".to_vec(), random_bytes(1000, 8)].concat()),
        ("no extents", descriptor("")),
        ("more than the file", descriptor("RW 2049 FLAT \"flat\" 0")),
        ("behind the file", descriptor("RW 2048 FLAT \"flat\" 9223372036854775807")),
        ("all the sectors there are", descriptor("RW 18446744073709551615 FLAT \"flat\" 0")),
        ("too many together", descriptor(&"RW 9007199254740991 ZERO\n".repeat(900))),
        ("too many extents", descriptor(&many)),
        ("another's file", descriptor("RW 8 FLAT \"/etc/passwd\" 0")),
        ("a file above", descriptor("RW 8 FLAT \"../../../../../etc/passwd\" 0")),
        ("a name that does not end", descriptor("RW 8 FLAT \"flat")),
        ("a kind to come", descriptor("RW 8 QUANTUM \"flat\" 0")),
        ("a parent", b"# Disk DescriptorFile\nparentCID=1\nRW 8 ZERO\n".to_vec()),
        ("a vast one", [b"# Disk DescriptorFile\n".to_vec(), vec![b'#'; 400_000]].concat()),
    ] {
        fs::write(yard.path("bad.vmdk"), bytes).unwrap();
        println!("{what}");
        commands(&yard, "bad.vmdk", Badly, &[1]);
    }
}

/// A partition table's sector, with its signature.
fn boot_sector(entries: &[[u8; 16]]) -> Vec<u8> {
    let mut sector = vec![0; 512];
    for (index, entry) in entries.iter().enumerate() {
        put(&mut sector, 446 + index * 16, entry);
    }
    put(&mut sector, 510, &[0x55, 0xaa]);
    sector
}

fn entry(kind: u8, start: u32, length: u32) -> [u8; 16] {
    let mut entry = [0; 16];
    entry[4] = kind;
    entry[8..12].copy_from_slice(&start.to_le_bytes());
    entry[12..16].copy_from_slice(&length.to_le_bytes());
    entry
}

#[test]
fn partition_tables_that_contradict_themselves() {
    let yard = Yard::new();
    let mut loops = boot_sector(&[entry(5, 1, 2000)]);
    loops.extend(boot_sector(&[entry(0x83, 1, 1), entry(5, 0, 2000)]));
    let mut gpt = boot_sector(&[entry(0xee, 1, u32::MAX)]);
    gpt.extend(b"EFI PART");
    gpt.extend([0xff; 504]);
    for (what, table) in [
        ("a partition behind the end", boot_sector(&[entry(0x83, 1, u32::MAX)])),
        ("partitions on each other", boot_sector(&[entry(0x83, 1, 1000), entry(0x83, 500, 1000)])),
        ("logical partitions in a circle", loops),
        ("a GPT of nothing but ones", gpt),
    ] {
        let mut disk = table;
        disk.resize(2 * MIB, 0);
        fs::write(yard.path("bad.img"), disk).unwrap();
        println!("{what}");
        commands(&yard, "bad.img", Well, &[63]);
        let partition = image(&yard, &["convert", "bad.img,partition=7", "out.img"]);
        ends(&partition, Badly, what);
        // The guest looks at it too, and finds no file system.
        let mut ls = Command::new(env!("CARGO_BIN_EXE_blockyard"));
        let output = ls.args(["image", "ls", "bad.img"]).current_dir(yard.path("")).output().unwrap();
        assert!(output.stderr.len() < 500, "{what}: {}", String::from_utf8_lossy(&output.stderr));
        ends(&output.into(), Badly, &format!("ls in the guest, {what}"));
    }
}

/// Where numbers of a header lie, and how they are written.
struct Numbers {
    format: &'static str,
    options: &'static str,
    is_big_endian: bool,
    places: &'static [usize],
}

/// Those of which the rest follows: sizes, and where tables and data lie.
const NUMBERS: [Numbers; 7] = [
    Numbers {
        format: "vdi",
        options: "static=off",
        is_big_endian: false,
        places: &[340, 344, 368, 372, 376, 384, 512],
    },
    Numbers { format: "vpc", options: "force_size=on", is_big_endian: true, places: &[528, 532, 540, 544, 1536, 1540] },
    Numbers {
        format: "vhdx",
        options: "block_size=1M",
        is_big_endian: false,
        places: &[0x3_0008, 0x3_0020, 0x3_0028, 0x10_0000, 0x20_0000, 0x20_0008, 0x21_0000, 0x30_0000, 0x30_0004],
    },
    Numbers {
        format: "qed",
        options: "cluster_size=64k",
        is_big_endian: false,
        places: &[4, 8, 12, 16, 40, 44, 48, 52],
    },
    Numbers {
        format: "parallels",
        options: "cluster_size=64k",
        is_big_endian: false,
        places: &[28, 32, 36, 40, 48, 64, 68],
    },
    Numbers {
        format: "vmdk",
        options: "subformat=monolithicSparse",
        is_big_endian: false,
        places: &[4, 8, 12, 16, 20, 24, 28, 32, 36, 44, 48, 56, 60, 26 * 512, 27 * 512],
    },
    // The first grain's marker begins behind what the header calls overhead.
    Numbers {
        format: "vmdk",
        options: "subformat=streamOptimized",
        is_big_endian: false,
        places: &[12, 16, 20, 44, 56, 60, 76, 0x1_0000 + 8],
    },
];

#[test]
fn images_of_other_hypervisors_with_numbers_that_cannot_be() {
    let yard = Yard::new();
    fs::write(yard.path("disk.img"), random_bytes(4 * MIB, 5)).unwrap();
    for Numbers { format, options, is_big_endian, places } in NUMBERS {
        let arguments = ["convert", "-f", "raw", "-O", format, "-o", options, "disk.img", "good"];
        let status = Command::new("qemu-img").args(arguments).current_dir(yard.path("")).status().unwrap();
        assert!(status.success());
        let good = fs::read(yard.path("good")).unwrap();
        let name = format!("bad,format={format}");
        for &at in places {
            for number in [0, 1, u32::MAX - 1, u32::MAX] {
                let mut bytes = good.clone();
                put(&mut bytes, at, &if is_big_endian { number.to_be_bytes() } else { number.to_le_bytes() });
                fs::write(yard.path("bad"), bytes).unwrap();
                let what = format!("{number} at {at} of {format}");
                ends(&image(&yard, &["info", &name]), Well, &format!("info: {what}"));
                ends(&image(&yard, &["convert", &name, "out.img"]), Any, &format!("convert: {what}"));
                let _ = fs::remove_file(yard.path("out.img"));
                assert!(matches!(image(&yard, &["check", &name]).code, Some(0..=2)), "check: {what}");
            }
        }
        for length in [0, 1, 63, 64, 511, 512, good.len() / 2, good.len() - 1] {
            fs::write(yard.path("bad"), &good[..length]).unwrap();
            ends(&image(&yard, &["convert", &name, "out.img"]), Any, &format!("{length} bytes of {format}"));
            let _ = fs::remove_file(yard.path("out.img"));
        }
    }
}
