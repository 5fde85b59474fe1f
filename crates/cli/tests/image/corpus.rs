//! A corpus of damaged file systems, made from seeds: whatever is in them, commands end, with exit status 0 or 1 and a
//! sentence, and nothing is made on the host outside of where it was asked for.

use crate::rig::{Rig, noise, tool};
use crate::root::is_root;
use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::os::unix::fs::{FileExt, PermissionsExt, symlink};
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread::sleep;
use std::time::{Duration, Instant};

/// Longest that a command may take, a machine that is busy with other tests included.
const PATIENCE: Duration = Duration::from_secs(100);

/// Files of every kind, some of whose names are made something else afterwards.
fn fill(root: &Path) {
    for directory in ["a/b/c", "huge", "names", "devices"] {
        fs::create_dir_all(root.join(directory)).unwrap();
    }
    (0..30).for_each(|number| fs::write(root.join(format!("a/b/f{number}")), noise(number * 700)).unwrap());
    for name in ["SLASHSLASHNAME", "NULNULNUL", "DD"] {
        fs::write(root.join("names").join(name), name).unwrap();
    }
    symlink("../../../../../../../../victim", root.join("a/out")).unwrap();
    symlink("/", root.join("a/root")).unwrap();
    symlink("loop", root.join("a/b/loop")).unwrap();
    fs::write(root.join("a/privileged"), "x").unwrap();
    fs::set_permissions(root.join("a/privileged"), fs::Permissions::from_mode(0o6755)).unwrap();
    let device = |name: &str, arguments: &[&str]| {
        let path = root.join("devices").join(name);
        let all = [&[path.to_str().unwrap()], arguments].concat();
        tool("mknod", "coreutils", all);
    };
    device("null", &["c", "1", "3"]);
    device("disk", &["b", "8", "0"]);
    device("fifo", &["p"]);
}

/// Puts `new` where the image has `old`, once.
fn replace(image: &mut [u8], old: &[u8], new: &[u8]) {
    assert_eq!(old.len(), new.len());
    let found: Vec<_> = image.windows(old.len()).enumerate().filter(|(_, window)| *window == old).collect();
    let &[(at, _)] = &found[..] else { panic!("{} times {old:?}", found.len()) };
    image[at..at + new.len()].copy_from_slice(new);
}

/// Directories that are in themselves and in two others, names that lead out, sizes that cannot be.
fn lies(rig: &Rig) {
    for request in [
        "link a a/b/c/loop",
        "link a/b a/twin",
        "set_inode_field a/b/f1 size 0x7ffffffffffff000",
        "set_inode_field a/b/f2 size 0x40000000000",
        "set_inode_field huge size 0x10000000000",
        "set_inode_field a/b/f3 block[1] 0x00ffffff",
    ] {
        tool("debugfs", "e2fsprogs", ["-w", "-R", request, rig.image.to_str().unwrap()]);
    }
    let mut image = fs::read(&rig.image).unwrap();
    // Length and type of an entry, then its name.
    replace(&mut image, b"\x0e\x01SLASHSLASHNAME", b"\x0e\x01../../../evil1");
    replace(&mut image, b"\x09\x01NULNULNUL", b"\x09\x01NUL\0/evil");
    replace(&mut image, b"\x02\x01DD", b"\x02\x01..");
    fs::write(&rig.image, image).unwrap();
}

/// Noise among a file system's own blocks: behind its superblock.
fn spoil(image: &Path, seed: u64) {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = move || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let file = OpenOptions::new().write(true).open(image).unwrap();
    for _ in 0..60 {
        let (at, bytes) = (4096 + next() % (1 << 20), next().to_le_bytes());
        file.write_all_at(&bytes[..1 + (next() % 8) as usize], at).unwrap();
    }
}

/// Runs it to its end, which is not a panic and not a signal.
fn ends(rig: &Rig, subcommand: &str, arguments: &[&str]) -> Output {
    let mut command = rig.command(subcommand, &[&["--timeout", "20"], arguments].concat());
    command.stdin(Stdio::null()).stdout(File::create(rig.path("stdout")).unwrap());
    let mut child = command.stderr(File::create(rig.path("stderr")).unwrap()).spawn().unwrap();
    let begin = Instant::now();
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if begin.elapsed() > PATIENCE => {
                child.kill().unwrap();
                panic!("{command:?} does not end");
            }
            None => sleep(Duration::from_millis(5)),
        }
    };
    let read = |name: &str| fs::read(rig.path(name)).unwrap();
    let output = Output { status, stdout: read("stdout"), stderr: read("stderr") };
    let said = String::from_utf8_lossy(&output.stderr);
    match status.code() {
        Some(0) => {}
        Some(1) => assert!(said.lines().all(|line| line.starts_with("blockyard: ")) && !said.is_empty(), "{said}"),
        _ => panic!("{command:?}: {status}: {said}"),
    }
    assert!(!said.contains("panicked at"), "{said}");
    output
}

/// Everything that reads and writes, and what it leaves on the host.
fn survive(rig: &Rig) {
    ends(rig, "ls", &["-lR", "/"]);
    let outer = rig.path("outer");
    fs::create_dir_all(outer.join("1/2/3/out")).unwrap();
    fs::write(outer.join("victim"), "mine").unwrap();
    ends(rig, "get", &["/a", "outer/1/2/3/out"]);
    fs::write(rig.path("in"), noise(100_000)).unwrap();
    ends(rig, "put", &["in", "/a/b/new"]);
    assert_eq!(fs::read(outer.join("victim")).unwrap(), b"mine");
    for directory in ["", "1", "1/2", "1/2/3"] {
        let names: BTreeSet<_> =
            fs::read_dir(outer.join(directory)).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        assert!(names.len() == if directory.is_empty() { 2 } else { 1 }, "{names:?}");
    }
    let modes =
        tool("find", "findutils", [outer.to_str().unwrap(), "-perm", "/7000", "-o", "-type", "c", "-o", "-type", "b"]);
    assert_eq!(modes, "", "set-ID bits and devices stay in the image");
}

#[test]
fn a_file_system_that_lies_is_told_and_believed_in_nothing() {
    if !is_root() {
        return;
    }
    let rig = Rig::made(8, &["-O", "^metadata_csum,^dir_index"], fill);
    lies(&rig);
    let listed = ends(&rig, "ls", &["-lR", "/"]);
    let said = String::from_utf8_lossy(&listed.stderr);
    assert!(said.contains("it is in several directories") && said.contains("/names: cannot list"), "{said}");
    assert!(!String::from_utf8_lossy(&listed.stdout).contains("evil"));
    let found = ends(&rig, "find", &["/"]);
    assert!(String::from_utf8_lossy(&found.stdout).contains("/devices/null\n"), "the rest is found");
    survive(&rig);
    // What is whole came out.
    assert!(fs::read(rig.path("outer/1/2/3/out/a/b/f9")).unwrap() == noise(9 * 700));
    assert!(!rig.path("outer/1/2/3/out/a/b/f1").exists());
    for source in ["/names", "/devices", "/huge"] {
        ends(&rig, "get", &[source, "outer/1/2/3/out"]);
    }
    ends(&rig, "tar-out", &["/", "all.tar"]);
    assert!(!rig.path("all.tar").exists(), "an archive of half of it is none");
    ends(&rig, "rm", &["-rf", "/a"]);
}

#[test]
fn noise_in_ext4_ends_no_command_badly() {
    if !is_root() {
        return;
    }
    for seed in 1..4 {
        // Without checksums the kernel looks at what is there.
        let rig = Rig::made(8, &["-O", "^metadata_csum"], fill);
        spoil(&rig.image, seed);
        survive(&rig);
    }
}

/// Its owner would rather have no kernel than a damaged file system (tune2fs(8), -e).
#[test]
fn a_kernel_that_panics_is_one_sentence() {
    if !is_root() {
        return;
    }
    let rig = Rig::made(8, &["-O", "^metadata_csum,^dir_index", "-e", "panic"], fill);
    let mut image = fs::read(&rig.image).unwrap();
    // The length of an entry, which goes by whole words.
    let at = image.windows(16).position(|window| window == b"\x0e\x01SLASHSLASHNAME").unwrap();
    image[at - 2..at].copy_from_slice(&[3, 0]);
    fs::write(&rig.image, image).unwrap();
    let said = rig.fail("ls", &["/names"]);
    assert!(said.contains("the appliance has ended") && said.contains("panic"), "{said}");
    assert_eq!(said.trim_end().lines().count(), 1, "{said}");
}

/// Other file systems, as far as the kernel has them: noise all over, and a command for each.
#[test]
fn noise_in_other_file_systems_ends_no_command_badly() {
    for (program, package, megabytes, arguments) in [
        ("mkfs.xfs", "xfsprogs", 320, &["-q"][..]),
        ("mkfs.btrfs", "btrfs-progs", 128, &["-q"]),
        ("mkfs.vfat", "dosfstools", 16, &[]),
    ] {
        let rig = Rig::empty(1);
        File::create(&rig.image).unwrap().set_len(megabytes << 20).unwrap();
        tool(program, package, [arguments, &[rig.image.to_str().unwrap()]].concat());
        fs::write(rig.path("first"), noise(200_000)).unwrap();
        ends(&rig, "put", &["first", "/first"]);
        spoil(&rig.image, 7);
        ends(&rig, "ls", &["-lR", "/"]);
        ends(&rig, "put", &["first", "/second"]);
    }
}

/// On a small file system, with an image on it, whose holes promise more than there is.
#[test]
fn a_command_that_is_given_no_room_says_so() {
    if !is_root() {
        return;
    }
    let rig = Rig::new(64, |root| fs::write(root.join("large"), noise(12 << 20)).unwrap());
    fs::write(rig.path("in"), noise(12 << 20)).unwrap();
    fs::create_dir(rig.path("small")).unwrap();
    File::create(rig.path("sparse.img")).unwrap().set_len(64 << 20).unwrap();
    tool("mke2fs", "e2fsprogs", ["-q", "-t", "ext4", rig.path("sparse.img").to_str().unwrap()]);
    let in_little_room = |subcommand: &str, arguments: &[&str], left: &str| {
        let script = "mount -t tmpfs -o size=8m none small && cp --sparse=always sparse.img small/ && \
                      { \"$@\"; code=$?; ls small; exit $code; }";
        let mut command = Command::new("unshare");
        command.args(["--mount", "sh", "-c", script, "sh", env!("CARGO_BIN_EXE_blockyard"), "image", subcommand]);
        let output = command.args(arguments).current_dir(rig.directory.path()).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.code() == Some(1) && said.starts_with("blockyard: "), "{said}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), left, "{subcommand}");
        said
    };
    let said = in_little_room("get", &["disk.img", "/large", "small/large"], "sparse.img\n");
    assert!(said.contains("o space left"), "{said}");
    let said = in_little_room("tar-out", &["disk.img", "/", "small/a.tar"], "sparse.img\n");
    assert!(said.contains("no space left for small/a.tar"), "{said}");
    in_little_room("put", &["small/sparse.img", "in", "/"], "sparse.img\n");
}
