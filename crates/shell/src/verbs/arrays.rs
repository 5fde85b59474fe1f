//! Commands on arrays of disks.

use crate::arguments::{device_list, new_name, options, text};
use crate::devices::{list_volumes, with_devices};
use crate::verb::Action::Call;
use crate::verb::Verb;
use crate::verb::on_disks::{changes, tells};
use crate::workbench::Workbench;
use anyhow::{Result, bail};
use blockyard_appliance::tools::{MDADM, ToolCall};
use blockyard_block::shown;
use blockyard_command_line::terminal::print;
use blockyard_command_line::usage_error::UsageError;
use blockyard_image::guest::OpenImage;
use blockyard_protocol::appliance::Volume;
use std::ffi::{OsStr, OsString};

/// On what mdadm makes of devices.
pub(crate) const VERBS: &[Verb] = &[
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

/// `list-md-devices`.
fn list_arrays(workbench: &mut Workbench, _: &[OsString]) -> Result<()> {
    list_volumes(workbench, is_array)
}

/// `md-create`.
fn create_array(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let name = text(&words[0])?;
    let name = new_name(OsStr::new(name.trim_start_matches("/dev/md/")))?;
    let is_option = |word: &&OsString| !word.to_string_lossy().starts_with('/') && word.to_string_lossy().contains(':');
    let given: Vec<_> = words[1..].iter().filter(is_option).cloned().collect();
    let members: Vec<_> = words[1..].iter().filter(|word| !is_option(word)).cloned().collect();
    let members = device_list(&members)?;
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
