//! How a file system is mounted: flags, options and driver, as mount(8) has them.

use crate::modules;
use rustix::io::Errno;
use rustix::mount::{MountFlags, mount};
use std::ffi::CString;
use std::path::Path;

/// What somebody wants of a mount.
#[derive(Clone, Debug)]
pub(crate) struct MountOptions {
    flags: MountFlags,
    /// For the driver.
    data: Vec<String>,
}

/// Options of mount(8) that are flags to the kernel; what it does not have here is for the driver. `true` sets it.
const FLAGS: [(&str, MountFlags, bool); 16] = [
    ("ro", MountFlags::RDONLY, true),
    ("rw", MountFlags::RDONLY, false),
    ("sync", MountFlags::SYNCHRONOUS, true),
    ("async", MountFlags::SYNCHRONOUS, false),
    ("dirsync", MountFlags::DIRSYNC, true),
    ("noatime", MountFlags::NOATIME, true),
    ("atime", MountFlags::NOATIME, false),
    ("relatime", MountFlags::RELATIME, true),
    ("strictatime", MountFlags::STRICTATIME, true),
    ("nodiratime", MountFlags::NODIRATIME, true),
    ("noexec", MountFlags::NOEXEC, true),
    ("exec", MountFlags::NOEXEC, false),
    ("nosuid", MountFlags::NOSUID, true),
    ("nodev", MountFlags::NODEV, true),
    ("lazytime", MountFlags::LAZYTIME, true),
    ("defaults", MountFlags::empty(), true),
];

impl MountOptions {
    pub(crate) fn new(read_only: bool, synchronous: bool) -> Self {
        let mut flags = MountFlags::NODEV | MountFlags::NOSUID | MountFlags::NOATIME;
        flags.set(MountFlags::RDONLY, read_only);
        flags.set(MountFlags::SYNCHRONOUS, synchronous);
        Self { flags, data: Vec::new() }
    }

    /// What a system's root begins with: the rest its own mount(8) adds.
    pub(crate) fn of_a_system(read_only: bool) -> Self {
        let flags = if read_only { MountFlags::RDONLY } else { MountFlags::empty() };
        Self { flags, data: Vec::new() }
    }

    /// Those and what a comma-separated list says. Nothing is written that was not to be.
    pub(crate) fn with(&self, options: &str) -> Self {
        let mut all = self.clone();
        for option in options.split(',').filter(|option| !option.is_empty()) {
            match FLAGS.iter().find(|(name, ..)| *name == option) {
                Some(&(_, flag, set)) => all.flags.set(flag, set),
                None => all.data.push(option.to_owned()),
            }
        }
        all.flags.set(MountFlags::RDONLY, all.flags.contains(MountFlags::RDONLY) || self.read_only());
        all
    }

    /// What somebody wants of the driver: a list with commas.
    pub(crate) fn for_the_driver(&self) -> String {
        self.data.join(",")
    }

    pub(crate) fn read_only(&self) -> bool {
        self.flags.contains(MountFlags::RDONLY)
    }

    /// Mounts /dev/`node`, if need be without what a read-only disk does not allow; what is worth telling about it.
    pub(crate) fn mount(&self, node: &str, target: &Path, kind: &str) -> Result<&'static str, Errno> {
        let device = format!("/dev/{node}");
        let attempt = |own: &[&str]| {
            let options: Vec<_> = own.iter().copied().chain(self.data.iter().map(String::as_str)).collect();
            let options = CString::new(options.join(",")).map_err(|_| Errno::INVAL)?;
            mount(device.as_str(), target, kind, self.flags, (!options.is_empty()).then_some(options.as_c_str()))
        };
        let (usual, without_journal): (&[_], &[_]) = match kind {
            // Not the tables of inodes that a young file system has not yet zeroed: they take longer than we stay.
            "ext4" if !self.read_only() => (&["noinit_itable", "errors=remount-ro"], &[]),
            "ext4" => (&[], &["noload"]),
            "xfs" => (&["nouuid"], &["nouuid", "norecovery"]),
            "btrfs" => (&[], &["rescue=nologreplay"]),
            // It has no owners: files come without theirs.
            "vfat" => (&["utf8", "quiet"], &[]),
            _ => (&[], &[]),
        };
        match attempt(usual) {
            Ok(()) => Ok(""),
            Err(errno) if self.read_only() && !without_journal.is_empty() => {
                attempt(without_journal).map(|()| "its journal was not replayed").map_err(|_| errno)
            }
            Err(errno) => Err(errno),
        }
    }
}

/// Loads what mounts file systems of that kind.
pub(crate) fn load_driver(kind: &str) {
    modules::load_file_system(kind);
    if kind == "vfat" {
        // The kernel asks for them, one by one, and takes a new process for each.
        for names in ["nls_cp437", "nls_iso8859-1", "nls_utf8"] {
            let _ = modules::load(names);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_are_flags_or_the_drivers_business() {
        let options = MountOptions::new(false, false).with("ro,subvol=@,noexec,defaults,,atime");
        assert!(options.read_only() && options.flags.contains(MountFlags::NOEXEC));
        assert!(!options.flags.contains(MountFlags::NOATIME));
        assert_eq!(options.data, ["subvol=@"]);
        assert!(MountOptions::new(true, false).with("rw").read_only());
    }
}
