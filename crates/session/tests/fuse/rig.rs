//! Mounts, disks that remember what they were asked, and programs that are not waited for forever.

use blockyard_block::layers::layer;
use blockyard_block::{Disk, FileDisk, FileOptions, MemoryDisk, MemoryMap, Operation, Queue, QueueError, Request};
use blockyard_session::fuse::{FuseFile, FuseOptions};
use std::fs::{File, OpenOptions};
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tempfile::TempDir;

pub(crate) const MIB: u64 = 1 << 20;

/// A mounted file in a directory of its own. Fields are dropped in this order: unmounted, then removed.
pub(crate) struct Mounted {
    pub(crate) file: FuseFile,
    pub(crate) directory: TempDir,
}

impl Mounted {
    pub(crate) fn new(disk: Arc<dyn Disk>) -> Self {
        let directory = tempfile::tempdir().expect("a directory");
        let file = FuseFile::mount(disk, &directory.path().join("disk"), &options()).expect("mounted");
        Self { file, directory }
    }

    pub(crate) fn memory(capacity_bytes: u64, block_bytes: u32) -> Self {
        Self::new(Arc::new(MemoryDisk::new(capacity_bytes, block_bytes).expect("a disk")))
    }

    /// Over a disk in a file of its own, and that file.
    pub(crate) fn on_file(capacity_bytes: u64) -> (Self, PathBuf) {
        let directory = tempfile::tempdir().expect("a directory");
        let image = directory.path().join("image");
        File::create(&image).and_then(|file| file.set_len(capacity_bytes)).expect("an image");
        let disk = FileDisk::open(&image, &FileOptions::default()).expect("a disk");
        let file = FuseFile::mount(Arc::new(disk), &directory.path().join("disk"), &options()).expect("mounted");
        (Self { file, directory }, image)
    }

    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    /// Another file beside it.
    pub(crate) fn beside(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    pub(crate) fn open(&self, flags: i32) -> File {
        self.try_open(flags).expect("open")
    }

    pub(crate) fn try_open(&self, flags: i32) -> io::Result<File> {
        OpenOptions::new().read(true).write(true).custom_flags(flags).open(self.path())
    }
}

/// More threads than most machines would take by themselves, so that they get in each other's way.
pub(crate) fn options() -> FuseOptions {
    FuseOptions { threads: 3, ..FuseOptions::default() }
}

/// Runs `program` with words as arguments; a `{}` among them is `path`. It must succeed within a minute.
pub(crate) fn run(package: &str, program: &str, words: &str, path: &Path) -> String {
    let output = try_run(package, program, words, path);
    let said = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{program} {words}: {}: {said}", output.status);
    said
}

/// As [`run`], but it may fail.
pub(crate) fn try_run(package: &str, program: &str, words: &str, path: &Path) -> Output {
    let path = path.to_str().expect("a plain path");
    let words = words.split_whitespace().map(|word| word.replace("{}", path));
    Command::new("timeout")
        .args(["--kill-after=5", "60", program])
        .args(words)
        .env("PATH", "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin")
        .stdin(Stdio::null())
        .output()
        .map_err(|error| format!("{program} (package {package}): {error}"))
        .and_then(|output| match output.status.code() {
            Some(127) => Err(format!("{program} is missing: install the package {package}")),
            Some(124 | 137) => Err(format!("{program} hangs")),
            _ => Ok(output),
        })
        .expect("it runs")
}

/// Bytes that look like nothing else, the same in every run.
pub(crate) fn pattern(seed: u64, length: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(length).collect()
}

/// Waits until `done`, but not for ever.
pub(crate) fn eventually(what: &str, mut done: impl FnMut() -> bool) {
    for _ in 0..1000 {
        if done() {
            return;
        }
        std::thread::sleep(Duration::from_millis(10));
    }
    panic!("{what}: not within ten seconds");
}

/// What a [`RecordingDisk`] was asked.
#[derive(Default)]
pub(crate) struct Record {
    pub(crate) operations: Mutex<Vec<Operation>>,
    pub(crate) in_flight_max: AtomicUsize,
}

impl Record {
    pub(crate) fn count(&self, wanted: impl Fn(&Operation) -> bool) -> usize {
        self.operations.lock().expect("not poisoned").iter().filter(|operation| wanted(operation)).count()
    }

    pub(crate) fn flushes(&self) -> usize {
        self.count(|operation| *operation == Operation::Flush)
    }
}

/// A disk that remembers what was asked of the one inside it.
pub(crate) struct RecordingDisk<D> {
    disk: D,
    record: Arc<Record>,
    read_pause: Option<Duration>,
    flush_breaks: bool,
}

impl<D: Disk> RecordingDisk<D> {
    pub(crate) fn new(disk: D) -> (Arc<Self>, Arc<Record>) {
        let record = Arc::new(Record::default());
        (Arc::new(Self { disk, record: Arc::clone(&record), read_pause: None, flush_breaks: false }), record)
    }

    /// With a pause after each read: whoever reads a block to change a part of it takes long to write it back.
    pub(crate) fn with_slow_reads(disk: D) -> Arc<Self> {
        Arc::new(Self {
            disk,
            record: Arc::default(),
            read_pause: Some(Duration::from_micros(300)),
            flush_breaks: false,
        })
    }

    /// Whose backend breaks, as a whole, when a flush is asked of it.
    pub(crate) fn that_breaks_at_a_flush(disk: D) -> Arc<Self> {
        Arc::new(Self { disk, record: Arc::default(), read_pause: None, flush_breaks: true })
    }
}

impl<D: Disk> layer::DiskLayer for RecordingDisk<D> {
    fn below(&self) -> &dyn Disk {
        &self.disk
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        let queue = self.disk.open_queue(memory, depth)?;
        Ok(Box::new(RecordingQueue {
            queue,
            record: Arc::clone(&self.record),
            read_pause: self.read_pause,
            flush_breaks: self.flush_breaks,
            broken: false,
            reading: false,
        }))
    }
}

struct RecordingQueue {
    queue: Box<dyn Queue>,
    record: Arc<Record>,
    read_pause: Option<Duration>,
    flush_breaks: bool,
    broken: bool,
    /// A read was pushed since the last submit.
    reading: bool,
}

impl layer::QueueLayer for RecordingQueue {
    fn below(&self) -> &dyn Queue {
        &*self.queue
    }

    fn below_mut(&mut self) -> &mut dyn Queue {
        &mut *self.queue
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        self.queue.push(request)?;
        self.broken |= self.flush_breaks && request.operation == Operation::Flush;
        self.reading |= request.operation == Operation::Read;
        self.record.operations.lock().expect("not poisoned").push(request.operation);
        self.record.in_flight_max.fetch_max(self.queue.in_flight(), Ordering::Relaxed);
        Ok(())
    }

    fn submit(&mut self) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("broken"));
        }
        self.queue.submit()?;
        let reading = std::mem::take(&mut self.reading);
        self.read_pause.filter(|_| reading).into_iter().for_each(std::thread::sleep);
        Ok(())
    }
}
