//! The files, the servers, and the programs on them.

use super::place::Place;
use super::task::{Data, Task};
use crate::cpu_idle::CpuTimes;
use crate::partitioned_file::{self, PARTITION_START_BYTES};
use crate::serve_process::ServeProcess;
use crate::{random_file, work_directory};
use anyhow::{Context, Result, bail};
use blockyard_block::specification::DiskSpecification;
use blockyard_block::{private_directory, programs, wait_ready};
use rustix::event::{PollFd, PollFlags};
use rustix::fs::{Advice, Mode, OFlags, fadvise, open};
use rustix::process::{Pid, PidfdFlags, Signal, kill_process, kill_process_group, pidfd_open};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{self, Read, Seek};
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ExitStatus, Stdio};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How often to look whether a measurement is to end.
const LOOK_INTERVAL: Duration = Duration::from_millis(200);
/// How long a program may take to end that was asked to.
const PATIENCE: Duration = Duration::from_secs(2);
/// Of what a program says when it fails, an error repeats so many bytes.
const WORDS_MAX: usize = 400;
/// The disk's name for programs.
const NAME: &str = "/disk";

/// What programs are measured on, and with what.
pub(super) struct Yard<'a> {
    blockyard: &'a Path,
    length_bytes: u64,
    runtime: Duration,
    directory: TempDir,
    /// Unix sockets have short names, so they are not beside the data.
    sockets: TempDir,
}

/// What a program did, and the CPUs meanwhile.
pub(super) struct Run {
    pub(super) rate: f64,
    pub(super) before: CpuTimes,
    pub(super) after: CpuTimes,
}

impl<'a> Yard<'a> {
    /// Makes the files.
    pub(super) fn create(blockyard: &'a Path, parent: &Path, length_bytes: u64, runtime: Duration) -> Result<Self> {
        let directory = work_directory::make_in(parent)?;
        let sockets = private_directory(|place| place.to_str().is_some()).context("making a directory")?;
        let yard = Self { blockyard, length_bytes, runtime, directory, sockets };
        let make = |path: PathBuf, write: &dyn Fn(&Path) -> Result<()>| {
            write(&path).with_context(|| format!("writing {}", path.display()))
        };
        for path in [yard.host(), yard.source()] {
            make(path, &|path| Ok(random_file::write(path, 0, length_bytes)?))?;
        }
        make(yard.image(), &|path| partitioned_file::write(path, length_bytes))?;
        Ok(yard)
    }

    /// What programs have without a disk.
    fn host(&self) -> PathBuf {
        self.directory.path().join("host")
    }

    /// What they write.
    fn source(&self) -> PathBuf {
        self.directory.path().join("source")
    }

    /// What all disks are, with a partition of as many bytes.
    fn image(&self) -> PathBuf {
        self.directory.path().join("disk.img")
    }

    /// Whether the file system has transfers past the page cache.
    pub(super) fn has_direct(&self) -> bool {
        open(self.host(), OFlags::RDONLY | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty()).is_ok()
    }

    /// All files are in the page cache, and as if nobody had done anything to them: how a file got there decides how
    /// fast parts of it are written (Linux's large folios).
    pub(super) fn warm(&self) -> Result<()> {
        self.settle()?;
        for path in [self.host(), self.source(), self.image()] {
            let warm = || {
                let mut file = File::open(&path)?;
                fadvise(&file, 0, None, Advice::DontNeed)?;
                io::copy(&mut file, &mut io::sink())
            };
            warm().with_context(|| format!("reading {}", path.display()))?;
        }
        Ok(())
    }

    /// Whoever writes next waits for nothing that was written before.
    fn settle(&self) -> Result<()> {
        for path in [self.host(), self.source(), self.image()] {
            let synced = File::open(&path).and_then(|file| file.sync_all());
            synced.with_context(|| format!("flushing {}", path.display()))?;
        }
        Ok(())
    }

    /// Measures a program where it is to be, whose server is there before and gone afterwards. None if `watch` has
    /// broken it off.
    pub(super) fn run(
        &self,
        task: &Task,
        place: Place,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Option<Run>> {
        self.settle()?;
        let mut server = self.server(place)?;
        let before = CpuTimes::now().context("reading /proc/stat")?;
        let Some(rate) = self.rate(task, place, server.as_mut(), watch)? else { return Ok(None) };
        let after = CpuTimes::now().context("reading /proc/stat")?;
        server.map_or(Ok(()), ServeProcess::end)?;
        Ok(Some(Run { rate, before, after }))
    }

    fn socket(&self) -> PathBuf {
        self.sockets.path().join("disk")
    }

    /// Who has the disk that `attach` connects to.
    fn server(&self, place: Place) -> Result<Option<ServeProcess>> {
        let socket = self.socket();
        let of_partition = || OsString::from(format!("1={},rw", socket.display()));
        let arguments: Vec<OsString> = match place {
            Place::Host | Place::Own => return Ok(None),
            Place::Direct => vec!["--socket".into(), socket.clone().into()],
            Place::Mediated => vec!["--partition".into(), of_partition()],
            Place::Copying => vec!["--copying".into(), "--partition".into(), of_partition()],
        };
        let arguments: Vec<&OsStr> = arguments.iter().map(OsString::as_os_str).collect();
        let disk = DiskSpecification::of_file(self.image()).to_string();
        let log = self.directory.path().join("serve.log");
        ServeProcess::start(self.blockyard, disk.as_ref(), &arguments, &log, || socket.exists()).map(Some)
    }

    /// What the program says of itself. None if `watch` has broken it off.
    fn rate(
        &self,
        task: &Task,
        place: Place,
        server: Option<&mut ServeProcess>,
        watch: &mut dyn FnMut() -> ControlFlow<()>,
    ) -> Result<Option<f64>> {
        let (host, source) = (self.host(), self.source());
        let data = Data {
            path: if place == Place::Host { &host } else { Path::new(NAME) },
            // Where the same bytes are that a partition has.
            start_bytes: if matches!(place, Place::Own | Place::Direct) { PARTITION_START_BYTES } else { 0 },
            length_bytes: self.length_bytes,
            source: &source,
            runtime: self.runtime,
        };
        let program = task.program().name();
        let mut command = match self.disk(place) {
            None => programs::command(program),
            Some(disk) => {
                let mut command = programs::command(self.blockyard);
                // What it leaves there when it is killed goes with the rest.
                command.env("TMPDIR", self.sockets.path());
                command.arg("attach").arg(disk.to_string()).args([NAME, "--", program]);
                command
            }
        };
        let temporary = || tempfile::tempfile_in(self.directory.path()).context("making a file");
        let (mut stdout, mut stderr) = (temporary()?, temporary()?);
        let shared = |file: &File| file.try_clone().context("making a file");
        command.args(task.arguments(&data)).env("LC_ALL", "C").stdin(Stdio::null());
        command.stdout(shared(&stdout)?).stderr(shared(&stderr)?);
        // Of what a terminal sends, this process hears alone, and ends the others.
        command.process_group(0);
        let child = command.spawn().with_context(|| format!("cannot run {program}"))?;
        let Some(status) = until_it_ends(child, server, watch).with_context(|| program)? else { return Ok(None) };
        let said = text(&mut stderr)?;
        if !status.success() {
            bail!("{program} failed ({status}): {}", said.get(..WORDS_MAX).unwrap_or(&said).trim());
        }
        task.rate(&data, &text(&mut stdout)?, &said).map(Some)
    }

    /// The disk that `attach` opens.
    fn disk(&self, place: Place) -> Option<DiskSpecification> {
        match place {
            Place::Host => None,
            Place::Own => Some(DiskSpecification::of_file(self.image())),
            Place::Direct | Place::Mediated | Place::Copying => Some(DiskSpecification::of_session(self.socket())),
        }
    }
}

fn text(file: &mut File) -> Result<String> {
    let mut bytes = Vec::new();
    file.rewind().and_then(|()| file.read_to_end(&mut bytes)).context("reading what a program said")?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// How the program ended; none if `watch` has broken it off.
///
/// # Errors
/// When its server ends before: it would wait for another one.
fn until_it_ends(
    mut child: Child,
    mut server: Option<&mut ServeProcess>,
    watch: &mut dyn FnMut() -> ControlFlow<()>,
) -> Result<Option<ExitStatus>> {
    let ended = pidfd_open(Pid::from_child(&child), PidfdFlags::empty()).inspect_err(|_| _ = child.kill());
    let ended = ended.context("watching a program")?;
    loop {
        let mut events = vec![PollFd::new(&ended, PollFlags::IN)];
        events.extend(server.iter().map(|server| PollFd::from_borrowed_fd(server.ended(), PollFlags::IN)));
        wait_ready(&mut events, Some(LOOK_INTERVAL)).context("waiting for a program")?;
        let has_ended: Vec<_> = events.iter().map(|event| !event.revents().is_empty()).collect();
        if watch().is_break() {
            return end(&mut child, &ended).map(|()| None);
        }
        if let Some(server) = server.as_mut().filter(|_| has_ended.get(1) == Some(&true)) {
            end(&mut child, &ended)?;
            bail!("the disk is gone: {}", server.own_end()?);
        }
        if has_ended[0] {
            return child.wait().context("waiting for a program").map(Some);
        }
    }
}

/// Has a program end, and what it has started: `attach` waits for its program, and that for a server that may be gone.
fn end(child: &mut Child, ended: &OwnedFd) -> Result<()> {
    let group = Pid::from_child(child);
    let asked = Instant::now();
    // It may have ended, and is there until it has been waited for.
    kill_process(group, Signal::TERM).context("ending a program")?;
    while child.try_wait().context("waiting for a program")?.is_none() {
        let left = PATIENCE.saturating_sub(asked.elapsed());
        if left.is_zero() {
            kill_process_group(group, Signal::KILL).context("ending a program")?;
        }
        let wait = left.max(LOOK_INTERVAL);
        wait_ready(&mut [PollFd::new(ended, PollFlags::IN)], Some(wait)).context("waiting for a program")?;
    }
    Ok(())
}
