//! Whose what replaces a file is, and who may read it.

use super::super::access_list::ACL;
use super::*;
use rustix::fs::{XattrFlags, getxattr, setxattr};
use rustix::io::Errno;

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
fn a_file_with_a_list_lets_its_owner_in_for_certain_and_nobody_else() {
    let directory = tempfile::tempdir_in("/dev/shm").unwrap();
    let path = directory.path().join("disk.img");
    fs::write(&path, "old").unwrap();
    fs::set_permissions(&path, Permissions::from_mode(0o644)).unwrap();
    let permissions = || crate::OpenedFile::open(&path, true).unwrap().permissions().unwrap();
    assert_eq!(permissions(), 0o644);
    // The group has no rights, and the bits that stand for its rights say that somebody reads and writes.
    setxattr(&path, ACL, &acl((4321, 6), 0, 6), XattrFlags::empty()).unwrap();
    assert_eq!(permissions(), 0o600);
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

/// Of a file with a list, the group's permission bits are the most that it gives to anybody, not the group's.
#[test]
fn the_list_of_a_file_that_may_only_be_written_is_taken_over() {
    const ME: u32 = 1001;
    const GROUP: u32 = 2000;
    for create in BOTH {
        // The group of old files: one of mine, and one that I cannot give away.
        for group in [GROUP, 4321] {
            let directory = tempfile::tempdir_in("/dev/shm").unwrap();
            let path = directory.path().join("disk.img");
            fs::write(&path, "old").unwrap();
            if chown(&path, Some(1002), Some(group)).is_err() {
                eprintln!("not root: no file of somebody else's");
                return;
            }
            let list = acl((ME, 2), 0, 6);
            setxattr(&path, ACL, &list, XattrFlags::empty()).unwrap();
            fs::set_permissions(&directory, Permissions::from_mode(0o777)).unwrap();
            let named = path.clone();
            as_user(ME, GROUP, move || {
                fs::read(&named).unwrap_err();
                replace(&named, create, b"new", false);
            });
            let new = fs::metadata(&path).unwrap();
            assert_eq!((fs::read(&path).unwrap(), new.uid(), new.gid()), (b"new".to_vec(), ME, GROUP));
            let wanted = if group == GROUP { (Some(list), 0o660) } else { (None, 0o600) };
            assert_eq!((list_of(&path), new.mode() & 0o7777), wanted);
        }
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
        // And not what is true of the old file alone: that it is half-changed, or a journal.
        let own = ["user.blockyard.change", "user.blockyard.journal", "user.blockyard.later"];
        for name in own {
            setxattr(&path, name, b"mark", XattrFlags::empty()).unwrap();
        }
        replace(&path, create, b"new", false);
        let mut value = [0; 16];
        assert_eq!(getxattr(&path, noted, &mut value).map(|length| value[..length].to_vec()), Ok(b"mine".to_vec()));
        for name in own {
            assert_eq!(getxattr(&path, name, &mut value), Err(Errno::NODATA), "{name}");
        }
    }
}
