//! `blockyard image map`: where a disk's bytes lie.

use super::qemu_flags::{OutputFlags, ReadFlags};
use super::shut_in::shut_in;
use anyhow::{Context, Result, bail};
use blockyard_block::specification::{Format, Kind};
use blockyard_block::{printable, size};
use blockyard_command_line::disk;
use blockyard_command_line::image::named_image;
use blockyard_command_line::terminal::OutputError;
use blockyard_image::whole::map::{Map, MapEntry};
use blockyard_session::open::{OpenOptions, open_disk, open_file};
use clap::Args;
use std::io::{self, BufWriter, Write};
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
    #[command(flatten)]
    output: OutputFlags,
    /// Directory whose files an image may refer to; may be given more than once.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
    #[command(flatten)]
    flags: ReadFlags,
}

/// Runs the command.
///
/// # Errors
/// When the image cannot be read.
pub fn run(args: &MapArgs) -> Result<()> {
    let named = args.flags.applied(named_image::parse(&args.image, args.format)?.read_only());
    let access = disk::to_read(&args.allow_dir).streaming();
    let file = match named.kind() {
        Kind::File => Some(open_file(&named, &access)?.file),
        _ => None,
    };
    let map = match (&file, named.format().filter(|_| named.partition().is_none())) {
        (Some(file), Some(Format::Qcow2)) => Map::of_qcow2(file, named.is_locked(), &args.allow_dir, named.keys())?,
        (Some(file), Some(Format::BlockMap(format))) => {
            Map::of_block_map(file, named.is_locked(), format, &args.allow_dir)?
        }
        (Some(file), Some(Format::Luks)) => Map::of_luks(file, named.is_locked(), named.key_file())?,
        (Some(file), Some(Format::Ova)) => Map::of_ova(file, named.disk_number())?,
        (file, _) => {
            let name = named.path().map_or_else(|| named.to_string(), |path| path.display().to_string());
            Map::of_disk(open_disk(&named, &OpenOptions { file: file.as_ref(), ..access })?.disk, name)
        }
    };
    map.notes().iter().for_each(|note| disk::say_note(note));
    shut_in(&[&named], Vec::new(), 1)?;
    let end = args.start_offset.saturating_add(args.max_length.unwrap_or(u64::MAX));
    let mut output = BufWriter::new(io::stdout().lock());
    let mut printer =
        Printer { output: &mut output, files: map.files(), is_json: args.output.is_json(), is_first: true };
    printer.begin().map_err(OutputError)?;
    for entry in map.entries(args.start_offset..end) {
        printer.entry(&entry.with_context(|| format!("cannot read the map of {named}"))?)?;
    }
    Ok(printer.end().and_then(|()| output.flush()).map_err(OutputError)?)
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

    fn entry(&mut self, entry: &MapEntry) -> Result<()> {
        if self.is_json {
            return Ok(self.json(entry).map_err(OutputError)?);
        }
        if !entry.has_data || entry.is_zero {
            return Ok(());
        }
        let Some(offset) = entry.offset_bytes else {
            bail!("the image has compressed clusters, which have no place of their own: add --json");
        };
        let file = self.files.get(entry.file).map_or_else(String::new, |file| printable(file));
        let hexadecimal = |number: u64| if number == 0 { "0".to_owned() } else { format!("{number:#x}") };
        let [start, length, offset] = [entry.start_bytes, entry.length_bytes, offset].map(hexadecimal);
        Ok(writeln!(self.output, "{start:<16}{length:<16}{offset:<16}{file}").map_err(OutputError)?)
    }

    fn json(&mut self, entry: &MapEntry) -> io::Result<()> {
        let MapEntry {
            start_bytes,
            length_bytes,
            depth,
            is_present,
            is_zero,
            has_data,
            is_compressed,
            offset_bytes,
            ..
        } = entry;
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
