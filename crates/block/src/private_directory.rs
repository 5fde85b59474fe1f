//! Temporary directories in which nobody else finds anything, and that nobody puts another in the place of.
//!
//! A directory of mode 0700 is not enough for that: whoever may write in the directory round it can rename it, and put
//! one with links of his own there under its name. So only a place counts whose way from the root on nobody else can
//! change.

use crate::explain::error_at;
use crate::shown;
use crate::users::is_one_user;
use rustix::fs::{AtFlags, CWD, FileType, Mode, Stat, statat};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::ffi::OsString;
use std::fs::{self, Permissions};
use std::io;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

/// Directories that are root's on any machine: in a user namespace without root, their owner has no number.
const OF_THE_SYSTEM: [&str; 6] = ["/", "/dev", "/dev/shm", "/tmp", "/var", "/var/tmp"];

/// A new one, of which nothing is left when it is dropped: in the first that `suits` of TMPDIR, /dev/shm, /tmp and
/// /var/tmp; in the first of all if none does.
///
/// # Errors
/// When others can change what lies in each of them, or none can be made.
pub fn private_directory(suits: impl Fn(&Path) -> bool) -> io::Result<TempDir> {
    private_directory_named("blockyard-", suits)
}

/// The same, whose name begins with `prefix`.
///
/// # Errors
/// As there.
pub fn private_directory_named(prefix: &str, suits: impl Fn(&Path) -> bool) -> io::Result<TempDir> {
    let places = [std::env::temp_dir(), "/dev/shm".into(), "/tmp".into(), "/var/tmp".into()];
    // A place is looked at when those before it do not suit.
    let mut own = places.iter().filter_map(|place| unchangeable(place).ok());
    let Some(first) = own.next() else {
        let places = places.map(|place| shown(&place).to_string());
        return Err(io::Error::other(format!(
            "others can change what lies in each of {}: set TMPDIR to a directory that only you and root can change, or make one of these sticky \
             (chmod +t)",
            places.join(", ")
        )));
    };
    let suitable = if suits(&first) { None } else { own.find(|place| suits(place)) };
    make(&suitable.unwrap_or(first), prefix)
}

/// A new one in `directory`, which somebody has named, whose name begins with `prefix`.
///
/// # Errors
/// When others can change what lies in `directory`, or it cannot be made.
pub fn private_directory_in(directory: &Path, prefix: &str) -> io::Result<TempDir> {
    let unchangeable = unchangeable(directory).map_err(|error| match error.kind() {
        io::ErrorKind::PermissionDenied => io::Error::new(
            error.kind(),
            format!("{}: {error}: choose a directory that only you and root can change", shown(directory)),
        ),
        _ => error_at(directory, &error),
    })?;
    make(&unchangeable, prefix)
}

fn make(place: &Path, prefix: &str) -> io::Result<TempDir> {
    let own = Permissions::from_mode(0o700);
    let made = tempfile::Builder::new().prefix(prefix).permissions(own.clone()).tempdir_in(place);
    // The umask may have left less of them.
    made.and_then(|made| fs::set_permissions(made.path(), own).map(|()| made)).map_err(|error| error_at(place, &error))
}

/// The path of a directory without links, which leads to it until this user or root changes that.
///
/// # Errors
/// When others can change what lies in it or in a directory on the way to it, or have put a link there; when nothing is
/// there.
pub fn unchangeable(place: &Path) -> io::Result<PathBuf> {
    resolved(place, |path, status| {
        if is_link(status) {
            return if is_trusted(path, status) { Ok(()) } else { Err(refused("somebody else's link is", path)) };
        }
        if others_can_change(path, status) { Err(refused("others can change what lies in", path)) } else { Ok(()) }
    })
}

/// The path of a file without links, where nothing on the way to it, nor itself, was put by somebody else into a
/// directory that everybody may write to (as the kernel has it of links, where `fs.protected_symlinks` is set).
///
/// # Errors
/// When something was; when nothing is there.
pub fn not_planted(place: &Path) -> io::Result<PathBuf> {
    const EVERYBODYS: Mode = Mode::SVTX.union(Mode::WOTH);
    let mut round: Option<Stat> = None;
    resolved(place, |path, status| {
        let is_everybodys = |round: &Stat| Mode::from_raw_mode(round.st_mode).contains(EVERYBODYS);
        let planted = round.is_some_and(|round| is_everybodys(&round) && status.st_uid != round.st_uid)
            && !is_trusted(path, status);
        // A link leads on from where it lies.
        if !is_link(status) {
            round = Some(*status);
        }
        if planted { Err(refused("somebody else has put there", path)) } else { Ok(()) }
    })
}

fn refused(why: &str, path: &Path) -> io::Error {
    io::Error::new(io::ErrorKind::PermissionDenied, format!("{why} {}", shown(path)))
}

/// Links that are followed, as the kernel does.
const LINKS_MAX: usize = 40;

/// The path of a file without links. `judge` is called from the root on with each name on the way, and with what it
/// names: a directory, a link, or the file itself.
fn resolved(place: &Path, mut judge: impl FnMut(&Path, &Stat) -> io::Result<()>) -> io::Result<PathBuf> {
    let mut left: Vec<OsString> = std::path::absolute(place)?.iter().rev().map(OsString::from).collect();
    let mut path = PathBuf::new();
    let mut links = 0;
    while let Some(name) = left.pop() {
        let before = path.clone();
        if name == ".." {
            path.pop();
        } else {
            path.push(name);
        }
        let status = statat(CWD, &path, AtFlags::SYMLINK_NOFOLLOW)?;
        judge(&path, &status)?;
        if is_link(&status) {
            links += 1;
            if links > LINKS_MAX {
                return Err(Errno::LOOP.into());
            }
            left.extend(fs::read_link(&path)?.iter().rev().map(OsString::from));
            path = before;
        }
    }
    Ok(path)
}

fn is_link(status: &Stat) -> bool {
    FileType::from_raw_mode(status.st_mode) == FileType::Symlink
}

/// Whether only this user or root decides over a file.
fn is_trusted(path: &Path, status: &Stat) -> bool {
    let owner = status.st_uid;
    let is_certain = is_one_user(owner);
    let is_roots = owner == 0 || !is_certain && OF_THE_SYSTEM.iter().any(|own| path == Path::new(own));
    is_roots || is_certain && owner == geteuid().as_raw()
}

/// Whether somebody else can give a name in a directory to another file, be it the directory's owner.
fn others_can_change(directory: &Path, status: &Stat) -> bool {
    if FileType::from_raw_mode(status.st_mode) != FileType::Directory || !is_trusted(directory, status) {
        return true;
    }
    // Of the bits, the group's are also those that an access control list can give to anybody. Who is in a group, and
    // will be, is not to be told.
    let mode = Mode::from_raw_mode(status.st_mode);
    !mode.contains(Mode::SVTX) && mode.intersects(Mode::WGRP | Mode::WOTH)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::unknown_users::among_unknown_users;
    use rustix::fs::{Uid, chown};
    use std::os::unix::fs::symlink;

    fn with_mode(path: &Path, mode: u32) -> PathBuf {
        fs::create_dir_all(path).unwrap();
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
        path.to_owned()
    }

    #[test]
    fn a_place_is_one_that_nobody_else_can_change_nor_the_way_to_it() {
        let own = tempfile::tempdir().unwrap();
        let own = own.path();
        assert!(unchangeable(&with_mode(&own.join("own"), 0o755)).is_ok());
        assert!(unchangeable(&with_mode(&own.join("sticky"), 0o1777)).is_ok());
        assert!(unchangeable(&with_mode(&own.join("own/group"), 0o755)).is_ok());
        // Who is in a group is not to be told, and this is also what a directory with an access control list is like.
        assert!(unchangeable(&with_mode(&own.join("groups"), 0o775)).is_err());
        let open = with_mode(&own.join("open"), 0o777);
        let below = with_mode(&open.join("below"), 0o700);
        symlink(&below, own.join("link")).unwrap();
        for place in [open.clone(), below, own.join("link"), own.join("open/../open/below")] {
            let error = unchangeable(&place).unwrap_err().to_string();
            assert_eq!(error, format!("others can change what lies in {}", shown(&fs::canonicalize(&open).unwrap())));
        }
        assert!(private_directory_in(&open, "x").unwrap_err().to_string().starts_with(&shown(&open).to_string()));
        assert_eq!(fs::read_dir(&open).unwrap().count(), 1);
        assert_eq!(unchangeable(&own.join("nothing")).unwrap_err().kind(), io::ErrorKind::NotFound);
    }

    #[test]
    fn another_users_directory_is_no_place_however_its_mode_is() {
        if !geteuid().is_root() {
            return;
        }
        let own = tempfile::tempdir().unwrap();
        for mode in [0o700, 0o755, 0o1777] {
            let others = with_mode(&own.path().join(format!("{mode:o}")), mode);
            chown(&others, Some(Uid::from_raw(12345)), None).unwrap();
            assert!(unchangeable(&others).is_err());
            assert!(not_planted(&others).is_ok(), "it lies where only we put something");
        }
    }

    #[test]
    fn what_another_user_puts_where_everybody_may_leads_nowhere() {
        if !geteuid().is_root() {
            return;
        }
        let own = tempfile::tempdir().unwrap();
        let (everybodys, ours) =
            (with_mode(&own.path().join("tmp"), 0o1777), with_mode(&own.path().join("ours"), 0o755));
        let links = ["theirs", "own", "round", "on"].map(|name| everybodys.join(name));
        for link in &links[..2] {
            symlink(&ours, link).unwrap();
        }
        symlink("round", &links[2]).unwrap();
        symlink("directory/below", &links[3]).unwrap();
        let directory = with_mode(&everybodys.join("directory"), 0o777);
        for theirs in [&links[0], &directory] {
            let flags = AtFlags::SYMLINK_NOFOLLOW;
            rustix::fs::chownat(CWD, theirs, Some(Uid::from_raw(12345)), None, flags).unwrap();
        }
        let below = with_mode(&directory.join("below"), 0o755);
        for place in [&links[0], &links[3], &directory, &below] {
            for judged in [unchangeable(place), not_planted(place)] {
                assert_eq!(judged.unwrap_err().kind(), io::ErrorKind::PermissionDenied, "{}", shown(place));
            }
        }
        for judged in [unchangeable(&links[1]), not_planted(&links[1])] {
            assert_eq!(judged.unwrap(), fs::canonicalize(&ours).unwrap());
        }
        assert_eq!(not_planted(&links[2]).unwrap_err().raw_os_error(), Some(libc::ELOOP));
    }

    #[test]
    fn it_is_made_where_it_suits_for_this_user_alone() {
        let made = private_directory(|place| place == Path::new("/tmp")).unwrap();
        assert_eq!(made.path().parent(), Some(Path::new("/tmp")));
        assert_eq!(fs::metadata(made.path()).unwrap().permissions().mode() & 0o7777, 0o700);
        assert!(private_directory(|_| false).is_ok());
    }

    #[test]
    fn an_owner_who_may_be_anybody_is_not_this_user() {
        let test = "private_directory::tests::an_owner_who_may_be_anybody_is_not_this_user";
        let own = among_unknown_users(
            test,
            || tempfile::tempdir().unwrap(),
            |own| {
                let error = private_directory_in(own, "x").unwrap_err().to_string();
                assert!(error.contains("others can change what lies in"), "{error}");
                // The system's directories are as good as they are to everybody.
                assert!(private_directory(|_| true).is_ok());
            },
        );
        assert!(private_directory_in(own.path(), "x").is_ok());
    }
}
