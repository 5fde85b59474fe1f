//! Commands on the shell itself.

use crate::arguments::{text, truth};
use crate::devices::{disk_name, their_name};
use crate::program::OnHost;
use crate::verb::Action::Call;
use crate::verb::on_disks::changes;
use crate::verb::{Verb, of_shell};
use crate::workbench::Workbench;
use anyhow::{Context, Result, bail};
use blockyard_block::shown;
use blockyard_command_line::terminal::print;
use blockyard_command_line::usage_error::UsageError;
use blockyard_protocol::pattern::{is_pattern, matches};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::time::Instant;

/// They say how commands are run, and when that is over.
pub(crate) const VERBS: &[Verb] = &[
    of_shell(&["exit", "quit", "q"], "", "End; what was changed is on stable storage then", Call(exit)),
    of_shell(&["abort"], "", "End, and with --atomic leave the image as it was", Call(abort)),
    of_shell(&["lcd"], "DIR", "Change to a directory of the host", Call(lcd)).on_host(OnHost::All),
    of_shell(&["echo"], "[WORD]…", "Print words", Call(echo)),
    of_shell(&["time"], "COMMAND…", "Run a command and say how long it took", Call(time)),
    of_shell(
        &["glob"],
        "COMMAND…",
        "Run a command for each device that its patterns, such as /dev/sda*, stand for; paths are patterns anyway",
        Call(glob),
    ),
    of_shell(
        &["setenv"],
        "NAME VALUE",
        "Set an environment variable for the host's commands: not possible here",
        Call(setenv),
    ),
    of_shell(&["version"], "", "Say which version this is", Call(version)),
    of_shell(
        &["set-verbose", "verbose"],
        "true|false",
        "Show what the appliance's kernel says, from the next boot on",
        Call(set_verbose),
    ),
    of_shell(
        &["set-trace", "trace", "set-network", "set-autosync", "set-progress-bars"],
        "true|false",
        "Accepted, and without effect here",
        Call(|_, _| Ok(())),
    ),
    of_shell(
        &["run", "launch"],
        "",
        "Boot the appliance, which the first command that needs it does anyway",
        Call(|workbench, _| workbench.image().map(drop)),
    ),
    changes(
        &["reopen"],
        "",
        "Unmount, end the appliance and forget the disks",
        Call(|workbench, _| workbench.reopen()),
    ),
    of_shell(&["shutdown", "close", "kill-subprocess"], "", "Unmount, and end the appliance", Call(shutdown)),
    of_shell(&["smp", "set-smp"], "N", "Accepted: the appliance has one CPU", Call(smp)),
    of_shell(&["memsize", "set-memsize"], "MIB", "The appliance's memory, from the next boot on", Call(memsize)),
];

fn exit(workbench: &mut Workbench, _: &[OsString]) -> Result<()> {
    workbench.is_over = true;
    Ok(())
}

fn abort(workbench: &mut Workbench, _: &[OsString]) -> Result<()> {
    if !workbench.is_atomic() {
        bail!("only what is done with --atomic can be given up");
    }
    workbench.give_up("aborted");
    Ok(())
}

fn lcd(_: &mut Workbench, words: &[OsString]) -> Result<()> {
    std::env::set_current_dir(&words[0]).with_context(|| shown(&words[0]).to_string())
}

fn echo(_: &mut Workbench, words: &[OsString]) -> Result<()> {
    let words: Vec<_> = words.iter().map(|word| word.to_string_lossy()).collect();
    print(&words.join(" "))
}

fn time(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let start = Instant::now();
    let done = workbench.perform(words);
    print(&format!("elapsed time: {:.4} seconds", start.elapsed().as_secs_f64()))?;
    done
}

/// `glob`: a command for each device that its patterns stand for. What is a path may be a pattern anyway.
fn glob(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    let is_device = |word: &OsString| word.as_bytes().starts_with(b"/dev/") && is_pattern(word.as_bytes());
    if !words.iter().any(is_device) {
        return workbench.perform(words);
    }
    workbench.open_stacks()?;
    let disks = (0..workbench.drives().len()).map(disk_name);
    let volumes = workbench.image()?.volumes()?;
    let mut devices: Vec<_> = disks.chain(volumes.iter().map(|volume| their_name(&volume.device))).collect();
    devices.sort();
    devices.dedup();
    let mut lines = vec![Vec::new()];
    for word in words {
        let choices: Vec<OsString> = match is_device(word) {
            true => {
                let fits = |device: &&String| fits(word.as_bytes(), device.as_bytes());
                devices.iter().filter(fits).map(OsString::from).collect()
            }
            false => vec![word.clone()],
        };
        if choices.is_empty() {
            bail!("{}: no device matches", shown(word));
        }
        let longer = |line: &Vec<OsString>| {
            let with = |choice: &OsString| [&line[..], std::slice::from_ref(choice)].concat();
            choices.iter().map(with).collect::<Vec<_>>()
        };
        lines = lines.iter().flat_map(longer).collect();
    }
    lines.iter().try_for_each(|line| workbench.perform(line))
}

/// Whether a pattern stands for a device: name by name, as for a path.
fn fits(pattern: &[u8], device: &[u8]) -> bool {
    let (steps, names) = (pattern.split(|&byte| byte == b'/'), device.split(|&byte| byte == b'/'));
    steps.clone().count() == names.clone().count() && steps.zip(names).all(|(step, name)| matches(step, name))
}

fn setenv(_: &mut Workbench, _: &[OsString]) -> Result<()> {
    bail!("this program's environment stays as it is: write !NAME=VALUE COMMAND")
}

fn version(_: &mut Workbench, _: &[OsString]) -> Result<()> {
    print(concat!("blockyard ", env!("CARGO_PKG_VERSION")))
}

fn set_verbose(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    workbench.how.verbose = truth(&words[0])?;
    Ok(())
}

fn shutdown(workbench: &mut Workbench, _: &[OsString]) -> Result<()> {
    workbench.unmount_all()?;
    workbench.stop()
}

fn smp(_: &mut Workbench, words: &[OsString]) -> Result<()> {
    match text(&words[0])?.parse::<u32>() {
        Ok(1..) => Ok(()),
        _ => bail!(UsageError(format!("{} is no number of CPUs", shown(&words[0])))),
    }
}

fn memsize(workbench: &mut Workbench, words: &[OsString]) -> Result<()> {
    match text(&words[0])?.parse::<u64>() {
        Ok(mebibytes @ 64..=65536) => workbench.how.memory = mebibytes,
        _ => bail!(UsageError(format!("{}: between 64 and 65536 MiB can be had", shown(&words[0])))),
    }
    Ok(())
}
