//! Small changes, as debugfs sees them.

use crate::rig::{Rig, tool};
use std::fs::{self, File};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};

#[test]
fn files_are_made_moved_linked_changed_and_removed() {
    let rig = Rig::new(32, |root| {
        fs::create_dir(root.join("etc")).unwrap();
        fs::write(root.join("etc/passwd"), "root:x:0:0\nyan:x:1234:5678\n").unwrap();
        fs::write(root.join("etc/group"), "yard:x:4321:\n").unwrap();
        fs::write(root.join("a"), "a").unwrap();
        fs::write(root.join("b"), "b").unwrap();
    });
    rig.run("mkdir", &["-p", "--mode", "700", "/x/y/z"]);
    rig.run("mv", &["/a", "/b", "/x/y"]);
    rig.run("mv", &["/x/y/a", "/x/y/c"]);
    rig.run("ln", &["-s", "../b", "/x/y/z/link"]);
    rig.run("ln", &["/x/y/b", "/hard"]);
    rig.run("chmod", &["u=rwx,go=", "/x/y/c"]);
    rig.run("chmod", &["-R", "a+X", "/x"]);
    rig.run("chown", &["yan:yard", "/x/y/c"]);
    rig.run("rm", &["-f", "/x/y/b", "/not/there"]);
    rig.check();
    assert!(rig.debugfs("stat /x/y/z").contains("Mode:  0711"), "{}", rig.debugfs("stat /x/y/z"));
    let changed = rig.debugfs("stat /x/y/c");
    assert!(
        changed.contains("Mode:  0711") && changed.contains("User:  1234") && changed.contains("Group:  4321"),
        "{changed}"
    );
    assert!(rig.debugfs("stat /x/y/z/link").contains("Fast link dest: \"../b\""));
    assert_eq!(rig.debugfs("cat /hard"), "b");
    assert!(rig.debugfs("stat /hard").contains("Links: 1"));
    rig.run("rm", &["-r", "/x"]);
    rig.check();
    assert!(!rig.debugfs("ls -p /").contains("/x/"));
}

#[test]
fn what_is_there_is_not_lost_by_odd_names() {
    let rig = Rig::new(32, |root| {
        fs::create_dir(root.join("etc")).unwrap();
        fs::create_dir(root.join("private")).unwrap();
        fs::write(root.join("a"), "a").unwrap();
    });
    rig.run("chmod", &["700", "/private"]);
    rig.run("mkdir", &["-p", "/private", "/private/below"]);
    assert!(rig.debugfs("stat /private").contains("Mode:  0700"), "{}", rig.debugfs("stat /private"));
    assert!(rig.fail("rm", &["-rf", "/etc/.."]).contains("ends in `.` or `..`"));
    assert!(rig.fail("ln", &["-f", "/a", "/a"]).contains("the same file"));
    assert!(rig.fail("ln", &["-f", "/none", "/a"]).contains("not there"));
    assert!(rig.fail("ln", &["/none", "/new"]).contains("/none: cannot link to it: No such file or directory"));
    assert_eq!(rig.debugfs("cat /a"), "a");
    rig.check();
}

#[test]
fn failures_name_the_file_and_the_reason() {
    let rig = Rig::empty(32);
    assert_eq!(rig.fail("rm", &["/no"]), "blockyard: /no: cannot remove: No such file or directory\n");
    assert!(rig.fail("rm", &["/lost+found"]).contains("cannot remove without -r: Is a directory"));
    assert!(rig.fail("rm", &["-r", "/"]).contains("it is the root directory"));
    let said = rig.fail("mkdir", &["/a/b"]);
    assert!(said.contains("(-p makes those above it, too): No such file or directory"), "{said}");
    assert!(rig.fail("chown", &["nobody-here", "/"]).contains("the image has no user nobody-here"));
    let usage = rig.command("chmod", &["rubbish", "/"]).output().unwrap();
    assert_eq!(usage.status.code(), Some(2));
    let usage = rig.command("rm", &["--ro", "/x"]).output().unwrap();
    assert_eq!(usage.status.code(), Some(2));
    rig.check();
}

#[test]
fn a_file_that_cannot_be_removed_keeps_no_other_from_it() {
    let rig = Rig::new(32, |root| {
        for directory in ["tree/a/b", "tree/c", "tree/whole/d", "many"] {
            fs::create_dir_all(root.join(directory)).unwrap();
            (0..20).for_each(|number| fs::write(root.join(directory).join(number.to_string()), "").unwrap());
        }
        fs::write(root.join("last"), "").unwrap();
    });
    let stuck = ["/tree/a/b/7", "/tree/c/0", "/tree/c/19"];
    let many: Vec<_> = (0..20).map(|number| format!("/many/{number}")).collect();
    let fix = |path: &str| {
        // Immutable, with extents.
        let request = format!("set_inode_field {path} flags 0x80010");
        tool("debugfs", "e2fsprogs", ["-w".as_ref(), "-R".as_ref(), request.as_ref(), rig.image.as_os_str()]);
    };
    stuck.into_iter().chain(many.iter().map(String::as_str)).for_each(fix);
    let said = rig.fail("rm", &["-r", "/tree", "/last"]);
    let mut lines: Vec<_> = said.lines().collect();
    lines.sort_unstable();
    assert_eq!(lines, stuck.map(|path| format!("blockyard: {path}: cannot remove: Operation not permitted")));
    rig.check();
    assert_eq!(rig.run("find", &["/tree", "-type", "f"]).lines().count(), stuck.len());
    let left = rig.debugfs("ls -p /tree") + &rig.debugfs("ls -p /tree/a") + &rig.debugfs("ls -p /");
    assert!(left.contains("/b/") && !left.contains("/whole/") && !left.contains("/last/"), "{left}");
    // As many as there is room for.
    let said = rig.fail("rm", &["-rf", "/many"]);
    assert_eq!(said.matches(": cannot remove: Operation not permitted").count(), 16, "{said}");
    assert!(said.contains("4 more"), "{said}");
}

#[test]
fn no_file_is_copied_linked_or_moved_onto_itself_or_lost_for_what_cannot_be() {
    let rig = Rig::new(32, |root| {
        fs::write(root.join("a"), "a").unwrap();
        fs::hard_link(root.join("a"), root.join("b")).unwrap();
        symlink("/a", root.join("link")).unwrap();
        fs::create_dir_all(root.join("d/deep")).unwrap();
        fs::create_dir_all(root.join("e")).unwrap();
        fs::write(root.join("d/a"), "other").unwrap();
        fs::hard_link(root.join("d/a"), root.join("d/b")).unwrap();
    });
    for (from, to) in [("/a", "/b"), ("/a", "/link"), ("/link", "/a"), ("/a", "/a"), ("/d/../a", "/")] {
        let said = rig.fail("cp", &[from, to]);
        assert!(said.contains("the same file") || said.contains("onto itself"), "{from} {to}: {said}");
        if from != "/a" || to != "/link" {
            assert!(rig.fail("mv", &[from, to]).contains("is the same file"), "{from} {to}");
        }
    }
    assert!(rig.fail("cp", &["/a", "/d/a", "/e"]).contains("has just been made of another file"));
    // Names of one file, which the copy has too.
    rig.run("cp", &["-a", "/d/.", "/e"]);
    rig.run("cp", &["-a", "/d/.", "/e"]);
    assert!(rig.fail("mv", &["/a", "/d/a", "/d/deep"]).contains("has just been moved there"));
    rig.run("mv", &["/d/deep/a", "/a"]);
    assert!(rig.fail("ln", &["-f", "/d", "/a"]).contains("Operation not permitted"));
    rig.run("ln", &["-f", "/b", "/a"]);
    rig.run("ln", &["-sf", "b", "/link"]);
    assert!(rig.fail("chown", &["4294967295", "/a"]).contains("no user 4294967295"));
    rig.check();
    for (file, content) in [("/a", "a"), ("/b", "a"), ("/d/a", "other"), ("/e/a", "other"), ("/e/b", "other")] {
        assert_eq!(rig.debugfs(&format!("cat {file}")), content, "{file}");
    }
    assert!(rig.debugfs("stat /e/a").contains("Links: 2"), "{}", rig.debugfs("stat /e/a"));
    assert!(rig.debugfs("stat /link").contains("Fast link dest: \"b\""));
    assert!(!rig.debugfs("ls -p /").contains(".blockyard"));
}

#[test]
fn names_that_end_in_slashes_and_dots_are_what_coreutils_take_them_for() {
    let rig = Rig::new(32, |root| {
        fs::create_dir_all(root.join("d/sub")).unwrap();
        fs::write(root.join("d/sub/kept"), "kept").unwrap();
        fs::write(root.join("file"), "file").unwrap();
        symlink("/d", root.join("link")).unwrap();
        fs::create_dir(root.join("e")).unwrap();
    });
    for (path, why) in
        [("/link/", "Not a directory"), ("/d/.", "ends in `.`"), ("/d/sub/..", "`..`"), ("/file/", "Not a d")]
    {
        for option in ["-r", "-rf"] {
            assert!(rig.fail("rm", &[option, path]).contains(why), "{path}");
        }
    }
    assert_eq!(rig.debugfs("cat /d/sub/kept"), "kept");
    rig.run("cp", &["-a", "/d/.", "/e"]);
    rig.run("cp", &["-r", "/link/.", "/d/sub/..", "/e"]);
    assert_eq!(rig.debugfs("cat /e/sub/kept"), "kept");
    rig.run("rm", &["-r", "/e/"]);
    rig.run("rm", &["/link"]);
    assert_eq!(rig.debugfs("cat /d/sub/kept"), "kept");
    let left = rig.debugfs("ls -p /");
    assert!(!left.contains("/e/") && !left.contains("/link/") && left.contains("/file/"), "{left}");
    rig.check();
}

#[test]
fn copies_have_the_holes_of_what_they_are_copied_from() {
    let rig = Rig::new(32, |root| {
        let sparse = File::create(root.join("sparse")).unwrap();
        sparse.write_all_at(b"begin", 0).unwrap();
        sparse.write_all_at(b"middle", 3 << 30).unwrap();
        sparse.set_len(5 << 30).unwrap();
    });
    rig.run("fill", &["1", "3M", "/copy"]);
    rig.run("cp", &["/sparse", "/copy"]);
    rig.check();
    let fields = |path: &str| {
        let stat = rig.debugfs(&format!("stat {path}"));
        ["Size: ", "Blockcount: "].map(|field| {
            let value = stat.split(field).nth(1).unwrap().split_whitespace().next().unwrap();
            value.parse::<u64>().unwrap()
        })
    };
    let ([size, _], [copy_size, copy_blocks]) = (fields("/sparse"), fields("/copy"));
    // Of 512 bytes.
    assert!(copy_size == size && copy_blocks < 64, "{copy_size} {copy_blocks}");
    rig.run("dd", &["if=image:/copy", "of=middle", "bs=1M", "skip=3072", "count=1"]);
    assert_eq!(fs::read(rig.path("middle")).unwrap()[..6], *b"middle");
    assert!(fs::read(rig.path("middle")).unwrap()[6..].iter().all(|&byte| byte == 0));
}

#[test]
fn trees_as_deep_as_linux_takes_them_are_copied_and_removed() {
    let rig = Rig::empty(64);
    let deep = "/d".repeat(1900);
    rig.run("mkdir", &["-p", &format!("/tree{deep}")]);
    rig.run("cp", &["-a", "/tree", "/copy"]);
    rig.run("mkdir", &[&format!("/copy{deep}/below")]);
    rig.run("rm", &["-r", "/tree", "/copy"]);
    rig.check();
    let left = rig.debugfs("ls -p /");
    assert!(!left.contains("/tree/") && !left.contains("/copy/"), "{left}");
}

#[test]
fn any_number_of_files_can_be_named_at_once() {
    let rig = Rig::empty(64);
    let paths: Vec<_> = (0..4000).map(|number| format!("/a-rather-long-name-{number}")).collect();
    let arguments: Vec<_> = paths.iter().map(String::as_str).collect();
    rig.run("mkdir", &arguments);
    assert_eq!(rig.run("ls", &[&["-d"], &arguments[..]].concat()).lines().count(), 4000);
    rig.run("mv", &[&arguments[1..], &arguments[..1]].concat());
    let within: Vec<_> = arguments[1..].iter().map(|path| format!("{}{path}", arguments[0])).collect();
    assert_eq!(rig.run("ls", &arguments[..1]).lines().count(), 3999);
    rig.run("mv", &[&within.iter().map(String::as_str).collect::<Vec<_>>()[..], &["/"]].concat());
    rig.check();
    let said = rig.fail("rm", &[&["-d", "/none"], &arguments[..], &["/neither"]].concat());
    assert_eq!(said.matches("No such file").count(), 2, "{said}");
    rig.check();
    assert!(!rig.debugfs("ls -p /").contains("rather-long"));
}

/// As cp(1) without -p.
#[test]
fn what_is_copied_over_a_file_gets_its_permissions() {
    let rig = Rig::new(16, |root| {
        for (name, mode) in [("open", 0o755), ("secret", 0o600)] {
            fs::write(root.join(name), name).unwrap();
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(mode)).unwrap();
        }
        fs::create_dir_all(root.join("a/d")).unwrap();
        fs::create_dir_all(root.join("b/d")).unwrap();
        fs::set_permissions(root.join("b/d"), fs::Permissions::from_mode(0o700)).unwrap();
    });
    let mode = |path: &str| rig.run("ls", &["-ld", path])[..10].to_owned();
    rig.run("cp", &["/open", "/secret"]);
    assert_eq!((rig.run("cat", &["/secret"]), mode("/secret")), ("open".to_owned(), "-rw-------".to_owned()));
    rig.run("cp", &["/open", "/new"]);
    rig.run("cp", &["-r", "/a/d", "/b"]);
    assert_eq!((mode("/new"), mode("/b/d")), ("-rwxr-xr-x".to_owned(), "drwx------".to_owned()));
    rig.run("cp", &["-a", "/open", "/secret"]);
    assert_eq!(mode("/secret"), "-rwxr-xr-x");
    rig.check();
}

/// Files are called as others like.
#[test]
fn a_name_is_one_line_of_a_message() {
    let rig = Rig::empty(16);
    let name = "x\nblockyard: all is well";
    for said in [
        rig.fail("put", &[name, "/"]),
        rig.fail("tar-in", &[name, "/"]),
        rig.fail("dd", &[&format!("if={name}"), "of=/dev/sda"]),
        rig.fail("get", &["/lost+found", &format!("{name}/to")]),
    ] {
        assert_eq!(said.trim_end().lines().count(), 1, "{said}");
    }
}
