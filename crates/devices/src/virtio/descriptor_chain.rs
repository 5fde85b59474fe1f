//! Following a chain of descriptors that a driver made available.

use blockyard_block::MemoryMap;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

const DESCRIPTOR_BYTES: u32 = 16;

/// Descriptors that a chain may have, those of an indirect table included, unless its queue has more. A chain longer
/// than its queue is against the rules (virtio 1.2 §2.7.5.3.1), but drivers make such, and this is as long as QEMU
/// takes them.
const CHAIN_DESCRIPTORS_MAX: u16 = 1024;

/// A descriptor (virtio 1.2 §2.7.5), copied out of shared memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Descriptor {
    pub(crate) address: u64,
    pub(crate) length_bytes: u32,
    flags: u16,
    next: u16,
}

impl Descriptor {
    const NEXT: u16 = 1;
    const WRITE: u16 = 2;
    const INDIRECT: u16 = 4;

    /// From its two words of 64 bits.
    fn new(address: u64, rest: u64) -> Self {
        Self { address, length_bytes: rest as u32, flags: (rest >> 32) as u16, next: (rest >> 48) as u16 }
    }

    /// Whether the device writes the buffer, rather than reads it.
    pub(crate) fn is_write_only(self) -> bool {
        self.flags & Self::WRITE != 0
    }
}

/// Why a chain of descriptors cannot be followed to its end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ChainFault {
    /// The chain's head, or a `next`, is outside the table.
    #[error("descriptor index {index} is outside the table of {size}")]
    Index {
        /// The index.
        index: u16,
        /// Entries of the table.
        size: u16,
    },
    /// The chain has more descriptors than its table: it loops.
    #[error("a descriptor chain loops: it goes on after {size} descriptors, all that its table has")]
    Loop {
        /// Entries of the table.
        size: u16,
    },
    /// The chain has more descriptors than any may have.
    #[error("a descriptor chain goes on after {max} descriptors, the most that one may have")]
    TooMany {
        /// The most that it may have.
        max: u16,
    },
    /// The buffers' lengths add up to 4 GiB or more (virtio 1.2 §2.7.5.2).
    #[error("a descriptor chain is longer than 4 GiB")]
    TooLong,
    /// An indirect descriptor although the feature was not negotiated (§2.7.5.3.1).
    #[error("an indirect descriptor, but VIRTIO_F_INDIRECT_DESC was not negotiated")]
    IndirectNotNegotiated,
    /// An indirect descriptor inside an indirect table (§2.7.5.3.1).
    #[error("an indirect descriptor in an indirect table")]
    IndirectNested,
    /// An indirect descriptor that has a next one (§2.7.5.3.1).
    #[error("an indirect descriptor with a next one")]
    IndirectWithNext,
    /// An indirect table that is empty, not made of whole descriptors, or has more than an index can reach.
    #[error("an indirect table of {length_bytes} bytes")]
    IndirectLength {
        /// Its length.
        length_bytes: u32,
    },
    /// Something to be read after something to be written (§2.7.4.2).
    #[error("a readable descriptor after a writable one")]
    ReadableAfterWritable,
    /// A descriptor that does not lie in guest memory.
    #[error("a descriptor at {address:#x} is not in the guest's memory")]
    Outside {
        /// Where it would be.
        address: u64,
    },
}

/// A chain of descriptors: each is read once, and there are never more than its table has, nor than a chain may have.
pub(crate) struct DescriptorChain<'a> {
    memory: &'a MemoryMap,
    table: Table<'a>,
    table_size: u16,
    /// Descriptors that may still come from this table.
    left: u16,
    /// What is wrong if more come.
    beyond: ChainFault,
    next: Option<u16>,
    length_bytes: u32,
    indirect: Indirect,
}

/// A table of descriptors.
#[derive(Clone, Copy)]
enum Table<'a> {
    Words(&'a [AtomicU64]),
    /// At this address, not in one region or not aligned, or outside.
    Anywhere(u64),
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Indirect {
    NotNegotiated,
    Allowed,
    Inside,
}

impl<'a> DescriptorChain<'a> {
    /// The chain from `head` of the queue's own table, of two words for each descriptor.
    pub(crate) fn new(memory: &'a MemoryMap, table: &'a [AtomicU64], head: u16, indirect_negotiated: bool) -> Self {
        let indirect = if indirect_negotiated { Indirect::Allowed } else { Indirect::NotNegotiated };
        // A queue has no more descriptors than that.
        let table_size = (table.len() / 2) as u16;
        let table = Table::Words(table);
        let beyond = ChainFault::Loop { size: table_size };
        Self { memory, table, table_size, left: table_size, beyond, next: Some(head), length_bytes: 0, indirect }
    }

    /// The next descriptor, never an indirect one; `None` at the chain's proper end. Nothing comes after a fault.
    pub(crate) fn next(&mut self) -> Result<Option<Descriptor>, ChainFault> {
        let Some(index) = self.next.take() else { return Ok(None) };
        let mut descriptor = self.read(index)?;
        if descriptor.flags & Descriptor::INDIRECT != 0 {
            self.enter_table(descriptor)?;
            descriptor = self.read(0)?;
            if descriptor.flags & Descriptor::INDIRECT != 0 {
                return Err(ChainFault::IndirectNested);
            }
        }
        self.length_bytes = self.length_bytes.checked_add(descriptor.length_bytes).ok_or(ChainFault::TooLong)?;
        if descriptor.flags & Descriptor::NEXT != 0 {
            self.next = Some(descriptor.next);
        }
        Ok(Some(descriptor))
    }

    fn read(&mut self, index: u16) -> Result<Descriptor, ChainFault> {
        let size = self.table_size;
        if index >= size {
            return Err(ChainFault::Index { index, size });
        }
        self.left = self.left.checked_sub(1).ok_or(self.beyond)?;
        let address = match self.table {
            Table::Words(words) => {
                let [address, rest] =
                    [0, 1].map(|half| u64::from_le(words[2 * usize::from(index) + half].load(Relaxed)));
                return Ok(Descriptor::new(address, rest));
            }
            Table::Anywhere(table) => table.checked_add(u64::from(index) * u64::from(DESCRIPTOR_BYTES)),
        };
        let address = address.ok_or(ChainFault::Outside { address: u64::MAX })?;
        let bytes = self.memory.read::<16>(address).ok_or(ChainFault::Outside { address })?;
        let whole = u128::from_le_bytes(bytes);
        Ok(Descriptor::new(whole as u64, (whole >> 64) as u64))
    }

    fn enter_table(&mut self, descriptor: Descriptor) -> Result<(), ChainFault> {
        match self.indirect {
            Indirect::NotNegotiated => return Err(ChainFault::IndirectNotNegotiated),
            Indirect::Inside => return Err(ChainFault::IndirectNested),
            Indirect::Allowed => self.indirect = Indirect::Inside,
        }
        if descriptor.flags & Descriptor::NEXT != 0 {
            return Err(ChainFault::IndirectWithNext);
        }
        let length_bytes = descriptor.length_bytes;
        let bad_length = ChainFault::IndirectLength { length_bytes };
        if length_bytes == 0 || !length_bytes.is_multiple_of(DESCRIPTOR_BYTES) {
            return Err(bad_length);
        }
        // The indirect descriptor itself is none of the chain's buffers.
        let direct = self.table_size - self.left - 1;
        let max = self.table_size.max(CHAIN_DESCRIPTORS_MAX);
        self.table_size = u16::try_from(length_bytes / DESCRIPTOR_BYTES).map_err(|_| bad_length)?;
        let words = self.memory.words(descriptor.address, 2 * usize::from(self.table_size));
        self.table = words.map_or(Table::Anywhere(descriptor.address), Table::Words);
        self.left = self.table_size.min(max - direct);
        self.beyond = if self.left < self.table_size {
            ChainFault::TooMany { max }
        } else {
            ChainFault::Loop { size: self.table_size }
        };
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::ChainFault::*;
    use super::*;
    use vm_memory::{Bytes, GuestAddress};

    const NEXT: u16 = 1;
    const INDIRECT: u16 = 4;
    const MEMORY_BYTES: usize = 0x20_0000;

    /// Addresses of the buffers of the chain from descriptor 0 of a table of four at 0x1000, and how it ends. The
    /// indirect table is at 0x2000.
    fn follow(
        table: &[(u64, u32, u16, u16)],
        indirect_table: &[(u64, u32, u16, u16)],
        negotiated: bool,
    ) -> (Vec<u64>, Option<ChainFault>) {
        follow_in(4, table, indirect_table, negotiated)
    }

    /// The same in a queue of `size`.
    fn follow_in(
        size: usize,
        table: &[(u64, u32, u16, u16)],
        indirect_table: &[(u64, u32, u16, u16)],
        negotiated: bool,
    ) -> (Vec<u64>, Option<ChainFault>) {
        let map = MemoryMap::allocate(&[(0, MEMORY_BYTES)]).unwrap();
        for (base, descriptors) in [(0x1000, table), (0x2000, indirect_table)] {
            for (index, &(address, length, flags, next)) in descriptors.iter().enumerate() {
                let rest = u64::from(length) | u64::from(flags) << 32 | u64::from(next) << 48;
                let place = GuestAddress(base + 16 * index as u64);
                map.guest_memory().write_obj([address.to_le(), rest.to_le()], place).unwrap();
            }
        }
        let mut chain = DescriptorChain::new(&map, map.words(0x1000, 2 * size).unwrap(), 0, negotiated);
        let mut addresses = Vec::new();
        let fault = loop {
            match chain.next() {
                Ok(Some(descriptor)) => addresses.push(descriptor.address),
                Ok(None) => break None,
                Err(fault) => break Some(fault),
            }
        };
        assert!(chain.next().is_ok_and(|descriptor| descriptor.is_none()), "it has ended");
        (addresses, fault)
    }

    #[test]
    fn whole_chains() {
        assert_eq!(
            follow(&[(1, 8, NEXT, 3), (0, 0, 0, 0), (0, 0, 0, 0), (2, 8, 0, 0)], &[], false),
            (vec![1, 2], None)
        );
        let all = [(1, 1, NEXT, 1), (2, 1, NEXT, 2), (3, 1, NEXT, 3), (4, 1, 0, 9)];
        assert_eq!(follow(&all, &[], false), (vec![1, 2, 3, 4], None));
        let table = [(1, 1, NEXT, 1), (0x2000, 96, INDIRECT, 0)];
        let inner: Vec<_> = (0..6).map(|i| (10 + u64::from(i), 1, if i < 5 { NEXT } else { 0 }, i + 1)).collect();
        assert_eq!(follow(&table, &inner, true), (vec![1, 10, 11, 12, 13, 14, 15], None), "longer than the queue");
    }

    #[test]
    fn no_chain_is_longer_than_any_may_be() {
        let table = [(7, 1, NEXT, 1), (0x2000, 16 * 2000, INDIRECT, 0)];
        let inner =
            |length: u16| (1..=length).map(|i| (8, 1, if i < length { NEXT } else { 0 }, i)).collect::<Vec<_>>();
        for (size, max) in [(4, 1024), (1500, 1500)] {
            for (table, length) in [(&table[1..], max), (&table[..], max - 1)] {
                let (addresses, fault) = follow_in(size, table, &inner(length), true);
                assert_eq!((addresses.len(), fault), (max.into(), None), "the table may be larger");
                let (addresses, fault) = follow_in(size, table, &inner(length + 1), true);
                assert_eq!((addresses.len(), fault), (max.into(), Some(TooMany { max })));
            }
        }
    }

    #[test]
    fn faults() {
        assert_eq!(follow(&[(1, 8, NEXT, 4)], &[], true), (vec![1], Some(Index { index: 4, size: 4 })));
        assert_eq!(follow(&[(1, 8, NEXT, 0)], &[], true), (vec![1; 4], Some(Loop { size: 4 })));
        assert_eq!(follow(&[(1, u32::MAX, NEXT, 1), (2, 1, 0, 0)], &[], true), (vec![1], Some(TooLong)));
        let indirect = (0x2000, 32, INDIRECT, 0);
        assert_eq!(follow(&[indirect], &[(1, 1, 0, 0)], false), (vec![], Some(IndirectNotNegotiated)));
        assert_eq!(follow(&[indirect], &[indirect], true), (vec![], Some(IndirectNested)));
        assert_eq!(follow(&[indirect], &[(1, 1, NEXT, 1), indirect], true), (vec![1], Some(IndirectNested)));
        assert_eq!(follow(&[indirect], &[(1, 1, NEXT, 0)], true), (vec![1, 1], Some(Loop { size: 2 })));
        assert_eq!(follow(&[(0x2000, 32, INDIRECT | NEXT, 0)], &[], true), (vec![], Some(IndirectWithNext)));
        for length_bytes in [0, 15, 17, 0x10_0000, u32::MAX] {
            let fault = IndirectLength { length_bytes };
            assert_eq!(follow(&[(0x2000, length_bytes, INDIRECT, 0)], &[], true), (vec![], Some(fault)));
        }
        for address in [MEMORY_BYTES as u64, MEMORY_BYTES as u64 - 8, u64::MAX - 15, u64::MAX] {
            let (addresses, fault) = follow(&[(address, 16, INDIRECT, 0)], &[], true);
            assert_eq!((addresses, fault), (vec![], Some(Outside { address })));
        }
    }
}
