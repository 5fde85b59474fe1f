//! Whole copies of one file: ours in every configuration of the system this project follows, beside cp, dd and
//! qemu-img.
//!
//! That system copied one sector per request, one request at a time; its table is sector size by progress reports. Here
//! the same rows are measured twice, that way ("one sector a request") and as `blockyard copy` does it by default.

use crate::cpu_idle::{CpuTimes, IdleTime, percent_text};
use crate::statistics::Samples;
use crate::table::Table;
use crate::{random_file, work_directory};
use anyhow::{Context, Result, bail};
use blockyard_block::programs;
use serde::Serialize;
use std::ffi::OsString;
use std::fs::{self, File};
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Instant;

/// What to measure.
#[derive(Clone, Debug)]
pub struct CopyBench {
    /// The `blockyard` binary to measure.
    pub blockyard: PathBuf,
    /// Where the file and its copies go.
    pub directory: PathBuf,
    /// Length of the file: random data.
    pub bytes: u64,
    /// Runs of each, interleaved.
    pub runs: u32,
    /// Hypervisor to ask for: auto, kvm or user.
    pub backend: String,
}

/// progress-percent and sector size, as in the reference's table.
const ROWS: [(u32, u32); 6] = [(0, 512), (10, 512), (10, 1024), (10, 4096), (10, 8192), (10, 65536)];

/// One way to copy the file, and what it took.
#[derive(Clone, Debug, Serialize)]
pub struct Measured {
    /// What was run, for people.
    pub name: String,
    /// The command line.
    pub command: Vec<String>,
    /// Wall time of each run.
    pub seconds: Samples,
    /// Median wall time.
    pub median_seconds: f64,
    /// Median of the ratio to cp, run by run.
    pub times_cp: f64,
    /// Median of the ratio to qemu-img, run by run; `None` where it is not installed.
    pub times_qemu_img: Option<f64>,
    /// Mean idle share of each CPU over all runs, percent.
    pub cpu_idle_percent: Vec<Option<f64>>,
}

/// All that was measured.
#[derive(Clone, Debug, Serialize)]
pub struct CopyResults {
    /// Length of the file.
    pub bytes: u64,
    /// Runs of each.
    pub runs: u32,
    /// One entry a way to copy.
    pub measured: Vec<Measured>,
}

struct Target {
    name: String,
    command: Vec<OsString>,
    seconds: Samples,
    idle: IdleTime,
}

impl Target {
    fn new(name: impl Into<String>, command: Vec<OsString>) -> Self {
        Self { name: name.into(), command, seconds: Samples::default(), idle: IdleTime::default() }
    }

    fn run(&mut self, output: &Path) -> Result<()> {
        // The destination is absent, as for a first copy.
        if output.exists() {
            fs::remove_file(output).with_context(|| format!("removing {}", output.display()))?;
        }
        let before = CpuTimes::now().context("reading /proc/stat")?;
        let start = Instant::now();
        let outcome = programs::command(&self.command[0])
            .args(&self.command[1..])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .output()
            .with_context(|| format!("running {}", self.name))?;
        self.seconds.push(start.elapsed().as_secs_f64());
        self.idle.add(&before, &CpuTimes::now().context("reading /proc/stat")?);
        if !outcome.status.success() {
            bail!("{} failed: {}", self.name, String::from_utf8_lossy(&outcome.stderr).trim());
        }
        Ok(())
    }
}

/// Measures everything and returns it.
///
/// # Errors
/// When a file cannot be made, a program fails, or a copy differs from its source.
pub fn run(bench: &CopyBench, mut watch: impl FnMut(usize, usize, &str) -> ControlFlow<()>) -> Result<CopyResults> {
    let directory = work_directory::make_in(&bench.directory)?;
    let (input, output) = (directory.path().join("input.img"), directory.path().join("output.img"));
    random_file::write(&input, 0, bench.bytes).with_context(|| format!("writing {}", input.display()))?;
    let mut targets = targets(bench, &input, &output);
    let targets_count = targets.len();
    let (mut done, count) = (0, (bench.runs as usize + 1) * targets_count);
    let mut next = |name: &str| {
        // The directory goes away on the way out.
        if watch(done, count, name).is_break() {
            bail!("the measurement was stopped");
        }
        done += 1;
        Ok(())
    };
    // One run of each that does not count: caches, and a check that the copy is a copy.
    for target in &mut targets {
        next(&target.name)?;
        target.run(&output)?;
        same_contents(&input, &output).with_context(|| format!("after {}", target.name))?;
        (target.seconds, target.idle) = (Samples::default(), IdleTime::default());
    }
    for _ in 0..bench.runs {
        // Each follows another one than last time: what a copy leaves to be written back hits everybody alike.
        targets.rotate_left(1);
        for target in &mut targets {
            next(&target.name)?;
            target.run(&output)?;
        }
    }
    targets.rotate_right(bench.runs as usize % targets_count);
    Ok(results(bench, &targets))
}

fn targets(bench: &CopyBench, input: &Path, output: &Path) -> Vec<Target> {
    let words = |words: &[&str]| words.iter().map(OsString::from).collect::<Vec<_>>();
    let with_files = |mut command: Vec<OsString>| {
        command.extend([input.into(), output.into()]);
        command
    };
    let mut targets = vec![Target::new("cp", with_files(words(&["cp", "--reflink=never"])))];
    if installed("qemu-img") {
        let command = with_files(words(&["qemu-img", "convert", "-f", "raw", "-O", "raw"]));
        targets.push(Target::new("qemu-img convert", command));
    }
    let mut dd = words(&["dd", "bs=1M", "status=none"]);
    for (key, path) in [("if=", input), ("of=", output)] {
        let mut word = OsString::from(key);
        word.push(path);
        dd.push(word);
    }
    targets.push(Target::new("dd bs=1M", dd));
    for one_sector in [true, false] {
        for (progress, sector) in ROWS {
            let (progress_word, sector_word) = (progress.to_string(), sector.to_string());
            let mut command = vec![bench.blockyard.clone().into_os_string()];
            command.extend(words(&["copy", "--no-flush", "--backend", &bench.backend]));
            command.extend(words(&["--progress-percent", &progress_word]));
            command.extend(words(&["--input-sector-size", &sector_word, "--output-sector-size", &sector_word]));
            if one_sector {
                command.extend(words(&["--request-size", &sector_word, "--queue-depth", "1"]));
            }
            let way = if one_sector { "one sector a request" } else { "default" };
            targets.push(Target::new(format!("{way}, {sector}, progress {progress}"), with_files(command)));
        }
    }
    targets
}

fn results(bench: &CopyBench, targets: &[Target]) -> CopyResults {
    let seconds_of = |name: &str| targets.iter().find(|target| target.name == name).map(|target| &target.seconds);
    let ratio = |target: &Target, name: &str| target.seconds.ratio_to(seconds_of(name)?);
    let measured = targets.iter().map(|target| Measured {
        name: target.name.clone(),
        command: target.command.iter().map(|word| word.to_string_lossy().into_owned()).collect(),
        seconds: target.seconds.clone(),
        median_seconds: target.seconds.median().unwrap_or(f64::NAN),
        times_cp: ratio(target, "cp").unwrap_or(f64::NAN),
        times_qemu_img: ratio(target, "qemu-img convert"),
        cpu_idle_percent: target.idle.percent(),
    });
    CopyResults { bytes: bench.bytes, runs: bench.runs, measured: measured.collect() }
}

impl CopyResults {
    /// A table for people.
    pub fn table(&self) -> Table {
        let mut table = Table::new(&["copy", "median s", "min", "max", "MiB/s", "× cp", "× qemu-img", "CPU idle %"]);
        for one in &self.measured {
            table.row(vec![
                one.name.clone(),
                format!("{:.3}", one.median_seconds),
                format!("{:.3}", one.seconds.min().unwrap_or(f64::NAN)),
                format!("{:.3}", one.seconds.max().unwrap_or(f64::NAN)),
                format!("{:.0}", self.bytes as f64 / (1 << 20) as f64 / one.median_seconds),
                format!("{:.2}", one.times_cp),
                one.times_qemu_img.map_or_else(|| "-".into(), |times| format!("{times:.2}")),
                percent_text(&one.cpu_idle_percent),
            ]);
        }
        table
    }
}

fn installed(program: &str) -> bool {
    let runs = programs::command(program).arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    runs.is_ok_and(|status| status.success())
}

fn same_contents(left: &Path, right: &Path) -> Result<()> {
    use std::io::Read;
    let (mut left, mut right) = (File::open(left)?, File::open(right)?);
    if left.metadata()?.len() != right.metadata()?.len() {
        bail!("the copy's length differs");
    }
    let (mut ours, mut theirs) = (vec![0; 1 << 20], vec![0; 1 << 20]);
    loop {
        let length = left.read(&mut ours)?;
        if length == 0 {
            return Ok(());
        }
        right.read_exact(&mut theirs[..length])?;
        if ours[..length] != theirs[..length] {
            bail!("the copy's contents differ");
        }
    }
}
