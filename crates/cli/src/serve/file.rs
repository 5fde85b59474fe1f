//! Serving a disk as a file.

use super::args::ServeOptions;
use super::serving::Preparation;
use anyhow::{Context, Result, bail};
use blockyard_block::{explain, size, wait_ready};
use blockyard_session::fuse::{EndReason, FuseFile, FuseOptions};
use rustix::event::{PollFd, PollFlags};
use std::path::Path;

/// Makes the disk a file at `path` until told to stop, or until somebody unmounts it.
///
/// # Errors
/// When the disk or the file cannot be had.
pub fn serve(options: &ServeOptions, path: &Path) -> Result<()> {
    let (preparation, disk) = Preparation::with_disk(options)?;
    let capacity = size::human(disk.geometry().capacity_bytes);
    let file = FuseFile::mount(disk, path, &FuseOptions::default())?;
    preparation.screen.tell(&format!("{}, {capacity}, is the file {}", options.disk, file.path().display()));
    preparation.confine(&[])?;
    let mut polled =
        [PollFd::new(&preparation.stop, PollFlags::IN), PollFd::from_borrowed_fd(file.ended(), PollFlags::IN)];
    while polled.iter().all(|polled| polled.revents().is_empty()) {
        wait_ready(&mut polled, None).context("waiting for the file to be unmounted")?;
    }
    let why = match file.end_reason() {
        None | Some(EndReason::Unmounted) => None,
        Some(why) => Some(explain(why)),
    };
    file.unmount()?;
    match why {
        None => Ok(()),
        Some(why) => bail!("{}: {why}", path.display()),
    }
}
