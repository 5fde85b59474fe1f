//! Bitmaps that are kept inside of an image, as `image bitmap` changes them.

use super::Qcow2Disk;
use super::bitmaps::{AUTO, BITMAPS_MAX, Bitmap, Bits, GRANULARITY_MAX_BITS, GRANULARITY_MIN_BITS};
use super::bitmaps::{NAME_MAX_BYTES, table_entries};
use super::chain;
use super::header::Header;
use super::image_file::ImageFile;
use super::internal_snapshots::Change;
use super::metadata::Bitmaps;
use crate::OpenedFile;
use crate::formats::{AllowedDirectories, ImageError};

/// What is done to a bitmap.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Qcow2BitmapAction {
    /// It is made, and kept from now on; a bit for so many bytes, or as many as the image's clusters have, 4 to 64 KiB.
    Add {
        /// A power of two, 512 at least.
        granularity_bytes: Option<u64>,
    },
    /// It is gone, whatever state it is in.
    Remove,
    /// No bit is set any more.
    Clear,
    /// It is kept from now on.
    Enable,
    /// It stays as it is from now on.
    Disable,
    /// What is set in another one is set in it, too.
    Merge {
        /// The other one's name.
        source: String,
    },
}

/// An image, and the bitmaps that are to be inside of it.
struct BitmapChange<'a> {
    change: Change<'a>,
    file: ImageFile,
    bitmaps: Bitmaps,
    name: &'a str,
}

/// Where bits are merged from.
struct Source<'a> {
    image: &'a OpenedFile,
    header: Header,
    file: ImageFile,
    bitmaps: Bitmaps,
}

impl Qcow2Disk {
    /// Changes the bitmap `name` inside of an image, which is open for writing, and locked: all of `actions`, one after
    /// the other, or nothing. Bitmaps are merged from the image `source`, or from this one.
    ///
    /// # Errors
    /// As [`Qcow2Disk::open`] for writing; when there is no such bitmap, or one too many, or it is not what an action
    /// needs.
    pub fn change_bitmap(
        image: &OpenedFile,
        name: &str,
        actions: &[Qcow2BitmapAction],
        source: Option<&OpenedFile>,
        allowed: &AllowedDirectories,
    ) -> Result<(), ImageError> {
        if name.is_empty() || name.len() > NAME_MAX_BYTES || name.contains('\0') {
            return Err(ImageError::Invalid(format!(
                "a bitmap's name has 1 to {NAME_MAX_BYTES} bytes, none of them 0"
            )));
        }
        let source = source.map(Source::of).transpose()?;
        let change = Change::new(image, allowed)?;
        let failed = change.failed("read the bitmaps of");
        let file = chain::image_file(image.file()).map_err(&failed)?;
        let bitmaps = Bitmaps::read(&file, &change.header).map_err(&failed)?;
        let mut this = BitmapChange { change, file, bitmaps, name };
        let done = actions.iter().try_for_each(|action| this.perform(action, source.as_ref()));
        let BitmapChange { mut change, bitmaps, .. } = this;
        if let Err(error) = done {
            change.metadata.drop_bitmaps(&bitmaps);
            // What was reserved is given back, but for what cannot be.
            let _ = change.finish(Ok(()), "change the bitmaps of");
            return Err(error);
        }
        let header = change.header.clone();
        let put = change.metadata.put_bitmaps(&header, bitmaps, None);
        change.finish(put, "change the bitmaps of")
    }
}

impl BitmapChange<'_> {
    fn perform(&mut self, action: &Qcow2BitmapAction, source: Option<&Source<'_>>) -> Result<(), ImageError> {
        match action {
            Qcow2BitmapAction::Add { granularity_bytes } => self.add(*granularity_bytes),
            Qcow2BitmapAction::Remove => {
                let index = self.find()?;
                let removed = self.bitmaps.remove(&self.file, &self.change.header, index);
                removed.map_err(self.change.failed("remove a bitmap of"))
            }
            Qcow2BitmapAction::Clear => {
                let index = self.find_usable()?;
                let entries = vec![0; self.entries(self.bitmaps.get(index).granularity_bits)? as usize];
                let cleared = self.bitmaps.replace(&self.file, &self.change.header, index, entries);
                cleared.map_err(self.change.failed("clear a bitmap of"))
            }
            Qcow2BitmapAction::Enable => self.set_auto(true),
            Qcow2BitmapAction::Disable => self.set_auto(false),
            Qcow2BitmapAction::Merge { source: name } => self.merge(name, source),
        }
    }

    fn add(&mut self, granularity_bytes: Option<u64>) -> Result<(), ImageError> {
        let Header { version, size_bytes, .. } = self.change.header;
        let granularity_bytes =
            granularity_bytes.unwrap_or_else(|| self.change.header.cluster_bytes().clamp(4096, 64 << 10));
        let (min, max) = (1 << GRANULARITY_MIN_BITS, 1_u64 << GRANULARITY_MAX_BITS);
        if !granularity_bytes.is_power_of_two() || !(min..=max).contains(&granularity_bytes) {
            return Err(ImageError::Invalid(format!(
                "a granularity of {granularity_bytes} bytes is not possible: it is a power of two, {min} to {max}"
            )));
        }
        if version < 3 {
            return Err(self
                .change
                .refused("is of version 2, which has no bitmaps: amend -o compat=1.1 makes it one of version 3"));
        }
        if size_bytes == 0 {
            return Err(self.change.refused("has a disk without a byte, of which there is no bitmap"));
        }
        if self.bitmaps.find(self.name).is_some() {
            return Err(self.change.refused(&format!("has a bitmap {:?} already", self.name)));
        }
        if self.bitmaps.count() >= BITMAPS_MAX as usize {
            return Err(self.change.refused(&format!("has {BITMAPS_MAX} bitmaps, and can have no more")));
        }
        let granularity_bits = granularity_bytes.trailing_zeros() as u8;
        let entries = self.entries(granularity_bits)?;
        self.bitmaps.add(Bitmap::new(self.name, granularity_bits), entries);
        Ok(())
    }

    /// Entries that a bitmap's table has.
    fn entries(&self, granularity_bits: u8) -> Result<u64, ImageError> {
        let header = &self.change.header;
        table_entries(header.size_bytes, granularity_bits, header.cluster_bytes()).ok_or_else(|| {
            self.change.refused("has too large a disk for a bitmap of that granularity: take a coarser one (-g)")
        })
    }

    fn find(&self) -> Result<usize, ImageError> {
        let none = || self.change.refused(&format!("has no bitmap {:?}", self.name));
        self.bitmaps.find(self.name).ok_or_else(none)
    }

    fn find_usable(&self) -> Result<usize, ImageError> {
        let index = self.find()?;
        usable(&self.bitmaps, index, &self.change.header).map_err(|problem| self.change.refused(&problem))?;
        Ok(index)
    }

    fn set_auto(&mut self, is_auto: bool) -> Result<(), ImageError> {
        let index = self.find_usable()?;
        let flags = self.bitmaps.get(index).flags;
        self.bitmaps.set_flags(index, if is_auto { flags | AUTO } else { flags & !AUTO });
        Ok(())
    }

    fn merge(&mut self, name: &str, source: Option<&Source<'_>>) -> Result<(), ImageError> {
        let index = self.find_usable()?;
        let (image, header, file, bitmaps) = match source {
            Some(source) => (source.image, &source.header, &source.file, &source.bitmaps),
            None => (self.change.image, &self.change.header, &self.file, &self.bitmaps),
        };
        let refused = |problem: String| ImageError::Unusable { path: image.path().to_owned(), problem };
        let from = bitmaps.find(name).ok_or_else(|| refused(format!("has no bitmap {name:?}")))?;
        usable(bitmaps, from, header).map_err(refused)?;
        let sizes = (header.size_bytes, self.change.header.size_bytes);
        if sizes.0 != sizes.1 {
            return Err(refused(format!(
                "has a disk of {} bytes, and bitmaps of one of {} cannot have its bits",
                sizes.0, sizes.1
            )));
        }
        let failed = self.change.failed("merge bitmaps of");
        let entries = bitmaps.entries(file, from).map_err(&failed)?;
        let mut bits = Bits::new(file, header, bitmaps.get(from).granularity_bits, &entries);
        let own = self.change.header.clone();
        let Self { change, bitmaps, .. } = self;
        change.metadata.merge_into_bitmap(&own, bitmaps, index, |at| bits.next_run(at)).map_err(failed)
    }
}

impl<'a> Source<'a> {
    fn of(image: &'a OpenedFile) -> Result<Self, ImageError> {
        let failed =
            |source| ImageError::System { action: "read the bitmaps of", path: image.path().to_owned(), source };
        let header = chain::parse_header(image.file(), image.path(), Header::parse_to_read)?;
        let file = chain::image_file(image.file()).map_err(failed)?;
        let bitmaps = Bitmaps::read(&file, &header).map_err(failed)?;
        Ok(Self { image, header, file, bitmaps })
    }
}

/// Whether a bitmap's bits can be used.
fn usable(found: &Bitmaps, index: usize, header: &Header) -> Result<(), String> {
    let bitmap = found.get(index);
    let usable = bitmap.usable(header.size_bytes, header.cluster_bytes());
    usable.map_err(|problem| format!("has the bitmap {:?}, which {problem}", String::from_utf8_lossy(&bitmap.name)))
}
