//! Partition tables: crates/block/tests/partition_table/fuzz.rs says what the bytes are.

use super::{Corpus, Seed};

const SOURCE: &str = "crates/block/tests/partition_table/fuzz.rs";
const MODULES: &str = "fuzz";

/// Block, offset in it, and bytes in hexadecimal: what is not zero.
type Pieces = &'static [(u8, u16, &'static str)];

/// What `sfdisk` of util-linux 2.38 writes on 256 blocks of 512 bytes: two primary partitions, an extended one, three
/// in it.
const DOS: Pieces = &[
    (0, 440, "2d4a0cb100008000090083002800080000002000000000002900ef003000280000000800000000010200050303004000000080"),
    (0, 510, "55aa"),
    (64, 447, "01040083011300020000001000000000011b0005012f001900000015"),
    (64, 510, "55aa"),
    (89, 447, "011c0082012f00010000001400000000013900050303003700000049"),
    (89, 510, "55aa"),
    (119, 447, "013a008e0303000100000048"),
    (119, 510, "55aa"),
];

/// The same with a GPT of four entries, three of them in use.
const GPT: Pieces = &[
    (0, 448, "0200eeffffff01000000ff"),
    (0, 510, "55aa"),
    (1, 0, PRIMARY),
    (2, 0, EFI),
    (2, 128, ROOT),
    (2, 256, SWAP),
    (254, 0, EFI),
    (254, 128, ROOT),
    (254, 256, SWAP),
    (255, 0, BACKUP),
];
const PRIMARY: &str = "4546492050415254000001005c000000798b405d000000000100000000000000ff000000000000000800000000000000fd00000000000000af3dc60f838472478e793d69d8477de402000000000000000400000080000000c6f9dcf1";
const BACKUP: &str = "4546492050415254000001005c000000e8eb250a00000000ff0000000000000001000000000000000800000000000000fd00000000000000af3dc60f838472478e793d69d8477de4fe000000000000000400000080000000c6f9dcf1";
const EFI: &str = "28732ac11ff8d211ba4b00a0c93ec93b111111112222333344445555555555550800000000000000270000000000000000000000000000004500460049";
const ROOT: &str = "af3dc60f838472478e793d69d8477de41111111122223333444466666666666628000000000000008b00000000000000010000000000000072006f006f0074";
const SWAP: &str = "6dfd5706aba4c44384e50933c84b4f4f11111111222233334444777777777777c800000000000000ef";

pub(super) fn corpora() -> [Corpus; 3] {
    [
        Corpus { source: SOURCE, function: "fuzz_any_bytes_of_a_disk", modules: MODULES, seeds: disks() },
        Corpus { source: SOURCE, function: "fuzz_chains_of_boot_records", modules: MODULES, seeds: chains() },
        Corpus { source: SOURCE, function: "fuzz_gpts_with_right_checksums", modules: MODULES, seeds: gpts() },
    ]
}

fn pieces(seed: Seed, pieces: Pieces) -> Seed {
    pieces.iter().fold(seed, |seed, &(block, offset, digits)| {
        let digit = |place: usize| u8::from_str_radix(&digits[place..place + 2], 16).unwrap();
        let bytes: Vec<u8> = (0..digits.len()).step_by(2).map(digit).collect();
        seed.u8(block).u16(offset).u16(bytes.len() as u16).bytes(&bytes)
    })
}

fn disks() -> Vec<(&'static str, Seed)> {
    let disk = |all: Pieces| pieces(Seed::default(), all);
    vec![
        ("sfdisk-dos", disk(DOS)),
        ("sfdisk-gpt", disk(GPT)),
        ("gpt-without-its-backup", disk(&GPT[..6])),
        ("gpt-without-its-primary", pieces(disk(&GPT[..2]), &GPT[6..])),
        ("gpt-without-protective-mbr", disk(&GPT[2..])),
        ("gpt-beside-an-mbr", pieces(disk(GPT), &DOS[..2])),
        ("chain-whose-second-link-is-gone", pieces(disk(&DOS[..4]), &DOS[6..])),
        ("chain-back-to-its-start", pieces(disk(DOS), &[(89, 470, "00")])),
    ]
}

/// Boot records: block, and four entries of kind (see the target), start, length, and whether both are huge.
fn chains() -> Vec<(&'static str, Seed)> {
    const UNUSED: [u8; 4] = [7, 0, 0, 255];
    const EXTENDED: u8 = 0;
    const LINUX: u8 = 3;
    let record = |seed: Seed, block: u8, first: [u8; 4], second: [u8; 4]| {
        [first, second, UNUSED, UNUSED].iter().fold(seed.u8(block), |seed, entry| seed.bytes(entry))
    };
    let start = |records| record(Seed::default().length(records), 0, [EXTENDED, 100, 100, 255], [LINUX, 20, 30, 255]);
    let logical = [LINUX, 1, 4, 255];
    let link = |to| [EXTENDED, to, 10, 255];
    vec![
        ("two-logical", record(record(start(3), 100, logical, link(20)), 120, logical, UNUSED)),
        ("to-itself", record(start(2), 100, logical, link(0))),
        ("round", record(record(start(3), 100, logical, link(20)), 120, logical, link(0))),
        ("out-of-the-extended-partition", record(start(2), 100, logical, link(150))),
        ("out-of-the-disk", record(start(2), 100, logical, [EXTENDED, 200, 10, 0])),
        ("over-its-own-link", record(start(2), 100, [LINUX, 0, 10, 255], UNUSED)),
        ("over-the-next-link", record(record(start(3), 100, [LINUX, 1, 30, 255], link(20)), 120, logical, UNUSED)),
    ]
}

/// GPTs: what is different from a good one in the copy at the start and in its backup, entries of kind, first and last
/// block, and which copy is written first.
fn gpts() -> Vec<(&'static str, Seed)> {
    const CHANGES: u16 = 11;
    const TWO: &[[u8; 3]] = &[[1, 40, 99], [1, 100, 200]];
    const OVERLAPPING: &[[u8; 3]] = &[[1, 40, 100], [1, 100, 200]];
    const REVERSED: &[[u8; 3]] = &[[1, 99, 40]];
    const OVER_THE_TABLE: &[[u8; 3]] = &[[1, 0, 99]];
    let change = |kind: u8| Seed::default().choice(kind, CHANGES);
    let disk = |change: Option<Seed>, entries: &[[u8; 3]]| {
        let changes = |seed: Seed| match &change {
            Some(Seed(bytes)) => seed.length(1).bytes(bytes),
            None => seed.length(0),
        };
        let seed = changes(changes(Seed::default())).length(entries.len());
        entries.iter().fold(seed, |seed, entry| seed.bytes(entry)).bool(false)
    };
    vec![
        ("good", disk(None, TWO)),
        ("overlapping", disk(None, OVERLAPPING)),
        ("reversed", disk(None, REVERSED)),
        ("over-the-table", disk(None, OVER_THE_TABLE)),
        ("header-of-no-bytes", disk(Some(change(1).u32(0)), TWO)),
        ("backup-beyond-the-disk", disk(Some(change(2).u64(u64::MAX)), TWO)),
        ("usable-to-the-end-of-all-numbers", disk(Some(change(5).u64(u64::MAX)), TWO)),
        ("entries-beyond-the-disk", disk(Some(change(7).u64(u64::MAX)), TWO)),
        ("entries-over-the-header", disk(Some(change(6).u8(1)), TWO)),
        ("entries-of-no-bytes", disk(Some(change(10).u32(0)), TWO)),
        ("entries-larger-than-the-disk", disk(Some(change(10).u32(1 << 31)), TWO)),
    ]
}
