//! What is read of images that are damaged, and of those with clusters that have a place and no data.

use super::*;

/// Puts an entry into a table of an image's file.
fn put(bytes: &mut [u8], at: u64, entry: u64) {
    bytes[at as usize..][..8].copy_from_slice(&entry.to_be_bytes());
}

fn number(bytes: &[u8], at: u64) -> u64 {
    u64::from_be_bytes(bytes[at as usize..][..8].try_into().unwrap())
}

/// A qcow2 image of 4 MiB, as bytes, and where its only L2 table lies. Its disk is `disk.img`.
fn good(yard: &Yard) -> (Vec<u8>, u64) {
    yard.random("disk.img", 4 * MIB, 5);
    qemu_img(yard, "convert -f raw -O qcow2 disk.img good.qcow2");
    let bytes = fs::read(yard.path("good.qcow2")).unwrap();
    let l2 = number(&bytes, number(&bytes, 40)) & !(1 << 63);
    (bytes, l2)
}

#[test]
fn an_image_that_is_marked_corrupt_is_read_and_not_written_to() {
    let yard = Yard::new();
    let (mut bytes, _) = good(&yard);
    bytes[79] |= 2;
    fs::write(yard.path("marked.qcow2"), &bytes).unwrap();
    qemu_img(&yard, "create -q -f qcow2 -b marked.qcow2 -F qcow2 over.qcow2");
    let warned = |outcome: Outcome| {
        let outcome = outcome.succeeded();
        let warning = "note: marked.qcow2 is marked corrupt: what can be read of it is, and may be wrong; \
                       `blockyard image check -r all` repairs what can be";
        assert!(outcome.stderr.lines().filter(|line| line.ends_with(warning)).count() == 1, "{outcome:?}");
        outcome
    };
    for name in ["marked.qcow2", "over.qcow2"] {
        warned(image(&yard, ["convert", "--allow-dir", ".", name, "out.img"]));
        assert!(same(&yard.path("out.img"), &yard.path("disk.img")), "{name}");
        warned(image(&yard, ["compare", "--allow-dir", ".", name, "disk.img"]));
        warned(image(&yard, ["map", "--json", "--allow-dir", ".", name]));
        warned(image(&yard, ["measure", "--allow-dir", ".", name]));
    }
    warned(image(&yard, ["dd", "if=marked.qcow2", "of=first.img", "bs=1M", "count=1"]));
    let info = warned(image(&yard, ["info", "--json", "marked.qcow2"])).json();
    assert!(info["format-specific"]["data"]["corrupt"] == true && info.get("unusable").is_none(), "{info}");
    for words in [
        &["convert", "-n", "disk.img", "marked.qcow2"][..],
        &["resize", "marked.qcow2", "8M"],
        &["snapshot", "-c", "one", "marked.qcow2"],
        &["rebase", "-u", "-b", "", "marked.qcow2"],
        &["amend", "-o", "lazy_refcounts=on", "marked.qcow2"],
        &["commit", "--allow-dir", ".", "over.qcow2"],
    ] {
        image(&yard, words).failed(1, &["marked.qcow2 is marked corrupt", "check -r all"]);
    }
    assert!(fs::read(yard.path("marked.qcow2")).unwrap() == bytes, "it has changed");
    image(&yard, ["check", "-r", "all", "marked.qcow2"]).succeeded();
    let said = image(&yard, ["convert", "-n", "disk.img", "marked.qcow2"]).succeeded().stderr;
    assert_eq!(said, "");
}

#[test]
fn what_can_be_read_of_a_damaged_image_is_saved_as_by_qemu_img() {
    let yard = Yard::new();
    let (good, l2) = good(&yard);
    let copied = 1_u64 << 63;
    // A cluster, and a table.
    for (name, at, entry, lost) in [
        ("cluster.qcow2", l2 + 8 * 21, copied | (l2 + 512), (21 << 16, 1 << 16)),
        ("table.qcow2", number(&good, 40), copied | (l2 + 512), (0, 4 * MIB)),
    ] {
        let mut bytes = good.clone();
        put(&mut bytes, at, entry);
        fs::write(yard.path(name), bytes).unwrap();
        let (offset, length) = lost;
        let refused = image(&yard, ["convert", name, "none.img"]);
        refused.failed(1, &[name, if offset > 0 { "at byte 1376256: " } else { "the L2 table at 262656 " }]);
        assert!(!yard.path("none.img").exists());
        let compared = image(&yard, ["compare", name, "disk.img"]);
        compared.failed(2, &[name, if offset > 0 { "the first disk at byte 1376256: " } else { "at 262656 " }]);
        qemu_img(&yard, &format!("convert --salvage -q -f qcow2 -O raw {name} theirs.img"));
        let saved = image(&yard, ["convert", "--salvage", "--digest", name, "ours.img"]).succeeded();
        assert!(same(&yard.path("ours.img"), &yard.path("theirs.img")), "{name}");
        let wanted = format!("warning: {name}: {length} bytes at offset {offset} cannot be read, and are zeros now: ");
        assert!(saved.stderr.contains(&wanted), "{saved:?}");
        let digest = tool(&yard, "coreutils", "sha256sum ours.img").stdout;
        assert!(saved.stdout.contains(digest.split(' ').next().unwrap()), "{saved:?}");
        let quiet = image(&yard, ["convert", "--salvage", "-q", "-O", "qcow2", name, "ours.qcow2"]).succeeded();
        assert!(!quiet.stderr.contains("warning"), "{quiet:?}");
        qemu_img(&yard, "compare -q -f qcow2 -F raw ours.qcow2 theirs.img");
    }
    image(&yard, ["convert", "--salvage", "mem:1M", "ours.img"]).failed(2, &["--salvage is for images and files"]);
}

/// What `qemu-img map` and ours say, without what only one of them says.
fn maps(yard: &Yard, format: &str, name: &str) -> [serde_json::Value; 2] {
    let mut ours = image(yard, ["map", "--json", "-f", format, "--allow-dir", ".", name]).succeeded().json();
    for run in ours.as_array_mut().unwrap() {
        run.as_object_mut().unwrap().remove("compressed");
    }
    [ours, qemu_img(yard, &format!("map --output=json -f {format} {name}")).json()]
}

#[test]
fn holes_of_a_file_below_its_clusters_are_zeros_as_for_qemu_img() {
    let yard = Yard::new();
    for (format, name, options) in [
        ("qcow2", "disk.qcow2", "preallocation=metadata"),
        ("qcow2", "small.qcow2", "preallocation=metadata,cluster_size=4096"),
        ("qcow2", "extended.qcow2", "preallocation=metadata,extended_l2=on"),
        ("vmdk", "flat.vmdk", "subformat=monolithicFlat"),
        ("vpc", "fixed.vhd", "subformat=fixed,force_size=on"),
    ] {
        qemu_img(&yard, &format!("create -q -f {format} -o {options} {name} 256M"));
        let mut io = Command::new("qemu-io");
        io.current_dir(yard.path("")).args(["-f", format, "-c", "write -P 7 100M 1M", name]);
        run(&mut io).succeeded();
        let allow = ["--allow-dir", "."];
        let convert = ["convert", "-q", "-f", format, "-O", "raw"];
        image(&yard, convert.iter().chain(&allow).chain(&[name, "ours.img"])).succeeded();
        assert!(allocated_bytes(&yard.path("ours.img")) <= 2 * MIB, "{name}");
        qemu_img(&yard, &format!("compare -q -f {format} -F raw {name} ours.img"));
        let measure = ["measure", "--json", "-f", format, "-O", "qcow2"];
        let ours = image(&yard, measure.iter().chain(&allow).chain(&[name])).succeeded().json();
        let theirs = qemu_img(&yard, &format!("measure --output=json -f {format} -O qcow2 {name}")).json();
        assert_eq!(ours["required"], theirs["required"], "{name}");
        // Of parts of a cluster that are not there yet, qemu-img says where they would be; of a VHD, where there are
        // holes.
        if !matches!(name, "extended.qcow2" | "fixed.vhd") {
            let [ours, theirs] = maps(&yard, format, name);
            assert_eq!(ours, theirs, "{name}");
        }
    }
    let human = image(&yard, ["map", "disk.qcow2"]).succeeded().stdout;
    assert_eq!(human.lines().count(), 2, "{human}");
    // Of what is encrypted, a hole is noise.
    encryption::key(&yard, "key", 0o600);
    let raw = yard.random("random.img", MIB, 6);
    let options = "encrypt.format=luks,encrypt.iter-time=10";
    image(&yard, ["convert", "-q", "-o", options, "--key-file", "key", "random.img", "e.qcow2"]).succeeded();
    let hole = fs::metadata(yard.path("e.qcow2")).unwrap().len() / 65536 * 65536 - (512 << 10);
    tool(&yard, "util-linux", &format!("fallocate -p -o {hole} -l 65536 e.qcow2"));
    image(&yard, ["convert", "-q", "e.qcow2,key-file=key", "ours.img"]).succeeded();
    let from = "--object secret,id=k,file=key --image-opts driver=qcow2,encrypt.key-secret=k,file.filename=e.qcow2";
    qemu_img(&yard, &format!("convert -q {from} -O raw theirs.img"));
    assert!(same(&yard.path("ours.img"), &yard.path("theirs.img")));
    assert!(!same(&yard.path("ours.img"), &raw), "there was nothing");
    let ours = fs::read(yard.path("ours.img")).unwrap();
    assert!(ours.chunks(65536).all(|cluster| cluster.iter().any(|byte| *byte != 0)));
}

/// An entry that leads out of the file, and says that it has its cluster alone, is wrong twice.
#[test]
fn marks_of_what_lies_behind_the_file_count_as_with_qemu_img() {
    let yard = Yard::new();
    let (bytes, l2) = good(&yard);
    let l1 = number(&bytes, 40);
    for (table, place) in [(l2, 1 << 30), (l2, 1 << 50), (l1, 1 << 30)] {
        for mark in [0, 1 << 63] {
            let mut bytes = bytes.clone();
            put(&mut bytes, table, place | mark);
            fs::write(yard.path("bad.qcow2"), bytes).unwrap();
            let ours = image(&yard, ["check", "--json", "bad.qcow2"]).json();
            let mut theirs = Command::new("qemu-img");
            theirs.current_dir(yard.path("")).stdout(std::process::Stdio::piped());
            let theirs = run(theirs.args(["check", "--output=json", "bad.qcow2"])).json();
            for what in ["corruptions", "leaks"] {
                assert_eq!(ours[what], theirs[what], "{table:#x} {place:#x} {mark:#x}: {what}");
            }
        }
    }
    // What was cut off has a refcount of one still, and a repair leaves its marks.
    let cut = &bytes[..bytes.len() - (2 << 16)];
    fs::write(yard.path("cut.qcow2"), cut).unwrap();
    let mut theirs = Command::new("qemu-img");
    theirs.current_dir(yard.path("")).stdout(std::process::Stdio::piped());
    let theirs = run(theirs.args(["check", "--output=json", "cut.qcow2"])).json();
    let ours = image(&yard, ["check", "-r", "all", "--json", "cut.qcow2"]).json();
    assert_eq!(ours["corruptions"], theirs["corruptions"], "{ours}");
    assert!(fs::read(yard.path("cut.qcow2")).unwrap() == cut);
}

/// A request that fails is known by a number; the command says why, in the same sentence.
#[test]
fn why_a_disk_cannot_be_read_is_one_sentence() {
    let yard = Yard::new();
    let (mut bytes, l2) = good(&yard);
    put(&mut bytes, l2 + 8 * 3, 1 << 63 | 1 << 40);
    fs::write(yard.path("bad.qcow2"), &bytes).unwrap();
    let behind = "the cluster at 1099511627776 lies behind the file's end";
    qemu_img(&yard, "convert -f raw -O vmdk disk.img bad.vmdk");
    let mut bytes = fs::read(yard.path("bad.vmdk")).unwrap();
    for field in [48, 56] {
        let number = |bytes: &[u8], at: usize| u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize * 512;
        let table = number(&bytes, number(&bytes, field));
        bytes[table + 12..table + 16].copy_from_slice(&u32::MAX.to_le_bytes());
    }
    fs::write(yard.path("bad.vmdk"), &bytes).unwrap();
    let lines = ["# Disk DescriptorFile", "version=1", "CID=1", "parentCID=ffffffff", "createType=\"monolithicFlat\""];
    // One part, as of several that threads come to the first is said.
    let extents =
        ["RW 384 FLAT \"disk.img\" 0", "NOACCESS 128 FLAT \"disk.img\" 384", "RW 7680 FLAT \"disk.img\" 512", ""];
    fs::write(yard.path("closed.vmdk"), [&lines[..], &extents].concat().join("\n")).unwrap();
    let forbidden = "its descriptor lets nobody see what lies at 196608 of its disk (NOACCESS)";
    for (name, why) in [
        ("bad.qcow2", behind),
        ("bad.vmdk", "of the block at 196608 of its disk, it reaches behind the end of the file"),
        ("closed.vmdk", forbidden),
    ] {
        let input = format!("if={name}");
        for words in [
            &["image", "convert", name, "out.img"][..],
            &["image", "convert", "-O", "qcow2", name, "out.img"],
            &["image", "convert", "-n", name, "mem:4M"],
            &["image", "compare", name, "disk.img"],
            &["image", "dd", "bs=1M", &input, "of=out.img"],
            &["image", "bench", "-q", "-c", "64", "-s", "64K", name],
            &["copy", &format!("{name},ro"), "out.img"],
        ] {
            let mut command = blockyard();
            let done = run(command.current_dir(yard.path("")).args(words).args(["--allow-dir", "."]));
            let said = done.failed(if words[1] == "compare" { 2 } else { 1 }, &[name, why]).stderr;
            assert!(said.lines().count() == 1 && !said.contains("os error"), "{words:?}: {said}");
        }
    }
}
