//! Packing files as a tar archive, compressed if wanted.

use crate::failures::Failures;
use crate::mounts::path_of;
use crate::ring::{CALLS_MAX, Opening, Ring};
use blockyard_archive::{OPEN_FLAGS, Opener, Sockets, Source, Status, Time, pack_with};
use blockyard_protocol::appliance::{Compression, TarOut};
use blockyard_protocol::pattern::matches;
use rustix::fs::{CWD, Mode, Statx, makedev};
use rustix::io::Errno;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::ops::Range;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What of a file is read when it is opened: all of it, mostly.
const BEGINNING_BYTES: usize = 16 << 10;

/// Notes that a response has room for, beside its failures, and bytes of each.
const NOTES_MAX: usize = 8;
const NOTE_BYTES_MAX: usize = 512;

/// Files that were left out, which is no failure.
#[derive(Default)]
pub(crate) struct LeftOut {
    first: Vec<String>,
    count: usize,
}

impl LeftOut {
    fn add(&mut self, path: &Path, why: &io::Error) {
        self.count += 1;
        if self.first.len() < NOTES_MAX {
            let mut path = path.to_string_lossy().into_owned();
            path.truncate(path.floor_char_boundary(NOTE_BYTES_MAX));
            self.first.push(format!("{path}: left out: {why}"));
        }
    }

    /// A sentence for each of the first few, and one for the others.
    pub(crate) fn into_notes(mut self) -> Vec<String> {
        let more = self.count - self.first.len();
        self.first.extend((more > 0).then(|| format!("{more} more sockets left out")));
        self.first
    }
}

/// Writes the archive to `sink`.
pub(crate) fn write(
    request: &TarOut,
    sink: &mut impl Write,
    failures: &mut Failures,
    left_out: &mut LeftOut,
) -> io::Result<()> {
    match request.compression {
        Compression::Gzip => {
            let gzip = flate2::write::GzEncoder::new(sink, flate2::Compression::default());
            plain(request, gzip, failures, left_out)?.finish().map(drop)
        }
        Compression::Zstd => {
            let mut zstd = zstd::Encoder::new(sink, zstd::DEFAULT_COMPRESSION_LEVEL)?;
            // As zstd(1) and gzip have it: nothing else says whether data are damaged.
            zstd.include_checksum(true)?;
            plain(request, zstd, failures, left_out)?.finish().map(drop)
        }
        _ => plain(request, sink, failures, left_out).map(drop),
    }
}

fn plain<W: Write>(request: &TarOut, output: W, failures: &mut Failures, left_out: &mut LeftOut) -> io::Result<W> {
    let directory = path_of(&request.directory);
    let source = |name: &Path| Source { path: directory.join(name), name: name.to_owned() };
    let everything = [b".".to_vec()];
    let paths = if request.paths.is_empty() { &everything[..] } else { &request.paths[..] };
    let sources: Vec<_> = paths.iter().map(|path| source(path_of(path))).collect();
    let report = &mut |path: &Path, what: &str, error: io::Error| {
        if error.raw_os_error().is_none() && error.kind() == io::ErrorKind::Unsupported {
            left_out.add(path, &error);
        } else {
            failures.note(path, what, Err(error));
        }
    };
    let sockets = if request.sockets { Sockets::Packed } else { Sockets::LeftOut };
    pack_with(&mut ByRing::new(&request.excludes), sockets, &sources, output, report)
}

/// A system call for many files.
struct ByRing<'request> {
    ring: Ring,
    /// Patterns for what is left out.
    excludes: &'request [Vec<u8>],
    /// Beginnings of the files that were opened last, and where each is.
    data: Box<[u8]>,
    beginnings: Vec<Range<usize>>,
}

impl<'request> ByRing<'request> {
    fn new(excludes: &'request [Vec<u8>]) -> Self {
        Self { ring: Ring::new(), excludes, data: vec![0; CALLS_MAX * BEGINNING_BYTES].into(), beginnings: Vec::new() }
    }

    fn open_all(&mut self, paths: &[&Path]) -> io::Result<Vec<io::Result<(File, Status)>>> {
        let names = paths.iter().map(|path| CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL));
        let names = names.collect::<Result<Vec<_>, _>>()?;
        let opening = |name| Opening { directory: CWD, name, flags: OPEN_FLAGS, mode: Mode::empty() };
        let opened = self.ring.open(names.iter().map(|name| opening(name.as_c_str())))?;
        let files: Vec<_> = opened.iter().flatten().map(AsFd::as_fd).collect();
        let status = self.ring.status(files.iter().copied())?;
        let reads = files.iter().zip(self.data.chunks_mut(BEGINNING_BYTES)).zip(&status);
        let reads: Vec<_> = reads
            .map(|((&file, into), status)| {
                // A directory that lies about a fifo must not make us wait for it.
                let is_file = status.as_ref().is_ok_and(|status| status_of(status).is_file());
                (file, if is_file { into } else { &mut [] })
            })
            .collect();
        let read = self.ring.read(reads.into_iter())?;
        let mut looked = status.into_iter().zip(read).enumerate();
        self.beginnings.clear();
        let all = opened.into_iter().map(|opened| {
            // One that cannot be read is read again when it is packed, and fails then.
            let nothing = || (0, (Err(Errno::IO.into()), Ok(0)));
            let (place, (status, read)) = opened.as_ref().ok().and_then(|_| looked.next()).unwrap_or_else(nothing);
            let start = place * BEGINNING_BYTES;
            self.beginnings.push(start..start + read.unwrap_or(0));
            opened.and_then(|file| Ok((File::from(file), status_of(&status?))))
        });
        Ok(all.collect())
    }
}

impl Opener for ByRing<'_> {
    fn open(&mut self, paths: &[&Path]) -> Vec<io::Result<(File, Status)>> {
        let same = |error: &io::Error| io::Error::new(error.kind(), error.to_string());
        self.open_all(paths).unwrap_or_else(|error| paths.iter().map(|_| Err(same(&error))).collect())
    }

    fn beginning(&self, index: usize) -> &[u8] {
        self.beginnings.get(index).and_then(|place| self.data.get(place.clone())).unwrap_or_default()
    }

    /// As GNU tar has it: a pattern is for what a name ends with, from one of its slashes on.
    fn wants(&self, name: &Path) -> bool {
        let name = name.strip_prefix(".").unwrap_or(name).as_os_str().as_bytes();
        let after_slashes = name.iter().enumerate().filter(|(_, byte)| **byte == b'/').map(|(at, _)| at + 1);
        let mut ends = std::iter::once(0).chain(after_slashes).map(|at| &name[at..]);
        !ends.any(|end| self.excludes.iter().any(|pattern| matches(pattern, end)))
    }

    fn close(&mut self, files: Vec<File>) {
        let files: Vec<_> = files.into_iter().map(OwnedFd::from).collect();
        // Nothing was written to them, so there is nothing to hear of.
        let _ = self.ring.close(files.into_iter());
    }
}

fn status_of(found: &Statx) -> Status {
    Status {
        mode: found.stx_mode.into(),
        user: found.stx_uid,
        group: found.stx_gid,
        modified: Time { seconds: found.stx_mtime.tv_sec, nanoseconds: found.stx_mtime.tv_nsec },
        size: found.stx_size,
        blocks: found.stx_blocks,
        device: makedev(found.stx_dev_major, found.stx_dev_minor),
        inode: found.stx_ino,
        links: found.stx_nlink.into(),
        device_number: makedev(found.stx_rdev_major, found.stx_rdev_minor),
    }
}
