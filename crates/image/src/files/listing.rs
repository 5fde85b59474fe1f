//! What is known of files.

use crate::error::Result;
use crate::guest::{OpenImage, RecordTaker, image_path};
use blockyard_protocol::appliance::{Entry, Operation, Record, Walk};
use blockyard_protocol::pattern::escaped;
use std::io;
use std::path::Path;

impl OpenImage {
    /// What is at a path of the image: with `follow` through links, otherwise with owners' names and a link's target. `None` when nothing is.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn entry(&mut self, path: &Path, follow: bool) -> Result<Option<Entry>> {
        let walk = Walk { paths: vec![escaped(&image_path(path))], follow, details: !follow, ..Walk::default() };
        self.records_if_any(Operation::Walk(walk), First(None))
    }
}

struct First(Option<Entry>);

impl RecordTaker for First {
    type Output = Option<Entry>;

    fn take(&mut self, record: Record) -> io::Result<()> {
        if let (Record::Entry(entry), None) = (record, &self.0) {
            self.0 = Some(entry);
        }
        Ok(())
    }

    fn finish(self) -> io::Result<Self::Output> {
        Ok(self.0)
    }
}
