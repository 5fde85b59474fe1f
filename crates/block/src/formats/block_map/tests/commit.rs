//! Power cuts while a difference between VMDKs is committed: it shows the same, and is committed again.

use super::super::{BlockMapCreateOptions, BlockMapDisk, BlockMapFormat, BlockMapWriter, VmdkCommit};
use crate::formats::random::Random;
use crate::formats::recorded_file::Recorder;
use crate::{AllowedDirectories, Disk, FileOptions, MemoryMap, OpenedFile, Operation, Request, explain};
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
