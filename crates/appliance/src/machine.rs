//! A guest's kernel in a process of its own, and its disks, which threads of this process serve.

use crate::child_process::ChildProcess;
use crate::confined::{Confined, LineStart, LineWord, give_program};
use crate::directory::{make_directory, new_file, permit, takes_memory};
use crate::error::Cause;
use crate::kernel::Kernel;
use crate::kernel_process::{self, KernelArguments, PRELOAD_NAME, tasks_max};
use crate::kvm_process;
use crate::slot::SlotDisk;
use crate::system::ConsoleSize;
use blockyard_block::{AdmittedMemory, Disk, error_at, wait_ready};
use blockyard_confinement::program_filter::{AnsweredCalls, OwnProcesses};
use blockyard_linux_guest::PRELOAD;
use blockyard_session::server::{Export, Server, ServerOptions, Session};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use std::fs::{self, File};
use std::io::{self, Write};
use std::num::NonZeroU32;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// How often to look whether somebody wants the end, and whether there is progress.
pub(crate) const TICK: Duration = Duration::from_millis(100);
/// How long a guest may take to be gone that has let go of a disk: on a busy machine, its processes and its memory take
/// a while.
pub(crate) const ENDING: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
/// How long a disk may take to finish what the guest has asked of it before: not for ever, if it hangs.
const LETTING_GO: Timespec = Timespec { tv_sec: 10, tv_nsec: 0 };
/// What the initramfs is called in the kernel's current directory.
pub(crate) const INITRAMFS_NAME: &str = "initramfs";

/// A program, and its first arguments, that calls [`crate::kernel_process::run`] with those that follow.
pub(crate) type Launcher = (PathBuf, Vec<&'static str>);

/// What a machine is made of.
pub(crate) struct MachineParts<'parts> {
    pub(crate) kernel: &'parts Kernel,
    pub(crate) launcher: &'parts Launcher,
    pub(crate) memory_bytes: u64,
    /// In the order in which the kernel finds them.
    pub(crate) disks: Vec<Export>,
    /// Their device type (virtio 1.2 §5): [`DISKS`], or [`NOTHING`].
    pub(crate) disk_type: u32,
    /// Those of them whose disk is somebody else's: let go of when the guest ends.
    pub(crate) slots: Vec<Arc<SlotDisk>>,
    /// Behind the disks.
    pub(crate) others: Vec<ServedElsewhere>,
    /// The kernel's, without those that name disks.
    pub(crate) arguments: Vec<String>,
    /// Of the kernel's consoles, where it is a program.
    pub(crate) console_size: ConsoleSize,
}

/// virtio-blk.
pub(crate) const DISKS: u32 = 2;
/// A type that no driver is for: the kernel connects to such a disk, and does not have it.
pub(crate) const NOTHING: u32 = 0xfff;

/// A device of the guest's that another process serves over vhost-user.
#[derive(Clone)]
pub struct ServedElsewhere {
    /// The device type (virtio 1.2 §5).
    pub device_type: u32,
    /// Gives whoever serves it the stream on which the guest's kernel has connected. The kernel waits meanwhile.
    pub serve: Arc<dyn Fn(UnixStream) -> io::Result<()> + Send + Sync>,
}

/// What the kernel connects to.
enum Awaited {
    Disk(Export),
    Other(ServedElsewhere),
}

/// The ends that the kernel has of its lines, which are sockets.
pub(crate) struct Lines {
    /// Its standard input: what becomes of its process is said there before the kernel has it.
    pub(crate) serial: UnixStream,
    /// Its standard output.
    pub(crate) console: UnixStream,
    /// Its standard error, for what is said before there is a console.
    pub(crate) words: UnixStream,
}

/// How long somebody waits for a kernel that starts.
pub(crate) struct Patience<'wish> {
    deadline: Instant,
    timeout: Duration,
    /// The signal that wants the end.
    interrupted: &'wish dyn Fn() -> Option<String>,
}

impl<'wish> Patience<'wish> {
    pub(crate) fn new(timeout: Duration, interrupted: &'wish dyn Fn() -> Option<String>) -> Self {
        Self { deadline: Instant::now() + timeout, timeout, interrupted }
    }
}

/// A guest. It ends when it is dropped: what was not synced is lost.
pub(crate) struct Machine {
    // In this order: no process of the guest is left when its disks go.
    pub(crate) process: ChildProcess,
    /// Who answers what it may not do by itself.
    answered: Option<AnsweredCalls>,
    pub(crate) sessions: Vec<Session>,
    /// Disks and other devices that the kernel has not connected to.
    awaited: Vec<(UnixListener, Awaited)>,
    slots: Vec<Arc<SlotDisk>>,
    confined: Confined,
    /// What the process becomes, unless that is a virtual machine.
    program: Option<Arc<File>>,
    memory_bytes: u64,
    started_as: String,
    server: Server,
    /// Gone once it runs: so a command that is killed leaves nothing behind.
    directory: Option<TempDir>,
}

impl Machine {
    /// Starts the process that becomes the kernel. `write_initramfs` writes what it boots.
    pub(crate) fn start(
        parts: MachineParts<'_>,
        lines: Lines,
        write_initramfs: impl FnOnce(File) -> io::Result<()>,
    ) -> Result<Self, Cause> {
        let start = |what| move |error| Cause::Start(what, error);
        // On KVM, its memory has no name.
        let named_bytes = if parts.kernel.is_for_kvm() { 0 } else { parts.memory_bytes };
        let directory = make_directory(named_bytes).map_err(start("making a directory"))?;
        let root = directory.path().join("root");
        let made = fs::create_dir(&root).and_then(|()| permit(&root, 0o700));
        made.map_err(|error| Cause::Start("making a directory", error_at(&root, &error)))?;
        let initramfs = new_file(&directory.path().join(INITRAMFS_NAME));
        initramfs.and_then(write_initramfs).map_err(start("writing its initramfs"))?;
        if !parts.kernel.is_for_kvm() {
            let library = new_file(&directory.path().join(PRELOAD_NAME));
            library.and_then(|mut file| file.write_all(PRELOAD)).map_err(start("writing its library"))?;
        }
        let listen = |index: usize| {
            let path = directory.path().join(index.to_string());
            let listener = UnixListener::bind(&path)?;
            permit(&path, 0o600).map(|()| listener)
        };
        let devices = parts.disks.len() + parts.others.len();
        let listeners = (0..devices).map(listen).collect::<io::Result<Vec<_>>>();
        let listeners = listeners.map_err(start("making its disks' sockets"))?;
        // The guest's memory is a file of the directory, wherever that is; its kernel says which before it has looked
        // at a disk.
        let admitted_memory = AdmittedMemory::first_file();
        let options = ServerOptions { admitted_memory, rings_eventfds: false, ..ServerOptions::default() };
        let server = Server::start(&options).map_err(start("starting its disks' threads"))?;
        let process = spawn(&parts, lines, &directory)?;
        let awaited = parts.disks.into_iter().map(Awaited::Disk).chain(parts.others.into_iter().map(Awaited::Other));
        Ok(Self {
            process,
            answered: None,
            sessions: Vec::new(),
            awaited: listeners.into_iter().zip(awaited).collect(),
            slots: parts.slots,
            confined: Confined::default(),
            program: parts.kernel.program().cloned(),
            memory_bytes: parts.memory_bytes,
            started_as: kernel_process::started_as(parts.launcher),
            server,
            directory: Some(directory),
        })
    }

    /// Lets the kernel start until it has its disks, and has looked at none of them. `line` is this end of
    /// [`Lines::serial`].
    pub(crate) fn attach(&mut self, line: &impl AsFd, patience: &Patience<'_>) -> Result<(), Cause> {
        self.await_kernel(line, patience)?;
        match self.program.take() {
            None => self.attach_virtual_machine(line, patience)?,
            Some(program) => {
                give_program(line, program).map_err(|_| Cause::Ended)?;
                self.attach_program(line, patience)?;
            }
        }
        // It has its sockets and has read its initramfs.
        self.directory = None;
        Ok(())
    }

    /// What becomes a virtual machine connects to its disks, is shut in, and only then says so: then its kernel begins.
    fn attach_virtual_machine(&mut self, line: &impl AsFd, patience: &Patience<'_>) -> Result<(), Cause> {
        self.accept_all(patience)?;
        self.confined = self.receive_start(line, patience)?.confined;
        Ok(())
    }

    /// What becomes a program, and has been given it, is shut in, connects to its disks, and is then sealed.
    fn attach_program(&mut self, line: &impl AsFd, patience: &Patience<'_>) -> Result<(), Cause> {
        let start = |what| move |error| Cause::Start(what, error);
        let LineStart { mut confined, listener } = self.receive_start(line, patience)?;
        let answer = |listener: &OwnedFd| AnsweredCalls::of_the_start(listener.try_clone()?);
        let calls = listener.as_ref().map(answer).transpose().map_err(start("letting its process start"))?;
        let roomy = |directory: &TempDir| takes_memory(directory.path(), self.memory_bytes);
        if !confined.namespaces && !self.directory.as_ref().is_some_and(roomy) {
            return Err(Cause::NoRoom(self.memory_bytes >> 20));
        }
        self.accept_all(patience)?;
        confined.sealed = calls.is_some();
        drop(calls);
        let own = OwnProcesses { group: Pid::from_child(&self.process.child), tasks_max: tasks_max(self.memory_bytes) };
        let judge = |listener| AnsweredCalls::judged(listener, own);
        self.answered = listener.map(judge).transpose().map_err(start("judging what its process does"))?;
        self.confined = confined;
        Ok(())
    }

    /// Waits until what was started says that it becomes the kernel: it is a program that may not know it.
    fn await_kernel(&mut self, line: &impl AsFd, patience: &Patience<'_>) -> Result<(), Cause> {
        match self.receive_word(line, patience) {
            Ok(LineWord::Refuses) | Err(Cause::Hung(_)) => Err(Cause::NotKernel(self.started_as.clone())),
            // Whoever was killed may have been about to.
            Err(Cause::Ended) if !self.process.ends_by_signal(ENDING) => Err(Cause::NotKernel(self.started_as.clone())),
            result => result.map(drop),
        }
    }

    /// Waits until the process says how far it is shut in.
    fn receive_start(&self, line: &impl AsFd, patience: &Patience<'_>) -> Result<LineStart, Cause> {
        loop {
            if let LineWord::Start(start) = self.receive_word(line, patience)? {
                return Ok(start);
            }
        }
    }

    /// Waits for a word on the line.
    fn receive_word(&self, line: &impl AsFd, patience: &Patience<'_>) -> Result<LineWord, Cause> {
        loop {
            if let Some(word) = LineWord::receive(line).map_err(|_| Cause::Ended)? {
                return Ok(word);
            }
            self.await_readable(line.as_fd(), patience)?;
        }
    }

    /// Waits for the kernel to connect to all of its disks and other devices.
    fn accept_all(&mut self, patience: &Patience<'_>) -> Result<(), Cause> {
        for (listener, awaited) in std::mem::take(&mut self.awaited) {
            self.accept(&listener, awaited, patience)?;
        }
        Ok(())
    }

    /// Waits for the kernel to connect to a disk or another device.
    fn accept(&mut self, listener: &UnixListener, awaited: Awaited, patience: &Patience<'_>) -> Result<(), Cause> {
        self.await_readable(listener.as_fd(), patience)?;
        let (stream, _) = listener.accept().map_err(|error| Cause::Start("taking its connection", error))?;
        match awaited {
            Awaited::Disk(export) => {
                let session = self.server.attach(stream, export);
                self.sessions.push(session.map_err(|error| Cause::Start("attaching a disk", error))?);
            }
            Awaited::Other(device) => {
                (device.serve)(stream).map_err(|error| Cause::Start("attaching a device", error))?;
            }
        }
        Ok(())
    }

    /// Waits for what the kernel does when it starts.
    fn await_readable(&self, descriptor: BorrowedFd<'_>, patience: &Patience<'_>) -> Result<(), Cause> {
        loop {
            let mut descriptors = [
                PollFd::from_borrowed_fd(descriptor, PollFlags::IN),
                PollFd::from_borrowed_fd(self.process.descriptor.as_fd(), PollFlags::IN),
            ];
            wait_ready(&mut descriptors, Some(TICK)).map_err(|error| Cause::Start("waiting for it", error))?;
            if let Some(signal) = (patience.interrupted)() {
                return Err(Cause::Interrupted(signal));
            }
            if descriptors[0].revents().contains(PollFlags::IN) {
                return Ok(());
            }
            if descriptors[1].revents().contains(PollFlags::IN) {
                return Err(Cause::Ended);
            }
            if Instant::now() > patience.deadline {
                return Err(Cause::Hung(patience.timeout));
            }
        }
    }

    /// Lets go of all disks but the first ones: the guest has taken the others away.
    pub(crate) fn keep_disks(&mut self, count: usize) {
        self.sessions.truncate(count);
        self.slots.clear();
    }

    /// How far it is shut in.
    pub(crate) fn confined(&self) -> Confined {
        self.confined
    }

    /// Kills it, and lets go of its disks: they are for whoever wants them next when this returns.
    pub(crate) fn end(&mut self) {
        self.process.kill();
        self.slots.iter().for_each(|slot| slot.release());
        for session in &self.sessions {
            session.revoke();
            let _ = poll(&mut [PollFd::from_borrowed_fd(session.ended(), PollFlags::IN)], Some(&LETTING_GO));
        }
        self.sessions.clear();
    }
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.end();
    }
}

/// A disk for a guest, which has one processor, and so one queue.
pub(crate) fn export(name: Arc<str>, disk: Arc<dyn Disk>) -> Export {
    Export { name, disk, queues: 1, weight: NonZeroU32::MIN, is_alone: false }
}

fn spawn(parts: &MachineParts<'_>, lines: Lines, directory: &TempDir) -> Result<ChildProcess, Cause> {
    let start = |what| move |error| Cause::Start(what, error);
    let arguments = match parts.kernel.is_for_kvm() {
        true if !parts.others.is_empty() => {
            return Err(Cause::Start("attaching a device", io::Error::other("on KVM there are disks alone")));
        }
        true => kvm_process::arguments(parts.disks.len(), &parts.arguments.join(" ")),
        false => {
            let types =
                parts.disks.iter().map(|_| parts.disk_type).chain(parts.others.iter().map(|device| device.device_type));
            let devices = types.enumerate().map(|(index, number)| format!("virtio_uml.device={index}:{number}"));
            devices.chain(parts.arguments.iter().cloned()).map(Into::into).collect()
        }
    };
    let kernel = KernelArguments::outer(parts.memory_bytes, parts.kernel, arguments);
    let (program, first) = parts.launcher;
    let mut command = Command::new(program);
    command
        .args(first)
        .args(kernel.to_arguments())
        .current_dir(directory.path())
        .stdin(Stdio::from(OwnedFd::from(lines.serial)))
        .stdout(Stdio::from(OwnedFd::from(lines.console)))
        .stderr(Stdio::from(OwnedFd::from(lines.words)));
    kernel_process::mark(&mut command, parts.launcher, parts.console_size);
    let child = command.spawn().map_err(start("starting its process"))?;
    let descriptor = pidfd_open(Pid::from_child(&child), PidfdFlags::empty());
    let descriptor = descriptor.map_err(|errno| Cause::Start("watching its process", errno.into()))?;
    Ok(ChildProcess::new(child, descriptor))
}
