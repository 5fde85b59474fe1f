//! pax's extended headers: what does not fit into an archive's headers (POSIX.1-2024, pax, "pax Header Block").

use crate::access_control_list::{ACCESS_LIST, AccessControlList, DEFAULT_LIST};
use crate::fields::decimal;
use crate::sparse_map::SparseRecords;
use crate::time::Time;
use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;

/// How extended attributes are named.
const ATTRIBUTE: &[u8] = b"SCHILY.xattr.";
/// Access control lists, as star names them, and everybody after it.
const ACCESS: &[u8] = b"SCHILY.acl.access";
const DEFAULT: &[u8] = b"SCHILY.acl.default";
/// SELinux's label, as GNU tar names it, and its attribute, whose value ends with a NUL.
const LABEL: &[u8] = b"RHT.security.selinux";
const LABEL_ATTRIBUTE: &str = "security.selinux";
/// What star says of a file that its header has no type for.
const FILE_TYPE: &[u8] = b"SCHILY.filetype";
const SOCKET: &[u8] = b"socket";

/// What the records of a file say.
#[derive(Clone, Debug, Default)]
pub(crate) struct ExtendedHeader {
    pub(crate) path: Option<Vec<u8>>,
    pub(crate) link_path: Option<Vec<u8>>,
    pub(crate) size: Option<u64>,
    pub(crate) user: Option<i64>,
    pub(crate) group: Option<i64>,
    pub(crate) modified: Option<Time>,
    pub(crate) attributes: Vec<(OsString, Vec<u8>)>,
    pub(crate) access: Option<AccessControlList>,
    pub(crate) default: Option<AccessControlList>,
    pub(crate) is_socket: bool,
    pub(crate) sparse: Option<SparseRecords>,
    /// What is wrong with a value.
    pub(crate) damage: Option<&'static str>,
}

impl ExtendedHeader {
    /// Adds records, which count more than those that are there. Those that nobody here knows say nothing, and those
    /// without a value take back what was said before.
    pub(crate) fn add(&mut self, mut records: &[u8]) -> io::Result<()> {
        let damaged = || io::Error::other("the archive is damaged: an extended header has no records");
        // Some fill them up with NULs.
        while records.first().is_some_and(|&byte| byte != 0) {
            let (key, value, rest) = split_record(records).ok_or_else(damaged)?;
            records = rest;
            self.record(key, value)?;
        }
        Ok(())
    }

    fn record(&mut self, key: &[u8], value: &[u8]) -> io::Result<()> {
        let given = Some(value).filter(|value| !value.is_empty());
        match key {
            b"path" => self.path = given.map(<[u8]>::to_vec),
            b"linkpath" => self.link_path = given.map(<[u8]>::to_vec),
            // Where the next header is depends on it.
            b"size" => {
                let no_number = || io::Error::other("the archive is damaged: a file's size is no number");
                self.size = given.map(|value| decimal(value).ok_or_else(no_number)).transpose()?;
            }
            b"uid" => self.user = given.and_then(|value| self.checked(decimal(value), "its owner is no number")),
            b"gid" => self.group = given.and_then(|value| self.checked(decimal(value), "its group is no number")),
            b"mtime" => self.modified = given.and_then(|value| self.checked(Time::of_decimal(value), "it has no time")),
            ACCESS => self.access = given.and_then(|text| self.list(AccessControlList::of_text(text))),
            DEFAULT => self.default = given.and_then(|text| self.list(AccessControlList::of_text(text))),
            LABEL => {
                let label = [value.strip_suffix(b"\0").unwrap_or(value), b"\0"].concat();
                self.attributes.extend(given.map(|_| (LABEL_ATTRIBUTE.into(), label)));
            }
            FILE_TYPE => self.is_socket = value == SOCKET,
            key => {
                if let Some(name) = key.strip_prefix(ATTRIBUTE) {
                    self.attribute(OsString::from_vec(unescaped(name)), value);
                } else if let Some(key) = key.strip_prefix(b"GNU.sparse.") {
                    self.sparse.get_or_insert_default().record(key, value);
                }
            }
        }
        Ok(())
    }

    /// A list as an attribute has numbers, and counts more than the same one as text.
    fn attribute(&mut self, name: OsString, value: &[u8]) {
        if name == ACCESS_LIST {
            self.access = self.list(AccessControlList::of_attribute(value));
        } else if name == DEFAULT_LIST {
            self.default = self.list(AccessControlList::of_attribute(value));
        } else {
            // Mostly the label, which came before by another name.
            self.attributes.pop_if(|(before, _)| *before == name);
            self.attributes.push((name, value.to_vec()));
        }
    }

    fn list(&mut self, list: io::Result<AccessControlList>) -> Option<AccessControlList> {
        self.checked(list.ok(), "its access control list is none")
    }

    fn checked<T>(&mut self, value: Option<T>, otherwise: &'static str) -> Option<T> {
        if value.is_none() {
            self.damage = Some(otherwise);
        }
        value
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

    /// An extended attribute, and the same in the words of those who have their own for it.
    pub(crate) fn attribute(&mut self, name: &[u8], value: &[u8]) {
        let list = |key: &[u8], records: &mut Self| {
            // One that is none stays what it is.
            if let Ok(list) = AccessControlList::of_attribute(value) {
                records.add(key, &list.text());
            }
        };
        if name == ACCESS_LIST.as_bytes() {
            list(ACCESS, self);
        } else if name == DEFAULT_LIST.as_bytes() {
            list(DEFAULT, self);
        } else if name == LABEL_ATTRIBUTE.as_bytes() {
            self.add(LABEL, value.strip_suffix(b"\0").unwrap_or(value));
        }
        self.add(&[ATTRIBUTE, &escaped(name)].concat(), value);
    }

    /// The file is a socket.
    pub(crate) fn socket(&mut self) {
        self.add(FILE_TYPE, SOCKET);
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
