//! Folding a difference between VMDKs into the one that it is a difference from.
//!
//! At any time the difference shows the same: what is written to its parent is what it shows there. It is emptied only
//! when that is stable.
//!
//! A VMDK that is written to gets another number (CID), by which differences from it notice. The one that is folded
//! into it has to go along with that, and no write changes two files at once. So the number is not drawn, but follows
//! from the one before and the difference's own ([`successor`]), and the difference says it first: one that wants what
//! follows its parent's number is a difference whose commit was stopped between the two, and is read and committed
//! again ([`Parent`](super::chain::Parent)). When it is written to before that, it says the number that its parent has
//! again, as if no commit had been begun ([`ContentId`](super::vmdk::ContentId)): nothing of it was written then.

use super::chain::{self, Parent};
use super::image::Image;
use super::image_file::ImageFile;
use super::layer::{Meaning, SliceBuffer};
use super::level::Storage;
use super::reader::Reader;
use super::vmdk::{self, GrainTables, Number, Numbers, Place, SparseMap, UncheckedTables, successor};
use super::{BlockMapDisk, BlockMapFormat, unusable};
use crate::formats::chain_files::ChainFiles;
use crate::formats::{AllowedDirectories, FoldError, ImageError, WritableFile, fold};
use crate::{Disk, Engine, FileOptions, OpenedFile, same_file, shown};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// What is said of a difference that is not committed.
const CONVERT: &str = "`blockyard image convert` makes one image of it and what is behind it";

/// The fewest digits of a number that can become any other one.
const DIGITS_MIN: u32 = 6;

/// A difference that can be committed, as its file says it.
pub(super) struct Difference {
    pub(super) map: SparseMap,
    pub(super) parent: Parent,
    pub(super) id: u32,
    /// Where it says its parent's number.
    pub(super) parent_id_at: Option<Place>,
}

/// A commit, with all its files open and locked.
pub struct VmdkCommit {
    path: PathBuf,
    top: BlockMapDisk,
    tables: GrainTables,
    parent_id: Number,
    base: BlockMapDisk,
    base_path: PathBuf,
    /// What the base is to say of its own parent before its number changes.
    parent_of_base: Option<(Number, u32)>,
    base_id: Number,
    /// What both numbers become.
    id: u32,
}

impl VmdkCommit {
    /// Of a difference that is open for writing, and locked: opens its parent, which `base` may name.
    ///
    /// # Errors
    /// When it has no parent, another one, or is in several files or compressed; when one of the two is damaged, cannot
    /// be written, or is not allowed.
    pub fn open(image: OpenedFile, base: Option<&Path>, allowed: &AllowedDirectories) -> Result<Self, ImageError> {
        const VMDK: BlockMapFormat = BlockMapFormat::Vmdk;
        let path = &image.path().to_owned();
        let failed = |source| ImageError::System { action: "open", path: path.to_owned(), source };
        let file = image.into_file();
        let read = ImageFile::of(&file, path)?;
        let Difference { map, parent, id, parent_id_at } = vmdk::difference(&read)?;
        let (base_file, base_path) = parent.find(path, VMDK, allowed, true)?;
        if let Some(base) = base.filter(|base| !same_file(&base_path, base).unwrap_or(false)) {
            let parent = shown(&base_path);
            let problem = format!("is committed to its parent {parent} only, and not to {}: {CONVERT}", shown(base));
            return Err(unusable(path, problem));
        }
        let top_file = Arc::new(WritableFile::new(file.try_clone().map_err(failed)?, read.length_bytes(), true, false));
        let parent_id = number(&read, &top_file, parent_id_at)?;
        let base_read = ImageFile::of(&base_file, &base_path)?;
        let base_handle = base_file.try_clone().map_err(failed)?;
        let base_handle = Arc::new(WritableFile::new(base_handle, base_read.length_bytes(), true, false));
        let of_base = Numbers::of(&base_read, Some(CONVERT))?;
        let base_id = number(&base_read, &base_handle, of_base.id_at)?;
        let next = successor(of_base.id, id);

        let options = FileOptions { engine: Engine::Sync, ..FileOptions::default() };
        let mut files = ChainFiles::behind(1);
        let (image, to_change) = chain::open_in(base_file, &base_path, VMDK, &options, allowed, &mut files)?;
        let Some(mut to_change) = to_change else {
            return Err(unusable(&base_path, format!("is a VMDK of which nothing may be written: {CONVERT}")));
        };
        // Half a commit would change its number, for those which are differences from it, too.
        if !image.is_writable() {
            return Err(unusable(&base_path, format!("has parts that may not be written: {CONVERT}")));
        }
        to_change.written.content_id.becomes(next);
        let parent_of_base = to_change.written.content_id.parent();
        let base = BlockMapDisk::of(image, Some(to_change), &base_path, files.only_read())?;
        let tables = UncheckedTables::new(read.written(Arc::clone(&top_file)), top_file, map);
        let checked = tables.check(&AtomicBool::new(false));
        let tables = checked.map_err(|problem| unusable(path, format!("{problem}: {CONVERT}")))?;
        let options = FileOptions { read_only: true, lock: false, ..options };
        let top = BlockMapDisk::open_in(file, path, VMDK, &options, allowed)?;
        let [size_bytes, base_bytes] = [&top, &base].map(|disk| disk.geometry().capacity_bytes);
        if base_bytes < size_bytes {
            let problem = format!("has {size_bytes} bytes, more than its parent with {base_bytes}: {CONVERT}");
            return Err(unusable(path, problem));
        }
        Ok(Self { path: path.to_owned(), top, tables, parent_id, base, base_path, parent_of_base, base_id, id: next })
    }

    /// The file that the difference is folded into.
    pub fn base_path(&self) -> &Path {
        &self.base_path
    }

    /// Size of the disk.
    pub fn capacity_bytes(&self) -> u64 {
        self.top.geometry().capacity_bytes
    }

    /// Writes what the difference holds to its parent, on stable storage. `goes_on` hears where on the disk it is and
    /// how many bytes of data it has written, and says whether to go on. Nothing is lost when this fails, and it can be
    /// done again.
    ///
    /// # Errors
    /// When one of the disks fails, and when it is not to go on.
    pub fn fold(&self, goes_on: &mut dyn FnMut(u64, u64) -> bool) -> Result<u64, FoldError> {
        let mut reader = Reader::default();
        let image = self.top.worker.image();
        let mut own = |range: Range<u64>| own_of_top(image, range, &mut reader.slice);
        let (mut at, end) = (0, self.capacity_bytes());
        while at < end {
            let (length_bytes, is_own) = own(at..end).map_err(FoldError::Top)?;
            if is_own {
                break;
            }
            at += length_bytes;
        }
        if at >= end {
            return Ok(0);
        }
        self.parent_id.write(self.id).map_err(FoldError::Top)?;
        if let Some((number, id)) = &self.parent_of_base {
            number.write(*id).map_err(FoldError::Base)?;
        }
        self.base_id.write(self.id).map_err(FoldError::Base)?;
        fold(&self.top, own, &self.base, goes_on)
    }

    /// Empties the difference, which shows what its parent holds then.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn empty(self) -> Result<(), ImageError> {
        let Self { path, top, base, mut tables, .. } = self;
        drop((top, base));
        tables.empty().map_err(|source| ImageError::System { action: "empty", path, source })
    }
}

/// Of how many of the first bytes of a range the top image says something, or does not; and which of the two.
fn own_of_top(image: &Image, range: Range<u64>, buffer: &mut SliceBuffer) -> io::Result<(u64, bool)> {
    let length = range.end - range.start;
    // Padding has no place in an image.
    let Some(piece) = image.top_piece(range.start) else { return Ok((length, false)) };
    let length = length.min(piece.end_bytes - range.start);
    let Storage::Mapped { layer } = piece.storage else { return Ok((length, true)) };
    let (own, length) = image.own_loaded(layer, range.start - piece.start_bytes, length, buffer, &mut 0)?;
    Ok((length, own != Meaning::Nothing))
}

/// A number that a commit makes another one.
fn number(read: &ImageFile, file: &Arc<WritableFile>, place: Option<Place>) -> Result<Number, ImageError> {
    // What lies in two sectors may be cut in two.
    let is_whole = |&(at, digits): &Place| digits >= DIGITS_MIN && at / 512 == (at + u64::from(digits) - 1) / 512;
    let problem = "does not say the CID that changes once, in a sector and with six digits at least";
    let place = place.filter(is_whole).ok_or_else(|| read.unusable(format!("{problem}: {CONVERT}")))?;
    Ok(Number::new(Arc::clone(file), place))
}
