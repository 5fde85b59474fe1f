//! Changes that happen as a whole or not at all.

use crate::rig::{Rig, check_clean, pattern, text};
use blockyard_block::layers::FaultyDisk;
use blockyard_block::{
    AllowedDirectories, AtomicChange, Disk, FileDisk, FileOptions, Qcow2Backing, Qcow2CreateOptions, Qcow2Disk,
    UnfinishedChange,
};
use std::fs;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

const DISK_BYTES: u64 = 4 << 20;

fn open(path: &Path) -> Arc<dyn Disk> {
    let options = FileOptions::default();
    match path.extension() {
        Some(_) => Arc::new(Qcow2Disk::open(path, &options, &AllowedDirectories::none()).unwrap()),
        None => Arc::new(FileDisk::open(path, &options).unwrap()),
    }
}

/// An image with something on it, and what.
fn image(name: &str) -> (TempDir, std::path::PathBuf, Vec<u8>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    match path.extension() {
        Some(_) => Qcow2Disk::create(&path, &Qcow2CreateOptions::new(DISK_BYTES)).unwrap(),
        None => fs::File::create(&path).unwrap().set_len(DISK_BYTES).unwrap(),
    }
    let mut rig = Rig::shared(open(&path), 1);
    rig.write(0, &pattern(1 << 20, 1));
    rig.write(2 << 20, &pattern(300 << 10, 2));
    let contents = rig.read_all();
    (directory, path, contents)
}

fn contents(path: &Path) -> Vec<u8> {
    Rig::shared(open(path), 1).read_all()
}

fn names(directory: &TempDir) -> usize {
    fs::read_dir(directory.path()).unwrap().count()
}

/// Writes to the disk; what it holds then.
fn write(change: &AtomicChange, contents: &[u8]) -> Vec<u8> {
    let mut wanted = contents.to_vec();
    let mut rig = Rig::shared(change.disk(), 4);
    for (offset, length, seed) in [(500_u64 << 10, 900_usize << 10, 3), ((3 << 20) + 512, 512, 4)] {
        let bytes = pattern(length, seed);
        rig.write(offset, &bytes);
        wanted[offset as usize..][..length].copy_from_slice(&bytes);
    }
    let zeroes = blockyard_block::Operation::WriteZeroes { length_bytes: 200 << 10, may_unmap: true };
    rig.perform(zeroes, 2 << 20, &[]).unwrap();
    wanted[2 << 20..][..200 << 10].fill(0);
    assert!(rig.read_all() == wanted);
    wanted
}

#[test]
fn a_change_that_is_given_up_leaves_every_byte_as_it_was() {
    for name in ["raw", "image.qcow2"] {
        let (directory, path, before) = image(name);
        let file = fs::read(&path).unwrap();
        let change = AtomicChange::begin(open(&path), &path).unwrap();
        write(&change, &before);
        drop(change);
        assert!(fs::read(&path).unwrap() == file && names(&directory) == 1, "{name}");
    }
}

#[test]
fn a_change_that_is_committed_is_there_and_leaves_nothing_else() {
    for name in ["raw", "image.qcow2"] {
        let (directory, path, before) = image(name);
        let change = AtomicChange::begin(open(&path), &path).unwrap();
        let wanted = write(&change, &before);
        change.commit().unwrap();
        assert!(contents(&path) == wanted, "{name}");
        assert!(names(&directory) == 1 && UnfinishedChange::find(&path).is_none());
        if name != "raw" {
            check_clean(text(&path));
        }
    }
}

#[test]
fn a_change_that_somebody_still_writes_to_does_not_happen() {
    let (directory, path, before) = image("raw");
    let change = AtomicChange::begin(open(&path), &path).unwrap();
    let disk = change.disk();
    assert!(change.commit().unwrap_err().to_string().contains("is as it was"));
    drop(disk);
    assert!(contents(&path) == before && names(&directory) == 1);
}

/// Wherever the fold is cut off.
#[test]
fn a_change_that_was_cut_off_is_completed() {
    for name in ["raw", "image.qcow2"] {
        let mut cut_off = 0;
        for nth in 1.. {
            let (directory, path, before) = image(name);
            let faults = format!("write-error:{nth}th+zero-error:{nth}th+flush-error:{nth}th").parse().unwrap();
            let faulty: Arc<dyn Disk> = Arc::new(FaultyDisk::new(open(&path), &faults));
            let change = AtomicChange::begin(faulty, &path).unwrap();
            let wanted = write(&change, &before);
            let Err(error) = change.commit() else { break };
            assert!(error.to_string().contains("the next command on the image goes on with it"), "{error}");
            assert_eq!(names(&directory), 2);
            // Neither another name of the image nor a copy of it is taken for another image.
            let copy = directory.path().join("copy");
            fs::copy(&path, &copy).unwrap();
            assert!(UnfinishedChange::find(&copy).is_none());
            UnfinishedChange::find(&path).unwrap().complete(open(&path)).unwrap();
            assert!(contents(&path) == wanted && UnfinishedChange::find(&path).is_none(), "{name}, {nth}");
            cut_off += 1;
        }
        assert!(cut_off > 1, "{name}: {cut_off}");
    }
}

#[test]
fn a_file_that_somebody_else_has_put_there_is_no_change() {
    let (directory, path, before) = image("raw");
    let faulty = Arc::new(FaultyDisk::new(open(&path), &"write-error:1th".parse().unwrap()));
    let change = AtomicChange::begin(faulty, &path).unwrap();
    write(&change, &before);
    assert!(change.commit().is_err());
    let journal =
        fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path()).find(|other| *other != path);
    let journal = journal.unwrap();
    let moved = directory.path().join("moved");
    fs::rename(&journal, &moved).unwrap();
    std::os::unix::fs::symlink(&moved, &journal).unwrap();
    assert!(UnfinishedChange::find(&path).is_none());
    fs::rename(&moved, &journal).unwrap();
    let found = UnfinishedChange::find(&path).unwrap();
    // Nobody's, and for root alone to give away.
    if std::os::unix::fs::chown(&journal, Some(65534), None).is_ok() {
        assert!(UnfinishedChange::find(&path).is_none());
        assert!(found.complete(open(&path)).unwrap_err().to_string().contains("no file of the image's owner"));
    }
}

#[test]
fn an_image_is_not_seen_through_one_that_is_half_changed() {
    let (directory, path, before) = image("raw");
    let top = directory.path().join("top.qcow2");
    let backing = Some(Qcow2Backing { name: "raw".into(), format: "raw".into() });
    Qcow2Disk::create(&top, &Qcow2CreateOptions { backing, ..Qcow2CreateOptions::new(DISK_BYTES) }).unwrap();
    let faulty: Arc<dyn Disk> = Arc::new(FaultyDisk::new(open(&path), &"write-error:1st".parse().unwrap()));
    let change = AtomicChange::begin(faulty, &path).unwrap();
    let wanted = write(&change, &before);
    change.commit().unwrap_err();
    let allowed = AllowedDirectories::new(&[directory.path()]).unwrap();
    let error = Qcow2Disk::open(&top, &FileOptions::default(), &allowed).unwrap_err().to_string();
    assert!(error.contains("has a change that must be completed first"), "{error}");
    UnfinishedChange::find(&path).unwrap().complete(open(&path)).unwrap();
    let top = Qcow2Disk::open(&top, &FileOptions::default(), &allowed).unwrap();
    assert!(Rig::new(top).read_all() == wanted);
}

#[test]
fn two_who_find_a_change_do_it_once() {
    let (_directory, path, before) = image("raw");
    let faulty: Arc<dyn Disk> = Arc::new(FaultyDisk::new(open(&path), &"flush-error:1st".parse().unwrap()));
    let change = AtomicChange::begin(faulty, &path).unwrap();
    let wanted = write(&change, &before);
    change.commit().unwrap_err();
    let [first, second] = [UnfinishedChange::find(&path).unwrap(), UnfinishedChange::find(&path).unwrap()];
    first.complete(open(&path)).unwrap();
    Rig::shared(open(&path), 1).write(0, &pattern(512, 9));
    second.complete(open(&path)).unwrap();
    assert!(contents(&path)[512..] == wanted[512..] && contents(&path)[..512] == pattern(512, 9));
}

#[test]
fn an_image_that_is_restored_after_a_change_could_not_be_put_in_place_is_not_changed() {
    for name in ["raw", "image.qcow2"] {
        let (directory, path, before) = image(name);
        let backup = fs::read(&path).unwrap();
        let faulty: Arc<dyn Disk> = Arc::new(FaultyDisk::new(open(&path), &"write-error:2nd".parse().unwrap()));
        let change = AtomicChange::begin(faulty, &path).unwrap();
        let wanted = write(&change, &before);
        change.commit().unwrap_err();
        // Its permissions are what may have to be mended.
        let permissions = fs::metadata(&path).unwrap().permissions();
        fs::set_permissions(&path, permissions).unwrap();
        let half = fs::read(&path).unwrap();
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, &backup).unwrap();
        let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1);
        fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
        let error = UnfinishedChange::find(&path).unwrap().complete(open(&path)).unwrap_err().to_string();
        assert!(error.contains("has been written to by something else"), "{name}: {error}");
        assert!(contents(&path) == before, "{name}");
        fs::write(&path, half).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
        UnfinishedChange::find(&path).unwrap().complete(open(&path)).unwrap();
        assert!(contents(&path) == wanted && names(&directory) == 1, "{name}");
    }
}
