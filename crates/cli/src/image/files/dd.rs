//! `blockyard image dd`: blocks between an image's disks, files in it, and files of the host.

use crate::destination::or_no_space;
use crate::image::file_commands::FileCommand;
use crate::image::stdin::{self, Stdin};
use crate::terminal::OutputError;
use crate::{UsageError, print, size};
use anyhow::{Context, Result, bail};
use blockyard_block::{FileDisk, FileFormat, FileOptions, ReplacementFile, shown};
use blockyard_image::Access;
use blockyard_image::guest::{OpenImage, image_path};
use blockyard_image::guest::{read_in, write_out};
use blockyard_protocol::appliance::{CopyBlocks, Operation, Place};
use blockyard_protocol::volume_name::lettered;
use clap::Args;
use rustix::fs::{CWD, Mode, OFlags, openat};
use rustix::io::Errno;
use std::cell::Cell;
use std::ffi::OsStr;
use std::ffi::OsString;
use std::fs::File;
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Copy blocks, as dd does: if=FROM of=TO [bs=SIZE] [count=N] [skip=N] [seek=N] [conv=notrunc].
///
/// FROM and TO are disks or partitions of the image (/dev/sda, sda1), files in it (image:/PATH), or files of the host (anything else; - for
/// stdin and stdout). A device must not be mounted to be written.
#[derive(Args)]
pub struct Dd {
    /// KEY=VALUE, as dd has them.
    #[arg(value_name = "KEY=VALUE", required = true)]
    operands: Vec<OsString>,
    /// The host's file, once it is open.
    #[arg(skip)]
    opened: Cell<Option<File>>,
}

/// What the operands say.
#[derive(Debug, PartialEq, Eq)]
struct Copy {
    from: End,
    to: End,
    block_bytes: u64,
    /// Blocks.
    count: Option<u64>,
    skip: u64,
    seek: u64,
    truncates: bool,
}

/// One end of a copy.
#[derive(Clone, Debug, PartialEq, Eq)]
enum End {
    Device(String),
    Inside(Vec<u8>),
    Host(PathBuf),
    Standard,
}

impl End {
    fn parse(word: &OsStr) -> Self {
        let bytes = word.as_bytes();
        if let Some(path) = bytes.strip_prefix(b"image:") {
            return Self::Inside(image_path(Path::new(OsStr::from_bytes(path))));
        }
        match word.to_str() {
            Some("-") => Self::Standard,
            Some(name) if is_device(name) => Self::Device(name.to_owned()),
            _ => Self::Host(word.into()),
        }
    }

    fn place(&self) -> Place {
        match self {
            Self::Device(name) => Place::Device(name.clone()),
            Self::Inside(path) => Place::File(path.clone()),
            Self::Host(_) | Self::Standard => Place::Stream,
        }
    }
}

/// What lies in /dev and is no device that an image could have: `/dev/fd/N` is what shells make of `<(…)`.
const HOST_FILES: &[&str] = &["null", "zero", "stdin", "stdout", "urandom", "random", "full", "fd", "shm"];

/// Devices of the host are not meant: those have no place here.
fn is_device(name: &str) -> bool {
    let short = name.strip_prefix("/dev/");
    let named = lettered(name).is_some();
    // Those that are files of the host's, whatever devices an image has.
    let first = short.and_then(|short| short.split('/').next());
    named || first.is_some_and(|first| !HOST_FILES.contains(&first))
}

impl Copy {
    fn parse(operands: &[OsString]) -> Result<Self, UsageError> {
        let (mut from, mut to) = (None, None);
        let mut copy = Self {
            from: End::Standard,
            to: End::Standard,
            block_bytes: 512,
            count: None,
            skip: 0,
            seek: 0,
            truncates: true,
        };
        for operand in operands {
            let bytes = operand.as_bytes();
            let wrong = |problem: &str| UsageError(format!("{}: {problem}", shown(Path::new(operand))));
            let Some(at) = bytes.iter().position(|&byte| byte == b'=') else {
                return Err(wrong("an operand is KEY=VALUE, such as if=/dev/sda"));
            };
            let (key, value) = (&bytes[..at], OsStr::from_bytes(&bytes[at + 1..]));
            let number = || size::parse(&value.to_string_lossy()).map_err(|problem| wrong(&problem));
            match key {
                b"if" => from = Some(End::parse(value)),
                b"of" => to = Some(End::parse(value)),
                b"bs" => copy.block_bytes = number()?,
                b"count" => copy.count = Some(number()?),
                b"skip" => copy.skip = number()?,
                b"seek" => copy.seek = number()?,
                b"conv" if value == "notrunc" => copy.truncates = false,
                // What is written is flushed when the image is closed.
                b"conv" if matches!(value.to_str(), Some("fsync" | "fdatasync")) => {}
                b"status" => {}
                _ => return Err(wrong("the operands are if, of, bs, count, skip, seek and conv=notrunc")),
            }
        }
        let (Some(from), Some(to)) = (from, to) else {
            return Err(UsageError("name both ends: if=FROM of=TO".to_owned()));
        };
        let outside = |end: &End| matches!(end, End::Host(_) | End::Standard);
        if outside(&from) && outside(&to) {
            return Err(UsageError("neither end is in the image: /dev/sda and image:/PATH are".to_owned()));
        }
        if copy.block_bytes == 0 {
            return Err(UsageError("bs=0: a block has bytes".to_owned()));
        }
        Ok(Self { from, to, ..copy })
    }

    /// The host's file that is read, or written as it is; `None` when it is to be made, or replaced.
    fn open_host(&self) -> Result<Option<File>> {
        match (&self.from, &self.to) {
            // Once: what is written into a FIFO goes to those who have it open.
            (End::Host(path), _) => Ok(Some(File::open(path).with_context(|| shown(path).to_string())?)),
            (_, End::Host(path)) => self.open_output(path).with_context(|| shown(path).to_string()),
            _ => Ok(None),
        }
    }

    fn open_output(&self, path: &Path) -> io::Result<Option<File>> {
        let seen = match openat(CWD, path, OFlags::PATH | OFlags::CLOEXEC, Mode::empty()) {
            Err(Errno::NOENT) => return Ok(None),
            seen => File::from(seen?),
        };
        let kind = seen.metadata()?.file_type();
        if kind.is_file() && self.replaces() {
            return Ok(None);
        }
        // What is written there may be read: who may not read a file cannot lock it, and its format is in it.
        let is_read = kind.is_file() || kind.is_block_device();
        let mut how = File::options();
        how.read(is_read).write(true);
        let file = match how.open(format!("/proc/self/fd/{}", seen.as_raw_fd())) {
            // There is no /proc here.
            Err(error) if error.kind() == io::ErrorKind::NotFound => how.open(path)?,
            opened => opened?,
        };
        let identity = |file: &File| file.metadata().map(|metadata| (metadata.dev(), metadata.ino()));
        match identity(&file)? == identity(&seen)? {
            true => Ok(Some(file)),
            false => Err(io::Error::other("another file took its place while it was opened")),
        }
    }

    /// Whether a regular file is replaced as a whole.
    fn replaces(&self) -> bool {
        self.truncates && self.seek == 0
    }

    /// The bytes of a disk and those of a file that has a disk in a format of its own are not each other's. `opened`: the host's file.
    fn refuse_containers(&self, opened: Option<&File>) -> Result<()> {
        let format = |path: &Path| opened.and_then(FileFormat::of_file).flatten().or_else(|| FileFormat::of_name(path));
        match (&self.from, &self.to) {
            (End::Host(path), End::Device(device)) => match format(path) {
                Some(FileFormat { name, .. }) => bail!(
                    "{} is {name}, whose bytes are no disk's: convert or unpack it first, or give them on stdin if that is what \
                     {device} is to hold (if=-)",
                    shown(path)
                ),
                None => Ok(()),
            },
            // What is replaced was something else; its name stays.
            (End::Device(_), End::Host(path)) => match format(path) {
                Some(FileFormat { name, .. }) => bail!(
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
        blocks.checked_mul(self.block_bytes).context("so many blocks of that size are more than there can be")
    }

    /// The host's file, which may be open already, from where it is read, as far as it is read.
    fn input(&self, opened: Option<File>, stdin: Stdin) -> Result<Box<dyn Read + Send>> {
        let limit = self.count.map(|count| self.offset(count)).transpose()?.unwrap_or(u64::MAX);
        let skip = self.offset(self.skip)?;
        match &self.from {
            End::Standard => {
                let mut stdin = stdin;
                io::copy(&mut stdin.by_ref().take(skip), &mut io::sink()).context("cannot read stdin")?;
                Ok(Box::new(stdin.take(limit)))
            }
            End::Host(path) => {
                let open = || {
                    let mut file = opened.map_or_else(|| File::open(path), Ok)?;
                    // What cannot be skipped in is read.
                    if file.seek(SeekFrom::Start(skip)).is_err() {
                        io::copy(&mut (&file).take(skip), &mut io::sink())?;
                    }
                    Ok::<_, io::Error>(file)
                };
                Ok(Box::new(open().with_context(|| shown(path).to_string())?.take(limit)))
            }
            End::Device(_) | End::Inside(_) => bail!("it is in the image"),
        }
    }

    /// The host's file, from where it is written. All of a file is replaced when it is complete; a part of one is written in place. A new one with
    /// the bytes of a disk is for nobody that the disk's `permissions` are not for.
    fn output(&self, opened: Option<File>, permissions: Option<u32>) -> Result<HostOutput> {
        let End::Host(path) = &self.to else { return Ok(HostOutput::Standard(io::stdout())) };
        if opened.is_none() && self.replaces() {
            let permissions = permissions.filter(|_| matches!(self.from, End::Device(_)));
            return Ok(HostOutput::Whole(ReplacementFile::create_like(path, permissions)?));
        }
        let seek = self.offset(self.seek)?;
        let open = || {
            // One that has come since has not been judged.
            let make = || File::options().read(true).write(true).create_new(true).open(path);
            let mut file = opened.map_or_else(make, Ok)?;
            if seek > 0 {
                file.seek(SeekFrom::Start(seek))?;
            }
            let is_regular = file.metadata()?.is_file();
            Ok::<_, io::Error>((file, is_regular))
        };
        let (file, is_regular) = open().with_context(|| shown(path).to_string())?;
        if is_regular {
            FileDisk::lock(&file, path, &FileOptions::default())?;
        }
        let cut_at = (self.truncates && is_regular).then_some(seek);
        Ok(HostOutput::Part { file, cut_at })
    }
}

/// What of the host's is written.
enum HostOutput {
    Standard(io::Stdout),
    Whole(ReplacementFile),
    /// What is behind `cut_at` goes when the first byte comes.
    Part {
        file: File,
        cut_at: Option<u64>,
    },
}

impl HostOutput {
    /// All has come.
    fn finish(mut self, durable: bool) -> Result<()> {
        if let Self::Part { file, cut_at: Some(at) } = &self {
            file.set_len(*at).map_err(OutputError)?;
        }
        self.flush().map_err(OutputError)?;
        match self {
            Self::Whole(file) => Ok(file.commit(durable)?),
            Self::Standard(_) | Self::Part { .. } => Ok(()),
        }
    }
}

impl Write for HostOutput {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Standard(stdout) => stdout.write(bytes),
            Self::Whole(new) => new.file().write(bytes),
            Self::Part { file, cut_at } => {
                if let Some(at) = cut_at.take() {
                    file.set_len(at)?;
                }
                file.write(bytes)
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Standard(stdout) => stdout.flush(),
            Self::Whole(_) | Self::Part { .. } => Ok(()),
        }
    }
}

impl FileCommand for Dd {
    fn access(&self) -> Access {
        match Copy::parse(&self.operands) {
            Ok(Copy { to: End::Host(_) | End::Standard, .. }) => Access::Read,
            _ => Access::Write,
        }
    }

    fn mounts(&self) -> bool {
        let inside = |end: &End| matches!(end, End::Inside(_));
        Copy::parse(&self.operands).is_ok_and(|copy| inside(&copy.from) || inside(&copy.to))
    }

    fn check(&self) -> Result<()> {
        let copy = Copy::parse(&self.operands)?;
        let opened = copy.open_host()?;
        copy.refuse_containers(opened.as_ref())?;
        self.opened.set(opened);
        Ok(())
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        let copy = Copy::parse(&self.operands)?;
        let from_host = matches!(copy.from, End::Host(_) | End::Standard);
        let request = CopyBlocks {
            input: copy.from.place(),
            output: copy.to.place(),
            block_size: copy.block_bytes,
            count: if from_host { u64::MAX } else { copy.count.unwrap_or(u64::MAX) },
            skip: copy.skip,
            seek: copy.seek,
            no_truncate: !copy.truncates,
            disks: image.disks(),
        };
        let operation = Operation::CopyBlocks(request);
        if matches!(copy.from, End::Standard) {
            stdin::claim()?;
        }
        if from_host {
            let bytes = stdin::lent(|stdin| Ok(read_in(image, operation, copy.input(self.opened.take(), stdin)?)?))?;
            return say(&copy, bytes);
        }
        if matches!(copy.to, End::Host(_) | End::Standard) {
            let output = copy.output(self.opened.take(), image.permissions())?;
            let sent = write_out(image, operation, output).map_err(anyhow::Error::from);
            let done = sent.and_then(|output| output.finish(image.is_durable()));
            return done.map_err(|error| match &copy.to {
                End::Host(path) => or_no_space(error, path),
                _ => error,
            });
        }
        let bytes = image.call(operation)?.bytes;
        say(&copy, bytes)
    }
}

fn say(copy: &Copy, bytes: u64) -> Result<()> {
    match copy.to {
        End::Standard => Ok(()),
        _ => print(&format!("{bytes} bytes ({}) copied", size::human(bytes))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<Copy, UsageError> {
        Copy::parse(&text.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn operands_are_those_of_dd() {
        let copy = parse("if=/dev/sda1 of=out.img bs=1M count=4 skip=2").unwrap();
        assert_eq!((&copy.from, &copy.to), (&End::Device("/dev/sda1".into()), &End::Host("out.img".into())));
        assert_eq!((copy.block_bytes, copy.count, copy.skip, copy.seek), (1 << 20, Some(4), 2, 0));
        let copy = parse("if=- of=image:/big conv=notrunc seek=3").unwrap();
        assert_eq!((&copy.from, &copy.to), (&End::Standard, &End::Inside(b"/big".into())));
        assert!(!copy.truncates && copy.seek == 3 && copy.block_bytes == 512);
        assert_eq!(parse("if=/dev/zero of=sda").unwrap().from, End::Host("/dev/zero".into()));
        assert_eq!(parse("if=sdcard.img of=sda").unwrap().from, End::Host("sdcard.img".into()));
        assert_eq!(parse("if=/dev/fd/63 of=sda").unwrap().from, End::Host("/dev/fd/63".into()));
        assert_eq!(parse("if=sda of=/dev/shm/disk.img").unwrap().to, End::Host("/dev/shm/disk.img".into()));
        assert_eq!(parse("if=/dev/vg/root of=-").unwrap().from, End::Device("/dev/vg/root".into()));
    }

    #[test]
    fn operands_that_make_no_sense_are_refused() {
        for text in
            ["if=a of=b", "if=sda", "of=sda", "if=sda of=x bs=0", "if=sda of=x bs=y", "if=sda of=x cbs=1", "if=sda of"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
