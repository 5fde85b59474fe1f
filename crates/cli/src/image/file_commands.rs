//! The commands on the files of an image: which there are, and how one is run on an image.

use super::appliance_kernel::resources;
use super::files::{changes, copying, dd, df, du, edit, find, ls, making, read_in, run, stat, tar};
use super::inspect;
use super::volumes::{filesystems, fsck, label, mkfs, trim};
use anyhow::Result;
use blockyard_command_line::image::file_command::FileCommand;
use blockyard_command_line::image::on_image::OnImage;
use clap::Subcommand;
use clap::builder::{Resettable, StyledStr};

/// The usage of a command that has a synopsis of its own; what those are called is one word.
fn usage<C: FileCommand>(program: &str, name: &str, image: &str) -> Resettable<StyledStr> {
    let usage = |synopsis| format!("{program}{} [OPTIONS] {image}{synopsis}", name.to_lowercase()).into();
    C::synopsis().map_or(Resettable::Reset, |synopsis| Resettable::Value(usage(synopsis)))
}

/// The file commands: each with an image, as the command line has them, and without, as the shell has them.
macro_rules! file_commands {
    ($($name:ident($command:ty)),+ $(,)?) => {
        #[derive(Subcommand)]
        #[command(defer = true)]
        pub enum OnImageCommand {
            $(#[command(override_usage = usage::<$command>("blockyard image ", stringify!($name), "<IMAGE> "))]
            $name(OnImage<$command>)),+
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
    Ls(ls::Ls),
    Cat(copying::Cat),
    Stat(stat::Stat),
    Df(df::Df),
    Find(find::Find),
    Inspect(inspect::Inspect),
    Du(du::Du),
    Rm(changes::Rm),
    Mkdir(changes::Mkdir),
    Mv(changes::Mv),
    Ln(changes::Ln),
    Chmod(changes::Chmod),
    Chown(changes::Chown),
    Put(copying::Put),
    Get(copying::Get),
    TarIn(tar::TarIn),
    TarOut(tar::TarOut),
    Cp(making::Cp),
    Touch(making::Touch),
    Fill(making::Fill),
    Edit(edit::Edit),
    Dd(dd::Dd),
    Run(run::Run),
    Mkfs(mkfs::Mkfs),
    Fsck(fsck::Fsck),
    Label(label::Label),
    Fstrim(trim::Fstrim),
    ZeroFree(trim::ZeroFree),
    Filesystems(filesystems::Filesystems),
    ReadIn(read_in::ReadIn),
}
