//! What files of an image hold.

use super::paths;
use crate::error::Result;
use crate::guest::{OpenImage, write_out, write_out_into};
use blockyard_protocol::appliance::{Operation, Read};
use std::io::Write;
use std::os::fd::AsFd;
use std::path::Path;

impl OpenImage {
    /// Writes what files of the image hold to `output`, one behind the other, and gives it back. Paths may be patterns,
    /// as a shell has them.
    ///
    /// # Errors
    /// When one of them cannot be read: the others are written. When the output takes no more.
    pub fn read<P: AsRef<Path>, W: Write + Send + 'static>(
        &mut self,
        sources: impl IntoIterator<Item = P>,
        output: W,
    ) -> Result<W> {
        write_out(self, Operation::Read(Read { paths: paths(sources) }), output)
    }

    /// The same for a file or a pipe: it takes more of what a file system has compressed.
    ///
    /// # Errors
    /// As [`OpenImage::read`].
    pub fn read_into<P: AsRef<Path>, W: Write + AsFd + Send + 'static>(
        &mut self,
        sources: impl IntoIterator<Item = P>,
        output: W,
    ) -> Result<W> {
        write_out_into(self, Operation::Read(Read { paths: paths(sources) }), output)
    }
}
