//! Images whose writer was killed while their refcounts were behind.

use super::*;
use std::process::Stdio;

/// A qcow2 image with lazy refcounts, as a killed QEMU left it.
fn killed(yard: &Yard) {
    qemu_img(yard, "create -q -f qcow2 -o lazy_refcounts=on dirty.qcow2 20M");
    let mut writer = Command::new("qemu-io");
    writer.current_dir(yard.path("")).args([
        "-f",
        "qcow2",
        "-c",
        "write -P 7 1M 3M",
        "-c",
        "flush",
        "-c",
        "sleep 60000",
    ]);
    let mut writer = writer.arg("dirty.qcow2").stdout(Stdio::null()).spawn().expect("install qemu-utils");
    support::wait_until("what was written is mapped, and the image marked dirty", || {
        let bytes = fs::read(yard.path("dirty.qcow2")).unwrap();
        let number = |at: usize| {
            let bytes = bytes.get(at..at + 8).map_or(0, |bytes| u64::from_be_bytes(bytes.try_into().unwrap()));
            (bytes & 0x00ff_ffff_ffff_fe00) as usize
        };
        // The last cluster's entry, in the only L2 table.
        let l2 = number(number(40));
        bytes[79] == 1 && l2 != 0 && number(l2 + 8 * 63) != 0
    });
    writer.kill().unwrap();
    writer.wait().unwrap();
}

#[test]
fn a_dirty_image_is_read_as_it_is_and_written_to_when_it_has_been_repaired() {
    let yard = Yard::new();
    killed(&yard);
    let before = fs::read(yard.path("dirty.qcow2")).unwrap();
    qemu_img(&yard, "create -q -f qcow2 -b dirty.qcow2 -F qcow2 over.qcow2");
    for (name, out) in [("dirty.qcow2", "a.img"), ("over.qcow2", "b.img")] {
        image(&yard, ["convert", "--allow-dir", ".", name, out]).succeeded();
        let bytes = fs::read(yard.path(out)).unwrap();
        assert!(
            bytes[1 << 20..4 << 20].iter().all(|&byte| byte == 7) && bytes[..1 << 20].iter().all(|&byte| byte == 0)
        );
    }
    let info = image(&yard, ["info", "--json", "dirty.qcow2"]).succeeded().json();
    assert!(info["dirty-flag"] == true && info.get("unusable").is_none(), "{info}");
    let raw = yard.random("raw.img", MIB, 3);
    assert!(fs::read(yard.path("dirty.qcow2")).unwrap() == before, "it has changed");
    let said = image(&yard, ["convert", "-n", "raw.img", "dirty.qcow2"]).succeeded().stderr;
    assert!(said.contains("dirty.qcow2 is marked dirty") && said.contains("it is repaired"), "{said}");
    qemu_img(&yard, "check -q dirty.qcow2");
    image(&yard, ["convert", "dirty.qcow2", "c.img"]).succeeded();
    assert!(fs::read(yard.path("c.img")).unwrap()[..1 << 20] == fs::read(raw).unwrap());
}

/// Also one whose refcounts are never behind, and by commands that work on the image itself.
#[test]
fn whatever_changes_a_dirty_image_repairs_it_first() {
    let yard = Yard::new();
    let raw = yard.random("raw.img", MIB, 3);
    for words in [
        &["resize", "dirty.qcow2", "8M"][..],
        &["snapshot", "-c", "one", "dirty.qcow2"],
        &["bitmap", "--add", "dirty.qcow2", "one"],
        &["rebase", "-u", "-b", "", "dirty.qcow2"],
    ] {
        image(&yard, ["convert", "-q", "raw.img", "dirty.qcow2"]).succeeded();
        let mut bytes = fs::read(yard.path("dirty.qcow2")).unwrap();
        let number = |at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap()) as usize;
        let refblock = number(number(48));
        // Clusters of the disk that nobody has counted, and one that is counted and not used.
        bytes[refblock + 2 * 4..][..8].fill(0);
        bytes[refblock + 2 * 40 + 1] = 1;
        bytes.resize(41 << 16, 0);
        bytes[79] = 1;
        fs::write(yard.path("dirty.qcow2"), bytes).unwrap();
        let said = image(&yard, words).succeeded().stderr;
        assert!(said.contains("dirty.qcow2 is marked dirty") && said.lines().count() == 1, "{words:?}: {said}");
        qemu_img(&yard, "check -q dirty.qcow2");
        image(&yard, ["convert", "-q", "dirty.qcow2", "out.img"]).succeeded();
        assert!(fs::read(yard.path("out.img")).unwrap()[..1 << 20] == fs::read(&raw).unwrap(), "{words:?}");
    }
}

#[test]
fn a_dirty_image_with_damage_that_no_repair_helps_is_not_written_to() {
    let yard = Yard::new();
    yard.random("raw.img", MIB, 3);
    image(&yard, ["convert", "-q", "raw.img", "dirty.qcow2"]).succeeded();
    let mut bytes = fs::read(yard.path("dirty.qcow2")).unwrap();
    let number = |at: usize| (u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap()) & !(1 << 63)) as usize;
    let l2 = number(number(40));
    // Two clusters of the disk in one place.
    bytes.copy_within(l2..l2 + 8, l2 + 8);
    bytes[79] = 1;
    fs::write(yard.path("dirty.qcow2"), bytes).unwrap();
    image(&yard, ["convert", "-n", "raw.img", "dirty.qcow2"]).failed(1, &["is marked dirty", "no repair puts right"]);
    assert_eq!(fs::read(yard.path("dirty.qcow2")).unwrap()[79], 1);
}

/// One of no bytes, and one that holds nothing.
#[test]
fn an_image_of_an_empty_disk_leaks_nothing_and_can_grow() {
    let yard = Yard::new();
    let disk = yard.random("disk.img", 3 * MIB, 4);
    for size in ["0", "1G"] {
        let out = format!("{size}.qcow2");
        File::create(yard.path("empty.img")).unwrap().set_len(if size == "0" { 0 } else { 1 << 30 }).unwrap();
        image(&yard, ["convert", "empty.img", &out]).succeeded();
        qemu_img(&yard, &format!("check -q {out}"));
        image(&yard, ["check", &out]).succeeded();
        image(&yard, ["resize", &out, "2G"]).succeeded();
        image(&yard, ["convert", "-n", "disk.img", &out]).succeeded();
        qemu_img(&yard, &format!("check -q {out}"));
        image(&yard, ["convert", &out, "back.img"]).succeeded();
        assert!(fs::read(yard.path("back.img")).unwrap()[..3 << 20] == fs::read(&disk).unwrap());
    }
}
