//! `blockyard image dd` without an image: blocks of a disk into a new image, with qemu-img's operands.

use super::create::device_to_make;
use super::qemu_flags::NameFlags;
use super::shut_in::shut_in;
use anyhow::{Result, bail};
use blockyard_block::layers::PartitionDisk;
use blockyard_block::specification::{DiskSpecification, Format};
use blockyard_block::{Compression, printable, shown, size};
use blockyard_command_line::disk;
use blockyard_command_line::failures::suggest_in_place;
use blockyard_command_line::image::at_terminal::AtTerminal;
use blockyard_command_line::image::named_image;
use blockyard_command_line::terminal::print;
use blockyard_command_line::usage_error::UsageError;
use blockyard_image::whole::convert::{Conversion, ConvertOptions, Converted, Target};
use blockyard_image::whole::{NewImage, WholeDisk};
use blockyard_session::open::open_disk;
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The name under which this is a command of its own: `dd` is that of the one on files, too.
pub const COMMAND: &str = "dd-disk";

/// Copy blocks of a disk into a new image: if=SRC of=DST [bs=SIZE] [count=N] [skip=N], as qemu-img has it.
///
/// SRC is a disk in any format; DST is a new image, raw unless -O says, which takes its name when all is there, or a
/// block device. With an image in front of the operands, `blockyard image dd` copies between its disks, files in it and
/// files of the host.
#[derive(Args)]
#[command(override_usage = "blockyard image dd [OPTIONS] if=<SRC> of=<DST> [bs=<SIZE>] [count=<N>] [skip=<N>]")]
pub struct DdArgs {
    /// KEY=VALUE, as dd has them.
    #[arg(value_name = "KEY=VALUE", required = true)]
    operands: Vec<String>,
    /// Format of SRC.
    #[arg(short, value_name = "FORMAT", value_parser = named_image::formats())]
    format: Option<Format>,
    /// Format of DST.
    #[arg(short = 'O', value_name = "FORMAT", value_parser = named_image::made_without_key(), default_value = "raw")]
    output_format: Format,
    /// Do not mind who else uses SRC.
    #[arg(short = 'U')]
    force_share: bool,
    /// Directory whose files an image may refer to; may be given more than once.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
    /// Say nothing.
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    names: NameFlags,
}

/// What the operands say.
#[derive(Debug, PartialEq, Eq)]
struct Blocks {
    from: String,
    to: String,
    block_bytes: u64,
    count: Option<u64>,
    skip: u64,
}

/// The command line of a `dd` that has no image in front of its operands, as that of this command; any other as it is.
pub fn own_words(mut words: Vec<OsString>) -> Vec<OsString> {
    let is = |at: usize, word: &str| words.get(at).is_some_and(|found| found == word);
    if is(1, "image") && is(2, "dd") && is_without_image(&words[3..]) {
        words[2] = COMMAND.into();
    }
    words
}

/// Whether there are operands and no image: neither in front of them nor elsewhere.
fn is_without_image(words: &[OsString]) -> bool {
    // Whatever dd knows by that name: an image's has a dot or a slash, or is written ./NAME.
    let is_key = |key: &str| !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_lowercase());
    let is_operand =
        |word: &OsStr| word.to_str().and_then(|word| word.split_once('=')).is_some_and(|(key, _)| is_key(key));
    let (mut has_operands, mut is_value) = (false, false);
    for word in words {
        if std::mem::take(&mut is_value) {
            continue;
        }
        if is_operand(word) {
            has_operands = true;
        } else if matches!(word.to_str(), Some("-f" | "-O" | "--allow-dir")) {
            is_value = true;
        } else if !word.as_encoded_bytes().starts_with(b"-") {
            return false;
        }
    }
    has_operands
}

/// Runs the command.
///
/// # Errors
/// When something cannot be read or written. A new image does not appear then.
pub fn run(args: &DdArgs) -> Result<()> {
    let Blocks { from, to, block_bytes, count, skip } = parse(&args.operands)?;
    let target = target(&to, args.output_format)?;
    let mut named = named_image::parse(&from, args.format)?.read_only();
    if args.force_share {
        named = named.unlocked();
    }
    named.differs_from(&target)?;
    let opened = open_disk(&named, &disk::to_read(&args.allow_dir).streaming())?;
    let mut source = WholeDisk::from(opened);
    let capacity_bytes = source.disk.geometry().capacity_bytes;
    if capacity_bytes == 0 {
        bail!("{from} is empty: a new image has at least a block");
    }
    let Some(start) = block_bytes.checked_mul(skip).filter(|start| *start < capacity_bytes) else {
        bail!("{from} has {capacity_bytes} bytes: {skip} blocks of {block_bytes} cannot be skipped");
    };
    let end = count.and_then(|count| block_bytes.checked_mul(count)?.checked_add(start)).unwrap_or(capacity_bytes);
    let end = end.min(capacity_bytes);
    if start == end {
        bail!(UsageError("count=0: a new image has at least a block".to_owned()));
    }
    let unit_bytes = source.disk.geometry().logical_block_bytes;
    if [start, end].iter().any(|bytes| !bytes.is_multiple_of(unit_bytes.into())) {
        bail!(UsageError(format!(
            "bs={block_bytes}: what is skipped and copied of a disk is whole sectors: choose bs=, count= and skip= so \
             that they make up multiples of {unit_bytes} bytes"
        )));
    }
    source.disk = Arc::new(PartitionDisk::new(source.disk, start..end, true)?);
    let watch = AtTerminal::catch()?;
    let to_make = match target.replaced_file(false)? {
        Some(path) => {
            named_image::refuse_use_of_new(&target)?;
            let image = NewImage::new(path, args.output_format, end - start);
            let image = NewImage { permissions: source.permissions, ..image };
            Target::new_image(&image, &source, None, &[], &watch).map_err(suggest_in_place)?
        }
        None => match target.made_device(false) {
            Some(path) => {
                named_image::refuse_use_of_new(&target)?;
                let image = NewImage::new(path, args.output_format, end - start);
                Target::on_device(&image, device_to_make(path, &args.allow_dir)?, &source, None)?
            }
            None => {
                let disk = open_disk(&target, &disk::to_write(&args.allow_dir).streaming())?;
                Target::in_place(&target.to_string(), disk.into(), &source, false)?
            }
        },
    };
    let (from, to) = (printable(&from), printable(&to));
    let conversion = Conversion::new([&from, &to], source, to_make, ConvertOptions::default());
    disk::keep_unreadable();
    shut_in(&[&named, &target], conversion.replaces_in().into_iter().collect(), conversion.threads())?;
    let Converted { length_bytes, .. } = conversion.run(&watch)?;
    drop(watch);
    if args.quiet {
        return Ok(());
    }
    if let Some(path) = target.replaced_file(false)?.or(target.made_device(false)) {
        named_image::tell_of_name(path, args.output_format);
    }
    print(&format!("{from} -> {to}: {length_bytes} bytes ({}) copied", size::human(length_bytes)))
}

/// What is written, in this format.
fn target(to: &str, format: Format) -> Result<DiskSpecification> {
    let named = named_image::parse(to, None)?;
    let of_file = named.image_file().is_some() && !named.says_format();
    if of_file && Compression::of_name(Path::new(to)).is_some() {
        named.check_new_name()?;
    }
    Ok(if of_file { named_image::parse(to, Some(format))? } else { named })
}

fn parse(operands: &[String]) -> Result<Blocks, UsageError> {
    let (mut from, mut to) = (None, None);
    let (mut block_bytes, mut count, mut skip) = (512, None, 0);
    for operand in operands {
        let wrong = |problem: &str| UsageError(format!("{}: {problem}", shown(operand)));
        let Some((key, value)) = operand.split_once('=') else {
            return Err(wrong("an operand is KEY=VALUE, such as if=disk.qcow2"));
        };
        let number = || size::parse(value).map_err(|problem| wrong(&problem));
        match key {
            "if" | "of" if value == "-" => {
                return Err(wrong(
                    "this copies between disks, and a stream is none: with a disk's name in front of the operands, dd \
                     copies between that and standard input or output",
                ));
            }
            "if" => from = Some(value.to_owned()),
            "of" => to = Some(value.to_owned()),
            "bs" => block_bytes = number()?,
            "count" => count = Some(number()?),
            "skip" => skip = number()?,
            _ => {
                return Err(wrong(
                    "the operands are if, of, bs, count and skip; with an image in front of them, seek and conv, too",
                ));
            }
        }
    }
    if !(1..=i32::MAX as u64).contains(&block_bytes) {
        return Err(UsageError(format!("bs={block_bytes}: a block has from 1 to {} bytes", i32::MAX)));
    }
    match (from, to) {
        (Some(from), Some(to)) => Ok(Blocks { from, to, block_bytes, count, skip }),
        _ => Err(UsageError("name both ends: if=SRC of=DST".to_owned())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dd_without_an_image_is_qemus() {
        let words = |line: &str| line.split(' ').map(OsString::from).collect::<Vec<_>>();
        for (line, is_own) in [
            ("blockyard image dd if=a of=b", true),
            ("blockyard image dd -f qcow2 -O raw bs=1M if=a.qcow2 of=b", true),
            ("blockyard image dd if=a of=b ibs=1 iflag=direct", true),
            ("blockyard image dd -U --allow-dir . if=a of=b", true),
            ("blockyard image dd disk.img if=/dev/sda of=b", false),
            ("blockyard image dd -m sda1 disk.img if=image:/x of=b", false),
            ("blockyard image dd", false),
            ("blockyard image dd --help", false),
            ("blockyard image ls if=a", false),
            ("blockyard image", false),
        ] {
            let found = own_words(words(line));
            assert_eq!(found.get(2).is_some_and(|word| word == COMMAND), is_own, "{line}");
        }
    }

    #[test]
    fn operands_are_those_of_qemu_img() {
        let parse = |text: &str| parse(&text.split(' ').map(str::to_owned).collect::<Vec<_>>());
        let blocks = parse("if=a of=b bs=1M count=2k skip=3").unwrap();
        assert_eq!((blocks.block_bytes, blocks.count, blocks.skip), (1 << 20, Some(2048), 3));
        for wrong in [
            "if=a",
            "of=b",
            "if=a of=b bs=0",
            "if=a of=b bs=4G",
            "if=a of=b x=1",
            "if=a of=b seek=1",
            "a",
            "if=- of=b",
            "if=a of=-",
        ] {
            assert!(parse(wrong).is_err(), "{wrong}");
        }
    }
}
