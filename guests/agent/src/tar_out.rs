//! Packing files as a tar archive, compressed if wanted.

use crate::failures::Failures;
use crate::mounts::path_of;
use blockyard_archive::{Source, pack};
use blockyard_protocol::appliance::{Compression, TarOut};
use std::io::{self, Write};
use std::path::Path;

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
    pack(&sources, output, &mut |path, what, error| failures.note(path, what, Err(error)))
}
