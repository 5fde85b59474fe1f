//! Images as a whole: made, converted, compared, measured, resized, based on each other.
//!
//! Each verb takes what is open already and does the work, in three steps: whoever calls opens files and disks (and so
//! decides what may be opened), makes the verb of them, which reads headers and refuses what makes no sense, and may
//! then confine itself before it runs the verb, which goes through tables that may be hostile. What needs no more than
//! one call is [`blockyard_block`]'s own: checking a qcow2 image is [`Qcow2Check`](blockyard_block::Qcow2Check).

pub mod bench;
pub mod commit;
pub mod compare;
pub mod convert;
pub mod create;
pub mod digest;
pub mod info;
pub mod lost;
pub mod map;
pub mod measure;
mod new_image;
pub mod rebase;
pub mod resize;
pub mod safety;

use crate::error::{Error, Result, refuse};
use crate::watch::{Progress, Watch};
use blockyard_block::layers::JoinedDisk;
use blockyard_block::{Disk, ImageError, UnpackedDisk};
use blockyard_session::open::OpenDisk;
pub use new_image::{NewImage, backing_path, behind, named_from, refuse_itself};
use std::io;
use std::sync::Arc;

/// A disk that is open, to be gone through from one end to the other.
#[derive(Clone)]
pub struct WholeDisk {
    /// The disk.
    pub disk: Arc<dyn Disk>,
    /// What the permission bits of its files allow: what is made of it is for nobody else.
    pub permissions: Option<u32>,
    /// How many queues it can have open, at least one.
    pub queues_max: usize,
    /// Pieces that each thread has under way, at least one: more for what is waited for.
    pub depth: usize,
    /// Of it, what is decompressed while it is read.
    pub unpacked: Vec<Arc<UnpackedDisk>>,
}

impl WholeDisk {
    /// One that nobody waits for, and of which no more is known.
    pub fn new(disk: Arc<dyn Disk>) -> Self {
        Self { disk, permissions: None, queues_max: usize::MAX, depth: 1, unpacked: Vec::new() }
    }

    /// Several, one behind the other: what is made of them is for those alone whom all of them are for. How long they
    /// are is found out first.
    ///
    /// # Errors
    /// When there are none, or they do not fit together; as [`WholeDisk::find_length`].
    pub fn joined(disks: Vec<Self>, watch: &dyn Watch) -> Result<Self> {
        disks.iter().try_for_each(|disk| disk.find_length(watch))?;
        let permissions = disks.iter().filter_map(|disk| disk.permissions).reduce(|one, other| one & other);
        let queues_max = disks.iter().map(|disk| disk.queues_max).min().unwrap_or(usize::MAX);
        let depth = disks.iter().map(|disk| disk.depth).max().unwrap_or(1);
        let unpacked = disks.iter().flat_map(|disk| disk.unpacked.iter().cloned()).collect();
        let disk = JoinedDisk::new(disks.into_iter().map(|disk| disk.disk).collect()).map_err(Error::other)?;
        Ok(Self { disk: Arc::new(disk), permissions, queues_max, depth, unpacked })
    }

    fn capacity_bytes(&self) -> u64 {
        self.disk.geometry().capacity_bytes
    }

    /// Whether it is not known where it ends before it is read.
    pub fn is_endless(&self) -> bool {
        self.unpacked.iter().any(|unpacked| unpacked.is_endless())
    }

    /// Finds out where it ends, which takes decompressing it once if its file does not say. To be asked before it is
    /// read, and before this process is shut in.
    ///
    /// # Errors
    /// When its file is damaged or becomes larger than it may.
    pub fn find_length(&self, watch: &dyn Watch) -> Result<()> {
        for unpacked in &self.unpacked {
            unpacked.find_length(&mut |done_bytes, length_bytes| {
                watch.progress(&Progress { done_bytes, data_bytes: done_bytes, length_bytes });
            })?;
        }
        Ok(())
    }

    /// Makes sure that what was decompressed ends where its disk does.
    fn finish(&self) -> Result<()> {
        Ok(self.unpacked.iter().try_for_each(|unpacked| unpacked.finish())?)
    }

    /// Why reading it failed, where it knows better than a request does.
    fn failure(&self) -> Option<Error> {
        self.unpacked.iter().find_map(|unpacked| unpacked.failure()).map(Error::refused)
    }
}

impl From<OpenDisk> for WholeDisk {
    fn from(opened: OpenDisk) -> Self {
        let queues_max = opened.queues_max();
        let unpacked = opened.unpacked.into_iter().collect();
        Self { disk: opened.disk, permissions: opened.permissions, queues_max, depth: opened.depth, unpacked }
    }
}

/// How far something has come, told to whoever watches it.
struct Told<'a> {
    watch: &'a dyn Watch,
    length_bytes: u64,
}

impl Told<'_> {
    /// Tells how much is done, and how much of that was data; whether to go on.
    fn goes_on(&self, done_bytes: u64, data_bytes: u64) -> bool {
        self.watch.progress(&Progress { done_bytes, data_bytes, length_bytes: self.length_bytes });
        self.watch.ends().is_none()
    }

    /// Why something that asked [`Told::goes_on`] has failed: that it was told to end; else `doing`, and `error`.
    fn why(&self, error: io::Error, doing: impl Into<String>) -> Error {
        match error.kind() {
            io::ErrorKind::Interrupted => check(self.watch).err().unwrap_or_else(|| error.into()),
            _ => Error::from(error).context(doing),
        }
    }
}

/// Fails when what is under way shall end.
fn check(watch: &dyn Watch) -> Result<()> {
    match watch.ends() {
        Some(why) => refuse!("stopped by {why}"),
        None => Ok(()),
    }
}

/// Why something has failed that asks whether to go on: that it was told to end, while `doing`; else `error`.
fn or_stopped(error: ImageError, watch: &dyn Watch, doing: impl Into<String>) -> Error {
    let is_interrupted =
        matches!(&error, ImageError::System { source, .. } if source.kind() == io::ErrorKind::Interrupted);
    match check(watch) {
        Err(stopped) if is_interrupted => stopped.context(doing),
        _ => error.into(),
    }
}

/// Why something was stopped.
fn stopped(watch: &dyn Watch) -> Error {
    check(watch).err().unwrap_or_else(|| Error::refused("stopped"))
}
