//! Power cuts while an image is written to: in what its file may hold then nothing is wrong but that there are clusters
//! that nobody uses, and when it is opened everything that was flushed is there.

use super::super::{Qcow2Backing, Qcow2CreateOptions, Qcow2Disk};
use super::output_of;
use crate::formats::power_cut::{BLOCK, Change, Kind, check, contents_of, cuts};
use crate::formats::random::Random;
use crate::formats::recorded_file::{Recorded, Recorder};
use crate::{AllowedDirectories, Completion, Disk, FileOptions, MemoryMap, Operation, Queue, Request, Segment};
use std::fs;
use std::mem;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

const BLOCKS: u64 = 1024;
const DEPTH: usize = 8;
const WRITE_BLOCKS_MAX: u64 = 20;
const STEPS: usize = 900;
const CUTS: u64 = 30;
/// For what takes milliseconds.
const HANG: Duration = Duration::from_secs(30);

/// Writes, zeroes, discards and flushes wherever it likes, never the same block twice at once.
struct Writer {
    queue: Box<dyn Queue>,
    memory: MemoryMap,
    recorder: Recorder,
    random: Random,
    changes: Vec<Change>,
    /// By slot: the change in flight.
    slots: [Option<usize>; DEPTH],
    /// The flush in flight, and how many events there were when it was issued.
    flush: Option<usize>,
}

const FLUSH: u64 = u64::MAX;

impl Writer {
    fn step(&mut self) {
        match self.random.below(24) {
            0 if self.flush.is_none() => {
                self.flush = Some(self.recorder.event_count());
                self.push(Operation::Flush, 0, &[], FLUSH);
            }
            1..=15 => self.change(),
            _ => self.reap(),
        }
    }

    fn change(&mut self) {
        let Some(slot) = self.slots.iter().position(Option::is_none) else { return self.reap() };
        let kind = Kind::any(&mut self.random);
        let length = 1 + self.random.below(if kind == Kind::Write { WRITE_BLOCKS_MAX } else { 64 });
        let start = self.random.below(BLOCKS);
        let blocks = start..(start + length).min(BLOCKS);
        let in_flight = self.slots.iter().flatten().map(|&change| &self.changes[change].blocks);
        if in_flight.into_iter().any(|other| other.start < blocks.end && blocks.start < other.end) {
            return;
        }
        let number = self.changes.len();
        let is_forced = kind == Kind::Write && self.random.below(8) == 0;
        let (offset_bytes, length_bytes) = (blocks.start * BLOCK, (blocks.end - blocks.start) * BLOCK);
        let segment = Segment {
            region: 0,
            length_bytes: length_bytes as u32,
            offset_bytes: slot as u64 * WRITE_BLOCKS_MAX * BLOCK,
        };
        let operation = kind.operation(length_bytes, is_forced, &mut self.random);
        let segments = if kind == Kind::Write { &[segment][..] } else { &[] };
        if kind == Kind::Write {
            self.memory.slice(segment).unwrap().copy_from(&contents_of(kind, number as u64 + 1, blocks.clone()));
        }
        let issued = self.recorder.event_count();
        self.changes.push(Change::issued(kind, blocks, is_forced, issued));
        self.slots[slot] = Some(number);
        self.push(operation, offset_bytes, segments, slot as u64);
    }

    fn push(&mut self, operation: Operation, offset_bytes: u64, segments: &[Segment], token: u64) {
        self.queue.push(&Request { operation, offset_bytes, segments, token }).unwrap();
        self.queue.submit().unwrap();
    }

    fn reap(&mut self) {
        self.queue.wait(&[], Some(Duration::from_millis(1))).unwrap();
        let mut completions: Vec<Completion> = Vec::new();
        self.queue.reap(&mut completions);
        let now = self.recorder.event_count();
        for Completion { token, result } in completions {
            assert_eq!(result, Ok(()));
            if token == FLUSH {
                let issued = self.flush.take().unwrap();
                self.changes.iter_mut().for_each(|change| change.flushed(issued, now));
                continue;
            }
            self.changes[self.slots[token as usize].take().unwrap()].complete(now);
        }
    }
}

/// What was written, and what the image's file was told meanwhile.
struct Story {
    directory: tempfile::TempDir,
    recorded: Recorded,
    changes: Vec<Change>,
    origin: Origin,
}

/// Where an image's data are from before it is written to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Origin {
    /// There are none.
    Nothing,
    /// A chain of images.
    Backing,
    /// Compressed clusters of its own.
    Compressed,
    /// A raw file, behind clusters with parts.
    BehindParts,
}

fn open(path: &Path) -> Result<Qcow2Disk, crate::ImageError> {
    let allowed = AllowedDirectories::new(&[path.parent().unwrap()]).unwrap();
    Qcow2Disk::open(path, &FileOptions::default(), &allowed)
}

fn create(directory: &Path, origin: Origin, cluster_bytes: u32) -> PathBuf {
    let path = directory.join("image.qcow2");
    let options = Qcow2CreateOptions { cluster_bytes, ..Qcow2CreateOptions::new(BLOCKS * BLOCK) };
    if origin == Origin::Nothing {
        Qcow2Disk::create(&path, &options).unwrap();
        return path;
    }
    let bytes = contents_of(Kind::Write, 0, 0..BLOCKS);
    let raw = directory.join("base.raw");
    fs::write(&raw, bytes).unwrap();
    if origin == Origin::Compressed {
        let cluster_size = format!("cluster_size={cluster_bytes}");
        let mut convert = Command::new("qemu-img");
        convert.args(["convert", "-c", "-f", "raw", "-O", "qcow2", "-o", &cluster_size]).args([&raw, &path]);
        assert!(output_of(&mut convert).status.success());
        return path;
    }
    if origin == Origin::BehindParts {
        let parts = format!("cluster_size={cluster_bytes},extended_l2=on");
        let mut create = Command::new("qemu-img");
        create.args(["create", "-q", "-f", "qcow2", "-o", &parts, "-F", "raw", "-b"]).args([&raw, &path]);
        assert!(output_of(&mut create).status.success());
        return path;
    }
    let on = |name: &str, format: &str| Some(Qcow2Backing { name: name.into(), format: format.into() });
    let middle = Qcow2CreateOptions { backing: on("base.raw", "raw"), ..options.clone() };
    Qcow2Disk::create(&directory.join("middle.qcow2"), &middle).unwrap();
    Qcow2Disk::create(&path, &Qcow2CreateOptions { backing: on("middle.qcow2", "qcow2"), ..options }).unwrap();
    path
}

/// What hangs does so again when it is dropped.
fn hung(queue: Box<dyn Queue>, doing: &str) -> ! {
    let in_flight = queue.in_flight();
    mem::forget(queue);
    panic!("{doing}: {in_flight} requests did not complete within {HANG:?}");
}

fn write_a_story(origin: Origin, cluster_bytes: u32, seed: u64, in_order: bool) -> Story {
    let directory = blockyard_fuzz::memory_directory().unwrap();
    let path = create(directory.path(), origin, cluster_bytes);
    let recorder = if in_order { Recorder::of(&[&path]) } else { Recorder::skipping_barriers(&[&path]) };
    let disk = open(&path).unwrap();
    let memory = MemoryMap::allocate(&[(0, DEPTH * (WRITE_BLOCKS_MAX * BLOCK) as usize)]).unwrap();
    let queue = disk.open_queue(&memory, DEPTH + 1).unwrap();
    let random = Random(seed);
    let mut writer = Writer { queue, memory, recorder, random, changes: Vec::new(), slots: [None; DEPTH], flush: None };
    for _ in 0..STEPS {
        writer.step();
    }
    let began = Instant::now();
    while writer.queue.in_flight() > 0 {
        if began.elapsed() > HANG {
            hung(writer.queue, "writing");
        }
        writer.reap();
    }
    let Writer { queue, changes, recorder, .. } = writer;
    drop((queue, disk));
    Story { directory, recorded: recorder.end(BLOCK as u32), changes, origin }
}

impl Story {
    /// Cuts the power; what is wrong then, of the first cut at which something is.
    fn play(&self, seed: u64) -> Result<(), String> {
        let mut random = Random(seed);
        let events = self.recorded.recording.event_count() as u64;
        let mut replay = self.recorded.replay();
        for cut in cuts(&mut random, events, CUTS) {
            let path = self.directory.path().join("cut.qcow2");
            replay.cut(cut, random.below(1 << 30)).unwrap().write(&[&path]);
            self.examine(&path, cut).map_err(|problem| format!("cut behind {cut} of {events} events: {problem}"))?;
        }
        Ok(())
    }

    fn examine(&self, path: &Path, cut: usize) -> Result<(), String> {
        check_with_qemu(path)?;
        let disk = open(path).map_err(|error| error.to_string())?;
        let memory = MemoryMap::allocate(&[(0, (BLOCKS * BLOCK) as usize)]).unwrap();
        let segment = Segment { region: 0, length_bytes: (BLOCKS * BLOCK) as u32, offset_bytes: 0 };
        let mut queue = disk.open_queue(&memory, 1).unwrap();
        queue.push(&Request { operation: Operation::Read, offset_bytes: 0, segments: &[segment], token: 0 }).unwrap();
        let mut completions = Vec::new();
        let began = Instant::now();
        while completions.is_empty() {
            if began.elapsed() > HANG {
                hung(queue, "reading");
            }
            queue.submit().unwrap();
            queue.wait(&[], Some(HANG)).unwrap();
            queue.reap(&mut completions);
        }
        completions[0].result.map_err(|error| error.to_string())?;
        let mut bytes = vec![0_u8; (BLOCKS * BLOCK) as usize];
        memory.slice(segment).unwrap().copy_to(&mut bytes);
        drop((queue, disk));
        let before = if self.origin == Origin::Nothing { Kind::Zero } else { Kind::Write };
        check(&self.changes, before, &bytes, cut)?;
        check_with_qemu(path)
    }
}

fn check_with_qemu(path: &Path) -> Result<(), String> {
    // -U: whoever forks at this moment, as other tests do, holds a lock for as long as the child takes to begin.
    let output = output_of(Command::new("qemu-img").args(["check", "-U", "-f", "qcow2"]).arg(path));
    match output.status.code() {
        // 3: clusters that nobody uses.
        Some(0 | 3) => Ok(()),
        _ => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
    }
}

/// Where the data are from, the size of clusters, and a seed.
const STORIES: [(Origin, u32, u64); 6] = [
    (Origin::Nothing, 4096, 11),
    (Origin::Backing, 4096, 12),
    (Origin::Compressed, 4096, 13),
    (Origin::Nothing, 512, 14),
    (Origin::Backing, 512, 15),
    (Origin::BehindParts, 16384, 16),
];

#[test]
fn nothing_that_was_flushed_is_lost_and_nothing_is_damaged() {
    for (origin, cluster_bytes, seed) in STORIES {
        let story = write_a_story(origin, cluster_bytes, seed, true);
        story
            .play(seed)
            .unwrap_or_else(|problem| panic!("{origin:?}, seed {seed}, clusters of {cluster_bytes}: {problem}"));
    }
}

/// A story may end well by luck: so many are told before that is believed.
const TRIES: u64 = 40;

fn is_caught(origin: Origin, cluster_bytes: u32, seed: u64, tell: impl Fn(u64) -> Story) {
    let caught = (0..TRIES).position(|more| tell(seed + 100 * more).play(seed + more).is_err());
    println!("{origin:?}, clusters of {cluster_bytes}: {caught:?}");
    assert!(caught.is_some(), "{origin:?}, clusters of {cluster_bytes}");
}

#[test]
fn a_disk_that_skips_flushes_is_caught() {
    for (origin, cluster_bytes, seed) in STORIES {
        is_caught(origin, cluster_bytes, seed, |seed| {
            let mut story = write_a_story(origin, cluster_bytes, seed, true);
            story.recorded.recording = story.recorded.recording.without_flushes();
            story
        });
    }
}

#[test]
fn metadata_that_are_written_in_no_order_are_caught() {
    for (origin, cluster_bytes, seed) in STORIES {
        is_caught(origin, cluster_bytes, seed, |seed| write_a_story(origin, cluster_bytes, seed, false));
    }
}
