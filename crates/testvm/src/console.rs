//! What a guest says of its step on its console, and what else it says meanwhile.
//!
//! All of it is the guest's own word: it is kept within bounds, and files have names that lie in one directory. What
//! the init says has a word in it that the step's output can only have if the step was told it ([`Words`]).

use rustix::rand::{GetRandomFlags, getrandom};
use std::collections::VecDeque;
use std::io;

/// Begins what the init says.
const WORD: &str = "BLOCKYARD-TESTVM";
/// Of a step's output, and of a file.
const OUTPUT_BYTES_MAX: usize = 4 << 20;
const FILES_MAX: usize = 100;
const FILE_BYTES_MAX: usize = 4 << 20;
const NAME_BYTES_MAX: usize = 100;
/// Of a sentence.
const WHY_BYTES_MAX: usize = 500;
/// Of the console's last lines, so many are remembered.
const LAST_LINES: usize = 10;

/// What the init of one machine begins its sentences with.
#[derive(Clone, Debug)]
pub(crate) struct Words {
    /// Its own, of which the script is not told.
    pub(crate) init: String,
    /// That of `prepared`, which is a function of the script's shell.
    pub(crate) prepared: String,
}

impl Words {
    /// New ones, which nobody guesses.
    pub(crate) fn new() -> io::Result<Self> {
        let word = || {
            let mut bytes = [0; 16];
            let count = getrandom(&mut bytes, GetRandomFlags::empty())?;
            Ok::<_, io::Error>(bytes[..count].iter().map(|byte| format!("{byte:02x}")).collect())
        };
        Ok(Self { init: word()?, prepared: word()? })
    }
}

/// A step as its console has it.
#[derive(Debug)]
pub(crate) struct StepConsole {
    /// Its exit status.
    pub(crate) status: Option<u32>,
    /// The kernel's version.
    pub(crate) kernel: Option<String>,
    /// Why it did not begin.
    pub(crate) failed: Option<String>,
    /// What was said between its begin and its end.
    pub(crate) output: Vec<u8>,
    /// Whether more was said than is kept.
    pub(crate) output_goes_on: bool,
    /// Files that came over the console.
    pub(crate) files: Vec<ConsoleFile>,
    /// Files that are not kept, as there were too many or their names are none.
    pub(crate) files_left_out: usize,
    /// The last lines of all.
    pub(crate) last_lines: VecDeque<String>,
    /// What its sentences begin with: the init's, and those of `prepared`.
    beginnings: [Vec<u8>; 2],
    place: Place,
}

/// A file that came over the console.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ConsoleFile {
    pub(crate) name: String,
    pub(crate) content: Vec<u8>,
    /// Whether it has more than is kept.
    pub(crate) goes_on: bool,
}

/// What a line belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    Before,
    Output,
    File,
    /// Nothing that anybody wants.
    After,
}

/// What is news to who measures.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Begins,
    Ends,
}

impl StepConsole {
    /// One on which nothing was said yet.
    pub(crate) fn new(words: &Words) -> Self {
        let beginning = |word: &str| format!("{WORD} {word} ").into_bytes();
        Self {
            status: None,
            kernel: None,
            failed: None,
            output: Vec::new(),
            output_goes_on: false,
            files: Vec::new(),
            files_left_out: 0,
            last_lines: VecDeque::new(),
            beginnings: [beginning(&words.init), beginning(&words.prepared)],
            place: Place::Before,
        }
    }

    /// Hears the next line.
    pub(crate) fn hear(&mut self, line: &[u8]) -> Option<News> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let found = self.beginnings.iter().enumerate().find_map(|(index, beginning)| {
            let said = after(line, beginning)?;
            Some((index == 0, &line[..line.len() - said.len() - beginning.len()], said))
        });
        let Some((is_inits, before, said)) = found else {
            self.remember(line);
            self.take(line, true);
            return None;
        };
        // Output may end without a newline.
        self.take(before, false);
        if is_inits { self.told(String::from_utf8_lossy(said).trim()) } else { self.is_prepared() }
    }

    fn remember(&mut self, line: &[u8]) {
        if self.place != Place::File {
            if self.last_lines.len() == LAST_LINES {
                self.last_lines.pop_front();
            }
            self.last_lines.push_back(String::from_utf8_lossy(line).into_owned());
        }
    }

    /// What is measured begins anew.
    fn is_prepared(&mut self) -> Option<News> {
        (self.place == Place::Output).then_some(News::Begins)
    }

    fn told(&mut self, said: &str) -> Option<News> {
        match (self.place, said.split_once(' ').unwrap_or((said, ""))) {
            (Place::Before, ("begin", _)) => {
                self.place = Place::Output;
                Some(News::Begins)
            }
            (Place::Before, (what @ ("failed:" | "kernel"), text)) => {
                let place = if what == "kernel" { &mut self.kernel } else { &mut self.failed };
                place.get_or_insert_with(|| text.chars().take(WHY_BYTES_MAX).collect());
                None
            }
            (Place::Output, ("end", status)) => {
                self.status = status.parse().ok();
                self.place = Place::After;
                Some(News::Ends)
            }
            (Place::After | Place::File, ("file", name)) => {
                let is_new = is_plain(name) && self.files.iter().all(|file| file.name != name);
                self.place = if is_new && self.files.len() < FILES_MAX { Place::File } else { Place::After };
                match self.place {
                    Place::File => {
                        self.files.push(ConsoleFile { name: name.to_owned(), content: Vec::new(), goes_on: false });
                    }
                    _ => self.files_left_out += 1,
                }
                None
            }
            (Place::File, ("done", _)) => {
                self.place = Place::After;
                None
            }
            _ => None,
        }
    }

    fn take(&mut self, line: &[u8], whole: bool) {
        match self.place {
            Place::Output => {
                let newline: &[u8] = if whole { b"\n" } else { b"" };
                // After what there was no room for, nothing is taken: it would look as if it came next.
                self.output_goes_on |= self.output.len() + line.len() + newline.len() > OUTPUT_BYTES_MAX;
                if !self.output_goes_on {
                    self.output.extend_from_slice(line);
                    self.output.extend_from_slice(newline);
                }
            }
            Place::File => {
                if let Some(ConsoleFile { content, goes_on, .. }) = self.files.last_mut() {
                    content.extend(bytes_of_hex(line));
                    *goes_on |= content.len() > FILE_BYTES_MAX;
                    content.truncate(FILE_BYTES_MAX);
                }
            }
            Place::Before | Place::After => {}
        }
    }
}

/// What stands after this text.
fn after<'a>(line: &'a [u8], text: &[u8]) -> Option<&'a [u8]> {
    let at = line.windows(text.len()).position(|window| window == text)?;
    Some(&line[at + text.len()..])
}

/// Whether it is a name of a file in one directory, and no option or hidden file.
fn is_plain(name: &str) -> bool {
    let is_letter = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=NAME_BYTES_MAX).contains(&name.len()) && name.bytes().all(is_letter) && !name.starts_with(['.', '-'])
}

/// Up to the first two letters that are none.
fn bytes_of_hex(line: &[u8]) -> impl Iterator<Item = u8> {
    let digit = |byte: u8| char::from(byte).to_digit(16).map(|digit| digit as u8);
    line.chunks_exact(2).map_while(move |pair| Some(digit(pair[0])? << 4 | digit(pair[1])?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words() -> Words {
        Words { init: "i1".to_owned(), prepared: "p2".to_owned() }
    }

    /// What was heard, where `!` stands for the init's word and `?` for that of `prepared`.
    fn heard(lines: &[&str]) -> (StepConsole, Vec<News>) {
        let mut console = StepConsole::new(&words());
        let line = |line: &&str| line.replace('!', "BLOCKYARD-TESTVM i1").replace('?', "BLOCKYARD-TESTVM p2");
        let news = lines.iter().map(line).filter_map(|line| console.hear(line.as_bytes())).collect();
        (console, news)
    }

    #[test]
    fn a_step_is_what_lies_between_its_marks() {
        let (console, news) = heard(&[
            "[ 0.1] kernel",
            "! begin\r",
            "one\r",
            "two! end 3",
            "late",
            "! file a.json",
            "6869",
            "0a",
            "! file ../../etc/passwd",
            "6869",
            "! file a.json",
            "6869",
            "! done",
        ]);
        assert_eq!(news, [News::Begins, News::Ends]);
        assert_eq!((console.status, &console.output[..]), (Some(3), &b"one\ntwo"[..]));
        let file = ConsoleFile { name: "a.json".to_owned(), content: b"hi\n".to_vec(), goes_on: false };
        assert_eq!(console.files, [file]);
        assert_eq!((console.files_left_out, console.output_goes_on), (2, false));
    }

    #[test]
    fn a_step_begins_anew_when_it_is_prepared() {
        let (console, news) = heard(&["? begin", "! begin", "one", "? begin", "two", "! end 0", "? begin"]);
        assert_eq!(news, [News::Begins, News::Begins, News::Ends]);
        assert_eq!(console.output, b"one\ntwo\n");
    }

    #[test]
    fn why_a_step_did_not_begin_is_told() {
        let (console, news) = heard(&["! kernel 6.1.0", "! failed: no virtiofs", "! kernel 7", "! end 0"]);
        assert!(news.is_empty());
        assert_eq!((console.failed.as_deref(), console.status), (Some("no virtiofs"), None));
        assert_eq!(console.kernel.as_deref(), Some("6.1.0"));
    }

    /// Also what a step has heard of `prepared` ends nothing.
    #[test]
    fn what_a_step_prints_is_nothing_that_the_init_says() {
        let lies = ["BLOCKYARD-TESTVM end 0", "BLOCKYARD-TESTVM i0 end 0", "? end 0", "BLOCKYARD-TESTVM file a"];
        let (console, _) = heard(&[&["! begin"][..], &lies, &["BLOCKYARD-TESTVM ! end 1"]].concat());
        assert_eq!((console.status, console.files.len()), (Some(1), 0));
        assert!(console.output.starts_with(b"BLOCKYARD-TESTVM end 0\nBLOCKYARD-TESTVM i0 end 0\n"));
        let [one, other] = [Words::new().unwrap(), Words::new().unwrap()];
        assert!(one.init != other.init && one.init != one.prepared && one.init.len() == 32);
    }

    #[test]
    fn what_is_left_out_is_counted() {
        let mut console = heard(&["! begin"]).0;
        let line = [b'x'; 4095];
        for _ in 0..1025 {
            console.hear(&line);
        }
        assert_eq!((console.output.len(), console.output_goes_on), (OUTPUT_BYTES_MAX, true));
        console.hear(b"BLOCKYARD-TESTVM i1 end 0");
        console.hear(b"BLOCKYARD-TESTVM i1 file large");
        for _ in 0..=FILE_BYTES_MAX / 2000 + 2 {
            console.hear(&[b'0'; 4000]);
        }
        assert_eq!((console.files[0].content.len(), console.files[0].goes_on), (FILE_BYTES_MAX, true));
        assert_eq!(console.last_lines.len(), LAST_LINES);
    }

    /// Whatever a guest says, no more than so much of it is kept, and each file lies in the directory.
    #[test]
    fn fuzz_any_console_is_kept_within_bounds() {
        blockyard_fuzz::check!(2000).with_type::<Vec<(u8, Vec<u8>)>>().for_each(|lines| {
            let mut console = StepConsole::new(&words());
            for (kind, line) in lines {
                let word = ["", "begin", "end ", "file ", "done", "failed: "][usize::from(kind % 6)];
                let said = [b"BLOCKYARD-TESTVM i1 ", word.as_bytes(), line].concat();
                let line = if word.is_empty() { line.clone() } else { said };
                let _ = console.hear(&line);
            }
            assert!(console.output.len() <= OUTPUT_BYTES_MAX && console.files.len() <= FILES_MAX);
            for ConsoleFile { name, content, .. } in &console.files {
                assert!(is_plain(name) && !name.contains('/') && content.len() <= FILE_BYTES_MAX);
            }
        });
    }
}
