//! Serving a disk as a file.

use super::args::ServeOptions;
use super::gate::connects;
use super::serving::Preparation;
use crate::disk;
use anyhow::{Context, Result, bail};
use blockyard_block::size;
use blockyard_session::fuse::{EndReason, FuseFile, FuseOptions};
use rustix::event::{PollFd, PollFlags, poll};
use rustix::io::Errno;
use std::path::Path;

/// Makes the disk a file at `path` until told to stop, or until somebody unmounts it.
///
/// # Errors
/// When the disk or the file cannot be had.
pub fn serve(options: &ServeOptions, path: &Path) -> Result<()> {
    let preparation = Preparation::new(options.running.clone())?;
    let disk = disk::open(&options.disk, false, &options.allow_dirs)?;
    let capacity = size::human(disk.geometry().capacity_bytes);
    let file = FuseFile::mount(disk, path, &FuseOptions::default())?;
    preparation.screen.tell(&format!("{}, {capacity}, is the file {}", options.disk, file.path().display()));
    preparation.confine(&[], connects(&options.disk))?;
    loop {
        let mut polled =
            [PollFd::new(&preparation.stop, PollFlags::IN), PollFd::from_borrowed_fd(file.ended(), PollFlags::IN)];
        match poll(&mut polled, None) {
            Ok(_) | Err(Errno::INTR) => {}
            Err(errno) => return Err(errno).context("waiting for the file to be unmounted"),
        }
        if polled.iter().any(|polled| !polled.revents().is_empty()) {
            break;
        }
    }
    let why = match file.end_reason() {
        None | Some(EndReason::Unmounted) => None,
        Some(why) => Some(why.to_string()),
    };
    file.unmount()?;
    match why {
        None => Ok(()),
        Some(why) => bail!("{}: {why}", path.display()),
    }
}
