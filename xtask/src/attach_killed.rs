//! `cargo xtask attach-killed`: fio on a served disk, by `blockyard attach`, while the server is killed again and
//! again.
//!
//! The tests do so with a client of this project's own (`crates/cli/tests/serve_killed.rs`) and a small disk. Here it
//! is a program that was never changed, and a gigabyte each time.

use crate::build::Workspace;
use crate::{cargo, output, packages, run};
use anyhow::{Context, bail};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How often a server is killed if nobody says.
pub(crate) const ROUNDS: u32 = 50;
const DISK_BYTES: u64 = 1 << 30;
/// How fio asks for what it wants, in turn.
const ENGINES: [&[&str]; 2] = [&["--ioengine=posixaio", "--iodepth=16"], &["--ioengine=psync"]];
/// A server lives for less.
const LIFE_MAX: Duration = Duration::from_millis(500);
/// Longest that fio may take for the disk.
const PATIENCE: Duration = Duration::from_secs(900);

/// Kills a server so many times, and then verifies what fio has written.
///
/// # Errors
/// When something differs from what was written, or fails.
pub(crate) fn attach_killed(rounds: u32) -> anyhow::Result<()> {
    packages::install(&[("fio", "workloads on what we serve")])?;
    let workspace = Workspace::load()?;
    run(cargo().args(["build", "--locked", "--quiet", "--package", "blockyard", "--bin", "blockyard"]))?;
    let directory = tempfile::tempdir().context("cannot make a directory")?;
    let mut disk = Disk {
        blockyard: workspace.target_directory.join("x86_64-unknown-linux-gnu/debug/blockyard"),
        directory: directory.path().to_owned(),
        rounds_left: rounds,
        random: SystemTime::now().duration_since(UNIX_EPOCH).map_or(1, |now| now.as_nanos() as u64 | 1),
    };
    let start = Instant::now();
    let mut verified_bytes = 0;
    for pass in 0.. {
        if pass >= ENGINES.len() && disk.rounds_left == 0 {
            break;
        }
        // The first leaves half of them to the second.
        let kills = if pass == 0 { rounds.div_ceil(2) } else { disk.rounds_left };
        verified_bytes += disk.pass(pass, kills)?;
        let killed = rounds - disk.rounds_left;
        eprintln!("attach-killed: {} verified, {killed} servers killed", ENGINES[pass % ENGINES.len()].join(" "));
    }
    println!(
        "{rounds} servers killed, {} s, {} MiB verified by those that wrote them and in the file",
        start.elapsed().as_secs(),
        verified_bytes >> 20
    );
    Ok(())
}

struct Disk {
    blockyard: PathBuf,
    directory: PathBuf,
    rounds_left: u32,
    /// What the next life of a server depends on.
    random: u64,
}

/// A process that ends with what has started it.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        // They may have ended long ago.
        for child in children(self.0.id()) {
            let _ = kill_process(child, Signal::KILL);
        }
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Disk {
    fn image(&self) -> PathBuf {
        self.directory.join("disk.img")
    }

    fn socket(&self) -> PathBuf {
        self.directory.join("disk.sock")
    }

    /// What the server says.
    fn log(&self) -> PathBuf {
        self.directory.join("server.log")
    }

    fn serve(&self) -> anyhow::Result<Running> {
        let log = File::create(self.log()).with_context(|| format!("cannot make {}", self.log().display()))?;
        let mut command = Command::new(&self.blockyard);
        command.arg("serve").arg(self.image()).arg("--socket").arg(self.socket()).stderr(log);
        Ok(Running(command.stdin(Stdio::null()).spawn().context("cannot start a server")?))
    }

    /// fio over the whole disk, with so many servers that are killed, unless it is sooner done; then over the file. How
    /// many bytes both have verified.
    fn pass(&mut self, number: usize, mut kills: u32) -> anyhow::Result<u64> {
        let engine = ENGINES[number % ENGINES.len()];
        // Of zeros: what is lost is not what the pass before has written there.
        let image = File::create(self.image()).and_then(|image| image.set_len(DISK_BYTES));
        image.with_context(|| format!("cannot make {}", self.image().display()))?;
        let mut server = self.serve()?;
        let start = Instant::now();
        while !self.socket().exists() && server.0.try_wait()?.is_none() {
            thread::sleep(Duration::from_millis(1));
        }
        let report = self.directory.join("report");
        let said = File::create(&report).with_context(|| format!("cannot make {}", report.display()))?;
        let mut command = Command::new(&self.blockyard);
        command.arg("attach").arg(format!("session:{}", self.socket().display())).args(["/disk", "--", "fio"]);
        command.args(job(Path::new("/disk"), number)).args(engine).stdin(Stdio::null()).stdout(said);
        let mut fio = Running(command.spawn().context("cannot start blockyard attach")?);
        let status = loop {
            let end = Instant::now() + self.life();
            while Instant::now() < end && fio.0.try_wait()?.is_none() {
                thread::sleep(Duration::from_millis(1));
            }
            if let Some(status) = fio.0.try_wait()? {
                break status;
            }
            if let Some(status) = server.0.try_wait()? {
                let said = fs::read_to_string(self.log()).unwrap_or_default();
                bail!("a server has ended by itself: {status}\n{}", said.trim_end());
            }
            if start.elapsed() > PATIENCE {
                bail!("fio with {} has not ended within {} s", engine.join(" "), PATIENCE.as_secs());
            }
            if kills > 0 {
                // Which kills it.
                drop(server);
                server = self.serve()?;
                (kills, self.rounds_left) = (kills - 1, self.rounds_left - 1);
            }
        };
        drop(server);
        let report = fs::read_to_string(&report).with_context(|| format!("cannot read {}", report.display()))?;
        if !status.success() {
            bail!("fio with {} on the served disk ended with {status}:\n{}", engine.join(" "), report.trim_end());
        }
        let mut again = Command::new("fio");
        again.args(job(&self.image(), number)).args(["--ioengine=psync", "--verify_only"]);
        let of_the_file = output(&mut again).context("the file has not what fio has written on the served disk")?;
        let (there, in_the_file) = (verified_bytes(&report)?, verified_bytes(&of_the_file)?);
        if there != DISK_BYTES || in_the_file != DISK_BYTES {
            bail!("of {DISK_BYTES} bytes, fio has verified {there} on the served disk and {in_the_file} in the file");
        }
        Ok(there + in_the_file)
    }

    /// How long the next server lives.
    fn life(&mut self) -> Duration {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        Duration::from_micros(self.random % LIFE_MAX.as_micros() as u64)
    }
}

/// What fio is to do: it writes each block once, in a random order, and reads all of them.
fn job(file: &Path, pass: usize) -> Vec<String> {
    let file = format!("--filename={}", file.display());
    let words = ["--name=killed", "--thread", "--rw=randwrite", "--bs=16k", "--verify=crc32c", "--verify_fatal=1"];
    let mut words: Vec<String> = words.map(str::to_owned).into();
    words.extend(["--verify_state_save=0", "--allrandrepeat=1", "--output-format=json"].map(str::to_owned));
    words.extend([file, format!("--size={DISK_BYTES}"), format!("--randseed={}", pass + 1)]);
    words
}

/// What fio has read to verify it, as it reports.
fn verified_bytes(report: &str) -> anyhow::Result<u64> {
    // What it warns of comes first.
    let json = report.find('{').map_or("", |at| &report[at..]);
    let report: Value = serde_json::from_str(json).context("fio's report is no JSON")?;
    report["jobs"][0]["read"]["io_bytes"].as_u64().context("fio does not report what it has read")
}

/// Processes whose parent's main thread is `pid`.
fn children(pid: u32) -> Vec<Pid> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    list.split_whitespace().filter_map(|pid| Pid::from_raw(pid.parse().ok()?)).collect()
}
