//! Changing the bitmaps that are inside of an image. QEMU's docs/interop/qcow2.txt, "Bitmaps".
//!
//! What is new lies in clusters that nothing refers to, until one sector of the header puts another directory in force;
//! what the old one alone led to is freed then. So a cut leaves the bitmaps as they were or as they shall be. The bits
//! of a bitmap that is in use say nothing, and are changed where they lie.

use super::Metadata;
use crate::formats::WritableFile;
use crate::formats::qcow2::bitmaps::{self, Bitmap, DIRECTORY_MAX_BYTES, FLAGS_AT, are_ones, place_of, table_entries};
use crate::formats::qcow2::dirty_bits::DirtyBits;
use crate::formats::qcow2::header::{BitmapDirectory, Header, SIZE_AT, Table};
use crate::formats::qcow2::header_change::FirstCluster;
use rustix::io::Errno;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// The bitmaps of an image, as they are to be, and what they are made of.
#[derive(Debug, Default)]
pub(in crate::formats::qcow2) struct Bitmaps {
    listed: Vec<Listed>,
    /// Clusters that nothing refers to if this does not come into force,
    allocated: Vec<Range<u64>>,
    /// and if it does.
    gone: Vec<Range<u64>>,
}

/// A bitmap, with the entries of its table if they are others than in the file.
#[derive(Debug)]
struct Listed {
    bitmap: Bitmap,
    entries: Option<Vec<u64>>,
}

/// Where bits are set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Placing {
    /// Where they lie, if they have a place.
    InPlace,
    /// In clusters of their own.
    Anew,
}

impl Bitmaps {
    pub(in crate::formats::qcow2) fn read(file: &WritableFile, header: &Header) -> io::Result<Self> {
        let listed = bitmaps::bitmaps(file, header)?.into_iter();
        let listed = listed.map(|(bitmap, _)| Listed { bitmap, entries: None }).collect();
        Ok(Self { listed, ..Self::default() })
    }

    pub(in crate::formats::qcow2) fn count(&self) -> usize {
        self.listed.len()
    }

    /// Which has that name.
    pub(in crate::formats::qcow2) fn find(&self, name: &[u8]) -> Option<usize> {
        self.listed.iter().position(|listed| listed.bitmap.name == name)
    }

    pub(in crate::formats::qcow2) fn get(&self, index: usize) -> &Bitmap {
        &self.listed[index].bitmap
    }

    pub(in crate::formats::qcow2) fn set_flags(&mut self, index: usize, flags: u32) {
        self.listed[index].bitmap.flags = flags;
    }

    /// Adds one without a bit that is set, whose table has so many entries.
    pub(in crate::formats::qcow2) fn add(&mut self, mut bitmap: Bitmap, entries: u64) {
        bitmap.table.length_bytes = entries * 8;
        self.listed.push(Listed { bitmap, entries: Some(vec![0; entries as usize]) });
    }

    pub(in crate::formats::qcow2) fn remove(
        &mut self,
        file: &WritableFile,
        header: &Header,
        index: usize,
    ) -> io::Result<()> {
        self.replace(file, header, index, Vec::new())?;
        self.listed.remove(index);
        Ok(())
    }

    /// The entries of a bitmap's table.
    pub(in crate::formats::qcow2) fn entries(&self, file: &WritableFile, index: usize) -> io::Result<Vec<u64>> {
        let Listed { bitmap, entries } = &self.listed[index];
        entries.as_ref().map_or_else(|| file.entries(bitmap.table), |entries| Ok(entries.clone()))
    }

    /// Gives a bitmap other entries; what only the old ones lead to is gone.
    pub(in crate::formats::qcow2) fn replace(
        &mut self,
        file: &WritableFile,
        header: &Header,
        index: usize,
        entries: Vec<u64>,
    ) -> io::Result<()> {
        let old = self.entries(file, index)?;
        let bits = header.cluster_bits;
        for (at, place) in old.iter().enumerate().filter_map(|(at, &entry)| Some((at, place_of(entry)?))) {
            if entries.get(at).copied().and_then(place_of) != Some(place) {
                self.gone.push(place >> bits..(place >> bits) + 1);
            }
        }
        let Listed { bitmap, entries: present } = &mut self.listed[index];
        if present.is_none() {
            let Table { offset_bytes, length_bytes } = bitmap.table;
            self.gone.push(offset_bytes >> bits..(offset_bytes + length_bytes).div_ceil(1 << bits));
        }
        *present = Some(entries);
        Ok(())
    }
}

impl Metadata {
    /// Sets the bits of a bitmap for all that `next_run` shows: ranges of the disk in order, each found from the end of
    /// the one before on.
    ///
    /// # Errors
    /// When the image has no room for them, or cannot be read or written.
    pub(in crate::formats::qcow2) fn merge_into_bitmap(
        &mut self,
        header: &Header,
        bitmaps: &mut Bitmaps,
        index: usize,
        next_run: impl FnMut(u64) -> io::Result<Option<Range<u64>>>,
    ) -> io::Result<()> {
        let mut entries = bitmaps.entries(&self.file, index)?;
        let granularity_bits = bitmaps.get(index).granularity_bits;
        let (allocated, set) = self.set_bits(granularity_bits, &mut entries, Placing::Anew, next_run);
        bitmaps.allocated.extend(allocated);
        set?;
        let file = Arc::clone(&self.file);
        bitmaps.replace(&file, header, index, entries)
    }

    /// The clusters that were allocated for it, and whether all was done.
    fn set_bits(
        &mut self,
        granularity_bits: u8,
        entries: &mut [u64],
        placing: Placing,
        mut next_run: impl FnMut(u64) -> io::Result<Option<Range<u64>>>,
    ) -> (Vec<Range<u64>>, io::Result<()>) {
        let mut allocated = Vec::new();
        let set = (|| {
            let cluster_bytes = self.layout.cluster_bytes();
            let per_cluster = cluster_bytes * 8;
            let mut cluster: Option<(usize, Vec<u8>)> = None;
            let mut at = 0;
            while let Some(run) = next_run(at)? {
                at = run.end;
                let (mut bit, end) = (run.start >> granularity_bits, run.end.div_ceil(1 << granularity_bits));
                while bit < end {
                    let index = (bit / per_cluster) as usize;
                    let within = bit % per_cluster..(end - index as u64 * per_cluster).min(per_cluster);
                    bit = (index as u64 + 1) * per_cluster;
                    let entry = *entries.get(index).ok_or(Errno::RANGE)?;
                    if are_ones(entry) {
                        continue;
                    }
                    if cluster.as_ref().is_none_or(|(read, _)| *read != index) {
                        if let Some((index, bytes)) = cluster.take() {
                            allocated.extend(self.put_bits(&mut entries[index], &bytes, placing)?);
                        }
                        let mut bytes = vec![0; cluster_bytes as usize];
                        place_of(entry).map_or(Ok(()), |place| self.file.read(&mut bytes, place))?;
                        cluster = Some((index, bytes));
                    }
                    if let Some((_, bytes)) = &mut cluster {
                        set_range(bytes, within);
                    }
                }
            }
            if let Some((index, bytes)) = cluster {
                allocated.extend(self.put_bits(&mut entries[index], &bytes, placing)?);
            }
            Ok(())
        })();
        (allocated, set)
    }

    /// Writes the bits that an entry of a table is for; which cluster was allocated for them, if one was.
    fn put_bits(&mut self, entry: &mut u64, bytes: &[u8], placing: Placing) -> io::Result<Option<Range<u64>>> {
        if let Some(place) = place_of(*entry).filter(|_| placing == Placing::InPlace) {
            return self.file.write(bytes, place).map(|()| None);
        }
        let cluster = self.allocator.allocate(1)?;
        let offset_bytes = cluster.start << self.layout.cluster_bits;
        if let Err(error) = self.file.write(bytes, offset_bytes) {
            self.allocator.give_back_written(cluster);
            return Err(error);
        }
        *entry = offset_bytes;
        Ok(Some(cluster))
    }

    /// Sets the bits of all that was written in bitmaps, which are marked as being in use and whose entries lie there;
    /// and takes the marks away once that is stable.
    ///
    /// # Errors
    /// When the image has no room for them, or cannot be read or written.
    pub(in crate::formats::qcow2) fn store_bitmaps<'b>(
        &mut self,
        kept: impl Iterator<Item = &'b (Bitmap, u64)> + Clone,
        dirty: &DirtyBits,
    ) -> io::Result<()> {
        for (bitmap, _) in kept.clone() {
            let old = self.file.entries(bitmap.table)?;
            let mut entries = old.clone();
            let next_run = |at| Ok(dirty.next_run(at));
            let (_, set) = self.set_bits(bitmap.granularity_bits, &mut entries, Placing::InPlace, next_run);
            // What was allocated and has no entry is leaked, as the mark stays.
            set?;
            let mut changed = (0..entries.len()).filter(|&index| entries[index] != old[index]);
            if let Some(first) = changed.next() {
                let last = changed.next_back().unwrap_or(first);
                let bytes: Vec<u8> = entries[first..=last].iter().flat_map(|entry| entry.to_be_bytes()).collect();
                self.file.write(&bytes, bitmap.table.offset_bytes + first as u64 * 8)?;
            }
        }
        self.barrier()?;
        for (bitmap, at) in kept {
            self.file.write(&bitmap.flags.to_be_bytes(), at + FLAGS_AT as u64)?;
        }
        self.sync()
    }

    /// The bitmaps of an image, for a disk of another size: what is new of it is not set. All of them can be used.
    ///
    /// # Errors
    /// When the image has no room for them, or cannot be read or written.
    pub(in crate::formats::qcow2) fn resize_bitmaps(
        &mut self,
        header: &Header,
        size_bytes: u64,
    ) -> io::Result<Bitmaps> {
        let file = Arc::clone(&self.file);
        let mut bitmaps = Bitmaps::read(&file, header)?;
        let resized = (0..bitmaps.count()).try_for_each(|index| {
            let bits = bitmaps.get(index).granularity_bits;
            let count = table_entries(size_bytes, bits, header.cluster_bytes()).ok_or(Errno::FBIG)?;
            let mut entries = bitmaps.entries(&file, index)?;
            entries.resize(count as usize, 0);
            let end_bit = size_bytes.div_ceil(1 << bits) - count.saturating_sub(1) * header.cluster_bytes() * 8;
            if let Some(place) = entries.last().copied().and_then(place_of).filter(|_| size_bytes < header.size_bytes) {
                let mut bytes = vec![0; header.cluster_bytes() as usize];
                file.read(&mut bytes, place)?;
                if clear_from(&mut bytes, end_bit) {
                    let last = entries.len() - 1;
                    bitmaps.allocated.extend(self.put_bits(&mut entries[last], &bytes, Placing::Anew)?);
                }
            }
            bitmaps.replace(&file, header, index, entries)?;
            // Of many bitmaps, no more than one table is in memory.
            self.write_bitmap_table(&mut bitmaps, index)
        });
        if let Err(error) = resized {
            self.drop_bitmaps(&bitmaps);
            return Err(error);
        }
        Ok(bitmaps)
    }

    /// Puts bitmaps in force, and, with `size_bytes`, another size of the disk.
    ///
    /// # Errors
    /// When the image has no room for them, or cannot be read or written.
    pub(in crate::formats::qcow2) fn put_bitmaps(
        &mut self,
        header: &Header,
        mut bitmaps: Bitmaps,
        size_bytes: Option<u64>,
    ) -> io::Result<()> {
        let put = self.write_bitmaps(&mut bitmaps).and_then(|directory| {
            let mut first = FirstCluster::read(&self.file, header)?;
            first.set_bitmaps(header, directory);
            if let Some(size_bytes) = size_bytes {
                first.put(SIZE_AT, &size_bytes.to_be_bytes());
            }
            first.write(&self.file)
        });
        if let Err(error) = put {
            self.drop_bitmaps(&bitmaps);
            return Err(error);
        }
        let bits = self.layout.cluster_bits;
        let old = header.bitmaps.map(|old| old.table).filter(|table| table.length_bytes > 0);
        let old = old.map(|Table { offset_bytes, length_bytes }| {
            offset_bytes >> bits..(offset_bytes + length_bytes).div_ceil(1 << bits)
        });
        let gone: Vec<_> = bitmaps.gone.into_iter().chain(old).filter(|range| !range.is_empty()).collect();
        self.free(&gone)
    }

    /// Gives up bitmaps that did not come into force.
    pub(in crate::formats::qcow2) fn drop_bitmaps(&mut self, bitmaps: &Bitmaps) {
        // What cannot be freed is leaked.
        let _ = self.free(&bitmaps.allocated);
    }

    /// Writes a bitmap's table, if it is new.
    fn write_bitmap_table(&mut self, bitmaps: &mut Bitmaps, index: usize) -> io::Result<()> {
        let Listed { bitmap, entries } = &mut bitmaps.listed[index];
        let Some(entries) = entries.take() else { return Ok(()) };
        let bytes: Vec<u8> = entries.iter().flat_map(|entry| entry.to_be_bytes()).collect();
        bitmap.table = self.write_table(&bytes, &mut bitmaps.allocated)?;
        Ok(())
    }

    /// Writes all that is to be in the file before, tables that are new, and the directory, which nothing names yet.
    fn write_bitmaps(&mut self, bitmaps: &mut Bitmaps) -> io::Result<Option<BitmapDirectory>> {
        self.write_entries()?;
        (0..bitmaps.count()).try_for_each(|index| self.write_bitmap_table(bitmaps, index))?;
        let directory: Vec<_> = bitmaps.listed.iter().flat_map(|listed| listed.bitmap.encoded()).collect();
        if directory.is_empty() {
            return Ok(None);
        }
        if directory.len() as u64 > DIRECTORY_MAX_BYTES {
            return Err(io::Error::other("its directory of bitmaps has no room for another: remove some"));
        }
        let table = self.write_table(&directory, &mut bitmaps.allocated)?;
        // There are no more of them than a number of 16 bits has values.
        Ok(Some(BitmapDirectory { bitmaps: bitmaps.listed.len() as u32, table }))
    }
}

/// Clears the bits of a bitmap's cluster from one on; whether one of them was set.
fn clear_from(bytes: &mut [u8], bit: u64) -> bool {
    let first = (bit / 8) as usize;
    let mut was_set = false;
    for (index, byte) in bytes.iter_mut().enumerate().skip(first) {
        let kept = if index == first { *byte & !(0xff << (bit % 8)) } else { 0 };
        was_set |= kept != *byte;
        *byte = kept;
    }
    was_set
}

/// Sets bits of a bitmap's cluster.
fn set_range(bytes: &mut [u8], bits: Range<u64>) {
    let (first, last) = ((bits.start / 8) as usize, (bits.end / 8) as usize);
    let (head, tail) = (0xff << (bits.start % 8), !(0xff << (bits.end % 8)));
    if first == last {
        bytes[first] |= head & tail;
        return;
    }
    bytes[first] |= head;
    bytes[first + 1..last].fill(0xff);
    if tail != 0 {
        bytes[last] |= tail;
    }
}
