//! Changes of an image that is written to, as its one thread makes them.
//!
//! What is there is written in its place. A grain that is not there is put at its file's end, with what shows around
//! what is written to it. Zeros keep their grain, whose storage the file gives back.

use super::image::Image;
use super::layer::{Meaning, SLICE_WORDS};
use super::level::{Piece, Storage};
use super::reader::Reader;
use super::vmdk::{ContentId, GrainTables};
use crate::formats::WritableFile;
use rustix::io::Errno;
use std::collections::BTreeMap;
use std::io;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Zeros to write.
const ZEROS: &[u8] = &[0; 64 << 10];

/// How a range becomes zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zeroing {
    /// It need not, and keeps no storage.
    Discard,
    /// It keeps no storage.
    Unmap,
    /// It keeps its storage.
    Keep,
}

/// What an image is written to by.
pub(super) struct Written {
    /// By index below: the files that may be changed.
    pub(super) files: BTreeMap<usize, Arc<WritableFile>>,
    pub(super) content_id: ContentId,
}

/// What is being changed.
pub(super) struct Changes {
    written: Written,
    /// By layer.
    tables: BTreeMap<usize, GrainTables>,
    has_begun: bool,
    assembled: Vec<u8>,
}

impl Changes {
    /// `tables`: of the layers that may be changed, which are in order.
    pub(super) fn new(written: Written, tables: BTreeMap<usize, GrainTables>) -> Self {
        Self { written, tables, has_begun: false, assembled: Vec::new() }
    }

    /// Says of the image that it is changed, before what it holds is. What changes nothing does not come here.
    pub(super) fn begin(&mut self) -> io::Result<()> {
        if !self.has_begun {
            self.written.content_id.change()?;
            self.tables.values_mut().try_for_each(GrainTables::begin)?;
            self.has_begun = true;
        }
        Ok(())
    }

    /// Whether that has been said, so that others may change it, too.
    pub(super) fn has_begun(&self) -> bool {
        self.has_begun
    }

    /// Writes what changed to the tables, where queues find it then. `wants_stable`: all that was changed is stable.
    ///
    /// # Errors
    /// When a file fails. What could not be written is with the next.
    pub(super) fn settle(&mut self, image: &Image, reader: &mut Reader, wants_stable: bool) -> io::Result<()> {
        for (&layer, tables) in &mut self.tables {
            tables.prepare()?;
            let _held = image.hold_tables();
            let mut last = None;
            for grain in tables.write_entries()? {
                let slice = grain / SLICE_WORDS as u64;
                if last.replace(slice) != Some(slice) {
                    image.refresh(layer, slice, &mut reader.slice);
                }
            }
        }
        if wants_stable {
            self.written.files.values().try_for_each(|file| file.sync())?;
            self.tables.values_mut().for_each(GrainTables::set_stable);
            // Only this thread makes anything unstable.
            image.is_unstable.store(false, Ordering::SeqCst);
        }
        Ok(())
    }

    /// Says that the image is closed.
    ///
    /// # Errors
    /// When a file fails.
    pub(super) fn close(&mut self, image: &Image, reader: &mut Reader) -> io::Result<()> {
        // Where there are no tables, nothing has changed that is not where it belongs.
        if self.has_begun && !self.tables.is_empty() {
            self.settle(image, reader, true)?;
        }
        self.tables.values_mut().try_for_each(GrainTables::end)
    }

    /// Writes bytes from an offset of the disk on.
    ///
    /// # Errors
    /// When a file fails, the image is damaged there, or nobody may write there.
    pub(super) fn write(&mut self, image: &Image, reader: &mut Reader, offset: u64, bytes: &[u8]) -> io::Result<()> {
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let Some(piece) = image.top_piece(at) else {
                // Padding, which has no place in an image.
                let is_padding = rest.iter().all(|&byte| byte == 0);
                return if is_padding { Ok(()) } else { Err(Errno::NOSPC.into()) };
            };
            let length = (piece.end_bytes - at).min(rest.len() as u64);
            let (now, later) = rest.split_at(length as usize);
            match changed_storage(&piece)? {
                Storage::Flat { index, offset_bytes } => {
                    self.begin()?;
                    self.file(index)?.write(now, offset_bytes + (at - piece.start_bytes))?;
                }
                Storage::Mapped { layer } => self.write_grains(image, reader, (layer, &piece), at, now)?,
                Storage::Zeros | Storage::Forbidden => return Err(Errno::ROFS.into()),
            }
            (at, rest) = (at + length, later);
        }
        Ok(())
    }

    fn write_grains(
        &mut self,
        image: &Image,
        reader: &mut Reader,
        (layer, piece): (usize, &Piece),
        offset: u64,
        bytes: &[u8],
    ) -> io::Result<()> {
        let (mut at, mut rest) = (offset, bytes);
        while !rest.is_empty() {
            let within = at - piece.start_bytes;
            let (own, length) = self.own(image, reader, layer, within, rest.len() as u64)?;
            match own {
                Meaning::There { offset_bytes } => {
                    let (now, later) = rest.split_at(length as usize);
                    self.begin()?;
                    self.tables(layer)?.file().write(now, offset_bytes)?;
                    (at, rest) = (at + length, later);
                }
                Meaning::Nothing | Meaning::Zeros => {
                    let grain_bytes = image.layer(layer).ok_or(Errno::IO)?.shape.block_bytes;
                    let length = (grain_bytes - within % grain_bytes).min(rest.len() as u64);
                    let (now, later) = rest.split_at(length as usize);
                    let shows = own == Meaning::Nothing;
                    self.write_new_grain(image, reader, (layer, piece), (within, now), shows)?;
                    (at, rest) = (at + length, later);
                }
                Meaning::Partly { .. } | Meaning::Compressed { .. } | Meaning::Damaged(_) => {
                    return Err(Errno::IO.into());
                }
            }
        }
        Ok(())
    }

    /// Writes bytes from an offset of a layer's disk on to a grain that has no place. `shows`: where the image has
    /// nothing, what is behind it does.
    fn write_new_grain(
        &mut self,
        image: &Image,
        reader: &mut Reader,
        (layer, piece): (usize, &Piece),
        (within, bytes): (u64, &[u8]),
        shows: bool,
    ) -> io::Result<()> {
        let grain_bytes = image.layer(layer).ok_or(Errno::IO)?.shape.block_bytes;
        let grain = within / grain_bytes;
        let start = piece.start_bytes + grain * grain_bytes;
        // Header and check bound a grain to 2 MiB.
        let used = (piece.end_bytes - start).min(grain_bytes) as usize;
        let skipped = (within % grain_bytes) as usize;
        let shows = shows && image.zeros_behind(start, used as u64, &mut reader.slice)? < used as u64;
        let (place, is_fresh) = self.tables(layer)?.allocate()?;
        let written = if shows || !is_fresh {
            let mut assembled = std::mem::take(&mut self.assembled);
            assembled.clear();
            assembled.resize(used, 0);
            let whole = self.assemble(image, reader, start, shows, (skipped, bytes), &mut assembled);
            let written = whole.and_then(|()| self.tables(layer)?.file().write(&assembled, place));
            self.assembled = assembled;
            written
        } else {
            self.tables(layer)?.file().write(bytes, place + skipped as u64)
        };
        // Nothing leads there yet: what fails up to here changes nothing.
        let written = written.and_then(|()| self.begin());
        let tables = self.tables(layer)?;
        match written {
            Ok(()) => tables.set(grain, place, shows || !is_fresh),
            Err(_) => tables.give_back(place),
        }
        written
    }

    /// Makes what a grain is to hold: what shows there, if something does, and `bytes` behind the first ones.
    fn assemble(
        &self,
        image: &Image,
        reader: &mut Reader,
        start: u64,
        shows: bool,
        (skipped, bytes): (usize, &[u8]),
        grain: &mut [u8],
    ) -> io::Result<()> {
        let (before, rest) = grain.split_at_mut_checked(skipped).ok_or(Errno::IO)?;
        let (now, after) = rest.split_at_mut_checked(bytes.len()).ok_or(Errno::IO)?;
        if shows {
            reader.read(image, 1, start, before)?;
            reader.read(image, 1, start + (skipped + bytes.len()) as u64, after)?;
        }
        now.copy_from_slice(bytes);
        Ok(())
    }

    /// Makes a range of the disk zeros, or less.
    ///
    /// # Errors
    /// As [`Changes::write`].
    pub(super) fn zero(
        &mut self,
        image: &Image,
        reader: &mut Reader,
        (offset, length): (u64, u64),
        how: Zeroing,
    ) -> io::Result<()> {
        let (mut at, end) = (offset, offset.saturating_add(length));
        while at < end {
            // Padding is zeros.
            let Some(piece) = image.top_piece(at) else { return Ok(()) };
            let within = at - piece.start_bytes;
            let mut length = (piece.end_bytes - at).min(end - at);
            match changed_storage(&piece) {
                Err(_) if piece.storage == Storage::Zeros => {}
                Err(error) => return Err(error),
                Ok(Storage::Flat { index, offset_bytes }) => {
                    if !self.file(index)?.is_hole(offset_bytes + within, length) {
                        self.begin()?;
                    }
                    zero_in_place(self.file(index)?, offset_bytes + within, length, how)?;
                }
                Ok(Storage::Mapped { layer }) => {
                    length = self.zero_grains(image, reader, (layer, &piece), (within, length), how)?;
                }
                Ok(Storage::Zeros | Storage::Forbidden) => {}
            }
            at += length;
        }
        Ok(())
    }

    /// The same of the first bytes of a range of a layer's disk; of how many.
    fn zero_grains(
        &mut self,
        image: &Image,
        reader: &mut Reader,
        (layer, piece): (usize, &Piece),
        (within, length): (u64, u64),
        how: Zeroing,
    ) -> io::Result<u64> {
        let (own, length) = self.own(image, reader, layer, within, length)?;
        match own {
            Meaning::There { offset_bytes } => {
                if !self.tables(layer)?.file().is_hole(offset_bytes, length) {
                    self.begin()?;
                }
                zero_in_place(self.tables(layer)?.file(), offset_bytes, length, how)?;
                return Ok(length);
            }
            Meaning::Zeros => return Ok(length),
            Meaning::Nothing if how == Zeroing::Discard => return Ok(length),
            Meaning::Nothing => {}
            Meaning::Partly { .. } | Meaning::Compressed { .. } | Meaning::Damaged(_) => return Err(Errno::IO.into()),
        }
        let grain_bytes = image.layer(layer).ok_or(Errno::IO)?.shape.block_bytes;
        let (grain, skipped) = (within / grain_bytes, within % grain_bytes);
        let used = (piece.end_bytes - piece.start_bytes - grain * grain_bytes).min(grain_bytes);
        let zeros = image.zeros_behind(piece.start_bytes + within, length, &mut reader.slice)?;
        let length = length.min(used - skipped);
        if zeros < length && length == used && self.tables(layer)?.can_be_zeroed() {
            self.begin()?;
            self.tables(layer)?.set_zeroed(grain);
            return Ok(length);
        }
        if zeros > 0 {
            return Ok(zeros);
        }
        let length = length.min(ZEROS.len() as u64);
        self.write_new_grain(image, reader, (layer, piece), (within, &ZEROS[..length as usize]), true)?;
        Ok(length)
    }

    /// What a layer says of the first bytes of a range, with what is not in its file yet; and of how many.
    fn own(
        &self,
        image: &Image,
        reader: &mut Reader,
        layer: usize,
        within: u64,
        length: u64,
    ) -> io::Result<(Meaning, u64)> {
        let grain_bytes = image.layer(layer).ok_or(Errno::IO)?.shape.block_bytes;
        let (grain, skipped) = (within / grain_bytes, within % grain_bytes);
        let tables = self.tables.get(&layer).ok_or(Errno::ROFS)?;
        if let Some(changed) = tables.changed(grain) {
            let own = match changed {
                Meaning::There { offset_bytes } => Meaning::There { offset_bytes: offset_bytes + skipped },
                other => other,
            };
            return Ok((own, length.min(grain_bytes - skipped)));
        }
        let end = tables.next_changed(grain).map_or(u64::MAX, |next| next * grain_bytes);
        image.own_loaded(layer, within, length.min(end - within), &mut reader.slice, &mut 0)
    }

    fn tables(&mut self, layer: usize) -> io::Result<&mut GrainTables> {
        self.tables.get_mut(&layer).ok_or_else(|| Errno::ROFS.into())
    }

    fn file(&self, index: usize) -> io::Result<&WritableFile> {
        self.written.files.get(&index).map(|file| &**file).ok_or_else(|| Errno::ROFS.into())
    }
}

/// Where the bytes of a piece are, if it may be changed.
fn changed_storage(piece: &Piece) -> io::Result<Storage> {
    match piece.storage {
        Storage::Forbidden => Err(Errno::ACCESS.into()),
        Storage::Zeros => Err(Errno::ROFS.into()),
        storage if piece.is_writable => Ok(storage),
        _ => Err(Errno::ROFS.into()),
    }
}

pub(super) fn zero_in_place(file: &WritableFile, offset: u64, length: u64, how: Zeroing) -> io::Result<()> {
    let done = if how == Zeroing::Keep { file.zero_range(offset, length) } else { file.punch_hole(offset, length) };
    match done {
        // What this file cannot do is written, if it has to be.
        Err(error) if Errno::from_io_error(&error) == Some(Errno::OPNOTSUPP) => {}
        done => return done,
    }
    let end = if how == Zeroing::Discard { offset } else { offset + length };
    for at in (offset..end).step_by(ZEROS.len()) {
        let length = (end - at).min(ZEROS.len() as u64);
        file.write(&ZEROS[..length as usize], at)?;
    }
    Ok(())
}
