//! `blockyard attach`: a program on a disk.

mod disks;

use anyhow::{Context, Result};
use blockyard_attach::{
    AttachOptions, Attachment, LIBRARY, Looks, REQUESTS_MAX, UntoldFailure, check_names, find_program, install_library,
};
use blockyard_block::{EventFd, shown, size};
use blockyard_command_line::usage_error::UsageError;
use blockyard_command_line::verdict::{EndsWith, Verdict};
use blockyard_command_line::{disk, signals, terminal};
use blockyard_confinement::raise_descriptor_limit;
use blockyard_session::open::OpenOptions;
use clap::{Args, ValueEnum};
use rustix::process::{Resource, getrlimit, setrlimit};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
use signal_hook::iterator::Signals;
use std::ffi::OsString;
use std::io::{IsTerminal, Write, stdout};
use std::os::unix::process::ExitStatusExt;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus};
use std::sync::Arc;
use std::thread;

/// Run a program that finds a disk where it opens a name.
///
/// What the program opens by that name, byte by byte, is the disk: read, written, synced, sought and asked for its size
/// as a block device is, with no file system and no device between. Its children have it, too, and so have programs
/// that they execute, until the program ends: whatever it leaves in the background has no disk then. No other program
/// sees the name.
///
/// Programs that are linked statically, or have more rights than who starts them, are refused, and so are mappings of
/// the disk, and asynchronous I/O of the kernel's (io_uring, libaio; POSIX AIO works).
#[derive(Args)]
pub struct AttachArgs {
    /// A disk, [kind:]path[,key=value...], and the name that the program opens it by; then another such pair.
    #[arg(value_name = "DISK NAME", required_unless_present_any = ["print_library", "install_library"])]
    disks: Vec<OsString>,
    /// Program, with its arguments.
    #[arg(value_name = "PROGRAM", last = true, required_unless_present_any = ["print_library", "install_library"])]
    program: Vec<OsString>,
    /// What the disks look like.
    #[arg(long = "as", value_enum, value_name = "LOOKS", default_value = "device")]
    looks: LooksArg,
    /// POSIX AIO requests that each descriptor may have under way, from 1 to 1024; one more is refused (EAGAIN).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=i64::from(REQUESTS_MAX)))]
    aio_max: Option<u32>,
    /// Print requests, bytes, doorbells and system calls at the end.
    #[arg(long)]
    stats: bool,
    /// Directory whose files an image may refer to; may be given more than once.
    #[arg(long, value_name = "DIR")]
    allow_dir: Vec<PathBuf>,
    /// Write the library to stdout, for LD_PRELOAD by hand, and do nothing else.
    #[arg(long, conflicts_with_all = ["disks", "program"])]
    print_library: bool,
    /// Put the library, its header and its pkg-config file below a directory, for programs that are linked to it, and
    /// do nothing else.
    #[arg(long, value_name = "DIR", conflicts_with_all = ["disks", "program", "print_library"])]
    install_library: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, ValueEnum)]
enum LooksArg {
    /// Block devices.
    Device,
    /// Files of their size.
    File,
}

/// Signals that are the program's matter; those behind the first two are passed on to it.
const SIGNALS: [i32; 4] = [SIGINT, SIGQUIT, SIGTERM, SIGHUP];

/// What shells say of a program that is not there, and of one that cannot be executed.
const MISSING: u8 = 127;
const NOT_EXECUTABLE: u8 = 126;
/// What a program that succeeded ends with here whose writes failed in the end.
const FAILED: u8 = 1;

/// Runs the command.
///
/// # Errors
/// When a disk cannot be opened or the program not be started; the program's own exit status.
pub fn run(args: &AttachArgs) -> Result<()> {
    if args.print_library {
        return print_library();
    }
    if let Some(prefix) = &args.install_library {
        return install_library(prefix);
    }
    let names = || args.disks.chunks(2).filter_map(|pair| Some(pair.get(1)?.as_os_str()));
    if !args.disks.len().is_multiple_of(2) {
        return Err(UsageError("a disk has a name: DISK NAME, and then -- PROGRAM".into()).into());
    }
    check_names(names()).map_err(|error| UsageError(error.to_string()))?;
    let (name, arguments) = args.program.split_first().context("no program is named")?;
    let program = find_program(name).map_err(|error| EndsWith {
        status: if matches!(error, blockyard_attach::ProgramError::Missing(_)) { MISSING } else { NOT_EXECUTABLE },
        error: error.into(),
    })?;
    let ending = Arc::new(EventFd::new().context("making an eventfd")?);
    let ends = || Some(Arc::clone(&ending));
    // Each process has queues of its own.
    let write = disk::to_write(&args.allow_dir).gathering();
    let opening = OpenOptions { is_passed_on: true, ending: &ends, ..write };
    let attached = disks::open(&args.disks, &opening)?;
    let looks = match args.looks {
        LooksArg::Device => Looks::Device,
        LooksArg::File => Looks::File,
    };
    // There may be more processes than this one may have descriptors for; theirs are not its matter.
    let limit = getrlimit(Resource::Nofile);
    raise_descriptor_limit();
    let attachment = Attachment::new(attached, AttachOptions { looks, aio_max: args.aio_max, counts: args.stats })?;
    let signals = Signals::new(signals::heeded(&SIGNALS)).context("catching signals")?;
    let environment = attachment.environment().iter().map(|(name, value)| (name, value));
    setrlimit(Resource::Nofile, limit).context("lowering the limit of descriptors")?;
    let child = Command::new(&program).args(arguments).envs(environment).spawn();
    raise_descriptor_limit();
    let mut child = child.with_context(|| format!("cannot start {}", shown(&program))).map_err(not_executable)?;
    let (status, is_asked) = wait(&mut child, signals)?;
    if is_asked {
        // Whoever wants it to end does not send the same again to one that waits for a server which does nothing.
        ending.ring();
    }
    let settle = |then: Box<dyn FnOnce() + Send>| attachment.settle(then).context("starting a thread");
    let hurry = unless_hurried(settle, "what was written last is not on the disk")?;
    if args.stats {
        tell_statistics(&attachment);
    }
    for (name, why) in attachment.refusals() {
        terminal::tell(&format!("{}: a process could not have it: {why}", shown(name)));
    }
    let has_lost = hurry.is_none() && tell_of_failures(&attachment);
    let hurry = match hurry {
        // What is not in the disk yet need not be.
        Some(_) => attachment.end(|| ()).map(|()| hurry).context("removing a directory"),
        None => {
            let end = |then: Box<dyn FnOnce() + Send>| attachment.end(then).context("removing a directory");
            unless_hurried(end, "the disk is not closed, so bitmaps in it may stay in use")
        }
    }?;
    if let Some(signal) = hurry {
        return Err(Verdict::of_signal(signal as u32).into());
    }
    match status.code().map(u8::try_from) {
        Some(Ok(0)) if has_lost => Err(Verdict(FAILED).into()),
        Some(Ok(0)) => Ok(()),
        Some(Ok(status)) => Err(Verdict(status).into()),
        // As a shell has it.
        _ => Err(Verdict::of_signal(status.signal().unwrap_or(0) as u32).into()),
    }
}

/// The error of a program that is there.
fn not_executable(error: anyhow::Error) -> EndsWith {
    EndsWith { status: NOT_EXECUTABLE, error }
}

/// Waits for the program. What a terminal sends goes to it as to this process; what somebody sends to this process
/// alone is passed on. How it ended, and whether that was because a signal asked it to.
fn wait(child: &mut Child, mut signals: Signals) -> Result<(ExitStatus, bool)> {
    let (handle, pid) = (signals.handle(), rustix::process::Pid::from_child(child));
    let passing = thread::spawn(move || {
        let mut was_terminated = false;
        for signal in signals.forever().filter(|signal| !matches!(*signal, SIGINT | SIGQUIT)) {
            // Of the others, a program that goes on makes what it likes.
            was_terminated |= signal == SIGTERM;
            let signal = rustix::process::Signal::from_named_raw(signal);
            signal.map(|signal| rustix::process::kill_process(pid, signal));
        }
        was_terminated
    });
    let status = signals::wait_for_program(child).context("waiting for the program");
    handle.close();
    let was_terminated = passing.join().unwrap_or(false);
    let status = status?;
    // A shell ends as its program did.
    let by_signal = |signal| status.signal() == Some(signal) || status.code() == Some(0x80 + signal);
    Ok((status, was_terminated || SIGNALS.into_iter().any(by_signal)))
}

/// Waits until what is begun here is done, which calls what it is given then, or for the signal of somebody who does
/// not want to, and hears what is lost: the disk may be slow.
fn unless_hurried(
    begin: impl FnOnce(Box<dyn FnOnce() + Send>) -> Result<()>,
    what_is_lost: &str,
) -> Result<Option<i32>> {
    // What came before was the program's.
    let mut signals = Signals::new(signals::heeded(&SIGNALS)).context("catching signals")?;
    let handle = signals.handle();
    begin(Box::new(move || handle.close()))?;
    let hurry = signals.forever().next();
    if hurry.is_some() {
        terminal::tell(what_is_lost);
    }
    Ok(hurry)
}

/// Says which writes failed that nobody was told of. Whether there are any.
fn tell_of_failures(attachment: &Attachment) -> bool {
    let mut has_any = false;
    for UntoldFailure { name, reason } in attachment.untold_failures() {
        terminal::tell(&format!("{}: what was written last failed: {reason}", shown(&*name)));
        has_any = true;
    }
    has_any
}

fn tell_statistics(attachment: &Attachment) {
    let counts = attachment.statistics().counts;
    let (read, written) = (size::human(counts.bytes_read), size::human(counts.bytes_written));
    terminal::tell(&format!(
        "{} reads ({read}), {} writes ({written}), {} flushes, {} discards, {} doorbells, {} interrupts, {} system \
         calls, {} errors",
        counts.reads,
        counts.writes,
        counts.flushes,
        counts.discards + counts.write_zeroes,
        counts.doorbells,
        counts.interrupts,
        attachment.calls(),
        counts.errors
    ));
}

fn print_library() -> Result<()> {
    let mut out = stdout().lock();
    if out.is_terminal() {
        return Err(
            UsageError("a library is nothing for a terminal: --print-library >libblockyard_posix.so".into()).into()
        );
    }
    out.write_all(LIBRARY).and_then(|()| out.flush()).context("cannot write the output")
}
