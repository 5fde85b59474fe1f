//! Commands that say what is known of files, in guestfish's form.

use crate::verb::Action::{Call, Words};
use crate::verb::Verb;
use crate::verb::on_files::tells;
use crate::workbench::Workbench;
use anyhow::{Context, Result, bail};
use blockyard_block::{printable, shown};
use blockyard_command_line::image::listing::Names;
use blockyard_command_line::terminal::print;
use blockyard_image::files::file_type::{is_directory, is_link, is_regular};
use blockyard_image::files::listing::{Place, Visitor, WalkOptions, is_named};
use blockyard_image::guest::records::{Room, attribute_bytes};
use blockyard_image::guest::{RecordTaker, image_path, write_out};
use blockyard_protocol::appliance::{Attribute, Compare, Entry, Operation, ReadAttributes, Record, ResolvePath};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// On what files are.
pub(crate) const VERBS: &[Verb] = &[
    tells(&["ll"], "PATH", "List files with all that is known of them", Words(&["ls", "-l", "-a", "--", "$1"])),
    tells(
        &["statns"],
        "PATH",
        "Say what is known of a file, with the fields of stat(2)",
        Call(|workbench, words| stat_with_nanoseconds(workbench, words, true)),
    ),
    tells(
        &["lstatns"],
        "PATH",
        "The same of a link itself",
        Call(|workbench, words| stat_with_nanoseconds(workbench, words, false)),
    ),
    tells(
        &["stat"],
        "PATH",
        "Say what is known of a file, with guestfish's fields; with options, or of several files, as stat(1) does",
        Call(|workbench, words| stat(workbench, words, true)),
    ),
    tells(&["lstat"], "PATH", "The same of a link itself", Call(|workbench, words| stat(workbench, words, false))),
    tells(
        &["find"],
        "DIR",
        "List what is below a directory, relative to it; with tests, or several paths, as find(1) does",
        Call(find),
    ),
    tells(&["equal"], "PATH PATH", "Say whether two files hold the same bytes", Call(equal)),
    tells(&["realpath"], "PATH", "Say where a path leads, without links and dots", Call(resolve)),
    tells(
        &["getxattrs"],
        "PATH",
        "List a file's extended attributes",
        Call(|workbench, words| attributes(workbench, words, true)),
    ),
    tells(
        &["lgetxattrs"],
        "PATH",
        "The same of a link itself",
        Call(|workbench, words| attributes(workbench, words, false)),
    ),
    tells(
        &["getxattr"],
        "PATH NAME",
        "Print an extended attribute of a file",
        Call(|workbench, words| attributes(workbench, words, true)),
    ),
    tells(
        &["lgetxattr"],
        "PATH NAME",
        "The same of a link itself",
        Call(|workbench, words| attributes(workbench, words, false)),
    ),
    tells(&["statvfs"], "PATH", "Say how full a file system is, with the fields of statvfs(3)", Call(statvfs)),
    tells(&["glob-expand"], "PATTERN", "List the files that a pattern stands for", Words(&["ls", "-d", "--", "$1"])),
    tells(
        &["exists"],
        "PATH",
        "Say whether a file is there",
        Call(|workbench, words| say_whether(workbench, &words[0], |_| true)),
    ),
    tells(
        &["is-file"],
        "PATH",
        "Say whether it is a regular file",
        Call(|workbench, words| say_whether(workbench, &words[0], |entry| is_regular(entry.mode))),
    ),
    tells(
        &["is-dir"],
        "PATH",
        "Say whether it is a directory",
        Call(|workbench, words| say_whether(workbench, &words[0], |entry| is_directory(entry.mode))),
    ),
    tells(
        &["is-symlink"],
        "PATH",
        "Say whether it is a symbolic link",
        Call(|workbench, words| say_whether(workbench, &words[0], |entry| is_link(entry.mode))),
    ),
    tells(
        &["is-blockdev"],
        "PATH",
        "Say whether it is a block device",
        Call(|workbench, words| say_whether(workbench, &words[0], |entry| entry.mode & 0o170_000 == 0o060_000)),
    ),
    tells(
        &["is-chardev"],
        "PATH",
        "Say whether it is a character device",
        Call(|workbench, words| say_whether(workbench, &words[0], |entry| entry.mode & 0o170_000 == 0o020_000)),
    ),
    tells(
        &["is-fifo"],
        "PATH",
        "Say whether it is a fifo",
        Call(|workbench, words| say_whether(workbench, &words[0], |entry| entry.mode & 0o170_000 == 0o010_000)),
    ),
    tells(
        &["is-socket"],
        "PATH",
        "Say whether it is a socket",
        Call(|workbench, words| say_whether(workbench, &words[0], |entry| entry.mode & 0o170_000 == 0o140_000)),
    ),
    tells(
        &["filesize"],
        "PATH",
        "Say a file's size in bytes",
        Call(|workbench, words| say_of(workbench, &words[0], true, |entry| entry.size.to_string())),
    ),
    tells(
        &["readlink"],
        "PATH",
        "Say where a link leads to",
        Call(|workbench, words| {
            say_of(workbench, &words[0], false, |entry| printable(&String::from_utf8_lossy(&entry.target)))
        }),
    ),
    tells(&["df-h"], "", "Say how full the file systems are, in sizes like 1.5K", Words(&["df", "-h"])),
];

fn entry_of(workbench: &mut Workbench, path: &OsStr, follow: bool) -> Result<Entry> {
    workbench.entry(path, follow)?.with_context(|| format!("{}: no such file in the image", shown(path)))
}

/// `stat` and `lstat`, with guestfish's fields as far as they are known.
fn stat(workbench: &mut Workbench, words: &[OsString], follow: bool) -> Result<()> {
    let entry = entry_of(workbench, &words[0], follow)?;
    let times = [("atime", entry.accessed), ("mtime", entry.modified), ("ctime", entry.changed)];
    print_status(&entry, "", &times)
}

/// `statns` and `lstatns`, with guestfish's fields as far as they are known.
fn stat_with_nanoseconds(workbench: &mut Workbench, words: &[OsString], follow: bool) -> Result<()> {
    let entry = entry_of(workbench, &words[0], follow)?;
    let times = [
        ("atime_sec", entry.accessed),
        ("atime_nsec", entry.accessed_ns.into()),
        ("mtime_sec", entry.modified),
        ("mtime_nsec", entry.modified_ns.into()),
        ("ctime_sec", entry.changed),
        ("ctime_nsec", entry.changed_ns.into()),
    ];
    print_status(&entry, "st_", &times)
}

/// A line for each field, whose name begins with `prefix`; the times are the last ones.
fn print_status(entry: &Entry, prefix: &str, times: &[(&str, i64)]) -> Result<()> {
    let numbers = [
        ("dev", entry.device),
        ("ino", entry.inode),
        ("mode", entry.mode.into()),
        ("nlink", entry.links),
        ("uid", entry.user_id.into()),
        ("gid", entry.group_id.into()),
        ("rdev", rustix::fs::makedev(entry.major, entry.minor)),
        ("size", entry.size),
        ("blocks", entry.blocks),
    ];
    let numbers = numbers.iter().map(|(name, number)| format!("{prefix}{name}: {number}"));
    let times = times.iter().map(|(name, time)| format!("{prefix}{name}: {time}"));
    print(&numbers.chain(times).collect::<Vec<_>>().join("\n"))
}

/// Files that `find` lists in order of name: an image may have any number.
const FILES_MAX: usize = 1 << 20;

/// `find`: what is below a directory, relative to it, in order of name.
fn find(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    if !is_directory(entry_of(workbench, &words[0], true)?.mode) {
        bail!("{}: not a directory", shown(&words[0]));
    }
    let options = WalkOptions { depth: u32::MAX, follow: true, ..WalkOptions::default() };
    Ok(workbench.image()?.walk([&words[0]], &options, Below::default())?)
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
        let mut names = Names::to_stdout();
        for path in &self.paths {
            names.name(path)?;
            names.text("\n")?;
        }
        names.finish()
    }
}

/// `equal`: whether two files hold the same bytes.
fn equal(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let [one, other] = [0, 1].map(|index: usize| image_path(Path::new(&words[index])));
    let same = workbench.image()?.call(Operation::Compare(Compare { one, other }))?.same;
    print(if same { "true" } else { "false" })
}

/// `realpath`: where a path leads, without links and dots.
fn resolve(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let path = image_path(Path::new(&words[0]));
    let resolved = write_out(workbench.image()?, Operation::ResolvePath(ResolvePath { path }), Vec::new())?;
    let mut names = Names::to_stdout();
    names.name(&resolved)?;
    names.text("\n")?;
    Ok(names.finish()?)
}

/// `getxattrs` and `lgetxattrs`, and with a name `getxattr` and `lgetxattr`.
fn attributes(workbench: &mut Workbench, words: &[OsString], follow: bool) -> Result<()> {
    let request = ReadAttributes { path: image_path(Path::new(&words[0])), follow };
    let all = workbench.image()?.records(Operation::ReadAttributes(request), Attributes::default())?;
    let mut names = Names::to_stdout();
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

/// `statvfs`, with guestfish's fields as far as they are known.
fn statvfs(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    if workbench.entry(&words[0], true)?.is_none() {
        bail!("{}: no such file in the image", shown(&words[0]));
    }
    let path = image_path(Path::new(&words[0]));
    let holds = |directory: &[u8]| Path::new(OsStr::from_bytes(&path)).starts_with(OsStr::from_bytes(directory));
    let systems = workbench.image()?.mounted()?;
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

fn say_whether(workbench: &mut Workbench, path: &OsStr, holds: fn(&Entry) -> bool) -> Result<()> {
    let entry = workbench.entry(path, false)?;
    print(if entry.is_some_and(|entry| holds(&entry)) { "true" } else { "false" })
}

fn say_of(workbench: &mut Workbench, path: &OsStr, follow: bool, of: fn(&Entry) -> String) -> Result<()> {
    match workbench.entry(path, follow)? {
        Some(entry) => print(&of(&entry)),
        None => bail!("{}: no such file in the image", shown(path)),
    }
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
