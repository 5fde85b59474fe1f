//! The files that the guest knows, by the numbers that it was given for them.

use rustix::fs::{FileType, Stat};
use rustix::io::Errno;
use std::collections::HashMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::sync::Arc;

/// The number of the shared directory itself (FUSE_ROOT_ID).
pub(crate) const ROOT: u64 = 1;

/// A file, held by a descriptor that can neither read nor write it (O_PATH): whatever happens to its names, this is it,
/// and its inode's number is nobody else's.
#[derive(Debug)]
pub(crate) struct Node {
    descriptor: OwnedFd,
    pub(crate) kind: FileType,
    identity: (u64, u64),
}

impl Node {
    /// A node of what `descriptor` is open on, as `stat` says.
    pub(crate) fn new(descriptor: OwnedFd, stat: &Stat) -> Self {
        Self { descriptor, kind: FileType::from_raw_mode(stat.st_mode), identity: (stat.st_dev, stat.st_ino) }
    }
}

impl AsFd for Node {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.descriptor.as_fd()
    }
}

#[derive(Debug)]
struct Known {
    node: Arc<Node>,
    /// How often the guest was told of it since it forgot it.
    lookups: u64,
}

/// All nodes. A number is never used twice, so one that the guest makes up, or kept too long, is none.
#[derive(Debug)]
pub(crate) struct Nodes {
    by_number: HashMap<u64, Known>,
    by_identity: HashMap<(u64, u64), u64>,
    next_number: u64,
    max: usize,
}

impl Nodes {
    /// The shared directory, and room for `max` nodes with it.
    pub(crate) fn new(root: Node, max: usize) -> Self {
        let identity = root.identity;
        let known = Known { node: Arc::new(root), lookups: 1 };
        Self {
            by_number: HashMap::from([(ROOT, known)]),
            by_identity: HashMap::from([(identity, ROOT)]),
            next_number: ROOT + 1,
            max,
        }
    }

    /// The node of this number.
    ///
    /// # Errors
    /// ESTALE if it is nobody's.
    pub(crate) fn get(&self, number: u64) -> Result<Arc<Node>, Errno> {
        self.by_number.get(&number).map(|known| Arc::clone(&known.node)).ok_or(Errno::STALE)
    }

    /// The guest is told of a node: the number of the file that it is.
    ///
    /// # Errors
    /// ENFILE if there are too many.
    pub(crate) fn remember(&mut self, node: Node) -> Result<u64, Errno> {
        if let Some(number) = self.by_identity.get(&node.identity) {
            let known = self.by_number.get_mut(number).ok_or(Errno::IO)?;
            known.lookups = known.lookups.saturating_add(1);
            return Ok(*number);
        }
        if self.by_number.len() >= self.max {
            return Err(Errno::NFILE);
        }
        let number = self.next_number;
        self.next_number += 1;
        self.by_identity.insert(node.identity, number);
        self.by_number.insert(number, Known { node: Arc::new(node), lookups: 1 });
        Ok(number)
    }

    /// The guest forgets that it was told of a node so often.
    pub(crate) fn forget(&mut self, number: u64, count: u64) {
        if number == ROOT {
            return;
        }
        let Some(known) = self.by_number.get_mut(&number) else { return };
        known.lookups = known.lookups.saturating_sub(count);
        if known.lookups == 0 {
            let identity = known.node.identity;
            self.by_identity.remove(&identity);
            self.by_number.remove(&number);
        }
    }

    /// The guest forgets everything but the shared directory.
    pub(crate) fn clear(&mut self) {
        self.by_number.retain(|&number, _| number == ROOT);
        self.by_identity.retain(|_, number| *number == ROOT);
    }

    /// How many there are.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        assert_eq!(self.by_number.len(), self.by_identity.len());
        self.by_number.len()
    }
}
