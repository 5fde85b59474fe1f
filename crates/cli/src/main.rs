//! `blockyard`: the commands.
//!
//! `command_line.rs` says which there are, `ending.rs` how they end. Each command is a module with its options beside
//! it. This file joins them, and nothing imports from it.
#![forbid(unsafe_code)]
#![allow(unreachable_pub, reason = "a binary has no public interface")]

mod attach;
mod bench;
mod command_line;
mod copy;
mod decompress;
mod doctor;
mod ending;
mod examples;
mod image;
mod partitions;
mod run;
mod serve;
mod serve_share;
mod table_option;
mod testvm;
mod usage;

use blockyard_command_line::{disk, remedies, signals, terminal};
use command_line::Command;
use ending::end;
use std::process::ExitCode;
use usage::Asked;

#[global_allocator]
static ALLOCATOR: blockyard_block::CountingAllocator = blockyard_block::CountingAllocator;

fn main() -> ExitCode {
    terminal::keep_closed();
    remedies::name_options();
    disk::watch_images();
    let asked = match usage::parse() {
        Ok(asked) => asked,
        Err(status) => return ExitCode::from(status),
    };
    let done = match asked {
        Asked::Command(command) => execute(*command),
        Asked::Verb(verb) => signals::file_size_limit_is_an_error().and_then(|()| image::run_verb(*verb)),
    };
    let status = match done {
        Ok(()) => 0,
        Err(error) => end(&error),
    };
    ExitCode::from(disk::exit_status(status))
}

fn execute(command: Command) -> anyhow::Result<()> {
    signals::file_size_limit_is_an_error()?;
    match command {
        Command::Attach(args) => attach::run(&args),
        Command::Copy(args) => copy::run(&args),
        Command::Decompress(args) => decompress::run(&args),
        Command::Bench(args) => bench::run(&args),
        Command::Doctor(args) => doctor::run(&args),
        Command::Image(args) => image::run(args),
        Command::ApplianceKernel(args) => image::run_kernel(&args),
        Command::Partitions(args) => partitions::run(&args),
        Command::Run(args) => run::run(&args),
        Command::Serve(args) => serve::run(&args),
        Command::ServePartitions(args) => serve::run_child(&args),
        Command::Testvm(args) => testvm::run(&args),
        Command::ServeShare(args) => serve_share::run(&args),
    }
}
