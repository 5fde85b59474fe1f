//! What the words of a line ask for.

use super::line::{self, Line, Request};
use super::pipe;
use super::session::Session;
use super::verbs::{self, Action, Verb};
use crate::clap_error;
use crate::image::file_commands::AnyFileCommand;
use crate::image::whole::{create, info};
use crate::terminal::print;
use crate::usage_error::{UsageError, UsageLines};
use anyhow::{Context, Result, bail};
use blockyard_block::shown;
use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

/// Commands that stand for others, which stand for others.
const DEPTH_MAX: usize = 8;

/// A line that begins with one of our own commands.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_subcommand = true, name = "", bin_name = "", max_term_width = 100)]
struct OwnLine {
    #[command(subcommand)]
    command: OwnCommand,
}

/// Commands of `image`, without the image that they are for.
#[derive(Subcommand)]
pub enum OwnCommand {
    #[command(flatten)]
    File(AnyFileCommand),
    Create(create::CreateArgs),
    Info(info::InfoArgs),
}

/// A command that is understood.
pub enum Understood {
    /// One of ours.
    Own(Box<OwnCommand>),
    /// One of the shell's own, with its arguments.
    Verb(fn(&mut Session, &[OsString]) -> Result<()>, Vec<OsString>),
    /// Something to print.
    Text(String),
}

/// Finds out what words mean, and whether they make sense.
///
/// # Errors
/// [`UsageError`] when they do not.
pub fn understand(words: &[OsString]) -> Result<Understood> {
    understand_at(words, 0)
}

fn understand_at(words: &[OsString], depth: usize) -> Result<Understood> {
    if depth == DEPTH_MAX {
        bail!("a command that stands for itself");
    }
    let words = verbs::as_ours(words);
    let Some((first, arguments)) = words.split_first() else { return Ok(Understood::Text(String::new())) };
    let asks_for_help = arguments.len() == 1 && (arguments[0] == "--help" || arguments[0] == "-h");
    match verbs::find(first, arguments) {
        Some(verb) if asks_for_help => Ok(Understood::Text(verb.help())),
        Some(verb) => {
            let arguments: Vec<_> = arguments.iter().map(|argument| verbs::home(argument)).collect();
            verb.check(&arguments)?;
            match verb.action {
                Action::Call(call) => Ok(Understood::Verb(call, arguments)),
                Action::Words(words) => understand_at(&verbs::substituted(words, &arguments), depth + 1),
            }
        }
        None => own(&words),
    }
}

fn own(words: &[OsString]) -> Result<Understood> {
    let words: Vec<_> = words.iter().map(|word| verbs::home(word)).collect();
    match OwnLine::try_parse_from(&words) {
        Ok(line) => Ok(Understood::Own(Box::new(line.command))),
        Err(error) if error.kind() == ErrorKind::DisplayHelp => Ok(Understood::Text(error.render().to_string())),
        Err(error) if error.kind() == ErrorKind::InvalidUtf8 => {
            let read = |words: &[OsString]| OwnLine::try_parse_from(words).err();
            Err(UsageLines(sentence(&clap_error::name_what_is_not_utf8(error, &words, read))).into())
        }
        Err(error) => Err(UsageLines(sentence(&error)).into()),
    }
}

/// Clap's message without what it says on a command line only.
pub fn sentence(error: &clap::Error) -> String {
    if let (ErrorKind::InvalidSubcommand, Some(word)) = (error.kind(), error.get(ContextKind::InvalidSubcommand)) {
        let similar = error.get(ContextKind::SuggestedSubcommand).map(|names| format!(", but {names}"));
        return format!("there is no command {word}{}: `help` lists them", similar.unwrap_or_default());
    }
    let text = clap_error::text(error);
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let end = text.find("\n\nFor more information").unwrap_or(text.len());
    text[..end].trim_end().to_owned()
}

/// Does it.
///
/// # Errors
/// When it fails.
pub fn perform(session: &mut Session, understood: Understood) -> Result<()> {
    match understood {
        Understood::Own(command) => match &*command {
            OwnCommand::File(command) => session.run(command.get()),
            OwnCommand::Create(args) => create::run(args),
            OwnCommand::Info(args) => info::run(args),
        },
        Understood::Verb(call, arguments) => call(session, &arguments),
        Understood::Text(text) => print(text.trim_end()),
    }
}

/// Does what a line asks for.
///
/// # Errors
/// When it fails.
pub fn perform_line(session: &mut Session, line: &Line) -> Result<()> {
    let done = match &line.request {
        Request::Nothing => Ok(()),
        Request::Host(command) => host(command),
        Request::Command { words, pipe: None } => understand(words).and_then(|command| perform(session, command)),
        Request::Command { words, pipe: Some(pipe) } => {
            let command = understand(words)?;
            pipe::into(pipe, || perform(session, command))
        }
    };
    if let Err(error) = &done {
        session.take_note(error);
    }
    done
}

/// Runs a command of the host's shell.
///
/// # Errors
/// When it cannot be run, or its exit status is not 0.
pub fn host(command: &OsStr) -> Result<()> {
    let status = Command::new("/bin/sh").arg("-c").arg(command).status().context("cannot run /bin/sh")?;
    if status.success() { Ok(()) } else { bail!("!{}: {status}", shown(command)) }
}

/// Does what a line in words asks for: `time`, `glob` and others have one for an argument.
///
/// # Errors
/// When it fails.
pub fn perform_words(session: &mut Session, words: &[OsString]) -> Result<()> {
    let command = understand(words)?;
    perform(session, command)
}

/// The words of a text that is a list: guestfish has them for `command`.
///
/// # Errors
/// When it is not well formed.
pub fn list(text: &OsStr) -> Result<Vec<OsString>> {
    match line::parse(&[b"list ", text.as_bytes()].concat())?.request {
        Request::Command { words, pipe: None } => Ok(words.into_iter().skip(1).collect()),
        _ => bail!(UsageError(format!("{} is no list of words", shown(text)))),
    }
}

/// Every command's name, with what it is for, in order of name.
pub fn all() -> Vec<(String, String)> {
    let own = OwnLine::command();
    let mut all: Vec<_> = own
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .map(|command| {
            (command.get_name().to_owned(), command.get_about().map_or_else(String::new, ToString::to_string))
        })
        .collect();
    all.extend(verbs::VERBS.iter().map(|verb: &Verb| (verb.names[0].to_owned(), verb.summary.to_owned())));
    all.sort();
    all.dedup_by(|later, earlier| later.0 == earlier.0);
    all
}

/// Names that a command can be called by, for completion.
pub fn names() -> Vec<String> {
    let own = OwnLine::command();
    let mut names: Vec<_> = own
        .get_subcommands()
        .filter(|command| !command.is_hide_set())
        .map(|command| command.get_name().to_owned())
        .collect();
    names.extend(verbs::VERBS.iter().flat_map(|verb| verb.names.iter().map(|&name| name.to_owned())));
    names.sort();
    names.dedup();
    names
}

/// The help of one command.
///
/// # Errors
/// When there is none of that name.
pub fn help(name: &OsStr) -> Result<String> {
    let verbs: Vec<_> = verbs::VERBS.iter().filter(|verb| verb.names.iter().any(|&own| own == name)).collect();
    let own = OwnLine::command().find_subcommand_mut(name).map(|command| command.render_long_help().to_string());
    let texts: Vec<_> = own.into_iter().chain(verbs.iter().map(|verb| verb.help())).collect();
    match texts.is_empty() {
        true => Err(UsageError(format!("no command '{}': `help` lists them", shown(name))).into()),
        false => Ok(texts.join("\n")),
    }
}
