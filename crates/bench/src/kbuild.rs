//! How long a kernel takes to build in a virtual machine, in memory: with one vCPU or several, on CPUs that they share
//! with the VMM or not, on each backend.
//!
//! The compiler is the host's (or another root directory's), by a share for reading; so is the tree, which the guest
//! copies into its memory, configures and prepares before the clock starts. Each run boots afresh. The seconds are the
//! host's; the guest's clock runs beside them, as one that is wrong makes every figure of a guest's wrong.

mod console;
mod machine;
mod results;
mod tree;

pub use crate::backend::Backend;
pub use machine::Run;
pub use results::{Base, Cell, KbuildResults, Row};
pub use tree::{Config, Tree};

use crate::work_directory;
use anyhow::{Context, Result};
use blockyard_block::unchangeable;
use machine::{Ended, Given, Machine};
use serde::Serialize;
use std::fs;
use std::io;
use std::ops::ControlFlow;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// What to measure.
#[derive(Clone, Debug)]
pub struct KbuildBench {
    /// The `blockyard` binary to measure.
    pub blockyard: PathBuf,
    /// Who executes the guests, and what boots there or why nothing does.
    pub backends: Vec<(Backend, Result<Guest, String>)>,
    /// Most vCPUs.
    pub vcpus: u32,
    /// How they are placed.
    pub placements: Vec<Placement>,
    /// CPUs of the host that this process may use.
    pub host_cpus: usize,
    /// Runs of each machine, in turn.
    pub rounds: u32,
    /// What is built.
    pub tree: Tree,
    /// How it is configured.
    pub config: Config,
    /// What of it is made.
    pub targets: Vec<String>,
    /// The root directory with the compiler.
    pub root: PathBuf,
    /// Memory of a guest.
    pub memory_bytes: u64,
    /// Where the logs are kept.
    pub logs: PathBuf,
    /// Where other files go.
    pub directory: PathBuf,
    /// Longest that a run may take.
    pub timeout: Duration,
}

impl Backend {
    fn has(self, vcpus: u32, placement: Placement) -> bool {
        self == Self::Kvm || (vcpus, placement) == (1, Placement::Shared)
    }
}

/// What boots on a backend.
#[derive(Clone, Debug)]
pub struct Guest {
    /// The kernel.
    pub kernel: PathBuf,
    /// The directory of its modules, if it has any.
    pub modules: Option<PathBuf>,
}

/// Where the VMM's I/O threads run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Placement {
    /// On the first vCPU's CPU.
    Shared,
    /// On a CPU of their own.
    Disjoint,
}

impl Placement {
    /// As `blockyard run --place` has it.
    pub fn name(self) -> &'static str {
        match self {
            Self::Shared => "shared",
            Self::Disjoint => "disjoint",
        }
    }

    /// Whether so many vCPUs are placed like this on so many CPUs, each on its own.
    fn fits(self, vcpus: u32, host_cpus: usize) -> bool {
        let others = usize::from(self == Self::Disjoint);
        vcpus as usize + others <= host_cpus
    }
}

/// Measures everything; `watch` hears again and again what is done, of how much, and says whether to go on. A run that
/// fails leaves its cell without a figure, and a sentence in its place.
///
/// # Errors
/// When the tree or the config cannot be read, the logs cannot be kept, others could change them, or a machine cannot
/// be started.
pub fn run(bench: &KbuildBench, mut watch: impl FnMut(usize, usize, &str) -> ControlFlow<()>) -> Result<KbuildResults> {
    let directory = work_directory::make_in(&bench.directory)?;
    let context = || format!("cannot keep logs in {}", bench.logs.display());
    fs::create_dir_all(&bench.logs).with_context(context)?;
    // Shares know directories by names that mean the same wherever they are looked at, and whoever looks.
    let logs = unchangeable(&bench.logs).with_context(context)?;
    remove_logs(&logs).with_context(context)?;
    let bench = &KbuildBench { logs, ..bench.clone() };
    let given = Given::new(bench, directory.path())?;
    let mut results = KbuildResults::new(bench);
    let count = bench.rounds as usize * results.cells().count();
    let mut done = 0;
    'all: for round in 1..=bench.rounds {
        for (row, (backend, guest)) in bench.backends.iter().enumerate() {
            let Ok(guest) = guest else { continue };
            for cell in &mut results.rows[row].cells {
                let (vcpus, placement) = (cell.vcpus, cell.placement);
                let what = format!("{}, {vcpus} vCPU {}, round {round}", backend.name(), placement.name());
                let name = format!("{}-{vcpus}-{}-{round}", backend.name(), placement.name());
                let machine = Machine { backend: *backend, guest, vcpus, placement, name: &name };
                match given.build(machine, &mut || watch(done, count, &what))? {
                    Ended::Measured(run) => cell.runs.push(run),
                    Ended::Failed(why) => cell.failed = Some(format!("{name}: {why}")),
                    Ended::Interrupted => break 'all,
                }
                done += 1;
            }
        }
    }
    results.base = results.find_base();
    Ok(results)
}

/// Removes the logs of an earlier measurement, so that none of them is taken for one of this, however that ends.
fn remove_logs(logs: &Path) -> io::Result<()> {
    for entry in fs::read_dir(logs)? {
        let entry = entry?;
        if !entry.file_name().to_str().is_some_and(is_of_a_run) {
            continue;
        }
        if entry.file_type()?.is_dir() {
            fs::remove_dir_all(entry.path())?;
        } else {
            fs::remove_file(entry.path())?;
        }
    }
    Ok(())
}

/// Whether a log is called so, or the directory of a run's: BACKEND-VCPUS-PLACE-ROUND.
fn is_of_a_run(name: &str) -> bool {
    let words: Vec<_> = name.strip_suffix(".log").unwrap_or(name).split('-').collect();
    let is_number = |word: &str| !word.is_empty() && word.bytes().all(|byte| byte.is_ascii_digit());
    let [backend, vcpus, placement, round] = words[..] else { return false };
    [Backend::Kvm, Backend::Uml].iter().any(|known| known.name() == backend)
        && [Placement::Shared, Placement::Disjoint].iter().any(|known| known.name() == placement)
        && is_number(vcpus)
        && is_number(round)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn logs_of_an_earlier_measurement_go_and_nothing_else() {
        let logs = tempfile::tempdir().unwrap();
        let at = |name: &str| logs.path().join(name);
        for name in
            ["kvm-12-shared-3.log", "uml-1-disjoint-1.log", "kvm-1-shared.log", "notes-1-shared-1", "uml-x-shared-1"]
        {
            fs::write(at(name), "").unwrap();
        }
        fs::create_dir(at("kvm-12-shared-3")).unwrap();
        fs::write(at("kvm-12-shared-3/build.log"), "").unwrap();
        remove_logs(logs.path()).unwrap();
        let mut left: Vec<_> = fs::read_dir(logs.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        left.sort();
        assert_eq!(left, ["kvm-1-shared.log", "notes-1-shared-1", "uml-x-shared-1"]);
    }
}
