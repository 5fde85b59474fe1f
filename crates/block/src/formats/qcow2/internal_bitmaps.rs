//! Bitmaps that are kept inside of an image, as `image bitmap` changes them.

use super::bitmaps::{AUTO, BITMAPS_MAX, Bitmap, Bits, GRANULARITY_MAX_BITS, GRANULARITY_MIN_BITS};
use super::bitmaps::{NAME_MAX_BYTES, table_entries};
use super::header::Header;
use super::metadata::{Bitmaps, Metadata};
use super::own_file;
use super::{Qcow2Disk, chain, internal_snapshots};
use crate::formats::{ImageError, WritableFile};
use crate::{OpenedFile, Remedy};
use std::io;

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
    image: &'a OpenedFile,
    header: Header,
    metadata: Metadata,
    file: WritableFile,
    bitmaps: Bitmaps,
}

/// Where bits are merged from.
struct Source<'a> {
    image: &'a OpenedFile,
    header: Header,
    file: WritableFile,
    bitmaps: Bitmaps,
}

impl Qcow2Disk {
    /// Changes the bitmap `name` inside of an image, which is open for writing, and locked: all of `actions`, one after
    /// the other, or nothing. Bitmaps are merged from the image `source`, or from this one.
    ///
    /// # Errors
    /// When the image is damaged, or cannot be read or written; when there is no such bitmap, or one too many, or it is
    /// not what an action needs.
    pub fn change_bitmap(
        image: &OpenedFile,
        name: &str,
        actions: &[Qcow2BitmapAction],
        source: Option<&OpenedFile>,
    ) -> Result<(), ImageError> {
        if name.is_empty() || name.len() > NAME_MAX_BYTES || name.contains('\0') {
            return Err(ImageError::Invalid(format!(
                "a bitmap's name has 1 to {NAME_MAX_BYTES} bytes, none of them 0"
            )));
        }
        let source = source.map(Source::of).transpose()?;
        let mut change = BitmapChange::new(image)?;
        let name = name.as_bytes();
        let done = actions.iter().try_for_each(|action| change.perform(name, action, source.as_ref()));
        change.finish(done)
    }

    /// Gives a new image all bitmaps of the image `source` that can be used, whose disks are of one size. Those that
    /// cannot are left out, or an error.
    ///
    /// # Errors
    /// When one of the images is damaged, or cannot be read or written.
    pub fn copy_bitmaps(image: &OpenedFile, source: &OpenedFile, leaves_out_unusable: bool) -> Result<(), ImageError> {
        let source = Source::of(source)?;
        let mut change = BitmapChange::new(image)?;
        let done = (0..source.bitmaps.count()).try_for_each(|index| {
            let bitmap = source.bitmaps.get(index);
            match usable(&source.bitmaps, index, &source.header) {
                Err(_) if leaves_out_unusable => Ok(()),
                Err(problem) => Err(source.refused(format!("{problem}; --skip-broken-bitmaps leaves it out"))),
                Ok(()) => {
                    change.add(&bitmap.name, Some(1 << bitmap.granularity_bits))?;
                    change.merge(&bitmap.name, &bitmap.name, Some(&source))?;
                    let made = change.find(&bitmap.name)?;
                    change.bitmaps.set_flags(made, bitmap.flags & AUTO);
                    Ok(())
                }
            }
        });
        change.finish(done)
    }
}

impl<'a> BitmapChange<'a> {
    /// Of an image that is whole. What it is based on, or has its data in, is nothing to its bitmaps.
    fn new(image: &'a OpenedFile) -> Result<Self, ImageError> {
        let failed = failed(image, "read the bitmaps of");
        let header = internal_snapshots::whole_header(image)?;
        let metadata = chain::own_metadata(image.file(), image.path(), &header)?;
        let file = own_file::image_file(image.file()).map_err(&failed)?;
        let bitmaps = Bitmaps::read(&file, &header).map_err(&failed)?;
        Ok(Self { image, header, metadata, file, bitmaps })
    }

    /// Puts in force what was done, or gives it up.
    fn finish(self, done: Result<(), ImageError>) -> Result<(), ImageError> {
        let Self { image, header, mut metadata, bitmaps, .. } = self;
        let failed = failed(image, "change the bitmaps of");
        let put = match &done {
            Ok(()) => metadata.put_bitmaps(&header, bitmaps, None),
            Err(_) => {
                metadata.drop_bitmaps(&bitmaps);
                Ok(())
            }
        };
        // What was reserved is given back whatever became of it.
        let closed = metadata.close().and_then(|()| metadata.sync());
        done.and(put.and(closed).map_err(|error| {
            // What is in force lies elsewhere than what was.
            let now = own_file::read_header(image.file(), image.path());
            if now.is_err() || now.is_ok_and(|now| now.bitmaps == header.bitmaps) {
                return failed(error);
            }
            let problem = format!(
                "has its bitmaps as they were to be, but what is to be done then failed ({error}), and storage may be \
                 lost that {} finds",
                Remedy::RepairImage
            );
            ImageError::Unusable { path: image.path().to_owned(), problem }
        }))
    }

    fn perform(
        &mut self,
        name: &[u8],
        action: &Qcow2BitmapAction,
        source: Option<&Source<'_>>,
    ) -> Result<(), ImageError> {
        match action {
            Qcow2BitmapAction::Add { granularity_bytes } => self.add(name, *granularity_bytes),
            Qcow2BitmapAction::Remove => {
                let index = self.find(name)?;
                let removed = self.bitmaps.remove(&self.file, &self.header, index);
                removed.map_err(failed(self.image, "remove a bitmap of"))
            }
            Qcow2BitmapAction::Clear => {
                let index = self.find_usable(name)?;
                let entries = vec![0; self.entries(self.bitmaps.get(index).granularity_bits)? as usize];
                let cleared = self.bitmaps.replace(&self.file, &self.header, index, entries);
                cleared.map_err(failed(self.image, "clear a bitmap of"))
            }
            Qcow2BitmapAction::Enable => self.set_auto(name, true),
            Qcow2BitmapAction::Disable => self.set_auto(name, false),
            Qcow2BitmapAction::Merge { source: from } => self.merge(name, from.as_bytes(), source),
        }
    }

    fn refused(&self, problem: &str) -> ImageError {
        ImageError::Unusable { path: self.image.path().to_owned(), problem: problem.to_owned() }
    }

    fn add(&mut self, name: &[u8], granularity_bytes: Option<u64>) -> Result<(), ImageError> {
        let Header { version, size_bytes, .. } = self.header;
        let granularity_bytes = granularity_bytes.unwrap_or_else(|| self.header.cluster_bytes().clamp(4096, 64 << 10));
        let (min, max) = (1 << GRANULARITY_MIN_BITS, 1_u64 << GRANULARITY_MAX_BITS);
        if !granularity_bytes.is_power_of_two() || !(min..=max).contains(&granularity_bytes) {
            return Err(ImageError::Invalid(format!(
                "a granularity of {granularity_bytes} bytes is not possible: it is a power of two, {min} to {max}"
            )));
        }
        if version < 3 {
            return Err(self.refused("is of version 2, which has no bitmaps: convert it with -o compat=1.1"));
        }
        if size_bytes == 0 {
            return Err(self.refused("has a disk without a byte, of which there is no bitmap"));
        }
        if self.bitmaps.find(name).is_some() {
            return Err(self.refused(&format!("has a bitmap {:?} already", String::from_utf8_lossy(name))));
        }
        if self.bitmaps.count() >= BITMAPS_MAX as usize {
            return Err(self.refused(&format!("has {BITMAPS_MAX} bitmaps, and can have no more")));
        }
        let granularity_bits = granularity_bytes.trailing_zeros() as u8;
        let entries = self.entries(granularity_bits)?;
        self.bitmaps.add(Bitmap::new(name, granularity_bits), entries);
        Ok(())
    }

    /// Entries that a bitmap's table has.
    fn entries(&self, granularity_bits: u8) -> Result<u64, ImageError> {
        let header = &self.header;
        table_entries(header.size_bytes, granularity_bits, header.cluster_bytes()).ok_or_else(|| {
            self.refused("has too large a disk for a bitmap of that granularity: take a coarser one (-g)")
        })
    }

    fn find(&self, name: &[u8]) -> Result<usize, ImageError> {
        let none = || self.refused(&no_bitmap(name));
        self.bitmaps.find(name).ok_or_else(none)
    }

    fn find_usable(&self, name: &[u8]) -> Result<usize, ImageError> {
        let index = self.find(name)?;
        usable(&self.bitmaps, index, &self.header).map_err(|problem| self.refused(&problem))?;
        Ok(index)
    }

    fn set_auto(&mut self, name: &[u8], is_auto: bool) -> Result<(), ImageError> {
        let index = self.find_usable(name)?;
        let flags = self.bitmaps.get(index).flags;
        self.bitmaps.set_flags(index, if is_auto { flags | AUTO } else { flags & !AUTO });
        Ok(())
    }

    fn merge(&mut self, name: &[u8], from: &[u8], source: Option<&Source<'_>>) -> Result<(), ImageError> {
        let index = self.find_usable(name)?;
        let (image, header, file, bitmaps) = match source {
            Some(source) => (source.image, &source.header, &source.file, &source.bitmaps),
            None => (self.image, &self.header, &self.file, &self.bitmaps),
        };
        let refused = |problem: String| ImageError::Unusable { path: image.path().to_owned(), problem };
        let from = bitmaps.find(from).ok_or_else(|| refused(no_bitmap(from)))?;
        usable(bitmaps, from, header).map_err(refused)?;
        let sizes = (header.size_bytes, self.header.size_bytes);
        if sizes.0 != sizes.1 {
            return Err(refused(format!(
                "has a disk of {} bytes, and bitmaps of one of {} cannot have its bits",
                sizes.0, sizes.1
            )));
        }
        let failed = failed(self.image, "merge bitmaps of");
        let entries = bitmaps.entries(file, from).map_err(&failed)?;
        let mut bits = Bits::new(file, header, bitmaps.get(from).granularity_bits, &entries);
        let own = self.header.clone();
        let Self { metadata, bitmaps, .. } = self;
        metadata.merge_into_bitmap(&own, bitmaps, index, |at| bits.next_run(at)).map_err(failed)
    }
}

fn no_bitmap(name: &[u8]) -> String {
    format!("has no bitmap {:?}", String::from_utf8_lossy(name))
}

fn failed(image: &OpenedFile, action: &'static str) -> impl Fn(io::Error) -> ImageError + use<> {
    let path = image.path().to_owned();
    move |source| ImageError::System { action, path: path.clone(), source }
}

impl<'a> Source<'a> {
    fn refused(&self, problem: String) -> ImageError {
        ImageError::Unusable { path: self.image.path().to_owned(), problem }
    }

    fn of(image: &'a OpenedFile) -> Result<Self, ImageError> {
        let failed =
            |source| ImageError::System { action: "read the bitmaps of", path: image.path().to_owned(), source };
        let header = own_file::parse_header(image.file(), image.path(), Header::parse_to_read)?;
        let file = own_file::image_file(image.file()).map_err(&failed)?;
        let bitmaps = Bitmaps::read(&file, &header).map_err(&failed)?;
        Ok(Self { image, header, file, bitmaps })
    }
}

/// Whether a bitmap's bits can be used.
fn usable(found: &Bitmaps, index: usize, header: &Header) -> Result<(), String> {
    let bitmap = found.get(index);
    let usable = bitmap.usable(header.size_bytes, header.cluster_bytes());
    usable.map_err(|problem| format!("has the bitmap {:?}, which {problem}", String::from_utf8_lossy(&bitmap.name)))
}
