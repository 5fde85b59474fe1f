//! Images as they are named on the command line, with qemu-img's -f.

use super::image_opts;
use crate::terminal;
use crate::usage_error::{UsageError, UsageLines};
use anyhow::{Result, bail};
use blockyard_block::specification::{DiskSpecification, Format, SaidFormat};
use blockyard_block::{BlockMapFormat, FileFormat, OpenedFile, shown};
use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use std::path::{Path, PathBuf};

/// Reads the name of a format.
pub fn formats() -> impl TypedValueParser<Value = Format> {
    one_of(&Format::ALL)
}

macro_rules! compressed {
    ($($word:literal)*) => { &[$(concat!($word, ".gz"), concat!($word, ".xz"), concat!($word, ".zst")),*] };
}

/// The same, of a backing file: of a raw one, QEMU may be told the driver by which it reads files or devices.
pub fn backing_formats() -> impl TypedValueParser<Value = Format> {
    let values: Vec<_> = Format::ALL.iter().map(possible_value).collect();
    let drivers = DRIVERS.map(|word| PossibleValue::new(word).hide(true));
    PossibleValuesParser::new(values.into_iter().chain(drivers)).try_map(|word| backing_word(&word).parse::<Format>())
}

/// QEMU's drivers of what has no format.
const DRIVERS: [&str; 2] = ["file", "host_device"];

/// The word of the format of a backing file that QEMU is to read by a driver or in a format.
pub fn backing_word(word: &str) -> &str {
    if DRIVERS.contains(&word) { Format::Raw.word() } else { word }
}

/// The words of formats in compressed files.
static COMPRESSED: &[&str] = compressed!("raw" "qcow2" "luks" "vmdk" "vdi" "vpc" "vhdx" "qed" "parallels" "ova");

/// What else a VHD is called.
static COMPRESSED_VHD: &[&str] = compressed!("vhd");

/// Reads the name of a format, or of one in a compressed file.
pub fn source_formats() -> impl TypedValueParser<Value = SaidFormat> {
    let compressed = COMPRESSED.iter().map(|word| {
        let help = "The same in a compressed file, as are the others (qcow2.xz)";
        PossibleValue::new(*word).help(help).hide(!word.starts_with(Format::Raw.word()))
    });
    let aliases = COMPRESSED_VHD.iter().map(|word| PossibleValue::new(*word).hide(true));
    let values: Vec<_> = Format::ALL.iter().map(possible_value).chain(compressed).chain(aliases).collect();
    PossibleValuesParser::new(values).try_map(|word| word.parse::<SaidFormat>())
}

/// Reads the name of a format that images can be made in.
pub fn made_formats() -> impl TypedValueParser<Value = Format> {
    let made: Vec<_> = Format::ALL.into_iter().filter(|format| format.is_made()).collect();
    one_of(&made)
}

/// The same, of those that take no key.
pub fn made_without_key() -> impl TypedValueParser<Value = Format> {
    let made: Vec<_> = Format::ALL.into_iter().filter(|format| format.is_made() && *format != Format::Luks).collect();
    one_of(&made)
}

/// The one place where the command line's words become formats.
fn one_of(formats: &[Format]) -> impl TypedValueParser<Value = Format> + use<> {
    let values: Vec<_> = formats.iter().map(possible_value).collect();
    PossibleValuesParser::new(values).try_map(|word| word.parse::<Format>())
}

fn possible_value(format: &Format) -> PossibleValue {
    let help = match format {
        Format::Raw => "The disk's bytes as they are",
        Format::Qcow2 => "QEMU's format",
        Format::Luks => "LUKS 1, raw behind its header",
        Format::BlockMap(BlockMapFormat::Vmdk) => "VMware's: compressed ones and ESX's are read only",
        Format::BlockMap(BlockMapFormat::Vdi) => "VirtualBox's: read, and made anew",
        Format::BlockMap(BlockMapFormat::Vhd) => "VHD, Virtual PC's, Hyper-V's and Azure's: read, and made anew",
        Format::BlockMap(BlockMapFormat::Vhdx) => "Hyper-V's: read, and made anew",
        Format::BlockMap(BlockMapFormat::Qed) => "QEMU's former one: read only",
        Format::BlockMap(BlockMapFormat::Parallels) => "Parallels': read only",
        Format::Ova => "A machine's archive (,disk=N): read only",
    };
    let value = PossibleValue::new(format.word()).help(help);
    if *format == Format::BlockMap(BlockMapFormat::Vhd) { value.alias("vhd") } else { value }
}

/// The disk that `text` names, in this format if it does not say which.
///
/// # Errors
/// [`UsageLines`] when it names no disk.
pub fn parse(text: &str, format: Option<Format>) -> Result<DiskSpecification> {
    parse_source(text, format.map(SaidFormat::from))
}

/// The same, which may be in a compressed file.
///
/// # Errors
/// As [`parse`].
pub fn parse_source(text: &str, format: Option<SaidFormat>) -> Result<DiskSpecification> {
    let named = match image_opts::named(text) {
        Some(named) => named?,
        None => text.parse().map_err(UsageLines::from)?,
    };
    match format {
        Some(format) => Ok(named.with_format(format).map_err(UsageLines::from)?),
        None => Ok(named),
    }
}

/// An image that is a file, of which no more is said than its format and its key.
pub struct ImageFile {
    /// It as a disk.
    pub named: DiskSpecification,
    /// The file.
    pub path: PathBuf,
    /// What it says that it is, or its name.
    pub format: Format,
}

impl ImageFile {
    /// What it is, in words: where only its name says so, with what it begins like.
    pub fn format_in_words(&self) -> String {
        let is = self.format.word();
        let begins = match self.named.says_format() {
            true => None,
            false => {
                let file = OpenedFile::open(&self.path, true).ok();
                file.and_then(|file| FileFormat::of_file(file.file()).ok().flatten()).flatten()
            }
        };
        match begins.and_then(|begins| begins.word.parse::<Format>().ok()).filter(|begins| *begins != self.format) {
            Some(begins) => {
                let begins = begins.word();
                format!("{is} by its name, but begins like a {begins} image: add -f {begins} if it is one")
            }
            None => is.to_owned(),
        }
    }
}

/// A new image: a name, and a format and a key at most.
///
/// # Errors
/// [`UsageError`] when it is anything else, or its name is that of a format which is not supported.
pub fn parse_new(text: &str, format: Option<Format>) -> Result<ImageFile> {
    let file =
        file_alone(text, format, || format!("'{text}' is no new image: a file name, and format=FORMAT at most"))?;
    file.named.check_new_name()?;
    Ok(file)
}

/// Refuses a new image of which more is said than what it is to be: nothing would come of it.
///
/// # Errors
/// [`UsageError`], if it is one.
pub fn refuse_use_of_new(named: &DiskSpecification) -> Result<()> {
    if named.file_alone().is_none() {
        bail!(UsageError(format!(
            "'{named}' is a new image, which takes format=FORMAT and key-file=FILE: other keys are for disks that are \
             there, and written in place"
        )));
    }
    Ok(())
}

/// Says how a new image is named from now on whose name does not say its format, as only an option did.
pub fn tell_of_name(path: &Path, format: Format) {
    let named = DiskSpecification::of_file(path);
    if named.format() == Some(format) {
        return;
    }
    // It says no format, so it takes one.
    if let Ok(needed) = named.with_format(format) {
        let (path, word) = (shown(path), format.word());
        terminal::say(&format!("{path} is {word}, which its name does not say: other commands want {needed}"));
    }
}

/// An image that is there, for a command that works on the file: a name, and a format and a key at most.
///
/// # Errors
/// [`UsageError`] when it is anything else.
pub fn parse_file(text: &str, format: Option<Format>) -> Result<ImageFile> {
    file_alone(text, format, || {
        format!(
            "'{text}': it is the image's file that is worked on: a file name, and format=FORMAT, key-file=FILE and \
             backing-key-file=FILE at most"
        )
    })
}

/// As [`parse_file`], of an image that may be based on another.
///
/// # Errors
/// [`UsageError`] when it is none.
pub fn parse_based(text: &str, format: Option<Format>) -> Result<ImageFile> {
    based(parse_file(text, format)?, text, &[Format::Qcow2], "only qcow2 images are rebased")
}

/// As [`parse_file`], of an image that may be committed to the one that it is based on.
///
/// # Errors
/// [`UsageError`] when it is none.
pub fn parse_committed(text: &str, format: Option<Format>) -> Result<ImageFile> {
    let formats = [Format::Qcow2, Format::BlockMap(BlockMapFormat::Vmdk)];
    based(parse_file(text, format)?, text, &formats, "only qcow2 images and differences between VMDKs are committed")
}

fn based(file: ImageFile, text: &str, formats: &[Format], only: &str) -> Result<ImageFile> {
    if !formats.contains(&file.format) {
        bail!(UsageError(match file.format {
            Format::BlockMap(_) => format!(
                "{text}: {only}: `blockyard image convert` makes one image of another hypervisor's difference and what \
                 is behind it"
            ),
            _ => format!("{text}: {only}, and this is {}", file.format_in_words()),
        }));
    }
    Ok(file)
}

/// A file and its format, of a text that says no more but its key.
fn file_alone(text: &str, format: Option<Format>, problem: impl FnOnce() -> String) -> Result<ImageFile> {
    let named = parse(text, format)?;
    match (named.file_alone().map(Path::to_owned), named.format()) {
        (Some(path), Some(format)) => Ok(ImageFile { named, path, format }),
        _ => Err(UsageError(problem()).into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockyard_block::Compression;

    #[test]
    fn every_format_may_be_in_a_compressed_file() {
        let words = Format::ALL.into_iter().flat_map(|format| {
            Compression::ALL.map(|compression| SaidFormat { format, compression: Some(compression) }.to_string())
        });
        assert_eq!(COMPRESSED, words.collect::<Vec<_>>());
        for word in COMPRESSED {
            assert_eq!(word.parse::<SaidFormat>().unwrap().to_string(), *word);
        }
        for (alias, word) in COMPRESSED_VHD.iter().zip(["vpc.gz", "vpc.xz", "vpc.zst"]) {
            assert_eq!(alias.parse::<SaidFormat>().unwrap().to_string(), word);
        }
    }
}
