//! A guest that runs a system of its own, which nobody asks for anything: it has a console, disks and an end.

use crate::appliance::ImageDisk;
use crate::confined::Confined;
use crate::error::{ApplianceError, Cause};
use crate::kernel::Kernel;
use crate::kernel_command_line;
use crate::kernel_log::{Farewell, KernelLog};
use crate::kernel_process;
use crate::machine::{self, ENDING, Launcher, Lines, Machine, MachineParts, Patience, ServedElsewhere, export};
use blockyard_block::{MemoryDisk, wait_ready};
use blockyard_session::server::{Session, SessionStatistics};
use rustix::event::{PollFd, PollFlags};
use std::fs::File;
use std::io::{self, Write};
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// How long to wait for what a process has said that has ended.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// Takes what a guest says on its console, byte for byte, in a thread of its own. The guest waits for it.
pub type ConsoleTaker = Arc<dyn Fn(&[u8]) + Send + Sync>;

/// What a system's kernel is told, and who hears it.
#[derive(Clone)]
pub struct SystemOptions {
    /// Words for the kernel's command line, and so for the system. The last one of a kind counts.
    pub append: String,
    /// Where its console goes.
    pub console: ConsoleTaker,
    /// Whether its processes work with the kernel by signals instead of being traced (Linux 6.16), which is faster:
    /// each of them can then read all of the guest's memory.
    pub seccomp: bool,
    /// Devices besides the disks.
    pub devices: Vec<ServedElsewhere>,
    /// Which of the devices is a share (virtio-fs) of all of the kernel's modules ([`Kernel::modules`]), that a system
    /// out of an image sees where it looks for them: its tag.
    pub module_share: Option<String>,
    /// Of the console.
    pub console_size: ConsoleSize,
}

/// A kernel with an initial file system that somebody has made.
pub struct InitramfsOptions<'wish> {
    /// What boots.
    pub kernel: &'wish Kernel,
    /// The initial file system: an archive as the kernel unpacks it.
    pub initramfs: File,
    /// As [`ApplianceOptions`](crate::ApplianceOptions) has it.
    pub launcher: &'wish Launcher,
    /// The guest's memory.
    pub memory_bytes: u64,
    /// How long it may take until it has its disks.
    pub timeout: Duration,
    /// Asked meanwhile: the signal that wants it to end.
    pub interrupted: &'wish dyn Fn() -> Option<String>,
    /// What else there is to a system.
    pub system: SystemOptions,
}

/// A guest that runs a system of its own. It ends when it is dropped: what was not synced is lost.
pub struct System {
    machine: Machine,
    hearing: Hearing,
    console: UnixStream,
    /// Of its disks, once it has let go of them.
    statistics: Option<Vec<SessionStatistics>>,
}

/// How large somebody's terminal is, in letters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ConsoleSize {
    /// Lines; 0: nobody knows.
    pub rows: u16,
    /// Letters in a line.
    pub columns: u16,
}

/// How a system ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ending {
    /// It has switched itself off, or halted.
    PoweredOff,
    /// It wants to begin anew.
    Reboots,
    /// Its kernel has died: what it said last.
    Died(String),
    /// One of its disks is gone, and so it is: why.
    LostDisk(String),
}

/// Of the disk that a kernel connects to which has nothing else to connect to.
const NOTHING_BYTES: u32 = 4096;
/// What User-Mode Linux says when it wants to begin anew, and cannot (Linux, arch/um/os-Linux/main.c): it would execute
/// itself, which it must not. It says so where nothing that a guest writes comes.
const WANTS_TO_BEGIN_ANEW: &str = "Failed to exec kernel";

impl System {
    /// Boots a kernel with an initial file system, and `disks` as /dev/vda, /dev/vdb and so on, for which that has to
    /// have a driver.
    ///
    /// # Errors
    /// When its process does not come up.
    pub fn boot(options: InitramfsOptions<'_>, disks: &[ImageDisk]) -> Result<Self, ApplianceError> {
        let without_log = |cause| ApplianceError { cause, kernel_log: Vec::new() };
        kernel_process::refuse_in_kernels().map_err(without_log)?;
        let start = |what| move |error| without_log(Cause::Start(what, error));
        let (near, serial) = UnixStream::pair().map_err(start("making its serial line"))?;
        let InitramfsOptions { kernel, mut initramfs, launcher, memory_bytes, timeout, interrupted, system } = options;
        let (ends, console) = Console::for_people().map_err(start("making its console"))?;
        let mut exports: Vec<_> =
            disks.iter().map(|disk| export(Arc::clone(&disk.name), Arc::clone(&disk.disk))).collect();
        if disks.is_empty() && system.devices.is_empty() {
            // It is shut in when it has connected to its devices: then it has begun.
            let nothing = MemoryDisk::new(NOTHING_BYTES.into(), NOTHING_BYTES).map_err(io::Error::other);
            exports.push(export("nothing".into(), Arc::new(nothing.map_err(start("making its disk"))?)));
        }
        let disk_type = if disks.is_empty() { machine::NOTHING } else { machine::DISKS };
        let mut arguments = kernel_command_line::of_user_mode_linux(memory_bytes, false);
        arguments.extend(kernel_command_line::of_a_system(kernel, &system, ""));
        let (others, console_size) = (system.devices.clone(), system.console_size);
        let (disks, slots) = (exports, Vec::new());
        let parts =
            MachineParts { kernel, launcher, memory_bytes, disks, disk_type, slots, others, arguments, console_size };
        let lines = Lines { serial, console: ends.console, words: ends.words };
        let machine = Machine::start(parts, lines, |mut file| io::copy(&mut initramfs, &mut file).map(drop));
        let machine = machine.map_err(without_log)?;
        let hearing = console.listen(system.console).map_err(start("following its console"))?;
        let mut system = Self::new(machine, hearing, console.stream);
        let attached = system.machine.attach(&near, &Patience::new(timeout, interrupted));
        attached.map_err(|cause| system.not_started(kernel, cause))?;
        Ok(system)
    }

    /// Of an appliance that has been handed over.
    pub(crate) fn new(machine: Machine, hearing: Hearing, console: UnixStream) -> Self {
        Self { machine, hearing, console, statistics: None }
    }

    fn not_started(&mut self, kernel: &Kernel, cause: Cause) -> ApplianceError {
        let has_ended = matches!(cause, Cause::Ended);
        self.end();
        let status = self.machine.process.status.filter(|_| has_ended);
        let cause = match status {
            Some(status) => kernel.is_no_linux().map_or_else(|| Cause::NotStarted(status.to_string()), Cause::NotLinux),
            None => cause,
        };
        ApplianceError { cause, kernel_log: self.hearing.last_words() }
    }

    /// What is typed is written to this. A guest that reads nothing makes whoever writes wait.
    ///
    /// # Errors
    /// When the system has no descriptors left.
    pub fn keyboard(&self) -> io::Result<UnixStream> {
        self.console.try_clone()
    }

    /// How far it is shut in.
    pub fn confined(&self) -> Confined {
        self.machine.confined()
    }

    /// Process id of the guest's first process.
    pub fn process_id(&self) -> u32 {
        self.machine.process.child.id()
    }

    /// What it has done with its disks so far, or until its end.
    pub fn disk_statistics(&self) -> Vec<SessionStatistics> {
        let now = || self.machine.sessions.iter().map(Session::statistics).collect();
        self.statistics.clone().unwrap_or_else(now)
    }

    /// Waits for its end, so long at most; `None` while it runs. When it has ended, all that it said was passed on.
    ///
    /// # Errors
    /// When waiting fails.
    pub fn wait(&mut self, patience: Duration) -> io::Result<Option<Ending>> {
        let process = PollFd::new(&self.machine.process.descriptor, PollFlags::IN);
        let disks = self.machine.sessions.iter().map(|disk| PollFd::from_borrowed_fd(disk.ended(), PollFlags::IN));
        let mut descriptors: Vec<_> = [process].into_iter().chain(disks).collect();
        wait_ready(&mut descriptors, Some(patience))?;
        let has_ended = !descriptors[0].revents().is_empty();
        let lost = self.machine.sessions.iter().find_map(Session::end_reason).map(ToString::to_string);
        match lost {
            _ if has_ended => {}
            None => return Ok(None),
            // Mostly because it is about to be gone altogether.
            Some(_) if self.machine.process.ends_within(ENDING) => {}
            Some(reason) => {
                self.end();
                return Ok(Some(Ending::LostDisk(reason)));
            }
        }
        self.end();
        Ok(Some(match self.machine.process.status.and_then(|status| status.code()) {
            Some(_) if self.hearing.says(WANTS_TO_BEGIN_ANEW) => Ending::Reboots,
            Some(0) => Ending::PoweredOff,
            // It takes a signal that comes as it leaves, its timer's mostly, on a stack that is none of its own any
            // more (Linux, arch/um/os-Linux/main.c, `unblock_signals`), and dies of that.
            _ => match self.hearing.console.farewell() {
                Some(Farewell::Restarts) => Ending::Reboots,
                Some(Farewell::Stops) => Ending::PoweredOff,
                None => Ending::Died(self.why_it_died()),
            },
        }))
    }

    fn why_it_died(&self) -> String {
        let complaints = self.hearing.console.complaints();
        if let Some(panic) = complaints.iter().find(|line| line.starts_with("Kernel panic")) {
            return panic.clone();
        }
        let status = self.machine.process.status;
        let ended = status.map_or_else(|| "it was killed".into(), |status| format!("its process ended with {status}"));
        match complaints.last() {
            Some(said) => format!("{ended}, after it had said: {said}"),
            None => ended,
        }
    }

    /// Ends it, as dropping it does: its disks are let go of when this returns, and what it said is passed on.
    pub fn end(&mut self) {
        self.machine.process.kill();
        self.statistics = Some(self.disk_statistics());
        self.machine.end();
        self.hearing.hear_out();
    }
}

/// What is kept of what a guest says, and the threads that pass it on until its lines are closed.
pub(crate) struct Hearing {
    pub(crate) console: KernelLog,
    /// What is said before there is a console, and after.
    words: Option<KernelLog>,
    threads: Vec<JoinHandle<()>>,
}

impl Hearing {
    /// Waits until all is passed on: nobody is left who says more.
    fn hear_out(&mut self) {
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }

    /// Waits until all is passed on that a process has said which has ended; not long, as others may have what it
    /// wrote to.
    pub(crate) fn hear_last(&self) {
        let began = Instant::now();
        while began.elapsed() < LAST_WORDS && !self.threads.iter().all(JoinHandle::is_finished) {
            thread::sleep(Duration::from_millis(2));
        }
    }

    /// Whether it has said that where there is no console.
    fn says(&self, text: &str) -> bool {
        self.words.as_ref().is_some_and(|words| words.says(text))
    }

    /// What was said last, as [`KernelLog::last_words`] has it.
    pub(crate) fn last_words(&self) -> Vec<String> {
        let words = self.words.as_ref().map(KernelLog::last_words).unwrap_or_default();
        if words.is_empty() { self.console.last_words() } else { words }
    }
}

/// This end of a console.
pub(crate) struct Console {
    pub(crate) stream: UnixStream,
    /// What is said before there is one, if it is not said there too.
    words: Option<UnixStream>,
}

/// The kernel's ends.
pub(crate) struct ConsoleEnds {
    pub(crate) console: UnixStream,
    pub(crate) words: UnixStream,
}

impl Console {
    /// One for people.
    pub(crate) fn for_people() -> io::Result<(ConsoleEnds, Self)> {
        // Both ways, or the kernel takes it for no console.
        let (stream, console) = UnixStream::pair()?;
        let (near, words) = UnixStream::pair()?;
        Ok((ConsoleEnds { console, words }, Self { stream, words: Some(near) }))
    }

    /// One that is only read.
    pub(crate) fn to_read() -> io::Result<(ConsoleEnds, Self)> {
        let (stream, console) = UnixStream::pair()?;
        let words = console.try_clone()?;
        Ok((ConsoleEnds { console, words }, Self { stream, words: None }))
    }

    /// Keeps the last lines, and writes each to `twin`.
    pub(crate) fn follow(&self, twin: Option<Box<dyn Write + Send>>) -> io::Result<Hearing> {
        let (console, thread) = KernelLog::follow(self.stream.try_clone()?, twin)?;
        Ok(Hearing { console, words: None, threads: vec![thread] })
    }

    /// Keeps the last lines, and passes on what comes on the console.
    pub(crate) fn listen(&self, taker: ConsoleTaker) -> io::Result<Hearing> {
        let (console, passing) = KernelLog::tap(self.stream.try_clone()?, taker)?;
        let mut hearing = Hearing { console, words: None, threads: vec![passing] };
        if let Some(words) = &self.words {
            let (words, thread) = KernelLog::follow(words.try_clone()?, None)?;
            hearing.words = Some(words);
            hearing.threads.push(thread);
        }
        Ok(hearing)
    }
}
