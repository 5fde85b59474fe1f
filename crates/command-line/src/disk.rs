//! How the commands open disks: what is worth knowing goes to stderr.

use crate::{signals, terminal};
use blockyard_block::{ImageTrouble, Remedy, hear_of_trouble, printable, shown};
use blockyard_session::open::{OpenOptions, Remark};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

/// An image could not be closed.
static IS_UNCLOSED: AtomicBool = AtomicBool::new(false);

/// From now on, what goes wrong with images and is nobody's result is said when it happens, and [`exit_status`] knows
/// of those that cannot be closed.
pub fn watch_images() {
    hear_of_trouble(|path, trouble, error| {
        let is_unclosed = matches!(trouble, ImageTrouble::UnclosedQcow2 | ImageTrouble::UnclosedVmdk);
        IS_UNCLOSED.fetch_or(is_unclosed, Ordering::SeqCst);
        let path = shown(path);
        terminal::say(&match trouble {
            ImageTrouble::UnclosedQcow2 => format!(
                "{path}: closing it failed: {error}; what was written is there, but bitmaps in it may stay in use, and \
                 clusters be leaked, which {} gives back",
                Remedy::RepairImage
            ),
            ImageTrouble::UnclosedVmdk => format!(
                "{path}: closing it failed: {error}; what was flushed is there; `blockyard image check` says whether its \
                 tables are in order, and `blockyard image convert` makes a new image of what can be read"
            ),
            ImageTrouble::Unwritable => format!("note: {path} {}", printable(&error.to_string())),
            ImageTrouble::Unreadable => {
                format!("note: {path}: a part of it cannot be read: {}", printable(&error.to_string()))
            }
        });
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

/// Says what is worth knowing of a disk though all goes on.
pub fn say_note(note: &str) {
    terminal::say(&format!("note: {}", printable(note)));
}

fn say(remark: Remark<'_>) {
    match remark {
        Remark::LeftAlone(note) => say_note(note),
        Remark::OutOfDate(note) | Remark::Repaired(note) => terminal::say(note),
    }
}
