//! Options that many of qemu-img's commands have: how an image is opened, and what changes nothing here.

// What is flattened into a command has no documentation: clap would show it instead of the command's.

use anyhow::Result;
use blockyard_block::size;
use blockyard_block::specification::{DiskSpecification, Kind};
use blockyard_command_line::image::secrets;
use blockyard_command_line::usage_error::UsageLines;
use clap::{Args, ValueEnum};
use std::num::NonZeroU64;

/// What is allowed a second, by -r.
///
/// # Errors
/// When it is no size, or nothing.
pub fn rate(text: &str) -> std::result::Result<NonZeroU64, String> {
    NonZeroU64::new(size::parse(text)?).ok_or_else(|| "nothing a second would never end".to_owned())
}

/// qemu-img's modes of a cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum CacheMode {
    None,
    Writeback,
    Writethrough,
    Directsync,
    Unsafe,
}

impl CacheMode {
    /// It goes past the page cache.
    pub fn is_direct(self) -> bool {
        matches!(self, Self::None | Self::Directsync)
    }

    /// The disk, past the page cache if the mode says so, and there is one.
    ///
    /// # Errors
    /// When it cannot be.
    pub fn applied(self, named: DiskSpecification) -> Result<DiskSpecification> {
        match self.is_direct() && named.kind() == Kind::File && named.is_buffered() {
            true => Ok(named.with_direct().map_err(UsageLines::from)?),
            false => Ok(named),
        }
    }
}

// Of a command that reads a disk.
#[derive(Args)]
pub struct ReadFlags {
    /// Do not mind who else uses the image: nothing is locked, and what is read may be changing.
    #[arg(short = 'U', long)]
    force_share: bool,
    #[command(flatten)]
    names: NameFlags,
}

impl ReadFlags {
    /// The disk, opened so.
    pub fn applied(&self, named: DiskSpecification) -> DiskSpecification {
        if self.force_share { named.unlocked() } else { named }
    }
}

// How a disk is read.
#[derive(Args)]
pub struct SourceCache {
    /// Read through the page cache, or past it (none, directsync).
    #[arg(short = 'T', value_name = "CACHE", value_enum, hide_possible_values = true)]
    source_cache: Option<CacheMode>,
}

impl SourceCache {
    /// The disk, read so.
    ///
    /// # Errors
    /// When it cannot be.
    pub fn applied(&self, named: DiskSpecification) -> Result<DiskSpecification> {
        self.source_cache.unwrap_or(CacheMode::Writeback).applied(named)
    }
}

// Of a command whose answer is for people, or for programs.
#[derive(Args)]
pub struct OutputFlags {
    /// Print JSON on stdout.
    #[arg(long)]
    json: bool,
    /// --json as qemu-img has it: human, or json.
    #[arg(long, value_name = "FORMAT", value_enum, conflicts_with = "json", hide = true)]
    output: Option<OutputFormat>,
}

impl OutputFlags {
    /// It is for programs.
    pub fn is_json(&self) -> bool {
        self.json || self.output == Some(OutputFormat::Json)
    }

    /// They read what qemu-img says, in its shape.
    pub fn is_qemu_imgs(&self) -> bool {
        self.output.is_some()
    }
}

/// qemu-img's formats of answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum OutputFormat {
    Human,
    Json,
}

// Passphrases, as qemu-img is told of them.
#[derive(Args)]
pub struct ObjectFlags {
    /// A passphrase in a file, for key-secret=ID: secret,id=ID,file=PATH.
    #[arg(long, value_name = "OBJECT", hide = true, value_parser = secrets::declare)]
    object: Vec<secrets::Declared>,
}

// How images are named.
#[derive(Args)]
pub struct NameFlags {
    #[command(flatten)]
    objects: ObjectFlags,
    /// Images are named as driver=FORMAT,file.filename=PATH, which is understood without it, too.
    #[arg(long, hide = true)]
    image_opts: bool,
}

// Of a command that changes an image, which is on stable storage in the end in every mode.
#[derive(Args)]
pub struct WriteFlags {
    #[arg(short = 't', value_name = "CACHE", value_enum, hide = true)]
    cache: Option<CacheMode>,
    #[command(flatten)]
    names: NameFlags,
}

// Of a command that reads what it does through the page cache in every mode.
#[derive(Args)]
pub struct CachedFlags {
    #[arg(short = 'T', value_name = "CACHE", value_enum, hide = true)]
    source_cache: Option<CacheMode>,
}
