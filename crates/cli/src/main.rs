//! `blockyard`: the commands.
//!
//! This file says which commands there are and how they end: exit status 0 for success, 1 for failure with one
//! sentence on stderr, 2 for usage. Each command is a module with its options beside it.
#![forbid(unsafe_code)]
#![allow(unreachable_pub, reason = "a binary has no public interface")]

mod bench;
mod copy;
mod destination;
mod disk;
mod doctor;
mod image;
mod partitions;
mod serve;
mod signals;
mod time;
mod watched_disk;

use anyhow::Context;
use blockyard_block::size;
use clap::{Parser, Subcommand};
use std::io::{self, Write};
use std::process::ExitCode;

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
    match run(Cli::parse().command) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            if let Some(&image::Verdict(status)) = error.downcast_ref() {
                return ExitCode::from(status);
            }
            // Nobody is there to be told that stderr is closed.
            let _ = writeln!(io::stderr(), "blockyard: {error:#}");
            ExitCode::from(if is_two(&error) { 2 } else { 1 })
        }
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
    error.is::<UsageError>() || error.is::<image::NotComparable>()
}

/// Prints a text and a newline on stdout.
///
/// # Errors
/// When stdout is closed or full: what was done is done, but nobody was told.
fn print(text: &str) -> anyhow::Result<()> {
    writeln!(io::stdout(), "{text}").context("cannot write to stdout")
}

/// The command line asks for something that makes no sense: exit status 2.
#[derive(Debug, thiserror::Error)]
#[error("{0}\nFor more information, try '--help'.")]
pub struct UsageError(pub String);
