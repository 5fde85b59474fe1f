//! Files that somebody named, read without waiting for anybody.

use crate::{shown, size};
use rustix::fs::{Mode, OFlags, fcntl_setfl, fstatfs, open};
use std::fs::{File, FileType};
use std::io::{self, Read};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

/// Why a file that somebody named is not read.
#[derive(Debug, thiserror::Error)]
pub enum NamedFileError {
    /// The system refuses.
    #[error("cannot read {what} {}", shown(path))]
    Unreadable {
        /// What it was to be: `the kernel`.
        what: &'static str,
        /// What was named.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// It is something else.
    #[error("{what} {} is {kind}, and a regular file is wanted", shown(path))]
    NotAFile {
        /// What it was to be.
        what: &'static str,
        /// What was named.
        path: PathBuf,
        /// What it is.
        kind: &'static str,
    },
    /// It is longer than anything of its kind.
    #[error("{what} {} has more than {} bytes, the most that is read", shown(path), size::exact(*bytes_max))]
    TooLong {
        /// What it was to be.
        what: &'static str,
        /// What was named.
        path: PathBuf,
        /// The most that is read.
        bytes_max: u64,
    },
    /// It is no text.
    #[error("{what} {} is no text, which is UTF-8", shown(path))]
    NoText {
        /// What it was to be.
        what: &'static str,
        /// What was named.
        path: PathBuf,
    },
}

/// Opens the regular file at `path`, which is `what`: `the kernel`. Whoever writes into a FIFO is not waited for.
///
/// # Errors
/// When it cannot be opened, or is no regular file.
pub fn open_named(path: &Path, what: &'static str) -> Result<File, NamedFileError> {
    opened_at(path, what, false, |flags| open(path, flags, Mode::empty()))
}

/// What is in the file at `path`. A pipe without a name, as a shell makes them of `<(command)`, is a file too: it is
/// read to its end.
///
/// # Errors
/// When it cannot be read, is no file, or has more than `bytes_max`.
pub fn read_named(path: &Path, what: &'static str, bytes_max: u64) -> Result<Vec<u8>, NamedFileError> {
    read_at(opened_at(path, what, true, |flags| open(path, flags, Mode::empty()))?, path, what, bytes_max)
}

/// The same of text.
///
/// # Errors
/// As there, and when it is none.
pub fn read_named_text(path: &Path, what: &'static str, bytes_max: u64) -> Result<String, NamedFileError> {
    let bytes = read_named(path, what, bytes_max)?;
    String::from_utf8(bytes).map_err(|_| NamedFileError::NoText { what, path: path.to_owned() })
}

/// What is in a file that was opened by `path`.
pub(crate) fn read_at(file: File, path: &Path, what: &'static str, bytes_max: u64) -> Result<Vec<u8>, NamedFileError> {
    let mut bytes = Vec::new();
    let read = file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(|source| NamedFileError::Unreadable { what, path: path.to_owned(), source })?;
    if bytes.len() as u64 > bytes_max {
        return Err(NamedFileError::TooLong { what, path: path.to_owned(), bytes_max });
    }
    Ok(bytes)
}

/// The file that `open` opens with the flags that it is given, if it is one.
pub(crate) fn opened_at(
    path: &Path,
    what: &'static str,
    takes_pipes: bool,
    open: impl FnOnce(OFlags) -> rustix::io::Result<OwnedFd>,
) -> Result<File, NamedFileError> {
    let unreadable = |source: io::Error| NamedFileError::Unreadable { what, path: path.to_owned(), source };
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
    let file = File::from(open(flags).map_err(|errno| unreadable(errno.into()))?);
    let kind = file.metadata().map_err(unreadable)?.file_type();
    if takes_pipes && kind.is_fifo() && is_without_a_name(&file).map_err(unreadable)? {
        fcntl_setfl(&file, OFlags::empty()).map_err(|errno| unreadable(errno.into()))?;
    } else if !kind.is_file() {
        return Err(NamedFileError::NotAFile { what, path: path.to_owned(), kind: named(kind) });
    }
    Ok(file)
}

/// What statfs(2) says of a pipe without a name.
const PIPEFS_MAGIC: rustix::fs::FsWord = 0x5049_5045;

/// Whether a pipe lies nowhere that anybody could have put it.
pub(crate) fn is_without_a_name(pipe: impl AsFd) -> io::Result<bool> {
    Ok(fstatfs(pipe)?.f_type == PIPEFS_MAGIC)
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
    use std::fs;
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::thread;

    #[test]
    fn what_is_no_file_is_told_without_waiting() {
        let opened = |path: &str| open_named(path.as_ref(), "the kernel").unwrap_err().to_string();
        assert_eq!(opened("/"), "the kernel / is a directory, and a regular file is wanted");
        assert_eq!(opened("/dev/null"), "the kernel /dev/null is a device, and a regular file is wanted");
        assert_eq!(opened("/nowhere"), "cannot read the kernel /nowhere");
        let directory = tempfile::tempdir().unwrap();
        let fifo = directory.path().join("fifo");
        rustix::fs::mknodat(rustix::fs::CWD, &fifo, rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        let read = read_named(&fifo, "the key file", 9).unwrap_err().to_string();
        for (said, what) in [(opened(fifo.to_str().unwrap()), "the kernel"), (read, "the key file")] {
            assert_eq!(said, format!("{what} {} is a FIFO, and a regular file is wanted", shown(&fifo)));
        }
    }

    #[test]
    fn what_is_read_is_bounded_and_text_is_text() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("script");
        fs::write(&path, [b'x'; 1024]).unwrap();
        assert_eq!(read_named_text(&path, "the script", 1024).unwrap().len(), 1024);
        let message = read_named(&path, "the script", 1023).unwrap_err().to_string();
        assert_eq!(message, format!("the script {} has more than 1023 bytes, the most that is read", shown(&path)));
        fs::write(&path, [0xff]).unwrap();
        let message = read_named_text(&path, "the script", 9).unwrap_err().to_string();
        assert!(message.ends_with("script is no text, which is UTF-8"), "{message}");
    }

    #[test]
    fn a_pipe_without_a_name_is_read_to_its_end() {
        let (reader, mut writer) = io::pipe().unwrap();
        let name = format!("/proc/self/fd/{}", reader.as_raw_fd());
        let writer = thread::spawn(move || {
            // Whoever does not wait reads nothing.
            thread::sleep(std::time::Duration::from_millis(50));
            writer.write_all(b"word").unwrap();
        });
        assert_eq!(read_named(name.as_ref(), "the key file", 9).unwrap(), b"word");
        writer.join().unwrap();
        assert!(open_named(name.as_ref(), "the kernel").is_err());
    }
}
