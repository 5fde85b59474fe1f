//! `blockyard doctor`: what this machine can do.

use crate::print;
use anyhow::{Result, bail};
use blockyard_block::{Disk, Engine, FileDisk, FileOptions, MemoryMap};
use blockyard_vmm::backend::{self, BackendReport};
use clap::Args;
use serde::Serialize;

/// Say what this machine can do, and what would make it do more.
///
/// Every backend is tried out. Exit status 1 when none is usable.
#[derive(Args)]
pub struct DoctorArgs {
    /// Print one JSON object on stdout.
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Backend {
    name: &'static str,
    usable: bool,
    chosen_by_auto: bool,
    reason: String,
    remedy: Option<String>,
}

#[derive(Serialize)]
struct Report {
    backends: Vec<Backend>,
    io_uring: Facility,
}

#[derive(Serialize)]
struct Facility {
    usable: bool,
    reason: String,
}

impl From<BackendReport> for Backend {
    fn from(report: BackendReport) -> Self {
        let BackendReport { name, usable, chosen, reason, remedy } = report;
        Self { name, usable, chosen_by_auto: chosen, reason, remedy }
    }
}

/// Runs the command.
///
/// # Errors
/// When nothing here can run a guest.
pub fn run(args: &DoctorArgs) -> Result<()> {
    let io_uring = match try_io_uring() {
        Ok(()) => Facility { usable: true, reason: "the kernel gives rings".into() },
        Err(error) => Facility { usable: false, reason: format!("{error}: threads do its work") },
    };
    let report = Report { backends: backend::report().map(Backend::from).into_iter().collect(), io_uring };
    if args.json {
        print(&serde_json::to_string_pretty(&report)?)?;
    } else {
        print(&render(&report))?;
    }
    if !report.backends.iter().any(|backend| backend.usable) {
        bail!("no backend is usable here");
    }
    Ok(())
}

/// Opens a queue on this program's own file.
fn try_io_uring() -> Result<()> {
    let options = FileOptions { read_only: true, engine: Engine::Uring, ..FileOptions::default() };
    let disk = FileDisk::open(&std::env::current_exe()?, &options)?;
    disk.open_queue(&MemoryMap::allocate(&[(0, 4096)])?, 1)?;
    Ok(())
}

/// The report for people.
fn render(report: &Report) -> String {
    let mut lines = vec!["Who can execute guests (--backend):".to_owned()];
    for backend in &report.backends {
        let verdict = match (backend.usable, backend.chosen_by_auto) {
            (false, _) => "not usable",
            (true, true) => "usable, and what auto takes",
            (true, false) => "usable",
        };
        lines.push(format!("  {:<9} {verdict}\n            {}", backend.name, backend.reason));
        lines.extend(backend.remedy.iter().map(|remedy| format!("            to change that: {remedy}")));
    }
    lines.push("How the host can do I/O (--engine):".to_owned());
    let verdict = if report.io_uring.usable { "usable" } else { "not usable" };
    lines.push(format!("  {:<9} {verdict}\n            {}", "uring", report.io_uring.reason));
    lines.extend(["threads", "sync"].map(|engine| format!("  {engine:<9} usable")));
    lines.join("\n")
}
