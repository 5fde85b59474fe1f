//! Signals that ask a command to end: caught here and nowhere else. `serve`, which waits for descriptors, has a thread
//! that hears of them too.

use crate::verdict::Verdict;
use anyhow::{Context, Result};
use blockyard_block::layers::hold_nothing_back_after;
use blockyard_block::{EventFd, SecondSignal};
use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::process::{Pid, PidfdFlags, pidfd_open};
use rustix::stdio::stdin;
use rustix::termios::{OptionalActions, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGXFSZ};
use signal_hook::flag;
use signal_hook::iterator::Signals;
use signal_hook::low_level::emulate_default_handler;
use std::fs;
use std::io;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock};
use std::thread;
use std::time::Duration;

/// Zero, or the number of the last signal that asked this process to end and was not forgotten.
static LAST: LazyLock<Arc<AtomicUsize>> = LazyLock::new(Arc::default);

/// The one that kills.
static SECOND: LazyLock<SecondSignal> = LazyLock::new(SecondSignal::default);

/// What comes within this time is the first signal still: timeout(1) sends each twice, and hands are not steady.
const SECOND_AFTER: Duration = Duration::from_secs(1);

/// The set of those that this process was started with ignored, as nohup(1) does, and a shell for what runs in its
/// background: a bit each. Looked at before any is caught.
static IGNORED: LazyLock<u64> = LazyLock::new(|| {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    line.and_then(|set| u64::from_str_radix(set.trim(), 16).ok()).unwrap_or(0)
});

/// Those of these signals that are not to be ignored, by whoever started this process.
pub fn heeded(signals: &[i32]) -> impl Iterator<Item = i32> {
    let ignored = *IGNORED;
    signals.iter().copied().filter(move |signal| ignored >> (signal - 1) & 1 == 0)
}

/// Ctrl-C, SIGTERM and SIGHUP, to be asked for, but those that were ignored when this process was started. The second
/// one, a second after the first or later, kills: whatever the first waits for may never end.
#[derive(Clone, Debug)]
pub struct EndSignals {
    /// The next Ctrl-C does not kill.
    forgives: Arc<AtomicBool>,
}

impl EndSignals {
    /// Which they are.
    pub const ALL: [i32; 3] = [SIGINT, SIGTERM, SIGHUP];

    /// Catches them from now on.
    ///
    /// # Errors
    /// When the system does not let us.
    pub fn catch() -> Result<Self> {
        // One that comes in between is remembered: whoever waits for the other handler would wait in vain.
        let heeded: Vec<_> = heeded(&Self::ALL).collect();
        for &signal in &heeded {
            flag::register_usize(signal, Arc::clone(&LAST), signal as usize).context("catching signals")?;
        }
        SECOND.ends(&heeded, SECOND_AFTER).context("catching signals")?;
        hold_nothing_back_after(&SECOND);
        Ok(Self { forgives: Arc::default() })
    }

    /// The signal that came, by its name; `None` if none has.
    pub fn name(&self) -> Option<String> {
        let last = last();
        if last.is_some() && self.forgives.load(Ordering::Relaxed) && self.is_ctrl_c() {
            SECOND.forget();
        }
        last
    }

    /// Somebody who presses Ctrl-C twice is patient from now on: it ends one thing, and not this process.
    pub fn forgive(&self) {
        self.forgives.store(true, Ordering::Relaxed);
    }

    /// Forgets what came: what it was to end has ended.
    pub fn forget(&self) {
        LAST.store(0, Ordering::Relaxed);
        SECOND.forget();
    }

    /// Whether the signal that came ends one thing rather than all.
    pub fn is_ctrl_c(&self) -> bool {
        LAST.load(Ordering::Relaxed) == SIGINT as usize
    }
}

/// What is readable from the signal that asks this process to end until it is forgotten: for whoever waits for others
/// without end.
pub fn event() -> Option<Arc<EventFd>> {
    SECOND.event()
}

/// SIGQUIT ends this process as ever, with a core where those are kept, but not before stdin's terminal is as it is
/// now. For who changes it, before it does.
///
/// # Errors
/// When the system does not let us.
pub fn quit_gives_the_terminal_back() -> Result<()> {
    // Where stdin is no terminal, nothing is to be given back.
    let Ok(before) = tcgetattr(stdin()) else { return Ok(()) };
    let mut quits = Signals::new([SIGQUIT]).context("catching signals")?;
    // Of its own, as whatever else there is may hang: that is what people send SIGQUIT for.
    let waiting = move || {
        if quits.forever().next().is_some() {
            let _ = tcsetattr(stdin(), OptionalActions::Now, &before);
            let _ = emulate_default_handler(SIGQUIT);
        }
    };
    thread::Builder::new().name("quit".to_owned()).spawn(waiting).context("catching signals")?;
    Ok(())
}

/// Waits for a program of the host's that has the terminal, and Ctrl-C with it: what it does of that is its own matter,
/// however often it comes.
///
/// # Errors
/// When the system does not let us wait.
pub fn wait_for_program(program: &mut Child) -> io::Result<ExitStatus> {
    // Well before a second one kills.
    const OFTEN: Timespec = Timespec { tv_sec: 0, tv_nsec: 200_000_000 };
    let ends = pidfd_open(Pid::from_child(program), PidfdFlags::empty())?;
    loop {
        match poll(&mut [PollFd::new(&ends, PollFlags::IN)], Some(&OFTEN)) {
            Ok(0) | Err(Errno::INTR) => {}
            Ok(_) => return program.wait(),
            Err(errno) => return Err(errno.into()),
        }
        if LAST.load(Ordering::Relaxed) == SIGINT as usize {
            SECOND.forget();
        }
    }
}

/// The last signal that asked this process to end, by its name, until it is forgotten.
pub fn last() -> Option<String> {
    match LAST.load(Ordering::Relaxed) {
        0 => None,
        signal => Some(name(signal as i32)),
    }
}

/// How a process ends that failed because a signal asked it to: as shells have it, 130 for Ctrl-C. `None` if none did.
pub fn exit_status() -> Option<u8> {
    match LAST.load(Ordering::Relaxed) {
        0 => None,
        signal => Some(Verdict::of_signal(signal as u32).0),
    }
}

/// A file that reaches the user's limit (`ulimit -f`) is from now on an error of the write (EFBIG), not the end of the
/// process.
///
/// # Errors
/// When the system does not let us.
pub fn file_size_limit_is_an_error() -> Result<()> {
    flag::register(SIGXFSZ, Arc::default()).map(drop).context("catching signals")
}

/// A signal's name, for people.
fn name(signal: i32) -> String {
    match signal {
        SIGINT => "Ctrl-C (SIGINT)".to_owned(),
        SIGTERM => "SIGTERM".to_owned(),
        SIGHUP => "SIGHUP".to_owned(),
        other => format!("signal {other}"),
    }
}
