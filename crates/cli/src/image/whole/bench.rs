//! `blockyard image bench`: how fast a disk is, with qemu-img's options.

use super::qemu_flags::{CacheMode, NameFlags};
use super::shut_in::shut_in;
use anyhow::Result;
use blockyard_block::specification::{DiskSpecification, Format};
use blockyard_block::{Engine, size};
use blockyard_command_line::disk;
use blockyard_command_line::image::at_terminal::AtTerminal;
use blockyard_command_line::image::named_image;
use blockyard_command_line::terminal::{self, print};
use blockyard_image::whole::bench::{Bench, BenchOptions};
use blockyard_session::open::{OpenOptions, open_disk};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::path::PathBuf;

/// Say how long a disk takes for requests, one place after the other.
///
/// It is read, or with -w written, which destroys what it holds. At the end of the disk the requests begin again where
/// the first was. `blockyard bench disk` does more: random places, mixes, several threads, percentiles.
#[derive(Args)]
pub struct BenchArgs {
    /// The disk: [KIND:]PATH[,KEY=VALUE...]
    image: String,
    /// Format of the image.
    #[arg(short, value_name = "FORMAT", value_parser = named_image::formats())]
    format: Option<Format>,
    /// Requests in all.
    #[arg(short, value_name = "N", default_value = "75000", value_parser = size::parse)]
    count: u64,
    /// Requests at once.
    #[arg(short, value_name = "N", default_value = "64", value_parser = clap::value_parser!(u32).range(1..=1024))]
    depth: u32,
    /// Bytes in a request.
    #[arg(short = 's', value_name = "SIZE", default_value = "4K", value_parser = request_bytes)]
    request_size: u32,
    /// From the beginning of a request to that of the next [default: SIZE].
    #[arg(short = 'S', value_name = "STEP", value_parser = size::parse)]
    step: Option<u64>,
    /// Where the first request is.
    #[arg(short, value_name = "OFFSET", default_value = "0", value_parser = size::parse)]
    offset: u64,
    /// Write instead of reading.
    #[arg(short)]
    write: bool,
    /// What is written, byte by byte.
    #[arg(long, value_name = "BYTE", default_value = "0", value_parser = byte)]
    pattern: u8,
    /// Flush after so many writes.
    #[arg(long, value_name = "N", default_value = "0", requires = "write")]
    flush_interval: u64,
    /// Go on with writes while the disk flushes.
    #[arg(long, requires = "flush_interval")]
    no_drain: bool,
    /// Through the page cache (writeback), past it (none), each write to stable storage (writethrough, directsync), or
    /// with flushes that do nothing (unsafe).
    #[arg(short = 't', value_name = "CACHE", value_enum, default_value = "writeback")]
    cache: CacheMode,
    /// Who carries requests out [default: what suits the disk].
    #[arg(short = 'i', value_name = "AIO", value_enum)]
    aio: Option<Aio>,
    /// The kernel does, asked by io_uring: -i native, where no -i says otherwise.
    #[arg(short)]
    native: bool,
    /// Do not mind who else uses the image.
    #[arg(short = 'U', conflicts_with = "write")]
    force_share: bool,
    /// Directory whose files an image may refer to; may be given more than once.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
    /// Print one JSON object instead.
    #[arg(long)]
    json: bool,
    /// Say only how long it took.
    #[arg(short, long)]
    quiet: bool,
    #[command(flatten)]
    names: NameFlags,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Aio {
    Threads,
    Native,
    #[value(name = "io_uring")]
    IoUring,
}

#[derive(Serialize)]
#[serde(rename_all = "kebab-case")]
struct Json {
    requests: u64,
    request_bytes: u32,
    seconds: f64,
    requests_per_second: f64,
    bytes_per_second: f64,
}

/// Runs the command.
///
/// # Errors
/// When what is asked makes no sense, or a request fails.
pub fn run(args: &BenchArgs) -> Result<()> {
    let named = args.named()?;
    let access = OpenOptions { read_only: !args.write, ..disk::to_write(&args.allow_dir) };
    let disk = open_disk(&named, &access)?.disk;
    let step_bytes = args.step.filter(|step| *step > 0).unwrap_or(args.request_size.into());
    let options = BenchOptions {
        writes: args.write,
        write_through: matches!(args.cache, CacheMode::Writethrough | CacheMode::Directsync),
        count: args.count,
        depth: args.depth,
        request_bytes: args.request_size,
        step_bytes,
        start_bytes: args.offset,
        flush_interval: args.flush_interval,
        drains: !args.no_drain,
        pattern: args.pattern,
    };
    let watch = AtTerminal::catch()?;
    let bench = Bench::new(&args.image, &*disk, options)?;
    disk::keep_unreadable();
    shut_in(&[&named], Vec::new(), 0)?;
    if !args.quiet && !args.json {
        print(&format!(
            "Sending {} {} requests, {} bytes each, {} in parallel (starting at offset {}, step size {step_bytes})",
            args.count,
            if args.write { "write" } else { "read" },
            args.request_size,
            args.depth,
            args.offset,
        ))?;
    }
    let seconds = bench.run(&watch)?.as_secs_f64();
    let per_second = |count: f64| if seconds > 0.0 { count / seconds } else { 0.0 };
    let requests_per_second = per_second(args.count as f64);
    let bytes_per_second = requests_per_second * f64::from(args.request_size);
    if args.json {
        let (requests, request_bytes) = (args.count, args.request_size);
        return print(&terminal::json(&Json {
            requests,
            request_bytes,
            seconds,
            requests_per_second,
            bytes_per_second,
        })?);
    }
    print(&format!("Run completed in {seconds:.3} seconds."))?;
    if args.quiet {
        return Ok(());
    }
    print(&format!("{requests_per_second:.0} requests/s, {}/s", size::human(bytes_per_second as u64)))
}

impl BenchArgs {
    fn named(&self) -> Result<DiskSpecification> {
        let mut named = named_image::parse(&self.image, self.format)?;
        if self.force_share {
            named = named.unlocked();
        }
        if self.cache.is_direct() && named.is_buffered() {
            named = named.with_direct()?;
        }
        if self.cache == CacheMode::Unsafe && !named.is_cache_unsafe() {
            named = named.with_cache_unsafe()?;
        }
        Ok(match self.aio {
            Some(Aio::Threads) => named.or_engine(Engine::Threads),
            Some(Aio::Native | Aio::IoUring) => named.or_engine(Engine::Uring),
            None if self.native => named.or_engine(Engine::Uring),
            None => named,
        })
    }
}

fn request_bytes(text: &str) -> Result<u32, String> {
    const REQUEST_BYTES_MAX: u64 = 64 << 20;
    let bytes = size::parse(text)?;
    u32::try_from(bytes)
        .ok()
        .filter(|bytes| (1..=REQUEST_BYTES_MAX).contains(&u64::from(*bytes)))
        .ok_or_else(|| format!("a request has from 1 to {} bytes", size::human(REQUEST_BYTES_MAX)))
}

fn byte(text: &str) -> Result<u8, String> {
    let parsed = match text.strip_prefix("0x") {
        Some(digits) => u8::from_str_radix(digits, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| format!("'{text}' is no byte: 0 to 255, or 0x00 to 0xff"))
}
