//! `blockyard`: the commands.
//!
//! This file says which commands there are and how they end: exit status 0 for success, 1 for failure with one
//! sentence on stderr, 2 for usage, 130 for Ctrl-C. Each command is a module with its options beside it.
#![forbid(unsafe_code)]
#![allow(unreachable_pub, reason = "a binary has no public interface")]

mod bench;
mod copy;
mod destination;
mod disk;
mod doctor;
mod examples;
mod image;
mod partitions;
mod progress;
mod serve;
mod signals;
mod terminal;
mod time;
mod usage;

use blockyard_block::specification::SpecificationError;
use blockyard_block::{printable, size};
use clap::{Parser, Subcommand};
use std::process::ExitCode;
use terminal::print;
use usage::Asked;

#[global_allocator]
static ALLOCATOR: blockyard_block::CountingAllocator = blockyard_block::CountingAllocator;

/// Move, serve, fill and measure virtual-machine disks.
#[derive(Parser)]
#[command(name = "blockyard", version, about, max_term_width = 100)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
#[command(defer = true)]
enum Command {
    Copy(copy::args::CopyArgs),
    Bench(bench::BenchArgs),
    Doctor(doctor::DoctorArgs),
    Image(image::ImageCommandArgs),
    Partitions(partitions::PartitionsArgs),
    Serve(serve::args::ServeArgs),
    #[command(hide = true)]
    ApplianceKernel(image::KernelArgs),
    #[command(hide = true)]
    ServePartitions(serve::ChildArgs),
}

fn main() -> ExitCode {
    terminal::keep_closed();
    let asked = match usage::parse() {
        Ok(asked) => asked,
        Err(status) => return ExitCode::from(status),
    };
    let done = match asked {
        Asked::Command(command) => run(*command),
        Asked::Verb(verb) => signals::file_size_limit_is_an_error().and_then(|()| image::run_verb(*verb)),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => ExitCode::from(end(&error)),
    }
}

/// What a shell makes of a program that SIGPIPE has ended, as most are whose reader goes.
const READER_GONE: u8 = 128 + 13;

/// Says what went wrong, and how the process ends.
fn end(error: &anyhow::Error) -> u8 {
    if let Some(&image::Verdict(status)) = error.downcast_ref() {
        return status;
    }
    if image::failures::is_unwanted(error) {
        return READER_GONE;
    }
    terminal::say(&format!("{error:#}"));
    if is_usage(error) {
        terminal::tell("For more information, try '--help'.");
    }
    match error.downcast_ref() {
        Some(&image::EndsWith { status, .. }) => status,
        None => signals::exit_status().unwrap_or(if is_two(error) { 2 } else { 1 }),
    }
}

fn run(command: Command) -> anyhow::Result<()> {
    signals::file_size_limit_is_an_error()?;
    match command {
        Command::Copy(args) => copy::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Image(args) => image::run(args),
        Command::ApplianceKernel(args) => image::run_kernel(&args),
        Command::Partitions(args) => partitions::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::ServePartitions(args) => serve::run_child(&args),
    }
}

/// Whether the exit status is 2: wrong usage, and what `image compare` could not compare.
fn is_two(error: &anyhow::Error) -> bool {
    is_usage(error) || error.is::<image::NotComparable>()
}

/// The command line asks for something that makes no sense: exit status 2.
#[derive(Debug, thiserror::Error)]
#[error("{}", printable(.0))]
pub struct UsageError(pub String);

/// The same in several lines, none of which somebody's words end.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct UsageLines(pub String);

impl From<SpecificationError> for UsageLines {
    fn from(error: SpecificationError) -> Self {
        Self(error.to_string())
    }
}

fn is_usage(error: &anyhow::Error) -> bool {
    error.is::<UsageError>() || error.is::<UsageLines>() || image::failures::is_usage(error)
}
