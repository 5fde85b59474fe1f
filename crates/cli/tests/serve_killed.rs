//! `kill -9` of each process of a served disk under load: who survives, and that nothing is lost.

#[allow(dead_code, reason = "this test needs only a part of it")]
#[path = "../../session/tests/client/rig.rs"]
mod rig;
#[allow(dead_code, reason = "this test needs only a part of it")]
#[path = "../../session/tests/client/server.rs"]
mod server;
#[path = "../../session/tests/client/verify.rs"]
mod verify;

use blockyard_block::Disk;
use blockyard_session::client::{SessionDisk, SessionOptions};
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

const BLOCKYARD: &str = env!("CARGO_BIN_EXE_blockyard");
const PATIENCE: Duration = Duration::from_secs(30);

/// Our own, on a file.
struct Blockyard;

impl server::Server for Blockyard {
    fn command(&self, image: &Path, socket: &Path, queues: u16) -> Command {
        let mut command = Command::new(BLOCKYARD);
        command.arg("serve").arg(image).arg("--socket").arg(socket).args(["--queues", &queues.to_string()]);
        command.stderr(Stdio::null());
        command
    }
}

#[test]
fn every_request_survives_two_hundred_killed_servers() {
    // Of four disks at the same time: a client mostly waits for its server.
    thread::scope(|scope| {
        for restarts in [47, 49, 51, 53] {
            scope.spawn(move || verify::survive_restarts(&Blockyard, 2, 2, restarts, None));
        }
    });
}

#[test]
fn copied_requests_survive_killed_servers_too() {
    verify::survive_restarts(&Blockyard, 1, 1, 30, Some(128 << 10));
}

/// Two partitions of a disk, each on a socket, and what serves them.
struct Partitions {
    directory: tempfile::TempDir,
    serve: Child,
}

const PARTITION_BYTES: u64 = 8 << 20;
/// Where partition 2 starts: sfdisk leaves the first MiB free.
const SECOND_BYTES: u64 = (1 << 20) + PARTITION_BYTES;

impl Partitions {
    fn start(copying: bool) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let image = directory.path().join("disk.img");
        File::create(&image).unwrap().set_len(32 << 20).unwrap();
        let mut sfdisk = Command::new("sfdisk").arg("--quiet").arg(&image).stdin(Stdio::piped()).spawn().unwrap();
        let script = format!("label: gpt\nsize={0}\nsize={0}\n", PARTITION_BYTES / 512);
        sfdisk.stdin.take().unwrap().write_all(script.as_bytes()).unwrap();
        assert!(sfdisk.wait().unwrap().success());
        let serve = Self::serve(directory.path(), copying);
        let partitions = Self { directory, serve };
        drop(partitions.connect(1));
        partitions
    }

    fn serve(directory: &Path, copying: bool) -> Child {
        let mut command = Command::new(BLOCKYARD);
        command.arg("serve").arg(directory.join("disk.img"));
        for number in [1, 2] {
            command.arg("--partition").arg(format!("{number}={},rw", Self::socket_in(directory, number).display()));
        }
        command.args(copying.then_some("--copying")).stderr(Stdio::null()).spawn().unwrap()
    }

    fn socket_in(directory: &Path, number: u32) -> PathBuf {
        directory.join(format!("p{number}.sock"))
    }

    fn socket(&self, number: u32) -> PathBuf {
        Self::socket_in(self.directory.path(), number)
    }

    /// A session with a partition, as soon as it is to be had.
    fn connect(&self, number: u32) -> SessionDisk {
        let options = SessionOptions { reconnect: PATIENCE, ..SessionOptions::default() };
        let start = Instant::now();
        loop {
            match SessionDisk::connect(&self.socket(number), &options) {
                Ok(disk) => return disk,
                Err(error) => assert!(start.elapsed() < PATIENCE, "{error}"),
            }
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// The process at the door: the child of the one that serves which was executed, and not only split off.
    fn door(&self) -> Pid {
        let children = format!("/proc/{0}/task/{0}/children", self.serve.id());
        let children = fs::read_to_string(children).unwrap();
        let is_door = |child: &&str| {
            let command_line = fs::read_to_string(format!("/proc/{child}/cmdline")).unwrap_or_default();
            command_line.contains("serve-partitions")
        };
        Pid::from_raw(children.split_whitespace().find(is_door).unwrap().parse().unwrap()).unwrap()
    }
}

impl Drop for Partitions {
    fn drop(&mut self) {
        let _ = self.serve.kill();
        let _ = self.serve.wait();
    }
}

/// Runs a verifying writer on `disk` while `meanwhile` does its worst; it is given a wait for more requests to
/// complete.
fn under_load(disk: &SessionDisk, meanwhile: impl FnOnce(&dyn Fn(u64))) {
    let (stop, done) = (AtomicBool::new(false), AtomicU64::new(0));
    let length = disk.geometry().capacity_bytes as usize;
    /// Also when a test fails: its thread waits for the writer.
    struct StopWhenDropped<'a>(&'a AtomicBool);
    impl Drop for StopWhenDropped<'_> {
        fn drop(&mut self) {
            self.0.store(true, Ordering::Relaxed);
        }
    }
    thread::scope(|scope| {
        let writer = scope.spawn(|| verify::verify(disk, 0, length, &stop, &done));
        let stop = StopWhenDropped(&stop);
        let more = |count: u64| {
            let wanted = done.load(Ordering::Relaxed) + count;
            let start = Instant::now();
            while done.load(Ordering::Relaxed) < wanted && !writer.is_finished() {
                assert!(start.elapsed() < PATIENCE, "no request completes any more");
                thread::sleep(Duration::from_millis(1));
            }
        };
        more(100);
        meanwhile(&more);
        drop(stop);
        writer.join().unwrap();
    });
}

/// `blockyard bench disk`, which writes to partition 2 until it is killed. It is turned away as long as the driver has
/// not seen that the last client is gone.
fn writing_client(partitions: &Partitions) -> Child {
    let image = File::options().read(true).write(true).open(partitions.directory.path().join("disk.img")).unwrap();
    let mut command = Command::new(BLOCKYARD);
    command.args(["bench", "disk", "--write", "--force", "--random", "--batch", "16", "--runtime", "600"]);
    command.arg(format!("session:{}", partitions.socket(2).display())).stdout(Stdio::null()).stderr(Stdio::null());
    let start = Instant::now();
    let mut bytes = vec![0; PARTITION_BYTES as usize];
    loop {
        image.write_all_at(&vec![0; bytes.len()], SECOND_BYTES).unwrap();
        let mut client = command.spawn().unwrap();
        while client.try_wait().unwrap().is_none() {
            image.read_exact_at(&mut bytes, SECOND_BYTES).unwrap();
            if bytes.iter().any(|&byte| byte != 0) {
                return client;
            }
            thread::sleep(Duration::from_millis(1));
        }
        assert!(start.elapsed() < PATIENCE, "a client that is killed keeps its place");
    }
}

#[test]
fn clients_do_not_notice_that_the_mediator_is_killed() {
    let partitions = Partitions::start(false);
    let disk = partitions.connect(1);
    under_load(&disk, |more| {
        kill_process(partitions.door(), Signal::KILL).unwrap();
        more(500);
    });
    // It ends before its parent hears of it, if not at once.
    let start = Instant::now();
    while SessionDisk::connect(&partitions.socket(2), &SessionOptions::default()).is_ok() {
        assert!(start.elapsed() < PATIENCE, "there is nobody to let new clients in");
    }
}

#[test]
fn a_client_does_not_notice_that_another_is_killed_and_a_third_takes_its_place() {
    let partitions = Partitions::start(false);
    let disk = partitions.connect(1);
    under_load(&disk, |more| {
        for _ in 0..5 {
            let mut other = writing_client(&partitions);
            more(200);
            assert_eq!(other.try_wait().unwrap(), None, "it has ended by itself");
            other.kill().unwrap();
            other.wait().unwrap();
        }
        more(200);
    });
    drop(partitions.connect(2));
}

#[test]
fn clients_of_a_killed_driver_go_on_with_the_next_one() {
    let mut partitions = Partitions::start(false);
    let disk = partitions.connect(1);
    let directory = partitions.directory.path().to_owned();
    under_load(&disk, |more| {
        for _ in 0..3 {
            partitions.serve.kill().unwrap();
            partitions.serve.wait().unwrap();
            partitions.serve = Partitions::serve(&directory, false);
            more(200);
        }
    });
}

#[test]
fn a_copier_whose_driver_is_killed_ends_too() {
    let mut partitions = Partitions::start(true);
    let copier = partitions.door();
    partitions.serve.kill().unwrap();
    partitions.serve.wait().unwrap();
    let start = Instant::now();
    // A process that has ended and that nobody has waited for has no command line any more.
    let command_line = format!("/proc/{}/cmdline", copier.as_raw_nonzero());
    while fs::read(&command_line).is_ok_and(|line| !line.is_empty()) {
        assert!(start.elapsed() < PATIENCE, "the copier goes on without a disk");
        thread::sleep(Duration::from_millis(10));
    }
}

#[test]
fn a_killed_copier_ends_its_driver_and_clients_go_on_with_the_next_pair() {
    let mut partitions = Partitions::start(true);
    let disk = partitions.connect(1);
    let directory = partitions.directory.path().to_owned();
    under_load(&disk, |more| {
        kill_process(partitions.door(), Signal::KILL).unwrap();
        let status = partitions.serve.wait().unwrap();
        assert_eq!(status.code(), Some(1), "the driver ends, and says so");
        partitions.serve = Partitions::serve(&directory, true);
        more(200);
    });
}
