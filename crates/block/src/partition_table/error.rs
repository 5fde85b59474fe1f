//! Why a disk has no partition table to go by, what is odd about one, and why a partition is not to be had.

use crate::{Remedy, explain};
use std::io;

/// Why there is no telling which partitions a disk has.
#[derive(Debug, thiserror::Error)]
pub enum PartitionTableError {
    /// The disk could not be read.
    #[error("cannot read the partition table")]
    Read(#[from] io::Error),
    /// Both tables are valid and say different things.
    #[error("the disk has two valid partition tables, an MBR and a GPT, that differ: say which one counts")]
    Ambiguous,
    /// The protective MBR promises a GPT that is not there or is broken.
    #[error("the partition table (GPT) is damaged: at the start of the disk {primary}; at its end {backup}")]
    DamagedGpt {
        /// What is wrong with the primary copy.
        primary: GptFault,
        /// What is wrong with the backup.
        backup: GptFault,
    },
    /// The GPT is where it belongs on a disk with other blocks.
    #[error(
        "the partition table (GPT) was made for logical blocks of {found_bytes} bytes, and this disk has {block_bytes}: open it with block-size={found_bytes}"
    )]
    OtherBlockSize {
        /// The block size that the table is made for.
        found_bytes: u64,
        /// The disk's.
        block_bytes: u64,
    },
    /// An MBR was asked for.
    #[error("the disk has no MBR: its first sector is not a partition table")]
    NoMbr,
    /// An MBR was asked for, and it only protects a GPT.
    #[error("the disk's MBR has no partitions of its own, it only says that there is a GPT: use that")]
    OnlyProtective,
    /// A GPT was asked for.
    #[error("the disk has no GPT")]
    NoGpt,
}

impl PartitionTableError {
    /// The whole sentence, with its cause and with what to do about it where a choice of the table would help; `option`
    /// is what stands before a table's name where the user makes that choice, `table=` for example.
    #[must_use]
    pub fn advising(&self, option: &str) -> String {
        match self {
            Self::Ambiguous => format!("{self}, with {option}mbr or {option}gpt"),
            Self::OnlyProtective => format!("{self}, with {option}gpt"),
            _ => explain(self),
        }
    }
}

/// What is wrong with a copy of a GPT.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum GptFault {
    /// There is none.
    #[error("there is none")]
    Absent,
    /// The disk fails there.
    #[error("it cannot be read: {0}")]
    Unreadable(String),
    /// The header's length is less than it must be, or more than a block.
    #[error("its header claims to have {0} bytes")]
    HeaderLength(u32),
    /// The header is not what it was when it was written.
    #[error("the checksum of its header is wrong")]
    HeaderChecksum,
    /// The header was written for another place.
    #[error("its header belongs in block {0}")]
    HeaderPlace(u64),
    /// Entries have an impossible length.
    #[error("its entries claim to have {0} bytes each, which is not 128 times a power of two")]
    EntryLength(u32),
    /// More entries than we read, or none.
    #[error("it claims to have {0} entries")]
    EntryCount(u32),
    /// What it has for partitions is no part of this disk, or covers the table.
    #[error("its range for partitions is no part of the disk: was the disk made smaller?")]
    Usable,
    /// The array of entries lies outside the disk, or where partitions are.
    #[error("its array of entries is not where one can be")]
    ArrayPlace,
    /// The entries are not what they were when they were written.
    #[error("the checksum of its entries is wrong")]
    ArrayChecksum,
}

/// What is odd about a table, without making it useless.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Warning {
    /// An entry that cannot be a partition of this disk.
    #[error("partition {number} is left out: {why}")]
    LeftOut {
        /// The number that it would have.
        number: u32,
        /// Why it is none.
        why: LeftOut,
    },
    /// Two partitions share bytes; for each partition, one other is named.
    #[error("partitions {first} and {second} overlap: they can only be read")]
    Overlap {
        /// The one that starts first.
        first: u32,
        /// The other.
        second: u32,
    },
    /// A partition covers bytes of the table.
    #[error("partition {0} lies over the partition table itself: it can only be read")]
    CoversTable(u32),
    /// A partition ends behind the disk's last block.
    #[error("partition {0} reaches past the end of the disk: what there is of it can only be read")]
    CutOff(u32),
    /// A chain of logical partitions comes back to where it was.
    #[error("the chain of logical partitions loops: what comes after partition {last} is unknown")]
    ChainLoops {
        /// The last partition found.
        last: u32,
    },
    /// A chain of logical partitions leads out of its extended partition.
    #[error(
        "the chain of logical partitions leads out of the extended partition: what comes after partition {last} is unknown"
    )]
    ChainLeaves {
        /// The last partition found.
        last: u32,
    },
    /// A link of the chain is no boot record.
    #[error("the chain of logical partitions is broken: what comes after partition {last} is unknown")]
    ChainBroken {
        /// The last partition found.
        last: u32,
    },
    /// More logical partitions than Linux counts.
    #[error("there are more logical partitions than {0}: the others are left out")]
    TooMany(u32),
    /// The primary copy cannot be used.
    #[error("the GPT at the start of the disk cannot be used ({0}): its backup counts")]
    PrimaryDamaged(GptFault),
    /// The backup copy cannot be used.
    #[error("the backup of the GPT cannot be used ({0}): a tool such as sgdisk can write it anew")]
    BackupDamaged(GptFault),
    /// Both copies are valid and say different things.
    #[error("the GPT and its backup differ: the one at the start of the disk counts")]
    CopiesDiffer,
    /// The disk was probably made larger.
    #[error("the backup of the GPT does not lie at the end of the disk: was the disk made larger?")]
    BackupNotAtEnd,
    /// A GPT without the MBR that protects it from old tools.
    #[error("there is no protective MBR for the GPT")]
    NoProtectiveMbr,
    /// An MBR that shows some of the GPT's partitions to old systems.
    #[error("the MBR is a hybrid that repeats partitions of the GPT: the GPT counts")]
    HybridMbr,
    /// Something of a GPT on a disk that is used otherwise.
    #[error("there are remains of a GPT, which do not count without a protective MBR; {}", Remedy::UseGpt)]
    RemainsOfGpt,
}

/// Why an entry of a table is no partition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LeftOut {
    /// It ends behind the disk's last block.
    #[error("it reaches past the end of the disk")]
    PastTheEnd,
    /// It does not lie where the GPT's header says that partitions lie.
    #[error("it lies outside the range that the GPT has for partitions")]
    NotUsable,
    /// Its last block is before its first.
    #[error("it ends before it starts")]
    Reversed,
    /// A logical partition that does not lie within its extended one.
    #[error("it lies outside the extended partition")]
    OutsideExtended,
}

/// Why a partition is not to be had.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PartitionError {
    /// No such number; which there are, as text.
    #[error("there is no partition {number}: the disk has {}", if .there.is_empty() { "none" } else { .there })]
    Absent {
        /// The number asked for.
        number: u32,
        /// Those that there are.
        there: String,
    },
    /// The entry is not valid.
    #[error("partition {number} cannot be used: {why}")]
    LeftOut {
        /// The number asked for.
        number: u32,
        /// What is wrong with it.
        why: LeftOut,
    },
    /// An extended partition.
    #[error("partition {0} is an extended partition, which has nothing of its own: use the logical ones in it, from 5")]
    Container(u32),
    /// Writing would change another partition.
    #[error("partition {number} overlaps partition {other}: it can only be read")]
    Overlaps {
        /// The number asked for.
        number: u32,
        /// A partition that it shares bytes with.
        other: u32,
    },
    /// Writing would change the table.
    #[error("partition {0} lies over the partition table itself: it can only be read")]
    CoversTable(u32),
    /// Writing would change a part of something whose rest is missing.
    #[error("partition {0} reaches past the end of the disk: it can only be read")]
    CutOff(u32),
}
