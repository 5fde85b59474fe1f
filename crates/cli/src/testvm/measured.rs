//! What a test measured, and where: for whoever finds its figures later.

use blockyard_command_line::image::listing::time_text;
use rustix::system::uname;
use serde::Serialize;
use std::fs;
use std::time::{SystemTime, UNIX_EPOCH};

/// What is the same for all steps. Its names are an interface: programs read them in JSON.
#[derive(Serialize)]
pub struct Measured {
    /// Of `blockyard`.
    pub version: &'static str,
    /// When it began, UTC.
    pub date: String,
    /// The script, as it was called.
    pub script: String,
    /// Who executed the guests.
    pub backend: &'static str,
    /// The kernel's file; its version is each step's.
    pub kernel_file: String,
    /// What was added to its command line.
    pub append: Option<String>,
    /// vCPUs.
    pub cpus: u32,
    /// Memory.
    pub memory_bytes: u64,
    /// The disks, as they were called before a door or O_DIRECT was put before them.
    pub disks: Vec<String>,
    /// What the script was told.
    pub variables: Vec<String>,
    /// Runs of each step on each machine.
    pub rounds: u32,
    /// The host.
    pub host: Host,
}

/// A host.
#[derive(Serialize)]
pub struct Host {
    /// Its kernel's version.
    pub kernel: String,
    /// What its processor calls itself.
    pub cpu: String,
    /// How many CPUs it has.
    pub cpus: usize,
}

/// Now, UTC.
pub fn now() -> String {
    let seconds = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs());
    time_text(seconds as i64, true)
}

impl Host {
    /// This one.
    pub fn this() -> Self {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
        let names = cpuinfo.lines().filter_map(|line| Some(line.strip_prefix("model name")?.split_once(':')?.1.trim()));
        let names: Vec<_> = names.collect();
        Self {
            kernel: uname().release().to_string_lossy().into_owned(),
            cpu: names.first().map_or_else(String::new, |name| (*name).to_owned()),
            cpus: names.len(),
        }
    }
}
