//! What Tab adds: commands, files of the image, files of the host.

use crate::commands;
use crate::program::{OnHost, Program};
use crate::workbench::Workbench;
use blockyard_block::printable;
use blockyard_image::files::file_type::is_directory;
use blockyard_image::guest::RecordTaker;
use blockyard_protocol::appliance::{Operation, Record, Walk};
use blockyard_protocol::pattern::escaped;
use rustyline::completion::{Completer, Pair};
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::validate::Validator;
use rustyline::{Context, Helper};
use std::cell::RefCell;
use std::fs;
use std::io;
use std::rc::Rc;

/// Names of a directory that are offered.
const NAMES_MAX: usize = 10_000;

/// Completes lines with what a workbench has.
pub(crate) struct Completion {
    workbench: Rc<RefCell<Workbench>>,
    names: Vec<String>,
    program: Program,
}

impl Completion {
    /// For the commands of this program, and the files on this workbench.
    pub(crate) fn new(workbench: Rc<RefCell<Workbench>>) -> Self {
        let program = workbench.borrow().program;
        Self { workbench, names: commands::names(&program), program }
    }

    /// Names in a directory of the image; directories end with a slash.
    fn inside(&self, directory: &str) -> Vec<String> {
        let Ok(mut workbench) = self.workbench.try_borrow_mut() else { return Vec::new() };
        if workbench.points().is_empty() || !workbench.is_running() {
            return Vec::new();
        }
        let path = if directory.starts_with('/') { directory.to_owned() } else { format!("/{directory}") };
        let walk = Walk { paths: vec![escaped(path.as_bytes())], depth: 1, follow: true, ..Walk::default() };
        let listed = workbench.image().and_then(|image| Ok(image.records(Operation::Walk(walk), Names::default())?));
        if let Err(error) = &listed {
            workbench.take_note(error);
        }
        workbench.signals.forget();
        listed.unwrap_or_default()
    }
}

/// Names in a directory of the host.
fn outside(directory: &str) -> Vec<String> {
    let path = match (directory, std::env::var("HOME")) {
        ("", _) => ".".to_owned(),
        (directory, Ok(home)) if directory.starts_with("~/") => format!("{home}/{}", &directory[2..]),
        (directory, _) => directory.to_owned(),
    };
    let entries = fs::read_dir(path).into_iter().flatten().flatten().take(NAMES_MAX);
    let mut names: Vec<_> = entries
        .filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            let slash = if entry.path().is_dir() { "/" } else { "" };
            Some(format!("{name}{slash}"))
        })
        .collect();
    names.sort();
    names
}

/// The word that ends at the cursor: where it begins, its quote, and what it means so far; and the words before it.
fn last_word(line: &str) -> (usize, Option<char>, &str, Vec<&str>) {
    let start = line.rfind([' ', '\t']).map_or(0, |at| at + 1);
    // A quote that is open reaches further back.
    let quote = line.char_indices().filter(|(_, letter)| "\"'".contains(*letter));
    let mut open: Option<(usize, char)> = None;
    for (at, letter) in quote {
        match open {
            None if line[..at].is_empty() || line[..at].ends_with([' ', '\t']) => open = Some((at, letter)),
            Some((_, quote)) if quote == letter => open = None,
            _ => {}
        }
    }
    let (begin, quote, text) = match open {
        Some((at, quote)) => (at, Some(quote), &line[at + 1..]),
        None => (start, None, &line[start..]),
    };
    (begin, quote, text, line[..begin].split_whitespace().collect())
}

/// Whether a word of a command is a file of the host; `own` says so of the program's commands.
fn is_of_host(before: &[&str], own: fn(&str) -> OnHost) -> bool {
    let first = before[0].trim_start_matches('-');
    let verb = commands::verbs().find(|verb| verb.names.contains(&first));
    verb.is_some_and(|verb| verb.on_host.has(before.len())) || own(first).has(before.len())
}

impl Completer for Completion {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let (begin, quote, word, before) = last_word(&line[..at]);
        let pairs = |begin: usize, names: Vec<String>, prefix: &str, directory: &str| {
            let fitting = names.into_iter().filter(|name| name.starts_with(prefix));
            let pair = |name: String| Pair { display: printable(&name), replacement: written(directory, &name, quote) };
            (begin, fitting.map(pair).collect())
        };
        if before.is_empty() || (before == ["help"]) || before == ["time"] {
            let (dash, word) = word.strip_prefix('-').map_or(("", word), |rest| ("-", rest));
            return Ok(pairs(begin, self.names.clone(), word, dash));
        }
        let (directory, prefix) = word.rfind('/').map_or(("", word), |at| word.split_at(at + 1));
        let names = match line.trim_start().starts_with('!') || is_of_host(&before, self.program.on_host) {
            true => outside(directory),
            false => self.inside(directory),
        };
        Ok(pairs(begin, names, prefix, directory))
    }
}

/// A path as it is written in a line. What would command the terminal is not offered as it is.
fn written(directory: &str, name: &str, quote: Option<char>) -> String {
    let path = format!("{directory}{name}");
    let needs_quotes = path.contains([' ', '\t', '"', '\'', '#', '|']) || path.chars().any(char::is_control);
    let escape = |path: &str| {
        path.chars()
            .flat_map(|letter| match letter {
                '"' | '\\' => vec!['\\', letter],
                letter if letter.is_ascii_control() => format!("\\x{:02x}", letter as u32).chars().collect(),
                letter => vec![letter],
            })
            .collect::<String>()
    };
    let end = |quote: char| if name.ends_with('/') { String::new() } else { quote.to_string() };
    match quote {
        Some('\'') => format!("'{path}{}", end('\'')),
        None if !needs_quotes => path,
        _ => format!("\"{}{}", escape(&path), end('"')),
    }
}

impl Helper for Completion {}
impl Hinter for Completion {
    type Hint = String;
}
impl Highlighter for Completion {}
impl Validator for Completion {}

/// The names of a listing.
#[derive(Default)]
struct Names {
    names: Vec<String>,
    within: bool,
}

impl RecordTaker for Names {
    type Output = Vec<String>;

    fn take(&mut self, record: Record) -> io::Result<()> {
        match record {
            Record::Directory(_) => self.within = true,
            Record::Entry(entry) if self.within && self.names.len() < NAMES_MAX => {
                if let Ok(name) = String::from_utf8(entry.name) {
                    self.names.push(if is_directory(entry.mode) { format!("{name}/") } else { name });
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> io::Result<Self::Output> {
        Ok(self.names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_word_at_the_cursor_may_be_quoted() {
        assert_eq!(last_word("ca"), (0, None, "ca", vec![]));
        assert_eq!(last_word("cat /etc/ho"), (4, None, "/etc/ho", vec!["cat"]));
        assert_eq!(last_word("cat \"/a b/c"), (4, Some('"'), "/a b/c", vec!["cat"]));
        assert_eq!(last_word("cat '/a' /b"), (9, None, "/b", vec!["cat", "'/a'"]));
    }

    #[test]
    fn paths_are_completed_as_they_can_be_written() {
        assert_eq!(written("/etc/", "fstab", None), "/etc/fstab");
        assert_eq!(written("/", "a b/", None), "\"/a b/");
        assert_eq!(written("/", "a\"b", None), "\"/a\\\"b\"");
        assert_eq!(written("/", "a\u{1b}[2J", None), "\"/a\\x1b[2J\"");
        assert_eq!(written("/", "x", Some('\'')), "'/x'");
    }

    #[test]
    fn it_is_known_which_words_are_files_of_the_host() {
        let own = |name: &str| if name == "get" { OnHost::From(2) } else { OnHost::Nothing };
        let is_of_host = |before: &[&str]| is_of_host(before, own);
        assert!(is_of_host(&["upload"]) && !is_of_host(&["upload", "a"]));
        assert!(!is_of_host(&["get"]) && is_of_host(&["get", "/etc/fstab"]));
        assert!(is_of_host(&["lcd"]) && !is_of_host(&["rm"]) && is_of_host(&["-add"]));
    }
}
