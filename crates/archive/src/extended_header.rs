//! pax's extended headers: what does not fit into an archive's headers (POSIX.1-2024, pax, "pax Header Block").

use crate::sparse_map::SparseRecords;
use crate::time::Time;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;

/// How extended attributes are named.
const ATTRIBUTE: &[u8] = b"SCHILY.xattr.";

/// What the records of a file say.
#[derive(Debug, Default)]
pub(crate) struct ExtendedHeader {
    pub(crate) path: Option<Vec<u8>>,
    pub(crate) link_path: Option<Vec<u8>>,
    pub(crate) size: Option<u64>,
    pub(crate) user: Option<i64>,
    pub(crate) group: Option<i64>,
    pub(crate) modified: Option<Time>,
    pub(crate) attributes: Vec<(OsString, Vec<u8>)>,
    pub(crate) sparse: Option<SparseRecords>,
}

impl ExtendedHeader {
    /// Adds records. Those that nobody here knows, or whose values are none, say nothing.
    pub(crate) fn add(&mut self, mut records: &[u8]) -> io::Result<()> {
        let damaged = || io::Error::other("the archive is damaged: an extended header has no records");
        // Some fill them up with NULs.
        while records.first().is_some_and(|&byte| byte != 0) {
            let (key, value, rest) = split_record(records).ok_or_else(damaged)?;
            records = rest;
            self.record(key, value);
        }
        Ok(())
    }

    fn record(&mut self, key: &[u8], value: &[u8]) {
        match key {
            b"path" => self.path = Some(value.to_vec()),
            b"linkpath" => self.link_path = Some(value.to_vec()),
            b"size" => self.size = decimal(value),
            b"uid" => self.user = decimal(value),
            b"gid" => self.group = decimal(value),
            b"mtime" => self.modified = Time::of_decimal(value),
            key => {
                if let Some(name) = key.strip_prefix(ATTRIBUTE) {
                    self.attributes.push((OsString::from_vec(unescaped(name)), value.to_vec()));
                } else if let Some(key) = key.strip_prefix(b"GNU.sparse.") {
                    self.sparse.get_or_insert_default().record(key, value);
                }
            }
        }
    }
}

/// The first record's key and value, and the records after it.
fn split_record(records: &[u8]) -> Option<(&[u8], &[u8], &[u8])> {
    let space = records.iter().take(20).position(|&byte| byte == b' ')?;
    let length: usize = decimal(&records[..space])?;
    let (record, rest) = records.split_at_checked(length)?;
    let record = record.get(space + 1..)?.strip_suffix(b"\n")?;
    let equals = record.iter().position(|&byte| byte == b'=')?;
    Some((&record[..equals], &record[equals + 1..], rest))
}

pub(crate) fn decimal<T: std::str::FromStr>(text: &[u8]) -> Option<T> {
    std::str::from_utf8(text).ok()?.parse().ok()
}

/// Records that are to be written.
#[derive(Default)]
pub(crate) struct Records(Vec<u8>);

impl Records {
    pub(crate) fn bytes(&self) -> &[u8] {
        &self.0
    }

    pub(crate) fn modified(&mut self, time: Time) {
        self.add(b"mtime", time.decimal().as_bytes());
    }

    pub(crate) fn attribute(&mut self, name: &[u8], value: &[u8]) {
        self.add(&[ATTRIBUTE, &escaped(name)].concat(), value);
    }

    fn add(&mut self, key: &[u8], value: &[u8]) {
        // With a space, an equals sign and a newline. The length counts its own digits.
        let bare = key.len() + value.len() + 3;
        let digits = |number: usize| number.to_string().len();
        let mut length = bare + digits(bare);
        length = bare + digits(length);
        self.0.extend_from_slice(format!("{length} ").as_bytes());
        self.0.extend_from_slice(key);
        self.0.push(b'=');
        self.0.extend_from_slice(value);
        self.0.push(b'\n');
    }
}

/// An attribute's name without what ends a key, as GNU tar has it (xheader.c, xattr_encode_keyword).
fn escaped(name: &[u8]) -> Vec<u8> {
    let mut escaped = Vec::with_capacity(name.len());
    for &byte in name {
        match byte {
            b'%' => escaped.extend_from_slice(b"%25"),
            b'=' => escaped.extend_from_slice(b"%3D"),
            byte => escaped.push(byte),
        }
    }
    escaped
}

fn unescaped(mut name: &[u8]) -> Vec<u8> {
    let mut unescaped = Vec::with_capacity(name.len());
    while let Some((&first, rest)) = name.split_first() {
        let (byte, rest) = match name {
            [b'%', b'2', b'5', rest @ ..] => (b'%', rest),
            [b'%', b'3', b'D', rest @ ..] => (b'=', rest),
            _ => (first, rest),
        };
        unescaped.push(byte);
        name = rest;
    }
    unescaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_are_read_as_they_were_written_whatever_is_in_them() {
        for length in [0, 60, 61, 62, 63, 64, 70, 71, 72, 73, 74, 75, 955, 956, 957, 958, 70_000] {
            let mut records = Records::default();
            let value: Vec<u8> = (0..length).map(|at| b"\n\0=\xff 7"[at % 6]).collect();
            records.attribute(b"user.a=%3D", &value);
            records.modified(Time { seconds: -2, nanoseconds: 250_000_000 });
            let mut header = ExtendedHeader::default();
            header.add(records.bytes()).unwrap();
            assert_eq!(header.attributes, [("user.a=%3D".into(), value)]);
            assert_eq!(header.modified, Some(Time { seconds: -2, nanoseconds: 250_000_000 }));
        }
    }

    #[test]
    fn what_are_no_records_is_said() {
        for records in [&b"x"[..], b"5 a=b", b"6 a=bb", b"99 a=b\n", b"0 a=b\n", b"1 a=b\n", b"5 ab\n", b" 6 a=b\n"] {
            assert!(ExtendedHeader::default().add(records).is_err(), "{records:?}");
        }
    }
}
