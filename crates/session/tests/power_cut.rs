//! Power cuts under ext4: a Linux guest writes and syncs files on a served disk, every write and flush is recorded, and
//! at more than 500 moments the power fails. Whatever subset of the unflushed blocks survives, the journal repairs the
//! file system and every file that was synced by then is whole. A server that answers flushes without doing them is
//! caught.

use blockyard_block::layers::{Recording, Replay, WriteLogDisk, layer};
use blockyard_block::{Completion, Disk, FileDisk, FileOptions, MemoryMap, Operation, Queue, QueueError, Request};
use blockyard_linux_guest::UserModeLinux;
use blockyard_session::server::{Export, Server, ServerOptions};
use rustix::fs::{MemfdFlags, memfd_create};
use std::fs::{self, File};
use std::io;
use std::num::NonZeroU32;
use std::os::fd::{AsRawFd, BorrowedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::net::UnixListener;
use std::path::Path;
use std::process::{Command, Output};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const IMAGE_BYTES: u64 = 24 << 20;
const FILES: usize = 60;
const CUTS: usize = 512;
const TIMEOUT: Duration = Duration::from_secs(180);

/// Writes and syncs one file after another, removes some, and says which are on stable storage.
const SCRIPT: &str = "\
mount -t ext4 /dev/vda /mnt
n=1
while [ $n -le 60 ]; do
  seq $n $((n + 3000)) | dd of=/mnt/f$n bs=4k conv=fsync 2>/dev/null
  echo SYNCED $n
  seq 1 500 > /mnt/unsynced$n
  [ $n -gt 2 ] && rm /mnt/unsynced$((n - 2))
  n=$((n + 1))
done
echo DONE
";

fn content(file: usize) -> String {
    (file..=file + 3000).map(|number| format!("{number}\n")).collect()
}

/// What a guest did: the disk before, what was recorded, and after how many events each file was known to be synced.
struct Run {
    base: Vec<u8>,
    recording: Recording,
    synced: Vec<usize>,
}

fn record(directory: &Path, between: impl FnOnce(Arc<dyn Disk>) -> Arc<dyn Disk>) -> Run {
    let image = directory.join("disk.img");
    File::create(&image).unwrap().set_len(IMAGE_BYTES).unwrap();
    let options = ["-q", "-F", "-J", "size=4", "-E", "lazy_itable_init=0"];
    succeed(Command::new("mkfs.ext4").args(options).arg(&image).output().unwrap());
    let base = fs::read(&image).unwrap();
    let log = WriteLogDisk::new(Arc::new(FileDisk::open(&image, &FileOptions::default()).unwrap()));
    let events = Arc::clone(log.log());
    let disk = between(Arc::new(log));

    let socket = directory.join("disk.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let mut guest = UserModeLinux::find().unwrap().boot(128, directory, &socket, SCRIPT, TIMEOUT).unwrap();
    let (stream, _) = listener.accept().unwrap();
    let server = Server::start(&ServerOptions { poll: Duration::ZERO, ..ServerOptions::default() }).unwrap();
    let export = Export { name: "disk".into(), disk, queues: 1, weight: NonZeroU32::MIN, is_alone: false };
    let _session = server.attach(stream, export).unwrap();
    let mut synced = Vec::new();
    for file in 1..=FILES {
        guest.wait_for(&format!("SYNCED {file}")).unwrap();
        synced.push(events.event_count());
    }
    guest.wait_for("DONE").unwrap();
    Run { base, recording: events.recording(512), synced }
}

fn succeed(output: Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// An image in memory that programs know by a name. A file on a disk would be synced by e2fsck each time, which took
/// most of the time of this test.
struct NamedMemory(File);

impl NamedMemory {
    fn new() -> Self {
        Self(File::from(memfd_create("power-cut", MemfdFlags::CLOEXEC).unwrap()))
    }

    fn path(&self) -> String {
        format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd())
    }

    /// Holds `bytes` and nothing else; where those are zeros, holes.
    fn fill(&self, bytes: &[u8]) {
        self.0.set_len(0).unwrap();
        self.0.set_len(bytes.len() as u64).unwrap();
        for (index, chunk) in bytes.chunks(CHUNK_BYTES).enumerate().filter(|(_, chunk)| **chunk != ZEROS[..chunk.len()])
        {
            self.0.write_all_at(chunk, (index * CHUNK_BYTES) as u64).unwrap();
        }
    }
}

const CHUNK_BYTES: usize = 64 << 10;
static ZEROS: [u8; CHUNK_BYTES] = [0; CHUNK_BYTES];

/// What debugfs prints when it is told to print the files, and where each of them ends in it.
struct Printed {
    text: String,
    ends: Vec<usize>,
}

impl Printed {
    fn new() -> Self {
        let mut printed = Self { text: String::new(), ends: vec![0] };
        for file in 1..=FILES {
            printed.text += &format!("debugfs: cat /f{file}\n{}", content(file));
            printed.ends.push(printed.text.len());
        }
        printed
    }

    /// The first of so many files that is not whole.
    fn first_damaged(&self, output: &[u8], files: usize) -> Option<usize> {
        let whole = |file: &usize| output.get(..self.ends[*file]) == Some(&self.text.as_bytes()[..self.ends[*file]]);
        (1..=files).find(|file| !whole(file))
    }
}

/// What is wrong with the file system on `image` after a cut behind `events` events; `None` when nothing is.
fn verdict(run: &Run, image: &NamedMemory, printed: &Printed, events: usize) -> Option<String> {
    let fsck = |arguments: &[&str]| Command::new("e2fsck").args(arguments).arg(image.path()).output().unwrap();
    fsck(&["-y", "-E", "journal_only"]);
    let check = fsck(&["-f", "-n"]);
    if !check.status.success() {
        return Some(format!("e2fsck: {}", String::from_utf8_lossy(&check.stdout)));
    }
    let files = run.synced.iter().take_while(|&&synced| synced <= events).count();
    let requests = NamedMemory::new();
    requests.fill((1..=files).map(|file| format!("cat /f{file}\n")).collect::<String>().as_bytes());
    let debugfs = Command::new("debugfs").args(["-f", &requests.path(), &image.path()]).output().unwrap();
    assert!(debugfs.status.success(), "{}", String::from_utf8_lossy(&debugfs.stderr));
    let damaged = printed.first_damaged(&debugfs.stdout, files);
    damaged.map(|file| format!("file {file} of {files} that were synced is not whole"))
}

/// The first thing wrong after any of the cuts `first, first + 2, …`.
fn replay(run: &Run, first: usize) -> Option<String> {
    let mut replay = Replay::new(&run.recording, run.base.clone());
    let (image, printed) = (NamedMemory::new(), Printed::new());
    (first..CUTS).step_by(2).find_map(|cut| {
        let events = run.recording.event_count() * (cut + 1) / CUTS;
        image.fill(replay.cut(events, cut as u64).unwrap());
        verdict(run, &image, &printed, events).map(|wrong| format!("cut {cut}, behind {events} events: {wrong}"))
    })
}

/// On both processors at once.
fn first_loss(run: &Run) -> Option<String> {
    thread::scope(|scope| {
        let halves = [0, 1].map(|first| scope.spawn(move || replay(run, first)));
        halves.map(|half| half.join().unwrap()).into_iter().flatten().next()
    })
}

#[test]
fn ext4_keeps_what_it_synced_at_every_power_cut() {
    let directory = tempfile::tempdir().unwrap();
    let run = record(directory.path(), |disk| disk);
    assert!(run.recording.event_count() > CUTS, "{} events are too few to cut at", run.recording.event_count());
    assert_eq!(first_loss(&run), None);
}

#[test]
fn a_server_that_skips_flushes_is_caught() {
    let directory = tempfile::tempdir().unwrap();
    let run = record(directory.path(), |disk| Arc::new(Flushless(disk)));
    assert!(first_loss(&run).is_some());
}

/// The mutant: says that it flushed, and did not.
struct Flushless(Arc<dyn Disk>);

struct FlushlessQueue {
    queue: Box<dyn Queue>,
    answered: Vec<Completion>,
}

impl layer::DiskLayer for Flushless {
    fn below(&self) -> &dyn Disk {
        &*self.0
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(FlushlessQueue { queue: self.0.open_queue(memory, depth)?, answered: Vec::new() }))
    }
}

impl layer::QueueLayer for FlushlessQueue {
    fn below(&self) -> &dyn Queue {
        &*self.queue
    }

    fn below_mut(&mut self) -> &mut dyn Queue {
        &mut *self.queue
    }

    fn in_flight(&self) -> usize {
        self.queue.in_flight() + self.answered.len()
    }

    fn push(&mut self, request: &Request<'_>) -> Result<(), QueueError> {
        let operation = match request.operation {
            Operation::Flush => {
                self.answered.push(Completion { token: request.token, result: Ok(()) });
                return Ok(());
            }
            Operation::Write { .. } => Operation::Write { force_unit_access: false },
            other => other,
        };
        self.queue.push(&Request { operation, ..*request })
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.answered);
        self.queue.reap(completions);
    }

    fn wait(&mut self, events: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        if self.answered.is_empty() { self.queue.wait(events, timeout) } else { Ok(()) }
    }
}
