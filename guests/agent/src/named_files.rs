//! Files that a request names: in itself, or, where it has no room for them, in a stream.

use crate::failures::failure;
use crate::stream::{SourceStream, TransferDisks};
use blockyard_protocol::appliance::Failure;
use std::io::{self, Read};
use std::path::Path;

/// The names in `listed`, or those in the stream on the source disk, each with a NUL behind it.
pub(crate) fn names(listed: Vec<Vec<u8>>, streamed: bool, disks: &TransferDisks) -> Result<Vec<Vec<u8>>, Failure> {
    if !streamed {
        return Ok(listed);
    }
    let read = || {
        let mut names = Vec::new();
        SourceStream::open(&disks.source)?.read_to_end(&mut names)?;
        let names = names.strip_suffix(b"\0").ok_or_else(|| io::Error::other("a name has no end"))?;
        Ok(names.split(|&byte| byte == 0).map(<[u8]>::to_vec).collect())
    };
    read().map_err(|error| failure(Path::new(""), "cannot read what the host sends", &error))
}
