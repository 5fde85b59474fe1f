//! The process that decompresses a disk's file, which commands start that read one.

use anyhow::Result;
use blockyard_block::Compression;
use blockyard_command_line::unpacker;
use clap::Args;

/// A hidden command: the process that decompresses.
#[derive(Args)]
pub struct DecompressArgs {
    #[arg(value_parser = compression)]
    compression: Compression,
}

/// Decompresses standard input.
///
/// # Errors
/// A sentence on the file, for whoever started this process.
pub fn run(args: &DecompressArgs) -> Result<()> {
    Ok(unpacker::decompress(args.compression)?)
}

fn compression(word: &str) -> Result<Compression, String> {
    Compression::of_word(word).ok_or_else(|| format!("there is no compression '{word}'"))
}
