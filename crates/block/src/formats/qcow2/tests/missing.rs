//! Images whose tables lead behind the end of their file, which are to show zeros there.

use super::super::{Qcow2Amendment, Qcow2Check, Qcow2CreateOptions, Qcow2Disk, Qcow2Features, Qcow2Info};
use super::cut_short::{at_each_cut, recorded};
use super::open_to_change;
use crate::formats::{CheckReport, Repair};
use crate::{AllowedDirectories, FileOptions, OpenedFile, read_bytes, write_bytes};
use std::fs::{self, File};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const CLUSTER_BYTES: u64 = 16 << 10;
const DISK_BYTES: u64 = 512 << 10;

/// With data all over the disk, and as many as `missing` clusters cut off its end.
fn image(directory: &Path, features: Qcow2Features, missing: u64) -> PathBuf {
    let path = directory.join("image.qcow2");
    let options =
        Qcow2CreateOptions { features, cluster_bytes: CLUSTER_BYTES as u32, ..Qcow2CreateOptions::new(DISK_BYTES) };
    Qcow2Disk::create(&path, &options).unwrap();
    let disk = Qcow2Disk::open(&path, &FileOptions::default(), &AllowedDirectories::none()).unwrap();
    for number in 0..DISK_BYTES / CLUSTER_BYTES {
        write_bytes(&disk, number * CLUSTER_BYTES, &vec![number as u8 + 1; CLUSTER_BYTES as usize]).unwrap();
    }
    drop(disk);
    let file = File::options().write(true).open(&path).unwrap();
    file.set_len(file.metadata().unwrap().len() - missing * CLUSTER_BYTES).unwrap();
    path
}

/// What can be read, by clusters.
fn shown(path: &Path) -> Vec<Option<Vec<u8>>> {
    let options = FileOptions { read_only: true, lock: false, ..FileOptions::default() };
    let disk = Qcow2Disk::open(path, &options, &AllowedDirectories::none()).unwrap();
    (0..DISK_BYTES)
        .step_by(CLUSTER_BYTES as usize)
        .map(|offset| read_bytes(&disk, offset..offset + CLUSTER_BYTES).ok())
        .collect()
}

fn salvaged(path: &Path, repair: Repair) -> CheckReport {
    let mut check = Qcow2Check::open(&open_to_change(path), true).unwrap();
    check.salvage();
    check.run(repair, &mut |_| ()).unwrap()
}

/// Cut off anywhere, each cluster is as it was, or zeros where it was missing; doing it again ends it.
#[test]
fn what_is_missing_becomes_zeros_and_nothing_else_changes_at_every_cut() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    for (version, has_extended_l2) in [(2, false), (3, false), (3, true)] {
        let features = Qcow2Features { version, has_extended_l2, ..Qcow2Features::default() };
        let path = image(directory.path(), features, 5);
        let before = shown(&path);
        let is_missing = |cluster: &&Option<Vec<u8>>| cluster.is_none();
        assert_eq!(before.iter().filter(is_missing).count(), 5);
        assert_eq!(salvaged(&path, Repair::Leaks).zeroed_bytes, 0, "nobody asked for it");
        let recording = recorded(&path, || {
            let report = salvaged(&path, Repair::All);
            assert_eq!((report.corruptions, report.missing, report.leaks), (0, 0, 0), "{features:?}");
            assert_eq!((report.corruptions_fixed, report.zeroed_bytes), (5, 5 * CLUSTER_BYTES), "{features:?}");
        });
        let after: Vec<_> = before.iter().map(|held| held.clone().unwrap_or(vec![0; CLUSTER_BYTES as usize])).collect();
        at_each_cut(&path, &recording, |cut| {
            for (number, (shown, (before, after))) in shown(&path).iter().zip(before.iter().zip(&after)).enumerate() {
                let is_right = shown.as_ref() == Some(after) || shown == before;
                assert!(is_right, "{features:?}, cut behind {cut}, cluster {number}");
            }
            salvaged(&path, Repair::All);
            let again = shown(&path);
            assert!(again.iter().flatten().eq(&after), "{features:?}, cut behind {cut}, done again");
        });
        fs::remove_file(&path).unwrap();
    }
}

fn number(bytes: &[u8], at: u64) -> u64 {
    u64::from_be_bytes(bytes[at as usize..][..8].try_into().unwrap())
}

/// An image whose refcount table is cut off, or has no block in it; with as many as `missing` clusters of data, too.
fn without_refcounts(directory: &Path, is_cut_off: bool, missing: u64) -> PathBuf {
    let path = image(directory, Qcow2Features::default(), if is_cut_off { 0 } else { missing });
    if is_cut_off {
        // They are written anew for that, behind the data.
        let amendment = Qcow2Amendment { refcount_order: Some(5), ..Qcow2Amendment::default() };
        amendment.apply(&open_to_change(&path), &AllowedDirectories::none()).unwrap();
    }
    let table = number(&fs::read(&path).unwrap(), 48);
    let file = File::options().write(true).open(&path).unwrap();
    match is_cut_off {
        true => file.set_len(table - missing * CLUSTER_BYTES).unwrap(),
        false => file.write_all_at(&[0; 8], table).unwrap(),
    }
    path
}

/// Who only reads needs no refcounts, and a repair writes them anew, unless data are missing where these would be.
#[test]
fn an_image_without_refcounts_is_read_and_gets_new_ones() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    for is_cut_off in [true, false] {
        let path = without_refcounts(directory.path(), is_cut_off, 0);
        let whole = shown(&path);
        assert!(whole.iter().all(Option::is_some));
        let damage = Qcow2Info::damage_in(&open_to_change(&path)).unwrap();
        assert_eq!(damage.is_some_and(|damage| damage.contains("refcount table")), is_cut_off);
        let mut check = Qcow2Check::open(&open_to_change(&path), true).unwrap();
        assert!(check.run(Repair::None, &mut |_| ()).unwrap().corruptions > 0);
        assert_eq!(check.run(Repair::All, &mut |_| ()).unwrap().corruptions, 0);
        drop(check);
        Qcow2Disk::open(&path, &FileOptions::default(), &AllowedDirectories::none()).unwrap();
        assert!(shown(&path) == whole);
        fs::remove_file(&path).unwrap();

        let path = without_refcounts(directory.path(), is_cut_off, 2);
        let before = shown(&path);
        assert_eq!(before.iter().filter(|cluster| cluster.is_none()).count(), 2);
        let bytes = fs::read(&path).unwrap();
        for repair in [Repair::Leaks, Repair::All] {
            let mut said = String::new();
            let mut check = Qcow2Check::open(&open_to_change(&path), true).unwrap();
            let report = check.run(repair, &mut |line| said.push_str(line)).unwrap();
            assert_eq!(report.missing, 2, "{said}");
            assert_eq!(said.contains("refcounts are not written anew"), repair == Repair::All, "{said}");
            assert!(fs::read(&path).unwrap() == bytes, "{repair:?}: it has changed");
        }
        assert_eq!(salvaged(&path, Repair::All).corruptions, 0);
        let zeros = vec![0; CLUSTER_BYTES as usize];
        let shows = |(now, before): (&Option<_>, &Option<_>)| now.as_ref() == before.as_ref().or(Some(&zeros));
        assert!(shown(&path).iter().zip(&before).all(shows));
        fs::remove_file(&path).unwrap();
    }
}

/// What the header says of the refcount table is nothing that a table can be: the same.
#[test]
fn an_image_whose_refcount_table_cannot_be_gets_a_new_one() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let fields: [(usize, &[u8]); 4] =
        [(48, &[0; 8]), (48, &[0xff, 0xff, 0, 0, 0, 0, 0, 0]), (56, &[0; 4]), (56, &[0xff; 4])];
    for (at, bytes) in fields {
        let path = image(directory.path(), Qcow2Features::default(), 0);
        let whole = shown(&path);
        let mut damaged = fs::read(&path).unwrap();
        damaged[at..][..bytes.len()].copy_from_slice(bytes);
        fs::write(&path, &damaged).unwrap();
        assert!(shown(&path) == whole, "at {at}: {bytes:?}");
        let damage = Qcow2Info::damage_in(&open_to_change(&path)).unwrap().unwrap();
        assert!(damage.contains("no refcount table"), "{damage}");
        let options = FileOptions::default();
        let error = Qcow2Disk::open(&path, &options, &AllowedDirectories::none()).unwrap_err().to_string();
        assert!(error.contains("refcount table"), "{error}");
        for repair in [Repair::None, Repair::Leaks] {
            let mut check = Qcow2Check::open(&open_to_change(&path), true).unwrap();
            let mut said = String::new();
            assert!(check.run(repair, &mut |line| said.push_str(line)).unwrap().corruptions > 0);
            assert!(said.contains("NOTE the image has no refcount table"), "{said}");
            assert!(fs::read(&path).unwrap() == damaged, "{repair:?}: it has changed");
        }
        let mut check = Qcow2Check::open(&open_to_change(&path), true).unwrap();
        let report = check.run(Repair::All, &mut |_| ()).unwrap();
        assert_eq!((report.corruptions, report.leaks), (0, 0), "at {at}: {bytes:?}");
        drop(check);
        Qcow2Disk::open(&path, &options, &AllowedDirectories::none()).unwrap();
        assert!(shown(&path) == whole, "at {at}: {bytes:?}");
        fs::remove_file(&path).unwrap();
    }
}

/// A refcount table within a cluster shows that clusters are smaller than is said: then all else is elsewhere, too.
#[test]
fn an_image_that_says_its_clusters_are_larger_than_they_are_is_not_read() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = image(directory.path(), Qcow2Features::default(), 0);
    let good = fs::read(&path).unwrap();
    let cluster_bits = number(&good, 48).trailing_zeros() as u8 + 1;
    assert!(good[23] < cluster_bits && cluster_bits < 21);
    for (at, value) in [(23, cluster_bits), (55, 1), (54, 2)] {
        let mut bytes = good.clone();
        bytes[at] = value;
        fs::write(&path, &bytes).unwrap();
        let image = OpenedFile::open(&path, true).unwrap();
        let options = FileOptions { read_only: true, lock: false, ..FileOptions::default() };
        let opened = Qcow2Disk::open(&path, &options, &AllowedDirectories::none()).map(|_| ());
        for refused in [Qcow2Check::open(&image, false).map(|_| ()), opened] {
            let error = refused.unwrap_err().to_string();
            assert!(error.contains("table does not begin with a cluster"), "{at}: {error}");
        }
    }
}

/// Of a table that is longer than a cluster, the second half alone is missing; two parts of the disk share a cluster,
/// and one gets a copy all the same, once; what is marked dirty is not changed by who cannot repair it.
#[test]
fn an_image_with_half_a_refcount_table_is_whole_after_one_repair() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = without_refcounts(directory.path(), true, 0);
    let mut bytes = fs::read(&path).unwrap();
    let table = number(&bytes, 48);
    assert_eq!(table, bytes.len() as u64);
    let l2 = number(&bytes, number(&bytes, 40)) & !(1 << 63);
    bytes.copy_within(l2 as usize..l2 as usize + 8, l2 as usize + 8);
    bytes.extend(vec![0; CLUSTER_BYTES as usize]);
    bytes[56..60].copy_from_slice(&2_u32.to_be_bytes());
    fs::write(&path, &bytes).unwrap();
    let before = shown(&path);
    let mut check = Qcow2Check::open(&open_to_change(&path), true).unwrap();
    let report = check.run(Repair::All, &mut |_| ()).unwrap();
    assert_eq!((report.corruptions, report.leaks), (0, 0), "{report:?}");
    drop(check);
    Qcow2Disk::open(&path, &FileOptions::default(), &AllowedDirectories::none()).unwrap();
    assert!(shown(&path) == before);

    fs::remove_file(&path).unwrap();
    let path = without_refcounts(directory.path(), true, 2);
    let mut bytes = fs::read(&path).unwrap();
    bytes[79] |= 1;
    fs::write(&path, &bytes).unwrap();
    Qcow2Disk::open(&path, &FileOptions::default(), &AllowedDirectories::none()).unwrap_err();
    assert!(fs::read(&path).unwrap() == bytes, "it has changed");
}

/// What two snapshots share is theirs alone: that it has two uses is no reason to leave what is missing of it.
#[test]
fn what_is_missing_of_snapshots_that_share_a_table_becomes_zeros() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = image(directory.path(), Qcow2Features::default(), 0);
    for name in ["one", "another"] {
        Qcow2Disk::make_snapshot(&open_to_change(&path), name, &AllowedDirectories::none()).unwrap();
    }
    let mut bytes = fs::read(&path).unwrap();
    let end = bytes.len() as u64;
    let table = number(&bytes, 64);
    // An entry begins with where its L1 table is, and has 40 bytes, 24 more, an id of one, its name, and zeros.
    let (first, second) = (number(&bytes, table), table + 72);
    assert!(number(&bytes, second).is_multiple_of(CLUSTER_BYTES) && number(&bytes, second) > first);
    bytes.copy_within(table as usize..table as usize + 8, second as usize);
    bytes[first as usize..][..8].copy_from_slice(&(end + (1 << 20)).to_be_bytes());
    fs::write(&path, &bytes).unwrap();
    let report = salvaged(&path, Repair::All);
    assert!(report.zeroed_bytes > 0 && report.missing == 0, "{report:?}");
    assert_eq!(number(&fs::read(&path).unwrap(), first), 0);
}

/// A table that is data of the disk as well, and one in the place of another kind of table, are not made others.
#[test]
fn a_table_with_another_use_is_left_alone() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = image(directory.path(), Qcow2Features::default(), 5);
    let mut bytes = fs::read(&path).unwrap();
    let (l1, refcounts) = (number(&bytes, 40), number(&bytes, 48));
    let refblock = number(&bytes, refcounts);
    // As entries of an L2 table, these refcounts lead far behind the end of the file.
    bytes[l1 as usize..][..8].copy_from_slice(&(refblock | 1 << 63).to_be_bytes());
    fs::write(&path, &bytes).unwrap();
    let image = OpenedFile::open(&path, true).unwrap();
    assert!(Qcow2Check::open(&image, false).unwrap().run(Repair::None, &mut |_| ()).unwrap().corruptions > 0);
    let report = salvaged(&path, Repair::All);
    assert_eq!(report.zeroed_bytes, 0, "{report:?}");
    assert!(fs::read(&path).unwrap()[refblock as usize..][..512] == bytes[refblock as usize..][..512]);
}
