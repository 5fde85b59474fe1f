//! Serving a disk as a file.

use crate::serving::Preparation;
use crate::view::{ClientView, ServerView};
use anyhow::{Context, Result, bail};
use blockyard_block::layers::MeteredDisk;
use blockyard_block::specification::DiskSpecification;
use blockyard_block::{Disk, explain, shown, size, wait_ready};
use blockyard_session::fuse::{EndReason, FuseFile, FuseOptions};
use rustix::event::{PollFd, PollFlags};
use std::path::Path;
use std::sync::Arc;

/// Makes the disk a file at `path` until told to stop.
///
/// # Errors
/// When the file cannot be had, or somebody takes the file away.
pub(crate) fn serve(
    preparation: Preparation<'_>,
    disk: Arc<dyn Disk>,
    name: &DiskSpecification,
    path: &Path,
) -> Result<()> {
    let capacity = size::human(disk.geometry().capacity_bytes);
    let metered = MeteredDisk::new(disk);
    let meter = Arc::clone(metered.meter());
    let disk: Arc<dyn Disk> = Arc::new(metered);
    let file = FuseFile::mount(disk, path, &FuseOptions::default())?;
    preparation.confine(&[], 0)?;
    let of_client = path.display().to_string();
    let look = move || ServerView { clients: vec![ClientView::of_file(of_client.clone(), &meter)], left: Vec::new() };
    let notices = preparation.notices;
    let stop = preparation.show(Arc::new(look))?;
    notices.tell(&format!("{name}, {capacity}, is the file {}", shown(file.path())));
    let mut polled = [PollFd::new(&stop, PollFlags::IN), PollFd::from_borrowed_fd(file.ended(), PollFlags::IN)];
    while polled.iter().all(|polled| polled.revents().is_empty()) {
        wait_ready(&mut polled, None).context("waiting for the file to be unmounted")?;
    }
    let why = match file.end_reason() {
        None => None,
        Some(EndReason::Unmounted) => Some("somebody else has unmounted it, so it is served no longer".to_owned()),
        Some(why) => Some(explain(why)),
    };
    file.unmount()?;
    match why {
        None => Ok(()),
        Some(why) => bail!("{}: {why}", shown(path)),
    }
}
