//! One run: a machine that boots, builds, and is switched off.

use super::console::{self, Said};
use super::tree::quoted;
use super::{Backend, Guest, KbuildBench, Placement};
use crate::machine_process::{MachineEnd, MachineProcess};
use anyhow::{Context, Result};
use blockyard_block::{NamedFileError, RootDirectory};
use blockyard_linux_guest::{BUSYBOX, modules_in, write_initramfs_with};
use serde::Serialize;
use std::fmt::Write as _;
use std::fs::{self, DirBuilder, File};
use std::io::{ErrorKind, Write as _};
use std::ops::ControlFlow;
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Instant;

/// What drives a share in the guest; what of it a kernel has no module of, it has built in.
const MODULES: [&str; 2] = ["virtio_pci", "virtiofs"];
const STEP: &str = include_str!("step.sh");

/// A machine to build in.
#[derive(Clone, Copy, Debug)]
pub(super) struct Machine<'a> {
    pub(super) backend: Backend,
    pub(super) guest: &'a Guest,
    pub(super) vcpus: u32,
    pub(super) placement: Placement,
    /// Of its logs.
    pub(super) name: &'a str,
}

/// A build that succeeded.
#[derive(Clone, Debug, Serialize)]
pub struct Run {
    /// From its begin to its end, by the host's clock.
    pub seconds: f64,
    /// The same by the guest's.
    pub guest_seconds: f64,
    /// Whether the guest's clock drifted from the host's by more than [`Run::DRIFT_MAX`] and [`Run::DRIFT_SECONDS`].
    pub drifted: bool,
    /// Times that the guest came out to the VMM from power-on to power-off; `None` where there are no exits.
    pub exits: Option<u64>,
    /// CPU time of the VMM from its start to its end, the guest's own instructions among it.
    pub cpu_seconds: f64,
    /// Where its logs are: NAME.log is the console, and NAME/build.log what the build said.
    pub log: String,
}

impl Run {
    /// How far a clock may drift: so much of the time,
    pub const DRIFT_MAX: f64 = 0.01;
    /// and so many seconds more, in which the host hears of what the guest has said.
    pub const DRIFT_SECONDS: f64 = 0.2;

    pub(super) fn has_drifted(seconds: f64, guest_seconds: f64) -> bool {
        (guest_seconds - seconds).abs() > seconds * Self::DRIFT_MAX + Self::DRIFT_SECONDS
    }
}

/// How a run ended.
pub(super) enum Ended {
    Measured(Run),
    Failed(String),
    /// The measurement is to end.
    Interrupted,
}

/// What all runs of a measurement are given.
pub(super) struct Given<'a> {
    bench: &'a KbuildBench,
    tree: PathBuf,
    /// How the tree is put into the current directory, and configured: lines of the shell.
    unpack: String,
    configure: String,
    config: Option<Vec<u8>>,
    /// The guests', where it is not this machine's.
    busybox: Option<Vec<u8>>,
    /// For files of a run.
    directory: &'a Path,
}

impl<'a> Given<'a> {
    /// `directory` is for files of ours.
    pub(super) fn new(bench: &'a KbuildBench, directory: &'a Path) -> Result<Self> {
        let own = directory.join("tree");
        fs::create_dir(&own).context("making a directory")?;
        let (tree, unpack) = bench.tree.given(&own)?;
        let (configure, config) = bench.config.applied()?;
        let busybox = busybox_of_32_bits(&bench.root)?;
        Ok(Self { bench, tree, unpack, configure, config, busybox, directory })
    }

    /// Boots the machine, builds in it, and waits for its end; `watch` says whether to go on.
    ///
    /// # Errors
    /// When it cannot be started, or its logs not be kept.
    pub(super) fn build(&self, machine: Machine<'_>, watch: &mut dyn FnMut() -> ControlFlow<()>) -> Result<Ended> {
        let initrd = self.directory.join("initrd");
        self.write_initrd(&initrd, machine)?;
        let logs = self.bench.logs.join(machine.name);
        // A build may put there whatever of the host it can read, and that is what this user can.
        let made = DirBuilder::new().mode(0o700).create(&logs);
        made.with_context(|| format!("cannot make {} anew", logs.display()))?;
        let log_file = logs.with_extension("log");
        let log = File::options()
            .read(true)
            .write(true)
            .create_new(true)
            .mode(0o600)
            .open(&log_file)
            .with_context(|| format!("cannot make {}", log_file.display()))?;
        let mut log_end = log.try_clone().context("keeping the log")?;
        let clocks = Arc::new(Mutex::new(Clocks::default()));
        let heard = Arc::clone(&clocks);
        let hear = move |line: &[u8]| {
            if let Some(said) = console::said(&String::from_utf8_lossy(line)) {
                heard.lock().unwrap_or_else(PoisonError::into_inner).hear(said, Instant::now());
            }
        };
        let mut command = self.command(machine, &initrd, &logs);
        let process = MachineProcess::start(&mut command, self.directory, log, hear)?;
        let Some(end) = process.until_it_ends(watch)? else { return Ok(Ended::Interrupted) };
        log_end.write_all(end.words.as_bytes()).with_context(|| format!("cannot write {}", log_file.display()))?;
        let clocks = clocks.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(ended(machine, &clocks, &end))
    }

    /// The machine's initial file system: busybox, modules, and the step.
    fn write_initrd(&self, path: &Path, machine: Machine<'_>) -> Result<()> {
        let modules = match &machine.guest.modules {
            Some(directory) => modules_in(directory, &MODULES)?,
            None => Vec::new(),
        };
        let names: Vec<_> = modules.iter().map(|module| format!("{}.ko", module.name)).collect();
        let modules: Vec<_> = names.iter().zip(&modules).map(|(name, module)| (&**name, &module.content[..])).collect();
        let build = self.build_script(machine.vcpus);
        let mut files = vec![(Path::new("/build"), build.as_bytes())];
        files.extend(self.config.iter().map(|config| (Path::new("/config"), &config[..])));
        files.extend(self.busybox.iter().map(|busybox| (Path::new(BUSYBOX), &busybox[..])));
        write_initramfs_with(path, &modules, &files, STEP)
    }

    /// What is done in the root directory, whose console is not its stdout. What comes before the build begins is not
    /// measured.
    fn build_script(&self, vcpus: u32) -> String {
        let targets: Vec<_> = self.bench.targets.iter().map(|target| quoted(target)).collect();
        let mut script = String::from(
            "export HOME=/tmp TMPDIR=/tmp LC_ALL=C PATH=/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin\n\
             say() { read -r up rest </proc/uptime; echo \"BLOCKYARD-KBUILD $1 $up\" >/dev/console; }\n\
             set -e\ncd /tmp/tree\n",
        );
        // A String takes whatever it is given.
        _ = write!(
            script,
            "{}\n{}\nmake -j{vcpus} prepare\nsync\nsay begin\nmake -j{vcpus} {}\nsay end\n",
            self.unpack,
            self.configure,
            targets.join(" ")
        );
        script
    }

    fn command(&self, machine: Machine<'_>, initrd: &Path, logs: &Path) -> Command {
        let Machine { backend, guest, vcpus, placement, .. } = machine;
        let bench = self.bench;
        let mut command = Command::new(&bench.blockyard);
        command.args(["run", "--backend", backend.name(), "--no-reboot", "--stats", "--json"]);
        command.arg("--kernel").arg(&guest.kernel).arg("--initrd").arg(initrd);
        command.args(["--append", "quiet panic=-1", "--memory", &bench.memory_bytes.to_string()]);
        command.args(["--timeout", &bench.timeout.as_secs_f64().to_string()]);
        for (directory, tag) in [(&*bench.root, "root,ro"), (&*self.tree, "tree,ro"), (logs, "logs,limit=1G")] {
            let mut share = directory.as_os_str().to_owned();
            share.push(format!(":{tag}"));
            command.arg("--share").arg(share);
        }
        if backend == Backend::Kvm {
            command.args(["--cpus", &vcpus.to_string(), "--place", placement.name()]);
        }
        command
    }
}

/// The busybox of a 32-bit system, whose kernel executes none of 64 bits; `None` where this machine's serves.
fn busybox_of_32_bits(root: &Path) -> Result<Option<Vec<u8>>> {
    /// Of an ELF file: its class, and which that is.
    const CLASS: usize = 4;
    const CLASS_32: u8 = 1;
    const BYTES_MAX: u64 = 64 << 20;
    let busybox = match RootDirectory::open(root)?.read(Path::new(BUSYBOX), "busybox", BYTES_MAX) {
        Ok(busybox) => busybox,
        Err(NamedFileError::Unreadable { source, .. }) if source.kind() == ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(error.into()),
    };
    Ok(Some(busybox).filter(|busybox| busybox.get(CLASS) == Some(&CLASS_32)))
}

/// What was heard of the two clocks.
#[derive(Debug, Default)]
struct Clocks {
    begin: Option<(f64, Instant)>,
    end: Option<(f64, Instant)>,
    failed: Option<String>,
}

impl Clocks {
    /// The first of each counts.
    fn hear(&mut self, said: Said, when: Instant) {
        match said {
            Said::Begins(time) => _ = self.begin.get_or_insert((time, when)),
            Said::Ends(time) => _ = self.end.get_or_insert((time, when)),
            Said::Failed(why) => _ = self.failed.get_or_insert(why),
        }
    }

    /// Seconds of the build by the host's clock, and by the guest's.
    fn seconds(&self) -> Option<(f64, f64)> {
        let ((guest_begin, begin), (guest_end, end)) = (self.begin?, self.end?);
        Some((end.saturating_duration_since(begin).as_secs_f64(), guest_end - guest_begin))
    }
}

/// What a machine that has ended has measured.
fn ended(machine: Machine<'_>, clocks: &Clocks, end: &MachineEnd) -> Ended {
    if let Some(why) = &clocks.failed {
        return Ended::Failed(why.clone());
    }
    if !end.succeeded() {
        return Ended::Failed(end.failure());
    }
    let Some((seconds, guest_seconds)) = clocks.seconds() else {
        return Ended::Failed(format!("{} before the build had ended", end.unasked()));
    };
    let report = end.report();
    Ended::Measured(Run {
        seconds,
        guest_seconds,
        drifted: Run::has_drifted(seconds, guest_seconds),
        exits: report["exits"]["total"].as_u64().filter(|_| machine.backend == Backend::Kvm),
        cpu_seconds: report["cpu_seconds"].as_f64().unwrap_or_default(),
        log: machine.name.to_owned(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_32_bit_system_brings_its_busybox() {
        let root = tempfile::tempdir().unwrap();
        let busybox = |content: &[u8]| {
            fs::create_dir_all(root.path().join("bin")).unwrap();
            fs::write(root.path().join("bin/busybox"), content).unwrap();
            busybox_of_32_bits(root.path()).unwrap()
        };
        assert_eq!(busybox_of_32_bits(root.path()).unwrap(), None, "it has none");
        assert_eq!(busybox(b"\x7fELF\x01of 32 bits"), Some(b"\x7fELF\x01of 32 bits".to_vec()));
        assert_eq!(busybox(b"\x7fELF\x02"), None);
        assert_eq!(busybox(b""), None);
    }
}
