//! What a guest says of its step on its console, and what else it says meanwhile.
//!
//! All of it is the guest's own word: it is kept within bounds, and files have names that lie in one directory.

/// Begins what the init says.
const WORD: &str = "BLOCKYARD-TESTVM ";
/// Of a step's output, and of a file.
const OUTPUT_BYTES_MAX: usize = 4 << 20;
const FILES_MAX: usize = 100;
const FILE_BYTES_MAX: usize = 4 << 20;
const NAME_BYTES_MAX: usize = 100;
/// Of a sentence.
const WHY_BYTES_MAX: usize = 500;

/// A step as its console has it.
#[derive(Debug, Default)]
pub(crate) struct StepConsole {
    /// Its exit status.
    pub(crate) status: Option<u32>,
    /// Why it did not begin.
    pub(crate) failed: Option<String>,
    /// What was said between its begin and its end.
    pub(crate) output: Vec<u8>,
    /// Files that came over the console, by their names.
    pub(crate) files: Vec<(String, Vec<u8>)>,
    place: Place,
}

/// What a line belongs to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Place {
    #[default]
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
    /// Hears the next line.
    pub(crate) fn hear(&mut self, line: &[u8]) -> Option<News> {
        let line = line.strip_suffix(b"\r").unwrap_or(line);
        let at = line.windows(WORD.len()).position(|window| window == WORD.as_bytes());
        let Some(at) = at else {
            self.take(line, true);
            return None;
        };
        // Output may end without a newline.
        self.take(&line[..at], false);
        let said = String::from_utf8_lossy(&line[at + WORD.len()..]).into_owned();
        self.told(said.trim())
    }

    fn told(&mut self, said: &str) -> Option<News> {
        match (self.place, said.split_once(' ').unwrap_or((said, ""))) {
            // A step that has prepared something says once more that it begins.
            (Place::Before | Place::Output, ("begin", _)) => {
                self.place = Place::Output;
                Some(News::Begins)
            }
            (Place::Before, ("failed:", why)) => {
                self.failed.get_or_insert_with(|| why.chars().take(WHY_BYTES_MAX).collect());
                None
            }
            (Place::Output, ("end", status)) => {
                self.status = status.parse().ok();
                self.place = Place::After;
                Some(News::Ends)
            }
            (Place::After | Place::File, ("file", name)) => {
                let is_new = is_plain(name) && self.files.iter().all(|(other, _)| other != name);
                self.place = if is_new && self.files.len() < FILES_MAX { Place::File } else { Place::After };
                if self.place == Place::File {
                    self.files.push((name.to_owned(), Vec::new()));
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
                if self.output.len() + line.len() < OUTPUT_BYTES_MAX {
                    self.output.extend_from_slice(line);
                    self.output.extend_from_slice(newline);
                }
            }
            Place::File => {
                if let Some((_, content)) = self.files.last_mut() {
                    let bytes = bytes_of_hex(line);
                    let room = FILE_BYTES_MAX - content.len();
                    content.extend(bytes.take(room));
                }
            }
            Place::Before | Place::After => {}
        }
    }
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

    fn heard(lines: &[&str]) -> (StepConsole, Vec<News>) {
        let mut console = StepConsole::default();
        let news = lines.iter().filter_map(|line| console.hear(line.as_bytes())).collect();
        (console, news)
    }

    #[test]
    fn a_step_is_what_lies_between_its_marks() {
        let (console, news) = heard(&[
            "[ 0.1] kernel",
            "BLOCKYARD-TESTVM begin\r",
            "one\r",
            "twoBLOCKYARD-TESTVM end 3",
            "late",
            "BLOCKYARD-TESTVM file a.json",
            "6869",
            "0a",
            "BLOCKYARD-TESTVM file ../../etc/passwd",
            "6869",
            "BLOCKYARD-TESTVM file a.json",
            "6869",
            "BLOCKYARD-TESTVM done",
        ]);
        assert_eq!(news, [News::Begins, News::Ends]);
        assert_eq!((console.status, &console.output[..]), (Some(3), &b"one\ntwo"[..]));
        assert_eq!(console.files, [("a.json".to_owned(), b"hi\n".to_vec())]);
    }

    #[test]
    fn a_step_begins_anew_when_it_is_prepared() {
        let (console, news) =
            heard(&["BLOCKYARD-TESTVM begin", "one", "BLOCKYARD-TESTVM begin", "two", "BLOCKYARD-TESTVM end 0"]);
        assert_eq!(news, [News::Begins, News::Begins, News::Ends]);
        assert_eq!(console.output, b"one\ntwo\n");
    }

    #[test]
    fn why_a_step_did_not_begin_is_told() {
        let (console, news) = heard(&["BLOCKYARD-TESTVM failed: no virtiofs", "BLOCKYARD-TESTVM end 0"]);
        assert!(news.is_empty());
        assert_eq!((console.failed.as_deref(), console.status), (Some("no virtiofs"), None));
    }

    /// Whatever a guest says, no more than so much of it is kept, and each file lies in the directory.
    #[test]
    fn fuzz_any_console_is_kept_within_bounds() {
        blockyard_fuzz::check!(2000).with_type::<Vec<(u8, Vec<u8>)>>().for_each(|lines| {
            let mut console = StepConsole::default();
            for (kind, line) in lines {
                let word = ["", "begin", "end ", "file ", "done", "failed: "][usize::from(kind % 6)];
                let line =
                    if word.is_empty() { line.clone() } else { [WORD.as_bytes(), word.as_bytes(), line].concat() };
                let _ = console.hear(&line);
            }
            assert!(console.output.len() <= OUTPUT_BYTES_MAX && console.files.len() <= FILES_MAX);
            for (name, content) in &console.files {
                assert!(is_plain(name) && !name.contains('/') && content.len() <= FILE_BYTES_MAX);
            }
        });
    }
}
