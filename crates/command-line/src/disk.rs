//! How the commands open disks: what is worth knowing goes to stderr.

use crate::{signals, terminal};
use blockyard_block::printable;
use blockyard_session::open::{OpenOptions, Remark};
use std::path::PathBuf;

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
