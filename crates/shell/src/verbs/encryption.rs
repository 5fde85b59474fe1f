//! Commands on encrypted volumes.

use crate::arguments::{new_name, options, text, truth};
use crate::devices::{list_volumes, their_name};
use crate::verb::Action::{Call, Words};
use crate::verb::on_disks::{changes, tells};
use crate::verb::{Verb, of_shell};
use crate::workbench::{Mapping, Workbench, open_as};
use anyhow::{Context, Result, bail};
use blockyard_appliance::tools::CRYPTSETUP;
use blockyard_block::{printable, shown};
use blockyard_command_line::usage_error::UsageError;
use blockyard_image::guest::OpenImage;
use blockyard_image::volumes::keys::Key;
use blockyard_image::volumes::stacks::{KEY_TIMEOUT, cryptsetup};
use blockyard_protocol::appliance::Volume;
use std::ffi::{OsStr, OsString};
use std::path::Path;

/// On LUKS, and what is in /dev/mapper by it.
pub(crate) const VERBS: &[Verb] = &[
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
];

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
    if key.bytes() != ask("The same again: ".to_owned())?.bytes() {
        bail!("they are not the same");
    }
    Ok(key)
}

/// `list-dm-devices`: those that are no logical volumes.
fn list_mapped(workbench: &mut Workbench, _: &[OsString]) -> Result<()> {
    list_volumes(workbench, |device| device.starts_with("mapper/"))
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
