//! Something that is done on the files of one image: the image is opened, and closed again.

use super::file_command::FileCommand;
use super::misplaced;
use super::open_image::{self, FindResources, ImageArgs};
use anyhow::Result;
use blockyard_image::Access;
use clap::{Arg, Args};
use std::marker::PhantomData;

// A file command with the image that it is for.
#[allow(missing_docs, reason = "clap would show it instead of the command's documentation")]
#[derive(Args)]
#[command(mut_args = U::shown)]
pub struct OnImage<C: Args, U: Use> {
    /// The image: a disk specification.
    #[arg(value_name = "IMAGE")]
    image: String,
    #[command(flatten)]
    command: C,
    #[command(flatten, next_help_heading = "Options of the image")]
    how: ImageArgs,
    #[arg(skip)]
    image_use: PhantomData<U>,
}

/// What a command uses an image for, whatever its arguments are: `--help` shows the options of the image that mean
/// something then.
pub trait Use {
    /// An option as it is shown, if it is.
    fn shown(arg: Arg) -> Arg;
}

/// It writes nothing to the image.
pub enum Looks {}

/// It is nothing without writing.
pub enum Changes {}

/// Its arguments decide.
pub enum MayDoBoth {}

impl Use for Looks {
    fn shown(arg: Arg) -> Arg {
        open_image::shown_for(Access::Read, arg)
    }
}

impl Use for Changes {
    fn shown(arg: Arg) -> Arg {
        open_image::shown_for(Access::Write, arg)
    }
}

impl Use for MayDoBoth {
    fn shown(arg: Arg) -> Arg {
        arg
    }
}

impl<C: Args + FileCommand, U: Use> OnImage<C, U> {
    /// As [`run_on`].
    ///
    /// # Errors
    /// As there.
    pub fn run(&self, resources: FindResources) -> Result<()> {
        run_on(&self.image, &self.how, &self.command, resources)
    }
}

/// Opens the image, does something, and closes the image, so that what was changed is on stable storage.
///
/// # Errors
/// When one of these fails.
pub fn run_on(image: &String, how: &ImageArgs, command: &dyn FileCommand, resources: FindResources) -> Result<()> {
    let open = || {
        command.check()?;
        open_image::open(image, how, command, resources)
    };
    let mut image = open().map_err(|error| misplaced::explain(error, image))?;
    let done = command.run(&mut image);
    match done {
        Err(error) if image.is_atomic() => Err(error.context(image.give_up())),
        done => done.and(image.close().map_err(Into::into)),
    }
}
