//! Data go in and come out as they are.

use crate::rig::{Rig, failure, noise, tool};
use crate::root::is_root;
use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Stdio};

#[test]
fn files_of_odd_lengths_go_in_and_come_out() {
    let rig = Rig::empty(64);
    let lengths = [0, 1, 511, 512, 4095, 4096, 4097, 1 << 20, (9 << 20) + 3];
    let names: Vec<_> = lengths.iter().map(|length| format!("in{length}")).collect();
    for (name, &length) in names.iter().zip(&lengths) {
        fs::write(rig.path(name), noise(length)).unwrap();
        fs::set_permissions(rig.path(name), fs::Permissions::from_mode(0o640)).unwrap();
    }
    let (to, out) = (String::from("/"), String::from("out"));
    rig.run("put", &names.iter().chain([&to]).map(String::as_str).collect::<Vec<_>>());
    rig.check();
    fs::create_dir(rig.path("out")).unwrap();
    let inside: Vec<_> = names.iter().map(|name| format!("/{name}")).collect();
    rig.run("get", &inside.iter().chain([&out]).map(String::as_str).collect::<Vec<_>>());
    for (name, &length) in names.iter().zip(&lengths) {
        let (content, new) = (noise(length), rig.path("out").join(name));
        rig.debugfs(&format!("dump /{name} {}", rig.path("dumped").display()));
        assert!(fs::read(rig.path("dumped")).unwrap() == content, "{length} went in");
        assert!(fs::read(&new).unwrap() == content, "{length} came out");
        let (old, new) = (fs::metadata(rig.path(name)).unwrap(), fs::metadata(new).unwrap());
        assert_eq!((old.mtime(), old.mode()), (new.mtime(), new.mode()), "{length}");
    }
    assert!(rig.debugfs("stat /in511").contains("Mode:  0640"));
}

#[test]
fn what_takes_the_place_of_a_program_has_not_its_owners_rights() {
    let rig = Rig::new(16, |root| fs::write(root.join("file"), "new").unwrap());
    // A file that has two names goes another way.
    for twins in [false, true] {
        if twins {
            rig.run("ln", &["/file", "/twin"]);
        }
        fs::write(rig.path("out"), "old").unwrap();
        fs::set_permissions(rig.path("out"), fs::Permissions::from_mode(0o6755)).unwrap();
        rig.run("get", &["/file", "out"]);
        assert_eq!(fs::read(rig.path("out")).unwrap(), b"new");
        assert_eq!(fs::metadata(rig.path("out")).unwrap().mode() & 0o7000, 0, "{twins}");
    }
}

#[test]
fn holes_stay_holes() {
    let rig = Rig::empty(64);
    let mut sparse = File::create(rig.path("in")).unwrap();
    sparse.seek(SeekFrom::Start(8 << 20)).unwrap();
    sparse.write_all(&noise(70_000)).unwrap();
    sparse.set_len(40 << 20).unwrap();
    rig.run("put", &["in", "/"]);
    let stat = rig.run("stat", &["/in"]);
    assert!(stat.contains("Size: 41943040"), "{stat}");
    rig.run("get", &["/in", "out"]);
    rig.check();
    assert!(fs::read(rig.path("in")).unwrap() == fs::read(rig.path("out")).unwrap());
    let blocks = fs::metadata(rig.path("out")).unwrap().blocks();
    assert!(blocks * 512 < 1 << 20, "{blocks}");
    let inside = rig.run("du", &["-s", "/in"]);
    assert!(inside.split('\t').next().unwrap().parse::<u64>().unwrap() < 1024, "{inside}");
}

#[test]
fn stdin_goes_in_and_stdout_comes_out() {
    let rig = Rig::empty(64);
    let content = noise((3 << 20) + 17);
    let mut child = rig.command("put", &["-", "/piped"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(&content).unwrap();
    assert!(child.wait().unwrap().success());
    let output = rig.command("get", &["/piped", "-"]).output().unwrap();
    assert!(output.status.success() && output.stdout == content);
    // Somebody who has seen enough is told nothing.
    let mut child = rig.command("cat", &["/piped"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    child.stdout.take().unwrap().read_exact(&mut [0; 10]).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), String::from_utf8_lossy(&output.stderr).as_ref()), (Some(141), ""));
    rig.check();
}

fn tree(root: &Path) {
    fs::create_dir_all(root.join("sub/empty")).unwrap();
    for number in 0..300 {
        fs::write(root.join(format!("sub/file{number}")), noise(number * 13)).unwrap();
    }
    fs::hard_link(root.join("sub/file7"), root.join("twin")).unwrap();
    symlink("sub/file1", root.join("link")).unwrap();
    symlink("/etc/passwd", root.join("absolute")).unwrap();
    fs::write(root.join("very-long-name-".repeat(15)), "long").unwrap();
    fs::set_permissions(root.join("sub"), fs::Permissions::from_mode(0o711)).unwrap();
}

#[test]
fn trees_go_in_and_come_out() {
    let rig = Rig::empty(64);
    let root = rig.path("tree");
    fs::create_dir(&root).unwrap();
    tree(&root);
    rig.run("mkdir", &["/srv"]);
    rig.run("put", &["tree", "/srv"]);
    rig.run("put", &["tree", "/copy"]);
    rig.check();
    fs::create_dir(rig.path("out")).unwrap();
    rig.run("get", &["/srv/tree", "/copy", "out"]);
    rig.run("get", &["/copy", "named"]);
    for copy in ["out/tree", "out/copy", "named"] {
        let (old, new) = (root.to_str().unwrap(), rig.path(copy));
        tool("diff", "diffutils", ["-r", "--no-dereference", old, new.to_str().unwrap()]);
        let inode = |name: &str| fs::metadata(new.join(name)).unwrap().ino();
        assert_eq!(inode("twin"), inode("sub/file7"), "{copy}");
        assert_eq!(fs::metadata(new.join("sub")).unwrap().mode() & 0o7777, 0o711, "{copy}");
    }
}

#[test]
fn archives_of_three_kinds_keep_everything() {
    if !is_root() {
        return;
    }
    let rig = Rig::empty(64);
    let root = rig.path("tree");
    fs::create_dir(&root).unwrap();
    tree(&root);
    tool("mknod", "coreutils", [root.join("null").as_os_str(), "c".as_ref(), "1".as_ref(), "3".as_ref()]);
    tool("setfattr", "attr", ["-n", "user.color", "-v", "blue", root.join("sub/file3").to_str().unwrap()]);
    tool("chown", "coreutils", ["1234:5678", root.join("sub/file2").to_str().unwrap()]);
    let pack = |options: &[&str], name: &str| {
        let mut arguments = vec!["--xattrs", "--format=pax", "-C", root.to_str().unwrap()];
        arguments.extend(options);
        let path = rig.path(name);
        arguments.extend(["-cf", path.to_str().unwrap(), "."]);
        tool("tar", "tar", arguments);
    };
    pack(&[], "a.tar");
    pack(&["--gzip"], "a.tar.gz");
    pack(&["--zstd"], "a.tar.zst");
    for (name, directory) in [("a.tar", "/plain"), ("a.tar.gz", "/gzip"), ("a.tar.zst", "/zstd")] {
        rig.run("tar-in", &[name, directory]);
    }
    rig.check();
    for directory in ["/plain", "/gzip", "/zstd"] {
        let owned = rig.debugfs(&format!("stat {directory}/sub/file2"));
        assert!(owned.contains("User:  1234") && owned.contains("Group:  5678"), "{owned}");
        assert!(rig.debugfs(&format!("ea_get {directory}/sub/file3 user.color")).contains("blue"));
        assert!(rig.debugfs(&format!("stat {directory}/null")).contains("Device major/minor number: 01:03"));
        assert!(rig.debugfs(&format!("stat {directory}/twin")).contains("Links: 2"));
    }
    let listing = |archive: &str| {
        let list = tool("tar", "tar", ["--numeric-owner", "-tvf", rig.path(archive).to_str().unwrap()]);
        let mut lines: Vec<_> =
            list.lines().map(|line| line.split_whitespace().collect::<Vec<_>>().join(" ")).collect();
        lines.sort();
        lines
    };
    for name in ["b.tar", "b.tar.gz", "b.tar.zst"] {
        rig.run("tar-out", &["/gzip", name]);
        // Which of two names is the file and which the link is the packer's choice.
        let whole = |lines: Vec<String>| {
            let kept = lines.into_iter().filter(|line| !line.contains("twin") && !line.contains("file7"));
            // GNU tar calls them ./NAME.
            kept.map(|line| line.replace(" ./", " ").trim_end_matches([' ', '.', '/']).to_owned()).collect::<Vec<_>>()
        };
        assert!(whole(listing(name)) == whole(listing("a.tar")), "{name}: {:?}", listing(name).first());
    }
}

#[test]
fn everything_may_belong_to_root() {
    if !is_root() {
        return;
    }
    let rig = Rig::empty(32);
    fs::write(rig.path("in"), "x").unwrap();
    tool("chown", "coreutils", ["1234:5678", rig.path("in").to_str().unwrap()]);
    rig.run("put", &["in", "/kept"]);
    rig.run("put", &["--root-owned", "in", "/changed"]);
    assert!(rig.debugfs("stat /kept").contains("User:  1234"));
    assert!(rig.debugfs("stat /changed").contains("User:     0"));
}

#[test]
fn no_space_is_said_and_leaves_a_file_system_in_good_order() {
    let rig = Rig::empty(16);
    fs::write(rig.path("in"), noise(20 << 20)).unwrap();
    assert!(rig.fail("put", &["in", "/"]).contains("No space left on device (in the image's file system"));
    assert_eq!(rig.run("ls", &["/"]), "lost+found\n");
    rig.check();
    let tar = rig.path("a.tar");
    tool("tar", "tar", ["-C", rig.directory.path().to_str().unwrap(), "-cf", tar.to_str().unwrap(), "in"]);
    assert!(rig.fail("tar-in", &["a.tar"]).contains("No space left on device"));
    rig.check();
}

#[test]
fn what_is_no_archive_is_refused() {
    let rig = Rig::empty(16);
    for (name, content) in
        [("noise", noise(5000)), ("empty", Vec::new()), ("gzip", [vec![0x1f, 0x8b], noise(3000)].concat())]
    {
        fs::write(rig.path(name), content).unwrap();
        assert!(rig.fail("tar-in", &[name]).contains("cannot unpack the archive"), "{name}");
        // Nothing was made for it but what goes again.
        rig.fail("tar-in", &[name, "/made/for/nothing"]);
    }
    assert_eq!(rig.run("ls", &["/"]), "lost+found\n");
    rig.check();
}

/// As with cp(1): nothing is made above what is copied.
#[test]
fn what_goes_into_a_directory_that_is_not_there_goes_nowhere() {
    let rig = Rig::empty(16);
    fs::create_dir(rig.path("tree")).unwrap();
    fs::write(rig.path("file"), "file").unwrap();
    std::os::unix::fs::symlink("file", rig.path("link")).unwrap();
    for (source, target, directory) in [
        ("tree", "/no/such/dir", "/no/such"),
        ("tree", "no/dir/", "no"),
        ("link", "/no/link", "/no"),
        ("file", "/no/file", "/no"),
        ("file", "/no/", "/no/"),
        ("link", "/no/", "/no/"),
    ] {
        let said = rig.fail("put", &[source, target]);
        assert!(said.contains(&format!("there is no directory {directory} in the image: make it first")), "{said}");
    }
    assert_eq!(rig.run("ls", &["/"]), "lost+found\n");
    rig.run("put", &["tree", "/made/"]);
    rig.run("put", &["link", "made-too"]);
    assert_eq!(rig.run("ls", &["/"]), "lost+found\nmade\nmade-too\n");
}

#[test]
fn a_host_file_is_what_it_was_when_nothing_could_be_copied() {
    let rig = Rig::empty(16);
    fs::write(rig.path("out"), "old").unwrap();
    assert!(rig.fail("get", &["/nothing", "out"]).contains("cannot access: No such file or directory"));
    assert!(rig.fail("tar-out", &["/nothing", "out"]).contains("No such file or directory"));
    assert_eq!(fs::read(rig.path("out")).unwrap(), b"old");
    assert!(rig.fail("put", &["no-file", "/"]).contains("no-file"));
}

#[test]
fn a_disk_that_fails_fails_the_command() {
    for fault in ["flush-error:1", "write-error:1", "write-error:0.3", "write-error:8th"] {
        let rig = Rig::empty(32);
        fs::write(rig.path("in"), noise(3 << 20)).unwrap();
        let image = format!("{},faults={fault}", rig.image.display());
        let mut command = Command::new(env!("CARGO_BIN_EXE_blockyard"));
        command.args(["image", "put", &image, "in", "/"]).current_dir(rig.directory.path());
        let said = failure(command.output().unwrap());
        assert!(
            said.contains("failed") || said.contains("Input/output error") || said.contains("Read-only"),
            "{fault}: {said}"
        );
        assert!(!said.contains("may be damaged"), "{fault}: {said}");
    }
}

#[test]
fn a_file_that_goes_in_is_written_in_place_whatever_attributes_and_names_it_has() {
    if !is_root() {
        return;
    }
    let rig = Rig::made(32, &["-I", "256"], |root| {
        fs::write(root.join("file"), "old").unwrap();
        fs::hard_link(root.join("file"), root.join("twin")).unwrap();
        symlink("file", root.join("link")).unwrap();
        fs::create_dir(root.join("d")).unwrap();
        symlink("/file", root.join("d/attributed")).unwrap();
    });
    let in_place = |content: &str| {
        assert_eq!(rig.debugfs("cat /twin"), content);
        let (file, link) = (rig.debugfs("stat /file"), rig.debugfs("stat /link"));
        assert!(file.contains("Links: 2"), "{file}");
        assert!(link.contains("Fast link dest: \"file\""), "{link}");
    };
    fs::write(rig.path("linked"), "another name").unwrap();
    fs::hard_link(rig.path("linked"), rig.path("name")).unwrap();
    rig.run("put", &["linked", "/link"]);
    in_place("another name");

    let path = rig.path("attributed");
    let tool_for = |name: &str, package: &str, arguments: &[&str]| {
        tool(name, package, [arguments, &[path.to_str().unwrap()]].concat());
    };
    fs::write(&path, "attributes").unwrap();
    tool_for("chown", "coreutils", &["1234:5678"]);
    tool_for("chmod", "coreutils", &["4750"]);
    tool_for("setfattr", "attr", &["-n", "user.color", "-v", "blue"]);
    tool_for("setfattr", "attr", &["-n", "trusted.color", "-v", "red"]);
    tool_for("setfacl", "acl", &["-m", "u:10:rwx"]);
    tool_for("setcap", "libcap2-bin", &["cap_net_raw=ep"]);
    let whole = |inside: &str| {
        let (stat, list) = (rig.debugfs(&format!("stat {inside}")), rig.debugfs(&format!("ea_list {inside}")));
        for part in ["Mode:  04770", "User:  1234", "Group:  5678"] {
            assert!(stat.contains(part), "{inside}: {stat}");
        }
        for name in ["user.color (4)", "trusted.color (3)", "system.posix_acl_access", "security.capability (20)"] {
            assert!(list.contains(name), "{inside}: {list}");
        }
    };
    // To the name of a link, into a directory where one has its name, and to a new name.
    for (old, target) in [("1", "/link"), ("2", "/d"), ("3", "/new")] {
        fs::write(rig.path("plain"), old).unwrap();
        rig.run("put", &["plain", "/file"]);
        in_place(old);
        rig.run("put", &["attributed", target]);
        in_place(if target == "/new" { old } else { "attributes" });
        whole(if target == "/new" { "/new" } else { "/file" });
    }
    assert!(rig.debugfs("stat /d/attributed").contains("Type: symlink"));
    rig.check();
}

#[test]
fn a_link_that_came_out_of_an_image_is_replaced_and_not_followed() {
    let rig = Rig::new(16, |root| {
        fs::create_dir_all(root.join("first")).unwrap();
        fs::create_dir_all(root.join("second")).unwrap();
        symlink("../victim", root.join("first/name")).unwrap();
        fs::write(root.join("second/name"), "from the image").unwrap();
    });
    fs::write(rig.path("victim"), "mine").unwrap();
    fs::create_dir(rig.path("out")).unwrap();
    rig.run("get", &["/first/name", "out"]);
    rig.run("get", &["/second/name", "out"]);
    assert_eq!(fs::read(rig.path("victim")).unwrap(), b"mine");
    assert_eq!(fs::read(rig.path("out/name")).unwrap(), b"from the image");
    assert!(!rig.path("out/name").is_symlink());
    // By the name that it is to have, too; and where a link is not to be copied, it stays.
    rig.run("get", &["/first/name", "named"]);
    rig.run("get", &["/second/name", "named"]);
    assert!(!rig.path("named").is_symlink());
    rig.run("cp", &["/second/name", "/link"]);
    for to in ["link", "out"] {
        symlink("../victim", rig.path(if to == "out" { "out/link" } else { "link" })).unwrap();
        let said = rig.fail("get", &["-L", "/link", to]);
        assert!(said.contains("is a link, which may have come out of an image"), "{said}");
    }
    assert_eq!(fs::read(rig.path("victim")).unwrap(), b"mine");
    assert_eq!(fs::read(rig.path("named")).unwrap(), b"from the image");
}

#[test]
fn one_that_cannot_be_copied_keeps_no_other_from_it_and_none_replaces_another() {
    let rig = Rig::new(32, |root| {
        fs::create_dir_all(root.join("srv/dir")).unwrap();
        fs::write(root.join("srv/dir/x"), "x").unwrap();
        mkfifo(&root.join("srv/fifo"));
        fs::write(root.join("srv/zz"), "zz").unwrap();
        fs::create_dir(root.join("other")).unwrap();
        fs::write(root.join("other/zz"), "another").unwrap();
        fs::write(root.join("other/last"), "last").unwrap();
    });
    fs::create_dir(rig.path("out")).unwrap();
    let said = rig.fail("get", &["/srv/*", "/none", "/other/zz", "/other/last", "out"]);
    for problem in ["/none: cannot access", "/srv/fifo: ", "/other/zz: out/zz has just been made of another file"] {
        assert_eq!(said.matches(problem).count(), 1, "{said}");
    }
    assert!(said.lines().all(|line| line.starts_with("blockyard: ")), "{said}");
    let read = |name: &str| fs::read_to_string(rig.path("out").join(name)).unwrap();
    assert_eq!((read("dir/x"), read("zz"), read("last")), ("x".into(), "zz".into(), "last".into()));
    // What is in a directory, as with cp.
    rig.run("get", &["/srv/dir/.", "out"]);
    assert_eq!((read("x"), read("dir/x")), ("x".into(), "x".into()));
    rig.run("get", &["/srv/dir/.", "new"]);
    assert_eq!(fs::read_to_string(rig.path("new/x")).unwrap(), "x");

    let _listener = UnixListener::bind(rig.path("socket")).unwrap();
    fs::write(rig.path("last"), "from the host").unwrap();
    fs::write(rig.path("clash"), "no directory").unwrap();
    rig.run("mkdir", &["/other/clash"]);
    // A link to a directory is a link, and no directory is put together with it.
    for from in ["one", "two", "three"] {
        fs::create_dir(rig.path(from)).unwrap();
    }
    symlink("/usr", rig.path("one/linked")).unwrap();
    fs::create_dir(rig.path("two/linked")).unwrap();
    fs::write(rig.path("two/linked/file"), "x").unwrap();
    fs::write(rig.path("three/name"), "a file").unwrap();
    symlink("/usr", rig.path("two/name")).unwrap();
    let sources =
        ["clash", "socket", "out/dir/.", "out/last", "last", "one/linked", "two/linked", "three/name", "two/name"];
    let said = rig.fail("put", &[&sources[..], &["/other"]].concat());
    for problem in [
        "clash: /other/clash",
        "last: last has just been made of another file",
        "two/linked: linked has just been made of another file",
        "two/name: name has just been made of another file",
    ] {
        assert_eq!(said.matches(problem).count(), 1, "{said}");
    }
    assert!(rig.debugfs("stat /other/linked").contains("Type: symlink"));
    assert!(rig.debugfs("stat /other/name").contains("Type: regular"));
    rig.check();
    assert_eq!((rig.debugfs("cat /other/x"), rig.debugfs("cat /other/last")), ("x".into(), "last".into()));
    assert!(!rig.debugfs("ls -p /other").contains("/dir/"));
}

fn mkfifo(path: &Path) {
    rustix::fs::mknodat(rustix::fs::CWD, path, rustix::fs::FileType::Fifo, 0o644.into(), 0).unwrap();
}

#[test]
fn what_dd_cannot_write_as_a_whole_stays_what_it_was() {
    let rig = Rig::new(16, |root| fs::write(root.join("file"), "content").unwrap());
    let (old, image) = (noise(1024), fs::read(&rig.image).unwrap());
    fs::write(rig.path("out"), &old).unwrap();
    for operands in [&[][..], &["seek=1"], &["conv=notrunc"]] {
        let said = rig.fail("dd", &[&["if=image:/none", "of=out"], operands].concat());
        assert!(said.contains("/none"), "{said}");
        assert!(fs::read(rig.path("out")).unwrap() == old, "{operands:?}");
        let said = rig.fail("dd", &[&["if=image:/file", "of=disk.img"], operands].concat());
        assert!(said.contains("disk.img is in use"), "{said}");
        assert!(fs::read(&rig.image).unwrap() == image, "{operands:?}");
    }
    rig.run("dd", &["if=image:/file", "of=out", "seek=1", "conv=notrunc"]);
    let written = fs::read(rig.path("out")).unwrap();
    assert!(written[..512] == old[..512] && written[512..519] == *b"content" && written[519..] == old[519..]);
    rig.run("dd", &["if=image:/file", "of=out", "seek=1"]);
    assert!(fs::read(rig.path("out")).unwrap() == written[..519]);
    rig.run("dd", &["if=image:/file", "of=out", "count=0", "seek=1"]);
    assert!(fs::read(rig.path("out")).unwrap() == old[..512]);
    rig.run("dd", &["if=image:/file", "of=out"]);
    assert_eq!(fs::read(rig.path("out")).unwrap(), b"content");
}

/// However it is written: what is new is for nobody that the disk is not for, and it is stable.
#[test]
fn what_dd_writes_of_a_disk_is_as_private_and_stable() {
    let rig = Rig::empty(8);
    fs::set_permissions(&rig.image, fs::Permissions::from_mode(0o600)).unwrap();
    for operands in [&[][..], &["seek=1"], &["conv=notrunc"], &["conv=notrunc,fsync", "seek=1"]] {
        let _ = fs::remove_file(rig.path("out"));
        let dd = rig.command("dd", &[&["if=/dev/sda", "of=out", "count=2"], operands].concat());
        let mut strace = Command::new("strace");
        strace.args(["-qq", "-y", "-e", "trace=fsync,fdatasync", "-e", "signal=none", "-o", "calls"]);
        strace.arg(dd.get_program()).args(dd.get_args()).current_dir(rig.path(""));
        let output = strace.output().unwrap_or_else(|error| panic!("strace ({error}): it is in Debian's strace"));
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        assert_eq!(fs::metadata(rig.path("out")).unwrap().permissions().mode() & 0o777, 0o600, "{operands:?}");
        let calls = fs::read_to_string(rig.path("calls")).unwrap();
        // A whole file has no name yet when it is made stable.
        assert!(calls.contains("sync("), "{operands:?}: {calls}");
    }
}

/// Where others may put files, what has the name may be there to read what is written.
#[test]
fn dd_writes_into_nothing_that_somebody_else_has_put_there() {
    let rig = Rig::new(16, |root| fs::write(root.join("file"), "content").unwrap());
    let shared = rig.path("shared");
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o1777)).unwrap();
    fs::write(shared.join("file"), "old").unwrap();
    rig.run("dd", &["if=image:/file", "of=shared/file", "seek=3", "bs=1", "conv=notrunc"]);
    assert_eq!(fs::read(shared.join("file")).unwrap(), b"oldcontent");
    assert_eq!(rig.run("dd", &["if=image:/file", "of=/dev/stdout"]), "content");
    mkfifo(&shared.join("fifo"));
    for name in ["file", "fifo"] {
        if std::os::unix::fs::chown(shared.join(name), Some(1234), None).is_err() {
            eprintln!("not root: no file of somebody else's");
            return;
        }
        fs::set_permissions(shared.join(name), fs::Permissions::from_mode(0o666)).unwrap();
    }
    for operands in [&["of=shared/fifo"][..], &["of=shared/fifo", "conv=notrunc"], &["of=shared/file", "conv=notrunc"]]
        .into_iter()
        .chain([&["of=shared/file", "seek=1"][..], &["of=shared/file"]])
    {
        let said = rig.fail("dd", &[&["if=image:/file"], operands].concat());
        assert!(said.contains("somebody else's file in a directory that others write to"), "{operands:?}: {said}");
        assert_eq!(fs::read(shared.join("file")).unwrap(), b"oldcontent", "{operands:?}");
    }
}

#[test]
fn a_file_system_without_owners_takes_files_of_anybody() {
    let rig = Rig::empty(32);
    tool("mkfs.vfat", "dosfstools", [rig.image.as_os_str()]);
    let source = rig.path("source");
    fs::create_dir_all(source.join("sub")).unwrap();
    for name in ["file", "sub/below"] {
        fs::write(source.join(name), name).unwrap();
        // For root alone to give away; an ordinary user's file has an owner as it is.
        let _ = std::os::unix::fs::chown(source.join(name), Some(1000), Some(1000));
        let modified = std::time::UNIX_EPOCH + std::time::Duration::from_secs(1_234_567_890);
        File::options().write(true).open(source.join(name)).unwrap().set_modified(modified).unwrap();
    }
    rig.run("put", &["source/file", "source/sub", "/"]);
    tool("tar", "tar", ["-C", source.to_str().unwrap(), "-cf", rig.path("x.tar").to_str().unwrap(), "sub"]);
    rig.run("tar-in", &["x.tar", "/from-tar"]);
    for path in ["/file", "/sub/below", "/from-tar/sub/below"] {
        rig.run("get", &[path, "out"]);
        assert_eq!(fs::metadata(rig.path("out")).unwrap().mtime(), 1_234_567_890, "{path}");
        assert!(path.ends_with(&fs::read_to_string(rig.path("out")).unwrap()));
    }
    assert!(rig.fail("chown", &["1000", "/file"]).contains("has no owners"));
    tool("fsck.vfat", "dosfstools", ["-n".as_ref(), rig.image.as_os_str()]);
}

/// Who writes into a FIFO is let in when somebody opens it to read, and has lost what he wrote when that closes it.
#[test]
fn a_fifo_is_read_like_a_file() {
    let rig = Rig::empty(16);
    fs::write(rig.path("file"), noise(100_000)).unwrap();
    tool(
        "tar",
        "tar",
        ["-C", rig.directory.path().to_str().unwrap(), "-cf", rig.path("archive").to_str().unwrap(), "file"],
    );
    tool("mkfifo", "coreutils", [rig.path("fifo")]);
    for (sent, arguments) in
        [("archive", &["tar-in", "fifo", "/"][..]), ("file", &["dd", "if=fifo", "of=image:/copied"])]
    {
        let (bytes, fifo) = (fs::read(rig.path(sent)).unwrap(), rig.path("fifo"));
        let writer = std::thread::spawn(move || fs::write(fifo, bytes));
        rig.run(arguments[0], &arguments[1..]);
        writer.join().unwrap().unwrap();
    }
    for name in ["/file", "/copied"] {
        let out = rig.command("cat", &[name]).output().unwrap();
        assert!(out.stdout == noise(100_000), "{name}: {}", String::from_utf8_lossy(&out.stderr));
    }
}
