//! Commands of `image` in the shell: the same words, without the image; and what else the shell has of this program.

use super::appliance_kernel::resources;
use super::file_commands::AnyFileCommand;
use super::whole::{create, info};
use anyhow::Result;
use blockyard_command_line::clap_error;
use blockyard_command_line::image::secrets;
use blockyard_command_line::usage_error::UsageLines;
use blockyard_shell::{OnHost, OwnCommand, OwnWords, Program};
use clap::error::{ContextKind, ErrorKind};
use clap::{CommandFactory, Parser, Subcommand};
use std::ffi::{OsStr, OsString};

/// What the shell has of this program.
pub const PROGRAM: Program = Program { read, all, help, on_host, create: create_quietly, resources };

/// A line that begins with one of our own commands.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_subcommand = true, name = "", bin_name = "", max_term_width = 100)]
struct OwnLine {
    #[command(subcommand)]
    command: Command,
}

/// Commands of `image`, without the image that they are for.
#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    File(AnyFileCommand),
    Create(create::CreateArgs),
    Info(info::InfoArgs),
}

impl From<Command> for OwnCommand {
    fn from(command: Command) -> Self {
        match command {
            Command::File(command) => Self::OnFiles(command.into_boxed()),
            Command::Create(args) => Self::OnItsOwn(Box::new(move || create::run(&args))),
            Command::Info(args) => Self::OnItsOwn(Box::new(move || info::run(&args))),
        }
    }
}

/// Reads one.
///
/// # Errors
/// [`UsageLines`] when its words make no sense.
fn read(words: &[OsString]) -> Result<OwnWords> {
    secrets::forget();
    match OwnLine::try_parse_from(words) {
        Ok(line) => Ok(OwnWords::Command(line.command.into())),
        Err(error) if error.kind() == ErrorKind::DisplayHelp => Ok(OwnWords::Help(error.render().to_string())),
        Err(error) if error.kind() == ErrorKind::InvalidUtf8 => {
            let read = |words: &[OsString]| OwnLine::try_parse_from(words).err();
            Err(UsageLines(sentence(&clap_error::name_what_is_not_utf8(error, words, read))).into())
        }
        Err(error) => Err(UsageLines(sentence(&error)).into()),
    }
}

/// Clap's message without what it says on a command line only.
fn sentence(error: &clap::Error) -> String {
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
fn all() -> Vec<(String, String)> {
    let about = |command: &clap::Command| command.get_about().map_or_else(String::new, ToString::to_string);
    let line = OwnLine::command();
    let visible = line.get_subcommands().filter(|command| !command.is_hide_set());
    visible.map(|command| (command.get_name().to_owned(), about(command))).collect()
}

/// The help of one, if there is one of that name.
fn help(name: &OsStr) -> Option<String> {
    OwnLine::command().find_subcommand_mut(name).map(|command| command.render_long_help().to_string())
}

/// Which of their arguments are names on the host.
fn on_host(name: &str) -> OnHost {
    match name {
        "info" | "create" => OnHost::All,
        // Where the last argument is, nobody knows yet: the first one is certain.
        "put" => OnHost::Only(1),
        "get" => OnHost::From(2),
        _ => OnHost::Nothing,
    }
}

/// `create` with these words, and -q.
fn create_quietly(words: &[OsString]) -> Result<()> {
    #[derive(Parser)]
    #[command(no_binary_name = true)]
    struct Line {
        #[command(flatten)]
        create: create::CreateArgs,
    }
    secrets::forget();
    let words = [&["-q".into()], words].concat();
    let line = Line::try_parse_from(words).map_err(|error| UsageLines(sentence(&error)))?;
    create::run(&line.create)
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockyard_shell::check_stand_ins;

    #[test]
    fn what_the_shell_has_for_these_is_understood() {
        check_stand_ins(&PROGRAM).unwrap();
    }
}
