use super::journal_record::IMAGE_MARK;
use super::lasting_identity::LastingIdentity;
use super::unfinished_change::{ANOTHER_IMAGES, COPY, NO_CHANGE};
use super::*;
use crate::FileDisk;
use crate::tests::own_mounts::among_own_mounts;
use crate::tests::unknown_users::among_unknown_users;
use crate::write::write_bytes;
use std::fs::{self, File};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};
use tempfile::TempDir;

const BYTES: usize = 1 << 20;

/// The image's disk, and its file.
fn open_image(path: &Path) -> (Arc<dyn Disk>, OpenedFile) {
    let file = OpenedFile::open(path, false).unwrap();
    file.lock(&FileOptions::default()).unwrap();
    let disk = FileDisk::on_opened(file.file().try_clone().unwrap(), path, &FileOptions::default()).unwrap();
    (Arc::new(disk), file)
}

fn find(path: &Path) -> (Arc<dyn Disk>, FoundJournal) {
    let (disk, file) = open_image(path);
    let found = FoundJournal::of(&file, false).unwrap();
    (disk, found)
}

fn complete(path: &Path) -> Result<(), ImageError> {
    match find(path) {
        (disk, FoundJournal::Unfinished(change)) => change.complete(disk, false),
        (_, found) => panic!("{found:?}"),
    }
}

/// An image, and a change to it that has begun.
fn begun() -> (TempDir, PathBuf, AtomicChange) {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    fs::write(&path, vec![1; BYTES]).unwrap();
    let (disk, file) = open_image(&path);
    let change = AtomicChange::begin(disk, file).unwrap();
    write_bytes(&*change.disk(), 65536, &[2; 4096]).unwrap();
    (directory, path, change)
}

/// An image, and a change to it that has happened, and of which nothing is in place: its process was killed.
fn killed() -> (TempDir, PathBuf) {
    let (directory, path, change) = begun();
    change.happen().unwrap();
    assert_eq!(fs::read(&path).unwrap(), vec![1; BYTES]);
    (directory, path)
}

#[test]
fn a_change_to_an_image_that_was_restored_since_is_left_to_its_owner() {
    let (directory, path) = killed();
    let old = SystemTime::now() - Duration::from_secs(1000);
    // As `cp -p` has it: in the same file.
    fs::write(&path, vec![3; BYTES]).unwrap();
    File::options().write(true).open(&path).unwrap().set_modified(old).unwrap();
    for _ in 0..2 {
        let error = complete(&path).unwrap_err().to_string();
        assert!(error.contains("written to by something else") && error.contains("remove "), "{error}");
        assert_eq!(fs::read(&path).unwrap(), vec![3; BYTES]);
    }
    // As the message says.
    let error = complete(&path).unwrap_err().to_string();
    let unmarking = format!("`setfattr -x user.blockyard.change {}`", path.display());
    assert_eq!(error.contains(&unmarking), is_marked(&path), "{error}");
    unmark(&path);
    fs::remove_file(journal(&directory, &path)).unwrap();
    assert!(matches!(find(&path).1, FoundJournal::None));
    assert_eq!(fs::read(&path).unwrap(), vec![3; BYTES]);
}

/// Takes an image for whole as it is, as messages say.
fn unmark(path: &Path) {
    if is_marked(path) {
        rustix::fs::removexattr(path, IMAGE_MARK.name()).unwrap();
    }
}

#[test]
fn where_nobody_can_tell_whose_files_are_no_change_counts_and_none_begins() {
    let prepare = || {
        let (directory, path) = killed();
        fs::write(directory.path().join("fresh"), vec![1; BYTES]).unwrap();
        // An image without one says less, and is taken for whole.
        unmark(&path);
        directory
    };
    let test = "formats::atomic_change::tests::where_nobody_can_tell_whose_files_are_no_change_counts_and_none_begins";
    let directory = among_unknown_users(test, prepare, |directory| {
        let (_, found) = find(&directory.join("image"));
        let FoundJournal::Foreign(ForeignJournal { problem, .. }) = found else { panic!("{found:?}") };
        assert!(problem.contains("maybe anybody's"), "{problem}");
        let (disk, file) = open_image(&directory.join("fresh"));
        let error = AtomicChange::begin(disk, file).unwrap_err().to_string();
        assert!(error.contains("nobody could tell whose"), "{error}");
    });
    assert!(matches!(find(&directory.path().join("image")).1, FoundJournal::Unfinished(_)));
}

#[test]
fn a_change_of_which_nothing_was_in_place_is_completed() {
    let (directory, path) = killed();
    // Whatever else becomes of it.
    let renamed = directory.path().join("renamed");
    fs::rename(&path, &renamed).unwrap();
    fs::set_permissions(&renamed, fs::Permissions::from_mode(0o640)).unwrap();
    let path = renamed;
    complete(&path).unwrap();
    let image = fs::read(&path).unwrap();
    assert!(image[65536..][..4096] == [2; 4096] && image[..65536] == [1; 65536] && image[69632] == 1);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

/// As [`killed`], when the image was being written.
fn killed_later() -> (TempDir, PathBuf) {
    let (directory, path) = killed();
    let (_disk, FoundJournal::Unfinished(change)) = find(&path) else { panic!("it is there") };
    let Ok(mut record) = change.record() else { panic!("it is whole") };
    record.begin(change.image.file()).unwrap();
    (directory, path)
}

fn journal(directory: &TempDir, path: &Path) -> PathBuf {
    let mut names = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
    names.find(|found| found != path).unwrap()
}

/// Who may rename files there moves another one of the owner's beside the image.
#[test]
fn any_file_under_a_journals_name_is_no_change() {
    for content in [vec![], vec![0; 512], vec![7; BYTES]] {
        let (directory, path) = killed();
        let name = journal(&directory, &path);
        unmark(&path);
        fs::remove_file(&name).unwrap();
        fs::write(&name, &content).unwrap();
        if rustix::fs::setxattr(&name, "user.any", b"", rustix::fs::XattrFlags::empty()).is_err() {
            eprintln!("no attributes here");
            return;
        }
        fs::set_permissions(&name, fs::Permissions::from_mode(0o600)).unwrap();
        for read_only in [true, false] {
            let image = OpenedFile::open(&path, read_only).unwrap();
            let found = FoundJournal::of(&image, read_only).unwrap();
            assert!(matches!(&found, FoundJournal::Foreign(found) if found.problem == NO_CHANGE), "{found:?}");
            FoundJournal::refuse_to_write(&image).unwrap();
        }
        assert_eq!(fs::read(&name).unwrap(), content);
    }
}

#[test]
fn who_takes_a_change_away_while_it_is_put_in_place_cannot_bring_it_back() {
    for decoy in [false, true] {
        let (directory, path) = killed_later();
        let (disk, FoundJournal::Unfinished(change)) = find(&path) else { panic!("it is there") };
        let (journal, aside) = (journal(&directory, &path), directory.path().join("aside"));
        fs::rename(&journal, &aside).unwrap();
        if decoy {
            fs::write(&journal, b"decoy").unwrap();
        }
        change.complete(disk, false).unwrap();
        assert_eq!(fs::read(&path).unwrap()[65536..][..4096], [2; 4096]);
        assert_eq!(fs::read(&journal).ok(), decoy.then(|| b"decoy".to_vec()));
        fs::write(&path, vec![3; BYTES]).unwrap();
        fs::rename(&aside, &journal).unwrap();
        let looked_at = OpenedFile::open(&path, true).unwrap();
        assert!(matches!(FoundJournal::of(&looked_at, true).unwrap(), FoundJournal::None));
        complete(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap(), vec![3; BYTES]);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}

#[test]
fn an_image_whose_change_is_gone_says_so_and_who_takes_it_as_it_is_keeps_what_he_writes() {
    let (directory, path) = killed_later();
    let (journal, aside) = (journal(&directory, &path), directory.path().join("aside"));
    fs::rename(&journal, &aside).unwrap();
    let image = OpenedFile::open(&path, false).unwrap();
    if IMAGE_MARK.of(image.file()).unwrap().is_none() {
        eprintln!("no attributes here");
        return;
    }
    for (decoy, why) in [(false, "is gone"), (true, "is no regular file")] {
        if decoy {
            std::os::unix::fs::symlink("aside", &journal).unwrap();
        }
        let error = FoundJournal::of(&image, true).unwrap_err().to_string();
        let gone = format!("{}, which had all of it, {why}", journal.display());
        assert!(error.contains("is half-changed") && error.contains(&gone), "{error}");
    }
    fs::rename(&aside, &journal).unwrap();
    assert!(matches!(FoundJournal::of(&image, true).unwrap(), FoundJournal::Unfinished(_)));
    rustix::fs::fremovexattr(image.file(), IMAGE_MARK.name()).unwrap();
    fs::write(&path, vec![3; BYTES]).unwrap();
    drop(image);
    let error = complete(&path).unwrap_err().to_string();
    assert!(error.contains("written to by something else"), "{error}");
    assert_eq!(fs::read(&path).unwrap(), vec![3; BYTES]);
}

/// Another change to that image, of which nothing is in place but the mark.
fn killed_again(path: &Path) {
    let (disk, file) = open_image(path);
    let change = AtomicChange::begin(disk, file).unwrap();
    write_bytes(&*change.disk(), 131_072, &[4; 4096]).unwrap();
    let change = change.happen().unwrap();
    let Ok(mut record) = change.record() else { panic!("it is whole") };
    record.begin(change.image.file()).unwrap();
}

#[test]
fn the_journal_of_an_earlier_change_does_not_count_for_a_later_one() {
    for was_done in [false, true] {
        let (directory, path) = killed();
        let (name, earlier) = (journal(&directory, &path), directory.path().join("earlier"));
        let (disk, FoundJournal::Unfinished(change)) = find(&path) else { panic!("it is there") };
        fs::rename(&name, &earlier).unwrap();
        if was_done {
            change.complete(disk, false).unwrap();
        } else {
            drop((disk, change));
            unmark(&path);
        }
        killed_again(&path);
        let image = OpenedFile::open(&path, false).unwrap();
        if IMAGE_MARK.of(image.file()).unwrap().is_none() {
            eprintln!("no attributes here");
            return;
        }
        let (later, before) = (directory.path().join("later"), fs::read(&path).unwrap());
        fs::rename(&name, &later).unwrap();
        fs::rename(&earlier, &name).unwrap();
        for read_only in [true, false] {
            let error = FoundJournal::of(&image, read_only).unwrap_err().to_string();
            assert!(error.contains("is half-changed") && error.contains("is that of another change"), "{error}");
        }
        assert!(fs::read(&path).unwrap() == before);
        fs::rename(&later, &name).unwrap();
        drop(image);
        complete(&path).unwrap();
        assert_eq!(fs::read(&path).unwrap()[131_072..][..4096], [4; 4096]);
    }
}

#[test]
fn a_half_changed_image_whose_name_is_another_files_says_so() {
    let (directory, path) = killed_later();
    let image = OpenedFile::open(&path, false).unwrap();
    fs::rename(&path, directory.path().join("moved")).unwrap();
    fs::write(&path, b"decoy").unwrap();
    if IMAGE_MARK.of(image.file()).unwrap().is_none() {
        eprintln!("no attributes here");
        return;
    }
    for read_only in [true, false] {
        let error = FoundJournal::of(&image, read_only).unwrap_err().to_string();
        assert!(error.contains("is half-changed"), "{error}");
    }
}

/// Who sends somebody a file, byte by byte, sees which file that becomes before the last ones.
#[test]
fn what_somebody_was_sent_is_no_change_though_it_says_which_file_it_is() {
    let (directory, path) = killed();
    let (name, sent) = (journal(&directory, &path), directory.path().join("sent"));
    fs::copy(&name, &sent).unwrap();
    let file = File::options().read(true).write(true).open(&sent).unwrap();
    let own = LastingIdentity::of(&file).unwrap().unwrap();
    let Ok(record) = JournalRecord::read(&file) else { panic!("it is whole") };
    record.forge(own).unwrap();
    if rustix::fs::fsetxattr(&file, "user.test", b"1", rustix::fs::XattrFlags::empty()).is_err() {
        eprintln!("no attributes here");
        return;
    }
    fs::rename(&sent, &name).unwrap();
    if is_marked(&path) {
        let image = OpenedFile::open(&path, false).unwrap();
        let error = FoundJournal::of(&image, false).unwrap_err().to_string();
        assert!(error.contains("is half-changed") && error.contains("is a copy of a change's file"), "{error}");
        unmark(&path);
    }
    let found = find(&path).1;
    assert!(
        matches!(&found, FoundJournal::Foreign(found) if found.problem == "a copy of a change's file"),
        "{found:?}"
    );
}

/// As [`find`], where nobody is locked out.
fn find_unlocked(path: &Path) -> (Arc<dyn Disk>, UnfinishedChange) {
    let image = OpenedFile::open(path, false).unwrap();
    let options = FileOptions { lock: false, ..FileOptions::default() };
    let disk = FileDisk::on_opened(image.file().try_clone().unwrap(), path, &options).unwrap();
    let FoundJournal::Unfinished(change) = FoundJournal::of(&image, false).unwrap() else { panic!("it is there") };
    (Arc::new(disk), change)
}

fn is_marked(path: &Path) -> bool {
    IMAGE_MARK.of(&File::open(path).unwrap()).unwrap().is_some()
}

#[test]
fn who_removes_the_journal_of_a_change_while_it_is_committed_does_not_undo_it() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("image");
    fs::write(&path, vec![1; BYTES]).unwrap();
    let (disk, file) = open_image(&path);
    let change = AtomicChange::begin(Arc::clone(&disk), file).unwrap();
    write_bytes(&*change.disk(), 65536, &[2; 4096]).unwrap();
    let change = change.happen().unwrap();
    fs::remove_file(journal(&directory, &path)).unwrap();
    change.complete(disk, false).unwrap();
    assert_eq!(fs::read(&path).unwrap()[65536..][..4096], [2; 4096]);
    assert!(!is_marked(&path));
}

#[test]
fn who_removes_a_journal_that_was_found_has_no_half_changed_image_taken_for_a_whole_one() {
    for killed in [killed, killed_later] {
        let (directory, path) = killed();
        let (disk, FoundJournal::Unfinished(change)) = find(&path) else { panic!("it is there") };
        fs::remove_file(journal(&directory, &path)).unwrap();
        change.complete(disk, false).unwrap();
        assert_eq!(fs::read(&path).unwrap()[65536..][..4096], [2; 4096]);
        assert!(!is_marked(&path));
    }
}

#[test]
fn a_journal_that_is_cut_short_and_removed_leaves_the_image_half_changed() {
    let (directory, path) = killed_later();
    let (disk, FoundJournal::Unfinished(change)) = find(&path) else { panic!("it is there") };
    let (journal, was_marked) = (journal(&directory, &path), is_marked(&path));
    File::options().write(true).open(&journal).unwrap().set_len(512).unwrap();
    fs::remove_file(&journal).unwrap();
    let error = change.complete(disk, false).unwrap_err().to_string();
    assert!(error.contains("is half-changed") && error.contains("is gone") && error.contains("restore"), "{error}");
    assert_eq!(is_marked(&path), was_marked);
}

#[test]
fn a_half_changed_image_is_not_changed_further() {
    let (directory, path) = killed_later();
    fs::remove_file(journal(&directory, &path)).unwrap();
    if !is_marked(&path) {
        eprintln!("no attributes here");
        return;
    }
    let (disk, file) = open_image(&path);
    let said = FoundJournal::of(&file, false).unwrap_err().to_string();
    let error = AtomicChange::begin(disk, file).unwrap_err().to_string();
    assert!(error.contains("is half-changed") && error == said, "{error}");
    assert!(is_marked(&path));
}

#[test]
fn what_somebody_else_has_completed_is_not_put_over_what_was_written_since() {
    let (directory, path) = killed_later();
    let (disk, change) = find_unlocked(&path);
    complete(&path).unwrap();
    fs::write(&path, vec![3; BYTES]).unwrap();
    change.complete(disk, false).unwrap();
    assert_eq!(fs::read(&path).unwrap(), vec![3; BYTES]);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

#[test]
fn an_image_is_not_whole_when_somebody_else_has_begun_another_change() {
    for is_removed in [false, true] {
        let (directory, path) = killed_later();
        let (disk, change) = find_unlocked(&path);
        complete(&path).unwrap();
        killed_again(&path);
        if !is_marked(&path) {
            eprintln!("no attributes here");
            return;
        }
        if is_removed {
            fs::remove_file(journal(&directory, &path)).unwrap();
        }
        let error = change.complete(disk, false).unwrap_err().to_string();
        let why = if is_removed { "is half-changed" } else { "has a change that was cut off" };
        assert!(error.contains(why) && is_marked(&path), "{error}");
    }
}

/// Neither before that nor then.
#[test]
fn what_somebody_is_being_sent_is_no_change_when_all_of_it_has_come() {
    let (directory, path) = killed();
    let (name, sent) = (journal(&directory, &path), directory.path().join("sent"));
    fs::copy(&name, &sent).unwrap();
    let file = File::options().read(true).write(true).open(&sent).unwrap();
    if rustix::fs::fsetxattr(&file, "user.test", b"1", rustix::fs::XattrFlags::empty()).is_err() {
        eprintln!("no attributes here");
        return;
    }
    let Ok(record) = JournalRecord::read(&file) else { panic!("it is whole") };
    record.forge(LastingIdentity::of(&file).unwrap().unwrap()).unwrap();
    let whole = fs::read(&sent).unwrap();
    file.set_len(100).unwrap();
    fs::rename(&sent, &name).unwrap();
    for problem in [NO_CHANGE, COPY] {
        for read_only in [true, false] {
            let image = OpenedFile::open(&path, read_only).unwrap();
            let error = FoundJournal::of(&image, read_only).unwrap_err().to_string();
            assert!(error.contains("is half-changed") && error.contains(problem), "{error}");
        }
        fs::write(&name, &whole).unwrap();
    }
    assert_eq!(fs::read(&path).unwrap(), vec![1; BYTES]);
}

/// Moves the journal beside the image to where that of `other` would be.
fn give_journal_to(other: &Path, directory: &TempDir, path: &Path) -> PathBuf {
    let file = File::open(other).unwrap();
    let place = journal_place(&file, other).unwrap().unwrap();
    let mut names = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
    let is_journal = |found: &PathBuf| ![path, other].contains(&found.as_path());
    fs::rename(names.find(is_journal).unwrap(), &place.path).unwrap();
    place.path
}

/// Who may rename things beside an image moves the journal, which he may not read, to another image's name: one of
/// his own that says that it is half-changed by it, or one of the same owner's that looks the same.
#[test]
fn a_journal_that_is_moved_to_another_image_is_no_change_to_that_one() {
    type Stage = fn() -> (TempDir, PathBuf);
    let stages: [Stage; 5] = [named, killed, killed_later, stopped, done];
    for (stage, make) in stages.into_iter().enumerate() {
        for marked in [false, true] {
            let (directory, path) = make();
            let (other, before) = (directory.path().join("other"), fs::read(&path).unwrap());
            fs::write(&other, vec![3; BYTES]).unwrap();
            let own = LastingIdentity::of(File::open(journal_beside(&directory, &[&path, &other])).unwrap());
            let modified = fs::metadata(&path).unwrap().modified().unwrap();
            let file = File::options().write(true).open(&other).unwrap();
            file.set_modified(modified).unwrap();
            let is_kept = marked && IMAGE_MARK.set(&file, &own.unwrap().unwrap()).unwrap();
            let moved = give_journal_to(&other, &directory, &path);
            for read_only in [true, false] {
                let image = OpenedFile::open(&other, read_only).unwrap();
                match FoundJournal::of(&image, read_only) {
                    Ok(FoundJournal::Foreign(found)) if !is_kept => {
                        assert_eq!((found.path, found.problem), (moved.clone(), ANOTHER_IMAGES));
                    }
                    Err(error) if is_kept => {
                        let error = error.to_string();
                        assert!(error.contains("is half-changed") && error.contains(ANOTHER_IMAGES), "{error}");
                    }
                    found => panic!("{stage}, {marked}: {found:?}"),
                }
            }
            assert!(moved.exists() && fs::read(&other).unwrap() == vec![3; BYTES], "{stage}, {marked}");
            assert!(fs::read(&path).unwrap() == before);
            // It is still the image's that it is of.
            give_journal_to(&path, &directory, &other);
            complete(&path).unwrap();
            let wanted = if stage == 0 { vec![1; 4096] } else { vec![2; 4096] };
            assert!(fs::read(&path).unwrap()[65536..][..4096] == wanted && !is_marked(&path), "{stage}");
            assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
        }
    }
}

/// It was not there when it was looked at.
#[test]
fn a_journal_that_becomes_another_images_meanwhile_is_not_put_in_place() {
    let (directory, path) = killed();
    let (name, other) = (journal(&directory, &path), directory.path().join("other"));
    let (disk, change) = find_unlocked(&path);
    fs::write(&other, vec![3; BYTES]).unwrap();
    let change = UnfinishedChange { image: OpenedFile::open(&other, false).unwrap(), ..change };
    let error = change.complete(disk, false).unwrap_err().to_string();
    assert!(error.contains(ANOTHER_IMAGES) && name.exists(), "{error}");
    assert_eq!(fs::read(&other).unwrap(), vec![3; BYTES]);
}

fn journal_beside(directory: &TempDir, others: &[&Path]) -> PathBuf {
    let mut names = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
    names.find(|found| !others.contains(&found.as_path())).unwrap()
}

/// As [`killed`], between the change's name and its moment.
fn named() -> (TempDir, PathBuf) {
    let (directory, path, change) = begun();
    change.name().unwrap();
    (directory, path)
}

/// As [`killed`], when it could not be put in place.
fn stopped() -> (TempDir, PathBuf) {
    let (directory, path) = killed_later();
    let (_disk, FoundJournal::Unfinished(change)) = find(&path) else { panic!("it is there") };
    let Ok(mut record) = change.record() else { panic!("it is whole") };
    record.stop(change.image.file()).unwrap();
    (directory, path)
}

/// As [`killed`], when all of it was in place, and the journal said so.
fn done() -> (TempDir, PathBuf) {
    let (directory, path) = killed();
    let (name, aside) = (journal(&directory, &path), directory.path().join("aside"));
    let (disk, FoundJournal::Unfinished(change)) = find(&path) else { panic!("it is there") };
    let own = LastingIdentity::of(&change.journal).unwrap().unwrap();
    fs::rename(&name, &aside).unwrap();
    change.complete(disk, false).unwrap();
    fs::rename(&aside, &name).unwrap();
    IMAGE_MARK.set(&File::open(&path).unwrap(), &own).unwrap();
    (directory, path)
}

#[test]
fn what_was_cut_off_before_its_moment_has_not_happened_and_leaves_nothing() {
    let (directory, path) = named();
    let looked_at = OpenedFile::open(&path, true).unwrap();
    assert!(matches!(FoundJournal::of(&looked_at, true).unwrap(), FoundJournal::None));
    let (disk, FoundJournal::Unfinished(change)) = find(&path) else { panic!("it is there") };
    assert!(!change.has_happened());
    change.complete(disk, false).unwrap();
    assert_eq!(fs::read(&path).unwrap(), vec![1; BYTES]);
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    // Nor does it when somebody brings it back later.
    let (directory, path) = named();
    let (name, aside) = (journal(&directory, &path), directory.path().join("aside"));
    fs::rename(&name, &aside).unwrap();
    killed_again(&path);
    complete(&path).unwrap();
    fs::rename(&aside, &name).unwrap();
    complete(&path).unwrap();
    let image = fs::read(&path).unwrap();
    assert!(image[65536..][..4096] == [1; 4096] && image[131_072..][..4096] == [4; 4096]);
}

/// As far as this goes: a file system may have as much as anybody wants.
fn fill_attributes(path: &Path) {
    let mut number = 0;
    for bytes in [1000, 100, 10, 0] {
        while number < 1000 {
            let (name, flags) = (format!("user.fill{number:04}"), rustix::fs::XattrFlags::empty());
            if rustix::fs::setxattr(path, &name, &vec![0; bytes], flags).is_err() {
                break;
            }
            number += 1;
        }
    }
}

#[test]
fn a_change_to_an_image_that_has_no_room_for_a_mark_happens_when_its_file_says_so() {
    let (directory, path) = named();
    fill_attributes(&path);
    assert!(matches!(FoundJournal::of(&OpenedFile::open(&path, true).unwrap(), true).unwrap(), FoundJournal::None));
    complete(&path).unwrap();
    assert_eq!(fs::read(&path).unwrap(), vec![1; BYTES]);
    let (disk, file) = open_image(&path);
    let change = AtomicChange::begin(disk, file).unwrap();
    write_bytes(&*change.disk(), 65536, &[2; 4096]).unwrap();
    change.happen().unwrap();
    if is_marked(&path) {
        eprintln!("there is room for any number of attributes here");
    }
    let looked_at = OpenedFile::open(&path, true).unwrap();
    assert!(matches!(FoundJournal::of(&looked_at, true).unwrap(), FoundJournal::Unfinished(_)));
    complete(&path).unwrap();
    assert!(fs::read(&path).unwrap()[65536..][..4096] == [2; 4096] && !is_marked(&path));
    assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
}

/// Somebody links the image into another directory, at every moment that there is.
#[test]
fn a_change_counts_by_all_names_of_an_image_or_by_none() {
    for make in [named, killed, killed_later] as [fn() -> (TempDir, PathBuf); 3] {
        let (directory, path) = make();
        let elsewhere = tempfile::tempdir().unwrap();
        let other = elsewhere.path().join("other");
        if fs::hard_link(&path, &other).is_err() {
            eprintln!("two file systems");
            return;
        }
        let of = |path: &Path| FoundJournal::of(&OpenedFile::open(path, true).unwrap(), true);
        match of(&path).unwrap() {
            FoundJournal::None => assert!(matches!(of(&other).unwrap(), FoundJournal::None)),
            _ if !is_marked(&path) => eprintln!("no attributes here"),
            _ => {
                let error = of(&other).unwrap_err().to_string();
                let how = "use the name that it lies beside";
                assert!(error.contains("is half-changed") && error.contains(how), "{error}");
            }
        }
        fs::remove_file(&other).unwrap();
        complete(&path).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
    }
}

#[test]
fn who_writes_to_an_image_removes_what_is_left_of_a_change_that_is_over() {
    for (make, value) in [(done as fn() -> (TempDir, PathBuf), 2), (named, 1)] {
        let (directory, path) = make();
        let image = OpenedFile::open(&path, false).unwrap();
        FoundJournal::refuse(&image).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
        FoundJournal::refuse_to_write(&image).unwrap();
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 1);
        assert!(!is_marked(&path) && fs::read(&path).unwrap()[65536..][..4096] == [value; 4096]);
    }
    for make in [killed, killed_later, stopped] as [fn() -> (TempDir, PathBuf); 3] {
        let (directory, path) = make();
        let image = OpenedFile::open(&path, false).unwrap();
        let error = FoundJournal::refuse_to_write(&image).unwrap_err().to_string();
        assert!(error.contains("has a change that was cut off"), "{error}");
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}

#[test]
fn a_journal_of_another_version_is_left_to_that_version() {
    for version in [b'1', b'3', b'5'] {
        let (directory, path) = killed();
        let (_disk, FoundJournal::Unfinished(change)) = find(&path) else { panic!("it is there") };
        let Ok(record) = change.record() else { panic!("it is whole") };
        record.age(version).unwrap();
        for read_only in [true, false] {
            let image = OpenedFile::open(&path, read_only).unwrap();
            let error = FoundJournal::of(&image, read_only).unwrap_err().to_string();
            assert!(error.contains("another version of Blockyard: complete it with that one"), "{error}");
        }
        assert_eq!(fs::read(&path).unwrap(), vec![1; BYTES]);
        assert_eq!(fs::read_dir(directory.path()).unwrap().count(), 2);
    }
}

/// A file system of somebody's own (FUSE) gives its files what numbers he likes.
#[test]
fn a_journal_on_another_file_system_is_no_change() {
    let (directory, path) = killed();
    let name = journal(&directory, &path);
    among_own_mounts(move || {
        let system = directory.path().join("system");
        fs::create_dir(&system).unwrap();
        rustix::mount::mount("none", &system, "tmpfs", rustix::mount::MountFlags::empty(), None).unwrap();
        fs::copy(&name, system.join("file")).unwrap();
        rustix::mount::mount_bind(system.join("file"), &name).unwrap();
        unmark(&path);
        let image = OpenedFile::open(&path, true).unwrap();
        let found = FoundJournal::of(&image, true).unwrap();
        let problem = "on another file system than the image";
        assert!(matches!(&found, FoundJournal::Foreign(found) if found.problem == problem), "{found:?}");
        for mounted in [&name, &system] {
            rustix::mount::unmount(mounted, rustix::mount::UnmountFlags::DETACH).unwrap();
        }
    });
}

#[test]
fn an_image_that_is_mounted_as_a_file_is_not_changed() {
    let directory = tempfile::tempdir().unwrap();
    let [own, mounted] = ["own", "mounted"].map(|name| directory.path().join(name));
    fs::write(&own, vec![1; BYTES]).unwrap();
    fs::write(&mounted, "").unwrap();
    among_own_mounts(move || {
        rustix::mount::mount_bind(&own, &mounted).unwrap();
        let (disk, file) = open_image(&mounted);
        let error = AtomicChange::begin(disk, file).unwrap_err().to_string();
        assert!(error.contains("mounted by itself") && error.contains("or change it in place"), "{error}");
        // By the name in its own directory it is.
        let (disk, file) = open_image(&own);
        let change = AtomicChange::begin(disk, file).unwrap();
        write_bytes(&*change.disk(), 65536, &[2; 4096]).unwrap();
        change.commit().unwrap();
        assert_eq!(fs::read(&mounted).unwrap()[65536..][..4096], [2; 4096]);
        // Its directory may be a mount.
        rustix::mount::mount_bind(own.parent().unwrap(), own.parent().unwrap()).unwrap();
        let (disk, file) = open_image(&own);
        AtomicChange::begin(disk, file).unwrap();
    });
}

#[test]
fn what_is_not_all_of_a_change_is_not_put_in_place() {
    let (directory, path) = killed();
    let journal = fs::read_dir(directory.path()).unwrap().map(|entry| entry.unwrap().path());
    let journal = journal.into_iter().find(|found| *found != path).unwrap();
    let whole = fs::metadata(&journal).unwrap().len();
    for length in [0, 100, 512, whole - 512] {
        File::options().write(true).open(&journal).unwrap().set_len(length).unwrap();
        let error = complete(&path).unwrap_err().to_string();
        assert!(error.contains("not all of a change"), "{length}: {error}");
        assert_eq!(fs::read(&path).unwrap(), vec![1; BYTES]);
        File::options().write(true).open(&journal).unwrap().set_len(whole).unwrap();
    }
    drop(directory);
}
