//! `--partition N=SOCKET[,rw][,weight=W][,uid=U]`: what the user wants to be granted.

use std::fmt;
use std::num::NonZeroU32;
use std::path::{Path, PathBuf};
use std::str::FromStr;

/// Most partitions of one disk that are exported at once.
pub const EXPORTS_MAX: usize = 128;
/// Largest weight: one client gets at most so many times what another gets.
pub const WEIGHT_MAX: u32 = 1000;
/// Most bytes of a socket's path (`sun_path` less its NUL).
const SOCKET_PATH_BYTES_MAX: usize = 107;
/// Most users that may connect to one socket.
const UIDS_MAX: usize = 16;

/// A partition, the socket it is to be had at, and the rights that come with it. Read-only unless `rw` is said.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionExport {
    number: u32,
    socket: PathBuf,
    read_only: bool,
    weight: NonZeroU32,
    uids: Vec<u32>,
}

/// Why a text is no [`PartitionExport`].
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ExportError {
    /// There is no `=`.
    #[error("'{0}' is not N=SOCKET[,rw][,weight=W][,uid=U], such as 5=/run/p5.sock,rw")]
    Form(String),
    /// What is before the `=` is no partition's number.
    #[error("'{0}' is not the number of a partition: they count from 1")]
    Number(String),
    /// The path cannot be a socket's.
    #[error("'{path}' cannot be the path of a socket: it has {} bytes, and 1 to {SOCKET_PATH_BYTES_MAX} will do", .path.len())]
    Socket {
        /// What stands after the `=`, up to a comma that is not doubled.
        path: String,
    },
    /// A word after the path.
    #[error(
        "'{0}' is unknown: after the socket's path come rw, ro, weight=W and uid=U (a comma in a path is written ,,)"
    )]
    Key(String),
    /// The same twice, or rw beside ro.
    #[error("'{0}' is said twice, or against another word")]
    Twice(String),
    /// No weight.
    #[error("'{0}' is not a weight: a number from 1 to {WEIGHT_MAX}")]
    Weight(String),
    /// No user.
    #[error("'{0}' is not a user's number")]
    Uid(String),
    /// Too many users.
    #[error("more than {UIDS_MAX} users for one socket")]
    TooManyUids,
}

impl PartitionExport {
    /// The partition's number.
    pub fn number(&self) -> u32 {
        self.number
    }

    /// Where the socket is to be.
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Whether clients may only read.
    pub fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// The client's share of the disk's time, compared with other clients'.
    pub fn weight(&self) -> NonZeroU32 {
        self.weight
    }

    /// Users who may connect; empty for the one who serves.
    pub fn uids(&self) -> &[u32] {
        &self.uids
    }

    fn set(&mut self, word: &str) -> Result<(), ExportError> {
        if let Some(weight) = word.strip_prefix("weight=") {
            let parsed = weight.parse().ok().filter(|weight: &NonZeroU32| weight.get() <= WEIGHT_MAX);
            self.weight = parsed.ok_or_else(|| ExportError::Weight(weight.into()))?;
            return Ok(());
        }
        if let Some(uid) = word.strip_prefix("uid=") {
            // The last number means "no user" to the system.
            let parsed = uid.parse().ok().filter(|&uid: &u32| uid != u32::MAX);
            self.uids.push(parsed.ok_or_else(|| ExportError::Uid(uid.into()))?);
            return if self.uids.len() > UIDS_MAX { Err(ExportError::TooManyUids) } else { Ok(()) };
        }
        match word {
            "rw" => self.read_only = false,
            "ro" => self.read_only = true,
            _ => return Err(ExportError::Key(word.into())),
        }
        Ok(())
    }
}

impl FromStr for PartitionExport {
    type Err = ExportError;

    fn from_str(text: &str) -> Result<Self, ExportError> {
        let (number, rest) = text.split_once('=').ok_or_else(|| ExportError::Form(text.into()))?;
        let digits = number.bytes().all(|digit| digit.is_ascii_digit());
        let parsed = number.parse().ok().filter(|&number: &u32| digits && number > 0);
        let number = parsed.ok_or_else(|| ExportError::Number(number.into()))?;
        let mut words = split_at_commas(rest).into_iter();
        let path = words.next().unwrap_or_default();
        if path.is_empty() || path.len() > SOCKET_PATH_BYTES_MAX || path.contains('\0') {
            return Err(ExportError::Socket { path });
        }
        let (socket, weight) = (PathBuf::from(path), NonZeroU32::MIN);
        let mut export = Self { number, socket, read_only: true, weight, uids: Vec::new() };
        let mut said: Vec<String> = Vec::new();
        for word in words {
            let key = match word.split_once('=') {
                Some((key, _)) => key,
                None if matches!(&*word, "rw" | "ro") => "rw",
                None => &word,
            };
            if key != "uid" && said.iter().any(|earlier| earlier == key) {
                return Err(ExportError::Twice(word));
            }
            said.push(key.to_owned());
            export.set(&word)?;
        }
        Ok(export)
    }
}

/// Splits at commas; two of them are a comma in the text.
fn split_at_commas(text: &str) -> Vec<String> {
    let mut words = vec![String::new()];
    let mut letters = text.chars().peekable();
    while let Some(letter) = letters.next() {
        if letter == ',' && letters.next_if_eq(&',').is_none() {
            words.push(String::new());
        } else if let Some(word) = words.last_mut() {
            word.push(letter);
        }
    }
    words
}

/// As it is parsed.
impl fmt::Display for PartitionExport {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = self.socket.display().to_string().replace(',', ",,");
        let rights = if self.read_only { "ro" } else { "rw" };
        write!(formatter, "{}={path},{rights},weight={}", self.number, self.weight)?;
        self.uids.iter().try_for_each(|uid| write!(formatter, ",uid={uid}"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<PartitionExport, ExportError> {
        text.parse()
    }

    #[test]
    fn a_partition_is_read_only_unless_rw_is_said() {
        let export = parse("5=/run/p5.sock").unwrap();
        assert_eq!((export.number(), export.socket()), (5, Path::new("/run/p5.sock")));
        assert_eq!((export.is_read_only(), export.weight().get(), export.uids()), (true, 1, &[][..]));
        assert!(!parse("5=/run/p5.sock,rw").unwrap().is_read_only());
        assert!(parse("5=/run/p5.sock,ro").unwrap().is_read_only());
    }

    #[test]
    fn every_word_is_understood_in_any_order() {
        let export = parse("12=p=1,,2.sock,uid=7,weight=30,rw,uid=1000").unwrap();
        assert_eq!((export.socket(), export.weight().get()), (Path::new("p=1,2.sock"), 30));
        assert_eq!((export.uids(), export.is_read_only()), (&[7, 1000][..], false));
        assert_eq!(parse(&export.to_string()), Ok(export));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let socket = |path: &str| ExportError::Socket { path: path.into() };
        let long = "x".repeat(108);
        for (text, error) in [
            ("", ExportError::Form(String::new())),
            ("/run/p5.sock", ExportError::Form("/run/p5.sock".into())),
            ("0=a", ExportError::Number("0".into())),
            ("+1=a", ExportError::Number("+1".into())),
            ("4294967296=a", ExportError::Number("4294967296".into())),
            ("1=", socket("")),
            ("1=,rw", socket("")),
            ("1=a\0b", socket("a\0b")),
            (&format!("1={long}"), socket(&long)),
            ("1=a,", ExportError::Key(String::new())),
            ("1=a,wr", ExportError::Key("wr".into())),
            ("1=a,rw=yes", ExportError::Key("rw=yes".into())),
            ("1=a,rw,ro", ExportError::Twice("ro".into())),
            ("1=a,weight=1,weight=2", ExportError::Twice("weight=2".into())),
            ("1=a,weight=0", ExportError::Weight("0".into())),
            ("1=a,weight=1001", ExportError::Weight("1001".into())),
            ("1=a,uid=-1", ExportError::Uid("-1".into())),
            ("1=a,uid=4294967295", ExportError::Uid("4294967295".into())),
            (&format!("1=a{}", ",uid=1".repeat(17)), ExportError::TooManyUids),
        ] {
            assert_eq!(parse(text), Err(error.clone()), "{text}");
            assert!(!error.to_string().contains('\n'));
        }
    }

    #[test]
    fn fuzz_what_is_parsed_is_shown_as_it_is_parsed() {
        blockyard_fuzz::check!(50_000).with_type::<(u8, Vec<u8>)>().for_each(|(start, letters)| {
            const LETTERS: [&str; 12] = [",", "=", "rw", "ro", "weight=", "uid=", "1", "9", "/", "a", "ä", "\0"];
            const STARTS: [&str; 4] = ["1=", "5=/p", "", "7=a,"];
            let letters = letters.iter().map(|&letter| LETTERS[usize::from(letter) % LETTERS.len()]);
            let text: String = std::iter::once(STARTS[usize::from(*start) % STARTS.len()]).chain(letters).collect();
            if let Ok(export) = parse(&text) {
                assert_eq!(parse(&export.to_string()), Ok(export), "{text}");
            }
        });
    }
}
