//! Ordinary users.

use crate::rig::{MIB, options};
use blockyard_block::MemoryDisk;
use blockyard_session::fuse::{FuseFile, Unmounted};
use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const NOBODY: u32 = 65534;

/// Not a test of its own: [`mount_as_nobody`] runs it as another user.
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

/// Runs the above as nobody, and gives what it said.
fn mount_as_nobody(path: &Path, before: &str) -> String {
    let directory = path.parent().expect("a directory");
    fs::set_permissions(directory, fs::Permissions::from_mode(0o777)).expect("set");
    // Where nobody may read it, wherever the build is. Were it written here, another thread's fork could hold it open
    // for writing while it is executed.
    let program = directory.join("test");
    let copied = Command::new("cp").arg(std::env::current_exe().expect("this test")).arg(&program).status();
    assert!(copied.expect("cp (package coreutils)").success());
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).expect("set");
    let become_nobody = "setpriv --reuid=65534 --regid=65534 --clear-groups";
    let test = "--exact users::mount_as_whoever_runs_this --ignored --nocapture";
    let output = Command::new("unshare")
        .args(["--mount", "sh", "-e", "-c", &format!("{before}\nexec timeout 60 {become_nobody} $0 {test}")])
        .arg(&program)
        .env("MOUNT", path)
        .current_dir(directory)
        .output()
        .expect("unshare (package util-linux)");
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{said}");
    assert!(!path.exists(), "nothing is left");
    said
}

/// Gives this mount namespace a /dev/fuse of its own.
fn device_of_mode(mode: &str) -> String {
    let make = "mkdir dev; mount -t tmpfs tmpfs dev; mknod dev/fuse c 10 229";
    format!("{make}; chmod {mode} dev/fuse; mount --bind dev/fuse /dev/fuse")
}

#[test]
fn an_ordinary_user_mounts_where_the_device_is_everybody_s() {
    let directory = tempfile::tempdir().expect("a directory");
    let said = mount_as_nobody(&directory.path().join("disk"), &device_of_mode("666"));
    assert!(said.contains("\nmounted"), "{said}");
}

#[test]
fn an_ordinary_user_is_told_why_not_where_it_is_root_s() {
    let directory = tempfile::tempdir().expect("a directory");
    let said = mount_as_nobody(&directory.path().join("disk"), &device_of_mode("600"));
    let expected = "refused: cannot open /dev/fuse: Permission denied (os error 13); root has to allow it";
    assert!(said.contains(expected), "{said}");
}

#[test]
fn an_ordinary_user_is_told_what_to_install_where_there_is_no_fusermount() {
    let directory = tempfile::tempdir().expect("a directory");
    let hide = "for f in /usr/bin/fusermount3 /bin/fusermount3; do mount --bind /dev $f 2>/dev/null || mount --bind /dev/null $f; done";
    let said = mount_as_nobody(&directory.path().join("disk"), &format!("{}; {hide}", device_of_mode("666")));
    assert!(
        said.contains("refused: mounting as an ordinary user takes fusermount3: install the package fuse3"),
        "{said}"
    );
}

#[test]
fn without_a_device_the_remedy_is_named() {
    let directory = tempfile::tempdir().expect("a directory");
    let said = mount_as_nobody(&directory.path().join("disk"), "mount -t tmpfs tmpfs /dev");
    assert!(said.contains("refused: there is no /dev/fuse: load the kernel module (modprobe fuse)"), "{said}");
}
