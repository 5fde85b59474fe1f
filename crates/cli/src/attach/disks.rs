//! The disks of `blockyard attach`. Partitions of one disk lie on that disk, which is opened once: it is locked, or has
//! one client.

use anyhow::Result;
use blockyard_attach::Attached;
use blockyard_block::specification::{DiskSpecification, OpenedPart};
use blockyard_block::{Disk, shown};
use blockyard_command_line::usage_error::{UsageError, UsageLines};
use blockyard_session::open::{OpenDisk, OpenOptions, open_disk};
use std::ffi::{OsStr, OsString};
use std::fs;
use std::ops::Range;
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// A disk as it is named on the command line.
struct Named<'a> {
    text: &'a OsStr,
    /// What programs call it.
    name: &'a OsStr,
    disk: DiskSpecification,
    /// What it lies in, if it is a partition: device and inode of the file or socket.
    lies_in: Option<(u64, u64)>,
}

/// A disk of which several partitions are named.
struct Whole {
    lies_in: (u64, u64),
    opened: OpenDisk,
    /// Those before: which bytes, whether for reading only, and as they were named.
    parts: Vec<(Range<u64>, bool, OsString)>,
}

/// Opens `DISK NAME` pairs.
///
/// # Errors
/// When one is none, cannot be opened, or overlaps another one.
pub(super) fn open(pairs: &[OsString], options: &OpenOptions<'_>) -> Result<Vec<Attached>> {
    let all = pairs.chunks_exact(2).map(Named::new).collect::<Result<Vec<_>>>()?;
    let mut wholes: Vec<Whole> = Vec::new();
    all.iter().map(|named| named.open(&all, &mut wholes, options)).collect()
}

impl<'a> Named<'a> {
    fn new(pair: &'a [OsString]) -> Result<Self> {
        let [text, name] = pair else { return Err(UsageError("a disk has a name".into()).into()) };
        let said = text.to_str().ok_or_else(|| UsageError(format!("{} is no UTF-8", shown(&**text))))?;
        let disk: DiskSpecification = said.parse().map_err(UsageLines::from)?;
        let path = disk.path().filter(|_| disk.partition().is_some());
        let lies_in = path.and_then(|path| fs::metadata(path).ok()).map(|found| (found.dev(), found.ino()));
        Ok(Self { text, name, disk, lies_in })
    }

    fn open(&self, all: &[Self], wholes: &mut Vec<Whole>, options: &OpenOptions<'_>) -> Result<Attached> {
        let neighbours = || all.iter().filter(|other| other.lies_in == self.lies_in);
        let Some(lies_in) = self.lies_in.filter(|_| neighbours().count() > 1) else {
            let opened = open_disk(&self.disk, options)?;
            return Ok(self.attached(&opened, Arc::clone(&opened.disk)));
        };
        let index = match wholes.iter().position(|whole| whole.lies_in == lies_in) {
            Some(index) => index,
            None => {
                let is_read_only = neighbours().all(|other| other.disk.is_read_only());
                let whole = self.disk.whole();
                let whole = if is_read_only { whole.read_only() } else { whole };
                wholes.push(Whole { lies_in, opened: open_disk(&whole, options)?, parts: Vec::new() });
                wholes.len() - 1
            }
        };
        let first = neighbours().next().unwrap_or(self);
        let differ = || {
            let (one, other) = (shown(first.text), shown(self.text));
            UsageError(format!("{one} and {other} are partitions of one disk: say the same of it, or name it once"))
        };
        let path = first.disk.path().unwrap_or_else(|| "".as_ref());
        if self.disk.whole().with_path(path) != first.disk.whole() {
            return Err(differ().into());
        }
        let Whole { opened, parts, .. } = &mut wholes[index];
        let OpenedPart { disk, range_bytes: range } = self.disk.part_of(&opened.disk)?.ok_or_else(differ)?;
        let is_read_only = self.disk.is_read_only();
        let overlaps = |(other, is_other_read_only, _): &&(Range<u64>, bool, OsString)| {
            other.start < range.end && range.start < other.end && !(is_read_only && *is_other_read_only)
        };
        if let Some((_, _, other)) = parts.iter().find(overlaps) {
            let (one, other) = (shown(other), shown(self.text));
            return Err(UsageError(format!("{one} and {other} overlap: attach one of them, or both with ro")).into());
        }
        parts.push((range, is_read_only, self.text.to_owned()));
        Ok(self.attached(opened, disk))
    }

    /// What is served of a disk that is open.
    fn attached(&self, opened: &OpenDisk, disk: Arc<dyn Disk>) -> Attached {
        let is_session = self.disk.session_alone().is_some();
        let server = opened.session.clone().filter(|session| is_session && session.takes_further());
        // What is read before its time here is not known to be good where a session's server may be another by then.
        let is_alone = opened.is_alone() && (opened.session.is_none() || server.is_some());
        Attached { name: self.name.to_owned(), disk, is_alone, session: opened.session.clone(), server }
    }
}
