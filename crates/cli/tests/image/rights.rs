//! Who may read a file does not grow on its way: access control lists, modes and owners in images, in archives and on
//! the host. Checked by debugfs, GNU tar, bsdtar, getfacl and getfattr.

use crate::rig::{Rig, noise, tar_entry as entry, tool};
use crate::root::is_root;
use std::fs::{self, File};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Stdio;

/// With numbers that have no names on the host.
const LIST: &str = "u:54321:rwx,g:54322:r-x,g::r--";

fn setfacl(arguments: &[&str], path: &Path) {
    tool("setfacl", "acl", [arguments, &[path.to_str().unwrap()]].concat());
}

fn getfacl(path: &Path) -> String {
    tool("getfacl", "acl", ["-cnp", path.to_str().unwrap()])
}

fn mode(path: &Path) -> u32 {
    fs::symlink_metadata(path).unwrap().mode() & 0o7777
}

/// A word of debugfs's about a file of the image.
fn said(rig: &Rig, path: &str, word: &str) -> String {
    let stat = rig.debugfs(&format!("stat {path}"));
    let words: Vec<_> = stat.split_whitespace().collect();
    words[words.iter().position(|found| *found == word).unwrap() + 1].to_owned()
}

fn has_list(rig: &Rig, path: &str) -> bool {
    rig.debugfs(&format!("ea_list {path}")).contains("posix_acl")
}

/// A record of an extended header.
fn record(key: &str, value: &[u8]) -> Vec<u8> {
    let bare = key.len() + value.len() + 3;
    let mut length = bare + 1;
    while length != bare + length.to_string().len() {
        length += 1;
    }
    [format!("{length} {key}=").as_bytes(), value, b"\n"].concat()
}

#[test]
fn nothing_that_goes_in_inherits_a_list() {
    if !is_root() {
        return;
    }
    let rig = Rig::made(64, &["-I", "256"], |root| {
        fs::create_dir_all(root.join("shared/old")).unwrap();
        fs::write(root.join("shared/listed"), "old").unwrap();
        setfacl(&["-m", "u:10:rwx"], &root.join("shared/old"));
        setfacl(&["-m", "u:10:rwx"], &root.join("shared/listed"));
        for directory in ["shared", "shared/old"] {
            setfacl(&["-d", "-m", "u:10:rwx,g:20:rwx,o::r-x"], &root.join(directory));
        }
    });
    // mke2fs takes access control lists along.
    assert!(has_list(&rig, "/shared") && has_list(&rig, "/shared/listed"));
    let tree = rig.path("tree");
    fs::create_dir_all(tree.join("sub")).unwrap();
    fs::create_dir(tree.join("old")).unwrap();
    for (name, bits, bytes) in [
        ("small", 0o640, 10),
        ("open", 0o644, 10),
        ("large", 0o600, 300_000),
        ("sub/below", 0o660, 10),
        ("listed", 0o640, 5),
    ] {
        fs::write(tree.join(name), noise(bytes)).unwrap();
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(bits)).unwrap();
    }
    for directory in ["sub", "old"] {
        fs::set_permissions(tree.join(directory), fs::Permissions::from_mode(0o750)).unwrap();
    }
    tool("chown", "coreutils", ["7:8", tree.join("large").to_str().unwrap()]);
    tool("mkfifo", "coreutils", ["-m", "640", tree.join("fifo").to_str().unwrap()]);
    let _listener = UnixListener::bind(tree.join("socket")).unwrap();
    let wanted = [
        ("small", "0640", "0"),
        ("open", "0644", "0"),
        ("large", "0600", "7"),
        ("sub", "0750", "0"),
        ("sub/below", "0660", "0"),
        ("old", "0750", "0"),
        ("fifo", "0640", "0"),
        ("listed", "0640", "0"),
    ];
    let look = |within: &str| {
        for (name, bits, user) in wanted {
            let path = format!("{within}/{name}");
            assert_eq!((&*said(&rig, &path, "Mode:"), &*said(&rig, &path, "User:")), (bits, user), "{path}");
            assert!(!has_list(&rig, &path), "{path}");
        }
    };
    let single = |name: &str| format!("tree/{name}");
    let files = ["small", "open", "large", "listed"].map(single);
    let arguments: Vec<_> = files.iter().map(String::as_str).chain(["/shared"]).collect();
    rig.run("put", &arguments);
    for (name, bits, user) in wanted.iter().filter(|(name, ..)| files.contains(&single(name))) {
        let path = format!("/shared/{name}");
        assert_eq!((&*said(&rig, &path, "Mode:"), &*said(&rig, &path, "User:")), (*bits, *user), "{path}");
        assert!(!has_list(&rig, &path), "{path}");
    }
    rig.run("put", &["tree", "/shared"]);
    look("/shared/tree");
    assert_eq!(said(&rig, "/shared/tree/socket", "Type:"), "socket");
    // Into what is there.
    fs::remove_file(tree.join("socket")).unwrap();
    tool(
        "tar",
        "tar",
        [
            "-C",
            tree.to_str().unwrap(),
            "-cf",
            rig.path("a.tar").to_str().unwrap(),
            "--",
            "small",
            "open",
            "large",
            "sub",
            "old",
            "fifo",
            "listed",
        ],
    );
    rig.run("tar-in", &["a.tar", "/shared"]);
    look("/shared");
    // The directory itself was not in the archive.
    assert!(has_list(&rig, "/shared"));
    rig.run("cp", &["-a", "/shared/tree/small", "/shared/copied"]);
    assert!(!has_list(&rig, "/shared/copied") && said(&rig, "/shared/copied", "Mode:") == "0640");
    rig.check();
}

/// A tree with lists on files and directories, of which one bequeaths another.
fn listed_tree(tree: &Path) {
    fs::create_dir_all(tree.join("sub")).unwrap();
    fs::write(tree.join("file"), "listed").unwrap();
    fs::write(tree.join("plain"), "plain").unwrap();
    fs::write(tree.join("large"), noise(300_000)).unwrap();
    for name in ["file", "large"] {
        fs::set_permissions(tree.join(name), fs::Permissions::from_mode(0o640)).unwrap();
        setfacl(&["-m", LIST], &tree.join(name));
    }
    fs::set_permissions(tree.join("plain"), fs::Permissions::from_mode(0o640)).unwrap();
    setfacl(&["-m", "u:54323:r-x"], &tree.join("sub"));
    setfacl(&["-d", "-m", "u:54324:rw-"], &tree.join("sub"));
    fs::write(tree.join("sub/below"), "below").unwrap();
    setfacl(&["-b"], &tree.join("sub/below"));
    fs::set_permissions(tree.join("sub/below"), fs::Permissions::from_mode(0o600)).unwrap();
}

const LISTED: [&str; 5] = ["file", "large", "plain", "sub", "sub/below"];

#[test]
fn lists_go_through_gnu_tar_and_bsdtar_both_ways() {
    let rig = Rig::made(64, &["-I", "256"], |_| {});
    let tree = rig.path("tree");
    listed_tree(&tree);
    let same = |copy: &Path, why: &str| {
        for name in LISTED {
            assert_eq!(getfacl(&copy.join(name)), getfacl(&tree.join(name)), "{why}: {name}");
            assert_eq!(mode(&copy.join(name)), mode(&tree.join(name)), "{why}: {name}");
        }
    };
    let unpack = |program: &str, package: &str, options: &[&str], archive: &str, to: &str| {
        fs::create_dir(rig.path(to)).unwrap();
        let (to, archive) = (rig.path(to), rig.path(archive));
        let more = ["-C", to.to_str().unwrap(), "-xpf", archive.to_str().unwrap()];
        tool(program, package, [options, &more].concat());
    };
    rig.run("put", &["tree", "/put"]);
    rig.run("tar-out", &["/put", "ours.tar"]);
    unpack("tar", "tar", &["--acls", "--numeric-owner"], "ours.tar", "by-gnu");
    same(&rig.path("by-gnu"), "GNU tar");
    unpack("bsdtar", "libarchive-tools", &["--acls", "--numeric-owner"], "ours.tar", "by-bsd");
    same(&rig.path("by-bsd"), "bsdtar");
    // Who does not know of lists gives the group no more than they do.
    unpack("tar", "tar", &["--no-acls", "--no-xattrs"], "ours.tar", "without");
    assert_eq!((mode(&rig.path("without/file")), mode(&rig.path("without/plain"))), (0o640, 0o640));
    for (program, package, options) in [
        ("tar", "tar", &["--acls", "--format=posix", "--numeric-owner"][..]),
        ("tar", "tar", &["--acls", "--format=posix", "--xattrs", "--xattrs-include=*"]),
        ("bsdtar", "libarchive-tools", &["--acls", "--format=pax"]),
    ] {
        let archive = rig.path("theirs.tar");
        let more = ["-C", tree.to_str().unwrap(), "-cf", archive.to_str().unwrap(), "."];
        tool(program, package, [options, &more].concat());
        rig.run("tar-in", &["theirs.tar", "/theirs"]);
        rig.run("tar-out", &["/theirs", "back.tar"]);
        let _ = fs::remove_dir_all(rig.path("back"));
        unpack("tar", "tar", &["--acls", "--numeric-owner"], "back.tar", "back");
        same(&rig.path("back"), program);
        rig.run("rm", &["-r", "/theirs"]);
    }
    rig.check();
}

#[test]
fn where_a_list_cannot_be_kept_the_group_gets_no_more_than_it_gave() {
    let rig = Rig::made(64, &["-I", "256"], |_| {});
    let tree = rig.path("tree");
    listed_tree(&tree);
    assert_eq!(mode(&tree.join("file")), 0o670, "the group's bits are the mask");
    rig.run("put", &["tree", "/"]);
    assert_eq!(said(&rig, "/tree/file", "Mode:"), "0670");
    let out = rig.path("out");
    fs::create_dir(&out).unwrap();
    // The destination's own list is not for files of an image either.
    setfacl(&["-d", "-m", "u:13:rwx"], &out);
    rig.run("get", &["/tree/file", "/tree", "out"]);
    for name in ["file", "tree/file", "tree/large", "tree/plain"] {
        assert_eq!(mode(&out.join(name)), 0o640, "{name}");
        assert_eq!(getfacl(&out.join(name)).trim(), "user::rw-\ngroup::r--\nother::---", "{name}");
    }
    assert!(!getfacl(&out.join("tree/sub")).contains("default"));
    // A name that nobody has in the image, on a file that the mask makes look open; then one that somebody has.
    for (user, unknown) in [("nobody-there", true), ("inside", false)] {
        fs::write(rig.path("passwd"), "inside:x:77:77::/:/bin/sh\n").unwrap();
        rig.run("mkdir", &["-p", "/etc"]);
        rig.run("put", &["passwd", "/etc"]);
        let list = format!("user::rw-,user:{user}:rw-,group::r--,mask::rw-,other::---");
        let archive = [
            entry(b'x', "header", &record("SCHILY.acl.access", list.as_bytes()), &[]),
            entry(b'0', "named", b"content", &[]),
            entry(b'0', "after", b"x", &[]),
            vec![0; 1024],
        ];
        fs::write(rig.path("named.tar"), archive.concat()).unwrap();
        if unknown {
            let said = rig.fail("tar-in", &["named.tar", "/"]);
            assert!(said.contains("named: ") && said.contains("nobody has here: nobody-there"), "{said}");
        } else {
            rig.run("tar-in", &["named.tar", "/"]);
        }
        assert_eq!(said(&rig, "/named", "Mode:"), if unknown { "0644" } else { "0660" });
        assert_eq!(has_list(&rig, "/named"), !unknown);
        assert_eq!(rig.run("cat", &["/named", "/after"]), "contentx");
    }
    rig.check();
}

#[test]
fn labels_and_what_holds_for_all_files_of_an_archive_are_kept() {
    let rig = Rig::made(32, &["-I", "256"], |_| {});
    let label = b"system_u:object_r:etc_t:s0";
    let archive = [
        entry(b'g', "all", &[record("uid", b"12"), record("SCHILY.xattr.user.of", b"all")].concat(), &[]),
        entry(b'x', "one", &[record("RHT.security.selinux", label), record("uid", b"13")].concat(), &[]),
        entry(b'0', "labelled", b"x", &[]),
        entry(b'0', "plain", b"x", &[]),
        // Takes back what was said of all.
        entry(b'x', "one", &record("uid", b""), &[]),
        entry(b'0', "roots", b"x", &[]),
        entry(b'g', "all", &[record("uid", b"14"), record("mtime", b"99.5")].concat(), &[]),
        entry(b'0', "later", b"x", &[]),
        vec![0; 1024],
    ];
    fs::write(rig.path("a.tar"), archive.concat()).unwrap();
    rig.run("tar-in", &["a.tar", "/"]);
    for (name, user) in [("labelled", "13"), ("plain", "12"), ("roots", "0"), ("later", "14")] {
        assert_eq!(said(&rig, &format!("/{name}"), "User:"), user, "{name}");
        assert!(rig.debugfs(&format!("ea_list /{name}")).contains("user.of (3)"), "{name}");
    }
    let listed = rig.debugfs("ea_list /labelled");
    assert!(listed.contains("security.selinux (27) = \"system_u:object_r:etc_t:s0\\000\""), "{listed}");
    rig.run("tar-out", &["/", "b.tar"]);
    let packed = fs::read(rig.path("b.tar")).unwrap();
    let wanted = [b" RHT.security.selinux=", &label[..], b"\n"].concat();
    assert!(packed.windows(wanted.len()).any(|window| window == wanted), "as GNU tar has it");
    rig.check();
}

#[test]
fn one_damaged_file_does_not_end_an_archive_and_is_told() {
    let rig = Rig::empty(16);
    for (name, bad) in [
        ("mode", vec![entry(b'0', "bad", b"bad", &[(100, "00o0644")])]),
        ("owner", vec![entry(b'0', "bad", b"bad", &[(108, "x")])]),
        ("time", vec![entry(b'0', "bad", b"bad", &[(136, "9")])]),
        ("device", vec![entry(b'3', "bad", b"", &[(329, "8")])]),
        ("record", vec![entry(b'x', "h", &record("uid", b"many"), &[]), entry(b'0', "bad", b"bad", &[])]),
        ("list", vec![entry(b'x', "h", &record("SCHILY.acl.access", b"x"), &[]), entry(b'0', "bad", b"bad", &[])]),
        ("map", vec![entry(b'x', "h", &record("GNU.sparse.size", b"x"), &[]), entry(b'0', "bad", b"bad", &[])]),
    ] {
        let archive = [entry(b'0', "first", b"1", &[]), bad.concat(), entry(b'0', "last", b"2", &[]), vec![0; 1024]];
        fs::write(rig.path("a.tar"), archive.concat()).unwrap();
        let to = format!("/{name}");
        let said = rig.fail("tar-in", &["a.tar", &to]);
        assert!(said.contains("bad: left out, as the archive is damaged: "), "{name}: {said}");
        assert_eq!(rig.run("ls", &[&to]), "first\nlast\n", "{name}");
    }
    rig.check();
}

#[test]
fn a_file_takes_the_place_of_an_empty_directory_and_of_no_other() {
    let rig = Rig::empty(32);
    let fields = |bits: &'static str| [(100, bits)];
    let directory = |name: &str| entry(b'5', name, b"", &fields("0000777"));
    let link = |name: &str| {
        let mut link = entry(b'2', name, b"", &[(157, "large")]);
        link.truncate(512);
        link
    };
    let archive = [
        directory("small"),
        directory("large"),
        directory("link"),
        directory("fifo"),
        directory("full"),
        entry(b'0', "full/x", b"x", &[]),
        entry(b'0', "small", b"small", &fields("0000600")),
        entry(b'0', "large", &noise(200_000), &fields("0000600")),
        link("link"),
        entry(b'6', "fifo", b"", &fields("0000600")),
        entry(b'0', "full", b"x", &[]),
        vec![0; 1024],
    ];
    fs::write(rig.path("a.tar"), archive.concat()).unwrap();
    let said_full = rig.fail("tar-in", &["a.tar", "/"]);
    assert!(
        said_full.contains("full: cannot unpack: Directory not empty") && !said_full.contains("small"),
        "{said_full}"
    );
    for (name, kind, bits) in [
        ("small", "regular", "0600"),
        ("large", "regular", "0600"),
        ("fifo", "FIFO", "0600"),
        ("full", "directory", "0777"),
    ] {
        let path = format!("/{name}");
        assert_eq!((&*said(&rig, &path, "Type:"), &*said(&rig, &path, "Mode:")), (kind, bits), "{name}");
    }
    assert_eq!(said(&rig, "/link", "Type:"), "symlink");
    assert_eq!(rig.run("cat", &["/small", "/full/x"]), "smallx");
    rig.check();
}

#[test]
fn directories_of_the_host_that_were_there_stay_as_they_are() {
    let rig = Rig::new(32, |root| {
        fs::create_dir_all(root.join("tree/new")).unwrap();
        fs::create_dir_all(root.join("tree/there")).unwrap();
        fs::write(root.join("tree/there/file"), "x").unwrap();
        for name in ["tree", "tree/new", "tree/there"] {
            fs::set_permissions(root.join(name), fs::Permissions::from_mode(0o755)).unwrap();
        }
    });
    let there = rig.path("out/tree/there");
    fs::create_dir_all(&there).unwrap();
    for directory in [rig.path("out/tree"), there.clone()] {
        fs::set_permissions(&directory, fs::Permissions::from_mode(0o3770)).unwrap();
    }
    setfacl(&["-d", "-m", "u:13:rwx"], &there);
    let list = getfacl(&there);
    rig.run("get", &["/tree", "out"]);
    assert_eq!((mode(&rig.path("out/tree")), mode(&there), mode(&rig.path("out/tree/new"))), (0o3770, 0o3770, 0o755));
    assert_eq!(getfacl(&there), list);
    assert_eq!(fs::read(there.join("file")).unwrap(), b"x");
}

#[test]
fn a_sparse_file_keeps_no_other_from_being_copied_and_its_holes_take_no_room() {
    let rig = Rig::made(64, &["-b", "4096"], |root| {
        fs::create_dir(root.join("log")).unwrap();
        let sparse = File::create(root.join("log/lastlog")).unwrap();
        sparse.write_all_at(b"first", 0).unwrap();
        sparse.write_all_at(b"last", 300 << 30).unwrap();
        fs::write(root.join("log/messages"), "messages").unwrap();
    });
    fs::create_dir(rig.path("out")).unwrap();
    rig.run("get", &["/log", "/log/lastlog", "out"]);
    for name in ["out/log/lastlog", "out/lastlog"] {
        let file = File::open(rig.path(name)).unwrap();
        let mut ends = [0; 9];
        file.read_exact_at(&mut ends[..5], 0).unwrap();
        file.read_exact_at(&mut ends[5..], 300 << 30).unwrap();
        assert_eq!(&ends, b"firstlast", "{name}");
        let metadata = file.metadata().unwrap();
        assert_eq!(metadata.len(), (300 << 30) + 4, "{name}");
        assert!(metadata.blocks() * 512 < 1 << 20, "{name}: {}", metadata.blocks());
    }
    assert_eq!(fs::read(rig.path("out/log/messages")).unwrap(), b"messages");
}

#[test]
fn a_compressed_file_system_gives_more_than_it_takes() {
    let mut rig = Rig::empty(1);
    let tree = rig.path("tree");
    fs::create_dir(&tree).unwrap();
    let sparse = File::create(tree.join("sparse")).unwrap();
    sparse.write_all_at(&noise(100_000), 0).unwrap();
    sparse.write_all_at(&noise(1000), 1300 << 20).unwrap();
    let mut text = noise(1 << 20);
    text.iter_mut().for_each(|byte| *byte = b'a');
    let long = File::create(tree.join("zz-text")).unwrap();
    (0..64).for_each(|piece| long.write_all_at(&text, piece << 20).unwrap());
    rig.image = rig.path("tree.squashfs");
    tool(
        "mksquashfs",
        "squashfs-tools",
        [tree.as_os_str(), rig.image.as_os_str(), "-quiet".as_ref(), "-no-progress".as_ref()],
    );
    assert!(fs::metadata(&rig.image).unwrap().len() < 1 << 20);
    rig.run("get", &["/", "out"]);
    rig.run("get", &["/sparse", "alone"]);
    tool("cmp", "diffutils", [tree.join("zz-text"), rig.path("out/zz-text")]);
    for copy in ["out/sparse", "alone"] {
        let copy = rig.path(copy);
        assert!(fs::metadata(&copy).unwrap().blocks() * 512 < 2 << 20, "{copy:?}");
        assert_eq!(fs::metadata(&copy).unwrap().len(), (1300 << 20) + 1000);
        let (mut old, mut new) = (vec![0; 200_000], vec![0; 200_000]);
        for at in [0, (1300 << 20) + 1000 - 200_000] {
            sparse_read(&tree.join("sparse"), &mut old, at);
            sparse_read(&copy, &mut new, at);
            assert!(old == new, "{copy:?}: {at}");
        }
    }
}

/// What goes through a pipe may be much more than the image, where that is what a file system packs so.
#[test]
fn a_file_that_is_packed_tightly_goes_through_a_pipe() {
    const LENGTH: u64 = 1300 << 20;
    let mut rig = Rig::empty(1);
    let tree = rig.path("tree");
    fs::create_dir(&tree).unwrap();
    File::create(tree.join("sparse")).unwrap().set_len(LENGTH).unwrap();
    fs::write(tree.join("noise"), noise(4 << 20)).unwrap();
    rig.image = rig.path("tree.squashfs");
    tool(
        "mksquashfs",
        "squashfs-tools",
        [tree.as_os_str(), rig.image.as_os_str(), "-quiet".as_ref(), "-no-progress".as_ref()],
    );
    let mut cat = rig.command("cat", &["/sparse"]).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let length = io::copy(&mut cat.stdout.take().unwrap(), &mut io::sink()).unwrap();
    let output = cat.wait_with_output().unwrap();
    assert_eq!((length, String::from_utf8_lossy(&output.stderr).as_ref()), (LENGTH, ""));
}

fn sparse_read(path: &Path, into: &mut [u8], at: u64) {
    File::open(path).unwrap().read_exact_at(into, at).unwrap();
}

#[test]
fn names_of_what_is_left_out_become_no_links_and_sockets_are_told() {
    let rig = Rig::new(32, |root| {
        fs::create_dir(root.join("d")).unwrap();
        fs::write(root.join("d/file"), "x").unwrap();
        tool("mkfifo", "coreutils", [root.join("d/a-fifo")]);
        fs::hard_link(root.join("d/a-fifo"), root.join("d/twin")).unwrap();
    });
    let listener = rig.path("socket");
    let _listener = UnixListener::bind(&listener).unwrap();
    rig.run("put", &["socket", "/d"]);
    assert_eq!(said(&rig, "/d/socket", "Type:"), "socket");
    // What has the name on the host is somebody's own.
    fs::create_dir_all(rig.path("out/d")).unwrap();
    fs::write(rig.path("out/d/a-fifo"), "mine").unwrap();
    let said = rig.fail("get", &["/d", "out"]);
    for problem in
        ["d/a-fifo: left out: it is a fifo", "d/twin: left out: it is a fifo", "d/socket: left out: it is a socket"]
    {
        assert_eq!(said.matches(problem).count(), 1, "{said}");
    }
    assert!(!rig.path("out/d/twin").exists());
    assert_eq!(fs::read(rig.path("out/d/file")).unwrap(), b"x");
    assert_eq!(fs::metadata(rig.path("out/d/a-fifo")).unwrap().nlink(), 1);
    // An archive has no word for it, and is whole all the same.
    let output = rig.command("tar-out", &["/d", "a.tar"]).output().unwrap();
    let told = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && told.contains("socket: left out: it is a socket"), "{told}");
    let listed = tool("tar", "tar", ["-tf", rig.path("a.tar").to_str().unwrap()]);
    assert!(listed.contains("twin") && !listed.contains("socket"), "{listed}");
    rig.check();
}

#[test]
fn what_ends_in_dots_is_the_directory_that_it_leads_to() {
    let rig = Rig::new(32, |root| {
        fs::create_dir_all(root.join("real/sub")).unwrap();
        fs::write(root.join("real/file"), "x").unwrap();
        fs::hard_link(root.join("real/file"), root.join("real/sub/twin")).unwrap();
        symlink("real", root.join("link")).unwrap();
    });
    for (number, path) in ["/link/.", "/real/sub/..", "/link/sub/.."].iter().enumerate() {
        for into in [true, false] {
            let out = rig.path(&format!("out-{number}-{into}"));
            if into {
                fs::create_dir(&out).unwrap();
            }
            rig.run("get", &[path, out.to_str().unwrap()]);
            assert_eq!(fs::read(out.join("sub/twin")).unwrap(), b"x", "{path}");
            assert_eq!(fs::metadata(out.join("file")).unwrap().nlink(), 2, "{path}");
            assert_eq!(fs::read_dir(&out).unwrap().count(), 2, "{path}");
        }
    }
    rig.run("get", &["/", "whole"]);
    assert_eq!(fs::read(rig.path("whole/real/file")).unwrap(), b"x");
    assert_eq!(fs::read_link(rig.path("whole/link")).unwrap(), Path::new("real"));
}

#[test]
fn a_file_with_many_attributes_is_written_in_place_too() {
    if !is_root() {
        return;
    }
    let rig = Rig::made(64, &["-b", "4096", "-I", "1024", "-O", "ea_inode"], |root| {
        fs::write(root.join("file"), "old, and longer than what comes").unwrap();
        fs::hard_link(root.join("file"), root.join("twin")).unwrap();
        symlink("file", root.join("link")).unwrap();
        fs::create_dir(root.join("d")).unwrap();
        symlink("/file", root.join("d/much")).unwrap();
    });
    // A file system that takes so much.
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    let much = memory.path().join("much");
    fs::write(&much, "new").unwrap();
    fs::set_permissions(&much, fs::Permissions::from_mode(0o640)).unwrap();
    tool("chown", "coreutils", ["7:8", much.to_str().unwrap()]);
    for number in 0..4 {
        let (name, value) = (format!("trusted.{number}"), "v".repeat(3000));
        tool("setfattr", "attr", ["-n", &name, "-v", &value, much.to_str().unwrap()]);
    }
    let much = much.to_str().unwrap();
    for target in ["/link", "/d", "/file", "/new"] {
        fs::write(rig.path("plain"), "old, and longer than what comes").unwrap();
        rig.run("put", &["plain", "/file"]);
        rig.run("put", &[much, target]);
        let path = if target == "/new" { "/new" } else { "/twin" };
        assert_eq!(rig.debugfs(&format!("cat {path}")), "new", "{target}");
        assert_eq!((&*said(&rig, path, "Mode:"), &*said(&rig, path, "User:")), ("0640", "7"), "{target}");
        let listed = rig.debugfs(&format!("ea_list {path}"));
        assert!((0..4).all(|number| listed.contains(&format!("trusted.{number} (3000)"))), "{target}: {listed}");
    }
    assert_eq!((said(&rig, "/link", "Type:"), said(&rig, "/d/much", "Type:")), ("symlink".into(), "symlink".into()));
    assert_eq!(said(&rig, "/file", "Links:"), "2");
    rig.check();
}

#[test]
fn names_beyond_a_message_are_copied_and_moved() {
    const FILES: usize = 700;
    let rig = Rig::made(64, &["-N", "4000"], |root| {
        fs::create_dir_all(root.join("from")).unwrap();
        fs::create_dir(root.join("copies")).unwrap();
        fs::create_dir(root.join("moved")).unwrap();
        for number in 0..FILES {
            fs::write(root.join(format!("from/{number:0>200}")), number.to_string()).unwrap();
        }
    });
    let names: Vec<_> = (0..FILES).map(|number| format!("/from/{number:0>200}")).collect();
    assert!(names.iter().map(String::len).sum::<usize>() > 2 << 16);
    for (verb, target) in [("cp", "/copies"), ("mv", "/moved")] {
        let arguments: Vec<_> = names.iter().map(String::as_str).chain([target]).collect();
        rig.run(verb, &arguments);
        assert_eq!(rig.run("ls", &[target]).lines().count(), FILES, "{verb}");
        let last = format!("{target}/{:0>200}", FILES - 1);
        assert_eq!(rig.run("cat", &[&last]), (FILES - 1).to_string(), "{verb}");
    }
    assert_eq!(rig.run("ls", &["/from"]), "");
    // All of them are known to the one that is asked: none takes another's place.
    let twice: Vec<_> = names
        .iter()
        .map(|name| name.replace("/from", "/moved"))
        .chain(["/moved/0*1".into(), "/copies".into()])
        .collect();
    let said = rig.fail("cp", &twice.iter().map(String::as_str).collect::<Vec<_>>());
    assert!(said.contains("has just been made of another file"), "{said}");
    rig.check();
}

#[test]
fn capabilities_outlive_a_copy_within_the_image() {
    if !is_root() {
        return;
    }
    let rig = Rig::made(32, &["-I", "256"], |_| {});
    fs::write(rig.path("ping"), "ping").unwrap();
    tool("setcap", "libcap2-bin", ["cap_net_raw=ep", rig.path("ping").to_str().unwrap()]);
    setfacl(&["-m", LIST], &rig.path("ping"));
    rig.run("put", &["ping", "/"]);
    rig.run("chown", &["5:6", "/ping"]);
    rig.run("put", &["ping", "/"]);
    rig.run("cp", &["-a", "/ping", "/copy"]);
    let listed = rig.debugfs("ea_list /copy");
    assert!(listed.contains("security.capability") && listed.contains("posix_acl_access"), "{listed}");
    assert_eq!(said(&rig, "/copy", "Mode:"), said(&rig, "/ping", "Mode:"));
    rig.check();
}

/// The bytes of a disk hold all files of the image.
#[test]
fn what_is_taken_off_a_disk_is_for_nobody_that_the_image_is_not_for() {
    let rig = Rig::empty(16);
    for (bits, name) in [(0o600, "whole"), (0o640, "part")] {
        fs::set_permissions(&rig.image, fs::Permissions::from_mode(bits)).unwrap();
        rig.run("dd", &["if=/dev/sda", &format!("of={name}"), "count=8"]);
        assert_eq!(mode(&rig.path(name)), bits);
    }
}
