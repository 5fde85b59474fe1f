//! Tables of sfdisk's, damaged: what can be told is told, what cannot is an error.

use crate::image::{Image, both_headers, entry};
use crate::sfdisk::{DOS_WITH_LOGICAL, GPT, image};
use blockyard_block::partition_table::{
    GptFault, LeftOut, PartitionError, PartitionTableError, Restriction, Scheme, TableChoice, Warning,
};

const DISK_BYTES: u64 = 64 << 20;

fn gpt() -> Image {
    image(GPT, DISK_BYTES)
}

fn last(image: &Image) -> u64 {
    image.blocks() - 1
}

#[test]
fn either_copy_of_a_gpt_is_enough() {
    let whole = gpt();
    let partitions = whole.partitions();
    let last = last(&whole);
    let primary = [((1, 40), GptFault::HeaderChecksum), ((2, 0), GptFault::ArrayChecksum), ((1, 0), GptFault::Absent)];
    for ((block, offset), fault) in primary {
        let mut image = whole.clone();
        image.flip(block, offset);
        assert_eq!(image.partitions(), partitions);
        assert_eq!(image.warnings(), [Warning::PrimaryDamaged(fault)]);
    }
    let backup = [
        ((last, 40), GptFault::HeaderChecksum),
        ((last - 1, 0), GptFault::ArrayChecksum),
        ((last, 0), GptFault::Absent),
    ];
    for ((block, offset), fault) in backup {
        let mut image = whole.clone();
        image.flip(block, offset);
        assert_eq!(image.partitions(), partitions);
        assert_eq!(image.warnings(), [Warning::BackupDamaged(fault)]);
    }
}

#[test]
fn a_gpt_without_a_good_copy_is_an_error_that_names_both_faults() {
    let mut image = gpt();
    image.flip(1, 40);
    let last = last(&image);
    image.flip(last - 1, 3);
    let error = image.read().unwrap_err();
    let PartitionTableError::DamagedGpt { primary, backup } = &error else { panic!("{error}") };
    assert_eq!((primary, backup), (&GptFault::HeaderChecksum, &GptFault::ArrayChecksum));
    assert_eq!(
        error.to_string(),
        "the partition table (GPT) is damaged: at the start of the disk the checksum of its header is wrong; \
         at its end the checksum of its entries is wrong"
    );
}

#[test]
fn copies_that_differ_are_told_and_the_primary_counts() {
    let mut image = Image::with_gpt(256, 512, &[(1, 40, 79)]);
    let [_, backup] = both_headers(256, 512);
    image.put_gpt(&backup, &[(1, 40, 99)]);
    assert_eq!(image.partitions(), [(1, 40, 40)]);
    assert_eq!(image.warnings(), [Warning::CopiesDiffer]);
}

#[test]
fn a_larger_disk_has_its_backup_in_the_middle() {
    let mut image = gpt();
    let partitions = image.partitions();
    image.bytes.resize(DISK_BYTES as usize * 2, 0);
    assert_eq!(image.partitions(), partitions);
    assert_eq!(image.warnings(), [Warning::BackupNotAtEnd]);
}

#[test]
fn a_smaller_disk_has_no_valid_gpt() {
    let mut image = gpt();
    image.bytes.truncate(DISK_BYTES as usize / 2);
    let error = image.read().unwrap_err();
    assert!(
        matches!(error, PartitionTableError::DamagedGpt { primary: GptFault::Usable, backup: GptFault::Absent }),
        "{error}"
    );
}

#[test]
fn logical_partitions_on_a_disk_cut_short_are_told_one_by_one() {
    let mut image = image(DOS_WITH_LOGICAL, DISK_BYTES);
    let whole = image.read().unwrap();
    let cut = whole.partitions.iter().find(|partition| partition.number == 6).unwrap().range_bytes.end;
    image.bytes.truncate(cut as usize);
    let table = image.read().unwrap();
    let kept: Vec<u32> = table.partitions.iter().map(|partition| partition.number).collect();
    let fits = |partition: &&blockyard_block::partition_table::Partition| partition.range_bytes.start < cut;
    let expected: Vec<u32> = whole.partitions.iter().filter(fits).map(|partition| partition.number).collect();
    assert!(kept.iter().all(|number| expected.contains(number)), "{kept:?}");
    assert!([1, 5, 6].iter().all(|number| kept.contains(number)), "{kept:?}");
    assert_eq!(
        table.range(3, true),
        Err(PartitionError::LeftOut { number: 3, why: LeftOut::PastTheEnd }),
        "{:?}",
        table.warnings
    );
}

#[test]
fn a_partition_longer_than_its_disk_is_read_as_far_as_there_is_something() {
    let mut image = Image::new(256, 512);
    image.put_record(0, &[entry(0x83, 10, 20), entry(0x83, 100, u32::MAX), entry(0x83, 256, 1), entry(5, 60, 300)]);
    image.put_record(60, &[entry(0x83, 1, 200)]);
    assert_eq!(image.partitions(), [(1, 10, 20), (2, 100, 156), (4, 60, 196), (5, 61, 195)]);
    let table = image.read().unwrap();
    let left_out = Warning::LeftOut { number: 3, why: LeftOut::PastTheEnd };
    for warning in [Warning::CutOff(2), left_out, Warning::CutOff(4), Warning::CutOff(5)] {
        assert!(table.warnings.contains(&warning), "{:?}", table.warnings);
    }
    assert_eq!(table.range(2, true), Ok(100 * 512..256 * 512));
    let mut alone = Image::new(256, 512);
    alone.put_record(0, &[entry(0x83, 100, 1000)]);
    let table = alone.read().unwrap();
    assert_eq!(
        (table.range(1, true), table.range(1, false)),
        (Ok(100 * 512..256 * 512), Err(PartitionError::CutOff(1)))
    );
}

#[test]
fn an_entry_outside_the_usable_range_is_left_out() {
    let entries = [(1, 40, 79), (2, 1, 3), (3, 100, 90), (4, 200, u64::MAX)];
    let image = Image::with_gpt(256, 512, &entries);
    assert_eq!(image.partitions(), [(1, 40, 40)]);
    let left_out = |number, why| Warning::LeftOut { number, why };
    assert_eq!(
        image.warnings(),
        [left_out(2, LeftOut::NotUsable), left_out(3, LeftOut::Reversed), left_out(4, LeftOut::NotUsable)]
    );
    let error = image.read().unwrap().range(3, true).unwrap_err().to_string();
    assert_eq!(error, "partition 3 cannot be used: it ends before it starts");
}

#[test]
fn overlapping_partitions_can_only_be_read() {
    let image = Image::with_gpt(256, 512, &[(1, 40, 79), (2, 79, 99), (3, 100, 119)]);
    let table = image.read().unwrap();
    assert_eq!(table.warnings, [Warning::Overlap { first: 1, second: 2 }]);
    assert_eq!(table.range(1, false), Err(PartitionError::Overlaps { number: 1, other: 2 }));
    assert_eq!(table.range(2, false), Err(PartitionError::Overlaps { number: 2, other: 1 }));
    assert_eq!(table.range(2, true), Ok(79 * 512..100 * 512));
    assert_eq!(table.range(3, false), Ok(100 * 512..120 * 512));
}

#[test]
fn a_large_partition_overlaps_each_one_inside_it() {
    let image = Image::with_gpt(256, 512, &[(1, 40, 200), (2, 50, 59), (3, 70, 79), (4, 210, 219)]);
    let table = image.read().unwrap();
    let writable: Vec<u32> = (1..=4).filter(|&number| table.range(number, false).is_ok()).collect();
    assert_eq!(writable, [4]);
}

#[test]
fn an_extended_partition_is_no_partition_to_use() {
    let table = image(DOS_WITH_LOGICAL, DISK_BYTES).read().unwrap();
    for read_only in [true, false] {
        let error = table.range(2, read_only).unwrap_err();
        assert_eq!(error, PartitionError::Container(2));
        assert!(error.to_string().contains("from 5"), "{error}");
    }
    assert!((3..=8).all(|number| table.range(number, false).is_ok()));
    assert_eq!(table.partitions[1].restriction, Some(Restriction::Container));
}

#[test]
fn a_partition_over_the_table_can_only_be_read() {
    let mut image = Image::new(256, 512);
    image.put_record(0, &[entry(0x83, 0, 10), entry(5, 100, 50), entry(0x83, 20, 10)]);
    image.put_record(100, &[entry(0x83, 1, 20), entry(5, 10, 10)]);
    image.put_record(110, &[entry(0x83, 20, 10)]);
    let table = image.read_as(TableChoice::Mbr).unwrap();
    // Partition 5 lies over the link at block 110.
    for number in [1, 5] {
        assert_eq!(table.range(number, false), Err(PartitionError::CoversTable(number)), "{:?}", table.warnings);
        assert!(table.range(number, true).is_ok());
    }
    assert!(table.range(3, false).is_ok());
    assert!(table.range(6, false).is_ok());
}

#[test]
fn a_primary_partition_across_an_extended_one_can_only_be_read() {
    let mut image = Image::new(256, 512);
    image.put_record(0, &[entry(5, 100, 50), entry(0x83, 140, 50)]);
    image.put_record(100, &[entry(0x83, 1, 20)]);
    let table = image.read().unwrap();
    assert_eq!(table.range(2, false), Err(PartitionError::Overlaps { number: 2, other: 1 }));
    assert!(table.range(5, false).is_ok());
}

#[test]
fn an_absent_number_is_told_with_those_there_are() {
    let table = gpt().read().unwrap();
    assert_eq!(table.scheme, Some(Scheme::Gpt));
    assert_eq!(table.range(9, true).unwrap_err().to_string(), "there is no partition 9: the disk has 1, 2, 3");
    let none = Image::new(64, 512).read().unwrap();
    assert_eq!(none.range(1, true).unwrap_err().to_string(), "there is no partition 1: the disk has none");
}
