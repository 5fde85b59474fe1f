//! Packing files as a tar archive, compressed if wanted.

use crate::failures::Failures;
use crate::mounts::path_of;
use crate::ring::{Opening, Ring};
use blockyard_archive::{OPEN_FLAGS, Opener, Source, pack_with};
use blockyard_protocol::appliance::{Compression, TarOut};
use rustix::fs::{CWD, Mode};
use rustix::io::Errno;
use std::ffi::CString;
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What of a file is read ahead.
const AHEAD_BYTES: u32 = 256 << 10;

/// Writes the archive to `sink`.
pub(crate) fn write(request: &TarOut, sink: &mut impl Write, failures: &mut Failures) -> io::Result<()> {
    match request.compression {
        Compression::Gzip => {
            let gzip = flate2::write::GzEncoder::new(sink, flate2::Compression::default());
            plain(request, gzip, failures)?.finish().map(drop)
        }
        Compression::Zstd => {
            let zstd = zstd::Encoder::new(sink, zstd::DEFAULT_COMPRESSION_LEVEL)?;
            plain(request, zstd, failures)?.finish().map(drop)
        }
        _ => plain(request, sink, failures).map(drop),
    }
}

fn plain<W: Write>(request: &TarOut, output: W, failures: &mut Failures) -> io::Result<W> {
    let directory = path_of(&request.directory);
    let source = |name: &Path| Source { path: directory.join(name), name: name.to_owned() };
    let everything = [b".".to_vec()];
    let paths = if request.paths.is_empty() { &everything[..] } else { &request.paths[..] };
    let sources: Vec<_> = paths.iter().map(|path| source(path_of(path))).collect();
    let report = &mut |path: &Path, what: &str, error| failures.note(path, what, Err(error));
    pack_with(&mut ByRing(Ring::new()), &sources, output, report)
}

/// A system call for many files.
struct ByRing(Ring);

impl ByRing {
    fn open_all(&mut self, paths: &[&Path]) -> io::Result<Vec<io::Result<File>>> {
        let names = paths.iter().map(|path| CString::new(path.as_os_str().as_bytes()).map_err(|_| Errno::INVAL));
        let names = names.collect::<Result<Vec<_>, _>>()?;
        let opening = |name| Opening { directory: CWD, name, flags: OPEN_FLAGS, mode: Mode::empty() };
        let opened = self.0.open(names.iter().map(|name| opening(name.as_c_str())))?;
        let files: Vec<_> = opened.iter().flatten().map(AsFd::as_fd).collect();
        self.0.read_ahead(files.into_iter(), AHEAD_BYTES)?;
        Ok(opened.into_iter().map(|opened| opened.map(File::from)).collect())
    }
}

impl Opener for ByRing {
    fn open(&mut self, paths: &[&Path]) -> Vec<io::Result<File>> {
        let same = |error: &io::Error| io::Error::new(error.kind(), error.to_string());
        self.open_all(paths).unwrap_or_else(|error| paths.iter().map(|_| Err(same(&error))).collect())
    }

    fn close(&mut self, files: Vec<File>) {
        let files: Vec<_> = files.into_iter().map(OwnedFd::from).collect();
        // Nothing was written to them, so there is nothing to hear of.
        let _ = self.0.close(files.into_iter());
    }
}
