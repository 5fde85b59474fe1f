//! Power cuts while a VMDK is written to: what its file may hold then is in order, and has everything that was flushed.
//! And while the log of a VHDX is replayed, which changes nothing of what its disk holds.

use super::super::{BlockMapCreateOptions, BlockMapDisk, BlockMapFormat, BlockMapInfo, BlockMapWriter};
use super::samples::vhdx_image::{self, ALL, LogEntry, METADATA_OFFSET, TABLE_OFFSET, VhdxImage};
use crate::formats::power_cut::{BLOCK, Change, Kind, check, contents_of, cuts};
use crate::formats::random::Random;
use crate::formats::recorded_file::{Recorded, Recorder};
use crate::{
    AllowedDirectories, Disk, FileOptions, ImageError, MemoryMap, OpenedFile, Operation, Queue, Request, Segment,
};
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

const BLOCKS: u64 = 4096;
const WRITE_BLOCKS_MAX: u64 = 200;
const STEPS: usize = 300;
const CUTS: u64 = 30;

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
            crate::write_bytes(&disk, 0, &contents_of(Kind::Write, 0, 0..BLOCKS)).unwrap();
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
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let paths = create(directory.path(), origin);
    let files: Vec<_> = paths.iter().map(PathBuf::as_path).collect();
    let recorder = if in_order { Recorder::of(&files) } else { Recorder::skipping_barriers(&files) };
    let disk = open(files[0]).unwrap();
    let memory = MemoryMap::allocate(&[(0, (WRITE_BLOCKS_MAX * BLOCK) as usize)]).unwrap();
    let mut queue = disk.open_queue(&memory, 1).unwrap();
    let (mut random, mut changes) = (Random(seed), Vec::<Change>::new());
    for _ in 0..STEPS {
        if random.below(12) == 0 {
            let issued = recorder.event_count();
            perform(&mut *queue, Operation::Flush, 0, &[]);
            changes.iter_mut().for_each(|change| change.flushed(issued, recorder.event_count()));
            continue;
        }
        let kind = Kind::any(&mut random);
        let start = random.below(BLOCKS);
        let blocks = start..(start + 1 + random.below(WRITE_BLOCKS_MAX)).min(BLOCKS);
        let length_bytes = (blocks.end - blocks.start) * BLOCK;
        let segment = Segment { region: 0, length_bytes: length_bytes as u32, offset_bytes: 0 };
        let is_forced = kind == Kind::Write && random.below(8) == 0;
        let operation = kind.operation(length_bytes, is_forced, &mut random);
        let segments = if kind == Kind::Write { &[segment][..] } else { &[] };
        let bytes = contents_of(kind, changes.len() as u64 + 1, blocks.clone());
        memory.slice(segment).unwrap().copy_from(&bytes);
        let mut change = Change::issued(kind, blocks.clone(), is_forced, recorder.event_count());
        perform(&mut *queue, operation, blocks.start * BLOCK, segments);
        change.complete(recorder.event_count());
        changes.push(change);
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
        let mut replay = self.recorded.replay();
        let files: Vec<_> = self.paths.iter().map(PathBuf::as_path).collect();
        for cut in cuts(&mut random, events, CUTS) {
            replay.cut(cut, random.below(1 << 30)).unwrap().write(&files);
            self.examine(files[0], cut).map_err(|problem| format!("cut behind {cut} of {events} events: {problem}"))?;
        }
        Ok(())
    }

    fn examine(&self, path: &Path, cut: usize) -> Result<(), String> {
        // To be written to, so that it is checked.
        let disk = open(path).map_err(|error| error.to_string())?;
        let bytes = crate::read_bytes(&disk, 0..BLOCKS * BLOCK).map_err(|error| error.to_string())?;
        let has_parent = matches!(self.origin, Origin::Parent | Origin::ParentAndZeroedGrains);
        check(&self.changes, if has_parent { Kind::Write } else { Kind::Zero }, &bytes, cut)?;
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

/// A VHDX whose log makes it longer and has its table, some of its data and zeros; what its disk holds.
fn unclosed_vhdx() -> (Vec<u8>, Vec<u8>) {
    const MIB: usize = 1 << 20;
    let blocks = vec![(0, 6, ALL, vec![1; MIB])];
    let image = VhdxImage { log_id: [3; 16], blocks, ..VhdxImage::new(4 << 20, MIB) };
    let end = image.bytes().len();
    let mut table = image.bytes()[TABLE_OFFSET..][..4096].to_vec();
    vhdx_image::put(&mut table, 8, &(end as u64 | 6).to_le_bytes());
    let page = |offset: usize, bytes: Vec<u8>| vhdx_image::Change::Page { offset: offset as u64, bytes };
    let zeros = |offset: usize, length: u64| vhdx_image::Change::Zeros { offset: offset as u64, length };
    let entry = |sequence, changes, last_bytes: usize| {
        let (flushed_bytes, last_bytes) = (end as u64, last_bytes as u64);
        LogEntry { sequence, tail: 0, log_id: [3; 16], flushed_bytes, last_bytes, changes }.bytes()
    };
    let first = entry(5, vec![page(TABLE_OFFSET, table), zeros(METADATA_OFFSET + MIB / 2, 8192)], end + MIB);
    let data = vec![page(end + 8192, vec![2; 4096]), zeros(4 * MIB + 4096, 65_536), page(4 * MIB, vec![4; 4096])];
    let second = entry(6, data, end + MIB);
    let mut wanted = vec![1; MIB];
    wanted[..4096].fill(4);
    wanted[4096..4096 + 65_536].fill(0);
    wanted.resize(4 * MIB, 0);
    wanted[MIB + 8192..MIB + 3 * 4096].fill(2);
    (VhdxImage { log: [first, second].concat(), ..image }.bytes(), wanted)
}

/// Cuts the power at every event of a replay, `tries` times each; what is wrong then.
fn replay_with_cuts(in_order: bool, tries: u64) -> Result<(), String> {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = directory.path().join("image.vhdx");
    let (bytes, wanted) = unclosed_vhdx();
    fs::write(&path, bytes).unwrap();
    let recorder = if in_order { Recorder::of(&[&path]) } else { Recorder::skipping_barriers(&[&path]) };
    let replay = || BlockMapDisk::replay_log(&OpenedFile::open(&path, false).unwrap(), BlockMapFormat::Vhdx);
    let was_dirty = replay().unwrap();
    assert!(was_dirty && !replay().unwrap());
    let recorded = recorder.end(BLOCK as u32);
    let options = FileOptions { read_only: true, ..FileOptions::default() };
    let holds = |what: &str| {
        let disk = BlockMapDisk::open(&path, BlockMapFormat::Vhdx, &options, &AllowedDirectories::none());
        let failed = |source| ImageError::System { action: "read", path: path.clone(), source };
        let read = disk.and_then(|disk| crate::read_bytes(&disk, 0..wanted.len() as u64).map_err(failed));
        match read {
            Ok(read) if read == wanted => Ok(()),
            Ok(_) => Err(format!("{what}, other bytes")),
            Err(error) => Err(format!("{what}, {}", crate::explain(&error))),
        }
    };
    holds("replayed")?;
    let (mut random, mut cutter) = (Random(1), recorded.replay());
    for cut in 0..=recorded.recording.event_count() {
        for _ in 0..tries {
            cutter.cut(cut, random.below(1 << 30)).unwrap().write(&[&path]);
            holds(&format!("cut behind event {cut}"))?;
            replay().map_err(|error| format!("cut behind event {cut}: {}", crate::explain(&error)))?;
            holds(&format!("cut behind event {cut} and replayed"))?;
            let info = BlockMapInfo::of(&OpenedFile::open(&path, true).unwrap(), BlockMapFormat::Vhdx).unwrap();
            assert!(!info.is_dirty, "cut behind event {cut}");
        }
    }
    Ok(())
}

#[test]
fn a_log_is_replayed_whenever_the_power_is_cut() {
    replay_with_cuts(true, 8).unwrap();
}

#[test]
fn a_replay_in_no_order_is_caught() {
    replay_with_cuts(false, 40).unwrap_err();
}
