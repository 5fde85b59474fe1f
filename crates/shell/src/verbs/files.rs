//! Commands that change files, copy them, and run programs of the image.

use crate::arguments::{bytes, options, text, truth, word_list};
use crate::program::OnHost;
use crate::verb::Action::{Call, Words};
use crate::verb::Verb;
use crate::verb::on_files::{changes, tells};
use crate::workbench::Workbench;
use anyhow::{Result, bail};
use blockyard_block::shown;
use blockyard_command_line::usage_error::UsageError;
use blockyard_image::files::file_type::is_directory;
use blockyard_image::guest::{image_path, read_in};
use blockyard_protocol::appliance::{Fill, MakeNode, Operation, SetAttribute, Store, Touch};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// On files.
pub(crate) const VERBS: &[Verb] = &[
    changes(
        &["upload"],
        "FILE PATH",
        "Copy a file of the host into the image; - is stdin",
        Words(&["put", "-L", "--root-owned", "--", "$1", "$2"]),
    )
    .on_host(OnHost::Only(1)),
    tells(
        &["download"],
        "PATH FILE",
        "Copy a file of the image to the host; - is stdout",
        Words(&["get", "-L", "--", "$1", "$2"]),
    )
    .on_host(OnHost::Only(2)),
    changes(&["copy-in"], "FILE… DIR", "Copy files and trees of the host into a directory of the image", Call(copy_in)).on_host(OnHost::Only(1)),
    tells(&["copy-out"], "PATH… DIR", "Copy files and trees of the image into a directory of the host", Call(copy_out)).on_host(OnHost::From(2)),
    changes(&["tgz-in"], "FILE DIR", "Unpack a tar.gz into the image", Words(&["tar-in", "--", "$1", "$2"])).on_host(OnHost::Only(1)),
    tells(
        &["tgz-out"],
        "DIR FILE",
        "Pack files of the image as a tar.gz",
        Words(&["tar-out", "--compress", "gzip", "--", "$1", "$2"]),
    )
    .on_host(OnHost::Only(2)),
    changes(
        &["write"],
        "PATH CONTENT",
        "Make a file that holds a text",
        Call(|workbench, words| write(workbench, words, false)),
    ),
    changes(
        &["write-append"],
        "PATH CONTENT",
        "Append a text to a file",
        Call(|workbench, words| write(workbench, words, true)),
    ),
    changes(&["fill-pattern"], "PATTERN SIZE PATH", "Make a file of a repeated text", Call(fill_pattern)),
    changes(&["truncate"], "PATH", "Make a file empty", Call(|workbench, words| truncate(workbench, &words[0], 0))),
    changes(
        &["truncate-size"],
        "PATH SIZE",
        "Make a file longer or shorter",
        Call(|workbench, words| truncate(workbench, &words[0], bytes(&words[1])?)),
    ),
    changes(
        &["setxattr"],
        "NAME VALUE LENGTH PATH",
        "Set an extended attribute of a file; the length counts for nothing",
        Call(|workbench, words| set_attribute(workbench, &words[3], &words[0], Some(&words[1]), true)),
    ),
    changes(
        &["lsetxattr"],
        "NAME VALUE LENGTH PATH",
        "The same of a link itself",
        Call(|workbench, words| set_attribute(workbench, &words[3], &words[0], Some(&words[1]), false)),
    ),
    changes(
        &["removexattr"],
        "NAME PATH",
        "Remove an extended attribute of a file",
        Call(|workbench, words| set_attribute(workbench, &words[1], &words[0], None, true)),
    ),
    changes(
        &["lremovexattr"],
        "NAME PATH",
        "The same of a link itself",
        Call(|workbench, words| set_attribute(workbench, &words[1], &words[0], None, false)),
    ),
    changes(
        &["mknod"],
        "MODE MAJOR MINOR PATH",
        "Make a device, a fifo or a socket: the mode says which, as mknod(2) has it, in octal",
        Call(|workbench, words| make_node(workbench, words, 0)),
    ),
    changes(
        &["mknod-b"],
        "MODE MAJOR MINOR PATH",
        "Make a block device",
        Call(|workbench, words| make_node(workbench, words, 0o060_000)),
    ),
    changes(
        &["mknod-c"],
        "MODE MAJOR MINOR PATH",
        "Make a character device",
        Call(|workbench, words| make_node(workbench, words, 0o020_000)),
    ),
    changes(
        &["mkfifo"],
        "MODE PATH",
        "Make a fifo",
        Call(|workbench, words| {
            make_node(workbench, &[words[0].clone(), "0".into(), "0".into(), words[1].clone()], 0o010_000)
        }),
    ),
    changes(
        &["tar-in"],
        "FILE DIR [KEY:VALUE]…",
        "Unpack an archive: compress:gzip|zstd, xattrs:true, acls:true and selinux:true are what happens anyway",
        Call(tar_in),
    )
    .on_host(OnHost::Only(1)),
    tells(
        &["tar-out"],
        "DIR FILE [KEY:VALUE]…",
        "Pack a directory: compress:gzip|zstd, excludes:PATTERNS; numericowner:true, xattrs:true, acls:true and selinux:true are what happens anyway",
        Call(tar_out),
    )
    .on_host(OnHost::Only(2)),
    changes(
        &["copy-device-to-device", "copy-device-to-file", "copy-file-to-device", "copy-file-to-file"],
        "SRC DST",
        "Copy bytes within the appliance, as dd does",
        Call(copy),
    ),
    changes(&["rm-f"], "PATH", "Remove a file that may be there", Words(&["rm", "-f", "--", "$1"])),
    changes(&["rm-rf"], "PATH", "Remove what is there, with all below it", Words(&["rm", "-r", "-f", "--", "$1"])),
    changes(&["rmdir"], "DIR", "Remove an empty directory", Call(remove_directory)),
    changes(&["mkdir-p"], "DIR", "Make a directory and those above it", Words(&["mkdir", "-p", "--", "$1"])),
    changes(
        &["mkdir-mode"],
        "DIR MODE",
        "Make a directory with permissions",
        Words(&["mkdir", "--mode", "$2", "--", "$1"]),
    ),
    changes(
        &["cp-a"],
        "SRC DST",
        "Copy files within the image, with all that belongs to them",
        Words(&["cp", "-a", "--", "$1", "$2"]),
    ),
    changes(&["cp-r"], "SRC DST", "Copy trees within the image", Words(&["cp", "-r", "--", "$1", "$2"])),
    changes(&["ln-s"], "TARGET LINK", "Make a symbolic link", Words(&["ln", "-s", "--", "$1", "$2"])),
    changes(&["ln-f"], "TARGET LINK", "Make a link in place of what is there", Words(&["ln", "-f", "--", "$1", "$2"])),
    changes(
        &["ln-sf"],
        "TARGET LINK",
        "Make a symbolic link in place of what is there",
        Words(&["ln", "-s", "-f", "--", "$1", "$2"]),
    ),
    changes(&["command"], "WORDS", "Run a program of the image: one argument, a list of words", Call(command)),
    changes(&["sh"], "COMMAND", "Run a command with the image's shell", Words(&["run", "--", "/bin/sh", "-c", "$1"])),
];

fn copy_in(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let directory = &words[words.len() - 1];
    if !workbench.entry(directory, true)?.is_some_and(|entry| is_directory(entry.mode)) {
        bail!("{}: not a directory of the image", shown(directory));
    }
    workbench.perform(&[&["put".into(), "--".into()], words].concat())
}

fn copy_out(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let directory = &words[words.len() - 1];
    if !Path::new(directory).is_dir() {
        bail!("{}: not a directory of the host", shown(directory));
    }
    workbench.perform(&[&["get".into(), "--".into()], words].concat())
}

fn write(workbench: &mut Workbench, words: &[OsString], append: bool) -> Result<()> {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    let store = Store {
        path: image_path(Path::new(&words[0])),
        stream: true,
        mode: 0o644,
        modified: now.as_secs().try_into().unwrap_or(i64::MAX),
        append,
        keep: true,
        ..Store::default()
    };
    let content = io::Cursor::new(words[1].as_bytes().to_vec());
    Ok(read_in(workbench.image()?, Operation::Store(store), content).map(drop)?)
}

fn fill_pattern(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let fill =
        Fill { pattern: words[0].as_bytes().to_vec(), size: bytes(&words[1])?, path: image_path(Path::new(&words[2])) };
    Ok(workbench.image()?.call(Operation::Fill(fill)).map(drop)?)
}

fn truncate(workbench: &mut Workbench, path: &OsStr, size: u64) -> Result<()> {
    if workbench.entry(path, true)?.is_none() {
        bail!("{}: no such file in the image", shown(path));
    }
    let touch = Touch { paths: vec![image_path(Path::new(path))], no_create: true, sets_size: true, size };
    Ok(workbench.image()?.call(Operation::Touch(touch)).map(drop)?)
}

/// Sets an extended attribute, or without a value removes it.
fn set_attribute(
    workbench: &mut Workbench,
    path: &OsStr,
    name: &OsStr,
    value: Option<&OsString>,
    follow: bool,
) -> Result<()> {
    let value = value.map(|value| value.as_bytes().to_vec());
    let set = SetAttribute { path: image_path(Path::new(path)), follow, name: name.as_bytes().to_vec(), value };
    Ok(workbench.image()?.call(Operation::SetAttribute(set)).map(drop)?)
}

fn make_node(workbench: &mut Workbench, words: &[OsString], kind: u32) -> Result<()> {
    let number = |word: &OsString| {
        let number = text(word)?.parse::<u32>();
        number.map_err(|_| anyhow::Error::from(UsageError(format!("{} is no number of a device", shown(word)))))
    };
    let mode = u32::from_str_radix(text(&words[0])?, 8).ok().filter(|mode| *mode <= 0o177_777);
    let mode = mode.ok_or_else(|| UsageError(format!("{} is no mode: it is like 0644", shown(&words[0]))))?;
    let (major, minor) = (number(&words[1])?, number(&words[2])?);
    let make = MakeNode { path: image_path(Path::new(&words[3])), mode: mode | kind, major, minor };
    Ok(workbench.image()?.call(Operation::MakeNode(make)).map(drop)?)
}

/// Options of guestfish's `tar-in` and `tar-out` as ours.
fn tar_options(words: &[OsString], own: &[&str]) -> Result<Vec<OsString>> {
    let mut ours = Vec::new();
    for (key, value) in options(words)? {
        match (key, value) {
            ("compress", "gzip" | "zstd") if own.contains(&key) => ours.extend(["--compress".into(), value.into()]),
            ("compress", "gzip" | "zstd") => {}
            ("compress", _) => bail!(UsageError(format!("compress:{value}: gzip and zstd are known"))),
            ("excludes", _) if own.contains(&key) => {
                let patterns = word_list(OsStr::new(value))?;
                ours.extend(patterns.into_iter().flat_map(|pattern| ["--exclude".into(), pattern]));
            }
            ("xattrs" | "acls" | "selinux", _) | ("numericowner", _) if truth(OsStr::new(value))? => {}
            ("xattrs" | "acls" | "selinux" | "numericowner", _) => {
                bail!(UsageError(format!("{key}:{value}: it is always {key}:true here")));
            }
            _ => bail!(UsageError(format!("{key}:{value}: there is no such option"))),
        }
    }
    Ok(ours)
}

fn tar_in(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let options = tar_options(&words[2..], &[])?;
    workbench.perform(&[&["tar-in".into()], &options[..], &["--".into()], &words[..2]].concat())
}

fn tar_out(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let options = tar_options(&words[2..], &["compress", "excludes"])?;
    workbench.perform(&[&["tar-out".into()], &options[..], &["--".into()], &words[..2]].concat())
}

/// `copy-file-to-device` and its like: guestfish has them for what dd does.
fn copy(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    workbench.perform(&[&["dd".into()], words].concat())
}

fn remove_directory(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    match workbench.entry(&words[0], false)? {
        Some(entry) if is_directory(entry.mode) => {
            workbench.perform(&["rm".into(), "-d".into(), "--".into(), words[0].clone()])
        }
        Some(_) => bail!("{}: not a directory", shown(&words[0])),
        None => bail!("{}: no such directory in the image", shown(&words[0])),
    }
}

fn command(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let program = word_list(&words[0])?;
    workbench.perform(&[&["run".into(), "--".into()][..], &program].concat())
}
