//! The processes that decompress a disk's file, which commands start that read one.

use anyhow::Result;
use blockyard_block::Compression;
use blockyard_command_line::unpacker;
use blockyard_command_line::verdict::Verdict;
use clap::Args;
use std::io::{self, Write};

/// A hidden command: the process that decompresses, or that starts those.
#[derive(Args)]
pub struct DecompressArgs {
    #[arg(value_parser = what)]
    what: What,
    /// The process that has started this one, and that it ends with.
    parent: u32,
}

#[derive(Clone, Copy)]
enum What {
    Start,
    Decompress(Compression),
}

/// Decompresses standard input, or starts those that do as standard input says.
///
/// # Errors
/// The exit status. A sentence on the file is on stderr by then, for whoever started this process to say.
pub fn run(args: &DecompressArgs) -> Result<()> {
    let done = match args.what {
        What::Start => unpacker::start_decompressors(args.parent),
        What::Decompress(compression) => unpacker::decompress(compression, args.parent),
    };
    Ok(done.map_err(|error| {
        // Where nobody reads that, the exit status has to do.
        let _ = write!(io::stderr(), "{error}");
        Verdict(1)
    })?)
}

fn what(word: &str) -> Result<What, String> {
    match word {
        unpacker::START => Ok(What::Start),
        _ => {
            Compression::of_word(word).map(What::Decompress).ok_or_else(|| format!("there is no compression '{word}'"))
        }
    }
}
