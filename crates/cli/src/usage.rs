//! The command line: what was asked for, or what is wrong with it and what would be right.

use crate::command_line::{Cli, Command, every_command};
use crate::ending::end;
use crate::examples;
use crate::image::own_dd_words;
use blockyard_block::specification::Format;
use blockyard_block::{Compression, FileFormat};
use blockyard_command_line::clap_error::{name_what_is_not_utf8, text};
use blockyard_command_line::terminal;
use blockyard_shell::{VerbLine, is_verb, verb_line};
use clap::Parser;
use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};

/// What the command line asks for.
pub enum Asked {
    /// A command.
    Command(Box<Command>),
    /// A command of `image shell`, on an image.
    Verb(Box<VerbLine>),
}

/// Reads the command line.
///
/// # Errors
/// The exit status, when all that there was to say has been said: help, or what is wrong.
pub fn parse() -> Result<Asked, u8> {
    let words = own_dd_words(std::env::args_os().collect());
    match Cli::try_parse_from(&words) {
        Ok(cli) => Ok(Asked::Command(Box::new(cli.command))),
        Err(error) if error.kind() == ErrorKind::InvalidSubcommand => match verb_line(&words) {
            Some(Ok(line)) => Ok(Asked::Verb(Box::new(line))),
            Some(Err(error)) if error.kind() == ErrorKind::InvalidUtf8 => {
                Err(tell(name_what_is_not_utf8(error, &words, |words| verb_line(words)?.err())))
            }
            Some(Err(error)) => Err(tell(error)),
            None => Err(tell(advise(error))),
        },
        Err(error) if is_help(&error) => {
            // Now that somebody reads them, with examples.
            let with_examples = examples::add(every_command()).try_get_matches_from(&words);
            Err(tell(with_examples.err().unwrap_or(error)))
        }
        Err(error) if error.kind() == ErrorKind::InvalidUtf8 => {
            Err(tell(name_what_is_not_utf8(error, &words, |words| Cli::try_parse_from(words).err())))
        }
        Err(error) => Err(tell(advise(error))),
    }
}

fn is_help(error: &clap::Error) -> bool {
    matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand)
}

/// Prints it, and says how the process ends.
fn tell(error: clap::Error) -> u8 {
    if is_help(&error) || error.kind() == ErrorKind::DisplayVersion {
        if let Err(error) = error.print() {
            return end(&terminal::OutputError(error).into());
        }
    } else {
        terminal::tell(text(&error).trim_end());
    }
    u8::try_from(error.exit_code()).unwrap_or(2)
}

/// With what would be right instead, as far as it can be known.
fn advise(mut error: clap::Error) -> clap::Error {
    let mut tips = Vec::new();
    if let Some(ContextValue::String(word)) = error.get(ContextKind::InvalidSubcommand) {
        tips = elsewhere(word);
        if !tips.is_empty() {
            error.remove(ContextKind::SuggestedSubcommand);
        }
    }
    if let Some(ContextValue::String(option)) = error.get(ContextKind::InvalidArg) {
        let option = option.split(['=', ' ']).next().unwrap_or_default();
        if let Some((_, tip)) = OPTIONS.iter().find(|(other, _)| *other == option) {
            tips.push((*tip).to_owned());
            error.remove(ContextKind::SuggestedArg);
        }
    }
    if let (Some(ContextValue::String(option)), Some(ContextValue::String(value))) =
        (error.get(ContextKind::InvalidArg), error.get(ContextKind::InvalidValue))
        && let Some(tip) = FileFormat::of_word(value).filter(|_| option.ends_with("FORMAT>")).and_then(of_format)
    {
        tips.push(tip);
        error.remove(ContextKind::SuggestedValue);
    }
    // That an option could be a value behind `--` helps nobody who has mistaken its name.
    error.remove(ContextKind::Suggested);
    if !tips.is_empty() {
        let tips = tips.into_iter().map(StyledStr::from).collect();
        error.insert(ContextKind::Suggested, ContextValue::StyledStrs(tips));
    }
    error
}

/// What can be done about a format that a command does not take.
fn of_format(format: &FileFormat) -> Option<String> {
    match format.word {
        "qcow2" => None,
        word if word.parse::<Format>().is_ok() => Some(format!("{} images can be read, not made", format.name)),
        word if Compression::of_word(word).is_some() => Some(format!(
            "{} is no format of disks: where one in such a file can be read, it is raw.{word}, qcow2.{word} and so on",
            format.name
        )),
        _ => Some(format!("{} is neither read nor made here: {}", format.name, format.remedy())),
    }
}

/// What other programs call what is called otherwise here.
const OPTIONS: [(&str, &str); 3] = [
    ("--progress", "-p shows progress where there is such an option; `copy` shows it by itself, on a terminal"),
    (
        "--sector-size",
        "a disk's blocks are a part of its name, DISK,block-size=4K; `copy` has --input-sector-size and --output-sector-size",
    ),
    ("--readonly", "it is --ro, and DISK,ro"),
];

/// Commands of that name that are below another one.
fn elsewhere(word: &str) -> Vec<String> {
    let all = every_command();
    let is_group = |command: &&clap::Command| command.has_subcommands() && command.get_name() != "help";
    let groups = all.get_subcommands().filter(|command| is_group(command) && !command.is_hide_set());
    let below = |group: &&clap::Command| group.get_subcommands().any(|command| command.get_name() == word);
    let mut tips: Vec<_> =
        groups.filter(below).map(|group| format!("did you mean `blockyard {} {word}`?", group.get_name())).collect();
    if all.get_subcommands().any(|command| command.get_name() == word && !command.is_hide_set()) {
        tips.push(format!("did you mean `blockyard {word}`?"));
    }
    if is_verb(word) {
        tips.push(format!("did you mean `blockyard image {word}`?"));
    }
    tips
}
