//! What a partition says it is for.

use super::Scheme;
use super::guid::Guid;
use std::fmt;

/// The type of a partition, as its table stores it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum PartitionKind {
    /// The type byte of an MBR entry.
    Mbr(u8),
    /// The type GUID of a GPT entry.
    Gpt(Guid),
}

impl PartitionKind {
    /// What people call it; `None` for a type that is not in our lists.
    pub fn name(self) -> Option<&'static str> {
        match self {
            Self::Mbr(id) => MBR_NAMES.iter().find(|(known, _)| *known == id).map(|(_, name)| *name),
            Self::Gpt(guid) => {
                GPT_NAMES.iter().find(|(known, _)| Guid::from_number(*known) == guid).map(|(_, name)| *name)
            }
        }
    }

    /// The type that a word stands for in tables of this scheme: one of [`PartitionKind::words`], or the type as tables
    /// write it.
    pub fn of_word(word: &str, scheme: Scheme) -> Option<Self> {
        let known = WORDS.iter().find(|(known, ..)| known.eq_ignore_ascii_case(word));
        match (scheme, known) {
            (Scheme::Gpt, Some((_, guid, _))) => guid.map(|number| Self::Gpt(Guid::from_number(number))),
            (Scheme::Mbr, Some((_, _, id))) => id.map(Self::Mbr),
            (Scheme::Gpt, None) => word.parse().ok().filter(|&guid| guid != Guid::ZERO).map(Self::Gpt),
            (Scheme::Mbr, None) => {
                let digits = word.trim_start_matches("0x");
                let id = u8::from_str_radix(digits, 16).ok().filter(|&id| id != 0 && digits.len() <= 2);
                id.map(Self::Mbr)
            }
        }
    }

    /// The words for types in tables of this scheme.
    pub fn words(scheme: Scheme) -> impl Iterator<Item = &'static str> {
        let has = move |(_, guid, id): &(&str, Option<u128>, Option<u8>)| match scheme {
            Scheme::Gpt => guid.is_some(),
            Scheme::Mbr => id.is_some(),
        };
        WORDS.iter().filter(move |known| has(known)).map(|(word, ..)| *word)
    }

    /// Whether it is an extended partition of an MBR, which only holds others: types 05, 0f and 85.
    pub fn is_extended(self) -> bool {
        matches!(self, Self::Mbr(0x05 | 0x0f | 0x85))
    }
}

/// The type as tables and other tools write it: `83`, `0FC63DAF-8483-4772-8E79-3D69D8477DE4`.
impl fmt::Display for PartitionKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Mbr(id) => write!(formatter, "{id:02x}"),
            Self::Gpt(guid) => write!(formatter, "{guid}"),
        }
    }
}

/// Words for types of new partitions: a GPT's type, an MBR's.
const WORDS: [(&str, Option<u128>, Option<u8>); 12] = [
    ("linux", Some(0x0fc63daf_8483_4772_8e79_3d69d8477de4), Some(0x83)),
    ("esp", Some(0xc12a7328_f81f_11d2_ba4b_00a0c93ec93b), Some(0xef)),
    ("swap", Some(0x0657fd6d_a4ab_43c4_84e5_0933c84b4f4f), Some(0x82)),
    ("bios", Some(0x21686148_6449_6e6f_744e_656564454649), None),
    ("boot", Some(0xbc13c2ff_59e6_4262_a352_b275fd6f7172), None),
    ("root", Some(0x4f68bce3_e8cd_4db1_96e7_fbcaf984b709), None),
    ("home", Some(0x933ac7e1_2eb4_4f13_b844_0e14e2aef915), None),
    ("data", Some(0xebd0a0a2_b9e5_4433_87c0_68b6b72699c7), Some(0x07)),
    ("fat32", None, Some(0x0c)),
    ("lvm", Some(0xe6d6d379_f507_44c2_a23c_238f2a3df928), Some(0x8e)),
    ("raid", Some(0xa19d880f_05fc_4d3b_a006_743f0f84911e), Some(0xfd)),
    ("luks", Some(0xca7d7ccb_63ed_4c53_861c_1742536059cc), None),
];

/// The names are sfdisk's, so that people find what they know.
const MBR_NAMES: [(u8, &str); 30] = [
    (0x01, "FAT12"),
    (0x04, "FAT16 <32M"),
    (0x05, "Extended"),
    (0x06, "FAT16"),
    (0x07, "HPFS/NTFS/exFAT"),
    (0x0b, "W95 FAT32"),
    (0x0c, "W95 FAT32 (LBA)"),
    (0x0e, "W95 FAT16 (LBA)"),
    (0x0f, "W95 Ext'd (LBA)"),
    (0x11, "Hidden FAT12"),
    (0x12, "Compaq diagnostics"),
    (0x1b, "Hidden W95 FAT32"),
    (0x1c, "Hidden W95 FAT32 (LBA)"),
    (0x27, "Hidden NTFS WinRE"),
    (0x39, "Plan 9"),
    (0x41, "PPC PReP Boot"),
    (0x82, "Linux swap / Solaris"),
    (0x83, "Linux"),
    (0x85, "Linux extended"),
    (0x8e, "Linux LVM"),
    (0xa5, "FreeBSD"),
    (0xa6, "OpenBSD"),
    (0xa9, "NetBSD"),
    (0xaf, "HFS / HFS+"),
    (0xbf, "Solaris"),
    (0xda, "Non-FS data"),
    (0xee, "GPT"),
    (0xef, "EFI (FAT-12/16/32)"),
    (0xfb, "VMware VMFS"),
    (0xfd, "Linux raid autodetect"),
];

/// The names are sfdisk's; more types are in the Discoverable Partitions Specification.
const GPT_NAMES: [(u128, &str); 30] = [
    (0xc12a7328_f81f_11d2_ba4b_00a0c93ec93b, "EFI System"),
    (0x024dee41_33e7_11d3_9d69_0008c781f39f, "MBR partition scheme"),
    (0x21686148_6449_6e6f_744e_656564454649, "BIOS boot"),
    (0x9e1a2d38_c612_4316_aa26_8b49521e5a8b, "PowerPC PReP boot"),
    (0xe3c9e316_0b5c_4db8_817d_f92df00215ae, "Microsoft reserved"),
    (0xebd0a0a2_b9e5_4433_87c0_68b6b72699c7, "Microsoft basic data"),
    (0x5808c8aa_7e8f_42e0_85d2_e1e90434cfb3, "Microsoft LDM metadata"),
    (0xaf9b60a0_1431_4f62_bc68_3311714a69ad, "Microsoft LDM data"),
    (0xde94bba4_06d1_4d40_a16a_bfd50179d6ac, "Windows recovery environment"),
    (0x0657fd6d_a4ab_43c4_84e5_0933c84b4f4f, "Linux swap"),
    (0x0fc63daf_8483_4772_8e79_3d69d8477de4, "Linux filesystem"),
    (0x3b8f8425_20e0_4f3b_907f_1a25a76f98e8, "Linux server data"),
    (0x44479540_f297_41b2_9af7_d131d5f0458a, "Linux root (x86)"),
    (0x4f68bce3_e8cd_4db1_96e7_fbcaf984b709, "Linux root (x86-64)"),
    (0xb921b045_1df0_41c3_af44_4c6f280d3fae, "Linux root (ARM-64)"),
    (0x72ec70a6_cf74_40e6_bd49_4bda08e8f224, "Linux root (RISC-V-64)"),
    (0x8484680c_9521_48c6_9c11_b0720656f69e, "Linux /usr (x86-64)"),
    (0x933ac7e1_2eb4_4f13_b844_0e14e2aef915, "Linux home"),
    (0x4d21b016_b534_45c2_a9fb_5c16e091fd2d, "Linux variable data"),
    (0x7ec6f557_3bc5_4aca_b293_16ef5df639d1, "Linux temporary data"),
    (0xbc13c2ff_59e6_4262_a352_b275fd6f7172, "Linux extended boot"),
    (0xa19d880f_05fc_4d3b_a006_743f0f84911e, "Linux RAID"),
    (0xe6d6d379_f507_44c2_a23c_238f2a3df928, "Linux LVM"),
    (0xca7d7ccb_63ed_4c53_861c_1742536059cc, "Linux LUKS"),
    (0x83bd6b9d_7f41_11dc_be0b_001560b84f0f, "FreeBSD boot"),
    (0x516e7cb6_6ecf_11d6_8ff8_00022d09712b, "FreeBSD UFS"),
    (0x516e7cba_6ecf_11d6_8ff8_00022d09712b, "FreeBSD ZFS"),
    (0x48465300_0000_11aa_aa11_00306543ecac, "Apple HFS/HFS+"),
    (0x7c3457ef_0000_11aa_aa11_00306543ecac, "Apple APFS"),
    (0x6a898cc3_1dd2_11b2_99a6_080020736631, "Solaris /usr & Apple ZFS"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn types_have_sfdisks_names_and_spelling() {
        let linux = PartitionKind::Gpt("0FC63DAF-8483-4772-8E79-3D69D8477DE4".parse().unwrap());
        assert_eq!(linux.name(), Some("Linux filesystem"));
        assert_eq!(linux.to_string(), "0FC63DAF-8483-4772-8E79-3D69D8477DE4");
        assert_eq!(PartitionKind::Mbr(0x0c).name(), Some("W95 FAT32 (LBA)"));
        assert_eq!(PartitionKind::Mbr(0x0c).to_string(), "0c");
        assert_eq!(PartitionKind::Mbr(0x7f).name(), None);
    }

    #[test]
    fn words_stand_for_types_that_have_a_name() {
        for scheme in [Scheme::Gpt, Scheme::Mbr] {
            for word in PartitionKind::words(scheme) {
                let kind = PartitionKind::of_word(word, scheme).unwrap();
                assert!(kind.name().is_some(), "{word}");
                assert_eq!(PartitionKind::of_word(&kind.to_string(), scheme), Some(kind));
            }
        }
        assert_eq!(PartitionKind::of_word("0x83", Scheme::Mbr), Some(PartitionKind::Mbr(0x83)));
        for (word, scheme) in [("fat32", Scheme::Gpt), ("luks", Scheme::Mbr), ("", Scheme::Gpt), ("0", Scheme::Mbr)] {
            assert_eq!(PartitionKind::of_word(word, scheme), None, "{word}");
        }
    }

    #[test]
    fn extended_partitions_are_of_three_types() {
        let extended: Vec<u8> = (0..=255).filter(|&id| PartitionKind::Mbr(id).is_extended()).collect();
        assert_eq!(extended, [0x05, 0x0f, 0x85]);
    }
}
