//! A disk with a queue, and QEMU's tools.

use crate::shared;
pub(crate) use crate::shared::random::{Random, pattern};
pub(crate) use crate::shared::{MEMORY_BYTES, WRITE};
use blockyard_block::{AllowedDirectories, Disk, Engine, FileOptions, Operation, Qcow2Disk, RequestError, Segment};
use std::ops::{Deref, DerefMut};
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

/// The shared rig, whose transfers are whole or must work.
pub(crate) struct Rig(shared::Rig);

impl Deref for Rig {
    type Target = shared::Rig;

    fn deref(&self) -> &shared::Rig {
        &self.0
    }
}

impl DerefMut for Rig {
    fn deref_mut(&mut self) -> &mut shared::Rig {
        &mut self.0
    }
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

impl Rig {
    pub(crate) fn new(disk: impl Disk + 'static) -> Self {
        Self::shared(Arc::new(disk), 32)
    }

    pub(crate) fn shared(disk: Arc<dyn Disk>, depth: usize) -> Self {
        Self(shared::Rig::on(disk, depth))
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
