//! Replacing files, with and without a temporary name.

use super::new_file::{NAME_MAX_BYTES, NewFile, temporary_name};
use super::{ACL, CreateFile, NEW_PERMISSIONS, ReplacementError, ReplacementFile, rights_of_all};
use crate::tests::own_mounts::among_own_mounts;
use rustix::fs::{Mode, XattrFlags, getxattr, setxattr};
use rustix::mount::{MountFlags, mount, mount_bind};
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
fn permissions_are_taken_over_but_not_whose_rights_a_program_has() {
    for create in BOTH {
        for (mode, wanted) in
            [(0o600, 0o600), (0o640, 0o640), (0o777, 0o777), (0o4755, 0o755), (0o2711, 0o711), (0o1666, 0o666)]
        {
            let directory = tempfile::tempdir().unwrap();
            let path = directory.path().join("disk.img");
            fs::write(&path, "old").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
            replace(&path, create, b"new", false);
            assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, wanted);
        }
    }
}

#[test]
fn the_owner_is_taken_over_where_that_is_permitted() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: owners cannot be given away");
        return;
    }
    for create in BOTH {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        fs::write(&path, "old").unwrap();
        std::os::unix::fs::chown(&path, Some(1234), Some(4321)).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(0o4710)).unwrap();
        replace(&path, create, b"new", false);
        let metadata = fs::metadata(&path).unwrap();
        assert_eq!((metadata.uid(), metadata.gid(), metadata.mode() & 0o7777), (1234, 4321, 0o710));
    }
}

#[test]
fn a_new_files_permissions_are_those_of_any_new_file() {
    for create in BOTH {
        let directory = tempfile::tempdir().unwrap();
        let [path, any] = ["disk.img", "any"].map(|name| directory.path().join(name));
        fs::write(&any, "").unwrap();
        replace(&path, create, b"new", false);
        assert_eq!(fs::metadata(&path).unwrap().mode(), fs::metadata(&any).unwrap().mode());
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
    std::thread::spawn(|| {
        if rustix::process::geteuid().is_root() {
            let nobody = rustix::process::Uid::from_raw(65534);
            rustix::thread::set_thread_res_uid(nobody, nobody, nobody).unwrap();
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
fn a_companion_is_nobodys_who_may_not_read_the_file() {
    let directory = tempfile::tempdir().unwrap();
    let (path, other) = (directory.path().join("disk.img"), directory.path().join("disk.data"));
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o660)).unwrap();
    ReplacementFile::create(&path).unwrap().with_companion(&other).unwrap().commit(false).unwrap();
    let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
    assert_eq!((mode(&path), mode(&other)), (0o660, 0o660));
}

#[test]
fn a_companion_has_the_files_list_and_none_of_its_directorys() {
    for was_there in [false, true] {
        let [images, data] = [(); 2].map(|()| tempfile::tempdir_in("/dev/shm").unwrap());
        let (path, other) = (images.path().join("disk.img"), data.path().join("disk.data"));
        let inherited = acl((4321, 6), 6, 6);
        setxattr(data.path(), "system.posix_acl_default", &inherited, XattrFlags::empty()).unwrap();
        let new = || ReplacementFile::create_like(&path, Some(0o640)).unwrap().with_companion(&other).unwrap();
        let mode = |path: &Path| path.metadata().unwrap().mode() & 0o777;
        if was_there {
            fs::write(&path, "old").unwrap();
            fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        }
        new().commit(false).unwrap();
        assert!(list_of(&other).is_none(), "{:?}", list_of(&other));
        assert_eq!(mode(&other), mode(&path));
        for path in [&path, &other] {
            fs::remove_file(path).unwrap();
        }
        // Its own list, which keeps one out whom others' rights would let in: inherited, or of the file before.
        let mine = [acl((1234, 0), 0, 0), acl((1234, 4), 0, 4)];
        for mine in mine {
            match was_there {
                true => {
                    fs::write(&path, "old").unwrap();
                    setxattr(&path, ACL, &mine, XattrFlags::empty()).unwrap();
                }
                false => setxattr(images.path(), "system.posix_acl_default", &mine, XattrFlags::empty()).unwrap(),
            }
            new().commit(false).unwrap();
            assert!(list_of(&path).is_some());
            assert_eq!((list_of(&other), mode(&other)), (list_of(&path), mode(&path)));
            for path in [&path, &other] {
                fs::remove_file(path).unwrap();
            }
        }
    }
}

#[test]
fn whom_a_group_keeps_out_is_not_let_in_with_the_others() {
    assert_eq!(rights_of_all(Mode::from_raw_mode(0o604)), Mode::empty());
    assert_eq!(rights_of_all(Mode::from_raw_mode(0o664)), Mode::from_raw_mode(0o044));
    assert_eq!(rights_of_all(Mode::from_raw_mode(0o4750)), Mode::empty());
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

/// The kernel has rules on whose symbolic links are followed (proc_sys_fs(5), protected_symlinks; mount(2),
/// MS_NOSYMFOLLOW).
#[test]
fn a_link_that_the_kernel_does_not_follow_is_not_followed() {
    let directory = tempfile::tempdir().unwrap();
    let [victim, shared] = ["victim", "shared"].map(|name| directory.path().join(name));
    fs::write(&victim, "precious").unwrap();
    fs::create_dir(&shared).unwrap();
    among_own_mounts(move || {
        mount("none", &shared, "tmpfs", MountFlags::NOSYMFOLLOW, None).unwrap();
        symlink(&victim, shared.join("link")).unwrap();
        let error = ReplacementFile::create(&shared.join("link")).expect_err("replaced through the link");
        assert!(crate::explain(&error).contains("symbolic links"), "{}", crate::explain(&error));
        assert_eq!(fs::read(&victim).unwrap(), b"precious");
    });
}

#[test]
fn a_strangers_link_in_a_sticky_directory_is_followed_where_the_kernel_does() {
    let directory = tempfile::tempdir().unwrap();
    let [victim, shared] = ["victim", "shared"].map(|name| directory.path().join(name));
    fs::write(&victim, "precious").unwrap();
    fs::create_dir(&shared).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
    symlink(&victim, shared.join("link")).unwrap();
    if std::os::unix::fs::lchown(shared.join("link"), Some(1234), None).is_err() {
        eprintln!("not root: no link of somebody else's");
        return;
    }
    let by_kernel = fs::File::options().write(true).open(shared.join("link")).map(drop).map_err(|error| error.kind());
    let ours = ReplacementFile::create(&shared.join("link")).map(drop);
    assert_eq!(ours.is_ok(), by_kernel.is_ok(), "{ours:?}");
}

/// Its owner would own what replaces it.
#[test]
fn a_strangers_file_in_a_sticky_directory_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let shared = directory.path().join("shared");
    let [planted, own, link] = ["planted", "own", "link"].map(|name| shared.join(name));
    fs::create_dir(&shared).unwrap();
    fs::write(&planted, "theirs").unwrap();
    fs::write(&own, "ours").unwrap();
    symlink(&planted, &link).unwrap();
    fs::set_permissions(&planted, Permissions::from_mode(0o666)).unwrap();
    if chown(&planted, Some(1234), None).is_err() {
        eprintln!("not root: no file of somebody else's");
        return;
    }
    let inode = fs::metadata(&planted).unwrap().ino();
    for mode in [0o1777, 0o1770] {
        fs::set_permissions(&shared, Permissions::from_mode(mode)).unwrap();
        for name in [&planted, &link] {
            let refusal = refusal(name);
            assert!(refusal.contains(name.to_str().unwrap()), "{refusal}");
            assert!(refusal.ends_with("remove it, or choose another name"), "{refusal}");
        }
        ReplacementFile::create(&own).unwrap();
        ReplacementFile::create(&shared.join("new")).unwrap();
    }
    assert_eq!((fs::read(&planted).unwrap(), fs::metadata(&planted).unwrap().ino()), (b"theirs".to_vec(), inode));
    // Without both it is no such directory, and its owner's files are nobody else's doing.
    for mode in [0o777, 0o1755] {
        fs::set_permissions(&shared, Permissions::from_mode(mode)).unwrap();
        ReplacementFile::create(&planted).unwrap();
    }
    chown(&shared, Some(1234), None).unwrap();
    fs::set_permissions(&shared, Permissions::from_mode(0o1777)).unwrap();
    ReplacementFile::create(&planted).unwrap();
}

#[test]
fn a_mount_point_is_refused_before_there_is_anything_to_put_there() {
    let directory = tempfile::tempdir().unwrap();
    let [below, above] = ["below", "above"].map(|name| directory.path().join(name));
    fs::write(&below, "below").unwrap();
    fs::write(&above, "above").unwrap();
    among_own_mounts(move || {
        mount_bind(&below, &above).unwrap();
        let error = ReplacementFile::create(&above).unwrap_err();
        assert!(matches!(error, ReplacementError::MountPoint(_)), "{error}");
        // Its directory may be one.
        mount_bind(above.parent().unwrap(), above.parent().unwrap()).unwrap();
        ReplacementFile::create(&below).unwrap();
    });
}

#[test]
fn what_is_made_of_a_file_is_not_for_more_people_than_it() {
    for create in BOTH {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("disk.img");
        let mode = rustix::fs::Mode::from_raw_mode(0o600);
        let replacement = ReplacementFile::create_with(&path, mode, create).unwrap();
        assert_eq!(replacement.file().metadata().unwrap().mode() & 0o7777, 0o600, "from its first byte");
        replacement.commit(false).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o7777, 0o600);
    }
    let directory = tempfile::tempdir().unwrap();
    let [path, any] = ["disk.img", "any"].map(|name| directory.path().join(name));
    fs::write(&any, "").unwrap();
    for (of, wanted) in [
        (Some(0o4700), fs::metadata(&any).unwrap().mode() & 0o600 | 0o100),
        (None, fs::metadata(&any).unwrap().mode() & 0o777),
    ] {
        let replacement = ReplacementFile::create_like(&path, of).unwrap();
        assert_eq!(replacement.file().metadata().unwrap().mode() & 0o7777, wanted, "{of:?}");
    }
}

/// An ACL of the owner, one user, the group and others (acl(5), the kernel's posix_acl_xattr.h).
fn acl(user: (u32, u16), group: u16, mask: u16) -> Vec<u8> {
    const NOBODY: u32 = u32::MAX;
    let entries = [(1, 6, NOBODY), (2, user.1, user.0), (4, group, NOBODY), (16, mask, NOBODY), (32, 0, NOBODY)];
    let mut bytes = 2_u32.to_le_bytes().to_vec();
    for (tag, permissions, id) in entries {
        bytes.extend([u16::to_le_bytes(tag), permissions.to_le_bytes()].concat());
        bytes.extend(id.to_le_bytes());
    }
    bytes
}

/// A file's ACL, if it has one.
fn list_of(path: &Path) -> Option<Vec<u8>> {
    let mut bytes = [0; 256];
    getxattr(path, ACL, &mut bytes).ok().map(|length| bytes[..length].to_vec())
}

#[test]
fn an_acl_is_taken_over_and_none_comes_from_the_directory() {
    for create in BOTH {
        let directory = tempfile::tempdir_in("/dev/shm").unwrap();
        let [listed, plain] = ["listed", "plain"].map(|name| directory.path().join(name));
        fs::write(&listed, "old").unwrap();
        fs::write(&plain, "old").unwrap();
        fs::set_permissions(&plain, Permissions::from_mode(0o640)).unwrap();
        let mine = acl((1234, 4), 0, 4);
        setxattr(&listed, ACL, &mine, XattrFlags::empty()).unwrap();
        let inherited = acl((4321, 6), 6, 6);
        setxattr(directory.path(), "system.posix_acl_default", &inherited, XattrFlags::empty()).unwrap();
        replace(&listed, create, b"new", false);
        assert_eq!(list_of(&listed).unwrap(), mine);
        replace(&plain, create, b"new", false);
        assert!(list_of(&plain).is_none(), "{:?}", list_of(&plain));
        assert_eq!(fs::metadata(&plain).unwrap().mode() & 0o7777, 0o640);
    }
}

#[test]
fn what_users_noted_of_a_file_is_taken_over() {
    for create in BOTH {
        let directory = tempfile::tempdir_in("/var/tmp").unwrap();
        let path = directory.path().join("disk.img");
        fs::write(&path, "old").unwrap();
        let noted = "user.note";
        if let Err(errno) = setxattr(&path, noted, b"mine", XattrFlags::empty()) {
            eprintln!("no notes here: {errno}");
            return;
        }
        replace(&path, create, b"new", false);
        let mut value = [0; 16];
        assert_eq!(getxattr(&path, noted, &mut value).map(|length| value[..length].to_vec()), Ok(b"mine".to_vec()));
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
        assert!(refused.ends_with("cannot be written; change its permissions, or name another file"), "{refused}");
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
