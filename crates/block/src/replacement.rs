//! Output files that are written beside their name and take its place when they are complete.

mod access_list;
mod error;
mod hints;
mod new_file;
mod new_place;
#[cfg(test)]
mod tests;

use crate::users::{group_has_number, has_number};
use crate::{FileIdentity, OpenedFile, size};
use access_list::AccessList;
pub(crate) use access_list::permissions;
pub use error::ReplacementError;
pub use hints::{FileHints, UnknownHint};
pub(crate) use new_file::NewFile;
use new_place::{Attributes, NewPlace};
pub use new_place::{refuse_missing_device, refuse_strangers};
use rustix::fs::{
    AtFlags, FallocateFlags, Gid, Mode, Uid, XattrFlags, fallocate, fchmod, fchown, fgetxattr, flistxattr, fsetxattr,
    fstat, fsync, statat, unlinkat,
};
use rustix::io::Errno;
use std::fs::File;
use std::ops::Range;
use std::os::fd::OwnedFd;
use std::path::Path;

/// Permission bits alone, without set-user-ID, set-group-ID and sticky.
const PERMISSIONS: Mode = Mode::from_raw_mode(0o777);

/// Those of a file whose contents come from nowhere in particular: what the umask leaves of them.
const NEW_PERMISSIONS: Mode = Mode::from_raw_mode(0o666);

/// Those of a file that has not its rights yet.
const OWNERS_ALONE: Mode = Mode::from_raw_mode(0o600);

/// Longest extended attribute that there can be, and longest list of their names (xattr(7)).
const XATTR_BYTES_MAX: usize = 64 << 10;

/// How the attributes begin that say what Blockyard has done to a file: that an image is half-changed, for one. They
/// are that file's, and not true of another one.
const OWN_ATTRIBUTES: &[u8] = b"user.blockyard.";

/// A file that is being written to replace the one at a path, or to appear there.
///
/// Until [`ReplacementFile::commit`] the path is as it was. Where the file system can, the file has no name until then,
/// so that a killed process leaves nothing half written behind: a file that replaces another is
/// `.NAME.blockyard-XXXXXX` only from when it is complete until it is renamed. Elsewhere it has such a name from the
/// start, removed on drop. Hard links to the old file keep the old contents. The old file is locked as an image that is
/// written ([`FileOptions::lock`](crate::FileOptions::lock)): nobody may go on with a file that has lost its name.
#[derive(Debug)]
pub struct ReplacementFile {
    new: NewFile,
    /// With the old file, which is locked as long as it is open.
    destination: NewPlace,
    /// A file that this one is of no use without.
    companion: Option<Box<Self>>,
}

impl ReplacementFile {
    /// Starts to replace `path`, or the file that it leads to through symbolic links. The new file is empty and open
    /// for reading and writing. It has the old one's permissions and ACL and, where this user may give it away, its
    /// owner, but is no set-user-ID or set-group-ID file: what is written comes from elsewhere. One that replaces
    /// nothing has what the umask leaves of 0666.
    ///
    /// # Errors
    /// When the path is anything but a regular file or free, is a symbolic link that leads nowhere or must not be
    /// followed, is a mount point, is not writable, is in use by another program, or is a device's that is not there;
    /// or its directory does not exist or takes no new files.
    pub fn create(path: &Path) -> Result<Self, ReplacementError> {
        Self::create_with(path, NEW_PERMISSIONS, NewFile::create)
    }

    /// The same, for contents that come from a file with these permission bits: one that replaces nothing has what the
    /// umask leaves of them, from its first byte, as cp(1) has it. `None`: the contents come from no file.
    ///
    /// # Errors
    /// As [`ReplacementFile::create`].
    pub fn create_like(path: &Path, permissions: Option<u32>) -> Result<Self, ReplacementError> {
        let mode = permissions.map_or(NEW_PERMISSIONS, |permissions| Mode::from_raw_mode(permissions) & PERMISSIONS);
        Self::create_with(path, mode, NewFile::create)
    }

    fn create_with(path: &Path, mode: Mode, create: CreateFile) -> Result<Self, ReplacementError> {
        let destination = NewPlace::find(path)?;
        let place = &destination.place;
        let directory = place.readable_directory();
        let directory = directory.map_err(|error| ReplacementError::new("open the directory of", path, error))?;
        // Until it has the old one's rights, it is for its owner: who opens a file may read what is written later.
        let mode = destination.replaces.as_ref().map_or(mode, |_| OWNERS_ALONE);
        let new = create(directory, &place.name, mode)
            .map_err(|errno| ReplacementError::new("create a file beside", &place.path, errno))?;
        let replacement = Self { new, destination, companion: None };
        if let Some(old) = &replacement.destination.replaces {
            replacement.take_over_attributes(&old.attributes)?;
            replacement.take_over_labels(&old.attributes);
        }
        Ok(replacement)
    }

    /// The same, with another file, at `path`, that this one is of no use without: it gets its name just before this
    /// one does, and loses it again when this one gets none. It replaces nothing, and nobody may read it who may not
    /// read this one.
    ///
    /// # Errors
    /// As [`ReplacementFile::create`]; and when something has that name, or is to have it.
    pub fn with_companion(self, path: &Path) -> Result<Self, ReplacementError> {
        // Before it is opened, as it may be what the contents come from.
        if path.symlink_metadata().is_ok() {
            return Err(ReplacementError::Taken(path.to_owned()));
        }
        let companion = Self::create_with(path, OWNERS_ALONE, NewFile::create)?;
        // By another path, the two may be one.
        let directory = |of: &Self| FileIdentity::of_open(of.new.directory()).ok();
        if companion.destination.place.name == self.destination.place.name && directory(&companion) == directory(&self)
        {
            return Err(ReplacementError::Taken(path.to_owned()));
        }
        companion.take_over_attributes(&self.attributes()?)?;
        Ok(Self { companion: Some(Box::new(companion)), ..self })
    }

    /// The other file that comes with it, for whoever writes it.
    pub fn companion(&self) -> Option<&Self> {
        self.companion.as_deref()
    }

    /// Who may do what with the new file.
    fn attributes(&self) -> Result<Attributes, ReplacementError> {
        let status = fstat(self.file()).map_err(|errno| self.failed("look at the new file for", errno))?;
        let file = self.file().try_clone().map_err(|error| self.failed("look at the new file for", error))?;
        let mode = Mode::from_raw_mode(status.st_mode);
        let list = AccessList::of(&file);
        Ok(Attributes { mode, user: status.st_uid, group: status.st_gid, list, file: Some(file) })
    }

    /// Gives the new file another one's owner, group, permissions and list, or less: nobody may do more with it.
    fn take_over_attributes(&self, old: &Attributes) -> Result<(), ReplacementError> {
        let new = fstat(self.file()).map_err(|errno| self.failed("look at the new file for", errno))?;
        // Whose number only stands for somebody else's gets nothing.
        let user = has_number(old.user).then(|| Uid::from_raw(old.user));
        let group = group_has_number(old.group).then(|| Gid::from_raw(old.group));
        let mut grouped_alike = group.is_some() && new.st_gid == old.group;
        if (new.st_uid, new.st_gid) != (old.user, old.group) {
            // The group alone is better than nothing, and nothing is what other users of `cp` get.
            let is_given = fchown(self.file(), user, group).is_ok() || fchown(self.file(), None, group).is_ok();
            grouped_alike |= group.is_some() && is_given;
        }
        let is_listed_alike = old.list.give(self.file(), grouped_alike);
        let mode = old.list.rights(old.mode, grouped_alike, is_listed_alike);
        fchmod(self.file(), mode).map_err(|errno| self.failed("set the permissions of", errno))
    }

    /// Gives the new file what else is said of the old one, as far as that is possible: by whom it may be used in the
    /// eyes of SELinux, and what users have noted.
    fn take_over_labels(&self, old: &Attributes) {
        let Some(file) = &old.file else { return };
        let mut names = Vec::with_capacity(XATTR_BYTES_MAX);
        let mut value = Vec::with_capacity(XATTR_BYTES_MAX);
        if flistxattr(file, rustix::buffer::spare_capacity(&mut names)).is_err() {
            return;
        }
        for name in names.split(|&byte| byte == 0) {
            let is_noted = name.starts_with(b"user.") && !name.starts_with(OWN_ATTRIBUTES);
            if is_noted || name == b"security.selinux" {
                value.clear();
                // There is nobody to tell, and the file is as good without.
                let _ = fgetxattr(file, name, rustix::buffer::spare_capacity(&mut value))
                    .and_then(|_| fsetxattr(self.file(), name, &value, XattrFlags::empty()));
            }
        }
    }

    /// Where the file will be: the path it was created for, symbolic links resolved.
    pub fn path(&self) -> &Path {
        self.destination.path()
    }

    /// Whether there is a file already that this one will replace.
    pub fn replaces_existing(&self) -> bool {
        self.destination.replaces.is_some()
    }

    /// The file, for whoever writes it.
    pub fn file(&self) -> &File {
        self.new.file()
    }

    /// Sets the file's length: what is new reads as zeros.
    ///
    /// # Errors
    /// When the file system cannot hold a file of that length.
    pub fn set_length(&self, length_bytes: u64) -> Result<(), ReplacementError> {
        size::set_length(self.file(), length_bytes).map_err(|error| self.failed("set the length of", error))
    }

    /// Reserves storage for a range, without changing the file's length. On a file system that cannot, does nothing.
    ///
    /// # Errors
    /// When there is not enough space.
    pub fn preallocate(&self, range: Range<u64>) -> Result<(), ReplacementError> {
        if range.is_empty() {
            return Ok(());
        }
        loop {
            match fallocate(self.file(), FallocateFlags::KEEP_SIZE, range.start, range.end - range.start) {
                Ok(()) | Err(Errno::OPNOTSUPP | Errno::NOSYS) => return Ok(()),
                Err(Errno::INTR) => {}
                Err(errno) => return Err(self.failed("reserve space for", errno)),
            }
        }
    }

    /// Puts the file in its place. `durable`: it is on stable storage, under its name, when this returns; otherwise
    /// the page cache has it.
    ///
    /// # Errors
    /// When the file cannot be made stable or cannot take its place; then it is gone and the old file is as it was,
    /// unless only the directory could not be made stable.
    pub fn commit(mut self, durable: bool) -> Result<(), ReplacementError> {
        let mut companion = self.companion.take();
        if durable {
            companion.iter().try_for_each(|companion| companion.sync())?;
            self.sync()?;
        }
        if let Some(companion) = &mut companion {
            companion.take_place()?;
            let synced = if durable { companion.sync_directory() } else { Ok(()) };
            synced.inspect_err(|_| companion.lose_place())?;
        }
        self.take_place().inspect_err(|_| companion.iter().for_each(|companion| companion.lose_place()))?;
        if durable { self.sync_directory() } else { Ok(()) }
    }

    fn sync(&self) -> Result<(), ReplacementError> {
        fsync(self.file()).map_err(|errno| self.failed("write to stable storage", errno))
    }

    fn sync_directory(&self) -> Result<(), ReplacementError> {
        // Whatever that says, the file has its name.
        fsync(self.new.directory()).map_err(|errno| ReplacementError::Failed {
            action: "write to stable storage the directory of",
            path: self.path().to_owned(),
            source: errno.into(),
        })
    }

    /// Gets its name, if what has it is what had it at first: nobody else's file goes with its name.
    fn take_place(&mut self) -> Result<(), ReplacementError> {
        let NewPlace { place, replaces } = &self.destination;
        let placed = match replaces {
            Some(old) => self.new.take_place(&place.name, old.identity),
            None => self.new.take_free_place(&place.name),
        };
        placed.map_err(|errno| match errno {
            Errno::EXIST => ReplacementError::MadeMeanwhile(self.path().to_owned()),
            _ => self.failed("put the finished file in the place of", errno),
        })
    }

    /// Has no name any more, if it is still the one that has it.
    fn lose_place(&self) {
        let place = &self.destination.place;
        let found = statat(&place.directory, &place.name, AtFlags::SYMLINK_NOFOLLOW);
        if found.is_ok_and(|found| FileIdentity::of(&found).is_of(self.file())) {
            // There is nobody to tell, and nothing else to try.
            let _ = unlinkat(&place.directory, &place.name, AtFlags::empty());
        }
    }

    /// As [`ReplacementFile::commit`], and keeps the file open: for who goes on with this very file, whatever has its
    /// name by then.
    ///
    /// # Errors
    /// As there.
    pub fn commit_open(self, durable: bool) -> Result<OpenedFile, ReplacementError> {
        let file = self.file().try_clone().map_err(|error| self.failed("keep open", error))?;
        let path = self.path().to_owned();
        self.commit(durable)?;
        Ok(OpenedFile::new(file, path))
    }

    fn failed(&self, action: &'static str, source: impl Into<std::io::Error>) -> ReplacementError {
        ReplacementError::new(action, self.path(), source)
    }
}

/// How the new file is made in a directory: [`NewFile::create`].
type CreateFile = fn(OwnedFd, &std::ffi::OsStr, Mode) -> rustix::io::Result<NewFile>;
