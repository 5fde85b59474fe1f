//! Putting another backing file behind an image.

use super::create::Qcow2Backing;
use super::header_change;
use super::own_file::{header_to_change, image_file, read_header};
use super::{Qcow2Disk, Qcow2Snapshot, snapshots};
use crate::formats::{AllowedDirectories, ImageError, WritableFile};
use crate::read::perform;
use crate::{Disk, Engine, ExtentKind, FileOptions, MemoryMap, OpenedFile, Operation, Queue, Segment, printable};
use std::fs::File;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::PathBuf;

/// What is compared at once: the largest cluster, since what is written to a part of one makes the rest of it the
/// image's own.
const BUFFER_BYTES: u32 = 2 << 20;

/// The unit in which differences are written.
const UNIT_BYTES: u64 = 4096;

/// Most snapshots that are compared: each is a disk that is open, with all that is behind it.
const SNAPSHOTS_MAX: usize = 64;

/// An image whose backing file is to be another, open and locked.
#[derive(Debug)]
pub struct Qcow2Rebase {
    file: File,
    path: PathBuf,
}

impl Qcow2Rebase {
    /// Of an image that is open for writing, and locked. What is marked dirty is repaired.
    ///
    /// # Errors
    /// When it is none that can be used.
    pub fn open(image: OpenedFile) -> Result<Self, ImageError> {
        header_to_change(image.file(), image.path())?;
        let path = image.path().to_owned();
        Ok(Self { file: image.into_file(), path })
    }

    /// What the image shows now, which is to be kept.
    ///
    /// # Errors
    /// As [`Qcow2Disk::open`], and when it has more snapshots than are compared.
    pub fn shown(&self, allowed: &AllowedDirectories) -> Result<Qcow2Shown, ImageError> {
        let file = || self.file.try_clone().map_err(|error| self.failed(error));
        // With locks: what is behind it is locked here, and nobody changes it from now on.
        let options = FileOptions { engine: Engine::Sync, ..FileOptions::default() };
        let read_only = FileOptions { read_only: true, ..options };
        let header = read_header(&self.file, &self.path)?;
        let image = image_file(&self.file).map_err(|error| self.failed(error))?;
        let found = snapshots::found(&image, &header).map_err(|error| self.failed(error))?;
        if found.len() > SNAPSHOTS_MAX {
            let problem = format!("has {} snapshots, and {SNAPSHOTS_MAX} at most are compared", found.len());
            return Err(ImageError::Unusable { path: self.path.clone(), problem });
        }
        let mut snapshots = Vec::new();
        for Qcow2Snapshot { id, name, .. } in found.into_iter().map(|found| found.described) {
            snapshots.push((name, Qcow2Disk::open_snapshot_in(file()?, &self.path, &id, &read_only, allowed)?));
        }
        let top = Qcow2Disk::open_in(file()?, &self.path, &options, allowed)?;
        let mode = self.file.metadata().map_err(|error| self.failed(error))?.mode();
        Ok(Qcow2Shown { top, snapshots, mode })
    }

    /// Names another backing file, or none, on stable storage. What shows through the image is that file's from now on;
    /// nothing is compared.
    ///
    /// # Errors
    /// When the header has no room for the name, or the file cannot be written. Then it is as it was.
    pub fn name_backing(&self, backing: Option<&Qcow2Backing>) -> Result<(), ImageError> {
        let header = read_header(&self.file, &self.path)?;
        let file = self.file.try_clone().map_err(|error| self.failed(error))?;
        let length_bytes = file.metadata().map_err(|error| self.failed(error))?.len();
        let file = WritableFile::new(file, length_bytes, true, false);
        header_change::set_backing(&file, &header, backing).map_err(|error| self.failed(error))
    }

    fn failed(&self, source: io::Error) -> ImageError {
        ImageError::System { action: "change the backing file of", path: self.path.clone(), source }
    }
}

/// What an image and its snapshots show, with what is behind it.
pub struct Qcow2Shown {
    top: Qcow2Disk,
    /// By their names.
    snapshots: Vec<(String, Qcow2Disk)>,
    /// Of the image's own file.
    mode: u32,
}

impl Qcow2Shown {
    /// Whether anything is behind it.
    pub fn has_backing(&self) -> bool {
        self.top.has_backing()
    }

    /// Whether the image's group, and others, may read it, and not all that is behind it.
    pub fn is_wider_than_behind(&self) -> (bool, bool) {
        let wider = self.mode & !self.top.permissions_behind();
        (wider & 0o040 != 0, wider & 0o004 != 0)
    }

    /// Bytes of the disk.
    pub fn capacity_bytes(&self) -> u64 {
        self.top.geometry().capacity_bytes
    }

    /// Writes to the image what it does not show with the disk `behind`, or nothing, behind it, as
    /// [`write_differences`] does. Whether that was anything.
    ///
    /// # Errors
    /// As there; and before anything is written, when a snapshot would show something else: to these nothing is
    /// written.
    pub fn keep(&self, behind: Option<&dyn Disk>, goes_on: &mut dyn FnMut(u64, u64) -> bool) -> io::Result<bool> {
        for (name, snapshot) in &self.snapshots {
            let mut differences = Differences::new(None, snapshot, behind)?;
            differences.walk(snapshot, goes_on)?;
            if differences.is_found {
                return Err(io::Error::other(would_change(name)));
            }
        }
        write_differences(&self.top, &self.top, behind, goes_on)
    }
}

/// Why what a snapshot shows is left alone.
pub(super) fn would_change(name: &str) -> String {
    let name = printable(name);
    format!("its snapshot {name:?} shows what is behind it, and would change: remove it first (image snapshot -d)")
}

/// Writes to `top` what `source` holds and the disk `behind`, or nothing but zeros without one, does not: so that `top`
/// holds what `source` does when that is behind it. What `top` holds itself is left alone: the two must agree there.
/// `goes_on` hears where on the disk it is and how many bytes of data it has compared, and says whether to go on.
/// Whether anything was written.
///
/// # Errors
/// When a disk fails, and [`io::ErrorKind::Interrupted`].
pub fn write_differences(
    top: &Qcow2Disk,
    source: &dyn Disk,
    behind: Option<&dyn Disk>,
    goes_on: &mut dyn FnMut(u64, u64) -> bool,
) -> io::Result<bool> {
    let mut differences = Differences::new(Some(top), source, behind)?;
    differences.walk(top, goes_on)?;
    differences.top.as_mut().map_or(Ok(()), |top| perform(&mut **top, Operation::Flush, 0, &[]))?;
    Ok(differences.is_found)
}

struct Differences<'a> {
    memory: MemoryMap,
    source: Side<'a>,
    behind: Option<Side<'a>>,
    /// Where they are written; else it is only said that there are any.
    top: Option<Box<dyn Queue>>,
    is_found: bool,
    /// What was neither a hole nor known to be zeros.
    data_bytes: u64,
}

/// A disk, and where in memory what was read of it lies.
struct Side<'a> {
    disk: &'a dyn Disk,
    queue: Box<dyn Queue>,
    memory_offset: u64,
}

impl Side<'_> {
    /// Reads a range, zeros behind the end; with whether it is known to be zeros.
    fn read(&mut self, memory: &MemoryMap, start: u64, end: u64) -> io::Result<()> {
        let capacity_bytes = self.disk.geometry().capacity_bytes;
        let there = capacity_bytes.clamp(start, end) - start;
        // No longer than the buffer.
        let segment = |from: u64, to: u64| Segment {
            region: 0,
            length_bytes: (to - from) as u32,
            offset_bytes: self.memory_offset + from,
        };
        memory.zero(segment(there, end - start));
        if there == 0 {
            return Ok(());
        }
        perform(&mut *self.queue, Operation::Read, start, &[segment(0, there)])
    }

    /// How much of a range is known at once to be zeros: more may follow.
    fn zeros(&self, start: u64, end: u64) -> io::Result<u64> {
        let capacity_bytes = self.disk.geometry().capacity_bytes;
        if start >= capacity_bytes {
            return Ok(end - start);
        }
        let extent = self.disk.extents(start..end.min(capacity_bytes))?;
        Ok(if extent.kind == ExtentKind::Data { 0 } else { extent.length_bytes.min(end - start) })
    }
}

impl<'a> Differences<'a> {
    fn new(top: Option<&Qcow2Disk>, source: &'a dyn Disk, behind: Option<&'a dyn Disk>) -> io::Result<Self> {
        let memory = MemoryMap::allocate(&[(0, 2 * BUFFER_BYTES as usize)]).map_err(io::Error::other)?;
        let side = |disk: &'a dyn Disk, memory_offset: u64| -> io::Result<Side<'a>> {
            Ok(Side { disk, queue: disk.open_queue(&memory, 1)?, memory_offset })
        };
        let (source, behind) = (side(source, 0)?, behind.map(|disk| side(disk, BUFFER_BYTES.into())).transpose()?);
        let top = top.map(|top| top.open_queue(&memory, 1)).transpose()?;
        Ok(Self { top, memory, source, behind, is_found: false, data_bytes: 0 })
    }

    /// Goes through all that `own` does not hold itself.
    fn walk(&mut self, own: &Qcow2Disk, goes_on: &mut dyn FnMut(u64, u64) -> bool) -> io::Result<()> {
        let capacity_bytes = self.source.disk.geometry().capacity_bytes.min(own.geometry().capacity_bytes);
        let mut at = 0;
        while at < capacity_bytes && !(self.is_found && self.top.is_none()) {
            let (length_bytes, is_own) = own.find_own(at..capacity_bytes)?;
            if is_own {
                at += length_bytes;
                continue;
            }
            if !goes_on(at, self.data_bytes) {
                return Err(io::ErrorKind::Interrupted.into());
            }
            at = self.write(at, at + length_bytes)?;
        }
        Ok(())
    }

    /// Looks at the beginning of a range, all of it that is zeros or else a buffer's length at most, and writes what
    /// differs; to where.
    fn write(&mut self, start: u64, end: u64) -> io::Result<u64> {
        const SHOWN: &str = "reading what it shows";
        const BEHIND: &str = "reading what is to be behind it";
        let zeros = self.source.zeros(start, end).map_err(said(SHOWN, start))?;
        let zeros = match &self.behind {
            Some(behind) if zeros > 0 => behind.zeros(start, start + zeros).map_err(said(BEHIND, start))?,
            _ => zeros,
        };
        // Not blocks that only begin with zeros.
        let zeros = if start + zeros == end { zeros } else { zeros - zeros % UNIT_BYTES };
        if zeros > 0 {
            return Ok(start + zeros);
        }
        let end = (start - start % u64::from(BUFFER_BYTES) + u64::from(BUFFER_BYTES)).min(end);
        self.source.read(&self.memory, start, end).map_err(said(SHOWN, start))?;
        if let Some(behind) = &mut self.behind {
            behind.read(&self.memory, start, end).map_err(said(BEHIND, start))?;
        } else {
            let all = Segment { region: 0, length_bytes: BUFFER_BYTES, offset_bytes: BUFFER_BYTES.into() };
            self.memory.zero(all);
        }
        self.write_runs(start, end)?;
        self.data_bytes += end - start;
        Ok(end)
    }

    fn write_runs(&mut self, start: u64, end: u64) -> io::Result<()> {
        let mut run: Option<(u64, u64)> = None;
        let mut at = start;
        while at < end {
            let next = (at - at % UNIT_BYTES + UNIT_BYTES).min(end);
            let segment = |offset: u64| Segment {
                region: 0,
                length_bytes: (next - at) as u32,
                offset_bytes: offset + (at - start),
            };
            let is_same = self.memory.is_equal(segment(0), segment(BUFFER_BYTES.into())) == Some(true);
            match (&mut run, is_same) {
                (Some((_, run_end)), false) => *run_end = next,
                (None, false) => run = Some((at, next)),
                (Some(_), true) => self.write_run(run.take(), start)?,
                (None, true) => {}
            }
            at = next;
        }
        self.write_run(run, start)
    }

    fn write_run(&mut self, run: Option<(u64, u64)>, start: u64) -> io::Result<()> {
        let Some((from, to)) = run else { return Ok(()) };
        let segment = Segment { region: 0, length_bytes: (to - from) as u32, offset_bytes: from - start };
        self.is_found = true;
        let Some(top) = &mut self.top else { return Ok(()) };
        let written = perform(&mut **top, Operation::Write { force_unit_access: false }, from, &[segment]);
        written.map_err(said("writing to it", from))
    }
}

/// The same error, with what was being done, from which byte of the disk on.
fn said(what: &'static str, start: u64) -> impl FnOnce(io::Error) -> io::Error {
    move |error| io::Error::new(error.kind(), format!("{what}, from byte {start} on: {error}"))
}
