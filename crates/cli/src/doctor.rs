//! `blockyard doctor`: what this machine can do.

mod appliance;
mod facility;
mod kernel;
mod program;
mod tools;

use anyhow::{Result, bail};
use blockyard_block::{Disk, Engine, FileDisk, FileOptions, MemoryMap, programs};
use blockyard_command_line::terminal::{self, print};
use blockyard_session::server::{Server, ServerOptions};
use blockyard_vmm::backend::{self, BackendReport};
use clap::Args;
use facility::{Facility, Lack};
use serde::Serialize;
use std::path::Path;

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
    facilities: Vec<Facility>,
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
    // They answer while the rest is looked at.
    let uml = appliance::find_user_mode_linux();
    let qemu = QEMU.map(|(name, ..)| programs::find(name).map(|path| (program::ask(&path), path)));
    let backends = backend::report().map(Backend::from).into();
    let (uml, confined) = uml.facility();
    let user_namespaces = kernel::user_namespaces(confined.map(|confined| confined.namespaces));
    let mut facilities = vec![server(), kernel::fuse(), kernel::landlock(), user_namespaces, uml, appliance::on_kvm()];
    facilities.extend(QEMU.into_iter().zip(qemu).map(|((name, purpose, package), asked)| {
        let missing = || Lack::new("it is not on the PATH", format!("apt-get install {package}"));
        let answer = |(asked, path): (program::Asked, std::path::PathBuf)| version(&path, asked);
        Facility::new(name, purpose, asked.ok_or_else(missing).and_then(answer))
    }));
    facilities.extend(tools::facilities());
    let report = Report { backends, io_uring: io_uring(), facilities };
    if args.json {
        print(&terminal::json_pretty(&report)?)?;
    } else {
        print(&render(&report))?;
    }
    if !report.backends.iter().any(|backend| backend.usable) {
        bail!("no backend is usable here");
    }
    Ok(())
}

/// Programs of QEMU's, what for, and the Debian package.
const QEMU: [(&str, &str, &str); 3] = [
    ("qemu-system-x86_64", "machines with served disks", "qemu-system-x86"),
    ("qemu-img", "comparisons (`blockyard bench copy`)", "qemu-utils"),
    ("qemu-storage-daemon", "comparisons with another server", "qemu-system-common"),
];

fn version(path: &Path, asked: program::Asked) -> Result<String, Lack> {
    match asked.answer() {
        Ok(version) => Ok(format!("{}: {version}", path.display())),
        Err(why) => Err(Lack::for_good(format!("{}: {why}", path.display()))),
    }
}

fn io_uring() -> Facility {
    let found = match try_io_uring() {
        Ok(()) => Ok("the kernel gives rings".to_owned()),
        Err(error) => Err(Lack::new(
            format!("{error}: threads do its work"),
            "sysctl kernel.io_uring_disabled=0, and a container whose seccomp profile allows it",
        )),
    };
    Facility::new("uring", "many requests at once without a thread for each", found)
}

/// Starts a server, whose threads are all it takes.
fn server() -> Facility {
    let found = match Server::start(&ServerOptions::default()) {
        Ok(_) => Ok("the kernel gives threads and asynchronous I/O".to_owned()),
        Err(error) => Err(Lack::new(
            format!("a server does not start: {error}"),
            "sysctl fs.aio-max-nr=65536, or a laxer container",
        )),
    };
    Facility::new("sessions", "disks in other processes: `serve`, and `image` on files", found)
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
            (true, false) => "usable, though not what auto takes",
        };
        lines.push(format!("  {:<9} {verdict}\n            {}", backend.name, backend.reason));
        lines.extend(backend.remedy.iter().map(|remedy| format!("            to change that: {remedy}")));
    }
    lines.push("How the host can do I/O (--engine):".to_owned());
    lines.extend(describe(&report.io_uring));
    lines.extend(["threads", "sync"].map(|engine| format!("  {engine:<9} usable")));
    lines.push("What else is there:".to_owned());
    lines.extend(report.facilities.iter().flat_map(describe));
    lines.join("\n")
}

fn describe(facility: &Facility) -> Vec<String> {
    let Facility { name, purpose, usable, reason, remedy } = facility;
    let verdict = if *usable { "usable" } else { "not usable" };
    let mut lines = vec![format!("  {name:<9} {verdict}; for {purpose}\n            {reason}")];
    lines.extend(remedy.iter().map(|remedy| format!("            to change that: {remedy}")));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_missing_comes_with_what_it_is_for_and_the_remedy() {
        let lack = Lack::new("it is not on the PATH", "apt-get install it");
        let lines = describe(&Facility::new("it", "doing things", Err(lack))).join("\n");
        assert_eq!(
            lines,
            "  it        not usable; for doing things\n            it is not on the PATH\n            \
             to change that: apt-get install it"
        );
    }
}
