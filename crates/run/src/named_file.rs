//! Files that somebody names, for reading.

use anyhow::{Context, Result, bail};
use blockyard_block::shown;
use rustix::fs::{Mode, OFlags, open};
use std::fs::{File, FileType};
use std::io;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// Opens the file at `path`, which is `what`: `the kernel`.
///
/// # Errors
/// When it cannot be read, or is no regular file.
pub(crate) fn open_named(path: &Path, what: &str) -> Result<File> {
    let unreadable = || format!("cannot read {what} {}", shown(path));
    // Whoever writes into a FIFO is not waited for.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(open(path, flags, Mode::empty()).map_err(io::Error::from).with_context(unreadable)?);
    let kind = file.metadata().with_context(unreadable)?.file_type();
    if !kind.is_file() {
        bail!("{what} {} is {}, and a regular file is wanted", shown(path), named(kind));
    }
    Ok(file)
}

fn named(kind: FileType) -> &'static str {
    if kind.is_dir() {
        "a directory"
    } else if kind.is_fifo() {
        "a FIFO"
    } else {
        "a device"
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_is_told_without_waiting() {
        let message = |path: &str| open_named(path.as_ref(), "the kernel").unwrap_err().to_string();
        assert_eq!(message("/"), "the kernel / is a directory, and a regular file is wanted");
        assert_eq!(message("/dev/null"), "the kernel /dev/null is a device, and a regular file is wanted");
        assert_eq!(message("/nowhere"), "cannot read the kernel /nowhere");
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        assert!(message(fifo.to_str().unwrap()).ends_with("is a FIFO, and a regular file is wanted"));
    }
}
