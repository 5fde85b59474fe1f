//! Power cuts under ext4: a Linux guest writes and syncs files on a served disk, every write and flush is recorded, and at more
//! than 500 moments the power fails. Whatever subset of the unflushed blocks survives, the journal repairs the file system and
//! every file that was synced by then is whole. A server that answers flushes without doing them is caught.

use blockyard_block::layers::{Recording, Replay, WriteLogDisk};
use blockyard_block::{
    Completion, Disk, Extent, FileDisk, FileOptions, Geometry, MemoryMap, Operation, Queue, QueueError, Request,
};
use blockyard_linux_guest::{Guest, UserModeLinux, write_initramfs};
use blockyard_session::server::{Export, Server, ServerOptions};
use std::fs::{self, File};
use std::io;
use std::num::NonZeroU32;
use std::ops::Range;
use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

const IMAGE_BYTES: u64 = 24 << 20;
const FILES: usize = 60;
const CUTS: usize = 512;
const TIMEOUT: Duration = Duration::from_secs(60);

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
    base: PathBuf,
    recording: Recording,
    synced: Vec<usize>,
}

fn record(directory: &Path, between: impl FnOnce(Arc<dyn Disk>) -> Arc<dyn Disk>) -> Run {
    let (image, base) = (directory.join("disk.img"), directory.join("base.img"));
    File::create(&image).unwrap().set_len(IMAGE_BYTES).unwrap();
    let options = ["-q", "-F", "-J", "size=4", "-E", "lazy_itable_init=0"];
    succeed(Command::new("mkfs.ext4").args(options).arg(&image).output().unwrap());
    fs::copy(&image, &base).unwrap();
    let log = WriteLogDisk::new(Arc::new(FileDisk::open(&image, &FileOptions::default()).unwrap()));
    let events = Arc::clone(log.log());
    let disk = between(Arc::new(log));

    let socket = directory.join("disk.sock");
    let listener = UnixListener::bind(&socket).unwrap();
    let mut guest = boot(directory, &socket);
    let (stream, _) = listener.accept().unwrap();
    let server = Server::start(&ServerOptions { threads: 1, cpus: Vec::new(), poll: Duration::ZERO }).unwrap();
    let export = Export { name: "disk".into(), disk, queues: 1, weight: NonZeroU32::MIN };
    let _session = server.attach(stream, export).unwrap();
    let mut synced = Vec::new();
    for file in 1..=FILES {
        guest.wait_for(&format!("SYNCED {file}")).unwrap();
        synced.push(events.event_count());
    }
    guest.wait_for("DONE").unwrap();
    Run { base, recording: events.recording(512), synced }
}

fn boot(directory: &Path, socket: &Path) -> Guest {
    let linux = UserModeLinux::find().unwrap();
    let module = fs::read(linux.module("drivers/block/virtio_blk.ko")).unwrap();
    let initramfs = directory.join("initramfs.cpio");
    write_initramfs(&initramfs, &[("virtio_blk.ko", &module)], SCRIPT).unwrap();
    let mut command = linux.command(128, &initramfs);
    command.arg(UserModeLinux::disk(socket)).env("TMPDIR", directory);
    Guest::start(command, TIMEOUT).unwrap()
}

fn succeed(output: Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// What is wrong with the file system on `image` after a cut behind `events` events; `None` when nothing is.
fn verdict(run: &Run, image: &Path, events: usize) -> Option<String> {
    let fsck = |arguments: &[&str]| Command::new("e2fsck").args(arguments).arg(image).output().unwrap();
    fsck(&["-y", "-E", "journal_only"]);
    let check = fsck(&["-f", "-n"]);
    if !check.status.success() {
        return Some(format!("e2fsck: {}", String::from_utf8_lossy(&check.stdout)));
    }
    let files = run.synced.iter().take_while(|&&synced| synced <= events).count();
    let out = image.with_extension("files");
    fs::create_dir_all(&out).unwrap();
    let requests = image.with_extension("requests");
    let dumps: String = (1..=files).map(|file| format!("dump /f{file} {}/f{file}\n", out.display())).collect();
    fs::write(&requests, dumps).unwrap();
    succeed(Command::new("debugfs").arg("-f").arg(&requests).arg(image).output().unwrap());
    let damaged = (1..=files)
        .find(|file| fs::read_to_string(out.join(format!("f{file}"))).ok().as_ref() != Some(&content(*file)));
    fs::remove_dir_all(&out).unwrap();
    damaged.map(|file| format!("file {file} of {files} that were synced is not whole"))
}

/// The first thing wrong after any of the cuts `first, first + 2, …`.
fn replay(run: &Run, directory: &Path, first: usize) -> Option<String> {
    let image = directory.join(format!("replay{first}.img"));
    fs::copy(&run.base, &image).unwrap();
    let open = |path: &Path| File::options().read(true).write(true).open(path).unwrap();
    let mut replay = Replay::new(&run.recording, open(&image));
    let checked = directory.join(format!("checked{first}.img"));
    (first..CUTS).step_by(2).find_map(|cut| {
        let events = run.recording.event_count() * (cut + 1) / CUTS;
        replay.cut(events, cut as u64).unwrap();
        fs::copy(&image, &checked).unwrap();
        verdict(run, &checked, events).map(|wrong| format!("cut {cut}, behind {events} events: {wrong}"))
    })
}

/// On both processors at once.
fn first_loss(run: &Run, directory: &Path) -> Option<String> {
    thread::scope(|scope| {
        let halves = [0, 1].map(|first| scope.spawn(move || replay(run, directory, first)));
        halves.map(|half| half.join().unwrap()).into_iter().flatten().next()
    })
}

#[test]
fn ext4_keeps_what_it_synced_at_every_power_cut() {
    let directory = tempfile::tempdir().unwrap();
    let run = record(directory.path(), |disk| disk);
    assert!(run.recording.event_count() > CUTS, "{} events are too few to cut at", run.recording.event_count());
    assert_eq!(first_loss(&run, directory.path()), None);
}

#[test]
fn a_server_that_skips_flushes_is_caught() {
    let directory = tempfile::tempdir().unwrap();
    let run = record(directory.path(), |disk| Arc::new(Flushless(disk)));
    assert!(first_loss(&run, directory.path()).is_some());
}

/// The mutant: says that it flushed, and did not.
struct Flushless(Arc<dyn Disk>);

struct FlushlessQueue {
    queue: Box<dyn Queue>,
    answered: Vec<Completion>,
}

impl Disk for Flushless {
    fn geometry(&self) -> Geometry {
        self.0.geometry()
    }

    fn extents(&self, range: Range<u64>) -> io::Result<Extent> {
        self.0.extents(range)
    }

    fn open_queue(&self, memory: &MemoryMap, depth: usize) -> io::Result<Box<dyn Queue>> {
        Ok(Box::new(FlushlessQueue { queue: self.0.open_queue(memory, depth)?, answered: Vec::new() }))
    }
}

impl Queue for FlushlessQueue {
    fn depth(&self) -> usize {
        self.queue.depth()
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

    fn submit(&mut self) -> io::Result<()> {
        self.queue.submit()
    }

    fn reap(&mut self, completions: &mut Vec<Completion>) {
        completions.append(&mut self.answered);
        self.queue.reap(completions);
    }

    fn completion_event(&self) -> Option<BorrowedFd<'_>> {
        self.queue.completion_event()
    }

    fn wait(&mut self, events: &[BorrowedFd<'_>], timeout: Option<Duration>) -> io::Result<()> {
        if self.answered.is_empty() { self.queue.wait(events, timeout) } else { Ok(()) }
    }
}
