//! qcow2 images whose data are in a file of their own: made as qemu-img makes them, and read by it.

use super::*;
use std::io::Write;
use std::os::unix::fs::{PermissionsExt, symlink};

/// What both say of an image: `info`, and where everything lies.
fn described(yard: &Yard, name: &str, data: &str) -> [serde_json::Value; 2] {
    qemu_img(yard, &format!("check -q {name}"));
    image(yard, ["check", "-q", name]).succeeded();
    let mut info = qemu_img(yard, &format!("info --output=json {name}")).json();
    for key in ["filename", "actual-size"] {
        info.as_object_mut().unwrap().remove(key);
    }
    assert_eq!(info["format-specific"]["data"]["data-file"].take(), data);
    let mut map = qemu_img(yard, &format!("map --output=json {name}")).json();
    // What has no storage in the data file reads as zeros: qemu-img gives some to its first bytes.
    map.as_array_mut().unwrap().iter_mut().for_each(|range| drop(range.as_object_mut().unwrap().remove("zero")));
    [info, map]
}

#[test]
fn a_data_file_is_made_as_by_qemu_img() {
    let yard = Yard::new();
    fs::write(yard.path("base.img"), [7; 1 << 20]).unwrap();
    for (number, (options, more)) in [
        ("", ""),
        (",data_file_raw=on", ""),
        (",data_file_raw=off,preallocation=metadata", ""),
        (",data_file_raw=on,preallocation=falloc,cluster_size=4K", ""),
        (",preallocation=full,extended_l2=on", ""),
        (",lazy_refcounts=on,refcount_bits=1", "-b base.img -F raw "),
    ]
    .into_iter()
    .enumerate()
    {
        let names = ["ours", "theirs"].map(|who| (format!("{who}{number}.qcow2"), format!("{who}{number}.data")));
        let line = |(name, data): &(String, String)| {
            format!("create -q -f qcow2 -o data_file={data}{options} {more}{name} 1000000")
        };
        // No whole number of sectors is none for qemu-img: it rounds up.
        image(&yard, line(&names[0]).replace("1000000", "1000448").split(' ')).succeeded();
        qemu_img(&yard, &line(&names[1]));
        let [ours, theirs] = names.each_ref().map(|(name, data)| described(&yard, name, data));
        assert_eq!(ours[0], theirs[0], "{options}");
        // Parts of clusters that qemu-img has given a place still show what is behind.
        if !options.contains("extended_l2") {
            assert_eq!(ours[1], theirs[1], "{options}");
        }
        let [ours, theirs] = names.map(|(_, data)| yard.path(&data));
        // It ends where the disk does, though all clusters have a place.
        assert_eq!(ours.metadata().unwrap().len(), 1_000_448, "{options}");
        assert!(theirs.metadata().unwrap().len() >= 1_000_448, "{options}");
        assert_eq!(allocated_bytes(&ours) >= 1_000_448, options.contains("fal") || options.contains("full"));
    }
}

/// Whatever size the disk gets, by whom.
#[test]
fn a_raw_data_file_stays_the_disk() {
    let yard = Yard::new();
    let create = "create -q -f qcow2 -o data_file=d.raw,data_file_raw=on,cluster_size=4K d.qcow2 1000448";
    image(&yard, create.split(' ')).succeeded();
    let mut write = Command::new("qemu-io");
    write.current_dir(yard.path("")).args(["-c", "write -P 0xaa 0 1000448", "d.qcow2"]);
    assert!(write.output().unwrap().status.success());
    let (raw, mut disk) = (yard.path("d.raw"), vec![0xaa; 1_000_448]);
    for (line, size) in [
        ("resize -q --shrink --allow-dir . d.qcow2 500224", 500_224),
        ("resize -q --allow-dir . d.qcow2 1000448", 1_000_448),
        ("amend -q --allow-dir . -o size=3M d.qcow2", 3 << 20),
        ("resize -q --shrink --allow-dir . d.qcow2 1M", 1 << 20),
        ("resize -q --preallocation=falloc --allow-dir . d.qcow2 2M", 2 << 20),
    ] {
        image(&yard, line.split(' ')).succeeded();
        disk.resize(size, 0);
        assert!(fs::read(&raw).unwrap() == disk, "{line}");
        qemu_img(&yard, "compare d.qcow2 -F raw d.raw");
        let map = qemu_img(&yard, "map --output=json d.qcow2").json();
        let is_there = |range: &serde_json::Value| range["present"] == true && range["offset"] == range["start"];
        assert!(map.as_array().unwrap().iter().all(is_there), "{line}: {map}");
        image(&yard, ["check", "-q", "d.qcow2"]).succeeded();
    }
    // What lies behind the end of the disk, as after a kill, is no part of it.
    File::options().append(true).open(&raw).unwrap().write_all(&[7; 9000]).unwrap();
    image(&yard, "resize -q --allow-dir . d.qcow2 4M".split(' ')).succeeded();
    disk.resize(4 << 20, 0);
    assert!(fs::read(&raw).unwrap() == disk);
    for line in ["create -q -f qcow2 -b d.qcow2 -F qcow2 top.qcow2 5M", "commit -q --allow-dir . top.qcow2"] {
        image(&yard, line.split(' ')).succeeded();
    }
    disk.resize(5 << 20, 0);
    assert!(fs::read(&raw).unwrap() == disk);
    qemu_img(&yard, "compare d.qcow2 -F raw d.raw");
}

/// As qemu-img has it, whether it is raw or not; and what is to have storage has it there.
#[test]
fn a_data_file_ends_with_its_disk_and_is_preallocated() {
    let yard = Yard::new();
    for number in 0..2 {
        for (name, who) in [("ours", 0), ("theirs", 1)] {
            let line = format!("create -q -f qcow2 -o data_file={name}{number}.data {name}{number}.qcow2 4M");
            if who == 0 {
                image(&yard, line.split(' ')).succeeded()
            } else {
                qemu_img(&yard, &line)
            };
        }
        let names = ["ours", "theirs"].map(|name| format!("{name}{number}"));
        let preallocation = ["falloc", "full"][number];
        for (options, size) in [
            ("", 8 << 20),
            ("--shrink", 1_000_448),
            (&*format!("--preallocation={preallocation}"), 3 << 20),
            ("--preallocation=metadata", 5 << 20),
        ] {
            let line = |name: &str| format!("resize -q {options} {name}.qcow2 {size}").replace("  ", " ");
            image(&yard, format!("{} --allow-dir .", line(&names[0])).split(' ')).succeeded();
            qemu_img(&yard, &line(&names[1]));
            let [ours, theirs] = names.each_ref().map(|name| yard.path(&format!("{name}.data")));
            let lengths = [&ours, &theirs].map(|path| path.metadata().unwrap().len());
            assert_eq!(lengths, [size, size], "{options}");
            let has_storage = [&ours, &theirs].map(|path| allocated_bytes(path) >= 2 << 20);
            assert_eq!(has_storage[0], has_storage[1], "{options}");
            qemu_img(&yard, &format!("check -q {}.qcow2", names[0]));
        }
    }
}

#[test]
fn a_disk_is_converted_into_a_data_file() {
    let yard = Yard::new();
    let plain = mixed(&yard, "disk.img");
    fs::write(yard.path("base.img"), [0; 4096]).unwrap();
    for (number, options) in ["", ",data_file_raw=on", ",extended_l2=on,data_file_raw=on", ",cluster_size=4K"]
        .into_iter()
        .chain([" -B base.img -F raw", " -S 0", ",encrypt.format=luks,encrypt.iter-time=10 --key-file key"])
        .enumerate()
    {
        fs::write(yard.path("key"), "word").unwrap();
        fs::set_permissions(yard.path("key"), fs::Permissions::from_mode(0o600)).unwrap();
        let (name, data) = (format!("{number}.qcow2"), format!("{number}.data"));
        let line = format!("convert -q disk.img {name} -o data_file={data}{options}");
        image(&yard, line.split(' ')).succeeded();
        let said = qemu_img(&yard, &format!("info --output=json {name}")).json();
        assert_eq!(said["format-specific"]["data"]["data-file"], data);
        let length = yard.path(&data).metadata().unwrap().len();
        assert_eq!(length, plain.metadata().unwrap().len(), "{options}");
        let secret = "--object secret,id=s,file=key --image-opts driver=qcow2,encrypt.key-secret=s,file.filename=";
        if options.contains("encrypt") {
            qemu_img(&yard, &format!("convert {secret}{name} -O raw back"));
        } else {
            qemu_img(&yard, &format!("convert -f qcow2 {name} -O raw back"));
            qemu_img(&yard, &format!("check -q {name}"));
            assert!(same(&plain, &yard.path(&data)), "{options}");
        }
        assert!(same(&plain, &yard.path("back")), "{options}");
        let key = if options.contains("encrypt") { ",key-file=key" } else { "" };
        image(&yard, ["compare", "-q", "disk.img", &(name + key), "--allow-dir", "."]).succeeded();
        // What is no data takes no room, unless it is to.
        let (held, all) = (allocated_bytes(&yard.path(&data)), plain.metadata().unwrap().len());
        assert_eq!(held < all / 2, !options.contains("-S 0"), "{options}");
    }
}

#[test]
fn a_file_system_is_made_in_a_data_file_and_what_is_written_stays_raw() {
    let yard = Yard::new();
    let line = "create -q a.qcow2 8M -o data_file=a.data,data_file_raw=on --table gpt --part rest";
    image(&yard, line.split(' ')).succeeded();
    qemu_img(&yard, "check -q a.qcow2");
    qemu_img(&yard, "compare -q -f raw -F qcow2 a.data a.qcow2");
    yard.random("new.img", 8 * MIB, 3);
    image(&yard, "convert -q -n new.img a.qcow2 --allow-dir .".split(' ')).succeeded();
    assert!(same(&yard.path("a.data"), &yard.path("new.img")));
    image(&yard, "convert -q a.qcow2 b.img".split(' ')).failed(1, &["a.data", "--allow-dir"]);
}

#[test]
fn nothing_is_overwritten_and_nothing_is_half_made() {
    let yard = Yard::new();
    yard.random("mine", MIB, 2);
    let kept = fs::read(yard.path("mine")).unwrap();
    fs::create_dir(yard.path("directory")).unwrap();
    for (line, status, said) in [
        ("create a.qcow2 1M -o data_file=mine", 1, "mine is there already"),
        ("create a.qcow2 1M -o data_file=a.qcow2", 1, "a.qcow2 is there already"),
        ("create a.qcow2 1M -o data_file=directory/../a.qcow2", 1, "a.qcow2 is there already"),
        ("create a.qcow2 1M -o data_file=directory", 1, "directory is there already"),
        ("create a.qcow2 1M -o data_file=none/d", 1, "there is no directory"),
        ("create a.qcow2 1M -o data_file=nbd:d", 1, "./ before it where it has a colon"),
        ("create a.qcow2 1M -o data_file=", 2, "it is the name of a new file"),
        ("create a.qcow2 1M -o data_file_raw=on", 2, "add data_file=FILE"),
        ("create a.qcow2 1M -o data_file=d,compat=0.10", 1, "take compat=1.1"),
        ("create a.qcow2 -b mine -F raw -o data_file=d,data_file_raw=on", 1, "nothing of a backing file would show"),
        ("create a.img 1M -o data_file=d", 2, "raw images have no data_file"),
        ("convert -c mine a.qcow2 -o data_file=d", 2, "a data file holds no compressed data"),
        ("convert mine a.qcow2 -o data_file=mine", 1, "mine is there already"),
    ] {
        image(&yard, line.split(' ')).failed(status, &[said]);
        assert!(fs::read(yard.path("mine")).unwrap() == kept, "{line}");
        let mut left: Vec<_> = fs::read_dir(yard.path("")).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["directory", "mine"], "{line}");
    }
    let long = format!("create a.qcow2 1M -o cluster_size=512,data_file=./{}d", "./".repeat(300));
    image(&yard, long.split(' ')).failed(1, &["the names of other files do not fit"]);
    assert!(!yard.path("a.qcow2").exists() && !yard.path("d").exists());
}

#[test]
fn a_data_file_lies_beside_its_image_and_is_as_secret() {
    let yard = Yard::new();
    fs::create_dir(yard.path("sub")).unwrap();
    image(&yard, ["create", "-q", "sub/a.qcow2", "1M"]).succeeded();
    fs::set_permissions(yard.path("sub/a.qcow2"), fs::Permissions::from_mode(0o600)).unwrap();
    image(&yard, "create -q sub/a.qcow2 1M -o data_file=a.data".split(' ')).succeeded();
    let mode = |name: &str| yard.path(name).metadata().unwrap().permissions().mode() & 0o777;
    assert_eq!((mode("sub/a.qcow2"), mode("sub/a.data")), (0o600, 0o600));
    image(&yard, "convert -q sub/a.qcow2 b.img --allow-dir sub".split(' ')).succeeded();
}

/// By which name an image is opened decides, where that is a symbolic link, too: so it is with qemu-img, started there.
#[test]
fn names_in_images_start_from_the_directory_of_the_name() {
    let yard = Yard::new();
    for name in ["real", "link"] {
        fs::create_dir(yard.path(name)).unwrap();
    }
    yard.random("link/base.img", MIB, 3);
    for (name, make) in [
        ("data.qcow2", "create -q -f qcow2 -o data_file=its.data NAME 1M"),
        ("raw.qcow2", "convert -q -O qcow2 -o data_file=raw.data,data_file_raw=on link/base.img NAME"),
        ("top.qcow2", "create -q -f qcow2 -b base.img -F raw NAME"),
        ("flat.vmdk", "create -q -f vmdk -o subformat=monolithicFlat NAME 1M"),
    ] {
        let [real, link] = ["real", "link"].map(|directory| format!("{directory}/{name}"));
        fs::write(yard.path(&real), "").unwrap();
        symlink(format!("../{real}"), yard.path(&link)).unwrap();
        let line = make.replace("NAME", &link);
        match name.ends_with("vmdk") {
            true => qemu_img(&yard, &line),
            false => image(&yard, line.split(' ')).succeeded(),
        };
        assert!(yard.path(&link).is_symlink());
        assert_eq!(fs::read_dir(yard.path("real")).unwrap().count(), 1, "{line}");
        let compare = |name: &str| image(&yard, ["compare", "-q", "--allow-dir", ".", name, name]);
        compare(&link).succeeded();
        compare(&real).failed(2, &["No such file"]);
        // Of a data file, it looks where it is started.
        let by_qemu = |directory: &str| {
            Command::new("qemu-img").current_dir(yard.path(directory)).args(["map", name]).output().unwrap()
        };
        assert_eq!(["link", "real"].map(|directory| by_qemu(directory).status.success()), [true, false], "{name}");
        fs::remove_file(yard.path(&real)).unwrap();
    }
}

/// Whichever write fails, the last ones included, by which an image is closed: there is a new image, or the old one.
#[test]
fn an_image_that_cannot_be_closed_takes_no_place() {
    let yard = Yard::new();
    yard.random("disk.img", MIB, 5);
    image(&yard, ["create", "-q", "vm.qcow2", "2M"]).succeeded();
    let (before, names) = (fs::read(yard.path("vm.qcow2")).unwrap(), yard.names());
    for number in 1..100 {
        let failing = format!("pwrite64:error=EIO:when={number}+");
        let words = ["convert", "-q", "-o", "data_file=data.raw", "disk.img", "vm.qcow2"];
        let (code, said) = with_failing(&yard, &failing, None, &words);
        if code == Some(0) {
            assert!(number > 2, "nothing failed");
            image(&yard, ["compare", "-q", "--allow-dir", ".", "disk.img", "vm.qcow2"]).succeeded();
            return;
        }
        assert_eq!(code, Some(1), "{failing}: {said}");
        assert_eq!(said.lines().count(), 1, "{failing}: {said}");
        assert!(fs::read(yard.path("vm.qcow2")).unwrap() == before && yard.names() == names, "{failing}: {said}");
    }
    panic!("it never succeeds");
}
