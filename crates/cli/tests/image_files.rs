//! `blockyard image` on images as a whole, checked by qemu-img and sfdisk (Debian packages qemu-utils and fdisk).

#[path = "image_files/amend.rs"]
mod amend;
#[path = "image_files/bitmaps.rs"]
mod bitmaps;
#[path = "image_files/blocks.rs"]
mod blocks;
#[path = "image_files/chains.rs"]
mod chains;
#[path = "image_files/compressed.rs"]
mod compressed;
#[path = "image_files/damaged.rs"]
mod damaged;
#[path = "image_files/data_files.rs"]
mod data_files;
#[path = "image_files/dirty.rs"]
mod dirty;
#[path = "image_files/encryption.rs"]
mod encryption;
#[path = "image_files/info.rs"]
mod info;
#[path = "image_files/kills.rs"]
mod kills;
#[path = "image_files/local_names.rs"]
mod local_names;
#[path = "image_files/names.rs"]
mod names;
#[path = "image_files/options.rs"]
mod options;
#[path = "image_files/other_formats.rs"]
mod other_formats;
#[path = "image_files/ova.rs"]
mod ova;
#[path = "image_files/packed.rs"]
mod packed;
#[path = "image_files/qemu_flags.rs"]
mod qemu_flags;
#[path = "image_files/safety.rs"]
mod safety;
#[path = "image_files/second_opinions.rs"]
mod second_opinions;
#[path = "image_files/secrets.rs"]
mod secrets;
#[path = "server/mod.rs"]
mod server;
#[path = "image_files/snapshots.rs"]
mod snapshots;
#[path = "image_files/sources.rs"]
mod sources;
mod support;
#[path = "image_files/truncated.rs"]
mod truncated;
#[path = "../../block/tests/formats/block_map/vhd_image.rs"]
mod vhd_image;
#[path = "../../block/tests/formats/block_map/vhdx_image.rs"]
mod vhdx_image;

use std::ffi::OsStr;
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;
use support::root::is_root;
use support::{Outcome, Yard, allocated_bytes, blockyard, random_bytes, run, same};

const MIB: u64 = 1 << 20;

fn image<S: AsRef<OsStr>>(yard: &Yard, arguments: impl IntoIterator<Item = S>) -> Outcome {
    run(blockyard().current_dir(yard.path("")).arg("image").args(arguments))
}

/// Runs one of other people's tools.
#[track_caller]
fn tool(yard: &Yard, package: &str, line: &str) -> Outcome {
    let mut words = line.split(' ');
    let mut command = Command::new(words.next().unwrap());
    command
        .args(words)
        .current_dir(yard.path(""))
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped());
    let mut run = || {
        let child = command.spawn().unwrap_or_else(|error| panic!("{line}: {error}: install {package}"));
        support::finish(child)
    };
    // QEMU times what a key costs by the process's own time, which a kernel that counts ticks says is none now and
    // then.
    let is_timed = |outcome: &Outcome| !outcome.stderr.contains("Unable to get accurate CPU usage");
    let mut tries = std::iter::repeat_with(&mut run).take(1000);
    tries.find(is_timed).expect("QEMU cannot tell how long it takes to make a key").succeeded()
}

#[track_caller]
fn qemu_img(yard: &Yard, line: &str) -> Outcome {
    tool(yard, "qemu-utils", &format!("qemu-img {line}"))
}

/// A disk with data, text that compresses, zeros that have storage, and holes; not a whole number of clusters long.
fn mixed(yard: &Yard, name: &str) -> std::path::PathBuf {
    let path =
        yard.sparse(name, 40 * MIB + 3 * 512, &[(0, 5 * MIB), (9 * MIB + 4096, 70_000), (39 * MIB, MIB + 512)], 7);
    let file = File::options().write(true).open(&path).unwrap();
    file.write_all_at(&b"all work and no play ".repeat(200_000), 20 * MIB + 512).unwrap();
    file.write_all_at(&vec![0; 3 << 20], 30 * MIB).unwrap();
    path
}

#[test]
fn images_converted_hold_the_same_and_are_sound() {
    let yard = Yard::new();
    mixed(&yard, "disk.img");
    for (number, options) in [
        &[][..],
        &["-m", "1"],
        &["-m", "5", "-o", "cluster_size=512"],
        &["-o", "cluster_size=2M"],
        &["-c"],
        &["-c", "-o", "cluster_size=4K", "-m", "3"],
        &["-c", "-o", "cluster_size=2M"],
        &["-S", "0"],
        &["-S", "1M"],
        &["-o", "preallocation=metadata"],
        &["-o", "preallocation=full"],
    ]
    .iter()
    .enumerate()
    {
        let name = format!("{number}.qcow2");
        image(&yard, ["convert", "disk.img", &name].iter().chain(*options)).succeeded();
        qemu_img(&yard, &format!("check -q {name}"));
        qemu_img(&yard, &format!("compare -q -f raw -F qcow2 disk.img {name}"));
        image(&yard, ["compare", "disk.img", &name]).succeeded();
        image(&yard, ["convert", &name, "-O", "raw", "back"]).succeeded();
        assert!(same(&yard.path("back"), &yard.path("disk.img")), "{options:?}");
    }
    assert!(allocated_bytes(&yard.path("0.qcow2")) < 14 * MIB);
    assert!(allocated_bytes(&yard.path("4.qcow2")) < 8 * MIB);
}

#[test]
fn what_qemu_made_is_read() {
    let yard = Yard::new();
    mixed(&yard, "disk.img");
    qemu_img(&yard, "convert -c -f raw -O qcow2 disk.img packed.qcow2");
    qemu_img(&yard, "convert -f raw -O qcow2 -o compat=0.10,cluster_size=4k disk.img old.qcow2");
    qemu_img(&yard, "convert -f raw -O vmdk -o subformat=monolithicFlat disk.img disk.vmdk");
    for name in ["packed.qcow2", "old.qcow2", "disk.vmdk"] {
        image(&yard, ["convert", "--allow-dir", ".", name, "back.img"]).succeeded();
        assert!(same(&yard.path("back.img"), &yard.path("disk.img")), "{name}");
    }
}

#[test]
fn holes_and_zeros_take_no_room() {
    let yard = Yard::new();
    let disk = mixed(&yard, "disk.img");
    image(&yard, ["convert", "disk.img", "copy.img"]).succeeded();
    assert!(same(&disk, &yard.path("copy.img")));
    assert!(allocated_bytes(&yard.path("copy.img")) <= allocated_bytes(&disk) - 3 * MIB + 65536);
    image(&yard, ["convert", "-S", "0", "disk.img", "full.img"]).succeeded();
    assert!(same(&disk, &yard.path("full.img")) && allocated_bytes(&yard.path("full.img")) >= 40 * MIB);
    image(&yard, ["create", "-q", "huge.qcow2", "1T"]).succeeded();
    image(&yard, ["convert", "huge.qcow2", "huge2.qcow2"]).succeeded();
    assert!(allocated_bytes(&yard.path("huge2.qcow2")) < MIB);
}

#[test]
fn a_target_that_is_there_is_written_in_place() {
    let yard = Yard::new();
    let disk = mixed(&yard, "disk.img");
    let target = yard.random("target.img", 50 * MIB, 3);
    image(&yard, ["convert", "-n", "disk.img", "target.img"]).succeeded();
    let (wanted, found) = (fs::read(&disk).unwrap(), fs::read(&target).unwrap());
    assert!(found[..wanted.len()] == wanted[..] && found.len() as u64 == 50 * MIB);
    assert!(found[wanted.len()..] == random_bytes(50 << 20, 3)[wanted.len()..], "what is behind it has changed");
    image(&yard, ["create", "-q", "target.qcow2", "50M"]).succeeded();
    image(&yard, ["convert", "-n", "disk.img", "target.qcow2"]).succeeded();
    qemu_img(&yard, "check -q target.qcow2");
    qemu_img(&yard, "compare -q disk.img target.qcow2");
    image(&yard, ["create", "-q", "small.qcow2", "1M"]).succeeded();
    image(&yard, ["convert", "-n", "disk.img", "small.qcow2"]).failed(1, &["small.qcow2", "too few"]);
    image(&yard, ["convert", "-n", "disk.img", "absent.qcow2"]).failed(1, &["absent.qcow2", "No such file"]);
}

#[test]
fn what_is_created_is_what_qemu_img_finds() {
    let yard = Yard::new();
    image(&yard, ["create", "a.qcow2", "1000000"]).succeeded();
    image(&yard, ["create", "-f", "qcow2", "-o", "preallocation=metadata,cluster_size=128K", "b", "20M"]).succeeded();
    image(&yard, ["create", "c.qcow2", "20M", "-o", "preallocation=falloc"]).succeeded();
    image(&yard, ["create", "d.img", "20M", "-o", "preallocation=full"]).succeeded();
    image(&yard, ["create", "e.img", "20M"]).succeeded();
    for (name, size) in [("a.qcow2", 1_000_448), ("b", 20 * MIB), ("c.qcow2", 20 * MIB)] {
        qemu_img(&yard, &format!("check -q {name}"));
        let info = qemu_img(&yard, &format!("info --output=json {name}")).json();
        assert_eq!((info["format"].as_str(), info["virtual-size"].as_u64()), (Some("qcow2"), Some(size)));
        let ours = image(&yard, ["info", "--json", name, "-f", "qcow2"]).succeeded().json();
        for key in ["format", "virtual-size", "cluster-size", "actual-size"] {
            assert_eq!(ours[key], info[key], "{key} of {name}");
        }
    }
    assert!(allocated_bytes(&yard.path("c.qcow2")) >= 20 * MIB && allocated_bytes(&yard.path("d.img")) >= 20 * MIB);
    assert_eq!(allocated_bytes(&yard.path("e.img")), 0);
}

#[test]
fn a_backing_file_shows_through_and_its_name_starts_from_the_image() {
    let yard = Yard::new();
    fs::create_dir_all(yard.path("bases")).unwrap();
    fs::create_dir_all(yard.path("images")).unwrap();
    mixed(&yard, "bases/base.img");
    image(&yard, ["create", "-b", "../bases/base.img", "-F", "raw", "images/top.qcow2"]).succeeded();
    let info = qemu_img(&yard, "info --output=json images/top.qcow2").json();
    assert_eq!(info["backing-filename"], "../bases/base.img");
    qemu_img(&yard, "compare -q -f qcow2 -F raw images/top.qcow2 bases/base.img");
    image(&yard, ["compare", "images/top.qcow2", "bases/base.img"]).failed(2, &["--allow-dir"]);
    image(&yard, ["compare", "--allow-dir", "bases", "images/top.qcow2", "bases/base.img"]).succeeded();
    image(&yard, ["info", "images/top.qcow2"]).succeeded();
    let chain = image(&yard, ["info", "--backing-chain", "--allow-dir", "bases", "images/top.qcow2"]).succeeded();
    assert!(chain.stdout.contains("base.img (raw"), "{chain:?}");
    image(&yard, ["info", "--backing-chain", "images/top.qcow2"]).failed(1, &["--allow-dir"]);
    for (arguments, code, word) in [
        (&["create", "-b", "x", "y.qcow2", "1M"][..], 2, "-F"),
        (&["create", "-b", "absent", "-F", "raw", "y.qcow2", "1M"], 1, "absent"),
        (&["create", "-b", "bases/base.img", "-F", "qcow2", "y.qcow2"], 1, "qcow2"),
        (&["create", "-b", "bases/base.img", "-F", "raw", "y.img"], 2, "-f qcow2"),
        (&["create", "y.qcow2"], 2, "size"),
    ] {
        image(&yard, arguments).failed(code, &[word]);
        assert!(!yard.path("y.qcow2").exists());
    }
    image(&yard, ["create", "-u", "-b", "absent", "-F", "raw", "y.qcow2", "1M"]).succeeded();
}

#[test]
fn partition_tables_are_what_sfdisk_likes() {
    let yard = Yard::new();
    let parts = ["--part", "20M,type=esp,name=EFI", "--part", "rest,type=swap", "--part", "5M"];
    for name in ["gpt.img", "gpt.qcow2"] {
        image(&yard, ["create", name, "100M", "--table", "gpt"].iter().chain(&parts)).succeeded();
        image(&yard, ["convert", name, "-O", "raw", "disk"]).succeeded();
        let verified = tool(&yard, "fdisk", "sfdisk --verify disk");
        assert!(verified.stdout.contains("No errors") && verified.stderr.is_empty(), "{verified:?}");
        let table = &tool(&yard, "fdisk", "sfdisk -J disk").json()["partitiontable"];
        let partitions = table["partitions"].as_array().unwrap();
        let number = |index: usize, key: &str| partitions[index][key].as_u64().unwrap() * 512;
        assert_eq!((number(0, "start"), number(0, "size")), (MIB, 20 * MIB));
        assert_eq!((number(1, "start"), number(2, "size")), (21 * MIB, 5 * MIB));
        assert_eq!(number(1, "start") + number(1, "size"), number(2, "start"));
        assert_eq!(partitions[0]["name"], "EFI");
        assert_eq!(partitions[1]["type"], "0657FD6D-A4AB-43C4-84E5-0933C84B4F4F");
    }
    let parts = ["--part", "20M,type=0c,bootable", "--part", "rest"];
    image(&yard, ["create", "dos.img", "100M", "--table", "dos"].iter().chain(&parts)).succeeded();
    tool(&yard, "fdisk", "sfdisk --verify dos.img");
    let table = &tool(&yard, "fdisk", "sfdisk -J dos.img").json()["partitiontable"];
    assert_eq!((&table["label"], &table["partitions"][0]["bootable"]), (&"dos".into(), &true.into()));
    let info = image(&yard, ["info", "dos.img"]).succeeded();
    assert!(info.stdout.contains("partitions: mbr") && info.stdout.contains("W95 FAT32"), "{info:?}");
    for (arguments, code, word) in [
        (&["--table", "gpt", "--part", "101M"][..], 1, "no room"),
        (&["--table", "gpt", "--part", "1M,fs=zfs"], 2, "zfs"),
        (&["--part", "1M"], 2, "--table"),
    ] {
        image(&yard, ["create", "no.img", "100M"].iter().chain(arguments)).failed(code, &[word]);
        assert!(!yard.path("no.img").exists());
    }
}

#[test]
fn maps_and_measures_are_qemu_imgs() {
    let yard = Yard::new();
    mixed(&yard, "disk.img");
    qemu_img(&yard, "convert -f raw -O qcow2 disk.img a.qcow2");
    qemu_img(&yard, "create -q -f qcow2 -b a.qcow2 -F qcow2 b.qcow2 60M");
    run(Command::new("qemu-io")
        .current_dir(yard.path(""))
        .args(["-f", "qcow2", "-c", "write 0x120000 64k", "b.qcow2"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped()))
    .succeeded();
    for name in ["a.qcow2", "b.qcow2", "disk.img"] {
        let mut ours = image(&yard, ["map", "--json", "--allow-dir", ".", name]).succeeded().json();
        let format = if name.ends_with("img") { "raw" } else { "qcow2" };
        let theirs = qemu_img(&yard, &format!("map --output=json -f {format} {name}")).json();
        for entry in ours.as_array_mut().unwrap() {
            entry.as_object_mut().unwrap().remove("compressed");
        }
        assert_eq!(ours, theirs, "{name}");
        let human = |text: &str| {
            text.lines()
                .skip(1)
                .map(|line| line.split_whitespace().take(3).collect::<Vec<_>>().join(" "))
                .collect::<Vec<_>>()
        };
        let ours = image(&yard, ["map", "--allow-dir", ".", name]).succeeded();
        assert_eq!(human(&ours.stdout), human(&qemu_img(&yard, &format!("map -f {format} {name}")).stdout));
        for options in ["", "-o cluster_size=4k ", "-o preallocation=full "] {
            let line = format!("measure -O qcow2 {options}--output=json -f {format} {name}");
            let ours = image(&yard, line.replace("--output=json", "--json --allow-dir .").split(' ')).succeeded();
            let [ours, theirs] = [ours, qemu_img(&yard, &line)].map(|said| said.json()["required"].as_u64().unwrap());
            // Where the file has holes within its clusters, qemu-img counts them as data.
            let is_finer = format == "qcow2" && options.contains("4k");
            assert!(ours == theirs || (is_finer && ours < theirs), "{line}: {ours}, {theirs}");
        }
    }
    image(&yard, ["measure", "--size", "16E", "-O", "qcow2"]).failed(2, &["16E"]);
    // What cannot be made is not measured, and for the same reason.
    for (size, options) in [
        ("18446744073709551615", "size=1"),
        ("1G", "cluster_size=5000"),
        ("1G", "extended_l2=on,compat=0.10"),
        ("1G", "extended_l2=on,cluster_size=4K"),
        ("1G", "refcount_bits=64,compat=0.10"),
        ("8E", "cluster_size=64K"),
        ("1E", "cluster_size=512"),
    ] {
        let said = |arguments: &[&str]| {
            let options = if options == "size=1" { "cluster_size=64K" } else { options };
            let outcome = image(&yard, arguments.iter().copied().chain(["-o", options]));
            assert_ne!(outcome.code, Some(0), "{outcome:?}");
            (outcome.code, outcome.stderr)
        };
        let made = said(&["create", "-f", "qcow2", "no.qcow2", size]);
        assert_eq!(said(&["measure", "--size", size, "-O", "qcow2"]), made);
    }
    let stream = ["-o", "subformat=streamOptimized,preallocation=full"];
    let made = image(&yard, ["create", "-f", "vmdk", "no.vmdk", "1G"].iter().chain(&stream)).stderr;
    assert_eq!(image(&yard, ["measure", "--size", "1G", "-O", "vmdk"].iter().chain(&stream)).stderr, made);
}

#[test]
fn disks_that_differ_are_found_to() {
    let yard = Yard::new();
    mixed(&yard, "a.img");
    fs::copy(yard.path("a.img"), yard.path("b.img")).unwrap();
    let file = File::options().write(true).open(yard.path("b.img")).unwrap();
    file.write_all_at(b"x", 12_345_678).unwrap();
    let different = image(&yard, ["compare", "a.img", "b.img"]).failed(1, &[]);
    assert_eq!(different.stdout, "Content mismatch at offset 12345678!\n");
    assert!(different.stderr.is_empty());
    qemu_img(&yard, "convert -O qcow2 a.img a.qcow2");
    image(&yard, ["compare", "a.img", "a.qcow2"]).succeeded();
    let strict = image(&yard, ["compare", "-s", "a.img", "a.qcow2"]).failed(1, &[]);
    assert!(strict.stdout.starts_with("Strict mode"), "{strict:?}");
    image(&yard, ["compare", "a.img", "absent.img"]).failed(2, &["absent.img"]);
    image(&yard, ["resize", "-q", "a.qcow2", "+1M"]).succeeded();
    let longer = image(&yard, ["compare", "a.img", "a.qcow2"]).succeeded();
    assert!(longer.stdout.contains("size mismatch"), "{longer:?}");
    image(&yard, ["compare", "-s", "a.img", "a.qcow2"]).failed(1, &[]);
}

#[test]
fn disks_grow_and_shrink() {
    let yard = Yard::new();
    mixed(&yard, "disk.img");
    image(&yard, ["convert", "disk.img", "disk.qcow2"]).succeeded();
    for name in ["disk.img", "disk.qcow2"] {
        image(&yard, ["resize", name, "+3G"]).succeeded();
        image(&yard, ["resize", name, "10M"]).failed(1, &["--shrink"]);
        image(&yard, ["resize", name, "--shrink", "-4G"]).failed(2, &["not possible"]);
        image(&yard, ["resize", name, "--shrink", "10M"]).succeeded();
        image(&yard, ["resize", name, "20M"]).succeeded();
    }
    qemu_img(&yard, "check -q disk.qcow2");
    qemu_img(&yard, "compare -q disk.img disk.qcow2");
    // What was cut off does not come back, not in the middle of a cluster either.
    yard.random("full.img", MIB, 6);
    image(&yard, ["convert", "full.img", "full.qcow2"]).succeeded();
    for name in ["full.img", "full.qcow2"] {
        image(&yard, ["resize", name, "--shrink", "100K"]).succeeded();
        image(&yard, ["resize", name, "1M"]).succeeded();
    }
    qemu_img(&yard, "check -q full.qcow2");
    qemu_img(&yard, "compare -q full.img full.qcow2");
    // What is behind a longer backing file does not come up.
    yard.random("base.img", 4 * MIB, 5);
    image(&yard, ["create", "-q", "-b", "base.img", "-F", "raw", "top.qcow2", "1M"]).succeeded();
    image(&yard, ["resize", "--allow-dir", ".", "top.qcow2", "8M"]).succeeded();
    qemu_img(&yard, "check -q top.qcow2");
    image(&yard, ["convert", "--allow-dir", ".", "top.qcow2", "top.img"]).succeeded();
    let found = fs::read(yard.path("top.img")).unwrap();
    assert!(found[..1 << 20] == random_bytes(1 << 20, 5)[..] && found[1 << 20..].iter().all(|&byte| byte == 0));
}

#[test]
fn bad_images_are_one_sentence_and_leave_nothing() {
    let yard = Yard::new();
    yard.random("noise.qcow2", 100_000, 1);
    fs::write(yard.path("empty.qcow2"), "").unwrap();
    image(&yard, ["create", "-q", "good.qcow2", "64M"]).succeeded();
    let header = fs::read(yard.path("good.qcow2")).unwrap();
    fs::write(yard.path("short.qcow2"), &header[..80]).unwrap();
    fs::write(yard.path("called.img"), &header).unwrap();
    let mut absurd = header.clone();
    absurd[24..32].copy_from_slice(&(u64::MAX - 511).to_be_bytes());
    fs::write(yard.path("absurd.qcow2"), &absurd).unwrap();
    let mut wide = header.clone();
    wide[20..24].copy_from_slice(&60_u32.to_be_bytes());
    fs::write(yard.path("wide.qcow2"), &wide).unwrap();
    fs::create_dir(yard.path("directory.img")).unwrap();
    let names = yard.names();
    for (name, word) in [
        ("noise.qcow2", "qcow2"),
        ("empty.qcow2", "qcow2"),
        ("short.qcow2", "cut off"),
        ("called.img", "format=qcow2"),
        ("absurd.qcow2", "claims"),
        ("wide.qcow2", "clusters"),
        ("directory.img", "directory"),
        ("absent.img", "absent"),
    ] {
        if name != "directory.img" && name != "absent.img" {
            // It is looked at, and what other commands will say is said.
            let info = image(&yard, ["info", name]).succeeded().stdout;
            assert!(info.contains("not usable here: ") && info.contains(word), "{name}: {info}");
        }
        image(&yard, ["map", name]).failed(1, &[name, word]);
        image(&yard, ["convert", name, "out.qcow2"]).failed(1, &[name, word]);
        image(&yard, ["compare", name, "good.qcow2"]).failed(2, &[name, word]);
        image(&yard, ["resize", name, "1G"]).failed(1, &[name, word]);
    }
    for name in ["directory.img", "absent.img"] {
        image(&yard, ["info", name]).failed(1, &[name]);
    }
    image(&yard, ["convert", "good.qcow2", "directory.img"]).failed(1, &["directory"]);
    image(&yard, ["convert", "good.qcow2", "absent/out.img"]).failed(1, &["absent"]);
    image(&yard, ["convert", "good.qcow2", "good.qcow2"]).failed(1, &["same"]);
    image(&yard, ["create", "x.qcow2", "8000X"]).failed(2, &["size"]);
    image(&yard, ["create", "x.qcow2", "8000000T"]).failed(1, &["not possible"]);
    image(&yard, ["create", "x.img", "9E"]).failed(1, &["x.img", "File too large"]);
    image(&yard, ["create", "x.img", "-o", "size=5M", "1M"]).failed(2, &["contradict"]);
    image(&yard, ["create", "x.qed", "1G"]).failed(2, &["QED"]);
    assert_eq!(yard.names(), names);
}

#[test]
fn an_image_in_use_is_left_alone_and_info_says_by_whom() {
    let yard = Yard::new();
    image(&yard, ["create", "-q", "used.qcow2", "64M"]).succeeded();
    image(&yard, ["create", "-q", "other.qcow2", "1M"]).succeeded();
    let socket = yard.path("socket");
    let mut server = Command::new("qemu-storage-daemon");
    server.current_dir(yard.path("")).args(["--blockdev", "driver=file,node-name=file,filename=used.qcow2"]);
    server.args(["--blockdev", "driver=qcow2,node-name=disk,file=file", "--nbd-server"]);
    server.arg(format!("addr.type=unix,addr.path={}", socket.display()));
    server.args(["--export", "nbd,id=export,node-name=disk,writable=on"]);
    let mut server = server.spawn().expect("install qemu-system-common, which has qemu-storage-daemon");
    support::wait_until("the server listens", || socket.exists());
    let info = image(&yard, ["info", "used.qcow2"]).succeeded();
    let refusals = [
        image(&yard, ["convert", "other.qcow2", "used.qcow2"]),
        image(&yard, ["create", "used.qcow2", "1M"]),
        image(&yard, ["resize", "used.qcow2", "1G"]),
        image(&yard, ["convert", "used.qcow2", "x.img"]),
    ];
    server.kill().unwrap();
    server.wait().unwrap();
    assert!(info.stdout.contains("in use for writing: by qemu-storage"), "{info:?}");
    for refusal in refusals {
        refusal.failed(1, &["used.qcow2", "qemu-storage"]);
    }
    assert!(!yard.path("x.img").exists());
    image(&yard, ["create", "used.qcow2", "1M"]).succeeded();
}

#[test]
fn an_image_that_is_served_is_refused_by_name() {
    let yard = Yard::new();
    yard.random("base.img", 4 * MIB, 1);
    image(&yard, ["create", "-q", "-b", "base.img", "-F", "raw", "used.qcow2"]).succeeded();
    let (used, socket, directory) = (yard.path("used.qcow2"), yard.path("socket"), yard.path(""));
    let arguments =
        [used.as_os_str(), "--socket".as_ref(), socket.as_os_str(), "--allow-dir".as_ref(), directory.as_os_str()];
    let server = server::Server::start(&arguments, &socket);
    let holder = format!("blockyard (process {}) has it open", server.id().as_raw_nonzero());
    for arguments in [
        &["check", "used.qcow2"][..],
        &["check", "-r", "leaks", "used.qcow2"],
        &["commit", "--allow-dir", ".", "used.qcow2"],
        &["rebase", "--allow-dir", ".", "-b", "", "used.qcow2"],
        &["rebase", "-u", "-b", "other", "-F", "raw", "used.qcow2"],
        &["resize", "--allow-dir", ".", "used.qcow2", "1G"],
        &["map", "--allow-dir", ".", "used.qcow2"],
        &["ls", "--allow-dir", ".", "used.qcow2"],
        &["mkdir", "--allow-dir", ".", "--atomic", "used.qcow2", "/x"],
        &["create", "used.qcow2", "1M"],
        &["resize", "base.img", "1G"],
    ] {
        image(&yard, arguments).failed(1, &["is in use: ", &holder]);
    }
    image(&yard, ["check", "-U", "used.qcow2"]).succeeded();
    server.stop();
    image(&yard, ["check", "used.qcow2"]).succeeded();
}

/// A server has as many queues as it is told to, and each thread wants one; what is read from the page cache has a
/// queue of one request, and what a server writes has more.
#[test]
fn sessions_are_converted_with_the_queues_that_they_have() {
    let yard = Yard::new();
    let disk = mixed(&yard, "disk.img");
    for (name, queues) in [("one", "1"), ("many", "8")] {
        let (served, socket) = (yard.sparse(&format!("{name}.img"), 41 * MIB, &[], 1), yard.path(name));
        let options = ["--queues".as_ref(), queues.as_ref(), "--socket".as_ref()];
        let arguments = [&[served.as_os_str()][..], &options, &[socket.as_os_str()]].concat();
        let server = server::Server::start(&arguments, &socket);
        let session = format!("session:{name}");
        image(&yard, ["convert", "-n", "-m", "4", "disk.img", &session]).succeeded();
        image(&yard, ["compare", "disk.img", &session]).succeeded();
        image(&yard, ["convert", "-m", "4", &session, "back.qcow2"]).succeeded();
        server.stop();
        assert!(fs::read(&served).unwrap().starts_with(&fs::read(&disk).unwrap()));
        image(&yard, ["compare", "disk.img", "back.qcow2"]).succeeded();
    }
    image(&yard, ["convert", "-n", "disk.img", "mem:41M"]).succeeded();
}

#[test]
fn checks_end_as_qemu_imgs_do() {
    let yard = Yard::new();
    mixed(&yard, "disk.img");
    qemu_img(&yard, "convert -f raw -O qcow2 disk.img good.qcow2");
    let good = fs::read(yard.path("good.qcow2")).unwrap();
    let number = |at: usize| u64::from_be_bytes(good[at..at + 8].try_into().unwrap()) as usize;
    let refblock = number(number(48));
    let checked = |code: i32, what: &str, qemu: bool| {
        let ours = image(&yard, ["check", "bad.qcow2"]).failed(code, &[what]);
        if qemu {
            let mut theirs = Command::new("qemu-img");
            theirs.args(["check", "bad.qcow2"]).current_dir(yard.path(""));
            let theirs = theirs.output().expect("install qemu-utils");
            assert_eq!(theirs.status.code(), Some(code));
            assert_eq!(ours.stdout, String::from_utf8(theirs.stdout).unwrap());
        }
    };
    // A cluster that nobody uses, one that is said to be free, and both repaired.
    let mut bytes = good.clone();
    let clusters = good.len() / 65536;
    bytes.resize((clusters + 1) * 65536, 0);
    bytes[refblock + clusters * 2 + 1] = 1;
    fs::write(yard.path("bad.qcow2"), &bytes).unwrap();
    checked(3, "Leaked cluster", true);
    let json = image(&yard, ["check", "--json", "bad.qcow2"]).failed(3, &[]).json();
    let mut theirs = Command::new("qemu-img");
    theirs.args(["check", "--output=json", "bad.qcow2"]).current_dir(yard.path(""));
    assert_eq!(json, serde_json::from_slice::<serde_json::Value>(&theirs.output().unwrap().stdout).unwrap());
    bytes[refblock + 7] = 0;
    fs::write(yard.path("bad.qcow2"), &bytes).unwrap();
    checked(2, "ERROR cluster 3 refcount=0 reference=1", true);
    image(&yard, ["check", "-r", "leaks", "bad.qcow2"]).failed(2, &["Repairing cluster"]);
    let repaired = image(&yard, ["check", "-r", "all", "bad.qcow2"]).succeeded();
    assert!(repaired.stdout.contains("found and repaired") && repaired.stdout.contains("No errors"), "{repaired:?}");
    qemu_img(&yard, "check -q bad.qcow2");
    qemu_img(&yard, "compare -q -f raw -F qcow2 disk.img bad.qcow2");
    let raw = image(&yard, ["check", "disk.img"]).failed(63, &[]);
    assert!(raw.stdout.contains("does not support checks"), "{raw:?}");
    image(&yard, ["check", "-q", "good.qcow2"]).succeeded();
    image(&yard, ["check", "absent.qcow2"]).failed(1, &["absent.qcow2"]);
    image(&yard, ["check", "--no-such-option", "good.qcow2"]).failed(2, &[]);
    image(&yard, ["check", "-U", "-r", "all", "good.qcow2"]).failed(2, &[]);
}

/// A base, an image over it, and one over that, with changes in each; and what the last one shows.
fn chain(yard: &Yard) {
    yard.sparse("base.img", 8 * MIB, &[(0, 3 * MIB), (5 * MIB, 2 * MIB)], 1);
    image(yard, ["create", "-q", "-b", "base.img", "-F", "raw", "mid.qcow2"]).succeeded();
    image(yard, ["create", "-q", "-b", "mid.qcow2", "-F", "qcow2", "top.qcow2", "12M"]).succeeded();
    let write = |name: &str, commands: &[&str]| {
        let mut qemu_io = Command::new("qemu-io");
        qemu_io.current_dir(yard.path("")).args(["-f", "qcow2"]).stdout(std::process::Stdio::null());
        commands.iter().for_each(|command| _ = qemu_io.args(["-c", command]));
        assert!(qemu_io.arg(name).status().expect("install qemu-utils").success());
    };
    write("mid.qcow2", &["write -P 7 1M 300k", "write -z 5M 200k"]);
    write("top.qcow2", &["write -P 8 1100k 300k", "write -P 3 11M 4k", "discard 2M 128k"]);
    qemu_img(yard, "convert -O raw top.qcow2 wanted");
}

#[test]
fn an_image_is_committed_into_any_that_it_is_based_on() {
    let yard = Yard::new();
    chain(&yard);
    image(&yard, ["commit", "top.qcow2"]).failed(1, &["--allow-dir"]);
    image(&yard, ["commit", "--allow-dir", ".", "-b", "wanted", "top.qcow2"]).failed(1, &["is not based on wanted"]);
    image(&yard, ["commit", "--allow-dir", ".", "base.img"]).failed(2, &["qcow2"]);
    image(&yard, ["commit", "--allow-dir", ".", "top.qcow2"]).succeeded();
    for name in ["top.qcow2", "mid.qcow2"] {
        qemu_img(&yard, &format!("check -q {name}"));
        qemu_img(&yard, &format!("compare -q -F raw {name} wanted"));
    }
    assert!(allocated_bytes(&yard.path("top.qcow2")) < MIB);
    image(&yard, ["commit", "-d", "--allow-dir", ".", "mid.qcow2"]).succeeded();
    assert!(same(&yard.path("base.img"), &yard.path("wanted")));
    chain(&yard);
    let said = image(&yard, ["commit", "--allow-dir", ".", "-b", "base.img", "top.qcow2"]).succeeded();
    assert!(said.stdout.contains("top.qcow2 and 1 more between the two are of no more use"), "{said:?}");
    assert!(same(&yard.path("base.img"), &yard.path("wanted")));
    image(&yard, ["create", "-q", "alone.qcow2", "1M"]).succeeded();
    image(&yard, ["commit", "alone.qcow2"]).failed(1, &["has no backing file"]);
}

#[test]
fn an_image_shows_the_same_over_another_backing_file() {
    let yard = Yard::new();
    chain(&yard);
    yard.random("other.img", 3 * MIB + 512, 9);
    for (backing, format) in [("other.img", "raw"), ("base.img", "raw"), ("mid.qcow2", "qcow2")] {
        image(&yard, ["rebase", "--allow-dir", ".", "-b", backing, "-F", format, "top.qcow2"]).succeeded();
        let info = qemu_img(&yard, "info --output=json top.qcow2").json();
        assert_eq!((&info["backing-filename"], &info["backing-filename-format"]), (&backing.into(), &format.into()));
        qemu_img(&yard, "check -q top.qcow2");
        qemu_img(&yard, "compare -q -F raw top.qcow2 wanted");
    }
    image(&yard, ["rebase", "--allow-dir", ".", "-b", "", "top.qcow2"]).succeeded();
    fs::remove_file(yard.path("mid.qcow2")).unwrap();
    qemu_img(&yard, "check -q top.qcow2");
    qemu_img(&yard, "compare -q -F raw top.qcow2 wanted");
    chain(&yard);
    fs::rename(yard.path("base.img"), yard.path("moved.img")).unwrap();
    image(&yard, ["rebase", "-u", "-b", "moved.img", "-F", "raw", "mid.qcow2"]).succeeded();
    qemu_img(&yard, "compare -q -F raw top.qcow2 wanted");
    for (arguments, code, word) in [
        (&["-b", "moved.img"][..], 2, "-F"),
        (&["-b", "absent", "-F", "raw", "--allow-dir", "."], 1, "absent"),
        (&["-b", "top.qcow2", "-F", "qcow2", "--allow-dir", "."], 1, "behind itself"),
        (&["-b", "moved.img", "-F", "raw"], 1, "--allow-dir"),
    ] {
        image(&yard, [&["rebase", "top.qcow2"], arguments].concat()).failed(code, &[word]);
        qemu_img(&yard, "compare -q -F raw top.qcow2 wanted");
    }
}

/// A disk may be far larger than what the file has tables for.
#[test]
fn what_is_behind_a_disk_without_tables_is_not_looked_for_piece_by_piece() {
    let yard = Yard::new();
    yard.random("base.img", MIB, 3);
    yard.random("other.img", MIB, 4);
    let create = "create -q -f qcow2 -o cluster_size=2M";
    let over_base = " -b base.img -F raw";
    let none = &["-b", ""][..];
    let other = &["-b", "other.img", "-F", "raw"][..];
    for (base, backing, says) in [
        ("", none, "depends on no other file"),
        (over_base, none, "depends on no other file"),
        (over_base, other, "over other.img"),
    ] {
        qemu_img(&yard, &format!("{create}{base} huge.qcow2 32512G"));
        let done = image(&yard, [&["rebase", "--allow-dir", "."], backing, &["huge.qcow2"]].concat()).succeeded();
        assert!(done.stdout.contains(says), "{done:?}");
        qemu_img(&yard, "check -q huge.qcow2");
        if base == over_base {
            qemu_img(&yard, "compare -q -F raw huge.qcow2 base.img");
        }
    }
    // One that claims to be larger than its own table of tables is none.
    qemu_img(&yard, &format!("{create} huge.qcow2 1M"));
    File::options()
        .write(true)
        .open(yard.path("huge.qcow2"))
        .unwrap()
        .write_all_at(&(1_u64 << 40).to_be_bytes(), 24)
        .unwrap();
    let said = "huge.qcow2 has an L1 table of 1 entries, too small for its disk, which takes 2";
    image(&yard, ["rebase", "-b", "", "huge.qcow2"]).failed(1, &[said]);
}

#[test]
fn a_disk_is_converted_to_what_differs_from_another() {
    let yard = Yard::new();
    mixed(&yard, "base.img");
    mixed(&yard, "disk.img");
    let file = File::options().write(true).open(yard.path("disk.img")).unwrap();
    file.write_all_at(b"changed", 12_345_678).unwrap();
    file.write_all_at(&[0; 5000], 100_000).unwrap();
    // In the same cluster, where those are the largest, and far from each other.
    file.write_all_at(b"changed, too", 10_600_000).unwrap();
    for options in [
        &["-B", "base.img", "-F", "raw"][..],
        &["-o", "backing_file=base.img,backing_fmt=raw,cluster_size=4k"],
        &["-o", "backing_file=base.img,backing_fmt=raw,cluster_size=2M"],
    ] {
        image(&yard, [&["convert", "disk.img", "new.qcow2"], options].concat()).succeeded();
        qemu_img(&yard, "check -q new.qcow2");
        qemu_img(&yard, "compare -q -F raw new.qcow2 disk.img");
        assert!(allocated_bytes(&yard.path("new.qcow2")) < 20 * MIB, "{options:?}");
    }
    for (options, code) in [
        (&["-B", "base.img"][..], 2),
        (&["-B", "absent", "-F", "raw"], 1),
        (&["-B", "base.img", "-F", "raw", "-O", "raw"], 2),
    ] {
        image(&yard, [&["convert", "disk.img", "no.qcow2"], options].concat()).failed(code, &[]);
        assert!(!yard.path("no.qcow2").exists());
    }
}

#[test]
fn what_a_disk_grows_by_is_allocated_as_it_is_wanted() {
    let yard = Yard::new();
    mixed(&yard, "disk.img");
    for (name, mode) in
        [("a.qcow2", "metadata"), ("a.qcow2", "falloc"), ("a.qcow2", "full"), ("a.img", "falloc"), ("a.img", "full")]
    {
        image(&yard, ["convert", "-q", "disk.img", name]).succeeded();
        image(&yard, ["resize", "--preallocation", mode, name, "+10M"]).succeeded();
        // Of the disk, 10 to 14 MiB have storage.
        let allocated = allocated_bytes(&yard.path(name));
        assert_eq!(allocated >= 20 * MIB, mode != "metadata", "{name}, {mode}: {allocated}");
        qemu_img(&yard, &format!("compare -q {name} -F raw disk.img"));
        if name.ends_with("qcow2") {
            qemu_img(&yard, &format!("check -q {name}"));
            let map = image(&yard, ["map", "--json", "--start-offset", "45M", name]).succeeded().json();
            assert_eq!(map[0]["present"], true, "{mode}: {map}");
        }
        image(&yard, ["resize", "--shrink", "--preallocation", mode, name, "1M"]).failed(2, &["larger"]);
    }
    image(&yard, ["resize", "--preallocation", "metadata", "a.img", "+1M"]).failed(2, &["raw"]);
}

/// Unmounts when it goes.
struct Mounted<'a>(&'a Path);

impl Drop for Mounted<'_> {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0).status();
    }
}

#[test]
fn a_full_disk_is_one_sentence_and_leaves_nothing() {
    if !is_root() {
        return;
    }
    let yard = Yard::new();
    yard.random("disk.img", 8 * MIB, 1);
    yard.sparse("zeros.img", 8 * MIB, &[], 1);
    let small = yard.path("small");
    fs::create_dir(&small).unwrap();
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=4m", "none"]).arg(&small).status().unwrap();
    assert!(mounted.success(), "this test mounts a small tmpfs: run it as root");
    let _mounted = Mounted(&small);
    for options in [
        &["small/x.qcow2"][..],
        &["-c", "small/x.qcow2"],
        &["-o", "preallocation=full", "small/x.qcow2"],
        &["-O", "qcow2", "-B", "../zeros.img", "-F", "raw", "small/x"],
        &["-S0", "small/x.img"],
        &["small/x.img"],
    ] {
        let problem = format!("blockyard: no space left for {}: free some", options.last().unwrap());
        image(&yard, ["convert", "disk.img"].iter().chain(options)).failed(1, &[&problem]);
        assert_eq!(fs::read_dir(&small).unwrap().count(), 0);
    }
    image(&yard, ["create", "small/x.img", "8M", "-o", "preallocation=full"]).failed(1, &["o space left"]);
    assert_eq!(fs::read_dir(&small).unwrap().count(), 0);
}

#[test]
fn a_signal_in_mid_convert_leaves_nothing() {
    let yard = Yard::new();
    yard.random("disk.img", 4 * MIB, 1);
    let old = yard.random("old.qcow2", 1000, 2);
    let names = yard.names();
    for target in ["new.qcow2", "old.qcow2"] {
        let mut command = blockyard();
        // Some seconds for each request, so that it is in the middle of it.
        command.current_dir(yard.path("")).args(["image", "convert", "disk.img,latency=3s", target]);
        let child = command.spawn().unwrap();
        support::wait_until_it_catches(child.id(), libc::SIGINT);
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
        support::finish(child).failed(130, &["stopped by Ctrl-C"]);
        assert_eq!(yard.names(), names);
        assert!(fs::read(&old).unwrap() == random_bytes(1000, 2));
    }
}
