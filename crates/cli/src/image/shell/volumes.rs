//! Commands on what volumes are made of: logical volumes, arrays, encrypted volumes. With guestfish's names and
//! arguments.

use super::arguments::{options, text, truth, word_list};
use super::devices::their_name;
use super::verb::Action::{Call, Words};
use super::verb::on_disks::{changes, tells};
use super::verb::{Verb, of_shell};
use super::workbench::{Mapping, Workbench, open_as};
use anyhow::{Context, Result, bail};
use blockyard_appliance::tools::{CRYPTSETUP, MDADM, ToolCall};
use blockyard_block::{printable, shown};
use blockyard_command_line::terminal::print;
use blockyard_command_line::usage_error::UsageError;
use blockyard_image::guest::OpenImage;
use blockyard_image::volumes::keys::Key;
use blockyard_image::volumes::stacks::{KEY_TIMEOUT, LVM_MEMBER, cryptsetup, is_group_name};
use blockyard_protocol::appliance::Volume;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// On what lies in layers.
pub const VERBS: &[Verb] = &[
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
    of_shell(
        &["cryptsetup-open", "luks-open"],
        "DEVICE NAME [KEY:VALUE]…",
        "Open an encrypted volume as /dev/mapper/NAME: keyfile:FILE, readonly:true; without a key, it is asked for",
        Call(open_encrypted),
    ),
    changes(&["cryptsetup-close", "luks-close"], "DEVICE", "Close an encrypted volume", Call(close_encrypted)),
    changes(
        &["luks-format"],
        "DEVICE KEYSLOT [KEY:VALUE]…",
        "Make an encrypted volume: keyfile:FILE, itertime:MILLISECONDS; what was there is lost; without a key, it is asked for",
        Call(|workbench, words| format_encrypted(workbench, words, None)),
    ),
    changes(
        &["luks-format-cipher"],
        "DEVICE KEYSLOT CIPHER [KEY:VALUE]…",
        "The same, with a cipher",
        Call(|workbench, words| format_encrypted(workbench, words, Some(&words[2]))),
    ),
    changes(
        &["luks-add-key"],
        "DEVICE KEYSLOT [KEY:VALUE]…",
        "Add a key to an encrypted volume: keyfile:FILE, newkeyfile:FILE; without them, they are asked for",
        Call(add_key),
    ),
    changes(
        &["luks-kill-slot"],
        "DEVICE KEYSLOT [keyfile:FILE]…",
        "Remove a key, with another one that stays",
        Call(kill_slot),
    ),
    tells(&["luks-uuid"], "DEVICE", "Say an encrypted volume's UUID", Words(&["vfs-uuid", "$1"])),
    tells(&["list-dm-devices"], "", "List what is in /dev/mapper but for logical volumes", Call(list_mapped)),
    tells(&["list-md-devices"], "", "List the arrays", Call(list_arrays)),
    changes(
        &["md-create"],
        "NAME DEVICE… [KEY:VALUE]…",
        "Make an array: level:LEVEL (raid1), nrdevices:N, spare:N, chunk:BYTES; the devices may be one argument",
        Call(create_array),
    ),
    changes(&["md-stop"], "DEVICE", "Stop an array", Call(stop_array)),
    tells(&["md-detail"], "DEVICE", "Say what an array is made of", Call(array_details)),
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

/// The words of one list, or of several.
fn devices(words: &[OsString]) -> Result<Vec<String>> {
    let lists: Vec<_> = words.iter().map(|word| word_list(word)).collect::<Result<_>>()?;
    let names: Vec<_> = lists.iter().flatten().map(|name| text(name).map(str::to_owned)).collect::<Result<_>>()?;
    if names.is_empty() { bail!(UsageError("which devices?".to_owned())) } else { Ok(names) }
}

/// A name for something new.
fn new_name(word: &OsStr) -> Result<&str> {
    let name = text(word)?;
    match is_group_name(name) && name != "." && name != ".." {
        true => Ok(name),
        false => bail!(UsageError(format!("{name} is no name: letters, digits and + _ . -, and no - in front"))),
    }
}

fn with_devices(call: ToolCall, devices: &[String]) -> ToolCall {
    devices.iter().fold(call, |call, device| call.device(device.as_str())).changes_devices()
}

/// `pvcreate`, `pvremove` and `pvresize`.
fn physical_volume(workbench: &mut Workbench, command: &str, words: &[OsString]) -> Result<()> {
    let device = text(&words[0])?.to_owned();
    let image = workbench.changing()?;
    Ok(image.run_lvm(command, |call| with_devices(call.argument("--yes"), &[device])).map(drop)?)
}

/// `vgcreate`.
fn create_group(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let (name, devices) = (new_name(&words[0])?, devices(&words[1..])?);
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
        named => devices(named)?,
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

/// Options of a command that takes a key; whatever key they name.
struct KeyOptions {
    read_only: bool,
    key: Option<Key>,
    /// One that shall open it too.
    new_key: Option<Key>,
    /// Milliseconds that it takes to make a key of a passphrase.
    time: Option<String>,
}

impl KeyOptions {
    fn parse(words: &[OsString]) -> Result<Self> {
        let mut parsed = Self { read_only: false, key: None, new_key: None, time: None };
        for (key, value) in options(words)? {
            match key {
                "readonly" => parsed.read_only = truth(OsStr::new(value))?,
                "keyfile" => parsed.key = Some(Key::read(Path::new(value))?),
                "newkeyfile" => parsed.new_key = Some(Key::read(Path::new(value))?),
                "itertime" if value.parse().is_ok_and(|time: u32| time > 0) => parsed.time = Some(value.to_owned()),
                "crypttype" if value == "luks" => {}
                _ => bail!(UsageError(format!(
                    "{key}:{value}: keyfile:FILE, newkeyfile:FILE, readonly:true and itertime:MILLISECONDS are known"
                ))),
            }
        }
        Ok(parsed)
    }
}

/// `cryptsetup-open`.
fn open_encrypted(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let (device, name) = (text(&words[0])?.to_owned(), new_name(&words[1])?.to_owned());
    let KeyOptions { read_only, key, .. } = KeyOptions::parse(&words[2..])?;
    let read_only = read_only || workbench.how.ro;
    workbench.image()?.install_modules()?;
    if workbench.image()?.encrypted(&device).is_err() {
        // It may lie in others.
        workbench.open_stacks()?;
    }
    let image = workbench.image()?;
    let volume = image.encrypted(&device)?;
    let given = key.map_or_else(|| image.keys_of(&volume), |key| vec![key]);
    let tried = if given.is_empty() {
        let question = format!("Passphrase for {}: ", their_name(&volume.device));
        vec![image.ask(&question)?.context("give the key with keyfile:FILE, --key-file or --key, or a terminal")?]
    } else {
        given
    };
    for key in tried {
        let mapping = Mapping { device: device.clone(), name: name.clone(), read_only, key };
        if workbench.needing(|image| open_as(image, &mapping))? {
            workbench.mappings.push(mapping);
            return Ok(());
        }
    }
    bail!("{device}: the key does not open it")
}

/// `cryptsetup-close`.
fn close_encrypted(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let name = text(&words[0])?;
    let name = name.trim_start_matches("/dev/mapper/").to_owned();
    let image = workbench.image()?;
    image.close_encrypted(&name)?;
    workbench.mappings.retain(|mapping| mapping.name != name);
    Ok(())
}

/// `luks-format` and `luks-format-cipher`.
fn format_encrypted(workbench: &mut Workbench, words: &[OsString], cipher: Option<&OsStr>) -> Result<()> {
    let (device, more) = (text(&words[0])?, if cipher.is_some() { 3 } else { 2 });
    let slot = key_slot(&words[1])?;
    let KeyOptions { key, time, .. } = KeyOptions::parse(&words[more..])?;
    let image = workbench.changing()?;
    let key = match key {
        Some(key) => key,
        None => new_key(image, device)?,
    };
    let mut options = vec!["--key-slot", &slot];
    if let Some(time) = &time {
        options.extend(["--iter-time", time]);
    }
    if let Some(cipher) = cipher {
        options.extend(["--cipher", text(cipher)?]);
    }
    Ok(image.format_encrypted(device, &key, &options)?)
}

fn key_slot(word: &OsStr) -> Result<String> {
    match text(word)?.parse::<u32>() {
        Ok(slot @ 0..=31) => Ok(slot.to_string()),
        _ => bail!(UsageError(format!("{} is no number of a key slot", shown(word)))),
    }
}

/// Asked for twice: nobody sees what is typed, and without it everything is lost.
fn new_key(image: &OpenImage, device: &str) -> Result<Key> {
    let ask = |question: String| {
        let key = image.ask(&question)?;
        key.context("give the key with keyfile:FILE, or a terminal to type it at")
    };
    let key = ask(format!("New passphrase for {}: ", printable(device)))?;
    if key != ask("The same again: ".to_owned())? {
        bail!("they are not the same");
    }
    Ok(key)
}

/// `list-dm-devices`: those that are no logical volumes.
fn list_mapped(workbench: &mut Workbench, _: &[OsString]) -> Result<()> {
    list(workbench, |device| device.starts_with("mapper/"))
}

/// `list-md-devices`.
fn list_arrays(workbench: &mut Workbench, _: &[OsString]) -> Result<()> {
    list(workbench, is_array)
}

fn list(workbench: &mut Workbench, is_one: fn(&str) -> bool) -> Result<()> {
    workbench.open_stacks()?;
    let volumes = workbench.image()?.volumes()?;
    volumes.iter().filter(|volume| is_one(&volume.device)).try_for_each(|volume| print(&their_name(&volume.device)))
}

/// `md-create`.
fn create_array(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let name = text(&words[0])?;
    let name = new_name(OsStr::new(name.trim_start_matches("/dev/md/")))?;
    let is_option = |word: &&OsString| !word.to_string_lossy().starts_with('/') && word.to_string_lossy().contains(':');
    let given: Vec<_> = words[1..].iter().filter(is_option).cloned().collect();
    let members: Vec<_> = words[1..].iter().filter(|word| !is_option(word)).cloned().collect();
    let members = devices(&members)?;
    let (mut level, mut spare, mut disks, mut more) = ("raid1".to_owned(), 0, None, Vec::new());
    for (key, value) in options(&given)? {
        let number = || value.parse::<usize>().map_err(|_| UsageError(format!("{key}:{value}: it is a number")));
        match key {
            "level" => level = value.to_owned(),
            "spare" => spare = number()?,
            "nrdevices" => disks = Some(number()?),
            "chunk" => more.push(format!("--chunk={}", number()? / 1024)),
            _ => bail!(UsageError(format!("{key}: level, nrdevices, spare and chunk are known"))),
        }
    }
    let disks = disks.unwrap_or(members.len().saturating_sub(spare));
    if disks == 0 || disks + spare != members.len() {
        bail!(UsageError(format!(
            "{disks} devices and {spare} spare ones are not the {} that are named",
            members.len()
        )));
    }
    let path = format!("/dev/md/{name}");
    let mut words = vec!["--homehost=<none>".to_owned(), format!("--level={level}"), format!("--raid-devices={disks}")];
    words.extend((spare > 0).then(|| format!("--spare-devices={spare}")));
    words.append(&mut more);
    workbench.changing()?;
    workbench.needing(|image| {
        image.needs_level(&level)?;
        Ok(image.create_array(&path, |call| with_devices(call.arguments(words.clone()), &members))?)
    })
}

/// As the kernel calls it.
fn is_array(device: &str) -> bool {
    device.strip_prefix("md").is_some_and(|number| number.bytes().all(|byte| byte.is_ascii_digit()))
}

/// The array that somebody calls so.
fn array(image: &mut OpenImage, word: &OsStr) -> Result<Volume> {
    let volume = image.volume(Some(text(word)?))?;
    if is_array(&volume.device) { Ok(volume) } else { bail!("{} is no array", shown(word)) }
}

/// `md-stop`.
fn stop_array(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    workbench.open_stacks()?;
    let image = workbench.image()?;
    let array = array(image, &words[0])?;
    Ok(image.stop_array(&array)?)
}

/// `md-detail`.
fn array_details(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    workbench.open_stacks()?;
    let image = workbench.image()?;
    let array = array(image, &words[0])?;
    let call = ToolCall::new().arguments(["--detail", "--export"]).device(array.device.as_str());
    for line in image.run_tool_well(&MDADM, call)?.lines() {
        let Some((key, value)) = line.strip_prefix("MD_").and_then(|line| line.split_once('=')) else { continue };
        // Of its parts, each has keys of its own.
        if !key.starts_with("DEVICE_") {
            print(&format!("{}: {value}", key.to_ascii_lowercase()))?;
        }
    }
    Ok(())
}

/// An encrypted volume, and a key that opens it: the one that a command names, or one that was given for it, or what is
/// typed.
fn volume_and_key(workbench: &mut Workbench, device: &str, key: Option<Key>, question: &str) -> Result<(Volume, Key)> {
    let image = workbench.changing()?;
    let volume = image.encrypted(device)?;
    let key = match key.or_else(|| image.keys_of(&volume).into_iter().next()) {
        Some(key) => key,
        None => image.ask(question)?.context("give the key with keyfile:FILE, or a terminal")?,
    };
    Ok((volume, key))
}

/// `luks-kill-slot`: with a key of another slot.
fn kill_slot(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let slot = key_slot(&words[1])?;
    let KeyOptions { key, .. } = KeyOptions::parse(&words[2..])?;
    let (volume, key) = volume_and_key(workbench, text(&words[0])?, key, "A passphrase that is left: ")?;
    let call = cryptsetup("luksKillSlot").arguments(["--batch-mode", "--key-file", "-"]);
    let call = call.device(volume.device.as_str()).argument(slot).stdin(key.bytes());
    Ok(workbench.changing()?.run_tool_well(&CRYPTSETUP, call).map(drop)?)
}

/// `luks-add-key`: another key, with one that opens it already.
fn add_key(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let (device, slot) = (text(&words[0])?, key_slot(&words[1])?);
    let KeyOptions { key, new_key: given, time, .. } = KeyOptions::parse(&words[2..])?;
    let (volume, key) = volume_and_key(workbench, device, key, "A passphrase that opens it: ")?;
    workbench.needing(|image| Ok(image.needs_key_memory(&volume)?))?;
    let image = workbench.changing()?;
    let new = match given {
        Some(key) => key,
        None => new_key(image, device)?,
    };
    if new.bytes().is_empty() {
        bail!("{device}: a key that is empty keeps nobody out");
    }
    // Both come on stdin, one behind the other.
    let length = key.bytes().len().to_string();
    let mut call = cryptsetup("luksAddKey").arguments(["--batch-mode", "--key-slot", &slot, "--key-file", "-"]);
    call = call.arguments(["--keyfile-size", &length]);
    if let Some(time) = &time {
        call = call.arguments(["--iter-time", time]);
    }
    let call = call.device(volume.device.as_str()).argument("-").stdin([key.bytes(), new.bytes()].concat());
    Ok(image.with_timeout(KEY_TIMEOUT, |image| image.run_tool_well(&CRYPTSETUP, call)).map(drop)?)
}
