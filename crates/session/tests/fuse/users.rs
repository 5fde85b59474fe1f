//! Ordinary users.

use crate::rig::{MIB, options};
use blockyard_block::MemoryDisk;
use blockyard_session::fuse::{FuseFile, Unmounted};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const NOBODY: u32 = 65534;

/// Not a test of its own: [`an_ordinary_user_mounts_or_is_told_why_not`] runs it as another user.
#[test]
#[ignore = "runs as another user"]
fn mount_as_whoever_runs_this() {
    let path = std::env::var_os("MOUNT").expect("set by whoever runs this");
    let path = Path::new(&path);
    let disk = Arc::new(MemoryDisk::new(MIB, 512).expect("a disk"));
    match FuseFile::mount(disk, path, &options()) {
        Err(error) => println!("\nrefused: {error}"),
        Ok(file) => {
            assert_eq!(fs::metadata(path).expect("stat").uid(), NOBODY);
            fs::OpenOptions::new()
                .write(true)
                .open(path)
                .and_then(|file| std::os::unix::fs::FileExt::write_all_at(&file, b"hello", 1000))
                .expect("written");
            assert_eq!(fs::read(path).expect("read")[1000..1005], *b"hello");
            assert_eq!(file.unmount().expect("unmounted"), Unmounted::Idle);
            println!("\nmounted");
        }
    }
}

#[test]
fn an_ordinary_user_mounts_or_is_told_why_not() {
    let directory = tempfile::tempdir().expect("a directory");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).expect("set");
    // Where nobody may read it, wherever the build is.
    let program = directory.path().join("test");
    fs::copy(std::env::current_exe().expect("this test"), &program).expect("copied");
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("set");
    let path = directory.path().join("disk");
    let output = Command::new(&program)
        .args(["--exact", "users::mount_as_whoever_runs_this", "--ignored", "--nocapture"])
        .env("MOUNT", &path)
        .current_dir("/")
        .uid(NOBODY)
        .gid(NOBODY)
        .output()
        .expect("run as nobody: this test needs root");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    let device_mode = fs::metadata("/dev/fuse").expect("/dev/fuse").mode();
    let expected = if device_mode & 0o006 == 0o006 {
        "\nmounted"
    } else {
        "\nrefused: cannot open /dev/fuse: Permission denied (os error 13); root has to allow it"
    };
    assert!(said.contains(expected), "{said}");
    assert!(!path.exists(), "nothing is left");
}
