//! The bitmaps of an image that are kept while it is written to.
//!
//! Before the first change they are marked in the file as being in use, stably: whoever finds them so after a kill or a
//! power cut knows that they say nothing. When the image is closed, what was written is set in each, and the mark goes
//! once that is stable. Those that are disabled say what they said, whatever is written.

use super::bitmaps::{self, Bitmap, FLAGS_AT, IN_USE};
use super::dirty_bits::DirtyBits;
use super::header::Header;
use super::metadata::Metadata;
use crate::formats::WritableFile;
use std::io;

pub(super) struct KeptBitmaps {
    header: Header,
    state: State,
}

#[derive(Debug)]
enum State {
    Untouched,
    /// These are to be marked, each with where its entry lies. Some are, if that failed.
    Found(Vec<(Bitmap, u64)>),
    /// These are in use, by us.
    InUse(Vec<(Bitmap, u64)>),
    Stored,
}

impl KeptBitmaps {
    /// Of an image that is opened for writing, and what has to be remembered for them.
    pub(super) fn of(file: &WritableFile, header: &Header) -> io::Result<Option<(Self, DirtyBits)>> {
        let mut finest = None;
        let mut see = |bitmap: &Bitmap| {
            // What cannot be kept is marked, too.
            let granularity_bits = if is_usable(bitmap, header) { bitmap.granularity_bits } else { u8::MAX };
            finest = Some(finest.unwrap_or(u8::MAX).min(granularity_bits));
        };
        let directory = bitmaps::walk(file, header, |bitmap, _| {
            if is_kept(&bitmap) {
                see(&bitmap)
            }
        })?;
        // The check before the first change refuses the image.
        let finest = finest.filter(|_| directory.flaw.is_none());
        Ok(finest.map(|finest| {
            let this = Self { header: header.clone(), state: State::Untouched };
            (this, DirtyBits::new(header.size_bytes, finest.min(bitmaps::GRANULARITY_MAX_BITS)))
        }))
    }

    /// Marks them, unless they are.
    ///
    /// # Errors
    /// When the image cannot be read or written. Nothing may be changed then.
    pub(super) fn begin(&mut self, file: &WritableFile) -> io::Result<()> {
        if matches!(self.state, State::Untouched) {
            let mut kept = bitmaps::bitmaps(file, &self.header)?;
            kept.retain(|(bitmap, _)| is_kept(bitmap));
            self.state = State::Found(kept);
        }
        let State::Found(kept) = &mut self.state else { return Ok(()) };
        for (bitmap, at) in &*kept {
            file.write(&(bitmap.flags | IN_USE).to_be_bytes(), at + FLAGS_AT as u64)?;
        }
        file.barrier()?;
        self.state = State::InUse(std::mem::take(kept));
        Ok(())
    }

    /// Stores what was written, and takes the marks away. Nothing is changed afterwards.
    ///
    /// # Errors
    /// When the image has no room for it, or cannot be read or written. Then they stay marked.
    pub(super) fn end(&mut self, metadata: &mut Metadata, dirty: &DirtyBits) -> io::Result<()> {
        let state = std::mem::replace(&mut self.state, State::Stored);
        let (State::Found(kept) | State::InUse(kept)) = state else { return Ok(()) };
        metadata.store_bitmaps(kept.iter().filter(|(bitmap, _)| is_usable(bitmap, &self.header)), dirty)
    }
}

fn is_kept(bitmap: &Bitmap) -> bool {
    bitmap.is_auto() && !bitmap.is_in_use()
}

fn is_usable(bitmap: &Bitmap, header: &Header) -> bool {
    bitmap.usable(header.size_bytes, header.cluster_bytes()).is_ok()
}
