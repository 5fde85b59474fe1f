//! Commands on disks: adding them, making them, what is known of them.

use crate::arguments::{bytes, options, text, truth};
use crate::devices::{disk_index, disk_name, their_name};
use crate::program::OnHost;
use crate::verb::Action::Call;
use crate::verb::on_disks::{changes, tells};
use crate::verb::{Verb, of_shell};
use crate::workbench::{Drive, Workbench};
use anyhow::{Context, Result, bail};
use blockyard_block::specification::{DiskSpecification, Format};
use blockyard_block::{Preallocation, private_directory};
use blockyard_command_line::image::at_terminal::AtTerminal;
use blockyard_command_line::image::named_image;
use blockyard_command_line::terminal::print;
use blockyard_command_line::usage_error::{UsageError, UsageLines};
use blockyard_image::whole::NewImage;
use blockyard_protocol::appliance::Volume;
use std::borrow::Cow;
use std::ffi::{OsStr, OsString};

/// On disks as a whole.
pub(crate) const VERBS: &[Verb] = &[
    of_shell(
        &["add", "add-drive"],
        "IMAGE [KEY:VALUE]…",
        "Add a disk: readonly:true and format:raw|qcow2 are understood",
        Call(add),
    )
    .on_host(OnHost::All),
    of_shell(&["add-ro", "add-drive-ro"], "IMAGE [KEY:VALUE]…", "Add a disk that is only read", Call(add_read_only))
        .on_host(OnHost::All),
    of_shell(
        &["sparse"],
        "FILE SIZE",
        "Make a sparse raw image, and add it",
        Call(|workbench, words| make(workbench, words, false)),
    )
    .on_host(OnHost::All),
    of_shell(
        &["alloc", "allocate"],
        "FILE SIZE",
        "Make a raw image with all its space, and add it",
        Call(|workbench, words| make(workbench, words, true)),
    )
    .on_host(OnHost::All),
    changes(&["scratch"], "SIZE", "Add a disk that is gone at the end", Call(scratch)),
    of_shell(
        &["disk-create"],
        "FILE FORMAT SIZE [KEY:VALUE]…",
        "Make an image: preallocation:off|sparse|metadata|full, backingfile:FILE, backingformat:FORMAT, clustersize:N",
        Call(create),
    )
    .on_host(OnHost::Only(1)),
    tells(&["list-drives", "debug-drives"], "", "List the disks that were added, with their names", Call(list_drives)),
    tells(&["list-devices"], "", "List the disks' devices", Call(list_devices)),
    tells(&["list-partitions"], "", "List the partitions' devices", Call(list_partitions)),
    tells(&["nr-devices"], "", "Say how many disks were added", Call(count_devices)),
    tells(&["device-index"], "DEVICE", "Say which disk it is, from 0", Call(index_of_device)),
    tells(
        &["blockdev-getsize64"],
        "DEVICE",
        "Say a device's size in bytes",
        Call(|workbench, words| size(workbench, words, 1)),
    ),
    tells(
        &["blockdev-getsz"],
        "DEVICE",
        "Say a device's size in units of 512 bytes",
        Call(|workbench, words| size(workbench, words, 512)),
    ),
    tells(&["blockdev-getss"], "DEVICE", "Say how many bytes a device's sectors have", Call(sector_bytes)),
    changes(
        &["zero"],
        "DEVICE",
        "Make zeros of what says at a device's start what is on it",
        Call(|workbench, words| zero(workbench, words, false)),
    ),
    changes(
        &["zero-device"],
        "DEVICE",
        "Make zeros of a whole device",
        Call(|workbench, words| zero(workbench, words, true)),
    ),
];

/// `add`.
fn add(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    add_as(workbench, words, false)
}

/// `add-ro`.
fn add_read_only(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    add_as(workbench, words, true)
}

fn add_as(workbench: &mut Workbench, words: &[OsString], mut read_only: bool) -> Result<()> {
    let mut name = Cow::Borrowed(text(&words[0])?);
    let mut named = named_image::parse(&name, None)?;
    for (key, value) in options(&words[1..])? {
        match key {
            "readonly" => read_only |= truth(OsStr::new(value))?,
            "format" => {
                named = named.with_format_named(value).map_err(UsageLines::from)?;
                name = Cow::Owned(named.to_string());
            }
            // Names and caching of QEMU's.
            "iface" | "name" | "label" | "cachemode" | "discard" => {}
            _ => bail!(UsageError(format!("{key}: a disk has readonly:true and format:raw|qcow2"))),
        }
    }
    workbench.add(&name, named, None, read_only)
}

/// `sparse` and `alloc`: of exactly so many bytes, where `create` makes whole sectors.
fn make(workbench: &mut Workbench, words: &[OsString], allocated: bool) -> Result<()> {
    let (name, size_bytes) = (text(&words[0])?, bytes(&words[1])?);
    let preallocation = if allocated { Preallocation::Falloc } else { Preallocation::Off };
    let image = NewImage { preallocation, ..NewImage::new(name, Format::Raw, size_bytes) };
    // What is added is the file that was made, whatever has its name by then.
    let file = image.make(&AtTerminal::catch()?)?.commit_open(true)?;
    let named = DiskSpecification::of_file(name).with_format(Format::Raw).map_err(UsageLines::from)?;
    workbench.add(&named.to_string(), named, Some(&file), false)
}

/// `disk-create`.
fn create(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let mut arguments = vec!["-f".to_owned(), text(&words[1])?.to_owned()];
    for (key, value) in options(&words[3..])? {
        match key {
            "preallocation" if value == "sparse" => {}
            "preallocation" => arguments.extend(["-o".to_owned(), format!("preallocation={value}")]),
            "clustersize" => arguments.extend(["-o".to_owned(), format!("cluster_size={value}")]),
            "compat" => arguments.extend(["-o".to_owned(), format!("compat={value}")]),
            "backingfile" => arguments.extend(["-b".to_owned(), value.to_owned()]),
            "backingformat" => arguments.extend(["-F".to_owned(), value.to_owned()]),
            _ => bail!(UsageError(format!(
                "{key}: preallocation, backingfile, backingformat, clustersize and compat are known"
            ))),
        }
    }
    let says = |option| arguments.iter().any(|argument| argument == option);
    if says("-b") && !says("-F") {
        bail!(UsageError("in which format is the backing file? Add backingformat:raw, or what it is".to_owned()));
    }
    let mut create: Vec<OsString> = arguments.into_iter().map(OsString::from).collect();
    create.extend(["--".into(), words[0].clone()]);
    // guestfish has -1 for the backing file's size.
    create.extend((words[2] != "-1").then(|| words[2].clone()));
    (workbench.program.create)(&create)
}

/// `scratch`: a disk that is gone at the end.
fn scratch(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    // Who opens it now goes on seeing what is written to it.
    let directory = private_directory(|_| true).context("making a directory")?;
    let path = directory.path().join("scratch.img");
    // The workbench has it open: it needs no name.
    make(workbench, &[path.into(), words[0].clone()], false)
}

/// `list-drives`.
fn list_drives(workbench: &mut Workbench, _: &[OsString]) -> Result<()> {
    let mut drives = workbench.drives().iter().enumerate();
    let line = |(index, drive): (usize, &Drive)| {
        let read_only = if drive.read_only { " (read-only)" } else { "" };
        print(&format!("{}: {}{read_only}", disk_name(index), drive.image.name))
    };
    drives.try_for_each(line)
}

/// `list-devices`.
fn list_devices(workbench: &mut Workbench, _: &[OsString]) -> Result<()> {
    (0..workbench.drives().len()).try_for_each(|index| print(&disk_name(index)))
}

/// `list-partitions`.
fn list_partitions(workbench: &mut Workbench, _: &[OsString]) -> Result<()> {
    let volumes = workbench.image()?.volumes()?;
    let is_partition = |volume: &&Volume| {
        volume.device.starts_with("vd") && volume.device.ends_with(|last: char| last.is_ascii_digit())
    };
    volumes.iter().filter(is_partition).try_for_each(|volume| print(&their_name(&volume.device)))
}

/// `nr-devices`.
fn count_devices(workbench: &mut Workbench, _: &[OsString]) -> Result<()> {
    print(&workbench.drives().len().to_string())
}

/// `device-index`.
fn index_of_device(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    print(&disk_index(workbench, &words[0])?.to_string())
}

/// `blockdev-getsize64` and `blockdev-getsz`: in units of so many bytes.
fn size(workbench: &mut Workbench, words: &[OsString], unit: u64) -> Result<()> {
    if let Ok(index) = disk_index(workbench, &words[0]) {
        return print(&(workbench.drives()[index].image.disk.geometry().capacity_bytes / unit).to_string());
    }
    workbench.open_stacks()?;
    let volume = workbench.image()?.volume(Some(text(&words[0])?))?;
    print(&(volume.size / unit).to_string())
}

/// `blockdev-getss`: bytes in a sector.
fn sector_bytes(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let disk = text(&words[0])?.trim_end_matches(|letter: char| letter.is_ascii_digit());
    let index = disk_index(workbench, OsStr::new(disk))?;
    print(&workbench.drives()[index].image.disk.geometry().logical_block_bytes.to_string())
}

/// `zero` and `zero-device`.
fn zero(workbench: &mut Workbench, words: &[OsString], whole: bool) -> Result<()> {
    let device = text(&words[0])?;
    let image = workbench.changing()?;
    if !whole {
        return Ok(image.clear_start(device)?);
    }
    let size = image.volume(Some(device))?.size;
    Ok(image.write_zeros(device, size)?)
}
