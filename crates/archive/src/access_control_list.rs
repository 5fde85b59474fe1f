//! Access control lists of files (acl(5)): as archives have them, and as Linux does.

use std::io;

/// A file's permissions, beyond its mode's nine bits.
pub const ACCESS_LIST: &str = "system.posix_acl_access";
/// What new files in a directory get.
pub const DEFAULT_LIST: &str = "system.posix_acl_default";

/// Number of an entry that is about nobody in particular.
const NOBODY: u32 = u32::MAX;
/// What an attribute begins with (linux/posix_acl_xattr.h).
const VERSION: u32 = 2;
/// Bytes of an entry in an attribute.
const ENTRY_BYTES: usize = 8;

/// An access control list.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AccessControlList {
    entries: Vec<Entry>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
struct Entry {
    class: Class,
    who: Who,
    /// Read, write and execute as a mode's last three bits.
    permissions: u16,
}

/// Whom an entry is about: the numbers are Linux's (linux/posix_acl.h), and also the order of a list's entries.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Class {
    Owner = 0x01,
    User = 0x02,
    OwningGroup = 0x04,
    Group = 0x08,
    Mask = 0x10,
    Others = 0x20,
}

const CLASSES: [Class; 6] = [Class::Owner, Class::User, Class::OwningGroup, Class::Group, Class::Mask, Class::Others];

#[derive(Clone, Debug, PartialEq, Eq)]
enum Who {
    Number(u32),
    /// As the machine calls it that the archive was made on.
    Name(Vec<u8>),
}

/// Whose name it is that a list has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NameOf {
    /// A user's.
    User,
    /// A group's.
    Group,
}

impl AccessControlList {
    /// The list of an extended attribute.
    ///
    /// # Errors
    /// When the value is no list.
    pub fn of_attribute(value: &[u8]) -> io::Result<Self> {
        let (version, rest) = value.split_first_chunk::<4>().ok_or_else(no_list)?;
        let entries = rest.chunks(ENTRY_BYTES).map(|entry| {
            let entry: &[u8; ENTRY_BYTES] = entry.try_into().map_err(|_| no_list())?;
            let [tag, tag_high, permissions, permissions_high, a, b, c, d] = *entry;
            let tag = u16::from_le_bytes([tag, tag_high]);
            let class = CLASSES.into_iter().find(|&class| class as u16 == tag).ok_or_else(no_list)?;
            let permissions = u16::from_le_bytes([permissions, permissions_high]);
            Ok(Entry { class, who: Who::Number(u32::from_le_bytes([a, b, c, d])), permissions: permissions & 0o7 })
        });
        let entries = entries.collect::<io::Result<_>>()?;
        if u32::from_le_bytes(*version) == VERSION { Ok(Self { entries }) } else { Err(no_list()) }
    }

    /// The list as an extended attribute; `number` is asked whose number a name is.
    ///
    /// # Errors
    /// When nobody has one of the names.
    pub fn attribute(&self, number: impl Fn(NameOf, &[u8]) -> Option<u32>) -> io::Result<Vec<u8>> {
        let mut entries = Vec::with_capacity(self.entries.len());
        for Entry { class, who, permissions } in &self.entries {
            let name_of = if *class == Class::User { NameOf::User } else { NameOf::Group };
            let who = match who {
                Who::Number(number) => *number,
                Who::Name(name) => number(name_of, name).ok_or_else(|| {
                    let name = String::from_utf8_lossy(name);
                    let sentence = format!("its access control list has a name that nobody has here: {name}");
                    io::Error::new(io::ErrorKind::NotFound, sentence)
                })?,
            };
            entries.push((*class, who, *permissions));
        }
        entries.sort_unstable();
        let mut attribute = VERSION.to_le_bytes().to_vec();
        for (class, who, permissions) in entries {
            attribute.extend((class as u16).to_le_bytes());
            attribute.extend(permissions.to_le_bytes());
            attribute.extend(who.to_le_bytes());
        }
        Ok(attribute)
    }

    /// The list as text in an archive: acl(5), "SHORT TEXT FORM", with numbers for names. Star gives users' and groups'
    /// numbers in a fourth field, and takes text without it.
    pub(crate) fn text(&self) -> Vec<u8> {
        let entry = |Entry { class, who, permissions }: &Entry| {
            let (tag, is_somebodys) = match class {
                Class::Owner => ("user", false),
                Class::User => ("user", true),
                Class::OwningGroup => ("group", false),
                Class::Group => ("group", true),
                Class::Mask => ("mask", false),
                Class::Others => ("other", false),
            };
            let who = match who {
                Who::Number(number) if is_somebodys => number.to_string(),
                Who::Name(name) if is_somebodys => String::from_utf8_lossy(name).into_owned(),
                _ => String::new(),
            };
            let may = |bit: u16, letter: char| if permissions & bit == 0 { '-' } else { letter };
            format!("{tag}:{who}:{}{}{}", may(4, 'r'), may(2, 'w'), may(1, 'x'))
        };
        self.entries.iter().map(entry).collect::<Vec<_>>().join(",").into_bytes()
    }

    /// The list that text in an archive describes, in GNU tar's, star's or libarchive's way to write it.
    ///
    /// # Errors
    /// When it describes none.
    pub(crate) fn of_text(text: &[u8]) -> io::Result<Self> {
        let entries = text.split(|byte| matches!(byte, b',' | b'\n')).map(|entry| {
            let end = entry.iter().position(|&byte| byte == b'#').unwrap_or(entry.len());
            entry[..end].trim_ascii()
        });
        let entries = entries.filter(|entry| !entry.is_empty()).map(|entry| entry_of_text(entry).ok_or_else(no_list));
        Ok(Self { entries: entries.collect::<io::Result<_>>()? })
    }

    /// Whether it says more than a mode does.
    pub fn is_extended(&self) -> bool {
        self.entries.iter().any(|entry| matches!(entry.class, Class::User | Class::Group | Class::Mask))
    }

    /// `mode` for a file that cannot have the list: in a mode that goes with a list, the group's bits are the most that
    /// anybody on the list gets, and the group may get less.
    pub fn mode_without(&self, mode: u32) -> u32 {
        let group = self.entries.iter().filter(|entry| matches!(entry.class, Class::OwningGroup | Class::Mask));
        group.fold(mode, |mode, entry| mode & !((!u32::from(entry.permissions) & 0o7) << 3))
    }
}

fn entry_of_text(entry: &[u8]) -> Option<Entry> {
    let fields: Vec<&[u8]> = entry.split(|&byte| byte == b':').map(<[u8]>::trim_ascii).collect();
    let (tag, qualifier, permissions, number) = match fields[..] {
        // Those that are about nobody in particular may do without a field for him.
        [tag @ (b"m" | b"mask" | b"o" | b"other"), permissions] => (tag, &b""[..], permissions, None),
        [tag, qualifier, permissions] => (tag, qualifier, permissions, None),
        [tag, qualifier, permissions, number] => (tag, qualifier, permissions, Some(number)),
        _ => return None,
    };
    let class = match (tag, qualifier) {
        (b"u" | b"user", b"") => Class::Owner,
        (b"u" | b"user", _) => Class::User,
        (b"g" | b"group", b"") => Class::OwningGroup,
        (b"g" | b"group", _) => Class::Group,
        (b"m" | b"mask", b"") => Class::Mask,
        (b"o" | b"other", b"") => Class::Others,
        _ => return None,
    };
    let permissions = permissions.iter().try_fold(0, |permissions, letter| match letter {
        b'r' => Some(permissions | 4),
        b'w' => Some(permissions | 2),
        b'x' => Some(permissions | 1),
        b'-' => Some(permissions),
        _ => None,
    })?;
    let who = match class {
        Class::User | Class::Group => {
            let parsed = number.and_then(id).or_else(|| id(qualifier));
            parsed.map_or_else(|| Who::Name(qualifier.to_vec()), Who::Number)
        }
        _ => Who::Number(NOBODY),
    };
    Some(Entry { class, who, permissions })
}

/// A user's or group's number.
fn id(text: &[u8]) -> Option<u32> {
    let text = std::str::from_utf8(text).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    text.parse().ok().filter(|&number| number != NOBODY)
}

fn no_list() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "its access control list is none")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nobody(_: NameOf, _: &[u8]) -> Option<u32> {
        None
    }

    #[test]
    fn lists_are_read_however_they_are_written() {
        let wanted = AccessControlList::of_text(b"u::rw-,u:10:rwx,g::r--,g:20:-w-,m::rwx,o::---").unwrap();
        let attribute = wanted.attribute(nobody).unwrap();
        for text in [
            // GNU tar's, star's, libarchive's.
            &b"user::rw-\nuser:10:rwx\ngroup::r--\ngroup:20:-w-\nmask::rwx\nother::---\n"[..],
            b"user::rw-,user:joe:rwx:10,group::r--,group:staff:-w-:20,mask::rwx,other::---",
            b"user::rw-,group::r--,other::---,group:staff:-w-:20,user:joe:rwx:10,mask::rwx",
            b"user::rw- , user:10:xwr\t#effective:rwx\n\n# file\ngroup::r--\ngroup:20:w\nmask:rwx\nother:---",
        ] {
            let list = AccessControlList::of_text(text).unwrap();
            let said = String::from_utf8_lossy(text);
            assert!(list.attribute(nobody).unwrap() == attribute, "{said}");
            assert!(list.is_extended() && list.mode_without(0o4670) == 0o4640, "{said}");
        }
        let again = AccessControlList::of_attribute(&attribute).unwrap();
        assert_eq!(again.attribute(nobody).unwrap(), attribute);
        assert_eq!(again.text(), b"user::rw-,user:10:rwx,group::r--,group:20:-w-,mask::rwx,other::---");
        assert_eq!(AccessControlList::of_text(&again.text()).unwrap().attribute(nobody).unwrap(), attribute);
    }

    #[test]
    fn names_are_looked_up_and_what_is_no_list_is_an_error() {
        let list = AccessControlList::of_text(b"user::rwx,user:joe:r--,group::r-x,mask::r-x,other::r-x").unwrap();
        assert!(list.attribute(nobody).unwrap_err().to_string().contains("joe"));
        let joe = |of, name: &[u8]| (of == NameOf::User && name == b"joe").then_some(7);
        assert_eq!(list.attribute(joe).unwrap()[12..20], [2, 0, 4, 0, 7, 0, 0, 0]);
        assert!(!AccessControlList::of_text(b"user::rwx,group::r-x,other::r-x").unwrap().is_extended());
        for text in [&b"user"[..], b"user::q", b"nobody::rwx", b"other:x:rwx", b"user:a:rwx:1:2", b"\xff"] {
            assert!(AccessControlList::of_text(text).is_err(), "{text:?}");
        }
        for value in [&b""[..], b"\x02\0\0", b"\x01\0\0\0", b"\x02\0\0\0\x01\0\x07", b"\x02\0\0\0\x03\0\x07\0\0\0\0\0"]
        {
            assert!(AccessControlList::of_attribute(value).is_err(), "{value:?}");
        }
        // 4294967295 is nobody's number, so it is a name.
        let list = AccessControlList::of_text(b"user:4294967295:rwx").unwrap();
        assert!(list.attribute(nobody).is_err());
    }
}
