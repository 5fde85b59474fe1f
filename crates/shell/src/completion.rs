//! What Tab adds: commands, files of the image, files of the host.

use crate::commands;
use crate::host_shell;
use crate::line;
use crate::program::{OnHost, Program};
use crate::workbench::Workbench;
use blockyard_block::{misleads, printable, shell_word};
use blockyard_image::files::file_type::is_directory;
use blockyard_image::guest::RecordTaker;
use blockyard_protocol::appliance::{Operation, Record, Walk};
use blockyard_protocol::pattern::{escaped, plain};
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
        // It may be a pattern, as all paths may.
        let walk = Walk { paths: vec![path.into_bytes()], depth: 1, follow: true, ..Walk::default() };
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

/// The word at the end of a line, which Tab may make longer.
#[derive(Debug, PartialEq, Eq)]
struct LastWord<'a> {
    /// Where it begins, with its quote.
    begin: usize,
    quote: Option<char>,
    /// What of it is there, without its quote.
    text: &'a str,
    /// What of a command of ours is in front of it; `None`: it is the host's shell's.
    before: Option<Vec<String>>,
}

/// The word at the end of a line; `None` where it is not certain what a word there would be.
fn last_word(line: &str) -> Option<LastWord<'_>> {
    let (begin, quote, before) = match line::end(line.as_bytes()).ok()? {
        line::End::Nothing => return None,
        line::End::Word { before, begin, quote } => {
            let before = before.into_iter().map(|word| word.to_string_lossy().into_owned());
            (begin, quote, Some(before.collect()))
        }
        line::End::Host { begin } => {
            let (within, quote) = host_shell::last_word(&line[begin..])?;
            (begin + within, quote, None)
        }
    };
    Some(LastWord { begin, quote, text: &line[begin + usize::from(quote.is_some())..], before })
}

/// Whether a word of a command is a file of the host; `own` says so of the program's commands.
fn is_of_host(before: &[String], own: fn(&str) -> OnHost) -> bool {
    let first = &*before[0];
    let verb = commands::verbs().find(|verb| verb.names.contains(&first));
    verb.is_some_and(|verb| verb.on_host.has(before.len())) || own(first).has(before.len())
}

impl Completer for Completion {
    type Candidate = Pair;

    fn complete(&self, line: &str, at: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<Pair>)> {
        let Some(LastWord { begin, quote, text: word, before }) = last_word(&line[..at]) else {
            return Ok((at, Vec::new()));
        };
        let pair = |name: &str, replacement| Pair { display: printable(name), replacement };
        if before.as_ref().is_some_and(|before| before.is_empty() || before == &["help"] || before == &["time"]) {
            let fitting = self.names.iter().filter(|name| name.starts_with(word));
            return Ok((begin, fitting.map(|name| pair(name, name.clone())).collect()));
        }
        let reader = match before {
            None => Reader::Shell,
            Some(before) if is_of_host(&before, self.program.on_host) => Reader::Host,
            Some(_) => Reader::Image,
        };
        let Some(word) = meant(word, quote, reader) else { return Ok((begin, Vec::new())) };
        let (directory, prefix) = word.rfind('/').map_or(("", &*word), |at| word.split_at(at + 1));
        let (names, prefix) = match reader {
            Reader::Image => (self.inside(directory), String::from_utf8_lossy(&plain(prefix.as_bytes())).into_owned()),
            Reader::Host | Reader::Shell => (outside(directory), prefix.to_owned()),
        };
        let fitting = names.iter().filter(|name| name.starts_with(&prefix));
        let pairs = fitting.filter_map(|name| Some(pair(name, written(directory, name, quote, reader)?)));
        Ok((begin, pairs.collect()))
    }
}

/// Whose a word of a line is to understand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reader {
    /// Ours: a path of the image, which is a pattern.
    Image,
    /// Ours: a path of the host.
    Host,
    /// The host's shell.
    Shell,
}

/// What a word means so far; `None` where that is not certain.
fn meant(word: &str, quote: Option<char>, reader: Reader) -> Option<String> {
    if reader == Reader::Shell || quote != Some('"') {
        return Some(word.to_owned());
    }
    let line = line::parse(format!("_ \"{word}\"").as_bytes()).ok()?;
    let line::Request::Command { mut words, pipe: None } = line.request else { return None };
    words.pop()?.into_string().ok()
}

/// A path as it is written in a line: as one word that means nothing else, and of which everything is seen. `None`
/// where there is no such word.
fn written(directory: &str, name: &str, quote: Option<char>, reader: Reader) -> Option<String> {
    // What is in no directory, and would be an option, or somebody's home.
    let above = match reader {
        _ if !directory.is_empty() || !name.starts_with(['-', '~']) => "",
        Reader::Image => "/",
        Reader::Host | Reader::Shell => "./",
    };
    let path_of = |name: &str| format!("{above}{directory}{name}");
    let path = match reader {
        Reader::Image => path_of(&String::from_utf8(escaped(name.as_bytes())).ok()?),
        Reader::Host => path_of(name),
        Reader::Shell => return in_shell(&path_of(name), quote, name.ends_with('/')),
    };
    let is_hidden = path.contains(misleads);
    let needs_quotes = is_hidden || path.contains(|letter: char| letter.is_whitespace() || "\"'#|".contains(letter));
    let end = |quote: &str| if name.ends_with('/') { String::new() } else { quote.to_owned() };
    Some(match quote {
        Some('\'') if !is_hidden && !path.contains('\'') => format!("'{path}{}", end("'")),
        None if !needs_quotes => path,
        _ => format!("\"{}{}", double_quoted(&path), end("\"")),
    })
}

/// What stands between double quotes for a text.
fn double_quoted(text: &str) -> String {
    let mut quoted = String::new();
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            _ if misleads(letter) => {
                let bytes = letter.to_string().into_bytes();
                quoted.extend(bytes.iter().map(|byte| format!("\\x{byte:02x}")));
            }
            _ => quoted.push(letter),
        }
    }
    quoted
}

/// As [`written`], for the host's shell, which has another idea of what quotes are.
fn in_shell(path: &str, quote: Option<char>, goes_on: bool) -> Option<String> {
    let (home, rest) = path.strip_prefix("~/").map_or(("", path), |rest| ("~/", rest));
    match quote {
        _ if path.contains(misleads) => None,
        None if rest.is_empty() => Some(home.to_owned()),
        None => Some(format!("{home}{}", shell_word(rest))),
        Some(quote) if shell_word(path) == path => {
            Some(format!("{quote}{path}{}", if goes_on { String::new() } else { quote.into() }))
        }
        Some(_) => None,
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
    use std::process::Stdio;

    #[test]
    fn the_word_at_the_cursor_may_be_quoted() {
        let last_word = |line| {
            let LastWord { begin, quote, text, before } = last_word(line).unwrap();
            (begin, quote, text, before.unwrap_or_else(|| vec!["!".to_owned()]).join(";"))
        };
        assert_eq!(last_word("ca"), (0, None, "ca", String::new()));
        assert_eq!(last_word("cat /etc/ho"), (4, None, "/etc/ho", "cat".to_owned()));
        assert_eq!(last_word("cat \"/a b/c"), (4, Some('"'), "/a b/c", "cat".to_owned()));
        assert_eq!(last_word("cat '/a' /b"), (9, None, "/b", "cat;/a".to_owned()));
        assert_eq!(last_word("cat \"/a\\\" "), (4, Some('"'), "/a\\\" ", "cat".to_owned()));
        assert_eq!(last_word("! cat \"a"), (6, Some('"'), "a", "!".to_owned()));
        assert_eq!(last_word("cat /a | wc \"b\" c"), (16, None, "c", "!".to_owned()));
    }

    #[test]
    fn paths_are_completed_as_they_can_be_written() {
        let written = |directory, name, quote| written(directory, name, quote, Reader::Image).unwrap();
        assert_eq!(written("/etc/", "fstab", None), "/etc/fstab");
        assert_eq!(written("/", "a b/", None), "\"/a b/");
        assert_eq!(written("/", "a\"b", None), "\"/a\\\"b\"");
        assert_eq!(written("/", "a\u{1b}2J", None), "\"/a\\x1b2J\"");
        assert_eq!(written("/", "x", Some('\'')), "'/x'");
        assert_eq!(written("/", "x' |id #", Some('\'')), "\"/x' |id #\"");
        assert_eq!(written("/", "[a-y]*", None), r"/\[a-y]\*");
        assert_eq!(written("", "-rf", None), "/-rf");
        assert_eq!(written("/", "a\u{9b}2J\u{202e}", None), r#""/a\xc2\x9b2J\xe2\x80\xae""#);
        assert_eq!(written("/", "a\u{ad}\u{e0041}", None), r#""/a\xc2\xad\xf3\xa0\x81\x81""#);
    }

    #[test]
    fn what_the_hosts_shell_reads_is_quoted_as_it_has_it() {
        let written = |directory, name, quote| written(directory, name, quote, Reader::Shell);
        assert_eq!(written("stk/", "q;id>x", None).unwrap(), "'stk/q;id>x'");
        assert_eq!(written("~/", "a$(id)/", None).unwrap(), "~/'a$(id)/'");
        assert_eq!(written("", "-x'", None).unwrap(), r"'./-x'\'''");
        assert_eq!(written("", "plain", Some('"')).unwrap(), "\"plain\"");
        assert_eq!(written("", "a`id`", Some('"')), None);
        assert_eq!(written("", "a\u{1b}", None), None);
        let is_for_a_shell = |line: &str| last_word(line).unwrap().before.is_none();
        for line in ["!ls x", " - !ls x", "cat /x | wc x", "cat /x |wc x", "cat /x |w"] {
            assert!(is_for_a_shell(line), "{line}");
        }
        assert!(!is_for_a_shell("cat /x") && !is_for_a_shell("cat '| x' y"));
    }

    #[test]
    fn fuzz_what_is_completed_is_one_word_that_means_the_path_and_is_seen() {
        blockyard_fuzz::check!(10_000).with_type::<(String, String, u8, bool)>().for_each(
            |(directory, name, quote, is_of_image)| {
                let quote = [None, Some('"'), Some('\'')][usize::from(quote % 3)];
                let (directory, name) = (format!("{directory}/"), name.replace('/', ""));
                let reader = if *is_of_image { Reader::Image } else { Reader::Host };
                if name.is_empty() || name.contains('\0') || directory.contains('\0') {
                    return;
                }
                let written = written(&directory, &name, quote, reader).unwrap();
                assert!(!written.contains(misleads), "{written:?}");
                let line = line::parse(format!("ls {written}").as_bytes()).unwrap();
                let line::Request::Command { words, pipe: None } = line.request else { panic!("{written:?}") };
                let meant = match reader {
                    Reader::Image => [directory.as_bytes(), &*escaped(name.as_bytes())].concat(),
                    _ => [directory.as_bytes(), name.as_bytes()].concat(),
                };
                assert_eq!((words.len(), words[1].as_encoded_bytes()), (2, &*meant), "{written:?}");
            },
        );
    }

    /// What a line may be made of, and names that do something where their quotes do not hold.
    const FRAGMENTS: [&str; 44] = [
        "z",
        " ",
        " ",
        " ",
        "echo ",
        ": ",
        "'",
        "'",
        "\"",
        "\"",
        "`",
        "`",
        "\\",
        "$",
        "$(",
        ")",
        "${x:-",
        "${x}",
        "}",
        "$((",
        "))",
        "$'",
        "$\"",
        "$[",
        "]",
        "((",
        "[[ ",
        " ]]",
        "[ -v ",
        " -eq ",
        "a[",
        "a=(",
        "<(",
        "<<",
        "<",
        "eval ",
        "sh -c ",
        "let ",
        "declare ",
        "trap ",
        "case x in ",
        ";",
        "#",
        "| ",
    ];
    const NAMES: [&str; 16] = [
        "z`:>P`",
        "z`;:>P;`",
        "z';:>P;'",
        "z\";:>P;\"",
        "z$(:>P)",
        "z;:>P",
        "z\\';:>P;'",
        "z);:>P;(",
        "z}`:>P`",
        "z';:>P #",
        "z[$(:>P)]",
        "z\\`:>P\\`",
        "z]];:>P",
        "z &:>P",
        "z:>P ''",
        "z}\";:>P;\"",
    ];
    const ENDS: [&str; 16] =
        ["", "'", "\"", "`", ")", "}", "))", "]", " ]]", "\"`", "`\"", ")\"", "'`", "}\"", " ;; esac", "]=1"];

    /// What the host's shell has to do with a line, when Tab was pressed at its end and that file was there.
    fn completed(line: &str, name: &str) -> Option<String> {
        let word = last_word(line)?;
        let is_fitting = word.before.is_none() && name.starts_with(word.text);
        let text = written("", name, word.quote, Reader::Shell).filter(|_| is_fitting)?;
        Some(format!("{}{text}", &line[1..word.begin]))
    }

    #[test]
    fn fuzz_no_shell_executes_what_is_completed() {
        let yard = tempfile::tempdir().unwrap();
        let shells = ["dash", "bash"].map(|shell| {
            let programs = yard.path().join(shell);
            fs::create_dir(&programs).unwrap();
            let found = ["/bin", "/usr/bin"].map(|place| std::path::Path::new(place).join(shell));
            let program = found.into_iter().find(|program| program.is_file()).expect("Debian's dash and bash");
            std::os::unix::fs::symlink(program, programs.join("sh")).unwrap();
            programs
        });
        let work = yard.path().join("work");
        fs::create_dir(&work).unwrap();
        let check = |line: &str, name: &str, end: &str| {
            let Some(completed) = completed(line, name) else { return };
            for programs in &shells {
                let mut shell = std::process::Command::new(programs.join("sh"));
                shell.env_clear().env("PATH", programs).current_dir(&work).arg("-c").arg(format!("{completed}{end}"));
                shell.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).status().unwrap();
                assert!(!work.join("P").exists(), "{programs:?} executes {completed}{end}");
            }
        };
        for line in
            ["!echo `echo z", "!echo x\"a z", "!eval echo z", "!sh -c z", "!: a[ z", "!echo \"$(echo z", "!echo z"]
        {
            for name in NAMES {
                ENDS.iter().for_each(|end| check(line, name, end));
            }
        }
        blockyard_fuzz::check!(3_000).with_type::<(Vec<u8>, u8, u8)>().for_each(|(fragments, name, end)| {
            let pick = |list: &[&'static str], byte: u8| list[usize::from(byte) % list.len()];
            let line: String = fragments.iter().take(12).map(|&byte| pick(&FRAGMENTS, byte)).collect();
            for last in ["", " ", " z"] {
                check(&format!("!{line}{last}"), pick(&NAMES, *name), pick(&ENDS, *end));
            }
        });
    }

    #[test]
    fn fuzz_what_is_completed_for_us_is_never_for_the_hosts_shell() {
        const FRAGMENTS: [&str; 10] = ["cat ", "a", " ", "\"", "'", "\\", "|", "!", "#", "-"];
        const NAMES: [&str; 6] = [" |id #", "\" |id #", "' |id #", "a |id", "|id", "\\\" |id #"];
        let check = |line: &str, name: &str| {
            let Some(LastWord { begin, quote, before: Some(before), .. }) = last_word(line) else { return };
            if before.is_empty() {
                return;
            }
            let written = written("", name, quote, Reader::Image).unwrap();
            let completed = format!("{}{written}", &line[..begin]);
            let line = line::parse(completed.as_bytes()).unwrap();
            let line::Request::Command { words, pipe: None } = line.request else { panic!("{completed}") };
            assert_eq!(words.len(), before.len() + 1, "{completed}");
        };
        check("cat \"a\\\" ", " |id #");
        blockyard_fuzz::check!(10_000).with_type::<(Vec<u8>, u8)>().for_each(|(fragments, name)| {
            let line: String = fragments.iter().map(|&byte| FRAGMENTS[usize::from(byte) % FRAGMENTS.len()]).collect();
            check(&line, NAMES[usize::from(*name) % NAMES.len()]);
        });
    }

    #[test]
    fn it_is_known_which_words_are_files_of_the_host() {
        let own = |name: &str| if name == "get" { OnHost::From(2) } else { OnHost::Nothing };
        let is_of_host = |before: &[&str]| is_of_host(&before.iter().map(ToString::to_string).collect::<Vec<_>>(), own);
        assert!(is_of_host(&["upload"]) && !is_of_host(&["upload", "a"]));
        assert!(!is_of_host(&["get"]) && is_of_host(&["get", "/etc/fstab"]));
        assert!(is_of_host(&["lcd"]) && !is_of_host(&["rm"]));
        assert_eq!(last_word("-add x").unwrap().before.unwrap(), ["add"]);
    }
}
