//! What the shell has of the program that it is a part of.

use anyhow::Result;
use blockyard_command_line::image::file_command::FileCommand;
use blockyard_command_line::image::open_image::FindResources;
use std::ffi::{OsStr, OsString};

/// A program's own commands, which are the shell's too, and what else it brings.
#[derive(Clone, Copy)]
pub struct Program {
    /// Reads words that begin with the name of a command of its own: an error is what is wrong with them, or that there
    /// is no such command.
    pub read: fn(&[OsString]) -> Result<OwnWords>,
    /// The commands' names, and what they are for.
    pub all: fn() -> Vec<(String, String)>,
    /// The help of one, if there is one of that name.
    pub help: fn(&OsStr) -> Option<String>,
    /// Which arguments of one are names on the host.
    pub on_host: fn(&str) -> OnHost,
    /// Makes a new image, and says nothing of it: its options, file and size are words of `create`.
    pub create: fn(&[OsString]) -> Result<()>,
    /// Finds what appliances are made of.
    pub resources: FindResources,
}

/// What words that begin with the name of one of a program's commands are.
pub enum OwnWords {
    /// A command.
    Command(OwnCommand),
    /// A question for its help, which is this.
    Help(String),
}

/// A command of the program's.
pub enum OwnCommand {
    /// On the files of the images that are there.
    OnFiles(Box<dyn FileCommand>),
    /// On an image of its own, which its words name.
    OnItsOwn(Box<dyn Fn() -> Result<()>>),
}

/// Which of a command's arguments are names on the host, where that is certain before all of them are there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnHost {
    /// None.
    Nothing,
    /// All of them.
    All,
    /// The one of that number, from 1.
    Only(usize),
    /// The one of that number, from 1, and those behind it.
    From(usize),
}

impl OnHost {
    /// Whether the argument of that number is one, from 1.
    pub(crate) fn has(self, number: usize) -> bool {
        match self {
            Self::Nothing => false,
            Self::All => true,
            Self::Only(only) => number == only,
            Self::From(first) => number >= first,
        }
    }
}
