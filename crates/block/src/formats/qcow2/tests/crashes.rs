//! Crashes of short histories, all of them: whatever is done with a small image, up to three operations of all that
//! there are, and wherever the power goes.
//!
//! The power is cut behind each event of what was written, by the last operation of a history: those before are the
//! last of shorter ones. Then any of what was not flushed may be there ([`Outcomes`]), by sectors of 512 bytes; and
//! each of these files is looked at ([`examine`]) once for what it may show.
//!
//! By hand all of them (`cargo xtask reliability crashes`); in every run of the tests as many as take half a minute,
//! nearly the same ones.

mod examine;
mod history;
mod model;
mod shape;

use crate::formats::cut_files::{CutFiles, mixed};
use crate::formats::recorded_file::Recorded;
use examine::examine;
use history::{Operation, Player, Step, histories};
use shape::{Files, SECTOR_BYTES, Shape};
use std::collections::HashSet;
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Instant;

/// Most operations of a history.
const LENGTH_MAX: usize = 3;
/// As many changes that were not flushed are there or not in each way that there is.
const ALL_WAYS_MAX: usize = 8;
/// And else in so many.
const WAYS_MAX: u64 = 256;

/// What a sector holds that was written with a label: zeros for 0.
fn contents(label: u32, sector: u64) -> [u8; SECTOR_BYTES as usize] {
    let mut bytes = [0; SECTOR_BYTES as usize];
    if label != 0 {
        let word = (u64::from(label) << 32 | sector).to_le_bytes();
        bytes.as_chunks_mut::<8>().0.iter_mut().for_each(|to| *to = word);
    }
    bytes
}

/// A history of an image.
type Case = (Shape, Vec<Operation>);

/// All there are, in an order that is any, and the same each time.
fn all_cases() -> Vec<Case> {
    let cases = |shape| histories(shape, LENGTH_MAX).into_iter().map(move |history| (shape, history));
    let mut all: Vec<_> = Shape::all().into_iter().flat_map(cases).collect();
    let mut random = Random(1);
    for index in (1..all.len()).rev() {
        all.swap(index, random.below(index + 1));
    }
    all
}

struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = mixed(self.0.wrapping_add(0x9e37_79b9_7f4a_7c15), 0x2545_f491_4f6c_dd1d);
        self.0 ^ self.0 >> 31
    }

    fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }
}

/// Ways in which what is uncertain at a cut may turn out.
struct Outcomes {
    /// Of each change that is uncertain: its sectors.
    changes: Vec<Vec<Range<u64>>>,
    random: Random,
}

impl Outcomes {
    fn sectors(&self) -> usize {
        self.changes.iter().map(Vec::len).sum()
    }

    fn count(&self) -> u64 {
        if self.sectors() <= ALL_WAYS_MAX { 1 << self.sectors() } else { WAYS_MAX }
    }

    /// Which sectors of which changes are there.
    fn outcome(&mut self, number: u64) -> Vec<Vec<Range<u64>>> {
        let (changes, sectors) = (self.changes.len(), self.sectors());
        let kept = |is_kept: &mut dyn FnMut(usize) -> bool, changes: &[Vec<Range<u64>>]| {
            let mut sector = 0;
            let mut keep = |_: &&Range<u64>| {
                sector += 1;
                is_kept(sector - 1)
            };
            changes.iter().map(|blocks| blocks.iter().filter(&mut keep).cloned().collect()).collect()
        };
        let whole = |is_kept: &dyn Fn(usize) -> bool, changes: &[Vec<Range<u64>>]| {
            let keep =
                |(index, blocks): (usize, &Vec<Range<u64>>)| if is_kept(index) { blocks.clone() } else { vec![] };
            changes.iter().enumerate().map(keep).collect()
        };
        if sectors <= ALL_WAYS_MAX {
            return kept(&mut |sector| number >> sector & 1 != 0, &self.changes);
        }
        // Whole changes, in all ways if these are not too many; and torn ones.
        let ways_of_whole = if changes < ALL_WAYS_MAX { 1 << changes } else { WAYS_MAX / 2 };
        if number < ways_of_whole && changes < ALL_WAYS_MAX {
            return whole(&|change| number >> change & 1 != 0, &self.changes);
        }
        let chosen: Vec<bool> = match number {
            0 => vec![false; sectors],
            1 => vec![true; sectors],
            _ if number < ways_of_whole => {
                let of_change =
                    |random: &mut Random, blocks: &Vec<Range<u64>>| vec![random.next() & 1 != 0; blocks.len()];
                let random = &mut self.random;
                self.changes.iter().flat_map(|blocks| of_change(random, blocks)).collect()
            }
            // Few of them, or nearly all, or half.
            _ => {
                let share = [1, 2, 4, 4, 6, 7][self.random.below(6)];
                (0..sectors).map(|_| self.random.below(8) < share).collect()
            }
        };
        kept(&mut |sector| chosen[sector], &self.changes)
    }
}

/// What was seen already, and counted.
#[derive(Default)]
struct Seen {
    /// Digests of files, with what these may show.
    examined: HashSet<(usize, u64, u64)>,
    /// And without.
    states: HashSet<(usize, u64)>,
    histories: usize,
    cuts: usize,
    by_qemu: usize,
}

/// How far to go.
#[derive(Clone, Copy)]
struct Bounds {
    /// So many states are enough.
    states: usize,
    /// One of so many is shown to qemu-img.
    qemu_one_of: usize,
}

/// Plays the cases in turn, on all processors.
fn crash(cases: &[Case], bounds: Bounds) -> Seen {
    let (next, seen) = (AtomicUsize::new(0), Mutex::new(Seen::default()));
    thread::scope(|scope| {
        for _ in 0..thread::available_parallelism().map_or(2, usize::from) {
            scope.spawn(|| {
                let mut yard = Yard::new();
                while seen.lock().unwrap().states.len() < bounds.states {
                    let Some(case) = cases.get(next.fetch_add(1, Ordering::SeqCst)) else { break };
                    yard.play(case, bounds, &seen);
                }
            });
        }
    });
    seen.into_inner().unwrap()
}

/// Where one thread plays.
struct Yard {
    directory: tempfile::TempDir,
    /// By shape: what its files are in the beginning.
    shapes: Vec<(Shape, CutFiles)>,
}

impl Yard {
    fn new() -> Self {
        let directory = blockyard_fuzz::memory_directory().unwrap();
        std::fs::create_dir(directory.path().join("cut")).unwrap();
        Self { directory, shapes: Vec::new() }
    }

    fn play(&mut self, case: &Case, bounds: Bounds, seen: &Mutex<Seen>) {
        let (shape, history) = case;
        let files = Files::in_directory(self.directory.path(), *shape);
        match self.shapes.iter().find(|(other, _)| other == shape) {
            Some((_, beginning)) => beginning.write(&files.all()),
            None => {
                shape.make(&files);
                self.shapes.push((*shape, CutFiles::read(&files.all())));
            }
        }
        let (recorded, steps, from) = Player::new(*shape, &files).play(history);
        seen.lock().unwrap().histories += 1;
        let cut_files = Files::in_directory(&self.directory.path().join("cut"), *shape);
        let cuts = Cuts { shape: *shape, history, steps: &steps, recorded: &recorded, files: &cut_files, bounds };
        cuts.all(from, seen);
    }
}

/// The cuts of one history.
struct Cuts<'a> {
    shape: Shape,
    history: &'a [Operation],
    steps: &'a [Step],
    recorded: &'a Recorded,
    files: &'a Files,
    bounds: Bounds,
}

impl Cuts<'_> {
    fn all(&self, from: usize, seen: &Mutex<Seen>) {
        let labels = self.shape.labels();
        let shape = Shape::all().iter().position(|shape| *shape == self.shape).unwrap();
        let mut replay = self.recorded.replay();
        let (mut before, mut there) = (None, Vec::new());
        for cut in from..=self.recorded.recording.event_count() {
            let expected = model::expected(&labels, self.steps, cut);
            let expected_digest = model::digest(&expected);
            let mut outcomes = Outcomes { changes: Vec::new(), random: Random(cut as u64) };
            let certain = replay.cut_keeping(cut, |blocks| {
                outcomes.changes.push(blocks.to_vec());
                Vec::new()
            });
            let here = Some((certain.unwrap().digest(), expected_digest, outcomes.changes.clone()));
            if here == before {
                continue;
            }
            before = here;
            seen.lock().unwrap().cuts += 1;
            for number in 0..outcomes.count() {
                let mut outcome = outcomes.outcome(number).into_iter();
                let left = replay.cut_keeping(cut, |_| outcome.next().unwrap()).unwrap();
                let digest = left.digest();
                let asks_qemu = {
                    let mut seen = seen.lock().unwrap();
                    if !seen.examined.insert((shape, digest, expected_digest)) {
                        continue;
                    }
                    let asks_qemu = seen.states.insert((shape, digest))
                        && (mixed(digest, 0) >> 32).is_multiple_of(self.bounds.qemu_one_of as u64);
                    seen.by_qemu += usize::from(asks_qemu);
                    asks_qemu
                };
                // What is behind the image is not changed by an examination, and there mostly.
                let digests = left.digests();
                let is_new = |index: usize| !Files::BEHIND.contains(&index) || there.get(index) != digests.get(index);
                left.write_those(&self.files.all(), is_new);
                examine(self.files, is_new, &expected, asks_qemu).unwrap_or_else(|problem| {
                    let steps: Vec<_> = self.steps.iter().map(|step| (step.operation, step.issued)).collect();
                    panic!(
                        "{:?}, {:?}: cut behind event {cut} of {}, outcome {number} of {}: {problem}\n{steps:?}",
                        self.shape,
                        self.history,
                        self.recorded.recording.event_count(),
                        outcomes.count(),
                    )
                });
                there = digests;
            }
        }
    }
}

fn report(seen: &Seen, began: Instant) {
    let seconds = began.elapsed().as_secs_f64();
    println!(
        "{} states of {} cuts of {} histories, {} of them checked by qemu-img: {seconds:.0} s, {:.0} a second",
        seen.states.len(),
        seen.cuts,
        seen.histories,
        seen.by_qemu,
        seen.states.len() as f64 / seconds,
    );
}

#[test]
fn no_crash_of_a_short_history_loses_what_was_flushed() {
    const STATES: usize = 20_000;
    let began = Instant::now();
    let seen = crash(&all_cases(), Bounds { states: STATES, qemu_one_of: 64 });
    report(&seen, began);
    assert!(seen.states.len() >= STATES && seen.by_qemu > 100);
}

#[test]
#[ignore = "takes long: cargo xtask reliability crashes"]
fn no_crash_of_any_short_history_loses_what_was_flushed() {
    let number = |name: &str, otherwise| std::env::var(name).map_or(otherwise, |value| value.parse().unwrap());
    let bounds = Bounds {
        states: number("BLOCKYARD_CRASH_STATES", usize::MAX),
        qemu_one_of: number("BLOCKYARD_CRASH_QEMU_ONE_OF", 16),
    };
    let began = Instant::now();
    report(&crash(&all_cases(), bounds), began);
}
