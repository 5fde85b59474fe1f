//! `blockyard bench kbuild`.

use super::backend::BackendArg;
use super::comparison::{Progress, this_program};
use anyhow::{Context, Result, bail};
use blockyard_appliance::{Backend as Appliances, Kernel};
use blockyard_bench::kbuild::{self, Backend, Config, Guest, KbuildBench, KbuildResults, Placement, Tree};
use blockyard_block::size;
use blockyard_command_line::usage_error::UsageError;
use blockyard_command_line::{terminal, time};
use blockyard_hypervisor::kvm;
use blockyard_vmm::placement::CpuList;
use clap::{Args, ValueEnum};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Most vCPUs where nobody says how many, as far as the host has as many CPUs.
const VCPUS_DEFAULT_MAX: usize = 4;

/// Build a kernel in virtual machines, in their memory, with 1 to N vCPUs on CPUs shared with the VMM or not.
///
/// Each run boots a machine afresh; the tree is copied into its memory, configured (`make CONFIG`) and prepared (`make
/// prepare`), and `make -jN TARGET` is timed, by the host's clock and by the guest's. The compiler, make and what else
/// the tree needs are those of a root directory, which the guest sees as a share for reading. Percentages are against
/// the disjoint run with one vCPU. Where vCPUs, or the VMM beside them, have not a CPU each, the table has exits and
/// CPU time of the VMM instead. Needs busybox-static, gcc and make.
///
/// Exit status: 1 when a run failed, though the others are shown, and when nothing could be measured.
#[derive(Args)]
pub struct KbuildBenchArgs {
    /// Kernel tree, as a directory or a tar archive [default: a small tree that is built in a second or two].
    #[arg(long, value_name = "DIR|TAR")]
    tree: Option<PathBuf>,
    /// What configures it: a target of make, such as defconfig, or a file to be its .config.
    #[arg(long, value_name = "TARGET|FILE", default_value = "tinyconfig")]
    config: PathBuf,
    /// What is built; may be repeated, or several with commas.
    #[arg(long, value_name = "TARGET", value_delimiter = ',', default_value = "vmlinux")]
    target: Vec<String>,
    /// Most vCPUs [default: as many as there are CPUs, but no more than 4].
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=255))]
    cpus: Option<u32>,
    /// Where the VMM's I/O threads run: on the first vCPU's CPU, or on CPUs of their own.
    #[arg(long, value_enum, value_name = "PLACE", value_delimiter = ',', default_value = "shared,disjoint")]
    place: Vec<PlaceArg>,
    /// Who executes the guests.
    #[arg(long, value_enum, value_name = "BACKEND", value_delimiter = ',', default_value = "kvm,uml")]
    backend: Vec<BackendArg>,
    /// Runs of each machine, in turn.
    #[arg(long, value_name = "N", default_value = "2", value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Root directory with the compiler: of a 32-bit system for a 32-bit guest.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
    /// Kernel to boot on KVM, of 32 or 64 bits [default: the one in /boot]; with --backend uml alone, User-Mode Linux
    /// [default: linux.uml, as it is installed].
    #[arg(long, value_name = "FILE")]
    kernel: Option<PathBuf>,
    /// Directory below which its modules are; without it, virtiofs is built in.
    #[arg(long, value_name = "DIR", requires = "kernel")]
    modules: Option<PathBuf>,
    /// Memory of a guest: the tree, and what is made of it, are in there.
    #[arg(long, value_name = "SIZE", default_value = "1G", value_parser = size::parse)]
    memory: u64,
    /// Longest that a run may take.
    #[arg(long, value_name = "SECONDS", default_value = "7200", value_parser = time::seconds)]
    timeout: Duration,
    /// Directory for the logs of every run, which are kept; those of an earlier measurement are removed.
    #[arg(long, value_name = "DIR", default_value = "kbuild-logs")]
    logs: PathBuf,
    /// Directory for other files, which are removed.
    #[arg(long, value_name = "DIR", default_value = ".")]
    directory: PathBuf,
    /// Print one JSON object, every run in it, instead of a table.
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum PlaceArg {
    Shared,
    Disjoint,
}

/// Runs the command.
///
/// # Errors
/// When something cannot be measured, a run failed, or a signal came.
pub fn run(args: &KbuildBenchArgs) -> Result<()> {
    let bench = args.bench()?;
    let mut progress = Progress::start()?;
    let results = kbuild::run(&bench, |done, count, next| progress.show(done, count, next))?;
    let text = if args.json { terminal::json(&results)? } else { shown(&results, &args.logs) };
    progress.finish(&text)?;
    match results.failures().len() {
        0 if results.are_empty() => bail!("nothing was measured: no backend that was asked for can be had here"),
        0 => Ok(()),
        1 => bail!("one machine failed to build it; its log is in {}", args.logs.display()),
        count => bail!("{count} machines failed to build it; their logs are in {}", args.logs.display()),
    }
}

fn shown(results: &KbuildResults, logs: &Path) -> String {
    let mut text = results.table().render_within(terminal::output_columns()) + "\n";
    for note in results.notes() {
        text += &format!("\n{}", blockyard_block::printable(&note));
    }
    text + &format!("\nLogs: {}/BACKEND-VCPUS-PLACE-ROUND.log, and what make said below the same name.", logs.display())
}

impl PlaceArg {
    fn placement(self) -> Placement {
        match self {
            Self::Shared => Placement::Shared,
            Self::Disjoint => Placement::Disjoint,
        }
    }
}

impl KbuildBenchArgs {
    fn bench(&self) -> Result<KbuildBench> {
        if self.target.iter().any(|target| target.is_empty()) {
            return Err(UsageError("--target: an empty word is no target".to_owned()).into());
        }
        let host_cpus = CpuList::usable().context("finding out which CPUs there are")?.cpus().len();
        let vcpus = self.cpus.unwrap_or(host_cpus.min(VCPUS_DEFAULT_MAX) as u32);
        let tree = self.tree.as_deref().map(Tree::at).transpose()?.unwrap_or_default();
        let root = &self.root;
        let mut backends: Vec<(Backend, Result<Guest, String>)> = Vec::new();
        for &backend in &self.backend {
            let found = match backend {
                BackendArg::Kvm => (Backend::Kvm, self.on_kvm()),
                BackendArg::Uml => (Backend::Uml, self.on_uml()),
            };
            if !backends.iter().any(|(other, _)| *other == found.0) {
                backends.push(found);
            }
        }
        let mut placements: Vec<_> = self.place.iter().map(|place| place.placement()).collect();
        placements.sort();
        placements.dedup();
        Ok(KbuildBench {
            blockyard: this_program()?,
            backends,
            vcpus,
            placements,
            host_cpus,
            rounds: self.rounds,
            tree,
            config: self.config(),
            targets: self.target.clone(),
            root: root.canonicalize().with_context(|| format!("cannot read the root {}", root.display()))?,
            memory_bytes: self.memory,
            logs: self.logs.clone(),
            directory: self.directory.clone(),
            timeout: self.timeout,
        })
    }

    /// A word that can be a target of make is one; a file is named otherwise, as `./config` at the least.
    fn config(&self) -> Config {
        match self.config.to_str() {
            Some(word) if word.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"_-".contains(&byte)) => {
                Config::Target(word.to_owned())
            }
            _ => Config::File(self.config.clone()),
        }
    }

    fn on_kvm(&self) -> Result<Guest, String> {
        let Some(kernel) = &self.kernel else { return found(Kernel::find(Appliances::Kvm)) };
        // Whoever names one knows what it is for, however slow KVM is; on PVM it would not come up today.
        let kvm = kvm::probe();
        if kvm.usable && !kvm::emulates_guests() {
            Ok(Guest { kernel: kernel.clone(), modules: self.modules.clone() })
        } else {
            Err(kvm.reason)
        }
    }

    fn on_uml(&self) -> Result<Guest, String> {
        // Beside KVM, the kernel that is named is for that.
        match self.kernel.as_ref().filter(|_| !self.backend.contains(&BackendArg::Kvm)) {
            Some(kernel) => {
                let guest = found(Kernel::user_mode_linux_at(kernel))?;
                Ok(Guest { modules: self.modules.clone().or(guest.modules), ..guest })
            }
            None => found(Kernel::find(Appliances::Uml)),
        }
    }
}

fn found(kernel: Result<Kernel, blockyard_appliance::KernelError>) -> Result<Guest, String> {
    let kernel = kernel.map_err(|error| error.to_string())?;
    Ok(Guest { modules: kernel.modules().map(Path::to_owned), kernel: kernel.file })
}
