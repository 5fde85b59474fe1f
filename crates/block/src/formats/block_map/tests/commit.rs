//! Power cuts while a difference between VMDKs is committed: it shows the same, and is committed again.

use super::super::{BlockMapCreateOptions, BlockMapDisk, BlockMapFormat, BlockMapWriter, VmdkCommit};
use crate::formats::random::Random;
use crate::formats::recorded_file::Recorder;
use crate::{AllowedDirectories, Disk, FileOptions, MemoryMap, OpenedFile, Operation, Request, VmdkInfo, explain};
use std::fs::{self, File};
use std::path::Path;
use std::process::Command;

const BYTES: u64 = 1 << 20;

fn open(path: &Path, read_only: bool) -> Result<BlockMapDisk, String> {
    let allowed = AllowedDirectories::new(&[path.parent().unwrap()]).unwrap();
    let options = FileOptions { read_only, ..FileOptions::default() };
    BlockMapDisk::open(path, BlockMapFormat::Vmdk, &options, &allowed).map_err(|error| explain(&error))
}

fn holds(path: &Path) -> Result<Vec<u8>, String> {
    let disk = open(path, true)?;
    let bytes = crate::read_bytes(&disk, 0..BYTES).map_err(|error| error.to_string())?;
    let mut said = Vec::new();
    disk.check(&mut |line| said.push(line.to_owned())).map_err(|error| explain(&error))?;
    said.retain(|line| !line.starts_with("NOTE"));
    if said.is_empty() { Ok(bytes) } else { Err(said.join("; ")) }
}

/// A base with data in some of its grains, and a difference from it with others, and zeros.
fn make(base: &Path, top: &Path, zeroed: &str) -> Vec<u8> {
    let options = BlockMapCreateOptions::new(BlockMapFormat::Vmdk, BYTES);
    BlockMapWriter::new(File::create_new(base).unwrap(), base, &options).unwrap().finish().unwrap();
    let disk = open(base, false).unwrap();
    crate::write_bytes(&disk, 4096, &[1; 300_000]).unwrap();
    drop(disk);
    let mut create = Command::new("qemu-img");
    create.args(["create", "-q", "-f", "vmdk", "-F", "vmdk", "-o", zeroed, "-b"]).arg(base).arg(top);
    assert!(create.status().expect("the Debian package qemu-utils has qemu-img").success());
    let disk = open(top, false).unwrap();
    for (offset, length, byte) in [(0, 512, 2), (200_000, 200_000, 3), (900 << 10, 4096, 4)] {
        crate::write_bytes(&disk, offset / 512 * 512, &vec![byte; length / 512 * 512]).unwrap();
    }
    let mut queue = disk.open_queue(&MemoryMap::allocate(&[(0, 4096)]).unwrap(), 1).unwrap();
    let operation = Operation::WriteZeroes { length_bytes: 128 << 10, may_unmap: true };
    queue.push(&Request { operation, offset_bytes: 64 << 10, segments: &[], token: 0 }).unwrap();
    let mut completions = Vec::new();
    queue.drain(&mut completions).unwrap();
    assert_eq!(completions[0].result, Ok(()));
    drop((queue, disk));
    holds(top).unwrap()
}

fn commit(top: &Path) -> Result<(), String> {
    let allowed = AllowedDirectories::new(&[top.parent().unwrap()]).unwrap();
    let image = OpenedFile::open(top, false).map_err(|error| explain(&error))?;
    let commit = VmdkCommit::open(image, None, &allowed).map_err(|error| explain(&error))?;
    commit.fold(&mut |_, _| true).map_err(|error| error.to_string())?;
    commit.empty().map_err(|error| explain(&error))
}

/// Cuts the power at every event of a commit, `tries` times each; what is wrong then.
fn commit_with_cuts(zeroed: &str, in_order: bool, tries: u64) -> Result<(), String> {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let [top, base] = ["top.vmdk", "base.vmdk"].map(|name| directory.path().join(name));
    let wanted = make(&base, &top, zeroed);
    let files = [top.as_path(), base.as_path()];
    let recorder = if in_order { Recorder::of(&files) } else { Recorder::skipping_barriers(&files) };
    commit(&top)?;
    let recorded = recorder.end(512);
    let empty_bytes = fs::metadata(&top).unwrap().len();
    let (mut random, mut cutter) = (Random(1), recorded.replay());
    for cut in 0..=recorded.recording.event_count() {
        for _ in 0..tries {
            cutter.cut(cut, random.below(1 << 30)).unwrap().write(&files);
            let is_as_wanted = |path: &Path, what: &str| match holds(path) {
                Ok(bytes) if bytes == wanted => Ok(()),
                Ok(_) => Err(format!("cut behind event {cut}: {what} holds other bytes")),
                Err(error) => Err(format!("cut behind event {cut}: {what}: {error}")),
            };
            is_as_wanted(&top, "the difference")?;
            commit(&top).map_err(|error| format!("cut behind event {cut}: {error}"))?;
            is_as_wanted(&top, "the difference that was committed again")?;
            is_as_wanted(&base, "its parent")?;
            assert_eq!(fs::metadata(&top).unwrap().len(), empty_bytes);
        }
    }
    Ok(())
}

#[test]
fn a_commit_is_done_again_whenever_the_power_is_cut() {
    for zeroed in ["zeroed_grain=off", "zeroed_grain=on"] {
        commit_with_cuts(zeroed, true, 4).unwrap();
    }
}

#[test]
fn a_commit_in_no_order_is_caught() {
    commit_with_cuts("zeroed_grain=off", false, 40).unwrap_err();
}

/// The numbers of a disk and of its parent, as it says them.
fn numbers(path: &Path) -> [u32; 2] {
    let info = VmdkInfo::of(&OpenedFile::open(path, true).unwrap()).unwrap();
    [info.cid, info.parent_cid]
}

/// Takes a difference to where its commit is stopped between the two numbers.
fn stop_between_numbers(top: &Path, base: &Path) {
    let files = [top, base];
    let recorder = Recorder::of(&files);
    commit(top).unwrap();
    let recorded = recorder.end(512);
    let mut cutter = recorded.replay();
    for cut in 0..=recorded.recording.event_count() {
        // Nothing is lost that was written.
        cutter.cut(cut, u64::MAX).unwrap().write(&files);
        if numbers(top)[1] != numbers(base)[0] {
            return;
        }
    }
    panic!("no commit was stopped there");
}

#[test]
fn a_difference_whose_commit_was_stopped_is_written_to() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let [top, base] = ["top.vmdk", "base.vmdk"].map(|name| directory.path().join(name));
    let before = make(&base, &top, "zeroed_grain=off");
    stop_between_numbers(&top, &base);
    let (of_base, own) = (numbers(&base), numbers(&top)[0]);
    let mut after = before.clone();
    after[4096..8192].fill(9);
    let files = [top.as_path(), base.as_path()];
    let recorder = Recorder::of(&files);
    let disk = open(&top, false).unwrap();
    crate::write_bytes(&disk, 4096, &[9; 4096]).unwrap();
    drop(disk);
    let recorded = recorder.end(512);
    assert!(numbers(&base) == of_base && numbers(&top)[1] == of_base[0] && numbers(&top)[0] != own);
    let (mut random, mut cutter) = (Random(1), recorded.replay());
    for cut in 0..=recorded.recording.event_count() {
        for _ in 0..4 {
            cutter.cut(cut, random.below(1 << 30)).unwrap().write(&files);
            let holds_one = |path: &Path| {
                let held = holds(path).unwrap_or_else(|error| panic!("cut behind event {cut}: {error}"));
                let is_mixed = held.iter().zip(before.iter().zip(&after)).any(|(byte, (a, b))| byte != a && byte != b);
                assert!(!is_mixed, "cut behind event {cut}");
                held
            };
            let held = holds_one(&top);
            commit(&top).unwrap_or_else(|error| panic!("cut behind event {cut}: {error}"));
            assert!(holds_one(&top) == held && holds_one(&base) == held, "cut behind event {cut}");
        }
    }
}

/// What is committed to it changes its number, too.
#[test]
fn a_difference_whose_commit_was_stopped_is_committed_to() {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let [top, between, base] = ["top.vmdk", "between.vmdk", "base.vmdk"].map(|name| directory.path().join(name));
    make(&base, &between, "zeroed_grain=off");
    let mut create = Command::new("qemu-img");
    create.args(["create", "-q", "-f", "vmdk", "-F", "vmdk", "-b"]).arg(&between).arg(&top);
    assert!(create.status().unwrap().success());
    crate::write_bytes(&open(&top, false).unwrap(), 4096, &[9; 4096]).unwrap();
    let wanted = holds(&top).unwrap();
    stop_between_numbers(&between, &base);
    commit(&top).unwrap();
    assert!(holds(&top).unwrap() == wanted && holds(&between).unwrap() == wanted);
    assert!(numbers(&between)[1] == numbers(&base)[0]);
    commit(&between).unwrap();
    assert!(holds(&base).unwrap() == wanted);
}
