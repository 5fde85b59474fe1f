//! What the tests of whole commands share: files with known contents, a way to run `blockyard`, and what must be left
//! behind (nothing).
#![allow(dead_code, reason = "each test binary uses its part")]
#![allow(unreachable_pub, reason = "tests have no public interface")]

pub mod root;

use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};
use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// Longest that any one command of a test may take. A lab on a busy machine takes its time.
const PATIENCE: Duration = Duration::from_secs(300);

/// A directory of a test's own.
pub struct Yard {
    directory: TempDir,
}

impl Yard {
    pub fn new() -> Self {
        Self { directory: tempfile::tempdir().unwrap() }
    }

    /// In memory, where there is some.
    pub fn in_memory() -> Self {
        Self { directory: blockyard_fuzz::memory_directory().unwrap() }
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.path().join(name)
    }

    /// A file of bytes that do not repeat.
    pub fn random(&self, name: &str, length: u64, seed: u64) -> PathBuf {
        let path = self.path(name);
        fs::write(&path, random_bytes(length as usize, seed)).unwrap();
        path
    }

    /// A file of `length` with data only where `pieces` says (offset, length).
    pub fn sparse(&self, name: &str, length: u64, pieces: &[(u64, u64)], seed: u64) -> PathBuf {
        let path = self.path(name);
        let file = File::create(&path).unwrap();
        file.set_len(length).unwrap();
        for (index, &(offset, piece)) in pieces.iter().enumerate() {
            file.write_all_at(&random_bytes(piece as usize, seed + index as u64), offset).unwrap();
        }
        path
    }

    /// Names of everything in the directory.
    pub fn names(&self) -> BTreeSet<String> {
        let entries = fs::read_dir(self.directory.path()).unwrap();
        entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect()
    }
}

pub fn random_bytes(length: usize, seed: u64) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut bytes = Vec::with_capacity(length + 8);
    while bytes.len() < length {
        state ^= state >> 12;
        state ^= state << 25;
        state ^= state >> 27;
        bytes.extend(state.wrapping_mul(0x2545_f491_4f6c_dd1d).to_le_bytes());
    }
    bytes.truncate(length);
    bytes
}

pub fn same(left: &Path, right: &Path) -> bool {
    fs::read(left).unwrap() == fs::read(right).unwrap()
}

/// Bytes of storage behind a file.
pub fn allocated_bytes(path: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    path.metadata().unwrap().blocks() * 512
}

/// The hypervisors to test on: real KVM in the lab, `user` everywhere else.
pub fn backend() -> &'static str {
    if std::env::var_os("BLOCKYARD_TEST_KVM").is_some() { "kvm" } else { "user" }
}

/// How often to repeat what is repeated for variety: less in the lab, whose machine is emulated.
pub fn rounds(count: u64) -> u64 {
    if backend() == "kvm" { count.div_ceil(10) } else { count }
}

pub fn blockyard() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_blockyard"));
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// `blockyard copy` on the backend under test.
pub fn copy_command<S: AsRef<OsStr>>(arguments: impl IntoIterator<Item = S>) -> Command {
    let mut command = blockyard();
    command.args(["copy", "--backend", backend()]).args(arguments);
    command
}

/// What a command left: its exit code and its texts.
#[derive(Debug)]
pub struct Outcome {
    pub code: Option<i32>,
    pub stdout: String,
    pub stderr: String,
}

impl From<Output> for Outcome {
    fn from(output: Output) -> Self {
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        Self { code: output.status.code(), stdout: text(output.stdout), stderr: text(output.stderr) }
    }
}

impl Outcome {
    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:#?}");
        self
    }

    /// It failed with `code` and one sentence that contains `words`.
    #[track_caller]
    pub fn failed(self, code: i32, words: &[&str]) -> Self {
        assert_eq!(self.code, Some(code), "{self:#?}");
        for word in words {
            assert!(self.stderr.contains(word), "no '{word}' in {self:#?}");
        }
        assert!(!self.stderr.contains("thread '"), "it panicked: {self:#?}");
        self
    }

    pub fn json(&self) -> serde_json::Value {
        serde_json::from_str(&self.stdout).unwrap()
    }
}

/// Both ends of a new terminal: that of who sits there, and that of programs.
pub fn terminal() -> (File, File) {
    let ours = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC).unwrap();
    grantpt(&ours).unwrap();
    unlockpt(&ours).unwrap();
    let name = ptsname(&ours, Vec::new()).unwrap();
    (ours.into(), File::options().read(true).write(true).open(name.to_str().unwrap()).unwrap())
}

/// Runs a command to its end; one that takes too long is killed and fails the test.
#[track_caller]
pub fn run(command: &mut Command) -> Outcome {
    finish(command.spawn().unwrap())
}

#[track_caller]
pub fn finish(child: Child) -> Outcome {
    finish_while(child, |_| ())
}

/// Runs a command to its end, and sees that every process it started has ended too.
#[track_caller]
pub fn run_without_leftovers(command: &mut Command) -> Outcome {
    let mut started = Vec::new();
    let outcome = finish_while(command.spawn().unwrap(), |pid| started.extend(children(pid)));
    wait_until("the end of what it started", || !started.iter().any(|&pid| is_alive(pid)));
    outcome
}

/// Calls `look` with the command's process again and again until it ends.
#[track_caller]
fn finish_while(mut child: Child, mut look: impl FnMut(u32)) -> Outcome {
    let started = Instant::now();
    let pid = child.id();
    // Nobody waits for room in a pipe.
    let (stdout, stderr) = (read_aside(child.stdout.take()), read_aside(child.stderr.take()));
    let texts = || [stdout, stderr].map(|text| text.join().unwrap());
    let status = loop {
        match child.try_wait().unwrap() {
            Some(status) => break status,
            None if started.elapsed() > PATIENCE => {
                let _ = child.kill();
                panic!("it takes too long: {:?} {:#?}", child.wait().unwrap(), texts());
            }
            None => look(pid),
        }
        std::thread::sleep(Duration::from_millis(2));
    };
    let [stdout, stderr] = texts();
    Outcome { code: status.code(), stdout, stderr }
}

/// What comes out of a pipe until its end.
fn read_aside(pipe: Option<impl Read + Send + 'static>) -> JoinHandle<String> {
    std::thread::spawn(|| {
        let mut text = String::new();
        pipe.map(|mut pipe| pipe.read_to_string(&mut text)).transpose().unwrap();
        text
    })
}

/// Processes whose parent is `pid`.
pub fn children(pid: u32) -> Vec<u32> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).map(|entries| entries.flatten().collect::<Vec<_>>());
    let lists = tasks.unwrap_or_default().into_iter().map(|task| fs::read_to_string(task.path().join("children")));
    lists
        .flatten()
        .flat_map(|list| list.split_whitespace().map(|pid| pid.parse().unwrap()).collect::<Vec<_>>())
        .collect()
}

/// Waits until `condition` holds; fails the test when it takes too long.
#[track_caller]
pub fn wait_until(what: &str, mut condition: impl FnMut() -> bool) {
    let started = Instant::now();
    while !condition() {
        assert!(started.elapsed() < PATIENCE, "{what}: not within {PATIENCE:?}");
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Waits until a process catches a signal that would end it.
#[track_caller]
pub fn wait_until_it_catches(pid: u32, signal: i32) {
    wait_until("a handler", || {
        let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
        let mask = status.lines().find_map(|line| line.strip_prefix("SigCgt:")).unwrap();
        u64::from_str_radix(mask.trim(), 16).unwrap() & 1 << (signal - 1) != 0
    });
}

pub fn is_alive(pid: u32) -> bool {
    // A zombie has ended; its parent has not looked yet.
    fs::read_to_string(format!("/proc/{pid}/stat")).is_ok_and(|stat| !stat.contains(") Z "))
}

/// A process's peak resident memory; `None` when it is gone.
pub fn peak_kib(pid: u32) -> Option<u64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// A guest binary that misbehaves, by its name.
pub fn hostile(name: &str) -> PathBuf {
    static DIRECTORY: OnceLock<PathBuf> = OnceLock::new();
    let directory = DIRECTORY.get_or_init(|| match std::env::var_os("BLOCKYARD_HOSTILE_GUESTS") {
        Some(built) => built.into(),
        None => {
            let target = Path::new(env!("CARGO_TARGET_TMPDIR")).join("hostile");
            blockyard_guest_build::build_all("blockyard-guest-hostile", &target).unwrap()
        }
    });
    let path = directory.join(name);
    assert!(path.is_file(), "{} is not there", path.display());
    path
}
