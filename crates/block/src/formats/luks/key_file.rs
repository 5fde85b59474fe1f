//! Files with passphrases: which may be one, how they are read, and what the end of a line in one is.

use super::secret::SecretBytes;
use crate::named_file::opened_at;
use crate::{NamedFileError, shown};
use rustix::fs::{Mode, open};
use rustix::process::{DumpableBehavior, geteuid, set_dumpable_behavior};
use std::fs::File;
use std::io::{self, Read};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

/// Most bytes of one: cryptsetup's limit.
const BYTES_MAX: usize = 8 << 20;

/// What is read first.
const BYTES_USUAL: usize = 4096;

const WHAT: &str = "the key file";

/// What the end of a line is in a key file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineEnd {
    /// A byte of the passphrase, as QEMU and cryptsetup take it.
    Counts,
    /// Nothing where the file is one line of text, as guestfish takes it: an editor or a shell put it there.
    IsLeftOut,
}

/// A file that has a passphrase in it: all of its bytes ([`LineEnd::Counts`]).
///
/// It is read once, by [`read_key_file`], when it is first needed, and by who has a clone, too.
#[derive(Clone, Debug)]
pub struct KeyFile {
    path: PathBuf,
    passphrase: Arc<OnceLock<SecretBytes>>,
}

/// Why a passphrase cannot be had.
#[derive(Debug, thiserror::Error)]
pub enum KeyFileError {
    /// The file cannot be read.
    #[error(transparent)]
    Named(#[from] NamedFileError),
    /// It is not for this user alone.
    #[error("the key file {} {problem}", shown(path))]
    NotSecret {
        /// The file.
        path: PathBuf,
        /// Who else has it, and what helps.
        problem: String,
    },
}

impl KeyFile {
    /// The one at `path`, which is not looked at yet.
    pub fn new(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into(), passphrase: Arc::default() }
    }

    /// Its name.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What is in it. From now on the process leaves no core, and other processes of its user cannot look into it.
    pub(in crate::formats) fn passphrase(&self) -> Result<&[u8], KeyFileError> {
        if let Some(passphrase) = self.passphrase.get() {
            return Ok(passphrase);
        }
        // Of what the kernel refuses here, nothing becomes worse.
        let _ = set_dumpable_behavior(DumpableBehavior::NotDumpable);
        let passphrase = read_key_file(&self.path, BYTES_MAX, LineEnd::Counts)?;
        Ok(self.passphrase.get_or_init(|| passphrase))
    }
}

impl PartialEq for KeyFile {
    fn eq(&self, other: &Self) -> bool {
        self.path == other.path
    }
}

impl Eq for KeyFile {}

/// The passphrase in the file at `path`, of at most so many bytes. The process has it nowhere else.
///
/// The file belongs to this user or to root, and nobody else may read or write it: of what was opened the kernel says
/// so. A pipe without a name, as `/dev/fd/3` may be, is a file too.
///
/// # Errors
/// When it cannot be read, is for others, too, is too long, or empty.
pub fn read_key_file(path: &Path, bytes_max: usize, line_end: LineEnd) -> Result<SecretBytes, KeyFileError> {
    let unreadable = |source| NamedFileError::Unreadable { what: WHAT, path: path.to_owned(), source };
    let file = opened_at(path, WHAT, true, |flags| open(path, flags, Mode::empty()))?;
    judge(&file, path)?;
    let bytes = read(file, bytes_max).map_err(unreadable)?;
    let too_long = NamedFileError::TooLong { what: WHAT, path: path.to_owned(), bytes_max: bytes_max as u64 };
    let bytes = bytes.ok_or(too_long)?;
    let line = bytes.split_last().filter(|(last, line)| {
        let is_text = !line.contains(&b'\n') && std::str::from_utf8(line).is_ok();
        line_end == LineEnd::IsLeftOut && **last == b'\n' && is_text
    });
    let length = line.map_or(bytes.len(), |(_, line)| line.len());
    if length == 0 {
        let problem = match line_end {
            LineEnd::Counts => "is empty: write the passphrase to it, without a line end behind it",
            LineEnd::IsLeftOut => "is empty: write the passphrase to it",
        };
        return Err(KeyFileError::NotSecret { path: path.to_owned(), problem: problem.to_owned() });
    }
    bytes.shortened(length).map_err(|source| unreadable(source).into())
}

/// Whether what was opened at `path` is for nobody else.
fn judge(file: &File, path: &Path) -> Result<(), KeyFileError> {
    let unreadable = |source| NamedFileError::Unreadable { what: WHAT, path: path.to_owned(), source };
    let metadata = file.metadata().map_err(unreadable)?;
    let not_secret = |problem: String| KeyFileError::NotSecret { path: path.to_owned(), problem };
    let (owner, own) = (metadata.uid(), geteuid().as_raw());
    if owner != own && owner != 0 {
        let problem = format!("belongs to user {owner}, who can change and read it: it has to be yours, or root's");
        return Err(not_secret(problem));
    }
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        // A descriptor's name is another command's descriptor there.
        let is_descriptor = ["/dev", "/proc"].iter().any(|directory| path.starts_with(directory));
        let remedy = match is_descriptor {
            true => "at the file that it leads to",
            false => &*format!("with chmod 600 {}", crate::shell_word(&path.to_string_lossy())),
        };
        return Err(not_secret(format!(
            "is for other users, too (its mode is {mode:04o}): take that from them {remedy}"
        )));
    }
    Ok(())
}

/// All of a file, or `None` if that is more than `bytes_max`. What is read is nowhere else.
fn read(mut file: File, bytes_max: usize) -> io::Result<Option<SecretBytes>> {
    let mut bytes = SecretBytes::zeroed(BYTES_USUAL)?;
    let mut length = 0;
    loop {
        if length == bytes.len() {
            bytes = SecretBytes::with(&bytes, length * 2)?;
        }
        match file.read(&mut bytes[length..]) {
            Ok(0) => return bytes.shortened(length).map(Some),
            Ok(count) => length += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        if length > bytes_max {
            return Ok(None);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{self, Permissions};
    use std::io::Write;
    use std::os::fd::AsRawFd;
    use std::os::unix::fs::PermissionsExt;

    fn file(directory: &Path, bytes: &[u8], mode: u32) -> PathBuf {
        let path = directory.join("key");
        fs::write(&path, bytes).unwrap();
        fs::set_permissions(&path, Permissions::from_mode(mode)).unwrap();
        path
    }

    #[test]
    fn all_of_its_bytes_count_and_are_read_once() {
        let directory = tempfile::tempdir().unwrap();
        for bytes in [&b"word\n"[..], b"\n", &[7; BYTES_USUAL], &[8; BYTES_MAX]] {
            let key = KeyFile::new(file(directory.path(), bytes, 0o400));
            let clone = key.clone();
            assert!(key.passphrase().unwrap() == bytes);
            fs::remove_file(key.path()).unwrap();
            assert!(clone.passphrase().unwrap() == bytes);
            assert!(!format!("{key:?}").contains("word"));
        }
        let long = KeyFile::new(file(directory.path(), &[0; BYTES_MAX + 1], 0o600));
        assert!(long.passphrase().unwrap_err().to_string().contains("more than 8M bytes"));
        let empty = KeyFile::new(file(directory.path(), b"", 0o600));
        assert!(empty.passphrase().unwrap_err().to_string().contains("is empty"));
    }

    #[test]
    fn the_end_of_a_line_is_what_is_said() {
        let directory = tempfile::tempdir().unwrap();
        let read = |bytes: &[u8], line_end| read_key_file(&file(directory.path(), bytes, 0o600), 16, line_end);
        for (bytes, line) in [
            (&b"word\n"[..], &b"word"[..]),
            (b"word", b"word"),
            (b"word\n\n", b"word\n\n"),
            (b"two\nlines\n", b"two\nlines\n"),
            (b"\xff\n", b"\xff\n"),
        ] {
            assert_eq!(&*read(bytes, LineEnd::IsLeftOut).unwrap(), line);
            assert_eq!(&*read(bytes, LineEnd::Counts).unwrap(), bytes);
        }
        assert!(read(b"\n", LineEnd::IsLeftOut).unwrap_err().to_string().contains("is empty"));
        assert!(read(&[b'x'; 17], LineEnd::IsLeftOut).unwrap_err().to_string().contains("more than 16 bytes"));
    }

    #[test]
    fn what_others_can_read_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        for mode in [0o640, 0o604, 0o620, 0o602, 0o610, 0o644] {
            let key = KeyFile::new(file(directory.path(), b"hush", mode));
            let error = key.passphrase().unwrap_err().to_string();
            assert!(error.contains("chmod 600") && !error.contains("hush"), "{mode:o}: {error}");
            let opened = File::open(file(directory.path(), b"hush", mode)).unwrap();
            let key = KeyFile::new(format!("/proc/self/fd/{}", opened.as_raw_fd()));
            let error = key.passphrase().unwrap_err().to_string();
            assert!(error.ends_with("from them at the file that it leads to"), "{error}");
        }
        assert!(KeyFile::new(directory.path()).passphrase().unwrap_err().to_string().contains("a directory"));
        assert!(KeyFile::new("/dev/zero").passphrase().unwrap_err().to_string().contains("a device"));
    }

    #[test]
    fn a_pipe_without_a_name_is_a_file() {
        let (reader, mut writer) = io::pipe().unwrap();
        writer.write_all(b"word").unwrap();
        drop(writer);
        let key = KeyFile::new(format!("/dev/fd/{}", reader.as_raw_fd()));
        assert_eq!(key.passphrase().unwrap(), b"word");
        assert_eq!(key.clone().passphrase().unwrap(), b"word");
    }
}
