//! Permissions and owners.

use crate::failures::{Failures, refusal};
use crate::glob;
use crate::interruption;
use crate::owner_names::OwnerNames;
use crate::seen_directories::SeenDirectories;
use blockyard_protocol::appliance::{ChangeMode, ChangeOwner, Failure, ModeClause};
use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt, chown, lchown};
use std::path::{Path, PathBuf};

/// chmod(1).
pub(crate) fn change_mode(request: &ChangeMode, failures: &mut Failures) {
    glob::each(&request.paths, failures, |path, failures| {
        // A path that was named is followed; a link that was come across is left alone.
        visit(&path, fs::metadata(&path), request.recursive, failures, &mut |path, metadata| {
            if metadata.is_symlink() {
                return Ok(());
            }
            let mode = request.clauses.iter().fold(metadata.mode(), |mode, clause| applied(clause, mode));
            fs::set_permissions(path, Permissions::from_mode(mode & 0o7777))
        });
    });
}

/// A file's mode after one clause.
fn applied(clause: &ModeClause, mode: u32) -> u32 {
    let is_directory = mode & 0o170_000 == 0o040_000;
    let mut bits = match clause.copy_from {
        0 => clause.bits,
        from => {
            let shift = match from as u8 {
                b'u' => 6,
                b'g' => 3,
                _ => 0,
            };
            let copied = (mode >> shift) & 0o7;
            copied * 0o111
        }
    };
    if clause.if_executable && (is_directory || mode & 0o111 != 0) {
        bits |= 0o111;
    }
    let bits = bits & clause.affected;
    match clause.operator as u8 {
        b'+' => mode | bits,
        b'-' => mode & !bits,
        // A directory keeps its set-ID bits unless they are named, as chmod(1) has it.
        _ => {
            let kept = if is_directory { 0o6000 } else { 0 };
            (mode & !(clause.affected & !kept)) | bits
        }
    }
}

/// chown(1).
pub(crate) fn change_owner(request: &ChangeOwner, failures: &mut Failures) -> Result<(), Failure> {
    let number = |names: OwnerNames, name: &str, kind: &str| match name {
        "" => Ok(None),
        name => names.number(name).map(Some).ok_or_else(|| refusal(format!("the image has no {kind} {name}"))),
    };
    let user = number(OwnerNames::users(), &request.user, "user")?;
    let group = number(OwnerNames::groups(), &request.group, "group")?;
    glob::each(&request.paths, failures, |path, failures| {
        let follows = !request.no_dereference && !request.recursive;
        let metadata = if follows { fs::metadata(&path) } else { fs::symlink_metadata(&path) };
        visit(&path, metadata, request.recursive, failures, &mut |path, metadata| {
            if !metadata.is_symlink() && has_no_owners(path)? {
                return Err(io::Error::other("its file system has no owners"));
            }
            if follows { chown(path, user, group) } else { lchown(path, user, group) }
        });
    });
    Ok(())
}

/// Whether a file's owner cannot be changed, whatever the kernel says to it: FAT is mounted with `quiet`.
fn has_no_owners(path: &Path) -> io::Result<bool> {
    /// statfs(2).
    const MSDOS_SUPER_MAGIC: u64 = 0x4d44;
    Ok(rustix::fs::statfs(path)?.f_type as u64 == MSDOS_SUPER_MAGIC)
}

/// Does `change` to a file, and, if wanted, to all below it.
fn visit(
    path: &Path,
    metadata: io::Result<Metadata>,
    recursive: bool,
    failures: &mut Failures,
    change: &mut dyn FnMut(&Path, &Metadata) -> io::Result<()>,
) {
    let mut seen = SeenDirectories::default();
    let mut pending: Vec<(PathBuf, io::Result<Metadata>)> = vec![(path.to_owned(), metadata)];
    while let Some((path, metadata)) = pending.pop() {
        let metadata = match metadata {
            Ok(metadata) => metadata,
            Err(error) => {
                failures.note(&path, "cannot access", Err(error));
                continue;
            }
        };
        failures.note(&path, "cannot change", change(&path, &metadata));
        if !recursive || !metadata.is_dir() || !seen.is_new(&metadata) {
            continue;
        }
        if let Err(error) = interruption::check() {
            return failures.note(&path, "cannot change", Err(error));
        }
        match fs::read_dir(&path) {
            Ok(entries) => pending.extend(entries.flatten().map(|entry| (entry.path(), entry.metadata()))),
            Err(error) => failures.note(&path, "cannot list", Err(error)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn clause(affected: u32, operator: u8, bits: u32) -> ModeClause {
        ModeClause { affected, operator: operator.into(), bits, ..ModeClause::default() }
    }

    #[test]
    fn clauses_do_what_chmod_does() {
        assert_eq!(applied(&clause(0o7777, b'=', 0o644), 0o100_777), 0o100_644);
        assert_eq!(applied(&clause(0o4700, b'+', 0o111), 0o100_600), 0o100_700);
        assert_eq!(applied(&clause(0o1007, b'-', 0o666), 0o100_666), 0o100_660);
        let executable =
            ModeClause { affected: 0o777, operator: b'+'.into(), if_executable: true, ..Default::default() };
        assert_eq!(applied(&executable, 0o100_644), 0o100_644);
        assert_eq!(applied(&executable, 0o040_644), 0o040_755);
        let copy = ModeClause { affected: 0o070, operator: b'='.into(), copy_from: b'u'.into(), ..Default::default() };
        assert_eq!(applied(&copy, 0o100_704), 0o100_774);
    }
}
