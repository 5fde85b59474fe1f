//! Commands on file systems as a whole, and on what else is on a device.

use super::mounts::mount;
use crate::arguments::{bytes, text};
use crate::devices::their_name;
use crate::verb::Action::{Call, Words};
use crate::verb::on_disks::{changes, tells};
use crate::verb::{Verb, on_files};
use crate::workbench::Workbench;
use anyhow::{Result, bail};
use blockyard_appliance::tools::{BLKID, RESIZE2FS, TUNE2FS, ToolCall, WIPEFS};
use blockyard_block::printable;
use blockyard_command_line::terminal::print;
use blockyard_image::volumes::stacks::LUKS;
use blockyard_image::volumes::tools::{self, complaint};
use blockyard_protocol::appliance::Volume;
use std::ffi::{OsStr, OsString};

/// On what is on devices.
pub(crate) const VERBS: &[Verb] = &[
    tells(&["list-filesystems"], "", "List the devices with what is on them", Call(list_file_systems)),
    tells(
        &["vfs-type"],
        "DEVICE",
        "Say which file system is on a device",
        Call(|workbench, words| of_volume(workbench, words, |volume| &volume.r#type)),
    ),
    tells(
        &["vfs-label"],
        "DEVICE",
        "Say a file system's label",
        Call(|workbench, words| of_volume(workbench, words, |volume| &volume.label)),
    ),
    tells(
        &["vfs-uuid"],
        "DEVICE",
        "Say a file system's UUID",
        Call(|workbench, words| of_volume(workbench, words, |volume| &volume.uuid)),
    ),
    tells(&["get-e2label"], "DEVICE", "Say an ext file system's label", Words(&["vfs-label", "$1"])),
    tells(&["get-e2uuid"], "DEVICE", "Say an ext file system's UUID", Words(&["vfs-uuid", "$1"])),
    tells(&["blkid"], "DEVICE", "Say what blkid(8) finds on a device", Call(identify)),
    tells(&["tune2fs-l"], "DEVICE", "Say what tune2fs(8) knows of an ext file system", Call(list_superblock)),
    tells(
        &["findfs-label"],
        "LABEL",
        "Say which device has a file system with that label",
        Call(|workbench, words| find(workbench, words, |volume| &volume.label)),
    ),
    tells(
        &["findfs-uuid"],
        "UUID",
        "Say which device has a file system with that UUID",
        Call(|workbench, words| find(workbench, words, |volume| &volume.uuid)),
    ),
    changes(&["wipefs"], "DEVICE", "Remove what says what is on a device", Call(wipe_signatures)),
    changes(&["zerofree"], "DEVICE", "Make zeros of a file system's free blocks", Call(zero_free)),
    on_files::changes(
        &["zero-free-space"],
        "DIR",
        "Make zeros of the free blocks of what is mounted",
        Words(&["zero-free"]),
    ),
    changes(&["set-label", "set-e2label"], "DEVICE LABEL", "Label a file system", Words(&["label", "--", "$1", "$2"])),
    changes(&["e2fsck-f", "e2fsck"], "DEVICE", "Check a file system, and repair it", Words(&["fsck", "--", "$1"])),
    changes(&["resize2fs"], "DEVICE", "Make an ext file system as large as its device", Call(resize_ext)),
    changes(&["resize2fs-size"], "DEVICE SIZE", "Make an ext file system that large", Call(resize_ext)),
    changes(
        &["mkfs-b"],
        "KIND BLOCK DEVICE",
        "Make a file system with blocks of so many bytes",
        Words(&["mkfs", "$1", "$3", "--", "-b", "$2"]),
    ),
    changes(&["mkswap-L"], "LABEL DEVICE", "Make swap space with a label", Words(&["mkfs", "swap", "$2", "-L", "$1"])),
    changes(&["mkswap"], "DEVICE", "Make swap space", Words(&["mkfs", "swap", "$1"])),
];

/// `list-filesystems`.
fn list_file_systems(workbench: &mut Workbench, _: &[OsString]) -> Result<()> {
    workbench.open_stacks()?;
    for volume in workbench.image()?.volumes()? {
        // What is part of something else is no file system.
        if volume.used || volume.r#type.ends_with("_member") || volume.r#type == LUKS {
            continue;
        }
        let kind = if volume.r#type.is_empty() { "unknown" } else { &volume.r#type };
        print(&format!("{}: {}", their_name(&volume.device), printable(kind)))?;
    }
    Ok(())
}

/// Prints what is known of a volume.
fn of_volume(workbench: &mut Workbench, words: &[OsString], what: fn(&Volume) -> &str) -> Result<()> {
    workbench.open_stacks()?;
    let volume = workbench.image()?.volume(Some(text(&words[0])?))?;
    print(&printable(what(&volume)))
}

/// `findfs-label` and `findfs-uuid`.
fn find(workbench: &mut Workbench, words: &[OsString], of: fn(&Volume) -> &str) -> Result<()> {
    let wanted = text(&words[0])?;
    workbench.open_stacks()?;
    let volumes = workbench.image()?.volumes()?;
    match volumes.iter().filter(|volume| !volume.used).find(|volume| of(volume) == wanted) {
        Some(volume) => print(&their_name(&volume.device)),
        None => bail!("no file system has {wanted}"),
    }
}

/// `blkid`: what blkid(8) finds on a device, with its names.
fn identify(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    /// Its exit status when there is nothing that it knows.
    const NOTHING: u32 = 2;
    workbench.open_stacks()?;
    let call = ToolCall::new().arguments(["-c", "/dev/null", "-p", "-i", "-o", "export"]);
    let end = workbench.image()?.run_tool(&BLKID, call.device(text(&words[0])?))?;
    if ![Some(0), Some(NOTHING)].contains(&end.status) {
        bail!("{}", complaint(&BLKID, &end));
    }
    let said = tools::text(&end.output);
    let mut known = said.lines().filter_map(|line| line.split_once('=')).filter(|(key, _)| *key != "DEVNAME");
    known.try_for_each(|(key, value)| print(&format!("{key}: {value}")))
}

/// `tune2fs-l`: what tune2fs(8) says of an ext file system.
fn list_superblock(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    workbench.open_stacks()?;
    let call = ToolCall::new().argument("-l").device(text(&words[0])?);
    let said = workbench.image()?.run_tool_well(&TUNE2FS, call)?;
    let mut known = said.lines().filter_map(|line| line.split_once(':'));
    known.try_for_each(|(key, value)| print(&format!("{}: {}", key.trim(), value.trim())))
}

/// `wipefs`: nothing says any more what is on a device.
fn wipe_signatures(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let call = ToolCall::new().arguments(["--all", "--force"]).device(text(&words[0])?).changes_devices();
    Ok(workbench.changing()?.run_tool_well(&WIPEFS, call).map(drop)?)
}

/// `zerofree`: the free blocks of a file system that is not mounted.
fn zero_free(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    if !workbench.points().is_empty() {
        bail!("something is mounted: `umount-all` first, or `zero-free` for what is mounted");
    }
    mount(workbench, &words[0], OsStr::new("/"), "", "")?;
    let done = workbench.perform(&["zero-free".into()]);
    let unmounted = workbench.unmount_all();
    done.and(unmounted)
}

/// `resize2fs`, to a size or to that of the device.
fn resize_ext(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let size = words.get(1).map(|word| bytes(word)).transpose()?;
    let call = ToolCall::new().device(text(&words[0])?).changes_devices();
    let call = call.arguments(size.map(|bytes| format!("{}K", bytes / 1024)));
    Ok(workbench.changing()?.run_tool_well(&RESIZE2FS, call).map(drop)?)
}
