//! Permissions, owners and extended attributes.

use crate::directory_walk::write_record;
use crate::failures::{Failures, failure, refusal};
use crate::glob;
use crate::interruption;
use crate::mounts::path_of;
use crate::owner_names::OwnerNames;
use crate::seen_directories::SeenDirectories;
use blockyard_protocol::appliance::{
    Attribute, ChangeMode, ChangeOwner, FRAME_BYTES_MAX, Failure, ReadAttributes, Record, SetAttribute,
};
use blockyard_protocol::file_mode::applied;
use rustix::fs::{
    XattrFlags, getxattr, lgetxattr, listxattr, llistxattr, lremovexattr, lsetxattr, removexattr, setxattr,
};
use rustix::io::Errno;
use std::fs::{self, Metadata, Permissions};
use std::io::{self, Write};
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

/// Longest value of an extended attribute, and longest list of their names (xattr(7)).
const ATTRIBUTE_BYTES_MAX: usize = 1 << 16;

/// Writes a record for each extended attribute of a file to `sink`, in order of name.
pub(crate) fn read(request: &ReadAttributes, sink: &mut dyn Write) -> io::Result<()> {
    let path = path_of(&request.path);
    let mut frame = vec![0; FRAME_BYTES_MAX];
    match all_of(path, request.follow) {
        Err(error) => {
            let what = "cannot read the extended attributes of";
            write_record(&Record::Failure(failure(path, what, &error)), &mut frame, sink)
        }
        Ok(attributes) => attributes.into_iter().try_for_each(|attribute| {
            // The longest are longer than a record.
            let record = match attribute.name.len() + attribute.value.len() + RECORD_OVERHEAD_BYTES > FRAME_BYTES_MAX {
                true => Record::Failure(failure(path, "an extended attribute is too long", &Errno::TOOBIG.into())),
                false => Record::Attribute(attribute),
            };
            write_record(&record, &mut frame, sink)
        }),
    }
}

/// What an attribute takes in a record besides its bytes, and more.
const RECORD_OVERHEAD_BYTES: usize = 64;

fn all_of(path: &Path, follow: bool) -> io::Result<Vec<Attribute>> {
    let mut names = vec![0; ATTRIBUTE_BYTES_MAX];
    let length = if follow { listxattr(path, &mut names[..])? } else { llistxattr(path, &mut names[..])? };
    let mut names: Vec<_> = names[..length].split(|&byte| byte == 0).filter(|name| !name.is_empty()).collect();
    names.sort_unstable();
    let mut value = vec![0; ATTRIBUTE_BYTES_MAX];
    let mut one = |name: &[u8]| -> io::Result<Attribute> {
        let bytes = if follow { getxattr(path, name, &mut value[..])? } else { lgetxattr(path, name, &mut value[..])? };
        Ok(Attribute { name: name.to_vec(), value: value[..bytes].to_vec() })
    };
    names.into_iter().map(&mut one).collect()
}

/// setfattr(1).
pub(crate) fn set(request: &SetAttribute) -> Result<(), Failure> {
    let SetAttribute { path, follow, name, value } = request;
    let (path, name) = (path_of(path), name.as_slice());
    let done = match (value, follow) {
        (None, true) => removexattr(path, name),
        (None, false) => lremovexattr(path, name),
        (Some(value), true) => setxattr(path, name, value, XattrFlags::empty()),
        (Some(value), false) => lsetxattr(path, name, value, XattrFlags::empty()),
    };
    done.map_err(|errno| failure(path, "cannot change an extended attribute of", &errno.into()))
}
