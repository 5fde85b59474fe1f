//! Files of an image for programs: JSON.

use blockyard_command_line::image::listing::{time_text, type_name};
use blockyard_command_line::terminal;
use blockyard_image::files::Entry;
use blockyard_image::files::file_type::type_letter;
use blockyard_image::files::listing::{Place, Visitor};
use serde::Serialize;
use std::borrow::Cow;
use std::io::{self, Write};

/// A list of objects on stdout, one a line, as they come.
pub struct JsonList {
    output: io::BufWriter<io::Stdout>,
    is_begun: bool,
}

impl JsonList {
    /// Nothing is printed yet.
    pub fn new() -> Self {
        Self { output: io::BufWriter::with_capacity(64 << 10, io::stdout()), is_begun: false }
    }

    /// The next one.
    pub fn push(&mut self, object: &impl Serialize) -> io::Result<()> {
        let before = if self.is_begun { ",\n" } else { "[\n" };
        self.is_begun = true;
        self.output.write_all(before.as_bytes())?;
        let json = terminal::json(object).map_err(io::Error::other)?;
        self.output.write_all(json.as_bytes())
    }

    /// There are no more.
    pub fn finish(mut self) -> io::Result<()> {
        self.output.write_all(if self.is_begun { b"\n]\n" } else { b"[]\n" })?;
        self.output.flush()
    }
}

/// A name out of an image: as text, and as what it is where it is none.
#[derive(Serialize)]
pub struct Name<'name> {
    #[serde(rename = "path")]
    text: Cow<'name, str>,
    /// Its bytes, two digits for each, where they are not UTF-8.
    #[serde(rename = "path_hex", skip_serializing_if = "Option::is_none")]
    hex: Option<String>,
}

impl<'name> From<&'name [u8]> for Name<'name> {
    fn from(bytes: &'name [u8]) -> Self {
        let text = String::from_utf8_lossy(bytes);
        let hex = matches!(text, Cow::Owned(_)).then(|| bytes.iter().map(|byte| format!("{byte:02x}")).collect());
        Self { text, hex }
    }
}

/// What is known of a file.
#[derive(Serialize)]
pub struct File<'entry> {
    #[serde(flatten)]
    path: Name<'entry>,
    #[serde(rename = "type")]
    kind: &'static str,
    /// Permissions, as chmod(1) takes them.
    mode: String,
    /// Bytes.
    size: u64,
    /// Bytes that it takes.
    allocated: u64,
    links: u64,
    uid: u32,
    gid: u32,
    user: &'entry str,
    group: &'entry str,
    device: u64,
    inode: u64,
    modified: String,
    accessed: String,
    changed: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    target: Option<Cow<'entry, str>>,
    /// Of a device: its numbers.
    #[serde(skip_serializing_if = "Option::is_none")]
    rdev: Option<[u32; 2]>,
}

impl<'entry> File<'entry> {
    /// Of the entry of a file at a path.
    pub fn new(path: &'entry [u8], entry: &'entry Entry) -> Self {
        let time =
            |seconds, nanoseconds: u32| format!("{}.{nanoseconds:09}Z", time_text(seconds, true).replacen(' ', "T", 1));
        let letter = type_letter(entry.mode);
        Self {
            path: path.into(),
            kind: type_name(entry.mode),
            mode: format!("{:04o}", entry.mode & 0o7777),
            size: entry.size,
            allocated: entry.blocks.saturating_mul(512),
            links: entry.links,
            uid: entry.user_id,
            gid: entry.group_id,
            user: &entry.user,
            group: &entry.group,
            device: entry.device,
            inode: entry.inode,
            modified: time(entry.modified, entry.modified_ns),
            accessed: time(entry.accessed, entry.accessed_ns),
            changed: time(entry.changed, entry.changed_ns),
            target: (letter == 'l').then(|| String::from_utf8_lossy(&entry.target)),
            rdev: "bc".contains(letter).then_some([entry.major, entry.minor]),
        }
    }
}

/// Prints the files that are listed, if they are wanted.
pub struct Files<F> {
    list: JsonList,
    is_wanted: F,
}

impl<F: Fn(&Entry) -> bool> Files<F> {
    /// None yet.
    pub fn new(is_wanted: F) -> Self {
        Self { list: JsonList::new(), is_wanted }
    }
}

impl<F: Fn(&Entry) -> bool + Send + 'static> Visitor for Files<F> {
    type Output = ();

    fn file(&mut self, place: &Place, entry: Entry) -> io::Result<()> {
        match (self.is_wanted)(&entry) {
            true => self.list.push(&File::new(&place.path(&entry), &entry)),
            false => Ok(()),
        }
    }

    fn finish(self) -> io::Result<()> {
        self.list.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_whole_and_harmless() {
        let entry = Entry { mode: 0o100_640, modified: 1, modified_ns: 5, ..Entry::default() };
        let json = |name: &[u8]| terminal::json(&File::new(name, &entry)).unwrap();
        let said = json("/a\u{1b}[2J\u{9b}\u{202e}\"b".as_bytes());
        assert!(
            said.starts_with(r#"{"path":"/a\u001b[2J\u009b\u202e\"b","type":"regular file","mode":"0640""#),
            "{said}"
        );
        assert!(said.contains(r#""modified":"1970-01-01T00:00:01.000000005Z""#), "{said}");
        let value: serde_json::Value = serde_json::from_str(&said).unwrap();
        assert_eq!(value["path"], "/a\u{1b}[2J\u{9b}\u{202e}\"b");
        let value: serde_json::Value = serde_json::from_str(&json(b"/\xff")).unwrap();
        assert_eq!((value["path"].as_str(), value["path_hex"].as_str()), (Some("/\u{fffd}"), Some("2fff")));
    }
}
