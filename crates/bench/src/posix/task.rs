//! dd and fio: their options, and what they say of themselves.

use super::place::Place;
use anyhow::{Context, Result, bail};
use blockyard_block::size;
use serde::Serialize;
use std::ffi::OsString;
use std::path::Path;
use std::time::Duration;

/// Bytes of dd's blocks, as the reference has them.
const BLOCK_SIZES: [u64; 7] = [4 << 10, 8 << 10, 32 << 10, 128 << 10, 512 << 10, 2 << 20, 8 << 20];
/// What half of the data is a multiple of: dd copies one half to the other.
pub(super) const LENGTH_MULTIPLE_BYTES: u64 = 2 * BLOCK_SIZES[BLOCK_SIZES.len() - 1];
/// Requests that fio keeps under way, where it can.
pub(super) const DEPTH: u32 = 64;

/// A program that was never changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Program {
    /// Its figures are 10⁶ bytes a second.
    Dd,
    /// Its figures are 10³ requests a second.
    Fio,
}

impl Program {
    pub(super) const ALL: [Self; 2] = [Self::Dd, Self::Fio];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Dd => "dd",
            Self::Fio => "fio",
        }
    }

    pub(super) fn unit(self) -> &'static str {
        match self {
            Self::Dd => "MB/s",
            Self::Fio => "k/s",
        }
    }
}

/// A program with its options.
#[derive(Clone, Copy)]
pub(super) enum Task {
    Dd(Dd),
    Fio(Fio),
}

/// dd, with blocks of so many bytes.
#[derive(Clone, Copy)]
pub(super) struct Dd {
    what: Copying,
    block_bytes: u64,
    /// Past the page cache (`O_DIRECT`).
    direct: bool,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Copying {
    /// From the data, to nothing.
    Read,
    /// From another file to the data; stable at the end, as what is copied.
    Write,
    /// From one half of the data to the other.
    Copy,
}

/// fio, with requests of 4 KiB.
#[derive(Clone, Copy)]
pub(super) struct Fio {
    workload: &'static str,
    engine: Engine,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Engine {
    Sync,
    PosixAio,
    LibAio,
    LibAioDirect,
    IoUring,
}

/// What a program works on.
pub(super) struct Data<'a> {
    pub(super) path: &'a Path,
    pub(super) start_bytes: u64,
    pub(super) length_bytes: u64,
    /// A file of as many bytes.
    pub(super) source: &'a Path,
    /// How long fio goes on.
    pub(super) runtime: Duration,
}

/// All there are, in the order of the rows.
pub(super) fn all() -> Vec<Task> {
    let mut all = Vec::new();
    for what in [Copying::Read, Copying::Write, Copying::Copy] {
        for direct in [false, true] {
            all.extend(BLOCK_SIZES.map(|block_bytes| Task::Dd(Dd { what, block_bytes, direct })));
        }
    }
    for workload in ["randread", "randwrite", "read", "write"] {
        let engines = [Engine::Sync, Engine::PosixAio, Engine::LibAio, Engine::LibAioDirect, Engine::IoUring];
        all.extend(engines.map(|engine| Task::Fio(Fio { workload, engine })));
    }
    all
}

impl Task {
    /// Without the program's.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Dd(Dd { what, block_bytes, direct }) => {
                let what = match what {
                    Copying::Read => "read",
                    Copying::Write => "write",
                    Copying::Copy => "copy",
                };
                format!("{what}{} {}", if *direct { " direct" } else { "" }, size::exact(*block_bytes))
            }
            Self::Fio(Fio { workload, engine }) => format!("{workload} {}", engine.name()),
        }
    }

    pub(super) fn program(&self) -> Program {
        match self {
            Self::Dd(_) => Program::Dd,
            Self::Fio(_) => Program::Fio,
        }
    }

    /// Whether it can be there: the kernel's own asynchronous I/O never asks libc, and so is on no disk.
    pub(super) fn may_be_at(&self, place: Place) -> bool {
        match self {
            Self::Fio(fio) => place == Place::Host || matches!(fio.engine, Engine::Sync | Engine::PosixAio),
            Self::Dd(_) => true,
        }
    }

    /// Whether it goes past the page cache.
    pub(super) fn is_direct(&self) -> bool {
        match self {
            Self::Dd(dd) => dd.direct,
            Self::Fio(fio) => fio.engine == Engine::LibAioDirect,
        }
    }

    pub(super) fn arguments(&self, data: &Data<'_>) -> Vec<OsString> {
        match self {
            Self::Dd(dd) => dd.arguments(data),
            Self::Fio(fio) => fio.arguments(data),
        }
    }

    /// What the program says of itself.
    pub(super) fn rate(&self, data: &Data<'_>, stdout: &str, stderr: &str) -> Result<f64> {
        match self {
            Self::Dd(dd) => {
                let seconds = seconds_of_dd(stderr).with_context(|| format!("dd says no time: {}", stderr.trim()))?;
                Ok(dd.length_bytes(data) as f64 / 1e6 / seconds)
            }
            Self::Fio(_) => requests_of_fio(stdout),
        }
    }
}

impl Dd {
    fn length_bytes(&self, data: &Data<'_>) -> u64 {
        if self.what == Copying::Copy { data.length_bytes / 2 } else { data.length_bytes }
    }

    fn arguments(&self, data: &Data<'_>) -> Vec<OsString> {
        let length_bytes = self.length_bytes(data);
        let (input, skip_bytes) = match self.what {
            Copying::Read | Copying::Copy => (data.path, data.start_bytes),
            Copying::Write => (data.source, 0),
        };
        let mut words = vec![format!("bs={}", self.block_bytes), format!("count={length_bytes}")];
        let reads_direct = if self.direct && self.what != Copying::Write { ",direct" } else { "" };
        words.extend([format!("skip={skip_bytes}"), format!("iflag=count_bytes,skip_bytes{reads_direct}")]);
        let output = match self.what {
            Copying::Read => Path::new("/dev/null"),
            Copying::Write | Copying::Copy => {
                let seek_bytes = data.start_bytes + (data.length_bytes - length_bytes);
                let direct = if self.direct { ",direct" } else { "" };
                words.extend([format!("seek={seek_bytes}"), format!("oflag=seek_bytes{direct}")]);
                words.push("conv=notrunc,fsync".to_owned());
                data.path
            }
        };
        let mut words: Vec<OsString> = words.into_iter().map(OsString::from).collect();
        words.extend([named("if=", input), named("of=", output)]);
        words
    }
}

impl Engine {
    fn name(self) -> &'static str {
        match self {
            Self::Sync => "psync",
            Self::PosixAio => "posixaio",
            Self::LibAio => "libaio",
            Self::LibAioDirect => "libaio direct",
            Self::IoUring => "io_uring",
        }
    }
}

impl Fio {
    fn arguments(&self, data: &Data<'_>) -> Vec<OsString> {
        let Self { workload, engine } = *self;
        let depth = if engine == Engine::Sync { 1 } else { DEPTH };
        let direct = u8::from(engine == Engine::LibAioDirect);
        let name = engine.name().split(' ').next().unwrap_or_default();
        let words = ["--name=x", "--bs=4k", "--time_based", "--invalidate=0", "--output-format=json"];
        let mut words: Vec<OsString> = words.map(OsString::from).into();
        words.extend(
            [
                format!("--rw={workload}"),
                format!("--ioengine={name}"),
                format!("--iodepth={depth}"),
                format!("--direct={direct}"),
                format!("--offset={}", data.start_bytes),
                format!("--size={}", data.length_bytes),
                format!("--runtime={}ms", data.runtime.as_millis()),
            ]
            .map(OsString::from),
        );
        words.push(named("--filename=", data.path));
        words
    }
}

fn named(option: &str, path: &Path) -> OsString {
    let mut word = OsString::from(option);
    word.push(path);
    word
}

/// `536870912 bytes (537 MB, 512 MiB) copied, 0.123 s, 4.4 GB/s`.
fn seconds_of_dd(said: &str) -> Option<f64> {
    let line = said.lines().rev().find(|line| line.contains(" copied, "))?;
    line.split(" copied, ").nth(1)?.split(' ').next()?.parse().ok()
}

/// Thousands a second.
fn requests_of_fio(said: &str) -> Result<f64> {
    // Notes of fio's may stand before it.
    let report = said.find('{').map_or("", |start| &said[start..]);
    let report: serde_json::Value = serde_json::from_str(report).context("fio's report is no JSON")?;
    let rate = |way: &str| report["jobs"][0][way]["iops"].as_f64().unwrap_or(0.0);
    match rate("read") + rate("write") {
        requests if requests > 0.0 => Ok(requests / 1e3),
        _ => bail!("fio made no request"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dd_says_how_long_it_took() {
        let said =
            "128+0 records in\n128+0 records out\n536870912 bytes (537 MB, 512 MiB) copied, 0.0631 s, 8.5 GB/s\n";
        assert_eq!(seconds_of_dd(said), Some(0.0631));
        assert_eq!(seconds_of_dd("dd: failed to open\n"), None);
    }

    #[test]
    fn fio_says_how_much_it_did() {
        let said = "note: both iodepth >= 1\n{\"jobs\": [{\"read\": {\"iops\": 0.0}, \"write\": {\"iops\": 1500.0}}]}";
        assert_eq!(requests_of_fio(said).unwrap(), 1.5);
        assert!(requests_of_fio("{\"jobs\": []}").is_err() && requests_of_fio("").is_err());
    }

    #[test]
    fn each_is_named_once() {
        let mut names: Vec<_> = all().iter().map(Task::name).collect();
        assert_eq!(names[..2], ["read 4K", "read 8K"]);
        let count = names.len();
        names.sort();
        names.dedup();
        assert_eq!(names.len(), count);
    }

    #[test]
    fn what_dd_writes_is_the_data_and_nothing_else() {
        const MIB: u64 = 1 << 20;
        let data = Data {
            path: Path::new("/disk"),
            start_bytes: MIB,
            length_bytes: 32 * MIB,
            source: Path::new("/source"),
            runtime: Duration::ZERO,
        };
        let words = |what, direct| {
            let words = Dd { what, block_bytes: 4096, direct }.arguments(&data);
            words.into_iter().map(|word| word.into_string().unwrap()).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            words(Copying::Read, true),
            "bs=4096 count=33554432 skip=1048576 iflag=count_bytes,skip_bytes,direct if=/disk of=/dev/null"
        );
        assert_eq!(
            words(Copying::Write, true),
            "bs=4096 count=33554432 skip=0 iflag=count_bytes,skip_bytes seek=1048576 oflag=seek_bytes,direct \
             conv=notrunc,fsync if=/source of=/disk"
        );
        assert_eq!(
            words(Copying::Copy, false),
            "bs=4096 count=16777216 skip=1048576 iflag=count_bytes,skip_bytes seek=17825792 oflag=seek_bytes \
             conv=notrunc,fsync if=/disk of=/disk"
        );
    }
}
