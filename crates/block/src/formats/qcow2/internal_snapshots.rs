//! Snapshots that are kept inside of an image, as `image snapshot` lists and changes them.

use super::chain;
use super::copies;
use super::header::Header;
use super::metadata::{Metadata, NewSnapshot};
use super::own_file;
use super::repair::Qcow2Check;
use super::snapshots::{self, FoundSnapshot};
use super::{Qcow2Disk, Qcow2Snapshot};
use crate::formats::{AllowedDirectories, ImageError, Repair};
use crate::{FileOptions, OpenedFile, Remedy};
use std::io;
use std::time::{SystemTime, UNIX_EPOCH};

/// What is kept of a name: the format has no more room, and nobody can read more.
const NAME_MAX_BYTES: usize = 1023;

/// Most snapshots: QEMU's limit.
const SNAPSHOTS_MAX: usize = 65536;

/// An image that is whole, with its tables and its snapshots.
struct Change<'a> {
    image: &'a OpenedFile,
    header: Header,
    metadata: Metadata,
    found: Vec<FoundSnapshot>,
}

impl Qcow2Disk {
    /// The snapshots that an image has inside, in the order in which they were made.
    ///
    /// # Errors
    /// When the image is none, or its table of snapshots cannot be read.
    pub fn snapshots(image: &OpenedFile) -> Result<Vec<Qcow2Snapshot>, ImageError> {
        let header = own_file::parse_header(image.file(), image.path(), Header::parse_to_read)?;
        let failed = failed(image, "read the snapshots of");
        let file = own_file::image_file(image.file()).map_err(&failed)?;
        Ok(snapshots::found(&file, &header).map_err(&failed)?.into_iter().map(|found| found.described).collect())
    }

    /// Makes a snapshot of the disk as it is, inside of its image, which is open for writing, and locked.
    ///
    /// # Errors
    /// As [`Qcow2Disk::open`] for writing; when there is one of that name, or no room for one, or the image is damaged.
    pub fn make_snapshot(image: &OpenedFile, name: &str, allowed: &AllowedDirectories) -> Result<(), ImageError> {
        if name.is_empty() || name.len() > NAME_MAX_BYTES || name.contains('\0') {
            return Err(ImageError::Invalid(format!(
                "a snapshot's name has 1 to {NAME_MAX_BYTES} bytes, none of them 0"
            )));
        }
        let mut change = Change::new(image, allowed)?;
        if change.header.data_file.is_some() {
            return Err(change.refused("has its data in another file, of which a snapshot cannot keep what it holds"));
        }
        if change.found.iter().any(|found| found.described.name == name) {
            return Err(change.refused(&format!("has a snapshot {name:?} already")));
        }
        if change.found.len() >= SNAPSHOTS_MAX {
            return Err(change.refused(&format!("has {SNAPSHOTS_MAX} snapshots, and can have no more")));
        }
        // One that no other has, and no other had while this one may still be remembered.
        let ids = change.found.iter().filter_map(|found| found.described.id.parse::<u64>().ok());
        let id = ids.max().unwrap_or(0).saturating_add(1).to_string();
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let date = (u32::try_from(now.as_secs()).unwrap_or(u32::MAX), now.subsec_nanos());
        let new = NewSnapshot { id: &id, name, date, size_bytes: change.header.size_bytes };
        let made = change.metadata.make_snapshot(&change.header, &new);
        change.finish(made, "make a snapshot of", "has the snapshot")
    }

    /// Makes the disk what it was when a snapshot was made: the one with the id `which`, or that name.
    ///
    /// # Errors
    /// As [`Qcow2Disk::open`] for writing; when there is no such snapshot, or the image is damaged.
    pub fn apply_snapshot(image: &OpenedFile, which: &str, allowed: &AllowedDirectories) -> Result<(), ImageError> {
        let mut change = Change::new(image, allowed)?;
        let found = change.found(either(&change.found, which), which)?;
        // Their bits would have to be those of what differs, and their size that of the disk.
        if change.header.bitmaps.is_some_and(|bitmaps| bitmaps.bitmaps > 0) {
            return Err(
                change.refused("has bitmaps of what is written to it: remove them first (image bitmap --remove)")
            );
        }
        let as_disk = Header { l1: found.l1, size_bytes: found.size_bytes, ..change.header.clone() };
        let failed = failed(image, "read the snapshots of");
        let file = own_file::image_file(image.file()).map_err(&failed)?;
        if copies::has_two_uses(&file, &as_disk).map_err(&failed)? {
            let problem = "has a snapshot with two uses of one cluster, which is damage: convert it (image convert -l)";
            return Err(change.refused(problem));
        }
        let applied = change.metadata.apply_snapshot(&found);
        change.finish(applied, "apply a snapshot of", "shows what the snapshot does")
    }

    /// Removes a snapshot from an image: the first of that name. An id is no name, as another's name may be one.
    ///
    /// # Errors
    /// As [`Qcow2Disk::apply_snapshot`].
    pub fn remove_snapshot(image: &OpenedFile, name: &str, allowed: &AllowedDirectories) -> Result<(), ImageError> {
        let mut change = Change::new(image, allowed)?;
        let found = change.found(with_name(&change.found, name), name)?;
        let removed = change.metadata.remove_snapshot(&change.header, &found);
        change.finish(removed, "remove a snapshot of", "has the snapshot no more")
    }
}

impl<'a> Change<'a> {
    fn new(image: &'a OpenedFile, allowed: &AllowedDirectories) -> Result<Self, ImageError> {
        let path = image.path().to_owned();
        let failed = failed(image, "read the snapshots of");
        let header = whole_header(image)?;
        let file = own_file::image_file(image.file()).map_err(&failed)?;
        let found = snapshots::found(&file, &header).map_err(&failed)?;
        let handle = image.file().try_clone().map_err(&failed)?;
        let metadata = chain::open_in(handle, &path, &FileOptions::default(), allowed)?.into_metadata(&path)?;
        Ok(Self { image, header, metadata, found })
    }

    fn found(&self, found: Option<&FoundSnapshot>, which: &str) -> Result<FoundSnapshot, ImageError> {
        found.cloned().ok_or_else(|| self.refused(&format!("has no snapshot {which:?}")))
    }

    fn refused(&self, problem: &str) -> ImageError {
        ImageError::Unusable { path: self.image.path().to_owned(), problem: problem.to_owned() }
    }

    /// Tells what became of it: `is_so` says what is so since the one sector was written by which it comes into force.
    fn finish(mut self, done: io::Result<()>, action: &'static str, is_so: &str) -> Result<(), ImageError> {
        // What was reserved is given back whatever became of it.
        let closed = self.metadata.close().and_then(|()| self.metadata.sync());
        let Err(error) = done.and(closed) else { return Ok(()) };
        let now = own_file::parse_header(self.image.file(), self.image.path(), Header::parse_to_read);
        let is_in_force = now.is_ok_and(|now| now.snapshots != self.header.snapshots || now.l1 != self.header.l1);
        match is_in_force {
            true => Err(self
                .refused(&format!("{is_so}, but what is to be done then failed ({error}): {}", Remedy::RepairImage))),
            false => Err(failed(self.image, action)(error)),
        }
    }
}

/// The header of an image that is whole: nothing is to be counted anew that was not counted right before.
pub(super) fn whole_header(image: &OpenedFile) -> Result<Header, ImageError> {
    let header = own_file::header_to_change(image.file(), image.path())?;
    let report = Qcow2Check::open(image, false)?.run(Repair::None, &mut |_| ())?;
    if report.corruptions == 0 {
        return Ok(header);
    }
    let problem = format!("is damaged: {} says what is wrong, and repairs what can be", Remedy::RepairImage);
    Err(ImageError::Unusable { path: image.path().to_owned(), problem })
}

/// The one that `convert -l` means, as QEMU has it: `snapshot.id=ID`, `snapshot.name=NAME` or both, an id or else a
/// name.
pub(super) fn found_of<'f>(found: &'f [FoundSnapshot], which: &str) -> Option<&'f FoundSnapshot> {
    let (id, name) = match (which.strip_prefix("snapshot.id="), which.strip_prefix("snapshot.name=")) {
        (Some(id), _) => match id.split_once(",snapshot.name=") {
            Some((id, name)) => (Some(id), Some(name)),
            None => (Some(id), None),
        },
        (_, Some(name)) => match name.split_once(",snapshot.id=") {
            Some((name, id)) => (Some(id), Some(name)),
            None => (None, Some(name)),
        },
        _ => return either(found, which),
    };
    let is_it = |of: &Qcow2Snapshot| id.is_none_or(|id| of.id == id) && name.is_none_or(|name| of.name == name);
    found.iter().find(|found| is_it(&found.described))
}

/// The one with that id, or else that name.
fn either<'f>(found: &'f [FoundSnapshot], which: &str) -> Option<&'f FoundSnapshot> {
    with_id(found, which).or_else(|| with_name(found, which))
}

fn with_id<'f>(found: &'f [FoundSnapshot], id: &str) -> Option<&'f FoundSnapshot> {
    found.iter().find(|found| found.described.id == id)
}

fn with_name<'f>(found: &'f [FoundSnapshot], name: &str) -> Option<&'f FoundSnapshot> {
    found.iter().find(|found| found.described.name == name)
}

fn failed(image: &OpenedFile, action: &'static str) -> impl Fn(io::Error) -> ImageError {
    let path = image.path().to_owned();
    move |source| ImageError::System { action, path: path.clone(), source }
}
