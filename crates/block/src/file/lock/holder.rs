//! Which process holds a lock.

use super::Conflict;
use rustix::fs::{major, minor};
use std::fs::{self, File};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// "NAME (process N)", if this process may look at the one that holds the lock.
///
/// The kernel names no process with an open file's lock, not even in /proc/locks: such a file may be open in several. But each
/// descriptor's fdinfo lists the locks of what it leads to (proc(5)).
pub(super) fn find(file: &File, conflict: Conflict) -> Option<String> {
    if let Some(process) = conflict.process {
        return describe(process);
    }
    let metadata = file.metadata().ok()?;
    let inode = format!("{:02x}:{:02x}:{}", major(metadata.dev()), minor(metadata.dev()), metadata.ino());
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut processes = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    describe(processes.find(|&process| holds(process, &inode, conflict.byte))?)
}

fn holds(process: u32, inode: &str, byte: i64) -> bool {
    let Ok(descriptors) = fs::read_dir(format!("/proc/{process}/fdinfo")) else { return false };
    descriptors.flatten().any(|descriptor| has_lock(&descriptor.path(), inode, byte))
}

fn has_lock(fdinfo: &Path, inode: &str, byte: i64) -> bool {
    let Ok(text) = fs::read_to_string(fdinfo) else { return false };
    text.lines()
        .filter_map(|line| line.strip_prefix("lock:"))
        .any(|lock| is_lock_at(lock, inode, byte).unwrap_or(false))
}

/// `1: OFDLCK ADVISORY READ -1 fe:00:1234 100 101`: the last is the end, inclusive, or `EOF`.
fn is_lock_at(lock: &str, inode: &str, byte: i64) -> Option<bool> {
    let mut fields = lock.split_ascii_whitespace().skip_while(|&field| field != inode).skip(1);
    let start = fields.next()?.parse::<i64>().ok()?;
    let end = fields.next()?.parse::<i64>().unwrap_or(i64::MAX);
    Some((start..=end).contains(&byte))
}

fn describe(process: u32) -> Option<String> {
    if process == std::process::id() {
        return Some("this process itself".to_owned());
    }
    let name = fs::read_to_string(format!("/proc/{process}/comm")).ok()?;
    Some(format!("{} (process {process})", name.trim_end()))
}

#[cfg(test)]
mod tests {
    use super::is_lock_at;

    #[test]
    fn a_lock_is_found_in_a_line_of_fdinfo() {
        let lock = "\t1: OFDLCK  ADVISORY  READ -1 fe:00:1234 100 101";
        assert_eq!(
            [99, 100, 101, 102].map(|byte| is_lock_at(lock, "fe:00:1234", byte)),
            [false, true, true, false].map(Some)
        );
        assert_eq!(is_lock_at(lock, "fe:00:123", 100), None);
        assert_eq!(is_lock_at("1: FLOCK ADVISORY WRITE 7 00:01:5 0 EOF", "00:01:5", 1 << 40), Some(true));
        assert_eq!(is_lock_at("1: OFDLCK", "00:01:5", 0), None);
    }
}
