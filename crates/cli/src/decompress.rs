//! The process that decompresses a disk's file, which commands start that read one.

use anyhow::Result;
use blockyard_block::Compression;
use blockyard_command_line::unpacker;
use blockyard_command_line::verdict::Verdict;
use clap::Args;
use std::io::{self, Write};

/// A hidden command: the process that decompresses.
#[derive(Args)]
pub struct DecompressArgs {
    #[arg(value_parser = compression)]
    compression: Compression,
    /// The process that has started this one, and that it ends with.
    parent: u32,
}

/// Decompresses standard input.
///
/// # Errors
/// The exit status. A sentence on the file is on stderr by then, for whoever started this process to say.
pub fn run(args: &DecompressArgs) -> Result<()> {
    Ok(unpacker::decompress(args.compression, args.parent).map_err(|error| {
        // Where nobody reads that, the exit status has to do.
        let _ = write!(io::stderr(), "{error}");
        Verdict(1)
    })?)
}

fn compression(word: &str) -> Result<Compression, String> {
    Compression::of_word(word).ok_or_else(|| format!("there is no compression '{word}'"))
}
