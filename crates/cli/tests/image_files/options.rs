//! Options of new images, as qemu-img has them.

use super::*;
use std::os::unix::fs::PermissionsExt;

/// Makes the same by both.
#[track_caller]
fn both(yard: &Yard, line: &str) {
    image(yard, line.replace("NAME", "ours").split(' ')).succeeded();
    qemu_img(yard, &line.replace("NAME", "theirs"));
}

pub(super) fn write(yard: &Yard, name: &str, format: &str, command: &str) {
    let mut io = Command::new("qemu-io");
    run(io.current_dir(yard.path("")).args(["-f", format, "-c", command, name])).succeeded();
}

#[test]
fn words_of_qemu_imgs_make_what_they_make_there() {
    let yard = Yard::new();
    for (format, options, key) in [
        ("qcow2", "lazy_refcounts", "/format-specific/data/lazy-refcounts"),
        ("qcow2", "lazy_refcounts=yes,extended_l2=false", "/format-specific/data/lazy-refcounts"),
        ("qcow2", "nocow=off", "/virtual-size"),
        ("raw", "nocow=off,extent_size_hint=0", "/virtual-size"),
        ("vhdx", "block_size=0", "/cluster-size"),
        ("vpc", "force_size", "/virtual-size"),
    ] {
        both(&yard, &format!("create -q -f {format} -o {options} NAME 5M"));
        let info = |name: &str| qemu_img(&yard, &format!("info --output=json -f {format} {name}")).json();
        let [ours, theirs] = [info("ours"), info("theirs")];
        assert_eq!(ours.pointer(key), theirs.pointer(key), "{format} {options}");
    }
    image(&yard, ["create", "-q", "-f", "raw", "raw.img", "5M"]).succeeded();
    image(&yard, ["convert", "-q", "-O", "vhdx", "-o", "block_size=0", "raw.img", "out.vhdx"]).succeeded();
}

#[test]
fn help_lists_the_options_of_a_format() {
    let yard = Yard::new();
    for (words, has, has_not) in [
        (&["create", "-f", "qcow2"][..], "  lazy_refcounts=on|off", "hwversion"),
        (&["create", "x.vmdk"], "  compat6=on|off", "lazy_refcounts"),
        (&["convert", "-O", "luks"], "  ivgen-hash-alg=sha256", "encrypt."),
        (&["convert", "x.vhdx"], "  block_size=SIZE", "force_size"),
        (&["measure", "-O", "vpc"], "  force_size=on|off", "block_size"),
        (&["amend"], "  encrypt.state=active|inactive", "cluster_size"),
        (&["amend", "-f", "luks"], "  state=active|inactive", "compat"),
    ] {
        let listed = image(&yard, words.iter().chain(&["-o", "help"])).succeeded().stdout;
        assert!(listed.contains(has) && !listed.contains(has_not), "{words:?}: {listed}");
    }
    assert!(!yard.path("x.vmdk").exists());
    for (words, said) in [
        (&["create"][..], "which image?"),
        (&["amend", "-o", "size=1M"], "which image?"),
        (&["convert"], "SRC DST"),
        (&["measure"], "--size SIZE"),
    ] {
        image(&yard, words).failed(2, &[said]);
    }
}

#[test]
fn what_is_measured_is_what_qemu_img_measures() {
    let yard = Yard::new();
    yard.sparse("disk.img", 9 * MIB, &[(0, MIB)], 3);
    let ours = ["measure", "--output=json", "-O", "qcow2"];
    for options in ["preallocation=metadata", "preallocation=falloc", "encrypt.format=luks,encrypt.iter-time=10"] {
        for what in [&["--size", "10G"][..], &["-f", "raw", "disk.img"]] {
            let measured = image(&yard, ours.iter().chain(&["-o", options]).chain(what)).succeeded().json();
            let secret = if options.contains("luks") { ",encrypt.key-secret=s" } else { "" };
            let words = [ours.join(" "), format!("--object secret,id=s,data=abc -o {options}{secret}"), what.join(" ")];
            let theirs = qemu_img(&yard, &words.join(" ")).json();
            assert_eq!(measured, theirs, "{options} {what:?}");
        }
    }
    image(&yard, ["measure", "--size", "1M", "-O", "qcow2", "-o", "encrypt.iter-time=10"])
        .failed(2, &["-o encrypt.iter-time", "add -o encrypt.format=luks"]);
}

#[test]
fn what_differs_is_compressed_over_a_backing_file() {
    let yard = Yard::new();
    mixed(&yard, "base.img");
    mixed(&yard, "disk.img");
    let file = File::options().write(true).open(yard.path("disk.img")).unwrap();
    file.write_all_at(&b"all play and no work ".repeat(20_000), 24 * MIB).unwrap();
    file.write_all_at(&random_bytes(100_000, 5), 12 * MIB).unwrap();
    // Where what is behind has data, zeros and holes.
    file.write_all_at(&vec![0; MIB as usize], 2 * MIB).unwrap();
    file.set_len(30 * MIB).unwrap();
    file.set_len(41 * MIB).unwrap();
    let digest = tool(&yard, "coreutils", "sha256sum disk.img").stdout;
    for (options, bytes_max) in [
        ("-o cluster_size=64K", 2 * MIB),
        ("-S 0 -o cluster_size=64K", 2 * MIB),
        // Most of that is tables, of a cluster each.
        ("-o cluster_size=2M,compression_type=zstd", 14 * MIB),
        ("-o cluster_size=512", 2 * MIB),
    ] {
        let line = format!("convert -c --digest -B base.img -F raw {options} disk.img new.qcow2");
        let said = image(&yard, line.split(' ')).succeeded().stdout;
        assert!(said.contains(digest.split(' ').next().unwrap()), "{said}");
        qemu_img(&yard, "check -q new.qcow2");
        qemu_img(&yard, "compare -q -F raw new.qcow2 disk.img");
        let map = qemu_img(&yard, "map --output=json new.qcow2").json();
        let shows_through = |entry: &serde_json::Value| entry["depth"] == 1 && entry["data"] == true;
        assert!(map.as_array().unwrap().iter().any(shows_through), "{map}");
        let bytes = allocated_bytes(&yard.path("new.qcow2"));
        assert!(bytes < bytes_max, "{options}: {bytes}");
    }
    for options in ["compat=0.10", "extended_l2=on"] {
        let line = format!("convert -c -B base.img -F raw -o {options} disk.img no.qcow2");
        image(&yard, line.split(' ')).failed(2, &["-c over a backing file"]);
    }
}

#[test]
fn a_disk_becomes_smaller_when_somebody_says_so() {
    let yard = Yard::new();
    qemu_img(&yard, "create -q -f qcow2 a.qcow2 4M");
    image(&yard, ["amend", "-o", "size=2M", "a.qcow2"]).failed(1, &["add --shrink"]);
    image(&yard, ["amend", "-q", "--shrink", "-o", "size=2M", "a.qcow2"]).succeeded();
    assert_eq!(qemu_img(&yard, "info --output=json a.qcow2").json()["virtual-size"], 2 * MIB);
    qemu_img(&yard, "create -q -f vdi d.vdi 4M");
    image(&yard, ["resize", "d.vdi", "2M"]).failed(1, &["d.vdi", "VDI images are only read"]);
}

#[test]
fn what_a_disk_grows_by_is_allocated_over_a_backing_file() {
    let yard = Yard::new();
    for (behind_bytes, mode) in [(2 * MIB, "metadata"), (3 * MIB + 512, "falloc"), (6 * MIB, "full")] {
        yard.random("base.img", behind_bytes, 3);
        both(&yard, "create -q -f qcow2 -b base.img -F raw NAME 3145728");
        let words = |name| format!("resize -q -f qcow2 --preallocation={mode} {name} +2M");
        image(&yard, words("ours --allow-dir .").split(' ')).succeeded();
        qemu_img(&yard, &words("theirs"));
        qemu_img(&yard, "check -q ours");
        qemu_img(&yard, "compare -f qcow2 -F qcow2 ours theirs");
        let map = qemu_img(&yard, "map --output=json -f qcow2 -s 3145728 ours").json();
        assert!(map.as_array().unwrap().iter().all(|entry| entry["depth"] == 0), "{map}");
    }
}

#[test]
fn volumes_of_luks_are_made_as_they_are_said_and_checked_without_a_key() {
    let yard = Yard::new();
    fs::write(yard.path("key"), "word").unwrap();
    fs::set_permissions(yard.path("key"), fs::Permissions::from_mode(0o600)).unwrap();
    yard.random("disk.img", MIB, 8);
    let options = "cipher-alg=aes-192,cipher-mode=xts,iter-time=10";
    image(&yard, ["convert", "-O", "luks", "-o", options, "--key-file", "key", "disk.img", "ours.luks"]).succeeded();
    let theirs = "compare --object secret,id=s,file=key --image-opts driver=luks,key-secret=s,file.filename=ours.luks \
                  driver=raw,file.filename=disk.img";
    qemu_img(&yard, theirs);
    let checked = image(&yard, ["check", "-f", "luks", "ours.luks"]);
    assert_eq!((checked.code, checked.stdout.contains("luks, 1048576 bytes")), (Some(63), true), "{checked:?}");
    for (options, said) in [
        ("encrypt.ivgen-hash-alg=sha256", "-o encrypt.ivgen-hash-alg: it is for ivgen-alg=essiv"),
        ("encrypt.ivgen-alg=essiv", "-o encrypt.cipher-mode: with ivgen-alg"),
    ] {
        let options = format!("encrypt.format=luks,{options}");
        image(&yard, ["create", "-f", "qcow2", "-o", &options, "--key-file", "key", "x.qcow2", "1M"])
            .failed(2, &[said]);
    }
    image(&yard, ["amend", "-f", "luks", "-o", "encrypt.state=active", "ours.luks"]).failed(2, &["it is state"]);
}

#[test]
fn an_image_is_named_by_json() {
    let yard = Yard::new();
    yard.random("disk.img", MIB, 4);
    qemu_img(&yard, "convert -f raw -O qcow2 disk.img disk.any");
    let name = r#"json:{"driver":"qcow2","file":{"driver":"file","filename":"disk.any"}}"#;
    image(&yard, ["compare", name, "disk.img"]).succeeded();
    image(&yard, ["check", name]).succeeded();
    image(&yard, ["info", r#"json:{"driver":"nbd","host":"h"}"#]).failed(2, &["nothing is known"]);
}

#[test]
fn what_makes_no_sense_is_said_with_its_names() {
    let yard = Yard::new();
    write_differences_of_vmdk(&yard);
    for (line, said) in [
        ("create -f vmdk -o subformat=monolithicFlat x.vmdk 1M", "monolithicSparse holds the same in one"),
        ("create -f qcow2 -o backing_file= x.qcow2 1M", "it is the name of a file"),
        (
            "create -f vpc -o no_such=1 x.vhd 1M",
            "the options of vpc images are size, preallocation, subformat, force_size",
        ),
        ("create -f raw -o compat6 x.img 1M", "raw images have no compat6"),
        ("rebase -u -b base.vmdk -F vmdk top.vmdk", "only qcow2 images are rebased"),
    ] {
        image(&yard, line.split(' ')).failed(2, &[said]);
    }
    image(&yard, ["create", "-b", "", "x.qcow2"]).failed(2, &["-b takes the name of a file"]);
}

/// What is qcow2 and called otherwise is no other format's image: only its name is.
#[test]
fn who_wants_a_qcow2_image_says_how_one_by_another_name_is_named() {
    let yard = Yard::new();
    qemu_img(&yard, "create -q -f qcow2 volume.snap 1M");
    for (line, status) in [
        ("rebase -b base.img -F raw volume.snap", 2),
        ("commit volume.snap", 2),
        ("snapshot -l volume.snap", 1),
        ("bitmap --add volume.snap one", 1),
        ("amend -o compat=0.10 volume.snap", 1),
    ] {
        image(&yard, line.split(' ')).failed(status, &["raw by its name, but begins like a qcow2 image: add -f qcow2"]);
    }
    image(&yard, ["snapshot", "-f", "qcow2", "-c", "one", "volume.snap"]).succeeded();
}

/// Where a disk ends within a cluster, its next bytes are in that one.
#[test]
fn a_disk_that_grows_within_a_cluster_has_storage_there_too() {
    let yard = Yard::new();
    yard.random("base.img", MIB, 3);
    for (create, has_place) in [
        ("create -q -o preallocation=metadata a.qcow2 1000K", true),
        ("create -q a.qcow2 1000K", true),
        ("create -q -b base.img -F raw a.qcow2 1000K", false),
    ] {
        for mode in ["falloc", "full"] {
            image(&yard, create.split(' ')).succeeded();
            write(&yard, "a.qcow2", "qcow2", "write -P 9 0 4K");
            qemu_img(&yard, "convert -O raw a.qcow2 wanted.img");
            File::options().write(true).open(yard.path("wanted.img")).unwrap().set_len(1016 << 10).unwrap();
            let before = allocated_bytes(&yard.path("a.qcow2"));
            image(&yard, ["resize", "-q", "--preallocation", mode, "--allow-dir", ".", "a.qcow2", "+16K"]).succeeded();
            let grown = allocated_bytes(&yard.path("a.qcow2")) - before;
            assert!(grown >= if has_place { 16 << 10 } else { 0 }, "{create} {mode}: {grown}");
            qemu_img(&yard, "check -q a.qcow2");
            qemu_img(&yard, "compare -q -f qcow2 -F raw a.qcow2 wanted.img");
        }
    }
}

fn write_differences_of_vmdk(yard: &Yard) {
    qemu_img(yard, "create -q -f vmdk base.vmdk 8M");
    qemu_img(yard, "create -q -f vmdk -F vmdk -b base.vmdk top.vmdk");
    write(yard, "base.vmdk", "vmdk", "write -P 1 0 64K");
}

#[test]
fn names_and_options_that_others_give_qemu_img_are_taken() {
    let yard = Yard::new();
    let raw = yard.random("base.img", MIB, 3);
    let version = image(&yard, ["--version"]).succeeded().stdout;
    assert!(version.contains(env!("CARGO_PKG_VERSION")), "{version}");
    image(&yard, ["create", "-q", "-f", "raw", "x.img", "1024.0"]).succeeded();
    assert_eq!(fs::metadata(yard.path("x.img")).unwrap().len(), 1024);
    for driver in ["host_device", "file"] {
        for line in [
            format!("create -q -f qcow2 -b base.img -F {driver} over.qcow2"),
            format!("create -q -f qcow2 -o backing_file=base.img,backing_fmt={driver} over.qcow2"),
            format!("rebase -q -u -b base.img -F {driver} over.qcow2"),
        ] {
            image(&yard, line.split(' ')).succeeded();
            let info = qemu_img(&yard, "info --output=json over.qcow2").json();
            assert_eq!(info["backing-filename-format"], "raw", "{line}");
            qemu_img(&yard, "compare -q -f qcow2 -F raw over.qcow2 base.img");
        }
    }
    for (line, name) in [("create -q -f vmdk -o zeroed_grain=on", "a.vmdk"), ("create -q -f vmdk", "b.vmdk")] {
        let begins = |outcome: Outcome| {
            outcome.succeeded();
            fs::read(yard.path(name)).unwrap()[..12].to_vec()
        };
        let words = format!("{line} {name} 4M");
        assert_eq!(begins(qemu_img(&yard, &words)), begins(image(&yard, words.split(' '))), "{line}");
    }
    image(&yard, ["convert", "-q", "base.img", "alone.qcow2"]).succeeded();
    let directory = raw.parent().unwrap().display();
    let alone = |name: &str| {
        let file = format!(r#"{{"driver":"file","filename":"{directory}/{name}"}}"#);
        format!(r#"json:{{"driver":"qcow2","file":{file},"backing":null}}"#)
    };
    image(&yard, ["compare", "-q", &alone("alone.qcow2"), "base.img"]).succeeded();
    let said = r#""backing": null hides what is behind an image"#;
    image(&yard, ["convert", &alone("over.qcow2"), "y.img"]).failed(2, &[said]);
    // Of a backing file, too, whoever wrote its name.
    for (name, status) in [("alone.qcow2", 0), ("over.qcow2", 1)] {
        let name = alone(name);
        qemu_img(&yard, "create -q -f qcow2 -u top.qcow2 1M");
        image(&yard, ["rebase", "-q", "-u", "-b", &name, "-F", "qcow2", "top.qcow2"]).succeeded();
        let compared = image(&yard, ["convert", "-q", "--allow-dir", ".", "top.qcow2", "z.img"]);
        assert_eq!(compared.code, Some(status), "{compared:?}");
        assert_eq!(compared.stderr.contains(said), status == 1, "{compared:?}");
    }
    let quoted = "json:{'driver':'raw','file':{'filename':'base.img'}}";
    image(&yard, ["info", quoted]).failed(2, &["whose strings are in double quotes"]);
    image(&yard, ["amend", "-o", "backing_file=x", "over.qcow2"]).failed(2, &["`blockyard image rebase`"]);
    // Whose backing file nobody knows the format of is said with what helps.
    qemu_img(&yard, "create -q -f qed -b alone.qcow2 -F qcow2 over.qed");
    fs::rename(yard.path("alone.qcow2"), yard.path("alone")).unwrap();
    let mut bytes = fs::read(yard.path("over.qed")).unwrap();
    let at = bytes.windows(11).position(|name| name == b"alone.qcow2").unwrap();
    bytes[60] = 5;
    bytes[at + 5..at + 11].fill(0);
    fs::write(yard.path("over.qed"), bytes).unwrap();
    let said = ["qemu-img rebase -u -f qed -b alone -F raw over.qed", ".qcow2 or .qed"];
    image(&yard, ["convert", "--allow-dir", ".", "over.qed", "y.img"]).failed(1, &said);
}
