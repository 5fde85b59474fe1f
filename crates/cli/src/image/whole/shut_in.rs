//! Confining this process to the files that it has open, before it works on an image that somebody else made.

use anyhow::Result;
use blockyard_block::RingsAhead;
use blockyard_block::specification::{DiskSpecification, Kind};
use blockyard_confinement::Confinement;
use std::path::PathBuf;

/// Gives up, for good, everything but the files that are open, giving a finished file its name in `replaces_in`, and,
/// for a disk that is a session, connecting again. What follows reads the tables of images that may be hostile; their
/// headers were read before, because they say which files to open. Of what is opened to the disks afterwards, `queues`
/// to each have an io_uring.
///
/// # Errors
/// When the kernel refuses.
pub fn shut_in(disks: &[&DiskSpecification], replaces_in: Vec<PathBuf>, queues: usize) -> Result<()> {
    let connects = disks.iter().any(|disk| disk.kind() == Kind::Session);
    let rings = RingsAhead { queues, ..RingsAhead::default() };
    Confinement { replaces_in, connects, rings, ..Confinement::default() }.enter()?;
    Ok(())
}
