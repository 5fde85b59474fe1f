//! Programs that were never changed, on a disk by `blockyard attach` and on the file that it is: dd and fio.
//!
//! dd says how long it took; fio, how many requests it made. Both run interleaved, each on a file of its own, which
//! lies in the page cache.

use crate::cpu_idle::{CpuTimes, IdleTime, percent_text};
use crate::statistics::Samples;
use crate::table::Table;
use crate::{random_file, timed_command, work_directory};
use anyhow::{Context, Result, bail};
use blockyard_block::{programs, size};
use rustix::fs::{Advice, Mode, OFlags, fadvise, open};
use serde::Serialize;
use std::fs::File;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// What to measure.
#[derive(Clone, Debug)]
pub struct PosixBench {
    /// The `blockyard` binary to measure.
    pub blockyard: PathBuf,
    /// Where the files go.
    pub directory: PathBuf,
    /// Bytes of each: whole MiB.
    pub bytes: u64,
    /// Times each is run.
    pub rounds: u32,
    /// How long fio goes on.
    pub runtime: Duration,
    /// Only what has this in its name.
    pub filter: String,
}

/// What dd and fio did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Unit {
    /// 10⁶ bytes a second.
    MegabytesPerSecond,
    /// 10³ requests a second.
    ThousandRequestsPerSecond,
}

impl Unit {
    fn name(self) -> &'static str {
        match self {
            Self::MegabytesPerSecond => "MB/s",
            Self::ThousandRequestsPerSecond => "k/s",
        }
    }
}

/// What a program did on one of the two.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Figures {
    /// One of each round.
    pub rates: Samples,
    /// Each CPU's idle share meanwhile, in percent.
    pub idle_percent: Vec<Option<f64>>,
    #[serde(skip)]
    idle: IdleTime,
}

/// One program with its options.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// Which one.
    pub name: String,
    /// What its figures are of.
    pub unit: Unit,
    /// On the host's file.
    pub host: Figures,
    /// On the disk; none of programs that cannot be on one (io_uring, libaio).
    pub attached: Option<Figures>,
    /// Median on the disk by that on the host.
    pub ratio: Option<f64>,
}

/// All that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct PosixResults {
    /// Bytes of each file.
    pub bytes: u64,
    /// Times each was run.
    pub rounds: u32,
    /// One entry a program.
    pub measured: Vec<Measured>,
    /// There is no fio.
    pub without_fio: bool,
    /// The file system has no transfers past the page cache.
    pub without_direct: bool,
}

/// Measures everything; `watch` hears before each run what is done, of how much, and says whether to go on.
///
/// # Errors
/// When a file cannot be made or a program fails.
pub fn run(bench: &PosixBench, mut watch: impl FnMut(usize, usize, &str) -> ControlFlow<()>) -> Result<PosixResults> {
    let directory = work_directory::make_in(&bench.directory)?;
    let yard = Yard { bench, directory: directory.path() };
    for name in [HOST, ATTACHED, SOURCE] {
        let path = yard.path(name);
        random_file::write(&path, 0, bench.bytes).with_context(|| format!("writing {}", path.display()))?;
    }
    let without_direct = open(yard.path(HOST), OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty());
    let mut results = PosixResults {
        bytes: bench.bytes,
        rounds: bench.rounds,
        measured: Vec::new(),
        without_fio: programs::find("fio").is_none(),
        without_direct: without_direct.is_err(),
    };
    let can_run = |task: &Task| match task {
        Task::Dd(dd) => !dd.is_direct() || !results.without_direct,
        Task::Fio(_) => !results.without_fio,
    };
    let tasks = tasks().into_iter().filter(|task| can_run(task) && task.name().contains(&bench.filter));
    let tasks: Vec<_> = tasks.collect();
    let count = tasks.len() * bench.rounds as usize;
    let mut done = 0;
    'all: for task in &tasks {
        let mut measured = Measured::new(task);
        yard.warm()?;
        for round in 0..bench.rounds {
            if watch(done, count, &measured.name).is_break() {
                if round > 0 {
                    measured.finish();
                    results.measured.push(measured);
                }
                break 'all;
            }
            yard.settle()?;
            measured.host.add(|| yard.rate(task, Place::Host))?;
            if let Some(attached) = &mut measured.attached {
                yard.settle()?;
                attached.add(|| yard.rate(task, Place::Attached))?;
            }
            done += 1;
        }
        measured.finish();
        results.measured.push(measured);
    }
    Ok(results)
}

/// The files' names, and the disk's.
const HOST: &str = "host";
const ATTACHED: &str = "attached";
const SOURCE: &str = "source";
const NAME: &str = "/disk";

/// Where a program is run.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Host,
    Attached,
}

/// A program with its options.
enum Task {
    Dd(Dd),
    Fio(Fio),
}

/// dd, with blocks of so many bytes.
struct Dd {
    what: Copying,
    block_bytes: u64,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Copying {
    /// From the disk, to nothing.
    Read,
    /// To the disk, and what was written is stable at the end.
    Write,
    /// As either, past the page cache (`O_DIRECT`).
    ReadDirect,
    WriteDirect,
}

impl Dd {
    fn is_direct(&self) -> bool {
        matches!(self.what, Copying::ReadDirect | Copying::WriteDirect)
    }
}

/// fio, with requests of 4 KiB.
struct Fio {
    workload: &'static str,
    engine: Engine,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Engine {
    Sync,
    PosixAio,
    LibAio,
    IoUring,
}

/// Requests that fio keeps under way, where it can.
const DEPTH: u32 = 64;

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Self::Sync => "psync",
            Self::PosixAio => "posixaio",
            Self::LibAio => "libaio",
            Self::IoUring => "io_uring",
        }
    }

    fn depth(self) -> u32 {
        if self == Self::Sync { 1 } else { DEPTH }
    }
}

fn tasks() -> Vec<Task> {
    let mut all = Vec::new();
    for what in [Copying::Read, Copying::Write, Copying::ReadDirect, Copying::WriteDirect] {
        all.extend([4 << 10, 64 << 10, 1 << 20, 8 << 20].map(|block_bytes| Task::Dd(Dd { what, block_bytes })));
    }
    for workload in ["randread", "randwrite", "read", "write"] {
        let engines = [Engine::Sync, Engine::PosixAio, Engine::LibAio, Engine::IoUring];
        all.extend(engines.map(|engine| Task::Fio(Fio { workload, engine })));
    }
    all
}

impl Task {
    fn name(&self) -> String {
        match self {
            Self::Dd(Dd { what, block_bytes }) => {
                let what = match what {
                    Copying::Read => "dd, read",
                    Copying::Write => "dd, write and fsync",
                    Copying::ReadDirect => "dd, read direct",
                    Copying::WriteDirect => "dd, write direct",
                };
                format!("{what}, {}", size::human(*block_bytes))
            }
            Self::Fio(Fio { workload, engine }) => {
                format!("fio, {workload}, {}, depth {}", engine.name(), engine.depth())
            }
        }
    }

    fn unit(&self) -> Unit {
        match self {
            Self::Dd(_) => Unit::MegabytesPerSecond,
            Self::Fio(_) => Unit::ThousandRequestsPerSecond,
        }
    }

    /// Whether it can be on a disk: the kernel's own asynchronous I/O never asks libc.
    fn may_be_attached(&self) -> bool {
        !matches!(self, Self::Fio(Fio { engine: Engine::LibAio | Engine::IoUring, .. }))
    }
}

struct Yard<'a> {
    bench: &'a PosixBench,
    directory: &'a Path,
}

impl Yard<'_> {
    fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    /// All files are in the page cache, and as if nobody had done anything to them: how a file got there decides how
    /// fast parts of it are written (Linux's large folios).
    fn warm(&self) -> Result<()> {
        self.settle()?;
        for name in [HOST, ATTACHED, SOURCE] {
            let path = self.path(name);
            let warm = || {
                let mut file = File::open(&path)?;
                fadvise(&file, 0, None, Advice::DontNeed)?;
                std::io::copy(&mut file, &mut std::io::sink())
            };
            warm().with_context(|| format!("reading {}", path.display()))?;
        }
        Ok(())
    }

    /// Whoever writes next waits for nothing that was written before.
    fn settle(&self) -> Result<()> {
        for name in [HOST, ATTACHED, SOURCE] {
            let path = self.path(name);
            let synced = File::open(&path).and_then(|file| file.sync_all());
            synced.with_context(|| format!("flushing {}", path.display()))?;
        }
        Ok(())
    }

    /// What the program says of itself.
    fn rate(&self, task: &Task, place: Place) -> Result<f64> {
        let file = match place {
            Place::Host => self.path(HOST).into_os_string(),
            Place::Attached => NAME.into(),
        };
        let file = file.to_str().context("the directory's name is no UTF-8")?;
        match task {
            Task::Dd(dd) => self.dd(dd, place, file),
            Task::Fio(fio) => self.fio(fio, place, file),
        }
    }

    fn command(&self, place: Place, program: &str) -> Command {
        if place == Place::Host {
            return programs::command(program);
        }
        let mut command = programs::command(&self.bench.blockyard);
        command.arg("attach").arg(self.path(ATTACHED)).args([NAME, "--", program]);
        command
    }

    fn dd(&self, Dd { what, block_bytes }: &Dd, place: Place, file: &str) -> Result<f64> {
        let source = self.path(SOURCE);
        let source = source.to_str().context("the directory's name is no UTF-8")?;
        let mut command = self.command(place, "dd");
        command.env("LC_ALL", "C").arg(format!("bs={block_bytes}"));
        match what {
            Copying::Read | Copying::ReadDirect => command.arg(format!("if={file}")).arg("of=/dev/null"),
            Copying::Write | Copying::WriteDirect => {
                command.arg(format!("if={source}")).arg(format!("of={file}")).arg("conv=notrunc,fsync")
            }
        };
        match what {
            Copying::ReadDirect => command.arg("iflag=direct"),
            Copying::WriteDirect => command.arg("oflag=direct"),
            Copying::Read | Copying::Write => &mut command,
        };
        let said = timed_command::run(&mut command, "")?.stderr;
        let seconds = seconds_of_dd(&said).with_context(|| format!("dd says no time: {}", said.trim()))?;
        Ok(self.bench.bytes as f64 / 1e6 / seconds)
    }

    fn fio(&self, Fio { workload, engine }: &Fio, place: Place, file: &str) -> Result<f64> {
        let mut command = self.command(place, "fio");
        command.args(["--name=x", "--bs=4k", "--time_based", "--invalidate=0", "--output-format=json"]);
        command.arg(format!("--filename={file}")).arg(format!("--rw={workload}"));
        command.arg(format!("--ioengine={}", engine.name())).arg(format!("--iodepth={}", engine.depth()));
        command.arg(format!("--size={}", self.bench.bytes));
        command.arg(format!("--runtime={}ms", self.bench.runtime.as_millis()));
        let said = timed_command::run(&mut command, "")?.stdout;
        // Notes of fio's may stand before it.
        let report = said.find('{').map_or("", |start| &said[start..]);
        let report: serde_json::Value = serde_json::from_str(report).context("fio's report is no JSON")?;
        let rate = |way: &str| report["jobs"][0][way]["iops"].as_f64().unwrap_or(0.0);
        match rate("read") + rate("write") {
            requests if requests > 0.0 => Ok(requests / 1e3),
            _ => bail!("fio made no request: {workload} by {}", engine.name()),
        }
    }
}

/// `536870912 bytes (537 MB, 512 MiB) copied, 0.123 s, 4.4 GB/s`.
fn seconds_of_dd(said: &str) -> Option<f64> {
    let line = said.lines().rev().find(|line| line.contains(" copied, "))?;
    line.split(" copied, ").nth(1)?.split(' ').next()?.parse().ok()
}

impl Figures {
    fn add(&mut self, measure: impl FnOnce() -> Result<f64>) -> Result<()> {
        let before = CpuTimes::now().context("reading /proc/stat")?;
        self.rates.push(measure()?);
        self.idle.add(&before, &CpuTimes::now().context("reading /proc/stat")?);
        self.idle_percent = self.idle.percent();
        Ok(())
    }
}

impl Measured {
    fn new(task: &Task) -> Self {
        let attached = task.may_be_attached().then(Figures::default);
        Self { name: task.name(), unit: task.unit(), host: Figures::default(), attached, ratio: None }
    }

    fn finish(&mut self) {
        self.ratio = self.attached.as_ref().and_then(|attached| attached.rates.ratio_to(&self.host.rates));
    }
}

impl PosixResults {
    /// What people are told beside the table.
    pub fn notes(&self) -> impl Iterator<Item = String> {
        let fio = self.without_fio.then_some("there is no fio here: apt-get install fio");
        let direct = self.without_direct.then_some("the directory's file system has no O_DIRECT: --directory");
        fio.into_iter().chain(direct).map(str::to_owned)
    }

    /// A table for people.
    pub fn table(&self) -> Table {
        let mut table =
            Table::new(&["4 KiB where nothing is said", "", "host", "attach", "ratio", "idle %", "attach %"]);
        let cell = |figures: Option<&Figures>| {
            let median = figures.and_then(|figures| figures.rates.median());
            median.map_or_else(|| "-".to_owned(), |median| format!("{median:.0}"))
        };
        let idle = |figures: Option<&Figures>| {
            figures.map_or_else(|| "-".to_owned(), |figures| percent_text(&figures.idle_percent))
        };
        for one in &self.measured {
            let attached = one.attached.as_ref();
            table.row(vec![
                one.name.clone(),
                one.unit.name().to_owned(),
                cell(Some(&one.host)),
                cell(attached),
                one.ratio.map_or_else(|| "-".to_owned(), |ratio| format!("{ratio:.2}")),
                idle(Some(&one.host)),
                idle(attached),
            ]);
        }
        table
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dd_says_how_long_it_took() {
        let said =
            "128+0 records in\n128+0 records out\n536870912 bytes (537 MB, 512 MiB) copied, 0.0631 s, 8.5 GB/s\n";
        assert_eq!(seconds_of_dd(said), Some(0.0631));
        assert_eq!(seconds_of_dd("dd: failed to open\n"), None);
    }

    #[test]
    fn each_is_named_once() {
        let mut names: Vec<_> = tasks().iter().map(Task::name).collect();
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!((names.len(), count), (32, 32));
    }
}
