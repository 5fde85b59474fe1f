//! The file of an image, for its headers and tables. What queues carry does not pass through it.

use super::fields::lies_within;
use super::layer::SLICE_WORDS;
use super::logged::Logged;
use super::unusable;
use crate::formats::WritableFile;
use crate::{FileDisk, FileOptions, ImageError, RequestError};
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// A file, for what is read of it.
#[derive(Debug)]
pub(in crate::formats) struct ImageFile {
    file: File,
    path: PathBuf,
    /// Where in the file it begins, of which the rest is somebody else's.
    start_bytes: u64,
    length_bytes: u64,
    /// What is read in the place of what lies in the file.
    logged: Option<Logged>,
    /// The same file where it is written to, and becomes longer.
    written: Option<Arc<WritableFile>>,
}

impl ImageFile {
    /// A file that is looked at by itself.
    ///
    /// # Errors
    /// When it can be no disk.
    pub(in crate::formats) fn of(file: &File, path: &Path) -> Result<Self, ImageError> {
        let failed = |source| ImageError::System { action: "open", path: path.to_owned(), source };
        let handle = || file.try_clone().map_err(failed);
        let options = FileOptions { read_only: true, ..FileOptions::default() };
        Ok(Self::new(handle()?, path, FileDisk::from_file(handle()?, &options)?.length_bytes()))
    }

    /// `length_bytes`: how long the file was when it was opened.
    pub(super) fn new(file: File, path: &Path, length_bytes: u64) -> Self {
        Self { file, path: path.to_owned(), start_bytes: 0, length_bytes, logged: None, written: None }
    }

    /// A part of the file by itself, which lies within it, as a file below this one's path.
    pub(super) fn part(&self, name: &str, range: Range<u64>) -> io::Result<Self> {
        let (start_bytes, length_bytes) = (range.start, range.end - range.start);
        // Whatever its name is.
        let mut path = self.path.clone().into_os_string();
        path.push("/");
        path.push(name);
        Ok(Self {
            file: self.file.try_clone()?,
            path: path.into(),
            start_bytes,
            length_bytes,
            logged: None,
            written: None,
        })
    }

    /// The whole file again.
    pub(super) fn file(&self) -> io::Result<File> {
        self.file.try_clone()
    }

    /// Where in the file the image begins.
    pub(super) fn start_bytes(&self) -> u64 {
        self.start_bytes
    }

    pub(in crate::formats) fn length_bytes(&self) -> u64 {
        self.written.as_ref().map_or(self.length_bytes, |written| written.length_bytes())
    }

    /// The same of a file that is written to as another one.
    pub(super) fn written(self, written: Arc<WritableFile>) -> Self {
        Self { written: Some(written), ..self }
    }

    /// The same file again, as it is without a log.
    pub(super) fn again(&self) -> io::Result<Self> {
        Ok(Self {
            file: self.file.try_clone()?,
            path: self.path.clone(),
            start_bytes: self.start_bytes,
            length_bytes: self.length_bytes,
            logged: None,
            written: self.written.clone(),
        })
    }

    /// Where it ends when what its log holds is done, which may be behind its end.
    pub(super) fn end_bytes(&self) -> u64 {
        self.logged.as_ref().map_or_else(|| self.length_bytes(), Logged::end_bytes)
    }

    /// From now on, this is read in the place of what lies in the file.
    pub(super) fn put_in_front(&mut self, logged: Logged) {
        self.logged = Some(logged);
    }

    /// That, if anything is.
    pub(super) fn logged(&self) -> Option<&Logged> {
        self.logged.as_ref()
    }

    /// The first part of a range that is not read from the file alone.
    pub(super) fn first_logged(&self, range: Range<u64>) -> Option<Range<u64>> {
        self.logged.as_ref()?.first_in(range)
    }

    pub(in crate::formats) fn path(&self) -> &Path {
        &self.path
    }

    /// Fills `bytes`.
    ///
    /// # Errors
    /// `UnexpectedEof` when they reach behind the file's end.
    pub(in crate::formats) fn read(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        let Some(logged) = &self.logged else { return self.read_own(bytes, offset) };
        if !lies_within(offset, bytes.len() as u64, logged.end_bytes()) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        // At most as many as there are bytes.
        let there = self.length_bytes.saturating_sub(offset).min(bytes.len() as u64) as usize;
        let (there, behind) = bytes.split_at_mut(there);
        self.read_own(there, offset)?;
        behind.fill(0);
        logged.change(bytes, offset);
        Ok(())
    }

    fn read_own(&self, bytes: &mut [u8], offset: u64) -> io::Result<()> {
        if self.start_bytes > 0 && !lies_within(offset, bytes.len() as u64, self.length_bytes) {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        self.file.read_exact_at(bytes, self.start_bytes.saturating_add(offset)).map_err(|error| match error.kind() {
            io::ErrorKind::UnexpectedEof => io::Error::new(error.kind(), RequestError::Truncated),
            _ => error,
        })
    }

    /// Fills `words` with numbers of 64 bits, the lowest byte first.
    ///
    /// # Errors
    /// As [`ImageFile::read`].
    pub(super) fn read_le64(&self, words: &mut [u64], offset: u64) -> io::Result<()> {
        self.read_words(words, offset, u64::from_le_bytes)
    }

    /// Fills `words` with numbers of 32 bits, the lowest byte first.
    ///
    /// # Errors
    /// As [`ImageFile::read`].
    pub(super) fn read_le32(&self, words: &mut [u64], offset: u64) -> io::Result<()> {
        self.read_words(words, offset, |bytes| u64::from(u32::from_le_bytes(bytes)))
    }

    /// The same, the highest byte first.
    ///
    /// # Errors
    /// As [`ImageFile::read`].
    pub(super) fn read_be32(&self, words: &mut [u64], offset: u64) -> io::Result<()> {
        self.read_words(words, offset, |bytes| u64::from(u32::from_be_bytes(bytes)))
    }

    /// Fills `words`, at most [`SLICE_WORDS`], with what `number` makes of so many bytes each.
    fn read_words<const N: usize>(
        &self,
        words: &mut [u64],
        offset: u64,
        number: impl Fn([u8; N]) -> u64,
    ) -> io::Result<()> {
        let mut buffer = [[0; N]; SLICE_WORDS];
        let numbers = buffer.get_mut(..words.len()).ok_or(io::ErrorKind::InvalidInput)?;
        self.read(numbers.as_flattened_mut(), offset)?;
        words.iter_mut().zip(numbers).for_each(|(word, bytes)| *word = number(*bytes));
        Ok(())
    }

    /// Up to `length` bytes, as many as there are.
    ///
    /// # Errors
    /// When they cannot be read; the error names the file.
    pub(in crate::formats) fn read_up_to(&self, offset: u64, length: usize) -> Result<Vec<u8>, ImageError> {
        let left = usize::try_from(self.end_bytes().saturating_sub(offset)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; length.min(left)];
        let read = self.read(&mut bytes, offset);
        read.map(|()| bytes).map_err(|source| ImageError::System { action: "read", path: self.path.clone(), source })
    }

    /// What is wrong with the image, as it is said when it is opened: goes on after its path.
    pub(in crate::formats) fn unusable(&self, problem: impl Into<String>) -> ImageError {
        unusable(&self.path, problem)
    }

    /// The same, when it is met on the way.
    pub(super) fn damaged(&self, problem: impl Into<String>) -> io::Error {
        io::Error::new(io::ErrorKind::InvalidData, self.unusable(format!("is damaged: {}", problem.into())))
    }
}
