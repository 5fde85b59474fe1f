//! What requests change of an image: which clusters its bytes are written to, and what else is written with them.
//!
//! A cluster that has a place of its own is written there. Else it gets a new one, and what the image shows of the
//! cluster beside what is written goes with it: from its old place, which others use too, out of compressed data, or
//! from behind the image. Where that is zeros, and so is the new place, nothing is written.

use super::entries::{Entry, Layout, Mapping, Place};
use super::image::{CompressedCluster, Image, Reader};
use super::metadata::Metadata;
use std::io;
use std::ops::Range;

/// Zeros are written as data in pieces of this size.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// What is copied around a write of so few bytes is read at once, with what the write replaces: if that can be read.
const READ_OVER_MAX: u64 = 16 << 10;

/// Most ranges of clusters that wait to be freed. What is discarded beyond that keeps its place until it is written or
/// discarded again.
const GONE_MAX: usize = 4096;

/// What becomes of a range that is to read as zeros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Zeroing {
    /// It need not read as zeros, and what can be freed is.
    Discard,
    /// It does, and what can be freed is.
    Unmap,
    /// It does, and keeps its place.
    Keep,
}

/// An image that is written to, and where its one writer writes.
pub(super) struct Changes<'a> {
    image: &'a Image,
    pub(super) metadata: Metadata,
    layout: Layout,
    reader: Reader,
    /// What is written to a cluster, and what goes with it.
    assembled: Vec<u8>,
}

/// A write to a cluster.
struct ToCluster {
    cluster: u64,
    /// As it was.
    entry: Entry,
    place_bytes: u64,
    /// It is not where it was.
    is_moved: bool,
    /// What is written, from the cluster's beginning on.
    range: Range<u64>,
}

impl<'a> Changes<'a> {
    pub(super) fn new(image: &'a Image, metadata: Metadata) -> Self {
        Self { image, layout: metadata.layout(), metadata, reader: Reader::default(), assembled: Vec::new() }
    }

    /// Writes bytes to the disk from an offset on. What would be padding behind its end is dropped.
    ///
    /// # Errors
    /// When a file fails, or the image is damaged there.
    pub(super) fn write(&mut self, mut offset: u64, bytes: &[u8]) -> io::Result<()> {
        let inside = self.image.size_bytes.saturating_sub(offset).min(bytes.len() as u64) as usize;
        let mut rest = &bytes[..inside];
        while !rest.is_empty() {
            let written = self.write_run(offset, rest)?;
            offset += written as u64;
            rest = &rest[written..];
        }
        Ok(())
    }

    /// Writes the first bytes: to one cluster that has a place of its own, or to neighbours that have none. How many.
    fn write_run(&mut self, offset: u64, bytes: &[u8]) -> io::Result<usize> {
        let (bits, cluster_bytes) = (self.layout.cluster_bits, self.layout.cluster_bytes());
        let (cluster, within) = (offset >> bits, offset & (cluster_bytes - 1));
        let end = within + bytes.len() as u64;
        let entry = self.metadata.entry(cluster)?;
        if let Some(place) = own_place(entry)? {
            let range = within..end.min(cluster_bytes);
            let write = ToCluster { cluster, entry, place_bytes: place.offset_bytes, is_moved: false, range };
            let bytes = &bytes[..(write.range.end - within) as usize];
            if !self.write_with_copied(&write, bytes)? {
                self.metadata.data().write_data(bytes, place.offset_bytes + within)?;
            }
            self.reach(place.offset_bytes + cluster_bytes)?;
            self.set(&write)?;
            return Ok(bytes.len());
        }
        let mut wanted = 1;
        while wanted << bits < end && own_place(self.metadata.entry(cluster + wanted)?)?.is_none() {
            wanted += 1;
        }
        let (start, count) = self.metadata.allocate(cluster, wanted)?;
        let mut used = 0;
        let done = self.write_to_new(offset, bytes, start..start + (count << bits), &mut used);
        if done.is_err() {
            self.metadata.give_back_written(start + (used << bits), count - used);
        }
        done
    }

    /// Writes the first bytes to clusters that were allocated for them at `places`. How many; and how many clusters are
    /// used.
    fn write_to_new(&mut self, offset: u64, bytes: &[u8], places: Range<u64>, used: &mut u64) -> io::Result<usize> {
        let (bits, cluster_bytes) = (self.layout.cluster_bits, self.layout.cluster_bytes());
        let (cluster, within) = (offset >> bits, offset & (cluster_bytes - 1));
        let end = (within + bytes.len() as u64).min(places.end - places.start);
        let count = (places.end - places.start) >> bits;
        let mut writes = Vec::with_capacity(count as usize);
        // Of `bytes`, what is to be written as it is.
        let mut run = 0..0;
        let write_run = |metadata: &Metadata, run: Range<usize>| {
            metadata.data().write_data(&bytes[run.clone()], places.start + within + run.start as u64)
        };
        for index in 0..count {
            let first = index << bits;
            let range = within.max(first) - first..(end - first).min(cluster_bytes);
            let entry = self.metadata.entry(cluster + index)?;
            let place_bytes = places.start + first;
            let write = ToCluster { cluster: cluster + index, entry, place_bytes, is_moved: true, range };
            let of_it = (first + write.range.start - within) as usize..(first + write.range.end - within) as usize;
            if self.write_with_copied(&write, &bytes[of_it.clone()])? {
                write_run(&self.metadata, run)?;
                run = of_it.end..of_it.end;
            } else {
                run.end = of_it.end;
            }
            writes.push(write);
        }
        write_run(&self.metadata, run)?;
        self.reach(places.end)?;
        for write in &writes {
            self.set(write)?;
            *used += 1;
        }
        Ok((end - within) as usize)
    }

    /// Clusters lie in the file as a whole; but a file that has the data alone ends where the disk does.
    fn reach(&self, end: u64) -> io::Result<()> {
        let end = if self.layout.has_data_file { end.min(self.image.size_bytes) } else { end };
        self.metadata.data().reach(end)
    }

    /// Writes `bytes` to a cluster, with what goes with them. False, and nothing is written, when nothing does.
    fn write_with_copied(&mut self, write: &ToCluster, bytes: &[u8]) -> io::Result<bool> {
        let copied = self.copied(write);
        if copied.is_empty() {
            return Ok(false);
        }
        let range = &write.range;
        let all = copied.iter().fold(range.clone(), |all, copied| all.start.min(copied.start)..all.end.max(copied.end));
        let within = |range: &Range<u64>| (range.start - all.start) as usize..(range.end - all.start) as usize;
        let mut assembled = std::mem::take(&mut self.assembled);
        let length = (all.end - all.start) as usize;
        assembled.resize(assembled.len().max(length), 0);
        let buffer = &mut assembled[..length];
        let known_bytes = copied.iter().fold(range.end - range.start, |sum, copied| sum + copied.end - copied.start);
        if known_bytes < length as u64 {
            // What lies between is fresh, and stays zeros.
            buffer.fill(0);
        }
        let around = self.around(range, &copied);
        let is_read = around.is_some_and(|around| self.read_old(write, &around, &mut buffer[within(&around)]).is_ok());
        let read = match is_read {
            true => Ok(()),
            false => copied.iter().try_for_each(|range| self.read_old(write, range, &mut buffer[within(range)])),
        };
        let written = read.and_then(|()| {
            buffer[within(range)].copy_from_slice(bytes);
            self.metadata.data().write_data(buffer, write.place_bytes + all.start)
        });
        self.assembled = assembled;
        written.map(|()| true)
    }

    /// What is read at once of what goes with a write to a range, and of what the write replaces, if that is little.
    fn around(&self, range: &Range<u64>, copied: &[Range<u64>]) -> Option<Range<u64>> {
        let [before, behind] = copied else { return None };
        let part = |at: u64| at >> self.layout.part_bits();
        let is_around = before.end == range.start && behind.start == range.end;
        let is_little = range.end - range.start <= READ_OVER_MAX;
        (is_around && is_little && part(before.start) == part(behind.end - 1)).then_some(before.start..behind.end)
    }

    /// What of a cluster goes with a write: ranges of one part at most, or of a compressed cluster.
    fn copied(&self, write: &ToCluster) -> Vec<Range<u64>> {
        let ToCluster { range, entry, is_moved, place_bytes, .. } = write;
        let mapping = match entry {
            Entry::Plain(mapping) => *mapping,
            Entry::Compressed(_) | Entry::Invalid => {
                let around = [0..range.start, range.end..self.layout.cluster_bytes()];
                return around.into_iter().filter(|range| !range.is_empty()).collect();
            }
        };
        let touched = self.layout.parts_touched(range.start, range.end);
        let wanted = if *is_moved { touched | mapping.data } else { touched & !mapping.data };
        let is_fresh = self.metadata.is_fresh(*place_bytes);
        let nothing_is_zeros = self.image.shows_nothing_behind(write.cluster << self.layout.cluster_bits);
        let part_bits = self.layout.part_bits();
        let disk_end = self.image.size_bytes - (write.cluster << self.layout.cluster_bits);
        let mut copied = Vec::new();
        for part in (0..u32::BITS).filter(|part| wanted >> part & 1 != 0) {
            let is_data = mapping.data >> part & 1 != 0;
            let is_zeros = mapping.zeros >> part & 1 != 0 || (!is_data && nothing_is_zeros);
            // A part that was made zeros in its place may hold what it held before.
            let is_there = is_fresh && is_zeros && (*is_moved || mapping.zeros >> part & 1 == 0);
            if is_there {
                continue;
            }
            let (start, end) = (u64::from(part) << part_bits, u64::from(part + 1) << part_bits);
            // A file that has the data alone ends where the disk does.
            let end = if self.layout.has_data_file { end.min(disk_end) } else { end };
            let around = [start..end.min(range.start.max(start)), start.max(range.end.min(end))..end];
            copied.extend(around.into_iter().filter(|range| !range.is_empty()));
        }
        copied
    }

    /// What the image shows of a range of a cluster, before a write to it: of one part, or of a compressed cluster.
    fn read_old(&mut self, write: &ToCluster, range: &Range<u64>, buffer: &mut [u8]) -> io::Result<()> {
        let disk_offset = (write.cluster << self.layout.cluster_bits) + range.start;
        let mapping = match write.entry {
            Entry::Plain(mapping) => mapping,
            Entry::Compressed(place) => {
                let cluster = CompressedCluster { number: 0, place };
                let contents = self.image.compressed_cluster(cluster, &mut self.reader)?;
                buffer.copy_from_slice(&contents[range.start as usize..range.end as usize]);
                return Ok(());
            }
            Entry::Invalid => return Err(damaged(disk_offset)),
        };
        let part = range.start >> self.layout.part_bits();
        match mapping.place {
            Some(place) if mapping.data >> part & 1 != 0 => {
                let (at, clusters) = (place.offset_bytes + range.start, self.layout.data_clusters(true));
                self.metadata.data().read_data(buffer, at, disk_offset, clusters)
            }
            _ if mapping.zeros >> part & 1 != 0 => {
                buffer.fill(0);
                Ok(())
            }
            _ => self.image.read(1, disk_offset, buffer, &mut self.reader),
        }
    }

    /// Says that a cluster is where it was written to.
    fn set(&mut self, write: &ToCluster) -> io::Result<()> {
        let touched = self.layout.parts_touched(write.range.start, write.range.end);
        let mapping = match write.entry {
            Entry::Plain(mapping) => mapping,
            Entry::Compressed(_) | Entry::Invalid => Mapping { data: self.layout.all_parts(), ..Mapping::NOTHING },
        };
        let place = Some(Place { offset_bytes: write.place_bytes, is_own: true });
        let new = Mapping { place, data: mapping.data | touched, zeros: mapping.zeros & !touched };
        if write.entry == Entry::Plain(new) {
            return Ok(());
        }
        if self.relies_on_contents(write) {
            self.metadata.need_contents();
        }
        self.metadata.set(write.cluster, new)?;
        if write.is_moved {
            self.metadata.release_entry(write.entry);
        }
        Ok(())
    }

    /// Whether what is written to a cluster must be stable before its entry is: else a cut could leave what lay there
    /// before, or zeros where something is shown.
    fn relies_on_contents(&self, write: &ToCluster) -> bool {
        let Entry::Plain(mapping) = write.entry else { return true };
        let touched = self.layout.parts_touched(write.range.start, write.range.end);
        let shown = touched & !mapping.data & !mapping.zeros;
        let shows_more = (write.is_moved && mapping.data != 0)
            || (shown != 0 && !self.image.shows_nothing_behind(write.cluster << self.layout.cluster_bits));
        let holds_old = !self.metadata.is_fresh(write.place_bytes) || (!write.is_moved && touched & mapping.zeros != 0);
        shows_more || holds_old
    }

    /// Gives a place to what is about to be written of a range, as far as it does not matter when it is written there:
    /// where zeros were to be read, and are in that place, too. The rest stays as it is.
    ///
    /// # Errors
    /// When a file fails, or the image is damaged there.
    pub(super) fn place_ahead(&mut self, range: Range<u64>) -> io::Result<()> {
        let (bits, cluster_bytes) = (self.layout.cluster_bits, self.layout.cluster_bytes());
        let end = range.end.min(self.image.size_bytes);
        let mut at = range.start;
        while at < end {
            let (cluster, within) = (at >> bits, at & (cluster_bytes - 1));
            let left = end - (cluster << bits);
            let entry = self.metadata.entry(cluster)?;
            let clusters = match own_place(entry)? {
                Some(place) => {
                    let range = within..left.min(cluster_bytes);
                    let place_bytes = place.offset_bytes;
                    self.set_ahead(&ToCluster { cluster, entry, place_bytes, is_moved: false, range })?;
                    1
                }
                None => self.place_run_ahead(cluster, within, left)?,
            };
            at = (cluster + clusters) << bits;
        }
        Ok(())
    }

    /// The same of neighbours that have no place, from `within` the first one up to `end` from its beginning. How many.
    fn place_run_ahead(&mut self, cluster: u64, within: u64, end: u64) -> io::Result<u64> {
        let (bits, cluster_bytes) = (self.layout.cluster_bits, self.layout.cluster_bytes());
        let mut wanted = 1;
        while wanted << bits < end && own_place(self.metadata.entry(cluster + wanted)?)?.is_none() {
            wanted += 1;
        }
        let (start, count) = self.metadata.allocate(cluster, wanted)?;
        let mut used = 0;
        let placed = self.reach(start + (count << bits)).and_then(|()| {
            for index in 0..count {
                let first = index << bits;
                let range = within.max(first) - first..(end - first).min(cluster_bytes);
                let entry = self.metadata.entry(cluster + index)?;
                let place_bytes = start + first;
                let write = ToCluster { cluster: cluster + index, entry, place_bytes, is_moved: true, range };
                if !self.set_ahead(&write)? {
                    break;
                }
                used += 1;
            }
            Ok(())
        });
        self.metadata.give_back(start + (used << bits), count - used);
        placed.map(|()| used.max(1))
    }

    /// Says that a cluster is where it will be written to, if it does not matter when. Whether it did.
    fn set_ahead(&mut self, write: &ToCluster) -> io::Result<bool> {
        let matters = self.relies_on_contents(write) || !self.copied(write).is_empty();
        if matters { Ok(false) } else { self.set(write).map(|()| true) }
    }

    /// Makes a range of the disk zeros, or less.
    ///
    /// # Errors
    /// When a file fails, or the image is damaged there.
    pub(super) fn zero(&mut self, offset: u64, length: u64, how: Zeroing) -> io::Result<()> {
        if how == Zeroing::Discard && !(self.image.has_zero_clusters && self.image.frees_clusters) {
            return Ok(());
        }
        let (bits, cluster_bytes) = (self.layout.cluster_bits, self.layout.cluster_bytes());
        let end = offset.saturating_add(length).min(self.image.size_bytes);
        let mut at = offset;
        while at < end {
            let cluster = at >> bits;
            if how == Zeroing::Discard || self.image.shows_nothing_behind(at) {
                let next = self.metadata.next_with_table(cluster, end.div_ceil(cluster_bytes))?;
                if next > cluster {
                    at = next << bits;
                    continue;
                }
            }
            let next = end.min((cluster + 1) << bits);
            let first = cluster << bits;
            self.zero_in_cluster(cluster, at - first..next - first, how)?;
            at = next;
        }
        Ok(())
    }

    fn zero_in_cluster(&mut self, cluster: u64, range: Range<u64>, how: Zeroing) -> io::Result<()> {
        let (cluster_bytes, start) = (self.layout.cluster_bytes(), cluster << self.layout.cluster_bits);
        // Behind the end of the disk there is nothing that would have to stay.
        let reaches_end = start + range.end == self.image.size_bytes;
        let end = if reaches_end { cluster_bytes } else { range.end };
        let whole = if self.image.has_zero_clusters { self.layout.parts_within(range.start, end) } else { 0 };
        let nothing_is_zeros = how == Zeroing::Discard || self.image.shows_nothing_behind(start);
        let mapping = match self.metadata.entry(cluster)? {
            Entry::Invalid => return Err(damaged(start)),
            entry @ Entry::Compressed(_) if whole == self.layout.all_parts() => {
                self.metadata.set(cluster, Mapping { zeros: whole, ..Mapping::NOTHING })?;
                self.metadata.release_entry(entry);
                return Ok(());
            }
            Entry::Compressed(_) if how == Zeroing::Discard => return Ok(()),
            Entry::Compressed(_) => return self.write_zeros(start + range.start..start + range.end),
            Entry::Plain(mapping) => mapping,
        };
        let all = self.layout.all_parts();
        let shown = if nothing_is_zeros { 0 } else { all & !mapping.zeros };
        let change = whole & (mapping.data | shown);
        if how != Zeroing::Discard {
            let partly = self.layout.parts_touched(range.start, range.end) & !whole & (mapping.data | shown);
            let part_bits = self.layout.part_bits();
            // The first part and the last one, or all of them where none can be marked.
            for part in (0..u32::BITS).filter(|part| partly >> part & 1 != 0) {
                let (first, end) = (u64::from(part) << part_bits, u64::from(part + 1) << part_bits);
                self.write_zeros(start + range.start.max(first)..start + range.end.min(end))?;
            }
        }
        let is_kept = mapping.place.is_some_and(|place| place.is_own) && mapping.data == 0 && how != Zeroing::Keep;
        if change == 0 && !(is_kept && whole == all) {
            return Ok(());
        }
        // Zeros that were written may have given it a place.
        let entry = self.metadata.entry(cluster)?;
        let Entry::Plain(mapping) = entry else { return Err(damaged(start)) };
        let (data, zeros) = (mapping.data & !change, mapping.zeros | change);
        let can_go = how != Zeroing::Keep && self.metadata.gone_count() < GONE_MAX;
        let is_left =
            data == 0 && !self.layout.has_data_file && mapping.place.is_some_and(|place| !place.is_own || can_go);
        let place = mapping.place.filter(|_| !is_left);
        self.metadata.set(cluster, Mapping { place, data, zeros })?;
        if is_left {
            self.metadata.release_entry(entry);
        }
        Ok(())
    }

    fn write_zeros(&mut self, range: Range<u64>) -> io::Result<()> {
        let mut at = range.start;
        while at < range.end {
            let length = (range.end - at).min(ZEROS.len() as u64);
            self.write(at, &ZEROS[..length as usize])?;
            at += length;
        }
        Ok(())
    }
}

/// The place of a cluster that may be written in place.
fn own_place(entry: Entry) -> io::Result<Option<Place>> {
    match entry {
        Entry::Plain(mapping) => Ok(mapping.place.filter(|place| place.is_own)),
        Entry::Compressed(_) => Ok(None),
        Entry::Invalid => Err(io::Error::new(io::ErrorKind::InvalidData, "an L2 entry says what makes no sense")),
    }
}

fn damaged(offset: u64) -> io::Error {
    let message = format!("the table entry of the disk's bytes at {offset} makes no sense");
    io::Error::new(io::ErrorKind::InvalidData, message)
}
