//! SHA-256 of the bytes of an image's file, and of what its disk holds.

use super::{Told, check};
use crate::Watch;
use crate::error::{Context, Result, refuse};
use blockyard_block::specification::Format;
use blockyard_block::{
    BlockMapFormat, BlockMapInfo, Disk, DiskReader, ExtentKind, FileFormat, OpenedFile, Qcow2Info, VmdkInfo, printable,
    shown, walk_extents,
};
use sha2::{Digest as _, Sha256};
use std::fmt;
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::str::FromStr;

/// Bytes that are read at once.
const PIECE_BYTES: usize = 1 << 20;

/// A SHA-256 digest, written as 64 hexadecimal digits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Digest([u8; 32]);

impl fmt::Display for Digest {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(formatter, "{byte:02x}"))
    }
}

impl From<Sha256> for Digest {
    fn from(hasher: Sha256) -> Self {
        Self(hasher.finalize().into())
    }
}

impl FromStr for Digest {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let digits = text.as_bytes();
        let mut digest = [0; 32];
        let is_whole = digits.len() == 2 * digest.len() && digits.iter().all(u8::is_ascii_hexdigit);
        let problem = || format!("'{text}' is no SHA-256 digest: 64 hexadecimal digits");
        if !is_whole {
            return Err(problem());
        }
        for (byte, pair) in digest.iter_mut().zip(text.as_bytes().chunks(2)) {
            let pair = std::str::from_utf8(pair).map_err(|_| problem())?;
            *byte = u8::from_str_radix(pair, 16).map_err(|_| problem())?;
        }
        Ok(Self(digest))
    }
}

/// A file that is to have these bytes, and no others until it has been used.
#[derive(Debug)]
pub struct ExpectedFile {
    file: OpenedFile,
    digest: Digest,
    /// Of the time before anything of it was read.
    stamp: Stamp,
}

/// A file that had these bytes.
#[derive(Debug)]
pub(super) struct CheckedFile {
    file: OpenedFile,
    stamp: Stamp,
}

/// What of a file changes when it is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Stamp {
    length_bytes: u64,
    changed: [i64; 4],
}

impl ExpectedFile {
    /// A file that nobody has read yet: the one to use it as what it is.
    ///
    /// # Errors
    /// When it cannot be looked at.
    pub fn new(file: OpenedFile, digest: Digest) -> Result<Self> {
        let stamp = Stamp::of(&file)?;
        Ok(Self { file, digest, stamp })
    }

    /// The file, to be used.
    pub fn file(&self) -> &OpenedFile {
        &self.file
    }

    /// Makes sure that the disk has no bytes in other files, of which the digest says nothing. `image`: what was opened
    /// as the disk, which may have been compressed in the file. `format`: what it is said to be; else it is what it
    /// looks like.
    ///
    /// # Errors
    /// When it refers to another file, or cannot be read.
    pub fn is_alone(&self, image: &OpenedFile, format: Option<Format>) -> Result<()> {
        let name = shown(self.file.path());
        let format = match format {
            None => {
                let seen = FileFormat::of_file(image.file()).with_context(|| format!("cannot read {name}"))?;
                seen.flatten().and_then(|seen| seen.word.parse().ok())
            }
            said => said,
        };
        let other = match format {
            Some(Format::Qcow2) => {
                let info = Qcow2Info::of_opened(image)?;
                info.data_file.or(info.backing_name)
            }
            Some(Format::BlockMap(BlockMapFormat::Vmdk)) => {
                let info = VmdkInfo::of(image)?;
                info.extents.into_iter().find_map(|extent| extent.name).or(info.parent)
            }
            Some(Format::BlockMap(format)) => BlockMapInfo::of(image, format)?.parent,
            Some(Format::Raw | Format::Luks | Format::Ova) | None => None,
        };
        match other {
            None => Ok(()),
            Some(other) => {
                let other: String = printable(&other).chars().take(100).collect();
                refuse!(
                    "{name} has bytes of its disk in another file, {other}, of which --sha256 says nothing: leave it \
                     out, or convert the image to one file first"
                )
            }
        }
    }

    /// Reads all of it.
    ///
    /// # Errors
    /// When it has other bytes, or cannot be read.
    pub(super) fn check(self, watch: &dyn Watch) -> Result<CheckedFile> {
        let Self { file, digest, stamp } = self;
        let name = shown(file.path()).to_string();
        let failed = || format!("cannot read {name}");
        let told = Told { watch, length_bytes: stamp.length_bytes };
        let (mut hasher, mut bytes, mut at) = (Sha256::new(), vec![0; PIECE_BYTES], 0);
        loop {
            let count = match file.file().read_at(&mut bytes, at) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                read => read.with_context(failed)?,
            };
            if count == 0 {
                break;
            }
            hasher.update(&bytes[..count]);
            at += count as u64;
            told.goes_on(at.min(told.length_bytes), at);
            check(watch)?;
        }
        let found = Digest::from(hasher);
        if found != digest {
            refuse!("{name} has the SHA-256 digest {found}, not {digest}: it is another file, or was changed");
        }
        let checked = CheckedFile { file, stamp };
        // Its headers were read before this.
        checked.is_unchanged()?;
        Ok(checked)
    }
}

impl CheckedFile {
    /// Fails where it was written to since.
    pub(super) fn is_unchanged(&self) -> Result<()> {
        if Stamp::of(&self.file)? != self.stamp {
            refuse!("{} was changed while it was read", shown(self.file.path()));
        }
        Ok(())
    }
}

impl Stamp {
    fn of(file: &OpenedFile) -> Result<Self> {
        let metadata = file.file().metadata().with_context(|| format!("cannot look at {}", shown(file.path())))?;
        let changed = [metadata.mtime(), metadata.mtime_nsec(), metadata.ctime(), metadata.ctime_nsec()];
        Ok(Self { length_bytes: metadata.len(), changed })
    }
}

/// Of what a disk holds, from its first byte to its last.
pub(super) fn of_contents(disk: &dyn Disk, watch: &dyn Watch) -> Result<Digest> {
    static ZEROS: [u8; 64 << 10] = [0; 64 << 10];
    let length_bytes = disk.geometry().capacity_bytes;
    let told = Told { watch, length_bytes };
    let (mut reader, mut hasher, mut bytes) = (DiskReader::new(disk)?, Sha256::new(), vec![0; PIECE_BYTES]);
    let mut data_bytes = 0;
    for extent in walk_extents(disk, 0..length_bytes) {
        let extent = extent?;
        let end = extent.offset_bytes + extent.length_bytes;
        let mut at = extent.offset_bytes;
        while at < end {
            let count = (end - at).min(PIECE_BYTES as u64);
            if extent.kind == ExtentKind::Data {
                let piece = &mut bytes[..count as usize];
                reader.read(at, piece).with_context(|| format!("cannot read the source at byte {at}"))?;
                hasher.update(piece);
                data_bytes += count;
            } else {
                let mut left = count as usize;
                while left > 0 {
                    let zeros = &ZEROS[..left.min(ZEROS.len())];
                    hasher.update(zeros);
                    left -= zeros.len();
                }
            }
            at += count;
            told.goes_on(at, data_bytes);
            check(watch)?;
        }
    }
    Ok(Digest::from(hasher))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Nobody;
    use blockyard_block::{MemoryDisk, write_bytes};

    #[test]
    fn digests_are_64_digits() {
        let text = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855";
        assert_eq!(text.parse::<Digest>().unwrap().to_string(), text);
        assert_eq!(text.to_uppercase().parse::<Digest>().unwrap().to_string(), text);
        for wrong in ["", &text[1..], &format!("{text}0"), &text.replace('e', "g"), &text.replace("e3", "é")] {
            assert!(wrong.parse::<Digest>().unwrap_err().contains("64 hexadecimal"), "{wrong}");
        }
    }

    #[test]
    fn holes_are_zeros() {
        let disk = MemoryDisk::new(5 << 20, 512).unwrap();
        write_bytes(&disk, (2 << 20) + 512, &[7; 512]).unwrap();
        let mut contents = vec![0; 5 << 20];
        contents[(2 << 20) + 512..][..512].fill(7);
        assert_eq!(of_contents(&disk, &Nobody).unwrap(), Digest(Sha256::digest(&contents).into()));
    }
}
