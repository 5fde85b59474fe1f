//! `image info` says what qemu-img's does, also of images that no other command here takes.

use super::*;
use serde_json::Value;

/// All that qemu-img says is said here, in the same words; what is said beside that is ours.
#[track_caller]
fn says_all_that(name: &str, ours: &Value, theirs: &Value) {
    match theirs {
        Value::Object(theirs) => {
            for (key, value) in theirs {
                says_all_that(&format!("{name}: {key}"), &ours[key], value);
            }
        }
        Value::Array(theirs) => {
            assert_eq!(ours.as_array().map(Vec::len), Some(theirs.len()), "{name}");
            for (index, value) in theirs.iter().enumerate() {
                says_all_that(&format!("{name} {index}"), &ours[index], value);
            }
        }
        value => assert_eq!(ours, value, "{name}"),
    }
}

#[test]
fn info_says_what_qemu_img_does_of_any_image() {
    let yard = Yard::new();
    fs::create_dir(yard.path("bases")).unwrap();
    let secret = "--object secret,id=key,data=abc";
    for line in [
        "create -q -f qcow2 bases/plain.qcow2 10M".to_owned(),
        "create -q -f qcow2 -o compat=0.10,cluster_size=4k old.qcow2 10M".to_owned(),
        "create -q -f qcow2 -o extended_l2=on,compression_type=zstd,lazy_refcounts=on,refcount_bits=1 new.qcow2 10M"
            .to_owned(),
        format!(
            "create -q {secret} -f qcow2 -o encrypt.format=luks,encrypt.key-secret=key,encrypt.iter-time=10 luks.qcow2 1M"
        ),
        format!("create -q {secret} -f qcow2 -o encryption=on,encrypt.key-secret=key,compat=0.10 aes.qcow2 10M"),
        "create -q -f qcow2 -b bases/plain.qcow2 -F qcow2 over.qcow2".to_owned(),
        "create -q -f qcow2 -o data_file=data.raw,data_file_raw=on elsewhere.qcow2 10M".to_owned(),
        "create -q -f qcow2 snapshots.qcow2 10M".to_owned(),
        "snapshot -c first snapshots.qcow2".to_owned(),
        "snapshot -c second snapshots.qcow2".to_owned(),
        "create -q -f qcow2 marks.qcow2 10M".to_owned(),
        "bitmap --add over.qcow2 auto".to_owned(),
        "bitmap --add --disable -g 4k over.qcow2 other".to_owned(),
        "create -q -f raw disk.img 10M".to_owned(),
        "create -q -f vmdk -o subformat=monolithicFlat bases/flat.vmdk 10M".to_owned(),
        "create -q -f vmdk -o subformat=twoGbMaxExtentFlat pieces.vmdk 3G".to_owned(),
        "create -q -f vmdk bases/sparse.vmdk 10M".to_owned(),
        "create -q -f vmdk -b bases/sparse.vmdk -F vmdk difference.vmdk".to_owned(),
        "convert -f raw -O vmdk -o subformat=streamOptimized disk.img packed.vmdk".to_owned(),
    ] {
        qemu_img(&yard, &line);
    }
    let marks = File::options().write(true).open(yard.path("marks.qcow2")).unwrap();
    let compare = |name: &str| {
        let mut theirs = qemu_img(&yard, &format!("info --output=json {name}")).json();
        // Of grains in the file itself, it does not say what they are.
        if let Some(format) = theirs.pointer_mut("/format-specific/data/extents/0/format").filter(|word| **word == "") {
            *format = "SPARSE".into();
        }
        // What a VMDK is made of takes storage, too, and is looked at where that is allowed.
        let allowed = ["--allow-dir", ".", "--allow-dir", "bases"];
        let ours = image(&yard, [&["info", "--json", name][..], &allowed].concat()).succeeded().json();
        says_all_that(name, &ours, &theirs);
        let text = image(&yard, [&["info", name][..], &allowed].concat()).succeeded().stdout;
        assert!(text.contains(&format!("file format: {}", theirs["format"].as_str().unwrap())), "{text}");
        (ours, text)
    };
    for name in ["bases/plain.qcow2", "old.qcow2", "over.qcow2", "elsewhere.qcow2", "snapshots.qcow2", "disk.img"] {
        compare(name);
    }
    let others = [
        ("bases/flat.vmdk", "monolithicFlat"),
        ("pieces.vmdk", "pieces-f002.vmdk"),
        ("bases/sparse.vmdk", "monolithicSparse"),
        ("difference.vmdk", "backing file: bases/sparse.vmdk"),
        ("packed.vmdk", "compressed clusters of 65536 bytes"),
        ("new.qcow2", "zstd"),
    ];
    for (name, word) in others {
        assert!(compare(name).1.contains(word));
    }
    for (name, word) in [("luks.qcow2", "luks, aes-256-xts-plain64"), ("aes.qcow2", "aes")] {
        let (ours, text) = compare(name);
        assert!(ours["unusable"].is_string() && text.contains("not usable here") && text.contains(word), "{text}");
    }
    // Dirty, then corrupt.
    for mark in [1, 2] {
        marks.write_all_at(&[mark], 79).unwrap();
        let (ours, _) = compare("marks.qcow2");
        assert!(ours.get("unusable").is_none(), "{ours}");
    }
}

/// What reads the JSON of a chain wants each image beside the others; what reads the text, where a file is from here.
#[test]
fn images_of_a_chain_are_listed_as_by_qemu_img() {
    let yard = Yard::new();
    fs::create_dir(yard.path("bases")).unwrap();
    for line in [
        "create -q -f qcow2 bases/plain.qcow2 10M",
        "create -q -f qcow2 -b plain.qcow2 -F qcow2 bases/mid.qcow2",
        "create -q -f qcow2 -b bases/mid.qcow2 -F qcow2 top.qcow2",
    ] {
        qemu_img(&yard, line);
    }
    let allowed = ["--allow-dir", "bases"];
    for name in ["top.qcow2", "bases/mid.qcow2", "bases/plain.qcow2"] {
        let theirs = qemu_img(&yard, &format!("info --output=json --backing-chain {name}")).json();
        let ours = image(&yard, [&["info", "--output=json", "--backing-chain", name][..], &allowed].concat());
        says_all_that(name, &ours.succeeded().json(), &theirs);
        let ours = image(&yard, [&["info", "--json", "--backing-chain", name][..], &allowed].concat());
        let behind = ours.succeeded().json()["backing-chain"].as_array().map_or(0, Vec::len);
        assert_eq!(Some(behind + 1), theirs.as_array().map(Vec::len));
        let backing = |text: &str| text.lines().find(|line| line.starts_with("backing file:")).map(str::to_owned);
        let text = image(&yard, ["info", name]).succeeded().stdout;
        assert_eq!(backing(&text), backing(&qemu_img(&yard, &format!("info {name}")).stdout));
    }
    image(&yard, ["info", "--output=json", "--backing-chain", "top.qcow2"]).failed(1, &["--allow-dir"]);
}

#[test]
fn info_says_what_a_file_in_another_format_is() {
    let yard = Yard::new();
    for name in ["a.qcow", "b.img", "c.qcow2"] {
        qemu_img(&yard, &format!("create -q -f qcow {name} 10M"));
        let ours = image(&yard, ["info", "--json", name]).succeeded().json();
        assert_eq!((ours["format"].as_str(), &ours["virtual-size"]), (Some("qcow"), &Value::Null));
        assert!(ours["unusable"].as_str().unwrap().contains("not supported"), "{ours}");
    }
    fs::write(yard.path("e.img.xz"), b"\xfd7zXZ\0 and more").unwrap();
    let text = image(&yard, ["info", "e.img.xz"]).succeeded().stdout;
    assert!(text.contains("file format: xz") && text.contains("decompress it first"), "{text}");
    image(&yard, ["create", "-q", "called.qcow2", "1M"]).succeeded();
    fs::rename(yard.path("called.qcow2"), yard.path("called.img")).unwrap();
    let text = image(&yard, ["info", "called.img"]).succeeded().stdout;
    assert!(text.contains("file format: qcow2") && text.contains("add ,format=qcow2"), "{text}");
}

#[test]
fn options_of_new_images_are_qemu_imgs() {
    let yard = Yard::new();
    fs::write(yard.path("disk.img"), b"some text of 16 ".repeat(1 << 18)).unwrap();
    for (name, convert, options) in [
        ("a.qcow2", true, "compression_type=zstd"),
        ("b.qcow2", true, "compression_type=zstd,extended_l2=on,cluster_size=128K"),
        ("c.qcow2", true, "compat=0.10"),
        ("d.qcow2", false, "refcount_bits=1,lazy_refcounts=on,cluster_size=4k"),
        ("e.qcow2", false, "compat=1.1,extended_l2=on"),
    ] {
        if convert {
            image(&yard, ["convert", "-q", "-c", "-o", options, "disk.img", name]).succeeded();
        } else {
            image(&yard, ["create", "-q", "-o", options, name, "8M"]).succeeded();
            image(&yard, ["convert", "-q", "-n", "disk.img", name]).succeeded();
        }
        qemu_img(&yard, &format!("check -q {name}"));
        // What is behind the end of the source is zeros.
        qemu_img(&yard, &format!("compare -q disk.img {name}"));
        let measured = |program: &[&str]| {
            let arguments = [&["measure", "-O", "qcow2", "-o", options, "disk.img"], program].concat();
            match program {
                ["--json"] => image(&yard, arguments).succeeded().json(),
                _ => qemu_img(&yard, &arguments.join(" ")).json(),
            }
        };
        assert_eq!(
            measured(&["--json"])["fully-allocated"],
            measured(&["--output=json"])["fully-allocated"],
            "{options}"
        );
    }
    image(&yard, ["convert", "-c", "-o", "refcount_bits=8", "disk.img", "f.qcow2"]).failed(2, &["refcount_bits=16"]);
    image(&yard, ["create", "-o", "compat=0.10,extended_l2=on", "f.qcow2", "1M"]).failed(1, &["compat=1.1"]);
    assert!(!yard.path("f.qcow2").exists());
}

#[test]
fn a_luks_volume_is_described_as_by_qemu_img() {
    let yard = Yard::new();
    encryption::key(&yard, "key", 0o600);
    for options in
        ["iter-time=10", "iter-time=10,cipher-alg=aes-128,cipher-mode=cbc,ivgen-alg=essiv,ivgen-hash-alg=sha256"]
    {
        image(&yard, ["create", "-q", "-f", "luks", "-o", options, "--key-file", "key", "a.luks", "10M"]).succeeded();
        let ours = image(&yard, ["info", "--json", "-f", "luks", "a.luks"]).succeeded().json();
        let theirs = qemu_img(&yard, "info --output=json -f luks a.luks").json();
        for key in ["virtual-size", "format", "encrypted", "format-specific"] {
            assert_eq!(ours[key], theirs[key], "{key}");
        }
        let text = image(&yard, ["info", "-f", "luks", "a.luks"]).succeeded().stdout;
        let uuid = theirs["format-specific"]["data"]["uuid"].as_str().unwrap();
        for line in
            ["virtual size: 10.00 MiB (10485760 bytes)", "encrypted: yes", &format!("uuid: {uuid}"), "slot 7: free"]
        {
            assert!(text.contains(line), "no {line} in {text}");
        }
    }
}
