//! Calls that fail, full disks, tables that lie, and cuts where what moved is freed.

use super::super::{Qcow2Backing, Qcow2CreateOptions, Qcow2Disk, chain};
use super::open_to_change;
use crate::formats::recorded_file::{Failures, Recorder};
use crate::{
    AllowedDirectories, Completion, Disk, FileDisk, FileOptions, MemoryMap, OpenedFile, Operation, Qcow2Check, Queue,
    Repair, Request, RequestError, Segment,
};
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

const WRITE: Operation = Operation::Write { force_unit_access: false };
const CLUSTER: u64 = 65536;
const DISK_BYTES: u64 = 1 << 20;

/// A disk that is used by one request at a time.
struct User {
    disk: Qcow2Disk,
    memory: MemoryMap,
    queue: Box<dyn Queue>,
}

impl User {
    fn of(path: &Path) -> Self {
        Self::with(path, false)
    }

    fn with(path: &Path, read_only: bool) -> Self {
        let allowed = AllowedDirectories::new(&[path.parent().unwrap()]).unwrap();
        let disk = Qcow2Disk::open(path, &FileOptions { read_only, ..FileOptions::default() }, &allowed).unwrap();
        let memory = MemoryMap::allocate(&[(0, DISK_BYTES as usize)]).unwrap();
        let queue = disk.open_queue(&memory, 4).unwrap();
        Self { disk, memory, queue }
    }

    fn failures(&self) -> &Failures {
        &self.disk.worker.image().below[0].file.as_ref().unwrap().file.failures
    }

    fn perform(&mut self, operation: Operation, offset_bytes: u64, length: u64) -> Result<(), RequestError> {
        let segments = [Segment { region: 0, length_bytes: length as u32, offset_bytes: 0 }];
        let has_data = matches!(operation, Operation::Read | Operation::Write { .. });
        let segments = if has_data { &segments[..] } else { &[] };
        self.queue.push(&Request { operation, offset_bytes, segments, token: 0 }).unwrap();
        let mut completions: Vec<Completion> = Vec::new();
        self.queue.drain(&mut completions).unwrap();
        completions[0].result
    }

    fn write(&mut self, offset: u64, length: u64, byte: u8) -> Result<(), RequestError> {
        self.fill(length, byte);
        self.perform(WRITE, offset, length)
    }

    fn fill(&self, length: u64, byte: u8) {
        let segment = Segment { region: 0, length_bytes: length as u32, offset_bytes: 0 };
        self.memory.slice(segment).unwrap().copy_from(&vec![byte; length as usize]);
    }

    fn read(&mut self, offset: u64, length: u64) -> Result<Vec<u8>, RequestError> {
        self.perform(Operation::Read, offset, length)?;
        let segment = Segment { region: 0, length_bytes: length as u32, offset_bytes: 0 };
        let mut bytes = vec![0_u8; length as usize];
        self.memory.slice(segment).unwrap().copy_to(&mut bytes);
        Ok(bytes)
    }
}

/// A process that another test has forked may hold what was just closed, and its lock, until it executes its program.
fn qemu_img(arguments: &[&str]) {
    const TRIES: u32 = 3000;
    for _ in 0..TRIES {
        let output = Command::new("qemu-img").args(arguments).output();
        let output = output.expect("qemu-img, of the Debian package qemu-utils");
        if output.status.success() {
            return;
        }
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(said.contains("Failed to get"), "{arguments:?}: {said}");
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    panic!("{arguments:?}: somebody has it");
}

fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

/// An image whose first clusters are compressed, and hold sevens.
fn compressed(directory: &Path, clusters: u64, cluster_bytes: u64, size: u64) -> PathBuf {
    let (raw, path) = (directory.join("raw"), directory.join("image"));
    let mut bytes = vec![0; size as usize];
    bytes[..(clusters * cluster_bytes) as usize].fill(7);
    fs::write(&raw, bytes).unwrap();
    let option = format!("cluster_size={cluster_bytes}");
    qemu_img(&["convert", "-c", "-f", "raw", "-O", "qcow2", "-o", &option, text(&raw), text(&path)]);
    path
}

fn new(directory: &Path, size: u64, cluster_bytes: u64) -> PathBuf {
    let path = directory.join("image");
    let options = Qcow2CreateOptions { cluster_bytes: cluster_bytes as u32, ..Qcow2CreateOptions::new(size) };
    Qcow2Disk::create(&path, &options).unwrap();
    path
}

/// What `change` leaves of a disk of sevens, whenever the power goes: sevens from `from` on.
fn sevens_stay(path: &Path, from: u64, length: u64, change: impl FnOnce(&mut User)) {
    let recorder = Recorder::of(&[path]);
    let mut user = User::of(path);
    change(&mut user);
    drop(user);
    let recorded = recorder.end(512);
    let cut_path = path.with_file_name("cut");
    for seed in 0..20 {
        let mut replay = recorded.replay();
        for cut in 0..=recorded.recording.event_count() {
            replay.cut(cut, seed).unwrap().write(&[&cut_path]);
            let bytes = User::of(&cut_path).read(from, length).unwrap_or_else(|error| panic!("cut {cut}: {error}"));
            assert!(bytes.iter().all(|&byte| byte == 7), "cut {cut}, seed {seed}");
        }
    }
}

#[test]
fn what_a_compressed_cluster_held_is_there_until_the_new_one_is_at_any_cut() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = compressed(directory.path(), 1, CLUSTER, DISK_BYTES);
    sevens_stay(&path, 512, CLUSTER - 512, |user| user.write(0, 512, 9).unwrap());
}

/// A table that is alone and does not say so, as a cut leaves it while a snapshot is made.
#[test]
fn a_table_that_moves_is_there_until_the_new_one_is_at_any_cut() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = new(directory.path(), DISK_BYTES, 4096);
    User::of(&path).write(0, DISK_BYTES, 7).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let l1 = u64::from_be_bytes(bytes[40..48].try_into().unwrap()) as usize;
    bytes[l1] &= 0x7f;
    fs::write(&path, &bytes).unwrap();
    sevens_stay(&path, 4096, DISK_BYTES - 4096, |user| {
        user.perform(Operation::Discard { length_bytes: 4096 }, 0, 0).unwrap();
    });
}

#[test]
fn a_change_that_failed_does_not_happen_later() {
    let zeroes = Operation::WriteZeroes { length_bytes: CLUSTER, may_unmap: false };
    for operation in [Operation::Discard { length_bytes: CLUSTER }, zeroes] {
        let directory = blockyard_fuzz::memory_directory().unwrap();
        let mut user = User::of(&new(directory.path(), DISK_BYTES, CLUSTER));
        user.write(0, CLUSTER, 1).unwrap();
        user.failures().fails_in.store(1, Ordering::SeqCst);
        assert_eq!(user.perform(operation, 0, 0), Err(RequestError::Os(libc::EIO)));
        user.write(0, CLUSTER, 2).unwrap();
        user.perform(Operation::Flush, 0, 0).unwrap();
        user.write(5 * CLUSTER, CLUSTER, 3).unwrap();
        assert_eq!(user.read(0, CLUSTER).unwrap()[..2], [2, 2], "{operation:?}");
    }
}

#[test]
fn what_was_reserved_is_given_back_though_the_last_entries_cannot_be_written() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = new(directory.path(), DISK_BYTES, CLUSTER);
    let mut user = User::of(&path);
    user.write(0, CLUSTER, 1).unwrap();
    user.failures().fails_in.store(1, Ordering::SeqCst);
    let zeroes = Operation::WriteZeroes { length_bytes: CLUSTER, may_unmap: false };
    assert_eq!(user.perform(zeroes, 0, 0), Err(RequestError::Os(libc::EIO)));
    user.failures().fails_in.store(1, Ordering::SeqCst);
    drop(user);
    let mut check = Qcow2Check::open(&OpenedFile::open(&path, true).unwrap(), false).unwrap();
    let report = check.run(Repair::None, &mut |_| ()).unwrap();
    assert_eq!((report.corruptions, report.leaks), (0, 0));
    assert!(User::of(&path).read(0, CLUSTER).unwrap().iter().all(|&byte| byte == 1));
}

/// Where a repair fails, what it has made and nothing leads to is gone: the next needs no more room.
#[test]
fn copies_that_nothing_leads_to_do_not_stay() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = new(directory.path(), DISK_BYTES, CLUSTER);
    let mut user = User::of(&path);
    (0..4).for_each(|at| user.write(at * CLUSTER, CLUSTER, 7).unwrap());
    drop(user);
    let mut damaged = fs::read(&path).unwrap();
    let word = |at: usize| (u64::from_be_bytes(damaged[at..][..8].try_into().unwrap()) & !(1 << 63)) as usize;
    let l2 = word(word(40));
    (1..4).for_each(|index| damaged.copy_within(l2..l2 + 8, l2 + index * 8));
    let (mut changed, mut gone) = (0, 0);
    for call in 1..1000 {
        fs::write(&path, &damaged).unwrap();
        let mut check = Qcow2Check::open(&open_to_change(&path), true).unwrap();
        check.file.file.failures.fails_in.store(call, Ordering::SeqCst);
        let outcome = check.run(Repair::All, &mut |_| ());
        drop(check);
        let length_bytes = fs::metadata(&path).unwrap().len();
        let mut user = User::with(&path, true);
        assert!(user.read(0, 4 * CLUSTER).unwrap().iter().all(|&byte| byte == 7), "call {call}");
        if outcome.is_ok() {
            assert_eq!(length_bytes, damaged.len() as u64 + 3 * CLUSTER);
            break;
        }
        let is_changed = fs::read(&path).unwrap()[l2..l2 + 32] != damaged[l2..l2 + 32];
        assert!(!is_changed || length_bytes == damaged.len() as u64 + 3 * CLUSTER, "call {call}: {length_bytes}");
        changed += u32::from(is_changed);
        gone += u32::from(length_bytes == damaged.len() as u64);
    }
    // That of the mark, and those of the copies.
    assert!(gone == 4 && changed > 0, "{gone}, {changed}");
}

/// The refcount table of a growing image moves, which the header says: in the page cache it does, and then the disk
/// fails.
#[test]
fn nothing_is_written_once_it_is_not_known_what_the_header_says() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = new(directory.path(), 32 << 20, 512);
    let mut user = User::of(&path);
    user.failures().header_fails.store(true, Ordering::SeqCst);
    let failed = (0..32).find(|&at| user.write(at << 20, DISK_BYTES, 7) == Err(RequestError::Os(libc::EIO)));
    let failed = failed.expect("a refcount table of one cluster is enough for no more than 8 MiB");
    assert!(!user.failures().header_fails.load(Ordering::SeqCst));
    assert_eq!(user.write(31 << 20, 512, 8), Err(RequestError::Os(libc::EIO)), "it would be put where nobody looks");
    assert_eq!(user.perform(Operation::Discard { length_bytes: 1 << 20 }, 0, 0), Err(RequestError::Os(libc::EIO)));
    assert_eq!(user.read(0, 512).unwrap()[..2], [7, 7]);
    drop(user);
    let output = Command::new("qemu-img").args(["check", "-U", "-f", "qcow2"]).arg(&path).output().unwrap();
    assert!(matches!(output.status.code(), Some(0 | 3)), "{}", String::from_utf8_lossy(&output.stderr));
    let mut user = User::of(&path);
    for at in 0..failed {
        assert!(user.read(at << 20, DISK_BYTES).unwrap().iter().all(|&byte| byte == 7), "{at} MiB");
    }
    user.write(31 << 20, 512, 8).unwrap();
}

/// A part of a cluster is written, so that the rest is copied: that is stable before anything leads there. The kernel
/// says once that it could not be, and has forgotten it then.
#[test]
fn nothing_leads_to_what_could_not_be_made_stable() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    fs::write(directory.path().join("base"), [3; DISK_BYTES as usize]).unwrap();
    let path = directory.path().join("image");
    let backing = Some(Qcow2Backing { name: "base".into(), format: "raw".into() });
    Qcow2Disk::create(&path, &Qcow2CreateOptions { backing, ..Qcow2CreateOptions::new(DISK_BYTES) }).unwrap();
    let mut user = User::of(&path);
    user.write(0, 512, 1).unwrap();
    user.failures().sync_fails.store(true, Ordering::SeqCst);
    let failed = Err(RequestError::Os(libc::EIO));
    assert_eq!(user.write(CLUSTER, 512, 7), failed);
    assert!(!user.failures().sync_fails.load(Ordering::SeqCst));
    assert_eq!(user.write(2 * CLUSTER, 512, 8), failed, "it would take along what was lost");
    // Nor can anybody be told that what was written is stable.
    for _ in 0..2 {
        assert_eq!(user.perform(Operation::Flush, 0, 0), failed);
    }
    assert_eq!(user.perform(Operation::Write { force_unit_access: true }, 0, 512), failed);
    drop(user);
    let mut user = User::of(&path);
    for (offset, byte) in [(0, 1), (512, 3), (CLUSTER, 3), (CLUSTER + 512, 3), (2 * CLUSTER, 3)] {
        assert_eq!(user.read(offset, 512).unwrap(), [byte; 512], "{offset}");
    }
    user.write(CLUSTER, 512, 9).unwrap();
}

#[test]
fn a_full_file_system_lets_what_is_there_be_written_and_discarded() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let mut user = User::of(&new(directory.path(), 2 << 30, CLUSTER));
    user.write(0, 8 * CLUSTER, 1).unwrap();
    user.failures().is_full.store(true, Ordering::SeqCst);
    let no_space = Err(RequestError::Os(libc::ENOSPC));
    assert_eq!(user.write(600 << 20, CLUSTER, 2), no_space, "there is no room for its table");
    user.perform(Operation::Discard { length_bytes: CLUSTER }, 0, 0).unwrap();
    user.write(CLUSTER, CLUSTER, 3).unwrap();
    user.failures().is_full.store(false, Ordering::SeqCst);
    user.write(600 << 20, CLUSTER, 4).unwrap();
    for (offset, byte) in [(0, 0), (CLUSTER, 3), (2 * CLUSTER, 1), (600 << 20, 4)] {
        assert!(user.read(offset, CLUSTER).unwrap().iter().all(|&found| found == byte), "{offset}");
    }
}

#[test]
fn compressed_clusters_that_are_counted_too_low_are_not_written_to() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = compressed(directory.path(), 2, 4096, 4 << 20);
    let mut bytes = fs::read(&path).unwrap();
    let number = |bytes: &[u8], at: usize| u64::from_be_bytes(bytes[at..at + 8].try_into().unwrap());
    let block = number(&bytes, number(&bytes, 48) as usize) as usize;
    let l2 = (number(&bytes, number(&bytes, 40) as usize) & 0x00ff_ffff_ffff_fe00) as usize;
    let place = |index: usize| (number(&bytes, l2 + index * 8) & ((1 << 58) - 1)) / 4096;
    assert_eq!(place(0), place(1), "they share a cluster of the file");
    let count = block + place(0) as usize * 2 + 1;
    assert_eq!(bytes[count], 2);
    bytes[count] = 1;
    fs::write(&path, bytes).unwrap();
    let refused = Qcow2Disk::open(&path, &FileOptions::default(), &AllowedDirectories::none()).unwrap_err();
    assert!(refused.to_string().contains("too low a refcount"), "{refused}");
}

#[test]
fn a_directory_of_bitmaps_over_a_table_is_damage() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = new(directory.path(), DISK_BYTES, 512);
    let mut bytes = fs::read(&path).unwrap();
    let refcount_table: [u8; 8] = bytes[48..56].try_into().unwrap();
    bytes[95] |= 1;
    let extension = [
        &0x2385_2875_u32.to_be_bytes()[..],
        &24_u32.to_be_bytes(),
        &1_u32.to_be_bytes(),
        &[0; 4],
        &512_u64.to_be_bytes(),
        &refcount_table,
    ];
    bytes[112..144].copy_from_slice(&extension.concat());
    fs::write(&path, &bytes).unwrap();
    let refused = Qcow2Disk::open(&path, &FileOptions::default(), &AllowedDirectories::none()).unwrap_err();
    assert!(refused.to_string().contains("has two uses"), "{refused}");
    assert!(fs::read(&path).unwrap() == bytes, "it was written to");
}

#[test]
fn a_snapshot_of_an_absurd_size_is_not_applied() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = new(directory.path(), DISK_BYTES, CLUSTER);
    let nothing = AllowedDirectories::none();
    Qcow2Disk::make_snapshot(&open_to_change(&path), "one", &nothing).unwrap();
    let mut bytes = fs::read(&path).unwrap();
    let entry = u64::from_be_bytes(bytes[64..72].try_into().unwrap()) as usize;
    bytes[entry + 48..entry + 56].copy_from_slice(&(1_u64 << 52).to_be_bytes());
    fs::write(&path, &bytes).unwrap();
    Qcow2Disk::apply_snapshot(&open_to_change(&path), "one", &nothing).unwrap_err();
    assert!(User::of(&path).read(0, CLUSTER).unwrap().iter().all(|&byte| byte == 0));
}

#[test]
fn zeros_that_kept_their_place_give_it_back_when_they_are_discarded() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = new(directory.path(), 16 << 20, CLUSTER);
    let mut user = User::of(&path);
    (0..16).for_each(|at| user.write(at << 20, 1 << 20, 1).unwrap());
    user.perform(Operation::WriteZeroes { length_bytes: 16 << 20, may_unmap: false }, 0, 0).unwrap();
    user.perform(Operation::Discard { length_bytes: 16 << 20 }, 0, 0).unwrap();
    drop(user);
    assert!(fs::metadata(&path).unwrap().blocks() * 512 < 2 << 20);
}

#[test]
fn reads_go_on_while_changes_wait_for_the_check() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = directory.path().join("image");
    qemu_img(&["create", "-q", "-f", "qcow2", "-o", "cluster_size=4k,preallocation=metadata", text(&path), "8G"]);
    let file = fs::File::open(&path).unwrap();
    let number = |at: u64| {
        let mut word = [0; 8];
        std::os::unix::fs::FileExt::read_exact_at(&file, &mut word, at).unwrap();
        u64::from_be_bytes(word)
    };
    let last = number(number(40) + 4095 * 8) & 0x00ff_ffff_ffff_fe00;
    // Nobody can look at the last table before the gate is closed but a check that is done already.
    let mut user = User::of(&path);
    let image = user.disk.worker.image();
    image.below[0].file.as_ref().unwrap().file.gate.close(last..last + 4096);
    let is_checked = image.may_write_in_place.load(Ordering::SeqCst);
    let segments = [Segment { region: 0, length_bytes: 4096, offset_bytes: 0 }];
    user.queue.push(&Request { operation: WRITE, offset_bytes: 0, segments: &segments, token: 1 }).unwrap();
    user.queue.submit().unwrap();
    user.queue
        .push(&Request { operation: Operation::Read, offset_bytes: 1 << 30, segments: &segments, token: 2 })
        .unwrap();
    let (mut completions, began) = (Vec::new(), Instant::now());
    while !completions.iter().any(|completion: &Completion| completion.token == 2) {
        assert!(began.elapsed() < Duration::from_secs(60), "the read waits for the check: {is_checked}");
        user.queue.submit().unwrap();
        user.queue.wait(&[], Some(Duration::from_millis(100))).unwrap();
        user.queue.reap(&mut completions);
    }
    user.disk.worker.image().below[0].file.as_ref().unwrap().file.gate.open();
    user.queue.drain(&mut completions).unwrap();
    assert!(completions.iter().all(|completion| completion.result == Ok(())), "{completions:?}");
}

/// Whichever of their flags' writes fails, nothing is written meanwhile, and they are kept up to date afterwards.
#[test]
fn nothing_is_written_before_bitmaps_are_marked() {
    for (failing, is_full, error) in
        [(1, true, libc::ENOSPC), (2, true, libc::ENOSPC), (1, false, libc::EIO), (2, false, libc::EIO)]
    {
        let directory = blockyard_fuzz::memory_directory().unwrap();
        let path = new(directory.path(), DISK_BYTES, CLUSTER);
        User::of(&path).write(0, CLUSTER, 7).unwrap();
        ["one", "two"].iter().for_each(|name| qemu_img(&["bitmap", "--add", text(&path), name]));
        let flags = || {
            let output = Command::new("qemu-img").args(["info", "-U", "--output=json"]).arg(&path).output().unwrap();
            let info = String::from_utf8(output.stdout).unwrap();
            ["in-use", "auto"].map(|flag| info.matches(&format!("\"{flag}\"")).count())
        };
        for is_written in [false, true] {
            let mut user = User::of(&path);
            user.failures().is_full.store(is_full, Ordering::SeqCst);
            user.failures().fails_in.store(failing, Ordering::SeqCst);
            assert_eq!(user.write(0, CLUSTER, 8), Err(RequestError::Os(error)), "write {failing} fails");
            assert!(!user.disk.worker.image().may_write_in_place.load(Ordering::SeqCst));
            user.failures().is_full.store(false, Ordering::SeqCst);
            assert_eq!(user.read(0, CLUSTER).unwrap()[..2], [7, 7]);
            if is_written {
                user.write(0, CLUSTER, 8).unwrap();
                assert_eq!(flags(), [2, 2]);
            }
            drop(user);
            assert_eq!(flags(), [0, 2], "write {failing} failed, {is_full}, {is_written}");
        }
        qemu_img(&["check", "-q", text(&path)]);
    }
}

/// What a block of 512 bytes may hold.
type Possible = Vec<u8>;

/// One request after the other, any of whose calls fails; and what `qemu-img check` says then.
#[test]
fn whatever_fails_nothing_is_lost_and_nothing_is_damaged() {
    const BLOCKS: u64 = DISK_BYTES / 512;
    for seed in 0..6_u64 {
        let mut state = seed * 7919 + 1;
        let mut random = |end: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % end
        };
        let directory = blockyard_fuzz::memory_directory().unwrap();
        let cluster = [512, 4096, 16384][seed as usize % 3];
        let (path, first) = match seed % 4 {
            0 => (compressed(directory.path(), DISK_BYTES / cluster, cluster, DISK_BYTES), 7),
            1 | 2 => {
                let path = directory.path().join("image");
                fs::write(directory.path().join("raw"), vec![7; DISK_BYTES as usize]).unwrap();
                let parts = if cluster == 16384 { ",extended_l2=on" } else { "" };
                let options = format!("cluster_size={cluster}{parts}");
                qemu_img(&["create", "-q", "-f", "qcow2", "-F", "raw", "-b", "raw", "-o", &options, text(&path)]);
                (path, 7)
            }
            _ => (new(directory.path(), DISK_BYTES, cluster), 0),
        };
        if seed % 2 == 1 {
            let allowed = AllowedDirectories::new(&[directory.path()]).unwrap();
            Qcow2Disk::make_snapshot(&open_to_change(&path), "one", &allowed).unwrap();
        }
        let mut possible: Vec<Possible> = vec![vec![first]; BLOCKS as usize];
        for round in 0..3 {
            let mut user = User::of(&path);
            for step in 0..120_u64 {
                let start = random(BLOCKS);
                let length = (1 + random(60)).min(BLOCKS - start);
                let byte = 10 + ((round * 120 + step) % 240) as u8;
                let length_bytes = length * 512;
                let (operation, new) = match random(6) {
                    0 => (Operation::Discard { length_bytes }, 0),
                    1 => (Operation::WriteZeroes { length_bytes, may_unmap: random(2) == 0 }, 0),
                    2 => (Operation::Write { force_unit_access: true }, byte),
                    _ => (WRITE, byte),
                };
                if random(3) == 0 {
                    user.failures().fails_in.store(1 + random(6), Ordering::SeqCst);
                }
                user.fill(length_bytes, byte);
                let done = user.perform(operation, start * 512, length_bytes);
                user.failures().fails_in.store(0, Ordering::SeqCst);
                for of_block in &mut possible[start as usize..(start + length) as usize] {
                    if done.is_ok() && !matches!(operation, Operation::Discard { .. }) {
                        of_block.clear();
                    }
                    of_block.push(new);
                }
                if step % 20 == 19 {
                    let bytes = user.read(0, DISK_BYTES).unwrap();
                    for (block, (of_block, bytes)) in possible.iter().zip(bytes.chunks(512)).enumerate() {
                        let is = of_block.iter().any(|&byte| bytes.iter().all(|&at| at == byte));
                        assert!(is, "seed {seed}, round {round}, step {step}, block {block}: {:?}", &bytes[..4]);
                    }
                }
            }
            drop(user);
            let output = Command::new("qemu-img").args(["check", "-U", "-f", "qcow2"]).arg(&path).output().unwrap();
            let said = String::from_utf8_lossy(&output.stderr);
            assert!(matches!(output.status.code(), Some(0 | 3)), "seed {seed}, round {round}: {said}");
        }
    }
}

/// Whoever names files may rename them: what would be written and what would be emptied must be of one chain.
#[test]
fn a_base_that_was_replaced_meanwhile_is_none() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let [base, other, path] = ["base.raw", "other.raw", "image.qcow2"].map(|name| directory.path().join(name));
    for path in [&base, &other] {
        fs::write(path, vec![1; DISK_BYTES as usize]).unwrap();
    }
    let backing = Some(Qcow2Backing { name: "base.raw".into(), format: "raw".into() });
    Qcow2Disk::create(&path, &Qcow2CreateOptions { backing, ..Qcow2CreateOptions::new(DISK_BYTES) }).unwrap();
    let allowed = AllowedDirectories::new(&[directory.path()]).unwrap();
    let options = FileOptions { read_only: true, lock: false, ..FileOptions::default() };
    let open_above = |base: &Path| {
        let (image, file) = (fs::File::open(&path).unwrap(), fs::File::open(base).unwrap());
        let disk = Arc::new(FileDisk::open(base, &options).unwrap());
        chain::open_above(image, &path, (&file, disk), &options, &allowed).map(drop)
    };
    open_above(&base).unwrap();
    fs::rename(&base, directory.path().join("away.raw")).unwrap();
    fs::rename(&other, &base).unwrap();
    let error = open_above(&directory.path().join("away.raw")).unwrap_err();
    assert!(error.to_string().contains("was replaced just now"), "{error}");
}
