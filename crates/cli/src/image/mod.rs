//! `blockyard image`: disk images, and the files in them.
//!
//! This file lists the subcommands. Those on files boot an appliance ([`open_image`]), which has the kernel that reads file systems.

mod changes;
mod copying;
mod disk_usage;
mod file_mode;
mod find;
mod host_tree;
mod listing;
mod ls;
mod open_image;
mod pattern;
mod records;
mod space;
mod stat;
mod tar;

use anyhow::Result;
use clap::{Args, Subcommand};
pub use open_image::{KernelArgs, run_kernel};

/// Look into disk images and fill them, without root, mounts or KVM.
///
/// IMAGE is a disk specification, [KIND:]PATH[,KEY=VALUE...], such as disk.img or disk.qcow2. Its root file system is found by looking, and what
/// its /etc/fstab says is mounted too; -m PART[:DIR] overrides. A Linux guest does the work (User-Mode Linux: `blockyard doctor`), so that
/// neither this program nor the host's kernel reads an untrusted file system. Success means that what was changed is on stable storage.
///
/// Exit status: 0 for success, 1 on failure, 2 on wrong usage.
#[derive(Args)]
pub struct ImageCommandArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    Ls(ls::LsArgs),
    Cat(copying::CatArgs),
    Stat(stat::StatArgs),
    Df(space::DfArgs),
    Find(find::FindArgs),
    Du(disk_usage::DuArgs),
    Rm(changes::RmArgs),
    Mkdir(changes::MkdirArgs),
    Mv(changes::MvArgs),
    Ln(changes::LnArgs),
    Chmod(changes::ChmodArgs),
    Chown(changes::ChownArgs),
    Put(copying::PutArgs),
    Get(copying::GetArgs),
    TarIn(tar::TarInArgs),
    TarOut(tar::TarOutArgs),
}

/// Runs the command.
///
/// # Errors
/// When the image cannot be had, or something on it failed.
pub fn run(args: &ImageCommandArgs) -> Result<()> {
    match &args.command {
        Command::Ls(args) => ls::run(args),
        Command::Cat(args) => copying::cat(args),
        Command::Stat(args) => stat::run(args),
        Command::Df(args) => space::run(args),
        Command::Find(args) => find::run(args),
        Command::Du(args) => disk_usage::run(args),
        Command::Rm(args) => changes::remove(args),
        Command::Mkdir(args) => changes::make_directories(args),
        Command::Mv(args) => changes::rename(args),
        Command::Ln(args) => changes::link(args),
        Command::Chmod(args) => changes::change_mode(args),
        Command::Chown(args) => changes::change_owner(args),
        Command::Put(args) => copying::put(args),
        Command::Get(args) => copying::get(args),
        Command::TarIn(args) => tar::unpack(args),
        Command::TarOut(args) => tar::pack(args),
    }
}
