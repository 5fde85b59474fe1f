//! Disks as they are named on the command line.

use crate::{UsageError, size};
use anyhow::{Context, Result};
use blockyard_block::{Disk, FileDisk, FileOptions, MemoryDisk, NullDisk};
use std::path::Path;
use std::sync::Arc;

/// Opens the disk that `spec` names: `mem:SIZE`, `null:SIZE`, or a file's or a block device's path, with `,ro` after it to refuse
/// every change. `read_only` does the same: no command opens for writing what it only reads.
///
/// # Errors
/// A sentence that names the disk.
pub fn open_disk(spec: &str, read_only: bool) -> Result<Arc<dyn Disk>> {
    const LOGICAL_BLOCK_BYTES: u32 = 512;
    let size = |text| size::parse(text).map_err(|problem| UsageError(format!("{spec}: {problem}")));
    if let Some(text) = spec.strip_prefix("mem:") {
        return Ok(Arc::new(MemoryDisk::new(size(text)?, LOGICAL_BLOCK_BYTES).context(spec.to_owned())?));
    }
    if let Some(text) = spec.strip_prefix("null:") {
        return Ok(Arc::new(NullDisk::new(size(text)?, LOGICAL_BLOCK_BYTES).context(spec.to_owned())?));
    }
    let (path, read_only) = match spec.strip_suffix(",ro") {
        Some(path) => (path, true),
        None => (spec, read_only),
    };
    let options = FileOptions { read_only, ..FileOptions::default() };
    Ok(Arc::new(FileDisk::open(Path::new(path), &options)?))
}
