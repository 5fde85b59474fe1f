//! Images as they are named on the command line, with qemu-img's -f.

use crate::disk::{self, Access, OpenDisk, RECONNECT};
use crate::{UsageError, UsageLines};
use anyhow::{Result, bail};
use blockyard_block::specification::{DiskSpecification, Format, Kind};
use blockyard_block::{Engine, OpenedFile};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use std::path::{Path, PathBuf};

/// Reads the name of a format.
pub fn formats() -> impl TypedValueParser<Value = Format> {
    one_of(&Format::ALL)
}

/// Reads the name of a format that images can be made in.
pub fn made_formats() -> impl TypedValueParser<Value = Format> {
    one_of(&[Format::Raw, Format::Qcow2])
}

/// The one place where the command line's words become formats.
fn one_of(formats: &[Format]) -> impl TypedValueParser<Value = Format> + use<> {
    let words = formats.iter().map(|format| {
        let help = match format {
            Format::Raw => "The disk's bytes as they are",
            Format::Qcow2 => "QEMU's format",
            Format::Vmdk => "VMware's, flat: read only",
        };
        PossibleValue::new(format.word()).help(help)
    });
    PossibleValuesParser::new(words.collect::<Vec<_>>()).try_map(|word| word.parse::<Format>())
}

/// The disk that `text` names, in this format if it does not say which: an image that is there, to be read.
///
/// # Errors
/// [`UsageLines`] when it names no disk.
pub fn source(text: &str, format: Option<Format>) -> Result<DiskSpecification> {
    Ok(target(text, format)?.read_only())
}

/// The same, for a command that looks at the image's file by itself, which it is opened with; `None` for a disk in no file.
///
/// # Errors
/// [`UsageLines`] when it names no disk; when the file cannot be had, or has a change that was cut off.
pub fn whole(
    text: &str,
    format: Option<Format>,
    allow_dirs: &[PathBuf],
) -> Result<(DiskSpecification, Option<OpenedFile>)> {
    let named = source(text, format)?;
    let file = match named.kind() {
        Kind::File => Some(disk::open_image(&named, true, allow_dirs)?.0),
        _ => None,
    };
    Ok((named, file))
}

/// An image's file, open for a command that works on it by itself.
pub struct Opened {
    /// What it is called, and what is said of it.
    pub named: DiskSpecification,
    /// The file.
    pub file: OpenedFile,
    /// A change to it that was cut off is complete now.
    pub was_completed: bool,
}

/// The file of the image that `text` names, in this format if it does not say which: one that is there, open for a command that writes to it by
/// itself. A change to it that was cut off is completed first.
///
/// # Errors
/// [`UsageLines`] when it names no disk; when the file cannot be had.
pub fn changed(text: &str, format: Option<Format>, allow_dirs: &[PathBuf]) -> Result<Opened> {
    let named = target(text, format)?;
    let (file, was_completed) = disk::open_image(&named, false, allow_dirs)?;
    Ok(Opened { named, file, was_completed })
}

/// As [`source`], for a look at an image that somebody else may be writing: without locks, and as it is.
///
/// # Errors
/// [`UsageLines`] when it names no disk.
pub fn shared(text: &str, format: Option<Format>) -> Result<DiskSpecification> {
    Ok(target(text, format)?.unlocked())
}

/// The disk that `text` names, in this format if it does not say which: one that may have to be made.
///
/// # Errors
/// [`UsageLines`] when it names no disk.
pub fn target(text: &str, format: Option<Format>) -> Result<DiskSpecification> {
    let named: DiskSpecification = text.parse().map_err(UsageLines::from)?;
    match format {
        Some(format) => Ok(named.with_format(format).map_err(UsageLines::from)?),
        None => Ok(named),
    }
}

/// A new image's file: a name, and a format at most.
///
/// # Errors
/// [`UsageError`] when it is anything else.
pub fn parse_new(text: &str, format: Option<Format>) -> Result<(PathBuf, Format)> {
    let problem = || UsageError(format!("'{text}' is no new image: a file name, and format=raw|qcow2 at most"));
    Ok(file_alone(text, format)?.ok_or_else(problem)?)
}

/// The file of an image that is there, for a command that works on the file: a name, and a format at most.
///
/// # Errors
/// [`UsageError`] when it is anything else.
pub fn parse_file(text: &str, format: Option<Format>) -> Result<(PathBuf, Format)> {
    let problem = || {
        UsageError(format!(
            "'{text}': it is the image's file that is worked on: a file name, and format=FORMAT at most"
        ))
    };
    Ok(file_alone(text, format)?.ok_or_else(problem)?)
}

/// A file and its format, of a text that says no more.
fn file_alone(text: &str, format: Option<Format>) -> Result<Option<(PathBuf, Format)>> {
    let named = target(text, format)?;
    Ok(named.file_alone().zip(named.format()).map(|(path, format)| (path.to_owned(), format)))
}

/// As [`changed`], of an image that may be based on another.
///
/// # Errors
/// [`UsageError`] when it is none; as [`changed`].
pub fn based(text: &str, format: Option<Format>, allow_dirs: &[PathBuf]) -> Result<Opened> {
    if parse_file(text, format)?.1 != Format::Qcow2 {
        bail!(UsageError(format!("{text}: only qcow2 images have backing files")));
    }
    changed(text, format, allow_dirs)
}

/// A disk whose every byte is read or written once, opened for that.
pub struct Stream {
    /// The disk.
    pub opened: OpenDisk,
    /// Pieces that a thread has under way: what lies in the page cache is not waited for.
    pub depth: usize,
}

/// Opens a disk to be read or written from one end to the other.
///
/// # Errors
/// A sentence that names the disk.
pub fn open_stream(named: &DiskSpecification, read_only: bool, allow_dirs: &[PathBuf]) -> Result<Stream> {
    open_stream_in(named, None, read_only, allow_dirs)
}

/// The same, of a disk whose file may be open already.
///
/// # Errors
/// As [`open_stream`].
pub fn open_stream_in(
    named: &DiskSpecification,
    file: Option<&OpenedFile>,
    read_only: bool,
    allow_dirs: &[PathBuf],
) -> Result<Stream> {
    const WAITED_FOR_DEPTH: usize = 4;
    let in_cache = named.kind() == Kind::File && named.is_buffered();
    let named = if in_cache { named.clone().or_engine(Engine::Sync) } else { named.clone() };
    let opened = disk::open_whole(&named, &Access { file, read_only, allow_dirs, reconnect: RECONNECT })?;
    Ok(Stream { opened, depth: if in_cache { 1 } else { WAITED_FOR_DEPTH } })
}

/// The directory that a file is in, or will be.
pub fn directory_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent.to_owned(),
        _ => PathBuf::from("."),
    }
}
