//! New images, over backing files and with partitions.

use super::*;

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
