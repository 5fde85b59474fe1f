//! Power cuts while a VMDK is written to: what its file may hold then is in order, and has everything that was flushed.

use super::super::{BlockMapCreateOptions, BlockMapDisk, BlockMapFormat, BlockMapWriter};
use crate::formats::qcow2::{Recorded, Recorder};
use crate::{AllowedDirectories, Disk, FileOptions, ImageError, MemoryMap, Operation, Queue, Request, Segment};
use std::fs::{self, File};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::Command;

const BLOCK: u64 = 512;
const BLOCKS: u64 = 4096;
const WRITE_BLOCKS_MAX: u64 = 200;
const STEPS: usize = 300;
const CUTS: u64 = 30;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Write,
    Zero,
    /// Zeros, or what was there.
    Discard,
}

/// A change to a range of blocks, and how many events of the log there were when it was issued and when it was stable.
#[derive(Debug)]
struct Change {
    kind: Kind,
    blocks: Range<u64>,
    issued: usize,
    certain: Option<usize>,
}

/// What an image is before it is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    Nothing,
    /// A difference from an image that is full.
    Parent,
    /// The same, where an entry can say that a grain is zeros.
    ParentAndZeroedGrains,
    /// There are directories, and no tables.
    NoTables,
    /// The descriptor is a file of its own.
    TwoFiles,
}

const ORIGINS: [Origin; 5] =
    [Origin::Nothing, Origin::Parent, Origin::ParentAndZeroedGrains, Origin::NoTables, Origin::TwoFiles];

fn contents(kind: Kind, number: u64, block: u64) -> [u8; BLOCK as usize] {
    let mut bytes = [0; BLOCK as usize];
    if kind == Kind::Write {
        for (index, word) in bytes.chunks_mut(8).enumerate() {
            word.copy_from_slice(&((number << 32 | block).wrapping_mul(index as u64 * 2 + 1)).to_le_bytes());
        }
    }
    bytes
}

struct Random(u64);

impl Random {
    fn below(&mut self, end: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % end
    }
}

fn open(path: &Path) -> Result<BlockMapDisk, ImageError> {
    let allowed = AllowedDirectories::new(&[path.parent().unwrap()]).unwrap();
    BlockMapDisk::open(path, BlockMapFormat::Vmdk, &FileOptions::default(), &allowed)
}

/// The files of an image, the one to open first.
fn create(directory: &Path, origin: Origin) -> Vec<PathBuf> {
    let path = directory.join("image.vmdk");
    let make = |path: &Path| {
        let options = BlockMapCreateOptions::new(BlockMapFormat::Vmdk, BLOCKS * BLOCK);
        BlockMapWriter::new(File::create_new(path).unwrap(), path, &options).unwrap().finish().unwrap();
    };
    match origin {
        Origin::Nothing => make(&path),
        Origin::NoTables => {
            make(&path);
            let mut bytes = fs::read(&path).unwrap();
            for field in [48, 56] {
                let directory = u64::from_le_bytes(bytes[field..field + 8].try_into().unwrap()) as usize * 512;
                bytes[directory..directory + 4].fill(0);
            }
            fs::write(&path, bytes).unwrap();
        }
        Origin::Parent | Origin::ParentAndZeroedGrains => {
            let base = directory.join("base.vmdk");
            make(&base);
            let disk = open(&base).unwrap();
            let bytes: Vec<u8> = (0..BLOCKS).flat_map(|block| contents(Kind::Write, 0, block)).collect();
            crate::write_bytes(&disk, 0, &bytes).unwrap();
            drop(disk);
            let zeroed = if origin == Origin::Parent { "zeroed_grain=off" } else { "zeroed_grain=on" };
            qemu_img(
                Command::new("qemu-img")
                    .args(["create", "-f", "vmdk", "-o", zeroed, "-F", "vmdk", "-b"])
                    .arg(&base)
                    .arg(&path),
            );
        }
        Origin::TwoFiles => {
            let create = ["create", "-o", "subformat=twoGbMaxExtentSparse", "-f", "vmdk"];
            qemu_img(Command::new("qemu-img").args(create).arg(&path).arg((BLOCKS * BLOCK).to_string()));
            return vec![path, directory.join("image-s001.vmdk")];
        }
    }
    vec![path]
}

fn qemu_img(command: &mut Command) {
    let output = command
        .output()
        .unwrap_or_else(|error| panic!("cannot run qemu-img ({error}): the Debian package qemu-utils has it"));
    assert!(output.status.success(), "{output:?}");
}

/// What was written, and what the image's files were told meanwhile.
struct Story {
    _directory: tempfile::TempDir,
    paths: Vec<PathBuf>,
    recorded: Recorded,
    changes: Vec<Change>,
    origin: Origin,
}

fn write_a_story(origin: Origin, seed: u64, in_order: bool) -> Story {
    let directory = tempfile::tempdir().unwrap();
    let paths = create(directory.path(), origin);
    let files: Vec<_> = paths.iter().map(PathBuf::as_path).collect();
    let recorder = if in_order { Recorder::of(&files) } else { Recorder::skipping_barriers(&files) };
    let disk = open(files[0]).unwrap();
    let memory = MemoryMap::allocate(&[(0, (WRITE_BLOCKS_MAX * BLOCK) as usize)]).unwrap();
    let mut queue = disk.open_queue(&memory, 1).unwrap();
    let (mut random, mut changes) = (Random(seed), Vec::<Change>::new());
    for _ in 0..STEPS {
        if random.below(12) == 0 {
            perform(&mut *queue, Operation::Flush, 0, &[]);
            let now = recorder.event_count();
            changes.iter_mut().for_each(|change| _ = change.certain.get_or_insert(now));
            continue;
        }
        let kind = [Kind::Write, Kind::Write, Kind::Write, Kind::Zero, Kind::Discard][random.below(5) as usize];
        let start = random.below(BLOCKS);
        let blocks = start..(start + 1 + random.below(WRITE_BLOCKS_MAX)).min(BLOCKS);
        let length_bytes = (blocks.end - blocks.start) * BLOCK;
        let segment = Segment { region: 0, length_bytes: length_bytes as u32, offset_bytes: 0 };
        let is_forced = kind == Kind::Write && random.below(8) == 0;
        let (operation, segments) = match kind {
            Kind::Write => (Operation::Write { force_unit_access: is_forced }, &[segment][..]),
            Kind::Zero => (Operation::WriteZeroes { length_bytes, may_unmap: random.below(2) == 0 }, &[][..]),
            Kind::Discard => (Operation::Discard { length_bytes }, &[][..]),
        };
        let number = changes.len() as u64 + 1;
        let bytes: Vec<u8> = blocks.clone().flat_map(|block| contents(kind, number, block)).collect();
        memory.slice(segment).unwrap().copy_from(&bytes);
        let issued = recorder.event_count();
        perform(&mut *queue, operation, blocks.start * BLOCK, segments);
        changes.push(Change { kind, blocks, issued, certain: is_forced.then(|| recorder.event_count()) });
    }
    drop((queue, disk));
    let recorded = recorder.end(BLOCK as u32);
    Story { _directory: directory, paths, recorded, changes, origin }
}

fn perform(queue: &mut dyn Queue, operation: Operation, offset_bytes: u64, segments: &[Segment]) {
    queue.push(&Request { operation, offset_bytes, segments, token: 0 }).unwrap();
    let mut completions = Vec::new();
    queue.drain(&mut completions).unwrap();
    assert_eq!(completions[0].result, Ok(()), "{operation:?}");
}

impl Story {
    /// Cuts the power; what is wrong then, of the first cut at which something is.
    fn play(&self, seed: u64) -> Result<(), String> {
        let mut random = Random(seed);
        let events = self.recorded.recording.event_count() as u64;
        let mut cuts: Vec<_> = (0..CUTS).map(|_| random.below(events + 1) as usize).collect();
        cuts.sort_unstable();
        let mut replay = self.recorded.replay();
        let files: Vec<_> = self.paths.iter().map(PathBuf::as_path).collect();
        for cut in cuts {
            replay.cut(cut, random.below(1 << 30)).unwrap().write(&files);
            self.examine(files[0], cut).map_err(|problem| format!("cut behind {cut} of {events} events: {problem}"))?;
        }
        Ok(())
    }

    fn examine(&self, path: &Path, cut: usize) -> Result<(), String> {
        // To be written to, so that it is checked.
        let disk = open(path).map_err(|error| error.to_string())?;
        let bytes = crate::read_bytes(&disk, 0..BLOCKS * BLOCK).map_err(|error| error.to_string())?;
        (0..BLOCKS).zip(bytes.chunks(BLOCK as usize)).try_for_each(|(block, bytes)| self.check(block, bytes, cut))?;
        // What is written next puts the redundant tables right, and changes nothing else.
        crate::write_bytes(&disk, 0, &bytes[..BLOCK as usize]).map_err(|error| error.to_string())?;
        drop(disk);
        let disk = open(path).map_err(|error| error.to_string())?;
        let mut said = Vec::new();
        disk.check(&mut |line| said.push(line.to_owned())).map_err(|error| error.to_string())?;
        if crate::read_bytes(&disk, 0..BLOCKS * BLOCK).map_err(|error| error.to_string())? != bytes {
            said.push("the next write changed something".into());
        }
        if said.is_empty() { Ok(()) } else { Err(said.join("; ")) }
    }

    /// A block holds what is certain, or what came later.
    fn check(&self, block: u64, bytes: &[u8], cut: usize) -> Result<(), String> {
        let of_block = self.changes.iter().zip(1..).filter(|(change, _)| change.blocks.contains(&block));
        let has_parent = matches!(self.origin, Origin::Parent | Origin::ParentAndZeroedGrains);
        let mut possible = vec![contents(if has_parent { Kind::Write } else { Kind::Zero }, 0, block)];
        for (change, number) in of_block.filter(|(change, _)| change.issued <= cut) {
            if change.kind != Kind::Discard && change.certain.is_some_and(|at| at <= cut) {
                possible.clear();
            }
            possible.push(contents(change.kind, number, block));
        }
        if possible.iter().any(|possible| possible == bytes) {
            return Ok(());
        }
        Err(format!("block {block} holds neither what was flushed nor what came later: {:?}…", &bytes[..16]))
    }
}

#[test]
fn nothing_that_was_flushed_is_lost_and_nothing_is_damaged() {
    for (origin, seed) in ORIGINS.into_iter().zip(21..) {
        let story = write_a_story(origin, seed, true);
        story.play(seed).unwrap_or_else(|problem| panic!("{origin:?}, seed {seed}: {problem}"));
    }
}

/// A story may end well by luck: so many are told before that is believed.
const TRIES: u64 = 40;

fn is_caught(origin: Origin, tell: impl Fn(u64) -> Story) {
    let caught = (0..TRIES).position(|seed| tell(seed).play(seed).is_err());
    assert!(caught.is_some(), "{origin:?}");
}

#[test]
fn a_disk_that_skips_flushes_is_caught() {
    for origin in ORIGINS {
        is_caught(origin, |seed| {
            let mut story = write_a_story(origin, seed, true);
            story.recorded.recording = story.recorded.recording.without_flushes();
            story
        });
    }
}

/// Where a parent shows, what is written is stable before an entry leads there.
#[test]
fn entries_that_are_written_before_their_grains_are_caught() {
    for origin in [Origin::Parent, Origin::ParentAndZeroedGrains] {
        is_caught(origin, |seed| write_a_story(origin, seed, false));
    }
}
