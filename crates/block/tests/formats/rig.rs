//! A disk with a queue, and QEMU's tools.

use blockyard_block::{
    AllowedDirectories, Completion, Disk, Engine, FileOptions, MemoryMap, Operation, Qcow2Disk, Queue, Request,
    RequestError, Segment,
};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use vm_memory::{Bytes, GuestAddress};

pub(crate) const MEMORY_BYTES: usize = 4 << 20;
pub(crate) const WRITE: Operation = Operation::Write { force_unit_access: false };

pub(crate) struct Rig {
    pub(crate) memory: MemoryMap,
    pub(crate) queue: Box<dyn Queue>,
    // Dropped last: the queue needs nothing of it, but what it closes is what the tests then look at.
    pub(crate) disk: Arc<dyn Disk>,
}

/// Runs one of QEMU's tools; its output.
pub(crate) fn run(tool: &str, arguments: &[&str]) -> String {
    run_accepting(tool, arguments, &[0])
}

/// The same, if it ends with one of these codes.
pub(crate) fn run_accepting(tool: &str, arguments: &[&str], codes: &[i32]) -> String {
    // Another test's process has, from fork to exec, what this one has just closed, with its locks.
    for _ in 0..50 {
        let (code, printed) = try_to_run(tool, arguments);
        if code.is_some_and(|code| codes.contains(&code)) {
            return printed;
        }
        assert!(printed.contains("lock"), "{tool} {arguments:?}: {printed}");
        std::thread::sleep(Duration::from_millis(20));
    }
    panic!("{tool} {arguments:?}: still locked after a second");
}

fn try_to_run(tool: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let output = Command::new(tool)
        .args(arguments)
        .output()
        .unwrap_or_else(|error| panic!("cannot run {tool} ({error}): it is in the Debian package qemu-utils"));
    let printed = String::from_utf8_lossy(&output.stdout) + String::from_utf8_lossy(&output.stderr);
    (output.status.code(), printed.into_owned())
}

pub(crate) fn qemu_img(arguments: &[&str]) -> String {
    run("qemu-img", arguments)
}

pub(crate) fn qemu_io(path: &str, format: &str, commands: &[&str]) {
    let mut arguments = vec!["-f", format];
    commands.iter().for_each(|command| arguments.extend(["-c", command]));
    arguments.push(path);
    let printed = run("qemu-io", &arguments);
    assert!(!printed.contains("failed"), "{commands:?}: {printed}");
}

/// `qemu-img check` finds nothing, not even a leaked cluster.
pub(crate) fn check_clean(path: &str) {
    let printed = qemu_img(&["check", "-f", "qcow2", path]);
    assert!(printed.contains("No errors were found"), "{printed}");
}

pub(crate) fn text(path: &Path) -> &str {
    path.to_str().unwrap()
}

pub(crate) fn options(engine: Engine) -> FileOptions {
    FileOptions { engine, ..FileOptions::default() }
}

pub(crate) fn read_only() -> FileOptions {
    FileOptions { read_only: true, ..FileOptions::default() }
}

pub(crate) fn open(path: &Path) -> Qcow2Disk {
    Qcow2Disk::open(path, &FileOptions::default(), &AllowedDirectories::none()).unwrap()
}

/// Opens an image whose directory may be referred to.
pub(crate) fn open_allowed(path: &Path, options: &FileOptions) -> Qcow2Disk {
    let allowed = AllowedDirectories::new(&[path.parent().unwrap()]).unwrap();
    Qcow2Disk::open(path, options, &allowed).unwrap()
}

/// Bytes that differ from place to place.
pub(crate) fn pattern(length: usize, seed: u64) -> Vec<u8> {
    let mut random = Random(seed);
    (0..length.div_ceil(8)).flat_map(|_| random.next().to_le_bytes()).take(length).collect()
}

/// Random numbers, the same each time.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ mixed >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ mixed >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ mixed >> 31
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.next() % end
    }
}

impl Rig {
    pub(crate) fn new(disk: impl Disk + 'static) -> Self {
        Self::shared(Arc::new(disk), 32)
    }

    pub(crate) fn shared(disk: Arc<dyn Disk>, depth: usize) -> Self {
        let memory = MemoryMap::allocate(&[(0, MEMORY_BYTES)]).unwrap();
        let queue = disk.open_queue(&memory, depth).unwrap();
        Self { memory, queue, disk }
    }

    pub(crate) fn poke(&self, address: u64, bytes: &[u8]) {
        self.memory.guest_memory().write_slice(bytes, GuestAddress(address)).unwrap();
    }

    pub(crate) fn peek(&self, address: u64, length: usize) -> Vec<u8> {
        let mut bytes = vec![0; length];
        self.memory.guest_memory().read_slice(&mut bytes, GuestAddress(address)).unwrap();
        bytes
    }

    pub(crate) fn perform(
        &mut self,
        operation: Operation,
        offset_bytes: u64,
        segments: &[Segment],
    ) -> Result<(), RequestError> {
        self.queue.push(&Request { operation, offset_bytes, segments, token: 7 }).unwrap();
        let mut completions: Vec<Completion> = Vec::new();
        self.queue.drain(&mut completions).unwrap();
        assert_eq!((completions.len(), completions[0].token, self.queue.in_flight()), (1, 7, 0));
        completions[0].result
    }

    /// In two segments, which do not end where clusters do.
    pub(crate) fn segments(length: usize) -> Vec<Segment> {
        let first = (length / 3).next_multiple_of(512).min(length) as u32;
        let second = length as u32 - first;
        let segment = |offset_bytes, length_bytes| Segment { region: 0, length_bytes, offset_bytes };
        let both = [segment(0, first), segment(u64::from(first), second)];
        both.into_iter().filter(|segment| segment.length_bytes > 0).collect()
    }

    pub(crate) fn read(&mut self, offset: u64, length: usize) -> Vec<u8> {
        self.poke(0, &vec![0xee; length]);
        self.perform(Operation::Read, offset, &Self::segments(length)).unwrap();
        self.peek(0, length)
    }

    pub(crate) fn write(&mut self, offset: u64, bytes: &[u8]) {
        self.write_as(WRITE, offset, bytes).unwrap();
    }

    pub(crate) fn write_as(&mut self, operation: Operation, offset: u64, bytes: &[u8]) -> Result<(), RequestError> {
        self.poke(0, bytes);
        self.perform(operation, offset, &Self::segments(bytes.len()))
    }

    pub(crate) fn read_all(&mut self) -> Vec<u8> {
        let capacity = self.disk.geometry().capacity_bytes;
        let mut all = Vec::new();
        while (all.len() as u64) < capacity {
            let length = (capacity - all.len() as u64).min(1 << 20) as usize;
            all.extend(self.read(all.len() as u64, length));
        }
        all
    }
}
