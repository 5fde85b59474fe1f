//! Which table counts.

use crate::image::{Image, MbrEntry, entry};
use blockyard_block::partition_table::{PartitionTableError, Scheme, TableChoice, Warning};
use std::fs::{self, File};
use std::process::Command;

fn with_gpt_and(entries: &[MbrEntry]) -> Image {
    let mut image = Image::with_gpt(256, 512, &[(1, 40, 79), (2, 80, 99)]);
    image.put(0, 446, &[0; 64]);
    image.put_record(0, entries);
    image
}

fn without_primary(mut image: Image) -> Image {
    image.put(1, 0, &[0; 512]);
    image
}

#[test]
fn a_disk_without_a_table_has_no_partitions() {
    for block_bytes in [512, 4096] {
        for blocks in [1, 2, 64] {
            let table = Image::new(blocks, block_bytes).read().unwrap();
            assert_eq!((table.scheme, table.partitions.len(), table.warnings.len()), (None, 0, 0));
        }
    }
    assert_eq!(Image::new(0, 512).read().unwrap().scheme, None);
}

#[test]
fn an_empty_table_is_a_table() {
    let mut image = Image::new(64, 512);
    image.put_record(0, &[]);
    assert_eq!(image.read().unwrap().scheme, Some(Scheme::Mbr));
}

#[test]
fn a_valid_mbr_beside_a_valid_gpt_is_ambiguous_until_somebody_chooses() {
    let image = with_gpt_and(&[entry(0x83, 30, 20)]);
    let error = image.read().unwrap_err();
    assert!(matches!(error, PartitionTableError::Ambiguous), "{error}");
    assert!(error.advising("table=").ends_with("say which one counts, with table=mbr or table=gpt"), "{error}");
    let chosen = |choice| crate::image::placed(&image.read_as(choice).unwrap(), 512);
    assert_eq!(chosen(TableChoice::Mbr), [(1, 30, 20)]);
    assert_eq!(chosen(TableChoice::Gpt), [(1, 40, 40), (2, 80, 20)]);
}

#[test]
fn a_hybrid_mbr_that_repeats_the_gpt_does_not_count() {
    let image = with_gpt_and(&[entry(0xee, 1, 39), entry(0x83, 80, 20)]);
    assert_eq!(image.partitions(), [(1, 40, 40), (2, 80, 20)]);
    assert_eq!(image.warnings(), [Warning::HybridMbr]);
    assert_eq!(crate::image::placed(&image.read_as(TableChoice::Mbr).unwrap(), 512), [(2, 80, 20)]);
}

#[test]
fn a_hybrid_mbr_that_says_something_else_is_ambiguous() {
    let image = with_gpt_and(&[entry(0xee, 1, 39), entry(0x83, 80, 30)]);
    assert!(matches!(image.read(), Err(PartitionTableError::Ambiguous)));
}

#[test]
fn a_gpt_without_a_protective_mbr_counts_with_a_warning() {
    let image = with_gpt_and(&[]);
    assert_eq!(image.partitions(), [(1, 40, 40), (2, 80, 20)]);
    assert_eq!(image.warnings(), [Warning::NoProtectiveMbr]);
}

#[test]
fn a_forgotten_backup_at_the_end_does_not_count_by_itself() {
    let unused = without_primary(with_gpt_and(&[]));
    assert_eq!(unused.partitions(), []);
    assert_eq!(unused.warnings(), [Warning::RemainsOfGpt]);
    let used = without_primary(with_gpt_and(&[entry(0x83, 30, 20)]));
    assert_eq!(used.partitions(), [(1, 30, 20)]);
    assert_eq!(used.warnings(), [Warning::RemainsOfGpt]);
    let chosen = used.read_as(TableChoice::Gpt).unwrap();
    assert_eq!(crate::image::placed(&chosen, 512), [(1, 40, 40), (2, 80, 20)]);
}

#[test]
fn a_protective_mbr_alone_is_an_error() {
    let mut image = Image::new(256, 512);
    image.put_record(0, &[entry(0xee, 1, 255)]);
    assert!(matches!(image.read(), Err(PartitionTableError::DamagedGpt { .. })));
    assert!(matches!(image.read_as(TableChoice::Mbr), Err(PartitionTableError::OnlyProtective)));
    assert!(matches!(image.read_as(TableChoice::Gpt), Err(PartitionTableError::NoGpt)));
}

#[test]
fn a_table_asked_for_must_be_there() {
    let image = Image::new(64, 512);
    assert!(matches!(image.read_as(TableChoice::Mbr), Err(PartitionTableError::NoMbr)));
    assert!(matches!(image.read_as(TableChoice::Gpt), Err(PartitionTableError::NoGpt)));
}

#[test]
fn code_where_entries_would_be_is_no_table() {
    let mut image = Image::new(64, 512);
    image.put(0, 400, &[0x5a; 110]);
    image.put(0, 510, &[0x55, 0xaa]);
    assert_eq!(image.read().unwrap().scheme, None);
}

/// What mkfs.fat writes, with the entry that its `--mbr` adds.
#[test]
fn a_fat_file_system_is_no_table_until_somebody_says_so() {
    let mut image = Image::new(256, 512);
    image.put_record(0, &[entry(0x0c, 1, 200)]);
    image.put(0, 0, &[0xeb, 0x3c, 0x90]);
    image.put(0, 3, b"mkfs.fat\x00\x02\x04\x01\x00\x02\x00\x02\x00\x80\xf8");
    assert_eq!(image.read().unwrap().scheme, None);
    assert_eq!(image.read_as(TableChoice::Mbr).unwrap().partitions.len(), 1);
    let mut ntfs = Image::new(256, 512);
    ntfs.put_record(0, &[entry(7, 1, 200)]);
    ntfs.put(0, 3, b"NTFS    ");
    assert_eq!(ntfs.read().unwrap().scheme, None);
}

#[test]
fn an_ext_file_system_is_no_table_whatever_its_boot_sector_holds() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("ext.img");
    File::create(&path).unwrap().set_len(4 << 20).unwrap();
    let mkfs = Command::new("mkfs.ext4").arg("-q").arg(&path).status();
    assert!(mkfs.expect("mkfs.ext4 comes with the package `e2fsprogs`").success());
    let plain = Image { bytes: fs::read(&path).unwrap(), block_bytes: 512 };
    assert_eq!(plain.read().unwrap().scheme, None);
    for nonsense in [&[][..], &[entry(0x20, 0x6d65_7473, 0x0065_7966)], &[entry(0x83, 0, 100)]] {
        let mut image = plain.clone();
        image.put_record(0, nonsense);
        assert_eq!(image.read().unwrap().scheme, None, "{nonsense:?}");
    }
    // Its superblock may be what is left of it: a table that makes sense counts.
    let mut image = plain;
    image.put_record(0, &[entry(0x83, 2048, 4096)]);
    assert_eq!(image.partitions(), [(1, 2048, 4096)]);
}
