//! Tables made to loop, to reach where they should not, or to cost much.

use crate::image::{GptHeader, Image, both_headers, entry};
use blockyard_block::layers::MeteredDisk;
use blockyard_block::partition_table::{GptFault, LeftOut, PartitionTableError, TableChoice, Warning, read};
use std::sync::Arc;

#[test]
fn chains_that_loop_end_with_a_warning() {
    // To itself, to the first link, and between two.
    for (second, third) in [(10, 10), (10, 0), (20, 10)] {
        let mut image = Image::new(256, 512);
        image.put_record(0, &[entry(0x0f, 100, 100)]);
        image.put_record(100, &[entry(0x83, 1, 2), entry(5, second, 10)]);
        image.put_record(100 + u64::from(second), &[entry(0x83, 1, 2), entry(5, third, 10)]);
        image.put_record(100 + u64::from(third), &[entry(0x83, 1, 2), entry(5, second, 10)]);
        let table = image.read().unwrap();
        assert!(matches!(table.warnings[..], [.., Warning::ChainLoops { .. }]), "{:?}", table.warnings);
        assert!(table.partitions.len() <= 4);
    }
}

/// fdisk makes such chains when partitions are deleted and made anew.
#[test]
fn a_chain_may_lead_back() {
    let mut image = Image::new(256, 512);
    image.put_record(0, &[entry(0x85, 100, 100)]);
    image.put_record(100, &[entry(0x83, 1, 2), entry(5, 50, 10)]);
    image.put_record(150, &[entry(0x83, 1, 2), entry(5, 20, 10)]);
    image.put_record(120, &[entry(0x83, 1, 2)]);
    assert_eq!(image.partitions(), [(1, 100, 100), (5, 101, 2), (6, 151, 2), (7, 121, 2)]);
    assert_eq!(image.warnings(), []);
}

#[test]
fn a_chain_that_leaves_its_extended_partition_ends_there() {
    for outside in [100, 150, u32::MAX] {
        let mut image = Image::new(256, 512);
        image.put_record(0, &[entry(5, 100, 100)]);
        image.put_record(100, &[entry(0x83, 1, 2), entry(5, outside, 10)]);
        image.put_record(200, &[entry(0x83, 1, 2)]);
        assert_eq!(image.partitions(), [(1, 100, 100), (5, 101, 2)]);
        assert_eq!(image.warnings(), [Warning::ChainLeaves { last: 5 }]);
    }
}

#[test]
fn a_link_without_signature_ends_the_chain() {
    let mut image = Image::new(256, 512);
    image.put_record(0, &[entry(5, 100, 100)]);
    image.put_record(100, &[entry(0x83, 1, 2), entry(5, 10, 10)]);
    assert_eq!(image.partitions(), [(1, 100, 100), (5, 101, 2)]);
    assert_eq!(image.warnings(), [Warning::ChainBroken { last: 5 }]);
}

#[test]
fn logical_partitions_keep_linuxs_numbers_when_one_of_them_is_no_good() {
    let mut image = Image::new(256, 512);
    image.put_record(0, &[entry(5, 100, 100)]);
    image.put_record(100, &[entry(0x83, 1, 2), entry(5, 10, 10)]);
    image.put_record(110, &[entry(0x83, 1, 500), entry(5, 20, 10)]);
    image.put_record(120, &[entry(0x83, 60, 40), entry(5, 30, 10)]);
    image.put_record(130, &[entry(0, 1, 2), entry(5, 40, 10)]);
    image.put_record(140, &[entry(0x83, 1, 2)]);
    assert_eq!(image.partitions(), [(1, 100, 100), (5, 101, 2), (9, 141, 2)]);
    let left_out = |number, why| Warning::LeftOut { number, why };
    assert_eq!(image.warnings(), [left_out(6, LeftOut::PastTheEnd), left_out(7, LeftOut::OutsideExtended)]);
}

#[test]
fn numbers_end_where_linuxs_do() {
    let mut image = Image::new(2048, 512);
    image.put_record(0, &[entry(5, 1, 2047)]);
    for link in 0..1000 {
        let next = entry(5, 2 * (link + 1), 2);
        image.put_record(u64::from(1 + 2 * link), &[entry(0x83, 1, 1), next]);
    }
    let table = image.read().unwrap();
    assert_eq!(table.partitions.len(), 252);
    assert_eq!(table.partitions.last().unwrap().number, 255);
    assert_eq!(table.warnings, [Warning::TooMany(255)]);
}

#[test]
fn a_long_chain_of_nothing_ends() {
    let mut image = Image::new(2048, 512);
    image.put_record(0, &[entry(5, 1, 2047)]);
    for link in 0..2000 {
        image.put_record(u64::from(1 + link), &[entry(5, link + 1, 2)]);
    }
    assert_eq!(image.warnings(), [Warning::TooMany(255)]);
}

#[test]
fn extended_partitions_that_share_a_chain_do_not_share_partitions() {
    let mut image = Image::new(256, 512);
    image.put_record(0, &[entry(5, 100, 100), entry(5, 100, 100)]);
    image.put_record(100, &[entry(0x83, 1, 2)]);
    let table = image.read().unwrap();
    assert_eq!(table.partitions.iter().map(|partition| partition.number).collect::<Vec<_>>(), [1, 2, 5]);
    assert!(table.warnings.contains(&Warning::ChainLoops { last: 5 }), "{:?}", table.warnings);
}

fn fault_of(change: impl Fn(&mut GptHeader)) -> GptFault {
    let mut image = Image::new(256, 512);
    let [mut header, _] = both_headers(256, 512);
    change(&mut header);
    image.put_gpt(&header, &[(1, 40, 79)]);
    image.put_record(0, &[entry(0xee, 1, 255)]);
    match image.read() {
        Err(PartitionTableError::DamagedGpt { primary, .. }) => primary,
        other => panic!("{other:?}"),
    }
}

#[test]
fn headers_with_right_checksums_are_not_believed() {
    assert_eq!(fault_of(|header| header.header_bytes = 91), GptFault::HeaderLength(91));
    assert_eq!(fault_of(|header| header.header_bytes = 513), GptFault::HeaderLength(513));
    assert_eq!(fault_of(|header| header.header_bytes = u32::MAX), GptFault::HeaderLength(u32::MAX));
    for bytes in [0, 1, 64, 127, 129, 192, 384, u32::MAX] {
        assert_eq!(fault_of(|header| header.entry_bytes = bytes), GptFault::EntryLength(bytes));
    }
    for count in [0, 8193, u32::MAX] {
        assert_eq!(fault_of(|header| header.entry_count = count), GptFault::EntryCount(count));
    }
    assert_eq!(fault_of(|header| header.entry_bytes = 1 << 31), GptFault::EntryCount(4));
    for (first, last) in [(0, 100), (1, 100), (100, 99), (3, 256), (3, u64::MAX), (u64::MAX, u64::MAX), (u64::MAX, 0)] {
        let fault = fault_of(|header| (header.first_usable, header.last_usable) = (first, last));
        assert_eq!(fault, GptFault::Usable, "{first}..={last}");
    }
    for block in [0, 1, 3, 100, 256, u64::MAX, u64::MAX - 1] {
        assert_eq!(fault_of(|header| header.array_block = block), GptFault::ArrayPlace, "{block}");
    }
}

/// Whatever points at what, so much is read: two copies of the largest array, and a block for each link of the longest
/// chain.
#[test]
fn tables_that_point_at_one_place_are_read_within_bounds() {
    const ARRAY_BYTES: u64 = 1 << 20;
    let read_bytes = |image: &Image| {
        let disk = MeteredDisk::new(Arc::new(image.disk()));
        let _ = read(&disk);
        let snapshot = disk.meter().snapshot();
        snapshot.operations.iter().map(|operation| operation.bytes).sum::<u64>()
    };
    let blocks = 8192;
    let mut gpt = Image::new(blocks, 512);
    gpt.put_record(0, &[entry(0xee, 1, u32::MAX)]);
    let shared = |header: GptHeader| GptHeader {
        entry_count: 8192,
        array_block: 2,
        first_usable: 2 + ARRAY_BYTES / 512,
        last_usable: blocks as u64 - 2,
        ..header
    };
    for header in both_headers(blocks as u64, 512).map(shared) {
        gpt.put_gpt(&header, &[(1, 4000, 4999)]);
    }
    assert_eq!(gpt.partitions(), [(1, 4000, 1000)]);
    let bytes = read_bytes(&gpt);
    assert!((ARRAY_BYTES..=3 * ARRAY_BYTES).contains(&bytes), "{bytes}");
    let mut chains = Image::new(blocks, 512);
    chains.put_record(0, &[entry(5, 1, 8000), entry(5, 1, 8000), entry(5, 1, 8000), entry(5, 1, 8000)]);
    for link in 0..2000 {
        chains.put_record(u64::from(1 + link), &[entry(5, link + 1, 2), entry(5, 0, 2)]);
    }
    let bytes = read_bytes(&chains);
    assert!(bytes <= 1024 * 512 + 65536, "{bytes}");
}

#[test]
fn a_header_copied_elsewhere_is_none() {
    let mut image = Image::with_gpt(256, 512, &[(1, 40, 79)]);
    let backup: Vec<u8> = image.bytes[255 * 512..].to_vec();
    image.put(1, 0, &backup);
    assert_eq!(image.warnings(), [Warning::PrimaryDamaged(GptFault::HeaderPlace(255))]);
}

#[test]
fn entries_of_any_allowed_length_are_read() {
    for entry_bytes in [128, 256, 512, 1024, 2048] {
        let mut image = Image::new(256, 512);
        image.put_record(0, &[entry(0xee, 1, 255)]);
        let [primary, _] = both_headers(256, 512);
        image.put_gpt(&GptHeader { entry_bytes, first_usable: 30, ..primary }, &[(1, 40, 79), (0, 0, 0), (1, 80, 99)]);
        assert_eq!(image.partitions(), [(1, 40, 40), (3, 80, 20)]);
    }
}

#[test]
fn a_gpt_is_read_in_blocks_of_any_size() {
    for block_bytes in [512, 1024, 2048, 4096, 65536] {
        let image = Image::with_gpt(64, block_bytes, &[(1, 10, 19), (2, 20, 29)]);
        assert_eq!(image.partitions(), [(1, 10, 10), (2, 20, 10)]);
        assert_eq!(image.warnings(), []);
    }
}

#[test]
fn a_table_for_other_blocks_is_told_as_such() {
    let mut image = Image::with_gpt(64, 2048, &[(1, 10, 19)]);
    image.block_bytes = 512;
    for choice in [TableChoice::Auto, TableChoice::Gpt] {
        let error = image.read_as(choice).unwrap_err();
        assert!(
            matches!(error, PartitionTableError::OtherBlockSize { found_bytes: 2048, block_bytes: 512 }),
            "{error}"
        );
    }
}
