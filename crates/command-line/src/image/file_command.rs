//! What the commands on the files of an image have in common.

use crate::usage_error::UsageError;
use anyhow::Result;
use blockyard_block::shown;
use blockyard_image::Access;
use blockyard_image::guest::OpenImage;
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
    /// [`UsageError`] when what was asked for makes no sense; otherwise what on the host is wrong.
    fn check(&self) -> Result<()> {
        Ok(())
    }

    /// Does it.
    ///
    /// # Errors
    /// When it cannot be done, in whole or in part: what was done before stays.
    fn run(&self, image: &mut OpenImage) -> Result<()>;
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
