//! What guestfish says of files that our own commands say in another form, or not.

use super::commands;
use super::session::Session;
use super::verbs::{look, text};
use crate::image::files::listing::Names;
use crate::terminal::print;
use crate::usage_error::UsageError;
use anyhow::{Context, Result, bail};
use blockyard_block::shown;
use blockyard_image::files::file_type::is_directory;
use blockyard_image::files::listing::{Place, Visitor, WalkOptions, is_named};
use blockyard_image::guest::records::{Room, attribute_bytes};
use blockyard_image::guest::write_out;
use blockyard_image::guest::{RecordTaker, image_path};
use blockyard_protocol::appliance::{Attribute, Compare, Entry, Operation, Read, ReadAttributes, Record, ResolvePath};
use std::ffi::{OsStr, OsString};
use std::io::{self, BufWriter, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Prints a file of the image through a command of the host's shell.
pub fn piped(session: &mut Session, path: &OsStr, command: &str) -> Result<()> {
    let cat = ["cat".into(), "--".into(), path.to_owned()];
    super::pipe::into(OsStr::new(command), || commands::perform_words(session, &cat))
}

/// Prints what a command of the host's shell says of a file of the image as a whole.
pub fn summed(session: &mut Session, path: &OsStr, command: &str) -> Result<()> {
    let cat = ["cat".into(), "--".into(), path.to_owned()];
    super::pipe::sum(OsStr::new(command), || commands::perform_words(session, &cat))
}

/// `head-n` and `tail-n`: a number of lines, and a file.
pub fn some_lines(session: &mut Session, words: &[OsString], program: &str) -> Result<()> {
    match text(&words[0])?.parse::<i64>() {
        Ok(lines) => piped(session, &words[1], &format!("{program} -n {lines}")),
        Err(_) => bail!(UsageError(format!("{} is no number of lines", shown(&words[0])))),
    }
}

/// `checksum`: by guestfish's name, with the tools of everybody's machine.
pub fn checksum(session: &mut Session, words: &[OsString]) -> Result<()> {
    let program = match text(&words[0])? {
        "crc" => "cksum",
        "md5" => "md5sum",
        "sha1" => "sha1sum",
        "sha224" => "sha224sum",
        "sha256" => "sha256sum",
        "sha384" => "sha384sum",
        "sha512" => "sha512sum",
        other => bail!(UsageError(format!("{other}: crc, md5, sha1, sha224, sha256, sha384 and sha512 are known"))),
    };
    summed(session, &words[1], &format!("{program} | cut -d ' ' -f 1"))
}

/// `grep` and its like: no line that matches is no failure.
pub fn grep(session: &mut Session, words: &[OsString], option: &str) -> Result<()> {
    let pattern = text(&words[0])?.replace('\'', "'\\''");
    piped(session, &words[1], &format!("grep {option} -e '{pattern}' || test $? = 1"))
}

fn entry_of(session: &mut Session, path: &OsStr, follow: bool) -> Result<Entry> {
    look(session, path, follow)?.with_context(|| format!("{}: no such file in the image", shown(path)))
}

/// `stat` and `lstat`, with guestfish's fields as far as they are known.
pub fn stat(session: &mut Session, words: &[OsString], follow: bool) -> Result<()> {
    let entry = entry_of(session, &words[0], follow)?;
    let device = rustix::fs::makedev(entry.major, entry.minor);
    print(&format!(
        "dev: {}\nino: {}\nmode: {}\nnlink: {}\nuid: {}\ngid: {}\nrdev: {device}\nsize: {}\nblocks: {}\natime: {}\nmtime: {}\n\
         ctime: {}",
        entry.device,
        entry.inode,
        entry.mode,
        entry.links,
        entry.user_id,
        entry.group_id,
        entry.size,
        entry.blocks,
        entry.accessed,
        entry.modified,
        entry.changed,
    ))
}

/// `statns` and `lstatns`, with guestfish's fields as far as they are known.
pub fn stat_with_nanoseconds(session: &mut Session, words: &[OsString], follow: bool) -> Result<()> {
    let entry = entry_of(session, &words[0], follow)?;
    let device = rustix::fs::makedev(entry.major, entry.minor);
    print(&format!(
        "st_dev: {}\nst_ino: {}\nst_mode: {}\nst_nlink: {}\nst_uid: {}\nst_gid: {}\nst_rdev: {device}\nst_size: {}\nst_blocks: {}\n\
         st_atime_sec: {}\nst_atime_nsec: {}\nst_mtime_sec: {}\nst_mtime_nsec: {}\nst_ctime_sec: {}\nst_ctime_nsec: {}",
        entry.device,
        entry.inode,
        entry.mode,
        entry.links,
        entry.user_id,
        entry.group_id,
        entry.size,
        entry.blocks,
        entry.accessed,
        entry.accessed_ns,
        entry.modified,
        entry.modified_ns,
        entry.changed,
        entry.changed_ns,
    ))
}

/// Files that `find` lists in order of name: an image may have any number.
const FILES_MAX: usize = 1 << 20;

/// `find`: what is below a directory, relative to it, in order of name.
pub fn find(session: &mut Session, words: &[OsString]) -> Result<()> {
    if !is_directory(entry_of(session, &words[0], true)?.mode) {
        bail!("{}: not a directory", shown(&words[0]));
    }
    let options = WalkOptions { depth: u32::MAX, follow: true, ..WalkOptions::default() };
    Ok(session.image()?.walk([&words[0]], &options, Below::default())?)
}

#[derive(Default)]
struct Below {
    paths: Vec<Vec<u8>>,
    room: Room,
}

impl Visitor for Below {
    type Output = ();

    fn file(&mut self, place: &Place, entry: Entry) -> io::Result<()> {
        if is_named(&entry) {
            return Ok(());
        }
        if self.paths.len() == FILES_MAX {
            return Err(io::Error::other("too many files"));
        }
        let path = place.path(&entry);
        let below = path.strip_prefix(&place.start[..]).unwrap_or(&path);
        self.room.take(size_of::<Vec<u8>>() + below.len())?;
        self.paths.push(below.strip_prefix(b"/").unwrap_or(below).to_vec());
        Ok(())
    }

    fn finish(mut self) -> io::Result<()> {
        self.paths.sort_unstable();
        let mut names = Names::new();
        for path in &self.paths {
            names.name(path)?;
            names.text("\n")?;
        }
        names.finish()
    }
}

/// `equal`: whether two files hold the same bytes.
pub fn equal(session: &mut Session, words: &[OsString]) -> Result<()> {
    let [one, other] = [0, 1].map(|index: usize| image_path(Path::new(&words[index])));
    let same = session.image()?.call(Operation::Compare(Compare { one, other }))?.same;
    print(if same { "true" } else { "false" })
}

/// `realpath`: where a path leads, without links and dots.
pub fn resolve(session: &mut Session, words: &[OsString]) -> Result<()> {
    let path = image_path(Path::new(&words[0]));
    let resolved = write_out(session.image()?, Operation::ResolvePath(ResolvePath { path }), Vec::new())?;
    let mut names = Names::new();
    names.name(&resolved)?;
    names.text("\n")?;
    Ok(names.finish()?)
}

/// `getxattrs` and `lgetxattrs`, and with a name `getxattr` and `lgetxattr`.
pub fn attributes(session: &mut Session, words: &[OsString], follow: bool) -> Result<()> {
    let request = ReadAttributes { path: image_path(Path::new(&words[0])), follow };
    let all = session.image()?.records(Operation::ReadAttributes(request), Attributes::default())?;
    let mut names = Names::new();
    match words.get(1) {
        Some(name) => {
            let found = all.iter().find(|attribute| attribute.name == name.as_bytes());
            let missing = || format!("{}: it has no attribute {}", shown(&words[0]), shown(name));
            names.name(&found.with_context(missing)?.value)?;
        }
        None => {
            for (index, Attribute { name, value }) in all.iter().enumerate() {
                names.text(&format!("[{index}] = {{\n  attrname: "))?;
                names.name(name)?;
                names.text("\n  attrval: ")?;
                names.name(value)?;
                names.text("\n}\n")?;
            }
        }
    }
    Ok(names.finish()?)
}

/// Attributes of a file that are listed: Linux's bound on their names, in names of one letter.
const ATTRIBUTES_MAX: usize = 1 << 15;

#[derive(Default)]
struct Attributes {
    all: Vec<Attribute>,
    room: Room,
}

impl RecordTaker for Attributes {
    type Output = Vec<Attribute>;

    fn take(&mut self, record: Record) -> io::Result<()> {
        match record {
            Record::Attribute(attribute) if self.all.len() < ATTRIBUTES_MAX => {
                self.room.take(attribute_bytes(&attribute))?;
                self.all.push(attribute);
            }
            _ => {}
        }
        Ok(())
    }

    fn finish(self) -> io::Result<Self::Output> {
        Ok(self.all)
    }
}

/// `hexdump`: as `hexdump -C` has it.
pub fn hexdump(session: &mut Session, words: &[OsString]) -> Result<()> {
    let dump = Hexdump { output: BufWriter::new(io::stdout()), line: Vec::new(), at: 0, last: None, skips: false };
    let mut dump = read(session, &words[0], dump)?;
    dump.end_line()?;
    if dump.at > 0 {
        writeln!(dump.output, "{:08x}", dump.at)?;
    }
    Ok(dump.output.flush()?)
}

fn read<W: Write + Send + 'static>(session: &mut Session, path: &OsStr, output: W) -> Result<W> {
    let paths = vec![image_path(Path::new(path))];
    Ok(write_out(session.image()?, Operation::Read(Read { paths }), output)?)
}

struct Hexdump {
    output: BufWriter<io::Stdout>,
    line: Vec<u8>,
    /// Where the line ends.
    at: u64,
    /// The line before.
    last: Option<Vec<u8>>,
    /// Lines that are the same are left out.
    skips: bool,
}

impl Hexdump {
    fn end_line(&mut self) -> io::Result<()> {
        const BYTES: usize = 16;
        if self.line.is_empty() {
            return Ok(());
        }
        let line = std::mem::take(&mut self.line);
        if self.last.as_ref() == Some(&line) {
            if !self.skips {
                self.output.write_all(b"*\n")?;
            }
            self.skips = true;
            return Ok(());
        }
        write!(self.output, "{:08x} ", self.at - line.len() as u64)?;
        for index in 0..BYTES {
            let gap = if index % 8 == 0 { " " } else { "" };
            match line.get(index) {
                Some(byte) => write!(self.output, "{gap}{byte:02x} ")?,
                None => write!(self.output, "{gap}   ")?,
            }
        }
        let letters = line.iter().map(|&byte| if is_letter(byte) { char::from(byte) } else { '.' });
        writeln!(self.output, " |{}|", letters.collect::<String>())?;
        (self.last, self.skips) = (Some(line), false);
        Ok(())
    }
}

impl Write for Hexdump {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for &byte in bytes {
            self.line.push(byte);
            self.at += 1;
            if self.at.is_multiple_of(16) {
                self.end_line()?;
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn is_letter(byte: u8) -> bool {
    byte.is_ascii_graphic() || byte == b' '
}

/// `strings`: what looks like text, four letters or more, as strings(1) has it.
pub fn strings(session: &mut Session, words: &[OsString]) -> Result<()> {
    let output = BufWriter::new(io::stdout());
    let mut strings = read(session, &words[0], Strings { output, letters: Vec::new(), length: 0 })?;
    strings.end()?;
    Ok(strings.output.flush()?)
}

struct Strings {
    output: BufWriter<io::Stdout>,
    /// The first of them, until they are enough.
    letters: Vec<u8>,
    length: u64,
}

impl Strings {
    const LETTERS_MIN: u64 = 4;

    fn end(&mut self) -> io::Result<()> {
        if self.length >= Self::LETTERS_MIN {
            self.output.write_all(b"\n")?;
        }
        self.letters.clear();
        self.length = 0;
        Ok(())
    }
}

impl Write for Strings {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        for &byte in bytes {
            if !(is_letter(byte) || byte == b'\t') {
                self.end()?;
                continue;
            }
            self.length += 1;
            self.letters.push(byte);
            if self.length >= Self::LETTERS_MIN {
                self.output.write_all(&self.letters)?;
                self.letters.clear();
            }
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// `statvfs`, with guestfish's fields as far as they are known.
pub fn statvfs(session: &mut Session, words: &[OsString]) -> Result<()> {
    if look(session, &words[0], true)?.is_none() {
        bail!("{}: no such file in the image", shown(&words[0]));
    }
    let path = image_path(Path::new(&words[0]));
    let holds = |directory: &[u8]| Path::new(OsStr::from_bytes(&path)).starts_with(OsStr::from_bytes(directory));
    let systems = session.image()?.mounted()?;
    let system = systems.iter().filter(|system| holds(&system.directory)).max_by_key(|system| system.directory.len());
    let system = system.with_context(|| format!("{}: nothing is mounted there", shown(&words[0])))?;
    print(&format!(
        "bsize: {size}\nfrsize: {size}\nblocks: {}\nbfree: {}\nbavail: {}\nfiles: {}\nffree: {}\nfavail: {}",
        system.blocks,
        system.free,
        system.available,
        system.files,
        system.free_files,
        system.free_files,
        size = system.block_size,
    ))
}

/// `copy-file-to-device` and its like: guestfish has them for what dd does.
pub fn copy(session: &mut Session, words: &[OsString]) -> Result<()> {
    commands::perform_words(session, &[&["dd".into()], words].concat())
}

/// `inspect-os`: the roots of operating systems.
pub fn roots(session: &mut Session, _: &[OsString]) -> Result<()> {
    systems(session)?.iter().try_for_each(|system| print(&root(system)))
}

/// `inspect-get-type` and its like: what is known of the operating system whose root is named.
pub fn fact(session: &mut Session, words: &[OsString], name: &str) -> Result<()> {
    match system(session, &words[0])?.get(name) {
        Some(serde_json::Value::String(text)) => print(text),
        Some(serde_json::Value::Number(number)) => print(&number.to_string()),
        _ => print("unknown"),
    }
}

/// `inspect-get-mountpoints`.
pub fn mount_points_of(session: &mut Session, words: &[OsString]) -> Result<()> {
    let system = system(session, &words[0])?;
    let points = system["mountpoints"].as_array().cloned().unwrap_or_default();
    let text = |point: &serde_json::Value, key: &str| point[key].as_str().unwrap_or_default().to_owned();
    points
        .iter()
        .try_for_each(|point| print(&format!("{}: {}", text(point, "mountpoint"), theirs(&text(point, "dev")))))
}

fn theirs(device: &str) -> String {
    device.strip_prefix("/dev/").map_or_else(|| device.to_owned(), super::disk_commands::their_name)
}

fn root(system: &serde_json::Value) -> String {
    theirs(system["root"].as_str().unwrap_or_default())
}

fn system(session: &mut Session, wanted: &OsStr) -> Result<serde_json::Value> {
    let systems = systems(session)?;
    let found = systems.into_iter().find(|system| wanted == root(system).as_str());
    found.with_context(|| format!("{} is no operating system's root: `inspect-os` lists them", shown(wanted)))
}

fn systems(session: &mut Session) -> Result<Vec<serde_json::Value>> {
    session.open_stacks()?;
    let inspection = session.image()?.inspect_all();
    session.mount_again()?;
    let value = serde_json::to_value(inspection?)?;
    Ok(value["operatingsystems"].as_array().cloned().unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;
    use blockyard_image::guest::records::Room;

    /// Each of a hostile image's names may be as long as names can be, and there may be any number of them.
    #[test]
    fn a_list_without_end_is_not_kept() {
        let entry = || Entry { name: vec![b'n'; 255], ..Entry::default() };
        let mut below = Below { room: Room::of(1000), ..Below::default() };
        let taken = (0..10).map_while(|_| below.file(&Place::default(), entry()).ok()).count();
        assert!((1..4).contains(&taken), "{taken}");
        let attribute = || Record::Attribute(Attribute { name: b"user.a".to_vec(), value: vec![0; 300] });
        let mut attributes = Attributes { room: Room::of(1000), ..Attributes::default() };
        let taken = (0..10).map_while(|_| attributes.take(attribute()).ok()).count();
        assert!((1..4).contains(&taken), "{taken}");
    }
}
