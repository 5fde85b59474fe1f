//! Replacing files, with and without a temporary name.

mod rights;
mod strangers;

use super::new_file::{NAME_MAX_BYTES, NewFile, temporary_name};
use super::{CreateFile, NEW_PERMISSIONS, ReplacementError, ReplacementFile};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::ffi::OsStr;
use std::fs::{self, Permissions};
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::Command;
use tempfile::TempDir;

/// With a file system that has unnamed files (as it may be), and with one that has none.
const BOTH: [CreateFile; 2] = [NewFile::create, NewFile::create_named];

fn names_in(directory: &TempDir) -> Vec<String> {
    let mut names: Vec<_> =
        fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

fn replace(path: &Path, create: CreateFile, contents: &[u8], durable: bool) {
    let replacement = ReplacementFile::create_with(path, NEW_PERMISSIONS, create).unwrap();
    replacement.set_length(contents.len() as u64).unwrap();
    replacement.preallocate(0..contents.len() as u64).unwrap();
    replacement.file().write_all_at(contents, 0).unwrap();
    replacement.commit(durable).unwrap();
}

#[test]
fn a_new_file_appears_when_it_is_complete() {
    for (create, durable) in BOTH.into_iter().zip([true, false]) {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        let replacement = ReplacementFile::create_with(&path, NEW_PERMISSIONS, create).unwrap();
        assert!(!replacement.replaces_existing());
        assert_eq!(replacement.path(), path);
        replacement.file().write_all_at(b"new", 0).unwrap();
        assert!(!path.exists());
        replacement.commit(durable).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names_in(&directory), ["disk.img"]);
    }
}

#[test]
fn an_unnamed_file_is_used_where_the_file_system_has_them() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let replacement = ReplacementFile::create(&directory.path().join("disk.img")).unwrap();
    assert!(names_in(&directory).is_empty());
    drop(replacement);
    assert!(names_in(&directory).is_empty());
}

#[test]
fn the_old_file_stays_until_then_and_after_a_failure() {
    for create in BOTH {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        fs::write(&path, "old").unwrap();
        let replacement = ReplacementFile::create_with(&path, NEW_PERMISSIONS, create).unwrap();
        assert!(replacement.replaces_existing());
        replacement.file().write_all_at(b"half", 0).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        drop(replacement);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(names_in(&directory), ["disk.img"]);
        replace(&path, create, b"new", true);
        assert_eq!(fs::read(&path).unwrap(), b"new");
        assert_eq!(names_in(&directory), ["disk.img"]);
    }
}

#[test]
fn symbolic_links_lead_to_the_file_that_is_replaced() {
    for create in BOTH {
        let directory = tempfile::tempdir().unwrap();
        let [target_directory, link] = ["below", "link.img"].map(|name| directory.path().join(name));
        fs::create_dir(&target_directory).unwrap();
        let target = target_directory.join("disk.img");
        fs::write(&target, "old").unwrap();
        symlink("below/disk.img", &link).unwrap();
        replace(&link, create, b"new", false);
        assert_eq!(fs::read(&target).unwrap(), b"new");
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(names_in(&directory), ["below", "link.img"]);
    }
}

fn refusal(path: &Path) -> String {
    ReplacementFile::create(path).expect_err("must be refused").to_string()
}

#[test]
fn what_cannot_be_replaced_is_refused_by_name() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    symlink("missing", at("dangling")).unwrap();
    assert!(
        refusal(&at("dangling"))
            .ends_with("dangling is a symbolic link that leads nowhere: remove it, or name the file it should lead to")
    );
    symlink("loop", at("loop")).unwrap();
    assert!(refusal(&at("loop")).contains("loop"));
    assert!(refusal(directory.path()).contains("is a directory"));
    symlink(".", at("link-to-directory")).unwrap();
    assert!(refusal(&at("link-to-directory")).contains("is a directory"));
    assert!(refusal(Path::new("/dev/null")).contains("/dev/null is a character device"));
    let _listener = UnixListener::bind(at("socket")).unwrap();
    assert!(refusal(&at("socket")).contains("is a socket"));
    assert!(refusal(&at("missing/disk.img")).contains("missing: create it first"));
    assert!(refusal(&at("new/")).contains("create it first"));
    fs::write(at("file"), "").unwrap();
    assert!(refusal(&at("file/disk.img")).contains("file/disk.img"));
    assert!(refusal(Path::new("")).contains("cannot look at") || refusal(Path::new("")).contains("no directory"));
    assert!(refusal(Path::new("/")).contains("is a directory"));
    assert!(refusal(Path::new("/proc/new.img")).contains("/proc/new.img"));
    assert!(names_in(&directory).iter().all(|name| !name.contains("blockyard")));
}

#[test]
fn a_file_without_write_permission_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o444)).unwrap();
    fs::set_permissions(&directory, Permissions::from_mode(0o777)).unwrap();
    let refusal = as_ordinary_user(move || ReplacementFile::create(&path).map(drop));
    assert!(matches!(refusal, Err(ReplacementError::NotWritable { .. })), "{refusal:?}");
}

#[test]
fn a_directory_without_write_permission_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    fs::set_permissions(&directory, Permissions::from_mode(0o555)).unwrap();
    let refusal = as_ordinary_user(move || ReplacementFile::create(&path).map(drop)).unwrap_err();
    assert!(crate::explain(&refusal).contains("disk.img: Permission denied"), "{refusal}");
}

/// Runs `work` on a thread that is not root, whoever runs the tests.
fn as_ordinary_user<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    as_user(65534, 65534, work)
}

/// The same, as a user who is in one group.
fn as_user<T: Send + 'static>(user: u32, group: u32, work: impl FnOnce() -> T + Send + 'static) -> T {
    std::thread::spawn(move || {
        if rustix::process::geteuid().is_root() {
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
            set_thread_groups(&[]).unwrap();
            set_thread_res_gid(group, group, group).unwrap();
            set_thread_res_uid(user, user, user).unwrap();
        }
        work()
    })
    .join()
    .unwrap()
}

#[test]
fn what_has_been_put_at_the_name_meanwhile_stays() {
    for create in BOTH {
        for (was_there, durable) in [(false, true), (false, false), (true, true), (true, false)] {
            let directory = tempfile::tempdir().unwrap();
            let [path, other] = ["disk.img", "other"].map(|name| directory.path().join(name));
            if was_there {
                fs::write(&path, "old").unwrap();
            }
            let begin = || ReplacementFile::create_with(&path, NEW_PERMISSIONS, create).unwrap();
            let refused = |replacement: ReplacementFile| {
                let error = replacement.commit(durable).unwrap_err();
                assert!(matches!(error, ReplacementError::MadeMeanwhile(_)), "{error}");
                assert_eq!(names_in(&directory), ["disk.img"]);
            };
            let replacement = begin();
            fs::write(&other, "meanwhile").unwrap();
            fs::rename(&other, &path).unwrap();
            refused(replacement);
            assert_eq!(fs::read(&path).unwrap(), b"meanwhile");
            let replacement = begin();
            fs::remove_file(&path).unwrap();
            fs::create_dir(&path).unwrap();
            refused(replacement);
            fs::remove_dir(&path).unwrap();
            let replacement = begin();
            symlink("nowhere", &path).unwrap();
            refused(replacement);
        }
    }
}

#[test]
fn a_file_that_was_removed_meanwhile_is_no_hindrance() {
    for create in BOTH {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        fs::write(&path, "old").unwrap();
        let replacement = ReplacementFile::create_with(&path, NEW_PERMISSIONS, create).unwrap();
        fs::remove_file(&path).unwrap();
        replacement.commit(true).unwrap();
        assert_eq!(fs::read(&path).unwrap(), b"");
        assert_eq!(names_in(&directory), ["disk.img"]);
    }
}

#[test]
fn long_names_have_temporary_ones_too() {
    let directory = tempfile::tempdir().unwrap();
    let name = "n".repeat(NAME_MAX_BYTES);
    for create in BOTH {
        replace(&directory.path().join(&name), create, b"new", false);
        assert_eq!(names_in(&directory), [name.as_str()]);
    }
}

#[test]
fn temporary_names_say_whose_they_are() {
    let name = temporary_name(OsStr::new("disk.img")).into_string().unwrap();
    assert!(name.starts_with(".disk.img.blockyard-"));
    assert_eq!(name.len(), ".disk.img.blockyard-XXXXXX".len());
    assert_ne!(name, temporary_name(OsStr::new("disk.img")).into_string().unwrap());
}

#[test]
fn reserving_space_does_not_change_the_length() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    let replacement = ReplacementFile::create(&path).unwrap();
    replacement.preallocate(0..1 << 20).unwrap();
    #[expect(clippy::reversed_empty_ranges)]
    replacement.preallocate(5..5).and_then(|()| replacement.preallocate(7..5)).unwrap();
    assert_eq!(replacement.file().metadata().unwrap().len(), 0);
    replacement.set_length(4096).unwrap();
    assert_eq!(replacement.file().metadata().unwrap().len(), 4096);
    let error = replacement.set_length(u64::MAX).unwrap_err().to_string();
    assert!(error.contains("disk.img"), "{error}");
}

#[test]
fn a_file_and_its_companion_appear_together_or_not_at_all() {
    let directory = tempfile::tempdir().unwrap();
    let (path, other) = (directory.path().join("disk.img"), directory.path().join("disk.data"));
    let new = || {
        let replacement = ReplacementFile::create(&path).unwrap().with_companion(&other).unwrap();
        replacement.companion().unwrap().file().write_all_at(b"data", 0).unwrap();
        replacement
    };
    for durable in [false, true] {
        drop(new());
        assert!(names_in(&directory).is_empty());
        // Something else gets the one name, or the other, meanwhile.
        let replacement = new();
        fs::create_dir(&path).unwrap();
        assert!(matches!(replacement.commit(durable), Err(ReplacementError::MadeMeanwhile(_))));
        assert_eq!(names_in(&directory), ["disk.img"]);
        fs::remove_dir(&path).unwrap();
        let replacement = new();
        fs::write(&other, "mine").unwrap();
        assert!(matches!(replacement.commit(durable), Err(ReplacementError::MadeMeanwhile(_))));
        assert_eq!((names_in(&directory), fs::read(&other).unwrap()), (vec!["disk.data".to_owned()], b"mine".to_vec()));
        let refused = ReplacementFile::create(&path).unwrap().with_companion(&other);
        assert!(matches!(refused, Err(ReplacementError::Taken(_))));
        fs::remove_file(&other).unwrap();
        // A file that is there stays as it was.
        fs::write(&path, "old").unwrap();
        let replacement = new();
        fs::write(&other, "mine").unwrap();
        replacement.commit(durable).unwrap_err();
        assert_eq!(fs::read(&path).unwrap(), b"old");
        fs::remove_file(&other).unwrap();
        new().commit(durable).unwrap();
        assert_eq!((fs::read(&path).unwrap().len(), fs::read(&other).unwrap()), (0, b"data".to_vec()));
        fs::remove_file(&path).unwrap();
        fs::remove_file(&other).unwrap();
        // One name, said in two ways, is not two.
        let twice = directory.path().join("./disk.img");
        let refused = ReplacementFile::create(&path).unwrap().with_companion(&twice);
        assert!(matches!(refused, Err(ReplacementError::Taken(_))));
        assert!(names_in(&directory).is_empty());
    }
}

#[test]
fn a_full_file_system_is_told() {
    let directory = tempfile::tempdir().unwrap();
    let mounted = rustix::process::geteuid().is_root()
        && Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(directory.path())
            .status()
            .is_ok_and(|status| status.success());
    if !mounted {
        // No file system of a size that we know: ask for more than any has.
        let replacement = ReplacementFile::create(&directory.path().join("disk.img")).unwrap();
        replacement.preallocate(0..1 << 62).unwrap_err();
        return;
    }
    let outcome = std::panic::catch_unwind(|| fill(directory.path()));
    assert!(Command::new("umount").arg("--lazy").arg(directory.path()).status().unwrap().success());
    outcome.unwrap();
}

fn fill(directory: &Path) {
    let path = directory.join("disk.img");
    fs::write(&path, "old").unwrap();
    for create in BOTH {
        let replacement = ReplacementFile::create_with(&path, NEW_PERMISSIONS, create).unwrap();
        let error = replacement.preallocate(0..16 << 20).unwrap_err();
        assert!(matches!(error, ReplacementError::NoSpace(_)), "{error}");
        assert!(error.to_string().contains("no space left for"));
        drop(replacement);
        assert_eq!(fs::read(&path).unwrap(), b"old");
        assert_eq!(fs::read_dir(directory).unwrap().count(), 1);
    }
}

#[test]
fn what_may_not_lose_its_name_is_refused_at_once() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o666)).unwrap();
    fs::set_permissions(directory.path(), Permissions::from_mode(0o1755)).unwrap();
    drop(ReplacementFile::create(&path).unwrap());
    if rustix::process::geteuid().is_root() {
        let named = path.clone();
        let refused = as_ordinary_user(move || refusal(&named));
        assert!(refused.ends_with("which is sticky; name another file"), "{refused}");
    }
}

#[test]
fn a_name_of_a_device_that_is_not_there_is_no_place_for_a_file() {
    let directory = tempfile::tempdir().unwrap();
    symlink("/dev", directory.path().join("devices")).unwrap();
    let refused = |path: &Path| match ReplacementFile::create(path) {
        Err(ReplacementError::NoDevice(named)) => named == path,
        _ => false,
    };
    for name in
        ["/dev/blockyard-none", "/dev/blockyard-none/volume", "/dev/blockyard-none/", "/dev/../dev/blockyard-none"]
    {
        assert!(refused(Path::new(name)), "{name}");
    }
    assert!(refused(&directory.path().join("devices/blockyard-none")));
    // What is mounted there is for files, and a directory of that name elsewhere is one like others.
    let memory = tempfile::tempdir_in("/dev/shm").unwrap();
    fs::create_dir(directory.path().join("dev")).unwrap();
    for path in [memory.path().join("file"), directory.path().join("dev/file")] {
        assert!(ReplacementFile::create(&path).is_ok(), "{path:?}");
    }
}
