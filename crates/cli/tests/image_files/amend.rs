//! `image amend` beside qemu-img: the same of twins.

use super::*;

/// What both say of an image.
fn described(yard: &Yard, name: &str) -> serde_json::Value {
    qemu_img(yard, &format!("check -q {name}"));
    image(yard, ["check", "-q", name]).succeeded();
    let mut info = qemu_img(yard, &format!("info --output=json {name}")).json();
    for key in ["filename", "actual-size", "full-backing-filename"] {
        info.as_object_mut().unwrap().remove(key);
    }
    info
}

#[test]
fn options_change_as_by_qemu_img() {
    let yard = Yard::new();
    yard.random("disk.img", MIB, 5);
    yard.random("small.img", MIB / 4, 6);
    // What qemu-img takes for other refcounts grows with the square of the clusters: half a minute for 2048 of them.
    for (made, disk) in [
        ("compat=0.10", "disk.img"),
        ("compat=0.10,cluster_size=512", "small.img"),
        ("compat=1.1,lazy_refcounts=on", "disk.img"),
    ] {
        let ends = ["ours.qcow2", "theirs.qcow2"];
        for name in ends {
            qemu_img(&yard, &format!("convert -O qcow2 -o {made} {disk} {name}"));
        }
        for options in [
            "compat=1.1",
            "lazy_refcounts=on",
            "lazy_refcounts=off,size=3M",
            "lazy_refcounts=on,compat=v3,refcount_bits=1",
            "refcount_bits=64",
            "compat=0.10,refcount_bits=16",
        ] {
            let said = image(&yard, ["amend", "-o", options, "ours.qcow2"]).succeeded().stdout;
            assert_eq!(said, "ours.qcow2: amended\n");
            qemu_img(&yard, &format!("amend -o {options} theirs.qcow2"));
            let [ours, theirs] = ends.map(|name| qemu_img(&yard, &format!("info --output=json {name}")).json());
            for key in ["virtual-size", "format-specific"] {
                assert_eq!(ours[key], theirs[key], "{made}, then {options}: {key}");
            }
        }
        assert_eq!(described(&yard, "ours.qcow2"), described(&yard, "theirs.qcow2"), "{made}");
        qemu_img(&yard, "compare ours.qcow2 theirs.qcow2");
    }
}

#[test]
fn what_cannot_change_is_said_and_changes_nothing() {
    let yard = Yard::new();
    qemu_img(&yard, "create -q -f qcow2 -o compat=1.1 new.qcow2 1M");
    qemu_img(&yard, "create -q -f qcow2 -o compat=0.10 old.qcow2 1M");
    qemu_img(&yard, "create -q -f qcow2 -o extended_l2=on parts.qcow2 1M");
    qemu_img(&yard, "create -q -f qcow2 -o data_file=d data.qcow2 1M");
    qemu_img(&yard, "create -q -f qcow2 bits.qcow2 1M");
    qemu_img(&yard, "create -q -f qcow2 -o cluster_size=512 tiny.qcow2 1M");
    qemu_img(&yard, "bitmap --add bits.qcow2 one");
    yard.random("disk.img", MIB, 1);
    qemu_img(&yard, "convert -O qcow2 disk.img many.qcow2");
    qemu_img(&yard, "snapshot -c one many.qcow2");
    qemu_img(&yard, "resize -q many.qcow2 2M");
    // What only a snapshot has is compressed.
    qemu_img(&yard, "create -q -f qcow2 -o compression_type=zstd zstd.qcow2 1M");
    let write = |what| {
        let mut qemu_io = Command::new("qemu-io");
        assert!(qemu_io.args(["-c", what]).arg(yard.path("zstd.qcow2")).output().unwrap().status.success());
    };
    write("write -c -P 5 0 64k");
    qemu_img(&yard, "snapshot -c one zstd.qcow2");
    write("write -z 0 64k");
    let read = |name: &str| fs::read(yard.path(name)).unwrap();
    let all = ["new", "old", "parts", "data", "bits", "tiny", "many", "zstd"].map(|name| format!("{name}.qcow2"));
    let before = all.each_ref().map(|name| read(name));
    for (options, name, status, wanted) in [
        ("compat=0.10", "parts.qcow2", 1, "has extended L2 entries, and cannot be of version 2 (compat=0.10)"),
        ("compat=0.10,refcount_bits=8", "new.qcow2", 1, "add refcount_bits=16"),
        ("compat=0.10,lazy_refcounts=on", "new.qcow2", 1, "no lazy refcounts: add compat=1.1"),
        ("refcount_bits=8", "old.qcow2", 1, "refcounts of 16 bits: add compat=1.1"),
        ("refcount_bits=1", "many.qcow2", 1, "2 uses of a cluster are too many for its refcount"),
        ("compat=0.10", "many.qcow2", 1, "has snapshots of another size"),
        ("compat=0.10", "zstd.qcow2", 1, "has clusters that are compressed by zstd"),
        ("compat=0.10", "bits.qcow2", 1, "image bitmap --remove"),
        ("data_file=d", "new.qcow2", 1, "has its data in itself"),
        ("data_file=", "data.qcow2", 1, "a data file's name has 1 to 1023 bytes"),
        ("data_file_raw=on", "data.qcow2", 1, "image convert -o data_file_raw=on"),
        ("compat=0.10", "data.qcow2", 1, "has a data file"),
        ("lazy_refcounts=on", "old.qcow2", 1, "add compat=1.1"),
        ("lazy_refcounts=on,size=200G", "tiny.qcow2", 1, "is not possible"),
        ("backing_file=base.img", "new.qcow2", 2, "image rebase"),
        ("size=512K", "new.qcow2", 1, "--shrink"),
        ("compat=1.1", "disk.img", 1, "disk.img: only qcow2 images and LUKS volumes are amended, and this is raw"),
        ("cluster_size=4K", "new.qcow2", 2, "fixed once an image is made"),
        ("lazy_refcounts=on,encrypt.state=inactive,encrypt.keyslot=0", "new.qcow2", 2, "a command of their own"),
        ("compat=3", "new.qcow2", 2, "it is 0.10, v2, 1.1, v3"),
    ] {
        image(&yard, ["amend", "-o", options, name]).failed(status, &[wanted]);
    }
    assert!(all.each_ref().map(|name| read(name)) == before);
    image(&yard, ["amend", "new.qcow2"]).failed(2, &["-o <OPTIONS>"]);
    super::encryption::key(&yard, "a.key", 0o600);
    let active = ["amend", "--object", "secret,id=s,file=a.key", "-o", "encrypt.state=active,encrypt.new-secret=s"];
    let amend = |more: &[&str]| image(&yard, active.iter().chain(more).copied().chain(["new.qcow2"]));
    // Whoever means to replace a passphrase is not told that it is done.
    amend(&["-o", "encrypt.old-secret=s"]).failed(2, &["a passphrase is added by state=active"]);
    amend(&["--old-key-file", "a.key"]).failed(2, &["a passphrase is added by state=active"]);
    amend(&["--new-key-file", "a.key"]).failed(2, &["--new-key-file and new-secret="]);
}

/// Zeros that version 2 cannot say: preallocated and not, over a backing file and without one, of snapshots, too.
#[test]
fn what_reads_as_zeros_does_in_version_2() {
    let yard = Yard::new();
    yard.random("base.img", MIB, 5);
    for (made, backing) in [
        ("", "-b base.img -F raw "),
        ("", ""),
        ("preallocation=metadata", ""),
        ("cluster_size=512,refcount_bits=64,compression_type=zstd", "-b base.img -F raw "),
    ] {
        let options = if made.is_empty() { String::new() } else { format!("-o {made} ") };
        qemu_img(&yard, &format!("create -q -f qcow2 {options}{backing}a.qcow2 1M"));
        let change = |commands: &[&str]| {
            let mut qemu_io = Command::new("qemu-io");
            qemu_io.current_dir(yard.path("")).args(["-f", "qcow2", "-d", "unmap"]);
            qemu_io.args(commands.iter().flat_map(|command| ["-c", command]));
            assert!(qemu_io.arg("a.qcow2").output().unwrap().status.success());
        };
        change(&["write -P 3 0 200k", "write -z 64k 100k", "write -z -u 400k 128k"]);
        qemu_img(&yard, "snapshot -c one a.qcow2");
        change(&["write -z 0 64k", "write -P 4 420k 8k", "write -z -u 700k 64k"]);
        qemu_img(&yard, "snapshot -c two a.qcow2");
        change(&["write -P 5 700k 4k"]);
        let what = ["", "-l one ", "-l two "];
        let held = || {
            what.map(|what| {
                qemu_img(&yard, &format!("convert -f qcow2 -O raw {what}a.qcow2 held"));
                fs::read(yard.path("held")).unwrap()
            })
        };
        let wanted = held();
        image(&yard, ["amend", "-q", "-o", "compat=0.10,refcount_bits=16", "a.qcow2"]).succeeded();
        assert!(qemu_img(&yard, "info a.qcow2").stdout.contains("compat: 0.10"), "{made}");
        qemu_img(&yard, "check -q a.qcow2");
        assert!(held() == wanted, "{made} {backing}");
    }
}

#[test]
fn a_data_file_is_renamed_as_by_qemu_img() {
    let yard = Yard::new();
    for (options, changes) in [("", "data_file=b.data"), (",data_file_raw=on", "data_file_raw=off")] {
        let ends = ["ours.qcow2", "theirs.qcow2"];
        let _ = ends.map(|name| qemu_img(&yard, &format!("create -q -f qcow2 -o data_file=a.data{options} {name} 1M")));
        image(&yard, ["amend", "-q", "-o", changes, "ours.qcow2"]).succeeded();
        qemu_img(&yard, &format!("amend -o {changes} theirs.qcow2"));
        fs::copy(yard.path("a.data"), yard.path("b.data")).unwrap();
        let [ours, theirs] = ends.map(|name| described(&yard, name));
        assert_eq!(ours, theirs, "{options}");
    }
}

#[test]
fn zeros_of_an_encrypted_image_take_its_key() {
    let yard = Yard::new();
    yard.random("base.img", MIB, 5);
    super::encryption::key(&yard, "key", 0o600);
    let luks = "-o encrypt.format=luks,encrypt.iter-time=10 --key-file key";
    image(&yard, format!("create -q a.qcow2 -b base.img -F raw {luks}").split(' ')).succeeded();
    yard.sparse("new.img", MIB, &[(0, MIB / 2)], 6);
    image(&yard, "convert -q -n new.img a.qcow2,key-file=key --allow-dir .".split(' ')).succeeded();
    image(&yard, ["amend", "-o", "compat=0.10", "a.qcow2"]).failed(1, &["is encrypted: name the file"]);
    image(&yard, ["amend", "-q", "-o", "compat=0.10", "a.qcow2,key-file=key"]).succeeded();
    image(&yard, "compare -q a.qcow2,key-file=key new.img --allow-dir .".split(' ')).succeeded();
    image(&yard, ["check", "-q", "a.qcow2"]).succeeded();
}
