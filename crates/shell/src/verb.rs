//! What a command of the shell's own is. Which there are is in tables beside what they call: here is what those are
//! made of.

use crate::program::OnHost;
use crate::workbench::Workbench;
use anyhow::Result;
use blockyard_command_line::usage_error::UsageError;
use blockyard_image::Access;
use std::ffi::OsString;

/// A command.
pub(crate) struct Verb {
    /// What it is called; the first is its usual name.
    pub names: &'static [&'static str],
    /// What follows: `X` is needed, `[X]` is not, `X…` may be repeated, and so may `[X]…`.
    pub arguments: &'static str,
    /// What it does.
    pub summary: &'static str,
    /// What it is about.
    pub subject: Subject,
    /// Which of its arguments are names on the host.
    pub on_host: OnHost,
    /// How.
    pub action: Action,
}

/// What a command is about, and what it needs of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The shell itself: on a command line, with an image of its own, it would be nothing.
    Shell,
    /// Disks, and what lies on them.
    Disks(Access),
    /// Files, so that file systems are mounted for it.
    Files(Access),
}

/// How a command is done.
#[derive(Clone, Copy)]
pub(crate) enum Action {
    /// As another: `$1` to `$3` stand for the arguments, `$*` for all of them.
    Words(&'static [&'static str]),
    /// By calling something that has checked arguments.
    Call(Call),
}

/// What has a command's arguments, as many as it takes.
pub(crate) type Call = fn(&mut Workbench, &[OsString]) -> Result<()>;

type Names = &'static [&'static str];

/// A command on the shell itself.
pub(crate) const fn of_shell(names: Names, arguments: &'static str, summary: &'static str, action: Action) -> Verb {
    Verb { names, arguments, summary, subject: Subject::Shell, on_host: OnHost::Nothing, action }
}

/// Commands on disks, and what lies on them.
pub(crate) mod on_disks {
    use super::{Access, Action, Names, OnHost, Subject, Verb};

    /// One that changes nothing.
    pub(crate) const fn tells(names: Names, arguments: &'static str, summary: &'static str, action: Action) -> Verb {
        Verb { names, arguments, summary, subject: Subject::Disks(Access::Read), on_host: OnHost::Nothing, action }
    }

    /// One that changes them.
    pub(crate) const fn changes(names: Names, arguments: &'static str, summary: &'static str, action: Action) -> Verb {
        Verb { names, arguments, summary, subject: Subject::Disks(Access::Write), on_host: OnHost::Nothing, action }
    }
}

/// Commands on files.
pub(crate) mod on_files {
    use super::{Access, Action, Names, OnHost, Subject, Verb};

    /// One that changes nothing.
    pub(crate) const fn tells(names: Names, arguments: &'static str, summary: &'static str, action: Action) -> Verb {
        Verb { names, arguments, summary, subject: Subject::Files(Access::Read), on_host: OnHost::Nothing, action }
    }

    /// One that changes them.
    pub(crate) const fn changes(names: Names, arguments: &'static str, summary: &'static str, action: Action) -> Verb {
        Verb { names, arguments, summary, subject: Subject::Files(Access::Write), on_host: OnHost::Nothing, action }
    }
}

impl Verb {
    /// The same, with arguments that are names on the host.
    pub(crate) const fn on_host(self, on_host: OnHost) -> Self {
        Self { on_host, ..self }
    }

    /// Fails unless there are as many arguments as it takes.
    ///
    /// # Errors
    /// [`UsageError`].
    pub(crate) fn check(&self, arguments: &[OsString]) -> Result<()> {
        match self.takes(arguments.len()) {
            true => Ok(()),
            false => Err(UsageError(format!("{}: it is {}", self.names[0], self.usage())).into()),
        }
    }

    /// Whether it can have so many arguments.
    pub(crate) fn takes(&self, count: usize) -> bool {
        let parts: Vec<_> = self.arguments.split_whitespace().collect();
        let needed = parts.iter().filter(|part| !part.starts_with('[')).count();
        let endless = parts.iter().any(|part| part.ends_with('…'));
        count >= needed && (endless || count <= parts.len())
    }

    fn usage(&self) -> String {
        format!("{} {}", self.names[0], self.arguments).trim_end().to_owned()
    }

    /// What it does, and how it is called.
    pub(crate) fn help(&self) -> String {
        let also = match &self.names[1..] {
            [] => String::new(),
            others => format!("\n\nAlso called {}.", others.join(", ")),
        };
        format!("{}\n\nUsage: {}{also}\n", self.summary, self.usage())
    }
}

/// The words that another command is.
pub(crate) fn substituted(words: &[&str], arguments: &[OsString]) -> Vec<OsString> {
    let mut all = Vec::new();
    for word in words {
        match word.strip_prefix('$') {
            Some("*") => all.extend_from_slice(arguments),
            Some(number) => {
                let index = number.parse::<usize>().unwrap_or(1);
                all.extend(arguments.get(index.saturating_sub(1)).cloned());
            }
            None => all.push(word.into()),
        }
    }
    all
}
