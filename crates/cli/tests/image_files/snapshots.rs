//! `image snapshot`, `convert -l` and `,snapshot-name=`, beside qemu-img.

use super::*;

#[test]
fn snapshots_are_made_listed_applied_and_deleted_as_by_qemu_img() {
    let yard = Yard::new();
    qemu_img(&yard, "create -q -f qcow2 vm.qcow2 8M");
    let contents = |seed: u64| {
        yard.random("data.img", 8 * MIB, seed);
        image(&yard, ["convert", "-q", "-n", "data.img", "vm.qcow2"]).succeeded();
        fs::read(yard.path("data.img")).unwrap()
    };
    let first = contents(1);
    let said = image(&yard, ["snapshot", "-c", "first one", "vm.qcow2"]).succeeded().stdout;
    assert_eq!(said, "vm.qcow2: snapshot first one made\n");
    let second = contents(2);
    qemu_img(&yard, "snapshot -c second vm.qcow2");
    let third = contents(3);
    qemu_img(&yard, "check -q vm.qcow2");
    let theirs = qemu_img(&yard, "info --output=json vm.qcow2").json();
    let ours = image(&yard, ["snapshot", "--json", "vm.qcow2"]).succeeded().json();
    assert_eq!(ours.as_array().unwrap().len(), 2);
    for (ours, theirs) in ours.as_array().unwrap().iter().zip(theirs["snapshots"].as_array().unwrap()) {
        for key in ["id", "name", "date-sec", "vm-state-size"] {
            assert_eq!(ours[key], theirs[key], "{key}");
        }
    }
    let listed = image(&yard, ["snapshot", "-l", "vm.qcow2"]).succeeded().stdout;
    let lines: Vec<_> = listed.lines().collect();
    assert!(
        lines.len() == 4 && lines[1].starts_with("ID   TAG ") && lines[2].starts_with("1    first one"),
        "{listed}"
    );
    // Who leaves out two lines in front finds the first.
    let theirs = qemu_img(&yard, "snapshot -l vm.qcow2").stdout;
    assert_eq!((theirs.lines().next(), theirs.lines().count()), (Some(lines[0]), lines.len()), "{theirs}");
    // By name, by id, and as qemu-img has it.
    for (which, wanted) in [("first one", &first), ("2", &second), ("snapshot.name=second", &second)] {
        image(&yard, ["convert", "-q", "-l", which, "vm.qcow2", "out.img"]).succeeded();
        assert!(fs::read(yard.path("out.img")).unwrap() == *wanted, "{which}");
    }
    image(&yard, ["convert", "-q", "vm.qcow2,snapshot-name=first one", "out.img"]).succeeded();
    assert!(fs::read(yard.path("out.img")).unwrap() == first);
    image(&yard, ["snapshot", "-a", "1", "vm.qcow2"]).succeeded();
    qemu_img(&yard, "check -q vm.qcow2");
    image(&yard, ["convert", "-q", "vm.qcow2", "out.img"]).succeeded();
    assert!(fs::read(yard.path("out.img")).unwrap() == first && first != third);
    assert_eq!(image(&yard, ["snapshot", "-q", "-d", "first one", "vm.qcow2"]).succeeded().stdout, "");
    image(&yard, ["snapshot", "-d", "second", "vm.qcow2"]).succeeded();
    let listed = image(&yard, ["snapshot", "vm.qcow2"]).succeeded();
    assert_eq!((&*listed.stdout, &*listed.stderr), ("", "blockyard: vm.qcow2 has no snapshots\n"));
    assert_eq!(qemu_img(&yard, "snapshot -l vm.qcow2").stdout, "");
    qemu_img(&yard, "check -q vm.qcow2");
    image(&yard, ["convert", "-q", "vm.qcow2", "out.img"]).succeeded();
    assert!(fs::read(yard.path("out.img")).unwrap() == first);
}

/// Where one's name is another's id, each is what was said, as by qemu-img.
#[test]
fn a_name_that_is_another_ones_id_is_a_name() {
    let yard = Yard::new();
    qemu_img(&yard, "create -q -f qcow2 vm.qcow2 1M");
    let contents = ["old", "2", "1"].map(|name| {
        yard.random("data.img", MIB, name.len() as u64 + u64::from(name.as_bytes()[0]));
        image(&yard, ["convert", "-q", "-n", "data.img", "vm.qcow2"]).succeeded();
        image(&yard, ["snapshot", "-q", "-c", name, "vm.qcow2"]).succeeded();
        fs::read(yard.path("data.img")).unwrap()
    });
    // The first has the id 1.
    for (which, wanted) in [("1", 0), ("2", 1), ("3", 2), ("snapshot.name=1", 2), ("snapshot.id=1", 0), ("old", 0)] {
        image(&yard, ["convert", "-q", "-l", which, "vm.qcow2", "ours.img"]).succeeded();
        assert!(fs::read(yard.path("ours.img")).unwrap() == contents[wanted], "{which}");
        qemu_img(&yard, &format!("convert -f qcow2 -O raw -l {which} vm.qcow2 theirs.img"));
        assert!(same(&yard.path("ours.img"), &yard.path("theirs.img")), "{which}");
    }
    for which in ["snapshot.id=old", "snapshot.name=3"] {
        image(&yard, ["convert", "-q", "-l", which, "vm.qcow2", "ours.img"]).failed(1, &["has no snapshot"]);
    }
    fs::copy(yard.path("vm.qcow2"), yard.path("theirs.qcow2")).unwrap();
    image(&yard, ["snapshot", "-d", "3", "vm.qcow2"]).failed(1, &["has no snapshot \"3\""]);
    image(&yard, ["snapshot", "-d", "1", "vm.qcow2"]).succeeded();
    qemu_img(&yard, "snapshot -d 1 theirs.qcow2");
    let names = |image: &str| {
        let snapshots = qemu_img(&yard, &format!("info --output=json {image}")).json();
        let of = |snapshot: &serde_json::Value| snapshot["name"].as_str().unwrap().to_owned();
        snapshots["snapshots"].as_array().unwrap().iter().map(of).collect::<Vec<_>>()
    };
    assert_eq!(names("vm.qcow2"), ["old", "2"]);
    assert_eq!(names("vm.qcow2"), names("theirs.qcow2"));
    image(&yard, ["snapshot", "-a", "1", "vm.qcow2"]).succeeded();
    image(&yard, ["convert", "-q", "vm.qcow2", "ours.img"]).succeeded();
    assert!(fs::read(yard.path("ours.img")).unwrap() == contents[0]);
}

#[test]
fn a_snapshot_that_cannot_be_had_is_said() {
    let yard = Yard::new();
    qemu_img(&yard, "create -q -f qcow2 vm.qcow2 1M");
    yard.random("disk.img", MIB, 1);
    let before = fs::read(yard.path("vm.qcow2")).unwrap();
    for (arguments, wanted) in [
        (&["snapshot", "-a", "none", "vm.qcow2"][..], "vm.qcow2 has no snapshot \"none\""),
        (&["snapshot", "-d", "none", "vm.qcow2"], "vm.qcow2 has no snapshot \"none\""),
        (&["snapshot", "-c", "", "vm.qcow2"], "a snapshot's name has 1 to 1023 bytes"),
        (&["snapshot", "-c", "one", "disk.img"], "disk.img: snapshots are inside of qcow2 images, and this is raw"),
        (&["convert", "-l", "none", "vm.qcow2", "out.img"], "vm.qcow2 has no snapshot \"none\""),
        (&["convert", "-l", "none", "disk.img", "out.img"], "snapshots are inside of qcow2 images, and this is raw"),
    ] {
        image(&yard, arguments).failed(1, &[wanted]);
    }
    image(&yard, ["snapshot", "-c", "one", "-d", "two", "vm.qcow2"]).failed(2, &["cannot be used with"]);
    assert!(fs::read(yard.path("vm.qcow2")).unwrap() == before && !yard.path("out.img").exists());
}

/// A snapshot that shows what is behind it, where that changes, is in the way; one that holds it all is not.
#[test]
fn snapshots_show_what_they_showed() {
    let yard = Yard::new();
    yard.random("base.img", 2 * MIB, 1);
    yard.random("new.img", MIB, 2);
    let make = || {
        qemu_img(&yard, "create -q -f qcow2 -b base.img -F raw top.qcow2 2M");
        image(&yard, "convert -q -n new.img top.qcow2 --allow-dir .".split(' ')).succeeded();
        qemu_img(&yard, "snapshot -c whole top.qcow2");
    };
    let held = |what: &str| {
        qemu_img(&yard, &format!("convert -f qcow2 -O raw {what}top.qcow2 held"));
        fs::read(yard.path("held")).unwrap()
    };
    make();
    let (disk, whole) = (held(""), held("-l whole "));
    assert!(disk == whole);
    image(&yard, "commit -q --allow-dir . top.qcow2".split(' ')).succeeded();
    qemu_img(&yard, "check -q top.qcow2");
    assert!(held("") == disk && held("-l whole ") == whole && fs::read(yard.path("base.img")).unwrap() == disk);
    // Now the disk holds nothing, and a snapshot of it nothing either.
    qemu_img(&yard, "snapshot -c empty top.qcow2");
    image(&yard, "convert -q -n base.img top.qcow2 --allow-dir .".split(' ')).succeeded();
    fs::write(yard.path("same.img"), &disk).unwrap();
    let before = fs::read(yard.path("top.qcow2")).unwrap();
    for (line, why) in [
        ("commit --allow-dir . top.qcow2", "snapshot \"whole\" shows what is behind it"),
        ("rebase -b new.img -F raw --allow-dir . top.qcow2", "snapshot \"whole\" shows what is behind it"),
        ("rebase -b  --allow-dir . top.qcow2", "snapshot \"whole\" shows what is behind it"),
    ] {
        image(&yard, line.split(' ')).failed(1, &[why, "image snapshot -d"]);
        assert!(fs::read(yard.path("top.qcow2")).unwrap() == before, "{line}");
    }
    image(&yard, "rebase -q -b same.img -F raw --allow-dir . top.qcow2".split(' ')).succeeded();
    assert!(held("") == disk && held("-l whole ") == whole && held("-l empty ") == disk);
    qemu_img(&yard, "snapshot -d empty top.qcow2");
    image(&yard, "commit -q -d --allow-dir . top.qcow2".split(' ')).failed(1, &["snapshot \"whole\" shows"]);
}

/// An L1 table may have more clusters than a block of refcounts counts.
#[test]
fn tables_may_be_longer_than_what_a_block_of_refcounts_counts() {
    let yard = Yard::new();
    for (number, options) in ["refcount_bits=64", "refcount_bits=16"].into_iter().enumerate() {
        let name = format!("{number}.qcow2");
        let create = format!("create -q -f qcow2 -o cluster_size=512,{options} {name} 1G");
        image(&yard, create.split(' ')).succeeded();
        for line in [format!("snapshot -c one {name}"), format!("resize -q {name} 2G"), format!("check -q {name}")] {
            image(&yard, line.split(' ')).succeeded();
        }
        qemu_img(&yard, &format!("check -q {name}"));
        assert!(yard.path(&name).metadata().unwrap().len() < 8 * MIB);
    }
}

/// Names of 64 KiB that lie in a hole of the file cost nothing there: of each 1023 bytes are read.
#[test]
fn of_long_names_in_a_hole_the_beginning_is_read() {
    const SNAPSHOTS: u32 = 3;
    let yard = Yard::new();
    qemu_img(&yard, "create -q -f qcow2 long.qcow2 1M");
    let mut bytes = fs::read(yard.path("long.qcow2")).unwrap();
    let l1: [u8; 8] = bytes[40..48].try_into().unwrap();
    let table = (bytes.len() as u64).next_multiple_of(65536);
    bytes[60..64].copy_from_slice(&SNAPSHOTS.to_be_bytes());
    bytes[64..72].copy_from_slice(&table.to_be_bytes());
    fs::write(yard.path("long.qcow2"), &bytes).unwrap();
    let file = File::options().write(true).open(yard.path("long.qcow2")).unwrap();
    let entry_bytes = (40 + 2 * 65535_u64).next_multiple_of(8);
    for index in 0..u64::from(SNAPSHOTS) {
        let entry = [&l1[..], &1_u32.to_be_bytes(), &[255; 4], &[0; 24]].concat();
        std::os::unix::fs::FileExt::write_all_at(&file, &entry, table + index * entry_bytes).unwrap();
    }
    file.set_len(table + u64::from(SNAPSHOTS) * entry_bytes).unwrap();
    let info = image(&yard, ["info", "--json", "long.qcow2"]).succeeded().json();
    let listed = info["snapshots"].as_array().unwrap();
    assert_eq!(listed.len(), SNAPSHOTS as usize);
    for snapshot in listed {
        let lengths = ["id", "name"].map(|key| snapshot[key].as_str().unwrap().len());
        assert_eq!(lengths, [1023, 1023]);
    }
    image(&yard, ["snapshot", "-l", "long.qcow2"]).failed(1, &["long.qcow2", "a snapshot says too much of itself"]);
}

/// Whichever step fails: what is said to have happened has, and what was not done is not there.
#[test]
fn a_snapshot_that_cannot_be_finished_is_told_as_one() {
    let yard = Yard::new();
    yard.random("data.img", MIB, 1);
    let mut begun = 0;
    for (option, is_there) in [("-c", true), ("-d", false)] {
        for failing in 1..16 {
            image(&yard, ["convert", "-q", "data.img", "vm.qcow2"]).succeeded();
            if !is_there {
                image(&yard, ["snapshot", "-q", "-c", "one", "vm.qcow2"]).succeeded();
            }
            let failing = format!("fdatasync:error=EIO:when={failing}");
            let (code, said) = with_failing(&yard, &failing, None, &["snapshot", option, "one", "vm.qcow2"]);
            let listed = image(&yard, ["snapshot", "--json", "vm.qcow2"]).succeeded().json();
            let is_done = listed.as_array().unwrap().is_empty() != is_there;
            match code {
                Some(0) => assert!(is_done && said.is_empty(), "{option}, {failing}: {said}"),
                _ if is_done => {
                    assert!(said.contains("but what is to be done then failed (Input/output error"), "{said}");
                    assert!(said.contains("blockyard image check -r all"), "{said}");
                    begun += 1;
                }
                _ => assert!(said.contains("snapshot of vm.qcow2: Input/output error"), "{said}"),
            }
        }
    }
    assert!(begun > 1);
}
