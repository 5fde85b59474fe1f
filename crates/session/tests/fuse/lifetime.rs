//! How a mount begins and ends.

use crate::rig::{MIB, Mounted, RecordingDisk, eventually, options, pattern, run};
use blockyard_block::{FileDisk, FileOptions, MemoryDisk, explain};
use blockyard_session::fuse::{EndReason, FuseError, FuseFile, Unmounted};
use landlock::{ABI, Access, AccessFs, Ruleset, RulesetAttr, RulesetStatus};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::fs::{Mode, OFlags};
use rustix::io::Errno;
use rustix::mount::{MountFlags, UnmountFlags};
use std::ffi::CString;
use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

fn memory_disk() -> Arc<MemoryDisk> {
    Arc::new(MemoryDisk::new(MIB, 512).expect("a disk"))
}

fn mounts_at(path: &Path) -> usize {
    let wanted = path.to_str().expect("a plain path");
    let mountinfo = fs::read_to_string("/proc/self/mountinfo").expect("read");
    mountinfo.lines().filter(|line| line.split(' ').nth(4) == Some(wanted)).count()
}

fn is_ended(file: &FuseFile) -> bool {
    let mut events = [PollFd::from_borrowed_fd(file.ended(), PollFlags::IN)];
    poll(&mut events, Some(&Timespec { tv_sec: 0, tv_nsec: 0 })).expect("polled") == 1
}

#[test]
fn a_file_that_was_made_is_removed_and_one_that_was_there_is_left_as_it_was() {
    let directory = tempfile::tempdir().expect("a directory");
    let made = directory.path().join("made");
    let file = FuseFile::mount(memory_disk(), &made, &options()).expect("mounted");
    assert_eq!(mounts_at(&made), 1);
    assert!(!is_ended(&file));
    assert_eq!(file.unmount().expect("unmounted"), Unmounted::Idle);
    assert!(!made.exists());
    assert_eq!(mounts_at(&made), 0);

    let there = directory.path().join("with a space");
    fs::write(&there, "contents").expect("written");
    drop(FuseFile::mount(memory_disk(), &there, &options()).expect("mounted"));
    assert_eq!(fs::read_to_string(&there).expect("read"), "contents");
}

#[test]
fn it_is_unmounted_where_it_was_mounted_whatever_has_the_path_by_then() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("here")).expect("made");
    let file = FuseFile::mount(memory_disk(), &at("here/disk"), &options()).expect("mounted");
    fs::rename(at("here"), at("there")).expect("renamed");
    fs::create_dir(at("here")).expect("made");
    fs::write(at("here/disk"), "").expect("written");
    assert_eq!(mounts_at(&at("there/disk")), 1);
    assert_eq!(file.unmount().expect("unmounted"), Unmounted::Idle);
    assert_eq!(mounts_at(&at("there/disk")), 0);
    assert!(!at("there/disk").exists() && at("here/disk").exists(), "the file that was made is removed, and no other");
}

#[test]
fn somebody_else_may_unmount_it() {
    let mounted = Mounted::memory(MIB, 512);
    run("util-linux", "umount", "{}", mounted.path());
    eventually("the end is seen", || is_ended(&mounted.file));
    assert!(matches!(mounted.file.end_reason(), Some(EndReason::Unmounted)));
    // What is at the path by now is not ours to unmount.
    let path = mounted.path().to_owned();
    let other = FuseFile::mount(memory_disk(), &path, &options()).expect("mounted");
    assert_eq!(mounted.file.unmount().expect("unmounted"), Unmounted::Before);
    assert_eq!(mounts_at(&path), 1);
    assert_eq!(fs::metadata(&path).expect("stat").len(), MIB);
    assert_eq!(other.unmount().expect("unmounted"), Unmounted::Idle);
}

#[test]
fn who_has_it_open_when_it_goes_gets_errors() {
    let mounted = Mounted::memory(MIB, 512);
    let path = mounted.path().to_owned();
    let open = mounted.open(libc::O_DIRECT);
    open.write_all_at(&[1; 512], 0).expect("written");
    assert_eq!(mounted.file.unmount().expect("unmounted"), Unmounted::Open);
    assert_eq!(mounts_at(&path), 0);
    assert!(open.read_at(&mut [0; 512], 0).is_err());
    assert!(open.write_at(&[0; 512], 0).is_err());
    assert!(open.sync_all().is_err());
}

#[test]
fn it_goes_away_under_load_and_what_was_synced_is_there() {
    let (mounted, image) = Mounted::on_file(8 * MIB);
    let bytes = pattern(1, 1 << 20);
    let file = mounted.open(0);
    file.write_all_at(&bytes, 7 * MIB).expect("written");
    file.sync_all().expect("synced");
    drop(file);
    let mut load = Command::new("timeout")
        .args(["60", "fio", "--name=load", "--ioengine=libaio", "--direct=1", "--iodepth=64", "--rw=randrw", "--bs=4k"])
        .args(["--size=4m", "--time_based", "--runtime=50"])
        .arg(format!("--filename={}", mounted.path().display()))
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("fio (package fio)");
    let written = || fs::metadata(&image).map(|stat| std::os::unix::fs::MetadataExt::blocks(&stat)).unwrap_or(0);
    let before = written();
    eventually("fio writes", || written() > before + 100);
    assert_eq!(mounted.file.unmount().expect("unmounted"), Unmounted::Open);
    let status = load.wait().expect("ended");
    assert!(!status.success() && status.code() != Some(124), "it sees errors, and does not hang: {status}");
    assert!(fs::read(&image).expect("read")[7 << 20..] == bytes);
}

#[test]
fn an_image_can_be_mounted_over_itself() {
    let directory = tempfile::tempdir().expect("a directory");
    let image = directory.path().join("image");
    let mut bytes = pattern(3, 65536);
    fs::write(&image, &bytes).expect("written");
    let disk = FileDisk::open(&image, &FileOptions::default()).expect("a disk");
    let file = FuseFile::mount(Arc::new(disk), &image, &options()).expect("mounted");
    assert!(fs::read(&image).expect("read") == bytes);
    let through = fs::OpenOptions::new().write(true).open(&image).expect("open");
    through.write_all_at(b"through", 10_000).expect("written");
    drop(through);
    assert_eq!(file.unmount().expect("unmounted"), Unmounted::Idle);
    bytes[10_000..10_007].copy_from_slice(b"through");
    assert!(fs::read(&image).expect("read") == bytes);
}

#[test]
fn a_disk_that_breaks_ends_it_and_nobody_waits_for_ever() {
    let mounted = Mounted::new(RecordingDisk::that_breaks_at_a_flush(MemoryDisk::new(MIB, 512).expect("a disk")));
    let path = mounted.path().to_owned();
    let file = mounted.open(0);
    file.write_all_at(&[1; 4096], 0).expect("written");
    let syncing = std::thread::spawn(move || file.sync_all());
    eventually("the end is seen", || is_ended(&mounted.file));
    assert!(matches!(mounted.file.end_reason(), Some(EndReason::Disk(_))));
    mounted.file.unmount().expect("unmounted");
    assert!(syncing.join().expect("no panic").is_err());
    assert!(mounts_at(&path) == 0 && !path.exists());
}

/// Not a test of its own: [`a_killed_server_leaves_no_mount_behind`] runs it in another process and kills that.
#[test]
#[ignore = "serves until it is killed"]
fn serve_until_killed() {
    let variable = |name| std::env::var_os(name).expect("set by whoever runs this");
    let disk = FileDisk::open(Path::new(&variable("IMAGE")), &FileOptions::default()).expect("a disk");
    let file = FuseFile::mount(Arc::new(disk), Path::new(&variable("MOUNT")), &options()).expect("mounted");
    println!("\nserving {}", file.path().display());
    std::thread::sleep(Duration::from_secs(60));
}

#[test]
fn a_killed_server_leaves_no_mount_behind() {
    let directory = tempfile::tempdir().expect("a directory");
    let (image, path) = (directory.path().join("image"), directory.path().join("disk"));
    let bytes = pattern(2, 65536);
    fs::write(&image, &bytes).expect("written");
    for _ in 0..3 {
        let mut server = Command::new(std::env::current_exe().expect("this test"))
            .args(["--exact", "lifetime::serve_until_killed", "--ignored", "--nocapture"])
            .env("IMAGE", &image)
            .env("MOUNT", &path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("a server");
        let output = BufReader::new(server.stdout.take().expect("piped"));
        assert!(output.lines().map_while(Result::ok).any(|line| line.starts_with("serving")), "it serves");
        let mut open = fs::File::open(&path).expect("open");
        let mut read = vec![0; 4096];
        open.read_exact(&mut read).expect("read");
        assert!(read == bytes[..4096]);
        server.kill().expect("killed");
        assert_eq!(server.wait().expect("ended").signal(), Some(libc::SIGKILL));
        eventually("it is unmounted and the file removed", || mounts_at(&path) == 0 && !path.exists());
    }
}

/// Not a test of its own: it cannot be undone, so [`a_confined_server_unmounts`] runs it in another process.
#[test]
#[ignore = "confines itself"]
fn confine_and_unmount() {
    let path = std::env::var_os("MOUNT").expect("set by whoever runs this");
    let file = FuseFile::mount(memory_disk(), Path::new(&path), &options()).expect("mounted");
    let everything = AccessFs::from_all(ABI::V3);
    let status = Ruleset::default()
        .handle_access(everything)
        .and_then(|ruleset| ruleset.create())
        .and_then(|ruleset| ruleset.restrict_self())
        .expect("confined");
    assert_eq!(status.ruleset, RulesetStatus::FullyEnforced, "a kernel with Landlock is needed");
    let refused = rustix::mount::unmount(&path, UnmountFlags::empty());
    assert_eq!(refused, Err(Errno::PERM), "or this would show nothing");
    assert_eq!(file.unmount().expect("unmounted"), Unmounted::Idle);
}

#[test]
fn a_confined_server_unmounts() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("disk");
    let output = Command::new(std::env::current_exe().expect("this test"))
        .args(["--exact", "lifetime::confine_and_unmount", "--ignored", "--nocapture"])
        .env("MOUNT", &path)
        .output()
        .expect("run");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(mounts_at(&path) == 0 && !path.exists());
}

/// What a server leaves that was killed together with its unmounter.
fn leave_a_dead_mount(path: &Path) {
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).expect("/dev/fuse");
    let options = format!("fd={},rootmode=100000,user_id=0,group_id=0", device.as_raw_fd());
    let options = CString::new(options).expect("no zero bytes");
    rustix::mount::mount("blockyard", path, "fuse.blockyard", MountFlags::empty(), Some(options.as_c_str()))
        .expect("mounted: this test needs root");
}

#[test]
fn dead_mounts_are_cleared_away_and_living_ones_are_not() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("disk");
    fs::write(&path, "contents").expect("written");
    leave_a_dead_mount(&path);
    let dead = fs::metadata(&path).expect_err("dead");
    assert_eq!(Errno::from_io_error(&dead), Some(Errno::NOTCONN));

    let file = FuseFile::mount(memory_disk(), &path, &options()).expect("mounted");
    assert_eq!(mounts_at(&path), 1);
    assert_eq!(fs::metadata(&path).expect("stat").len(), MIB);
    let again = FuseFile::mount(memory_disk(), &path, &options()).expect_err("refused");
    assert!(matches!(again, FuseError::AlreadyServed { .. }), "{again}");
    assert_eq!(file.unmount().expect("unmounted"), Unmounted::Idle);
    assert_eq!(fs::read_to_string(&path).expect("read"), "contents");
}

#[test]
fn what_cannot_be_mounted_over_is_refused_in_one_sentence() {
    let directory = tempfile::tempdir().expect("a directory");
    let at = |name: &str| directory.path().join(name);
    fs::create_dir(at("directory")).expect("made");
    fs::write(at("file"), "").expect("written");
    std::os::unix::fs::symlink(at("file"), at("link")).expect("linked");
    let _listener = UnixListener::bind(at("socket")).expect("bound");
    for (name, expected) in [
        ("directory", "is a directory: name a regular file"),
        ("link", "is a symbolic link: name the file"),
        ("socket", "is not a regular file: name one"),
        ("nowhere/disk", "No such file or directory"),
        ("file/disk", "Not a directory"),
        ("..", "is a directory"),
    ] {
        let error = explain(&FuseFile::mount(memory_disk(), &at(name), &options()).expect_err(name));
        assert!(error.contains(expected) && !error.contains('\n'), "{error}");
    }
    let left: Vec<_> = fs::read_dir(directory.path()).expect("read").flatten().map(|entry| entry.file_name()).collect();
    assert_eq!(left.len(), 4, "nothing was made: {left:?}");
}

#[test]
fn a_dead_mount_of_somebody_else_is_not_ours_to_clear_away() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("disk");
    fs::write(&path, "").expect("written");
    let device = rustix::fs::open("/dev/fuse", OFlags::RDWR | OFlags::CLOEXEC, Mode::empty()).expect("/dev/fuse");
    let options_of_mount = format!("fd={},rootmode=100000,user_id=0,group_id=0", device.as_raw_fd());
    let options_of_mount = CString::new(options_of_mount).expect("no zero bytes");
    rustix::mount::mount("other", &path, "fuse.other", MountFlags::empty(), Some(options_of_mount.as_c_str()))
        .expect("mounted: this test needs root");
    drop(device);
    let error = explain(&FuseFile::mount(memory_disk(), &path, &options()).expect_err("refused"));
    assert!(error.contains("not connected"), "{error}");
    assert_eq!(mounts_at(&path), 1);
    // A process that another test starts has descriptors of this one's for a moment.
    rustix::mount::unmount(&path, UnmountFlags::DETACH).expect("unmounted");
}
