//! What find(1) is asked for, in its own words, and what its actions print.

use super::file_mode;
use blockyard_block::shown;
use blockyard_command_line::image::listing::{Names, civil, mode_text, owner, size_text};
use blockyard_command_line::usage_error::UsageError;
use blockyard_image::files::file_type::{is_link, type_letter};
use blockyard_image::files::find::{Count, Expression, FileTime, Found, Search, Test};
use blockyard_image::guest::image_path;
use blockyard_protocol::file_mode::applied;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Parentheses and negations that may lie in one another.
const DEPTH_MAX: usize = 64;
/// Longest field of -printf.
const WIDTH_MAX: usize = 1 << 12;
const DAY_SECONDS: i64 = 86_400;

/// What is done with what is found.
#[derive(Debug)]
pub enum Action {
    /// The path, and what comes behind it.
    Print(&'static str),
    Ls {
        now: i64,
    },
    Format(Vec<Part>),
}

/// A part of a format of -printf.
#[derive(Debug, PartialEq, Eq)]
pub enum Part {
    Text(Vec<u8>),
    Field {
        letter: u8,
        /// Of a time.
        detail: u8,
        width: usize,
        is_left: bool,
        is_zero: bool,
    },
}

/// What arguments ask for at `now`, in seconds since 1970, and whether what is found is for a list of JSON objects:
/// then no action prints it.
///
/// # Errors
/// When they make no sense.
pub fn parse(arguments: &[OsString], is_json: bool, now: i64) -> Result<(Search<Action>, bool), UsageError> {
    let is_expression =
        |word: &&OsString| word.as_bytes().starts_with(b"-") || ["(", ")", "!"].iter().any(|mark| *word == mark);
    let split = arguments.iter().position(|word| is_expression(&word)).unwrap_or(arguments.len());
    let (paths, words) = arguments.split_at(split);
    let mut paths: Vec<_> = paths.iter().map(|path| image_path(Path::new(path))).collect();
    if paths.is_empty() {
        paths.push(b"/".to_vec());
    }
    let mut search = Search {
        paths,
        depth_min: 0,
        depth_max: u32::MAX,
        one_file_system: false,
        details: is_json,
        expression: Expression::All(Vec::new()),
    };
    let mut parser = Parser { words, at: 0, now, acts: false, is_json, search: &mut search };
    let expression = parser.any(0)?;
    let (rest, acts, is_json) = (words.get(parser.at), parser.acts, parser.is_json);
    if let Some(word) = rest {
        return Err(UsageError(format!("{}: there is no ( for it", shown(word))));
    }
    search.expression = match (acts, is_json) {
        (true, true) => return Err(UsageError("--json prints what is found: leave out actions".to_owned())),
        (true, false) | (false, true) => expression,
        (false, false) => Expression::All(vec![expression, Expression::Action(Action::Print("\n"))]),
    };
    Ok((search, is_json))
}

/// `+N`, `-N` or `N`: more, less or just so much.
fn count(text: &str) -> Option<Count> {
    let how = match text.bytes().next() {
        Some(b'+') => Count::More,
        Some(b'-') => Count::Less,
        _ => Count::Exactly,
    };
    let digits = if text.starts_with(['+', '-']) { &text[1..] } else { text };
    let is_number = !digits.is_empty() && digits.bytes().all(|byte| byte.is_ascii_digit());
    Some(how(is_number.then(|| digits.parse().ok()).flatten()?))
}

struct Parser<'words> {
    words: &'words [OsString],
    at: usize,
    now: i64,
    /// There is an action.
    acts: bool,
    /// There is --json.
    is_json: bool,
    search: &'words mut Search<Action>,
}

impl Parser<'_> {
    fn peek(&self) -> Option<&str> {
        self.words.get(self.at).map(|word| word.to_str().unwrap_or_default())
    }

    /// What -o joins.
    fn any(&mut self, depth: usize) -> Result<Expression<Action>, UsageError> {
        if depth > DEPTH_MAX {
            return Err(UsageError(format!("more than {DEPTH_MAX} parentheses and negations in one another")));
        }
        let mut parts = vec![self.all(depth)?];
        while let Some("-o" | "-or") = self.peek() {
            self.at += 1;
            if matches!(self.peek(), None | Some(")" | "-o" | "-or")) {
                return Err(UsageError("-o: nothing follows".to_owned()));
            }
            parts.push(self.all(depth)?);
        }
        Ok(if parts.len() == 1 { parts.remove(0) } else { Expression::Any(parts) })
    }

    /// What follows one another, or is joined by -a.
    fn all(&mut self, depth: usize) -> Result<Expression<Action>, UsageError> {
        let mut parts = Vec::new();
        loop {
            match self.peek() {
                None | Some(")" | "-o" | "-or") => return Ok(Expression::All(parts)),
                Some("-a" | "-and") => self.at += 1,
                Some(_) => parts.push(self.one(depth)?),
            }
        }
    }

    fn one(&mut self, depth: usize) -> Result<Expression<Action>, UsageError> {
        let word = self.words.get(self.at).map(|word| word.to_string_lossy().into_owned()).unwrap_or_default();
        self.at += 1;
        match word.as_str() {
            "!" | "-not" if depth < DEPTH_MAX => Ok(Expression::Not(Box::new(self.one(depth + 1)?))),
            "(" => {
                let inner = self.any(depth + 1)?;
                match self.peek() {
                    Some(")") => self.at += 1,
                    _ => return Err(UsageError("(: there is no ) for it".to_owned())),
                }
                Ok(inner)
            }
            _ => self.primary(&word),
        }
    }

    fn value(&mut self, word: &str) -> Result<OsString, UsageError> {
        let value = self.words.get(self.at).cloned();
        self.at += 1;
        value.ok_or_else(|| UsageError(format!("{word} needs a value")))
    }

    fn text(&mut self, word: &str) -> Result<String, UsageError> {
        let value = self.value(word)?;
        value.into_string().map_err(|value| UsageError(format!("{word} {}: it is not UTF-8", shown(&value))))
    }

    fn count(&mut self, word: &str) -> Result<Count, UsageError> {
        let text = self.text(word)?;
        count(&text).ok_or_else(|| UsageError(format!("{word} {text}: it is [+-]N")))
    }

    fn number(&mut self, word: &str) -> Result<u32, UsageError> {
        let text = self.text(word)?;
        text.parse().map_err(|_| UsageError(format!("{word} {text}: it is a number")))
    }

    fn primary(&mut self, word: &str) -> Result<Expression<Action>, UsageError> {
        let nothing = Ok(Expression::All(Vec::new()));
        let test = match word {
            "-name" => Test::Name(self.value(word)?.as_bytes().to_vec()),
            "-path" | "-wholename" => Test::Path(self.value(word)?.as_bytes().to_vec()),
            "-type" => types(&self.value(word)?)?,
            "-size" => size(&self.value(word)?)?,
            "-perm" => permissions(&self.text(word)?)?,
            "-user" => Test::User(self.text(word)?),
            "-group" => Test::Group(self.text(word)?),
            "-newer" => {
                let than = image_path(Path::new(&self.value(word)?));
                Test::Newer { than, modified: (0, 0) }
            }
            "-mtime" => self.age(word, FileTime::Modified, DAY_SECONDS)?,
            "-atime" => self.age(word, FileTime::Accessed, DAY_SECONDS)?,
            "-ctime" => self.age(word, FileTime::Changed, DAY_SECONDS)?,
            "-mmin" => self.age(word, FileTime::Modified, 60)?,
            "-amin" => self.age(word, FileTime::Accessed, 60)?,
            "-cmin" => self.age(word, FileTime::Changed, 60)?,
            "-empty" => Test::Empty,
            "-links" => Test::Links(self.count(word)?),
            "-mindepth" => {
                self.search.depth_min = self.number(word)?;
                return nothing;
            }
            "-maxdepth" => {
                self.search.depth_max = self.number(word)?;
                return nothing;
            }
            "-xdev" | "-mount" => {
                self.search.one_file_system = true;
                return nothing;
            }
            "--json" => {
                (self.is_json, self.search.details) = (true, true);
                return nothing;
            }
            _ => return self.action(word),
        };
        Ok(Expression::Test(test))
    }

    fn age(&mut self, word: &str, of: FileTime, unit: i64) -> Result<Test, UsageError> {
        Ok(Test::Age { of, unit, now: self.now, count: self.count(word)? })
    }

    fn action(&mut self, word: &str) -> Result<Expression<Action>, UsageError> {
        let action = match word {
            "-print" => Action::Print("\n"),
            "-print0" => Action::Print("\0"),
            "-ls" => Action::Ls { now: self.now },
            "-printf" => Action::Format(format(self.value(word)?.as_bytes())?),
            _ if word.starts_with('-') => {
                return Err(UsageError(format!("{word} is no test of `find` here: see --help")));
            }
            _ => return Err(UsageError(format!("{word}: paths come before tests"))),
        };
        self.acts = true;
        self.search.details |= matches!(action, Action::Ls { .. } | Action::Format(_));
        Ok(Expression::Action(action))
    }
}

fn types(text: &OsStr) -> Result<Test, UsageError> {
    let letters: Vec<char> = text.to_string_lossy().split(',').flat_map(str::chars).collect();
    if letters.is_empty() || letters.iter().any(|letter| !"fdlbcps".contains(*letter)) {
        return Err(UsageError(format!("-type {}: it is one of f, d, l, b, c, p, s", shown(text))));
    }
    // What find calls f, listings show as -.
    Ok(Test::Type(letters.into_iter().map(|letter| if letter == 'f' { '-' } else { letter }).collect()))
}

fn size(text: &OsStr) -> Result<Test, UsageError> {
    let bad = || UsageError(format!("-size {}: it is [+-]N[ckMG], such as +10M", shown(text)));
    let text = text.to_str().ok_or_else(bad)?;
    let (digits, unit) = match text.char_indices().next_back() {
        Some((at, 'c')) => (&text[..at], 1),
        Some((at, 'w')) => (&text[..at], 2),
        Some((at, 'b')) => (&text[..at], 512),
        Some((at, 'k')) => (&text[..at], 1 << 10),
        Some((at, 'M')) => (&text[..at], 1 << 20),
        Some((at, 'G')) => (&text[..at], 1 << 30),
        _ => (text, 512),
    };
    Ok(Test::Size(count(digits).ok_or_else(bad)?, unit))
}

fn permissions(text: &str) -> Result<Test, UsageError> {
    let how = text.chars().next().filter(|letter| "-/".contains(*letter));
    let mode = if how.is_some() { &text[1..] } else { text };
    let clauses = file_mode::parse(mode).map_err(|problem| UsageError(format!("-perm {text}: {problem}")))?;
    // A symbolic mode says what becomes of a file that has no permissions.
    let bits = clauses.iter().fold(0, |bits, clause| applied(clause, bits));
    Ok(match how {
        Some('-') => Test::AllPermissions(bits),
        Some(_) => Test::AnyPermission(bits),
        None => Test::Permissions(bits),
    })
}

/// Letters of -printf that stand for something.
const FIELDS: &[u8] = b"pPfhHsbkmMniDuUgGylda%tc";
/// Letters behind %A, %C and %T.
const TIMES: &[u8] = b"@YymdHMSTFDab+c";

fn format(text: &[u8]) -> Result<Vec<Part>, UsageError> {
    let bad = |what: &[u8]| UsageError(format!("-printf: {} means nothing here", String::from_utf8_lossy(what)));
    let (mut parts, mut plain, mut at) = (Vec::new(), Vec::new(), 0);
    while at < text.len() {
        let rest = &text[at + 1..];
        match text[at] {
            b'\\' => {
                let (byte, length) = escaped(rest).ok_or_else(|| bad(&text[at..text.len().min(at + 2)]))?;
                plain.push(byte);
                at += 1 + length;
            }
            b'%' => {
                if !plain.is_empty() {
                    parts.push(Part::Text(std::mem::take(&mut plain)));
                }
                let flags = rest.iter().take_while(|byte| b"-0 +#".contains(byte)).count();
                let digits = rest[flags..].iter().take_while(|byte| byte.is_ascii_digit()).count();
                let width = String::from_utf8_lossy(&rest[flags..flags + digits]).parse().unwrap_or(0);
                let letter = rest.get(flags + digits).copied().unwrap_or(0);
                let is_time = b"ACT".contains(&letter);
                let detail = if is_time { rest.get(flags + digits + 1).copied().unwrap_or(0) } else { 0 };
                let length = 1 + flags + digits + 1 + usize::from(is_time);
                if !(FIELDS.contains(&letter) || (is_time && TIMES.contains(&detail))) || width > WIDTH_MAX {
                    return Err(bad(&text[at..text.len().min(at + length)]));
                }
                let (is_left, is_zero) = (rest[..flags].contains(&b'-'), rest[..flags].contains(&b'0'));
                parts.push(Part::Field { letter, detail, width, is_left, is_zero });
                at += length;
            }
            byte => {
                plain.push(byte);
                at += 1;
            }
        }
    }
    if !plain.is_empty() {
        parts.push(Part::Text(plain));
    }
    Ok(parts)
}

/// The byte that is meant by what follows a backslash, and how many bytes that are.
fn escaped(rest: &[u8]) -> Option<(u8, usize)> {
    let octal = rest.iter().take(3).take_while(|byte| (b'0'..=b'7').contains(byte)).count();
    if octal > 0 {
        let value = rest[..octal].iter().fold(0u32, |value, byte| value * 8 + u32::from(byte - b'0'));
        return Some((u8::try_from(value & 0xff).ok()?, octal));
    }
    let byte = match rest.first()? {
        b'a' => 7,
        b'b' => 8,
        b'f' => 12,
        b'n' => b'\n',
        b'r' => b'\r',
        b't' => b'\t',
        b'v' => 11,
        b'\\' => b'\\',
        _ => return None,
    };
    Some((byte, 1))
}

/// What a field of -printf stands for.
fn field(found: &Found<'_>, letter: u8, detail: u8) -> Vec<u8> {
    let entry = found.entry;
    let text = match letter {
        b'p' => return found.path.to_vec(),
        b'P' => return found.below().to_vec(),
        b'f' => return found.name().to_vec(),
        b'h' => return found.directory().to_vec(),
        b'H' => return found.start.to_vec(),
        b'l' => return if is_link(entry.mode) { entry.target.clone() } else { Vec::new() },
        b's' => entry.size.to_string(),
        b'b' => entry.blocks.to_string(),
        b'k' => entry.blocks.div_ceil(2).to_string(),
        b'm' => format!("{:o}", entry.mode & 0o7777),
        b'M' => mode_text(entry.mode),
        b'n' => entry.links.to_string(),
        b'i' => entry.inode.to_string(),
        b'D' => entry.device.to_string(),
        b'u' => owner(&entry.user, entry.user_id),
        b'U' => entry.user_id.to_string(),
        b'g' => owner(&entry.group, entry.group_id),
        b'G' => entry.group_id.to_string(),
        b'y' => type_letter(entry.mode).to_string().replace('-', "f"),
        b'd' => found.depth.to_string(),
        b't' | b'T' => time(entry.modified, entry.modified_ns, detail),
        b'a' | b'A' => time(entry.accessed, entry.accessed_ns, detail),
        b'c' | b'C' => time(entry.changed, entry.changed_ns, detail),
        _ => "%".to_owned(),
    };
    text.into_bytes()
}

impl Action {
    /// Does it.
    ///
    /// # Errors
    /// When it cannot be printed.
    pub fn perform(&self, found: &Found<'_>, names: &mut Names) -> io::Result<()> {
        match self {
            Self::Print(end) => {
                names.name(found.path)?;
                names.text(end)
            }
            Self::Ls { now } => {
                let entry = found.entry;
                names.text(&format!(
                    "{:>9} {:>6} {} {:>3} {:<8} {:<8} {:>8} {} ",
                    entry.inode,
                    entry.blocks.div_ceil(2),
                    mode_text(entry.mode),
                    entry.links,
                    owner(&entry.user, entry.user_id),
                    owner(&entry.group, entry.group_id),
                    size_text(entry, false),
                    short_time(entry.modified, *now),
                ))?;
                names.name(found.path)?;
                if is_link(entry.mode) {
                    names.text(" -> ")?;
                    names.name(&entry.target)?;
                }
                names.text("\n")
            }
            Self::Format(parts) => parts.iter().try_for_each(|part| match part {
                Part::Text(text) => names.bytes(text),
                Part::Field { letter, detail, width, is_left, is_zero } => {
                    let field = field(found, *letter, *detail);
                    let missing = width.saturating_sub(field.len());
                    let before = if *is_zero && !is_left { "0" } else { " " };
                    names.text(&before.repeat(if *is_left { 0 } else { missing }))?;
                    names.name(&field)?;
                    names.text(&" ".repeat(if *is_left { missing } else { 0 }))
                }
            }),
        }
    }
}

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const WEEKDAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];

/// A time in UTC as find(1) writes it: by the letter of strftime(3), or as ctime(3) has it with fractions of a second.
fn time(seconds: i64, nanoseconds: u32, detail: u8) -> String {
    let (days, rest) = (seconds.div_euclid(DAY_SECONDS), seconds.rem_euclid(DAY_SECONDS));
    let (year, month, day) = civil(days);
    let (hour, minute) = (rest / 3600, rest / 60 % 60);
    let month_name = MONTHS[(month - 1).rem_euclid(12) as usize];
    let weekday = WEEKDAYS[days.rem_euclid(7) as usize];
    // Ten digits, as find(1) has them.
    let second = format!("{:02}.{nanoseconds:09}0", rest % 60);
    match detail {
        b'@' => format!("{seconds}.{nanoseconds:09}0"),
        b'Y' => year.to_string(),
        b'y' => format!("{:02}", year.rem_euclid(100)),
        b'm' => format!("{month:02}"),
        b'd' => format!("{day:02}"),
        b'H' => format!("{hour:02}"),
        b'M' => format!("{minute:02}"),
        b'S' => second,
        b'T' => format!("{hour:02}:{minute:02}:{second}"),
        b'F' => format!("{year}-{month:02}-{day:02}"),
        b'D' => format!("{month:02}/{day:02}/{:02}", year.rem_euclid(100)),
        b'a' => weekday.to_owned(),
        b'b' => month_name.to_owned(),
        b'+' => format!("{year}-{month:02}-{day:02}+{hour:02}:{minute:02}:{second}"),
        _ => format!("{weekday} {month_name} {day:>2} {hour:02}:{minute:02}:{second} {year}"),
    }
}

/// As `ls -l` has it: with the time of day for the last half year, else with the year.
fn short_time(seconds: i64, now: i64) -> String {
    const HALF_YEAR_SECONDS: i64 = 31_556_952 / 2;
    let (days, rest) = (seconds.div_euclid(DAY_SECONDS), seconds.rem_euclid(DAY_SECONDS));
    let (year, month, day) = civil(days);
    let month = MONTHS[(month - 1).rem_euclid(12) as usize];
    match (now.saturating_sub(HALF_YEAR_SECONDS)..=now).contains(&seconds) {
        true => format!("{month} {day:>2} {:02}:{:02}", rest / 3600, rest / 60 % 60),
        false => format!("{month} {day:>2}  {year}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockyard_protocol::appliance::Entry;

    const NOW: i64 = 1_000_000_000;

    fn search(arguments: &[&str]) -> Result<Expression<Action>, UsageError> {
        let arguments: Vec<_> = arguments.iter().map(OsString::from).collect();
        parse(&arguments, false, NOW).map(|(search, _)| search.expression)
    }

    /// Whether an expression holds, whatever it prints.
    fn passes(expression: &Expression<Action>, found: &Found<'_>) -> bool {
        match expression {
            Expression::All(parts) => parts.iter().all(|part| passes(part, found)),
            Expression::Any(parts) => parts.iter().any(|part| passes(part, found)),
            Expression::Not(part) => !passes(part, found),
            Expression::Test(Test::Newer { than, .. }) => {
                Test::Newer { than: than.clone(), modified: (500, 7) }.holds(found)
            }
            Expression::Test(test) => test.holds(found),
            Expression::Action(_) => true,
        }
    }

    fn holds(arguments: &[&str], path: &str, entry: &Entry) -> bool {
        let found = Found { path: path.as_bytes(), start: b"/", depth: 1, entry };
        passes(&search(arguments).unwrap(), &found)
    }

    #[test]
    fn tests_are_those_of_find() {
        let file = |mode: u32, size: u64| Entry { mode: 0o100_000 | mode, size, ..Entry::default() };
        let wanted = ["/etc", "-name", "*.conf", "-type", "f", "-size", "+1k"];
        assert!(holds(&wanted, "/etc/a.conf", &file(0o644, 1025)));
        assert!(!holds(&wanted, "/etc/a.conf", &file(0o644, 1024)));
        assert!(!holds(&wanted, "/etc/a.config", &file(0o644, 4096)));
        for (mode, yes, no) in [
            ("644", 0o644, 0o4644),
            ("-4000", 0o4755, 0o755),
            ("/022", 0o620, 0o644),
            ("/0", 0o600, 0o10000),
            ("-u+s,g+s", 0o6755, 0o4755),
            ("u=rw,go=r", 0o644, 0o640),
        ] {
            assert!(holds(&["-perm", mode], "/f", &file(yes, 0)), "{mode}");
            assert!(no > 0o7777 || !holds(&["-perm", mode], "/f", &file(no, 0)), "{mode}");
        }
        let owned = Entry { user: "daemon".into(), user_id: 1, group_id: 7, ..file(0o644, 0) };
        for good in [&["-user", "daemon"][..], &["-user", "1"], &["-group", "7"], &["-empty"], &["!", "-user", "0"]] {
            assert!(holds(good, "/f", &owned), "{good:?}");
        }
        assert!(!holds(&["-user", "root"], "/f", &owned) && !holds(&["-group", "8"], "/f", &owned));
        let aged = |age: i64| Entry { modified: NOW - age, links: 2, ..file(0o644, 1) };
        for (test, age, yes) in [
            ("0", 86_399, true),
            ("0", 86_400, false),
            ("1", 86_400, true),
            ("+1", 2 * 86_400 - 1, false),
            ("+1", 2 * 86_400, true),
            ("-1", 86_399, true),
            ("-1", 86_400, false),
            ("-1", -5, true),
        ] {
            assert_eq!(holds(&["-mtime", test], "/f", &aged(age)), yes, "{test} {age}");
        }
        assert!(holds(&["-mmin", "+2"], "/f", &aged(180)) && holds(&["-links", "+1"], "/f", &aged(0)));
        let newer = |modified, modified_ns| Entry { modified, modified_ns, ..file(0o644, 0) };
        assert!(holds(&["-newer", "x"], "/f", &newer(500, 8)) && !holds(&["-newer", "x"], "/f", &newer(500, 7)));
        let joined = ["(", "-name", "a", "-o", "-name", "b", ")", "-a", "!", "-size", "1"];
        assert!(holds(&joined, "/b", &file(0, 0)) && !holds(&joined, "/b", &file(0, 5)));
        assert!(!holds(&joined, "/c", &file(0, 0)));
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        let deep = [vec!["("; 100], vec![")"; 100]].concat();
        for bad in [
            &["-nonsense"][..],
            &["-name"],
            &["-type", "x"],
            &["-size", "k"],
            &["-size", "+-1"],
            &["-maxdepth", "-1"],
            &["-perm", "9"],
            &["-perm", "-"],
            &["-mtime", "x"],
            &["-printf", "%q"],
            &["-printf", "%T"],
            &["-printf", "\\q"],
            &["-printf", "%99999p"],
            &["("],
            &[")"],
            &["-name", "a", "/etc"],
            &["-name", "a", "-o"],
            &vec!["!"; 100],
            &deep,
        ] {
            assert!(search(bad).is_err(), "{bad:?}");
        }
        assert!(parse(&["-print".into()], true, 0).is_err());
    }

    #[test]
    fn fields_are_those_of_find() {
        let entry = Entry {
            mode: 0o120_777,
            target: b"to".to_vec(),
            user_id: 3,
            user: "sys".into(),
            blocks: 9,
            modified: 951_782_401,
            modified_ns: 50,
            ..Entry::default()
        };
        let found = Found { path: b"/usr/lib/x", start: b"/usr", depth: 2, entry: &entry };
        let text = |format: &str| {
            let parts = super::format(format.as_bytes()).unwrap();
            let each = parts.iter().map(|part| match part {
                Part::Text(text) => text.clone(),
                Part::Field { letter, detail, .. } => field(&found, *letter, *detail),
            });
            String::from_utf8(each.collect::<Vec<_>>().concat()).unwrap()
        };
        assert_eq!(text("%p|%P|%f|%h|%H|%d|%l|%y\\n\\0\\101%%"), "/usr/lib/x|lib/x|x|/usr/lib|/usr|2|to|l\n\0A%");
        assert_eq!(text("%m %M %k %u %U %g"), "777 lrwxrwxrwx 5 sys 3 0");
        assert_eq!(text("%T@ %TY-%Tm-%Td %T+"), "951782401.0000000500 2000-02-29 2000-02-29+00:00:01.0000000500");
        assert_eq!(text("%t"), "Tue Feb 29 00:00:01.0000000500 2000");
        assert_eq!(short_time(951_782_401, 951_782_401 + 100 * DAY_SECONDS), "Feb 29 00:00");
        assert_eq!(short_time(951_782_401, NOW), "Feb 29  2000");
    }
}
