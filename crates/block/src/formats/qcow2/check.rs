//! What must hold before an image is written to: every cluster has one use, and its refcount knows.
//!
//! Images come from anybody, and from programs that a crash may have stopped between a table and its refcount. A
//! cluster that is in use and called free would be given to other data as well: here its refcount is put right. What
//! snapshots use they share with each other and with the disk, which then does not write there in place.
//! Whatever else is wrong is refused, but for what leads behind the end of the file, as a power cut leaves it: that is
//! counted, as nobody sees it any more once the file is longer. Reads all L2 tables, as `qemu-img check` does: 2.5 MiB
//! of them for 20 GiB of data. It ends at the first thing that is wrong; [`super::census`] finds all, of the same
//! references.
//!
//! What it remembers of the clusters of a very long file is too much for one time. So it looks at such a file in
//! windows, for each of which the tables are read again.

mod refcounts;

use super::bitmaps;
use super::entries::{Layout, OFFSET_MASK, entries_of};
use super::header::{Header, Table};
use super::pieces::Pieces;
use super::references::{self, Part, Reference};
use super::snapshots::{self, L1_MAX_BYTES};
use super::use_map::{Use, UseMap, WORD_CLUSTERS};
use crate::Remedy;
use crate::formats::WritableFile;
use crate::size;
use std::collections::HashMap;
use std::io;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};

/// Most clusters of a file: 32 TiB in clusters of 64 KiB.
pub(super) const CLUSTERS_MAX: u64 = 1 << 29;

/// How much of a file is looked at together, in clusters: multiples of [`WORD_CLUSTERS`].
#[derive(Clone, Copy, Debug)]
pub(super) struct Windows {
    /// Two bits are kept of each cluster,
    pub(super) clusters: u64,
    /// six where there are snapshots,
    pub(super) of_snapshots: u64,
    /// and a byte more where there are compressed clusters. So it takes at most 28 MiB.
    pub(super) of_compressed: u64,
    /// After a crash the file may end before what refers into it, by as much as it has, and so many clusters.
    pub(super) behind: u64,
}

impl Default for Windows {
    fn default() -> Self {
        Self { clusters: 1 << 26, of_snapshots: 1 << 25, of_compressed: 1 << 24, behind: 1 << 16 }
    }
}

/// How many clusters a file has; the error, of one that cannot be `used` for that, goes on after the image's path.
pub(super) fn clusters_of(file: &WritableFile, header: &Header, used: &str) -> Result<u64, String> {
    let (bytes, cluster_bytes) = (file.length_bytes(), header.cluster_bytes());
    let clusters = bytes.div_ceil(cluster_bytes);
    if clusters <= CLUSTERS_MAX {
        return Ok(clusters);
    }
    let (length, most) = (size::human(bytes), size::human(CLUSTERS_MAX * cluster_bytes));
    Err(format!(
        "has {length} in clusters of {cluster_bytes} bytes, and with these at most {most} can be {used}: \
         convert it to an image with larger clusters"
    ))
}

/// What a message goes on with.
pub(super) fn repair() -> String {
    format!("{} says what else is, and repairs what can be", Remedy::RepairImage)
}

/// Checks an image, and puts right what a crash may have left: how many clusters that it refers to begin behind the end
/// of its file. The error goes on after the image's path. `is_over`: nobody wants to know any more, which is an error,
/// too.
pub(super) fn check(file: &WritableFile, header: &Header, is_over: &AtomicBool) -> Result<u64, String> {
    check_in_windows(file, header, is_over, Windows::default())
}

/// The same, so much at a time.
pub(super) fn check_in_windows(
    file: &WritableFile,
    header: &Header,
    is_over: &AtomicBool,
    windows: Windows,
) -> Result<u64, String> {
    let mut scan = Scan::new(file, header, is_over, windows)?;
    let mut checked = scan.check();
    if matches!(checked, Err(Problem::Crowded)) {
        scan.window_clusters = windows.of_compressed;
        checked = scan.check();
    }
    checked.map(|()| scan.missing_clusters).map_err(|problem| match problem {
        Problem::Damage(what) => format!("is damaged: {what}; {}", repair()),
        Problem::Unreadable(error) => format!("cannot be checked: {error}"),
        Problem::Crowded => "has too many clusters to be checked".into(),
    })
}

enum Problem {
    Damage(String),
    Unreadable(io::Error),
    /// There are compressed clusters in too large a window.
    Crowded,
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Self {
        Self::Unreadable(error)
    }
}

fn damage<T>(what: impl Into<String>) -> Result<T, Problem> {
    Err(Problem::Damage(what.into()))
}

/// Entries each of which leads one cluster farther than the one before, as most do in most tables; or which lead
/// nowhere and are equal.
#[derive(Clone, Copy)]
struct Run {
    first: u64,
    step: u64,
    count: u64,
}

impl Run {
    fn entry(self, index: u64) -> u64 {
        self.first.wrapping_add(index * self.step)
    }
}

struct Scan<'a> {
    file: &'a WritableFile,
    header: &'a Header,
    /// Of the file, and of what may lie behind it.
    clusters: u64,
    /// Of the file alone, and how many behind it are referred to.
    own_clusters: u64,
    missing_clusters: u64,
    windows: Windows,
    window_clusters: u64,
    /// Of the window.
    uses: UseMap,
    /// The same of its metadata alone, and, as [`Use::Many`], what a snapshot uses beside the disk or another one;
    /// nothing of an image without snapshots.
    shared: UseMap,
    /// By cluster of the window, if any of it is compressed: how many compressed clusters are in it, in part at least,
    /// up to 255; and how many where they are that many.
    sharers: Vec<u8>,
    many_sharers: HashMap<u64, u64>,
    /// Those that are for the window.
    refblocks: Vec<u64>,
    is_over: &'a AtomicBool,
}

impl<'a> Scan<'a> {
    fn new(
        file: &'a WritableFile,
        header: &'a Header,
        is_over: &'a AtomicBool,
        windows: Windows,
    ) -> Result<Self, String> {
        let own_clusters = clusters_of(file, header, "written to")?;
        let clusters = own_clusters.saturating_mul(2).saturating_add(windows.behind).min(CLUSTERS_MAX);
        Ok(Self {
            file,
            header,
            clusters: clusters.next_multiple_of(WORD_CLUSTERS),
            own_clusters,
            missing_clusters: 0,
            windows,
            window_clusters: if header.snapshots > 0 { windows.of_snapshots } else { windows.clusters },
            uses: UseMap::new(0..0),
            shared: UseMap::new(0..0),
            sharers: Vec::new(),
            many_sharers: HashMap::new(),
            refblocks: Vec::new(),
            is_over,
        })
    }

    fn windows(&self) -> impl Iterator<Item = Range<u64>> + use<> {
        let (clusters, window_clusters) = (self.clusters, self.window_clusters);
        let starts = (0..clusters).step_by(window_clusters as usize);
        starts.map(move |start| start..clusters.min(start + window_clusters))
    }

    fn check(&mut self) -> Result<(), Problem> {
        if self.windows().nth(1).is_some() {
            // First that no table is there twice: else it would be read again and again until its window comes.
            for window in self.windows() {
                self.begin(window);
                self.claim_metadata()?;
                self.claim_data(false)?;
            }
        }
        self.missing_clusters = 0;
        for window in self.windows() {
            self.begin(window);
            self.claim_metadata()?;
            let l1_tables = self.claim_snapshot_table()?;
            if !l1_tables.is_empty() {
                self.shared = self.uses.clone();
            }
            self.claim_data(true)?;
            self.share_with_snapshots(&l1_tables)?;
            self.check_refcounts()?;
        }
        Ok(())
    }

    fn begin(&mut self, window: Range<u64>) {
        // Not both at once.
        (self.uses, self.shared, self.sharers) = (UseMap::new(0..0), UseMap::new(0..0), Vec::new());
        self.uses = UseMap::new(window);
        self.many_sharers = HashMap::new();
        self.refblocks = Vec::new();
    }

    fn go_on(&self) -> Result<(), Problem> {
        match self.is_over.load(Ordering::Acquire) {
            true => Err(Problem::Unreadable(io::ErrorKind::Interrupted.into())),
            false => Ok(()),
        }
    }

    /// The clusters that are referred to.
    fn clusters_of(&self, reference: &Reference) -> Result<Range<u64>, Problem> {
        let Reference { part, offset_bytes, length_bytes, .. } = *reference;
        if !reference.is_aligned(self.header) {
            let what = match part {
                Part::Refblock => "refcount block",
                Part::L2Table => "L2 table",
                _ => "cluster",
            };
            return damage(format!("the {what} at {offset_bytes} does not begin with a cluster"));
        }
        let bits = self.header.cluster_bits;
        Ok(offset_bytes >> bits..offset_bytes.saturating_add(length_bytes).div_ceil(1 << bits))
    }

    fn claim(&mut self, reference: &Reference) -> Result<(), Problem> {
        let Reference { part, offset_bytes, .. } = *reference;
        let clusters = self.clusters_of(reference)?;
        match part {
            Part::Compressed => clusters.clone().try_for_each(|cluster| self.share(cluster))?,
            _ => self.claim_clusters(clusters.clone(), reference.is_copied())?,
        }
        self.check_inside(clusters.end, offset_bytes)
    }

    fn check_inside(&self, end: u64, offset_bytes: u64) -> Result<(), Problem> {
        match end > self.clusters {
            true => damage(format!("something at {offset_bytes} lies far behind the end of the file")),
            false => Ok(()),
        }
    }

    fn claim_clusters(&mut self, clusters: Range<u64>, in_place: bool) -> Result<(), Problem> {
        self.take(clusters, if in_place { Use::OnceInPlace } else { Use::Once })
    }

    /// Claims what nobody has, and counts what is missing of it in this window.
    fn take(&mut self, clusters: Range<u64>, how: Use) -> Result<(), Problem> {
        let window = self.uses.clusters();
        let missing = clusters.start.max(self.own_clusters).max(window.start)..clusters.end.min(window.end);
        self.missing_clusters += missing.end.saturating_sub(missing.start);
        self.uses.claim(clusters, how).or_else(|cluster| self.has_two_uses(cluster))
    }

    fn has_two_uses(&self, cluster: u64) -> Result<(), Problem> {
        damage(format!("the cluster at {} has two uses", cluster << self.header.cluster_bits))
    }

    fn share(&mut self, cluster: u64) -> Result<(), Problem> {
        match self.uses.get(cluster) {
            None => self.take(cluster..cluster + 1, Use::Many)?,
            Some(Use::Many) => {}
            Some(_) => return self.has_two_uses(cluster),
        }
        let window = self.uses.clusters();
        if !window.contains(&cluster) {
            return Ok(());
        }
        if self.window_clusters.min(self.clusters) > self.windows.of_compressed {
            return Err(Problem::Crowded);
        }
        if self.sharers.is_empty() {
            // Zeros, which take no memory until one of them is changed.
            self.sharers = vec![0; (window.end - window.start) as usize];
        }
        let Some(count) = self.sharers.get_mut((cluster - window.start) as usize) else { return Ok(()) };
        *count = count.saturating_add(1);
        if *count == u8::MAX {
            *self.many_sharers.entry(cluster).or_insert(u64::from(u8::MAX) - 1) += 1;
        }
        Ok(())
    }

    fn sharers_of(&self, cluster: u64) -> u64 {
        let within = cluster.saturating_sub(self.uses.clusters().start);
        let few = self.sharers.get(within as usize).copied().unwrap_or(0);
        self.many_sharers.get(&cluster).copied().unwrap_or(few.into())
    }

    fn claim_metadata(&mut self) -> Result<(), Problem> {
        references::in_header(self.header).try_for_each(|reference| self.claim(&reference))?;
        let window = self.uses.clusters();
        let per_block = self.refcounts_per_block();
        let blocks = window.start / per_block..window.end.div_ceil(per_block);
        for refblock in references::in_refcount_table(self.file, self.header) {
            let refblock = refblock?;
            self.go_on()?;
            self.claim(&refblock)?;
            let index = refblock.index as u64;
            if blocks.contains(&index) {
                self.refblocks.resize((index - blocks.start) as usize, 0);
                self.refblocks.push(refblock.offset_bytes);
            }
        }
        self.claim_bitmaps()
    }

    /// What is written of them when the image is lies there alone.
    fn claim_bitmaps(&mut self) -> Result<(), Problem> {
        let directory = bitmaps::directory(self.file, self.header)?;
        if let Some(flaw) = directory.flaw {
            return damage(flaw);
        }
        directory.own.map_or(Ok(()), |own| self.claim_table(own))?;
        for table in directory.tables.into_iter().filter(|table| table.length_bytes > 0) {
            if table.length_bytes > L1_MAX_BYTES {
                return damage(format!("the table of a bitmap at {} is too large", table.offset_bytes));
            }
            self.claim_table(table)?;
            for offset_bytes in bitmaps::in_table(self.file, table) {
                self.claim_table(Table { offset_bytes: offset_bytes?, length_bytes: self.header.cluster_bytes() })?;
            }
        }
        Ok(())
    }

    fn claim_table(&mut self, table: Table) -> Result<(), Problem> {
        let Table { offset_bytes, length_bytes } = table;
        self.claim(&Reference { part: Part::L1Table, index: 0, entry: 0, offset_bytes, length_bytes })
    }

    /// The table of snapshots, and their L1 tables, which come back. They are nobody else's.
    fn claim_snapshot_table(&mut self) -> Result<Vec<Table>, Problem> {
        let directory = snapshots::snapshots(self.file, self.header)?;
        if let Some(flaw) = directory.flaw {
            return damage(flaw);
        }
        directory.own.map_or(Ok(()), |own| self.claim_table(own))?;
        for table in &directory.tables {
            if table.length_bytes > L1_MAX_BYTES {
                return damage(format!("the L1 table of a snapshot at {} is too large", table.offset_bytes));
            }
            self.claim_table(*table)?;
        }
        Ok(directory.tables)
    }

    /// What snapshots use behind their L1 tables: none of it is metadata, and nobody writes to it in place.
    fn share_with_snapshots(&mut self, l1_tables: &[Table]) -> Result<(), Problem> {
        for (number, window) in self.windows().enumerate() {
            // Snapshots share tables, each of which is looked into once.
            let mut seen = UseMap::new(window.clone());
            for &l1 in l1_tables {
                for table in references::in_l1(self.file, self.header, l1) {
                    let table = table?;
                    self.go_on()?;
                    if !table.is_used() {
                        continue;
                    }
                    if number == 0 {
                        self.share_with_snapshot(&table)?;
                    }
                    let cluster = table.offset_bytes >> self.header.cluster_bits;
                    if !window.contains(&cluster) || seen.claim(cluster..cluster + 1, Use::Once).is_err() {
                        continue;
                    }
                    for cluster in references::in_l2(self.file, self.header, table.offset_bytes) {
                        let cluster = cluster?;
                        if cluster.is_used() {
                            self.share_with_snapshot(&cluster)?;
                        }
                    }
                }
            }
        }
        Ok(())
    }

    fn share_with_snapshot(&mut self, reference: &Reference) -> Result<(), Problem> {
        let clusters = self.clusters_of(reference)?;
        self.check_inside(clusters.end, reference.offset_bytes)?;
        for cluster in clusters {
            match (self.uses.get(cluster), reference.part) {
                (None | Some(Use::Many), Part::Compressed) => self.share(cluster)?,
                (None, _) => self.claim_clusters(cluster..cluster + 1, false)?,
                (Some(Use::Once), Part::L2Table | Part::Data) => match self.shared.get(cluster) {
                    Some(Use::Many) => {}
                    None => {
                        let claimed = self.shared.claim(cluster..cluster + 1, Use::Many);
                        claimed.or_else(|at| self.has_two_uses(at))?;
                    }
                    Some(_) => return self.has_two_uses(cluster),
                },
                _ => return self.has_two_uses(cluster),
            }
        }
        Ok(())
    }

    /// Claims the disk's tables, and what they refer to if `with_data`.
    fn claim_data(&mut self, with_data: bool) -> Result<(), Problem> {
        let (layout, cluster_bytes) = (Layout::of(self.header), self.header.cluster_bytes());
        let mut l1 = Pieces::of(self.file, self.header.l1);
        let mut l2 = Pieces::of(self.file, self.header.l1);
        while let Some((_, piece)) = l1.next()? {
            self.go_on()?;
            self.claim_entries(piece, 1, |entry| Some(references::of_l1_entry(0, entry, cluster_bytes)))?;
            if !with_data {
                continue;
            }
            let offsets = entries_of(piece).map(|entry| entry & OFFSET_MASK).filter(|&offset| offset != 0);
            // In the order in which they lie in the file. Those that follow each other are read as one.
            let mut offsets: Vec<_> = offsets.collect();
            offsets.sort_unstable();
            for tables in offsets.chunk_by(|&one, &next| one + cluster_bytes == next) {
                l2.begin(Table { offset_bytes: tables[0], length_bytes: tables.len() as u64 * cluster_bytes });
                while let Some((_, piece)) = l2.next()? {
                    self.go_on()?;
                    let reference = |entry| references::of_l2_entry(0, entry, layout);
                    self.claim_entries(piece, layout.entry_words(), reference)?;
                }
            }
        }
        Ok(())
    }

    /// Claims what entries refer to, each of which has so many words.
    fn claim_entries(
        &mut self,
        piece: &[u8],
        words: usize,
        reference: impl Fn(u64) -> Option<Reference>,
    ) -> Result<(), Problem> {
        let mut run = Run { first: 0, step: 0, count: 0 };
        let mut next = 0_u64;
        for entry in piece.chunks_exact(words * 8).filter_map(|words| words.first_chunk()) {
            let entry = u64::from_be_bytes(*entry);
            if entry != next {
                self.claim_run(run, &reference)?;
                let step = if entry & OFFSET_MASK == 0 { 0 } else { self.header.cluster_bytes() };
                run = Run { first: entry, step, count: 0 };
            }
            run.count += 1;
            next = entry.wrapping_add(run.step);
        }
        self.claim_run(run, &reference)
    }

    fn claim_run(&mut self, run: Run, reference: impl Fn(u64) -> Option<Reference>) -> Result<(), Problem> {
        let (bits, offset) = (self.header.cluster_bits, run.first & OFFSET_MASK);
        let end = offset + run.count * run.step;
        match reference(run.first) {
            None => Ok(()),
            Some(first) if end <= OFFSET_MASK && !first.is_used() => Ok(()),
            Some(first) if end <= OFFSET_MASK && first.part != Part::Compressed && first.is_aligned(self.header) => {
                self.claim_clusters(offset >> bits..end >> bits, first.is_copied())?;
                self.check_inside(end >> bits, offset.max(self.clusters << bits))
            }
            // Each may be something else.
            Some(_) => {
                let mut each = (0..run.count).filter_map(|index| reference(run.entry(index)));
                each.try_for_each(|one| if one.is_used() { self.claim(&one) } else { Ok(()) })
            }
        }
    }

    fn refcounts_per_block(&self) -> u64 {
        (self.header.cluster_bytes() * 8) >> self.header.refcount_order
    }
}
