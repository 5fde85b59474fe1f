//! One step: a machine that boots, runs it, and is switched off.

use crate::console::{News, StepConsole};
use crate::guest::Guest;
use crate::host::HostLoad;
use crate::initramfs;
use crate::script::Script;
use crate::variable::Variable;
use anyhow::{Context, Result, bail};
use blockyard_bench::machine_process::{MachineEnd, MachineProcess};
use blockyard_block::private_directory;
use blockyard_run::Configuration;
use blockyard_run::configuration::{DiskBus, GuestDisk, Share};
use rustix::fs::{Mode, OFlags};
use serde::Serialize;
use std::fs::{self, File};
use std::io::Read;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// Longest output, and longest file of figures, that is taken from a share.
const OUTPUT_BYTES_MAX: u64 = 4 << 20;
const FIGURES_BYTES_MAX: u64 = 1 << 12;
/// The files of a step's results that we know.
const OUTPUT: &str = "output";
const FIGURES: &str = "figures";

/// A test VM that is ready for its steps.
#[derive(Clone, Debug)]
pub struct TestVm {
    /// The `blockyard` binary that runs it.
    pub program: PathBuf,
    /// The machine, whose kernel and initial file system are filled in.
    pub machine: Configuration,
    /// What boots in it.
    pub guest: Guest,
    /// Its initial file system, by [`crate::write_initramfs`].
    pub initramfs: PathBuf,
    /// How results come back.
    pub results: ResultsBy,
    /// What the script is told. It has the first disk's name in DISK besides, unless another is here.
    pub variables: Vec<Variable>,
    /// For the results: STEP.log is a step's console, and STEP a directory with what the step left in its own.
    pub output: PathBuf,
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
}

/// What is heard of a step while it runs.
#[derive(Debug, Default)]
struct Heard {
    console: StepConsole,
    begin: Option<Instant>,
    load: Option<HostLoad>,
    seconds: Option<f64>,
    measured: (Vec<Option<f64>>, Vec<f64>),
}

impl Heard {
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

    /// Why the step failed, of a machine that has ended.
    fn failure(&self, end: &MachineEnd) -> Option<String> {
        match (&self.console.failed, self.console.status) {
            (Some(why), _) => Some(why.clone()),
            (None, Some(0)) if end.succeeded() => None,
            (None, Some(status)) if status > 0 => Some(format!("exit status {status}")),
            _ if !end.succeeded() => Some(end.failure()),
            _ => Some("the guest switched itself off before the step had ended".to_owned()),
        }
    }
}

impl TestVm {
    /// Boots the machine for one step of the script and waits for its end; `watch` says whether to wait on, and without
    /// that there is no result.
    ///
    /// # Errors
    /// When the machine cannot be started, or there are results of such a step already. A step that fails is a result.
    pub fn step(
        &self,
        script: &Script,
        step: &str,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Option<StepResult>> {
        let results = self.output.join(step);
        fs::create_dir(&results)
            .with_context(|| format!("cannot make {}: results need a new directory", results.display()))?;
        let directory = private_directory(|_| true).context("making a directory")?;
        let log_file = results.with_extension("log");
        let log = File::create_new(&log_file).with_context(|| format!("cannot make {}", log_file.display()))?;
        let configuration = self.prepare(script, step, &results, directory.path())?;
        let heard = Arc::new(Mutex::new(Heard::default()));
        let listener = Arc::clone(&heard);
        let lock = |heard: &Mutex<Heard>, act: &mut dyn FnMut(&mut Heard)| {
            act(&mut heard.lock().unwrap_or_else(PoisonError::into_inner));
        };
        let start = Instant::now();
        let mut command = Command::new(&self.program);
        command.args(["run", "--config"]).arg(configuration);
        let hear = move |line: &[u8]| lock(&listener, &mut |heard| heard.hear(line));
        let process = MachineProcess::start(&mut command, directory.path(), log, hear)?;
        let end = process.until_it_ends(&mut || {
            lock(&heard, &mut |heard| heard.load.iter_mut().for_each(HostLoad::look));
            watch()
        })?;
        let Some(end) = end else { return Ok(None) };
        let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
        self.keep_files(&results, &heard.console)?;
        let (cpu_idle_percent, cpu_mhz) = std::mem::take(&mut heard.measured);
        Ok(Some(StepResult {
            step: step.to_owned(),
            failed: heard.failure(&end),
            status: heard.console.status,
            seconds: heard.seconds,
            boot_seconds: heard.begin.map(|begin| (begin - start).as_secs_f64()),
            figures: figures(&text_of(&results.join(FIGURES), FIGURES_BYTES_MAX)),
            output: text_of(&results.join(OUTPUT), OUTPUT_BYTES_MAX),
            cpu_idle_percent,
            cpu_mhz,
        }))
    }

    /// Writes what the machine boots with, and returns the file of its configuration.
    fn prepare(&self, script: &Script, step: &str, results: &Path, directory: &Path) -> Result<PathBuf> {
        let initrd = directory.join("initrd");
        let mut machine = self.machine.clone();
        let tags: Vec<_> = machine.shares.iter().map(|share| share.tag.to_string()).collect();
        let word = match self.results {
            ResultsBy::Share => "share",
            ResultsBy::Console => "console",
        };
        let devices = devices(&machine.disks);
        let order = format!("STEP={step}\nRESULTS={word}\nTAGS='{}'\nDISKS='{}'\n", tags.join(" "), devices.join(" "));
        let disk = devices.first().map(|device| Variable::new("DISK", device));
        let variables: String = disk.iter().chain(&self.variables).map(|variable| format!("{variable}\n")).collect();
        let mut files = vec![("/testvm/step", order.as_bytes()), ("/testvm/variables", variables.as_bytes())];
        match self.results {
            ResultsBy::Console => files.push(("/testvm/script", script.text().as_bytes())),
            ResultsBy::Share => {
                let import = directory.join("import");
                fs::create_dir(&import).context("making a directory")?;
                fs::write(import.join("script"), script.text()).context("writing the script")?;
                machine.shares.push(share(&import, "testvm", true)?);
                machine.shares.push(share(results, "results", false)?);
            }
        }
        initramfs::write_with(&initrd, &self.initramfs, &self.guest, &files)?;
        machine.kernel = Some(self.guest.kernel.clone());
        machine.initrd = Some(initrd);
        machine.append = Some(format!("quiet panic=-1 {}", machine.append.unwrap_or_default()).trim_end().to_owned());
        machine.no_reboot = true;
        machine.check()?;
        let file = directory.join("machine.toml");
        fs::write(&file, machine.to_toml()?).context("writing the machine's configuration")?;
        Ok(file)
    }

    /// Writes what came over the console to where the share would have had it.
    fn keep_files(&self, results: &Path, console: &StepConsole) -> Result<()> {
        if self.results == ResultsBy::Share {
            return Ok(());
        }
        let output = (OUTPUT.to_owned(), console.output.clone());
        for (name, content) in console.files.iter().filter(|(name, _)| name != OUTPUT).chain([&output]) {
            let path = results.join(name);
            fs::write(&path, content).with_context(|| format!("cannot write {}", path.display()))?;
        }
        Ok(())
    }
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

fn share(directory: &Path, tag: &str, read_only: bool) -> Result<Share> {
    let directory = fs::canonicalize(directory).with_context(|| format!("cannot share {}", directory.display()))?;
    let Ok(tag) = tag.parse() else { bail!("{tag} is no tag") };
    Ok(Share { directory, tag, read_only })
}

/// The begin of a file that a guest made: a regular one, or nothing.
fn text_of(path: &Path, bytes_max: u64) -> String {
    // It may be a link to anywhere, or what blocks who opens it.
    let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
    let Ok(file) = rustix::fs::open(path, flags, Mode::empty()).map(File::from) else { return String::new() };
    let mut bytes = Vec::new();
    let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
    if !is_file || file.take(bytes_max).read_to_end(&mut bytes).is_err() {
        return String::new();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn figures(text: &str) -> Vec<String> {
    text.lines().filter(|line| line.contains('=')).map(str::to_owned).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    #[test]
    fn disks_have_the_names_that_linux_gives_them() {
        let disk = |bus| GuestDisk { name: "null:1M".parse().unwrap(), bus };
        let disks = [DiskBus::Virtio, DiskBus::Ahci, DiskBus::VirtioMmio, DiskBus::Ahci].map(disk);
        assert_eq!(devices(&disks), ["/dev/vda", "/dev/sda", "/dev/vdb", "/dev/sdb"]);
        assert_eq!([25, 26, 51, 52, 701, 702].map(letters), ["z", "aa", "az", "ba", "zz", "aaa"]);
    }

    #[test]
    fn what_a_guest_left_is_read_within_bounds_and_through_no_link() {
        let directory = tempfile::tempdir().unwrap();
        let at = |name: &str| directory.path().join(name);
        fs::write(at("output"), "hello").unwrap();
        symlink("output", at("link")).unwrap();
        assert_eq!(text_of(&at("output"), 4), "hell");
        for name in ["link", "none", ""] {
            assert_eq!(text_of(&at(name), 4), "", "{name}");
        }
        assert_eq!(figures("MB/s=7.5\nnoise\n"), ["MB/s=7.5"]);
    }
}
