//! `blockyard testvm run`.

use super::build::write_own;
use super::measured::{self, Host, Measured};
use super::shown as tables;
use super::summary::{Summary, summaries};
use super::variant::{Variant, VariantArgs, labels};
use crate::bench::yard::{LENGTH_BYTES_MAX, Yard};
use crate::run::args::BackendArg;
use anyhow::{Context, Result, anyhow, bail};
use blockyard_appliance::KernelError;
use blockyard_block::specification::DiskSpecification;
use blockyard_block::{explain, open_named, private_directory, shown, size};
use blockyard_command_line::progress::Line;
use blockyard_command_line::signals::EndSignals;
use blockyard_command_line::usage_error::{UsageError, UsageLines};
use blockyard_command_line::{terminal, time};
use blockyard_hypervisor::kvm;
use blockyard_run::configuration::Share;
use blockyard_run::{Configuration, check_fit, is_on_kvm};
use blockyard_testvm::{Guest, Output, PROGRAMS, ResultsBy, Script, Shipped, StepResult, TestVm, Variable, packages};
use clap::{Args, ValueEnum};
use serde::Serialize;
use std::num::NonZeroU32;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Of the disk that is made where none is named.
const DISK_BYTES_DEFAULT: u64 = 512 << 20;

/// Run a script's steps, each in a machine that has just booted, beside how busy the host was.
///
/// SCRIPT is a shell script whose functions step_NAME are the steps: the line that begins one begins with
/// `step_NAME()`. What stands outside of them goes before each. A step runs in a directory of its own, ends at the
/// first command that fails, and tells its figures with `figure NAME VALUE`; what it leaves in the directory is its
/// result. Tags of --share are mounted at /mnt/TAG. Scripts that come with blockyard (--list) are taken by their names,
/// where no file is called so; they overwrite the first disk.
///
/// Several of --bus, --engine, --direct and --session make a machine of each combination, and each step runs on all of
/// them in turn: a row for each step, with its figure and the idle share of each of the host's CPUs for each machine.
///
/// Exit status: 1 when a step failed, did not end in time, or its machine died, though the others are run.
#[derive(Args)]
pub struct TestvmRunArgs {
    /// The script.
    #[arg(value_name = "SCRIPT", required_unless_present = "list")]
    script: Option<PathBuf>,
    /// Print the names of the scripts that come with blockyard, and run nothing.
    #[arg(long, exclusive = true)]
    list: bool,
    /// Print the script, to make another of it, and run nothing.
    #[arg(long)]
    print: bool,
    /// Only these of its steps, in this order; may be repeated, or several with commas.
    #[arg(long, value_name = "NAME", value_delimiter = ',')]
    step: Vec<String>,
    /// Initial file system, by `testvm build` [default: one that is made for this run].
    #[arg(long, value_name = "FILE")]
    initramfs: Option<PathBuf>,
    /// Kernel to boot [default: the one in /boot on KVM, and the Debian package's User-Mode Linux].
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// Directory below which its modules are [default: /lib/modules/VERSION beside its /boot].
    #[arg(long, value_name = "DIR")]
    modules: Option<PathBuf>,
    /// Words for the kernel's command line.
    #[arg(long, value_name = "WORDS", allow_hyphen_values = true)]
    append: Option<String>,
    /// Who executes the guest: KVM where it executes guest code natively and User-Mode Linux elsewhere (auto), or one
    /// of them.
    #[arg(long, value_enum, value_name = "BACKEND", default_value = "auto")]
    backend: BackendArg,
    /// vCPUs.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=255))]
    cpus: u32,
    /// Memory, in whole MiB.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size::parse)]
    memory: u64,
    /// A disk of the guest's; may be repeated [default: a partition of a new file, for a script of blockyard's].
    #[arg(long, value_name = "DISK")]
    disk: Vec<String>,
    /// Size of that partition, which is made for other scripts too if this is said [default: 512M].
    #[arg(long, value_name = "SIZE", value_parser = size::parse, conflicts_with = "disk")]
    size: Option<u64>,
    /// Directory for the file that it is in, which is removed.
    #[arg(long, value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    #[command(flatten)]
    variants: VariantArgs,
    /// A variable for the script, such as RUNTIME=5; may be repeated.
    #[arg(long, value_name = "NAME=VALUE")]
    set: Vec<Variable>,
    /// Directory that the guest has at /mnt/TAG: for reading only (ro), or to write no more than SIZE into it each time
    /// that it boots; may be repeated.
    #[arg(long, value_name = "DIR:TAG[,ro][,limit=SIZE]")]
    share: Vec<Share>,
    /// How the script goes in and results come back: by a shared directory, or with the initial file system and over
    /// the console, which takes no driver.
    #[arg(long, value_enum, value_name = "WAY", default_value = "share")]
    results: ResultsArg,
    /// Runs of each step on each machine, of which the table has the median.
    #[arg(long, value_name = "N", default_value = "1", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Longest that a machine may run.
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = time::seconds)]
    timeout: Duration,
    /// Directory to keep consoles (STEP.log) and results (STEP) in; it must not have those of these steps.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print one JSON object instead of a table: what was measured, each run with what it printed, and medians with
    /// their spread.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ResultsArg {
    Share,
    Console,
}

/// What came of a step on a machine.
#[derive(Serialize)]
pub struct Outcome {
    /// The machine's side.
    #[serde(flatten)]
    pub variant: Variant,
    /// The step's.
    #[serde(flatten)]
    pub result: StepResult,
    /// Which run of it, from 1 on.
    pub round: u32,
    /// Which machine, by its number.
    #[serde(skip)]
    pub machine: usize,
}

impl TestvmRunArgs {
    /// Runs the command.
    ///
    /// # Errors
    /// When a machine cannot be had, a step failed, or a signal came.
    pub fn run(&self) -> Result<()> {
        let Some(name) = self.script.as_deref().filter(|_| !self.list) else {
            return terminal::print(&tables::scripts());
        };
        let script = Script::named(name)?;
        script.check().with_context(|| format!("{} is no script", shown(name)))?;
        if self.print {
            return terminal::print(script.text().trim_end());
        }
        let (steps, date) = (self.steps(&script)?, measured::now());
        let variants = self.variants.variants();
        let labels = labels(&variants);
        let scratch = private_directory(|_| true).context("making a directory")?;
        let mut vm = self.test_vm()?;
        let (yard, disks) = self.disks(Shipped::all().any(|shipped| shipped.text == script.text()), &variants)?;
        let output = self.output.clone().unwrap_or_else(|| scratch.path().join("results"));
        let all = Output::at(&output)?;
        // Of each machine, one for each round.
        let outputs = labels.iter().map(|label| {
            let own = match label.as_str() {
                "" => Output::at(&output)?,
                label => all.below(&label.replace(' ', "-"))?,
            };
            if self.rounds == 1 {
                Ok(vec![own])
            } else {
                (1..=self.rounds).map(|n| own.below(&n.to_string())).collect()
            }
        });
        let outputs = outputs.collect::<Result<Vec<Vec<Output>>>>()?;
        outputs
            .iter()
            .flatten()
            .try_for_each(|output| steps.iter().try_for_each(|step| output.refuse_results(step)))?;
        let (line, signals) = (Line::hidden(), EndSignals::catch()?);
        line.show();
        let watch = &mut || if signals.name().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
        let mut outcomes = Vec::new();
        let mut run_all = || {
            let runs = steps.iter().flat_map(|step| (1..=self.rounds).map(move |round| (step, round)));
            let count = steps.len() * self.rounds as usize * variants.len();
            for (step, round) in runs {
                for (machine, ((&variant, label), rounds)) in variants.iter().zip(&labels).zip(&outputs).enumerate() {
                    line.set_count(outcomes.len(), count, &format!("{step} {label}"));
                    let served = variant.disks(&disks)?;
                    vm.machine.disks.clone_from(&served.disks);
                    vm.machine.engine = variant.engine();
                    let result = vm.step(&script, step, &rounds[round as usize - 1], watch)?;
                    // What a signal has ended, as it came to the machine too, has not failed.
                    let Some(result) = result.filter(|_| watch().is_continue()) else { return Ok(()) };
                    outcomes.push(Outcome { variant, result, round, machine });
                }
            }
            Ok(())
        };
        let ran: Result<()> = run_all();
        line.clear();
        drop(yard);
        // What there is of a test that was cut short is not lost.
        if ran.is_ok() || !outcomes.is_empty() {
            let summaries = summaries(&outcomes);
            let text = match (self.json, &labels[..]) {
                (true, _) => terminal::json(&serde_json::json!({
                    "measured": self.measured(date, name, &vm, &disks),
                    "steps": outcomes,
                    "summary": summaries.iter().map(Summary::json).collect::<Vec<_>>(),
                }))?,
                (false, [_]) => tables::steps(&summaries) + &tables::notes(&outcomes, &labels, self.rounds),
                (false, labels) => tables::matrix(&summaries, labels) + &tables::notes(&outcomes, labels, self.rounds),
            };
            terminal::print(text.trim_end())?;
        }
        if let Some(name) = signals.name() {
            bail!("stopped by {name}");
        }
        ran?;
        match outcomes.iter().filter(|outcome| outcome.result.failed.is_some()).count() {
            0 => Ok(()),
            failed => bail!("{failed} of {} steps failed", outcomes.len()),
        }
    }

    fn measured(&self, date: String, script: &Path, vm: &TestVm, disks: &[DiskSpecification]) -> Measured {
        Measured {
            version: env!("CARGO_PKG_VERSION"),
            date,
            script: shown(script).to_string(),
            backend: if is_on_kvm(&vm.machine) { "kvm" } else { "uml" },
            kernel_file: shown(vm.kernel_file()).to_string(),
            append: self.append.clone(),
            cpus: self.cpus,
            memory_bytes: self.memory,
            disks: disks.iter().map(ToString::to_string).collect(),
            variables: self.set.iter().map(ToString::to_string).collect(),
            rounds: self.rounds,
            host: Host::this(),
        }
    }

    fn steps(&self, script: &Script) -> Result<Vec<String>> {
        if self.step.is_empty() {
            return Ok(script.steps().to_vec());
        }
        for (index, step) in self.step.iter().enumerate() {
            if !script.steps().contains(step) {
                let known = script.steps().join(", ");
                return Err(UsageError(format!("--step: the script has no step '{step}', but {known}")).into());
            }
            if self.step[..index].contains(step) {
                return Err(UsageError(format!("--step: {step} is there twice")).into());
            }
        }
        Ok(self.step.clone())
    }

    /// The disks, and what keeps the one that is made where none is named.
    fn disks(&self, is_shipped: bool, variants: &[Variant]) -> Result<(Option<Yard>, Vec<DiskSpecification>)> {
        let named: Result<Vec<DiskSpecification>, _> = self.disk.iter().map(|disk| disk.parse()).collect();
        let named = named.map_err(UsageLines::from)?;
        for variant in variants {
            variant.check(&named)?;
        }
        if !named.is_empty() || (self.size.is_none() && !is_shipped) {
            return Ok((None, named));
        }
        let bytes = self.size.unwrap_or(DISK_BYTES_DEFAULT);
        if !bytes.is_multiple_of(1 << 20) || !(1..=LENGTH_BYTES_MAX).contains(&bytes) {
            return Err(UsageError(format!("--size: {} is not whole MiB, or too much", size::exact(bytes))).into());
        }
        let directory = self.directory.canonicalize().with_context(|| shown(&self.directory).to_string())?;
        if directory.to_str().is_none() {
            let directory = shown(&directory);
            return Err(UsageError(format!("--directory: {directory} is no text (UTF-8), as a disk's name is")).into());
        }
        let yard = Yard::create(&directory, bytes, true)?;
        let disk = yard.file_disk().or_partition(NonZeroU32::MIN);
        Ok((Some(yard), vec![disk]))
    }

    /// What boots, or all that is missing for a test VM.
    fn guest(&self, machine: &Configuration) -> Result<Guest> {
        let unusable = is_on_kvm(machine).then(kvm::probe).filter(|kvm| !kvm.usable);
        let guest = match unusable {
            Some(kvm) => Err(KernelError::Kvm { reason: kvm.reason, remedy: kvm.remedy }.into()),
            None => Guest::of(machine, self.modules.clone()),
        };
        guest.map_err(|error| match &packages(&PROGRAMS.map(|(name, _)| name)).1[..] {
            lacking @ [_, ..] if self.initramfs.is_none() => {
                let (lacking, error) = (lacking.join(" "), explain(&*error));
                anyhow!("{error}; and programs of the test VM are missing: run `apt-get install {lacking}`")
            }
            _ => error,
        })
    }

    fn test_vm(&self) -> Result<TestVm> {
        let machine = Configuration {
            backend: self.backend.into(),
            kernel: self.kernel.clone(),
            append: self.append.clone(),
            cpus: self.cpus,
            memory: self.memory,
            timeout: Some(self.timeout).filter(|timeout| !timeout.is_zero()),
            shares: self.share.clone(),
            ..Configuration::default()
        };
        if let Some(share) =
            machine.shares.iter().find(|share| ["testvm", "results"].contains(&&*share.tag.to_string()))
        {
            return Err(UsageError(format!("--share: {} is the test VM's own tag: take another", share.tag)).into());
        }
        check_fit(&Configuration { disks: self.variants.sample(), ..machine.clone() })
            .map_err(|error| UsageError(error.to_string()))?;
        let guest = self.guest(&machine)?;
        let initramfs = match &self.initramfs {
            Some(path) => {
                let file = open_named(path, "the initial file system")?;
                let bytes = file.metadata().with_context(|| shown(path).to_string())?.len();
                if bytes > self.memory {
                    let (bytes, memory) = (size::human(bytes), size::human(self.memory));
                    let sentence = format!("{} has {bytes}, more than the {memory} of --memory", shown(path));
                    return Err(UsageError(format!("--initramfs: {sentence}")).into());
                }
                file
            }
            None => {
                let scratch = private_directory(|_| true).context("making a directory")?;
                let file = tempfile::tempfile_in(scratch.path()).context("making a file")?;
                write_own(&file, &PROGRAMS.map(|(name, _)| name), false)?;
                file
            }
        };
        let results = match self.results {
            ResultsArg::Share => ResultsBy::Share,
            ResultsArg::Console => ResultsBy::Console,
        };
        TestVm::new(machine, &guest, &initramfs, results, self.set.clone())
    }
}
