//! Files in formats that are not supported are never taken for raw disks, by whichever command, and those that are only
//! read are read by every command.

use super::*;

/// What qemu-img makes of each format: its options, and the ending of names.
const FORMATS: [(&str, &str); 2] = [("-f qcow", "qcow"), ("-f vmdk", "img")];

/// The same of formats that are read, each with the word that qemu-img has for it.
const READ: [(&str, &str, &str); 10] = [
    ("vdi", "", "vdi"),
    ("vdi", " -o static=on", "VDI"),
    ("vpc", " -o force_size=on", "vhd"),
    ("vpc", " -o subformat=fixed,force_size=on", "VHD"),
    ("vhdx", "", "vhdx"),
    ("vhdx", " -o subformat=fixed", "VHDX"),
    ("qed", "", "qed"),
    ("parallels", "", "hdd"),
    ("vmdk", "", "vmdk"),
    ("vmdk", " -o subformat=streamOptimized", "VMDK"),
];

#[test]
fn images_of_other_hypervisors_are_read_as_disks() {
    let yard = Yard::new();
    mixed(&yard, "raw.img");
    for (word, options, ending) in READ {
        let name = format!("a.{ending}");
        qemu_img(&yard, &format!("convert -f raw -O {word}{options} raw.img {name}"));
        let before = fs::read(yard.path(&name)).unwrap();
        let info = image(&yard, ["info", "--json", &name]).succeeded().json();
        let theirs = qemu_img(&yard, &format!("info --output=json -f {word} {name}")).json();
        for key in ["format", "virtual-size", "cluster-size", "actual-size", "dirty-flag"] {
            assert!(theirs[key].is_null() || info[key] == theirs[key], "{name}: {key}: {info}");
        }
        assert!(info["unusable"].is_null(), "{info}");
        assert!(word == "vmdk" || info["format-specific"]["data"]["subformat"].is_string(), "{info}");
        let text = image(&yard, ["info", &name]).succeeded().stdout;
        assert!(text.contains(&format!("file format: {word}\n")) && text.contains("format: "), "{text}");
        image(&yard, ["check", &name]).succeeded();
        image(&yard, ["compare", "raw.img", &name]).succeeded();
        image(&yard, ["convert", &name, "out.qcow2"]).succeeded();
        image(&yard, ["convert", &name, "out.img"]).succeeded();
        qemu_img(&yard, "compare -f raw -F qcow2 raw.img out.qcow2");
        qemu_img(&yard, "compare -f raw -F raw raw.img out.img");
        run(&mut support::copy_command([yard.path(&name), yard.path("copy.img")])).succeeded();
        qemu_img(&yard, "compare -f raw -F raw raw.img copy.img");
        let map = image(&yard, ["map", "--json", &name]).succeeded().json();
        let first = map.as_array().unwrap().iter().find(|entry| entry["data"] == true).unwrap();
        assert_eq!(first["start"], 0, "{map}");
        image(&yard, ["measure", "-O", "raw", &name]).succeeded();
        // An overlay takes what is written.
        image(&yard, ["convert", "-n", "raw.img", &format!("{name},snapshot")]).succeeded();
        // Nothing writes to one that is only read, nor to any under another name.
        fs::copy(yard.path(&name), yard.path("b.img")).unwrap();
        for (name, said) in [(name.as_str(), "only read"), ("b.img", "its name does not say so")] {
            let refusals: [&[&str]; 6] = [
                &["image", "mkfs", name, "sda", "ext4"],
                &["image", "resize", name, "80M"],
                &["image", "convert", "-n", "raw.img", name],
                &["image", "check", "-r", "all", name],
                &["serve", "--socket", "socket", name],
                &["copy", "-n", "raw.img", name],
            ];
            for arguments in refusals {
                // A VMDK with grains can be written to, but not as an image.
                let said = match (word, name, arguments[1]) {
                    ("vmdk", "a.vmdk" | "a.VMDK", "resize") => "only raw and qcow2 images and LUKS volumes are resized",
                    ("vmdk", "a.vmdk" | "a.VMDK", "check") => "nothing in VMDKs is repaired",
                    (_, "a.vmdk", _) => continue,
                    // That does the log.
                    ("vhdx", "a.vhdx" | "a.VHDX", "check") => continue,
                    _ => said,
                };
                run(blockyard().current_dir(yard.path("")).args(arguments)).failed(1, &[name, said]);
            }
            assert!(fs::read(yard.path(name)).unwrap() == before, "{name} has changed");
        }
        if matches!(word, "qed" | "parallels") {
            for arguments in [&["create", &name, "1M"][..], &["convert", "raw.img", &name]] {
                image(&yard, arguments).failed(2, &["can be read, not made", "vhdx"]);
            }
            assert!(fs::read(yard.path(&name)).unwrap() == before, "{name} has changed");
        }
        for name in [name.as_str(), "b.img", "out.img", "out.qcow2", "copy.img"] {
            fs::remove_file(yard.path(name)).unwrap();
        }
    }
}

#[test]
fn holes_of_images_that_have_all_their_blocks_are_mapped() {
    let yard = Yard::new();
    File::create(yard.path("raw.img")).unwrap().set_len(4 * MIB).unwrap();
    let raw = File::options().write(true).open(yard.path("raw.img")).unwrap();
    raw.write_all_at(&[5; MIB as usize], MIB).unwrap();
    for (word, options) in [("vpc", "subformat=fixed,force_size=on"), ("vdi", "static=on")] {
        qemu_img(&yard, &format!("convert -f raw -O {word} -o {options} raw.img a.img"));
        let named = format!("a.img,format={word}");
        let ours = image(&yard, ["map", "--json", &named]).succeeded().json();
        let theirs = qemu_img(&yard, &format!("map --output=json -f {word} a.img")).json();
        let (ours, theirs) = (ours.as_array().unwrap(), theirs.as_array().unwrap());
        assert_eq!(ours.len(), theirs.len(), "{ours:?}, {theirs:?}");
        assert!(ours.iter().any(|entry| entry["zero"] == true), "{ours:?}");
        for (ours, theirs) in ours.iter().zip(theirs) {
            for (key, theirs) in theirs.as_object().unwrap() {
                assert_eq!(&ours[key], theirs, "{key} of {ours}, {word}");
            }
        }
    }
}

#[test]
fn images_of_other_hypervisors_are_made() {
    let yard = Yard::new();
    mixed(&yard, "raw.img");
    let size_bytes = yard.path("raw.img").metadata().unwrap().len();
    for (word, options, name, subformat) in [
        ("vmdk", "", "a.vmdk", "monolithicSparse"),
        ("vmdk", "adapter_type=lsilogic,hwversion=13,preallocation=falloc", "a.vmdk", "monolithicSparse"),
        ("vdi", "", "a.vdi", "dynamic"),
        ("vdi", "static=on", "a.vdi", "static"),
        ("vpc", "", "a.vhd", "dynamic"),
        ("vpc", "subformat=fixed,force_size=on", "a.vhd", "fixed"),
        ("vhdx", "block_size=1M", "a.vhdx", "dynamic"),
        ("vhdx", "subformat=fixed,preallocation=falloc", "a.vhdx", "fixed"),
    ] {
        let with_options = |words: &[&str]| {
            let options: &[&str] = if options.is_empty() { &[] } else { &["-o", options] };
            let words = [&words[..1], options, &words[1..]].concat();
            image(&yard, words).succeeded().stdout
        };
        let wanted_bytes = if options.contains("force_size") { size_bytes.next_multiple_of(MIB) } else { size_bytes };
        with_options(&["convert", "raw.img", name]);
        qemu_img(&yard, &format!("compare -f raw -F {word} raw.img {name}"));
        let info = qemu_img(&yard, &format!("info --output=json -f {word} {name}")).json();
        assert_eq!(info["virtual-size"], wanted_bytes, "{info}");
        let measured = with_options(&["measure", "--json", "-O", word, "raw.img"]);
        let measured: serde_json::Value = serde_json::from_str(&measured).unwrap();
        // Zeros that were written count as data there.
        let (required, full) = (measured["required"].as_u64().unwrap(), measured["fully-allocated"].as_u64().unwrap());
        let made = yard.path(name).metadata().unwrap().len();
        assert!(made <= required && required <= full, "{name} {options}: {made}, {measured}");
        let is_full = matches!(subformat, "static" | "fixed") || options.contains("preallocation");
        assert!(!is_full || made == full, "{name} {options}: {made}, {measured}");
        // An empty one, in the place of that one.
        with_options(&["create", name, "77M"]);
        let info = image(&yard, ["info", "--json", name]).succeeded().json();
        assert_eq!(info["virtual-size"], 77 * MIB, "{info}");
        let data = &info["format-specific"]["data"];
        assert_eq!(data[if word == "vmdk" { "create-type" } else { "subformat" }], subformat, "{info}");
        qemu_img(&yard, &format!("convert -f {word} -O raw {name} empty.img"));
        image(&yard, ["compare", "empty.img", name]).succeeded();
    }
    for arguments in [&["convert", "-t", "unsafe"][..], &["convert", "-c", "-S", "0"]] {
        let options = ["-o", "subformat=streamOptimized", "raw.img", "a.vmdk"];
        image(&yard, [arguments, &options].concat()).succeeded();
        qemu_img(&yard, "compare -f raw -F vmdk raw.img a.vmdk");
        image(&yard, ["check", "a.vmdk"]).succeeded();
        let info = image(&yard, ["info", "--json", "a.vmdk"]).succeeded().json();
        assert_eq!(info["format-specific"]["data"]["create-type"], "streamOptimized", "{info}");
    }
    image(&yard, ["create", "-o", "subformat=streamOptimized", "a.vmdk", "77M"]).succeeded();
    qemu_img(&yard, "convert -f vmdk -O raw a.vmdk empty.img");
    image(&yard, ["compare", "empty.img", "a.vmdk"]).succeeded();
    let refusals: [(&[&str], &str); 13] = [
        (&["create", "--table", "gpt", "b.vdi", "1G"], "convert"),
        (&["create", "-o", "subformat=fixed", "b.vdi", "1G"], "no subformat"),
        (&["create", "-o", "cluster_size=64K", "b.vhd", "1G"], "no cluster_size"),
        (&["create", "-o", "subformat=monolithicFlat", "b.vmdk", "1G"], "monolithicSparse"),
        (&["create", "-o", "subformat=streamOptimized,preallocation=full", "b.vmdk", "1G"], "no preallocation"),
        (&["measure", "-O", "vmdk", "-o", "subformat=streamOptimized", "--size", "1G"], "shows when it is made"),
        (&["create", "b.vmdk", "3T"], "2047 GiB at most"),
        (&["create", "b\".vmdk", "1G"], "says its own name"),
        (&["convert", "-c", "raw.img", "b.vmdk"], "-O qcow2"),
        (&["create", "b.vhd", "3T"], "2040 GiB at most"),
        (&["create", "-o", "block_size=3M", "b.vhdx", "1G"], "powers of two"),
        (&["convert", "-c", "raw.img", "b.vhdx"], "-O qcow2"),
        (&["convert", "-B", "raw.img", "-F", "raw", "raw.img", "b.vhdx"], "-O qcow2"),
    ];
    for (words, said) in refusals {
        let refused = image(&yard, words);
        assert!(matches!(refused.code, Some(1 | 2)) && refused.stderr.contains(said), "{words:?}: {}", refused.stderr);
    }
    for name in ["b.vmdk", "b\".vmdk", "b.vdi", "b.vhd", "b.vhdx"] {
        assert!(!yard.path(name).exists(), "{name}");
    }
}

#[test]
fn a_container_is_not_taken_for_a_raw_disk() {
    let yard = Yard::new();
    File::create(yard.path("raw.img")).unwrap().set_len(MIB).unwrap();
    for (options, ending) in FORMATS {
        let by_name = format!("a.{ending}");
        qemu_img(&yard, &format!("create -q {options} {by_name} 20M"));
        // A raw disk is whole sectors.
        let file = File::options().write(true).open(yard.path(&by_name)).unwrap();
        file.set_len(file.metadata().unwrap().len().next_multiple_of(512)).unwrap();
        // A name says something, and so do contents.
        fs::copy(yard.path(&by_name), yard.path("b.img")).unwrap();
        for name in [&by_name, "b.img"] {
            let before = fs::read(yard.path(name)).unwrap();
            let refusals: [&[&str]; 8] = [
                &["image", "mkfs", name, "sda", "ext4"],
                &["image", "resize", name, "40M"],
                &["image", "convert", name, "out.img"],
                &["image", "convert", "-n", "raw.img", name],
                &["image", "check", name],
                &["copy", name, "out.img"],
                &["serve", "--socket", "socket", name],
                &["image", "dd", "raw.img", &format!("if={name}"), "of=sda"],
            ];
            for arguments in refusals {
                // A VMDK that is sparse has a name that is known.
                let ending = if ending == "img" { "vmdk" } else { "not supported" };
                let ending = if arguments[1] == "dd" { "no disk's" } else { ending };
                run(blockyard().current_dir(yard.path("")).args(arguments)).failed(1, &[name, ending]);
                assert!(fs::read(yard.path(name)).unwrap() == before, "{arguments:?} changed it");
            }
            // Whose bytes they are is theirs to say who own them.
            let raw = format!("{name},format=raw");
            image(&yard, ["convert", &raw, "out.img"]).succeeded();
            assert!(same(&yard.path("out.img"), &yard.path(name)), "{name}");
        }
        for name in [by_name.as_str(), "b.img", "out.img"] {
            fs::remove_file(yard.path(name)).unwrap();
        }
    }
}

#[test]
fn no_raw_disk_is_made_under_the_name_of_another_format() {
    let yard = Yard::new();
    File::create(yard.path("raw.img")).unwrap().set_len(MIB).unwrap();
    for name in ["x.dmg", "x.Qcow", "x.img.gz", "x.xz", "x.zst", "x.bz2", "x.zip", "x.tar", "x.vma"] {
        for arguments in
            [&["image", "create", name, "1M"][..], &["image", "convert", "raw.img", name], &["copy", "raw.img", name]]
        {
            run(blockyard().current_dir(yard.path("")).args(arguments)).failed(1, &[name, "format=raw"]);
        }
        let of = format!("of={name}");
        image(&yard, ["dd", "raw.img", "if=sda", &of]).failed(1, &[name, "another name"]);
        assert!(!yard.path(name).exists());
    }
    run(blockyard().current_dir(yard.path("")).args(["copy", "raw.img", "x.dmg,format=raw"])).succeeded();
    assert!(same(&yard.path("raw.img"), &yard.path("x.dmg")));
}

/// A boot sector may begin with any code, and a file system's first sector with any bytes.
#[test]
fn a_disk_that_boots_is_raw_whatever_its_first_bytes() {
    let yard = Yard::new();
    let mut sector = vec![0; 512];
    sector[..4].copy_from_slice(b"\x1f\x8b\x08\0");
    sector[510..].copy_from_slice(&[0x55, 0xaa]);
    let disk = [sector, vec![0; 1 << 20]].concat();
    fs::write(yard.path("boots.img"), &disk).unwrap();
    image(&yard, ["convert", "boots.img", "out.qcow2"]).succeeded();
    fs::write(yard.path("packed.img"), &disk[..510]).unwrap();
    let packed = image(&yard, ["convert", "packed.img", "out.qcow2"]);
    packed.failed(1, &["packed.img", "gzip", "format=raw.gz", "decompress"]);
}

/// Of a VMDK with grains, what writes to a disk does so in place, and what writes to an image says that it cannot.
#[test]
fn vmdks_are_written_to_in_place() {
    let yard = Yard::new();
    yard.random("raw.img", 3 << 20, 1);
    qemu_img(&yard, "create -q -f vmdk base.vmdk 8M");
    qemu_img(&yard, "create -q -f vmdk -F vmdk -b base.vmdk top.vmdk");
    image(&yard, ["convert", "-n", "raw.img", "top.vmdk", "--allow-dir", "."]).succeeded();
    qemu_img(&yard, "compare -f raw -F vmdk raw.img top.vmdk");
    image(&yard, ["check", "top.vmdk", "--allow-dir", "."]).succeeded();
    run(blockyard().current_dir(yard.path("")).args(["copy", "raw.img", "base.vmdk"])).succeeded();
    qemu_img(&yard, "compare -f raw -F vmdk raw.img base.vmdk");
    image(&yard, ["check", "top.vmdk", "--allow-dir", "."]).failed(1, &["top.vmdk", "its id differs"]);
    image(&yard, ["resize", "base.vmdk", "80M"])
        .failed(1, &["base.vmdk", "only raw and qcow2 images and LUKS volumes are resized"]);
    image(&yard, ["check", "-r", "all", "base.vmdk"]).failed(1, &["base.vmdk", "nothing in VMDKs is repaired"]);
}

/// Where the file cannot be made longer ahead, it is as long as it must be, and what has no room fails alone.
#[test]
fn a_vmdk_is_written_to_up_to_the_last_byte_that_its_file_may_have() {
    let yard = Yard::new();
    yard.random("small.img", 3 << 20, 1);
    yard.random("large.img", 6 << 20, 2);
    let convert = |source: &str| {
        // 4 MiB, in blocks of 512 bytes.
        let binary = env!("CARGO_BIN_EXE_blockyard");
        let script = format!("trap '' XFSZ; ulimit -f 8192; exec {binary} image convert -n {source} disk.vmdk");
        let mut command = Command::new("sh");
        command.current_dir(yard.path("")).args(["-c", &script]);
        command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
        run(&mut command)
    };
    qemu_img(&yard, "create -q -f vmdk disk.vmdk 16M");
    convert("small.img").succeeded();
    qemu_img(&yard, "compare -f raw -F vmdk small.img disk.vmdk");
    convert("large.img").failed(1, &["disk.vmdk", "File too large"]);
    assert!(fs::metadata(yard.path("disk.vmdk")).unwrap().len() <= 4 << 20);
    let said = image(&yard, ["check", "disk.vmdk"]).succeeded();
    assert!(!said.stdout.contains("ERROR") && !said.stderr.contains("ERROR"), "{said:?}");
    qemu_img(&yard, "check -f vmdk disk.vmdk");
    // Without the limit, it goes on.
    image(&yard, ["convert", "-n", "large.img", "disk.vmdk"]).succeeded();
    qemu_img(&yard, "compare -f raw -F vmdk large.img disk.vmdk");
}

/// A block's entry is in the log only.
#[test]
fn the_log_of_an_image_that_was_not_closed_is_replayed_by_check() {
    use crate::vhdx_image::{ALL, Change, LogEntry, TABLE_OFFSET, VhdxImage};
    let yard = Yard::new();
    let blocks = vec![(1, 6, ALL, vec![7; 1 << 20])];
    let image_of = VhdxImage { log_id: [3; 16], sector_bytes: 4096, blocks, ..VhdxImage::new(4 << 20, 1 << 20) };
    let mut bytes = image_of.bytes();
    let table = bytes[TABLE_OFFSET..][..4096].to_vec();
    let changes = vec![Change::Page { offset: TABLE_OFFSET as u64, bytes: table }];
    let end = bytes.len() as u64;
    let log = LogEntry { sequence: 3, tail: 0, log_id: [3; 16], flushed_bytes: end, last_bytes: end, changes }.bytes();
    bytes = VhdxImage { log, ..image_of }.bytes();
    bytes[TABLE_OFFSET..][..4096].fill(0);
    fs::write(yard.path("a.vhdx"), &bytes).unwrap();
    let check = image(&yard, ["check", "a.vhdx"]).succeeded();
    assert!((check.stdout.clone() + &check.stderr).contains("its log has to be replayed"), "{check:?}");
    let info = image(&yard, ["info", "--json", "a.vhdx"]).succeeded().json();
    let sector = &info["format-specific"]["data"]["logical-sector-size"];
    assert_eq!((&info["dirty-flag"], sector), (&true.into(), &4096.into()));
    assert!(image(&yard, ["info", "a.vhdx"]).succeeded().stdout.contains("logical sector size: 4096 bytes"));
    image(&yard, ["convert", "-q", "a.vhdx", "read.img"]).succeeded();
    assert!(fs::read(yard.path("a.vhdx")).unwrap() == bytes, "it was written to");
    let repaired = image(&yard, ["check", "-r", "all", "a.vhdx"]).succeeded().stdout;
    assert!(repaired.contains("found and repaired") && repaired.contains("1 corruptions"), "{repaired}");
    assert!(!image(&yard, ["check", "-r", "all", "a.vhdx"]).succeeded().stdout.contains("repaired"));
    assert_eq!(image(&yard, ["info", "--json", "a.vhdx"]).succeeded().json()["dirty-flag"], false);
    image(&yard, ["compare", "-q", "a.vhdx", "read.img"]).succeeded();
    assert!(fs::read(yard.path("read.img")).unwrap()[1 << 20..2 << 20].iter().all(|&byte| byte == 7));
    // A log over the headers is none: the file stays as it is.
    let over = vec![Change::Page { offset: 64 << 10, bytes: vec![1; 4096] }];
    let log = LogEntry { sequence: 3, tail: 0, log_id: [3; 16], flushed_bytes: end, last_bytes: end, changes: over };
    bytes = VhdxImage { log: log.bytes(), log_id: [3; 16], ..VhdxImage::new(4 << 20, 1 << 20) }.bytes();
    bytes.resize(end as usize, 0);
    fs::write(yard.path("b.vhdx"), &bytes).unwrap();
    image(&yard, ["check", "-r", "all", "b.vhdx"]).failed(1, &["its log changes the headers or itself"]);
    assert!(fs::read(yard.path("b.vhdx")).unwrap() == bytes, "it was written to");
}

#[test]
fn a_parallels_image_that_was_not_closed_is_no_whole_one() {
    let yard = Yard::new();
    qemu_img(&yard, "create -q -f parallels x.hdd 4M");
    image(&yard, ["check", "-f", "parallels", "x.hdd"]).succeeded();
    // What is in use says so.
    let file = File::options().write(true).open(yard.path("x.hdd")).unwrap();
    file.write_all_at(&0x746f_6e59_u32.to_le_bytes(), 44).unwrap();
    let mut theirs = Command::new("qemu-img");
    theirs.current_dir(yard.path("")).args(["check", "-f", "parallels", "--output=json", "x.hdd"]);
    let theirs = run(theirs.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped()))
        .failed(2, &["not closed correctly"]);
    let ours = image(&yard, ["check", "-f", "parallels", "--json", "x.hdd"]).failed(2, &["not closed correctly"]);
    assert_eq!((&ours.json()["corruptions"], &theirs.json()["corruptions"]), (&1.into(), &1.into()));
    image(&yard, ["convert", "-q", "-f", "parallels", "x.hdd", "x.img"]).succeeded();
}
