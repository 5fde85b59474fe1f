//! guestfish, the program that ours is compared with, where it is installed.

use crate::timed_command::{self, Finished};
use anyhow::Result;
use blockyard_block::programs;
use std::path::Path;
use std::process::Stdio;
use std::time::SystemTime;

/// guestfish as it runs on this machine.
#[derive(Clone, Debug)]
pub struct Guestfish {
    has_kvm: bool,
}

/// What a script took.
pub(crate) struct ScriptTimes {
    /// From start to end, its machine's boot included.
    pub(crate) whole: f64,
    /// From where the script says [`STAMP`] to the end.
    pub(crate) from_stamp: f64,
}

/// A line of a script: what comes after it is timed by itself.
pub(crate) const STAMP: &str = "!date +%s.%N\n";

impl Guestfish {
    /// `None` where it is not installed. Without KVM that executes guests natively, its machine is emulated.
    pub fn find(has_kvm: bool) -> Option<Self> {
        let version =
            programs::command("guestfish").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
        version.is_ok_and(|status| status.success()).then_some(Self { has_kvm })
    }

    /// Runs a script.
    ///
    /// # Errors
    /// When it fails.
    pub(crate) fn run(&self, script: &str) -> Result<ScriptTimes> {
        let mut command = programs::command("guestfish");
        // No daemon in between, whatever the distribution's default is; what the user has set counts.
        if std::env::var_os("LIBGUESTFS_BACKEND").is_none() {
            command.env("LIBGUESTFS_BACKEND", "direct");
        }
        if !self.has_kvm && std::env::var_os("LIBGUESTFS_BACKEND_SETTINGS").is_none() {
            command.env("LIBGUESTFS_BACKEND_SETTINGS", "force_tcg");
        }
        times(timed_command::run(&mut command, script)?)
    }
}

/// What a script that says [`STAMP`] took. It has just ended.
pub(crate) fn times(finished: Finished) -> Result<ScriptTimes> {
    let ended = SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default().as_secs_f64();
    let stamp = finished.stdout.lines().find_map(|line| line.trim().parse::<f64>().ok());
    let from_stamp = stamp.map_or(finished.seconds, |stamp| ended - stamp);
    Ok(ScriptTimes { whole: finished.seconds, from_stamp })
}

/// A path as guestfish's scripts have it.
pub(crate) fn quoted(path: &Path) -> String {
    let text = path.to_string_lossy().replace('\\', "\\\\").replace('"', "\\\"");
    format!("\"{text}\"")
}
