//! What the kernel says of block devices (sysfs(5)).

use std::fs;

/// Directories below /sys/block have a file for each device.
pub(crate) const SYSFS: &str = "/sys/class/block";

/// Names in a directory; none where there is none.
pub(crate) fn names_in(directory: &str) -> Vec<String> {
    let entries = fs::read_dir(directory).into_iter().flatten();
    entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

/// The number in a file; 0 where there is none.
pub(crate) fn number_in(path: &str) -> u64 {
    fs::read_to_string(path).ok().and_then(|text| text.trim_end().parse().ok()).unwrap_or(0)
}

/// How large a device is.
pub(crate) fn size_bytes(node: &str) -> u64 {
    number_in(&format!("{SYSFS}/{node}/size")).saturating_mul(512)
}

/// The least that can be read of a disk, or written.
pub(crate) fn sector_bytes(disk: &str) -> u64 {
    number_in(&format!("{SYSFS}/{disk}/queue/logical_block_size")).max(512)
}
