//! Short histories of an image: what is done with it, one thing after the other.

use super::super::super::{Preallocation, Qcow2Backing, Qcow2Check, Qcow2Commit, Qcow2Disk, Qcow2Rebase};
use super::super::open_to_change;
use super::contents;
use super::shape::{Files, SECTOR_BYTES, Shape, allowed};
use crate::formats::recorded_file::{Recorded, Recorder};
use crate::read::perform;
use crate::{Disk, FileOptions, MemoryMap, Repair, Segment};
use std::ops::Range;

/// What can be done with an image.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    Write,
    Zero,
    Discard,
    Flush,
    Grow,
    Shrink,
    MakeSnapshot,
    ApplySnapshot,
    RemoveSnapshot,
    Commit,
    Rebase,
    Repair,
}

use Operation::{
    ApplySnapshot, Commit, Discard, Flush, Grow, MakeSnapshot, Rebase, RemoveSnapshot, Shrink, Write, Zero,
};

const OPERATIONS: [Operation; 12] = [
    Write,
    Zero,
    Discard,
    Flush,
    Grow,
    Shrink,
    MakeSnapshot,
    ApplySnapshot,
    RemoveSnapshot,
    Commit,
    Rebase,
    Operation::Repair,
];

impl Operation {
    /// Whether it changes what is shown all at once, or not at all.
    pub(super) fn happens_at_once(self) -> bool {
        matches!(self, Grow | Shrink | MakeSnapshot | ApplySnapshot | RemoveSnapshot)
    }
}

/// All histories of up to so many operations that an image of that shape can have.
pub(super) fn histories(shape: Shape, length: usize) -> Vec<Vec<Operation>> {
    let mut all: Vec<Vec<Operation>> = vec![Vec::new()];
    let mut longest = all.clone();
    for _ in 0..length {
        let longer = |history: &Vec<Operation>| OPERATIONS.map(|operation| [&history[..], &[operation]].concat());
        longest = longest.iter().flat_map(longer).filter(|history| is_possible(shape, history)).collect();
        all.extend(longest.iter().cloned());
    }
    all.remove(0);
    all
}

/// Whether no operation is one that is refused.
fn is_possible(shape: Shape, history: &[Operation]) -> bool {
    let (mut snapshots, mut backing) = (0, BACKINGS[0]);
    history.iter().all(|operation| {
        let is_possible = match operation {
            MakeSnapshot => !shape.has_data_file,
            ApplySnapshot | RemoveSnapshot => snapshots > 0,
            Commit => snapshots == 0 && backing.is_some(),
            Rebase => snapshots == 0,
            _ => true,
        };
        match operation {
            MakeSnapshot => snapshots += 1,
            RemoveSnapshot => snapshots -= 1,
            Rebase => backing = behind(backing),
            _ => {}
        }
        is_possible
    })
}

/// What is behind the image, in turn.
const BACKINGS: [Option<&str>; 3] = [Some("base.qcow2"), Some("other.qcow2"), None];

fn behind(now: Option<&str>) -> Option<&'static str> {
    let index = BACKINGS.iter().position(|backing| *backing == now).unwrap();
    BACKINGS[(index + 1) % BACKINGS.len()]
}

/// An operation that was carried out, and behind how many events of the log.
#[derive(Clone, Debug)]
pub(super) struct Step {
    pub(super) operation: Operation,
    /// What it is done to; what makes the disk another one, to all of it.
    pub(super) sectors: Range<u64>,
    /// What it writes.
    pub(super) label: u32,
    pub(super) issued: usize,
    pub(super) completed: usize,
    /// All that was done up to it is stable then.
    pub(super) is_stable: bool,
}

/// Carries a history out.
pub(super) struct Player<'a> {
    shape: Shape,
    files: &'a Files,
    disk: Option<Qcow2Disk>,
    sectors: u64,
    backing: Option<&'static str>,
    /// Of each snapshot: how many sectors the disk had.
    snapshots: Vec<u64>,
    recorder: Recorder,
    steps: Vec<Step>,
}

impl<'a> Player<'a> {
    pub(super) fn new(shape: Shape, files: &'a Files) -> Self {
        Self {
            shape,
            files,
            disk: None,
            sectors: shape.sectors(),
            backing: BACKINGS[0],
            snapshots: Vec::new(),
            recorder: Recorder::of(&files.all()),
            steps: Vec::new(),
        }
    }

    /// What was written, and the steps; and from which event on it was for the last of them.
    pub(super) fn play(mut self, history: &[Operation]) -> (Recorded, Vec<Step>, usize) {
        for (index, &operation) in history.iter().enumerate() {
            let is_of_disk = matches!(operation, Write | Zero | Discard | Flush);
            if !is_of_disk {
                self.disk = None;
            }
            let issued = self.recorder.event_count();
            let (label, range) = (10 + index as u32, self.range(operation, index));
            match is_of_disk {
                true => self.perform(operation, &range, label),
                false => self.command(operation, &range, index),
            }
            // A repair has nothing to do with a data file.
            let is_repair_beside_data = operation == Operation::Repair && self.shape.has_data_file;
            let is_stable = !matches!(operation, Write | Zero | Discard) && !is_repair_beside_data;
            let completed = self.recorder.event_count();
            self.steps.push(Step { operation, sectors: range, label, issued, completed, is_stable });
        }
        self.disk = None;
        let last = self.steps.last().unwrap().issued;
        (self.recorder.end(SECTOR_BYTES as u32), self.steps, last)
    }

    /// What an operation is done to. It meets what others are done to, and begins and ends within clusters where these
    /// have several sectors.
    fn range(&mut self, operation: Operation, index: usize) -> Range<u64> {
        let cluster = self.shape.sectors_per_cluster();
        let (half, end) = (cluster / 2, self.sectors);
        let at = |clusters: u64, more: u64| (clusters * cluster + more).min(end);
        let range = match (operation, index) {
            (Write, 0) => at(2, half)..at(4, half + 1),
            (Write, 1) => at(4, half / 2)..at(5, 0),
            (Write, _) => at(3, 0)..at(9, half),
            (Zero, 0) => at(3, 0)..at(6, half),
            (Zero, 1) => at(0, half)..at(3, half / 2),
            (Zero, _) => at(10, half)..at(14, 0),
            (Discard, 0) => at(2, 0)..at(5, 0),
            (Discard, 1) => at(11, 0)..at(16, 0),
            (Discard, _) => at(4, 0)..at(8, half),
            (Grow, _) => 0..end + self.shape.growth(),
            (Shrink, _) => 0..end - (3 * cluster + half).min(end - cluster),
            (ApplySnapshot, _) => 0..self.snapshots.last().copied().unwrap_or(end),
            _ => 0..end,
        };
        if !matches!(operation, Write | Zero | Discard) {
            self.sectors = range.end;
        }
        range
    }

    fn perform(&mut self, operation: Operation, range: &Range<u64>, label: u32) {
        let path = self.files.image();
        let open = || Qcow2Disk::open(path, &FileOptions::default(), &allowed(path)).unwrap();
        let disk = self.disk.get_or_insert_with(open);
        let bytes: Vec<u8> = range.clone().flat_map(|sector| contents(label, sector)).collect();
        let memory = MemoryMap::allocate(&[(0, bytes.len().max(1))]).unwrap();
        let mut queue = disk.open_queue(&memory, 1).unwrap();
        let (offset_bytes, length_bytes) = (range.start * SECTOR_BYTES, bytes.len() as u64);
        let segment = Segment { region: 0, length_bytes: bytes.len() as u32, offset_bytes: 0 };
        let (operation, segments) = match operation {
            Write => {
                memory.slice(segment).unwrap().copy_from(&bytes);
                (crate::Operation::Write { force_unit_access: false }, &[segment][..])
            }
            Zero => (crate::Operation::WriteZeroes { length_bytes, may_unmap: label.is_multiple_of(2) }, &[][..]),
            Discard => (crate::Operation::Discard { length_bytes }, &[][..]),
            _ => (crate::Operation::Flush, &[][..]),
        };
        let offset_bytes = if operation == crate::Operation::Flush { 0 } else { offset_bytes };
        perform(&mut *queue, operation, offset_bytes, segments).unwrap();
    }

    fn command(&mut self, operation: Operation, range: &Range<u64>, index: usize) {
        let path = self.files.image();
        let (image, allowed) = (open_to_change(path), allowed(path));
        match operation {
            Grow | Shrink => {
                Qcow2Disk::resize(&image, range.end * SECTOR_BYTES, Preallocation::Off, &allowed).unwrap();
            }
            MakeSnapshot => {
                Qcow2Disk::make_snapshot(&image, &format!("snapshot {index}"), &allowed).unwrap();
                self.snapshots.push(range.end);
            }
            ApplySnapshot => Qcow2Disk::apply_snapshot(&image, &last_snapshot(&image), &allowed).unwrap(),
            RemoveSnapshot => {
                Qcow2Disk::remove_snapshot(&image, &last_snapshot(&image), &allowed).unwrap();
                self.snapshots.pop();
            }
            Commit => {
                let commit = Qcow2Commit::open(image, None, &allowed).unwrap();
                commit.fold(&mut |_, _| true).unwrap();
                commit.empty().unwrap();
            }
            Rebase => {
                self.backing = behind(self.backing);
                self.rebase(image);
            }
            _ => {
                let report = Qcow2Check::open(&image, true).unwrap().run(Repair::All, &mut |_| ()).unwrap();
                assert_eq!((report.corruptions, report.leaks), (0, 0));
            }
        }
    }

    fn rebase(&self, image: crate::OpenedFile) {
        let allowed = allowed(self.files.image());
        let behind = self.backing.map(|name| {
            let options = FileOptions { read_only: true, ..FileOptions::default() };
            let path = self.files.image().with_file_name(name);
            Qcow2Disk::open(&path, &options, &allowed).unwrap()
        });
        let rebase = Qcow2Rebase::open(image).unwrap();
        let shown = rebase.shown(&allowed).unwrap();
        shown.keep(behind.as_ref().map(|disk| disk as &dyn Disk), &mut |_, _| true).unwrap();
        drop(shown);
        let backing = self.backing.map(|name| Qcow2Backing { name: name.into(), format: "qcow2".into() });
        rebase.name_backing(backing.as_ref()).unwrap();
    }
}

fn last_snapshot(image: &crate::OpenedFile) -> String {
    Qcow2Disk::snapshots(image).unwrap().pop().unwrap().name
}
