//! Images that were cut off: what is missing is nobody's zeros.

use super::*;

const CLUSTER: u64 = 64 << 10;

/// Cuts so many bytes off the end of a file.
fn cut(yard: &Yard, name: &str, bytes: u64) -> u64 {
    let file = File::options().write(true).open(yard.path(name)).unwrap();
    let length = file.metadata().unwrap().len() - bytes;
    file.set_len(length).unwrap();
    length
}

/// No command makes zeros of what is missing of `name`, from `offset` of the disk on, and all say where that is.
fn refused(yard: &Yard, name: &str, offset: u64, said: &str) {
    let at = format!("at byte {offset}: ");
    for (status, words) in [
        (1, &["convert", "--allow-dir", ".", name, "none.img"][..]),
        (1, &["convert", "--allow-dir", ".", "-O", "qcow2", name, "none.img"]),
        (2, &["compare", "--allow-dir", ".", name, "disk.img"]),
        (1, &["dd", "--allow-dir", ".", &format!("if={name}"), "of=none.img", "bs=1M"]),
    ] {
        image(yard, words).failed(status, &[name, said, &at]);
        assert!(!yard.path("none.img").exists(), "{words:?}");
    }
}

#[test]
fn what_is_behind_the_end_of_an_image_is_missing() {
    let yard = Yard::new();
    yard.random("disk.img", 2 * MIB, 6);
    let disk = fs::read(yard.path("disk.img")).unwrap();
    qemu_img(&yard, "convert -f raw -O qcow2 disk.img cut.qcow2");
    qemu_img(&yard, "create -q -f qcow2 -b cut.qcow2 -F qcow2 over.qcow2");
    let whole = fs::read(yard.path("cut.qcow2")).unwrap();
    // A part of a cluster is missing: zeros, as it may be that nobody ever wrote there.
    let end = cut(&yard, "cut.qcow2", 5000);
    image(&yard, ["convert", "cut.qcow2", "part.img"]).succeeded();
    let zeros = [&disk[..disk.len() - 5000], &[0; 5000]].concat();
    assert!(fs::read(yard.path("part.img")).unwrap() == zeros, "the file ends at {end}");
    // A cluster and a part of one.
    let end = cut(&yard, "cut.qcow2", CLUSTER);
    let said =
        format!("the cluster at {} lies behind the file's end, which is at {end}", end.next_multiple_of(CLUSTER));
    refused(&yard, "cut.qcow2", 2 * MIB - CLUSTER, &said);
    refused(&yard, "over.qcow2", 2 * MIB - CLUSTER, &said);
    let saved = image(&yard, ["convert", "--salvage", "cut.qcow2", "saved.img"]).succeeded();
    let lost = format!("{CLUSTER} bytes at offset {} cannot be read, and are zeros now", 2 * MIB - CLUSTER);
    assert!(saved.stderr.contains(&lost), "{saved:?}");
    let mut copy = blockyard();
    copy.current_dir(yard.path("")).args(["copy", "--backend", "user", "cut.qcow2,ro", "none.img"]);
    run(&mut copy).failed(1, &[&said, &format!("cannot read cut.qcow2,ro at byte {}: ", 2 * MIB - CLUSTER)]);
    let unsafe_image = image(&yard, ["info", "--safety", "cut.qcow2"]).failed(1, &[]);
    assert!(unsafe_image.stdout.contains("is damaged: something at "), "{unsafe_image:?}");
    image(&yard, ["rebase", "-b", "", "--allow-dir", ".", "over.qcow2"]).failed(1, &["over.qcow2", &said]);
    // Who writes to it has what QEMU has, which leaves such images at a power cut; and hears of it, the last who can.
    let told = "note: cut.qcow2 was cut off, or a crash kept its end from being written: 64.00 KiB that";
    let (missing, grown) = (fs::read(yard.path("cut.qcow2")).unwrap(), ["resize", "cut.qcow2", "3M"]);
    for words in
        [&["commit", "--allow-dir", ".", "over.qcow2"][..], &grown, &["convert", "-n", "disk.img", "cut.qcow2"]]
    {
        fs::write(yard.path("cut.qcow2"), &missing).unwrap();
        let outcome = image(&yard, words).succeeded();
        assert_eq!(outcome.stderr.matches(told).count(), 1, "{words:?}: {outcome:?}");
    }
    let again = image(&yard, ["convert", "-n", "disk.img", "cut.qcow2"]).succeeded();
    assert!(!again.stderr.contains("note: cut.qcow2"), "{again:?}");
    qemu_img(&yard, "check -q cut.qcow2");
    qemu_img(&yard, "compare -q -f raw -F qcow2 disk.img cut.qcow2");
    // A cluster, and a table, far away.
    let number = |at: u64| u64::from_be_bytes(whole[at as usize..][..8].try_into().unwrap());
    let (l1, far) = (number(40), 1_u64 << 63 | 1 << 40);
    for (name, at, offset, said) in [
        ("far.qcow2", (number(l1) & !(1 << 63)) + 8, CLUSTER, "the cluster at 1099511627776 lies behind"),
        ("table.qcow2", l1, 0, "the L2 table at 1099511627776 lies behind"),
    ] {
        let mut bytes = whole.clone();
        bytes[at as usize..][..8].copy_from_slice(&far.to_be_bytes());
        fs::write(yard.path(name), bytes).unwrap();
        let outcome = image(&yard, ["convert", name, "none.img"]).failed(1, &[name, said]);
        assert!(offset == 0 || outcome.stderr.contains(&format!("at byte {offset}: ")), "{outcome:?}");
        let unsafe_image = image(&yard, ["info", "--safety", name]).failed(1, &[]);
        assert!(unsafe_image.stdout.contains("something at 1099511627776 lies behind the end"), "{unsafe_image:?}");
        let saved = image(&yard, ["convert", "--salvage", name, "saved.img"]).succeeded();
        assert!(saved.stderr.contains(&format!("bytes at offset {offset} cannot be read")), "{saved:?}");
    }
}

#[test]
fn what_is_behind_the_end_of_a_data_file_is_missing() {
    let yard = Yard::new();
    yard.random("disk.img", 2 * MIB, 7);
    qemu_img(&yard, "create -q -f qcow2 -o data_file=data.bin top.qcow2 2M");
    qemu_img(&yard, "convert -n -f raw -O qcow2 disk.img top.qcow2");
    let end = cut(&yard, "data.bin", CLUSTER + 5000);
    let said = format!(
        "the cluster of its data file at {} lies behind the file's end, which is at {end}",
        end.next_multiple_of(CLUSTER)
    );
    image(&yard, ["convert", "--allow-dir", ".", "top.qcow2", "none.img"])
        .failed(1, &["top.qcow2", &said, "at byte 2031616: "]);
    let saved = image(&yard, ["convert", "--salvage", "--allow-dir", ".", "top.qcow2", "saved.img"]).succeeded();
    assert!(saved.stderr.contains("65536 bytes at offset 2031616 cannot be read"), "{saved:?}");
}

/// What `check` does and says of an image that was cut off: it counts as qemu-img does, and leaves the file as it is.
fn stays_missing(yard: &Yard, name: &str, missing: u64) {
    let bytes = fs::read(yard.path(name)).unwrap();
    for repair in [&[][..], &["-r", "leaks"], &["-r", "all"]] {
        let words = ["check", "--json", "--allow-dir", "."].into_iter().chain(repair.iter().copied()).chain([name]);
        let found = image(yard, words).failed(2, &["`blockyard image check -r all --salvage` makes zeros of them"]);
        for count in ["missing", "corruptions"] {
            assert_eq!(found.json()[count], missing, "{name}: {found:?}");
        }
        assert!(fs::read(yard.path(name)).unwrap() == bytes, "{name}: {repair:?}");
    }
}

/// What each is afterwards, the disk and a snapshot if it has one, is what `convert --salvage` gets out of it before.
#[test]
fn what_is_missing_becomes_zeros_for_who_asks_for_it() {
    let yard = Yard::new();
    yard.random("disk.img", 2 * MIB, 8);
    fs::write(yard.path("base.img"), vec![7; 2 << 20]).unwrap();
    for (name, options, cut_clusters) in [
        ("plain.qcow2", "-o cluster_size=16k", 9),
        ("old.qcow2", "-o compat=0.10,cluster_size=16k", 9),
        ("packed.qcow2", "-c -o cluster_size=16k", 5),
        ("parts.qcow2", "-o extended_l2=on,cluster_size=16k", 9),
        ("over.qcow2", "-o cluster_size=16k -B base.img -F raw", 9),
        ("snapshot.qcow2", "-o cluster_size=16k", 4),
    ] {
        qemu_img(&yard, &format!("convert -f raw -O qcow2 {options} disk.img {name}"));
        let snapshot: &[&str] = if name == "snapshot.qcow2" { &["-l", "snapshot.name=one"] } else { &[] };
        if name == "snapshot.qcow2" {
            for (snapshot, write) in [("one", "write -P 5 1M 128k"), ("two", "write -P 6 1536k 128k")] {
                qemu_img(&yard, &format!("snapshot -c {snapshot} {name}"));
                run(Command::new("qemu-io").current_dir(yard.path("")).args(["-c", write, name])).succeeded();
            }
            // Of the first snapshot, whose table is its own, a cluster, too.
            let mut bytes = fs::read(yard.path(name)).unwrap();
            let number = |at: u64| u64::from_be_bytes(bytes[at as usize..][..8].try_into().unwrap());
            let l2 = (number(number(number(64))) & 0xff_ffff_ffff_fe00) as usize;
            bytes[l2 + 24..][..8].copy_from_slice(&(1_u64 << 40).to_be_bytes());
            fs::write(yard.path(name), bytes).unwrap();
        }
        cut(&yard, name, cut_clusters * (16 << 10));
        let mut theirs = Command::new("qemu-img");
        theirs.current_dir(yard.path("")).stdout(std::process::Stdio::piped());
        let theirs = run(theirs.args(["check", "--output=json", name])).json();
        let missing = theirs["corruptions"].as_u64().unwrap();
        assert!(missing >= 4, "{name}: {missing}");
        if name != "snapshot.qcow2" {
            stays_missing(&yard, name, missing);
        }
        let salvaged = |to: &str, more: &[&str]| {
            let words = ["convert", "--salvage", "-q", "--allow-dir", "."].iter().chain(more).chain([&name, &to]);
            image(&yard, words).succeeded();
            fs::read(yard.path(to)).unwrap()
        };
        let before = (salvaged("disk.out", &[]), salvaged("snapshot.out", snapshot));
        let saved = image(&yard, ["check", "-r", "all", "--salvage", "--json", name]).succeeded();
        let report = saved.json();
        assert!(report["zeroed-bytes"].as_u64().unwrap() > 0 && report.get("missing").is_none(), "{name}: {saved:?}");
        assert!(saved.stderr.contains(" behind the end of the file: they are zeros now"), "{name}: {saved:?}");
        qemu_img(&yard, &format!("check -q {name}"));
        for (more, wanted) in [(&[][..], &before.0), (snapshot, &before.1)] {
            let words = ["convert", "-q", "--allow-dir", "."].iter().chain(more).chain([&name, &"after.out"]);
            image(&yard, words).succeeded();
            assert!(fs::read(yard.path("after.out")).unwrap() == *wanted, "{name}");
        }
        qemu_img(&yard, &format!("compare -q -f qcow2 -F raw {name} disk.out"));
    }
}

#[test]
fn what_cannot_become_zeros_in_an_image_is_left_and_said() {
    let yard = Yard::new();
    yard.random("disk.img", 2 * MIB, 9);
    fs::write(yard.path("base.img"), vec![7; 2 << 20]).unwrap();
    qemu_img(&yard, "convert -f raw -O qcow2 disk.img table.qcow2");
    qemu_img(&yard, "convert -f raw -O qcow2 -o compat=0.10 -B base.img -F raw disk.img old.qcow2");
    qemu_img(&yard, "rebase -q -u -f qcow2 -b base.img -F raw table.qcow2");
    // Over a backing file: a table, and a cluster of an image that cannot say zeros.
    let bytes = fs::read(yard.path("table.qcow2")).unwrap();
    let l1 = u64::from_be_bytes(bytes[40..48].try_into().unwrap());
    let file = File::options().write(true).open(yard.path("table.qcow2")).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &(1_u64 << 40).to_be_bytes(), l1).unwrap();
    cut(&yard, "old.qcow2", 3 * CLUSTER);
    for name in ["table.qcow2", "old.qcow2"] {
        let bytes = fs::read(yard.path(name)).unwrap();
        let said = "the image cannot say zeros instead: `blockyard image convert --salvage` makes a copy that does";
        image(&yard, ["check", "-r", "all", "--salvage", "--allow-dir", ".", name]).failed(2, &[said]);
        assert!(fs::read(yard.path(name)).unwrap() == bytes, "{name}");
    }
    for (name, words) in [("old.qcow2", &["-r", "leaks"][..]), ("disk.img", &["-r", "all"])] {
        let words = ["check", "--salvage"].iter().chain(words).chain([&name]);
        image(&yard, words).failed(2, &["--salvage goes with -r all, and is for qcow2 images"]);
    }
}

#[test]
fn a_data_file_that_was_cut_off_is_found_and_made_whole_for_who_asks_for_it() {
    let yard = Yard::new();
    yard.random("disk.img", 2 * MIB, 7);
    for options in ["", ",data_file_raw=on", ",extended_l2=on"] {
        qemu_img(&yard, &format!("create -q -f qcow2 -o data_file=data.bin{options} top.qcow2 2M"));
        qemu_img(&yard, "convert -n -f raw -O qcow2 disk.img top.qcow2");
        let mut zeros = Command::new("qemu-io");
        zeros.current_dir(yard.path("")).args(["-c", "write -z 1984k 64k", "top.qcow2"]);
        run(&mut zeros).succeeded();
        cut(&yard, "data.bin", 3 * CLUSTER + 5000);
        // Three begin behind the end; of the last of them, zeros are said that no file need have. Not so of a raw one,
        // which QEMU lets lack them all the same.
        let bytes = fs::read(yard.path("top.qcow2")).unwrap();
        image(&yard, ["convert", "--salvage", "-q", "--allow-dir", ".", "top.qcow2", "saved.img"]).succeeded();
        stays_missing(&yard, "top.qcow2", 2);
        let unseen = image(&yard, ["check", "top.qcow2"]).succeeded().stderr;
        assert!(unseen.contains("note: where its data file ends is not looked at: top.qcow2 refers to "), "{unseen}");
        image(&yard, ["check", "-r", "all", "--salvage", "top.qcow2"]).failed(1, &["--allow-dir"]);
        let saved = image(&yard, ["check", "-r", "all", "--salvage", "--json", "--allow-dir", ".", "top.qcow2"]);
        let saved = saved.succeeded();
        assert_eq!(saved.json()["zeroed-bytes"], 2 * CLUSTER, "{saved:?}");
        let said = "131072 bytes at 0x1d0000 of the disk, behind the end of the data file: they are zeros now";
        assert!(saved.stderr.contains(said), "{saved:?}");
        assert!(fs::read(yard.path("top.qcow2")).unwrap() == bytes, "{options}");
        image(&yard, ["check", "--allow-dir", ".", "top.qcow2"]).succeeded();
        image(&yard, ["convert", "-q", "--allow-dir", ".", "top.qcow2", "after.img"]).succeeded();
        assert!(same(&yard.path("after.img"), &yard.path("saved.img")), "{options}");
        qemu_img(&yard, "compare -q -f qcow2 -F raw top.qcow2 after.img");
        if options.contains("raw") {
            assert!(same(&yard.path("data.bin"), &yard.path("after.img")));
        }
        fs::remove_file(yard.path("data.bin")).unwrap();
        image(&yard, ["check", "--allow-dir", ".", "top.qcow2"]).failed(1, &["data.bin, which cannot be opened"]);
    }
}

/// What a file is made longer by is no cluster of zeros where it is encrypted.
#[test]
fn an_encrypted_data_file_that_was_cut_off_shows_zeros_for_who_asks_for_it() {
    let yard = Yard::new();
    super::encryption::key(&yard, "key", 0o600);
    yard.random("disk.img", 2 * MIB, 7);
    let made = "convert -q -O qcow2 -o data_file=data.bin,encrypt.format=luks,encrypt.iter-time=10 --key-file key";
    image(&yard, made.split(' ').chain(["disk.img", "top.qcow2"])).succeeded();
    cut(&yard, "data.bin", 3 * CLUSTER + 5000);
    let with_key = |words: &[&str], to: &str| {
        let words = ["convert", "-q", "--allow-dir", "."].iter().chain(words);
        image(&yard, words.chain(&["top.qcow2,key-file=key", to])).succeeded();
        fs::read(yard.path(to)).unwrap()
    };
    let before = with_key(&["--salvage"], "before.img");
    let disk = fs::read(yard.path("disk.img")).unwrap();
    let whole = (2 * MIB - 4 * CLUSTER) as usize;
    assert!(before[..whole] == disk[..whole] && before[whole + CLUSTER as usize..].iter().all(|&byte| byte == 0));
    let saved = image(&yard, ["check", "-r", "all", "--salvage", "--json", "--allow-dir", ".", "top.qcow2"]);
    let saved = saved.succeeded();
    assert_eq!(saved.json()["zeroed-bytes"], 3 * CLUSTER, "{saved:?}");
    image(&yard, ["check", "--allow-dir", ".", "top.qcow2"]).succeeded();
    assert!(with_key(&[], "after.img") == before);
}

#[test]
fn a_table_of_snapshots_that_makes_no_sense_is_unsafe() {
    let yard = Yard::new();
    qemu_img(&yard, "create -q -f qcow2 good.qcow2 1M");
    let good = fs::read(yard.path("good.qcow2")).unwrap();
    for (at, bytes) in [(60, &[255; 4][..]), (60, &[0, 0, 0, 1, 64, 0, 0, 0, 0, 0, 0, 0])] {
        let mut spoiled = good.clone();
        spoiled[at..at + bytes.len()].copy_from_slice(bytes);
        fs::write(yard.path("bad.qcow2"), spoiled).unwrap();
        let info = image(&yard, ["info", "--safety", "bad.qcow2"]).failed(1, &[]);
        assert!(info.stdout.contains("is damaged: the snapshot table "), "{info:?}");
    }
}

#[test]
fn what_is_missing_is_named_with_the_image_that_refers_to_it() {
    let yard = Yard::new();
    qemu_img(&yard, "create -q -f qcow2 -u -b nope.raw -F raw mid.qcow2 1M");
    qemu_img(&yard, "create -q -f qcow2 -u -b mid.qcow2 -F qcow2 top.qcow2 1M");
    qemu_img(&yard, "create -q -f qcow2 -o data_file=data.bin data.qcow2 1M");
    qemu_img(&yard, "create -q -f vmdk -o subformat=monolithicFlat flat.vmdk 1M");
    ["data.bin", "flat-flat.vmdk"].iter().for_each(|name| fs::remove_file(yard.path(name)).unwrap());
    for (name, said) in [
        ("top.qcow2", "mid.qcow2 refers to nope.raw, which cannot be opened: No such file"),
        ("data.qcow2", "data.qcow2 refers to data.bin, which cannot be opened: No such file"),
        ("flat.vmdk", "flat.vmdk refers to flat-flat.vmdk, which cannot be opened: No such file"),
    ] {
        image(&yard, ["convert", "--allow-dir", ".", name, "none.img"]).failed(1, &[said]);
        image(&yard, ["map", "--allow-dir", ".", name]).failed(1, &[said]);
    }
}
