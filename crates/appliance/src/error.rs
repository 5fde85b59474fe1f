//! What ends an appliance.

use blockyard_block::Remedy;
use std::fmt;
use std::io;
use std::time::Duration;

/// Why the appliance did not do what it was asked. It is of no more use, but for [`Cause::GivenUp`] and
/// [`Cause::TooLong`].
#[derive(Debug)]
pub struct ApplianceError {
    /// What happened.
    pub cause: Cause,
    /// What the kernel said last, if it complained.
    pub kernel_log: Vec<String>,
}

/// What happened to an appliance.
#[derive(Debug, thiserror::Error)]
pub enum Cause {
    /// The host refused something.
    #[error("the appliance cannot be started: {0}: {1}")]
    Start(&'static str, io::Error),
    /// It is gone.
    #[error("the appliance has ended while it was needed")]
    Ended,
    /// Its process ended before it was ready, in this way.
    #[error("the appliance does not start: its kernel's process ended with {0}")]
    NotStarted(String),
    /// Its kernel is none: in words.
    #[error("the appliance does not start: {0}")]
    NotLinux(String),
    /// What was started to be its kernel did not call [`crate::kernel_process::run`], in this program or in the one
    /// that it is of; said of how it was started.
    #[error(
        "the appliance does not start: {0} to become its kernel, has not called `become_kernel`, which comes first in `main`"
    )]
    NotKernel(String),
    /// One of its disks is gone.
    #[error("the appliance has lost a disk: {0}")]
    Disk(String),
    /// It does nothing any more.
    #[error("the appliance has made no progress for {} s ({})", .0.as_secs(), Remedy::Timeout)]
    Hung(Duration),
    /// It is busy, but nothing comes of it.
    #[error(
        "the appliance has worked for {} s without a result, so it may be going round in circles ({})", .0.as_secs(), Remedy::Timeout
    )]
    Fruitless(Duration),
    /// There is no place for its memory.
    #[error(
        "no directory takes the appliance's memory of {mebibytes} MiB: name one with room that is not mounted noexec, and where nobody else can \
         rename files (chmod +t), in TMPDIR, or {}", Remedy::LessMemory, mebibytes = .0
    )]
    NoRoom(u64),
    /// It said what it must not.
    #[error("the appliance does not keep to its protocol: {0}")]
    Protocol(String),
    /// Somebody does not want it any more: the signal.
    #[error("ended by {0}")]
    Interrupted(String),
    /// Somebody did not want what it was doing: the signal. The appliance is still of use.
    #[error("given up: {0}")]
    GivenUp(String),
    /// It was not asked: that takes more than a message has room for.
    #[error("too many names, or too long ones, for one request: name fewer at once")]
    TooLong,
}

impl fmt::Display for ApplianceError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}", self.reason())?;
        self.remedy().map_or(Ok(()), |remedy| write!(formatter, ": {remedy}"))
    }
}

impl ApplianceError {
    /// What happened, without what would help.
    pub fn reason(&self) -> String {
        let silent =
            matches!(self.cause, Cause::Interrupted(_) | Cause::GivenUp(_) | Cause::TooLong | Cause::NotKernel(_));
        match &self.kernel_log[..] {
            said @ [_, ..] if !silent => format!("{}; its kernel says: {}", self.cause, said.join(" · ")),
            _ => self.cause.to_string(),
        }
    }

    /// What would help an appliance that did not start.
    pub fn remedy(&self) -> Option<&'static str> {
        let says = |text: &str| self.kernel_log.iter().any(|line| line.contains(text));
        match &self.cause {
            Cause::Start("starting its process", error) if error.kind() == io::ErrorKind::NotFound => {
                Some("it needs /proc: mount -t proc proc /proc")
            }
            Cause::Start("watching its process", _) => {
                Some("it needs pidfd_open: a newer kernel, or a container whose seccomp profile allows it")
            }
            Cause::NotStarted(_) if says("fp regs failed") => Some(
                "it knows fewer registers than this processor has: a kernel that is linked dynamically is helped over that, \
                 and newer ones know them",
            ),
            Cause::NotStarted(_) if says("ptrace") => Some(
                "it has to trace its own processes: a container whose seccomp profile allows ptrace, and \
                 sysctl kernel.yama.ptrace_scope below 3",
            ),
            Cause::NotStarted(_) if says("GLIBC_") => {
                Some("it is for a newer C library: install the user-mode-linux of this machine's own distribution")
            }
            _ => None,
        }
    }

    /// Whether the appliance can be asked for something else.
    pub fn lives_on(&self) -> bool {
        matches!(self.cause, Cause::GivenUp(_) | Cause::TooLong)
    }
}

impl std::error::Error for ApplianceError {}
