//! One step: a machine that boots, runs it, and is switched off.

use crate::console::{ConsoleFile, News, StepConsole, Words};
use crate::guest::Guest;
use crate::host::HostLoad;
use crate::initramfs;
use crate::output::{Output, held_name};
use crate::script::Script;
use crate::variable::Variable;
use anyhow::{Context, Result, bail};
use blockyard_bench::machine_process::{MachineEnd, MachineProcess};
use blockyard_block::{open_named, private_directory, shown};
use blockyard_run::Configuration;
use blockyard_run::configuration::{DiskBus, GuestDisk, Share};
use rustix::fs::{Mode, OFlags, open};
use serde::Serialize;
use std::fmt::Display;
use std::fs::{self, File};
use std::io::Write;
use std::ops::ControlFlow;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;
use tempfile::TempDir;

/// Longest output, and longest file of figures, that is taken from a share.
const OUTPUT_BYTES_MAX: u64 = 4 << 20;
const FIGURES_BYTES_MAX: u64 = 16 << 10;
/// What a step may write into its directory on a share.
const RESULTS_BYTES_MAX: u64 = 1 << 30;
/// The files of a step's results that we know.
const OUTPUT: &str = "output";
const FIGURES: &str = "figures";
/// Of a step that failed, so many of the last lines are told, each so long at most.
const LAST_LINES: usize = 10;
const LAST_LINE_CHARS_MAX: usize = 400;

/// A test VM that is ready for its steps: what they have in common was opened once, and no name means anything else for
/// a later one. Only disks are opened by their names each time.
#[derive(Debug)]
pub struct TestVm {
    /// The machine of the next step: what differs between steps is changed here.
    pub machine: Configuration,
    /// Its initial file system, with the kernel's modules.
    base: File,
    kernel_file: PathBuf,
    results: ResultsBy,
    variables: Vec<Variable>,
    held: Vec<Held>,
}

/// What a machine's process is to open, open.
#[derive(Debug)]
struct Held {
    _file: OwnedFd,
    /// What it opens it by.
    path: PathBuf,
    /// What people call it.
    name: String,
}

impl Held {
    fn new(file: impl Into<OwnedFd>, name: impl Display) -> Self {
        let file = file.into();
        Self { path: held_name(&file), _file: file, name: name.to_string() }
    }

    /// The same sentence with the name that people know.
    fn named(&self, sentence: &str) -> String {
        let path = self.path.display().to_string();
        let mut named = String::new();
        let mut rest = sentence;
        while let Some((before, after)) = rest.split_once(&path) {
            // The number may be the begin of another.
            let name = if after.starts_with(|letter: char| letter.is_ascii_digit()) { &path } else { &self.name };
            named = named + before + name;
            rest = after;
        }
        named + rest
    }
}

/// How a step's results come back.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ResultsBy {
    /// By a shared directory, as the script comes in.
    #[default]
    Share,
    /// Over the console, which takes no driver; the script comes with the initial file system.
    Console,
}

/// What came of a step. Its names are an interface: programs read them in JSON.
#[derive(Clone, Debug, Serialize)]
pub struct StepResult {
    /// Its name.
    pub step: String,
    /// Why it failed.
    pub failed: Option<String>,
    /// Its exit status, if it had one.
    pub status: Option<u32>,
    /// The guest's kernel, as `uname -r` says it.
    pub kernel: Option<String>,
    /// From its begin to its end, by the host's clock.
    pub seconds: Option<f64>,
    /// From the machine's start to the step's begin.
    pub boot_seconds: Option<f64>,
    /// What it measured, as NAME=VALUE.
    pub figures: Vec<String>,
    /// What it printed.
    pub output: String,
    /// Idle share of each of the host's CPUs meanwhile, in percent; `None` where its clock did not tick.
    pub cpu_idle_percent: Vec<Option<f64>>,
    /// Mean frequency of each of them, where the host tells.
    pub cpu_mhz: Vec<f64>,
    /// What of its results was not taken.
    pub left_out: Vec<String>,
    /// Of one that failed: the last lines that it printed, or if it printed none, those of its console.
    pub last_lines: Vec<String>,
}

/// What is heard of a step while it runs.
#[derive(Debug)]
struct Heard {
    console: StepConsole,
    begin: Option<Instant>,
    load: Option<HostLoad>,
    seconds: Option<f64>,
    measured: (Vec<Option<f64>>, Vec<f64>),
}

/// What the machine of one step is started with.
struct Prepared {
    /// A directory of its own.
    directory: TempDir,
    /// The file of its configuration.
    configuration: PathBuf,
    words: Words,
    held: Vec<Held>,
}

impl Heard {
    fn new(words: &Words) -> Self {
        let (console, measured) = (StepConsole::new(words), Default::default());
        Self { console, begin: None, load: None, seconds: None, measured }
    }

    fn hear(&mut self, line: &[u8]) {
        match self.console.hear(line) {
            Some(News::Begins) => (self.begin, self.load) = (Some(Instant::now()), Some(HostLoad::begin())),
            Some(News::Ends) => {
                self.seconds = self.begin.map(|begin| begin.elapsed().as_secs_f64());
                self.measured = self.load.take().map(HostLoad::end).unwrap_or_default();
            }
            None => {}
        }
    }

    /// How far it came.
    fn place(&self) -> &'static str {
        if self.begin.is_some() { "before the step had ended" } else { "before the step began" }
    }

    /// Why the step failed, of a machine that has ended.
    fn failure(&self, end: &MachineEnd) -> Option<String> {
        match (&self.console.failed, self.console.status) {
            (Some(why), _) => Some(why.clone()),
            (None, Some(0)) if end.succeeded() => None,
            (None, Some(status)) if status > 0 => Some(format!("exit status {status}")),
            _ if !end.succeeded() => Some(end.failure()),
            _ => Some(format!("{} {}", end.unasked(), self.place())),
        }
    }
}

impl TestVm {
    /// Opens what all steps have in common. The machine's kernel and initial file system are filled in; the latter was
    /// written by [`crate::write_initramfs`]. The script is told the variables, and the first disk's name in DISK
    /// besides, unless another is among them.
    ///
    /// # Errors
    /// When something cannot be opened.
    pub fn new(
        machine: Configuration,
        guest: &Guest,
        initramfs: &File,
        results: ResultsBy,
        variables: Vec<Variable>,
    ) -> Result<Self> {
        let (base, kernel_file) = (scratch_file()?, guest.kernel.clone());
        let mut vm = Self { base, kernel_file, results, variables, held: Vec::new(), machine };
        initramfs::write_with_modules(&vm.base, initramfs, guest.modules.as_deref())?;
        vm.machine.kernel = Some(vm.hold(open_named(&guest.kernel, "the kernel")?, shown(&guest.kernel)));
        for index in 0..vm.machine.shares.len() {
            let directory = vm.machine.shares[index].directory.clone();
            let opened = open(&directory, OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC, Mode::empty());
            let opened = opened.with_context(|| format!("cannot share {}", shown(&directory)))?;
            vm.machine.shares[index].directory = vm.hold(opened, shown(&directory));
        }
        Ok(vm)
    }

    /// The kernel, as it was called.
    pub fn kernel_file(&self) -> &Path {
        &self.kernel_file
    }

    fn hold(&mut self, file: impl Into<OwnedFd>, name: impl Display) -> PathBuf {
        let held = Held::new(file, name);
        let path = held.path.clone();
        self.held.push(held);
        path
    }

    /// Boots the machine for one step of the script and waits for its end; `watch` says whether to wait on, and without
    /// that there is no result. In `output`, STEP.log is its console then, and STEP a directory with what it left in
    /// its own.
    ///
    /// # Errors
    /// When the machine cannot be started, or there are results of such a step already. A step that fails is a result.
    pub fn step(
        &self,
        script: &Script,
        step: &str,
        output: &Output,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Option<StepResult>> {
        let results = output.new_directory(step)?;
        let log = output.new_file(&format!("{step}.log"))?;
        let prepared = self.prepare(script, step, &results)?;
        let heard = Arc::new(Mutex::new(Heard::new(&prepared.words)));
        let listener = Arc::clone(&heard);
        let lock = |heard: &Mutex<Heard>, act: &mut dyn FnMut(&mut Heard)| {
            act(&mut heard.lock().unwrap_or_else(PoisonError::into_inner));
        };
        let start = Instant::now();
        let mut command = Command::new(OWN_PROGRAM);
        command.args(["run", "--stats", "--json", "--config"]).arg(&prepared.configuration);
        let hear = move |line: &[u8]| lock(&listener, &mut |heard| heard.hear(line));
        let process = MachineProcess::start(&mut command, prepared.directory.path(), log, hear)?;
        let end = process.until_it_ends(&mut || {
            lock(&heard, &mut |heard| heard.load.iter_mut().for_each(HostLoad::look));
            watch()
        })?;
        let Some(end) = end else { return Ok(None) };
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        let failed = heard.failure(&end);
        let failed = failed.map(|why| self.held.iter().chain(&prepared.held).fold(why, |why, held| held.named(&why)));
        let mut left_out = self.keep_files(&results, &heard.console)?;
        let (figures, figures_go_on) = results.read(FIGURES, FIGURES_BYTES_MAX);
        let (printed, printed_goes_on) = results.read(OUTPUT, OUTPUT_BYTES_MAX);
        left_out.extend(figures_go_on.then(|| format!("figures behind the first {} KiB", FIGURES_BYTES_MAX >> 10)));
        left_out.extend(printed_goes_on.then(|| format!("output behind the first {} MiB", OUTPUT_BYTES_MAX >> 20)));
        let printed = String::from_utf8_lossy(&printed).into_owned();
        let (cpu_idle_percent, cpu_mhz) = std::mem::take(&mut heard.measured);
        Ok(Some(StepResult {
            step: step.to_owned(),
            last_lines: if failed.is_some() { last_lines(&printed, &heard.console) } else { Vec::new() },
            failed,
            status: heard.console.status,
            kernel: heard.console.kernel.clone(),
            seconds: heard.seconds,
            boot_seconds: heard.begin.map(|begin| (begin - start).as_secs_f64()),
            figures: self::figures(&figures, figures_go_on),
            output: printed,
            cpu_idle_percent,
            cpu_mhz,
            left_out,
        }))
    }

    /// Writes what the machine boots with.
    fn prepare(&self, script: &Script, step: &str, results: &Output) -> Result<Prepared> {
        let directory = private_directory(is_text).context("making a directory")?;
        let words = Words::new().context("making a word")?;
        let (mut machine, mut held) = (self.machine.clone(), Vec::new());
        let place = |share: &Share| format!("{}:{}", if share.read_only { "ro" } else { "rw" }, share.tag);
        let shares: Vec<_> = machine.shares.iter().map(place).collect();
        let word = match self.results {
            ResultsBy::Share => "share",
            ResultsBy::Console => "console",
        };
        let devices = devices(&machine.disks);
        let order = format!(
            "STEP={step}\nRESULTS={word}\nSHARES='{}'\nDISKS='{}'\nINIT={}\nPREPARED={}\n",
            shares.join(" "),
            devices.join(" "),
            words.init,
            words.prepared
        );
        let disk = devices.first().map(|device| Variable::new("DISK", device));
        let variables: String = disk.iter().chain(&self.variables).map(|variable| format!("{variable}\n")).collect();
        let mut files = vec![("/testvm/step", order.as_bytes()), ("/testvm/variables", variables.as_bytes())];
        match self.results {
            ResultsBy::Console => files.push(("/testvm/script", script.text().as_bytes())),
            ResultsBy::Share => {
                let import = directory.path().join("import");
                fs::create_dir(&import).context("making a directory")?;
                fs::write(import.join("script"), script.text()).context("writing the script")?;
                let import = open(&import, OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
                let import = Held::new(import.context("opening a directory")?, "the script");
                let results =
                    Held::new(results.as_fd().try_clone_to_owned().context("sharing results")?, "the results");
                machine.shares.push(share(&import, "testvm", true)?);
                machine.shares.push(share(&results, "results", false)?);
                held.extend([import, results]);
            }
        }
        let initrd = scratch_file()?;
        initramfs::write_with_files(&initrd, &self.base, &files)?;
        let initrd = Held::new(initrd, "initial file system");
        machine.initrd = Some(initrd.path.clone());
        held.push(initrd);
        machine.append = Some(format!("quiet panic=-1 {}", machine.append.unwrap_or_default()).trim_end().to_owned());
        machine.no_reboot = true;
        machine.check()?;
        let configuration = directory.path().join("machine.toml");
        fs::write(&configuration, machine.to_toml()?).context("writing the machine's configuration")?;
        Ok(Prepared { directory, configuration, words, held })
    }

    /// Writes what came over the console to where the share would have had it; what of it was left out.
    fn keep_files(&self, results: &Output, console: &StepConsole) -> Result<Vec<String>> {
        let mut left_out = Vec::new();
        if self.results == ResultsBy::Share {
            return Ok(left_out);
        }
        let keep = |name: &str, content: &[u8]| {
            results.new_file(name)?.write_all(content).with_context(|| format!("cannot write the result {name}"))
        };
        keep(OUTPUT, &console.output)?;
        left_out
            .extend(console.output_goes_on.then(|| format!("output behind the first {} MiB", OUTPUT_BYTES_MAX >> 20)));
        for ConsoleFile { name, content, goes_on } in console.files.iter().filter(|file| file.name != OUTPUT) {
            keep(name, content)?;
            left_out.extend(goes_on.then(|| format!("{name} behind its first {} MiB", content.len() >> 20)));
        }
        let files = console.files_left_out;
        left_out.extend((files > 0).then(|| format!("{files} files, as there are too many or by their names")));
        Ok(left_out)
    }
}

/// This program, whatever has its name by now.
const OWN_PROGRAM: &str = "/proc/self/exe";

/// Whether the names of what lies in a directory are text, as a machine's configuration is.
fn is_text(directory: &Path) -> bool {
    directory.to_str().is_some()
}

/// A file without a name.
fn scratch_file() -> Result<File> {
    let directory = private_directory(|_| true).context("making a directory")?;
    tempfile::tempfile_in(directory.path()).context("making a file")
}

/// What is told of a step that failed: the end of what it printed, or if that is nothing, of its console.
fn last_lines(printed: &str, console: &StepConsole) -> Vec<String> {
    let all: Vec<&str> = match printed.trim() {
        "" => console.last_lines.iter().map(String::as_str).collect(),
        _ => printed.lines().collect(),
    };
    let last = &all[all.len().saturating_sub(LAST_LINES)..];
    last.iter().map(|line| line.trim_end().chars().take(LAST_LINE_CHARS_MAX).collect()).collect()
}

/// What a guest calls these disks.
fn devices(disks: &[GuestDisk]) -> Vec<String> {
    let is_ahci = |disk: &GuestDisk| disk.bus == DiskBus::Ahci;
    let device = |(index, disk): (usize, &GuestDisk)| {
        let before = disks[..index].iter().filter(|other| is_ahci(other) == is_ahci(disk)).count();
        format!("/dev/{}{}", if is_ahci(disk) { "sd" } else { "vd" }, letters(before))
    };
    disks.iter().enumerate().map(device).collect()
}

/// `a` to `z`, then `aa` and so on.
fn letters(index: usize) -> String {
    let before = if index < 26 { String::new() } else { letters(index / 26 - 1) };
    before + &char::from(b'a' + (index % 26) as u8).to_string()
}

fn share(held: &Held, tag: &str, read_only: bool) -> Result<Share> {
    let Ok(tag) = tag.parse() else { bail!("{tag} is no tag") };
    let limit = (!read_only).then_some(RESULTS_BYTES_MAX);
    Ok(Share { directory: held.path.clone(), tag, read_only, limit })
}

/// The lines that are figures, without one that is cut off.
fn figures(bytes: &[u8], goes_on: bool) -> Vec<String> {
    let whole = if goes_on { bytes.iter().rposition(|&byte| byte == b'\n').unwrap_or(0) } else { bytes.len() };
    let text = String::from_utf8_lossy(&bytes[..whole]);
    text.lines().filter(|line| line.contains('=')).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_have_the_names_that_linux_gives_them() {
        let disk = |bus| GuestDisk { name: "null:1M".parse().unwrap(), bus };
        let disks = [DiskBus::Virtio, DiskBus::Ahci, DiskBus::VirtioMmio, DiskBus::Ahci].map(disk);
        assert_eq!(devices(&disks), ["/dev/vda", "/dev/sda", "/dev/vdb", "/dev/sdb"]);
        assert_eq!([25, 26, 51, 52, 701, 702].map(letters), ["z", "aa", "az", "ba", "zz", "aaa"]);
    }

    #[test]
    fn a_figure_that_is_cut_off_is_none() {
        assert_eq!(figures(b"MB/s=7.5\nnoise\nIOPS=1", false), ["MB/s=7.5", "IOPS=1"]);
        assert_eq!(figures(b"MB/s=7.5\nIOPS=1", true), ["MB/s=7.5"]);
        assert!(figures(b"MB/s=7.", true).is_empty());
    }

    #[test]
    fn what_is_told_has_the_names_that_people_know() {
        let held = Held::new(tempfile::tempfile().unwrap(), "the kernel");
        let path = held.path.display();
        assert_eq!(held.named(&format!("no {path}: {path}")), "no the kernel: the kernel");
        assert_eq!(held.named(&format!("no {path}0")), format!("no {path}0"));
    }
}
