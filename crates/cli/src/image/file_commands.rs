//! The commands on the files of an image: which there are, and how one is run on an image.

use super::appliance_kernel::resources;
use super::files::{changes, copying, dd, df, du, edit, find, ls, making, read_in, run, stat, tar};
use super::volumes::{filesystems, fsck, label, mkfs, trim};
use super::{boot_files, inspect};
use anyhow::Result;
use blockyard_command_line::image::file_command::FileCommand;
use blockyard_command_line::image::on_image::{Changes, Looks, MayDoBoth, OnImage};
use clap::Subcommand;
use clap::builder::{Resettable, StyledStr};

/// The usage of a command that has a synopsis of its own; what those are called is one word.
fn usage<C: FileCommand>(program: &str, name: &str, image: &str) -> Resettable<StyledStr> {
    let usage = |synopsis| format!("{program}{} [OPTIONS] {image}{synopsis}", name.to_lowercase()).into();
    C::synopsis().map_or(Resettable::Reset, |synopsis| Resettable::Value(usage(synopsis)))
}

/// The file commands: each with an image, as the command line has them, and without, as the shell has them; and what it
/// does to the image.
macro_rules! file_commands {
    ($($name:ident($command:ty) $use:ident),+ $(,)?) => {
        #[derive(Subcommand)]
        #[command(defer = true)]
        pub enum OnImageCommand {
            $(#[command(override_usage = usage::<$command>("blockyard image ", stringify!($name), "<IMAGE> "))]
            $name(OnImage<$command, $use>)),+
        }

        impl OnImageCommand {
            pub fn run(&self) -> Result<()> {
                match self {
                    $(Self::$name(command) => command.run(resources)),+
                }
            }
        }

        #[derive(Subcommand)]
        pub enum AnyFileCommand {
            $(#[command(override_usage = usage::<$command>("", stringify!($name), ""))]
            $name($command)),+
        }

        impl AnyFileCommand {
            pub fn into_boxed(self) -> Box<dyn FileCommand> {
                match self {
                    $(Self::$name(command) => Box::new(command)),+
                }
            }
        }
    };
}

file_commands! {
    Ls(ls::Ls) Looks,
    Cat(copying::Cat) Looks,
    Stat(stat::Stat) Looks,
    Df(df::Df) Looks,
    Find(find::Find) Looks,
    Inspect(inspect::Inspect) Looks,
    BootFiles(boot_files::BootFiles) Looks,
    Du(du::Du) Looks,
    Rm(changes::Rm) Changes,
    Mkdir(changes::Mkdir) Changes,
    Mv(changes::Mv) Changes,
    Ln(changes::Ln) Changes,
    Chmod(changes::Chmod) Changes,
    Chown(changes::Chown) Changes,
    Put(copying::Put) Changes,
    Get(copying::Get) Looks,
    TarIn(tar::TarIn) Changes,
    TarOut(tar::TarOut) Looks,
    Cp(making::Cp) Changes,
    Touch(making::Touch) Changes,
    Fill(making::Fill) Changes,
    Edit(edit::Edit) Changes,
    Dd(dd::Dd) MayDoBoth,
    Run(run::Run) MayDoBoth,
    Mkfs(mkfs::Mkfs) Changes,
    Fsck(fsck::Fsck) MayDoBoth,
    Label(label::Label) MayDoBoth,
    Fstrim(trim::Fstrim) Changes,
    ZeroFree(trim::ZeroFree) Changes,
    Filesystems(filesystems::Filesystems) Looks,
    ReadIn(read_in::ReadIn) Changes,
}
