//! Images over others in other formats, by the commands, compared with qemu-img.

use super::options::write;
use super::*;

/// An image in this format with some data, as `base` with the format's ending.
fn base(yard: &Yard, word: &str, options: &str) -> String {
    yard.sparse("base.img", 8 * MIB, &[(0, MIB), (3 * MIB, 70_000)], 3);
    let name = format!("base.{}", if word == "vpc" { "vhd" } else { word });
    qemu_img(yard, &format!("convert -f raw -O {word}{options} base.img {name}"));
    name
}

#[test]
fn commands_see_what_is_behind_an_image() {
    let yard = Yard::new();
    for (word, options) in [("vmdk", ""), ("vpc", " -o force_size=on"), ("vhdx", ""), ("vdi", ""), ("qed", "")] {
        let base = base(&yard, word, options);
        let run = |line: &str| image(&yard, line.split(' ')).succeeded();
        run(&format!("create -q -b {base} -F {word} top.qcow2"));
        qemu_img(&yard, "compare -f qcow2 -F raw top.qcow2 base.img");
        run("compare top.qcow2 base.img --allow-dir .");
        let info = run("info --json --backing-chain top.qcow2 --allow-dir .").json();
        let theirs = qemu_img(&yard, "info --output=json --backing-chain top.qcow2").json();
        let theirs = &theirs.as_array().unwrap()[1];
        let ours = &info["backing-chain"].as_array().unwrap()[0];
        for key in ["format", "virtual-size", "cluster-size", "actual-size", "dirty-flag"] {
            assert!(theirs[key].is_null() || ours[key] == theirs[key], "{word}: {key}: {ours} {theirs}");
        }
        assert!(ours["filename"].as_str().unwrap().ends_with(&base), "{ours}");
        assert!(run("info --backing-chain top.qcow2 --allow-dir .").stdout.contains(&format!("{base} ({word}, ")));
        // Theirs says nothing of holes within blocks.
        let data = |map: &serde_json::Value| {
            let entries = map.as_array().unwrap().iter();
            entries.filter(|entry| entry["data"] == true).map(|entry| entry["depth"].clone()).collect::<Vec<_>>()
        };
        let ours = data(&run("map --json top.qcow2 --allow-dir .").json());
        let theirs = data(&qemu_img(&yard, "map --output=json top.qcow2").json());
        assert!(!ours.is_empty() && ours.first() == theirs.first(), "{word}: {ours:?} {theirs:?}");
        assert!(run("map top.qcow2 --allow-dir .").stdout.contains(&base), "{word}");
        run("measure -O qcow2 top.qcow2 --allow-dir .");
        // What is equal to the base stays there.
        run(&format!("convert -q -B {base} -F {word} base.img thin.qcow2"));
        qemu_img(&yard, "compare -f qcow2 -F raw thin.qcow2 base.img");
        assert!(allocated_bytes(&yard.path("thin.qcow2")) < MIB / 2, "{word}");
        let safety = image(&yard, ["info", "--safety", "--json", "top.qcow2", "--allow-dir", "."]);
        assert!(safety.stdout.contains("backing-file"), "{safety:?}");
    }
}

/// As the chain names it, which is how qemu-img has it, and from here; not when that may be two.
#[test]
fn a_base_is_named_from_here_or_as_the_chain_names_it() {
    let yard = Yard::new();
    fs::create_dir(yard.path("sub")).unwrap();
    let lay = || {
        for line in [
            "create -q -f qcow2 sub/base.qcow2 1M",
            "create -q -f qcow2 -b base.qcow2 -F qcow2 sub/mid.qcow2",
            "create -q -f qcow2 -b mid.qcow2 -F qcow2 sub/top.qcow2",
        ] {
            qemu_img(&yard, line);
        }
        write(&yard, "sub/top.qcow2", "qcow2", "write -P 7 64k 64k");
    };
    for named in ["base.qcow2", "sub/base.qcow2"] {
        lay();
        image(&yard, ["commit", "-q", "-b", named, "--allow-dir", "sub", "sub/top.qcow2"]).succeeded();
        write(&yard, "sub/base.qcow2", "qcow2", "read -P 7 64k 64k");
    }
    // Here lies an image of that name that is in the chain, too.
    for line in [
        "create -q -f qcow2 base.qcow2 1M",
        "create -q -f qcow2 -b ../base.qcow2 -F qcow2 sub/base.qcow2",
        "create -q -f qcow2 -b base.qcow2 -F qcow2 sub/top.qcow2",
    ] {
        qemu_img(&yard, line);
    }
    let two = image(&yard, ["commit", "-b", "base.qcow2", "--allow-dir", ".", "sub/top.qcow2"]);
    two.failed(1, &["sub/base.qcow2", "may both be meant", "absolute"]);
}

#[test]
fn parents_of_other_hypervisors_formats_are_in_the_chain() {
    let yard = Yard::new();
    qemu_img(&yard, "create -q -f vmdk one.vmdk 4M");
    qemu_img(&yard, "create -q -f vmdk -b one.vmdk -F vmdk two.vmdk");
    let info = image(&yard, ["info", "--json", "--backing-chain", "two.vmdk", "--allow-dir", "."]).succeeded().json();
    let chain = info["backing-chain"].as_array().unwrap();
    assert_eq!((chain.len(), &chain[0]["format"]), (1, &"vmdk".into()), "{info}");
    assert_eq!(chain[0]["format-specific"]["data"]["create-type"], "monolithicSparse");
    image(&yard, ["info", "--backing-chain", "two.vmdk"]).failed(1, &["one.vmdk", "--allow-dir"]);
}

#[test]
fn an_image_gets_a_backing_file_in_another_format() {
    let yard = Yard::new();
    let base = base(&yard, "vhdx", "");
    yard.sparse("data.img", 8 * MIB, &[(0, 2 * MIB), (3 * MIB, 70_000)], 3);
    let run = |line: &str| image(&yard, line.split(' ')).succeeded();
    run("convert -q data.img top.qcow2");
    run(&format!("rebase -q -b {base} -F vhdx top.qcow2"));
    qemu_img(&yard, "compare -f qcow2 -F raw top.qcow2 data.img");
    run("compare -q top.qcow2 data.img --allow-dir .");
    run("rebase -q -b  top.qcow2 --allow-dir .");
    run("compare -q top.qcow2 data.img");
    image(&yard, "rebase -b vm.ova -F ova top.qcow2".split(' ')).failed(2, &["an OVA has several disks"]);
}

#[test]
fn an_image_is_committed_where_its_backing_file_is_written_in_place() {
    let yard = Yard::new();
    yard.sparse("data.img", 8 * MIB, &[(0, 2 * MIB), (5 * MIB, 70_000)], 4);
    let run = |line: &str| image(&yard, line.split(' '));
    for (word, options, is_written) in [
        ("vmdk", "", true),
        ("vmdk", " -o subformat=monolithicFlat", true),
        ("vmdk", " -o subformat=streamOptimized", false),
        ("vhdx", "", false),
        ("vpc", " -o force_size=on", false),
        ("vdi", "", false),
    ] {
        let base = base(&yard, word, options);
        let files = || {
            let paths = fs::read_dir(yard.path("")).unwrap().map(|entry| entry.unwrap().path());
            let mut files: Vec<_> =
                paths.filter(|path| path.is_file()).map(|path| (fs::read(&path).unwrap(), path)).collect();
            files.sort();
            files
        };
        run(&format!("convert -q -B {base} -F {word} data.img top.qcow2")).succeeded();
        let before = files();
        let committed = run("commit -q top.qcow2 --allow-dir .");
        if is_written {
            committed.succeeded();
            qemu_img(&yard, &format!("compare -f {word} -F raw {base} data.img"));
            qemu_img(&yard, "check -q top.qcow2");
            run("compare -q top.qcow2 data.img --allow-dir .").succeeded();
        } else {
            let said = committed.failed(1, &["cannot commit top.qcow2", &base, "only read", "make a qcow2 of it"]);
            // Nobody can say so of what is behind an image.
            assert!(!said.stderr.contains(",ro"), "{}", said.stderr);
            assert!(files() == before, "{word}{options}: something has changed");
        }
        // A base that is smaller is not made larger, unless it can be.
        run(&format!("create -q -u -b {base} -F {word} large.qcow2 16M")).succeeded();
        let before = files();
        let said = if is_written { "are not made larger by commit" } else { "only read" };
        run("commit -q large.qcow2 --allow-dir .").failed(1, &[&base, said]);
        assert!(files() == before, "{word}{options}: something has changed");
    }
}

/// A key is said of each image.
#[test]
fn what_is_behind_an_image_may_be_encrypted() {
    let yard = Yard::new();
    for name in ["own", "base"] {
        fs::write(yard.path(name), name).unwrap();
        fs::set_permissions(yard.path(name), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    }
    yard.sparse("data.img", 2 * MIB, &[(0, MIB)], 5);
    let run = |line: &str| image(&yard, line.split(' '));
    run("convert -q data.img -f raw -O luks base.luks -o iter-time=10 --key-file base").succeeded();
    let luks = "-o encrypt.format=luks,encrypt.iter-time=10 --key-file own";
    run(&format!("create -q -b base.luks -F luks --backing-key-file base top.qcow2 {luks}")).succeeded();
    let top = "top.qcow2,key-file=own,backing-key-file=base";
    run(&format!("compare -q {top} data.img --allow-dir .")).succeeded();
    run(&format!("info --backing-chain {top} --allow-dir .")).succeeded();
    run(&format!("map --json {top} --allow-dir .")).succeeded();
    let secrets = "--object secret,id=o,file=own --object secret,id=b,file=base --image-opts";
    let theirs = "driver=qcow2,encrypt.key-secret=o,file.filename=top.qcow2,backing.driver=luks,\
                  backing.key-secret=b,backing.file.filename=base.luks";
    qemu_img(&yard, &format!("convert {secrets} {theirs} -O raw theirs.img"));
    assert!(same(&yard.path("theirs.img"), &yard.path("data.img")));
    yard.sparse("other.img", 2 * MIB, &[(512, MIB)], 6);
    run(&format!("convert -q -n other.img {top} --allow-dir .")).succeeded();
    run(&format!("commit -q {top} --allow-dir .")).succeeded();
    run("compare -q base.luks,format=luks,key-file=base other.img").succeeded();
    run("convert -q -B base.luks -F luks --backing-key-file base other.img thin.qcow2").succeeded();
    run("compare -q thin.qcow2,backing-key-file=1:base other.img --allow-dir .").succeeded();
    for (line, status, said) in [
        ("compare top.qcow2,key-file=own data.img", 2, "by another passphrase"),
        ("compare thin.qcow2 data.img", 2, "by ,backing-key-file=1:FILE of the image in front"),
        (
            "compare top.qcow2,key-file=own,backing-key-file=base,backing-key-file=2:own data.img",
            2,
            "leave backing-key-file=2: out",
        ),
        ("compare thin.qcow2,key-file=own,backing-key-file=base data.img", 2, "leave key-file= out"),
        ("compare base.luks,format=luks,key-file=base,backing-key-file=own data.img", 2, "are behind qcow2 images"),
        ("compare top.qcow2,backing-key-file=0:own data.img", 2, "'0' is not the number of an image behind it"),
        ("compare top.qcow2,backing-key-file=1:own,backing-key-file=base data.img", 2, "has a key file already"),
    ] {
        run(&format!("{line} --allow-dir .")).failed(status, &[said]);
    }
}

/// The queues of all of them wait for each other.
#[test]
fn too_many_layers_over_each_other_are_said_to_be_that() {
    let yard = Yard::new();
    yard.random("disk.img", MIB, 1);
    for line in ["qcow2 -F raw -b disk.img c.qcow2", "qed -F qcow2 -b c.qcow2 b.qed", "qcow2 -F qed -b b.qed a.qcow2"] {
        qemu_img(&yard, &format!("create -q -f {line}"));
    }
    for (name, is_too_much) in
        [("a.qcow2,overlay=d.qcow2,iops=1000000", false), ("a.qcow2,overlay=e.qcow2,iops=1000000,latency=1us", true)]
    {
        let converted = image(&yard, ["convert", "-q", "--allow-dir", ".", name, "out.img"]);
        if is_too_much {
            converted.failed(1, &[name, "no more than five wait for each other", "leave out one of overlay="]);
        } else {
            converted.succeeded();
            assert!(same(&yard.path("disk.img"), &yard.path("out.img")));
        }
    }
}

/// By `-F`, and not by what is written behind a name.
#[test]
fn a_backing_file_in_another_format_than_is_said_comes_with_a_remedy_that_helps() {
    let yard = Yard::new();
    qemu_img(&yard, "create -q -f vmdk a.vmdk 1M");
    qemu_img(&yard, "create -q -f qcow2 a.qcow2 1M");
    for line in ["create -b a.vmdk -F qcow2 new.qcow2", "rebase -b a.vmdk -F qcow2 --allow-dir . a.qcow2"] {
        let said =
            image(&yard, line.split(' ')).failed(1, &["a.vmdk does not begin like a qcow2 image", "vmdk if it is one"]);
        assert!(!said.stderr.contains(",format="), "{}", said.stderr);
    }
}

/// Clusters with parts have a place, and none of their parts is there: what is behind shows.
#[test]
fn an_image_with_extended_l2_entries_is_preallocated_over_its_backing_file() {
    let yard = Yard::new();
    let raw = yard.random("base.img", 3 * MIB, 21);
    image(&yard, ["create", "-q", "-b", "base.img", "-F", "raw", "-o", "preallocation=metadata", "no.qcow2"])
        .failed(1, &["extended_l2=on"]);
    for how in ["metadata", "falloc", "full"] {
        let options = format!("extended_l2=on,preallocation={how}");
        let line = format!("create -q -f qcow2 -o {options} -b base.img -F raw theirs.qcow2");
        qemu_img(&yard, &line);
        image(&yard, line.replace("theirs", "ours").split(' ')).succeeded();
        let maps =
            ["ours.qcow2", "theirs.qcow2"].map(|name| qemu_img(&yard, &format!("map --output=json {name}")).json());
        assert_eq!(maps[0], maps[1], "{how}");
        let lengths = ["ours.qcow2", "theirs.qcow2"].map(|name| fs::metadata(yard.path(name)).unwrap().len());
        assert_eq!(lengths[0], lengths[1], "{how}");
        image(&yard, ["convert", "-q", "--allow-dir", ".", "ours.qcow2", "out.img"]).succeeded();
        assert!(same(&yard.path("out.img"), &raw), "{how}");
        yard.random("other.img", MIB, 22);
        image(&yard, ["convert", "-q", "-n", "--allow-dir", ".", "other.img", "ours.qcow2"]).succeeded();
        qemu_img(&yard, "check -q ours.qcow2");
        image(&yard, ["convert", "-q", "--allow-dir", ".", "ours.qcow2", "out.img"]).succeeded();
        let (out, other) = (fs::read(yard.path("out.img")).unwrap(), fs::read(yard.path("other.img")).unwrap());
        assert!(
            out[..MIB as usize] == other && out[MIB as usize..] == fs::read(&raw).unwrap()[MIB as usize..],
            "{how}"
        );
    }
}

#[test]
fn an_image_that_is_behind_the_new_one_is_not_replaced() {
    let yard = Yard::new();
    yard.sparse("base.img", MIB, &[(0, 4096)], 7);
    let run = |line: &str| image(&yard, line.split(' '));
    run("create -q -b base.img -F raw a.qcow2").succeeded();
    run("create -q -b a.qcow2 -F qcow2 b.qcow2 --allow-dir .").succeeded();
    std::os::unix::fs::symlink("a.qcow2", yard.path("link.qcow2")).unwrap();
    std::fs::hard_link(yard.path("a.qcow2"), yard.path("hard.qcow2")).unwrap();
    let names = ["base.img", "a.qcow2", "b.qcow2"];
    let before = names.map(|name| std::fs::read(yard.path(name)).unwrap());
    for line in [
        "create -b a.qcow2 -F qcow2 a.qcow2",
        "create -b a.qcow2 -F qcow2 a.qcow2 8M",
        "create -u -b a.qcow2 -F qcow2 a.qcow2 8M",
        "create -u -b ./new.qcow2 -F qcow2 new.qcow2 8M",
        "create -b link.qcow2 -F qcow2 a.qcow2",
        "create -b a.qcow2 -F qcow2 link.qcow2",
        "create -b a.qcow2 -F qcow2 hard.qcow2",
        "rebase -u -b a.qcow2 -F qcow2 a.qcow2",
        "rebase -u -b link.qcow2 -F qcow2 a.qcow2",
    ] {
        let outcome = run(&format!("{line} --allow-dir ."));
        outcome.failed(1, &["cannot be behind itself"]);
    }
    for line in ["create -b b.qcow2 -F qcow2 a.qcow2", "create -f qcow2 -b a.qcow2 -F qcow2 base.img"] {
        run(&format!("{line} --allow-dir .")).failed(1, &["is in use"]);
    }
    assert!(!yard.path("new.qcow2").exists());
    assert!(before == names.map(|name| std::fs::read(yard.path(name)).unwrap()));
}

/// Else what its writer changes meanwhile would be neither what the image showed nor what is behind it.
#[test]
fn what_somebody_writes_to_is_behind_no_image_that_is_changed() {
    let yard = Yard::new();
    yard.sparse("base.img", MIB, &[(0, 4096)], 7);
    let run = |line: &str| image(&yard, line.split(' '));
    run("convert -q -O qcow2 base.img base.qcow2").succeeded();
    run("create -q -b base.qcow2 -F qcow2 middle.qcow2 --allow-dir .").succeeded();
    run("create -q -b middle.qcow2 -F qcow2 top.qcow2 --allow-dir .").succeeded();
    let lines = ["rebase -b base.img -F raw top.qcow2", "rebase -b  top.qcow2", "commit -b base.qcow2 top.qcow2"];
    for name in ["middle.qcow2", "base.qcow2"] {
        let writer = blockyard_block::OpenedFile::open(&yard.path(name), false).unwrap();
        writer.lock(&blockyard_block::FileOptions::default()).unwrap();
        for line in lines {
            run(&format!("{line} --allow-dir .")).failed(1, &[&format!("{name} is in use")]);
        }
    }
    for line in ["commit top.qcow2", "commit -b base.qcow2 top.qcow2", "rebase -b  top.qcow2"] {
        run(&format!("{line} --allow-dir .")).succeeded();
    }
}

/// What is behind an encrypted image takes no key, either.
#[test]
fn an_image_that_is_behind_an_encrypted_one_is_not_replaced() {
    let yard = Yard::new();
    fs::write(yard.path("key"), "key").unwrap();
    fs::set_permissions(yard.path("key"), std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
    yard.sparse("base.img", MIB, &[(0, 4096)], 7);
    let run = |line: &str| image(&yard, line.split(' '));
    let luks = "-o encrypt.format=luks,encrypt.iter-time=10 --key-file key";
    run("convert -q base.img -O luks base.luks -o iter-time=10 --key-file key").succeeded();
    run(&format!("create -q -u -b base.luks -F luks c.qcow2 {MIB} {luks}")).succeeded();
    run(&format!("create -q -u -b base.img -F raw b.qcow2 {MIB} {luks}")).succeeded();
    run("create -q -b b.qcow2 -F qcow2 a.qcow2 --allow-dir .").succeeded();
    let names = ["base.img", "base.luks", "b.qcow2", "c.qcow2", "a.qcow2"];
    let before = names.map(|name| fs::read(yard.path(name)).unwrap());
    for line in [
        "create -f qcow2 -b base.luks -F luks base.luks",
        "create -f qcow2 -b b.qcow2 -F qcow2 base.img",
        "create -f qcow2 -b a.qcow2 -F qcow2 base.img",
        "create -f qcow2 -b a.qcow2 -F qcow2 b.qcow2",
        "create -f qcow2 -b c.qcow2 -F qcow2 base.luks",
    ] {
        let said = if line.contains("luks -F") { "cannot be behind itself" } else { "is in use" };
        run(&format!("{line} --allow-dir .")).failed(1, &[said]);
    }
    // Another name of the volume.
    fs::hard_link(yard.path("base.luks"), yard.path("hard.luks")).unwrap();
    run("create -f qcow2 -b base.luks -F luks hard.luks --allow-dir .").failed(1, &["hard.luks"]);
    assert!(before == names.map(|name| fs::read(yard.path(name)).unwrap()));
    for (over, format) in [("base.luks", "luks"), ("a.qcow2", "qcow2"), ("c.qcow2", "qcow2")] {
        run(&format!("create -q -b {over} -F {format} new.qcow2 --allow-dir .")).succeeded();
        let info = run("info --json new.qcow2").succeeded().stdout;
        assert!(info.contains(&format!("\"virtual-size\": {MIB}")), "{info}");
    }
}
