//! Commands of `image` in the shell: the same words, without the image.

use super::arguments::home;
use crate::image::file_commands::AnyFileCommand;
use crate::image::whole::{create, info};
use anyhow::Result;
use blockyard_command_line::clap_error;
use blockyard_command_line::usage_error::UsageLines;
use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use std::ffi::{OsStr, OsString};

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

/// What words that begin with one of their names are.
pub enum OwnWords {
    /// A command.
    Command(Box<OwnCommand>),
    /// A question for its help, which is this.
    Help(String),
}

/// Reads one.
///
/// # Errors
/// [`UsageLines`] when its words make no sense.
pub fn read(words: &[OsString]) -> Result<OwnWords> {
    let words: Vec<_> = words.iter().map(|word| home(word)).collect();
    match OwnLine::try_parse_from(&words) {
        Ok(line) => Ok(OwnWords::Command(Box::new(line.command))),
        Err(error) if error.kind() == ErrorKind::DisplayHelp => Ok(OwnWords::Help(error.render().to_string())),
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

/// Their names, and what they are for.
pub fn all() -> Vec<(String, String)> {
    let about = |command: &clap::Command| command.get_about().map_or_else(String::new, ToString::to_string);
    let line = OwnLine::command();
    let visible = line.get_subcommands().filter(|command| !command.is_hide_set());
    visible.map(|command| (command.get_name().to_owned(), about(command))).collect()
}

/// The help of one, if there is one of that name.
pub fn help(name: &OsStr) -> Option<String> {
    OwnLine::command().find_subcommand_mut(name).map(|command| command.render_long_help().to_string())
}
