//! `blockyard testvm run`.

use crate::run::args::{BackendArg, BusArg, EngineArg, guest_disk};
use anyhow::{Context, Result, bail};
use blockyard_bench::cpu_idle::percent_text;
use blockyard_bench::table::Table;
use blockyard_block::size;
use blockyard_command_line::progress::Line;
use blockyard_command_line::signals::EndSignals;
use blockyard_command_line::usage_error::UsageError;
use blockyard_command_line::{terminal, time};
use blockyard_run::Configuration;
use blockyard_run::configuration::Share;
use blockyard_testvm::{Guest, PROGRAMS, ResultsBy, Script, StepResult, TestVm, write_initramfs};
use clap::{Args, ValueEnum};
use std::fs;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Run a script's steps, each in a machine that has just booted, beside how busy the host was.
///
/// SCRIPT is a shell script whose functions step_NAME are the steps: the line that begins one begins with
/// `step_NAME()`. What stands outside of them goes before each. A step runs in a directory of its own, ends at the
/// first command that fails, and tells its figures with `figure NAME VALUE`; what it leaves in the directory is its
/// result. Tags of --share are mounted at /mnt/TAG.
///
/// Exit status: 1 when a step failed, did not end in time, or its machine died, though the others are run.
#[derive(Args)]
pub struct TestvmRunArgs {
    /// The script.
    #[arg(value_name = "SCRIPT")]
    script: PathBuf,
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
    /// A disk of the guest's; may be repeated.
    #[arg(long, value_name = "DISK")]
    disk: Vec<String>,
    /// What the guest sees the disks as.
    #[arg(long, value_enum, value_name = "BUS", default_value = "virtio")]
    bus: BusArg,
    /// How the host reads and writes files that do not say engine=.
    #[arg(long, value_enum, value_name = "ENGINE")]
    engine: Option<EngineArg>,
    /// Directory that the guest has at /mnt/TAG, with ro for reading only; may be repeated.
    #[arg(long, value_name = "DIR:TAG[,ro]")]
    share: Vec<Share>,
    /// How the script goes in and results come back: by a shared directory, or with the initial file system and over
    /// the console, which takes no driver.
    #[arg(long, value_enum, value_name = "WAY", default_value = "share")]
    results: ResultsArg,
    /// Longest that a machine may run.
    #[arg(long, value_name = "SECONDS", default_value = "300", value_parser = time::seconds)]
    timeout: Duration,
    /// Directory to keep consoles (STEP.log) and results (STEP) in; it must not have those of these steps.
    #[arg(long, value_name = "DIR")]
    output: Option<PathBuf>,
    /// Print one JSON object, what each step printed in it, instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum ResultsArg {
    Share,
    Console,
}

impl TestvmRunArgs {
    /// Runs the command.
    ///
    /// # Errors
    /// When a machine cannot be had, a step failed, or a signal came.
    pub fn run(&self) -> Result<()> {
        let script = Script::read(&self.script)?;
        let steps = self.steps(&script)?;
        let scratch = tempfile::tempdir().context("making a directory")?;
        let vm = self.test_vm(scratch.path())?;
        let (line, signals) = (Line::hidden(), EndSignals::catch()?);
        line.show();
        let mut results = Vec::new();
        for (done, step) in steps.iter().enumerate() {
            line.set_count(done, steps.len(), step);
            let watch =
                &mut || if signals.name().is_some() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
            let Some(result) = vm.step(&script, step, watch)? else { break };
            results.push(result);
        }
        line.clear();
        let text = if self.json { terminal::json(&serde_json::json!({ "steps": results }))? } else { shown(&results) };
        terminal::print(text.trim_end())?;
        if let Some(name) = signals.name() {
            bail!("stopped by {name}");
        }
        match results.iter().filter(|result| result.failed.is_some()).count() {
            0 => Ok(()),
            failed => bail!("{failed} of {} steps failed", results.len()),
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

    fn test_vm(&self, scratch: &Path) -> Result<TestVm> {
        let machine = Configuration {
            backend: self.backend.into(),
            kernel: self.kernel.clone(),
            append: self.append.clone(),
            cpus: self.cpus,
            memory: self.memory,
            engine: self.engine.map(Into::into),
            timeout: Some(self.timeout).filter(|timeout| !timeout.is_zero()),
            disks: self.disk.iter().map(|disk| guest_disk(disk, self.bus)).collect::<Result<_>>()?,
            shares: self.share.clone(),
            ..Configuration::default()
        };
        if let Some(share) =
            machine.shares.iter().find(|share| ["testvm", "results"].contains(&&*share.tag.to_string()))
        {
            return Err(UsageError(format!("--share: {} is the test VM's own tag: take another", share.tag)).into());
        }
        let guest = Guest::of(&machine, self.modules.clone())?;
        let initramfs = match &self.initramfs {
            Some(file) => file.clone(),
            None => {
                let file = scratch.join("test.cpio");
                write_initramfs(&file, Path::new("/"), &PROGRAMS.map(|(name, _)| name))?;
                file
            }
        };
        let output = self.output.clone().unwrap_or_else(|| scratch.join("results"));
        fs::create_dir_all(&output).with_context(|| format!("cannot make {}", output.display()))?;
        let results = match self.results {
            ResultsArg::Share => ResultsBy::Share,
            ResultsArg::Console => ResultsBy::Console,
        };
        let program = std::env::current_exe().context("finding this program's own file")?;
        Ok(TestVm { program, machine, guest, initramfs, results, output })
    }
}

/// A row for each step.
fn shown(results: &[StepResult]) -> String {
    let mut table = Table::new(&["step", "result", "s", "boot s", "idle %", "MHz", "figures"]);
    let seconds = |seconds: Option<f64>| seconds.map_or_else(|| "-".to_owned(), |seconds| format!("{seconds:.2}"));
    for result in results {
        let megahertz: Vec<_> = result.cpu_mhz.iter().map(|megahertz| format!("{megahertz:.0}")).collect();
        table.row(vec![
            result.step.clone(),
            result.failed.clone().unwrap_or_else(|| "ok".to_owned()),
            seconds(result.seconds),
            seconds(result.boot_seconds),
            percent_text(&result.cpu_idle_percent),
            megahertz.join(" "),
            result.figures.join(" "),
        ]);
    }
    table.render_within(terminal::output_columns())
}
