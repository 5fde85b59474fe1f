//! Commands on LVM's physical volumes, volume groups and logical volumes.

use crate::arguments::{device_list, new_name, text, truth};
use crate::devices::{their_name, with_devices};
use crate::verb::Action::Call;
use crate::verb::Verb;
use crate::verb::on_disks::{changes, tells};
use crate::workbench::Workbench;
use anyhow::{Context, Result, bail};
use blockyard_block::shown;
use blockyard_command_line::terminal::print;
use blockyard_command_line::usage_error::UsageError;
use blockyard_image::guest::OpenImage;
use blockyard_image::volumes::stacks::{LVM_MEMBER, is_group_name};
use std::ffi::{OsStr, OsString};

/// On what LVM makes of devices.
pub(crate) const VERBS: &[Verb] = &[
    tells(&["pvs"], "", "List the physical volumes of LVM", Call(physical_volumes)),
    tells(&["vgs"], "", "List the volume groups", Call(groups)),
    tells(&["lvs"], "", "List the logical volumes", Call(logical_volumes)),
    changes(
        &["pvcreate"],
        "DEVICE",
        "Make a physical volume: what was there is lost",
        Call(|workbench, words| physical_volume(workbench, "pvcreate", words)),
    ),
    changes(
        &["pvremove"],
        "DEVICE",
        "Make an unused physical volume none",
        Call(|workbench, words| physical_volume(workbench, "pvremove", words)),
    ),
    changes(
        &["pvresize"],
        "DEVICE",
        "Have a physical volume use all of its device",
        Call(|workbench, words| physical_volume(workbench, "pvresize", words)),
    ),
    changes(&["vgcreate"], "GROUP DEVICE…", "Make a volume group; the devices may be one argument", Call(create_group)),
    changes(&["vgremove"], "GROUP", "Remove a volume group with all in it", Call(remove_group)),
    changes(
        &["lvcreate"],
        "NAME GROUP MEBIBYTES",
        "Make a logical volume",
        Call(|workbench, words| create_logical_volume(workbench, words, false)),
    ),
    changes(
        &["lvcreate-free"],
        "NAME GROUP PERCENT",
        "Make a logical volume of so much of what is free",
        Call(|workbench, words| create_logical_volume(workbench, words, true)),
    ),
    changes(&["lvremove"], "DEVICE|GROUP", "Remove a logical volume, or all of a group", Call(remove_logical_volume)),
    changes(
        &["lvresize"],
        "DEVICE MEBIBYTES",
        "Make a logical volume longer or shorter: shrink its file system first",
        Call(|workbench, words| resize_logical_volume(workbench, words, false)),
    ),
    changes(
        &["lvresize-free"],
        "DEVICE PERCENT",
        "Make a logical volume longer by so much of what is free",
        Call(|workbench, words| resize_logical_volume(workbench, words, true)),
    ),
    changes(&["lvrename"], "DEVICE NAME", "Rename a logical volume", Call(rename_logical_volume)),
    tells(&["is-lv"], "DEVICE", "Say whether it is a logical volume", Call(is_logical_volume)),
    changes(&["vg-activate-all"], "true|false", "Activate all volume groups, or none", Call(activate)),
    changes(&["vg-activate"], "true|false GROUP…", "Activate volume groups, or deactivate them", Call(activate)),
];

/// Columns of a report of LVM's, a line for each thing that it has.
fn report(workbench: &mut Workbench, command: &str, arguments: &[&str]) -> Result<Vec<String>> {
    workbench.open_stacks()?;
    let image = workbench.image()?;
    // Nobody need be asked where there is nothing.
    if !image.volumes()?.iter().any(|volume| volume.r#type == LVM_MEMBER) {
        return Ok(Vec::new());
    }
    let said = image.run_lvm(command, |call| call.argument("--noheadings").arguments(arguments.iter().copied()))?;
    Ok(said.lines().map(|line| line.trim().to_owned()).filter(|line| !line.is_empty()).collect())
}

/// `pvs`.
fn physical_volumes(workbench: &mut Workbench, _: &[OsString]) -> Result<()> {
    let names = report(workbench, "pvs", &["--options", "pv_name"])?;
    names.iter().try_for_each(|name| print(&their_name(name.trim_start_matches("/dev/"))))
}

/// `vgs`.
fn groups(workbench: &mut Workbench, _: &[OsString]) -> Result<()> {
    report(workbench, "vgs", &["--options", "vg_name"])?.iter().try_for_each(|name| print(name))
}

/// `lvs`.
fn logical_volumes(workbench: &mut Workbench, _: &[OsString]) -> Result<()> {
    let names =
        report(workbench, "lvs", &["--options", "vg_name,lv_name", "--separator", "/", "--select", "lv_role=public"])?;
    names.iter().try_for_each(|name| print(&format!("/dev/{name}")))
}

/// `pvcreate`, `pvremove` and `pvresize`.
fn physical_volume(workbench: &mut Workbench, command: &str, words: &[OsString]) -> Result<()> {
    let device = text(&words[0])?.to_owned();
    let image = workbench.changing()?;
    Ok(image.run_lvm(command, |call| with_devices(call.argument("--yes"), &[device])).map(drop)?)
}

/// `vgcreate`.
fn create_group(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let (name, devices) = (new_name(&words[0])?, device_list(&words[1..])?);
    let image = workbench.changing()?;
    image.run_lvm("vgcreate", |call| with_devices(call.arguments(["--yes", name]), &devices))?;
    image.has_group(name);
    Ok(())
}

/// `vgremove`, with its logical volumes.
fn remove_group(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let name = group_of(&words[0])?;
    let image = workbench.changing()?;
    image.run_lvm("vgremove", |call| call.arguments(["--yes", "--force", &name]))?;
    image.has_no_group(&name);
    Ok(())
}

fn group_of(word: &OsStr) -> Result<String> {
    let name = text(word)?;
    let name = name.strip_prefix("/dev/").unwrap_or(name);
    if is_group_name(name) { Ok(name.to_owned()) } else { bail!("{name} is no name of a volume group") }
}

/// `lvcreate`: of so many mebibytes, or of so many percent of what is free.
fn create_logical_volume(workbench: &mut Workbench, words: &[OsString], of_free: bool) -> Result<()> {
    let (name, group, size) = (new_name(&words[0])?, group_of(&words[1])?, size_option(&words[2], of_free, "")?);
    let image = workbench.changing()?;
    // Nobody makes links in /dev, which LVM would wait for to wipe it.
    let unwiped = ["--yes", "--wipesignatures", "n", "--zero", "n", "--name", name];
    image.run_lvm("lvcreate", |call| call.arguments(unwiped).arguments(size).argument(group.as_str()))?;
    image.has_group(&group);
    // What lay there before is no file system of this one.
    Ok(image.clear_start(&format!("/dev/{group}/{name}"))?)
}

/// LVM's option for a size.
fn size_option(word: &OsStr, of_free: bool, more: &str) -> Result<[String; 2]> {
    match (text(word)?.parse::<u64>(), of_free) {
        (Ok(mebibytes @ 1..), false) => Ok(["--size".to_owned(), format!("{mebibytes}m")]),
        (Ok(percent @ 1..=100), true) => Ok(["--extents".to_owned(), format!("{more}{percent}%FREE")]),
        (_, false) => bail!(UsageError(format!("{}: a size is a number of mebibytes", shown(word)))),
        (_, true) => bail!(UsageError(format!("{}: it is a number of percent", shown(word)))),
    }
}

/// GROUP/NAME of the logical volume that somebody calls so.
fn logical_volume(image: &mut OpenImage, word: &OsStr) -> Result<String> {
    let device = image.volume(Some(text(word)?))?.device;
    match is_logical(&device) {
        true => Ok(device),
        false => bail!("{} is no logical volume", shown(word)),
    }
}

fn is_logical(device: &str) -> bool {
    device.contains('/') && !device.starts_with("mapper/") && !device.starts_with("md/")
}

/// `lvremove`: one, or all of a group.
fn remove_logical_volume(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let image = workbench.changing()?;
    let name = match group_of(&words[0]) {
        Ok(group) => group,
        Err(_) => logical_volume(image, &words[0])?,
    };
    Ok(image.run_lvm("lvremove", |call| call.arguments(["--yes", "--force", &name])).map(drop)?)
}

/// `lvresize` and `lvresize-free`.
fn resize_logical_volume(workbench: &mut Workbench, words: &[OsString], of_free: bool) -> Result<()> {
    let size = size_option(&words[1], of_free, "+")?;
    let image = workbench.changing()?;
    let name = logical_volume(image, &words[0])?;
    Ok(image.run_lvm("lvresize", |call| call.argument("--force").arguments(size).argument(name)).map(drop)?)
}

/// `lvrename`.
fn rename_logical_volume(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let image = workbench.changing()?;
    let from = logical_volume(image, &words[0])?;
    let (group, _) = from.split_once('/').context("it has no group")?;
    let to = text(&words[1])?;
    let to = to.rsplit('/').next().unwrap_or(to);
    let to = format!("{group}/{}", new_name(OsStr::new(to))?);
    Ok(image.run_lvm("lvrename", |call| call.arguments([from, to])).map(drop)?)
}

/// `vg-activate` and `vg-activate-all`.
fn activate(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let how = if truth(&words[0])? { "y" } else { "n" };
    workbench.open_stacks()?;
    let groups = match &words[1..] {
        [] => report(workbench, "vgs", &["--options", "vg_name"])?,
        named => device_list(named)?,
    };
    let image = workbench.image()?;
    for group in &groups {
        let group = group_of(OsStr::new(group))?;
        image.run_lvm("vgchange", |call| call.arguments(["--activate", how, &group]))?;
        image.has_group(&group);
    }
    Ok(())
}

/// `is-lv`.
fn is_logical_volume(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    workbench.open_stacks()?;
    let volume = workbench.image()?.volume(Some(text(&words[0])?))?;
    print(if is_logical(&volume.device) { "true" } else { "false" })
}
