//! What archives say of files goes in and comes out, whoever wrote them: checked by GNU tar, debugfs and getfattr.

use crate::rig::{Rig, noise, tar_entry, tool};
use crate::root::is_root;
use crate::shell::good;
use rustix::fs::{AtFlags, CWD, Timespec, Timestamps, utimensat};
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::path::Path;
use std::time::{Duration, SystemTime};

/// A value that no line holds.
const VALUE: &str = "0x6f6e650a74776f00ff3d0a";

/// Twice what the appliance has by default.
const MORE_THAN_MEMORY: u64 = 1 << 29;

fn set_attributes(path: &Path) {
    let path = path.to_str().unwrap();
    tool("setfattr", "attr", ["-n", "user.a=%3D", "-v", VALUE, path]);
    // The user's number is a newline.
    tool("setfacl", "acl", ["-m", "u:10:rwx", path]);
}

/// What getfattr says of a file's attributes whose names match, without the file's name.
fn attributes(path: &Path, names: &str) -> String {
    let said = tool("getfattr", "attr", ["-d", "-e", "hex", "-m", names, "--absolute-names", path.to_str().unwrap()]);
    said.lines().filter(|line| !line.starts_with('#')).collect::<Vec<_>>().join("\n")
}

fn tar(directory: &Path, arguments: &[&str]) -> String {
    let arguments = [&["-C", directory.to_str().unwrap(), "--numeric-owner"], arguments].concat();
    tool("tar", "tar", arguments)
}

/// A tar entry of any type: name, target, content.
fn entry(kind: u8, name: &str, target: &str, size: u64, content: &[u8]) -> Vec<u8> {
    let size = format!("{size:011o}");
    tar_entry(kind, name, content, &[(100, "0000644"), (124, &size), (136, "00000000000"), (157, target)])
}

#[test]
fn extended_attributes_go_in_and_come_out() {
    if !is_root() {
        return;
    }
    let rig = Rig::made(32, &["-b", "4096", "-I", "256"], |_| {});
    let tree = rig.path("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    for name in ["file", "large"] {
        fs::write(tree.join(name), noise(if name == "file" { 100 } else { 400_000 })).unwrap();
        set_attributes(&tree.join(name));
    }
    set_attributes(&tree.join("sub"));
    tool("setcap", "libcap2-bin", ["cap_net_raw=ep", tree.join("file").to_str().unwrap()]);
    // More than comes with a listing's entry.
    tool("setfattr", "attr", ["-n", "user.long", "-v", &"long".repeat(400), tree.join("large").to_str().unwrap()]);
    tool("setfattr", "attr", ["-n", "user.longer", "-v", &"long".repeat(400), tree.join("large").to_str().unwrap()]);
    fs::create_dir(rig.path("out")).unwrap();

    rig.run("put", &["tree", "/"]);
    rig.run("put", &["tree/file", "/alone"]);
    rig.check();
    for path in ["/tree/file", "/alone"] {
        let listed = rig.debugfs(&format!("ea_list {path}"));
        for name in ["user.a=%3D (11)", "system.posix_acl_access", "security.capability (20)"] {
            assert!(listed.contains(name), "{path}: {listed}");
        }
    }
    rig.run("tar-out", &["/tree", "a.tar"]);
    let out = rig.path("out");
    tar(&out, &["--acls", "--xattrs", "--xattrs-include=*", "-xpf", rig.path("a.tar").to_str().unwrap()]);
    for name in ["file", "large", "sub"] {
        assert_eq!(attributes(&out.join(name), "-"), attributes(&tree.join(name), "-"), "{name}");
    }
    // Back in, from GNU tar's own.
    tar(&tree, &["--xattrs", "--format=posix", "-cf", rig.path("b.tar").to_str().unwrap(), "."]);
    rig.run("tar-in", &["b.tar", "/back"]);
    rig.run("get", &["/alone", "/tree/large", "/back", "out"]);
    rig.run("get", &["/tree", "named"]);
    for (name, old) in [
        ("out/alone", "file"),
        ("named/file", "file"),
        ("out/large", "large"),
        ("named/large", "large"),
        ("named/sub", "sub"),
        ("out/back/sub", "sub"),
        ("out/back/file", "file"),
    ] {
        let kept = attributes(&tree.join(old), "^user");
        assert!(kept.contains(VALUE), "{kept}");
        // Others are for the image's users, not for the host's.
        assert_eq!(attributes(&rig.path(name), "-"), kept, "{name}");
    }
}

#[test]
fn hard_links_to_themselves_stay_and_others_replace() {
    let rig = Rig::empty(16);
    let tree = rig.path("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("a"), "linked").unwrap();
    fs::hard_link(tree.join("a"), tree.join("b")).unwrap();
    tar(&tree, &["-cf", rig.path("a.tar").to_str().unwrap(), "a", "b", "a"]);
    assert!(tar(&tree, &["-tvf", rig.path("a.tar").to_str().unwrap()]).contains("a link to a"));
    // The second time they are all there.
    for _ in 0..2 {
        rig.run("tar-in", &["a.tar", "/"]);
        assert_eq!(rig.run("cat", &["/a", "/b"]), "linkedlinked");
    }
    let lost = entry(b'1', "a", "nothing", 0, b"");
    fs::write(rig.path("lost.tar"), lost).unwrap();
    let said = rig.fail("tar-in", &["lost.tar", "/"]);
    assert!(said.contains("a: cannot unpack: No such file"), "{said}");
    assert_eq!(rig.run("cat", &["/a"]), "linked", "nothing took its place");
    assert_eq!(rig.run("ls", &["/"]), "a\nb\nlost+found\n");
    rig.check();
}

#[test]
fn sparse_files_of_every_format_come_in_with_their_holes() {
    let rig = Rig::empty(32);
    let tree = rig.path("tree");
    fs::create_dir(&tree).unwrap();
    // More places with data than a header has room for, and a hole that nobody can read through.
    let sparse = File::create(tree.join("sparse")).unwrap();
    for piece in 0..40 {
        sparse.write_all_at(&noise(4096), piece << 20).unwrap();
    }
    sparse.write_all_at(b"end", 300 << 30).unwrap();
    fs::write(tree.join("after"), "after").unwrap();
    let holes = File::create(tree.join("holes")).unwrap();
    holes.set_len(5 << 20).unwrap();
    for (name, options) in [
        ("gnu", &["--format=gnu"][..]),
        ("0.0", &["--format=posix", "--sparse-version=0.0"]),
        ("0.1", &["--format=posix", "--sparse-version=0.1"]),
        ("1.0", &["--format=posix", "--sparse-version=1.0"]),
    ] {
        let path = rig.path("a.tar");
        let what = ["-S", "-cf", path.to_str().unwrap(), "sparse", "holes", "after"];
        tar(&tree, &[options, &what].concat());
        rig.run("tar-in", &["a.tar", name]);
        assert_eq!(rig.run("ls", &[name]), "after\nholes\nsparse\n", "{name}");
        assert_eq!(rig.run("cat", &[&format!("/{name}/after")]), "after");
        let stat = rig.run("stat", &[&format!("/{name}/sparse"), &format!("/{name}/holes")]);
        assert!(stat.contains(&format!("Size: {}", (300u64 << 30) + 3)), "{name}: {stat}");
        assert!(stat.contains("Size: 5242880") && stat.contains("Blocks: 0"), "{name}: {stat}");
    }
    rig.check();
    // And out again.
    rig.run("tar-out", &["/1.0", "b.tar"]);
    fs::create_dir(rig.path("out")).unwrap();
    tar(&rig.path("out"), &["-xf", rig.path("b.tar").to_str().unwrap()]);
    let out = File::open(rig.path("out/sparse")).unwrap();
    let (mut old, mut new) = (vec![0; 41 << 20], vec![0; 41 << 20]);
    for at in [0, (300 << 30) + 3 - (41 << 20)] {
        File::open(tree.join("sparse")).unwrap().read_exact_at(&mut old, at).unwrap();
        out.read_exact_at(&mut new, at).unwrap();
        assert!(old == new, "{at}");
    }
    assert_eq!(out.metadata().unwrap().len(), (300 << 30) + 3);
}

#[test]
fn links_lead_where_they_led() {
    let rig = Rig::empty(16);
    let tree = rig.path("tree");
    fs::create_dir(&tree).unwrap();
    let long = "../x/./".repeat(20);
    let exact = "x".repeat(100);
    let targets = ["a//b", "../x/./y", "/", "http://x", "x/", ".", &long, &exact];
    for (number, target) in targets.iter().enumerate() {
        symlink(target, tree.join(number.to_string())).unwrap();
    }
    symlink(&long, tree.join("n".repeat(120))).unwrap();
    rig.run("put", &["tree", "/"]);
    rig.run("get", &["/tree", "out"]);
    rig.run("tar-out", &["/tree", "a.tar"]);
    fs::create_dir(rig.path("unpacked")).unwrap();
    tar(&rig.path("unpacked"), &["-xf", rig.path("a.tar").to_str().unwrap()]);
    assert!(rig.debugfs("stat /tree/0").contains("Fast link dest: \"a//b\""));
    for copy in ["out", "unpacked"] {
        for (number, target) in targets.iter().enumerate() {
            let link = fs::read_link(rig.path(copy).join(number.to_string())).unwrap();
            assert_eq!(link.as_os_str(), OsStr::new(target), "{copy}");
        }
        assert_eq!(fs::read_link(rig.path(copy).join("n".repeat(120))).unwrap().as_os_str(), OsStr::new(&long));
    }
}

#[test]
fn times_come_through_to_the_nanosecond_before_1970_too() {
    let rig = Rig::made(16, &["-I", "256"], |_| {});
    let tree = rig.path("tree");
    fs::create_dir_all(tree.join("directory")).unwrap();
    fs::write(tree.join("file"), "x").unwrap();
    fs::write(tree.join("newer"), "x").unwrap();
    symlink("file", tree.join("link")).unwrap();
    tool("mkfifo", "coreutils", [tree.join("fifo")]);
    let names = ["file", "newer", "link", "fifo", "directory"];
    let times = [
        // In 1960, in 2024, in 1955, half a second before 1970, and in 1901.
        (-312_753_294, 250_000_007),
        (1_704_164_645, 123_456_789),
        (-473_385_600, 0),
        (-1, 500_000_000),
        (-2_146_003_200, 1),
    ];
    for (name, (tv_sec, tv_nsec)) in names.iter().zip(times) {
        let time = Timespec { tv_sec, tv_nsec };
        let times = Timestamps { last_access: time, last_modification: time };
        utimensat(CWD, tree.join(name), &times, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }
    let compare = |copy: &str, names: &[&str]| {
        for name in names {
            let [old, new] = [tree.join(name), rig.path(copy).join(name)].map(|path| {
                let found = fs::symlink_metadata(path).unwrap();
                (found.mtime(), found.mtime_nsec())
            });
            assert_eq!(old, new, "{copy}/{name}");
        }
    };
    rig.run("put", &["tree", "/"]);
    rig.check();
    // But for the fifo, which is left out.
    rig.fail("get", &["/tree", "out"]);
    compare("out", &["file", "newer", "link", "directory"]);
    rig.run("tar-out", &["/tree", "a.tar"]);
    fs::create_dir(rig.path("unpacked")).unwrap();
    tar(&rig.path("unpacked"), &["-xf", rig.path("a.tar").to_str().unwrap()]);
    compare("unpacked", &names);
    for (format, nanoseconds) in [("gnu", false), ("posix", true)] {
        let path = rig.path("b.tar");
        tar(&tree, &[&format!("--format={format}"), "-cf", path.to_str().unwrap(), "."]);
        rig.run("tar-in", &["b.tar", &format!("/{format}")]);
        rig.fail("get", &[&format!("/{format}"), format]);
        if nanoseconds {
            compare(format, &["file", "newer", "link", "directory"]);
        }
        let seconds = |path: &Path| fs::metadata(path).unwrap().mtime();
        assert_eq!(seconds(&rig.path(format).join("file")), seconds(&tree.join("file")), "{format}");
    }
}

#[test]
fn a_description_without_end_is_refused() {
    let rig = Rig::empty(16);
    for kind in [b'L', b'K', b'x'] {
        let mut archive = File::create(rig.path("a.tar")).unwrap();
        archive.write_all(&entry(b'0', "before", "", 1, b"x")).unwrap();
        archive.write_all(&entry(kind, "././@LongLink", "", MORE_THAN_MEMORY, b"")).unwrap();
        archive.set_len(MORE_THAN_MEMORY + 2048).unwrap();
        let said = rig.fail("tar-in", &["a.tar", "/"]);
        assert!(said.contains("the names or attributes of a file in the archive are too long"), "{said}");
    }
    assert_eq!(rig.run("ls", &["/"]), "before\nlost+found\n");
}

#[test]
fn a_directory_that_lands_on_a_link_is_the_one_that_the_link_leads_to() {
    if !is_root() {
        return;
    }
    let rig = Rig::empty(16);
    rig.run("mkdir", &["-p", "/usr/lib", "/old"]);
    rig.run("chown", &["7:7", "/old"]);
    rig.run("ln", &["-s", "usr/lib", "/lib"]);
    let before = rig.debugfs("stat /lib");
    let tree = rig.path("tree");
    for name in ["lib", "old"] {
        fs::create_dir_all(tree.join(name)).unwrap();
    }
    fs::set_permissions(tree.join("lib"), fs::Permissions::from_mode(0o2750)).unwrap();
    tool("chown", "coreutils", ["1000:1000", tree.join("lib").to_str().unwrap()]);
    fs::set_permissions(tree.join("lib"), fs::Permissions::from_mode(0o2750)).unwrap();
    let modified = SystemTime::UNIX_EPOCH + Duration::from_secs(0x3a7b_8372);
    File::open(tree.join("lib")).unwrap().set_modified(modified).unwrap();
    tar(&tree, &["-cf", rig.path("a.tar").to_str().unwrap(), "lib", "old"]);
    rig.run("tar-in", &["a.tar", "/"]);
    assert_eq!(rig.debugfs("stat /lib"), before, "the link is as it was");
    let stat = rig.debugfs("stat /usr/lib");
    assert!(stat.contains("Mode:  02750") && stat.contains("User:  1000   Group:  1000"), "{stat}");
    assert!(stat.contains("mtime: 0x3a7b8372"), "{stat}");
    let stat = rig.debugfs("stat /old");
    assert!(stat.contains("User:     0   Group:     0"), "what was there belongs to whom the archive says: {stat}");
    rig.check();
}

#[test]
fn what_is_no_archive_is_said_in_a_sentence() {
    let rig = Rig::empty(16);
    let text = "no archive\n".repeat(400);
    for (name, content) in [("short", &text.as_bytes()[..100]), ("text", text.as_bytes()), ("noise", &noise(20_000))] {
        fs::write(rig.path(name), content).unwrap();
        let said = rig.fail("tar-in", &[name, "/"]);
        let wanted = "cannot unpack the archive: it is no tar, tar.gz or tar.zst archive";
        assert!(said.contains(wanted) && said.len() < 200, "{name}: {said}");
    }
}

/// What a link of the archive's own leads to is the archive's, or somebody else's.
#[test]
fn no_link_of_an_archive_takes_it_out_of_its_directory() {
    let rig = Rig::new(16, |root| {
        fs::create_dir_all(root.join("etc")).unwrap();
        fs::write(root.join("etc/passwd"), "genuine\n").unwrap();
        std::os::unix::fs::symlink("/etc", root.join("before")).unwrap();
    });
    let link = |name, target| entry(b'2', name, target, 0, b"");
    let file = |name| entry(b'0', name, "", 5, b"evil\n");
    let directory = |name| entry(b'5', name, "", 0, b"");
    let hard_link = |name, target| entry(b'1', name, target, 0, b"");
    let etc = rig.debugfs("stat /etc").lines().find(|line| line.contains("Mode:")).map(str::to_owned);
    for (name, entries) in [
        ("absolute", vec![link("l", "/etc"), file("l/passwd")]),
        ("relative", vec![link("l", "../../etc"), file("l/passwd")]),
        ("through the directory", vec![link("l", "x/../../../etc"), directory("x"), file("l/passwd")]),
        ("by another name", vec![link("a", "."), link("a/l", "/etc"), link("a", "nothing"), file("l/passwd")]),
        ("a directory", vec![link("l", "/etc"), directory("l")]),
        ("below it", vec![link("l", "/etc"), directory("l/new"), file("l/more/file")]),
        ("finished later", vec![link("a", "."), directory("a/d"), link("d", "/etc")]),
        ("a hard link", vec![link("l", "/etc"), hard_link("p", "l/passwd")]),
        ("a hard link to it", vec![link("k", "/etc"), hard_link("l", "k"), link("k", "nothing"), file("l/passwd")]),
        ("a hard link by one that was there", vec![hard_link("h", "out/passwd")]),
        ("another name of one that was there", vec![hard_link("h", "deep/er/l"), file("h/passwd")]),
        ("one that was there, by one that is not", vec![link("x", "."), directory("y"), file("later/passwd")]),
        ("a fifo", vec![link("l", "/etc"), entry(b'6', "l/passwd", "", 0, b"")]),
    ] {
        fs::write(rig.path("a.tar"), [entries.concat(), vec![0; 1024]].concat()).unwrap();
        // Two lead to up/etc, unless the archive changes that.
        good(
            &rig,
            &["disk.img"],
            "mkdir -p /srv/up/deep/er /srv/etc\n\
             ln -s ../../etc /srv/up/deep/er/l\nln -s x/y/../../etc /srv/up/later\nln -s ../../etc /srv/up/out\n",
        );
        let said = rig.fail("tar-in", &["a.tar", "/srv/up"]);
        assert!(said.contains("leads out of the directory, by a link"), "{name}: {said}");
        let now = rig.debugfs("stat /etc").lines().find(|line| line.contains("Mode:")).map(str::to_owned);
        assert_eq!(now, etc, "{name}");
        let found = good(&rig, &["disk.img"], "cat /etc/passwd\nls /etc\nfind /etc/passwd -printf %n\nrm -r /srv\n");
        assert_eq!(found, "genuine\npasswd\n1", "{name}");
    }
    // What stays below the directory is no harm, nor is a link that was there; and nothing is outside of the root.
    for (entries, to) in [
        (vec![link("l", "d/../d"), directory("d"), file("l/file")], "/"),
        (vec![link("l", "/d"), directory("d"), file("l/file")], "/"),
        (vec![link("x", "y"), file("before/file")], "/"),
        (vec![directory("srv"), link("srv/l", "../d"), file("l/file")], "/srv"),
    ] {
        fs::write(rig.path("a.tar"), [entries.concat(), vec![0; 1024]].concat()).unwrap();
        rig.run("mkdir", &["-p", "/srv"]);
        rig.run("tar-in", &["a.tar", to]);
    }
    assert_eq!(rig.run("cat", &["/d/file", "/etc/file"]), "evil\nevil\n");
    rig.check();
}

#[test]
fn entries_of_unknown_types_are_files_and_slashes_make_directories() {
    let rig = Rig::empty(16);
    let archive = [
        entry(b'V', "the label", "", 0, b""),
        entry(b'Q', "unknown", "", 7, b"content"),
        entry(b'0', "directory/", "", 0, b""),
        entry(0, "old/", "", 0, b""),
        entry(b'g', "global", "", 15, b"15 comment=xyz\n"),
        entry(b'M', "continued", "", 4, b"rest"),
        entry(b'7', "last", "", 1, b"x"),
        vec![0; 1024],
    ];
    fs::write(rig.path("a.tar"), archive.concat()).unwrap();
    let said = rig.fail("tar-in", &["a.tar", "/"]);
    assert!(said.contains("continued: is the rest of a file in another archive: left out"), "{said}");
    assert_eq!(rig.run("find", &["/", "-type", "d"]), "/\n/directory\n/lost+found\n/old\n");
    assert_eq!(rig.run("cat", &["/unknown", "/last"]), "contentx");
    rig.check();
}

#[test]
fn headers_of_other_programs_are_read() {
    let rig = Rig::empty(16);
    let mut signed = entry(b'0', "na\u{ef}ve", "", 1, b"s");
    let sum: i32 =
        (0..512).map(|at| if (148..156).contains(&at) { 32 } else { i32::from(signed[at].cast_signed()) }).sum();
    signed[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    let archive = [
        // Sizes of what has no data.
        entry(b'5', "directory", "", 4096, b""),
        entry(b'2', "link", "to", 100, b""),
        entry(b'6', "fifo", "", 700, b""),
        entry(0, "old/", "", 512, b""),
        entry(b'x', "padded", "", 20, b"12 path=new\n\0\0\0\0\0\0\0\0"),
        entry(b'0', "unused", "", 1, b"p"),
        signed,
        vec![0; 1024],
    ];
    fs::write(rig.path("a.tar"), archive.concat()).unwrap();
    rig.run("tar-in", &["a.tar", "/"]);
    assert_eq!(rig.run("ls", &["/"]), "directory\nfifo\nlink\nlost+found\nna\u{ef}ve\nnew\nold\n");
    assert_eq!(rig.run("cat", &["/new", "/na\u{ef}ve"]), "ps");
    rig.check();
}

/// Nothing else in an archive says whether a file's data are what they were.
#[test]
fn damaged_compression_is_told() {
    let rig = Rig::new(16, |root| {
        fs::create_dir(root.join("directory")).unwrap();
        fs::write(root.join("directory/data"), noise(300_000)).unwrap();
    });
    for name in ["a.tar.gz", "a.tar.zst"] {
        rig.run("tar-out", &["/directory", name]);
        let good = fs::read(rig.path(name)).unwrap();
        let mut bad = good.clone();
        bad[150_000..150_004].copy_from_slice(b"XXXX");
        for (what, bytes) in [("a spoiled byte", &bad[..]), ("a missing end", &good[..good.len() - 6])] {
            fs::write(rig.path(name), bytes).unwrap();
            let said = rig.fail("tar-in", &[name, "/"]);
            assert!(said.contains("cannot unpack the archive: "), "{name}, {what}: {said}");
        }
        fs::write(rig.path(name), &good).unwrap();
        rig.run("tar-in", &[name, "/"]);
    }
    let mut more = fs::read(rig.path("a.tar.gz")).unwrap();
    more.extend(b"whatever, and more of it");
    fs::write(rig.path("a.tar.gz"), more).unwrap();
    rig.run("tar-in", &["a.tar.gz", "/"]);
    rig.check();
}

#[test]
fn names_in_an_archive_begin_alike_whatever_their_length() {
    let (short, long) = ("d".repeat(100), "e".repeat(100));
    let rig = Rig::new(16, |root| fs::create_dir_all(root.join(&short).join(&long)).unwrap());
    rig.run("tar-out", &["/", "a.tar"]);
    let listed = tar(rig.directory.path(), &["-tf", rig.path("a.tar").to_str().unwrap()]);
    assert!(listed.lines().any(|line| line == format!("{short}/{long}")), "{listed}");
    assert!(listed.lines().all(|line| line == "." || !line.starts_with("./")), "{listed}");
}
