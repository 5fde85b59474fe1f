//! What the words of a line ask for.

use crate::arguments::home;
use crate::line::{Line, Request};
use crate::pipe;
use crate::program::{OwnCommand, OwnWords, Program};
use crate::theirs::as_ours;
use crate::verb::{Action, Call, Verb, of_shell, substituted};
use crate::verbs::TABLES;
use crate::workbench::Workbench;
use anyhow::{Context, Result, bail};
use blockyard_block::shown;
use blockyard_command_line::signals;
use blockyard_command_line::terminal::print;
use blockyard_command_line::usage_error::UsageError;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::process::Command;

const HELP: Verb = of_shell(&["help"], "[COMMAND]", "List the commands, or say what one does", Action::Call(help));

/// Commands that stand for others, which stand for others.
const DEPTH_MAX: usize = 8;

/// A command that is understood.
pub(crate) enum Understood {
    /// One of the program's.
    Own(OwnCommand),
    /// One of the shell's own, with its arguments.
    Verb(Call, Vec<OsString>),
    /// Something to print.
    Text(String),
}

/// All of the shell's own commands.
pub(crate) fn verbs() -> impl Iterator<Item = &'static Verb> {
    [&HELP].into_iter().chain(TABLES.into_iter().flatten())
}

/// The command that is called `name`, for these arguments: what has our own meaning with them is ours.
fn find(name: &OsStr, arguments: &[OsString]) -> Option<&'static Verb> {
    let verb = verbs().find(|verb| verb.names.iter().any(|&own| own == name))?;
    let is_option = |word: &OsString| word.as_bytes().starts_with(b"-") && word != "-";
    let is_theirs = match name.to_str() {
        // A program of the image is run with arguments.
        Some("run") => arguments.is_empty(),
        Some("stat" | "find") => matches!(arguments, [one] if !is_option(one)),
        Some("tar-in" | "tar-out") => arguments.len() > 2 && !arguments.iter().any(is_option),
        _ => true,
    };
    is_theirs.then_some(verb)
}

/// Finds out what words mean, and whether they make sense.
///
/// # Errors
/// [`UsageError`] when they do not.
pub(crate) fn understand(program: &Program, words: &[OsString]) -> Result<Understood> {
    understand_at(program, words, 0)
}

fn understand_at(program: &Program, words: &[OsString], depth: usize) -> Result<Understood> {
    if depth == DEPTH_MAX {
        bail!("a command that stands for itself");
    }
    let words = as_ours(words);
    let Some((first, arguments)) = words.split_first() else { return Ok(Understood::Text(String::new())) };
    let asks_for_help = arguments.len() == 1 && (arguments[0] == "--help" || arguments[0] == "-h");
    match find(first, arguments) {
        Some(verb) if asks_for_help => Ok(Understood::Text(verb.help())),
        Some(verb) => {
            let arguments: Vec<_> = arguments.iter().map(|argument| home(argument)).collect();
            verb.check(&arguments)?;
            match verb.action {
                Action::Call(call) => Ok(Understood::Verb(call, arguments)),
                Action::Words(words) => understand_at(program, &substituted(words, &arguments), depth + 1),
            }
        }
        None => Ok(match (program.read)(&words.iter().map(|word| home(word)).collect::<Vec<_>>())? {
            OwnWords::Command(command) => Understood::Own(command),
            OwnWords::Help(text) => Understood::Text(text),
        }),
    }
}

/// Does it.
///
/// # Errors
/// When it fails.
pub(crate) fn perform(workbench: &mut Workbench, understood: Understood) -> Result<()> {
    match understood {
        Understood::Own(OwnCommand::OnFiles(command)) => workbench.run(&*command),
        Understood::Own(OwnCommand::OnItsOwn(command)) => command(),
        Understood::Verb(call, arguments) => call(workbench, &arguments),
        Understood::Text(text) => print(text.trim_end()),
    }
}

/// Does what a line asks for.
///
/// # Errors
/// When it fails.
pub(crate) fn perform_line(workbench: &mut Workbench, line: &Line) -> Result<()> {
    let done = match &line.request {
        Request::Nothing => Ok(()),
        Request::Host(command) => host(command),
        Request::Command { words, pipe: None } => {
            understand(&workbench.program, words).and_then(|command| perform(workbench, command))
        }
        Request::Command { words, pipe: Some(pipe) } => {
            let command = understand(&workbench.program, words)?;
            pipe::into(pipe, || perform(workbench, command))
        }
    };
    if let Err(error) = &done {
        workbench.take_note(error);
    }
    done
}

/// Runs a command of the host's shell.
///
/// # Errors
/// When it cannot be run, or its exit status is not 0.
fn host(command: &OsStr) -> Result<()> {
    let mut shell = Command::new("/bin/sh").arg("-c").arg(command).spawn().context("cannot run /bin/sh")?;
    let status = signals::wait_for_program(&mut shell).context("cannot wait for /bin/sh")?;
    if status.success() { Ok(()) } else { bail!("!{}: {status}", shown(command)) }
}

/// Does what a line in words asks for: commands are made of others.
///
/// # Errors
/// When it fails.
pub(crate) fn perform_words(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let command = understand(&workbench.program, words)?;
    perform(workbench, command)
}

/// Every command's name, with what it is for, in order of name.
fn all(program: &Program) -> Vec<(String, String)> {
    let mut all = (program.all)();
    all.extend(verbs().map(|verb| (verb.names[0].to_owned(), verb.summary.to_owned())));
    all.sort();
    all.dedup_by(|later, earlier| later.0 == earlier.0);
    all
}

/// Names that a command can be called by, for completion.
pub(crate) fn names(program: &Program) -> Vec<String> {
    let mut names: Vec<_> = (program.all)().into_iter().map(|(name, _)| name).collect();
    names.extend(verbs().flat_map(|verb| verb.names.iter().map(|&name| name.to_owned())));
    names.sort();
    names.dedup();
    names
}

fn help(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    if let Some(name) = words.first() {
        return print(help_of(&workbench.program, name)?.trim_end());
    }
    let all = all(&workbench.program);
    let width = all.iter().map(|(name, _)| name.len()).max().unwrap_or(0);
    let lines = all.iter().map(|(name, summary)| format!("{name:width$}  {}", first_clause(summary)));
    let lines: Vec<_> = lines.collect();
    print(&format!(
        "{}\n\nhelp COMMAND says more. !COMMAND is for the host's shell, COMMAND | COMMAND gives it the output; -COMMAND may fail. Paths\n\
         may be patterns (*, ?, [a-z]; \\* is a star).",
        lines.join("\n")
    ))
}

/// A summary up to where its first sentence, or clause, ends: 1.5 has no end in it.
fn first_clause(summary: &str) -> &str {
    let ends = |(at, mark): &(usize, &str)| summary[at + mark.len()..].chars().next().is_none_or(char::is_whitespace);
    let end = summary.match_indices(['.', ':', ';']).find(ends);
    end.map_or(summary, |(at, _)| &summary[..at])
}

/// Looks at the shell's commands that stand for others: whether those are understood, with this program's commands.
///
/// # Errors
/// With the first that is not.
pub fn check_stand_ins(program: &Program) -> Result<()> {
    for verb in verbs() {
        if let Action::Words(words) = verb.action {
            let arguments = vec![OsString::from("755"); verb.arguments.split_whitespace().count()];
            understand(program, &substituted(words, &arguments)).context(verb.names[0])?;
        }
    }
    Ok(())
}

/// The help of one command.
///
/// # Errors
/// When there is none of that name.
fn help_of(program: &Program, name: &OsStr) -> Result<String> {
    let verbs: Vec<_> = verbs().filter(|verb| verb.names.iter().any(|&own| own == name)).collect();
    let texts: Vec<_> = (program.help)(name).into_iter().chain(verbs.iter().map(|verb| verb.help())).collect();
    match texts.is_empty() {
        true => Err(UsageError(format!("no command '{}': `help` lists them", shown(name))).into()),
        false => Ok(texts.join("\n")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<OsString> {
        text.split_whitespace().map(OsString::from).collect()
    }

    #[test]
    fn a_summary_is_cut_where_its_first_clause_ends() {
        for (summary, first) in [
            ("How full they are, in sizes like 1.5G", "How full they are, in sizes like 1.5G"),
            ("Sizes like 1.5G. More of it.", "Sizes like 1.5G"),
            ("One:\nTwo", "One"),
            ("A; b", "A"),
            ("As in 12:30", "As in 12:30"),
            ("End.", "End"),
            ("", ""),
        ] {
            assert_eq!(first_clause(summary), first);
        }
    }

    #[test]
    fn no_two_commands_have_one_name() {
        let mut names: Vec<_> = verbs().flat_map(|verb| verb.names).collect();
        let count = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn arguments_are_counted() {
        let check = |line: &str| {
            let words = words(line);
            find(&words[0], &words[1..]).unwrap().check(&words[1..])
        };
        for good in
            ["mount /dev/sda1 /", "run", "add x readonly:true format:raw", "copy-in a b /", "help", "help ls", "echo"]
        {
            check(good).unwrap();
        }
        for bad in ["mount /dev/sda1", "mount a b c", "add", "help a b", "copy-in /", "umount-all x"] {
            assert!(check(bad).unwrap_err().is::<UsageError>(), "{bad}");
        }
    }
}
