//! Distributions' kernels that guests in the lab boot, each with a user space of busybox and a script.

use blockyard_linux_guest::{BUSYBOX, write_initramfs_with};
use std::fs;
use std::path::{Path, PathBuf};

pub(crate) struct LabGuest {
    directory: PathBuf,
}

impl LabGuest {
    /// Debian's kernel for virtual machines; `None` where there is none: outside of the lab.
    pub(crate) fn cloud() -> Option<Self> {
        Self::find("")
    }

    /// The one that Debian installs on a PC.
    pub(crate) fn generic() -> Option<Self> {
        Self::find("generic")
    }

    /// The one that Debian installs on a PC of 32 bits.
    pub(crate) fn of_32_bits() -> Option<Self> {
        Self::find("686-pae")
    }

    fn find(place: &str) -> Option<Self> {
        let Some(directory) = std::env::var_os("BLOCKYARD_LAB_GUEST").map(PathBuf::from) else {
            eprintln!("runs in the lab: cargo xtask lab");
            return None;
        };
        Some(Self { directory: directory.join(place) })
    }

    pub(crate) fn kernel(&self) -> PathBuf {
        self.directory.join("vmlinuz")
    }

    /// Writes an initial file system to `path` whose init loads the kernel's modules, runs `script` and powers off.
    pub(crate) fn write_initrd(&self, path: &Path, script: &str) {
        let modules = self.modules();
        let modules: Vec<_> = modules.iter().map(|(name, content)| (&**name, &content[..])).collect();
        let busybox = fs::read(self.directory.join("busybox")).ok();
        let files: Vec<_> = busybox.iter().map(|content| (Path::new(BUSYBOX), &content[..])).collect();
        write_initramfs_with(path, &modules, &files, script).unwrap();
    }

    /// Names and contents, in the order in which they are loaded.
    fn modules(&self) -> Vec<(String, Vec<u8>)> {
        let entries = fs::read_dir(self.directory.join("modules")).unwrap().map(|entry| entry.unwrap().path());
        let mut modules: Vec<_> = entries
            .map(|path| (path.file_name().unwrap().to_str().unwrap().to_owned(), fs::read(&path).unwrap()))
            .collect();
        modules.sort();
        modules
    }
}
