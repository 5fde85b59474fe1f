//! The calls of libc's that this library's take the place of. Each looks whether it is about a disk; if not, it is
//! libc's, with the same arguments.

mod aio;
mod attach;
mod attributes;
mod data;
pub(crate) mod descriptor_names;
mod descriptors;
mod execute;
mod names;
mod places;
mod print;
mod queue;
mod signals;
mod spawn;
mod streams;
mod users;
mod waits;

use crate::connection::{self, Connection};
use crate::description::{self, Mapped};
use crate::errno::Errno;
use crate::signals::cancellation_point;
use crate::table::{self, Open};
use crate::transfer::Ends;
use crate::{own, setup};
use libc::c_int;

/// A disk that a descriptor is open on.
pub(crate) struct OpenDisk {
    connection: &'static Connection,
    number: usize,
    mapped: Mapped,
    /// For as long as the call lasts.
    _open: Open,
}

impl OpenDisk {
    fn of(open: Open) -> Result<Self, Errno> {
        let (mapped, number) = (open.mapped(), open.disk());
        // It was there when it was opened.
        let gone = |error| if matches!(error, Errno(libc::ENXIO | libc::EACCES)) { Errno(libc::EIO) } else { error };
        let connection = connection::to(number).map_err(gone)?;
        Ok(Self { connection, number, mapped, _open: open })
    }

    fn capacity(&self) -> u64 {
        self.connection.geometry.capacity_bytes
    }

    /// An error unless it was opened for writing.
    fn for_writing(self, otherwise: c_int) -> Result<Self, Errno> {
        if self.mapped.get().may_write() { Ok(self) } else { Err(Errno(otherwise)) }
    }

    fn for_reading(self) -> Result<Self, Errno> {
        if self.mapped.get().may_read() { Ok(self) } else { Err(Errno(libc::EBADF)) }
    }

    /// Whether each write is to go behind the end, where what looks like a file has no room. On a device, it goes where
    /// any other does.
    fn appends(&self) -> bool {
        self.mapped.get().flags() & libc::O_APPEND != 0 && setup::disks_look_like_files()
    }

    /// When each write ends.
    fn ends(&self) -> Ends {
        match self.mapped.get().flags() {
            flags if flags & (libc::O_SYNC | libc::O_DSYNC) != 0 => Ends::Stable,
            flags if flags & libc::O_DIRECT != 0 => Ends::Written,
            _ => Ends::Given,
        }
    }
}

/// The disk that a descriptor is open on, if it is on one.
#[inline]
fn disk(descriptor: c_int) -> Option<Result<OpenDisk, Errno>> {
    if !table::has(descriptor) {
        return None;
    }
    cancellation_point();
    table::find(descriptor).map(OpenDisk::of)
}

/// Gives a new descriptor what another is open on, if that is a disk.
fn duplicated(from: c_int, to: c_int) -> c_int {
    if to >= 0 && to != from {
        own::is_programs(to);
        match table::find(from) {
            Some(open) => {
                if let Err(error) = open.give_to(to) {
                    description::close(to);
                    error.set();
                    return -1;
                }
            }
            None => _ = table::remove(to),
        }
    }
    to
}
