//! Links, files and mounts that somebody else has put in the way.

use super::*;
use crate::tests::own_mounts::among_own_mounts;
use rustix::mount::{MountFlags, mount, mount_bind};

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
