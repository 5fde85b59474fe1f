//! From a specification back to text.

use super::{Backend, Delta, DiskSpecification, ENGINES, FileSpecification, Kind, PartitionChoice, TABLES};
use crate::layers::ThrottleLimits;
use crate::{duration, size};
use std::fmt::{self, Display};
use std::path::Path;

impl Display for DiskSpecification {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.backend.write_path(f)?;
        self.backend.write_format(f)?;
        flag(f, "ro", self.read_only)?;
        self.backend.write_keys(f)?;
        if let Some(PartitionChoice { number, table }) = self.partition {
            key(f, "partition", Some(number))?;
            key(f, "table", TABLES.iter().find(|(_, choice)| *choice == table).map(|(word, _)| word))?;
        }
        match &self.delta {
            Some(Delta::Overlay(path)) => key(f, "overlay", Some(escaped(path)))?,
            Some(Delta::Snapshot) => flag(f, "snapshot", true)?,
            None => {}
        }
        if let Some(ThrottleLimits { iops, bytes_per_second, burst }) = self.limits {
            key(f, "iops", iops)?;
            key(f, "bps", bytes_per_second.map(|bytes| size::exact(bytes.get())))?;
            let burst = (burst != ThrottleLimits::BURST_DEFAULT).then_some(burst);
            key(f, "burst", burst.map(duration::exact))?;
        }
        key(f, "latency", self.latency)?;
        key(f, "faults", self.faults.as_ref())
    }
}

impl Backend {
    fn write_path(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => {
                // A colon before any slash would be taken for the end of a kind, and - alone for stdin.
                let text = escaped(&file.path);
                let looks_like_a_kind = text.split('/').next().is_some_and(|start| start.contains(':'));
                write!(f, "{}{text}", if looks_like_a_kind || text == "-" { "file:" } else { "" })
            }
            Self::Session(session) => write!(f, "{}:{}", Kind::Session.word(), escaped(&session.path)),
            Self::Memory { capacity_bytes, .. } => {
                write!(f, "{}:{}", Kind::Memory.word(), size::exact(*capacity_bytes))
            }
            Self::Null { capacity_bytes, .. } => write!(f, "{}:{}", Kind::Null.word(), size::exact(*capacity_bytes)),
        }
    }

    fn write_format(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(FileSpecification { format: Some(format), .. }) => key(f, "format", Some(format.word())),
            _ => Ok(()),
        }
    }

    fn write_keys(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(file) => {
                flag(f, "direct", file.direct)?;
                let engine = ENGINES.iter().find(|(_, engine)| Some(*engine) == file.engine);
                key(f, "engine", engine.map(|(word, _)| word))?;
                key(f, "cache", file.cache_unsafe.then_some("unsafe"))?;
                block_size(f, file.logical_block_bytes)
            }
            Self::Session(session) => key(f, "io-buffer", session.io_buffer_bytes.map(size::exact)),
            Self::Memory { logical_block_bytes, .. } | Self::Null { logical_block_bytes, .. } => {
                block_size(f, *logical_block_bytes)
            }
        }
    }
}

fn block_size(f: &mut fmt::Formatter<'_>, bytes: Option<u32>) -> fmt::Result {
    key(f, "block-size", bytes)
}

fn flag(f: &mut fmt::Formatter<'_>, name: &str, is_set: bool) -> fmt::Result {
    if is_set { write!(f, ",{name}") } else { Ok(()) }
}

fn key(f: &mut fmt::Formatter<'_>, name: &str, value: Option<impl Display>) -> fmt::Result {
    value.map_or(Ok(()), |value| write!(f, ",{name}={value}"))
}

/// Of a path that comes from text, nothing is lost.
fn escaped(path: &Path) -> String {
    path.to_string_lossy().replace(',', ",,")
}
