//! The memory regions that a server maps.

use super::connection::{Connection, RegionMessage};
use super::error::SessionError;
use super::offer::Offer;
use blockyard_block::MemoryMap;
use rustix::fs::fstat;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::sync::Arc;

/// Where regions begin in the server's addresses, and what they are aligned to: whole huge pages. Addresses are this
/// table's own choice, so the server learns none of this process's.
const ADDRESS_ALIGN: u64 = 2 << 20;
/// Most of the slots that are kept for queues that are still to be opened.
const RESERVED_SLOTS_MAX: usize = 4;

/// A region's name in its table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RegionId(u64);

/// What makes two regions the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Identity {
    device: u64,
    inode: u64,
    file_offset_bytes: u64,
    length_bytes: u64,
}

#[derive(Debug)]
struct Region {
    id: RegionId,
    address: u64,
    identity: Identity,
    file: File,
    /// Queues that use it.
    users: usize,
    /// Whether it is a queue's own memory, which no other server shall see.
    private: bool,
    /// Whether the server has been told of it.
    announced: bool,
}

impl Region {
    fn message(&self) -> RegionMessage<'_> {
        RegionMessage {
            address: self.address,
            length_bytes: self.identity.length_bytes,
            file_offset_bytes: self.identity.file_offset_bytes,
            file: self.file.as_fd(),
        }
    }
}

/// The regions that a server maps, or is about to.
#[derive(Debug)]
pub(super) struct MemoryTable {
    slots: usize,
    regions: Vec<Region>,
    next_id: u64,
}

/// There is no slot left for a region.
#[derive(Debug)]
pub(super) struct TableFull;

impl MemoryTable {
    pub(super) fn new(slots: usize) -> Self {
        Self { slots, regions: Vec::new(), next_id: 0 }
    }

    pub(super) fn slots(&self) -> usize {
        self.slots
    }

    /// Forgets what the server was told, and every queue's own memory: for a new server.
    pub(super) fn reset(&mut self, slots: usize) {
        self.slots = slots;
        self.regions.retain(|region| !region.private && region.users > 0);
        for region in &mut self.regions {
            region.announced = false;
        }
    }

    /// Where the server finds a region.
    pub(super) fn address(&self, id: RegionId) -> u64 {
        self.regions.iter().find(|region| region.id == id).map_or(0, |region| region.address)
    }

    /// Takes a queue's own memory in.
    pub(super) fn insert_private(&mut self, memory: &MemoryMap) -> io::Result<Result<RegionId, TableFull>> {
        self.forget_unused();
        let Some((identity, file)) = describe(memory)?.and_then(|mut regions| regions.pop()) else {
            return Ok(Err(TableFull));
        };
        if self.regions.len() >= self.slots {
            return Ok(Err(TableFull));
        }
        Ok(Ok(self.insert(identity, file, true)))
    }

    /// Takes all regions of a queue's memory map in, or none, as where they are this process's alone. Some slots stay
    /// free for the `queues_left` queues that can still be opened.
    pub(super) fn share(&mut self, memory: &MemoryMap, queues_left: usize) -> io::Result<Option<Vec<RegionId>>> {
        self.forget_unused();
        let Some(regions) = describe(memory)? else { return Ok(None) };
        let fresh = regions.iter().filter(|(identity, _)| self.find(identity).is_none()).count();
        let reserved = queues_left.min(RESERVED_SLOTS_MAX);
        if self.regions.len() + fresh + reserved > self.slots {
            return Ok(None);
        }
        let ids = regions.into_iter().map(|(identity, file)| match self.find(&identity) {
            Some(index) => {
                self.regions[index].users += 1;
                self.regions[index].id
            }
            None => self.insert(identity, file, false),
        });
        Ok(Some(ids.collect()))
    }

    /// Gives regions back. Where the server can be told, it is.
    pub(super) fn release(
        &mut self,
        ids: impl IntoIterator<Item = RegionId>,
        connection: Option<(&Connection, &Offer)>,
    ) -> Result<(), SessionError> {
        for id in ids {
            let Some(index) = self.regions.iter().position(|region| region.id == id) else { continue };
            self.regions[index].users -= 1;
            if self.regions[index].users > 0 {
                continue;
            }
            match connection {
                Some((connection, offer)) if offer.adds_regions() => {
                    let region = self.regions.swap_remove(index);
                    if region.announced {
                        connection.remove_region(&region.message())?;
                    }
                }
                // It stays mapped until the table is set anew. Nothing points there any more.
                _ => {}
            }
        }
        Ok(())
    }

    /// Whether the server has to be told of a region.
    pub(super) fn has_news(&self) -> bool {
        self.regions.iter().any(|region| !region.announced)
    }

    /// Tells the server of all regions that it does not know.
    pub(super) fn announce(&mut self, connection: &Connection, offer: &Offer) -> Result<(), SessionError> {
        if offer.adds_regions() {
            for region in self.regions.iter_mut().filter(|region| !region.announced) {
                connection.add_region(&region.message())?;
                region.announced = true;
            }
            return Ok(());
        }
        let messages: Vec<_> = self.regions.iter().map(Region::message).collect();
        connection.set_table(&messages)?;
        self.regions.iter_mut().for_each(|region| region.announced = true);
        Ok(())
    }

    fn find(&self, identity: &Identity) -> Option<usize> {
        self.regions.iter().position(|region| !region.private && region.identity == *identity)
    }

    fn insert(&mut self, identity: Identity, file: File, private: bool) -> RegionId {
        let id = RegionId(self.next_id);
        self.next_id += 1;
        let address = self.free_address(identity.length_bytes);
        self.regions.push(Region { id, address, identity, file, users: 1, private, announced: false });
        id
    }

    /// The lowest address that has room. There is always one: all regions are mapped here, too, so together they are
    /// smaller than half of all addresses.
    fn free_address(&self, length_bytes: u64) -> u64 {
        let mut taken: Vec<_> =
            self.regions.iter().map(|region| (region.address, region.address + region.identity.length_bytes)).collect();
        taken.sort_unstable();
        let mut address = ADDRESS_ALIGN;
        for (start, end) in taken {
            if address + length_bytes <= start {
                break;
            }
            address = address.max(end.next_multiple_of(ADDRESS_ALIGN));
        }
        address
    }

    fn forget_unused(&mut self) {
        self.regions.retain(|region| region.users > 0);
    }
}

/// What each region of a memory map is, and its file, if other processes can have it.
fn describe(memory: &MemoryMap) -> io::Result<Option<Vec<(Identity, File)>>> {
    let Some(regions) = memory.shared_regions() else { return Ok(None) };
    let described = regions.map(|(_, length_bytes, file, file_offset_bytes)| {
        // By the descriptor alone, which leaves names out of what a confined thread may ask for.
        let stat = fstat(file)?;
        let identity = Identity { device: stat.st_dev, inode: stat.st_ino, file_offset_bytes, length_bytes };
        Ok((identity, file.try_clone()?))
    });
    described.collect::<io::Result<_>>().map(Some)
}

impl TableFull {
    pub(super) fn into_session_error(self, socket: &Arc<str>, slots: usize) -> SessionError {
        SessionError::NoMemorySlot { socket: Arc::clone(socket), slots }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(bytes: &[usize]) -> MemoryMap {
        let layout: Vec<_> = bytes.iter().enumerate().map(|(index, &bytes)| ((index as u64) << 32, bytes)).collect();
        MemoryMap::allocate(&layout).unwrap()
    }

    #[test]
    fn queues_that_share_a_memory_map_share_its_regions() {
        let mut table = MemoryTable::new(8);
        let memory = map(&[4096, 5 << 20]);
        let first = table.share(&memory, 0).unwrap().unwrap();
        assert_eq!(table.share(&memory.clone(), 0).unwrap().unwrap(), first);
        assert_eq!(table.regions.len(), 2);
        table.release(first.clone(), None).unwrap();
        assert!(table.share(&map(&[4096]), 0).unwrap().is_some());
        assert_eq!(table.regions.len(), 3, "still in use");
        table.release(first, None).unwrap();
        table.forget_unused();
        assert_eq!(table.regions.len(), 1);
    }

    #[test]
    fn regions_do_not_overlap_and_gaps_are_filled() {
        let mut table = MemoryTable::new(100);
        let sizes = [4096, 7 << 20, 1 << 20, 3 << 20, 2 << 20];
        let mut ids: Vec<_> = sizes.iter().map(|&bytes| table.share(&map(&[bytes]), 0).unwrap().unwrap()[0]).collect();
        table.release([ids.remove(1)], None).unwrap();
        for bytes in [2 << 20, 4096, 6 << 20] {
            table.share(&map(&[bytes]), 0).unwrap().unwrap();
        }
        let mut taken: Vec<_> =
            table.regions.iter().map(|region| (region.address, region.identity.length_bytes)).collect();
        taken.sort_unstable();
        assert!(taken.windows(2).all(|pair| pair[0].0 + pair[0].1 <= pair[1].0), "{taken:x?}");
        assert!(taken.iter().all(|(address, _)| address % ADDRESS_ALIGN == 0 && *address > 0));
    }

    #[test]
    fn a_map_that_does_not_fit_is_not_shared_and_queues_to_come_keep_their_slot() {
        let mut table = MemoryTable::new(4);
        table.insert_private(&map(&[4096])).unwrap().unwrap();
        assert!(table.share(&map(&[4096; 4]), 0).unwrap().is_none());
        assert!(table.share(&map(&[4096; 3]), 1).unwrap().is_none());
        assert_eq!(table.regions.len(), 1);
        assert!(table.share(&map(&[4096; 2]), 1).unwrap().is_some());
        table.insert_private(&map(&[4096])).unwrap().unwrap();
        assert!(table.insert_private(&map(&[4096])).unwrap().is_err());
    }

    #[test]
    fn a_new_server_sees_no_old_queues_memory() {
        let mut table = MemoryTable::new(4);
        let private = table.insert_private(&map(&[4096])).unwrap().unwrap();
        let shared = table.share(&map(&[4096]), 0).unwrap().unwrap()[0];
        let address = table.address(shared);
        table.reset(4);
        assert_eq!((table.regions.len(), table.address(shared), table.address(private)), (1, address, 0));
        assert!(table.has_news());
    }
}
