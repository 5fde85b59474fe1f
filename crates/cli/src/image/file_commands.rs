//! Commands on the files of an image: what they have in common, and which there are.

use super::files::{changes, copying, dd, df, du, edit, find, ls, making, read_in, run, stat, tar};
use super::open_image::{self, ImageArgs};
use super::volumes::{filesystems, fsck, label, mkfs, trim};
use super::{inspect, misplaced};
use crate::UsageError;
use anyhow::Result;
use blockyard_block::shown;
use blockyard_image::Access;
use blockyard_image::guest::OpenImage;
use clap::builder::{Resettable, StyledStr};
use clap::{Args, Subcommand};
use std::path::{Path, PathBuf};

/// Something that is done on the files of an image: by `image`, in the shell, in scripts.
pub trait FileCommand {
    /// Its arguments as the synopsis of a manual has them, where that is not what clap makes of them.
    fn synopsis() -> Option<&'static str>
    where
        Self: Sized,
    {
        None
    }

    /// What it needs the image for.
    fn access(&self) -> Access;

    /// Whether it can do with an image that is open for reading only, if somebody wants that.
    fn may_only_read(&self) -> bool {
        false
    }

    /// Whether Ctrl-C ends what is done and not the appliance.
    fn lives_on(&self) -> bool {
        false
    }

    /// Whether the image's file systems are mounted for it; without, it has the image's disks.
    fn mounts(&self) -> bool {
        true
    }

    /// Whether what was mounted before may not be any more afterwards.
    fn unmounts(&self) -> bool {
        false
    }

    /// Fails when it cannot be done whatever the image holds: asked before anything is opened or booted.
    ///
    /// # Errors
    /// [`crate::UsageError`] when what was asked for makes no sense; otherwise what on the host is wrong.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Does it.
    ///
    /// # Errors
    /// When it cannot be done, in whole or in part: what was done before stays.
    fn run(&self, image: &mut OpenImage) -> Result<()>;
}

// A file command with the image that it is for. No documentation comment: clap would show it instead of the command's.
#[derive(Args)]
pub struct OnImage<C: Args> {
    /// The image: a disk specification.
    #[arg(value_name = "IMAGE")]
    image: String,
    #[command(flatten)]
    command: C,
    #[command(flatten, next_help_heading = "Options of the image")]
    how: ImageArgs,
}

impl<C: Args + FileCommand> OnImage<C> {
    /// As [`run_on`].
    ///
    /// # Errors
    /// As there.
    pub fn run(&self) -> Result<()> {
        run_on(&self.image, &self.how, &self.command)
    }
}

/// Opens the image, does something, and closes the image, so that what was changed is on stable storage.
///
/// # Errors
/// When one of these fails.
pub fn run_on(image: &String, how: &ImageArgs, command: &dyn FileCommand) -> Result<()> {
    let open = || {
        command.check()?;
        open_image::open(image, how, command)
    };
    let mut image = open().map_err(|error| misplaced::explain(error, image))?;
    let done = command.run(&mut image);
    match done {
        Err(error) if image.is_atomic() => Err(error.context(image.give_up())),
        done => done.and(image.close().map_err(Into::into)),
    }
}

/// The usage of a command that has a synopsis of its own; what those are called is one word.
fn usage<C: FileCommand>(program: &str, name: &str, image: &str) -> Resettable<StyledStr> {
    let usage = |synopsis| format!("{program}{} [OPTIONS] {image}{synopsis}", name.to_lowercase()).into();
    C::synopsis().map_or(Resettable::Reset, |synopsis| Resettable::Value(usage(synopsis)))
}

/// Sources and the destination behind them; `place`: where that is.
///
/// # Errors
/// [`UsageError`] when there is no destination.
pub fn sources_and_destination<'a>(paths: &'a [PathBuf], place: &str) -> Result<(&'a [PathBuf], &'a Path), UsageError> {
    match paths {
        [sources @ .., destination] if !sources.is_empty() => Ok((sources, destination)),
        _ => {
            let source = paths.first().map_or_else(String::new, |path| shown(path).to_string());
            Err(UsageError(format!("DST is missing: behind {source}, say where {place} it goes")))
        }
    }
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
                    $(Self::$name(command) => command.run()),+
                }
            }
        }

        #[derive(Subcommand)]
        pub enum AnyFileCommand {
            $(#[command(override_usage = usage::<$command>("", stringify!($name), ""))]
            $name($command)),+
        }

        impl AnyFileCommand {
            pub fn get(&self) -> &dyn FileCommand {
                match self {
                    $(Self::$name(command) => command),+
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
