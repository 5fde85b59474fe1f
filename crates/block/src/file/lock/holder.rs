//! Which process holds a lock.

use super::Conflict;
use crate::printable;
use rustix::fs::{major, minor};
use std::fs::{self, File, Metadata};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

/// "NAME (process N)", if this process may look at the one that holds the lock.
///
/// The kernel names no process with an open file's lock, not even in /proc/locks: such a file may be open in several.
/// But each descriptor's fdinfo lists the locks of what it leads to (proc(5)).
pub(super) fn find(file: &File, conflict: Conflict) -> Option<String> {
    if let Some(process) = conflict.process {
        return describe(process);
    }
    let metadata = file.metadata().ok()?;
    let inode = format!("{:02x}:{:02x}:{}", major(metadata.dev()), minor(metadata.dev()), metadata.ino());
    describe(processes()?.find(|&process| holds(process, &inode, conflict.byte))?)
}

fn processes() -> Option<impl Iterator<Item = u32>> {
    let entries = fs::read_dir("/proc").ok()?.flatten();
    Some(entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()))
}

/// Who has a block device for itself.
#[derive(Debug, PartialEq, Eq)]
pub(in crate::file) enum DeviceHolder {
    /// It, or a part of it, is mounted, or is swap, or belongs to a device that is made of it.
    System,
    /// "NAME (process N)": a program that may write to it, or to a part of it.
    Process(String),
}

/// Who has the block device that `metadata` is of, as far as that can be seen from here.
pub(in crate::file) fn find_of_device(metadata: &Metadata) -> Option<DeviceHolder> {
    let devices = DeviceNumbers::of(metadata.rdev());
    if devices.is_systems() {
        return Some(DeviceHolder::System);
    }
    describe(processes()?.find(|&process| devices.are_written_by(process))?).map(DeviceHolder::Process)
}

/// A device, its partitions, and the device that it is a partition of: who has one has a part of the others.
struct DeviceNumbers {
    directories: Vec<PathBuf>,
    numbers: Vec<u64>,
}

impl DeviceNumbers {
    fn of(number: u64) -> Self {
        let own = PathBuf::from(format!("/sys/dev/block/{}:{}", major(number), minor(number)));
        let mut directories = vec![own.clone()];
        if own.join("partition").exists() {
            directories.push(own.join(".."));
        }
        let below = fs::read_dir(&own).into_iter().flatten().flatten().map(|entry| entry.path());
        directories.extend(below.filter(|path| path.join("partition").exists()));
        let read = |directory: &PathBuf| parse_number(fs::read_to_string(directory.join("dev")).ok()?.trim());
        let mut numbers: Vec<_> = directories.iter().filter_map(read).collect();
        numbers.push(number);
        Self { directories, numbers }
    }

    fn has(&self, path: &Path) -> bool {
        path.starts_with("/dev") && path.metadata().is_ok_and(|device| self.numbers.contains(&device.rdev()))
    }

    fn is_systems(&self) -> bool {
        let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
        let is_mounted = mounts.lines().any(|line| {
            let (number, source) =
                (line.split(' ').nth(2), line.split(" - ").nth(1).and_then(|end| end.split(' ').nth(1)));
            number.and_then(parse_number).is_some_and(|number| self.numbers.contains(&number))
                || source.is_some_and(|source| self.has(Path::new(source)))
        });
        let swaps = fs::read_to_string("/proc/swaps").unwrap_or_default();
        let is_swap =
            || swaps.lines().skip(1).any(|line| self.has(Path::new(line.split(' ').next().unwrap_or_default())));
        let is_part = |directory: &PathBuf| {
            fs::read_dir(directory.join("holders")).is_ok_and(|mut holders| holders.next().is_some())
        };
        is_mounted || is_swap() || self.directories.iter().any(is_part)
    }

    fn are_written_by(&self, process: u32) -> bool {
        let Ok(descriptors) = fs::read_dir(format!("/proc/{process}/fd")) else { return false };
        descriptors.flatten().any(|descriptor| {
            // What a link leads to is looked at only if it lies where devices do: another file system may not answer.
            fs::read_link(descriptor.path()).is_ok_and(|target| self.has(&target))
                && is_writable(
                    &Path::new("/proc").join(process.to_string()).join("fdinfo").join(descriptor.file_name()),
                )
        })
    }
}

/// `MAJOR:MINOR`
fn parse_number(text: &str) -> Option<u64> {
    let (major, minor) = text.split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// Whether a descriptor is open for writing, by its `flags:`, which are octal (proc(5)).
fn is_writable(fdinfo: &Path) -> bool {
    let text = fs::read_to_string(fdinfo).unwrap_or_default();
    let flags = text.lines().find_map(|line| i32::from_str_radix(line.strip_prefix("flags:")?.trim(), 8).ok());
    flags.is_some_and(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY)
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
    Some(format!("{} (process {process})", printable(name.trim_end())))
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
