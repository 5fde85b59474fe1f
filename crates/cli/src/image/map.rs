//! `blockyard image map`: where a disk's bytes lie.

use super::named_image;
use super::shut_in::shut_in;
use crate::disk::{self, Access};
use crate::size;
use crate::terminal::OutputError;
use anyhow::{Context, Result, bail};
use blockyard_block::specification::{DiskSpecification, Format, Kind};
use blockyard_block::{
    AllowedDirectories, Disk, ExtentKind, FileOptions, OpenedFile, Qcow2Disk, Qcow2Mapping, Qcow2MappingKind,
    image_chain, printable,
};
use clap::Args;
use std::io::{self, BufWriter, Write};
use std::ops::Range;
use std::path::PathBuf;

/// Show where the bytes of an image's disk lie, in it and in the images behind it.
///
/// Without --json: the data, each with its place in a file. With it: everything, as qemu-img prints it.
#[derive(Args)]
pub struct MapArgs {
    /// Image: [KIND:]PATH[,KEY=VALUE...]
    image: String,
    /// Format of the image.
    #[arg(short, value_name = "FORMAT", value_parser = named_image::formats())]
    format: Option<Format>,
    /// Where on the disk to begin.
    #[arg(long, value_name = "OFFSET", default_value = "0", value_parser = size::parse)]
    start_offset: u64,
    /// How far to go [default: to the end].
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    max_length: Option<u64>,
    /// Print a JSON array on stdout.
    #[arg(long)]
    json: bool,
    /// Directory whose files an image may refer to; may be given more than once.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// When the image cannot be read.
pub fn run(args: &MapArgs) -> Result<()> {
    let named = named_image::parse(&args.image, args.format)?.read_only();
    let access = Access::to_read_once(&args.allow_dir);
    let file = match named.kind() {
        Kind::File => Some(disk::open_file(&named, &access)?.file),
        _ => None,
    };
    let Mapped { disk, files } = Mapped::open(&named, file.as_ref(), &args.allow_dir)?;
    let capacity_bytes = disk.capacity_bytes();
    shut_in(&[&named], Vec::new(), 1)?;
    let end = args.start_offset.saturating_add(args.max_length.unwrap_or(u64::MAX)).min(capacity_bytes);
    let mut output = BufWriter::new(io::stdout().lock());
    let mut printer = Printer { output: &mut output, files: &files, is_json: args.json, is_first: true };
    printer.begin().map_err(OutputError)?;
    let (mut at, mut last) = (args.start_offset, None::<Entry>);
    while at < end {
        let entry = disk.entry(at..end).with_context(|| format!("cannot read the map of {named}"))?;
        at += entry.length_bytes;
        match &mut last {
            Some(last) if last.continues_with(&entry) => last.length_bytes += entry.length_bytes,
            _ => {
                if let Some(done) = last.replace(entry) {
                    printer.entry(&done)?;
                }
            }
        }
    }
    if let Some(done) = last {
        printer.entry(&done)?;
    }
    Ok(printer.end().and_then(|()| output.flush()).map_err(OutputError)?)
}

/// A disk, and the names of the files that it is in, by depth.
struct Mapped {
    disk: MappedDisk,
    files: Vec<String>,
}

enum MappedDisk {
    Qcow2(Qcow2Disk),
    Other(std::sync::Arc<dyn Disk>),
}

impl Mapped {
    fn open(named: &DiskSpecification, file: Option<&OpenedFile>, allow_dirs: &[PathBuf]) -> Result<Self> {
        let is_whole = named.format() == Some(Format::Qcow2) && named.partition().is_none();
        let Some(image) = file.filter(|_| is_whole) else {
            let disk = disk::open(named, &Access { file, ..Access::to_read_once(allow_dirs) })?.disk;
            return Ok(Self { disk: MappedDisk::Other(disk), files: vec![named_file(named)] });
        };
        let allowed = AllowedDirectories::new(allow_dirs)?;
        let options = FileOptions { read_only: true, ..FileOptions::default() };
        let disk = Qcow2Disk::open_in(image.file().try_clone()?, image.path(), &options, &allowed)?;
        let files = image_chain(image, &allowed)?.iter().map(|image| image.path.display().to_string()).collect();
        Ok(Self { disk: MappedDisk::Qcow2(disk), files })
    }
}

fn named_file(named: &DiskSpecification) -> String {
    named.path().map_or_else(|| named.to_string(), |path| path.display().to_string())
}

/// An entry of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    start_bytes: u64,
    length_bytes: u64,
    depth: usize,
    is_present: bool,
    is_zero: bool,
    has_data: bool,
    is_compressed: bool,
    /// Where in the file at the depth.
    offset_bytes: Option<u64>,
}

impl Entry {
    /// Whether `next`, which begins where this ends, says nothing new.
    fn continues_with(&self, next: &Self) -> bool {
        let offset_bytes = self.offset_bytes.map(|offset| offset + self.length_bytes);
        let (start_bytes, length_bytes) = (next.start_bytes, next.length_bytes);
        *next == Self { start_bytes, length_bytes, offset_bytes, ..*self }
    }
}

impl MappedDisk {
    fn capacity_bytes(&self) -> u64 {
        match self {
            Self::Qcow2(disk) => disk.geometry().capacity_bytes,
            Self::Other(disk) => disk.geometry().capacity_bytes,
        }
    }

    fn entry(&self, range: Range<u64>) -> io::Result<Entry> {
        let start_bytes = range.start;
        let (mapping, is_qcow2) = match self {
            Self::Qcow2(disk) => (disk.map(range)?, true),
            Self::Other(disk) => (plain(&**disk, range)?, false),
        };
        let Qcow2Mapping { length_bytes, depth, kind } = mapping;
        let entry = Entry {
            start_bytes,
            length_bytes,
            depth,
            is_present: true,
            is_zero: false,
            has_data: false,
            is_compressed: false,
            offset_bytes: None,
        };
        Ok(match kind {
            Qcow2MappingKind::Data { offset_bytes } => {
                Entry { has_data: true, offset_bytes: Some(offset_bytes), ..entry }
            }
            Qcow2MappingKind::Compressed => Entry { has_data: true, is_compressed: true, ..entry },
            Qcow2MappingKind::Zeros => Entry { is_zero: true, ..entry },
            Qcow2MappingKind::Hole { offset_bytes } => {
                Entry { is_zero: true, offset_bytes: Some(offset_bytes), ..entry }
            }
            Qcow2MappingKind::Absent => Entry { is_zero: true, is_present: !is_qcow2, ..entry },
        })
    }
}

/// A disk that is one file, byte by byte, or none at all.
fn plain(disk: &dyn Disk, range: Range<u64>) -> io::Result<Qcow2Mapping> {
    let extent = disk.extents(range.clone())?;
    let kind = match extent.kind {
        ExtentKind::Data => Qcow2MappingKind::Data { offset_bytes: range.start },
        ExtentKind::Zero | ExtentKind::Hole => Qcow2MappingKind::Hole { offset_bytes: range.start },
    };
    Ok(Qcow2Mapping { length_bytes: extent.length_bytes, depth: 0, kind })
}

/// Prints entries as they come: a map may be long.
struct Printer<'a, W> {
    output: &'a mut W,
    files: &'a [String],
    is_json: bool,
    is_first: bool,
}

impl<W: Write> Printer<'_, W> {
    fn begin(&mut self) -> io::Result<()> {
        match self.is_json {
            true => write!(self.output, "["),
            false => writeln!(self.output, "{:<16}{:<16}{:<16}File", "Offset", "Length", "Mapped to"),
        }
    }

    fn entry(&mut self, entry: &Entry) -> Result<()> {
        if self.is_json {
            return Ok(self.json(entry).map_err(OutputError)?);
        }
        if !entry.has_data {
            return Ok(());
        }
        let Some(offset) = entry.offset_bytes else {
            bail!("the image has compressed clusters, which have no place of their own: add --json");
        };
        let file = self.files.get(entry.depth).map_or_else(String::new, |file| printable(file));
        let hexadecimal = |number: u64| if number == 0 { "0".to_owned() } else { format!("{number:#x}") };
        let [start, length, offset] = [entry.start_bytes, entry.length_bytes, offset].map(hexadecimal);
        Ok(writeln!(self.output, "{start:<16}{length:<16}{offset:<16}{file}").map_err(OutputError)?)
    }

    fn json(&mut self, entry: &Entry) -> io::Result<()> {
        let Entry { start_bytes, length_bytes, depth, is_present, is_zero, has_data, is_compressed, offset_bytes } =
            entry;
        let comma = if std::mem::replace(&mut self.is_first, false) { "" } else { ",\n" };
        write!(
            self.output,
            "{comma}{{ \"start\": {start_bytes}, \"length\": {length_bytes}, \"depth\": {depth}, \"present\": {is_present}, \
             \"zero\": {is_zero}, \"data\": {has_data}, \"compressed\": {is_compressed}"
        )?;
        if let Some(offset) = offset_bytes {
            write!(self.output, ", \"offset\": {offset}")?;
        }
        write!(self.output, "}}")
    }

    fn end(&mut self) -> io::Result<()> {
        if self.is_json { writeln!(self.output, "]") } else { Ok(()) }
    }
}
