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
    facilities.extend(PROGRAMS.map(|(name, purpose, packages, wanted)| needed(name, purpose, packages, wanted)));
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

/// What is looked for, by the name of its first package; what for; all the packages that bring it; and its programs.
const PROGRAMS: [(&str, &str, &str, &[&str]); 4] = [
    (
        "busybox-static",
        "`testvm`, which fetches it where it is not, and `bench kbuild`",
        "busybox-static",
        &["busybox"],
    ),
    ("fio", "`testvm`, which fetches it where it is not, and `bench disk`", "fio", &["fio"]),
    (
        "grub-common",
        "CDs (`testvm build --iso`)",
        "grub-common grub-pc-bin grub-efi-amd64-bin xorriso mtools",
        &["grub-mkrescue", "xorriso", "mcopy"],
    ),
    ("gcc make", "`bench kbuild`, in its guests", "gcc make", &["gcc", "make"]),
];

/// Programs that are all wanted.
fn needed(name: &'static str, purpose: &'static str, packages: &str, wanted: &[&str]) -> Facility {
    let found = wanted.iter().map(|program| programs::find(program).ok_or(*program)).collect::<Result<Vec<_>, _>>();
    let found = match found {
        Ok(paths) => Ok(paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(", ")),
        Err(program) => Err(Lack::new(format!("there is no {program}"), format!("apt-get install {packages}"))),
    };
    Facility::new(name, purpose, found)
}

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
        lines.extend(described(backend.name, verdict, &backend.reason, backend.remedy.as_deref()));
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
    let verdict = format!("{}; for {purpose}", if *usable { "usable" } else { "not usable" });
    described(name, &verdict, reason, remedy.as_deref())
}

/// Columns of the report: as any terminal has, whoever reads it.
const WIDTH: usize = 80;
const INDENT: usize = 12;

fn described(name: &str, verdict: &str, reason: &str, remedy: Option<&str>) -> Vec<String> {
    let mut lines = filled(format!("  {name:<9}"), verdict);
    lines.extend(filled(" ".repeat(INDENT - 1), reason));
    lines.extend(remedy.into_iter().flat_map(|remedy| filled(" ".repeat(INDENT - 1) + " to change that:", remedy)));
    lines
}

/// What `line` begins and `text` goes on with, in lines that end between words.
fn filled(mut line: String, text: &str) -> Vec<String> {
    let mut lines = Vec::new();
    for word in text.split(' ') {
        if line.chars().count() + 1 + word.chars().count() > WIDTH && !line.trim().is_empty() {
            lines.push(std::mem::replace(&mut line, " ".repeat(INDENT - 1)));
        }
        line = line + " " + word;
    }
    lines.push(line);
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

    #[test]
    fn the_report_fits_a_terminal() {
        let words =
            "a reason that goes on and on for longer than any line has room, with a/path/that/has/none".repeat(3);
        let found = Err(Lack::new(words.clone(), words.clone()));
        let lines =
            describe(&Facility::new("qemu-storage-daemon", "comparisons with yet another server of disks", found));
        assert!(lines.iter().all(|line| line.chars().count() <= WIDTH || !line.trim().contains(' ')), "{lines:#?}");
        assert!(lines[1..].iter().all(|line| line.starts_with(&" ".repeat(INDENT))), "{lines:#?}");
        let said = lines.iter().map(|line| line.trim()).collect::<Vec<_>>().join(" ");
        assert!(said.ends_with(&format!("{words} to change that: {words}")), "{said}");
    }
}
