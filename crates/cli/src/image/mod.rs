//! `blockyard image`: disk images, and the files in them.
//!
//! This file lists the subcommands. Those here work on images as a whole and boot nothing.

mod compare;
mod convert;
mod create;
mod image_options;
mod info;
mod map;
mod measure;
mod named_image;
mod new_image;
mod new_partitions;
mod resize;
mod shut_in;
mod watch;

use anyhow::Result;
use clap::{Args, Subcommand};
pub use compare::{Differs, NotComparable};

/// Make, look into, convert and compare disk images.
///
/// The words and options are qemu-img's. IMAGE is a disk specification, [KIND:]PATH[,KEY=VALUE...], such as disk.img or
/// disk.qcow2; without -f, the name's ending says its format. Once its files are open, a command that reads an image is confined to
/// them. New images appear under their names when they are complete.
///
/// Exit status: 0 for success, 1 on failure, 2 on wrong usage.
#[derive(Args)]
pub struct ImageCommandArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Create(create::CreateArgs),
    Info(info::InfoArgs),
    Convert(convert::ConvertArgs),
    Resize(resize::ResizeArgs),
    Map(map::MapArgs),
    Measure(measure::MeasureArgs),
    Compare(compare::CompareArgs),
}

/// Runs the command.
///
/// # Errors
/// When the image cannot be had, or something on it failed.
pub fn run(args: &ImageCommandArgs) -> Result<()> {
    match &args.command {
        Command::Create(args) => create::run(args),
        Command::Info(args) => info::run(args),
        Command::Convert(args) => convert::run(args),
        Command::Resize(args) => resize::run(args),
        Command::Map(args) => map::run(args),
        Command::Measure(args) => measure::run(args),
        Command::Compare(args) => compare::run(args),
    }
}
