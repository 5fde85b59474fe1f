//! Rebuilding what a disk may hold after a power cut.

use super::{Change, Event, Recording};
use crate::layers::random::Random;
use std::fs::File;
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;

/// What a disk's contents are rebuilt in: a vector of bytes, a file.
pub trait Image {
    /// Fills `bytes` from `offset_bytes`.
    ///
    /// # Errors
    /// When the image does not reach that far or cannot be read.
    fn read_at(&self, offset_bytes: u64, bytes: &mut [u8]) -> io::Result<()>;

    /// Puts `bytes` at `offset_bytes`.
    ///
    /// # Errors
    /// When the image does not reach that far or cannot be written.
    fn write_at(&mut self, offset_bytes: u64, bytes: &[u8]) -> io::Result<()>;
}

impl Image for Vec<u8> {
    fn read_at(&self, offset_bytes: u64, bytes: &mut [u8]) -> io::Result<()> {
        let range = range_of(self, offset_bytes, bytes.len())?;
        bytes.copy_from_slice(&self[range]);
        Ok(())
    }

    fn write_at(&mut self, offset_bytes: u64, bytes: &[u8]) -> io::Result<()> {
        let range = range_of(self, offset_bytes, bytes.len())?;
        self[range].copy_from_slice(bytes);
        Ok(())
    }
}

fn range_of(image: &[u8], offset_bytes: u64, length: usize) -> io::Result<Range<usize>> {
    let start = usize::try_from(offset_bytes).ok();
    let range = start.and_then(|start| Some(start..start.checked_add(length)?));
    range.filter(|range| range.end <= image.len()).ok_or_else(|| {
        io::Error::new(
            io::ErrorKind::UnexpectedEof,
            format!("{length} bytes at {offset_bytes} reach past the image's {} bytes", image.len()),
        )
    })
}

impl Image for File {
    fn read_at(&self, offset_bytes: u64, bytes: &mut [u8]) -> io::Result<()> {
        self.read_exact_at(bytes, offset_bytes)
    }

    fn write_at(&mut self, offset_bytes: u64, bytes: &[u8]) -> io::Result<()> {
        self.write_all_at(bytes, offset_bytes)
    }
}

/// Plays a recording and cuts the power at ascending places.
///
/// What is certain after a cut: every write that succeeded before a flush was issued which succeeded before the cut,
/// and every write with forced unit access that succeeded before the cut. Of the others that were issued before the
/// cut, failed ones too, any may be there, or not, or be torn at a block's boundary, each by chance; so a block holds
/// what is certain or any later write to it, whatever the order in which the disk took them. A discard counts as a
/// zeroing. Of writes to the same place that were in flight at once, the one issued later wins.
///
/// The image holds what is certain; what a cut adds is taken back at the next one, so a cut costs what was not flushed
/// and not the whole image.
pub struct Replay<'r, I> {
    recording: &'r Recording,
    image: I,
    /// Events that were played.
    position: usize,
    /// In the order of issue.
    volatile: Vec<Volatile>,
    /// What the image held before the last cut's uncertain writes.
    undo: Vec<(u64, Vec<u8>)>,
}

/// A change that a power cut may undo.
struct Volatile {
    issued: usize,
    /// Event of its success.
    succeeded: Option<usize>,
    range: Range<u64>,
    /// What a later write that is certain already has taken its place in.
    superseded: Vec<Range<u64>>,
}

/// How the power cut treats what is uncertain.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Mercy {
    All,
    None,
    Some,
}

/// More pieces than this are not cut out of one zeroing: a discard of a whole disk has millions of blocks.
const PIECES_MAX: u64 = 1024;

/// Zeros are written this many at a time.
static ZEROS: [u8; 65536] = [0; 65536];

impl<'r, I: Image> Replay<'r, I> {
    /// `image` is what the disk held when the log began, and as large as the disk.
    pub fn new(recording: &'r Recording, image: I) -> Self {
        Self { recording, image, position: 0, volatile: Vec::new(), undo: Vec::new() }
    }

    /// The image as the disk may be found when power fails behind the first `events` events. The same seed makes the
    /// same choices. Look at the image or copy it; what changes it spoils the cuts to come.
    ///
    /// # Errors
    /// When `events` is less than the time before, or the image fails.
    pub fn cut(&mut self, events: usize, seed: u64) -> io::Result<&I> {
        let mut random = Random::new(seed);
        let mercy = match random.below(8) {
            0 => Mercy::All,
            1 => Mercy::None,
            _ => Mercy::Some,
        };
        self.cut_keeping(events, |blocks| survivors(blocks, mercy, &mut random))
    }

    /// The same, where `keeps` chooses: it is shown the blocks of each change that is uncertain, in the order of issue,
    /// and says which of them are there.
    ///
    /// # Errors
    /// As [`Replay::cut`].
    pub fn cut_keeping(
        &mut self,
        events: usize,
        keeps: impl FnMut(&[Range<u64>]) -> Vec<Range<u64>>,
    ) -> io::Result<&I> {
        if events < self.position {
            let message = format!("a cut behind {events} events after one behind {}", self.position);
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        while let Some((offset_bytes, bytes)) = self.undo.pop() {
            self.image.write_at(offset_bytes, &bytes)?;
        }
        while self.position < events.min(self.recording.events.len()) {
            self.play(self.position)?;
            self.position += 1;
        }
        self.add_uncertain(keeps)?;
        Ok(&self.image)
    }

    fn play(&mut self, index: usize) -> io::Result<()> {
        match &self.recording.events[index] {
            Event::Issued(change) => {
                if let Some(range) = change.range() {
                    self.volatile.push(Volatile { issued: index, succeeded: None, range, superseded: Vec::new() });
                }
                Ok(())
            }
            Event::Completed { succeeded: false, .. } => Ok(()),
            &Event::Completed { issued, succeeded: true } => match self.recording.change(issued) {
                Some(Change::Flush { range }) => self.make_certain(|volatile| {
                    range.contains(&volatile.range.start) && volatile.succeeded.is_some_and(|at| at < issued)
                }),
                Some(Change::Write { force_unit_access: true, .. }) => {
                    self.make_certain(|volatile| volatile.issued == issued)
                }
                _ => {
                    let found = self.volatile.iter_mut().find(|volatile| volatile.issued == issued);
                    found.into_iter().for_each(|volatile| volatile.succeeded = Some(index));
                    Ok(())
                }
            },
        }
    }

    fn make_certain(&mut self, chosen: impl Fn(&Volatile) -> bool) -> io::Result<()> {
        let (certain, rest): (Vec<_>, Vec<_>) = std::mem::take(&mut self.volatile).into_iter().partition(chosen);
        self.volatile = rest;
        for volatile in certain {
            for piece in volatile.pieces(volatile.range.clone()) {
                write(&mut self.image, self.recording.change(volatile.issued), volatile.range.start, piece)?;
            }
            for earlier in self.volatile.iter_mut().filter(|earlier| earlier.issued < volatile.issued) {
                earlier.supersede(&volatile.range);
            }
        }
        Ok(())
    }

    fn add_uncertain(&mut self, mut keeps: impl FnMut(&[Range<u64>]) -> Vec<Range<u64>>) -> io::Result<()> {
        for index in 0..self.volatile.len() {
            let range = self.volatile[index].range.clone();
            let blocks = block_pieces(&range, self.recording.block_bytes);
            for kept in keeps(&blocks) {
                for piece in self.volatile[index].pieces(kept) {
                    self.add_piece(self.volatile[index].issued, range.start, piece)?;
                }
            }
        }
        Ok(())
    }

    /// Writes one piece of a change, and remembers what was there.
    fn add_piece(&mut self, issued: usize, start: u64, piece: Range<u64>) -> io::Result<()> {
        let mut before = vec![0; (piece.end - piece.start) as usize];
        self.image.read_at(piece.start, &mut before)?;
        self.undo.push((piece.start, before));
        write(&mut self.image, self.recording.change(issued), start, piece)
    }
}

/// Writes `piece` of a change that starts at `start`.
fn write<I: Image>(image: &mut I, change: Option<&Change>, start: u64, piece: Range<u64>) -> io::Result<()> {
    if let Some(Change::Write { data, .. }) = change {
        return image.write_at(piece.start, &data[(piece.start - start) as usize..(piece.end - start) as usize]);
    }
    let mut offset_bytes = piece.start;
    while offset_bytes < piece.end {
        let length = (piece.end - offset_bytes).min(ZEROS.len() as u64);
        image.write_at(offset_bytes, &ZEROS[..length as usize])?;
        offset_bytes += length;
    }
    Ok(())
}

impl Recording {
    fn change(&self, issued: usize) -> Option<&Change> {
        match self.events.get(issued)? {
            Event::Issued(change) => Some(change),
            Event::Completed { .. } => None,
        }
    }
}

impl Change {
    /// What it changes; `None` for nothing.
    pub(super) fn range(&self) -> Option<Range<u64>> {
        match self {
            Self::Write { offset_bytes, data, .. } => Some(*offset_bytes..offset_bytes + data.len() as u64),
            Self::Zero { range } => Some(range.clone()),
            Self::Flush { .. } => None,
        }
    }
}

impl Volatile {
    fn supersede(&mut self, range: &Range<u64>) {
        if range.start < self.range.end && self.range.start < range.end {
            self.superseded.push(range.clone());
        }
    }

    /// What of `range` is not superseded.
    fn pieces(&self, range: Range<u64>) -> Vec<Range<u64>> {
        self.superseded.iter().fold(vec![range], |pieces, gone| {
            let left = pieces.into_iter().flat_map(|piece| {
                let before = piece.start..piece.end.min(gone.start.max(piece.start));
                let behind = piece.start.max(gone.end.min(piece.end))..piece.end;
                [before, behind]
            });
            left.filter(|piece| !piece.is_empty()).collect()
        })
    }
}

/// The range at the boundaries of blocks; where those are very many, of several blocks each.
pub(super) fn block_pieces(range: &Range<u64>, block_bytes: u64) -> Vec<Range<u64>> {
    let blocks = (range.end - range.start).div_ceil(block_bytes);
    let piece_bytes = blocks.div_ceil(PIECES_MAX).max(1) * block_bytes;
    let mut pieces = Vec::new();
    let mut start = range.start;
    while start < range.end {
        let end = (start - start % block_bytes).saturating_add(piece_bytes).min(range.end);
        pieces.push(start..end);
        start = end;
    }
    pieces
}

/// Which of a change's blocks reached the disk: all, none, the first few or any.
fn survivors(blocks: &[Range<u64>], mercy: Mercy, random: &mut Random) -> Vec<Range<u64>> {
    let fate = match mercy {
        Mercy::All => 0,
        Mercy::None => 1,
        Mercy::Some => random.below(4),
    };
    match fate {
        0 => blocks.to_vec(),
        1 => Vec::new(),
        2 => blocks[..random.below(blocks.len() as u64 + 1) as usize].to_vec(),
        _ => blocks.iter().filter(|_| random.below(2) == 0).cloned().collect(),
    }
}
