//! What guestfish says of files that our own commands say in another form, or not.

use super::commands;
use super::session::Session;
use super::verbs::{look, text};
use crate::image::open_image::image_path;
use crate::image::space::mounted;
use crate::{UsageError, print};
use anyhow::{Context, Result, bail};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Prints a file of the image through a command of the host's shell.
pub fn piped(session: &mut Session, path: &OsStr, command: &str) -> Result<()> {
    let cat = ["cat".into(), "--".into(), path.to_owned()];
    super::pipe::into(OsStr::new(command), || commands::perform_words(session, &cat))
}

/// `head-n` and `tail-n`: a number of lines, and a file.
pub fn some_lines(session: &mut Session, words: &[OsString], program: &str) -> Result<()> {
    match text(&words[0])?.parse::<i64>() {
        Ok(lines) => piped(session, &words[1], &format!("{program} -n {lines}")),
        Err(_) => bail!(UsageError(format!("{} is no number of lines", words[0].display()))),
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
    piped(session, &words[1], &format!("{program} | cut -d ' ' -f 1"))
}

/// `grep` and its like: no line that matches is no failure.
pub fn grep(session: &mut Session, words: &[OsString], option: &str) -> Result<()> {
    let pattern = text(&words[0])?.replace('\'', "'\\''");
    piped(session, &words[1], &format!("grep {option} -e '{pattern}' || test $? = 1"))
}

/// `statns` and `lstatns`, with guestfish's fields as far as they are known.
pub fn stat(session: &mut Session, words: &[OsString], follow: bool) -> Result<()> {
    let entry = look(session, &words[0], follow)?;
    let entry = entry.with_context(|| format!("{}: no such file in the image", words[0].display()))?;
    let device = rustix::fs::makedev(entry.major, entry.minor);
    print(&format!(
        "st_dev: {}\nst_ino: {}\nst_mode: {}\nst_nlink: {}\nst_uid: {}\nst_gid: {}\nst_rdev: {device}\nst_size: {}\nst_blocks: {}\n\
         st_atime_sec: {}\nst_mtime_sec: {}\nst_mtime_nsec: {}\nst_ctime_sec: {}",
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
        entry.modified_ns,
        entry.changed,
    ))
}

/// `statvfs`, with guestfish's fields as far as they are known.
pub fn statvfs(session: &mut Session, words: &[OsString]) -> Result<()> {
    if look(session, &words[0], true)?.is_none() {
        bail!("{}: no such file in the image", words[0].display());
    }
    let path = image_path(Path::new(&words[0]));
    let holds = |directory: &[u8]| Path::new(OsStr::from_bytes(&path)).starts_with(OsStr::from_bytes(directory));
    let systems = mounted(session.image()?)?;
    let system = systems.iter().filter(|system| holds(&system.directory)).max_by_key(|system| system.directory.len());
    let system = system.with_context(|| format!("{}: nothing is mounted there", words[0].display()))?;
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
    found.with_context(|| format!("{} is no operating system's root: `inspect-os` lists them", wanted.display()))
}

fn systems(session: &mut Session) -> Result<Vec<serde_json::Value>> {
    session.open_layers()?;
    let inspection = session.image()?.inspect_all();
    session.mount_again()?;
    let value = serde_json::to_value(inspection?)?;
    Ok(value["operatingsystems"].as_array().cloned().unwrap_or_default())
}
