//! `blockyard image find`.

use super::file_commands::{Access, FileCommand};
use super::listing::{Names, type_letter};
use super::open_image::{OpenImage, RecordTaker, image_path};
use crate::UsageError;
use anyhow::Result;
use blockyard_protocol::appliance::{Entry, Operation, Record, Walk};
use blockyard_protocol::pattern::matches;
use clap::Args;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Find files of an image. After the paths come tests, as in find(1): -name PATTERN, -path PATTERN, -type f|d|l|b|c|p|s, -size [+-]N[ckMG],
/// -maxdepth N, -xdev, -print0. Options of the image come first.
#[derive(Args)]
pub struct Find {
    /// Where to look, and what for.
    #[arg(value_name = "PATH… TEST…", trailing_var_arg = true, allow_hyphen_values = true)]
    rest: Vec<OsString>,
}

impl FileCommand for Find {
    fn access(&self) -> Access {
        Access::Read
    }

    fn check(&self) -> Result<()> {
        Ok(Search::parse(&self.rest).map(drop)?)
    }

    fn run(&self, image: &mut OpenImage) -> Result<()> {
        let search = Search::parse(&self.rest)?;
        let Search { paths, depth, one_file_system, .. } = &search;
        let walk = Walk { paths: paths.clone(), depth: *depth, one_file_system: *one_file_system, ..Walk::default() };
        image.records(Operation::Walk(walk), Finder { search, names: Names::new(), directory: Vec::new() })
    }
}

/// What is wanted.
#[derive(Debug, Default)]
struct Search {
    paths: Vec<Vec<u8>>,
    depth: u32,
    one_file_system: bool,
    zero: bool,
    tests: Vec<Test>,
}

#[derive(Debug)]
enum Test {
    Name(Vec<u8>),
    Path(Vec<u8>),
    Type(Vec<char>),
    /// More than (`+`), less than (`-`) or just so many units of so many bytes, rounded up.
    Size {
        sign: Option<char>,
        count: u64,
        unit: u64,
    },
}

impl Search {
    fn parse(arguments: &[OsString]) -> Result<Self, UsageError> {
        let mut search = Self { depth: u32::MAX, ..Self::default() };
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let Some(word) = argument.to_str().filter(|word| word.starts_with('-')) else {
                search.paths.push(image_path(Path::new(argument)));
                continue;
            };
            let mut value = || arguments.next().ok_or_else(|| UsageError(format!("{word} needs a value")));
            match word {
                "-name" => search.tests.push(Test::Name(value()?.as_bytes().to_vec())),
                "-path" => search.tests.push(Test::Path(value()?.as_bytes().to_vec())),
                "-type" => search.tests.push(Test::types(value()?)?),
                "-size" => search.tests.push(Test::size(value()?)?),
                "-maxdepth" => search.depth = number(value()?)?,
                "-xdev" | "-mount" => search.one_file_system = true,
                "-print0" => search.zero = true,
                "-print" => {}
                _ => return Err(UsageError(format!("{word} is no test of `find`: see --help"))),
            }
        }
        if search.paths.is_empty() {
            search.paths.push(b"/".to_vec());
        }
        Ok(search)
    }
}

fn number<T: std::str::FromStr>(text: &OsStr) -> Result<T, UsageError> {
    let parsed = text.to_str().and_then(|text| text.parse().ok());
    parsed.ok_or_else(|| UsageError(format!("{} is no number", text.display())))
}

impl Test {
    fn types(text: &OsStr) -> Result<Self, UsageError> {
        let letters: Vec<char> = text.to_string_lossy().split(',').flat_map(str::chars).collect();
        if letters.is_empty() || letters.iter().any(|letter| !"fdlbcps".contains(*letter)) {
            return Err(UsageError(format!("-type {}: it is one of f, d, l, b, c, p, s", text.display())));
        }
        // What find calls f, listings show as -.
        Ok(Self::Type(letters.into_iter().map(|letter| if letter == 'f' { '-' } else { letter }).collect()))
    }

    fn size(text: &OsStr) -> Result<Self, UsageError> {
        let bad = || UsageError(format!("-size {}: it is [+-]N[ckMG], such as +10M", text.display()));
        let text = text.to_str().ok_or_else(bad)?;
        let sign = text.chars().next().filter(|letter| "+-".contains(*letter));
        let digits = text.trim_start_matches(['+', '-']);
        let (digits, unit) = match digits.char_indices().next_back() {
            Some((at, 'c')) => (&digits[..at], 1),
            Some((at, 'k')) => (&digits[..at], 1 << 10),
            Some((at, 'M')) => (&digits[..at], 1 << 20),
            Some((at, 'G')) => (&digits[..at], 1 << 30),
            _ => (digits, 512),
        };
        Ok(Self::Size { sign, count: digits.parse().map_err(|_| bad())?, unit })
    }

    fn holds(&self, path: &[u8], entry: &Entry) -> bool {
        match self {
            Self::Name(pattern) => {
                let name = path.rsplit(|&byte| byte == b'/').next().unwrap_or(path);
                matches(pattern, if name.is_empty() { b"/" } else { name })
            }
            Self::Path(pattern) => matches(pattern, path),
            Self::Type(letters) => letters.contains(&type_letter(entry.mode)),
            Self::Size { sign, count, unit } => {
                let units = entry.size.div_ceil(*unit);
                match sign {
                    Some('+') => units > *count,
                    Some(_) => units < *count,
                    None => units == *count,
                }
            }
        }
    }
}

struct Finder {
    search: Search,
    names: Names,
    directory: Vec<u8>,
}

impl RecordTaker for Finder {
    type Output = ();

    fn take(&mut self, record: Record) -> io::Result<()> {
        match record {
            Record::Directory(directory) => self.directory = directory.path,
            Record::Entry(entry) => {
                let slash: &[u8] = if self.directory.ends_with(b"/") { b"" } else { b"/" };
                let named = entry.name.contains(&b'/');
                let path = if named { entry.name.clone() } else { [&self.directory, slash, &entry.name].concat() };
                if self.search.tests.iter().all(|test| test.holds(&path, &entry)) {
                    self.names.name(&path)?;
                    self.names.text(if self.search.zero { "\0" } else { "\n" })?;
                }
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> io::Result<()> {
        self.names.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn search(arguments: &[&str]) -> Result<Search, UsageError> {
        Search::parse(&arguments.iter().map(OsString::from).collect::<Vec<_>>())
    }

    #[test]
    fn tests_are_those_of_find() {
        let wanted = search(&["/etc", "-name", "*.conf", "-type", "f", "-size", "+1k"]).unwrap();
        let entry = |mode, size| Entry { mode, size, ..Entry::default() };
        let holds = |path: &str, entry: &Entry| wanted.tests.iter().all(|test| test.holds(path.as_bytes(), entry));
        assert!(holds("/etc/a.conf", &entry(0o100_644, 1025)));
        assert!(!holds("/etc/a.conf", &entry(0o100_644, 1024)));
        assert!(!holds("/etc/a.conf", &entry(0o040_755, 4096)));
        assert!(!holds("/etc/a.config", &entry(0o100_644, 4096)));
        for bad in [&["-nonsense"][..], &["-name"], &["-type", "x"], &["-size", "k"], &["-maxdepth", "-1"]] {
            assert!(search(bad).is_err(), "{bad:?}");
        }
    }
}
