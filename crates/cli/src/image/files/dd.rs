//! `blockyard image dd`: blocks between an image's disks, files in it, and files of the host.

use anyhow::Result;
use blockyard_block::{shown, size};
use blockyard_command_line::image::file_command::FileCommand;
use blockyard_command_line::stdin;
use blockyard_command_line::terminal::print;
use blockyard_command_line::usage_error::UsageError;
use blockyard_image::Access;
use blockyard_image::files::copy_blocks::{BlockCopy, BlockEnd, OpenedBlockCopy};
use blockyard_image::guest::{OpenImage, image_path};
use blockyard_protocol::volume_name::lettered;
use clap::Args;
use std::cell::Cell;
use std::ffi::OsStr;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// What messages call the streams that - stands for.
const STDIN: &str = "stdin";
const STDOUT: &str = "stdout";

/// Copy blocks, as dd does: if=FROM of=TO [bs=SIZE] [count=N] [skip=N] [seek=N] [conv=notrunc].
///
/// FROM and TO are disks or partitions of the image (/dev/sda, sda1), files in it (image:/PATH), or files of the host
/// (anything else; - for stdin and stdout). A device must not be mounted to be written.
///
/// Without IMAGE it is qemu-img's: blocks of the disk if=SRC make a new image of=DST, in the format that -O says
/// (`blockyard image dd-disk --help`).
#[derive(Args)]
pub struct Dd {
    /// KEY=VALUE, as dd has them.
    #[arg(value_name = "KEY=VALUE", required = true)]
    operands: Vec<OsString>,
    /// What they say, once the host's file is open.
    #[arg(skip)]
    opened: Cell<Option<OpenedBlockCopy>>,
}

/// What a word calls, where - is `stream`.
fn end(word: &OsStr, stream: &'static str) -> BlockEnd {
    let bytes = word.as_bytes();
    if let Some(path) = bytes.strip_prefix(b"image:") {
        return BlockEnd::File(image_path(Path::new(OsStr::from_bytes(path))));
    }
    match word.to_str() {
        Some("-") => BlockEnd::Stream(stream),
        Some(name) if is_device(name) => BlockEnd::Device(name.to_owned()),
        _ => BlockEnd::Host(word.into()),
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

/// What the operands say.
fn parse(operands: &[OsString]) -> Result<BlockCopy, UsageError> {
    let (mut from, mut to) = (None, None);
    let mut copy = BlockCopy {
        from: BlockEnd::Stream(STDIN),
        to: BlockEnd::Stream(STDOUT),
        block_bytes: 512,
        count: None,
        skip: 0,
        seek: 0,
        truncate: true,
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
            b"if" => from = Some(end(value, STDIN)),
            b"of" => to = Some(end(value, STDOUT)),
            b"bs" => copy.block_bytes = number()?,
            b"count" => copy.count = Some(number()?),
            b"skip" => copy.skip = number()?,
            b"seek" => copy.seek = number()?,
            b"conv" => {
                for word in value.to_str().unwrap_or_default().split(',') {
                    match word {
                        "notrunc" => copy.truncate = false,
                        // What is written is made stable, and the image flushed when it is closed.
                        "fsync" | "fdatasync" => {}
                        _ => return Err(wrong("conv is notrunc, fsync or fdatasync")),
                    }
                }
            }
            b"status" => {}
            _ => return Err(wrong("the operands are if, of, bs, count, skip, seek and conv=notrunc")),
        }
    }
    let (Some(from), Some(to)) = (from, to) else {
        return Err(UsageError("name both ends: if=FROM of=TO".to_owned()));
    };
    if from.is_outside() && to.is_outside() {
        return Err(UsageError("neither end is in the image: /dev/sda and image:/PATH are".to_owned()));
    }
    if copy.block_bytes == 0 {
        return Err(UsageError("bs=0: a block has bytes".to_owned()));
    }
    Ok(BlockCopy { from, to, ..copy })
}

impl FileCommand for Dd {
    fn access(&self) -> Access {
        match parse(&self.operands) {
            Ok(copy) if copy.to.is_outside() => Access::Read,
            _ => Access::Write,
        }
    }

    fn mounts(&self) -> bool {
        let inside = |end: &BlockEnd| matches!(end, BlockEnd::File(_));
        parse(&self.operands).is_ok_and(|copy| inside(&copy.from) || inside(&copy.to))
    }

    fn check(&self) -> Result<()> {
        self.opened.set(Some(parse(&self.operands)?.open()?));
        Ok(())
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        let copy = parse(&self.operands)?;
        if matches!(copy.from, BlockEnd::Stream(_)) {
            stdin::claim()?;
        }
        let says = !copy.to.is_outside();
        let opened = self.opened.take().map_or_else(|| copy.open(), Ok)?;
        let bytes = stdin::lent(|stdin| Ok(image.copy_blocks(opened, stdin, io::stdout())?))?;
        if says { print(&format!("{bytes} bytes ({}) copied", size::human(bytes))) } else { Ok(()) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<BlockCopy, UsageError> {
        super::parse(&text.split_whitespace().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn operands_are_those_of_dd() {
        let copy = parse("if=/dev/sda1 of=out.img bs=1M count=4 skip=2").unwrap();
        assert_eq!((&copy.from, &copy.to), (&BlockEnd::Device("/dev/sda1".into()), &BlockEnd::Host("out.img".into())));
        assert_eq!((copy.block_bytes, copy.count, copy.skip, copy.seek), (1 << 20, Some(4), 2, 0));
        let copy = parse("if=- of=image:/big conv=notrunc seek=3").unwrap();
        assert_eq!((&copy.from, &copy.to), (&BlockEnd::Stream(STDIN), &BlockEnd::File(b"/big".into())));
        assert!(!copy.truncate && copy.seek == 3 && copy.block_bytes == 512);
        assert_eq!(parse("if=/dev/zero of=sda").unwrap().from, BlockEnd::Host("/dev/zero".into()));
        assert_eq!(parse("if=sdcard.img of=sda").unwrap().from, BlockEnd::Host("sdcard.img".into()));
        assert_eq!(parse("if=/dev/fd/63 of=sda").unwrap().from, BlockEnd::Host("/dev/fd/63".into()));
        assert_eq!(parse("if=sda of=/dev/shm/disk.img").unwrap().to, BlockEnd::Host("/dev/shm/disk.img".into()));
        assert_eq!(parse("if=/dev/vg/root of=-").unwrap().from, BlockEnd::Device("/dev/vg/root".into()));
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
