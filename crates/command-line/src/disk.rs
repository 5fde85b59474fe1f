//! How the commands open disks: what is worth knowing goes to stderr.

use crate::{signals, terminal};
use blockyard_block::{Remedy, hear_of_unclosed, printable, shown};
use blockyard_session::open::{OpenOptions, Remark};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// An image could not be closed.
static IS_UNCLOSED: AtomicBool = AtomicBool::new(false);

/// From now on, images that cannot be closed are said when it happens, and [`exit_status`] knows of them.
pub fn watch_closing() {
    hear_of_unclosed(|path, error| {
        IS_UNCLOSED.store(true, Ordering::SeqCst);
        terminal::say(&format!(
            "{}: closing it failed: {error}; what was written is there, but bitmaps in it may stay in use, and clusters \
             be leaked, which {} gives back",
            shown(path),
            Remedy::RepairImage
        ));
    });
}

/// What a command ends with whose own status is `status`, once it has let go of its disks: a failure if one of them
/// could not be closed.
pub fn exit_status(status: u8) -> u8 {
    match status {
        0 => IS_UNCLOSED.load(Ordering::SeqCst).into(),
        status => status,
    }
}

/// For writing, with an image's other files in these directories.
pub fn to_write(allow_dirs: &[PathBuf]) -> OpenOptions<'_> {
    OpenOptions { allow_dirs, ending: &signals::event, remark: &say, ..OpenOptions::default() }
}

/// For reading only. A change that was cut off is then seen through.
pub fn to_read(allow_dirs: &[PathBuf]) -> OpenOptions<'_> {
    OpenOptions { read_only: true, ..to_write(allow_dirs) }
}

fn say(remark: Remark<'_>) {
    match remark {
        Remark::LeftAlone(note) => terminal::say(&format!("note: {}", printable(note))),
        Remark::OutOfDate(note) | Remark::Repaired(note) => terminal::say(note),
    }
}
