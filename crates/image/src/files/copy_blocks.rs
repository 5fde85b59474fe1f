//! Copying blocks, as dd(1) does: between an image's disks, files in it, and files of the host.

use crate::error::{Context, Error, Result, refuse};
use crate::guest::{OpenImage, read_in, write_out};
use blockyard_block::{
    FileDisk, FileFormat, FileOptions, FoundJournal, OpenedFile, ReplacementFile, descriptor_path,
    refuse_missing_device, refuse_strangers, shown,
};
use blockyard_protocol::appliance::{CopyBlocks, Operation, Place};
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// What a new file is for, as far as the umask lets it.
const NEW_PERMISSIONS: u32 = 0o666;

/// What is copied where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BlockCopy {
    /// What is read.
    pub from: BlockEnd,
    /// What is written.
    pub to: BlockEnd,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Blocks that are copied; `None`: all there are.
    pub count: Option<u64>,
    /// Blocks of what is read that are skipped.
    pub skip: u64,
    /// Blocks of what is written that are skipped.
    pub seek: u64,
    /// What is behind the last block that is written goes, of a file.
    pub truncate: bool,
}

/// One end of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BlockEnd {
    /// A disk or another volume of the image, by its name. It must not be mounted to be written.
    Device(String),
    /// A file of the image, by its path.
    File(Vec<u8>),
    /// A file of the host.
    Host(PathBuf),
    /// A stream of the caller's, by what it is called in messages.
    Stream(&'static str),
}

impl BlockEnd {
    /// Whether it is not in the image.
    pub fn is_outside(&self) -> bool {
        matches!(self, Self::Host(_) | Self::Stream(_))
    }

    fn place(&self) -> Place {
        match self {
            Self::Device(name) => Place::Device(name.clone()),
            Self::File(path) => Place::File(path.clone()),
            Self::Host(_) | Self::Stream(_) => Place::Stream,
        }
    }
}

/// A copy whose file of the host is open, or is to be made or replaced.
#[derive(Debug)]
pub struct OpenedBlockCopy {
    copy: BlockCopy,
    host: Option<File>,
}

impl BlockCopy {
    /// Opens the host's file, if there is one: once, as what is written into a FIFO goes to those who have it open.
    ///
    /// # Errors
    /// When it cannot be opened, or somebody else may have put it there to read what is written. When one end is a
    /// volume, and the other a file that has, or by its name would have, a disk in a format of its own.
    pub fn open(self) -> Result<OpenedBlockCopy> {
        let host = self.open_host()?;
        self.refuse_containers(host.as_ref())?;
        Ok(OpenedBlockCopy { copy: self, host })
    }

    /// The host's file that is read, or written as it is; `None` when it is to be made, or replaced.
    fn open_host(&self) -> Result<Option<File>> {
        match (&self.from, &self.to) {
            (BlockEnd::Host(path), _) => Ok(Some(File::open(path).with_context(|| shown(path).to_string())?)),
            (_, BlockEnd::Host(path)) => self.open_output(path),
            _ => Ok(None),
        }
    }

    fn open_output(&self, path: &Path) -> Result<Option<File>> {
        let seen = match openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT) => {
                refuse_missing_device(path)?;
                return Ok(None);
            }
            seen => File::from(seen.map_err(io::Error::from).with_context(|| shown(path).to_string())?),
        };
        let kind = seen.metadata().with_context(|| shown(path).to_string())?.file_type();
        if kind.is_file() && self.replaces() {
            return Ok(None);
        }
        if kind.is_file() || kind.is_fifo() {
            refuse_strangers(&seen, path)?;
        }
        // What is written there may be read: who may not read a file cannot lock it, and its format is in it.
        let is_read = kind.is_file() || kind.is_block_device();
        open_to_write(&seen, path, is_read).with_context(|| shown(path).to_string()).map(Some)
    }

    /// Whether a regular file is replaced as a whole.
    fn replaces(&self) -> bool {
        self.truncate && self.seek == 0
    }

    /// The bytes of a disk and those of a file that has a disk in a format of its own are not each other's. `opened`:
    /// the host's file.
    fn refuse_containers(&self, opened: Option<&File>) -> Result<()> {
        let format = |path: &Path| -> Result<Option<&'static FileFormat>> {
            let seen = opened.map(FileFormat::of_file).transpose().with_context(|| shown(path).to_string())?;
            Ok(seen.flatten().flatten().or_else(|| FileFormat::of_name(path)))
        };
        match (&self.from, &self.to) {
            (BlockEnd::Host(path), BlockEnd::Device(device)) => match format(path)? {
                Some(FileFormat { name, .. }) => refuse!(
                    "{} is {name}, whose bytes are no disk's: convert or unpack it first, or give them on stdin if that is what \
                     {device} is to hold (if=-)",
                    shown(path)
                ),
                None => Ok(()),
            },
            // What is replaced was something else; its name stays.
            (BlockEnd::Device(_), BlockEnd::Host(path)) => match format(path)? {
                Some(FileFormat { name, .. }) => refuse!(
                    "{} would be taken for {name}, and dd writes the disk's own bytes: choose another name, or write to \
                     stdout (of=-)",
                    shown(path)
                ),
                None => Ok(()),
            },
            _ => Ok(()),
        }
    }

    fn offset(&self, blocks: u64) -> Result<u64> {
        let bytes = blocks.checked_mul(self.block_bytes);
        bytes.ok_or_else(|| Error::refused("so many blocks of that size are more than there can be"))
    }

    /// What is read of the host, from where it is read, as far as it is read.
    fn input(&self, host: Option<File>, mut stream: impl Read + Send + 'static) -> Result<Box<dyn Read + Send>> {
        let limit = self.count.map(|count| self.offset(count)).transpose()?.unwrap_or(u64::MAX);
        let skip = self.offset(self.skip)?;
        match (&self.from, host) {
            (BlockEnd::Host(path), Some(mut file)) => {
                // What cannot be skipped in is read.
                if file.seek(SeekFrom::Start(skip)).is_err() {
                    let read = io::copy(&mut (&file).take(skip), &mut io::sink());
                    read.with_context(|| shown(path).to_string())?;
                }
                Ok(Box::new(file.take(limit)))
            }
            (BlockEnd::Stream(name), _) => {
                let skipped = io::copy(&mut stream.by_ref().take(skip), &mut io::sink());
                skipped.with_context(|| format!("cannot read {name}"))?;
                Ok(Box::new(stream.take(limit)))
            }
            _ => refuse!("it is in the image"),
        }
    }

    /// What is written of the host, from where it is written. All of a file is replaced when it is complete; a part of
    /// one is written in place. A new one with the bytes of a disk is for nobody that the disk's `permissions` are not
    /// for.
    fn output<W: Write>(&self, host: Option<File>, stream: W, permissions: Option<u32>) -> Result<Output<W>> {
        let BlockEnd::Host(path) = &self.to else { return Ok(Output::Stream(stream)) };
        let permissions = permissions.filter(|_| matches!(self.from, BlockEnd::Device(_)));
        if host.is_none() && self.replaces() {
            return Ok(Output::Whole(ReplacementFile::create_like(path, permissions)?));
        }
        let seek = self.offset(self.seek)?;
        let open = || {
            // One that has come since has not been judged.
            let mode = permissions.map_or(NEW_PERMISSIONS, |permissions| permissions & NEW_PERMISSIONS);
            let make = || File::options().read(true).write(true).create_new(true).mode(mode).open(path);
            let mut file = host.map_or_else(make, Ok)?;
            if seek > 0 {
                file.seek(SeekFrom::Start(seek))?;
            }
            let kind = file.metadata()?.file_type();
            Ok::<_, io::Error>((file, kind.is_file(), kind.is_block_device()))
        };
        let (file, is_regular, is_device) = open().with_context(|| shown(path).to_string())?;
        if is_regular {
            FileDisk::lock(&file, path, &FileOptions::default())?;
            // It may be an image.
            let image = file.try_clone().with_context(|| shown(path).to_string())?;
            FoundJournal::refuse_to_write(&OpenedFile::new(image, path.clone()))?;
        }
        let cut_at = (self.truncate && is_regular).then_some(seek);
        Ok(Output::Part { file, cut_at, is_stored: is_regular || is_device })
    }
}

/// Opens what was found by `path`, and nothing that took its place.
fn open_to_write(seen: &File, path: &Path, is_read: bool) -> io::Result<File> {
    let mut how = File::options();
    how.read(is_read).write(true);
    let file = match how.open(descriptor_path(seen)) {
        // There is no /proc here.
        Err(error) if error.kind() == io::ErrorKind::NotFound => how.open(path)?,
        opened => opened?,
    };
    let identity = |file: &File| file.metadata().map(|metadata| (metadata.dev(), metadata.ino()));
    match identity(&file)? == identity(seen)? {
        true => Ok(file),
        false => Err(io::Error::other("another file took its place while it was opened")),
    }
}

impl OpenImage {
    /// Copies blocks. A file of the image must be mounted, a volume need not be, and to be written must not. `input`
    /// and `output` are what [`BlockEnd::Stream`] means; they are left alone otherwise.
    ///
    /// Bytes that were copied within the image, or into it; none for what came out of it.
    ///
    /// # Errors
    /// When neither end is in the image, when one of them is not there, or cannot be read or written. All of a file of
    /// the host is replaced when it is complete.
    pub fn copy_blocks(
        &mut self,
        opened: OpenedBlockCopy,
        input: impl Read + Send + 'static,
        output: impl Write + Send + 'static,
    ) -> Result<u64> {
        let OpenedBlockCopy { copy, host } = opened;
        let (comes_in, goes_out) = (copy.from.is_outside(), copy.to.is_outside());
        let request = CopyBlocks {
            input: copy.from.place(),
            output: copy.to.place(),
            block_size: copy.block_bytes,
            count: if comes_in { u64::MAX } else { copy.count.unwrap_or(u64::MAX) },
            skip: copy.skip,
            seek: copy.seek,
            no_truncate: !copy.truncate,
            disks: self.disks(),
        };
        let operation = Operation::CopyBlocks(request);
        match (comes_in, goes_out) {
            (true, true) => refuse!("neither end is in the image"),
            (true, false) => read_in(self, operation, copy.input(host, input)?),
            (false, true) => {
                let output = copy.output(host, output, self.permissions())?;
                let sent = write_out(self, operation, output);
                let done = sent.and_then(|output| output.finish(self.is_durable()));
                match &copy.to {
                    BlockEnd::Host(path) => done.map_err(|error| error.or_no_space(path))?,
                    _ => done?,
                }
                Ok(0)
            }
            (false, false) => Ok(self.call(operation)?.bytes),
        }
    }
}

/// What of the host's is written.
enum Output<W> {
    Stream(W),
    Whole(ReplacementFile),
    /// What is behind `cut_at` goes when the first byte comes. `is_stored`: there is storage behind it, where it can
    /// become stable.
    Part {
        file: File,
        cut_at: Option<u64>,
        is_stored: bool,
    },
}

impl<W: Write> Output<W> {
    /// All has come.
    fn finish(mut self, durable: bool) -> Result<()> {
        if let Self::Part { file, cut_at: Some(at), .. } = &self {
            file.set_len(*at).map_err(Error::Output)?;
        }
        self.flush().map_err(Error::Output)?;
        match self {
            Self::Whole(file) => Ok(file.commit(durable)?),
            Self::Part { file, is_stored: true, .. } if durable => file.sync_all().map_err(Error::Output),
            Self::Stream(_) | Self::Part { .. } => Ok(()),
        }
    }
}

impl<W: Write> Write for Output<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Stream(stream) => stream.write(bytes),
            Self::Whole(new) => new.file().write(bytes),
            Self::Part { file, cut_at, .. } => {
                if let Some(at) = cut_at.take() {
                    file.set_len(at)?;
                }
                file.write(bytes)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Stream(stream) => stream.flush(),
            Self::Whole(_) | Self::Part { .. } => Ok(()),
        }
    }
}
