//! All of what [`Disk::extents`] says of a range.

use crate::{Disk, Extent};
use std::io;
use std::ops::Range;

/// The extents of a range, one after the other; each is asked for when it is its turn. Nothing follows an error.
pub fn walk_extents(disk: &dyn Disk, range: Range<u64>) -> impl Iterator<Item = io::Result<Extent>> + '_ {
    let mut rest = range;
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let found = disk.extents(rest.clone()).and_then(|extent| match extent.length_bytes {
            0 => Err(io::Error::other("the disk does not say what is where")),
            _ => Ok(extent),
        });
        rest.start = found.as_ref().map_or(rest.end, |extent| extent.offset_bytes.saturating_add(extent.length_bytes));
        Some(found)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{ExtentKind, FileDisk, FileOptions, layers::layer};
    use std::os::unix::fs::FileExt;

    #[test]
    fn extents_follow_one_another_to_the_end_of_the_range() {
        let file = tempfile::tempfile().unwrap();
        file.set_len(1 << 20).unwrap();
        file.write_all_at(&[1; 65536], 65536).unwrap();
        let disk = FileDisk::from_file(file, &FileOptions::default()).unwrap();
        let found: Vec<_> = walk_extents(&disk, 4096..(1 << 20) - 4096).map(Result::unwrap).collect();
        let extent = |offset_bytes, length_bytes, kind| Extent { offset_bytes, length_bytes, kind };
        let (hole, data) = (ExtentKind::Hole, ExtentKind::Data);
        let rest = (1 << 20) - 4096 - 131_072;
        assert_eq!(found, [extent(4096, 61440, hole), extent(65536, 65536, data), extent(131_072, rest, hole)]);
        assert!(walk_extents(&disk, 4096..4096).next().is_none());
    }

    /// A disk that knows nothing, or fails.
    struct Odd(FileDisk, bool);

    impl layer::DiskLayer for Odd {
        fn below(&self) -> &dyn Disk {
            &self.0
        }

        fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
            let extent = Extent { offset_bytes: range.start, length_bytes: 0, kind: ExtentKind::Data };
            if self.1 { Err(io::Error::other("no")) } else { Ok(extent) }
        }
    }

    #[test]
    fn an_answer_that_leads_nowhere_is_the_last() {
        for fails in [false, true] {
            let file = tempfile::tempfile().unwrap();
            file.set_len(4096).unwrap();
            let disk = Odd(FileDisk::from_file(file, &FileOptions::default()).unwrap(), fails);
            let found: Vec<_> = walk_extents(&disk, 0..4096).collect();
            assert!(found.len() == 1 && found[0].is_err());
        }
    }
}
