//! How much space files take: directories with all below them, what has several names once.

use super::file_type::is_directory;
use super::listing::{Place, Visitor, WalkOptions, is_named};
use crate::error::Result;
use crate::guest::OpenImage;
use blockyard_protocol::appliance::Entry;
use std::collections::{HashMap, HashSet};
use std::io;
use std::path::Path;

/// Bytes of a block, as files' blocks are counted (inode(7)).
const BLOCK_BYTES: u64 = 512;
/// Files with several names that are remembered; more than these count as often as they are met.
const SEEN_MAX: usize = 1 << 20;
/// Bytes of the paths of directories that are remembered until they are looked into; the blocks of others count for
/// those that they are in.
const AHEAD_BYTES_MAX: usize = 16 << 20;
/// Directories that one can be in: a path has no more.
const DEPTH_MAX: usize = 4096;

/// What is added up.
#[derive(Clone, Copy, Debug, Default)]
pub struct DiskUsageOptions {
    /// Only what is named is told of, not the directories below.
    pub summarize: bool,
    /// What is mounted below is left out.
    pub one_file_system: bool,
}

/// Whoever is told how much files take, in a thread of its own.
pub trait DiskUsage: Send + 'static {
    /// What comes of it.
    type Output: Send + 'static;

    /// What is at `path`, with all below it, takes so many bytes.
    ///
    /// # Errors
    /// When nothing more is wanted.
    fn takes(&mut self, path: &[u8], bytes: u64) -> io::Result<()>;

    /// There are no more.
    ///
    /// # Errors
    /// When its output fails.
    fn finish(self) -> io::Result<Self::Output>;
}

impl OpenImage {
    /// Tells `listener` how much space files take, directories after those in them. Paths may be patterns, as a shell
    /// has them.
    ///
    /// # Errors
    /// When something cannot be looked at: `listener` was told of all the rest. When `listener` wants no more.
    pub fn disk_usage<P: AsRef<Path>, L: DiskUsage>(
        &mut self,
        sources: impl IntoIterator<Item = P>,
        options: &DiskUsageOptions,
        listener: L,
    ) -> Result<L::Output> {
        let &DiskUsageOptions { summarize, one_file_system } = options;
        let walk = WalkOptions { depth: u32::MAX, one_file_system, ..WalkOptions::default() };
        let sums = Sums {
            listener,
            summarize,
            open: Vec::new(),
            named: None,
            ahead: HashMap::new(),
            ahead_bytes: 0,
            seen: HashSet::new(),
        };
        self.walk(sources, &walk, sums)
    }
}

struct Sums<L> {
    listener: L,
    summarize: bool,
    /// The directories that the walk is in, outermost first: path, depth, blocks of all below so far.
    open: Vec<(Vec<u8>, u32, u64)>,
    /// What was named last: its path, and its own blocks.
    named: Option<(Vec<u8>, u64)>,
    /// Directories that were met and not yet looked into, with their own blocks.
    ahead: HashMap<Vec<u8>, u64>,
    /// Bytes of their paths.
    ahead_bytes: usize,
    seen: HashSet<(u64, u64)>,
}

impl<L: DiskUsage> Sums<L> {
    /// Ends the directories that are at `depth` or deeper.
    fn leave(&mut self, depth: u32) -> io::Result<()> {
        while let Some((path, at, blocks)) = self.open.pop_if(|(_, at, _)| *at >= depth) {
            match self.open.last_mut() {
                Some((_, _, above)) => *above = above.saturating_add(blocks),
                None => {
                    let own = self.named.take().map_or(0, |(_, blocks)| blocks);
                    self.tell(&path, blocks.saturating_add(own))?;
                    continue;
                }
            }
            if !self.summarize && at > 0 {
                self.tell(&path, blocks)?;
            }
        }
        Ok(())
    }

    /// Ends what was named.
    fn leave_all(&mut self) -> io::Result<()> {
        self.leave(0)?;
        match self.named.take() {
            Some((path, blocks)) => self.tell(&path, blocks),
            None => Ok(()),
        }
    }

    fn tell(&mut self, path: &[u8], blocks: u64) -> io::Result<()> {
        self.listener.takes(path, blocks.saturating_mul(BLOCK_BYTES))
    }

    /// Blocks that count for a file: none when it was met under another name.
    fn counted(&mut self, entry: &Entry) -> u64 {
        let several = entry.links > 1 && !is_directory(entry.mode);
        if several && self.seen.len() < SEEN_MAX && !self.seen.insert((entry.device, entry.inode)) {
            return 0;
        }
        entry.blocks
    }
}

impl<L: DiskUsage> Visitor for Sums<L> {
    type Output = L::Output;

    fn directory(&mut self, path: &[u8], depth: u32) -> io::Result<()> {
        self.leave(depth)?;
        let own = match self.ahead.remove(path) {
            Some(own) => {
                self.ahead_bytes -= path.len();
                own
            }
            None => 0,
        };
        if self.open.len() == DEPTH_MAX {
            return Err(io::Error::other("the appliance lists directories deeper than there can be"));
        }
        self.open.push((path.to_vec(), depth, own));
        Ok(())
    }

    fn file(&mut self, place: &Place, entry: Entry) -> io::Result<()> {
        if is_named(&entry) {
            self.leave_all()?;
            let blocks = self.counted(&entry);
            self.named = Some((entry.name, blocks));
            return Ok(());
        }
        let blocks = self.counted(&entry);
        let Some((_, _, sum)) = self.open.last_mut() else { return Ok(()) };
        if is_directory(entry.mode) && self.ahead_bytes < AHEAD_BYTES_MAX {
            let below = place.path(&entry);
            let length = below.len();
            if self.ahead.insert(below, blocks).is_none() {
                self.ahead_bytes += length;
            }
        } else {
            *sum = sum.saturating_add(blocks);
        }
        Ok(())
    }

    fn finish(mut self) -> io::Result<Self::Output> {
        self.leave_all()?;
        self.listener.finish()
    }
}
