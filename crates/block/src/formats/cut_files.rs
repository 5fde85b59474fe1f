//! Files as a power cut may leave them, in memory.
//!
//! Each has its part of a log's addresses, and its length is eight bytes there, as a file system keeps it beside the
//! data: so what made a file longer may be lost as any write is, and what lies behind its end with it.

use crate::layers::Image;
use std::fs::{self, File};
use std::io;
use std::ops::Range;
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Addresses of a file in a log.
pub(super) const FILE_SPACE: u64 = 1 << 32;
/// Where in there its length is.
pub(super) const LENGTH_AT: u64 = FILE_SPACE - 512;

const SECTOR_BYTES: usize = 512;

#[derive(Clone, Default)]
pub(super) struct CutFiles {
    files: Vec<CutFile>,
}

#[derive(Clone, Default)]
struct CutFile {
    length_bytes: u64,
    /// Whole sectors.
    bytes: Vec<u8>,
    /// Of each sector; 0 for zeros.
    digests: Vec<u64>,
}

impl CutFiles {
    pub(super) fn read(paths: &[&Path]) -> Self {
        let read = |path: &&Path| {
            let bytes = fs::read(path).unwrap();
            let mut file = CutFile { length_bytes: bytes.len() as u64, ..CutFile::default() };
            file.write(0, &bytes);
            file
        };
        Self { files: paths.iter().map(read).collect() }
    }

    /// Puts the files there, in the place of what is there.
    pub(super) fn write(&self, paths: &[&Path]) {
        self.write_those(paths, |_| true);
    }

    /// Puts those of the files there that are chosen by their indices.
    pub(super) fn write_those(&self, paths: &[&Path], is_chosen: impl Fn(usize) -> bool) {
        let files = self.files.iter().zip(paths).enumerate().filter(|(index, _)| is_chosen(*index));
        for (_, (file, path)) in files {
            let to = File::create(path).unwrap();
            to.set_len(file.length_bytes).unwrap();
            for sectors in file.data() {
                let start = sectors.start * SECTOR_BYTES;
                let end = (sectors.end * SECTOR_BYTES).min(file.length_bytes as usize);
                to.write_all_at(&file.bytes[start..end], start as u64).unwrap();
            }
        }
    }

    /// Of each file, a number that says which contents it has.
    pub(super) fn digests(&self) -> Vec<u64> {
        self.files.iter().map(CutFile::digest).collect()
    }

    /// A number that says which contents they have.
    pub(super) fn digest(&self) -> u64 {
        self.files.iter().fold(0, |digest, file| mixed(digest, file.digest()))
    }

    fn file(&self, offset_bytes: u64) -> (&CutFile, u64) {
        (&self.files[(offset_bytes / FILE_SPACE) as usize], offset_bytes % FILE_SPACE)
    }
}

impl Image for CutFiles {
    fn read_at(&self, offset_bytes: u64, bytes: &mut [u8]) -> io::Result<()> {
        let (file, at) = self.file(offset_bytes);
        if at == LENGTH_AT {
            bytes.copy_from_slice(&file.length_bytes.to_be_bytes());
            return Ok(());
        }
        let there = file.bytes.get(at as usize..).unwrap_or(&[]);
        let there = &there[..there.len().min(bytes.len())];
        bytes[..there.len()].copy_from_slice(there);
        bytes[there.len()..].fill(0);
        Ok(())
    }

    fn write_at(&mut self, offset_bytes: u64, bytes: &[u8]) -> io::Result<()> {
        let (index, at) = ((offset_bytes / FILE_SPACE) as usize, offset_bytes % FILE_SPACE);
        match at {
            LENGTH_AT => self.files[index].length_bytes = u64::from_be_bytes(bytes.try_into().unwrap()),
            _ => self.files[index].write(at as usize, bytes),
        }
        Ok(())
    }
}

impl CutFile {
    fn write(&mut self, at: usize, bytes: &[u8]) {
        let end = (at + bytes.len()).next_multiple_of(SECTOR_BYTES);
        if end > self.bytes.len() {
            self.bytes.resize(end, 0);
            self.digests.resize(end / SECTOR_BYTES, 0);
        }
        self.bytes[at..at + bytes.len()].copy_from_slice(bytes);
        for sector in at / SECTOR_BYTES..end / SECTOR_BYTES {
            self.digests[sector] = digest_of(sector, &self.bytes[sector * SECTOR_BYTES..][..SECTOR_BYTES]);
        }
    }

    /// Sectors in the file.
    fn sectors(&self) -> usize {
        (self.length_bytes as usize).div_ceil(SECTOR_BYTES).min(self.digests.len())
    }

    /// Runs of sectors that are not zeros.
    fn data(&self) -> impl Iterator<Item = Range<usize>> {
        let digests = &self.digests[..self.sectors()];
        let mut at = 0;
        std::iter::from_fn(move || {
            let start = at + digests[at..].iter().position(|&digest| digest != 0)?;
            let length = digests[start..].iter().position(|&digest| digest == 0);
            at = length.map_or(digests.len(), |length| start + length);
            Some(start..at)
        })
    }

    fn digest(&self) -> u64 {
        self.digests[..self.sectors()].iter().fold(self.length_bytes, |all, digest| all ^ digest)
    }
}

fn digest_of(sector: usize, bytes: &[u8]) -> u64 {
    if bytes == [0; SECTOR_BYTES] {
        return 0;
    }
    let words = bytes.as_chunks::<8>().0.iter().map(|&word| u64::from_le_bytes(word));
    // A word that is what is mixed before it leaves 0, which is for zeros.
    words.fold(!(sector as u64), mixed).max(1)
}

pub(super) fn mixed(digest: u64, word: u64) -> u64 {
    ((digest ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15)).rotate_left(29)
}
