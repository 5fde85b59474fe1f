//! Locks on images: two of us, QEMU and us, and those that a killed process leaves behind.

use blockyard_block::{Disk, Engine, FileDisk, FileOptions, MemoryMap};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

const WRITER: FileOptions = FileOptions {
    read_only: false,
    engine: Engine::Auto,
    logical_block_bytes: 512,
    cache_unsafe: false,
    direct: false,
    lock: true,
};
const READER: FileOptions = FileOptions { read_only: true, ..WRITER };

/// Another test's process has, from fork to exec, what this one has just closed, with its locks: so one test at a time.
fn alone() -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    ALONE.lock().unwrap_or_else(PoisonError::into_inner)
}

struct Image {
    directory: tempfile::TempDir,
    path: PathBuf,
}

fn image() -> Image {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("disk.img");
    std::fs::File::create(&path).unwrap().set_len(1 << 20).unwrap();
    Image { directory, path }
}

fn refusal(path: &Path, options: &FileOptions) -> String {
    FileDisk::open(path, options).expect_err("somebody else has it").to_string()
}

#[test]
fn readers_share_and_writers_do_not() {
    let _alone = alone();
    let Image { path, directory: _directory } = image();
    let name = path.display();
    let first = FileDisk::open(&path, &READER).unwrap();
    let second = FileDisk::open(&path, &READER).unwrap();
    let expected = format!("{name} is in use: this process itself has it open and lets nobody write to it");
    assert_eq!(refusal(&path, &WRITER), expected);
    drop((first, second));
    let writer = FileDisk::open(&path, &WRITER).unwrap();
    let expected = format!("{name} is in use: this process itself has it open for writing");
    assert_eq!(refusal(&path, &READER), expected);
    assert!(refusal(&path, &WRITER).contains("is in use: this process itself"));
    FileDisk::open(&path, &FileOptions { lock: false, ..WRITER }).unwrap();
    drop(writer);
    FileDisk::open(&path, &WRITER).unwrap();
}

#[test]
fn a_disk_with_open_queues_lets_go_when_all_are_dropped() {
    let _alone = alone();
    let Image { path, directory: _directory } = image();
    let memory = MemoryMap::allocate(&[(0, 65536)]).unwrap();
    for engine in [Engine::Auto, Engine::Threads, Engine::Sync] {
        for direct in [false, true] {
            let disk = FileDisk::open(&path, &FileOptions { engine, direct, ..WRITER }).unwrap();
            let queue = disk.open_queue(&memory, 8).unwrap();
            drop(disk);
            refusal(&path, &READER);
            drop(queue);
            // It waits a little for a lock that is about to go.
            FileDisk::open(&path, &WRITER).unwrap_or_else(|error| panic!("{engine:?} lets go late: {error}"));
        }
    }
}

fn run(program: &str, arguments: &[&str], path: &Path) -> Output {
    let output = Command::new(program).args(arguments).arg(path).output();
    output.unwrap_or_else(|error| panic!("{program} comes with the package qemu-utils: {error}"))
}

fn qemu_write(path: &Path) -> Output {
    run("qemu-io", &["-f", "raw", "-c", "write -P 7 0 512"], path)
}

/// qemu-io says errors on standard error and sometimes ends well all the same.
fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn qemu_is_refused_what_is_open_here() {
    let _alone = alone();
    let Image { path, directory: _directory } = image();
    let writer = FileDisk::open(&path, &WRITER).unwrap();
    assert!(text(&qemu_write(&path)).contains("Failed to get \"write\" lock"), "{}", text(&qemu_write(&path)));
    drop(writer);
    let reader = FileDisk::open(&path, &READER).unwrap();
    assert!(text(&qemu_write(&path)).contains("Failed to get \"write\" lock"));
    drop(reader);
    assert!(text(&qemu_write(&path)).contains("wrote 512/512 bytes"));
    assert_eq!(std::fs::read(&path).unwrap()[..512], [7; 512]);
}

/// Whoever reads a format does not want it written to meanwhile; of a raw image QEMU does not mind.
#[test]
fn qemus_readers_and_our_writers_exclude_each_other() {
    let _alone = alone();
    let mut image = image();
    image.path = image.directory.path().join("disk.qcow2");
    assert!(
        Command::new("qemu-img")
            .args(["create", "-q", "-f", "qcow2"])
            .arg(&image.path)
            .arg("1M")
            .status()
            .unwrap()
            .success()
    );
    let info = |options: &[&str]| run("qemu-img", &[&["info", "-f", "qcow2"], options].concat(), &image.path);
    let writer = FileDisk::open(&image.path, &WRITER).unwrap();
    assert!(text(&info(&[])).contains("Failed to get shared \"write\" lock"), "{}", text(&info(&[])));
    assert!(info(&["-U"]).status.success());
    drop(writer);
    let reader = FileDisk::open(&image.path, &READER).unwrap();
    assert!(info(&[]).status.success());
    drop(reader);
    let daemon = storage_daemon(&image, "qcow2", false);
    FileDisk::open(&image.path, &READER).unwrap();
    let refused = refusal(&image.path, &WRITER);
    assert!(
        refused.contains(&format!("process {}) has it open and lets nobody write to it", daemon.0.id())),
        "{refused}"
    );
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn storage_daemon(image: &Image, format: &str, writable: bool) -> Killed {
    let socket = image.directory.path().join("export.sock");
    let _ = std::fs::remove_file(&socket);
    let export = format!(
        "type=vhost-user-blk,id=export,node-name=disk,writable={},addr.type=unix,addr.path={}",
        if writable { "on" } else { "off" },
        socket.display()
    );
    let disk = format!(
        "driver={format},node-name=disk,read-only={},file.driver=file,file.filename={}",
        if writable { "off" } else { "on" },
        image.path.display()
    );
    let daemon = Command::new("qemu-storage-daemon")
        .args(["--blockdev", &disk, "--export", &export])
        .stderr(Stdio::piped())
        .spawn()
        .expect("qemu-storage-daemon comes with the package qemu-system-common");
    let mut daemon = Killed(daemon);
    let start = Instant::now();
    while !socket.exists() && daemon.0.try_wait().unwrap().is_none() {
        assert!(start.elapsed() < Duration::from_secs(20), "qemu-storage-daemon makes no socket");
        std::thread::sleep(Duration::from_millis(5));
    }
    daemon
}

#[test]
fn what_qemu_has_open_is_refused_here() {
    let _alone = alone();
    let image = image();
    let daemon = storage_daemon(&image, "raw", true);
    let holder = format!("is in use: qemu-storage-da (process {}) has it open", daemon.0.id());
    for options in [WRITER, READER] {
        let refused = refusal(&image.path, &options);
        assert!(refused.contains(&holder), "{refused}");
    }
    drop(daemon);
    FileDisk::open(&image.path, &WRITER).unwrap();
}

#[test]
fn qemus_daemon_does_not_serve_what_is_open_here() {
    let _alone = alone();
    let image = image();
    let _writer = FileDisk::open(&image.path, &WRITER).unwrap();
    let mut daemon = storage_daemon(&image, "raw", true);
    assert!(!daemon.0.wait().unwrap().success());
}

const HELD: &str = "BLOCKYARD_TEST_HOLD_IMAGE";

/// Not a test: what the next one kills.
#[test]
#[ignore = "run by another test"]
fn hold() {
    let Some(path) = std::env::var_os(HELD) else { return };
    let disk = FileDisk::open(Path::new(&path), &FileOptions { direct: true, ..WRITER }).unwrap();
    let memory = MemoryMap::allocate(&[(0, 1 << 20)]).unwrap();
    let _queues: Vec<_> = (0..8).map(|_| disk.open_queue(&memory, 64).unwrap()).collect();
    println!("\nheld");
    std::thread::sleep(Duration::from_secs(60));
}

/// A server that was killed is started again at once, when the kernel may still be taking down what it had.
#[test]
fn a_killed_process_gives_way_to_the_next() {
    let _alone = alone();
    let Image { path, directory: _directory } = image();
    for _ in 0..5 {
        let holder = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", "hold", "--ignored", "--nocapture"])
            .env(HELD, &path)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut holder = Killed(holder);
        let lines = BufReader::new(holder.0.stdout.take().unwrap()).lines();
        assert!(lines.map_while(Result::ok).any(|line| line == "held"));
        refusal(&path, &WRITER);
        holder.0.kill().unwrap();
        FileDisk::open(&path, &WRITER).unwrap();
    }
}
