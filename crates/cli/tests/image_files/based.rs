//! Images over others: committed, and put over other ones.

use super::*;

/// A base, an image over it, and one over that, with changes in each; and what the last one shows.
fn chain(yard: &Yard) {
    yard.sparse("base.img", 8 * MIB, &[(0, 3 * MIB), (5 * MIB, 2 * MIB)], 1);
    image(yard, ["create", "-q", "-b", "base.img", "-F", "raw", "mid.qcow2"]).succeeded();
    image(yard, ["create", "-q", "-b", "mid.qcow2", "-F", "qcow2", "top.qcow2", "12M"]).succeeded();
    let write = |name: &str, commands: &[&str]| {
        let mut qemu_io = Command::new("qemu-io");
        qemu_io.current_dir(yard.path("")).args(["-f", "qcow2"]).stdout(std::process::Stdio::null());
        commands.iter().for_each(|command| _ = qemu_io.args(["-c", command]));
        assert!(qemu_io.arg(name).status().expect("install qemu-utils").success());
    };
    write("mid.qcow2", &["write -P 7 1M 300k", "write -z 5M 200k"]);
    write("top.qcow2", &["write -P 8 1100k 300k", "write -P 3 11M 4k", "discard 2M 128k"]);
    qemu_img(yard, "convert -O raw top.qcow2 wanted");
}

#[test]
fn an_image_is_committed_into_any_that_it_is_based_on() {
    let yard = Yard::new();
    chain(&yard);
    image(&yard, ["commit", "top.qcow2"]).failed(1, &["--allow-dir"]);
    image(&yard, ["commit", "--allow-dir", ".", "-b", "wanted", "top.qcow2"]).failed(1, &["is not based on wanted"]);
    image(&yard, ["commit", "--allow-dir", ".", "base.img"]).failed(2, &["qcow2"]);
    image(&yard, ["commit", "--allow-dir", ".", "top.qcow2"]).succeeded();
    for name in ["top.qcow2", "mid.qcow2"] {
        qemu_img(&yard, &format!("check -q {name}"));
        qemu_img(&yard, &format!("compare -q -F raw {name} wanted"));
    }
    assert!(allocated_bytes(&yard.path("top.qcow2")) < MIB);
    image(&yard, ["commit", "-d", "--allow-dir", ".", "mid.qcow2"]).succeeded();
    assert!(same(&yard.path("base.img"), &yard.path("wanted")));
    chain(&yard);
    let said = image(&yard, ["commit", "--allow-dir", ".", "-b", "base.img", "top.qcow2"]).succeeded();
    assert!(said.stdout.contains("top.qcow2 and 1 more between the two are of no more use"), "{said:?}");
    assert!(same(&yard.path("base.img"), &yard.path("wanted")));
    image(&yard, ["create", "-q", "alone.qcow2", "1M"]).succeeded();
    image(&yard, ["commit", "alone.qcow2"]).failed(1, &["has no backing file"]);
}

/// Writes to a VMDK by QEMU.
fn write_vmdk(yard: &Yard, name: &str, commands: &[&str]) {
    let mut qemu_io = Command::new("qemu-io");
    qemu_io.current_dir(yard.path("")).args(["-f", "vmdk"]).stdout(std::process::Stdio::null());
    commands.iter().for_each(|command| _ = qemu_io.args(["-c", command]));
    assert!(qemu_io.arg(name).status().expect("install qemu-utils").success());
}

/// In a directory, a VMDK and two differences from it, one of which holds something.
fn differences(yard: &Yard, directory: &str, options: &str) {
    fs::create_dir_all(yard.path(directory)).unwrap();
    let [base, top, other] = ["base", "top", "other"].map(|name| format!("{directory}/{name}.vmdk"));
    qemu_img(yard, &format!("create -q -f vmdk -o {options} {base} 8M"));
    write_vmdk(yard, &base, &["write -P 1 0 3M", "write -P 2 5M 1M"]);
    for name in [&top, &other] {
        qemu_img(yard, &format!("create -q -f vmdk -o {options} -b base.vmdk -F vmdk {name}"));
    }
    write_vmdk(yard, &top, &["write -P 3 1000k 300k", "write -P 4 7M 4k", "write -z 2M 192k", "write -P 0 5M 64k"]);
}

#[test]
fn a_difference_between_vmdks_is_committed_as_by_qemu_img() {
    let yard = Yard::new();
    for zeroed in ["off", "on"] {
        let [ours, theirs] = ["ours", "theirs"].map(|who| format!("{who}-{zeroed}"));
        for directory in [&ours, &theirs] {
            differences(&yard, directory, &format!("zeroed_grain={zeroed}"));
        }
        qemu_img(&yard, &format!("convert -f vmdk -O raw {ours}/top.vmdk wanted"));
        qemu_img(&yard, &format!("commit -q -f vmdk {theirs}/top.vmdk"));
        qemu_img(&yard, &format!("compare -q -f vmdk -F raw {theirs}/base.vmdk wanted"));
        let [top, other] = ["top", "other"].map(|name| format!("{ours}/{name}.vmdk"));
        let commit = |more: &[&str]| image(&yard, [&["commit", "--allow-dir", ".", &top], more].concat());
        commit(&["-b", &other]).failed(1, &["is committed to its parent", "and not to"]);
        // Not emptied, and then emptied; the difference stays of use, which it does not by qemu-img.
        for more in [&["-d"][..], &[]] {
            commit(more).succeeded();
            for name in [format!("{ours}/base.vmdk"), top.clone()] {
                qemu_img(&yard, &format!("compare -q -f vmdk -F raw {name} wanted"));
                let checked = image(&yard, ["check", "--allow-dir", ".", &name]).succeeded();
                assert!(checked.stdout.contains("No errors"), "{checked:?}");
            }
        }
        assert!(yard.path(&top).metadata().unwrap().len() <= yard.path(&other).metadata().unwrap().len());
        image(&yard, ["compare", "--allow-dir", ".", &other, "wanted"]).failed(2, &["its id differs"]);
        // What is written to it next is committed as well.
        write_vmdk(&yard, &top, &["write -P 9 4M 100k"]);
        qemu_img(&yard, &format!("convert -f vmdk -O raw {top} wanted"));
        commit(&[]).succeeded();
        qemu_img(&yard, &format!("compare -q -f vmdk -F raw {ours}/base.vmdk wanted"));
        commit(&[]).succeeded();
    }
}

/// Other differences from the same base know it by a number that a commit changes.
#[test]
fn a_vmdk_is_not_committed_in_half() {
    let yard = Yard::new();
    let line = |access: &str, name: &str| format!("{access} 2048 FLAT \"{name}\" 0\n");
    let head = "# Disk DescriptorFile\nversion=1\nCID=11112222\nparentCID=ffffffff\ncreateType=\"monolithicFlat\"\n\n";
    let write = |access: &str| {
        let tail = "ddb.adapterType = \"ide\"\n";
        fs::write(yard.path("base.vmdk"), [head, &line("RW", "a.raw"), &line(access, "b.raw"), tail].concat()).unwrap();
    };
    for name in ["a.raw", "b.raw"] {
        yard.random(name, MIB, 9);
    }
    write("RW");
    for name in ["top", "other"] {
        qemu_img(&yard, &format!("create -q -f vmdk -b base.vmdk -F vmdk {name}.vmdk 2M"));
    }
    yard.random("new.img", 2 * MIB, 10);
    image(&yard, ["convert", "-q", "-n", "--allow-dir", ".", "new.img", "top.vmdk"]).succeeded();
    write("RDONLY");
    let files = ["a.raw", "b.raw", "base.vmdk", "top.vmdk"].map(|name| yard.path(name));
    let before = files.each_ref().map(|path| fs::read(path).unwrap());
    let commit = || image(&yard, ["commit", "--allow-dir", ".", "top.vmdk"]);
    commit().failed(1, &["base.vmdk has parts that may not be written", "image convert"]);
    assert!(files.each_ref().map(|path| fs::read(path).unwrap()) == before);
    write("RW");
    commit().succeeded();
    image(&yard, ["compare", "-q", "--allow-dir", ".", "base.vmdk", "new.img"]).succeeded();
}

#[test]
fn a_vmdk_that_cannot_be_committed_is_left_alone() {
    let yard = Yard::new();
    let create = "create -q -f vmdk";
    qemu_img(&yard, &format!("{create} alone.vmdk 8M"));
    qemu_img(&yard, &format!("{create} -b alone.vmdk -F vmdk longer.vmdk 9M"));
    qemu_img(&yard, &format!("{create} -o subformat=twoGbMaxExtentSparse -b alone.vmdk -F vmdk pieces.vmdk"));
    qemu_img(&yard, "create -q -f raw disk.img 8M");
    qemu_img(&yard, "convert -f raw -O vmdk -o subformat=streamOptimized disk.img packed.vmdk");
    qemu_img(&yard, &format!("{create} -b packed.vmdk -F vmdk top.vmdk"));
    for (name, said) in [
        ("alone.vmdk", "has no parent that it could be committed to"),
        ("longer.vmdk", "more than its parent"),
        ("pieces.vmdk", "is in several files"),
        ("packed.vmdk", "has compressed grains"),
        ("top.vmdk", "packed.vmdk has compressed grains"),
    ] {
        let before = fs::read(yard.path(name)).unwrap();
        image(&yard, ["commit", "--allow-dir", ".", name]).failed(1, &[said]);
        assert!(fs::read(yard.path(name)).unwrap() == before, "{name}");
    }
    image(&yard, ["commit", "disk.img"]).failed(2, &["only qcow2 images and differences between VMDKs are committed"]);
}

#[test]
fn an_image_shows_the_same_over_another_backing_file() {
    let yard = Yard::new();
    chain(&yard);
    yard.random("other.img", 3 * MIB + 512, 9);
    for (backing, format) in [("other.img", "raw"), ("base.img", "raw"), ("mid.qcow2", "qcow2")] {
        image(&yard, ["rebase", "--allow-dir", ".", "-b", backing, "-F", format, "top.qcow2"]).succeeded();
        let info = qemu_img(&yard, "info --output=json top.qcow2").json();
        assert_eq!((&info["backing-filename"], &info["backing-filename-format"]), (&backing.into(), &format.into()));
        qemu_img(&yard, "check -q top.qcow2");
        qemu_img(&yard, "compare -q -F raw top.qcow2 wanted");
    }
    // What only its owner could read lies where others can; but not where nothing is written.
    let done = image(&yard, ["rebase", "--allow-dir", ".", "-b", "mid.qcow2", "-F", "qcow2", "top.qcow2"]).succeeded();
    assert_eq!(done.stderr, "");
    chain(&yard);
    let mode = |name: &str, mode| {
        fs::set_permissions(yard.path(name), std::os::unix::fs::PermissionsExt::from_mode(mode)).unwrap()
    };
    mode("mid.qcow2", 0o600);
    mode("top.qcow2", 0o644);
    let done = image(&yard, ["rebase", "--allow-dir", ".", "-b", "", "top.qcow2"]).succeeded();
    assert!(done.stderr.contains("top.qcow2: fewer may read what it was based on"), "{done:?}");
    assert!(done.stderr.contains("`chmod go-r` it"), "{done:?}");
    fs::remove_file(yard.path("mid.qcow2")).unwrap();
    qemu_img(&yard, "check -q top.qcow2");
    qemu_img(&yard, "compare -q -F raw top.qcow2 wanted");
    chain(&yard);
    fs::rename(yard.path("base.img"), yard.path("moved.img")).unwrap();
    image(&yard, ["rebase", "-u", "-b", "moved.img", "-F", "raw", "mid.qcow2"]).succeeded();
    qemu_img(&yard, "compare -q -F raw top.qcow2 wanted");
    for (arguments, code, word) in [
        (&["-b", "moved.img"][..], 2, "-F"),
        (&["-b", "absent", "-F", "raw", "--allow-dir", "."], 1, "absent"),
        (&["-b", "top.qcow2", "-F", "qcow2", "--allow-dir", "."], 1, "behind itself"),
        (&["-b", "moved.img", "-F", "raw"], 1, "--allow-dir"),
    ] {
        image(&yard, [&["rebase", "top.qcow2"], arguments].concat()).failed(code, &[word]);
        qemu_img(&yard, "compare -q -F raw top.qcow2 wanted");
    }
}

/// A disk may be far larger than what the file has tables for.
#[test]
fn what_is_behind_a_disk_without_tables_is_not_looked_for_piece_by_piece() {
    let yard = Yard::new();
    yard.random("base.img", MIB, 3);
    yard.random("other.img", MIB, 4);
    let create = "create -q -f qcow2 -o cluster_size=2M";
    let over_base = " -b base.img -F raw";
    let none = &["-b", ""][..];
    let other = &["-b", "other.img", "-F", "raw"][..];
    for (base, backing, says) in [
        ("", none, "depends on no other file"),
        (over_base, none, "depends on no other file"),
        (over_base, other, "over other.img"),
    ] {
        qemu_img(&yard, &format!("{create}{base} huge.qcow2 32512G"));
        let done = image(&yard, [&["rebase", "--allow-dir", "."], backing, &["huge.qcow2"]].concat()).succeeded();
        assert!(done.stdout.contains(says), "{done:?}");
        qemu_img(&yard, "check -q huge.qcow2");
        if base == over_base {
            qemu_img(&yard, "compare -q -F raw huge.qcow2 base.img");
        }
    }
    // One that claims to be larger than its own table of tables is none.
    qemu_img(&yard, &format!("{create} huge.qcow2 1M"));
    File::options()
        .write(true)
        .open(yard.path("huge.qcow2"))
        .unwrap()
        .write_all_at(&(1_u64 << 40).to_be_bytes(), 24)
        .unwrap();
    let said = "huge.qcow2 has an L1 table of 1 entries, too small for its disk, which takes 2";
    image(&yard, ["rebase", "-b", "", "huge.qcow2"]).failed(1, &[said]);
}
