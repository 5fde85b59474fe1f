//! Changes that happen as a whole or not at all.

use crate::rig::{Rig, check_clean, pattern, qemu_img, text};
use blockyard_block::layers::FaultyDisk;
use blockyard_block::specification::{DiskSpecification, OpenContext, OpenError, OpenedDisk};
use blockyard_block::{
    AllowedDirectories, AtomicChange, BlockMapDisk, BlockMapFormat, Disk, FileOptions, FoundJournal, ImageError,
    OpenedFile, Qcow2Backing, Qcow2CreateOptions, Qcow2Disk, VmdkCommit,
};
use rustix::fs::{XattrFlags, getxattr, removexattr, setxattr};
use std::cell::RefCell;
use std::fs;
use std::os::unix::fs::{FileExt, MetadataExt, PermissionsExt, chown, symlink};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use tempfile::TempDir;

const DISK_BYTES: u64 = 4 << 20;

fn specification(path: &Path) -> DiskSpecification {
    path.to_str().unwrap().parse().unwrap()
}

/// Opens it as every command does; what is said of it besides.
fn try_open(path: &Path, read_only: bool) -> (Result<OpenedDisk, OpenError>, Vec<String>) {
    let notes = RefCell::new(Vec::new());
    let note = |note: &str| notes.borrow_mut().push(note.to_owned());
    let context = OpenContext { read_only, note: &note, ..OpenContext::default() };
    let opened = specification(path).open(&context);
    (opened, notes.into_inner())
}

/// For writing: a change that was cut off is completed.
fn open(path: &Path) -> Arc<dyn Disk> {
    try_open(path, false).0.unwrap().disk
}

fn refusal(path: &Path) -> String {
    try_open(path, false).0.err().unwrap().to_string()
}

/// Begins a change, of which what is put in place fails by these faults.
fn begin(path: &Path, faults: &str) -> AtomicChange {
    let OpenedDisk { disk, file, .. } = try_open(path, false).0.unwrap();
    let disk: Arc<dyn Disk> = match faults {
        "" => disk,
        faults => Arc::new(FaultyDisk::new(disk, &faults.parse().unwrap())),
    };
    AtomicChange::begin(disk, file.unwrap()).unwrap()
}

/// A change that has happened and could not be put in place; what the image is to hold.
fn cut_off(path: &Path, before: &[u8], faults: &str) -> Vec<u8> {
    let change = begin(path, faults);
    let wanted = write(&change, before);
    let error = change.commit().unwrap_err().to_string();
    assert!(error.contains("the next command that writes to the image goes on with it"), "{error}");
    wanted
}

fn is_unfinished(path: &Path) -> bool {
    let image = OpenedFile::open(path, true).unwrap();
    matches!(FoundJournal::of(&image, true).unwrap(), FoundJournal::Unfinished(_))
}

fn journal(directory: &TempDir) -> PathBuf {
    let names = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
    names.into_iter().find(|path| path.to_str().unwrap().contains(".blockyard-change-")).unwrap()
}

/// An image with something on it, and what.
fn image(name: &str) -> (TempDir, std::path::PathBuf, Vec<u8>) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join(name);
    match path.extension() {
        Some(_) => Qcow2Disk::create(&path, &Qcow2CreateOptions::new(DISK_BYTES)).unwrap(),
        None => fs::File::create(&path).unwrap().set_len(DISK_BYTES).unwrap(),
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).unwrap();
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
        let change = begin(&path, "");
        write(&change, &before);
        drop(change);
        assert!(fs::read(&path).unwrap() == file && names(&directory) == 1, "{name}");
    }
}

#[test]
fn a_change_that_is_committed_is_there_and_leaves_nothing_else() {
    for name in ["raw", "image.qcow2"] {
        let (directory, path, before) = image(name);
        let change = begin(&path, "");
        let wanted = write(&change, &before);
        change.commit().unwrap();
        assert!(contents(&path) == wanted, "{name}");
        assert!(names(&directory) == 1 && !is_unfinished(&path));
        if name != "raw" {
            check_clean(text(&path));
        }
    }
}

#[test]
fn a_change_that_somebody_still_writes_to_does_not_happen() {
    let (directory, path, before) = image("raw");
    let change = begin(&path, "");
    let disk = change.disk();
    assert!(change.commit().unwrap_err().to_string().contains("is as it was"));
    drop(disk);
    assert!(contents(&path) == before && names(&directory) == 1);
}

/// Wherever the fold is cut off.
#[test]
fn a_change_that_was_cut_off_is_completed_by_who_writes_and_seen_by_who_looks() {
    for name in ["raw", "image.qcow2"] {
        let mut cut_off = 0;
        for nth in 1.. {
            let (directory, path, before) = image(name);
            let change = begin(&path, &format!("write-error:{nth}th+zero-error:{nth}th+flush-error:{nth}th"));
            let wanted = write(&change, &before);
            let Err(error) = change.commit() else { break };
            assert!(error.to_string().contains("goes on with it"), "{error}");
            assert!(names(&directory) == 2 && is_unfinished(&path));
            // Neither another name of the image nor a copy of it is taken for another image.
            let copy = directory.path().join("copy");
            fs::copy(&path, &copy).unwrap();
            assert!(!is_unfinished(&copy));
            let half = fs::read(&path).unwrap();
            let (looked, notes) = try_open(&path, true);
            let OpenedDisk { disk, unfinished, .. } = looked.unwrap();
            assert_eq!((unfinished, notes.len()), (Some(journal(&directory)), 0));
            assert!(Rig::shared(disk, 1).read_all() == wanted, "{name}, {nth}");
            assert!(fs::read(&path).unwrap() == half && is_unfinished(&path), "{name}, {nth}: who looks has written");
            assert!(contents(&path) == wanted && !is_unfinished(&path), "{name}, {nth}");
            if name != "raw" {
                check_clean(text(&path));
            }
            cut_off += 1;
        }
        assert!(cut_off > 1, "{name}: {cut_off}");
    }
}

const KILLED: &str = "BLOCKYARD_TEST_KILLED_FOLD";

/// Not a test: what the next one kills.
#[test]
#[ignore = "run by another test"]
fn fold_slowly() {
    let Some(path) = std::env::var_os(KILLED) else { return };
    let change = begin(Path::new(&path), "write-latency:30ms+zero-latency:30ms");
    let mut rig = Rig::shared(change.disk(), 1);
    pattern(32 << 20, 7).chunks(1 << 20).zip(0..).for_each(|(piece, n)| rig.write(n << 20, piece));
    drop(rig);
    println!("\nfolding");
    change.commit().unwrap();
}

/// What a killed process leaves, no error does: clusters that were allocated for what had not been written.
#[test]
fn a_fold_that_was_killed_leaves_no_leaked_clusters() {
    use std::io::{BufRead, BufReader};
    for pieces in [1, 4, 12, 24] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("image.qcow2");
        Qcow2Disk::create(&path, &Qcow2CreateOptions::new(64 << 20)).unwrap();
        let mut child = std::process::Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "atomic::fold_slowly", "--ignored", "--nocapture"])
            .env(KILLED, &path)
            .stdout(std::process::Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line == "folding"));
        let began = std::time::Instant::now();
        let allocated = || fs::metadata(&path).unwrap().blocks() * 512;
        let (before, mut ended) = (allocated(), false);
        while !ended && allocated() < before + (pieces << 20) {
            assert!(began.elapsed() < std::time::Duration::from_secs(60), "nothing is put in place");
            std::thread::sleep(std::time::Duration::from_millis(1));
            ended = child.try_wait().unwrap().is_some();
        }
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(ended || is_unfinished(&path), "it was done too soon");
        let mut rig = Rig::shared(open(&path), 1);
        let wanted = pattern(32 << 20, 7);
        assert!(wanted.chunks(1 << 20).zip(0..).all(|(piece, n)| rig.read(n << 20, 1 << 20) == piece));
        drop(rig);
        assert!(!is_unfinished(&path));
        check_clean(text(&path));
    }
}

#[test]
fn a_journal_is_for_the_images_owner_from_its_first_byte() {
    for (mode, wanted) in [(0o600, 0o600), (0o644, 0o600), (0o464, 0o400)] {
        let (directory, path, before) = image("raw");
        fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        let Ok(OpenedDisk { disk, file, .. }) = try_open(&path, false).0 else {
            eprintln!("not root: an image that may not be written is not opened");
            continue;
        };
        let faulty = FaultyDisk::new(disk, &"write-error:1st".parse().unwrap());
        let change = AtomicChange::begin(Arc::new(faulty), file.unwrap()).unwrap();
        let is_journal = |link: &fs::DirEntry| {
            let target = fs::read_link(link.path()).unwrap_or_default();
            target.starts_with(directory.path()) && target.file_name() != path.file_name()
        };
        for link in fs::read_dir("/proc/self/fd").unwrap().flatten() {
            if let (true, Ok(metadata)) = (is_journal(&link), fs::metadata(link.path()))
                && metadata.is_file()
            {
                assert_eq!(metadata.mode() & 0o7777, wanted, "before it has its name");
            }
        }
        write(&change, &before);
        change.commit().unwrap_err();
        let metadata = fs::metadata(journal(&directory)).unwrap();
        assert_eq!((metadata.mode() & 0o7777, metadata.nlink()), (wanted, 1));
        fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).unwrap();
    }
}

const MARK: &str = "user.blockyard.change";

/// Takes away what a half-changed image says of itself, where its file system keeps that.
fn take_mark(path: &Path) -> Option<Vec<u8>> {
    let mut mark = vec![0; 100];
    let length = getxattr(path, MARK, &mut mark[..]).ok()?;
    mark.truncate(length);
    removexattr(path, MARK).unwrap();
    Some(mark)
}

/// With its mark, such an image is not taken for a whole one.
fn is_refused_with(path: &Path, mark: Option<&[u8]>, problem: &str) {
    let Some(mark) = mark else { return };
    setxattr(path, MARK, mark, XattrFlags::empty()).unwrap();
    let error = refusal(path);
    assert!(error.contains("is half-changed") && error.contains(problem), "{error}");
    removexattr(path, MARK).unwrap();
}

/// Whatever lies there that may be anybody's is named, and neither taken for a change nor touched.
#[test]
fn a_file_that_others_may_have_put_there_is_no_change() {
    let (directory, path, before) = image("raw");
    let wanted = cut_off(&path, &before, "write-error:1st");
    let (journal, half, mark) = (journal(&directory), fs::read(&path).unwrap(), take_mark(&path));
    let moved = directory.path().join("moved");
    let is_root = rustix::process::geteuid().is_root();
    let link = || symlink(&moved, &journal).unwrap();
    type Case<'a> = (&'a str, &'a dyn Fn(), &'a dyn Fn());
    let in_place = || fs::rename(&moved, &journal).unwrap();
    let mode = |mode: u32| fs::set_permissions(&journal, fs::Permissions::from_mode(mode)).unwrap();
    let cases: [Case<'_>; 6] = [
        ("no regular file", &link, &|| fs::remove_file(&journal).unwrap()),
        ("no regular file", &|| fs::create_dir(&journal).unwrap(), &|| fs::remove_dir(&journal).unwrap()),
        ("a file with several names", &|| fs::hard_link(&moved, &journal).unwrap(), &|| {
            fs::remove_file(&journal).unwrap()
        }),
        ("a file that others may write to", &|| (in_place(), mode(0o620)).0, &|| {
            mode(0o600);
            fs::rename(&journal, &moved).unwrap();
        }),
        ("a file that others may write to", &|| (in_place(), mode(0o602)).0, &|| {
            mode(0o600);
            fs::rename(&journal, &moved).unwrap();
        }),
        (
            "neither the image's owner's nor root's",
            &|| (in_place(), chown(&journal, Some(65534), None).unwrap()).0,
            &|| {
                chown(&journal, Some(0), None).unwrap();
                fs::rename(&journal, &moved).unwrap();
            },
        ),
    ];
    fs::rename(&journal, &moved).unwrap();
    for (problem, put, take) in cases {
        if problem.starts_with("neither") && !is_root {
            eprintln!("not root: no files of others");
            continue;
        }
        put();
        is_refused_with(&path, mark.as_deref(), problem);
        for read_only in [true, false] {
            let (opened, notes) = try_open(&path, read_only);
            let OpenedDisk { disk, file, unfinished, .. } = opened.unwrap();
            let said = format!("counts as no change to {}, as it is {problem}: it is left alone", path.display());
            assert!(notes.len() == 1 && notes[0].contains(&said), "{notes:?}");
            assert!(unfinished.is_none() && fs::read(&path).unwrap() == half, "{problem}");
            if !read_only {
                let error = AtomicChange::begin(disk, file.unwrap()).unwrap_err().to_string();
                assert!(error.contains("is in the way"), "{error}");
            }
        }
        take();
    }
    in_place();
    assert!(contents(&path) == wanted && names(&directory) == 1);
}

/// Somebody has the image's owner copy a file that he has made, and moves the copy to where the journal would be.
#[test]
fn a_copy_of_a_change_is_no_change() {
    let (directory, path, before) = image("raw");
    let wanted = cut_off(&path, &before, "write-error:1st");
    let (journal, half) = (journal(&directory), fs::read(&path).unwrap());
    let moved = directory.path().join("moved");
    fs::rename(&journal, &moved).unwrap();
    // With the mode, the owner and the contents of the true one.
    fs::copy(&moved, &journal).unwrap();
    let mark = take_mark(&path);
    is_refused_with(&path, mark.as_deref(), "a copy of a change's file");
    for read_only in [true, false] {
        let (opened, notes) = try_open(&path, read_only);
        assert!(opened.unwrap().unfinished.is_none());
        assert!(
            notes.len() == 1 && notes[0].contains("as it is a copy of a change's file: it is left alone"),
            "{notes:?}"
        );
        assert!(fs::read(&path).unwrap() == half && journal.exists());
    }
    fs::rename(&moved, &journal).unwrap();
    assert!(contents(&path) == wanted && names(&directory) == 1);
}

/// If it were cut off, those who may not read its journal would write to an image that is not as anybody left it.
#[test]
fn who_neither_owns_an_image_nor_is_root_does_not_change_it_as_a_whole() {
    if !rustix::process::geteuid().is_root() {
        eprintln!("not root: nobody else to be");
        return;
    }
    let (directory, path, before) = image("raw");
    fs::set_permissions(directory.path(), fs::Permissions::from_mode(0o777)).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).unwrap();
    let refused = std::thread::scope(|scope| {
        let somebody_else = || {
            // Of this thread alone.
            rustix::thread::set_thread_uid(rustix::process::Uid::from_raw(1234)).unwrap();
            let OpenedDisk { disk, file, .. } = try_open(&path, false).0.unwrap();
            AtomicChange::begin(disk, file.unwrap()).unwrap_err().to_string()
        };
        scope.spawn(somebody_else).join().unwrap()
    });
    assert!(refused.contains("by its owner and by root only"), "{refused}");
    assert_eq!(names(&directory), 1);
    // Root's is the owner's.
    chown(&path, Some(1234), None).unwrap();
    let wanted = cut_off(&path, &before, "write-error:1st");
    assert_eq!(fs::metadata(self::journal(&directory)).unwrap().uid(), 1234);
    assert!(contents(&path) == wanted);
}

/// The owner of the directory puts another file in the image's place at every moment that there is: what is judged, and
/// what is written to, is the file that was opened.
#[test]
fn a_change_is_put_in_place_of_the_file_that_was_judged() {
    let (directory, path, before) = image("raw");
    let wanted = cut_off(&path, &before, "write-error:1st");
    let victim = directory.path().join("victim");
    fs::write(&victim, vec![9; DISK_BYTES as usize]).unwrap();
    let there = directory.path().join("there");
    fs::create_dir(&there).unwrap();
    let link = there.join("image");
    symlink("../raw", &link).unwrap();
    // Opened through the link; then the link leads to the victim, and so does the name.
    let image = OpenedFile::open(&link, false).unwrap();
    let swap = || {
        fs::remove_file(&link).unwrap();
        symlink("../victim", &link).unwrap();
        fs::rename(&path, directory.path().join("aside")).unwrap();
        symlink("victim", &path).unwrap();
    };
    swap();
    // Nothing is found for a file that its name does not lead to any more, and what is half-changed says so where there
    // are attributes; and a change that was found before is the file's own.
    let is_marked = getxattr(directory.path().join("aside"), MARK, &mut [0; 100]).is_ok();
    match FoundJournal::of(&image, false) {
        Err(error) if is_marked => assert!(error.to_string().contains("is half-changed"), "{error}"),
        found => assert!(!is_marked && matches!(found.unwrap(), FoundJournal::None)),
    }
    fs::remove_file(&path).unwrap();
    fs::rename(directory.path().join("aside"), &path).unwrap();
    fs::remove_file(&link).unwrap();
    symlink("../raw", &link).unwrap();
    let FoundJournal::Unfinished(change) = FoundJournal::of(&image, false).unwrap() else { panic!("it is there") };
    image.lock(&FileOptions::default()).unwrap();
    let file = image.file().try_clone().unwrap();
    let disk = blockyard_block::FileDisk::from_file(file, &FileOptions::default()).unwrap();
    swap();
    change.complete(Arc::new(disk), false).unwrap();
    assert_eq!(fs::read(&victim).unwrap(), vec![9; DISK_BYTES as usize]);
    assert!(fs::read(directory.path().join("aside")).unwrap() == wanted);
    let names: Vec<_> = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().starts_with(".blockyard")), "{names:?}");
}

#[test]
fn an_image_is_not_seen_through_one_that_is_half_changed() {
    let (directory, path, before) = image("raw");
    let top = directory.path().join("top.qcow2");
    let backing = Some(Qcow2Backing { name: "raw".into(), format: "raw".into() });
    Qcow2Disk::create(&top, &Qcow2CreateOptions { backing, ..Qcow2CreateOptions::new(DISK_BYTES) }).unwrap();
    let wanted = cut_off(&path, &before, "write-error:1st");
    let allowed = AllowedDirectories::new(&[directory.path()]).unwrap();
    let error = Qcow2Disk::open(&top, &FileOptions::default(), &allowed).unwrap_err().to_string();
    assert!(
        error.contains("has a change that was cut off")
            && error.contains("complete it first, by opening it as a disk, for writing"),
        "{error}"
    );
    open(&path);
    let top = Qcow2Disk::open(&top, &FileOptions::default(), &allowed).unwrap();
    assert!(Rig::new(top).read_all() == wanted);
}

#[test]
fn an_image_that_is_restored_after_a_change_could_not_be_put_in_place_is_not_changed() {
    for name in ["raw", "image.qcow2"] {
        let (directory, path, before) = image(name);
        let backup = fs::read(&path).unwrap();
        let wanted = cut_off(&path, &before, "write-error:2nd");
        // Its permissions are what may have to be mended.
        let permissions = fs::metadata(&path).unwrap().permissions();
        fs::set_permissions(&path, permissions).unwrap();
        let half = fs::read(&path).unwrap();
        let modified = fs::metadata(&path).unwrap().modified().unwrap();
        fs::write(&path, &backup).unwrap();
        let old = std::time::SystemTime::UNIX_EPOCH + std::time::Duration::from_secs(1);
        fs::File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
        let error = refusal(&path);
        assert!(error.contains("has been written to by something else"), "{name}: {error}");
        assert!(try_open(&path, true).0.is_err() && fs::read(&path).unwrap() == backup, "{name}");
        fs::write(&path, half).unwrap();
        fs::File::options().write(true).open(&path).unwrap().set_modified(modified).unwrap();
        assert!(contents(&path) == wanted && names(&directory) == 1, "{name}");
    }
}

/// A change that was cut off lies beside one of an image's names. By another, the image would be read and written
/// half-changed.
#[test]
fn an_image_with_several_names_is_not_changed() {
    let (directory, path, before) = image("disk");
    let elsewhere = tempfile::tempdir_in(directory.path()).unwrap();
    let other = elsewhere.path().join("other");
    fs::hard_link(&path, &other).unwrap();
    for name in [&path, &other] {
        let OpenedDisk { disk, file, .. } = try_open(name, false).0.unwrap();
        let error = AtomicChange::begin(disk, file.unwrap()).unwrap_err().to_string();
        assert!(error.contains("several names"), "{error}");
    }
    fs::remove_file(&other).unwrap();
    let wanted = cut_off(&path, &before, "write-error:1st");
    assert!(contents(&path) == wanted);
}

/// What is left of a change beside a file of a VMDK, all of which is in place, is for who has locked that file.
#[test]
fn what_is_left_beside_a_file_of_a_vmdk_is_removed_under_its_lock() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let create = |arguments: &[&str]| qemu_img(&[&["create", "-q", "-f", "vmdk"], arguments].concat());
    create(&[text(&at("base.vmdk")), "1M"]);
    create(&["-F", "vmdk", "-b", text(&at("base.vmdk")), text(&at("top.vmdk"))]);
    create(&["-o", "subformat=twoGbMaxExtentSparse", text(&at("parts.vmdk")), "1M"]);
    let allowed = AllowedDirectories::new(&[directory.path()]).unwrap();
    let commit = || VmdkCommit::open(OpenedFile::open(&at("top.vmdk"), false).unwrap(), None, &allowed).map(drop);
    let write = || {
        let options = FileOptions::default();
        BlockMapDisk::open(&at("parts.vmdk"), BlockMapFormat::Vmdk, &options, &allowed).map(drop)
    };
    type Work<'a> = &'a dyn Fn() -> Result<(), ImageError>;
    for (name, work) in [("base.vmdk", &commit as Work<'_>), ("parts-s001.vmdk", &write)] {
        let (path, before) = (at(name), fs::read(at(name)).unwrap());
        let raw: DiskSpecification = format!("{},format=raw", path.display()).parse().unwrap();
        let OpenedDisk { disk, file, .. } = raw.open(&OpenContext::default()).unwrap();
        let failing = Arc::new(FaultyDisk::new(disk, &"write-error:1".parse().unwrap()));
        let change = AtomicChange::begin(failing, file.unwrap()).unwrap();
        Rig::shared(change.disk(), 1).write(0, &before[..512]);
        change.commit().unwrap_err();
        // As if it were: who did it was killed before he had removed it.
        let journal = journal(&directory);
        let record = journal.metadata().unwrap().len() - 512;
        fs::File::options().write(true).open(&journal).unwrap().write_all_at(&[3], record + 8).unwrap();
        fs::write(&path, &before).unwrap();
        let other = OpenedFile::open(&path, true).unwrap();
        other.lock(&FileOptions { read_only: true, ..FileOptions::default() }).unwrap();
        let error = work().unwrap_err().to_string();
        assert!(error.contains("is in use") && journal.exists(), "{error}");
        drop(other);
        work().unwrap();
        assert!(!journal.exists());
    }
}
